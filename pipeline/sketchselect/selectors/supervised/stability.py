"""Stability selection: columns that are selected again and again on complementary halves of the rows."""

from __future__ import annotations

import warnings
from functools import reduce
from typing import Annotated, Any, ClassVar

import numpy as np

from sketchselect._progress import track
from sketchselect._sklearn import clone
from sketchselect._text import did_you_mean
from sketchselect.errors import BadParameter, warn
from sketchselect.linalg.hashing import derive_seed, uniforms
from sketchselect.linalg.parameters import Limits, SeedNumber, Times, number, whole
from sketchselect.linalg.validation import MOST_TIMES, Floats
from sketchselect.selectors.base import BaseSelector, Selection
from sketchselect.selectors.registry import METHODS
from sketchselect.selectors.supervised.models import design_of
from sketchselect.selectors.supervised.path import PathSelector, ignore_early_warnings
from sketchselect.selectors.supervised.penalized import LassoPath
from sketchselect.selectors.supervised.target import TargetMixin, Task
from sketchselect.summaries import Folds, Moments, Summary

Half = Annotated[
    PathSelector | str,
    Limits(
        "the name of a supervised method, or a supervised selector such as LassoPath()",
        lambda value: isinstance(value, (PathSelector, str)),
    ),
]


_MAX_FALSE = 5.0
"""Default bound: with 1, q is 3 of 30 columns, and most related columns are on too few halves to be selected."""


class StabilitySelector(TargetMixin, BaseSelector):
    """Select the columns that a supervised selector selects on most halves of the rows; one pass in all.

    The rows are hashed into buckets, and the summary is the moments of each. Half of the buckets, merged, are exactly
    the moments of half of the rows, the others those of the complementary half: the estimator selects q columns on
    each, and a column is selected if it is among them in at least `threshold` of the halves. Of the columns that the
    estimator takes from half of the rows with a probability of at most q / p, as by chance, the expected number of
    selected ones is at most ``q^2 / ((2 threshold - 1) p)`` (``error_bound_``; p: columns that vary, where copies
    in whatever unit and sign count once), for rows that are drawn independently of one another. By default at most 5.

    Parameters
    ----------
    estimator : supervised selector or name of its method, optional
        Selector of each half; `LassoPath` by default. Its choice of the model is replaced by q columns.
    max_false : float, optional
        Bound on the expected number of selected columns that the estimator takes from half of the rows no more often
        than by chance (with probability q / p): q is the largest number that keeps it. A bound below
        ``1 / ((2 threshold - 1) p)``, which no q keeps, is refused. By default 5, or that least bound where it is
        larger, with at most two fifths of the columns as q. The bound is far from what happens: see the notes.
    threshold : float, default 0.8
        Share of the halves, above 1/2 and at most 1. A high one allows a large q for the same bound, but a related
        column that is correlated with others, or weak, is on fewer halves.
    n_pairs : int, default 25
        Pairs of complementary halves.
    n_buckets : int, default 16
        Number of buckets, even; the summary has the moments of each. Rows of a group (`fit`) are in the same bucket.
    random_state : int, default 0
        Seed of buckets and halves.
    task : "regression" or "classification", optional
        That of the estimator by default.

    Attributes
    ----------
    scores_ : array of shape (n_features,)
        Share of the halves in which the column was selected.
    max_false_ : float
        The bound that q keeps: `max_false`, or its default.
    error_bound_ : float
        The bound, ``q^2 / ((2 threshold - 1) p)``: at most `max_false_`.

    Notes
    -----
    Guarantee: of columns that the estimator takes from half of the rows no more often than by chance (with probability
    q / p), at most `max_false` are expected to be selected. Columns that are correlated with related ones are taken
    more often, and the bound does not count them.
    Cost after the pass: 2 `n_pairs` fits of the estimator, each to merged moments.
    Default: on 44 made sets of kinds not used to choose the default (80 to 800 rows, 20 to 500 columns: alike, of five
    factors, heavy-tailed, skewed, binary; signal over noise 0.7 and 2) 4.5 of 7.9 related columns and 0.1 others; with
    0.9 and 3, 3.1 and 0.02. Without any related column 0.2 of 10 columns are selected.
    Source: Meinshausen and Buehlmann 2010; Shah and Samworth 2013, Theorem 1, for complementary pairs.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 20))
    >>> y = 3 * X[:, 4] - 2 * X[:, 11] + rng.standard_normal(500)
    >>> StabilitySelector().fit(X, y).support_.tolist()
    [4, 11]
    """

    method: ClassVar[str] = "stability"
    requires: ClassVar[tuple[str, ...]] = ("folds",)
    automatic: ClassVar[dict[str, Any] | None] = {}
    unrecorded: ClassVar[tuple[str, ...]] = ("task",)

    def __init__(
        self,
        estimator: Half | None = None,
        max_false: Annotated[float, number(above=0)] | None = None,
        threshold: Annotated[float, number(above=0.5, most=1)] = 0.8,
        n_pairs: Times = 25,
        n_buckets: Annotated[int, whole(2, most=MOST_TIMES)] = 16,
        random_state: SeedNumber = 0,
        task: Task | None = None,
    ) -> None:
        self.estimator = estimator
        self.max_false = max_false
        self.threshold = threshold
        self.n_pairs = n_pairs
        self.n_buckets = n_buckets
        self.random_state = random_state
        self.task = task

    def check_parameters(self) -> None:
        """Raise `BadParameter` for a parameter out of range, or an estimator that cannot select on halves of rows."""
        super().check_parameters()
        base = self._base()
        base.check_parameters()
        for name in ("half_life", "window"):
            if getattr(base, name) is not None:
                raise BadParameter(f"halves of the rows have no order: use an estimator without {name}")
        if base.degree != 1:
            raise BadParameter("stability selection selects columns, not terms: use an estimator with degree=1")
        if self.n_buckets % 2:
            raise BadParameter(f"n_buckets must be even, got {self.n_buckets}")

    def _base(self) -> PathSelector:
        """Return the estimator of a half, whose model has a number of columns that is given with the half."""
        base: Any = LassoPath() if self.estimator is None else self.estimator
        if isinstance(base, str):
            if base not in METHODS:
                hint = did_you_mean(base, METHODS, f"; known are {', '.join(sorted(METHODS))}")
                raise BadParameter(f"estimator: unknown selection method {base!r}{hint}")
            base = METHODS[base]()
        if not isinstance(base, PathSelector):
            raise BadParameter(f"estimator: {base.method} has no path of models, such as {LassoPath.method} has")
        half: PathSelector = clone(base).set_params(n_features_to_select=None, cv=None, criterion="ebic")
        if "alpha" in half.get_params():
            half.set_params(alpha=None)
        if self.task is not None:
            half.set_params(task=self.task)
        return half

    @property
    def target_task(self) -> Task:
        """The task of this selector, by default that of its estimator."""
        task: Task = self._base().task
        return task

    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the moments of columns and target in buckets."""
        moments = Moments(missing=self._base().missing, classes=self.seen_classes)
        return Folds(moments, int(self.n_buckets), seed=int(self.random_state), groups=self.has_groups)

    def _halves(self, pair: int) -> Any:
        """Return which buckets are in the first half of a pair."""
        seed = derive_seed(int(self.random_state), "halves", pair)
        draws = uniforms(seed, np.arange(self.n_buckets, dtype=np.uint64))
        first = np.zeros(int(self.n_buckets), dtype=bool)
        first[np.argsort(draws, kind="stable")[: int(self.n_buckets) // 2]] = True
        return first

    @property
    def _share(self) -> float:
        """Return ``2 threshold - 1``."""
        return 2.0 * float(self.threshold) - 1.0

    def _n_per_half(self, n_distinct: int) -> int:
        """Return q, the largest number that keeps the bound; by default at most two fifths of the columns."""
        most_false = _MAX_FALSE if self.max_false is None else float(self.max_false)
        # A product such as 0.4 * 10 * 1 may be below 4 by rounding.
        q = int(np.sqrt(self._share * n_distinct * most_false * (1 + 1e-12)))
        if q == 0 and n_distinct > 0 and self.max_false is not None:
            smallest_rate = 1.0 / (self._share * n_distinct)
            raise BadParameter(
                f"max_false = {most_false:g} cannot be kept with {n_distinct} columns that vary and differ: one "
                f"column on each half allows {smallest_rate:.3g} false selections already; set max_false to at least "
                f"{np.ceil(smallest_rate * 1000 - 1e-6) / 1000:g}"
                + (", or raise threshold" if self.threshold < 1 else "")
            )
        # Of few columns, the estimator takes many by chance, and the same on most halves.
        largest = 2 * n_distinct // 5 if self.max_false is None else n_distinct
        return max(min(q, largest), 1)

    def _select(self, summary: Any, n_select: int) -> Selection:
        if summary.n_folds != self.n_buckets:
            # n_buckets is even.
            cure = f"summarize in {self.n_buckets} folds (--folds)" if summary.n_folds % 2 else "set it to match"
            raise BadParameter(f"this summary is in {summary.n_folds} folds, but n_buckets is {self.n_buckets}; {cure}")
        base = self._base()
        everything = reduce(lambda a, b: a.merge(b), (summary[i] for i in range(int(self.n_buckets))))
        n_distinct = design_of(everything, base.task, 1, with_folds=False).problem.n_distinct
        q = self._n_per_half(n_distinct)
        base.set_params(n_features_to_select=q)
        frequency: Floats = np.zeros(summary.n_features)
        n_halves, n_empty = 2 * int(self.n_pairs), 0
        with warnings.catch_warnings():
            # Half of the rows may have one value of the target, or be few.
            ignore_early_warnings()
            for pair in track("stability: pairs of halves", range(int(self.n_pairs)), int(self.n_pairs)):
                first = self._halves(pair)
                for buckets in (np.flatnonzero(first), np.flatnonzero(~first)):
                    half = reduce(lambda a, b: a.merge(b), (summary[int(i)] for i in buckets))
                    if not half.weight > 0:
                        n_empty += 1
                        continue
                    design = design_of(half, base.task, 1, with_folds=False)
                    frequency[base._fit_design(design, q).path.model.support] += 1.0
        if n_empty:
            warn(
                f"{n_empty} of {n_halves} halves of the rows are empty, and select nothing: n_samples = "
                f"{summary.n_rows} is too few for n_buckets = {self.n_buckets}, or too few have a positive weight"
            )
        frequency /= n_halves
        least = 1.0 / (self._share * max(n_distinct, 1))
        self.max_false_ = max(_MAX_FALSE, least) if self.max_false is None else self.max_false
        # It exceeds the requested one by rounding alone.
        self.error_bound_ = min(min(q, n_distinct) ** 2 * least, float(self.max_false_))
        return self._selection(
            summary,
            np.flatnonzero(frequency >= float(self.threshold) - 1e-12).astype(np.int64),
            frequency,
            diagnostics={"expected_false_bound": self.error_bound_},
            estimator=base.method,
            max_false=self.max_false_,
            threshold=float(self.threshold),
            n_per_half=q,
        )
