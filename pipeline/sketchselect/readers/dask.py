"""Dask arrays as matrices and vectors: a task computes the blocks it needs, with Dask's synchronous scheduler."""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from sketchselect._text import first_names
from sketchselect.errors import ChunkReadError, SourceError
from sketchselect.linalg.csr import as_csr, densify
from sketchselect.linalg.hashing import digest
from sketchselect.linalg.validation import Array
from sketchselect.readers import tables
from sketchselect.readers.arrays import ArrayVector, FrameIndex, frame_index, in_scipy, not_numeric, unread_index
from sketchselect.readers.base import Matrix, MissingPolicy, Nonfinite, Vector, require_matrix, warn_of_rounding

MOST_SEEN = 1000
"""Rows of a data frame of Dask that are computed to tell identifiers."""


def encoded_frame(frame: Any, encode: Collection[str]) -> tables.EncodedFrame:
    """Return a data frame of Dask with the columns of these kinds as numbers, which partitions compute."""
    columns, levels, dates = {}, {}, []
    for name, dtype in dict(frame.dtypes).items():
        kind = tables.kind_of(dtype, frame._meta[name])
        if kind in encode:
            columns[name] = frame[name].map_partitions(_numbers, kind, meta=(name, np.float64))
        if kind == "text" and kind in encode:
            levels[name] = LazyLevels(frame[name])
        if kind == "dates" and kind in encode:
            dates.append(name)
    return tables.EncodedFrame(frame.assign(**columns) if columns else frame, levels, dates)


def _numbers(column: Any, kind: str) -> Any:
    """Return a column of pandas as numbers."""
    name = column.name
    return tables.encoded_pandas(column.to_frame(), [kind]).frame[name].astype(np.float64)


@dataclass(frozen=True)
class LazyLevels:
    """The levels of a column of Dask, which is computed for them."""

    column: Any

    def names(self, codes: Sequence[float], rows: Sequence[int]) -> list[str]:
        """Return the levels of these codes."""
        by_code = tables.codes_of(self.column.drop_duplicates().compute().tolist())[1]
        return [by_code[code] for code in codes]


class LazyIndex(Mapping[str, ArrayVector]):
    """The index of a data frame of Dask by its title, computed when it is asked for; tasks need none, and get none."""

    def __init__(self, frame: Any) -> None:
        self._index, levels = frame.index, frame._meta.index
        # Dask numbers the rows of each partition by itself.
        is_numbered = levels.nlevels == 1 and getattr(levels.dtype, "kind", "O") in "iu"
        self.has_untitled_names = not is_numbered and all(name is None for name in levels.names)

    @cached_property
    def _computed(self) -> Any:
        return self._index.compute()

    def row_names(self) -> FrameIndex | None:
        """Return the names of the rows, as of a data frame of pandas, if the index has a title."""
        return None if self._index.name is None else frame_index(SimpleNamespace(index=self._computed))

    @cached_property
    def _columns(self) -> dict[str, ArrayVector]:
        if self._index.name is None:
            return {}
        index = self._computed
        if index.inferred_type == "string":
            return {str(index.name): ArrayVector(np.asarray(index, dtype=str), "index")}
        if index.inferred_type == "integer":
            return {str(index.name): ArrayVector(np.asarray(index), "index")}
        return unread_index(SimpleNamespace(index=index))

    def __getitem__(self, title: str) -> ArrayVector:
        if title != str(self._index.name):
            raise KeyError(title)
        return self._columns[title]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return dict, ()


def lazy_identifiers(frame: Any) -> list[str]:
    """Return the columns that are as identifiers are in the first partition, of those that have the name of one.

    Nothing is computed where no column has such a name.
    """
    types = dict(frame.dtypes)
    names = [str(name) for name in types if isinstance(name, str) and tables.may_be_identifier(name)]
    names = [name for name in names if getattr(types[name], "kind", "O") in "fiu"]
    if not names:
        return []
    # `head` of Dask warns of a partition with fewer rows.
    rows = frame[names].partitions[0].map_partitions(lambda part: part.head(MOST_SEEN), meta=frame[names]._meta)
    return tables.different_columns(rows.compute().to_numpy(), names)


def frame_rows(frame: Any) -> Any:
    """Return the Dask array of a data frame or column of Dask; counts the rows of every partition, by one pass.

    Raises `SourceError` if a column is not numeric, `ChunkReadError` if a partition cannot be computed.
    """
    types = dict(frame.dtypes) if frame.ndim == 2 else {frame.name: frame.dtype}
    refused = [(name, dtype) for name, dtype in types.items() if getattr(dtype, "kind", "O") not in "fiub"]
    if refused:
        raise not_numeric(*refused[0], others=refused[1:])
    is_plain = all(isinstance(dtype, np.dtype) for dtype in types.values())
    if frame.ndim == 2 and (len(set(types.values())) > 1 or not is_plain):
        frame = frame.map_partitions(_with_warning, meta=frame._meta)
    if frame.ndim == 2:
        in_order = partial(_in_order, titles=frame._meta.columns)
        frame = frame.map_partitions(in_order, meta=frame._meta, enforce_metadata=False)
    # Types of pandas with missing values become NaN as those of a data frame in memory do.
    plain = frame if is_plain else frame.astype(np.float64)
    try:
        return plain.to_dask_array(lengths=True)
    except MemoryError:
        raise
    except ChunkReadError as error:
        raise ChunkReadError(f"Dask frame: {error}") from error
    except Exception as error:
        raise _not_computed("Dask frame: its partitions", error) from error


def _with_warning(part: Any) -> Any:
    """Return a partition whose whole numbers become float64 beside other types, with a warning where it is rounded."""
    for place, dtype in enumerate(part.dtypes):
        if dtype.kind in "iu" and len(part):
            column = part.iloc[:, place]
            warn_of_rounding((column.min(), column.max()), "data frame")
    return part


def _in_order(part: Any, titles: Any) -> Any:
    """Return a partition; raise `ChunkReadError` if its columns are not those of the frame, or in another order."""
    if len(part) and not part.columns.equals(titles):
        raise ChunkReadError(
            f"a partition has other columns than the frame, or in another order: {first_names(part.columns, 5)}, and "
            f"should have {first_names(titles, 5)}; give every partition the columns of the frame, in its order"
        )
    return part


def as_graph(array: Any) -> Any:
    """Return a Dask array that is a graph, as the code here reads them, of one that is an expression."""
    if not hasattr(array, "expr"):
        return array
    lowered = array.optimize()
    from dask.array.core import Array as GraphArray

    return GraphArray(dict(lowered.__dask_graph__()), lowered.name, lowered.chunks, dtype=array.dtype, meta=array._meta)


def require_known_chunks(array: Any, name: str) -> None:
    """Raise `SourceError` if the sizes of some chunks are not known."""
    if any(math.isnan(size) for size in itertools.chain(*array.chunks)):
        raise SourceError(f"{name}: the sizes of its chunks are unknown; call x.compute_chunk_sizes() first")


class DaskMatrix(Matrix):
    """A two-dimensional Dask array with known chunks. Made by `open_matrix`.

    Blocks of SciPy sparse matrices stay sparse. How many entries their rows have is not known before they are computed,
    so `entry_offsets` is None.

    `array` of shape (n_rows, n_features): Any number of column chunks.
    `source_id`: The user's name for the content; without it the rows have no identity and nothing is checkpointed.
    `nonfinite`, "error", "drop_rows", "missing": Policy for NaN and infinity.
    """

    def __init__(self, array: Any, source_id: str | None = None, nonfinite: Nonfinite = "error") -> None:
        array = as_graph(array)
        if hasattr(array._meta, "to_scipy_sparse"):
            # Blocks of the package sparse
            in_scipy(array._meta, "Dask array")
            array = array.map_blocks(_in_scipy, dtype=array.dtype, meta=csr_array((0, 0), dtype=array.dtype))
        require_known_chunks(array, "Dask array")
        require_matrix(array.shape, np.dtype(array.dtype), "Dask array")
        heights = [int(rows) for rows in array.chunks[0] if rows]
        self.array = array
        self.source_id = source_id
        self.shape = (int(array.shape[0]), int(array.shape[1]))
        self.dtype = np.dtype(array.dtype)
        self.address = "Dask array" if source_id is None else f"Dask array {source_id!r:.80}"
        self.nonfinite = nonfinite
        self.is_sparse = issparse(array._meta)
        self.chunk_rows = max(heights)
        if len(set(heights[:-1])) > 1 or heights[-1] > heights[0]:
            self.chunk_edges = (0, *itertools.accumulate(heights))

    def __dask_tokenize__(self) -> tuple[object, ...]:
        """Return what tells this matrix from others; Dask would compare the whole graph."""
        return type(self).__name__, self.array.name, self.source_id, self.nonfinite, self.axes

    def _rows(self, start: int, stop: int) -> Any:
        rows = _checked_rows(self.array, (start, stop))
        block = _compute(rows, f"{self.address}: {self.axes[0]}s {start} to {stop - 1}")
        return as_csr(block, self.address, start) if self.is_sparse else block

    def dask_rows(self) -> Any | None:
        """Return the array; None for a part of one."""
        return self.array if self.array.shape == self.shape else None

    def _columns(self, start: int, stop: int) -> Array:
        columns = self.transposed().read_rows(start, stop).T
        return densify(columns.tocsr()) if self.is_sparse else columns

    def transposed(self) -> Matrix:
        """Return the matrix of the transposed graph."""
        out = DaskMatrix(self.array.T, self.source_id, self.nonfinite)
        out.axes = self.axes[::-1]
        return out

    def identity(self, start: int, stop: int) -> str | None:
        """Return a digest of `source_id` and the range, or None without one."""
        if self.source_id is None:
            return None
        by = "" if self.axes[0] == "row" else " by column"
        return digest(f"dask{by} {self.source_id} {self.shape[1]} {self.dtype.str} {start} {stop}")

    def describe(self) -> dict[str, Any]:
        """Return the description of this source in the manifest."""
        return super().describe() | {"format": "dask", "source_id": self.source_id}


class DaskVector(Vector):
    """Entries of a Dask array with known chunks, computed in the task that needs them."""

    def __init__(self, array: Any) -> None:
        self.array = array = as_graph(array)
        self.shape = tuple(array.shape)
        self.dtype = np.dtype(array.dtype)
        self.address = "Dask array"

    def __dask_tokenize__(self) -> tuple[object, ...]:
        """Return what tells this vector from others."""
        return type(self).__name__, self.array.name

    def _entries(self, start: int, stop: int) -> Any:
        entries = _checked_rows(self.array, (start, stop))
        return _compute(entries, f"{self.address}: entries {start} to {stop - 1}")

    def identity(self) -> str | None:
        """Return None: a graph does not say what it computes."""
        return None

    def dask_rows(self) -> Any | None:
        """Return the array; None for a part of one."""
        return self.array if self.array.shape == self.shape else None


def _in_scipy(block: Any) -> Any:
    return csr_array(in_scipy(block, "Dask array"))


def zarr_as_dask(array: Any, missing_chunks: MissingPolicy) -> Any:
    """Return an open `zarr.Array` as a Dask array of its chunks, or its shards, with packed values decoded."""
    import dask.array as da

    from sketchselect.readers.zarr.array import packing_of

    packing = packing_of(array.metadata.to_dict(), array.dtype, "Zarr array")

    if missing_chunks == "error":
        with contextlib.suppress(TypeError, ValueError):  # zarr before 3.2 has no such setting
            array = array.with_config({"read_missing_chunks": False})
    stored = da.from_array(array, chunks=array.shards or array.chunks)
    return stored if packing is None else stored.map_blocks(packing.decode, dtype=packing.dtype)


def cut_arrays(arrays: Sequence[Any], edges: Iterable[int]) -> tuple[dict[Any, Any], list[list[Any]]]:
    """Return the graph of Dask arrays cut along their rows, optimised together, and for each the keys of its pieces."""
    import dask

    cuts = tuple(edges)
    sizes = tuple(int(n) for n in np.diff(cuts))
    pieces = [
        _checked_rows(array, cuts).rechunk({0: sizes, **dict.fromkeys(range(1, len(array.shape)), -1)})
        for array in arrays
    ]
    graph: dict[Any, Any] = {}
    keys = []
    # Fused, each array would have a copy of the tasks that they share.
    with dask.config.set({"optimization.fuse.active": False} if len(pieces) > 1 else {}):
        pieces = dask.optimize(*pieces)
    for piece in pieces:
        graph.update(piece.__dask_graph__())
        keys.append([row[0] if isinstance(row, list) else row for row in piece.__dask_keys__()])
    return graph, keys


def _checked_rows(array: Any, cuts: tuple[int, ...]) -> Any:
    """Return the rows of an array from the first to the last cut.

    A chunk that is cut must have the shape that the array states, since a slice would drop surplus rows silently. A
    whole chunk of another shape is noticed in its partition.
    """
    edges = (0, *itertools.accumulate(array.chunks[0]))
    if set(edges).issuperset(cuts):
        return array[cuts[0] : cuts[-1]]
    import dask.array as da
    from dask.layers import ArraySliceDep

    first, last = edges[bisect_right(edges, cuts[0]) - 1], edges[bisect_left(edges, cuts[-1])]
    chunks = array[first:last]  # not all those of the array: each takes time
    axes = tuple(range(array.ndim))
    places = ArraySliceDep(chunks.chunks)
    checked = da.blockwise(
        _of_shape,
        axes,
        chunks,
        axes,
        places,
        axes,
        first=first,
        dtype=array.dtype,
        meta=array._meta,
        align_arrays=False,
    )
    return checked[cuts[0] - first : cuts[-1] - first]


def _of_shape(chunk: Any, place: tuple[slice, ...], first: int) -> Any:
    """Return a chunk; raise `ChunkReadError` unless it has the shape of its place behind row `first` of the array."""
    stated = tuple(part.stop - part.start for part in place)
    if chunk.shape != stated:
        shapes = (" x ".join(map(str, shape)) for shape in (chunk.shape, stated))
        raise ChunkReadError(
            "the chunk from row {} came with shape {}, and should have {}; give the array the chunks that it "
            "has".format(first + place[0].start, *shapes)
        )
    return chunk


def futures_client(array: Any) -> Any | None:
    """Return the client of the futures in the graph of a Dask array; None without futures."""
    if array is None or "distributed" not in sys.modules:
        return None
    from distributed import futures_of

    return next((future.client for future in futures_of(array)), None)


def _compute(rows: Any, place: str) -> Any:
    """Return a part of an array, computed where it is persisted, else in this thread."""
    try:
        return rows.compute(scheduler=futures_client(rows) or "synchronous")
    except MemoryError:
        raise
    except ChunkReadError as error:
        raise ChunkReadError(f"{place}: {error}") from error
    except Exception as error:
        raise _not_computed(place, error) from error


def _not_computed(place: str, error: Exception) -> ChunkReadError:
    return ChunkReadError(f"{place} could not be computed ({type(error).__name__}); see the error of your graph above")


def as_dask(values: Any, rows: Any) -> Any:
    """Return values that belong to the rows of a Dask array as a Dask array that is cut as those are."""
    import dask.array as da

    return da.from_array(values, chunks=(rows.chunks[0],))


def as_dask_rows(frame: Any, values: Any, names: Sequence[Any] | None, sizes: Sequence[int]) -> Any:
    """Return values of the rows of a data frame of Dask as a Dask Series, or data frame, in the frame's partitions.

    `values`, shape (n_rows,) or (n_rows, n): NumPy, by the partitions' rows `sizes`. Without `names` two-dimensional
    ones come back as they are.
    """
    if len(values.shape) == 2 and names is None:
        return values
    from dask import delayed

    edges = (0, *itertools.accumulate(int(size) for size in sizes))
    label = tuple(names) if len(values.shape) == 2 and names is not None else (names or (None,))[0]
    meta = _partition_rows(frame._meta, values[:0], (0, 0), label)
    # One shared value, by a function of the frame's own partitions: so Dask knows that both are aligned, even where
    # divisions are unknown.
    return frame.map_partitions(_partition_rows, delayed(values, pure=False), edges, label, meta=meta)


def _partition_rows(
    frame: Any, values: Array, edges: tuple[int, ...], names: Any, partition_info: dict[str, Any] | None = None
) -> Any:
    """Return the values of the rows of a partition in pandas, with its index."""
    import pandas as pd

    number = 0 if partition_info is None else partition_info["number"]
    piece = values[edges[number] : edges[number + 1]]
    if piece.ndim == 2:
        return pd.DataFrame(piece, index=frame.index, columns=list(names))
    return pd.Series(piece, index=frame.index, name=names)
