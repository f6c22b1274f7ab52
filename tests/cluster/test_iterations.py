"""Iterations kept in a checkpoint: a run that is killed goes on from its last one, to the same bits."""

import os
import signal
import subprocess
import sys
import time

import dask.array as da
import numpy as np
import pytest
import zarr
from tests.passing import Recorder, flip, serial

from sketchselect._progress import Progress
from sketchselect.cluster import fit_kmeans
from sketchselect.cluster.kmeans import lloyd
from sketchselect.errors import PartitionFailed
from sketchselect.execution import Checkpoint, Source
from sketchselect.readers import open_matrix, open_vector

from .data import blobs

PARAMETERS = {"n_clusters": 6, "tol": 0.0, "max_iter": 60}


@pytest.fixture
def store(tmp_path):
    X = blobs(3, 4000, 6, 6, separation=1.0)
    zarr.create_array(str(tmp_path / "x.zarr"), data=X, chunks=(1000, 6))
    return tmp_path / "x.zarr"


def run(store, folder, progress=None, **parameters):
    kept = Checkpoint(folder, min_seconds=1e9)
    source = Source(open_matrix(store))
    return fit_kmeans(source, PARAMETERS | parameters, serial(checkpoint=kept, progress=progress or Progress()))


def bits(result):
    return result.centers.tobytes(), result.labels.tobytes(), result.inertia, result.n_iter, result.converged


def test_a_finished_run_is_gone_on_with(store, tmp_path, monkeypatch):
    monkeypatch.setattr(lloyd, "KEEP_SECONDS", 0.0)
    plain = fit_kmeans(Source(open_matrix(store)), PARAMETERS, serial())
    short = run(store, tmp_path / "kept", max_iter=3)
    assert not short.converged
    told = Recorder()
    assert bits(run(store, tmp_path / "kept", told)) == bits(plain)
    assert any("resuming after iteration 3" in note for note in told.notes)
    told = Recorder()
    assert bits(run(store, tmp_path / "kept", told)) == bits(plain)
    assert any(f"resuming after iteration {plain.n_iter}" in note for note in told.notes)
    # One file: each takes the place of the one before.
    assert len(list((tmp_path / "kept").rglob("*.sks"))) == 1


def test_any_number_of_iterations_may_be_allowed(store, tmp_path, monkeypatch):
    """None of 10^30 names of files is looked for one by one."""
    monkeypatch.setattr(lloyd, "KEEP_SECONDS", 0.0)
    runs = [run(store, tmp_path / "kept", max_iter=10**30) for _ in range(2)]
    assert bits(runs[0]) == bits(runs[1])


@pytest.mark.share(1)
@pytest.mark.parametrize("change", ["rows", "weights", "seed", "clusters"])
def test_other_rows_or_settings_start_anew(store, tmp_path, monkeypatch, change):
    monkeypatch.setattr(lloyd, "KEEP_SECONDS", 0.0)
    run(store, tmp_path / "kept", max_iter=3)
    more = {"seed": {"random_state": 1}, "clusters": {"n_clusters": 5}}.get(change, {})
    weight = None
    if change == "rows":
        time.sleep(0.01)
        zarr.open_array(str(store))[:5] = 0.0
    if change == "weights":
        weight = open_vector(np.linspace(1, 2, 4000), 4000)
    source = Source(open_matrix(store), weight=weight)
    told = Recorder()
    kept = Checkpoint(tmp_path / "kept")
    outcome = fit_kmeans(source, PARAMETERS | more, serial(checkpoint=kept, progress=told))
    assert not any("going on" in note for note in told.notes)
    assert bits(outcome) == bits(fit_kmeans(source, PARAMETERS | more, serial()))


def test_a_damaged_file_is_named_and_the_run_starts_anew(store, tmp_path, monkeypatch):
    monkeypatch.setattr(lloyd, "KEEP_SECONDS", 0.0)
    plain = run(store, tmp_path / "kept")
    (path,) = (tmp_path / "kept").rglob("*.sks")
    flip(path)
    told = Recorder()
    assert bits(run(store, tmp_path / "kept", told)) == bits(plain)
    assert any(str(path) in note and "damaged" in note for note in told.notes)


def test_rows_without_an_identity_are_not_kept_and_this_is_said(tmp_path):
    told = Recorder()
    source = Source(open_matrix(da.from_array(blobs(1), chunks=(100, 5)).map_blocks(abs)))
    fit_kmeans(source, {"n_clusters": 2}, serial(checkpoint=Checkpoint(tmp_path / "k"), progress=told))
    assert any("no identity" in note for note in told.notes)
    assert not (tmp_path / "k").exists()


SCRIPT = """
import sys, time
from sketchselect.cluster import fit_kmeans
from sketchselect.cluster.kmeans import lloyd
from sketchselect.execution import Checkpoint, LocalEngine, PassOptions, Source
from sketchselect.readers import open_matrix
lloyd.KEEP_SECONDS = 0.0
keep = lloyd.Iterations.keep
def slow(self, iteration, sums):
    keep(self, iteration, sums)
    print(iteration, flush=True)
    time.sleep(0.2)
lloyd.Iterations.keep = slow
store, folder = sys.argv[1:]
options = PassOptions(LocalEngine(kind="serial"), checkpoint=Checkpoint(folder))
fit_kmeans(Source(open_matrix(store)), {parameters}, options)
"""


@pytest.mark.slow
def test_a_killed_process_goes_on_from_its_last_iteration(store, tmp_path):
    plain = fit_kmeans(Source(open_matrix(store)), PARAMETERS, serial())
    assert plain.n_iter > 6
    command = [sys.executable, "-c", SCRIPT.replace("{parameters}", repr(PARAMETERS)), str(store), str(tmp_path / "k")]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        for line in child.stdout:
            if int(line) == 4:
                break
        os.kill(child.pid, signal.SIGKILL)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    told = Recorder()
    assert bits(run(store, tmp_path / "k", told)) == bits(plain)
    assert any("resuming after iteration 4" in note for note in told.notes)


def test_retries_reach_the_passes_of_k_means(tmp_path):
    """A store that fails once in a while is read again as often as was asked for, and no oftener."""
    X = np.random.default_rng(0).standard_normal((400, 5))

    class Shaky(type(open_matrix(X))):
        def read_rows(self, start, stop):
            calls.append(start)
            if len(calls) <= 2:
                raise OSError("the network went away")
            return super().read_rows(start, stop)

    calls: list[int] = []
    parameters = {"n_clusters": 3, "init": "random"}
    found = fit_kmeans(Source(Shaky(X)), parameters, serial(retries=2))
    assert found.inertia == fit_kmeans(Source(open_matrix(X)), parameters, serial()).inertia
    calls.clear()
    with pytest.raises(PartitionFailed, match="partition 0"):
        fit_kmeans(Source(Shaky(X)), parameters, serial(retries=1))
