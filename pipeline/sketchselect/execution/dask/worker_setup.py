"""What every worker of a cluster of our own does first, also one that replaces a dead one."""

from __future__ import annotations

import signal
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin


class IgnoreInterrupts(WorkerPlugin):  # type: ignore[misc]
    """Leave Ctrl-C to the process that started the job: a terminal sends it to the workers as well."""

    name = "sketchselect-ignore-interrupts"

    def setup(self, worker: Any) -> None:
        """Ignore SIGINT."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
