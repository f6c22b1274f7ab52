"""Folding: a leaf merges its partitions in the memory of its own state, with the bits of any merge; others' stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sketchselect as sks
from sketchselect._progress import Result
from sketchselect.execution.source import Source
from sketchselect.execution.summarize import SummariseBlock, merge_summaries, merge_summaries_in_place
from sketchselect.execution.tasks import Reduction, Span, TaskContext, run_leaf
from sketchselect.readers import open_matrix
from sketchselect.summaries import DecayedDirections

ROWS = np.random.default_rng(0).standard_normal((60, 70))
SPANS = [Span(i, 10 * i, 10 * i + 10, 1) for i in range(6)]

DESCRIPTIONS = {
    "sketch": sks.FrequentDirections(4),
    "decayed": DecayedDirections(4, half_life=20),
    "bundle": sks.Bundle(sketch=sks.FrequentDirections(4), stats=sks.ColumnStats()),
    "moments": sks.Moments(),
}


def pieces(description: Any) -> list[Any]:
    """Return the summaries of the spans."""
    return [description.from_block(ROWS[s.start : s.stop], start=s.start) for s in SPANS]


def reduction(leaf: Any) -> Reduction[Any]:
    """Return a reduction to summaries."""
    return Reduction(leaf, merge_summaries, merge_in_place=merge_summaries_in_place)


def spec(description: Any) -> TaskContext[Any]:
    """Return the pass of a summary."""
    return TaskContext(Source(open_matrix(ROWS)), reduction(SummariseBlock(description)))


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_a_fold_has_the_bits_of_a_merge_and_leaves_the_second_alone(name: str) -> None:
    merged, folded, others = pieces(DESCRIPTIONS[name]), pieces(DESCRIPTIONS[name]), pieces(DESCRIPTIONS[name])
    left, right = merged[0], folded[0]
    for i in range(1, 6):
        left, right = left.merge(merged[i]), merge_summaries_in_place(right, folded[i])
        assert right == left
        assert folded[i] == others[i]


def test_the_rows_of_a_fold_are_where_those_of_the_first_were_and_read_only() -> None:
    description = sks.FrequentDirections(4)
    first = description.from_block(ROWS[:20]).merge(description.from_block(ROWS[20:40]))
    place = first.record.rows
    folded = first
    for rows in (ROWS[40:], ROWS[:8]):
        folded = merge_summaries_in_place(folded, description.from_block(rows))
        assert len(folded.record.rows) < 4
        assert np.shares_memory(folded.record.rows, place)
        assert not folded.record.rows.flags.writeable


def test_a_merge_of_what_somebody_has_changes_neither() -> None:
    first, second, *_ = pieces(DESCRIPTIONS["sketch"])
    copies = pieces(DESCRIPTIONS["sketch"])
    whole = first.merge(second).merge(second)
    assert (first, second) == tuple(copies[:2])
    assert not np.shares_memory(whole.record.rows, first.record.rows)


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_a_leaf_that_goes_on_from_a_state_leaves_it_as_it_was(name: str) -> None:
    one = spec(DESCRIPTIONS[name])
    start, same = run_leaf(one, SPANS[:3]), run_leaf(one, SPANS[:3])
    whole = run_leaf(one, SPANS[3:], before=start)
    assert start.value == same.value
    assert whole.value == run_leaf(one, SPANS).value
    # Without rows a merge is the state before, itself.
    empty = TaskContext(one.source, reduction(lambda block: DESCRIPTIONS[name].empty(70)))
    nothing: Result[Any] = run_leaf(empty, SPANS[3:5], before=start)
    assert start.value == same.value == nothing.value
