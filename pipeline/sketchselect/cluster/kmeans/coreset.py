"""Starts compared on a coreset: a weighted sample of rows that stands for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.csr import densify, is_csr
from sketchselect.linalg.hashing import derive_seed, gaussians
from sketchselect.linalg.kmeans import lloyd
from sketchselect.linalg.kmeans.lloyd import REFINEMENTS, refine
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.summaries import CentroidSums, RowSample

LEAST_ROWS = 2000
ROWS_PER_CLUSTER = 20
"""A coreset has `ROWS_PER_CLUSTER` k rows, and never fewer than `LEAST_ROWS`."""

MOST_NBYTES = 1 << 29
"""Dense rows of a coreset take at most these, unless that is less than `ROWS_PER_CLUSTER` rows for each cluster."""

TIE = 1e-9
"""Share by which costs of the same clusters may differ, added up in another order or by another processor."""


def coreset_rows(n_clusters: int, n_features: int) -> int:
    """Return the size of a coreset: ``max(2000, 20 n_clusters)``, and of wide rows fewer, but at least the latter."""
    least = ROWS_PER_CLUSTER * n_clusters
    return max(min(LEAST_ROWS, MOST_NBYTES // (8 * max(n_features, 1))), least)


def coreset(survey: CentroidSums, n_clusters: int, seed: int, *, size: int | None = None) -> RowSample:
    """Return the description of the sample: rows by weight times ``1 + ||x - mean||^2 / mean squared distance``.

    With it ``sum_i weights_i min_j ||x_i - c_j||^2`` is an unbiased estimate of the objective of any centres.

    `survey`: Of one cluster: mean and scatter of all rows.
    `size`: By `coreset_rows` by default.
    Source: Bachem, Lucic and Krause 2018 (lightweight coresets), drawn by priority and so mergeable.
    """
    rows = coreset_rows(n_clusters, survey.n_features) if size is None else size
    spread = survey.objective / max(1, survey.n_rows)
    sample_seed = derive_seed(seed, "coreset")
    if not 0 < spread < np.inf:
        return RowSample(rows, sample_seed)
    return RowSample(rows, sample_seed, survey.cluster_means[0], spread)


class Comparison:
    """Points that starts are compared on: a coreset, or its projection on its top directions where rows are wide.

    The projection is that of one step of subspace iteration, on 64 directions or 2 k where that is more. Clusters are
    found there as well as in all columns, and sooner.

    `rows`: Dense or CSR; a sample.
    `n_directions`: None for all columns.
    """

    def __init__(self, sample: RowSample, n_directions: int | None, seed: int) -> None:
        self.rows, self.weights = sample.rows, sample.weights
        self._basis: Floats | None = None
        # Far from the origin products would cancel.
        self._shift = np.zeros(sample.n_features)
        if n_directions is None:
            self.points: Floats = densify(self.rows) if is_csr(self.rows) else self.rows
            return
        if not is_csr(self.rows):
            self._shift = self.weights @ self.rows / self.weights.sum()
            self.rows = self.rows - self._shift
        draws = gaussians(derive_seed(seed, "projection"), (sample.n_features, n_directions))
        with one_blas_thread():
            image = np.asarray(self.rows.T @ (self.weights[:, None] * (self.rows @ draws)))
            self._basis = np.linalg.qr(image)[0]
            self.points = np.asarray(self.rows @ self._basis)

    def of(self, points: Floats) -> Floats:
        """Return points of all columns where the coreset's are."""
        if self._basis is None:
            return points
        with one_blas_thread():
            return np.asarray((points - self._shift) @ self._basis)

    def best(self, starts: Sequence[Floats]) -> Floats:
        """Return the best of the starts, refined, in all columns."""
        centers = best_start(self.points, self.weights, starts)
        if self._basis is None:
            return centers
        labels = lloyd.assign(self.points, centers)[0]
        n_clusters = int(labels.max()) + 1
        described = CentroidSums(n_clusters).from_block(self.rows, labels, sample_weight=self.weights)
        means = described.cluster_means[described.cluster_weights > 0]
        return refine(self.rows, self.weights, means)[1] + self._shift


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
