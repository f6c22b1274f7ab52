"""The tree: every partition once and in order, whatever is appended, from numbers alone."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from sketchselect.execution.tree import BIG_STATE_NBYTES, CHAIN_RATIO, MergeTree, Node, make_tree

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
