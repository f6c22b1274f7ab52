"""Selectors by tests: a constant target, columns without a test, and streams that begin with one class."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sketchselect.errors import BadParameter
from sketchselect.selectors import KnockoffSelector, MRMRSelector, UnivariateSelector

SELECTORS: dict[str, Callable[[], Any]] = {
    **{
        score: lambda score=score: UnivariateSelector(score, n_features_to_select=2)
        for score in ("f", "t-test", "chi2", "wilcoxon", "mutual-information")
    },
    "f of columns with missing values": lambda: UnivariateSelector("f", n_features_to_select=2, missing="pairwise"),
    "mrmr": lambda: MRMRSelector(2),
    "knockoffs": lambda: KnockoffSelector(0.5),
}


def rows() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 9, (100, 4)).astype(float)
    y = np.arange(100) >= 30
    X[:, 2] += 3.0 * y
    return X, y.astype(int)


@pytest.mark.parametrize("name", SELECTORS)
@pytest.mark.parametrize("classes", [[0, 1], [0, 1, 2]])
def test_a_stream_that_begins_with_one_class_loses_no_row(name: str, classes: list[int]) -> None:
    X, y = rows()
    selector = SELECTORS[name]()
    for a, b in ((0, 10), (10, 30)):
        selector.partial_fit(X[a:b], y[a:b], classes=classes)
        assert selector.support_.size == 0
        assert selector.summary_.n_rows == b
    selector.partial_fit(X[30:], y[30:])
    assert selector.summary_.n_rows == 100
    if name in ("wilcoxon", "mutual-information"):
        assert 2 in selector.support_  # Its bins are those of the first rows.
        return
    at_once = SELECTORS[name]().partial_fit(X, y, classes=classes)
    np.testing.assert_allclose(selector.scores_, at_once.scores_, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", SELECTORS)
def test_one_class_is_refused_where_no_other_can_follow(name: str) -> None:
    X, y = rows()
    with pytest.raises(BadParameter, match="only one class"):
        SELECTORS[name]().fit(X[:30], y[:30])
    stream = SELECTORS[name]().partial_fit(X[:30], y[:30], classes=[0, 1])
    with pytest.raises(BadParameter, match="only one class"):
        SELECTORS[name]().fit_summary(stream.summary_)


@pytest.mark.parametrize("score", ["f", "correlation"])
@pytest.mark.parametrize("mode", ["k", "percentile", "fdr"])
def test_no_column_is_selected_for_a_constant_target(score: str, mode: str) -> None:
    X, _ = rows()
    selector = UnivariateSelector(score, mode=mode)
    with pytest.warns(UserWarning, match="the target is constant: no column is selected"):
        selector.fit(X, np.full(100, 2.5))
    assert selector.support_.size == 0
    assert np.isnan(selector.pvalues_).all()
    assert "no column can be tested" in selector.selection_.diagnostics["choice"]


def test_other_selectors_by_tests_warn_of_a_constant_target() -> None:
    X, _ = rows()
    for selector in (MRMRSelector(2), KnockoffSelector(0.5)):
        with pytest.warns(UserWarning, match="the target is constant: no column is selected"):
            selector.fit(X, np.full(100, 2.5))
        assert selector.support_.size == 0
    with pytest.raises(BadParameter, match="all entries of the target are in one bin"):
        UnivariateSelector("mutual-information").fit(X, np.full(100, 2.5))


@pytest.mark.parametrize("make", [UnivariateSelector, MRMRSelector])
def test_columns_without_a_test_are_not_selected(make: Any) -> None:
    X, _ = rows()
    y = X[:, 1] + np.random.default_rng(1).standard_normal(100)
    wide = np.column_stack([np.ones((100, 3)), X])
    with pytest.warns(UserWarning, match=r"only 4 of 7 columns can be tested.* selected, not 6; a constant column"):
        selector = make(n_features_to_select=6).fit(wide, y)
    assert selector.support_.tolist() == [3, 4, 5, 6]
    assert make(n_features_to_select=1).fit(wide, y).support_.tolist() == [4]
