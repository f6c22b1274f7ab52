"""All prefixes, or all windows, of a source in one graph: further outputs on the nodes of the merge tree.

Every point's rows are made of a few full nodes of the tree; what is computed of a point is all that comes back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from sketchselect.errors import BadParameter, DamagedFile
from sketchselect.execution.graph.passes import Pass
from sketchselect.execution.graph.points import ScanPass, ScanTree
from sketchselect.execution.graph.tasks import PassSpec
from sketchselect.execution.graph.tree import BIG_STATE_FAN_IN, BIG_STATE_NBYTES, FAN_IN
from sketchselect.execution.options import PassOptions
from sketchselect.execution.projection import projection, require_fit
from sketchselect.execution.run import (
    PassStats,
    node_index,
    pass_stats,
    require_unchanged,
    run_pass,
    source_identities,
    source_partitions,
)
from sketchselect.execution.source import Source
from sketchselect.execution.summarize import SummariseBlock, merge_summaries, source_for, summary_key
from sketchselect.linalg.validation import require_positive
from sketchselect.readers.base import Partitions
from sketchselect.readers.partitions import DEFAULT_PARTITION_BYTES
from sketchselect.summaries import Summary

T = TypeVar("T")

LEAST_POINTS = 16
"""Points of a scan that is asked for none, where the rows can be cut into that many partitions."""

_MOST_PARTITIONS = 1024


@dataclass(frozen=True)
class Scanned(Generic[T]):
    """The values of a scan, one for each point, the rows that each is of, and the account of the pass."""

    values: list[T]
    spans: list[tuple[int, int]]
    stats: PassStats


def scan_source(
    source: Source,
    description: Summary[Any],
    finish: Callable[[Summary[Any]], T],
    options: PassOptions,
    *,
    points: int | None = None,
    window: int | None = None,
    stage: str = "scan",
) -> Scanned[T]:
    """Return ``finish(summary)`` of the rows up to the end of every partition, or of a window that ends there.

    Every summary is the merge, from left to right, of O(log n) nodes of the tree over partitions: the same bits on
    every engine. Exact summaries equal those of the rows read one after the other to rounding, sketches within their
    guarantee.

    The source has fitted prepare steps; `finish` is pure and picklable, its result small, and it may see the summary of
    no rows. `points` are that many partition ends, evenly spaced, the last among them, or all of them; a `window` is
    rounded up to whole partitions (at the beginning of the source there are fewer). With a checkpoint the states of all
    nodes are saved, whatever their size, so that a later scan reads only partitions that are new. By default partitions
    are small enough for the points and the window (`scan_partitions`).
    Raises `BadParameter` for points or a window that are not positive; where the workers cannot write in the
    checkpoint's folder; `WillNotFit` or `EmptyInput` or `SourceChanged` or `PartitionFailed` or `SketchSelectError` as
    in `reduce_blocks`.
    """
    began = time.perf_counter()
    scan = scan_pass(source, description, finish, options, points=points, window=window, stage=stage)
    work: Pass[Any] = scan
    source = work.spec.source
    require_fit(work.projected, options.engine.memory_limit, source.matrix.address)
    before = source_identities(source)
    index = None
    if options.checkpoint is not None:
        # Whatever its size, a node that is not saved would have to be read again.
        everything = replace(options.checkpoint, min_bytes=0, state_ratio=0.0, min_seconds=0.0)
        index = node_index(work, options.but(checkpoint=everything), summary_key(description))
    if index is not None:
        if not options.engine.can_write(index.directory):
            raise BadParameter(
                f"{index.directory}: the workers cannot write there; give as checkpoint a folder or URL "
                "that this process and every worker can write in"
            )
        work = index.saving(index.unread(scan.tree.needed), state_nbytes=0)
    try:
        ran = run_pass(work, options, index)
    except DamagedFile as error:
        # A file of an earlier scan, which was not read until now.
        work.progress.note(f"{error}; everything is computed again")
        work = replace(work, ready={})
        ran = run_pass(work, options, index)
    require_unchanged(before, source)
    edges = work.partitions.edges
    stats = pass_stats(work, ran, began)
    if options.account is not None:
        options.account(stats)
    return Scanned(ran.output.value, [(edges[a], edges[b]) for a, b in scan.tree.points], stats)


def scan_pass(
    source: Source,
    description: Summary[Any],
    finish: Callable[[Summary[Any]], Any],
    options: PassOptions,
    *,
    points: int | None = None,
    window: int | None = None,
    stage: str = "scan",
) -> ScanPass:
    """Return the pass of a scan, cut and projected; nothing is read. Parameters are those of `scan_source`."""
    source = source_for(source, description)
    state = description.projected_nbytes(source.n_columns, source.n_targets)
    working = description.working_nbytes(source.n_columns, source.n_targets)
    points, window = _positive("points", points), _positive("window", window)
    partitions = scan_partitions(source, options.partition_bytes, points, window)
    tree = ScanTree(
        len(partitions),
        fan_in=FAN_IN if state <= BIG_STATE_NBYTES else BIG_STATE_FAN_IN,
        points=tuple(point_spans(partitions, points, window)),
    )
    # Nodes at both ends of a point's rows wait for other points.
    waiting = 2 * tree.depth * (tree.fan_in - 1) * state
    projected = projection(
        source,
        partitions,
        tree,
        state_nbytes=state,
        working_nbytes=working,
        caller_nbytes=waiting,
        engine=options.engine,
    )
    return ScanPass(
        PassSpec(source, SummariseBlock(description), merge_summaries, options.retries),
        tree,
        partitions,
        options.progress,
        projected,
        stage=stage,
        stall_timeout=options.stall_timeout,
        finish=finish,
    )


def scan_partitions(
    source: Source, partition_bytes: int | str | None, points: int | None, window: int | None
) -> Partitions:
    """Return how the rows are cut: where no size is asked for, fine enough for the points and the window.

    The usual size is halved until it is, so that appended rows move an earlier edge only when they double the source;
    not beyond where chunks would be decoded again and again, or a window would cost a thousand states.
    """
    partitions = source_partitions(source, partition_bytes)
    size, least = DEFAULT_PARTITION_BYTES, points or LEAST_POINTS
    while partition_bytes is None and size > 1 and len(partitions) < source.n_rows:
        tallest = int(np.diff(partitions.edges).max())
        if len(partitions) >= least and (window is None or tallest <= window or len(partitions) >= _MOST_PARTITIONS):
            break
        size //= 2
        try:
            partitions = source_partitions(source, size)
        except BadParameter:
            break
    return partitions


def point_spans(partitions: Partitions, points: int | None, window: int | None) -> list[tuple[int, int]]:
    """Return for every point the partitions that count there, ``(first, stop)``, in order."""
    n = len(partitions)
    stops = range(1, n + 1) if points is None else sorted({-(-n * i // points) for i in range(1, points + 1)})
    if window is None:
        return [(0, stop) for stop in stops]
    edges = np.asarray(partitions.edges)
    firsts = [int(np.searchsorted(edges, max(edges[stop] - window, 0), side="right")) - 1 for stop in stops]
    return list(zip(firsts, stops, strict=True))


def _positive(name: str, value: Any) -> int | None:
    return None if value is None else require_positive(name, value)
