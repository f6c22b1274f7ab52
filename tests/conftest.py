"""Settings for all tests."""

import os
import signal

# Whoever runs the tests in the background may have had SIGINT ignored, and the programs that they start would go on.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# One thread for each process, before NumPy is loaded: the matrices are small, and on busy cores threads that wait for
# each other took three quarters of the time. What is set outside holds.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402
from tests.data_sets import FOLDER, MISSING  # noqa: E402

# The same examples in every run, and none that fails because the machine was busy.
settings.register_profile("sketchselect", deadline=None, derandomize=True)
settings.load_profile("sketchselect")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the number of seeds of `tests/deploy/test_chaos.py`."""
    parser.addoption("--chaos", type=int, default=3, metavar="N", help="seeds of tests/deploy/test_chaos.py")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each seed to the tests that ask for one."""
    if "chaos_seed" in metafunc.fixturenames:
        metafunc.parametrize("chaos_seed", range(metafunc.config.getoption("--chaos")))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line how many tests had no data set; each has a sibling on made data, which always runs."""
    reasons = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", [])]
    names = [reason.partition(MISSING)[2] for reason in reasons if MISSING in reason]
    if names:
        terminalreporter.write_line(
            f"{len(names)} tests had no data set ({', '.join(sorted(set(names)))}) and were run on made data alone: "
            f"set SKETCHSELECT_DATA to their folder, which is now {FOLDER}"
        )
