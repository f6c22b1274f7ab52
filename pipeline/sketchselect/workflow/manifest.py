"""Results of a run and their description for programs, ``manifest.json``."""

from __future__ import annotations

import platform
import time
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

from sketchselect.linalg.threads import blas_builds
from sketchselect.selectors import Selection
from sketchselect.summaries import Summary
from sketchselect.workflow.folder import FORMAT, PUBLISHED, OutputFolder, sealed, tree_digest
from sketchselect.workflow.session import Session
from sketchselect.workflow.stages.clustering import Clustering, described
from sketchselect.workflow.stages.evaluation import Evaluation
from sketchselect.workflow.stages.model import Model
from sketchselect.workflow.tables import plain_value

PACKAGES = ("numpy", "scipy", "numba", "scikit-learn", "zarr", "dask", "distributed")


@dataclass(frozen=True, eq=False)
class JobResults:
    """Results of the stages of a job."""

    summary: Summary[Any]  # Of the rows: column statistics, usually a sketch, and what the method needs
    selection: Selection  # The selected columns
    model: Model | None = None  # Of a method that learns from a target
    sample: dict[str, Any] | None = None  # Rows and points of the 2-D view
    clustering: Clustering | None = None  # The published one
    evaluation: Evaluation | None = None  # What is known of it
    timeline: dict[str, Any] | None = None  # How the selection changed along the rows
    cluster_count: dict[str, Any] | None = None  # What is known of a range of numbers of clusters


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
        job["select"] = None  # the columns were given, and the section says only what is summarised
    content: dict[str, Any] = {
        "format": FORMAT,
        "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "job": job,
        "source": {**session.matrix.describe(), "identity": session.identity},
        "prepare": list(session.prepare),
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
        content["clustering"] = described(results.clustering)
    if results.cluster_count is not None:
        content["range_of_clusters"] = {
            "recommended": results.cluster_count["recommended"],
            "sentence": results.cluster_count["sentence"],
        }
    if evaluation is not None:
        content["objective"] = evaluation.objective
        content["objective_all_columns"] = evaluation.objective_all_columns
        content["compared"] = [asdict(one) for one in evaluation.compared]
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
    """Add the files of the folder, and digests of those that no later command makes again, and publish it all."""
    there = [name for name in PUBLISHED if (folder.path / name).exists()]
    content["files"] = ["manifest.json", *(name for name in there if name != "manifest.json")]
    content["digests"] = {name: tree_digest(folder.path / name) for name in there if is_digested(name)}
    folder.write("manifest.json", sealed(plain_value(content), indent=1))
