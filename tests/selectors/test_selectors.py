"""Selectors: scikit-learn's contract, oracles, streaming, and agreement over every kind of source."""

import warnings
from contextlib import nullcontext
from functools import partial

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from tests.estimator_checks import SHORT, of_size, run_checks, target_for

import sketchselect as sks
from sketchselect import selectors
from sketchselect.errors import BadParameter, EmptyInput, Incompatible, NotFinite
from sketchselect.selectors import METHODS, Selection, TargetAutoSelector, make, rank
from sketchselect.selectors.sketched import ridge_weights

from .conftest import short_paths_within

# What a method needs on a table of few columns.
SMALL: dict[str, dict[str, object]] = {"hvg": {"trend": "quadratic"}}


@pytest.mark.share(3, 22)
# The suite itself provokes warnings of scikit-learn and pandas that are not ours to mend.
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("part", range(100))
def test_scikit_learn_contract(part):
    def surroundings(estimator):
        # A check of the others compares their defaults with the signature.
        return short_paths_within() if isinstance(estimator, TargetAutoSelector) else nullcontext()

    estimators = [cls(**SMALL.get(name, {}), **SHORT.get(name, {})) for name, cls in METHODS.items()]
    run_checks(estimators, part, 100, surroundings)


def mixture(n=600, d=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * 0.3 + 1
    X[:, [4, 9, 21]] += 6 * rng.standard_normal((n, 3))
    return X


def fsds_oracle(X, k, alpha, combine):
    """Huang 2015, Algorithm 1, by an exact SVD."""
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    _, s, vt = np.linalg.svd(X, full_matrices=False)
    ridge = {"auto": s[k - 1] ** 2, "paper": 8 * s[k - 1]}.get(alpha, alpha)
    W = np.abs(vt[:k] * (s[:k] / (s[:k] ** 2 + ridge))[:, None])
    return W.max(axis=0) if combine == "max" else np.sqrt((W**2).sum(axis=0))


@pytest.mark.parametrize("alpha", ["auto", "paper", 0.37])
@pytest.mark.parametrize("combine", ["max", "l2"])
def test_sketched_ridge_equals_the_offline_method_when_nothing_is_shrunk(alpha, combine):
    X = mixture()
    ours = sks.SketchedRidgeSelector(7, n_components=4, sketch_size=20, alpha=alpha, combine=combine).fit(X)
    expected = fsds_oracle(X, 4, alpha, combine)
    assert np.allclose(ours.scores_, expected, rtol=1e-9)
    assert ours.support_.tolist() == sorted(np.argsort(-expected, kind="stable")[:7].tolist())


@pytest.mark.statement("Huang 2015, Lemma 3.3")
def test_ridge_weights_solve_the_ridge_regression_of_the_paper():
    rng = np.random.default_rng(3)
    B = rng.standard_normal((12, 30))
    u, s, vt = np.linalg.svd(B, full_matrices=False)
    k, alpha = 5, 2.5
    # Lemma 3.3: the weights are the solution of min ||B X - U_k||^2 + alpha ||X||^2.
    X = np.linalg.solve(B.T @ B + alpha * np.eye(30), B.T @ u[:, :k])
    scores, _ = ridge_weights(s**2, vt, k, alpha, "max")
    assert np.allclose(scores, np.abs(X).max(axis=1))


def test_a_former_name_of_a_parameter_is_taken_with_a_warning():
    X = mixture()
    l2 = sks.SketchedRidgeSelector(7, n_components=4, combine="l2").fit(X)
    for call in (sks.SketchedRidgeSelector, partial(make, "sketched-ridge")):
        with pytest.warns(FutureWarning, match="'score' is now called 'combine'"):
            former = call(n_features_to_select=7, n_components=4, score="l2")
        assert former.get_params() == l2.get_params()
        assert former.fit(X).scores_.tolist() == l2.scores_.tolist()
    with pytest.raises(TypeError, match="'score' is the former name of 'combine'"):
        sks.SketchedRidgeSelector(score="l2", combine="l2")
    assert not hasattr(l2, "score")


@pytest.mark.usefixtures("short_paths")
def test_weights_are_those_that_the_class_announces():
    X = np.rint(10 * np.abs(mixture(200, 30))) + 1.0
    y = X @ np.linspace(-1, 1, 30)
    for name, cls in METHODS.items():
        parameters = {"leverage": {"choice": "sampled"}}.get(name, {})
        chosen = of_size(name, 8, **SMALL.get(name, {}), **parameters).fit(X, target_for(name, y))
        assert (chosen.selection_.weights is not None) == cls.has_weights, name


def test_compensation_brings_the_scores_of_a_shrunk_sketch_closer_to_the_exact_ones():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((900, 12)) @ rng.standard_normal((12, 200)) + 0.5 * rng.standard_normal((900, 200))
    exact = fsds_oracle(X, 6, "auto", "max")
    errors = {}
    for compensate in (True, False):
        got = sks.SketchedRidgeSelector(20, n_components=6, sketch_size=13, compensate=compensate).fit(X)
        assert got.summary_.shrinkage > 0
        errors[compensate] = np.linalg.norm(got.scores_ - exact) / np.linalg.norm(exact)
    assert errors[True] < errors[False]


def test_no_angle_is_claimed_where_singular_values_are_equal():
    rng = np.random.default_rng(0)
    q, _ = np.linalg.qr(rng.standard_normal((60, 60)))
    for k in range(1, 6):
        chosen = sks.SketchedRidgeSelector(3, n_components=k, normalize=None).fit(q)
        assert chosen.selection_.diagnostics["subspace_angle"] is None
    clear = sks.SketchedRidgeSelector(3, n_components=3, normalize=None).fit(mixture())
    assert clear.selection_.diagnostics["subspace_angle"] < 1e-10


def test_auto_ridge_has_the_right_units():
    X = mixture()
    base = sks.SketchedRidgeSelector(10, 4, 20, normalize=None).fit(X)
    scaled = sks.SketchedRidgeSelector(10, 4, 20, normalize=None).fit(1024.0 * X)
    assert np.array_equal(rank(base.scores_), rank(scaled.scores_))


def test_ranks_put_nan_last_and_break_ties_by_the_lowest_index():
    assert rank(np.array([1.0, np.nan, 3.0, 1.0, 3.0, -np.inf])).tolist() == [2, 4, 0, 3, 5, 1]


@pytest.mark.usefixtures("short_paths")
@pytest.mark.filterwarnings("ignore:.*columns depend linearly")
def test_duplicated_zero_and_constant_columns():
    rng = np.random.default_rng(1)
    X = np.repeat(rng.standard_normal((90, 4)), 3, axis=1)
    X[:, 5] = 0
    for method, cls in METHODS.items():
        rows = np.rint(8 * np.abs(X)) if cls.needs_counts else X
        # The target is ignored by the methods without one.
        y = target_for(method, X @ np.arange(1.0, 13.0) + rng.standard_normal(90))
        chosen = of_size(method, 5, **SMALL.get(method, {})).fit(rows, y)
        assert chosen.scores_[5] == 0
        assert 5 not in chosen.support_
    V = sks.VarianceSelector(2).fit(np.c_[np.full(50, 0.1), rng.standard_normal(50) * 1e-9, np.full(50, 7.0)])
    assert V.support_.tolist() == [0, 1]
    assert V.scores_[0] == V.scores_[2] == 0


@pytest.mark.parametrize("method", METHODS)
def test_if_no_column_varies_selectors_refuse_and_models_select_none(method):
    cls = METHODS[method]
    X, y = np.full((60, 4), 3.0), target_for(method, np.arange(60.0))
    selector = of_size(method, 2, **SMALL.get(method, {}))
    if cls.fits_model:
        with pytest.warns(UserWarning, match="no column varies"):
            assert selector.fit(X, y).support_.size == 0
        return
    if getattr(selector, "about", "mean") == "zero":
        X = X - 3.0
    with pytest.raises(EmptyInput, match=r"^all( 4)? columns are (constant|zero).*: there is nothing to select$"):
        selector.fit(X, y)


def test_a_stream_may_begin_with_constant_columns():
    rng = np.random.default_rng(0)
    X = np.vstack([np.full((20, 5), 2.0), rng.standard_normal((50, 5)) * np.arange(1.0, 6.0)])
    stream = sks.VarianceSelector(2).partial_fit(X[:20]).partial_fit(X[20:])
    assert stream.support_.tolist() == sks.VarianceSelector(2).fit(X).support_.tolist() == [3, 4]


def test_variance_keeps_its_digits_far_from_zero():
    rng = np.random.default_rng(2)
    Z = rng.standard_normal((5000, 6)) * np.array([1, 1.01, 1.02, 1.03, 1.04, 1.05])
    X = 1e8 + Z
    assert np.allclose(
        sks.VarianceSelector(3).fit(X).scores_, X.astype(np.longdouble).var(axis=0).astype(float), rtol=1e-9
    )


def test_rounding_that_decides_is_said_where_variance_is_alone():
    X = np.random.default_rng(3).standard_normal((200, 6)) * [1, 2, 3, 4, 5, 0]
    for dtype in (np.float64, np.float32):
        with pytest.warns(UserWarning, match="same variance.*standardise"):
            sks.VarianceSelector(3).fit(X.astype(dtype), prepare=["standardise"])
    sks.VarianceSelector(5).fit(X, prepare=["standardise"])
    sks.VarianceSelector(3).fit(X)
    sks.AutoSelector(3, n_clusters=2, normalize=None).fit(X, prepare=["standardise"])
    sks.AutoSelector(3, n_clusters=2, normalize=None, methods=["variance"]).fit(X, prepare=["standardise"])
    sks.selection_curve(X, 2, sizes=[3], methods=["variance"], normalize=None, prepare=["standardise"])


@pytest.mark.filterwarnings("ignore:.*halves of the rows are empty")
@pytest.mark.usefixtures("short_paths")
@pytest.mark.parametrize(
    ("batch", "shape"),
    [
        pytest.param(1, (30, 24), marks=pytest.mark.slow),
        pytest.param(37, (600, 40), marks=pytest.mark.slow),
        (300, (600, 40)),
    ],
)
def test_partial_fit_at_any_batch_size(batch, shape):
    # All select anew after every batch, so single rows are few.
    X = mixture(*shape)
    y = X @ np.linspace(-1, 1, shape[1])
    for method, cls in METHODS.items():
        if cls.axis == "columns" or not hasattr(cls(), "partial_fit"):
            continue
        rows = np.rint(8 * np.abs(X)) if cls.needs_counts else X
        parameters = SMALL.get(method, {}) | SHORT.get(method, {})
        whole = of_size(method, 8, **parameters).fit(rows, y)
        stream = of_size(method, 8, **parameters)
        for start in range(0, len(X), batch):
            stream.partial_fit(rows[start : start + batch], y[start : start + batch])
        assert np.allclose(stream.scores_, whole.scores_, rtol=1e-9)
        assert stream.summary_.n_rows == len(X)


def test_fit_summary_needs_no_data_and_picks_by_kind():
    X = mixture()
    both = sks.summarize(X, {"a": sks.ColumnStats(), "b": sks.FrequentDirections(20)}, prepare=["l2"])
    ridge = sks.SketchedRidgeSelector(7, n_components=4).fit_summary(both)
    assert np.allclose(ridge.scores_, sks.SketchedRidgeSelector(7, n_components=4, sketch_size=20).fit(X).scores_)
    assert (
        sks.VarianceSelector(7).fit_summary(both["b"]).support_.tolist()
        == sks.VarianceSelector(7, normalize="l2").fit(X).support_.tolist()
    )
    with pytest.raises(Incompatible, match="frequent-directions"):
        sks.SketchedRidgeSelector(7).fit_summary(both["a"])


def test_a_summary_says_how_its_rows_were_normalised():
    X = mixture()
    raw = sks.summarize(X, sks.FrequentDirections(20))
    chosen = sks.SketchedRidgeSelector(7, n_components=4).fit_summary(raw)
    assert chosen.selection_.parameters["normalize"] is None
    with pytest.raises(Incompatible, match="l2"):
        chosen.partial_fit(X)
    assert chosen.set_params(normalize=None).partial_fit(X).summary_.n_rows == 2 * len(X)


def test_names_of_an_earlier_fit_are_forgotten(tmp_path):
    frame = pd.DataFrame(mixture(d=30), columns=[f"c{j}" for j in range(30)])
    np.save(tmp_path / "x.npy", mixture())
    for refit in (
        lambda s: s.fit(str(tmp_path / "x.npy")),
        lambda s: s.fit_summary(sks.ColumnStats().from_block(mixture())),
    ):
        chosen = refit(sks.VarianceSelector(2).fit(frame))
        assert not hasattr(chosen, "feature_names_in_")
        assert chosen.selection_.feature_names is None


def test_rows_of_zeros_do_not_disturb():
    X = mixture()
    Z = np.insert(X, [0, 5, 5, 600], 0.0, axis=0)
    a, b = sks.SketchedRidgeSelector(7, 4, 20).fit(X), sks.SketchedRidgeSelector(7, 4, 20).fit(Z)
    assert np.allclose(a.scores_, b.scores_)


def test_a_single_row_is_refused_and_a_missing_value_of_new_rows_is_named():
    X = mixture()
    with pytest.raises(EmptyInput, match="n_samples = 1, and one row does not differ"):
        selectors.VarianceSelector(2).fit(X[:1])
    selector = selectors.VarianceSelector(2).fit(X)
    X[3, 5] = np.nan
    with pytest.raises(NotFinite, match="the first at row 3, column 5; leave such rows out, or fill"):
        selector.transform(X)
    X[:, 5] = np.nan
    with pytest.raises(NotFinite, match="the first at row 0, column 5; leave this column out"):
        selector.transform(X)


def test_pipelines_clone_and_data_frames():
    frame = pd.DataFrame(mixture(), columns=[f"c{j}" for j in range(40)])
    chosen = clone(sks.SketchedRidgeSelector(3, n_components=3)).set_output(transform="pandas").fit(frame)
    assert list(chosen.transform(frame).columns) == list(chosen.get_feature_names_out())
    assert chosen.selection_.feature_names == tuple(frame.columns)
    pipe = make_pipeline(FunctionTransformer(np.abs), sks.VarianceSelector(3)).fit(mixture())
    assert pipe.transform(mixture()).shape == (600, 3)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Counts of 150 rows and 18 columns and a target, and the same in memory, in files and lazily."""
    folder, rng = tmp_path_factory.mktemp("sources"), np.random.default_rng(4)
    X = rng.poisson(2.0, (150, 18)) + 9.0 * (rng.random((150, 18)) < 0.1)
    X[:, :3] += 6.0 * rng.integers(0, 3, (150, 1))
    y = X[:, 1] - X[:, 5] + rng.standard_normal(150)
    np.save(folder / "x.npy", X)
    np.save(folder / "y.npy", y)
    store = zarr.open_group(str(folder / "s.zarr"), mode="w")
    store.create_array("x", data=X, chunks=(64, 5))
    store.create_array("target", data=y, chunks=(64,))
    return {
        "arrays": (X, y),
        "Fortran order": (np.asfortranarray(X), y),
        "files": (str(folder / "x.npy"), str(folder / "y.npy")),
        "store": (str(folder / "s.zarr" / "x"), "target"),
        "Dask": (da.from_array(X, chunks=(40, 18)), da.from_array(y, chunks=50)),
        "CSR": (sp.csr_array(X), y.tolist()),
        "matrix": (sks.open_matrix(str(folder / "x.npy")), y),
    }


@pytest.mark.share(8)
@pytest.mark.filterwarnings("ignore:.*columns (was|were) sampled", "ignore:every one of the", "ignore:No features")
@pytest.mark.usefixtures("short_paths")
@pytest.mark.parametrize("method", METHODS)
def test_every_source_gives_the_same_selection(method, sources):
    y = target_for(method, sources["arrays"][1])
    selector = of_size(method, 5, **SMALL.get(method, {}), **SHORT.get(method, {}))
    expected = clone(selector).fit(sources["arrays"][0], y)
    for kind, (source, target) in sources.items():
        got = clone(selector).fit(source, target if METHODS[method].needs_target and y.dtype == float else y)
        assert got.support_.tolist() == expected.support_.tolist(), kind
        np.testing.assert_allclose(got.scores_, expected.scores_, rtol=1e-6, atol=1e-9, err_msg=kind)
        assert got.transform(source).shape == (150, expected.support_.size)
        if kind in ("arrays", "Fortran order", "files", "matrix"):
            assert got.scores_.tobytes() == expected.scores_.tobytes(), kind
        if expected.selection_.weights is not None:
            np.testing.assert_allclose(got.selection_.weights, expected.selection_.weights, rtol=1e-6, err_msg=kind)
        if METHODS[method].fits_model:
            np.testing.assert_allclose(got.coef_, expected.coef_, rtol=1e-6, atol=1e-9, err_msg=kind)
            np.testing.assert_allclose(got.predict(source), expected.predict(sources["arrays"][0]), rtol=1e-6)


# Samples and halves are of rows by index; the weights of knockoffs are inverse variances, leverage has its own.
OTHER_WEIGHTS = ("auto", "laplacian-score", "mcfs", "stability", "knockoffs", "online-leverage")


@pytest.mark.share(12)
@pytest.mark.filterwarnings("ignore:.*columns (was|were) sampled", "ignore:No features")
@pytest.mark.usefixtures("short_paths")
@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        *((m, {}) for m in METHODS if m not in OTHER_WEIGHTS),
        ("logistic", {"family": "poisson"}),
        ("univariate", {"score": "mutual-information", "bins": "counts"}),
    ],
)
def test_a_weight_is_a_number_of_rows(method, parameters, sources):
    X, y = sources["arrays"]
    y, counts = target_for(method, y) if not parameters else (X[:, 0] > 4).astype(int), np.arange(150) * 7 % 4
    selector = of_size(method, 5, **SMALL.get(method, {}), **SHORT.get(method, {}), **parameters)
    if method == "logistic":
        selector.set_params(tol=1e-10)
    elif "criterion" in selector.get_params():  # folds are of indices
        selector.set_params(criterion="bic")
    weighted = clone(selector).fit(X, y, sample_weight=counts)
    repeated = clone(selector).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    assert weighted.support_.tolist() == repeated.support_.tolist()
    for one in ("scores_", "weights_", "coef_", "log_pvalues_", "variances_norm_"):
        if getattr(repeated, one, None) is not None:
            rtol = 1e-4 if method == "logistic" else 1e-7
            np.testing.assert_allclose(getattr(weighted, one), getattr(repeated, one), rtol=rtol, atol=1e-9)


@pytest.mark.share(12)
@pytest.mark.filterwarnings("ignore:.*columns (was|were) sampled", "ignore:every one of the")
@pytest.mark.usefixtures("short_paths")
@pytest.mark.parametrize("method", [m for m in METHODS if "n_features_to_select" in METHODS[m]().get_params()])
def test_more_columns_than_there_are_selects_all_with_a_warning(method, sources):
    X, y = sources["arrays"]
    selector = of_size(method, 19, **SMALL.get(method, {}), **SHORT.get(method, {}))
    with pytest.warns(UserWarning, match="19 but there are 18"):
        chosen = selector.fit(X, target_for(method, y))
    # Some paths of models end before all columns are in.
    assert chosen.support_.tolist() == list(range(18)) or method in ("auto-target", "logistic", "mcp", "scad")
    assert chosen.selection_.weights is None or (chosen.selection_.weights == 1).all()


def test_selection_round_trips_through_json():
    import json

    chosen = sks.OnlineLeverageSelector(9).fit(mixture(100)).selection_
    back = Selection.from_dict(json.loads(json.dumps(chosen.to_dict(), allow_nan=False)))
    assert back.support.tolist() == chosen.support.tolist()
    assert back.scores.tobytes() == chosen.scores.tobytes()
    assert back.weights.tobytes() == chosen.weights.tobytes()
    assert back.parameters == chosen.parameters


def test_make_suggests_what_was_meant():
    with pytest.raises(BadParameter, match="did you mean 'sketched-ridge'"):
        make("sketchd-ridge")
    with pytest.raises(BadParameter, match="did you mean 'sketch_size'"):
        make("sketched-ridge", sketchsize=3)
    assert set(selectors.METHODS) >= {"sketched-ridge", "variance", "thresholded-ols", "annealing"}


# --- k-means does not see the mean -----------------------------------------------------------------------------------

FOR_CLUSTERS = [name for name, cls in METHODS.items() if not (cls.needs_target or cls.needs_counts)]
ABOUT_ZERO = {"sketched-ridge", "sketched-lasso"}  # by default, as in their paper: measured to be better


def about_the_mean(method, **parameters):
    """Return the method as it is for clusters, of rows as they are."""
    known = METHODS[method]().get_params()
    return make(method, **{k: v for k, v in (parameters | {"about": "mean", "normalize": None}).items() if k in known})


@pytest.mark.share(8)
@pytest.mark.filterwarnings("ignore:every one of the", "ignore:.*columns were sampled")
@pytest.mark.parametrize("sketch", [{}, {"sketch_size": 6, "n_components": 3}], ids=["exact", "shrunk"])
@pytest.mark.parametrize("method", FOR_CLUSTERS)
def test_translation_of_the_columns_changes_no_selection(method, sketch):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((300, 120)) * rng.lognormal(0, 0.5, 120)
    X[:, ::5] += 4.0 * rng.standard_normal((4, 24))[rng.integers(4, size=300)]
    X = np.rint(256 * X) / 256  # so that adding a whole number has no rounding
    X[:, 7] = 2 * X[:, 5]
    selector = about_the_mean(method, n_features_to_select=9, n_clusters=4, **sketch)
    expected = selector.fit(X).support_.tolist()
    for deviations in (1.0, 30.0, 1e3):
        moved = X + np.rint(deviations * X.std(axis=0) * rng.standard_normal(120))
        assert selector.fit(moved).support_.tolist() == expected, deviations


def test_methods_for_clusters_measure_columns_from_their_means():
    points = {name: METHODS[name]().get_params().get("about", METHODS[name].about) for name in FOR_CLUSTERS}
    assert {name for name, about in points.items() if about == "zero"} == ABOUT_ZERO
    assert {name for name, about in points.items() if about is None} == {"auto"}  # which takes the methods' own


def planted(seed, offset=50.0):
    """Rows with clusters in the first 8 of 30 columns, which all have the mean `offset`."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((3000, 30)) + offset
    X[:, :8] += 3.0 * rng.standard_normal((12, 8))[rng.integers(12, size=3000)]
    return X


@pytest.mark.parametrize("seed", range(3))
def test_planted_columns_far_from_zero_come_before_noise(seed):
    X = planted(seed)
    assert set(sks.GreedySelector(8, normalize=None).fit(X).support_) == set(range(8))
    assert sks.GreedySelector(1, normalize=None).fit(X).support_[0] < 8


def test_every_fit_says_what_was_applied():
    X = planted(0, 0.0)[:200]
    chosen = sks.GreedySelector(3).fit(X).selection_
    assert chosen.applied == "rows prepared by l2; columns about their means"
    assert Selection.from_dict(chosen.to_dict()).applied == chosen.applied
    assert (
        "as they are; columns about zero"
        in sks.GreedySelector(3, about="zero", normalize=None).fit(X).selection_.applied
    )
    auto = sks.selectors.AutoSelector(3, n_clusters=4, methods=["greedy"]).fit(X).selection_
    assert auto.applied == chosen.applied
    assert "their means" in sks.LeverageSelector(3, read="columns").fit(X).selection_.applied


@pytest.mark.parametrize(
    "make_one", [partial(sks.GreedySelector, 3), partial(sks.selectors.AutoSelector, n_clusters=4)]
)
def test_unit_rows_that_are_nearly_parallel_are_said(make_one):
    X = planted(0)
    with pytest.warns(UserWarning, match="unit length") as caught:
        make_one().fit(X)
    assert sum("unit length" in str(w.message) for w in caught) == 1
    with pytest.raises(EmptyInput, match="unit length"):
        make_one().fit(np.outer(np.arange(1.0, 400.0), X[0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_one(normalize=None).fit(X)
        make_one().fit(X - 50.0)
