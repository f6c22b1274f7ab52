"""The spectral bound of every clustering, by the singular values of centred rows.

And certificates from selected columns that hold in all columns, before and after the rows are clustered, by a
least-squares prediction of all columns from the selected ones: its error, and the metric in which to cluster them.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchselect._text import counted
from sketchselect.cluster.certificates.certificate import Certificate, made_certificate
from sketchselect.errors import BadParameter, Incompatible
from sketchselect.linalg.spectrum import Directions, Spectrum, centered_in_place, hidden_squares
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import Floats, require_number, require_positive
from sketchselect.summaries import BlockBound, pick_spectrum

Metric = Literal["euclidean", "least-squares"]

SMALLEST = 2.0**-1074  # Smallest number above 0


SKETCH_ROWS = 8  # Rows of the sketch per cluster: the spectral bound is then within a few percent of the exact one


def sketch_rows(n_clusters: int) -> int:
    """Return the rows of a sketch that gives a spectral bound."""
    return max(SKETCH_ROWS * n_clusters, 2)


def underflow(n_rows: int, n_features: int, weight: float) -> float:
    """Return a bound of the loss of sums of (weighted) squares of `n_rows` rows to underflow.

    Each square is off by up to half the smallest number, times the row's weight, and so is each product and merge
    after it; some dozen of these an entry. Negligible against squares above 1e-290.
    """
    return 64.0 * SMALLEST * n_features * (weight + n_rows)


def spectral_bound(summary: Spectrum, n_clusters: int) -> tuple[float, dict[str, float]]:
    """Return a lower bound of the objective of every clustering of the rows, and its terms; see `certify`."""
    if summary.accepts_missing:
        raise Incompatible(
            "moments of rows with missing values bound nothing: no clustering has an inertia in missing entries; "
            "summarise the complete rows"
        )
    total = summary.centered_squared_norm
    squares: Floats = centered_in_place(summary).squares
    delta = summary.shrinkage
    top = float(squares[: n_clusters - 1].sum())
    # An exact summary loses nothing but the rounding of products in float32; another difference is rounding.
    unseen = hidden_squares(squares, n_clusters - 1, total, delta, summary.single_rounding)
    # All p eigenvalues of an exact summary count, including zeros that are not computed.
    slack = _rounding(summary, total, squares.size if delta > 0 else summary.n_features)
    vanished = underflow(summary.n_rows, summary.n_features, float(summary.weight))
    # For the total and each eigenvalue: errors of e in the entries of a matrix change its eigenvalues by up to n e.
    slack += n_clusters * vanished
    bound = float(total - top - unseen - slack)
    details = {
        "n_rows": summary.n_rows,
        "n_features": summary.n_features,
        "scatter": float(total),
        "top_squares": float(top),
        "shrinkage": float(delta),
        "unseen": float(unseen),
        "rounding": float(slack),
        "underflow": vanished,
    }
    # As many clusters as rows reach an objective of 0; the formula gives that only up to rounding.
    return (max(bound, 0.0) if n_clusters < summary.n_rows else 0.0), details


def _rounding(summary: Spectrum, total: float, n_values: int) -> float:
    """Return a bound of the rounding in a spectral bound, for any blocks and tree.

    Two parts. Column sums, products and shrinks carry up to some units of the total a row, since a sum of n terms can
    be off by n units. And a mean is rounded at each merge, to a unit of itself, which is more far from
    the origin: an error e of the means changes the scatter by at most 2 sqrt(W total) e + W e^2.
    """
    eps, n_rows = float(np.finfo(np.float64).eps), summary.n_rows
    off = 2.0 * eps * n_rows * float(np.linalg.norm(summary.mean))
    weight = float(summary.weight)
    return 8.0 * eps * (n_values + 8 + n_rows) * total + 2.0 * math.sqrt(weight * total) * off + weight * off * off


@dataclass(frozen=True)
class SelectionBound:
    """A bound for clusterings of selected columns, before anything is clustered: see `certify_selection`.

    Parameters
    ----------
    excess : float
        dropped_scatter / lower_bound: added to the factor of a clustering of the selected columns; infinite
        where the lower bound is 0.
    dropped_scatter : float
        Sum of squares, about the mean, of the columns not selected.
    lower_bound : float
        No clustering of the rows into `n_clusters` clusters has a smaller objective in all columns.
    method : str
        "spectral" or "blocks": where the lower bound is from.
    n_clusters, n_selected, n_features : int
        Number of clusters, of selected columns, and of all columns.
    residual : float
        Upper bound of the squared error of predicting all columns, about their means, from the selected ones.
    metric_norm : float
        Upper bound of the largest eigenvalue of the least-squares metric.
    distortion : float
        Bound of the relative rounding of that metric.

    Examples
    --------
    >>> import sketchselect as sks
    >>> from sklearn.datasets import make_blobs
    >>> X, _ = make_blobs(200, 6, centers=3, random_state=0)
    >>> bound = sks.certify_selection(sks.summarize(X, sks.Moments()), [0, 1, 2, 3, 4], 3)
    >>> bound.excess == bound.dropped_scatter / bound.lower_bound
    True
    """

    excess: float
    dropped_scatter: float
    lower_bound: float
    method: str
    n_clusters: int
    n_selected: int
    n_features: int
    residual: float = math.inf
    metric_norm: float = math.inf
    distortion: float = 0.0

    def factor(self, gamma: float = 1.0, metric: Metric = "euclidean") -> float:
        """Return the factor, in all columns, of a clustering within `gamma` of the best in a metric.

        ``gamma + excess`` for distances in the selected columns; see `certify_selection` for least squares.

        Raises
        ------
        BadParameter
            If gamma is below 1: no clustering is better than the best.
        """
        if not gamma >= 1:
            raise BadParameter(f"gamma must be at least 1, got {gamma!r}")
        if metric == "euclidean":
            return gamma + self.excess
        if metric != "least-squares":
            raise BadParameter(f"metric must be 'euclidean' or 'least-squares', got {metric!r}")
        numbers = (self.residual, self.metric_norm, self.distortion, self.dropped_scatter, self.lower_bound)
        return least_squares_factor(gamma, *numbers)

    def with_lower_bound(self, lower_bound: float, method: str) -> SelectionBound:
        """Return the bound by another lower bound of the best possible objective."""
        excess = 0.0 if self.dropped_scatter == 0 else math.inf
        if self.dropped_scatter > 0 and lower_bound > 0:
            excess = self.dropped_scatter / lower_bound
        return replace(self, excess=excess, lower_bound=lower_bound, method=method)

    def sentence(self, metric: Metric = "euclidean") -> str:
        """Return the promise in plain words, for clusterings of the selected columns in a metric.

        Examples
        --------
        >>> SelectionBound(0.25, 1.0, 4.0, "spectral", 3, 20, 64).sentence()[:78]
        'The best clustering of the 20 selected columns into 3 clusters has, in all 64 '
        """
        k, factor = counted(self.n_clusters, "cluster"), self.factor(metric=metric)
        if not math.isfinite(factor):
            return f"Before any clustering, nothing can be said of {k}: the lower bound of the best possible one is 0."
        # Rounded up: a promise may not say more than was proved.
        factor = math.ceil(1000 * factor - 1e-9) / 1000
        in_metric = " in the least-squares metric" if metric == "least-squares" else ""
        return (
            f"The best clustering of the {counted(self.n_selected, 'selected column')}{in_metric} into {k} has, in all "
            f"{counted(self.n_features, 'column')}, an inertia of at most {factor:g} times the smallest possible one."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: numbers and text; what is infinite as None."""
        plain: dict[str, Any] = asdict(self)
        plain["factor"], plain["factor_least_squares"] = self.factor(), self.factor(metric="least-squares")
        plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in plain.items()}
        sentences = {"sentence": self.sentence(), "sentence_least_squares": self.sentence("least-squares")}
        return plain | sentences


def certify_selection(source: Any, support: ArrayLike, n_clusters: int) -> SelectionBound:
    """Return bounds for k-means on selected columns, in all columns, before anything is clustered.

    With S the selected columns, not rescaled, and LB a lower bound of the optimum F* in all columns: the objective of a
    partition X that is within a factor gamma of the best for S is, in all columns,
    ``F(A, X) <= gamma F* + sum_{j not in S} ||a_j - mean_j||^2 <= (gamma + scatter of the others / LB) F*``.

    A partition within gamma of the best in the least-squares metric (of k-means on ``X[:, S]`` times
    `least_squares_metric`, as with ``[cluster] metric = "least-squares"``) has, with rho^2 the bound `residual` of the
    error of predicting all columns from S, at most the factor ``(sqrt gamma + (1 + sqrt gamma) rho / sqrt LB)^2``, and
    usually less: the selected columns themselves are predicted without an error. Both hold for any columns, however
    they were selected: ``bound.factor(gamma)`` and ``bound.factor(gamma, "least-squares")``.

    Parameters
    ----------
    source : FrequentDirections, Moments, or a mapping or Bundle that holds one
        Summary of the rows in all columns. Where the mapping also holds a `BlockBound` of as many clusters, the larger
        of both lower bounds counts.
    support : array of int
        The selected columns.
    n_clusters : int
        Number of clusters.

    Raises
    ------
    BadParameter
        If a column does not exist or appears twice.
    Incompatible
        If there is no summary of a kind that has a spectrum.

    Notes
    -----
    Nothing is read: the cost is that of the sketch's spectrum, and some m r^2 + r^3 flops for r columns and m
    directions of the sketch; no matrix of all columns by all columns is made.
    Source: the k-means objective is a sum over columns, and dropping columns lowers the optimum; for least squares
    the triangle inequality, Ky Fan's bound LB and von Neumann's trace inequality.

    Examples
    --------
    >>> import numpy as np
    >>> from sketchselect import Moments
    >>> X = np.array([[0.0, 0.1], [0.0, 0.0], [0.0, 0.1], [9.0, 0.0], [9.0, 0.1], [9.5, 0.1]])
    >>> bound = certify_selection(Moments().from_block(X), [0], 2)
    >>> bound.dropped_scatter < 0.014, round(bound.factor(1.0), 2)
    (True, 2.0)
    >>> bound.residual < 0.014, bound.factor(1.0, "least-squares") < 2.3
    (True, True)
    """
    n_clusters = require_positive("n_clusters", n_clusters)
    summary, dropped_scatter, lower, _ = _dropped_scatter(source, support, n_clusters)
    columns = np.asarray(support)
    prediction = _predicted(summary, columns)
    bound = SelectionBound(
        excess=math.inf,
        dropped_scatter=dropped_scatter,
        lower_bound=0.0,
        method="spectral",
        n_clusters=n_clusters,
        n_selected=int(columns.size),
        n_features=summary.n_features,
        residual=prediction.residual,
        metric_norm=prediction.largest,
        distortion=prediction.distortion,
    ).with_lower_bound(lower, "spectral")
    for member in source.values() if hasattr(source, "values") else ():
        is_usable = isinstance(member, BlockBound) and member.n_clusters == n_clusters
        if is_usable and member.lower_bound() > bound.lower_bound:
            bound = bound.with_lower_bound(member.lower_bound(), "blocks")
    return bound


def least_squares_metric(source: Any, support: ArrayLike) -> Floats:
    """Return the matrix C that brings selected columns into the least-squares metric, shape (n_selected, n_selected).

    Squared distances of rows of ``X[:, support] @ C`` are those of the rows' predictions of all columns from these, by
    ridge regression on the summary; k-means on them has the factor that ``certify_selection`` states for
    "least-squares".

    Parameters
    ----------
    source : FrequentDirections, Moments, or a mapping or Bundle that holds one
        Summary of the rows in all columns.
    support : array of int
        The selected columns, in the order of the columns that are multiplied.

    Raises
    ------
    BadParameter
        If a column does not exist or appears twice.
    Incompatible
        If there is no summary of a kind that has a spectrum.

    Notes
    -----
    Guarantee: CC' = I + ZZ' with Z the coefficients of the columns that are not selected. Cost as `certify_selection`.

    Examples
    --------
    >>> import numpy as np
    >>> from sketchselect import Moments
    >>> X = np.array([[0.0, 0.0, 1.0], [1.0, 2.0, 0.0], [2.0, 4.0, 5.0]])
    >>> least_squares_metric(Moments().from_block(X), [0, 2]).round(3)
    array([[2.236, 0.   ],
           [0.   , 1.   ]])
    """
    summary, columns = _of_columns(source, support)
    return _predicted(summary, columns).root()


def _predicted(summary: Spectrum, columns: NDArray[np.integer]) -> Prediction:
    """Return the prediction of all columns; the same whatever the number of clusters."""
    _, details = spectral_bound(summary, 1)
    return predict_columns(summary, columns, details["rounding"])


def dropped_columns_certificate(
    source: Any, selected_objective: float, support: ArrayLike, n_clusters: int
) -> Certificate:
    """Return a certificate for all columns from the objective in the selected ones, without another pass.

    The objective in all columns is at most that in the columns S plus the scatter of the others:
    ``F(A) <= F(A_S) + sum_{j not in S} ||a_j - mean_j||^2``.

    Parameters
    ----------
    source : FrequentDirections, Moments, or a mapping or Bundle that holds one
        Summary of the rows in all columns.
    selected_objective : float
        Objective of the clustering in the selected columns, not multiplied by a selection's weights; of
        weighted rows, the weighted one.
    support : array of int
        The selected columns.
    n_clusters : int
        Number of clusters.

    Raises
    ------
    BadParameter
        If a column does not exist or appears twice, or the objective is impossible.
    Incompatible
        If there is no summary of a kind that has a spectrum.
    """
    began = time.perf_counter()
    n_clusters = require_positive("n_clusters", n_clusters)
    value = require_number("an objective", selected_objective, least=0)
    _, dropped_scatter, lower, details = _dropped_scatter(source, support, n_clusters)
    details |= {"selected_objective": value, "dropped_scatter": dropped_scatter}
    return made_certificate(lower, value + dropped_scatter, n_clusters, "spectral+drop", details, began)


def _of_columns(source: Any, support: ArrayLike) -> tuple[Spectrum, NDArray[np.integer]]:
    """Return the summary with a spectrum, and the columns as an array; raise `BadParameter` unless they are columns."""
    summary = pick_spectrum(source)
    columns = np.asarray(support)
    p = summary.n_features
    if columns.ndim != 1 or columns.dtype.kind not in "iu":
        raise BadParameter("support must be a one-dimensional array of column indices")
    if columns.size and (columns.min() < 0 or columns.max() >= p or np.unique(columns).size != columns.size):
        raise BadParameter(f"support must hold different columns between 0 and {p - 1}")
    return summary, columns


def _dropped_scatter(
    source: Any, support: ArrayLike, n_clusters: int
) -> tuple[Spectrum, float, float, dict[str, float]]:
    """Return the summary with a spectrum, the scatter of the other columns (rounded up), and the spectral bound."""
    summary, columns = _of_columns(source, support)
    others = np.ones(summary.n_features, dtype=bool)
    others[columns] = False
    dropped_scatter = float(summary.centered_column_squared_norms[others].sum())
    lower, details = spectral_bound(summary, n_clusters)
    # A scatter of 0 is exact unless squares vanished; then the bound is no larger than rounding.
    dropped_scatter += details["rounding"] if dropped_scatter > 0 or 0 < lower <= details["rounding"] else 0.0
    return summary, dropped_scatter, lower, details


def bounded_certificate(
    lower_bound: float, bound: float, n_clusters: int, began: float, scatter: float | None = None
) -> Certificate:
    """Return the certificate that a method's own bounds give: of the optimum, and of the clustering's objective.

    Parameters
    ----------
    lower_bound : float
        No clustering of the rows has a smaller objective.
    bound : float
        The clustering's objective in all columns is at most this; infinity proves nothing.
    n_clusters : int
        Number of clusters.
    began : float
        `time.perf_counter()` at the start.
    scatter : float, optional
        Objective of one cluster of all rows.
    """
    factor = bound / lower_bound if lower_bound > 0 else float("inf")
    if bound == 0:
        factor = 1.0
    spent = time.perf_counter() - began
    method = "spectral+selection"
    return Certificate(lower_bound, bound, max(factor, 1.0), method, 1.0, spent, n_clusters, scatter=scatter)


_EPS = float(np.finfo(np.float64).eps)

# Ridge of an exact summary, relative to the largest square: its rounding is then far below what it adds to the error.
LEAST_RIDGE = 1e-9

RIDGES = (1 / 64, 1 / 16, 1 / 4, 1.0, 4.0, 16.0)  # Multiples of the shrinkage that are tried: the error is flat in it


@dataclass(frozen=True)
class Prediction:
    """Prediction of all columns of centred rows A from the columns J, by a matrix X with X_J = I.

    `residual`: Upper bound of ``||A - A_J X||_F^2``.
    `metric` of shape (n_selected, n_selected): W = XX', of eigenvalues of at least 1.
    `largest`: Upper bound of the largest eigenvalue of W.
    `distortion`: Bound d of the rounding: ``(1 - d) W <= metric <= (1 + d) W``.
    """

    residual: float
    metric: Floats
    largest: float
    distortion: float

    def root(self) -> Floats:
        """Return the symmetric root C of the metric: distances of rows of ``A_J C`` are those of ``A_J X``."""
        with one_blas_thread():
            values, vectors = np.linalg.eigh(self.metric)
        root: Floats = (vectors * np.sqrt(np.maximum(values, 1.0))) @ vectors.T
        return (root + root.T) / 2


def least_squares_factor(
    gamma: float, residual: float, largest: float, distortion: float, dropped: float, lower: float
) -> float:
    """Return F/F* of a clustering whose objective in the least-squares metric is within `gamma` of the best.

    With G(P) = F(A_J X, P) the objective in the metric, a partition P has F = a + c and G = a + b, where a, b and c
    are its objectives in A_J, in the predicted and in the actual other columns. ``b <= t G`` for
    ``t = 1 - 1 / largest``, and ``|sqrt b - sqrt c| <= rho``, the root of the residual; so, with ``c <= dropped``,
    ``F <= G + min(2 rho sqrt(t G) + rho^2, dropped)``, and for the best partition in all columns, in units of
    ``F* = 1``, ``G <= y`` with y the larger of ``(rho sqrt t + sqrt(1 - rho^2 (1 - t)))^2`` and
    ``min(rho^2 / t, largest)``; also ``y <= (1 + rho)^2``. The plain triangle inequality is the case t = 1:
    ``(sqrt gamma + (1 + sqrt gamma) rho / sqrt F*)^2``.

    `residual`, `largest`, `distortion`: Of a `Prediction`.
    `dropped`: Scatter of the columns that are not selected.
    `lower`: Lower bound of F*.
    """
    if distortion >= 0.5 or (lower <= 0 and residual > 0):
        return math.inf
    square = residual / lower if residual > 0 else 0.0
    share, rho = 1.0 - 1.0 / largest, math.sqrt(square)
    inside = 1.0 - square * (1.0 - share)
    growth = (rho * math.sqrt(share) + math.sqrt(inside)) ** 2 if inside >= 0 else 0.0
    growth = max(growth, min(square / share if share > 0 else math.inf, largest))
    growth = min(growth, (1.0 + rho) ** 2) * gamma * (1.0 + distortion) / (1.0 - distortion)
    others = 2.0 * rho * math.sqrt(share * growth) + square
    if dropped > 0:
        others = min(others, dropped / lower)
    # Some units of rounding in this formula.
    return max((growth + others) * (1.0 + 16.0 * _EPS), gamma)


def predict_columns(summary: Spectrum, columns: NDArray[np.integer], rounding: float) -> Prediction:
    """Return the ridge prediction of all columns from some of them, by the ridge of the least bound of its error.

    With B the sketch about the mean, N the other columns, ``Z = B_J' (B_J B_J' + ridge I)^-1`` and ``X_N = Z B_N``, any
    Z has ``||A - A_J X||_F^2 = ||B_N - B_J X_N||_F^2 + tr(M' E M)``, M = I - S_J X (S_J the columns J of the identity)
    and E = A'A - B'B. The p - r positive eigenvalues mu_i of MM' are ``1 + s_i^2``, s_i the singular values of X_N, and
    1; those of E are between 0 and Delta and sum to ``||A||^2 - ||B||^2`` (but for `single_rounding`, whose part is at
    most its product with the norm of the mu_i). So the last term is at most the largest ``sum w_i mu_i`` of such w; or,
    by the triangle inequality and the squared norms that single columns lost, ``(sqrt(tr E_NN) + sqrt(tr X_N' E_JJ
    X_N))^2``. No matrix of p x p entries is formed: all follows from BB', which is diagonal, B_J and Z.

    `summary`: Of rows without missing values.
    `columns` of shape (r,): Different column indices.
    `rounding`: Bound, in the Frobenius norm, of the rounding of the Gram matrix of the summary.
    Cost: ``m r^2 + r^3`` flops for each of seven ridges (one for an exact summary), m directions of the sketch.
    Source: von Neumann's trace inequality; the rest is above.
    """
    p, r = summary.n_features, columns.size
    scatter = float(summary.centered_squared_norm)
    if r == p or scatter == 0:
        return Prediction(0.0 if r == p else rounding, np.eye(r), 1.0, 0.0)
    # In units of the scatter, so that no product overflows or vanishes.
    directions, delta, single = centered_in_place(summary), summary.shrinkage, summary.single_rounding / scatter
    squares, delta = directions.squares / scatter, delta / scatter
    chosen = np.sqrt(squares)[:, None] * directions.columns(columns)
    # What the sketch lost in all, and of each column; products in float32 may also have added that much to all.
    total, lost = max(1.0 - float(squares.sum()), 0.0), np.zeros(p)
    if delta > 0:
        seen_norms = directions.remembered(Directions.column_norms, scale=scatter)
        lost = np.maximum(summary.centered_column_squared_norms / scatter - seen_norms, 0.0)
    lost_chosen = float(lost[columns].sum())
    # The directions are orthonormal to some units a column, and so is what follows from that.
    unit = 16.0 * _EPS * (p + squares.size)
    best: Prediction | None = None
    with one_blas_thread():
        gram = chosen.T @ chosen
        across = squares[:, None] * chosen - chosen @ gram  # (B_N B_N') B_J
        others = float(squares.sum()) - float(gram.trace())
        u, s, vt = np.linalg.svd(chosen, full_matrices=False)
        least = LEAST_RIDGE * float(squares.max(initial=0.0))
        for ridge in (least, *(delta * multiple for multiple in RIDGES if delta > 0)):
            solve = (vt.T * np.divide(s, s * s + ridge, out=np.zeros_like(s), where=s > 0)) @ u.T
            onto = solve @ chosen
            spread = (solve * squares) @ solve.T - onto @ onto.T  # X_N X_N'
            spread = (spread + spread.T) / 2
            seen = others - 2.0 * float(np.sum(solve * across.T)) + float(np.sum(gram * spread))
            error = unit * float(np.sum(solve * solve)) + unit * math.sqrt(r + float(np.sum(spread * spread)))
            more = np.maximum(np.linalg.eigvalsh(spread)[::-1], 0.0)[: p - r] + error
            mu, n_ones = 1.0 + more, p - r - more.size
            noise = rounding / scatter * math.sqrt(float(mu @ mu) + n_ones) + 4.0 * unit
            unseen = single * math.sqrt(float(mu @ mu) + n_ones)
            if delta > 0:
                apart = math.sqrt(float(lost.sum()) - lost_chosen + single)
                apart += math.sqrt(_filled(more, 0, delta + single, lost_chosen + single))
                unseen = min(_filled(mu, n_ones, delta, total + single), apart * apart)
            bound = scatter * (max(seen, 0.0) + unseen + noise)
            if best is None or bound < best.residual:
                best = Prediction(bound, np.eye(r) + spread, float(mu.max(initial=1.0)), error)
    assert best is not None
    return best


def _filled(weights: Floats, n_ones: int, height: float, total: float) -> float:
    """Return the largest sum of w_i mu_i, 0 <= w_i <= `height`, sum w_i <= `total`: mu descending, then ones."""
    if not (height > 0 and total > 0):
        return 0.0
    amounts = np.clip(total - height * np.arange(weights.size), 0.0, height)
    left = min(max(total - height * weights.size, 0.0), height * n_ones)
    return float(amounts @ weights) + left
