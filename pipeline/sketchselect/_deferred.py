"""Stand-ins for modules that other libraries load, and that are seldom used."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

NUMPY_PARTS = "numpy.f2py", "numpy.testing"
"""Parts of NumPy that SciPy and scikit-learn load only to have every name of NumPy in a module of theirs."""


class _Deferred(ModuleType):
    """A stand-in for a module, which is loaded when one of its names is asked for."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


@contextmanager
def deferred(*names: str) -> Iterator[None]:
    """Let what is loaded meanwhile get stand-ins for these modules, so that each is loaded at its first use.

    Modules that are loaded already, or not installed, are as ever; so are all of them afterwards. So are all where
    other threads run: one that imports a part of a module meanwhile would load it into the stand-in, and the module
    itself could not be loaded any more.
    """
    stand_ins: dict[str, _Deferred] = {}
    for name in names if threading.active_count() == 1 else ():
        package, _, last = name.rpartition(".")
        spec = None if name in sys.modules else find_spec(name)
        if spec is not None:
            stand_ins[name] = sys.modules[name] = module = _Deferred(name)
            module.__spec__ = spec
            module.__path__ = spec.submodule_search_locations or []
            if package:
                vars(sys.modules[package]).setdefault(last, module)
    try:
        yield
    finally:
        for name, module in stand_ins.items():
            package, _, last = name.rpartition(".")
            if sys.modules.get(name) is module:
                del sys.modules[name]
            if package and vars(sys.modules[package]).get(last) is module:
                delattr(sys.modules[package], last)
