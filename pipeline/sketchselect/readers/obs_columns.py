"""Columns of ``obs`` in stores of AnnData and MuData: what the labels, batches and targets of cells are named by."""

from __future__ import annotations

from collections.abc import Sequence

from sketchselect.location import Location
from sketchselect.readers.base import modality_key
from sketchselect.readers.hdf5 import MUDATA, child, encoding, is_dataset, opened
from sketchselect.readers.zarr.store import read_node

FRAME = "obs"


def obs_columns(location: Location, key: str | None) -> list[str]:
    """Return the columns of the rows of a matrix in AnnData or MuData, named as `open_vector` takes them.

    Empty for every other source.
    """
    if location.is_local and location.url.lower().endswith((".h5ad", ".h5mu")):
        with opened(location) as file:
            modalities = child(file, "mod", location) if encoding(file) == MUDATA else None
            path = _path(None if modalities is None else list(modalities), key, location)
            frame = child(file, path, location)
            order = () if frame is None or is_dataset(frame) else frame.attrs.get("column-order", ())
            return [f"{path}/{name.decode() if isinstance(name, bytes) else name}" for name in order]
    root = read_node(location)
    if root is None or root.encoding not in ("anndata", MUDATA):
        return []
    group = root.child("mod") if root.encoding == MUDATA else None
    path = _path(None if group is None else group.attributes.get("mod-order", ()), key, location)
    node = root.child(path)
    return [] if node is None else [f"{path}/{name}" for name in node.attributes.get("column-order", ())]


def _path(modalities: Sequence[str] | None, key: str | None, location: Location) -> str:
    """Return where the data frame of the rows is."""
    return FRAME if modalities is None else f"mod/{modality_key(modalities, key, location.address)[0]}/{FRAME}"
