"""A plain cluster of real processes, started by the scripts that `deploy/README.md` tells users to start."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from tests.deploy.orchestrated import rows_of, write_job, write_store

ROOT = Path(__file__).resolve().parents[2]
PLAIN = ROOT / "deploy" / "plain"
SECONDS = 600.0
"""Limits end what hangs; they do not measure: a machine with other work may be many times slower than a quiet one."""


@dataclass
class PlainCluster:
    """Processes of a scheduler and its workers, and what they wrote."""

    folder: Path
    port: int
    http_port: int
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return self.address_at(self.port)

    def address_at(self, port: int) -> str:
        return f"tcp://127.0.0.1:{port}"

    def start(self, *command: str, **settings: str) -> subprocess.Popen[bytes]:
        """Start a script of deploy/plain in its own process group; its output goes to a file of the same number."""
        log = self.folder / f"{len(self.processes)}.log"
        # A nanny leaves Dask's own settings of malloc in the process that it was started from.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
        environment = inherited | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "SKETCHSELECT_HTTP_PORT": str(self.http_port),
            "SKETCHSELECT_SPILL_DIR": str(self.folder),
            **settings,
        }
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, start_new_session=True
            )
        self.processes.append(process)
        return process

    def log(self, process: subprocess.Popen[bytes]) -> str:
        return (self.folder / f"{self.processes.index(process)}.log").read_text(encoding="utf-8", errors="replace")

    def start_scheduler(self) -> subprocess.Popen[bytes]:
        process = self.start(str(PLAIN / "scheduler.sh"), "127.0.0.1", str(self.port))
        self.wait_for(process, "Scheduler at:")
        return process

    def start_worker(self, port: int | None = None, **settings: str) -> subprocess.Popen[bytes]:
        address = self.address_at(port or self.port)
        process = self.start(str(PLAIN / "worker.sh"), address, "1", "1GiB", **settings)
        self.wait_for(process, "Registered to:")
        return process

    def wait_for(self, process: subprocess.Popen[bytes], text: str) -> None:
        wait_until(lambda: text in self.log(process) or process.poll() is not None, f"{text!r} in the log")
        assert text in self.log(process), self.log(process)

    def stop(self) -> None:
        # The group leader may be gone and its children not: the group is what has to end.
        for sign in (signal.SIGTERM, signal.SIGKILL):
            for process in reversed(self.processes):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, sign)
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline and any(p.poll() is None for p in self.processes):
                time.sleep(0.05)
        for process in self.processes:
            process.wait(timeout=600)


def wait_until(condition: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.02)


def listening_addresses(root_pid: int) -> set[str]:
    """Return the addresses on which a process or one of its descendants listens."""
    found = set()
    root = psutil.Process(root_pid)
    for process in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            connections = process.net_connections(kind="inet")
            found |= {c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN}
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The job of `orchestrated`, with a store of twelve bands beside it."""
    write_store(tmp_path / "rows.zarr", rows_of(1, 12))
    return write_job(tmp_path)


@pytest.fixture
def plain_cluster(tmp_path: Path) -> Iterator[PlainCluster]:
    """A cluster with nothing started yet; whatever is started in it is stopped afterwards."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    cluster = PlainCluster(folder, free_port(), free_port())
    try:
        yield cluster
    finally:
        cluster.stop()
