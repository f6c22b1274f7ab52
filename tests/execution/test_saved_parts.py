"""Which parts of a pass are saved by default, and what an interrupted run says of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sketchselect as sks
from sketchselect._progress import Progress, Result, Statistics
from sketchselect.errors import Interrupted
from sketchselect.execution import Checkpoint
from sketchselect.execution.checkpoints import LEAST_RATIO, WRITE_RATE, WRITE_SECONDS


class State:
    def __init__(self, nbytes: float) -> None:
        self.nbytes = int(nbytes)


def part(seconds: float, *, state: float = 1e3, data: float = 1e8) -> Result[Any]:
    return Result(State(state), Statistics(unsaved_seconds=seconds, covered=int(data)))


def due(one: Result[Any], directory: str = "folder", min_seconds: float | None = None) -> bool:
    rules = Checkpoint(directory, min_bytes=10**12, min_seconds=min_seconds)
    return rules.is_due(one.stats.covered, one.stats.unsaved_seconds, one.value.nbytes)


@pytest.mark.parametrize(
    ("one", "is_due"),
    [
        (part(0.7), False),
        (part(0.9), True),  # long before a minute
        (part(40.0, state=1e8, data=1e10), False),
        (part(41.0, state=1e8, data=1e10), True),
        (part(1e6, state=1e8, data=1e8), False),  # as large as the data: they are read again instead
        (part(0.0, data=2e12), True),
    ],
)
def test_a_part_is_saved_where_its_work_is_forty_times_the_cost_of_its_file(one: Result[Any], is_due: bool) -> None:
    assert due(one) == is_due
    assert due(one, min_seconds=60.0) == (one.stats.unsaved_seconds >= 60 or one.stats.covered >= 1e12)


def test_files_elsewhere_cost_more() -> None:
    assert due(part(1.0))
    assert not due(part(1.0), "s3://bucket/folder")
    assert due(part(9.0), "s3://bucket/folder")
    assert WRITE_SECONDS[0] < WRITE_SECONDS[1]
    assert WRITE_RATE > 0
    assert LEAST_RATIO > 1


class Ctrl(Progress):
    """Ctrl-C after some partitions."""

    def __init__(self, after: int) -> None:
        self.left = after

    def advance(self, nbytes: int) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("min_seconds", "saved", "then"),
    [
        (0.0, r"[1-9]\d* of 25 partitions are in checkpoints", "goes on from there"),
        (1e9, "0 of 25 partitions are in checkpoints", "starts from the beginning"),
    ],
)
def test_an_interrupted_pass_says_how_much_of_it_is_saved(
    tmp_path: Any, min_seconds: float, saved: str, then: str
) -> None:
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).standard_normal((5000, 4)))
    checkpoint = Checkpoint(tmp_path / "nodes", min_seconds=min_seconds, state_ratio=0.0)
    options: dict[str, Any] = {"partition_bytes": 6400, "checkpoint": checkpoint, "client": "serial"}
    with pytest.raises(Interrupted, match=rf"interrupted; summarize: {saved}; the same command {then}"):
        sks.summarize(tmp_path / "rows.npy", sks.ColumnStats(), progress=Ctrl(20), **options)


def test_without_a_checkpoint_nothing_is_saved(tmp_path: Any) -> None:
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).standard_normal((5000, 4)))
    with pytest.raises(Interrupted, match="0 of 25 partitions are in checkpoints"):
        sks.summarize(
            tmp_path / "rows.npy", sks.ColumnStats(), partition_bytes=6400, client="serial", progress=Ctrl(20)
        )
