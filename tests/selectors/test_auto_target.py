"""The method for a target that the data choose."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.feature_selection import f_classif, f_regression

import sketchselect as sks
from sketchselect.selectors import LassoPath, MRMRSelector, TargetAutoSelector
from sketchselect.selectors.supervised.auto import MRMRPath, UnivariatePath
from sketchselect.summaries import Folds, Moments


def rows(n: int = 400, p: int = 8) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((n, p))


def test_squares_are_found_where_no_linear_method_finds_them() -> None:
    X = rows()
    y = X[:, 2] ** 2 + X[:, 5] * X[:, 6] + 0.1 * rows(401)[1:, 0]
    fit = TargetAutoSelector(cv_rule="1se").fit(X, y)
    assert fit.selection_.support.tolist() == [2, 5, 6]
    assert fit.errors_["lasso of degree 2"] < 0.1 < 0.9 < fit.errors_["lasso"]
    assert "lasso of degree 2 predicts best" in fit.selection_.diagnostics["choice"]


@pytest.mark.parametrize("n_features", [None, 3])
def test_it_is_the_method_of_least_error(n_features: int | None) -> None:
    X, y = make_classification(200, 35, n_informative=6, n_classes=3, random_state=0)
    fit = TargetAutoSelector(n_features).fit(X, y)
    assert list(fit.errors_) == ["lasso", "univariate", "mrmr"]
    paths = {
        cls.method: cls(cv=5, task="classification").fit(X, y).path_ for cls in (LassoPath, UnivariatePath, MRMRPath)
    }
    for name, path in paths.items():
        few = [i for i, size in enumerate(path.n_nonzero) if n_features is None or size <= n_features]
        errors = path.mean_cv_error[path.chosen] if n_features is None else path.mean_cv_error[few[-1]]
        assert fit.errors_[name] == pytest.approx(errors / path.target_squares.sum(), rel=1e-9)
    winner = min(fit.errors_, key=lambda name: fit.errors_[name])
    assert fit.best_.method == fit.selection_.diagnostics["competitor"] == winner
    np.testing.assert_array_equal(fit.predict(X), fit.best_.predict(X))
    assert fit.score(X, y) > 0.6
    assert n_features is None or fit.support_.size == n_features


def test_ranked_paths_go_by_f_statistics_and_by_relevance_without_redundancy() -> None:
    X, y = make_classification(300, 12, n_informative=4, n_redundant=4, n_classes=3, random_state=3)
    for task, target, f in (("classification", y, f_classif), ("regression", X @ np.arange(12.0), f_regression)):
        expected = np.argsort(-f(X, target)[0], kind="stable")
        for size in (1, 4, 7):
            fit = UnivariatePath(size, task=task).fit(X, target)
            assert fit.support_.tolist() == sorted(expected[:size])
            best = MRMRPath(size, task=task).fit(X, target)
            assert best.support_.tolist() == MRMRSelector(size, task=task).fit(X, target).support_.tolist()


def test_groups_streams_and_merged_files() -> None:
    X, names = rows(300), np.array(["no", "yes"])
    y = names[(X[:, 1] + X[:, 3] > 0).astype(int)]
    whole = TargetAutoSelector().fit(X, y)
    stream = TargetAutoSelector().partial_fit(X[:100], y[:100], classes=["no", "yes"]).partial_fit(X[100:], y[100:])
    merged = TargetAutoSelector().fit_summary(whole.summary_)
    for other in (stream, merged):
        assert other.support_.tolist() == whole.support_.tolist()
        assert other.errors_ == pytest.approx(whole.errors_)
    assert whole.predict(X[:3]).tolist() == merged.predict(X[:3]).tolist()
    assert TargetAutoSelector().fit(X, y, groups=np.arange(300) // 10).errors_ != whole.errors_


def test_moments_of_degree_2_contain_those_of_degree_1() -> None:
    X = rows()
    y = X[:, 2] - X[:, 3] + X[:, 1] ** 2
    files = [Folds(Moments(degree=degree), 5).from_block(X, y) for degree in (1, 2)]
    fits = [LassoPath(cv=5).fit_summary(summary) for summary in files]
    np.testing.assert_allclose(fits[1].coef_, fits[0].coef_, rtol=0, atol=1e-9)


def test_a_job_with_a_target_and_no_clusters(tmp_path: Path) -> None:
    X = rows()
    np.save(tmp_path / "rows.npy", X)
    np.save(tmp_path / "target.npy", X[:, 4] * X[:, 5] + X[:, 0])
    job = {
        "input": {"url": str(tmp_path / "rows.npy"), "target": str(tmp_path / "target.npy")},
        "select": {"method": "auto", "n_features": "auto"},
        "execution": {"cluster": "serial"},
        "output": {"dir": str(tmp_path / "out"), "report": False},
    }
    sks.run(job)
    selection = json.loads((tmp_path / "out" / "selection.json").read_text())
    assert (selection["method"], selection["support"]) == ("auto-target", [0, 4, 5])
    assert "lasso of degree 2 predicts best" in selection["diagnostics"]["choice"]
    assert [4, 5] in json.loads((tmp_path / "out" / "model.json").read_text())["terms"]
