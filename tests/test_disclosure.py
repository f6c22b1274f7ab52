"""DISCLOSURE.md: every kind of summary and every file of a run has a line, and what the lines say can be done."""

import re
from pathlib import Path

import numpy as np

import sketchselect as sks
from sketchselect.summaries.base import KINDS
from sketchselect.workflow.folder import PUBLISHED

PAGE = (Path(__file__).resolve().parent.parent / "DISCLOSURE.md").read_text(encoding="utf-8")


def named(heading: str) -> set[str]:
    section = PAGE.split(f"## {heading}", 1)[1].split("\n## ", 1)[0]
    return {name for line in section.splitlines() if line.startswith("| `") for name in re.findall("`(.*?)`", line)}


def test_every_kind_and_every_file_has_a_line() -> None:
    assert {cls.kind for cls in KINDS.values()} <= named("Summaries")
    # Labels and centres of two ways of clustering are labels and centres.
    files = {re.sub("-(un)?weighted", "", name) for name in PUBLISHED}
    assert files <= named("Files of a run")


def test_what_is_said_to_be_readable_is() -> None:
    rows = np.random.default_rng(0).standard_normal((6, 40))
    sketch = sks.summarize(rows, sks.FrequentDirections(size=8)).sketch
    np.testing.assert_allclose(sketch.T @ sketch, rows.T @ rows, atol=1e-12)
    stats = sks.summarize(rows, sks.ColumnStats())
    assert np.array_equal(stats.minimum, rows.min(axis=0))
    moments = sks.summarize(rows[:2], sks.Moments())
    directions, squares, _ = np.linalg.svd(moments.covariance())
    step = directions[:, 0] * np.sqrt(squares[0])
    read = np.stack([moments.mean - step, moments.mean + step])
    assert min(np.abs(read - rows[:2]).max(), np.abs(read - rows[1::-1]).max()) < 1e-12
