"""Groups and datasets of an HDF5 file: which of them a key means, and the axes of AnnData."""

from __future__ import annotations

from typing import Any

from sketchselect._text import did_you_mean
from sketchselect.errors import SourceError
from sketchselect.location import Location
from sketchselect.readers.checks import as_names, modality_key
from sketchselect.readers.columns import COLUMNS, StoredVector, column_of
from sketchselect.readers.hdf5.array import Hdf5Array
from sketchselect.readers.vector import Vector

SPARSE = ("csr_matrix", "csc_matrix")
"""Encodings of the groups of AnnData that hold a sparse matrix."""

MUDATA = "MuData"
"""Encoding of a file of several AnnData."""

_LISTED = 12


def is_dataset(node: Any) -> bool:
    """Return whether this is a dataset, not a group."""
    return hasattr(node, "shape")


def encoding(node: Any) -> str:
    """Return the type that AnnData wrote; "" of other nodes."""
    # Before anndata 0.8 the attribute of sparse matrices had another name.
    text = node.attrs.get("encoding-type", node.attrs.get("h5sparse_format", ""))
    text = text.decode() if isinstance(text, bytes) else str(text)
    return {"csr": "csr_matrix", "csc": "csc_matrix"}.get(text, text)


def child(node: Any, key: str, location: Location) -> Any | None:
    """Return the node at `key` below a group, or None; a link that leaves the file is refused."""
    import h5py

    for part in key.strip("/").split("/"):
        link = None if is_dataset(node) else node.get(part, getlink=True)
        if link is None or part in ("", ".", ".."):
            return None
        if isinstance(link, h5py.ExternalLink):
            raise SourceError(f"{location.address}: {key!r:.80} is a link to another file, which is not followed")
        node = node.get(part)
        # AnnData writes None as a dataset without a shape.
        if node is None or (is_dataset(node) and node.shape is None):
            return None
    return node


def find_matrix(file: Any, key: str | None, location: Location) -> Any:
    """Return the dataset, or group of a sparse matrix, at `key`: by default ``X``, or the only one of two dimensions.

    Of MuData a key begins with the name of a modality.
    Raises `SourceError` if there is none; the message lists what there is.
    """
    if encoding(file) == MUDATA and (modalities := child(file, "mod", location)) is not None:
        key = "mod/{}/{}".format(*modality_key(list(modalities), key, location.address))
    matrices = _matrices(file)
    if key is None and "X" in matrices:
        key = "X"
    elif key is None and len(matrices) == 1:
        (key,) = matrices
    there = ", ".join(matrices[:_LISTED]) + (", ..." if len(matrices) > _LISTED else "") or "none"
    if key is None:
        raise SourceError(f"{location.address}: choose one of its matrices with key= (or --key): {there}")
    node = child(file, key, location)
    if node is None:
        hint = did_you_mean(key, matrices, f"; matrices there: {there}")
        raise SourceError(f"{location.address}: no matrix {key!r:.80} in this file{hint}")
    if not is_dataset(node) and encoding(node) not in SPARSE:
        raise SourceError(f"{location.address}: {key!r:.80} is a group, not a matrix; matrices there: {there}")
    return node


def names_of(
    file: Any, path: str, shape: tuple[int, int], location: Location, version: str
) -> tuple[tuple[str, ...] | None, Vector | None]:
    """Return the names of the columns and the rows of a matrix of AnnData; None where there are none."""
    parts = path.strip("/").split("/")
    if encoding(file) == MUDATA and parts[0] == "mod":
        # The names of a modality may have a "/" in them.
        inner = next((i for i in range(2, len(parts)) if encoding(file["/".join(parts[:i])]) == "anndata"), 2)
        file, parts = file["/".join(parts[:inner])], parts[inner:]
    in_place = parts == ["X"] or parts[0] == "layers"
    columns = _index(file, "raw/var" if parts[0] == "raw" else "var" if in_place else "", location, version)
    rows = _index(file, "obs" if in_place or parts[0] in ("raw", "obsm") else "", location, version)
    names = None
    if columns is not None and columns.shape == (shape[1],):
        names = as_names(map(str, columns.read(0, shape[1]).tolist()), shape[1])
    return names, rows if rows is not None and rows.shape == (shape[0],) else None


def vector_at(file: Any, key: str, location: Location, version: str) -> Vector | None:
    """Return the vector of a dataset, or of a column of AnnData; None where there is neither."""
    node = child(file, key, location)
    if node is None:
        return None
    if is_dataset(node):
        return None if node.dtype.names else StoredVector(Hdf5Array.of(node, location, version))
    kind = encoding(node)
    if kind not in COLUMNS:
        return None
    parts = [child(node, name, location) for name in COLUMNS[kind]]
    if not all(part is not None and is_dataset(part) for part in parts):
        raise SourceError(f"{location.address}: column {key!r:.80} lacks one of its two arrays; write it again")
    first, second = (StoredVector(Hdf5Array.of(part, location, version)) for part in parts)
    return column_of(kind, first, second, f"{location.address}: {key}")


def _index(file: Any, axis: str, location: Location, version: str) -> Vector | None:
    frame = child(file, axis, location) if axis else None
    if frame is None or is_dataset(frame):
        return None
    name = frame.attrs.get("_index", "_index")
    return vector_at(
        file.file, f"{frame.name.strip('/')}/{name.decode() if isinstance(name, bytes) else name}", location, version
    )


def _matrices(file: Any) -> list[str]:
    """Return the paths of all datasets of two dimensions and of the groups that hold a sparse matrix."""
    paths: list[str] = []

    def visit(path: str, node: Any) -> None:
        if is_dataset(node):
            if len(node.shape or ()) == 2:
                paths.append(path)
        elif encoding(node) in SPARSE:
            paths.append(path)

    file.visititems(visit)
    return paths
