"""Selection with a bound on the expected share of false columns, by knockoffs drawn from moments."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np

from sketchselect._progress import track
from sketchselect._text import counted, first_few, first_names
from sketchselect.errors import BadParameter, Incompatible, warn
from sketchselect.execution import Source
from sketchselect.linalg.hashing import derive_seed
from sketchselect.linalg.parameters import SeedNumber, Share, Times
from sketchselect.linalg.validation import Floats
from sketchselect.prepare.tables import OneHot
from sketchselect.selectors.base import BaseSelector, Selection
from sketchselect.selectors.supervised.mrmr import one_target
from sketchselect.selectors.supervised.target import GuessedTaskMixin, Task, warn_of_untested
from sketchselect.solvers import Problem, standardize
from sketchselect.solvers.knockoffs import (
    construct,
    draw_fixed,
    draw_model,
    e_value_threshold,
    e_values,
    entry_statistics,
    knockoff_threshold,
    ridge_statistics,
    shrunk_correlation,
)
from sketchselect.summaries import Bundle, Folds, Moments, Summary


class KnockoffSelector(GuessedTaskMixin, BaseSelector):
    """Select columns of which at most a share `fdr` is expected to be false; one pass, also over merged summaries.

    Each column competes with a knockoff, an artificial column with the same correlations that has no part in the
    target. The moments of knockoffs with everything else are drawn from the moments of the rows: no row is read again,
    and files of several sites need only be merged.

    Parameters
    ----------
    fdr : float, default 0.1
        Bound on the expected share of false columns among those selected. At least ``1 / fdr`` columns must be selected
        at once (``2 / fdr`` with several draws), or none is.
    knockoffs : {"auto", "fixed", "model"}
        "fixed": nothing is assumed of the columns, and the target is linear in them, with Gaussian errors of one
        variance; needs ``n_samples >= 2 n_features + 1``, of positive weight. "model": nothing is assumed of the target
        given the columns, and the rows are Gaussian with the covariance estimated from them. "auto": "fixed" for a
        numeric target and enough rows, else "model".
    draws : int, default 1
        Number of draws of knockoffs. A selection by one draw is random: another `random_state` may select other
        columns. By several (25, say) it is stable, from their mean e-values, and takes ``2 / fdr`` columns at once.
    random_state : int, default 0
        Seed of the draws.
    statistic : {"entry", "ridge"}
        What compares a column with its knockoff: "entry" the penalties at which they enter the lasso path; "ridge"
        their coefficients, which is faster and, for few true columns, weaker.
    task : {"auto", "regression", "classification"}
        Whether the target is numbers or classes; by default classes if it is text, truth values, or whole numbers with
        at most 20 distinct values.

    Attributes
    ----------
    statistics_, scores_ : array of shape (n_features,)
        How much more a column says than its knockoff, below 0 if less; with several draws its mean e-value.
    threshold_ : float
        The least statistic that is selected; infinite if none is.

    Raises
    ------
    BadParameter
        For "fixed" with too few rows, or with classes.
    Incompatible
        For moments of missing values, or of products in float32.

    Warns
    -----
    UserWarning
        For a constant target; for columns in a linear relation with others, which no knockoff can tell apart and which
        are never selected; and if there are too few columns for any selection.

    Notes
    -----
    Guarantee: ``E[false / selected] <= fdr`` under the assumptions named at `knockoffs`: exactly for "fixed"; for
    "model" exactly if the covariance is that of the rows' law, else more by at most the error of the estimate.
    Sample weights must be inverse variances of the errors: each row of positive weight is one row for "fixed", and for
    "model" there are `Moments.n_effective` rows.
    Cost after the pass: some p^3 once, and 8 p^3 a draw (the lasso path of 2 p columns).
    Source: Barber and Candes 2015; Candes, Fan, Janson and Lv 2018; Spector and Janson 2022 (gaps); Ren and Barber 2024
    (several draws); Barber, Candes and Samworth 2020 (errors of the covariance); Ledoit and Wolf 2022 (its estimate).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 40))
    >>> y = X[:, :12].sum(axis=1) + rng.standard_normal(500)
    >>> selector = KnockoffSelector(fdr=0.1).fit(X, y)
    >>> set(range(12)) <= set(selector.support_)
    True
    >>> selector.selection_.diagnostics["choice"][:36]
    'of these 15 columns at most 10 % are'
    """

    method: ClassVar[str] = "knockoffs"
    requires: ClassVar[tuple[str, ...]] = ("moments",)
    automatic: ClassVar[dict[str, Any] | None] = {}

    def __init__(
        self,
        fdr: Share = 0.1,
        knockoffs: Literal["auto", "fixed", "model"] = "auto",
        draws: Times = 1,
        random_state: SeedNumber = 0,
        statistic: Literal["entry", "ridge"] = "entry",
        task: Literal["auto"] | Task = "auto",
    ) -> None:
        self.fdr = fdr
        self.knockoffs = knockoffs
        self.draws = draws
        self.random_state = random_state
        self.statistic = statistic
        self.task = task

    def check_parameters(self) -> None:
        """Raise `BadParameter` for a parameter out of range, or fixed knockoffs for classes."""
        super().check_parameters()
        if self.knockoffs == "fixed" and self.task == "classification":
            raise BadParameter(_NOT_FOR_CLASSES)

    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the moments of columns and target."""
        return Moments(classes=self.seen_classes)

    def selecting_nbytes(self, source: Source) -> int:
        """Return the bytes of the construction and of one draw, which are matrices of 2 n_features rows and columns."""
        return 28 * 8 * source.n_columns**2

    def fit_summary(self, summary: Any) -> Self:
        """Select as `BaseSelector.fit_summary` does; folds of moments, where there are no others, are merged first."""
        members = list(summary.values()) if isinstance(summary, Bundle) else [summary]
        folds = [held for held in members if isinstance(held, Folds) and isinstance(held.summary, Moments)]
        if folds and not any(isinstance(held, Moments) for held in members):
            summary = folds[0].total
        return super().fit_summary(summary)

    def _select(self, summary: Any, n_select: int) -> Selection:
        moments = one_target(summary, one_class=self.takes_one_class)
        if moments.single_rounding > 0:
            raise Incompatible(
                "these moments have products in float32, whose rounding no bound on false columns covers; summarise "
                'the rows as float64: open_matrix(..., dtype="float64"), or `sketchselect summarize --for knockoffs`'
            )
        effective = int(moments.n_effective * (1 + 1e-12))
        # Weights are inverse variances: rows of weight 0 do not count, and all others count as they are.
        n = effective if moments.decays else moments.n_weighted_rows
        problem = standardize(
            moments.covariance(), moments.xy, moments.yy, mean=moments.mean, y_mean=moments.y_mean, n=float(n)
        )
        active = np.flatnonzero(problem.active)
        kind = self._kind(moments, n, active.size)
        if kind == "model":
            # The covariance of weighted rows is as close to that of their law as the covariance of so many rows.
            n = effective
        statistics, threshold = np.zeros(moments.n_features), float("inf")
        varies = bool((problem.yy.diagonal() > 0).any())
        warn_of_untested(active.size, moments.n_features, None, constant=not varies)
        if active.size and varies and n > 2:
            statistics[active], threshold = self._statistics(problem, active, kind, n, moments)
        support = np.flatnonzero(statistics >= threshold)
        self.statistics_, self.threshold_ = statistics, threshold
        fdr = float(self.fdr)
        least = int(np.ceil((2.0 if self.draws > 1 else 1.0) / fdr - 1e-9))
        if not support.size:
            choice = f"at fdr = {fdr:g} at least {least} columns must be selected at once; fewer stand out, so none is"
        else:
            choice = (
                f"of {'this column' if support.size == 1 else f'these {support.size} columns'} at most {fdr:.3%}"
                f" are expected to be false, {_CONDITIONS[kind]}"
            ).replace(".000%", " %")
            if kind == "fixed" and moments.n_effective < n * (1 - 1e-9):
                choice = choice.replace("of one variance", "whose variances are inverse to the weights of the rows")
        drawn = f"{counted(int(self.draws), 'draw')}, random_state = {int(self.random_state)}"
        choice += f"; knockoffs are drawn at random ({drawn}), and another seed may select "
        choice += "other columns" if self.draws == 1 else "a few others"
        if self.draws == 1:
            stable = int(np.ceil(2.0 / fdr - 1e-9))
            choice += f": draws = 25 or more make the selection stable, where at least {stable} columns stand out"
        if 0 < active.size < least:
            warn(
                f"fdr = {fdr:g} takes at least {least} columns selected at once, but {active.size} vary: none can be "
                'selected; raise fdr, or take UnivariateSelector(mode="fdr-by")'
            )
        return self._selection(
            summary,
            support,
            statistics,
            diagnostics={"choice": choice, "threshold": threshold if np.isfinite(threshold) else None},
            knockoffs=kind,
            task="regression" if moments.classes is None else "classification",
        )

    def _kind(self, moments: Moments, n: int, n_active: int) -> Literal["fixed", "model"]:
        if self.knockoffs != "fixed":
            enough = moments.classes is None and n >= 2 * n_active + 1
            return "fixed" if self.knockoffs == "auto" and enough else "model"
        if moments.classes is not None:
            raise BadParameter(_NOT_FOR_CLASSES)
        if n < 2 * n_active + 1:
            which = " effective ones" if moments.decays else " of positive weight" if n < moments.n_rows else ""
            raise BadParameter(
                f'knockoffs="fixed" takes at least 2 n_features + 1 = {2 * n_active + 1} rows, got {n}{which}; take '
                '"model", or fewer columns'
            )
        return "fixed"

    def _statistics(
        self, problem: Problem, active: Any, kind: Literal["fixed", "model"], n: int, summary: Moments
    ) -> tuple[Floats, float]:
        """Return the statistics of the columns that vary, and the threshold."""
        correlation = problem.correlation[np.ix_(active, active)]
        xy, yy, freedom = problem.xy[active], problem.yy, n - 1
        if kind == "fixed":
            construction = construct(correlation)
            explained = xy[:, 0] @ np.linalg.lstsq(correlation, xy[:, 0], rcond=1e-9 * active.size)[0]
            rss, left = max(float(yy[0, 0] - explained), 0.0), freedom - active.size
        else:
            construction = construct(shrunk_correlation(correlation, n))
            scatter = np.block([[correlation, xy], [xy.T, yy]]) * freedom
        n_dependent = int(np.count_nonzero(construction.gaps == 0))
        if n_dependent:
            warn(
                f"{n_dependent} columns depend linearly on others and are not selected, because nothing tells them "
                f"apart: columns {_dependent(active[construction.gaps == 0].tolist(), summary)}"
            )

        def draw(i: int) -> Floats:
            seed = derive_seed(int(self.random_state), self.method, i)
            if kind == "fixed":
                moments = draw_fixed(construction, correlation, xy[:, 0], rss, left, seed)
            else:
                moments = draw_model(construction, scatter, active.size, freedom, seed)
            differences = (
                ridge_statistics(moments) if self.statistic == "ridge" else entry_statistics(moments, problem, seed)
            )
            return differences * (construction.gaps > 0)

        n_draws = int(self.draws)
        drawn = [draw(i) for i in track("knockoffs: draws", range(n_draws), n_draws)]
        fdr = float(self.fdr)
        if len(drawn) == 1:
            return drawn[0], knockoff_threshold(drawn[0], fdr)
        # Thresholds at half the rate, so that a column need not be selected in every draw.
        values = np.mean([e_values(statistics, fdr / 2.0) for statistics in drawn], axis=0)
        return values, e_value_threshold(values, fdr)


def _dependent(columns: list[int], moments: Moments) -> str:
    """Return the columns that depend on others by name, where they have names, and what to do about them."""
    names = moments.feature_names
    if names is None:
        return f"{first_few(columns)}; leave out those that repeat others"
    listed = first_names([names[j] for j in columns])
    encoded = any(
        label.partition("#")[0].partition("(")[0] == OneHot.name and "drop=" not in label for label in moments.prepare
    )
    if not encoded or not all("=" in names[j] for j in columns):
        return f"{listed}; leave out those that repeat others"
    texts = list(dict.fromkeys(names[j].partition("=")[0] for j in columns))
    it = "it" if len(texts) == 1 else "each"
    return (
        f"{listed}: the levels of {first_names(texts)}, which add up to 1 in every row; leave {it} out, or one of its "
        f'levels, by the prepare step "{OneHot.name}(drop=first)"'
    )


_NOT_FOR_CLASSES = 'knockoffs="fixed" is for a numeric target with Gaussian errors, not for classes; take "model"'
_CONDITIONS = {
    "fixed": "if the target is linear in the columns, with Gaussian errors of one variance",
    "model": "if the rows are Gaussian with the covariance estimated from them",
}
