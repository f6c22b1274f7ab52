"""Options of passes on the reference engine, and a progress that remembers."""

from collections.abc import Callable
from typing import Any

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
