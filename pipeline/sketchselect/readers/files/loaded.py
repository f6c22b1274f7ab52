"""What matrices share whose files can only be loaded whole: once in each process that reads them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect.linalg.arrays import Array
from sketchselect.readers.base import Matrix, Nonfinite
from sketchselect.readers.cache import MATRICES


class LoadedMatrix(Matrix):
    """Base of dataclasses that pickle as an address and load the matrix behind it when it is asked for."""

    policy: Nonfinite

    def __post_init__(self) -> None:
        loaded = self._load()
        self.shape, self.dtype, self.address = loaded.shape, loaded.dtype, loaded.address
        self.is_sparse = loaded.is_sparse
        self.feature_names = loaded.feature_names
        self.nonfinite = self.policy

    @abstractmethod
    def _where(self) -> tuple[Any, ...]:
        """Return the name of the content: another one when the file is another."""

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
        return MATRICES.get((type(self).__name__, *self._where()), self._read)
