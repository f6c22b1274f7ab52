"""KMeans as a scikit-learn estimator."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.estimator_checks import run_checks
from tests.passing import serial

from sketchselect import KMeans, kmeans_objective
from sketchselect.cluster import objective_source
from sketchselect.cluster.kmeans.estimator import UnlikeUnits
from sketchselect.errors import BadBlock, BadParameter, SourceError
from sketchselect.execution import Source
from sketchselect.prepare.units import outweighing
from sketchselect.readers import open_matrix, open_vector

from .data import blobs, exact_distances, exact_sums


@pytest.mark.share(1)
@pytest.mark.filterwarnings("ignore::sketchselect.cluster.FewerClusters")
@pytest.mark.parametrize("part", range(3))
def test_scikit_learn_contract(part):
    run_checks([KMeans()], part, 3)


def test_predict_transform_score():
    X = blobs(1, 300, 4)
    km = KMeans(5, n_init=2).fit(X)
    new = blobs(2, 50, 4).astype(np.float32)
    exact = exact_distances(new, km.cluster_centers_)
    assert (km.predict(new) == exact.argmin(axis=1)).all()
    np.testing.assert_allclose(km.transform(new), np.sqrt(exact).astype(float), rtol=1e-12)
    np.testing.assert_allclose(km.score(new), -float(exact.min(axis=1).sum()), rtol=1e-12)
    assert (km.predict(X) == km.labels_).all()
    assert -km.score(X) == pytest.approx(km.inertia_, rel=1e-12)
    assert (KMeans(5, n_init=2).fit_predict(X) == km.labels_).all()
    np.testing.assert_array_equal(KMeans(5, n_init=2).fit_transform(X), km.transform(X))
    with pytest.raises(NotFittedError):
        KMeans().predict(X)


def test_pipeline_clone_set_output_and_names():

    frame = pd.DataFrame(blobs(3, 120, 3), columns=["a", "b", "c"])
    pipe = make_pipeline(StandardScaler().set_output(transform="pandas"), KMeans(4).set_output(transform="pandas"))
    out = clone(pipe).fit_transform(frame)
    assert list(out.columns) == ["kmeans0", "kmeans1", "kmeans2", "kmeans3"]
    km = KMeans(4).fit(frame)
    assert km.feature_names_in_.tolist() == ["a", "b", "c"]
    assert clone(KMeans(3, tol=0.5)).get_params()["tol"] == 0.5


def test_the_client_is_no_metadata():
    assert list(KMeans().get_metadata_routing().fit.requests) == ["sample_weight"]


def farthest_first(X, n_clusters, random_state):
    """Return rows far from each other, from a random one on: a function such as users write."""
    chosen = [random_state.randint(len(X))]
    while len(chosen) < n_clusters:
        chosen.append(int(((X[:, None] - X[chosen]) ** 2).sum(axis=2).min(axis=1).argmax()))
    return X[chosen]


def test_a_function_makes_the_first_centres():
    X = blobs(11, 300, 3, 5, separation=9.0)
    calls = []

    def init(rows, n_clusters, random_state):
        calls.append((rows, random_state.randint(1 << 30)))
        return farthest_first(rows, n_clusters, np.random.RandomState(0))

    once = KMeans(5, init=init, n_init=1).fit(X)
    rows = calls[0][0]
    assert sorted(map(tuple, rows)) == sorted(map(tuple, X))
    from_array = KMeans(5, init=farthest_first(rows, 5, np.random.RandomState(0))).fit(X)
    assert once.cluster_centers_.tolist() == from_array.cluster_centers_.tolist()
    calls.clear()
    KMeans(5, init=init, n_init=3).fit(X, sample_weight=np.arange(300) % 3)
    assert len(calls) == len({seed for _, seed in calls}) == 3
    assert len(calls[0][0]) == 200, "rows without weight are none"
    with pytest.raises(BadParameter, match=r"init has shape \(3, 3\), but n_clusters is 5"):
        KMeans(5, init=lambda rows, n_clusters, random_state: rows[:3]).fit(X)


def test_several_starts_of_a_function_are_compared():
    X = blobs(12, 400, 2, 4, separation=9.0)
    bad, good = np.zeros((4, 2)) + 1e-3 * np.arange(8).reshape(4, 2), farthest_first(X, 4, np.random.RandomState(0))
    starts = iter([bad, good, bad])
    best = KMeans(4, init=lambda rows, n_clusters, random_state: next(starts), n_init=3).fit(X)
    assert best.inertia_ <= KMeans(4, init=good).fit(X).inertia_ * (1 + 1e-12)


def test_sources_of_every_kind_give_the_same_clustering(tmp_path):
    import dask.array as da
    import zarr

    X = blobs(4, 500, 4).astype(np.float32)
    np.save(tmp_path / "x.npy", X)
    zarr.create_array(str(tmp_path / "x.zarr"), data=X, chunks=(100, 3))
    reference = KMeans(4).fit(X)
    for source in (str(tmp_path / "x.npy"), tmp_path / "x.zarr", da.from_array(X, chunks=(100, 4)), pd.DataFrame(X)):
        km = KMeans(4).fit(source)
        assert (km.labels_ == reference.labels_).all()
        np.testing.assert_allclose(km.inertia_, reference.inertia_, rtol=1e-12)
        assert km.n_features_in_ == 4
    assert (reference.predict(tmp_path / "x.zarr") == reference.labels_).all()
    np.save(tmp_path / "narrow.npy", X[:, :2])
    with pytest.raises(BadParameter, match="2 features"):
        reference.predict(tmp_path / "narrow.npy")


def test_random_state():
    X = blobs(5, 400, 3, 8, separation=1.0)
    fits = {s: KMeans(8, init="random", random_state=s).fit(X).inertia_ for s in (0, 1, 2)}
    assert fits[0] == KMeans(8, init="random", random_state=np.int64(0)).fit(X).inertia_
    assert len(set(fits.values())) > 1
    a = KMeans(8, init="random", random_state=np.random.RandomState(3)).fit(X).inertia_
    assert a == KMeans(8, init="random", random_state=np.random.RandomState(3)).fit(X).inertia_
    KMeans(8, random_state=None).fit(X)


@pytest.mark.slow
def test_rows_that_stay_sparse(monkeypatch):
    """Few stored entries, several partitions: what is found is what the same rows give when dense, to rounding."""
    from sketchselect.cluster.kmeans import passes

    monkeypatch.setattr(passes, "LEAST_PARTITION_NBYTES", 1 << 14)
    rng = np.random.default_rng(4)
    middle = np.zeros((4, 300))
    middle[np.repeat(np.arange(4), 5), np.arange(20)] = 9.0
    X = np.where(rng.random((3000, 300)) < 0.01, rng.standard_normal((3000, 300)), 0.0)
    X += middle[np.arange(3000) % 4]
    rows = scipy.sparse.csr_array(X)
    assert rows.nnz < 0.05 * X.size
    for init in ("k-means||", "k-means++", "random"):
        dense, given = KMeans(4, init=init, random_state=1).fit(X), KMeans(4, init=init, random_state=1).fit(rows)
        assert np.array_equal(given.labels_, dense.labels_)
        np.testing.assert_allclose(given.cluster_centers_, dense.cluster_centers_, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(given.inertia_, dense.inertia_, rtol=1e-9)
        assert np.array_equal(given.predict(rows), given.labels_)
        np.testing.assert_allclose(given.transform(rows), dense.transform(X), rtol=1e-9)


def test_sparse_rows_with_long_indices():
    X = scipy.sparse.random_array((60, 30), density=0.3, random_state=np.random.default_rng(0), format="csr")
    long = X.copy()
    long.indices, long.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    expected = KMeans(3).fit(X).cluster_centers_.tobytes()
    assert KMeans(3).fit(long).cluster_centers_.tobytes() == expected
    assert KMeans(3).fit(long.tocsc()).cluster_centers_.tobytes() == expected


def test_labels_of_a_dask_array_are_one_and_go_on_from_there():
    import dask.array as da

    X = np.random.default_rng(0).normal(size=(200, 4))
    lazy = da.from_array(X, chunks=((70, 130), 2))
    expected = KMeans(3, random_state=0).fit(X).labels_
    fitted = KMeans(3, random_state=0).fit(lazy)
    for labels in (fitted.labels_, KMeans(3, random_state=0).fit_predict(lazy)):
        assert isinstance(labels, da.Array)
        assert labels.chunks == ((70, 130),)
        assert labels.dtype == np.int32
        np.testing.assert_array_equal(labels.compute(), expected)
    np.testing.assert_allclose(kmeans_objective(lazy, fitted.labels_, 3), kmeans_objective(X, expected, 3), rtol=1e-12)
    smallest = da.where(fitted.labels_[:, None] == 0, lazy, 0).sum(axis=0)
    np.testing.assert_allclose(smallest.compute(), X[expected == 0].sum(axis=0), rtol=1e-12, atol=1e-12)


# The exact objective of a partition.


@pytest.mark.parametrize(("offset", "separation"), [(0.0, 3.0), (1e8, 3.0), (0.0, 1e7), (1e8, 1e7)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_brute_force_anywhere(offset, separation, dtype):
    X = (offset + blobs(1, 900, 5, separation=separation)).astype(dtype)
    labels = np.random.default_rng(1).integers(-1, 4, size=900)
    exact = float(exact_sums(X, labels, 4)[2].sum())
    assert kmeans_objective(X, labels, 4) == pytest.approx(exact, rel=1e-12)


def test_preparation_paths_weights_and_engines(tmp_path):
    X = blobs(2, 300, 4)
    labels = np.arange(300) % 3
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    exact = float(exact_sums(unit, labels, 3)[2].sum())
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "labels.npy", labels)
    result = kmeans_objective(tmp_path / "x.npy", tmp_path / "labels.npy", 3, prepare=["l2"], client="serial")
    assert isinstance(result, float)
    assert result == pytest.approx(exact, rel=1e-12)
    assert kmeans_objective(X, labels, 3, ["l2"], client="threads") == result
    weights = np.random.default_rng(0).random(300)
    source = Source(open_matrix(X), open_vector(labels, 300), open_vector(weights, 300))
    exact = float(exact_sums(X, labels, 3, weights)[2].sum())
    assert objective_source(source, 3, serial()) == pytest.approx(exact, rel=1e-12)


def test_errors():
    X = blobs(3, 30, 2)
    with pytest.raises(SourceError, match=r"30.*29|29.*30"):
        kmeans_objective(X, np.zeros(29, int), 2)
    with pytest.raises(BadBlock, match="below n_clusters = 2"):
        kmeans_objective(X, np.full(30, 2), 2)
    with pytest.raises(BadBlock, match="whole numbers"):
        kmeans_objective(X, np.full(30, 0.5), 2)
    with pytest.raises(BadParameter, match="n_clusters"):
        kmeans_objective(X, np.zeros(30, int), 0)
    with pytest.raises(BadParameter, match="prepare"):
        kmeans_objective(X, np.zeros(30, int), 1, prepare=["l3"])
    with pytest.raises(BadParameter, match="target"):
        objective_source(Source(open_matrix(X)), 2, serial())


def test_columns_of_unlike_units_are_named_once() -> None:
    X = np.random.default_rng(5).standard_normal((300, 6))
    units = X * [1, 1, 1, 1e4, 1, 1]
    frame = pd.DataFrame(units, columns=["age", "dose", "crp", "income", "size", "weight"])
    for rows, name in ((units, "3"), (np.rint(np.abs(units)), "3"), (frame, "'income'")):
        with pytest.warns(UnlikeUnits) as warned:
            KMeans(3, random_state=0).fit(rows)
        [text] = [str(warning.message) for warning in warned]
        assert text.startswith(f"k-means: Column {name} has 100.0 % of the variance of all 6 columns"), text
        assert 'prepare step "standardise"' in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        KMeans(3, random_state=0).fit(frame, prepare=["standardise"])
        KMeans(3, random_state=0).fit(X)
        # Rows of weight 0 have no part in distances.
        unused = np.vstack([X, units[:20]])
        KMeans(3, random_state=0).fit(unused, sample_weight=[1.0] * 300 + [0.0] * 20)


def test_units_are_looked_at_without_changing_the_rows() -> None:
    rows = np.random.default_rng(5).standard_normal((50, 120)) * np.where(np.arange(120) == 7, 1e4, 1.0)
    rows[0] = 0.0  # a row of counts among rows of a table
    before = rows.copy()
    assert outweighing(rows, None).startswith("Column 7 has 100.0 %")
    assert (rows == before).all()
    assert outweighing(np.rint(np.abs(rows)), None) == ""
    assert outweighing(np.ones((5, 3)), None) == ""
