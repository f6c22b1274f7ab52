"""What is read once in each process and kept: whole vectors, row ends, archives; the oldest go first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

MOST = 16
_values: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
_lock = threading.RLock()


def kept(where: tuple[Any, ...], load: Callable[[], T]) -> T:
    """Return what `load` gives, from memory where it was loaded under the same name before.

    The name must change when the content does, and hold the number of the process: a fork shares memory.
    """
    with _lock:
        if where not in _values:
            _values[where] = load()
            while len(_values) > MOST:
                _values.popitem(last=False)
        _values.move_to_end(where)
        value: T = _values[where]
        return value
