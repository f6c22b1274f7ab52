"""Statistics of all rows: each step's pass sees what the steps before leave, and the label tells which they were."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import StandardScaler, normalize
from tests.passing import Recorder, serial

import sketchselect as sks
from sketchselect.cluster.kmeans.passes import prepared_nbytes
from sketchselect.errors import BadParameter, Incompatible, NotFinite
from sketchselect.execution import Reduction, Source, fit_steps
from sketchselect.execution.engine import LocalEngine
from sketchselect.execution.plan import reading_nbytes
from sketchselect.prepare import apply_steps, resolve
from sketchselect.readers import row_partitions
from sketchselect.summaries import decode, encode
from sketchselect.workflow.stages.features import feature_dtype

TEXT = ["tf-idf(sublinear=true)", "l2"]
CELLS = ["library-size(target=median)", "log1p", "standardise", "clip(sd=2)"]


def by_hand(X, recipe):
    """Return the rows after a recipe, by scikit-learn and NumPy alone."""
    if recipe is TEXT:
        return normalize(TfidfTransformer(norm=None, sublinear_tf=True).fit_transform(csr_array(X)).toarray())
    totals = X.sum(axis=1, keepdims=True)
    X = np.log1p(X * np.median(totals[totals > 0]) / np.where(totals > 0, totals, 1))
    Z = StandardScaler().fit_transform(X)
    return np.clip(Z, Z.mean(axis=0) - 2 * Z.std(axis=0), Z.mean(axis=0) + 2 * Z.std(axis=0))


@pytest.mark.parametrize("recipe", [TEXT, CELLS], ids=["text", "cells"])
@pytest.mark.parametrize("made", [np.asarray, csr_array], ids=["array", "csr"])
def test_a_recipe_is_what_it_is_by_hand(counts, recipe, made):
    X = counts.astype(float)
    reference = by_hand(X, recipe)
    s = sks.summarize(made(X), sks.Moments(), prepare=recipe, partition_bytes=9000)
    np.testing.assert_allclose(s.mean, reference.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(s.covariance(), np.cov(reference.T, ddof=0), atol=1e-12)


def test_array_and_csr_are_fitted_alike(counts):
    a, b = (sks.fit_prepare(X, TEXT) for X in (counts, csr_array(counts)))
    assert a.labels == b.labels


def test_statistics_of_an_earlier_fit_prepare_new_rows_and_the_summaries_merge(counts, tmp_path):
    old, new = counts[:200], counts[200:]
    fit = sks.fit_prepare(old, CELLS)
    sks.save(fit.statistics, tmp_path / "prepare.sks")
    again = sks.fit_prepare(new, CELLS, fitted=sks.load(tmp_path / "prepare.sks"))
    assert again.labels == fit.labels
    assert again.statistics == fit.statistics
    merged = sks.summarize(old, sks.Moments(), prepare=fit.steps).merge(
        sks.summarize(new, sks.Moments(), prepare=again.steps)
    )
    reference = apply_steps(fit.steps, counts)
    np.testing.assert_allclose(merged.mean, reference.mean(axis=0), atol=1e-12)
    assert merged.prepare == fit.labels


def test_summaries_of_rows_prepared_with_different_statistics_do_not_merge(counts):
    a, b = (sks.summarize(X, sks.ColumnStats(), prepare=["standardise"]) for X in (counts[:200], counts[200:]))
    with pytest.raises(Incompatible, match=r"\['standardise#[0-9a-f]{10}'\] and \['standardise#[0-9a-f]{10}'\]"):
        a.merge(b)


def test_statistics_of_two_halves_merge_into_those_of_all(counts):
    halves = [sks.fit_prepare(X, ["tf-idf", "l2"]).statistics for X in (counts[:130], counts[130:])]
    merged = sks.fit_prepare(counts[:1], ["tf-idf", "l2"], fitted=halves[0].merge(halves[1]))
    assert merged.labels == sks.fit_prepare(counts, ["tf-idf", "l2"]).labels


def test_later_statistics_of_differently_fitted_rows_do_not_merge(counts):
    halves = [sks.fit_prepare(X, ["standardise", "clip(sd=1)"]).statistics for X in (counts[:130], counts[130:])]
    with pytest.raises(Incompatible, match="standardise#"):
        halves[0].merge(halves[1])
    other = sks.fit_prepare(counts, ["scale"]).statistics
    with pytest.raises(
        Incompatible, match=r"different steps: \['0 standardise', '1 clip\(sd=1.0\)'\] and \['0 scale'\]"
    ):
        halves[0].merge(other)


@pytest.mark.parametrize("steps", [["impute", "standardise"], ["impute", "standardise", "clip(sd=1)"]])
def test_statistics_of_several_steps_are_merged_step_by_step(counts, steps):
    rng = np.random.default_rng(0)
    X = np.where(rng.random(counts.shape) < 0.1, np.nan, counts + rng.random(counts.shape))
    parts = X[:130], X[130:170], X[170:]
    own = [sks.fit_prepare(part, steps).statistics for part in parts]
    with pytest.raises(
        Incompatible, match=r"own had prepared, .* up to '(impute|standardise)' alone, then write these with --fitted"
    ):
        own[0].merge(own[1])
    merged = None
    for n_steps in range(1, len(steps) + 1):
        a, b, c = (sks.fit_prepare(part, steps[:n_steps], fitted=merged).statistics for part in parts)
        merged = decode(encode(a.merge(b).merge(c)))
    assert merged.n_rows == len(X)
    assert {merged[name].n_rows for name in merged} == {len(X)}
    fit, whole = sks.fit_prepare(X[:1], steps, fitted=merged), sks.fit_prepare(X, steps)
    assert fit.statistics == merged
    np.testing.assert_allclose(apply_steps(fit.steps, X), apply_steps(whole.steps, X), rtol=1e-12, atol=1e-12)


def test_medians_of_several_sources_merge_where_their_rows_are_numbered_on(counts):
    X = np.random.default_rng(0).random((1500, 4))
    parts = [sks.fit_prepare(X[a:b], ["impute(by=median)"], start=a).statistics for a, b in ((0, 600), (600, 1500))]
    assert (
        parts[0].merge(parts[1])["0 impute(by=median)"]
        == sks.fit_prepare(X, ["impute(by=median)"]).statistics["0 impute(by=median)"]
    )
    with pytest.raises(Incompatible, match="share row indices"):
        parts[0].merge(sks.fit_prepare(X[600:], ["impute(by=median)"]).statistics)


def test_later_steps_are_fitted_only_where_all_statistics_given_are_of_the_first(counts):
    given = sks.fit_prepare(counts, ["scale", "standardise"])
    with pytest.raises(Incompatible, match="none for prepare step '1 clip"):
        sks.fit_prepare(counts, ["scale", "clip(sd=1)"], fitted=given)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (["scale"], r"none for prepare step '0 scale'; they are of '0 standardise'"),
        (["l2", "standardise"], r"none for prepare step '1 standardise'"),
    ],
)
def test_statistics_of_other_steps_are_refused(counts, steps, message):
    given = sks.fit_prepare(counts, ["standardise"])
    with pytest.raises(Incompatible, match=message):
        sks.fit_prepare(counts, steps, fitted=given)


def test_statistics_after_other_steps_are_refused(counts):
    given = sks.fit_prepare(counts, ["log1p", "standardise"])
    with pytest.raises(Incompatible, match=r"of rows prepared by \['log1p'\], the steps before it here are \['l2'\]"):
        sks.fit_prepare(counts, ["l2", "standardise"], fitted=given)


def test_what_is_no_statistics_is_refused(counts):
    with pytest.raises(Incompatible, match="got a moments summary"):
        sks.fit_prepare(counts, ["scale"], fitted=sks.Moments().from_block(counts))
    with pytest.raises(BadParameter, match=r"prepare\.sks.*sketchselect\.load"):
        sks.fit_prepare(counts, ["scale"], fitted="prepare.sks")


def test_statistics_of_other_columns_are_refused_by_name(counts):
    import pandas as pd

    frames = [pd.DataFrame(counts[:, :3], columns=list(names)) for names in ("abc", "axc", "abc")]
    given = sks.fit_prepare(frames[0], ["scale"])
    with pytest.raises(Incompatible, match=r"column 1 .*'b'.*'x'"):
        sks.fit_prepare(frames[1], ["scale"], fitted=given)
    assert sks.fit_prepare(frames[2], ["scale"], fitted=given).labels == given.labels
    with pytest.raises(Incompatible, match="of 3 columns, the source has 2"):
        sks.fit_prepare(frames[2][["a", "b"]], ["scale"], fitted=given)


def test_steps_that_need_nothing_read_nothing(counts):
    def fail(*_):
        raise AssertionError("the source was read")

    matrix = sks.open_matrix(counts)
    matrix.read_rows = fail
    fit = sks.fit_prepare(matrix, ["library-size", "log1p", "l2", "clip(high=3)", "fourier(gamma=1)"])
    assert fit.statistics is None
    given = sks.fit_prepare(counts, ["tf-idf"])
    assert sks.fit_prepare(matrix, ["tf-idf"], fitted=given).labels == given.labels


def test_a_finished_pass_is_not_made_again(counts, tmp_path):
    np.save(tmp_path / "x.npy", counts)
    seen = []
    rules = sks.execution.Checkpoint(tmp_path / "nodes", min_bytes=0, min_seconds=0, state_ratio=0)
    for _ in range(2):
        source = Source(sks.open_matrix(tmp_path / "x.npy"), prepare=resolve(["tf-idf", "standardise"]))
        fit_steps(source, serial(checkpoint=rules, on_statistics=lambda s: seen.append(s.rows_read)))
    assert seen == [300, 300, 0, 0]


def test_each_pass_is_announced(counts):
    told = Recorder()
    sks.fit_prepare(counts, CELLS, progress=told)
    assert [text.split(" needs ")[0] for text in told.notes] == [
        "prepare: library-size(target=median)",
        "prepare: standardise",
        "prepare: clip(sd=2.0)",
    ]
    assert all("of all 300 rows" in text for text in told.notes)


def test_weights_count_in_means_and_spreads(counts):
    w = np.random.default_rng(0).integers(0, 4, 300)
    fit = sks.fit_prepare(counts, ["standardise"], sample_weight=w)
    repeated = np.repeat(counts, w, axis=0).astype(float)
    np.testing.assert_allclose(fit.steps[0].value("mean"), repeated.mean(axis=0), atol=1e-13)
    sd = repeated.std(axis=0)
    np.testing.assert_allclose(fit.steps[0].value("sd"), np.where(sd > 0, sd, np.inf), rtol=1e-12)
    s = sks.summarize(counts, sks.Moments(), prepare=["standardise"], sample_weight=w)
    np.testing.assert_allclose(s.mean, 0, atol=1e-13)


def test_dropped_rows_count_nowhere(counts):
    X = counts.astype(float)
    X[[3, 250], [0, 9]] = np.nan
    matrix = sks.open_matrix(X, nonfinite="drop_rows")
    kept = np.delete(counts, [3, 250], axis=0)
    assert sks.fit_prepare(matrix, ["tf-idf"]).labels == sks.fit_prepare(kept, ["tf-idf"]).labels


@pytest.mark.parametrize("entry", ["log1p", "standardise", "scale", "pilot-scale", "clip(low=1)", "clip(sd=1)"])
def test_steps_that_are_defined_for_missing_values_leave_them_missing(counts, entry):
    X = counts.astype(float)
    X[::7, 3] = np.nan
    steps = sks.fit_prepare(sks.open_matrix(X, nonfinite="missing"), [entry]).steps
    Z = apply_steps(steps, X)
    assert np.array_equal(np.isnan(Z), np.isnan(X))
    s = sks.summarize(sks.open_matrix(X, nonfinite="missing"), sks.ColumnStats(), prepare=[entry])
    np.testing.assert_allclose(s.mean, np.nanmean(Z, axis=0), atol=1e-13)
    assert s.missing[3] == np.isnan(X[:, 3]).sum()


@pytest.mark.parametrize("entry", ["l2", "library-size", "tf-idf", "fourier(gamma=1)"])
def test_steps_that_are_not_say_so(counts, entry):
    X = counts.astype(float)
    X[70, 3] = np.nan
    name = entry.split("(")[0]
    with pytest.raises(
        NotFinite, match=f"the step '{name}' is not defined for rows with missing values|first at row 70"
    ):
        sks.summarize(sks.open_matrix(X, nonfinite="missing"), sks.ColumnStats(), prepare=["log1p", entry])


def test_objective_and_certificate_take_the_same_steps(counts):
    Z = by_hand(counts.astype(float), CELLS)
    labels = np.arange(300) % 3
    reference = sum(((Z[labels == j] - Z[labels == j].mean(axis=0)) ** 2).sum() for j in range(3))
    objective = sks.kmeans_objective(counts, labels, 3, prepare=CELLS)
    assert objective == pytest.approx(reference, rel=1e-12)
    best = sks.certify(counts, objective, 3, method="blocks", prepare=CELLS)
    by_rows = sks.certify(Z, objective, 3, method="blocks")
    assert best.lower_bound == pytest.approx(by_rows.lower_bound, rel=1e-6)


def test_projection_counts_what_steps_hold_and_copy(counts):
    from sketchselect.execution.plan import projection
    from sketchselect.execution.tree import make_tree

    matrix = sks.open_matrix(counts.astype(float))
    partitions = row_partitions(matrix, 48_000)
    rows = partitions.edges[1]

    def bytes_of(*entries):
        steps = sks.fit_prepare(counts, entries).steps
        plan = make_tree(len(partitions), 48_000)
        source = Source(matrix, prepare=steps)
        result = projection(source, partitions, plan, Reduction(min, max), LocalEngine(kind="serial"))
        return result.reading + result.working

    plain = bytes_of()
    assert bytes_of("standardise") >= plain + 2 * rows * 60 * 8 + 2 * 60 * 8
    assert bytes_of("fourier(n_components=500, gamma=1)") >= plain + rows * 560 * 8 + 60 * 500 * 8


@pytest.mark.parametrize("dtype", ["?", "f2"])
def test_projection_counts_values_that_are_widened(dtype, tmp_path):
    np.save(tmp_path / "rows.npy", np.ones((1000, 60), dtype))
    matrix = sks.open_matrix(tmp_path / "rows.npy")
    source, partitions = Source(matrix), row_partitions(matrix, 480_000)
    assert matrix.read_rows(0, 1).dtype == np.float64
    assert reading_nbytes(source, partitions) >= 1000 * 60 * (8 + np.dtype(dtype).itemsize)
    kept = Source(matrix, prepare=sks.fit_prepare(np.eye(60), ["standardise"]).steps)
    assert min(prepared_nbytes(source, 3), prepared_nbytes(kept, 3)) >= 1000 * 60 * 8


def test_features_have_the_precision_of_the_steps():
    matrix = sks.open_matrix(np.eye(3, dtype=np.float16))
    assert feature_dtype(Source(matrix)) == np.float32
    assert feature_dtype(Source(matrix, prepare=resolve(["l2"]))) == np.float64


def test_members_keep_their_own_labels_in_a_file():
    X = np.random.default_rng(0).poisson(1.0, (50, 6))
    s = sks.fit_prepare(X, ["tf-idf", "standardise"]).statistics
    again = decode(encode(s))
    assert again == s
    assert [len(m.prepare) for m in again.values()] == [0, 1]


def test_a_model_of_prepared_rows_predicts_new_ones_with_their_statistics(counts):
    y = counts[:, 0] - 2.0 * counts[:, 9] + np.random.default_rng(0).standard_normal(300)
    fit = sks.fit_prepare(counts, ["log1p", "standardise"])
    model = sks.ThresholdedOLS(5).fit_summary(sks.summarize(counts, sks.Moments(), y=y, prepare=fit.steps))
    with pytest.raises(BadParameter, match=r"prepared by 'standardise#[0-9a-f]+', whose statistics .* set_prepare"):
        model.predict(counts)
    with pytest.raises(Incompatible, match=r"prepared by \['log1p', 'standardise#.*these steps are \['log1p'\]"):
        model.set_prepare(["log1p"])
    reference = sks.ThresholdedOLS(5).fit(apply_steps(fit.steps, counts), y).predict(apply_steps(fit.steps, counts[:7]))
    np.testing.assert_allclose(model.set_prepare(fit.steps).predict(counts[:7]), reference, rtol=1e-9)
