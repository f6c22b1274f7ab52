"""What a dry run times of a pass: a partition, and merges of as many states as its rows make."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.execution import PassOptions, Source
from sketchselect.execution.engine import reduce_blocks
from sketchselect.execution.tasks import Reduction
from sketchselect.workflow.plan.forecast import DryRun

FEW = 16


@pytest.mark.parametrize(
    ("rows", "edges"), [(FEW, [0, 16]), (24, [0, 16, 24]), (120, [0, 16, 120]), (240, [0, 16, 32, 240])]
)
def test_states_of_different_rows_are_merged_in_order(rows: int, edges: list[int]) -> None:
    """Every second merge of two sketches shrinks, and the first does not: one alone says nothing of their mean."""
    merged: list[tuple[Any, Any]] = []

    def merge(left: Any, right: Any) -> Any:
        merged.append((left, right))
        return (left[0], right[1])

    engine = DryRun("serial", 1, seconds=1e6, rows=FEW)
    source = Source(sks.open_matrix(np.zeros((240, 10))))
    reduction = Reduction(lambda block: (block.start, block.stop), merge, "pass", state_nbytes=16)
    whole = reduce_blocks(source, reduction, PassOptions(engine, partition_bytes=rows * 10 * 8)).value
    ranges = list(pairwise(edges))
    assert merged == [((0, a), (a, b)) for a, b in ranges[1:]]
    assert whole == (0, rows)
