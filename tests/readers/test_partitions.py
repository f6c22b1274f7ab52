"""Partitions of rows: whole chunks, right sizes, a pure function of the shape."""

from itertools import pairwise

import dask.array as da
import dask.utils
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchselect import open_matrix
from sketchselect._byte_sizes import format_bytes
from sketchselect.errors import BadParameter
from sketchselect.readers import DEFAULT_PARTITION_BYTES, Matrix, parse_bytes, row_partitions
from sketchselect.readers.base import accepted_size


class Shape(Matrix):
    """A matrix that is only its shape."""

    dtype = np.dtype("f4")

    def __init__(self, n_rows, n_columns, chunk_rows=1, chunk_edges=None):
        self.shape, self.chunk_rows, self.chunk_edges = (n_rows, n_columns), chunk_rows, chunk_edges

    def read_rows(self, start, stop):
        raise AssertionError("partitions are made without reading")

    def identity(self, start, stop):
        return None


def decoded(matrix, partitions):
    """Rows decoded when every partition decodes each chunk it touches, by counting."""
    edges = matrix.chunk_edges or [*range(0, matrix.shape[0], matrix.chunk_rows), matrix.shape[0]]
    chunks = list(pairwise(edges))
    return sum(
        b - a for i in range(len(partitions)) for a, b in chunks if a < partitions[i][1] and partitions[i][0] < b
    )


@settings(deadline=None)
@given(st.integers(1, 2000), st.integers(1, 50), st.integers(1, 300), st.integers(8, 200_000))
def test_regular_chunks(n_rows, n_columns, chunk_rows, size):
    matrix = Shape(n_rows, n_columns, chunk_rows)
    try:
        partitions = row_partitions(matrix, size)
    except BadParameter:
        fitting = max(1, size // (8 * n_columns))
        assert chunk_rows > fitting
        assert chunk_rows > 2 * fitting, "refused although two reads of each chunk would do"
        return
    heights = np.diff(partitions.edges)
    assert partitions.edges[0] == 0
    assert partitions.edges[-1] == n_rows
    assert (heights[:-1] == heights[0]).all()
    assert 0 < heights[-1] <= heights[0]
    assert heights[0] * n_columns * 8 <= max(size, 8 * n_columns)
    assert partitions.read_amplification == pytest.approx(decoded(matrix, partitions) / n_rows)
    assert partitions.read_amplification <= 4
    if chunk_rows * n_columns * 8 <= size:
        assert partitions.read_amplification == 1
        assert 2 * heights[0] * n_columns * 8 > min(size, n_rows * n_columns * 8) or len(partitions) == 1


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(1, 60))
def test_chunks_of_many_heights(heights, fitting):
    edges = (0, *np.cumsum(heights).tolist())
    matrix = Shape(edges[-1], 2, max(heights), edges)
    try:
        partitions = row_partitions(matrix, 16 * fitting)
    except BadParameter:
        assert max(heights) > 4 * fitting
        return
    assert partitions.edges[0] == 0
    assert partitions.edges[-1] == edges[-1]
    assert (np.diff(partitions.edges) > 0).all()
    assert (np.diff(partitions.edges) <= fitting).all()
    assert partitions.read_amplification == pytest.approx(decoded(matrix, partitions) / edges[-1])
    if max(heights) <= fitting:
        assert set(partitions.edges) <= set(edges)


def test_appended_rows_keep_the_bands_before_them():
    for n_rows in (1000, 1001, 5000):
        short, long = row_partitions(Shape(n_rows, 10, 30), 8000), row_partitions(Shape(2 * n_rows, 10, 30), 8000)
        assert long.edges[: len(short)] == short.edges[:-1]


def test_the_default_size():
    assert DEFAULT_PARTITION_BYTES == 32 * 2**20
    assert row_partitions(Shape(10**6, 1000)).edges[1] == DEFAULT_PARTITION_BYTES // 8000
    assert row_partitions(Shape(10**6, 1000), "8MB").edges[1] == 1000


def test_too_tall_chunks_are_refused_with_what_mends_it(write, values, tmp_path):
    with pytest.raises(BadParameter) as caught:
        row_partitions(open_matrix(write(values, chunks=(100, 6))), 17 * 8 * 10)
    message = str(caught.value)
    assert "a.zarr: chunks are 100 rows high" in message
    assert "sketchselect convert IN OUT.zarr --chunks 10x17" in message
    # The advice, followed to the letter, reads every chunk once.
    advised = message.rpartition("partition_bytes to ")[2].partition(",")[0]
    assert advised == str(100 * 17 * 8)
    assert "with some 106.25 kiB of memory for each thread" in message
    assert row_partitions(open_matrix(write(values, "c.zarr", chunks=(100, 6))), advised).read_amplification == 1
    mended = row_partitions(open_matrix(write(values, "b.zarr", chunks=(10, 17))), 17 * 8 * 10)
    assert mended.read_amplification == 1
    with pytest.raises(BadParameter, match=r"x\.rechunk\(\(10, -1\)\)"):
        row_partitions(open_matrix(da.from_array(values, chunks=(100, 6))), 17 * 8 * 10)


def test_by_default_a_chunk_of_some_partitions_stays_whole():
    for matrix in (Shape(60_000, 500, 10_000), Shape(10**6, 1000, 16_000), Shape(25 * 10**6, 10_000, 13_000)):
        partitions = row_partitions(matrix)
        assert partitions.read_amplification == 1
        assert partitions.edges[1] == matrix.chunk_rows
    assert row_partitions(Shape(60_000, 500, 10_000), DEFAULT_PARTITION_BYTES).read_amplification == 2
    assert row_partitions(Shape(10**6, 1000, 40_000), "128MiB").edges[1] < 40_000


@settings(deadline=None)
@given(st.integers(1, 2000), st.integers(1, 50), st.integers(1, 300), st.integers(8, 200_000))
def test_sizes_that_nobody_asked_for_are_never_refused(n_rows, n_columns, chunk_rows, size):
    for edges in ((), (*range(0, n_rows, chunk_rows), n_rows)):
        matrix = Shape(n_rows, n_columns, chunk_rows, edges)
        partitions = row_partitions(matrix, accepted_size(matrix, size))
        assert partitions.read_amplification <= 4
        if chunk_rows <= 2 * max(1, size // (8 * n_columns)):
            assert accepted_size(matrix, size) == size


def test_split_chunks_are_counted(write, values):
    partitions = row_partitions(open_matrix(write(values[:100], chunks=(50, 17))), 17 * 8 * 25)
    assert partitions.edges == (0, 25, 50, 75, 100)
    assert partitions.read_amplification == 2


def test_dask_chunks(values):
    even = open_matrix(da.from_array(values, chunks=(25, 4)))
    assert even.chunk_edges is None
    assert even.chunk_rows == 25
    uneven = open_matrix(da.from_array(values, chunks=((1, 50, 2, 50), 17)))
    assert uneven.chunk_edges == (0, 1, 51, 53, 103)
    assert row_partitions(uneven, 52 * 17 * 8).edges == (0, 51, 103)


# Sizes in words, and what is not one.


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (7, 7),
        ("7", 7),
        ("7B", 7),
        ("1KiB", 1024),
        ("1k", 1000),
        ("2G", 2 * 10**9),
        ("1e3", 1000),
        ("1 kB", 1000),
        ("2MiB", 2 * 2**20),
        ("2MB", 2 * 10**6),
        (" 1.5 GiB ", 3 * 2**29),
        ("1gb", 10**9),
        ("1TiB", 2**40),
        ("1pib", 2**50),
    ],
)
def test_sizes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "wrong", ["", "MiB", "-1", "0", 0, -5, "12 parsecs", "1,000", True, None, 1.5, "0.2B", "9" * 400]
)
def test_what_is_no_size(wrong):
    with pytest.raises(BadParameter, match="a size must be"):
        parse_bytes(wrong)


def test_sizes_are_those_of_dask():
    for text in ("3", "3k", "3 M", "3gb", "3TiB", "0.5 MiB"):
        assert parse_bytes(text) == dask.utils.parse_bytes(text)
    for size in (0, 1, 1023, 2**20, 5 * 2**60):
        assert format_bytes(size) == dask.utils.format_bytes(size)
    assert format_bytes(12.0) == "12 B"
