"""Report of a finished run: one self-contained HTML page made from a `RunRecord`."""

from __future__ import annotations

from sketchselect.report.records import (
    Agreement,
    ClusterCountRecord,
    ComparedRecord,
    ModelRecord,
    RunRecord,
    StageRecord,
    TimelineRecord,
)

__all__ = [
    "Agreement",
    "ClusterCountRecord",
    "ComparedRecord",
    "ModelRecord",
    "RunRecord",
    "StageRecord",
    "TimelineRecord",
    "render",
]


def render(record: RunRecord) -> str:
    """Draw the report page of a run.

    Same record, same bytes (for one version of the drawing library). The page loads nothing, runs one script, that of
    the package, and stays below 600 kB whatever the size of the matrix; text from outside is escaped and shortened.

    Parameters
    ----------
    record : RunRecord
        The run.

    Returns
    -------
    str
        A complete HTML document; write it as UTF-8.
    """
    # Drawing takes a second of imports that only this function needs.
    from sketchselect.report.page import render_page

    return render_page(record)
