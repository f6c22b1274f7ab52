"""The `.sks` file format: one summary, open, versioned, checksummed, never executable.

Layout, all integers little-endian::

    bytes 0-7     magic  89 'S' 'K' 'S' 0D 0A 1A 0A   (survives no text-mode transfer unnoticed)
    bytes 8-11    container version (1; 2 where a header has rows; 3 where one has filled)
    bytes 12-15   reserved, zero
    bytes 16-23   length of the header in bytes
    header        UTF-8 JSON: kind, format_version, parameters, prepare, feature_names, arrays; members of a bundle;
                  rows, the ranges of global row indices of a summary whose draws depend on them
    padding       zeros up to a multiple of 64
    arrays        raw little-endian values, C order, each starting on a multiple of 64
    trailer       32 bytes: BLAKE2b-256 of everything before it

The digest is checked before anything else is read. A digest detects damage, not an attacker.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from sketchselect.errors import DamagedFile, NoData, SourceError
from sketchselect.linalg.panel_columns import PanelRows, Panels, StoredPanels
from sketchselect.linalg.sparse_shrink import SketchPanel
from sketchselect.linalg.validation import Array, Floats
from sketchselect.location import location_of
from sketchselect.summaries.base import KINDS, Context, Summary, stored_name, union
from sketchselect.summaries.containers import Container, MembersRecord
from sketchselect.summaries.frequent_directions import DirectionsRecord, FrequentDirections

T = TypeVar("T")

MAGIC = b"\x89SKS\r\n\x1a\n"
CONTAINER_VERSION = 3
# Types of fields that are stored as arrays without dimensions; a module's annotations may be types or their text.
_SCALARS = {"int", "float", "bool", "int | None", int, float, bool, int | None}
_ALIGN = 64
_DIGEST = 32
_FIXED = 24
_HEADER_KEYS = {
    "kind",
    "format_version",
    "parameters",
    "prepare",
    "feature_names",
    "arrays",
    "members",
    "rows",
    "filled",
}


class _Writer:
    """The arrays of a file under construction."""

    def __init__(self) -> None:
        self.chunks: list[bytes | memoryview | PanelRows] = []
        self.size = 0

    def add(self, value: Any) -> dict[str, Any]:
        """Append an array, or rows that come a few at a time, and return its entry in the header."""
        if isinstance(value, PanelRows):
            entry = {"dtype": "<f8", "shape": list(value.shape), "offset": self.size}
            nbytes = 8 * math.prod(value.shape)
            self.chunks += [value, bytes(-nbytes % _ALIGN)]
            self.size += nbytes + -nbytes % _ALIGN
            return entry
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"only real numbers go into a summary file, got {array.dtype}")
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
        entry = {"dtype": array.dtype.str, "shape": list(array.shape), "offset": self.size}
        raw = _raw(array)
        self.chunks += [raw, bytes(-raw.nbytes % _ALIGN)]
        self.size += raw.nbytes + -raw.nbytes % _ALIGN
        return entry

    def file(self, header: Mapping[str, Any], version: int) -> Iterator[bytes | memoryview]:
        """Yield the parts of the file."""
        text = json.dumps(header, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()
        head = MAGIC + version.to_bytes(4, "little") + bytes(4) + len(text).to_bytes(8, "little") + text
        digest = hashlib.blake2b(digest_size=_DIGEST)
        for chunk in (head, bytes(-len(head) % _ALIGN), *self.chunks):
            for part in map(_raw, chunk) if isinstance(chunk, PanelRows) else (chunk,):
                digest.update(part)
                yield part
        yield digest.digest()


def _raw(array: Array) -> memoryview:
    return array.astype(array.dtype.newbyteorder("<"), copy=False).reshape(-1).view(np.uint8).data


def _describe(summary: Summary[Any], writer: _Writer) -> dict[str, Any]:
    header: dict[str, Any] = {"kind": summary.kind, "format_version": summary.written_version}
    header["prepare"] = list(summary.context.prepare)
    names = summary.context.feature_names
    header["feature_names"] = None if names is None else list(names)
    if summary.context.rows is not None:
        header["rows"] = summary.context.rows
    if summary.context.filled is not None:
        header["filled"] = summary.context.filled
    # Not `record`, for which a sketch in panels is put together.
    record: Any = summary._record
    if isinstance(record, MembersRecord):
        # Column names are the same for all members and stored once.
        header["members"] = {
            name: _describe(member.with_context(prepare=member.prepare, feature_names=None), writer)
            for name, member in record.members.items()
        }
    parameters = {
        name: {"array": writer.add(value)} if isinstance(value, np.ndarray) else value
        for name, value in summary.parameters().items()
        # The descriptions of members follow from the members.
        if not isinstance(value, (Summary, Mapping))
        and not (name in summary.later_parameters and value == summary.later_parameters[name])
    }
    if parameters or "members" not in header:
        header["parameters"] = parameters
    if "members" not in header:
        values = {stored_name(f): getattr(record, f.name) for f in fields(record)}
        header["arrays"] = {name: writer.add(value) for name, value in values.items() if value is not None}
    return header


def _container_version(header: Mapping[str, Any]) -> int:
    """Return the first version that has the keys of a header and of its members."""
    own = 3 if "filled" in header else 2 if "rows" in header else 1
    return max([own, *map(_container_version, header.get("members", {}).values())])


def encode(summary: Summary[Any]) -> bytes:
    """Return the bytes of a `.sks` file; ``decode(encode(s)) == s`` bit for bit.

    Raises
    ------
    NoData
        For a description.
    """
    return b"".join(encoded_parts(summary))


def encoded_parts(summary: Summary[Any]) -> Iterator[bytes | memoryview]:
    """Return an iterator over the bytes of a `.sks` file, for which no sketch in panels is put together."""
    if not summary.has_data:
        raise NoData(f"a {summary.kind} description has no data to save; use from_block or sketchselect.summarize")
    writer = _Writer()
    described = _describe(summary, writer)
    return writer.file(described, _container_version(described))


def file_digest(summary: Summary[Any]) -> str:
    """Return the SHA-256 of the `.sks` file of a summary."""
    digest = hashlib.sha256()
    for part in encoded_parts(summary):
        digest.update(part)
    return digest.hexdigest()


def decode(raw: bytes, name: str = "summary") -> Summary[Any]:
    """Return the summary of the bytes of a `.sks` file, which messages call `name`.

    Raises
    ------
    DamagedFile
        If any bit has changed since it was written, or the content contradicts itself.
    """
    return _opened(raw, name, _rebuild)


def encode_record(kind: str, record: Any) -> bytes:
    """Return the bytes of a file of a record, a dataclass of numbers and arrays, that is not a summary."""
    writer = _Writer()
    arrays = {field.name: writer.add(getattr(record, field.name)) for field in fields(record)}
    return b"".join(writer.file({"kind": kind, "arrays": arrays}, 1))


def decode_record(raw: bytes, kind: str, record_type: type[T], name: str) -> T:
    """Return the record in the bytes of a file that `encode_record` made; raise `DamagedFile` for any other."""

    def rebuild(header: Mapping[str, Any], body: memoryview, name: str) -> T:
        if header["kind"] != kind:
            raise DamagedFile(f"{name}: a {header['kind']!r:.80}, not a {kind}")
        return record_type(**_fields(record_type, header["arrays"], body, name))

    return _opened(raw, name, rebuild)


def _opened(
    raw: bytes | mmap.mmap,
    name: str,
    rebuild: Callable[[Mapping[str, Any], memoryview, str], T],
    digest: bytes | None = None,
) -> T:
    """Return what `rebuild` makes of the header and the arrays of a file whose digest is right, or is `digest`."""
    if len(raw) < _FIXED + _DIGEST or raw[: len(MAGIC)] != MAGIC:
        if raw[:1] == b"{":
            raise DamagedFile(
                f"{name}: JSON, not a summary file; in Python a selection is "
                "`sketchselect.selectors.Selection.from_dict(json.load(file))`"
            )
        raise DamagedFile(
            f"{name}: not a summary file, or truncated ({len(raw)} bytes); `sketchselect summarize` makes one"
        )
    body = memoryview(raw)[:-_DIGEST]
    if (digest or hashlib.blake2b(body, digest_size=_DIGEST).digest()) != raw[-_DIGEST:]:
        raise DamagedFile(f"{name}: the checksum does not match, the file is damaged; create it again from the data")
    version = int.from_bytes(raw[8:12], "little")
    if not 1 <= version <= CONTAINER_VERSION:
        raise DamagedFile(
            f"{name}: container version {version}, this installation reads up to {CONTAINER_VERSION}; install a newer "
            "one"
        )
    length = int.from_bytes(raw[16:24], "little")
    start = _FIXED + length
    start += -start % _ALIGN
    if start > len(body):
        raise DamagedFile(f"{name}: the header is longer than the file")
    try:
        header = json.loads(bytes(body[_FIXED : _FIXED + length]))
        return rebuild(header, body[start:], name)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, DamagedFile):
            raise
        raise DamagedFile(f"{name}: malformed header ({type(error).__name__})") from error


def _place(entry: Mapping[str, Any], body: memoryview, name: str) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    """Return type, shape, offset and bytes of an array in a file."""
    dtype = np.dtype(entry["dtype"])
    shape = tuple(entry["shape"])
    if dtype.kind not in "fiub" or not all(isinstance(s, int) and s >= 0 for s in shape):
        raise DamagedFile(f"{name}: an array of invalid type or shape")
    offset, size = entry["offset"], math.prod(shape) * dtype.itemsize
    if not isinstance(offset, int) or offset < 0 or offset + size > len(body):
        raise DamagedFile(f"{name}: an array reaches beyond the end of the file")
    return dtype, shape, offset, size


def _array(entry: Mapping[str, Any], body: memoryview, name: str) -> Array:
    dtype, shape, offset, size = _place(entry, body, name)
    flat = np.frombuffer(body[offset : offset + size], dtype=dtype)
    # A copy, which is aligned and native and does not keep the whole file alive.
    return flat.astype(dtype.newbyteorder("=")).reshape(shape)


def _rebuild(
    header: Mapping[str, Any],
    body: memoryview,
    name: str,
    in_panels: Callable[[DirectionsRecord, Sequence[int], int, int], PanelRows] | None = None,
) -> Summary[Any]:
    """Return a summary; with `in_panels` the rows of a wide sketch are what it makes of a record without them.

    Its other arguments are the edges of the panels, and the number of rows and their offset in `body`.
    """
    unknown = set(header) - _HEADER_KEYS
    if unknown:
        raise DamagedFile(f"{name}: unknown header field {sorted(unknown)[0]!r}")
    kind = header["kind"]
    if kind not in KINDS:
        raise DamagedFile(f"{name}: unknown kind of summary {kind!r}; known: {', '.join(KINDS.known())}")
    cls = KINDS[kind]
    if header["format_version"] > cls.format_version:
        raise DamagedFile(
            f"{name}: format version {header['format_version']} of {kind}, this installation reads up to "
            f"{cls.format_version}: install a newer version"
        )
    names = header["feature_names"]
    rows = None if "rows" not in header else union((), tuple((int(a), int(b)) for a, b in header["rows"]))
    filled = None if "filled" not in header else tuple(map(int, header["filled"]))
    context = Context(tuple(header["prepare"]), None if names is None else tuple(names), rows, filled)
    if issubclass(cls, Container):
        members = {key: _rebuild(part, body, name, in_panels) for key, part in header["members"].items()}
        members = {
            k: m.with_context(prepare=m.prepare, feature_names=context.feature_names) for k, m in members.items()
        }
        whole = cls.of_members(members, {**cls.later_parameters, **header.get("parameters", {})})
        return whole._with(whole.record, context)
    arguments = dict(cls.later_parameters) | {
        key: _array(value["array"], body, name) if isinstance(value, dict) else value
        for key, value in header["parameters"].items()
    }
    summary, arrays = cls(**arguments), header["arrays"]
    edges = None
    if in_panels is not None and isinstance(summary, FrequentDirections):
        edges = summary.column_panels(arrays["mean"]["shape"][0])
    if edges is not None:
        entry = arrays["rows"]
        _, (height, n_columns), offset, _ = _place(entry, body, name)
        arrays = {**arrays, "rows": {**entry, "shape": [0, n_columns]}}
    record = cls.record_type(**_fields(cls.record_type, arrays, body, name))
    _check_shapes(summary, record, name)
    if filled is not None and (len(filled) != cast(Any, record).n_features or min(filled) < 0):
        raise DamagedFile(f"{name}: {kind} has another number of filled values than columns, or negative ones")
    if edges is not None:
        assert in_panels is not None
        sketch, in_file = cast(FrequentDirections, summary), cast(Any, in_panels(record, edges, height, offset))
        return sketch.with_panel_rows(replace(record, rows=in_file), context)
    return summary._with(record, context)


def _fields(record_type: Any, arrays: Mapping[str, Any], body: memoryview, name: str) -> dict[str, Any]:
    """Return the values of the fields of a record."""
    values: dict[str, Any] = {}
    for field in fields(record_type):
        if field.default is not MISSING and stored_name(field) not in arrays:
            # An array that this form of the record lacks, or a field that older versions lacked.
            values[field.name] = field.default
            continue
        array = _array(arrays[stored_name(field)], body, name)
        values[field.name] = array.item() if field.type in _SCALARS else array
    return values


def _check_shapes(summary: Summary[Any], record: Any, name: str) -> None:
    """Raise `DamagedFile` unless types, dimensions and widths are those of the record of zero rows."""
    if record.n_rows < 0 or record.n_features < 0:
        raise DamagedFile(f"{name}: negative counts")
    empty = summary._empty_like(record)
    for field in fields(record):
        if not _fits(getattr(record, field.name), getattr(empty, field.name)):
            raise DamagedFile(f"{name}: {field.name} does not fit a {summary.kind} of {record.n_features} columns")


def _fits(value: Any, empty: Any) -> bool:
    """Return whether a field has the type and shape of the same field in the record of zero rows."""
    if not isinstance(value, np.ndarray) or not isinstance(empty, np.ndarray):
        return (value is None, isinstance(value, np.ndarray)) == (empty is None, isinstance(empty, np.ndarray))
    if value.dtype != empty.dtype or value.ndim != empty.ndim or value.shape[1:] != empty.shape[1:]:
        return False
    # Arrays without rows there, sketches and factors, grow with the data.
    return bool(empty.shape[:1] == (0,) or value.shape == empty.shape)


# --- files -----------------------------------------------------------------------------------------------------


def save(summary: Summary[Any], path: str | os.PathLike[str]) -> None:
    """Write a summary to one file, atomically; `path` may be a URL.

    Examples
    --------
    >>> import tempfile, numpy as np, sketchselect as sks
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     s = sks.Moments().from_block(np.eye(3))
    ...     sks.save(s, folder + "/m.sks")
    ...     sks.load(folder + "/m.sks") == s
    True
    """
    location = location_of(path)
    parent = location.parent()
    if location.is_local and parent is not None and not os.path.isdir(parent.url):
        raise SourceError(f"{path}: the folder {parent.address} does not exist; make it first")
    location.write(encoded_parts(summary))


def load(path: str | os.PathLike[str]) -> Summary[Any]:
    """Read a summary written by `save`.

    Raises
    ------
    SourceError
        If there is no such file.
    DamagedFile
        If a single bit is not as it was written.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import sketchselect as sks
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sks.save(sks.Moments().from_block(np.eye(3)), f"{folder}/rows.sks")
    ...     sks.load(f"{folder}/rows.sks").n_rows
    3
    """
    location = location_of(path)
    raw = location.read()
    if raw is None:
        if location.is_local and os.path.isdir(location.url):
            raise SourceError(f"{path}: a folder, not a summary file")
        raise location.not_found()
    return decode(raw, str(path))


_READ_NBYTES = 1 << 22  # Bytes of a file that are in memory at a time, where it is read from its beginning to its end

Hold = Callable[[Iterator[SketchPanel], Sequence[int]], Panels]


def load_in_panels(path: Path, hold: Hold, held: Panels | None = None) -> Summary[Any]:
    """Read a summary from a local file, in which the rows of a wide sketch of sparse rows stay.

    Its panels of columns are brought by `hold` to where they are needed; `held` are the same there already. Raises as
    `load`, and `DamagedFile` later if the file has become shorter: nobody else may write it meanwhile.
    """
    size = path.stat().st_size if path.is_file() else 0
    if size < _FIXED + _DIGEST:
        return load(path)
    digest, left = hashlib.blake2b(digest_size=_DIGEST), size - _DIGEST
    with path.open("rb") as stream:
        while left and (part := stream.read(min(left, _READ_NBYTES))):
            digest.update(part)
            left -= len(part)
        raw = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)

    def rebuild(header: Mapping[str, Any], body: memoryview, name: str) -> Summary[Any]:
        def in_panels(record: DirectionsRecord, edges: Sequence[int], height: int, offset: int) -> PanelRows:
            start = size - _DIGEST - len(body) + offset
            read = partial(_stored_panels, path, start, height, edges, record.mean, record.column_squares)
            return PanelRows(StoredPanels(edges, read, hold, held), height)

        return _rebuild(header, body, name, in_panels)

    return _opened(raw, str(path), rebuild, digest.digest())


def _stored_panels(
    path: Path, start: int, height: int, edges: Sequence[int], mean: Floats, squares: Floats
) -> Iterator[SketchPanel]:
    """Yield the panels of a sketch whose rows are in a file from `start` on."""
    with path.open("rb") as stream:
        for a, b in pairwise(edges):
            rows = np.empty((b - a, height))
            for i in range(height):
                stream.seek(start + 8 * (i * edges[-1] + a))
                row = np.fromfile(stream, "<f8", b - a)
                if row.size < b - a:
                    raise DamagedFile(f"{path}: shorter than it was; run again")
                rows[:, i] = row
            yield SketchPanel(rows, mean[a:b].copy(), squares[a:b].copy())
