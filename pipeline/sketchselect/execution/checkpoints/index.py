"""The nodes of a pass in a checkpoint: their names, and which of them are there already."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sketchselect.errors import SketchSelectError
from sketchselect.execution.checkpoints.checkpoint import Checkpoint
from sketchselect.execution.checkpoints.files import list_nodes, read_node
from sketchselect.execution.checkpoints.fingerprint import VectorIdentity, digest
from sketchselect.execution.graph.tasks import Part, SavedName, SaveRequest, loading_task
from sketchselect.execution.graph.tree import MergeTree, Node
from sketchselect.execution.source import Source
from sketchselect.readers.base import Partitions


class NodeIndex:
    """The checkpoint of one pass.

    A leaf is named by all that decides its bits, its rows as they are when the pass begins included; a merge by the
    names of its children. Rows appended behind leave the names of full nodes as they were. `leaf_key` tells the leaf
    and its parameters from all others, `build` the libraries and processors of the engine.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        source: Source,
        partitions: Partitions,
        tree: MergeTree,
        *,
        leaf_key: str,
        build: tuple[str, ...],
    ) -> None:
        self._checkpoint = checkpoint
        self._source = source
        self._partitions = partitions
        self._tree = tree
        self._common = digest(
            leaf_key,
            source.prepare_labels,
            source.columns,
            source.matrix.nonfinite,
            source.matrix.shape[1],
            build,
            tree.chain,
            tree.fan_in,
        )
        self._names: dict[Node, SavedName | None] = {}
        self._beside = [VectorIdentity(source.target), VectorIdentity(source.weight)]
        self.notes: list[str] = []

    def saving(self, state_nbytes: int) -> SaveRequest:
        """Return where nodes are saved, and when: states of so many bytes."""
        rules = self._checkpoint
        return SaveRequest(rules.directory, max(rules.min_bytes, rules.state_ratio * state_nbytes), rules.min_seconds)

    def name(self, node: Node) -> SavedName | None:
        """Return the name of a node's file without digest and ending; None where its rows have no identity."""
        for below in self._tree.post_order(node, skip=self._names):
            self._names[below] = self._merge_name(below) if below.level else self._leaf_name(below)
        return self._names[node]

    def _merge_name(self, node: Node) -> SavedName | None:
        names = [self._names[child] for child in self._tree.children(node)]
        if None in names:
            return None
        return SavedName(digest(self._common, [name.name for name in names if name is not None]))

    def _leaf_name(self, node: Node) -> SavedName | None:
        below = self._tree.partitions(node)
        edges = self._partitions.edges[below.start : below.stop + 1]
        matrix = self._source.matrix
        rows = matrix.identity(edges[0], edges[-1])
        beside = [vector.of([self._partitions[i] for i in below]) for vector in self._beside]
        if rows is None or None in beside:
            return None
        # Where partitions begin and end decides the bits too.
        name = digest(self._common, rows, beside, edges[0], [edge - edges[0] for edge in edges])
        return SavedName(name, None if matrix.in_memory or matrix.dask_rows() is not None else rows)

    def resume(self, *, by_tasks: bool = False) -> dict[Node, Any]:
        """Return the topmost nodes whose files are there and sound; damaged ones are named in `notes`.

        With `by_tasks` the files are verified here and loaded again by the tasks that need them, the root excepted.
        """
        listing = self.listing()
        ready: dict[Node, Any] = {}
        stack = [self._tree.root] if listing else []
        while stack:
            node = stack.pop()
            name = self.name(node)
            value = None if name is None or name.name not in listing else self._load(listing[name.name])
            if name is None or value is None:
                stack.extend(self._tree.children(node))
                continue
            covered, dropped = self.covered(node), self.dropped(node, value)
            if by_tasks and node != self._tree.root:
                ready[node] = loading_task(listing[name.name], covered, dropped)
            else:
                ready[node] = Part(value, dropped=dropped, covered=covered)
        return ready

    def paths(self, nodes: Iterable[Node]) -> dict[Node, str]:
        """Return the files of those nodes that are there, unread."""
        listing = self.listing()
        names = {node: self.name(node) for node in nodes} if listing else {}
        return {node: listing[name.name] for node, name in names.items() if name and name.name in listing}

    def listing(self) -> dict[str, str]:
        """Return name -> path of every file in the folder; empty, with a note, where it cannot be listed."""
        directory = self._checkpoint.directory
        try:
            return list_nodes(directory)
        except (OSError, ImportError, ValueError) as error:
            self.notes.append(
                f"{directory}: checkpoints cannot be read ({type(error).__name__}); starting from scratch"
            )
            return {}

    def covered(self, node: Node) -> int:
        """Return the bytes as stored of the rows below a node."""
        below = self._tree.partitions(node)
        edges = self._partitions.edges
        return self._source.matrix.stored_nbytes(edges[below.start], edges[below.stop])

    def dropped(self, node: Node, value: Any) -> int:
        """Return the rows below a node that the policy for non-finite values left out of its state."""
        if self._source.matrix.nonfinite != "drop_rows":
            return 0
        below = self._tree.partitions(node)
        n_rows = self._partitions.edges[below.stop] - self._partitions.edges[below.start]
        return n_rows - int(getattr(value, "n_rows", n_rows))

    def _load(self, path: str) -> Any | None:
        try:
            return read_node(path)
        except (OSError, SketchSelectError) as error:
            self.notes.append(f"{path}: damaged checkpoint ({type(error).__name__}), computed again")
            return None
