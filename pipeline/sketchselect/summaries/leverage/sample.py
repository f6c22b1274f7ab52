"""LeverageSample: rows kept with inverse-probability weights, so that the sample stands for all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Array, Floats, as_block, as_weights, canonical, global_rows, require_finite
from sketchselect.linalg.columns.leverage import GrowingFactor, floored, online_sample, sample_scores
from sketchselect.linalg.hashing import derive_seed, uniforms
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.summaries.base import Summary, column_names
from sketchselect.summaries.registry import register

AUTO_RIDGE = 1e-3
"""The ridge "auto" as a share of the squared norm of all rows seen."""

TYPICAL_ROWS = 128
"""Rows that a sample is projected to keep."""

SamplingRate = float | Literal["paper"] | None
Ridge = float | Literal["auto"]


@dataclass(frozen=True)
class SampleRecord:
    """State of `LeverageSample`.

    `items`, `intensities` and `rows` are those kept, by ascending index; `seen` and `scores` those of every row;
    `error` what was measured afterwards, NaN where nothing was.
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
    """Rows sampled by online ridge leverage, each with the inverse of its probability as weight.

    With C the kept rows times `weights` and A all rows, in expectation C'C = A'A for a given banding, and with
    probability at least ``1 - 2 n exp(-3 c eps^2 / 8)`` over the seed (n columns, sampling rate c)::

        (1 - eps) A'A - eps ridge I  <=  C'C  <=  (1 + eps) A'A + eps ridge I

    for any merge tree. To sample *columns*, summarise `sketchselect.readers.transposed` of the matrix: its rows are the
    columns, and `start` the global index of the first of them.

    Parameters
    ----------
    eps : float
        Accuracy wanted, between 0 and 1; scores are raised by 1 + eps to stay above the true ones.
    sampling_rate : float, "paper" or None
        c: a row of leverage l is kept with probability c l. "paper": ``8 log(n + 1) / eps^2``, which the guarantee
        asks for; None: ``3 log(n + 1)``, which keeps far fewer.
    ridge : float or "auto"
        "auto": 0.001 times the squared norm of the rows seen, frozen while a block is sampled. Never less than 1e-12
        times that, so that 0 means scores without ridge in which a direction outside the span of the others scores 1.
    seed : int
        One uniform number belongs to each row index for ever, so what is kept does not depend on order or worker.

    Notes
    -----
    `from_block` takes rows one after the other (`online_sample`); `merge` unites two samples, scores the union anew
    and keeps row i iff its uniform number is below ``min(1, smallest c (1 + eps) score it ever had)``: weights do not
    compound. The ridge of a merge is the larger one, or "auto" of the united norm, which is the sum of the two: both
    halves were sampled with smaller ridges against fewer rows, so with probabilities at least as high as needed.
    `update` goes on with the online algorithm where the sample stands, and samples nothing again.
    Rows of zeros are never kept. With `sample_weight` w, row a counts as sqrt(w) a.

    Bytes: 8 n for every row kept, and 16 for every row seen. Cost: see `sketchselect.linalg.columns.leverage`.
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

    def __init__(
        self, eps: float = 0.5, sampling_rate: SamplingRate = None, ridge: Ridge = "auto", seed: int = 0
    ) -> None:
        if not _is_number(eps) or not 0 < float(eps) < 1:
            raise BadParameter(f"eps must be a number between 0 and 1 (both excluded), got {eps!r:.40}")
        if sampling_rate is not None and sampling_rate != "paper":
            if not _is_number(sampling_rate) or not 0 < float(sampling_rate) < np.inf:
                raise BadParameter(
                    f'sampling_rate must be None, "paper" or a positive number, got {sampling_rate!r:.40}'
                )
            sampling_rate = float(sampling_rate)
        if ridge != "auto":
            if not _is_number(ridge) or not 0 <= float(ridge) < np.inf:
                raise BadParameter(f'ridge must be "auto" or a number that is not negative, got {ridge!r:.40}')
            ridge = float(ridge)
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**64:
            raise BadParameter(f"seed must be a whole number from 0 to 2^64 - 1, got {seed!r:.40}")
        self.eps = float(eps)
        self.sampling_rate: SamplingRate = sampling_rate
        self.ridge: Ridge = ridge
        self.seed = int(seed)

    def parameters(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"eps": self.eps, "sampling_rate": self.sampling_rate, "ridge": self.ridge, "seed": self.seed}

    def rate(self, n_features: int) -> float:
        """Return the sampling rate c for rows of this length."""
        if self.sampling_rate is None:
            return 3.0 * float(np.log(n_features + 1))
        if self.sampling_rate == "paper":
            return 8.0 * float(np.log(n_features + 1)) / self.eps**2
        return float(self.sampling_rate)

    def most_rows(self, n_features: int) -> int:
        """Return how many rows a merged sample keeps at most in expectation, of however many: ``c (1 + eps) n``.

        Scores of a weighted sample M sum to at most ``tr M (M + ridge I)^-1``, so with the ridge "auto" to at most 1000
        also where n is larger. One block may keep more, up to all of its rows.
        """
        effective = n_features if self.ridge != "auto" else min(n_features, round(1.0 / AUTO_RIDGE))
        return int(np.ceil(self.rate(n_features) * (1.0 + self.eps) * effective))

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the bytes of a sample of `TYPICAL_ROWS` rows, on which the plan of a pass is built.

        The true number depends on the data: see `most_rows`, which `OnlineLeverageSelector` checks beforehand.
        """
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
        """Return the record after these rows have arrived one after the other."""
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
        kept = draws < intensities
        return _sorted(
            SampleRecord(
                old.n_rows + rows.shape[0],
                squared_norm,
                ridge,
                np.concatenate([old.items, index[kept]]),
                np.concatenate([old.intensities, intensities[kept]]),
                np.concatenate([old.rows, rows[kept]]),
                np.concatenate([old.seen, index]),
                np.concatenate([old.scores, scores]),
            )
        )

    def _combine(self, left: SampleRecord, right: SampleRecord) -> SampleRecord:
        squared_norm = left.squared_norm + right.squared_norm
        union = _sorted(
            SampleRecord(
                left.n_rows + right.n_rows,
                squared_norm,
                self._ridge(squared_norm, left.ridge, right.ridge),
                np.concatenate([left.items, right.items]),
                np.concatenate([left.intensities, right.intensities]),
                np.concatenate([left.rows, right.rows]),
                np.concatenate([left.seen, right.seen]),
                np.concatenate([left.scores, right.scores]),
            )
        )
        if union.items.size == 0:
            return union
        with one_blas_thread():
            found = sample_scores(union.rows, np.minimum(union.intensities, 1.0), union.ridge)
        again = self.rate(union.n_features) * np.minimum((1.0 + self.eps) * found, 1.0)
        intensities = np.minimum(union.intensities, again)
        kept = self._draws(union.items) < intensities
        scores = union.scores.copy()
        place = np.searchsorted(union.seen, union.items)
        scores[place] = np.minimum(scores[place], found)
        return SampleRecord(
            union.n_rows,
            union.squared_norm,
            union.ridge,
            union.items[kept],
            intensities[kept],
            union.rows[kept],
            union.seen,
            scores,
        )

    def update(
        self,
        X: ArrayLike,
        y: Any = None,
        *,
        start: int | Array | None = None,
        sample_weight: ArrayLike | None = None,
        prepare: Sequence[str] = (),
    ) -> Self:
        """Return the sample after these rows have arrived too: the online algorithm, from where it stands.

        Rows are scored against what is kept, which a summary of their own could not know, so fewer are kept than by
        `merge`; rows that were dropped before stay dropped, and probabilities of kept ones stay as they are.
        """
        if not self.has_data:
            return self.from_block(X, start=0 if start is None else start, sample_weight=sample_weight)
        block = as_block(X)
        weights = as_weights(sample_weight, block.shape[0])
        self.require_mergeable(
            self.empty(block.shape[1]).with_context(prepare=tuple(prepare), feature_names=column_names(X))
        )
        if block.shape[0] == 0:
            return self
        return self._with(
            self._extend(self.record, block, self._next_start() if start is None else start, weights), self.context
        )

    def _ridge(self, squared_norm: float, *before: float) -> float:
        wanted = AUTO_RIDGE * squared_norm if self.ridge == "auto" else float(self.ridge)
        return max(floored(wanted, squared_norm), *before)

    def _draws(self, items: NDArray[np.int64]) -> Floats:
        return uniforms(derive_seed(self.seed, "leverage-sample"), items.astype(np.uint64))

    def measured(self, error: float) -> Self:
        """Return the sample labelled with its realised spectral error; rows that are added take the label away."""
        return self._with(replace(self.record, error=float(error)), self.context)

    # --- answers -----------------------------------------------------------------------------------------------

    @property
    def weight(self) -> float:
        """Number of rows seen, for callers that ask any summary whether it has data."""
        return float(self.record.n_rows)

    @property
    def squared_norm(self) -> float:
        """||A||_F^2 of all rows seen; exact."""
        return self.record.squared_norm

    @property
    def final_ridge(self) -> float:
        """The ridge that the guarantee holds for."""
        return self.record.ridge

    @property
    def error(self) -> float:
        """Realised spectral error as it was measured (see `measured`); NaN where it was not."""
        return self.record.error

    @property
    def n_kept(self) -> int:
        """Number of rows kept."""
        return int(self.record.items.shape[0])

    @property
    def items(self) -> NDArray[np.int64]:
        """Global indices of the rows kept, ascending."""
        return self.record.items

    @property
    def intensities(self) -> Floats:
        """C times the smallest score that each kept row ever had, not cut at 1; shape (n_kept,)."""
        return self.record.intensities

    @property
    def probabilities(self) -> Floats:
        """Probability with which each kept row was to be kept, shape (n_kept,)."""
        return np.minimum(self.record.intensities, 1.0)

    @property
    def weights(self) -> Floats:
        """``1 / sqrt(probability)`` of each kept row, shape (n_kept,)."""
        return np.asarray(1.0 / np.sqrt(self.probabilities))

    @property
    def draws(self) -> Floats:
        """The uniform number of each kept row: below its probability."""
        return self._draws(self.record.items)

    @property
    def sample(self) -> Floats:
        """C: the kept rows times their weights, shape (n_kept, n_features)."""
        return self.record.rows * self.weights[:, None]

    @property
    def seen(self) -> NDArray[np.int64]:
        """Global indices of all rows seen, ascending."""
        return self.record.seen

    @property
    def scores(self) -> Floats:
        """Smallest leverage estimate of each row seen, at most 1, in the order of `seen`."""
        return self.record.scores


def _sorted(record: SampleRecord) -> SampleRecord:
    """Return the record with kept and seen rows by ascending index."""
    kept, seen = np.argsort(record.items, kind="stable"), np.argsort(record.seen, kind="stable")
    return SampleRecord(
        record.n_rows,
        record.squared_norm,
        record.ridge,
        record.items[kept],
        record.intensities[kept],
        record.rows[kept],
        record.seen[seen],
        record.scores[seen],
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
