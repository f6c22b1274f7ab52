"""Where the nodes of a scan are kept: in memory, in a folder that goes away, or under names that later scans find."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from sketchselect.errors import BadParameter, SketchSelectError
from sketchselect.execution.checkpoints.files import list_nodes, read_node
from sketchselect.execution.checkpoints.index import Checkpoint, Ledger
from sketchselect.execution.engine import Engine, Work
from sketchselect.execution.graph.tasks import Part, SaveOrder
from sketchselect.execution.graph.tree import Node, Plan


@dataclass
class NodeStore:
    """The nodes of a scan that its points are made of.

    Parameters
    ----------
    directory : str
        Folder or URL of their files; empty where there are none.
    name : callable
        Node -> name of its file without digest and ending; None where its rows have no identity.
    order : callable
        Node -> where to keep it, or None where nobody will read it.
    done : dict of Node to Part
        Topmost nodes below which every file that will be read is there.
    shelf : dict or None
        States by name, where the process that makes them also takes them up again.
    """

    directory: str
    name: Callable[[Node], str | None]
    order: Callable[[Node], SaveOrder | None]
    done: dict[Node, Part[Any]] = field(default_factory=dict)
    shelf: dict[str, Any] | None = None

    def places(self, nodes: list[list[Node]]) -> tuple[list[list[str]], Callable[[str], Any]]:
        """Return where the nodes of each point are, and what reads a state from there.

        Raises
        ------
        SketchSelectError
            If one of them is nowhere.
        """
        shelf = {} if self.shelf is None else self.shelf
        listing = list_nodes(self.directory) if self.directory else {}
        names = [[self.name(node) or "" for node in some] for some in nodes]
        if not all(name in shelf or name in listing for some in names for name in some):
            raise SketchSelectError(
                f"{self.directory}: states that the scan needs could not be kept there; make room, or give another "
                "folder as checkpoint"
            )
        if self.shelf is None:
            return [[listing[name] for name in some] for some in names], read_node
        return names, Shelved(shelf, listing)


@dataclass(frozen=True)
class Shelved:
    """Reads states by the names of their nodes: from the shelf, or else from a file of an earlier scan."""

    shelf: dict[str, Any]
    listing: dict[str, str]

    def __call__(self, name: str) -> Any:
        """Return the state of a node."""
        return self.shelf[name] if name in self.shelf else read_node(self.listing[name])


@contextmanager
def node_store(
    work: Work[Any],
    needed: set[Node],
    *,
    checkpoint: Checkpoint | None,
    leaf_key: str,
    engine: Engine,
    state_nbytes: int,
    in_memory: bool = False,
) -> Iterator[NodeStore]:
    """Yield where the nodes of a scan are kept.

    Parameters
    ----------
    work : Work
        The pass that makes them.
    needed : set of Node
        Those that will be read. A checkpoint is given all, a temporary folder these only.
    checkpoint : Checkpoint or None
        Folder or URL that stays; None takes memory, or a temporary folder.
    leaf_key, engine, state_nbytes
        As for `reduce_blocks`.
    in_memory : bool
        Whether tasks run in this process, and it has room for the states that will be read.

    Raises
    ------
    BadParameter
        If the workers cannot write there.
    """
    matrix = work.recipe.source.matrix
    if checkpoint is not None and matrix.identity(0, matrix.shape[0]) is None:
        work.progress.note(f"{matrix.address}: nothing is kept, the content of this source has no identity")
        checkpoint = None
    if checkpoint is None:
        below = _below(work.plan, needed)
        shelf: dict[str, Any] | None = {} if in_memory else None
        made = nullcontext("") if in_memory else tempfile.TemporaryDirectory(prefix="sketchselect-scan-")
        with made as folder:

            def name(node: Node) -> str:
                return f"{node.level:02d}-{node.place}"

            def order(node: Node) -> SaveOrder | None:
                if node not in needed:
                    return None
                rows = work.rows(node)
                return SaveOrder(folder, name(node), True, 0.0, *rows, None, False, node in below, shelf)

            if folder:
                _require_writable(engine, folder)
            yield NodeStore(folder, name, order, shelf=shelf)
        return
    _require_writable(engine, checkpoint.directory)
    ledger = ScanLedger(
        # Whatever its size, a node that is not kept would have to be read again.
        _keeping_all(checkpoint),
        work.recipe.source,
        work.partitions,
        work.plan,
        leaf_key=leaf_key,
        build=engine.build(),
        state_nbytes=state_nbytes,
    )
    done = ledger.resume_for(needed)
    for note in ledger.notes:
        work.progress.note(note)
    if not in_memory:
        yield NodeStore(checkpoint.directory, ledger.name, ledger.order, done)
        return
    held: dict[str, Any] = {}

    def also_held(node: Node) -> SaveOrder | None:
        told = ledger.order(node)
        return replace(told, shelf=held) if told is not None and node in needed else told

    yield NodeStore(checkpoint.directory, ledger.name, also_held, done, held)


def _below(plan: Plan, needed: set[Node]) -> set[Node]:
    """Return the nodes that stand below one that is needed: what they find is merged, what others find is not."""
    found, stack = set(), [(plan.root, False)]
    while stack:
        node, is_below = stack.pop()
        if is_below:
            found.add(node)
        stack.extend((child, is_below or node in needed) for child in plan.children(node))
    return found


def _keeping_all(checkpoint: Checkpoint) -> Checkpoint:
    """Return the same place with rules that keep every node."""
    return Checkpoint(checkpoint.directory, min_bytes=0, state_ratio=0.0, min_seconds=0.0)


class ScanLedger(Ledger):
    """A ledger that takes a node for done only if all nodes are there that will be read below it."""

    def name(self, node: Node) -> str | None:
        """Return the name of a node's file without digest and ending."""
        named = self._name(node)
        return None if named is None else named[0]

    def resume_for(self, needed: set[Node]) -> dict[Node, Part[Any]]:
        """Return the topmost nodes below which nothing is missing of what will be read."""
        listing = self._listing()
        whole = set()
        for node in self._plan.post_order() if listing else ():
            below = self._plan.children(node)
            missing = [child for child in below if child not in whole and (child.level or child in needed)]
            if not missing and self.name(node) in listing:
                whole.add(node)
        done: dict[Node, Part[Any]] = {}
        stack = [self._plan.root]
        while stack:
            node = stack.pop()
            value = self._load(listing[self.name(node) or ""]) if node in whole else None
            if value is None:
                stack.extend(self._plan.children(node))
            else:
                done[node] = Part(value, dropped=self._dropped(node, value))
        return done

    def _listing(self) -> dict[str, str]:
        directory = self._checkpoint.directory
        try:
            return list_nodes(directory)
        except (OSError, ImportError, ValueError) as error:
            self.notes.append(f"{directory}: checkpoints cannot be read ({type(error).__name__}); starting anew")
            return {}


def _require_writable(engine: Engine, directory: str) -> None:
    if not engine.can_write(directory):
        raise BadParameter(
            f"{directory}: the workers cannot write there; give as checkpoint a folder or URL that this process and "
            "every worker can write in"
        )
