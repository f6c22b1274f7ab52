"""Clusterings of a sample of rows on some of the columns, and their costs in all columns."""

from __future__ import annotations

from collections.abc import Sequence
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
from sketchselect.linalg.kmeans.refining import REFINEMENTS, refine
from sketchselect.linalg.sparse.csr import densify, is_csr, take_columns
from sketchselect.summaries import RowSample

Columns = NDArray[np.int64]

STARTS = 3
"""Starts of k-means, for its best clustering and for how much clusterings differ."""

SETTLING = 10
"""Starts where methods differ by less than starts do, and where they are cheap: as many as a run has."""

CHEAP_FLOPS, OVERHEAD = 2.5e8, 64
"""Operations up to which as many starts are made, and the columns that the cost of a call is added as."""

ROUNDING = 1e-12
"""Share of the sum of squares below which an objective is rounding: there is a cluster for each distinct row."""

RACING = 3e-4
"""Starts are compared once an iteration lowers the cost by less than this share; the best of them goes on."""

PROJECTED = 64
"""Dimensions of the projections in which starts are chosen and compared, where there are more columns."""


@dataclass(frozen=True)
class SampledClusters:
    """The clusters of sampled rows on some columns."""

    labels: Labels
    costs: Floats  # shape (n_sampled,): Squared distance of each row to the mean of its cluster, in all columns
    spread: float  # Variance of the logarithm of the objective in all columns, of the best of other starts
    objective: float  # Sum of the costs by weight
    # The same, to means of the half of the sample that the row is not in, clustered without it
    unseen: float


class Coreset:
    """Sampled rows that stand for all: k-means on any of their columns, and its costs in all columns.

    `sample`: Uniform or by distance from a centre; sums by its weights are unbiased.
    """

    def __init__(self, sample: RowSample, n_clusters: int, seed: int) -> None:
        self.sampled: Any = sample.rows
        self.weights = sample.weights
        if is_csr(self.sampled):
            # Columns without an entry add nothing to any cost; the first one stays, so that there is one.
            self.rows: Any = take_columns(self.sampled, np.unique(np.append(self.sampled.indices, 0)))
        else:
            # Far from the origin products would cancel.
            self.rows = self.sampled = self.sampled - self.weights @ self.sampled / self.weights.sum()
        self.n_clusters, n_columns = min(n_clusters, self.rows.shape[0]), self.rows.shape[1]
        self.squares = _products(self.rows, self.rows)
        total = self.rows.T @ self.weights
        self.scatter = float(self.weights @ self.squares - total @ total / self.weights.sum())
        self.drawn = 1.0 - sample.probabilities
        self.is_complete = not self.drawn.any()
        self.seed = seed
        self.racing = self.rows
        if n_columns > PROJECTED:
            draws = gaussians(derive_seed(seed, "curve", "projection"), (n_columns, PROJECTED))
            # About the top directions, by one step of subspace iteration: clusters are there, and rows are short.
            basis = np.linalg.qr(np.asarray(self.rows.T @ (self.weights[:, None] * (self.rows @ draws))))[0]
            self.racing = np.asarray(self.rows @ basis, dtype=np.float32)
        self.starts = self._drawn_starts(self.racing, self._n_starts(self.racing))

    def _n_starts(self, points: Any) -> int:
        """Return how many starts are made on points of the sample: few of many rows, where local optima are close."""
        flops = 2.0 * points.shape[0] * (points.shape[1] + OVERHEAD) * self.n_clusters * REFINEMENTS
        return int(np.clip(CHEAP_FLOPS // flops, STARTS, SETTLING))

    def _drawn_starts(self, points: Any, n_starts: int) -> list[Labels]:
        """Return labels by the nearest of some rows, which k-means++ draws."""
        dense = densify(points) if is_csr(points) else points
        seeds = (derive_seed(self.seed, "curve", start) for start in range(n_starts))
        chosen = (spread_out(dense, self.weights, self.n_clusters, seed) for seed in seeds)
        return [lloyd.assign(dense, dense[places].astype(np.float64))[0] for places in chosen]

    def clustered(
        self, columns: Columns | None = None, warm: Labels | None = None, n_starts: int | None = None
    ) -> SampledClusters:
        """Return the best clustering on these columns (None: on all), from several starts and from other labels.

        Most starts are drawn in the columns, as those of a run: from starts that know all columns k-means finds better.
        """
        # On all columns starts race where rows are short.
        points, starts = self.racing, self.starts
        if columns is not None:
            points = _points(self.sampled, columns)
            fresh = (self._n_starts(points) if n_starts is None else n_starts) - 1
            starts = [self.starts[0], *self._drawn_starts(points, fresh), *([] if warm is None else [warm])]
        refined = [refine(points, self.weights, means, still=RACING) for means in self._means(points, starts)[0]]
        best = min(range(len(starts)), key=lambda start: refined[start][0])
        tried = [lloyd.assign(points, centers)[0] for _, centers in refined]
        centers = refined[best][1]
        if columns is None:
            points = _points(self.rows)
            centers = self._means(points, [tried[best]])[0][0]
        tried[best] = lloyd.assign(points, refine(points, self.weights, centers)[1])[0]
        means, totals = self._means(self.rows, tried)
        norms = [_products(one, one) for one in means]
        # The objective is the sum of squares less that of the means.
        square = float(self.weights @ self.squares)
        objectives = square - np.array([total @ norm for total, norm in zip(totals, norms, strict=True)])
        exact = objectives.min() <= square * ROUNDING
        # With tails such as exponential ones, the least of m draws has a deviation of about its distance to the next.
        spread = 0.0 if exact else float(np.diff(np.log(np.sort(objectives)[:2]))[0] ** 2)
        labels = tried[best]
        products = (self.rows @ means[best].T)[np.arange(labels.size), labels]
        costs: Floats = np.maximum(self.squares - 2.0 * products + norms[best][labels], 0.0)
        if self.weights @ costs <= square * ROUNDING:
            costs = np.zeros_like(costs)
        objective = float(self.weights @ costs)
        return SampledClusters(
            labels, costs, spread, objective, objective if self.is_complete else self._unseen(points, labels)
        )

    def _unseen(self, points: Any, labels: Labels) -> float:
        """Return the objective of each half of the rows under clusters of the other one."""
        even = np.arange(labels.size) % 2 == 0
        halves = [np.where(even, labels, -1), np.where(even, -1, labels)]
        near = []
        for start, half in zip(self._means(points, halves)[0], (slice(0, None, 2), slice(1, None, 2)), strict=True):
            centers = refine(points[half], self.weights[half], start)[1]
            near.append(lloyd.assign(points, centers)[0])
        parts = [np.where(part, one, -1) for one in near for part in (even, ~even)]
        means, totals = self._means(self.rows, parts)
        cost = float(self.weights @ self.squares)
        for seen, other in ((0, 1), (3, 2)):
            cost += float(
                totals[other] @ (_products(means[seen], means[seen]) - 2.0 * _products(means[other], means[seen]))
            )
        return max(cost, 0.0)

    def _means(self, rows: Any, labelings: Sequence[Labels]) -> tuple[list[Floats], Floats]:
        """Return the means of the clusters of each labelling, and their weights; zeros for an empty one.

        Rows with a negative label are left out.
        """
        labels, k = np.stack(labelings, axis=1), self.n_clusters
        inside, m = labels >= 0, len(labelings)
        cells, counts = (labels + k * np.arange(m))[inside], inside.sum(axis=1)
        shares, ends = np.repeat(self.weights, counts), np.concatenate([[0], np.cumsum(counts)])
        # One sweep over the rows adds each to its cluster of every labelling.
        members = csr_array((shares, cells, ends), shape=(len(labels), m * k)).T
        sums = members.tocsr() @ rows if is_csr(rows) else members @ rows
        totals: Floats = np.bincount(cells, shares, m * k).astype(np.float64, copy=False)[:, None]
        means: Floats = densify(sums) if is_csr(sums) else np.asarray(sums, dtype=np.float64)
        np.divide(means, totals, out=means, where=totals > 0)
        return list(means.reshape(m, k, -1)), totals.reshape(m, k)


def _points(rows: Any, columns: Columns | None = None) -> Any:
    """Return the columns of the rows that k-means takes: float32, and dense where they are few."""
    if not is_csr(rows):
        return np.ascontiguousarray(rows if columns is None else rows[:, columns], dtype=np.float32)
    if columns is None:
        return rows
    taken = take_columns(rows, columns)
    return densify(taken).astype(np.float32) if columns.size <= PROJECTED else taken


def _products(left: Any, right: Any) -> Floats:
    """Return the inner product of each row of one matrix and that of the other."""
    products: Floats
    if is_csr(left):
        products = np.asarray(left.multiply(right).sum(axis=1), dtype=np.float64).ravel()
    else:
        products = np.einsum("ij,ij->i", left, right)
    return products
