"""The nearest centre of every row: in memory, as a Dask array, or written to a Zarr array by the tasks."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect.cluster.kmeans.passes import Passes, assign_block
from sketchselect.execution.engine import PassOptions, reduce_blocks, source_partitions
from sketchselect.execution.source import Block, Source
from sketchselect.execution.summarize import summary_reduction
from sketchselect.execution.tasks import Reduction
from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.csr import densify, is_csr, row_pieces, take_rows
from sketchselect.linalg.kmeans.distances import distances_to
from sketchselect.location import Location
from sketchselect.readers.writing import create_array, put_in_place
from sketchselect.summaries import CentroidSums


@dataclass(frozen=True)
class RowLabels:
    """Labels of consecutive rows, and the sums that go with them."""

    sums: CentroidSums
    labels: NDArray[np.int32]


@dataclass(frozen=True)
class LabelBlock:
    """Leaf of the labelling pass."""

    description: CentroidSums

    def __call__(self, block: Block) -> RowLabels:
        """Return the labels of one block's rows, -1 for those dropped, and their sums."""
        nearest, sums = assign_block(self.description, block)
        return RowLabels(sums, with_dropped_rows(nearest, block))


def with_dropped_rows(labels: NDArray[np.int32], block: Block) -> NDArray[np.int32]:
    """Return a copy of the labels of a block's rows, with -1 for each row that was dropped."""
    out = np.full(block.stop - block.start, -1, dtype=np.int32)
    out[slice(None) if block.surviving is None else block.surviving - block.start] = labels
    return out


def merge_labels(left: RowLabels, right: RowLabels) -> RowLabels:
    """Return the labels of both, one behind the other, and their sums."""
    return RowLabels(left.sums.merge(right.sums), np.concatenate([left.labels, right.labels]))


def label_rows(passes: Passes, centers: Floats) -> RowLabels:
    """Return every row's nearest centre and the sums of that assignment; one pass."""
    return passes.reduce(label_reduction(passes.source, CentroidSums(centers=centers)))


def label_reduction(source: Source, description: CentroidSums) -> Reduction[RowLabels]:
    """Return the reduction of a source to every row's nearest centre and the sums of that assignment."""
    return summary_reduction(source, description, "k-means: labels", LabelBlock(description), merge_labels)


@dataclass(frozen=True)
class WriteBlock:
    """Leaf that writes labels to a Zarr array whose chunks begin where partitions begin; no two tasks share one."""

    labels: LabelBlock
    location: Location

    def __call__(self, block: Block) -> int:
        """Write one block's labels and return how many. Writing again writes the same."""
        import zarr

        from sketchselect.readers.zarr.store import make_store

        labels = self.labels(block).labels
        array: Any = zarr.open_array(make_store(self.location, read_only=False), mode="r+")
        if labels.size:
            array[block.start : block.stop] = labels
        return int(labels.size)


def write_labels(source: Source, centers: Floats, out: Location, options: PassOptions) -> None:
    """Write every row's nearest centre (-1: dropped) as a Zarr array of int32.

    The array appears under its name only when it is whole; what was there is replaced only if we had written it.
    """
    description = CentroidSums(centers=centers)
    partitions = source_partitions(source, options.partition_bytes)
    reduction: Reduction[Any] = label_reduction(source, description)
    height = partitions.edges[1]
    regular = all(edge % height == 0 for edge in partitions.edges[:-1])
    with put_in_place(out) as temporary:
        array = create_array(temporary, (source.n_rows,), (height,), np.int32)
        if regular:
            reduction = replace(reduction, leaf=WriteBlock(LabelBlock(description), temporary), merge=operator.add)
        reduced = reduce_blocks(source, reduction, options, partitions=partitions)
        if not regular:
            array[:] = reduced.value.labels


def dense_distances(rows: Any, centers: Floats) -> Floats:
    """Return the Euclidean distances of rows, dense or CSR, to every centre."""
    if not is_csr(rows):
        return np.sqrt(distances_to(rows, centers))
    pieces = [distances_to(densify(take_rows(rows, a, b)), centers) for a, b in row_pieces(rows)]
    return np.sqrt(np.concatenate(pieces)) if pieces else np.empty((0, centers.shape[0]))


@dataclass(frozen=True)
class DistanceBlock:
    """Leaf of `transform`: distances to every centre."""

    centers: Floats

    def __call__(self, block: Block) -> Floats:
        """Return the distances of one block."""
        return dense_distances(block.values, self.centers)


def lazy_labels(X: Any, centers: Floats) -> Any:
    """Return the labels of a Dask array as one that is computed when it is asked for, block by block."""
    rows = X.rechunk({1: -1})
    return rows.map_blocks(_label_piece, centers, dtype=np.int32, drop_axis=1, meta=np.empty(0, np.int32))


def lazy_distances(X: Any, centers: Floats) -> Any:
    """Return the distances of the rows of a Dask array to every centre, computed when they are asked for."""
    rows = X.rechunk({1: -1})
    widths = (rows.chunks[0], (centers.shape[0],))
    return rows.map_blocks(_distance_piece, centers, dtype=np.float64, chunks=widths, meta=np.empty((0, 0)))


def _label_piece(rows: Any, centers: Floats) -> NDArray[np.int32]:
    return CentroidSums(centers=centers).label_block(rows)[0]


def _distance_piece(rows: Any, centers: Floats) -> Floats:
    from sketchselect.linalg.arrays import as_block, require_finite

    block = as_block(rows)
    require_finite(block)
    return dense_distances(block, centers)
