"""The same bits on worker processes as in this one."""

from __future__ import annotations

import numpy as np
import pytest

from sketchselect.cluster import KMeans, fit_kmeans, kmeans_objective, passes
from sketchselect.execution import SerialEngine, Source, local_cluster
from sketchselect.readers import open_matrix, open_vector

from .data import blobs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def engine():
    with local_cluster(2) as engine:
        yield engine


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    import zarr

    X = blobs(1, 6000, 10, 7, separation=2.0).astype(np.float32)
    path = tmp_path_factory.mktemp("data") / "x.zarr"
    array = zarr.create_array(str(path), shape=X.shape, chunks=(500, 4), dtype="float32")
    array[:] = X
    return path, X


def bits(result):
    return result.centers.tobytes() + result.labels.tobytes() + np.float64(result.inertia).tobytes()


@pytest.mark.parametrize("init", ["k-means||", "k-means++"])
def test_every_pass_on_workers(engine, store, monkeypatch, init):
    """Nothing is held here: every iteration reads the store again, on two processes."""
    monkeypatch.setattr(passes, "LEAST_PARTITION_NBYTES", 1 << 15)
    path, X = store
    weight = open_vector(np.random.default_rng(0).random(len(X)), len(X))
    source = Source(open_matrix(path), weight=weight, prepare=("l2",)).select([0, 3, 4, 8])
    parameters = {"n_clusters": 7, "init": init, "max_iter": 4, "tol": 0.0}
    held = fit_kmeans(source, parameters, engine=SerialEngine())
    small = fit_kmeans(source, parameters, engine=engine)
    monkeypatch.setattr(passes, "LOCAL_NBYTES", 0)
    remote = fit_kmeans(source, parameters, engine=engine)
    assert bits(remote) == bits(held) == bits(small)


def test_estimator_and_objective(engine, store):
    path, _ = store
    here = KMeans(5).fit(path)
    there = KMeans(5).fit(path, client=engine)
    assert there.cluster_centers_.tobytes() == here.cluster_centers_.tobytes()
    assert kmeans_objective(path, here.labels_, 5, client=engine) == kmeans_objective(path, here.labels_, 5)


def test_an_array_persisted_on_the_cluster(engine, store):
    import dask.array as da

    _, X = store
    persisted = engine.client.persist(da.from_array(X, chunks=(500, 10)))
    found = KMeans(5).fit(persisted, client=engine)
    assert (
        found.cluster_centers_.tobytes() == KMeans(5).fit(da.from_array(X, chunks=(500, 10))).cluster_centers_.tobytes()
    )
