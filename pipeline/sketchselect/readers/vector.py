"""Base class of targets, labels and weights: one entry per row of a matrix, read in the same runs of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from sketchselect.linalg.arrays import Array


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
