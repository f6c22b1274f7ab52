"""Sparse matrices in stores and files: names, labels, damage, appended rows, and conversion that keeps them sparse."""

from __future__ import annotations

import pickle
import warnings

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp
import zarr

from sketchselect import convert, open_matrix
from sketchselect.errors import BadParameter, MissingChunks, SourceError
from sketchselect.readers import open_vector, row_partitions
from sketchselect.testing.readers import MatrixConformance


@pytest.fixture
def counts():
    """Whole numbers, some rows and columns empty, one row full."""
    rng = np.random.default_rng(3)
    values = rng.poisson(0.3, (211, 40)).astype(np.int32)
    values[[0, 5, 210]] = 0
    values[:, 7] = 0
    values[100] = 9
    return values


def cells(values, path, **layers):
    """Write an AnnData store with names, a category and a layer; return its path and the table of its rows."""
    kinds = pd.Categorical(np.random.default_rng(1).choice(["stem", "basal", "immune"], len(values)))
    obs = pd.DataFrame({"kind": kinds, "depth": values.sum(1)}, index=[f"cell{i}" for i in range(len(values))])
    var = pd.DataFrame(index=[f"gene{j}" for j in range(values.shape[1])])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        anndata.AnnData(sp.csr_matrix(values), obs=obs, var=var, layers=layers).write_zarr(path)
    return path, obs


def test_names_layers_and_categories_of_anndata(counts, tmp_path):
    path, obs = cells(counts, tmp_path / "a.zarr", half=sp.csr_matrix(counts / 2), dense=counts * 1.5)
    matrix = open_matrix(path)
    names = tuple(f"gene{j}" for j in range(40))
    MatrixConformance(matrix, counts, names).verify()
    assert matrix.row_names.read(3, 6).tolist() == ["cell3", "cell4", "cell5"]
    assert len(pickle.dumps(matrix)) < 6000
    half = open_matrix(path, key="layers/half")
    assert half.is_sparse
    MatrixConformance(half, counts / 2, names).verify()
    dense = open_matrix(path, key="layers/dense")
    assert not dense.is_sparse
    MatrixConformance(dense, counts * 1.5, names).verify()
    for result in (open_vector("obs/kind", 211, matrix=matrix), open_vector(path / "obs/kind", 211)):
        assert result.read(0, 211).tolist() == obs["kind"].astype(str).tolist()
        assert result.read(50, 60).tolist() == obs["kind"].astype(str).tolist()[50:60]
    depth = open_vector("obs/depth", 211, matrix=half)
    assert depth.read(0, 211).tolist() == counts.sum(1).tolist()


def test_objects_with_names(counts):
    result = anndata.AnnData(sp.csr_matrix(counts.astype(np.float32)), layers={"twice": counts * 2.0})
    result.var_names = [f"g{j}" for j in range(40)]
    matrix = open_matrix(result)
    assert matrix.is_sparse
    assert matrix.feature_names[39] == "g39"
    result.obs_names = [f"c{i}" for i in range(211)]
    assert open_matrix(result).row_names.read(4, 6).tolist() == ["c4", "c5"]
    assert np.array_equal(open_matrix(result, key="layers/twice").read_rows(0, 211), counts * 2.0)
    with pytest.raises(SourceError, match=r"no layer 'thrice'; there are: twice"):
        open_matrix(result, key="thrice")


def test_xarray_names_its_columns(counts):
    import xarray

    array = xarray.DataArray(counts, dims=("cell", "gene"), coords={"gene": [f"g{j}" for j in range(40)]})
    assert open_matrix(array).feature_names == tuple(f"g{j}" for j in range(40))
    assert open_matrix(array.chunk({"cell": 50})).feature_names == tuple(f"g{j}" for j in range(40))
    assert open_matrix(array.to_dataset(name="counts")).feature_names == tuple(f"g{j}" for j in range(40))


@pytest.mark.parametrize("make", [sp.csr_array, sp.csc_array, sp.coo_array])
def test_conversion_keeps_it_sparse_and_others_can_read_it(make, counts, tmp_path):
    out = convert(make(counts), tmp_path / "c.zarr", feature_names=[f"g{j}" for j in range(40)])
    matrix = open_matrix(out)
    MatrixConformance(matrix, counts, tuple(f"g{j}" for j in range(40))).verify()
    assert matrix.describe()["entries"] == np.count_nonzero(counts)
    assert matrix.notes == ()
    theirs = anndata.io.read_elem(zarr.open_group(out))
    assert (theirs.toarray() == counts).all()
    assert not open_matrix(convert(make(counts), tmp_path / "d.zarr", chunks="50x40")).is_sparse
    # Once more from the store, over it, and without a trace of the first.
    assert (open_matrix(convert(out, tmp_path / "d.zarr")).read_rows(0, 211).toarray() == counts).all()


def test_entries_beyond_one_chunk(tmp_path, monkeypatch):
    from sketchselect.readers import writing

    monkeypatch.setattr(writing, "CHUNK_ENTRIES", 100)
    monkeypatch.setattr(writing, "_BLOCK_ENTRIES", 37)
    rows, columns = np.repeat(np.arange(300), 3), np.random.default_rng(0).integers(0, 50, 900)
    twice = sp.coo_array((np.ones(900), (rows, columns)), shape=(300, 50))
    matrix = open_matrix(convert(twice, tmp_path / "c.zarr"))
    assert np.array_equal(matrix.read_rows(0, 300).toarray(), twice.toarray())
    assert matrix.read_columns(10, 20).tolist() == twice.toarray()[:, 10:20].tolist()


def test_matrix_market_in_place(counts, tmp_path):
    scipy.io.mmwrite(tmp_path / "m.mtx", sp.coo_array(counts))
    matrix = open_matrix(tmp_path / "m.mtx")
    assert matrix.is_sparse
    assert np.array_equal(matrix.read_rows(0, 211).toarray(), counts)
    assert len(pickle.dumps(matrix)) < 3000
    scipy.io.mmwrite(tmp_path / "d.mtx", counts)
    assert np.array_equal(open_matrix(tmp_path / "d.mtx").read_rows(3, 9), counts[3:9])
    (tmp_path / "b.mtx").write_text("%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 1\n", encoding="utf-8")
    with pytest.raises(SourceError, match="not a Matrix Market file"):
        open_matrix(tmp_path / "b.mtx")
    with pytest.raises(BadParameter, match="leave key out"):
        open_matrix(tmp_path / "m.mtx", key="X")


def test_appended_rows_leave_the_identity_of_accepted_size_alone(tmp_path):
    values = sp.random(1000, 30, 0.3, format="csr", random_state=1)
    path = tmp_path / "c.zarr"
    group = zarr.create_group(path, attributes={"encoding-type": "csr_matrix", "shape": [600, 30]})
    first, last = values.indptr[600], values.indptr[-1]
    arrays = {}
    for name, part in (
        ("data", values.data[:first]),
        ("indices", values.indices[:first]),
        ("indptr", values.indptr[:601]),
    ):
        arrays[name] = group.create_array(name, shape=part.shape, chunks=(500,), dtype=part.dtype)
        arrays[name][:] = part
    before = open_matrix(path)
    partitions = row_partitions(before, 16 * 1000, sparse=True)
    names = [before.identity(*partitions[i]) for i in range(len(partitions))]
    arrays["data"].append(values.data[first:last])
    arrays["indices"].append(values.indices[first:last])
    arrays["indptr"].append(values.indptr[601:])
    group.attrs["shape"] = [1000, 30]
    after = open_matrix(path)
    longer = row_partitions(after, 16 * 1000, sparse=True)
    assert longer.edges[: len(partitions)] == partitions.edges[:-1]
    # The last partition of the shorter matrix, and the one whose last chunk was written on, have changed.
    assert [after.identity(*longer[i]) for i in range(len(partitions) - 2)] == names[:-2]
    assert after.identity(*partitions[len(partitions) - 1]) != names[-1]
    assert np.array_equal(after.read_rows(0, 1000).toarray(), values.toarray())


def group_of(tmp_path, **changes):
    """Write a group of three arrays, some of them wrong."""
    values = sp.random(20, 10, 0.4, format="csr", random_state=2)
    parts = {"data": values.data, "indices": values.indices, "indptr": values.indptr} | changes
    attributes = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [20, 10]}
    attributes |= parts.pop("attributes", {})
    group = zarr.create_group(tmp_path / "g.zarr", attributes=attributes)
    for name, part in parts.items():
        if part is not None:
            group.create_array(name, shape=part.shape, chunks=(7,) * part.ndim, dtype=part.dtype)[...] = part
    return tmp_path / "g.zarr"


def bad(position, value, of="indices"):
    values = sp.random(20, 10, 0.4, format="csr", random_state=2)
    part = getattr(values, of).copy()
    part[position] = value
    return part


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"indices": bad(0, 10)}, r"row 0 has an entry in column 10, and there are 10 columns; restore it"),
        ({"indices": bad(-1, -3)}, r"row 19 has an entry in column -3, and there are 10 columns"),
        ({"indptr": bad(3, 70, "indptr")}, r"indptr decreases after row 3"),
        ({"indptr": bad(0, 1, "indptr")}, r"indptr must begin with 0, got 1"),
        ({"indptr": bad(-1, 99, "indptr")}, r"indptr ends at 99, there are 80 values and 80 indices"),
        ({"indptr": np.zeros(5, np.int64)}, r"indptr has 5 entries for 20 rows"),
        ({"indices": None}, r"a CSR group without its array 'indices'"),
        ({"data": np.ones((80, 1))}, r"array 'data' must be one-dimensional and of numbers"),
        ({"data": np.zeros(80, "complex128")}, r"data: .*complex128"),
        ({"attributes": {"shape": [20]}}, r"the group has no attribute shape"),
        ({"attributes": {"encoding-type": "csc_matrix"}}, r"stored by column .* adata.X.tocsr\(\)"),
    ],
)
def test_a_damaged_group_is_one_line_that_names_it(tmp_path, changes, message):
    path = group_of(tmp_path, **changes)
    with pytest.raises(SourceError, match=message) as caught:
        open_matrix(path, missing_chunks="fill").read_rows(0, 20)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unsorted_and_repeated_indices_are_put_right(tmp_path):
    path = group_of(tmp_path, indices=np.tile([3, 1, 3, 0], 20), data=np.arange(80.0), indptr=np.arange(0, 81, 4))
    block = open_matrix(path, missing_chunks="fill").read_rows(1, 3)
    assert block.toarray()[:, :4].tolist() == [[7, 5, 0, 10], [11, 9, 0, 18]]
    assert block.has_canonical_format


def test_a_lost_chunk_is_an_error(tmp_path, counts):
    path = convert(sp.csr_array(counts), tmp_path / "c.zarr")
    (path / "indices" / "c" / "0").unlink()
    with pytest.raises(MissingChunks, match="indices"):
        open_matrix(path)


def test_a_code_beyond_the_categories_is_an_error(counts, tmp_path):
    path, _ = cells(counts, tmp_path / "a.zarr")
    zarr.open_array(path / "obs/kind/codes")[4] = 17
    with pytest.raises(SourceError, match="outside the 3 categories"):
        open_vector("obs/kind", 211, matrix=str(path / "X")).read(0, 211)


def test_nullable_columns_of_anndata(counts, tmp_path):
    numbers = pd.array([1, None, 3] * 70 + [4], dtype="Int32")
    whole = pd.array(range(211), dtype="Int64")
    flags = pd.array([True, None, False] * 70 + [True], dtype="boolean")
    donors = pd.array(["x", None, "yy"] * 70 + ["z"], dtype="string")
    index = [f"cell{i}" for i in range(211)]
    obs = pd.DataFrame({"numbers": numbers, "whole": whole, "flags": flags, "donors": donors}, index=index)
    adata = anndata.AnnData(counts.astype(np.float32), obs=obs)
    with warnings.catch_warnings(), anndata.settings.override(allow_write_nullable_strings=True):
        warnings.simplefilter("ignore")
        adata.write_zarr(tmp_path / "a.zarr", convert_strings_to_categoricals=False)
    encoding = zarr.open_group(tmp_path / "a.zarr" / "obs" / "donors", mode="r").attrs["encoding-type"]
    assert encoding == "nullable-string-array"
    matrix = open_matrix(tmp_path / "a.zarr")
    assert matrix.row_names.read(2, 4).tolist() == ["cell2", "cell3"]

    def read(name, start, stop):
        vector = open_vector(f"obs/{name}", 211, matrix=matrix)
        values = vector.read(start, stop)
        assert values.dtype.kind == vector.dtype.kind == vector.read(3, 3).dtype.kind
        assert pickle.loads(pickle.dumps(vector)).identity() == vector.identity() is not None
        return values.tolist()

    assert read("donors", 1, 4) == ["nan", "yy", "x"]
    assert np.array_equal(read("numbers", 0, 3), [1, np.nan, 3], equal_nan=True)
    assert read("numbers", 209, 211) == [3.0, 4.0]
    assert read("whole", 209, 211) == [209, 210]
    assert np.array_equal(read("flags", 0, 3), [1, np.nan, 0], equal_nan=True)


def test_names_in_groups_of_their_own(counts, tmp_path):
    """The index of obs and var as anndata 0.13 writes it, in a store of any release."""
    path, _ = cells(counts, tmp_path / "a.zarr")
    for axis, names in (("obs", [f"c{i}" for i in range(211)]), ("var", [f"g{j}" for j in range(40)])):
        frame = zarr.open_group(path / axis)
        del frame["_index"]
        group = frame.create_group("_index", attributes={"encoding-type": "nullable-string-array"})
        group.create_array("values", data=np.array(names, dtype=np.dtypes.StringDType()))
        group.create_array("mask", data=np.zeros(len(names), bool))
    for key in (None, "X"):
        matrix = open_matrix(path, key=key)
        assert matrix.feature_names == tuple(f"g{j}" for j in range(40))
        assert matrix.row_names.read(209, 211).tolist() == ["c209", "c210"]
