"""The tree: every partition once and in order, whatever is appended, from numbers alone."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from sketchselect.execution.graph.tree import BIG_STATE_NBYTES, CHAIN_RATIO, Node, Plan, make_plan

plans = st.builds(Plan, st.integers(1, 700), st.integers(1, 9), st.sampled_from([2, 8]))


def walk(plan, node):
    """Partitions in the order in which folding the tree meets them."""
    below = plan.children(node)
    if not below:
        return list(plan.partitions(node))
    return [p for child in below for p in walk(plan, child)]


def shape(plan, node):
    """The nested order of merges below a node."""
    below = plan.children(node)
    return tuple(shape(plan, c) for c in below) if below else tuple(plan.partitions(node))


@given(plans)
def test_every_partition_exactly_once_and_in_order(plan):
    assert walk(plan, plan.root) == list(range(plan.n_partitions))


@given(plans)
def test_nodes_have_few_children_and_never_one(plan):
    for node in plan.post_order():
        below = plan.children(node)
        assert len(below) != 1
        assert len(below) <= plan.fan_in
        assert len(plan.partitions(node)) <= plan.chain * plan.fan_in**node.level


@given(plans)
def test_post_order_has_children_before_parents_and_each_node_once(plan):
    seen = set()
    for node in plan.post_order():
        assert node not in seen
        assert seen.issuperset(plan.children(node))
        seen.add(node)
    assert plan.root in seen or plan.n_leaves == 1


@given(plans, st.integers(1, 200))
def test_appended_partitions_leave_full_nodes_as_they_are(plan, more):
    longer = Plan(plan.n_partitions + more, plan.chain, plan.fan_in)
    there = set(longer.post_order())
    for node in plan.post_order():
        width = plan.chain * plan.fan_in**node.level
        if len(plan.partitions(node)) == width:
            assert node in there
            assert shape(plan, node) == shape(longer, node)


@given(plans, st.data())
def test_what_is_skipped_is_left_out_with_all_below_it(plan, data):
    nodes = list(plan.post_order())
    skip = data.draw(st.sets(st.sampled_from(nodes), max_size=5))
    left = list(plan.post_order(skip))
    covered = {p for node in skip for p in plan.partitions(node)}
    computed = [p for node in left if not plan.children(node) for p in plan.partitions(node)]
    assert not covered.intersection(computed)
    assert sorted(covered | set(computed)) == list(range(plan.n_partitions))


@given(st.integers(1, 10**6), st.integers(1, 2**27), st.integers(0, 2**31))
def test_a_leaf_reads_a_multiple_of_its_state(n, partition, state):
    plan = make_plan(n, partition, state)
    assert plan.chain * partition >= CHAIN_RATIO * state
    assert (plan.chain - 1) * partition < max(CHAIN_RATIO * state, 1)
    assert plan.n_leaves == -(-n // plan.chain)


def test_big_states_do_not_wait_eight_at_a_time():
    assert make_plan(100, 2**25, BIG_STATE_NBYTES).fan_in == 8
    assert make_plan(100, 2**25, BIG_STATE_NBYTES + 1).fan_in == 2


@pytest.mark.parametrize(("n", "depth"), [(1, 0), (2, 1), (8, 1), (9, 2), (64, 2), (65, 3)])
def test_depth(n, depth):
    plan = Plan(n)
    assert plan.root == Node(depth, 0)
    assert len(list(plan.partitions(plan.root))) == n
