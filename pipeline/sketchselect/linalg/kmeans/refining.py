"""Lloyd iterations on weighted points that fit in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.kmeans import lloyd

REFINEMENTS = 25
"""Most Lloyd iterations of one start on weighted points."""

STILL = 1e-4
"""Refining ends when an iteration lowers the cost by less than this share."""


def refine(
    points: Any, weights: Floats, centers: Floats, most: int = REFINEMENTS, still: float = STILL
) -> tuple[float, Floats]:
    """Return cost and centres after Lloyd iterations on weighted points; what attracts nothing stays where it is.

    `points` of shape (n_points, n_features): an array or canonical CSR.
    """
    before = np.inf
    for _ in range(most):
        _, distances, sums = lloyd.assign_and_sum(points, centers, weights)
        cost = float((weights * distances).sum())
        if cost >= before * (1 - still):
            return cost, centers
        before = cost
        moved = np.where(sums.weight[:, None] > 0, sums.mean, centers)
        if (moved == centers).all():
            return cost, centers
        centers = moved
    _, distances = lloyd.assign(points, centers)
    return float((weights * distances).sum()), centers
