"""The benchmark script runs (at a size that measures nothing)."""

from __future__ import annotations

import importlib.util
import pathlib

import pytest


def test_bench_lloyd_runs():
    path = pathlib.Path(__file__).parents[1] / "benchmarks" / "bench_lloyd.py"
    spec = importlib.util.spec_from_file_location("bench_lloyd", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.run(n_rows=2000, n_features=4, n_clusters=5, max_iter=2, repeats=1, n_threads=1)
    assert found["inertia ratio"] == pytest.approx(1.0, rel=1e-3)
    assert found["ratio"] > 0
