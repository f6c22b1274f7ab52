"""One way in: what kind of source is this, and which reader opens it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from sketchselect.errors import BadParameter, SourceError
from sketchselect.location import Location, locate
from sketchselect.readers.arrays.anndata_xarray import anndata_matrix, is_anndata, is_xarray, xarray_matrix
from sketchselect.readers.arrays.dask import DaskMatrix, is_dask
from sketchselect.readers.arrays.numpy_scipy import SparseMatrix, array_matrix, frame_matrix
from sketchselect.readers.base import Matrix, Nonfinite
from sketchselect.readers.checks import require_policy
from sketchselect.readers.files.matrix_market import ENDINGS as MARKET
from sketchselect.readers.files.matrix_market import open_market_matrix
from sketchselect.readers.files.parquet_files import is_parquet, open_parquet_matrix
from sketchselect.readers.zarr.array import MissingPolicy, require_missing_policy

CONVERTIBLE = (".csv", ".tsv", ".txt", ".csv.gz")
"""Endings of text files that `convert` turns into Zarr; they are not read in place."""


def open_matrix(
    source: Any,
    *,
    key: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    missing_chunks: str = "error",
    nonfinite: str = "error",
    source_id: str | None = None,
) -> Matrix:
    """Open a numeric matrix that may not fit in memory.

    Nothing is read but metadata (and a listing of a Zarr array's chunks), except that ``.npz`` archives are loaded.
    Blocks come out C-contiguous, aligned and in native byte order, in the type as stored (bool and float16 as float64).

    Parameters
    ----------
    source : path, URL, array or Matrix
        A Zarr v2 or v3 array, or a CSR matrix that AnnData or `convert` wrote to a Zarr store (folder, or URL
        ``file:// memory:// s3:// gs:// az:// abfs://``); a ``.parquet`` file or a folder of them; a local ``.npy``,
        ``.npz`` or Matrix Market file; a NumPy array or anything array-like, a pandas DataFrame, a SciPy sparse
        matrix, an AnnData object, an xarray DataArray, a Dask array with known chunks, a `zarr.Array` on a local disk.
        A `Matrix` is returned as it is.
    key : str or None
        The array inside a Zarr group or ``.npz`` archive; of AnnData the matrix ("layers/counts"; ``X`` by default);
        of Parquet the columns, "a,b,c", or with a leading "-" those to leave out.
    storage_options : mapping or None
        Arguments of the remote file system. ``{"allow_http": True}`` also opens ``http://`` and ``https://``.
    missing_chunks : {"error", "fill"}
        What a Zarr chunk without a file means: damage, or a chunk of the fill value that the writer left out.
    nonfinite : {"error", "drop_rows", "missing"}
        Whether NaN or infinity is an error or costs its row, or NaN is a missing value, for summaries that take such
        (``ColumnStats``, ``Moments(missing="pairwise")``); applied when blocks are made.
    source_id : str or None
        Names the content of a Dask array, so that work on it can be checkpointed: same name, same values.

    Returns
    -------
    Matrix
        With ``shape``, ``dtype``, ``is_sparse``, ``feature_names``, ``read_rows(start, stop)``. Small and picklable
        unless it was in memory.

    Raises
    ------
    SourceError
        If it cannot be opened, is not two-dimensional, or does not hold real numbers.
    EmptyInput
        If it has no rows or no columns.
    MissingChunks, ChunkReadError
        If chunk files are missing (under the policy "error"), empty or cut off.

    Examples
    --------
    >>> import numpy as np
    >>> m = open_matrix(np.arange(6.0).reshape(3, 2))
    >>> m.shape, m.read_rows(1, 3).tolist()
    ((3, 2), [[2.0, 3.0], [4.0, 5.0]])
    """
    policy = require_policy(nonfinite)
    missing = require_missing_policy(missing_chunks)
    if isinstance(source, (str, os.PathLike)):
        if source_id is not None:
            raise BadParameter("source_id names the content of a Dask array; a file or store is identified by itself")
        return _open_path(locate(source, storage_options), key, missing, policy)
    if is_anndata(source):
        values, names = anndata_matrix(source, key)
        return _named(open_matrix(values, nonfinite=nonfinite, source_id=source_id), names)
    if key is not None or storage_options:
        raise BadParameter("key and storage_options go with a path or URL, not with an object in memory")
    if isinstance(source, Matrix):
        if nonfinite not in ("error", source.nonfinite):
            raise BadParameter(
                f'this matrix was opened with nonfinite="{source.nonfinite}"; open it anew to change that'
            )
        return source
    if is_xarray(source):
        values, names = xarray_matrix(source)
        return _named(open_matrix(values, nonfinite=nonfinite, source_id=source_id), names)
    if is_dask(source):
        return DaskMatrix(source, source_id, policy)
    if source_id is not None:
        raise BadParameter("source_id names the content of a Dask array; this source is identified by its values")
    if type(source).__module__.partition(".")[0] == "zarr":
        return _open_path(_zarr_location(source), None, missing, policy)
    if hasattr(source, "iloc") and hasattr(source, "dtypes") and hasattr(source, "columns"):
        if hasattr(source, "__dask_graph__"):
            raise SourceError("Dask data frame: give its array, df.to_dask_array(lengths=True)")
        return frame_matrix(source, policy)
    if hasattr(source, "tocsr") and hasattr(source, "nnz"):
        return SparseMatrix(source, None, policy)
    return array_matrix(source, policy)


def _named(matrix: Matrix, names: tuple[str, ...] | None) -> Matrix:
    """Return a matrix of our own making with the names that the object around it has for the columns."""
    matrix.feature_names = names
    return matrix


def _open_path(place: Location, key: str | None, missing: MissingPolicy, policy: Nonfinite) -> Matrix:
    name = place.url.lower()
    if name.endswith(".npz"):
        from sketchselect.readers.files.npz import open_npz_matrix

        return open_npz_matrix(place, key, policy)
    if name.endswith(".npy"):
        from sketchselect.readers.files.npy import open_npy_matrix

        if key is not None:
            raise BadParameter(f"{place.address}: an .npy file holds one array, so key names nothing; leave key out")
        return open_npy_matrix(place, policy)
    if name.endswith(MARKET):
        if key is not None:
            raise BadParameter(f"{place.address}: this file holds one matrix, so key names nothing; leave key out")
        return open_market_matrix(place, policy)
    if is_parquet(place):
        return open_parquet_matrix(place, key, policy)
    if name.endswith(CONVERTIBLE):
        if place.is_local and place.version() is None:
            raise place.not_found()
        raise SourceError(
            f"{place.address}: text files are not read in place; first: sketchselect convert {place.name} OUT.zarr"
        )
    from sketchselect.readers.zarr.matrix import open_zarr_matrix

    return open_zarr_matrix(place, key, missing, policy)


def _zarr_location(source: Any) -> Location:
    """Return where an open `zarr.Array` (or group) is, if that is a local disk."""
    from zarr.storage import LocalStore

    store = getattr(source, "store", None)
    if not isinstance(store, LocalStore):
        raise SourceError(f"{type(store).__name__}: give the path or URL of the store instead of the open Zarr object")
    place = locate(str(store.root))
    path = getattr(source, "path", "")
    return place.join(path) if path else place
