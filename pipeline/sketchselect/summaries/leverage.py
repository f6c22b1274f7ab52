"""Summaries by ridge leverage: `LeverageSample`, weighted rows, and `LeverageScores`, exact in two passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchselect.errors import BadParameter, Incompatible
from sketchselect.linalg.hashing import derive_seed, uniforms
from sketchselect.linalg.leverage import GrowingFactor, floored, online_sample, sample_scores, scatter_scores
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import (
    PIECE_ROWS,
    Array,
    Floats,
    as_block,
    as_weights,
    canonical,
    global_rows,
    pieces,
    require_finite,
    require_number,
    require_seed,
    row_numbers,
)
from sketchselect.summaries.base import Context, Summary, register, shared_rows

AUTO_RIDGE = 1e-3
"""The ridge "auto" as a share of the squared norm of all rows."""

TYPICAL_ROWS = 128
"""Rows of a sample in projections of memory."""

SamplingRate = float | Literal["paper"] | None
Ridge = float | Literal["auto"]
R = TypeVar("R", "SampleRecord", "ScoresRecord")


@dataclass(frozen=True)
class SampleRecord:
    """State of `LeverageSample`.

    `items`, `intensities` and `rows` are those of the sample, by ascending index; `seen` and `scores` those of every
    row; `error` is measured afterwards, NaN before.
    """

    n_rows: int
    squared_norm: float
    ridge: float
    items: NDArray[np.int64]
    intensities: Floats
    rows: Floats
    seen: NDArray[np.int64]
    scores: Floats
    error: float = float("nan")

    @property
    def n_features(self) -> int:
        """Length of a row."""
        return int(self.rows.shape[1])


@register
class LeverageSample(Summary[SampleRecord]):
    """Rows sampled by online ridge leverage, each weighted by the inverse of its probability.

    With C the sampled rows times `weights` and A all rows, in expectation C'C = A'A for fixed partitions, and at the
    sampling rate "paper" with probability at least ``1 - 2 / (n + 1)^2`` over the seed (n columns)::

        (1 - eps) A'A - eps ridge I  <=  C'C  <=  (1 + eps) A'A + eps ridge I

    In general it is ``1 - 2 n exp(-3 c eps^2 / 8)`` for the rate c: nothing at the default one, whose error can only be
    measured (`OnlineLeverageSelector.eps_`). Proved for rows one after the other (one block, or `update`); of merges it
    is tested, not proved. `merge` and `update` refuse a global index that occurs twice. To sample *columns*, summarise
    `sketchselect.readers.transposed` of the matrix: its rows are the columns, and `start` the global index of the first
    of them.

    Parameters
    ----------
    eps : float
        Accuracy, between 0 and 1; scores are raised by 1 + eps to stay above the true ones.
    sampling_rate : float, "paper" or None
        c: a row of leverage l is sampled with probability c l. "paper": ``8 log(n + 1) / eps^2``, for the guarantee;
        None: ``3 log(n + 1)``, for a far smaller sample.
    ridge : float or "auto"
        "auto": 0.001 times the squared norm of the rows so far, constant within a block. At least 1e-12 times that
        norm, so that with 0 a row outside the span of the others scores 1.
    seed : int
        From 0 to 2^64 - 1. The uniform number of a row is hashed from seed and row index, so the sample does not
        depend on order or worker.

    Notes
    -----
    `from_block` samples rows one after the other (`online_sample`); `merge` scores the union of two samples again and
    retains row i iff its uniform number is below the minimum of 1 and its smallest ``c (1 + eps) score`` so far, so
    weights do not compound. The ridge of a merge is the larger one, or "auto" of the sum of the norms: both samples
    were drawn with smaller ridges against fewer rows, so with probabilities at least as high as needed. `update`
    continues the online algorithm: it samples fewer rows than `merge`, and earlier ones do not change. Rows of zeros
    are never sampled. With `sample_weight` w, row a counts as sqrt(w) a.

    Bytes: 8 n for every row of the sample, and 16 for every row. Cost: see `sketchselect.linalg.leverage`.
    Source: Wang, Shen and Li 2018, Algorithm 1; ridge form of Cohen, Musco and Pachocki 2016; merge-and-resample as in
    Calandriello, Lazaric and Valko 2017 (DISQUEAK).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> A = rng.standard_normal((4000, 5))
    >>> s = LeverageSample(sampling_rate=100.0, ridge=1.0).from_block(A)
    >>> s.n_kept < 2500, bool(abs(np.linalg.norm(s.sample) ** 2 / np.linalg.norm(A) ** 2 - 1) < 0.1)
    (True, True)
    """

    kind = "leverage-sample"
    record_type = SampleRecord
    of_columns = True

    def __init__(
        self, eps: float = 0.5, sampling_rate: SamplingRate = None, ridge: Ridge = "auto", seed: int = 0
    ) -> None:
        self.eps = require_number("eps", eps, above=0, below=1)
        if sampling_rate is not None and sampling_rate != "paper":
            sampling_rate = require_number('sampling_rate, unless None or "paper",', sampling_rate, above=0)
        if ridge != "auto":
            ridge = require_number('ridge, unless "auto",', ridge, least=0)
        self.sampling_rate: SamplingRate = sampling_rate
        self.ridge: Ridge = ridge
        self.seed = require_seed(seed)

    def rate(self, n_features: int) -> float:
        """Return the sampling rate c for rows of this length."""
        if self.sampling_rate is None:
            return 3.0 * float(np.log(n_features + 1))
        if self.sampling_rate == "paper":
            return 8.0 * float(np.log(n_features + 1)) / self.eps**2
        return float(self.sampling_rate)

    def most_rows(self, n_features: int) -> int:
        """Return the largest expected size of a merged sample of any number of rows: ``c (1 + eps) n``.

        Scores of a weighted sample M sum to at most ``tr M (M + ridge I)^-1``, so with the ridge "auto" to at most 1000
        also for larger n. The sample of one block may be larger, up to all of its rows.
        """
        effective = n_features if self.ridge != "auto" else min(n_features, round(1.0 / AUTO_RIDGE))
        return int(np.ceil(self.rate(n_features) * (1.0 + self.eps) * effective))

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the bytes of a sample of `TYPICAL_ROWS` rows; the actual size (`most_rows`) depends on the data."""
        return 8 * TYPICAL_ROWS * (n_features + 4)

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the extra bytes of one `from_block` or `merge` of such samples."""
        return 4 * self.projected_nbytes(n_features) + 8 * 3 * min(n_features, 4 * TYPICAL_ROWS) ** 2 + (96 << 20)

    def _empty(self, n_features: int, n_targets: int) -> SampleRecord:
        none, nothing = np.zeros(0, dtype=np.int64), np.zeros(0)
        return SampleRecord(0, 0.0, 0.0, none, nothing, np.zeros((0, n_features)), none, nothing)

    def _summarise(self, block: Array, targets: Any, start: int | Array, weights: Floats | None) -> SampleRecord:
        return self._extend(self._empty(block.shape[1], 0), block, start, weights)

    def _extend(self, old: SampleRecord, block: Array, start: int | Array, weights: Floats | None) -> SampleRecord:
        """Return the record after the arrival of these rows, one after the other."""
        index = global_rows(start, block.shape[0]).astype(np.int64)
        require_finite(block, int(index[0]))
        rows: Floats = canonical(block, np.float64)
        if weights is not None:
            rows = rows * np.sqrt(weights)[:, None]
        squared_norm = old.squared_norm + float(np.einsum("ij,ij->", rows, rows))
        ridge = self._ridge(squared_norm, old.ridge)
        draws = self._draws(index)
        with one_blas_thread():
            factor = GrowingFactor(rows.shape[1], ridge)
            if old.items.size:
                factor.append(old.rows / np.sqrt(np.minimum(old.intensities, 1.0))[:, None])
            scores, intensities = online_sample(
                rows, draws, factor, inflation=1.0 + self.eps, rate=self.rate(rows.shape[1])
            )
        sampled = draws < intensities
        sample = index[sampled], intensities[sampled], rows[sampled]
        return _sorted(_concatenated(old, SampleRecord(rows.shape[0], squared_norm, ridge, *sample, index, scores)))

    def _combine(self, left: SampleRecord, right: SampleRecord) -> SampleRecord:
        squared_norm = left.squared_norm + right.squared_norm
        ridge = self._ridge(squared_norm, left.ridge, right.ridge)
        right = replace(right, squared_norm=squared_norm, ridge=ridge, error=float("nan"))
        union = _sorted(_concatenated(left, right))
        if union.items.size == 0:
            return union
        with one_blas_thread():
            new_scores = sample_scores(union.rows, np.minimum(union.intensities, 1.0), union.ridge)
        new_intensities = self.rate(union.n_features) * np.minimum((1.0 + self.eps) * new_scores, 1.0)
        intensities = np.minimum(union.intensities, new_intensities)
        sampled = self._draws(union.items) < intensities
        scores = union.scores.copy()
        place = np.searchsorted(union.seen, union.items)
        scores[place] = np.minimum(scores[place], new_scores)
        return replace(
            union, items=union.items[sampled], intensities=intensities[sampled], rows=union.rows[sampled], scores=scores
        )

    def _appended(
        self, X: ArrayLike, y: Any, start: int | Array, sample_weight: ArrayLike | None, context: Context
    ) -> Self:
        # Rows are scored against the sample so far, so fewer are sampled than by `merge`.
        block = as_block(X)
        start = row_numbers(start, block.shape[0])
        weights = as_weights(sample_weight, block.shape[0], start)
        self.require_mergeable(self._with(self._empty(block.shape[1], 0), context))
        if block.shape[0] == 0:
            return self
        return self._with(self._extend(self.record, block, start, weights), self.context)

    def _next_start(self) -> int:
        return int(self.record.seen[-1]) + 1 if self.record.seen.size else 0

    def _ridge(self, squared_norm: float, *before: float) -> float:
        ridge = AUTO_RIDGE * squared_norm if self.ridge == "auto" else float(self.ridge)
        return max(floored(ridge, squared_norm), *before)

    def _draws(self, items: NDArray[np.int64]) -> Floats:
        return uniforms(derive_seed(self.seed, "leverage-sample"), items.astype(np.uint64))

    def measured(self, error: float) -> Self:
        """Return the sample labelled with its measured spectral error; `update` and `merge` remove the label."""
        return self._with(replace(self.record, error=float(error)), self.context)

    def details(self) -> Iterator[str]:
        """Yield the size of the sample and its measured error."""
        error = "not measured" if np.isnan(self.error) else f"{self.error:.3g}"
        yield f"sample of {self.n_kept} columns, spectral error {error}"

    # --- answers -----------------------------------------------------------------------------------------------

    @property
    def squared_norm(self) -> float:
        """||A||_F^2 of all rows; exact."""
        return self.record.squared_norm

    @property
    def final_ridge(self) -> float:
        """The ridge of the guarantee."""
        return self.record.ridge

    @property
    def error(self) -> float:
        """Measured spectral error (see `measured`); NaN if it was not measured."""
        return self.record.error

    @property
    def n_kept(self) -> int:
        """Number of rows in the sample."""
        return int(self.record.items.shape[0])

    @property
    def items(self) -> NDArray[np.int64]:
        """Global indices of the rows in the sample, ascending."""
        return self.record.items

    @property
    def intensities(self) -> Floats:
        """C times the smallest score of each sampled row so far, not limited to 1; shape (n_kept,)."""
        return self.record.intensities

    @property
    def probabilities(self) -> Floats:
        """Sampling probability of each sampled row, shape (n_kept,)."""
        return np.minimum(self.record.intensities, 1.0)

    @property
    def weights(self) -> Floats:
        """``1 / sqrt(probability)`` of each sampled row, shape (n_kept,)."""
        return np.asarray(1.0 / np.sqrt(self.probabilities))

    @property
    def draws(self) -> Floats:
        """The uniform number of each sampled row, less than its probability."""
        return self._draws(self.record.items)

    @property
    def sample(self) -> Floats:
        """C: the sampled rows times their weights, shape (n_kept, n_features)."""
        return self.record.rows * self.weights[:, None]

    @property
    def seen(self) -> NDArray[np.int64]:
        """Global indices of all rows, ascending."""
        return self.record.seen

    @property
    def scores(self) -> Floats:
        """Smallest leverage estimate of each row, at most 1, in the order of `seen`."""
        return self.record.scores


def _sorted(record: SampleRecord) -> SampleRecord:
    """Return the record with sampled and all rows by ascending index."""
    order, order_of_all = np.argsort(record.items, kind="stable"), np.argsort(record.seen, kind="stable")
    seen = record.seen[order_of_all]
    twice = np.flatnonzero(seen[1:] == seen[:-1])
    if twice.size:
        raise shared_rows(LeverageSample.kind, int(seen[twice[0]]), int(seen[twice[0]]), int(seen[-1]) + 1)
    return replace(
        record,
        items=record.items[order],
        intensities=record.intensities[order],
        rows=record.rows[order],
        seen=seen,
        scores=record.scores[order_of_all],
    )


@dataclass(frozen=True)
class ScoresRecord:
    """State of `LeverageScores`: index and score of every row, by ascending index."""

    n_rows: int
    n_features: int
    seen: NDArray[np.int64]
    scores: Floats


@register
class LeverageScores(Summary[ScoresRecord]):
    """Ridge leverage ``a'(A'A + ridge I)^-1 a`` of every row a, from the Cholesky factor of ``A'A + ridge I``.

    The relative error is at most ``2 eps (N + 2 n + 16) (||A||_F^2 + n ridge) / ridge`` with N rows of n values
    (`relative_error`): rounding counts by the condition number. The score of a row does not depend on blocks or order;
    with `sample_weight` w it is that of sqrt(w) a. For leverage of *columns* summarise
    `sketchselect.readers.transposed` of the matrix.

    Parameters
    ----------
    factor : array of shape (n_features, n_features)
        Lower triangular L with ``L L' = A'A + ridge I`` (`sketchselect.linalg.leverage.ridge_factor`).
    ridge : float
        The ridge in the factor, stored with the scores.

    Notes
    -----
    Cost a row: n^2 flops. Bytes: 16 a row, and 8 n^2 for the factor.

    Examples
    --------
    >>> import numpy as np
    >>> A = np.array([[3.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> s = LeverageScores(np.linalg.cholesky(A.T @ A + 1e-9 * np.eye(2)), 1e-9).from_block(A)
    >>> s.scores.round(6).tolist()
    [1.0, 0.5, 0.5]
    """

    kind = "leverage-scores"
    record_type = ScoresRecord
    of_columns = True

    def __init__(self, factor: ArrayLike, ridge: float) -> None:
        array: Floats = canonical(factor, np.float64)
        if array.ndim != 2 or array.shape[0] != array.shape[1] or not np.isfinite(array).all():
            raise BadParameter(f"factor must be a square matrix of finite numbers, got shape {array.shape}")
        if not (array.diagonal() > 0).all():
            raise BadParameter("factor must have a positive diagonal, as the factor of a matrix with a ridge has")
        self.factor = array.copy()
        self.factor.flags.writeable = False
        self.ridge = float(ridge)

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the bytes of the scores of 4,096 rows; each further row has 16."""
        return 16 * 4096

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the extra bytes of one `from_block`."""
        return 8 * n_features * n_features + 2 * 8 * PIECE_ROWS * n_features

    def _empty(self, n_features: int, n_targets: int) -> ScoresRecord:
        return ScoresRecord(0, n_features, np.zeros(0, dtype=np.int64), np.zeros(0))

    def _summarise(self, block: Array, targets: Any, start: int | Array, weights: Floats | None) -> ScoresRecord:
        if block.shape[1] != self.factor.shape[0]:
            raise Incompatible(f"the factor is for rows of {self.factor.shape[0]} values, these have {block.shape[1]}")
        index = global_rows(start, block.shape[0]).astype(np.int64)
        require_finite(block, int(index[0]))
        scores = np.empty(block.shape[0])
        with one_blas_thread():
            for a, b in pieces(block):
                rows = block[a:b].astype(np.float64)
                if weights is not None:
                    rows *= np.sqrt(weights[a:b])[:, None]
                scores[a:b] = scatter_scores(rows, self.factor)
        return _scores_sorted(ScoresRecord(block.shape[0], block.shape[1], index, scores))

    def _combine(self, left: ScoresRecord, right: ScoresRecord) -> ScoresRecord:
        return _scores_sorted(_concatenated(left, right))

    @property
    def seen(self) -> NDArray[np.int64]:
        """Global indices of all rows, ascending."""
        return self.record.seen

    @property
    def scores(self) -> Floats:
        """Score of each row, in the order of `seen`."""
        return self.record.scores

    @property
    def relative_error(self) -> float:
        """Bound of the relative error of the scores, if the factor is that of all these rows in float64.

        The factor is exactly that of ``A'A + ridge I + F``. Products, means, the factorisation (Higham 2002, Theorem
        10.3) and the triangular solve each add at most some units of rounding a row or column, times the trace, to the
        norm of F, and ``|F| <= rho (A'A + ridge I)`` with ``rho = ||F|| / ridge``.
        """
        trace = float(np.einsum("ij,ij->", self.factor, self.factor))
        units = 2 * (self.n_rows + 2 * self.factor.shape[0] + 16)
        return float(units * np.finfo(np.float64).eps * trace / self.ridge)


def _scores_sorted(record: ScoresRecord) -> ScoresRecord:
    order = np.argsort(record.seen, kind="stable")
    return replace(record, seen=record.seen[order], scores=record.scores[order])


def _concatenated(left: R, right: R) -> R:
    """Return the record of the rows of both: arrays one below the other, numbers other than `n_rows` from the right."""
    a, b = vars(left), vars(right)
    arrays: dict[str, Any] = {name: np.concatenate([a[name], b[name]]) for name in a if isinstance(a[name], np.ndarray)}
    return replace(right, n_rows=a["n_rows"] + b["n_rows"], **arrays)
