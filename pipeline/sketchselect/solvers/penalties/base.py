"""What a penalty is: the derivative of an even function of one coefficient, linear in pieces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Floats


class Penalty(ABC):
    """An even penalty ``P(b; alpha)`` whose derivative on b > 0 is continuous and linear in pieces.

    A subclass gives `value` and `pieces`; proximal step, distance to the subdifferential and the compiled solvers
    follow from the pieces. With several targets it is a penalty on the norm of a column's coefficients.
    """

    name: ClassVar[str]

    @abstractmethod
    def value(self, coef: Floats, alpha: float) -> Floats:
        """Return ``P(b; alpha)`` of every entry."""

    @abstractmethod
    def pieces(self, alpha: Floats) -> Floats:
        """Return the derivative on b > 0 for every alpha, an array of shape ``alpha.shape + (K, 3)``.

        Row k is ``(end, slope, level)``: ``P'(b) = level + slope * b`` from the end of the row before (0 for the first)
        up to `end`; the last end is infinite. Slopes are above -1, so that one coefficient of a standardised column
        has one minimiser.
        """

    @property
    def convex(self) -> bool:
        """Whether no piece of the derivative falls."""
        return bool((self.pieces(np.ones(1))[..., 1] >= 0).all())

    def prox(self, values: Floats, alpha: float, step: float = 1.0) -> Floats:
        """Return ``argmin_b (b - t)^2 / 2 + step * P(b; alpha)`` for every entry t.

        Raises
        ------
        BadParameter
            If the minimiser is not unique, ``1 + step * slope <= 0``; the solvers take steps of at most 1.
        """
        pieces = self.pieces(np.asarray(float(alpha)))
        if (1.0 + step * pieces[:, 1] <= 0).any():
            raise BadParameter(f"step {step} is too long for the concavity of {self.name}")
        size = np.abs(np.asarray(values, dtype=np.float64))
        out, start = np.zeros(size.shape), np.zeros(size.shape)
        for end, slope, level in pieces:
            inside = size > start + step * (level + slope * start)
            out = np.where(inside, np.minimum((size - step * level) / (1.0 + step * slope), end), out)
            start = np.full(size.shape, end)
            if not np.isfinite(end):
                break
        return np.copysign(out, values)

    def subdiff_distance(self, coef: Floats, gradient: Floats, alpha: float) -> Floats:
        """Return the distance of ``-gradient`` to the subdifferential of P at every coefficient.

        It is zero everywhere if and only if `coef` is a stationary point of the objective with this gradient of its
        smooth part.
        """
        size = np.abs(coef)
        pieces = self.pieces(np.asarray(float(alpha)))
        k = (size[..., None] > pieces[:, 0]).sum(axis=-1)
        slope = np.sign(coef) * (pieces[k, 2] + pieces[k, 1] * size)
        out: Floats = np.where(coef == 0, np.maximum(np.abs(gradient) - pieces[0, 2], 0.0), np.abs(gradient + slope))
        return out


def check_parameter(name: str, value: float, low: float, high: float = np.inf) -> float:
    """Return `value` as a float if ``low < value <= high``; raise `BadParameter` otherwise."""
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not number or not low < float(value) <= high:
        limits = f"above {low:g}" + ("" if high == np.inf else f" and at most {high:g}")
        raise BadParameter(f"{name} must be {limits}, got {value!r}")
    return float(value)
