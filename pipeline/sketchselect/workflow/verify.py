"""Finished runs opened again: further certificates, and verification of the results by computing them again."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from sketchselect._text import printable
from sketchselect.cluster import Certificate, certify, dropped_columns_certificate
from sketchselect.cluster.certificates.block import BlockOptions
from sketchselect.cluster.certificates.certify import bound_from_rows
from sketchselect.errors import ConfigError, Incompatible, SketchSelectError, SourceChanged
from sketchselect.execution import Source, summarize_source
from sketchselect.job.load import CLUSTERS, load_job
from sketchselect.job.schema import JobConfig
from sketchselect.location import locate
from sketchselect.prepare import labels, resolve
from sketchselect.readers import open_matrix
from sketchselect.readers.zarr.matrix import read_node
from sketchselect.readers.zarr.seal import check_seals, seal_appended
from sketchselect.selectors.sketched import VarianceSelector
from sketchselect.summaries import CentroidSums, Summary, codec
from sketchselect.workflow import tables
from sketchselect.workflow.folder import (
    PUBLISHED,
    job_with_moved_files,
    read_manifest,
    require_digests,
    sealed,
    tree_digest,
    unsealed,
)
from sketchselect.workflow.job import REPORT_FILE, draw_again, is_digested, write_manifest
from sketchselect.workflow.session import Session, differing_builds, open_session
from sketchselect.workflow.stages import clustering, columns, evaluation
from sketchselect.workflow.stages.columns import prepare
from sketchselect.workflow.stages.features import differing_rows
from sketchselect.workflow.stages.model import model_json, model_of
from sketchselect.workflow.tables import plain_value

T = TypeVar("T")

CERTIFICATE_FILE = "certificate.json"
"""Name of the file in an output folder with the certificates that `certify` added."""


def refuse(why: str, options: Mapping[str, Any]) -> None:
    """Raise `ConfigError` if one of these options is given."""
    if names := [name.replace("_", "-") for name, value in options.items() if value is not None]:
        raise ConfigError(f"{', '.join(names)}: {why}; leave it out")


def certify_summary(
    path: Path, bound: Mapping[str, Any], clusters: int, objective: float, prepare: Sequence[Any] | None
) -> Certificate:
    """Return the certificate of a summary file; prepare steps are only compared with those of its rows."""
    summary: Summary[Any] = codec.load(path)
    if prepare:
        steps = labels(resolve(prepare))
        if steps != summary.prepare:
            raise Incompatible(f"{path}: its rows were prepared by {list(summary.prepare)}, not by {list(steps)}")
    return certify(summary, objective, clusters, **bound)


def certify_folder(
    path: Path,
    bound: Mapping[str, Any],
    runs_on: Mapping[str, Any],
    storage_options: Mapping[str, Any] | None,
    progress: Any = False,
) -> Certificate:
    """Certify the published labels of a finished run, and add the certificate to manifest and report."""
    content = read_manifest(path, complete)
    require_digests(path, content, "summary.sks", "selection.json", "labels.zarr")
    config = job_of_run(path, content, runs_on, storage_options)
    if config.cluster is None or "clustering" not in content:
        raise ConfigError(f"{path}: the run clustered nothing, so there is nothing to certify")
    with open_session(config, progress=progress) as session:
        if content["source"]["identity"] != session.identity:
            address, before = session.matrix.address, content["source"]["address"]
            problem = "changed" if address == before else f"been moved from {before}"
            raise SourceChanged(f"{address}: it has {problem} since the run read it; run the job again")
        if not session.is_prepared:
            prepare(session)
        labels = list(session.prepare_labels)
        if labels != content["prepare"]:
            raise Incompatible(f"{path}: the run prepared rows by {content['prepare']}, now {labels}")
        certificate = _measured(session, bound)
        session.close_engine()
        _add(session, content, certificate)
    return certificate


def _measured(session: Session, bound: Mapping[str, Any]) -> Certificate:
    """Return the certificate of the folder's labels: from its summary, or from blocks of rows if they prove more."""
    settings = session.cluster_settings
    chosen = dict(bound)
    method = chosen.pop("method", None)
    if method == "spectral":
        refuse("for --method blocks", {f"--{name}": value for name, value in chosen.items()})
    blocks = BlockOptions(**{"random_state": settings.random_state, **chosen})
    rows = session.labelled_rows("labels.zarr")
    spectrum = columns.load_summary(session)
    options = session.pass_options
    certificate = bound_from_rows(rows, None, settings.n_clusters, method, blocks, options, spectrum=spectrum)
    session.require_unchanged()
    return certificate


def _add(session: Session, content: dict[str, Any], certificate: Certificate) -> None:
    """Add the certificate to the run's own in manifest and report."""
    folder, plain = session.folder, plain_value(certificate.to_dict())

    def with_new(entries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        return _with(entries, plain, lambda e: (e["method"], e["confidence"]), lambda e: e["factor"] or math.inf)

    ours = folder.path / CERTIFICATE_FILE
    before = unsealed(ours)["certificates"] if ours.exists() else []
    folder.write(CERTIFICATE_FILE, sealed({"format": 1, "certificates": with_new(before), **session.watched}, indent=1))
    content["certificates"] = with_new(content.get("certificates", ()))
    content.get("digests", {}).pop(CERTIFICATE_FILE, None)
    if (folder.path / REPORT_FILE).exists():
        draw_again(folder, content)
    write_manifest(folder, content)


def _with(
    entries: Sequence[T], new: T, kind: Callable[[T], tuple[str, float]], factor: Callable[[T], float]
) -> list[T]:
    """Return the certificates with a new one, which replaces that of the same method and confidence.

    Of certificates that always hold the closest stays; the best of several draws would no longer have its probability.
    """
    same = [entry for entry in entries if kind(entry) == kind(new)]
    best = min([new, *same], key=factor) if kind(new)[1] == 1 else new
    return [*(entry for entry in entries if kind(entry) != kind(new)), best]


def complete(content: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest that has everything needed to open its run again."""
    content["job"]["input"]["url"], content["source"]["identity"], content["prepare"]
    sections = [section for section in content["job"].values() if section is not None]
    texts = [*content["files"], *content.get("digests", {})]
    if not all(isinstance(section, dict) for section in (*sections, *content["stages"])) or {*map(type, texts)} - {str}:
        raise TypeError("sections, stages and names of files")
    return content


def job_of_run(
    path: Path, content: Mapping[str, Any], runs_on: Mapping[str, Any], storage_options: Mapping[str, Any] | None = None
) -> JobConfig:
    """Return the job of a finished run, optionally for another cluster.

    By default a run that used a scheduler is opened on threads: a scheduler can run code in its client, and the
    folder may come from anywhere. For the same reason checkpoints are saved in the folder itself, never
    at a place that it names.

    `storage_options`: Of its source; a run's folder has only their names.
    """
    job = job_with_moved_files(path, content)
    if (names := job["input"].pop("storage_options", None)) and not storage_options:
        raise ConfigError(
            f"{path}: the run's storage options were not saved: give {', '.join(names)} again, with --storage-option"
        )
    job["input"]["storage_options"] = dict(storage_options or {})
    if content["prepare"] and not job["prepare"]["steps"]:
        # Of an earlier version, which wrote an empty list for none given.
        job["prepare"]["steps"] = None
    select = job.setdefault("select", {"method": VarianceSelector.method})  # absent if the columns were given
    select.update(select.pop("parameters", {}))
    if runs_on or job["execution"]["cluster"] not in CLUSTERS:
        execution = {k: v for k, v in job["execution"].items() if k in ("partition_bytes", "checkpoint", "retries")}
        job["execution"] = {**execution, **(runs_on or {"cluster": "threads"})}
    if job["execution"].get("checkpoint"):
        job["execution"]["checkpoint"] = "auto"
    job["output"]["dir"] = str(path)
    job["output"]["metrics"] = None  # of the run; and a folder from elsewhere names no file that is written
    return load_job(job)


ROUNDING = 1e-9
"""Objectives of the same labels, summed in another order, differ by less."""

COMPUTED = (
    "selection.json",
    "scores.csv",
    "model.json",
    "prepare.sks",
    "summary.sks",
    "columns.sks",
    "features.zarr",
    "labels.zarr",
    "centers.zarr",
)
"""Files that are computed again, or that a computation reads."""

STATED = (
    "objective_all_columns",
    "compared",
    "selection_bound",
    "certificate_selected_columns",
    "reassigned",
    "agreement",
    "range_of_clusters",
    "preparations",
)
"""Keys of the manifest with results that are not computed again."""


@dataclass(frozen=True)
class Check:
    """A statement of a run's folder, and whether it holds; None if it could not be checked."""

    name: str
    holds: bool | None
    text: str

    def line(self) -> str:
        """Return the outcome in one line."""
        outcome = {True: "holds", False: "DIFFERS", None: "not checked"}[self.holds]
        name = "inertia" if self.name == "objective" else self.name
        return printable(f"{outcome:<12} {name}: {self.text}")


def verify_run(
    path: Path,
    *,
    execution: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: Any = False,
) -> list[Check]:
    """Return which results of a finished run still hold. Nothing in its folder is changed.

    Its files have the digests of the manifest; its source is unchanged; rows that are read again give the bits of the
    summary and of the features; the summary gives the selection; the labels have the objective, and of the features the
    centres and the inertia; summary and objective give the spectral certificate. Results that are not checked are
    listed.

    Raises `SketchSelectError` where the run did not finish, its source cannot be opened, or a cluster is lost.
    """
    content = read_manifest(path, complete)
    checks = list[Check]()
    with _checking(checks, "files") as add:
        add(*_files(path, content))
    checks += _only_stated(content)
    job = job_of_run(path, content, execution or {}, storage_options)
    with open_session(job, read_only=True, progress=progress) as session:
        checks.append(_source(session, content))
        source_holds = checks[-1].holds is not False
        checks.append(_build(content["stages"], list(session.engine.build())))
        same_build = checks[-1].holds is True
        with _checking(checks, "preparation") as add:
            if not session.is_prepared and session.statistics is None:
                session.fit_with(codec.load(path / columns.STEPS_FILE))  # As the run fitted the steps
            same = list(session.prepare_labels) == content["prepare"]
            steps = ", ".join(session.prepare_labels) or "no steps"
            add(same, steps if same else f"{steps}; the run's are {', '.join(content['prepare'])}")
        with _checking(checks, "summary.sks") as add:
            summary = columns.load_summary(session)
            if not (source_holds and same_build):
                add(None, "other rows or libraries give other bits")
            else:
                add(*_read_again(session, summary))
        with _checking(checks, "selection"):
            _selection(session, content, same_build, lambda name, *outcome: checks.append(Check(name, *outcome)))
        if "features.zarr" in content["files"]:
            with _checking(checks, "features.zarr") as add:
                if not (source_holds and same_build):
                    add(None, "other rows or libraries give other bits")
                else:
                    add(*_features(session))
        if "objective" in content:
            with _checking(checks, "objective") as add:
                if not source_holds:
                    add(None, "it needs the rows unchanged")
                else:
                    add(*_objective(session, content))
            with _checking(checks, "centers.zarr") as add:
                if "features.zarr" not in content["files"] or "reassigned" in content:
                    add(None, "it takes the features, and labels that no reassignment changed")
                else:
                    add(*_centers(session, content))
            for stated in content.get("certificates", ()):
                with _checking(checks, f"certificate ({stated['method']})") as add:
                    add(*_certificate(session, content, stated) if same_build else (None, "of other libraries"))
    return checks


def verify_store(
    address: str, storage_options: Mapping[str, Any] | None = None, *, seals: bool = False
) -> list[Check] | None:
    """Return whether a store is what `convert` wrote: names, shape, and every chunk file; None if it is no store.

    `seals`: Whether rows that were appended to it are taken in first.
    """
    location = locate(address, storage_options)
    sealed = [Check(*outcome) for outcome in seal_appended(location)] if seals else []
    if any(check.holds is False for check in sealed):
        return sealed
    node = read_node(location)
    return None if node is None else [*sealed, *(Check(*outcome) for outcome in check_seals(node))]


@contextmanager
def _checking(checks: list[Check], name: str) -> Iterator[Callable[[bool | None, str], None]]:
    """Add the outcomes of one check; a result that cannot be read or computed again does not hold."""
    try:
        yield lambda holds, text: checks.append(Check(name, holds, text))
    except SketchSelectError as error:
        if error.exit_code != SketchSelectError.exit_code:  # the cluster was lost, or the user stopped it
            raise
        checks.append(Check(name, False, str(error)))
    except (OSError, LookupError, TypeError, AttributeError, ValueError) as error:
        # A file that is lost, or of another format than its name says.
        checks.append(Check(name, False, f"cannot be read ({type(error).__name__}: {error})"))


def _files(path: Path, content: Mapping[str, Any]) -> tuple[bool | None, str]:
    digests = content.get("digests")
    if digests is None:
        return None, "the manifest has no digests; it is of an earlier version"
    if foreign := sorted({*content["files"], *digests} - {*PUBLISHED}):
        return False, f"{', '.join(map(repr, foreign))}: no run leaves files of such names"
    without_digest = [name for name in content["files"] if is_digested(name) and name not in digests]
    missing = [name for name in content["files"] if not (path / name).exists()]
    damaged = [name for name in digests if name not in missing and tree_digest(path / name) != digests[name]]
    stores = all(name.endswith(".zarr") for name in without_digest)  # earlier versions had no digests of stores
    groups = ((missing, "missing"), (damaged, "changed"), (without_digest, "without a digest in the manifest"))
    if words := [f"{', '.join(names)} {problem}" for names, problem in groups if names]:
        return None if stores and not (missing or damaged) else False, "; ".join(words)
    return True, f"{len(content['files'])} are there, {len(digests)} have the digests of the manifest"


def _only_stated(content: Mapping[str, Any]) -> Iterator[Check]:
    """Yield the results in the folder that are not computed again."""
    if "report.html" in content["files"]:
        yield Check("report.html", None, "a page that is drawn again")
    if files := [name for name in content["files"] if is_digested(name) and name not in COMPUTED]:
        yield Check(", ".join(files), None, "compared with the manifest's digests, and not computed again")
    if words := [name for name in STATED if name in content]:
        yield Check("manifest.json", None, f"{', '.join(words)}: as stated, and not computed again")


def _source(session: Session, content: Mapping[str, Any]) -> Check:
    address, identity = session.matrix.address, content["source"]["identity"]
    if identity is None:
        return Check("source", None, f"the content of {address} has no identity")
    if identity == session.identity:
        return Check("source", True, f"{address} is as the run read it")
    if address != (before := content["source"]["address"]):  # a part of the identity
        return Check("source", None, f"{address} was {before} in the run; its rows are read again and compared")
    return Check("source", False, f"{address} was rewritten since")


def _build(stages: list[dict[str, Any]], current: list[str]) -> Check:
    if not any("build" in stage for stage in stages):
        return Check("libraries", None, "the manifest does not name them; it is of an earlier version")
    if differences := differing_builds(stages):
        return Check("libraries", None, f"several made the bits, so none are compared ({'; '.join(differences)})")
    if other := differing_builds([*stages, {"build": current}]):
        return Check("libraries", None, f"others made the bits, so none are compared ({'; '.join(other)})")
    return Check("libraries", True, "versions, BLAS and processor are those of the run")


def _read_again(session: Session, summary: Summary[Any]) -> tuple[bool, str]:
    """Return whether all rows, read again, give the same bits."""
    session.selector.inspect_rows(session.source)
    description = columns.description(session.config, session.selector, session.n_columns)
    source = session.summary_source
    options = session.pass_options.but(checkpoint=None, keeps_panels=columns.selects_in_panels(session))
    again = summarize_source(source, description, options, stage="verify").value
    # Earlier versions, of which a run may be or have resumed, did not count filled values.
    digests = [codec.file_digest(one.with_filled(())) for one in (again, summary)]
    same = digests[0] == digests[1]
    return same, f"of {source.n_rows:,} rows read again, {'every bit is the same' if same else 'the bits are others'}"


def _selection(
    session: Session, content: Mapping[str, Any], same_build: bool, add: Callable[[str, bool | None, str], None]
) -> None:
    """Select again from the summary, and compare the selection, and the model if there is one."""
    folder = session.folder.path
    if content["selection"]["given"]:
        add("selection", None, "the columns came from a file")
        return
    origin = "columns.sks" if "columns.sks" in content["files"] else "summary.sks"
    evaluation.restore_target_bound(session, tables.read_selection(folder / "selection.json"))
    summary = columns.load_summary(session)
    selector = columns.fit_selector(session, codec.load(folder / origin) if origin == "columns.sks" else summary)
    again = columns.with_bound(session, summary, selector.selection_)
    texts = {"selection.json": "".join(tables.selection_json(again))}
    if "scores.csv" in content["files"]:
        texts["scores.csv"] = "".join(tables.scores_csv(selector.selection_))
    if "model.json" in content["files"]:
        model = model_of(selector, session.target_name())
        texts["model.json"] = "" if model is None else model_json(model)
    for name, text in texts.items():
        title = "selection" if name == "selection.json" else name
        before = (folder / name).read_text(encoding="utf-8")
        if text == before:
            add(title, True, f"{origin} gives {name} again, every byte the same")
        elif same_build or name != "selection.json":
            add(title, False if same_build else None, f"{origin} gives another {name}")
        else:
            same = json.loads(text)["support"] == json.loads(before)["support"]
            add(title, same, f"{origin} gives {'the same columns again' if same else 'other columns'}")


def _features(session: Session) -> tuple[bool, str]:
    """Return whether the stored features have the bits of the source's rows."""
    folder = session.folder.path
    support = tables.read_selection(folder / "selection.json").support
    source, options = session.written_rows, session.pass_options.but(checkpoint=None)
    differing = differing_rows(source, support, folder / "features.zarr", options)
    text = f"of {source.n_rows:,} rows compared with the source"
    places = ", ".join(f"{start} to {stop - 1}" for start, stop in differing[:5])
    more = f" and {len(differing) - 5} more places" if len(differing) > 5 else ""
    return not differing, f"{text}, rows {places}{more} are others" if differing else f"{text} every bit is the same"


def _objective(session: Session, content: Mapping[str, Any]) -> tuple[bool, str]:
    description = CentroidSums(content["clustering"]["n_clusters"])
    source = session.labelled_rows("labels.zarr")
    sums = summarize_source(source, description, session.pass_options.but(checkpoint=None), stage="verify")
    objective, recorded = float(cast(CentroidSums, sums.value).objective), content["objective"]
    same = math.isclose(objective, recorded, rel_tol=ROUNDING)
    return same, f"of {source.n_rows:,} labels {objective:.12g} in all columns, in the manifest {recorded:.12g}"


def _centers(session: Session, content: Mapping[str, Any]) -> tuple[bool, str]:
    """Return whether rows, labels and centres give the inertia, and labels the centres at which k-means converged."""
    folder, recorded = session.folder.path, content["clustering"]
    features = Source(open_matrix(str(folder / "features.zarr"), nonfinite=session.config.input.nonfinite))
    sums = clustering.sums_in_selected(session, features, "labels.zarr", recorded["n_clusters"])
    means, stored = sums.cluster_means, open_matrix(str(folder / "centers.zarr"))
    if stored.shape != means.shape:
        return False, f"of shape {stored.shape}, and there are means of shape {means.shape}"
    apart = stored.read_rows(0, len(means)) - means
    largest, was = float(np.abs(apart).max()), recorded["inertia_selected_columns"]
    inertia = float(sums.objective) + float(sums.cluster_weights @ np.square(apart).sum(axis=1))
    settings = session.cluster_settings
    rests = settings.tol == 0 and recorded["n_iter"] < settings.max_iter
    rounding = ROUNDING * float(np.abs(means).max())
    floor = rounding**2 * float(sums.cluster_weights.sum())  # For rows that lie on their centres
    same = not rests or largest <= rounding
    same = same and math.isclose(inertia, was, rel_tol=ROUNDING, abs_tol=floor)
    why = (
        ""
        if largest <= rounding or not same
        else ", because k-means stopped at tol or max_iter before the centres settled"
    )
    return same, f"means of the labels differ by {largest:.3g}{why}; inertia {inertia:.12g}, in the manifest {was:.12g}"


def _certificate(session: Session, content: Mapping[str, Any], stated: Mapping[str, Any]) -> tuple[bool | None, str]:
    """Return whether summary and objective give a certificate again; None for one from a pass over the rows."""
    folder, k = session.folder.path, content["job"]["cluster"]["n_clusters"]
    summary = columns.load_summary(session)
    support = tables.read_selection(folder / "selection.json").support
    inertia = content["clustering"]["inertia_selected_columns"]
    cheap: list[Certificate] = [
        certify(summary, content["objective"], k, method="spectral"),
        dropped_columns_certificate(summary, inertia, support, k),
    ]
    again = next((certificate for certificate in cheap if certificate.method == stated["method"]), None)
    if again is None or again.objective == 0:
        return None, "it takes a pass over the rows (`sketchselect certify` makes one)"
    pairs = [(getattr(again, name), stated[name]) for name in ("objective", "lower_bound", "factor")]
    same = all(math.isclose(a, math.inf if b is None else b, rel_tol=ROUNDING) for a, b in pairs)
    return same, f"the summary gives factor {again.factor:.9g}, stated is {stated['factor']}"
