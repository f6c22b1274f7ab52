"""Checkpoints: finished nodes kept under a name that says all that decided their bits, so that none can be stale."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sketchselect.errors import BadParameter, SketchSelectError
from sketchselect.execution.checkpoints.files import is_url, list_nodes, read_node
from sketchselect.execution.checkpoints.fingerprint import VectorIdentity, digest
from sketchselect.execution.graph.tasks import Part, SaveOrder
from sketchselect.execution.graph.tree import Node, Plan
from sketchselect.execution.source import Source
from sketchselect.readers.base import Partitions


@dataclass(frozen=True)
class Checkpoint:
    """Where finished nodes of a pass are kept, and which are worth it.

    A node is written when it stands on at least `min_bytes` and on `state_ratio` times the bytes of a state, or on
    `min_seconds` of work that no other file holds. A second run with the same source, prepare steps, summaries and
    libraries reads the nodes it finds and computes the others; whatever changed has another name and is not found.

    Parameters
    ----------
    directory : path or URL
        Folder of the files; made where it is missing. Every worker must be able to write there.
    min_bytes : int
        Least bytes of data (as stored) below a node.
    state_ratio : float
        Least multiple of a state's bytes below a node.
    min_seconds : float
        Work that makes any node worth keeping.
    """

    directory: str
    min_bytes: int = 2**30
    state_ratio: float = 64.0
    min_seconds: float = 60.0

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        min_bytes: int = 2**30,
        state_ratio: float = 64.0,
        min_seconds: float = 60.0,
    ) -> None:
        text = os.fspath(directory)
        if min_bytes < 0 or state_ratio < 0 or min_seconds < 0:
            raise BadParameter("min_bytes, state_ratio and min_seconds of a checkpoint must not be negative")
        # Workers may stand in another folder than we do.
        object.__setattr__(self, "directory", text.rstrip("/") if is_url(text) else str(Path(text).absolute()))
        object.__setattr__(self, "min_bytes", int(min_bytes))
        object.__setattr__(self, "state_ratio", float(state_ratio))
        object.__setattr__(self, "min_seconds", float(min_seconds))


def as_checkpoint(checkpoint: Checkpoint | str | os.PathLike[str] | None) -> Checkpoint | None:
    """Return a `Checkpoint` from what a user may pass."""
    if checkpoint is None or isinstance(checkpoint, Checkpoint):
        return checkpoint
    if isinstance(checkpoint, (str, os.PathLike)):
        return Checkpoint(checkpoint)
    raise BadParameter(f"checkpoint must be a folder, a URL, a Checkpoint or None, got {type(checkpoint).__name__}")


class Ledger:
    """The checkpoint of one pass: names of its nodes, what is there already, and orders for what is to be kept."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        source: Source,
        partitions: Partitions,
        plan: Plan,
        *,
        leaf_key: str,
        build: tuple[str, ...],
        state_nbytes: int,
    ) -> None:
        self._checkpoint = checkpoint
        self._source = source
        self._bands = partitions
        self._plan = plan
        self._common = digest(
            leaf_key,
            source.prepare_labels,
            source.columns,
            source.matrix.nonfinite,
            source.matrix.shape[1],
            build,
            plan.chain,
            plan.fan_in,
        )
        self._state_nbytes = state_nbytes
        self._names: dict[Node, tuple[str, str] | None] = {}
        self._beside = [VectorIdentity(source.target), VectorIdentity(source.weight)]
        self.notes: list[str] = []

    def _rows(self, node: Node) -> tuple[int, int]:
        below = self._plan.partitions(node)
        return self._bands.edges[below.start], self._bands.edges[below.stop]

    def _name(self, node: Node) -> tuple[str, str] | None:
        """Return a node's name and the identity of its rows of the matrix; None if they have none.

        An inner node is named before anything below it is read, or rows rewritten meanwhile would get a new name that
        promises more than was read. A leaf is named when it is handed out.
        """
        if node.level == 0:
            return self._named_now(node)
        if node not in self._names:
            self._names[node] = self._named_now(node)
        return self._names[node]

    def _named_now(self, node: Node) -> tuple[str, str] | None:
        start, stop = self._rows(node)
        rows = self._source.matrix.identity(start, stop)
        if rows is None:
            return None
        below = self._plan.partitions(node)
        runs = [self._bands[i] for i in below]
        beside = [vector.of(runs) for vector in self._beside]
        if None in beside:
            return None
        # Where partitions begin and end decides the bits too.
        edges = [edge - start for edge in self._bands.edges[below.start : below.stop + 1]]
        return digest(self._common, rows, beside, start, edges), rows

    def order(self, node: Node) -> SaveOrder | None:
        """Return where a node is to be kept, and when; None where its rows have no identity."""
        named = self._name(node)
        if named is None:
            return None
        start, stop = self._rows(node)
        nbytes = self._source.matrix.stored_nbytes(start, stop)
        rules = self._checkpoint
        always = nbytes >= rules.min_bytes and nbytes >= rules.state_ratio * self._state_nbytes
        return SaveOrder(rules.directory, named[0], always, rules.min_seconds, start, stop, named[1])

    def resume(self) -> dict[Node, Part[object]]:
        """Return the topmost nodes whose files are there and sound; damaged ones are named in `notes`."""
        try:
            listing = list_nodes(self._checkpoint.directory)
        except (OSError, ImportError, ValueError) as error:
            self.notes.append(
                f"{self._checkpoint.directory}: checkpoints cannot be read ({type(error).__name__}); starting anew"
            )
            listing = {}
        done: dict[Node, Part[object]] = {}
        stack = [self._plan.root] if listing else []
        while stack:
            node = stack.pop()
            named = self._name(node)
            path = listing.get(named[0]) if named else None
            value = None if path is None else self._load(path)
            if value is None:
                stack.extend(self._plan.children(node))
            else:
                done[node] = Part(value, dropped=self._dropped(node, value))
        for node in self._plan.post_order(skip=done):
            if node.level:
                self._name(node)
        return done

    def _load(self, path: str) -> object | None:
        try:
            value: object = read_node(path)
            return value
        except (OSError, SketchSelectError) as error:
            self.notes.append(f"{path}: damaged checkpoint ({type(error).__name__}), computed anew")
            return None

    def _dropped(self, node: Node, value: object) -> int:
        if self._source.matrix.nonfinite != "drop_rows":
            return 0
        start, stop = self._rows(node)
        return stop - start - int(getattr(value, "n_rows", stop - start))
