"""Checkpoints: finished nodes in files whose names say all that decided their bits, so that none can be stale."""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from dask.task_spec import Task

from sketchselect._progress import Laps, Result, Statistics
from sketchselect.errors import BadParameter, DamagedFile, SketchSelectError, SourceError
from sketchselect.execution.source import Source
from sketchselect.execution.tree import MergeTree, Node
from sketchselect.linalg.hashing import fingerprint
from sketchselect.location import is_url, location_of, sync_folder
from sketchselect.readers.base import Partitions, Vector
from sketchselect.summaries import codec

T = TypeVar("T")

SUFFIX = ".sks"

ENDING = 8
"""Bytes of a file's digest that are in its name."""

WRITE_SECONDS = (0.02, 0.2)
"""Seconds that a small file takes, on a local disk and elsewhere."""

WRITE_RATE = 100e6
"""Bytes written a second."""

WORK_PER_COST = 40.0
"""Work that a file saves, over what it costs: a run spends at most a fortieth of its time on checkpoints."""

LEAST_RATIO = 8.0
"""Bytes of data below a node over those of its file, so that checkpoints stay far smaller than the data."""


@dataclass(frozen=True)
class Checkpoint:
    """Folder of finished nodes of a pass, and which of them are saved.

    A node is written when it covers at least `min_bytes` and `state_ratio` times the bytes of a state, or
    `min_seconds` of work that no other file holds; by default, so much work that files cost at most a fortieth of
    the run's time (by `WRITE_SECONDS` and `WRITE_RATE`), and take at most an eighth of the room of the data. States of
    a sketch in panels of columns replace each other, so their room does not count. A second run with the same source,
    prepare steps, summaries and libraries reads the nodes it finds and computes the others; whatever
    changed has another name and is not found.

    Parameters
    ----------
    directory : path or URL
        Folder of the files; made where it is missing. Every worker must be able to write there.
    min_bytes : int
        Least bytes of data (as stored) below a node.
    state_ratio : float
        Least multiple of a state's bytes below a node.
    min_seconds : float or None
        Work that makes any node worth saving; None weighs it against the cost of the file.
    """

    directory: str | os.PathLike[str]
    _: KW_ONLY
    min_bytes: int = 2**30
    state_ratio: float = 64.0
    min_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.min_bytes < 0 or self.state_ratio < 0 or (self.min_seconds or 0) < 0:
            raise BadParameter("min_bytes, state_ratio and min_seconds of a checkpoint must not be negative")
        # Workers may stand in another folder than we do.
        object.__setattr__(self, "directory", location_of(os.fspath(self.directory).rstrip("/")).url)

    def is_due(
        self, covered: int, unsaved_seconds: float, state_nbytes: int, *, least_ratio: float = LEAST_RATIO
    ) -> bool:
        """Return whether a node is worth its file: by the bytes and the work below it, and those of its state.

        The bytes below are at least `least_ratio` times those of the state: 0 where it replaces an earlier one.
        """
        if covered >= self.min_bytes:
            return True
        if self.min_seconds is not None:
            return unsaved_seconds >= self.min_seconds
        cost = WRITE_SECONDS[is_url(os.fspath(self.directory))] + state_nbytes / WRITE_RATE
        return unsaved_seconds >= WORK_PER_COST * cost and covered >= least_ratio * state_nbytes


def as_checkpoint(checkpoint: Checkpoint | str | os.PathLike[str] | None) -> Checkpoint | None:
    """Return a `Checkpoint` from what a user may pass."""
    if checkpoint is None or isinstance(checkpoint, Checkpoint):
        return checkpoint
    if isinstance(checkpoint, (str, os.PathLike)):
        return Checkpoint(checkpoint)
    raise BadParameter(f"checkpoint must be a folder, a URL, a Checkpoint or None, got {type(checkpoint).__name__}")


def write_node(value: Any, directory: str | os.PathLike[str], name: str) -> str | None:
    """Write a node's file; return what went wrong, or None."""
    return write_file(codec.encode(value), directory, name)[1]


def write_file(raw: bytes, directory: str | os.PathLike[str], name: str) -> tuple[str, str | None]:
    """Write a file atomically; return its path, and what went wrong, or None."""
    path = path_of(directory, name, raw[-ENDING:])
    file = location_of(path)
    try:
        folder = os.path.dirname(file.url)
        if file.is_local and not os.path.isdir(folder):
            os.makedirs(folder, exist_ok=True)
            sync_folder(Path(folder).parent)
        file.write(raw)
    except (OSError, SourceError) as error:
        number = getattr(error, "errno", None)
        reason = os.strerror(number) if number else type(error).__name__
        return path, f"{directory}: checkpoints cannot be written ({reason}); the run goes on without them"
    return path, None


def path_of(directory: str | os.PathLike[str], name: str, ending: bytes) -> str:
    """Return the path of a file, ``<directory>/<2 hex>/<name>.<digest>.sks``.

    The last bytes of a file are those of its digest, which `codec.decode` verifies. In the name they tell a file that
    another node's file was copied over from the node's own.
    """
    return f"{directory}/{name[:2]}/{name}.{ending.hex()}{SUFFIX}"


def read_node(path: str) -> Any:
    """Return the state in a node's file; raise `DamagedFile` where a bit, or the node, is not as it was written."""
    return codec.decode(read_file(path), path)


def read_file(path: str) -> bytes:
    """Return the content of a file; raise `DamagedFile` where it ends otherwise than its name says."""
    raw = location_of(path).read()
    if raw is None:
        raise FileNotFoundError(path)
    if raw[-ENDING:].hex() != path.removesuffix(SUFFIX).rsplit(".", 1)[-1]:
        raise DamagedFile(f"{path}: the content is not what the name promises")
    return raw


def remove_file(path: str) -> None:
    """Remove a file, if it is there and can be removed."""
    with contextlib.suppress(OSError, SourceError):
        location_of(path).remove()


def touch(path: str) -> None:
    """Say that a file is used, so that it is not removed as an old one."""
    with contextlib.suppress(OSError):  # a URL, or not ours to touch
        os.utime(path)


def list_nodes(directory: str | os.PathLike[str]) -> dict[str, str]:
    """Return name -> path of every node in a checkpoint folder; empty if the folder does not exist."""
    nodes = {}
    for path in sorted(path for path, _, _ in location_of(directory).files()):
        name, dot, _ = path.rsplit("/", 1)[-1].removesuffix(SUFFIX).partition(".")
        if name and dot and path.endswith(SUFFIX):
            nodes[name] = f"{directory}/{path}"
    return nodes


def entries_identity(vector: Vector | None, runs: list[tuple[int, int]]) -> str:
    """Return the identity of some runs of a target or weight, by content."""
    return "none" if vector is None else fingerprint([fingerprint(np.asarray(vector.read(*run))) for run in runs])


def save_if_due(node: Result[T], saving: Checkpoint, name: str | None) -> Result[T]:
    """Save a node where it is worth it. A run never fails because a checkpoint could not be written."""
    stats = node.stats
    if name is None or stats.n_changed:
        return node
    if not saving.is_due(stats.covered, stats.unsaved_seconds, int(getattr(node.value, "nbytes", 0))):
        return node
    laps = Laps(stats.profile)
    with laps.step("save"):
        note = write_node(node.value, saving.directory, name)
    if note is not None:
        return Result(node.value, stats + Statistics(notes=(note,)))
    return Result(node.value, replace(stats, unsaved_seconds=0.0, n_saved=stats.n_saved + 1, profile=laps))


def load_result(path: str, covered: int, dropped: int = 0) -> Result[Any]:
    """Return a node from a checkpoint."""
    return Result(read_node(path), Statistics(rows_dropped=dropped, covered=covered))


class SavedNodes:
    """The nodes of one pass in a checkpoint.

    A leaf is named by all that decides its bits, the identity of its rows when the pass begins included; a merge by the
    names of its children. Rows appended behind leave the names of full nodes as they were. `key` is the fingerprint of
    the leaf and its parameters, `build` the libraries and processors of the engine; `note` takes what the user should
    know. The rules say which nodes are saved, for states of `state_nbytes`.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        source: Source,
        tree: MergeTree,
        partitions: Partitions,
        *,
        key: str,
        build: tuple[str, ...],
        state_nbytes: int,
        note: Callable[[str], object],
    ) -> None:
        least = math.ceil(max(checkpoint.min_bytes, checkpoint.state_ratio * state_nbytes))
        self.rules = replace(checkpoint, min_bytes=least)
        self.directory = os.fspath(checkpoint.directory)
        self._source, self._tree, self._partitions, self._note = source, tree, partitions, note
        self._common = fingerprint(
            key,
            source.prepare_labels,
            (source.columns, "float64") if source.in_double else source.columns,
            source.matrix.nonfinite,
            source.matrix.shape[1],
            build,
            tree.chain,
            tree.fan_in,
        )
        self._names: dict[Node, str] = {}
        self._identities: dict[Node, str | None] = {}

    def name(self, node: Node) -> str:
        """Return the name of a node's file without digest and ending."""
        for below in self._tree.post_order(node, skip=self._names):
            children = [self._names[child] for child in self._tree.children(below)]
            self._names[below] = fingerprint(self._common, children) if children else self._leaf_name(below)
        return self._names[node]

    def identity(self, leaf: Node) -> str | None:
        """Return the identity that a leaf's stored rows had when the leaf was named; None where they cannot change."""
        self.name(leaf)
        return self._identities[leaf]

    def _leaf_name(self, node: Node) -> str:
        self._identities[node], decisive = self._rows_of(self._tree.partitions(node))
        return fingerprint(self._common, *decisive)

    def _rows_of(self, below: range) -> tuple[str | None, list[Any]]:
        """Return the identity of the rows of some partitions, None where it cannot change, and all that tells them."""
        source = self._source
        edges = self._partitions.edges[below.start : below.stop + 1]
        identity = source.matrix.identity(edges[0], edges[-1])
        # Targets and weights by content, which appended rows leave as it was.
        vectors = [
            entries_identity(vector, [self._partitions[i] for i in below]) for vector in (source.target, source.weight)
        ]
        # Where partitions begin and end decides the bits too.
        fixed = source.matrix.in_memory or source.matrix.dask_rows() is not None
        return None if fixed else identity, [identity, vectors, edges[0], [edge - edges[0] for edge in edges]]

    def resume(self, *, by_tasks: bool = False) -> dict[Node, Any]:
        """Return the topmost nodes whose files are there and sound.

        With `by_tasks` the files are verified here and loaded again by the tasks that need them, the root excepted.
        """
        listing = self.listing()
        return self._tree.topmost(functools.partial(self._sound, listing, by_tasks)) if listing else {}

    def n_saved(self) -> int:
        """Return the number of partitions below the nodes that have files now."""
        listing = self.listing()
        saved = self._tree.topmost(lambda node: listing.get(self.name(node))) if listing else {}
        return sum(len(self._tree.partitions(node)) for node in saved)

    def unread(self, nodes: Iterable[Node]) -> dict[Node, Any]:
        """Return tasks that load those of some nodes whose files are there."""
        listing = self.listing()
        paths = {node: listing.get(self.name(node)) for node in nodes} if listing else {}
        return {
            node: Task(None, load_result, path, self._source.matrix.stored_nbytes(*self._rows(node)))
            for node, path in paths.items()
            if path
        }

    def listing(self) -> dict[str, str]:
        """Return name -> path of every file in the folder; empty, with a note, where it cannot be listed."""
        try:
            return list_nodes(self.directory)
        except (OSError, ImportError, ValueError) as error:
            self._note(f"{self.directory}: checkpoints cannot be read ({type(error).__name__}); starting from scratch")
            return {}

    def _rows(self, node: Node) -> tuple[int, int]:
        below = self._tree.partitions(node)
        return self._partitions.edges[below.start], self._partitions.edges[below.stop]

    def _sound(self, listing: dict[str, str], by_tasks: bool, node: Node) -> Any | None:
        """Return a node whose file is there and sound, or the task that loads it."""
        path = listing.get(self.name(node))
        if path is None:
            return None
        try:
            value = read_node(path)
        except (OSError, SketchSelectError) as error:
            self._note(f"{path}: damaged checkpoint ({type(error).__name__}), computed again")
            return None
        touch(path)
        start, stop = self._rows(node)
        covered, dropped = self._source.matrix.stored_nbytes(start, stop), 0
        if self._source.matrix.nonfinite == "drop_rows":
            dropped = stop - start - int(getattr(value, "n_rows", stop - start))
        if by_tasks and node != self._tree.root:
            return Task(None, load_result, path, covered, dropped)
        return Result(value, Statistics(rows_dropped=dropped, covered=covered))


class SavedChain(SavedNodes):
    """Saved states of a pass that merges its partitions in order, beside its only node, the finished pass.

    A state may be in several files, which are written by the workers that hold the parts: then the state's own file is
    written last, and names the others. The state after a partition is named by all that decides its bits, the rows
    before included; so rows appended behind leave its name as it was.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._steps: list[tuple[str, str | None]] = []  # Name of the state after each partition, identity of its rows

    def step(self, partition: int) -> tuple[str, str | None]:
        """Return the name of the state after a partition, and the identity of its rows as `identity` of a leaf."""
        while len(self._steps) <= partition:
            i = len(self._steps)
            identity, decisive = self._rows_of(range(i, i + 1))
            before = self._steps[-1][0] if i else self._common
            self._steps.append((fingerprint("chain", before, *decisive), identity))
        return self._steps[partition]

    def states(self, listing: Mapping[str, str]) -> Iterator[tuple[int, str]]:
        """Yield the numbers of partitions that saved states are of, the largest first, and the paths of their files."""
        for i in reversed(range(len(self._partitions) if listing else 0)):
            if path := listing.get(self.step(i)[0]):
                yield i + 1, path

    def n_saved(self) -> int:
        """Return the number of partitions that the last saved state is of."""
        latest = next(self.states(self.listing()), (0, ""))
        return max(super().n_saved(), latest[0])

    def remove_others(self, listing: Mapping[str, str], needed: Collection[str]) -> None:
        """Remove the files of states of this pass that are not needed: older ones, damaged, and never finished."""
        names = {self.step(i)[0] for i in range(len(self._partitions))}
        for name, path in listing.items():
            if name.partition("-")[0] in names and path not in needed:
                remove_file(path)
