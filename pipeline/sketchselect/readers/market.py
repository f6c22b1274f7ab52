"""Matrix Market files (``.mtx``, ``.mtx.gz``): loaded once per process that reads them, sparse ones as CSR."""

from __future__ import annotations

import hashlib
import inspect
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import SourceChanged, SourceError
from sketchselect.linalg.arrays import Array
from sketchselect.readers.base import Matrix, Nonfinite
from sketchselect.readers.kept import kept
from sketchselect.readers.location import Location
from sketchselect.readers.memory import ArrayMatrix, SparseMatrix

ENDINGS = (".mtx", ".mtx.gz")


@dataclass(eq=False)
class MarketMatrix(Matrix):
    """A matrix in a Matrix Market file. Made by `open_matrix`; pickles as an address."""

    path: str
    version: str
    policy: Nonfinite

    def __post_init__(self) -> None:
        loaded = self._load()
        self.shape, self.dtype, self.address = loaded.shape, loaded.dtype, loaded.address
        self.is_sparse = loaded.is_sparse
        self.nonfinite = self.policy

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

    def identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of the file; a file that is rewritten longer is another one."""
        text = f"mtx {self.path} {Location(self.path).version()}"
        return f"{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}:{start}:{stop}"

    def describe(self) -> dict[str, Any]:
        """Return what the manifest says of this source."""
        return super().describe() | {"format": "Matrix Market"}

    def _load(self) -> Matrix:
        return kept((os.getpid(), "mtx", self.path, self.version, self.policy), self._read)

    def _read(self) -> Matrix:
        import scipy.io

        if Location(self.path).version() != self.version:
            raise SourceChanged(
                f"{self.path}: the file was rewritten after it was opened; start again on a file at rest"
            )
        try:
            # Releases that know the choice warn about its default; either kind of result is welcome here.
            known = "spmatrix" in inspect.signature(scipy.io.mmread).parameters
            values = scipy.io.mmread(self.path, **({"spmatrix": False} if known else {}))
        except (ValueError, OverflowError, EOFError, OSError, IndexError) as error:
            raise SourceError(f"{self.path}: not a Matrix Market file, or it is damaged; write it again") from error
        if isinstance(values, np.ndarray):
            return ArrayMatrix(values, None, self.policy, self.path)
        return SparseMatrix(values, None, self.policy, self.path)


def open_market_matrix(location: Location, nonfinite: Nonfinite) -> MarketMatrix:
    """Open the file at `location`, which must be on a local disk."""
    if not location.is_local:
        raise SourceError(f"{location.address}: Matrix Market files are read from local disks only; copy it first")
    version = location.version()
    if version is None:
        raise location.not_found()
    return MarketMatrix(location.url, version, nonfinite)
