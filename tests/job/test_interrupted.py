"""Runs that are interrupted, killed or out of room: what is finished stays, and the same command resumes."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from scipy import sparse

from sketchselect.errors import Interrupted
from sketchselect.job.load import load_job
from sketchselect.job.text import write_toml
from sketchselect.workflow.session import open_session

from .commands import IN_PANELS, cli, refused, start, works


@pytest.mark.parametrize(
    ("words", "cure"), [((), "; execution.checkpoint_seconds = 0"), (("--set", "execution.checkpoint_seconds=0"), "")]
)
def test_a_full_disk_is_named_and_leaves_no_half_file(
    words: tuple[str, ...], cure: str, job_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sketchselect.workflow.folder import OutputFolder

    write = OutputFolder.write

    def full(self: OutputFolder, name: str, content: bytes | str) -> Path:
        if name == "summary.sks":
            self.staging(name).write_bytes(b"half")
            raise OSError(28, "No space left on device", str(self.path / name))
        return write(self, name, content)

    monkeypatch.setattr(OutputFolder, "write", full)
    refused(cli("run", job_file()), 1, str(tmp_path / "out"), "No space left on device", "summary.sks", "same command")
    assert not (tmp_path / "out" / "summary.sks").exists()
    assert not (tmp_path / "out" / "checkpoints" / "staging").exists()
    monkeypatch.undo()
    again = works("run", job_file(), *words)
    (line,) = (line for line in again.stderr.splitlines() if "ended before any part was saved" in line)
    assert line.partition("all rows are read again")[2].startswith(cure), line
    assert bool(cure) == ("checkpoint_seconds" in line)
    other = cli("run", job_file(), "--set", f"output.dir={tmp_path / 'other'}")
    assert "ended before" not in cli("run", job_file()).stderr + other.stderr, "nothing was stopped"


@pytest.mark.slow
def test_a_pass_that_was_killed_goes_on_with_the_parts_that_are_saved(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((600_000, 40)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    sections = {"input": {"url": "rows.npy"}, "select": {"method": "variance", "n_features": 4}}
    execution = {"cluster": "threads", "partition_bytes": "1MiB", "checkpoint_seconds": 0}
    (tmp_path / "job.toml").write_text(write_toml({**sections, "execution": execution, "output": {"report": False}}))
    run = ["run", tmp_path / "job.toml", "-v", "--set"]
    process = start(*run, "output.dir=out")
    while process.poll() is None and len(list((tmp_path / "out").rglob("*.sks"))) < 3:
        time.sleep(0.002)
    process.kill()
    process.communicate(timeout=600)
    assert not (tmp_path / "out" / "summary.sks").exists(), "killed in the pass"
    again = works(*run, "output.dir=out")
    said = re.search(r"summarize: resuming, (\d+) of (\d+) partitions", again.stderr)
    assert said is not None, again.stderr
    n_saved, n_parts = map(int, said.groups())
    assert 0 < n_saved < n_parts
    assert f"summarize: {n_parts - n_saved} partitions, " in again.stderr
    works(*run, "output.dir=whole")
    assert (tmp_path / "out" / "summary.sks").read_bytes() == (tmp_path / "whole" / "summary.sks").read_bytes()


def run_in_panels(folder: Path, out: Path, cluster: str) -> subprocess.Popen[str]:
    """Start the job of a folder that keeps its sketch in panels."""
    command = [sys.executable, folder / "panels.py", "run", folder / "job.toml", "-v", "--set", f"output.dir={out}"]
    command += ["--set", f"execution.cluster={cluster}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def job_in_panels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a job and, in `whole`, what it gives undisturbed."""
    folder, rng = tmp_path_factory.mktemp("panels"), np.random.default_rng(0)
    sparse.save_npz(folder / "rows.npz", sparse.random_array((6_000, 900), density=0.02, format="csr", rng=rng))
    execution = {"partition_bytes": 120_000, "checkpoint_seconds": 0}
    select = {"method": "greedy", "n_features": 4, "sketch_size": 12}
    job = {"input": {"url": "rows.npz"}, "select": select, "execution": execution, "output": {"report": False}}
    (folder / "job.toml").write_text(write_toml(job))
    (folder / "panels.py").write_text(IN_PANELS)
    process = run_in_panels(folder, folder / "whole", "threads")
    _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert "resuming" not in said
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cluster", "number", "code"),
    [
        ("threads", signal.SIGKILL, -9),
        ("local", signal.SIGINT, 130),
        pytest.param("local", signal.SIGKILL, -9, marks=pytest.mark.nightly),
    ],
)
def test_a_pass_in_panels_that_was_ended_goes_on_with_the_same_bits(
    job_in_panels: Path, tmp_path: Path, cluster: str, number: signal.Signals, code: int
) -> None:
    def run() -> subprocess.Popen[str]:
        return run_in_panels(job_in_panels, tmp_path / "out", cluster)

    process = run()
    while process.poll() is None and len(list((tmp_path / "out").rglob("*-3.*.sks"))) < 2:
        time.sleep(0.005)
    process.send_signal(number)
    _, said = process.communicate(timeout=600)
    assert process.returncode == code, said
    assert not (tmp_path / "out" / "summary.sks").exists(), "ended in the pass"
    if number == signal.SIGINT:
        assert re.search(r"[1-9]\d* of \d+ partitions are in checkpoints", said)
    process = run()
    _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    found = re.search(r"in panels of columns: resuming, (\d+) of (\d+) partitions", said)
    assert found is not None, said
    n_saved, n_parts = map(int, found.groups())
    assert 0 < n_saved < n_parts
    names = "summary.sks", "selection.json", "scores.csv"
    whole = [(job_in_panels / "whole" / name).read_bytes() for name in names]
    assert [(tmp_path / "out" / name).read_bytes() for name in names] == whole
    # The pass in panels, and the one before it
    stages = json.loads((tmp_path / "out" / "manifest.json").read_text())["stages"]
    assert {stage["name"]: stage for stage in stages}["summarize"]["n_resumed"] == 2
    # As if ended after the pass: the panels come from the file.
    for name in names[1:]:
        (tmp_path / "out" / name).unlink()
    process = run()
    assert "summarize: already done" in "".join(process.communicate(timeout=600))
    assert [(tmp_path / "out" / name).read_bytes() for name in names] == whole


def test_a_second_run_in_the_same_folder_is_refused(job_file: Callable[..., Path], tmp_path: Path) -> None:
    from sketchselect.workflow.folder import open_folder

    with open_folder(tmp_path / "out"):
        refused(cli("run", job_file()), 1, f"process {os.getpid()}", "has been running here since")
    works("run", job_file())


@pytest.fixture(scope="module")
def long_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job whose k-means takes minutes."""
    folder = tmp_path_factory.mktemp("long")
    np.save(folder / "rows.npy", np.random.default_rng(0).standard_normal((40_000, 20)).astype(np.float32))
    (folder / "job.toml").write_text(
        write_toml(
            {
                "input": {"url": "rows.npy"},
                "select": {"method": "variance", "n_features": 15},
                "cluster": {"n_clusters": 60, "n_init": 500, "tol": 0.0},
                "execution": {"n_workers": 2, "partition_bytes": "1MiB"},
                "output": {"report": False},
            }
        )
    )
    return folder / "job.toml"


@pytest.mark.share(0, 2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("cluster", "number", "whole_group", "code"),
    [
        ("threads", signal.SIGINT, False, 130),
        ("local", signal.SIGINT, True, 130),  # what a terminal does on Ctrl-C: the workers get it as well
        ("local", signal.SIGTERM, False, 143),
    ],
)
def test_interrupted_runs_say_how_to_resume_and_do(
    long_job: Path, tmp_path: Path, cluster: str, number: signal.Signals, whole_group: bool, code: int
) -> None:
    run = ["run", long_job, "--cluster", cluster, "--set", f"output.dir={tmp_path / 'out'}"]
    process = start(*run, start_new_session=True)
    stages = tmp_path / "out" / "checkpoints" / "stages.json"
    while process.poll() is None and not (stages.exists() and "write features" in stages.read_text()):
        time.sleep(0.01)
    time.sleep(0.5)
    (os.killpg if whole_group else os.kill)(process.pid, number)
    # The watchdog ends the process a few seconds after the signal, whatever it is doing.
    out, err = process.communicate(timeout=600)
    assert process.returncode == code, err
    assert "Traceback" not in out + err
    assert "run the same command again to resume" in err
    assert "summarize, select, write features" in err
    assert not (tmp_path / "out" / ".lock").exists()
    again = works(*run, "--set", "cluster.n_init=1", "--set", "cluster.max_iter=5", "--cluster", "threads")
    assert "summarize: already done" in again.stderr
    assert "write features: already done" in again.stderr


@pytest.mark.parametrize(
    ("name", "checkpoint", "resumes"),
    [("run", None, True), ("plan", None, False), ("select", None, False)]
    + [("summarize", folder, folder is not None) for folder in (None, Path("folder"))],
)
def test_only_commands_that_keep_work_say_so(
    name: str, checkpoint: Path | None, resumes: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    from sketchselect.cli import shell

    def stopped(**_: object) -> shell.Outcome:
        raise KeyboardInterrupt

    stopped.__name__ = name
    common = {"as_json": False, "quiet": True, "verbose": False, "debug": False, "log_format": "text"}
    with pytest.raises(typer.Exit):
        shell.command(stopped)(**common, checkpoint=checkpoint)
    assert ("work is kept" in capsys.readouterr().err) is resumes


@pytest.mark.parametrize("fresh", [False, True])
def test_the_command_that_resumes_does_not_start_over(job: Callable[..., Any], fresh: bool) -> None:
    with pytest.raises(Interrupted) as caught, open_session(load_job(job()), fresh=fresh):
        raise KeyboardInterrupt
    assert ("without --fresh" in str(caught.value)) is fresh


AS_A_WORKER_BEGINS = """
import os, sys
if any("spawn_main" in word for word in sys.orig_argv):
    os.killpg(0, {number})
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_processes_as_the_workers_begin_is_one_line(
    long_job: Path, tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "sitecustomize.py").write_text(AS_A_WORKER_BEGINS.format(number=int(number)))
    run = ["run", long_job, "-q", "--scheduler", "local", "--set", f"output.dir={tmp_path / 'out'}"]
    process = start(*run, start_new_session=True, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    out, err = process.communicate(timeout=600)  # of all processes: each of them holds the streams
    assert process.returncode == 128 + number, err
    [line] = (out + err).splitlines()
    assert line.startswith("error: interrupted; ")


IMPORTING = """
import os, runpy, sys
class Interrupt:
    def find_spec(self, name, *rest):
        if name == "sketchselect.cli":
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Interrupt())
runpy.run_module("sketchselect", run_name="__main__")
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_while_the_program_is_imported_is_an_orderly_end(number: signal.Signals, code: int) -> None:
    program = IMPORTING.format(number=int(number))
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # under nohup SIGHUP is ignored
    )
    assert done.returncode == code
    assert done.stderr == "error: interrupted; run the same command again\n"


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [False, True])
def test_a_killed_run_leaves_no_process_and_resumes(long_job: Path, tmp_path: Path, stopped: bool) -> None:
    import psutil

    run = ["run", long_job, "--set", f"output.dir={tmp_path / 'out'}"]
    process = start(*run)
    stages = tmp_path / "out" / "checkpoints" / "stages.json"
    while process.poll() is None and not (stages.exists() and "write features" in stages.read_text()):
        time.sleep(0.01)
    workers = psutil.Process(process.pid).children(recursive=True)
    assert workers
    for worker in workers if stopped else ():
        if "spawn_main" in " ".join(worker.cmdline()):
            worker.suspend()  # and it never goes on
    process.kill()
    process.communicate(timeout=600)
    assert (tmp_path / "out" / ".lock").exists(), "a killed process cannot tidy up"
    _, alive = psutil.wait_procs(workers, timeout=600)
    assert alive == []
    again = works(*run, "--set", "cluster.n_init=1", "--set", "cluster.max_iter=5", "--cluster", "threads")
    assert "write features: already done" in again.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_program_is_ready_needs_no_log(number: signal.Signals) -> None:
    program = IMPORTING.format(number=int(number))
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", program], stderr=full, timeout=600, check=False)
    assert done.returncode == 128 + number


def test_signals_that_are_ignored_from_outside_stay_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    from sketchselect import __main__
    from sketchselect.cli import shell

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    at_end = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("sketchselect.cli.main", lambda: os.kill(os.getpid(), signal.SIGINT))
    try:
        __main__.main()
        with shell.plain_errors(debug=True):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, at_end)


def test_a_signal_that_a_future_cannot_store_ends_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sketchselect.cli import shell

    monkeypatch.setattr(shell, "_end_soon", lambda *_: None)  # it would end the tests

    class SignalledLate(Future[int]):
        def set_result(self, result: int) -> None:
            super().set_result(result)
            os.kill(os.getpid(), signal.SIGTERM)  # the state is set, and Dask then stores the exception

    def store(future: Future[int]) -> None:
        try:
            future.set_result(1)
        except BaseException as error:
            future.set_exception(error)

    with pytest.raises(typer.Exit) as end, shell.plain_errors(debug=False):
        store(SignalledLate())
    assert end.value.exit_code == 143
    assert "interrupted" in capsys.readouterr().err


def test_a_thread_of_zarr_that_ends_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from sketchselect import __main__

    loop = asyncio.new_event_loop()

    def serve() -> None:
        loop.run_forever()
        time.sleep(0.5)  # longer than zarr itself waits

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    monkeypatch.setattr("zarr.core.sync.loop", [loop])
    monkeypatch.setattr("zarr.core.sync.iothread", [thread])
    __main__._end_reading()
    assert not thread.is_alive()
    loop.close()
    __main__._end_reading()


STUCK = """
import os, sys, threading, time
from sketchselect.cli import shell
shell.GRACE_SECONDS = 0.1
r, w = os.pipe()
os.dup2(w, 2)
if {unread}:
    os.set_blocking(w, False)
    try:
        while True:
            os.write(w, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(w, True)
else:
    os.close(r)
threading.Thread(target=shell._end_soon, args=(143, False, 'ended'), daemon=True).start()
time.sleep(3000)
"""


@pytest.mark.parametrize("unread", [False, True])
def test_a_process_that_does_not_stop_is_ended_whoever_reads_its_log(unread: bool) -> None:
    program = [sys.executable, "-c", STUCK.format(unread=unread)]
    assert subprocess.run(program, timeout=600, check=False).returncode == 143


ENDS_SLOWLY = """
import os, signal, threading, time
from sketchselect.cli import shell
shell.GRACE_SECONDS = 0.5
threading.Thread(target=time.sleep, args=(20,)).start()  # for which Python waits at its end
with shell.plain_errors(False, as_json=True):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(20)
"""


def test_a_stopped_process_that_ends_slowly_says_so_once() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS_SLOWLY], timeout=600, check=False, capture_output=True, text=True)
    assert done.returncode == 143
    assert done.stderr.count("error: ") == 1 == done.stdout.count("exit_code")


WRITES_SLOWLY = """
import os, signal, sys, time
from pathlib import Path
from sketchselect.cli import shell
from sketchselect.location import locate
from sketchselect.readers.writing import put_in_place

shell.GRACE_SECONDS = 0.5
with shell.plain_errors(False), put_in_place(locate(sys.argv[1])) as temporary:
    Path(temporary.url).mkdir()
    (Path(temporary.url) / "half").write_bytes(b"half")
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(20)
    finally:
        time.sleep(20)  # as threads do that read their last rows
"""


def test_a_stopped_process_that_ends_slowly_leaves_no_half_of_a_store(tmp_path: Path) -> None:
    program = [sys.executable, "-c", WRITES_SLOWLY, str(tmp_path / "labels.zarr")]
    assert subprocess.run(program, timeout=600, check=False, capture_output=True).returncode == 143
    assert list(tmp_path.iterdir()) == []


CANNOT_REMOVE = """
import os, signal, time
from sketchselect.cli import shell
from sketchselect.readers import writing

shell.GRACE_SECONDS, shell.REMOVAL_SECONDS = 0.2, 0.5
writing.remove_unfinished = lambda: time.sleep(60)  # as where a file server is gone
with shell.plain_errors(False):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(20)
    finally:
        time.sleep(60)
"""


def test_a_folder_that_cannot_be_removed_keeps_no_stopped_process_waiting() -> None:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", CANNOT_REMOVE], timeout=600, check=False, capture_output=True, text=True
    )
    assert done.returncode == 143
    assert done.stderr.count("error: ") == 1
    assert time.monotonic() - began < 40


IN_A_CALLBACK = """
import gc, os, signal, time
from sketchselect.cli import shell
shell.GRACE_SECONDS = 30

def arrive(phase, info):
    gc.callbacks.remove(arrive)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.1)

gc.callbacks.append(arrive)
try:
    with shell._orderly_signals(False, "interrupted"):
        gc.collect()
        time.sleep(20)
except KeyboardInterrupt:
    print("stopped")
"""


def test_ctrl_c_in_a_callback_that_ignores_errors_stops_the_work_without_a_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_A_CALLBACK], timeout=600, check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped\n", "")


@pytest.mark.share(0, 1)
@pytest.mark.slow
@pytest.mark.parametrize("log", ["/dev/full", "pipe"])
def test_a_log_that_breaks_ends_no_work(job_file: Callable[..., Path], tmp_path: Path, log: str) -> None:
    if log == "pipe":
        reader, writer = os.pipe()
        os.close(reader)
    else:
        writer = os.open(log, os.O_WRONLY)
    for words in (["run", str(job_file()), "--cluster", "threads"], ["verify", str(tmp_path / "out")]):
        done = subprocess.run(
            [sys.executable, "-m", "sketchselect", *words],
            stderr=writer, stdout=subprocess.PIPE, timeout=600, check=False, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
    os.close(writer)
