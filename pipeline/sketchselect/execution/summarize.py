"""One pass that summarises a source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sketchselect.errors import BadParameter
from sketchselect.execution.checkpoints.fingerprint import digest
from sketchselect.execution.memory.projection import Projection
from sketchselect.execution.options import PassOptions
from sketchselect.execution.panels import PANEL_PARTITION_NBYTES, make_panels, summarize_in_panels
from sketchselect.execution.run import Reduced, partitions_from, planned_pass, reduce_blocks, source_partitions
from sketchselect.execution.source import Block, Source
from sketchselect.summaries import Summary


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


def source_for(source: Source, description: Summary[Any]) -> Source:
    """Return the source as the summary reads it, after a look at whether it is a description.

    Raises
    ------
    BadParameter
        If the summary has data already.
    """
    if description.has_data:
        raise BadParameter(
            "give the description of a summary (for example FrequentDirections(size=64)), not one of data"
        )
    return replace(source, takes_missing=description.accepts_missing, takes_sparse=description.accepts_sparse)


def summarize_source(
    source: Source,
    description: Summary[Any],
    options: PassOptions,
    *,
    first_row: int = 0,
    stage: str = "summarize",
) -> Reduced[Summary[Any]]:
    """Return the summary of a source, labelled with its prepare steps and feature names, and the pass's account.

    Rows before `first_row` are not read. See `reduce_blocks` for errors.
    """
    source = source_for(source, description)
    panels = make_panels(description, source.n_columns, source.n_targets)
    if panels is not None and options.partition_bytes is None:
        options = options.but(partition_bytes=PANEL_PARTITION_NBYTES)
    partitions = partitions_from(source_partitions(source, options.partition_bytes), first_row) if first_row else None

    def run(description: Summary[Any], part: str = "", caller_nbytes: int = 0) -> Reduced[Any]:
        return reduce_blocks(
            source,
            SummariseBlock(description),
            merge_summaries,
            options,
            partitions=partitions,
            stage=f"{stage}, {part}" if part else stage,
            state_nbytes=description.projected_nbytes(source.n_columns, source.n_targets),
            working_nbytes=description.working_nbytes(source.n_columns, source.n_targets),
            caller_nbytes=caller_nbytes,
            leaf_key=summary_key(description),
        )

    reduced = run(description) if panels is None else summarize_in_panels(source, panels, run)
    if options.account is not None:
        options.account(reduced.stats)
    labelled = reduced.value.with_context(prepare=source.prepare_labels, feature_names=source.feature_names)
    return Reduced(labelled, reduced.stats)


def summary_projection(
    source: Source, description: Summary[Any], options: PassOptions
) -> tuple[Projection, int, float]:
    """Return what a process will need at most for this summary, the number of passes, and the read amplification."""
    source = source_for(source, description)
    panels = make_panels(description, source.n_columns, source.n_targets)
    passes, caller_nbytes = [description], 0
    if panels is not None:
        passes, caller_nbytes = panels.descriptions(), 8 * panels.edges[-1] ** 2 * len(panels.wide)
        if options.partition_bytes is None:
            options = options.but(partition_bytes=PANEL_PARTITION_NBYTES)
    largest = max(passes, key=lambda one: one.projected_nbytes(source.n_columns, source.n_targets))
    work = planned_pass(
        source,
        SummariseBlock(largest),
        merge_summaries,
        options,
        state_nbytes=largest.projected_nbytes(source.n_columns, source.n_targets),
        working_nbytes=largest.working_nbytes(source.n_columns, source.n_targets),
        caller_nbytes=caller_nbytes,
    )
    return work.projected, len(passes), work.partitions.read_amplification
