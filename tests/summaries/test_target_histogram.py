"""Bins of a sample, and what a histogram refuses; the laws are in `test_laws`."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from sketchselect import summarize
from sketchselect.errors import BadBlock, BadParameter, EmptyInput, Incompatible, NotFinite
from sketchselect.summaries import TargetHistogram


def edges_of(values: Any, n_bins: int) -> list[float]:
    edges = TargetHistogram.of_sample(np.asarray(values, dtype=float)[:, None], n_bins, classes=[0, 1]).edges[0]
    return edges[np.isfinite(edges)].tolist()


def test_few_values_have_a_bin_each_and_whole_numbers_their_neighbours_too() -> None:
    assert edges_of([0.5, 2.5, 2.5, 0.5, 1.25], 4) == [0.5, 1.25, 2.5]
    assert edges_of([3, 0, 5, 3], 8) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert edges_of([-3, 2], 6) == [-3, -2, -1, 0, 1, 2]
    assert edges_of([1e30, 1e30, 3e30], 6) == [1e30, 3e30]


@pytest.mark.parametrize("zeros", [0.0, 0.5, 0.97])
def test_bins_hold_about_as_many_rows_each_and_a_frequent_value_its_own(zeros: float) -> None:
    rng = np.random.default_rng(0)
    values = np.where(rng.random(4000) < zeros, 0.0, rng.standard_normal(4000))
    edges = np.array(edges_of(values, 16))
    assert edges.size == 16
    bins = np.searchsorted(edges, values, side="right") - 1
    filled = np.bincount(bins, minlength=16)
    share, at_zero = 4000 / 16, bins[values == 0.0]
    if at_zero.size:
        assert np.unique(values[bins == at_zero[0]]).tolist() == [0.0]
        share = (4000 - at_zero.size) / 15
        # The bin before it ends early.
        filled = np.delete(filled, [at_zero[0] - 1, at_zero[0]])
    # Six or more bins follow that share what the early one lacks.
    assert filled.min() >= share - 1
    assert filled.max() <= share * (1 + 1 / 6) + 1


def test_sparse_samples_give_the_bins_of_dense_rows() -> None:
    X = np.random.default_rng(1).poisson(0.4, (200, 300)) * 1.5
    dense = TargetHistogram.of_sample(X, 5, classes=[0, 1])
    np.testing.assert_array_equal(TargetHistogram.of_sample(sp.csr_array(X), 5, classes=[0, 1]).edges, dense.edges)


def test_memory_is_stated_before_the_pass() -> None:
    X = np.random.default_rng(2).standard_normal((50, 30))
    description = TargetHistogram.of_sample(X, 16, classes=["a", "b", "c"])
    histogram = summarize(X, description, y=np.resize(["a", "b", "c"], 50))
    assert histogram.nbytes + description.edges.nbytes <= description.projected_nbytes(30)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"edges": [0.0, 1.0]}, "classes, or target_edges"),
        ({"edges": [0.0, 1.0], "classes": [0, 1], "target_edges": [0, 1]}, "not both"),
        ({"edges": [1.0, 0.0], "classes": [0, 1]}, "edges must be finite and ascend"),
        ({"edges": [0.0, np.nan], "classes": [0, 1]}, "edges must be finite and ascend"),
        ({"edges": [0.0, np.inf, 1.0], "classes": [0, 1]}, "edges must be finite and ascend"),
        ({"edges": [0.0], "target_edges": [[0.0, 1.0]]}, "target_edges must be a real array of 1"),
        ({"edges": [0.0], "target_edges": [0.0]}, "at least two edges"),
    ],
)
def test_bad_bins_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(BadParameter, match=words):
        TargetHistogram(**arguments)


def test_what_cannot_be_counted_is_refused() -> None:
    X, y = np.ones((4, 3)), [0, 1, 0, 1]
    histogram = TargetHistogram([0.0, 1.0], classes=[0, 1])
    with pytest.raises(BadBlock, match="row 2 is none of the 2 classes"):
        histogram.from_block(X, [0, 1, 2, 1])
    with pytest.raises(BadBlock, match="need a label"):
        histogram.from_block(X)
    with pytest.raises(BadBlock, match="sample_weight of row 11 is not a whole number"):
        histogram.from_block(X, y, start=10, sample_weight=[1, 0.5, 2, 1])
    for rows in (np.where(np.eye(4, 3, -1), np.nan, X), sp.csr_array(np.where(np.eye(4, 3, -1), np.nan, X))):
        with pytest.raises(NotFinite, match="row 1"):
            histogram.from_block(rows, y)
    with pytest.raises(Incompatible, match="2 columns, the block has 3"):
        TargetHistogram([[0.0], [1.0]], classes=[0, 1]).from_block(X, y)
    with pytest.raises(BadBlock, match="one target"):
        TargetHistogram([0.0], target_edges=[0, 1]).from_block(X)
    with pytest.raises(EmptyInput, match="sample without rows"):
        TargetHistogram.of_sample(X[:0], classes=[0, 1])
