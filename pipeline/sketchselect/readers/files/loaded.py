"""Base class of matrices in files that can only be loaded whole: once in each process that reads them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect.linalg.arrays import Array
from sketchselect.readers.base import Matrix
from sketchselect.readers.cache import MATRICES
from sketchselect.readers.views import copy_metadata


class LoadedMatrix(Matrix):
    """Base of dataclasses that pickle as an address and load the matrix behind it when it is asked for."""

    def __post_init__(self) -> None:
        copy_metadata(self._load(), self)

    @abstractmethod
    def _key(self) -> tuple[Any, ...]:
        """Return a name of the content: another one when the file is another."""

    @abstractmethod
    def _read(self) -> Matrix:
        """Return the file's content as a matrix in memory; raise `SourceChanged` if it was rewritten."""

    @property
    def entry_offsets(self) -> NDArray[np.int64] | None:  # type: ignore[override]
        """Stored entries before each row, of sparse files; they stay with the loaded matrix."""
        return self._load().entry_offsets

    def read_rows(self, start: int, stop: int) -> Any:
        """Return rows `start` to `stop`, CSR where the file is sparse."""
        return self._load().read_rows(start, stop)

    def read_columns(self, start: int, stop: int) -> Array:
        """Return columns `start` to `stop`, dense."""
        return self._load().read_columns(start, stop)

    def _load(self) -> Matrix:
        return MATRICES.get((type(self).__name__, *self._key()), self._read)
