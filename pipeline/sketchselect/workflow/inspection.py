"""Descriptions of summary files, selections, output folders and matrices: in a few lines of text, and as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sketchselect._byte_sizes import format_bytes
from sketchselect._text import counted, first_few, printable, table_size
from sketchselect.cluster.certificates.certificate import Certificate, strongest
from sketchselect.errors import SketchSelectError, SourceError
from sketchselect.linalg.hashing import MISSING_LEVEL
from sketchselect.location import location_of, refusal, status_of
from sketchselect.readers import Matrix, open_matrix, open_vector, row_partitions
from sketchselect.readers.opening import is_converted_table
from sketchselect.readers.tables import ENCODINGS, is_missing_field
from sketchselect.readers.views import ChosenColumns
from sketchselect.selectors.base import in_words
from sketchselect.selectors.leverage import n_columns_seen
from sketchselect.summaries import Summary, load
from sketchselect.workflow.folder import MARKER, read_manifest
from sketchselect.workflow.stages.model import rates_in_words
from sketchselect.workflow.tables import clean_name, read_selection, selection_lines

MOST_COUNTED = 1 << 14
"""First rows in which the levels of text are counted."""

MOST_LEVELS = 5
"""Levels of text that are named."""


def inspect_target(target: str, options: Mapping[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
    """Describe a summary file, a selection, an output folder, or a matrix: in lines of text, and as plain data.

    `options`: Arguments of `open_matrix`; with a key the target is a matrix.
    Raises `SourceError` or `DamagedFile` if it is none of these.
    """
    path = Path(target)
    if target.endswith(".sks"):
        summary = load(target)
        lines = [f"{target}: summary file", *_summary_lines(summary, "")]
        return "\n".join(lines), {"file": target, **_summary_data(summary)}
    if (path / MARKER).is_file() and not (options or {}).get("key"):
        if not (path / "manifest.json").exists():
            text = "output folder of a run that has not finished; run the job again to resume it"
            return f"{path}: {text}", {"folder": target, "finished": False}
        return read_manifest(
            path,
            lambda content: (
                f"{path}: " + "\n".join(_run_lines(content)),
                {"folder": target, "finished": True, **content},
            ),
        )
    if path.is_file() and _begins(path, b"{"):
        if path.name == "manifest.json" and (path.parent / MARKER).is_file():
            raise SourceError(f"{path}: the manifest of a run; inspect the folder: sketchselect inspect {path.parent}")
        selection = read_selection(path)
        lines = [*selection_lines(selection, path.name), f"of {selection.applied or in_words(selection.prepare, None)}"]
        return f"{target}: selection file\n" + "\n".join(f"  {line}" for line in lines), {
            "file": target,
            **selection.to_dict(),
        }
    location, given = location_of(target), options or {}
    encoded: dict[str, Any] = {"nonfinite": "missing", "encode": tuple(ENCODINGS), **given}
    try:
        matrix = wide = open_matrix(location.url, **given)
        if is_converted_table(location):
            wide = open_matrix(location.url, **encoded)
    except SourceError as error:
        if error.__cause__ is not None and refusal(error.__cause__) is not None and status_of(error) is None:
            raise  # a server that is out of reach, for which each of these waits
        try:
            matrix = wide = open_matrix(location.url, **encoded)
        except SourceError as of_wide:
            # A column that no step can encode, and not the first of text or dates.
            return _inspect_vector(location.url, given, of_wide)
    texts, dates = _text_columns(wide), [(wide.feature_names or ())[j] for j in wide.date_columns]
    lines = list(_matrix_lines(matrix))
    lines += [f"  text column {clean_name(name)}: {_levels_in_words(each)}" for name, each in texts.items()]
    lines += [f"  dates: {first_few(dates, 5, clean_name)}"] if dates else []
    if texts or dates:
        lines.append(
            f"  text and dates are features by the prepare steps {' and '.join(map(repr, ENCODINGS.values()))}"
        )
    names = None if matrix.feature_names is None else list(matrix.feature_names)
    data: dict[str, Any] = {"address": matrix.address, "shape": list(matrix.shape), "dtype": str(matrix.dtype)}
    data |= {"feature_names": names, "sparse": matrix.is_sparse, "notes": list(matrix.notes)}
    return "\n".join(lines), data | {"text_columns": texts, "dates": dates}


def _text_columns(matrix: Matrix) -> dict[str, dict[str, Any]]:
    """Return what the first rows hold in every text column: their number, that of levels, and the most frequent."""
    if not matrix.text_columns or not matrix.shape[0]:
        return {}
    n_rows, names = min(matrix.shape[0], MOST_COUNTED), matrix.feature_names or ()
    rows = ChosenColumns(matrix, list(matrix.text_columns)).read_rows(0, n_rows)
    out = {}
    for column, j in zip(rows.T, matrix.text_columns, strict=True):
        codes, first, counts = np.unique(column, return_index=True, return_counts=True)
        is_level = codes != MISSING_LEVEL
        order = np.lexsort((first[is_level], -counts[is_level]))[:MOST_LEVELS]  # as `Counter` orders them
        shown = matrix.levels[j].names(codes[is_level][order].tolist(), first[is_level][order].tolist())
        frequent = dict(zip(shown, counts[is_level][order].tolist(), strict=True))
        out[names[j]] = _described(n_rows, matrix.shape[0], int(is_level.sum()), frequent)
    return out


def _described(n_seen: int, n_rows: int, n_levels: int, frequent: dict[str, int]) -> dict[str, Any]:
    return {"rows_seen": n_seen, "n_rows": n_rows, "n_levels": n_levels, "most_frequent": frequent}


def _levels_in_words(levels: Mapping[str, Any]) -> str:
    """Return the number of levels, of the first rows where these are not all, and the most frequent ones."""
    where = "" if levels["rows_seen"] == levels["n_rows"] else f" in the first {levels['rows_seen']} rows"
    if not levels["n_levels"]:
        return f"no level, all entries are missing{where}"
    if levels["n_levels"] == levels["rows_seen"]:
        return f"a different text in every row{where}, as names of rows do"
    frequent = [f"{clean_name(name)} ({times})" for name, times in levels["most_frequent"].items()]
    more = ", ..." if len(frequent) < levels["n_levels"] else ""
    return f"{counted(levels['n_levels'], 'level')}{where}, the most frequent {', '.join(frequent)}{more}"


def _inspect_vector(url: str, options: Mapping[str, Any], of_matrix: SourceError) -> tuple[str, dict[str, Any]]:
    """Describe a column of a store, such as its text; raise the error of the matrix where there is none."""
    key = options.get("key")
    try:
        vector = open_vector(
            url if key is None else f"{url}/{key}", None, storage_options=options.get("storage_options")
        )
    except SketchSelectError:
        raise of_matrix from None
    if len(vector.shape) != 1:
        raise of_matrix
    data: dict[str, Any] = {"address": vector.address, "shape": list(vector.shape), "dtype": str(vector.dtype)}
    if vector.dtype.kind != "U":
        return f"{vector.address}: {counted(vector.n_rows, 'number')}, {vector.dtype}", data
    n_seen = min(vector.n_rows, MOST_COUNTED)
    times = Counter(text for text in vector.read(0, n_seen).tolist() if not is_missing_field(text))
    data["levels"] = _described(n_seen, vector.n_rows, len(times), dict(times.most_common(MOST_LEVELS)))
    return f"{vector.address}: {counted(vector.n_rows, 'text')}; {_levels_in_words(data['levels'])}", data


def _begins(path: Path, start: bytes) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(start)) == start


def _summary_data(summary: Any) -> dict[str, Any]:
    if isinstance(summary, Mapping):
        return {"members": {name: _summary_data(member) for name, member in summary.items()}}
    fields = ("kind", "n_rows", "n_features", "nbytes", "prepare", "feature_names")
    parameters = {k: _parameter(v) for k, v in summary.parameters().items() if not hasattr(v, "shape")}
    data = {"format_version": summary.written_version, **{name: getattr(summary, name) for name in fields}}
    return {**data, "parameters": parameters, "details": list(summary.details())}


def _summary_lines(summary: Any, indent: str) -> Iterator[str]:
    is_bundle = isinstance(summary, Mapping)
    if is_bundle:
        size = f"{len(summary)} summaries, {table_size(summary.n_rows, summary.n_features)}"
        yield f"{indent}{summary.kind.replace('-', ' ')} of {size}"
        for name, member in summary.items():
            yield f"{indent}  {name}:"
            yield from _summary_lines(member, indent + "    ")
        return
    parameters = ", ".join(f"{k}={_parameter(v)}" for k, v in summary.parameters().items() if not hasattr(v, "shape"))
    version = f"format version {summary.written_version}"
    yield f"{indent}kind {', '.join(filter(None, (summary.kind, version, parameters)))}"
    if summary.of_columns:
        size = f"{counted(columns_in(summary), 'column')} of {counted(summary.n_features, 'value')} each"
    else:
        size = table_size(summary.n_rows, summary.n_features)
    yield f"{indent}{size}, {format_bytes(summary.nbytes)}"
    yield f"{indent}prepared with: {', '.join(summary.prepare) or 'nothing'}"
    names = summary.feature_names
    if names is not None:
        yield f"{indent}feature names: {first_few(names, 5, clean_name)}"
    yield from (f"{indent}{printable(line)}" for line in summary.details())


def columns_in(summary: Any) -> int:
    """Return the number of columns of the data behind a summary."""
    if not summary.of_columns:
        return int(summary.n_features)
    return n_columns_seen(summary.seen)


def _parameter(value: Any) -> str:
    """Return a parameter in short: a description of a summary by its kind."""
    text = value.kind if isinstance(value, Summary) else repr(value)
    return clean_name(text)


def _run_lines(content: dict[str, Any]) -> Iterator[str]:
    source, chosen = content["source"], content["selection"]
    yield f"output folder, finished {content['finished']}"
    yield f"  source: {source['address']}, {source['shape'][0]} x {source['shape'][1]} {source['dtype']}"
    yield from (f"  note: {text}" for text in content.get("notes", ()))
    yield f"  selected: {counted(chosen['n_selected'], 'column')} with {chosen['method']}"
    if "model" in content:
        model = content["model"]
        rates = model.get("misclassification")
        stated = "" if rates is None else f"; {rates_in_words(rates)}"
        yield f"  model: {model['task']} on {counted(model['n_terms'], 'term')}, chosen by {model['chosen_by']}{stated}"
    certificates = content.get("certificates", [])
    if certificates:
        best = strongest([Certificate.from_dict(entry) for entry in certificates])
        yield from () if best is None else (f"  {best.sentence()}",)
    if "agreement" in content:
        yield f"  NMI with the given labels: {content['agreement']['nmi']:.3f}"
    yield f"  files: {', '.join(content['files'])}"


def _matrix_lines(matrix: Matrix) -> Iterator[str]:
    nbytes = matrix.shape[0] * matrix.shape[1] * matrix.dtype.itemsize
    yield f"{matrix.address}: {table_size(*matrix.shape)}, {matrix.dtype}"
    if matrix.entry_offsets is not None:
        entries = int(matrix.entry_offsets[-1])
        share = f"{100 * entries / max(1, matrix.shape[0] * matrix.shape[1]):.3g} % of all values"
        noun = "entry" if entries == 1 else "entries"
        yield f"  sparse: {entries} {noun}, {share}; {format_bytes(matrix.stored_nbytes(0, matrix.shape[0]))}"
    else:
        yield f"  {format_bytes(nbytes)} decoded, read {matrix.chunk_rows} rows at a time at least"
    if min(matrix.shape):
        partitions = row_partitions(matrix, sparse=matrix.is_sparse)
        again = (
            f", every byte decoded {partitions.read_amplification:.1f} times"
            if partitions.read_amplification > 1
            else ""
        )
        yield f"  {counted(len(partitions), 'partition')} of {counted(partitions.edges[1], 'row')}{again}"
    yield from (f"  note: {text}" for text in matrix.notes)
    names = matrix.feature_names
    if names is not None:
        yield f"  feature names: {first_few(names, 5, clean_name)}"
