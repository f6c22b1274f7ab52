"""Timeline of a selection: scores and supports along the rows, computed in one pass.

The points of a scan are prefixes or windows of the partitions: further outputs on the nodes of one merge tree. The rows
of a point are those of a few full nodes, and only what is computed from them comes back.
"""

from __future__ import annotations

import copy
import os
import warnings
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from sketchselect import prepare as steps
from sketchselect._sklearn import clone
from sketchselect._text import counted, did_you_mean, first_names, html_table
from sketchselect.errors import BadParameter, DamagedFile, EmptyInput, SourceError
from sketchselect.execution import Checkpoint, Progress, Reduction, Statistics, make_progress, open_engine
from sketchselect.execution.checkpoints import as_checkpoint
from sketchselect.execution.engine import PassOptions, run_plan, source_identities, source_partitions, with_nodes
from sketchselect.execution.plan import Plan, projection, require_fit
from sketchselect.execution.points import ScanPlan, ScanTree
from sketchselect.execution.source import Source
from sketchselect.execution.summarize import SummariseBlock, fitted_source, merge_summaries, source_for, summary_key
from sketchselect.execution.tasks import TaskContext
from sketchselect.execution.tree import BIG_STATE_FAN_IN, BIG_STATE_NBYTES, FAN_IN
from sketchselect.linalg.validation import Floats, require_positive
from sketchselect.plots import TimelineDisplay
from sketchselect.readers import open_matrix, open_vector
from sketchselect.readers.base import DEFAULT_PARTITION_BYTES, MAX_READ_AMPLIFICATION, Partitions, Vector
from sketchselect.readers.opening import local_names
from sketchselect.readers.tables import times_of
from sketchselect.selectors.base import BaseSelector, rank
from sketchselect.summaries import Summary

T = TypeVar("T")


LEAST_POINTS = 16
"""Default number of points of a scan, if the rows can be cut into as many partitions."""

_MOST_PARTITIONS = 1024


PERIODS = ("day", "week", "month", "year")
"""Periods of dates; weeks begin on Monday."""

MOST_DECODED = 16 << 30
"""Bytes that may be decoded where chunks are much longer than periods: some seconds of a processor."""

_READ_DATES = 1 << 18


@dataclass(frozen=True)
class Periods:
    """Runs of rows of one day, week, month or year; periods without rows are not among them."""

    first_days: NDArray[np.datetime64]  # shape (n_periods,)
    edges: tuple[int, ...]  # Row indices, n_periods + 1
    length: str  # One of `PERIODS`

    @classmethod
    def of(cls, dates: Vector, period: str) -> Periods:
        """Return the periods of rows in the order of time.

        Raises `BadParameter` for another `period`, or where a row is of an earlier period than the row before, and
        `SourceError` where one has no date; the row is named.
        """
        if period not in PERIODS:
            raise BadParameter(f"timeline: period must be one of {', '.join(map(repr, PERIODS))}, got {period!r:.40}")
        edges, firsts = list[int](), list[NDArray[np.datetime64]]()
        if len(dates.shape) == 2 and dates.shape[1] != 1:
            raise SourceError(f"timeline: {dates.address}: {dates.shape[1]} columns; a row has one date")
        last = np.datetime64("-9999-01-01", "D")  # before all that are read
        for a in range(0, dates.n_rows, _READ_DATES):
            entries = np.ravel(dates.read(a, min(a + _READ_DATES, dates.n_rows)))
            days = _first_days(times_of(entries, dates.address, a), period)
            before = np.concatenate([[last], days[:-1]])
            if (back := days < before).any():
                row = a + int(back.argmax())
                raise BadParameter(
                    f"timeline: {dates.address}: row {row} is of an earlier {period} than the row before; sort the "
                    "rows by date first"
                )
            begins = np.flatnonzero(days != before)
            edges += (a + begins).tolist()
            firsts.append(days[begins])
            last = days[-1]
        return cls(np.concatenate(firsts), (*edges, dates.n_rows), period)

    def partitions(self, source: Source, partition_bytes: int | str | None) -> Partitions:
        """Return partitions within periods; raise `BadParameter` where periods are much shorter than stored chunks."""
        matrix = source.matrix
        height = int(np.diff(source_partitions(source, partition_bytes).edges).max())
        edges = [0]
        for stop in self.edges[1:]:
            edges += [*range(edges[-1] + height, stop, height), stop]
        chunk = matrix.chunk_rows
        starts, stops = np.asarray(edges[:-1]), np.asarray(edges[1:])
        if matrix.chunk_edges:
            chunks = np.asarray(matrix.chunk_edges)
            first = chunks[np.searchsorted(chunks, starts, side="right") - 1]
            last = chunks[np.searchsorted(chunks, stops)]
        else:
            # Not listed: a chunk may be one row.
            first, last = starts // chunk * chunk, np.minimum(-(-stops // chunk) * chunk, source.n_rows)
        decoded = int((last - first).sum())
        nbytes = decoded * matrix.shape[1] * matrix.dtype.itemsize
        if decoded > MAX_READ_AMPLIFICATION * source.n_rows and nbytes > MOST_DECODED:
            raise BadParameter(
                f"{matrix.address}: chunks (or row groups) of {chunk} rows are much longer than a period, and all rows "
                f"would be decoded {decoded / source.n_rows:.0f} times; take a longer period, or store the rows in "
                "shorter chunks"
            )
        return Partitions(tuple(edges), decoded / source.n_rows)

    def spans(self, partitions: Partitions, points: int | None, window: int | None) -> list[tuple[int, int]]:
        """Return for every point, at ends of periods, the partitions of the last `window` periods, or of all."""
        ends = np.searchsorted(partitions.edges, self.edges)
        n = len(self.first_days)
        stops = _ends(n, points)
        return [(0 if window is None else int(ends[max(i - window, 0)]), int(ends[i])) for i in stops]

    def at(self, stops: NDArray[np.int64]) -> NDArray[np.datetime64]:
        """Return the first day of the last period of each point, from the row after its last row."""
        return self.first_days[np.searchsorted(self.edges, stops) - 1]


def _first_days(times: Any, period: str) -> Any:
    """Return the first day of the period of each time."""
    days = times.astype("datetime64[D]")
    if period == "week":
        return days - ((days.astype(np.int64) + 3) % 7).astype("timedelta64[D]")  # 1970-01-01 was a Thursday
    return days if period == "day" else days.astype(f"datetime64[{period[0].upper()}]").astype("datetime64[D]")


@dataclass(frozen=True)
class Scanned(Generic[T]):
    """The values of a scan, their rows, and the statistics of the pass."""

    values: list[T]
    spans: list[tuple[int, int]]
    stats: Statistics


def scan_source(
    source: Source,
    description: Summary[Any],
    finish: Callable[[Summary[Any]], T],
    options: PassOptions,
    *,
    points: int | None = None,
    window: int | None = None,
    periods: Periods | None = None,
    stage: str = "scan",
) -> Scanned[T]:
    """Return ``finish(summary)`` of the rows up to the end of every partition, or of a window that ends there.

    Every summary is the merge, from left to right, of O(log n) nodes of the tree over partitions: the same bits on
    every engine. Exact summaries equal those of the rows read one after the other to rounding, sketches within their
    guarantee.

    The source has fitted prepare steps; `finish` is pure and picklable, its result small, and it may see the summary of
    no rows. `points` are that many partition ends, evenly spaced and with the last, or all partition ends; a `window`
    is rounded up to whole partitions (at the beginning of the source there are fewer); with `periods` points are at
    ends of these, and a window is of so many of them. With a checkpoint the states of
    all nodes are saved, whatever their size, so that a later scan reads only partitions that are new. By default
    partitions are small enough for the points and the window (`scan_partitions`).
    Raises `BadParameter` for points or a window that are not positive; where the workers cannot write in the
    checkpoint's folder; `WillNotFit` or `EmptyInput` or `SourceChanged` or `PartitionFailed` or `SketchSelectError` as
    in `reduce_blocks`.
    """
    where: dict[str, Any] = {"points": points, "window": window, "periods": periods}
    scan = scan_plan(source, description, finish, options, **where, stage=stage)
    plan: Plan[Any] = scan
    source = plan.source
    require_fit(plan.projected, options.engine.memory_limit, source.matrix.address)
    before = source_identities(source)
    if options.checkpoint is not None:
        # A node that is not saved, of any size, would have to be read again.
        everything = replace(options.checkpoint, min_bytes=0, state_ratio=0.0, min_seconds=0.0)
        plan = with_nodes(plan, options.but(checkpoint=everything), summary_key(description), before)
    if (nodes := plan.nodes) is not None:
        if not options.engine.can_write(nodes.directory):
            raise BadParameter(
                f"{nodes.directory}: the workers cannot write there; give as checkpoint a folder or URL "
                "that this process and every worker can write in"
            )
        plan = replace(plan.saving(), ready=nodes.unread(scan.tree.needed))
    try:
        result = run_plan(plan, options.engine, before)
    except DamagedFile as error:
        # A file of an earlier scan, which was not read until now.
        plan.progress.note(f"{error}; everything is computed again")
        result = run_plan(replace(plan, ready={}), options.engine, before)
    edges = plan.partitions.edges
    if options.on_statistics is not None:
        options.on_statistics(result.stats)
    return Scanned(result.value, [(edges[a], edges[b]) for a, b in scan.tree.points], result.stats)


def scan_plan(
    source: Source,
    description: Summary[Any],
    finish: Callable[[Summary[Any]], Any],
    options: PassOptions,
    *,
    points: int | None = None,
    window: int | None = None,
    periods: Periods | None = None,
    stage: str = "scan",
) -> ScanPlan:
    """Return the pass of a scan, cut and projected; nothing is read. Parameters are those of `scan_source`."""
    source = source_for(source, description)
    state = description.projected_nbytes(source.n_columns, source.n_targets)
    working = description.working_nbytes(source.n_columns, source.n_targets)
    points, window = _positive("points", points), _positive("window", window)
    if periods is None:
        partitions = scan_partitions(source, options.partition_bytes, points, window)
        spans = point_spans(partitions, points, window)
    else:
        partitions = periods.partitions(source, options.partition_bytes)
        spans = periods.spans(partitions, points, window)
    tree = ScanTree(
        len(partitions), fan_in=FAN_IN if state <= BIG_STATE_NBYTES else BIG_STATE_FAN_IN, points=tuple(spans)
    )
    # Nodes at both ends of a point's rows are kept for other points.
    waiting = 2 * tree.depth * (tree.fan_in - 1) * state
    reduction = Reduction(
        SummariseBlock(description),
        merge_summaries,
        stage,
        state_nbytes=state,
        working_nbytes=working,
        caller_nbytes=waiting,
    )
    return ScanPlan(
        TaskContext(source, reduction, options.retries),
        tree,
        partitions,
        options.progress,
        projection(source, partitions, tree, reduction, options.engine),
        stall_timeout=options.stall_timeout,
        finish=finish,
    )


def scan_partitions(
    source: Source, partition_bytes: int | str | None, points: int | None, window: int | None
) -> Partitions:
    """Return how the rows are cut: by default fine enough for the points and the window.

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


def _ends(n_parts: int, points: int | None) -> Sequence[int]:
    """Return so many ends of parts, evenly spaced and with the last; all ends where there are no more."""
    if points is None or points >= n_parts:
        return range(1, n_parts + 1)
    return [-(-n_parts * i // points) for i in range(1, points + 1)]


def point_spans(partitions: Partitions, points: int | None, window: int | None) -> list[tuple[int, int]]:
    """Return for every point the partitions that count there, ``(first, stop)``, in order."""
    n = len(partitions)
    stops = _ends(n, points)
    if window is None:
        return [(0, stop) for stop in stops]
    edges = partitions.edges  # Whole numbers of Python, which a long window does not overflow
    firsts = [bisect_right(edges, max(edges[stop] - window, 0)) - 1 for stop in stops]
    return list(zip(firsts, stops, strict=True))


def _positive(name: str, value: Any) -> int | None:
    return None if value is None else require_positive(name, value)


@dataclass(frozen=True, eq=False)
class Timeline:
    """Scores and selections along the rows.

    Parameters
    ----------
    method : str
        Name of the method, as in a job file.
    rows : array of int, shape (n_points,)
        Global index after the last row that counts at each point, ascending.
    starts : array of int, shape (n_points,)
        Global index of the first row that counts: all 0, unless there is a window.
    scores : array of float, shape (n_points, n_features)
        NaN at a point without rows that count (all dropped, or of weight 0).
    supports : list of arrays of int
        Selected columns at each point, ascending.
    feature_names : tuple of str or None
        Names of all columns.
    dates, period : array of dates, shape (n_points,), and str; or None
        First day of the period that each point is the end of, and the length of the periods.

    Examples
    --------
    >>> import sketchselect as sks
    >>> from sklearn.datasets import make_blobs
    >>> X, _ = make_blobs(200, 6, centers=3, random_state=0)
    >>> timeline = sks.timeline(X, sks.VarianceSelector(2))
    >>> timeline.rows.size, int(timeline.rows[-1]), timeline.scores.shape
    (20, 200, (20, 6))
    """

    method: str
    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    scores: Floats
    supports: list[NDArray[np.int64]]
    feature_names: tuple[str, ...] | None = None
    dates: NDArray[np.datetime64] | None = None
    period: str | None = None

    def __repr__(self) -> str:
        points, columns = self.scores.shape
        end = f"row {int(self.rows[-1])}" if self.dates is None else str(self.dates[-1])
        return f"<Timeline of {columns} columns by {self.method} at {points} points up to {end}>"

    def plot(self, ax: Any = None) -> Any:
        """Draw the ranks of the columns that moved most on `ax` (new axes by default); return the axes."""
        return TimelineDisplay.from_timeline(self, ax=ax).ax_

    def _repr_html_(self) -> str:
        names = self.feature_names
        moved = [*self.risers(5).tolist(), *self.fallers(5).tolist()]
        rows = [[j if names is None else names[j], *(int(self.ranks[t, j]) for t in (0, -1))] for j in moved]
        return html_table(repr(self)[1:-1], rows, ["column", "first rank", "last rank"])

    @cached_property
    def ranks(self) -> NDArray[np.int64]:
        """Place of every column at every point, 1 for the best score; ties by the lowest index, NaN last."""
        ranks = np.empty(self.scores.shape, dtype=np.int64)
        for t, scores in enumerate(self.scores):
            ranks[t, rank(scores)] = np.arange(1, scores.size + 1)
        return ranks

    @cached_property
    def selected(self) -> NDArray[np.bool_]:
        """Whether a column is selected, shape (n_points, n_features)."""
        selected = np.zeros(self.scores.shape, dtype=bool)
        for t, support in enumerate(self.supports):
            selected[t, support] = True
        return selected

    @cached_property
    def rises(self) -> Floats:
        """Rise of each column from the first point to the last: log2(first rank / last rank), negative if it fell.

        A rise of 1 halves the rank. 0 for columns that no point selects: far from the top, ranks move by chance.
        """
        scored_points = np.flatnonzero(~np.isnan(self.scores).all(axis=1))
        if scored_points.size == 0:
            return np.zeros(self.scores.shape[1])
        rises = np.log2(self.ranks[scored_points[0]] / self.ranks[scored_points[-1]])
        return np.where(self.selected.any(axis=0), rises, 0.0)

    def risers(self, count: int = 10) -> NDArray[np.int64]:
        """Return at most `count` columns that rose, the largest rise first."""
        return _largest(self.rises, count)

    def fallers(self, count: int = 10) -> NDArray[np.int64]:
        """Return at most `count` columns that fell, the largest fall first."""
        return _largest(-self.rises, count)


def timeline(
    source: Any,
    selector: BaseSelector,
    *,
    y: Any = None,
    prepare: Sequence[Any] | None = None,
    window: int | None = None,
    points: int | None = None,
    dates: Any = None,
    period: str = "day",
    sample_weight: Any = None,
    partition_bytes: int | str | None = None,
    client: Any = None,
    checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
    progress: Progress | Callable[..., object] | bool | None = False,
) -> Timeline:
    """Return the scores of a selector after every partition of a source: one pass, in parallel.

    The state after every partition is the merge of O(log n) nodes of a tree over the partitions (a prefix scan), as are
    those of sliding windows; only scores leave a task. Same bits on every engine. They are those of `partial_fit`,
    partition by partition: to rounding for moments, within the guarantee for sketches.

    Parameters
    ----------
    source : path, URL, array or Matrix
        Anything `open_matrix` takes, of shape (n_rows, n_features); its rows in the order of time.
    selector : BaseSelector
        One that selects from one summary of the rows; it stays unfitted. With its `half_life`, older rows fade.
    y : array or path, optional
        Target, for selectors that learn from one.
    prepare : sequence, optional
        Steps as `summarize` takes them; the selector's own come after. Steps that need statistics of all rows take
        them from all rows, also for early points.
    window : int, optional
        Rows that count at each point, rounded up to whole partitions; by default those of the selector's window, or
        all rows so far.
    points : int, optional
        Number of points, evenly spaced among the partitions' ends; all of them by default.
    dates : array, path or name of a column, optional
        Date of each row, ascending; no feature. Then points are at ends of periods, and `window` is a number of periods
        that have rows.
    period : {"day", "week", "month", "year"}
        Length of the periods; weeks begin on Monday.
    sample_weight : array or path of shape (n_rows,), optional
    partition_bytes : int or text, optional
        Size of a partition, as for `summarize`: points are at ends of partitions. By default small enough for `points`
        and `window`, and for 16 points.
    client : optional
        Runs the tasks, as in `summarize`.
    checkpoint : path, URL or Checkpoint, optional
        Folder of the states of partitions. Running again after rows were appended reads only partitions that are new,
        or were not full. By default the states stay in memory if the engine is in this process and they fit, otherwise
        in a temporary folder; all workers must be able to write there.
    progress : bool, Progress or callable
        Reporting of progress, as for `summarize`.

    Raises
    ------
    BadParameter
        For a selector that does not select from one summary of the rows; for a window or points that are not positive;
        for a window other than the selector's.
    SourceError, WillNotFit, NotFinite, PartitionFailed
        As for `summarize`.

    Notes
    -----
    Cost besides the pass: about two merges a partition, and one selection a point. Memory or disk: a state for every
    partition.

    Examples
    --------
    >>> import numpy as np, sketchselect as sks
    >>> X = 0.1 * np.random.default_rng(0).standard_normal((400, 20))
    >>> X[:200, 3] *= 50
    >>> X[200:, 7] *= 50
    >>> line = timeline(X, sks.VarianceSelector(1), window=100, points=4, partition_bytes=100 * 20 * 8)
    >>> line.rows.tolist(), [support.tolist() for support in line.supports]
    ([100, 200, 300, 400], [[3], [3], [7], [7]])
    >>> line.risers(1).tolist(), line.fallers(1).tolist()
    ([7], [3])
    """
    require_one_summary(selector)
    unfitted: BaseSelector = clone(selector)
    all_steps = steps.resolve(prepare, unfitted.prepare_steps())
    policy = "missing" if getattr(unfitted, "missing", None) is not None else "error"
    encode = steps.encodings(all_steps)
    names = [str(name) for name in getattr(source, "columns", ())]
    if names and isinstance(dates, str) and dates not in names and local_names([dates]):
        # Before the column of dates that was meant is refused as a feature.
        hint = did_you_mean(dates, names, f"; columns: {first_names(names, 8)}")
        raise SourceError(f"dates: no column {dates!r:.80} in the data frame, and no file of that name{hint}")
    beside = {"target": y, "sample_weight": sample_weight, "dates": dates}
    matrix = open_matrix(source, nonfinite=policy, vectors=beside, encode=encode)
    target = weight = None
    if unfitted.uses_target:
        if y is None:
            raise BadParameter(f"timeline: {unfitted.method} learns from a target; pass y")
        target = open_vector(y, matrix.shape[0], matrix=matrix, name="target")
        unfitted.inspect_target(target)
    if sample_weight is not None:
        weight = open_vector(sample_weight, matrix.shape[0], matrix=matrix, name="sample_weight")
    periods = None
    if dates is None and period != "day":
        raise BadParameter(f"timeline: period={period!r:.40} is of dates; give dates too, or leave it out")
    if dates is not None:
        periods = Periods.of(open_vector(dates, matrix.shape[0], matrix=matrix, name="dates", dates=True), period)
    reporting = make_progress(progress)
    remark = unfilled_window(window_of(unfitted, window, by_date=periods is not None), matrix.shape[0], periods)
    if remark is not None:
        reporting.note(f"note: {remark}")
    with open_engine(client, matrix, target, weight) as engine:
        options = PassOptions(engine, partition_bytes, as_checkpoint(checkpoint), reporting)
        source_rows = Source(matrix, target, weight, all_steps, in_double=unfitted.needs_double)
        rows = fitted_source(source_rows, options)
        return timeline_of(rows, unfitted, options, window=window, points=points, periods=periods)


def require_one_summary(selector: BaseSelector) -> None:
    """Raise `BadParameter` unless this selector selects from one summary of the rows."""
    if not isinstance(selector, BaseSelector):
        raise BadParameter(f"timeline: expected a selector, got {type(selector).__name__}")
    selector.check_parameters()
    # The timeline itself moves the window along the rows.
    if (selector.makes_passes and window_of(selector) is None) or selector.axis != "rows":
        raise BadParameter(
            f"timeline: {selector.method} reads the source in passes of its own; use a method that selects from one "
            "summary of the rows"
        )


def window_of(selector: BaseSelector, window: int | None = None, *, by_date: bool = False) -> int | None:
    """Return the rows (periods, if `by_date`) that count at a point: the timeline's window, or the selector's.

    Raises `BadParameter` if both have one, and they differ, or the selector's is of rows where periods are counted.
    """
    default: int | None = getattr(selector, "window", None)
    if by_date and default is not None:
        raise BadParameter("timeline: with dates a window is a number of periods; leave out that of the selector")
    if default is not None and window is not None and default != window:
        raise BadParameter(f"timeline: window is {window}, but the selector's is {default}; leave one of them out")
    return window if default is None else default


def unfilled_window(window: int | None, n_rows: int, periods: Periods | None) -> str | None:
    """Return what to say of a window that is longer than all rows (or periods); None where there is nothing to say."""
    n, unit = (n_rows, "row") if periods is None else (len(periods.first_days), periods.length)
    if window is None or window <= n:
        return None
    return (
        f"timeline: window is {counted(window, unit)}, and there {'is' if n == 1 else 'are'} {counted(n, unit)}: each "
        "point is of all rows up to it, as without a window"
    )


def timeline_of(
    source: Source,
    selector: BaseSelector,
    options: PassOptions,
    *,
    points: int | None = None,
    window: int | None = None,
    periods: Periods | None = None,
) -> Timeline:
    """Return the timeline of a source with fitted steps, by an unfitted selector that has inspected its target.

    `points`: Number of points; None takes all partition ends.
    `window`: Rows (or `periods`) that count at each point; None takes the selector's own window, or all rows.
    `periods`: Whose ends are the points; by default these are ends of partitions.
    """
    require_one_summary(selector)
    window = window_of(selector, window, by_date=periods is not None)
    description = selector.summary_description(source.n_columns)
    score = ScoreAt(selector, source.prepare_labels, source.feature_names)
    with warnings.catch_warnings():
        # A stream may begin with rows of one value, or with few; `fit` warns for all rows.
        warnings.simplefilter("ignore", UserWarning)
        where: dict[str, Any] = {"points": points, "window": window, "periods": periods}
        scan = scan_source(source, description, score, options, **where, stage="timeline")
    starts, stops = np.array(scan.spans, dtype=np.int64).T
    return Timeline(
        selector.method,
        stops.copy(),
        starts.copy(),
        np.stack([scores for scores, _ in scan.values]),
        [support for _, support in scan.values],
        source.feature_names,
        None if periods is None else periods.at(stops),
        None if periods is None else periods.length,
    )


@dataclass(frozen=True)
class ScoreAt:
    """Scores and support of the summary at a point."""

    selector: BaseSelector
    prepare: tuple[str, ...]  # Labels of the steps that the rows went through
    feature_names: tuple[str, ...] | None  # Names of the columns

    def __call__(self, summary: Any) -> tuple[Floats, NDArray[np.int64]]:
        """Return scores and support of the rows summarised; NaN and no columns if no rows count."""
        with_names = summary.with_context(prepare=self.prepare, feature_names=self.feature_names)
        try:
            # Threads share the selector, and fitting changes it.
            selection = copy.copy(self.selector).fit_summary(with_names).selection_
        except EmptyInput:
            return np.full(summary.n_features, np.nan), np.zeros(0, dtype=np.int64)
        return np.asarray(selection.scores, dtype=np.float64), np.asarray(selection.support, dtype=np.int64)


def _largest(values: Floats, count: int) -> NDArray[np.int64]:
    """Return the indices of the largest positive values, largest first, ties by the lowest index."""
    order = np.argsort(-values, kind="stable")[:count]
    return order[values[order] > 0]
