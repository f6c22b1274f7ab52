"""Datasets of an HDF5 file as addresses: opened for each read, with errors that name the dataset."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sketchselect.errors import ChunkReadError, SourceError
from sketchselect.linalg.arrays import Array
from sketchselect.linalg.hashing import digest
from sketchselect.location import Location


@contextlib.contextmanager
def opened(location: Location) -> Iterator[Any]:
    """Open the file at `location` for reading.

    Raises `SourceError` if h5py is not installed, or the file is no HDF5 file, damaged, or locked by a program that
    writes to it.
    """
    try:
        import h5py
    except ImportError as error:
        raise SourceError(
            f'{location.address}: reading HDF5 needs h5py; install it with: pip install "sketchselect[anndata]"'
        ) from error
    try:
        file = h5py.File(location.url, "r")
    except BlockingIOError as error:
        raise SourceError(f"{location.address}: another program has it open for writing; close it there") from error
    except OSError as error:
        raise SourceError(
            f"{location.address}: not an HDF5 file, or it is cut off or damaged; write it again"
        ) from error
    with file:
        yield file


@dataclass(frozen=True)
class Hdf5Array:
    """A dataset, as it was when it was opened. Small and picklable."""

    location: Location  # The file
    version: str  # Size and time of the file
    path: str  # The dataset in it
    shape: tuple[int, ...]  # Its shape
    dtype: np.dtype[Any]  # Type of the values; that of text where they are text
    chunks: tuple[int, ...] | None  # Shape of its chunks; None where it is contiguous

    @classmethod
    def of(cls, dataset: Any, location: Location, version: str) -> Hdf5Array:
        """Return the address of an open dataset.

        Raises `SourceError` if its values are in other files.
        """
        import h5py

        path = dataset.name.strip("/")
        if dataset.external or dataset.is_virtual:
            raise SourceError(
                f"{location.address}: the values of {path!r:.80} are in other files, which are not read; write them "
                "into this one"
            )
        text = h5py.check_string_dtype(dataset.dtype) is not None
        return cls(location, version, path, dataset.shape, np.dtype("U") if text else dataset.dtype, dataset.chunks)

    @property
    def address(self) -> str:
        """The file and the dataset in it, for messages."""
        return f"{self.location.address}: {self.path}"

    def read(self, start: int, stop: int, axis: int = 0) -> Array:
        """Return rows (`axis` 0) or columns (1) `start` to `stop`.

        Raises `SourceChanged` if the file was rewritten since it was opened, or `ChunkReadError` if the values cannot
        be read or decoded.
        """
        self.location.require_version(self.version)
        with opened(self.location) as file:
            try:
                dataset = file[self.path]
                if self.dtype.kind == "U":
                    dataset = dataset.asstr()
                out: Array = dataset[start:stop] if axis == 0 else dataset[:, start:stop]
            except MemoryError:
                raise
            except Exception as error:
                raise ChunkReadError(
                    f"{self.address}: {('rows', 'columns')[axis]} {start} to {stop - 1} cannot be read "
                    f"({type(error).__name__}: the file is cut off or damaged, or a filter is not installed); restore "
                    "it or write it again"
                ) from error
        return out

    def identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of the file and the range; a file that is rewritten longer is another one."""
        return f"{digest(f'hdf5 {self.address} {self.location.version()}')}:{start}:{stop}"
