"""RowSample: a fixed number of rows, drawn alike or by their distance from a centre, with weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from sketchselect.errors import BadParameter, Incompatible
from sketchselect.linalg.arrays import Array, Floats, canonical, global_rows, require_finite
from sketchselect.linalg.bottom_k import exponential_keys, smallest_keys
from sketchselect.linalg.centering import check_squares
from sketchselect.linalg.hashing import derive_seed
from sketchselect.linalg.kmeans.distances import distances_to
from sketchselect.linalg.sparse.csr import PIECE_VALUES, densify, first_nonfinite_entry, is_csr, row_pieces, take_rows
from sketchselect.summaries.base import Summary, require_positive
from sketchselect.summaries.registry import register


@dataclass(frozen=True)
class RowSampleRecord:
    """State of `RowSample`: the rows of the `size` + 1 smallest keys, by ascending key.

    `rates` are the rates the keys were drawn with, `given` the rows' own weights. Dense rows are in `values`; of sparse
    ones `data`, `indices` and `indptr` are the stored entries, and `values` has no rows.
    """

    n_rows: int
    is_sparse: bool
    keys: Floats
    items: NDArray[np.int64]
    rates: Floats
    given: Floats
    values: Floats
    data: Floats
    indices: NDArray[np.int64]
    indptr: NDArray[np.int64]

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.values.shape[1])

    @property
    def rows(self) -> Any:
        """The rows, as an array or a CSR array."""
        if not self.is_sparse:
            return self.values
        shape = (self.keys.shape[0], self.n_features)
        return sparse.csr_array((self.data, self.indices, self.indptr), shape=shape)


@register
class RowSample(Summary[RowSampleRecord]):
    """A sample of at most `size` rows, the same to the bit for any blocks, order and merge tree.

    Row i has the rate ``w_i = v_i (1 + ||x_i - center||^2 / spread)``, or ``w_i = v_i`` without a centre (v_i: its
    ``sample_weight``), and the key ``-log(u_i) / w_i``, where u_i is hashed from the seed and its global index. The
    rows of the `size` smallest keys are kept; with tau the next larger key, row i stands for

        weights_i = v_i / (1 - exp(-w_i tau))

    rows, and ``sum_i weights_i f(x_i)`` is an unbiased estimate of the sum of ``v_i f(x_i)`` over all rows, for every
    f. Where there are no more than `size` rows all are kept, with their own weights.

    Parameters
    ----------
    size : int
        Most rows kept.
    seed : int
        From 0 to 2^64 - 1.
    center : array of shape (n_features,), optional
        A pilot of the mean. Far rows matter most to k-means, and are then kept with higher probability.
    spread : float, optional
        A pilot of the mean squared distance to `center`, positive; both or neither.

    Raises
    ------
    BadParameter
        For parameters out of range, or a centre without a spread.

    Notes
    -----
    Rows of weight 0 are never kept. Blocks of `scipy.sparse` rows (CSR) are kept as such; where both kinds are merged
    the sample is sparse. Cost a row: one hash, and 3 n_features flops where there is a centre. Bytes:
    ``(size + 1) (8 n_features + 32)``; 16 for every stored entry of sparse rows.
    Source: Duffield, Lund and Thorup 2007 (priority sampling); Bachem, Lucic and Krause 2018 (the rates).

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(12.0).reshape(6, 2)
    >>> s = RowSample(3, seed=1).from_block(X)
    >>> parts = RowSample(3, seed=1).from_block(X[4:], start=4), RowSample(3, seed=1).from_block(X[:4])
    >>> s == parts[0].merge(parts[1]), s.rows.shape, bool((s.rows == X[s.indices]).all())
    (True, (3, 2), True)
    """

    kind = "row-sample"
    record_type = RowSampleRecord

    def __init__(self, size: int, seed: int = 0, center: ArrayLike | None = None, spread: float | None = None) -> None:
        self.size = require_positive("size", size)
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**64:
            raise BadParameter(f"seed must be a whole number from 0 to 2^64 - 1, got {seed!r:.40}")
        self.seed = int(seed)
        if (center is None) != (spread is None):
            raise BadParameter("center and spread belong together: give both, or neither for a uniform sample")
        self.center: Floats | None = None
        self.spread: float | None = None
        if center is not None and spread is not None:
            given = np.asarray(center)
            if given.ndim != 1 or given.dtype.kind not in "fiub" or not np.isfinite(given).all():
                raise BadParameter(f"center must be a finite real array of shape (n_features,), got {given.shape}")
            if isinstance(spread, bool) or not isinstance(spread, (int, float, np.number)) or not 0 < spread < np.inf:
                raise BadParameter(f"spread must be a positive number, got {spread!r:.40}")
            self.center = canonical(given, np.float64).copy()
            self.center.flags.writeable = False
            self.spread = float(spread)

    def parameters(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"size": self.size, "seed": self.seed, "center": self.center, "spread": self.spread}

    @property
    def accepts_sparse(self) -> bool:
        """True: sparse rows are kept as they are."""
        return True

    @property
    def sparse_limit(self) -> float:
        """1: whatever their density, or what the sample looks like would depend on the blocks."""
        return 1.0

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the bytes of one state of dense rows; sparse ones need no more below half their entries stored."""
        return 8 * (self.size + 1) * (n_features + 4) + 64

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the extra bytes of one `from_block` (beside 40 a row) or `merge`."""
        return 2 * self.projected_nbytes(n_features) + 8 * PIECE_VALUES + (1 << 20)

    def _empty(self, n_features: int, n_targets: int) -> RowSampleRecord:
        none = np.zeros(0)
        return _record(0, none, none.astype(np.int64), none, none, np.zeros((0, n_features)))

    def _summarise(self, block: Any, targets: Any, start: int | Array, weights: Floats | None) -> RowSampleRecord:
        n_rows = block.shape[0]
        index = global_rows(start, n_rows)
        if not is_csr(block):
            require_finite(block, int(index[0]))
        elif (found := first_nonfinite_entry(block)) is not None:
            require_finite(densify(take_rows(block, found[0], found[0] + 1)), int(index[found[0]]))
        given = np.ones(n_rows) if weights is None else weights
        rates = given * self._pulls(block, start)
        keys = exponential_keys(derive_seed(self.seed, "row-sample"), index, rates)
        items = index.astype(np.int64)
        kept = smallest_keys(keys, items, self.size + 1)
        return _record(n_rows, keys[kept], items[kept], rates[kept], given[kept], block[kept].astype(np.float64))

    def _pulls(self, block: Any, start: int | Array) -> Floats:
        """Return 1 + ||x - center||^2 / spread of every row: of a sparse one the bits that it has when written out."""
        n_rows, width = block.shape
        if self.center is None or self.spread is None:
            return np.ones(n_rows)
        if self.center.shape[0] != width:
            raise Incompatible(f"the centre of the sample has {self.center.shape[0]} columns, the block has {width}")
        squares = np.empty(n_rows)
        for a, b in row_pieces(block) if is_csr(block) else [(0, n_rows)]:
            dense = densify(take_rows(block, a, b)) if is_csr(block) else block
            squares[a:b] = distances_to(dense, self.center[None])[:, 0]
            check_squares(squares[a:b], dense, start[a:b] if isinstance(start, np.ndarray) else start + a)
        return 1.0 + squares / self.spread

    def _combine(self, left: RowSampleRecord, right: RowSampleRecord) -> RowSampleRecord:
        keys, items = np.concatenate([left.keys, right.keys]), np.concatenate([left.items, right.items])
        kept = smallest_keys(keys, items, self.size + 1)
        if left.is_sparse or right.is_sparse:
            rows = sparse.vstack([sparse.csr_array(left.rows), sparse.csr_array(right.rows)], format="csr")
        else:
            rows = np.concatenate([left.values, right.values])
        return _record(
            left.n_rows + right.n_rows,
            keys[kept],
            items[kept],
            np.concatenate([left.rates, right.rates])[kept],
            np.concatenate([left.given, right.given])[kept],
            rows[kept],
        )

    # --- answers -----------------------------------------------------------------------------------------------

    @property
    def weight(self) -> float:
        """Number of rows seen, for callers that ask any summary whether it has data."""
        return float(self.record.n_rows)

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are kept as `scipy.sparse.csr_array`."""
        return self.record.is_sparse

    @property
    def n_kept(self) -> int:
        """Number of rows in the sample."""
        return min(self.size, int(self.record.keys.shape[0]))

    @property
    def rows(self) -> Any:
        """The rows of the sample, float64 of shape (n_kept, n_features): an array or a CSR array.

        In the order of their keys, so that the first m of a sample without a centre are themselves a uniform one.
        """
        return self.record.rows[: self.n_kept]

    @property
    def indices(self) -> NDArray[np.int64]:
        """Global index of each row of the sample, shape (n_kept,)."""
        return self.record.items[: self.n_kept]

    @property
    def threshold(self) -> float:
        """Tau: the key of the first row that is not in the sample; infinite where all rows of positive weight are."""
        return float(self.record.keys[self.size]) if self.record.keys.shape[0] > self.size else float("inf")

    @property
    def probabilities(self) -> Floats:
        """``1 - exp(-w_i tau)`` of each row of the sample: the probability of its key to be below the threshold."""
        return np.asarray(-np.expm1(-self.record.rates[: self.n_kept] * self.threshold))

    @property
    def weights(self) -> Floats:
        """What each row of the sample stands for, its own weight included; shape (n_kept,)."""
        return np.asarray(self.record.given[: self.n_kept] / self.probabilities)


def _record(
    n_rows: int, keys: Floats, items: NDArray[np.int64], rates: Floats, given: Floats, rows: Any
) -> RowSampleRecord:
    none, nothing = np.zeros(0), np.zeros(0, dtype=np.int64)
    if not sparse.issparse(rows):
        return RowSampleRecord(n_rows, False, keys, items, rates, given, rows, none, nothing, nothing)
    entries = sparse.csr_array(rows)
    # Stored zeros are no entries: a sample is the same whether they were stored or not.
    entries.eliminate_zeros()
    indices, indptr = entries.indices.astype(np.int64), entries.indptr.astype(np.int64)
    width = np.zeros((0, entries.shape[1]))
    return RowSampleRecord(n_rows, True, keys, items, rates, given, width, entries.data, indices, indptr)
