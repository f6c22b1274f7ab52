"""The passes before the others: what prepare steps need to know of all rows, step by step."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect import prepare as prepare_steps
from sketchselect import readers
from sketchselect.errors import BadParameter, Incompatible
from sketchselect.execution.checkpoints.index import Checkpoint, as_checkpoint
from sketchselect.execution.client import as_engine
from sketchselect.execution.engine import Engine
from sketchselect.execution.progress import Progress, Silent, make_progress
from sketchselect.execution.run import PassStats, Reduced, source_partitions
from sketchselect.execution.source import Source
from sketchselect.execution.summarize import summarize_source
from sketchselect.prepare import Step
from sketchselect.readers.base import Matrix
from sketchselect.summaries import KINDS, StepStatistics, Summary


@dataclass(frozen=True, eq=False)
class FittedSteps:
    """Prepare steps that can be applied to any rows, and what they were fitted from.

    Parameters
    ----------
    steps : tuple of Step
        All steps, in order; give them as `prepare=` wherever steps are taken.
    statistics : StepStatistics or None
        What those that need statistics were fitted from; None where none does. Can be saved, loaded and used again.
    """

    steps: tuple[Step, ...]
    statistics: StepStatistics | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """The steps' labels: what the `prepare` of a summary holds."""
        return prepare_steps.labels(self.steps)


class FirstRows(Matrix):
    """The first rows of a matrix, as a matrix of its own."""

    def __init__(self, whole: Matrix, n_rows: int) -> None:
        self.whole = whole
        self.shape = (n_rows, whole.shape[1])
        self.entry_offsets: NDArray[np.int64] | None = None
        for name in ("dtype", "is_sparse", "feature_names", "address", "nonfinite", "chunk_rows", "in_memory", "axes"):
            setattr(self, name, getattr(whole, name))
        if whole.entry_offsets is not None:
            self.entry_offsets = whole.entry_offsets[: n_rows + 1]
        if whole.chunk_edges is not None:
            self.chunk_edges = (*(edge for edge in whole.chunk_edges if edge < n_rows), n_rows)

    def read_rows(self, start: int, stop: int) -> Any:
        """Return the same rows of the whole matrix."""
        return self.whole.read_rows(start, stop)

    def identity(self, start: int, stop: int) -> str | None:
        """Return the identity of these rows in the whole matrix."""
        return self.whole.identity(start, stop)


def unfitted(source: Source) -> list[Step]:
    """Return the steps of a source that need a pass of their own before they can be applied."""
    return [step for step in source.prepare if not step.is_fitted]


def step_name(place: int, step: Step) -> str:
    """Return the name under which the statistics of a step are kept: its place in the list, and what it is."""
    return f"{place} {step.description}"


def fit_steps(
    source: Source,
    *,
    statistics: Summary[Any] | None = None,
    account: Callable[[PassStats], object] | None = None,
    **options: Any,
) -> FittedSteps:
    """Return a source's steps fitted, each from a pass over the rows as the steps before it leave them.

    Parameters
    ----------
    source : Source
        All columns; weights count in means and spreads.
    statistics : StepStatistics, optional
        Of an earlier run: nothing is read, and the labels are the same, so that summaries merge.
    account : callable, optional
        Told what each pass did.
    **options
        For `summarize_source`: engine, partition_bytes, checkpoint, progress, retries, stall_timeout.

    Raises
    ------
    Incompatible
        Where the statistics given are not of these steps and columns, or a step was asked for by the label of a fitted
        one and these rows give other statistics.
    """
    names = source.matrix.feature_names
    given = None if statistics is None else _as_statistics(statistics, names)
    done: list[Step] = []
    found: dict[str, Summary[Any]] = {}
    for place, step in enumerate(source.prepare):
        if step.is_fitted:
            done.append(step)
            continue
        name = step_name(place, step)
        if given is None:
            reduced = _pass(source, step, tuple(done), **options)
            if account is not None:
                account(reduced.stats)
            found[name] = reduced.value
        else:
            found[name] = _given(given, name, step, tuple(done))
        done.append(step.fitted(found[name]))
    if not found:
        return FittedSteps(tuple(done))
    return FittedSteps(tuple(done), StepStatistics.of(found).with_context(prepare=(), feature_names=names))


def fitted_source(source: Source, **options: Any) -> Source:
    """Return the source with its steps fitted: `fit_steps` where one needs it, else the source as it is."""
    return replace(source, prepare=fit_steps(source, **options).steps) if unfitted(source) else source


def _as_statistics(statistics: Summary[Any], names: tuple[str, ...] | None) -> StepStatistics:
    """Return the statistics of steps, or raise `Incompatible`; columns have the same names where both have any."""
    if not isinstance(statistics, StepStatistics):
        raise Incompatible(f"expected the statistics of prepare steps (prepare.sks), got a {statistics.kind} summary")
    theirs = statistics.feature_names
    if theirs is None or names is None or theirs == names:
        return statistics
    if len(theirs) != len(names):
        raise Incompatible(f"the statistics given are of {len(theirs)} columns, the source has {len(names)}")
    j = next(i for i, (a, b) in enumerate(zip(theirs, names, strict=True)) if a != b)
    raise Incompatible(f"the statistics given are of a column {j} named {theirs[j]!r}, here it is named {names[j]!r}")


def _given(statistics: StepStatistics, name: str, step: Step, before: tuple[Step, ...]) -> Summary[Any]:
    """Return the statistics of a step from those of an earlier run."""
    if name not in statistics:
        raise Incompatible(
            f"the statistics given have none for prepare step {name!r}; they are of {', '.join(map(repr, statistics))}"
        )
    summary = statistics[name]
    need = step.needs
    assert need is not None
    labels = prepare_steps.labels((*before, *need.before))
    if summary.kind != need.kind or summary.prepare != labels:
        raise Incompatible(
            f"the statistics given for prepare step {name!r} are of rows prepared by {list(summary.prepare)}, the "
            f"steps before it here are {list(labels)}"
        )
    return summary


def _pass(
    source: Source,
    step: Step,
    before: tuple[Step, ...],
    *,
    engine: Engine,
    partition_bytes: int | str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Reduced[Summary[Any]]:
    """Make the pass that one step needs."""
    need = step.needs
    assert need is not None
    description = KINDS[need.kind](**need.parameters)
    # A sample stands for rows as they are; weights would make it one of weights.
    weight = None if need.kind == "row-sample" else source.weight
    view = replace(source, target=None, weight=weight, prepare=(*before, *need.before), columns=None)
    rows = f"{source.n_rows} rows"
    if need.first_partition:
        n_rows = source_partitions(replace(view, takes_sparse=description.accepts_sparse), partition_bytes).edges[1]
        rows = f"the first {n_rows} rows"
        first = None if weight is None else readers.open_vector(weight.read(0, n_rows), n_rows, name="sample_weight")
        view = replace(view, matrix=FirstRows(source.matrix, n_rows), weight=first)
    said = progress or Silent()
    said.note(f"prepare: {step.description} needs {need.kind.replace('-', ' ')} of {rows}: a pass before the others")
    return summarize_source(
        view,
        description,
        engine=engine,
        partition_bytes=partition_bytes,
        progress=progress,
        stage=f"prepare, {step.name}",
        **options,
    )


def fit_prepare(
    source: Any,
    prepare: Sequence[Any],
    *,
    sample_weight: Any = None,
    fitted: Summary[Any] | FittedSteps | None = None,
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
        Statistics of an earlier fit of the same steps: nothing is read.
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
    steps = prepare_steps.resolve(prepare)
    statistics = fitted.statistics if isinstance(fitted, FittedSteps) else fitted
    if statistics is not None and not isinstance(statistics, Summary):
        raise BadParameter(
            f"fitted must be the statistics of prepare steps, got {type(fitted).__name__}; read prepare.sks with "
            "sketchselect.load"
        )
    matrix = readers.open_matrix(source)
    weight = None
    if sample_weight is not None:
        weight = readers.open_vector(
            sample_weight, matrix.shape[0], matrix_address=matrix.address, name="sample_weight"
        )
    kept = as_checkpoint(checkpoint)
    with as_engine(client) as engine:
        return fit_steps(
            Source(matrix, None, weight, steps),
            engine=engine,
            statistics=statistics,
            partition_bytes=partition_bytes,
            checkpoint=kept,
            progress=make_progress(progress),
        )
