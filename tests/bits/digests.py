"""Digests of results, by artefact: values, shapes and dtypes, and no name of a module, no time, no path, no host."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import zarr

import sketchselect as sks
from sketchselect.selectors import Selection
from sketchselect.summaries import Summary

LENGTH = 16  # Hexadecimal digits: chance makes two of a few hundred digests equal once in 10**14 nets.

NOT_COMPARED = frozenset(
    (
        *("finished", "cost", "seconds", "profile"),  # times
        *("address", "identity", "input", "output", "files", "digests", "digest"),  # paths, and what hangs on them
        *(
            "format",
            "versions",
            "build",
            "memory",
            "engine",
            "execution",
            "notes",
            "projected_nbytes",
        ),  # software, host
        "misclassification",  # younger than the reference, and a function of summary and model, which are compared
        # How the work was cut, and what of it an earlier run had done: the engine's business.
        *("n_partitions", "n_tasks", "n_resumed", "n_saved", "reused", "worker_deaths", "bytes_read"),
    )
)
"""Keys of the manifest that are left out, wherever they stand."""


TEXTS: dict[str, str] = {}
"""JSON of each digest of this process, for the message of a failure."""


def digest(value: Any) -> str:
    """Return the digest of an array, number, selection, summary, or of what JSON can hold."""
    sha = hashlib.sha256()
    if isinstance(value, Summary):
        for part in sorted(_stored(value)):
            sha.update(part.encode())
    elif isinstance(value, Selection):
        for part in (value.support, value.scores, value.weights, list(value.feature_names or ())):
            sha.update(digest(part).encode())
        sha.update(digest(shown(value.diagnostics)).encode())
    elif isinstance(value, (np.ndarray, np.generic)):
        array = np.ascontiguousarray(value)
        sha.update(f"{array.dtype.str} {np.shape(value)} ".encode() + array.tobytes())
    else:  # floats are written with all their bits
        text = json.dumps(value, sort_keys=True, default=_plain)
        sha.update(text.encode())
        TEXTS[sha.hexdigest()[:LENGTH]] = text
    return sha.hexdigest()[:LENGTH]


def digests(found: dict[str, Any]) -> dict[str, str]:
    """Return artefact -> digest."""
    return {name: digest(value) for name, value in found.items()}


def of_job(result: sks.RunResult) -> dict[str, str]:
    """Return the digests of what a run returned and left in its folder."""
    found: dict[str, Any] = {"selection": result.selection}
    for name in ("labels", "centers", "inertia", "objective", "nmi", "nmi_all_columns"):
        if (value := getattr(result, name)) is not None:
            found[name] = value
    for path in sorted(result.folder.iterdir()):
        if path.suffix == ".sks":
            found[path.name] = sks.load(path)
        elif path.suffix == ".zarr":
            found[path.name] = zarr.open_array(str(path), mode="r")[...]
        elif path.suffix == ".csv":
            found[path.name] = np.frombuffer(path.read_bytes(), np.uint8)
        elif path.name in ("model.json", "assign.json", "selection.json"):
            found[path.name] = json.loads(path.read_text())
    manifest = json.loads((result.folder / "manifest.json").read_text())
    found |= {f"manifest.json: {key}": value for key, value in manifest.items() if key not in NOT_COMPARED}
    # What the method was given stands by itself, so that a further parameter is not taken for another selection.
    for name in ("selection.json", "manifest.json: selection"):
        found[f"{name}, parameters"] = found[name].pop("parameters")
    return digests({name: shown(value) for name, value in found.items()})


def shown(value: Any) -> Any:
    """Return what is compared of a value; of JSON no nulls, no prose (text with a space), nothing `NOT_COMPARED`."""
    if isinstance(value, dict):
        parts = {key: shown(part) for key, part in value.items() if key not in NOT_COMPARED}
        empty = (type(None), dict, list)
        return {key: part for key, part in parts.items() if part or not isinstance(part, empty)}
    if isinstance(value, (list, tuple)):
        return [shown(part) for part in value]
    return None if isinstance(value, str) and " " in value else value


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else str(value)


def _stored(summary: Summary[Any]) -> Iterator[str]:
    """Return the digests of the arrays in the `.sks` file of a summary, whatever kind or field has them.

    The format is documented (`notebooks/reference/sks_format.md`); the header's names of kinds and fields may change
    with a version, the values may not.
    """
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        sks.save(summary, Path(folder) / "one.sks")
        raw = (Path(folder) / "one.sks").read_bytes()
    length = int.from_bytes(raw[16:24], "little")
    header = json.loads(raw[24 : 24 + length])
    start = -(-(24 + length) // 64) * 64
    yield digest([header["prepare"], header["feature_names"]])
    headers = [header]
    while headers:
        one = headers.pop()
        headers += one.get("members", {}).values()
        for entry in one.get("arrays", {}).values():
            count = int(np.prod(entry["shape"]))
            yield digest(np.frombuffer(raw, entry["dtype"], count, start + entry["offset"]).reshape(entry["shape"]))
