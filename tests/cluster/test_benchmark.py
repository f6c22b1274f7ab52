"""The benchmark scripts run (at sizes that measure nothing)."""

from __future__ import annotations

import importlib.util
import pathlib

import numpy as np
import pytest


def load(name):
    path = pathlib.Path(__file__).parents[1] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_bench_lloyd_runs():
    found = load("bench_lloyd").run(n_rows=2000, n_features=4, n_clusters=5, max_iter=2, repeats=1, n_threads=1)
    assert found["inertia ratio"] == pytest.approx(1.0, rel=1e-3)
    assert found["ratio"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_kmeans_seeding_runs(capsys, stream):
    found = load("kmeans_seeding").run(("zipf", "heavy"), n_seeds=2, n_rows=1500, stream=stream)
    assert list(found) == ["zipf", "heavy"]
    assert all(len(values) == 2 for values, _ in found["zipf"].values())
    assert "median" in capsys.readouterr().out


def test_kmeans_zarr_runs():
    found = load("kmeans_zarr").run(n_rows=3000, n_columns=5, n_clusters=4, n_iter=2, local=True)
    assert np.isfinite(list(found.values())).all()
    assert found["1 workers"] > 0
