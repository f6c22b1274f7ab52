"""Line charts of objective, lower bound and stability against the number of clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup

from sketchselect.linalg.arrays import Floats
from sketchselect.report import drawing
from sketchselect.report.records.n_clusters import ClusterCountRecord
from sketchselect.report.text import NOTE_LENGTH, as_numbers, clean, count

_DOTS_UNTIL = 60


def cluster_count_section(record: ClusterCountRecord) -> Mapping[str, Any]:
    """Return the content of the page's section on the number of clusters."""
    return {
        "sentence": clean(record.sentence, NOTE_LENGTH),
        "svg": Markup(_draw(record)),
        "caption": (
            "Above: the objective of the best clustering over all rows, and the lower bound for any clustering into "
            "that many clusters, as shares of the highest objective shown. Below: the agreement of clusterings from "
            f"{count(record.n_seeds)} seeds (mean adjusted Rand index on {count(record.n_sampled)} rows); 1 is "
            "complete agreement."
            + ("" if record.recommended is None else " The dotted line marks the recommended number.")
            + ("" if record.used is None else f" This run used {count(record.used)}.")
        ),
    }


def _draw(record: ClusterCountRecord) -> str:
    ks, objective, bound = (as_numbers(a) for a in (record.n_clusters, record.objectives, record.lower_bounds))
    stable = as_numbers(record.stability)
    figure, (above, below) = drawing.new_figure(360, (1.6, 1.0))
    top = float(np.nanmax(objective, initial=0.0))
    scale = top if np.isfinite(top) and top > 0 else 1.0
    _line(above, ks, objective / scale, drawing.ACCENT, "best clustering")
    _line(above, ks, bound / scale, drawing.MUTED, "lower bound")
    above.set_ylim(0, 1.08)
    above.set_ylabel("objective")
    above.legend(loc="upper right")
    _line(below, ks, stable, drawing.ACCENT, "agreement")
    below.set_ylim(min(0.0, float(np.nanmin(stable, initial=0.0))), 1.08)
    below.set_ylabel("agreement")
    below.set_xlabel("number of clusters")
    margin = 0.03 * float(ks.max() - ks.min()) or 0.5
    for axes in (above, below):
        axes.set_xlim(float(ks.min()) - margin, float(ks.max()) + margin)
        drawing.plain_ticks(axes.xaxis, log=False, whole=True, bins=10)
        drawing.plain_ticks(axes.yaxis, log=False)
        if record.recommended is not None:
            axes.axvline(record.recommended, color=drawing.INK, linewidth=0.9, dashes=(1, 2))
    return drawing.to_svg(
        figure, "cluster-count", f"Line charts of objective and agreement for {len(ks)} numbers of clusters"
    )


def _line(axes: Any, x: Floats, y: Floats, colour: str, label: str) -> None:
    axes.plot(x, y, color=colour, linewidth=1.2, label=label)
    if len(x) <= _DOTS_UNTIL:
        drawing.draw_dots(axes, np.column_stack([x, y])[np.isfinite(y)], colour, 3.2)
