"""Base class of selectors of weighted columns, with a certificate for k-means on them (Boutsidis 2012)."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import BadParameter, EmptyInput, Incompatible
from sketchselect.linalg.spectrum import (
    Directions,
    Spectrum,
    constant_columns,
    hidden_squares,
    scatter_rounding,
    single_noise,
    subspace_angle,
    varying_directions,
)
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import Floats
from sketchselect.selectors.base import (
    BaseSelector,
    Selection,
    as_count,
    require_directions,
    require_more_rows,
    sketch_size,
)
from sketchselect.summaries import Bundle, CentroidSums, FrequentDirections, Summary, pick
from sketchselect.summaries.moment_forms import SINGLE_UNIT

Method = Literal["exact", "fast"]

_EPS = float(np.finfo(np.float64).eps)
_AT_ONCE = 256  # Columns of I - Z Z' in memory


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
    # Bound of the rounding of the squares by products in float32; see `single_rounding` of the summary
    single_rounding: float = 0.0
    column_rounding: float = 0.0  # Part of the sum of `column_residuals` that is the rounding of those products
    # Bound of the sine of the angle between Z and the top directions of the rows; None if no bound follows
    angle: float | None = None

    def proven_factor(self, factor: float, n_clusters: int) -> float | None:
        """Return what the factor of a theorem about exact directions is for these; None where nothing is proved.

        The theorems have ``||A - A_k||_F^2``, which is at most the optimum, for ``||E||_F^2`` and for the sum of the
        r_i. With products in float32, s their `single_rounding`, that sum is at most ``D = ||A||_F^2 - sum s_i^2`` of k
        directions, with k s for directions left out, the `column_rounding`, and sqrt(p) s for eigenvalues that became
        negative; ``||A - A_k||_F^2`` is at least D - sqrt(k) s (`hidden_squares`). The quotient multiplies the factors.
        """
        if self.shrinkage > 0:
            return None
        if self.single_rounding == 0:
            return factor
        p, single = self.vectors.shape[0], self.single_rounding
        hidden = math.sqrt(n_clusters) * single
        least = self.total - float(self.squares[:n_clusters].sum()) - hidden - self.rounding
        more = (math.sqrt(p) + n_clusters) * single + self.column_rounding + hidden
        return factor * (1.0 + more / least) if least > 0 else None

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

        ``||A||_F^2 - sum_{i<k} s_i^2 - h``, h the `hidden_squares`, minus the bound of the rounding.
        """
        unseen = hidden_squares(self.squares, n_clusters - 1, self.total, self.shrinkage, self.single_rounding)
        return max(self.total - float(self.squares[: n_clusters - 1].sum()) - unseen - self.rounding, 0.0)


def column_subspace(
    summary: Spectrum, n_directions: int, svd: Method = "exact", epsilon: float = 0.5, seed: int = 0
) -> ColumnSubspace:
    """Return the top directions of the rows of a summary about their mean.

    With B the sketch, Z the directions and r_i = ||A e_i||^2 - ||B e_i||^2, ``||E||_F^2 <= ||A||_F^2 - ||B Z||_F^2``
    and ``||E e_i||^2 <= ||B (I - Z Z') e_i||^2 + min(Delta (1 - ||z_i||^2), (sqrt(r_i) + sqrt(Delta) ||z_i||)^2)``;
    with products in float32 ``A'A - B'B`` may be below 0 by some F >= 0 with a trace of at most s (`single_rounding`),
    which is added to the first bound, to r_i and to the last Delta. Without shrinkage its Frobenius norm is at most s:
    s sqrt(k) is added to the first bound and ``s (1 - ||z_i||^2)`` to the second, or, as in `products_rounding`, less.

    `n_directions`: k; fewer are returned where the rank is lower.
    `svd`, "exact" or "fast": Singular vectors of the sketch, or of a random projection of the sketch.
    `epsilon`: For "fast": the expected residual is at most 1 + epsilon times the best.
    `seed`: Of the projection.
    Cost: the spectrum of the sketch (which the bounds need also for "fast").
    """
    if getattr(summary, "missing", None) is not None:
        raise Incompatible("column selection with a guarantee needs complete rows, not moments with missing values")
    scatter = summary.centered_column_squared_norms
    constant = constant_columns(summary)
    directions = varying_directions(summary.centered_directions, constant, float(scatter[~constant].sum()))
    top = float(directions.squares.max(initial=0.0))
    real = directions.squares > np.maximum(scatter.size * _EPS * top, single_noise(summary, directions))
    rank = int(np.count_nonzero(real))
    width, squares = min(n_directions, rank), directions.squares
    if not real[:rank].all():
        # Columns in small units: their directions before those that are rounding.
        order = np.argsort(~real, kind="stable")
        directions = Directions(squares[order], directions.vectors[order])
    with one_blas_thread():
        if svd == "fast" and 0 < width < rank:
            vectors = _projected(directions, width, epsilon, seed)
            remainder = directions.vectors - (directions.vectors @ vectors) @ vectors.T
            left_squares = np.einsum("j,ji,ji->i", directions.squares, remainder, remainder)
            captured_norm = float(np.einsum("j,jq->", directions.squares, (directions.vectors @ vectors) ** 2))
        else:
            vectors = np.ascontiguousarray(directions.vectors[:width].T)
            other_directions = directions.vectors[width:]
            left_squares = np.einsum("j,ji,ji->i", directions.squares[width:], other_directions, other_directions)
            captured_norm = float(directions.squares[:width].sum())
    # A column that never varies is orthogonal to every direction; a difference is rounding.
    vectors[constant] = 0.0
    slack = scatter_rounding(summary)
    total = float(scatter.sum())
    rounding = float(slack.sum()) + 8.0 * _EPS * (scatter.size + 8) * total
    delta = summary.shrinkage
    single = summary.single_rounding
    leverage = np.minimum(np.einsum("ij,ij->i", vectors, vectors), 1.0)
    unseen = np.zeros(scatter.size)
    if delta > 0:
        captured_scatter = np.einsum("j,ji,ji->i", directions.squares, directions.vectors, directions.vectors)
        remainder_norms = np.sqrt(np.maximum(scatter - captured_scatter, 0.0) + single + slack)
        unseen = np.minimum(delta * (1.0 - leverage), (remainder_norms + np.sqrt((delta + single) * leverage)) ** 2)
    # The spectrum is that of a matrix within some units of the largest eigenvalue.
    angle = None
    if width and not (svd == "fast" and width < rank):
        angle = subspace_angle(squares, width, delta + single, scatter.size)
    rounded = np.zeros(scatter.size)
    if single > 0 and delta == 0:
        rounded = np.minimum(single * (1.0 - leverage), products_rounding(vectors, np.sqrt(scatter)))
    residuals = left_squares + unseen + 4.0 * scatter.size * _EPS * top + rounded + slack
    return ColumnSubspace(
        vectors,
        max(total - captured_norm, 0.0) + (min(width, 1) if delta > 0 else math.sqrt(width)) * single + rounding,
        np.where(scatter > 0, residuals, 0.0),
        scatter,
        squares,
        delta,
        rounding,
        single,
        float(rounded.sum()),
        angle,
    )


def products_rounding(vectors: Floats, norms: Floats) -> Floats:
    """Return bounds of what products in float32 change of ``||(A - A Z Z') e_i||^2``, for moments or an exact sketch.

    It is q'E q, q the i-th column of I - Z Z' and E the error, which has no diagonal and other entries of at most
    u d_a d_b, d the columns' norms and u the `SINGLE_UNIT`: at most ``u ((sum |q_a| d_a)^2 - sum q_a^2 d_a^2)``.

    `vectors` of shape (p, k): Z.
    Cost: p^2 k flops.
    """
    bounds = np.empty(norms.size)
    for a in range(0, norms.size, _AT_ONCE):
        rows = np.abs(np.eye(len(vectors[a : a + _AT_ONCE]), norms.size, a) - vectors[a : a + _AT_ONCE] @ vectors.T)
        bounds[a : a + _AT_ONCE] = (rows @ norms) ** 2 - rows**2 @ norms**2
    return SINGLE_UNIT * np.maximum(bounds, 0.0)


def _projected(directions: Directions, width: int, epsilon: float, seed: int) -> Floats:
    from sketchselect.linalg.hashing import approximate_directions, combinations, gaussians

    rows = np.sqrt(directions.squares)[:, None] * directions.vectors
    draws = gaussians(seed, (rows.shape[0], combinations(width, epsilon)))
    return approximate_directions(rows.T @ draws, lambda m: rows.T @ (rows @ m), width)


@dataclass(frozen=True)
class SelectionCertificate:
    """Bounds of the k-means objective in all columns from that in the weighted selected columns C = A Omega S.

    For every partition X of the rows, with E = A - A Z Z' for the top directions Z::

        F(A, X) <= ||E||_F^2 + (sqrt(F(C, X)) + ||E Omega S||_F)^2 / sigma_k(Z' Omega S)^2
        F(A, X) <= max sum_j F_j + (scatter of the other columns),  sum_j s_j^2 F_j <= F(C, X),  0 <= F_j <= scatter_j

    Parameters
    ----------
    n_clusters, n_directions : int
        k, and the directions of Z (fewer where the rank is lower).
    sigma_min : float
        sigma_k(Z' Omega S), the conditioning of the selection; 0 proves nothing in the first bound.
    residual, weighted_residual : float
        At least ||E||_F^2 and ||E Omega S||_F^2.
    largest_weight : float
        ||Omega S||_2.
    dropped_scatter : float
        Sum of squares, about the mean, of the columns not selected.
    lower_bound : float
        No partition into k clusters has a smaller objective in all columns.
    squares, scatter : array of shape (n_selected,)
        s_j^2 and scatter of the selected columns.
    rounding : float
        Bound of the rounding of a sum of squares of the whole matrix.
    """

    n_clusters: int
    n_directions: int
    sigma_min: float
    residual: float
    weighted_residual: float
    largest_weight: float
    dropped_scatter: float
    lower_bound: float
    squares: Floats
    scatter: Floats
    rounding: float

    def bound(self, weighted_objective: float) -> float:
        """Return an upper bound of a partition's objective in all columns.

        Parameters
        ----------
        weighted_objective : float
            Its objective in the selected columns, each multiplied by its weight: F(C, X).

        Raises
        ------
        BadParameter
            If it is negative or not finite.

        Notes
        -----
        The lesser of the two bounds above; the second is a fractional knapsack, solved by ascending weight.
        Source: Boutsidis and Magdon-Ismail 2012, Lemma 10, without its factor 2 and for the partition at hand.
        """
        value = float(weighted_objective)
        if not (math.isfinite(value) and value >= 0):
            raise BadParameter("the objective in the selected columns must be a finite number of at least 0")
        return min(self.structural_bound(value), self.dropped_bound(value))

    def structural_bound(self, weighted_objective: float) -> float:
        """Return the first bound; infinite if the selected columns do not span the directions."""
        if self.n_directions == 0:
            return self.residual
        if self.sigma_min == 0:
            return math.inf
        root = (math.sqrt(weighted_objective) + math.sqrt(self.weighted_residual)) / self.sigma_min
        return (self.residual + root * root) * (1 + 1e-12)

    def dropped_bound(self, weighted_objective: float) -> float:
        """Return the second bound."""
        order = np.argsort(self.squares, kind="stable")
        squares, scatter = self.squares[order], self.scatter[order]
        used_budget = np.cumsum(squares * scatter)
        full = int(np.searchsorted(used_budget, weighted_objective, side="right"))
        most = float(scatter[:full].sum())
        if full < order.size:
            most += (weighted_objective - (float(used_budget[full - 1]) if full else 0.0)) / float(squares[full])
        return (most + self.dropped_scatter) * (1 + 1e-12) + self.rounding

    def factor(self, gamma: float = 1.0) -> float:
        """Return a bound of F(A, X) / optimum for every gamma-approximate clustering X of the weighted columns.

        ``e + (sqrt(gamma) ||Omega S||_2 + w)^2 / sigma_k^2`` with e = ||E||^2 / LB and w = ||E Omega S||_F / sqrt(LB);
        known before any clustering; infinite if the lower bound LB is 0.
        """
        if self.lower_bound <= 0:
            return math.inf
        if self.n_directions == 0:
            return self.residual / self.lower_bound
        if self.sigma_min == 0:
            return math.inf
        w = math.sqrt(self.weighted_residual / self.lower_bound)
        root = (math.sqrt(gamma) * self.largest_weight + w) / self.sigma_min
        return self.residual / self.lower_bound + root * root

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers for `Selection.diagnostics`, an infinite factor as None."""
        factor = self.factor()
        return {
            "n_clusters": self.n_clusters,
            "n_directions": self.n_directions,
            "sigma_min": self.sigma_min,
            "residual": self.residual,
            "weighted_residual": self.weighted_residual,
            "largest_weight": self.largest_weight,
            "dropped_scatter": self.dropped_scatter,
            "lower_bound": self.lower_bound,
            "factor_before_clustering": factor if math.isfinite(factor) else None,
        }


def certify_weighted_columns(
    subspace: ColumnSubspace, support: NDArray[np.int64], squares: Floats, n_clusters: int
) -> SelectionCertificate:
    """Return the certificate of columns `support` with weights s_i^2 = `squares`, from a summary's directions."""
    weights = np.sqrt(squares)
    weighted_vectors = subspace.vectors[support] * weights[:, None]
    k = subspace.vectors.shape[1]
    sigma = 0.0
    if 0 < k <= support.size:
        values = np.linalg.svd(weighted_vectors, compute_uv=False)
        sigma = max(float(values[-1]) - 8.0 * _EPS * (k + support.size) * float(values[0]), 0.0)
    is_dropped = np.ones(subspace.scatter.size, dtype=bool)
    is_dropped[support] = False
    return SelectionCertificate(
        n_clusters=n_clusters,
        n_directions=k,
        sigma_min=sigma,
        residual=subspace.residual,
        weighted_residual=float(squares @ subspace.column_residuals[support]),
        largest_weight=float(weights.max(initial=0.0)),
        dropped_scatter=float(subspace.scatter[is_dropped].sum()),
        lower_bound=subspace.lower_bound(n_clusters),
        squares=squares,
        scatter=subspace.scatter[support],
        rounding=subspace.rounding,
    )


class ColumnSelector(BaseSelector):
    """Base of `DeterministicSelector`, `RandomizedSelector` and `HybridSelector`.

    A subclass implements `_sample`: weights of at most r columns from the top directions. Scores and the certificate
    follow.

    Parameters
    ----------
    n_features_to_select : int, optional
        r > k; half of the columns by default. Exactly as many distinct columns are selected.
    n_clusters : int, optional
        k; min(8, r // 2) by default.
    sketch_size : int, optional
        Rows l of the sketch, more than k; min(n_features, max(8 k, 64)) by default.

    Attributes
    ----------
    weights_ : array of shape (n_selected,)
        sqrt(s_i^2): ``X[:, support_] * weights_`` is the C of the theory.
    certificate_ : SelectionCertificate
        ``certificate_.bound(F)``: an upper bound of the k-means objective in all columns from F, that in the weighted
        selected ones.
    """

    about = "mean"
    requires: ClassVar[tuple[str, ...]] = ("frequent-directions", "moments")
    has_weights: ClassVar[bool] = True

    n_features_to_select: float | None
    n_clusters: int | None
    sketch_size: int | None
    certificate_: SelectionCertificate

    @abstractmethod
    def _sample(
        self, subspace: ColumnSubspace, summary: Any, n_select: int, n_clusters: int
    ) -> tuple[Floats, dict[str, Any]]:
        """Return s_i^2 of every column, at most `n_select` of them positive, and diagnostics."""

    def _subspace(self, summary: Any, n_clusters: int) -> ColumnSubspace:
        return column_subspace(summary, n_clusters)

    def _n_select(self, n_features: int) -> int:
        if self.n_features_to_select is not None:
            return super()._n_select(n_features)
        return self._default_select(n_features, _partition_clusters(self.summary_))

    def _default_select(self, n_features: int, n_parts: int | None) -> int:
        k = n_parts if self.n_clusters is None else int(self.n_clusters)
        return min(max(n_features // 2, 2 if k is None else k + 1), n_features)

    def _clusters(self, n_features: int, n_parts: int | None = None) -> int:
        """Return k; `n_parts` is that of the partition, if there is one."""
        n_select = self.n_features_to_select
        if n_select is None:
            n_select = self._default_select(n_features, n_parts)
        n_select = min(as_count(n_select, n_features), n_features)
        k = n_parts if self.n_clusters is None else self.n_clusters
        if k is None:
            # Half of the columns: with k near r, sqrt(k / r) near 1, the bounds are weak.
            return max(min(8, n_select // 2), 1)
        if k >= n_features:
            raise BadParameter(f"n_clusters = {k} must be below the number of columns: n_features = {n_features}")
        if n_select <= k:
            raise BadParameter(
                f"n_features_to_select = {n_select} must exceed n_clusters = {k}: fewer columns have no guarantee"
            )
        return k

    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the sketch of `sketch_size` rows; the default is min(n_features, max(8 k, 64)), at least k + 1."""
        return self._sketch(n_features, self._clusters(n_features))

    def _sketch(self, n_features: int, k: int) -> FrequentDirections:
        if self.sketch_size is not None:
            require_more_rows(self.sketch_size, k, "n_clusters")
        return FrequentDirections(self.sketch_size or sketch_size(n_features, k))

    def _select(self, summary: Any, n_select: int) -> Selection:
        sketch: Any = pick(summary, *self.requires) if isinstance(summary, Bundle) else summary
        p = sketch.n_features
        k = self._clusters(p, _partition_clusters(summary))
        if not sketch.is_exact:
            require_directions(sketch.size, k, "n_clusters")
        subspace = self._subspace(sketch, k)
        if subspace.vectors.shape[1] == 0 and sketch.n_rows > 1:
            raise EmptyInput(f"all {p} columns are constant over {sketch.n_rows} rows: there is nothing to select")
        diagnostics: dict[str, Any] = {}
        if n_select == p or subspace.vectors.shape[1] == 0:
            squares = np.zeros(p)
            squares[by_leverage(subspace)[:n_select]] = 1.0
        else:
            squares, diagnostics = self._sample(subspace, summary, n_select, k)
        support: NDArray[np.int64] = np.flatnonzero(squares)
        self.certificate_ = certify_weighted_columns(subspace, support, squares[support], k)
        return self._selection(
            summary,
            support,
            # A column's part of the squared norm of Z' Omega S.
            squares * subspace.leverage,
            weights=np.sqrt(squares[support]),
            diagnostics={"shrinkage": subspace.shrinkage, "subspace_angle": subspace.angle}
            | self.certificate_.to_dict()
            | diagnostics,
            n_features_to_select=n_select,
            n_clusters=k,
            sketch_size=sketch.size,
            **self._further_parameters(summary),
        )

    def _further_parameters(self, summary: Any) -> dict[str, Any]:
        """Return resolved parameters that not all of these selectors have."""
        return {}


def _partition_clusters(summary: Any) -> int | None:
    if not isinstance(summary, Bundle):
        return None
    sums = pick(summary, "centroid-sums")
    assert isinstance(sums, CentroidSums)
    return sums.n_clusters


def by_leverage(subspace: ColumnSubspace) -> NDArray[np.int64]:
    """Return the columns in the order of leverage, then scatter (both descending), then index."""
    return np.lexsort((-subspace.scatter, -subspace.leverage))
