"""The tree: every partition once and in order, whatever is appended, from numbers alone."""

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import sketchselect as sks
from sketchselect._progress import Result
from sketchselect.execution.source import Source
from sketchselect.execution.summarize import SummariseBlock, merge_summaries, merge_summaries_in_place
from sketchselect.execution.tasks import Reduction, Span, TaskContext, run_leaf
from sketchselect.execution.tree import BIG_STATE_NBYTES, CHAIN_RATIO, MergeTree, Node, make_tree
from sketchselect.readers import open_matrix
from sketchselect.summaries import DecayedDirections

trees = st.builds(MergeTree, st.integers(1, 700), st.integers(1, 9), st.sampled_from([2, 8]))


def walk(tree, node):
    """Partitions in the order in which folding the tree meets them."""
    below = tree.children(node)
    if not below:
        return list(tree.partitions(node))
    return [p for child in below for p in walk(tree, child)]


def shape(tree, node):
    """The nested order of merges below a node."""
    below = tree.children(node)
    return tuple(shape(tree, c) for c in below) if below else tuple(tree.partitions(node))


@given(trees)
def test_every_partition_exactly_once_and_in_order(tree):
    assert walk(tree, tree.root) == list(range(tree.n_partitions))


@given(trees)
def test_nodes_have_few_children_and_never_one(tree):
    for node in tree.post_order():
        below = tree.children(node)
        assert len(below) != 1
        assert len(below) <= tree.fan_in
        assert len(tree.partitions(node)) <= tree.chain * tree.fan_in**node.level


@given(trees)
def test_post_order_has_children_before_parents_and_each_node_once(tree):
    seen = set()
    for node in tree.post_order():
        assert node not in seen
        assert seen.issuperset(tree.children(node))
        seen.add(node)
    assert tree.root in seen or tree.n_leaves == 1


@given(trees, st.integers(1, 200))
def test_appended_partitions_leave_full_nodes_as_they_are(tree, more):
    longer = MergeTree(tree.n_partitions + more, tree.chain, tree.fan_in)
    there = set(longer.post_order())
    for node in tree.post_order():
        width = tree.chain * tree.fan_in**node.level
        if len(tree.partitions(node)) == width:
            assert node in there
            assert shape(tree, node) == shape(longer, node)


@given(trees, st.data())
def test_what_is_skipped_is_left_out_with_all_below_it(tree, data):
    nodes = list(tree.post_order())
    skip = data.draw(st.sets(st.sampled_from(nodes), max_size=5))
    left = list(tree.post_order(skip=skip))
    covered = {p for node in skip for p in tree.partitions(node)}
    computed = [p for node in left if not tree.children(node) for p in tree.partitions(node)]
    assert not covered.intersection(computed)
    assert sorted(covered | set(computed)) == list(range(tree.n_partitions))


@given(st.integers(1, 10**6), st.integers(1, 2**27), st.integers(0, 2**31))
def test_a_leaf_reads_a_multiple_of_its_state(n, partition, state):
    tree = make_tree(n, partition, state)
    assert tree.chain * partition >= CHAIN_RATIO * state
    assert (tree.chain - 1) * partition < max(CHAIN_RATIO * state, 1)
    assert tree.n_leaves == -(-n // tree.chain)


def test_big_states_do_not_wait_eight_at_a_time():
    assert make_tree(100, 2**25, BIG_STATE_NBYTES).fan_in == 8
    assert make_tree(100, 2**25, BIG_STATE_NBYTES + 1).fan_in == 2


@pytest.mark.parametrize(("n", "depth"), [(1, 0), (2, 1), (8, 1), (9, 2), (64, 2), (65, 3)])
def test_depth(n, depth):
    tree = MergeTree(n)
    assert tree.root == Node(depth, 0)
    assert len(list(tree.partitions(tree.root))) == n


@pytest.mark.parametrize(("n", "fan_in"), [(1, 8), (2, 8), (8, 8), (9, 8), (17, 8), (64, 8), (65, 8), (7, 2), (300, 2)])
def test_the_nodes_that_wait_are_counted(n, fan_in):
    tree, waiting, most = MergeTree(n, fan_in=fan_in), set(), 0
    for node in tree.post_order():
        most = max(most, len(waiting - set(tree.children(node))) if tree.children(node) else len(waiting))
        waiting = waiting - set(tree.children(node)) | {node}
    assert most <= tree.most_waiting
    assert tree.most_waiting - most <= tree.depth
    assert tree.most_waiting < max(n, 2)


# Folding: a leaf merges its partitions in the memory of its own state, with the bits of any merge; others' stay.

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
