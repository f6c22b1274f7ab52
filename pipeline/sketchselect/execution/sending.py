"""Sending what tasks cannot read for themselves: the recipe once, rows leaf by leaf, and states from checkpoints."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sketchselect.errors import ClusterLost
from sketchselect.execution import shipping
from sketchselect.execution.cached import WorkerSource
from sketchselect.execution.dask.watch import ClusterWatch
from sketchselect.execution.engine import Work
from sketchselect.execution.graph.tasks import SaveOrder
from sketchselect.execution.graph.tree import Node

if TYPE_CHECKING:
    from sketchselect.execution.dask.engine import DaskEngine

T = TypeVar("T")

SEND_ATTEMPTS = 7


def pack(value: Any) -> bytes:
    """Return what travels to workers as bytes: packed once, for all tasks that need it."""
    from cloudpickle import dumps

    packed: bytes = dumps(value)
    return packed


class Sender(Generic[T]):
    """Sends for one pass, and remembers what has to be released when a leaf, or the pass, is over."""

    def __init__(self, engine: DaskEngine, work: Work[T], watch: ClusterWatch) -> None:
        self.carries = shipping.carries_data(work.recipe.source)
        self._on_cluster = shipping.lives_on_cluster(work.recipe.source.matrix)
        self._engine = engine
        self._work = work
        self._watch = watch
        self._parcels: dict[Node, list[Any]] = {}
        self._recipe: Any = None

    def recipe(self, run_id: str) -> Any:
        """Return the recipe as bytes, or as a future of them where it is too big to go with every task."""
        if self._recipe is None:
            recipe = self._work.recipe
            if self.carries:
                recipe = replace(recipe, source=shipping.without_rows(recipe.source))
            self._recipe = packed = pack(recipe)
            if len(packed) > shipping.SMALL_NBYTES // 4:
                self._recipe = self._engine.client.submit(
                    shipping.hold, packed, key=f"sketchselect-recipe-{run_id}", pure=False, priority=2
                )
        return self._recipe

    def parcel(self, node: Node) -> tuple[Any, Any]:
        """Return a leaf's piece of the source, as it is or as a future, and its rows where the cluster has them."""
        if not self.carries:
            return None, None
        source = self._work.recipe.source
        if isinstance(source, WorkerSource):
            # Already there; a task goes to where its blocks are.
            return source.blocks_of(self._work.spans(node)), None
        start, stop = self._work.rows(node)
        held = self._parcels[node] = []
        values = None
        if self._on_cluster:
            values = self._engine.client.compute(source.matrix.part(start, stop).array)  # type: ignore[attr-defined]
            source = replace(source, matrix=shipping.RowsElsewhere(source.matrix))
            held.append(values)
        piece = shipping.piece(source, start, stop)
        # Whatever is pickled here to learn its size is small, or else described by a graph.
        row_nbytes = source.matrix.shape[1] * source.matrix.dtype.itemsize
        big = source.matrix.in_memory and (stop - start) * row_nbytes > shipping.SMALL_NBYTES
        parcel = None if big else pack(piece)
        if parcel is None or len(parcel) > shipping.SMALL_NBYTES:
            parcel = self.send(piece)
            held.append(parcel)
        return parcel, values

    def order(self, node: Node) -> SaveOrder | None:
        """Return where a node is to be kept. Workers cannot look at a source whose rows were sent to them."""
        order = self._work.order(node)
        return replace(order, identity=None) if order is not None and self.carries else order

    def send(self, value: Any) -> Any:
        """Send a value straight to a worker; through the scheduler only where workers cannot be reached from here."""
        engine = self._engine
        for attempt in range(SEND_ATTEMPTS):
            try:
                direct = engine.reaches_workers is not False
                future = engine.client.scatter([value], direct=direct, hash=False, timeout=30)[0]
            except (OSError, TimeoutError, KeyError):
                # Either workers cannot be reached from here at all, or the one that was chosen has just died.
                if engine.reaches_workers is None:
                    engine.reaches_workers = False
                self._watch.check()
                time.sleep(0.1 * 2**attempt)
            else:
                if direct:
                    engine.reaches_workers = True
                return future
        raise ClusterLost(
            f"{self._work.stage}: rows cannot be sent to the workers; run again when the cluster is stable"
        )

    def release(self, node: Node) -> None:
        """Let go of what was sent for a leaf."""
        for future in self._parcels.pop(node, []):
            future.release()

    def close(self) -> None:
        """Let go of everything."""
        for node in list(self._parcels):
            self.release(node)
        if self._recipe is not None and not isinstance(self._recipe, bytes):
            self._recipe.release()
