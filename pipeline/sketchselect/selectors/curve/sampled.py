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
"""Starts of k-means; all sets of columns have the same ones, so that their differences are not those of starts."""

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
        elif is_csr(rows):
            near = densify(rows)
        chosen = (
            spread_out(near, self.weights, self.n_clusters, derive_seed(seed, "curve", start))
            for start in range(STARTS)
        )
        self.starts = [lloyd.assign(near, near[places])[0] for places in chosen]

    def clustered(self, columns: Columns | None = None, warm: Labels | None = None) -> SampledClusters:
        """Return the best clustering on these columns (None: on all) from the starts, and from other labels."""
        points = self.rows if columns is None else _taken(self.rows, columns)
        starts = [*self.starts, *([] if warm is None else [warm])]
        tried = []
        for start in starts:
            cost, centers = refine(points, self.weights, self._means(points, start))
            labels = lloyd.assign(points, centers)[0]
            tried.append((cost, labels, self._costs(slice(None), labels, self._means(self.rows, labels))))
        tried.sort(key=lambda one: one[0])
        _, labels, costs = tried[0]
        spread = _spread_of_best(np.array([float(self.weights @ one[2]) for one in tried]))
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


def _spread_of_best(objectives: Floats) -> float:
    """Return the variance of the logarithm of the objective of the better of two starts, for starts such as these.

    Two, although a run compares more: its comparison is on a sample of its own, where close costs change places.

    `objectives`: In all columns, by ascending cost in the columns that were clustered.
    """
    n = objectives.size
    if n < 2 or not objectives.min() > 0:
        return 0.0
    chances = -np.diff((np.arange(n, -1, -1) / n) ** 2)
    logs = np.log(objectives)
    return float(chances @ (logs - chances @ logs) ** 2) * n / (n - 1)


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
