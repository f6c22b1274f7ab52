"""The memory of summaries of sparse rows: bounds by their entries, at three sizes, and nothing made dense."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse

from sketchselect.execution import Source
from sketchselect.execution.summarize import sparse_rows
from sketchselect.linalg.csr import varying_columns
from sketchselect.readers import open_matrix
from sketchselect.readers.base import Partitions
from sketchselect.selectors import graph
from sketchselect.selectors.base import all_alike
from sketchselect.summaries import Bundle, FrequentDirections, RowSample
from sketchselect.summaries.base import SparseRows


def counts(n_rows, n_columns, per_row, seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 2 * per_row, n_rows)
    columns = [np.sort(rng.choice(n_columns, size, replace=False)) for size in sizes]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    entries = rng.integers(1, 9, offsets[-1]).astype("float32")
    return scipy.sparse.csr_array((entries, np.concatenate(columns), offsets), shape=(n_rows, n_columns))


def bounds(description, X, edges):
    source = Source(open_matrix(X), takes_sparse=True)
    return description.sparse_nbytes(X.shape[1], 0, sparse_rows(source, Partitions(edges)))


def traced(call):
    tracemalloc.start()
    try:
        value = call()
        return value, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("n_rows", "n_columns", "per_row"), [(600, 4_000, 20), (3_000, 30_000, 10), (300, 20_000, 1_500), (12, 9_000, 9)]
)
@pytest.mark.parametrize("description", [RowSample(100), FrequentDirections(16)], ids=lambda d: d.kind)
def test_states_and_working_memory_are_within_the_bounds(description, n_rows, n_columns, per_row):
    X, half = counts(n_rows, n_columns, per_row), n_rows // 2
    edges = (0, half, n_rows)
    state, working = bounds(description, X, edges)
    description.from_block(X[:half])  # Kernels are compiled
    left, peak = traced(lambda: description.from_block(X[:half]))
    # The block's own copies are part of reading it.
    reading = 64 * X[:half].nnz + 64 * half
    assert left.nbytes <= state
    assert peak <= state + working + reading
    right = description.from_block(X[half:], start=half)
    merged, peak = traced(lambda: left.merge(right))
    assert merged.nbytes <= state
    assert peak <= state + working


def test_bounds_of_wide_rows_are_by_their_entries():
    X = counts(2_000, 100_000, 10)
    sample, sketch = RowSample(500), FrequentDirections(32)
    state, _ = bounds(sample, X, (0, 2_000))
    assert state < sample.projected_nbytes(100_000) / 100
    assert bounds(sketch, X, (0, 2_000))[0] < 0.6 * sketch.projected_nbytes(100_000)
    both = bounds(Bundle(sample, sketch), X, (0, 2_000))
    parts = [bounds(one, X, (0, 2_000)) for one in (sample, sketch)]
    assert both == (parts[0][0] + parts[1][0], max(parts[0][1], parts[1][1]))


def test_the_fullest_rows_are_counted(monkeypatch):
    monkeypatch.setattr("sketchselect.summaries.base._PIECE_ROWS", 7)
    per_row = np.random.default_rng(0).integers(0, 50, 100)
    rows = SparseRows(offsets=np.concatenate([[0], np.cumsum(per_row)]))
    assert [rows.most_entries(n) for n in (1, 30, 200)] == [np.sort(per_row)[-n:].sum() for n in (1, 30, 100)]
    assert SparseRows().most_entries(3) is None


def test_constant_columns_of_a_sparse_sample_are_looked_for_without_making_it_dense():
    X = counts(300, 50_000, 20)
    dense = X[:, :500].toarray()
    dense[:, [3, 7]] = [2.0, -1.0]
    assert varying_columns(scipy.sparse.csr_array(dense)).tolist() == (np.ptp(dense, axis=0) > 0).tolist()
    sample = RowSample(1_000).from_block(X)
    alike, peak = traced(lambda: all_alike(sample, "mean"))
    assert not alike
    assert peak < 8 * 300 * 50_000 / 20
    same = scipy.sparse.csr_array(np.tile([[0.0, 2.0, 0.0]], (5, 1)))
    assert all_alike(RowSample(10).from_block(same), "mean")


def test_the_graph_of_sparse_rows_is_the_same_whatever_the_rows_at_a_time(monkeypatch):
    X = counts(300, 2_000, 20)
    whole = graph.neighbour_graph(X, 5)
    monkeypatch.setattr(graph, "_DISTANCE_ROWS", 7)
    in_pieces, peak = traced(lambda: graph.neighbour_graph(X, 5))
    assert (whole != in_pieces).nnz == 0
    assert peak < 8 * 300 * 300
