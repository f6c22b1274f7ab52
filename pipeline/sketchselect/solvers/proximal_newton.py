"""Steps of the proximal Newton method for smooth convex losses with an elastic net penalty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sketchselect.linalg.validation import Floats
from sketchselect.solvers.penalized import WorkingSet

_RIDGE = 1e-10  # Of the scaled Hessian, so that every step has one solution; the gradient alone decides where they end
_LEAST_CURVATURE = 1e-12  # Relative to the largest of a Hessian; directions of less are taken to have this much
_TOL = 1e-13


@dataclass(frozen=True)
class NetPenalty:
    """The elastic net ``level |b|_1 + ridge |b|^2 / 2``, with ``level = alpha l1_ratio``, of all but intercepts."""

    level: float
    ridge: float

    @classmethod
    def of(cls, alpha: float, l1_ratio: float) -> NetPenalty:
        """Return the penalty of a strength alpha."""
        return cls(alpha * l1_ratio, alpha * (1.0 - l1_ratio))

    def value(self, coef: Floats) -> float:
        """Return the penalty of these coefficients, intercepts left out."""
        return self.level * float(np.abs(coef).sum()) + 0.5 * self.ridge * float((coef * coef).sum())

    def violations(self, coef: Floats, gradient: Floats) -> Floats:
        """Return the distance of minus the gradient of the loss to the subdifferential, for each coefficient."""
        slope = gradient + self.ridge * coef
        out: Floats = np.where(
            coef != 0, np.abs(slope + self.level * np.sign(coef)), np.maximum(np.abs(slope) - self.level, 0.0)
        )
        return out

    def gap_bound(
        self, objective: float, coef: Floats, violations: Floats, intercepts: Floats, slopes: Floats
    ) -> float:
        """Return a bound of ``(F(b) - F*) / F(b)`` from the violations v at b.

        F is convex, so ``F(b) - F* <= max(v) |b - b*|_1``, and ``level |b*|_1 <= F* <= F(b)``; with a ridge it is also
        at most ``|v|^2 / (2 ridge)``. Intercepts are taken to be off by at most their own size, or 1.

        `objective`: F(b): a mean loss of at least 0, with the penalty.
        `coef`, `violations`: Of the penalised coefficients.
        `intercepts`, `slopes`: The others, and the derivatives of the loss by them.
        """
        distance = float(violations.max(initial=0.0)) * (float(np.abs(coef).sum()) + objective / self.level)
        if self.ridge > 0:
            distance = min(distance, float((violations * violations).sum()) / (2.0 * self.ridge))
        distance += float((np.abs(slopes) * np.maximum(np.abs(intercepts), 1.0)).sum())
        return 0.0 if distance == 0.0 else distance / objective if objective > 0 else np.inf


def newton_step(
    coef: Floats, gradient: Floats, hessian: Floats, penalty: NetPenalty, is_penalised: NDArray[np.bool_]
) -> Floats:
    """Return the minimiser c of ``g'(c - b) + (c - b)'H(c - b) / 2 + P(c)``, with P on the penalised coefficients.

    Parameters
    ----------
    coef, gradient : array of shape (s,)
        b, and the gradient of the loss there.
    hessian : array of shape (s, s)
        H, positive semidefinite.
    penalty : NetPenalty
        P.
    is_penalised : array of bool, shape (s,)
        False for intercepts.

    Notes
    -----
    Cost: sweeps over the working set, as of `solve_path`.
    Source: Lee, Sun and Saunders 2014, equation 2.8.

    Examples
    --------
    >>> step = newton_step(np.zeros(2), np.array([-3.0, 0.5]), np.eye(2), NetPenalty(1.0, 0.0), np.ones(2, bool))
    >>> step.round(9).tolist()
    [2.0, 0.0]
    """
    curvature = hessian.diagonal() + penalty.ridge * is_penalised
    largest = float(curvature.max(initial=0.0))
    if not largest > 0:
        return coef.copy()
    root = np.sqrt(np.maximum(curvature, _LEAST_CURVATURE * largest))
    gram = hessian / root
    gram /= root[:, None]
    gram *= 1.0 - _RIDGE
    np.fill_diagonal(gram, 1.0)
    pull = gram @ (root * coef) - (gradient + penalty.ridge * coef * is_penalised) / root
    unit = float(np.abs(pull).max()) or 1.0
    pieces = np.zeros((coef.size, 1, 3))
    pieces[:, 0, 0] = np.inf
    pieces[:, 0, 2] = np.where(is_penalised, penalty.level, 0.0) / root / unit
    state = WorkingSet(gram, pull[:, None] / unit, np.ones(coef.size, dtype=bool))
    state.start_at(coef[:, None] * root[:, None] / unit)
    state.solve(pieces, _TOL)
    return state.coef[:, 0] * unit / root
