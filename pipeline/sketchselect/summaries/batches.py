"""BatchDirections: the sketch of Huang et al. (2015) as printed, shrunk once with every batch of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from sketchselect.linalg.arrays import Array, Floats
from sketchselect.linalg.shrink import shrink, shrink_block
from sketchselect.linalg.spectrum import Directions, row_directions
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import require_positive
from sketchselect.summaries.base import Context, Summary, register


@dataclass(frozen=True)
class BatchRecord:
    """State of `BatchDirections`."""

    n_rows: int
    weight: float
    shrinkage: float
    rows: Floats
    single_rounding: float = 0.0

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.rows.shape[1])


@register
class BatchDirections(Summary[BatchRecord]):
    """Sketch of the rows about zero, in which every batch of a stream is shrunk once, together with the sketch.

    For any batches and any merge tree, to rounding::

        0 <= A'A - B'B <= shrinkage * I,      shrinkage <= ||A - A_k||_F^2 / (size - k)   for every k < size

    Long blocks of float32 rows have 5/4 of that norm and ``size - 5/4 k``, and a `single_rounding`, as in
    `FrequentDirections`.

    `update` of a summary, also of the `empty` one, is one batch, steps 1 to 4 of the source; a block of `from_block` is
    shrunk in several pieces, for which memory suffices. `FrequentDirections` loses nothing for few columns, and is the
    one that certificates need.

    Parameters
    ----------
    size : int
        Rows l of the sketch.

    Notes
    -----
    Cost of a batch of n rows of p columns: 2 m^2 p flops and an eigenproblem of order m, with m = min(n + l, p).
    Bytes: 8 l p.
    Source: Huang, Yoo and Kasiviswanathan 2015, Algorithm 2; Liberty 2013.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((500, 80))
    >>> stream = BatchDirections(size=4).empty(80).update(X[:300]).update(X[300:])
    >>> U, s, Vt = np.linalg.svd(X[:300], full_matrices=False)
    >>> first = np.sqrt(s[:3, None] ** 2 - s[3] ** 2) * Vt[:3]
    >>> s = np.linalg.svd(np.vstack([first, X[300:]]), compute_uv=False)
    >>> bool(np.allclose(stream.directions.squares, s[:3] ** 2 - s[3] ** 2))
    True
    """

    kind = "batch-directions"
    format_version = 2
    record_type = BatchRecord

    def __init__(self, size: int) -> None:
        self.size = require_positive("size", size, 2)

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return an upper bound of the bytes of one state."""
        return 8 * self.size * n_features + 64

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the extra bytes of one `from_block` or `merge`."""
        rows = 4 * self.size
        return 8 * (2 * rows * n_features + 4 * rows * rows)

    def _empty(self, n_features: int, n_targets: int) -> BatchRecord:
        return BatchRecord(0, 0.0, 0.0, np.zeros((0, n_features)))

    def _summarise(self, block: Array, targets: Any, start: int | Array, weights: Floats | None) -> BatchRecord:
        n, p = block.shape
        w = np.ones(n) if weights is None else weights
        rows, delta, gained, _, _ = shrink_block(block, self.size, np.zeros(p), w, start)
        rows, lost = shrink(rows, self.size)
        return BatchRecord(n, float(w.sum()), delta + lost, rows, gained)

    def _combine(self, left: BatchRecord, right: BatchRecord) -> BatchRecord:
        rows = np.vstack([left.rows, right.rows])
        if rows.shape[0] > rows.shape[1]:
            # The same Gram matrix in fewer rows.
            rows = np.asarray(np.linalg.qr(rows, mode="r"))
        rows, lost = shrink(rows, self.size)
        return BatchRecord(
            left.n_rows + right.n_rows,
            left.weight + right.weight,
            left.shrinkage + right.shrinkage + lost,
            rows,
            left.single_rounding + right.single_rounding,
        )

    def _appended(
        self, X: ArrayLike, y: Any, start: int | Array, sample_weight: ArrayLike | None, context: Context
    ) -> Self:
        # A sketch of more rows than the batch has does not shrink the batch by itself.
        raw = type(self)(self.size + max(np.shape(X)[:1], default=0))
        batch = self._with(raw.from_block(X, start=start, sample_weight=sample_weight).record, context)
        merged = self.merge(batch)
        return merged if self.n_rows else self._with(self._combine(self.record, batch.record), merged.context)

    def details(self) -> Iterator[str]:
        """Yield the shrinkage."""
        yield f"shrinkage {self.shrinkage:.6g}"

    @property
    def weight(self) -> float:
        """Total weight of the rows; their number by default."""
        return self.record.weight

    @property
    def shrinkage(self) -> float:
        """Delta: the sketch loses at most this in any direction of A'A, and gains in none but `single_rounding`."""
        return self.record.shrinkage

    @property
    def single_rounding(self) -> float:
        """Bound of what the sketch gains in all directions of A'A together, by products in float32; 0 without them."""
        return self.record.single_rounding

    @property
    def sketch(self) -> Floats:
        """B, the sketch of the rows: at most size - 1 rows."""
        return self.record.rows

    @cached_property
    def directions(self) -> Directions:
        """Squared singular values and right singular vectors of B, descending."""
        with one_blas_thread():
            return row_directions(self.sketch)
