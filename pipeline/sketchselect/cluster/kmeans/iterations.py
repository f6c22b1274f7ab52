"""The state after each iteration of k-means, saved in a checkpoint: a run that is killed goes on from its last one."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from sketchselect._progress import Progress
from sketchselect.errors import SketchSelectError
from sketchselect.execution.checkpoints.checkpoint import (
    Checkpoint,
    entries_identity,
    list_nodes,
    read_node,
    write_node,
)
from sketchselect.execution.source import Source
from sketchselect.linalg.hashing import fingerprint
from sketchselect.location import location_of
from sketchselect.summaries import CentroidSums

KEEP_SECONDS = 1.0
"""Work that makes a state worth a file: iterations faster than this are saved once in a while."""


class Iterations:
    """The files of one start: the latest sums, from which the centres that follow are computed again to the bit.

    `checkpoint`: Where they are; None saves nothing.
    `source`: Whose rows are clustered; without an identity of its content nothing is saved.
    `settings`: All that decides the bits beside the source: parameters, seed, partitions, build.
    `progress`: What faults are reported to.
    """

    def __init__(
        self, checkpoint: Checkpoint | None, source: Source, settings: tuple[Any, ...], progress: Progress
    ) -> None:
        self._progress = progress
        self._directory: str | None = None
        self._saved: str | None = None
        self._last = time.monotonic()
        if checkpoint is None:
            return
        rows = source.matrix.identity(0, source.n_rows)
        if rows is None or (source.weight is not None and source.weight.identity() is None):
            progress.note(f"{source.matrix.address}: iterations are not saved, its content has no identity")
            return
        self._directory = os.fspath(checkpoint.directory)
        weights = entries_identity(source.weight, [(0, source.n_rows)])
        beside = (source.prepare_labels, source.columns, source.matrix.nonfinite, source.matrix.shape[1])
        self._key = fingerprint("k-means iterations", rows, weights, beside, settings)

    def _name(self, iteration: int) -> str:
        return fingerprint(self._key, iteration)

    def resume(self, most: int, n_features: int) -> tuple[int, CentroidSums] | None:
        """Return the latest iteration that is there, at most `most`, and its sums; None where there is none.

        Iteration 0 are the first centres: sums of no rows.
        """
        if self._directory is None:
            return None
        try:
            listing = list_nodes(self._directory)
        except (OSError, ImportError, ValueError) as error:
            self._progress.note(
                f"{self._directory}: checkpoints cannot be read ({type(error).__name__}); starting from the beginning"
            )
            return None
        for iteration in range(most if listing else -1, -1, -1):
            path = listing.get(self._name(iteration))
            if path is None:
                continue
            try:
                sums = read_node(path)
            except (OSError, SketchSelectError) as error:
                self._progress.note(f"{path}: damaged checkpoint ({type(error).__name__}), computed again")
                continue
            if isinstance(sums, CentroidSums) and sums.n_features == n_features and sums.centers is not None:
                self._saved = path
                return iteration, sums
        return None

    def keep(self, iteration: int, sums: CentroidSums) -> None:
        """Write the state after an iteration, if enough was done since the last one, and remove that."""
        if self._directory is None or time.monotonic() - self._last < KEEP_SECONDS:
            return
        name = self._name(iteration)
        trouble = write_node(sums, self._directory, name)
        self._last = time.monotonic()
        if trouble is not None:
            self._progress.note(trouble)
            self._directory = None
            return
        before, self._saved = self._saved, list_nodes(f"{self._directory}/{name[:2]}").get(name)
        if before is not None and before != self._saved:
            with contextlib.suppress(OSError):
                location_of(before).remove()
