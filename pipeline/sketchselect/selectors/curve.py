"""The objective in all columns against the number of selected columns, estimated from a sample of rows."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect._text import Tabular
from sketchselect.linalg.csr import take_columns
from sketchselect.linalg.hashing import derive_seed, gaussians
from sketchselect.linalg.kmeans.sample import POLISH_ITERATIONS, POLISH_TOL, WeightedRows, row_products
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import Floats, Labels, is_csr
from sketchselect.plots import SelectionCurveDisplay
from sketchselect.selectors.base import Selection
from sketchselect.summaries import CentroidSums, RowSample

Columns = NDArray[np.int64]

_RATIO = "inertia in all columns, relative to k-means on all columns"
STARTS = 3  # Of k-means on columns that are looked at, for what the best of ten costs and how much that differs
ALL_STARTS = 10  # On columns that are chosen, and of several methods near one another: as many as a run has
MOST_STARTS = 20  # On all columns, whose clusters all ratios share
CHEAP_FLOPS = 1e8  # Largest work (flops) for which they are made on columns that are looked at, too
BASELINE_FLOPS = 2.5e9  # The same on all columns
CALL_OVERHEAD_COLUMNS = 64  # The cost of a call, as columns that are added to those of the rows
ROUNDING = 1e-12  # Share of the sum of squares below which an objective is rounding: every distinct row has a cluster
COARSE_TOL = 3e-4  # Starts are compared once an iteration lowers the cost by less than this share; the best goes on
# Of a single start that stands for a whole run: with 3e-5 it ended on plateaus, 5 % from where runs ended.
MAX_ITER, TOL = 100, 1e-5
PROJECTED = 64  # Dimensions in which starts are chosen and compared, if there are more columns


@dataclass(frozen=True)
class SampledClusters:
    """The clusters of sampled rows on some columns."""

    labels: Labels
    costs: Floats  # shape (n_sampled,): Squared distance of each row to the mean of its cluster, in all columns
    # Variance of the logarithm of the objective in all columns, between the best ones of ten starts, as it would be if
    # either side of the mean were like that below, and like that above
    below: float
    above: float
    objective: float  # Geometric mean of that objective
    # The same, to means of the half of the sample that the row is not in, clustered without it
    unseen: float
    starts: tuple[tuple[float, Labels], ...] = ()  # Cost on the columns, and labels, of every start
    halves: tuple[Labels, ...] = ()  # Clusters of all rows by the even rows, and by the odd ones

    @property
    def spread(self) -> float:
        """Variance of the logarithm of the objective."""
        return (self.below + self.above) / 2.0


class Coreset:
    """Sampled rows that stand for all: k-means on any of their columns, and its costs in all columns.

    `sample`: Uniform or by distance from a centre; sums by its weights are unbiased.
    """

    def __init__(self, sample: RowSample, n_clusters: int, seed: int) -> None:
        self.weights = sample.weights
        # Far from the origin products would cancel.
        self.sampled = self.rows = WeightedRows(sample.rows, sample.weights).centered()[0]
        if is_csr(sample.rows):
            # Columns without an entry add nothing to any cost; the first column stays, so that one is left.
            used = np.unique(np.append(sample.rows.indices, 0))
            self.rows = replace(self.rows, rows=take_columns(sample.rows, used))
        # Within 2^+-20 float32 needs no scaling. Beyond, products would overflow or vanish, so rows are scaled by a
        # power of two, undone in the results.
        values = self.rows.rows.data if is_csr(self.rows.rows) else self.rows.rows
        # The power of two of subnormal numbers would overflow.
        exponent = max(int(np.frexp(max(values.max(initial=0.0), -values.min(initial=0.0)))[1]), -1000)
        self.unit = 1.0
        if abs(exponent) > 20:
            self.unit, scale = float(np.ldexp(1.0, 2 * exponent)), float(np.ldexp(1.0, -exponent))
            self.rows = replace(self.rows, rows=self.rows.rows * scale)
            self.sampled = replace(self.sampled, rows=self.sampled.rows * scale)
        rows = self.rows.rows
        n_rows, n_columns = rows.shape
        self.n_clusters = min(n_clusters, n_rows)
        self.squares = row_products(rows, rows)
        total = rows.T @ self.weights
        self.scatter = self.unit * float(self.weights @ self.squares - total @ total / self.weights.sum())
        self.drawn = 1.0 - sample.probabilities
        self.is_complete = not self.drawn.any()
        self.seed = seed
        self.short = self.rows
        if n_columns > PROJECTED:
            draws = gaussians(derive_seed(seed, "curve", "projection"), (min(n_rows, n_columns), PROJECTED))
            if n_rows < n_columns:
                draws = rows.T @ draws
            self.short = self.rows.along(rows @ draws)

    def clustered(self, columns: Columns | None = None, before: SampledClusters | None = None) -> SampledClusters:
        """Return the clusters of the best start that is drawn on these columns (None: on all).

        A few starts, and after those of `before`, of the same columns, as many as a run has. Which of them is the best
        of ten, the cost on these columns decides, as in a run that knows no others.
        """
        if before is not None and len(before.starts) >= ALL_STARTS:
            return before
        # Starts are compared where rows are short.
        if columns is None:
            whole, points, work, most = self.rows.single(), self.short, BASELINE_FLOPS, MOST_STARTS
        else:
            whole = points = self.sampled.single(columns)
            if columns.size > PROJECTED >= self.short.rows.shape[1]:
                points = whole.along(self.short.rows)
            work, most = CHEAP_FLOPS if before is None else np.inf, ALL_STARTS
        n_rows, n_columns = points.rows.shape
        flops = 2.0 * n_rows * (n_columns + CALL_OVERHEAD_COLUMNS) * self.n_clusters * POLISH_ITERATIONS
        n_starts = int(np.clip(work / flops, STARTS, most))
        known, points = () if before is None else before.starts, points.dense()
        seeds = (derive_seed(self.seed, "curve", start) for start in range(len(known), n_starts))
        drawn = points.starts(self.n_clusters, seeds)
        ends = (points.clusters(centers, POLISH_ITERATIONS, COARSE_TOL) for centers in drawn)
        starts = (*known, *((cost, labels) for cost, _, labels in ends))
        best = min(range(len(starts)), key=lambda start: starts[start][0])
        if before is not None and best < len(known):
            # Further starts were no better: the clusters stay, and only their number tells more.
            return self._costs_of(before.labels, best, starts, before.halves)
        labels = self._refined(points, starts[best][1])[1]
        if whole is not points:
            # Where rows are long, the end of a run takes too long.
            labels = whole.clusters(whole.means([labels], self.n_clusters)[0][0], POLISH_ITERATIONS, POLISH_TOL)[2]
        return self._costs_of(labels, best, starts, self._halves(points, labels))

    def clustered_from(self, labels: Labels, columns: Columns) -> SampledClusters:
        """Return the clustering on these columns at which k-means ends from the means of other clusters."""
        points = self.sampled.single(columns)
        start = self._refined(points, labels)
        return self._costs_of(start[1], 0, (start,), self._halves(points, start[1]))

    def _refined(self, points: WeightedRows, labels: Labels) -> tuple[float, Labels]:
        cost, _, labels = points.clusters(points.means([labels], self.n_clusters)[0][0], MAX_ITER, TOL)
        return cost, labels

    def _costs_of(
        self, labels: Labels, best: int, starts: tuple[tuple[float, Labels], ...], parts: tuple[Labels, ...]
    ) -> SampledClusters:
        """Return clusters, refined from those of the best start, and their costs."""
        k, ends = self.n_clusters, [start for _, start in starts]
        totals, norms, cross_norms, products = self.rows.mean_products([*ends, labels, *parts], 2 * k, len(ends))
        # The objective is the sum of squares less that of the means.
        square = float(self.weights @ self.squares)
        objectives = (square - (totals * norms).sum(axis=1))[: len(ends)]
        costs: Floats = np.maximum(self.squares - 2.0 * products + norms[len(ends)][labels], 0.0)
        if self.weights @ costs <= square * ROUNDING:
            costs = np.zeros_like(costs)
        objective = float(self.weights @ costs)
        unseen = square if parts else objective
        if parts:
            halves = slice(0, k), slice(k, None)
            for part, own, other in ((-2, *halves), (-1, *halves[::-1])):
                unseen += float(totals[part, other] @ (norms[part, own] - 2.0 * cross_norms[part]))
            unseen = max(unseen, 0.0)
        mean, below, above = 0.0, 0.0, 0.0
        if objectives.min() > square * ROUNDING:
            mean, below, above = best_of_starts(np.array([cost for cost, _ in starts]), np.log(objectives))
            mean -= float(np.log(objectives[best]))
        level = self.unit * float(np.exp(mean))
        below, above = START_FACTOR * below, START_FACTOR * above
        return SampledClusters(
            labels, self.unit * costs, below, above, level * objective, level * unseen, starts, parts
        )

    def _halves(self, points: WeightedRows, labels: Labels) -> tuple[Labels, ...]:
        """Return the clusters of all rows by the even rows, which are clustered alone, and by the odd ones.

        A cluster is one of the even rows, or k later one of the odd ones. None are needed if these are all rows.
        """
        if self.is_complete:
            return ()
        even = np.arange(labels.size) % 2 == 0
        halves = [np.where(even, labels, -1), np.where(even, -1, labels)]
        nearest = []
        for start, first in zip(points.means(halves, self.n_clusters)[0], (0, 1), strict=True):
            half = WeightedRows(points.rows[first::2], self.weights[first::2])
            nearest.append(points.assign(half.clusters(start, POLISH_ITERATIONS, COARSE_TOL)[1]))
        return tuple(near + self.n_clusters * ~even for near in nearest)


def best_of_starts(costs: Floats, values: Floats) -> tuple[float, float, float]:
    """Return the mean of the values of the starts of least cost among ten that are drawn from these, and its variances.

    These are twice the mean squares of what is below the mean, and above it: their mean is the variance. Of m starts
    the i-th best one is the best of ten with probability ((m - i + 1) / m)^10 - ((m - i) / m)^10.

    Examples
    --------
    >>> import numpy as np
    >>> mean, below, above = best_of_starts(np.array([3.0, 1.0]), np.array([1.0, 0.0]))
    >>> mean == 0.5**10, round((below + above) / (2.0 * 0.5**10 * (1 - 0.5**10)), 12), below < above
    (True, 1.0, True)
    """
    left = np.linspace(1.0, 0.0, len(costs) + 1) ** ALL_STARTS
    probabilities, values = left[:-1] - left[1:], values[np.argsort(costs, kind="stable")]
    mean = float(probabilities @ values)
    below, above = np.minimum(values - mean, 0.0), np.maximum(values - mean, 0.0)
    return mean, 2.0 * float(probabilities @ below**2), 2.0 * float(probabilities @ above**2)


def cluster_means(sample: RowSample, n_clusters: int, seed: int, labels: Labels | None = None) -> Floats | None:
    """Return the means, in all columns, of clusters of sampled rows; None if there are fewer clusters.

    `labels`: Of the clusters, if known.
    """
    if sample.n_kept < n_clusters:
        return None
    if labels is None:
        with one_blas_thread():
            labels = Coreset(sample, n_clusters, seed).clustered().labels
    sums = CentroidSums(n_clusters).from_block(sample.rows, labels, sample_weight=sample.weights)
    return sums.cluster_means if (sums.cluster_weights > 0).all() else None


Z = 1.96  # Standard errors on either side of an estimate: of normal errors, 95 % lie within

RUN_DEVIATION = 0.005
"""Standard deviation of the logarithm of the objective between whole runs of k-means, beyond what starts differ by.

Relative to what clusters explain, where that is less than what they leave. An allowance, because starts in the sample
do not show it if several end in the same clusters: of 16 sets that the sample contains, each raw, standardised and of
unit length, 45 of 48 ratios were in their intervals with half of it, and 46 with all.
"""

SAMPLE_FACTOR = 1.5
"""Standard errors of a part of the rows, relative to those that the delta method states.

That takes the clusters as given, but they are those of the sampled rows. Of 14 sets of more rows, each raw,
standardised and of unit length, 37 of 42 ratios were in their intervals with 1, and 40 with 1.5.
"""

START_FACTOR = 1.5
"""Variance of the best of ten new starts, relative to that of ten drawn from the starts that were made.

Those have none that is better than their best one. Of 30 sets, each raw, standardised and of unit length and with three
seeds, it was 1.2 to 2.0 on the chosen columns and on all; of the ratios of eight times ten starts on either, 95 % were
in their intervals with 1, and with 1.5 96 % where the sample has all rows, and 95 % where it has a part.
"""

COLUMNS = ("method", "n_features", "ratio", "low", "high")


@dataclass(frozen=True, eq=False)
class CurvePoint:
    """The estimate for one method and one number of columns.

    Parameters
    ----------
    method : str
        Name of the method, with parameters where several of that name compete.
    n_features : int
        Selected columns.
    ratio : float
        Objective in all columns of k-means on the selected ones, relative to that of k-means on all columns.
    low, high : float
        Ends of the 95 % interval of the ratio that a run on all rows finds.
    selection : Selection
        The columns.
    ratio_seen : float
        The ratio on the clustered rows themselves, where clusters on all columns look better than on other rows.
    """

    method: str
    n_features: int
    ratio: float
    low: float
    high: float
    selection: Selection
    ratio_seen: float = 1.0


@dataclass(frozen=True, eq=False)
class SelectionCurve(Tabular):
    """Estimates for several methods and numbers of columns.

    Parameters
    ----------
    points : tuple of CurvePoint
        By method, then by number of columns.
    n_clusters, n_rows, n_sampled : int
        Clusters, rows of all data, and rows that were clustered.
    objective, scatter : float
        Estimated objective of k-means on all columns, and of a single cluster.

    Examples
    --------
    >>> import sketchselect as sks
    >>> from sklearn.datasets import make_blobs
    >>> X, _ = make_blobs(200, 6, centers=3, random_state=0)
    >>> curve = sks.selection_curve(X, n_clusters=3, methods=["greedy"], sizes=[2, 6])
    >>> [(point.n_features, round(point.ratio, 2)) for point in curve.points]
    [(2, 1.03), (6, 1.0)]
    """

    points: tuple[CurvePoint, ...]
    n_clusters: int
    n_rows: int
    n_sampled: int
    objective: float
    scatter: float

    def __repr__(self) -> str:
        sizes = sorted({point.n_features for point in self.points})
        text = f"{', '.join(self.methods)}; columns: {', '.join(map(str, sizes))}"
        text += f"; {self.n_sampled} of {self.n_rows} rows sampled"
        least = min((point.ratio for point in self.points), default=0.0)
        if (lowest := best([point for point in self.points if point.ratio <= least + TIE])) is not None:
            text += f"; lowest: {lowest.ratio:.3f} by {lowest.method} with {lowest.n_features}"
        return f"<SelectionCurve: {text}>"

    def _table(self) -> tuple[str, list[list[str]]]:
        ratios = {(point.n_features, point.method): f"{point.ratio:.3f}" for point in self.points}
        rows = [["columns", *self.methods]]
        for size in sorted({size for size, _ in ratios}):
            rows.append([str(size), *(ratios.get((size, name), "") for name in self.methods)])
        return _RATIO, rows

    def plot(self, ax: Any = None) -> Any:
        """Draw the ratios by number of columns on `ax` (new axes by default) and return the axes."""
        return SelectionCurveDisplay.from_curve(self, ax=ax).ax_

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods, in the order in which ties are decided."""
        return tuple(dict.fromkeys(point.method for point in self.points))

    @property
    def explained(self) -> float:
        """Share of the scatter that clusters on all columns explain, 1 - objective / scatter; 0 where there is none."""
        return max(0.0, 1.0 - self.objective / self.scatter) if self.scatter > 0 else 0.0

    def gain_left(self, point: CurvePoint) -> float | None:
        """Return (scatter - ratio objective) / (scatter - objective), at least 0; None where clusters gain nothing.

        Of the scatter that clusters on all columns explain, this is the share that clusters on the selected ones do.
        """
        gain = self.scatter - self.objective
        if not gain > 0:
            return None
        return max(0.0, (self.scatter - point.ratio * self.objective) / gain)

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns of the table: name -> values."""
        return {name: [getattr(point, name) for point in self.points] for name in COLUMNS}

    def to_csv(self) -> str:
        """Return the table as text, one line for each method and number of columns."""
        columns, text = self.to_dict(), StringIO()
        csv.writer(text, lineterminator="\n").writerows([columns, *zip(*columns.values(), strict=True)])
        return text.getvalue()


TIE = 0.002  # Ratios that differ by less are equal: runs of k-means from different seeds differ by more
RIVALS = 3  # Methods of which more starts are compared, at most: the lowest ones


def best(points: Sequence[CurvePoint]) -> CurvePoint | None:
    """Return the point of fewest columns and lowest ratio; of ratios within `TIE` the first one."""
    few = min((point.n_features for point in points), default=0)
    least = min((point.ratio for point in points if point.n_features == few), default=0.0)
    return next((p for p in points if p.n_features == few and p.ratio <= least + TIE), None)


class Curve:
    """A curve under construction: methods are asked for columns, and these are clustered on the sample.

    `methods`: Name of a method -> its selections of some sizes, ascending; None if it has none of that size.
    `alternatives`: The same of methods with other parameters; the better one is taken where ties are broken.
    `doubt`: By how much the intervals are wider on either side, as a logarithm, because the sample says too little.
    """

    def __init__(
        self,
        sample: RowSample,
        n_clusters: int,
        methods: dict[str, Callable[[int], Selection | None]],
        seed: int = 0,
        alternatives: dict[str, Callable[[int], Selection | None]] | None = None,
        doubt: float = 0.0,
    ) -> None:
        self.seed, self.doubt, self.drawn, self.tries_alternatives = seed, doubt, True, False
        self.sample, self.n_clusters, self.methods = sample, n_clusters, methods
        self.alternatives = {} if alternatives is None else alternatives
        self._points: dict[tuple[str, int], tuple[Selection, SampledClusters]] = {}
        # Of the same columns there is one clustering, whichever method selects them.
        self._known: dict[tuple[bytes, bool], SampledClusters] = {}
        self._settled: set[tuple[str, int]] = set()
        self._tried: set[tuple[str, int]] = set()
        with one_blas_thread():
            self.coreset = Coreset(sample, n_clusters, seed)
            self.everything = self.coreset.clustered()

    def clear(self) -> None:
        """Drop the points, and keep what does not depend on them."""
        self._points, self._known, self._settled, self._tried = {}, {}, set(), set()

    def from_centers(self) -> Curve:
        """Return a curve of the runs that start from the clusters on all columns: of these each has one start."""
        other = copy(self)
        other.drawn = False
        other.clear()
        return other

    def with_alternatives(self) -> Curve:
        """Return a curve without points, for a search that tries alternatives; it shares the clusterings with this."""
        other, known = copy(self), self._known
        other.tries_alternatives = True
        other.clear()
        other._known = known
        return other

    def add(self, methods: Sequence[str], size: int) -> list[CurvePoint]:
        """Cluster on this number of columns by each method; return the points of the methods that can select it."""
        for name in methods:
            if (name, size) not in self._points and (selection := self.methods[name](size)) is not None:
                self._points[name, size] = selection, self._clusters(selection)
        return [point for point in self.result().points if point.n_features == size and point.method in methods]

    def at(self, method: str, selection: Selection) -> CurvePoint:
        """Return the point of a method and its selection, of whatever size."""
        self._points[method, selection.support.size] = selection, self._clusters(selection)
        return next(p for p in self.result().points if p.selection is selection)

    def _clusters(self, selection: Selection, before: SampledClusters | None = None) -> SampledClusters:
        if selection.support.size >= self.sample.n_features:
            return self.everything
        key = selection.support.tobytes(), before is None
        if key not in self._known:
            with one_blas_thread():
                if self.drawn:
                    self._known[key] = self.coreset.clustered(selection.support, before)
                else:
                    self._known[key] = self.coreset.clustered_from(self.everything.labels, selection.support)
        return self._known[key]

    def settle(self, size: int) -> bool:
        """Cluster from all ten starts where that decides; return whether there were such points.

        These are the lowest point of this size, and up to two more that differ from it by less than two standard errors
        of starts. Before, methods with an alternative take the better of both.
        """
        has_changed = self.try_alternatives(size)
        points = [p for p in self.result().points if p.n_features == size and np.isfinite(p.ratio)]
        if not self.drawn or not points or size >= self.sample.n_features:
            return has_changed
        median_spread = self._median_spread()
        variances = {p.method: (self._points[p.method, size][1].spread + median_spread) / 2.0 for p in points}
        points.sort(key=lambda p: p.ratio)
        lowest, near = points[0], []
        for point in points[:RIVALS]:
            error = 2.0 * lowest.ratio * np.sqrt(variances[point.method] + variances[lowest.method])
            if point.ratio - lowest.ratio <= max(error, TIE):
                near.append(point.method)
        return self.add_starts(near, size) or has_changed

    def add_starts(self, methods: Sequence[str], size: int) -> bool:
        """Cluster from all ten starts on the columns of these methods; return whether there were fewer for any."""
        places = [(name, size) for name in methods if (name, size) not in self._settled]
        if not self.drawn or size >= self.sample.n_features:
            return False
        for i in places:
            selection, clusters = self._points[i]
            self._points[i] = selection, self._clusters(selection, clusters)
            self._settled.add(i)
        return bool(places)

    def try_alternatives(self, size: int) -> bool:
        """Take the alternatives of this size that are better by more than a tie; return whether there were any."""
        has_changed = False
        for name, alternative in self.alternatives.items():
            if (name, size) not in self._points or (name, size) in self._tried or size >= self.sample.n_features:
                continue
            self._tried.add((name, size))
            if (selection := alternative(size)) is None:
                continue
            clusters = self._clusters(selection)
            if clusters.objective < self._points[name, size][1].objective * (1.0 - TIE):
                self._points[name, size], has_changed = (selection, clusters), True
                self._settled.discard((name, size))
        return has_changed

    def _median_spread(self) -> float:
        if not self.drawn:
            return 0.0
        return float(np.median([self.everything.spread, *(clusters.spread for _, clusters in self._points.values())]))

    def result(self) -> SelectionCurve:
        """Return the points so far."""
        median_spread = self._median_spread()
        points = [
            CurvePoint(name, size, *self._estimate(clusters, median_spread), selection, self._ratio_seen(clusters))
            for (name, size), (selection, clusters) in self._points.items()
        ]
        order = {name: i for i, name in enumerate(self.methods)}
        points.sort(key=lambda point: (order[point.method], point.n_features))
        sizes = self.sample.n_rows, self.sample.n_kept
        return SelectionCurve(tuple(points), self.n_clusters, *sizes, self.least, self.coreset.scatter)

    @property
    def least(self) -> float:
        """The objective of the best clustering on all columns."""
        return float(self.coreset.weights @ self.everything.costs)

    def _ratio_seen(self, clusters: SampledClusters) -> float:
        """Return the ratio of the objectives of the sample itself."""
        if clusters is self.everything:
            return 1.0
        if not self.everything.objective > 0:
            return 1.0 if clusters.objective <= 0 else float("inf")
        return clusters.objective / self.everything.objective

    def _estimate(self, clusters: SampledClusters, median_spread: float) -> tuple[float, float, float]:
        """Return ratio, low and high.

        A clustering's cost on its own sample is too low, and that of a clustering of the other half too high by as
        much: the estimate is their geometric mean, and half their distance is added to the error. The rows of the
        sample are a draw (delta method, for the given labels: `SAMPLE_FACTOR`), and so are the starts of k-means, in
        the sample and in a run. On some columns their variance is the mean of this point's, from few starts, and the
        median of all points: with too few columns starts scatter, which says nothing about enough columns (runs from
        the sample's clusters have one start each). On all columns it is that of a run and of the mean of as many runs
        as the starts make. Where a few starts are missed, the objective may be higher, not lower: the ends have their
        own variances. The two runs on all rows that are predicted differ beyond that (`RUN_DEVIATION`).
        """
        weights, all_columns = self.coreset.weights, self.everything
        if clusters is all_columns:
            return 1.0, 1.0, 1.0
        ratio_seen = self._ratio_seen(clusters)
        if not all_columns.objective > 0:
            return ratio_seen, ratio_seen, ratio_seen
        ratio_unseen = clusters.unseen / all_columns.unseen
        influence = weights * (clusters.costs / ratio_seen - all_columns.costs) / all_columns.objective
        runs = 1.0 + ALL_STARTS / max(len(all_columns.starts), ALL_STARTS)
        sides = (clusters.below, all_columns.above), (clusters.above, all_columns.below)
        starts = np.array([some + median_spread + runs * of_all for some, of_all in sides])
        sampled = Z * np.sqrt(float(self.coreset.drawn @ influence**2) + starts)
        sampled += abs(np.log(ratio_unseen / ratio_seen)) / 2.0
        if not self.coreset.is_complete:
            sampled *= SAMPLE_FACTOR
        # Where clusters explain little, they differ by little, too.
        gain = max(self.coreset.scatter / all_columns.objective - 1.0, 0.0)
        half = np.hypot(sampled, Z * np.sqrt(2.0) * RUN_DEVIATION * min(gain, 1.0)) + self.doubt
        ratio = float(np.sqrt(ratio_seen * ratio_unseen))
        return ratio, ratio * float(np.exp(-half[0])), ratio * float(np.exp(half[1]))
