"""The simulator of passes against real worker processes, and what a terabyte costs: see "What a terabyte costs".

    python tests/benchmarks/bench_scale.py predict FOLDER [--rows 16000] [--tasks 1000 10000] [--figure FILE.svg]
    python tests/benchmarks/bench_scale.py table [--price 0.05]
    python tests/benchmarks/bench_scale.py formula
    python tests/benchmarks/bench_scale.py graph [--partitions 1000000]

`predict` measures the mean costs of a partition (reading, summarising) and of a merge with all workers at work, of
bringing a state to another worker, of a task and of a pass of one task, then passes on one and two workers over the
same rows (strong scaling) and over twice the rows (weak scaling), of a sketch and of an exact Gram matrix, and prints
what the simulator says from those costs. Both are in wall time and in processor time of the workers: on a busy machine
only the second one compares. `table` is what the simulator says of 100 to 10,000 workers and 10^12 to 10^15 bytes, and
how far the formula of `sketchselect plan` is from it; `formula` compares the two on all partitions and fan-ins that the
table chooses from.
`graph` builds the tasks of very many partitions.
"""

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
from simulation import simulate_pass
from stores import COLUMNS, make_store, tiny_store

import sketchselect as sks
from sketchselect.execution import LocalEngine, PassOptions, Source
from sketchselect.execution.clusters import local_cluster
from sketchselect.execution.plan import Plan
from sketchselect.execution.source import Block
from sketchselect.execution.summarize import plan_summary
from sketchselect.execution.tasks import run_leaf, run_merge
from sketchselect.workflow.plan.dry_run import ClusterCosts, PassCosts, estimate_pass

SPEC = {"sketch": sks.FrequentDirections(size=64), "stats": sks.ColumnStats()}
WIDTHS = COLUMNS, COLUMNS // 4  # Columns: of a sketch, and of an exact Gram matrix
SENT = 32  # States that are sent from worker to worker

# Measured by `predict` on one worker, means: seconds a gigabyte of float32 of 2,000 columns, and of a merge of two
# sketches of 64 rows. The store is assumed: what a large object store gives all workers together, in bytes a second.
STORE_BYTES = 200e9
READ_PER_GB, COMPUTE_PER_GB, MERGE = 1.0, 3.4, 0.003


def processor_seconds() -> float:
    """Return the processor time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak_mib() -> float:
    """Return the largest resident memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def planned(path: str) -> Plan[Any]:
    """Return the pass over a store, as `summarize` plans it."""
    bundle, options = sks.Bundle(SPEC), PassOptions(LocalEngine(1))
    return plan_summary(Source(sks.open_matrix(path)), bundle, options)[1][0]


def leaf_costs(path: str, first: int) -> dict[str, float]:
    """Return mean processor seconds of this process for a partition, read and computed, and for a merge of two states.

    By the tasks of the pass: of as many partitions as one merge takes, from `first` on, after two to warm up. The least
    of them, or a merge of two states alone, would be too low: every second merge shrinks, and the first one does not.
    """
    work = planned(path)
    count = min(work.tree.fan_in, len(work.partitions))
    spans = [work.span((first + i) % len(work.partitions)) for i in range(-2, count)]
    seconds, parts = {"read": 0.0, "compute": 0.0}, []
    for i, span in enumerate(spans):
        start = processor_seconds()
        values = work.source.matrix.read_rows(span.start, span.stop)
        middle = processor_seconds()
        part = run_leaf(work.context, [span], Block(values, None, None, span.start, span.stop))
        if i >= 2:
            parts.append(part)
            seconds["read"] += (middle - start) / count
            seconds["compute"] += (processor_seconds() - middle) / count
    start = processor_seconds()
    whole = run_merge(work.context, parts, (spans[0].start, spans[-1].stop))
    merge = (processor_seconds() - start) / max(1, count - 1)
    return {**seconds, "merge": merge, "state": float(whole.value.nbytes)}


def costs_at_once(client: Any, path: str) -> dict[str, float]:
    """Return the costs of a partition and of a merge while every worker is at one, and those of sending a state."""
    addresses = list(client.scheduler_info()["workers"])
    futures = [client.submit(leaf_costs, path, 8 * i, workers=[w], pure=False) for i, w in enumerate(addresses)]
    each = client.gather(futures)
    costs = {key: statistics.mean(one[key] for one in each) for key in each[0]}
    return {**costs, **(sending_costs(client, addresses, int(costs["state"])) if len(addresses) > 1 else {})}


def sending_costs(client: Any, addresses: list[str], nbytes: int) -> dict[str, float]:
    """Return wall and processor seconds that it takes to bring a state to another worker, beyond a task itself."""
    seconds = []
    for there in (addresses[0], addresses[1]):
        states = [client.submit(np.ones, nbytes // 8, workers=addresses[:1], pure=False) for _ in range(SENT)]
        client.gather([client.submit(len, one, workers=addresses[:1], pure=False) for one in states])
        before, wall = client.run(processor_seconds), time.perf_counter()
        client.gather([client.submit(len, one, workers=[there], pure=False) for one in states])
        wall, after = time.perf_counter() - wall, client.run(processor_seconds)
        seconds.append((wall, sum(after[w] - before[w] for w in after)))
    wall, used = ((there - here) / SENT for here, there in zip(*seconds, strict=True))
    return {"send": max(wall, 0.0), "send_workers": max(used, 0.0)}


def timed_pass(client: Any, path: str, spec: Any, **options: Any) -> dict[str, float]:
    """Return wall seconds of a pass, and processor seconds of the workers and of client and scheduler."""
    before, mine, wall = client.run(processor_seconds), processor_seconds(), time.perf_counter()
    sks.summarize(path, spec, client=client, **options)
    wall, mine = time.perf_counter() - wall, processor_seconds() - mine
    after = client.run(processor_seconds)
    return {"wall": wall, "workers": sum(after[w] - before[w] for w in after), "client": mine}


def task_costs(client: Any, folder: Path, tasks: list[int]) -> dict[str, Any]:
    """Measure a task of next to no rows, in passes of so many, and a pass of one task: what every pass begins with."""
    shape = (10, 20)
    runs = []
    for n in [1, *tasks]:
        path = folder / f"tiny-{n}.npy"
        np.save(path, np.random.default_rng(0).random((n * shape[0], shape[1])))
        several = []
        for _ in range(5 if n == 1 else 1):
            several.append(timed_pass(client, str(path), sks.ColumnStats(), partition_bytes=8 * shape[0] * shape[1]))
        took = {key: statistics.median(one[key] for one in several) for key in several[0]}
        runs.append({"tasks": n, **{key: value / n for key, value in took.items()}})
        print(f"{n} tasks: " + ", ".join(f"{k} {1e3 * v / n:.2f} ms a task" for k, v in took.items()), flush=True)
    median = {key: statistics.median(one[key] for one in runs[1:]) for key in ("client", "workers")}
    return {"tasks": runs, "pass": runs[0], "task": median}


def said_of(costs: dict[str, float], of_tasks: dict[str, Any], path: str, workers: int) -> dict[str, float]:
    """Return what the simulator says of a pass: wall seconds, and processor seconds of the workers."""
    tree = planned(path).tree
    chain = tree.n_partitions / tree.n_leaves
    of_worker = of_tasks["task"]["workers"]
    # A task of the tree is a leaf or a merge, and each merge is a part of fan_in - 1 merges of two.
    model = PassCosts(
        tree.n_leaves,
        chain * costs["read"] + of_worker,
        chain * costs["compute"] + (chain - 1) * costs["merge"],
        costs["merge"] + of_worker / (tree.fan_in - 1),
        int(costs["state"]),
        fan_in=tree.fan_in,
    )
    # States move to the worker that merges them: of two workers' states one half.
    moved = 1 - 1 / workers
    network = costs["state"] / (moved * costs["send"]) if moved * costs.get("send", 0.0) else float("inf")
    cluster = ClusterCosts(workers, of_tasks["task"]["client"], network, cores=os.cpu_count())
    wall = of_tasks["pass"]["wall"] + simulate_pass(model, cluster)
    used = replace(model, merge=model.merge + moved * costs.get("send_workers", 0.0), state_nbytes=0)
    one = simulate_pass(used, ClusterCosts(1, task=0.0))
    return {"said": wall, "said_workers": of_tasks["pass"]["workers"] + one}


def predict(folder: Path, rows: int, tasks: list[int], repeats: int) -> dict[str, Any]:
    """Measure, simulate, and print both."""
    found: dict[str, Any] = {"runs": [], "costs": {}}
    paths = {}
    for columns in WIDTHS:
        for n in (rows * COLUMNS // columns, 2 * rows * COLUMNS // columns):
            paths[n, columns] = str(folder / f"mixture-{n}-{columns}.zarr")
            make_store(Path(paths[n, columns]), n, columns)
    began = time.perf_counter()
    with local_cluster(1) as engine:
        engine.client.submit(os.getpid).result()
        found["start"] = time.perf_counter() - began
        timed_pass(engine.client, next(iter(paths.values())), SPEC)
        found |= task_costs(engine.client, folder, tasks)
    for workers in (1, 2):
        with local_cluster(workers) as engine:
            for columns in WIDTHS:
                few, many = ((n, path) for (n, c), path in paths.items() if c == columns)
                timed_pass(engine.client, few[1], SPEC)
                # Of the smaller store, with as many workers at work as there will be: they share caches and memory.
                each, medians = [costs_at_once(engine.client, few[1])], []
                for _, path in (few, many):
                    measured = [timed_pass(engine.client, path, SPEC) for _ in range(repeats)]
                    medians.append({key: statistics.median(one[key] for one in measured) for key in measured[0]})
                    # Again, as what else the machine does changes.
                    each.append(costs_at_once(engine.client, few[1]))
                costs = {key: statistics.mean(one[key] for one in each) for key in each[0]}
                found["costs"][f"{workers} workers, {columns} columns"] = costs
                print(f"{workers} workers, {columns} columns: " + ", ".join(f"{k} {v:.5g}" for k, v in costs.items()))
                for (n, path), median in zip((few, many), medians, strict=True):
                    said = said_of(costs, found, path, workers)
                    found["runs"].append({"n_workers": workers, "rows": n, "columns": columns, **median, **said})
                    pairs = {
                        "wall": (median["wall"], said["said"]),
                        "processor": (median["workers"], said["said_workers"]),
                    }
                    print(
                        f"{workers} workers, {n} x {columns}: "
                        + ", ".join(
                            f"{k} {a:.2f} s, simulated {b:.2f}, ratio {b / a:.2f}" for k, (a, b) in pairs.items()
                        ),
                        flush=True,
                    )
    return found


def draw(found: dict[str, Any], figure: Path) -> None:
    """Draw predicted against measured, and the simulated time of 10^12 to 10^15 bytes by workers."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams["svg.hashsalt"] = "scale"
    _, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2))
    most = 1.1 * max(run["workers"] for run in found["runs"])
    left.plot([0, most], [0, most], color="0.7")
    kinds = dict.fromkeys((run["n_workers"], run["columns"]) for run in found["runs"])
    for (workers, columns), marker in zip(kinds, "osx+", strict=True):
        runs = [run for run in found["runs"] if (run["n_workers"], run["columns"]) == (workers, columns)]
        measured, said = ([run[key] for run in runs] for key in ("workers", "said_workers"))
        left.plot(measured, said, marker, label=f"{workers} worker{'s' * (workers > 1)}, {columns:,} columns")
    left.legend(fontsize=7)
    left.set(xlabel="measured processor seconds of the workers", ylabel="simulated")
    workers = [10, 30, 100, 300, 1000, 3000, 10_000]
    for exponent in (12, 13, 14, 15):
        hours = [best(10.0**exponent, n)[0] / 3600 for n in workers]
        right.loglog(workers, hours, "o-", label=f"$10^{{{exponent}}}$ bytes")
    right.set(xlabel="workers", ylabel="hours, simulated")
    right.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))  # Beside the lines, not over them
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


def best(total: float, workers: int) -> tuple[float, str, float, int, float]:
    """Return seconds, bottleneck, partition bytes and fan-in of the fastest pass, and the formula's seconds for it."""
    choices = []
    for partition in (16e6, 64e6, 256e6, 1e9, 4e9):
        for fan_in in (2, 4, 8, 16, 32):
            costs, cluster = pass_of(total, partition, fan_in), ClusterCosts(workers, store=STORE_BYTES)
            estimate = estimate_pass(costs, cluster)
            seconds = simulate_pass(costs, cluster, most_events=2_000)
            choices.append((seconds, estimate.bottleneck, partition, fan_in, estimate.seconds))
    fastest = min(choices)[0]
    # Among those within a hundredth: the smallest partition, which takes the least memory, and our fan-in.
    return min((one for one in choices if one[0] <= 1.01 * fastest), key=lambda one: (one[2], abs(one[3] - 8)))


def table(price: float) -> None:
    """Print time, bottleneck, price and the partition to choose, as a table in Markdown."""
    print("| bytes | workers | time | formula | bottleneck | price | partition | fan-in |\n" + 8 * "|---" + "|")
    for exponent in (12, 13, 14, 15):
        for workers in (100, 1000, 10_000):
            seconds, why, partition, fan_in, formula = best(10.0**exponent, workers)
            print(
                f"| 10^{exponent} | {workers:,} | {seconds / 60:,.1f} min | {formula / seconds - 1:+.1%} | {why} | "
                f"{price * workers * seconds / 3600:,.2f} | {partition / 1e6:,.0f} MB | {fan_in} |",
                flush=True,
            )


def formula() -> None:
    """Print how far the formula of `plan` is from the simulator: all bytes, workers, partitions and fan-ins."""
    off: dict[int, list[float]] = {}
    for exponent in (12, 13, 14, 15):
        for workers in (100, 1000, 10_000):
            for partition in (16e6, 64e6, 256e6, 1e9, 4e9):
                for fan_in in (2, 4, 8, 16, 32):
                    costs = pass_of(10.0**exponent, partition, fan_in)
                    cluster = ClusterCosts(workers, store=STORE_BYTES)
                    estimate, simulated = estimate_pass(costs, cluster).seconds, simulate_pass(costs, cluster)
                    off.setdefault(workers, []).append(estimate / simulated - 1)
    for workers, shares in off.items():
        least, low, middle, high, most = np.quantile(shares, [0, 0.05, 0.5, 0.95, 1])
        print(
            f"{workers:,} workers, {len(shares)} passes: median {middle:+.1%}, 90 % from {low:+.1%} to {high:+.1%}, "
            f"all from {least:+.1%} to {most:+.1%}"
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
    _, (work,) = plan_summary(source, sks.ColumnStats(), options)
    ready, n_tasks = {}, 0
    for node in [work.tree.root] if whole else work.cuts(512):
        tasks = work.graph(node, ready)
        n_tasks += len(tasks)
        ready[node] = None
    print(
        f"{len(work.partitions)} partitions, {n_tasks} tasks: {time.process_time() - cpu:.1f} s of processor time, "
        f"{time.perf_counter() - wall:.0f} s, {before:.0f} MiB before, {peak_mib():.0f} MiB at most"
    )


def main() -> None:
    """Run one of the four."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["predict", "table", "formula", "graph"])
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
    elif given.what == "formula":
        formula()
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
