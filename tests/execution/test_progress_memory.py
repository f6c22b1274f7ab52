"""What the user is told: bars, lines, and the projection."""

import io
import re
import sys
import threading

import numpy as np
import pytest
import scipy.linalg  # noqa: F401 - brings a BLAS of its own
import threadpoolctl
import zarr

from sketchselect import _kernel_cache
from sketchselect._progress import Bar, Lines, Progress
from sketchselect.errors import BadParameter, WillNotFit
from sketchselect.execution import LocalEngine, PassOptions, Source, make_progress, reduce_blocks, summarize
from sketchselect.execution.plan import COMPILING_NBYTES, library_nbytes, projection, require_fit
from sketchselect.execution.tasks import Reduction
from sketchselect.execution.tree import make_tree
from sketchselect.linalg import pivoting
from sketchselect.linalg.threads import blas_builds, one_blas_thread
from sketchselect.readers import open_matrix, row_partitions
from sketchselect.selectors import LassoPath
from sketchselect.summaries import Moments


def test_lines_tell_bytes_rate_and_time_left(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("sketchselect._progress.time.monotonic", lambda: clock[0])
    stream = io.StringIO()
    lines = Lines(stream, every=5.0)
    lines.start("summarize", 100 * 2**20, 50)
    for _ in range(20):
        clock[0] += 1.0
        lines.advance(2 * 2**20)
    lines.finish("summarize")
    text = stream.getvalue().splitlines()
    assert text[0] == "summarize: 50 partitions, 100.00 MiB"
    assert text[1] == "summarize: 10.00 MiB of 100.00 MiB (10%), 2.00 MiB/s, 45 s left"
    assert len(text) == 1 + 4 + 1
    assert text[-1] == "summarize: 40.00 MiB in 20 s (2.00 MiB/s)"


def test_lines_go_on_while_a_partition_is_computed_and_end_with_the_pass():
    repeated, stream = threading.Event(), io.StringIO()
    stream.write = lambda text: "after" in text and repeated.set()  # type: ignore[method-assign]
    lines = Lines(stream, every=0.01)
    lines.start("block certificate", 2**20, 1)
    assert repeated.wait(60)
    beats = [thread for thread in threading.enumerate() if thread.name == "sketchselect-progress"]
    lines.finish("block certificate")
    for thread in beats:
        thread.join(60)
    assert not any(thread.is_alive() for thread in beats)


def test_the_bar_survives_any_stage_name_and_order_of_calls():
    stream = io.StringIO()
    bar = Bar(stream)
    bar.advance(3)
    bar.note("before [bold]")
    bar.start("stage [red]x", 1000, 3)
    bar.advance(500)
    bar.note("a note [link]")
    bar.finish("stage")
    bar.finish("stage")
    text = stream.getvalue()
    assert "before [bold]" in text
    assert "a note [link]" in text
    assert "stage [red]x" in text


@pytest.mark.parametrize("kind", [Lines, Bar])
def test_a_log_that_breaks_is_no_error(kind):
    class Broken(io.StringIO):
        def write(self, text=""):
            raise BrokenPipeError

        flush = write

    progress = kind(Broken())
    progress.note("before")
    progress.start("stage", 1000, 3)
    progress.advance(1000)
    progress.note("a note")
    progress.finish("stage")


def test_what_a_user_may_pass_as_progress(monkeypatch):
    assert type(make_progress(None)) is Progress
    assert type(make_progress(False)) is Progress
    mine = Lines()
    assert make_progress(mine) is mine
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    assert isinstance(make_progress(True), Lines)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert isinstance(make_progress(True), Bar)
    with pytest.raises(BadParameter, match="progress must be"):
        make_progress(3)


def test_a_callable_gets_events():
    events = []
    summarize(np.ones((100, 4)), Moments(), partition_bytes=320, progress=lambda *event: events.append(event))
    assert events[0] == ("start", "summarize", 3200, 10)
    assert sum(event[1] for event in events if event[0] == "advance") == 3200
    assert events[-1] == ("finish", "summarize")


# --- memory ------------------------------------------------------------------------------------------------------


def project(matrix, engine, partition_bytes, state=0, working=0, **source):
    source = Source(matrix, **source)
    partitions = row_partitions(matrix, partition_bytes)
    plan = make_tree(len(partitions), partition_bytes, state)
    return projection(source, partitions, plan, Reduction(min, max, state_nbytes=state, working_nbytes=working), engine)


def test_the_parts_of_a_projection(tmp_path):
    z = zarr.create_array(str(tmp_path / "x.zarr"), shape=(10_000, 100), chunks=(500, 100), dtype="float32")
    z[:] = 1
    matrix = open_matrix(str(tmp_path / "x.zarr"))
    one = project(matrix, LocalEngine(kind="serial"), 500 * 100 * 8)
    assert one.reading == 2.5 * 500 * 100 * 4
    assert one.process == library_nbytes("serial")
    assert one.nbytes == one.process + one.reading + one.states + one.working
    two = project(matrix, LocalEngine(2), 500 * 100 * 8, working=1000)
    assert two.reading == 2 * one.reading
    assert two.working == 2000
    prepared = project(matrix, LocalEngine(kind="serial"), 500 * 100 * 8, prepare=("l2",))
    assert prepared.reading > one.reading
    assert project(matrix, LocalEngine(kind="serial"), 1000 * 100 * 8).reading == 2 * one.reading
    # Chunks are decoded whole, however small the partition.
    assert project(matrix, LocalEngine(kind="serial"), 250 * 100 * 8).reading >= one.reading


def test_compiling_kernels_is_counted_where_none_is_compiled(monkeypatch, tmp_path):
    from numba.core.caching import _CacheLocator

    full = tmp_path / "full" / _CacheLocator.get_suitable_cache_subpath(pivoting.__file__)
    others = tmp_path / "others" / _CacheLocator.get_suitable_cache_subpath(__file__)
    for folder in (full, others):
        folder.mkdir(parents=True)
        (folder / "kernel.nbi").touch()
    stated = {}
    for name in ("empty", "others", "full"):
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / name))
        _kernel_cache.is_empty.cache_clear()
        stated[name] = library_nbytes("threads")
    _kernel_cache.is_empty.cache_clear()
    assert stated["empty"] == stated["others"] == stated["full"] + COMPILING_NBYTES


@pytest.mark.parametrize("n_leaves", [1, 2, 3, 7])
def test_few_leaves_have_few_states(n_leaves):
    matrix = open_matrix(np.ones((10 * n_leaves, 10)))
    # All leaves, and two more for each of two tasks that merge.
    most = n_leaves + 2 * min(2, n_leaves // 2)
    assert project(matrix, LocalEngine(2), 800, state=100).states <= 100 * most


def test_states_that_wait_are_counted():
    matrix = open_matrix(np.ones((1000, 10)))
    assert project(matrix, LocalEngine(kind="serial"), 800, state=100).states >= (7 * 2 + 1) * 100


def test_what_does_not_fit_is_said_with_the_cure():
    matrix = open_matrix(np.ones((1000, 10)))
    reading = project(matrix, LocalEngine(kind="serial"), 80_000)
    require_fit(reading, None, "x")
    require_fit(reading, reading.nbytes, "x")
    with pytest.raises(WillNotFit, match="lower partition_bytes"):
        require_fit(reading, reading.nbytes - 1, "x")
    states = project(matrix, LocalEngine(kind="serial"), 80_000, state=10**9)
    with pytest.raises(WillNotFit, match="smaller sketch"):
        require_fit(states, 10**9, "x")


# One BLAS thread while tasks run, and what was there before afterwards.


def limits():
    # Other packages of the environment may have loaded a BLAS of their own, which no task calls.
    return {
        lib["num_threads"]
        for lib in threadpoolctl.threadpool_info()
        if lib["user_api"] == "blas" and not re.search(r"[/\\](?!numpy|scipy)\w+\.libs[/\\]", lib["filepath"])
    }


def test_the_last_to_leave_restores_what_was_there():
    with threadpoolctl.threadpool_limits(3, user_api="blas"):
        before = limits()
        with one_blas_thread():
            assert limits() == {1}
            with one_blas_thread():
                assert limits() == {1}
            assert limits() == {1}
        assert limits() == before


def test_threads_share_the_limit():
    inside, leave = threading.Barrier(3), threading.Event()

    def hold():
        with one_blas_thread():
            inside.wait()
            leave.wait()

    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = limits()
        threads = [threading.Thread(target=hold, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        inside.wait()
        with one_blas_thread():
            pass
        after_one_left = limits()
        leave.set()
        for thread in threads:
            thread.join()
        assert after_one_left == {1}
        assert limits() == before


def test_the_limit_holds_in_whichever_thread_comes_first():
    """A worker's tasks run in changing threads, and each of them has to get what it asks for."""
    seen = []
    rounds = [threading.Event() for _ in range(6)]
    done = [threading.Event() for _ in range(6)]

    def work(turns):
        for turn in turns:
            rounds[turn].wait(10)
            with one_blas_thread():
                seen.append(limits())
            seen.append(limits())
            done[turn].set()

    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        threads = [threading.Thread(target=work, args=(range(i, 6, 2),), daemon=True) for i in range(2)]
        for thread in threads:
            thread.start()
        for turn in range(6):
            rounds[turn].set()
            done[turn].wait(10)
    assert seen == [{1}, {2}] * 6


def test_an_error_inside_restores_too():
    before = limits()
    try:
        with one_blas_thread():
            raise ValueError
    except ValueError:
        pass
    assert limits() == before


def test_tasks_in_threads_see_one_blas_thread(tiny):
    seen = set()

    def leaf(block):
        seen.update(limits())
        return 0

    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        reduce_blocks(tiny(100), Reduction(leaf, lambda a, b: 0), PassOptions(LocalEngine(3), 320))
    assert seen == {1}


def test_builds_name_the_library_and_its_kernel():
    builds = blas_builds()
    assert builds
    assert all(len(build.split()) >= 2 for build in builds)


def test_a_summary_larger_than_the_machine_is_refused_without_a_limit() -> None:
    rows = np.zeros((3, 300_000))
    with pytest.raises(WillNotFit, match=r"array: the products of all pairs of 300,000 columns take"):
        LassoPath(n_features_to_select=2).fit(rows, [1.0, 2.0, 3.0])
