"""The output folder: ours or not touched, one process at a time, whole files or none."""

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from sketchselect.errors import NotOurFolder, RunInProgress, SketchSelectError
from sketchselect.workflow.folder import LOCK, MARKER, PUBLISHED, STALE_SECONDS, open_folder, tree_digest


def lock_of(pid: int, host: str | None = None) -> str:
    return json.dumps({"pid": pid, "host": host or socket.gethostname(), "since": "2026-01-01 00:00:00"})


def finished_process() -> int:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def test_new_and_empty_folders_become_ours(tmp_path: Path) -> None:
    for path in (tmp_path / "deep" / "new", tmp_path / "empty"):
        if path.name == "empty":
            path.mkdir()
        with open_folder(path):
            assert (path / MARKER).is_file()
            assert (path / LOCK).is_file()
        assert not (path / LOCK).exists()


def test_a_folder_that_another_run_claims_at_the_same_moment_is_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Path.mkdir

    def both(self: Path, **options: bool) -> None:
        make(self, **options)
        (self / MARKER).write_text("{}")  # by the other, after this one saw no marker

    monkeypatch.setattr(Path, "mkdir", both)
    with open_folder(tmp_path / "out"):
        pass


def test_what_is_not_ours_is_not_touched(tmp_path: Path) -> None:
    theirs = tmp_path / "thesis"
    theirs.mkdir()
    (theirs / "chapter1.tex").write_text("years of work")
    (theirs / "manifest.json").write_text("{}")
    file = tmp_path / "file"
    file.write_text("x")
    for path in (theirs, file):
        for fresh in (False, True):
            with pytest.raises(NotOurFolder, match="choose another"), open_folder(path, fresh=fresh):
                pass
    assert sorted(p.name for p in theirs.iterdir()) == ["chapter1.tex", "manifest.json"]
    assert file.read_text() == "x"


def test_fresh_discards_ours_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with open_folder(path) as folder:
        for name in ("manifest.json", "report.html"):
            folder.write(name, "old")
        (path / "features.zarr").mkdir()
        folder.finish("stage", {"a": 1}, ["manifest.json"], {})
        (path / "notes.txt").write_text("by hand")
    with open_folder(path, fresh=True) as folder:
        assert (path / "notes.txt").read_text() == "by hand"
        assert folder.finished("stage", {"a": 1}) is None
        assert not any((path / name).exists() for name in PUBLISHED)


def test_a_live_lock_is_respected(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with (
        open_folder(path),
        pytest.raises(RunInProgress, match=f"process {os.getpid()} on .* has been running here since"),
        open_folder(path),
    ):
        pass
    with open_folder(path):
        pass


def test_a_lock_holds_whatever_the_clock_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boot_time = psutil.boot_time()
    with open_folder(tmp_path / "out"):
        monkeypatch.setattr(psutil, "boot_time", lambda: boot_time + 40.0)
        monkeypatch.setattr(time, "time", lambda: boot_time + 1e6)
        with pytest.raises(RunInProgress), open_folder(tmp_path / "out"):
            pass


def test_a_lock_file_alone_is_no_lock_where_files_cannot_be_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(stream: object, mode: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    path = tmp_path / "out"
    with open_folder(path), pytest.raises(RunInProgress), open_folder(path):
        pass
    (path / LOCK).write_text(lock_of(finished_process()))
    with open_folder(path):
        assert json.loads((path / LOCK).read_text())["pid"] == os.getpid()


def test_a_dead_lock_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with open_folder(path):
        pass
    dead = [
        lock_of(finished_process()),
        lock_of(os.getpid()),  # the pid was given to another process since
        "",
        "not json",
        "[]",
        '{"pid": 1}',
    ]
    for content in dead:
        (path / LOCK).write_text(content)
        with open_folder(path):
            assert json.loads((path / LOCK).read_text())["pid"] == os.getpid()


def test_a_lock_of_another_host_lives_by_its_heartbeat(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with open_folder(path):
        pass
    lock = path / LOCK
    lock.write_text(lock_of(1, host="elsewhere"))
    with pytest.raises(RunInProgress, match="on elsewhere"), open_folder(path):
        pass
    old = time.time() - 2 * STALE_SECONDS
    os.utime(lock, (old, old))
    with open_folder(path):
        assert json.loads(lock.read_text())["host"] == socket.gethostname()


@pytest.mark.parametrize("runs", [False, True])
def test_a_lock_of_another_host_with_a_time_in_the_future_is_watched_for_a_heartbeat(
    runs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out"
    with open_folder(path):
        pass
    lock = path / LOCK
    lock.write_text(lock_of(1, host="elsewhere"))
    os.utime(lock, (4e9, 4e9))  # the clock of the file server was ahead
    monkeypatch.setattr("sketchselect.workflow.folder.HEARTBEAT_SECONDS", 5.0)
    monkeypatch.setattr("sketchselect.workflow.folder.time.sleep", lambda seconds: os.utime(lock) if runs else None)
    refused = pytest.raises(RunInProgress, match="on elsewhere") if runs else contextlib.nullcontext()
    with refused, open_folder(path):
        assert json.loads(lock.read_text())["host"] == socket.gethostname()


NEWCOMER = """
import sys, time
from sketchselect.errors import RunInProgress
from sketchselect.workflow.folder import open_folder

sys.stdin.readline()
try:
    with open_folder(sys.argv[1]):
        print("got it", flush=True)
        sys.stdin.readline()
except RunInProgress:
    print("refused", flush=True)
"""


def test_of_many_newcomers_one_takes_a_dead_lock_over(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with open_folder(path):
        pass
    (path / LOCK).write_text(lock_of(finished_process()))
    crowd = [
        subprocess.Popen(
            [sys.executable, "-c", NEWCOMER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    for process in crowd:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outcomes = []
    for process in crowd:
        assert process.stdout is not None
        outcomes.append(process.stdout.readline().strip())
    for process in crowd:
        process.communicate("done\n", timeout=600)
        assert process.returncode == 0
    assert sorted(outcomes) == ["got it", "refused", "refused", "refused"]


def test_publishing_replaces_whole_files_and_stores(tmp_path: Path) -> None:
    with open_folder(tmp_path / "out") as folder:
        folder.write("manifest.json", "one")
        folder.write("manifest.json", b"two")
        assert (folder.path / "manifest.json").read_text() == "two"
        for content in ("a", "b"):
            staged = folder.staging("labels.zarr")
            staged.mkdir()
            (staged / content).write_text(content)
            assert not (folder.path / "labels.zarr" / content).exists()
            folder.publish("labels.zarr")
        assert [p.name for p in (folder.path / "labels.zarr").iterdir()] == ["b"]


@pytest.mark.parametrize("what", ["moved", "deleted"])
def test_a_folder_that_goes_away_is_not_made_again(tmp_path: Path, what: str) -> None:
    with open_folder(tmp_path / "out") as folder:
        folder.write("manifest.json", "one")
        if what == "moved":
            folder.path.rename(tmp_path / "elsewhere")
        else:
            shutil.rmtree(folder.path)
        with pytest.raises(NotOurFolder, match="out: moved or deleted"):
            folder.write("manifest.json", "two")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("is_over", [False, True])
def test_a_folder_of_another_run_at_the_same_place_is_left_alone(tmp_path: Path, is_over: bool) -> None:
    lock = tmp_path / "out" / LOCK

    def run(others: contextlib.ExitStack) -> None:
        with open_folder(tmp_path / "out") as folder:
            folder.path.rename(tmp_path / "elsewhere")
            others.enter_context(open_folder(tmp_path / "out")).write("manifest.json", "of the other")
            lock.write_text(lock.read_text().replace(str(os.getpid()), "1"))
            if is_over:
                lock.unlink()
            folder.write("manifest.json", "two")

    with contextlib.ExitStack() as others:
        with pytest.raises(NotOurFolder, match="out: moved or deleted"):
            run(others)
        assert (tmp_path / "out" / "manifest.json").read_text() == "of the other"
        assert is_over or lock.exists()


@pytest.mark.parametrize("name", ["checkpoints/nodes/ab/a.sks", "thesis/chapter1.tex"])
def test_what_tasks_made_where_a_folder_was_is_removed_and_nothing_else(tmp_path: Path, name: str) -> None:
    file = tmp_path / "out" / name

    def run() -> None:
        with open_folder(tmp_path / "out") as folder:
            folder.path.rename(tmp_path / "elsewhere")
            file.parent.mkdir(parents=True)
            file.write_text("")
            raise FileNotFoundError("what a task says of the file that it was writing")

    with pytest.raises(NotOurFolder, match="out: moved or deleted"):
        run()
    assert file.exists() == name.startswith("thesis")
    assert {path.name for path in tmp_path.rglob("out/*")} <= {"thesis"}


def test_a_lock_that_is_deleted_ends_no_run(tmp_path: Path) -> None:
    with open_folder(tmp_path / "out") as folder:
        (tmp_path / "out" / LOCK).unlink()
        folder.write("manifest.json", "one")


def test_a_link_to_nothing_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "scratch")
    with pytest.raises(NotOurFolder, match="out: a link to a folder that is not there"), open_folder(tmp_path / "out"):
        pass


@pytest.mark.slow
def test_readers_never_see_half_a_file(tmp_path: Path) -> None:
    contents = {c * 200_000 for c in "ab"}
    with open_folder(tmp_path / "out") as folder:
        path = folder.write("manifest.json", "a" * 200_000)
        over = threading.Event()
        seen: set[str] = set()

        def read() -> None:
            while not over.is_set():
                seen.add(path.read_text())

        reader = threading.Thread(target=read)
        reader.start()
        for _ in range(50):
            for content in contents:
                folder.write("manifest.json", content)
        over.set()
        reader.join()
    assert seen <= contents
    assert seen


def test_finished_stages_are_reused_only_for_the_same_input_and_files(tmp_path: Path) -> None:
    with open_folder(tmp_path / "out") as folder:
        folder.write("summary.sks", b"bits")
        folder.finish("summarize", {"n": (1, 2)}, ["summary.sks"], {"rows": 3})
        assert folder.finished("summarize", {"n": [1, 2]}) == {"rows": 3}
        assert folder.finished("summarize", {"n": [1, 3]}) is None
        assert folder.differences("summarize", {"n": [1, 3], "m": 0}) == ["m", "n"]
        assert folder.finished("other", {"n": [1, 2]}) is None
        assert folder.finished("summarize", None) is None
        folder.write("summary.sks", b"bitz")
        assert folder.finished("summarize", {"n": [1, 2]}) is None
        folder.finish("summarize", None, ["summary.sks"], {})
        assert folder.finished("summarize", None) is None


def test_a_damaged_stage_log_is_an_empty_one(tmp_path: Path) -> None:
    with open_folder(tmp_path / "out") as folder:
        folder.finish("s", {"a": 1}, [], {})
        for damage in ("", "{", "[1]"):
            (folder.checkpoints / "stages.json").write_text(damage)
            assert folder.finished("s", {"a": 1}) is None
        folder.finish("s", {"a": 1}, [], {})
        assert folder.finished("s", {"a": 1}) == {}


def test_tree_digest_sees_every_kind_of_change(tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "c").mkdir(parents=True)
    (store / "c" / "0").write_bytes(b"0123")
    digests = {tree_digest(store)}
    (store / "c" / "1").write_bytes(b"")
    digests.add(tree_digest(store))
    (store / "c" / "1").rename(store / "c" / "2")
    digests.add(tree_digest(store))
    (store / "c" / "0").write_bytes(b"01234")
    digests.add(tree_digest(store))
    status = (store / "c" / "0").stat()
    (store / "c" / "0").write_bytes(b"01235")
    os.utime(store / "c" / "0", ns=(status.st_atime_ns, status.st_mtime_ns))
    digests.add(last := tree_digest(store))
    assert len(digests) == 5
    os.utime(store / "c" / "0", ns=(1, 1))
    assert tree_digest(store) == last, "a copy of the folder is as good"
    assert tree_digest(tmp_path / "nothing") is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(SketchSelectError, match="cannot be made"), open_folder(tmp_path / "out"):
            pass
    finally:
        tmp_path.chmod(0o700)


AS_ANOTHER_USER = """
import os
from pathlib import Path
from sketchselect.errors import SketchSelectError
from sketchselect.workflow.folder import claim

if os.getuid() == 0:  # who may read and write anywhere
    os.setgroups([])
    os.setuid(65534)
for name in ("unlisted", "closed", "closed/out", "read-only", "new"):
    try:
        claim(Path(name))
    except SketchSelectError as error:
        print(error)
"""


def test_a_folder_that_another_user_may_not_list_or_write_is_one_line(tmp_path: Path) -> None:
    for name, mode in (("unlisted", 0o311), ("closed", 0o000), ("read-only", 0o555)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
    tmp_path.chmod(0o555)
    try:
        run = subprocess.run(
            [sys.executable, "-c", AS_ANOTHER_USER], cwd=tmp_path, capture_output=True, text=True, check=False
        )
    finally:
        for path in (tmp_path, *tmp_path.iterdir()):
            path.chmod(0o700)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [
        "unlisted: the output folder cannot be listed: Permission denied; choose another output folder",
        "closed: the output folder cannot be listed: Permission denied; choose another output folder",
        "closed/out: the output folder cannot be made: Permission denied",
        "read-only: cannot be written: Permission denied",
        "new: the output folder cannot be made: Permission denied",
    ]


def test_a_folder_of_ours_that_became_read_only_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(tmp_path / "out" / LOCK))

    with open_folder(tmp_path / "out"):
        pass
    monkeypatch.setattr("sketchselect.workflow.folder._guard", read_only)
    cure = "give a copy of it, or choose another output folder"
    expected = f"{re.escape(str(tmp_path / 'out'))}: .*{os.strerror(errno.EROFS)}; .*{cure}"
    with pytest.raises(SketchSelectError, match=expected), open_folder(tmp_path / "out"):
        pass
