"""Path of models, one per regularisation strength or number of columns, and the choice of one model.

The design of a supervised selector is the standardised least-squares problem of a summary of columns and target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpocon, dpotrf

from sketchselect._progress import track
from sketchselect.errors import BadParameter, EmptyInput, Incompatible, warn
from sketchselect.linalg.validation import Floats
from sketchselect.plots import ModelPathDisplay
from sketchselect.solvers import Problem, standardize, standardize_rows
from sketchselect.solvers.path import aic, bic, ebic, validation_error
from sketchselect.solvers.problem import nearest_psd
from sketchselect.summaries import Folds, Moments
from sketchselect.summaries.moment_forms import pair_indices

Criterion = Literal["aic", "bic", "ebic"]
Rule = Literal["min", "1se"]

_EQUAL = 1e-9  # Relative difference up to which errors of two models are equal
_EXACT = 1e-15  # Share of the sparsest model's error that is rounding

MAX_LINES = 30  # Columns in a figure of a path


class Units(Protocol):
    """Means and scales that turn standardised coefficients into those of the data."""

    @property
    def mean(self) -> Floats:
        """Means of the columns, shape (p,)."""

    @property
    def scale(self) -> Floats:
        """Standard deviations of the columns, shape (p,); 0 for a constant one."""

    @property
    def y_mean(self) -> Floats:
        """Means of the targets, shape (n_targets,)."""


@dataclass(frozen=True)
class Candidate:
    """One sparse linear model of standardised columns."""

    value: float  # Its place on the path: alpha, or the number of columns
    support: NDArray[np.int64]  # shape (k,): Its columns, ascending
    coef: Floats  # shape (k, n_targets): Coefficients of the standardised columns, in units of the targets
    rss: Floats  # shape (n_targets,): Mean squared residual of each target
    gap: float = 0.0  # Of a penalised model (before a refit): its relative distance from the optimum
    converged: bool = True  # Whether the distance is at most `tol`
    degrees: float | None = None  # Effective degrees of freedom of each target; None: its non-zero coefficients

    @classmethod
    def of(
        cls,
        problem: Problem,
        value: float,
        coef: Floats,
        support: NDArray[np.int64] | None = None,
        gap: float = 0.0,
        converged: bool = True,
    ) -> Candidate:
        """Return the model with these coefficients of all columns, shape (p,) or (p, n_targets).

        The support is by default that of the rows that are not zero.
        """
        rows = coef[:, None] if coef.ndim == 1 else coef
        s = np.flatnonzero((rows != 0).any(axis=1)).astype(np.int64) if support is None else support
        b = rows[s]
        gain = 2.0 * (problem.xy[s] * b).sum(axis=0) - ((problem.gram[np.ix_(s, s)] @ b) * b).sum(axis=0)
        rss = np.maximum(problem.yy.diagonal() - gain, 0.0)
        return cls(float(value), s, b, rss, gap, converged)

    @property
    def n_nonzero(self) -> NDArray[np.int64]:
        """Non-zero coefficients of each target."""
        return np.asarray(np.count_nonzero(self.coef, axis=0), dtype=np.int64)

    def original_units(self, units: Units) -> tuple[Floats, Floats]:
        """Return the coefficients of the support, shape (k, n_targets), and intercepts, in the data's units."""
        coef: Floats = self.coef / units.scale[self.support, None]
        intercept: Floats = units.y_mean - units.mean[self.support] @ coef
        return coef, intercept

    def strengths(self, n_columns: int) -> Floats:
        """Return the size of each column's coefficients, shape (n_columns,): their norm over the targets."""
        out = np.zeros(n_columns)
        out[self.support] = np.linalg.norm(self.coef, axis=1)
        return out


@dataclass(frozen=True)
class ModelPath:
    """All models that were compared, from the sparsest on, with their criteria and errors.

    Parameters
    ----------
    parameter : "alpha" or "n_features"
        The quantity in `values`.
    candidates : sequence of Candidate
        The models.
    mean, scale, y_mean : array
        Of columns and targets, for original units.
    target_squares : array of shape (n_targets,)
        Variance of each target.
    n : float
        Effective number of rows.
    n_active : int
        Columns that are not constant.
    ebic_gamma : float
        Weight of the extended part of EBIC.
    chosen : int
        Index of the chosen model.
    cv_errors : array of shape (m, n_folds) or None
        Mean squared error of each model (refitted without the fold) on each fold; in squared units of the target,
        summed over targets.
    family : str
        Distribution of the target; unless it is "gaussian", deviances stand for squared residuals.
    feature_names : sequence of str or None
        Names of the columns, squares and products that models choose from.
    """

    parameter: str
    candidates: Sequence[Candidate] = field(repr=False)
    mean: Floats = field(repr=False)
    scale: Floats = field(repr=False)
    y_mean: Floats = field(repr=False)
    target_squares: Floats = field(repr=False)
    n: float
    n_active: int
    ebic_gamma: float = 0.5
    chosen: int = 0
    cv_errors: Floats | None = field(default=None, repr=False)
    family: str = "gaussian"
    feature_names: Sequence[str] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.candidates)

    @property
    def model(self) -> Candidate:
        """The chosen model."""
        return self.candidates[self.chosen]

    @property
    def values(self) -> Floats:
        """The alpha, or the number of columns, of each model, shape (m,)."""
        return np.array([c.value for c in self.candidates])

    @property
    def alphas(self) -> Floats | None:
        """Regularisation strengths, descending, as scikit-learn scales them, for standardised columns; or None."""
        return self.values if self.parameter == "alpha" else None

    @property
    def n_nonzero(self) -> NDArray[np.int64]:
        """Columns of each model, shape (m,)."""
        return np.array([c.support.size for c in self.candidates], dtype=np.int64)

    @property
    def coefs(self) -> Floats:
        """Coefficients in original units: shape (p, m), or (n_targets, p, m) for several targets."""
        out = np.zeros((self.y_mean.size, self.mean.size, len(self)))
        for i, candidate in enumerate(self.candidates):
            out[:, candidate.support, i] = candidate.original_units(self)[0].T
        return out[0] if len(out) == 1 else out

    @property
    def intercepts(self) -> Floats:
        """Intercepts in original units: shape (m,), or (n_targets, m)."""
        out = np.array([c.original_units(self)[1] for c in self.candidates]).T
        return out[0] if len(out) == 1 else out

    @property
    def residual_squares(self) -> Floats:
        """Mean squared residual of each model, summed over targets, shape (m,)."""
        return np.array([c.rss.sum() for c in self.candidates])

    @property
    def gaps(self) -> Floats:
        """Distance of each model from its optimum, shape (m,): see `optimality` of `sketchselect.solvers.Path`.

        Of the penalised model, before a refit; 0 for least squares, which has no iterations that could end early.
        """
        return np.array([c.gap for c in self.candidates])

    @property
    def converged(self) -> NDArray[np.bool_]:
        """Whether the gap of each model is at most the `tol` of its solver, shape (m,)."""
        return np.array([c.converged for c in self.candidates])

    @property
    def mean_cv_error(self) -> Floats | None:
        """Mean of the folds' errors, shape (m,); None without cross-validation."""
        return None if self.cv_errors is None else self.cv_errors.mean(axis=1)

    @cached_property
    def criteria(self) -> dict[str, Floats]:
        """Values of aic, bic and ebic, each of shape (m,), summed over targets; smaller is better.

        With n rows (effective number, for weighted or decayed ones), k effective degrees of freedom of the p columns
        that are not constant, and mean squared residual r: ``n log r + 2k``, ``n log r + k log n`` and ``n log r + k
        log n + 2 gamma log C(p, k)`` (Chen and Chen 2008), of real k by the gamma function. k is the
        number of non-zero coefficients, which is exact for the lasso (Zou, Hastie and Tibshirani 2007) and too low for
        MCP, SCAD and refits; of the elastic net ``tr X_A (X_A'X_A + l2 I)^-1 X_A'``. A residual below the rounding of
        the target's variance counts as that.
        """
        out = {name: np.zeros(len(self)) for name in get_args(Criterion)}
        floor = np.where(self.target_squares > 0, self.target_squares, 1.0) * np.finfo(np.float64).eps
        n, p = self.n, self.n_active
        for i, candidate in enumerate(self.candidates):
            degrees = candidate.n_nonzero if candidate.degrees is None else [candidate.degrees] * floor.size
            for rss, k in zip(np.maximum(candidate.rss, floor).tolist(), map(float, degrees), strict=True):
                out["aic"][i] += aic(n, rss, k)
                out["bic"][i] += bic(n, rss, k)
                out["ebic"][i] += ebic(n, rss, k, p, gamma=self.ebic_gamma)
        return out

    @property
    def cv_standard_error(self) -> Floats | None:
        """Standard error of `mean_cv_error` over the folds, shape (m,), 0 for a single fold; None without folds."""
        if self.cv_errors is None:
            return None
        n_folds = self.cv_errors.shape[1]
        if n_folds < 2:
            return np.zeros(len(self))
        return np.array([float(errors.std(ddof=1) / np.sqrt(n_folds)) for errors in self.cv_errors])

    def lines(self) -> tuple[NDArray[np.int64], Floats]:
        """Return the columns that are strongest anywhere on the path, and their coefficients, shape (m, n_columns).

        At most 30 columns, the strongest first; standardised coefficients, and of several targets their norm.
        """
        strongest: dict[int, float] = {}
        for candidate in self.candidates:
            for j, size in zip(candidate.support, np.linalg.norm(candidate.coef, axis=1), strict=True):
                strongest[int(j)] = max(strongest.get(int(j), 0.0), float(size))
        columns = sorted(strongest, key=lambda j: (-strongest[j], j))[:MAX_LINES]
        positions = {j: i for i, j in enumerate(columns)}
        lines = np.zeros((len(self.candidates), len(columns)))
        for i, candidate in enumerate(self.candidates):
            for j, row in zip(candidate.support, candidate.coef, strict=True):
                if int(j) in positions:
                    lines[i, positions[int(j)]] = row[0] if row.size == 1 else np.linalg.norm(row)
        return np.array(columns, dtype=np.int64), lines

    def plot_path(self, ax: Any = None) -> Any:
        """Draw the standardised coefficients along the path, and the chosen model; return the Axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; new ones by default.
        """
        return ModelPathDisplay.from_path(self, ax=ax).ax_


Solve = Callable[[Problem], Sequence[Candidate]]


def cross_validation_errors(solve: Solve, splits: Iterable[tuple[Problem, Any]], n_models: int, n_folds: int) -> Floats:
    """Return the mean squared error of each model on each fold, from moments alone; shape (n_models, n_folds).

    Exact: with b and b0 fitted to the other folds, ``mean (y - x'b - b0)^2`` over a fold is
    ``q'C q + (mean'q - b0)^2`` for q = [-b; 1] and the fold's mean and covariance C of [x, y].

    `solve`: Training problem -> its models, one for each value of the path.
    `splits`: For each fold, the problem of all other rows and the moments of the fold.
    `n_models`, `n_folds`: Models on the path, and at most so many folds.
    """
    errors = []
    for problem, moments in track("cross-validation: folds", splits, n_folds):
        candidates = solve(problem)
        # A fold of many columns is little else than its covariance, of which the models need few columns.
        used = np.unique(np.concatenate([candidate.support for candidate in candidates]))
        covariance, xy, yy = moments.covariance(columns=used), moments.xy, moments.yy
        column = np.zeros(n_models)
        for i, candidate in enumerate(candidates):
            coef, intercept = candidate.original_units(problem)
            s = candidate.support
            at = np.searchsorted(used, s)
            column[i] = np.sum(
                validation_error(
                    coef, intercept, covariance[np.ix_(at, at)], xy[s], yy, moments.mean[s], moments.y_mean
                )
            )
        errors.append(column)
    return np.column_stack(errors)


def best_by_validation(errors: Floats, rule: Rule) -> int:
    """Return the model of the smallest mean error, of equal ones the first, or the first within one standard error.

    `errors` of shape (n_models, n_folds): From `cross_validation_errors`; sparser models first.
    `rule`, "min" or "1se": The standard error is that of the mean over the folds, ``sd / sqrt(n_folds)``.
    """
    mean = errors.mean(axis=1)
    # A column that depends on those before it, as the second of two levels, changes errors by rounding alone; so does
    # any column once others give the target exactly.
    least, rounding = mean.min(), _EXACT * abs(mean[0]) if np.isfinite(mean[0]) else 0.0
    best = int(np.argmin(mean > least + _EQUAL * abs(least) + rounding))
    if rule == "min" or errors.shape[1] < 2:
        return best
    slack = float(errors[best].std(ddof=1)) / np.sqrt(errors.shape[1])
    return int(np.flatnonzero(mean <= mean[best] + slack)[0])


def best_by_size(candidates: Sequence[Candidate], n_select: int) -> int:
    """Return the last of the models with the most columns that are at most `n_select`."""
    sizes = np.array([c.support.size if c.support.size <= n_select else -1 for c in candidates])
    if sizes.max() < 0:
        raise BadParameter(f"at each of these alphas the model has more than {n_select} columns; add a larger alpha")
    return int(np.flatnonzero(sizes == sizes.max())[-1])


def usable_folds(rows: Sequence[float]) -> list[int]:
    """Return the folds that have rows; raise unless there are two.

    `rows`: Weight of each fold.
    """
    usable = [i for i, weight in enumerate(rows) if weight > 0]
    if len(usable) < 2:
        raise EmptyInput(
            f"cross-validation needs at least two folds with rows, there are {len(usable)} of {len(rows)}; "
            "use fewer folds, a criterion, or (in a stream) a larger first batch"
        )
    return usable


_MOST_ENTRIES = 5 * 500**2  # Entries, over all folds, of the matrices that a design keeps; two a fold: 20 MB at most

_UNIT = 2.0**-24  # Rounding of float32
_FEW_DIGITS = 1e-4  # Relative error of coefficients above which a warning is due


class OfClasses(Incompatible):
    """Raised where the target of a summary is classes, and numbers are to be predicted."""


class SinglePrecision(UserWarning):
    """Warning that products in float32 leave few digits in the coefficients of correlated columns."""


@dataclass(frozen=True)
class Expansion:
    """Polynomial terms of rows: ``z_j`` and ``z_i z_j`` with ``z = (x - mean) / scale``."""

    # mean, scale: shape (p,): Means and standard deviations of the columns in the data of the fit
    mean: Floats
    scale: Floats
    products: bool = True  # Whether there are products of different columns, besides squares

    def columns(self, terms: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the two columns of each term; -1 for the second of a linear one."""
        p = self.mean.size
        i, j = pair_indices(p, self.products)
        first = np.concatenate([np.arange(p), i])[terms]
        second = np.concatenate([np.full(p, -1), j])[terms]
        return first, second

    def of_rows(self, rows: Any, terms: NDArray[np.int64]) -> Floats:
        """Return the values of these terms, shape (n_rows, n_terms)."""
        first, second = self.columns(terms)
        columns, positions = np.unique(np.concatenate([first, second[second >= 0]]), return_inverse=True)
        block = rows[:, columns].toarray() if hasattr(rows, "toarray") else rows[:, columns]
        scale = self.scale[columns]
        z = np.divide(block - self.mean[columns], scale, out=np.zeros(block.shape), where=scale > 0)
        out: Floats = z[:, positions[: first.size]]
        out[:, second >= 0] *= z[:, positions[first.size :]]
        return out


@dataclass(frozen=True)
class Design:
    """Problem that a supervised selector solves, and its origin."""

    problem: Problem  # All rows
    classes: tuple[Any, ...] | None  # Labels, for a classification
    # names, source_names: Names of the problem's columns (terms), and of the data's
    names: tuple[str, ...] | None
    source_names: tuple[str, ...] | None
    expansion: Expansion | None  # The terms of a row, with degree 2
    n_source: int  # Columns of the data
    moments: Any  # All rows, columns as in the data
    folds: Any = None  # For cross-validation

    def splits(self) -> Iterator[tuple[Problem, Any]]:
        """Yield for every fold with rows the problem of the other rows, and the moments of the fold.

        Large ones are not kept: one is in memory at a time, and each call computes them anew.
        """
        entries = len(self.folds) * self.problem.n_features**2
        return self._made_splits() if entries > _MOST_ENTRIES else iter(self._splits)

    @cached_property
    def _splits(self) -> list[tuple[Problem, Any]]:
        return list(self._made_splits())

    def _made_splits(self) -> Iterator[tuple[Problem, Any]]:
        for i in usable_folds([fold.weight for fold in self.folds]):
            yield problem_of(self._terms(self.folds.complement(i))), self._terms(self.folds[i])

    def _terms(self, moments: Any) -> Any:
        """Return the moments of the design's columns; all folds have the same scale of polynomial terms."""
        terms = self.expansion
        return moments if terms is None else moments.expanded(terms.mean, terms.scale, terms.products)

    def exact_fit(self, columns: NDArray[np.int64]) -> tuple[Floats, Floats] | None:
        """Return least squares of these columns in original units from the triangular factor of the moments.

        It has twice the digits of a solution from the covariance. None without a factor, or for dependent columns.
        """
        if getattr(self.moments, "method", None) != "qr" or not columns.size:
            return None
        try:
            coef, intercept = self.moments.least_squares(columns)
        except BadParameter:
            return None
        return coef, intercept

    def source_columns(self, terms: NDArray[np.int64], scores: Floats) -> tuple[NDArray[np.int64], Floats]:
        """Return the data's columns in these terms, and a score of each: the best of its terms."""
        if self.expansion is None:
            return terms, scores
        first, second = self.expansion.columns(np.arange(scores.size))
        best = np.zeros(self.n_source)
        np.maximum.at(best, first, scores)
        np.maximum.at(best, second[second >= 0], scores[second >= 0])
        columns = np.concatenate([first[terms], second[terms]])
        return np.unique(columns[columns >= 0]).astype(np.int64), best


def n_columns(n_features: int, degree: int) -> int:
    """Return the number of columns of the design: with degree 2 also every square and product."""
    return n_features if degree == 1 else n_features + n_features * (n_features + 1) // 2


def design_of(summary: Any, task: str, degree: int, *, with_folds: bool, products: bool = True) -> Design:
    """Return the design of a summary; of degree 2 with products of different columns, or only with squares.

    Raises `Incompatible` if the summary has no target, one of another kind than the task's, or moments of a lower
    degree; `EmptyInput` if fewer than two folds have rows.
    """
    folds: Any = summary if isinstance(summary, Folds) else None
    moments: Any = folds.total if folds is not None else summary
    if folds is not None and not isinstance(moments, Moments):
        raise Incompatible(f"folds of moments are needed, got folds of {moments.kind}")
    if moments.n_targets < 1:
        raise Incompatible("this summary has no target; collect it with one: summarize(X, Moments(), y=target)")
    classes = getattr(moments, "classes", None)
    if task == "classification" and classes is None:
        raise Incompatible(
            "the target of this summary is numeric; collect it with Moments(classes=[...]) for a classification"
        )
    if task == "regression" and classes is not None:
        raise OfClasses('the target of this summary is classes; set task="classification"')
    # Moments of degree 2 contain those of degree 1.
    if getattr(moments, "degree", 1) < degree:
        raise Incompatible(
            f"this summary has moments of degree {getattr(moments, 'degree', 1)}, the estimator's degree is {degree}"
        )
    names, expansion, terms = moments.feature_names, None, moments
    if degree == 2:
        if products and not moments.products:
            raise Incompatible("this summary has squares of columns and no products; collect it with Moments(degree=2)")
        scale = np.sqrt(np.maximum(moments.covariance().diagonal(), 0.0))
        expansion = Expansion(moments.mean, scale, products)
        terms = moments.expanded(expansion.mean, expansion.scale, products)
        names = terms.feature_names
    return Design(
        problem=problem_of(terms),
        classes=None if classes is None else tuple(classes),
        names=names,
        source_names=moments.feature_names,
        expansion=expansion,
        n_source=moments.n_features,
        moments=moments,
        folds=folds if with_folds else None,
    )


def problem_of(moments: Any) -> Problem:
    """Return the standardised problem of plain moments."""
    if not np.max(moments.weight, initial=0.0) > 0:
        raise EmptyInput("there are no rows with a positive weight to fit to")
    if not moments.n_effective > 0:
        raise BadParameter("the weights of the rows are so small that their squares are zero; use larger ones")
    rest = {"mean": moments.mean, "y_mean": moments.y_mean, "n": float(moments.n_effective)}
    rows = getattr(moments, "few_rows", None)
    if rows is not None:
        return standardize_rows(rows / np.sqrt(moments.weight), moments.xy, moments.yy, **rest)
    covariance = moments.covariance()  # a new array each time: the problem takes its memory
    if getattr(moments, "missing", None) == "pairwise":
        # Each entry comes from other rows, so that the matrix need not be a covariance.
        covariance = nearest_psd(covariance)
    return standardize(covariance, moments.xy, moments.yy, **rest, reuse_memory=True)


def coefficient_error(design: Design, support: NDArray[np.int64]) -> float | None:
    """Return the relative error of coefficients to expect from products in float32; None for products in float64.

    ``2^-24 cond(S)``, with S the correlations of the selected columns, estimated from their Cholesky factor; 1 where no
    digit is known.
    """
    record: Any = design.moments.record
    if not getattr(record, "single_scatter", 0.0) > 0 or not support.size:
        return None
    correlation = np.asfortranarray(design.problem.gram[np.ix_(support, support)])
    norm = float(np.abs(correlation).sum(axis=0).max())
    factor, info = dpotrf(correlation)
    reciprocal = 0.0 if info else float(dpocon(factor, norm)[0])
    return min(_UNIT / reciprocal, 1.0) if reciprocal > 0 else 1.0


def warn_of_few_digits(error: float | None) -> None:
    """Warn of a `coefficient_error` so large that products in float64 would visibly change the coefficients."""
    if error is not None and error > _FEW_DIGITS:
        warn(
            f"the selected columns correlate so closely that products in float32 leave an error of about {error:.1g} "
            "in the coefficients; fit from the rows, or summarize them as float64",
            SinglePrecision,
        )
