"""CentroidSums: weight, mean and scatter of each cluster, merged pairwise; one step of k-means."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from sketchselect.errors import BadBlock, BadParameter
from sketchselect.linalg.arrays import Array, Floats, as_block, as_labels, as_weights, canonical, start_of_piece
from sketchselect.linalg.centering import check_squares
from sketchselect.linalg.csr import as_csr, densify, is_csr, require_ordinary, row_pieces, stays_sparse, take_rows
from sketchselect.linalg.kmeans.lloyd import RowMemory
from sketchselect.linalg.kmeans.sums import ClusterSums, farthest, merge_sums, sparse_label_sums
from sketchselect.linalg.validation import require_positive
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

    def _targets(self, y: Any, n_rows: int) -> NDArray[np.int32] | None:
        if self.centers is not None:
            return None
        if y is None:
            raise BadBlock("CentroidSums without centers needs the label of each row as y")
        labels = as_labels(y, n_rows)
        if labels.dtype.kind not in "fiub" or (labels.dtype.kind == "f" and (labels != np.trunc(labels)).any()):
            raise BadBlock(f"labels must be whole numbers, got {labels.dtype}")
        if n_rows and labels.max() >= self.n_clusters:
            raise BadBlock(
                f"labels must be below n_clusters = {self.n_clusters}, unlike that of row "
                f"{int(np.argmax(labels >= self.n_clusters))} of the block"
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
        weights = as_weights(sample_weight, block.shape[0])
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

    def inertia(self, centers: ArrayLike | None = None) -> float:
        """Return the weighted sum of squared distances of the rows to the centre of their cluster.

        The sum of ``within_j + weight_j ||mean_j - c_j||^2``. By default for the centres of the summary.
        """
        about = self.centers if centers is None else np.asarray(centers, dtype=np.float64)
        if about is None:
            raise BadParameter("inertia needs centers, because this summary is of labels and has none")
        if about.shape != self.record.mean.shape:
            raise BadParameter(f"centers must be of shape {self.record.mean.shape}, got {about.shape}")
        steps = (self.record.mean - about) + self.record.correction
        squares = np.einsum("ij,ij->i", steps, steps)
        return float((self.record.within + self.record.weight * squares).sum())

    @property
    def farthest_points(self) -> Floats:
        """Rows farthest from their centre, farthest first, at most n_clusters, all at positive distances."""
        return self.record.far_point

    @property
    def farthest_distances(self) -> Floats:
        """Squared distances of `farthest_points`."""
        return self.record.far_distance

    @property
    def farthest_rows(self) -> NDArray[np.int64]:
        """Global row indices of `farthest_points`."""
        return self.record.far_row


def _record(
    n_rows: int, sums: ClusterSums, distances: Floats, rows: NDArray[np.int64], points: Floats
) -> CentroidRecord:
    return CentroidRecord(n_rows, **vars(sums), far_distance=distances, far_row=rows, far_point=points)


def _sums(record: CentroidRecord) -> ClusterSums:
    return ClusterSums(record.weight, record.mean, record.correction, record.within)
