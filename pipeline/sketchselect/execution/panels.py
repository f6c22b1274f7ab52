"""The plan of a sketch in panels of columns: a chain of shrinks as a Dask graph, all panels of each at the same time.

Partitions are read and cut into panels in tasks of their own. Every shrink takes products from all panels, sums them in
one task, and sends the small matrix back; a panel need never leave the worker that made it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from dask.task_spec import List, Task, TaskRef
from scipy.sparse import csr_array

from sketchselect._progress import Laps, Result, Statistics
from sketchselect.execution.plan import Engine, Graph, Pieces, Plan, Projection, process_nbytes, sparse_reading
from sketchselect.execution.source import Block, Source, aligned
from sketchselect.execution.tasks import Span, TaskContext, naming, read_block, with_total
from sketchselect.execution.tree import MergeTree, Node
from sketchselect.linalg.csr import arrays_of, take_rows
from sketchselect.linalg.sparse_shrink import (
    BUFFER_FACTOR,
    Total,
    column_panels,
    empty_panel,
    n_steps,
    panel_products,
    require_summable,
    rows_gram,
    shrink_panels,
    shrunk_panel,
)
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import Floats, as_weights, canonical
from sketchselect.readers.base import Partitions
from sketchselect.summaries import FrequentDirections
from sketchselect.summaries.base import canonical_record

READ_AHEAD = 2
"""Partitions that are read before those before them are in the sketch."""


class Step(NamedTuple):
    """The rows of one shrink: their panels, their products with each other, and their weights."""

    panels: list[Piece]
    gram: Floats
    weights: Floats


@dataclass(frozen=True)
class Piece:
    """The rows of one shrink in one panel; Dask does not know the size of sparse arrays."""

    rows: csr_array

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + sum(int(array.nbytes) for array in arrays_of(self.rows))


class Steps(list[Step]):
    """The steps of a partition."""

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(step.gram.nbytes + sum(map(sys.getsizeof, step.panels)) for step in self)


class Timed(NamedTuple):
    """A value, and the seconds of computing that led to it and are not yet counted."""

    value: Any
    seconds: float


@dataclass(frozen=True)
class SketchPlan(Plan[Any]):
    """The plan of a sketch in panels, whose tree is one leaf: the partitions are merged in order."""

    description: FrequentDirections = field(kw_only=True)
    edges: tuple[int, ...] = field(kw_only=True)  # First column of every panel, and the number of columns

    @property
    def leaf_tasks(self) -> int:
        """One for every panel."""
        return len(self.edges) - 1

    @property
    def step_rows(self) -> int:
        """Rows of one shrink, whose cost is that of the sketch."""
        return BUFFER_FACTOR * self.description.size

    def node_of(self, key: Any) -> Node | None:
        """Return the only node, for all tasks of the pass."""
        return self.tree.root if isinstance(key, tuple) and str(key[0]).endswith(self.token) else None

    def keys(self, node: Node) -> list[Any]:
        """Return the keys of the panels and of the part without them."""
        steps = sum(self._counts())
        return [*(self._key("panel", steps, j) for j in range(len(self.edges) - 1)), self.key(node)]

    def _key(self, name: str, step: int, panel: int = 0) -> tuple[str, int, int, int]:
        return (f"{name}-{self.token}", -1, step, panel)

    def _counts(self) -> list[int]:
        """Return the number of steps of every partition."""
        return [n_steps(stop - start, self.description.size) for start, stop in pairwise(self.partitions.edges)]

    def places(self, graph: Graph, workers: Sequence[str]) -> dict[str, list[Any]]:
        """Return the worker of every panel, on which it is made and rewritten: copies would fill the memory."""
        if not workers:
            return {}
        n_panels, names = len(self.edges) - 1, (f"panel-{self.token}", f"products-{self.token}")
        placed: dict[str, list[Any]] = {worker: [] for worker in workers}
        for key in graph:
            if isinstance(key, tuple) and key[0] in names:
                placed[workers[key[3] * len(workers) // n_panels]].append(key)
        return placed

    def graph(self, output: Node, ready: Mapping[Node, Any]) -> Graph:
        """Return all tasks of the pass."""
        tasks: Graph = {}

        def add(key: Any, function: Any, *arguments: Any) -> TaskRef:
            tasks[key] = Task(key, function, *arguments)
            return TaskRef(key)

        context, size, columns = TaskRef(self.context_key), self.description.size, range(len(self.edges) - 1)
        total = add(self._key("total", 0), Timed, Total.empty(), 0.0)
        panels = [add(self._key("panel", 0, j), _first_panel, b - a) for j, (a, b) in enumerate(pairwise(self.edges))]
        step, statistics = 0, []
        totals: list[TaskRef] = []
        for i, count in enumerate(self._counts()):
            span = self.span(i)
            sent = None if self.prefetched is None else self.prefetched(span)
            late = totals[i - READ_AHEAD] if i >= READ_AHEAD else None
            read = add(self._key("read", i), read_steps, context, span, sent, self.edges, count, late)
            statistics.append(add(self._key("statistics", i), _statistics, read))
            for s in range(count):
                step += 1
                weights = add(self._key("weights", step), _piece, read, s, "weights")
                pieces = [add(self._key("rows", step, j), _piece, read, s, "panels", j) for j in columns]
                products = [
                    add(self._key("products", step, j), _products, context, span, panels[j], pieces[j], total, weights)
                    for j in columns
                ]
                gram = add(self._key("gram", step), _piece, read, s, "gram")
                ends, before, key = s + 1 == count, total, self._key("total", step)
                total = add(key, _total, context, span, ends, before, gram, weights, List(*products), size)
                panels = [
                    add(
                        self._key("panel", step, j), _panel, context, span, panels[j], pieces[j], before, total, weights
                    )
                    for j in columns
                ]
            totals.append(total)
        # The part depends on all panels, of which it gets only the seconds.
        seconds = [add(self._key("seconds", 0, j), attrgetter("seconds"), panels[j]) for j in columns]
        add(self.key(output), _finished, context, List(*statistics), total, List(*seconds))
        return tasks


def sketch_plan(plan: Plan[Any], description: FrequentDirections, engine: Engine) -> SketchPlan:
    """Return the plan of a pass over sparse rows that keeps its sketch in panels."""
    source = plan.source
    edges = description.column_panels(source.n_columns)
    assert edges is not None
    projected = _projection(source, plan.partitions, description, edges, engine)
    changes = {
        "tree": MergeTree(len(plan.partitions), chain=len(plan.partitions)),
        "projected": replace(projected, held=plan.projected.held),
        "join": partial(_joined, description, edges, plan.context.reduction.keeps_panels),
    }
    return SketchPlan(
        **{f.name: getattr(plan, f.name) for f in fields(plan)} | changes, description=description, edges=edges
    )


def _joined(
    description: FrequentDirections, edges: Sequence[int], keeps_panels: bool, part: Result[Total], pieces: Pieces
) -> Result[Any]:
    """Return the part with the sketch of its panels: whole, or in panels that stay where they are."""
    if keeps_panels:
        return Result(description.in_panels(part.value, pieces.in_place(edges, attrgetter("value"))), part.stats)
    panels = (canonical_record(piece.value) for piece in pieces)
    return Result(description.of_panels(part.value, panels, edges[-1]), part.stats)


def _projection(
    source: Source,
    partitions: Partitions,
    description: FrequentDirections,
    edges: Sequence[int],
    engine: Engine,
) -> Projection:
    """Return what each process will need at most for a sketch in panels."""
    slots, size, n_panels = engine.slots_per_process, description.size, len(edges) - 1
    heights = [b - a for a, b in pairwise(partitions.edges)]
    tallest = max(-(-n // n_steps(n, size)) for n in heights)
    grams = 8 * tallest * tallest * max(n_steps(n, size) for n in heights)
    panel = 8 * int(np.diff(edges).max()) * (size + 2)
    here = -(-n_panels // engine.n_workers) if engine.kind == "dask" else n_panels
    return Projection(
        process=process_nbytes(source.matrix, engine.kind),
        reading=int(min(slots + READ_AHEAD, len(partitions)) * (sparse_reading(source, partitions) + grams)),
        # Every task makes another panel of one, and some vectors of its length.
        states=(here + 2 * slots) * panel,
        working=6 * 8 * (tallest + size) ** 2,
    )


def read_steps(
    context: TaskContext[Any], span: Span, sent: Block | None, edges: Sequence[int], count: int, late: Any = None
) -> Result[Steps]:
    """Return the rows of a partition as `count` steps; `late` is only waited for."""
    source, laps, steps = context.source, Laps(), Steps()
    with one_blas_thread(), naming(source, f"partition {span.partition}", span.start, span.stop):
        block = read_block(source, span.start, span.stop, context.retries, sent, laps)
        with laps.step("kernel"):
            weights = as_weights(block.weight, block.values.shape[0])
            require_summable(block.values, weights, block.position)
            bounds = np.linspace(0, block.values.shape[0], count + 1).astype(int)
            for a, b in pairwise(map(int, bounds)):
                panels = column_panels(take_rows(block.values, a, b), edges)
                w = np.ones(b - a) if weights is None else weights[a:b]
                steps.append(Step(list(map(Piece, panels)), rows_gram(panels, w), w))
    if context.on_task_end is not None:
        context.on_task_end(None)
    return Result(
        steps,
        Statistics(
            rows_read=span.stop - span.start, rows_dropped=block.n_dropped, bytes_read=span.nbytes, profile=laps
        ),
    )


def _statistics(part: Result[Any]) -> Result[None]:
    return Result(None, part.stats)


def _piece(part: Result[Steps], step: int, name: str, panel: int | None = None) -> Any:
    piece = getattr(part.value[step], name)
    return piece if panel is None else piece[panel]


def _first_panel(n_columns: int) -> Timed:
    return Timed(empty_panel(n_columns), 0.0)


def _products(context: TaskContext[Any], span: Span, panel: Timed, rows: Piece, total: Timed, weights: Floats) -> Timed:
    with _kernel(context, span) as laps:
        value = panel_products(canonical_record(panel.value), aligned(rows.rows), total.value, canonical(weights))
    return Timed(value, panel.seconds + laps["kernel"])


def _total(
    context: TaskContext[Any],
    span: Span,
    ends: bool,
    before: Timed,
    gram: Floats,
    weights: Floats,
    parts: Sequence[Timed],
    size: int,
) -> Timed:
    with _kernel(context, span) as laps:
        products = [canonical_record(part.value) for part in parts]
        value = shrink_panels(before.value, canonical(gram), canonical(weights), products, size)
    if context.on_task_end is not None:
        context.on_task_end(span if ends else None)
    return Timed(value, before.seconds + sum(part.seconds for part in parts) + laps["kernel"])


def _panel(
    context: TaskContext[Any], span: Span, panel: Timed, rows: Piece, before: Timed, after: Timed, weights: Floats
) -> Timed:
    with _kernel(context, span) as laps:
        now = canonical_record(after.value)
        value = shrunk_panel(canonical_record(panel.value), aligned(rows.rows), before.value, now, canonical(weights))
    return Timed(value, laps["kernel"])


def _finished(
    context: TaskContext[Any], statistics: Sequence[Result[None]], total: Timed, seconds: Sequence[float]
) -> Result[Total]:
    if context.on_task_end is not None:
        context.on_task_end(None)
    kernel = Statistics(profile=Laps(kernel=total.seconds + sum(seconds)))
    return with_total(statistics, total.value, kernel)


@contextmanager
def _kernel(context: TaskContext[Any], span: Span) -> Iterator[Laps]:
    laps = Laps()
    named = naming(context.source, f"partition {span.partition}", span.start, span.stop)
    with one_blas_thread(), named, laps.step("kernel"):
        yield laps
