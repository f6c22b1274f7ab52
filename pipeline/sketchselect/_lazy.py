"""Public names of a package, each imported when it is used; the stub next to ``__init__.py`` is their only list."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def names_of_stub(
    namespace: dict[str, Any], former: Mapping[str, str] | None = None
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of the package with these globals.

    `former`: Names that left the list, and their modules; programs that use them go on to work.
    """
    package, spec = namespace["__name__"], namespace["__spec__"]
    folder = os.path.dirname(spec.origin)
    stub = spec.loader.get_data(os.path.join(folder, "__init__.pyi")).decode()
    modules = {line.split()[3]: line.split()[1] for line in stub.splitlines() if line.startswith("from ")}

    def elsewhere(name: str) -> str:
        """Return in which package below this one a name is, by its stub alone: nothing is imported for it."""
        for below in (entry for entry, module in modules.items() if module == package):
            try:
                names = spec.loader.get_data(os.path.join(folder, below, "__init__.pyi")).decode().split()
            except OSError:  # no stub
                continue
            if name in names:
                return f"; it is {package}.{below}.{name}"
        return ""

    def get(name: str) -> Any:
        module = modules.get(name) or (former or {}).get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}{elsewhere(name)}")
        if module == package:
            return import_module(f"{module}.{name}")
        value = namespace[name] = getattr(import_module(module), name)
        return value

    return sorted(name for name, module in modules.items() if module != package), get, lambda: sorted(modules)
