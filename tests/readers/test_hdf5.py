"""HDF5 files: matrices of AnnData with their names and columns, backed objects, other datasets, and damage."""

from __future__ import annotations

import os
import pickle
import warnings

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import sketchselect as sks
from sketchselect import open_matrix
from sketchselect.errors import ChunkReadError, EmptyInput, SourceChanged, SourceError
from sketchselect.readers import open_vector
from sketchselect.testing.readers import MatrixConformance

CELLS = [f"cell{i}" for i in range(211)]
GENES = tuple(f"gene{j}" for j in range(40))


@pytest.fixture
def counts():
    values = np.random.default_rng(3).poisson(0.3, (211, 40)).astype(np.float32)
    values[[0, 5, 210]] = 0
    return values


@pytest.fixture
def cells(counts, tmp_path):
    """An .h5ad file with a sparse X, a dense and a compressed layer, raw counts, and columns of every kind."""
    kinds = np.random.default_rng(1).choice(["stem", "basal"], 211)
    obs = pd.DataFrame(
        {
            "kind": pd.Categorical(kinds),
            "depth": counts.sum(1),
            "name": kinds,
            "batch": pd.array([None, *range(210)], dtype="Int64"),
        },
        index=CELLS,
    )
    layers = {"half": counts / 2, "twice": sp.csr_matrix(2 * counts), "columns": sp.csc_matrix(counts)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = anndata.AnnData(sp.csr_matrix(counts), obs=obs, var=pd.DataFrame(index=list(GENES)), layers=layers)
        data.raw = data
        data.write_h5ad(tmp_path / "a.h5ad", compression="gzip")
    return tmp_path / "a.h5ad"


def test_matrices_of_anndata_are_read_in_place(cells, counts):
    matrix = open_matrix(cells)
    assert matrix.is_sparse
    MatrixConformance(matrix, counts, GENES).verify()
    assert matrix.row_names.read(3, 6).tolist() == CELLS[3:6]
    half = open_matrix(cells, key="layers/half")
    assert not half.is_sparse
    MatrixConformance(half, counts / 2, GENES).verify()
    assert np.array_equal(half.read_columns(3, 5), counts[:, 3:5] / 2)
    MatrixConformance(open_matrix(cells, key="layers/twice"), 2 * counts, GENES).verify()
    MatrixConformance(open_matrix(cells, key="raw/X"), counts, GENES).verify()
    with pytest.raises(SourceError, match=r"layers/columns: .*tocsr"):
        open_matrix(cells, key="layers/columns")
    with pytest.raises(SourceError, match=r"'layers/hlaf'.*layers/half"):
        open_matrix(cells, key="layers/hlaf")
    with pytest.raises(SourceError, match=r"'obs' is a group, not a matrix"):
        open_matrix(cells, key="obs")


def test_columns_beside_the_matrix(cells, counts):
    def column(name):
        return open_vector(name, 211, matrix=open_matrix(cells).address).read(0, 211)

    kinds = np.random.default_rng(1).choice(["stem", "basal"], 211).tolist()
    assert column("obs/kind").tolist() == column("obs/name").tolist() == kinds
    assert column("obs/depth").tolist() == counts.sum(1).tolist()
    assert np.array_equal(column("obs/batch"), np.r_[np.nan, 0:210], equal_nan=True)
    with pytest.raises(SourceError, match=r"no such file.*a\.h5ad"):
        column("obs/kinds")
    with pytest.raises(SourceError, match="give its name in the file alone"):
        open_vector(cells, 211)


def test_only_the_rows_asked_for_are_read(cells, monkeypatch):
    matrix = open_matrix(cells, key="layers/half")
    copy = pickle.loads(pickle.dumps(matrix))
    assert len(pickle.dumps(matrix)) < 6000
    ranges = []
    read = h5py.Dataset.__getitem__
    monkeypatch.setattr(h5py.Dataset, "__getitem__", lambda self, where, **k: ranges.append(where) or read(self, where))
    copy.read_rows(7, 9)
    assert ranges == [slice(7, 9)]


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_backed_object_is_read_from_its_file(cells, counts, mode):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        backed = anndata.read_h5ad(cells, backed=mode)
        backed.var_names = [f"symbol {j}" for j in range(40)]
        view = backed[:, :3]
    matrix = open_matrix(backed)
    assert matrix.feature_names == tuple(f"symbol {j}" for j in range(40))
    assert not matrix.in_memory
    assert np.array_equal(matrix.read_rows(5, 90).toarray(), counts[5:90])
    assert (
        sks.VarianceSelector(3).fit(backed).support_.tolist() == sks.VarianceSelector(3).fit(counts).support_.tolist()
    )
    with pytest.raises(SourceError, match="view of an object"):
        open_matrix(view)
    backed.file.close()


def test_other_hdf5_files(tmp_path, counts):
    path = tmp_path / "b.h5"
    with h5py.File(path, "w") as file:
        file["inner/values"] = counts
        file["ids"] = np.arange(211)
    MatrixConformance(open_matrix(path), counts).verify()
    assert open_vector("ids", 211, matrix=str(path)).read(3, 5).tolist() == [3, 4]
    with h5py.File(path, "a") as file:
        file["other"] = counts[:3]
        file["text"] = np.array([["a", "b"]], dtype=h5py.string_dtype())
        file["none"] = np.empty((0, 4))
        file["outside"] = h5py.ExternalLink(str(tmp_path / "c.h5"), "x")
    with pytest.raises(SourceError, match=r"--key.*: inner/values, none, other"):
        open_matrix(path)
    with pytest.raises(SourceError, match="not real numbers"):
        open_matrix(path, key="text")
    with pytest.raises(EmptyInput, match="no rows"):
        open_matrix(path, key="none")
    with pytest.raises(SourceError, match="link to another file"):
        open_matrix(path, key="outside")


def test_damage_is_named(cells, tmp_path):
    matrix = open_matrix(cells)
    with h5py.File(cells, "r") as file:
        chunk = file["X/data"].id.get_chunk_info(0)
    before = os.stat(cells)
    with open(cells, "r+b") as file:
        file.seek(chunk.byte_offset)
        file.write(bytes(chunk.size))
    os.utime(cells, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ChunkReadError, match=r"a\.h5ad: X/data: rows 0 to \d+"):
        matrix.read_rows(0, 211)
    os.utime(cells, ns=(1, 1))
    with pytest.raises(SourceChanged, match="rewritten"):
        matrix.read_rows(0, 211)
    (tmp_path / "bad.h5").write_bytes(b"\x89HDF")
    with pytest.raises(SourceError, match="not an HDF5 file"):
        open_matrix(tmp_path / "bad.h5")


def test_a_damaged_csr_group_is_refused(tmp_path):
    path = tmp_path / "c.h5ad"
    with h5py.File(path, "w") as file:
        group = file.create_group("X")
        group.attrs["encoding-type"] = "csr_matrix"
        group["data"], group["indices"] = np.ones(2), np.array([0, 1])
        with pytest.raises(SourceError, match="no attribute shape"):
            open_closed(file, path)
    with h5py.File(path, "a") as file:
        file["X"].attrs["shape"] = [3, 2]
        with pytest.raises(SourceError, match="without its array 'indptr'"):
            open_closed(file, path)
    for ends, message in (([0, 1], "indptr has 2 entries for 3 rows"), ([0, 2, 1, 2], "not a valid CSR matrix")):
        with h5py.File(path, "a") as file:
            if "indptr" in file["X"]:
                del file["X/indptr"]
            file["X/indptr"] = np.array(ends)
            with pytest.raises(SourceError, match=message):
                open_closed(file, path)


def open_closed(file, path):
    """Open the matrix of a file that is written first."""
    file.close()
    open_matrix(path)
