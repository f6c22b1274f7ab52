"""Metadata of Zarr arrays, parsed and checked before the zarr library sees them."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from sketchselect._byte_sizes import format_bytes
from sketchselect.errors import SourceError
from sketchselect.linalg.hashing import digest
from sketchselect.location import Location, status_of

MARKER = "sketchselect"
"""Attribute of what we wrote, with ``empty_chunks`` where every chunk has its file; ``document`` is the digest of the
document that it is in, ``chunks`` that of the digests of the chunk files, in order, ``nodes`` what a group holds."""
LEFT_OUT = "left_out"
"""Attribute of ``obs`` of a converted table: text columns that are no features, whatever is encoded."""

MAX_CHUNK_BYTES = 4 << 30
"""Largest chunk (or shard) that is opened, decoded."""

MAX_CHUNKS = 10_000_000
"""Largest number of chunk files of one array."""

_CHECKSUMS = {"crc32c", "gzip", "zlib", "crc32", "adler32", "fletcher32", "jenkins_lookup3"}
_CODECS = _CHECKSUMS | {
    "bytes", "transpose", "zstd", "blosc", "sharding_indexed", "lz4", "bz2", "lzma", "shuffle", "delta", "bitround",
    "quantize", "fixedscaleoffset", "packbits", "astype", "vlen-utf8", "zfpy", "pcodec",
}  # fmt: skip
_V3_TYPES = {"bool", "float16", "float32", "float64"} | {f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)}
_V3_FIELDS = ("codecs", "data_type", "chunk_grid", "fill_value", "chunk_key_encoding")
_V3_DOCUMENT = {
    "zarr_format", "node_type", "attributes", "shape", "dimension_names", "storage_transformers",
    "consolidated_metadata", *_V3_FIELDS,
}  # fmt: skip
_V2_FIELDS = ("chunks", "dtype", "compressor", "filters", "order", "fill_value", "dimension_separator")


@dataclass(frozen=True)
class ArrayMetadata:
    """The parts of an array's metadata that reading and checking need."""

    zarr_format: int  # 2 or 3
    # shape, chunks, grid: Shape of the array, of what is decoded at a time, and of what is one file (a shard, where
    # there are shards)
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    grid: tuple[int, ...]
    dtype: np.dtype[Any] | None  # None where the type is not a plain NumPy number type; `type_name` is its name
    type_name: str
    item_nbytes: int  # Bytes of a stored value; 0 where values, such as texts, have bytes of their own number
    # key_prefix, key_separator: How the file of chunk (i, j) is named
    key_prefix: str
    key_separator: str
    has_checksum: bool  # Whether some codec detects a flipped bit
    frame: str  # "zstd" or "blosc" where each chunk file begins with such a frame, else ""
    fingerprint: str  # Digest of everything that decides how chunk files become numbers, except the number of rows
    layout: str  # The same without the number of columns

    @property
    def n_cells(self) -> tuple[int, ...]:
        """Number of chunk files along each dimension."""
        return tuple(-(-size // step) for size, step in zip(self.shape, self.grid, strict=True))

    def key(self, cell: tuple[int, ...]) -> str:
        """Return the name of a chunk file, relative to the array."""
        return self.key_prefix + (self.key_separator.join(map(str, cell)) or "0")

    def cell(self, key: str) -> tuple[int, ...] | None:
        """Return the cell whose file has this name, within the shape or not; None if no chunk is named so."""
        if not key.startswith(self.key_prefix):
            return None
        parts = key[len(self.key_prefix) :].split(self.key_separator)
        n_cells = self.n_cells
        if len(parts) != len(n_cells) or not all(part.isascii() and part.isdigit() for part in parts):
            return None
        cell = tuple(map(int, parts))
        return cell if self.key(cell) == key else None

    def check_limits(self, address: str) -> None:
        """Raise `SourceError` for chunks too large to decode or too many to list."""
        itemsize = self.item_nbytes or 1
        for what, shape in (("chunk", self.chunks), ("shard", self.grid)):
            size = math.prod(shape) * itemsize
            if size > MAX_CHUNK_BYTES:
                raise SourceError(
                    f"{address}: one {what} is {' x '.join(map(str, shape))} values, {format_bytes(size)} when "
                    f"decoded; the limit is {format_bytes(MAX_CHUNK_BYTES)}: write the array with smaller chunks"
                )
        if math.prod(self.n_cells) > MAX_CHUNKS:
            raise SourceError(
                f"{address}: {math.prod(self.n_cells)} chunks of {' x '.join(map(str, self.grid))}; the limit is "
                f"{MAX_CHUNKS}: write the array with larger chunks"
            )


def read_document(
    location: Location, top: str = "", *, sealed: bool = True
) -> tuple[Literal["array", "group"], dict[str, Any]] | None:
    """Return what is at `location` and its metadata document, or None; one file is read (of Zarr v2 two).

    The document is ``zarr.json``, or ``.zarray`` or ``.zgroup`` with ``.zattrs`` under "attributes".

    `top`: Real path of the local store that holds it; `location` itself where it is empty.
    `sealed`: Whether it must be as `convert` wrote it; rows may be appended to a store that is open.
    Raises `SourceError` if a link leads out of the store, or the document is damaged.
    """
    if location.is_local and not top:
        top = os.path.realpath(location.url)
    refused: list[SourceError] = []

    def read(name: str) -> bytes | None:
        if location.is_local:
            return location.read_inside(name, top)
        try:
            content, instead = location.read_unless_page(name)
        except SourceError as error:
            if status_of(error) != 403:
                raise
            refused.append(error)
            content, instead = None, error
        # A file that alone is refused or replaced may be there: to go on without attributes would give other values.
        if instead is not None and location.says_what_is_missing():
            raise instead
        return content

    content = read("zarr.json")
    if content is not None:
        document = _load(content, f"{location.address}/zarr.json")
        if (kind := document.get("node_type")) not in ("array", "group"):
            raise SourceError(f"{location.address}/zarr.json: the metadata has no node type; restore it")
        for name, value in document.items():
            if name not in _V3_DOCUMENT and not (isinstance(value, dict) and value.get("must_understand") is False):
                raise SourceError(
                    f"{location.address}/zarr.json: the metadata has the unknown field {name!r:.40}; restore it, or "
                    "write the store again"
                )
        stated = mark_of(document).get("document") if sealed else None
        if stated is not None and stated != document_digest(document):
            if (n_rows := rows_when_sealed(document)) is not None:
                raise SourceError(
                    f"{location.address}: rows were appended to the {n_rows:,} that convert wrote; take them in with: "
                    "sketchselect verify STORE --seal"
                )
            raise SourceError(
                f"{location.address}/zarr.json: names, shape or type are not those that convert wrote; restore the "
                "file, or convert again (where rows were appended to sparse ones: sketchselect verify STORE --seal; "
                "where it was changed on purpose: remove its attribute sketchselect.document)"
            )
        return kind, document
    kinds: tuple[tuple[str, Literal["array", "group"]], ...] = ((".zarray", "array"), (".zgroup", "group"))
    for name, of_version_2 in kinds:
        content = read(name)
        if content is not None:
            document = _load(content, f"{location.address}/{name}")
            attributes = read(".zattrs")
            document["attributes"] = _load(attributes, f"{location.address}/.zattrs") if attributes else {}
            return of_version_2, document
    if refused:
        raise refused[0]
    return None


def _load(content: bytes, address: str) -> dict[str, Any]:
    """Return a metadata document, or raise `SourceError` if it is damaged."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise SourceError(
            f"{address}: the metadata is damaged or cut off ({len(content)} bytes); restore it"
        ) from error
    if not isinstance(document, dict):
        raise SourceError(f"{address}: the metadata is not a JSON object; restore it")
    return document


def mark_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return our own attribute of a document; an empty one where it has none."""
    attributes = document.get("attributes")
    mark = attributes.get(MARKER) if isinstance(attributes, dict) else None
    return mark if isinstance(mark, dict) else {}


def rows_when_sealed(document: Mapping[str, Any]) -> int | None:
    """Return the number of rows for which a document has its digest, if it differs by appended rows alone."""
    mark, shape = mark_of(document), document.get("shape")
    n_rows = mark.get("rows")
    if not isinstance(n_rows, int) or not isinstance(shape, list) or not shape or not isinstance(shape[0], int):
        return None
    before = {**document, "shape": [n_rows, *shape[1:]]}
    return n_rows if n_rows < shape[0] and document_digest(before) == mark.get("document") else None


def document_digest(document: Mapping[str, Any]) -> str:
    """Return the digest of a document, without the digest itself and without copies of other documents."""
    content = {name: value for name, value in document.items() if name != "consolidated_metadata"}
    mark = {name: value for name, value in mark_of(document).items() if name != "document"}
    content["attributes"] = {**content["attributes"], MARKER: mark}
    return digest(json.dumps(content, sort_keys=True))


def parse_metadata(document: dict[str, Any], address: str) -> ArrayMetadata:
    """Return the metadata of a Zarr v2 or v3 array from its document (``.zarray`` or ``zarr.json``).

    Raises `SourceError` if a part is missing or impossible, or a codec is not on the list of those that are safe to
    run.
    """
    try:
        metadata = _v3(document, address) if document.get("zarr_format") == 3 else _v2(document, address)
        if not len(metadata.shape) == len(metadata.grid) == len(metadata.chunks):
            raise ValueError("dimensions")
        return metadata
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(
            f"{address}: the metadata is damaged ({type(error).__name__} in its fields); restore it"
        ) from error


def _v3(document: dict[str, Any], address: str) -> ArrayMetadata:
    if document["chunk_grid"]["name"] != "regular":
        raise SourceError(
            f"{address}: chunks of different sizes (grid {document['chunk_grid']['name']!r:.40}) are not read; write "
            "it with chunks of one shape"
        )
    codecs = [_named(codec) for codec in document["codecs"]]
    grid = _sizes(document["chunk_grid"]["configuration"]["chunk_shape"], 1, address)
    chunks = grid
    _allow((name for name, _ in _flatten(codecs)), address)
    sharded = bool(codecs) and codecs[0][0] == "sharding_indexed"
    if sharded:
        chunks = _sizes(codecs[0][1]["chunk_shape"], 1, address)
        codecs_inside = [_named(codec) for codec in codecs[0][1]["codecs"]]
        checksum = any(map(_detects, codecs_inside)) or any(map(_detects, codecs))
    else:
        checksum = any(map(_detects, codecs))
    compressors = [name for name, _ in codecs if name not in ("bytes", "transpose", "crc32c")]
    key_name, key_options = _named(document["chunk_key_encoding"])
    separator = key_options.get("separator", "/" if key_name == "default" else ".")
    if key_name not in ("default", "v2") or separator not in ("/", "."):
        raise SourceError(f"{address}: chunk names in the style {key_name!r:.40} are not known")
    kind = document["data_type"]
    type_name, type_options = _named(kind)
    dtype = np.dtype(type_name) if type_name in _V3_TYPES else None
    item_nbytes = int(type_options.get("length_bytes", 0)) if dtype is None else dtype.itemsize
    return ArrayMetadata(
        zarr_format=3,
        shape=_sizes(document["shape"], 0, address),
        chunks=chunks,
        grid=grid,
        dtype=dtype,
        type_name=type_name,
        item_nbytes=item_nbytes,
        key_prefix=f"c{separator}" if key_name == "default" else "",
        key_separator=separator,
        has_checksum=checksum,
        frame=compressors[0] if len(compressors) == 1 and compressors[0] in ("zstd", "blosc") else "",
        fingerprint=_digest(document, _V3_FIELDS, columns=True),
        layout=_digest(document, _V3_FIELDS, columns=False),
    )


def _v2(document: dict[str, Any], address: str) -> ArrayMetadata:
    if document.get("zarr_format") != 2:
        raise SourceError(f"{address}: Zarr format {document.get('zarr_format')!r:.20} is not known, only 2 and 3")
    filters = [_v2_codec(codec) for codec in document.get("filters") or []]
    compressor = [_v2_codec(document["compressor"])] if document.get("compressor") else []
    _allow((name for name, _ in filters + compressor), address)
    kind = document["dtype"]
    chunks = _sizes(document["chunks"], 1, address)
    frame = compressor[0][0] if compressor and not filters else ""
    return ArrayMetadata(
        zarr_format=2,
        shape=_sizes(document["shape"], 0, address),
        chunks=chunks,
        grid=chunks,
        dtype=np.dtype(kind) if isinstance(kind, str) and np.dtype(kind).kind in "fiub" else None,
        type_name=str(np.dtype(kind)) if isinstance(kind, str) else "structured",
        item_nbytes=np.dtype(kind).itemsize if isinstance(kind, str) and not np.dtype(kind).hasobject else 0,
        key_prefix="",
        key_separator=document.get("dimension_separator", "."),
        has_checksum=any(map(_detects, filters + compressor)),
        frame=frame if frame in ("zstd", "blosc") else "",
        fingerprint=_digest(document, _V2_FIELDS, columns=True),
        layout=_digest(document, _V2_FIELDS, columns=False),
    )


def _digest(document: dict[str, Any], fields: tuple[str, ...], columns: bool) -> str:
    # Without the shape's first entry, so that appended rows keep the fingerprint of the rows before them.
    layout = {"format": document["zarr_format"]} | ({"columns": document["shape"][1:]} if columns else {})
    layout |= {field: document.get(field) for field in fields}
    return digest(json.dumps(layout, sort_keys=True))


def _named(value: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(value, str):
        return value, {}
    return value["name"], value.get("configuration") or {}


def _v2_codec(value: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return value["id"], value


def _flatten(codecs: list[tuple[str, dict[str, Any]]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, options in codecs:
        yield name, options
        for inner in ("codecs", "index_codecs"):
            yield from _flatten([_named(codec) for codec in options.get(inner) or []])


def _allow(names: Iterator[str], address: str) -> None:
    for name in names:
        if name.removeprefix("numcodecs.") not in _CODECS:
            raise SourceError(
                f"{address}: the codec {name!r:.40} is not one of those that are run; write the array with another"
            )


def _detects(codec: tuple[str, dict[str, Any]]) -> bool:
    name, options = codec
    name = name.removeprefix("numcodecs.")
    return name in _CHECKSUMS or (name == "zstd" and options.get("checksum") is True)


def _sizes(values: Any, least: int, address: str) -> tuple[int, ...]:
    sizes = tuple(values)
    if not all(isinstance(n, int) and not isinstance(n, bool) and least <= n < 2**62 for n in sizes):
        raise SourceError(f"{address}: the metadata is damaged: {sizes!r:.80} is not a shape; restore it")
    return sizes
