"""The exact objective of a partition."""

from __future__ import annotations

import numpy as np
import pytest
from tests.passing import serial

from sketchselect import kmeans_objective
from sketchselect.cluster import objective_source
from sketchselect.errors import BadBlock, BadParameter, SourceError
from sketchselect.execution import Source
from sketchselect.readers import open_matrix, open_vector

from .data import blobs, exact_sums


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
