"""Summaries of labelled rows: weight, mean and scatter of each cluster, and the contingency table of two groupings.

`CentroidSums` is one step of k-means; NMI, ARI, purity and accuracy follow from `Contingency`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from sketchselect.errors import BadBlock, BadParameter, Incompatible
from sketchselect.linalg import agreement
from sketchselect.linalg.centering import check_squares
from sketchselect.linalg.csr import as_csr, densify, require_ordinary, row_pieces, stays_sparse, take_rows
from sketchselect.linalg.kmeans.assignment import ClusterSums, farthest, merge_sums, sparse_label_sums
from sketchselect.linalg.kmeans.lloyd import RowMemory
from sketchselect.linalg.validation import (
    Array,
    Floats,
    as_block,
    as_labels,
    as_weights,
    canonical,
    first_not_whole,
    is_csr,
    number_of,
    require_positive,
    start_of_piece,
)
from sketchselect.summaries.base import Summary, register


@dataclass(frozen=True)
class CentroidRecord:
    """State of `CentroidSums`: one entry per cluster, and the rows farthest from their centres, farthest first.

    ``mean + correction`` is the mean in twice the precision of float64.
    """

    n_rows: int
    weight: Floats
    mean: Floats
    correction: Floats = field(metadata={"stored_name": "rest"})
    within: Floats
    far_distance: Floats
    far_row: NDArray[np.int64]
    far_point: Floats

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.mean.shape[1])


@register
class CentroidSums(Summary[CentroidRecord]):
    """Weight, mean and within-cluster sum of squares of every cluster: one Lloyd step, or the objective of a partition.

    With `centers` every row is in the cluster of the nearest one (ties go to the lowest index); without, `y` are the
    labels of the rows, and rows with a negative label are left out. Exact to rounding for any merge tree, also far from
    the origin: sums are computed about a member of each cluster and merged pairwise, so nothing cancels.

    Parameters
    ----------
    n_clusters : int, optional
        Number of clusters; that of `centers` by default.
    centers : array of shape (n_clusters, n_features), optional
        With centres, the n_clusters rows farthest from their centre are stored too (ties by global row index), for
        reseeding empty clusters.

    Raises
    ------
    BadParameter
        If both are None, they contradict each other, or the centres are not finite.

    Notes
    -----
    Cost a row: 2 k d flops in float32 products and 8 d in float64. Bytes: 8 k (3 d + 4).
    Source: Chan, Golub and LeVeque 1983, per cluster; Lloyd 1982.

    Examples
    --------
    >>> import numpy as np
    >>> X = 1e8 + np.array([[0.0], [2.0], [10.0], [14.0]])
    >>> s = CentroidSums(centers=[[1e8], [1e8 + 11]]).from_block(X)
    >>> (s.cluster_means - 1e8).ravel().tolist(), s.within.tolist(), s.objective
    ([1.0, 12.0], [2.0, 8.0], 10.0)
    >>> CentroidSums(2).from_block(X, [0, 0, 1, -1]).objective
    2.0
    """

    kind = "centroid-sums"
    record_type = CentroidRecord
    accepts_sparse = True

    def __init__(self, n_clusters: int | None = None, centers: ArrayLike | None = None) -> None:
        if centers is None:
            if n_clusters is None:
                raise BadParameter("CentroidSums needs centers, or n_clusters with labels as y")
            self.n_clusters = require_positive("n_clusters", n_clusters)
            self.centers: Floats | None = None
            return
        array = np.asarray(centers)
        if array.ndim != 2 or array.size == 0 or array.dtype.kind not in "fiub":
            raise BadParameter(f"centers must be a real array of shape (n_clusters, n_features), got {array.shape}")
        if not np.isfinite(array).all():
            raise BadParameter("centers must be finite")
        if n_clusters is not None and n_clusters != array.shape[0]:
            raise BadParameter(f"n_clusters is {n_clusters}, but centers has {array.shape[0]} rows")
        self.n_clusters = array.shape[0]
        self.centers = canonical(array, np.float64).copy()
        self.centers.flags.writeable = False

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the bytes of one state."""
        return 8 * self.n_clusters * (3 * n_features + 4) + 64

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the extra bytes of one `from_block` (besides 24 a row) or `merge`."""
        return 8 * self.n_clusters * (8 * n_features + 8) + (1 << 20)

    def _targets(self, y: Any, n_rows: int, start: int | Array = 0) -> NDArray[np.int32] | None:
        if self.centers is not None:
            return None
        if y is None:
            raise BadBlock("CentroidSums without centers needs the label of each row as y")
        labels = as_labels(y, n_rows)
        if labels.dtype.kind not in "fiub":
            raise BadBlock(f"labels must be whole numbers, got {labels.dtype}")
        if (row := first_not_whole(labels)) is not None:
            number = number_of(row, start)
            raise BadBlock(f"labels must be whole numbers, unlike {float(labels[row]):g} of row {number}")
        if n_rows and labels.max() >= self.n_clusters:
            raise BadBlock(
                f"labels must be below n_clusters = {self.n_clusters}, unlike that of row "
                f"{number_of(int(np.argmax(labels >= self.n_clusters)), start)}"
            )
        return (labels if labels.dtype.kind in "ub" else np.maximum(labels, -1)).astype(np.int32)

    def _empty(self, n_features: int, n_targets: int) -> CentroidRecord:
        self._require_width(n_features)
        k = self.n_clusters
        none = np.zeros(0, dtype=np.int64)
        zeros = np.zeros((k, n_features))
        return CentroidRecord(0, np.zeros(k), zeros, zeros, np.zeros(k), np.zeros(0), none, np.zeros((0, n_features)))

    def _summarise(self, block: Any, targets: Any, start: int | Array, weights: Floats | None) -> CentroidRecord:
        if self.centers is None:
            from sketchselect.linalg.kmeans import lloyd

            none = np.zeros(0, dtype=np.int64)
            if is_csr(block):
                sums = sparse_label_sums(block, targets, self.n_clusters, weights, start)
            else:
                sums = lloyd.label_sums(block, targets, self.n_clusters, weights)
            return self._record_of(block, sums, none, np.zeros(0), start)
        return self._assigned(block, start, weights)[1]

    def _assigned(
        self, block: Any, start: int | Array, weights: Floats | None, memory: RowMemory | None = None
    ) -> tuple[NDArray[np.int32], CentroidRecord]:
        from sketchselect.linalg.kmeans import lloyd

        assert self.centers is not None
        self._require_width(block.shape[1])
        if is_csr(block):
            require_ordinary(block, start)
        labels, distances, sums = lloyd.assign_and_sum(block, self.centers, weights, memory=memory)
        rows = start.astype(np.int64) if isinstance(start, np.ndarray) else None
        far = farthest(distances if weights is None else distances * (weights > 0), rows, self.n_clusters)
        return labels, self._record_of(block, sums, far, distances[far], start)

    def _record_of(
        self, block: Any, sums: ClusterSums, far: NDArray[np.int64], distances: Floats, start: int | Array
    ) -> CentroidRecord:
        if not is_csr(block):
            check_squares(sums.within, block, start)
        rows = (start[far] if isinstance(start, np.ndarray) else start + far).astype(np.int64)
        points = densify(as_csr(block[far]), np.float64) if is_csr(block) else block[far].astype(np.float64)
        return _record(block.shape[0], sums, distances, rows, points)

    def _combine(self, left: CentroidRecord, right: CentroidRecord) -> CentroidRecord:
        sums = merge_sums(_sums(left), _sums(right))
        distances = np.concatenate([left.far_distance, right.far_distance])
        rows = np.concatenate([left.far_row, right.far_row])
        far = farthest(distances, rows, self.n_clusters)
        points = np.concatenate([left.far_point, right.far_point])[far]
        return _record(left.n_rows + right.n_rows, sums, distances[far], rows[far], points)

    def with_sums(self, n_rows: int, sums: ClusterSums) -> CentroidSums:
        """Return the summary of rows with these sums, without farthest rows."""
        none = np.zeros(0, dtype=np.int64)
        points = np.zeros((0, sums.mean.shape[1]))
        return self._with(_record(n_rows, sums, np.zeros(0), none, points), self.context)

    def _require_width(self, n_features: int) -> None:
        if self.centers is not None and self.centers.shape[1] != n_features:
            raise BadBlock(f"the centres have {self.centers.shape[1]} columns, the block has {n_features}")

    def label_block(
        self,
        X: Any,
        *,
        start: int | Array = 0,
        sample_weight: ArrayLike | None = None,
        memory: RowMemory | None = None,
        copy: bool = True,
    ) -> tuple[NDArray[np.int32], CentroidSums]:
        """Return the nearest centre of each row (int32, ties to the lowest index) and ``from_block`` of the same rows.

        With a `memory` of the same dense rows most of them need no comparison; the result is the same to the bit. Its
        next use changes the labels that were not copied.
        """
        if self.centers is None:
            raise BadParameter("label_block needs centers")
        block = as_csr(X) if issparse(X) else as_block(X)
        weights = as_weights(sample_weight, block.shape[0], start)
        if block.shape[0] == 0:
            return np.zeros(0, dtype=np.int32), self._with(self._empty(block.shape[1], 0), self.context)
        if is_csr(block) and not stays_sparse(block, weights, self.sparse_limit):
            pieces = []
            for a, b in row_pieces(block):
                piece_weights = None if weights is None else weights[a:b]
                rows = densify(take_rows(block, a, b))
                pieces.append(self._assigned(rows, start_of_piece(start, a, b), piece_weights))
            record = reduce(self._combine, (record for _, record in pieces))
            return np.concatenate([labels for labels, _ in pieces]), self._with(record, self.context)
        labels, record = self._assigned(block, start, weights, memory)
        copied = labels.copy() if copy and memory is not None else labels
        return copied, self._with(record, self.context)

    # --- answers -----------------------------------------------------------------------------------------------

    @property
    def cluster_weights(self) -> Floats:
        """Total weight of the rows of each cluster, shape (n_clusters,)."""
        return self.record.weight

    @property
    def cluster_means(self) -> Floats:
        """Mean of each cluster, shape (n_clusters, n_features); zeros where a cluster has no weight."""
        return self.record.mean

    @property
    def within(self) -> Floats:
        """Weighted sum of squared distances to the mean of each cluster, shape (n_clusters,)."""
        return self.record.within

    @property
    def weight(self) -> float:
        """Total weight of the rows in clusters."""
        return float(self.record.weight.sum())

    @property
    def objective(self) -> float:
        """The k-means objective of the partition: sum of `within`."""
        return float(self.record.within.sum())

    def inertia(self) -> float:
        """Return the weighted sum of squared distances of the rows to `centers`."""
        if self.centers is None:
            raise BadParameter("inertia needs centers, because this summary is of labels and has none")
        steps = (self.record.mean - self.centers) + self.record.correction
        squares = np.einsum("ij,ij->i", steps, steps)
        return float((self.record.within + self.record.weight * squares).sum())

    @property
    def farthest_points(self) -> Floats:
        """Rows farthest from their centre, farthest first, at most n_clusters, all at positive distances."""
        return self.record.far_point


def _record(
    n_rows: int, sums: ClusterSums, distances: Floats, rows: NDArray[np.int64], points: Floats
) -> CentroidRecord:
    return CentroidRecord(n_rows, **vars(sums), far_distance=distances, far_row=rows, far_point=points)


def _sums(record: CentroidRecord) -> ClusterSums:
    return ClusterSums(record.weight, record.mean, record.correction, record.within)


MAX_CELLS = 1 << 24
"""Largest number of cells of a table."""


@dataclass(frozen=True, eq=False)
class Contingency:
    """Number of rows for each pair of labels of two groupings, such as known classes and clusters.

    ``a.merge(b)`` is the table of the rows of both: integer counts, so exact, associative and commutative, with any
    labels in either part; the table without rows is its identity. All measures follow from the table.

    Parameters
    ----------
    classes : array of shape (n_classes,)
        Labels of the first grouping, ascending.
    clusters : array of shape (n_clusters,)
        Labels of the second grouping, ascending.
    counts : array of shape (n_classes, n_clusters), int64
        Rows of each class in each cluster.

    Notes
    -----
    Bytes: 8 n_classes n_clusters, for any number of rows.

    Examples
    --------
    >>> first = Contingency.of(["a", "a", "b"], [0, 0, 1])
    >>> both = first.merge(Contingency.of(["b", "c"], [1, 1]))
    >>> both.counts.tolist(), both.n_rows, both.accuracy
    ([[2, 0], [0, 2], [0, 1]], 5, 0.8)
    """

    classes: Array
    clusters: Array
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, classes: Any, clusters: Any) -> Contingency:
        """Return the table of some rows from their two labels.

        Parameters
        ----------
        classes, clusters : array of shape (n_rows,)
            Numbers (no NaN) or text.

        Raises
        ------
        BadBlock
            If they differ in length or are not one-dimensional, or a label is NaN.
        BadParameter
            If the table would have more than `MAX_CELLS` cells.
        """
        first, second = np.asarray(classes), np.asarray(clusters)
        if first.ndim != 1 or first.shape != second.shape:
            raise BadBlock(f"every row needs two labels, got arrays of shapes {first.shape} and {second.shape}")
        for labels in (first, second):
            if labels.dtype.kind == "f" and np.isnan(labels).any():
                raise BadBlock(f"the label of row {int(np.isnan(labels).argmax())} is NaN; leave such rows out")
        rows, row_of = np.unique(first, return_inverse=True)
        columns, column_of = np.unique(second, return_inverse=True)
        _require_cells(rows.size, columns.size)
        cells = np.bincount(row_of * columns.size + column_of, minlength=rows.size * columns.size)
        return cls(rows, columns, cells.astype(np.int64).reshape(rows.size, columns.size))

    def merge(self, other: Contingency) -> Contingency:
        """Return the table of the rows of both; neither is changed.

        Raises
        ------
        Incompatible
            If labels are text in one and numbers in the other.
        BadParameter
            If the table would have more than `MAX_CELLS` cells.
        """
        if not self.n_rows or not other.n_rows:
            return self if self.n_rows else other
        classes, clusters = _union(self.classes, other.classes), _union(self.clusters, other.clusters)
        _require_cells(classes.size, clusters.size)
        counts = np.zeros((classes.size, clusters.size), dtype=np.int64)
        for one in (self, other):
            counts[np.ix_(np.searchsorted(classes, one.classes), np.searchsorted(clusters, one.clusters))] += one.counts
        return Contingency(classes, clusters, counts)

    @property
    def n_rows(self) -> int:
        """Rows counted."""
        return int(self.counts.sum())

    @property
    def nmi(self) -> float:
        """Normalised mutual information, with the arithmetic mean of the entropies."""
        return agreement.normalized_mutual_information(self.counts)

    @property
    def ari(self) -> float:
        """Adjusted Rand index."""
        return agreement.adjusted_rand_index(self.counts)

    @property
    def purity(self) -> float:
        """Share of rows in the most frequent class of their cluster."""
        return agreement.purity(self.counts)

    @property
    def accuracy(self) -> float:
        """Share of rows whose class and cluster are a pair of the best one-to-one matching."""
        return agreement.matched_accuracy(self.counts)

    def __repr__(self) -> str:
        return f"<Contingency of {self.n_rows} rows: {len(self.classes)} classes x {len(self.clusters)} clusters>"


def _union(left: Array, right: Array) -> Array:
    if (left.dtype.kind == "U") != (right.dtype.kind == "U"):
        raise Incompatible("cannot merge tables of labels that are text in one and numbers in the other")
    both: Array = np.union1d(left, right)
    return both


def _require_cells(n_classes: int, n_clusters: int) -> None:
    if n_classes * n_clusters > MAX_CELLS:
        raise BadParameter(
            f"{n_classes} labels against {n_clusters} make a table of more than {MAX_CELLS} cells; "
            "use labels of groups, not a label for almost every row"
        )
