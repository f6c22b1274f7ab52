"""The Dockerfile against the repository, and the health check with real sockets; `test_image.py` runs the image."""

import importlib.util
import re
import shlex
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import sketchselect as sks

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "deploy" / "docker"


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", (DOCKER / "Dockerfile").read_text(encoding="utf-8"))
    lines = [line.strip() for line in text.splitlines()]
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines if line and not line.startswith("#")]


def pins() -> dict[str, str]:
    lines = (DOCKER / "constraints.txt").read_text(encoding="utf-8").splitlines()
    parsed = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in parsed}


def test_base_image_is_pinned_to_a_supported_python() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = {f"3.{c.rsplit('.', 1)[1]}" for c in project["classifiers"] if re.search(r":: 3\.\d+$", c)}
    bases = [value.split()[0] for name, value in instructions() if name == "FROM"]
    assert len(set(bases)) == 1
    match = re.fullmatch(r"python:(3\.\d+)\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", bases[0])
    assert match
    assert match[1] in versions


def test_last_user_is_not_root_and_there_is_a_health_check() -> None:
    names = [name for name, _ in instructions()]
    assert dict(instructions())["USER"] not in {"root", "0"}
    assert names.index("USER") < names.index("HEALTHCHECK")


def test_everything_copied_from_the_repository_exists_and_is_let_through() -> None:
    allowed = {
        line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").split() if line.startswith("!")
    }
    sources = [
        word
        for name, value in instructions()
        if name == "COPY" and "--from" not in value
        for word in shlex.split(value)[:-1]
    ]
    assert len(sources) >= 6
    for source in sources:
        assert (ROOT / source).exists(), source
        assert source.split("/")[0] in allowed, source


def test_what_scripts_of_the_image_read_beside_themselves_is_copied_with_them() -> None:
    (copied,) = [
        shlex.split(value)[:-1] for name, value in instructions() if name == "COPY" and "deploy/plain" in value
    ]
    names = {Path(source).name for source in copied}
    scripts = [ROOT / source for source in copied if source.startswith("deploy/plain/") and source.endswith(".sh")]
    read = {name for script in scripts for name in re.findall(r"\$here/([\w.-]+)", script.read_text(encoding="utf-8"))}
    assert {"tls.sh", "preload.py"} <= read <= names


def test_constraints_pin_everything_and_agree_with_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [Requirement(line) for line in [*project["dependencies"], *extras["remote"], *extras["tls"]]]
    for requirement in wanted:
        version = pins()[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), requirement


def test_tag_in_the_texts_is_the_version() -> None:
    version = sks.__version__
    for text in (DOCKER / "Dockerfile", ROOT / "deploy" / "README.md"):
        tags = set(re.findall(r"sketchselect:(\d[\w.]*)", text.read_text(encoding="utf-8")))
        assert tags == {version}, text


@pytest.fixture(scope="module")
def healthcheck() -> ModuleType:
    spec = importlib.util.spec_from_file_location("healthcheck", DOCKER / "healthcheck.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok" if self.path == "/health" else b"?")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def http_port() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), Health) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_scheduler_is_healthy_while_it_answers(healthcheck: ModuleType, http_port: int, closed_port: int) -> None:
    command = ["python", "dask", "scheduler", "--host", "10.0.0.5"]
    assert healthcheck.complaint(command, http_port) is None
    assert "no answer" in healthcheck.complaint(command, closed_port)


def test_worker_is_healthy_while_it_reaches_its_scheduler(
    healthcheck: ModuleType, http_port: int, closed_port: int
) -> None:
    command = ["python", "dask", "worker", f"tcp://127.0.0.1:{http_port}", "--nthreads", "1"]
    assert healthcheck.complaint(command, closed_port) is None
    command[3] = f"tcp://127.0.0.1:{closed_port}"
    assert "no answer" in healthcheck.complaint(command, http_port)


def test_job_is_healthy_as_long_as_it_runs(healthcheck: ModuleType, closed_port: int) -> None:
    command = ["python", "sketchselect", "run", "job.toml", "--cluster", f"tcp://scheduler:{closed_port}"]
    assert healthcheck.complaint(command, closed_port) is None


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux")
def test_command_line_is_read_from_proc(healthcheck: ModuleType) -> None:
    words = ["import sys; print(flush=True); sys.stdin.read()", "worker", "tcp://a word with spaces:1"]
    with subprocess.Popen([sys.executable, "-c", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        assert healthcheck.main_command(f"/proc/{process.pid}/cmdline")[-3:] == words
        process.stdin.close()
