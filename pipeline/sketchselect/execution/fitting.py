"""Passes before the others: the statistics of all rows that prepare steps need, step by step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sketchselect import prepare as prepare_steps
from sketchselect import readers
from sketchselect.execution.options import PassOptions
from sketchselect.execution.run import source_partitions
from sketchselect.execution.source import Source
from sketchselect.execution.summarize import summarize_source
from sketchselect.prepare import Step
from sketchselect.readers.views import FirstRows, missing_allowed
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
            collected[name] = reduced.value
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
    view = replace(source, target=None, weight=weight, prepare=(*before, *need.before), columns=None)
    if step.fills_missing:
        view = replace(view, matrix=missing_allowed(source.matrix))
    if not need.first_partition:
        return view, description
    sparse = replace(view, takes_sparse=description.accepts_sparse)
    n_rows = source_partitions(sparse, options.partition_bytes).edges[1]
    first = None if weight is None else readers.open_vector(weight.read(0, n_rows), n_rows, name="sample_weight")
    return replace(view, matrix=FirstRows(source.matrix, n_rows), weight=first), description
