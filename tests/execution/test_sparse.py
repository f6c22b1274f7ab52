"""Sparse sources through a whole pass: never dense, cut by their entries, the same bits everywhere, named when bad."""

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from tests.data_sets import data_set_path

import sketchselect as sks
from sketchselect.errors import BadParameter, NotFinite, SketchSelectError, WillNotFit
from sketchselect.execution import (
    Checkpoint,
    LocalEngine,
    PassOptions,
    Source,
    open_engine,
    summarize,
    summarize_source,
)
from sketchselect.execution.api import open_source
from sketchselect.execution.engine import source_partitions
from sketchselect.execution.plan import projection, reading_nbytes
from sketchselect.execution.summarize import plan_summary
from sketchselect.execution.tasks import Reduction, Span, run_leaf
from sketchselect.execution.tree import make_tree
from sketchselect.linalg.csr import as_csr, split_columns
from sketchselect.linalg.validation import is_csr
from sketchselect.readers import convert, open_matrix, row_partitions
from sketchselect.readers.base import even_partitions
from sketchselect.selectors import VarianceSelector
from sketchselect.summaries import Bundle, ColumnStats, Folds, FrequentDirections, LeverageSample, Moments
from sketchselect.workflow.stages.features import View, write_features

DESCRIPTION = {"directions": FrequentDirections(8), "stats": ColumnStats(), "moments": Moments()}


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(7)
    out = sp.random_array(
        (900, 150), density=0.03, format="csr", random_state=rng, data_sampler=lambda size: rng.poisson(2, size)
    )
    out = out.tolil()
    out[100:200] = 0
    out[300] = 1.0
    return as_csr(out.astype(float))


def test_blocks_are_sparse_exactly_where_they_are_taken(X):
    matrix = open_matrix(X)
    assert is_csr(Source(matrix, takes_sparse=True).block(0, 50).values)
    plain = Source(matrix).block(0, 50).values
    assert type(plain) is np.ndarray
    assert np.array_equal(plain, X[:50].toarray())
    chosen = Source(matrix, columns=(3, 5, 77), takes_sparse=True).block(280, 320).values
    assert is_csr(chosen)
    assert np.array_equal(chosen.toarray(), X.toarray()[280:320][:, [3, 5, 77]])


def test_bands_hold_what_they_may_and_stay_where_they_are_when_rows_are_appended(X):
    matrix, longer = open_matrix(X), open_matrix(sp.vstack([X, X[:333]], format="csr"))
    per_row = np.diff(X.indptr)
    for size in (16 * 60, 16 * 400):
        partitions = row_partitions(matrix, size, sparse=True)
        assert partitions.edges[0] == 0
        assert partitions.edges[-1] == 900
        for a, b in (partitions[i] for i in range(len(partitions))):
            held = int(per_row[a:b].sum())
            assert held * 16 <= size or b == a + 1, "too much in a partition"
            assert b == 900 or (held + per_row[b]) * 16 > size, "a partition could have had one more row"
        assert row_partitions(longer, size, sparse=True).edges[: len(partitions)] == partitions.edges[:-1]
    assert np.diff(row_partitions(matrix, 16 * 400, sparse=True, dense_columns=100).edges).max() <= 8
    assert row_partitions(matrix, 16 * 400).edges[1] == 16 * 400 // (8 * 150), "dense blocks are cut by rows x columns"
    even = even_partitions(matrix, 16 * 400, 10)
    assert len(set(np.diff(even.edges)[:-1])) == 1
    assert max(int(per_row[a:b].sum()) for a, b in (even[i] for i in range(len(even)))) * 16 <= 16 * 400


@pytest.mark.parametrize(
    ("description", "sparse"),
    [
        (FrequentDirections(8), True),
        (Bundle(ColumnStats(), Moments()), True),
        (Bundle(ColumnStats(), LeverageSample()), False),
        (LeverageSample(), False),
        (Moments(missing="pairwise"), False),
    ],
)
def test_what_takes_no_sparse_rows_gets_dense_partitions(X, description, sparse):
    assert description.accepts_sparse == sparse
    source = Source(open_matrix(X), takes_sparse=description.accepts_sparse)
    edges = source_partitions(source, 8 * 150 * 40).edges
    assert (np.diff(edges).max() == 40) == (not sparse)


def test_the_same_bits_for_any_engine_and_format(X, tmp_path):
    sp.save_npz(tmp_path / "x.npz", sp.csr_array(X))
    options = {"partition_bytes": 16 * 300, "sample_weight": np.arange(900) % 3}
    expected = summarize(X, DESCRIPTION, client="serial", **options)
    for source in (X, X.tocsc(), sp.csr_matrix(X), str(tmp_path / "x.npz")):
        assert summarize(source, DESCRIPTION, client="threads", **options) == expected
    dense = summarize(X.toarray(), DESCRIPTION, **options)
    assert np.allclose(expected["moments"].covariance(), dense["moments"].covariance(), rtol=1e-11, atol=1e-13)
    assert np.allclose(expected["stats"].variance, dense["stats"].variance, rtol=1e-12, atol=0)
    assert np.array_equal(expected["stats"].nonzero, dense["stats"].nonzero)


def test_checkpoints_of_sparse_rows_survive_appended_rows(X, tmp_path):
    options = {
        "partition_bytes": 80_000,
        "checkpoint": Checkpoint(tmp_path / "kept", min_bytes=1, state_ratio=0, min_seconds=0),
    }
    many = sp.vstack([X] * 30, format="csr")
    longer = sp.vstack([many, X[:200]], format="csr")
    with open_engine("serial") as engine:
        first = summarize_source(Source(open_matrix(many)), ColumnStats(), PassOptions(engine, **options))
        again = summarize_source(Source(open_matrix(longer)), ColumnStats(), PassOptions(engine, **options))
    assert first.stats.n_partitions > 10
    assert first.stats.rows_read == 27_000
    assert first.stats.bytes_read == 12 * many.nnz
    # Beside the new rows, only those of the last partition, which was not full.
    assert 200 <= again.stats.rows_read < 3000
    assert again.value == summarize(longer, ColumnStats(), partition_bytes=80_000, client="serial")


@pytest.mark.parametrize("policy", ["error", "drop_rows"])
def test_nan_is_named_or_costs_its_row(X, policy):
    bad = X.copy()
    place = int(bad.indptr[450])
    bad.data[place] = np.nan
    matrix = open_matrix(bad, nonfinite=policy)
    if policy == "error":
        with pytest.raises(NotFinite, match=f"the first at row 450, column {bad.indices[place]}"):
            summarize(matrix, ColumnStats(), partition_bytes=16 * 300)
        return
    result = summarize(matrix, ColumnStats(), partition_bytes=16 * 300)
    assert result.n_rows == 899
    rest = np.delete(X.toarray(), 450, axis=0)
    assert np.array_equal(result.nonzero, (rest != 0).sum(axis=0))


def test_missing_values_are_counted():
    values = np.where(np.random.default_rng(0).random((200, 30)) < 0.03, 2.0, 0.0)
    values[[3, 90, 150], [4, 4, 20]] = np.nan
    result = summarize(open_matrix(sp.csr_array(values), nonfinite="missing"), ColumnStats())
    assert np.array_equal(result.missing, np.isnan(values).sum(axis=0))
    assert np.allclose(result.mean, np.nanmean(values, axis=0), rtol=1e-14)
    assert np.allclose(result.variance, np.nanvar(values, axis=0), rtol=1e-13)
    assert np.array_equal(result.minimum, np.nanmin(values, axis=0))
    assert np.array_equal(result.nonzero, ((values != 0) & ~np.isnan(values)).sum(axis=0))


def test_moments_in_panels_are_those_of_one_pass(X, monkeypatch):
    from sketchselect.summaries import moment_panels as tiles

    y = np.arange(900.0)
    whole = summarize(X, Moments(), y=y)
    monkeypatch.setattr(tiles, "PANELS_ABOVE", 100)
    monkeypatch.setattr(tiles, "PANEL_NBYTES", 8 * 150 * 30)
    result = summarize(X, Moments(), y=y, partition_bytes=16 * 500)
    size = np.sqrt(np.outer(whole.covariance().diagonal(), whole.covariance().diagonal()))
    assert (np.abs(result.covariance() - whole.covariance()) <= 1e-13 * size).all()
    assert np.allclose(result.xy, whole.xy, rtol=1e-11, atol=1e-11 * np.abs(whole.xy).max())


def test_columns_are_written_and_the_view_is_taken_without_dense_rows(X, tmp_path):
    axes = np.linalg.qr(np.random.default_rng(1).standard_normal((150, 2)))[0]
    view = View(np.asarray(X.mean(axis=0)), axes)
    support = np.array([2, 3, 50, 149])
    with open_engine("serial") as engine:
        result = write_features(
            Source(open_matrix(X)), support, tmp_path / "f.zarr", view, 0, PassOptions(engine, partition_bytes=16 * 300)
        )
    written = zarr.open_array(str(tmp_path / "f.zarr"), mode="r")
    dense = X.toarray()
    assert np.array_equal(written[:], dense[:, support])
    assert np.allclose(result.value.points, (dense[result.value.rows] - view.mean) @ axes, rtol=1e-12, atol=1e-12)


def test_selectors_on_sparse_stores(X, tmp_path):
    sp.save_npz(tmp_path / "x.npz", sp.csr_array(X))
    selector = VarianceSelector(n_features_to_select=20).fit(str(tmp_path / "x.npz"))
    reference = np.sort(np.argsort(-X.toarray().var(axis=0), kind="stable")[:20])
    assert selector.support_.tolist() == reference.tolist()
    taken = selector.transform(str(tmp_path / "x.npz"))
    assert is_csr(taken)
    assert np.array_equal(taken.toarray(), X.toarray()[:, reference])
    streamed = VarianceSelector(n_features_to_select=20)
    for a in range(0, 900, 300):
        streamed.partial_fit(X[a : a + 300])
    assert streamed.support_.tolist() == reference.tolist()


def test_the_projection_counts_entries_and_not_columns():
    wide = sp.random_array((5000, 20_000), density=0.002, format="csr", random_state=np.random.default_rng(0))
    source = Source(open_matrix(wide), takes_sparse=True)
    with open_engine("serial") as engine:
        for size in (2**18, 2**22):
            partitions = source_partitions(source, size)
            plan = make_tree(len(partitions), size, 10)
            reading = projection(
                source, partitions, plan, Reduction(min, max, state_nbytes=10, working_nbytes=10), engine
            ).reading
            entries = max(np.diff(wide.indptr[list(partitions.edges)]))
            assert 2.5 * 16 * entries <= reading <= 10 * 16 * entries
    limited = LocalEngine(n_threads=1, memory_limit=2**20)
    with pytest.raises(WillNotFit):
        summarize(wide, ColumnStats(), client=limited)


@pytest.mark.parametrize(("dtype", "per_entry"), [("float32", 8 + 48), ("float64", 12 + 64)])
def test_the_projection_of_an_archive_counts_its_rows_once_and_the_columns_that_become_dense(
    dtype, per_entry, tmp_path
):
    made = sp.random_array((8000, 40), density=0.26, format="csr", random_state=np.random.default_rng(0))
    sp.save_npz(tmp_path / "x.npz", sp.csr_array((made.data.astype(dtype), made.indices, made.indptr), (8000, 400)))
    source = Source(open_matrix(tmp_path / "x.npz"), takes_sparse=True)
    reading = reading_nbytes(source, source_partitions(source, 2**25))
    assert reading <= per_entry * made.nnz + 64 * 8000
    block = source.block(0, 8000).values
    split_columns(block).centered(np.ones(8000))  # Loads kernels
    tracemalloc.start()
    try:
        split = split_columns(block)
        assert split.full.size == 40
        kept = split.centered(np.ones(8000)), split.sparse
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    del kept
    stored = 4 + np.dtype(dtype).itemsize  # of a copy, as folds make of their rows
    assert taken + stored * made.nnz <= reading


def planned(rows, description, weights=None, y=None):
    source = open_source(rows, y, weights, ())
    _, (plan,) = plan_summary(source, description, PassOptions(LocalEngine(kind="serial"), partition_bytes=2**28))
    return plan


def stated(plan):
    return plan.projected.reading + plan.projected.states + plan.projected.working


def taken(plan):
    n = plan.source.n_rows
    leaf, spans = plan.context, [Span(0, 0, n, 1)]
    run_leaf(leaf, spans)  # Loads kernels
    tracemalloc.start()
    try:
        kept = run_leaf(leaf, spans)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert kept.value.n_rows == n
    return peak


@pytest.mark.parametrize("has_target", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("description", [FrequentDirections(16), Moments(), ColumnStats()], ids=lambda d: d.kind)
def test_columns_that_the_weight_of_one_row_makes_full_are_in_the_projection(description, dtype, has_target):
    rng, n = np.random.default_rng(0), 40_000
    rows = sp.random_array((n, 600), density=20 / 600, format="csr", random_state=rng)
    first = sp.random_array((1, 600), density=155 / 600, format="csr", random_state=rng)
    rows = sp.csr_array(sp.vstack([first, rows[1:]])).astype(dtype)
    y = rng.standard_normal((n, 3)) if has_target else None
    plan = planned(rows, description, np.where(np.arange(n) == 0, 1e9, 1.0), y)
    assert taken(plan) <= stated(plan)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "description",
    [FrequentDirections(16, half_life=100.0), Moments(half_life=100.0), Bundle(Moments(), FrequentDirections(8, 50.0))],
    ids=lambda d: d.kind,
)
def test_columns_that_full_rows_at_the_end_make_full_by_decay_are_in_the_projection(description, weighted):
    rng, n = np.random.default_rng(0), 40_000
    rows = sp.random_array((n - 200, 600), density=13 / 600, format="csr", random_state=rng)
    last = sp.random_array((200, 600), density=520 / 600, format="csr", random_state=rng)
    plan = planned(
        sp.csr_array(sp.vstack([rows, last])).astype("float32"), description, rng.random(n) if weighted else None
    )
    assert taken(plan) <= stated(plan)


@pytest.mark.parametrize("description", [FrequentDirections(16), Moments()], ids=lambda d: d.kind)
def test_the_projection_with_ordinary_weights_is_near_that_without(description):
    rng, n = np.random.default_rng(0), 40_000
    rows = sp.random_array((n, 600), density=20 / 600, format="csr", random_state=rng).astype("float32")
    without = stated(planned(rows, description))
    ordinary = {"uniform": rng.random(n), "lognormal": rng.lognormal(0, 2, n), "1/0": 1.0 * (rng.random(n) < 0.5)}
    for name, weights in ordinary.items():
        plan = planned(rows, description, weights)
        assert taken(plan) <= stated(plan), name
        assert stated(plan) <= 1.5 * without, name
        assert "weights" not in plan.projected.sentence()
    worst = planned(rows, description, np.where(np.arange(n) == np.diff(rows.indptr).argmax(), 1e9, 1.0))
    # The fullest row has twice the entries of the others.
    assert stated(worst) > 1.15 * without
    assert taken(worst) <= stated(worst)


def test_the_projection_says_that_weights_are_not_known_before_the_pass(tmp_path):
    rng, n = np.random.default_rng(0), 4_000
    rows = sp.random_array((n, 600), density=20 / 600, format="csr", random_state=rng).astype("float32")
    np.save(tmp_path / "w.npy", rng.random(n))
    known, read = (planned(rows, FrequentDirections(16), w) for w in (rng.random(n), str(tmp_path / "w.npy")))
    assert stated(read) > stated(known)
    assert "(assuming the most unequal weights: they are known only in the pass)" in read.projected.sentence()
    folds = planned(rows, Folds(Moments(), 3), rng.random(n))
    assert "most unequal weights" in folds.projected.sentence()


@pytest.mark.slow
def test_a_dask_cluster_is_sent_the_rows_that_it_needs(X, engine):
    options = {"partition_bytes": 16 * 300, "y": np.arange(900.0)}
    expected = summarize(X, DESCRIPTION, client="serial", **options)
    assert summarize(X, DESCRIPTION, client=engine, **options) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["made", "TDT2", "20Newsgroups_tf"])
def test_peak_memory_of_a_pass_over_documents(name, tmp_path):
    if name == "made":
        path, rng = tmp_path / "made.npz", np.random.default_rng(0)
        sp.save_npz(path, sp.random_array((7000, 50_000), density=1e-3, format="csr", random_state=rng))
    else:
        path = data_set_path(name)
    code = """
import resource, sys
import sketchselect as sks
s = sks.summarize(
    sys.argv[1],
    {"directions": sks.FrequentDirections(30), "stats": sks.ColumnStats()},
    prepare=["l2"],
    partition_bytes="8MiB",
)
assert s["directions"].shrinkage > 0
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True, timeout=600
    )
    # Dense, the rows alone would take 2.8 GB and more.
    assert int(ran.stdout) < 1.5e9


@pytest.mark.slow
@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_matrix])
def test_sparse_blocks_of_a_dask_array_stay_sparse(X, kind, engine, tmp_path):
    import dask.array as da

    lazy = da.from_array(X.toarray(), chunks=(100, 70)).map_blocks(kind)
    assert is_csr(Source(open_matrix(lazy), takes_sparse=True).block(250, 350).values)
    expected = summarize(X, DESCRIPTION, partition_bytes="1 kB")["moments"]
    results = [summarize(lazy, DESCRIPTION, client=client) for client in (None, engine)]
    assert results[0] == results[1]
    np.testing.assert_allclose(results[0]["moments"].covariance(), expected.covariance(), rtol=1e-12, atol=1e-15)
    assert np.array_equal(open_matrix(lazy).read_columns(3, 9), X.toarray()[:, 3:9])
    stored = open_matrix(convert(lazy, tmp_path / "rows.zarr"))
    assert stored.is_sparse
    assert np.array_equal(stored.read_rows(0, 900).toarray(), X.toarray())


# The policy "missing": NaN reach the summaries that take them, and nothing else, on every engine.


@pytest.fixture
def holes():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 5))
    X[rng.random(X.shape) < 0.2] = np.nan
    return X


def brute(X, i, j):
    both = ~np.isnan(X[:, i] + X[:, j])
    return np.cov(X[both, i], X[both, j], ddof=0)[0, 1]


@pytest.mark.parametrize("client", ["serial", "threads"])
def test_missing_values_reach_the_summaries_that_take_them(holes, client):
    source = sks.open_matrix(holes, nonfinite="missing")
    expected = {"stats": sks.ColumnStats(), "moments": sks.Moments(missing="pairwise")}
    result = sks.summarize(source, expected, partition_bytes=1000, client=client)
    assert np.array_equal(result["stats"].missing, np.isnan(holes).sum(axis=0))
    covariance = result["moments"].covariance()
    for i in range(5):
        for j in range(5):
            assert covariance[i, j] == pytest.approx(brute(holes, i, j), rel=1e-11)
    assert result["moments"].n_rows == 400


def test_from_a_store_with_checkpoints(tmp_path, holes):
    np.save(tmp_path / "x.npy", holes)
    source = sks.open_matrix(tmp_path / "x.npy", nonfinite="missing")
    description = Folds(sks.Moments(missing="pairwise"), 2)
    first = sks.summarize(source, description, partition_bytes=1000, checkpoint=tmp_path / "kept")
    again = sks.summarize(source, description, partition_bytes=1000, checkpoint=tmp_path / "kept")
    assert first == again
    assert first.total.covariance()[0, 1] == pytest.approx(brute(holes, 0, 1), rel=1e-11)
    with pytest.raises(NotFinite):
        sks.summarize(tmp_path / "x.npy", description, partition_bytes=1000, checkpoint=tmp_path / "kept")


@pytest.mark.parametrize(
    "description", [sks.Moments(), sks.FrequentDirections(3), {"a": sks.ColumnStats(), "b": sks.Moments()}]
)
def test_others_are_refused_them_in_one_line(holes, description):
    source = sks.open_matrix(holes, nonfinite="missing")
    row, column = np.argwhere(np.isnan(holes))[0]
    with pytest.raises(NotFinite, match=f"row {row}, column {column}; .*drop_rows") as caught:
        sks.summarize(source, description)
    assert "\n" not in str(caught.value)
    full = sks.open_matrix(np.nan_to_num(holes), nonfinite="missing")
    sks.summarize(full, description)


def test_clustering_is_refused_them(holes):
    source = sks.open_matrix(holes, nonfinite="missing")
    with pytest.raises(SketchSelectError, match="missing values"):
        sks.KMeans(2).fit(source)


def test_infinity_and_prepare_steps_are_no_missing_values(holes):
    description = sks.Moments(missing="pairwise")
    with pytest.raises(NotFinite, match="'l2'"):
        sks.summarize(sks.open_matrix(holes, nonfinite="missing"), description, prepare=["l2"])
    holes[17, 3] = np.inf
    with pytest.raises(NotFinite, match="1 infinite"):
        sks.summarize(sks.open_matrix(holes, nonfinite="missing"), description)


def test_the_other_policies_are_as_they_were(holes):
    description = sks.Moments(missing="pairwise")
    with pytest.raises(NotFinite, match='nonfinite = "missing"'):
        sks.summarize(holes, description)
    whole = sks.summarize(sks.open_matrix(holes, nonfinite="drop_rows"), description)
    good = holes[~np.isnan(holes).any(axis=1)]
    assert whole.n_rows == len(good)
    assert np.allclose(whole.covariance(), np.cov(good.T, ddof=0))
    with pytest.raises(BadParameter, match='"missing"'):
        sks.open_matrix(holes, nonfinite="ignore")
