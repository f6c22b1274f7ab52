"""The fewest columns within a ratio, and the selections of a method by their number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.selectors.base import BaseSelector
from sketchselect.selectors.curve.curve import Curve, CurvePoint, best
from sketchselect.selectors.selection import Selection

FEWEST = 4
"""Smallest number of columns that is tried where the number is open."""

AHEAD = 4
"""Multiple of a number of columns to which a nested method selects at once."""

FINENESS = 8
"""The number of columns is found to an eighth of itself."""

FAR = 4
"""Multiple of the tolerated excess from which the number of columns is not doubled, but taken as often."""

MOST_FLOPS = 1e10
"""A method that needs more to select does not compete: about a second."""


def smallest_within(curve: Curve, limit: float, sizes: tuple[int, int], *, surely: bool = True) -> CurvePoint:
    """Return the point of fewest columns (in the range `sizes`) within a ratio; where there is none, of the most.

    The first method alone finds a number of columns. All others are tried there, and those within go on to fewer.
    """
    (least, most), names = sizes, tuple(curve.methods)

    def within(methods: Sequence[str], size: int) -> list[str]:
        return [point.method for point in curve.add(methods, size) if point.is_within(limit, surely=surely)]

    def excess(methods: Sequence[str], size: int) -> float:
        points = curve.add(methods, size)
        return min((point.high if surely else point.ratio for point in points), default=np.inf) - limit

    def narrowed(methods: Sequence[str], below: int, size: int) -> int:
        above = excess(methods, below) if below >= least else np.inf
        while size - below > max(1, below // FINENESS):
            middle = _crossing((below, above), (size, excess(methods, size)))
            if closer := within(methods, middle):
                size, methods = middle, closer
            else:
                below, above = middle, excess(methods, middle)
        return size

    size, below = max(min(FEWEST, most), least), least - 1
    while not within(names[:1], size) and size < most:
        # About as the number of columns grows, the excess falls.
        far = np.inf > excess(names[:1], size) > (FAR - 1) * (limit - 1.0)
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
        return best([p for p in curve.result().points if p.n_features >= least and p.is_within(limit, surely=surely)])

    chosen = fewest()
    while chosen is not None and curve.settle(chosen.n_features):
        chosen = fewest()
    if chosen is None and size < most:
        return smallest_within(curve, limit, (size + 1, most), surely=surely)
    return best_of(curve, size) if chosen is None else chosen


def _crossing(below: tuple[int, float], above: tuple[int, float]) -> int:
    """Return the size between two at which their excess, linear in the logarithm of the size, is zero.

    At least a step of the search away from both, and halfway where one of them has no excess.
    """
    (least, high), (most, low) = below, above
    middle = (least + most) / 2.0
    if least > 0 and np.isfinite(high) and high > low:
        middle = least * (most / least) ** (high / (high - low))
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
        most = min(ahead * size if nested else size, summary.n_features)
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
