"""The method for a target that the data choose."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import make_classification
from sklearn.feature_selection import f_classif, f_regression

import sketchselect as sks
from sketchselect.errors import NotFinite
from sketchselect.selectors import LassoPath, MRMRSelector, TargetAutoSelector
from sketchselect.selectors.supervised import auto
from sketchselect.selectors.supervised.auto import MRMRPath, UnivariatePath
from sketchselect.selectors.supervised.binned import mutual_information
from sketchselect.selectors.supervised.models import design_of
from sketchselect.selectors.supervised.path import PathSelector
from sketchselect.selectors.supervised.predict import discriminant, expected_wrong, observed_wrong
from sketchselect.summaries import Folds, Moments, RowSample


def rows(n: int = 1100, p: int = 8) -> np.ndarray:
    """Return rows, by default so many that they are divided into folds once."""
    return np.random.default_rng(1).standard_normal((n, p))


def of_five(summary: Folds) -> Folds:
    """Return the five folds whose blocks a summary of few rows holds."""
    return summary.united([range(4 * i, 4 * i + 4) for i in range(5)])


def test_squares_are_found_where_no_linear_method_finds_them() -> None:
    X = rows()
    y = X[:, 2] ** 2 + X[:, 5] * X[:, 6] + 0.1 * rows(1101)[1:, 0]
    fit = TargetAutoSelector(cv_rule="1se").fit(X, y)
    assert fit.selection_.support.tolist() == [2, 5, 6]
    assert fit.errors_["lasso of degree 2"] < 0.1 < 0.9 < fit.errors_["lasso"]
    assert "lasso of degree 2 predicts best" in fit.selection_.diagnostics["choice"]


@pytest.mark.share(1)
@pytest.mark.parametrize(("n_features", "with_rows"), [(None, True), (3, True), (None, False), (3, False)])
def test_it_is_the_method_of_least_error(n_features: int | None, with_rows: bool) -> None:
    X, y = make_classification(200, 35, n_informative=6, n_classes=3, random_state=0)
    summary = of_five(TargetAutoSelector().collect(X, y))
    fit = TargetAutoSelector(n_features).fit_summary(summary if with_rows else summary.of_member("moments"))
    assert list(fit.errors_) == ["lasso", "univariate", "mrmr", *["mutual-information"] * with_rows]
    assert fit.selection_.diagnostics["misclassification"]["counted"] == with_rows
    assert not fit.best_.selection_.diagnostics["misclassification"]["counted"]
    assert ("expected if scores are normal within classes is" in fit.selection_.diagnostics["choice"]) != with_rows
    paths = {
        cls.method: cls(cv=5, task="classification").fit(X, y).path_ for cls in (LassoPath, UnivariatePath, MRMRPath)
    }
    fold = summary.fold_of(np.arange(200, dtype=np.uint64))
    for name, path in paths.items():
        few = [i for i, size in enumerate(path.n_nonzero) if n_features is None or size <= n_features]
        if name == "lasso":
            continue
        cls, wrong = {"univariate": UnivariatePath, "mrmr": MRMRPath}[name], 0.0
        for i in range(5):
            train, test = fold != i, fold == i
            # The other folds choose the number of columns.
            by_others = int(np.delete(path.cv_errors, i, axis=1).mean(axis=1).argmin())
            value = path.values[by_others if n_features is None else few[-1]]
            model = cls(int(value), task="classification").fit(X[train], y[train])
            scores = model.decision_function(X[test])
            if with_rows:
                wrong += (scores.argmax(axis=1) != y[test]).sum()
                continue
            within = np.cov((scores - np.array([scores[y[test] == k].mean(axis=0) for k in range(3)])[y[test]]).T)
            within *= (test.sum() - 1) / (test.sum() - 3)
            draws = np.random.default_rng(0).multivariate_normal(np.zeros(3), within, 100_000)
            for k in range(3):
                means = scores[y[test] == k].mean(axis=0)
                wrong += (y[test] == k).sum() * ((draws + means).argmax(axis=1) != k).mean()
        assert fit.errors_[name] == pytest.approx(wrong / 200, **({} if with_rows else {"abs": 0.01}))
    least = min(fit.errors_.values())
    winner = next(name for name in fit.errors_ if fit.errors_[name] <= 1.03 * least)
    assert fit.best_.method == fit.selection_.diagnostics["competitor"] == winner
    rates = fit.selection_.diagnostics["misclassification"]
    assert (rates["held_out"], rates["counted"]) == (fit.errors_[winner], with_rows)
    np.testing.assert_array_equal(fit.predict(X), fit.best_.predict(X))
    assert fit.score(X, y) > 0.6
    assert n_features is None or fit.support_.size == n_features


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [150, 1025])
def test_errors_of_few_rows_are_means_over_divisions_into_folds(n_rows: int) -> None:
    X = rows(n_rows, 31)
    fit = TargetAutoSelector().fit(X, X[:, 2] + X[:, 3] + rows(n_rows + 1, 31)[1:, 5])
    divisions = auto._divisions(fit.summary_, 5)
    assert len(divisions) == (5 if n_rows == 150 else 1)
    fits = [TargetAutoSelector().fit_summary(folds) for folds in divisions]
    in_five = Folds(divisions[0].summary, 5)
    everywhere = np.arange(n_rows, dtype=np.uint64)
    assert [fold.n_rows for fold in divisions[0]] == np.bincount(in_five.fold_of(everywhere), minlength=5).tolist()
    assert len({other.errors_["mrmr"] for other in fits}) == len(divisions)
    for name, error in fit.errors_.items():
        assert error == pytest.approx(np.mean([other.errors_[name] for other in fits]))
    assert fit.errors_[fit.method_] <= 1.03 * min(fit.errors_.values())


def test_a_method_of_an_error_close_to_the_least_is_taken_for_the_order() -> None:
    X = rows(300, 8)
    fits = (TargetAutoSelector().fit(X, X[:, 2] + rows(301, 8)[1:, seed]) for seed in range(8))
    fit, best = next(
        (fit, best) for fit in fits if fit.method_ != (best := min(fit.errors_, key=fit.errors_.__getitem__))
    )
    choice = fit.selection_.diagnostics["choice"]
    assert choice.startswith(f"{fit.method_} is taken, though the error of {best} is lower, by at most 3 %")
    assert "the first is taken, in the order lasso, univariate, mrmr" in choice


@pytest.mark.parametrize(("noise", "n_features", "n_models"), [(1.0, None, 50), (0.0, None, 100), (1.0, 4, 50)])
def test_a_path_ends_far_from_its_best_model(noise: float, n_features: int | None, n_models: int) -> None:
    """The models are those of the whole path, from the sparsest on, and so is the one that is chosen."""
    X = rows(300, 12)
    y = X[:, 1] + X[:, 2] * X[:, 3] + noise * rows(301)[1:, 0]
    summary = of_five(TargetAutoSelector().collect(X, y)).of_member("moments")
    whole = LassoPath(degree=2, cv=5).fit_summary(summary)
    selector = LassoPath(degree=2, cv=5)
    path = auto._fitted_path(selector, summary, n_features or 0)
    assert len(path) == n_models
    np.testing.assert_array_equal(path.alphas, whole.path_.alphas[:n_models])
    np.testing.assert_array_equal(path.cv_errors, whole.path_.cv_errors[:n_models])
    assert path.chosen == whole.path_.chosen
    assert path.n_nonzero.max() > (n_features or 0)
    assert len(selector.fit_summary(summary).path_) == 100


@pytest.mark.parametrize(
    ("relation", "columns"),
    [
        (lambda X: X[:, 2] ** 2, [2]),
        (lambda X: np.abs(X[:, 2]) < 0.7, [2]),
        (lambda X: X[:, 2] ** 2 + X[:, 5] ** 2 < 1.4, [2, 5]),
    ],
    ids=["square", "band", "circle"],
)
def test_mutual_information_wins_where_no_trend_shows(relation: Any, columns: list[int]) -> None:
    X = rows(1500, 100)
    y = relation(X + 0.05 * rows(1501, 100)[1:])
    fit = TargetAutoSelector(cv_rule="1se").fit(X, y)
    assert (fit.method_, fit.selection_.support.tolist()) == ("mutual-information", columns)
    assert fit.errors_["mutual-information"] < 0.6 * fit.errors_["lasso"]
    assert fit.score(X, y) > 0.8
    assert y.dtype != bool or fit.errors_["mutual-information"] == pytest.approx(1 - fit.score(X, y), abs=0.05)


@pytest.mark.share(1)
@pytest.mark.parametrize("p", [12, 35])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_errors_of_mutual_information_are_those_of_refitting_on_rows(p: int, task: str) -> None:
    X = rows(300, p)
    y: Any = X[:, 1] + X[:, 3] ** 2 + 0.5 * rows(300, p)[::-1, 2]
    y = np.digitize(y, [0.0, 1.5]) if task == "classification" else y
    fit = TargetAutoSelector().fit(X, y)
    folds = of_five(fit.summary_)
    path = fit._competitors(folds.of_member("moments").total, with_counts=True)["mutual-information"]
    path = path.fit_summary(folds).path_
    counts = folds.of_member("counts")
    fold = counts.fold_of(np.arange(300, dtype=np.uint64))
    targets = np.eye(3)[y] if task == "classification" else y[:, None]
    for i in range(5):
        train, test = fold != i, fold == i
        of_columns = [
            mutual_information(counts.summary.from_block(X[train], y[train]).counts[[j]]).corrected[0] for j in range(p)
        ]
        # The most informative column first, itself and then its square.
        order = np.argsort(-np.tile(of_columns, 2), kind="stable")
        terms = np.hstack([X, ((X - X.mean(axis=0)) / X.std(axis=0)) ** 2])[:, order]
        for model in (1, 3, 6):
            size = int(path.values[model])
            design = np.column_stack([np.ones(300), terms[:, :size]])
            coef = np.linalg.lstsq(design[train], targets[train], rcond=None)[0]
            error = ((targets[test] - design[test] @ coef) ** 2).sum(axis=1).mean()
            assert path.cv_errors[model, i] == pytest.approx(error, rel=1e-8)


@pytest.mark.slow
def test_without_counts_mutual_information_is_not_compared() -> None:
    X = rows(300, 40)
    y = X[:, 2] - X[:, 3] + rows(301, 40)[1:, 5]
    whole, stream = TargetAutoSelector().fit(X, y), TargetAutoSelector().partial_fit(X[:100], y[:100])
    before = stream.summary_
    with pytest.raises(NotFinite):
        stream.partial_fit(np.full((1, 40), np.nan), y[:1], sample_weight=[1.0])
    assert stream.summary_ is before
    assert "mutual-information" in stream.errors_
    others = {
        "weights": TargetAutoSelector().fit(X, y, sample_weight=np.ones(300)),
        "a summary for merging": TargetAutoSelector().fit_summary(Folds(Moments(), 5).from_block(X, y)),
        "a small first batch": TargetAutoSelector().partial_fit(X[:20], y[:20]).partial_fit(X[20:], y[20:]),
        "later weights": stream.partial_fit(X[100:], y[100:], sample_weight=np.ones(200)),
        "many columns": TargetAutoSelector().fit(np.hstack([X, rows(300, 461)]), y),
    }
    for other in others.values():
        assert list(other.errors_) == ["lasso", "univariate", "mrmr"]
        assert "mutual information was not compared" in other.selection_.diagnostics["choice"]
    assert "500 columns" in others["many columns"].selection_.diagnostics["choice"]
    in_folds = TargetAutoSelector().fit_summary(of_five(whole.summary_))
    for name in ("weights", "a summary for merging", "a small first batch", "later weights"):
        expected = (whole if name == "weights" else in_folds).errors_
        assert others[name].errors_ == pytest.approx({k: expected[k] for k in others[name].errors_})


def test_bins_stay_when_rows_are_appended() -> None:
    X = rows(1000, 40)
    y = X[:, 1]
    counts = [TargetAutoSelector().collect(X[:n], y[:n]).summary["counts"] for n in (600, 1000, 500)]
    assert counts[0] == counts[1] != counts[2]


@pytest.mark.parametrize("form", [np.asarray, csr_array])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_wrong_classes_are_those_of_the_rows(n_classes: int, form: Any) -> None:
    # Heavy tails: the rate expected of normal rows is another.
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, 900)
    X = rng.standard_t(1.5, (900, 5)) + y[:, None] * np.arange(5)
    design = design_of(
        Moments(degree=2, classes=list(range(n_classes))).from_block(X, y), "classification", 2, with_folds=False
    )
    for degree, expansion in ((1, None), (2, design.expansion)):
        fit = LassoPath(degree=degree, task="classification").fit(X, y)
        terms = np.flatnonzero(fit.get_support())
        coef = np.atleast_2d(fit.coef_)[:, terms].T
        sample = RowSample(900, classes=list(range(n_classes))).from_block(form(X), y)
        observed = observed_wrong(coef, fit.intercept_, terms, expansion, sample)
        assert observed == pytest.approx(1 - fit.score(X, y), abs=1e-12)
        assert np.isnan(observed_wrong(coef * np.nan, fit.intercept_, terms, expansion, sample))
        # A sample of a third estimates it, within five standard errors.
        sample = RowSample(300, classes=list(range(n_classes))).from_block(form(X), y)
        error = np.sqrt(observed * (1 - observed) / 300)
        assert observed_wrong(coef, fit.intercept_, terms, expansion, sample) == pytest.approx(observed, abs=5 * error)


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_the_share_of_wrong_classes_to_expect_is_that_of_normal_rows(n_classes: int) -> None:
    rng = np.random.default_rng(0)
    centres = 0.9 * rng.standard_normal((6, 6))
    classes = list(range(n_classes))
    y, labels = rng.integers(0, n_classes, 2000), rng.integers(0, n_classes, 20_000)
    X, new = rng.standard_normal((2000, 6)) + centres[y], rng.standard_normal((20_000, 6)) + centres[labels]
    problem = design_of(Moments(classes=classes).from_block(X, y), "classification", 1, with_folds=False).problem
    fit = UnivariatePath(4, task="classification").fit(X, y)
    coef, intercept = discriminant(problem, fit.path_.model, n_classes)
    moments = Moments(classes=classes).from_block(new, labels)
    expected = expected_wrong(coef, intercept, fit.path_.model.support, moments)
    assert expected == pytest.approx(1 - fit.score(new, labels), abs=0.01)
    # A class that the fit has not seen is never right.
    intercept = np.where(np.arange(n_classes) == 0, -np.inf, intercept) if n_classes > 2 else np.array([np.inf])
    never = expected_wrong(coef, intercept, fit.path_.model.support, moments)
    assert (
        never > max(expected, (labels == 0).mean()) if n_classes > 2 else never == pytest.approx((labels == 0).mean())
    )


@pytest.mark.usefixtures("short_paths")
@pytest.mark.filterwarnings("ignore:groups .*folds")
def test_names_of_classes_do_not_matter_where_all_rows_of_one_are_in_one_fold() -> None:
    X = rows(300)
    rare = X[:, 1] + 0.3 * X[:, 0] > 1.2
    groups = np.where(rare, 0, 1 + np.arange(300) % 9)
    first, last = (TargetAutoSelector().fit(X, np.where(rare, name, "m"), groups=groups) for name in ("a", "z"))
    assert first.errors_ == pytest.approx(last.errors_)
    assert (first.method_, first.support_.tolist()) == (last.method_, last.support_.tolist())
    # Without its rows no model predicts the class.
    assert min(first.errors_.values()) >= rare.mean() * (1 - 1e-9)


@pytest.mark.usefixtures("short_paths")
@pytest.mark.parametrize("spoilt", [{"lasso"}, {"lasso", "univariate", "mrmr"}])
def test_errors_that_are_not_finite_do_not_win(spoilt: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    held_out = PathSelector._held_out_wrong

    def some(selector: Any, *held: Any) -> float:
        return float("nan") if selector.method in spoilt else held_out(selector, *held)

    monkeypatch.setattr(PathSelector, "_held_out_wrong", some)
    X = rows(300, 501)
    with pytest.warns(UserWarning, match="(lasso|univariate|mrmr) is not compared"):
        fit = TargetAutoSelector().fit(X, X[:, 1] > 0)
    assert set(fit.errors_) == {"lasso", "univariate", "mrmr"} - spoilt
    assert fit.method_ in (fit.errors_ or {"lasso"})
    assert "nan" not in fit.selection_.diagnostics["choice"]


@pytest.mark.parametrize(("is_numbers", "says"), [(True, "by the mean"), (False, "by the most frequent class")])
def test_a_model_without_columns_is_called_so(is_numbers: bool, says: str) -> None:
    noise = np.random.default_rng(5).standard_normal(1100)
    fit = TargetAutoSelector(cv_rule="1se").fit(rows(1100, 3), noise if is_numbers else noise > 0.8)
    assert not fit.selection_.support.size
    assert f"% with no column, {says}" in fit.selection_.diagnostics["choice"]


def test_ranked_paths_go_by_f_statistics_and_by_relevance_without_redundancy() -> None:
    X, y = make_classification(300, 12, n_informative=4, n_redundant=4, n_classes=3, random_state=3)
    for task, target, f in (("classification", y, f_classif), ("regression", X @ np.arange(12.0), f_regression)):
        expected = np.argsort(-f(X, target)[0], kind="stable")
        for size in (1, 4, 7):
            fit = UnivariatePath(size, task=task).fit(X, target)
            assert fit.support_.tolist() == sorted(expected[:size])
            best = MRMRPath(size, task=task).fit(X, target)
            assert best.support_.tolist() == MRMRSelector(size, task=task).fit(X, target).support_.tolist()


def test_second_levels_of_columns_do_not_make_a_model_longer_by_rounding() -> None:
    rng = np.random.default_rng(0)
    level = (rng.random((300, 6)) < np.linspace(0.2, 0.7, 6)).astype(float)
    X, y = (
        np.column_stack([level, 1.0 - level]),
        level @ [1.0, -1.0, 2.0, 1.5, 0.5, -0.7] + 0.1 * rng.standard_normal(300),
    )
    orders = [np.arange(12), *(rng.permutation(12) for _ in range(5))]
    assert len({MRMRPath(cv=5).fit(X[:, order], y).support_.size for order in orders}) == 1


@pytest.mark.slow
def test_groups_streams_and_merged_files() -> None:
    X, names = rows(300), np.array(["no", "yes"])
    y = names[(X[:, 1] + X[:, 3] > 0).astype(int)]
    whole = TargetAutoSelector().fit(X, y)
    stream = TargetAutoSelector().partial_fit(X[:100], y[:100], classes=["no", "yes"]).partial_fit(X[100:], y[100:])
    merged = TargetAutoSelector().fit_summary(whole.summary_)
    # A stream does not know that its rows are few.
    in_folds = TargetAutoSelector().fit_summary(of_five(whole.summary_))
    for other, same in ((stream, in_folds), (merged, whole)):
        assert other.support_.tolist() == same.support_.tolist()
        # The bins of a stream are those of its first rows.
        assert other.errors_.pop("mutual-information") == pytest.approx(same.errors_["mutual-information"], rel=0.02)
        assert other.errors_ == pytest.approx({name: same.errors_[name] for name in other.errors_})
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
        "select": {"method": "auto", "n_features": "auto", "normalize": False},  # as in the file of `init`
        "execution": {"cluster": "serial"},
        "output": {"dir": str(tmp_path / "out"), "report": False},
    }
    sks.run(job)
    selection = json.loads((tmp_path / "out" / "selection.json").read_text())
    assert (selection["method"], selection["support"]) == ("auto-target", [0, 4, 5])
    assert "lasso of degree 2 predicts best" in selection["diagnostics"]["choice"]
    assert [4, 5] in json.loads((tmp_path / "out" / "model.json").read_text())["terms"]
