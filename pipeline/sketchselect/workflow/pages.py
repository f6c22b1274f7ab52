"""The report page of a run, drawn from the manifest, the selection and the figures in its folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sketchselect.errors import DamagedFile, NotOurFolder, SourceError
from sketchselect.job.load import job_toml
from sketchselect.linalg.validation import Floats
from sketchselect.report import render
from sketchselect.selectors import Selection
from sketchselect.summaries import ColumnStats, pick
from sketchselect.workflow.folder import MARKER, OutputFolder, open_folder, parsed, read_manifest, sealed, unsealed
from sketchselect.workflow.session import Session
from sketchselect.workflow.stages.columns import sketch_of, view_of
from sketchselect.workflow.stages.evaluation import JobResults
from sketchselect.workflow.tables import plain_value

MAX_SPECTRUM = 512
"""Singular values shown."""

FILE = "report.json"
"""Name of the file with the page's data that are in neither manifest nor selection."""

PRESET = "# The columns came from a selection file; [select] only describes the summary.\n\n"


def publish_report(folder: OutputFolder, content: Mapping[str, Any], selection: Selection, figures: Any) -> None:
    """Write ``report.json``, the page's own data, and ``report.html``."""
    folder.write(FILE, sealed(plain_value(figures)))
    folder.write("report.html", render(content, selection.to_dict(), figures))


def draw_again(folder: OutputFolder, content: Mapping[str, Any]) -> Path:
    """Write ``report.html`` from a manifest's content, and the selection and figures that lie in the folder.

    Raises `DamagedFile` where one is missing or damaged.
    """
    source = folder.path / FILE
    try:
        figures = unsealed(source)
        source = folder.path / "selection.json"
        selection = parsed(source.read_text(encoding="utf-8"))
        source = folder.path / FILE
        page = render(content, selection, figures)
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise DamagedFile(f"{source}: damaged ({type(error).__name__}); run the job again") from None
    return folder.write("report.html", page)


def render_folder(path: Path) -> Path:
    """Draw ``report.html`` of an output folder again.

    Raises `NotOurFolder` or `SourceError` or `DamagedFile` if there is nothing to draw it from.
    """
    if not path.is_dir():
        raise SourceError(f"{path}: no such folder")
    if not (path / MARKER).is_file():
        raise NotOurFolder(f"{path}: not an output folder of sketchselect; give the folder that a run wrote")
    content = read_manifest(path, dict)
    if not (path / FILE).exists():
        raise SourceError(f"{path}: the job had output.report = false; run it again with true")
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
    """Return the content of ``report.json``; see `sketchselect.report.render`."""
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
        figures["singular_values"] = np.sqrt(sketch.centered_directions.squares[:MAX_SPECTRUM]).tolist()
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
