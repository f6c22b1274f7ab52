"""Files of svmlight, against the arrays that they were written from."""

import gzip
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

import sketchselect as sks
from sketchselect.errors import BadParameter, SourceError
from sketchselect.readers import open_matrix, open_vector


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    values = np.round(64 * rng.standard_normal((80, 12))) / 64 * (rng.random((80, 12)) < 0.3)  # short in decimals
    values[:, 11] = 0  # the last column is in no line of the file
    return sp.csr_array(values)


@pytest.mark.parametrize("ending", ["svm", "svmlight", "libsvm"])
@pytest.mark.parametrize("first", [0, 1])
def test_rows_and_targets_are_those_written(tmp_path, rows, ending, first):
    target = np.arange(80) / 8
    path = tmp_path / f"a.{ending}"
    dump_svmlight_file(rows, target, str(path), zero_based=first == 0)
    matrix = pickle.loads(pickle.dumps(open_matrix(path, key="12")))
    assert matrix.is_sparse
    assert matrix.shape == (80, 12)
    np.testing.assert_array_equal(matrix.read_rows(10, 70).toarray(), rows[10:70].toarray())
    assert open_matrix(path).shape == (80, 11)
    for vector in (open_vector(path, 80), open_vector("target", 80, matrix=matrix)):
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(vector)).read(5, 80), target[5:])


def test_a_packed_file_is_read(tmp_path, rows):
    dump_svmlight_file(rows, np.zeros(80), str(tmp_path / "a.svm"))
    (tmp_path / "a.svm.gz").write_bytes(gzip.compress((tmp_path / "a.svm").read_bytes()))
    plain, packed = (open_matrix(tmp_path / name).read_rows(0, 80) for name in ("a.svm", "a.svm.gz"))
    np.testing.assert_array_equal(plain.toarray(), packed.toarray())


def test_a_model_learns_from_the_targets_of_the_file(tmp_path, rows):
    target = rows.toarray() @ np.eye(12)[3] * 5 + 1
    dump_svmlight_file(rows, target, str(tmp_path / "a.svm"))
    path = str(tmp_path / "a.svm")
    assert sks.LassoPath(n_features_to_select=1).fit(path, "target").support_.tolist() == [3]


def test_mistakes_are_named(tmp_path):
    (tmp_path / "bad.svm").write_text("1 1:2 3:x\n")
    with pytest.raises(SourceError, match=r"bad.svm: not an svmlight file"):
        open_matrix(tmp_path / "bad.svm")
    (tmp_path / "a.svm").write_text("1 1:2 3:4\n2 2:1\n")
    with pytest.raises(BadParameter, match="number of columns, got 'X'"):
        open_matrix(tmp_path / "a.svm", key="X")
    with pytest.raises(SourceError, match="not an svmlight file"):
        open_matrix(tmp_path / "a.svm", key="2")
    with pytest.raises(SourceError, match="nor is there such an array"):
        open_vector("other", 2, matrix=str(tmp_path / "a.svm"))
