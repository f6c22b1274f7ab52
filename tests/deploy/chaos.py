"""A job, the processes that compute it, and the faults that are done to them."""

import contextlib
import hashlib
import json
import math
import os
import random
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import zarr
from tests.deploy.cluster_jobs import command
from tests.deploy.conftest import PlainCluster, wait_until
from tests.deploy.faults import LASTING, Fault
from tests.deploy.links import Clock, Disk, Link

from sketchselect.execution.panels import INDEX_KIND, PANEL_KIND, Index
from sketchselect.linalg.sparse_shrink import SketchPanel
from sketchselect.summaries import load
from sketchselect.summaries.codec import decode_record

HANG_SECONDS = 900.0
"""No run of the job may take so long: a quiet one takes ten seconds, and its stall_timeout is forty."""

END_SECONDS = 600.0
"""A process that outlives what started it by so long is an orphan; a worker waits a minute for its scheduler."""

MARK = "SKETCHSELECT_CHAOS_RUN"

Pauses = list[tuple[float, Callable[[], object]]]
"""What ends a pause, and when."""


FILES = ("selection.json", "scores.csv", "summary.sks")
STORES = ("features.zarr", "labels.zarr", "centers.zarr")
RECORD = "manifest.json"


def digests(folder: Path, spoiled: Set[Path] = frozenset()) -> dict[str, str]:
    """Return the digest of everything under a final name, without what was damaged on purpose; other damage raises."""
    damaged = {path.relative_to(folder).parts[0] for path in spoiled if path.is_relative_to(folder)}
    names = {path.name for path in folder.iterdir()} - damaged if folder.exists() else set()
    contents: dict[str, bytes] = {}
    for name in names.intersection(FILES):
        contents[name] = (folder / name).read_bytes()
    if "summary.sks" in contents:
        load(folder / "summary.sks")
    for name in names.intersection(STORES):
        contents[name] = np.asarray(zarr.open_array(folder / name, mode="r")[:]).tobytes()
    if RECORD in names:
        manifest = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        # What a run read and how long it took is its own account: one that resumes reads less.
        account = ("cost", "rows_read", "bytes_read")
        proofs = [{k: v for k, v in proof.items() if k not in account} for proof in manifest.get("certificates", ())]
        bounds = [manifest.get(name) for name in ("selection_bound", "objective")]
        contents["certificates"] = json.dumps([proofs, *bounds]).encode()
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}


@dataclass
class Stage:
    """The job, the processes that compute it, and what became of them."""

    folder: Path
    out: Path
    cluster: PlainCluster | None
    logs: Path
    clock: Clock
    disk: Disk | None = None
    store: Link | None = None
    links: list[Link] = field(default_factory=list)
    spoiled: set[Path] = field(default_factory=set)
    scheduler: subprocess.Popen[bytes] | None = None
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    ending: list[subprocess.Popen[bytes]] = field(default_factory=list)
    exits: list[int] = field(default_factory=list)
    n_done: int = 0

    def start_what_died(self) -> None:
        """Start what is not there of a scheduler and two workers; workers without their scheduler have to end."""
        if self.cluster is None:
            return
        # A scheduler that is closing answers no more, and its process is still there.
        while self.ending:
            with orphan("a process of the cluster after a signal to end"):
                self.ending.pop().wait(timeout=END_SECONDS)
        if self.scheduler is None or self.scheduler.poll() is not None:
            for worker in self.workers:
                with orphan("a worker without its scheduler"):
                    worker.wait(timeout=END_SECONDS)
            self.scheduler = self.cluster.start_scheduler()
        while len(self.links) < 3:
            self.links.append(Link(self.cluster.port))
        # The number of a worker is that of its link.
        for number in range(2):
            if len(self.workers) <= number or self.workers[number].poll() is not None:
                self.workers[number : number + 1] = [self.cluster.start_worker(self.links[number].port)]

    def run(self, faults: tuple[Fault, ...]) -> tuple[int, str]:
        """Run the job with faults; return its exit code and what it said. Nothing that it started may be left."""
        mark = uuid.uuid4().hex
        log = self.logs / f"run-{len(self.exits)}.log"
        address = self.cluster.address_at(self.links[2].port) if self.cluster else "local"
        words = command(self.folder, address, str(self.out), "-v")
        if self.store is not None:
            words += ["--set", f"input.url=http://127.0.0.1:{self.store.port}/rows.zarr"]
            words += ["--set", "input.storage_options.allow_http=true"]
        with log.open("wb") as stream:
            driver = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, env=os.environ | {MARK: mark}
            )
        pauses: Pauses = []
        try:
            limit = time.monotonic() + HANG_SECONDS
            for fault in faults:
                self._await(fault, driver, log, pauses)
                if driver.poll() is None:
                    self._do(fault, driver, pauses)
            while driver.poll() is None:
                assert time.monotonic() < limit, f"hang: no end in {HANG_SECONDS:.0f} s: {log.read_text()[-2000:]}"
                resume(pauses)
                time.sleep(0.02)
        finally:
            resume(pauses, every=True)
            driver.kill()
            driver.wait()
        self.exits.append(driver.returncode)
        until = time.monotonic() + END_SECONDS
        while left := marked(mark):
            assert time.monotonic() < until, f"orphan: {left}"
            time.sleep(0.1)
        return driver.returncode, log.read_text(encoding="utf-8", errors="replace")

    def _await(self, fault: Fault, driver: subprocess.Popen[bytes], log: Path, pauses: Pauses) -> None:
        nodes = self.out / "checkpoints" / "nodes"
        before = len(list(nodes.rglob("*.sks")))

        def due() -> bool:
            resume(pauses)
            if driver.poll() is not None:
                return True
            if fault.nodes is not None:
                return len(list(nodes.rglob("*.sks"))) - before >= fault.nodes
            if fault.stage == "start":
                return takes_signals(driver.pid)
            return f"\n{fault.stage}" in "\n" + log.read_text(errors="replace")

        wait_until(due, f"hang: {fault}")
        # Python and its imports take seconds at the start.
        time.sleep(fault.delay * (10 if fault.nodes is None and fault.stage == "start" else 1))

    def _do(self, fault: Fault, driver: subprocess.Popen[bytes], pauses: Pauses) -> None:
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, IndexError):
            if fault.target == "machine":
                os.killpg(self.workers[fault.which].pid, signal.Signals[f"SIG{fault.action}"])
                if fault.action not in LASTING:
                    self.ending.append(self.workers[fault.which])
            elif fault.target == "checkpoint":
                damaged = damage_one(checkpoint_files(self.out), len(self.exits))
                self.spoiled |= damaged
                self.n_done += len(damaged) - 1
            elif fault.target == "disk":
                assert self.disk is not None
                self.disk.fill()
                later = self.disk.empty
            elif fault.target in ("link", "store"):
                link = self.store if fault.target == "store" else self.links[fault.which]
                assert link is not None
                (link.cut if fault.action == "CUT" else link.stall)()
                later = link.mend
            elif fault.target == "clock":
                self.clock.set(3600.0 if fault.action == "ADVANCE" else -3600.0)
            elif fault.target == "source":
                pauses.append((math.inf, change(self.folder, len(self.exits))))
            else:
                victim = self._victim(fault, driver)
                victim.send_signal(signal.Signals[f"SIG{fault.action}"])
                later = victim.resume
                if fault.target == "scheduler" and self.scheduler and fault.action not in LASTING:
                    self.ending.append(self.scheduler)
            if fault.action in LASTING:
                pauses.append((time.monotonic() + fault.pause, later))
            self.n_done += 1

    def _victim(self, fault: Fault, driver: subprocess.Popen[bytes]) -> psutil.Process:
        if fault.target == "worker":
            nanny = driver if self.cluster is None else self.workers[fault.which]
            inside = psutil.Process(nanny.pid).children(recursive=True)
            workers = sorted((p for p in inside if "spawn_main" in " ".join(p.cmdline())), key=lambda p: p.pid)
            return workers[fault.which if self.cluster is None else 0]
        process = driver if fault.target == "driver" else self.scheduler
        assert process is not None
        return psutil.Process(process.pid)

    def close(self) -> None:
        """Take away links and disk."""
        for part in (*self.links, self.store, self.disk):
            if part is not None:
                part.close()

    def end(self) -> None:
        """End the cluster as a supervisor does, scheduler first; all that belongs to it has to follow."""
        if self.cluster is not None:
            groups = [p for p in self.cluster.processes if p.poll() is None]
            for process in groups:
                process.terminate()
            for process in groups:
                with orphan("a process of the cluster after SIGTERM"):
                    process.wait(timeout=END_SECONDS)


def change(folder: Path, seed: int) -> Callable[[], object]:
    """Write the rows of one chunk of the store in place of another's; return what puts these back."""
    chunk, other = random.Random(seed).sample(sorted((folder / "rows.zarr" / "c").glob("*/0")), 2)
    before = chunk.read_bytes()
    replace(chunk, other.read_bytes())
    return partial(replace, chunk, before)


def replace(path: Path, content: bytes) -> None:
    """Write a file anew in one step."""
    beside = path.with_name("new")
    beside.write_bytes(content)
    os.replace(beside, path)


def takes_signals(pid: int) -> bool:
    """Return whether a process handles SIGTERM; until it does, that ends it without a word."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt"))
        return bool(caught >> (signal.SIGTERM - 1) & 1)
    return True


def resume(pauses: Pauses, every: bool = False) -> None:
    """Let go on what is stopped, cut or full, and whose pause is over."""
    for pause in list(pauses):
        if every or time.monotonic() > pause[0]:
            pauses.remove(pause)
            with contextlib.suppress(psutil.NoSuchProcess):
                pause[1]()


@contextlib.contextmanager
def orphan(what: str) -> Iterator[None]:
    """Name a process that does not end."""
    try:
        yield
    except subprocess.TimeoutExpired:
        raise AssertionError(f"orphan: {what} is still there after {END_SECONDS:.0f} s") from None


def marked(mark: str) -> list[str]:
    """Return the command lines of processes that have this mark in their environment."""
    lines = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                lines.append(" ".join(process.cmdline()))
    return lines


def damaged_nodes(out: Path) -> dict[Path, str]:
    """Return the files of a checkpoint that cannot be read under their final names, and why."""
    bad = {}
    for path in (out / "checkpoints" / "nodes").rglob("*.sks"):
        try:
            load(path)
        except Exception as error:
            # The parts of a state in panels of columns are records of kinds of their own.
            for kind, record_type in ((INDEX_KIND, Index), (PANEL_KIND, SketchPanel)):
                with contextlib.suppress(Exception):
                    decode_record(path.read_bytes(), kind, record_type, path.name)
                    break
            else:
                bad[path] = str(error)
    return bad


def checkpoint_files(out: Path) -> list[Path]:
    """Return the nodes, and the record of finished stages."""
    record = out / "checkpoints" / "stages.json"
    return sorted((out / "checkpoints" / "nodes").rglob("*.sks")) + [record] * record.exists()


def result_files(out: Path) -> list[Path]:
    """Return what stands under a final name: files, and those that stores consist of."""
    parts = (out / name for name in (*FILES, *STORES, RECORD))
    return sorted(file for part in parts for file in (part, *part.rglob("*")) if file.is_file())


def damage_one(files: list[Path], seed: int) -> set[Path]:
    """Flip a bit of one of the files, as a bad disk does; return that file."""
    rng = random.Random(seed)
    if not files:
        return set()
    path = rng.choice(files)
    raw = bytearray(path.read_bytes())
    raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    path.write_bytes(raw)
    return {path}
