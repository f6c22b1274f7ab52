"""Getting what a task works on to a worker: addresses where there are any, otherwise just the rows it needs."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace
from typing import Any

import numpy as np

from sketchselect.execution.cached import HeldBlock, WorkerSource, hold_source
from sketchselect.execution.graph.tasks import Part, Recipe, SaveOrder, run_leaf, run_merge
from sketchselect.execution.source import Source
from sketchselect.linalg.arrays import Array, canonical
from sketchselect.readers.base import Matrix
from sketchselect.readers.vector import Vector

SMALL_NBYTES = 2**16
"""What is smaller travels inside the task's message."""

_KEPT_RECIPES = 4


class RowsElsewhere(Matrix):
    """What a matrix is called and how big it is, and, in a task, the rows that were sent to it."""

    def __init__(self, matrix: Matrix, start: int = 0, values: Array | None = None) -> None:
        self.shape, self.dtype, self.address = matrix.shape, matrix.dtype, matrix.address
        self.nonfinite, self.chunk_rows, self.axes = matrix.nonfinite, 1, matrix.axes
        self._start, self._values = start, values

    def read_rows(self, start: int, stop: int) -> Array:
        """Return rows that were sent."""
        if self._values is None:
            raise LookupError(f"rows {start} to {stop - 1} of {self.address} were not sent to this task")
        # Arrays that come out of a message are not always aligned.
        return canonical(self._values[start - self._start : stop - self._start])

    def identity(self, start: int, stop: int) -> str | None:
        """Return None: only the sender knows."""
        return None


def carries_data(source: Source) -> bool:
    """Return whether tasks need more of a source than its address."""
    vectors = (source.target, source.weight)
    return _carried(source.matrix) or any(v is not None and _carried(v) for v in vectors)


def _carried(part: Matrix | Vector) -> bool:
    return part.in_memory or hasattr(part, "array")


def without_rows(source: Source) -> Source:
    """Return the source as tasks that get their rows separately know it."""
    if isinstance(source, WorkerSource):
        return source.described()
    return replace(source, matrix=RowsElsewhere(source.matrix), target=None, weight=None)


def piece(source: Source, start: int, stop: int) -> Source:
    """Return a source that holds, or computes, these rows only."""
    return replace(
        source,
        matrix=source.matrix.part(start, stop),
        target=None if source.target is None else source.target.part(start, stop),
        weight=None if source.weight is None else source.weight.part(start, stop),
    )


def lives_on_cluster(matrix: Matrix) -> bool:
    """Return whether a Dask array was persisted: its graph names results that only the cluster can reach."""
    from distributed import Future

    array = getattr(matrix, "array", None)
    if array is None:
        return False
    values = dict(array.__dask_graph__()).values()
    return any(isinstance(getattr(value, "value", value), Future) for value in values)


# --- on the worker -----------------------------------------------------------------------------------------------

_recipes: OrderedDict[bytes, Recipe[Any]] = OrderedDict()
_lock = threading.Lock()


def _unpacked(packed: bytes) -> Recipe[Any]:
    """Return the recipe; the last few are kept, since all tasks of a pass bring the same."""
    from pickle import loads

    with _lock:
        recipe = _recipes.get(packed)
        if recipe is None:
            recipe = _recipes[packed] = loads(packed)
            while len(_recipes) > _KEPT_RECIPES:
                _recipes.popitem(last=False)
        return recipe


def leaf_task(
    packed: bytes,
    first: int,
    spans: list[tuple[int, int]],
    order: SaveOrder | None,
    parcel: Any,
    values: Array | None,
    topic: tuple[str, str] | None,
) -> Part[Any]:
    """Compute a leaf; `parcel` is its piece of the source (an object or its bytes), `values` its rows, where sent.

    Of a source whose blocks stay on the workers, `parcel` is the list of the leaf's blocks.
    """
    from pickle import loads

    from distributed import get_worker

    recipe = _unpacked(packed)
    if isinstance(parcel, list):
        blocks = {(block.start, block.stop): block.canonical() for block in parcel}
        recipe = replace(recipe, source=hold_source(recipe.source, blocks))
    elif parcel is not None:
        recipe = replace(recipe, source=loads(parcel) if isinstance(parcel, bytes) else parcel)
    if values is not None:
        moved = RowsElsewhere(recipe.source.matrix, spans[0][0], np.asarray(values))
        recipe = replace(recipe, source=replace(recipe.source, matrix=moved))
    if topic is None:
        return run_leaf(recipe, first, spans, order)
    worker = get_worker()
    left = iter(range(first, first + len(spans)))

    def tick(nbytes: int) -> None:
        worker.log_event(topic[0], {"run": topic[1], "partition": next(left)})

    return run_leaf(recipe, first, spans, order, tick)


def hold_task(packed: bytes, index: int, span: tuple[int, int], parcel: Any, values: Array | None) -> HeldBlock:
    """Return the block of one partition, which stays where it was read."""
    part = leaf_task(packed, index, [span], None, parcel, values, None)
    block: HeldBlock = part.value[span]
    return block


def merge_task(packed: bytes, parts: list[Part[Any]], rows: tuple[int, int], order: SaveOrder | None) -> Part[Any]:
    """Compute an inner node."""
    return run_merge(_unpacked(packed), parts, rows, order)


def hold(value: Any) -> Any:
    """Return the value: a task that can be run again, so that what many tasks share survives its worker."""
    return value
