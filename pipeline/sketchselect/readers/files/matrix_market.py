"""Matrix Market files (``.mtx``, ``.mtx.gz``): loaded once per process that reads them, sparse ones as CSR."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np

from sketchselect.errors import SourceError
from sketchselect.linalg.hashing import digest
from sketchselect.location import Location
from sketchselect.readers.arrays.numpy_scipy import ArrayMatrix, SparseMatrix
from sketchselect.readers.base import Matrix
from sketchselect.readers.checks import Nonfinite
from sketchselect.readers.files.loaded import LoadedMatrix


@dataclass(eq=False, repr=False)
class MarketMatrix(LoadedMatrix):
    """A matrix in a Matrix Market file. Made by `open_matrix`; pickles as an address."""

    path: str
    version: str
    nonfinite: Nonfinite

    def identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of the file; a file that is rewritten longer is another one."""
        return f"{digest(f'mtx {self.path} {Location(self.path).version()}')}:{start}:{stop}"

    def describe(self) -> dict[str, Any]:
        """Return the description of this source in the manifest."""
        return super().describe() | {"format": "Matrix Market"}

    def _key(self) -> tuple[Any, ...]:
        return self.path, self.version, self.nonfinite

    def _read(self) -> Matrix:
        import scipy.io

        Location(self.path).require_version(self.version)
        try:
            # Releases that have the parameter warn about its default; either kind of result will do.
            has_parameter = "spmatrix" in inspect.signature(scipy.io.mmread).parameters
            values = scipy.io.mmread(self.path, **({"spmatrix": False} if has_parameter else {}))
        except (ValueError, OverflowError, EOFError, OSError, IndexError) as error:
            reason = " ".join(str(error).split())[:120] or type(error).__name__
            raise SourceError(
                f"{self.path}: not a Matrix Market file, or damaged ({reason}); write it again"
            ) from error
        if isinstance(values, np.ndarray):
            return ArrayMatrix(values, None, self.nonfinite, self.path)
        return SparseMatrix(values, None, self.nonfinite, self.path)


def open_market_matrix(location: Location, key: str | None, nonfinite: Nonfinite) -> MarketMatrix:
    """Open the local file at `location`; there is no `key`, it holds one matrix."""
    return MarketMatrix(location.url, location.existing_version(), nonfinite)
