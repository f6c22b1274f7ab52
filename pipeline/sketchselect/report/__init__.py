"""Report of a finished run: one self-contained HTML page, drawn from the files of its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["drift_figure", "render"]


def render(manifest: Mapping[str, Any], selection: Mapping[str, Any], figures: Mapping[str, Any]) -> str:
    """Draw the report page of a run.

    Same content, same bytes (for one version of the drawing library). The page loads nothing, runs one script, that of
    the package, and stays below 600 kB whatever the size of the matrix; text from outside is escaped and shortened.

    Parameters
    ----------
    manifest : mapping
        The content of ``manifest.json``.
    selection : mapping
        That of ``selection.json``: `method`, `scores` (n_columns,), `support` (r,), `weights`, `feature_names`.
    figures : mapping
        That of ``report.json``; a section without data is left out. `job_text`: the job file that repeats the run.
        `prepare`: descriptions of the steps. `n_dropped`: rows left out for values that are not finite.
        `singular_values` of the sketch, descending, with `shrinkage` (the true squares lie in [s^2, s^2 + shrinkage])
        and `squared_norm` of the centred rows. `points` (m, 2): a sample of the rows on the top two directions, with
        `point_labels` and `centres_2d`. `centres` (k, n_columns): means of the clusters. `profiles` (k, r): the same
        less the mean of all rows, in standard deviations. `known_labels`: `table` of `classes` by clusters. `model`:
        see `workflow.stages.model.Model.figure`; `timeline` and `cluster_count`: see the stages that make them.

    Returns
    -------
    str
        A complete HTML document; write it as UTF-8.

    Raises
    ------
    BadParameter
        Two arrays contradict each other.
    """
    # Drawing takes a second of imports that only this function needs.
    from sketchselect.report.page import render_page

    return render_page(manifest, selection, figures)


def drift_figure(names: Sequence[str], days: Sequence[Mapping[str, Any]]) -> str:
    """Draw the shares of drift of several days, with their intervals and thresholds, as an SVG file.

    Parameters
    ----------
    names : sequence of str
        Name of each day.
    days : sequence of mapping
        `Drift.to_dict` of each day.

    Returns
    -------
    str
        A complete SVG document in the colours of the page, light or dark; write it as UTF-8.
    """
    from sketchselect.report.page import draw_file

    return draw_file(names, days)
