"""Settings for all tests."""

import contextlib
import gc
import os
import signal
import zlib
from collections.abc import Iterator
from typing import Any

# Whoever runs the tests in the background may have had SIGINT ignored, and the programs that they start would go on.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# One thread for each process, before NumPy is loaded: the matrices are small, and on busy cores threads that wait for
# each other took three quarters of the time. What is set outside holds.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

# Modules and tests are made while they are collected, and no garbage: to look for it takes a fifth of that time.
gc.disable()

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402
from tests.data_sets import FOLDER, MISSING  # noqa: E402

# The same examples in every run, and none that fails because the machine was busy.
settings.register_profile("sketchselect", deadline=None, derandomize=True)
settings.load_profile("sketchselect")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the number of seeds of `tests/deploy/test_chaos.py`."""
    parser.addoption("--chaos", type=int, default=6, metavar="N", help="seeds of tests/deploy/test_chaos.py")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each seed to the tests that ask for one; all but two are nightly."""
    if "chaos_seed" in metafunc.fixturenames:
        seeds = range(metafunc.config.getoption("--chaos"))
        nightly = [pytest.param(seed, marks=pytest.mark.nightly) for seed in seeds[2:]]
        metafunc.parametrize("chaos_seed", [*seeds[:2], *nightly])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark as slow what is above a test's `share`, and as nightly what is above its second number.

    The order is one that another instance does not change.
    """
    if any("::" in word for word in config.args):
        return  # a test that is asked for by its name
    shared: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("share"):
            shared.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for instances in shared.values():
        instances.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        share, *shares = instances[0].get_closest_marker("share").args  # type: ignore[union-attr]
        for item in instances[share:]:
            item.add_marker(pytest.mark.slow)
        for most in shares:
            for item in instances[most:]:
                item.add_marker(pytest.mark.nightly)


def pytest_collection_finish() -> None:
    """Collect garbage from now on, but not what the tests themselves are made of."""
    gc.freeze()
    gc.enable()


@contextlib.contextmanager
def _threads(n_workers: int | None = None, memory_limit: int | None = None, **_: Any) -> Iterator[Any]:
    from sketchselect.execution import LocalEngine

    yield LocalEngine(n_workers, memory_limit=memory_limit, kind="threads")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Give jobs threads in place of processes of their own, which take seconds; the bits are the same. Not if slow.

    Nor do they wait for the disk: what is written and not on it yet is lost with the machine, not with a process.
    """
    import sketchselect

    # The package remembers the function from now on, for tests that ask for a cluster themselves.
    assert sketchselect.local_cluster
    with pytest.MonkeyPatch.context() as patch:
        if not item.get_closest_marker("slow"):
            patch.setattr("sketchselect.execution.clusters.local_cluster", _threads)
            patch.setattr(os, "fsync", os.fstat)  # which refuses the same descriptors
        return (yield)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say in one line how many tests had no data set; each has a sibling on made data, which always runs."""
    reasons = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", [])]
    names = [reason.partition(MISSING)[2] for reason in reasons if MISSING in reason]
    if names:
        terminalreporter.write_line(
            f"{len(names)} tests had no data set ({', '.join(sorted(set(names)))}) and were run on made data alone: "
            f"set SKETCHSELECT_DATA to their folder, which is now {FOLDER}"
        )
