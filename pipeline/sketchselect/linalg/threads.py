"""One BLAS thread for the whole process while tasks run: with several, BLAS gives other bits and fights the task threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_lock = threading.Lock()
_holders = 0
_limiter: Any = None


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
    """Return ``name version kernel`` of each BLAS library loaded: what, beside the input, decides the bits of a product."""
    found = {
        f"{lib['internal_api']} {lib.get('version')} {lib.get('architecture', '')}".strip()
        for lib in _controller().info()
        if lib["user_api"] == "blas"
    }
    return tuple(sorted(found))


@cache
def _controller() -> Any:
    # NumPy and SciPy may each bring their own BLAS; both must be loaded before the controller looks, once, because
    # looking costs milliseconds.
    import numpy.linalg  # noqa: F401
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _enter() -> None:
    global _holders, _limiter
    with _lock:
        if _holders == 0:
            _limiter = _controller().limit(limits=1, user_api="blas")
        _holders += 1


def _leave() -> None:
    global _holders, _limiter
    with _lock:
        _holders -= 1
        if _holders == 0:
            _limiter.restore_original_limits()
            _limiter = None
