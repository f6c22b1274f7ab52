"""Labels and distances of Dask arrays stay Dask arrays, and labels can be written without being held."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse
import zarr

from sketchselect.cluster import KMeans
from sketchselect.errors import BadParameter, NotFinite, NotOurFolder

from .data import blobs, exact_distances


@pytest.fixture(scope="module")
def fitted():
    X = blobs(1, 1000, 6, 5, separation=2.0)
    return KMeans(5).fit(X), X


def test_dask_arrays_give_dask_arrays(fitted):
    km, X = fitted
    lazy = da.from_array(X, chunks=((300, 700), (4, 2)))
    labels, distances = km.predict(lazy), km.transform(lazy)
    assert isinstance(labels, da.Array)
    assert isinstance(distances, da.Array)
    assert labels.dtype == np.int32
    assert labels.chunks == ((300, 700),)
    assert distances.shape == (1000, 5)
    assert np.array_equal(labels.compute(), km.labels_)
    np.testing.assert_allclose(distances.compute() ** 2, exact_distances(X, km.cluster_centers_).astype(float))
    with pytest.raises(BadParameter, match="3 features"):
        km.predict(lazy[:, :3])


@pytest.mark.parametrize("form", ["COO", "GCXS", "csr_matrix", "csc_array", "coo_array"])
def test_chunks_of_every_sparse_kind_have_labels_and_distances(fitted, form):
    km, X = fitted
    make = getattr(scipy.sparse, form, None) or getattr(pytest.importorskip("sparse"), form)
    lazy = da.from_array(X, chunks=(300, 6)).map_blocks(make)
    again = KMeans(5).fit(lazy)
    assert np.array_equal(again.labels_.compute(), km.labels_)
    assert np.array_equal(km.predict(lazy).compute(), km.labels_)
    np.testing.assert_allclose(km.transform(lazy).compute(), km.transform(X))


def test_a_sparse_chunk_with_nan_has_no_distances(fitted):
    km, X = fitted
    lazy = da.from_array(np.where(X[400, 2] == X, np.nan, X), chunks=(300, 6)).map_blocks(scipy.sparse.csr_array)
    with pytest.raises(NotFinite, match=r"1 NaN .* row 100, column 2"):
        km.transform(lazy).compute()


@pytest.mark.parametrize("rows", ["zarr", "dask", "memory"])
def test_labels_are_written(fitted, tmp_path, rows):
    km, X = fitted
    source = X
    if rows == "zarr":
        source = tmp_path / "x.zarr"
        zarr.create_array(str(source), shape=X.shape, chunks=(128, 6), dtype="float64")[:] = X
    if rows == "dask":
        source = da.from_array(X, chunks=((150, 400, 450), 6))
    assert km.predict(source, out=tmp_path / "labels.zarr") == str(tmp_path / "labels.zarr")
    stored = zarr.open_array(str(tmp_path / "labels.zarr"), mode="r")
    assert stored.dtype == np.int32
    assert np.array_equal(stored[:], km.labels_)
    # What we wrote may be replaced, what others wrote may not.
    km.predict(source, out=tmp_path / "labels.zarr")
    zarr.create_array(str(tmp_path / "other.zarr"), shape=(2,), dtype="i4")
    with pytest.raises(NotOurFolder):
        km.predict(source, out=tmp_path / "other.zarr")
    with pytest.raises(BadParameter, match="folder"):
        km.predict(source, out=tmp_path / "missing" / "labels.zarr")
    for name, kind in (("labels.npy", "NumPy"), ("l.CSV", "text"), ("l.parquet", "Parquet")):
        with pytest.raises(BadParameter, match=f"a Zarr store, not {kind} files"):
            km.predict(source, out=tmp_path / name)
        assert not (tmp_path / name).exists()


def test_labels_of_many_partitions_and_dropped_rows(fitted, tmp_path, monkeypatch):
    from sketchselect.cluster.kmeans import passes
    from sketchselect.readers import open_matrix

    km, X = fitted
    monkeypatch.setattr(passes, "LEAST_PARTITION_NBYTES", 4096)
    holes = X.copy()
    holes[[3, 500, 999], 2] = np.nan
    np.save(tmp_path / "x.npy", holes)
    km.predict(open_matrix(tmp_path / "x.npy", nonfinite="drop_rows"), out=tmp_path / "labels.zarr")
    stored = zarr.open_array(str(tmp_path / "labels.zarr"), mode="r")
    assert stored.nchunks > 1
    expected = km.labels_.copy()
    expected[[3, 500, 999]] = -1
    assert np.array_equal(stored[:], expected)
