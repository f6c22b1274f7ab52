"""The stages of a job: each reads what the one before published, publishes its own, and is skipped if it is there."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sketchselect.cluster import FewerClusters, KMeansParameters, fit_kmeans
from sketchselect.errors import SketchSelectError
from sketchselect.execution import Source, summarize_source
from sketchselect.execution.summarize import summary_key
from sketchselect.linalg.arrays import Floats
from sketchselect.readers import open_matrix, row_bands
from sketchselect.selectors import Selection
from sketchselect.summaries import Bundle, FrequentDirections, Summary, codec, pick
from sketchselect.workflow import tables
from sketchselect.workflow.engines import Sparing
from sketchselect.workflow.features import View, feature_dtype, write_features
from sketchselect.workflow.folder import file_digest, tree_digest
from sketchselect.workflow.method import description, estimator
from sketchselect.workflow.session import Session


@dataclass(frozen=True)
class Clustering:
    """What k-means found in the selected columns.

    Parameters
    ----------
    labels : array of shape (n_rows,), int32
        Cluster of each row; -1 where the row was dropped.
    centers : array of shape (n_clusters, n_selected)
        Centres in the prepared, selected columns.
    inertia : float
        Within-cluster sum of squares in these columns.
    n_iter : int
        Iterations of the best start.
    """

    labels: NDArray[np.int32]
    centers: Floats
    inertia: float
    n_iter: int


def summarize(session: Session) -> Summary[Any]:
    """Pass 1: publish ``summary.sks``, a bundle of all that selection and certificate need."""
    matrix, folder = session.matrix, session.folder
    wanted = description(session.config, matrix.shape[1])
    if session.config.input.target is not None:
        # No summary of these methods keeps a target: that must not look as if it had been used.
        method = session.config.select.method
        session.note(f"input.target is checked and otherwise not used: {method} selects without a target")
    fingerprint = _source_print(session)
    if fingerprint is not None:
        fingerprint["summaries"] = summary_key(wanted)
        fingerprint["target"] = _vector_print(session, "target")
    with session.stage("summarize") as entry:
        if _reusable(session, "summarize", fingerprint, entry):
            return codec.load(folder.path / "summary.sks")
        added = [step for step in session.prepare if step not in session.config.prepare.rows]
        if added:
            session.progress.note(
                f"{session.config.select.method} prepares rows with {', '.join(added)}, and so does all that follows; "
                "select.normalize = false turns that off"
            )
        _state_projection(session, wanted)
        reduced = summarize_source(session.source, wanted, checkpoint=session.checkpoint, **session.pass_options)
        session.account(entry, reduced.stats)
        session.require_unchanged()
        # Only now: a source that cannot be read takes nothing of the earlier run away.
        _outdate(session)
        folder.write("summary.sks", codec.encode(reduced.value))
        folder.finish("summarize", fingerprint, ["summary.sks"], entry)
        return reduced.value


def select(session: Session, summary: Summary[Any], given: Selection | None = None) -> Selection:
    """Publish ``selection.json`` and ``scores.csv`` from the summary (or a given selection); the data are not read."""
    folder, chosen = session.folder, session.config.select
    with session.stage("select") as entry:
        selection: Selection = given or estimator(session.config).fit_summary(summary).selection_
        entry["n_selected"] = len(selection.support)
        folder.write("selection.json", tables.selection_json(selection))
        folder.write("scores.csv", tables.scores_csv(selection))
    if given is None and chosen.n_features is not None and len(selection.support) < chosen.n_features:
        session.note(f"{chosen.method} selected {len(selection.support)} of the {chosen.n_features} columns asked for")
    return selection


def write_selected(session: Session, summary: Summary[Any], selection: Selection) -> tuple[Source, dict[str, Any]]:
    """Publish ``features.zarr``, and return it as a source with the sample for the 2-D view."""
    folder, seed = session.folder, _seed(session)
    fingerprint = _source_print(session)
    if fingerprint is not None:
        fingerprint["support"] = [int(j) for j in selection.support]
        fingerprint["dtype"] = str(feature_dtype(session.source))
        fingerprint["seed"] = seed
        fingerprint["summary"] = file_digest(folder.path / "summary.sks")
    with session.stage("write features") as entry:
        if not _reusable(session, "write features", fingerprint, entry):
            path = folder.staging("features.zarr")
            if not session.engine.can_write(str(path.parent)):
                raise SketchSelectError(
                    f"{folder.path}: the workers cannot write there; output.dir must be a folder that this process and "
                    "every worker share"
                )
            source = Source(session.matrix, None, None, session.prepare)
            view = view_of(summary)
            reduced = write_features(source, selection.support, path, view, seed, **session.pass_options)
            session.account(entry, reduced.stats)
            session.require_unchanged()
            folder.publish("features.zarr")
            entry["view"] = {"rows": reduced.value.rows.tolist(), "points": reduced.value.points.tolist()}
            folder.finish("write features", fingerprint, ["features.zarr"], entry)
        view_sample = entry.pop("view")
    dropped = session.config.input.nonfinite
    return Source(open_matrix(str(folder.path / "features.zarr"), nonfinite=dropped)), view_sample


def cluster(session: Session, features: Source) -> Clustering:
    """Publish ``labels.zarr`` and ``centers.zarr``: k-means on the selected columns."""
    folder, settings = session.folder, session.config.cluster
    assert settings is not None
    fingerprint = {
        "version": _version(),
        "features": tree_digest(folder.path / "features.zarr"),
        "settings": settings.model_dump(exclude={"certificate", "compare_all_columns"}),
    }
    with session.stage("k-means") as entry:
        if _reusable(session, "k-means", fingerprint, entry):
            labels, centers = tables.read_zarr(folder, "labels.zarr"), tables.read_zarr(folder, "centers.zarr")
            return Clustering(labels.astype(np.int32), centers, entry["inertia"], entry["n_iter"])
        found = k_means(session, features)
        tables.write_zarr(folder, "labels.zarr", found.labels, ("row",))
        tables.write_zarr(folder, "centers.zarr", found.centers, ("cluster", "column"))
        entry.update(inertia=found.inertia, n_iter=found.n_iter)
        folder.finish("k-means", fingerprint, ["labels.zarr", "centers.zarr"], entry)
        return found


def k_means(session: Session, source: Source) -> Clustering:
    """Run k-means with the job's settings on any source."""
    settings = session.config.cluster
    assert settings is not None
    parameters = KMeansParameters(
        n_clusters=settings.n_clusters,
        init=settings.init,
        n_init=settings.n_init,
        max_iter=settings.max_iter,
        tol=settings.tol,
        random_state=settings.random_state,
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = fit_kmeans(
            source,
            parameters,
            engine=session.iterating_engine(source.n_rows * 8 * (source.n_columns + 1)),
            progress=Sparing(session.progress),
            checkpoint=session.checkpoint,
            retries=session.config.execution.retries,
            stall_timeout=session.config.execution.stall_timeout,
        )
    for warning in said:
        if issubclass(warning.category, FewerClusters):
            session.note(str(warning.message))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return Clustering(np.asarray(result.labels, np.int32), np.asarray(result.centers), result.inertia, result.n_iter)


def view_of(summary: Summary[Any]) -> View:
    """Return the plane of the sketch's two top directions through the mean, signs fixed."""
    sketch = cast(FrequentDirections, pick(summary, FrequentDirections.kind))
    axes = np.zeros((2, sketch.n_features))
    top = sketch.centered_directions.vectors[:2]
    axes[: len(top)] = top
    largest = np.abs(axes).argmax(axis=1)
    signs = np.where(axes[np.arange(2), largest] < 0, -1.0, 1.0)
    return View(np.asarray(sketch.mean), (axes * signs[:, None]).T.copy())


def _state_projection(session: Session, wanted: Bundle | Summary[Any]) -> None:
    """Say, before the first pass starts, what it will need."""
    from sketchselect.execution import make_plan, projection

    matrix = session.matrix
    bands = row_bands(matrix, session.config.execution.partition_bytes)
    if bands.read_amplification > 1:
        session.note(
            f"{matrix.address}: chunks are taller than a partition, every byte is decoded "
            f"{bands.read_amplification:.1f} times; `sketchselect convert --chunks` makes a store that is not"
        )
    state = wanted.projected_nbytes(matrix.shape[1])
    plan = make_plan(len(bands), (bands.edges[1] - bands.edges[0]) * matrix.shape[1] * 8, state)
    working = wanted.working_nbytes(matrix.shape[1])
    projected = projection(
        session.source, bands, plan, state_nbytes=state, working_nbytes=working, engine=session.engine
    )
    session.progress.note(f"summarize: {projected.sentence()}")


def _reusable(session: Session, stage: str, fingerprint: dict[str, Any] | None, entry: dict[str, Any]) -> bool:
    """Fill the entry from an earlier run's finished stage if it was made from the same."""
    found = session.folder.finished(stage, fingerprint)
    if found is None:
        changed = session.folder.differences(stage, fingerprint)
        if changed:
            session.progress.note(f"{stage}: done anew, changed since the last run here: {', '.join(changed)}")
        if stage != "summarize":
            _outdate(session)
        return False
    entry.update(found, reused=True)
    session.progress.note(f"{stage}: already done by an earlier run with the same input and settings")
    return True


def _outdate(session: Session) -> None:
    """Discard what says that the folder is whole, before anything that it speaks of changes."""
    session.folder.discard(("manifest.json", "report.json", "report.html"))


def _source_print(session: Session) -> dict[str, Any] | None:
    """Return what identifies the prepared rows, or None where the source cannot be identified."""
    if session.identity is None:
        return None
    given = session.config.input
    return {
        "version": _version(),
        "source": session.identity,
        "shape": list(session.matrix.shape),
        "prepare": list(session.prepare),
        "policies": [given.nonfinite, given.missing_chunks],
        "partition_bytes": session.config.execution.partition_bytes,
    }


def _vector_print(session: Session, name: str) -> str | None:
    vector = session.vector(name)
    return None if vector is None else vector.identity()


def _seed(session: Session) -> int:
    return session.config.cluster.random_state if session.config.cluster else 0


def _version() -> str:
    from sketchselect import __version__
    from sketchselect.execution.fingerprint import KERNEL_VERSION

    return f"{__version__}/{KERNEL_VERSION}"
