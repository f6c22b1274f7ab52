"""Labels to be certified: as cluster numbers, and their objective measured in one pass over the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sketchselect.cluster.certificates.block import block_partition_bytes
from sketchselect.errors import BadBlock, BadParameter
from sketchselect.execution import Block, Source, Statistics, reduce_blocks, summarize_source
from sketchselect.execution.engine import PassOptions
from sketchselect.execution.tasks import Reduction
from sketchselect.linalg.validation import Array, Floats, as_weights, first_not_whole
from sketchselect.readers import Vector
from sketchselect.readers.base import are_missing, missing_in_words
from sketchselect.summaries import BlockBound, Bundle, CentroidSums, Summary

_ENTRIES = 1 << 20  # Labels read at a time
_ALL_ROWS = (
    "only a clustering of all rows can be certified; give them a cluster, or leave the rows out of the source too"
)


def as_cluster_numbers(labels: Vector, n_clusters: int) -> Vector:
    """Return labels as numbers from 0: text by its sorted values, and numbers from 1 to `n_clusters` less one.

    Reads the labels once. Invalid labels are returned unchanged: the pass then names the row and the fault.
    Raises `BadParameter` if text labels have more than `n_clusters` different values, or naming the first row whose
    label is missing.
    """
    if len(labels.shape) != 1 or labels.dtype.kind not in "fiuU":
        return labels
    values: set[Any] = set()
    is_text = labels.dtype.kind == "U"
    for start in range(0, labels.n_rows, _ENTRIES):
        part = labels.read(start, min(start + _ENTRIES, labels.n_rows))
        if (missing := is_text & are_missing(part)).any():
            n_missing = int(missing.sum()) + _n_missing(labels, start + _ENTRIES)
            words = missing_in_words(n_missing, start + int(missing.argmax()), _ALL_ROWS)
            raise BadParameter(f"labels {labels.address}: {words}")
        if not is_text and part.size and not (part.min() >= 1 and part.max() <= n_clusters):
            return labels
        # Of numbers it matters alone whether the last is there.
        values.update(np.unique(part).tolist() if is_text else part[part == n_clusters][:1].tolist())
        if len(values) > n_clusters:
            raise BadParameter(
                f"labels {labels.address}: more than {n_clusters} different values, but n_clusters is {n_clusters}; "
                "set it to their number"
            )
    if is_text:
        return _Numbered(labels, np.array(sorted(values)))
    # Labels from 1 on that leave the last cluster empty cannot be told from labels from 0 on that leave out the first.
    return _Numbered(labels, np.arange(1.0, n_clusters + 1.0)) if n_clusters in values else labels


def _n_missing(labels: Vector, start: int) -> int:
    """Return how many labels are missing from row `start` on."""
    starts = range(start, labels.n_rows, _ENTRIES)
    return sum(int(are_missing(labels.read(a, min(a + _ENTRIES, labels.n_rows))).sum()) for a in starts)


@dataclass(frozen=True)
class Measured:
    """One pass over labelled rows."""

    objective: float  # Exact (weighted) objective of the labels
    bounds: Mapping[str, Summary[Any]]  # Other summaries of the same rows
    same_rows: bool | None  # Where the objective is 0: whether the rows of each cluster are the same. None elsewhere.
    stats: Statistics
    scatter: float | None = None  # Objective of one cluster of all rows
    note: str = ""  # On clusters without rows


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
    # Rows that were left out form a cluster of their own after the others, so that none goes unnoticed.
    with_left_out = replace(source, target=_WithLeftOut(source.target, n_clusters))
    everything = Bundle({"objective": CentroidSums(n_clusters + 1), **bounds})
    if any(isinstance(bound, BlockBound) for bound in bounds.values()):
        options = options.but(partition_bytes=block_partition_bytes(everything, source))
    result = summarize_source(with_left_out, everything, options, stage=stage)
    everything = cast(Bundle, result.value)
    sums = cast(CentroidSums, everything["objective"])
    _require_none(float(sums.cluster_weights[-1]), everything.n_rows, source.weight is not None)
    if source.weight is not None and sums.weight == 0:
        raise BadParameter("every sample_weight is zero: there is nothing to certify")
    objective, same = float(sums.within[:-1].sum()), None
    if objective == 0:
        same = rows_are_same(source, n_clusters, options)
    summaries, note = {name: everything[name] for name in bounds}, ""
    if (n_used := int((sums.cluster_weights[:-1] > 0).sum())) < n_clusters:
        note = (
            f"The labels use {n_used} of the {n_clusters} clusters that they are compared with; "
            f"n_clusters = {n_used} compares them with clusterings of as many."
        )
    return Measured(objective, summaries, same, result.stats, objective + _between(sums), note)


def _between(sums: CentroidSums) -> float:
    """Return the sum of squared distances of the clusters' means from the mean of all rows, times their weights."""
    weights, means = sums.cluster_weights, sums.cluster_means
    weighty = weights > 0
    mean = np.average(means[weighty], axis=0, weights=weights[weighty])
    return float(weights[weighty] @ ((means[weighty] - mean) ** 2).sum(axis=1))


def require_all_rows(sums: CentroidSums, n_rows: int) -> None:
    """Raise `BadParameter` unless every one of the rows, all of weight 1, has a cluster."""
    _require_none(n_rows - sums.weight, n_rows, False)


def _require_none(left_out: float, n_rows: int, weighted: bool) -> None:
    """Raise `BadParameter` if rows are left out: a bound of more rows than the objective would prove too much."""
    if left_out:
        rows = f"rows of weight {left_out:g} have" if weighted else f"{left_out:.0f} of {n_rows} rows have"
        raise BadParameter(f"labels: {rows} a negative label, and {_ALL_ROWS}")


def rows_are_same(source: Source, n_clusters: int, options: PassOptions) -> bool:
    """Return whether all rows (of positive weight) in each cluster are the same; one pass.

    An objective of 0 does not prove it: squares of differences below 1e-162 vanish.

    `source`: Its target is the rows' labels; rows with a negative one are left out.
    `options`: Of the pass, which saves nothing.
    """
    state = n_clusters * (8 * source.n_columns + 1)
    reduction = Reduction(
        partial(_first_rows, n_clusters),
        _merge_first_rows,
        "comparing the rows of each cluster",
        state_nbytes=state,
        working_nbytes=2 * state,
    )
    return reduce_blocks(source, reduction, options).value.same


@dataclass(frozen=True)
class _FirstRows:
    """The first row of each cluster, and whether all other rows of the cluster equal it."""

    filled: NDArray[np.bool_]
    rows: Floats
    same: bool


def _first_rows(n_clusters: int, block: Block) -> _FirstRows:
    labels = np.asarray(block.target).reshape(-1)
    weights = as_weights(block.weight, len(labels))
    counts = labels >= 0 if weights is None else (labels >= 0) & (weights > 0)
    labels = labels[counts].astype(np.int64)
    rows = np.asarray(block.values, dtype=np.float64)[counts]
    first, filled = np.zeros((n_clusters, rows.shape[1])), np.zeros(n_clusters, dtype=bool)
    clusters, places = np.unique(labels, return_index=True)
    first[clusters], filled[clusters] = rows[places], True
    return _FirstRows(filled, first, bool((rows == first[labels]).all()))


def _merge_first_rows(left: _FirstRows, right: _FirstRows) -> _FirstRows:
    both = left.filled & right.filled
    same = left.same and right.same and bool((left.rows[both] == right.rows[both]).all())
    return _FirstRows(left.filled | right.filled, np.where(left.filled[:, None], left.rows, right.rows), same)


class _LabelView(Vector):
    """A view of labels, changed on reading."""

    def __init__(self, labels: Vector, change: str) -> None:
        self.labels, self._change = labels, change
        self.shape, self.dtype, self.address = labels.shape, labels.dtype, labels.address
        self.in_memory = labels.in_memory

    def identity(self) -> str | None:
        inner = self.labels.identity()
        return None if inner is None else f"{inner}/{self._change}"


class _WithLeftOut(_LabelView):
    """Labels whose negative ones are the cluster after the last."""

    def __init__(self, labels: Vector, n_clusters: int) -> None:
        super().__init__(labels, f"negative {n_clusters}")
        self.n_clusters = n_clusters

    def read(self, start: int, stop: int) -> Array:
        labels = self.labels.read(start, stop)
        if labels.dtype.kind not in "fiub":
            return labels
        if (row := first_not_whole(labels.reshape(-1))) is not None:
            raise BadBlock(
                f"{self.address}: row {start + row} has the label {float(labels.reshape(-1)[row]):g}, but labels of "
                "clusters are whole numbers; give the row its cluster, or leave it out of the source too"
            )
        if labels.size and labels.max() >= self.n_clusters:
            row = int(np.argmax(labels.reshape(-1) >= self.n_clusters))
            raise BadBlock(
                f"{self.address}: row {start + row} has the label {float(labels.reshape(-1)[row]):g}, but labels of "
                f"{self.n_clusters} clusters are below {self.n_clusters}; count clusters from 0, or raise their number"
            )
        return np.where(labels < 0, np.float64(self.n_clusters), labels)


class _Numbered(_LabelView):
    """Labels, each replaced by its place among the sorted values."""

    def __init__(self, labels: Vector, values: Array) -> None:
        super().__init__(labels, f"numbered {values.tolist()}")
        self.values, self.dtype = values, np.dtype(np.float64)

    def read(self, start: int, stop: int) -> Array:
        labels = self.labels.read(start, stop)
        places = np.minimum(np.searchsorted(self.values, labels), len(self.values) - 1)
        # A number between two values is no label: the pass names it and its row, so it stays unchanged.
        numbers: Array = places.astype(np.float64)
        if labels.dtype.kind != "U":
            numbers = np.where(self.values[places] == labels, numbers, labels)
        return numbers
