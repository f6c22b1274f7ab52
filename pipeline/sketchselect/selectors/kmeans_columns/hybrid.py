"""Randomised, then deterministic column selection for k-means (Boutsidis and Magdon-Ismail 2012, Algorithm 6)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.columns.barrier import longest_run, sample_spectral, top_up
from sketchselect.linalg.columns.draws import draw_columns, draw_weights
from sketchselect.selectors.kmeans_columns.base import by_leverage
from sketchselect.selectors.kmeans_columns.randomized import DrawnColumnSelector
from sketchselect.selectors.kmeans_columns.subspace import ColumnSubspace, Method


def n_candidates(n_directions: int, n_columns: int) -> int:
    """Return the draws c of the first stage: max(r, ceil(16 k log(20 k)))."""
    return max(n_columns, math.ceil(16 * n_directions * math.log(20 * n_directions)))


class HybridSelector(DrawnColumnSelector):
    """Select columns for k-means: a draw of c = max(r, 16 k log(20 k)) by leverage, thinned out deterministically.

    With probability 0.4 a draw is such that the objective, in all columns, of a gamma-approximate clustering of the
    weighted selected ones is at most ``15 + 320 gamma ((1 + sqrt(c / r)) / (1 - sqrt(k / r)))^2`` times the best one;
    no more columns than O(k) are needed. No probability is proved for the best of several draws
    (`n_draws`, by `certificate_`). The bounds of `certificate_` hold for every draw.

    Notes
    -----
    Guarantee: k-means on the weighted columns is within `proven_factor` of the best clustering with probability
    0.4, for one draw; `certificate_` bounds any clustering of them, always.

    y is ignored. One pass over the rows. If c is at least the number of columns, nothing is drawn, and the selection is
    that of Algorithm 5. Cost, beside the pass: at most 8 r steps of 2 c k^2 flops, some eight runs a draw.
    Source: Boutsidis and Magdon-Ismail 2012, Algorithm 6 and Theorem 5, with the missing square of (11).

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((300, 200))
    >>> chosen = HybridSelector(5, n_clusters=2).fit(X)
    >>> len(chosen.support_), chosen.selection_.diagnostics["n_candidates"] < 200
    (5, True)
    """

    method: ClassVar[str] = "hybrid"

    def __init__(
        self,
        n_features_to_select: float | None = None,
        n_clusters: int | None = None,
        sketch_size: int | None = None,
        svd: Method = "fast",
        epsilon: float = 0.5,
        n_draws: int = 10,
        normalize: str | None = None,
        random_state: Any = 0,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.n_clusters = n_clusters
        self.sketch_size = sketch_size
        self.svd = svd
        self.epsilon = epsilon
        self.n_draws = n_draws
        self.normalize = normalize
        self.random_state = random_state

    def _sample(
        self, subspace: ColumnSubspace, summary: Any, n_select: int, n_clusters: int
    ) -> tuple[Floats, dict[str, Any]]:
        p, k = subspace.vectors.shape
        if n_candidates(k, n_select) < p:
            return super()._sample(subspace, summary, n_select, n_clusters)
        run = longest_run(lambda steps: sample_spectral(subspace.vectors, steps, most=n_select), n_select)
        squares = top_up(run.squares, by_leverage(subspace), n_select)
        n_added = n_select - run.n_columns
        return squares, {"n_candidates": p, "n_iterations": run.n_iterations, "n_added": n_added}

    def _draw(
        self, subspace: ColumnSubspace, n_select: int, n_clusters: int, seed: int
    ) -> tuple[Floats, dict[str, Any]]:
        p, k = subspace.vectors.shape
        first = draw_weights(subspace.leverage, draw_columns(subspace.leverage, n_candidates(k, n_select), seed))
        candidates = np.flatnonzero(first)
        squares, steps = first, 0
        if candidates.size > n_select:
            # Repeated draws are merged: the same Z' Omega_1 S_1, in fewer columns.
            scaled = subspace.vectors[candidates] * np.sqrt(first[candidates])[:, None]
            left, s, _ = np.linalg.svd(scaled, full_matrices=False)
            basis = np.ascontiguousarray(left[:, s > candidates.size * np.finfo(np.float64).eps * s[0]])
            run = longest_run(lambda steps: sample_spectral(basis, steps, most=n_select), n_select)
            squares, steps = np.zeros(p), run.n_iterations
            squares[candidates] = first[candidates] * run.squares
        n_added = n_select - int(np.count_nonzero(squares))
        factor = self._proven_factor(n_candidates(k, n_select), k, max(steps, n_select), n_added > 0)
        return top_up(squares, by_leverage(subspace), n_select), {
            "n_candidates": int(candidates.size),
            "n_iterations": steps,
            "n_added": n_added,
            "proven_factor": factor if subspace.is_exact else None,
        }

    def _proven_factor(self, c: int, k: int, n_iterations: int, added: bool) -> float:
        """Return the factor of Theorem 5 (0.4), for any epsilon, with columns of s^2 <= 1 added afterwards or not."""
        residual = 10.0 * (1.0 + float(self.epsilon)) if self.svd == "fast" else 1.0
        spread = 5.0 * (1.0 + math.sqrt(c / n_iterations)) ** 2 + added
        return residual + 4.0 * (1.0 + residual) * spread / (1.0 - math.sqrt(k / n_iterations)) ** 2
