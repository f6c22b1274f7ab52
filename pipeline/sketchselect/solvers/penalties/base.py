"""Base class of penalties: even functions of one coefficient with a piecewise linear derivative."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Floats


class Penalty(ABC):
    """An even penalty ``P(b; alpha)`` whose derivative on b > 0 is continuous and piecewise linear.

    A subclass defines `value` and `pieces`, from which proximal step, distance to the subdifferential and the compiled
    solvers follow. With several targets the penalty is on the norm of the coefficients of a column.
    """

    name: ClassVar[str]

    @abstractmethod
    def value(self, coef: Floats, alpha: float) -> Floats:
        """Return ``P(b; alpha)`` of every entry."""

    @abstractmethod
    def pieces(self, alpha: Floats) -> Floats:
        """Return the derivative on b > 0 for every alpha, an array of shape ``alpha.shape + (K, 3)``.

        Row k is ``(end, slope, level)``: ``P'(b) = level + slope * b`` from the end of the row before (0 for the first)
        up to `end`; the last end is infinite. Slopes are above -1, so that the minimiser for one coefficient of a
        standardised column is unique.
        """

    @property
    def convex(self) -> bool:
        """Whether no piece of the derivative decreases."""
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
            raise BadParameter(f"step {step} is too long for the concave penalty {self.name}")
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

        It is zero everywhere if and only if `coef` is a stationary point of the objective whose smooth part has this
        gradient.
        """
        size = np.abs(coef)
        pieces = self.pieces(np.asarray(float(alpha)))
        k = (size[..., None] > pieces[:, 0]).sum(axis=-1)
        slope = np.sign(coef) * (pieces[k, 2] + pieces[k, 1] * size)
        out: Floats = np.where(coef == 0, np.maximum(np.abs(gradient) - pieces[0, 2], 0.0), np.abs(gradient + slope))
        return out
