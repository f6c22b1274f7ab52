"""Distance bounds of rows in memory between sweeps of Lloyd's iteration, so that most rows need no comparison."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from sketchselect.linalg.arrays import Floats

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
    """Length of the rows of one block, nearest centre, distance to it, and lower bounds of those to other centres.

    A row has one bound for each group of centres (those of equal index modulo `n_groups`): no centre of the group other
    than the nearest one is closer than the bound, less the sum of the largest steps of the group since it was computed.
    If the exact distance to the row's centre is below all of these, the centre is still the nearest. Labels, distances
    and sums are therefore the same, to the bit, with and without a memory, and it may be lost at any time.

    `n_rows`: Rows of the block.
    `bounded`: Whether there are bounds at all; see `worth_keeping`.
    Bytes: n (16 + 4 n_groups(k)), and 16 n without bounds. They pause while they do not save time. Not safe for
    concurrent threads.
    Source: Hamerly 2010; Ding et al. 2015 (groups of centres).
    """

    def __init__(self, n_rows: int, bounded: bool = True) -> None:
        self.labels: NDArray[np.int32] = np.empty(n_rows, dtype=np.int32)
        self.distances: Floats = np.empty(n_rows)
        # Squared, of rows as they are; empty until they are needed.
        self.lengths: NDArray[np.float32] = np.empty(0, dtype=np.float32)
        self._bounded = bounded
        self._bounds = NO_BOUNDS
        self._centers: Floats | None = None
        self._pause, self._next_pause = _FIRST_PAUSE, _FIRST_PAUSE
        self._fresh = False

    def bounds_for(self, centers: Floats) -> SweepBounds:
        """Return the bounds for the next sweep, with these centres; they are not known before `note_sweep`."""
        before, self._centers = self._centers, None
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
