"""What is read once in each process and kept: whole vectors, row ends, whole matrices; the oldest go first."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class LRUCache:
    """The last values that were asked for, by name.

    Parameters
    ----------
    most : int
        How many are kept; of more the one that was not asked for the longest goes.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._values: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._lock = threading.RLock()

    def get(self, where: tuple[Any, ...], load: Callable[[], T]) -> T:
        """Return what `load` gives, from memory where this process loaded it under the same name before.

        The name must change when the content does.
        """
        # A fork shares memory, and not the files that are open in it.
        where = (os.getpid(), *where)
        with self._lock:
            if where not in self._values:
                self._values[where] = load()
                while len(self._values) > self.most:
                    self._values.popitem(last=False)
            self._values.move_to_end(where)
            value: T = self._values[where]
            return value

    def clear(self) -> None:
        """Forget everything, as in a process that has just begun."""
        with self._lock:
            self._values.clear()


PARTS = LRUCache(16)
"""Vectors, and where the rows of sparse matrices end."""

MATRICES = LRUCache(4)
"""Whole matrices of files that can only be loaded whole."""
