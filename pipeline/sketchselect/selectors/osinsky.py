"""Columns whose span is near the data: Osinsky's derandomised volume sampling, on the directions of a sketch."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, solve_triangular

from sketchselect.linalg.parameters import Count, HalfLife, Size, SketchSize
from sketchselect.linalg.pivoting import TIE
from sketchselect.linalg.spectrum import Directions, Spectrum, row_directions, squares_about, without_single_noise
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import Floats
from sketchselect.selectors.base import Selection, rank, require_directions
from sketchselect.selectors.greedy import ROUNDING, DirectionsSelector

Indices = NDArray[np.int64]

_BAND = 4096
_EPS = float(np.finfo(np.float64).eps)


def near_columns(tail: Floats, vectors: Floats, extra: Floats, alive: NDArray[np.bool_]) -> tuple[Indices, float]:
    """Return r columns J, in order of choice, and the squared error of predicting all columns from them.

    The data are the rows ``tail + (anything) vectors`` and below them ``diag(sqrt(extra))``: with V = `vectors`, M the
    matrix ``I - S_J (V S_J)^-1 V`` (S_J the columns J of the identity) and K = diag(extra), the error is ``||tail M||^2
    + tr(M' K M)``. It is at most r + 1 times what V leaves out, ``||tail||^2 + tr((I - V'V) K)``.

    `tail` of shape (m, p): Rows orthogonal to the vectors.
    `vectors` of shape (r, p): Orthonormal rows.
    `extra` of shape (p,): Not negative.
    `alive` of shape (p,): The columns that may be chosen; none of the others has a part in the vectors.

    Notes
    -----
    Column j is predicted by V alone up to e_j, and ``sum_j ||e_j||^2 / sum_j ||v_j||^2`` is error / r: some column has
    ``||e_j||^2 / ||v_j||^2`` at most that. When it is taken, the error grows by that, and a direction is left out of V.

    Cost: ``r (4 m + 8 r) p`` flops. Source: Osinsky 2023; Cortinovis and Kressner 2024.
    """
    r, p = vectors.shape
    left, tail = vectors.copy(), tail.copy()
    # The part of `extra`: columns of I - V'V, less multiples of the columns taken, which are `moved`.
    squares = np.einsum("ij,ij->j", left, left)
    weighted = np.einsum("ij,ij->j", left, ((vectors * extra) @ vectors.T) @ left)
    spread = np.maximum(extra * (1.0 - 2.0 * squares) + weighted, 0.0)
    moved, steps = np.empty((r, p)), np.empty((r, p))
    order: list[int] = []
    for t in range(r):
        squares = np.einsum("ij,ij->j", left, left)
        errors = np.einsum("ij,ij->j", tail, tail) + spread
        ratios = np.full(p, np.inf)
        np.divide(errors, squares, out=ratios, where=alive & (squares > np.finfo(np.float64).tiny))
        if order:
            ratios[order] = np.inf
        least = float(ratios.min())
        if not np.isfinite(least):
            break
        j = int(np.argmax(ratios <= least * (1.0 + TIE)))
        unit = left[:, j] / np.sqrt(squares[j])
        step = (unit @ left) / np.sqrt(squares[j])
        column = -(vectors[:, j] @ vectors) - moved[:t].T @ steps[:t, j]
        column[j] += 1.0
        product = extra * column
        cross = product - (vectors @ product) @ vectors - (moved[:t] @ product) @ steps[:t]
        spread = np.maximum(spread + step * (step * float(column @ product) - 2.0 * cross), 0.0)
        taken = tail[:, j].copy()
        for a in range(0, p, _BAND):  # The whole product would be as large as the sketch.
            tail[:, a : a + _BAND] -= np.outer(taken, step[a : a + _BAND])
        moved[t], steps[t] = column, step
        left -= np.outer(unit, unit @ left)
        order.append(j)
        tail[:, j] = left[:, j] = spread[j] = 0.0
    return np.array(order, dtype=np.int64), float(np.einsum("ij,ij->", tail, tail) + spread.sum())


def prediction_error(rows: Floats, extra: Floats, support: Indices, single: float = 0.0) -> float:
    """Return the least squared error of predicting all columns of ``[rows; diag(sqrt(extra))]`` from some of them.

    `single`: Frobenius norm of an error E of the Gram matrix, which adds ``tr(M' E M)`` at most, M = I - S_J X the
    prediction: ``||MM'||_F <= sqrt(p - r) + ||X_N||_F^2`` with N the other columns, as MM' has the eigenvalues 1 + s^2,
    s the singular values of X_N, beside ones.
    """
    total = float(np.einsum("ij,ij->", rows, rows)) + float(extra.sum())
    chosen = rows[:, support]
    products = chosen.T @ rows
    products[np.arange(support.size), support] += extra[support]
    try:
        factor = cho_factor(products[:, support], lower=True, check_finite=False)[0]
    except np.linalg.LinAlgError:
        return total
    explained = solve_triangular(factor, products, lower=True, check_finite=False)
    error = max(total - float(np.einsum("ij,ij->", explained, explained)), 0.0)
    if single > 0:
        coefs = solve_triangular(factor, explained, lower=True, trans="T", check_finite=False)
        coefs[:, support] = 0.0
        error += single * (float(np.sqrt(extra.size - support.size)) + float(np.einsum("ij,ij->", coefs, coefs)))
    return error


class OsinskySelector(DirectionsSelector):
    """Select columns that all columns can be predicted from nearly as well as from the best directions.

    With r = `n_components` and A the rows about their mean, ``||A - P_J A||_F^2 <= (r + 1) ||A - A_r||_F^2`` for an
    exact sketch, where P_J projects on the span of the selected columns and A_r is the best approximation of rank r: no
    method that takes r columns of every matrix has a smaller factor (Deshpande et al. 2006). A sketch B that was shrunk
    by Delta has ``(r + 1) (||A - A_r||_F^2 + min{(p - r) Delta, (r + 1) (||A||_F^2 - ||B||_F^2)})``. What holds for the
    columns selected, usually far less, is in ``selection_.diagnostics``: ``error_bound`` of the left side,
    ``least_error`` of the right one, and their quotient ``proven_factor``. Columns have no weights, and none is
    selected twice.

    Parameters
    ----------
    n_components : int, optional
        Directions r. By default `n_features_to_select`, but at most half the rows of a sketch that is not exact.

    Notes
    -----
    Guarantee: deterministic; ``||A - P_J A||_F^2`` is at most r + 1 times the error of the best r directions, and with
    a shrunk sketch that of its Delta more. No bound on a clustering: ask `certify`.

    More columns than directions are selected in rounds, each on the directions that those before leave. `scores_` are
    ranks: n_features_to_select for the first column chosen down to 1 for the last; the others below 1/2, by their
    norms.

    Cost after the pass: 4 m p flops a column for m rows of the sketch, and 8 r p. Source: Osinsky 2023 (column
    approximations with a single singular value decomposition); Cortinovis and Kressner 2024, arXiv 2412.13992
    (derandomised adaptive randomised pivoting); Deshpande, Rademacher, Vempala and Wang 2006 (the factor).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.standard_normal((400, 2))
    >>> X = Z[:, [0, 0, 0, 1, 1]] + 0.1 * rng.standard_normal((400, 5))
    >>> chosen = OsinskySelector(n_features_to_select=2).fit(X)
    >>> [int(j) // 3 for j in chosen.support_], chosen.selection_.diagnostics["proven_factor"] < 3
    ([0, 1], True)
    """

    method: ClassVar[str] = "osinsky"
    selects_in_panels: ClassVar[bool] = False
    # Beside sketch and directions, the rows, what is left of them in three copies.
    selecting_copies: ClassVar[int] = 6
    about = "mean"

    def __init__(
        self,
        n_features_to_select: Size | None = None,
        n_components: Count | None = None,
        sketch_size: SketchSize | None = None,
        normalize: str | None = None,
        half_life: HalfLife | None = None,
        window: Count | None = None,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.n_components = n_components
        self.sketch_size = sketch_size
        self.normalize = normalize
        self.half_life = half_life
        self.window = window

    def selection_flops(self, n_features: int, n_select: int) -> float:
        """Return about how many operations selecting takes, on all rows of the sketch."""
        rows = self.sketch_size or min(n_features, max(4 * (self.n_components or 1), 160))
        return 4.0 * n_select * n_features * (rows + 2.0 * n_select)

    def _select(self, summary: Any, n_select: int) -> Selection:
        if self.n_components is not None:
            require_directions(summary.size, self.n_components)
        k = self._at_most_accurate(summary, n_select) if self.n_components is None else int(self.n_components)
        with one_blas_thread():
            order, diagnostics = _chosen(summary, k, n_select)
        norms = summary.centered_column_squared_norms
        scores = 0.5 * norms / (float(norms.max(initial=0.0)) or 1.0)
        scores[order] = np.arange(n_select, n_select - order.size, -1, dtype=np.float64)
        return self._selection(
            summary,
            np.sort(order),
            scores,
            diagnostics={"shrinkage": summary.shrinkage, **diagnostics},
            n_features_to_select=n_select,
            n_components=k,
            sketch_size=summary.size,
        )


def _chosen(summary: Spectrum, n_components: int, n_select: int) -> tuple[Indices, dict[str, Any]]:
    """Return columns in order of choice, and what is proved of them."""
    every, norms = summary.centered_directions, squares_about(summary, "mean")
    p, directions = norms.size, without_single_noise(summary, every)
    rows = _rows(every, norms)  # What the bounds count, and what columns are chosen from:
    real = rows if directions is every else _rows(directions, norms)
    top = float(directions.squares.max(initial=0.0))
    rounding, single = p * _EPS * top, summary.single_rounding
    lost = np.maximum(norms - np.einsum("ij,ij->j", rows, rows), 0.0) if summary.shrinkage > 0 else np.zeros(p)
    chosen, order = np.zeros(p, dtype=np.bool_), np.zeros(0, dtype=np.int64)
    n_directions, bounds = 0, [float(norms.sum())]
    while order.size < n_select and not chosen.all():
        r = min(n_components, n_select - order.size, int(np.count_nonzero(directions.squares > ROUNDING * top)))
        if r == 0 or not top > 0:
            break
        vectors = directions.vectors[:r]
        tail = np.sqrt(directions.squares[r:])[:, None] * directions.vectors[r:]
        extra = _smaller_extra(summary, lost, rounding, r, 1.0 - np.einsum("ij,ij->j", vectors, vectors))
        more, error = near_columns(tail, vectors, extra, (norms > 0) & ~chosen)
        if not more.size:
            break
        if not order.size:
            n_directions = r
            if single == 0:  # Products in float32 are in the bound of the prediction, below.
                bounds.append(error)
        order = np.append(order, more)
        chosen[more] = True
        if order.size < n_select:
            directions = _left_over(real, order)
    # What the sketch cannot tell apart: what it lost first, then the norms, columns that never vary last.
    rest = [j for j in rank(lost + ROUNDING * norms) if not chosen[j]][: n_select - order.size]
    order = np.append(order, np.array(rest, dtype=np.int64))
    varying = np.sort(order[norms[order] > 0])
    if varying.size:
        extra = _smaller_extra(summary, lost, rounding, varying.size, np.ones(p))
        # What products in float32 added to a sketch is in the columns' part of what it lost, n_columns + 1 times.
        times = varying.size + 1 if summary.shrinkage > 0 else 1
        bounds.append(prediction_error(rows, extra, varying, times * single))
    best = directions_left(summary, n_directions)
    bound = min(bounds)
    known = best > rounding * p and not summary.accepts_missing
    return order, {
        "n_directions": n_directions,
        "error_bound": bound,
        "least_error": best,
        "proven_factor": max(bound / best, 1.0) if known else None,
    }


def _rows(directions: Directions, norms: Floats) -> Floats:
    """Return the rows with these directions, without part in columns that do not vary."""
    rows: Floats = np.sqrt(directions.squares)[:, None] * directions.vectors
    rows[:, norms == 0] = 0.0
    return rows


def _smaller_extra(summary: Spectrum, lost: Floats, rounding: float, n_columns: int, shares: Floats) -> Floats:
    """Return the diagonal K with ``tr(M' (A'A - B'B) M) <= tr(M' K M)`` for all predictions M from some columns.

    What the sketch lost is at most Delta in all directions; its norm in a combination of n_columns + 1 columns is at
    most n_columns + 1 times the sum of their own (Cauchy and Schwarz). The smaller trace, by shares, is taken.
    """
    shrunk = np.full(lost.size, summary.shrinkage + rounding)
    by_column = (n_columns + 1.0) * lost + rounding
    return shrunk if float(shares @ shrunk) <= float(shares @ by_column) else by_column


def _left_over(rows: Floats, columns: Indices) -> Directions:
    """Return the directions of the rows of a sketch outside the span of some of its columns."""
    basis = np.linalg.qr(rows[:, columns])[0]
    for _ in range(2):  # Once more, for what rounding left.
        rows = rows - basis @ (basis.T @ rows)
    rows[:, columns] = 0.0
    return row_directions(rows)


def directions_left(summary: Spectrum, n_components: int) -> float:
    """Return a lower bound of ``||A - A_r||_F^2`` of the rows about their mean; exact for an exact summary."""
    squares = summary.centered_directions.squares
    delta, single = summary.shrinkage, summary.single_rounding
    hidden = n_components * delta if delta > 0 else float(np.sqrt(n_components)) * single  # See `hidden_squares`
    whole = summary.centered_squared_norm - float(squares[:n_components].sum()) - hidden
    # Negative eigenvalues, which products in float32 leave in a Gram matrix, are set to 0: such a tail is no bound.
    tail = float(squares[n_components:].sum()) - single if delta > 0 or single == 0 else 0.0
    return max(whole, tail, 0.0)
