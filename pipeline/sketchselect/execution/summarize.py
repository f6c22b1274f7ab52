"""Summaries of a source, in one pass or one for each panel of columns, and prepare steps fitted in earlier passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from sketchselect import prepare as prepare_steps
from sketchselect import readers
from sketchselect._progress import Result, Statistics
from sketchselect.errors import BadParameter
from sketchselect.execution.engine import (
    PassOptions,
    make_plan,
    reduce_blocks,
    source_identities,
    source_partitions,
)
from sketchselect.execution.plan import Plan, Projection, require_fit
from sketchselect.execution.source import Block, Source
from sketchselect.execution.tasks import Reduction
from sketchselect.linalg.hashing import fingerprint
from sketchselect.prepare import Step
from sketchselect.readers.base import Partitions, accepted_size
from sketchselect.readers.views import FirstRows, missing_allowed
from sketchselect.summaries import KINDS, StepStatistics, Summary
from sketchselect.summaries.base import Ranges
from sketchselect.summaries.moment_panels import (
    PANEL_PARTITION_NBYTES,
    Panels,
    assemble,
    is_wide_sketch,
    make_panels,
)


@dataclass(frozen=True)
class SummariseBlock:
    """Leaf of a summarising pass: a block's summary, with the rows of the source numbered from `start` on."""

    description: Summary[Any]
    start: int = 0

    def __call__(self, block: Block) -> Summary[Any]:
        """Return the summary of one block."""
        position = self.start + block.position
        return self.description.from_block(block.values, block.target, start=position, sample_weight=block.weight)


def merge_summaries(left: Summary[Any], right: Summary[Any]) -> Summary[Any]:
    """Return the summary of the rows of both."""
    return left.merge(right)


def merge_summaries_in_place(left: Summary[Any], right: Summary[Any]) -> Summary[Any]:
    """Return the summary of the rows of both; may overwrite the first."""
    return left.into_mutable().merge(right)


def summary_key(description: Summary[Any]) -> str:
    """Return the fingerprint of a description: kinds, format versions and parameters."""
    return fingerprint(_identity_of(description))


def _identity_of(value: Any) -> Any:
    if isinstance(value, Summary):
        return {
            "kind": value.kind,
            "format": value.format_version,
            "parameters": {k: _identity_of(v) for k, v in value.parameters().items()},
        }
    if isinstance(value, Mapping):
        return [[k, _identity_of(v)] for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return [_identity_of(v) for v in value]
    return value


def source_for(source: Source, description: Summary[Any]) -> Source:
    """Return the source as the summary reads it, or raise `BadParameter` if the summary has data already."""
    if description.has_data:
        raise BadParameter(
            "give the description of a summary (for example FrequentDirections(size=64)), not one of data"
        )
    return replace(source, takes_missing=description.accepts_missing, takes_sparse=description.accepts_sparse)


def summary_reduction(
    source: Source,
    description: Summary[Any],
    stage: str,
    leaf: Callable[[Block], Any] | None = None,
    merge: Callable[[Any, Any], Any] = merge_summaries,
) -> Reduction[Any]:
    """Return the reduction of a source to a summary; or with another leaf, to a state of about the summary's size."""
    shape = (source.n_columns, source.n_targets)
    return Reduction(
        leaf or SummariseBlock(description),
        merge,
        stage,
        state_nbytes=description.projected_nbytes(*shape),
        working_nbytes=description.working_nbytes(*shape),
    )


@dataclass(frozen=True)
class SummaryPasses:
    """The passes of one summary: one, or one for each panel of columns where its state is too large."""

    source: Source  # As the summary reads it
    description: Summary[Any]
    options: PassOptions
    partitions: Partitions
    panels: Panels | None
    start: int = 0  # Global index of the first row of the source

    @classmethod
    def of(
        cls, source: Source, description: Summary[Any], options: PassOptions, first_row: int = 0, start: int = 0
    ) -> Self:
        """Return the passes over the rows from `first_row` on."""
        source = source_for(source, description)
        panels, sparse = None, source.is_sparse and source.matrix.dask_rows() is None
        if sparse or description.has_panels:
            panels = make_panels(description, source.n_columns, source.n_targets, sparse=sparse)
        if panels is not None and panels.wide and options.partition_bytes is None:
            options = options.but(partition_bytes=accepted_size(source.matrix, PANEL_PARTITION_NBYTES))
        partitions = source_partitions(source, options.partition_bytes)
        if first_row:
            partitions = replace(partitions, edges=(first_row, *(e for e in partitions.edges if e > first_row)))
        return cls(source, description, options, partitions, panels, start)

    @property
    def rows(self) -> Ranges:
        """Range of the global indices of the rows that are read; dropped rows are among them."""
        return ((self.start + self.partitions.edges[0], self.start + self.partitions.edges[-1]),)

    @property
    def in_panels(self) -> bool:
        """Whether wide sketches are computed in panels: of sparse rows that the tasks of the pass read themselves.

        The tasks of a Dask array would run ahead of the shrinks, and their rows would fill the memory.
        """
        return self.source.is_sparse and self.source.matrix.dask_rows() is None

    @property
    def descriptions(self) -> list[Summary[Any]]:
        """The description of each pass."""
        return [self.description] if self.panels is None else self.panels.descriptions()

    def reduction(
        self, description: Summary[Any], stage: str = "summarize", caller_nbytes: int = 0
    ) -> Reduction[Summary[Any]]:
        """Return what one of the passes computes."""
        whole = summary_reduction(self.source, description, stage, SummariseBlock(description, self.start))
        if self.in_panels and is_wide_sketch(description, self.source.n_columns):
            # Checkpoints hold nodes of the merge tree, and there is none.
            return replace(whole, in_panels=description)
        key = summary_key(description)
        key = fingerprint(key, self.start) if self.start else key
        return replace(whole, caller_nbytes=caller_nbytes, merge_in_place=merge_summaries_in_place, key=key)

    def plan(self, description: Summary[Any], caller_nbytes: int = 0) -> Plan[Summary[Any]]:
        """Return the plan of one of the passes."""
        reduction = self.reduction(description, caller_nbytes=caller_nbytes)
        return make_plan(self.source, reduction, self.options, partitions=self.partitions)

    def assemble(self, value: Callable[..., Summary[Any]]) -> Summary[Any]:
        """Return the summary; ``value(description, part, caller_nbytes)`` gives that of each pass, in order."""
        if self.panels is None:
            return value(self.description)
        return assemble(self.panels, self.source.n_columns, self.source.n_targets, value)


def summarize_source(
    source: Source,
    description: Summary[Any],
    options: PassOptions,
    *,
    first_row: int = 0,
    stage: str = "summarize",
    start: int = 0,
) -> Result[Summary[Any]]:
    """Return the summary of a source, labelled with prepare steps, names and row indices, and statistics of the passes.

    Rows before `first_row` are not read; the first row of the source has the global index `start`. See `reduce_blocks`
    for errors.
    """
    passes = SummaryPasses.of(source, description, options, first_row, start)
    before = source_identities(passes.source)
    results: list[Statistics] = []
    if passes.panels is not None:
        # All of them before any of them reads.
        for panel in passes.descriptions:
            require_fit(passes.plan(panel).projected, options.engine.memory_limit, source.matrix.address)

    def run_pass(description: Summary[Any], part: str = "", caller_nbytes: int = 0) -> Summary[Any]:
        reduction = passes.reduction(description, f"{stage}, {part}" if part else stage, caller_nbytes)
        if reduction.in_panels is not None and options.checkpoint is not None:
            options.progress.note(f"{reduction.stage}: a sketch in panels of columns is not saved in checkpoints")
        result = reduce_blocks(passes.source, reduction, passes.options, partitions=passes.partitions, before=before)
        results.append(result.stats)
        return result.value

    summary = with_labels(passes.assemble(run_pass), passes.source, passes.rows)
    # All passes read the same rows.
    rows = {name: max(getattr(stats, name) for stats in results) for name in ("rows_read", "rows_dropped")}
    stats = replace(Statistics.total(results), **rows, n_partitions=len(passes.partitions))
    if options.on_statistics is not None:
        options.on_statistics(stats)
    return Result(summary, stats)


def with_labels(summary: Summary[Any], source: Source, rows: Ranges) -> Summary[Any]:
    """Return the summary labelled with the prepare steps, feature names and row indices of its source."""
    return summary.with_context(prepare=source.prepare_labels, feature_names=source.feature_names).with_rows(rows)


def summary_projection(
    source: Source, description: Summary[Any], options: PassOptions
) -> tuple[Projection, int, float]:
    """Return what a process will need at most for this summary, the number of passes, and the read amplification."""
    passes = SummaryPasses.of(source, description, options)
    panels, descriptions = passes.panels, passes.descriptions
    caller_nbytes = 0 if panels is None else 8 * panels.edges[-1] ** 2 * len(panels.wide)
    largest = max((passes.plan(panel, caller_nbytes) for panel in descriptions), key=lambda plan: plan.projected.nbytes)
    return largest.projected, len(descriptions), passes.partitions.read_amplification


@dataclass(frozen=True, eq=False)
class FittedSteps:
    """Prepare steps that can be applied to any rows, and what they were fitted from.

    Parameters
    ----------
    steps : tuple of Step
        All steps, in order, for any argument `prepare=`.
    statistics : StepStatistics or None
        What steps that need statistics were fitted from; None if no step does. Can be saved, loaded and used again.

    Examples
    --------
    >>> import numpy as np
    >>> import sketchselect as sks
    >>> steps = sks.fit_prepare(np.array([[1.0, 10.0], [3.0, 30.0]]), ["standardise"])
    >>> steps.labels
    ('standardise#7fe4d41cec',)
    >>> sks.summarize(np.array([[2.0, 40.0]]), sks.Moments(), prepare=steps.steps).mean
    array([0., 2.])
    """

    steps: tuple[Step, ...]
    statistics: StepStatistics | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """The steps' labels: what the `prepare` of a summary holds."""
        return prepare_steps.labels(self.steps)


def fit_steps(source: Source, options: PassOptions, *, statistics: Summary[Any] | None = None) -> FittedSteps:
    """Return a source's steps fitted, each from a pass over the rows as the steps before it leave them.

    `statistics` are those of an earlier run: then nothing is read. Raises `Incompatible` where they are not of these
    steps and columns, or a step was asked for by the label of a fitted one and these rows give other statistics.
    """
    names = source.matrix.feature_names
    earlier = None if statistics is None else StepStatistics.as_statistics(statistics, names)
    fitted: list[Step] = []
    collected: dict[str, Summary[Any]] = {}
    for place, step in enumerate(source.prepare):
        if step.is_fitted:
            fitted.append(step)
            continue
        name = f"{place} {step.description}"
        if earlier is None:
            view, description = step_view(source, step, tuple(fitted), options)
            rows = f"{'the first ' if view.n_rows < source.n_rows else ''}{view.n_rows} rows"
            what = f"{step.description} needs {description.kind.replace('-', ' ')} of {rows}"
            options.progress.note(f"prepare: {what}: a pass before the others")
            reduced = summarize_source(view, description, options, stage=f"prepare, {step.name}")
            collected[name] = step.completed(reduced.value, source.matrix)
        else:
            need = step.needs
            assert need is not None
            labels = prepare_steps.labels((*fitted, *need.before))
            collected[name] = earlier.of_step(name, need.kind, labels)
        fitted.append(step.fitted(collected[name]))
    combined = StepStatistics.of(collected).with_context(prepare=(), feature_names=names) if collected else None
    return FittedSteps(tuple(fitted), combined)


def fitted_source(source: Source, options: PassOptions) -> Source:
    """Return the source with its steps fitted."""
    return replace(source, prepare=fit_steps(source, options).steps)


def step_view(
    source: Source, step: Step, before: tuple[Step, ...], options: PassOptions
) -> tuple[Source, Summary[Any]]:
    """Return what the pass of one step reads, and what it summarises."""
    need = step.needs
    assert need is not None
    description = KINDS[need.kind](**need.parameters)
    weight = source.weight if need.weighted else None
    columns = None
    if step.encodes is not None:
        columns = source.matrix.text_columns
        if not columns:
            raise BadParameter(
                f"{source.matrix.address}: there are no text columns for the prepare step {step.name!r}; leave it out "
                "(for tables in text files and Parquet, and data frames)"
            )
    view = replace(source, target=None, weight=weight, prepare=(*before, *need.before), columns=columns)
    if step.fills_missing or step.encodes is not None:
        view = replace(view, matrix=missing_allowed(source.matrix))
    if not need.first_partition:
        return view, description
    sparse = replace(view, takes_sparse=description.accepts_sparse)
    n_rows = source_partitions(sparse, options.partition_bytes).edges[1]
    first = None if weight is None else readers.open_vector(weight.read(0, n_rows), n_rows, name="sample_weight")
    return replace(view, matrix=FirstRows(source.matrix, n_rows), weight=first), description
