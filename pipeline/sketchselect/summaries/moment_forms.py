"""Second moments of rows with missing values: for each pair of columns, of the rows with a value in both.

Forms of the state of `Moments`: co-moment, triangular factor, products of columns, and pairs of columns.

The factor, for `Moments("qr")`, squares no condition number. For the powers 1 to 7 of 20 numbers (condition number
1e10) its least squares are right to 5e-7, those of the co-moment to 5e-2. It takes 3.9 times as long (20,000 x 200,
one thread).

Products of columns, for polynomial features of degree 2, are kept about any shift: the products about one determine
those about another exactly. Their order is the p columns, then the pairs i <= j row by row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sketchselect._kernels import kernel
from sketchselect.errors import BadBlock, NotFinite
from sketchselect.linalg import comoments
from sketchselect.linalg.centering import check_squares
from sketchselect.linalg.csr import densify
from sketchselect.linalg.validation import LARGEST, PIECE_ROWS, Array, Floats, first_row, is_csr, pieces, start_of_piece

_TILE_NBYTES = 1 << 18

# Least number of columns of which few rows are kept as rows: the scatter of fewer takes little.
_WIDE = 1024

# Rows of a block whose median centres the columns: a mean would follow a glitch that most pairs do not contain.
_SAMPLED = 64

# Beyond this ratio of squares about the common centre to squares about its own means a pair is summed again. The ratio
# is known to about 1e-4 of the squares about the centre.
_CANCELLED = 1e2


@dataclass(frozen=True)
class PairMoments:
    """Weight, mean and scatter for each pair of columns, arrays of shape (d, d)."""

    weight: Floats  # ``weight[i, j]``: total weight of the rows with a value in both i and j
    mean: Floats  # ``mean[i, j]``: mean of column i over those rows (not symmetric)
    scatter: Floats  # ``scatter[i, j]``: co-moment of i and j over those rows, about these means


def pair_moments(block: Array, targets: Floats, weights: Floats, start: int | Array = 0) -> PairMoments:
    """Return the pairwise moments of a block in which NaN is a missing value.

    With the mask O and the values V about a robust centre, 0 where missing: ``N = O'O``, ``S = V'O``, ``P = V'V``, and
    ``scatter = P - S S' / N`` entry by entry. Where the rows of a pair are so far from the centre that this cancels, as
    ``(V^2)'O`` shows, they are summed again about their own means.

    Raises `NotFinite` for infinite values, naming row and column.

    Notes
    -----
    Cost: three products of n d^2 multiply-adds, with weights three and a half, one where no value is missing;
    8 d^2 + 6 x 2048 d numbers.
    """
    shift = _centre(block, targets, start)
    p, d = block.shape[1], shift.shape[0]
    total, sums, products, squares = (np.zeros((d, d)) for _ in range(4))
    counted = bool((weights == 1.0).all())
    for a, b in pieces(block):
        rows = np.hstack([block[a:b].astype(np.float64), targets[a:b]])
        rows -= shift
        mask = ~np.isnan(rows)
        np.copyto(rows, 0.0, where=~mask)
        root = np.sqrt(weights[a:b])
        if not counted:
            rows *= root[:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            gram = rows.T @ rows
            products += gram
            if mask.all():
                total += weights[a:b].sum()
                sums += (root @ rows)[:, None]
                squares += gram.diagonal()[:, None]
                continue
            present, single = mask.astype(np.float64), mask.astype(np.float32)
            if not counted:
                present *= root[:, None]
            # Counts of so few rows are exact in float32.
            total += single.T @ single if counted else present.T @ present
            sums += rows.T @ present
            # Only to see where digits cancel, so float32 is enough for columns scaled to 1.
            top = np.maximum(rows.max(axis=0), -rows.min(axis=0))
            scaled = np.divide(rows, np.where(top > 0, top, 1.0), out=np.empty_like(single), casting="same_kind")
            squares += np.square(top)[:, None] * (np.square(scaled, out=scaled).T @ single)
    if not (products.diagonal() < LARGEST**2).all():
        check_squares(products.diagonal()[:p], np.nan_to_num(block, nan=0.0), start)
        check_squares(products.diagonal()[p:], targets, start, "target")
    mean = np.divide(sums, total, out=np.zeros((d, d)), where=total > 0)
    about = mean * sums
    poor = about > _CANCELLED * np.maximum(squares - about, 0.0)
    products -= mean * sums.T
    mean += shift[:, None]
    mean[total <= 0] = 0.0
    _sum_again(block, targets, weights, np.argwhere(np.triu(poor | poor.T)), total, mean, products)
    np.fill_diagonal(products, np.maximum(products.diagonal(), 0.0))
    return PairMoments(total, mean, products)


@kernel()
def _sum_again(block, targets, weights, pairs, total, mean, scatter):  # type: ignore[no-untyped-def]
    """Write means and scatter of some pairs of columns, from two sweeps over the rows with a value in both."""
    p = block.shape[1]
    for k in range(pairs.shape[0]):
        i, j = pairs[k]
        weight = total[i, j]
        x, y, both = mean[i, j], mean[j, i], 0.0
        # The second sweep is about means that have all their digits.
        for _ in range(2):
            first, second, both = 0.0, 0.0, 0.0
            for r in range(block.shape[0]):
                u = np.float64(block[r, i]) if i < p else targets[r, i - p]
                v = np.float64(block[r, j]) if j < p else targets[r, j - p]
                if weights[r] > 0.0 and not (np.isnan(u) or np.isnan(v)):
                    first += weights[r] * (u - x)
                    second += weights[r] * (v - y)
                    both += weights[r] * (u - x) * (v - y)
            x, y, both = x + first / weight, y + second / weight, both - first * (second / weight)
        mean[i, j], mean[j, i] = x, y
        scatter[i, j] = both
        scatter[j, i] = both


def _centre(block: Array, targets: Floats, start: int | Array) -> Floats:
    """Return the median of the values present in some rows, for each column; 0 for a column without any."""
    for a, b in pieces(block):
        if np.isinf(block[a:b]).any() or np.isinf(targets[a:b]).any():
            infinite = np.isinf(np.hstack([block[a:b], targets[a:b]]))
            row, column = divmod(int(infinite.argmax()), infinite.shape[1])
            row = first_row(start_of_piece(start, a + row, b))
            raise NotFinite(f"infinite value at row {row}, column {column}; only NaN counts as missing: clean the data")
    some = np.unique(np.linspace(0, block.shape[0] - 1, _SAMPLED).astype(int))
    # Missing values are sorted last.
    ordered = np.sort(np.hstack([block[some].astype(np.float64), targets[some]]), axis=0)
    count = (~np.isnan(ordered)).sum(axis=0)
    # A value of the data, so that differences of equal values are 0.
    median = ordered[np.maximum(count - 1, 0) // 2, np.arange(count.size)]
    return np.where(count > 0, median, 0.0)


def merge_pairs(left: PairMoments, right: PairMoments) -> PairMoments:
    """Return the moments of the rows of both, entry by entry."""
    weight = left.weight + right.weight
    some = weight > 0
    share = np.divide(right.weight, weight, out=np.zeros_like(weight), where=some)
    difference = right.mean - left.mean
    difference[(left.weight == 0) | (right.weight == 0)] = 0.0
    # From the mean of the heavier side, as `merge_means`.
    from_right = right.weight > left.weight
    other = np.divide(left.weight, weight, out=np.zeros_like(weight), where=some)
    mean = np.where(from_right, right.mean - other * difference, left.mean + share * difference)
    scatter = left.scatter + right.scatter + left.weight * share * difference * difference.T
    np.fill_diagonal(scatter, np.maximum(scatter.diagonal(), 0.0))
    return PairMoments(np.where(some, weight, 0.0), np.where(some, mean, 0.0), np.where(some, scatter, 0.0))


SINGLE_UNIT = 2050 * 2.0**-24
"""Error of products in float32, as a share of the scatter, where 2048 rows are added up: as earlier versions did."""


@dataclass(frozen=True)
class MomentsRecord:
    """State of `Moments`; the last `n_targets` columns of mean and co-moment are the targets."""

    n_rows: int
    n_targets: int
    weight: float
    squared_weight: float
    # shape (d,); d = n_features + n_targets; with `shift` the products of columns are between features and targets
    mean: Floats
    comoment: Floats | None = None  # shape (d, d): Scatter about the mean; None in factored form
    factor: Floats | None = None  # shape (r, d): R with R'R = scatter; upper-triangular with method="qr"
    # pair_weight, pair_mean: shape (d, d): Weight and means of the rows with a value in both columns, for data with
    # missing values
    pair_weight: Floats | None = None
    pair_mean: Floats | None = None
    shift: Floats | None = None  # shape (n_features,): Subtracted from the columns before products are formed
    end: int | None = None  # Global index after the last row, at which decaying weights are valid
    # Bound of the error of products in float32, in the unit of files: what 2048 rows at a time add to that of a scatter
    single_scatter: float = 0.0
    n_weightless: int | None = None  # Rows of weight 0, which `n_rows` counts; None where there are none

    @property
    def n_features(self) -> int:
        """Number of columns of X."""
        return int(self.mean.shape[0]) - self.n_targets if self.shift is None else int(self.shift.shape[0])


class Form(ABC):
    """A representation of the second moments: how to create, merge and subtract records."""

    accepts_sparse: ClassVar[bool] = False
    """Whether `summarise` takes CSR blocks."""

    @abstractmethod
    def empty(self, p: int, q: int) -> MomentsRecord:
        """Return the record of zero rows."""

    @abstractmethod
    def summarise(self, block: Array, targets: Floats, start: int | Array, weights: Floats | None) -> MomentsRecord:
        """Return the record of a block."""

    @abstractmethod
    def combine(self, left: MomentsRecord, right: MomentsRecord) -> MomentsRecord:
        """Return the record of the rows of both."""

    @abstractmethod
    def scatter(self, record: MomentsRecord) -> Floats:
        """Return the scatter of [x, y]."""

    def scatter_of(self, record: MomentsRecord, rows: slice | Array, columns: slice | Array) -> Floats:
        """Return the scatter of some of [x, y] with some; slices, or indices that broadcast (`numpy.ix_`)."""
        return self.scatter(record)[rows, columns]

    def squares(self, record: MomentsRecord) -> Floats:
        """Return the squared norms of [x, y] about their means."""
        return self.scatter(record).diagonal()

    def few_rows(self, record: MomentsRecord) -> Floats | None:
        """Return rows B, at most a quarter as many as columns, with ``B'B`` the scatter of [x, y]; None for others."""
        rows = record.factor
        return rows if rows is not None and is_few(rows.shape[0], rows.shape[1]) else None

    def mean(self, record: MomentsRecord) -> Floats:
        """Return the mean of [x, y]."""
        return record.mean

    def nbytes(self, p: int, q: int) -> int:
        """Return an upper bound of the bytes of a record."""
        d = p + q
        return 8 * (d * d + d) + 128

    def working_nbytes(self, p: int, q: int) -> int:
        """Return an upper bound of the bytes for creating or merging records, besides the records."""
        d = p + q
        return 8 * (2 * d * d + 2 * PIECE_ROWS * d + 8 * d)


class Comoment(Form):
    """The scatter matrix, merged with the pairwise update."""

    accepts_sparse = True

    def empty(self, p: int, q: int) -> MomentsRecord:
        """Return the record of zero rows."""
        return MomentsRecord(0, q, 0.0, 0.0, np.zeros(p + q), np.zeros((p + q, p + q)))

    def summarise(self, block: Any, targets: Floats, start: int | Array, weights: Floats | None) -> MomentsRecord:
        """Return the record of a block, dense or CSR; some products of dense columns are computed in float32."""
        weight, mean, comoment, _, rounding = comoments.block_gram(block, weights, start, targets)
        return MomentsRecord(
            block.shape[0],
            targets.shape[1],
            weight,
            squared_weight(block, weights),
            mean,
            comoment,
            single_scatter=rounding / SINGLE_UNIT,
        )

    def combine(self, left: MomentsRecord, right: MomentsRecord) -> MomentsRecord:
        """Return the record of the rows of both."""
        weight, mean, difference, factor = comoments.merge_means(left.weight, left.mean, right.weight, right.mean)
        comoment = summed(factor, difference, present(left.comoment), present(right.comoment))
        return replace(added(left, right), weight=weight, mean=mean, comoment=comoment)

    def scatter(self, record: MomentsRecord) -> Floats:
        """Return the scatter of [x, y]."""
        return present(record.comoment)


class RowsOrComoment(Comoment):
    """The centred rows while they are at most a quarter as many as the columns, and the scatter matrix from then on.

    A merge stacks the rows of both sides and one more, the difference of their means times the root of W_a W_b / W.
    Files of the matrix are of the same form, and both merge with each other.
    """

    def empty(self, p: int, q: int) -> MomentsRecord:
        """Return the record of zero rows; of many columns as rows, since the matrix may be too large for memory."""
        return self.empty_as(is_few(0, p + q), p, q)

    def empty_as(self, rows: bool, p: int, q: int) -> MomentsRecord:
        """Return the record of zero rows, as rows or as the matrix."""
        return Factor().empty(p, q) if rows else super().empty(p, q)

    def summarise(self, block: Any, targets: Floats, start: int | Array, weights: Floats | None) -> MomentsRecord:
        """Return the record of a block, dense or CSR."""
        if not is_few(block.shape[0], block.shape[1] + targets.shape[1]):
            return super().summarise(block, targets, start, weights)
        dense = densify(block) if is_csr(block) else block
        weight, mean, rows = comoments.centered_rows(dense, targets, weights, start)
        squared = squared_weight(block, weights)
        return MomentsRecord(block.shape[0], targets.shape[1], weight, squared, mean, factor=rows)

    def combine(self, left: MomentsRecord, right: MomentsRecord) -> MomentsRecord:
        """Return the record of the rows of both."""
        a, b = left.factor, right.factor
        if a is None or b is None or not is_few(len(a) + len(b) + 1, a.shape[1]):
            return super().combine(self._dense(left), self._dense(right))
        weight, mean, difference, factor = comoments.merge_means(left.weight, left.mean, right.weight, right.mean)
        rows = np.vstack([a, b, np.sqrt(factor) * difference])
        return replace(added(left, right), weight=weight, mean=mean, factor=rows)

    def scatter(self, record: MomentsRecord) -> Floats:
        """Return the scatter of [x, y]."""
        return present(self._dense(record).comoment)

    def scatter_of(self, record: MomentsRecord, rows: slice | Array, columns: slice | Array) -> Floats:
        """Return the scatter of some of [x, y] with some."""
        if record.factor is None:
            return present(record.comoment)[rows, columns]
        left, right = (at if isinstance(at, slice) else at.ravel() for at in (rows, columns))
        out: Floats = record.factor[:, left].T @ record.factor[:, right]
        return out

    def squares(self, record: MomentsRecord) -> Floats:
        """Return the squared norms of [x, y] about their means."""
        return super().squares(record) if record.factor is None else (record.factor * record.factor).sum(axis=0)

    @staticmethod
    def _dense(record: MomentsRecord) -> MomentsRecord:
        rows = record.factor
        return record if rows is None else replace(record, comoment=rows.T @ rows, factor=None)


class Factor(Form):
    """A triangular factor of the scatter, which loses half as many digits to ill-conditioning."""

    def empty(self, p: int, q: int) -> MomentsRecord:
        """Return the record of zero rows."""
        return MomentsRecord(0, q, 0.0, 0.0, np.zeros(p + q), factor=np.zeros((0, p + q)))

    def summarise(self, block: Array, targets: Floats, start: int | Array, weights: Floats | None) -> MomentsRecord:
        """Return the record of a block."""
        weight, mean, factor = comoments.centered_factor(block, targets, weights, start)
        return MomentsRecord(
            block.shape[0], targets.shape[1], weight, squared_weight(block, weights), mean, factor=factor
        )

    def combine(self, left: MomentsRecord, right: MomentsRecord) -> MomentsRecord:
        """Return the record of the rows of both."""
        weight, mean, difference, factor = comoments.merge_means(left.weight, left.mean, right.weight, right.mean)
        merged = comoments.merge_factors(present(left.factor), present(right.factor), difference, factor)
        return replace(added(left, right), weight=weight, mean=mean, factor=merged)

    def scatter(self, record: MomentsRecord) -> Floats:
        """Return the scatter of [x, y]."""
        factor = present(record.factor)
        return factor.T @ factor

    def working_nbytes(self, p: int, q: int) -> int:
        """Return an upper bound of the bytes for creating or merging records, besides the records."""
        # A piece of rows and three copies in LAPACK's QR: stacked rows, NumPy's copy, and the transpose of it.
        d = p + q
        return 8 * (4 * PIECE_ROWS * d + 10 * d * d)


def present(array: Floats | None) -> Floats:
    """Return an array that records of this form always have."""
    assert array is not None
    return array


def summed(factor: float, difference: Floats, left: Floats, right: Floats) -> Floats:
    """Return ``factor difference difference' + left + right``."""
    scaled, out = factor * difference, np.empty_like(left)
    # Some rows at a time, so that a wide matrix is written to memory once.
    step = max(_TILE_NBYTES // max(out.strides[0], 1), 1)
    for a in range(0, out.shape[0], step):
        tile = out[a : a + step]
        np.multiply(scaled[a : a + step, None], difference, out=tile)
        tile += left[a : a + step]
        tile += right[a : a + step]
    return out


def is_few(n_rows: int, width: int) -> bool:
    """Return whether so few rows of so many columns take far less than their scatter."""
    return width >= _WIDE and 4 * n_rows <= width


def squared_weight(block: Array, weights: Floats | None) -> float:
    """Return the sum of squared weights."""
    return float(block.shape[0]) if weights is None else float(weights @ weights)


def count_weightless(weights: Floats | None) -> int | None:
    """Return the number of rows of weight 0; None where there are none."""
    return None if weights is None else int(np.count_nonzero(weights == 0)) or None


def added(left: MomentsRecord, right: MomentsRecord) -> MomentsRecord:
    """Return `left` with the rows and weights of `right` added; its moments are those of `left`."""
    return replace(
        left,
        n_rows=left.n_rows + right.n_rows,
        weight=left.weight + right.weight,
        squared_weight=left.squared_weight + right.squared_weight,
        n_weightless=(left.n_weightless or 0) + (right.n_weightless or 0) or None,
        single_scatter=left.single_scatter + right.single_scatter,
    )


def n_polynomial(n_features: int, products: bool = True) -> int:
    """Return the number of features of degree 1 and 2: ``p + p (p + 1) / 2``, or of columns and squares, ``2 p``."""
    return n_features + (n_features * (n_features + 1) // 2 if products else n_features)


def pair_indices(n_features: int, products: bool = True) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the two columns of each product, in the order of the features; without products of each square."""
    if not products:
        return np.arange(n_features), np.arange(n_features)
    i, j = np.triu_indices(n_features)
    return i, j


def polynomial_names(names: tuple[str, ...] | None, n_features: int, products: bool = True) -> tuple[str, ...]:
    """Return the names of the features: ``a``, ``a^2``, ``a b``; columns without names are x0, x1, ..."""
    base = names if names is not None else tuple(f"x{j}" for j in range(n_features))
    pairs = zip(*pair_indices(n_features, products), strict=True)
    return (*base, *(f"{base[i]}^2" if i == j else f"{base[i]} {base[j]}" for i, j in pairs))


def expand(X: Array, mean: Floats, scale: Floats | None = None, products: bool = True) -> Floats:
    """Return the polynomial features of the rows of X: ``z``, and all ``z_i z_j`` of ``z = (x - mean) / scale``.

    `X` of shape (n_rows, p).
    `mean`, `scale` of shape (p,): Columns of scale 0 (constant columns) give zeros; the default scale is 1.
    `products`: Whether there are products of different columns; otherwise only the squares.

    Returns
    -------
    array of shape (n_rows, p + p (p + 1) / 2), or (n_rows, 2 p)

    Examples
    --------
    >>> import numpy as np
    >>> expand(np.array([[3.0, 5.0]]), np.array([1.0, 1.0])).tolist()
    [[2.0, 4.0, 4.0, 8.0, 16.0]]
    """
    z = np.asarray(X, dtype=np.float64) - mean
    if scale is not None:
        z = np.divide(z, scale, out=np.zeros_like(z), where=np.asarray(scale) > 0)
    p = z.shape[1]
    if not products:
        return np.hstack([z, z * z])
    out = np.empty((z.shape[0], n_polynomial(p)))
    out[:, :p] = z
    at = p
    for i in range(p):
        np.multiply(z[:, i : i + 1], z[:, i:], out=out[:, at : at + p - i])
        at += p - i
    return out


def recentre(
    mean: Floats, comoment: Floats, offset: Floats, scale: Floats | None = None, products: bool = True
) -> tuple[Floats, Floats]:
    """Return mean and co-moment of the features of ``(x - offset) / scale`` from those of the features of x.

    ``(x_i - o_i)(x_j - o_j) = x_i x_j - o_j x_i - o_i x_j + o_i o_j``: a sparse affine map T of the features, and the
    co-moment becomes ``T C T'``, in 6 sweeps over it. Targets, which follow the features, are unchanged.

    `mean` of shape (P + q,).
    `comoment` of shape (P + q, P + q).
    `offset`, `scale` of shape (p,): A scale of 0 gives columns of zeros.
    `products`: As in `expand`.
    """
    p = offset.shape[0]
    n = n_polynomial(p, products)
    i, j = pair_indices(p, products)
    new = comoment.copy()
    for turn in (new, new.T):
        # The same map on the rows and then on the columns; `turn` is a view.
        if not products:
            turn[p:n] -= 2.0 * offset[:, None] * turn[:p]
            continue
        for k in range(p):
            at = slice(*_run(p, k))
            turn[at] -= offset[k:, None] * turn[k]
            turn[at] -= offset[k] * turn[k:p]
    moved = mean.copy()
    moved[p:n] -= offset[j] * mean[i] + offset[i] * mean[j] - offset[i] * offset[j]
    moved[:p] -= offset
    if scale is not None:
        inverse = np.divide(1.0, scale, out=np.zeros(p), where=scale > 0)
        factors = np.ones(mean.shape[0])
        factors[:p] = inverse
        factors[p:n] = inverse[i] * inverse[j]
        moved *= factors
        new *= factors
        new *= factors[:, None]
    diagonal = new.diagonal()
    np.fill_diagonal(new, np.maximum(diagonal, 0.0))
    return moved, new


def _run(n_features: int, i: int) -> tuple[int, int]:
    """Return first and last + 1 of the products of column i with itself and the columns after it."""
    start = n_features + i * n_features - i * (i - 1) // 2
    return start, start + n_features - i


def require_products(block: Array, shift: Floats, start: int | Array = 0) -> None:
    """Raise `BadBlock`, naming row and column, if squares of products of the shifted columns would leave float64."""
    for a, b in pieces(block):
        size = np.abs(block[a:b] - shift)
        top = size.max(axis=0)
        bad = (top >= 1e75) | ((top > 0) & (top < 1e-75))
        if bad.any():
            column = int(bad.argmax())
            row = first_row(start_of_piece(start, a + int(size[:, column].argmax()), b))
            raise BadBlock(
                f"column {column} varies by more than 1e75 or less than 1e-75 about its mean (row {row}), so that "
                "squares of its products leave float64; rescale it"
            )


class Products(Form):
    """The scatter of the shifted columns and of all their products, or only their squares."""

    _inner = Comoment()

    def __init__(self, products: bool = True) -> None:
        self._products = products

    def empty(self, p: int, q: int) -> MomentsRecord:
        """Return the record of zero rows."""
        return replace(self._inner.empty(n_polynomial(p, self._products), q), shift=np.zeros(p))

    def summarise(self, block: Array, targets: Floats, start: int | Array, weights: Floats | None) -> MomentsRecord:
        """Return the record of a block; its rows are expanded a piece at a time."""
        _, means = comoments.joint_mean(block, targets, weights, start)
        shift = means[: block.shape[1]]
        require_products(block, shift, start)
        record: MomentsRecord | None = None
        for a, b in pieces(block):
            part_w = None if weights is None else weights[a:b]
            rows = expand(block[a:b], shift, products=self._products)
            part = self._inner.summarise(rows, targets[a:b], start_of_piece(start, a, b), part_w)
            record = part if record is None else self._inner.combine(record, part)
        assert record is not None  # `from_block` handles blocks without rows
        return replace(record, shift=shift)

    def combine(self, left: MomentsRecord, right: MomentsRecord) -> MomentsRecord:
        """Return the record of the rows of both, about the shift of the heavier one."""
        heavier = left if left.weight >= right.weight else right
        left, right = (self._about(record, heavier) for record in (left, right))
        return self._inner.combine(left, right)

    def _about(self, record: MomentsRecord, other: MomentsRecord) -> MomentsRecord:
        """Return the record with its products formed about the shift of the other record."""
        offset = present(other.shift) - present(record.shift)
        if not offset.any():
            return replace(record, shift=other.shift)
        mean, comoment = recentre(record.mean, present(record.comoment), offset, products=self._products)
        return replace(record, mean=mean, comoment=comoment, shift=other.shift)

    def scatter(self, record: MomentsRecord) -> Floats:
        """Return the scatter of [x, y], without the products."""
        keep = self._linear(record)
        out: Floats = present(record.comoment)[np.ix_(keep, keep)]
        return out

    def mean(self, record: MomentsRecord) -> Floats:
        """Return the mean of [x, y]."""
        mean = record.mean[self._linear(record)]
        mean[: record.n_features] += present(record.shift)
        return mean

    @staticmethod
    def _linear(record: MomentsRecord) -> Array:
        d = record.mean.shape[0]
        keep: Array = np.r_[: record.n_features, d - record.n_targets : d]
        return keep

    def nbytes(self, p: int, q: int) -> int:
        """Return an upper bound of the bytes of a record."""
        return self._inner.nbytes(n_polynomial(p, self._products), q) + 8 * p

    def working_nbytes(self, p: int, q: int) -> int:
        """Return an upper bound of the bytes for creating or merging records, besides the records."""
        # Beside the product of a piece, the sum so far and the expanded piece.
        n = n_polynomial(p, self._products)
        d = n + q
        return self._inner.working_nbytes(n, q) + 8 * (2 * d * d + 2 * PIECE_ROWS * d)


class Pairwise(Form):
    """For each pair of columns the moments of the rows with a value in both."""

    def empty(self, p: int, q: int) -> MomentsRecord:
        """Return the record of zero rows."""
        d = p + q
        zeros = np.zeros((d, d))
        return MomentsRecord(0, q, 0.0, 0.0, np.zeros(d), zeros, pair_weight=zeros, pair_mean=zeros)

    def summarise(self, block: Array, targets: Floats, start: int | Array, weights: Floats | None) -> MomentsRecord:
        """Return the record of a block."""
        w = np.ones(block.shape[0]) if weights is None else weights
        pairs = pair_moments(block, targets, w, start)
        base = MomentsRecord(
            block.shape[0], targets.shape[1], float(w.sum()), squared_weight(block, weights), pairs.mean
        )
        return _with_pairs(base, pairs)

    def combine(self, left: MomentsRecord, right: MomentsRecord) -> MomentsRecord:
        """Return the record of the rows of both."""
        return _with_pairs(added(left, right), merge_pairs(pairs_of(left), pairs_of(right)))

    def scatter(self, record: MomentsRecord) -> Floats:
        """Return the pairwise covariances, times the total weight."""
        pairs = pairs_of(record)
        out: Floats = np.divide(pairs.scatter, pairs.weight, out=np.zeros_like(pairs.scatter), where=pairs.weight > 0)
        return out * record.weight

    def nbytes(self, p: int, q: int) -> int:
        """Return an upper bound of the bytes of a record."""
        d = p + q
        return 8 * (3 * d * d + d) + 128

    def working_nbytes(self, p: int, q: int) -> int:
        """Return an upper bound of the bytes for creating or merging records, besides the records."""
        d = p + q
        return 8 * (8 * d * d + 6 * PIECE_ROWS * d)


def pairs_of(record: MomentsRecord) -> PairMoments:
    """Return the pairwise moments of a record."""
    return PairMoments(present(record.pair_weight), present(record.pair_mean), present(record.comoment))


def _with_pairs(record: MomentsRecord, pairs: PairMoments) -> MomentsRecord:
    return replace(
        record,
        mean=pairs.mean.diagonal().copy(),
        comoment=pairs.scatter,
        pair_weight=pairs.weight,
        pair_mean=pairs.mean,
    )
