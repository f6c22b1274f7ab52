"""`sketchselect certify SOURCE --labels FILE`: labels as people have them, and what is said of noise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .commands import cli

ROWS = np.random.default_rng(0).standard_normal((90, 3)) + 20.0 * np.repeat(np.eye(3), 30, axis=0)
LABELS = np.repeat([0, 1, 2], 30)
KINDS = (
    "npy",
    "npy from 1",
    "npy of text",
    "txt",
    "csv with a name",
    "csv with ids",
    "csv from 1 with a name",
    "labels.csv",
)
WORDS = np.array(["tumour", "immune", "stroma"])[LABELS]


def _write(path: Path, lines: list[Any]) -> Path:
    path.write_text("\n".join(map(str, lines)) + "\n")
    return path


def _npy(path: Path, values: np.ndarray) -> Path:
    np.save(path, values)
    return path


def _files(folder: Path) -> dict[str, Path]:
    return {
        "npy": _npy(folder / "a.npy", LABELS),
        "npy from 1": _npy(folder / "b.npy", LABELS + 1),
        "npy of text": _npy(folder / "c.npy", WORDS),
        "txt": _write(folder / "d.txt", list(LABELS)),
        "csv with a name": _write(folder / "e.csv", ["cell_type", *WORDS]),
        "csv with ids": _write(folder / "f.csv", ["id,labels", *(f"row{i},{v}" for i, v in enumerate(WORDS))]),
        "csv from 1 with a name": _write(folder / "g.csv", ["leiden", *(LABELS + 1)]),
        "labels.csv": _write(folder / "h.csv", ["name,cluster", *(f"r{i},{v}" for i, v in enumerate(LABELS))]),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_labels_are_read_from(kind: str, tmp_path: Path) -> None:
    rows = _npy(tmp_path / "rows.npy", ROWS)
    words = ("certify", rows, "--labels", _files(tmp_path)[kind], "--clusters", 3, "--cluster", "serial", "--json")
    done = cli(*words)
    assert done.exit_code == 0, done.output
    expected = sum(((ROWS[j == LABELS] - ROWS[j == LABELS].mean(axis=0)) ** 2).sum() for j in range(3))
    certificate = json.loads(done.stdout)
    assert certificate["objective"] == pytest.approx(expected, rel=1e-12)
    assert certificate["share"] > 0.9


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a,b", *("1,2" for _ in LABELS)], "none of them called 'labels'"),
        (["x", *LABELS, 7], "has shape (91,), the matrix has 90 rows"),
        ([*WORDS[:89], "other"], "more than 3 different values"),
        ([*LABELS[:89], 3], "row 89 has the label 3, but labels of 3 clusters are below 3"),
        ([*(LABELS[:89] + 1), 2.5], "(rows 0 to 89): label"),
    ],
)
def test_labels_that_cannot_be_are_refused(lines: list[Any], message: str, tmp_path: Path) -> None:
    rows, labels = _npy(tmp_path / "rows.npy", ROWS), _write(tmp_path / "labels.csv", lines)
    done = cli("certify", rows, "--labels", labels, "--clusters", 3, "--cluster", "serial")
    assert done.exit_code in (1, 2)
    assert message in done.stderr


def test_random_labels_on_noise_are_not_praised(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = _npy(tmp_path / "noise.npy", rng.standard_normal((1000, 100)))
    labels = _npy(tmp_path / "random.npy", rng.integers(0, 5, 1000))
    done = cli("certify", rows, "--labels", labels, "--clusters", 5, "--cluster", "serial")
    assert done.exit_code == 0, done.output
    assert "% of what 5 clusters can gain over one cluster" in done.stdout
    assert "this says little about the clusters" in done.stdout
