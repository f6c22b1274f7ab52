"""Sparse matrices in stores and files: names, appended rows, lost chunks, and conversion that keeps them sparse."""

import pickle

import anndata
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
import zarr

from sketchselect import convert, open_matrix
from sketchselect.errors import BadParameter, MissingChunks, SourceError
from sketchselect.readers import row_partitions
from sketchselect.testing.readers import MatrixConformance


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


def test_a_lost_chunk_is_an_error(tmp_path, counts):
    path = convert(sp.csr_array(counts), tmp_path / "c.zarr")
    (path / "indices" / "c" / "0").unlink()
    with pytest.raises(MissingChunks, match="indices"):
        open_matrix(path)
