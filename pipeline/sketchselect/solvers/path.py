"""A path of sparse models, with the duality gap of each model and the criteria that choose one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import BadParameter, warn
from sketchselect.linalg.validation import Floats, require_number, require_positive
from sketchselect.solvers.problem import Problem

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Path:
    """Sparse models for descending strengths of a penalty.

    Parameters
    ----------
    alphas : array of shape (m,)
        Strengths, descending, as scikit-learn scales them.
    indptr : array of int, shape (m + 1,)
        Model i has the entries ``indptr[i]:indptr[i + 1]`` of `indices` and `data`.
    indices : array of int, shape (nnz,)
        Columns with a non-zero coefficient, ascending within a model.
    data : array of shape (nnz,) or (nnz, q)
        Their coefficients for standardised columns, in units of the target; with q targets of one support a row for
        each column.
    n_features : int
        Number of columns, p.
    rss : array of shape (m,)
        Mean squared residual, summed over targets.
    optimality : array of shape (m,)
        Relative distance from the optimum: for a convex penalty the duality gap divided by the variance of the targets,
        otherwise the largest violation of the stationarity conditions divided by the standard deviation of the targets.
    converged : array of bool, shape (m,)
        Whether that is at most the solver's `tol`, or rounding.
    n_iter : array of int, shape (m,)
        Sweeps over the working set; for the homotopy, breakpoints so far.
    """

    alphas: Floats
    indptr: Ints
    indices: Ints
    data: Floats
    n_features: int
    rss: Floats
    optimality: Floats
    converged: NDArray[np.bool_]
    n_iter: Ints

    def __len__(self) -> int:
        return int(self.alphas.size)

    @property
    def n_nonzero(self) -> Ints:
        """Number of non-zero columns of each model, shape (m,)."""
        return np.diff(self.indptr)

    def support(self, i: int) -> Ints:
        """Return the columns of model i, ascending."""
        i = range(len(self))[i]
        return self.indices[self.indptr[i] : self.indptr[i + 1]]

    def coef(self, i: int) -> Floats:
        """Return the coefficients of model i for all standardised columns, shape (p,) or (p, q)."""
        i = range(len(self))[i]
        out = np.zeros((self.n_features, *self.data.shape[1:]))
        out[self.support(i)] = self.data[self.indptr[i] : self.indptr[i + 1]]
        return out


class PathBuilder:
    """A path under construction, model by model."""

    def __init__(self, n_features: int) -> None:
        self._n_features = n_features
        self._rows: list[tuple[float, Ints, Floats, float, float, bool, int]] = []

    def add(
        self, alpha: float, columns: Ints, values: Floats, rss: float, optimality: float, converged: bool, n_iter: int
    ) -> None:
        """Append a model whose columns are ascending."""
        self._rows.append((alpha, columns, values, rss, optimality, converged, n_iter))

    @property
    def empty(self) -> bool:
        """Whether there is no model yet."""
        return not self._rows

    def build(self, tol: float) -> Path:
        """Return the path of at least one model; warn of models that did not reach `tol`."""
        rows = self._rows
        unfinished = [r[4] for r in rows if not r[5]]
        if unfinished:
            warn(
                f"{len(unfinished)} of {len(rows)} models did not reach tol = {tol:g} (largest gap or violation "
                f"{max(unfinished):.1e}); use a larger alpha_ratio or a ridge penalty",
                RuntimeWarning,
            )
        return Path(
            alphas=np.array([r[0] for r in rows]),
            indptr=np.concatenate([[0], np.cumsum([r[1].size for r in rows])]).astype(np.int64),
            indices=np.concatenate([r[1] for r in rows]).astype(np.int64),
            data=np.concatenate([r[2] for r in rows]),
            n_features=self._n_features,
            rss=np.array([r[3] for r in rows]),
            optimality=np.array([r[4] for r in rows]),
            converged=np.array([r[5] for r in rows]),
            n_iter=np.array([r[6] for r in rows], dtype=np.int64),
        )


def duality_gap(
    rss: float, total: float, explained: float, quadratic: float, level_sum: float, norms: Floats, level: Floats
) -> float:
    """Return an upper bound of ``f(b) + P(b)`` minus its minimum, divided by the targets' variance.

    The quadratic part of the penalty is treated as further rows of the data; the dual point is the residual, scaled
    until it is feasible.

    `rss`: Mean squared residual.
    `total`: Variance of the targets, ``tr yy``.
    `explained`: ``b's``.
    `quadratic`: ``sum_j l2_j ||b_j||^2``.
    `level_sum`: ``sum_j l1_j ||b_j||``.
    `norms` of shape (p,): ``||s_j - S_j b - l2_j b_j||`` of the columns that may enter, at most `level` for the others.
    `level` of shape (p,): l1_j; columns with 0 are not bounded.
    Source: Fercoq, Gramfort and Salmon 2015, eqs. 3-6, in Gram form.
    """
    above = (level > 0) & (norms > level)
    shorten = float((level[above] / norms[above]).min(initial=1.0))
    rr = rss + quadratic
    ry = total - explained
    gap = 0.5 * rr + level_sum - (shorten * ry - 0.5 * shorten * shorten * rr)
    return max(gap, 0.0) / total if total > 0 else max(gap, 0.0)


_TIE = 1e-8


@dataclass(frozen=True)
class Fit:
    """A selection and the least-squares coefficients on it.

    Parameters
    ----------
    support : array of int, shape (k,)
        Selected columns, ascending.
    scores : array of shape (p,)
        Scores of all columns, not negative.
    coef : array of shape (p, q)
        Unregularised coefficients of the standardised columns; zero outside the support.
    """

    support: NDArray[np.int64]
    scores: Floats
    coef: Floats


def scaled_row_norms(coef: Floats) -> Floats:
    """Return the Euclidean norm of every row, scaled so that no square leaves float64."""
    largest = np.abs(coef).max(initial=0.0)
    if largest == 0.0:
        return np.zeros(coef.shape[0])
    scaled = coef / largest
    out: Floats = np.sqrt((scaled * scaled).sum(axis=1)) * largest
    return out


def check_count(problem: Problem, n_select: int) -> int:
    """Return `n_select` as an int, or raise `BadParameter` if the problem has fewer columns."""
    if require_positive("n_select", n_select) > problem.n_features:
        raise BadParameter(f"cannot select {n_select} columns of {problem.n_features}")
    return int(n_select)


def strongest(scores: Floats, n_select: int, active: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """Return the indices of the `n_select` largest scores, ascending; ties go to the lowest index.

    Scores tie if a chain of differences of at most 1e-8 of the largest score connects them, so that rounding does not
    separate equal columns. Columns that are not active come last.

    Examples
    --------
    >>> strongest(np.array([1.0, 3.0, 3.0, 3.0]), 2).tolist()
    [1, 2]
    """
    order = np.argsort(-scores, kind="stable")
    falls = -np.diff(scores[order], prepend=scores[order[:1]])
    level = np.cumsum(falls > _TIE * scores.max(initial=0.0))
    constant = np.zeros(scores.size, dtype=bool) if active is None else ~active[order]
    best = order[np.lexsort((order, level, constant))][:n_select]
    return np.sort(best).astype(np.int64)


def aic(n: float, rss: float, k: float) -> float:
    """Return Akaike's criterion, ``n log(rss) + 2 k``; smaller is better.

    `n`: Number of rows; the effective number for weighted rows.
    `rss`: Mean squared residual, positive.
    `k`: Free coefficients, without the intercept.
    Source: Akaike 1974, without constants common to all models of the same data.
    """
    return n * _log(rss) + 2.0 * k


def bic(n: float, rss: float, k: float) -> float:
    """Return Schwarz's criterion, ``n log(rss) + k log(n)``; parameters as in `aic`. Source: Schwarz 1978."""
    return n * _log(rss) + k * float(np.log(n))


def ebic(n: float, rss: float, k: float, p: int, gamma: float = 0.5) -> float:
    """Return the extended BIC for many columns, ``n log(rss) + k log(n) + 2 gamma log C(p, k)``.

    `n`, `rss`, `k`: As in `aic`.
    `p`: Number of candidate columns.
    `gamma`: Between 0 (`bic`) and 1.
    Source: Chen and Chen 2008, eq. 1.

    Examples
    --------
    >>> ebic(100, 1.0, 0, 50) == bic(100, 1.0, 0) == 0.0
    True
    """
    require_number("gamma", gamma, least=0, most=1)
    require_number("k", k, least=0, most=p)
    from scipy.special import gammaln

    choices = gammaln(p + 1.0) - gammaln(k + 1.0) - gammaln(p - k + 1.0)
    return bic(n, rss, k) + 2.0 * gamma * float(choices)


def effective_size(correlation: Floats, shift: Floats) -> float:
    """Return ``tr S (S + D)^-1``, the degrees of freedom of a ridge fit; between 0 and the number of columns.

    `correlation` of shape (k, k): S.
    `shift` of shape (k,): The diagonal of D, positive.
    Cost: 2 k^3 / 3. Source: Zou 2005, eq. 3.5, of the elastic net given its columns.
    """
    from scipy.linalg.lapack import dpotrf, dtrtri

    if not shift.size:
        return 0.0
    factor = dpotrf(correlation + np.diag(shift), lower=1, clean=1)[0]
    inverse = dtrtri(factor, lower=1)[0]
    return float(shift.size - (inverse * inverse).sum(axis=0) @ shift)


def validation_error(
    coef: Floats, intercept: Floats | float, covariance: Floats, xy: Floats, yy: Floats, mean: Floats, y_mean: Floats
) -> Floats:
    """Return the mean squared error of a linear model on validation rows, from their moments: one per target.

    Exact: ``mean (y - x'b - b0)^2 = (yy - 2 b'xy + b'C b) + (y_mean - mean'b - b0)^2``.

    `coef` of shape (k, q): Coefficients in original units.
    `intercept` of shape (q,): Intercepts.
    `covariance` of shape (k, k): Population covariance C of the columns on the validation rows.
    `xy` of shape (k, q): Their covariances with the targets.
    `yy` of shape (q, q): Covariance of the targets.
    `mean` of shape (k,): Means of the columns.
    `y_mean` of shape (q,): Means of the targets.
    Cost: k^2 q. Rounding is about eps times yy, so the error of a perfect fit is not exactly zero.
    """
    variance = yy.diagonal() + ((covariance @ coef - 2.0 * xy) * coef).sum(axis=0)
    bias = y_mean - mean @ coef - intercept
    out: Floats = np.maximum(variance, 0.0) + bias * bias
    return out


def _log(rss: float) -> float:
    if not rss > 0:
        raise BadParameter("the criterion of a perfect fit, with mean squared residual 0, is undefined")
    return float(np.log(rss))
