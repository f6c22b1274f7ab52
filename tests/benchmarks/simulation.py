"""The time of a pass on a cluster, by a simulation of its tasks as events: how far the formula of `plan` is from it."""

import heapq

from sketchselect.workflow.plan.dry_run import ClusterCosts, PassCosts

MOST_EVENTS = 20_000
"""Leaves that are simulated one by one; more are simulated as bundles, on gangs of slots."""

WAVES = 50
"""Bundles that a gang works off, at least, so that a last wave that is not full counts as what it is."""


def simulate_pass(costs: PassCosts, cluster: ClusterCosts, *, most_events: int = MOST_EVENTS) -> float:
    """Return the seconds of a pass: leaves in their order, a merge of `fan_in` states as soon as they are there.

    The seconds T on S slots satisfy ``T >= W / S`` for the work W of all leaves, merges and transfers, ``T >= leaf +
    depth * (fan_in - 1) * pair`` and ``T >= n_tasks * task``. With more leaves than `most_events`, each subtree of
    ``fan_in**j`` leaves is one event of the same work and the same longest chain on a gang of slots. A further slot
    may cost up to a task (Graham 1969), never more. O(most_events log slots).
    """
    leaf = max(costs.read, cluster.slots * costs.leaf_nbytes / cluster.store) + costs.compute
    pair = costs.merge + (costs.state_nbytes / cluster.network if cluster.slots > 1 else 0.0)
    bundle, levels = 1, 0
    while costs.n_leaves > most_events * bundle:
        bundle, levels = bundle * costs.fan_in, levels + 1
    gang = max(1, min(bundle, WAVES * cluster.slots * bundle // costs.n_leaves, cluster.slots))
    work = costs.n_leaves * leaf + (costs.n_leaves - 1) * pair
    n_tasks, chain = costs.n_leaves, leaf
    above = costs.n_leaves
    while above > 1:
        chain += (min(costs.fan_in, above) - 1) * pair
        n_tasks += above // costs.fan_in + (above % costs.fan_in > 1)
        above = -(-above // costs.fan_in)
    seconds = _run(costs, cluster, leaf, pair, (bundle, levels, gang))
    seconds = max(seconds, chain, work / cluster.slots, n_tasks * cluster.task)
    if cluster.cores is not None:
        seconds = max(seconds, (work + n_tasks * cluster.task) / cluster.cores)
    return seconds


def _run(costs: PassCosts, cluster: ClusterCosts, leaf: float, pair: float, shape: tuple[int, int, int]) -> float:
    """Return when the last task ends: a heap of gangs by the time they are free, one of merges by when they may run."""
    bundle, levels, gang = shape
    n_bundles = -(-costs.n_leaves // bundle)
    gangs = min(max(1, cluster.slots // gang), n_bundles)
    speed = 1.0 if gang == 1 else cluster.slots / max(1, cluster.slots // gang)
    free = [0.0] * gangs
    merges: list[tuple[float, int, int]] = []
    widths = [n_bundles]
    while widths[-1] > 1:
        widths.append(-(-widths[-1] // costs.fan_in))
    missing: dict[tuple[int, int], int] = {}
    ready: dict[tuple[int, int], float] = {}
    sent, place, end = 0, 0, 0.0

    def done(level: int, at: int, when: float) -> None:
        if level + 1 == len(widths):
            return
        above = (level + 1, at // costs.fan_in)
        children = min(costs.fan_in, widths[level] - above[1] * costs.fan_in)
        ready[above] = max(ready.get(above, 0.0), when)
        missing[above] = missing.get(above, children) - 1
        if children == 1:
            done(*above, when)  # a node with one child is that child
        elif not missing[above]:
            heapq.heappush(merges, (ready.pop(above), *above))

    while place < n_bundles or merges:
        now = heapq.heappop(free)
        if merges and (merges[0][0] <= now or place == n_bundles):
            when, level, at = heapq.heappop(merges)
            count = min(costs.fan_in, widths[level - 1] - at * costs.fan_in)
            sent += 1
            start = max(now, when, sent * cluster.task)
            took = (count - 1) * pair
            finish = start + took
            heapq.heappush(free, start + took / speed)
            done(level, at, finish)
        else:
            leaves = min(bundle, costs.n_leaves - place * bundle)
            start = max(now, (sent + 1) * cluster.task)
            took = leaves * leaf + (leaves - 1) * pair
            below = leaf + levels * (costs.fan_in - 1) * pair if leaves > 1 else leaf
            sent += leaves + (leaves - 1) // (costs.fan_in - 1) if leaves > 1 else 1
            finish = max(start + max(took / speed, below), sent * cluster.task)
            heapq.heappush(free, max(start + took / speed, (sent - 1) * cluster.task))
            done(0, place, finish)
            place += 1
        end = max(end, finish)
    return end
