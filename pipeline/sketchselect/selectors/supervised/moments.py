"""Design of a supervised selector: the standardised least-squares problem of a summary of columns and target."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpocon, dpotrf

from sketchselect.errors import BadParameter, EmptyInput, Incompatible
from sketchselect.linalg.arrays import Floats
from sketchselect.selectors.supervised.models import usable_folds
from sketchselect.solvers import Problem, standardize
from sketchselect.solvers.problem import nearest_psd
from sketchselect.summaries import Folds, Moments
from sketchselect.summaries.moment_forms import pair_indices, polynomial_names

_UNIT = 2.0**-24
_FEW_DIGITS = 1e-4


class SinglePrecision(UserWarning):
    """Warning that products in float32 leave few digits in the coefficients of correlated columns."""


@dataclass(frozen=True)
class Expansion:
    """Polynomial terms of rows: ``z_j`` and ``z_i z_j`` with ``z = (x - mean) / scale``."""

    # mean, scale: shape (p,): Means and standard deviations of the columns in the data of the fit
    mean: Floats
    scale: Floats

    def columns(self, terms: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the two columns of each term; -1 for the second of a linear one."""
        p = self.mean.size
        i, j = pair_indices(p)
        first = np.concatenate([np.arange(p), i])[terms]
        second = np.concatenate([np.full(p, -1), j])[terms]
        return first, second

    def of_rows(self, rows: Any, terms: NDArray[np.int64]) -> Floats:
        """Return the values of these terms, shape (n_rows, n_terms)."""
        first, second = self.columns(terms)
        used, place = np.unique(np.concatenate([first, second[second >= 0]]), return_inverse=True)
        block = rows[:, used].toarray() if hasattr(rows, "toarray") else rows[:, used]
        scale = self.scale[used]
        z = np.divide(block - self.mean[used], scale, out=np.zeros(block.shape), where=scale > 0)
        out: Floats = z[:, place[: first.size]]
        out[:, second >= 0] *= z[:, place[first.size :]]
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
        """Yield for every fold with rows the problem of the other rows, and its moments; one at a time in memory."""
        for i in usable_folds([fold.weight for fold in self.folds]):
            yield problem_of(self._terms(self.folds.complement(i))), self._terms(self.folds[i])

    def _terms(self, moments: Any) -> Any:
        """Return the moments of the design's columns; all folds have the same scale of polynomial terms."""
        return moments if self.expansion is None else moments.expanded(self.expansion.mean, self.expansion.scale)

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
        used = np.concatenate([first[terms], second[terms]])
        return np.unique(used[used >= 0]).astype(np.int64), best


def design_of(summary: Any, task: str, degree: int, *, with_folds: bool) -> Design:
    """Return the design of a summary.

    Raises `Incompatible` if the summary has no target, one of another kind than the task's, or moments of another
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
        raise Incompatible('the target of this summary is classes; set task="classification"')
    if getattr(moments, "degree", 1) != degree:
        raise Incompatible(
            f"this summary has moments of degree {getattr(moments, 'degree', 1)}, the estimator's degree is {degree}"
        )
    names, expansion, terms = moments.feature_names, None, moments
    if degree == 2:
        expansion = Expansion(moments.mean, np.sqrt(np.maximum(moments.covariance().diagonal(), 0.0)))
        names = polynomial_names(moments.feature_names, moments.n_features)
        terms = moments.expanded(expansion.mean, expansion.scale)
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
    covariance = moments.covariance()  # a new array each time: the problem takes its memory
    if getattr(moments, "missing", None) == "pairwise":
        # Each entry comes from other rows, so that the matrix need not be a covariance.
        covariance = nearest_psd(covariance)
    return standardize(
        covariance,
        moments.xy,
        moments.yy,
        mean=moments.mean,
        y_mean=moments.y_mean,
        n=float(moments.n_effective),
        reuse_memory=True,
    )


def coefficient_error(design: Design, support: NDArray[np.int64]) -> float | None:
    """Return the relative error of coefficients to expect from products in float32; None for products in float64.

    ``2^-24 cond(S)``, with S the correlations of the selected columns, estimated from their Cholesky factor; 1 where no
    digit is known.
    """
    record: Any = design.moments.record
    if not getattr(record, "single_scatter", 0.0) > 0 or not support.size:
        return None
    correlation = np.asfortranarray(design.problem.correlation[np.ix_(support, support)])
    norm = float(np.abs(correlation).sum(axis=0).max())
    factor, failed = dpotrf(correlation)
    reciprocal = 0.0 if failed else float(dpocon(factor, norm)[0])
    return min(_UNIT / reciprocal, 1.0) if reciprocal > 0 else 1.0


def warn_of(error: float | None) -> None:
    """Warn where so few digits are left that a fit from float64 products would show others."""
    if error is not None and error > _FEW_DIGITS:
        warnings.warn(
            f"the selected columns correlate so closely that products in float32 leave an error of about {error:.1g} "
            "in the coefficients; fit from the rows, or summarize them as float64",
            SinglePrecision,
            stacklevel=2,
        )
