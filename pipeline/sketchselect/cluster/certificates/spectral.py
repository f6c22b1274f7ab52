"""The spectral bound of every clustering, by the singular values of centred rows.

And certificates from selected columns that hold in all columns, before and after the rows are clustered.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchselect._text import counted
from sketchselect.cluster.certificates.certificate import Certificate, as_objective, made_certificate
from sketchselect.cluster.certificates.prediction import Prediction, least_squares_factor, predict_columns
from sketchselect.errors import BadParameter, Incompatible
from sketchselect.linalg.spectrum import Spectrum
from sketchselect.linalg.validation import Floats, require_positive
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
            "moments of rows with missing values bound nothing: no clustering has an objective in missing entries; "
            "summarise the complete rows"
        )
    total = summary.centered_squared_norm
    squares: Floats = summary.centered_directions.squares
    delta = summary.shrinkage
    lost = max(total - float(squares.sum()), 0.0)
    top = float(squares[: n_clusters - 1].sum())
    # An exact summary loses nothing; a difference is rounding.
    unseen = min((n_clusters - 1) * delta, lost) if delta > 0 else 0.0
    # All p eigenvalues of an exact summary count, including zeros that are not computed.
    slack = _rounding(summary, total, squares.size if delta > 0 else summary.n_features)
    vanished = underflow(summary.n_rows, summary.n_features, float(summary.weight))
    # For the total and each eigenvalue: errors of e in the entries of a matrix change its eigenvalues by up to n e.
    slack += n_clusters * vanished + (n_clusters - 1) * summary.single_rounding
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
            f"{counted(self.n_features, 'column')}, an objective of at most {factor:g} times the smallest possible one."
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
    value = as_objective(selected_objective)
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
