"""`MRMRSelector`: ``argmax F_j / mean_i |r_ij|``, or ``F_j - mean_i |r_ij|``, over the columns i chosen before.

Equal to the definition on the rows, for numbers and classes; the choice of k begins that of more.
"""

from typing import Any

import numpy as np
import pytest
from sklearn.feature_selection import f_classif, f_regression

from sketchselect.selectors import MRMRSelector, UnivariateSelector

from .instances import each_instance


def problem(seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((300, 40)) @ (np.eye(40) + 0.3 * np.eye(40, k=1)) * np.geomspace(1e-3, 1e3, 40) + 50.0
    varied = (X - X.mean(axis=0)) / X.std(axis=0)
    return X, 0.2 * varied[:, :12].sum(axis=1) + rng.standard_normal(300)


def reference_mrmr(X: Any, y: Any, k: int, scheme: str, oracle: Any) -> list[int]:
    """Minimum redundancy and maximum relevance on the rows, by the definition."""
    F, R = oracle(X - X.mean(axis=0), y)[0], np.abs(np.corrcoef(X, rowvar=False))
    order = [int(np.argmax(F))]
    while len(order) < k:
        rest = [j for j in range(X.shape[1]) if j not in order]
        redundancy = {j: np.mean([R[j, i] for i in order]) for j in rest}
        value = {j: F[j] - redundancy[j] if scheme == "difference" else F[j] / redundancy[j] for j in rest}
        order.append(max(rest, key=lambda j: (value[j], -j)))
    return order


@pytest.mark.share(2)
@pytest.mark.parametrize("scheme", ["quotient", "difference"])
@pytest.mark.parametrize("n_classes", [0, 2, 4])
@each_instance
def test_mrmr_is_that_of_the_rows(scheme: Any, n_classes: int, seeds: range) -> None:
    for seed in seeds:
        compare_with_the_rows(*problem(seed), scheme, n_classes)


def compare_with_the_rows(X: Any, y: Any, scheme: Any, n_classes: int) -> None:
    if n_classes:
        y = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
    oracle = f_classif if n_classes else f_regression
    selector = MRMRSelector(15, scheme=scheme).fit(X, y)
    assert selector.ranking_.tolist() == reference_mrmr(X, y, 15, scheme, oracle)
    np.testing.assert_allclose(selector.selection_.columns["relevance"], oracle(X - X.mean(axis=0), y)[0], rtol=1e-8)
    assert MRMRSelector(4, scheme=scheme).fit(X, y).ranking_.tolist() == selector.ranking_[:4].tolist()
    np.testing.assert_array_equal(np.argsort(-selector.scores_, kind="stable")[:15], selector.ranking_)


def test_mrmr_leaves_constant_columns_out_and_takes_no_copy_second() -> None:
    X, y = problem()
    X[:, 30] = X[:, int(UnivariateSelector(n_features_to_select=1).fit(X, y).support_[0])]
    X[:, 31] = 4.0
    selector = MRMRSelector(39).fit(X, y)
    assert 31 not in selector.support_
    assert selector.ranking_[1] != 30
    with pytest.warns(UserWarning, match="41"), pytest.warns(UserWarning, match="only 39 of 40 columns can be tested"):
        assert MRMRSelector(41).fit(X, y).support_.size == 39
