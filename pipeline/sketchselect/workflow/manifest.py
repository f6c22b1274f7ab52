"""What a run says of itself: ``manifest.json`` for programs, and the record of the report page for people."""

from __future__ import annotations

import platform
import time
from importlib import metadata
from typing import Any, cast

import numpy as np

from sketchselect.jobfile import job_toml
from sketchselect.linalg.threads import blas_builds
from sketchselect.report import CertificateRecord, KnownLabels, RunRecord, StageRecord
from sketchselect.selectors import Selection
from sketchselect.summaries import ColumnStats, FrequentDirections, pick
from sketchselect.workflow.evaluate import Evaluation
from sketchselect.workflow.folder import PUBLISHED
from sketchselect.workflow.pages import MAX_SPECTRUM
from sketchselect.workflow.session import Session
from sketchselect.workflow.stages import Clustering, view_of
from sketchselect.workflow.tables import plain_value

PACKAGES = ("numpy", "scipy", "numba", "scikit-learn", "zarr", "dask", "distributed")

GIVEN = "# The columns came from a selection file; [select] only says what was summarised.\n\n"


def versions() -> dict[str, str]:
    """Return the versions that may matter to a result."""
    from sketchselect import __version__

    found = {"sketchselect": __version__, "python": platform.python_version(), "platform": platform.platform()}
    found.update({name: metadata.version(name) for name in PACKAGES})
    found["blas"] = "; ".join(blas_builds())
    return found


def manifest(
    session: Session,
    selection: Selection,
    clustering: Clustering | None,
    evaluation: Evaluation | None,
    peak_nbytes: int | None,
) -> dict[str, Any]:
    """Return the content of ``manifest.json``; no credentials, no data values."""
    config = session.config
    job = config.model_dump(mode="json")
    job["input"]["storage_options"] = sorted(config.input.storage_options)
    content: dict[str, Any] = {
        "format": 1,
        "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "job": job,
        "source": {**session.matrix.describe(), "identity": session.identity},
        "prepare": list(session.prepare),
        "selection": {
            "method": selection.method,
            "n_selected": len(selection.support),
            "given": session.columns_given,
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
    if clustering is not None:
        content["clustering"] = {
            "n_clusters": int(clustering.centers.shape[0]),
            "inertia_selected_columns": clustering.inertia,
            "n_iter": clustering.n_iter,
            "cluster_sizes": _sizes(clustering),
            "dropped_rows": int((clustering.labels < 0).sum()),
        }
    if evaluation is not None:
        content["objective"] = evaluation.objective
        content["objective_all_columns"] = evaluation.objective_all_columns
        content["certificates"] = [plain_value(c.to_dict()) for c in evaluation.certificates]
        if (agreement := evaluation.agreement) is not None:
            content["agreement"] = {
                "nmi": agreement.nmi,
                "ari": agreement.ari,
                "nmi_all_columns": agreement.nmi_all_columns,
                "ari_all_columns": agreement.ari_all_columns,
            }
    wanted = ("manifest.json", *(("report.json", "report.html") if config.output.report else ()))
    content["files"] = [n for n in PUBLISHED if n in wanted or (session.folder.path / n).exists()]
    return content


def run_record(
    session: Session,
    summary: Any,
    selection: Selection,
    sample: dict[str, Any],
    clustering: Clustering | None,
    evaluation: Evaluation | None,
    content: dict[str, Any],
) -> RunRecord:
    """Return all that the report page shows."""
    sketch = cast(FrequentDirections, pick(summary, FrequentDirections.kind))
    squares = sketch.centered_directions.squares[:MAX_SPECTRUM]
    rows, points = np.asarray(sample["rows"], np.int64), np.asarray(sample["points"], np.float64).reshape(-1, 2)
    labels = None if clustering is None else clustering.labels[rows]
    agreement = None if evaluation is None else evaluation.agreement
    certificates = () if evaluation is None else evaluation.certificates
    return RunRecord(
        title=session.matrix.address,
        n_rows=session.matrix.shape[0],
        n_columns=session.matrix.shape[1],
        n_dropped=session.matrix.shape[0] - pick(summary, ColumnStats.kind).n_rows,
        method=selection.method,
        method_parameters=content["selection"]["parameters"],
        prepare=session.prepare,
        scores=selection.scores,
        support=selection.support,
        feature_names=selection.feature_names,
        weights=selection.weights,
        singular_values=np.sqrt(squares),
        shrinkage=float(sketch.shrinkage),
        squared_norm=float(sketch.centered_squared_norm),
        cluster_weights=None if clustering is None else _sizes(clustering),
        points=points,
        point_labels=labels,
        centres_2d=None if evaluation is None else view_of(summary).project(evaluation.means),
        image_shape=session.config.output.image_shape,
        certificates=[
            CertificateRecord(
                c.method,
                c.factor,
                c.lower_bound,
                c.objective,
                None if c.confidence == 1 else c.confidence,
                c.sentence(),
            )
            for c in certificates
        ],
        known_labels=None
        if agreement is None
        else KnownLabels(
            agreement.table,
            agreement.classes,
            agreement.nmi,
            agreement.ari,
            agreement.nmi_all_columns,
            agreement.ari_all_columns,
        ),
        stages=[StageRecord(s["name"], s["seconds"], s.get("bytes_read")) for s in session.stages],
        versions=content["versions"],
        settings={"seeds": content["seeds"], "engine": content["engine"], "memory": content["memory"]},
        notes=session.notes,
        job_text=(GIVEN if session.columns_given else "") + job_toml(session.config),
    )


def _sizes(clustering: Clustering) -> list[int]:
    there = clustering.labels[clustering.labels >= 0]
    return [int(n) for n in np.bincount(there, minlength=clustering.centers.shape[0])]
