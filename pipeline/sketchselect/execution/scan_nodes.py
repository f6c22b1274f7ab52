"""Where the nodes of a scan are kept: under names that later scans find, or in a folder that goes away."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sketchselect.errors import BadParameter
from sketchselect.execution.checkpoint import Checkpoint, Ledger
from sketchselect.execution.engine import Engine, Work
from sketchselect.execution.nodefiles import list_nodes
from sketchselect.execution.plan import Node
from sketchselect.execution.tasks import Part, SaveOrder


@dataclass
class NodeStore:
    """The files of a scan's nodes.

    Parameters
    ----------
    directory : str
        Folder or URL.
    name : callable
        Node -> name of its file without digest and ending; None where its rows have no identity.
    order : callable
        Node -> where to keep it, or None where nobody will read it.
    done : dict of Node to Part
        Topmost nodes below which every file that will be read is there.
    """

    directory: str
    name: Callable[[Node], str | None]
    order: Callable[[Node], SaveOrder | None]
    done: dict[Node, Part[Any]] = field(default_factory=dict)


@contextmanager
def node_store(
    work: Work[Any],
    needed: set[Node],
    *,
    checkpoint: Checkpoint | None,
    leaf_key: str,
    engine: Engine,
    state_nbytes: int,
) -> Iterator[NodeStore]:
    """Yield where the nodes of a scan are kept.

    Parameters
    ----------
    work : Work
        The pass that makes them.
    needed : set of Node
        Those that will be read. A checkpoint is given all, a temporary folder these only.
    checkpoint : Checkpoint or None
        Folder or URL that stays; None takes a temporary folder.
    leaf_key, engine, state_nbytes
        As for `reduce_blocks`.

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
        with tempfile.TemporaryDirectory(prefix="sketchselect-scan-") as folder:

            def name(node: Node) -> str:
                return f"{node.level:02d}-{node.place}"

            def order(node: Node) -> SaveOrder | None:
                return SaveOrder(folder, name(node), True, 0.0, *work.rows(node), None) if node in needed else None

            _require_writable(engine, folder)
            yield NodeStore(folder, name, order)
        return
    _require_writable(engine, checkpoint.directory)
    ledger = ScanLedger(
        # Whatever its size, a node that is not kept would have to be read again.
        _keeping_all(checkpoint),
        work.recipe.source,
        work.bands,
        work.plan,
        leaf_key=leaf_key,
        build=engine.build(),
        state_nbytes=state_nbytes,
    )
    done = ledger.resume_for(needed)
    for note in ledger.notes:
        work.progress.note(note)
    yield NodeStore(checkpoint.directory, ledger.name, ledger.order, done)


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
