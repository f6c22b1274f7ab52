"""Stores that the scripts measure: a Gaussian mixture in a few of many columns, and very many tiny partitions."""

import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import zarr
from zarr.codecs import ZstdCodec

COLUMNS, CLUSTERS, INFORMATIVE = 2000, 20, 40
BAND = 2000


def informative_columns(columns: int = COLUMNS) -> np.ndarray:
    """Return the columns that carry the mixture."""
    return np.sort(np.random.default_rng(1).choice(columns, INFORMATIVE, replace=False))


def write_band(path: str, start: int, stop: int) -> int:
    """Write rows `start` to `stop`, a whole number of chunks; the values depend on the rows alone."""
    array = zarr.open_array(path, mode="r+")
    columns = array.shape[1]
    centers = 4 * np.random.default_rng(2).standard_normal((CLUSTERS, INFORMATIVE)).astype(np.float32)
    for a in range(start, stop, BAND):
        b = min(a + BAND, stop)
        rng = np.random.default_rng([3, a])
        rows = rng.standard_normal((b - a, columns), dtype=np.float32)
        rows[:, informative_columns(columns)] += centers[rng.integers(0, CLUSTERS, b - a)]
        array[a:b] = rows
    return stop - start


def make_store(path: Path, n_rows: int, columns: int = COLUMNS) -> None:
    """Make the store with two processes unless it is there."""
    if (path / "zarr.json").exists():
        return
    zarr.create_array(
        str(path),
        shape=(n_rows, columns),
        chunks=(BAND, columns),
        dtype="float32",
        compressors=[ZstdCodec(level=0, checksum=True)],
    )
    step = BAND * 20
    with ProcessPoolExecutor(2) as pool:
        jobs = [pool.submit(write_band, str(path), a, min(a + step, n_rows)) for a in range(0, n_rows, step)]
        for i, job in enumerate(jobs):
            job.result()
            print(f"\rmaking the store: {100 * (i + 1) // len(jobs)} %", end="", file=sys.stderr)
    print(file=sys.stderr)


def tiny_store(folder: Path, n_partitions: int) -> str:
    """Make (once) a matrix of so many partitions of ten rows."""
    path = folder / f"tiny-{n_partitions}.npy"
    if not path.exists():
        np.save(path, np.random.default_rng(0).random((10 * n_partitions, 4)))
    return str(path)
