"""Inputs of the tasks of a pass beside the source: rows of Dask arrays, rows that are sent, cached blocks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from dask.task_spec import Task, TaskRef

from sketchselect.execution.cached import CachedSource
from sketchselect.execution.graph.tasks import Span
from sketchselect.execution.source import Rows, Source
from sketchselect.readers.base import Matrix, Partitions
from sketchselect.readers.vector import Vector
from sketchselect.readers.views import MatrixMetadata

Graph = dict[Any, Any]


@dataclass(frozen=True)
class Inputs:
    """What leaves depend on: the source as tasks know it, and an argument for each partition that is read elsewhere.

    The argument is the third one of `run_leaf`: an object, or a node that refers to tasks of `graph`. `sends` says
    whether arguments hold rows of this process's memory.
    """

    source: Source
    argument: Callable[[Span], Any] | None = None
    graph: Graph = field(default_factory=dict)
    sends: bool = False

    def complete(self, graph: Graph) -> Graph:
        """Return a graph with those tasks of the inputs that it needs."""
        from dask.optimization import cull

        return cull({**self.graph, **graph}, list(graph))[0] if self.graph else graph


def pass_inputs(source: Source, partitions: Partitions, *, remote: bool) -> Inputs:
    """Return what the leaves of a pass over these partitions depend on.

    With `remote`, tasks may run in other processes, and rows in this process's memory travel inside the graph.
    """
    if isinstance(source, CachedSource):
        blocks = source.blocks
        return Inputs(Source(MatrixMetadata(source.matrix)), lambda span: blocks[span.start, span.stop])
    graph: Graph = {}
    parts = (source.matrix, source.target, source.weight)
    columns = [None if part is None else _column(part, partitions, graph, remote) for part in parts]
    if columns == [None, None, None]:
        return Inputs(source)
    values, target, weight = columns
    sent = replace(
        source,
        matrix=source.matrix if values is None else MatrixMetadata(source.matrix),
        target=source.target if target is None else None,
        weight=source.weight if weight is None else None,
    )

    def argument(span: Span) -> Any:
        return Task(None, Rows, *(None if column is None else column(span) for column in columns))

    return Inputs(sent, argument, graph, remote and any(part is not None and part.in_memory for part in parts))


def _column(part: Matrix | Vector, partitions: Partitions, graph: Graph, remote: bool) -> Callable[[Span], Any] | None:
    """Return what gives the rows of a partition, of one of matrix, target and weight; None where tasks read it."""
    dask, read = part.dask_rows(), part.read if isinstance(part, Vector) else part.read_rows
    if dask is not None:
        tasks, keys = partition_graph(dask, partitions.edges)
        graph.update(tasks)
        return lambda span: TaskRef(keys[span.partition])
    return (lambda span: read(span.start, span.stop)) if remote and part.in_memory else None


def partition_graph(array: Any, edges: Iterable[int]) -> tuple[Graph, list[Any]]:
    """Return the optimised graph of a Dask array cut along its rows, and the key of each piece."""
    import dask

    cuts = tuple(edges)
    sizes = tuple(int(n) for n in np.diff(cuts))
    columns = dict.fromkeys(range(1, len(array.shape)), -1)
    pieces = array[cuts[0] : cuts[-1]].rechunk({0: sizes, **columns})
    (pieces,) = dask.optimize(pieces)
    keys = pieces.__dask_keys__()
    return dict(pieces.__dask_graph__()), [row[0] if isinstance(row, list) else row for row in keys]


def futures_client(array: Any) -> Any | None:
    """Return the client of the futures in the graph of a Dask array; None where there is none."""
    if array is None or "distributed" not in sys.modules:
        return None
    from distributed import futures_of

    return next((future.client for future in futures_of(array)), None)
