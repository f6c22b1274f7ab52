"""Jobs whose process is killed and whose source changes before they are run again.

The second run gives what a first one would give of the rows as they are now, to the bit, or says in one line why not.
"""

from __future__ import annotations

import contextlib
import io
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.faults.test_changing_sources import HEIGHT, NEW, OLD, PARTITION, STORES, Place
from tests.job.commands import cli, refused, works
from tests.readers.conftest import anndata_store, parquet_table

from sketchselect.job.text import write_toml

PART = 2 * HEIGHT
"""Rows of a partition, of which the old rows have three."""

KILLED = """
import os, signal
from sketchselect.__main__ import main
from sketchselect.execution import checkpoints
from sketchselect.workflow.folder import OutputFolder

def killing(function, last):
    calls = []
    def call(*args):
        result = function(*args)
        calls.append(args)
        if last(calls):
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return call

if {stage!r} == "summarize":
    checkpoints.write_file = killing(checkpoints.write_file, lambda calls: True)
else:
    OutputFolder.write = killing(OutputFolder.write, lambda calls: calls[-1][1] == "selection.json")
main()
"""
"""The command line, killed once a node of the first pass is saved, or before the stage that follows the selection."""


@dataclass
class Files(Place):
    """One file or a folder of them, in which those whose rows change are written anew."""

    write: Callable[[Path, np.ndarray], None] = lambda path, rows: None

    def put(self, rows: np.ndarray) -> None:
        self.rows = rows
        self.write(self.folder, rows)

    def append(self, rows: np.ndarray) -> None:
        self.put(np.vstack([self.rows, rows]))

    def shorten(self, n_rows: int) -> None:
        self.put(self.rows[:n_rows])


def parquet_folder(folder: Path, rows: np.ndarray) -> None:
    folder.mkdir(exist_ok=True)
    names = set()
    for low in range(0, len(rows), PART):
        stream = io.BytesIO()
        pq.write_table(parquet_table(rows[low : low + PART]), stream)
        path = folder / f"{low:06}.parquet"
        names.add(path)
        if not path.exists() or path.read_bytes() != stream.getvalue():
            path.write_bytes(stream.getvalue())
    for path in set(folder.iterdir()) - names:
        path.unlink()


def tall_row_group(path: Path, rows: np.ndarray) -> None:
    pq.write_table(parquet_table(rows), path, row_group_size=len(rows))
    assert pq.ParquetFile(path).num_row_groups == 1


def h5ad(path: Path, rows: np.ndarray) -> None:
    pytest.importorskip("anndata")
    anndata_store(path.parent, rows, "h5ad").rename(path)


def files(name: str, write: Callable[[Path, np.ndarray], None]) -> Callable[[Path], contextlib.nullcontext[Place]]:
    """Return what makes a place of this name that is written so."""
    return lambda folder: contextlib.nullcontext(Files(str(folder / name), folder / name, write=write))


PLACES: dict[str, Callable[[Path], contextlib.AbstractContextManager[Place]]] = {
    "parquet, one tall row group": files("rows.parquet", tall_row_group),
    "parquet folder": files("parts", parquet_folder),
    "npy": files("rows.npy", np.save),
    "zarr": STORES["local"],
    "h5ad": files("rows.h5ad", h5ad),
    "http, Last-Modified": STORES["http, Last-Modified"],
}


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    (tmp_path / "data").mkdir()
    with PLACES[request.param](tmp_path / "data") as place:
        place.put(OLD)
        yield place


CHANGES: dict[str, Callable[[Place], None]] = {
    "rewritten": lambda place: place.put(NEW),
    "appended": lambda place: place.append(NEW[:PART]),
    "shortened": lambda place: place.shorten(3 * HEIGHT),
}


STAGES = [*((change, "summarize") for change in CHANGES), ("rewritten", "write features")]
EVERY_CHANGE = {
    *(("zarr", *case) for case in STAGES),
    ("http, Last-Modified", "rewritten", "summarize"),
    ("parquet, one tall row group", "rewritten", "summarize"),
    ("h5ad", "rewritten", "summarize"),
    ("parquet folder", "appended", "summarize"),
    ("npy", "shortened", "summarize"),
}
"""Every change of a local store, and one of each other place; the others are nightly."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "change", "stage"),
    [
        pytest.param(place, *case, marks=[] if (place, *case) in EVERY_CHANGE else [pytest.mark.nightly])
        for place in PLACES
        for case in STAGES
    ],
    indirect=["place"],
)
def test_the_second_run_is_of_the_rows_as_they_are(place: Place, change: str, stage: str, tmp_path: Path) -> None:
    job = {
        "input": {"url": place.url, "storage_options": place.options},
        "select": {"method": "variance", "n_features": 3},
        "cluster": {"n_clusters": 2, "max_iter": 3, "certificate": False},
        "execution": {"cluster": "serial", "partition_bytes": 2 * PARTITION, "checkpoint_seconds": 0},
        "output": {"report": False},
    }
    (tmp_path / "job.toml").write_text(write_toml(job))
    out, whole = tmp_path / "out", tmp_path / "whole"
    run = ["run", str(tmp_path / "job.toml"), "-v", "--set"]
    program = [sys.executable, "-c", KILLED.format(stage=stage), *run, f"output.dir={out}"]
    killed = subprocess.run(program, capture_output=True, text=True, timeout=600, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (out / "summary.sks").exists() == (stage != "summarize")
    assert list((out / "checkpoints").rglob("*.sks"))

    CHANGES[change](place)
    again = cli(*run, f"output.dir={out}")
    if again.exit_code != 0:
        refused(again, 1, place.url)
        return
    works(*run, f"output.dir={whole}")
    for name in ("summary.sks", "selection.json", "features.zarr/c/0/0", "labels.zarr/c/0"):
        assert (out / name).read_bytes() == (whole / name).read_bytes(), name
