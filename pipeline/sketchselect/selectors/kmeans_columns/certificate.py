"""What weighted columns prove about k-means in all columns: the certificate of a column selection."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Floats
from sketchselect.selectors.kmeans_columns.subspace import ColumnSubspace

_EPS = float(np.finfo(np.float64).eps)


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
        What rounding may add to a sum of squares of the whole matrix.
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
            If that is not a finite number that is not negative.

        Notes
        -----
        The lesser of the two bounds above; the second is a fractional knapsack, solved by ascending weight.
        Source: Boutsidis and Magdon-Ismail 2012, Lemma 10, without its factor 2 and for the partition at hand.
        """
        value = float(weighted_objective)
        if not (math.isfinite(value) and value >= 0):
            raise BadParameter("the objective in the selected columns must be a finite number that is not negative")
        return min(self.structural_bound(value), self.dropped_bound(value))

    def structural_bound(self, weighted_objective: float) -> float:
        """Return the first bound; infinite where the selected columns do not span the directions."""
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
        spent = np.cumsum(squares * scatter)
        full = int(np.searchsorted(spent, weighted_objective, side="right"))
        most = float(scatter[:full].sum())
        if full < order.size:
            most += (weighted_objective - (float(spent[full - 1]) if full else 0.0)) / float(squares[full])
        return (most + self.dropped_scatter) * (1 + 1e-12) + self.rounding

    def factor(self, gamma: float = 1.0) -> float:
        """Return a bound of F(A, X) / optimum for every gamma-approximate clustering X of the weighted columns.

        ``e + (sqrt(gamma) ||Omega S||_2 + w)^2 / sigma_k^2`` with e = ||E||^2 / LB and w = ||E Omega S||_F / sqrt(LB);
        known before any clustering; infinite where the lower bound LB is 0.
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
        """Return plain numbers, an infinite factor as None; what `Selection.diagnostics` holds."""
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
    chosen = subspace.vectors[support] * weights[:, None]
    k = subspace.vectors.shape[1]
    sigma = 0.0
    if 0 < k <= support.size:
        values = np.linalg.svd(chosen, compute_uv=False)
        sigma = max(float(values[-1]) - 8.0 * _EPS * (k + support.size) * float(values[0]), 0.0)
    dropped = np.ones(subspace.scatter.size, dtype=bool)
    dropped[support] = False
    return SelectionCertificate(
        n_clusters=n_clusters,
        n_directions=k,
        sigma_min=sigma,
        residual=subspace.residual,
        weighted_residual=float(squares @ subspace.column_residuals[support]),
        largest_weight=float(weights.max(initial=0.0)),
        dropped_scatter=float(subspace.scatter[dropped].sum()),
        lower_bound=subspace.lower_bound(n_clusters),
        squares=squares,
        scatter=subspace.scatter[support],
        rounding=subspace.rounding,
    )
