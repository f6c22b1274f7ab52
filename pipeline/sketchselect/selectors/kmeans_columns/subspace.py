"""Top directions of the centred rows of a summary, with rigorous bounds of the remainders of the columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import Incompatible
from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.sketch.spectrum import Directions, row_directions, subspace_angle
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.summaries import FrequentDirections, Moments

Method = Literal["exact", "fast"]

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class ColumnSubspace:
    """Orthonormal directions Z of the centred rows A, and rigorous bounds of the remainder E = A - A Z Z'."""

    vectors: Floats  # shape (n_columns, q): Z; fewer directions than `n_directions` if the rows have a lower rank
    residual: float  # At least ``||E||_F^2``
    column_residuals: Floats  # shape (n_columns,): At least ``||E e_i||^2``
    scatter: Floats  # shape (n_columns,): ``||A e_i||^2``
    squares: Floats  # Squared singular values of the sketch, descending
    shrinkage: float  # Delta of the sketch; 0 if it is exact
    rounding: float  # Bound of the rounding of sums of squares of the whole matrix
    # Bound of the rounding of a squared singular value by products in float32; see `single_rounding` of the summary
    single_rounding: float = 0.0
    # Bound of the sine of the angle between Z and the top directions of the rows; None if no bound follows
    angle: float | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the directions are those of the rows themselves, to rounding, as the theorems require."""
        return self.shrinkage == 0 and self.single_rounding == 0

    @property
    def leverage(self) -> Floats:
        """``||z_i||^2`` of every column."""
        squares: Floats = np.einsum("ij,ij->i", self.vectors, self.vectors)
        return squares

    @property
    def total(self) -> float:
        """``||A||_F^2``."""
        return float(self.scatter.sum())

    def lower_bound(self, n_clusters: int) -> float:
        """Return a lower bound of the objective of every partition of the rows into `n_clusters` clusters.

        ``||A||_F^2 - sum_{i<k} s_i^2 - min((k - 1) Delta, T)``, minus the bound of the rounding.
        """
        lost = max(self.total - float(self.squares.sum()), 0.0)
        unseen = min((n_clusters - 1) * self.shrinkage, lost) if self.shrinkage > 0 else 0.0
        unseen += (n_clusters - 1) * self.single_rounding
        return max(self.total - float(self.squares[: n_clusters - 1].sum()) - unseen - self.rounding, 0.0)


def column_subspace(
    summary: FrequentDirections | Moments, n_directions: int, svd: Method = "exact", epsilon: float = 0.5, seed: int = 0
) -> ColumnSubspace:
    """Return the top directions of the rows of a summary about their mean.

    With B the sketch, Z the directions and r_i = ||A e_i||^2 - ||B e_i||^2, ``||E||_F^2 <= ||A||_F^2 - ||B Z||_F^2``
    and ``||E e_i||^2 <= ||B (I - Z Z') e_i||^2 + min(Delta (1 - ||z_i||^2), (sqrt(r_i) + sqrt(Delta) ||z_i||)^2)``;
    what products in float32 may add to B (`single_rounding`) is added to Delta, to r_i and to both bounds.

    `n_directions`: k; fewer are returned where the rank is lower.
    `svd`, "exact" or "fast": Singular vectors of the sketch, or those of a random projection of it.
    `epsilon`: For "fast": the expected residual is at most 1 + epsilon times the best.
    `seed`: Of the projection.
    Cost: the spectrum of the sketch (which the bounds need also for "fast").
    """
    if getattr(summary, "missing", None) is not None:
        raise Incompatible("column selection with a guarantee needs complete rows, not moments with missing values")
    scatter = summary.centered_column_squared_norms
    constant = scatter <= float(np.max(summary.weight)) * (4.0 * _EPS * summary.mean) ** 2
    directions = _of_varying(summary.centered_directions, constant, float(scatter[~constant].sum()))
    top = float(directions.squares.max(initial=0.0))
    rank = int(np.count_nonzero(directions.squares > scatter.size * _EPS * top))
    width = min(n_directions, rank)
    with one_blas_thread():
        if svd == "fast" and 0 < width < rank:
            vectors = _projected(directions, width, epsilon, seed)
            left = directions.vectors - (directions.vectors @ vectors) @ vectors.T
            left_squares = np.einsum("j,ji,ji->i", directions.squares, left, left)
            captured = float(np.einsum("j,jq->", directions.squares, (directions.vectors @ vectors) ** 2))
        else:
            vectors = np.ascontiguousarray(directions.vectors[:width].T)
            others = directions.vectors[width:]
            left_squares = np.einsum("j,ji,ji->i", directions.squares[width:], others, others)
            captured = float(directions.squares[:width].sum())
    # A column that never varies is orthogonal to every direction, whatever the rounding.
    vectors[constant] = 0.0
    slack = _column_rounding(summary, scatter)
    total = float(scatter.sum())
    rounding = float(slack.sum()) + 8.0 * _EPS * (scatter.size + 8) * total
    delta = summary.shrinkage if isinstance(summary, FrequentDirections) else 0.0
    single = summary.single_rounding
    leverage = np.minimum(np.einsum("ij,ij->i", vectors, vectors), 1.0)
    unseen = np.zeros(scatter.size)
    if delta > 0:
        seen = np.einsum("j,ji,ji->i", directions.squares, directions.vectors, directions.vectors)
        missed = np.sqrt(np.maximum(scatter - seen, 0.0) + single + slack)
        unseen = np.minimum(delta * (1.0 - leverage), (missed + np.sqrt((delta + single) * leverage)) ** 2)
    # The spectrum is that of a matrix within some units of the largest eigenvalue.
    angle = None
    if width and not (svd == "fast" and width < rank):
        angle = subspace_angle(directions.squares, width, delta + single, scatter.size)
    spectral = 4.0 * scatter.size * _EPS * top + single * (1.0 - leverage)
    residuals = left_squares + unseen + spectral + slack
    return ColumnSubspace(
        vectors,
        max(total - captured, 0.0) + width * single + rounding,
        np.where(scatter > 0, residuals, 0.0),
        scatter,
        directions.squares,
        delta,
        rounding,
        single,
        angle,
    )


def _of_varying(directions: Directions, constant: NDArray[np.bool_], total: float) -> Directions:
    """Return the directions with the columns that only rounding lets vary set to zero, if that changes them."""
    if total == 0:
        return Directions(np.zeros(0), np.zeros((0, constant.size)))
    noise = float(np.einsum("j,ji->", directions.squares, directions.vectors[:, constant] ** 2))
    if noise <= constant.size * _EPS * total:
        return directions
    rows = np.sqrt(directions.squares)[:, None] * directions.vectors
    rows[:, constant] = 0.0
    with one_blas_thread():
        return row_directions(rows)


def _projected(directions: Directions, width: int, epsilon: float, seed: int) -> Floats:
    from sketchselect.linalg.columns.draws import approximate_directions, combinations, gaussians

    rows = np.sqrt(directions.squares)[:, None] * directions.vectors
    draws = gaussians(seed, (rows.shape[0], combinations(width, epsilon)))
    return approximate_directions(rows.T @ draws, lambda m: rows.T @ (rows @ m), width)


def _column_rounding(summary: FrequentDirections | Moments, scatter: Floats) -> Floats:
    """Return a bound of the rounding of each column's scatter.

    Sums carry up to some units a row. A mean is rounded at each merge, which far from the origin is more than that: an
    error e of it changes a scatter by at most 2 sqrt(W scatter) e + W e^2.
    """
    n_rows, weight = summary.n_rows, float(np.max(summary.weight))
    off = 2.0 * _EPS * n_rows * np.abs(summary.mean)
    slack: Floats = 8.0 * _EPS * (n_rows + 8) * scatter + 2.0 * np.sqrt(weight * scatter) * off + weight * off * off
    return slack
