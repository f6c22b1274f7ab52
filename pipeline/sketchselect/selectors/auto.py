"""Method and number of columns chosen by the data: fast methods compete on a sample of the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np

from sketchselect._sklearn import clone
from sketchselect._text import counted, did_you_mean
from sketchselect.errors import BadParameter, EmptyInput, warn
from sketchselect.execution import PassOptions, Source, summarize_source
from sketchselect.linalg.kmeans.sample import row_products, sample_size
from sketchselect.linalg.parameters import Count, Limits, Positive, SeedNumber, Size
from sketchselect.linalg.validation import Floats, Labels, is_csr, require_positive
from sketchselect.prepare.units import outweighing
from sketchselect.selectors.base import BaseSelector, Selection, Undecided
from sketchselect.selectors.curve import ROUNDING, Curve, CurvePoint, SelectionCurve, Z, best, cluster_means
from sketchselect.selectors.registry import METHODS
from sketchselect.summaries import Bundle, RowSample, Summary, pick

FEWEST, MOST = 4, 2048  # Smallest and largest numbers of columns that are tried where the number is open
AHEAD, MOST_AHEAD = 32, 512  # A nested method selects as many times the columns at once, up to the second number
FINENESS = 8  # The number of columns is found to an eighth of itself
FAR = 4  # From this relative excess on the number of columns is multiplied by four, not doubled
FAR_OFF = 1.5  # With a larger relative excess of its estimate a method is not tried with an eighth more columns
RIVALS = 2  # Methods that go on to fewer columns, at most: the lowest ones beside the first
MOST_FLOPS = 1e8  # A method that needs more to select does not compete: about half a second of many small steps

# Effective share of a sample's rows in its error of the scatter, beyond which some rows decide too much: of a sample by
# distance it is at most 2 (`RowSample`: a row's share of the scatter is at most twice the mean share), of a uniform one
# 1 plus the squared coefficient of variation of the squared distances.
UNEVEN = 2.0
# Logarithm of the exact scatter to a sample's beyond which rows were missed: at least four standard errors.
MISSED = 0.1
CENTERS = "the cluster centres that the sample has in all columns (cluster_centers of the selection)"
# Of the way from the estimate to the upper end: there the share of what clusters explain must be within the tolerance,
# too. Halfway, ten starts on the columns of one of 57 jobs lost more than 5 %.
PART = 0.75
NEARLY_ALL = 0.8  # Share of the columns from which the sentence says so
LITTLE = 0.05  # Share of the scatter that clusters explain, below which columns chosen for them say little


@dataclass(frozen=True)
class Limit:
    """Largest ratios of a point, of several kinds."""

    high: float = np.inf
    ratio: float = np.inf
    seen: float = np.inf  # Of the clustered rows alone
    upper: float = np.inf  # At a part of the way from the estimate to the upper end

    def _parts(self, point: CurvePoint) -> tuple[tuple[float, float], ...]:
        upper = point.ratio * (point.high / point.ratio) ** PART if 0 < point.ratio < np.inf else point.high
        return (point.high, self.high), (point.ratio, self.ratio), (point.ratio_seen, self.seen), (upper, self.upper)

    def excess(self, point: CurvePoint) -> float:
        """Return by how much a point exceeds the limit; at most 0 within it."""
        return max(value - most for value, most in self._parts(point))

    def relative_excess(self, point: CurvePoint) -> float:
        """Return a point's excess over k-means on all columns, relative to the tolerance; above 1 beyond the limit."""
        parts = self._parts(point)
        return max(((value - 1.0) / (most - 1.0) for value, most in parts if 1.0 < most < np.inf), default=np.inf)


def limit_of(curve: Curve, tolerance: float) -> Limit:
    """Return the limits of a tolerance: of the objective by its interval, of the explained scatter by a part of that.

    Where clusters explain little of the scatter, a few columns (even one) may be within the tolerance of the objective
    and lose most of the possible gain. The limit of that applies to the clustered rows, and to the estimate with a part
    of its interval (`PART`). It applies also where clusters explain nothing of rows that they have not seen: that is
    said (`LITTLE`), and is no reason for any columns.
    """
    all_columns, scatter = curve.everything, curve.coreset.scatter
    gain = scatter - all_columns.objective
    # A single cluster gains nothing but rounding.
    if not (all_columns.objective > 0 and gain > ROUNDING * scatter):
        return Limit(high=1.0 + tolerance)
    most = 1.0 + tolerance * gain / all_columns.objective
    return Limit(1.0 + tolerance, seen=most, upper=most)


def fewest_within(curve: Curve, limit: Limit, sizes: tuple[int, int]) -> tuple[Curve, CurvePoint]:
    """Return the point of fewest columns (in the range `sizes`) within a limit, and the curve that it is of.

    Beside noise, columns that follow the few that suffice make k-means worse, and the search, which takes the objective
    to fall, misses the few. A second one tries alternatives wherever it fails, up to half the number that the first one
    ends at: nearer to it the first one has searched, and further trials would find what is within the limit by chance.
    It has a curve of its own: the intervals of the first one's points do not depend on it.
    """
    choice = smallest_within(curve, limit, sizes)
    most = choice.n_features // 2
    if not curve.alternatives or most < sizes[0] or limit.excess(choice) > 0:
        return curve, choice
    second = curve.with_alternatives()
    fewer = search_within(second, limit, (sizes[0], most))
    return (curve, choice) if fewer is None else (second, fewer)


def smallest_within(curve: Curve, limit: Limit, sizes: tuple[int, int]) -> CurvePoint:
    """Return the point of fewest columns (in the range `sizes`) within a limit; if no point is, of the most."""
    choice = search_within(curve, limit, sizes)
    return best_of(curve, sizes[1]) if choice is None else choice


def search_within(
    curve: Curve, limit: Limit, sizes: tuple[int, int], names: tuple[str, ...] | None = None
) -> CurvePoint | None:
    """Return the point of fewest columns (in the range `sizes`) within a limit; None if no point is.

    The first method alone finds a number of columns. All others are tried there, and those within go on to fewer.

    `names`: The methods that compete; all of the curve by default.
    """
    (least, most), names = sizes, tuple(curve.methods) if names is None else names

    def within(methods: Sequence[str], size: int) -> list[str]:
        # Few starts may scatter where the best of ten does not.
        points = curve.add(methods, size)
        near = [p.method for p in points if limit.excess(p) > 0 >= limit.excess(replace(p, high=p.ratio))]
        if curve.add_starts(near, size):
            points = curve.add(methods, size)
        names_within = [point.method for point in points if limit.excess(point) <= 0]
        if not names_within and curve.tries_alternatives and curve.try_alternatives(size):
            return within(methods, size)
        return names_within

    def least_excess(methods: Sequence[str], size: int) -> float:
        return min(map(limit.relative_excess, curve.add(methods, size)), default=np.inf)

    def narrowed(methods: Sequence[str], below: int, size: int) -> int:
        above = least_excess(methods, below) if below >= least else np.inf
        while size - below > max(1, below // FINENESS):
            middle = _crossing((below, above), (size, least_excess(methods, size)))
            if closer := within(methods, middle):
                size, methods = middle, closer
            else:
                below, above = middle, least_excess(methods, middle)
        return size

    size, below = max(min(FEWEST, most), least), least - 1
    while not within(names[:1], size) and size < most:
        # The used share of the tolerance falls about as the number of columns grows.
        far = np.inf > least_excess(names[:1], size) > FAR
        below, size = size, min((FAR if far else 2) * size, most)
    if within(names[:1], size):
        size = narrowed(names[:1], below, size)
    step, fewer = max(1, size // (FINENESS + 1)), 0
    allowed = set(within(names, size)) - {names[0]}
    rivals = [p.method for p in sorted(curve.add(names, size), key=lambda p: p.ratio) if p.method in allowed][:RIVALS]
    while rivals and (fewer := size - step) >= least and (closer := within(rivals, fewer)):
        rivals, size, step = closer, fewer, 2 * step
    if 0 < fewer < size - 1:
        size = narrowed(rivals, max(fewer, least - 1), size)

    def fewest() -> CurvePoint | None:
        # Points share an estimate of the spread between starts: later points move the intervals of earlier ones.
        return best([p for p in curve.result().points if p.n_features >= least and limit.excess(p) <= 0])

    choice = fewest()
    while choice is not None and curve.settle(choice.n_features):
        choice = fewest()
    if choice is None and size < most:
        points = curve.add(names, size)
        far_off = [p.method for p in points if np.inf > limit.relative_excess(replace(p, high=p.ratio)) > FAR_OFF]
        going_on = (names[0], *(name for name in names[1:] if name not in far_off))
        return search_within(curve, limit, (min(size + max(1, size // FINENESS), most), most), going_on)
    return choice


def _crossing(below: tuple[int, float], above: tuple[int, float]) -> int:
    """Return the size between two at which the whole tolerance is used, by a power law.

    At least a step of the search away from both, and halfway if one of them has no comparable excess.
    """
    (least, high), (most, low) = below, above
    middle = (least + most) / 2.0
    if least > 0 and np.isfinite(high) and high > 1.0 >= low > 0:
        middle = least * (most / least) ** (np.log(high) / np.log(high / low))
    first = least + max(1, least // FINENESS)
    return min(max(int(np.ceil(middle)), first), max(first, most - max(1, most // (FINENESS + 1))))


def best_of(curve: Curve, size: int) -> CurvePoint:
    """Return the best of all methods at this size; raise `BadParameter` if none can select it."""
    names = tuple(curve.methods)
    choice = best(curve.add(names, size))
    while choice is not None and curve.settle(size):
        choice = best(curve.add(names, size))
    if choice is None:
        raise BadParameter(f"methods: none of them can select {size} columns")
    return choice


def selections_by_size(
    method: BaseSelector, summary: Any, lenient: bool, ahead: int = AHEAD
) -> Callable[[int], Selection | None]:
    """Return the selections of a method by size; for a nested method, the first columns of a larger selection."""
    by_size: dict[int, Selection] = {}
    method.competes = True

    def selection(size: int) -> Selection | None:
        nested = method.is_nested and all(selection.weights is None for selection in by_size.values())
        if nested and max(by_size, default=0) >= size:
            largest = by_size[max(by_size)]
            support = np.sort(largest.ranking()[:size])
            return replace(largest, support=support, parameters={**largest.parameters, "n_features_to_select": size})
        further = min(ahead * size, MOST_AHEAD) if nested else size
        width = min(max(size, further), summary.n_features)
        flops = getattr(method, "selection_flops", None)
        if lenient and flops is not None and flops(summary.n_features, width) > MOST_FLOPS:
            return None
        try:
            by_size[width] = method.set_params(n_features_to_select=width).fit_summary(summary).selection_
        except BadParameter as error:
            if not (lenient or isinstance(error, Undecided)):
                raise
            return None
        return by_size[width] if width == size else selection(size)

    return selection


@dataclass(frozen=True)
class SampleSpread:
    """Mean and variance of sampled rows, and whether they can stand for all."""

    mean: Floats
    variance: float  # Mean squared distance to it
    doubt: float  # 1.96 standard errors of the logarithm of the scatter; 0 where the sample's rows count about alike

    @classmethod
    def of(cls, sample: RowSample, summary: Any) -> SampleSpread:
        """Return the spread of a sample, compared with the exact scatter that a summary of all rows may have."""
        rows, weights, drawn = sample.rows, sample.weights, 1.0 - sample.probabilities
        if not drawn.any():
            return cls(np.zeros(sample.n_features), 0.0, 0.0)
        mean = np.asarray(weights @ rows) / weights.sum()
        if is_csr(rows):
            squares = np.maximum(row_products(rows, rows) - 2.0 * (rows @ mean) + mean @ mean, 0.0)
        else:
            squares = row_products(rows - mean, rows - mean)
        scatter = float(weights @ squares)
        if not 0 < scatter < np.inf:
            return cls(mean, 0.0, 0.0)
        shares = weights * squares / scatter
        variance = float(drawn @ shares**2)
        members = summary.values() if isinstance(summary, Mapping) else [summary]
        exact = next((m.centered_squared_norm for m in members if hasattr(m, "centered_squared_norm")), scatter)
        missed = abs(float(np.log(exact / scatter))) if exact > 0 else 0.0
        doubt = 0.0
        if sample.n_kept * variance > UNEVEN or missed > max(MISSED, 4.0 * variance**0.5):
            doubt = Z * float(np.sqrt(variance)) + missed
        return cls(mean, scatter / float(weights.sum()), doubt)


def _is_list(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str)


WITH_TARGET = "with one a fixed set of methods competes: name one as the method itself, or leave methods out"
Methods = Annotated[Sequence[Any], Limits("a list of methods, by name or as selectors", _is_list)]


class AutoSelector(BaseSelector):
    """Select by the method that clusters best, and as many columns as that takes.

    All methods with an `auto_priority` (or `methods`) select from one summary of the rows. On a sample of the rows
    k-means is run on the columns of each, and its objective in *all* columns is compared with that of k-means on all
    columns. The method of the lowest objective wins; of equal ones (within 0.2 %) that of fewer columns, then the first
    in their order. At the last number of columns `greedy` is tried with k directions too. No labels are used, and the
    result does not depend on chunks, workers or order.

    The columns suffice for anyone who clusters them well: what is predicted, in Python and in a job alike, is the best
    of ten starts of k-means that are drawn in the selected columns. A number of columns is tried with three starts; the
    chosen columns, and up to two methods near them, are clustered from ten, and all columns from up to twenty. A job
    begins at the sample's clusters too, and ends no worse. Where only k-means that begins there is within the
    tolerance, their centres are part of the selection (cluster_centers), and its `choice` says so.

    A uniform sample can miss rows far from the others, which decide where tails are heavy. It is then replaced by one
    that prefers rows far from the mean, of a second pass; a summary of one pass warns and has wider intervals.

    With `n_features_to_select="auto"` the first method's sizes are doubled or quadrupled from 4 until one is within the
    tolerance: the objective by the upper end of a 95 % interval, and by most of that interval and on the clustered rows
    the share that is lost of what clusters explain of the scatter. Where they explain less than 5 % of it, a warning
    says that columns chosen for them say little. The smallest such size is searched to an eighth of itself; there all
    compete, and fewer columns are tried for the best ones within the tolerance. If none of these sizes is within it
    from ten starts, an eighth more columns are tried, by the methods that are not far off. Columns of noise that follow
    the few that suffice make k-means worse, and hide these: a second search, up to half of that number, tries `greedy`
    with k directions too wherever the methods fail. If no size up to 2,048 is within the tolerance, columns for k-means
    from the sample's centres are searched as in the first search; if there are none either, all columns up to 2,048 are
    selected and a warning says so. A method that would need more than 1e8 operations to select does not
    compete by default.

    Parameters
    ----------
    n_features_to_select : int or "auto"
    n_clusters : int, optional
        k of the objective; min(8, n_features) by default, and at most the number of distinct rows. A job takes the
        number of its clusters.
    tolerance : float
        "auto": largest excess of the objective over that of k-means on all columns, and largest share of what its
        clusters explain (of the scatter) that is lost.
    methods : sequence of str or selectors, optional
        The competitors, in the order that decides ties. Several of one method are named in the curve with
        the parameters in which they differ, as in ``greedy(n_components=10)``.
    sample_rows : int, optional
        Rows that are clustered; ``max(2000, 20 k)`` by default, fewer where they would take more than 512 MiB.
    random_state : int
        Seed of the sample and of the starts.

    Attributes
    ----------
    method_ : str
        Name of the method that won, as in the curve.
    curve_ : SelectionCurve
        What was compared, by the search whose columns were chosen.
    cluster_centers_ : array of shape (n_clusters, n_selected), or None
        Means, in the selected columns, of the clusters that the sampled rows have in all columns: a start for k-means.
        None if the sample has fewer different rows than clusters.

    Notes
    -----
    Guarantee: deterministic. That the objective in all columns is within the tolerance is an estimate with an
    interval of 95 %, not a proof; a certificate of the run proves what is reached.

    Cost after the pass: for each method and size some 60 Lloyd iterations on the sample, 200 where it is chosen.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((600, 30))
    >>> X[:, [3, 17]] += 20.0 * rng.integers(0, 2, (600, 2))
    >>> chosen = AutoSelector(n_clusters=4, normalize=None).fit(X)
    >>> {3, 17} <= set(chosen.support_.tolist()), len(chosen.support_)
    (True, 2)
    """

    method: ClassVar[str] = "auto"
    requires: ClassVar[tuple[str, ...]] = (RowSample.kind,)

    largest_objective: float | None = None
    """Limit of the estimated objective in all columns instead of the tolerance, for a job that proves it afterwards."""
    least_columns: int = 1
    largest_columns: int | None = None
    """Numbers of columns from which those for the limit are searched, and the only one that is tried."""

    def __init__(
        self,
        n_features_to_select: Size | Literal["auto"] | None = "auto",
        n_clusters: Count | None = None,
        tolerance: Positive = 0.05,
        methods: Methods | None = None,
        sample_rows: Count | None = None,
        normalize: str | None = "l2",
        random_state: SeedNumber = 0,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.n_clusters = n_clusters
        self.tolerance = tolerance
        self.methods = methods
        self.sample_rows = sample_rows
        self.normalize = normalize
        self.random_state = random_state

    def check_parameters(self) -> None:
        """Raise `BadParameter` for a parameter out of range, or a method that cannot compete."""
        super().check_parameters()
        for method in self._competitors().values():
            method.check_parameters()

    def _competitors(self) -> dict[str, BaseSelector]:
        """Return the methods by name in the curve, unfitted."""
        competitors: list[BaseSelector]
        if self.methods is None:
            priorities = {cls: cls.auto_priority for cls in METHODS.values() if cls.auto_priority is not None}
            competitors = [cls() for cls in sorted(priorities, key=lambda cls: priorities[cls])]
        else:
            competitors = [self._named(method) for method in self.methods]
        for method in competitors:
            parameters = method.get_params()
            if method.uses_target:
                raise BadParameter(
                    f"{method.method} cannot compete: `methods` is for choosing without a target; {WITH_TARGET}"
                )
            if isinstance(method, AutoSelector):
                raise BadParameter(f"methods: {method.method} cannot compete: it is what compares them; leave it out")
            if method.needs_counts or method.makes_passes or "n_features_to_select" not in parameters:
                needs = "counts" if method.needs_counts else "passes of its own"
                raise BadParameter(f"{method.method} cannot compete: it needs {needs}")
            if parameters.get("n_clusters", self) is None:
                method.set_params(n_clusters=self.n_clusters)
        if not competitors:
            raise BadParameter("methods: none was named; leave it out for all that are fast")
        names = _names(competitors)
        for i, name in enumerate(names):
            if name in names[:i]:
                raise BadParameter(f"methods: {name} is named twice; leave one of them out")
        for method in competitors:
            if "normalize" in method.get_params():
                method.set_params(normalize=None)  # the rows are prepared for all
        return dict(zip(names, competitors, strict=True))

    def _named(self, method: Any) -> BaseSelector:
        if isinstance(method, BaseSelector):
            selector: BaseSelector = clone(method)
            return selector
        if not isinstance(method, str):
            raise BadParameter(f"methods: expected names of methods or selectors, got {method!r:.60}")
        if method not in METHODS:
            hint = did_you_mean(method, METHODS, f"; known are {', '.join(sorted(METHODS))}")
            raise BadParameter(f"unknown selection method {method!r}{hint}")
        return METHODS[method]()

    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return a sample of rows, and what the methods need."""
        k = self._clusters(n_features)
        size = self.sample_rows
        if size is None:
            size = sample_size(k, n_features, least_per_cluster=2)
        members: dict[str, Summary[Any]] = {RowSample.kind: RowSample(int(size), seed=int(self.random_state))}
        for method in self._competitors().values():
            try:
                needed = method.summary_description(n_features)
            except BadParameter:
                if self.methods is not None:
                    raise
                continue
            for part in needed.values() if isinstance(needed, Bundle) else (needed,):
                if getattr(part, "size", 0) >= getattr(members.get(part.kind), "size", 0):
                    members[part.kind] = part
        return Bundle(members)

    def further_description(self, summary: Summary[Any]) -> Summary[Any] | None:
        """Return a sample by distance from the mean if the uniform one says too little of rows that decide."""
        members = {member.kind: member for member in (summary.values() if isinstance(summary, Mapping) else [summary])}
        sample = members.get(RowSample.kind)
        if not isinstance(sample, RowSample):
            return None
        spread = SampleSpread.of(sample, summary)
        if not spread.doubt or not 0 < spread.variance < np.inf:
            return None
        return RowSample(sample.size, sample.seed, spread.mean, spread.variance)

    def complete(self, summary: Summary[Any], source: Source, options: PassOptions) -> Summary[Any]:
        """Return the summary with a sample that contains the rows that decide: this one, or that of another pass."""
        further = self.further_description(summary)
        if further is None:
            return summary
        options.progress.note(
            f"{self.method}: a few rows far from the others decide the clusters, so rows are read again and sampled by "
            "distance"
        )
        members = {member.kind: member for member in (summary.values() if isinstance(summary, Mapping) else [summary])}
        return Bundle.of({**members, RowSample.kind: summarize_source(source, further, options).value})

    def fit_summary(self, summary: Any) -> Self:
        """Select from a mapping or `Bundle` with a sample of rows and what the methods need; no data are needed.

        Raises
        ------
        Incompatible
            If the sample, or the summary of a method, is not there.
        """
        pick(summary, RowSample.kind)
        members = {member.kind: member for member in (summary.values() if isinstance(summary, Mapping) else [summary])}
        bundle = Bundle.of(members)
        self._take_summary(bundle, bundle.n_features)
        return self._finish(bundle.feature_names)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_measured"}

    def _clusters(self, n_features: int) -> int:
        return min(8, n_features) if self.n_clusters is None else int(self.n_clusters)

    def _n_select(self, n_features: int) -> int:
        return n_features if self.n_features_to_select == "auto" else super()._n_select(n_features)

    @property
    def most_columns(self) -> int:
        """Largest number of columns that is tried."""
        return max(min(MOST, self._n_columns), self.least_columns)

    def _curve(self, summary: Any) -> Curve:
        sample = pick(summary, RowSample.kind)
        assert isinstance(sample, RowSample)
        if sample.n_kept == 0:
            raise EmptyInput(
                "no rows with a positive weight: all sample weights are zero (or below 2.2e-308), or the input is empty"
            )
        k = self._clusters(summary.n_features)
        if self.n_clusters is None:
            k = min(k, sample.n_rows)
        if sample.n_kept < 2 * k and (sample.probabilities < 1.0).any():
            raise BadParameter(
                f"sample_rows: {sample.n_kept} of {sample.n_rows} rows say nothing of {k} clusters; sample at least "
                f"{2 * k}"
            )
        if self.n_clusters is not None and k > sample.n_rows:
            raise BadParameter(f"n_clusters: {k} clusters of {sample.n_rows} rows; there are at most as many as rows")
        competitors = self._competitors()
        for method in competitors.values():
            method.n_rivals = len(competitors) - 1 if self.methods is None else 0
        is_open = self.n_features_to_select == "auto"
        # A size that the user did not request is skipped if a method cannot select as few.
        lenient, ahead = self.methods is None or is_open, AHEAD if is_open else 1
        selections = {name: selections_by_size(method, summary, lenient, ahead) for name, method in competitors.items()}
        alternatives = {}
        if self.methods is None:  # user-supplied methods keep their parameters
            for name, method in competitors.items():
                if hasattr(method, "for_clusters"):
                    alternatives[name] = selections_by_size(
                        method.for_clusters(k).set_params(normalize=None), summary, True, 1
                    )
        doubt = SampleSpread.of(sample, summary).doubt
        if doubt:
            warn(
                f"a few rows far from the others decide the clusters, and {sample.n_kept} of {sample.n_rows} rows say "
                "little of them: the estimates cannot be trusted, and their intervals are wider; fit from the rows "
                "themselves (a second pass samples by distance), or take more sample_rows"
            )
        curve = Curve(sample, k, selections, int(self.random_state), alternatives, doubt)
        n_used = np.unique(curve.everything.labels).size
        if self.n_clusters is None and n_used < k and not curve.everything.objective > ROUNDING * curve.coreset.scatter:
            # There are no more distinct rows than these.
            curve = Curve(sample, n_used, selections, int(self.random_state), alternatives, doubt)
        return curve

    def sampled_labels(self, sample: RowSample, n_clusters: int, seed: int) -> Labels | None:
        """Return the clusters of sampled rows on all columns; None where others were made, or none yet."""
        curve: Curve | None = getattr(self, "_measured", (None, None))[1]
        if curve is None or curve.sample is not sample or (curve.n_clusters, curve.seed) != (n_clusters, seed):
            return None
        return curve.everything.labels

    def _select(self, summary: Any, n_select: int) -> Selection:
        if getattr(self, "_measured", (None,))[0] is not summary:
            self._measured = summary, self._curve(summary)
        curve, is_open, surely = self._measured[1], self.n_features_to_select == "auto", self.largest_objective is None
        # The table must not depend on earlier calls of a job.
        curve.clear()
        if self.tolerance >= 1:
            times = f"{1 + self.tolerance:g} times"
            warn(f"tolerance = {self.tolerance:g} lets the objective be {times} as large; 0.05 is 5 %")
        limit = limit_of(curve, float(self.tolerance))
        if self.largest_objective is not None:
            # What is proved is the job's own run, which may begin at these centres. If there are no more distinct rows
            # than clusters, columns that distinguish them lose nothing.
            curve, objective_of_all = curve.from_centers(), curve.everything.objective
            limit = Limit(ratio=self.largest_objective / objective_of_all if objective_of_all > 0 else 1.0)
        if is_open and self.largest_columns is None:
            sizes = self.least_columns, self.most_columns
            curve, choice = fewest_within(curve, limit, sizes)
            if surely and limit.excess(choice) > 0:
                begun = smallest_within(curve.from_centers(), limit, sizes)
                if limit.excess(begun) <= 0:
                    choice = curve.at(begun.method, begun.selection)
        else:
            size = self.largest_columns or n_select
            choice = best_of(curve, size)
            for fewer in sorted({max(size // 4, 1), max(size // 2, 1)}):
                curve.add((choice.method,), fewer)
            if self.largest_columns is not None:  # tried for a proof: the curve shows what other numbers cost
                others = (size // 4, size // 2, 2 * size, 4 * size)
                for other in sorted({min(max(number, 1), summary.n_features) for number in others}):
                    curve.add(tuple(curve.methods), other)
        self.curve_ = curve.result()
        if self.curve_.scatter > 0 and (explained := self.curve_.explained) < LITTLE:
            verb = "explains" if self.curve_.n_clusters == 1 else "explain"
            warn(
                f"{counted(self.curve_.n_clusters, 'cluster')} {verb} {100.0 * explained:.1f} % of the variance, on "
                "all columns too, so columns chosen for them say little; another number of clusters or another "
                "preparation of the rows may explain more (of counts, `cluster.compare_preparations` chooses one, and "
                'prepare.steps = "auto" in a job)'
            )
        self.method_ = choice.method
        point = next(p for p in self.curve_.points if (p.method, p.n_features) == (choice.method, choice.n_features))
        from_centers = None
        if surely and limit.excess(point) > 0:
            from_centers = curve.from_centers().at(point.method, point.selection)
            if limit.excess(from_centers) > 0:
                from_centers = None
                if is_open:
                    warn(
                        f"no number of columns up to {point.n_features} is within {self.tolerance:.3g} of the "
                        "inertia of k-means on all columns and of what its clusters explain; a larger tolerance or "
                        "sample_rows may help"
                    )
        centers = cluster_means(curve.sample, curve.n_clusters, curve.seed, curve.everything.labels)
        self.cluster_centers_ = None if centers is None else centers[:, point.selection.support]
        more: dict[str, Any] = {"predicted_starts": "ten, drawn in the selected columns" if curve.drawn else CENTERS}
        if self.cluster_centers_ is not None and (from_centers is not None or not curve.drawn):
            more["cluster_centers"] = self.cluster_centers_.tolist()
        sample = curve.sample
        remark = outweighing(sample.rows, point.selection.feature_names, sample.weights)
        remark = f" {remark}" if remark else ""
        selection = with_curve(point, self.curve_, curve.drawn, from_centers, remark, **more)
        if surely:
            return selection
        names = ("largest_objective", "least_columns", "largest_columns")
        limits = {name: value for name in names if (value := getattr(self, name)) is not None}
        return replace(selection, diagnostics=selection.diagnostics | limits)


def _names(methods: Sequence[BaseSelector]) -> list[str]:
    """Return the names of methods, with the parameters in which several of one name differ."""
    names, parameters = [], [method.get_params() for method in methods]
    for method, own in zip(methods, parameters, strict=True):
        alike = [values for other, values in zip(methods, parameters, strict=True) if other.method == method.method]
        differ = [key for key in own if len(alike) > 1 and len({repr(values[key]) for values in alike}) > 1]
        shown = ", ".join(f"{key}={own[key]!r}" for key in differ)
        names.append(f"{method.method}({shown})" if shown else method.method)
    return names


def with_curve(
    point: CurvePoint,
    curve: SelectionCurve,
    drawn: bool = True,
    from_centers: CurvePoint | None = None,
    remark: str = "",
    **more: Any,
) -> Selection:
    """Return the selection of a point of a curve, with the curve, and more, among its diagnostics."""
    choice = sentence(point, curve, drawn, from_centers) + remark
    extra = {"curve": curve.to_dict(), "choice": choice, "sampled_rows": curve.n_sampled} | more
    selection = point.selection
    if point.method != selection.method:
        extra["competitor"] = point.method
    return replace(selection, weights=None, diagnostics=selection.diagnostics | extra)


def sentence(
    point: CurvePoint, curve: SelectionCurve, drawn: bool = True, from_centers: CurvePoint | None = None
) -> str:
    """Return in words what clusters explain, what was chosen, and what it is estimated to cost.

    `drawn`: Whether that holds for the best of ten starts drawn in the columns; else for one from `CENTERS`.
    `from_centers`: The same columns with those centres, where they need them to be within the tolerance.
    """
    chosen = counted(point.n_features, "column")
    best = (
        f"The best of {len(curve.methods)} methods, {point.method},"
        if len(curve.methods) > 1
        else f"Method {point.method}"
    )
    starts = "the best of ten starts of k-means" if drawn else f"k-means, started from {CENTERS},"
    share, explained, gain, given = curve.gain_left(point), "", "", ""
    rows = counted(curve.n_rows, "row")
    rows = f"all {rows}" if curve.n_sampled == curve.n_rows else f"{curve.n_sampled} of {rows}"
    clusters = counted(curve.n_clusters, "cluster")
    explain = "explains" if curve.n_clusters == 1 else "explain"
    if share is not None:
        gain = f" It still explains {100.0 * share:.1f} % of the variance that {clusters} {explain}."
    if curve.scatter > 0:
        explained = f"{clusters} {explain} {100.0 * curve.explained:.1f} % of the variance. "
    if from_centers is not None:
        given = f" Only when started from {CENTERS} is it within the tolerance: {_percents(from_centers)}."
    n_columns = point.selection.scores.size
    if 1 < point.n_features == n_columns:
        given += " No column is left out; to leave some out, ask for a number of columns or raise the tolerance."
    elif NEARLY_ALL * n_columns <= point.n_features < n_columns:
        given += (
            " That is nearly all of the columns; to leave out more, ask for a smaller number or raise the tolerance."
        )
    return (
        f"{explained}{best} selects {chosen}. On {'it' if point.n_features == 1 else 'them'}, {starts} is estimated to "
        f"change the inertia in all columns by {_percents(point)}, compared with k-means on all columns; the estimate "
        f"comes from {rows}.{gain}{given}"
    )


def _percents(point: CurvePoint) -> str:
    low, ratio, high = (
        f"{round(100.0 * (value - 1.0), 1) + 0.0:+.1f} %" for value in (point.low, point.ratio, point.high)
    )
    return f"{ratio} ({low} to {high})"


def selection_curve(
    source: Any,
    n_clusters: int,
    *,
    methods: Sequence[Any] | None = None,
    sizes: Sequence[int] | None = None,
    sample_rows: int | None = None,
    normalize: str | None = "l2",
    random_state: int = 0,
    prepare: Any = None,
    client: Any = None,
) -> SelectionCurve:
    """Return how the inertia in all columns falls with the number of selected columns, for several methods.

    For each method and size k-means is run on the selected columns of a sample of the rows, and its objective in all
    columns is compared with that of k-means on all columns. `ratio` estimates what runs on all rows find, and `low` and
    `high` are the ends of a 95 % interval: for the draw of rows, and for the starts of k-means; of these it is
    approximate, from few starts on the sample and an allowance of .25 % for each run on all rows.

    Parameters
    ----------
    source : whatever `open_matrix` takes, or a mapping or Bundle of summaries
        Rows, of which one pass is made; or a RowSample, and what the methods need.
    n_clusters : int
        k.
    methods, sample_rows, normalize, random_state
        As in `AutoSelector`.
    sizes : sequence of int, optional
        Numbers of columns; 4, 8, 16, ... below the number of columns (at most 2,048) by default.
    prepare, client : optional
        Steps applied to the rows first, before `normalize`, and what runs the pass; as in `summarize`.

    Returns
    -------
    SelectionCurve

    Raises
    ------
    BadParameter
        For a parameter out of range, or steps for summaries, whose rows are prepared already.
    Incompatible
        If summaries lack a sample of rows, or what a method needs.

    Notes
    -----
    Cost: one pass; then for each method and size some 60 Lloyd iterations on the sample.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> curve = selection_curve(load_digits().data, 10, methods=["greedy"], sizes=[5, 20])
    >>> [(point.n_features, point.ratio < 1.10) for point in curve.points]
    [(5, False), (20, True)]
    """
    selector = AutoSelector(
        methods=methods, n_clusters=n_clusters, sample_rows=sample_rows, normalize=normalize, random_state=random_state
    )
    selector.check_parameters()
    is_summary = isinstance(source, (Summary, Mapping))
    if is_summary and prepare is not None:
        raise BadParameter("prepare is for rows, and a summary was given: its rows are prepared already")
    summary: Any = source if is_summary else selector.collect(source, prepare=prepare, client=client)
    p = pick(summary, RowSample.kind).n_features
    numbers = [FEWEST * 2**i for i in range(10) if FEWEST * 2**i < p] or [p]
    if sizes is not None and not isinstance(sizes, Iterable):
        raise BadParameter(f"sizes: expected a list of numbers of columns, got {sizes!r:.40}")
    if sizes is not None and not len(sizes):
        raise BadParameter("sizes: none was named; leave it out for 4, 8, 16, ...")
    members = summary.values() if isinstance(summary, Mapping) else [summary]
    curve = selector._curve(Bundle.of({member.kind: member for member in members}))
    for size in numbers if sizes is None else sorted({require_positive("a size", size) for size in sizes}):
        if size > p:
            raise BadParameter(f"sizes: {size} columns, but there are {p}")
        curve.add(tuple(curve.methods), size)
    return curve.result()
