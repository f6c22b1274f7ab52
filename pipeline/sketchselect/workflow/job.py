"""A whole job: every stage in order, then its manifest, and the report page drawn from what is in its folder."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect._text import counted, first_names, format_seconds, html_table
from sketchselect.cluster.certificates.certificate import closer_one, strongest
from sketchselect.errors import ConfigError, DamagedFile, Interrupted, NotOurFolder, SourceError, WillNotFit
from sketchselect.job.load import job_toml, load_job
from sketchselect.job.schema import JobConfig
from sketchselect.linalg.spectrum import centered_in_place
from sketchselect.linalg.threads import blas_builds
from sketchselect.linalg.validation import Floats
from sketchselect.location import is_url
from sketchselect.selectors import Selection
from sketchselect.summaries import ColumnStats, pick
from sketchselect.workflow.assignment import ASSIGNMENT_FILE, assignment_json
from sketchselect.workflow.folder import (
    FORMAT,
    MARKER,
    PUBLISHED,
    OutputFolder,
    open_folder,
    parsed,
    read_manifest,
    require_digests,
    sealed,
    tree_digest,
    unsealed,
)
from sketchselect.workflow.session import Session, open_session, require_weights
from sketchselect.workflow.stages import clustering
from sketchselect.workflow.stages import columns as column_stage
from sketchselect.workflow.stages.clustering import Clustering, cluster_count, clustering_entry
from sketchselect.workflow.stages.columns import sketch_of, view_of
from sketchselect.workflow.stages.evaluation import Evaluation, JobResults, evaluate, next_size, set_target_bound
from sketchselect.workflow.stages.model import Model
from sketchselect.workflow.tables import plain_value, selection_lines

_TIMED = 3
"""Stages whose times are listed."""


@dataclass(frozen=True, eq=False)
class RunResult:
    """Results of a job, and their place.

    Parameters
    ----------
    folder : Path
        The output folder.
    selection : Selection
        Selected columns and scores.
    labels : array of shape (n_rows,) or None
        Cluster of each row, -1 where the row was dropped; None where the job clusters nothing. Where the rows have
        names, ``pd.read_csv(result.paths["labels.csv"], index_col=0)`` has the clusters by name.
    centers : array of shape (n_clusters, n_selected) or None
        Centres in the prepared, selected columns.
    inertia, objective : float or None
        Within-cluster sum of squares in the selected and in all prepared columns.
    certificates : tuple of Certificate
        Bounds on objective / optimum, the spectral one first.
    nmi, nmi_all_columns : float or None
        Agreement with the labels of the job, on the selected columns and on all.
    model : Model or None
        The fitted model of a method that learns from a target, as in ``model.json``.
    manifest : dict
        The content of ``manifest.json``.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import sketchselect as sks
    >>> from sklearn.datasets import make_blobs
    >>> X, _ = make_blobs(200, 6, centers=3, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/rows.npy", X)
    ...     job = {
    ...         "input": {"url": f"{folder}/rows.npy"},
    ...         "select": {"method": "greedy", "n_features": 2},
    ...         "cluster": {"n_clusters": 3},
    ...         "execution": {"cluster": "threads"},
    ...         "output": {"dir": f"{folder}/out"},
    ...     }
    ...     result = sks.run(job)
    >>> result.selection.support.size, result.centers.shape
    (2, (3, 2))
    >>> result.objective >= result.certificates[0].lower_bound
    True
    """

    folder: Path
    selection: Selection
    labels: NDArray[np.int32] | None = None
    centers: Floats | None = None
    inertia: float | None = None
    objective: float | None = None
    certificates: tuple[Any, ...] = ()
    nmi: float | None = None
    nmi_all_columns: float | None = None
    model: Model | None = None
    manifest: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<RunResult in {self.folder}: {self.summary()}>" if self.manifest else f"<RunResult in {self.folder}>"

    def _repr_html_(self) -> str:
        lines = self.summary().splitlines() if self.manifest else []
        return html_table(f"RunResult in {self.folder}", [[line] for line in lines])

    @property
    def certificate(self) -> Any:
        """The best certificate: of the smallest factor, one that always holds before one with a confidence; or None."""
        return strongest(self.certificates)

    @property
    def paths(self) -> dict[str, Path]:
        """Name -> path of every file and store the run published."""
        return {name: self.folder / name for name in self.manifest.get("files", ())}

    def summary(self) -> str:
        """Return the main results in a few lines."""
        lines = list(selection_lines(self.selection))
        n_columns, n_prepared = self.manifest["source"]["shape"][1], self.selection.scores.size
        if self.manifest["prepare"] and n_columns != n_prepared:
            lines[0] += f"; the prepare steps make these {n_prepared} of the source's {n_columns}"
        if self.model is not None:
            lines.append(self.model.sentence())
        if self.nmi is not None:
            other = "" if self.nmi_all_columns is None else f"; on all columns: {self.nmi_all_columns:.3f}"
            lines.append(f"NMI of the clusters with the given labels: {self.nmi:.3f} on the selected columns{other}")
        if compared := self.manifest.get("compared", ()):
            published = {True: " (published)", False: ""}
            entries = [f"{e['objective']:.6g} clustered on {e['columns']}{published[e['published']]}" for e in compared]
            lines.append(f"inertia in all columns (k-means objective): {'; '.join(entries)}")
        if (reassignment := self.manifest.get("reassigned")) is not None:
            lines.append(
                f"one reassignment in all columns moved {counted(reassignment['n_rows'], 'row')}: "
                f"inertia {reassignment['objective_before']:.6g} before, {self.objective:.6g} after"
            )
        # The other certificates and weaker bounds are in the manifest and on the page: two factors next to each
        # other look like a contradiction.
        promise, best = self.manifest.get("selection_bound"), self.certificate
        if promise is not None and promise["n_selected"] < promise["n_features"]:
            factor = None if promise["excess"] is None else 1.0 + promise["excess"]
            sentence = promise["sentence"]
            if self.manifest["clustering"].get("metric") == "least-squares":
                factor, sentence = promise["factor_least_squares"], promise["sentence_least_squares"]
            if factor is not None and (best is None or best.factor >= factor):
                lines.append(sentence)
        if (on_selected := self.manifest.get("certificate_selected_columns")) is not None:
            lines.append(on_selected["sentence"])
        if best is not None:
            lines.append(best.sentence(closer_one(self.certificates)))
        if (cluster_range := self.manifest.get("range_of_clusters")) is not None:
            lines.append(f"On the selected columns: {cluster_range['sentence']}")
            if (k := self.manifest["job"]["cluster"]["n_clusters"]) != cluster_range["recommended"]:
                lines.append(f"The range only compares: the rows are clustered into {k}, by cluster.n_clusters.")
        rounds: dict[str, list[float]] = {}
        for stage in self.manifest["stages"]:
            rounds.setdefault(stage["name"], []).append(stage["seconds"])
        longest = sorted(rounds.items(), key=lambda entry: -sum(entry[1]))[:_TIMED]
        times = [
            f"{name} {format_seconds(sum(seconds))}" + (f" in {len(seconds)} rounds" if len(seconds) > 1 else "")
            for name, seconds in longest
        ]
        if len(rounds) > _TIMED:
            times.append(counted(len(rounds) - _TIMED, "shorter stage"))
        lines.append(f"time: {format_seconds(self.manifest['seconds'])} ({', '.join(times)})")
        report = self.folder / "report.html"
        lines.append(f"report: {report}" if report.exists() else f"output: {self.folder}")
        return "\n".join(lines)


def run(
    job: str | os.PathLike[str] | Mapping[str, Any] | JobConfig,
    *,
    client: Any = None,
    overrides: Sequence[str] = (),
    fresh: bool = False,
    progress: Any = False,
) -> RunResult:
    """Run a whole job: summarise, select, cluster, certify, report.

    A job that was killed resumes when it is run again; stages that finished with the same input and settings are
    not done again.

    Parameters
    ----------
    job : path, mapping or JobConfig
        A TOML or YAML file, or its content.
    client : optional
        Runs the passes instead of the job's ``[execution] cluster``, as in `summarize`.
    overrides : sequence of str
        Settings ``section.key=value`` that win over the job's.
    fresh : bool
        Discard the files of earlier runs in the output folder (only ours).
    progress : bool or Progress
        Whether, or to what, progress is reported.

    Raises
    ------
    ConfigError
        For a job that cannot be right: one line for every mistake, before anything is started.
    SketchSelectError
        For all other errors, see `sketchselect.errors`.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import sketchselect as sks
    >>> from sklearn.datasets import make_blobs
    >>> X, _ = make_blobs(200, 6, centers=3, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/rows.npy", X)
    ...     job = {
    ...         "input": {"url": f"{folder}/rows.npy"},
    ...         "select": {"method": "greedy", "n_features": 2},
    ...         "cluster": {"n_clusters": 3},
    ...         "execution": {"cluster": "threads"},
    ...         "output": {"dir": f"{folder}/out"},
    ...     }
    ...     result = sks.run(job)
    >>> result.selection.method, result.labels.shape
    ('greedy', (200,))
    """
    config = job if isinstance(job, JobConfig) else load_job(job, overrides)
    if config.execution.memory_limit is not None and client is None:
        from sketchselect.workflow.plan.forecast import forecast_job

        # Every pass compares its own need with the limit, but the last ones only when the others are done: a dry run on
        # a few rows says so now.
        try:
            refusal = forecast_job(config, calibrate=False).refusal
        except Interrupted as error:
            early = Interrupted("interrupted before the first pass; run the same command again")
            early.exit_code = error.exit_code  # of a pass of the dry run, which the message would name
            raise early from None
        if refusal is not None:
            raise WillNotFit(refusal)
    return run_config(config, client=client, fresh=fresh, progress=progress)


def run_config(
    config: JobConfig,
    preset: Selection | None = None,
    *,
    client: Any = None,
    fresh: bool = False,
    progress: Any = False,
) -> RunResult:
    """Run a checked job; with a `preset` selection its ``[select]`` only describes the summary."""
    began = time.perf_counter()
    require_weights(config, preset)
    with open_session(config, client, fresh=fresh, progress=progress) as session:
        if preset is not None and preset.scores.size != session.n_columns:
            raise _other_columns(preset, session)
        session.has_preset = preset is not None
        summary = column_stage.summarize(session)
        selection_summary = column_stage.collect(session, summary)
        set_target_bound(session)
        # Once, unless `select.tolerance_proved` asks for a search: each round then tries another number of columns.
        while True:
            selection, model = column_stage.select(session, selection_summary, summary, preset)
            features, sample = column_stage.write_selected(session, summary, selection)
            k_means: Clustering | None = None
            evaluation: Evaluation | None = None
            if config.cluster is not None:
                column_stage.let_go(summary)
                candidates = clustering.cluster(session, selection_summary, summary, features, selection)
                assert features is not None  # `cluster` refuses to work without
                k_means, evaluation = evaluate(session, summary, selection, features, candidates)
                clustering.name_rows(session, k_means)
            else:
                clustering.discard(session)
            if not next_size(session, evaluation):
                break
        along = None
        if config.timeline is None or session.has_preset:
            session.folder.discard(("timeline.csv",))
        else:
            from sketchselect.workflow.stages.timeline import timeline

            along = timeline(session, config.timeline)
        range_figure = cluster_count(session, features)
        return _publish(
            session, JobResults(summary, selection, model, sample, k_means, evaluation, along, range_figure), began
        )


def _publish(session: Session, results: JobResults, began: float) -> RunResult:
    """Write manifest and report, once the engine's processes are gone and their memory is known."""
    # The view may take the panels of a sketch on the workers.
    figures = page_figures(session, results) if session.config.output.report else None
    peak = session.engine.peak_nbytes() if session.engine_description else None
    session.close_engine()
    # Certificates that `certify` added were of the former labels.
    session.folder.discard(("certificate.json", ASSIGNMENT_FILE))
    if (rules := assignment_json(session, results)) is not None:
        session.folder.write(ASSIGNMENT_FILE, rules)
    if session.config.output.anndata:
        from sketchselect.workflow.assignment import write_annotations

        write_annotations(session, results)
    else:
        session.folder.discard(("annotations.h5ad",))
    content = manifest(session, results, peak)
    # The page states it too, so it is measured before the page is drawn.
    content["seconds"] = round(time.perf_counter() - began, 3)
    if figures is not None:
        from sketchselect.report.page import render  # a second of imports

        session.folder.write(REPORT_FILE, sealed(plain_value(figures)))
        session.folder.write("report.html", render(content, results.selection.to_dict(), figures))
    else:
        session.folder.discard(("report.json", "report.html"))
    write_manifest(session.folder, content)
    place = session.config.execution.checkpoint
    elsewhere = None if place is False or place == "auto" or is_url(place) else Path(place)
    with contextlib.suppress(OSError):
        session.folder.collect_checkpoints(elsewhere)
    evaluation, clustering = results.evaluation, results.clustering
    agreement = None if evaluation is None else evaluation.agreement
    return RunResult(
        folder=session.folder.path,
        selection=results.selection,
        labels=None if clustering is None else clustering.labels,
        centers=None if clustering is None else clustering.centers,
        inertia=None if clustering is None else clustering.inertia,
        objective=None if evaluation is None else evaluation.objective,
        certificates=() if evaluation is None else evaluation.certificates,
        nmi=None if agreement is None else agreement.nmi,
        nmi_all_columns=None if agreement is None else agreement.nmi_all_columns,
        model=results.model,
        manifest=content,
    )


def _other_columns(preset: Selection, session: Session) -> ConfigError:
    """Return the error of a selection of other columns: unknown columns of the source, and what to do."""
    address, names = session.matrix.address, session.matrix.feature_names
    known = set(preset.feature_names or ())
    extra = [name for name in names or () if name not in known] if known else []
    advice = "give the source and the prepare steps that it was made from"
    if extra:
        advice = (
            f"it does not know {first_names(extra)}: name such a column with --labels, leave it out of a table "
            "(--key=-NAME), or convert the source without it"
        )
    return ConfigError(
        f"--selection: it is of {counted(preset.scores.size, 'column')}, {address} has {session.n_columns}; {advice}"
    )


PACKAGES = ("numpy", "scipy", "numba", "scikit-learn", "zarr", "dask", "distributed")


def versions() -> dict[str, str]:
    """Return the versions that may matter to a result."""
    from sketchselect._version import __version__

    by_name = {"sketchselect": __version__, "python": platform.python_version(), "platform": platform.platform()}
    by_name.update({name: metadata.version(name) for name in PACKAGES})
    by_name["blas"] = "; ".join(blas_builds())
    return by_name


def manifest(session: Session, results: JobResults, peak_nbytes: int | None) -> dict[str, Any]:
    """Return the content of ``manifest.json``; no credentials, no data values."""
    config, selection, evaluation = session.config, results.selection, results.evaluation
    job = config.model_dump(mode="json")
    job["input"]["storage_options"] = sorted(config.input.storage_options)
    if session.has_preset and config.select.n_features is None:
        job["select"] = None  # the columns were given, and the section only describes the summary
    content: dict[str, Any] = {
        "format": FORMAT,
        "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "job": job,
        "source": {**session.matrix.describe(), "identity": session.identity, **session.watched},
        "prepare": list(session.prepare_labels),
        "prepared_columns": session.n_columns,
        "selection": {
            "method": selection.method,
            "n_selected": len(selection.support),
            "given": session.has_preset,
            "parameters": {k: plain_value(v) for k, v in dict(selection.parameters).items()},
        },
        "seeds": {"random_state": config.cluster.random_state if config.cluster else 0},
        "engine": session.engine_description,
        "memory": {
            "projected_bytes_per_process": session.projected_nbytes or None,
            "peak_bytes_per_process": peak_nbytes,
        },
        "versions": versions(),
        "notes": session.notes,
        "stages": session.stages,
    }
    if selection.diagnostics:
        content["selection"]["diagnostics"] = plain_value(selection.diagnostics)
    if results.model is not None:
        content["model"] = results.model.outline()
    if results.clustering is not None:
        content["clustering"] = clustering_entry(results.clustering)
    if session.preparations is not None:
        content["preparations"] = session.preparations
    if results.cluster_count is not None:
        content["range_of_clusters"] = {
            "recommended": results.cluster_count["recommended"],
            "sentence": results.cluster_count["sentence"],
        }
    if evaluation is not None:
        content["objective"] = evaluation.objective
        content["objective_all_columns"] = evaluation.objective_all_columns
        content["compared"] = [asdict(clustering) for clustering in evaluation.compared]
        content["certificates"] = [plain_value(c.to_dict()) for c in evaluation.certificates]
        if evaluation.selection_bound is not None:
            content["selection_bound"] = plain_value(evaluation.selection_bound.to_dict())
        if evaluation.selected_certificate is not None:
            content["certificate_selected_columns"] = plain_value(evaluation.selected_certificate.to_dict())
        if evaluation.moved is not None:
            content["reassigned"] = asdict(evaluation.moved)
        if (agreement := evaluation.agreement) is not None:
            content["agreement"] = {k: v for k, v in asdict(agreement).items() if k not in ("table", "classes")}
    return content


def is_digested(name: str) -> bool:
    """Return whether the manifest has a digest of a published file or store: all but pages, logs and itself."""
    return name != "manifest.json" and not name.endswith((".html", ".log"))


def write_manifest(folder: OutputFolder, content: dict[str, Any]) -> None:
    """Add the files of the folder, and digests of the files that no later command rewrites, and publish it.

    Digests that the content has stay: who adds a certificate does not vouch for what lies in the folder by then.
    """
    existing = [name for name in PUBLISHED if (folder.path / name).exists()]
    content["files"] = ["manifest.json", *(name for name in existing if name != "manifest.json")]
    known = content.get("digests", {})
    digested = [name for name in existing if is_digested(name)]
    content["digests"] = {name: known.get(name) or tree_digest(folder.path / name) for name in digested}
    folder.write("manifest.json", sealed(plain_value(content), indent=1))


MAX_SPECTRUM = 512
"""Singular values shown."""

REPORT_FILE = "report.json"
"""Name of the file with the page's data that are in neither manifest nor selection."""

PRESET = "# The columns came from a selection file; [select] only describes the summary.\n\n"


def draw_again(folder: OutputFolder, content: Mapping[str, Any]) -> Path:
    """Write ``report.html`` from a manifest's content, and the selection and figures that lie in the folder.

    Raises `DamagedFile` where one is missing or damaged.
    """
    source = folder.path / REPORT_FILE
    try:
        figures = unsealed(source)
        source = folder.path / "selection.json"
        selection = parsed(source.read_text(encoding="utf-8"))
        source = folder.path / REPORT_FILE
        from sketchselect.report.page import render  # a second of imports

        page = render(content, selection, figures)
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise DamagedFile(f"{source}: damaged ({type(error).__name__}); run the job again") from None
    return folder.write("report.html", page)


def render_folder(path: Path) -> Path:
    """Draw ``report.html`` of an output folder again.

    Raises `NotOurFolder` or `SourceError` or `DamagedFile` if there is nothing to draw it from.
    """
    if not path.exists():
        raise SourceError(f"{path}: no such folder")
    if not (path / MARKER).is_file():
        raise NotOurFolder(f"{path}: not an output folder of sketchselect; give the folder that a run wrote")
    content = read_manifest(path, dict)
    if not (path / REPORT_FILE).exists():
        raise SourceError(f"{path}: the job had output.report = false; run it again with true")
    require_digests(path, content, REPORT_FILE, "selection.json")
    with open_folder(path) as folder:
        return draw_again(folder, content)


def _profiles(results: JobResults) -> Floats | None:
    """Return the clusters' means in the selected columns less those of all rows, in standard deviations of all rows."""
    if results.evaluation is None:
        return None
    stats: Any = pick(results.summary, ColumnStats.kind)
    support, deviation = results.selection.support, np.sqrt(stats.variance)
    away = results.evaluation.means[:, support] - stats.mean[support]
    profiles: Floats = np.divide(away, deviation[support], out=np.zeros_like(away), where=deviation[support] > 0)
    return profiles


def page_figures(session: Session, results: JobResults) -> dict[str, Any]:
    """Return the content of ``report.json``; see `sketchselect.report.page.render`."""
    summary, clustering, evaluation = results.summary, results.clustering, results.evaluation
    sketch, view = sketch_of(summary), view_of(summary)
    figures: dict[str, Any] = {
        "job_text": (PRESET if session.has_preset else "") + job_toml(session.config),
        "prepare": [step.description for step in session.steps],
        "n_dropped": session.matrix.shape[0] - pick(summary, ColumnStats.kind).n_rows,
        "model": None if results.model is None else results.model.figure(),
        "timeline": results.timeline,
        "cluster_count": results.cluster_count,
    }
    if sketch is not None:
        figures["singular_values"] = np.sqrt(centered_in_place(sketch).squares[:MAX_SPECTRUM]).tolist()
        figures["shrinkage"] = float(sketch.shrinkage)
        figures["squared_norm"] = float(sketch.centered_squared_norm)
    if results.sample is not None and view is not None:
        rows = np.asarray(results.sample["rows"], np.int64)
        figures["points"] = np.asarray(results.sample["points"], np.float64).reshape(-1, 2)
        figures["point_labels"] = None if clustering is None else clustering.labels[rows]
    if evaluation is not None:
        figures["centres"], figures["profiles"] = evaluation.means, _profiles(results)
        figures["centres_2d"] = None if view is None else view.project(evaluation.means)
        if (known := evaluation.agreement) is not None:
            figures["known_labels"] = {"table": known.table, "classes": known.classes}
    return figures
