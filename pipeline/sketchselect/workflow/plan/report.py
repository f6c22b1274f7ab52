"""Numbers of a forecast, as text and as JSON for schedulers, with warnings of what will not scale."""

from __future__ import annotations

import ipaddress
import operator
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sketchselect._byte_sizes import format_bytes
from sketchselect._text import counted, format_seconds, table_size
from sketchselect.execution.plan import SCHEDULER_NBYTES, library_nbytes
from sketchselect.readers import DEFAULT_PARTITION_BYTES

START_SECONDS = 3.0
"""From the start of worker processes to their first task: the imports."""

USABLE = 0.8
"""Share of its memory limit above which Dask pauses a worker of the user's, which then starts no further task."""

STEP_NBYTES = 256 << 20
"""Limits are rounded up to a multiple of this."""

LEAST_LIMIT_NBYTES = 1 << 30


@dataclass(frozen=True)
class ClusterSpec:
    """The cluster that a job is planned for."""

    # address, kind: ``execution.cluster`` of the job, and "dask", "threads" or "serial"
    address: str
    kind: str
    # n_workers, slots: Processes, and tasks at a time in each
    n_workers: int
    slots: int
    is_explicit: bool  # Whether the number of workers was given
    memory_limit: int | None  # Bytes per worker that the job names
    output: str  # Its output folder
    price: float | None = None  # Of a worker for an hour

    @property
    def n_slots(self) -> int:
        """Tasks at a time."""
        return self.n_workers * self.slots

    @property
    def noun(self) -> str:
        """The name of a process or thread that runs a task at a time."""
        return {"threads": "threads", "serial": "process"}.get(self.kind, "workers")


@dataclass(frozen=True)
class ForecastPass:
    """One pass of a job; numbers are of one time, `repeats` says how often (at most `repeats_most`)."""

    # stage, name: Stage of the manifest it counts towards, and name of the pass
    stage: str
    name: str
    where: str  # "workers", or "client": its tasks run in threads of the process that started the job
    # repeats, repeats_most: Typical and largest number of times
    repeats: int
    repeats_most: int
    # rows, partitions, tasks, bytes_read: Bytes as stored, before compression
    rows: int
    partitions: int
    tasks: int
    bytes_read: int
    network_bytes: int  # Bound of the transfer between workers and to the client: states of a tree reduction
    # state_bytes, partition_bytes: A state, and a partition as stored
    state_bytes: int
    partition_bytes: int
    projected_bytes: int  # Upper bound of the memory of a process that runs its tasks; a run above the limit is refused
    rise_bytes: int | None  # Measured memory of the tasks of a process, without the process itself
    waiting_bytes: int  # States that wait in a process for their siblings
    # leaf_seconds, seconds: Of one leaf on one thread, and of the pass on all workers
    leaf_seconds: float | None
    seconds: float | None
    bottleneck: str | None  # Largest part of the seconds; see `forecast.PassEstimate`
    amplification: float  # Bytes decoded per byte used
    cached: bool  # Whether the rows are in memory when it begins
    leaf_tasks: int = 1  # Tasks that may work on one leaf at a time


@dataclass(frozen=True)
class JobForecast:
    """Forecast of a run of a job; see `forecast_job`."""

    source: dict[str, Any]  # The source, as in the manifest
    method: str  # Of selection
    prepared_columns: int  # Columns after the prepare steps, those of text by the levels of the rows that were tried
    reads_columns: bool  # Whether the method reads the source by columns
    cluster: ClusterSpec  # The cluster that it is planned for
    passes: tuple[ForecastPass, ...]  # In their order
    idle_nbytes: int | None = None  # Measured memory of a process that has loaded the libraries
    # Most bytes that the process that started the job holds, without itself, for k-means or a wide co-moment
    client_nbytes: int = 0
    loaded_nbytes: int = 0  # Bytes that every process keeps of the source, once it has read a row
    output_nbytes: int = 0  # Selected columns and labels on disk, before compression
    # Seconds to select from the summaries of the first rows, in one process
    select_seconds: float | None = None
    calibration_seconds: float | None = None  # Seconds to make the plan
    missing_share: float = 0.0  # Of the chunks, which have no file and are read as the fill value
    # notes, warnings: Assumptions; where the job will not scale
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def total(self, name: str, most: bool = False) -> Any:
        """Return the sum of one number over all passes and their repetitions; None where it was not measured."""
        numbers = [getattr(p, name) for p in self.passes]
        if any(number is None for number in numbers):
            return None
        times = [p.repeats_most if most else p.repeats for p in self.passes]
        return sum(n * t for n, t in zip(numbers, times, strict=True))

    @property
    def seconds(self) -> float | None:
        """Seconds of the job on the planned cluster, from the start of its workers; None if nothing was measured."""
        passes = self.total("seconds")
        starts = self.cluster.kind == "dask" and self.cluster.address == "local"
        return None if passes is None else passes + (self.select_seconds or 0.0) + START_SECONDS * starts

    @property
    def bottleneck(self) -> str | None:
        """Largest part of the time of the longest pass, or the selection; None if nothing was measured."""
        longest = max(self.passes, key=lambda p: p.repeats * (p.seconds or 0.0), default=None)
        if longest is None or longest.bottleneck is None:
            return None
        if (self.select_seconds or 0.0) > longest.repeats * (longest.seconds or 0.0):
            return "selecting, in one process"
        return f"{longest.bottleneck} ({longest.name})"

    @property
    def cost(self) -> float | None:
        """The price of all workers for that time; None without a price."""
        price = self.cluster.price
        return None if price is None or self.seconds is None else price * self.cluster.n_workers * self.seconds / 3600

    @property
    def projected_nbytes(self) -> int:
        """Upper bound of the memory of a worker."""
        here = [] if self.cluster.kind == "dask" else [self.main_nbytes]
        return max([*(p.projected_bytes for p in self._on_workers()), *here])

    @property
    def expected_nbytes(self) -> int | None:
        """Memory of a worker as the calibration measured it, states that wait for others included; None without.

        For a pass of which less than half a partition was run, the projection stands in. The bound is an upper limit
        here too: a partition that is tried alone leaves all its memory to the allocator, and this process may have
        imported more than a worker does.
        """
        idle = self.idle_nbytes
        if idle is None:
            return None
        passes = [
            p.projected_bytes if p.rise_bytes is None else idle + p.rise_bytes + p.waiting_bytes
            for p in self._on_workers()
        ]
        return min(max([idle, *passes]), self.projected_nbytes)

    @property
    def main_nbytes(self) -> int:
        """Upper bound of the memory of the process that starts the job, and that clusters the rows if they are few."""
        here = [p.projected_bytes for p in self.passes if p.where == "client"]
        scheduler = SCHEDULER_NBYTES if self.cluster.kind == "dask" and self.cluster.address == "local" else 0
        return scheduler + max([library_nbytes("threads") + self.loaded_nbytes + self.client_nbytes, *here])

    @property
    def refusal(self) -> str | None:
        """Why a run with the job's memory limit is refused; None where it fits, or there is no limit."""
        limit = self.cluster.memory_limit
        if limit is None or self.projected_nbytes <= limit:
            return None
        largest = max(self._on_workers(), key=lambda p: p.projected_bytes)
        by, cure = "selecting columns or clustering", "Raise it"
        if self.projected_nbytes == largest.projected_bytes:
            by, cure = f"the pass {largest.name!r}", "Raise it, or lower execution.partition_bytes"
        return (
            f"execution.memory_limit is {format_bytes(limit)}, up to {format_bytes(self.projected_nbytes)} may be "
            f"needed (by {by}): a run is refused. {cure}"
        )

    @property
    def limit_nbytes(self) -> int:
        """The memory limit that a worker should be given: the job's own, if a run fits in it.

        Else the projection, and the share that Dask leaves unused.
        """
        if self.cluster.memory_limit is not None and self.refusal is None:
            return self.cluster.memory_limit
        return limit_for(self.projected_nbytes)

    def _on_workers(self) -> list[ForecastPass]:
        apart = self.cluster.kind == "dask"
        return [p for p in self.passes if p.where == "workers" or not apart]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan for programs. Keys are only ever added; `format` says when one changes its meaning.

        ``format``; ``source`` and ``method`` as in ``manifest.json``; ``prepared_columns``, those after the steps,
        by the levels in the rows that were tried; ``workers`` {kind, n, threads_each, given};
        ``passes``, a list of {stage, name, where, repeats, repeats_most, rows, partitions, tasks, bytes_read,
        network_bytes, state_bytes, partition_bytes, projected_bytes, leaf_seconds, seconds, bottleneck}, all of one
        time; ``totals`` {passes, tasks, bytes_read, network_bytes, seconds}, with the typical number of iterations,
        and ``most`` the same with `max_iter`; ``memory`` {projected_bytes_per_worker, expected_bytes_per_worker,
        idle_bytes_per_worker, limit_bytes_per_worker, limit_bytes_total, held_by_client_bytes,
        client_bytes (of the process that starts the job)}; ``output_bytes`` before
        compression; ``calibration`` {seconds, select_seconds} or null; ``estimate`` {seconds, bottleneck,
        price_per_hour, cost} of the whole job on the planned cluster; ``notes``; ``warnings``. Bytes and seconds;
        null where nothing was measured.
        """
        names: tuple[str, ...] = ("stage", "name", "where", "repeats", "repeats_most", "rows", "partitions", "tasks")
        names += ("bytes_read", "network_bytes", "state_bytes", "partition_bytes", "projected_bytes")
        names += ("leaf_seconds", "seconds", "bottleneck")
        summed = ("tasks", "bytes_read", "network_bytes", "seconds")

        def totals(most: bool) -> dict[str, Any]:
            times = sum(p.repeats_most if most else p.repeats for p in self.passes)
            return {"passes": times, **{name: _rounded(self.total(name, most)) for name in summed}}

        calibrated = self.calibration_seconds is not None
        return {
            "format": 1,
            "source": self.source,
            "method": self.method,
            "prepared_columns": self.prepared_columns,
            "workers": {
                "kind": self.cluster.kind,
                "n": self.cluster.n_workers,
                "threads_each": self.cluster.slots,
                "given": self.cluster.is_explicit,
            },
            "passes": [{name: _rounded(getattr(p, name)) for name in names} for p in self.passes],
            "totals": totals(False),
            "most": totals(True),
            "memory": {
                "projected_bytes_per_worker": self.projected_nbytes,
                "expected_bytes_per_worker": self.expected_nbytes,
                "idle_bytes_per_worker": self.idle_nbytes,
                "limit_bytes_per_worker": self.limit_nbytes,
                "limit_bytes_total": self.cluster.n_workers * self.limit_nbytes,
                "held_by_client_bytes": self.client_nbytes,
                "client_bytes": self.main_nbytes if self.cluster.kind == "dask" else self.projected_nbytes,
            },
            "output_bytes": self.output_nbytes,
            "calibration": {
                "seconds": _rounded(self.calibration_seconds),
                "select_seconds": _rounded(self.select_seconds),
            }
            if calibrated
            else None,
            "estimate": {
                "seconds": _rounded(self.seconds),
                "bottleneck": self.bottleneck,
                "price_per_hour": self.cluster.price,
                "cost": _rounded(self.cost),
            },
            "notes": list(self.notes),
            "warnings": list(self.warnings),
        }

    def text(self) -> str:
        """Return the plan as text."""
        rows, columns = self.source["shape"]
        after = f" (about {self.prepared_columns} after the steps)" if self.prepared_columns != columns else ""
        lines = [
            f"{self.source['address']}: {table_size(rows, columns)}{after}, method {self.method}; "
            f"{self.cluster.n_slots} {self.cluster.noun}",
            "",
            f"{'pass':<44} {'times':>9} {'partitions':>10} {'tasks':>7} {'read':>10} {'sent':>10} {'seconds':>8}",
        ]
        for p in self.passes:
            times = f"{p.repeats}" if p.repeats == p.repeats_most else f"~{p.repeats}<={p.repeats_most}"
            seconds = "" if p.seconds is None else f"{p.repeats * p.seconds:.1f}"
            sizes = [format_bytes(p.repeats * n) for n in (p.bytes_read, p.network_bytes)]
            name = p.name if p.where == "workers" else f"{p.name} (client)"
            lines.append(
                f"{name:<44.44} {times:>9} {p.partitions:>10} {p.repeats * p.tasks:>7} {sizes[0]:>10} "
                f"{sizes[1]:>10} {seconds:>8}"
            )
        if self.select_seconds is not None:
            lines.append(f"{'select (client)':<44} {1:>9} {self.select_seconds:>48.1f}")
        lines += ["", *self._sums()]
        lines += [f"note: {text}" for text in self.notes]
        lines += [f"warning: {text}" for text in self.warnings]
        return "\n".join(lines)

    def _sums(self) -> list[str]:
        typical, most = self.total("bytes_read"), self.total("bytes_read", True)
        again = f" (at most {format_bytes(most)})" if most > typical else ""
        lines = [
            f"to read: {format_bytes(typical)}{again}, decoded; between processes: about "
            f"{format_bytes(self.total('network_bytes'))}; tasks: {self.total('tasks')}"
        ]
        seconds, longest = self.total("seconds"), self.total("seconds", True)
        if seconds is not None:
            estimate = self.seconds or seconds
            longest += estimate - seconds
            typical_time, longest_time = format_seconds(estimate), format_seconds(longest)
            upto = f", {longest_time} if all iterations are needed" if longest > 1.05 * estimate else ""
            cost = ""
            if self.cost is not None:
                cost = f"; cost: {self.cost:.2g}, at {self.cluster.price:g} for a worker and hour"
            absent = f" (optimistic: {self.missing_share:.0%} of the chunks have no file yet, and cost no reading)"
            optimistic = absent if self.missing_share else ""
            lines.append(
                f"time: estimated {typical_time} on {self.cluster.n_slots} {self.cluster.noun}{optimistic}{upto}; "
                f"bottleneck: {self.bottleneck}{cost}; by a formula from about a partition of every pass, timed "
                f"on this machine in {format_seconds(self.calibration_seconds or 0.0)}"
            )
        usual, expected, idle = "", self.expected_nbytes, self.idle_nbytes
        if expected is not None and idle is not None:
            usual = f", about {format_bytes(expected)} expected"
            if idle <= expected:
                usual += f" ({format_bytes(idle)} of it the process itself)"
        in_all = format_bytes(self.cluster.n_workers * self.limit_nbytes)
        lines.append(
            f"memory per process: at most {format_bytes(self.projected_nbytes)}{usual}; "
            f"give each worker {format_bytes(self.limit_nbytes)}, {in_all} in all"
        )
        if self.output_nbytes:
            lines.append(f"output on disk: {format_bytes(self.output_nbytes)} before compression")
        if self.cluster.kind == "dask":
            lines.append(f"memory where the job is started: at most {format_bytes(self.main_nbytes)}")
        return lines


def limit_for(projected_nbytes: int) -> int:
    """Return the memory limit that a worker with this projection should be given."""
    return max(LEAST_LIMIT_NBYTES, -(-int(projected_nbytes / USABLE) // STEP_NBYTES) * STEP_NBYTES)


def _rounded(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


PARTITIONS_PER_SLOT = 4
"""Fewer partitions than this for every task at a time leave workers idle at the end of a pass."""

TINY_SECONDS = 0.1
"""Seconds of a task below which the scheduler, and not the workers, sets the pace."""

LOCAL_FILESYSTEMS = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs", "apfs"))


def warnings_of(plan: JobForecast) -> Iterator[str]:
    """Yield a sentence for each part of a plan that more workers will not make faster, or that may not work."""
    on_workers = [p for p in plan.passes if p.where == "workers"]
    slots = plan.cluster.n_slots
    few = [p for p in on_workers if p.partitions * p.leaf_tasks < PARTITIONS_PER_SLOT * slots and not _is_brief(p)]
    if plan.cluster.kind == "threads":
        few = [p for p in few if p.partitions > 1 or p.partition_bytes > DEFAULT_PARTITION_BYTES]
    if few and slots > 1:
        fewest = min(few, key=lambda p: p.partitions)
        yield (
            f"{fewest.name}: {counted(fewest.partitions, 'partition')} for {slots} tasks at a time; little is "
            f"gained by more than {counted(max(1, fewest.partitions // PARTITIONS_PER_SLOT), 'worker')}. Lower "
            "execution.partition_bytes (not below the chunks of the store), or take fewer workers"
        )
    yield from _of_passes(plan, on_workers)
    if (refusal := plan.refusal) is not None:
        yield refusal
    if plan.cluster.kind == "dask" and plan.cluster.address != "local":
        yield from _of_cluster(plan)


def _is_brief(p: ForecastPass) -> bool:
    """Return whether a pass takes so little time on one worker that more workers would gain nothing."""
    return p.leaf_seconds is not None and p.partitions * p.leaf_tasks * p.leaf_seconds < TINY_SECONDS


def _of_passes(plan: JobForecast, on_workers: list[ForecastPass]) -> Iterator[str]:
    merged = [p for p in on_workers if p.partitions > 1 and p.leaf_tasks == 1 and not p.cached]
    big = [p for p in merged if p.state_bytes > p.partition_bytes]
    if big:
        worst = max(big, key=lambda p: p.state_bytes / max(p.partition_bytes, 1))
        yield (
            f"{worst.name}: a summary ({format_bytes(worst.state_bytes)}) is larger than the partition it is made of "
            f"({format_bytes(worst.partition_bytes)}), so merging and sending may take longer than reading. Raise "
            "execution.partition_bytes, or take a method with a sketch (fewer columns, or a smaller size)"
        )
    many = PARTITIONS_PER_SLOT * plan.cluster.n_slots
    timed = [(p.leaf_seconds, p) for p in on_workers if p.leaf_seconds is not None and p.partitions >= many]
    seconds, short = min(timed, key=operator.itemgetter(0), default=(TINY_SECONDS, None))
    if short is not None and seconds < TINY_SECONDS and plan.cluster.kind == "dask":
        yield (
            f"{short.name}: a task takes {1e3 * seconds:.0f} ms, so the scheduler sets the pace (below "
            f"{1e3 * TINY_SECONDS:.0f} ms). Raise execution.partition_bytes, or take fewer workers"
        )
    tall = max(plan.passes, key=lambda p: p.amplification, default=None)
    if tall is not None and tall.amplification > 1:
        yield (
            f"{tall.name}: chunks are taller than a partition, every byte is decoded {tall.amplification:.1f} times; "
            "`sketchselect convert --chunks` makes a store that is not, or raise execution.partition_bytes"
        )
    # A method of several passes reads the rows in each, wherever they would fit.
    again = [p for p in plan.passes if p.repeats_most > 1 and p.bytes_read and p.stage != "collect"]
    if again:
        yield (
            f"{again[0].stage}: the rows fit neither here nor in the workers' memory, and are read in every iteration "
            f"({format_bytes(again[0].bytes_read)} each). Raise the workers' memory, select fewer columns, or lower "
            "cluster.max_iter"
        )
    panels = [p for p in plan.passes if p.name.startswith("summarize, a panel")]
    if len(panels) > 1:
        yield (
            f"{plan.source['shape'][1]} columns are too many for one pass: their co-moment takes {len(panels)}, each "
            f"of which reads everything, and its whole ({format_bytes(plan.client_nbytes // 2)}) is solved in one "
            "process; a method that selects from a sketch takes one pass"
        )
    collecting = [p for p in on_workers if p.stage == "collect"]
    if plan.reads_columns and any(p.bytes_read for p in collecting):
        yield (
            f"{plan.method} reads columns: of its {collecting[0].partitions} partitions each reads every chunk of a "
            'store that is chunked by rows. Rechunk it, or set read = "rows" where the method has that'
        )


def _of_cluster(plan: JobForecast) -> Iterator[str]:
    if not plan.cluster.is_explicit:
        yield (
            f"how many workers {plan.cluster.address} has is not known; {plan.cluster.n_workers} are assumed "
            "(--n-workers)"
        )
    if _is_here(plan.cluster.address):
        return
    kind = filesystem(Path(plan.cluster.output))
    if kind in LOCAL_FILESYSTEMS:
        yield (
            f"output.dir ({plan.cluster.output}) is on a disk of this machine ({kind}); workers on other machines must "
            "see the same folder, or the run ends when it writes the features"
        )


def _is_here(address: str) -> bool:
    """Return whether the address of a scheduler is this machine's own."""
    host = address.partition("://")[2].rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def filesystem(path: Path) -> str | None:
    """Return the type of the file system of a path that may not be there yet; None if the system does not tell."""
    real_path = os.path.realpath(path)
    best, kind = "", None
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, where, fstype, *_ = line.split()
        where = where.replace("\\040", " ")
        if (real_path == where or real_path.startswith(where.rstrip("/") + "/")) and len(where) >= len(best):
            best, kind = where, fstype
    return kind
