"""Line chart of the ranks of the columns that rose and fell the most, along the rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from sketchselect.linalg.arrays import Floats
from sketchselect.report import drawing
from sketchselect.report.records.timeline import TimelineRecord
from sketchselect.report.text import as_numbers, clean, count

_DOTS_UNTIL = 40


def timeline_section(record: TimelineRecord) -> Mapping[str, Any]:
    """Return the content of the page's section on the timeline."""
    ranks = as_numbers(record.ranks).reshape(len(np.asarray(record.rows)), -1)[:, : drawing.N_COLOURS]
    moves = [(j, clean(name), _move(ranks[:, j])) for j, name in enumerate(record.names[: drawing.N_COLOURS])]
    return {
        "sentence": _sentence(record),
        "svg": Markup(_draw(record, ranks)) if moves else None,
        "risen": moves[: record.n_risen],
        "fallen": moves[record.n_risen :],
        "caption": _caption(record),
    }


def _sentence(record: TimelineRecord) -> str:
    points = len(np.asarray(record.rows))
    text = f"The selection was repeated at {count(points)} point{'s' if points != 1 else ''} along the rows"
    if record.window is not None:
        text += f", each time from the last {count(record.window)} rows (rounded up to whole partitions)"
    else:
        text += ", each time from all rows up to that point"
    if record.half_life is not None:
        text += f", where the weight of a row halves every {count(record.half_life)} rows"
    always, ever = record.n_always, record.n_ever
    return (
        f"{text}. {count(ever)} column{'s were' if ever != 1 else ' was'} selected at some point, "
        f"{count(always)} of them at every point."
    )


def _caption(record: TimelineRecord) -> str:
    return (
        "Rank 1 is the highest score. Where the method takes the highest scores, the columns above the dashed line are "
        "selected. Rises and falls are from the first point to the last, in halvings and doublings of the rank."
    )


def _draw(record: TimelineRecord, ranks: Floats) -> str:
    rows = as_numbers(record.rows)
    chosen = as_numbers(record.n_selected)
    figure, (axes,) = drawing.new_figure(300)
    axes.set_yscale("log")
    lowest = float(np.nanmax(ranks)) if np.isfinite(ranks).any() else 1.0
    axes.set_ylim(1.35 * max(lowest, float(chosen.max())), 0.75)
    left, right = float(rows.min()), float(rows.max())
    margin = 0.03 * (right - left) or 0.5
    axes.set_xlim(left - margin, right + margin)
    axes.plot(rows, np.maximum(chosen, 0.5) + 0.5, color=drawing.INK, linewidth=0.9, dashes=(3, 2))
    for j in range(ranks.shape[1] - 1, -1, -1):  # what moved most lies on top
        colour = drawing.cluster_colour(j)
        axes.plot(
            rows, ranks[:, j], color=colour, linewidth=1.4, linestyle="-" if j < record.n_risen else (0, (5, 1.5))
        )
        known = np.isfinite(ranks[:, j])
        if len(rows) <= _DOTS_UNTIL:
            drawing.draw_dots(axes, np.column_stack([rows, ranks[:, j]])[known], colour, 3.0)
    axes.set_xlabel("rows so far" if record.window is None else "last row of the window")
    axes.set_ylabel("rank of the column")
    drawing.plain_ticks(axes.xaxis, log=False, whole=True)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if lowest < 200 else (1.0,), numticks=12))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _position: count(float(value))))
    return drawing.to_svg(figure, "timeline", "Line chart of the ranks of columns along the rows")


def _move(ranks: Floats) -> str:
    """Return the first and the last known rank."""
    known = ranks[np.isfinite(ranks)]
    return f"{count(known[0])} → {count(known[-1])}" if known.size else ""
