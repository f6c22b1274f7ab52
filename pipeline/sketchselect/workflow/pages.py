"""The report page of a run: its record kept as ``report.json``, drawn as ``report.html``.

Record of a run, from which the report page is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from sketchselect.cluster import Certificate
from sketchselect.errors import DamagedFile, NotOurFolder, SourceError
from sketchselect.job.load import job_toml
from sketchselect.linalg.arrays import Floats
from sketchselect.report import (
    Agreement,
    ClusterCountRecord,
    ComparedRecord,
    ModelRecord,
    RunRecord,
    StageRecord,
    TimelineRecord,
    render,
)
from sketchselect.summaries import ColumnStats, pick
from sketchselect.workflow.folder import MARKER, OutputFolder, open_folder, sealed, unsealed
from sketchselect.workflow.session import Session
from sketchselect.workflow.stages.clustering import sizes
from sketchselect.workflow.stages.columns import sketch_of, view_of
from sketchselect.workflow.stages.evaluation import JobResults
from sketchselect.workflow.tables import plain_value

MAX_SPECTRUM = 512
"""Singular values shown."""

_RECORDS: dict[str, type[Any]] = {
    "model": ModelRecord,
    "timeline": TimelineRecord,
    "cluster_count": ClusterCountRecord,
    "known_labels": Agreement,
}


def publish_report(folder: OutputFolder, record: RunRecord) -> Path:
    """Write ``report.json``, the data of the page, and ``report.html``."""
    content = {**asdict(record), "certificates": [one.to_dict() for one in record.certificates]}
    folder.write("report.json", sealed(plain_value(content)))
    return folder.write("report.html", render(record))


def render_folder(path: Path) -> Path:
    """Draw ``report.html`` of an output folder again, from its ``report.json``.

    Raises `NotOurFolder` or `SourceError` or `DamagedFile` if there is nothing to draw it from.
    """
    if not path.is_dir():
        raise SourceError(f"{path}: no such folder")
    if not (path / MARKER).is_file():
        raise NotOurFolder(f"{path}: not an output folder of sketchselect; give the folder that a run wrote")
    source = path / "report.json"
    try:
        content = unsealed(source)
        record = record_of(content)
    except FileNotFoundError:
        if (path / "manifest.json").is_file():
            raise SourceError(f"{path}: the job had output.report = false; run it again with true") from None
        raise SourceError(f"{path}: no report.json: the run did not finish; run the job again to resume it") from None
    except (ValueError, TypeError, KeyError) as error:
        raise DamagedFile(f"{source}: damaged ({type(error).__name__}); run the job again") from None
    with open_folder(path) as folder:
        return folder.write("report.html", render(record))


def record_of(content: Mapping[str, Any]) -> RunRecord:
    """Return the record that `publish_report` wrote as JSON."""
    values = dict(content)
    values["scores"] = np.array([math.nan if v is None else v for v in values["scores"]], dtype=np.float64)
    values["stages"] = [StageRecord(**stage) for stage in values["stages"]]
    values["certificates"] = [Certificate.from_dict(entry) for entry in values["certificates"]]
    values["compared"] = [ComparedRecord(**entry) for entry in values["compared"]]
    for name, record_type in _RECORDS.items():
        if values[name] is not None:
            values[name] = record_type(**values[name])
    return RunRecord(**values)


PRESET = "# The columns came from a selection file; [select] only says what was summarised.\n\n"


def _profiles(results: JobResults) -> Floats | None:
    """Return the clusters' means in the selected columns less those of all rows, in standard deviations of all rows."""
    if results.evaluation is None:
        return None
    stats: Any = pick(results.summary, ColumnStats.kind)
    support, deviation = results.selection.support, np.sqrt(stats.variance)
    away = results.evaluation.means[:, support] - stats.mean[support]
    profiles: Floats = np.divide(away, deviation[support], out=np.zeros_like(away), where=deviation[support] > 0)
    return profiles


def run_record(session: Session, results: JobResults, content: dict[str, Any], seconds: float) -> RunRecord:
    """Return all that the report page shows; `seconds` since the run began."""
    summary, selection = results.summary, results.selection
    clustering, evaluation = results.clustering, results.evaluation
    sketch, view = sketch_of(summary), view_of(summary)
    points, labels = None, None
    if results.sample is not None and view is not None:
        rows = np.asarray(results.sample["rows"], np.int64)
        points = np.asarray(results.sample["points"], np.float64).reshape(-1, 2)
        labels = None if clustering is None else clustering.labels[rows]
    return RunRecord(
        title=session.matrix.address,
        n_rows=session.matrix.shape[0],
        n_columns=session.n_columns,
        n_dropped=session.matrix.shape[0] - pick(summary, ColumnStats.kind).n_rows,
        method=selection.method,
        method_parameters=content["selection"]["parameters"],
        prepare=[step.description for step in session.steps],
        scores=selection.scores,
        support=selection.support,
        feature_names=selection.feature_names,
        weights=selection.weights,
        diagnostics=plain_value(selection.diagnostics),
        model=None if results.model is None else results.model.record(),
        timeline=results.timeline,
        cluster_count=results.cluster_count,
        singular_values=None if sketch is None else np.sqrt(sketch.centered_directions.squares[:MAX_SPECTRUM]),
        shrinkage=0.0 if sketch is None else float(sketch.shrinkage),
        squared_norm=None if sketch is None else float(sketch.centered_squared_norm),
        cluster_weights=None if clustering is None else sizes(clustering),
        profiles=_profiles(results),
        points=points,
        point_labels=labels,
        centres_2d=None if evaluation is None or view is None else view.project(evaluation.means),
        image_shape=session.config.output.image_shape,
        centres=None if evaluation is None else evaluation.means,
        certificates=() if evaluation is None else evaluation.certificates,
        statements=[]
        if evaluation is None
        else [
            one.sentence() for one in (evaluation.selection_bound, evaluation.selected_certificate) if one is not None
        ],
        known_labels=None if evaluation is None else evaluation.agreement,
        compared=() if evaluation is None else evaluation.compared,
        stages=[
            StageRecord(one["name"], one["seconds"], one.get("bytes_read"), one.get("profile", {}))
            for one in session.stages
        ],
        seconds=seconds,
        versions=content["versions"],
        settings={"seeds": content["seeds"], "engine": content["engine"], "memory": content["memory"]},
        notes=session.notes,
        job_text=(PRESET if session.has_preset else "") + job_toml(session.config),
    )
