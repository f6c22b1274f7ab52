"""Stores of AnnData, Zarr and HDF5: matrices with their names, columns of every kind, and damage; one layout."""

import contextlib
import pickle
import warnings

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr

from sketchselect import open_matrix
from sketchselect.errors import SourceError
from sketchselect.readers import open_vector
from sketchselect.testing.readers import MatrixConformance

from .conftest import cells_in

ENDINGS = ["zarr", "h5ad"]
GENES = tuple(f"gene{j}" for j in range(40))


@pytest.fixture(params=ENDINGS)
def cells(request, counts, tmp_path):
    return cells_in(tmp_path / f"a.{request.param}", counts)


@pytest.mark.share(1)
def test_matrices_are_read_in_place(cells, counts):
    matrix = open_matrix(cells)
    assert matrix.row_names.read(3, 6).tolist() == ["cell3", "cell4", "cell5"]
    assert len(pickle.dumps(matrix)) < 6000
    for key, expected, is_sparse in (
        (None, counts, True),
        ("layers/half", counts / 2, False),
        ("layers/twice", 2 * counts, True),
        ("raw/X", counts, True),
    ):
        matrix = open_matrix(cells, key=key)
        assert matrix.is_sparse == is_sparse
        MatrixConformance(matrix, expected, GENES).verify()
        assert np.array_equal(matrix.read_columns(3, 5), expected[:, 3:5])
    points = open_matrix(cells, key="obsm/points")
    MatrixConformance(points, counts[:, :3]).verify()
    assert points.row_names.read(0, 2).tolist() == ["cell0", "cell1"]


@pytest.mark.parametrize("name", ["obs/dpeth", "dpeth"])
def test_a_misspelt_column_of_the_rows_is_named(cells, name):
    with pytest.raises(SourceError, match=rf"{name}.* did you mean 'obs/depth'\? columns: 'obs/.*'gene0'"):
        open_vector(name, 50, matrix=open_matrix(cells))


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("layers/columns", r"layers/columns: stored by column .*tocsr"),
        ("layers/hlaf", r"no (matrix|array) 'layers/hlaf' in this (file|group).*layers/half"),
        ("obs", r"obs'?:? .*is a group"),
    ],
)
def test_other_keys_are_refused_by_name(cells, key, message):
    with pytest.raises(SourceError, match=message):
        open_matrix(cells, key=key)


def test_columns_of_the_rows(cells, counts):
    kinds = np.random.default_rng(1).choice(["stem", "basal"], 211).tolist()
    for matrix in (open_matrix(cells).address, open_matrix(cells, key="layers/half")):

        def column(name, matrix=matrix):
            vector = open_vector(name, 211, matrix=matrix)
            assert np.array_equal(vector.read(50, 60), vector.read(0, 211)[50:60])
            return vector.read(0, 211)

        assert column("obs/kind").tolist() == column("obs/name").tolist() == kinds
        assert column("obs/depth").tolist() == counts.sum(1).tolist()
        assert np.array_equal(column("obs/batch")[1:], np.arange(210))
        assert np.isnan(column("obs/batch")[0])
        with pytest.raises(SourceError, match="obs/kinds"):
            column("obs/kinds")


def test_a_code_beyond_the_categories_is_an_error(cells):
    with h5py.File(cells, "a") if cells.suffix == ".h5ad" else contextlib.nullcontext(zarr.open_group(cells)) as store:
        store["obs/kind/codes"][4] = 17
    with pytest.raises(SourceError, match=r"obs/kind: .*outside the 2 categories"):
        open_vector("obs/kind", 211, matrix=str(cells)).read(0, 211)


def test_a_column_without_one_of_its_arrays_is_named(cells):
    with h5py.File(cells, "a") if cells.suffix == ".h5ad" else contextlib.nullcontext(zarr.open_group(cells)) as store:
        del store["obs/batch/mask"]
    with pytest.raises(SourceError, match=r"obs/batch: .*'mask'"):
        open_vector("obs/batch", 211, matrix=str(cells))


@pytest.mark.parametrize("ending", ENDINGS)
def test_nullable_columns(counts, tmp_path, ending):
    numbers = pd.array([1, None, 3] * 70 + [4], dtype="Int32")
    whole = pd.array(range(211), dtype="Int64")
    flags = pd.array([True, None, False] * 70 + [True], dtype="boolean")
    donors = pd.array(["x", None, "yy"] * 70 + ["z"], dtype="string")
    index = [f"cell{i}" for i in range(211)]
    obs = pd.DataFrame({"numbers": numbers, "whole": whole, "flags": flags, "donors": donors}, index=index)
    adata = anndata.AnnData(counts.astype(np.float32), obs=obs)
    with warnings.catch_warnings(), anndata.settings.override(allow_write_nullable_strings=True):
        warnings.simplefilter("ignore")
        path = tmp_path / f"a.{ending}"
        (adata.write_zarr if ending == "zarr" else adata.write_h5ad)(path, convert_strings_to_categoricals=False)
    with h5py.File(path) if ending == "h5ad" else contextlib.nullcontext(zarr.open_group(path, mode="r")) as group:
        assert group["obs/donors"].attrs["encoding-type"] == "nullable-string-array"
    matrix = open_matrix(path)
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


def group_of(tmp_path, ending="zarr", **changes):
    """Write a group of three arrays, some of them wrong, and return its path."""
    values = sp.random(20, 10, 0.4, format="csr", random_state=2)
    parts = {"data": values.data, "indices": values.indices, "indptr": values.indptr} | changes
    attributes = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [20, 10]}
    attributes |= parts.pop("attributes", {})
    parts = {name: part for name, part in parts.items() if part is not None}
    path = tmp_path / f"g.{ending}"
    if ending == "h5ad":
        with h5py.File(path, "w") as file:
            file.create_group("X").attrs.update(attributes)
            for name, part in parts.items():
                file[f"X/{name}"] = part
        return path
    group = zarr.create_group(path, attributes=attributes)
    for name, part in parts.items():
        group.create_array(name, shape=part.shape, chunks=(7,) * part.ndim, dtype=part.dtype)[...] = part
    return path


def bad(position, value, of="indices"):
    values = sp.random(20, 10, 0.4, format="csr", random_state=2)
    part = getattr(values, of).copy()
    part[position] = value
    return part


@pytest.mark.parametrize("ending", ENDINGS)
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
        ({"data": np.zeros(80, "complex128")}, r"data\b.*complex128"),
        ({"attributes": {"shape": [20]}}, r"the group has no attribute shape"),
        ({"attributes": {"shape": "20 x 10"}}, r"the group has no attribute shape"),
        ({"attributes": {"encoding-type": "csc_matrix"}}, r"stored by column .* adata.X.tocsr\(\)"),
    ],
)
def test_a_damaged_group_is_one_line_that_names_it(tmp_path, ending, changes, message):
    path = group_of(tmp_path, ending, **changes)
    with pytest.raises(SourceError, match=message) as caught:
        open_matrix(path, missing_chunks="fill").read_rows(0, 20)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ending", ENDINGS)
def test_unsorted_and_repeated_indices_are_put_right(tmp_path, ending):
    path = group_of(
        tmp_path, ending, indices=np.tile([3, 1, 3, 0], 20), data=np.arange(80.0), indptr=np.arange(0, 81, 4)
    )
    block = open_matrix(path, missing_chunks="fill").read_rows(1, 3)
    assert block.toarray()[:, :4].tolist() == [[7, 5, 0, 10], [11, 9, 0, 18]]
    assert block.has_canonical_format


def test_codes_of_earlier_releases_are_their_categories(tmp_path):
    """As anndata wrote text columns before 0.8: codes, with a reference to what they stand for."""
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        file["X"] = np.eye(3)
        file["obs/__categories/kind"] = ["b", "a"]
        file["obs/kind"] = np.array([1, -1, 0], np.int8)
        file["obs/kind"].attrs["categories"] = file["obs/__categories/kind"].ref
    vector = open_vector("obs/kind", 3, matrix=open_matrix(tmp_path / "a.h5ad"))
    assert vector.read(0, 3).tolist() == ["a", "nan", "b"]


def test_names_in_groups_of_their_own(counts, tmp_path):
    """The index of obs and var as anndata 0.13 writes it, in a store of any release."""
    path = cells_in(tmp_path / "a.zarr", counts)
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
