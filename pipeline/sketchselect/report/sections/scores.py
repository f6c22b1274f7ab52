"""Bar chart of the sorted column scores, with the cut and the selected columns marked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from sketchselect.linalg.arrays import Array, Floats
from sketchselect.report import drawing
from sketchselect.report.text import count

_BARS = 400  # more would be thinner than a pixel
_SEPARATE_BARS = 64
_ONE_PANEL = 200
_DEPTH = 1e-12  # scores below this share of the highest lie on the bottom of a logarithmic axis
_PANEL_POINTS = 272.0  # width of a panel in points, axis labels taken off
_MANY_DECADES = 300.0


@dataclass(frozen=True)
class Ranking:
    """Columns by falling score: `order` (columns without a score last), `values` in that order, `chosen` flags."""

    order: Array
    values: Floats
    chosen: Array
    n_scored: int

    @property
    def n_chosen(self) -> int:
        """Number of selected columns."""
        return int(self.chosen.sum())

    @property
    def is_order(self) -> bool:
        """Whether the scores of the selected columns only count down in the order of their choice."""
        chosen = self.values[: self.n_chosen]
        return chosen.size > 2 and self.by_score and bool((np.diff(chosen) == -1).all())

    @property
    def by_score(self) -> bool:
        """Whether the selected columns are exactly the ones with the highest scores."""
        return bool(self.chosen[: self.n_chosen].all())


def rank(scores: Floats, support: Array) -> Ranking:
    """Return the columns by falling score; ties by lowest column, columns without a finite score last."""
    finite = np.isfinite(scores)
    order = np.lexsort((np.arange(len(scores)), -np.where(finite, scores, 0.0), ~finite))
    chosen = np.zeros(len(scores), dtype=bool)
    chosen[support] = True
    return Ranking(order, scores[order], chosen[order], int(finite.sum()))


def draw_scores(ranking: Ranking) -> str:
    """Return the SVG: all columns, and below them the neighbourhood of the cut where it would be too narrow to see."""
    n, r = ranking.n_scored, ranking.n_chosen
    zoom = max(2 * r, 20)
    panels = [n] if n <= max(2 * zoom, _ONE_PANEL) or r == 0 else [n, zoom]
    figure, axes = drawing.new_figure(270 if len(panels) == 1 else 400, [1.0] * len(panels))
    for ax, shown in zip(axes, panels, strict=True):
        _draw_panel(ax, ranking, shown)
    axes[-1].set_xlabel("rank of the column (1 = highest score)")
    if len(panels) == 2:
        axes[0].set_title("all columns", loc="left")
        axes[1].set_title(f"the first {count(zoom)} of them", loc="left")
    label = f"Bar chart of {count(n)} feature scores in falling order; {count(r)} selected columns are marked"
    return drawing.to_svg(figure, "scores", label)


def _draw_panel(axes: Axes, ranking: Ranking, shown: int) -> None:
    values, chosen = ranking.values[:shown], ranking.chosen[:shown]
    edges = np.linspace(0, shown, min(shown, _BARS) + 1).round().astype(int)
    middle = (edges[:-1] + 1 + edges[1:]) / 2
    high = np.maximum.reduceat(values, edges[:-1])
    low = np.minimum.reduceat(values, edges[:-1])
    high = np.where(np.abs(low) > np.abs(high), low, high)
    # A bar stands for several columns where there are many; it is marked to the height of its highest selected one.
    marked = np.maximum.reduceat(np.where(chosen, values, -np.inf), edges[:-1])
    has = np.isfinite(marked)
    positive = values[values > 0]
    log = bool(positive.size > 1 and values.min() >= 0 and positive[0] > _MANY_DECADES * np.median(positive))
    base = 0.8 * max(float(positive[-1]), _DEPTH * float(positive[0])) if log else 0.0
    filled = 0.82 if len(middle) <= _SEPARATE_BARS else 1.03  # many bars touch: gaps of half a pixel only flicker
    width = min(14.0, filled * _PANEL_POINTS / len(middle))
    floor = np.full(len(middle), base)
    drawing.draw_bars(axes, middle, floor, np.maximum(high, base) if log else high, drawing.OTHER, width)
    drawing.draw_bars(axes, middle[has], floor[has], np.maximum(marked[has], base), drawing.ACCENT, width)

    top, bottom = float(values.max(initial=0.0)), float(values.min(initial=0.0))
    if log:
        axes.set_yscale("log")
        axes.set_ylim(base, 1.5 * top)
    else:
        pad = 0.06 * (top - bottom) or 0.5
        axes.set_ylim(bottom - pad if bottom < 0 else 0.0, top + pad)
    axes.set_xlim(0.5 - 0.01 * shown, shown * 1.01 + 0.5)
    r = ranking.n_chosen
    if ranking.by_score and 0 < r < shown:
        axes.axvline(r + 0.5, color=drawing.INK, linewidth=0.9, dashes=(3, 2))
        axes.annotate(
            f"cut after {count(r)}",
            (r + 0.5, 0.97),
            (4 if r < 0.6 * shown else -4, 0),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="left" if r < 0.6 * shown else "right",
            va="top",
        )
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("score")
    drawing.plain_ticks(axes.xaxis, log=False, whole=True)
    drawing.plain_ticks(axes.yaxis, log=log, bins=5)


def describe_scores(ranking: Ranking) -> str:
    """Return the caption: the relation of the selection to the scores, and the meaning of a bar."""
    n, r, d = ranking.n_scored, ranking.n_chosen, len(ranking.values)
    text = []
    if n and ranking.values[0] == ranking.values[n - 1] and n > 1:
        text.append("All scores are equal, so they do not rank the columns.")
    if r == d:
        text.append("Every column is selected.")
    elif ranking.by_score:
        text.append(f"The {count(r)} columns with the highest score are selected; ties go to the lowest column.")
    else:
        inside = int(ranking.chosen[:r].sum())
        text.append(
            f"The columns were chosen as a set that avoids redundancy: {count(inside)} of the {count(r)} selected are "
            f"also among the {count(r)} with the highest score."
        )
    if n > _BARS:
        text.append(
            f"Where all {count(n)} columns are shown, one bar stands for about {count(round(n / _BARS))} of them."
        )
    if n < d:
        text.append(
            "One column has no score and is left out of the figure."
            if d - n == 1
            else f"{count(d - n)} columns have no score and are left out of the figure."
        )
    return " ".join(text)
