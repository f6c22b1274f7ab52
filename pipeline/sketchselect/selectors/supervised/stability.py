"""Stability selection: columns that are selected again and again on complementary halves of the rows."""

from __future__ import annotations

import warnings
from functools import reduce
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone

from sketchselect.errors import BadParameter, EmptyInput
from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.hashing import derive_seed, uniforms
from sketchselect.linalg.validation import require_number, require_positive
from sketchselect.readers import Matrix, Vector
from sketchselect.selectors.base import BaseSelector
from sketchselect.selectors.selection import Selection
from sketchselect.selectors.supervised.base import SupervisedSelector, one_column
from sketchselect.selectors.supervised.fit import ConstantColumns, ConstantTarget, FewerColumns, Interpolation
from sketchselect.selectors.supervised.moments import design_of
from sketchselect.selectors.supervised.penalized import LassoPath
from sketchselect.summaries import Folds, Summary


class StabilitySelector(BaseSelector):
    """Select the columns that a supervised selector selects on most halves of the rows; one pass in all.

    The rows are hashed into buckets, and the summary is the moments of each. Half of the buckets, merged, are exactly
    the moments of half of the rows, the others those of the complementary half: the estimator selects q columns on
    each, and a column is selected if it is among them in at least `threshold` of the halves. With p columns that vary,
    the expected number of selected columns that are unrelated to the target is at most ``q^2 / ((2 threshold - 1) p)``
    (``error_bound_``), if such columns are exchangeable and the estimator is no worse than guessing.

    Parameters
    ----------
    estimator : supervised selector, optional
        Selector of each half; `LassoPath` by default. Its choice of the model is replaced by q columns.
    max_false : float, default 1.0
        Bound on the expected number of false selections: q is the largest number that keeps it. A bound below
        ``1 / ((2 threshold - 1) p)``, which no q keeps, is refused.
    threshold : float, default 0.7
        Share of the halves, above 1/2 and at most 1.
    n_pairs : int, default 25
        Pairs of complementary halves.
    n_buckets : int, default 16
        Number of buckets, even; the summary has the moments of each.
    random_state : int, default 0
        Seed of buckets and halves.

    Attributes
    ----------
    scores_ : array of shape (n_features,)
        Share of the halves in which the column was selected.
    error_bound_ : float
        The bound, at most `max_false`, with the mean number of columns selected on the halves as q.

    Notes
    -----
    Source: Meinshausen and Buehlmann 2010, Theorem 1; Shah and Samworth 2013 for complementary pairs.

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
    needs_target: ClassVar[bool] = True
    needs_double: ClassVar[bool] = True

    def __init__(
        self,
        estimator: Any = None,
        max_false: float = 1.0,
        threshold: float = 0.7,
        n_pairs: int = 25,
        n_buckets: int = 16,
        random_state: int = 0,
    ) -> None:
        self.estimator = estimator
        self.max_false = max_false
        self.threshold = threshold
        self.n_pairs = n_pairs
        self.n_buckets = n_buckets
        self.random_state = random_state

    def check_parameters(self) -> None:
        """Raise `BadParameter` for a parameter out of range, or parameters that exclude each other."""
        base = self.estimator
        if base is not None and not isinstance(base, SupervisedSelector):
            kind = type(base).__name__
            raise BadParameter(f"estimator must be a supervised selector such as LassoPath(), got {kind}")
        for name in ("half_life", "window"):
            if getattr(base, name, None) is not None:
                raise BadParameter(f"halves of the rows have no order: use an estimator without {name}")
        for name, low, high in (("max_false", 0.0, np.inf), ("threshold", 0.5, 1.0)):
            require_number(name, getattr(self, name), above=low, most=high)
        for name, least in (("n_pairs", 1), ("n_buckets", 2)):
            require_positive(name, getattr(self, name), least)
        if self.n_buckets % 2:
            raise BadParameter(f"n_buckets must be even, got {self.n_buckets}")

    def _base(self, n_select: int | None = None) -> SupervisedSelector:
        self.check_parameters()
        base: SupervisedSelector = LassoPath() if self.estimator is None else clone(self.estimator)
        base.set_params(n_features_to_select=n_select, cv=None, criterion="ebic")
        if "alpha" in base.get_params():
            base.set_params(alpha=None)
        return base

    def inspect_target(self, y: Vector) -> None:
        """Learn the classes, or check that the target is numeric, as the estimator does."""
        base = self._base()
        base.inspect_target(y)
        self._seen_classes = getattr(base, "_seen_classes", None)

    def _start_stream(self, target: Vector | None, classes: Any) -> None:
        base = self._base()
        base._start_stream(target, classes)
        self._seen_classes = getattr(base, "_seen_classes", None)

    def _open_target(self, y: Any, matrix: Matrix) -> Vector | None:
        return super()._open_target(one_column(y, self._base().task), matrix)

    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the moments of columns and target in buckets."""
        base = self._base()
        base._seen_classes = getattr(self, "_seen_classes", None)
        return Folds(base.summary_description(n_features), int(self.n_buckets), seed=int(self.random_state))

    def _halves(self, pair: int) -> Any:
        """Return which buckets are in the first half of a pair."""
        seed = derive_seed(int(self.random_state), "halves", pair)
        drawn = uniforms(seed, np.arange(self.n_buckets, dtype=np.uint64))
        first = np.zeros(int(self.n_buckets), dtype=bool)
        first[np.argsort(drawn, kind="stable")[: int(self.n_buckets) // 2]] = True
        return first

    @property
    def _share(self) -> float:
        """Return ``2 threshold - 1``."""
        return 2.0 * float(self.threshold) - 1.0

    def _n_per_half(self, n_varying: int) -> int:
        """Return q, the largest number of columns that keeps the bound, among those that vary."""
        # A product such as 0.4 * 10 * 1 may be below 4 by rounding.
        q = int(np.sqrt(self._share * n_varying * float(self.max_false) * (1 + 1e-12)))
        if q == 0 and n_varying > 0:
            least = 1.0 / (self._share * n_varying)
            raise BadParameter(
                f"max_false = {float(self.max_false):g} cannot be kept with {n_varying} columns that vary: one column "
                f"on each half allows {least:.3g} false selections already; set max_false to at least "
                f"{np.ceil(least * 1000 - 1e-6) / 1000:g}" + (", or raise threshold" if self.threshold < 1 else "")
            )
        return min(max(q, 1), max(n_varying, 1))

    def _select(self, summary: Any, n_select: int) -> Selection:
        if summary.n_folds != self.n_buckets:
            raise BadParameter(
                f"this summary is in {summary.n_folds} folds, but n_buckets is {self.n_buckets}; set it to match"
            )
        task, degree = self._base().task, self._base().degree
        if degree != 1:
            raise BadParameter("stability selection selects columns, not terms: use an estimator with degree=1")
        everything = reduce(lambda a, b: a.merge(b), (summary[i] for i in range(int(self.n_buckets))))
        n_varying = int(np.count_nonzero(design_of(everything, task, degree, with_folds=False).problem.active))
        q = self._n_per_half(n_varying)
        base = self._base(q)
        frequency: Floats = np.zeros(summary.n_features)
        sizes = []
        with warnings.catch_warnings():
            # Half of the rows may have one value of the target, or be few.
            for expected in (ConstantTarget, ConstantColumns, FewerColumns, Interpolation):
                warnings.simplefilter("ignore", expected)
            for pair in range(int(self.n_pairs)):
                first = self._halves(pair)
                for buckets in (np.flatnonzero(first), np.flatnonzero(~first)):
                    half = reduce(lambda a, b: a.merge(b), (summary[int(i)] for i in buckets))
                    if not half.weight > 0:
                        raise EmptyInput(
                            f"a half of the rows is empty: n_samples = {summary.n_rows} is too few for n_buckets = "
                            f"{self.n_buckets}, or too few have a positive weight"
                        )
                    design = design_of(half, task, degree, with_folds=False)
                    support = base._fit_design(design, q).path.model.support
                    frequency[support] += 1.0
                    sizes.append(support.size)
        frequency /= len(sizes)
        bound = float(np.mean(sizes)) ** 2 / (self._share * max(n_varying, 1))
        self.error_bound_ = min(bound, float(self.max_false))  # above it by rounding alone
        return Selection(
            method=self.method,
            support=np.flatnonzero(frequency >= float(self.threshold) - 1e-12).astype(np.int64),
            scores=frequency,
            feature_names=summary.feature_names,
            parameters={
                "estimator": base.method,
                "max_false": float(self.max_false),
                "threshold": float(self.threshold),
                "n_pairs": int(self.n_pairs),
                "n_buckets": int(self.n_buckets),
                "n_per_half": q,
                "random_state": int(self.random_state),
            },
            diagnostics={"expected_false_bound": self.error_bound_},
        )
