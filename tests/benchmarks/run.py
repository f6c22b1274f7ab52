"""One table of all that the package is compared with: python tests/benchmarks/run.py [--small] [NAMES].

Each case has the same work for us, for every peer (extra `bench`; one that is missing is a row "not installed") and for
the floor, the products or sums that nobody can do without. All sides take turns in one run, after a warm-up. `CPU` is
processor time of this process, all its threads: on a busy machine it compares, wall time does not. `value` is the same
figure of merit of every result, named in the head of the case. The ratio is ours / the other side, in CPU time.

`bench_solvers`, or another script's name, runs that script with the options behind it; `page` makes the page of speeds.
"""

import argparse
import runpy
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from cases import CASES, FLOOR, OURS, Case, Setting  # noqa: E402

MISSING = "not installed"
REST = 0.2
"""Seconds of rest before every measurement."""


@dataclass
class Side:
    """Measurements of one side of a case."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    value: float | None = None
    reason: str = ""  # Why there are none

    def measure(self, work: Callable[[], float | None]) -> None:
        """Run the work once, and add what it took.

        Threads of BLAS and OpenMP turn idly for a while after the work of the side before; this processor time is not
        that of the next.
        """
        time.sleep(REST)
        wall, cpu = time.perf_counter(), time.process_time()
        self.value = work()
        self.cpu.append(time.process_time() - cpu)
        self.wall.append(time.perf_counter() - wall)


def measure(case: Case, repeats: int) -> dict[str, Side]:
    """Return the measurements of every side; all take turns."""
    sides: dict[str, Side] = {name: Side() for name in case.sides}
    ready: dict[str, Callable[[], float | None]] = {}
    for name, make in case.sides.items():
        try:
            work = make()
            work()
        except Exception as error:  # a peer that fails is a row, not the end of the table
            if name in (OURS, FLOOR):
                raise
            missing = isinstance(error, ImportError)
            sides[name].reason = MISSING if missing else f"fails: {type(error).__name__}"
        else:
            ready[name] = work
    for _ in range(repeats):
        for name, work in ready.items():
            sides[name].measure(work)
    return sides


def lines(name: str, case: Case, sides: dict[str, Side]) -> Iterator[str]:
    """Yield the rows of a case."""
    yield f"{name}: {case.what}; value: {case.value}"
    ours = sides[OURS]
    for who, side in sides.items():
        if side.reason:
            yield f"  {who:<24} {side.reason}"
            continue
        pairs = list(zip(ours.cpu, side.cpu, strict=True))
        ratio = statistics.median(a / max(b, 1e-9) for a, b in pairs)
        value = "" if side.value is None else f"{side.value:12.6g}"
        beside = "" if who == OURS else f"ratio {ratio:7.2f}"
        yield (
            f"  {who:<24} CPU {1e3 * statistics.median(side.cpu):10.1f} ms   "
            f"wall {1e3 * statistics.median(side.wall):10.1f} ms   {beside:<13} {value:<12} {case.notes.get(who, '')}"
        )


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    arguments = sys.argv[1:] if arguments is None else arguments
    script = HERE / f"{arguments[0]}.py" if arguments else HERE
    if (script.stem.startswith("bench_") or script.stem == "page") and script.is_file():
        sys.argv = [str(script), *arguments[1:]]
        runpy.run_path(str(script), run_name="__main__")
        return
    scripts = ", ".join(sorted(path.stem for path in HERE.glob("bench_*.py")))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CASES)}; or a script: {scripts}")
    parser.add_argument("--small", action="store_true", help="sizes that measure nothing")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="threads of k-means")
    parser.add_argument("--iterations", type=int, default=10, help="most iterations of k-means")
    parser.add_argument("--rows", type=int, default=20_000, help="rows of the store; 500000 are 4 GB")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - set(CASES):
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    warnings.simplefilter("ignore")
    for name in given.names or CASES:
        try:
            case = CASES[name](Setting(given.small, given.threads, given.rows, given.iterations))
        except FileNotFoundError as error:
            print(f"{name}: {Path(error.filename).name} is not there; SKETCHSELECT_DATA names its folder")
            continue
        for line in lines(name, case, measure(case, 1 if given.small else given.repeats)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
