"""Classification from moments: linear discriminant analysis of the selected columns, whatever the labels are."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.special import log_softmax
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import roc_auc_score
from tests.estimator_checks import SHORT, run_checks

import sketchselect as sks
from sketchselect.errors import BadParameter, Incompatible, SketchSelectError
from sketchselect.readers import open_matrix, open_vector
from sketchselect.selectors import METHODS
from sketchselect.selectors.supervised import target

CLASSIFIERS = [
    METHODS[name](task="classification", **SHORT.get(name, {}))
    for name in ("thresholded-ols", "annealing", "lasso", "elastic-net", "mcp", "scad")
]


@pytest.mark.share(1, 10)
# The suite itself provokes warnings of scikit-learn and pandas that are not ours to mend.
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("part", range(25))
def test_scikit_learn_contract(part):
    run_checks(CLASSIFIERS, part, 25)


def groups(n=600, p=15, n_classes=2, seed=0):
    """Correlated columns in different units; the classes are unequally frequent and differ in columns 2, 5 and 9."""
    rng = np.random.default_rng(seed)
    code = rng.choice(n_classes, n, p=np.arange(1, n_classes + 1) / np.arange(1, n_classes + 1).sum())
    centres = np.zeros((n_classes, p))
    centres[:, [2, 5, 9]] = 1.5 * rng.standard_normal((n_classes, 3))
    mixing = np.eye(p) + 0.2 * rng.standard_normal((p, p))
    X = (centres[code] + rng.standard_normal((n, p))) @ mixing * np.geomspace(0.1, 10, p) + 20.0
    return X, code


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("k", [3, 8, 15])
@pytest.mark.statement("Sun 2019, Section 3.6")
def test_selected_models_are_linear_discriminant_analysis_of_their_columns(n_classes, k):
    X, code = groups(n_classes=n_classes)
    labels = np.array(["ant", "bee", "cat", "dog", "elk"])[code]
    ours = sks.ThresholdedOLS(k, task="classification").fit(X, labels)
    s = ours.support_
    lda = LinearDiscriminantAnalysis(solver="lsqr").fit(X[:, s], labels)
    assert ours.classes_.tolist() == lda.classes_.tolist()
    if n_classes == 2:
        assert ours.coef_.shape == (1, 15)
        assert np.allclose(ours.decision_function(X), lda.decision_function(X[:, s]), rtol=1e-7, atol=1e-8)
    else:
        assert ours.coef_.shape == (n_classes, 15)
        assert np.allclose(
            log_softmax(ours.decision_function(X), axis=1), lda.predict_log_proba(X[:, s]), rtol=1e-6, atol=1e-7
        )
    assert np.array_equal(ours.predict(X), lda.predict(X[:, s]))
    assert ours.score(X, labels) == lda.score(X[:, s], labels)


@pytest.mark.parametrize("method", [sks.LassoPath, sks.MCPPath])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_shrunken_models_have_the_discriminant_of_their_scores(method, n_classes):
    X, code = groups(n_classes=n_classes)
    alpha = 0.1 if n_classes == 2 else 0.05
    ours = method(alpha=alpha, task="classification").fit(X, code)
    targets = 2.0 * code - 1 if n_classes == 2 else np.eye(n_classes)[code]
    scores = method(alpha=alpha).fit(X, targets).predict(X).reshape(len(X), -1)
    lda = LinearDiscriminantAnalysis(solver="lsqr").fit(scores, code)
    if n_classes == 2:
        assert np.allclose(ours.decision_function(X), lda.decision_function(scores), rtol=1e-6, atol=1e-7)
        assert roc_auc_score(code, ours.decision_function(X)) == pytest.approx(roc_auc_score(code, scores))
    else:
        expected = lda.predict_log_proba(scores)
        assert np.allclose(log_softmax(ours.decision_function(X), axis=1), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.share(4)
@pytest.mark.parametrize(
    "labels", [["no", "yes"], [0, 1], [-3, 8], [False, True], [1.0, 2.0], ["a", "b", "ccc"], [10, 20, 30, 40]]
)
def test_labels_of_every_kind_survive_saving(labels, tmp_path):
    X, code = groups(n_classes=len(labels))
    y = np.array(labels)[code]
    direct = sks.LassoPath(task="classification").fit(X, y)
    sks.save(direct.summary_, tmp_path / "moments.sks")
    again = sks.LassoPath(task="classification").fit_summary(sks.load(tmp_path / "moments.sks"))
    assert again.classes_.tolist() == direct.classes_.tolist() == sorted(labels)
    assert again.classes_.dtype == np.unique(y).dtype
    assert np.array_equal(again.predict(X), direct.predict(X))
    assert direct.score(X, y) > 1.2 / len(labels)


def test_targets_by_path_and_labels_of_every_container(tmp_path):
    import zarr

    X, code = groups()
    names = np.array(["no", "yes"])[code]
    expected = sks.ThresholdedOLS(4, task="classification").fit(X, names)
    np.save(tmp_path / "y.npy", names)
    np.save(tmp_path / "x.npy", X)
    zarr.create_array(str(tmp_path / "y.zarr"), shape=code.shape, chunks=(100,), dtype="int64")[:] = code
    for y in (str(tmp_path / "y.npy"), names.astype(object), pd.Series(names), names.tolist()):
        got = sks.ThresholdedOLS(4, task="classification").fit(str(tmp_path / "x.npy"), y)
        assert got.classes_.tolist() == ["no", "yes"]
        assert np.allclose(got.coef_, expected.coef_)
        assert got.score(str(tmp_path / "x.npy"), y) == expected.score(X, names)
    got = sks.ThresholdedOLS(4, task="classification").fit(str(tmp_path / "x.npy"), str(tmp_path / "y.zarr"))
    assert got.classes_.tolist() == [0, 1]
    assert np.allclose(got.coef_, expected.coef_)


def test_labels_of_a_later_run_that_are_shorter_do_not_shorten_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(target, "_RUN", 40)
    labels = np.array(["longer", "long"] * 20 + ["a"] * 10)
    pq.write_table(pa.table({"x": np.arange(50.0), "y": labels}), tmp_path / "rows.parquet", row_group_size=40)
    vector = open_vector("y", 50, matrix=open_matrix(tmp_path / "rows.parquet", vectors=("y",)))
    assert target.rows_of_classes(vector) == {"a": 10, "long": 20, "longer": 20}


def test_streams_of_classes():
    X, code = groups(n_classes=3)
    order = np.argsort(code, kind="stable")
    X, code = X[order], code[order]
    whole = sks.MCPPath(alpha=0.05, task="classification").fit(X, code)
    stream = sks.MCPPath(alpha=0.05, task="classification")
    for a in range(0, 600, 100):
        stream.partial_fit(X[a : a + 100], code[a : a + 100], classes=[0, 1, 2])
        # The first batches hold one class alone.
        assert np.isfinite(stream.coef_).all()
        assert set(stream.predict(X[: a + 100])) <= set(code[: a + 100])
    assert np.allclose(stream.coef_, whole.coef_, rtol=1e-6, atol=1e-9)
    with pytest.raises(BadParameter, match=r"only one class.*partial_fit\(X, y, classes=...\)"):
        sks.MCPPath(task="classification").partial_fit(X[:50], code[:50])
    before = stream.coef_.copy()
    with pytest.raises(SketchSelectError, match=r"row 603 is none of the 3 classes \(1 such row in its block\)"):
        stream.partial_fit(X[:5], np.array([0, 1, 2, 7, 0]))
    assert np.array_equal(stream.coef_, before)
    assert stream.summary_.n_rows == 600


def test_classes_that_are_told_apart_without_error_have_finite_odds():
    rng = np.random.default_rng(0)
    code = np.repeat([0, 1, 2], 40)
    X = np.c_[code == 0, code == 1, rng.standard_normal(120)] * 1.0
    for labels in (code, np.minimum(code, 1)):
        chosen = sks.ThresholdedOLS(2, task="classification").fit(X, labels)
        assert np.isfinite(chosen.decision_function(X)).all()
        assert chosen.score(X, labels) == 1.0


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros(600, int), "only one class"),
        (np.linspace(0, 1, 600), "continuous"),
        (np.where(np.arange(600) == 17, np.nan, 1.0), "first at row 17"),
        (np.zeros((600, 2)), "one label per row"),
        (np.zeros(599), "599"),
        (np.arange(2000) * 1.0, "2000"),
        (None, "requires y"),
    ],
)
def test_bad_labels_are_one_readable_line(y, message):
    with pytest.raises(SketchSelectError, match=message) as caught:
        sks.LassoPath(task="classification").fit(groups()[0], y)
    assert "\n" not in str(caught.value)


def test_numbers_and_classes_are_not_mixed_up():
    X, code = groups()
    numbers = sks.summarize(X, sks.Moments(), y=code)
    classes = sks.summarize(X, sks.Moments(classes=[0, 1]), y=code)
    with pytest.raises(Incompatible, match=r"Moments\(classes="):
        sks.LassoPath(task="classification").fit_summary(numbers)
    with pytest.raises(Incompatible, match="classification"):
        sks.LassoPath().fit_summary(classes)
    with pytest.raises(BadParameter, match='task="classification"'):
        sks.LassoPath().fit(X, np.array(["a", "b"])[code])
    with pytest.raises(AttributeError, match="decision_function"):
        sks.LassoPath().fit_summary(numbers).decision_function(X)


@pytest.mark.parametrize("method", ["lasso", "elastic-net", "annealing"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_misclassification_rate_is_that_of_normal_classes(method, n_classes):
    rng = np.random.default_rng(5)
    y = rng.integers(0, n_classes, 3000)
    X = rng.standard_normal((3000, 6))
    X[:, 0] += 1.5 * (y == 0)
    X[:, 1] += 2.0 * (y == 1)
    fit = METHODS[method](task="classification").fit(X[:1500], y[:1500])
    rates = fit.selection_.diagnostics["misclassification"]
    # Counted on rows that no model has seen: 4 standard errors of 1,500 rows.
    wrong = (fit.predict(X[1500:]) != y[1500:]).mean()
    assert rates["held_out"] == pytest.approx(wrong, abs=4 * np.sqrt(wrong * (1 - wrong) / 1500))
    assert rates["fitted"] <= rates["held_out"] < rates["fitted"] + 0.05
    few = METHODS[method](n_features_to_select=2, task="classification").fit(X[:1500], y[:1500])
    assert few.selection_.diagnostics["misclassification"]["held_out"] is None
    numbers = METHODS[method](task="regression").fit(X[:200], y[:200] * 1.0)
    assert "misclassification" not in numbers.selection_.diagnostics
