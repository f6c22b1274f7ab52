"""partial_fit: any batches give the same bits, close to what a fit on everything finds, whatever the order."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.cluster import KMeans as Theirs

from sketchselect.cluster import KMeans
from sketchselect.errors import BadParameter

from .data import blobs, exact_distances


def streamed(X, cuts, weights=None, n_clusters=6, **parameters):
    km = KMeans(n_clusters, **parameters)
    for a, b in zip((0, *cuts), (*cuts, X.shape[0]), strict=True):
        km.partial_fit(X[a:b], sample_weight=None if weights is None else weights[a:b])
    return km


@pytest.mark.parametrize("weighted", [False, True])
def test_batches_do_not_matter(weighted):
    X = blobs(1, 9000, 4, 6, separation=2.0)
    weights = np.random.default_rng(0).integers(0, 3, 9000).astype(float) if weighted else None
    bits = {
        streamed(X, cuts, weights).cluster_centers_.tobytes()
        for cuts in ((), (10, 200, 256, 257, 5000), (1, 2, 3), tuple(range(900, 9000, 900)))
    }
    assert len(bits) == 1


@pytest.mark.share(1)
@pytest.mark.parametrize("order", ["random", "sorted"])
def test_a_stream_is_clustered_nearly_as_well_as_all_rows_at_once(order):
    """A fixed sample of a quarter of the rows: within the error of the coreset, also when the groups come in turn."""
    rng = np.random.default_rng(2)
    X = blobs(2, 20000, 5, 8, separation=1.5)
    if order == "sorted":
        X = X[np.argsort(X[:, 0])]
    result = streamed(X, tuple(range(500, 20000, 500)), n_clusters=8, random_state=3)
    best = min(Theirs(8, n_init=5, random_state=s).fit(X[rng.permutation(20000)]).inertia_ for s in (0, 1))
    inertia = float(exact_distances(X, result.cluster_centers_).min(axis=1).sum())
    assert inertia <= 1.01 * best
    assert result.score(X) == pytest.approx(-inertia, rel=1e-10)


def test_asking_in_between_changes_nothing():
    X = blobs(3, 3000, 3)
    once, often = KMeans(4), KMeans(4)
    for a in range(0, 3000, 500):
        once.partial_fit(X[a : a + 500])
        assert often.partial_fit(X[a : a + 500]).cluster_centers_.shape == (4, 3)
    assert once.cluster_centers_.tobytes() == often.cluster_centers_.tobytes()
    assert once.n_rows_seen_ == 3000


def test_a_burst_of_far_rows_gets_a_centre():
    X = blobs(4, 6000, 3, 3)
    far = 500 + np.random.default_rng(4).standard_normal((30, 3))
    km = streamed(np.vstack([X, far]), (3000, 6000), n_clusters=4)
    assert np.linalg.norm(km.cluster_centers_ - 500, axis=1).min() < 2


def test_sparse_and_stored_batches(tmp_path):
    X = np.random.default_rng(5).poisson(0.5, (2000, 8)).astype(float)
    np.save(tmp_path / "x.npy", X[1000:])
    dense = streamed(X, (700,), n_clusters=3)
    mixed = KMeans(3).partial_fit(scipy.sparse.csr_array(X[:1000])).partial_fit(tmp_path / "x.npy")
    assert dense.cluster_centers_.tobytes() == mixed.cluster_centers_.tobytes()


def test_a_fit_begins_anew_and_so_does_a_stream_after_it():
    X = blobs(6, 800, 3)
    km = KMeans(4).partial_fit(X[:400]).fit(X)
    assert not hasattr(km, "n_rows_seen_")
    assert km.inertia_ == KMeans(4).fit(X).inertia_
    km.partial_fit(X[400:])
    assert km.n_rows_seen_ == 400
    assert not hasattr(km, "labels_")
    assert km.cluster_centers_.tobytes() == KMeans(4).partial_fit(X[400:]).cluster_centers_.tobytes()


def test_too_few_rows_are_told_when_centres_are_asked_for():
    km = KMeans(4).partial_fit(np.ones((3, 2)))
    with pytest.raises(BadParameter, match="n_samples=3 so far"):
        km.cluster_centers_
    with pytest.raises(AttributeError):
        KMeans(4).cluster_centers_
    with pytest.raises(ValueError, match="features"):
        km.partial_fit(np.ones((3, 5)))


@pytest.mark.parametrize(
    "parameters", [{"init": "bad"}, {"max_iter": -1}, {"tol": -1.0}, {"n_init": 0}, {"init": np.zeros((3, 2))}]
)
def test_parameters_out_of_range_are_refused_at_every_batch(parameters):
    with pytest.raises(BadParameter, match=next(iter(parameters))):
        KMeans(3, **parameters).partial_fit(np.eye(2))
    stream = KMeans(3).partial_fit(np.eye(2)).set_params(**parameters)
    with pytest.raises(BadParameter, match=next(iter(parameters))):
        stream.partial_fit(np.eye(2))


def test_a_stream_keeps_its_number_of_clusters():
    stream = KMeans(5).partial_fit(np.random.default_rng(0).random((40, 2))).set_params(n_clusters=3)
    with pytest.raises(BadParameter, match="n_clusters is 3, but this stream was begun with 5"):
        stream.partial_fit(np.eye(2))
