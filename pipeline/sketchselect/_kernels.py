"""Decorator of compiled kernels, and the line that says when one is compiled."""

from __future__ import annotations

import contextlib
import functools
import logging
import multiprocessing
from collections.abc import Callable
from typing import Any

import numba
from numba.core import event
from numba.core.caching import FunctionCache
from numba.core.runtime import rtsys

from sketchselect import _kernel_cache
from sketchselect.errors import BadParameter

if numba.config.DISABLE_JIT:
    # Numbers of the interpreter overflow where those of kernels do not.
    raise BadParameter(
        f"NUMBA_DISABLE_JIT={numba.config.DISABLE_JIT}: results need compiled kernels; unset it before Python starts"
    )

LOG = logging.getLogger(__name__)

REASSOCIATED = {"reassoc", "contract", "nsz"}
"""What ``fastmath`` allows of sums whose terms may be added in any order, as vector units do."""


def kernel(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return Numba's decorator of a function that releases the interpreter's lock and is compiled once a machine."""

    def compiled(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(nogil=True, **options)(function)
        dispatcher._cache = _KernelCache(function)
        return dispatcher

    return compiled


class _KernelCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of a kernel; a full disk, or a file that was cut short, costs the time to compile and ends no work.

    Numba raises whatever reading and writing does: in every process, until somebody deletes the file.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the kernel of a signature; None where there is none that can be read.

        Numba would first fill its registries, for a tenth of a second: compiling needs them, and fills them.
        """
        try:
            rtsys.initialize(target_context)
            with self._guard_against_spurious_io_errors():
                return self._load_overload(sig, target_context)
        except Exception:  # what half a pickle raises is not only its own error
            try:
                self.flush()  # else it would be read again before the kernel is saved
            except OSError as error:
                self.disable()
                _warn_not_kept(error.strerror)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save the kernel of a signature where there is room."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            with contextlib.suppress(OSError):
                self.flush()  # the index may name what could not be written
            _warn_not_kept(error.strerror)


def _log_level() -> int:
    """Return the level of a line that users see once: what a worker logs would stand between those of its driver."""
    return logging.WARNING if multiprocessing.parent_process() is None else logging.INFO


@functools.cache
def _warn_not_kept(reason: str | None) -> None:
    LOG.log(
        _log_level(),
        "compiled kernels cannot be kept (%s), and every process compiles them again; make room there, or set "
        "NUMBA_CACHE_DIR to another folder (%s)",
        reason,
        _kernel_cache.description(),
    )


class _FirstCompilation(event.Listener):  # type: ignore[misc]
    """Logs that this process compiles, once: a fit that takes a minute instead of a second should say why."""

    is_logged = False

    def on_start(self, event: Any) -> None:
        """Log it, if the kernel is one of this package."""
        # A function that another library makes from text has no module.
        if self.is_logged or not (event.data["dispatcher"].py_func.__module__ or "").startswith("sketchselect."):
            return
        self.is_logged = True
        LOG.log(_log_level(), "compiling kernels, which takes up to a minute once; %s", _kernel_cache.description())

    def on_end(self, event: Any) -> None:
        """Nothing: the next kernel may follow."""


event.register("numba:compile", _FirstCompilation())
