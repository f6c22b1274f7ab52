"""Scatter plot of a sample of the rows on the two strongest directions, coloured by cluster."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from sketchselect.linalg.arrays import Array, Floats
from sketchselect.report import drawing
from sketchselect.report.text import count

MAX_POINTS = 6000
_MAX_NUMBERED = 30
_PATHS = 60  # clusters are drawn in turns, so that the last one does not cover the others


def draw_scatter(points: Floats, labels: Array | None, centres: Floats | None) -> str:
    """Return the SVG of at most `MAX_POINTS` points, evenly taken, with the number of each cluster at its centre."""
    keep = np.isfinite(points).all(axis=1)
    points = points[keep]
    labels = np.full(len(points), -1) if labels is None else labels[keep]
    if len(points) > MAX_POINTS:
        chosen = np.linspace(0, len(points) - 1, MAX_POINTS).round().astype(int)
        points, labels = points[chosen], labels[chosen]
    clusters = np.unique(labels[labels >= 0])

    figure, (axes,) = drawing.new_figure(360)
    size = float(np.clip(90 / np.sqrt(max(len(points), 1)), 1.7, 4.5))
    plain = drawing.ACCENT if clusters.size == 0 else drawing.OTHER
    drawing.draw_dots(axes, points[labels < 0], plain, size, 0.7)
    members = [(int(c), points[labels == c]) for c in clusters]
    turns = max(1, _PATHS // max(1, len(members)))
    for turn in range(turns):
        for cluster, rows in members:
            drawing.draw_dots(axes, rows[turn::turns], drawing.cluster_colour(cluster), size, 0.75)
    # A palette has ten colours, and not everybody sees them all: the number is what identifies a cluster.
    if centres is None:
        places = [(c, np.median(rows, axis=0)) for c, rows in members]
    else:
        places = [(c, centre) for c, centre in enumerate(centres) if np.isfinite(centre).all()]
    places = places[:_MAX_NUMBERED]
    if places and clusters.size:
        spots = np.array([place for _, place in places])
        drawing.draw_dots(axes, spots, drawing.CARD, 13.0, 0.85)
        for cluster, (x, y) in places:
            axes.annotate(str(cluster), (float(x), float(y)), ha="center", va="center", fontweight="bold")
        shown = np.vstack([points, spots])
    else:
        shown = points
    _limits(axes, shown)
    axes.set_xlabel("direction 1 (unit of the data)")
    axes.set_ylabel("direction 2 (unit of the data)")
    drawing.plain_ticks(axes.xaxis, log=False)
    drawing.plain_ticks(axes.yaxis, log=False)
    groups = f"in {clusters.size} clusters" if clusters.size else "not clustered"
    return drawing.to_svg(figure, "scatter", f"Scatter plot of {count(len(points))} rows on two directions, {groups}")


def _limits(axes: Axes, shown: Floats) -> None:
    low, high = (shown.min(axis=0), shown.max(axis=0)) if len(shown) else (np.zeros(2), np.ones(2))
    pad = 0.05 * (high - low)
    pad[pad == 0] = 0.5
    axes.set_xlim(float(low[0] - pad[0]), float(high[0] + pad[0]))
    axes.set_ylim(float(low[1] - pad[1]), float(high[1] + pad[1]))


def describe_scatter(n_points: int, n_rows: int, n_clusters: int) -> str:
    """Return the caption: the rows that are shown, and the meaning of the numbers."""
    drawn = min(n_points, MAX_POINTS)
    which = f"All {count(n_rows)} rows." if drawn >= n_rows else f"{count(drawn)} of the {count(n_rows)} rows."
    if n_clusters == 0:
        return which
    numbers = " A number marks the centre of the cluster with that number."
    if n_clusters > _MAX_NUMBERED:
        numbers = f" A number marks the centre of the cluster with that number, for the first {_MAX_NUMBERED} clusters."
    repeat = " Colours repeat after ten." if n_clusters > drawing.N_COLOURS else ""
    return which + numbers + repeat
