"""Singular values and right singular vectors of small factors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpstrf, dtrtri

from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import Floats

_WELL_APART = 0.1  # Least eigenvalue of the cosines between rows for which one Cholesky factorisation is enough
_APART = 1e-8  # Least eigenvalue for which two are


_BAND = 4096
_EPS = float(np.finfo(np.float64).eps)

About = Literal["mean", "zero"]
"""The point about which the directions and norms of columns are those of the rows."""


@dataclass(frozen=True)
class Directions:
    """Squared singular values (descending, shape (m,)) and right singular vectors (rows, shape (m, n_columns))."""

    squares: Floats
    vectors: Floats

    def apply(self, function: Callable[..., Floats], *columns: Floats) -> Floats:
        """Return ``function(self, *columns)``; of a sketch in panels, each panel makes its own columns of that."""
        return function(self, *columns)

    def remembered(self, function: Callable[..., Floats], **arguments: float) -> Floats:
        """Return ``function(self, **arguments)``; directions of a sketch in panels compute it once."""
        return function(self, **arguments)

    def columns(self, columns: NDArray[np.integer]) -> Floats:
        """Return the entries of the vectors in some columns, shape (m, len(columns))."""
        return self.vectors[:, columns]

    def column_norms(self, scale: float) -> Floats:
        """Return the squared norms over `scale` of the columns of the matrix with these directions."""
        norms: Floats = np.einsum("i,ij,ij->j", self.squares / scale, self.vectors, self.vectors)
        return norms

    def top(self) -> Floats:
        """Return the first two vectors."""
        return self.vectors[:2]


class Spectrum(Protocol):
    """Knowledge of the spectrum of rows A that a summary gives, by a sketch of them or by their moments.

    For every direction x, ``|B x|^2 <= |A x|^2 <= |B x|^2 + Delta |x|^2``, where B is the sketch (the rows themselves
    for moments) and Delta the `shrinkage`, up to `single_rounding`; the same about the mean.
    """

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    @property
    def n_features(self) -> int:
        """Number of columns p."""

    @property
    def weight(self) -> float:
        """Total weight of the rows."""

    @property
    def mean(self) -> Floats:
        """Means of the columns, shape (p,)."""

    @property
    def accepts_missing(self) -> bool:
        """Whether values may be missing, so that the moments are of pairs of columns and not of the rows."""

    @property
    def size(self) -> int | None:
        """Rows of the sketch; None for moments."""

    @property
    def is_exact(self) -> bool:
        """Whether nothing was lost, so that `shrinkage` is 0."""

    @property
    def shrinkage(self) -> float:
        """Delta."""

    @property
    def single_rounding(self) -> float:
        """Bound, in the Frobenius norm, of the error by products in float32."""

    @property
    def product_rounding(self) -> float:
        """Relative rounding of the products in `centered_gram`; 0 where no direction is near it (`ranked_gram`)."""

    @property
    def directions(self) -> Directions:
        """Directions of B."""

    @property
    def centered_directions(self) -> Directions:
        """Directions of B about the mean."""

    @property
    def column_squared_norms(self) -> Floats:
        """Exact squared norms of the columns of A, shape (p,)."""

    @property
    def centered_column_squared_norms(self) -> Floats:
        """The same about their means."""

    @property
    def centered_squared_norm(self) -> float:
        """Their sum: the total scatter."""

    @property
    def centered_gram(self) -> Floats | None:
        """Gram matrix of A about the mean, up to a factor; None for a sketch that does not keep it."""

    @property
    def centered_sketch(self) -> Floats:
        """Rows of B about the mean."""


FEW_ROWS = 4  # Columns of a Gram matrix for each of its rows from which its factor is smaller than it is by far


def symmetric_directions(gram: Floats, rank: int | None = None) -> Directions:
    """Return the eigenpairs of a positive semidefinite matrix, descending, negative rounding clipped to zero.

    `rank`: What its rank cannot exceed but by rounding, such as the number of rows whose products it holds. Where that
        is a quarter of its order or less, at most as many pairs are returned, and all others are zero.

    Cost: some 10 p^3 flops for p columns; p^2 rank where the rank is small (pivoted Cholesky factor, and its rows).
    """
    if rank is not None and FEW_ROWS * rank <= gram.shape[0]:
        rounding = float(np.finfo(np.float64).eps) * float(gram.diagonal().max(initial=0.0))
        factor, pivots, size, _ = dpstrf(gram, lower=1, tol=rounding)
        rows = np.zeros((min(size, rank), gram.shape[0]))
        rows[:, pivots - 1] = np.tril(factor)[:, : len(rows)].T
        return row_directions(rows)
    lam, vectors = np.linalg.eigh(gram)
    return Directions(np.maximum(lam[::-1], 0.0), np.ascontiguousarray(vectors[:, ::-1].T))


def row_directions(rows: Floats, *, in_place: bool = False) -> Directions:
    """Return the squared singular values and right singular vectors of a matrix with few rows.

    The rows must be finite, because LAPACK's SVD may never return on infinities; summaries refuse such rows. With
    `in_place` the vectors may take the place of the rows, which are then lost.

    Cost: 3 m^2 p flops for m rows of p columns that are nearly orthogonal, twice that for other ones; where they are
    nearly dependent an SVD, more than ten times that.
    """
    if rows.shape[0] == 0 or rows.shape[1] == 0:
        return Directions(np.zeros(0), np.zeros((0, rows.shape[1])))
    factors = _cholesky_factors(rows)
    if factors is None:
        _, s, vt = np.linalg.svd(rows, full_matrices=False)
        return Directions(s * s, vt)
    lower, turn, least = factors
    if least < _WELL_APART:
        # A second factorisation, of rows that are nearly orthonormal, removes the rounding of the first.
        rows = _turned(turn, rows, in_place)
        factor = np.linalg.cholesky(rows @ rows.T)
        lower, turn = lower @ factor, dtrtri(factor, lower=1)[0]
    _, s, vt = np.linalg.svd(lower)
    return Directions(s * s, _turned(vt @ turn, rows, in_place))


def gram_directions(gram: Callable[[Floats | None], Floats]) -> tuple[Floats, Floats]:
    """Return ``(squares, T)`` of rows R whose products are known: T R are their right singular vectors, descending.

    `gram`: Returns ``(T R) (T R)'`` for a matrix T, and ``R R'`` for None. It is called two or three times.
    Directions whose square is the rounding of the products of longer rows are left out. T R is orthonormal to rounding
    where the rows are far from dependent, as those of a sketch are, whatever their lengths.
    """
    with one_blas_thread():
        products = gram(None)
        norms = np.sqrt(np.maximum(products.diagonal(), 0.0))
        (present,) = np.nonzero(norms)
        if not present.size:
            return np.zeros(0), np.zeros((0, norms.size))
        norms = norms[present]
        lam, vectors = np.linalg.eigh(products[np.ix_(present, present)] / norms[:, None] / norms)
        apart = lam > 16.0 * norms.size * _EPS
        roots, vectors = np.sqrt(lam[apart]), vectors[:, apart]
        lower, turn = norms[:, None] * vectors * roots, np.zeros((roots.size, products.shape[0]))
        turn[:, present] = vectors.T / roots[:, None] / norms
        # Once more, of rows that are nearly orthonormal, removes the rounding of the first; twice where they were not.
        for _ in range(2):
            products = gram(turn)
            off = float(np.abs(products - np.eye(roots.size)).max(initial=0.0))
            factor = np.linalg.cholesky(products)
            lower, turn = lower @ factor, dtrtri(factor, lower=1)[0] @ turn
            if off < _APART:
                break
        _, s, vt = np.linalg.svd(lower, full_matrices=False)
        return s * s, vt @ turn


def _turned(turn: Floats, rows: Floats, in_place: bool) -> Floats:
    """Return the product with a square matrix, in place if so."""
    out = rows if in_place else np.empty_like(rows)
    for a in range(0, rows.shape[1], _BAND):
        out[:, a : a + _BAND] = turn @ rows[:, a : a + _BAND]
    return out


def _cholesky_factors(rows: Floats) -> tuple[Floats, Floats, float] | None:
    """Return ``(L, T, least)`` with ``rows = L (T rows)``; None where the rows are too close to dependent.

    T rows are orthonormal to some units of rounding over `least`, the least eigenvalue of the cosines between the rows.
    The Cholesky factor is that of the cosines, so that short rows are as accurate as long ones.
    """
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    if rows.shape[0] >= rows.shape[1] or not norms.min() > 0:
        return None
    cosines = (rows @ rows.T) / norms[:, None] / norms
    least = float(np.linalg.eigvalsh(cosines)[0])
    if least < _APART:
        return None
    factor = np.linalg.cholesky(cosines)
    return norms[:, None] * factor, dtrtri(factor, lower=1)[0] / norms, least


def constant_columns(summary: Spectrum) -> NDArray[np.bool_]:
    """Return which columns vary by no more than the rounding of their means, shape (p,)."""
    scatter = summary.centered_column_squared_norms
    return np.asarray(scatter <= float(np.max(summary.weight)) * (4.0 * _EPS * summary.mean) ** 2)


def varying_directions(directions: Directions, constant: NDArray[np.bool_], total: float) -> Directions:
    """Return the directions with the columns that only rounding lets vary set to zero, if that changes them.

    `total`: Sum of squares of the columns that do vary.
    """
    if total == 0:
        return Directions(np.zeros(0), np.zeros((0, constant.size)))
    noise = float(np.einsum("j,ji->", directions.squares, directions.vectors[:, constant] ** 2))
    if noise <= constant.size * _EPS * total:
        return directions
    rows = np.sqrt(directions.squares)[:, None] * directions.vectors
    rows[:, constant] = 0.0
    with one_blas_thread():
        return row_directions(rows)


def squares_about(summary: Spectrum, about: About) -> Floats:
    """Return the squared norms of the columns about their means, 0 for `constant_columns`, or about zero."""
    if about == "zero":
        return summary.column_squared_norms
    return np.where(constant_columns(summary), 0.0, summary.centered_column_squared_norms)


def directions_about(summary: Spectrum, about: About) -> Directions:
    """Return the directions of B about the means, without part in `constant_columns`, or about zero."""
    if about == "zero":
        return summary.directions
    constant = constant_columns(summary)
    total = float(summary.centered_column_squared_norms[~constant].sum())
    directions = varying_directions(summary.centered_directions, constant, total)
    if not constant.any():
        return directions
    return Directions(directions.squares, np.where(constant, 0.0, directions.vectors))


def column_directions(summary: Spectrum, about: About) -> Directions | Any:
    """Return `directions_about`; those of a sketch in panels stay there, as `PanelDirections`."""
    return (
        summary.directions_in_panels(about)
        if hasattr(summary, "directions_in_panels")
        else directions_about(summary, about)
    )


def centered_in_place(summary: Spectrum) -> Directions | Any:
    """Return the directions about the means; those of a sketch in panels stay there, and have no constant columns."""
    if hasattr(summary, "directions_in_panels"):
        return summary.directions_in_panels("mean")
    return summary.centered_directions


_SINGLE_NOISE = 1 / 8
"""Share of the bound of `single_noise` below which a direction is taken for rounding; no bound rests on it.

Columns of mostly one value have most of it, as their products are all rounded alike: .08 of rows of low rank.
"""


def single_noise(summary: Spectrum, directions: Directions | Any) -> Floats:
    """Return the square below which each direction, about the mean or zero, is taken for rounding of float32 products.

    Errors of products are in proportion to the columns' norms d_j: a direction v in which the rows do not vary has at
    most s (sum_j d_j |v_j|)^2 / sum_j d_j^2, s the `single_rounding`. So columns in small units keep their directions.
    """
    single = summary.single_rounding
    if not (single > 0 and summary.product_rounding > 0):
        return np.zeros(directions.squares.size)
    norms = np.sqrt(summary.centered_column_squared_norms)
    shares = (np.abs(directions.vectors) @ norms) ** 2 / float(norms @ norms)
    noise: Floats = _SINGLE_NOISE * single * shares
    return noise


def without_single_noise(summary: Spectrum, directions: Directions) -> Directions:
    """Return the directions without those that are `single_noise`."""
    real = directions.squares >= single_noise(summary, directions)
    return directions if real.all() else Directions(directions.squares[real], directions.vectors[real])


def hidden_squares(squares: Floats, k: int, total: float, shrinkage: float, single: float) -> float:
    """Return a bound of what the sum of the k largest squares of rows A is above that of their sketch B.

    With ``D = A'A - B'B``, that sum is the largest tr(P A'A) = tr(P B'B) + tr(P D) of projections P on k directions.
    Of a Gram matrix ``tr(P D) <= ||P||_F ||D||_F``, at most sqrt(k) times the `single_rounding`: setting its negative
    eigenvalues to 0 brings it closer to A'A. Of a sketch ``-F <= D <= shrinkage I`` for some F >= 0 with a trace of at
    most `single_rounding`: ``tr(P D) <= k shrinkage``, and ``tr(P D) <= tr(P (D + F)) <= tr(D) + tr(F)``.

    `squares`: Those of B, all of them.
    `total`: ``||A||_F^2``.
    """
    if shrinkage == 0:
        return float(np.sqrt(k)) * single
    return min(k * shrinkage, max(total - float(squares.sum()), 0.0) + single)


def scatter_rounding(summary: Spectrum) -> Floats:
    """Return a bound of the rounding of each column's sum of squares about its mean, shape (p,).

    Sums carry up to some units a row. A mean is rounded at each merge, which far from the origin is more than that: an
    error e of it changes a sum of squares S of total weight W by at most ``2 sqrt(W S) e + W e^2``.
    """
    weight, scatter, off = float(np.max(summary.weight)), summary.centered_column_squared_norms, _mean_errors(summary)
    return _sum_units(summary) * scatter + 2.0 * np.sqrt(weight * scatter) * off + weight * off * off


def gram_rounding(summary: Spectrum) -> float:
    """Return a bound, in the spectral norm, of the rounding of the Gram matrix about the means; as `scatter_rounding`.

    Errors e of the means change it by ``A_c'w e' + e w'A_c + W e e'`` at most.
    """
    weight, total = float(np.max(summary.weight)), summary.centered_squared_norm
    off = float(np.linalg.norm(_mean_errors(summary)))
    return _sum_units(summary) * total + 2.0 * float(np.sqrt(weight * total)) * off + weight * off * off


def _mean_errors(summary: Spectrum) -> Floats:
    return 2.0 * _EPS * summary.n_rows * np.abs(summary.mean)


def _sum_units(summary: Spectrum) -> float:
    return 8.0 * _EPS * (summary.n_rows + 8)


def share_of_the_mean(summary: Spectrum) -> float:
    """Return which share of all squares the mean of the rows is: near 1 where the rows are nearly parallel."""
    mean = float(np.max(summary.weight)) * float(summary.mean @ summary.mean)
    total = mean + summary.centered_squared_norm
    return mean / total if total > 0 else 0.0


def subspace_angle(squares: Floats, n_components: int, shrinkage: float, n_columns: int) -> float | None:
    """Return a bound of the sine of the angle between the top k directions of a sketch and those of the data.

    ``sin(angle) <= Delta / (s_k^2 - s_{k+1}^2 - Delta)`` where that is positive (at most 1), else None.

    `squares` of shape (m,): Squared singular values of the sketch, descending.
    `n_components`: k.
    `shrinkage`: Delta: bound of the loss of the sketch in any direction; it gains in none.
    `n_columns`: Number of columns; Delta includes a rounding of n_columns units of s_1^2, so that equal values have no
        angle.

    Source: Davis and Kahan 1970 (sin theta theorem).

    Examples
    --------
    >>> subspace_angle(np.array([9.0, 4.0, 1.0]), 2, 0.5, 3), subspace_angle(np.array([9.0, 4.0, 4.0]), 2, 0.5, 3)
    (0.2..., None)
    """
    if not 0 < n_components <= squares.size:
        return None
    error = shrinkage + n_columns * float(np.finfo(np.float64).eps) * float(squares.max(initial=0.0))
    following = float(squares[n_components]) if squares.size > n_components else 0.0
    gap = float(squares[n_components - 1]) - following - error
    return min(error / gap, 1.0) if gap > 0 else None
