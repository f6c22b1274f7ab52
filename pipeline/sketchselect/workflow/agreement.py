"""Agreement of clusters with known labels, counted piece by piece: in a job, and for any two sources of labels."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect._text import counted
from sketchselect.errors import BadParameter, ConfigError, SketchSelectError, SourceError
from sketchselect.linalg.agreement import best_matching
from sketchselect.linalg.validation import Array
from sketchselect.location import is_url
from sketchselect.readers import Matrix, Vector, open_matrix, open_vector
from sketchselect.readers.arrays import ArrayVector
from sketchselect.readers.base import are_missing
from sketchselect.readers.opening import identifying_column
from sketchselect.summaries import Contingency
from sketchselect.workflow.folder import MARKER, job_with_moved_files, read_manifest, require_digests
from sketchselect.workflow.stages.clustering import Clustering
from sketchselect.workflow.tables import disarmed, plain_value

MAX_CLASSES = 1000
"""Labels with more distinct values than this are not classes."""

PIECE_ROWS, FIRST_ROWS = 1 << 18, 1 << 12
"""Rows whose labels are in memory at a time, and how many come first: they show how long text is."""

PIECE_NBYTES = 16 << 20
"""Bytes of labels that are in memory at a time, of text that is long."""

_SHOWN_CLASSES = 40


@dataclass(frozen=True, eq=False)
class Agreement:
    """Agreement of clusters with known labels, which were never used for the selection."""

    table: NDArray[np.int64]  # shape (n_classes, n_clusters): Rows of each class in each cluster
    classes: tuple[str, ...]  # Sorted
    nmi: float
    ari: float
    accuracy: float  # Share of rows in their class's cluster under the best matching
    # The same for k-means on all columns, if the job compares with it
    nmi_all_columns: float | None = None
    ari_all_columns: float | None = None
    accuracy_all_columns: float | None = None


@dataclass(frozen=True)
class LabelComparison:
    """Known labels against clusters."""

    table: Contingency  # Of the rows that have both
    n_unknown: int  # Rows without a known label, which are left out
    n_dropped: int  # Rows without a cluster (a negative number, or NaN), which are left out
    ordered_by: str | None = None  # Column by which the labels were brought into the order of the clusters

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data for JSON."""
        table = self.table
        return {
            "n_rows": table.n_rows,
            "n_classes": len(table.classes),
            "n_clusters": len(table.clusters),
            "nmi": table.nmi,
            "ari": table.ari,
            "accuracy": table.accuracy,
            "purity": table.purity,
            "ordered_by": self.ordered_by,
            "left_out": {"no_known_label": self.n_unknown, "no_cluster": self.n_dropped},
            "matching": [[str(a), str(b)] for a, b in self._matched()],
            "classes": plain_value(table.classes),
            "clusters": plain_value(table.clusters),
            "table": table.counts.tolist(),
        }

    def _matched(self) -> list[tuple[Any, Any]]:
        first, second = best_matching(self.table.counts)
        return list(zip(self.table.classes[first].tolist(), self.table.clusters[second].tolist(), strict=True))

    def to_text(self) -> str:
        """Return it as text: the measures, then each class with its matched cluster."""
        table = self.table
        lines = [
            f"{counted(table.n_rows, 'row', '{:,}'.format)}: {counted(len(table.clusters), 'cluster')} against "
            f"{counted(len(table.classes), 'known label')}",
            f"NMI {table.nmi:.4f}   ARI {table.ari:.4f}   accuracy {table.accuracy:.4f}   purity {table.purity:.4f}",
        ]
        if self.n_unknown or self.n_dropped:
            lines.append(
                f"left out: {counted(self.n_unknown, 'row', '{:,}'.format)} without a known label, "
                f"{self.n_dropped:,} without a cluster"
            )
        if self.ordered_by is not None:
            lines.append(f"labels brought into the order of the clusters' rows by their column {self.ordered_by!r:.80}")
        matched = dict(self._matched())
        positions = {cluster: j for j, cluster in enumerate(table.clusters.tolist())}
        if table.classes.dtype.kind in "if" and -1 in table.classes:
            lines.append("the known label -1 is counted as a label; DBSCAN and HDBSCAN mark by it rows of no cluster")
        lines.append(f"{'label':<32} {'rows':>10}  matched cluster")
        for i, label in enumerate(table.classes.tolist()[:_SHOWN_CLASSES]):
            rows = int(table.counts[i].sum())
            end = "none"
            if label in matched:
                common = int(table.counts[i, positions[matched[label]]])
                if common:
                    end = f"{disarmed(str(matched[label]))}, with {common:,} of them ({common / rows:.0%})"
            lines.append(f"{disarmed(str(label))[:32]:<32} {rows:>10,}  {end}")
        if len(table.classes) > _SHOWN_CLASSES:
            lines.append(f"and {len(table.classes) - _SHOWN_CLASSES} more; --json has all")
        return "\n".join(lines)


def compare_labels(known: Vector, clusters_of: Vector | Array) -> LabelComparison:
    """Return known labels against clusters of the same rows: tables of pieces of the rows, merged.

    Raises `SourceError` if there is more than one label for a row, or not as many labels as clusters; `BadParameter` if
    there are too many different labels for a table.
    """
    clustering = open_vector(clusters_of, None, name="the clustering")
    n_rows = clustering.n_rows
    for vector in (known, clustering):
        if len(vector.shape) > 1 and vector.shape[1:] != (1,):
            raise SourceError(f"{vector.address}: has shape {vector.shape}; one label for each row is needed")
    if known.n_rows != n_rows:
        raise SourceError(
            f"{known.address}: has {known.n_rows} labels, {clustering.address} has {n_rows}; both must be of the same "
            "rows"
        )
    table, n_unknown, n_dropped = Contingency.of([], []), 0, 0
    stop = 0
    height = FIRST_ROWS
    while stop < n_rows:
        start, stop = stop, min(stop + height, n_rows)
        classes, clusters = known.read(start, stop).reshape(-1), clustering.read(start, stop).reshape(-1)
        without_label, without_cluster = are_missing(classes), are_missing(clusters)
        if clusters.dtype.kind in "if":
            # The mark of a dropped row, as in labels.zarr.
            without_cluster |= clusters < 0
        has_both = ~(without_label | without_cluster)
        table = table.merge(Contingency.of(classes[has_both], clusters[has_both]))
        n_unknown += int(without_label.sum())
        n_dropped += int(without_cluster.sum())
        height = max(FIRST_ROWS, min(PIECE_ROWS, PIECE_NBYTES // classes.itemsize))
    table = replace(table, classes=_whole(table.classes), clusters=_whole(table.clusters))
    return LabelComparison(table, n_unknown, n_dropped)


def _whole(labels: Array) -> Array:
    """Return labels as whole numbers if they are: a column with missing entries has them as floating-point ones."""
    is_whole = labels.dtype.kind == "f" and bool((labels == np.trunc(labels)).all() and (abs(labels) < 2**53).all())
    return labels.astype(np.int64) if is_whole else labels


def evaluate_target(
    target: str, labels: str | None = None, storage_options: Mapping[str, Any] | None = None
) -> LabelComparison:
    """Return how clusters agree with known labels.

    `target`: The output folder of a run, or any clusters that `open_vector` opens.
    `labels`: The known labels: what `open_vector` opens, such as a file or ``store.zarr/obs/cell_type``; of a run's
        folder also the name of an array in the store that the run read, and by default the labels of its job.
    `storage_options`: Arguments of the file system of URLs.

    Raises `ConfigError` if there is nothing to compare; `SketchSelectError` if something cannot be read, or is not of
    the same rows.
    """
    path, store, names = Path(target), None, None
    if (path / MARKER).is_file():
        inputs = read_manifest(path, lambda content: job_with_moved_files(path, content)["input"])
        store, labels = inputs["url"], labels or inputs.get("labels")
        target, names = str(path / "labels.zarr"), _row_names(path)
        if not Path(target).exists():
            raise ConfigError(f"{path}: the run clustered nothing, so there is nothing to evaluate")
        read_manifest(path, lambda content: require_digests(path, content, "labels.zarr"))
    if labels is None:
        if not is_url(target) and not path.exists():
            raise SourceError(f"{target}: no such file or folder; evaluate takes the output folder of a run")
        raise ConfigError("--labels: missing; give the file of the known labels, or their name in the store")
    clustering = open_vector(target, None, storage_options=storage_options, name="clusters")
    if store is None:
        names = identifying_column(target, labels, storage_options)
    matrix: Matrix | str | None = store
    if store is not None:
        with contextlib.suppress(SketchSelectError):  # the source may be gone, or have columns that a step encodes
            vectors = {name: inputs.get(name) for name in ("target", "cv_groups", "labels", "row_names")}
            matrix = open_matrix(
                store, key=inputs.get("key"), vectors=vectors, encode=("text", "dates"), storage_options=storage_options
            )
    n_rows = matrix.shape[0] if isinstance(matrix, Matrix) else None
    known = open_vector(
        labels,
        n_rows if names is None else names.n_rows,
        matrix=matrix,
        storage_options=storage_options,
        name="labels",
        row_names=names,
    )
    comparison = replace(compare_labels(known, clustering), ordered_by=known.ordered_by)
    if not comparison.table.n_rows:
        raise ConfigError(f"{labels}: no row has both a known label and a cluster")
    return comparison


def _row_names(folder: Path) -> Vector | None:
    """Return the names of the rows of a run, with their title; None where they have none."""
    try:
        with open(folder / "labels.csv", newline="", encoding="utf-8") as file:
            lines = csv.reader(file)
            title, *named = [line[0] for line in lines if line]
            names = ArrayVector(np.array(named))
    except (OSError, ValueError):  # none, or none that a run wrote
        return None
    names.name = title
    return names


def agree(
    labels: Vector, clustering: Clustering, on_all: Clustering | None, note: Callable[[str], None]
) -> Agreement | None:
    """Return the agreement with known labels, leaving out rows whose label is missing; None if they are not classes."""
    try:
        comparison = compare_labels(labels, clustering.labels)
        count = str(len(comparison.table.classes))
    except BadParameter:
        comparison, count = None, f"more than {MAX_CLASSES}"
    if comparison is not None and comparison.n_unknown:
        n = comparison.n_unknown
        verb, rows = ("is", "that row is") if n == 1 else ("are", "those rows are")
        note(f"labels: {n} of {labels.n_rows} {verb} missing; {rows} left out of the comparison")
    if comparison is None or not 0 < len(comparison.table.classes) <= MAX_CLASSES:
        note(f"labels: {count} different values, so not compared with the clusters (1 to {MAX_CLASSES} can be)")
        return None
    contingency = comparison.table
    table = np.zeros((len(contingency.classes), clustering.centers.shape[0]), dtype=np.int64)
    table[:, contingency.clusters] = contingency.counts
    other = None if on_all is None else compare_labels(labels, on_all.labels).table
    return Agreement(
        table,
        tuple(map(str, contingency.classes.tolist())),
        contingency.nmi,
        contingency.ari,
        contingency.accuracy,
        *((None, None, None) if other is None else (other.nmi, other.ari, other.accuracy)),
    )
