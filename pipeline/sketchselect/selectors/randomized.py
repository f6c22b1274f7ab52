"""Randomised column selection for k-means by leverage (Boutsidis and Magdon-Ismail 2012, Algorithms 3 and 6)."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from sketchselect.linalg.barrier import longest_run, sample_spectral, top_up
from sketchselect.linalg.hashing import derive_seed, draw_columns, draw_weights
from sketchselect.linalg.parameters import Count, Share, Size, SketchSize, Times
from sketchselect.linalg.validation import Floats, seed_of
from sketchselect.selectors.kmeans_columns import (
    ColumnSelector,
    ColumnSubspace,
    Method,
    by_leverage,
    certify_weighted_columns,
    column_subspace,
)


class DrawnColumnSelector(ColumnSelector):
    """Base of the selectors that draw columns, and take the best draw; a draw is hashed from (seed, method, number).

    Parameters
    ----------
    svd : "exact" or "fast"
        Singular vectors of the sketch, or of a random projection of the sketch.
    epsilon : float
        For "fast": the residual of the directions is expected within 1 + epsilon of the best.
    n_draws : int
        Number of draws; the one of smallest ``||E Omega S||_F / sigma_k(Z' Omega S)`` is taken. A probability stated
        below is that of one draw; for the best of several it is unproved, while `certificate_` still holds.
    random_state : int, RandomState or None
        Seed of the draws and the projection.
    """

    def __init__(
        self,
        n_features_to_select: Size | None = None,
        n_clusters: Count | None = None,
        sketch_size: SketchSize | None = None,
        svd: Method = "exact",
        epsilon: Share = 0.5,
        n_draws: Times = 1,
        normalize: str | None = None,
        random_state: Any = 0,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.n_clusters = n_clusters
        self.sketch_size = sketch_size
        self.svd: Method = svd
        self.epsilon = epsilon
        self.n_draws = n_draws
        self.normalize = normalize
        self.random_state = random_state

    @abstractmethod
    def _draw(
        self, subspace: ColumnSubspace, n_select: int, n_clusters: int, seed: int
    ) -> tuple[Floats, dict[str, Any]]:
        """Return one draw: s_i^2 of every column, at most `n_select` of them positive."""

    def _further_parameters(self, summary: Any) -> dict[str, Any]:
        return {"epsilon": float(self.epsilon), "random_state": self._seed}

    def _subspace(self, summary: Any, n_clusters: int) -> ColumnSubspace:
        # A generator passed as random_state is used once a fit: the projection and the draws share its number.
        self._seed = seed_of(self.random_state)
        return column_subspace(summary, n_clusters, self.svd, float(self.epsilon), derive_seed(self._seed, "svd"))

    def _sample(
        self, subspace: ColumnSubspace, summary: Any, n_select: int, n_clusters: int
    ) -> tuple[Floats, dict[str, Any]]:
        least = math.inf
        best: tuple[Floats, dict[str, Any]] | None = None
        for draw in range(int(self.n_draws)):
            seed = derive_seed(self._seed, self.method, draw)
            squares, diagnostics = self._draw(subspace, n_select, n_clusters, seed)
            support = np.flatnonzero(squares)
            proof = certify_weighted_columns(subspace, support, squares[support], n_clusters)
            loss = proof.weighted_residual / proof.sigma_min**2 if proof.sigma_min > 0 else math.inf
            if best is None or loss < least:
                least, best = loss, (squares, diagnostics | {"draw": draw})
        assert best is not None
        return best


class RandomizedSelector(DrawnColumnSelector):
    """Select columns for k-means by drawing them with probabilities proportional to their leverage.

    With R = `n_features_to_select` draws with replacement, ``p_i = ||v_i||^2 / k`` and
    ``s_i^2 = (draws of i) / (R p_i)``, ``E s_i^2 = 1`` where p_i > 0; if ``R > 4 k log(20 k)``,
    ``sigma_k^2(V' Omega S) >= 1 - sqrt(4 k log(20 k) / R)`` with probability 0.9. Clusterings of the weighted columns
    are then within 3 + O(sqrt(k log(k) / R)) of the best one, a factor without constants; fewer draws have no such
    statement. The bounds of `certificate_` hold for every draw.

    Parameters
    ----------
    n_features_to_select : int, optional
        R > k; half of the columns by default. A column that is drawn twice counts once, so that fewer are selected; all
        columns, with weights of 1, where R is their number.
    top_up : bool, default False
        Add the columns that the draws leave missing to R distinct ones by leverage, with the median s^2 of those drawn,
        at most 1: not Algorithm 3. sigma_k cannot fall, and the expected ``||E Omega S||_F^2`` at most doubles, but
        E s_i^2 is above 1.

    Notes
    -----
    Guarantee: the bound on ``sigma_k^2`` with probability 0.9, for one draw; `certificate_` bounds any clustering
    of the weighted columns, always.

    y is ignored. Cost after the pass: n k^2 and R log n.
    Source: Boutsidis and Magdon-Ismail 2012, Algorithm 3 and Lemma 9; Boutsidis, Mahoney and Drineas 2009.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((300, 12))
    >>> chosen = RandomizedSelector(5, n_clusters=2, top_up=True).fit(X)
    >>> len(chosen.support_), chosen.weights_.shape
    (5, (5,))
    """

    method: ClassVar[str] = "randomized"

    def __init__(
        self,
        n_features_to_select: Size | None = None,
        n_clusters: Count | None = None,
        sketch_size: SketchSize | None = None,
        svd: Method = "exact",
        epsilon: Share = 0.5,
        n_draws: Times = 1,
        normalize: str | None = None,
        random_state: Any = 0,
        top_up: bool = False,
    ) -> None:
        super().__init__(n_features_to_select, n_clusters, sketch_size, svd, epsilon, n_draws, normalize, random_state)
        self.top_up = top_up

    def _draw(
        self, subspace: ColumnSubspace, n_select: int, n_clusters: int, seed: int
    ) -> tuple[Floats, dict[str, Any]]:
        draws = draw_columns(subspace.leverage, n_select, seed)
        squares = draw_weights(subspace.leverage, draws)
        n_missing = n_select - int(np.count_nonzero(squares)) if self.top_up else 0
        if n_missing:
            squares = top_up(squares, by_leverage(subspace), n_select)
        return squares, {"n_iterations": n_select, "n_added": n_missing}


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
    0.4, for one draw; `certificate_` bounds any clustering of these columns, always.

    y is ignored. One pass over the rows. If c is at least the number of columns, nothing is drawn, and the selection is
    that of Algorithm 5. Cost after the pass: at most 8 r steps of 2 c k^2 flops, some eight runs a draw.
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
        n_features_to_select: Size | None = None,
        n_clusters: Count | None = None,
        sketch_size: SketchSize | None = None,
        svd: Method = "fast",
        epsilon: Share = 0.5,
        n_draws: Times = 10,
        normalize: str | None = None,
        random_state: Any = 0,
    ) -> None:
        super().__init__(n_features_to_select, n_clusters, sketch_size, svd, epsilon, n_draws, normalize, random_state)

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
            scaled_vectors = subspace.vectors[candidates] * np.sqrt(first[candidates])[:, None]
            left_vectors, s, _ = np.linalg.svd(scaled_vectors, full_matrices=False)
            basis = np.ascontiguousarray(left_vectors[:, s > candidates.size * np.finfo(np.float64).eps * s[0]])
            run = longest_run(lambda steps: sample_spectral(basis, steps, most=n_select), n_select)
            squares, steps = np.zeros(p), run.n_iterations
            squares[candidates] = first[candidates] * run.squares
        n_added = n_select - int(np.count_nonzero(squares))
        factor = self._proven_factor(n_candidates(k, n_select), k, max(steps, n_select), n_added > 0)
        return top_up(squares, by_leverage(subspace), n_select), {
            "n_candidates": int(candidates.size),
            "n_iterations": steps,
            "n_added": n_added,
            "proven_factor": subspace.proven_factor(factor, n_clusters),
        }

    def _proven_factor(self, c: int, k: int, n_iterations: int, added: bool) -> float:
        """Return the factor of Theorem 5 (0.4), for any epsilon, with columns of s^2 <= 1 added afterwards or not."""
        residual = 10.0 * (1.0 + float(self.epsilon)) if self.svd == "fast" else 1.0
        constant = 5.0 * (1.0 + math.sqrt(c / n_iterations)) ** 2 + added
        return residual + 4.0 * (1.0 + residual) * constant / (1.0 - math.sqrt(k / n_iterations)) ** 2
