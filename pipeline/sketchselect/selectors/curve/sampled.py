"""Clusterings of a sample of rows on some of the columns, and their costs in all columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from sketchselect.linalg.arrays import Floats, Labels
from sketchselect.linalg.columns.draws import gaussians
from sketchselect.linalg.hashing import derive_seed
from sketchselect.linalg.kmeans import lloyd
from sketchselect.linalg.kmeans.distances import spread_out
from sketchselect.linalg.kmeans.refining import refine
from sketchselect.linalg.sparse.csr import densify, is_csr, take_columns
from sketchselect.summaries import RowSample

Columns = NDArray[np.int64]

STARTS = 3
"""Starts of k-means, for its best clustering and for how much clusterings differ."""

PROJECTED = 64
"""Dimensions of the random projection in which starts are chosen, where there are more columns."""


@dataclass(frozen=True)
class SampledClusters:
    """The clusters of sampled rows on some columns."""

    labels: Labels
    costs: Floats  # shape (n_sampled,): Squared distance of each row to the mean of its cluster, in all columns
    # The same, to means of the half of the sample that the row is not in, clustered without it
    unseen_costs: Floats
    spread: float  # Variance of the logarithm of the objective in all columns, for other starts
    objective: float  # Sum of the costs by weight


class Coreset:
    """Sampled rows that stand for all: k-means on any of their columns, and its costs in all columns.

    `sample`: Uniform or by distance from a centre; sums by its weights are unbiased.
    """

    def __init__(self, sample: RowSample, n_clusters: int, seed: int) -> None:
        rows: Any = sample.rows
        self.weights = sample.weights
        if not is_csr(rows):
            # Far from the origin products would cancel.
            rows = rows - self.weights @ rows / self.weights.sum()
        self.rows, self.n_clusters = rows, min(n_clusters, rows.shape[0])
        self.squares = _row_squares(rows)
        self.drawn = 1.0 - sample.probabilities
        self.is_complete = not self.drawn.any()
        near = rows
        if rows.shape[1] > PROJECTED:
            near = rows @ gaussians(derive_seed(seed, "curve", "projection"), (rows.shape[1], PROJECTED))
        self.seed = seed
        self.starts = self._drawn_starts(near, STARTS)

    def _drawn_starts(self, points: Any, n_starts: int) -> list[Labels]:
        """Return labels by the nearest of some rows, which k-means++ draws."""
        dense = densify(points) if is_csr(points) else points
        seeds = (derive_seed(self.seed, "curve", start) for start in range(n_starts))
        chosen = (spread_out(dense, self.weights, self.n_clusters, seed) for seed in seeds)
        return [lloyd.assign(dense, dense[places].astype(np.float64))[0] for places in chosen]

    def clustered(self, columns: Columns | None = None, warm: Labels | None = None) -> SampledClusters:
        """Return the best clustering on these columns (None: on all), from several starts and from other labels.

        Most starts are drawn in the columns, as those of a run: from starts that know all columns k-means finds better.
        """
        points, starts = self.rows, self.starts
        if columns is not None:
            points = _taken(self.rows, columns)
            starts = [self.starts[0], *self._drawn_starts(points, STARTS - 1), *([] if warm is None else [warm])]
        tried = []
        for start in starts:
            cost, centers = refine(points, self.weights, self._means(points, start))
            labels = lloyd.assign(points, centers)[0]
            tried.append((cost, labels, self._costs(slice(None), labels, self._means(self.rows, labels))))
        tried.sort(key=lambda one: one[0])
        _, labels, costs = tried[0]
        objectives = np.array([float(self.weights @ one[2]) for one in tried])
        spread = float(np.log(objectives).var(ddof=1)) if objectives.min() > 0 else 0.0
        unseen = costs if self.is_complete else self._unseen(points, labels)
        return SampledClusters(labels, costs, unseen, spread, float(self.weights @ costs))

    def _unseen(self, points: Any, labels: Labels) -> Floats:
        """Return the costs of each half of the rows under clusters of the other one."""
        costs = np.empty(labels.size)
        halves = [slice(0, None, 2), slice(1, None, 2)]
        for seen, other in (halves, halves[::-1]):
            weights = self.weights[seen]
            centers = refine(points[seen], weights, self._means(points, labels, seen))[1]
            near = lloyd.assign(points[seen], centers)[0]
            means = self._means(self.rows[seen], near, weights=weights)
            costs[other] = self._costs(other, lloyd.assign(points[other], centers)[0], means)
        return costs

    def _means(self, rows: Any, labels: Labels, part: slice = slice(None), weights: Floats | None = None) -> Floats:
        """Return the means of the clusters; zeros for an empty one."""
        rows, labels = rows[part], labels[part]
        weights = self.weights[part] if weights is None else weights
        membership = csr_array((weights, (labels, np.arange(labels.size))), shape=(self.n_clusters, labels.size))
        sums = membership @ rows
        total = np.bincount(labels, weights, self.n_clusters)[:, None]
        means: Floats = densify(sums) if is_csr(sums) else np.asarray(sums)
        np.divide(means, total, out=means, where=total > 0)
        return means

    def _costs(self, part: slice, labels: Labels, means: Floats) -> Floats:
        """Return the squared distance of rows to the mean of their cluster, in all columns."""
        products = (self.rows[part] @ means.T)[np.arange(labels.size), labels]
        norms = np.einsum("ij,ij->i", means, means)
        costs: Floats = np.maximum(self.squares[part] - 2.0 * products + norms[labels], 0.0)
        return costs


def _taken(rows: Any, columns: Columns) -> Any:
    if is_csr(rows):
        return take_columns(rows, columns)
    return np.ascontiguousarray(rows[:, columns], dtype=np.float32)


def _row_squares(rows: Any) -> Floats:
    squares: Floats
    if is_csr(rows):
        squares = np.asarray(rows.multiply(rows).sum(axis=1), dtype=np.float64).ravel()
    else:
        squares = np.einsum("ij,ij->i", rows, rows)
    return squares
