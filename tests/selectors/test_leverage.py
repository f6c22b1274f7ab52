"""Selection by leverage: guarantees on data, shards and orders, streams of columns, and what is refused."""

import warnings
from itertools import product

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from tests.summaries.oracles import relative_error

import sketchselect as sks
from sketchselect.errors import BadParameter, EmptyInput, Incompatible, NotFinite
from sketchselect.execution import PassOptions, Source, open_engine
from sketchselect.readers import open_matrix, open_vector, transposed
from sketchselect.selectors.leverage import priority_sample
from sketchselect.summaries import Bundle, FrequentDirections, LeverageSample, Moments

from .conftest import leverage, tail

SHARDS = (1, 2, 8, 64)


def wide(n=16, p=640, rank=6, noise=0.05, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, p)) + noise * rng.standard_normal((n, p))
    X[:, 17] = 0
    X[:, 30] = 10 * rng.standard_normal(n)
    return X - X.mean(axis=0)


def collected(selector, X, n_bands, engine="serial"):
    with open_engine(engine) as running:
        size = 8 * X.shape[0] * -(-X.shape[1] // n_bands)
        return selector.collect_source(Source(open_matrix(X)), PassOptions(running, size))


# --- online ----------------------------------------------------------------------------------------------------


def test_realised_error_weights_and_the_promise():
    X = wide(p=3000)
    chosen = sks.OnlineLeverageSelector(sampling_rate="paper").fit(X)
    C = X[:, chosen.support_] * chosen.weights_
    ridge = chosen.selection_.diagnostics["ridge"]
    assert chosen.eps_ == pytest.approx(relative_error(C.T, X.T, ridge), rel=1e-6, abs=1e-12)
    assert chosen.eps_ <= 0.5
    assert ridge == pytest.approx(1e-3 * (X**2).sum())
    assert 17 not in chosen.support_
    assert {30} <= set(chosen.support_)
    assert chosen.scores_.shape == (3000,)
    assert chosen.scores_[17] == 0


def test_error_by_rows_where_rows_are_many(monkeypatch):
    from sketchselect.selectors import online as online_leverage

    X = wide(n=90, p=60)
    by_columns = sks.OnlineLeverageSelector(sampling_rate=0.8).fit(X)
    monkeypatch.setattr(online_leverage, "EXACT_COLUMNS", 70)
    by_rows = sks.OnlineLeverageSelector(sampling_rate=0.8).fit(X)
    assert by_rows.support_.tolist() == by_columns.support_.tolist()
    assert by_rows.eps_ == pytest.approx(by_columns.eps_, rel=1e-8)
    assert by_rows.eps_ > 0.01
    monkeypatch.setattr(online_leverage, "EXACT_COLUMNS", 50)
    monkeypatch.setattr(online_leverage, "SKETCH_SIZE", 5)
    assert sks.OnlineLeverageSelector(sampling_rate=0.8).fit(X).eps_ >= by_columns.eps_ * (1 - 1e-9)


@pytest.mark.parametrize("n_bands", SHARDS)
def test_the_same_bits_for_the_same_bands_and_the_law_for_any(n_bands):
    X = wide()
    selector = sks.OnlineLeverageSelector(sampling_rate="paper")
    found = [collected(selector, X, n_bands, engine) for engine in ("serial", "threads")]
    assert found[0] == found[1]
    assert found[0].error <= 0.5
    u = found[0].draws
    assert (u < found[0].probabilities).all()
    # Shards that arrive shuffled are merged as what they are: by column index.
    width = -(-X.shape[1] // n_bands)
    description = LeverageSample(sampling_rate="paper")
    shards = [description.from_block(X.T[a : a + width], start=a) for a in range(0, X.shape[1], width)]
    rng = np.random.default_rng(n_bands)
    for _ in range(2):
        rng.shuffle(shards)
        union = shards[0]
        for shard in shards[1:]:
            union = union.merge(shard)
        chosen = selector.fit_summary(union)
        C = X[:, chosen.support_] * chosen.weights_
        assert relative_error(C.T, X.T, union.final_ridge) <= 0.5


@pytest.mark.parametrize("batch", [1, 7, 100])
@pytest.mark.statement("Wang 2018, Algorithm 1")
def test_a_stream_of_columns_is_algorithm_1(batch):
    X = wide(p=100)
    stream = sks.OnlineLeverageSelector(ridge=3.0, sampling_rate=1.0)
    for a in range(0, 100, batch):
        stream.partial_fit(X[:, a : a + batch])
    whole = sks.OnlineLeverageSelector(ridge=3.0, sampling_rate=1.0).fit(X)
    assert stream.n_features_in_ == 100
    assert stream.support_.tolist() == whole.support_.tolist()
    assert np.allclose(stream.scores_, whole.scores_, rtol=1e-8)
    assert stream.eps_ == pytest.approx(whole.eps_, rel=1e-6)
    assert stream.transform(X).shape == (16, stream.support_.size)


def test_a_stream_goes_on_after_a_pass_or_a_saved_summary():
    X = wide(p=200)
    after_fit = sks.OnlineLeverageSelector(ridge=3.0).fit(X[:, :120]).partial_fit(X[:, 120:])
    saved = sks.OnlineLeverageSelector(ridge=3.0).fit(X[:, :120]).summary_
    after_load = sks.OnlineLeverageSelector(ridge=3.0).fit_summary(saved).partial_fit(X[:, 120:])
    assert after_fit.support_.tolist() == after_load.support_.tolist()
    C = X[:, after_fit.support_] * after_fit.weights_
    assert after_fit.eps_ == pytest.approx(relative_error(C.T, X.T, 3.0), rel=1e-6, abs=1e-10)
    assert np.isnan(after_load.eps_), "what is not known is not claimed"
    assert after_load.selection_.diagnostics["spectral_error"] is None
    with pytest.raises(Incompatible, match="ridge"):
        sks.OnlineLeverageSelector(ridge=2.0).fit_summary(saved).partial_fit(X[:, 120:])


def test_a_bad_batch_leaves_the_stream_as_it_was():
    X = wide(p=120)
    stream = sks.OnlineLeverageSelector(sampling_rate=1.0).partial_fit(X[:, :80])
    before = stream.summary_
    with pytest.raises(BadParameter, match=r"15 rows.* 16"):
        stream.partial_fit(X[:15, 80:])
    bad = X[:, 80:].copy()
    bad[3, 5] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        stream.partial_fit(bad)
    with pytest.raises(NotFinite, match="the first at column 5, row 3"):
        stream.partial_fit(open_matrix(bad))
    stream.set_params(n_features_to_select=0)
    with pytest.raises(BadParameter, match="n_features_to_select"):
        stream.partial_fit(X[:, 80:])
    stream.set_params(n_features_to_select=None)
    assert stream.summary_ is before
    assert stream.n_features_in_ == 80
    assert stream.partial_fit(X[:, 80:]).n_features_in_ == 120


def test_a_stream_may_begin_with_zeros_and_measures_when_asked():
    X = wide(p=90)
    X[:, :3] = 0
    stream = sks.OnlineLeverageSelector(ridge=3.0, sampling_rate=1.0)
    for j in range(90):
        stream.partial_fit(X[:, j : j + 1])
        assert np.isnan(stream.summary_.error)
        assert (stream.support_.size == 0) >= (j < 3)
    whole = sks.OnlineLeverageSelector(ridge=3.0, sampling_rate=1.0).fit(X)
    assert stream.support_.tolist() == whole.support_.tolist()
    assert stream.eps_ == pytest.approx(whole.eps_, rel=1e-6)
    assert stream.selection_.diagnostics["spectral_error"] == stream.summary_.error == stream.eps_
    assert not hasattr(sks.OnlineLeverageSelector(), "eps_")


def test_names_of_a_stream_of_frames():
    X = wide(p=120)
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(120)])
    stream = sks.OnlineLeverageSelector(n_features_to_select=9)
    stream.partial_fit(frame.iloc[:, :70]).partial_fit(frame.iloc[:, 70:])
    assert stream.get_feature_names_out().tolist() == [f"c{j}" for j in stream.support_]
    assert stream.selection_.feature_names == tuple(frame.columns)
    assert sks.OnlineLeverageSelector(9).fit_summary(stream.summary_).selection_.feature_names == tuple(frame.columns)
    stream.partial_fit(X[:, :5])
    assert stream.selection_.feature_names is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("p", "n_seeds", "selector"),
    [
        (300, 150, sks.OnlineLeverageSelector(25, sampling_rate=3.0, ridge=1.0)),
        (200, 300, sks.LeverageSelector(30, choice="sampled", n_components=5)),
    ],
    ids=["online", "sampled"],
)
def test_exactly_so_many_columns_and_the_weights_stay_unbiased(p, n_seeds, selector):
    X = wide(p=p)
    norms = []
    for seed in range(n_seeds):
        chosen = clone(selector).set_params(random_state=seed).fit(X)
        assert chosen.support_.size == selector.n_features_to_select
        assert 17 not in chosen.support_
        norms.append(((X[:, chosen.support_] * chosen.weights_) ** 2).sum())
    error = np.std(norms, ddof=1) / np.sqrt(len(norms))
    assert abs(np.mean(norms) - (X**2).sum()) <= 3 * error


def test_the_user_is_told_when_everything_is_kept_and_when_too_little_is():
    X = wide(n=60, p=40)
    with pytest.warns(UserWarning, match="every one of the .* columns was selected: .* many more than"):
        sks.OnlineLeverageSelector(sampling_rate="paper").fit(X)
    with pytest.warns(UserWarning, match="= 30; raise sampling_rate"):
        sks.OnlineLeverageSelector(30, sampling_rate=0.2).fit(X)


# --- scores ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_bands", SHARDS)
@pytest.mark.parametrize("choice", ["top", "sampled"])
def test_two_passes_give_the_same_selection_for_any_shards_and_workers(n_bands, choice):
    X = wide()
    selector = sks.LeverageSelector(40, read="columns", n_components=5, choice=choice, random_state=3)
    wanted = sks.LeverageSelector(40, read="columns", n_components=5, choice=choice, random_state=3).fit(X)
    for engine in ("serial", "threads"):
        got = selector.fit_summary(collected(selector, X, n_bands, engine))
        assert got.support_.tolist() == wanted.support_.tolist()
        assert np.allclose(got.scores_, leverage(X, tail(X, 5)), rtol=1e-8, atol=1e-12)
        if choice == "sampled":
            assert np.allclose(got.weights_, wanted.weights_, rtol=1e-8)
    assert wanted.scores_.sum() <= 2 * 5
    assert wanted.scores_[17] == 0


def test_shards_of_scores_merge_in_any_order():
    X = wide()
    summary = sks.LeverageSelector(40, read="columns", n_components=5).fit(X).summary_
    shards = [summary.describe().from_block(X.T[a : a + 80], start=a) for a in range(0, 640, 80)]
    np.random.default_rng(5).shuffle(shards)
    union = shards[0]
    for shard in shards[1:]:
        union = union.merge(shard)
    assert np.array_equal(union.scores, summary.describe().from_block(X.T).scores)
    with pytest.raises(Incompatible, match="column 0 was summarised twice"):
        sks.LeverageSelector(40, n_components=5).fit_summary(union.merge(union))


@pytest.mark.parametrize("size", [8, 16, 60])
def test_one_pass_over_rows_bounds_the_scores_and_agrees_where_exact(size):
    X = wide(n=200, p=150)
    chosen = sks.LeverageSelector(20, n_components=6, sketch_size=size).fit(X)
    ridge = chosen.selection_.diagnostics["ridge"]
    tau = leverage(X, ridge)
    lower, upper = chosen.score_bounds_
    assert (lower <= tau + 1e-12).all()
    assert (tau <= upper + 1e-12).all()
    assert (chosen.summary_.shrinkage == 0) == (size > 8)
    if size > 8:
        two = sks.LeverageSelector(20, n_components=6, read="columns").fit(X)
        assert np.allclose(two.scores_, chosen.scores_, rtol=1e-7, atol=1e-10)
        assert two.support_.tolist() == chosen.support_.tolist()
        moments = sks.LeverageSelector(20, n_components=6).fit_summary(sks.Moments().from_block(X))
        assert np.allclose(moments.scores_, chosen.scores_, rtol=1e-6, atol=1e-9)


def test_priority_samples_take_what_there_is():
    places, shares = priority_sample(np.array([0.0, 2.0, 0.0, 1.0]), np.array([0.1, 0.2, 0.3, 0.4]), 3)
    assert places.tolist() == [1, 3]
    assert shares.tolist() == [1, 1]
    places, shares = priority_sample(np.array([1e-300, 1.0]), np.array([0.9, 1e-16]), 1)
    assert places.tolist() == [1]
    assert shares.tolist() == [1]


@pytest.mark.statement("Wang 2018, Equation 3.1")
def test_without_ridge_every_independent_column_scores_1():
    X = np.random.default_rng(0).standard_normal((50, 8))
    for read in ("rows", "columns"):
        assert np.allclose(sks.LeverageSelector(3, ridge=0, read=read).fit(X).scores_, 1, atol=1e-6)


# --- refusals --------------------------------------------------------------------------------------------------

BOTH = (sks.OnlineLeverageSelector, sks.LeverageSelector)


@pytest.mark.parametrize("n_rows", [5, 250])  # of many rows online leverage measures its error in another way
@pytest.mark.parametrize("value", [0.0, 3.7])
def test_columns_that_all_are_constant_are_refused(value, n_rows, monkeypatch):
    monkeypatch.setattr("sketchselect.selectors.online.EXACT_COLUMNS", 200)
    X = np.full((n_rows, 4), value)
    for read, choice in product(("rows", "columns"), ("top", "sampled")):
        with pytest.raises(EmptyInput, match=r"all( 4)? columns are constant"):
            sks.LeverageSelector(2, read=read, choice=choice).fit(X)
    with pytest.raises(EmptyInput, match="all columns are constant"):
        sks.OnlineLeverageSelector().fit(X)


@pytest.mark.parametrize(("scale", "ridge", "text"), [(1e-160, "auto", "below 1e-150"), (1.0, 1e9, "ridge is 1e[+]09")])
def test_a_sample_without_columns_is_refused(scale, ridge, text):
    with pytest.raises(EmptyInput, match=f"no column was sampled.*{text}"):
        sks.OnlineLeverageSelector(ridge=ridge).fit(scale * wide(p=50))


@pytest.mark.parametrize("make", [sks.OnlineLeverageSelector, lambda: sks.LeverageSelector(read="columns"), BOTH[1]])
def test_bad_data_are_refused(make):
    with pytest.raises(ValueError, match="0 sample"):
        make().fit(np.zeros((0, 4)))
    bad = wide(p=50)
    bad[2, 9] = np.inf
    with pytest.raises(NotFinite, match=r"row 2, column 9|column 9, row 2"):
        make().fit(open_matrix(bad))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        chosen = make().set_params(n_features_to_select=51).fit(wide(p=50))
    assert "51 but there are 50 columns" in str(said[0].message)
    assert chosen.support_.size in (48, 50)  # what is sampled depends on the draws


def test_what_columns_cannot_do_is_said():
    X = wide(p=50)
    for selector in (sks.OnlineLeverageSelector(5), sks.LeverageSelector(5, read="columns")):
        with open_engine("serial") as engine:
            with pytest.raises(BadParameter, match="'l2' needs whole rows"):
                selector.collect_source(Source(open_matrix(X), prepare=("l2",)), engine)
            with pytest.raises(BadParameter, match="drop_rows"):
                selector.collect_source(Source(open_matrix(X, nonfinite="drop_rows")), engine)
            weight = open_vector(np.ones(16), 16, matrix="X", name="sample_weight")
            with pytest.raises(BadParameter, match="sample_weight"):
                selector.collect_source(Source(open_matrix(X), weight=weight), engine)
    with pytest.raises(BadParameter, match='read="rows"'):
        sks.LeverageSelector(5, read="columns").partial_fit(X)
    with pytest.raises(BadParameter, match=r'8193 rows are too many .* read="rows"'):
        sks.LeverageSelector(read="columns").fit(np.ones((8193, 2)))


def test_a_bundle_over_columns_holds_the_sample_and_more():
    X = wide(p=100)
    bundle = sks.summarize(
        transposed(open_matrix(X)), Bundle(sample=LeverageSample(), sketch=FrequentDirections(4), moments=Moments())
    )
    chosen = sks.OnlineLeverageSelector(9).fit_summary(bundle)
    assert chosen.support_.tolist() == sks.OnlineLeverageSelector(9).fit(X).support_.tolist()


def test_a_sample_that_may_outgrow_the_memory_is_refused_before_the_pass():
    from sketchselect.errors import WillNotFit
    from sketchselect.execution import LocalEngine
    from sketchselect.execution.plan import library_nbytes

    X = wide(n=50, p=120_000)
    options = PassOptions(LocalEngine(2, memory_limit=library_nbytes("threads") + (356 << 20)))
    with pytest.raises(WillNotFit, match=r"120000 .* 50 .*sampling_rate"):
        sks.OnlineLeverageSelector(sampling_rate=1e4).collect_source(Source(open_matrix(X)), options)
    few = sks.OnlineLeverageSelector(sampling_rate=0.1, about="zero")
    assert few.collect_source(Source(open_matrix(X)), options).n_kept < 100
