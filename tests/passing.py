"""What tests of many layers need: processes, progress that remembers or acts, passes, random trees, damaged files."""

import contextlib
import itertools
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sketchselect._progress import Progress
from sketchselect.execution import LocalEngine, PassOptions
from sketchselect.summaries import Moments


def succeed(*words: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command, which has to succeed, and return what it has written."""
    options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 600, **options}
    done = subprocess.run([*map(str, words)], check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@contextlib.contextmanager
def dask_cluster(
    n_workers: int, *, processes: bool = True, threads: int = 1, as_default: bool = False
) -> Iterator[tuple[Any, Any]]:
    """Yield a cluster of this machine and a client."""
    from distributed import Client, LocalCluster

    options: dict[str, Any] = {"n_workers": n_workers, "threads_per_worker": threads, "dashboard_address": None}
    if processes:
        options |= {"host": "127.0.0.1", "scheduler_kwargs": {"dashboard_address": "127.0.0.1:0"}}
    with LocalCluster(processes=processes, **options) as cluster, Client(cluster, set_as_default=as_default) as client:
        yield cluster, client


def interrupt() -> None:
    """Raise what Ctrl-C raises."""
    raise KeyboardInterrupt


class Recorder(Progress):
    """Remembers the passes that begin and the notes; calls a function at the beginning of one pass."""

    def __init__(self, stage: str | None = None, action: Callable[[], object] = lambda: None) -> None:
        self.stage, self.action = stage, action
        self.starts: list[tuple[str, int, int]] = []
        self.notes: list[str] = []

    def start(self, stage: str, total_bytes: int, n_partitions: int) -> None:
        self.starts.append((stage, total_bytes, n_partitions))
        if stage == self.stage:
            self.action()

    def note(self, text: str) -> None:
        self.notes.append(text)

    @property
    def stages(self) -> list[str]:
        return [stage for stage, _, _ in self.starts]


class Meanwhile(Progress):
    """Calls a function once so many partitions of a pass are done."""

    def __init__(self, action: Callable[[], object], after: int = 2) -> None:
        self.action, self.after, self.n_done = action, after, 0

    def advance(self, nbytes: int) -> None:
        self.n_done += 1
        if self.n_done == self.after:
            self.action()


class Counted(Moments):
    """Moments that count their merges."""

    kind = "moments"
    merges = 0

    def merge(self, other: Moments) -> Moments:
        Counted.merges += 1
        return super().merge(other)


def serial(**options: Any) -> PassOptions:
    """Return options of passes that Dask's synchronous scheduler computes."""
    return PassOptions(LocalEngine(kind="serial"), **options)


def split(description: Any, X: Any, edges: Any, y: Any = None, weights: Any = None) -> list[Any]:
    """Return the summaries of the runs of rows between the edges."""
    return [
        description.from_block(
            X[a:b], None if y is None else y[a:b], start=int(a), sample_weight=None if weights is None else weights[a:b]
        )
        for a, b in itertools.pairwise(edges)
    ]


def random_tree(parts: list[Any], rng: np.random.Generator) -> Any:
    """Return summaries of neighbouring rows merged into one by a random tree."""
    while len(parts) > 1:
        i = int(rng.integers(len(parts) - 1))
        parts[i : i + 2] = [parts[i].merge(parts[i + 1])]
    return parts[0]


def drifting(n: int = 600, p: int = 60, seed: int = 3, sizes: Any = (5, 2), late: Any = (30, 44)) -> Any:
    """Return rows whose first half columns 2 and 5 carry, and the `late` ones the second."""
    rng = np.random.default_rng(seed)
    X = 0.1 * rng.standard_normal((n, p))
    X[: n // 2, [2, 5]] += sizes[0] * rng.standard_normal((n // 2, 2))
    X[n // 2 :, late] += sizes[1] * rng.standard_normal((n - n // 2, 2))
    return X


def flip(path: Path, at: int | None = None, mask: int = 16) -> None:
    """Change a byte of a file, the middle one by default."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if at is None else at % len(content)] ^= mask
    path.write_bytes(content)
