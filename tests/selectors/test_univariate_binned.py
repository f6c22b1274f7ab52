"""Mutual information and Wilcoxon's test by bins: SciPy and scikit-learn as oracles, relations without a trend."""

import json
from math import comb, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import special, stats
from sklearn import datasets
from sklearn.feature_selection import mutual_info_classif, mutual_info_regression
from sklearn.metrics import mutual_info_score
from tests.data_sets import data_set
from tests.job.commands import works

import sketchselect as sks
from sketchselect.errors import BadParameter, Incompatible
from sketchselect.linalg import independence
from sketchselect.selectors import UnivariateSelector
from sketchselect.selectors.supervised.binned import rank_sums
from sketchselect.summaries import TargetHistogram


@pytest.fixture
def counts() -> tuple[Any, Any]:
    """Counts of 2,000 rows in three classes; column 3 is constant, columns 0 and 1 depend on the class."""
    rng = np.random.default_rng(0)
    labels = rng.choice(3, 2000, p=[0.5, 0.3, 0.2])
    X = rng.poisson(2.0, (2000, 8)).astype(float)
    X[:, 0] += labels == 2
    X[:, 1] = np.where(labels == 1, 2.0, X[:, 1])
    X[:, 3] = 4.0
    return X, np.array(["a", "b", "c"])[labels]


def test_information_is_that_of_the_values_less_its_bias(counts: Any) -> None:
    X, labels = counts
    selector = UnivariateSelector("mutual-information", mode="fdr").fit(X, labels)
    assert selector.summary_.is_exact.all()
    for j in np.flatnonzero(X.std(axis=0) > 0):
        table = np.array([[((X[:, j] == v) & (labels == c)).sum() for c in "abc"] for v in np.unique(X[:, j])])
        information = mutual_info_score(X[:, j], labels)
        bias = ((table > 0).sum() - table.shape[0] - 3 + 1) / 4000
        np.testing.assert_allclose(selector.scores_[j], max(information - bias, 0), atol=1e-12)
        assert abs(selector.scores_[j] - information) < 0.01
        # Of 10,000 tables with these margins: four standard errors, and a tenth for the approximation.
        tables = stats.random_table(table.sum(axis=1), table.sum(axis=0)).rvs(10_000, random_state=0) / 2000
        shares = tables.sum(axis=2, keepdims=True) * tables.sum(axis=1, keepdims=True)
        p = (special.xlogy(tables, tables / shares).sum(axis=(1, 2)) >= information - 1e-12).mean()
        assert abs(selector.pvalues_[j] - p) <= 0.1 * p + 4 * np.sqrt(p * (1 - p) / 10_000) + 1e-3
    np.testing.assert_allclose(selector.effects_[0], selector.scores_[0] / stats.entropy([*table.sum(axis=0)]))
    assert np.isnan(selector.pvalues_[3])
    assert selector.scores_[3] == 0
    assert selector.support_.tolist() == [0, 1]


@pytest.mark.parametrize(("n_rows", "share"), [(400, 0.15), (400, 0.5), (1500, 0.03), (1000, None)])
def test_columns_without_information_are_selected_as_rarely_as_alpha_says(n_rows: int, share: float | None) -> None:
    X = np.random.default_rng(0).standard_normal((n_rows, 2000))
    y = np.arange(float(n_rows)) if share is None else np.arange(n_rows) < share * n_rows
    selector = UnivariateSelector("mutual-information", mode="fpr", alpha=0.05).fit(X, y)
    # By chi-squared of (bins - 1) (classes - 1) degrees of freedom it is .08 to .15.
    assert 0.03 <= selector.support_.size / 2000 <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / 2000)


def test_rare_values_that_are_those_of_a_rare_class_are_selected() -> None:
    X = np.zeros((100_000, 60))
    X[:20, 0] = 1.0
    rng = np.random.default_rng(1)
    for j in range(1, 60):
        X[rng.choice(100_000, 20, replace=False), j] = 1.0
    selector = UnivariateSelector("mutual-information", mode="fdr", alpha=0.01).fit(X, np.arange(100_000) < 20)
    assert selector.support_.tolist() == [0]


RARE = [(3, 20, 3), (5, 5, 5), (20, 20, 6), (50, 20, 12), (2, 2, 2)]


def rare_values(rare: int, size: int, both: int) -> tuple[Any, Any]:
    X = np.zeros((100_000, 1))
    X[size - both : size - both + rare] = 1.0
    return X, np.arange(100_000) < size


@pytest.mark.parametrize(("rare", "size", "both"), RARE)
def test_pvalues_of_two_values_beside_two_classes_are_those_of_the_exact_test(rare: int, size: int, both: int) -> None:
    selector = UnivariateSelector("mutual-information", mode="fpr").fit(*rare_values(rare, size, both))
    # Tables without any such row are less far out.
    exact = stats.hypergeom.sf(both - 1, 100_000, rare, size)
    np.testing.assert_allclose(selector.pvalues_[0], exact, rtol=1e-9)
    np.testing.assert_allclose(np.exp(selector.log_pvalues_[0]), exact, rtol=1e-9)


@pytest.mark.parametrize(("rare", "size", "both"), RARE)
def test_pvalues_of_rare_values_and_a_rare_class_are_near_those_of_the_exact_test(
    rare: int, size: int, both: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By the law for tables of more cells.
    monkeypatch.setattr(independence, "_LARGEST_VARIANCE", 0.0)
    selector = UnivariateSelector("mutual-information", mode="fpr").fit(*rare_values(rare, size, both))
    exact = stats.hypergeom.sf(both - 1, 100_000, rare, size)
    # By the chi-squared distribution with three equal cumulants alone, too large by factors of 1e4 to 1e20.
    assert abs(selector.log_pvalues_[0] - np.log(exact)) < np.log(60)
    assert np.log(selector.pvalues_[0]) == pytest.approx(selector.log_pvalues_[0])


@pytest.mark.parametrize("n_rows", [8, 10, 12, 60])
def test_two_values_of_few_rows_without_information_are_selected_no_more_often_than_alpha_says(n_rows: int) -> None:
    X = np.random.default_rng(n_rows).integers(0, 2, (n_rows, 4000)).astype(float)
    for n_first in (n_rows // 2, 3):
        for alpha in (0.05, 0.01):
            selector = UnivariateSelector("mutual-information", mode="fpr", alpha=alpha)
            selector.fit(X, np.arange(n_rows) < n_first)
            # By three cumulants up to four times alpha.
            assert selector.support_.size <= 4000 * alpha + 4 * np.sqrt(4000 * alpha)


def test_information_with_numbers_is_that_of_both_binned() -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((3000, 4))
    y = X[:, 2] ** 2 + rng.standard_normal(3000)
    selector = UnivariateSelector("mutual-information", n_bins=12).fit(X, y)
    histogram = selector.summary_
    binned = _binned(y, histogram.target_edges)
    for j in range(4):
        bins = _binned(X[:, j], histogram.edges[j])
        assert np.unique(bins).size == 12
        expected = mutual_info_score(bins, binned)
        np.testing.assert_allclose(selector.scores_[j], max(expected - _bias(bins, binned), 0), atol=1e-12)


def _binned(values: Any, edges: Any) -> Any:
    """A bin begins at its edge; the first holds smaller values too."""
    return np.maximum(np.searchsorted(edges, values, side="right") - 1, 0)


def _bias(a: Any, b: Any) -> float:
    n_cells = np.unique(a * 1000 + b).size
    return float(n_cells - np.unique(a).size - np.unique(b).size + 1) / (2 * a.size)


@pytest.mark.parametrize("relation", ["square", "band", "circle"])
def test_a_relation_without_a_trend_is_seen_where_f_sees_nothing(relation: str) -> None:
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, (2000, 10))
    X[:, 0] = np.linspace(-1, 1, 2000)  # balanced, so that no trend is left to chance
    if relation == "square":
        y: Any = X[:, 0] ** 2 + 0.1 * rng.standard_normal(2000)
    elif relation == "band":
        y = np.abs(X[:, 0]) < 0.3
    else:
        angle, y = rng.uniform(0, 2 * np.pi, 2000), np.arange(2000) % 2
        X[:, :2] = (1.0 + y[:, None]) * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    matter = [0, 1] if relation == "circle" else [0]
    assert UnivariateSelector(mode="fwe", alpha=0.01).fit(X, y).support_.size == 0
    chosen = UnivariateSelector("mutual-information", mode="fwe", alpha=0.01).fit(X, y)
    assert chosen.support_.tolist() == matter
    assert UnivariateSelector("mutual-information", n_features_to_select=len(matter)).fit(X, y).support_.tolist() == (
        matter
    )


@pytest.mark.parametrize("as_source", [np.asarray, sp.csr_array])
def test_rank_sums_of_two_classes_are_those_of_mann_and_whitney(counts: Any, as_source: Any) -> None:
    X, labels = counts
    y = labels == "a"
    selector = UnivariateSelector("wilcoxon", mode="fwe").fit(as_source(X), y)
    varies = X.std(axis=0) > 0
    V = X[:, varies]
    expected = stats.mannwhitneyu(V[~y], V[y], use_continuity=False, method="asymptotic")
    np.testing.assert_allclose(selector.pvalues_[varies], expected.pvalue, rtol=1e-10)
    np.testing.assert_allclose(selector.scores_[varies], stats.norm.isf(expected.pvalue / 2), rtol=1e-10)
    area = expected.statistic / (y.sum() * (~y).sum())
    np.testing.assert_allclose(selector.effects_[varies], 2 * area - 1, atol=1e-12)
    assert np.isnan(selector.pvalues_[3])


def test_rank_sums_without_correction_of_ties_are_scipys_ranksums(counts: Any) -> None:
    X, labels = counts
    of_classes = UnivariateSelector("wilcoxon").fit(X, labels).summary_.counts
    sums = rank_sums(of_classes[:, :, 0], of_classes[:, :, 2], tie_correct=False)
    expected = stats.ranksums(X[labels == "a"], X[labels == "c"])
    varies = X.std(axis=0) > 0
    np.testing.assert_allclose(sums.statistics[varies], expected.statistic[varies], atol=1e-10)
    np.testing.assert_allclose(sums.pvalues[varies], expected.pvalue[varies], rtol=1e-10)


def test_rank_sums_of_several_classes_are_those_of_the_best_class_corrected(counts: Any) -> None:
    X, labels = counts
    selector = UnivariateSelector("wilcoxon").fit(X, labels)
    V = X[:, [0, 1, 2, 4]]
    p = [
        stats.mannwhitneyu(V[labels == c], V[labels != c], use_continuity=False, method="asymptotic").pvalue
        for c in "abc"
    ]
    np.testing.assert_allclose(selector.pvalues_[[0, 1, 2, 4]], np.minimum(3 * np.min(p, axis=0), 1), rtol=1e-10)


def test_p_values_below_the_smallest_number_have_a_logarithm() -> None:
    labels = np.repeat([0, 1], 4000)
    X = np.column_stack([labels + 0.0, np.r_[np.zeros(3), labels[3:]]])
    selector = UnivariateSelector("wilcoxon").fit(X, labels)
    assert selector.pvalues_[0] == 0.0
    np.testing.assert_allclose(selector.log_pvalues_, np.log(2) + stats.norm.logsf(selector.scores_), rtol=1e-10)
    selector = UnivariateSelector("mutual-information").fit(
        np.column_stack([labels, np.repeat([0, 1, 2, 1], 2000)]), labels
    )
    np.testing.assert_array_equal(selector.pvalues_, 0.0)
    # Two of the tables; of three bins chi-squared has two degrees of freedom.
    g = 16_000 * mutual_info_score(labels, np.repeat([0, 1, 2, 1], 2000))
    np.testing.assert_allclose(selector.log_pvalues_, [log(2) - log(comb(8000, 4000)), -g / 2], rtol=1e-10)


def test_sites_merge_to_the_bits_of_one_pass(counts: Any, tmp_path: Path) -> None:
    X, labels = counts
    whole = UnivariateSelector("wilcoxon", bins="counts").fit(X, labels)
    sks.save(whole.summary_.empty(8), tmp_path / "bins.sks")
    like = UnivariateSelector("wilcoxon", bins=str(tmp_path / "bins.sks"))
    sites = [like.collect(rows, y) for rows, y in ((X[:700], labels[:700]), (sp.csr_array(X[700:]), labels[700:]))]
    stream = UnivariateSelector("wilcoxon", bins="counts")
    for rows in np.array_split(np.arange(2000), 5):
        stream.partial_fit(X[rows], labels[rows], classes=["a", "b", "c"] if rows[0] == 0 else None)
    merged = UnivariateSelector("wilcoxon").fit_summary(sites[0].merge(sites[1]))
    assert merged.summary_ == whole.summary_ == stream.summary_
    np.testing.assert_array_equal(merged.pvalues_, whole.pvalues_)
    again = UnivariateSelector("mutual-information", mode="fdr").fit_summary(merged.summary_)
    assert again.support_.tolist() == [0, 1]


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_the_first_rows_of_a_stream_decide_on_its_bins(task: str) -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((900, 5))
    y = X[:, 1] ** 2 + 0.1 * rng.standard_normal(900)
    y = y > 0.5 if task == "classification" else y
    stream = UnivariateSelector("mutual-information", mode="fwe", alpha=1e-4)
    for rows in np.array_split(np.arange(900), 3):
        stream.partial_fit(X[rows], y[rows])
    first = UnivariateSelector("mutual-information").fit(X[:300], y[:300])
    assert stream.summary_.describe() == first.summary_.describe()
    assert stream.summary_.n_rows == 900
    assert stream.support_.tolist() == [1]


def correlation_with_nearest_neighbours(X: Any, y: Any, task: str) -> float:
    oracle = mutual_info_classif if task == "classification" else mutual_info_regression
    selector = UnivariateSelector("mutual-information", task=task).fit(X, y)
    # The oracle adds noise to its rows: the mean of several seeds is steadier.
    information = np.mean([oracle(X, y, random_state=seed) for seed in range(3)], axis=0)
    return float(stats.spearmanr(selector.scores_, information).statistic)


@pytest.mark.parametrize(
    ("load", "task"),
    [
        pytest.param(datasets.load_digits, "classification", marks=pytest.mark.slow),
        (datasets.load_wine, "classification"),
        (datasets.load_breast_cancer, "classification"),
        (datasets.load_diabetes, "regression"),
    ],
)
def test_the_order_is_that_of_scikit_learn(load: Any, task: str) -> None:
    assert correlation_with_nearest_neighbours(*load(return_X_y=True), task) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("name", ["USPS", "COIL20", "Isolet", "MNIST"])
def test_the_order_on_real_data_is_that_of_scikit_learn(name: str) -> None:
    data, rng = data_set(name), np.random.default_rng(0)
    rows = rng.permutation(len(data["X"]))[:1500]
    columns = np.sort(rng.permutation(data["X"].shape[1])[:60])
    X, y = data["X"][rows][:, columns].astype(float), np.unique(data["y"].ravel()[rows], return_inverse=True)[1]
    assert correlation_with_nearest_neighbours(X, y, "classification") > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("name", ["TDT2", "20Newsgroups_tf", "mouse_bladder_cells"])
def test_the_order_on_sparse_counts_is_that_of_scikit_learn(name: str) -> None:
    data, rng = data_set(name), np.random.default_rng(0)
    X = sp.csr_array((data["data"], data["indices"], data["indptr"]), shape=tuple(data["shape"])).astype(float)
    rows = rng.permutation(X.shape[0])[:1000]
    X, y = X[rows], np.unique(data["y"].ravel()[rows], return_inverse=True)[1]
    X = X[:, np.sort(rng.permutation(np.flatnonzero((X != 0).sum(axis=0)))[:200])]
    scores = UnivariateSelector("mutual-information", task="classification").fit(X, y).scores_
    assert stats.spearmanr(scores, mutual_info_classif(X, y)).statistic > 0.9


def test_a_job_and_merged_files_give_the_same_columns(counts: Any, tmp_path: Path) -> None:
    X, labels = counts
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", labels)
    job: dict[str, Any] = {
        "input": {"url": str(tmp_path / "X.npy"), "target": str(tmp_path / "y.npy")},
        "select": {"method": "univariate", "score": "wilcoxon", "mode": "fwe"},
        "output": {"dir": str(tmp_path / "out")},
        "execution": {"cluster": "serial"},
    }
    assert sks.run(job).selection.support.tolist() == [0, 1]
    expected = UnivariateSelector("wilcoxon").fit(X, labels)
    selection = json.loads((tmp_path / "out" / "selection.json").read_text())
    np.testing.assert_array_equal(np.array(selection["columns"]["pvalues"], dtype=float), expected.pvalues_)
    assert "pvalues" in (tmp_path / "out" / "scores.csv").read_text().splitlines()[0]
    sks.save(expected.summary_.describe().from_block(X[:800], labels[:800]), tmp_path / "0.sks")
    sks.save(expected.summary_.describe().from_block(X[800:], labels[800:], start=800), tmp_path / "1.sks")
    works("merge", tmp_path / "0.sks", tmp_path / "1.sks", "-o", tmp_path / "all.sks")
    options = (
        "--method",
        "univariate",
        "--set",
        "score=wilcoxon",
        "--set",
        "mode=fwe",
        "-o",
        tmp_path / "columns.json",
    )
    works("select", tmp_path / "all.sks", *options)
    assert json.loads((tmp_path / "columns.json").read_text())["support"] == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"score": "wilcoxon", "task": "regression"}, 'score="wilcoxon"'),
        ({"score": "f", "n_bins": 5}, "n_bins is for score"),
        ({"score": "f", "bins": "counts"}, "bins is for score"),
        ({"score": "wilcoxon", "bins": "a.sks", "n_bins": 5}, "leave one of the two out"),
    ],
)
def test_bad_parameters_are_named(arguments: dict[str, Any], words: str, counts: Any) -> None:
    with pytest.raises(BadParameter, match=words):
        UnivariateSelector(**arguments).fit(*counts)


def test_what_cannot_be_tested_is_refused(counts: Any) -> None:
    X = counts[0]
    of_numbers = sks.summarize(X, TargetHistogram(range(9), target_edges=[0.0, 1.0]), y=X[:, 0])
    with pytest.raises(Incompatible, match="numbers or classes"):
        UnivariateSelector("wilcoxon").fit_summary(of_numbers)
    with pytest.raises(BadParameter, match="only one class"):
        UnivariateSelector("wilcoxon").fit_summary(
            sks.summarize(X, TargetHistogram(range(9), classes=["a", "b"]), y=np.full(2000, "a"))
        )
    with pytest.raises(Incompatible, match="target-histogram"):
        UnivariateSelector("wilcoxon").fit_summary(sks.summarize(X, sks.Moments()))
