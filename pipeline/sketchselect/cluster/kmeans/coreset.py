"""Starts compared on a coreset: a weighted sample of rows that stands for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.hashing import derive_seed
from sketchselect.linalg.kmeans.refining import REFINEMENTS, refine
from sketchselect.linalg.sparse.csr import densify, is_csr
from sketchselect.summaries import CentroidSums, RowSample

LEAST_ROWS = 2000
ROWS_PER_CLUSTER = 20
"""A coreset has `ROWS_PER_CLUSTER` k rows, and never fewer than `LEAST_ROWS`."""

TIE = 1e-9
"""Share by which costs of the same clusters may differ, added up in another order or by another processor."""


def coreset(survey: CentroidSums, n_clusters: int, seed: int, *, size: int | None = None) -> RowSample:
    """Return the description of the sample: rows by weight times ``1 + ||x - mean||^2 / mean squared distance``.

    With it ``sum_i weights_i min_j ||x_i - c_j||^2`` is an unbiased estimate of the objective of any centres.

    `survey`: Of one cluster: mean and scatter of all rows.
    `size`: ``max(2000, 20 n_clusters)`` by default.
    Source: Bachem, Lucic and Krause 2018 (lightweight coresets), drawn by priority and so mergeable.
    """
    rows = max(LEAST_ROWS, ROWS_PER_CLUSTER * n_clusters) if size is None else size
    spread = survey.objective / max(1, survey.n_rows)
    sample_seed = derive_seed(seed, "coreset")
    if not 0 < spread < np.inf:
        return RowSample(rows, sample_seed)
    return RowSample(rows, sample_seed, survey.cluster_means[0], spread)


def points_of(sample: RowSample) -> tuple[Floats, Floats]:
    """Return the rows of a sample as a dense array, and their weights."""
    rows: Any = sample.rows
    return (densify(rows) if is_csr(rows) else rows), sample.weights


def best_start(points: Floats, weights: Floats, starts: Sequence[Floats], most: int = REFINEMENTS) -> Floats:
    """Return the start of lowest cost on the points once refined there, as refined; the first of several such.

    Costs that differ by rounding are equal: starts that end in the same clusters must not differ between processors.
    """
    refined = [refine(points, weights, start, most) for start in starts]
    lowest = min(cost for cost, _ in refined)
    return next(centers for cost, centers in refined if cost <= lowest * (1 + TIE))
