"""HDF5 files: reads of a few rows, backed objects, other datasets, and damage."""

import os
import pickle
import warnings

import anndata
import h5py
import numpy as np
import pytest

import sketchselect as sks
from sketchselect import open_matrix
from sketchselect.errors import ChunkReadError, EmptyInput, SourceChanged, SourceError
from sketchselect.readers import open_vector
from sketchselect.testing.readers import MatrixConformance

from .conftest import cells_in


@pytest.fixture
def cells(counts, tmp_path):
    return cells_in(tmp_path / "a.h5ad", counts)


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


def test_records_and_single_values_are_no_matrix(tmp_path):
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["X"] = np.zeros((3, 4), dtype=[("a", "f8"), ("b", "f8")])
        file["one"] = 3.0
    with pytest.raises(SourceError, match="no matrix of rows in this file; write a dataset of numbers"):
        open_matrix(tmp_path / "b.h5")
    with pytest.raises(SourceError, match=r"'X' is a table of records, not a matrix; write a dataset of numbers"):
        open_matrix(tmp_path / "b.h5", key="X")
    with pytest.raises(
        SourceError, match=r"one: a matrix has two dimensions .* has 0: it is a single value; write an array"
    ):
        open_matrix(tmp_path / "b.h5", key="one")
    with h5py.File(tmp_path / "b.h5", "a") as file:
        file["Y"] = np.ones((3, 4))
    assert open_matrix(tmp_path / "b.h5").shape == (3, 4)
    with pytest.raises(SourceError, match=r"'X' is a table of records, not a matrix; matrices there: Y"):
        open_matrix(tmp_path / "b.h5", key="X")
