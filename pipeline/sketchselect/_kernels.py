"""Decorator of compiled kernels, and the line that says when one is compiled."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Callable
from typing import Any

import numba
from numba.core import event

from sketchselect import _kernel_cache

LOG = logging.getLogger(__name__)

REASSOCIATED = {"reassoc", "contract", "nsz"}
"""What ``fastmath`` allows of sums whose terms may be added in any order, as vector units do."""


def kernel(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return Numba's decorator of a function that releases the interpreter's lock and is compiled once a machine."""
    return numba.njit(nogil=True, cache=True, **options)  # type: ignore[no-any-return]


class _FirstCompilation(event.Listener):  # type: ignore[misc]
    """Logs that this process compiles, once: a fit that takes a minute instead of a second should say why."""

    is_logged = False

    def on_start(self, event: Any) -> None:
        """Log it, if the kernel is one of this package."""
        # A function that another library makes from text has no module.
        if self.is_logged or not (event.data["dispatcher"].py_func.__module__ or "").startswith("sketchselect."):
            return
        self.is_logged = True
        # What a worker logs is shown between the lines of the process that started it.
        level = logging.WARNING if multiprocessing.parent_process() is None else logging.INFO
        LOG.log(level, "compiling kernels, which takes up to a minute once; %s", _kernel_cache.description())

    def on_end(self, event: Any) -> None:
        """Nothing: the next kernel may follow."""


event.register("numba:compile", _FirstCompilation())
