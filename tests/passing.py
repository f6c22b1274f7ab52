"""What tests of many layers need: a progress that remembers, passes on one thread, random trees, damaged files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sketchselect._progress import Progress
from sketchselect.execution import LocalEngine, PassOptions


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


def serial(**options: Any) -> PassOptions:
    """Return options of passes that Dask's synchronous scheduler computes."""
    return PassOptions(LocalEngine(kind="serial"), **options)


def random_tree(parts: list[Any], rng: np.random.Generator) -> Any:
    """Return summaries of neighbouring rows merged into one by a random tree."""
    while len(parts) > 1:
        i = int(rng.integers(len(parts) - 1))
        parts[i : i + 2] = [parts[i].merge(parts[i + 1])]
    return parts[0]


def flip(path: Path, at: int | None = None, mask: int = 16) -> None:
    """Change a byte of a file, the middle one by default."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if at is None else at % len(content)] ^= mask
    path.write_bytes(content)
