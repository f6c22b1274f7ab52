"""Selection by ridge leverage scores: exact from two passes over columns, or bounded from one pass over rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import BadParameter, EmptyInput, Incompatible
from sketchselect.execution import Source, summarize_source
from sketchselect.execution.engine import PassOptions
from sketchselect.linalg.centering import center_rows
from sketchselect.linalg.csr import densify
from sketchselect.linalg.hashing import derive_seed, uniforms
from sketchselect.linalg.leverage import floored, leverage_bounds, ridge_factor, sketched_leverage, tail_ridge
from sketchselect.linalg.panel_columns import PanelDirections
from sketchselect.linalg.parameters import Count, NotNegative, SeedNumber, Size, SketchSize
from sketchselect.linalg.spectrum import (
    About,
    Directions,
    Spectrum,
    column_directions,
    gram_rounding,
    scatter_rounding,
    squares_about,
    symmetric_directions,
)
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import Floats, is_csr
from sketchselect.prepare.steps import Block, Step
from sketchselect.readers import in_double, transposed
from sketchselect.selectors.base import BaseSelector, Selection, rank, sketch_size
from sketchselect.summaries import FrequentDirections, LeverageScores, Moments, Summary, pick


@dataclass(frozen=True, eq=False)
class ColumnMeans(Step):
    """Each row of the transposed matrix, a column, less its mean."""

    name: ClassVar[str] = "column-means"
    acts_on: ClassVar[Literal["rows", "columns"]] = "rows"
    keeps_sparsity = False  # Zeros become what the mean is below zero

    def apply(self, block: Block) -> Block:
        """Return the differences in float64: float32 would round what is left of columns far from zero."""
        return center_rows(densify(block) if is_csr(block) else block)


def point_of(summary: Summary[Any]) -> About:
    """Return the point from which the columns in a summary of columns were measured."""
    return "mean" if ColumnMeans.name in summary.prepare else "zero"


def none_differs(about: About) -> str:
    """Return in words that no column differs from the point that it is measured from."""
    return f"all columns are {'zero' if about == 'zero' else 'constant'}, or too small to be squared (below 1e-160)"


def column_source(source: Source, method: str, about: About | None = None) -> Source:
    """Return the source whose rows are the columns of another, less their means if about these.

    Raises `BadParameter` if the source prepares or weights rows, or has selected columns: that needs whole rows.
    """
    if source.prepare:
        raise BadParameter(
            f"{method}: the step {source.prepare[0].name!r} needs whole rows, but this method reads columns; convert "
            "the data first, or use a method that reads rows"
        )
    if source.weight is not None:
        raise BadParameter(f"{method}: a method that reads columns takes no weights of rows; leave sample_weight out")
    if source.columns is not None:
        raise BadParameter(f"{method}: the source has selected columns; pass the whole matrix")
    steps = (ColumnMeans(),) if about == "mean" else ()
    return replace(source, matrix=transposed(source.matrix), target=None, prepare=steps)


def _bounds(directions: Directions, most: Floats, **known: Any) -> Floats:
    return np.stack(leverage_bounds(directions, most, **known))


def n_columns_seen(indices: NDArray[np.int64]) -> int:
    """Return the number of columns up to the last of these indices, which ascend."""
    return int(indices[-1]) + 1 if indices.size else 0


def names_of_columns(names: tuple[str, ...] | None, n_columns: int) -> tuple[str, ...] | None:
    """Return the names; None unless there is one for each column."""
    return names if names is not None and len(names) == n_columns else None


def scatter_scores(indices: NDArray[np.int64], scores: Floats) -> Floats:
    """Return the scores of columns 0, 1, ...; NaN for columns that were not seen.

    Raises `Incompatible` if a column was seen twice.
    """
    if (np.diff(indices) == 0).any():
        twice = int(indices[:-1][np.diff(indices) == 0][0])
        raise Incompatible(
            f"column {twice} was summarised twice; pass the index of the first column of every band (start)"
        )
    out = np.full(n_columns_seen(indices), np.nan)
    out[indices] = scores
    return out


def priority_sample(intensities: Floats, draws: Floats, n_select: int) -> tuple[NDArray[np.int64], Floats]:
    """Return ``(indices, probabilities)`` of exactly `n_select` items, or of all whose intensity is positive.

    The items of largest ``intensity / draw`` are taken. With t the largest value not among them, an item is taken
    with probability ``min(1, intensity / t)``, so that weights of the inverse are unbiased.
    Source: Duffield, Lund and Thorup 2007 (priority sampling).

    Examples
    --------
    >>> import numpy as np
    >>> priority_sample(np.array([0.5, 0.0, 4.0, 1.0]), np.array([0.5, 0.1, 0.5, 0.25]), 2)[0].tolist()
    [2, 3]
    """
    possible = np.flatnonzero(intensities > 0)
    with np.errstate(over="ignore"):
        priority = intensities[possible] / draws[possible]
    order = np.argsort(-priority, kind="stable")
    sample = np.sort(possible[order[:n_select]])
    if sample.size == possible.size:
        return sample, np.ones(sample.size)
    threshold = float(priority[order[n_select]])
    return sample, np.minimum(1.0, intensities[sample] / threshold)


MOST_ROWS = 8192
"""Most rows for reading columns, which needs n_rows^2 numbers."""


class LeverageSelector(BaseSelector):
    """Select the columns of highest ridge leverage, or a sample of them weighted by 1 / p.

    The score of column a_i of A, the data less the means of their columns, is ``tau_i = a_i'(AA' + ridge I)^-1 a_i``;
    with the ridge "auto", ``||A - A_k||_F^2 / k``, scores sum to at most 2 k and do not depend on the units of A. With
    `about="zero"` A are the data as they are. Read by columns, scores are
    exact but for rounding (eps times the condition number ``||A||_F^2 / ridge``), and the same for any banding, order
    or number of workers. Read by rows, one pass gives bounds, which differ by rounding alone if the sketch is exact (up
    to min(15 sketch_size, 2048) columns); columns are ranked by the upper bound. In both cases
    ``lower <= tau <= upper``, for the ridge in `selection_.diagnostics`. Redundant columns share their leverage, so
    that neither may rank high: of standardised columns those of noise do, which serve clusters worse than columns drawn
    at random (`tests/benchmarks/papers/mean_or_zero.py`). A column that does not vary, with `about="zero"` one of
    zeros, scores 0.

    Parameters
    ----------
    ridge : float or "auto"
        Raised to 1e-12 ||A||_F^2 if smaller, so that 0 gives scores without ridge up to rounding (all 1 if there are
        more independent rows than columns).
    random_state : int
        Seed of the sample; each column index has a fixed random number.
    n_components : int, optional
        k of the ridge; min(10, n_features - 1) by default.
    choice : "top" or "sampled"
        The largest scores, or exactly n_features_to_select columns by priority sampling, with `weights_` that make
        ``CC'`` unbiased: ``E sum_i w_i^2 a_i a_i' = AA'``.
    read : "rows" or "columns"
        One pass over rows, or two over columns: AA', then the scores. Reading columns takes n_rows^2 memory.
    sketch_size : int, optional
        Rows of the sketch for "rows"; min(n_features, max(8 k, 64)) by default.
    about : "mean" or "zero", default "mean"
        The point from which columns are measured, as k-means does not see the mean: with "mean" a number added to a
        column changes nothing. "zero" is the papers' form.

    Attributes
    ----------
    scores_ : array of shape (n_features,)
        Scores, or their upper bounds.
    score_bounds_ : array of shape (2, n_features)
        Lower and upper bounds of the scores.
    weights_ : array of shape (n_selected,)
        With choice="sampled".

    Notes
    -----
    Guarantee: lower <= score <= upper; a sample is unbiased.
    Cost after the pass: a factorisation of the sketch (by rows) or of AA' (by columns), and a product a column.
    Source: Alaoui and Mahoney 2015 (scores); Cohen, Musco and Musco 2017 (the ridge, with which a sample of O(k log k)
    columns keeps every k-means objective within 1 + eps); the baseline "LevS" of Wang, Shen and Li 2018.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((50, 8)) * np.array([9, 1, 1, 7, 1, 1, 8, 1])
    >>> chosen = LeverageSelector(3, n_components=3).fit(X)
    >>> chosen.support_.tolist(), bool(chosen.scores_.sum() <= 6)
    ([0, 3, 6], True)
    """

    method: ClassVar[str] = "leverage"
    auto_priority: ClassVar[int | None] = 5
    is_nested: ClassVar[bool] = True
    requires: ClassVar[tuple[str, ...]] = ("leverage-scores", "frequent-directions", "moments")
    has_weights: ClassVar[bool] = True
    selects_in_panels: ClassVar[bool] = True
    unrecorded: ClassVar[tuple[str, ...]] = ("read", "sketch_size")

    def __init__(
        self,
        n_features_to_select: Size | None = None,
        ridge: NotNegative | Literal["auto"] = "auto",
        random_state: SeedNumber = 0,
        n_components: Count | None = None,
        choice: Literal["top", "sampled"] = "top",
        read: Literal["rows", "columns"] = "rows",
        sketch_size: SketchSize | None = None,
        about: About = "mean",
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.ridge = ridge
        self.random_state = random_state
        self.n_components = n_components
        self.choice = choice
        self.read = read
        self.sketch_size = sketch_size
        self.about: About = about

    def _components(self, n_features: int) -> int:
        return max(min(10, n_features - 1), 1) if self.n_components is None else int(self.n_components)

    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the sketch for one pass over rows."""
        return FrequentDirections(self.sketch_size or sketch_size(n_features, self._components(n_features)))

    @property
    def reads_columns(self) -> bool:
        """Whether the passes are over columns."""
        return self.read == "columns"

    @property
    def makes_passes(self) -> bool:
        """Whether the passes are over columns."""
        return self.reads_columns

    def selecting_nbytes(self, source: Source) -> int:
        """Return the bytes of AA', of its eigenvectors and of what LAPACK needs, where columns are read."""
        return 7 * 8 * source.matrix.shape[0] ** 2 if self.reads_columns else 0

    def single_pass(self, source: Source) -> tuple[Source, Summary[Any]] | None:
        """Return the pass over the rows; None where columns are read."""
        return super().single_pass(source) if self.read == "rows" else None

    def collect_source(self, source: Source, options: PassOptions) -> Summary[Any]:
        """Return the sketch of the rows, or the scores of two passes over columns."""
        if self.read == "rows":
            return super().collect_source(source, options)
        columns = column_source(source, self.method, self.about)
        n_rows, n_columns = source.matrix.shape
        if n_rows > MOST_ROWS:
            raise BadParameter(
                f"{source.matrix.address}: {n_rows} rows are too many for the {n_rows} x {n_rows} matrix that reading "
                f'columns needs (at most {MOST_ROWS}); set read="rows"'
            )
        # In float64: eigenvalues of AA' down to the ridge, 1e-12 of the largest, count.
        wide = replace(columns, matrix=in_double(columns.matrix))
        first = summarize_source(wide, Moments(), options, stage="columns")
        with one_blas_thread():
            scatter = first.value.gram()  # type: ignore[attr-defined]
            norm = float(scatter.trace())
            if self.ridge == "auto":
                ridge = tail_ridge(symmetric_directions(scatter), norm, 0.0, self._components(n_columns))
            else:
                ridge = floored(float(self.ridge), norm)
            description = LeverageScores(ridge_factor(scatter, ridge), ridge)
        second = summarize_source(columns, description, options, stage="scores")
        return second.value.with_context(prepare=columns.prepare_labels, feature_names=source.matrix.feature_names)

    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, *, sample_weight: Any = None, **unknown: Any
    ) -> Self:
        """Add a batch of rows; see `BaseSelector.partial_fit`. Only where rows are read."""
        if self.read != "rows" or isinstance(getattr(self, "summary_", None), LeverageScores):
            raise BadParameter('partial_fit adds rows, but read="columns" makes passes over columns; set read="rows"')
        return super().partial_fit(X, y, classes, sample_weight=sample_weight, **unknown)

    def fit_summary(self, summary: Any) -> Self:
        """Select from a sketch, moments or scores; see `BaseSelector.fit_summary`."""
        self.check_parameters()
        summary = pick(summary, *self.requires)
        if not isinstance(summary, LeverageScores):
            return super().fit_summary(summary)
        self._take_summary(summary, n_columns_seen(summary.seen))
        return self._finish(names_of_columns(summary.feature_names, self.n_features_in_))

    def _scores_and_bounds(self, summary: Any) -> tuple[Floats, Floats, Floats, float]:
        """Return the scores, lower and upper bounds of the exact ones, and the ridge."""
        if isinstance(summary, LeverageScores):
            scores = scatter_scores(summary.seen, summary.scores)
            rounding = summary.relative_error * scores
            return scores, np.maximum(scores - rounding, 0.0), np.minimum(scores + rounding, 1.0), summary.ridge
        spectrum: Spectrum = summary
        directions, squares = column_directions(spectrum, self.about), squares_about(spectrum, self.about)
        shrinkage, error = spectrum.shrinkage, spectrum.single_rounding
        ridge = self._ridge(directions, float(squares.sum()), shrinkage, squares.size, error)
        bounded, most = directions, squares
        if self.about == "mean":
            # Far from zero the rounding of the means is far more than that of the largest eigenvalue.
            error += gram_rounding(spectrum)
            most = spectrum.centered_column_squared_norms + scatter_rounding(spectrum)
            bounded = directions if isinstance(directions, PanelDirections) else spectrum.centered_directions
        bounds = partial(_bounds, shrinkage=shrinkage, ridge=ridge, error=error, n_columns=squares.size)
        lower, upper = bounded.apply(bounds, most)
        if shrinkage:
            return upper, lower, upper, ridge
        # Without shrinkage the bounds differ by rounding alone.
        scores = np.clip(directions.apply(partial(sketched_leverage, ridge=ridge)), lower, upper)
        return scores, lower, upper, ridge

    def _ridge(
        self, directions: Directions | PanelDirections, norm: float, shrinkage: float, n_features: int, error: float
    ) -> float:
        if self.ridge != "auto":
            return floored(float(self.ridge), norm)
        return tail_ridge(directions, norm, shrinkage, self._components(n_features), error if shrinkage else 0.0)

    def _select(self, summary: Any, n_select: int) -> Selection:
        about = point_of(summary) if isinstance(summary, LeverageScores) else self.about
        scores, lower, upper, ridge = self._scores_and_bounds(summary)
        differ = bool((scores > 0).any())
        if isinstance(summary, LeverageScores) and not differ:
            raise EmptyInput(f"{none_differs(about)}: there is nothing to select")
        self.score_bounds_ = np.stack([lower, upper])
        weights = None
        if self.choice == "top" or not differ:
            support = np.sort(rank(scores)[:n_select])
            weights = None if self.choice == "top" else np.ones(support.size)
        else:
            draws = uniforms(derive_seed(self.random_state, self.method), np.arange(upper.size, dtype=np.uint64))
            support, shares = priority_sample(np.nan_to_num(scores), draws, n_select)
            weights = np.asarray(1.0 / np.sqrt(shares))
        is_chosen = np.zeros(upper.size, dtype=bool)
        is_chosen[support] = True
        return self._selection(
            summary,
            support,
            scores,
            weights=weights,
            diagnostics={
                "ridge": ridge,
                "sum_of_scores": float(np.nansum(scores)),
                "sum_of_dropped_scores": float(np.nansum(scores[~is_chosen])),
                "largest_gap_of_bounds": float(np.nanmax(upper - lower)),
            },
            n_features_to_select=n_select,
            n_components=self._components(upper.size),
            about=about,
        )
