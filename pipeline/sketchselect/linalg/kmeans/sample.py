"""k-means of a weighted sample of rows in memory: centred, projected, started, polished and compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from sketchselect.linalg.csr import densify, take_columns
from sketchselect.linalg.kmeans import lloyd
from sketchselect.linalg.kmeans.assignment import sparse_mean_products, spread_out
from sketchselect.linalg.kmeans.kernels import lloyd_of_short_rows
from sketchselect.linalg.validation import Array, Floats, Labels, is_csr, read_only

LEAST_ROWS, ROWS_PER_CLUSTER = 2000, 20  # Of a sample
MOST_NBYTES = 1 << 29  # Of its rows when dense: one process holds them all

POLISH_ITERATIONS, POLISH_TOL = 25, 1e-4  # Most of one start; one that lowers the cost by less than this share ends it
COST_TIE = 1e-9  # Costs of the same clusters differ by less, added up in another order or by another processor
SHORT = 128  # Columns up to which one loop is faster than products by BLAS (measured)
SEEN = 1e-10  # Share of the largest squared norm of a direction below which its products are rounding
MOST_DENSE_COLUMNS = 512  # Columns of sparse rows up to which they are taken as dense ones


def sample_size(n_clusters: int, n_features: int, least_per_cluster: int = ROWS_PER_CLUSTER) -> int:
    """Return the rows of a sample: ``max(2000, 20 n_clusters)``, fewer where they are wide.

    `least_per_cluster`: Rows for each cluster that wide rows have too.
    """
    size = max(LEAST_ROWS, ROWS_PER_CLUSTER * n_clusters)
    return max(min(size, MOST_NBYTES // (8 * max(n_features, 1))), least_per_cluster * n_clusters)


@dataclass(frozen=True, eq=False)
class WeightedRows:
    """Rows with weights, of shape (n_rows, n_columns) and (n_rows,); dense or canonical CSR."""

    rows: Any
    weights: Floats

    def dense(self) -> WeightedRows:
        """Return the rows as a dense array."""
        return replace(self, rows=densify(self.rows)) if is_csr(self.rows) else self

    def centered(self) -> tuple[WeightedRows, Floats]:
        """Return dense rows about their mean, and the mean: far from the origin products would cancel.

        Sparse rows stay where they are.
        """
        if is_csr(self.rows):
            return self, np.zeros(self.rows.shape[1])
        mean = self.weights @ self.rows / self.weights.sum()
        return replace(self, rows=self.rows - mean), mean

    def single(self, columns: Array | None = None) -> WeightedRows:
        """Return some columns as k-means takes them: float32, and dense where they are few."""
        rows = self.rows
        if not is_csr(rows):
            chosen = rows if columns is None else rows[:, columns]
            return replace(self, rows=np.ascontiguousarray(chosen, dtype=np.float32))
        if columns is None:
            return self
        rows = take_columns(rows, columns)
        return replace(self, rows=densify(rows).astype(np.float32) if columns.size <= MOST_DENSE_COLUMNS else rows)

    def image(self, near: Any) -> Floats:
        """Return the products of the columns with `near`, a column a direction.

        With products of the rows as `near` they span about the top directions: one step of subspace iteration.
        """
        return np.asarray(self.rows.T @ (self.weights[:, None] * near))

    def along(self, near: Any) -> WeightedRows:
        """Return the rows along the directions of `image` in float32: clusters are there, and such rows are short.

        Rows that are all equal have no directions, and stay.
        """
        image = self.image(near)
        squares, vectors = np.linalg.eigh(image.T @ image)
        seen = squares > SEEN * squares[-1]
        if not seen.any():
            return self
        basis = image @ (vectors[:, seen] / np.sqrt(squares[seen]))
        return replace(self, rows=np.asarray(self.rows @ basis, dtype=np.float32))

    def starts(self, n_clusters: int, seeds: Iterable[int]) -> list[Floats]:
        """Return the centres of a k-means++ start for each seed, float64."""
        points = self.dense().rows
        return [points[spread_out(points, self.weights, n_clusters, s)].astype(np.float64) for s in seeds]

    def assign(self, centers: Floats) -> Labels:
        """Return the nearest centre of each row."""
        return lloyd.assign(self.rows, centers)[0]

    def polish(self, centers: Floats, most: int = POLISH_ITERATIONS, tol: float = POLISH_TOL) -> tuple[float, Floats]:
        """Return cost and centres after at most some Lloyd iterations; what attracts nothing stays where it is.

        `tol`: The share of the cost by which the last iteration lowers it; -inf for all iterations that move a centre.
        """
        cost, centers, _ = self._iterated(centers, most, tol)
        return cost, centers

    def _iterated(self, centers: Floats, most: int, tol: float) -> tuple[float, Floats, Labels]:
        """Return what `polish` does, and the labels of these centres."""
        before, memory = np.inf, None if is_csr(self.rows) else lloyd.RowMemory(self.rows.shape[0])
        for _ in range(most):
            labels, distances, sums = lloyd.assign_and_sum(self.rows, centers, self.weights, memory=memory)
            cost = float((self.weights * distances).sum())
            if cost >= before * (1 - tol):
                return cost, centers, labels
            before = cost
            moved = np.where(sums.weight[:, None] > 0, sums.mean, centers)
            if (moved == centers).all():
                return cost, centers, labels
            centers = moved
        labels, distances = lloyd.assign(self.rows, centers)
        return float((self.weights * distances).sum()), centers, labels

    def clusters(self, centers: Floats, most: int, tol: float) -> tuple[float, Floats, Labels]:
        """Return cost and centres at the end of `polish`, but for rounding, with labels, and sooner for short rows."""
        if is_csr(self.rows) or self.rows.shape[1] > SHORT:
            return self._iterated(centers, most, tol)
        labels, centers = np.empty(self.rows.shape[0], dtype=np.int32), np.array(centers, dtype=np.float64)
        cost = lloyd_of_short_rows(read_only(self.rows), read_only(self.weights), centers, most, tol, labels)
        return cost, centers, labels

    def best(self, starts: Sequence[Floats], most: int = POLISH_ITERATIONS) -> Floats:
        """Return the start of lowest cost once polished, as polished; the first of several within `COST_TIE`.

        Starts that end in the same clusters must not differ between processors.
        """
        polished = [self.polish(start, most) for start in starts]
        lowest = min(cost for cost, _ in polished)
        return next(centers for cost, centers in polished if cost <= lowest * (1 + COST_TIE))

    def means(self, labelings: Sequence[Labels], n_clusters: int) -> tuple[list[Floats], Floats]:
        """Return the means of the clusters of each labelling, and their weights; zeros for an empty cluster.

        Rows with a negative label are left out.
        """
        labels, k, m = np.stack(labelings, axis=1), n_clusters, len(labelings)
        inside = labels >= 0
        cells, counts = (labels + k * np.arange(m))[inside], inside.sum(axis=1)
        shares, ends = np.repeat(self.weights, counts), np.concatenate([[0], np.cumsum(counts)])
        # One sweep over the rows adds each to its cluster of every labelling.
        members = csr_array((shares, cells, ends), shape=(len(labels), m * k)).T
        sums = members.tocsr() @ self.rows if is_csr(self.rows) else members @ self.rows
        totals: Floats = np.bincount(cells, shares, m * k).astype(np.float64, copy=False)[:, None]
        means: Floats = densify(sums) if is_csr(sums) else np.asarray(sums, dtype=np.float64)
        np.divide(means, totals, out=means, where=totals > 0)
        return list(means.reshape(m, k, -1)), totals.reshape(m, k)

    def mean_products(
        self, labelings: Sequence[Labels], n_clusters: int, of: int = -1
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Return what `sparse_mean_products` does, of dense rows too."""
        if is_csr(self.rows):
            return sparse_mean_products(self._by_column, np.stack(labelings, axis=1), n_clusters, self.weights, of)
        means, totals = self.means(labelings, n_clusters)
        half, within = n_clusters // 2, np.zeros(len(self.weights))
        norms = np.stack([row_products(m, m) for m in means])
        paired = np.stack([row_products(m[:half], m[half : 2 * half]) for m in means])
        if of >= 0:
            labels = labelings[of]
            within = (self.rows @ means[of][: labels.max() + 1].T)[np.arange(len(within)), labels]
        return totals, norms, paired, within

    @cached_property
    def _by_column(self) -> Any:
        return self.rows.tocsc()


def row_products(left: Any, right: Any) -> Floats:
    """Return the inner product of each row of one matrix and that of the other, dense or CSR."""
    if is_csr(left):
        return np.asarray(left.multiply(right).sum(axis=1), dtype=np.float64).ravel()
    products: Floats = np.einsum("ij,ij->i", left, right)
    return products


def principal_plane(rows: Any, others: Floats) -> tuple[Floats, Floats]:
    """Return rows, and others, on the two top principal components of the rows, each of shape (n, 2).

    Of rows with fewer directions the other coordinates are 0. The entry of a component that is largest in size is
    positive. Cost: n^2 p flops for n rows of p columns, and 10 n^3.
    """
    n_rows = rows.shape[0]
    mean = np.asarray(rows.sum(axis=0), dtype=np.float64).ravel() / n_rows
    if not is_csr(rows):
        rows = rows - mean
    gram = rows @ rows.T
    gram = np.asarray(densify(gram) if is_csr(gram) else gram, dtype=np.float64)
    gram = gram - gram.mean(axis=0) - gram.mean(axis=1)[:, None] + gram.mean()
    squares, vectors = np.linalg.eigh(gram)
    points, axes = np.zeros((n_rows, 2)), np.zeros((rows.shape[1], 2))
    for place in range(min(2, n_rows)):
        square, vector = float(squares[-1 - place]), vectors[:, -1 - place]
        if square > n_rows * np.finfo(np.float64).eps * float(squares[-1]):
            axis = np.asarray(rows.T @ (vector - vector.mean())) / np.sqrt(square)
            sign = 1.0 if axis[np.abs(axis).argmax()] > 0 else -1.0
            points[:, place], axes[:, place] = sign * np.sqrt(square) * vector, sign * axis
    return points, (others - mean) @ axes


_ROUNDING = 1e-12  # Share of the largest mean of a column up to which a negative one is taken for 0


def lift_of(means: Floats, weights: Floats) -> tuple[Floats, Floats] | None:
    """Return the means of clusters over those of all rows, and their residuals; None where a mean is negative.

    A residual is the difference from the mean of all rows over that mean's root: its square is proportional to the
    chi-square statistic of the column for the cluster against all other rows, and a rare column of one cluster alone,
    whose lift is as large as any, has a small one. A column that is 0 everywhere has 0 for both.

    Parameters
    ----------
    means, weights
        Of the clusters, of shapes (k, p) and (k,).

    Examples
    --------
    >>> lift, residuals = lift_of(np.array([[8.0, 1.0], [0.0, 1.0]]), np.array([1.0, 1.0]))
    >>> lift
    array([[2., 1.],
           [0., 1.]])
    >>> residuals
    array([[ 2.,  0.],
           [-2.,  0.]])
    >>> float(lift_of(np.array([[8.0], [-1e-18]]), np.array([1.0, 1.0]))[0][1, 0])
    0.0
    """
    if not (means >= -_ROUNDING * np.abs(means).max(axis=0, initial=0.0)).all():
        return None
    means = np.maximum(means, 0.0)  # sums of rows that came and went may be -1e-18
    of_all = weights @ means / max(float(weights.sum()), 1e-300)
    lift = np.divide(means, of_all, out=np.zeros_like(means), where=of_all > 0)
    return lift, (means - of_all) / np.sqrt(np.where(of_all > 0, of_all, 1.0))
