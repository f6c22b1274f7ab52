"""The block certificate: a pass over the rows that bounds the optimum far more closely than the spectrum does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sketchselect import prepare as steps
from sketchselect.errors import BadParameter
from sketchselect.execution import Reduced, Source, as_engine, fitted_source, make_progress, summarize_source
from sketchselect.execution.checkpoint import as_checkpoint
from sketchselect.readers import DEFAULT_PARTITION_BYTES, open_matrix, open_vector
from sketchselect.readers.bands import ENTRY_NBYTES
from sketchselect.summaries import BlockBound, Bundle, Summary

SAMPLED_SHARE = 0.25
"""Share of the blocks that are solved where a probability is enough."""

BLOCKS_PER_PARTITION = 8
"""Blocks that a partition should have, so that the rows of a block come from many places."""


def block_pass(
    source: Any,
    description: Summary[Any],
    *,
    labels: Any = None,
    prepare: Any = None,
    client: Any = None,
    checkpoint: Any = None,
    progress: Any = False,
) -> Reduced[Summary[Any]]:
    """Make the pass over the rows that `certify` with ``method="blocks"`` needs.

    Parameters
    ----------
    source : as in `open_matrix`
    description : BlockBound, or a Bundle with one
        From `block_description`.
    labels : array, path or URL, optional
        One per row, for members that take them.
    prepare, client, checkpoint, progress : optional
        As in `sketchselect.summarize`.
    """
    matrix = open_matrix(source)
    target = None
    if labels is not None:
        target = open_vector(labels, matrix.shape[0], matrix_address=matrix.address, name="labels")
    options: dict[str, Any] = {"checkpoint": as_checkpoint(checkpoint), "progress": make_progress(progress)}
    with as_engine(client) as engine:
        rows = fitted_source(Source(matrix, target, None, steps.resolve(prepare)), engine=engine, **options)
        size = block_partition_bytes(description, rows)
        return summarize_source(
            rows, description, engine=engine, partition_bytes=size, stage="block certificate", **options
        )


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


def block_partition_bytes(description: Summary[Any], source: Source) -> int:
    """Return the size of partitions of `BLOCKS_PER_PARTITION` blocks, or the default size if that is more."""
    bounds = description.values() if isinstance(description, Bundle) else [description]
    rows = BLOCKS_PER_PARTITION * max(getattr(member, "block_rows", 0) for member in bounds)
    row = 8.0 * source.n_columns
    entries = source.matrix.entry_offsets
    if description.accepts_sparse and entries is not None and replace(source, takes_sparse=True).is_sparse:
        row = ENTRY_NBYTES * float(entries[-1]) / max(source.n_rows, 1)
    return max(DEFAULT_PARTITION_BYTES, int(rows * row))


def require_confidence(confidence: float | None) -> None:
    """Raise `BadParameter` unless this is None or a probability."""
    if confidence is None:
        return
    is_number = isinstance(confidence, (int, float, np.number)) and not isinstance(confidence, bool)
    if not (is_number and 0 < confidence < 1):
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
        # Every block's bound has its own rounding subtracted besides.
        "rounding": summary.rounding,
    }
