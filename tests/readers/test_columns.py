"""Columns handed out as rows: every reader, every chunking; what is read, what is refused, and what has which name."""

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

import sketchselect as sks
from sketchselect import open_matrix
from sketchselect.errors import BadParameter, ChunkReadError, NotFinite
from sketchselect.execution import Checkpoint, PassOptions, Source, open_engine
from sketchselect.execution.summarize import summarize_source
from sketchselect.readers import row_partitions, transposed
from sketchselect.testing.readers import MatrixConformance

FINE = {
    "one column a chunk": {"chunks": (103, 1)},
    "columns": {"chunks": (103, 4)},
    "squares": {"chunks": (20, 6)},
    "sharded": {"chunks": (10, 3), "shards": (40, 6)},
    "version 2": {"chunks": (20, 6), "zarr_format": 2},
    "one chunk": {"chunks": (103, 17)},
    "uneven": {"chunks": (50, 16)},
}


@pytest.mark.share(15)
def test_columns_of_every_reader(any_source, values):
    matrix = open_matrix(any_source)
    turned = transposed(matrix)
    MatrixConformance(turned, np.ascontiguousarray(values.T)).verify()
    for a, b in ((0, 17), (3, 4), (5, 12), (16, 17), (2, 2)):
        assert np.array_equal(matrix.read_columns(a, b), values[:, a:b])
    with pytest.raises(BadParameter, match="columns 3 to 18 are outside 0 to 17"):
        matrix.read_columns(3, 18)
    again = transposed(turned)
    whole = again.read_rows(0, 103)
    assert np.array_equal(whole.toarray() if again.is_sparse else whole, values)
    assert again.axes == ("row", "column")


@pytest.mark.parametrize("chunking", list(FINE))
def test_every_chunking(chunking, write, values):
    matrix = open_matrix(write(values, **FINE[chunking]))
    MatrixConformance(transposed(matrix), np.ascontiguousarray(values.T)).verify()


def test_only_the_chunks_below_the_columns_are_read(write, values):
    path = write(values, chunks=(20, 6), compressors=None)
    turned = transposed(open_matrix(path))
    for row in range(6):
        (path / "c" / str(row) / "2").write_bytes(b"damaged")
    assert np.array_equal(turned.read_rows(0, 12), values.T[:12])
    with pytest.raises(ChunkReadError, match="chunk c/0/2"):
        turned.read_rows(11, 13)


def test_wide_chunks_are_refused_and_the_message_mends_it(tmp_path, write):
    values = np.random.default_rng(0).standard_normal((4000, 64))
    path = write(values, chunks=(100, 64))
    turned = transposed(open_matrix(path))
    with pytest.raises(BadParameter, match=r"chunks are 64 columns wide .* --chunks \d+x\d+") as caught:
        row_partitions(turned, 4000 * 8 * 4)
    shape = str(caught.value).split("--chunks ")[1].split(",")[0]
    sks.convert(path, tmp_path / "b.zarr", chunks=tuple(map(int, shape.split("x"))))
    mended = open_matrix(tmp_path / "b.zarr")
    assert row_partitions(transposed(mended), 4000 * 8 * 4).read_amplification <= 4
    assert row_partitions(mended, 4000 * 8 * 4).read_amplification <= 4
    assert row_partitions(turned, 4000 * 8 * 16).read_amplification == 4


def test_wide_dask_chunks_and_files_in_c_order_are_refused(tmp_path):
    import dask.array as da

    x = da.zeros((4000, 64), chunks=(100, 64))
    with pytest.raises(BadParameter, match=r"x\.rechunk\(\(-1, 4\)\)"):
        row_partitions(transposed(open_matrix(x)), 4000 * 8 * 4)
    np.save(tmp_path / "c.npy", np.zeros((4000, 64)))
    np.save(tmp_path / "f.npy", np.asfortranarray(np.zeros((4000, 64))))
    with pytest.raises(BadParameter, match="64 columns wide"):
        row_partitions(transposed(open_matrix(tmp_path / "c.npy")), 4000 * 8 * 4)
    assert len(row_partitions(transposed(open_matrix(tmp_path / "f.npy")), 4000 * 8 * 4)) == 16


@pytest.mark.parametrize("dtype", ["f4", ">f8", "?"])
@pytest.mark.parametrize("shape", [(9000, 40), (40, 9000)])
def test_runs_of_files_across_their_order(shape, dtype, tmp_path):
    values = (10 * np.random.default_rng(0).standard_normal(shape)).astype(dtype)
    np.save(tmp_path / "c.npy", values)
    np.save(tmp_path / "f.npy", np.asfortranarray(values))
    for start, stop in ((0, 1), (7, 33), (0, 40)):
        np.testing.assert_array_equal(open_matrix(tmp_path / "f.npy").read_rows(start, stop), values[start:stop])
        rows = transposed(open_matrix(tmp_path / "c.npy")).read_rows(start, stop)
        np.testing.assert_array_equal(rows, values[:, start:stop].T)


def test_dropping_rows_is_refused():
    with pytest.raises(BadParameter, match="drop_rows"):
        transposed(open_matrix(np.eye(3), nonfinite="drop_rows"))


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_what_is_not_finite_is_named_by_its_own_row_and_column(make, write):
    values = np.ones((40, 9))
    values[31, 6] = np.nan
    for source in (make(values), write(values, chunks=(10, 2), name=f"{make.__name__}.zarr")):
        with pytest.raises(NotFinite, match=r"in columns 6 to 8, the first at column 6, row 31; clean the data$"):
            Source(transposed(open_matrix(source))).block(6, 9)


def test_a_failing_task_names_its_columns(write):
    values = np.ones((40, 9))
    values[31, 6] = np.inf
    path = write(values, chunks=(10, 2))
    with open_engine("serial") as engine, pytest.raises(NotFinite, match=r"partition 3 \(columns 6 to 7\): .*row 31"):
        summarize_source(
            Source(transposed(open_matrix(path))), sks.Moments(), PassOptions(engine, partition_bytes=40 * 16)
        )


def summarise(path, folder, partition_bytes):
    matrix = transposed(open_matrix(path))
    with open_engine("serial") as engine:
        return summarize_source(
            Source(matrix),
            sks.ColumnStats(),
            PassOptions(
                engine,
                partition_bytes=partition_bytes,
                checkpoint=Checkpoint(folder, min_bytes=0, state_ratio=0, min_seconds=0),
            ),
        )


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_appended_columns_leave_the_checkpoints_of_the_others(tmp_path, write, zarr_format):
    values = np.random.default_rng(1).standard_normal((30, 1200))
    path = write(values[:, :1000], chunks=(25, 100), zarr_format=zarr_format)
    size = 30 * 8 * 100  # twelve times a state, so that every partition is a leaf of its own
    first = summarise(path, tmp_path / "kept", size)
    assert first.stats.rows_read == 1000
    array = zarr.open_array(str(path))
    array.resize((30, 1200))
    array[:, 1000:] = values[:, 1000:]
    more = summarise(path, tmp_path / "kept", size)
    assert more.value.n_rows == 1200
    assert more.stats.rows_read == 200, "only the new columns are read"
    assert more.value == summarise(path, tmp_path / "other", size).value
    array[7, 130] = 5.0
    assert summarise(path, tmp_path / "kept", size).stats.rows_read == 100, "a rewritten chunk is read again"


def test_more_rows_are_another_matrix(tmp_path, write):
    values = np.random.default_rng(1).standard_normal((60, 16))
    path = write(values[:50], chunks=(25, 4))
    before = transposed(open_matrix(path)).identity(0, 4)
    array = zarr.open_array(str(path))
    array.resize((60, 16))
    array[50:] = values[50:]
    assert transposed(open_matrix(path)).identity(0, 4) != before


def test_identity_in_memory_is_that_of_the_columns():
    values = np.random.default_rng(1).standard_normal((60, 16))
    wide = np.hstack([values, values])
    for make in (np.asarray, np.asfortranarray, sp.csr_array):
        assert transposed(open_matrix(make(values))).identity(3, 9) == transposed(open_matrix(make(wide))).identity(
            3, 9
        )
        other = values.copy()
        other[5, 4] += 1
        assert transposed(open_matrix(make(values))).identity(3, 9) != transposed(open_matrix(make(other))).identity(
            3, 9
        )


def test_float32_columns_can_be_had_in_double():
    from sketchselect.readers import in_double

    X = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
    stored = transposed(open_matrix(X))
    wide = in_double(stored)
    assert wide.shape == (7, 5)
    assert wide.read_rows(2, 4).dtype == np.float64
    assert wide.dtype == stored.dtype, "bytes read are those of the store"
    assert wide.identity(0, 7) != stored.identity(0, 7) or stored.identity(0, 7) is None
    assert wide.describe() == stored.describe()
    assert wide.axes == ("column", "row")
    whole = transposed(open_matrix(X.astype(np.float64)))
    assert in_double(whole) is whole
