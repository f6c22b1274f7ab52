"""Warnings of a forecast: limits of a job's scaling, with remedies."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator
from pathlib import Path

from sketchselect._byte_sizes import format_bytes
from sketchselect._text import counted
from sketchselect.workflow.forecast.report import ForecastPass, JobForecast

PARTITIONS_PER_SLOT = 4
"""Fewer partitions than this for every task at a time leave workers idle at the end of a pass."""

TINY_SECONDS = 0.1
"""Tasks shorter than this: with many workers the scheduler sets the pace."""

LOCAL_FILESYSTEMS = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs", "apfs"))


def warnings_of(plan: JobForecast) -> Iterator[str]:
    """Yield a sentence for everything in a plan that more workers will not make faster, or that may not work."""
    on_workers = [one for one in plan.passes if one.where == "workers"]
    slots = plan.place.n_slots
    few = [one for one in on_workers if one.partitions * one.leaf_tasks < PARTITIONS_PER_SLOT * slots]
    if few and slots > 1:
        least = min(few, key=lambda one: one.partitions)
        yield (
            f"{least.name}: {counted(least.partitions, 'partition')} for {slots} tasks at a time; more than "
            f"{counted(max(1, least.partitions // PARTITIONS_PER_SLOT), 'worker')} help little. Lower "
            "execution.partition_bytes (not below the chunks of the store), or take fewer workers"
        )
    yield from _of_passes(plan, on_workers)
    limit = plan.place.memory_limit
    if limit is not None and plan.projected_nbytes > limit:
        yield (
            f"execution.memory_limit is {format_bytes(limit)}, up to {format_bytes(plan.projected_nbytes)} may be "
            "needed: a run is refused. Raise it, or lower execution.partition_bytes"
        )
    if plan.place.kind == "dask" and plan.place.cluster != "local":
        yield from _of_cluster(plan)


def _of_passes(plan: JobForecast, on_workers: list[ForecastPass]) -> Iterator[str]:
    big = [one for one in on_workers if one.state_bytes > one.partition_bytes and not one.cached]
    big = [one for one in big if one.leaf_tasks == 1]
    if big:
        worst = max(big, key=lambda one: one.state_bytes / max(one.partition_bytes, 1))
        yield (
            f"{worst.name}: a summary ({format_bytes(worst.state_bytes)}) is larger than the partition it is made of "
            f"({format_bytes(worst.partition_bytes)}), so merging and sending may take longer than reading. Raise "
            "execution.partition_bytes, or take a method with a sketch (fewer columns, or a smaller size)"
        )
    tiny = [one for one in on_workers if one.leaf_seconds is not None and one.leaf_seconds < TINY_SECONDS]
    tiny = [one for one in tiny if one.partitions >= PARTITIONS_PER_SLOT * plan.place.n_slots]
    if tiny and plan.place.kind == "dask":
        short = min(tiny, key=lambda one: one.leaf_seconds or 0.0)
        yield (
            f"{short.name}: a task takes {1e3 * (short.leaf_seconds or 0.0):.0f} ms, so the scheduler "
            f"sets the pace (below {1e3 * TINY_SECONDS:.0f} ms). Raise execution.partition_bytes, or take fewer workers"
        )
    tall = max(plan.passes, key=lambda one: one.amplification, default=None)
    if tall is not None and tall.amplification > 1:
        yield (
            f"{tall.name}: chunks are taller than a partition, every byte is decoded {tall.amplification:.1f} times; "
            "`sketchselect convert --chunks` makes a store that is not, or raise execution.partition_bytes"
        )
    again = [one for one in plan.passes if one.repeats_most > 1 and one.bytes_read]
    if again:
        yield (
            f"{again[0].stage}: the rows fit neither here nor in the workers' memory, and are read in every iteration "
            f"({format_bytes(again[0].bytes_read)} each). Raise the workers' memory, select fewer columns, or lower "
            "cluster.max_iter"
        )
    panels = [one for one in plan.passes if one.name.startswith("summarize, a panel")]
    if len(panels) > 1:
        yield (
            f"{plan.source['shape'][1]} columns are too many for one pass: their co-moment takes {len(panels)}, each "
            f"of which reads everything, and its whole ({format_bytes(plan.client_nbytes // 2)}) is solved in one "
            "process; a method that selects from a sketch takes one pass"
        )
    read = [one for one in on_workers if one.stage == "collect"]
    if plan.reads_columns and any(one.bytes_read for one in read):
        yield (
            f"{plan.method} reads columns: there are {read[0].partitions} partitions of them, and from a store that is "
            'chunked by rows each of them reads every chunk. Rechunk it, or set read = "rows" where the method has that'
        )


def _of_cluster(plan: JobForecast) -> Iterator[str]:
    if not plan.place.asked:
        yield (
            f"how many workers {plan.place.cluster} has is not asked; {plan.place.n_workers} are assumed (--n-workers)"
        )
    if _is_here(plan.place.cluster):
        return
    kind = filesystem(Path(plan.place.output))
    if kind in LOCAL_FILESYSTEMS:
        yield (
            f"output.dir ({plan.place.output}) is on a disk of this machine ({kind}); workers on other machines must "
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
    """Return the type of the file system of a path that may not be there yet; None where the system does not tell."""
    place = os.path.realpath(path)
    best, kind = "", None
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, where, fstype, *_ = line.split()
        where = where.replace("\\040", " ")
        if (place == where or place.startswith(where.rstrip("/") + "/")) and len(where) >= len(best):
            best, kind = where, fstype
    return kind
