"""The same bits on worker processes as in this one."""

import os
import shutil
import signal

import numpy as np
import pytest
from tests.passing import Recorder, serial

from sketchselect.cluster import KMeans, fit_kmeans
from sketchselect.cluster.kmeans import passes
from sketchselect.execution import PassOptions, Source, local_cluster
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
    zarr.create_array(str(path), data=X, chunks=(500, 4))
    return path, X


def bits(result):
    return result.centers.tobytes() + result.labels.tobytes() + np.float64(result.inertia).tobytes()


@pytest.mark.parametrize("init", ["k-means||", "k-means++"])
def test_every_pass_on_workers(engine, store, monkeypatch, init):
    """Nothing is held here: every iteration reads the store again, on two processes."""
    monkeypatch.setattr(passes, "WORKER_SHARE", 0.0)
    monkeypatch.setattr(passes, "LEAST_PARTITION_NBYTES", 1 << 15)
    path, X = store
    weight = open_vector(np.random.default_rng(0).random(len(X)), len(X))
    source = Source(open_matrix(path), weight=weight, prepare=("l2",), columns=(0, 3, 4, 8))
    parameters = {"n_clusters": 7, "init": init, "max_iter": 4, "tol": 0.0}
    held = fit_kmeans(source, parameters, serial())
    small = fit_kmeans(source, parameters, PassOptions(engine))
    monkeypatch.setattr(passes, "LOCAL_NBYTES", 0)
    remote = fit_kmeans(source, parameters, PassOptions(engine))
    assert bits(remote) == bits(held) == bits(small)


@pytest.fixture
def on_workers(monkeypatch):
    """Make even small data too large for this process."""
    monkeypatch.setattr(passes, "LEAST_PARTITION_NBYTES", 1 << 15)
    monkeypatch.setattr(passes, "LOCAL_NBYTES", 0)


def test_blocks_stay_on_the_workers_between_iterations(engine, store, on_workers, tmp_path):
    """Once the first iteration has begun the store is gone, and nobody misses it."""
    path, X = store
    moved = shutil.copytree(path, tmp_path / "x.zarr")
    parameters = {"n_clusters": 7, "max_iter": 5, "tol": 0.0}
    told = Recorder("k-means: iteration 1", lambda: moved.rename(tmp_path / "gone.zarr"))
    weight = open_vector(np.random.default_rng(0).random(len(X)), len(X))
    outcome = fit_kmeans(Source(open_matrix(moved), weight=weight), parameters, PassOptions(engine, progress=told))
    assert any("workers' memory" in note for note in told.notes)
    assert not moved.exists()
    assert bits(outcome) == bits(fit_kmeans(Source(open_matrix(path), weight=weight), parameters, serial()))


def test_rows_in_our_memory_are_clustered_there(engine, store, on_workers):
    """However large they are, the cluster sees no iteration."""
    _, X = store
    told = Recorder("k-means: iteration 1", lambda: pytest.fail("an iteration ran on the cluster"))
    outcome = fit_kmeans(Source(open_matrix(X)), {"n_clusters": 7, "max_iter": 5}, PassOptions(engine, progress=told))
    assert any("clustered here" in note for note in told.notes)
    assert bits(outcome) == bits(fit_kmeans(Source(open_matrix(X)), {"n_clusters": 7, "max_iter": 5}, serial()))


def test_what_a_worker_held_is_read_again_when_it_dies(engine, store, on_workers):
    path, _ = store

    def kill():
        pids = engine.client.run(os.getpid)
        os.kill(next(iter(pids.values())), signal.SIGKILL)

    parameters = {"n_clusters": 7, "max_iter": 5, "tol": 0.0}
    source = Source(open_matrix(path))
    told = Recorder("k-means: iteration 3", kill)
    outcome = fit_kmeans(source, parameters, PassOptions(engine, progress=told))
    assert any("a worker died" in note for note in told.notes)
    assert bits(outcome) == bits(fit_kmeans(source, parameters, serial()))
    assert not engine.client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))


def test_an_array_persisted_on_the_cluster(engine, store):
    import dask.array as da

    _, X = store
    persisted = engine.client.persist(da.from_array(X, chunks=(500, 10)))
    outcome = KMeans(5).fit(persisted, client=engine)
    assert (
        outcome.cluster_centers_.tobytes()
        == KMeans(5).fit(da.from_array(X, chunks=(500, 10))).cluster_centers_.tobytes()
    )
