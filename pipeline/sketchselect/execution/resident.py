"""Loading the blocks of a source onto the workers of a Dask cluster, where they stay for as long as they are wanted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

from sketchselect.execution import shipping
from sketchselect.execution.cached import HeldMatrix, WorkerSource, hold_block, join_held
from sketchselect.execution.graph.tasks import Recipe
from sketchselect.execution.sending import pack
from sketchselect.execution.source import Source
from sketchselect.readers.base import Partitions

if TYPE_CHECKING:
    from sketchselect.execution.dask.engine import DaskEngine


def can_reside(source: Source) -> bool:
    """Return whether workers can read the rows themselves, again should they lose them: not those in our memory.

    Weights in our memory are no hindrance: each task carries its own, 8 bytes a row.
    """
    return not source.matrix.in_memory


def load_onto_workers(source: Source, partitions: Partitions, engine: DaskEngine, *, retries: int = 2) -> WorkerSource:
    """Return the source with its blocks on the workers: neighbouring partitions on one worker, evenly by threads.

    Blocks are results of tasks that carry addresses only. What a worker loses is read again wherever there is room;
    when the futures are let go of, or the client dies, the memory is free again. Returns at once; errors of reading
    come up in the first pass that needs the block.

    Parameters
    ----------
    source : Source
        One that `can_reside`.
    bands : Partitions
        The partitions.
    engine : DaskEngine
        Whose workers.
    retries : int
        How often a failed read is tried again.
    """
    client = engine.client
    run = uuid4().hex
    places = _places(engine, len(partitions))
    carries, lives = shipping.carries_data(source), shipping.lives_on_cluster(source.matrix)
    known = shipping.without_rows(source) if carries else source
    packed = pack(Recipe(known, hold_block, join_held, retries))
    recipe = client.submit(shipping.hold, packed, key=f"sketchselect-recipe-{run}", pure=False, priority=2)
    futures = {}
    for index in range(len(partitions)):
        start, stop = partitions[index]
        piece, values = None, None
        if carries:
            whole = source
            if lives:
                values = client.compute(source.matrix.part(start, stop).array)  # type: ignore[attr-defined]
                whole = replace(source, matrix=shipping.RowsElsewhere(source.matrix))
            piece = pack(shipping.piece(whole, start, stop))
        futures[start, stop] = client.submit(
            shipping.hold_task,
            recipe,
            index,
            (start, stop),
            piece,
            values,
            key=f"sketchselect-block-{run}-{index}",
            pure=False,
            workers=[places[index]],
            # A preference: when that worker is gone, any other will do.
            allow_other_workers=True,
        )
    return WorkerSource(
        HeldMatrix(source.matrix),
        None,
        source.weight,
        source.prepare,
        source.columns,
        takes_sparse=source.takes_sparse,
        futures=futures,
    )


def _places(engine: DaskEngine, n_partitions: int) -> list[str]:
    """Return the worker of each partition: as many to each as it has threads of all."""
    workers = engine.client.scheduler_info(n_workers=-1)["workers"]
    slots = [address for address in sorted(workers) for _ in range(int(workers[address]["nthreads"]))]
    return [slots[i * len(slots) // n_partitions] for i in range(n_partitions)]
