"""Objects of types that are no source, refused unread, and those that are."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from sketchselect import VarianceSelector, open_matrix
from sketchselect.errors import SourceError
from sketchselect.readers import open_vector

GOOD = np.arange(12.0).reshape(4, 3)


class Endless:
    """An object that NumPy would ask for one entry after the other, as it does a future or a lazy data frame."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        raise AssertionError("asked for an entry")

    def collect(self):
        raise AssertionError("computed")


class AnyAttribute(Endless):
    """An object that has every attribute that it is asked for."""

    def __getattr__(self, name):
        return self


@pytest.mark.parametrize("verb", [open_matrix, lambda source: open_vector(source, 3, name="labels")])
@pytest.mark.parametrize("make", [Endless, AnyAttribute, lambda: iter([1, 2]), lambda: {"a": [1]}, lambda: {1, 2}])
def test_an_object_of_a_type_that_is_not_known_is_refused_unread(make, verb):
    source = make()
    kind = type(source)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    with pytest.raises(SourceError, match=rf"type {name} is not a source; give a path, a URL, an array") as caught:
        verb(source)
    assert "\n" not in str(caught.value)


def test_delayed_objects_and_futures_are_refused():
    import dask
    from distributed import Future

    delayed = dask.delayed(np.ones)((3, 2))
    future = Future("x")
    for source, name in ((delayed, r"dask\.delayed\.Delayed"), (future, r"distributed\.client\.Future")):
        with pytest.raises(SourceError, match=rf"{name} is not a source"):
            open_matrix(source)
        with pytest.raises(SourceError, match=rf"target: an object of type {name} is not a source"):
            open_vector(source, 3)


def test_entries_stored_twice_do_not_wrap_around():
    twice = sp.coo_array((np.array([200, 100], np.uint8), ([0, 0], [2, 2])), shape=(1, 3))
    assert open_matrix(twice).read_rows(0, 1).toarray().tolist() == [[0, 0, 300]]
    assert twice.nnz == 2


@pytest.mark.parametrize("form", ["COO", "GCXS"])
def test_arrays_of_the_package_sparse_stay_sparse(form):
    matrix = open_matrix(getattr(pytest.importorskip("sparse"), form)(np.diag([1.0, 2, 3])))
    assert matrix.is_sparse
    assert matrix.read_rows(0, 3).toarray().tolist() == np.diag([1.0, 2, 3]).tolist()


def test_entries_of_the_package_sparse_that_are_not_stored_must_be_zeros():
    filled = pytest.importorskip("sparse").COO(np.array([[1.0, 3.0], [3.0, 2.0]]), fill_value=3.0)
    for source in (filled, da.from_array(filled, asarray=False)):
        with pytest.raises(SourceError, match=r"the entries that are not stored are 3.0, not 0"):
            open_matrix(source)


def test_sequences_and_objects_with_an_array_protocol_are_read():
    class Wrapped:
        def __array__(self, dtype=None, copy=None):
            return GOOD

    for source in (GOOD.tolist(), tuple(map(tuple, GOOD)), [range(3), range(3)], Wrapped(), memoryview(GOOD)):
        assert open_matrix(source).read_rows(0, 2).shape == (2, 3)
    assert open_vector(range(4), 4).read(1, 3).tolist() == [1, 2]


class OfMasked:
    """An object that NumPy reads as a masked array."""

    def __init__(self, values):
        self._values = values

    def __array__(self, dtype=None, copy=None):
        return self._values


def test_a_masked_array_without_a_masked_entry_is_read():
    rows = np.arange(12.0).reshape(4, 3)
    assert np.array_equal(open_matrix(OfMasked(np.ma.MaskedArray(rows))).read_rows(0, 4), rows)
    with pytest.raises(SourceError, match="masked"):
        open_matrix(OfMasked(np.ma.masked_greater(rows, 10)))


@pytest.mark.parametrize("open_", [open_matrix, lambda table: open_vector(table, 5)])
def test_a_column_of_arrow_that_is_shorter_than_its_table_is_an_error(open_):
    """As in a damaged Feather file: Arrow gave whatever was in memory behind the column."""
    pa = pytest.importorskip("pyarrow")
    table, file = pa.table({"a": np.arange(5.0)}), pa.BufferOutputStream()
    with pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    length = (40).to_bytes(8, "little")
    damaged = file.getvalue().to_pybytes().replace(length, bytes(8))
    with pytest.raises(
        SourceError, match=r"damaged table of Arrow .*Column 0.*Buffer #1 too small.*write its file again"
    ):
        open_(pa.ipc.open_stream(damaged).read_all())


def test_a_missing_category_of_an_arrow_table_is_no_other_one():
    pa = pytest.importorskip("pyarrow")
    labels = pa.array(["a", "b", None]).dictionary_encode()
    with pytest.raises(SourceError, match="row 2"):
        open_vector(pa.table({"label": labels}), 3)
    assert open_vector(pa.table({"label": labels.slice(0, 2)}), 2).read(0, 2).tolist() == ["a", "b"]


def test_packed_vectors_of_an_open_zarr_array_are_decoded():
    stored = zarr.create_array({}, shape=(4,), dtype="int16", attributes={"_FillValue": -9999, "scale_factor": 0.5})
    stored[:] = [1, 2, -9999, 4]
    assert np.array_equal(open_vector(stored, 4).read(0, 4), [0.5, 1.0, np.nan, 2.0], equal_nan=True)


def test_fit_leaves_the_arrays_of_a_sparse_matrix_alone():
    values = sp.csc_array(np.triu(np.arange(24.0).reshape(6, 4)))
    # More than the columns have: superfluous, but not wrong.
    values.data, values.indices = np.r_[values.data, 0.0], np.r_[values.indices, 0]
    indices = values.indices
    VarianceSelector(2, normalize=None).fit(values)
    assert values.indices is indices
    assert values.data.size == values.nnz + 1
