"""Vectors in stored arrays, and the columns of data frames that AnnData stores as two arrays of a group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sketchselect.errors import SourceError
from sketchselect.linalg.arrays import Array, canonical
from sketchselect.readers.cache import PARTS
from sketchselect.readers.checks import as_entries, check_range
from sketchselect.readers.stored import StoredArray
from sketchselect.readers.vector import Vector

WHOLE_NBYTES = 64 << 20
"""Vectors up to this size are read once per process, whatever their chunks."""

_NULLABLE = {"nullable-string-array", "nullable-integer", "nullable-boolean"}
COLUMNS = {"categorical": ("codes", "categories")} | dict.fromkeys(_NULLABLE, ("values", "mask"))
"""How AnnData encodes the columns of a data frame that are groups, and their two arrays."""


@dataclass(eq=False)
class StoredVector(Vector):
    """Entries in a stored array; a small one is read whole, once per process."""

    source: StoredArray

    def __post_init__(self) -> None:
        self.shape, self.address, self.dtype = self.source.shape, self.source.address, self.source.dtype

    def read(self, start: int, stop: int) -> Array:
        """Return entries `start` to `stop`."""
        check_range(start, stop, self.n_rows, self.address)
        if start == stop or int(np.prod(self.shape)) * max(8, self.dtype.itemsize) > WHOLE_NBYTES:
            return as_entries(self.source.read(start, stop), self.address)
        content = ("array", self.address, self.identity())
        return PARTS.get(content, lambda: as_entries(self.source.read(0, self.n_rows), self.address))[start:stop]

    def identity(self) -> str | None:
        """Return a fingerprint from the metadata and the chunks' versions."""
        return self.source.identity(0, self.n_rows)


@dataclass(eq=False)
class PairVector(Vector):
    """Base of entries in two arrays of a group."""

    # first, second: The arrays
    first: StoredVector
    second: StoredVector
    group: str  # Address of the group

    def __post_init__(self) -> None:
        self.shape, self.address = self.first.shape, self.group
        self.dtype = self.read(0, 0).dtype

    def identity(self) -> str | None:
        """Return a fingerprint of both arrays."""
        identities = self.first.identity(), self.second.identity()
        return None if None in identities else "/".join(map(str, identities))


class CategoricalVector(PairVector):
    """Entries that AnnData stores as codes of categories; an entry without a category is "nan"."""

    def read(self, start: int, stop: int) -> Array:
        """Return entries `start` to `stop`."""
        codes = self.first.read(start, stop)
        names = self.second.read(0, self.second.n_rows)
        if codes.size and not (int(codes.min()) >= -1 and int(codes.max()) < names.shape[0]):
            raise SourceError(f"{self.address}: a code is outside the {names.shape[0]} categories; write it again")
        if names.dtype.kind == "U":
            return canonical(np.append(names, "nan")[codes])
        return canonical(np.append(names.astype(np.float64), np.nan)[codes])


class NullableVector(PairVector):
    """Entries that AnnData stores beside a mask; masked ones are "nan", or NaN in numbers, which are then floats."""

    def read(self, start: int, stop: int) -> Array:
        """Return entries `start` to `stop`."""
        values, mask = self.first.read(start, stop), self.second.read(start, stop)
        if values.dtype.kind == "U":
            return canonical(np.where(mask, "nan", values)) if mask.any() else values
        # All runs of entries have one type, whichever of them are masked.
        return canonical(np.where(mask, np.nan, values)) if self.second.read(0, self.n_rows).any() else values


def column_of(encoding: str, first: StoredVector, second: StoredVector, group: str) -> Vector:
    """Return the vector of a group whose encoding is one of `COLUMNS`."""
    kind = CategoricalVector if encoding == "categorical" else NullableVector
    return kind(first, second, group)
