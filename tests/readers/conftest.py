"""Stores and files of every kind that a reader opens."""

from __future__ import annotations

import warnings

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import zarr
from zarr.codecs import BloscCodec, ZstdCodec
from zarr.storage import FsspecStore

from sketchselect.readers import convert


@pytest.fixture
def values():
    """103 x 17 float32 numbers: neither side a multiple of any chunk used here."""
    return np.random.default_rng(11).standard_normal((103, 17)).astype(np.float32)


def writer(folder):
    """Return ``write(values, **arguments of zarr.create_array) -> path`` in a folder."""

    def write(values, name="a.zarr", **options):
        array = zarr.create_array(
            str(folder / name), shape=values.shape, dtype=values.dtype, **({"chunks": (20, 6)} | options)
        )
        array[...] = values
        return folder / name

    return write


@pytest.fixture
def write(tmp_path):
    """Return the writer of this test's folder."""
    return writer(tmp_path)


CHECKED = ZstdCodec(level=1, checksum=True)


def plain(write, values, tmp_path):
    return str(write(values))


def checked(write, values, tmp_path):
    return write(values, compressors=CHECKED)


def uncompressed(write, values, tmp_path):
    return write(values, compressors=None)


def blosc(write, values, tmp_path):
    return write(values, compressors=BloscCodec(cname="lz4"))


def sharded(write, values, tmp_path):
    return write(values, chunks=(10, 6), shards=(40, 12))


def version_2(write, values, tmp_path):
    return write(values, zarr_format=2)


def version_2_fortran_big_endian(write, values, tmp_path):
    return write(values.astype(">f4"), zarr_format=2, order="F")


def dots(write, values, tmp_path):
    return write(values, chunk_key_encoding={"name": "v2", "configuration": {"separator": "."}})


def one_chunk(write, values, tmp_path):
    return write(values, chunks=values.shape)


def file_url(write, values, tmp_path):
    return f"file://{write(values)}"


def memory_url(write, values, tmp_path):
    url = f"memory://{tmp_path.name}/a.zarr"
    array = zarr.create_array(FsspecStore.from_url(url), shape=values.shape, chunks=(20, 6), dtype=values.dtype)
    array[...] = values
    return url


def npy(write, values, tmp_path):
    np.save(tmp_path / "a.npy", values)
    return tmp_path / "a.npy"


def npy_fortran(write, values, tmp_path):
    np.save(tmp_path / "f.npy", np.asfortranarray(values))
    return str(tmp_path / "f.npy")


def npy_big_endian(write, values, tmp_path):
    np.save(tmp_path / "b.npy", values.astype(">f4"))
    return str(tmp_path / "b.npy")


def npz(write, values, tmp_path):
    np.savez_compressed(tmp_path / "a.npz", X=values, y=np.arange(len(values)), Z=values[:3])
    return tmp_path / "a.npz"


def npz_only(write, values, tmp_path):
    np.savez(tmp_path / "o.npz", anything=values, labels=np.arange(len(values)))
    return tmp_path / "o.npz"


def npz_csr(write, values, tmp_path):
    sp.save_npz(tmp_path / "s.npz", sp.csr_array(values))
    return tmp_path / "s.npz"


def npz_csc(write, values, tmp_path):
    sp.save_npz(tmp_path / "c.npz", sp.csc_matrix(values))
    return tmp_path / "c.npz"


def npz_parts(write, values, tmp_path):
    m = sp.csr_matrix(values)
    np.savez(tmp_path / "p.npz", data=m.data, indices=m.indices, indptr=m.indptr, shape=m.shape, y=np.arange(103))
    return tmp_path / "p.npz"


def array(write, values, tmp_path):
    return values


def array_strided(write, values, tmp_path):
    return np.repeat(values, 2, axis=1)[:, ::2]


def array_fortran(write, values, tmp_path):
    return np.asfortranarray(values)


def array_read_only(write, values, tmp_path):
    out = values.copy()
    out.flags.writeable = False
    return out


def array_unaligned(write, values, tmp_path):
    raw = np.zeros(values.nbytes + 1, np.uint8)
    out = raw[1:].view(np.float32).reshape(values.shape)
    out[...] = values
    return out


def frame(write, values, tmp_path):
    import pandas as pd

    return pd.DataFrame(values)


def csr(write, values, tmp_path):
    return sp.csr_matrix(values)


def csc(write, values, tmp_path):
    return sp.csc_array(values)


def coo_with_duplicates(write, values, tmp_path):
    rows, columns = np.indices(values.shape).reshape(2, -1)
    half = values.ravel() / 2
    return sp.coo_array((np.r_[half, half], (np.r_[rows, rows], np.r_[columns, columns])), shape=values.shape)


def dask_even(write, values, tmp_path):
    import dask.array as da

    return da.from_array(values, chunks=(25, 7))


def dask_uneven(write, values, tmp_path):
    import dask.array as da

    return da.from_array(values, chunks=((1, 50, 2, 50), (3, 14)))


def dask_sparse(write, values, tmp_path):
    import dask.array as da

    return da.from_array(values, chunks=(25, 7)).map_blocks(sp.csr_matrix)


def dask_sparse_uneven(write, values, tmp_path):
    import dask.array as da

    return da.from_array(values, chunks=((1, 50, 2, 50), (3, 14))).map_blocks(sp.csc_array)


def zarr_object(write, values, tmp_path):
    return zarr.open_array(str(write(values)), mode="r")


def zarr_zip(write, values, tmp_path):
    with zarr.storage.ZipStore(tmp_path / "z.zip", mode="w") as store:
        zarr.create_array(store, data=values, chunks=(20, 5))
    return zarr.open_array(zarr.storage.ZipStore(tmp_path / "z.zip", mode="r"), mode="r")


def zarr_memory(write, values, tmp_path):
    return zarr.create_array(zarr.storage.MemoryStore(), data=values, chunks=(20, 5), shards=(40, 10))


def anndata_csr(write, values, tmp_path):
    return anndata_store(tmp_path, sp.csr_matrix(values))


def anndata_dense(write, values, tmp_path):
    return anndata_store(tmp_path, values)


def h5ad_csr(write, values, tmp_path):
    return anndata_store(tmp_path, sp.csr_matrix(values), "h5ad")


def h5ad_dense(write, values, tmp_path):
    return anndata_store(tmp_path, values, "h5ad")


def converted_csr(write, values, tmp_path):
    return convert(sp.csr_array(values), tmp_path / "c.zarr")


def parquet(write, values, tmp_path):
    pq.write_table(parquet_table(values), tmp_path / "p.parquet", row_group_size=20)
    return tmp_path / "p.parquet"


def parquet_folder(write, values, tmp_path):
    (tmp_path / "parts").mkdir()
    pq.write_table(parquet_table(values[:40]), tmp_path / "parts" / "a.parquet")
    pq.write_table(parquet_table(values[40:]), tmp_path / "parts" / "b.parquet", row_group_size=25)
    return tmp_path / "parts"


def xarray_dense(write, values, tmp_path):
    import xarray

    return xarray.DataArray(values, dims=("row", "column"))


def xarray_dask(write, values, tmp_path):
    import xarray

    return xarray.DataArray(values, dims=("row", "column")).chunk({"row": 25, "column": 7})


def anndata_store(tmp_path, values, ending="zarr"):
    """Write an AnnData store, as its release here does it by default, and return its path."""
    import anndata

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = anndata.AnnData(values)
        path = tmp_path / f"ad.{ending}"
        (data.write_zarr if ending == "zarr" else data.write_h5ad)(path)
    return path


def parquet_table(values):
    return pa.table({f"f{j}": values[:, j] for j in range(values.shape[1])})


NAMED = dict.fromkeys(("anndata_csr", "anndata_dense", "h5ad_csr", "h5ad_dense"), tuple(map(str, range(17)))) | (
    dict.fromkeys(("parquet", "parquet_folder"), tuple(f"f{j}" for j in range(17)))
)
"""Names of the columns of the sources that have some."""

SOURCES = {
    maker.__name__: maker
    for maker in (
        plain, checked, uncompressed, blosc, sharded, version_2, version_2_fortran_big_endian, dots, one_chunk,
        file_url, memory_url, npy, npy_fortran, npy_big_endian, npz, npz_only, npz_csr, npz_csc, npz_parts, array,
        array_strided, array_fortran, array_read_only, array_unaligned, frame, csr, csc, coo_with_duplicates,
        dask_even, dask_uneven, dask_sparse, dask_sparse_uneven,
        zarr_object, zarr_zip, zarr_memory, anndata_csr, anndata_dense, h5ad_csr, h5ad_dense, converted_csr,
        parquet, parquet_folder, xarray_dense, xarray_dask,
    )
}  # fmt: skip
"""Makers of sources that all hold `values`: the conformance suite runs over every one."""


@pytest.fixture(params=list(SOURCES))
def any_source(request, write, values, tmp_path):
    """Every kind of source in turn."""
    yield SOURCES[request.param](write, values, tmp_path)
    fsspec.filesystem("memory").store.clear()
