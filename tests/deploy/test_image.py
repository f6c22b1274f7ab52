"""The image itself, as `.ci/image` builds it, in real containers: a scheduler, a worker and a job, and their health."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.deploy.cluster_jobs import CLUSTERING_JOB as JOB
from tests.deploy.cluster_jobs import assert_same_result, clustered_rows, write_rows
from tests.deploy.conftest import free_port, wait_until

IMAGES = os.environ.get("SKETCHSELECT_IMAGES")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(IMAGES is None, reason="needs SKETCHSELECT_IMAGES, a folder that .ci/image has built in"),
]


def buildah(*words: str) -> list[str]:
    """Return a command line on the folder's images."""
    return ["buildah", "--root", f"{IMAGES}/store", "--runroot", f"{IMAGES}/run", "--storage-driver", "overlay", *words]


def output_of(*words: str) -> str:
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


@dataclass
class Container:
    """A container that runs, what it writes, and the folder of its state."""

    process: subprocess.Popen[bytes]
    output: Path
    state: Path

    @property
    def said(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.said or self.process.poll() is not None, f"{text!r} in the output")
        assert text in self.said, self.said

    def signal(self, sign: signal.Signals) -> None:
        """Send a signal to the first process of the container."""
        output_of("runc", "--root", str(self.state), "kill", self.name, sign.name)

    @property
    def name(self) -> str:
        return output_of("runc", "--root", str(self.state), "list", "--quiet")

    def complaint(self) -> tuple[int, str]:
        """Ask the health check of the image, in the container; return its exit code and what it says."""
        template = "{{range .Docker.Config.Healthcheck.Test}}{{println .}}{{end}}"
        kind, *check = output_of(*buildah("inspect", "--type", "image", "--format", template, image())).split("\n")
        assert kind == "CMD"
        line = ["runc", "--root", str(self.state), "exec", self.name, *check]
        done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False)
        return done.returncode, done.stdout.strip()


def image() -> str:
    return Path(f"{IMAGES}/built").read_text(encoding="utf-8").strip()


@contextmanager
def container(folder: Path, name: str, *command: str, **settings: str) -> Iterator[Container]:
    """Start a command in a container of its own, with the folder's data; the network is that of this machine."""
    made = output_of(*buildah("from", "--pull-never", image()))
    state, output = folder / f"{name}.state", folder / f"{name}.log"
    line = buildah("run", "--isolation", "oci", "--runtime", "runc", "--runtime-flag", f"root={state}")
    line += [
        "--network",
        "host",
        "--volume",
        f"{folder}/data:/data",
        "--volume",
        f"{folder}/cache:/home/sketchselect/.cache",
    ]
    line += [f"--env={key}={value}" for key, value in settings.items()]
    with output.open("wb") as out:
        process = subprocess.Popen([*line, made, "--", *command], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    running = Container(process, output, state)
    try:
        yield running
    finally:
        if process.poll() is None:
            running.signal(signal.SIGKILL)
        process.wait(timeout=600)
        output_of(*buildah("rm", made))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a job that the user of the image may write in, and a cache that containers share."""
    for name in ("data", "cache"):
        (tmp_path / name).mkdir()
        os.chown(tmp_path / name, 10001, 10001)
    write_rows(tmp_path / "data", clustered_rows(), 500)
    (tmp_path / "data/job.toml").write_text(JOB, encoding="utf-8")
    return tmp_path


def test_a_scheduler_a_worker_and_a_job_in_containers(folder: Path) -> None:
    run = ("run-job.sh", "job.toml", "--set")
    with container(folder, "alone", *run, "output.dir=reference", "--scheduler", "threads") as alone:
        assert alone.process.wait(timeout=600) == 0, alone.said
    port, http_port = free_port(), str(free_port())
    address = f"tcp://127.0.0.1:{port}"
    with ExitStack() as stack:
        words = ("scheduler.sh", "127.0.0.1", str(port))
        scheduler = stack.enter_context(container(folder, "scheduler", *words, SKETCHSELECT_HTTP_PORT=http_port))
        scheduler.wait_for("Scheduler at:")
        worker = stack.enter_context(container(folder, "worker", "worker.sh", address, "1", "1GiB"))
        worker.wait_for("Registered to:")
        assert scheduler.complaint() == (0, "")
        assert worker.complaint() == (0, "")
        with container(folder, "job", *run, "output.dir=out", "--scheduler", address) as job:
            job.wait_for("summarize")
            assert job.complaint() == (0, "")
            assert job.process.wait(timeout=600) == 0, job.said
        assert_same_result(folder / "data", "out")
        assert {path.stat().st_uid for path in (folder / "data/out").rglob("*")} == {10001}
        scheduler.signal(signal.SIGSTOP)
        assert scheduler.complaint() == (1, "no answer: timed out")
        scheduler.signal(signal.SIGCONT)
        assert scheduler.complaint() == (0, "")
        # As `docker stop` does; the worker has nothing to work for then, and goes.
        scheduler.signal(signal.SIGTERM)
        assert scheduler.process.wait(timeout=600) == 0, scheduler.said
        assert worker.process.wait(timeout=600) in (0, 1), worker.said
    for one in (alone, job, scheduler, worker):
        assert not re.search(r"Traceback|Permission denied|Read-only", one.said), one.said


def test_what_is_in_it(folder: Path) -> None:
    """No user's rights but its own, no package beyond the pins, and nothing that the build was lent."""
    script = """
set -e
id -u; pwd; sketchselect --version
if touch /opt/sketchselect/written 2>/dev/null; then exit 9; fi
test ! -s /etc/pip.conf || exit 8
cd /tmp; sketchselect --help >help; grep -q init help
"""
    with container(folder, "look", "bash", "-c", script) as look:
        assert look.process.wait(timeout=600) == 0, look.said
    assert re.fullmatch(r"10001\n/data\n\d+\.\d+\.\d+\n", look.said)
    with container(folder, "pins", "python", "-m", "pip", "freeze", "--exclude", "sketchselect") as pins:
        assert pins.process.wait(timeout=600) == 0, pins.said
    constraints = Path(__file__).resolve().parents[2] / "deploy/docker/constraints.txt"

    def names(text: str) -> set[str]:
        return {line.lower().replace("_", "-") for line in text.splitlines() if "==" in line}

    assert names(pins.said) == names(constraints.read_text(encoding="utf-8"))
