"""Evaluation of clusterings: exact objective in all columns, certificates, agreement with known labels.

Agreement of clusters with known labels, counted piece by piece: in a job, and for any two sources of labels.

The search for the fewest columns whose clustering is proved to be within a tolerance of the best one possible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sketchselect.cluster import Certificate, SelectionBound
from sketchselect.errors import BadParameter, ConfigError, SourceError
from sketchselect.execution import Source, summarize_source
from sketchselect.linalg.agreement import best_matching
from sketchselect.linalg.arrays import Array, Floats
from sketchselect.readers import Vector, open_vector
from sketchselect.readers.arrays import ArrayVector
from sketchselect.selectors import AutoSelector, Selection
from sketchselect.summaries import CentroidSums, Contingency, Summary
from sketchselect.workflow.folder import MARKER, file_digest, read_manifest
from sketchselect.workflow.session import VERSION, Session
from sketchselect.workflow.stages.certificates import bound_of_blocks, prove, reassigned, solved_blocks
from sketchselect.workflow.stages.clustering import Clustering, k_means, publish
from sketchselect.workflow.tables import disarmed, plain_value

MAX_CLASSES = 1000
"""More distinct labels than this are no classes."""

PIECE_ROWS = 1 << 18
"""Rows whose labels are in memory at a time."""

_SHOWN_CLASSES = 40


@dataclass(frozen=True)
class Crossed:
    """Known labels against clusters."""

    table: Contingency  # Of the rows that have both
    n_unknown: int  # Rows without a known label (NaN), which are left out
    n_dropped: int  # Rows without a cluster (a negative number, or NaN), which are left out

    def to_dict(self) -> dict[str, Any]:
        """Return all that is known, as JSON can hold it."""
        table = self.table
        return {
            "n_rows": table.n_rows,
            "n_classes": len(table.classes),
            "n_clusters": len(table.clusters),
            "nmi": table.nmi,
            "ari": table.ari,
            "accuracy": table.accuracy,
            "purity": table.purity,
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
        """Return it for people: the measures, then each class with the cluster that is matched with it."""
        table = self.table
        lines = [
            f"{table.n_rows:,} rows: {len(table.clusters)} clusters against {len(table.classes)} known labels",
            f"NMI {table.nmi:.4f}   ARI {table.ari:.4f}   accuracy {table.accuracy:.4f}   purity {table.purity:.4f}",
        ]
        if self.n_unknown or self.n_dropped:
            lines.append(
                f"left out: {self.n_unknown:,} rows without a known label, {self.n_dropped:,} without a cluster"
            )
        matched = dict(self._matched())
        place = {cluster: j for j, cluster in enumerate(table.clusters.tolist())}
        lines.append(f"{'label':<32} {'rows':>10}  matched cluster")
        for i, label in enumerate(table.classes.tolist()[:_SHOWN_CLASSES]):
            rows = int(table.counts[i].sum())
            end = "none"
            if label in matched:
                common = int(table.counts[i, place[matched[label]]])
                if common:
                    end = f"{disarmed(str(matched[label]))}, with {common:,} of them ({common / rows:.0%})"
            lines.append(f"{disarmed(str(label))[:32]:<32} {rows:>10,}  {end}")
        if len(table.classes) > _SHOWN_CLASSES:
            lines.append(f"and {len(table.classes) - _SHOWN_CLASSES} more; --json has all")
        return "\n".join(lines)


def cross(known: Vector, clusters_of: Vector | Array) -> Crossed:
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
    for start in range(0, n_rows, PIECE_ROWS):
        stop = min(start + PIECE_ROWS, n_rows)
        classes, clusters = known.read(start, stop).reshape(-1), clustering.read(start, stop).reshape(-1)
        unknown, dropped = _missing(classes), _missing(clusters)
        if clusters.dtype.kind in "if":
            # The mark of a dropped row, as in labels.zarr.
            dropped |= clusters < 0
        labelled = ~(unknown | dropped)
        table = table.merge(Contingency.of(classes[labelled], clusters[labelled]))
        n_unknown += int(unknown.sum())
        n_dropped += int(dropped.sum())
    return Crossed(table, n_unknown, n_dropped)


def evaluate_target(
    target: str, labels: str | None = None, storage_options: Mapping[str, Any] | None = None
) -> Crossed:
    """Return how clusters agree with known labels.

    `target`: The output folder of a run, or anybody's clusters: what `open_vector` opens.
    `labels`: The known labels: what `open_vector` opens, such as a file or ``store.zarr/obs/cell_type``; of a run's
        folder also the name of an array in the store that the run read, and by default the labels of its job.
    `storage_options`: Arguments of the file system of those that are URLs.

    Raises `ConfigError` if there is nothing to compare; `SketchSelectError` if something cannot be read, or is not of
    the same rows.
    """
    path, beside = Path(target), None
    if (path / MARKER).is_file():
        inputs, beside = read_manifest(path, lambda content: (content["job"]["input"], content["job"]["input"]["url"]))
        labels = labels or inputs.get("labels")
        target = str(path / "labels.zarr")
        if not Path(target).exists():
            raise ConfigError(f"{path}: the run clustered nothing, so there is nothing to evaluate")
    if labels is None:
        raise ConfigError("--labels: missing; say where the known labels are")
    clustering = open_vector(target, None, storage_options=storage_options, name="clusters")
    known = open_vector(labels, None, matrix=beside, storage_options=storage_options, name="labels")
    crossed = cross(known, clustering)
    if not crossed.table.n_rows:
        raise ConfigError(f"{labels}: no row has both a known label and a cluster")
    return crossed


def _missing(labels: Array) -> Array:
    if labels.dtype.kind == "f":
        return np.isnan(labels)
    # AnnData's categories read as text: an entry without one is "nan".
    return labels == "nan" if labels.dtype.kind == "U" else np.zeros(labels.shape, dtype=bool)


_TIE = 1e-9
"""Objectives of one partition, summed in another order, differ by less."""


@dataclass(frozen=True)
class Compared:
    """One of several clusterings of the same rows."""

    columns: str  # "selected columns", "selected columns, weighted", "all columns", ...
    objective: float  # Exact within-cluster sum of squares in all prepared columns
    nmi: float | None = None
    ari: float | None = None
    published: bool = False  # Whether it is the run's result, in ``labels.zarr``


@dataclass(frozen=True, eq=False)
class Agreement:
    """Agreement of clusters with known labels, which were never used for the selection."""

    table: NDArray[np.int64]  # shape (n_classes, n_clusters): Rows of each class in each cluster
    classes: tuple[str, ...]  # Sorted
    nmi: float
    ari: float
    accuracy: float  # Share of rows in their class's cluster under the best matching
    # The same for k-means on all columns, where the job asks for the comparison
    nmi_all_columns: float | None = None
    ari_all_columns: float | None = None
    accuracy_all_columns: float | None = None


@dataclass(frozen=True)
class Evaluation:
    """What is known of a clustering."""

    objective: float  # Exact within-cluster sum of squares in all prepared columns
    means: Floats  # shape (n_clusters, n_columns): Mean of each cluster in all prepared columns
    certificates: tuple[Certificate, ...] = ()  # Bounds on objective / optimum; empty where the job wants none
    agreement: Agreement | None = None  # With known labels
    # Objective of k-means on all columns, where the job asked for the comparison
    objective_all_columns: float | None = None
    compared: tuple[Compared, ...] = ()  # All clusterings that were made, where there are several
    # Of k-means itself: of the clustering it candidates, in the columns that it worked on
    selected_certificate: Certificate | None = None
    # What the selected columns promised for all columns before they were clustered
    selection_bound: SelectionBound | None = None
    moved: Reassignment | None = None  # What one reassignment in all columns changed, where the job asked for it


@dataclass(frozen=True)
class Reassignment:
    """What a reassignment changed."""

    n_rows: int  # Rows that went to another cluster
    objective_before: float  # In all prepared columns, before


def evaluate(
    session: Session, summary: Summary[Any], selection: Selection, features: Source, clusterings: Sequence[Clustering]
) -> tuple[Clustering, Evaluation]:
    """Compute the exact objective of each clustering in one pass, then all that follows; return the better one first.

    Of two clusterings (with the selection's weights and without) the one of the lower objective in all columns is
    published as the job's; a tie goes to the first.
    """
    settings = session.config.cluster
    assert settings is not None
    sums = []
    for one in clusterings:
        with session.stage("objective" if len(clusterings) == 1 else f"objective, {one.variant}") as entry:
            sums.append(cluster_sums(session, one, entry))
    # Of equal partitions, which differ by rounding alone, the first.
    best = next(i for i, one in enumerate(sums) if one.objective <= min(s.objective for s in sums) * (1 + _TIE))
    clustering, objective, means = clusterings[best], float(sums[best].objective), sums[best].cluster_means
    moved: Reassignment | None = None
    if settings.reassign:
        clustering, after = reassigned(session, features, selection, clustering, sums[best])
        moved = Reassignment(int(np.count_nonzero(after.labels != clusterings[best].labels)), objective)
        objective, means = float(after.objective), after.means
    elif len(clusterings) > 1:
        clustering = publish(session, clustering)
    proofs = prove(session, summary, selection, features, clusterings[best], clustering, sums[best], objective)
    candidates = [(_columns(one, False), one, float(sums[place].objective)) for place, one in enumerate(clusterings)]
    candidates[best] = (_columns(clusterings[best], moved is not None), clustering, objective)
    on_all = None
    if settings.compare_all_columns:
        with session.stage("k-means on all columns") as entry:
            on_all = k_means(session, session.rows)
            entry.update(inertia=on_all.inertia, n_iter=on_all.n_iter)
        with session.stage("k-means on random columns") as entry:
            at_random = _on_random_columns(session, selection.support.size, entry)
        candidates += [("all columns", on_all, on_all.inertia), ("as many random columns", *at_random)]
    known = session.vector("labels")
    agreements = [None if known is None else agree(known, one, on_all, session.note) for _, one, _ in candidates]
    compared = [
        Compared(
            columns,
            cost,
            None if agreement is None else agreement.nmi,
            None if agreement is None else agreement.ari,
            place == best,
        )
        for place, ((columns, _, cost), agreement) in enumerate(zip(candidates, agreements, strict=True))
    ]
    evaluation = Evaluation(
        objective,
        means,
        proofs.certificates,
        agreements[best],
        None if on_all is None else on_all.inertia,
        tuple(compared) if len(compared) > 1 else (),
        proofs.selected,
        proofs.selection,
        moved,
    )
    return clustering, evaluation


def _columns(clustering: Clustering, was_reassigned: bool) -> str:
    columns = "selected columns, weighted" if clustering.variant == "weighted" else "selected columns"
    return f"{columns}, reassigned" if was_reassigned else columns


def _on_random_columns(session: Session, n_columns: int, entry: dict[str, Any]) -> tuple[Clustering, float]:
    """Return the clustering on some random columns, and its objective in all of them."""
    settings = session.config.cluster
    assert settings is not None
    drawn = np.random.default_rng(settings.random_state).choice(session.n_columns, n_columns, replace=False)
    columns = np.sort(drawn)
    clustering = k_means(session, replace(session.rows, columns=tuple(columns.tolist())), columns)
    labelled = replace(session.rows, target=ArrayVector(clustering.labels, "labels of random columns"))
    reduced = summarize_source(labelled, CentroidSums(clustering.centers.shape[0]), session.pass_options)
    session.add_statistics(entry, reduced.stats)
    return clustering, float(reduced.value.objective)  # type: ignore[attr-defined]


def cluster_sums(session: Session, clustering: Clustering, entry: dict[str, Any]) -> CentroidSums:
    """Return the sums of a published clustering in all prepared columns: one fused pass."""
    source, description = session.labelled_rows(clustering.labels_file), CentroidSums(clustering.centers.shape[0])
    reduced = summarize_source(source, description, session.pass_options, stage="objective")
    session.add_statistics(entry, reduced.stats)
    session.require_unchanged()
    return cast(CentroidSums, reduced.value)


def agree(
    known: Vector, clustering: Clustering, on_all: Clustering | None, note: Callable[[str], None]
) -> Agreement | None:
    """Return the agreement with known labels, rows labelled NaN left out; None where they are no classes."""
    try:
        crossed = cross(known, clustering.labels)
        count = str(len(crossed.table.classes))
    except BadParameter:
        crossed, count = None, f"more than {MAX_CLASSES}"
    if crossed is not None and crossed.n_unknown:
        note(f"labels: {crossed.n_unknown} of {known.n_rows} are NaN; those rows are left out of the comparison")
    if crossed is None or not 0 < len(crossed.table.classes) <= MAX_CLASSES:
        note(f"labels: {count} different values, so not compared with the clusters (1 to {MAX_CLASSES} can be)")
        return None
    contingency = crossed.table
    table = np.zeros((len(contingency.classes), clustering.centers.shape[0]), dtype=np.int64)
    table[:, contingency.clusters] = contingency.counts
    other = None if on_all is None else cross(known, on_all.labels).table
    return Agreement(
        table,
        tuple(map(str, contingency.classes.tolist())),
        contingency.nmi,
        contingency.ari,
        contingency.accuracy,
        *((None, None, None) if other is None else (other.nmi, other.ari, other.accuracy)),
    )


STAGE = "proof"

STEP = 8
"""An eighth of the columns is added where a proof fails, and left out where it holds, until it does the other."""


def aim(session: Session) -> None:
    """Make the lower bound of all clusterings, and have the selector choose columns by it, if the job asks for it."""
    tolerance, settings, selector = session.config.select.tolerance_proved, session.config.cluster, session.selector
    if tolerance is None or session.has_preset:
        return
    assert settings is not None
    assert isinstance(selector, AutoSelector)
    planned = solved_blocks(session.config, session.rows, session.n_columns)
    assert planned.description is not None  # `load_job` refuses a job without
    bound = bound_of_blocks(session, session.rows, planned.description, "block certificate").value
    selector.largest_objective = (1.0 + tolerance) * bound.lower_bound(planned.confidence)
    # A job that is run again begins where it ended.
    _use(selector, session.folder.finished(STAGE, _fingerprint(session)) or {})


def _fingerprint(session: Session) -> dict[str, Any]:
    config = session.config
    settings = [one.model_dump(mode="json") for one in (config.select, config.cluster) if one is not None]
    return {"version": VERSION, "summary": file_digest(session.folder.path / "summary.sks"), "settings": settings}


def _use(selector: AutoSelector, sizes: Mapping[str, Any]) -> None:
    if sizes.get("unproved") is not None:
        # No number of columns is proved, so that the estimate alone decides.
        selector.largest_objective = None
    selector.least_columns = sizes.get("least_columns", 1)
    selector.largest_columns = sizes.get("largest_columns")


def aim_again(session: Session, selection: Selection) -> None:
    """Have the selector choose columns by the bound that an earlier selection was made by, if it was by one."""
    if isinstance(session.selector, AutoSelector) and "largest_objective" in selection.diagnostics:
        session.selector.largest_objective = selection.diagnostics["largest_objective"]
        _use(session.selector, selection.diagnostics)


def tries_again(session: Session, evaluation: Evaluation | None) -> bool:
    """Return whether another number of columns is to be tried, which the selector takes then.

    More where the proof failed, fewer where it holds, down to a number for which it failed; the last one that is tried
    is one for which it holds. Where it fails for the most columns too, all of them would prove nothing: those within
    `tolerance` by estimate are tried last, and it is said what is proved of them.
    """
    selector, tolerance = session.selector, session.config.select.tolerance_proved
    if tolerance is None or evaluation is None or session.has_preset:
        return False
    assert isinstance(selector, AutoSelector)
    state: dict[str, Any] = {"failed": 0, "proved": None, "unproved": None}
    state |= session.folder.finished(STAGE, _fingerprint(session)) or {}
    failed, proved, size = state["failed"], state["proved"], len(selector.support_)
    factor = min((one.factor for one in evaluation.certificates), default=float("inf"))
    sizes: tuple[int, int | None]
    text = f"{size} columns: proved within {_percent(factor)}"
    if (unproved := state["unproved"]) is not None:
        most, least_proved = unproved
        if factor > 1.0 + tolerance:
            session.note(
                f"no number of columns up to {most} is proved to be within {_percent(1.0 + tolerance)} of the optimum: "
                f"{most} are proved within {_percent(least_proved)}, and the {size} that `tolerance` chooses by "
                f"estimate within {_percent(factor)}; larger blocks, or reassign = true, may prove more"
            )
        return False
    if factor <= 1.0 + tolerance:
        proved, following = size, size - max(1, size // STEP)
        ends, word, sizes = following <= failed, "fewer", (following, following)
    elif proved is not None and size < proved:
        failed, ends, word, sizes = size, False, f"{proved} again", (proved, proved)
    elif size < selector.most_columns:
        failed, proved, ends, word = size, None, False, "more"
        sizes = size + max(1, size // STEP), None
    else:
        # JSON has no infinity, the factor where nothing is proved.
        unproved, sizes = (size, min(factor, 1e300)), (1, None)
        ends, word = False, "those within `tolerance` by estimate"
    if not ends:
        session.progress.note(f"{text}, asked for {_percent(1.0 + tolerance)}; trying {word}")
        _use(selector, {"least_columns": sizes[0], "largest_columns": sizes[1], "unproved": unproved})
    sought = {"least_columns": selector.least_columns, "largest_columns": selector.largest_columns}
    state = {"failed": failed, "proved": proved, "unproved": unproved, **sought}
    session.folder.finish(STAGE, _fingerprint(session), [], state)
    return not ends


def _percent(factor: float) -> str:
    return f"{100.0 * (factor - 1.0):.3g} %" if factor < 1e300 else "no factor at all"
