"""The fewest columns within a ratio, and the selections of a method by their number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.selectors.base import BaseSelector
from sketchselect.selectors.curve.curve import Curve, CurvePoint, best
from sketchselect.selectors.selection import Selection

FEWEST = 4
"""Smallest number of columns that is tried where the number is open."""

AHEAD, MOST_AHEAD = 32, 512
"""Multiple of a number of columns to which a nested method selects at once, and the largest number that it does."""

FINENESS = 8
"""The number of columns is found to an eighth of itself."""

FAR = 4
"""Multiple of what is tolerated from which the number of columns is not doubled, but taken as often."""

MOST_FLOPS = 1e10
"""A method that needs more to select does not compete: about a second."""


@dataclass(frozen=True)
class Limit:
    """What the ratio of a point may be at most: by the upper end of its interval, and by the estimate itself."""

    high: float = np.inf
    ratio: float = np.inf

    def excess(self, point: CurvePoint) -> float:
        """Return how far a point is beyond; at most 0 within."""
        return max(point.high - self.high, point.ratio - self.ratio)

    def used(self, point: CurvePoint) -> float:
        """Return the multiple of what is tolerated above k-means on all columns that a point is; above 1 beyond."""
        parts = ((point.high, self.high), (point.ratio, self.ratio))
        return max(((value - 1.0) / (most - 1.0) for value, most in parts if 1.0 < most < np.inf), default=np.inf)


def limit_of(curve: Curve, tolerance: float) -> Limit:
    """Return the limit of a tolerance of the objective, surely, and of what clusters explain, by the estimate.

    Where clusters explain little of the scatter, a few columns are within a share of the objective and lose most of
    what there is to gain. That share is of the estimate alone: runs of k-means with other seeds may differ by more.
    Clusters that explain nothing of rows that they have not seen have nothing to lose.
    """
    whole, scatter = curve.everything, curve.coreset.scatter
    gain = scatter - whole.objective
    if not (whole.objective > 0 and gain > 0 and whole.unseen < scatter):
        return Limit(high=1.0 + tolerance)
    return Limit(1.0 + tolerance, 1.0 + tolerance * gain / whole.objective)


def smallest_within(curve: Curve, limit: Limit, sizes: tuple[int, int]) -> CurvePoint:
    """Return the point of fewest columns (in the range `sizes`) within a limit; where there is none, of the most.

    The first method alone finds a number of columns. All others are tried there, and those within go on to fewer.
    """
    (least, most), names = sizes, tuple(curve.methods)

    def within(methods: Sequence[str], size: int) -> list[str]:
        return [point.method for point in curve.add(methods, size) if limit.excess(point) <= 0]

    def used(methods: Sequence[str], size: int) -> float:
        return min(map(limit.used, curve.add(methods, size)), default=np.inf)

    def narrowed(methods: Sequence[str], below: int, size: int) -> int:
        above = used(methods, below) if below >= least else np.inf
        while size - below > max(1, below // FINENESS):
            middle = _crossing((below, above), (size, used(methods, size)))
            if closer := within(methods, middle):
                size, methods = middle, closer
            else:
                below, above = middle, used(methods, middle)
        return size

    size, below = max(min(FEWEST, most), least), least - 1
    while not within(names[:1], size) and size < most:
        # About as the number of columns grows, what is used of the tolerance falls.
        far = np.inf > used(names[:1], size) > FAR
        below, size = size, min((FAR if far else 2) * size, most)
    if within(names[:1], size):
        size = narrowed(names[:1], below, size)
    step, fewer = max(1, size // (FINENESS + 1)), 0
    rivals = [name for name in within(names, size) if name != names[0]]
    while rivals and (fewer := size - step) >= least and (closer := within(rivals, fewer)):
        rivals, size, step = closer, fewer, 2 * step
    if 0 < fewer < size - 1:
        size = narrowed(rivals, max(fewer, least - 1), size)

    def fewest() -> CurvePoint | None:
        # Points share an estimate of the spread between starts: later points move the intervals of earlier ones.
        return best([p for p in curve.result().points if p.n_features >= least and limit.excess(p) <= 0])

    chosen = fewest()
    while chosen is not None and curve.settle(chosen.n_features):
        chosen = fewest()
    if chosen is None and size < most:
        return smallest_within(curve, limit, (size + 1, most))
    return best_of(curve, size) if chosen is None else chosen


def _crossing(below: tuple[int, float], above: tuple[int, float]) -> int:
    """Return the size between two at which all that is tolerated is used, by a power law.

    At least a step of the search away from both, and halfway where one of them uses nothing that can be compared.
    """
    (least, high), (most, low) = below, above
    middle = (least + most) / 2.0
    if least > 0 and np.isfinite(high) and high > 1.0 >= low > 0:
        middle = least * (most / least) ** (np.log(high) / np.log(high / low))
    first = least + max(1, least // FINENESS)
    return min(max(int(np.ceil(middle)), first), max(first, most - max(1, most // (FINENESS + 1))))


def best_of(curve: Curve, size: int) -> CurvePoint:
    """Return the best of all methods at this size; raise `BadParameter` where none has one."""
    names = tuple(curve.methods)
    chosen = best(curve.add(names, size))
    while chosen is not None and curve.settle(size):
        chosen = best(curve.add(names, size))
    if chosen is None:
        raise BadParameter(f"methods: none of them can select {size} columns")
    return chosen


def selections_by_size(
    method: BaseSelector, summary: Any, lenient: bool, ahead: int = AHEAD
) -> Callable[[int], Selection | None]:
    """Return the selections of a method by size; the first columns of a larger one where those are the smaller one."""
    known: dict[int, Selection] = {}

    def selection(size: int) -> Selection | None:
        nested = method.is_nested and all(one.weights is None for one in known.values())
        if nested and max(known, default=0) >= size:
            largest = known[max(known)]
            support = np.sort(largest.ranking()[:size])
            return replace(largest, support=support, parameters={**largest.parameters, "n_features_to_select": size})
        further = min(ahead * size, MOST_AHEAD) if nested else size
        most = min(max(size, further), summary.n_features)
        flops = getattr(method, "selection_flops", None)
        if lenient and flops is not None and flops(summary.n_features, most) > MOST_FLOPS:
            return None
        try:
            known[most] = method.set_params(n_features_to_select=most).fit_summary(summary).selection_
        except BadParameter:
            if not lenient:
                raise
            return None
        return known[most] if most == size else selection(size)

    return selection
