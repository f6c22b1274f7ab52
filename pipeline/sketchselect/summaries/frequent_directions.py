"""FrequentDirections, a sketch with a known, one-sided error for any merge tree; BatchDirections, the form in print.

`BatchDirections` is the sketch of Huang et al. (2015) as printed, shrunk once with every batch of a stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike

from sketchselect.linalg.centering import block_mean, centered_moments
from sketchselect.linalg.comoments import block_gram, mean_rounding, merge_means
from sketchselect.linalg.csr import PIECE_VALUES, densify
from sketchselect.linalg.shrink import shrink, shrink_block, shrink_parts
from sketchselect.linalg.sparse_shrink import BUFFER_FACTOR, shrink_sparse
from sketchselect.linalg.spectrum import Directions, row_directions, symmetric_directions
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import PIECE_ROWS, Array, Floats, is_csr, require_positive
from sketchselect.summaries.base import Context, DecayingSummary, SparseRows, Summary, register

if TYPE_CHECKING:
    from sketchselect.linalg.panel_columns import PanelDirections, PanelRows, Panels
    from sketchselect.linalg.sparse_shrink import SketchPanel, Total
    from sketchselect.linalg.spectrum import About

EXACT_COLUMNS_PER_ROW = 15
EXACT_COLUMNS = 2048

PANELS_ABOVE_NBYTES = 1 << 30
"""State above which a pass over sparse rows keeps it in panels of columns, and shrinks all of them at the same time."""

PANEL_NBYTES = 128 << 20

STACK_NBYTES = 512 << 20
"""Largest state that merges leave at twice the rows of the sketch; for larger ones memory is scarce."""


@dataclass(frozen=True)
class DirectionsRecord:
    """State of `FrequentDirections`: the second moments are in `rows` (sketched) or in `gram` (exact)."""

    n_rows: int
    weight: float
    mean: Floats
    column_squares: Floats
    shrinkage: float
    rows: Floats
    gram: Floats
    single_rounding: float = 0.0
    end: int | None = None  # Global index after the last row, at which decaying weights are valid

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.mean.shape[0])


@register
class FrequentDirections(DecayingSummary[DirectionsRecord]):
    """Mergeable sketch of the rows, about their mean and about zero, with a rigorous error bound.

    For any blocks and any merge tree, with A_c the rows about their exact mean::

        0 <= A_c'A_c - B_c'B_c <= shrinkage * I,      0 <= A'A - B'B <= shrinkage * I
        shrinkage <= ||A_c - (A_c)_k||_F^2 / (size - k)   for every k < size

    All to rounding of the rows. The upper bounds include some 2 size units in the last place of ||A_c||_2^2 per shrink,
    and the rounding of the means per merge, which is more for means far from zero. The lower bounds and the last line
    hold up to as much; where the state is exact, so do all.

    Products of float32 rows are in float32 where the bounds of their rounding are at most a 16th of what a shrink
    loses, and included in it. The differences then are not below -F, for some F >= 0 with a trace of at most
    `single_rounding`, mostly below a thousandth of the shrinkage, and the last line has 5/4 of the norm and ``size -
    5/4 k``. The Gram matrix has products in float32 of whole numbers, which are exact, and of other float32 rows where
    the rounding is far below the squares in any direction (`linalg.comoments.ranked_gram`), so that dependent columns
    and ranks are those of float64: its differences have a Frobenius norm of at most `single_rounding`, 2e-5 of the
    squares about the mean.

    With a `half_life` or `decay`, the row with global index i weighs ``g^(end - 1 - i)``, times its sample weight; A
    are then the rows times the roots of these weights, and A_c the same about their weighted mean. The shrinkage decays
    like the rows: `merge` scales both sides by ``g^age`` to the later `end`. The age of a row is known from its global
    index alone, so `from_block` needs `start`; `update` continues from `end`.

    Parameters
    ----------
    size : int
        Rows l of the sketch; 8 times the number of directions needed is a good choice. For data of at most
        min(15 size, 2048) columns the state is the exact Gram matrix, and `shrinkage` is 0.
    half_life : float, optional
        Rows after which the weight of a row is halved: ``g = 2^(-1 / half_life)``.
    decay : float, optional
        The factor g itself, in (0, 1], instead of a half-life.

    Raises
    ------
    BadParameter
        For a half-life that is not positive, a decay outside (0, 1], or both.

    Notes
    -----
    Cost a row of p columns: about 7 l p flops (sketched) or p^2 (exact); for sparse rows see
    `linalg.sparse_shrink`.
    Bytes: at most 16 l p, or 8 p^2. A pass over sparse rows keeps a state above 1 GiB in panels of columns, at most
    16 l p bytes over all workers (`execution.panels`).
    With a decay the total weight approaches 1 / (1 - g), and files and messages call the kind "decayed-directions".
    Source: Liberty 2013; Ghashami et al. 2016; centring by one extra row per merge. The guarantee is linear in the
    weights of the rows, so it decays with them.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((500, 80))
    >>> s = FrequentDirections(size=4).from_block(X[:300]).merge(FrequentDirections(size=4).from_block(X[300:]))
    >>> s.sketch.shape, s.n_rows
    ((4, 80), 500)
    >>> gap = np.linalg.eigvalsh(X.T @ X - s.sketch.T @ s.sketch)
    >>> bool(gap[0] > -1e-9 and gap[-1] <= s.shrinkage + 1e-9)
    True
    >>> FrequentDirections(size=4, half_life=100).from_block(X).update(X).end
    1000
    """

    kind = "frequent-directions"
    decayed_kind = "decayed-directions"
    format_version = 2
    record_type = DirectionsRecord
    accepts_sparse = True
    keeps_filled = True

    def __init__(self, size: int, half_life: float | None = None, decay: float | None = None) -> None:
        self.size = require_positive("size", size, 2)
        self._set_decay(half_life, decay)

    def parameters(self) -> dict[str, Any]:
        """Return the size, and the decay of rows that lose weight."""
        decay = {"half_life": self.half_life, "decay": self.decay} if self.decays else {}
        return {"size": self.size, **decay}

    def keeps_gram(self, n_features: int) -> bool:
        """Return whether the state for this number of columns is the exact Gram matrix."""
        return n_features <= min(EXACT_COLUMNS_PER_ROW * self.size, EXACT_COLUMNS)

    def _most_rows(self, n_features: int) -> int:
        """Return the rows of a merged state: up to twice the sketch, so that few shrink, unless that is large."""
        return 2 * self.size if 16 * self.size * n_features <= STACK_NBYTES else self.size

    def column_panels(self, n_features: int) -> tuple[int, ...] | None:
        """Return the edges of the panels of columns that a pass over sparse rows needs; None where it needs none."""
        whole = self.decays or self.keeps_gram(n_features)
        if whole or self.projected_nbytes(n_features) <= PANELS_ABOVE_NBYTES:
            return None
        n_panels = max(1, 8 * self.size * n_features // PANEL_NBYTES)
        return tuple(np.linspace(0, n_features, n_panels + 1).astype(int).tolist())

    def in_panels(self, total: Total, panels: Panels) -> PanelledDirections:
        """Return the summary of a sketch whose panels stay where they are."""
        from sketchselect.linalg.panel_columns import PanelRows

        mean, squares = (np.concatenate(panels.map(attrgetter(name))) for name in ("mean", "squares"))
        rows: Any = PanelRows(panels, total.norms.size)
        record = DirectionsRecord(
            total.n_rows, total.weight, mean, squares, total.shrinkage, rows, gram=np.zeros((0, 0))
        )
        return self.with_panel_rows(record, Context())

    def with_panel_rows(self, record: DirectionsRecord, context: Context) -> PanelledDirections:
        """Return the summary of a record whose rows are `PanelRows`."""
        return cast(PanelledDirections, PanelledDirections(self.size)._with(record, context))

    def of_panels(self, total: Total, panels: Iterator[SketchPanel], n_features: int) -> Self:
        """Return the summary of a sketch in panels."""
        from sketchselect.linalg.sparse_shrink import joined

        rows, mean, squares = joined(panels, n_features, total.norms.size)
        gram = np.zeros((0, 0))
        return self._with(
            DirectionsRecord(total.n_rows, total.weight, mean, squares, total.shrinkage, rows, gram), Context()
        )

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return an upper bound of the bytes of one state."""
        second = n_features * n_features if self.keeps_gram(n_features) else 2 * self.size * n_features
        return 8 * (second + 2 * n_features) + 64

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the extra bytes of one `from_block` or `merge`."""
        # With a decay, two states are scaled too.
        scaled = 2 * self.projected_nbytes(n_features) if self.decays else 0
        if self.keeps_gram(n_features):
            return scaled + 8 * (2 * n_features * n_features + PIECE_ROWS * n_features)
        rows = 4 * self.size + 1
        return scaled + 8 * (2 * rows * n_features + 4 * rows * rows)

    def sparse_nbytes(self, n_features: int, n_targets: int, rows: SparseRows) -> tuple[int, int]:
        """Return both bounds for CSR blocks.

        Blocks that are long and stay sparse leave at most `size` - 1 rows each, and merges of large states no more.
        Beside its result, a step has B, which the allocator may keep while the result is sent, some vectors of all
        columns and four matrices of the order of a buffer, some of them in LAPACK. Other blocks are made dense: few
        rows at once, dense ones piece by piece. A piece is there in its own type, about the mean or in the two buffers
        of its shrinks, and as a sketch; the merge is a third state.
        """
        state, working = super().sparse_nbytes(n_features, n_targets, rows)
        if self.decays or self.keeps_gram(n_features):
            return state, working
        order, rank, p = (BUFFER_FACTOR + 1) * self.size, self.size, n_features
        sparse = 8 * (2 * rank * p + 8 * p + 4 * order * order)
        if rows.density <= self.sparse_limit and rows.fewest_rows > 2 * rank:
            most_rows = rank if rows.n_blocks == 1 else self._most_rows(p)
            return 8 * (most_rows + 2) * p + 64, sparse
        piece, height = max(PIECE_VALUES, p), 4 * rank + 1
        pieces = 8 * (min(2 * piece, 2 * height * p) + min(piece, 2 * rank * p) + 4 * height * height)
        pieces = max(0, pieces + rows.itemsize * piece - rows.split_nbytes)
        dense = 8 * 2 * rank * p + (pieces if rows.density > self.sparse_limit else 0)
        return state, max(sparse, dense)

    def _empty(self, n_features: int, n_targets: int) -> DirectionsRecord:
        width = n_features if self.keeps_gram(n_features) else 0
        return DirectionsRecord(
            n_rows=0,
            weight=0.0,
            mean=np.zeros(n_features),
            column_squares=np.zeros(n_features),
            shrinkage=0.0,
            rows=np.zeros((0, n_features)),
            gram=np.zeros((width, width)),
            end=0 if self.decays else None,
        )

    def _summarise(self, block: Any, targets: Any, start: int | Array, weights: Floats | None) -> DirectionsRecord:
        n, p = block.shape
        end, weights = self._row_weights(start, n, weights)
        if self.keeps_gram(p):
            weight, mean, gram, squares, gained = block_gram(block, weights, start, keeps_rank=True)
            return DirectionsRecord(n, weight, mean, squares, 0.0, np.zeros((0, p)), gram, gained, end)
        if is_csr(block):
            if n > 2 * self.size:
                sketch, delta, weight, mean, squares = shrink_sparse(block, self.size, weights, start)
                return DirectionsRecord(n, weight, mean, squares, delta, sketch, np.zeros((0, 0)), end=end)
            # Few rows are stored about their mean, which is dense.
            block = densify(block)
        weight, shift = block_mean(block, weights, start)
        w = np.ones(n) if weights is None else weights
        rows, delta, gained, sums, squares = shrink_block(block, self.size, shift, w, start)
        mean, _, squares = centered_moments(weight, shift, sums, squares)
        return DirectionsRecord(n, weight, mean, squares, delta, rows, np.zeros((0, 0)), gained, end)

    def _combine(self, left: DirectionsRecord, right: DirectionsRecord) -> DirectionsRecord:
        left, right = self._aligned(left, right)
        weight, mean, difference, factor = merge_means(left.weight, left.mean, right.weight, right.mean)
        squares = left.column_squares + right.column_squares + factor * difference * difference
        delta = left.shrinkage + right.shrinkage
        rows, gram = left.rows, left.gram
        if self.keeps_gram(left.n_features):
            gram = left.gram + right.gram
            gram += np.outer(factor * difference, difference)
            np.fill_diagonal(gram, squares)
        else:
            # The difference of the two means is one more row of the centred matrix.
            norms = float(np.linalg.norm(left.mean) + np.linalg.norm(right.mean))
            delta += mean_rounding(norms, float(np.sqrt(factor) * np.linalg.norm(difference)), factor)
            parts = [left.rows, right.rows, np.sqrt(factor) * difference[None, :]]
            if sum(len(part) for part in parts) > self._most_rows(left.n_features):
                # The rows of a summary are read-only, unless `into_mutable` said that no other code holds it.
                rows, lost = shrink_parts(parts, self.size, left.rows if left.rows.flags.writeable else None)
                delta += lost
            else:
                rows = np.vstack(parts)
        gained = left.single_rounding + right.single_rounding
        return DirectionsRecord(left.n_rows + right.n_rows, weight, mean, squares, delta, rows, gram, gained, left.end)

    def _scaled(self, record: DirectionsRecord, factor: float, end: int) -> DirectionsRecord:
        return replace(
            record,
            weight=record.weight * factor,
            column_squares=record.column_squares * factor,
            shrinkage=record.shrinkage * factor,
            single_rounding=record.single_rounding * factor,
            rows=record.rows * np.sqrt(factor),
            gram=record.gram * factor,
            end=end,
        )

    def into_mutable(self) -> Self:
        """Let the next `merge` overwrite these rows, which may fill half of the memory."""
        with suppress(ValueError):  # the memory of a message is read-only
            self.record.rows.flags.writeable = True
        return self

    def details(self) -> Iterator[str]:
        """Yield the shrinkage and the squared norm."""
        shrinkage = "exact" if self.is_exact else f"shrinkage {self.shrinkage:.6g}"
        if self.single_rounding > 0:
            shrinkage += f" up to float32 rounding of at most {self.single_rounding:.2g}"
        yield f"{shrinkage}, squared norm {self.squared_norm:.6g} ({self.centered_squared_norm:.6g} about the mean)"

    # --- answers -----------------------------------------------------------------------------------------------

    @property
    def is_exact(self) -> bool:
        """Whether the state is the Gram matrix, exact but for `single_rounding`; then `shrinkage` is 0."""
        return self.keeps_gram(self.n_features)

    @cached_property
    def _final(self) -> tuple[Floats, float]:
        """Return ``(B_c, Delta)`` after the last shrink; the state stays unfinalised for merging and saving."""
        record = self.record
        with one_blas_thread():
            if self.is_exact:
                directions = self.centered_directions
                return np.sqrt(directions.squares)[:, None] * directions.vectors, 0.0
            if record.rows.shape[0] < self.size:
                return record.rows, record.shrinkage
            rows, lost = shrink(record.rows, self.size)
            return rows, record.shrinkage + lost

    @property
    def weight(self) -> float:
        """Total weight of the rows; their number by default."""
        return self.record.weight

    @property
    def mean(self) -> Floats:
        """Exact column means, shape (n_features,)."""
        return self.record.mean

    @property
    def shrinkage(self) -> float:
        """Delta: the sketch loses at most this in any direction of A'A, and gains in none but `single_rounding`."""
        return 0.0 if self.is_exact else self._final[1]

    @property
    def single_rounding(self) -> float:
        """Bound of the error by products in float32: its Frobenius norm, in a sketch the trace of what it gains."""
        return self.record.single_rounding

    product_rounding: ClassVar[float] = 0.0
    """0: no direction of `centered_gram` is near the rounding of its products."""

    @property
    def centered_gram(self) -> Floats | None:
        """The Gram matrix about the mean, within `single_rounding`; None where there are too many columns for it."""
        return self.record.gram if self.is_exact else None

    @property
    def centered_sketch(self) -> Floats:
        """B_c, the sketch of the rows about their mean: at most size - 1 rows (exact: n_features)."""
        return self._final[0]

    @cached_property
    def sketch(self) -> Floats:
        """B = [B_c; sqrt(W) mean'], the sketch of the rows about zero: at most `size` rows (exact: n_features)."""
        return self._stacked()

    def _stacked(self) -> Floats:
        stacked = np.vstack([self.centered_sketch, np.sqrt(self.weight) * self.mean[None, :]])
        if self.is_exact and stacked.shape[0] > self.n_features:
            with one_blas_thread():
                return cast(Floats, np.linalg.qr(stacked, mode="r"))
        return stacked

    @property
    def centered_column_squared_norms(self) -> Floats:
        """Exact squared norms of the columns about their means: the scatter of each feature."""
        return self.record.column_squares

    @property
    def column_squared_norms(self) -> Floats:
        """Exact squared norms of the columns, ||A e_j||^2."""
        return self.centered_column_squared_norms + self.weight * self.mean**2

    @property
    def centered_squared_norm(self) -> float:
        """||A_c||_F^2, the total scatter about the mean; exact."""
        return float(self.centered_column_squared_norms.sum())

    @property
    def squared_norm(self) -> float:
        """||A||_F^2; exact."""
        return float(self.column_squared_norms.sum())

    @cached_property
    def centered_directions(self) -> Directions:
        """Squared singular values and right singular vectors of B_c, descending."""
        with one_blas_thread():
            if self.is_exact:
                return symmetric_directions(self.record.gram, self.n_rows)
            return row_directions(self.centered_sketch)

    @cached_property
    def directions(self) -> Directions:
        """Squared singular values and right singular vectors of B, descending."""
        with one_blas_thread():
            if self.is_exact:
                gram = self.record.gram + np.outer(self.weight * self.mean, self.mean)
                return symmetric_directions(gram, self.n_rows + 1)
            return row_directions(self._stacked(), in_place=True)


@register
class DecayedDirections(FrequentDirections):
    """`FrequentDirections` with a `half_life` or `decay`, by its former name; files of that kind are loaded as this.

    Parameters
    ----------
    size, half_life, decay
        As in `FrequentDirections`; one of the last two.
    """

    kind = "decayed-directions"

    def __init__(self, size: int, half_life: float | None = None, decay: float | None = None) -> None:
        super().__init__(size, half_life, decay)
        self._require_decay()


class PanelledDirections(FrequentDirections):
    """The sketch of wide sparse rows, in panels of columns that stay on the workers that made them.

    Methods of selection that can work on panels do, and saving reads some rows at a time, so that no process holds the
    sketch. Whatever else needs it, such as `merge` and pickling, puts it together in this process: 8 l p bytes. Workers
    keep their panels as long as this summary is there, and lose them when they end.
    """

    @property
    def _panelled(self) -> DirectionsRecord:
        """The record, whose rows are in panels."""
        return cast(DirectionsRecord, self._record)

    @property
    def _rows(self) -> PanelRows:
        return cast("PanelRows", self._panelled.rows)

    @property
    def record(self) -> DirectionsRecord:
        """The state, put together in this process."""
        return self._gathered.record

    @cached_property
    def _gathered(self) -> FrequentDirections:
        from sketchselect.linalg.sparse_shrink import joined

        rows, _, _ = joined(self.panels.drained(), self.n_features, self.height)
        return FrequentDirections(self.size)._with(replace(self._panelled, rows=rows), self.context)

    def _with(self, record: Any, context: Context) -> Any:
        if record is None or isinstance(record.rows, np.ndarray):
            return FrequentDirections(self.size)._with(record, context)
        return super()._with(record, context)

    def __reduce_ex__(self, protocol: Any) -> Any:
        from sketchselect.linalg.panel_columns import NoPanels

        return super().__reduce_ex__(protocol) if isinstance(self.panels, NoPanels) else (copy, (self._gathered,))

    def whole(self) -> FrequentDirections:
        """Return the sketch, put together in this process."""
        return self._gathered

    def without_panels(self, why: str) -> FrequentDirections:
        """Return what is known besides the panels, which are let go of; `why` is what whoever needs them is told.

        A sketch that was put together already is returned whole.
        """
        from sketchselect.linalg.panel_columns import NoPanels, PanelRows

        if "_gathered" in self.__dict__ or isinstance(self.panels, NoPanels):
            return cast(FrequentDirections, self.__dict__.get("_gathered", self))
        rows: Any = PanelRows(NoPanels(self.panels.edges, why), self.height)
        return self.with_panel_rows(replace(self._panelled, rows=rows), self.context)

    def directions_in_panels(self, about: About) -> PanelDirections:
        """Return the directions about the means or about zero, whose vectors the panels make."""
        return self._about_mean if about == "mean" else self._about_zero

    @cached_property
    def _about_mean(self) -> PanelDirections:
        return self._panel_directions("mean")

    @cached_property
    def _about_zero(self) -> PanelDirections:
        return self._panel_directions("zero")

    def _panel_directions(self, about: About) -> PanelDirections:
        from sketchselect.linalg.panel_columns import PanelDirections, View

        return PanelDirections.of(self.panels, View(about, self.weight))

    @property
    def panels(self) -> Panels:
        """The panels, wherever they are."""
        return self._rows.panels

    @property
    def height(self) -> int:
        """Rows of the sketch about the means."""
        return self._rows.shape[0]

    @property
    def n_features(self) -> int:
        """Number of columns of the data."""
        return int(self._panelled.mean.size)

    @property
    def n_rows(self) -> int:
        """Number of rows summarised."""
        return self._panelled.n_rows

    @property
    def nbytes(self) -> int:
        """Bytes of the sketch."""
        return 8 * self.n_features * (self.height + 2)

    @property
    def weight(self) -> float:
        """Total weight of the rows; their number by default."""
        return self._panelled.weight

    @property
    def mean(self) -> Floats:
        """Exact column means, shape (n_features,)."""
        return self._panelled.mean

    @property
    def shrinkage(self) -> float:
        """Delta: the sketch loses at most this in any direction of A'A, and gains in none."""
        return self._panelled.shrinkage

    @property
    def single_rounding(self) -> float:
        """0: sparse rows have products in float64."""
        return 0.0

    @property
    def centered_column_squared_norms(self) -> Floats:
        """Exact squared norms of the columns about their means: the scatter of each feature."""
        return self._panelled.column_squares


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
