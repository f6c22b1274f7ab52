"""Measurement of labels for a certificate: the exact objective of all rows, and the test of an objective of 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sketchselect.cluster.certificates.block import block_partition_bytes
from sketchselect.errors import BadBlock, BadParameter
from sketchselect.execution import Block, PassStats, Source, reduce_blocks, summarize_source
from sketchselect.execution.graph.passes import Reduction
from sketchselect.execution.options import PassOptions
from sketchselect.linalg.arrays import Array, Floats
from sketchselect.readers import Vector
from sketchselect.summaries import BlockBound, Bundle, CentroidSums, Summary


@dataclass(frozen=True)
class Measured:
    """One pass over labelled rows."""

    objective: float  # Exact (weighted) objective of the labels
    bounds: Mapping[str, Summary[Any]]  # What was summarised beside it
    same_rows: bool | None  # Where the objective is 0: whether the rows of each cluster are the same. None elsewhere.
    stats: PassStats
    scatter: float | None = None  # Objective of one cluster of all rows


def measure(
    source: Source, n_clusters: int, bounds: Mapping[str, Summary[Any]], options: PassOptions, *, stage: str
) -> Measured:
    """Return the objective of the labels that are the target of `source`, and summaries of the same rows; one pass.

    `source`: With labels, and weights where rows have them.
    `bounds`: Descriptions of what else is summarised.
    `options`: Of the pass; a `BlockBound` sets the size of partitions.
    Raises `BadParameter` if a row that counts has a negative label; `BadBlock` if a label is not below `n_clusters`.
    """
    assert source.target is not None
    # Rows that were left out get a cluster of their own, beyond the others: whatever they weigh, they are seen.
    marked = replace(source, target=_Marked(source.target, n_clusters))
    everything = Bundle({"objective": CentroidSums(n_clusters + 1), **bounds})
    if any(isinstance(bound, BlockBound) for bound in bounds.values()):
        options = options.but(partition_bytes=block_partition_bytes(everything, source))
    reduced = summarize_source(marked, everything, options, stage=stage)
    everything = cast(Bundle, reduced.value)
    sums = cast(CentroidSums, everything["objective"])
    _require_none(float(sums.cluster_weights[-1]), everything.n_rows, source.weight is not None)
    if source.weight is not None and sums.weight == 0:
        raise BadParameter("every sample_weight is zero: there is nothing to certify")
    objective, same = float(sums.within[:-1].sum()), None
    if objective == 0:
        same = rows_are_same(source, n_clusters, options)
    summaries = {name: everything[name] for name in bounds}
    return Measured(objective, summaries, same, reduced.stats, objective + _between(sums))


def _between(sums: CentroidSums) -> float:
    """Return the sum of squared distances of the clusters' means from the mean of all rows, times their weights."""
    weights, means = sums.cluster_weights, sums.cluster_means
    used = weights > 0
    mean = np.average(means[used], axis=0, weights=weights[used])
    return float(weights[used] @ ((means[used] - mean) ** 2).sum(axis=1))


def require_all_rows(sums: CentroidSums, n_rows: int) -> None:
    """Raise `BadParameter` unless every one of the rows, all of weight 1, has a cluster."""
    _require_none(n_rows - sums.weight, n_rows, False)


def _require_none(left_out: float, n_rows: int, weighted: bool) -> None:
    """Raise `BadParameter` if rows are left out: a bound of more rows than the objective would prove too much."""
    if left_out:
        what = f"rows of weight {left_out:g} have" if weighted else f"{left_out:.0f} of {n_rows} rows have"
        raise BadParameter(
            f"labels: {what} a negative label, and only a clustering of all rows can be certified; give them a "
            "cluster, or leave the rows out of the source too"
        )


def rows_are_same(source: Source, n_clusters: int, options: PassOptions) -> bool:
    """Return whether all rows (of positive weight) in each cluster are the same; one pass.

    An objective of 0 does not say so: squares of differences below 1e-162 vanish.

    `source`: Its target is the rows' labels; rows with a negative one are left out.
    `options`: Of the pass, which saves nothing.
    """
    state = n_clusters * (8 * source.n_columns + 1)
    reduction = Reduction(
        _Firsts(n_clusters),
        _joined,
        "comparing the rows of each cluster",
        state_nbytes=state,
        working_nbytes=2 * state,
    )
    return reduce_blocks(source, reduction, options).value.same


@dataclass(frozen=True)
class _First:
    """One row of each cluster that has any, and whether all others were the same."""

    there: NDArray[np.bool_]
    row: Floats
    same: bool


class _Firsts:
    """Leaf of `rows_are_same`."""

    def __init__(self, n_clusters: int) -> None:
        self.n_clusters = n_clusters

    def __call__(self, block: Block) -> _First:
        labels = np.asarray(block.target).reshape(-1)
        counts = labels >= 0 if block.weight is None else (labels >= 0) & (np.asarray(block.weight) > 0)
        mine = labels[counts].astype(np.int64)
        rows = np.asarray(block.values, dtype=np.float64)[counts]
        clusters, at = np.unique(mine, return_index=True)
        first = np.zeros((self.n_clusters, rows.shape[1]))
        first[clusters] = rows[at]
        there = np.zeros(self.n_clusters, dtype=bool)
        there[clusters] = True
        return _First(there, first, bool((rows == first[mine]).all()))


def _joined(left: _First, right: _First) -> _First:
    both = left.there & right.there
    same = left.same and right.same and bool((left.row[both] == right.row[both]).all())
    return _First(left.there | right.there, np.where(left.there[:, None], left.row, right.row), same)


class _Marked(Vector):
    """Labels of which every negative one is made the cluster after the last."""

    def __init__(self, labels: Vector, n_clusters: int) -> None:
        self.labels, self.n_clusters = labels, n_clusters
        self.shape, self.dtype, self.address = labels.shape, labels.dtype, labels.address
        self.in_memory = labels.in_memory

    def read(self, start: int, stop: int) -> Array:
        labels = self.labels.read(start, stop)
        if labels.dtype.kind not in "fiub":
            return labels
        if labels.size and labels.max() >= self.n_clusters:
            row = int(np.argmax(labels.reshape(-1) >= self.n_clusters))
            raise BadBlock(
                f"{self.address}: row {start + row} has the label {float(labels.reshape(-1)[row]):g}, but labels of "
                f"{self.n_clusters} clusters are below {self.n_clusters}; count clusters from 0, or raise their number"
            )
        out: Array = np.where(labels < 0, np.float64(self.n_clusters), labels)
        return out

    def identity(self) -> str | None:
        inner = self.labels.identity()
        return None if inner is None else f"{inner}/negative {self.n_clusters}"
