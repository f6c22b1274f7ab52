"""CentroidSums: its laws, its answers, and what it refuses."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.passing import split

from sketchselect.errors import BadBlock, BadParameter, Incompatible, NotFinite
from sketchselect.linalg.kmeans.assignment import farthest
from sketchselect.summaries import CentroidSums, decode, encode

from .data import blobs, exact_distances, exact_sums


def assert_close(a, b, scale=1.0):
    np.testing.assert_allclose(a.cluster_weights, b.cluster_weights, rtol=1e-12)
    np.testing.assert_allclose(a.cluster_means, b.cluster_means, rtol=1e-12, atol=1e-12 * scale)
    np.testing.assert_allclose(a.within, b.within, rtol=1e-11, atol=1e-12)
    assert a.record.far_row.tolist() == b.record.far_row.tolist()
    assert a.farthest_points.tobytes() == b.farthest_points.tobytes()
    assert a.record.far_distance.tobytes() == b.record.far_distance.tobytes()
    assert a.n_rows == b.n_rows


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.lists(st.integers(0, 120), min_size=0, max_size=5),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, 1e8]),
)
def test_any_tree_gives_the_whole(seed, cuts, labelled, weighted, offset):
    rng = np.random.default_rng(seed)
    X = blobs(seed, 120, 3) + offset
    y = rng.integers(-1, 4, size=120) if labelled else None
    weights = rng.random(120) if weighted else None
    description = CentroidSums(4) if labelled else CentroidSums(centers=X[:4])
    edges = [0, *sorted(cuts), 120]
    parts = split(description, X, edges, y, weights)
    whole = description.from_block(X, y, sample_weight=weights)
    chain = functools.reduce(lambda a, b: a.merge(b), parts)
    back = functools.reduce(lambda a, b: b.merge(a), reversed(parts))
    assert_close(chain, whole, max(offset, 1.0))
    assert_close(back, whole, max(offset, 1.0))
    empty = description.empty(3)
    assert empty.merge(whole) == whole
    assert whole.merge(empty) == whole
    assert decode(encode(chain)) == chain


def test_labels_path_against_extended_precision():
    X = blobs(1, 500, 4, separation=1e7) + 1e8
    y = np.random.default_rng(1).integers(-1, 3, size=500)
    s = CentroidSums(3).from_block(X, y)
    weight, _, within = exact_sums(X, y, 3)
    assert s.cluster_weights.tolist() == weight.astype(float).tolist()
    np.testing.assert_allclose(s.objective, float(within.sum()), rtol=1e-12)


def test_inertia_is_the_cost_of_the_nearest_centres():
    X = blobs(2, 300, 5)
    s = CentroidSums(centers=X[:7]).from_block(X)
    np.testing.assert_allclose(s.inertia(), float(exact_distances(X, X[:7]).min(axis=1).sum()), rtol=1e-12)


@pytest.mark.parametrize("n_values", [2, 5, 1000])
def test_the_farthest_places_are_those_of_a_sort_with_many_ties_or_few(n_values):
    distances = np.random.default_rng(n_values).integers(n_values, size=3000).astype(float)
    order = [i for i in np.lexsort((np.arange(3000), -distances)) if distances[i] > 0]
    for count in (1, 7, 300):
        assert farthest(distances, None, count).tolist() == order[:count]


def test_farthest_rows_are_global_positive_and_weighted_ones():
    X = np.array([[0.0], [5.0], [7.0], [7.0], [0.0], [9.0]])
    weights = np.array([1.0, 1, 1, 1, 1, 0])
    s = CentroidSums(3, centers=[[0.0], [0.0], [0.0]]).from_block(X, start=100, sample_weight=weights)
    assert s.record.far_row.tolist() == [102, 103, 101]
    assert s.farthest_points.ravel().tolist() == [7.0, 7.0, 5.0]
    kept = CentroidSums(3, centers=[[0.0]] * 3).from_block(X[:3], start=np.array([4, 8, 15]))
    assert kept.record.far_row.tolist() == [15, 8]


def test_label_block_gives_labels_and_the_same_summary():
    X = blobs(3, 200, 3).astype(np.float32)
    description = CentroidSums(centers=X[:5])
    labels, summary = description.label_block(X, start=7)
    assert summary == description.from_block(X, start=7)
    assert labels.dtype == np.int32
    assert (labels == exact_distances(X, X[:5]).argmin(axis=1)).all()
    assert description.label_block(X[:0])[0].shape == (0,)
    with pytest.raises(BadParameter, match="centers"):
        CentroidSums(2).label_block(X)


def test_centers_are_copied():
    centers = np.ones((3, 2))
    description = CentroidSums(centers=centers)
    centers[:] = 0
    assert not (description.centers == 0).any()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({}, "n_clusters"),
        ({"n_clusters": 0}, "n_clusters"),
        ({"n_clusters": 2.5}, "n_clusters"),
        ({"centers": [1.0, 2.0]}, "shape"),
        ({"centers": [[np.nan]]}, "finite"),
        ({"centers": [[1.0]], "n_clusters": 2}, "1 rows"),
    ],
)
def test_bad_parameters(arguments, match):
    with pytest.raises(BadParameter, match=match):
        CentroidSums(**arguments)


@pytest.mark.parametrize(
    ("y", "match"),
    [
        (None, "label"),
        (np.array([0, 1]), "shape"),
        (np.array([0, 1, 2]), "below n_clusters = 2"),
        (np.array([0, 0.5, 1]), "whole numbers, unlike 0.5 of row 1"),
        (np.array([0, 1, np.nan]), "whole numbers, unlike nan of row 2"),
        (np.array(["a", "b", "c"]), "whole numbers"),
    ],
)
def test_bad_labels(y, match):
    with pytest.raises(BadBlock, match=match):
        CentroidSums(2).from_block(np.ones((3, 2)), y)


def test_bad_blocks_and_incompatible_merges():
    X = np.ones((3, 2))
    X[1, 1] = np.nan
    with pytest.raises(NotFinite, match="row 11, column 1"):
        CentroidSums(centers=[[0.0, 0.0]]).from_block(X, start=10)
    with pytest.raises(BadBlock, match="1e150"):
        CentroidSums(centers=[[0.0, 0.0]]).from_block(np.full((3, 2), 1e160) * np.array([[1], [2], [3]]))
    with pytest.raises(BadBlock, match="2 columns"):
        CentroidSums(centers=[[0.0, 0.0]]).from_block(np.ones((3, 4)))
    a = CentroidSums(centers=[[0.0, 0.0]]).from_block(np.ones((3, 2)))
    with pytest.raises(Incompatible, match="centers"):
        a.merge(CentroidSums(centers=[[0.0, 1.0]]).from_block(np.ones((3, 2))))
    with pytest.raises(BadParameter, match="labels"):
        CentroidSums(1).from_block(np.ones((3, 2)), np.zeros(3)).inertia()
