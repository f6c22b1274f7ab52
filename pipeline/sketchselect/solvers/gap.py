"""The duality gap of a convex penalised problem, from its moments."""

from __future__ import annotations

from sketchselect.linalg.arrays import Floats


def duality_gap(
    rss: float, total: float, explained: float, quadratic: float, level_sum: float, norms: Floats, level: Floats
) -> float:
    """Return an upper bound of ``f(b) + P(b)`` minus its minimum, divided by the targets' variance.

    The quadratic part of the penalty is treated as further rows of the data; the dual point is the residual, scaled
    until it is feasible.

    `rss`: Mean squared residual.
    `total`: Variance of the targets, ``tr yy``.
    `explained`: ``b's``.
    `quadratic`: ``sum_j l2_j ||b_j||^2``.
    `level_sum`: ``sum_j l1_j ||b_j||``.
    `norms` of shape (p,): ``||s_j - S_j b - l2_j b_j||`` of the columns that may enter, at most `level` for the others.
    `level` of shape (p,): l1_j; columns with 0 are not bounded.
    Source: Fercoq, Gramfort and Salmon 2015, eqs. 3-6, in Gram form.
    """
    above = (level > 0) & (norms > level)
    shorten = float((level[above] / norms[above]).min(initial=1.0))
    rr = rss + quadratic
    ry = total - explained
    gap = 0.5 * rr + level_sum - (shorten * ry - 0.5 * shorten * shorten * rr)
    return max(gap, 0.0) / total if total > 0 else max(gap, 0.0)
