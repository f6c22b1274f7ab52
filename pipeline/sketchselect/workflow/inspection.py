"""Descriptions of summary files, selections, output folders and matrices: in a few lines of text, and as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sketchselect._byte_sizes import format_bytes
from sketchselect._text import counted, first_few, printable, table_size
from sketchselect.cluster.certificates.certificate import Certificate, strongest
from sketchselect.errors import SourceError
from sketchselect.location import location_of
from sketchselect.readers import Matrix, open_matrix, row_partitions
from sketchselect.selectors import Selection, rank
from sketchselect.selectors.base import in_words
from sketchselect.selectors.leverage import n_columns_seen
from sketchselect.summaries import Summary, load
from sketchselect.workflow.folder import MARKER, read_manifest
from sketchselect.workflow.tables import read_selection

MOST_NAMED = 10
"""Selected columns that are printed; all are in the selection file."""


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
    matrix = open_matrix(location_of(target).url, **(options or {}))
    names = None if matrix.feature_names is None else list(matrix.feature_names)
    data = {"address": matrix.address, "shape": list(matrix.shape), "dtype": str(matrix.dtype), "feature_names": names}
    return "\n".join(_matrix_lines(matrix)), {**data, "sparse": matrix.is_sparse, "notes": list(matrix.notes)}


def _begins(path: Path, start: bytes) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(start)) == start


def selection_lines(selection: Selection, file: str = "selection.json") -> Iterator[str]:
    """Yield how many columns were selected, the first of them by rank, and what is known of the choice.

    `file`: Where all of them are listed.
    """
    support, names = selection.support, selection.feature_names
    yield f"selected {support.size} of {counted(selection.scores.size, 'column')} with {selection.method}"
    if support.size:
        order = support[rank(selection.scores[support])[: MOST_NAMED + 1]].tolist()
        first = first_few(order, MOST_NAMED, str if names is None else lambda j: _clean(names[j]))
        rest = f" (all are in {file})" if support.size > MOST_NAMED else ""
        yield f"columns by rank: {first}{rest}"
    if (choice := selection.diagnostics.get("choice")) is not None:
        yield printable(str(choice))


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
        yield f"{indent}feature names: {first_few(names, 5, _clean)}"
    yield from (f"{indent}{printable(line)}" for line in summary.details())


def columns_in(summary: Any) -> int:
    """Return the number of columns of the data behind a summary."""
    if not summary.of_columns:
        return int(summary.n_features)
    return n_columns_seen(summary.seen)


def _parameter(value: Any) -> str:
    """Return a parameter in short: a description of a summary by its kind."""
    text = value.kind if isinstance(value, Summary) else repr(value)
    return _clean(text)


def _run_lines(content: dict[str, Any]) -> Iterator[str]:
    source, chosen = content["source"], content["selection"]
    yield f"output folder, finished {content['finished']}"
    yield f"  source: {source['address']}, {source['shape'][0]} x {source['shape'][1]} {source['dtype']}"
    yield from (f"  note: {text}" for text in content.get("notes", ()))
    yield f"  selected: {counted(chosen['n_selected'], 'column')} with {chosen['method']}"
    if "model" in content:
        model = content["model"]
        yield f"  model: {model['task']} on {counted(model['n_terms'], 'term')}, chosen by {model['chosen_by']}"
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
        yield f"  feature names: {first_few(names, 5, _clean)}"


def _clean(name: str) -> str:
    """Return a name that is safe to show in a terminal."""
    text = printable(name)
    return text if len(text) <= 40 else text[:37] + "..."
