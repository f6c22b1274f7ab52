"""Steps fitted by statistics of all rows: scaled columns, tf-idf, Pearson residuals, and missing values filled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.linalg.parameters import Limits, Positive, whole
from sketchselect.linalg.validation import Array, Floats, is_csr, is_number
from sketchselect.prepare.steps import (
    Block,
    Need,
    Replaced,
    Step,
    as_floats,
    dense,
    in_pieces,
    require_counts,
    stored,
    with_stored,
)


def _deviation(summary: Any, ddof: int) -> Floats:
    """Return the standard deviation of every column: exactly 0 where it holds one value only."""
    weight = np.asarray(summary.weight, dtype=np.float64)
    scatter = np.asarray(summary.centered_column_squared_norms, dtype=np.float64)
    variance: Floats = np.divide(scatter, weight - ddof, out=np.zeros_like(scatter), where=weight > ddof)
    return np.sqrt(variance)


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
    is_by_column: ClassVar[bool] = True
    takes_missing: ClassVar[bool] = True
    keeps_sparsity = False  # Zeros become ``-mean / sd``
    needs = Need("column-stats")

    ddof: Annotated[int, whole(0, most=1)] = 0

    def may_be_negative(self, before: bool) -> bool:
        """Return True: half of the values are below the mean."""
        return True

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
class _Division(Step):
    """Base of steps that divide every column by a number, so that zeros stay zeros."""

    acts_on: ClassVar[Literal["rows", "columns"]] = "columns"
    is_by_column: ClassVar[bool] = True
    takes_missing: ClassVar[bool] = True

    def apply(self, block: Block) -> Block:
        """Return the scaled columns."""
        sd = self.value("sd")
        self.require_width(block, sd.size)
        if not is_csr(block):
            return in_pieces(block, lambda rows: np.divide(rows, sd, out=rows))
        values = as_floats(block.data)
        return with_stored(block, (values / sd[block.indices]).astype(values.dtype, copy=False))


@dataclass(frozen=True, eq=False)
class Scale(_Division):
    """``x_ij / sd_j``: not centred, so zeros stay zeros; constant columns stay as they are.

    Parameters
    ----------
    ddof : int
        As for `Standardise`.
    """

    name: ClassVar[str] = "scale"
    needs = Need("column-stats")

    ddof: Annotated[int, whole(0, most=1)] = 0

    def learn(self, summary: Any) -> dict[str, Array]:
        """Return the standard deviation of every column, 1 for constant ones."""
        sd = _deviation(summary, self.ddof)
        return {"sd": np.where(sd > 0, sd, 1.0)}


@dataclass(frozen=True, eq=False)
class PilotScale(_Division):
    """``x_ij / d_j`` with d_j the standard deviation in the first partition: nearly `Scale`, without a pass of its own.

    Columns that are constant there get the median of the others' (1 where all are). Means and variances are taken of
    what comes out, so the choice of d costs accuracy alone: a sketch of x / d, scaled back by d / sd, is within
    ``Delta max_j (d_j / sd_j)^2`` of that of the standardised columns.
    """

    name: ClassVar[str] = "pilot-scale"
    needs = Need("column-stats", first_partition=True)

    def learn(self, summary: Any) -> dict[str, Array]:
        """Return the divisors."""
        sd = _deviation(summary, 0)
        positive = sd[sd > 0]
        return {"sd": np.where(sd > 0, sd, np.median(positive) if positive.size else 1.0)}


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
    is_by_column: ClassVar[bool] = True
    takes_missing: ClassVar[bool] = True

    low: float | None = None
    high: float | None = None
    sd: Positive | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
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


@dataclass(frozen=True, eq=False)
class TfIdf(Step):
    """``tf(x_ij) idf_j`` with ``idf_j = ln((1 + n) / (1 + df_j)) + 1``, as scikit-learn's `TfidfTransformer` has it.

    df_j is the number of rows in which column j is not zero, n the number of rows. Unit length is a step of its own.
    A column that is zero in every row has df = 0 and a finite weight; it stays zero.

    Parameters
    ----------
    sublinear : bool
        Take ``1 + ln(x)`` of every count above 0 instead of the count.
    smooth : bool
        False: ``idf_j = ln(n / max(df_j, 1)) + 1``.
    """

    name: ClassVar[str] = "tf-idf"
    acts_on: ClassVar[Literal["rows", "columns"]] = "columns"
    of_counts: ClassVar[bool] = True
    needs = Need("column-stats")

    sublinear: bool = False
    smooth: bool = True

    def may_be_negative(self, before: bool) -> bool:
        """Return whether logarithms are taken: those of values below 1/e are below -1."""
        return self.sublinear

    def learn(self, summary: Any) -> dict[str, Array]:
        """Return the weights, and the number of columns that are zero throughout."""
        df = np.asarray(summary.nonzero, dtype=np.float64)
        n = float(summary.n_rows)
        if self.smooth:
            idf = np.log((1.0 + n) / (1.0 + df)) + 1.0
        else:
            idf = np.log(max(n, 1.0) / np.maximum(df, 1.0)) + 1.0
        return {"idf": idf, "empty": np.asarray(np.count_nonzero(df == 0))}

    def notes(self, names: Sequence[str] | None = None) -> list[str]:
        """Return how many columns are zero in all rows."""
        empty = int(self.value("empty"))
        columns, stay = ("column is", "stays") if empty == 1 else ("columns are", "stay")
        return [f"prepare, tf-idf: {empty} {columns} zero in every row and {stay} zero"] if empty else []

    def apply(self, block: Block) -> Block:
        """Return the weighted counts."""
        idf = self.value("idf")
        self.require_width(block, idf.size)
        require_counts(block, self.name)
        if not is_csr(block):
            return in_pieces(block, lambda counts: np.multiply(self._tf(counts), idf, out=counts))
        values = as_floats(block.data)
        weighted = self._tf(values.astype(np.float64)) * idf[block.indices]
        return with_stored(block, weighted.astype(values.dtype, copy=False))

    def _tf(self, counts: Floats) -> Floats:
        """Return the term frequencies; may change `counts`."""
        if self.sublinear:
            there = counts > 0
            np.log(counts, out=counts, where=there)
            np.add(counts, 1.0, out=counts, where=there)
        return counts


_PositiveOrInfinite = Annotated[
    float, Limits("a number above 0", lambda value: value == np.inf or is_number(value, above=0))
]


@dataclass(frozen=True, eq=False)
class PearsonResiduals(Step):
    """``(x_ij - mu_ij) / sqrt(mu_ij + mu_ij^2 / theta)``, clipped, with ``mu_ij = sum(x_i) q_j``; rows become dense.

    q_j is the share of column j in the sum of all counts, so that mu is what rows of one composition would have: the
    analytic residuals of a negative binomial model, as scanpy's `normalize_pearson_residuals` has them. Where mu is 0
    the residual is 0. Source: Lause, Berens and Kobak 2021, equations 3 and 4.

    Parameters
    ----------
    theta : float
        Inverse overdispersion: the variance of a count of mean mu is ``mu + mu^2 / theta``; infinity for Poisson.
    clip : float, optional
        Largest magnitude; the square root of the number of rows by default, infinity for none.
    """

    name: ClassVar[str] = "pearson-residuals"
    acts_on: ClassVar[Literal["rows", "columns"]] = "columns"
    of_counts: ClassVar[bool] = True
    keeps_sparsity = False  # Zeros become ``-mu / sqrt(mu + mu^2 / theta)``
    needs = Need("column-stats")

    theta: _PositiveOrInfinite = 100.0
    clip: _PositiveOrInfinite | None = None

    def may_be_negative(self, before: bool) -> bool:
        """Return True: counts below their expectation have negative residuals."""
        return True

    def learn(self, summary: Any) -> dict[str, Array]:
        """Return the share of every column in the sum of all counts, and the largest magnitude."""
        mean = np.asarray(summary.mean, dtype=np.float64)
        total = float(mean.sum())
        bound = np.sqrt(float(summary.n_rows)) if self.clip is None else self.clip
        return {"share": mean / total if total > 0 else np.zeros_like(mean), "bound": np.asarray(bound)}

    def apply(self, block: Block) -> Array:
        """Return the residuals."""
        share, bound = self.value("share"), float(self.value("bound"))
        self.require_width(block, share.size)
        require_counts(block, self.name)

        def residuals(counts: Floats) -> Floats:
            expected = np.sum(counts, axis=1)[:, None] * share
            deviation = np.sqrt(expected + expected**2 / self.theta)
            out: Floats = np.divide(counts - expected, deviation, out=np.zeros_like(counts), where=deviation > 0)
            np.clip(out, -bound, bound, out=out)
            return out

        return in_pieces(dense(block), residuals)


SAMPLED_ROWS = 1000
"""Rows of which a median is taken; all of them up to this number."""

_MARK = float(np.finfo(np.float32).max)
"""Stands for a missing value in a sample of rows, which holds numbers alone."""


def _filled(block: Block, values: Array) -> Block:
    """Return the block with NaN replaced, column by column."""
    if is_csr(block):
        data = as_floats(block.data)
        return with_stored(block, np.where(np.isnan(data), values[block.indices], data).astype(data.dtype, copy=False))
    rows = as_floats(block)
    return np.where(np.isnan(rows), values.astype(rows.dtype), rows)


@dataclass(frozen=True, eq=False)
class MarkMissing(Step):
    """Missing values marked by the largest float32, for the sample that a median is taken of."""

    name: ClassVar[str] = "mark-missing"
    acts_on: ClassVar[Literal["rows", "columns"]] = "rows"
    takes_missing: ClassVar[bool] = True
    fills_missing: ClassVar[bool] = True

    def apply(self, block: Block) -> Block:
        """Return the block with marks."""
        return _filled(block, np.full(block.shape[1], _MARK))


@dataclass(frozen=True, eq=False)
class Impute(Step):
    """Missing values (NaN) replaced by the mean or the median of the others in their column; 0 where there are none.

    Parameters
    ----------
    by : {"mean", "median"}
        The mean is that of all rows. The median is exact up to 1,000 rows, and beyond that the median of that many rows
        drawn by hash: with probability 0.99 its rank is within 4.1 % of the middle where nothing is missing.
    """

    name: ClassVar[str] = "impute"
    acts_on: ClassVar[Literal["rows", "columns"]] = "columns"
    is_by_column: ClassVar[bool] = True
    takes_missing: ClassVar[bool] = True
    fills_missing: ClassVar[bool] = True
    keeps_units: ClassVar[bool] = True

    by: Literal["mean", "median"] = "mean"

    @property
    def needs(self) -> Need:
        """The means of the columns, or a sample of the rows."""
        if self.by == "mean":
            return Need("column-stats")
        return Need("row-sample", {"size": SAMPLED_ROWS}, weighted=False, before=(MarkMissing(),))

    def learn(self, summary: Any) -> dict[str, Array]:
        """Return the value of every column, and whether it has one."""
        if self.by == "mean":
            value = np.where(np.asarray(summary.missing) < summary.n_rows, summary.mean, np.nan)
        else:
            rows = dense(summary.rows).astype(np.float64)
            rows[rows == _MARK] = np.nan
            some = ~np.isnan(rows).all(axis=0)
            value = np.full(rows.shape[1], np.nan)
            value[some] = np.nanmedian(rows[:, some], axis=0)
        known = np.isfinite(value)
        return {"value": np.where(known, value, 0.0), "known": known}

    def notes(self, names: Sequence[str] | None = None) -> list[str]:
        """Return a note on columns without a value."""
        n_unknown = 0 if self.values is None else int(np.count_nonzero(~self.value("known").astype(bool)))
        if not n_unknown:
            return []
        columns = "1 column has" if n_unknown == 1 else f"{n_unknown} columns have"
        return [f"prepare step {self.name!r}: {columns} no value to take the {self.by} of, and became 0"]

    def apply(self, block: Block) -> Block:
        """Return the block without missing values."""
        value = self.value("value")
        self.require_width(block, value.size)
        return _filled(block, value)

    def n_filled(self, block: Block) -> Array:
        """Return the number of missing values of every column."""
        is_missing = np.isnan(stored(block))
        if is_csr(block):
            return np.bincount(block.indices[is_missing], minlength=block.shape[1])
        return np.asarray(np.count_nonzero(is_missing, axis=0))

    def replaced(self, block: Block) -> dict[int, Replaced]:
        """Return the number of missing values of every column that has some."""
        counts = self.n_filled(block)
        return {j: Replaced(int(counts[j])) for j in np.flatnonzero(counts).tolist()}


FILLING_STEP = f'the prepare step "{Impute.name}"'
"""What messages advise for missing values."""

SCALING_STEPS = frozenset((Standardise.name, Scale.name, PilotScale.name))
"""Names of the steps that put all columns on one scale."""
