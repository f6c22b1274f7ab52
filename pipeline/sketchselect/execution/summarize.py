"""Summaries of a source, in one pass or one for each panel of columns, and prepare steps fitted in earlier passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from sketchselect import prepare as prepare_steps
from sketchselect import readers
from sketchselect._byte_sizes import format_bytes
from sketchselect._memory import available_nbytes
from sketchselect._progress import Result, Statistics
from sketchselect.errors import BadParameter, WillNotFit
from sketchselect.execution.engine import PassOptions, compute_plan, make_plan, source_identities, source_partitions
from sketchselect.execution.full_columns import RowWeights, are_weighted, full_columns
from sketchselect.execution.plan import SPLIT_FACTOR, Plan, Projection, require_fit
from sketchselect.execution.source import Block, Source
from sketchselect.execution.tasks import Reduction
from sketchselect.linalg.hashing import fingerprint
from sketchselect.linalg.validation import Floats, block_dtype
from sketchselect.prepare import Step
from sketchselect.readers.base import ENTRY_NBYTES, Partitions, accepted_size
from sketchselect.readers.views import FirstRows, missing_allowed
from sketchselect.summaries import KINDS, StepStatistics, Summary, moment_panels
from sketchselect.summaries.base import Ranges, SparseRows


@dataclass(frozen=True)
class SummariseBlock:
    """Leaf of a summarising pass: a block's summary, with the rows of the source numbered from `start` on."""

    description: Summary[Any]
    start: int = 0

    def __call__(self, block: Block) -> Summary[Any]:
        """Return the summary of one block."""
        position = self.start + block.position
        summary = self.description.from_block(block.values, block.target, start=position, sample_weight=block.weight)
        return summary if block.filled is None else summary.with_filled(block.filled.tolist())


@dataclass(frozen=True)
class KernelWeights:
    """The weights that kernels give the rows of a block: `RowWeights` of a summary."""

    description: Summary[Any]
    start: int = 0

    def __call__(self, start: int, n_rows: int, weights: Floats | None) -> Iterator[Floats | None]:
        """Yield the weights of each summary that is made of these rows."""
        return self.description.kernel_weights(self.start + start, n_rows, weights)


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
            "format": value.written_version,
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
    takes_missing, takes_sparse = description.accepts_missing, description.accepts_sparse
    counts: Literal["filled"] | None = "filled" if description.keeps_filled else None
    return replace(source, takes_missing=takes_missing, takes_sparse=takes_sparse, counts=counts)


def summary_reduction(
    source: Source,
    description: Summary[Any],
    stage: str,
    leaf: Callable[[Block], Any] | None = None,
    merge: Callable[[Any, Any], Any] = merge_summaries,
    partitions: Partitions | None = None,
) -> Reduction[Any]:
    """Return the reduction of a source to a summary; or with another leaf, to a state of about the summary's size.

    `partitions`: Those of the pass, if they are known.
    """
    shape = (source.n_columns, source.n_targets)
    sparse_state, working = None, description.working_nbytes(*shape)
    row_weights = None
    if source.is_sparse:
        if source.weight is None or not description.divides_rows:
            row_weights = KernelWeights(description, leaf.start if isinstance(leaf, SummariseBlock) else 0)
        sparse_state, working = description.sparse_nbytes(*shape, sparse_rows(source, partitions, row_weights))
    return Reduction(
        leaf or SummariseBlock(description),
        merge,
        stage,
        state_nbytes=description.projected_nbytes(*shape),
        sparse_state_nbytes=sparse_state,
        working_nbytes=working,
        row_weights=row_weights,
    )


def sparse_rows(source: Source, partitions: Partitions | None, row_weights: RowWeights | None = None) -> SparseRows:
    """Return bounds of the blocks of a sparse source.

    Few are known with chosen columns, in which rows may be fuller than in all, or with weights that may make a block
    dense.
    """
    offsets, dtype = source.matrix.entry_offsets, block_dtype(source.matrix.dtype)
    itemsize = 4 if dtype.kind == "f" and dtype.itemsize <= 4 and not source.in_double else 8
    unknown = SparseRows(offsets=offsets, itemsize=itemsize)
    if offsets is None or partitions is None or source.columns is not None:
        return unknown
    blocks = full_columns(source, partitions, row_weights) if are_weighted(source, row_weights) else ()
    if not all(block.stays_sparse for block in blocks):
        return unknown
    rows, entries = np.diff(partitions.edges), np.diff(offsets[list(partitions.edges)])
    fewest = 0 if source.matrix.nonfinite == "drop_rows" else int(rows.min())
    density = float((entries / np.maximum(rows, 1)).max()) / max(source.n_columns, 1)
    split = int(SPLIT_FACTOR * ENTRY_NBYTES * entries.max())
    return SparseRows(len(partitions), fewest, density, offsets, itemsize, split)


Passes = Mapping[str | None, Sequence[Summary[Any]]]
"""What each pass of a summary summarises; see `split_in_passes`."""


def plan_summary(
    source: Source, description: Summary[Any], options: PassOptions, *, stage: str = "summarize"
) -> tuple[Passes, list[Plan[Summary[Any]]]]:
    """Return the passes of a summary and their plans: one, or one for each panel of columns for a large state.

    Nothing is read. Parameters are those of `summarize_source`.
    """
    source = source_for(source, description)
    shape = source.n_columns, source.n_targets
    sparse = source.is_sparse
    passes: Passes = {None: [description]}
    if sparse or description.has_panels:
        passes = moment_panels.split_in_passes(description, *shape, sparse=sparse)
    is_wide = any(isinstance(part, moment_panels.ComomentPanel) for parts in passes.values() for part in parts)
    if is_wide and options.partition_bytes is None:
        options = options.but(partition_bytes=accepted_size(source.matrix, moment_panels.PANEL_PARTITION_NBYTES))
    partitions = source_partitions(source, options.partition_bytes)
    plans, caller_nbytes = [], 0
    for member, parts in passes.items():
        if isinstance(parts[-1], moment_panels.ComomentPanel):
            caller_nbytes += 8 * parts[-1].stop ** 2  # the whole co-moment, which the caller puts together
        for i, part in enumerate(parts, 1):
            if part is description:
                name = stage
            elif isinstance(part, moment_panels.ComomentPanel):
                name = f"{stage}, columns {i}/{len(parts)}"
            elif member is None:
                name = f"{stage}, other members"
            else:
                name = f"{stage}, the sketch, in panels of columns"
            leaf = SummariseBlock(part, options.start)
            reduction = summary_reduction(source, part, name, leaf, partitions=partitions)
            key = summary_key(part)
            key = fingerprint(key, options.start) if options.start else key
            if sparse and moment_panels.is_wide_sketch(part, source.n_columns):
                key = fingerprint(key, part.column_panels(source.n_columns))
                reduction = replace(reduction, in_panels=part, keeps_panels=options.keeps_panels)
            else:
                reduction = replace(reduction, merge_in_place=merge_summaries_in_place)
            reduction = replace(reduction, key=key, caller_nbytes=caller_nbytes)
            plans.append(make_plan(source, reduction, options, partitions=partitions))
        if member is not None and not isinstance(parts[-1], moment_panels.ComomentPanel):
            caller_nbytes += parts[-1].projected_nbytes(*shape)
    return passes, plans


def summarize_source(
    source: Source, description: Summary[Any], options: PassOptions, *, stage: str = "summarize"
) -> Result[Summary[Any]]:
    """Return the summary of a source, labelled with prepare steps, names and row indices, and statistics of the passes.

    See `reduce_blocks` for errors.
    """
    passes, plans = plan_summary(source, description, options, stage=stage)
    source = plans[0].source
    before = source_identities(source)
    statistics: list[Statistics] = []
    # Every pass is checked before the first one reads.
    for plan in plans:
        require_fit(plan.projected, options.engine.memory_limit, source.matrix.address)
    require_room(source, passes)

    def values() -> Iterator[Summary[Any]]:
        for plan in plans:
            result = compute_plan(plan, options, before)
            statistics.append(result.stats)
            yield result.value

    if [*passes] == [None]:  # as `assemble` does, into which one pass need not go
        summary = next(values())
    else:
        summary = moment_panels.assemble(description, passes, source.n_columns, source.n_targets, values())
    summary = with_labels(summary, source, rows_of(plans[0], options.start))
    # All passes read the same rows.
    rows = {name: max(getattr(stats, name) for stats in statistics) for name in ("rows_read", "rows_dropped")}
    stats = replace(Statistics.total(statistics), **rows, n_partitions=len(plans[0].partitions))
    if options.on_statistics is not None:
        options.on_statistics(stats)
    return Result(summary, stats)


def require_room(source: Source, passes: Passes) -> None:
    """Raise `WillNotFit` for a co-moment in panels whose whole, which is put together here, exceeds the machine."""
    widths = [parts[-1].stop for parts in passes.values() if isinstance(parts[-1], moment_panels.ComomentPanel)]
    if not widths:
        return
    nbytes = 8 * max(widths) ** 2
    if nbytes > (available := available_nbytes()):
        raise WillNotFit(
            f"{source.matrix.address}: the products of all pairs of {source.n_columns:,} columns take "
            f"{format_bytes(nbytes)}, and this machine has {format_bytes(available)}; take fewer columns, or a method "
            "that does without them (the page how_big names such methods)"
        )


def with_labels(summary: Summary[Any], source: Source, rows: Ranges) -> Summary[Any]:
    """Return the summary labelled with the prepare steps, feature names and row indices of its source."""
    return summary.with_context(prepare=source.prepare_labels, feature_names=source.feature_names).with_rows(rows)


def rows_of(plan: Plan[Any], start: int) -> Ranges:
    """Return the range of the global indices of the rows that a plan reads, dropped rows among them."""
    return ((start + plan.partitions.edges[0], start + plan.partitions.edges[-1]),)


def summary_projection(
    source: Source, description: Summary[Any], options: PassOptions
) -> tuple[Projection, int, float]:
    """Return what a process will need at most for this summary, the number of passes, and the read amplification."""
    _, plans = plan_summary(source, description, options)
    largest = max((plan.projected for plan in plans), key=lambda projected: projected.nbytes)
    return largest, len(plans), plans[0].partitions.read_amplification


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


def fit_steps(
    source: Source, options: PassOptions, *, statistics: Summary[Any] | None = None, continues: bool = False
) -> FittedSteps:
    """Return a source's steps fitted, each from a pass over the rows as the steps before it leave them.

    `statistics` are those of an earlier run: then nothing is read; or with `continues` they may be of the first steps
    alone. Raises `Incompatible` where they are not of these steps and columns, or a step was asked for by the label of
    a fitted one and these rows give other statistics.
    """
    names = source.matrix.feature_names
    earlier = None if statistics is None else StepStatistics.as_statistics(statistics, names)
    unfitted = [f"{i} {step.description}" for i, step in enumerate(source.prepare) if not step.is_fitted]
    continues = continues and earlier is not None and list(earlier) == unfitted[: len(earlier)]
    fitted: list[Step] = []
    collected: dict[str, Summary[Any]] = {}
    for i, step in enumerate(source.prepare):
        if step.is_fitted:
            fitted.append(step)
            continue
        name = f"{i} {step.description}"
        if earlier is None or (continues and name not in earlier):
            view, description = step_view(source, step, tuple(fitted), options)
            rows = f"{'the first' if view.n_rows < source.n_rows else 'all'} {view.n_rows} rows"
            what = description.kind.replace("-", " ").replace("stats", "statistics")
            options.progress.note(f"prepare: {step.description} needs {what} of {rows}, in a pass of its own")
            # Other statistics than draws name rows by their places in this source.
            numbered = options if description.keyed_by_rows else options.but(start=0)
            reduced = summarize_source(view, description, numbered, stage=f"prepare, {step.name}")
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
    view = replace(source, target=None, weight=weight, prepare=(*before, *need.before), columns=columns, first_row=0)
    if step.fills_missing or step.encodes is not None:
        view = replace(view, matrix=missing_allowed(source.matrix))
    if not need.first_partition:
        return view, description
    sparse = replace(view, takes_sparse=description.accepts_sparse)
    n_rows = source_partitions(sparse, options.partition_bytes).edges[1]
    first = None if weight is None else readers.open_vector(weight.read(0, n_rows), n_rows, name="sample_weight")
    return replace(view, matrix=FirstRows(source.matrix, n_rows), weight=first), description
