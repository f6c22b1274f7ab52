"""Knockoff columns from second moments alone, the statistics that compare them with the columns, and error rates.

Columns are centred and scaled: `correlation` is S, and a knockoff column has the same correlations with all other
columns as the column that it stands for; with that column itself its correlation is ``1 - s_j``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from sketchselect.linalg.hashing import derive_seed, uniforms
from sketchselect.linalg.validation import Floats
from sketchselect.solvers.homotopy import entry_penalties
from sketchselect.solvers.problem import Problem

_PANEL = 64  # Columns whose updates of the inverse are applied together
_MAX_SWEEPS = 60
_TOL = 1e-4  # Relative decrease of the loss in a sweep below which no other follows
_DEPENDENT = 1e-9  # Eigenvalue, over the number of columns, up to which it shows a linear relation between columns
_NULL = 1e-13  # The same up to which it is rounding
_INSIDE = 1.0 - 1e-8  # Share of the gaps that is taken, so that rounding leaves the joint covariance positive definite
_KNOWN = 0.8  # Number of eigenvalues, as a share of the rows, that can be estimated


class Augmented(NamedTuple):
    """Second moments of the columns followed by their knockoffs."""

    gram: Floats
    xy: Floats


class Construction(NamedTuple):
    """What all draws of knockoffs have in common, from the covariance S of scaled columns and the gaps s.

    `mixing` is ``M = I - S^+ diag(s)``, and `root` a symmetric square root of ``C = 2 diag(s) - diag(s) S^+ diag(s)``:
    knockoffs are ``X M + E root`` for random rows E that are independent of X.
    """

    gaps: Floats
    mixing: Floats
    root: Floats


def normals(seed: int, *shape: int) -> Floats:
    """Return standard normal numbers that the seed determines, on every machine."""
    numbers: Floats = scipy.special.ndtri(uniforms(seed, np.arange(int(np.prod(shape)), dtype=np.uint64))).reshape(
        shape
    )
    return numbers


def chi_squares(seed: int, freedom: Floats) -> Floats:
    """Return numbers with chi-squared distributions that the seed determines; 0 without degrees of freedom."""
    drawn = uniforms(seed, np.arange(freedom.size, dtype=np.uint64))
    positive = freedom > 0
    return np.where(positive, 2.0 * scipy.special.gammaincinv(np.where(positive, freedom, 1.0) / 2.0, drawn), 0.0)


def dependent_columns(correlation: Floats) -> tuple[NDArray[np.bool_], Floats]:
    """Return which columns are in a linear relation with others, and the pseudoinverse of their correlations."""
    values, vectors = np.linalg.eigh(correlation)
    small = values <= _DEPENDENT * values.size
    inverse = (vectors[:, ~small] / values[~small]) @ vectors[:, ~small].T
    relations = np.sqrt((vectors[:, small] ** 2).sum(axis=1))
    return relations > 1e-6, inverse


def minimum_variance_gaps(correlation: Floats) -> Floats:
    """Return the gaps s with the least sum of variances ``tr (2S - diag(s))^-1 + sum 1 / s_j``.

    `correlation`, shape (p, p): Positive definite. Coordinate by coordinate, each at its minimum given the others; the
    inverse is updated in panels. Cost: 4 p^3 a sweep.
    Source: Spector and Janson 2022, section 3.
    """
    p = correlation.shape[0]
    least = float(np.linalg.eigvalsh(correlation)[0])
    gaps = np.full(p, min(1.0, 2.0 * least) * 0.5)
    before = np.inf
    for _ in range(_MAX_SWEEPS):
        inverse = cho_solve(cho_factor(2.0 * correlation - np.diag(gaps), lower=True), np.eye(p))
        loss = float(inverse.trace() + (1.0 / gaps).sum())
        if loss >= before * (1.0 - _TOL):
            break
        before = loss
        for start in range(0, p, _PANEL):
            columns = np.arange(start, min(start + _PANEL, p))
            left = np.zeros((p, columns.size))
            scale = np.zeros(columns.size)
            for i, j in enumerate(columns):
                # The inverse is the one at the start of the panel, and an update of rank one for each column since.
                column = inverse[:, j] + left[:, :i] @ (scale[:i] * left[j, :i])
                diagonal, length = column[j], np.sqrt(column @ column)
                step = (1.0 - length * gaps[j]) / (diagonal + length)
                gaps[j] += step
                left[:, i], scale[i] = column, step / (1.0 - step * diagonal)
            inverse += (left * scale) @ left.T
    return gaps


def construct(correlation: Floats) -> Construction:
    """Return the construction of least variance; columns in a linear relation with others have a gap of 0.

    The knockoff of such a column is the column itself, so it is never selected: no knockoff could tell more.
    """
    dependent, inverse = dependent_columns(correlation)
    free = ~dependent
    gaps = np.zeros(correlation.shape[0])
    if free.any():
        # With zero gaps elsewhere, diag(s) <= 2S holds if it holds for the residuals of the free columns on the others.
        residual = correlation[np.ix_(free, free)]
        if dependent.any():
            across = correlation[np.ix_(free, dependent)]
            inverse_of_others = np.linalg.pinv(correlation[np.ix_(dependent, dependent)], hermitian=True)
            residual = residual - across @ inverse_of_others @ across.T
        gaps[free] = minimum_variance_gaps((residual + residual.T) / 2.0) * _INSIDE
    mixing = np.eye(gaps.size) - inverse * gaps
    remainder = 2.0 * np.diag(gaps) - gaps[:, None] * inverse * gaps
    values, vectors = np.linalg.eigh(remainder)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return Construction(gaps, mixing, root)


def draw_fixed(
    construction: Construction, correlation: Floats, xy: Floats, rss: float, freedom: int, seed: int
) -> Augmented:
    """Return the moments of columns and fixed-X knockoffs, by the exact law for a random orthonormal complement.

    `xy`, shape (p,): Products of the unit columns with the target. `rss`: Squares of the target that the columns do not
    explain, and `freedom` their degrees of freedom, at least the number of columns.
    Source: Barber and Candes 2015, section 2.
    """
    p = xy.size
    normal = normals(derive_seed(seed, "complement"), p)
    rest = float(chi_squares(derive_seed(seed, "rest"), np.array([float(freedom - p)]))[0])
    direction = normal / np.sqrt(normal @ normal + rest)
    knockoff_xy = construction.mixing.T @ xy + np.sqrt(max(rss, 0.0)) * (construction.root @ direction)
    across = correlation - np.diag(construction.gaps)
    gram = np.block([[correlation, across], [across, correlation]])
    return Augmented(gram, np.concatenate([xy, knockoff_xy])[:, None])


def draw_model(construction: Construction, scatter: Floats, n_features: int, freedom: int, seed: int) -> Augmented:
    """Return the moments of columns and model-X knockoffs of rows with a Gaussian law, by the law of these moments.

    `scatter`, shape (p + q, p + q): Of the p columns and q targets, for columns of variance 1; `freedom`: its degrees
    of freedom, one less than the number of rows.
    Source: Candes, Fan, Janson and Lv 2018, section 3, second-order knockoffs.
    """
    p = n_features
    values, vectors = np.linalg.eigh(scatter)
    large = values > 1e-12 * max(float(values[-1]), 0.0)
    factor = np.sqrt(values[large])[:, None] * vectors[:, large].T
    rank = min(int(large.sum()), freedom)
    factor = factor[-rank:]
    inside = normals(derive_seed(seed, "inside"), rank, p)
    across = factor.T @ inside
    noise = inside.T @ inside + _wishart(derive_seed(seed, "outside"), p, freedom - rank)
    mixed = scatter[:p, :p] @ construction.mixing
    between = mixed + across[:p] @ construction.root
    crossed = construction.mixing.T @ across[:p] @ construction.root
    own = construction.mixing.T @ mixed + crossed + crossed.T + construction.root @ noise @ construction.root
    of_knockoffs = scatter[p:, :p] @ construction.mixing + across[p:] @ construction.root
    gram = np.block([[scatter[:p, :p], between], [between.T, own]]) / freedom
    xy = np.vstack([scatter[:p, p:], of_knockoffs.T]) / freedom
    # Each column is scaled by its own norm, so that a column and its knockoff are treated alike.
    norms = np.sqrt(np.maximum(gram.diagonal(), 0.0))
    scale = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    return Augmented((gram + gram.T) / 2.0 * scale * scale[:, None], xy * scale[:, None])


def _wishart(seed: int, p: int, freedom: int) -> Floats:
    """Return a Wishart matrix of the unit covariance, by Bartlett's decomposition where it is not singular."""
    if freedom < p:
        rows = normals(seed, max(freedom, 0), p)
        return rows.T @ rows
    lower = np.tril(normals(derive_seed(seed, "below"), p, p), -1)
    lower[np.diag_indices(p)] = np.sqrt(chi_squares(derive_seed(seed, "diagonal"), freedom - np.arange(float(p))))
    return lower @ lower.T


def shrunk_correlation(correlation: Floats, n_rows: float) -> Floats:
    """Return correlations with each eigenvalue shrunk by its own factor, for rows of any Gaussian law.

    Small eigenvalues that are known well stay small. Shrinkage towards no correlation would raise them, and knockoffs
    by such correlations differ from the columns (with `n_rows` = 300, 30 columns and a smallest eigenvalue of .001, the
    share of false columns is .29 at a rate of .2). Columns in a linear relation stay in it where the rows are 5/4 of
    the rank or more.
    Source: Ledoit and Wolf 2022, quadratic-inverse shrinkage.
    """
    p, n = correlation.shape[0], n_rows - 1.0
    values, vectors = np.linalg.eigh(correlation)
    # With weights the effective number of rows may be below that of positive eigenvalues.
    known = min(int(np.count_nonzero(values > _NULL * p)), max(1, int(n)))
    is_singular = known >= _KNOWN * n
    if is_singular and _KNOWN * p < n:
        # With about as many rows as columns the smallest eigenvalues carry no information: fewer rows are assumed.
        known = max(1, int(_KNOWN * min(n, known)))
        n = float(known)
    ratio = (p if is_singular else known) / n
    inverse = 1.0 / values[p - known :]
    width = min(ratio, 1.0 / ratio) ** 0.7 / (p if is_singular else known) ** 0.35
    apart = 1.0 - inverse / inverse[:, None]
    smoothed = apart**2 + width**2
    theta = (apart / smoothed).mean(axis=0)
    amplitude = theta**2 + (width / smoothed).mean(axis=0) ** 2
    shrunk = np.zeros(p)
    if is_singular:
        shrunk[: p - known] = 1.0 / ((ratio - 1.0) * inverse.mean())
        shrunk[p - known :] = 1.0 / (inverse * amplitude)
    else:
        spread = (1.0 - ratio) ** 2 + 2.0 * ratio * (1.0 - ratio) * theta + ratio**2 * amplitude
        shrunk[: p - known] = values[: p - known]
        shrunk[p - known :] = 1.0 / (inverse * spread)
    estimate = (vectors * shrunk) @ vectors.T
    scale = 1.0 / np.sqrt(estimate.diagonal())
    unit: Floats = (estimate + estimate.T) / 2.0 * scale * scale[:, None]
    return unit


def entry_statistics(moments: Augmented, template: Problem, seed: int) -> Floats:
    """Return ``W_j = max(Z_j, Z~_j) sign(Z_j - Z~_j)``, Z the penalties at which columns enter the lasso path.

    With several targets Z is the largest over their paths. Columns and knockoffs are put into random order, because of
    equal ones the first enters.
    """
    n = moments.gram.shape[0]
    order = np.argsort(uniforms(derive_seed(seed, "order"), np.arange(n, dtype=np.uint64)), kind="stable")
    gram, entered = np.ascontiguousarray(moments.gram[np.ix_(order, order)]), np.zeros(n)
    for target, total in enumerate(template.yy.diagonal()):
        problem = replace(
            template,
            gram=gram,
            xy=moments.xy[order, target : target + 1],
            yy=np.array([[total]]),
            mean=np.zeros(n),
            scale=np.ones(n),
            y_mean=np.zeros(1),
            active=gram.diagonal() > 0,
        )
        entered[order] = np.maximum(entered[order], entry_penalties(problem))
    return signed_maximum(entered)


def signed_maximum(importance: Floats) -> Floats:
    """Return ``max(Z_j, Z~_j) sign(Z_j - Z~_j)`` of the importance of columns, followed by that of their knockoffs."""
    own, knockoff = np.split(importance, 2)
    return np.maximum(own, knockoff) * np.sign(own - knockoff)


def ridge_statistics(moments: Augmented) -> Floats:
    """Return ``|b_j| - |b~_j|``, b the coefficients of a ridge regression with a penalty of 0.1."""
    penalised = moments.gram + 0.1 * np.eye(moments.gram.shape[0])
    coefficients = np.sqrt((cho_solve(cho_factor(penalised), moments.xy) ** 2).sum(axis=1))
    own, knockoff = np.split(coefficients, 2)
    difference: Floats = own - knockoff
    return difference


def knockoff_threshold(statistics: Floats, fdr: float) -> float:
    """Return ``min {t > 0: (1 + #{W <= -t}) / max(1, #{W >= t}) <= fdr}``, infinite if there is none.

    Source: Barber and Candes 2015, the "knockoff+" threshold.

    Examples
    --------
    >>> import numpy as np
    >>> knockoff_threshold(np.array([5.0, 4.0, 3.0, -2.0, 1.0]), fdr=0.4)
    3.0
    >>> knockoff_threshold(np.array([5.0, -4.0, 3.0]), fdr=0.4)
    inf
    """
    sizes = np.unique(np.abs(statistics[statistics != 0]))
    ordered = np.sort(statistics)
    n_negative = np.searchsorted(ordered, -sizes, side="right")
    n_positive = ordered.size - np.searchsorted(ordered, sizes, side="left")
    allowed = sizes[(1.0 + n_negative) <= fdr * np.maximum(n_positive, 1)]
    return float(allowed[0]) if allowed.size else float("inf")


def e_values(statistics: Floats, fdr: float) -> Floats:
    """Return the e-value of each column, ``p 1{W_j >= T} / (1 + #{W <= -T})``; their mean is an e-value too.

    Source: Ren and Barber 2024.
    """
    threshold = knockoff_threshold(statistics, fdr)
    if np.isinf(threshold):
        return np.zeros(statistics.size)
    chosen = statistics >= threshold
    return statistics.size * chosen / (1.0 + np.count_nonzero(statistics <= -threshold))


def e_value_threshold(values: Floats, fdr: float) -> float:
    """Return the least e-value that is selected: the k-th largest, for the largest k with at least ``p / (fdr k)``.

    Source: Wang and Ramdas 2022, e-BH: the expected share of false ones is at most `fdr`, under any dependence.
    """
    ordered = np.sort(values)[::-1]
    needed = values.size / (fdr * np.arange(1.0, values.size + 1.0))
    # The mean over draws may be less than a whole draw's by rounding.
    enough = np.flatnonzero(ordered >= needed * (1.0 - 1e-12))
    return float(ordered[enough[-1]]) if enough.size else float("inf")
