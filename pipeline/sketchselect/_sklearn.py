"""Base classes of scikit-learn, loaded without what other libraries load for them in vain."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

__all__ = [
    "HAS_CALLBACKS",
    "BaseEstimator",
    "ClassNamePrefixFeaturesOutMixin",
    "ClusterMixin",
    "SelectorMixin",
    "TransformerMixin",
    "as_configured",
    "available_if",
    "check_array",
    "check_is_fitted",
    "clone",
    "deferred",
]


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
    stand_ins = {}
    for name in names if threading.active_count() == 1 else ():
        spec = None if name in sys.modules else find_spec(name)
        if spec is not None:
            stand_ins[name] = module = _Deferred(name)
            module.__spec__ = spec
            module.__path__ = spec.submodule_search_locations or []
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name, module in stand_ins.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


# scikit-learn's base class imports pandas and SciPy's statistics, more than half of its time, for functions that a fit
# never calls; the package of its selectors imports all of its models, and the class is in a module that needs none.
with deferred("pandas", "scipy.special", "scipy.stats"):
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin, clone
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.validation import check_array, check_is_fitted

    with deferred("sklearn.feature_selection"):
        from sklearn.feature_selection._base import SelectorMixin

HAS_CALLBACKS = find_spec("sklearn.callback") is not None
"""Whether estimators have callbacks, which takes a tenth of a second to import: scikit-learn 1.9 and later."""


def as_configured(rows: Any) -> Any:
    """Return a new sparse array as scikit-learn's ``sparse_interface`` says, from 1.9 on; anything else as it is."""
    from scipy.sparse import csr_matrix, issparse
    from sklearn import get_config

    return csr_matrix(rows) if issparse(rows) and get_config().get("sparse_interface") == "spmatrix" else rows
