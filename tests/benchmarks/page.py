"""The page of speeds, measured on this machine: python tests/benchmarks/run.py page [--page FILE].

Writes a table and a figure, in SVG beside the page, between the two comments of the page (by default that of this
repository), and leaves the rest of it. Without such a page one is made. SKETCHSELECT_DATA names the folder of
the public sets; cases whose set is not there are left out.
"""

import argparse
import os
import platform
import statistics
import sys
import time
import warnings
from importlib import metadata
from pathlib import Path

from cases import CASES, FLOOR, OURS, Case, Setting
from run import MISSING, Side, measure

PAGE = Path(__file__).resolve().parents[2] / "notebooks" / "reference" / "speed.md"
BEGIN, END = "<!-- measured: python tests/benchmarks/run.py page -->", "<!-- end of what is measured -->"
CHOSEN = (
    *("kmeans_narrow", "kmeans_patches", "sketch_patches", "lasso_diabetes", "sketch_mnist", "kmeans_mnist"),
    *("sparse_texts", "stream", "lasso", "sketch", "genes", "sparse"),
)
PEERS = ("scikit-learn", "scikit-learn-intelex", "faiss-cpu", "dask", "dask-ml", "skglm", "river", "scanpy")
Measured = dict[str, tuple[Case, dict[str, Side]]]


def machine() -> str:
    """Return the machine in general terms: processor, cores, system."""
    model, cores = platform.processor() or platform.machine(), len(os.sched_getaffinity(0))
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{model}, {cores} core{'s' * (cores > 1)}, {platform.system()}"


def versions() -> str:
    """Return the versions of the package, its libraries and the peers that are installed."""
    named = [f"Python {platform.python_version()}"]
    for name in ("sketchselect", "numpy", "scipy", "numba", *PEERS):
        try:
            named.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(named)


def relative(side: Side, floor: Side) -> list[float]:
    """Return the times of a side over those of the floor, round by round."""
    return [a / max(b, 1e-9) for a, b in zip(side.cpu, floor.cpu, strict=True)]


def table(measured: Measured) -> str:
    """Return the measurements as one table of Markdown."""
    rows = ["| work | who | ms | least to greatest | over the floor | ours / theirs |", "|---|---|---|---|---|---|"]
    for case, sides in measured.values():
        what = case.what
        for who, side in sides.items():
            if side.reason:
                rows.append(f"| {what} | {who} | {side.reason} | | | |")
                continue
            low, middle, high = (1e3 * f(side.cpu) for f in (min, statistics.median, max))
            floor = statistics.median(relative(side, sides[FLOOR]))
            ours = f"{statistics.median(relative(sides[OURS], side)):.2f}" if who not in (OURS, FLOOR) else ""
            name = f"**{who}**" if who == OURS else who
            cells = [what, name, f"{middle:.3g}", f"{low:.3g} to {high:.3g}", f"{floor:.2f}", ours]
            rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
            what = ""
    return "\n".join(rows)


def label(what: str) -> str:
    """Return what a case does, up to the last comma that leaves it short enough for the figure."""
    shown = what.partition(", one thread")[0].partition(", threads")[0]
    return shown if len(shown) <= 80 else shown[:80].rpartition(", ")[0]


def draw(measured: Measured, file: Path) -> None:
    """Draw the times over the floor, a line for every case, a mark for every side, a bar for its spread."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    plt.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "speed", "font.size": 9}
    names = sorted({who for _, sides in measured.values() for who, side in sides.items() if not side.reason})
    others = [name for name in names if name not in (OURS, FLOOR)]
    looks = {OURS: ("#c1121f", "o"), **{n: (f"C{i % 10}", "sD^vPX<>p*h"[i % 11]) for i, n in enumerate(others)}}
    figure, axes = plt.subplots(figsize=(9, 1.3 + 0.45 * len(measured)), layout="constrained")
    for place, (_, sides) in enumerate(measured.values()):
        for who in (*others, OURS):
            if who not in sides or sides[who].reason:
                continue
            times, (color, mark) = relative(sides[who], sides[FLOOR]), looks[who]
            axes.plot([min(times), max(times)], [place, place], color=color, linewidth=1.5, zorder=2 + (who == OURS))
            axes.plot([statistics.median(times)], [place], mark, color=color, label=who, zorder=3 + (who == OURS))
    axes.axvline(1, color="#444444", linewidth=1)
    axes.set_xscale("log")
    axes.set_yticks(range(len(measured)), [label(case.what) for case, _ in measured.values()])
    axes.invert_yaxis()
    axes.grid(axis="x", which="both", color="#dddddd", linewidth=0.5)
    axes.set_xlabel("processor time / floor")
    legend = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(legend.values(), legend, loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})


def text_of(measured: Measured, left_out: list[str], repeats: int, figure: str) -> str:
    """Return what stands between the comments."""
    cases = f"Cases measured: {', '.join(measured)}."
    if left_out:
        cases += f" Not measured, for want of their data or of time: {', '.join(left_out)}."
    return f"""{BEGIN}

Measured on: {machine()}.

Versions: {versions()}.

Processor time of one process, every side on one thread. All sides of a case take turns in one run: {repeats} rounds
after one to warm up, of which the table has the middle, the least and the greatest. Made rows are random numbers; real
rows come with scikit-learn or are public sets. The *floor* is the products or sums that nobody can do without.

{cases}

![Processor time of the package and its peers over that of the floor, {len(measured)} cases]({figure})

{table(measured)}

{END}"""


def main(arguments: list[str] | None = None) -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="CASE", default=CHOSEN, help=f"of {', '.join(CASES)}")
    parser.add_argument("--page", type=Path, default=PAGE, help="file that is written; the figure is beside it")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=9, help="no case begins after these")
    parser.add_argument("--small", action="store_true", help="sizes that measure nothing")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - {*CASES, *CHOSEN}:
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    warnings.simplefilter("ignore")
    setting = Setting(given.small, threads=1)
    measured: Measured = {}
    left_out, until = [], time.monotonic() + 60 * given.minutes
    for name in given.names:
        if time.monotonic() > until or name not in CASES:
            left_out.append(name)
            continue
        print(name, file=sys.stderr, flush=True)
        case = CASES[name](setting)
        sides = measure(case, given.repeats)
        measured[name] = case, {who: side for who, side in sides.items() if side.reason != MISSING}
    figure = given.page.with_suffix(".svg")
    draw(measured, figure)
    page = given.page.read_text() if given.page.exists() else f"# Speed\n\n{BEGIN}\n{END}\n"
    head, tail = page.partition(BEGIN)[0], page.partition(END)[2]
    given.page.write_text(head + text_of(measured, left_out, given.repeats, figure.name) + tail)


if __name__ == "__main__":
    main()
