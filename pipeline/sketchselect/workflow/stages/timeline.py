"""The stage that follows the importance of columns along the rows: ``timeline.csv``, and the figure in the report."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect.job.load import estimator
from sketchselect.job.schema import TimelineSettings
from sketchselect.selectors.timelines import Timeline, timeline_of, unfilled_window, window_of
from sketchselect.workflow import tables
from sketchselect.workflow.session import Session

TIMELINE_FILE = "timeline.csv"
MAX_LISTED = 2000
"""Columns in the table."""

MAX_SHOWN = 5
"""Columns that rose, and as many that fell, in the figure."""


def timeline(session: Session, settings: TimelineSettings) -> dict[str, Any]:
    """Publish ``timeline.csv``; return its part of the report.

    One pass, whose partitions' states stay in the checkpoint: after rows were appended only new partitions are read.
    """
    # An unfitted selector, since tasks carry it: the session's has been fitted.
    selector = estimator(session.config, session.target)
    periods, dates = session.periods, session.date_vector()
    window = window_of(selector, settings.window, by_date=periods is not None)
    fingerprint = session.source_fingerprint(
        method=selector.method,
        parameters=tables.plain_value(selector.get_params()),
        timeline=settings.model_dump(mode="json"),
        target=session.target_fingerprint,
        **({} if dates is None else {"dates": dates.identity()}),
    )
    if (remark := unfilled_window(window, session.matrix.shape[0], periods)) is not None:
        session.note(remark)
    with session.stage("timeline") as entry:
        if not session.reusable("timeline", fingerprint, entry):
            result = timeline_of(
                session.selection_source,
                selector,
                session.pass_options.but(on_statistics=lambda stats: session.add_statistics(entry, stats)),
                window=window,
                points=settings.points,
                periods=periods,
            )
            session.require_unchanged()
            entry["n_points"] = len(result.rows)
            figure = figure_of(result, window, getattr(selector, "half_life", None))
            entry["record"] = tables.plain_value(figure | ({} if periods is None else {"period": settings.period}))
            session.folder.write(TIMELINE_FILE, timeline_csv(result))
            session.folder.finish("timeline", fingerprint, [TIMELINE_FILE], entry)
        record: dict[str, Any] = entry.pop("record")
    return record


def timeline_csv(timeline: Timeline) -> str:
    """Return columns that were ever selected, at every point, as CSV: rows, column, name, score, rank, selected, date.

    Of more than `MAX_LISTED` columns the ones whose rank changed most are listed. Names that a spreadsheet would
    run are disarmed.
    """
    dates = None if timeline.dates is None else list(map(str, timeline.dates))
    lines: list[list[Any]] = [["first_row", "end_row", "column", "name", "score", "rank", "selected"]]
    if dates is not None:
        lines[0].append("date")
    names, columns = timeline.feature_names, listed_columns(timeline).tolist()
    for t, (start, stop) in enumerate(zip(timeline.starts.tolist(), timeline.rows.tolist(), strict=True)):
        for j in columns:
            name = "" if names is None else tables.disarmed(names[j])
            score = float(timeline.scores[t, j])
            values = ["", ""] if np.isnan(score) else [repr(score), int(timeline.ranks[t, j])]
            date = [] if dates is None else [dates[t]]
            lines.append([start, stop, j, name, *values, int(timeline.selected[t, j]), *date])
    return tables.csv_text(lines)


def listed_columns(timeline: Timeline) -> NDArray[np.int64]:
    """Return the columns of the table, ascending."""
    ever = np.flatnonzero(timeline.selected.any(axis=0))
    farthest = np.argsort(-np.abs(timeline.rises[ever]), kind="stable")[:MAX_LISTED]
    return np.sort(ever[farthest])


def figure_of(timeline: Timeline, window: int | None = None, half_life: float | None = None) -> dict[str, Any]:
    """Return the content of the report's figure.

    `rows` (n_points,): index after the last row of each point. `n_selected` (n_points,), `n_ever`, `n_always`: columns
    selected at each point, at any point and at all points. `names`: the `n_risen` columns that rose most, then the
    columns that fell most. `ranks` (n_points, n_names): 1 for the best score, NaN without scores. `dates` (n_points,):
    first days of the last periods, as text; only where points are periods.
    """
    risen, fallen = timeline.risers(MAX_SHOWN), timeline.fallers(MAX_SHOWN)
    columns = np.concatenate([risen, fallen])
    unknown: NDArray[np.bool_] = np.asarray(np.isnan(timeline.scores).all(axis=1))
    names = timeline.feature_names
    return {
        "rows": timeline.rows,
        "n_selected": [support.size for support in timeline.supports],
        "n_ever": int(timeline.selected.any(axis=0).sum()),
        "n_always": int(timeline.selected.all(axis=0).sum()),
        "names": [f"column {j}" if names is None else names[j] for j in columns.tolist()],
        "n_risen": len(risen),
        "ranks": np.where(unknown[:, None], np.nan, timeline.ranks[:, columns]),
        "window": window,
        "half_life": half_life,
        **({} if timeline.dates is None else {"dates": list(map(str, timeline.dates))}),
    }
