"""Matrices of MuData by the name of their modality: objects, and files as mudata 0.4 writes them."""

import warnings

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import zarr

import sketchselect as sks
from sketchselect.errors import SourceError
from sketchselect.readers import open_matrix, open_vector

# anndata sets an option of pandas that is deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:The 'future.infer_string' option")

RNA = np.random.default_rng(0).poisson(1.0, (30, 6)).astype(np.float32)
PROTEIN = np.random.default_rng(1).normal(size=(30, 2))
KINDS = np.repeat(["a", "b"], 15)
ORDER = ["rna", "protein"]


class MuData:
    """An object as mudata makes it: annotated matrices of the same cells by name."""

    def __init__(self, mod):
        self.mod = mod


MuData.__module__ = "mudata._core.mudata"


@pytest.fixture
def modalities():
    names = [f"cell {i}" for i in range(30)]
    obs = pd.DataFrame({"kind": pd.Categorical(KINDS)}, index=names)
    rna = anndata.AnnData(scipy.sparse.csr_matrix(RNA), obs, pd.DataFrame(index=[f"gene {j}" for j in range(6)]))
    rna.layers["twice"] = 2 * rna.X
    return {"rna": rna, "protein": anndata.AnnData(PROTEIN, pd.DataFrame(index=names))}


@pytest.fixture(params=["object", "h5mu", "zarr"])
def source(request, modalities, tmp_path):
    if request.param == "object":
        return MuData(modalities)
    attributes = {"encoding-type": "MuData", "encoding-version": "0.1.0"}
    path = tmp_path / f"cells.{request.param}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of zarr, about text
        root = h5py.File(path, "w") if request.param == "h5mu" else zarr.open_group(path, mode="w")
        root.attrs.update(attributes)
        above = root.create_group("mod")
        above.attrs["mod-order"] = ORDER
        for name, cells in modalities.items():
            anndata.io.write_elem(above, name, cells)
        if request.param == "h5mu":
            root.close()
    return path


@pytest.mark.parametrize("key", ["rna", "mod/rna", "rna/X", "rna/layers/twice"])
def test_a_key_names_modality_and_matrix(source, key):
    matrix = open_matrix(source, key=key, missing_chunks="fill")
    rows = matrix.read_rows(0, 30)
    assert matrix.is_sparse
    assert np.array_equal(rows.toarray(), RNA * (2 if "twice" in key else 1))
    assert matrix.feature_names == tuple(f"gene {j}" for j in range(6))
    assert matrix.row_names.read(3, 5).tolist() == ["cell 3", "cell 4"]


def test_estimators_take_the_opened_modality(source):
    model = sks.KMeans(2).fit(open_matrix(source, key="protein", missing_chunks="fill"))
    assert model.inertia_ == pytest.approx(sks.KMeans(2).fit(PROTEIN).inertia_)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (None, r"choose a modality with key= \(or --key\); its modalities are: (rna, protein|protein, rna)"),
        ("rn", "no modality 'rn'; did you mean 'rna'"),
        ("rna/layers/none", "none"),
    ],
)
def test_other_keys_are_refused_by_name(source, key, message):
    with pytest.raises(SourceError, match=message) as caught:
        open_matrix(source, key=key, missing_chunks="fill")
    assert len(str(caught.value).splitlines()) == 1


def test_a_column_of_a_modality_is_a_target(source):
    if isinstance(source, MuData):
        pytest.skip("objects have no names of vectors")
    vector = open_vector("mod/rna/obs/kind", 30, matrix=str(source))
    assert vector.read(0, 30).tolist() == KINDS.tolist()
