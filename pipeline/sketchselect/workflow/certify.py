"""Finished runs opened again, and certificates with_new to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sketchselect.cluster import Certificate, certify
from sketchselect.cluster.certificates.block import BlockOptions
from sketchselect.cluster.certificates.certify import bound_from_rows
from sketchselect.errors import ConfigError, DamagedFile, Incompatible, SourceChanged
from sketchselect.job.load import CLUSTERS, load_job
from sketchselect.job.schema import JobConfig
from sketchselect.prepare import labels, resolve
from sketchselect.selectors.sketched import VarianceSelector
from sketchselect.summaries import Summary, codec
from sketchselect.workflow.folder import read_manifest, sealed, tree_digest, unsealed
from sketchselect.workflow.job import write_manifest
from sketchselect.workflow.pages import FILE as REPORT
from sketchselect.workflow.pages import draw_again
from sketchselect.workflow.session import Session, open_session
from sketchselect.workflow.stages.columns import prepare
from sketchselect.workflow.tables import plain_value

T = TypeVar("T")

FILE = "certificate.json"
"""Name of the file in an output folder that holds what `certify` with_new."""


def refuse(why: str, options: Mapping[str, Any]) -> None:
    """Raise `ConfigError` where one of these options is given."""
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
    """Certify the published labels of a finished run, and add the certificate to what the folder says of itself."""
    content = read_manifest(path, complete)
    require_digests(path, content)
    config = job_of_run(path, content, runs_on, storage_options)
    if config.cluster is None or "clustering" not in content:
        raise ConfigError(f"{path}: the run clustered nothing, so there is nothing to certify")
    with open_session(config, progress=progress) as session:
        if content["source"]["identity"] != session.identity:
            address = session.matrix.address
            raise SourceChanged(f"{address}: it is not what it was when the run read it; run the job again")
        if not session.is_prepared:
            prepare(session)
        if list(session.prepare) != content["prepare"]:
            raise Incompatible(f"{path}: the run prepared rows by {content['prepare']}, now {list(session.prepare)}")
        certificate = _measured(session, bound)
        session.close_engine()
        _add(session, content, certificate)
    return certificate


def _measured(session: Session, bound: Mapping[str, Any]) -> Certificate:
    """Return the certificate of the folder's labels: from its summary, or from blocks of rows where they prove more."""
    settings = session.config.cluster
    assert settings is not None
    chosen = dict(bound)
    method = chosen.pop("method", None)
    if method == "spectral":
        refuse("for --method blocks", {f"--{name}": value for name, value in chosen.items()})
    blocks = BlockOptions(**{"random_state": settings.random_state, **chosen})
    rows = session.labelled_rows("labels.zarr")
    spectrum = codec.load(session.folder.path / "summary.sks")
    options = session.pass_options
    certificate = bound_from_rows(rows, None, settings.n_clusters, method, blocks, options, spectrum=spectrum)
    session.require_unchanged()
    return certificate


def _add(session: Session, content: dict[str, Any], certificate: Certificate) -> None:
    """Add the certificate to the run's own in manifest and report."""
    folder, plain = session.folder, plain_value(certificate.to_dict())

    def with_new(entries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        return _with(entries, plain, lambda e: (e["method"], e["confidence"]), lambda e: e["factor"] or math.inf)

    ours = folder.path / FILE
    before = unsealed(ours)["certificates"] if ours.exists() else []
    folder.write(FILE, sealed({"format": 1, "certificates": with_new(before)}, indent=1))
    content["certificates"] = with_new(content.get("certificates", ()))
    if (folder.path / REPORT).exists():
        draw_again(folder, content)
    write_manifest(folder, content)


def _with(
    entries: Sequence[T], new: T, kind: Callable[[T], tuple[str, float]], factor: Callable[[T], float]
) -> list[T]:
    """Return the certificates with a new one, which takes the place of one of the same method and confidence.

    Of those that always hold the closest stays; picked from several draws, one of a probability would lose it.
    """
    same = [entry for entry in entries if kind(entry) == kind(new)]
    best = min([new, *same], key=factor) if kind(new)[1] == 1 else new
    return [*(entry for entry in entries if kind(entry) != kind(new)), best]


def require_digests(path: Path, content: Mapping[str, Any]) -> None:
    """Raise `DamagedFile` where summary or selection are not those of the manifest."""
    for name in ("summary.sks", "selection.json"):
        promised = content.get("digests", {}).get(name)
        if promised is not None and tree_digest(path / name) != promised:
            raise DamagedFile(f"{path / name}: not the file that {path / 'manifest.json'} describes; run the job again")


def complete(content: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest that has all that opening its run again takes."""
    content["job"]["input"]["url"], content["source"]["identity"], content["prepare"]
    sections = [section for section in content["job"].values() if section is not None]
    texts = [*content["files"], *content.get("digests", {})]
    if not all(isinstance(section, dict) for section in (*sections, *content["stages"])) or {*map(type, texts)} - {str}:
        raise TypeError("sections, stages and names of files")
    return content


def job_of_run(
    path: Path,
    content: Mapping[str, Any],
    runs_on: Mapping[str, Any],
    storage_options: Mapping[str, Any] | None = None,
) -> JobConfig:
    """Return the job of a finished run, to be run on something else where that is asked for.

    By default a run that used a scheduler is opened on threads: whoever answers at an address can run code in its
    client, and the folder may come from anywhere. For the same reason checkpoints are saved in the folder itself, never
    at a place that it names.

    `storage_options`: Of its source; a run's folder has only their names.
    """
    job = {name: dict(section) for name, section in content["job"].items() if section is not None}
    if (names := job["input"].pop("storage_options", None)) and not storage_options:
        raise ConfigError(
            f"{path}: the run's storage options were not saved: give {', '.join(names)} again, with --storage-option"
        )
    job["input"]["storage_options"] = dict(storage_options or {})
    selected = job.setdefault("select", {"method": VarianceSelector.method})  # there is none where columns were given
    selected.update(selected.pop("parameters", {}))
    if runs_on or job["execution"]["cluster"] not in CLUSTERS:
        unchanged = {k: v for k, v in job["execution"].items() if k in ("partition_bytes", "checkpoint", "retries")}
        job["execution"] = {**unchanged, **(runs_on or {"cluster": "threads"})}
    if job["execution"].get("checkpoint"):
        job["execution"]["checkpoint"] = "auto"
    job["output"]["dir"] = str(path)
    return load_job(job)
