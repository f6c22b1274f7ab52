"""Files of a run for further use: ``assign.json`` to assign new rows, and an AnnData file of results."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sketchselect._text import counted, first_few, first_names, name_list
from sketchselect.cluster.kmeans.passes import weighted_points
from sketchselect.errors import DamagedFile, Incompatible, SketchSelectError, SourceError
from sketchselect.execution import Block
from sketchselect.linalg.hashing import MISSING_LEVEL
from sketchselect.linalg.kmeans.assignment import distances_to
from sketchselect.linalg.validation import Floats
from sketchselect.location import is_url, locate
from sketchselect.prepare.entries import names_after
from sketchselect.prepare.steps import LISTED_LEVELS, Replaced
from sketchselect.readers import Matrix, open_vector
from sketchselect.readers.base import row_texts
from sketchselect.readers.opening import PARQUET, ROW_NAMES, format_of
from sketchselect.readers.parquet import parquet_names
from sketchselect.readers.row_order import names_in_unread
from sketchselect.readers.views import ChosenColumns, WithConstants
from sketchselect.summaries import codec
from sketchselect.workflow.folder import read_manifest, require_digests, sealed, unsealed
from sketchselect.workflow.stages.features import dense_columns, feature_dtype, with_dropped
from sketchselect.workflow.tables import (
    PART_ROWS,
    column_name,
    column_title,
    csv_text,
    disarmed,
    plain_value,
    row_title,
)

if TYPE_CHECKING:
    from sketchselect.prepare import Step
    from sketchselect.workflow.session import Session
    from sketchselect.workflow.stages.evaluation import JobResults

ASSIGNMENT_FILE = "assign.json"
"""Name of the file in an output folder."""


def assignment_json(session: Session, results: JobResults) -> str | None:
    """Return the content of ``assign.json``: no row and no label of the source; None if nothing can be assigned."""
    from sketchselect.workflow.stages.model import model_json  # workers, which import this module, need no model

    clustering, model, support = results.clustering, results.model, results.selection.support
    if clustering is None and model is None:
        return None
    inputs, weights = session.config.input, None
    centers = None if clustering is None else clustering.centers
    if clustering is not None and clustering.nearest is not None:
        support, centers = np.arange(clustering.nearest.shape[1]), clustering.nearest
    elif clustering is not None:
        weights = clustering.weights
    entries = session.config.prepare.entries
    content = {
        "format": 1,
        "n_columns": session.matrix.shape[1],
        "feature_names": session.matrix.feature_names,
        "no_features": [
            name
            for name in (*inputs.vectors.values(), session.dates)
            if name is not None and not os.path.isabs(name) and not is_url(name)
        ],
        "text_columns": session.matrix.text_columns,
        "date_columns": session.matrix.date_columns,
        "row_names": session.row_names()[1] if column_name(inputs.row_names) is None else inputs.row_names,
        "nonfinite": inputs.nonfinite,
        "prepare": [*entries, *(step.name for step in session.steps[len(entries) :])],
        "statistics": None
        if session.statistics is None
        else base64.b64encode(codec.encode(session.statistics)).decode("ascii"),
        "support": support,
        "dtype": str(feature_dtype(session.rows)),
        "weights": weights,
        "centers": centers,
        "model": None if model is None else json.loads(model_json(model)),
    }
    return sealed(plain_value(content))


def read_assignment(target: Path) -> dict[str, Any]:
    """Return the content of an ``assign.json``, of a run's folder or by itself, with its statistics decoded.

    Raises `SourceError` or `DamagedFile` if there is none, or it is not one.
    """
    path = target / ASSIGNMENT_FILE if target.is_dir() else target
    if path != target and path.exists() and (target / "manifest.json").exists():
        read_manifest(target, lambda content: require_digests(target, content, ASSIGNMENT_FILE))
    try:
        content: dict[str, Any] = unsealed(path)
        statistics = content["statistics"]
        if statistics is not None:
            content["statistics"] = codec.decode(base64.b64decode(statistics), str(path))
        content["support"], content["prepare"], content["model"], content["centers"]
    except FileNotFoundError:
        raise SourceError(
            f"{path}: no such file; a finished run that clustered rows or fitted a model leaves one in its folder"
        ) from None
    except SketchSelectError:
        raise
    except (ValueError, KeyError, TypeError):
        raise DamagedFile(
            f"{path}: not a file of a run for new rows; give the output folder of a run, or its assign.json"
        ) from None
    return content


@dataclass(frozen=True)
class Assigned:
    """Clusters (-1 where the row was dropped) and outputs of the model, of consecutive rows; None without."""

    labels: NDArray[np.int32] | None
    outputs: Floats | None
    replaced: Mapping[tuple[int, int], Replaced]  # What prepare steps took for something else, by step and column

    def followed_by(self, other: Assigned) -> Assigned:
        """Return the results of these rows and of those after them."""
        labels = None if self.labels is None else np.concatenate([self.labels, other.labels])
        outputs = None if self.outputs is None else np.concatenate([self.outputs, other.outputs])
        replaced = dict(self.replaced)
        for key, entries in other.replaced.items():
            replaced[key] = replaced[key].followed_by(entries) if key in replaced else entries
        return Assigned(labels, outputs, replaced)


@dataclass(frozen=True)
class AssignBlock:
    """Leaf of the pass that assigns rows: the nearest centre in the selected columns, and the model's outputs."""

    support: tuple[int, ...]
    dtype: str
    weights: Floats | None  # shape (n_selected,), or the matrix of a metric, shape (n_selected, n_selected)
    centers: Floats | None
    model: dict[str, Any] | None

    def __call__(self, block: Block) -> Assigned:
        """Return clusters and outputs of one block's rows."""
        labels = outputs = None
        if self.centers is not None:
            weights = 1.0 if self.weights is None else self.weights
            rows = dense_columns(block.values, self.support).astype(self.dtype)
            rows = weighted_points(rows.astype(np.float64), weights)
            centers = weighted_points(self.centers, weights)
            nearest = distances_to(rows, centers).argmin(axis=1) if len(rows) else np.empty(0)
            labels = with_dropped(block, nearest.astype(np.int32), -1)
        if self.model is not None:
            outputs = with_dropped(block, outputs_of(self.model, block.values), np.nan)
        return Assigned(labels, outputs, block.replaced)


def outputs_of(model: dict[str, Any], rows: Any) -> Floats:
    """Return the outputs of the model in ``model.json`` for prepared rows, shape (n_rows, n_outputs)."""
    intercepts = np.array([-np.inf if value is None else value for value in model["intercepts"]])
    columns_used = sorted({j for columns in model["terms"] for j in columns})
    values = dense_columns(rows, tuple(columns_used)).astype(np.float64)
    if (scaling := model["scaling"]) is not None:
        values = (values - scaling["mean"]) / scaling["scale"]
    positions = {j: i for i, j in enumerate(columns_used)}
    terms = [values[:, [positions[j] for j in columns]].prod(axis=1) for columns in model["terms"]]
    products = np.stack(terms, axis=1) if terms else np.zeros((values.shape[0], 0))
    outputs: Floats = products @ np.reshape(model["coefficients"], (len(terms), intercepts.size)) + intercepts
    return outputs


def columns_to_read(
    source: str, rules: dict[str, Any], options: dict[str, Any] | None
) -> tuple[str | None, Sequence[str], list[str]]:
    """Return the key of a source of new rows, its columns that were targets or labels of the run, and notes.

    A Parquet file that has every column of the run may have others, of any type, and may lack the labels.
    """
    place, names, others = locate(source, options), rules["feature_names"], rules["no_features"]
    if names is None or format_of(place) is not PARQUET:
        return None, others, []
    columns = parquet_names(place)
    # A sign before the first name would leave columns out; entries of a column of lists have names of their own.
    if names[0].startswith("-") or not set(names) <= set(columns):
        return None, others, []
    known = {*names, *others, rules.get("row_names"), column_name(rules.get("row_names"))}
    notes = _left_out([name for name in columns if name not in known])
    return name_list(names), [name for name in others if name in columns], notes


def _left_out(extra: Sequence[str]) -> list[str]:
    are = "is" if len(extra) == 1 else "are"
    text = f"note: {counted(len(extra), 'column')} that the run did not have {are} left out: {first_names(extra)}"
    return [text] if extra else []


def columns_of_run(
    matrix: Matrix, rules: dict[str, Any], entries: Sequence[Step]
) -> tuple[Matrix, list[str], list[str]]:
    """Return the matrix with the columns of the run, by name if both have names, notes, and the columns it lacks.

    The last have one value in all rows, where the steps, `entries`, make no others from them.
    """
    n_columns, names, ours = rules["n_columns"], rules["feature_names"], matrix.feature_names
    places = dict.fromkeys(names or (), 0)
    if names is None or ours is None or len(places) < len(names):
        if matrix.shape[1] != n_columns:
            raise Incompatible(
                f"{matrix.address}: has {counted(matrix.shape[1], 'column')}, the run's rows had {n_columns}"
            )
        return matrix, [], []
    if ours == tuple(names):
        return matrix, [], []
    times = Counter(ours)
    absent = [name for name in names if times[name] != 1]
    if any(times[name] for name in absent) or (absent and not _may_lack_columns(matrix, rules, entries)):
        raise _lacking(matrix, n_columns, absent)
    extra = [name for name in times if name not in places and name != column_name(rules.get("row_names"))]
    if absent:
        text, dates = rules["text_columns"], rules["date_columns"]
        kinds = {j: kind for kind, columns in (("text", text), ("dates", dates)) for j in columns}
        held = {name: kinds.get(j, "numbers") for j, name in enumerate(names) if name in absent}
        matrix = WithConstants(matrix, held)
    places |= {name: index for index, name in enumerate(matrix.feature_names or ())}
    return ChosenColumns(matrix, [places[name] for name in names]), _left_out(extra), absent


def _may_lack_columns(matrix: Matrix, rules: dict[str, Any], entries: Sequence[Step]) -> bool:
    """Return whether clusters and model may be had without some columns: no step makes others from them."""
    if matrix.is_sparse or "text_columns" not in rules or not all(step.is_by_column for step in entries):
        return False
    # A step may refuse missing text, which stands for a column that is not there.
    return not any("error" in step.parameters().values() for step in entries)


def _lacking(matrix: Matrix, n_columns: int, absent: Sequence[str]) -> Incompatible:
    return Incompatible(
        f"{matrix.address}: of the run's {n_columns} columns these are not in it, or not once: {first_names(absent)}; "
        "give them, under these names"
    )


def unneeded(matrix: Matrix, rules: dict[str, Any], steps: Sequence[Step], absent: Sequence[str]) -> list[str]:
    """Return a note of the columns of the run that the matrix lacks; raise `Incompatible` if one of them is used.

    `steps`: Fitted; `absent`: As `columns_of_run` returns them.
    """
    if not absent:
        return []
    origins = np.arange(matrix.shape[1])  # The column before the steps of every prepared column
    for step in steps:
        if step.encodes == "text":
            widths = np.ones(origins.size, dtype=np.int64)
            widths[step.value("places")] = step.value("n_outputs")
            origins = np.repeat(origins, widths)
    model = rules["model"]
    terms = {j for columns in model["terms"] for j in columns} if model is not None else set[int]()
    support = rules["support"] if rules["centers"] is not None else []
    used = {(matrix.feature_names or ())[j] for j in origins[sorted({*terms, *support})].tolist()}
    if lacking := [name for name in absent if name in used]:
        raise _lacking(matrix, matrix.shape[1], lacking)
    are = "is" if len(absent) == 1 else "are"
    verb = "uses it" if len(absent) == 1 else "uses them"
    return [
        f"note: {counted(len(absent), 'column')} of the run {are} not in {matrix.address}, and nothing {verb}: "
        f"{first_names(absent)}"
    ]


def replaced_in_words(
    replaced: Mapping[tuple[int, int], Replaced], steps: Sequence[Step], matrix: Matrix, absent: Sequence[str]
) -> list[str]:
    """Return notes of levels of new rows that the run did not have, and of missing values that a step filled.

    `absent`: Columns that the new rows lack.
    """
    names = [names_after(steps[:i], matrix.feature_names, matrix.shape[1]) for i in range(len(steps))]

    def text(key: tuple[int, int]) -> str:
        (i, column), entries = key, replaced[key]
        known = names[i]
        words = f"{column if known is None else repr(known[column])!s:.80} in {counted(entries.n_rows, 'row')}"
        if not entries.levels:
            return words
        texts = [
            "missing" if code == MISSING_LEVEL else repr(matrix.levels[column].names([code], [row])[0])
            for code, row in entries.levels.items()
        ]
        return f"{words} ({first_few(texts, LISTED_LEVELS - 1)})"

    lacking = set(absent)
    keys = [(i, j) for i, j in sorted(replaced) if (known := names[i]) is None or known[j] not in lacking]
    levels = [key for key in keys if replaced[key].levels]
    filled = [key for key in keys if not replaced[key].levels]
    notes = [f"note: levels that the run did not have: {first_few(levels, 8, text)}"] if levels else []
    return notes + ([f"note: missing values that were filled: {first_few(filled, 8, text)}"] if filled else [])


def require_kinds_of_run(matrix: Matrix, rules: dict[str, Any]) -> None:
    """Raise `Incompatible` where the columns of the run are numbers, text or dates that they were not in the run."""
    if "text_columns" not in rules:
        return  # an earlier version wrote the file
    changes = []
    for j in range(matrix.shape[1]):
        before = _kind(j, rules["text_columns"], rules["date_columns"])
        now = _kind(j, matrix.text_columns, matrix.date_columns)
        if now != before:
            name = j if matrix.feature_names is None else f"{matrix.feature_names[j]!r:.80}"
            changes.append(f"column {name} is {now} here and was {before} in the run")
    if changes:
        raise Incompatible(f"{matrix.address}: {first_few(changes, 8)}; give it as in the run")


def _kind(column: int, text: Sequence[int], dates: Sequence[int]) -> str:
    return "text" if column in text else "a date" if column in dates else "a number"


def names_of_rows(
    matrix: Matrix, given: str | None, rules: dict[str, Any], options: dict[str, Any] | None
) -> tuple[Any, str | None]:
    """Return the names of new rows and their title; None where there are none.

    `given`: A file or column; by default the column that named the rows of the run, where the new rows have it, else
        the source's own names.
    """
    if given is None and (name := rules.get("row_names")) is not None and locate(name).version() is None:
        with contextlib.suppress(SourceError):
            column = open_vector(name, matrix.shape[0], matrix=matrix, name=ROW_NAMES)
            return column, column_title(column, name)
    if given is None:
        own = matrix.row_names or names_in_unread(matrix)
        return own, getattr(own, "name", None)
    names = open_vector(given, matrix.shape[0], matrix=matrix, storage_options=options, name=ROW_NAMES)
    return names, None if locate(given).version() is not None else column_title(names, given)


def prediction_names(model: dict[str, Any]) -> list[str]:
    """Return the names of the columns of predictions: that of the target, where it is known."""
    return [model.get("target") or "class"] if model["classes"] else [str(name) for name in model["outputs"]]


def assigned_header(rules: dict[str, Any], title: str | None) -> list[str]:
    """Return the header of the CSV of assigned rows: the title of the row names, cluster, names of predictions."""
    others = [] if rules["centers"] is None else ["cluster"]
    others += [] if rules["model"] is None else [disarmed(name) for name in prediction_names(rules["model"])]
    return [row_title(title, others), *others]


def assigned_csv(
    assigned: Assigned, model: dict[str, Any] | None, header: list[str], names: Any, n_rows: int
) -> Iterator[bytes]:
    """Yield the CSV of all rows, in parts: number or name, cluster, predictions; no cluster is -1."""
    yield csv_text([header]).encode()
    for start in range(0, n_rows, PART_ROWS):
        stop = min(start + PART_ROWS, n_rows)
        columns: list[Any] = [
            range(start, stop) if names is None else [disarmed(name) for name in row_texts(names, start, stop)]
        ]
        if assigned.labels is not None:
            columns.append(assigned.labels[start:stop].tolist())
        if model is not None and assigned.outputs is not None:
            columns += _predictions(model, assigned.outputs[start:stop])
        yield csv_text(zip(*columns, strict=True)).encode()


def _predictions(model: dict[str, Any], outputs: Any) -> list[list[Any]]:
    """Return the columns of predictions: the targets, or the class; empty where the row was dropped."""
    is_dropped = np.isnan(outputs).any(axis=1).tolist()
    columns = (np.exp(outputs) if model.get("family") == "poisson" else outputs).T.tolist()
    if classes := model["classes"]:
        places = (outputs[:, 0] > 0).astype(int) if outputs.shape[1] == 1 else outputs.argmax(axis=1)
        columns = [[disarmed(str(classes[index])) for index in places.tolist()]]
    return [["" if absent else value for absent, value in zip(is_dropped, column, strict=True)] for column in columns]


ANNOTATIONS_FILE = "annotations.h5ad"
ANNDATA_NBYTES = 104 * 2**20
"""Bytes of the libraries anndata and pandas, which nothing else in a job loads."""

ANNOTATION_NBYTES, NAME_NBYTES = 180, 10
"""Bytes of a row while the AnnData file is written, and of each character of its name beside these."""

HVG = {"flavor": "seurat_v3"}
"""Entry of ``uns`` under the name of the method, which is scanpy's."""


def gene_columns(selector: Any) -> dict[str, Any]:
    """Return the columns of ``var`` of a fitted selector of highly variable genes."""
    columns = {
        "highly_variable": selector.get_support(),
        "highly_variable_rank": selector.ranks_.astype(np.float32),
        "means": selector.means_,
        "variances": selector.variances_,
        "variances_norm": selector.variances_norm_,
    }
    return columns | ({"highly_variable_nbatches": selector.n_batches_} if selector.batches else {})


def cluster_column(labels: Any, n_clusters: int) -> Any:
    """Return the column of ``obs``: categories "0", "1", ..., missing where a row was left out."""
    import pandas as pd

    return pd.Categorical.from_codes(labels, [str(label) for label in range(n_clusters)])


def cluster_entry(params: dict[str, Any], inertia: float, centers: Any, certificate: Any) -> dict[str, Any]:
    """Return the entry of ``uns``."""
    entry = {"params": params, "inertia": float(inertia), "centers": centers}
    if certificate is not None:
        numbers = {name: float(getattr(certificate, name)) for name in ("factor", "lower_bound", "confidence")}
        entry["certificate"] = numbers | {"sentence": certificate.sentence()}
    return entry


def _without_nul(names: Iterable[str]) -> list[str]:
    """Return names with another sign for NUL, which text of HDF5 has not; those that differ differ still."""
    names = list(names)
    taken = {name for name in names if "\0" not in name}
    shown: dict[str, str] = {}
    for name in names:
        if "\0" in name and name not in shown:
            text = name.replace("\0", "\ufffd")
            while text in taken:
                text += "\ufffd"
            taken.add(text)
            shown[name] = text
    return [shown.get(name, name) for name in names] if shown else names


def annotations_nbytes(session: Session) -> int:
    """Return the bytes that writing the AnnData file takes, by the longest of the first names of rows."""
    (names, _), n_rows = session.row_names(), session.matrix.shape[0]
    first = map(str, (n_rows,)) if names is None else row_texts(names, 0, min(n_rows, 1000))
    return ANNDATA_NBYTES + n_rows * (ANNOTATION_NBYTES + NAME_NBYTES * max(map(len, first), default=0))


def write_annotations(session: Session, results: JobResults) -> None:
    """Publish the AnnData file, whose rows and columns are all those of the source."""
    import anndata
    import pandas as pd

    selection, clustering = results.selection, results.clustering
    if session.selector.needs_counts and not session.has_preset:
        uns: dict[str, Any] = {session.selector.method: HVG}
        columns = gene_columns(session.selector)
    else:
        uns = {}
        mask = np.isin(np.arange(selection.scores.size), selection.support)
        columns = {"selected": mask, "score": selection.scores}
    names = selection.feature_names or map(str, range(selection.scores.size))
    rows, _ = session.row_names()
    n_rows = session.matrix.shape[0]
    cells = map(str, range(n_rows)) if rows is None else row_texts(rows, 0, n_rows)
    cells_shown, names_shown = _without_nul(cells), _without_nul(names)
    obs, var = pd.DataFrame(index=cells_shown), pd.DataFrame(columns, index=names_shown)
    if clustering is not None and session.config.cluster is not None:
        evaluation, settings = results.evaluation, session.config.cluster
        proofs = () if evaluation is None else evaluation.certificates
        best = min(proofs, key=lambda proof: proof.factor, default=None)
        params = {"n_clusters": settings.n_clusters, "random_state": settings.random_state}
        obs["kmeans"] = cluster_column(clustering.labels, settings.n_clusters)
        uns["kmeans"] = cluster_entry(params, clustering.inertia, clustering.centers, best)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Warnings of names that are not unique, and of releases of pandas
        anndata.AnnData(obs=obs, var=var, uns=uns).write_h5ad(session.folder.staging(ANNOTATIONS_FILE))
    session.folder.publish(ANNOTATIONS_FILE)
