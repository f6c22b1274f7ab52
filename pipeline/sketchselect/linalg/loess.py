"""Local quadratic regression (loess) of one variable, whose answer does not depend on the last bits of the data.

The fit is that of Cleveland's and Grosse's dloess with its usual settings (degree 2, tricube weights, interpolation
between the vertices of a tree with cells of a fifth of the span), and so of R, scikit-misc and scanpy. Two things are
different, and both matter only where dloess fails or amplifies rounding: abscissas closer than `TIE` are equal, so that
neither the tree nor a slope depends on differences that are rounding; and a neighbourhood with too few distinct
abscissas for a parabola is widened.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import Floats

# Least difference of abscissas (logarithms of means) that is not rounding; values closer in a chain are equal.
TIE = 1e-10

CELL = 0.2  # Most points of a cell of the tree, as a share of those of a neighbourhood
MARGIN = 0.005  # Share of the range by which the outermost vertices lie outside of the points
CONDITION = 1e-9  # Least reciprocal condition number of a local regression; a neighbourhood below it is widened


def loess(x: Floats, y: Floats, span: float) -> Floats:
    """Return the local quadratic regression of y on x at every x.

    `x`, `y` of shape (n,).
    `span`: Share of the points in each local regression, above 0 and at most 1.

    Notes
    -----
    With one or two distinct x it is the mean of y at each. Cost: O(n log n) and O(n) for each of
    some 5 / span vertices.
    Source: Cleveland and Grosse, Statistics and Computing 1, 1991.

    Examples
    --------
    >>> x = np.linspace(-1, 2, 50)
    >>> bool(np.allclose(loess(x, 1 + x - x**2, 0.3), 1 + x - x**2))
    True
    """
    order = np.argsort(x, kind="stable")
    points = _without_rounding(x[order])
    values = y[order]
    out = np.empty(x.size)
    group = np.cumsum(np.diff(points, prepend=points[0]) > 0)
    if group[-1] < 2:
        out[order] = (np.bincount(group, values) / np.bincount(group))[group]
        return out
    vertices = _vertices(points, max(int(points.size * span * CELL), 1))
    n_near = min(points.size, max(int(points.size * span + 1e-5), 1))
    with one_blas_thread():
        fits = np.array([_local_fit(points, values, q, n_near) for q in vertices])
    out[order] = _interpolated(points, vertices, fits)
    return out


def _without_rounding(points: Floats) -> Floats:
    """Return ascending points, each chain of points closer than `TIE` set to its first one."""
    starts = np.flatnonzero(np.diff(points, prepend=-np.inf) > TIE)
    return np.repeat(points[starts], np.diff(starts, append=points.size))


def _vertices(points: Floats, most: int) -> Floats:
    """Return the ascending vertices of the tree: the range, cut at medians until a cell has at most `most` points."""
    low, high = float(points[0]), float(points[-1])
    margin = MARGIN * max(high - low, 1e-10 * max(abs(low), abs(high)) + 1e-30)
    vertices = {low - margin, high + margin}
    cells = [(0, points.size - 1, low - margin, high + margin)]
    while cells:
        first, last, left, right = cells.pop()
        if last - first + 1 <= most:
            continue
        middle = _cut(points, first, last)
        at = float(points[middle])
        if at in (left, right):
            continue
        vertices.add(at)
        cells += [(first, middle, left, at), (middle + 1, last, at, right)]
    return np.array(sorted(vertices))


def _cut(points: Floats, first: int, last: int) -> int:
    """Return the index nearest to the middle whose successor is a different point; the middle if one side has none."""
    middle = (first + last) // 2
    offset = 0
    while first <= middle + offset < last:
        if points[middle + offset] != points[middle + offset + 1]:
            return middle + offset
        offset = -offset if offset > 0 else 1 - offset
    return middle


def _local_fit(points: Floats, values: Floats, vertex: float, n_near: int) -> tuple[float, float]:
    """Return value and slope at the vertex of the parabola fitted to its neighbourhood with tricube weights."""
    distances = np.abs(points - vertex)
    for radius in _radii(distances, int(np.searchsorted(points, vertex)), n_near):
        inside = np.flatnonzero(distances < radius - TIE)
        near = slice(inside[0], inside[-1] + 1) if inside.size else slice(0)
        abscissas = points[near]
        if np.count_nonzero(np.diff(abscissas)) < 2 and radius < np.inf:
            continue
        scale = radius if radius < np.inf else float(_without_rounding(np.sort(distances))[-1]) or 1.0
        ratios = distances[near] / scale
        weights = (1.0 - ratios**3) ** 1.5 if radius < np.inf else np.ones(ratios.size)
        offsets = (abscissas - vertex) / scale
        design = weights[:, None] * np.stack([np.ones(offsets.size), offsets, offsets * offsets], axis=1)
        norms = np.sqrt((design * design).sum(axis=0))
        norms[norms == 0] = 1.0
        solution, _, _, singular = np.linalg.lstsq(design / norms, weights * values[near], rcond=CONDITION)
        if singular[-1] > CONDITION * singular[0] or radius == np.inf:
            break
    value, slope, _ = solution / norms
    return float(value), float(slope) / scale


def _radii(distances: Floats, at: int, n_near: int) -> Iterator[float]:
    """Yield the radius of the span, those of wider neighbourhoods, and infinity for all points with equal weights.

    `distances`: Of ascending points from a vertex, which lies before point `at`. Points on both sides may be equally
        far but for rounding.
    """
    nearest = np.sort(distances[max(at - n_near, 0) : at + n_near], kind="stable")[:n_near]
    steps = np.flatnonzero(np.diff(nearest) > TIE)
    radius = float(nearest[steps[-1] + 1 if steps.size else 0])
    yield radius
    ordered = _without_rounding(np.sort(distances))
    further = np.unique(ordered[ordered > radius])
    yield from further[2 ** np.arange(further.size.bit_length()) - 1].tolist()
    yield np.inf


def _interpolated(points: Floats, vertices: Floats, fits: Floats) -> Floats:
    """Return the cubic with these values and slopes at both vertices of the cell of each point."""
    cell = np.clip(np.searchsorted(vertices, points, side="left") - 1, 0, vertices.size - 2)
    width = vertices[cell + 1] - vertices[cell]
    h = (points - vertices[cell]) / width
    (left, left_slope), (right, right_slope) = fits[cell].T, fits[cell + 1].T
    fitted: Floats = (1 - h) ** 2 * (1 + 2 * h) * left + h * h * (3 - 2 * h) * right
    fitted += width * (h * (1 - h) ** 2 * left_slope + h * h * (h - 1) * right_slope)
    return fitted


def mean_variance_trend(means: Floats, variances: Floats, trend: str, span: float) -> Floats:
    """Return the variance of the trend at each mean: a fit of log10(variance) on log10(mean).

    `means`, `variances` of shape (m,): Positive.
    `trend`: "loess", a local regression of degree 2, or "quadratic", one parabola by least squares.
    `span`: Share of the points in each local regression.
    """
    if means.size == 0:
        return np.zeros(0)
    x, y = np.log10(means), np.log10(variances)
    fitted = loess(x, y, span) if trend == "loess" else _parabola(x, y)
    return np.asarray(10.0**fitted)


def _parabola(x: Floats, y: Floats) -> Floats:
    center = x - x.mean()
    design = np.stack([np.ones(x.size), center, center * center], axis=1)
    # The least-norm solution is defined for one or two points too.
    coefficients = np.linalg.lstsq(design, y, rcond=None)[0]
    return np.asarray(design @ coefficients)
