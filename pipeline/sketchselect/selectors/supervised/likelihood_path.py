"""Paths of sparse generalised linear models by few passes: proximal Newton steps of all models at once.

The first pass keeps means, spreads and a sample of rows. All models are fitted to the sample in memory, and start
there; every further pass sums loss, gradient and Hessian of each model over all rows (`LikelihoodSums`), for one step
of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect._byte_sizes import format_bytes
from sketchselect._progress import reporting_steps, track
from sketchselect.execution import Source, summarize_source
from sketchselect.execution.engine import PassOptions
from sketchselect.linalg.csr import densify
from sketchselect.linalg.likelihood import INTERCEPT, Family, Sums, Terms, likelihood_sums, n_outputs, saturated_loss
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import Floats, is_csr
from sketchselect.solvers import NetPenalty, newton_step
from sketchselect.summaries import Bundle, ColumnStats, LikelihoodSums, RowSample, Summary
from sketchselect.summaries.likelihood import ALL_ROWS

SAMPLE_NBYTES = 16 << 20
"""Bytes of the sampled rows: 67,000 rows of 30 columns; the nearer the start, the fewer passes."""

LEAST_ROWS = 256
"""Rows of the sample of very wide data."""

TYPICAL_PASSES = 6
"""Passes over rows of which the sample is a part: 4 to 8 are usual."""

HESSIANS_NBYTES = 32 << 20
"""Bytes of the Hessians of a pass, or one Hessian: of more, the rows are read for one group of models after the other.
Computing so many takes longer than reading the rows."""

_WHOLE = 64
"""Coefficients of a model up to which its Hessian is that of all of them."""

_NEAR = 0.9
"""Share of the level of the penalty from which on the gradient of a coefficient at zero counts as near."""

_MOST_STEPS = 60
"""Steps of one model on the sample: three or four are usual, and classes that are missing take one for each unit."""

_SAMPLE_TOL = 1e-4
"""Gap on a sample of some rows, whose optimum differs from that of all rows by more."""

_ROUNDING = 1e-13


@dataclass(frozen=True)
class PathSettings:
    """What a path of models is, apart from the data."""

    family: Family
    classes: tuple[Any, ...] | None
    l1_ratios: tuple[float, ...]  # One path of models each, for all rows and every fold
    alphas: Sequence[float] | None  # Descending; None: geometric from the first model with a column
    n_alphas: int
    alpha_ratio: float | None
    n_folds: int
    seed: int
    groups: bool
    max_passes: int
    tol: float

    @property
    def n_outputs(self) -> int:
        """Outputs of a model."""
        return n_outputs(self.family, len(self.classes or ()))

    def outline(self, iterates: Sequence[Iterate], mean: Floats | None, scale: Floats | None) -> LikelihoodSums:
        """Return the description of the sums of these models."""
        models, terms = listed(iterates)
        ratios = np.array([one.l1_ratio for one in iterates])
        return LikelihoodSums(
            self.family,
            models,
            terms,
            mean,
            scale,
            self.classes,
            ratios if len(self.l1_ratios) > 1 else self.l1_ratios[0],
            self.n_folds,
            self.seed,
            self.groups,
        )

    def largest(self, n_rows: int, n_columns: int) -> LikelihoodSums:
        """Return the description of the largest sums of a pass that the models of so many rows usually lead to."""
        n_models = (
            (self.n_alphas if self.alphas is None else len(self.alphas)) * len(self.l1_ratios) * len(self.folds())
        )
        side = self.most_terms(n_rows, n_columns)
        n_curved = min(-(-HESSIANS_NBYTES // (8 * side**2)), n_models)
        at, width = np.arange(side), side // self.n_outputs
        curved = Iterate(1.0, self.l1_ratios[0], ALL_ROWS, at % width - 1, at // width, np.zeros(side))
        # Of a model without a Hessian the sums are as large with any terms: without, thousands of models cost nothing.
        none = at[:0]
        flat = Iterate(1.0, self.l1_ratios[0], ALL_ROWS, none, none, np.zeros(0), converged=True)
        return self.outline([curved] * n_curved + [flat] * (n_models - n_curved), None, None)

    def most_terms(self, n_rows: int, n_columns: int) -> int:
        """Return the most terms of a model that starts on a sample: the lasso has no more columns than rows."""
        n_sampled = min(n_sampled_rows(n_columns), n_rows)
        return self.n_outputs * min(n_columns + 1, 4 * n_sampled + _WHOLE)

    def working_nbytes(self, n_rows: int, n_columns: int) -> int:
        """Return the bytes that `fit_path` takes in its process: for the sample and its models, or for sums."""
        n_sampled, n_starts = min(n_sampled_rows(n_columns), n_rows), len(self.folds())
        hessian = 8 * self.most_terms(n_rows, n_columns) ** 2
        # Those of two steps of a model of each fold, and three matrices of the step of one model.
        sample = 32 * n_sampled * (n_columns + 1) + (2 * n_starts + 3) * hessian
        return max(sample, 3 * self.largest(n_rows, n_columns).projected_nbytes(n_columns))

    def folds(self) -> range:
        """Return the folds that models leave out, and -1 for the models of all rows."""
        return range(ALL_ROWS, self.n_folds)

    def grid(self, first: float, is_wide: bool) -> Floats:
        """Return the alphas, descending.

        `first`: Where the first column enters.
        `is_wide`: Whether there are at most as many rows as columns.
        """
        if self.alphas is not None:
            return np.asarray(self.alphas, dtype=np.float64)
        if not first > 0:
            return np.ones(1)
        ratio = (1e-2 if is_wide else 1e-3) if self.alpha_ratio is None else self.alpha_ratio
        first = max(first, float(np.finfo(np.float64).tiny) / ratio)
        return np.geomspace(first, first * ratio, self.n_alphas)


def n_sampled_rows(n_columns: int) -> int:
    """Return the number of rows of the sample."""
    return max(SAMPLE_NBYTES // (8 * (n_columns + 1)), LEAST_ROWS)


def survey_description(n_columns: int, seed: int) -> Bundle:
    """Return the summaries of the first pass."""
    return Bundle(ColumnStats(), RowSample(n_sampled_rows(n_columns), seed=seed))


@dataclass(frozen=True)
class Point:
    """Mean loss of a model, and its derivatives, at some coefficients."""

    loss: float  # Above that of a model that fits every row, so at least 0
    gradient: Floats  # shape (n_outputs, p + 1)
    hessian: Floats | None  # Of the terms

    def gap(self, coef: Floats, penalty: NetPenalty, varying: NDArray[np.bool_]) -> float:
        """Return a bound of the relative distance from the optimum; see `NetPenalty.gap_bound`.

        `coef`, shape (n_outputs, p + 1): The coefficients, intercepts last.
        `varying`, shape (n_outputs, p): False for constant columns.
        """
        slopes, intercepts = coef[:, :-1], coef[:, -1]
        violations = np.where(varying, penalty.violations(slopes, self.gradient[:, :-1]), 0.0)
        value = self.loss + penalty.value(slopes)
        return penalty.gap_bound(value, slopes, violations, intercepts, self.gradient[:, -1])


@dataclass
class Iterate:
    """A model on its way to its optimum: the coefficients where the sums are next computed."""

    alpha: float
    l1_ratio: float
    fold: int
    # columns, outputs, values: shape (s,): Its terms, by output and column
    columns: NDArray[np.int64]
    outputs: NDArray[np.int64]
    values: Floats
    converged: bool = False
    # accepted: Values (of the same terms) and objective of the point that the step began at, and its expected change
    accepted: tuple[Floats, float, float] | None = field(default=None, repr=False)

    @property
    def penalty(self) -> NetPenalty:
        """The penalty of its coefficients."""
        return NetPenalty.of(self.alpha, self.l1_ratio)

    def at(self, alpha: float, l1_ratio: float) -> Iterate:
        """Return a model of another penalty that starts here."""
        return Iterate(alpha, l1_ratio, self.fold, self.columns, self.outputs, self.values)

    def advance(self, point: Point, tol: float, varying: NDArray[np.bool_]) -> None:
        """Move on by what is known at `point`, which has this model's values; or note that it has converged."""
        penalty = self.penalty
        dense = self._dense(point.gradient.shape)
        value = point.loss + penalty.value(dense[:, :-1])
        if self.accepted is not None:
            before, base, slope = self.accepted
            if not value <= base + _ROUNDING * abs(base):
                # The step was too long; the parabola through both ends and the slope at the first has its least here.
                share = (
                    0.1 if not np.isfinite(value) else float(np.clip(-slope / (2 * (value - base - slope)), 0.1, 0.5))
                )
                self.values = before + share * (self.values - before)
                self.accepted = before, base, share * slope
                return
        self.converged = point.gap(dense, penalty, varying) <= tol
        if self.converged or point.hessian is None:
            return
        self.step(point, penalty.level, varying)

    def step(self, point: Point, near: float, varying: NDArray[np.bool_]) -> None:
        """Make a proximal Newton step; coefficients at zero with a gradient above `near` become terms."""
        penalty = self.penalty
        penalised = self.columns != INTERCEPT
        assert point.hessian is not None
        slopes = point.gradient[self.outputs, self.columns]
        before = self.values
        after = newton_step(before, slopes, point.hessian, penalty, penalised)
        change = float(slopes @ (after - before)) + penalty.value(after[penalised]) - penalty.value(before[penalised])
        value = point.loss + penalty.value(before[penalised])
        q, width = point.gradient.shape
        inside = np.zeros((q, width), dtype=bool)
        inside[:, -1] = True
        inside[self.outputs, self.columns] |= after != 0
        pull = np.where(varying & ~inside[:, :-1], np.abs(point.gradient[:, :-1]), 0.0)
        if q * (width - 1) <= _WHOLE:
            inside[:, :-1] |= varying
        else:
            candidates = np.flatnonzero(pull > _NEAR * near)
            room = max(_WHOLE // 2, int(inside.sum()))
            strongest = candidates[np.argsort(-pull.ravel()[candidates], kind="stable")[:room]]
            inside[:, :-1].flat[strongest] = True
            inside[self.outputs, self.columns] |= before != 0
        dense = np.zeros((q, width))
        dense[self.outputs, self.columns] = before
        moved = np.zeros((q, width))
        moved[self.outputs, self.columns] = after
        self.outputs, columns = np.nonzero(np.roll(inside, 1, axis=1))
        self.columns = columns - 1
        self.values = moved[self.outputs, self.columns]
        self.accepted = dense[self.outputs, self.columns], value, min(change, 0.0)

    def _dense(self, shape: tuple[int, ...]) -> Floats:
        out = np.zeros(shape)
        out[self.outputs, self.columns] = self.values
        return out


def listed(iterates: Sequence[Iterate]) -> tuple[Floats, Floats]:
    """Return `models` and `terms` of `LikelihoodSums`."""
    models = np.array([[one.alpha, one.fold, not one.converged] for one in iterates], dtype=np.float64).reshape(-1, 3)
    terms = [
        np.column_stack([np.full(one.values.size, i), one.columns, one.outputs, one.values])
        for i, one in enumerate(iterates)
    ]
    return models, np.concatenate([np.zeros((0, 4)), *terms])


def points_of(sums: LikelihoodSums) -> Iterator[Point]:
    """Yield what a pass says of each model."""
    weights = np.maximum(sums.model_weights, np.finfo(np.float64).tiny)
    losses = np.nan_to_num(sums.deviances / 2.0, nan=0.0, posinf=np.inf).tolist()
    for i, (weight, is_curved) in enumerate(zip(weights, sums.models[:, 2] > 0, strict=True)):
        hessian = sums.hessian(i) / weight if is_curved else None
        yield Point(losses[i], sums.gradients[i] / weight, hessian)


@dataclass(frozen=True)
class Sample:
    """Sampled rows, standardised, in memory."""

    rows: Floats  # shape (n_sampled, p)
    y: Floats  # shape (n_sampled, n_outputs): As the outputs of a model
    weights: Floats  # shape (n_sampled,): So that sums are estimates of those over all rows
    fold: NDArray[np.intp]  # shape (n_sampled,)

    @classmethod
    def of(cls, sample: RowSample, source: Source, outline: LikelihoodSums, is_complete: bool) -> Sample:
        """Return the rows of a sample with their targets, which are read here.

        A sample of some rows gets half a row of every class (or of one count) at the mean, so that a rare class that it
        lacks has a finite intercept.
        """
        order = np.argsort(sample.indices, kind="stable")
        indices, rows, weights = sample.indices[order], sample.rows[order], sample.weights[order]
        y, groups = _targets_at(source, indices, outline)
        fold = outline.fold_of(indices.astype(np.uint64), groups)
        dense = outline.standardised(densify(rows) if is_csr(rows) else rows)
        if not is_complete:
            extra = np.array([[0.0], [1.0]]) if y.shape[1] == 1 else np.eye(y.shape[1])
            y, dense = np.vstack([y, extra]), np.vstack([dense, np.zeros((len(extra), dense.shape[1]))])
            weights = np.append(weights, np.full(len(extra), 0.5 * weights.mean()))
            fold = np.append(fold, np.full(len(extra), ALL_ROWS - 1))
        return cls(dense, y, weights, fold)

    def points(self, iterates: Sequence[Iterate], family: Family) -> Iterator[Point]:
        """Yield what the sample says of each model."""
        folds = np.array([one.fold for one in iterates])
        sizes = [one.values.size for one in iterates]
        terms = Terms(
            np.repeat(np.arange(len(iterates)), sizes),
            *(np.concatenate([getattr(one, name) for one in iterates]) for name in ("columns", "outputs", "values")),
        )
        everything = np.ones(len(iterates), dtype=bool)
        sums: Sums = likelihood_sums(self.rows, self.y, self.weights, self.fold, folds, family, terms, everything)
        weights = np.where(self.fold[:, None] == folds, 0.0, self.weights[:, None])
        start = 0
        losses = sums.losses - saturated_loss(family, self.y) @ weights
        totals = np.maximum(weights.sum(axis=0), np.finfo(np.float64).tiny)
        for i, (size, total) in enumerate(zip(sizes, totals, strict=True)):
            hessian = sums.hessians[start : start + size * size].reshape(size, size) / total
            start += size * size
            yield Point(float(losses[i] / total), sums.gradients[i] / total, hessian)

    def null(self, fold: int, family: Family) -> Iterate:
        """Return the model without columns of the rows outside a fold."""
        w = np.where(self.fold == fold, 0.0, self.weights)
        mean = w @ self.y / max(float(w.sum()), np.finfo(np.float64).tiny)
        least = 0.1 / len(self.y)  # Of a class that these rows lack
        mean = np.clip(mean, least, 1.0 - least) if family == "binomial" else np.maximum(mean, least)
        values = np.log(mean / (1.0 - mean)) if family == "binomial" else np.log(mean)
        columns = np.full(values.size, INTERCEPT)
        return Iterate(0.0, 1.0, fold, columns, np.arange(values.size), values)


def _targets_at(source: Source, indices: NDArray[np.int64], outline: LikelihoodSums) -> Any:
    """Return the targets of these rows, and the words of their groups; read in runs."""
    assert source.target is not None
    run = 1 << 20
    entries = []
    for start in range(0, source.n_rows, run):
        first, last = np.searchsorted(indices, [start, start + run])
        if first < last:
            some = source.target.read(start, min(start + run, source.n_rows))
            entries.append(some[indices[first:last] - start])
    together = np.concatenate(entries)
    return outline.encoded(together)


def fit_path(source: Source, settings: PathSettings, options: PassOptions, stage: str) -> Summary[Any]:
    """Return the sums of all models of a path at their optima, or where the passes allowed have led them.

    The same bits on every engine. A checkpoint keeps the nodes of each pass: a run that was killed makes the steps
    again from the sums that it finds, and reads on from there.
    """
    survey: Any = summarize_source(
        source, survey_description(source.n_columns, settings.seed), options, stage=f"{stage}: survey"
    ).value
    stats, sample = survey[ColumnStats.kind], survey[RowSample.kind]
    scale = np.sqrt(stats.variance)
    mean = np.where(scale > 0, stats.mean, 0.0)
    empty = settings.outline([], mean, scale)
    if not sample.n_kept:
        return empty.empty(source.n_columns)
    is_complete = sample.threshold == np.inf
    rows = Sample.of(sample, source, empty, is_complete)
    varying = np.broadcast_to(scale > 0, (empty.n_outputs, source.n_columns))
    with one_blas_thread(), reporting_steps(options.progress):
        iterates = start_on_sample(rows, settings, varying, stats.n_rows <= source.n_columns, is_complete)
    # Their memory is for the passes.
    del survey, sample, rows
    adjusts = settings.alphas is None and not is_complete
    sums: LikelihoodSums | None = None
    for made in range(2, settings.max_passes + 1):
        sums = None  # Its memory is for the next pass.
        sums = _step(source, settings, options, f"{stage}: pass {made}", iterates, mean, scale, adjusts and made == 2)
        is_current = bool(np.array_equal(sums.alphas, [one.alpha for one in iterates]))
        if is_current and all(one.converged for one in iterates):
            break
    assert sums is not None
    return sums


def _step(
    source: Source,
    settings: PathSettings,
    options: PassOptions,
    stage: str,
    iterates: Sequence[Iterate],
    mean: Floats,
    scale: Floats,
    adjusts: bool,
) -> LikelihoodSums:
    """Make a step of every model by a pass over all rows; return the sums at the coefficients that they had before.

    `adjusts`: Whether the alphas, which are those of a sample, are moved to where the first column enters.
    """
    varying = np.broadcast_to(scale > 0, (settings.n_outputs, scale.size))
    groups = list(_in_groups(iterates))
    # As they are before any step.
    descriptions = [settings.outline(group, mean, scale) for group in groups]
    size = max(description.projected_nbytes(scale.size) for description in descriptions)
    open_models = sum(not one.converged for one in iterates)
    in_groups = f"; {len(groups)} groups of models, each over all rows" if len(groups) > 1 else ""
    options.progress.note(
        f"{stage}, {open_models} of {len(iterates)} models, a state takes {format_bytes(size)}{in_groups}"
    )
    first_alphas = {one.l1_ratio: one.alpha for one in reversed(iterates)}
    made: list[LikelihoodSums] = []
    for i, (group, description) in enumerate(zip(groups, descriptions, strict=True), 1):
        name = stage if len(groups) == 1 else f"{stage}, models {i}/{len(groups)}"
        value: Any = summarize_source(source, description, options, stage=name).value
        if adjusts and not made and value.model_weights[0] > 0:
            # The first model has no columns, and the gradient there does not depend on its intercept.
            pull = float(np.abs(value.gradients[0, :, :-1] / value.model_weights[0]).max())
            for one in iterates if pull > 0 else []:
                one.alpha *= pull / one.l1_ratio * (1 + _ROUNDING) / first_alphas[one.l1_ratio]
        with one_blas_thread():
            for one, point in zip(group, points_of(value), strict=True):
                one.advance(point, settings.tol, varying)
        made.append(value if len(groups) == 1 else LikelihoodSums.joined([value]))
    return made[0] if len(made) == 1 else LikelihoodSums.joined(made)


def _in_groups(iterates: Sequence[Iterate]) -> Iterator[list[Iterate]]:
    """Yield the models, in their order, in groups whose Hessians take `HESSIANS_NBYTES` at most."""
    group: list[Iterate] = []
    nbytes = 0
    for one in iterates:
        size = 0 if one.converged else 8 * one.values.size**2
        if group and nbytes + size > HESSIANS_NBYTES:
            yield group
            group, nbytes = [], 0
        group.append(one)
        nbytes += size
    yield group


def start_on_sample(
    sample: Sample, settings: PathSettings, varying: NDArray[np.bool_], is_wide: bool, is_complete: bool
) -> list[Iterate]:
    """Return all models fitted to a sample: by ratio, then those of all rows first, each by descending alpha."""
    family, tol = settings.family, settings.tol if is_complete else max(_SAMPLE_TOL, settings.tol)
    empty = [sample.null(fold, family) for fold in settings.folds()]
    at_empty = list(sample.points(empty, family))
    pull = float(np.abs(at_empty[0].gradient[:, :-1][varying]).max(initial=0.0))
    grids = [settings.grid(pull / ratio * (1 + _ROUNDING), is_wide).tolist() for ratio in settings.l1_ratios]
    path: list[Iterate] = []
    before = 0.0
    n_models = sum(len(alphas) for alphas in grids)
    stages = ((ratio, alpha) for ratio, alphas in zip(settings.l1_ratios, grids, strict=True) for alpha in alphas)
    for l1_ratio, alpha in track("models of the sample", stages, n_models):
        if not path or path[-1].l1_ratio != l1_ratio:
            current, points, before = empty, list(at_empty), alpha
        # Columns that the sequential strong rule cannot leave out.
        near = (2 * alpha - before) * l1_ratio
        current = [one.at(alpha, l1_ratio) for one in current]
        for one, point in zip(current, points, strict=True):
            one.step(point, near, varying)
        moving = list(range(len(current)))
        for step in range(_MOST_STEPS):
            for i, point in zip(moving, sample.points([current[i] for i in moving], family), strict=True):
                points[i] = point
                if step < _MOST_STEPS - 1:
                    current[i].advance(point, tol, varying)
            moving = [i for i in moving if not current[i].converged]
            if not moving:
                break
        path += [replace(one, accepted=None, converged=one.converged and is_complete) for one in current]
        before = alpha
    return sorted(path, key=lambda one: (settings.l1_ratios.index(one.l1_ratio), one.fold))
