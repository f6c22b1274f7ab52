"""Selection by tests of single columns: scikit-learn and SciPy as oracles, errors kept, sources, files and jobs."""

from __future__ import annotations

import csv
import json
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats
from sklearn.feature_selection import chi2, f_classif, f_regression, r_regression

from sketchselect import summarize
from sketchselect.errors import BadParameter, Incompatible, SketchSelectError
from sketchselect.selectors import Selection, UnivariateSelector
from sketchselect.summaries import ColumnStats, Groups, Moments
from sketchselect.workflow.tables import scores_csv


@pytest.fixture
def classes() -> tuple[Any, Any]:
    """Rows of four classes; class 3 is rare, column 5 constant."""
    rng = np.random.default_rng(1)
    labels = rng.choice(4, 400, p=[0.4, 0.3, 0.25, 0.05])
    X = rng.standard_normal((400, 15)) * np.geomspace(1e-3, 1e3, 15) + 100.0
    X += np.outer(labels, np.geomspace(1e-3, 1e3, 15) * np.linspace(0, 0.8, 15))
    X[:, 5] = 7.0
    return X, labels


@pytest.fixture
def numbers() -> tuple[Any, Any]:
    rng = np.random.default_rng(2)
    X = rng.standard_normal((300, 10)) + 1e4
    X[:, 3] = 0.0
    return X, X[:, 0] - 0.3 * X[:, 7] + rng.standard_normal(300)


@pytest.mark.filterwarnings("ignore")
def test_f_of_classes_and_of_numbers_are_those_of_scikit_learn(classes: Any, numbers: Any) -> None:
    for (X, y), oracle in ((classes, f_classif), (numbers, f_regression)):
        varies = X.std(axis=0) > 0
        # Both tests do not depend on the means; scikit-learn's sums of squares lose digits to large ones.
        f, p = oracle((X - X.mean(axis=0))[:, varies], y)
        selector = UnivariateSelector(mode="percentile", n_features_to_select=30).fit(X, y)
        np.testing.assert_allclose(selector.scores_[varies], f, rtol=1e-9)
        np.testing.assert_allclose(selector.pvalues_[varies], p, rtol=1e-9)
        assert np.isnan(selector.pvalues_[~varies]).all(), "a constant column has no test"
        assert (selector.scores_[~varies] == 0).all()
        assert selector.support_.size == int(0.3 * X.shape[1])
        q = stats.false_discovery_control(p)
        np.testing.assert_allclose(selector.qvalues_[varies], q, rtol=1e-9)


def test_correlation_keeps_its_sign_as_the_effect(numbers: Any) -> None:
    X, y = numbers
    selector = UnivariateSelector("correlation", n_features_to_select=2).fit(X, y)
    varies = X.std(axis=0) > 0
    np.testing.assert_allclose(selector.effects_[varies], r_regression((X - X.mean(axis=0))[:, varies], y), rtol=1e-9)
    np.testing.assert_array_equal(selector.scores_[varies], np.abs(selector.effects_)[varies])


def test_t_test_of_two_classes_is_welchs(classes: Any) -> None:
    X, labels = classes
    y = np.where(labels == 0, "case", "control")
    selector = UnivariateSelector("t-test", mode="fwe").fit(X, y)
    varies = np.arange(15) != 5
    V = X[:, varies]
    expected = stats.ttest_ind(V[labels == 0], V[labels != 0], equal_var=False)
    np.testing.assert_allclose(selector.scores_[varies], np.abs(expected.statistic), rtol=1e-9)
    np.testing.assert_allclose(selector.pvalues_[varies], expected.pvalue, rtol=1e-9)
    assert np.isnan(selector.pvalues_[5])


@pytest.mark.parametrize("shift", [1e-6, 1e-3, 0.1, 0.3])
def test_p_values_of_small_and_large_t_keep_their_digits(shift: float) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(4000) < 1500
    X = rng.standard_normal((4000, 1))
    X[y] -= X[y].mean() - shift
    X[~y] -= X[~y].mean()
    expected = stats.ttest_ind(X[y], X[~y], equal_var=False)
    p = UnivariateSelector("t-test").fit(X, y).pvalues_
    np.testing.assert_allclose(p, expected.pvalue, rtol=1e-12)


def test_t_test_of_several_classes_is_that_of_the_best_class_corrected(classes: Any) -> None:
    X, labels = classes
    selector = UnivariateSelector("t-test").fit(X, labels)
    varies = np.arange(15) != 5
    V = X[:, varies]
    p = [stats.ttest_ind(V[labels == k], V[labels != k], equal_var=False).pvalue for k in range(4)]
    np.testing.assert_allclose(selector.pvalues_[varies], np.minimum(4 * np.min(p, axis=0), 1), rtol=1e-9)


@pytest.mark.parametrize("as_source", [np.asarray, sp.csr_array])
def test_chi2_of_counts_is_that_of_scikit_learn(as_source: Any) -> None:
    rng = np.random.default_rng(3)
    labels = rng.integers(3, size=200)
    X = rng.poisson(1 + 0.4 * np.outer(labels, np.arange(8)), (200, 8)).astype(float)
    X[:, 2] = 0.0
    selector = UnivariateSelector("chi2", mode="fdr").fit(as_source(X), labels)
    keep = np.arange(8) != 2
    statistics, p = chi2(X[:, keep], labels)
    np.testing.assert_allclose(selector.scores_[keep], statistics, rtol=1e-12)
    np.testing.assert_allclose(selector.pvalues_[keep], p, rtol=1e-9)
    assert selector.support_.tolist() == np.arange(8)[keep][stats.false_discovery_control(p) <= 0.05].tolist()


def test_p_values_below_the_smallest_number_have_a_logarithm() -> None:
    labels = np.repeat([0, 1], 2_000)
    X = np.column_stack([1000.0 * labels, 1.0 + labels * 400, np.ones(4_000)])
    selector = UnivariateSelector("chi2").fit(X, labels)
    assert selector.pvalues_[0] == 0.0
    # One degree of freedom: erfc(sqrt(x / 2)), whose logarithm SciPy has.
    expected = np.log(2) + stats.norm.logsf(np.sqrt(selector.scores_[:2]))
    np.testing.assert_allclose(selector.log_pvalues_[:2], expected, rtol=1e-12)


def test_nothing_is_selected_where_nothing_is_significant() -> None:
    rng = np.random.default_rng(5)
    selector = UnivariateSelector(mode="fdr", alpha=1e-6).fit(rng.standard_normal((100, 5)), rng.standard_normal(100))
    assert selector.support_.size == 0
    assert selector.get_support().sum() == 0


def test_a_stream_merged_files_and_one_pass_agree(classes: Any) -> None:
    X, labels = classes
    whole = UnivariateSelector(mode="fdr").fit(X, labels)
    stream = UnivariateSelector(mode="fdr")
    for rows in np.array_split(np.arange(400), 7):
        stream.partial_fit(X[rows], labels[rows], classes=range(4) if rows[0] == 0 else None)
    sites = [
        summarize(X[rows], Groups(ColumnStats(), range(4)), y=labels[rows]) for rows in (slice(150), slice(150, 400))
    ]
    merged = UnivariateSelector(mode="fdr").fit_summary(sites[0].merge(sites[1]))
    for other in (stream, merged):
        np.testing.assert_allclose(other.log_pvalues_, whole.log_pvalues_, rtol=1e-9)
        np.testing.assert_array_equal(other.support_, whole.support_)


@pytest.mark.parametrize(
    ("y", "task"),
    [
        (["a", "b"], "classification"),
        ([True, False], "classification"),
        ([1.0, 2.0], "classification"),
        (list(range(21)), "regression"),
        ([0.5, 1.25], "regression"),
    ],
)
def test_the_task_follows_from_the_target(y: list[Any], task: str) -> None:
    target = np.resize(np.array(y), 63)
    X = np.random.default_rng(7).standard_normal((63, 3))
    assert UnivariateSelector().fit(X, target).selection_.parameters["task"] == task


def test_numbers_of_columns_are_in_the_selection_and_in_its_table(classes: Any) -> None:
    selection = UnivariateSelector().fit(*classes).selection_
    again = Selection.from_dict(json.loads(json.dumps(selection.to_dict())))
    for name, values in selection.columns.items():
        np.testing.assert_array_equal(again.columns[name], values)
    rows = list(csv.DictReader("".join(scores_csv(again)).splitlines()))
    names = ["confint_high", "confint_low", "effects", "log_pvalues", "pvalues", "qvalues"]
    assert list(rows[0])[-6:] == names
    assert float(rows[0]["pvalues"]) == np.nanmin(selection.columns["pvalues"])
    assert rows[-1]["column"] == "5"
    assert rows[-1]["pvalues"] == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"score": "chi2", "task": "regression"}, 'score="chi2"'),
        ({"score": "correlation", "task": "classification"}, 'score="correlation"'),
        ({"mode": "fdr", "n_features_to_select": 3}, "n_features_to_select"),
        ({"mode": "percentile", "n_features_to_select": 101}, "at most 100"),
    ],
)
def test_bad_parameters_are_named(arguments: dict[str, Any], words: str, classes: Any) -> None:
    with pytest.raises(BadParameter, match=words):
        UnivariateSelector(**arguments).fit(*classes)


ON_PRESENT = {
    "f": lambda X, y: f_classif(X, y),
    "chi2": lambda X, y: chi2(X, y),
    # Of four classes the best one against all others, corrected for four tests.
    "t-test": lambda X, y: min(
        (stats.ttest_ind(X[y == c], X[y != c], equal_var=False) for c in np.unique(y)), key=lambda t: t.pvalue[0]
    ),
}


@pytest.mark.parametrize("score", ON_PRESENT)
def test_missing_values_leave_each_column_its_own_rows(score: str, tmp_path: Any) -> None:
    rng = np.random.default_rng(3)
    labels = rng.choice(4, 400)
    X = rng.poisson(4.0 + np.outer(labels, np.linspace(0, 1, 12))).astype(float)
    X[rng.random(X.shape) < 0.2] = np.nan
    X[labels == 2, 5] = np.nan  # a class without values in a column
    X[:, 7], X[:, 8] = np.nan, np.where(np.isnan(X[:, 8]), np.nan, 3.0)
    selector = UnivariateSelector(score, mode="fdr", missing="pairwise").fit(X, labels)
    factor = 4 if score == "t-test" else 1
    for j in set(range(12)) - {5, 7, 8}:
        where = ~np.isnan(X[:, j])
        statistic, p = ON_PRESENT[score](X[where, j, None], labels[where])[:2]
        assert selector.scores_[j] == pytest.approx(abs(statistic[0]), rel=1e-9)
        assert selector.pvalues_[j] == pytest.approx(min(factor * p[0], 1.0), rel=1e-9)
    if score != "t-test":
        where = ~np.isnan(X[:, 5])
        assert selector.pvalues_[5] == pytest.approx(ON_PRESENT[score](X[where, 5, None], labels[where])[1][0])
    assert np.isnan(selector.pvalues_[7])
    assert np.isnan(selector.effects_[7])
    # A stream, and files that are merged, say the same; so does a summary of rows with gaps by itself.
    stream = UnivariateSelector(score, mode="fdr", missing="pairwise")
    for rows in np.array_split(np.arange(400), 4):
        stream.partial_fit(X[rows], labels[rows], classes=[0, 1, 2, 3])
    sites = Groups(ColumnStats(), [0, 1, 2, 3])
    merged = sites.from_block(X[:150], labels[:150]).merge(sites.from_block(X[150:], labels[150:], start=150))
    for other in (stream, UnivariateSelector(score, mode="fdr").fit_summary(merged)):
        np.testing.assert_allclose(other.scores_, selector.scores_, rtol=1e-9)
        assert other.support_.tolist() == selector.support_.tolist()


@pytest.mark.filterwarnings("ignore")
def test_missing_values_of_what_does_not_allow_them_are_refused(numbers: Any) -> None:
    for score in ("mutual-information", "wilcoxon", "correlation"):
        with pytest.raises(BadParameter, match=r"missing=.*prepare="):
            UnivariateSelector(score, missing="pairwise").fit(*numbers)
    with pytest.raises(BadParameter, match=r"is numbers, missing=.*prepare="):
        UnivariateSelector(missing="pairwise").fit(*numbers)
    for present in (np.zeros(20, dtype=bool), np.arange(20) < 10):
        with pytest.raises(SketchSelectError, match="value in two classes"):
            UnivariateSelector(missing="pairwise").fit(
                np.where(present[:, None], np.eye(20), np.nan), np.repeat(["a", "b"], 10)
            )


def test_what_cannot_be_tested_is_refused(classes: Any) -> None:
    X, labels = classes
    with pytest.raises(BadParameter, match="column 2 has"):
        UnivariateSelector("chi2").fit(X - np.where(np.arange(15) == 2, 1e5, 0.0), labels)
    with pytest.raises(BadParameter, match="2 columns"):
        UnivariateSelector().fit(X, np.column_stack([labels, labels]))
    with pytest.raises(BadParameter, match=r'is text.*score="correlation".*score="f"'):
        UnivariateSelector("correlation").fit(X, labels.astype(str))
    with pytest.raises(BadParameter, match="groups"):
        UnivariateSelector().fit(X, labels, groups=labels)
    with pytest.raises(Incompatible, match="has no target"):
        UnivariateSelector().fit_summary(summarize(X, Moments()))
    with pytest.raises(Incompatible, match="Groups"):
        UnivariateSelector("t-test").fit_summary(summarize(X, Moments(), y=labels.astype(float)))


@pytest.mark.parametrize("score", ["t-test", "chi2", "wilcoxon"])
def test_numbers_for_a_score_of_classes_are_told_which_scores_take_them(score: str) -> None:
    X = np.random.default_rng(0).poisson(3.0, (60, 3)).astype(float)
    with pytest.raises(BadParameter, match=r'continuous numbers are no classes; take score="f", "correlation" or'):
        UnivariateSelector(score).fit(X, np.arange(60) + 0.5)
