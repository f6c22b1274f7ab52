"""Numbers of a forecast: as text, as JSON for schedulers, and as a patch for Kubernetes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sketchselect._byte_sizes import format_bytes
from sketchselect._text import format_seconds
from sketchselect.execution.projection import PROCESS_NBYTES
from sketchselect.workflow.forecast.simulation import START_SECONDS

USABLE = 0.8
"""Share of its memory limit above which a Dask worker starts no further task."""

STEP_NBYTES = 256 << 20
"""Limits are rounded up to a multiple of this."""

LEAST_LIMIT_NBYTES = 1 << 30


@dataclass(frozen=True)
class ClusterSpec:
    """What a job is planned for."""

    # cluster, kind: As the job says, and "dask", "threads" or "serial"
    cluster: str
    kind: str
    # n_workers, slots: Processes, and tasks at a time in each
    n_workers: int
    slots: int
    asked: bool  # Whether somebody said how many
    memory_limit: int | None  # Bytes per worker that the job names
    output: str  # Its output folder
    price: float | None = None  # Of a worker for an hour

    @property
    def n_slots(self) -> int:
        """Tasks at a time."""
        return self.n_workers * self.slots

    @property
    def noun(self) -> str:
        """What runs a task at a time, in words."""
        return {"threads": "threads", "serial": "process"}.get(self.kind, "workers")


@dataclass(frozen=True)
class ForecastPass:
    """One pass of a job; numbers are of one time, `repeats` says how often (at most `repeats_most`)."""

    # stage, name: Stage of the manifest that it is accounted to, and the pass
    stage: str
    name: str
    # "workers", "client"; What runs its tasks: the workers, or threads of the process in which the job was started
    where: str
    # repeats, repeats_most: Typical and largest number of times
    repeats: int
    repeats_most: int
    # rows, partitions, tasks, bytes_read: Bytes as stored, before compression
    rows: int
    partitions: int
    tasks: int
    bytes_read: int
    network_bytes: int  # Bound of what goes from worker to worker and to the client: states of a tree reduction
    # state_bytes, partition_bytes: A state, and a partition as stored
    state_bytes: int
    partition_bytes: int
    projected_bytes: int  # Upper bound of the memory of a process that runs its tasks, which a run is refused by
    rise_bytes: int | None  # What the tasks of a process were measured to need, beside the process itself
    waiting_bytes: int  # States that wait in a process for their siblings
    # leaf_seconds, seconds: Of one leaf on one thread, and of the pass on all workers
    leaf_seconds: float | None
    seconds: float | None
    bottleneck: str | None  # What most of the seconds are; see `simulation.SimulatedPass`
    amplification: float  # Bytes decoded per byte used
    cached: bool  # Whether the rows are in memory when it begins
    leaf_tasks: int = 1  # Tasks that may work on one leaf at a time


@dataclass(frozen=True)
class JobForecast:
    """What a run of a job will do; see `forecast_job`."""

    source: dict[str, Any]  # What the manifest says of the source
    method: str  # Of selection
    reads_columns: bool  # Whether the method reads the source by columns
    place: ClusterSpec  # What it is planned for
    passes: tuple[ForecastPass, ...]  # In their order
    idle_nbytes: int | None = None  # A process that has loaded the libraries, measured
    # What the process in which the job is started holds at most, beside itself, for k-means or a wide co-moment
    client_nbytes: int = 0
    output_nbytes: int = 0  # Selected columns and labels on disk, before compression
    # What selecting took from the summaries of the first rows; it runs in one process
    select_seconds: float | None = None
    calibration_seconds: float | None = None  # What making the plan took
    # notes, warnings: What was assumed; where the job will not scale
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def total(self, name: str, most: bool = False) -> Any:
        """Return the sum of one number over all passes and their repetitions; None where it was not measured."""
        numbers = [getattr(one, name) for one in self.passes]
        if any(number is None for number in numbers):
            return None
        times = [one.repeats_most if most else one.repeats for one in self.passes]
        return sum(n * t for n, t in zip(numbers, times, strict=True))

    @property
    def seconds(self) -> float | None:
        """Time of the job where it is planned for, from the start of its workers; None where nothing was measured."""
        passes = self.total("seconds")
        starts = self.place.kind == "dask" and self.place.cluster == "local"
        return None if passes is None else passes + (self.select_seconds or 0.0) + START_SECONDS * starts

    @property
    def bottleneck(self) -> str | None:
        """What most of the time of the longest pass is; None where nothing was measured."""
        longest = max(self.passes, key=lambda one: one.repeats * (one.seconds or 0.0), default=None)
        return None if longest is None or longest.bottleneck is None else f"{longest.bottleneck} ({longest.name})"

    @property
    def cost(self) -> float | None:
        """The price of all workers for that time; None without a price."""
        price = self.place.price
        return None if price is None or self.seconds is None else price * self.place.n_workers * self.seconds / 3600

    @property
    def projected_nbytes(self) -> int:
        """Upper bound of the memory of a worker."""
        return max((one.projected_bytes for one in self._on_workers()), default=0)

    @property
    def expected_nbytes(self) -> int | None:
        """Memory of a worker as the calibration measured it, states that wait for others included; None without.

        For a pass of which less than half a partition was run, the projection stands in.
        """
        if self.idle_nbytes is None:
            return None
        on_workers = self._on_workers()
        rises = [
            one.projected_bytes - PROCESS_NBYTES if one.rise_bytes is None else one.rise_bytes + one.waiting_bytes
            for one in on_workers
        ]
        return self.idle_nbytes + max(rises, default=0)

    @property
    def limit_nbytes(self) -> int:
        """The memory limit that a worker should be given: the projection, and what Dask leaves unused."""
        if self.place.memory_limit is not None:
            return self.place.memory_limit
        return limit_for(self.projected_nbytes)

    def _on_workers(self) -> list[ForecastPass]:
        apart = self.place.kind == "dask"
        return [one for one in self.passes if one.where == "workers" or not apart]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan for programs. Keys are only ever added; `format` says when one changes its meaning.

        ``format``; ``source`` and ``method`` as in ``manifest.json``; ``workers`` {kind, n, threads_each, given};
        ``passes``, a list of {stage, name, where, repeats, repeats_most, rows, partitions, tasks, bytes_read,
        network_bytes, state_bytes, partition_bytes, projected_bytes, leaf_seconds, seconds, bottleneck}, all of one
        time; ``totals`` {passes, tasks, bytes_read, network_bytes, seconds}, with the typical number of iterations,
        and ``most`` the same with `max_iter`; ``memory`` {projected_bytes_per_worker, expected_bytes_per_worker,
        idle_bytes_per_worker, limit_bytes_per_worker, limit_bytes_total, held_by_client_bytes}; ``output_bytes`` before
        compression; ``calibration`` {seconds, select_seconds} or null; ``estimate`` {seconds, bottleneck,
        price_per_hour, cost} of the whole job where it is planned for; ``notes``; ``warnings``. Bytes and seconds;
        null where nothing was measured.
        """
        names = (
            *("stage", "name", "where", "repeats", "repeats_most", "rows", "partitions", "tasks", "bytes_read"),
            *(
                "network_bytes",
                "state_bytes",
                "partition_bytes",
                "projected_bytes",
                "leaf_seconds",
                "seconds",
                "bottleneck",
            ),
        )
        summed = ("tasks", "bytes_read", "network_bytes", "seconds")

        def totals(most: bool) -> dict[str, Any]:
            times = sum(one.repeats_most if most else one.repeats for one in self.passes)
            return {"passes": times, **{name: _rounded(self.total(name, most)) for name in summed}}

        calibrated = self.calibration_seconds is not None
        return {
            "format": 1,
            "source": self.source,
            "method": self.method,
            "workers": {
                "kind": self.place.kind,
                "n": self.place.n_workers,
                "threads_each": self.place.slots,
                "given": self.place.asked,
            },
            "passes": [{name: _rounded(getattr(one, name)) for name in names} for one in self.passes],
            "totals": totals(False),
            "most": totals(True),
            "memory": {
                "projected_bytes_per_worker": self.projected_nbytes,
                "expected_bytes_per_worker": self.expected_nbytes,
                "idle_bytes_per_worker": self.idle_nbytes,
                "limit_bytes_per_worker": self.limit_nbytes,
                "limit_bytes_total": self.place.n_workers * self.limit_nbytes,
                "held_by_client_bytes": self.client_nbytes,
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
                "price_per_hour": self.place.price,
                "cost": _rounded(self.cost),
            },
            "notes": list(self.notes),
            "warnings": list(self.warnings),
        }

    def kubernetes_patch(self) -> str:
        """Return a JSON 6902 patch (YAML) of the DaskJob in ``deploy/kubernetes``: replicas, memory, resources."""
        limit = rounded_up(self.limit_nbytes)
        container = f"{rounded_up(limit * 9 // 8) >> 20}Mi"
        memory = f"{limit >> 30}GiB" if limit % (1 << 30) == 0 else f"{limit >> 20}MiB"
        worker = "/spec/cluster/spec/worker"
        return (
            f"# Printed by: sketchselect plan JOB.toml --n-workers {self.place.n_slots} --kubernetes\n"
            f"- {{op: replace, path: {worker}/replicas, value: {self.place.n_slots}}}\n"
            f"- {{op: replace, path: {worker}/spec/containers/0/env/0/value, value: {memory}}}\n"
            f"- op: replace\n"
            f"  path: {worker}/spec/containers/0/resources\n"
            f"  value:\n"
            f'    requests: {{cpu: "1", memory: {container}}}\n'
            f"    limits: {{memory: {container}}}\n"
        )

    def text(self) -> str:
        """Return the plan for people."""
        rows, columns = self.source["shape"]
        lines = [
            f"{self.source['address']}: {rows} rows x {columns} columns, method {self.method}; "
            f"{self.place.n_slots} {self.place.noun}",
            "",
            f"{'pass':<44} {'times':>9} {'partitions':>10} {'tasks':>7} {'read':>10} {'sent':>10} {'seconds':>8}",
        ]
        for one in self.passes:
            times = f"{one.repeats}" if one.repeats == one.repeats_most else f"~{one.repeats}<={one.repeats_most}"
            seconds = "" if one.seconds is None else f"{one.repeats * one.seconds:.1f}"
            sizes = [format_bytes(one.repeats * n) for n in (one.bytes_read, one.network_bytes)]
            name = one.name if one.where == "workers" else f"{one.name} (client)"
            lines.append(
                f"{name:<44.44} {times:>9} {one.partitions:>10} {one.repeats * one.tasks:>7} {sizes[0]:>10} "
                f"{sizes[1]:>10} {seconds:>8}"
            )
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
            longest += (self.seconds or seconds) - seconds
            typical_time, longest_time = format_seconds(self.seconds or seconds), format_seconds(longest)
            upto = f", {longest_time} if k-means takes all its iterations" if longest > 1.05 * seconds else ""
            cost = "" if self.cost is None else f"; price: {self.cost:.2f}"
            lines.append(
                f"time: about {typical_time} on {self.place.n_slots} {self.place.noun}{upto}; bottleneck: "
                f"{self.bottleneck}{cost}; from a partition or so of every pass, timed on this machine in "
                f"{format_seconds(self.calibration_seconds or 0.0)}"
            )
        expected = self.expected_nbytes
        usual = "" if expected is None else f", about {format_bytes(expected)} expected"
        idle = "" if self.idle_nbytes is None else f" ({format_bytes(self.idle_nbytes)} of it the process itself)"
        in_all = format_bytes(self.place.n_workers * self.limit_nbytes)
        lines.append(
            f"memory per process: at most {format_bytes(self.projected_nbytes)}{usual}{idle}; "
            f"give each worker {format_bytes(self.limit_nbytes)}, {in_all} in all"
        )
        if self.output_nbytes:
            lines.append(f"output on disk: {format_bytes(self.output_nbytes)} before compression")
        if self.client_nbytes and self.place.kind == "dask":
            lines.append(f"memory where the job is started: {format_bytes(self.client_nbytes)} beside the process")
        return lines


def limit_for(projected_nbytes: int) -> int:
    """Return the memory limit that a worker with this projection should be given."""
    return max(LEAST_LIMIT_NBYTES, rounded_up(int(projected_nbytes / USABLE)))


def rounded_up(nbytes: int) -> int:
    """Return the next multiple of `STEP_NBYTES`."""
    return -(-nbytes // STEP_NBYTES) * STEP_NBYTES


def _rounded(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value
