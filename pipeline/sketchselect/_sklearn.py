"""Base classes of scikit-learn, loaded without what other libraries load for them in vain."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from sketchselect._deferred import NUMPY_PARTS, deferred

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
]


# scikit-learn's base class imports pandas and SciPy's statistics, more than half of its time, for functions that a fit
# never calls; the package of its selectors imports all of its models, and the class is in a module that needs none.
with deferred("pandas", "scipy.special", "scipy.stats", *NUMPY_PARTS):
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
