"""What Lloyd's iteration remembers of rows that stay in memory, so that most of them need no further comparison."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from sketchselect.linalg.arrays import Floats

# Centres move far in the first sweeps, and bounds taken there hold no row.
_FIRST_PAUSE = 2
# Beyond this share of rows compared all the same, bounds cost more than they save.
_TOO_MANY = 0.6
# Comparing a row with all centres must be dear against its own part of the sums, which no bound saves (measured).
_LEAST_FEATURES, _LEAST_PRODUCTS = 32, 500


class Follow(NamedTuple):
    """What a sweep is told: whether something is known, bounds (no columns: keep none), steps of centres, of groups."""

    known: bool
    lower: NDArray[np.float32]
    moved: NDArray[np.float32]
    drift: Floats


NOTHING = Follow(False, np.empty((1, 0), dtype=np.float32), np.empty(0, dtype=np.float32), np.zeros(1))


# Larger arrays are not worth keeping alive for.
_SHARED_BYTES = 1 << 20


class Same:
    """An array that nobody can change, told from others by what it is and not by what it holds: a key."""

    def __init__(self, array: Floats) -> None:
        self.array = array

    @classmethod
    def of(cls, array: Floats) -> Self | None:
        """Return the key of an array; None where somebody might write to it, or it is large."""
        if array.flags.writeable or array.base is not None or array.nbytes > _SHARED_BYTES:
            return None
        return cls(array)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.array is self.array

    def __hash__(self) -> int:
        return id(self.array)


def _steps(before: Floats, after: Floats, n_groups: int) -> tuple[NDArray[np.float32], Floats]:
    """Return how far each centre went, and the farthest of each group."""
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.linalg.norm(after - before, axis=1)
        largest = np.zeros(n_groups)
        np.maximum.at(largest, np.arange(steps.size) % n_groups, steps)
        return steps.astype(np.float32), largest


@lru_cache(maxsize=4)
def _shared_steps(before: Same, after: Same, n_groups: int) -> tuple[NDArray[np.float32], Floats]:
    return _steps(before.array, after.array, n_groups)


def worth_keeping(n_features: int, n_clusters: int) -> bool:
    """Return whether a `RowMemory` saves time: by measurement from 32 columns and 500 multiplications a row."""
    return n_features >= _LEAST_FEATURES and n_features * n_clusters >= _LEAST_PRODUCTS


def n_groups(n_clusters: int) -> int:
    """Return into how many groups the centres are divided: each row keeps one bound for each group."""
    return min(n_clusters, 8 if n_clusters <= 32 else 16 if n_clusters <= 128 else 32)


class RowMemory:
    """Nearest centre, distance to it, and lower bounds of the distances to the other centres, for rows of one block.

    One bound is kept for each group of centres (those of equal index modulo `n_groups`): no centre of the group but
    the nearest one itself is closer than the bound, less the sum of the largest steps of the group since it was taken.
    Where the exact distance to a row's centre is below all of them, the centre is still the nearest one. Labels,
    distances and sums are therefore the same, to the bit, with and without it, and it may be lost at any time.

    Parameters
    ----------
    n_rows : int
        Rows of the block.

    Notes
    -----
    Bytes: n (12 + 4 n_groups(k)). It pauses where bounds do not pay. Not for use by two threads at a time.
    Source: Hamerly 2010; Ding et al. 2015 (groups of centres).
    """

    def __init__(self, n_rows: int) -> None:
        self.labels: NDArray[np.int32] = np.empty(n_rows, dtype=np.int32)
        self.distances: Floats = np.empty(n_rows)
        self._last: Follow = NOTHING
        self._centers: Floats | None = None
        self._pause, self._next_pause = _FIRST_PAUSE, _FIRST_PAUSE
        self._fresh = False

    def follow(self, centers: Floats) -> Follow:
        """Return what the coming sweep, with these centres, is told; nothing is known until `swept`."""
        before, self._centers = self._centers, None
        if self._pause:
            self._pause -= 1
            self._last = NOTHING
        elif before is not None and before.shape == centers.shape and self._last is not NOTHING:
            keys = Same.of(before), Same.of(centers)
            groups = self._last.drift.size
            if keys[0] is None or keys[1] is None:
                moved, largest = _steps(before, centers, groups)
            else:
                moved, largest = _shared_steps(keys[0], keys[1], groups)
            self._last = self._last._replace(known=True, moved=moved, drift=self._last.drift + largest)
        else:
            shape = n_groups(centers.shape[0]), self.labels.shape[0]
            self._last = Follow(
                False, np.zeros(shape, np.float32), np.zeros(len(centers), np.float32), np.zeros(shape[0])
            )
            self._fresh = True
        return self._last

    def swept(self, centers: Floats, compared: int) -> None:
        """Note that labels, distances and bounds are those of these centres, and how many rows were compared."""
        self._centers = centers if Same.of(centers) else centers.copy()
        if not self._last.known:
            return
        many = compared > _TOO_MANY * self.labels.shape[0]
        # Old bounds fail most rows at last and are taken anew by that; only if new ones fail too, they do not pay.
        if many and self._fresh:
            self._pause = self._next_pause
            self._next_pause *= 2
        elif not many:
            self._next_pause = _FIRST_PAUSE
        self._fresh = many
