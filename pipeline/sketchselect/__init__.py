"""Selection of columns from matrices too big for memory, and k-means on them, with proven bounds.

One pass over the data leaves small mergeable summaries; selection, clustering and certificates come from them.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from sketchselect import _kernel_cache

_kernel_cache.ensure_writable()

# Public names are imported when they are used, so that `import sketchselect` stays light. The stub next to this file is
# their only list: type checkers and editors read it too.
_STUB = (pkgutil.get_data(__name__, "__init__.pyi") or b"").decode()
_MODULES = {line.split()[3]: line.split()[1] for line in _STUB.splitlines() if line.startswith("from ")}

# Names that left the list; programs that use them go on to work.
_FORMER = dict.fromkeys(("CentroidSums", "LeverageSample"), "sketchselect.summaries")

__all__ = sorted(name for name, module in _MODULES.items() if module != __name__)


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name) or _FORMER.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if module == __name__:
        return importlib.import_module(f"{module}.{name}")
    value = globals()[name] = getattr(importlib.import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted(_MODULES)
