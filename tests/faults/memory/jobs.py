"""Jobs whose memory is measured: sources x methods x engines x sizes of partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse
import zarr
from numpy.typing import NDArray

MIB = 1 << 20


def numbers(n_rows: int, n_columns: int, dtype: str = "float32", seed: int = 0) -> NDArray[Any]:
    """Return six overlapping clusters: methods and k-means take an ordinary number of iterations."""
    rng = np.random.default_rng(seed)
    centers = 1.5 * rng.standard_normal((6, n_columns), dtype="float32")
    rows = rng.standard_normal((n_rows, n_columns), dtype="float32")
    rows += centers[rng.integers(6, size=n_rows)]
    if dtype == "bool":
        return rows > 0
    if np.dtype(dtype).kind != "f":
        return (10 * rows).clip(-120, 120).astype(dtype)
    return rows.astype(dtype, copy=False)


def sparse_counts(n_rows: int, n_columns: int, per_row: int, seed: int = 0) -> scipy.sparse.csr_matrix:
    """Return counts whose columns are as unequal as those of words or genes."""
    rng = np.random.default_rng(seed)
    columns = (n_columns * rng.random(n_rows * per_row, dtype="float32") ** 2).astype(np.int32)
    values = rng.integers(1, 9, columns.size).astype("float32")
    offsets = np.arange(0, columns.size + 1, per_row)
    counts = scipy.sparse.csr_matrix((values, columns, offsets), shape=(n_rows, n_columns))
    counts.sum_duplicates()
    return counts


def zarr_store(folder: Path, *shape: int, chunk: int, shard: int | None = None, dtype: str = "float32") -> str:
    """Write rows as a Zarr array, with chunks of `chunk` rows in shards of `shard`."""
    rows = numbers(*shape, dtype)
    shards = None if shard is None else (shard, shape[1])
    zarr.create_array(folder / "rows.zarr", data=rows, chunks=(chunk, shape[1]), shards=shards)
    return "rows.zarr"


PACKING = {"scale_factor": 0.01, "add_offset": 3.0, "_FillValue": -999}
"""Attributes of integers of two bytes, as NetCDF has them."""


def packed_store(folder: Path, *shape: int, chunk: int) -> str:
    """Write rows as NetCDF packs them: integers of two bytes, a scale and an offset."""
    rows = zarr.create_array(folder / "rows.zarr", data=numbers(*shape, "int16"), chunks=(chunk, shape[1]))
    rows.attrs.update(PACKING)
    return "rows.zarr"


def npy(folder: Path, *shape: int, dtype: str = "float32", holes: bool = False) -> str:
    """Write rows as a NumPy file."""
    rows = numbers(*shape, dtype)
    if holes:
        rows[::50, 3] = np.nan
    np.save(folder / "rows.npy", rows)
    return "rows.npy"


def npy_across(folder: Path, *shape: int) -> str:
    """Write rows as a NumPy file that has one column after the other."""
    np.save(folder / "rows.npy", np.asfortranarray(numbers(*shape)))
    return "rows.npy"


def npz_full_columns(folder: Path, n_rows: int, n_columns: int, dtype: str) -> str:
    """Write an archive of sparse rows, all of whose entries are in columns that are a little more than a quarter full.

    These take most memory: kernels make them dense.
    """
    made = scipy.sparse.random_array((n_rows, 220), density=0.27, format="csr", rng=np.random.default_rng(0))
    rows = scipy.sparse.csr_matrix((made.data.astype(dtype), made.indices, made.indptr), (n_rows, n_columns))
    scipy.sparse.save_npz(folder / "rows.npz", rows)
    return "rows.npz"


def npz(folder: Path, *shape: int, per_row: int = 0) -> str:
    """Write an archive: of a dense array, or of sparse rows."""
    if per_row:
        scipy.sparse.save_npz(folder / "rows.npz", sparse_counts(*shape, per_row))
    else:
        np.savez(folder / "rows.npz", X=numbers(*shape))
    return "rows.npz"


def npz_full_at_the_end(folder: Path, n_rows: int, n_columns: int, per_row: int) -> str:
    """Write an archive of sparse rows, the last 200 of which have 40 times as many entries as the others."""
    last = scipy.sparse.random_array((200, n_columns), density=40 * per_row / n_columns, rng=np.random.default_rng(0))
    rows = [sparse_counts(n_rows - 200, n_columns, per_row), scipy.sparse.csr_matrix(last.astype("float32"))]
    scipy.sparse.save_npz(folder / "rows.npz", scipy.sparse.vstack(rows, format="csr"))
    return "rows.npz"


def mtx(folder: Path, *shape: int, per_row: int) -> str:
    """Write a file in the format of Matrix Market."""
    scipy.io.mmwrite(folder / "rows.mtx", sparse_counts(*shape, per_row), precision=3)
    return "rows.mtx"


def svmlight(folder: Path, *shape: int, per_row: int) -> str:
    """Write a file of svmlight."""
    from sklearn.datasets import dump_svmlight_file

    dump_svmlight_file(sparse_counts(*shape, per_row), np.zeros(shape[0]), str(folder / "rows.svm"), zero_based=False)
    return "rows.svm"


def parquet_lists(folder: Path, n_rows: int, length: int) -> str:
    """Write one column of lists, as embeddings are, in one row group."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    offsets = pa.array(np.arange(0, n_rows * length + 1, length, dtype=np.int32))
    lists = pa.ListArray.from_arrays(offsets, pa.array(numbers(n_rows, length, "float32").ravel()))
    pq.write_table(pa.table({"embedding": lists}), folder / "rows.parquet", row_group_size=n_rows)
    return "rows.parquet"


def csv(folder: Path, *shape: int) -> str:
    """Write a table of text, and convert it, as jobs ask for."""
    from pyarrow.csv import write_csv

    from sketchselect.readers import convert

    write_csv(_table(numbers(*shape)), folder / "rows.csv")
    convert(folder / "rows.csv", folder / "rows.zarr")
    return "rows.zarr"


def parquet(
    folder: Path, *shape: int, dtype: str = "float32", group: int | None = None, text: bool = False, holes: bool = False
) -> str:
    """Write a Parquet file; of one row group, as pandas does, unless `group` says otherwise."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = numbers(*shape, dtype)
    if holes:
        rows[::50, 3] = np.nan
    table = _table(rows)
    if text:
        names = [f"the name of row {i}, a text of some length" for i in range(shape[0])]
        table = table.append_column("name", pa.array(names))
    pq.write_table(table, folder / "rows.parquet", row_group_size=group or shape[0])
    return "rows.parquet"


def _table(rows: NDArray[Any]) -> Any:
    import pyarrow as pa

    return pa.table({f"x{j}": rows[:, j] for j in range(rows.shape[1])})


def levels(folder: Path, n_rows: int, n_columns: int, n_levels: int) -> str:
    """Write numbers and a column of text of many levels."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [f"level number {level}" for level in np.random.default_rng(2).integers(n_levels, size=n_rows)]
    table = _table(numbers(n_rows, n_columns)).append_column("text", pa.array(texts))
    pq.write_table(table, folder / "rows.parquet", row_group_size=n_rows)
    return "rows.parquet"


def hdf5(folder: Path, *shape: int, chunk: int, is_packed: bool = False) -> str:
    """Write rows as a compressed HDF5 data set; packed ones as NetCDF has them."""
    import h5py

    rows = numbers(*shape, "int16" if is_packed else "float32")
    with h5py.File(folder / "rows.h5", "w") as file:
        stored = file.create_dataset("X", data=rows, chunks=(chunk, shape[1]), compression="lzf")
        stored.attrs.update(PACKING if is_packed else {})
    return "rows.h5"


def anndata(folder: Path, *shape: int, per_row: int, suffix: str) -> str:
    """Write counts of cells as anndata does; as Zarr, its sparse arrays are chunked and sharded."""
    import anndata as ad

    cells = ad.AnnData(sparse_counts(*shape, per_row))
    path = folder / f"cells.{suffix}"
    cells.write_h5ad(path) if suffix == "h5ad" else cells.write_zarr(path)
    return path.name


@dataclass(frozen=True)
class Job:
    """One job of the table."""

    name: str
    write: Callable[[Path], str]  # Writes the source, and returns its name
    method: str = "greedy"
    cluster: str = "threads"  # Of ``[execution]``
    partition: str | None = None
    sections: dict[str, dict[str, Any]] = field(default_factory=dict)

    def content(self, folder: Path) -> dict[str, Any]:
        """Write the source and what belongs to it, and return the job."""
        name = self.write(folder)
        given = self.sections
        # Folds choose the number of columns.
        chooses = self.method in ("auto", "auto-target") or "cv" in given.get("select", {})
        select = {"method": self.method} | ({} if chooses else {"n_features": 10})
        execution: dict[str, Any] = {"cluster": self.cluster, "checkpoint": False}
        if self.cluster != "serial":
            execution["n_workers"] = 2
        if self.partition is not None:
            execution["partition_bytes"] = self.partition
        job: dict[str, Any] = {
            "input": {"url": str(folder / name), **given.get("input", {})},
            "select": {**select, **given.get("select", {})},
            "execution": execution,
            "output": {"dir": str(folder / "out"), "report": False, **given.get("output", {})},
        }
        if "target" in job["input"]:
            target = np.random.default_rng(1).standard_normal(job["input"]["target"])
            if given.get("classes", {}).get("of_columns"):
                target += np.load(job["input"]["url"], mmap_mode="r")[:, :20].sum(axis=1)
            if "classes" in given:
                target = (target > 0).astype("int64")
            np.save(folder / "y.npy", target)
            job["input"]["target"] = str(folder / "y.npy")
        if "timeline" in given:
            days = np.datetime64("2015-01-01T00:00", "m") + np.arange(given["timeline"]["dates"])
            np.save(folder / "dates.npy", days.astype("datetime64[s]"))
            job["timeline"] = given["timeline"] | {"dates": str(folder / "dates.npy")}
        return job | {name: given[name] for name in ("cluster", "prepare") if name in given}


def clustered(**settings: Any) -> dict[str, dict[str, Any]]:
    """Return the sections of a job that clusters; few iterations, which need no more memory than many."""
    return {"cluster": {"n_clusters": 6, "max_iter": 3, "n_init": 1, "certificate": False, **settings}}


BLOCKS = {"method": "blocks", "block_rows": 200, "fraction": 0.1}
COUNTS = partial(anndata, suffix="h5ad")
FLOATS = partial(zarr_store, chunk=5_000)
LIMITS = {"nonfinite": "drop_rows"}
COLUMNS = {"select": {"read": "columns"}}
FADES = {"select": {"half_life": 100.0}}
ANNOTATED = {"output": {"anndata": True}}
CELLS = partial(anndata, suffix="zarr")
MANY = {**clustered(), "select": {"n_features": 190}}

JOBS = (
    # Tall row groups, as pandas writes them.
    Job("parquet-one-group", lambda f: parquet(f, 300_000, 60)),
    Job("parquet-one-group-float64", lambda f: parquet(f, 300_000, 60, dtype="float64"), "variance"),
    Job("parquet-one-group-int8", lambda f: parquet(f, 300_000, 60, dtype="int8"), "leverage", "local"),
    Job(
        "parquet-text-beside", lambda f: parquet(f, 300_000, 60, text=True), "variance", "local", None,
        {"input": {"key": "-name"}},
    ),
    Job("parquet-drop-rows", lambda f: parquet(f, 300_000, 60, holes=True), "greedy", "local", None, {"input": LIMITS}),
    Job("parquet-bool", lambda f: parquet(f, 800_000, 60, dtype="bool"), "variance", "local"),
    Job("parquet-small-groups", lambda f: parquet(f, 200_000, 60, group=20_000), "pivoted-qr", "threads", "16MiB"),
    Job("parquet-long-lists", lambda f: parquet_lists(f, 8_000, 8_000), "variance"),
    Job("parquet-tall", lambda f: parquet(f, 1_000_000, 60), "greedy", "local"),
    Job(
        "parquet-levels", lambda f: levels(f, 60_000, 5, 700), "variance", "threads", None,
        {"prepare": {"steps": ["one-hot"]}},
    ),
    # Text and archives.
    Job("csv", lambda f: csv(f, 60_000, 40), "variance"),
    Job("csv-processes", lambda f: csv(f, 60_000, 40), "greedy", "local", "8MiB"),
    Job("npz-dense", lambda f: npz(f, 200_000, 100), "greedy"),
    Job("npz-sparse", lambda f: npz(f, 100_000, 2_000, per_row=60), "variance", "threads", "32MiB"),
    Job("npz-sparse-processes", lambda f: npz(f, 60_000, 2_000, per_row=60), "leverage", "local"),
    Job("npz-full-columns", lambda f: npz_full_columns(f, 60_000, 2_000, "float32"), "leverage", "local"),
    Job("npz-full-columns-float64", lambda f: npz_full_columns(f, 60_000, 2_000, "float64"), "leverage", "local"),
    Job("npz-half-life", lambda f: npz_full_at_the_end(f, 60_000, 1_000, per_row=20), "greedy", "threads", None, FADES),
    Job("svmlight-processes", lambda f: svmlight(f, 20_000, 5_000, per_row=60), "leverage", "local"),
    Job("mtx", lambda f: mtx(f, 20_000, 1_000, per_row=40), "variance"),
    # NumPy files, of every type and size of partition.
    Job("npy", lambda f: npy(f, 400_000, 100), "greedy", "serial"),
    Job("npy-threads-large", lambda f: npy(f, 400_000, 100), "variance", "threads", "128MiB"),
    Job("npy-float64", lambda f: npy(f, 200_000, 100, dtype="float64"), "osinsky", "local", "64MiB"),
    Job("npy-int8-large", lambda f: npy(f, 800_000, 100, dtype="int8"), "variance", "threads", "64MiB"),
    Job("npy-bool", lambda f: npy(f, 900_000, 120, dtype="bool"), "variance", "threads", "64MiB"),
    Job("npy-across", lambda f: npy_across(f, 300_000, 120), "greedy", "local", "32MiB"),
    Job("npy-drop-rows", lambda f: npy(f, 300_000, 100, holes=True), "greedy", "threads", "64MiB", {"input": LIMITS}),
    Job(
        "npy-steps", lambda f: npy(f, 300_000, 100), "greedy", "threads", "64MiB",
        {"prepare": {"steps": ["l2", "standardise"]}},
    ),
    # Zarr, with chunks and shards that are taller than a partition.
    Job("zarr", lambda f: FLOATS(f, 100_000, 200), "greedy", "threads", None, clustered()),
    Job("zarr-processes", lambda f: FLOATS(f, 100_000, 200), "variance", "local", None, clustered()),
    Job("zarr-tall-chunks", lambda f: zarr_store(f, 300_000, 100, chunk=150_000), "variance"),
    Job("zarr-tall-chunks-processes", lambda f: zarr_store(f, 300_000, 100, chunk=150_000), "greedy", "local"),
    Job("zarr-shards", lambda f: zarr_store(f, 300_000, 100, chunk=5_000, shard=300_000), "greedy"),
    Job("zarr-int8-chunks", lambda f: zarr_store(f, 600_000, 100, chunk=200_000, dtype="int8"), "leverage", "local"),
    Job("zarr-float16", lambda f: zarr_store(f, 400_000, 100, chunk=200_000, dtype="float16"), "greedy", "local"),
    Job("zarr-packed", lambda f: packed_store(f, 400_000, 100, chunk=20_000), "greedy", "local"),
    Job("zarr-packed-tall", lambda f: packed_store(f, 600_000, 100, chunk=200_000), "variance", "local"),
    Job("zarr-columns", lambda f: zarr_store(f, 4_000, 2_000, chunk=500), "leverage", "threads", None, COLUMNS),
    Job("hdf5", lambda f: hdf5(f, 300_000, 100, chunk=10_000), "greedy", "threads", "32MiB"),
    Job("hdf5-tall-chunks", lambda f: hdf5(f, 300_000, 100, chunk=150_000), "greedy", "local"),
    Job("hdf5-packed-tall", lambda f: hdf5(f, 600_000, 100, chunk=200_000, is_packed=True), "greedy", "local"),
    # Counts.
    Job("cells-h5ad", lambda f: COUNTS(f, 40_000, 3_000, per_row=200), "hvg"),
    Job("cells-zarr", lambda f: CELLS(f, 40_000, 3_000, per_row=200), "hvg", "local"),
    Job("cells-zarr-large", lambda f: CELLS(f, 150_000, 5_000, per_row=800), "hvg", "local"),
    Job("annotations", lambda f: FLOATS(f, 240_000, 20), "variance", "threads", None, ANNOTATED | clustered()),
    Job("annotations-processes", lambda f: FLOATS(f, 240_000, 20), "variance", "local", None, ANNOTATED | clustered()),
    # Wide rows: panels of co-moments and of sketches.
    Job("wide-sparse", lambda f: npz(f, 20_000, 20_000, per_row=60), "greedy", "threads"),
    Job("wide-sketch", lambda f: npz(f, 20_000, 20_000, per_row=60), "sketched-ridge", "threads"),
    Job("wide-sample", lambda f: npz(f, 20_000, 100_000, per_row=60), "laplacian-score", "threads"),
    Job("wide-sample-processes", lambda f: npz(f, 20_000, 100_000, per_row=60), "mcfs", "local"),
    Job("wide-whole", lambda f: npz(f, 20_000, 100_000, per_row=60), "greedy", "threads"),
    Job("wide-whole-processes", lambda f: npz(f, 20_000, 60_000, per_row=60), "osinsky", "local"),
    Job("wide-dense", lambda f: zarr_store(f, 10_000, 6_000, chunk=500), "greedy", "threads"),
    Job("wide-dense-sketch", lambda f: zarr_store(f, 10_000, 6_000, chunk=500), "leverage", "local"),
    # Rows that k-means keeps in memory.
    Job("cached", lambda f: FLOATS(f, 400_000, 200), "variance", "threads", None, MANY),
    Job("cached-processes", lambda f: FLOATS(f, 400_000, 200), "variance", "local", None, MANY),
    # Certificates, "auto", targets.
    Job("blocks", lambda f: FLOATS(f, 50_000, 100), "greedy", "threads", None, clustered(certificate=BLOCKS)),
    Job("certificate", lambda f: FLOATS(f, 50_000, 100), "deterministic", "local", None, clustered(certificate="auto")),
    Job("auto", lambda f: FLOATS(f, 50_000, 100), "auto", "threads", None, clustered()),
    Job("auto-processes", lambda f: FLOATS(f, 150_000, 500), "auto", "local", None, clustered()),
    Job(
        "range", lambda f: npy(f, 1_000_000, 12, dtype="float64"), "greedy", "local", None,
        {**clustered(range=[2, 25], n_clusters=20), "select": {"n_features": 6}},
    ),
    Job(
        "timeline", lambda f: npy(f, 3_000_000, 6), "greedy", "local", None,
        {"timeline": {"dates": 3_000_000, "period": "month", "window": 3}, "select": {"n_features": 3}},
    ),
    Job("all-columns", lambda f: FLOATS(f, 50_000, 200), "greedy", "local", None, clustered(compare_all_columns=True)),
    Job("lasso", lambda f: FLOATS(f, 100_000, 400), "lasso", "threads", None, {"input": {"target": 100_000}}),
    Job("auto-target", lambda f: FLOATS(f, 100_000, 200), "auto-target", "local", None, {"input": {"target": 100_000}}),
    Job(
        "logistic", lambda f: FLOATS(f, 100_000, 100), "logistic", "threads", None,
        {"input": {"target": 100_000}, "classes": {"of_columns": False}},
    ),
    Job(
        "logistic-folds", lambda f: npy(f, 9_000, 400, dtype="float64"), "logistic", "threads", None,
        {"input": {"target": 9_000}, "classes": {"of_columns": True}, "select": {"cv": 3, "n_alphas": 30}},
    ),
    Job(
        "logistic-narrow", lambda f: npy(f, 400_000, 6), "logistic", "local", None,
        {"input": {"target": 400_000}, "classes": {"of_columns": True}, "select": {"cv": 5, "n_alphas": 20}},
    ),
)  # fmt: skip
