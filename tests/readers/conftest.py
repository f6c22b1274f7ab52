"""Stores and files of every kind that a reader opens."""

import warnings

import dask.array as da
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import xarray
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
        zarr.create_array(str(folder / name), data=values, **({"chunks": (20, 6)} | options))
        return folder / name

    return write


@pytest.fixture
def write(tmp_path):
    """Return the writer of this test's folder."""
    return writer(tmp_path)


CHECKED = ZstdCodec(level=1, checksum=True)


def saved(name, save=np.save):
    """Return a maker of a file that `save(path, values)` writes."""

    def make(write, values, tmp_path):
        save(tmp_path / name, values)
        return tmp_path / name

    return make


def chunked(**options):
    """Return a maker of a Zarr array."""
    return lambda write, values, tmp_path: write(values, **options)


def in_memory(make):
    """Return a maker of an object in memory."""
    return lambda write, values, tmp_path: make(values)


def memory_url(write, values, tmp_path):
    url = f"memory://{tmp_path.name}/a.zarr"
    zarr.create_array(FsspecStore.from_url(url), data=values, chunks=(20, 6))
    return url


def npz_parts(write, values, tmp_path):
    m = sp.csr_matrix(values)
    np.savez(tmp_path / "p.npz", data=m.data, indices=m.indices, indptr=m.indptr, shape=m.shape, y=np.arange(103))
    return tmp_path / "p.npz"


def array_read_only(write, values, tmp_path):
    out = values.copy()
    out.flags.writeable = False
    return out


def array_unaligned(write, values, tmp_path):
    raw = np.zeros(values.nbytes + 1, np.uint8)
    out = raw[1:].view(np.float32).reshape(values.shape)
    out[...] = values
    return out


def coo_with_duplicates(write, values, tmp_path):
    rows, columns = np.indices(values.shape).reshape(2, -1)
    half = values.ravel() / 2
    return sp.coo_array((np.r_[half, half], (np.r_[rows, rows], np.r_[columns, columns])), shape=values.shape)


def zarr_zip(write, values, tmp_path):
    with zarr.storage.ZipStore(tmp_path / "z.zip", mode="w") as store:
        zarr.create_array(store, data=values, chunks=(20, 5))
    return zarr.open_array(zarr.storage.ZipStore(tmp_path / "z.zip", mode="r"), mode="r")


def parquet(write, values, tmp_path):
    pq.write_table(parquet_table(values), tmp_path / "p.parquet", row_group_size=20)
    return tmp_path / "p.parquet"


def parquet_folder(write, values, tmp_path):
    (tmp_path / "parts").mkdir()
    pq.write_table(parquet_table(values[:40]), tmp_path / "parts" / "a.parquet")
    pq.write_table(parquet_table(values[40:]), tmp_path / "parts" / "b.parquet", row_group_size=25)
    return tmp_path / "parts"


def anndata_store(tmp_path, values, ending="zarr"):
    """Write an AnnData store, as its release here does it by default, and return its path."""
    import anndata

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = anndata.AnnData(values)
        path = tmp_path / f"ad.{ending}"
        (data.write_zarr if ending == "zarr" else data.write_h5ad)(path)
    return path


@pytest.fixture
def counts():
    """Small counts: some rows and columns empty, one row full."""
    values = np.random.default_rng(3).poisson(0.3, (211, 40)).astype(np.float32)
    values[[0, 5, 210]] = 0
    values[:, 7] = 0
    values[100] = 9
    return values


def cells_in(path, counts):
    """Write AnnData with a sparse X, layers of three kinds, raw counts, points and columns of every kind."""
    import anndata

    kinds = np.random.default_rng(1).choice(["stem", "basal"], 211)
    obs = pd.DataFrame(
        {
            "kind": pd.Categorical(kinds),
            "depth": counts.sum(1),
            "name": kinds,
            "batch": pd.array([None, *range(210)], dtype="Int64"),
        },
        index=[f"cell{i}" for i in range(211)],
    )
    layers = {"half": counts / 2, "twice": sp.csr_matrix(2 * counts), "columns": sp.csc_matrix(counts)}
    var = pd.DataFrame(index=[f"gene{j}" for j in range(40)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = anndata.AnnData(
            sp.csr_matrix(counts), obs=obs, var=var, layers=layers, obsm={"points": counts[:, :3].copy()}
        )
        data.raw = data
        if path.suffix == ".zarr":
            data.write_zarr(path)
        else:
            data.write_h5ad(path, compression="gzip")
    return path


def parquet_table(values):
    return pa.table({f"f{j}": values[:, j] for j in range(values.shape[1])})


NAMED = dict.fromkeys(("anndata_csr", "anndata_dense", "h5ad_csr", "h5ad_dense"), tuple(map(str, range(17)))) | (
    dict.fromkeys(("parquet", "parquet_folder"), tuple(f"f{j}" for j in range(17)))
)
"""Names of the columns of the sources that have some."""

UNEVEN = ((1, 50, 2, 50), (3, 14))

SOURCES = {
    "plain": lambda write, values, tmp_path: str(write(values)),
    "checked": chunked(compressors=CHECKED),
    "uncompressed": chunked(compressors=None),
    "blosc": chunked(compressors=BloscCodec(cname="lz4")),
    "sharded": chunked(chunks=(10, 6), shards=(40, 12)),
    "version_2": chunked(zarr_format=2),
    "version_2_fortran_big_endian": lambda write, values, tmp_path: write(
        values.astype(">f4"), zarr_format=2, order="F"
    ),
    "dots": chunked(chunk_key_encoding={"name": "v2", "configuration": {"separator": "."}}),
    "one_chunk": lambda write, values, tmp_path: write(values, chunks=values.shape),
    "file_url": lambda write, values, tmp_path: f"file://{write(values)}",
    "memory_url": memory_url,
    "npy": saved("a.npy"),
    "npy_fortran": saved("f.npy", lambda path, values: np.save(path, np.asfortranarray(values))),
    "npy_big_endian": saved("b.npy", lambda path, values: np.save(path, values.astype(">f4"))),
    "npz": saved("a.npz", lambda path, X: np.savez_compressed(path, X=X, y=np.arange(len(X)), Z=X[:3])),
    "npz_only": saved("o.npz", lambda path, X: np.savez(path, anything=X, labels=np.arange(len(X)))),
    "npz_csr": saved("s.npz", lambda path, values: sp.save_npz(path, sp.csr_array(values))),
    "npz_csc": saved("c.npz", lambda path, values: sp.save_npz(path, sp.csc_matrix(values))),
    "npz_parts": npz_parts,
    "array": in_memory(lambda values: values),
    "array_strided": in_memory(lambda values: np.repeat(values, 2, axis=1)[:, ::2]),
    "array_fortran": in_memory(np.asfortranarray),
    "array_read_only": array_read_only,
    "array_unaligned": array_unaligned,
    "frame": in_memory(pd.DataFrame),
    "csr": in_memory(sp.csr_matrix),
    "csc": in_memory(sp.csc_array),
    "coo_with_duplicates": coo_with_duplicates,
    "dask_even": in_memory(lambda values: da.from_array(values, chunks=(25, 7))),
    "dask_uneven": in_memory(lambda values: da.from_array(values, chunks=UNEVEN)),
    "dask_sparse": in_memory(lambda values: da.from_array(values, chunks=(25, 7)).map_blocks(sp.csr_matrix)),
    "dask_sparse_uneven": in_memory(lambda values: da.from_array(values, chunks=UNEVEN).map_blocks(sp.csc_array)),
    "zarr_object": lambda write, values, tmp_path: zarr.open_array(str(write(values)), mode="r"),
    "zarr_zip": zarr_zip,
    "zarr_memory": in_memory(
        lambda values: zarr.create_array(zarr.storage.MemoryStore(), data=values, chunks=(20, 5), shards=(40, 10))
    ),
    "anndata_csr": lambda write, values, tmp_path: anndata_store(tmp_path, sp.csr_matrix(values)),
    "anndata_dense": lambda write, values, tmp_path: anndata_store(tmp_path, values),
    "h5ad_csr": lambda write, values, tmp_path: anndata_store(tmp_path, sp.csr_matrix(values), "h5ad"),
    "h5ad_dense": lambda write, values, tmp_path: anndata_store(tmp_path, values, "h5ad"),
    "converted_csr": lambda write, values, tmp_path: convert(sp.csr_array(values), tmp_path / "c.zarr"),
    "parquet": parquet,
    "parquet_folder": parquet_folder,
    "xarray_dense": in_memory(lambda values: xarray.DataArray(values, dims=("row", "column"))),
    "xarray_dask": in_memory(
        lambda values: xarray.DataArray(values, dims=("row", "column")).chunk({"row": 25, "column": 7})
    ),
}
"""Makers of sources that all hold `values`: the conformance suite runs over every one."""


@pytest.fixture(params=list(SOURCES))
def any_source(request, write, values, tmp_path):
    """Every kind of source in turn."""
    yield SOURCES[request.param](write, values, tmp_path)
    fsspec.filesystem("memory").store.clear()
