"""Base class of targets, labels and weights: one entry per row of a matrix, read in the same runs of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from sketchselect.errors import NotFinite
from sketchselect.linalg.arrays import Array, with_groups
from sketchselect.linalg.hashing import fingerprint, words_of


class Vector(ABC):
    """One entry (or one row of several targets) per row of a matrix. Small and picklable unless `in_memory`.

    Attributes
    ----------
    shape : tuple of int
        (n_rows,) or (n_rows, n_targets).
    dtype : numpy.dtype
        Type of the entries as stored: numbers or text (class labels).
    address : str
        Path, URL or description, for messages; never holds credentials.
    in_memory : bool
        True where the object holds the data itself.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    address: str = "array"
    in_memory: bool = False

    @property
    def n_rows(self) -> int:
        """Entries."""
        return self.shape[0]

    @abstractmethod
    def read(self, start: int, stop: int) -> Array:
        """Return entries `start` to `stop`, one- or two-dimensional, canonical."""

    @abstractmethod
    def identity(self) -> str | None:
        """Return a fingerprint of the whole content; None where there is none."""

    def dask_rows(self) -> Any | None:
        """Return all entries as a Dask array where they come from a Dask graph."""
        return None


class GroupedTarget(Vector):
    """A target with the group of each row beside its entry; only folds of groups look at the group."""

    def __init__(self, target: Vector, groups: Vector) -> None:
        self.target, self.groups = target, groups
        self.shape, self.dtype, self.address = target.shape, target.dtype, target.address
        self.in_memory = target.in_memory or groups.in_memory

    def read(self, start: int, stop: int) -> Array:
        """Return entries `start` to `stop` as records of target and group."""
        groups = np.ravel(self.groups.read(start, stop))
        if groups.dtype.kind == "f" and not (finite := np.isfinite(groups)).all():
            row = start + int(np.argmin(finite))
            raise NotFinite(f"groups {self.groups.address}: row {row} has none; leave rows without a group out")
        return with_groups(self.target.read(start, stop), words_of(groups))

    def identity(self) -> str | None:
        """Return a fingerprint of targets and groups."""
        parts = self.target.identity(), self.groups.identity()
        return None if None in parts else fingerprint("groups", *parts)
