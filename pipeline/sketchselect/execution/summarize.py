"""One pass that summarises a source."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sketchselect import prepare as steps
from sketchselect import readers
from sketchselect.errors import BadParameter
from sketchselect.execution.checkpoints.fingerprint import digest
from sketchselect.execution.checkpoints.index import Checkpoint, as_checkpoint
from sketchselect.execution.client import as_engine
from sketchselect.execution.engine import Engine
from sketchselect.execution.graph.tree import make_plan
from sketchselect.execution.memory.projection import Projection, projection
from sketchselect.execution.panels import TILED_PARTITION_NBYTES, summarize_in_panels, tiling
from sketchselect.execution.progress import Progress, make_progress
from sketchselect.execution.run import Reduced, partitions_from, reduce_blocks, source_partitions
from sketchselect.execution.source import Block, Source
from sketchselect.readers.byte_sizes import parse_bytes
from sketchselect.summaries import Bundle, Summary


@dataclass(frozen=True)
class SummariseBlock:
    """Leaf of a summarising pass: a block's summary."""

    description: Summary[Any]

    def __call__(self, block: Block) -> Summary[Any]:
        """Return the summary of one block."""
        return self.description.from_block(block.values, block.target, start=block.position, sample_weight=block.weight)


def merge_summaries(left: Summary[Any], right: Summary[Any]) -> Summary[Any]:
    """Return the summary of the rows of both."""
    return left.merge(right)


def summary_key(description: Summary[Any]) -> str:
    """Return a text that tells a description from all others: kinds, format versions and parameters."""
    return digest(_described(description))


def _described(value: Any) -> Any:
    if isinstance(value, Summary):
        return {
            "kind": value.kind,
            "format": value.format_version,
            "parameters": {k: _described(v) for k, v in value.parameters().items()},
        }
    if isinstance(value, Mapping):
        return [[k, _described(v)] for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return [_described(v) for v in value]
    return value


def summarize_source(
    source: Source,
    description: Summary[Any],
    *,
    engine: Engine,
    first_row: int = 0,
    partition_bytes: int | str | None = None,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
    stage: str = "summarize",
    retries: int = 2,
    stall_timeout: float = 300.0,
) -> Reduced[Summary[Any]]:
    """Return the summary of a source, labelled with its prepare steps and feature names, and the pass's account.

    Rows before `first_row` are not read. See `reduce_blocks` for the other parameters and errors.
    """
    if description.has_data:
        raise BadParameter(
            "give the description of a summary (for example FrequentDirections(size=64)), not one of data"
        )
    source = replace(source, takes_missing=description.accepts_missing, takes_sparse=description.accepts_sparse)
    n_targets = _n_targets(source)
    plan = tiling(description, source.n_columns, n_targets)
    if plan is not None and partition_bytes is None:
        partition_bytes = TILED_PARTITION_NBYTES
    partitions = partitions_from(source_partitions(source, partition_bytes), first_row) if first_row else None

    def run(description: Summary[Any], part: str = "", held: int = 0) -> Reduced[Any]:
        return reduce_blocks(
            source,
            SummariseBlock(description),
            merge_summaries,
            engine=engine,
            partition_bytes=partition_bytes,
            partitions=partitions,
            stage=f"{stage}, {part}" if part else stage,
            state_nbytes=description.projected_nbytes(source.n_columns, n_targets),
            working_nbytes=description.working_nbytes(source.n_columns, n_targets),
            held_nbytes=held,
            checkpoint=checkpoint,
            leaf_key=summary_key(description),
            progress=progress,
            retries=retries,
            stall_timeout=stall_timeout,
        )

    reduced = run(description) if plan is None else summarize_in_panels(source, plan, n_targets, run)
    labelled = reduced.value.with_context(prepare=source.prepare_labels, feature_names=source.feature_names)
    return Reduced(labelled, reduced.stats)


def summary_projection(
    source: Source, description: Summary[Any], engine: Engine, partition_bytes: int | str | None = None
) -> Projection:
    """Return what a process will need at most for a pass that makes this summary, one that is not made in panels."""
    source = replace(source, takes_missing=description.accepts_missing, takes_sparse=description.accepts_sparse)
    wanted = readers.DEFAULT_PARTITION_BYTES if partition_bytes is None else parse_bytes(partition_bytes)
    partitions, n_targets = source_partitions(source, wanted), _n_targets(source)
    state = description.projected_nbytes(source.n_columns, n_targets)
    return projection(
        source,
        partitions,
        make_plan(len(partitions), wanted, state),
        state_nbytes=state,
        working_nbytes=description.working_nbytes(source.n_columns, n_targets),
        engine=engine,
    )


def summarize(
    source: Any,
    summary: Summary[Any] | Mapping[str, Summary[Any]],
    *,
    y: Any = None,
    prepare: Sequence[Any] | None = None,
    sample_weight: Any = None,
    partition_bytes: int | str | None = None,
    client: Any = None,
    checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
    progress: Progress | Callable[..., object] | bool | None = False,
) -> Any:
    """Read a matrix once and return its summary.

    The result is the same to the bit on every engine, for any number of workers, after retries and resumes.

    Parameters
    ----------
    source : path, URL, array or Matrix
        Whatever `open_matrix` takes, of shape (n_rows, n_features).
    summary : Summary or mapping of str to Summary
        What to compute; a mapping gives a `Bundle` computed in one pass.
    y : array or path, optional
        Targets of shape (n_rows,) or (n_rows, n_targets).
    prepare : sequence of str, mapping or Step, optional
        What is done to the rows first, in order, such as ``["l2"]``; see `fit_prepare`. A step that needs statistics
        of all rows takes a pass of its own before.
    sample_weight : array or path of shape (n_rows,), optional
        Row weights.
    partition_bytes : int or text, optional
        Size of a partition, counted as rows x columns x 8 bytes, or as stored entries x 16 where a sparse source
        stays sparse; 32 MiB by default.
    client : Client, str, Engine or None
        None: threads of this process; or "serial", "threads", the address of a scheduler, "env", a Dask client or an
        engine.
    checkpoint : path, URL or Checkpoint, optional
        Where finished parts are kept; running again resumes.
    progress : bool, Progress or callable
        Whether, or to what, progress is reported.

    Returns
    -------
    Summary
        The merged summary; a `Bundle` for a mapping.

    Raises
    ------
    BadParameter, SourceError, WillNotFit, NotFinite, PartitionFailed
        See `sketchselect.errors`; what happens to one partition is reported with its index and rows.

    Examples
    --------
    >>> import numpy as np, sketchselect as sks
    >>> s = sks.summarize(np.eye(6), sks.Moments())
    >>> s.n_rows, s.n_features
    (6, 6)
    """
    # Fitting is itself made of summaries.
    from sketchselect.execution.fitting import fitted_source

    description = summary if isinstance(summary, Summary) or not isinstance(summary, Mapping) else Bundle(summary)
    if not isinstance(description, Summary):
        raise BadParameter(
            f"summary must be a summary or a mapping of names to summaries, got {type(summary).__name__}"
        )
    checked = steps.resolve(prepare)
    kept = as_checkpoint(checkpoint)
    matrix = readers.open_matrix(source)
    n_rows = matrix.shape[0]
    target = None if y is None else readers.open_vector(y, n_rows, matrix_address=matrix.address, name="target")
    weight = None
    if sample_weight is not None:
        weight = readers.open_vector(sample_weight, n_rows, matrix_address=matrix.address, name="sample_weight")
    options: dict[str, Any] = {
        "partition_bytes": partition_bytes,
        "checkpoint": kept,
        "progress": make_progress(progress),
    }
    with as_engine(client) as engine:
        rows = fitted_source(Source(matrix, target, weight, checked), engine=engine, **options)
        return summarize_source(rows, description, engine=engine, **options).value


def _n_targets(source: Source) -> int:
    if source.target is None:
        return 0
    sample = source.target.read(0, min(1, source.n_rows))
    return 1 if sample.ndim == 1 else int(sample.shape[1])
