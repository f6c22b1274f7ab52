"""The block certificate: a pass over the rows that bounds the optimum far more closely than the spectrum does."""

from __future__ import annotations

from typing import Any

from sketchselect import prepare as steps
from sketchselect.errors import BadParameter
from sketchselect.execution import Source, as_engine, make_progress, summarize_source
from sketchselect.execution.checkpoint import as_checkpoint
from sketchselect.readers import DEFAULT_PARTITION_BYTES, open_matrix
from sketchselect.summaries import BlockBound, Summary
from sketchselect.summaries.base import require_positive

SAMPLED_SHARE = 0.25
"""Share of the blocks that are solved where a probability is enough."""

BLOCKS_PER_PARTITION = 8
"""Blocks that a partition should have, so that the rows of a block come from many places."""


def block_bound(
    source: Any,
    n_clusters: int,
    *,
    block_rows: int = 400,
    confidence: float | None = None,
    fraction: float | None = None,
    prepare: Any = None,
    seed: int = 0,
    client: Any = None,
    checkpoint: Any = None,
    progress: Any = False,
) -> BlockBound:
    """Make the pass that `certify` with ``method="blocks"`` needs; the summary can be saved and merged.

    See `certify` for the parameters.
    """
    description = block_description(n_clusters, block_rows, confidence, fraction, seed)
    matrix = open_matrix(source)
    with as_engine(client) as engine:
        found: Summary[Any] = summarize_source(
            Source(matrix, None, None, steps.check_steps(prepare)),
            description,
            engine=engine,
            partition_bytes=block_partition_bytes(block_rows, matrix.shape[1]),
            checkpoint=as_checkpoint(checkpoint),
            progress=make_progress(progress),
            stage="block certificate",
        ).value
    assert isinstance(found, BlockBound)
    return found


def block_description(
    n_clusters: int,
    block_rows: int = 400,
    confidence: float | None = None,
    fraction: float | None = None,
    seed: int = 0,
) -> BlockBound:
    """Return the description of the summary behind a block certificate."""
    require_confidence(confidence)
    if fraction is None:
        fraction = 1.0 if confidence is None else SAMPLED_SHARE
    return BlockBound(n_clusters=n_clusters, block_rows=block_rows, fraction=fraction, seed=seed)


def block_partition_bytes(block_rows: int, n_columns: int) -> int:
    """Return the size of partitions of `BLOCKS_PER_PARTITION` blocks, or the default size if that is more."""
    rows = BLOCKS_PER_PARTITION * require_positive("block_rows", block_rows, 2)
    return max(DEFAULT_PARTITION_BYTES, rows * n_columns * 8)


def require_confidence(confidence: float | None) -> None:
    """Raise `BadParameter` unless this is None or a probability."""
    if confidence is not None and (isinstance(confidence, bool) or not 0 < confidence < 1):
        raise BadParameter(f"confidence must be None or between 0 and 1, got {confidence!r}")


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
        # Every block's bound has its rounding subtracted.
        "rounding": 0.0,
    }
