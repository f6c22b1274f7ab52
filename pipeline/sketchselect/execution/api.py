"""The public verbs of this layer, `summarize` and `fit_prepare`, and summaries as Dask graphs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from dask.base import tokenize
from dask.task_spec import List, Task, TaskRef

from sketchselect import prepare as prepare_steps
from sketchselect import readers
from sketchselect._progress import Progress, Result
from sketchselect.errors import BadParameter
from sketchselect.execution.checkpoints import Checkpoint
from sketchselect.execution.client import fit_options
from sketchselect.execution.engine import (
    FitKeywords,
    Identities,
    LocalEngine,
    PassOptions,
    require_unchanged,
    source_identities,
)
from sketchselect.execution.plan import Graph
from sketchselect.execution.source import Source
from sketchselect.execution.summarize import (
    FittedSteps,
    Passes,
    fit_steps,
    fitted_source,
    plan_summary,
    rows_of,
    step_view,
    summarize_source,
    summary_key,
    with_labels,
)
from sketchselect.execution.tasks import TaskContext
from sketchselect.linalg.validation import require_positive
from sketchselect.prepare import Step
from sketchselect.readers.opening import warn_of_doubts
from sketchselect.summaries import Bundle, Summary
from sketchselect.summaries.base import Ranges
from sketchselect.summaries.moment_panels import assemble


def summarize(
    source: Any,
    summary: Summary[Any] | Mapping[str, Summary[Any]] | None = None,
    *,
    y: Any = None,
    prepare: Sequence[Any] | None = None,
    sample_weight: Any = None,
    start: int = 0,
    partition_bytes: int | str | None = None,
    client: Any = None,
    checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
    progress: Progress | Callable[..., object] | bool | None = False,
    compute: bool = True,
) -> Any:
    """Read a matrix once and return its summary.

    The result is the same to the bit on every engine, for any number of workers, after retries and resumes.

    Parameters
    ----------
    source : path, URL, array or Matrix
        Whatever `open_matrix` takes, of shape (n_rows, n_features).
    summary : Summary or mapping of str to Summary
        What to compute; a mapping gives a `Bundle` computed in one pass. There is no default.
    y : array or path, optional
        Targets of shape (n_rows,) or (n_rows, n_targets).
    prepare : sequence of str, mapping or Step, optional
        What is done to the rows first, in order, such as ``["l2"]``; see `fit_prepare`. A step that needs statistics
        of all rows takes a pass of its own before.
    sample_weight : array or path of shape (n_rows,), optional
        Row weights.
    start : int
        Global index of the first row, for summaries of several sources that are merged: draws by row (`RowSample`,
        `LeverageSample`, sampled `BlockBound`, `Folds`) and ages depend on it. Count on from source to source, or leave
        room, such as ``start=day * 10**12``. Of the first three, summaries that share an index do not merge.
    partition_bytes : int or text, optional
        Size of a partition, counted as rows x columns x 8 bytes, or as stored entries x 16 where a sparse source
        stays sparse; 32 MiB by default.
    client : Client, Cluster, str, path or None
        "threads" or "serial": Dask's schedulers in this process; a Dask client or cluster; the address of a scheduler,
        "env", or a scheduler file. None: the client of a persisted Dask array; for other Dask arrays, stores and files
        the surrounding client; threads otherwise, and always for arrays in memory.
    checkpoint : path, URL or Checkpoint, optional
        Where finished parts are saved; running again resumes.
    progress : bool, Progress or callable
        Whether, or to what, progress is reported.
    compute : bool
        Whether to compute the summary now. False: a `dask.delayed.Delayed` of it, which composes with other Dask
        collections and runs on any Dask scheduler.

    Returns
    -------
    Summary or Delayed
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
    >>> days = [sks.summarize(np.eye(6), sks.summaries.RowSample(3), start=day * 10**12) for day in range(2)]
    >>> days[0].merge(days[1]).n_rows
    12
    """
    start = require_positive("start", start, least=0)
    description = summary if isinstance(summary, Summary) or not isinstance(summary, Mapping) else Bundle(summary)
    if not isinstance(description, Summary):
        given = f"the class {summary.__name__}" if isinstance(summary, type) else type(summary).__name__
        raise BadParameter(
            "summary must be a summary, such as sketchselect.ColumnStats(), sketchselect.Moments() or "
            "sketchselect.FrequentDirections(64), or a mapping of names to summaries, got "
            f"{'none' if summary is None else given}; sketchselect.summaries has them all"
        )
    steps = prepare_steps.resolve(prepare)
    source = open_source(source, y, sample_weight, steps)
    if not compute:
        if client is not None or progress or checkpoint is not None:
            raise BadParameter("compute=False: nothing runs yet, so leave out client, checkpoint and progress")
        return delayed_summary(source, description, start=start, partition_bytes=partition_bytes)
    run = FitKeywords(client=client, partition_bytes=partition_bytes, checkpoint=checkpoint, progress=progress)
    with fit_options(source.matrix, source.target, source.weight, **run) as options:
        return summarize_source(fitted_source(source, options), description, options.but(start=start)).value


def open_source(rows: Any, y: Any, sample_weight: Any, steps: Sequence[Step], *, target_name: str = "target") -> Source:
    """Return a source from what users pass: matrix, targets and weights of the same rows, prepare steps."""
    beside = {target_name: y, "sample_weight": sample_weight}
    matrix = readers.open_matrix(rows, vectors=beside, encode=prepare_steps.encodings(steps))
    warn_of_doubts(matrix.doubts)
    open_beside = partial(readers.open_vector, n_rows=matrix.shape[0], matrix=matrix)
    target = None if y is None else open_beside(y, name=target_name)
    weight = None if sample_weight is None else open_beside(sample_weight, name="sample_weight")
    return Source(matrix, target, weight, tuple(steps))


def fit_prepare(
    source: Any,
    prepare: Sequence[Any],
    *,
    sample_weight: Any = None,
    fitted: Summary[Any] | FittedSteps | None = None,
    start: int = 0,
    partition_bytes: int | str | None = None,
    client: Any = None,
    checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
    progress: Progress | Callable[..., object] | bool | None = False,
) -> FittedSteps:
    """Fit prepare steps to a source, so that other rows can be prepared in exactly the same way.

    One pass for every step that needs statistics of all rows (tf-idf, standardise, scale, clip by sd, a median library
    size, random Fourier features with a median bandwidth); none for the others. ``summarize(prepare=[...])`` does the
    same by itself; this is for the statistics to be kept.

    Parameters
    ----------
    source : path, URL, array or Matrix
        Whatever `open_matrix` takes, of shape (n_rows, n_features).
    prepare : sequence of str, mapping or Step
        The steps, in order: ``"l2"``, ``"library-size(target=1000)"``, ``{"step": "tf-idf", "sublinear": True}``.
    sample_weight : array or path of shape (n_rows,), optional
        Row weights; they count in means and spreads.
    fitted : StepStatistics or FittedSteps, optional
        Statistics of an earlier fit of the same steps: nothing is read. Of the first of them alone: each later step is
        fitted to this source, as the steps before it leave the rows.
    start : int
        Global index of the first row, as for `summarize`: for steps fitted from a sample of the rows, such as medians,
        whose statistics are merged with those of other sources.
    partition_bytes, client, checkpoint, progress
        As for `summarize`.

    Returns
    -------
    FittedSteps
        With `steps`, to be given as ``prepare=``, and `statistics`, to be saved.

    Raises
    ------
    BadParameter, Incompatible, SourceError, BadBlock
        See `sketchselect.errors`.

    Examples
    --------
    >>> import numpy as np, sketchselect as sks
    >>> old, new = np.array([[1.0, 5.0], [3.0, 5.0]]), np.array([[5.0, 5.0]])
    >>> fit = fit_prepare(old, ["standardise"])
    >>> a = sks.summarize(old, sks.ColumnStats(), prepare=fit.steps)
    >>> b = sks.summarize(new, sks.ColumnStats(), prepare=fit.steps)
    >>> a.merge(b).maximum.tolist()
    [3.0, 0.0]
    """
    start = require_positive("start", start, least=0)
    steps = prepare_steps.resolve(prepare)
    statistics = fitted.statistics if isinstance(fitted, FittedSteps) else fitted
    if statistics is not None and not isinstance(statistics, Summary):
        raise BadParameter(
            f"fitted must be the statistics of prepare steps, got {type(fitted).__name__}; read prepare.sks with "
            "sketchselect.load"
        )
    rows = open_source(source, None, sample_weight, steps)
    run = FitKeywords(client=client, partition_bytes=partition_bytes, checkpoint=checkpoint, progress=progress)
    with fit_options(rows.matrix, rows.weight, **run) as options:
        return fit_steps(rows, options.but(start=start), statistics=statistics, continues=True)


def delayed_summary(
    source: Source, description: Summary[Any], *, start: int = 0, partition_bytes: int | str | None = None
) -> Any:
    """Return the summary of a source as a `Delayed`, passes that fit prepare steps included.

    The same bits as `summarize_source`. Rows in this process's memory travel inside the graph. The first row of the
    source has the global index `start`. Equal arguments give equal keys.
    """
    from dask.delayed import Delayed

    options = PassOptions(LocalEngine(kind="serial"), partition_bytes)
    graph: Graph = {}
    statistics: list[TaskRef] = []
    earlier: list[Step] = []
    for step in source.prepare:
        if not step.is_fitted:
            if step.encodes is not None:
                raise BadParameter(f"compute=False: fit the prepare step {step.name!r} with fit_prepare first")
            view, needed = step_view(source, step, tuple(earlier), options)
            statistics.append(_add_summary(graph, view, needed, options, statistics))
        earlier.append(step)
    return Delayed(_add_summary(graph, source, description, options, statistics, start).key, graph)


def _add_summary(
    graph: Graph,
    source: Source,
    description: Summary[Any],
    options: PassOptions,
    statistics: Sequence[TaskRef],
    start: int = 0,
) -> TaskRef:
    """Add the tasks of a summary, of rows prepared by steps that tasks before fit to `statistics`."""
    passes, plans = plan_summary(source, description, options.but(start=start))
    source, rows = plans[0].source, rows_of(plans[0], start)
    contexts, outputs, remaining = [], [], source
    earlier = [task.key for task in statistics]
    for part, plan in zip(chain(*passes.values()), plans, strict=True):
        token = tokenize(source, summary_key(part), rows, plan.partitions, earlier)
        plan = replace(plan, token=token).bound(remote=True)
        graph.update(plan.inputs)
        context, key = plan.task_context(), plan.context_key
        remaining = context.source
        graph[key] = Task(key, _with_fitted, context, List(*statistics))
        graph.update(plan.graph(plan.tree.root, plan.ready))
        *pieces, last = map(TaskRef, plan.keys(plan.tree.root))
        if plan.join is not None:
            graph[f"whole-{token}"] = Task(f"whole-{token}", plan.join, last, List(*pieces))
            last = TaskRef(f"whole-{token}")
        outputs.append(last)
        contexts.append(TaskRef(key))
    key = str(contexts[0].key).replace("context", "summary", 1)
    shape = source.n_columns, source.n_targets
    labels = (description, passes, shape, rows, source_identities(remaining))
    graph[key] = Task(key, _whole_summary, contexts[0], List(*outputs), *labels)
    return TaskRef(key)


def _with_fitted(context: TaskContext[Any], results: Sequence[Summary[Any]]) -> TaskContext[Any]:
    """Return the context with its steps fitted to the statistics, in order."""
    statistics = iter(results)
    steps = tuple(step if step.is_fitted else step.fitted(next(statistics)) for step in context.source.prepare)
    return replace(context, source=replace(context.source, prepare=steps))


def _whole_summary(
    context: TaskContext[Any],
    results: Sequence[Result[Any]],
    description: Summary[Any],
    passes: Passes,
    shape: tuple[int, int],
    rows: Ranges,
    before: Identities,
) -> Summary[Any]:
    """Return the summary that the passes make together, of rows that are as they were `before`."""
    require_unchanged(before, context.source)
    summary = assemble(description, passes, *shape, (result.value for result in results))
    return with_labels(summary, context.source, rows)
