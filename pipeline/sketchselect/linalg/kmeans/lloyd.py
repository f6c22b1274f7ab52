"""One Lloyd step over a block: nearest centres and cluster sums, in float32 products and float64 sums.

The products of rows and centres are float32 matrix products of pilot-shifted data. The candidates of a row within the
rigorous error of those products are then compared by float64 distances, so labels, distances and sums are those of
float64 arithmetic and depend on the rows alone: not on BLAS, pieces, partitions or workers.

Rows in memory keep bounds of their distances between sweeps, so that most need no comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from sketchselect.linalg.kmeans.assignment import ClusterSums, as_float_rows, assign_rows, sparse_label_sums, sums_about
from sketchselect.linalg.kmeans.kernels import heaviest_rows, settle, sweep, takes_dots
from sketchselect.linalg.validation import Array, Floats, Labels, is_csr, read_only

# Centres move far in the first sweeps, where bounds decide no row.
_FIRST_PAUSE = 2
# Beyond this share of rows compared in spite of the bounds, these cost more than they save.
_TOO_MANY = 0.6
# Comparing a row with all centres must cost more than adding it to the sums, which no bound saves (measured).
_LEAST_FEATURES, _LEAST_PRODUCTS = 32, 500


class SweepBounds(NamedTuple):
    """Arguments of the `sweep` kernel: whether bounds are known, the bounds by group and row (without columns none are
    stored), the last step of each centre, and the sum of the largest steps of each group.
    """

    known: bool
    lower: NDArray[np.float32]
    moved: NDArray[np.float32]
    drift: Floats


NO_BOUNDS = SweepBounds(False, np.empty((1, 0), dtype=np.float32), np.empty(0, dtype=np.float32), np.zeros(1))

# Larger arrays are not cached.
_SHARED_BYTES = 1 << 20


class ArrayKey:
    """Cache key of an immutable array, compared by identity."""

    def __init__(self, array: Floats) -> None:
        self.array = array

    @classmethod
    def of(cls, array: Floats) -> Self | None:
        """Return the key of an array; None for one that may be written to, or is large."""
        if array.flags.writeable or array.base is not None or array.nbytes > _SHARED_BYTES:
            return None
        return cls(array)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArrayKey) and other.array is self.array

    def __hash__(self) -> int:
        return id(self.array)


def _steps(before: Floats, after: Floats, n_groups: int) -> tuple[NDArray[np.float32], Floats]:
    """Return the step of each centre, and the largest step of each group."""
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.linalg.norm(after - before, axis=1)
        largest = np.zeros(n_groups)
        np.maximum.at(largest, np.arange(steps.size) % n_groups, steps)
        return steps.astype(np.float32), largest


@lru_cache(maxsize=4)
def _shared_steps(before: ArrayKey, after: ArrayKey, n_groups: int) -> tuple[NDArray[np.float32], Floats]:
    return _steps(before.array, after.array, n_groups)


def worth_keeping(n_features: int, n_clusters: int) -> bool:
    """Return whether bounds save time: as measured, from 32 columns and 500 multiplications a row."""
    return n_features >= _LEAST_FEATURES and n_features * n_clusters >= _LEAST_PRODUCTS


def n_groups(n_clusters: int) -> int:
    """Return the number of groups of centres; each row has one bound per group."""
    return min(n_clusters, 8 if n_clusters <= 32 else 16 if n_clusters <= 128 else 32)


class RowMemory:
    """Nearest centre of the rows of one block, distance to it, and lower bounds of the distances to other centres.

    A row has one bound for each group of centres (those of equal index modulo `n_groups`): no centre of the group other
    than the nearest one is closer than the bound, less the sum of the largest steps of the group since it was computed.
    If the exact distance to the row's centre is below all of these, the centre is still the nearest. Labels, distances
    and sums are therefore the same, to the bit, with and without a memory, and it may be lost at any time.

    `n_rows`: Rows of the block.
    `bounded`: Whether there are bounds at all; see `worth_keeping`.
    `keeps_sums`: Whether the sums of the last sweep are kept: rows and weights are then the same in every call.
    Bytes: n (12 + 4 n_groups(k)), and 12 n without bounds. They pause while they do not save time. Not safe for
    concurrent threads.
    Source: Hamerly 2010; Ding et al. 2015 (groups of centres).
    """

    def __init__(self, n_rows: int, bounded: bool = True, keeps_sums: bool = False) -> None:
        self.labels: NDArray[np.int32] = np.empty(n_rows, dtype=np.int32)
        self.distances: Floats = np.empty(n_rows)
        self._bounded, self._keeps_sums = bounded, keeps_sums
        self._sums: ClusterSums | None = None
        self._bounds = NO_BOUNDS
        self._centers: Floats | None = None
        self._pause, self._next_pause = _FIRST_PAUSE, _FIRST_PAUSE
        self._fresh = False

    def bounds_for(self, centers: Floats) -> SweepBounds:
        """Return the bounds for the next sweep, with these centres; they are not known before `note_sweep`."""
        before, self._centers, self._sums = self._centers, None, None
        if self._pause or not self._bounded:
            self._pause -= 1
            self._bounds = NO_BOUNDS
        elif before is not None and before.shape == centers.shape and self._bounds is not NO_BOUNDS:
            keys = ArrayKey.of(before), ArrayKey.of(centers)
            groups = self._bounds.drift.size
            if keys[0] is None or keys[1] is None:
                moved, largest = _steps(before, centers, groups)
            else:
                moved, largest = _shared_steps(keys[0], keys[1], groups)
            self._bounds = self._bounds._replace(known=True, moved=moved, drift=self._bounds.drift + largest)
        else:
            shape = n_groups(centers.shape[0]), self.labels.shape[0]
            self._bounds = SweepBounds(
                False, np.zeros(shape, np.float32), np.zeros(len(centers), np.float32), np.zeros(shape[0])
            )
            self._fresh = True
        return self._bounds

    def note_sweep(self, centers: Floats, compared: int) -> None:
        """Note the centres that labels, distances and bounds belong to, and the number of rows compared."""
        self._centers = centers if ArrayKey.of(centers) else centers.copy()
        if not self._bounds.known:
            return
        many = compared > _TOO_MANY * self.labels.shape[0]
        # In the end most old bounds decide nothing and are replaced; only if new ones fail too do they not save time.
        if many and self._fresh:
            self._pause = self._next_pause
            self._next_pause *= 2
        elif not many:
            self._next_pause = _FIRST_PAUSE
        self._fresh = many

    def note_sums(self, sums: ClusterSums) -> None:
        """Note the sums of the last sweep."""
        if self._keeps_sums:
            self._sums = sums

    def sums_of(self, centers: Floats) -> ClusterSums | None:
        """Return the sums of the last sweep, if it had these centres."""
        known = self._centers is not None and np.array_equal(self._centers, centers)
        return self._sums if known else None


_UNIT = 2.0**-24
_PIECE_BYTES = 1 << 19
# With fewer rows at a time products are slow, in BLAS above all; with more they are not faster.
# A power of two would put values that are read together into the same lines of the first-level cache.
_LEAST_DOTS, _LEAST_ROWS, _MOST_ROWS = 48, 256, 1936
# Rows need no shift by the pilot if its squared norm is at most this multiple of that of the centres about it: the
# error of the products is then not much larger.
_NEAR = 4.0
# Beyond this ratio of raw to centred sum of squares a second sweep about the mean replaces the first one.
_CANCELLED = 1e3
# Weights that kernels take for ones.
_ONES = np.empty(0)


@dataclass(frozen=True)
class _Shifted:
    """Centres about a pilot, scaled for float32 products, and the bound of their error."""

    pilot: Array
    scale: float
    factors: Array
    norms: Array
    slope: float
    floor: float

    @classmethod
    def of(cls, centers: Floats, dtype: np.dtype[Any]) -> _Shifted:
        mean = centers.mean(axis=0)
        with np.errstate(over="ignore", invalid="ignore"):
            # Rows of float64 have to be copied in any case. An infinite square is not near.
            square = float(mean @ mean)
            spread = float(np.square(centers).sum()) / len(centers) - square
            near = dtype == np.float32 and square <= _NEAR * spread
        largest = np.finfo(dtype).max
        pilot = np.zeros(mean.shape, dtype) if near else mean.clip(-largest, largest).astype(dtype)
        about = centers if near else centers - pilot
        top = float(np.abs(about).max(initial=0.0))
        # Within 2^+-20 float32 needs no scaling; beyond, a power of two keeps products within its range.
        reach = 100 if dtype == np.float32 else 1000
        exponent = max(-reach, min(-int(np.frexp(top)[1]), reach)) if top > 0 else 0
        scale = 1.0 if abs(exponent) <= 20 else float(np.ldexp(1.0, exponent))
        about = about if scale == 1.0 else about * scale
        norms = np.einsum("ij,ij->i", about, about)
        longest = float(np.sqrt(norms.max(initial=0.0)))
        # Two products, each within (d + 8) units of 2 |x| |c| plus 4 units of |c|^2, and a quarter for
        # computing this bound in float32.
        slope = 2.5 * _UNIT * 2.0 * (centers.shape[1] + 8) * longest
        floor = 2.5 * _UNIT * 4.0 * longest * longest
        # A centre beyond float32 makes the bound infinite; then all centres are compared.
        with np.errstate(over="ignore"):
            return cls(pilot, scale, (-2.0 * about).astype(np.float32), norms.astype(np.float32), slope, floor)

    @cached_property
    def takes_rows_as_they_are(self) -> bool:
        """Whether products take float32 rows without a shift or scale."""
        return self.pilot.dtype == np.float32 and self.scale == 1.0 and not self.pilot.any()


@lru_cache(maxsize=4)
def _cached_shift(centers: ArrayKey, dtype: np.dtype[Any]) -> _Shifted:
    return _Shifted.of(centers.array, dtype)


def _shifted(centers: Floats, dtype: np.dtype[Any]) -> _Shifted:
    """Return the centres prepared for the products, once for all blocks of a sweep."""
    key = ArrayKey.of(centers)
    return _Shifted.of(centers, dtype) if key is None else _cached_shift(key, dtype)


def piece_rows(n_features: int, n_clusters: int, itemsize: int) -> int:
    """Return the rows that kernels take at a time, so that rows and products stay in the second-level cache."""
    rows = _PIECE_BYTES // ((itemsize + 4) * n_features + 4 * n_clusters + 1)
    return max(_LEAST_DOTS if takes_dots(n_features, n_clusters) else _LEAST_ROWS, min(rows, _MOST_ROWS))


def assign(block: Any, centers: Floats) -> tuple[Labels, Floats]:
    """Return the nearest centre of every row, and the squared distance to it.

    Ties go to the lowest index. Both are those of float64 arithmetic for any type and offset of the block: float32
    products only exclude centres that cannot be the nearest.

    `block` of shape (n_rows, n_features).
    `centers` of shape (n_clusters, n_features).

    Returns
    -------
    labels : int32 array of shape (n_rows,)
    distances : float64 array of shape (n_rows,)

    Notes
    -----
    Cost: 2 n k d float32 operations in matrix products, 3 n d in float64, and 3 d for each further centre within the
    error of the products.

    Examples
    --------
    >>> import numpy as np
    >>> labels, distances = assign(np.array([[1e8], [1e8 + 3.0]]), np.array([[1e8 + 1.0], [1e8 + 2.0]]))
    >>> labels.tolist(), distances.tolist()
    ([0, 1], [1.0, 1.0])
    """
    if is_csr(block):
        return assign_rows(block, centers)
    return _nearest(as_float_rows(block), centers, _ONES, None, None)


class _Accumulator:
    """Cluster sums about one reference point per cluster, such as the centres that rows were assigned to.

    The raw sum of squares exceeds the centred one by the squared distance of the reference to the mean, times the
    weight; where that is large, the sums are computed again about the means.
    """

    def __init__(self, references: Floats) -> None:
        self.references = read_only(references)
        self.weight = np.zeros(references.shape[0])
        self.sums = np.zeros(references.shape)
        self.squares = np.zeros(references.shape[0])

    @property
    def arrays(self) -> tuple[Floats, Floats, Floats]:
        return self.weight, self.sums, self.squares

    def add(self, rows: Array, labels: Labels, weights: Floats) -> None:
        settle(rows, labels, self.references, np.empty(rows.shape[0]), True, read_only(weights), *self.arrays)

    def result(self, rows: Array, labels: Labels, weights: Floats) -> ClusterSums:
        first = self._moments()
        poor = self.squares > _CANCELLED * first.within
        if not poor.any():
            return first
        again = _Accumulator(first.mean)
        again.add(rows, np.where((labels >= 0) & poor[labels], labels, np.int32(-1)), weights)
        better = again._moments()
        wide = poor[:, None]
        return ClusterSums(
            self.weight,
            np.where(wide, better.mean, first.mean),
            np.where(wide, better.correction, first.correction),
            np.where(poor, better.within, first.within),
        )

    def _moments(self) -> ClusterSums:
        return sums_about(self.references, *self.arrays)


def assign_and_sum(
    block: Any, centers: Floats, weights: Floats | None = None, *, memory: RowMemory | None = None
) -> tuple[Labels, Floats, ClusterSums]:
    """Return `assign` of the block and the cluster sums of this assignment, in one sweep over the rows.

    `block` of shape (n_rows, n_features).
    `centers` of shape (n_clusters, n_features).
    `weights` of shape (n_rows,).
    `memory`: Bounds from earlier sweeps over the same dense rows; they save products and change no bit of the result.

    Returns
    -------
    labels : int32 array of shape (n_rows,)
        With a memory, like the distances an array of the memory, which the next call changes.
    distances : float64 array of shape (n_rows,)
        Squared distance of each row to its centre, not weighted.
    sums : ClusterSums
        Exact to float64 rounding, also far from the origin.
    """
    if is_csr(block):
        nearest, squares = assign_rows(block, centers)
        return nearest, squares, sparse_label_sums(block, nearest, centers.shape[0], weights)
    if memory is not None and (before := memory.sums_of(centers)) is not None:
        return memory.labels, memory.distances, before
    rows, weights = as_float_rows(block), _ONES if weights is None else weights
    into = _Accumulator(centers)
    labels, distances = _nearest(rows, centers, weights, into, memory)
    sums = into.result(rows, labels, weights)
    if memory is not None:
        memory.note_sums(sums)
    return labels, distances, sums


def _nearest(
    rows: Array, centers: Floats, weights: Floats, into: _Accumulator | None, memory: RowMemory | None
) -> tuple[Labels, Floats]:
    n_rows = rows.shape[0]
    state = RowMemory(n_rows) if memory is None else memory
    bounds = NO_BOUNDS if memory is None else memory.bounds_for(centers)
    if not n_rows:
        return state.labels, state.distances
    s = _shifted(centers, rows.dtype)
    compared = sweep(
        rows,
        rows if s.takes_rows_as_they_are else read_only(np.empty((0, rows.shape[1]), dtype=np.float32)),
        s.pilot,
        rows.dtype.type(s.scale),
        s.factors,
        s.norms,
        s.slope,
        s.floor,
        read_only(centers),
        piece_rows(rows.shape[1], centers.shape[0], rows.dtype.itemsize),
        state.labels,
        state.distances,
        into is not None,
        read_only(weights),
        *(_Accumulator(centers[:1]) if into is None else into).arrays,
        *bounds,
    )
    if memory is not None:
        memory.note_sweep(centers, compared)
    return state.labels, state.distances


def label_sums(block: Array, labels: Labels, n_clusters: int, weights: Floats | None = None) -> ClusterSums:
    """Return the cluster sums of labelled rows; rows with a negative label are left out.

    `block` of shape (n_rows, n_features).
    `labels` of shape (n_rows,): All below `n_clusters`.
    `weights` of shape (n_rows,).
    """
    rows = as_float_rows(block)
    top = 1.0 if weights is None else float(weights.max(initial=0.0))
    weights = np.ones(rows.shape[0]) if weights is None else weights
    references = np.zeros((n_clusters, rows.shape[1]))
    # About a light row, the squares of a heavy one would hide all others.
    heaviest_rows(rows, labels, read_only(weights), top, references)
    sums = _Accumulator(references)
    sums.add(rows, labels, weights)
    return sums.result(rows, labels, weights)
