"""Jobs on an AnnData store: names, a layer, categories as labels, and chunks of zeros that its writer left out."""

import csv
import json
import warnings
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr

import sketchselect as sks
from sketchselect.errors import MissingChunks

KINDS = ["b-cell", "stem", "t-cell"]


@pytest.fixture
def cells(tmp_path: Path) -> Path:
    """300 cells, sorted by kind, of 60 genes of which each kind has ten of its own."""
    rng = np.random.default_rng(8)
    rate = np.full((300, 60), 0.2)
    for kind in range(3):
        rate[100 * kind : 100 * (kind + 1), 10 * kind : 10 * (kind + 1)] = 6.0
    counts = sp.csr_matrix(rng.poisson(rate).astype(np.float32))
    obs = pd.DataFrame({"kind": pd.Categorical(np.repeat(KINDS, 100))}, index=[f"cell{i}" for i in range(300)])
    var = pd.DataFrame(index=[f"gene{j}" for j in range(60)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        anndata.AnnData(counts * 0, obs=obs, var=var, layers={"counts": counts}).write_zarr(tmp_path / "cells.zarr")
    return tmp_path / "cells.zarr"


def job(store: Path, **more: Any) -> dict[str, Any]:
    return {
        "input": {"url": str(store), "key": "layers/counts", "labels": "obs/kind", **more},
        "prepare": {"steps": ["library-size", "log1p", "l2"]},
        "select": {"method": "variance", "n_features": 20},
        "cluster": {"n_clusters": 3},
        "execution": {"cluster": "serial"},
        "output": {"dir": str(store.parent / "out"), "report": False},
    }


def test_cells_from_store_to_names(cells: Path) -> None:
    result = sks.run(job(cells))
    assert result.nmi == pytest.approx(1.0)
    out = cells.parent / "out"
    chosen = json.loads((out / "selection.json").read_text(encoding="utf-8"))
    assert max(chosen["support"]) < 30
    assert chosen["feature_names"] == [f"gene{j}" for j in range(60)]
    rows = list(csv.reader((out / "labels.csv").read_text(encoding="utf-8").splitlines()))
    assert [row[0] for row in rows[1:4]] == ["cell0", "cell1", "cell2"]
    assert len({row[1] for row in rows[1:101]}) == 1


def test_labels_whose_first_chunk_was_left_out(cells: Path) -> None:
    codes = np.asarray(zarr.open_array(cells / "obs/kind/codes", mode="r")[:])
    group = zarr.open_group(cells / "obs/kind", mode="r+")
    again = group.create_array("codes", shape=codes.shape, chunks=(50,), dtype=codes.dtype, overwrite=True)
    again[:] = codes
    with pytest.raises(MissingChunks, match=r"codes.*missing_chunks=\"fill\""):
        sks.run(job(cells))
    assert sks.run(job(cells, missing_chunks="fill")).nmi == pytest.approx(1.0)


def test_annotations_have_the_keys_of_the_scanpy_verbs(cells: Path) -> None:
    content = job(cells)
    content["prepare"] = {"steps": ["log1p"]}
    content["select"] = {"method": "hvg", "n_features": 20}
    content["output"]["anndata"] = True
    result = sks.run(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        annotations = anndata.read_h5ad(result.folder / "annotations.h5ad")
        whole = anndata.read_zarr(cells)
        sks.pp.highly_variable_genes(whole, n_top_genes=20, layer="counts")
        sks.tl.kmeans(whole, 3, layer="counts")
    assert annotations.X is None
    pd.testing.assert_frame_equal(annotations.var, whole.var, check_dtype=False, check_index_type=False, rtol=1e-9)
    assert set(annotations.uns) == {"hvg", "kmeans"}
    assert set(annotations.uns["kmeans"]) == set(whole.uns["kmeans"])
    assert list(annotations.obs_names) == list(whole.obs_names)
    assert annotations.obs["kmeans"].cat.codes.tolist() == result.labels.tolist()
    assert annotations.uns["kmeans"]["certificate"]["factor"] == result.certificate.factor


def test_annotations_of_a_job_without_clusters_are_of_columns(cells: Path) -> None:
    content = job(cells)
    del content["cluster"], content["input"]["labels"]
    content["output"]["anndata"] = True
    result = sks.run(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        annotations = anndata.read_h5ad(result.folder / "annotations.h5ad")
    assert np.flatnonzero(annotations.var["selected"]).tolist() == result.selection.support.tolist()
    assert list(annotations.obs.columns) == []
    content["output"]["anndata"] = False
    assert not (sks.run(content).folder / "annotations.h5ad").exists()


def test_names_with_nul_do_not_end_a_job_at_its_last_file(tmp_path: Path) -> None:
    # HDF5 ends a text there, and h5py refused it once everything else was done.
    rows = np.random.default_rng(0).normal(size=(40, 5))
    pd.DataFrame(rows, columns=["a\0", "a", "b", "b\0", "b\ufffd"]).to_parquet(tmp_path / "rows.parquet")
    result = sks.run(
        {
            "input": {"url": str(tmp_path / "rows.parquet")},
            "select": {"method": "variance", "n_features": 2},
            "execution": {"cluster": "threads"},
            "output": {"dir": str(tmp_path / "out"), "anndata": True, "report": False},
        }
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        annotations = anndata.read_h5ad(result.folder / "annotations.h5ad")
    # Where the other sign for NUL makes the name of another column, one more tells them apart.
    assert list(annotations.var_names) == ["a\ufffd", "a", "b", "b\ufffd\ufffd", "b\ufffd"]
