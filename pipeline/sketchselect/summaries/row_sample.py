"""RowSample: a weighted sample of a fixed number of rows, uniform or by distance from a centre."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from sketchselect.errors import BadParameter, Incompatible
from sketchselect.linalg.centering import check_squares
from sketchselect.linalg.csr import PIECE_VALUES, densify, first_nonfinite_entry, row_pieces, take_rows
from sketchselect.linalg.hashing import derive_seed, exponential_keys, smallest_keys
from sketchselect.linalg.kmeans.assignment import distances_to
from sketchselect.linalg.validation import (
    Array,
    Floats,
    canonical,
    global_rows,
    is_csr,
    nonfinite_error,
    require_finite,
    require_number,
    require_positive,
    require_seed,
    start_of_piece,
)
from sketchselect.summaries.base import SparseRows, Summary, as_classes, register, shared_rows
from sketchselect.summaries.partitioned import label_numbers


@dataclass(frozen=True)
class RowSampleRecord:
    """State of `RowSample`: the rows of the `size` + 1 smallest keys, by ascending key.

    `rates` are the rates of the keys, `row_weights` the sample weights of the rows. Dense rows are in `values`; of
    sparse rows `data`, `indices` and `indptr` are the stored entries, and `values` has no rows.
    """

    n_rows: int
    is_sparse: bool
    keys: Floats
    items: NDArray[np.int64]
    rates: Floats
    row_weights: Floats = field(metadata={"stored_name": "given"})
    values: Floats
    data: Floats
    indices: NDArray[np.int64]
    indptr: NDArray[np.int64]
    # Number of each row's class, in the order of `classes`; None without classes
    labels: NDArray[np.int64] | None = None

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

    Global row indices decide the draws, so those of merged summaries must differ: `merge` refuses summaries that share
    one. Give every source a `start` of its own in `summarize`.

    Row i has the rate ``w_i = v_i (1 + ||x_i - center||^2 / spread)``, or ``w_i = v_i`` without a centre (v_i: its
    ``sample_weight``), and the key ``-log(u_i) / w_i``, where u_i is hashed from the seed and its global index. The
    rows of the `size` smallest keys are the sample; with tau the next larger key, row i has the weight

        weights_i = v_i / (1 - exp(-w_i tau))

    so that ``sum_i weights_i f(x_i)`` is an unbiased estimate of the sum of ``v_i f(x_i)`` over all rows, for every f.
    If there are at most `size` rows, the sample is all of them, with weights v_i.

    Parameters
    ----------
    size : int
        Largest number of rows in the sample.
    seed : int
        From 0 to 2^64 - 1.
    center : array of shape (n_features,), optional
        An estimate of the mean. Rows far from it, which matter most to k-means, are then sampled with higher
        probability.
    spread : float, optional
        An estimate of the mean squared distance to `center`, positive; both or neither.
    classes : sequence, optional
        The classes that may be in the target, which every block then needs: the sample has the class of each row.

    Raises
    ------
    BadParameter
        If a parameter is out of range, or only one of `center` and `spread` is not None.
    BadBlock
        If a row has a class that is not one of `classes`.

    Notes
    -----
    Rows of weight 0 are never sampled. A sample of sparse rows (CSR) is sparse, and so is the merge of a dense and a
    sparse sample. Cost a row: one hash, and 3 n_features flops with a centre.
    Bytes: ``(size + 1) (8 n_features + 32)``, with classes 8 more a row, and 16 for each stored entry of sparse rows.
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
    accepts_sparse = True
    keyed_by_rows = True
    # Any density, because the form of the sample must not depend on the blocks.
    sparse_limit = 1.0
    later_parameters: ClassVar[Mapping[str, Any]] = {"classes": None}

    def __init__(
        self,
        size: int,
        seed: int = 0,
        center: ArrayLike | None = None,
        spread: float | None = None,
        classes: Sequence[Any] | Array | None = None,
    ) -> None:
        self.size = require_positive("size", size)
        self.seed = require_seed(seed)
        if (center is None) != (spread is None):
            raise BadParameter("center and spread belong together: pass both, or neither for a uniform sample")
        self.center: Floats | None = None
        self.spread: float | None = None
        if center is not None and spread is not None:
            array = np.asarray(center)
            if array.ndim != 1 or array.dtype.kind not in "fiub" or not np.isfinite(array).all():
                raise BadParameter(f"center must be a finite real array of shape (n_features,), got {array.shape}")
            self.center = canonical(array, np.float64).copy()
            self.center.flags.writeable = False
            self.spread = require_number("spread", spread, above=0)
        self.classes = as_classes(classes)

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the bytes of one state of dense rows; sparse rows of a density below one half need no more."""
        return 8 * (self.size + 1) * (n_features + 4 + (self.classes is not None)) + 64

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the extra bytes of one `from_block` (besides 40 a row) or `merge`."""
        return 2 * self.projected_nbytes(n_features) + 8 * PIECE_VALUES + (1 << 20)

    def sparse_nbytes(self, n_features: int, n_targets: int, rows: SparseRows) -> tuple[int, int]:
        """Return both bounds for CSR blocks: by the entries of the fullest rows, where these are known.

        An entry takes 16 bytes. A merge has the rows of both samples below each other, and copies of their indices.
        """
        entries = rows.most_entries(self.size + 1)
        if entries is None:
            return super().sparse_nbytes(n_features, n_targets, rows)
        state = 16 * entries + 8 * (self.size + 2) * (5 + (self.classes is not None)) + 64
        # Distances to the centre are those of dense rows.
        dense = 0 if self.center is None else 8 * max(PIECE_VALUES, n_features)
        return state, 3 * state + dense + (1 << 20)

    def _targets(self, y: Any, n_rows: int, start: int | Array = 0) -> NDArray[np.intp] | None:
        """Return the number of the class of each row; None without classes."""
        return None if self.classes is None else label_numbers(y, self.classes, n_rows, "classes", start)

    def _empty(self, n_features: int, n_targets: int) -> RowSampleRecord:
        none = np.zeros(0)
        labels = None if self.classes is None else none.astype(np.int64)
        return _record(0, none, none.astype(np.int64), none, none, np.zeros((0, n_features)), labels)

    def _summarise(self, block: Any, targets: Any, start: int | Array, weights: Floats | None) -> RowSampleRecord:
        n_rows = block.shape[0]
        index = global_rows(start, n_rows)
        if not is_csr(block):
            require_finite(block, int(index[0]))
        elif (bad := first_nonfinite_entry(block)) is not None:
            raise nonfinite_error(int(index[bad[0]]), *bad[1:])
        row_weights = np.ones(n_rows) if weights is None else weights
        rates = row_weights * self._relative_rates(block, start)
        keys = exponential_keys(derive_seed(self.seed, "row-sample"), index, rates)
        items = index.astype(np.int64)
        places = smallest_keys(keys, items, self.size + 1)
        rows = block[places].astype(np.float64)
        labels = None if targets is None else targets[places].astype(np.int64)
        return _record(n_rows, keys[places], items[places], rates[places], row_weights[places], rows, labels)

    def _relative_rates(self, block: Any, start: int | Array) -> Floats:
        """Return 1 + ||x - center||^2 / spread of every row, the same bits for sparse and dense rows."""
        n_rows, width = block.shape
        if self.center is None or self.spread is None:
            return np.ones(n_rows)
        if self.center.shape[0] != width:
            raise Incompatible(f"the centre of the sample has {self.center.shape[0]} columns, the block has {width}")
        squares = np.empty(n_rows)
        for a, b in row_pieces(block) if is_csr(block) else [(0, n_rows)]:
            dense = densify(take_rows(block, a, b)) if is_csr(block) else block
            squares[a:b] = distances_to(dense, self.center[None])[:, 0]
            check_squares(squares[a:b], dense, start_of_piece(start, a, b))
        return 1.0 + squares / self.spread

    def _combine(self, left: RowSampleRecord, right: RowSampleRecord) -> RowSampleRecord:
        keys, items = np.concatenate([left.keys, right.keys]), np.concatenate([left.items, right.items])
        # Rows with indices of their own, and files of older versions, have no ranges that `merge` could compare.
        twice = np.intersect1d(left.items, right.items)
        if twice.size:
            raise shared_rows(self.kind, int(twice[0]), int(twice[0]), int(items.max()) + 1)
        places = smallest_keys(keys, items, self.size + 1)
        if left.is_sparse or right.is_sparse:
            rows = sparse.vstack([sparse.csr_array(left.rows), sparse.csr_array(right.rows)], format="csr")
        else:
            rows = np.concatenate([left.values, right.values])
        labels = None
        if left.labels is not None and right.labels is not None:
            labels = np.concatenate([left.labels, right.labels])[places]
        return _record(
            left.n_rows + right.n_rows,
            keys[places],
            items[places],
            np.concatenate([left.rates, right.rates])[places],
            np.concatenate([left.row_weights, right.row_weights])[places],
            rows[places],
            labels,
        )

    # --- answers -----------------------------------------------------------------------------------------------

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are a `scipy.sparse.csr_array`."""
        return self.record.is_sparse

    @property
    def n_kept(self) -> int:
        """Number of rows in the sample."""
        return min(self.size, int(self.record.keys.shape[0]))

    @property
    def rows(self) -> Any:
        """The rows of the sample, float64 of shape (n_kept, n_features): an array or a CSR array.

        In the order of their keys, so that the first m rows of a sample without a centre are a uniform sample too.
        """
        return self.record.rows[: self.n_kept]

    @property
    def indices(self) -> NDArray[np.int64]:
        """Global index of each row of the sample, shape (n_kept,)."""
        return self.record.items[: self.n_kept]

    @property
    def labels(self) -> NDArray[np.int64]:
        """Number of the class of each row of the sample, in the order of `classes`, shape (n_kept,).

        Raises `Incompatible` without `classes`.
        """
        if self.record.labels is None:
            raise Incompatible("this sample was made without classes; give RowSample the classes of the rows")
        return self.record.labels[: self.n_kept]

    @property
    def threshold(self) -> float:
        """Tau: the smallest key outside the sample; infinite if all rows of positive weight are in the sample."""
        return float(self.record.keys[self.size]) if self.record.keys.shape[0] > self.size else float("inf")

    @property
    def probabilities(self) -> Floats:
        """``1 - exp(-w_i tau)`` of each row of the sample, the probability that its key is below the threshold."""
        return np.asarray(-np.expm1(-self.record.rates[: self.n_kept] * self.threshold))

    @property
    def weights(self) -> Floats:
        """``v_i / (1 - exp(-w_i tau))`` of each row of the sample, shape (n_kept,)."""
        return np.asarray(self.record.row_weights[: self.n_kept] / self.probabilities)


def _record(
    n_rows: int,
    keys: Floats,
    items: NDArray[np.int64],
    rates: Floats,
    row_weights: Floats,
    rows: Any,
    labels: NDArray[np.int64] | None,
) -> RowSampleRecord:
    none, nothing = np.zeros(0), np.zeros(0, dtype=np.int64)
    if not sparse.issparse(rows):
        return RowSampleRecord(n_rows, False, keys, items, rates, row_weights, rows, none, nothing, nothing, labels)
    entries = sparse.csr_array(rows)
    # So that a sample is the same with and without stored zeros.
    entries.eliminate_zeros()
    indices, indptr = entries.indices.astype(np.int64), entries.indptr.astype(np.int64)
    width = np.zeros((0, entries.shape[1]))
    return RowSampleRecord(n_rows, True, keys, items, rates, row_weights, width, entries.data, indices, indptr, labels)
