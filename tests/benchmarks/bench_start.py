"""What the start of a process costs: the help, a first fit of a small array, and a whole job, against another checkout.

Run: ``python tests/benchmarks/bench_start.py --against TREE [--job FILE]``. All sides take turns in new processes after
a warm-up, which compiles and writes caches; the ratios are of processor time with that of the children. `FILE` is a job
file; both trees write its results anew to a folder of their own.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
FIT = "import numpy, sketchselect; sketchselect.GreedySelector(5).fit(numpy.random.default_rng(0).random((200, 20)))"
FLOOR = "import numpy, scipy.linalg"


def processor_seconds(words: list[str], tree: Path) -> float:
    """Return user and system time of one process with the package of a tree."""
    # The package's compiled modules are cached, as those of an installation are.
    environment = os.environ | {"PYTHONPATH": str(tree / "pipeline"), "PYTHONDONTWRITEBYTECODE": ""}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, required=True, metavar="TREE", help="another checkout")
    parser.add_argument("--job", metavar="FILE", help="a job file")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    command = ["-m", "sketchselect"]
    with tempfile.TemporaryDirectory() as folder:
        cases = {"sketchselect --help": [*command, "--help"], "first fit": ["-c", FIT]}
        if given.job:
            cases["job"] = [*command, "run", given.job, "--fresh", "--set", f"output.dir={folder}/TREE"]
        for name, words in cases.items():
            sides = {"ours": (words, HERE), "theirs": (words, given.against), FLOOR: (["-c", FLOOR], HERE)}
            taken: dict[str, list[float]] = {side: [] for side in sides}
            for turn in range(given.repeats + 1):
                for side, (program, tree) in sides.items():
                    seconds = processor_seconds([word.replace("TREE", side) for word in program], tree)
                    if turn:
                        taken[side].append(seconds)
            ours, theirs, floor = map(statistics.median, taken.values())
            print(f"{name:22} {ours:7.3f} s  ratio {ours / theirs:5.2f}  to {FLOOR!r} {ours / floor:5.1f}", flush=True)


if __name__ == "__main__":
    main()
