"""Sums over rows of silhouettes and distances to means, for several partitions at once.

Not in `cluster`, whose other modules load libraries that a worker does not need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sketchselect.linalg.csr import densify, row_pieces, take_rows
from sketchselect.linalg.kmeans import lloyd
from sketchselect.linalg.validation import Floats, Labels, as_weights, is_csr

PIECE_NBYTES = 1 << 26
"""Bytes of the float64 copies of a piece of rows, and of its products with the means."""


@dataclass(frozen=True, eq=False)
class Partition:
    """Nonempty clusters of rows that are nearest to some centres."""

    centers: Floats
    means: Floats
    weights: Floats
    within: Floats

    @classmethod
    def of(cls, sums: Any) -> Partition:
        """Return the clusters of `CentroidSums` with centres."""
        filled = sums.cluster_weights > 0
        # No row is nearest to the centre of an empty cluster, so labels stay the same without it.
        return cls(sums.centers[filled], sums.cluster_means[filled], sums.cluster_weights[filled], sums.within[filled])

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return int(self.centers.nbytes + self.means.nbytes)

    @property
    def smallest_share(self) -> float:
        """Share of the rows, by weight, in the smallest cluster."""
        return float(self.weights.min() / self.weights.sum())

    def distance_sums(self, rows: Floats, labels: Labels, weights: Floats) -> Floats:
        """Return the weighted sum of the rows' silhouettes, and that of the distances to the mean of each cluster.

        The mean squared distance of a row x to the rows of a cluster is ``||x - mean||^2 + within / weight``. Distances
        are computed about the mean of the row's own cluster, which is the nearest or nearly so: nothing cancels.
        """
        out = np.zeros(len(self.weights) + 1)
        spreads = self.within / self.weights
        for own in np.unique(labels):
            members = labels == own
            steps, weight, total = rows[members] - self.means[own], weights[members], self.weights[own]
            squares = np.einsum("ij,ij->i", steps, steps)
            out[own + 1] = weight @ np.sqrt(squares)
            if len(self.weights) < 2:
                continue
            apart = self.means - self.means[own]
            to_others = squares[:, None] - 2.0 * steps @ apart.T + np.einsum("ij,ij->i", apart, apart) + spreads
            to_others[:, own] = np.inf
            nearest = to_others.min(axis=1)
            # The row itself, at distance 0, is none of the others.
            others = total - weight
            mean = np.divide((squares + spreads[own]) * total, others, out=np.zeros_like(others), where=others > 0)
            most = np.maximum(mean, nearest)
            scores = np.divide(nearest - mean, most, out=np.zeros_like(most), where=(most > 0) & (others > 0))
            out[0] += weight @ scores
        return out

    def indices(self, totals: Floats, n_rows: int) -> dict[str, Any]:
        """Return the indices by their names in `ClusterCount`, from the sums of `distance_sums` of all rows."""
        k, weight = len(self.weights), float(self.weights.sum())
        if k < 2:
            return dict.fromkeys(("calinski_harabasz", "davies_bouldin", "silhouette"))
        steps = self.means - self.weights @ self.means / weight
        between, within = float(self.weights @ np.einsum("ij,ij->i", steps, steps)), float(self.within.sum())
        harabasz = None
        if n_rows > k:
            harabasz = between / (k - 1) / (within / (n_rows - k)) if within > 0 else 1.0
        mean_distances = totals[1:] / self.weights
        apart = np.array([np.sqrt(np.square(self.means - mean).sum(axis=1)) for mean in self.means])
        # Clusters with one mean, as in scikit-learn, are no neighbours.
        apart[apart == 0] = np.inf
        davies = float(((mean_distances[:, None] + mean_distances) / apart).max(axis=1).mean())
        return {"calinski_harabasz": harabasz, "davies_bouldin": davies, "silhouette": float(totals[0]) / weight}


def distance_sums(partitions: Sequence[Partition], block: Any) -> Floats:
    """Return `distance_sums` of all partitions of the rows of a block, one behind the other, and the number of rows.

    Rows of weight 0 do not count.
    """
    return sums_of_rows(partitions, block.values, block.weight)


def sums_of_rows(partitions: Sequence[Partition], rows: Any, weight: ArrayLike | None) -> Floats:
    """Return `distance_sums` of rows."""
    checked = as_weights(weight, rows.shape[0])
    weights = np.ones(rows.shape[0]) if checked is None else checked
    sums = [np.zeros(len(partition.weights) + 1) for partition in partitions]
    most = max(len(partition.weights) for partition in partitions)
    for a, b in row_pieces(rows, PIECE_NBYTES // 32 * rows.shape[1] // (rows.shape[1] + most)):
        stored = take_rows(rows, a, b) if is_csr(rows) else rows[a:b]
        piece = densify(stored, np.float64) if is_csr(rows) else np.asarray(stored, dtype=np.float64)
        for partition, total in zip(partitions, sums, strict=True):
            total += partition.distance_sums(piece, lloyd.assign(stored, partition.centers)[0], weights[a:b])
    return np.concatenate([*sums, [np.count_nonzero(weights)]])
