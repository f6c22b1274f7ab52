"""The simulator of passes against real worker processes, and what a terabyte costs: see "What a terabyte costs".

    python tests/benchmarks/bench_scale.py predict FOLDER [--rows 16000] [--tasks 1000 10000] [--figure FILE.svg]
    python tests/benchmarks/bench_scale.py table [--price 0.05]
    python tests/benchmarks/bench_scale.py graph [--partitions 1000000]

`predict` measures the costs of a pass in one worker process (reading a partition, summarising it, merging two
states), of a task and of a start, then passes on one and two workers over the same rows (strong scaling) and over twice
the rows (weak scaling), and prints what the simulator says from those costs. Both are in wall time and in processor
time of workers, scheduler and client: on a busy machine only the second one compares. `table` is what the simulator
says of 100 to 10,000 workers and 10^12 to 10^15 bytes. `graph` builds the tasks of very many partitions.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from bench_large import COLUMNS, make_store
from bench_overhead import peak_mib, tiny_store

import sketchselect as sks
from sketchselect.execution import LocalEngine, PassOptions, Source
from sketchselect.execution.dask.clusters import local_cluster
from sketchselect.execution.graph.passes import Inputs
from sketchselect.execution.summarize import SummaryPasses
from sketchselect.workflow.forecast.simulation import ClusterCosts, PassCosts, simulate_pass

SPEC = {"sketch": sks.FrequentDirections(size=64), "stats": sks.ColumnStats()}
BAND = 2000  # Rows of a chunk of the store, and so of a partition

# Measured by `predict` on one core, least of several runs: seconds a gigabyte of float32, and of a merge of two
# sketches of 64 x 2,000. The store is assumed: what a large object store gives all workers together, in bytes a second.
STORE_BYTES = 200e9
READ_PER_GB, COMPUTE_PER_GB, MERGE = 0.9, 3.5, 0.0003


def processor_seconds() -> float:
    """Return the processor time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def leaf_costs(path: str) -> dict[str, float]:
    """Return least processor seconds of a partition and of a merge in this process, whose other threads are idle."""
    from threadpoolctl import threadpool_limits

    matrix, kinds = sks.open_matrix(path), list(SPEC.values())
    read, compute, merge = [], [], []
    state: list[Any] = []
    with threadpool_limits(1):
        for i in range(4):
            start = time.process_time()
            rows = matrix.read_rows(i * BAND, (i + 1) * BAND)
            read.append(time.process_time() - start)
            start = time.process_time()
            parts = [kind.from_block(rows) for kind in kinds]
            compute.append(time.process_time() - start)
            if state:
                start = time.process_time()
                for a, b in zip(state, parts, strict=True):
                    a.merge(b)
                merge.append(time.process_time() - start)
            state = parts
    nbytes = float(sum(part.nbytes for part in state))
    return {"read": min(read), "compute": min(compute[1:]), "merge": min(merge), "state": nbytes}


def timed_pass(client: Any, path: str, spec: Any, **options: Any) -> dict[str, float]:
    """Return wall seconds of a pass, and processor seconds of the workers and of client and scheduler."""
    before, mine, wall = client.run(processor_seconds), processor_seconds(), time.perf_counter()
    sks.summarize(path, spec, client=client, **options)
    wall, mine = time.perf_counter() - wall, processor_seconds() - mine
    after = client.run(processor_seconds)
    return {"wall": wall, "workers": sum(after[w] - before[w] for w in after), "client": mine}


def predict(folder: Path, rows: int, tasks: list[int], repeats: int) -> dict[str, Any]:
    """Measure, simulate, and print both."""
    paths = {n: folder / f"mixture-{n}.zarr" for n in (rows, 2 * rows)}
    for n, path in paths.items():
        make_store(path, n)
    found: dict[str, Any] = {"runs": [], "tasks": []}
    began = time.perf_counter()
    size, shape = 10 * 20 * 8, (10, 20)
    with local_cluster(1) as engine:
        client = engine.client
        client.submit(os.getpid).result()
        found["start"] = time.perf_counter() - began
        timed_pass(client, str(paths[rows]), SPEC)
        costs = client.submit(leaf_costs, str(paths[rows]), pure=False).result()
        tiny = folder / "warm.npy"
        np.save(tiny, np.zeros((8 * shape[0], shape[1])))
        timed_pass(client, str(tiny), sks.ColumnStats(), partition_bytes=size)
        for n in tasks:
            path = folder / f"tiny-{n}.npy"
            np.save(path, np.random.default_rng(0).random((n * shape[0], shape[1])))
            took = timed_pass(client, str(path), sks.ColumnStats(), partition_bytes=size)
            found["tasks"].append({"tasks": n, **{key: value / n for key, value in took.items()}})
            print(f"{n} tasks: " + ", ".join(f"{k} {1e3 * v / n:.2f} ms" for k, v in took.items()), flush=True)
    found["costs"] = costs
    task = statistics.median(one["client"] for one in found["tasks"])
    overhead = statistics.median(one["workers"] for one in found["tasks"])
    print(f"costs of a partition: {costs}; a task: scheduler {1e3 * task:.2f} ms, worker {1e3 * overhead:.2f} ms")
    for workers, n in ((1, rows), (2, rows), (2, 2 * rows)):
        with local_cluster(workers) as engine:
            timed_pass(engine.client, str(paths[n]), SPEC)
            measured = [timed_pass(engine.client, str(paths[n]), SPEC) for _ in range(repeats)]
        median = {key: statistics.median(one[key] for one in measured) for key in measured[0]}
        model = PassCosts(
            n // BAND, costs["read"] + overhead, costs["compute"], costs["merge"], int(costs["state"]), fan_in=8
        )
        said = simulate_pass(model, ClusterCosts(workers, task=task, cores=os.cpu_count()))
        one = simulate_pass(replace(model, state_nbytes=0), ClusterCosts(1, task=0.0)).seconds
        found["runs"].append({"n_workers": workers, "rows": n, **median, "said": said.seconds, "said_workers": one})
        print(
            f"{workers} workers, {n} rows: wall {median['wall']:.2f} s, simulated {said.seconds:.2f} s; processor time "
            f"of the workers {median['workers']:.2f} s, simulated {one:.2f} s, ratio {one / median['workers']:.2f}",
            flush=True,
        )
    return found


def draw(found: dict[str, Any], figure: Path) -> None:
    """Draw predicted against measured, and the simulated time of a petabyte by workers."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams["svg.hashsalt"] = "scale"
    _, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2))
    measured = [one["workers"] for one in found["runs"]] if found else []
    said = [one["said_workers"] for one in found["runs"]] if found else []
    left.plot([0, 1.1 * max(measured)], [0, 1.1 * max(measured)], color="0.7")
    left.plot(measured, said, "o")
    for run, x, y in zip(found["runs"], measured, said, strict=True):
        left.annotate(
            f"{run['n_workers']} w., {run['rows']:,} rows", (x, y), xytext=(4, -10), textcoords="offset points"
        )
    left.set(xlabel="measured processor seconds of the workers", ylabel="simulated")
    workers = [10, 30, 100, 300, 1000, 3000, 10_000]
    for exponent in (12, 13, 14, 15):
        hours = [best(10.0**exponent, n)[0] / 3600 for n in workers]
        right.loglog(workers, hours, "o-", label=f"$10^{{{exponent}}}$ bytes")
    right.set(xlabel="workers", ylabel="hours, simulated")
    right.legend()
    plt.tight_layout()
    plt.savefig(figure, metadata={"Date": None})


def pass_of(total: float, partition: float, fan_in: int) -> PassCosts:
    """Return the costs of a pass over so many bytes, by the measured costs a gigabyte."""
    gigabytes = partition / 1e9
    state = 8 * 64 * COLUMNS
    n_leaves = max(1, int(total // partition))
    return PassCosts(
        n_leaves, READ_PER_GB * gigabytes, COMPUTE_PER_GB * gigabytes, MERGE, state, int(partition), fan_in
    )


def best(total: float, workers: int) -> tuple[float, str, float, int]:
    """Return seconds, bottleneck, partition bytes and fan-in of the fastest pass."""
    choices = []
    for partition in (16e6, 64e6, 256e6, 1e9, 4e9):
        for fan_in in (2, 4, 8, 16, 32):
            done = simulate_pass(
                pass_of(total, partition, fan_in), ClusterCosts(workers, store=STORE_BYTES), most_events=2_000
            )
            choices.append((done.seconds, done.bottleneck, partition, fan_in))
    fastest = min(choices)[0]
    # Among those within a hundredth: the smallest partition, which takes the least memory, and our fan-in.
    return min((one for one in choices if one[0] <= 1.01 * fastest), key=lambda one: (one[2], abs(one[3] - 8)))


def table(price: float) -> None:
    """Print time, bottleneck, price and the partition to choose, as a table in Markdown."""
    print("| bytes | workers | time | bottleneck | price | partition | fan-in |\n|---|---|---|---|---|---|---|")
    for exponent in (12, 13, 14, 15):
        for workers in (100, 1000, 10_000):
            seconds, why, partition, fan_in = best(10.0**exponent, workers)
            print(
                f"| 10^{exponent} | {workers:,} | {seconds / 60:,.1f} min | {why} | "
                f"{price * workers * seconds / 3600:,.2f} | {partition / 1e6:,.0f} MB | {fan_in} |",
                flush=True,
            )


def graph(n_partitions: int, whole: bool) -> None:
    """Build the tasks of so many partitions, in bounded graphs as a pass does or in one; print seconds and memory."""
    folder = Path(os.environ.get("TMPDIR", "/tmp"))
    path = tiny_store(folder, n_partitions)
    before, wall, cpu = peak_mib(), time.perf_counter(), time.process_time()
    source = Source(sks.open_matrix(path))
    columns = source.n_columns
    rows = source.n_rows // n_partitions
    options = PassOptions(LocalEngine(1), partition_bytes=8 * rows * columns)
    work = SummaryPasses.of(source, sks.ColumnStats(), options).planned(sks.ColumnStats())
    inputs, ready, n_tasks = Inputs(source), {}, 0
    for node in [work.tree.root] if whole else work.cuts(512):
        tasks = work.graph(node, inputs, ready)
        n_tasks += len(tasks)
        ready[node] = None
    print(
        f"{len(work.partitions)} partitions, {n_tasks} tasks: {time.process_time() - cpu:.1f} s of processor time, "
        f"{time.perf_counter() - wall:.0f} s, {before:.0f} MiB before, {peak_mib():.0f} MiB at most"
    )


def main() -> None:
    """Run one of the three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["predict", "table", "graph"])
    parser.add_argument("folder", type=Path, nargs="?", default=Path())
    parser.add_argument("--rows", type=int, default=16_000)
    parser.add_argument("--tasks", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--price", type=float, default=0.05)
    parser.add_argument("--partitions", type=int, default=10**6)
    parser.add_argument("--whole", action="store_true")
    given = parser.parse_args()
    if given.what == "table":
        table(given.price)
    elif given.what == "graph":
        graph(given.partitions, given.whole)
    else:
        given.folder.mkdir(parents=True, exist_ok=True)
        found = predict(given.folder, given.rows, given.tasks, given.repeats)
        (given.folder / "scale.txt").write_text(json.dumps(found), encoding="utf-8")
        if given.figure:
            draw(found, given.figure)


if __name__ == "__main__":
    main()
