"""Columns divided by their spread, with and without centring, and clipped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Array, Floats
from sketchselect.linalg.csr import is_csr
from sketchselect.prepare.steps import (
    Block,
    Need,
    Step,
    as_floats,
    dense,
    in_pieces,
    require_count,
    require_number,
    with_stored,
)


def _deviation(summary: Any, ddof: int) -> Floats:
    """Return the standard deviation of every column: exactly 0 where it holds one value only."""
    weight = np.asarray(summary.weight, dtype=np.float64)
    scatter = np.asarray(summary.centered_column_squared_norms, dtype=np.float64)
    variance: Floats = np.divide(scatter, weight - ddof, out=np.zeros_like(scatter), where=weight > ddof)
    return np.sqrt(variance)


def _divided(block: Block, divisor: Floats) -> Block:
    """Return the columns divided; zeros stay zeros."""
    if not is_csr(block):
        return in_pieces(block, lambda rows: np.divide(rows, divisor, out=rows))
    values = as_floats(block.data)
    return with_stored(block, (values / divisor[block.indices]).astype(values.dtype, copy=False))


def _require_ddof(step: str, ddof: Any) -> None:
    if require_count(step, "ddof", ddof, 0) > 1:
        raise BadParameter(f"prepare step {step!r}: ddof must be 0 (all rows) or 1 (a sample), got {ddof!r}")


@dataclass(frozen=True, eq=False)
class Standardise(Step):
    """``(x_ij - mean_j) / sd_j``; constant columns become 0. Sparse blocks become dense.

    Parameters
    ----------
    ddof : int
        sd_j^2 is the sum of squares about the mean over ``n - ddof``: 0 is scikit-learn's, 1 scanpy's.
    """

    name: ClassVar[str] = "standardise"
    acts_on: ClassVar[Literal["rows", "columns"]] = "columns"
    takes_missing: ClassVar[bool] = True

    ddof: int = 0

    def __post_init__(self) -> None:
        _require_ddof(self.name, self.ddof)

    def may_be_negative(self, before: bool) -> bool:
        """Return True: half of the values are below the mean."""
        return True

    @property
    def keeps_sparsity(self) -> bool:
        """Zeros become ``-mean / sd``."""
        return False

    @property
    def needs(self) -> Need:
        """Means and spreads."""
        return Need("column-stats")

    def learn(self, summary: Any) -> dict[str, Array]:
        """Return mean and standard deviation of every column, infinity for constant ones: divided by it all are 0."""
        sd = _deviation(summary, self.ddof)
        return {"mean": np.asarray(summary.mean, dtype=np.float64), "sd": np.where(sd > 0, sd, np.inf)}

    def apply(self, block: Block) -> Array:
        """Return the standardised columns."""
        mean, sd = self.value("mean"), self.value("sd")
        self.require_width(block, mean.size)
        # Differences in float64: a float32 mean is wrong by more than the spread of a column far from 0.
        return in_pieces(dense(block), lambda rows: np.divide(np.subtract(rows, mean, out=rows), sd, out=rows))


@dataclass(frozen=True, eq=False)
class Scale(Step):
    """``x_ij / sd_j``: not centred, so zeros stay zeros; constant columns stay as they are.

    Parameters
    ----------
    ddof : int
        As for `Standardise`.
    """

    name: ClassVar[str] = "scale"
    acts_on: ClassVar[Literal["rows", "columns"]] = "columns"
    takes_missing: ClassVar[bool] = True

    ddof: int = 0

    def __post_init__(self) -> None:
        _require_ddof(self.name, self.ddof)

    @property
    def needs(self) -> Need:
        """Spreads."""
        return Need("column-stats")

    def learn(self, summary: Any) -> dict[str, Array]:
        """Return the standard deviation of every column, 1 for constant ones."""
        sd = _deviation(summary, self.ddof)
        return {"sd": np.where(sd > 0, sd, 1.0)}

    def apply(self, block: Block) -> Block:
        """Return the scaled columns."""
        sd = self.value("sd")
        self.require_width(block, sd.size)
        return _divided(block, sd)


@dataclass(frozen=True, eq=False)
class PilotScale(Step):
    """``x_ij / d_j`` with d_j the standard deviation in the first partition: nearly `Scale`, without a pass of its own.

    Columns that are constant there get the median of the others' (1 where all are). Means and variances are taken of
    what comes out, so the choice of d costs accuracy alone: a sketch of x / d, scaled back by d / sd, is within
    ``Delta max_j (d_j / sd_j)^2`` of that of the standardised columns.
    """

    name: ClassVar[str] = "pilot-scale"
    acts_on: ClassVar[Literal["rows", "columns"]] = "columns"
    takes_missing: ClassVar[bool] = True

    @property
    def needs(self) -> Need:
        """Spreads in the first partition."""
        return Need("column-stats", first_partition=True)

    def learn(self, summary: Any) -> dict[str, Array]:
        """Return the divisors."""
        sd = _deviation(summary, 0)
        positive = sd[sd > 0]
        return {"sd": np.where(sd > 0, sd, np.median(positive) if positive.size else 1.0)}

    def apply(self, block: Block) -> Block:
        """Return the scaled columns."""
        sd = self.value("sd")
        self.require_width(block, sd.size)
        return _divided(block, sd)


@dataclass(frozen=True, eq=False)
class Clip(Step):
    """``min(max(x_ij, low_j), high_j)``.

    Parameters
    ----------
    low, high : float, optional
        The same bounds for all columns; one of them may be left out.
    sd : float, optional
        Instead of these: ``mean_j -+ sd`` standard deviations of column j.
    """

    name: ClassVar[str] = "clip"
    acts_on: ClassVar[Literal["rows", "columns"]] = "columns"
    takes_missing: ClassVar[bool] = True

    low: float | None = None
    high: float | None = None
    sd: float | None = None

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, require_number(self.name, name, getattr(self, name)))
        if self.sd is not None:
            object.__setattr__(self, "sd", require_number(self.name, "sd", self.sd, above=0))
        if (self.sd is None) == (self.low is None and self.high is None):
            raise BadParameter(f"prepare step {self.name!r}: give low or high or both, or sd alone")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise BadParameter(
                f"prepare step {self.name!r}: low = {self.low:g} is above high = {self.high:g}; swap them"
            )

    def may_be_negative(self, before: bool) -> bool:
        """Return whether a bound makes values negative, or leaves those that are."""
        return (self.high is not None and self.high < 0) or (before and (self.low is None or self.low < 0))

    @property
    def keeps_sparsity(self) -> bool:
        """Whether 0 is inside the bounds of every column; False before they are fitted."""
        if self.sd is not None and self.values is None:
            return False
        low, high = self._bounds()
        return bool(np.all(low <= 0) and np.all(high >= 0))

    @property
    def needs(self) -> Need | None:
        """Means and spreads, for bounds in standard deviations."""
        return None if self.sd is None else Need("column-stats")

    def learn(self, summary: Any) -> dict[str, Array]:
        """Return the bounds of every column."""
        assert self.sd is not None
        mean, reach = np.asarray(summary.mean, dtype=np.float64), self.sd * _deviation(summary, 0)
        return {"low": mean - reach, "high": mean + reach}

    def _bounds(self) -> tuple[Floats, Floats]:
        if self.sd is not None:
            return self.value("low"), self.value("high")
        low = -np.inf if self.low is None else self.low
        return np.asarray(low), np.asarray(np.inf if self.high is None else self.high)

    def apply(self, block: Block) -> Block:
        """Return the clipped columns."""
        low, high = self._bounds()
        if low.ndim:
            self.require_width(block, low.size)
        block = block if self.keeps_sparsity else dense(block)
        if not is_csr(block):
            return in_pieces(block, lambda rows: np.clip(rows, low, high, out=rows))
        values = as_floats(block.data)
        if low.ndim:
            low, high = low[block.indices], high[block.indices]
        return with_stored(block, np.clip(values, low, high).astype(values.dtype, copy=False))
