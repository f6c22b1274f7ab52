"""Blocks that stay in memory between the passes of an algorithm that iterates: in this process, or on the workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from scipy.sparse import csr_array

from sketchselect.execution.source import Block, Source
from sketchselect.linalg.arrays import canonical
from sketchselect.linalg.sparse.csr import is_csr
from sketchselect.readers.base import Matrix


@dataclass(frozen=True)
class HeldBlock(Block):
    """A block that stays in memory, and what a computation remembers of its rows from one pass to the next.

    Parameters
    ----------
    memory : dict
        Whatever a leaf puts there. It may be empty again in the next pass (it is never sent, nor written), so results
        must not depend on it; only one task at a time works on a block.
    """

    memory: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, block: Block) -> HeldBlock:
        """Return the block with an empty memory."""
        return cls(block.values, block.target, block.weight, block.start, block.stop, block.kept)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        arrays = [self.target, self.weight, self.kept]
        values = self.values
        arrays += [values.data, values.indices, values.indptr] if is_csr(values) else [values]
        return sum(int(getattr(a, "nbytes", 0)) for a in arrays)

    def __sizeof__(self) -> int:
        # What a scheduler goes by when it decides where to run the tasks that need the block.
        return object.__sizeof__(self) + self.nbytes

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "memory": {}}

    def canonical(self) -> HeldBlock:
        """Return the block with aligned arrays, which those that come out of a message are not always; memory kept."""
        values = self.values
        if is_csr(values):
            parts = (values.data, values.indices, values.indptr)
            aligned = tuple(map(canonical, parts))
            if all(a is b for a, b in zip(aligned, parts, strict=True)):
                return self
            values = csr_array(aligned, shape=values.shape)
            values.has_canonical_format = True
        else:
            values = canonical(values)
        weight = None if self.weight is None else canonical(self.weight)
        if values is self.values and weight is self.weight:
            return self
        return replace(self, values=values, weight=weight)


class HeldMatrix(Matrix):
    """Stands in for a matrix whose prepared blocks are held: same shape and chunks, nothing to read."""

    in_memory = True

    def __init__(self, matrix: Matrix) -> None:
        for name in (
            "shape",
            "dtype",
            "is_sparse",
            "entry_offsets",
            "feature_names",
            "address",
            "nonfinite",
            "chunk_rows",
            "chunk_edges",
            "axes",
        ):
            setattr(self, name, getattr(matrix, name))

    def read_rows(self, start: int, stop: int) -> Any:
        """Refuse: blocks come from the source that holds them."""
        raise NotImplementedError("held blocks are read through their source")

    def identity(self, start: int, stop: int) -> str | None:
        """Return None: what is held is not checkpointed."""
        return None

    def part(self, start: int, stop: int) -> Matrix:
        """Return itself: it holds no rows."""
        return self


@dataclass(frozen=True)
class HeldSource(Source):
    """A source whose blocks have been read, screened and prepared.

    Parameters
    ----------
    blocks : mapping of (start, stop) to HeldBlock
        Those that are in this process.
    """

    blocks: Mapping[tuple[int, int], HeldBlock] = field(default_factory=dict)

    def block(self, start: int, stop: int) -> Block:
        """Return the block of a partition."""
        return self.blocks[start, stop]


@dataclass(frozen=True)
class WorkerSource(Source):
    """A source whose blocks have been read, screened and prepared, and are on the workers of a Dask cluster.

    Parameters
    ----------
    futures : mapping of (start, stop) to Future
        One per partition; whoever holds the source decides when they are let go of.
    """

    futures: Mapping[tuple[int, int], Any] = field(default_factory=dict)

    def described(self) -> HeldSource:
        """Return what a task knows of the source: all but the blocks, of which it is handed its own."""
        return HeldSource(
            HeldMatrix(self.matrix), None, None, self.prepare, self.columns, takes_sparse=self.takes_sparse
        )

    def blocks_of(self, spans: Sequence[tuple[int, int]]) -> list[Any]:
        """Return the futures of some partitions."""
        return [self.futures[span] for span in spans]


def hold_block(block: Block) -> dict[tuple[int, int], HeldBlock]:
    """Leaf of the pass that loads what is to be held."""
    return {(block.start, block.stop): HeldBlock.of(block)}


def join_held(
    left: Mapping[tuple[int, int], HeldBlock], right: Mapping[tuple[int, int], HeldBlock]
) -> dict[tuple[int, int], HeldBlock]:
    """Merge of the pass that loads what is to be held."""
    return {**left, **right}


def hold_source(source: Source, blocks: Mapping[tuple[int, int], HeldBlock]) -> HeldSource:
    """Return the source with its blocks in this process."""
    return HeldSource(
        HeldMatrix(source.matrix),
        None,
        source.weight,
        source.prepare,
        source.columns,
        takes_sparse=source.takes_sparse,
        blocks=blocks,
    )
