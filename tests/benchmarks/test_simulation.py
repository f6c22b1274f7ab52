"""The simulated time of a pass against an event loop written out, and the formula of `plan` against both."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchselect.execution.tree import MergeTree
from sketchselect.workflow.plan.dry_run import ClusterCosts, PassCosts, estimate_pass

from .simulation import simulate_pass

passes = st.builds(
    PassCosts,
    n_leaves=st.integers(1, 300),
    read=st.floats(0.01, 1),
    compute=st.floats(0.01, 1),
    merge=st.floats(0, 0.3),
    state_nbytes=st.integers(0, 10**8),
    fan_in=st.sampled_from([2, 3, 8]),
)
clusters = st.builds(ClusterCosts, slots=st.integers(1, 40), task=st.sampled_from([0.0, 0.002, 0.1]))


def event_loop(costs: PassCosts, cluster: ClusterCosts) -> float:
    """Return the end of the last task, of the package's own tree, with every task and slot an object of its own."""
    tree = MergeTree(costs.n_leaves, fan_in=costs.fan_in)
    nodes = list(tree.post_order())
    pair = costs.merge + (costs.state_nbytes / cluster.network if cluster.slots > 1 else 0)
    waiting = {node: tree.children(node) for node in nodes}
    slots, ends = [0.0] * cluster.slots, {}
    n_sent = 0
    while waiting:
        slot = min(range(len(slots)), key=slots.__getitem__)
        merges = [
            (max(ends[c] for c in children), node.level, node.place, node)
            for node, children in waiting.items()
            if children and all(c in ends for c in children)
        ]
        leaves = [node for node, children in waiting.items() if not children]
        n_sent += 1
        if merges and (min(merges)[0] <= slots[slot] or not leaves):
            when, *_, node = min(merges)
            seconds = pair * (len(waiting[node]) - 1)
        else:
            when, node, seconds = 0.0, min(leaves), costs.read + costs.compute
        ends[node] = slots[slot] = max(slots[slot], when, n_sent * cluster.task) + seconds
        del waiting[node]
    return max(ends.values())


def leaf_and_pair(costs: PassCosts, cluster: ClusterCosts) -> tuple[float, float]:
    sent = costs.state_nbytes / cluster.network if cluster.slots > 1 else 0
    return costs.read + costs.compute, costs.merge + sent


@settings(deadline=None, max_examples=60)
@given(passes, clusters)
def test_events_one_by_one(costs: PassCosts, cluster: ClusterCosts) -> None:
    assert simulate_pass(costs, cluster) == pytest.approx(event_loop(costs, cluster), rel=1e-9)


@settings(deadline=None, max_examples=60)
@given(passes, clusters, st.sampled_from([3, 40, 10**6]))
def test_no_schedule_is_faster_than_its_work_its_chain_or_its_scheduler(costs, cluster, most_events) -> None:
    seconds = simulate_pass(costs, cluster, most_events=most_events)
    leaf, pair = leaf_and_pair(costs, cluster)
    tree = MergeTree(costs.n_leaves, fan_in=costs.fan_in)
    n_tasks = sum(1 for _ in tree.post_order())
    work = costs.n_leaves * leaf + (costs.n_leaves - 1) * pair
    assert seconds >= work / cluster.slots * (1 - 1e-12)
    assert seconds >= leaf + math.log2(costs.n_leaves) * pair * (1 - 1e-12)
    assert seconds >= n_tasks * cluster.task * (1 - 1e-12)
    if most_events >= costs.n_leaves:  # Graham 1969, and the scheduler's time before each task
        longest = leaf + tree.depth * (costs.fan_in - 1) * pair
        assert seconds <= (work / cluster.slots + longest + n_tasks * cluster.task) * (1 + 1e-12)


@settings(deadline=None, max_examples=60)
@given(passes, st.integers(1, 20))
def test_twice_the_workers_are_no_slower(costs: PassCosts, slots: int) -> None:
    costs = PassCosts(costs.n_leaves, costs.read, costs.compute, costs.merge, 0, 0, costs.fan_in)
    one, two = (simulate_pass(costs, ClusterCosts(n)) for n in (slots, 2 * slots))
    # More slots may be slower by a task (Graham's anomaly), not by more.
    assert two <= one + costs.read + costs.compute + (costs.fan_in - 1) * costs.merge


@pytest.mark.share(1)
@pytest.mark.parametrize("slots", [1, 7, 100, 1000, 4000])
@pytest.mark.parametrize("merge", [0.0, 0.05])
def test_bundles_of_leaves_are_like_leaves(slots: int, merge: float) -> None:
    costs = PassCosts(n_leaves=60_000, read=0.2, compute=0.8, merge=merge)
    exact = simulate_pass(costs, ClusterCosts(slots, task=1e-4), most_events=10**6)
    quick = simulate_pass(costs, ClusterCosts(slots, task=1e-4), most_events=3_000)
    assert quick == pytest.approx(exact, rel=0.05)


@settings(deadline=None, max_examples=60)
@given(passes, clusters)
def test_the_formula_keeps_the_bounds_of_any_schedule(costs: PassCosts, cluster: ClusterCosts) -> None:
    seconds, simulated = estimate_pass(costs, cluster).seconds, simulate_pass(costs, cluster)
    leaf, pair = leaf_and_pair(costs, cluster)
    work = costs.n_leaves * leaf + (costs.n_leaves - 1) * pair
    n_tasks = sum(1 for _ in MergeTree(costs.n_leaves, fan_in=costs.fan_in).post_order())
    assert seconds >= max(work / cluster.slots, n_tasks * cluster.task, leaf) * (1 - 1e-12)
    # Each of its summands is a bound of any schedule; and a schedule takes no longer than Graham's bound.
    assert simulated / 3 <= seconds <= 3 * simulated


def test_the_formula_is_exact_where_nothing_waits() -> None:
    """Whole waves on threads, and merges that cost nothing; and a chain of merges written out."""
    assert estimate_pass(PassCosts(60, 0.25, 0.75), ClusterCosts(20, task=0.0)).seconds == 3.0
    chain = PassCosts(64, 0.25, 0.75, merge=0.5)
    assert estimate_pass(chain, ClusterCosts(64, task=0.0)).seconds == 1.0 + 2 * 7 * 0.5
    assert simulate_pass(chain, ClusterCosts(64, task=0.0)) == 1.0 + 2 * 7 * 0.5


def test_the_bottleneck_is_named() -> None:
    costs = PassCosts(n_leaves=10_000, read=0.1, compute=0.3, merge=0.001, leaf_nbytes=10**7)
    named = [estimate_pass(costs, ClusterCosts(slots, store=2e9)).bottleneck for slots in (10, 200, 8_000)]
    assert named == ["computing", "reading", "reading"]
    assert estimate_pass(costs, ClusterCosts(8_000)).bottleneck == "scheduler"
    assert estimate_pass(PassCosts(11, 0.1, 0.3), ClusterCosts(10, task=0)).bottleneck == "partitions"
    assert estimate_pass(PassCosts(64, 0.1, 0.3, merge=2), ClusterCosts(64)).bottleneck == "merging"
