"""One BLAS thread while tasks run, and what was there before afterwards."""

import threading

import scipy.linalg  # noqa: F401 - brings a BLAS of its own
import threadpoolctl

from sketchselect.execution import LocalEngine, PassOptions, reduce_blocks
from sketchselect.execution.tasks import Reduction
from sketchselect.linalg.threads import blas_builds, one_blas_thread


def limits():
    return {lib["num_threads"] for lib in threadpoolctl.threadpool_info() if lib["user_api"] == "blas"}


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
