"""The block certificate: a pass over the rows that bounds the optimum far more closely than the spectrum does."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from sketchselect import prepare as steps
from sketchselect.cluster.certificates.certificate import Certificate, made_certificate, with_account
from sketchselect.cluster.certificates.underflow import underflow
from sketchselect.errors import BadParameter
from sketchselect.execution import (
    PassStats,
    Reduced,
    Source,
    as_engine,
    fitted_source,
    make_progress,
    summarize_source,
)
from sketchselect.execution.api import open_source
from sketchselect.execution.checkpoints.checkpoint import as_checkpoint
from sketchselect.execution.options import PassOptions
from sketchselect.linalg.validation import require_number, require_seed
from sketchselect.readers import DEFAULT_PARTITION_BYTES
from sketchselect.readers.partitions import ENTRY_NBYTES, accepted_size
from sketchselect.summaries import BlockBound, Bundle, Summary

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
    with as_engine(client, rows.matrix, rows.target, rows.weight) as engine:
        options = PassOptions(engine, checkpoint=folder, progress=reporting)
        yield fitted_source(rows, options), options


def block_pass(
    rows: Source, description: Summary[Any], options: PassOptions, stage: str = "block certificate"
) -> Reduced[Summary[Any]]:
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
    bound: BlockBound, objective: float, confidence: float | None, began: float, stats: PassStats | None = None
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
    stats : PassStats, optional
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
        certificate = with_account(certificate, stats)
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
