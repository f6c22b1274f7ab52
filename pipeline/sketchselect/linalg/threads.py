"""One BLAS thread for the process while tasks run: with several, BLAS gives other bits and fights the task threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_lock = threading.Lock()
_holders = 0
_before: list[int] = []
_mine = threading.local()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit every BLAS library of this process to one thread while any caller is inside.

    Re-entrant and safe in threads: the first to enter sets the limit, the last to leave restores what was there.

    Examples
    --------
    >>> with one_blas_thread(), one_blas_thread():
    ...     pass
    """
    _enter()
    try:
        yield
    finally:
        _leave()


def blas_builds() -> tuple[str, ...]:
    """Return ``name version kernel`` of each BLAS library loaded: what, beside the input, decides a product's bits."""
    shared, own = _libraries()
    found = {f"{lib.internal_api} {lib.version} {getattr(lib, 'architecture', '')}".strip() for lib in (*shared, *own)}
    return tuple(sorted(found))


def _enter() -> None:
    global _holders, _before
    shared, own = _libraries()
    depth = getattr(_mine, "depth", 0)
    if depth == 0:
        _mine.before = [lib.num_threads for lib in own]
        _set(own, [1] * len(own))
    _mine.depth = depth + 1
    with _lock:
        if _holders == 0:
            _before = [lib.num_threads for lib in shared]
            _set(shared, [1] * len(shared))
        _holders += 1


def _leave() -> None:
    global _holders
    shared, own = _libraries()
    with _lock:
        _holders -= 1
        if _holders == 0:
            _set(shared, _before)
    _mine.depth -= 1
    if _mine.depth == 0:
        _set(own, _mine.before)


@cache
def _libraries() -> tuple[list[Any], list[Any]]:
    """Return the BLAS libraries whose limit is the process's, and those (on OpenMP) whose limit is a thread's own."""
    # NumPy and SciPy may each bring their own BLAS; both must be loaded before the controller looks, once, because
    # looking costs milliseconds.
    import numpy.linalg  # noqa: F401
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    blas = [lib for lib in ThreadpoolController().lib_controllers if lib.user_api == "blas"]
    own = [lib for lib in blas if lib.internal_api == "openblas" and lib.threading_layer == "openmp"]
    return [lib for lib in blas if lib not in own], own


def _set(libraries: list[Any], counts: list[int]) -> None:
    for lib, count in zip(libraries, counts, strict=True):
        # Since 3.7 threadpoolctl lets only the thread that was first change OpenBLAS and ignores the others. Whichever
        # of our threads comes first, its limit has to hold.
        getattr(lib, "_real_set_num_threads", lib.set_num_threads)(count)
