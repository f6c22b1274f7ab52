"""The verb `certify` of the command line: of a run's folder, of anybody's labels, or of a summary file."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from sketchselect.cluster import Certificate, blocks_certificate, certify, certify_labels
from sketchselect.cluster.block_certificate import block_description, block_partition_bytes
from sketchselect.cluster.labels_certificate import require_all_rows
from sketchselect.config import ExecutionSettings, JobConfig
from sketchselect.errors import ConfigError, DamagedFile, Incompatible, SourceChanged, SourceError
from sketchselect.execution import Source, make_progress, summarize_source
from sketchselect.jobfile import load_job
from sketchselect.readers import open_matrix, open_vector
from sketchselect.report.text import duration, size
from sketchselect.summaries import BlockBound, Bundle, CentroidSums, Summary, codec, pick
from sketchselect.workflow import preparing
from sketchselect.workflow.engines import engine_for
from sketchselect.workflow.folder import MARKER, PUBLISHED
from sketchselect.workflow.pages import publish_report, record_of
from sketchselect.workflow.record import certificate_record
from sketchselect.workflow.session import Session, open_session
from sketchselect.workflow.tables import plain_value

FILE = "certificate.json"
"""Name of the file in an output folder that holds what `certify` added."""


@dataclass(frozen=True)
class Bound:
    """Which lower bound is wanted: as in `sketchselect.certify`; None leaves a choice to it."""

    method: str | None = None
    block_rows: int | None = None
    confidence: float | None = None
    fraction: float | None = None
    seed: int | None = None

    def given(self) -> dict[str, Any]:
        """Return what was chosen, as keywords."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def certify_target(
    target: str,
    bound: Bound,
    *,
    clusters: int | None = None,
    labels: str | None = None,
    objective: float | None = None,
    prepare: Sequence[Any] | None = None,
    options: Mapping[str, Any] | None = None,
    execution: Mapping[str, Any] | None = None,
    progress: Any = False,
) -> Certificate:
    """Return the certificate of a run's folder, of a summary file, or of the rows of a source.

    Parameters
    ----------
    target : str
        An output folder, a summary file, or the address of a matrix.
    bound : Bound
        Which bound.
    clusters, labels, objective : optional
        Number of clusters; each row's cluster, or what the clustering costs. A run's folder has its own.
    prepare : sequence, optional
        Prepare steps; of a summary file they are only compared.
    options, execution : mapping, optional
        Keys of the sections ``[input]`` and ``[execution]``.
    progress : bool or Progress
        As in `run`.

    Raises
    ------
    ConfigError
        For options that the target cannot take, or lacks.
    SketchSelectError
        As `sketchselect.certify`; `SourceChanged` where a run's source is not what it was.
    """
    inputs = {name: value for name, value in (options or {}).items() if value is not None}
    runs_on = {name: value for name, value in (execution or {}).items() if value is not None}
    path = Path(target)
    if (path / MARKER).is_file():
        own = {"--clusters": clusters, "--labels": labels, "--objective": objective, "--prepare": prepare or None}
        _refuse("a run's folder has its own", own | {f"--{name}": value for name, value in inputs.items()})
        return _of_folder(path, bound, runs_on, progress)
    if clusters is None:
        raise ConfigError("--clusters: missing; say how many clusters the clustering has")
    if path.suffix == ".sks":
        _refuse("a summary file holds no rows", {"--labels": labels} | {f"--{n}": v for n, v in inputs.items()})
        if objective is None:
            raise ConfigError("--objective: missing; a summary file holds no labels (`kmeans_objective` measures it)")
        return _of_summary(path, bound, clusters, objective, prepare)
    if (labels is None) == (objective is None):
        raise ConfigError("give either --labels (each row's cluster) or --objective (what the clustering costs)")
    matrix = open_matrix(target, **inputs)
    with engine_for(ExecutionSettings(**runs_on)) as engine:
        common = {"prepare": prepare, "client": engine, "progress": make_progress(progress), **bound.given()}
        if labels is not None:
            return certify_labels(matrix, labels, clusters, **common)
        assert objective is not None
        return certify(matrix, objective, clusters, **common)


def told(certificate: Certificate) -> str:
    """Return a certificate for people: the sentence, and what it cost."""
    read = f", {certificate.rows_read:,} rows ({size(certificate.bytes_read)}) read" if certificate.rows_read else ""
    return f"{certificate.sentence()}\ncost: {duration(certificate.cost)}{read}"


def _refuse(why: str, options: Mapping[str, Any]) -> None:
    if given := [name.replace("_", "-") for name, value in options.items() if value is not None]:
        raise ConfigError(f"{', '.join(given)}: {why}; leave it out")


def _of_summary(
    path: Path, bound: Bound, clusters: int, objective: float, prepare: Sequence[Any] | None
) -> Certificate:
    from sketchselect.prepare import labels, resolve

    summary: Summary[Any] = codec.load(path)
    if prepare:
        wanted = labels(resolve(prepare))
        if wanted != summary.prepare:
            raise Incompatible(f"{path}: its rows were prepared by {list(summary.prepare)}, not by {list(wanted)}")
    return certify(summary, objective, clusters, **bound.given())


def _of_folder(path: Path, bound: Bound, runs_on: Mapping[str, Any], progress: Any) -> Certificate:
    """Certify the published labels of a finished run, and add the certificate to what the folder says of itself."""
    content = _manifest(path)
    config = _job(path, content, runs_on)
    if config.cluster is None or "clustering" not in content:
        raise ConfigError(f"{path}: the run clustered nothing, so there is nothing to certify")
    with open_session(config, progress=progress) as session:
        if content["source"]["identity"] != session.identity:
            address = session.matrix.address
            raise SourceChanged(f"{address}: it is not what it was when the run read it; run the job again")
        preparing.prepare(session)
        if list(session.prepare) != content["prepare"]:
            raise Incompatible(f"{path}: the run prepared rows by {content['prepare']}, now {list(session.prepare)}")
        certificate = _measured(session, bound)
        session.close_engine()
        _add(session, content, certificate)
    return certificate


def _measured(session: Session, bound: Bound) -> Certificate:
    """Return the certificate of the folder's labels: the spectral one from its summary, or a pass over the rows."""
    began, settings = time.perf_counter(), session.config.cluster
    assert settings is not None
    k, given = settings.n_clusters, bound.given()
    method, seed = given.pop("method", "blocks"), given.pop("seed", settings.random_state)
    labels = open_vector(str(session.folder.path / "labels.zarr"), session.matrix.shape[0], name="labels")
    source = Source(session.matrix, labels, None, session.steps)
    members: dict[str, Summary[Any]] = {"objective": CentroidSums(k)}
    options = session.pass_options
    if method == "blocks":
        members["bound"] = block_description(k, **given, seed=seed)
        options["partition_bytes"] = block_partition_bytes(Bundle(members), source)
    else:
        _refuse("for --method blocks", {f"--{name}": value for name, value in given.items()})
    reduced = summarize_source(source, Bundle(members), stage="certify", checkpoint=session.checkpoint, **options)
    session.require_unchanged()
    found = cast(Bundle, reduced.value)
    sums = cast(CentroidSums, found["objective"])
    require_all_rows(sums, found.n_rows)
    if method == "blocks":
        bound_found = cast(BlockBound, found["bound"])
        return blocks_certificate(bound_found, sums.objective, given.get("confidence"), began, reduced.stats)
    summary = codec.load(session.folder.path / "summary.sks")
    certificate = certify(pick(summary, "frequent-directions", "moments"), sums.objective, k, method)
    spent, stats = time.perf_counter() - began, reduced.stats
    return replace(certificate, cost=spent, rows_read=stats.rows_read, bytes_read=stats.bytes_read)


def _add(session: Session, content: dict[str, Any], certificate: Certificate) -> None:
    """Put the certificate beside the run's own in manifest and report; one of the same kind is replaced."""
    folder, plain = session.folder, plain_value(certificate.to_dict())

    def added(entries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        return [e for e in entries if (e["method"], e["confidence"]) != (plain["method"], plain["confidence"])] + [
            plain
        ]

    ours = folder.path / FILE
    before = json.loads(ours.read_text())["certificates"] if ours.exists() else []
    folder.write(FILE, json.dumps({"format": 1, "certificates": added(before)}, indent=1, allow_nan=False) + "\n")
    content["certificates"] = added(content.get("certificates", ()))
    report = folder.path / "report.json"
    if report.exists():
        record = record_of(json.loads(report.read_text()))
        mine = certificate_record(certificate)
        others = [c for c in record.certificates if (c.method, c.confidence) != (mine.method, mine.confidence)]
        publish_report(folder, replace(record, certificates=[*others, mine]))
    content["files"] = [name for name in PUBLISHED if (folder.path / name).exists()]
    folder.write("manifest.json", json.dumps(content, indent=1, allow_nan=False) + "\n")


def _manifest(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads((path / "manifest.json").read_text())
        content["job"]["input"]["url"], content["source"]["identity"], content["prepare"]
    except FileNotFoundError:
        raise SourceError(f"{path}: the run did not finish; run the job again to resume it") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFile(f"{path / 'manifest.json'}: damaged ({type(error).__name__}); run the job again") from None
    return content


def _job(path: Path, content: Mapping[str, Any], runs_on: Mapping[str, Any]) -> JobConfig:
    """Return the job of a finished run, to be run on something else where that is asked for."""
    job = {name: dict(section) for name, section in content["job"].items() if section is not None}
    if job["input"].pop("storage_options", None):
        raise ConfigError(
            f"{path}: the run's storage options were not kept; certify the source itself, with --labels "
            f"{path / 'labels.zarr'}"
        )
    job["select"].update(job["select"].pop("parameters", {}))
    if runs_on:
        kept = {k: v for k, v in job["execution"].items() if k in ("partition_bytes", "checkpoint", "retries")}
        job["execution"] = {**kept, **runs_on}
    job["output"]["dir"] = str(path)
    return load_job(job)
