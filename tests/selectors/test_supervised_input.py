"""Awkward and wrong input of supervised selectors: a documented answer, or one line that names what is wrong."""

import warnings

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.selectors.conftest import linear

import sketchselect as sks
from sketchselect.errors import BadParameter, Incompatible, NotFinite, SketchSelectError
from sketchselect.selectors import LogisticPath, UnivariateSelector

ALL = [
    sks.ThresholdedOLS(),
    sks.FeatureSelectionAnnealing(),
    sks.LassoPath(),
    sks.ElasticNetPath(),
    sks.MCPPath(),
    sks.SCADPath(),
]
every_method = pytest.mark.parametrize("method", ALL, ids=lambda m: m.method)


@every_method
def test_a_constant_target_selects_nothing_and_says_so(method):
    X, _ = linear(60, 8)
    for y in (np.full(60, 3.7), np.zeros(60), np.full((60, 2), 1e9)):
        with pytest.warns(UserWarning, match="the target is constant"):
            method.fit(X, y)
        assert method.support_.size == 0
        assert not np.any(method.coef_)
        assert np.allclose(method.predict(X), y)


@every_method
@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
def test_constant_columns_take_no_part_whatever_their_size(method, scale):
    X, y = linear(120, 8)
    X = np.insert(X, [0, 4, 8], [1e9, 0.0, 0.1], axis=1) * scale
    method = clone(method).set_params(n_features_to_select=11)
    with pytest.warns(UserWarning, match="only 8 of 11 columns vary: at most these are selected, not the 11 of"):
        method.fit(X, y)
    assert not set(method.support_.tolist()) & {0, 5, 10}
    assert method.selection_.diagnostics["n_selected"] == method.support_.size
    assert not method.scores_[[0, 5, 10]].any()
    assert method.score(X, y) > 0.8


@every_method
def test_of_equal_columns_the_first_is_taken(method):
    X, y = linear(150, 9)
    doubled = np.hstack([X[:, :1], X, X * 5.0 - 3.0])  # column 0 twice more, all others once more
    alone = clone(method).set_params(n_features_to_select=3).fit(X, y)
    got = clone(method).set_params(n_features_to_select=3).fit(doubled, y)
    again = clone(method).set_params(n_features_to_select=3).fit(doubled, y)
    assert np.array_equal(got.support_, again.support_)
    if method.method in ("lasso", "mcp", "scad"):
        assert (got.support_ <= 9).all()
        assert 1 not in got.support_
    else:  # equal columns share the coefficient, so that both may be taken; the first one then is
        first = np.r_[0, 0, np.arange(2, 10), 0, np.arange(2, 10)]
        assert set(first[got.support_]) <= set(got.support_.tolist())
    if method.method in ("lasso", "mcp"):
        assert np.unique(np.maximum(got.support_ - 1, 0)).tolist() == alone.support_.tolist()
    assert np.isfinite(got.coef_).all()


@every_method
def test_more_columns_than_rows(method):
    X, y = linear(40, 90, noise=0.1)
    got = clone(method).set_params(n_features_to_select=8)
    got.set_params(**{"refit": True} if "refit" in got.get_params() else {}).fit(X, y)
    assert 1 <= got.support_.size <= 8
    assert np.isfinite(got.predict(X)).all()
    if method.method != "thresholded-ols":
        assert got.score(X, y) > 0.8
    chosen = clone(method).set_params(criterion="ebic").fit(X, y)
    assert chosen.support_.size < 40


def test_a_ridge_makes_thresholding_rank_well_with_few_rows():
    X, y = linear(60, 90, noise=0.1)
    got = sks.ThresholdedOLS(12, ridge=0.3).fit(X, y)
    correlation = np.corrcoef(X.T)
    s = StandardScaler().fit_transform(X).T @ (y - y.mean()) / 60
    expected = np.abs(np.linalg.solve(correlation + 0.3 * np.eye(90), s))
    assert np.allclose(got.scores_, expected, rtol=1e-8)


@every_method
@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros(59), "59"),
        (np.where(np.arange(60) == 7, np.nan, 1.0), "first at row 7"),
        (np.where(np.arange(60) == 9, np.inf, 1.0), "first at row 9"),
        (np.array(["a", "b"] * 30), "classification"),
        (np.zeros((60, 2, 2)), "3 dimensions"),
        (None, "requires y"),
        ("/nowhere/y.npy", "/nowhere/y.npy"),
    ],
)
def test_a_bad_target_is_one_readable_line(method, y, message):
    with pytest.raises(SketchSelectError, match=message) as caught:
        method.fit(linear(60, 8)[0], y)
    assert "\n" not in str(caught.value)


@every_method
def test_summaries_that_do_not_fit_are_refused(method):
    X, y = linear(60, 8)
    with pytest.raises(Incompatible, match="has no target"):
        method.fit_summary(sks.Moments().from_block(X))
    with pytest.raises(Incompatible, match="moments"):
        method.fit_summary(sks.ColumnStats().from_block(X))
    with pytest.raises(Incompatible, match="folds of column-stats"):
        method.fit_summary(sks.Folds(sks.ColumnStats(), 3).from_block(X))
    with pytest.raises(Incompatible, match="degree 1"):
        clone(method).set_params(degree=2).fit_summary(sks.Moments().from_block(X, y))


def test_missing_values_are_left_out_pair_by_pair():
    X, y = linear(500, 8, noise=0.3)
    holes = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    matrix = sks.open_matrix(holes, nonfinite="missing")
    chosen = sks.MCPPath(n_features_to_select=3, missing="pairwise").fit(matrix, y)
    whole = sks.MCPPath(n_features_to_select=3).fit(X, y)
    assert np.array_equal(chosen.support_, whole.support_)
    assert np.allclose(chosen.coef_ * X.std(axis=0), whole.coef_ * X.std(axis=0), atol=0.2)
    with pytest.raises(SketchSelectError, match=r"missing|NaN"):
        sks.MCPPath().fit(matrix, y)


def test_pairs_that_leave_no_residual_are_warned_of():
    """The covariance with a column is that of other rows than the target's variance, and may be too large for it."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4))
    y = 3 * X[:, 0] + 0.1 * rng.standard_normal(300)
    holes = X.copy()
    holes[np.abs(y) < 4, 0] = np.nan  # the rows that say most are left
    holes[:, 1:][rng.random((300, 3)) < 0.3] = np.nan
    with pytest.warns(UserWarning, match="leave no residual to measure: R2 and criteria"):
        sks.ThresholdedOLS(n_features_to_select=3, missing="pairwise").fit(holes, y)


def test_missing_says_how_nan_are_read_wherever_they_come_from(tmp_path):
    X, y = linear(300, 8, noise=0.3)
    holes = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    np.save(tmp_path / "x.npy", holes)
    expected = sks.LassoPath(missing="pairwise").fit(sks.open_matrix(holes, nonfinite="missing"), y)
    for source in (holes, tmp_path / "x.npy"):
        got = sks.LassoPath(missing="pairwise").fit(source, y)
        assert np.array_equal(got.coef_, expected.coef_)
        assert got.transform(source).shape == (300, expected.support_.size)
        with pytest.raises(SketchSelectError, match="NaN"):
            got.predict(source)
    holes[:, 3] = np.nan
    with pytest.raises(BadParameter, match="column 3 has too few values"):
        sks.LassoPath(missing="pairwise").fit(holes, y)


@every_method
def test_columns_that_do_not_vary_are_reported(method):
    X, y = linear(60, 8)
    for still in (np.full(X.shape, 1.1), X * 1e-160):
        with pytest.warns(UserWarning, match="no column varies"):
            got = clone(method).fit(still, y)
        assert got.support_.size == 0
        assert np.allclose(got.predict(still), y.mean())


@every_method
def test_a_constant_target_has_nothing_to_validate(method):
    X, _ = linear(60, 8)
    with pytest.warns(UserWarning, match="the target is constant"):
        got = clone(method).set_params(cv=3).fit(X, np.full(60, 3.7))
    assert got.support_.size == 0
    assert np.allclose(got.path_.cv_errors, 0.0)


@pytest.mark.share(4)
@pytest.mark.parametrize("choice", [{"criterion": "ebic"}, {"cv": 4}, {"alpha": 0.05}, {"adaptive": True}], ids=str)
@pytest.mark.parametrize("method", [sks.LassoPath(), sks.MCPPath(), sks.SCADPath()], ids=lambda m: m.method)
def test_copies_of_columns_change_no_model(method, choice):
    X, y = linear(200, 8)
    alone = clone(method).set_params(**choice).fit(X, y)
    copied = np.hstack([X, -2.0 * X, X + 3.0])
    got = clone(method).set_params(**choice).fit(copied, y)
    assert np.array_equal(got.support_, alone.support_)
    assert np.allclose(got.coef_[:8], alone.coef_, atol=1e-7)
    parts = clone(method).set_params(**choice).partial_fit(copied[:70], y[:70]).partial_fit(copied[70:], y[70:])
    assert np.array_equal(parts.support_, got.support_)


def test_a_column_of_objects_that_are_numbers_is_a_target():
    X, y = linear(60, 5)
    expected = sks.LassoPath().fit(X, y)
    assert np.array_equal(sks.LassoPath().fit(X, pd.Series(y, dtype=object)).coef_, expected.coef_)
    with pytest.raises(SketchSelectError, match="neither all numbers nor all text"):
        sks.LassoPath().fit(X, pd.Series([*y[:-1].tolist(), "a"], dtype=object))


@pytest.mark.parametrize("kind", ["frame", "column", "parquet", "csv", "h5ad"])
def test_missing_labels_are_counted_and_the_first_is_named(kind, tmp_path):
    """Whatever holds them: nothing in a file or a column may become a class of its own."""
    X, y = linear(60, 5)
    frame = pd.DataFrame(X, columns=list("abcde"))
    ward = pd.Series(np.where(y > 0, "north", "south"))
    ward[[7, 20]] = None
    source, target = frame, ward
    if kind == "column":
        source, target = frame.assign(ward=ward), "ward"
    elif kind == "parquet":
        frame.assign(ward=ward).to_parquet(source := tmp_path / "t.parquet")
        target = "ward"
    elif kind == "csv":
        frame.assign(ward=ward).to_csv(tmp_path / "t.csv")
        with pytest.warns(UserWarning, match="columns are text"):
            source = sks.readers.convert(tmp_path / "t.csv", tmp_path / "t.zarr")
        target = "obs/ward"
    elif kind == "h5ad":
        anndata = pytest.importorskip("anndata")
        labels = pd.DataFrame({"ward": ward.astype("category").to_numpy()}, frame.index.astype(str))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            anndata.AnnData(X, obs=labels.astype("category")).write_h5ad(source := tmp_path / "t.h5ad")
        target = "obs/ward"
    with pytest.raises(SketchSelectError, match="2 entries are missing, the first at row 7") as raised:
        LogisticPath().fit(source, target)
    assert "\n" not in str(raised.value)


def test_missing_numbers_in_a_parquet_file_are_refused_as_nan(tmp_path):
    X, y = linear(60, 5)
    y[[7, 20]] = np.nan
    pd.DataFrame(X, columns=list("abcde")).assign(y=y).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(NotFinite, match="2 NaN and 0 infinite, the first at row 7"):
        sks.LassoPath().fit(tmp_path / "t.parquet", "y")


def test_a_path_is_no_summary_but_the_cure_is_named():
    with pytest.raises(Incompatible, match=r"sketchselect\.load"):
        sks.LassoPath().fit_summary("moments.sks")


def test_prepared_rows_are_prepared_again_for_predictions():
    X, y = linear(200, 8)
    summary = sks.summarize(X, sks.Moments(), y=y, prepare=["l2"])
    chosen = sks.ThresholdedOLS(4).fit_summary(summary)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    assert np.allclose(chosen.predict(X), unit @ chosen.coef_ + chosen.intercept_)


def test_pipelines_and_data_frames():
    X, y = linear(200, 6)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    pipe = make_pipeline(StandardScaler().set_output(transform="pandas"), sks.LassoPath(n_features_to_select=2))
    assert pipe.fit(frame, pd.Series(y)).score(frame, y) > 0.5
    model = sks.ThresholdedOLS(2, degree=2).fit(frame, pd.Series(y))
    assert all(set(name) <= set("abcdef ^2") for name in model.get_feature_names_out())
    assert model.selection_.feature_names == tuple("abcdef")


def test_a_target_left_among_the_features_is_warned_of():
    X, y = linear(200, 6)
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(price=y)
    lasso = sks.LassoPath(n_features_to_select=2)
    for target in (frame["price"], frame[["price"]], np.log1p(frame["price"] - y.min())):
        with pytest.warns(
            UserWarning, match=r"column 'price' has the target's name and is a feature; .* fit\(X, 'price'\)"
        ):
            lasso.fit(frame, target)
    lasso.fit(frame, "price")  # no feature then, and no warning
    lasso.fit(frame.drop(columns="price"), frame["price"])
    assert "price" not in lasso.feature_names_in_


def test_a_target_that_no_column_explains_has_the_empty_model_also_if_adaptive():
    X = np.array([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]] * 5)
    y = X[:, 0] * X[:, 1]
    for method in (sks.LassoPath(adaptive=True), sks.MCPPath(adaptive=True, n_features_to_select=1)):
        assert method.fit(X, y).support_.size == 0


def test_a_dask_array_of_another_width_is_refused():
    X, y = linear(60, 5)
    method = sks.LassoPath(n_features_to_select=2).fit(X, y)
    assert np.array_equal(method.transform(da.from_array(X)).compute(scheduler="synchronous"), X[:, method.support_])
    with pytest.raises(BadParameter, match="10 features"):
        method.transform(da.from_array(np.hstack([X, X])))


def test_as_many_columns_as_rows_without_a_penalty_are_warned_of():
    X, y = linear(12, 30)
    with pytest.warns(UserWarning, match="15 columns of 12 rows"):
        sks.ThresholdedOLS(15).fit(X, y)
    with pytest.warns(UserWarning, match="fits any target"):
        sks.LassoPath(n_features_to_select=11, refit=True).fit(X, y)
    sks.LassoPath(n_features_to_select=11).fit(X, y)
    sks.ThresholdedOLS(4).fit(X, y)


@every_method
def test_weights_must_be_large_enough_to_square(method):
    X, y = linear(60, 5)
    with pytest.raises(BadParameter, match="so small that their squares are zero"):
        clone(method).fit(X, y, sample_weight=np.full(60, 1e-300))


def test_numbers_of_too_many_values_are_no_classes() -> None:
    says = r"target array: Unknown label type: it has more than 1000 distinct values, and continuous numbers are no"
    with pytest.raises(BadParameter, match=says):
        sks.LassoPath(task="classification").fit(np.ones((1200, 2)), np.arange(1200) + 0.5)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_text_of_too_many_values_is_no_target(task) -> None:
    names = np.array([f"house {i}" for i in range(1200)])
    with pytest.raises(BadParameter, match=r"target array.*text with more than 1000 distinct values.*another target"):
        sks.LassoPath(task=task).fit(np.ones((1200, 2)), names)
    with pytest.raises(BadParameter, match=r"neither numbers nor classes"):
        sks.selectors.TargetAutoSelector().fit(np.ones((1200, 2)), names)


@pytest.mark.parametrize("task", ["auto", "classification"])
def test_codes_of_which_few_have_letters_are_classes(task):
    """Of chromosomes 1 to 22, X and Y few are text, and they are more than 20."""
    rng = np.random.default_rng(0)
    codes = np.array([*map(str, range(1, 23)), "X", "Y"])
    y = codes[np.arange(480) % 24]
    selector = UnivariateSelector(task=task).fit(rng.normal(size=(480, 4)), y)
    assert selector.target_task == "classification"
    y = np.where(np.arange(480) == 7, "7b", np.arange(480).astype(str))
    with pytest.raises(BadParameter, match=r"'7b' of row 7 is no number \(1 of 480 values\)"):
        UnivariateSelector(task=task).fit(rng.normal(size=(480, 4)), y)
