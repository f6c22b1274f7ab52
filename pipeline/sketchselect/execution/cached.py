"""Prepared blocks that stay in memory between the passes of an algorithm that iterates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from sketchselect.execution.source import Block, Source, aligned
from sketchselect.linalg.arrays import canonical
from sketchselect.linalg.sparse.csr import is_csr
from sketchselect.readers.base import MatrixView


@dataclass(frozen=True)
class CachedBlock(Block):
    """A block in memory, and what a computation remembers of its rows from one pass to the next.

    The memory is whatever a leaf puts there. It may be empty again in the next pass (it is never sent, nor written), so
    results must not depend on it; only one task at a time works on a block.
    """

    memory: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, block: Block) -> CachedBlock:
        """Return the block with an empty memory."""
        return cls(**vars(block))

    def __sizeof__(self) -> int:
        # The size by which Dask decides where to run the tasks that need the block.
        values = self.values
        arrays = [values.data, values.indices, values.indptr] if is_csr(values) else [values]
        arrays += [self.target, self.weight, self.surviving]
        return object.__sizeof__(self) + sum(int(getattr(array, "nbytes", 0)) for array in arrays)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "memory": {}}

    def aligned(self) -> CachedBlock:
        """Return the block with aligned arrays; the memory stays."""
        weight = None if self.weight is None else canonical(self.weight)
        return replace(self, values=aligned(self.values), weight=weight)


class CachedMatrix(MatrixView):
    """The matrix of a cached source: planned by like the one inside, and never read again."""

    in_memory = True
    is_remote = False

    def read_rows(self, start: int, stop: int) -> Any:
        """Refuse: tasks are handed the blocks."""
        raise NotImplementedError("cached blocks are not read from their matrix")

    def identity(self, start: int, stop: int) -> str | None:
        """Return None: what is cached is not saved."""
        return None

    def dask_rows(self) -> Any | None:
        """Return None: rows from a graph are cached too."""
        return None


@dataclass(frozen=True)
class CachedSource(Source):
    """A source whose blocks have been read, screened and prepared.

    They are in this process, or futures of blocks on the workers of a Dask cluster; by their partition, (start, stop).
    """

    blocks: Mapping[tuple[int, int], Any] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Source, blocks: Mapping[tuple[int, int], Any]) -> Self:
        """Return the source with the blocks of its partitions."""
        return cls(**{**vars(source), "matrix": CachedMatrix(source.matrix), "target": None}, blocks=blocks)


def cache_block(block: Block) -> dict[tuple[int, int], CachedBlock]:
    """Leaf of the pass that reads what is cached in this process."""
    return {(block.start, block.stop): CachedBlock.of(block)}
