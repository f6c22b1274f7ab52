"""The plan of a sketch in panels of columns: a chain of shrinks as a Dask graph, all panels of each at the same time.

Partitions are read and cut into panels in tasks of their own. Every shrink takes products from all panels, sums them in
one task, and sends the small matrix back; a panel need never leave the worker that made it.

After some partitions every worker saves its panels, and the next shrink writes the file that names them. A pass goes on
from the last state that is whole.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from itertools import accumulate, chain, pairwise
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from dask.core import get_dependencies
from dask.task_spec import List, Task, TaskRef
from numpy.typing import NDArray
from scipy.sparse import csr_array

from sketchselect._progress import Laps, Result, Statistics
from sketchselect.errors import DamagedFile, SketchSelectError
from sketchselect.execution.checkpoints import (
    ENDING,
    SavedChain,
    SavedNodes,
    list_nodes,
    path_of,
    read_file,
    remove_file,
    touch,
    write_file,
)
from sketchselect.execution.full_columns import are_known
from sketchselect.execution.plan import (
    Engine,
    Graph,
    Pieces,
    Plan,
    Projection,
    entry_nbytes,
    largest_partition,
    process_nbytes,
    sparse_reading,
)
from sketchselect.execution.source import Block, Source, aligned
from sketchselect.execution.tasks import Span, TaskContext, naming, read_block
from sketchselect.execution.tree import MergeTree, Node
from sketchselect.linalg.csr import arrays_of, take_rows
from sketchselect.linalg.sparse_shrink import (
    BUFFER_FACTOR,
    SketchPanel,
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
from sketchselect.summaries.codec import decode_record, encode_record

READ_AHEAD = 2
"""Partitions that are read before those before them are in the sketch."""


class Step(NamedTuple):
    """The rows of one shrink: their panels, and their weights."""

    panels: list[Piece]
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
        return sum(step.weights.nbytes + sum(map(sys.getsizeof, step.panels)) for step in self)


class Made(NamedTuple):
    """What a task made of a panel, and what is not yet counted of the making."""

    value: Any
    stats: Statistics = Statistics()
    file: str | None = None  # Where the panel is saved, if it was to be


Files = tuple[str, ...]
"""Paths of the files of a saved state, the first of which names the others, those of its panels."""


class State(NamedTuple):
    """State of a pass besides its panels."""

    total: Total
    stats: Statistics = Statistics()  # Of all so far; `covered` and `unsaved_seconds` of what is in no file
    name: str | None = None  # Of its files, if its panels are to be saved
    files: tuple[Files, ...] = ()  # Of the last two states saved, without the one that the pass went on from


PANEL_KIND, INDEX_KIND = "sketch-panel", "sketch-in-panels"


@dataclass(frozen=True)
class Index:
    """What is saved of a state besides its panels, in a file that is written after all of theirs."""

    n_rows: int
    weight: float
    shrinkage: float
    norms: Floats
    endings: NDArray[np.uint8]  # shape (n_panels, ENDING): Bytes in the names of the panels' files


class Saved(NamedTuple):
    """A saved state that a pass goes on from."""

    n_partitions: int
    total: Total
    files: Files
    earlier: tuple[Files, ...] = ()  # Of the one before


@dataclass(frozen=True)
class SketchPlan(Plan[Any]):
    """The plan of a sketch in panels, whose tree is one leaf: the partitions are merged in order."""

    saved_as: ClassVar[type[SavedNodes]] = SavedChain

    description: FrequentDirections = field(kw_only=True)
    edges: tuple[int, ...] = field(kw_only=True)  # First column of every panel, and the number of columns
    start: Saved | None = None

    @property
    def leaf_tasks(self) -> int:
        """One for every panel."""
        return len(self.edges) - 1

    @property
    def step_rows(self) -> int:
        """Rows of one shrink, whose cost is that of the sketch."""
        return BUFFER_FACTOR * self.description.size

    def resumed(self, *, shared: bool, remote: bool) -> Self:
        """Return the plan that goes on from the last saved state that is whole, or has the finished pass."""
        plan = self if self.context.reduction.keeps_panels else super().resumed(shared=shared, remote=remote)
        if plan.ready or not shared:
            return plan
        assert isinstance(self.nodes, SavedChain)
        listing = self.nodes.listing()
        whole: list[Saved] = []
        for n_partitions, path in self.nodes.states(listing):
            # The one before the last is there for when a file of the last is damaged.
            if len(whole) < 2 and (saved := self._saved(n_partitions, path, with_panels=not whole)):
                whole.append(saved)
        needed = {path for saved in whole for path in saved.files}
        for path in needed:
            touch(path)
        self.nodes.remove_others(listing, needed)
        start = whole[0]._replace(earlier=tuple(saved.files for saved in whole[1:])) if whole else None
        return replace(plan, start=start)

    def _saved(self, n_partitions: int, path: str, *, with_panels: bool) -> Saved | None:
        """Return a saved state whose index is sound, and its panels, if they are read."""
        opened = path
        try:
            index = decode_record(read_file(path), INDEX_KIND, Index, path)
            if index.endings.shape != (len(self.edges) - 1, ENDING):
                raise DamagedFile(f"{path}: not of {len(self.edges) - 1} panels")
            folder, file = path.rsplit("/", 2)[0], path.rsplit("/", 1)[1]
            name = file.partition(".")[0]
            panels = [path_of(folder, f"{name}-{j}", bytes(ending)) for j, ending in enumerate(index.endings)]
            for opened, width in zip(panels, np.diff(self.edges), strict=True) if with_panels else ():
                read_panel(opened, (int(width), index.norms.size))
        except (OSError, SketchSelectError) as error:
            self.progress.note(f"{opened}: damaged checkpoint ({type(error).__name__}), left out")
            return None
        total = Total(index.n_rows, index.weight, index.shrinkage, index.norms, np.empty((0, 0)))
        return Saved(n_partitions, total, (path, *panels))

    def bound(self, *, remote: bool) -> Self:
        """Return the plan with the rows that tasks do not read themselves.

        Tasks of the user's arrays wait as those that read do: they would run ahead, and their rows fill the memory.
        """
        plan = super().bound(remote=remote)
        return replace(plan, inputs=late_inputs(plan.inputs, plan.input_keys, plan._late)) if plan.inputs else plan

    def _late(self, partition: int) -> TaskRef | None:
        """Return the state that has to be there before a partition is read."""
        i = partition - READ_AHEAD
        if i < (0 if self.start is None else self.start.n_partitions):
            return None
        return TaskRef(self._key("total", self._steps[i + 1]))

    @property
    def n_resumed(self) -> int:
        """One if the pass goes on from a saved state."""
        return super().n_resumed + (self.start is not None)

    @property
    def done(self) -> set[int]:
        """The partitions that are in it."""
        return super().done | set(range(0 if self.start is None else self.start.n_partitions))

    def node_of(self, key: Any) -> Node | None:
        """Return the only node, for all tasks of the pass."""
        return self.tree.root if isinstance(key, tuple) and str(key[0]).endswith(self.token) else None

    def keys(self, node: Node) -> list[Any]:
        """Return the keys of the panels and of the part without them."""
        return [*(self._key("panel", self._steps[-1], j) for j in range(len(self.edges) - 1)), self.key(node)]

    def _key(self, name: str, step: int, panel: int = 0) -> tuple[str, int, int, int]:
        return (f"{name}-{self.token}", -1, step, panel)

    @cached_property
    def _steps(self) -> list[int]:
        """The number of steps before every partition, and of all."""
        counts = (n_steps(stop - start, self.description.size) for start, stop in pairwise(self.partitions.edges))
        return list(accumulate(counts, initial=0))

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
        widths = np.diff(self.edges).tolist()
        saving = self.nodes if self.context.saving is not None else None
        assert saving is None or isinstance(saving, SavedChain)
        done = 0 if self.start is None else self.start.n_partitions
        step = self._steps[done]
        if self.start is None:
            total = add(self._key("total", 0), State, Total.empty())
            panels = [add(self._key("panel", 0, j), _first_panel, widths[j]) for j in columns]
        else:
            stats, earlier = self._resumed_stats(), self.start.earlier
            total = add(self._key("total", step), State, self.start.total, stats, None, earlier)
            shapes = [(width, self.start.total.norms.size) for width in widths]
            panels = [
                add(self._key("panel", step, j), _loaded_panel, self.start.files[1 + j], shapes[j]) for j in columns
            ]
        for i in range(done, len(self.partitions)):
            span, count = self.span(i), self._steps[i + 1] - self._steps[i]
            sent = None if self.prefetched is None else self.prefetched(span)
            name, identity = (None, self.rows_identity(span.start, span.stop)) if saving is None else saving.step(i)
            late = self._late(i)
            read = add(self._key("read", i), read_steps, context, span, sent, self.edges, count, identity, late)
            statistics = add(self._key("statistics", i), _statistics, read)
            for s in range(count):
                step += 1
                ends = s + 1 == count
                early = late if step - 2 < self._steps[done] else TaskRef(self._key("total", step - 2))
                weights = add(self._key("weights", step), _piece, read, s, "weights")
                pieces = [add(self._key("rows", step, j), _piece, read, s, "panels", j) for j in columns]
                products = [
                    add(self._key("products", step, j), _products, context, span, panels[j], pieces[j], total, weights)
                    for j in columns
                ]
                gram = add(self._key("gram", step), _gram, context, span, List(*pieces), weights, early)
                before, key, of_rows = total, self._key("total", step), (statistics, name) if ends else (None, None)
                total = add(key, _total, context, span, *of_rows, before, gram, weights, List(*products), size)
                states = before, total
                panels = [
                    add(self._key("panel", step, j), _panel, context, span, j, panels[j], pieces[j], *states, weights)
                    for j in columns
                ]
        # The part depends on all panels, of which it gets only what was not counted yet.
        made = [add(self._key("made", 0, j), _without_value, panels[j]) for j in columns]
        add(self.key(output), _finished, context, total, List(*made))
        return tasks

    def _resumed_stats(self) -> Statistics:
        assert self.start is not None
        n_rows = self.partitions.edges[self.start.n_partitions] - self.partitions.edges[0]
        return Statistics(rows_dropped=n_rows - self.start.total.n_rows)


def sketch_plan(plan: Plan[Any], description: FrequentDirections, engine: Engine) -> SketchPlan:
    """Return the plan of a pass over sparse rows that keeps its sketch in panels."""
    source = plan.source
    edges = description.column_panels(source.n_columns)
    assert edges is not None
    projected = _projection(plan, description, edges, engine)
    changes = {
        # One leaf of any number of partitions: appended ones leave the tree as it is.
        "tree": MergeTree(len(plan.partitions), chain=sys.maxsize),
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


def _projection(plan: Plan[Any], description: FrequentDirections, edges: Sequence[int], engine: Engine) -> Projection:
    """Return what each process will need at most for a sketch in panels."""
    source, partitions, row_weights = plan.source, plan.partitions, plan.context.reduction.row_weights
    slots, size, n_panels = engine.slots_per_process, description.size, len(edges) - 1
    heights = [b - a for a, b in pairwise(partitions.edges)]
    tallest = max(-(-n // n_steps(n, size)) for n in heights)
    panel = 8 * int(np.diff(edges).max()) * (size + 2)
    here = -(-n_panels // engine.n_workers) if engine.kind == "dask" else n_panels
    return Projection(
        process=process_nbytes(source.matrix, engine.kind),
        reading=int(
            min(slots, len(partitions)) * sparse_reading(source, partitions, row_weights)
            + min(1 + READ_AHEAD, len(partitions)) * rows_nbytes(source, partitions, n_panels)
        ),
        # Every task makes another panel of one, and some vectors of its length.
        states=(here + 2 * slots) * panel,
        # Besides what a shrink needs, products of the rows of the shrinks that are next.
        working=(6 + 2) * 8 * (tallest + size) ** 2,
        assumes_weights=source.weight is not None and not are_known(source, row_weights),
    )


def rows_nbytes(source: Source, partitions: Partitions, n_panels: int) -> float:
    """Return the bytes of the rows of a partition in panels, and of the same cut into the pieces of shrinks."""
    entries, height = largest_partition(source, partitions)
    return 2.0 * (entry_nbytes(source) * entries + 8 * (n_panels + 1) * height)


def read_steps(
    context: TaskContext[Any],
    span: Span,
    sent: Block | None,
    edges: Sequence[int],
    count: int,
    identity: str | None = None,
    late: Any = None,
) -> Result[Steps]:
    """Return the rows of a partition as `count` steps; `late` is only waited for.

    `identity` is that of the rows when the pass began: if they have another one now, no state is saved any more.
    """
    source, laps, steps = context.source, Laps(), Steps()
    with one_blas_thread(), naming(source, f"partition {span.partition}", span.start, span.stop):
        block = read_block(source, span.start, span.stop, context.retries, sent, laps)
        with laps.step("kernel"):
            weights = as_weights(block.weight, block.values.shape[0], block.position)
            require_summable(block.values, weights, block.position)
            bounds = np.linspace(0, block.values.shape[0], count + 1).astype(int)
            for a, b in pairwise(map(int, bounds)):
                panels = column_panels(take_rows(block.values, a, b), edges)
                w = np.ones(b - a) if weights is None else weights[a:b]
                steps.append(Step(list(map(Piece, panels)), w))
    if context.on_task_end is not None:
        context.on_task_end(None)
    changed = identity is not None and source.matrix.identity(span.start, span.stop) != identity
    stats = Statistics(
        rows_read=span.stop - span.start,
        rows_dropped=block.n_dropped,
        bytes_read=span.nbytes,
        profile=laps,
        covered=span.nbytes,
        unsaved_seconds=sum(laps.values()),
        n_changed=int(changed),
    )
    return Result(steps, stats)


def _statistics(part: Result[Any]) -> Statistics:
    return part.stats


def _piece(part: Result[Steps], step: int, name: str, panel: int | None = None) -> Any:
    piece = getattr(part.value[step], name)
    return piece if panel is None else piece[panel]


def late_inputs(inputs: Graph, keys: Sequence[Sequence[Any]], late: Callable[[int], TaskRef | None]) -> Graph:
    """Return the graph of a user's arrays, in which the first tasks for a partition wait for what is `late`.

    `keys` are those of each array and partition.
    """
    first: dict[Any, int] = {}
    tasks = dict(inputs)
    for partition, pieces in enumerate(zip(*keys, strict=True)):
        waiting = list(pieces)
        while waiting:
            key = waiting.pop()
            if key not in first and key in inputs:
                first[key] = partition
                waiting += get_dependencies(inputs, key)
    for key, partition in first.items():
        task, gate = inputs[key], late(partition)
        begins = all(first[before] < partition for before in get_dependencies(inputs, key))
        if gate is not None and begins and type(task) is Task:
            tasks[key] = Task(key, partial(_waiting, task.func), gate, *task.args, **task.kwargs)
    return tasks


def _waiting(function: Any, late: Any, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def _first_panel(n_columns: int) -> Made:
    return Made(empty_panel(n_columns))


def read_panel(path: str, shape: tuple[int, int]) -> SketchPanel:
    """Return a saved panel; raise `DamagedFile` where it is not as it was written."""
    panel = decode_record(read_file(path), PANEL_KIND, SketchPanel, path)
    if panel.rows.shape != shape or not panel.mean.shape == panel.squares.shape == shape[:1]:
        raise DamagedFile(f"{path}: not a panel of {shape[0]} columns")
    return panel


def _loaded_panel(path: str, shape: tuple[int, int]) -> Made:
    try:
        return Made(read_panel(path, shape))
    except FileNotFoundError:
        raise DamagedFile(
            f"{path}: this saved state was removed while a pass was going on from it; run again, and give each of "
            "several runs at the same time a checkpoint folder of its own"
        ) from None


def _gram(context: TaskContext[Any], span: Span, pieces: Sequence[Piece], weights: Floats, late: Any) -> Made:
    """Return the products of the rows of a shrink with each other; `late` is only waited for, as they are large."""
    with _kernel(context, span) as laps:
        gram = rows_gram([aligned(piece.rows) for piece in pieces], canonical(weights))
    return Made(gram, _spent(laps))


def _products(context: TaskContext[Any], span: Span, panel: Made, rows: Piece, state: State, weights: Floats) -> Made:
    with _kernel(context, span) as laps:
        value = panel_products(canonical_record(panel.value), aligned(rows.rows), state.total, canonical(weights))
    return Made(value, panel.stats + _spent(laps), panel.file)


def _total(
    context: TaskContext[Any],
    span: Span,
    of_rows: Statistics | None,
    name: str | None,
    before: State,
    gram: Made,
    weights: Floats,
    parts: Sequence[Made],
    size: int,
) -> State:
    """Return the state after a step; after the last one of a partition, with the statistics of reading it.

    It has a `name` where it is to be saved.
    """
    before = indexed(context, before, parts)
    with _kernel(context, span) as laps:
        products = [canonical_record(part.value) for part in parts]
        total = shrink_panels(before.total, canonical(gram.value), canonical(weights), products, size)
    stats = before.stats + gram.stats + _spent(laps)
    if of_rows is not None:
        stats += of_rows
    if context.on_task_end is not None:
        context.on_task_end(None if of_rows is None else span)
    if context.saving is None or name is None or stats.n_changed:
        return State(total, stats, None, before.files)
    nbytes = 8 * context.source.n_columns * (total.norms.size + 2)
    if not context.saving.is_due(stats.covered, stats.unsaved_seconds, nbytes, least_ratio=0.0):
        return State(total, stats, None, before.files)
    return State(total, replace(stats, covered=0, unsaved_seconds=0.0), name, before.files)


def indexed(context: TaskContext[Any], state: State, parts: Sequence[Made]) -> State:
    """Return a state with what its panels have to be counted, saved if all of these are."""
    stats = Statistics.total([state.stats, *(part.stats for part in parts)])
    files = [part.file for part in parts if part.file is not None]
    if state.name is None or context.saving is None:
        return state._replace(stats=stats)
    if len(files) < len(parts):
        _discard(context.saving.directory, state.name, files)
        return state._replace(stats=stats)
    total, laps = state.total, Laps()
    endings = np.array([list(bytes.fromhex(path.rsplit(".", 2)[1])) for path in files], dtype=np.uint8)
    index = Index(total.n_rows, total.weight, total.shrinkage, total.norms, endings)
    with laps.step("save"):
        path, trouble = write_file(encode_record(INDEX_KIND, index), context.saving.directory, state.name)
    if trouble is not None:
        _discard(context.saving.directory, state.name, files)
        return state._replace(stats=stats + Statistics(profile=laps, notes=(trouble,)))
    saved = *state.files, (path, *files)
    # Tasks may have to load the state again that the pass went on from, so that is not among them.
    for old in chain(*saved[:-2]):
        remove_file(old)
    return state._replace(stats=stats + Statistics(profile=laps, n_saved=1), files=saved[-2:])


def _discard(directory: str | os.PathLike[str], name: str, files: Iterable[str]) -> None:
    """Remove the panels of a state that could not be saved whole: on a full disk they would pile up.

    Where tasks run again, the state may be there from the first time.
    """
    with suppress(OSError, SketchSelectError):
        if name not in list_nodes(f"{directory}/{name[:2]}"):
            for path in files:
                remove_file(path)


def _panel(
    context: TaskContext[Any],
    span: Span,
    place: int,
    panel: Made,
    rows: Piece,
    before: State,
    after: State,
    weights: Floats,
) -> Made:
    with _kernel(context, span) as laps:
        now = canonical_record(after.total)
        value = shrunk_panel(canonical_record(panel.value), aligned(rows.rows), before.total, now, canonical(weights))
    stats = _spent(laps)
    if after.name is None or context.saving is None:
        return Made(value, stats)
    writing = Laps()
    with writing.step("save"):
        raw = encode_record(PANEL_KIND, value)
        path, trouble = write_file(raw, context.saving.directory, f"{after.name}-{place}")
    stats += Statistics(profile=writing, notes=() if trouble is None else (trouble,))
    return Made(value, stats, path if trouble is None else None)


def _spent(laps: Laps) -> Statistics:
    return Statistics(profile=laps, unsaved_seconds=laps["kernel"])


def _without_value(panel: Made) -> Made:
    return panel._replace(value=None)


def _finished(context: TaskContext[Any], state: State, parts: Sequence[Made]) -> Result[Total]:
    state = indexed(context, state, parts)
    if context.on_task_end is not None:
        context.on_task_end(None)
    return Result(state.total, state.stats)


@contextmanager
def _kernel(context: TaskContext[Any], span: Span) -> Iterator[Laps]:
    laps = Laps()
    named = naming(context.source, f"partition {span.partition}", span.start, span.stop)
    with one_blas_thread(), named, laps.step("kernel"):
        yield laps
