"""Summaries as `dask.delayed.Delayed`: the graphs of all passes that one needs, for any Dask scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dask.task_spec import List, Task, TaskRef

from sketchselect.errors import BadParameter
from sketchselect.execution.checkpoints.checkpoint import Checkpoint
from sketchselect.execution.engine import LocalEngine
from sketchselect.execution.fitting import step_view, unfitted
from sketchselect.execution.graph.inputs import Graph, pass_inputs
from sketchselect.execution.graph.passes import Pass, new_token
from sketchselect.execution.graph.tasks import Part, PassSpec
from sketchselect.execution.options import PassOptions
from sketchselect.execution.panels import PANEL_PARTITION_NBYTES, Panels, assemble, make_panels
from sketchselect.execution.run import node_index, planned_pass, require_unchanged, source_identities
from sketchselect.execution.source import Source
from sketchselect.execution.summarize import SummariseBlock, merge_summaries, source_for, summary_key
from sketchselect.prepare import Step
from sketchselect.summaries import Summary


def delayed_summary(
    source: Source,
    description: Summary[Any],
    *,
    partition_bytes: int | str | None = None,
    checkpoint: Checkpoint | None = None,
) -> Any:
    """Return the summary of a source as a `Delayed`, passes that fit prepare steps included.

    The same bits as `summarize_source`. Rows in this process's memory travel inside the graph.

    Raises
    ------
    BadParameter
        For a checkpoint where prepare steps have to be fitted first: its names depend on their statistics.
    """
    from dask.delayed import Delayed

    if checkpoint is not None and unfitted(source):
        raise BadParameter("compute=False: a checkpoint needs fitted prepare steps; fit them with fit_prepare first")
    options = PassOptions(LocalEngine(kind="serial"), partition_bytes, checkpoint)
    graph: Graph = {}
    statistics: list[TaskRef] = []
    before: list[Step] = []
    for step in source.prepare:
        if not step.is_fitted:
            view, needed = step_view(source, step, tuple(before), options)
            statistics.append(_add_summary(graph, view, needed, options, statistics))
        before.append(step)
    key = f"summary-{new_token()}"
    graph[key] = Task(key, _labelled, _add_summary(graph, source, description, options, statistics))
    return Delayed(key, graph)


@dataclass(frozen=True)
class _Result:
    """A summary, and the source as its tasks know it."""

    summary: Summary[Any]
    source: Source


def _add_summary(
    graph: Graph, source: Source, description: Summary[Any], options: PassOptions, statistics: Sequence[TaskRef]
) -> TaskRef:
    """Add the tasks of a summary, of rows prepared by steps that are fitted to `statistics` by then."""
    source = source_for(source, description)
    panels = make_panels(description, source.n_columns, source.n_targets)
    if panels is not None and options.partition_bytes is None:
        options = options.but(partition_bytes=PANEL_PARTITION_NBYTES)
    key = f"result-{new_token()}"
    descriptions = [description] if panels is None else panels.descriptions()
    parts = [_add_pass(graph, source, one, options, statistics) for one in descriptions]
    spec, _, read = parts[0]
    shape = (source.n_columns, source.n_targets)
    outputs = List(*(part for _, part, _ in parts))
    graph[key] = Task(key, _result, spec, outputs, panels, shape, source_identities(read))
    return TaskRef(key)


def _add_pass(
    graph: Graph, source: Source, description: Summary[Any], options: PassOptions, statistics: Sequence[TaskRef]
) -> tuple[TaskRef, TaskRef, Source]:
    """Add the tasks of one pass; return what its tasks share, its output, and the source as they know it."""
    state = description.projected_nbytes(source.n_columns, source.n_targets)
    work: Pass[Any] = planned_pass(
        source, SummariseBlock(description), merge_summaries, options, state_nbytes=state, stage="summarize"
    )
    spec, ready = work.spec, {}
    index = None if options.checkpoint is None else node_index(work, options, summary_key(description))
    if index is not None:
        spec, ready = replace(spec, saving=index.saving(state)), index.resume(by_tasks=True)
        work = replace(work, name=index.name)
    inputs = pass_inputs(source, work.partitions, remote=True, send=None)
    spec = replace(spec, source=inputs.source)
    graph.update(inputs.graph)
    graph[work.spec_key] = Task(work.spec_key, _fitted, spec, List(*statistics))
    graph.update(work.graph(work.output, inputs, ready))
    return TaskRef(work.spec_key), TaskRef(work.key(work.output)), inputs.source


def _fitted(spec: PassSpec[Any], results: Sequence[_Result]) -> PassSpec[Any]:
    """Return the spec with its steps fitted to the statistics, in order."""
    statistics = iter(results)
    steps = [step if step.is_fitted else step.fitted(_labelled(next(statistics))) for step in spec.source.prepare]
    return replace(spec, source=replace(spec.source, prepare=tuple(steps)))


def _result(
    spec: PassSpec[Any],
    parts: Sequence[Part[Any]],
    panels: Panels | None,
    shape: tuple[int, int],
    identities: list[tuple[str, str | None]],
) -> _Result:
    """Return the summary that the passes make together, of rows that did not change meanwhile."""
    require_unchanged(identities, spec.source)
    values = iter(part.value for part in parts)
    summary = next(values) if panels is None else assemble(panels, *shape, lambda *_: next(values))
    return _Result(summary, spec.source)


def _labelled(result: _Result) -> Summary[Any]:
    source = result.source
    return result.summary.with_context(prepare=source.prepare_labels, feature_names=source.feature_names)
