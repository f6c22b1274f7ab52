"""The nodes of a pass in a checkpoint: their names, and which of them are there already."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from dask.task_spec import Task

from sketchselect.errors import SketchSelectError
from sketchselect.execution.checkpoints.checkpoint import Checkpoint
from sketchselect.execution.checkpoints.files import list_nodes, read_node
from sketchselect.execution.checkpoints.fingerprint import digest, entries_identity
from sketchselect.execution.graph.passes import Pass, Ready
from sketchselect.execution.graph.tasks import Part, SavedName, SaveRequest, load_part
from sketchselect.execution.graph.tree import Node


class NodeIndex:
    """The checkpoint of one pass.

    A leaf is named by all that decides its bits, its rows as they are when the pass begins included; a merge by the
    names of its children. Rows appended behind leave the names of full nodes as they were. `leaf_key` tells the leaf
    and its parameters from all others, `build` the libraries and processors of the engine.
    """

    def __init__(self, checkpoint: Checkpoint, work: Pass[Any], *, leaf_key: str, build: tuple[str, ...]) -> None:
        self._checkpoint, self._pass, self._tree = checkpoint, work, work.tree
        self._source = source = work.spec.source
        self._common = digest(
            leaf_key,
            source.prepare_labels,
            (source.columns, "float64") if source.in_double else source.columns,
            source.matrix.nonfinite,
            source.matrix.shape[1],
            build,
            work.tree.chain,
            work.tree.fan_in,
        )
        self._names: dict[Node, SavedName] = {}

    def saving(self, ready: Ready, state_nbytes: int) -> Pass[Any]:
        """Return the pass with some nodes ready, and others saved as the rules say for states of these bytes."""
        rules = self._checkpoint
        least = max(rules.min_bytes, rules.state_ratio * state_nbytes)
        spec = replace(self._pass.spec, saving=SaveRequest(os.fspath(rules.directory), least, rules.min_seconds))
        return replace(self._pass, ready=ready, name=self.name, spec=spec)

    def name(self, node: Node) -> SavedName:
        """Return the name of a node's file without digest and ending."""
        for below in self._tree.post_order(node, skip=self._names):
            children = [self._names[child].name for child in self._tree.children(below)]
            self._names[below] = SavedName(digest(self._common, children)) if children else self._leaf_name(below)
        return self._names[node]

    def _leaf_name(self, node: Node) -> SavedName:
        below, partitions, source = self._tree.partitions(node), self._pass.partitions, self._source
        edges = partitions.edges[below.start : below.stop + 1]
        rows = source.matrix.identity(edges[0], edges[-1])
        beside = [entries_identity(v, [partitions[i] for i in below]) for v in (source.target, source.weight)]
        # Where partitions begin and end decides the bits too.
        name = digest(self._common, rows, beside, edges[0], [edge - edges[0] for edge in edges])
        return SavedName(name, None if source.matrix.in_memory or source.matrix.dask_rows() is not None else rows)

    def resume(self, *, by_tasks: bool = False) -> dict[Node, Any]:
        """Return the topmost nodes whose files are there and sound.

        With `by_tasks` the files are verified here and loaded again by the tasks that need them, the root excepted.
        """
        listing = self._listing()
        ready: dict[Node, Any] = {}
        stack = [self._tree.root] if listing else []
        while stack:
            node = stack.pop()
            path = listing.get(self.name(node).name)
            value = None if path is None else self._load(path)
            if value is None:
                stack.extend(self._tree.children(node))
                continue
            covered, dropped = self._covered(node), self._dropped(node, value)
            if by_tasks and node != self._tree.root:
                ready[node] = Task(None, load_part, path, covered, dropped)
            else:
                ready[node] = Part(value, dropped=dropped, covered=covered)
        return ready

    def unread(self, nodes: Iterable[Node]) -> dict[Node, Any]:
        """Return tasks that load those of some nodes whose files are there."""
        listing = self._listing()
        paths = {node: listing.get(self.name(node).name) for node in nodes} if listing else {}
        return {node: Task(None, load_part, path, self._covered(node)) for node, path in paths.items() if path}

    def _listing(self) -> dict[str, str]:
        """Return name -> path of every file in the folder; empty, with a note, where it cannot be listed."""
        directory = self._checkpoint.directory
        try:
            return list_nodes(directory)
        except (OSError, ImportError, ValueError) as error:
            self._pass.progress.note(
                f"{directory}: checkpoints cannot be read ({type(error).__name__}); starting from scratch"
            )
            return {}

    def _covered(self, node: Node) -> int:
        return self._source.matrix.stored_nbytes(*self._pass.rows(node))

    def _dropped(self, node: Node, value: Any) -> int:
        if self._source.matrix.nonfinite != "drop_rows":
            return 0
        start, stop = self._pass.rows(node)
        return stop - start - int(getattr(value, "n_rows", stop - start))

    def _load(self, path: str) -> Any | None:
        try:
            return read_node(path)
        except (OSError, SketchSelectError) as error:
            self._pass.progress.note(f"{path}: damaged checkpoint ({type(error).__name__}), computed again")
            return None
