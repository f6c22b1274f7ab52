"""The pass that writes the prepared, selected columns, with a sample for the 2-D view; and one that compares them.

Workers import this module, so it imports no estimators and no report.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect._progress import Result
from sketchselect.errors import OutputFailed, SketchSelectError
from sketchselect.execution import Block, Source, reduce_blocks
from sketchselect.execution.engine import PassOptions
from sketchselect.execution.tasks import Reduction
from sketchselect.linalg.csr import densify, row_pieces, take_columns, take_rows
from sketchselect.linalg.hashing import derive_seed, smallest_keys, uniforms
from sketchselect.linalg.validation import Array, Floats, block_dtype, is_csr
from sketchselect.location import unwritable
from sketchselect.readers import Matrix, open_matrix, row_partitions
from sketchselect.readers.base import Partitions, even_partitions

SAMPLE_ROWS = 2000  # Points of the 2-D view
_HASH_PIECE = 1 << 20  # Rows that are hashed at a time


@dataclass(frozen=True)
class View:
    """A plane for the 2-D view of the rows: two directions of the sketch, and the origin."""

    mean: Floats  # shape (n_columns,): Mean of the rows
    axes: Floats  # shape (n_columns, 2): Two orthonormal directions

    def project(self, rows: Any) -> Floats:
        """Return the coordinates of some rows, dense or CSR, in the plane, shape (n_rows, 2)."""
        if is_csr(rows):
            parts = [self.project(densify(take_rows(rows, a, b))) for a, b in row_pieces(rows)]
            return np.concatenate([np.empty((0, 2)), *parts])
        points: Floats = (rows.astype(np.float64) - self.mean) @ self.axes
        return points


@dataclass(frozen=True)
class Sampled:
    """The sampled rows of some blocks: global indices and coordinates in the view."""

    rows: NDArray[np.int64]
    points: Floats


@dataclass(frozen=True)
class WriteColumns:
    """Leaf of the pass: write a block's chosen columns to their own chunks, and project its sampled rows."""

    path: str  # The Zarr array, made beforehand; its chunks begin where partitions begin, so no two tasks share one
    columns: tuple[int, ...]  # Chosen columns
    view: View | None  # For the sample; None takes none
    sample: NDArray[np.int64]  # Global indices of the sampled rows, ascending

    def __call__(self, block: Block) -> Sampled:
        """Write, and return the projected sample. Writing again writes the same."""
        import zarr

        array: Any = zarr.open_array(Path(self.path), mode="r+")
        if block.stop > block.start:
            values = _features(block, self.columns, array.dtype)
            try:
                array[block.start : block.stop] = values
            except OSError as error:
                raise OutputFailed(f"{Path(self.path).name}: {unwritable(error)}") from error
        if self.view is None:
            return Sampled(np.empty(0, np.int64), np.empty((0, 2)))
        rows = block.row_indices.astype(np.int64)
        sampled_rows = np.flatnonzero(np.isin(rows, self.sample))
        return Sampled(rows[sampled_rows], self.view.project(block.values[sampled_rows]))


@dataclass(frozen=True)
class CompareColumns:
    """Leaf of the pass that compares the source with the written features."""

    written: Matrix
    columns: tuple[int, ...]  # Chosen columns

    def __call__(self, block: Block) -> tuple[tuple[int, int], ...]:
        """Return the block's range of rows if any bit differs, else none."""
        expected = _features(block, self.columns, self.written.dtype)
        stored = self.written.read_rows(block.start, block.stop)
        return () if expected.tobytes() == stored.tobytes() else ((block.start, block.stop),)


def _features(block: Block, columns: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return the chosen columns of all rows of a block; dropped rows are NaN."""
    values: Array = with_dropped(block, dense_columns(block.values, columns).astype(dtype), np.nan)
    return values


def with_dropped(block: Block, values: Any, mark: float) -> Any:
    """Return one entry or row of values for every row of a block's partition, with a mark for those dropped."""
    if block.surviving is None:
        return values
    out = np.full((block.stop - block.start, *values.shape[1:]), mark, dtype=values.dtype)
    out[block.surviving - block.start] = values
    return out


def dense_columns(rows: Any, columns: tuple[int, ...]) -> Array:
    """Return the chosen columns of dense or CSR rows, dense."""
    if is_csr(rows):
        return densify(take_columns(rows, columns))
    out: Array = rows[:, list(columns)]
    return out


def join_samples(left: Sampled, right: Sampled) -> Sampled:
    """Return both samples, in row order."""
    return Sampled(np.concatenate([left.rows, right.rows]), np.concatenate([left.points, right.points]))


def sample_rows(n_rows: int, seed: int, size: int = SAMPLE_ROWS) -> NDArray[np.int64]:
    """Return the `size` row indices with the smallest hashes, sorted: a uniform sample that depends on `seed` alone."""
    if n_rows <= size:
        return np.arange(n_rows, dtype=np.int64)
    key = derive_seed(seed, "view sample")
    rows, draws = np.empty(0, np.int64), np.empty(0)
    for start in range(0, n_rows, _HASH_PIECE):
        piece = np.arange(start, min(start + _HASH_PIECE, n_rows), dtype=np.int64)
        rows = np.concatenate([rows, piece])
        draws = np.concatenate([draws, uniforms(key, piece.astype(np.uint64))])
        if rows.size > size:
            keep = smallest_keys(draws, rows, size)
            rows, draws = rows[keep], draws[keep]
    return np.sort(rows)


def feature_dtype(source: Source) -> np.dtype[Any]:
    """Return float32 where that holds every prepared value exactly, else float64."""
    dtype = block_dtype(source.matrix.dtype) if source.prepare else source.matrix.dtype
    if dtype.kind == "f":
        return np.dtype(np.float32 if dtype.itemsize <= 4 else np.float64)
    # The 24 bits of float32 hold whole numbers of 16 bits.
    exact = dtype.itemsize <= 2 and not source.prepare
    return np.dtype(np.float32 if exact else np.float64)


def write_features(
    source: Source, support: NDArray[np.int64], path: Path, view: View | None, seed: int, options: PassOptions
) -> Result[Sampled]:
    """Write ``prepared rows [:, support]`` as a Zarr array at `path`, one chunk per partition, and return the sample.

    Rows dropped for non-finite values are rows of NaN. `seed` decides which rows are sampled; without a view none are.
    Raises `SketchSelectError` if this process cannot see the files of the tasks.
    """
    array, result = feature_pass(source, support, path, view, seed, options)
    if array.nchunks_initialized < array.nchunks:
        raise SketchSelectError(
            f"{path.parent}: of {array.nchunks} chunks that the workers wrote {array.nchunks_initialized} are there; "
            "output.dir must be a folder that this process and every worker share"
        )
    return result


def feature_pass(
    source: Source, support: NDArray[np.int64], path: Path, view: View | None, seed: int, options: PassOptions
) -> tuple[Any, Result[Sampled]]:
    """Make the array of the features and fill it in one pass; return it, and the sample."""
    source, size = replace(source, takes_sparse=True), options.partition_bytes
    partitions = (
        even_partitions(source.matrix, size, len(support)) if source.is_sparse else _of_one_height(source.matrix, size)
    )
    height = partitions.edges[1] - partitions.edges[0]
    array = _create(path, source, support, height)
    sample = np.empty(0, np.int64) if view is None else sample_rows(source.n_rows, seed)
    reduction = Reduction(
        WriteColumns(str(path), tuple(map(int, support)), view, sample),
        join_samples,
        "write features",
        state_nbytes=24 * SAMPLE_ROWS,
        working_nbytes=3 * 8 * height * len(support),
    )
    return array, reduce_blocks(source, reduction, options, partitions=partitions)


def _of_one_height(matrix: Matrix, size: int | str | None) -> Partitions:
    """Cut dense rows into partitions of one height: tasks that shared a chunk would undo each other's rows.

    Partitions of row groups of several heights are cut anew, in the height of the largest.
    """
    partitions = row_partitions(matrix, size)
    heights = np.diff(partitions.edges)
    if (heights[:-1] == heights[0]).all() and heights[-1] <= heights[0]:
        return partitions
    n_rows, height = matrix.shape[0], int(heights.max())
    chunks = np.array(matrix.chunk_edges or partitions.edges)
    times = (chunks[1:] - 1) // height - chunks[:-1] // height + 1
    return Partitions((*range(0, n_rows, height), n_rows), float(np.diff(chunks) @ times) / n_rows)


def differing_rows(
    source: Source, support: NDArray[np.int64], path: Path, options: PassOptions
) -> list[tuple[int, int]]:
    """Return the ranges of rows in which some bit of the features at `path` differs from the source."""
    written = open_matrix(str(path), nonfinite="missing")
    source, edges = replace(source, takes_sparse=True), (*range(0, source.n_rows, written.chunk_rows), source.n_rows)
    reduction = Reduction(
        CompareColumns(written, tuple(map(int, support))),
        operator.add,
        "verify",
        state_nbytes=64 * len(edges),
        working_nbytes=3 * 8 * written.chunk_rows * len(support),
    )
    return list(reduce_blocks(source, reduction, options, partitions=Partitions(edges)).value)


def _create(path: Path, source: Source, support: NDArray[np.int64], chunk_rows: int) -> Any:
    import zarr
    from zarr.codecs import ZstdCodec

    names = source.feature_names
    attributes = {"columns": [int(j) for j in support], "prepare": list(source.prepare_labels)}
    if names is not None:
        attributes["feature_names"] = [names[j] for j in support]
    return zarr.create_array(
        path,
        shape=(source.n_rows, len(support)),
        chunks=(chunk_rows, len(support)),
        dtype=feature_dtype(source),
        compressors=ZstdCodec(level=1, checksum=True),
        fill_value=float("nan"),
        attributes=attributes,
        dimension_names=("row", "column"),
        config={"write_empty_chunks": True},
    )
