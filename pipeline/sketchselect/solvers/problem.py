"""The standardised least-squares problem in terms of second moments, the input of every solver.

A covariance that is not positive semi-definite, from pairs of columns or by rounding, is replaced by the nearest that
is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchselect.errors import BadParameter, EmptyInput, NotFinite
from sketchselect.linalg.validation import Floats

_EPS = float(np.finfo(np.float64).eps)
_TILE = 256
_COPIES = 1e-10
"""Columns whose correlation is closer to 1 or -1 than this are copies, up to rounding."""


class FewRows:
    """Correlations of many columns as products of few rows, computed where they are looked up.

    `rows` of shape (r, p): B, with ``B'B`` the correlations.
    """

    def __init__(self, rows: Floats) -> None:
        self.rows = rows
        self.shape = (rows.shape[1], rows.shape[1])

    def __getitem__(self, index: Any) -> Floats:
        """Return rows of the matrix, for a number or an array; or a block, for two arrays of `numpy.ix_`."""
        if isinstance(index, tuple):
            first, second = (np.ravel(at) for at in index)
            return self.rows[:, first].T @ self.rows[:, second]
        return self.rows[:, index].T @ self.rows


@dataclass(frozen=True)
class Problem:
    """Least squares of centred targets on standardised columns, as second moments.

    The objective of all solvers is ``f(b) = (1/2) b'S b - s'b + yy/2`` (plus a penalty), which equals
    ``(1/2n) ||y - X b||^2`` for centred targets and centred columns of unit variance: Proposition 1 of the source.

    Parameters
    ----------
    gram : array of shape (p, p), or FewRows
        S, the correlations: symmetric, with unit diagonal; zero in the rows and columns of constant columns.
    xy : array of shape (p, q)
        s: covariances of the standardised columns with the targets, in units of the targets.
    yy : array of shape (q, q)
        Covariance of the targets.
    n : float
        Number of rows; the effective number for weighted rows.
    mean, scale : array of shape (p,)
        Mean and population standard deviation of the columns; the scale of a constant column is 0.
    y_mean : array of shape (q,)
        Means of the targets.
    active : array of bool, shape (p,)
        False for constant columns, whose coefficients are zero.

    Notes
    -----
    Source: Sun, Guo and Barbu 2019, section 2 and Proposition 1.
    """

    gram: Floats | FewRows
    xy: Floats
    yy: Floats
    n: float
    mean: Floats
    scale: Floats
    y_mean: Floats
    active: NDArray[np.bool_]

    @cached_property
    def correlation(self) -> Floats:
        """S as an array of shape (p, p)."""
        return self.gram if isinstance(self.gram, np.ndarray) else self.gram.rows.T @ self.gram.rows

    @cached_property
    def n_distinct(self) -> int:
        """Number of columns that vary, without copies of others in another unit or of the other sign.

        Copies have the same products with random numbers, up to the sign, and so are neighbours in the order of these;
        their correlation shows which neighbours are copies. One product with S.
        """
        at = np.flatnonzero(self.active)
        if isinstance(self.gram, FewRows):
            rows = self.gram.rows
            products = np.random.default_rng(0).standard_normal(rows.shape[0]) @ rows[:, at]
        else:
            products = (np.random.default_rng(0).standard_normal(self.n_features) @ self.gram)[at]
        order = at[np.argsort(np.abs(products))]
        first, second = order[:-1], order[1:]
        if isinstance(self.gram, FewRows):
            neighbours = np.einsum("ij,ij->j", rows[:, first], rows[:, second])
        else:
            neighbours = self.gram[first, second]
        return int(at.size - np.count_nonzero(np.abs(neighbours) > 1.0 - _COPIES))

    @property
    def n_features(self) -> int:
        """Number of columns, p."""
        return int(self.xy.shape[0])

    @property
    def n_targets(self) -> int:
        """Number of targets, q."""
        return int(self.xy.shape[1])

    def original_units(self, coef: Floats) -> tuple[Floats, Floats]:
        """Return coefficients and intercept for the columns in their original units.

        Parameters
        ----------
        coef : array of shape (p,) or (p, q)
            Coefficients of the standardised columns. Of shape (p,) they are for the first target.

        Returns
        -------
        coef : array of the same shape
            ``b_j / scale_j``; 0 for constant columns.
        intercept : float array of shape () or (q,)
            ``y_mean - mean'coef``.
        """
        scale = self.scale if coef.ndim == 1 else self.scale[:, None]
        out = np.divide(coef, scale, out=np.zeros(coef.shape), where=scale > 0)
        y_mean = self.y_mean[0] if coef.ndim == 1 else self.y_mean
        return out, np.asarray(y_mean - self.mean @ out)

    def rss(self, coef: Floats, target: int = 0) -> Any:
        """Return the mean squared residual, ``yy - 2 b's + b'S b``, never negative; one per target for (p, q).

        Parameters
        ----------
        coef : array of shape (p,) or (p, q)
            Coefficients of the standardised columns.
        target : int
            Target of `coef` of shape (p,).

        Notes
        -----
        Cost: k^2 for k non-zero coefficients. Source: ibid., centred.
        """
        rows = coef[:, None] if coef.ndim == 1 else coef
        used = np.flatnonzero((rows != 0).any(axis=1))
        b = rows[used]
        xy = self.xy[used, target : target + 1] if coef.ndim == 1 else self.xy[used]
        total = self.yy[target, target] if coef.ndim == 1 else self.yy.diagonal()
        fitted = ((2.0 * xy - self.gram[np.ix_(used, used)] @ b) * b).sum(axis=0)
        out = np.maximum(total - fitted, 0.0)
        return float(out[0]) if coef.ndim == 1 else out


def standardize(
    covariance: ArrayLike,
    xy: ArrayLike,
    yy: ArrayLike,
    *,
    mean: ArrayLike,
    y_mean: ArrayLike,
    n: float,
    reuse_memory: bool = False,
) -> Problem:
    """Return the problem with columns scaled to unit variance.

    A column (or target) is constant if its standard deviation is at most the rounding of its mean, ``8 eps |mean|``.

    Parameters
    ----------
    covariance : array of shape (p, p)
        Population covariance of the columns, ``(1/W) sum w (x - mean)(x - mean)'``; made symmetric.
    xy : array of shape (p,) or (p, q)
        Covariances of the columns with the targets.
    yy : float or array of shape (q, q)
        Covariance of the targets.
    mean : array of shape (p,)
        Means of the columns.
    y_mean : float or array of shape (q,)
        Means of the targets.
    n : float
        Number of rows; the effective number for weighted rows.
    reuse_memory : bool
        Overwrite `covariance` with the correlations, which saves 8 p^2 bytes.

    Raises
    ------
    BadParameter
        If shapes contradict each other, a variance is negative or `n` is not a positive number.
    EmptyInput
        If there is no column or no target.
    NotFinite
        If a moment is NaN or infinite.

    Notes
    -----
    Cost: some sweeps over the p x p matrix. Bytes: 8 p^2, 0 with `reuse_memory`.

    Examples
    --------
    >>> problem = standardize([[4.0, 1.0], [1.0, 1.0]], [2.0, 1.0], 2.0, mean=[0.0, 0.0], y_mean=1.0, n=10)
    >>> problem.correlation.tolist(), problem.xy.ravel().tolist()
    ([[1.0, 0.5], [0.5, 1.0]], [1.0, 1.0])
    """
    s = np.asarray(covariance, dtype=np.float64)

    def scaled(inverse: Floats, active: NDArray[np.bool_]) -> Floats:
        ours = reuse_memory and s.flags.c_contiguous and s.flags.writeable
        out: Floats = s if ours else np.empty(s.shape)
        _scale(s, inverse, out)
        np.fill_diagonal(out, active.astype(np.float64))
        return out

    return _standardized(s, True, scaled, xy, yy, mean, y_mean, float(n))


def standardize_rows(
    rows: Floats, xy: ArrayLike, yy: ArrayLike, *, mean: ArrayLike, y_mean: ArrayLike, n: float
) -> Problem:
    """Return the problem of `standardize` with the covariance ``B'B`` of few rows of many columns, which stay rows.

    `rows` of shape (r, p): B.
    """
    variances = (rows * rows).sum(axis=0)
    return _standardized(variances, False, lambda inverse, _: FewRows(rows * inverse), xy, yy, mean, y_mean, float(n))


def _standardized(
    covariance: Floats,
    is_square: bool,
    scaled: Callable[[Floats, NDArray[np.bool_]], Floats | FewRows],
    xy: ArrayLike,
    yy: ArrayLike,
    mean: ArrayLike,
    y_mean: ArrayLike,
    n: float,
) -> Problem:
    """Return the standardised problem.

    `covariance`: That of the columns, or (unless `is_square`) their variances.
    `scaled`: Inverse standard deviations (0 for constants) and the mask of the columns that vary -> correlations.
    """
    targets = np.array(xy, dtype=np.float64)
    targets = targets[:, None] if targets.ndim == 1 else targets
    p = targets.shape[0]
    within = np.array(yy, dtype=np.float64).reshape(-1, 1) if np.ndim(yy) == 0 else np.array(yy, dtype=np.float64)
    center, y_center = np.array(mean, dtype=np.float64), np.atleast_1d(np.array(y_mean, dtype=np.float64))
    _check(covariance, (p, p) if is_square else (p,), targets, within, center, y_center, n)

    scale, active = _scales(covariance.diagonal() if is_square else covariance, center, "column")
    y_scale, y_active = _scales(within.diagonal(), y_center, "target")
    # One factor at a time: the product of two scales may leave float64 where the correlation does not.
    inverse = np.divide(1.0, scale, out=np.zeros(p), where=active)
    out = scaled(inverse, active)
    targets *= inverse[:, None]
    targets[:, ~y_active] = 0.0
    within = (within + within.T) / 2.0
    within[~y_active] = 0.0
    within[:, ~y_active] = 0.0
    np.fill_diagonal(within, y_scale**2)
    return Problem(out, targets, within, n, center, scale, y_center, active)


def _check(
    s: Floats, shape: tuple[int, ...], targets: Floats, within: Floats, center: Floats, y_center: Floats, n: float
) -> None:
    p, q = targets.shape if targets.ndim == 2 else (0, 0)
    if p == 0 or q == 0:
        raise EmptyInput(f"a regression needs at least one column and one target, got {p} and {q}")
    for name, array, expected in (
        ("covariance", s, shape),
        ("yy", within, (q, q)),
        ("mean", center, (p,)),
        ("y_mean", y_center, (q,)),
    ):
        if array.shape != expected:
            raise BadParameter(f"{name} has shape {array.shape}; xy of {p} columns and {q} targets needs {shape}")
    if not (np.isfinite(n) and n > 0):
        raise BadParameter(f"n must be a positive number of rows, got {n}")
    for name, array in (("covariance", s), ("xy", targets), ("yy", within), ("mean", center), ("y_mean", y_center)):
        # A sum is finite only if every entry is, short of overflow; only otherwise are all entries checked.
        with np.errstate(all="ignore"):
            if np.isfinite(array.sum(axis=0)).all():
                continue
        bad = ~np.isfinite(array)
        if bad.any():
            where = ", ".join(str(int(i)) for i in np.unravel_index(int(bad.argmax()), array.shape))
            raise NotFinite(f"{name} is not finite at ({where}); were the moments collected from clean data?")


def _scales(variances: Floats, means: Floats, what: str) -> tuple[Floats, NDArray[np.bool_]]:
    """Return standard deviations (0 for constants) and the mask of those that are not constant."""
    if (variances < 0).any():
        raise BadParameter(f"the variance of {what} {int((variances < 0).argmax())} is negative; pass a covariance")
    sd = np.sqrt(variances)
    # After merging, constant columns have a scatter of the size of the rounding of the mean.
    active = (sd > 8.0 * _EPS * np.abs(means)) & (variances > 1e-304)
    return np.where(active, sd, 0.0), active


def _scale(matrix: Floats, factors: Floats, out: Floats) -> None:
    """Set ``out_ij = m_ij f_i f_j``, averaged with its transpose, tile by tile: memory is read and written once."""
    p = matrix.shape[0]
    for i in range(0, p, _TILE):
        rows = slice(i, i + _TILE)
        for j in range(i, p, _TILE):
            columns = slice(j, j + _TILE)
            upper = matrix[rows, columns] * factors[rows, None]
            upper *= factors[columns]
            lower = matrix[columns, rows] * factors[columns, None]
            lower *= factors[rows]
            upper += lower.T
            upper *= 0.5
            out[rows, columns] = upper
            out[columns, rows] = upper.T


def nearest_psd(covariance: Floats) -> Floats:
    """Return a nearby positive semi-definite matrix with the same diagonal.

    Negative eigenvalues of the correlation matrix are set to zero and its diagonal is rescaled to one, so the result
    does not depend on the units of the columns. A matrix that is positive semi-definite to rounding is returned
    unchanged.

    Parameters
    ----------
    covariance : array of shape (p, p)
        Symmetric; columns of zero variance stay zero.

    Notes
    -----
    Cost: an eigendecomposition, about 9 p^3; 3 p^2 numbers. Source: Higham 2002, one step of the alternating
    projections.

    Examples
    --------
    >>> fixed = nearest_psd(np.array([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]]))
    >>> bool(np.linalg.eigvalsh(fixed).min() > -1e-12), fixed.diagonal().round(12).tolist()
    (True, [1.0, 1.0, 1.0])
    """
    scale = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    correlation = covariance * inverse[:, None] * inverse
    values, vectors = np.linalg.eigh((correlation + correlation.T) * 0.5)
    if values.size == 0 or values[0] >= -values.size * np.finfo(np.float64).eps * max(values[-1], 1.0):
        return covariance
    positive = values > 0
    root = vectors[:, positive] * np.sqrt(values[positive])
    length = np.sqrt((root * root).sum(axis=1))
    root *= np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)[:, None]
    out: Floats = (root @ root.T) * scale[:, None] * scale
    np.fill_diagonal(out, np.maximum(covariance.diagonal(), 0.0))
    return out
