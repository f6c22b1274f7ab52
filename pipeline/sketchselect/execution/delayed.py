"""Summaries as `dask.delayed.Delayed`: the graphs of all passes that one needs, for any Dask scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dask.base import tokenize
from dask.task_spec import List, Task, TaskRef

from sketchselect.execution.engine import LocalEngine, PassOptions
from sketchselect.execution.passes import Graph, pass_inputs
from sketchselect.execution.run import require_unchanged, source_identities
from sketchselect.execution.source import Source
from sketchselect.execution.summarize import SummaryPasses, labelled, step_view, summary_key
from sketchselect.execution.tasks import Part, PassSpec
from sketchselect.prepare import Step
from sketchselect.summaries import Summary
from sketchselect.summaries.base import Ranges
from sketchselect.summaries.moment_panels import Panels, assemble


def delayed_summary(
    source: Source,
    description: Summary[Any],
    *,
    first_row: int = 0,
    start: int = 0,
    partition_bytes: int | str | None = None,
) -> Any:
    """Return the summary of a source as a `Delayed`, passes that fit prepare steps included.

    The same bits as `summarize_source`. Rows in this process's memory travel inside the graph; those before `first_row`
    are not read, and the first row of the source has the global index `start`. Equal arguments give equal keys.
    """
    from dask.delayed import Delayed

    options = PassOptions(LocalEngine(kind="serial"), partition_bytes)
    graph: Graph = {}
    statistics: list[TaskRef] = []
    earlier: list[Step] = []
    for step in source.prepare:
        if not step.is_fitted:
            view, needed = step_view(source, step, tuple(earlier), options)
            passes = SummaryPasses.of(view, needed, options)
            statistics.append(_add_summary(graph, passes, statistics))
        earlier.append(step)
    passes = SummaryPasses.of(source, description, options, first_row, start)
    key = _add_summary(graph, passes, statistics).key
    return Delayed(key, graph)


def _add_summary(graph: Graph, passes: SummaryPasses, statistics: Sequence[TaskRef]) -> TaskRef:
    """Add the tasks of a summary, of rows prepared by steps that are fitted to `statistics` by then."""
    works, outputs, remaining = [], [], passes.source
    for description in passes.descriptions:
        earlier = [task.key for task in statistics]
        token = tokenize(passes.source, summary_key(description), passes.rows, passes.partitions, earlier)
        work = replace(passes.planned(description), token=token)
        inputs = pass_inputs(passes.source, work.partitions, remote=True)
        remaining = inputs.source
        graph.update(inputs.graph)
        graph[work.spec_key] = Task(work.spec_key, _fitted, replace(work.spec, source=remaining), List(*statistics))
        graph.update(work.graph(work.tree.root, inputs, work.ready))
        *pieces, last = map(TaskRef, work.keys(work.tree.root))
        if work.join is not None:
            graph[f"whole-{token}"] = Task(f"whole-{token}", work.join, last, List(*pieces))
            last = TaskRef(f"whole-{token}")
        outputs.append(last)
        works.append(work)
    key, shape = f"summary-{works[0].token}", (passes.source.n_columns, passes.source.n_targets)
    labels = (passes.panels, shape, passes.rows, source_identities(remaining))
    graph[key] = Task(key, _summary, TaskRef(works[0].spec_key), List(*outputs), *labels)
    return TaskRef(key)


def _fitted(spec: PassSpec[Any], results: Sequence[Summary[Any]]) -> PassSpec[Any]:
    """Return the spec with its steps fitted to the statistics, in order."""
    statistics = iter(results)
    steps = tuple(step if step.is_fitted else step.fitted(next(statistics)) for step in spec.source.prepare)
    return replace(spec, source=replace(spec.source, prepare=steps))


def _summary(
    spec: PassSpec[Any],
    parts: Sequence[Part[Any]],
    panels: Panels | None,
    shape: tuple[int, int],
    rows: Ranges,
    identities: list[tuple[str, str | None]],
) -> Summary[Any]:
    """Return the summary that the passes make together, of rows that did not change meanwhile."""
    require_unchanged(identities, spec.source)
    values = iter(part.value for part in parts)
    summary = next(values) if panels is None else assemble(panels, *shape, lambda *_: next(values))
    return labelled(summary, spec.source, rows)
