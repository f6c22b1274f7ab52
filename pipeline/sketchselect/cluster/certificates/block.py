"""The block certificate: a pass over the rows that bounds the optimum far more closely than the spectrum does.

Measurement of labels for a certificate: the exact objective of all rows, and the test of an objective of 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sketchselect import prepare as steps
from sketchselect.cluster.certificates.certificate import Certificate, made_certificate, with_statistics
from sketchselect.cluster.certificates.spectral import underflow
from sketchselect.errors import BadBlock, BadParameter
from sketchselect.execution import (
    Block,
    Result,
    Source,
    Statistics,
    fitted_source,
    make_progress,
    open_engine,
    reduce_blocks,
    summarize_source,
)
from sketchselect.execution.api import open_source
from sketchselect.execution.checkpoints import as_checkpoint
from sketchselect.execution.engine import PassOptions
from sketchselect.execution.tasks import Reduction
from sketchselect.linalg.arrays import Array, Floats
from sketchselect.linalg.validation import require_number, require_seed
from sketchselect.readers import DEFAULT_PARTITION_BYTES, Vector
from sketchselect.readers.partitions import ENTRY_NBYTES, accepted_size
from sketchselect.summaries import BlockBound, Bundle, CentroidSums, Summary

SAMPLED_SHARE = 0.25
"""Share of the blocks that are solved where a probability is enough."""

BLOCKS_PER_PARTITION = 8
"""Blocks that a partition should have, so that the rows of a block come from many places."""

MOST_BLOCKS = 32
"""Blocks that a partition has at most: each takes about a second, and a pass that is silent for minutes looks dead."""


@dataclass(frozen=True)
class BlockOptions:
    """Which blocks of rows are solved; `certify`, `certify_labels`, the command and the job key all take these.

    Defaults stand here alone, and what the options mean in `certify`.

    Examples
    --------
    >>> BlockOptions(confidence=0.99).chosen(), BlockOptions(confidence=0.99).description(3).fraction
    ({'confidence': 0.99}, 0.25)
    """

    block_rows: int = 400
    confidence: float | None = None
    fraction: float | None = None
    random_state: int = 0

    def __post_init__(self) -> None:
        require_confidence(self.confidence)
        require_seed(self.random_state, "random_state")

    def chosen(self) -> dict[str, Any]:
        """Return what is not at its default, as keywords."""
        return {one.name: value for one in fields(self) if (value := getattr(self, one.name)) != one.default}

    def dealing_only(self) -> bool:
        """Return whether nothing but the seed was chosen."""
        return not set(self.chosen()) - {"random_state"}

    def require_unused(self, why: str, *allowed: str) -> None:
        """Raise `BadParameter` if anything was chosen, but for what is allowed: it would be ignored."""
        require_unused(self.chosen(), why, *allowed)

    def description(self, n_clusters: int) -> BlockBound:
        """Return the description of the summary behind a block certificate."""
        options = asdict(self)
        confidence, options["seed"] = options.pop("confidence"), options.pop("random_state")
        if self.fraction is None:
            options["fraction"] = 1.0 if confidence is None else SAMPLED_SHARE
        return BlockBound(n_clusters, **options)


def require_unused(chosen: Mapping[str, Any], why: str, *allowed: str) -> None:
    """Raise `BadParameter` naming the options that were chosen, but for what is allowed."""
    if names := [name for name in chosen if name not in allowed]:
        raise BadParameter(f"certify: {', '.join(names)} is {why}; leave it out")


@contextmanager
def opened_rows(
    source: Any, labels: Any, sample_weight: Any, prepare: Any, client: Any, checkpoint: Any, progress: Any
) -> Iterator[tuple[Source, PassOptions]]:
    """Open rows, and labels and weights beside them, for the passes of a certificate.

    `labels`, `sample_weight`: One per row.
    `prepare`, `client`, `checkpoint`, `progress`: As in `sketchselect.summarize`.

    Yields
    ------
    The rows, with fitted steps, and the options of passes over them.
    """
    rows = open_source(source, labels, sample_weight, steps.resolve(prepare), target_name="labels")
    folder, reporting = as_checkpoint(checkpoint), make_progress(progress)
    with open_engine(client, rows.matrix, rows.target, rows.weight) as engine:
        options = PassOptions(engine, checkpoint=folder, progress=reporting)
        yield fitted_source(rows, options), options


def block_pass(
    rows: Source, description: Summary[Any], options: PassOptions, stage: str = "block certificate"
) -> Result[Summary[Any]]:
    """Make the pass over rows that a `BlockBound`, or a Bundle with one, needs: partitions hold several blocks."""
    size = block_partition_bytes(description, rows)
    return summarize_source(rows, description, options.but(partition_bytes=size), stage=stage)


def block_partition_bytes(description: Summary[Any], source: Source) -> int:
    """Return the size of partitions: `BLOCKS_PER_PARTITION` blocks, or the default size, but at most `MOST_BLOCKS`.

    Where chunks are much taller it is more.
    """
    bounds = description.values() if isinstance(description, Bundle) else [description]
    block = max(getattr(member, "block_rows", 0) for member in bounds)
    row = 8.0 * source.n_columns
    entries = source.matrix.entry_offsets
    is_sparse = description.accepts_sparse and entries is not None and replace(source, takes_sparse=True).is_sparse
    if is_sparse and entries is not None:
        row = ENTRY_NBYTES * float(entries[-1]) / max(source.n_rows, 1)
    size = DEFAULT_PARTITION_BYTES
    if block:
        size = min(max(size, int(BLOCKS_PER_PARTITION * block * row)), int(MOST_BLOCKS * block * row))
    return size if is_sparse else accepted_size(source.matrix, size)


def blocks_certificate(
    bound: BlockBound, objective: float, confidence: float | None, began: float, stats: Statistics | None = None
) -> Certificate:
    """Return the certificate of a finished `BlockBound`.

    Parameters
    ----------
    bound : BlockBound
        Of the rows, in the columns, that the objective was measured on.
    objective : float
        Of the clustering.
    confidence : float in (0, 1) or None
        As in `certify`; of no effect where every block was solved.
    began : float
        When `time.perf_counter` was asked.
    stats : Statistics, optional
        Account of the pass, for what was read.
    """
    require_confidence(confidence)
    certain, note = bound.lower_bound(), ""
    lower = certain if confidence is None else bound.lower_bound(confidence)
    # A bound above an objective that was reached has failed, as it may; what holds for certain is left.
    sampled = confidence is not None and certain < lower <= objective
    every = bound.fraction == 1.0 or 0 < bound.record.n_blocks == bound.record.n_solved
    if confidence is not None and not sampled and not every:
        note = _why_certain(bound, confidence, lower > objective)
    certificate = made_certificate(
        lower if sampled else certain, objective, bound.n_clusters, "blocks", block_details(bound), began
    )
    if stats is not None:
        certificate = with_statistics(certificate, stats)
    sure = float(confidence) if sampled and confidence is not None else 1.0
    return replace(certificate, confidence=sure, note=note)


def _why_certain(bound: BlockBound, confidence: float, refuted: bool) -> str:
    """Return in words why a bound of the probability that was asked for is not the one given."""
    n_solved, n_blocks = bound.record.n_solved, bound.record.n_blocks
    solved = f"{n_solved} of {n_blocks} blocks {'was' if n_solved == 1 else 'were'} solved"
    why = f"only {solved}, too few for more than that"
    if n_blocks == 0:
        why = f"there is no block of {bound.block_rows} rows of which more than {bound.n_clusters} are different"
    elif n_solved > 0 and not math.isfinite(bound.record.log_gained):
        why = f"{solved}, of which at least one gained nothing over the spectrum"
    elif refuted:
        why = f"{solved}, and what they promise of all is above an objective that was reached"
    return (
        f"This bound holds for certain, and is not one of probability {confidence}: {why}; a larger fraction or "
        "smaller blocks may prove more."
    )


def require_confidence(confidence: float | None) -> None:
    """Raise `BadParameter` unless this is None or a probability."""
    if confidence is not None:
        require_number("confidence", confidence, above=0, below=1)


def block_details(summary: BlockBound) -> dict[str, float]:
    """Return what a block certificate is made of, as plain numbers."""
    record = summary.record
    return {
        "n_rows": record.n_rows,
        "n_features": record.n_features,
        "n_blocks": record.n_blocks,
        "n_solved": record.n_solved,
        "block_rows": summary.block_rows,
        "spectral_blocks": record.spectral,
        # Every block's bound has its own rounding subtracted besides.
        "rounding": summary.rounding,
        "underflow": underflow(record.n_rows, record.n_features, record.weight),
    }


@dataclass(frozen=True)
class Measured:
    """One pass over labelled rows."""

    objective: float  # Exact (weighted) objective of the labels
    bounds: Mapping[str, Summary[Any]]  # What was summarised beside it
    same_rows: bool | None  # Where the objective is 0: whether the rows of each cluster are the same. None elsewhere.
    stats: Statistics
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
