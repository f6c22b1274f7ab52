"""Least recently used caches of one process: whole vectors, row ends, whole matrices."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class LRUCache:
    """The values that were asked for last.

    `maxsize`: How many values stay in memory.
    """

    def __init__(self, maxsize: int) -> None:
        self.maxsize = maxsize
        self._values: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._lock = threading.RLock()

    def get(self, key: tuple[Any, ...], load: Callable[[], T], *, renew: bool = False) -> T:
        """Return the value that this process loaded under the same key before, else that of `load`.

        The key must change when the content does, unless the caller asks to `renew` it.
        """
        # A fork shares memory, and not the files that are open in it.
        key = (os.getpid(), *key)
        with self._lock:
            if renew or key not in self._values:
                self._values[key] = load()
                while len(self._values) > self.maxsize:
                    self._values.popitem(last=False)
            self._values.move_to_end(key)
            value: T = self._values[key]
            return value

    def clear(self) -> None:
        """Drop all values."""
        with self._lock:
            self._values.clear()


PARTS = LRUCache(16)
"""Vectors, and row ends of sparse matrices."""

MATRICES = LRUCache(4)
"""Whole matrices, from files that cannot be read in parts."""
