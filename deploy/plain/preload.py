"""Loaded by `dask scheduler` and `dask worker` at their start: one set of versions, one BLAS thread.

The scheduler answers the question which versions it has; a worker asks it before it takes any work, and does not start
when they differ. Two NumPy versions in one cluster would give results that depend on which worker did which part.
"""

import asyncio
import contextlib
import importlib.metadata
import logging
import platform
import time
from typing import Any, NoReturn

CHECKED = ("sketchselect", "dask", "distributed", "numpy", "scipy", "scikit-learn", "numba", "zarr")
QUESTION = "sketchselect_versions"
PATIENCE_SECONDS = 10.0
"""How long a worker that starts tries to reach a scheduler that was there when its nanny started."""
LEAVING_SECONDS = 10.0
"""How long a scheduler that is told to end waits for its workers to leave."""


def versions() -> dict[str, str]:
    """Return the installed version of everything that has a say in the result."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in CHECKED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "missing"
    return found


def differences(mine: dict[str, str], theirs: dict[str, str]) -> list[str]:
    """Return one readable line per package whose version here and at the scheduler is not the same."""
    names = sorted(mine.keys() | theirs.keys())
    return [
        f"{name}: {mine.get(name, 'missing')} here, {theirs.get(name, 'missing')} at the scheduler"
        for name in names
        if mine.get(name) != theirs.get(name)
    ]


def limit_threads() -> None:
    """Leave one thread to BLAS and Numba in this process; a worker without a nanny does not get that from Dask."""
    import numba
    import numpy  # noqa: F401 - loads the BLAS that is limited below
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_info, threadpool_limits

    threadpool_limits(limits=1, user_api="blas")
    numba.set_num_threads(1)
    blas = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    wide = [pool["internal_api"] for pool in blas if pool["num_threads"] != 1]
    if wide:
        refuse(f"these BLAS libraries do not keep to one thread: {', '.join(wide)}")


async def dask_setup(server: Any) -> None:
    """Answer for the versions (scheduler), or check them against the scheduler's and limit threads (worker).

    A worker that must not join ends with SystemExit: Dask only logs an Exception raised here, and starts all the same.
    """
    if hasattr(server, "add_worker"):

        async def answer() -> dict[str, str]:
            return versions()

        server.handlers[QUESTION] = answer
        return
    limit_threads()
    theirs = await ask(server)
    found = differences(versions(), theirs)
    if found:
        refuse("versions differ, install the same ones everywhere: " + "; ".join(found))


async def dask_teardown(server: Any) -> None:
    """Let the workers of a scheduler that ends leave first, each ended by its nanny, with exit code 0.

    Left to itself, Dask tells the workers to close and hangs up in the same breath, and each logs a traceback.
    """
    if not hasattr(server, "add_worker"):
        return
    leaving = list(server.workers.values())
    # All before the first has gone: whoever is left is told of each that goes, on a line that may be closed by then.
    for state in leaving:
        await server.remove_worker(state.address, stimulus_id="scheduler-close", expected=True, close=not state.nanny)
    ends = [server.rpc(state.nanny).terminate(reason="scheduler-close") for state in leaving if state.nanny]
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.gather(*ends, return_exceptions=True), LEAVING_SECONDS)


async def ask(worker: Any) -> dict[str, str]:
    """Return the versions that the scheduler has; where it is gone, end this worker and its nanny."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            # A scheduler that does not know the question answers None.
            theirs = await getattr(worker.scheduler, QUESTION)()
            break
        except OSError as error:
            if time.monotonic() < until:
                await asyncio.sleep(0.5)
                continue
            with contextlib.suppress(OSError):
                if worker.nanny:  # or it would start this worker again, for ever
                    await worker.rpc(worker.nanny).close_gracefully(reason="no scheduler")
            refuse(f"the scheduler went away: {type(error).__name__}: {error}")
        except Exception as error:
            refuse(f"the scheduler cannot be asked for its versions: {type(error).__name__}: {error}")
    if not isinstance(theirs, dict):
        refuse(
            "the scheduler does not tell its versions; "
            "start it with deploy/plain/scheduler.sh, or with preload.py as its preload"
        )
    return theirs


def refuse(reason: str) -> NoReturn:
    """End this worker process, saying why."""
    logging.getLogger("distributed.preloading").error("sketchselect: this worker does not join: %s", reason)
    raise SystemExit(1)
