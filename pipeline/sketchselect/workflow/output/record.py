"""Record of a run, from which the report page is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np

from sketchselect.job.load import job_toml
from sketchselect.linalg.arrays import Floats
from sketchselect.report import RunRecord, StageRecord
from sketchselect.summaries import ColumnStats, pick
from sketchselect.workflow.output.manifest import JobResults
from sketchselect.workflow.output.pages import MAX_SPECTRUM
from sketchselect.workflow.output.tables import plain_value
from sketchselect.workflow.stages.clustering import sizes
from sketchselect.workflow.stages.columns import sketch_of, view_of
from sketchselect.workflow.stages.session import Session

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
