"""Highly variable genes: one pass equals the two passes of the definition, and the answers of scanpy."""

import contextlib

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from tests.data_sets import data_set

import sketchselect as sks
from sketchselect.errors import BadBlock, BadParameter, PartitionFailed
from sketchselect.linalg.loess import mean_variance_trend
from sketchselect.selectors.highly_variable import combined_order
from sketchselect.summaries import TopValues


def counts(n=400, p=60, seed=0):
    """Overdispersed counts; some genes in few cells, one empty, one the same everywhere, two equal ones."""
    rng = np.random.default_rng(seed)
    means = np.geomspace(0.02, 20.0, p)
    X = rng.negative_binomial(2.0, 2.0 / (2.0 + means), (n, p))
    X[:20, 30:34] *= 9
    X[:, 5] = 0
    X[:, 6] = 3
    X[:, 11] = np.roll(X[:, 10], 7)
    return X


def two_passes(X, trend="quadratic", span=0.3):
    """Stuart et al. 2019: standardise by the trend, clip at sqrt(N), variance about zero."""
    X = X.astype(float)
    n = len(X)
    mean, var = X.mean(axis=0), X.var(axis=0, ddof=1)
    # Rounding leaves a variance to columns of one value.
    varies = X.max(axis=0) > X.min(axis=0)
    x, y = np.log10(mean[varies]), np.log10(var[varies])
    if trend == "loess":
        from skmisc.loess import loess

        model = loess(x, y, span=span, degree=2)
        model.fit()
        fitted = model.outputs.fitted_values
    else:
        fitted = np.polyval(np.polyfit(x, y, 2), x)
    out = np.zeros(X.shape[1])
    Z = (X[:, varies] - mean[varies]) / np.sqrt(10.0**fitted)
    out[varies] = (np.minimum(Z, np.sqrt(n)) ** 2).sum(axis=0) / (n - 1)
    return out


def hvg(n_select=10, **parameters):
    return sks.HighlyVariableGenes(n_select, **{"trend": "quadratic", **parameters})


def spiked(n=400, p=60):
    """Counts of which single ones are far above the clipping point."""
    X = counts(n, p)
    X[[3, 50, 99], [20, 21, 20]] = 20000
    return X


@pytest.mark.parametrize("trend", ["quadratic", "loess"])
@pytest.mark.parametrize("make", [counts, spiked])
def test_one_pass_equals_two(make, trend):
    if trend == "loess":
        pytest.importorskip("skmisc")
    X = make(p=200)
    chosen = hvg(30, trend=trend, span=0.4).fit(X)
    expected = two_passes(X, trend, 0.4)
    assert np.allclose(chosen.variances_norm_, expected, rtol=1e-9, atol=1e-12)
    assert np.array_equal(chosen.scores_, chosen.variances_norm_)
    assert np.allclose(chosen.means_, X.mean(axis=0), rtol=1e-14)
    assert np.allclose(chosen.variances_, X.var(axis=0, ddof=1), rtol=1e-12)
    if make is spiked:
        assert chosen.selection_.diagnostics["most_clipped_values"] >= 1
    assert chosen.selection_.diagnostics["whole_numbers"] is True


@pytest.mark.parametrize("make", [lambda X: X.astype(np.float32), lambda X: X + 0.25, lambda X: X * 1e-3])
def test_reals_are_taken_too(make):
    X = make(spiked())
    counts = np.array_equal(X, np.rint(X))
    with contextlib.nullcontext() if counts else pytest.warns(UserWarning, match="raw counts are needed"):
        chosen = hvg().fit(X)
    assert np.allclose(chosen.variances_norm_, two_passes(X), rtol=1e-6 if X.dtype == np.float32 else 1e-9)


def test_bits_depend_on_neither_blocks_nor_storage():
    X = spiked()
    whole = hvg().fit(X)
    perm = np.random.default_rng(1).permutation(len(X))
    for other in (
        hvg().fit(sp.csr_array(X)),
        hvg().fit(X[perm].astype(np.float64)),
        hvg().fit_summary(TopValues().from_block(X[:7]).merge(TopValues().from_block(X[7:], start=7))),
    ):
        assert np.array_equal(other.variances_norm_, whole.variances_norm_)
        assert other.support_.tolist() == whole.support_.tolist()
    stream = hvg()
    for start in range(0, len(X), 33):
        stream.partial_fit(X[start : start + 33])
    assert np.array_equal(stream.variances_norm_, whole.variances_norm_)


def test_equal_genes_are_equal_to_the_bit_and_ties_go_to_the_lowest_index_on_request():
    X = counts()
    values = hvg().fit(X).variances_norm_
    assert values[10] == values[11] > 0
    place = int((values > values[10]).sum())
    assert hvg(place + 1, ties="index").fit(X).support_.tolist() == sorted(
        np.argsort(-values, kind="stable")[: place + 1].tolist()
    )


def test_the_largest_values_of_sparse_rows():
    rng = np.random.default_rng(4)
    X = rng.integers(-3, 6, (90, 25)) * (rng.random((90, 25)) < 0.3)
    X[:, 4] = -np.abs(X[:, 4]) - 1
    for size in (1, 5, 89, 90, 200):
        for values in (X, X * 0.5):
            result = TopValues(size).from_block(sp.csr_array(values))
            assert np.array_equal(result.top, -np.sort(-values, axis=0)[:size])
            dense = TopValues(size).from_block(values)
            assert np.array_equal(result.variance, dense.variance) or np.allclose(result.variance, dense.variance)
            assert result.is_whole == dense.is_whole


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i2"])
def test_the_largest_values_of_sparse_rows_where_small_whole_numbers_are_many(dtype):
    """Small whole numbers are counted, all other values are sorted: the two and the zeros are one order."""
    rng = np.random.default_rng(5)
    X = rng.choice([0, 0, 1, 2, 3, 14, 15, 16, 17, 300, -1, -16], (300, 12))
    X[:, 0], X[:, 1], X[:, 2], X[:, 3] = 15, 16, np.arange(300) % 2, -np.arange(300)
    if dtype.startswith("f"):
        X = np.concatenate([X, rng.choice([0.5, 1.0, 1.5, 15.0, 15.5, 16.0, 16.5, -0.5], (300, 8))], axis=1)
    for size in (1, 7, 64, 300):
        block = sp.csr_array(X.astype(dtype))
        result = TopValues(size).from_block(block[:100]).merge(TopValues(size).from_block(block[100:], start=100))
        assert np.array_equal(result.top, -np.sort(-X.astype(float), axis=0)[:size])
        assert result.is_whole == bool((np.rint(X) == X).all())
        assert np.allclose(result.mean, X.mean(axis=0))
        assert np.allclose(result.variance, X.var(axis=0))


def test_the_trend_is_fitted_once_and_that_of_another_summary_is_not_taken(monkeypatch):
    fits = []

    def trend(*arguments):
        fits.append(arguments)
        return mean_variance_trend(*arguments)

    monkeypatch.setattr("sketchselect.selectors.highly_variable.mean_variance_trend", trend)
    X, other = counts(), counts(seed=3)
    selector = hvg().fit(X)
    assert len(fits) == 1
    assert selector.further_description(selector.summary_) is None
    again = selector.fit_summary(TopValues().from_block(other))
    assert np.array_equal(again.scores_, hvg().fit(other).scores_)
    selector.fit(X)
    assert selector.further_description(selector.summary_) is None
    selector.set_params(trend="quadratic" if selector.trend == "loess" else "loess").fit_summary(selector.summary_)
    assert np.array_equal(selector.scores_, sks.HighlyVariableGenes(**selector.get_params()).fit(X).scores_)


def test_more_clipped_values_than_a_summary_keeps_is_an_error_that_says_how_many_suffice():
    X = spiked()
    with pytest.raises(BadParameter, match=r"the top_values = 2 of each.*with top_values = \d+") as error:
        hvg().fit_summary(TopValues(2).from_block(X))
    enough = int(str(error.value).rsplit(" ", 1)[1])
    assert 3 <= enough <= len(X)
    assert np.allclose(hvg(top_values=enough).fit(X).variances_norm_, two_passes(X), rtol=1e-9, atol=1e-12)
    # All rows are kept: nothing can be missing.
    assert np.allclose(hvg(top_values=9).fit(X[:9]).variances_norm_, two_passes(X[:9]), rtol=1e-9, atol=1e-12)


def peaked(n=20_000, p=300):
    """Counts some of whose columns have hundreds of values far above the clipping point; most have none."""
    rng = np.random.default_rng(6)
    X = rng.poisson(np.geomspace(0.05, 100.0, p), (n, p)).astype(np.int32)
    for j in (40, 200):
        X[rng.choice(n, 80, replace=False), j] = rng.integers(2000, 3000, 80)
    return X


def test_a_second_pass_keeps_as_many_values_as_are_needed():
    X = spiked()
    expected = two_passes(X)
    for data in (X, sp.csr_array(X)):
        chosen = hvg(top_values=2).fit(data)
        assert np.allclose(chosen.variances_norm_, expected, rtol=1e-9, atol=1e-12)
        assert chosen.selection_.parameters["top_values"] == chosen.summary_.size > 2
    assert hvg().fit(X).summary_.size == 64, "nothing is read twice without need"
    batch = np.arange(len(X)) % 2
    expected = np.array([two_passes(X[batch == b]) for b in range(2)])
    chosen = hvg(top_values=1, batches=True).fit(X, batch)
    assert np.allclose(chosen.variances_norm_, expected.mean(axis=0), rtol=1e-9, atol=1e-12)


def test_the_number_of_rows_counts_where_their_weights_are_small():
    X = np.concatenate([spiked()] * 8)
    whole = hvg(top_values=1).fit(X[:400])
    light = hvg(top_values=1).fit(X, sample_weight=np.full(len(X), 0.125))
    assert np.allclose(light.variances_norm_, whole.variances_norm_, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("trend", ["quadratic", "loess"])
def test_many_clipped_values_in_a_column_need_no_parameter(trend):
    if trend == "loess":
        pytest.importorskip("skmisc")
    X = peaked()
    chosen = hvg(20, trend=trend).fit(X)
    assert chosen.selection_.diagnostics["most_clipped_values"] > 64
    assert np.allclose(chosen.variances_norm_, two_passes(X, trend), rtol=1e-9, atol=1e-12)


def test_a_second_pass_that_would_not_fit_is_the_error_that_names_the_number():
    from sketchselect.execution import LocalEngine, PassOptions, Source
    from sketchselect.readers import open_matrix

    X = spiked()
    engine, source = LocalEngine(kind="serial"), Source(open_matrix(X))
    selector = hvg(top_values=2)
    options = PassOptions(engine)
    first = selector.collect_source(source, options)
    notes = []

    class Told:
        def note(self, text):
            notes.append(text)

        def start(self, *given):
            pass

        advance = finish = start

    enough = selector.complete(first, source, options.but(progress=Told()))
    assert notes == [
        "hvg: columns have more values to clip than top_values = 2; reading the rows again with top_values = "
        f"{enough.size}"
    ]
    assert selector.complete(enough, source, options) is enough
    engine.memory_limit = 2**20
    with pytest.raises(BadParameter, match=rf"read the rows again with top_values = {enough.size}, which takes .*MiB"):
        selector.complete(first, source, options)


# --- batches -------------------------------------------------------------------------------------------------------


def test_order_over_batches_by_hand():
    values = np.array([[9.0, 7, 5, 3, 1], [1.0, 7, 9, 5, 3]])
    order, median, n_batches = combined_order(values, 3, "index")
    # Ranks: 0 1 2 - -  and  - 1 0 2 -
    assert median[:4].tolist() == [0.0, 1.0, 1.0, 2.0]
    assert np.isnan(median[4])
    assert n_batches.tolist() == [1, 2, 2, 1, 0]
    assert order.tolist() == [0, 1, 2, 3, 4]
    assert combined_order(values[:, ::-1], 3, "index")[0].tolist() == [4, 2, 3, 1, 0]


@pytest.mark.parametrize("labels", [["a", "b", "c"], [10, 20, 30], [0.0, 1.0, 2.0]])
def test_each_batch_by_itself(labels):
    X = spiked()
    which = np.random.default_rng(3).integers(0, 3, len(X))
    batch = np.array(labels)[which]
    expected = np.array([two_passes(X[which == b]) for b in range(3)])
    for data in (X, sp.csr_array(X)):
        chosen = hvg(12, batches=True).fit(data, batch)
        assert np.allclose(chosen.variances_norm_, expected.mean(axis=0), rtol=1e-9, atol=1e-12)
        ranks = np.argsort(np.argsort(-expected, axis=1, kind="stable"), axis=1)
        assert chosen.n_batches_.tolist() == (ranks < 12).sum(axis=0).tolist()
        assert np.allclose(chosen.means_, X.mean(axis=0), rtol=1e-13)
        assert np.sort(np.argsort(-chosen.scores_, kind="stable")[:12]).tolist() == chosen.support_.tolist()
    stream = hvg(12, batches=True)
    for start in range(0, len(X), 90):
        stream.partial_fit(X[start : start + 90], batch[start : start + 90], classes=labels)
    assert stream.support_.tolist() == chosen.support_.tolist()
    saved = hvg(12).fit_summary({"columns": sks.ColumnStats().from_block(X), "top": chosen.summary_})
    assert saved.support_.tolist() == chosen.support_.tolist()
    assert saved.selection_.parameters["batches"] is True


def test_one_batch_is_none():
    X = counts()
    assert np.array_equal(hvg(batches=True).fit(X, np.full(400, "x")).scores_, hvg().fit(X, np.arange(400)).scores_)


def against_scanpy(X, batch, n_select, ours=None, **parameters):
    sc = pytest.importorskip("scanpy")
    ad = pytest.importorskip("anndata")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cells = ad.AnnData(sp.csr_matrix(X, dtype=np.float32))
        if batch is not None:
            cells.obs["batch"] = batch
        # Each batch alone: with `batch_key`, scanpy sums variances in another order, by which genes with equal counts
        # in other cells differ, and its regression, whose knots are medians of the means, by 1e-3.
        parts = [cells] if batch is None else [cells[batch == label].copy() for label in np.unique(batch)]
        options = {"flavor": "seurat_v3", "n_top_genes": n_select, "inplace": False, **parameters}
        alone = [sc.pp.highly_variable_genes(part, **options) for part in parts]
    ranks = np.array([part["highly_variable_rank"] for part in alone])
    ranks_of_all = np.ma.median(np.ma.masked_invalid(ranks), axis=0).filled(np.nan)
    in_batches = (~np.isnan(ranks)).sum(axis=0)
    expected = np.lexsort((-in_batches, np.where(in_batches > 0, ranks_of_all, np.inf)))[:n_select]
    for data in (sp.csr_array(X), sp.csr_array(X).toarray()):
        chosen = sks.HighlyVariableGenes(n_select, batches=batch is not None, **parameters, **(ours or {})).fit(
            data, batch
        )
        assert set(chosen.support_) == set(expected)
        assert np.array_equal(chosen.ranks_, ranks_of_all, equal_nan=True)
        normalized = np.mean([part["variances_norm"] for part in alone], axis=0)
        assert np.allclose(chosen.variances_norm_, normalized, rtol=1e-10, atol=1e-12)
        assert np.array_equal(chosen.n_batches_, in_batches)
        if batch is None:
            assert np.allclose(chosen.means_, alone[0]["means"], rtol=1e-12)
            assert np.allclose(chosen.variances_, alone[0]["variances"], rtol=1e-10)


@pytest.mark.share(1)
@pytest.mark.parametrize("batched", [False, True])
def test_scanpy_agrees_on_made_up_counts(batched):
    X = spiked(500, 900)
    batch = np.array(list("uvw"))[np.arange(500) % 3] if batched else None
    against_scanpy(X, batch, 200, span=0.4)
    against_scanpy(X, batch, 200, span=0.4, ours={"top_values": 1})


@pytest.mark.slow
def test_scanpy_agrees_where_columns_have_more_clipped_values_than_are_kept():
    against_scanpy(peaked(), None, 50)


@pytest.mark.slow
@pytest.mark.parametrize("batched", [False, True])
def test_scanpy_agrees_on_the_mouse_bladder(batched):
    z = data_set("mouse_bladder_cells")
    X = sp.csr_array((z["data"], z["indices"], z["indptr"]), shape=z["shape"])
    batch = np.array(list("abc"))[np.random.default_rng(0).integers(0, 3, X.shape[0])] if batched else None
    against_scanpy(X, batch, 2000)


# --- what is refused -------------------------------------------------------------------------------------------------


def test_negative_values_are_refused_by_column():
    X = counts().astype(float)
    X[7, 42] = -1
    with pytest.raises(BadBlock, match=r"Negative values in data.*column 42 has"):
        hvg().fit(X)
    frame = pd.DataFrame(X, columns=[f"gene{j}" for j in range(X.shape[1])])
    for batch in (None, np.arange(len(X)) % 2):
        with pytest.raises(BadBlock, match=r"column 42 \(gene42\) has"):
            hvg(batches=batch is not None).fit(frame, batch)


def test_missing_values_are_refused_by_the_summary():
    with pytest.raises(BadBlock, match="row 1, column 0"):
        TopValues().from_block(np.array([[1.0], [np.nan]]))


def test_a_batch_of_one_row_and_unknown_batches():
    X = counts()
    with pytest.raises(BadParameter, match=r"batch 1 \(of 2"):
        hvg(batches=True).fit(X, np.r_[np.zeros(399), 1])
    with pytest.raises(BadParameter, match="requires y"):
        hvg(batches=True).fit(X)
    stream = hvg(batches=True).partial_fit(X[:200], np.arange(200) % 2)
    with pytest.raises((BadBlock, PartitionFailed), match="none of the 2 groups"):
        stream.partial_fit(X[200:], np.full(200, 2))
    assert stream.summary_.n_rows == 200


def test_a_few_columns_that_vary():
    X = counts()
    for n_columns in (1, 2, 3, 5, 8, 13):
        few = np.hstack([X[:, 20 : 20 + n_columns], np.full((len(X), 3), 2)])
        chosen = sks.HighlyVariableGenes(1).fit(few)
        assert chosen.support_[0] < n_columns
        assert np.isfinite(chosen.scores_).all()
        assert not chosen.scores_[n_columns:].any()
