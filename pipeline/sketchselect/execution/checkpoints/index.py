"""The nodes of a pass in a checkpoint: their names, and which of them are there already."""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from dask.task_spec import Task

from sketchselect.errors import SketchSelectError
from sketchselect.execution.checkpoints.checkpoint import Checkpoint, entries_identity, list_nodes, read_node
from sketchselect.execution.graph.passes import Pass, Ready
from sketchselect.execution.graph.tasks import Part, SavedName, load_part
from sketchselect.execution.graph.tree import Node
from sketchselect.linalg.hashing import fingerprint


class NodeIndex:
    """The checkpoint of one pass.

    A leaf is named by all that decides its bits, its rows as they are when the pass begins included; a merge by the
    names of its children. Rows appended behind leave the names of full nodes as they were. `leaf_key` tells the leaf
    and its parameters from all others, `build` the libraries and processors of the engine.
    """

    def __init__(self, checkpoint: Checkpoint, work: Pass[Any], *, leaf_key: str, build: tuple[str, ...]) -> None:
        self.directory, self._checkpoint = os.fspath(checkpoint.directory), checkpoint
        self._pass, self._tree = work, work.tree
        self._source = source = work.spec.source
        self._common = fingerprint(
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
        least = math.ceil(max(rules.min_bytes, rules.state_ratio * state_nbytes))
        spec = replace(self._pass.spec, saving=replace(rules, min_bytes=least))
        return replace(self._pass, ready=ready, name=self.name, spec=spec)

    def name(self, node: Node) -> SavedName:
        """Return the name of a node's file without digest and ending."""
        for below in self._tree.post_order(node, skip=self._names):
            children = [self._names[child].name for child in self._tree.children(below)]
            self._names[below] = SavedName(fingerprint(self._common, children)) if children else self._leaf_name(below)
        return self._names[node]

    def _leaf_name(self, node: Node) -> SavedName:
        below, partitions, source = self._tree.partitions(node), self._pass.partitions, self._source
        edges = partitions.edges[below.start : below.stop + 1]
        rows = source.matrix.identity(edges[0], edges[-1])
        beside = [entries_identity(v, [partitions[i] for i in below]) for v in (source.target, source.weight)]
        # Where partitions begin and end decides the bits too.
        name = fingerprint(self._common, rows, beside, edges[0], [edge - edges[0] for edge in edges])
        return SavedName(name, None if source.matrix.in_memory or source.matrix.dask_rows() is not None else rows)

    def resume(self, *, by_tasks: bool = False) -> dict[Node, Any]:
        """Return the topmost nodes whose files are there and sound.

        With `by_tasks` the files are verified here and loaded again by the tasks that need them, the root excepted.
        """
        listing = self._listing()
        return self._tree.topmost(functools.partial(self._sound, listing, by_tasks)) if listing else {}

    def n_saved(self) -> int:
        """Return the number of partitions below the nodes that have files now."""
        listing = self._listing()
        saved = self._tree.topmost(lambda node: listing.get(self.name(node).name)) if listing else {}
        return sum(len(self._tree.partitions(node)) for node in saved)

    def unread(self, nodes: Iterable[Node]) -> dict[Node, Any]:
        """Return tasks that load those of some nodes whose files are there."""
        listing = self._listing()
        paths = {node: listing.get(self.name(node).name) for node in nodes} if listing else {}
        return {node: Task(None, load_part, path, self._covered(node)) for node, path in paths.items() if path}

    def _listing(self) -> dict[str, str]:
        """Return name -> path of every file in the folder; empty, with a note, where it cannot be listed."""
        try:
            return list_nodes(self.directory)
        except (OSError, ImportError, ValueError) as error:
            self._pass.progress.note(
                f"{self.directory}: checkpoints cannot be read ({type(error).__name__}); starting from scratch"
            )
            return {}

    def _covered(self, node: Node) -> int:
        return self._source.matrix.stored_nbytes(*self._pass.rows(node))

    def _sound(self, listing: dict[str, str], by_tasks: bool, node: Node) -> Any | None:
        """Return a node whose file is there and sound, or the task that loads it."""
        path = listing.get(self.name(node).name)
        if path is None:
            return None
        try:
            value = read_node(path)
        except (OSError, SketchSelectError) as error:
            self._pass.progress.note(f"{path}: damaged checkpoint ({type(error).__name__}), computed again")
            return None
        with contextlib.suppress(OSError):  # a URL, or not ours to touch
            os.utime(path)  # used, so not old
        covered, dropped = self._covered(node), 0
        if self._source.matrix.nonfinite == "drop_rows":
            start, stop = self._pass.rows(node)
            dropped = stop - start - int(getattr(value, "n_rows", stop - start))
        if by_tasks and node != self._tree.root:
            return Task(None, load_part, path, covered, dropped)
        return Part(value, dropped=dropped, covered=covered)
