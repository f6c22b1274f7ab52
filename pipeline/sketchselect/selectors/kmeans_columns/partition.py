"""Partition of the rows that supervises a column selection: labels, or k-means++ centres."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sketchselect.errors import BadParameter, Incompatible
from sketchselect.execution import Source
from sketchselect.execution.graph.passes import Reduction
from sketchselect.execution.options import PassOptions
from sketchselect.execution.run import reduce_blocks
from sketchselect.execution.source import Block
from sketchselect.linalg.arrays import Floats, as_weights, global_rows
from sketchselect.linalg.bottom_k import KeyedRows, smallest_rows
from sketchselect.linalg.hashing import derive_seed, uniforms
from sketchselect.readers import open_vector
from sketchselect.summaries import CentroidSums

SAMPLE_ROWS = 1 << 16
SAMPLE_NBYTES = 256 << 20
"""Most rows, and most bytes of them, that k-means++ runs on; of more rows a hashed sample is drawn."""

REFINEMENTS = 25
"""Most Lloyd iterations on the sample."""


def labelled(source: Source, labels: Any, n_clusters: int | None) -> tuple[Source, CentroidSums]:
    """Return the source with the labels, numbers or text, as codes beside the rows, and the description of their sums.

    Raises `BadParameter` if there are more distinct labels than `n_clusters`; `SourceError` if the number of labels is
    not that of the rows.
    """
    n_rows = source.n_rows
    vector = open_vector(labels, n_rows, matrix=source.matrix, name="partition")
    values = np.asarray(vector.read(0, n_rows))
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise BadParameter(f"a partition is one label per row, got an array of shape {values.shape}")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise BadParameter(f"the partition's label of row {int(np.argmin(np.isfinite(values)))} is not finite")
    distinct, codes = np.unique(values, return_inverse=True)
    if n_clusters is not None and distinct.size > n_clusters:
        raise BadParameter(f"the partition has {distinct.size} distinct labels, more than n_clusters = {n_clusters}")
    codes = codes.astype(np.int64)
    target = open_vector(codes, n_rows, matrix=source.matrix, name="partition")
    return replace(source, target=target), CentroidSums(int(distinct.size))


def seeded(source: Source, n_clusters: int, seed: int, options: PassOptions) -> CentroidSums:
    """Return the sums over the clusters of k-means++ centres, refined on the sampled rows; one pass.

    Every draw is hashed from the global row index, so the centres do not depend on partitions or workers.
    """
    from sketchselect.linalg.kmeans import lloyd
    from sketchselect.linalg.kmeans.distances import spread_out

    size = max(n_clusters, min(SAMPLE_ROWS, SAMPLE_NBYTES // (8 * source.n_columns)))
    nbytes = 8 * (source.n_columns + 2) * size
    leaf = _SampleBlock(derive_seed(seed, "partition"), size)
    reduction = Reduction(
        leaf,
        leaf.merge,
        "sample rows for k-means++",
        state_nbytes=nbytes,
        working_nbytes=2 * nbytes,
    )
    reduced = reduce_blocks(source, reduction, options)
    if options.account is not None:
        options.account(reduced.stats)
    sample = reduced.value
    if not sample.weights.size:
        raise BadParameter("no row has a positive weight")
    chosen = spread_out(sample.points, sample.weights, n_clusters, derive_seed(seed, "k-means++"))
    centers = sample.points[chosen]
    for _ in range(REFINEMENTS):
        _, _, sums = lloyd.assign_and_sum(sample.points, centers, sample.weights)
        moved = np.where(sums.weight[:, None] > 0, sums.mean, centers)
        if (moved == centers).all():
            break
        centers = moved
    return CentroidSums(centers=centers)


def within_columns(sums: CentroidSums, summary: Any) -> Floats:
    """Return the sum of squares within clusters of every column, from cluster means and the column's own scatter.

    Raises `Incompatible` if the two do not summarise the same rows.
    """
    if sums.n_rows != summary.n_rows or not np.isclose(sums.weight, summary.weight, rtol=1e-9):
        raise Incompatible(
            f"the partition has {sums.n_rows} rows of weight {sums.weight:g}, the sketch {summary.n_rows} of weight "
            f"{summary.weight:g}: every row needs a cluster"
        )
    steps = sums.cluster_means - summary.mean
    between = np.einsum("j,ji,ji->i", sums.cluster_weights, steps, steps)
    within: Floats = np.maximum(summary.centered_column_squared_norms - between, 0.0)
    return within


@dataclass(frozen=True)
class _SampleBlock:
    seed: int
    size: int

    def __call__(self, block: Block) -> KeyedRows:
        n_rows = block.values.shape[0]
        weights = as_weights(block.weight, n_rows)
        if weights is None:
            weights = np.ones(n_rows)
        rows = global_rows(block.position, n_rows)
        keys = np.where(weights > 0, uniforms(self.seed, rows), np.inf)
        return smallest_rows(keys, rows.astype(np.int64), block.values, weights, self.size)

    def merge(self, left: KeyedRows, right: KeyedRows) -> KeyedRows:
        return left.merge(right, self.size)
