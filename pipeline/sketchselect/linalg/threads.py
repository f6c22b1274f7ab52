"""The limit of one BLAS thread while tasks run: several threads give other bits and compete with the task threads."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_lock = threading.Lock()
_holders = 0
_before: list[int] = []
_of_thread = threading.local()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit every BLAS library of this process to one thread while any caller is inside.

    Re-entrant and safe in threads: the first caller to enter sets the limit, the last to leave restores the old one.

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
    """Return ``name version kernel`` of each loaded BLAS library: they and the input decide the bits of a product."""
    libraries = itertools.chain(*_libraries())
    return tuple(
        sorted({f"{lib.internal_api} {lib.version} {getattr(lib, 'architecture', '')}".strip() for lib in libraries})
    )


def _enter() -> None:
    global _holders, _before
    shared, per_thread = _libraries()
    depth = getattr(_of_thread, "depth", 0)
    if depth == 0:
        _of_thread.before = [lib.num_threads for lib in per_thread]
        _set(per_thread, [1] * len(per_thread))
    _of_thread.depth = depth + 1
    with _lock:
        if _holders == 0:
            _before = [lib.num_threads for lib in shared]
            _set(shared, [1] * len(shared))
        _holders += 1


def _leave() -> None:
    global _holders
    shared, per_thread = _libraries()
    with _lock:
        _holders -= 1
        if _holders == 0:
            _set(shared, _before)
    _of_thread.depth -= 1
    if _of_thread.depth == 0:
        _set(per_thread, _of_thread.before)


@cache
def _libraries() -> tuple[list[Any], list[Any]]:
    """Return the BLAS libraries that have one limit for the process, and those (on OpenMP) with one for each thread."""
    # NumPy and SciPy may each bring a BLAS; both must be loaded before the controller lists them, once, because that
    # takes milliseconds.
    import numpy.linalg  # noqa: F401
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    blas = [lib for lib in ThreadpoolController().lib_controllers if lib.user_api == "blas"]
    per_thread = [lib for lib in blas if lib.internal_api == "openblas" and lib.threading_layer == "openmp"]
    return [lib for lib in blas if lib not in per_thread], per_thread


def _set(libraries: list[Any], counts: list[int]) -> None:
    for lib, count in zip(libraries, counts, strict=True):
        # Since 3.7 threadpoolctl lets only the first thread change OpenBLAS and ignores the others, but the limit has
        # to hold whichever of our threads comes first.
        getattr(lib, "_real_set_num_threads", lib.set_num_threads)(count)
