"""The end of k-means: rows that stay where they are have their labels and sums already."""

import numpy as np
import pytest
from scipy.sparse import random_array

from sketchselect.cluster import KMeans
from sketchselect.cluster.kmeans.lloyd import _scatter
from sketchselect.cluster.kmeans.passes import open_passes, prepared_nbytes
from sketchselect.errors import BadParameter
from sketchselect.execution import LocalEngine, PassOptions, Source
from sketchselect.linalg.kmeans import lloyd
from sketchselect.readers import open_matrix
from sketchselect.summaries import CentroidSums

from .data import blobs, exact_distances, exact_sums


def test_rows_that_stay_are_not_compared_once_more_for_their_labels(monkeypatch):
    sweeps = []
    whole = lloyd.sweep
    monkeypatch.setattr(lloyd, "sweep", lambda *a, **k: (sweeps.append(1), whole(*a, **k))[1])
    X = blobs(4, 300, 3)
    for weights in (None, np.arange(300) % 3):
        sweeps.clear()
        model = KMeans(4, init=X[:4], tol=0.0).fit(X, sample_weight=weights)
        assert len(sweeps) == model.n_iter_ < 300
        exact = exact_distances(X, model.cluster_centers_)
        assert (model.labels_ == exact.argmin(axis=1)).all()
        weight, mean, _ = exact_sums(X, model.labels_, 4, weights)
        assert (model.cluster_weights_ == weight).all()
        np.testing.assert_allclose(model.cluster_centers_, mean.astype(float), rtol=1e-11)
        inertia = ((1 if weights is None else weights) * exact.min(axis=1)).sum()
        np.testing.assert_allclose(model.inertia_, float(inertia), rtol=1e-12)
    sweeps.clear()
    stopped = KMeans(4, init=X[:4], tol=0.0, max_iter=1).fit(X)
    assert len(sweeps) == 2
    assert (stopped.labels_ == exact_distances(X, stopped.cluster_centers_).argmin(axis=1)).all()


def nbytes_of(stored):
    """Return the bytes of all arrays that an object stores."""
    if isinstance(stored, np.ndarray):
        return stored.nbytes
    parts = stored.values() if isinstance(stored, dict) else stored if isinstance(stored, tuple) else ()
    return sum(map(nbytes_of, parts)) + (nbytes_of(vars(stored)) if hasattr(stored, "__dict__") else 0)


@pytest.mark.parametrize("shape", [(600, 40), (60, 4000), (64, 40_000)])
@pytest.mark.parametrize("kind", ["float32", "float64", "sparse"])
def test_what_is_remembered_of_rows_is_part_of_their_bytes(shape, kind):
    if kind == "sparse":
        X = random_array(shape, density=0.01, rng=np.random.default_rng(0), format="csr")
    else:
        X = blobs(7, *shape).astype(kind)
    source = Source(open_matrix(X))
    centers = np.random.default_rng(1).standard_normal((20, shape[1]))
    # Given centres are those of the caller, and the same for all blocks.
    with open_passes(source, 20, PassOptions(LocalEngine(kind="serial"), partition_bytes=1 << 20)) as passes:
        passes.iterate(CentroidSums(centers=centers), "sums")
        blocks = passes.source.blocks.values()
        remembered = sum(nbytes_of(block.memory) for block in blocks) - centers.nbytes * len(blocks)
        taken = sum(nbytes_of(vars(block)["values"]) for block in blocks)
    assert taken + remembered <= prepared_nbytes(source, 20)


@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_the_spread_of_the_rows_follows_from_any_clusters(offset):
    X = offset + blobs(5, 400, 6)
    mean = X.astype(np.longdouble).mean(axis=0)
    exact = float(((X - mean) ** 2).sum())
    for n_clusters in (1, 3, 40):
        # The last centre attracts no row.
        centers = np.concatenate([X[: n_clusters - 1], [np.full(6, offset + 1e3)]]) if n_clusters > 1 else X[:1]
        np.testing.assert_allclose(_scatter(CentroidSums(centers=centers).from_block(X)), exact, rtol=1e-10)


def test_given_centres_are_not_more_than_the_rows():
    X = blobs(6, 300, 4)
    with pytest.raises(BadParameter, match="n_clusters=6 but n_samples=5"):
        KMeans(6, init=X[:6]).fit(X[:5])
    X[2:] = np.nan
    with pytest.raises(BadParameter, match="n_clusters=3 but n_samples=2"):
        KMeans(3, init=np.eye(3, 4)).fit(open_matrix(X, nonfinite="drop_rows"))
