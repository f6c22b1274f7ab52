"""Online selection by ridge leverage over a stream of columns (Wang, Shen and Li 2018, Algorithm 1)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self, Unpack, cast

import numpy as np

from sketchselect._byte_sizes import format_bytes
from sketchselect.errors import BadParameter, EmptyInput, Incompatible, WillNotFit, warn
from sketchselect.execution import Engine, Source, summarize_source
from sketchselect.execution.client import check_batch
from sketchselect.execution.engine import FitKeywords, PassOptions, require_unchanged, source_identities
from sketchselect.execution.plan import library_nbytes
from sketchselect.linalg.leverage import column_error, spectral_error
from sketchselect.linalg.parameters import NotNegative, SeedNumber, Share, Size, number
from sketchselect.linalg.spectrum import About, directions_about
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.readers import DEFAULT_PARTITION_BYTES, Matrix, row_partitions
from sketchselect.selectors.base import BaseSelector, Selection
from sketchselect.selectors.leverage import (
    column_source,
    n_columns_seen,
    names_of_columns,
    none_differs,
    point_of,
    priority_sample,
    scatter_scores,
)
from sketchselect.summaries import Bundle, FrequentDirections, LeverageSample, Summary, pick
from sketchselect.summaries.frequent_directions import EXACT_COLUMNS, EXACT_COLUMNS_PER_ROW

_OF_A_STREAM = ("summary_", "_sketch", "n_features_in_", "feature_names_in_")

SKETCH_SIZE = 128
"""Rows of the sketch that measures the error if there are more than 2,048 rows and columns."""


class OnlineLeverageSelector(BaseSelector):
    """Sample columns as they arrive, each with a probability proportional to its ridge leverage, weighted by 1 / p.

    With A the data (n rows), less the means of its columns, and C the sampled columns of A times `weights_`, the
    realised error `eps_` is the least eps with

        (1 - eps) AA' - eps ridge I  <=  CC'  <=  (1 + eps) AA' + eps ridge I

    With ``sampling_rate="paper"`` it is at most `eps` with probability ``1 - 2 / (n + 1)^2`` over `random_state`, as
    `LeverageSample` states; at the default rate it is unknown until measured. K-means on C is then within
    ``(1 + eps_) / (1 - eps_)`` of the best, apart from the ridge. A column scores high if the columns in the sample do
    not explain it, so that redundant ones are rarely both selected. A pass over a store samples partitions of columns
    and merges the samples (`LeverageSample`), with the same bits for the same partitions on any engine. `partial_fit`
    takes the next columns of the stream.

    The paper's constants select *every* column unless there are many more than ``8 n log n / eps^2``: all
    columns of its six data sets. A warning says so; then set n_features_to_select, a smaller sampling_rate, or a larger
    ridge.

    Parameters
    ----------
    n_features_to_select : int, optional
        Most columns: a priority sample of the sampled columns, with its weights. None: all sampled columns.
    eps : float
        Accuracy, between 0 and 1.
    sampling_rate : float, "paper" or None
        c; None is 3 log n, "paper" is 8 log n / eps^2, for which the guarantee holds.
    ridge : float or "auto"
        "auto": 0.001 times the squared norm of the columns seen, fixed per partition. 0 is the paper's form, in which a
        column outside the span of the others is sampled with certainty.
    random_state : int
        Seed; each column index has a fixed random number.
    about : "mean" or "zero", default "mean"
        The point from which columns are measured, each when it arrives, as k-means does not see the mean. "zero" is the
        paper's form.

    Attributes
    ----------
    weights_ : array of shape (n_selected,)
        ``1 / sqrt(p)`` of each selected column.
    scores_ : array of shape (n_features,)
        Leverage of each column against the sample when it was last scored, at most 1.
    eps_ : float
        Realised error: the least e for which the two inequalities hold with e in place of eps (for all sampled columns,
        before n_features_to_select); exact with at most 2,048 rows or, in `fit`, columns, otherwise an upper bound from
        a sketch.

    Notes
    -----
    Guarantee: the error of the sample is measured (`eps_`); with the paper's rate it is at most `eps`,
    with probability ``1 - 2 / (n + 1)^2``.
    Source: Wang, Shen and Li, ICML 2018, Algorithm 1; with a ridge as in Cohen, Musco and Pachocki 2016, without which
    the printed form selects nothing (the pseudo-inverse gives columns outside the span the score 0).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((20, 4)) @ rng.standard_normal((4, 3000))
    >>> chosen = OnlineLeverageSelector().fit(X)
    >>> len(chosen.support_) < 1500, chosen.eps_ < 0.5
    (True, True)
    """

    method: ClassVar[str] = "online-leverage"
    requires: ClassVar[tuple[str, ...]] = ("leverage-sample",)
    axis: ClassVar[Literal["rows", "columns"]] = "columns"
    has_weights: ClassVar[bool] = True

    def __init__(
        self,
        n_features_to_select: Size | None = None,
        eps: Share = 0.5,
        sampling_rate: Annotated[float, number(above=0)] | Literal["paper"] | None = None,
        ridge: NotNegative | Literal["auto"] = "auto",
        random_state: SeedNumber = 0,
        about: About = "mean",
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.about: About = about
        self.eps = eps
        self.sampling_rate = sampling_rate
        self.ridge = ridge
        self.random_state = random_state

    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the sample of columns; it summarises the transposed matrix."""
        return self._sample()

    def _sample(self) -> LeverageSample:
        return LeverageSample(self.eps, self.sampling_rate, self.ridge, int(self.random_state))

    def single_pass(self, source: Source) -> tuple[Source, Summary[Any]] | None:
        """Return None: columns are read, and rows where that is needed to measure the error."""
        return None

    def collect_source(self, source: Source, options: PassOptions) -> Summary[Any]:
        """Return the merged sample of all columns with its measured error.

        One pass over columns; a second one, over rows, measures the error if there are more than 2,048 rows but not
        more columns than that.
        """
        self._sketch: FrequentDirections | None = None
        n_rows, n_columns = source.matrix.shape
        by_rows = n_rows > EXACT_COLUMNS >= n_columns
        columns = column_source(source, self.method, self.about)
        _require_memory(self._sample(), n_rows, n_columns, options.engine, source.matrix.address)
        description: Summary[Any] = self._sample()
        if not by_rows:
            description = Bundle(sample=description, sketch=_sketch(n_rows))
        result = summarize_source(columns, description, options, stage="columns")
        sample = cast(LeverageSample, pick(result.value, LeverageSample.kind))
        if not sample.squared_norm > 0:
            raise EmptyInput(f"{none_differs(self.about)}: there is nothing to select")
        if by_rows:
            second = summarize_source(source, _sketch(n_columns), options, stage="error")
            weights = np.zeros(n_columns)
            weights[sample.items] = 1.0 / sample.probabilities
            with one_blas_thread():
                gram = directions_about(cast(FrequentDirections, second.value), self.about)
                sample = sample.measured(column_error(weights, gram, sample.final_ridge))
        else:
            self._sketch = cast(FrequentDirections, pick(result.value, FrequentDirections.kind))
            sample = _measured(sample, self._sketch)
        return sample.with_context(prepare=columns.prepare_labels, feature_names=source.matrix.feature_names)

    def fit(self, X: Any, y: Any = None, **run: Unpack[FitKeywords]) -> Self:  # type: ignore[override]
        """Read X by columns and select; see `BaseSelector.fit`. Warns if every column is selected.

        Rows have no weights: a score is that of a whole column.
        """
        super().fit(X, y, **run)
        self._judge_all_columns()
        return self

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, **unknown: Any) -> Self:
        """Add the next columns of the stream, with all their rows, and select again.

        New columns are scored against the sample (`LeverageSample.update`). `eps_` is measured on first access.

        Parameters
        ----------
        X : anything `open_matrix` takes, of shape (n_rows, n_new_columns)
            Its rows are those of the earlier columns.
        y, classes
            y is ignored, as scikit-learn's pipelines expect; classes must be None.
        """
        check_batch(unknown)
        if classes is not None:
            raise BadParameter("a stream of columns has no classes; leave the argument out")
        self.check_parameters()
        sample, sketch = getattr(self, "summary_", None), getattr(self, "_sketch", None)
        before = {name: getattr(self, name) for name in _OF_A_STREAM if hasattr(self, name)}
        try:
            matrix = self._open(X, reset=True)
            n_rows, n_new = matrix.shape
            source = column_source(Source(matrix), self.method, self.about)
            if sample is None:
                sample = self._sample().empty(n_rows).with_context(prepare=source.prepare_labels, feature_names=None)
                sketch = _sketch(n_rows).empty(n_rows)
            self._require_stream(sample, n_rows, matrix.address)
            n_rows_before = sample.n_rows
            names = None if n_rows_before and sample.feature_names is None else self._new_names(matrix)
            at_first = source_identities(source)
            for a, b in pairwise(row_partitions(source.matrix, DEFAULT_PARTITION_BYTES).edges):
                columns = source.block(a, b).values
                sample = sample.update(columns, start=n_rows_before + a, prepare=sample.prepare)
                sketch = None if sketch is None else sketch.update(columns, prepare=sketch.prepare)
            require_unchanged(at_first, source)
            self._forget_names()
            self.n_features_in_ = n_rows_before + n_new
            if names is not None:
                names = (*(sample.feature_names or ()), *names)
            # The error is measured on access: that takes far longer than a column.
            self._sketch = sketch
            self.summary_ = sample.with_context(prepare=source.prepare_labels, feature_names=names)
            return self._finish(names)
        except BaseException:
            # A batch that is refused leaves the stream as it was, so that it can be passed again.
            for name in _OF_A_STREAM:
                self.__dict__.pop(name, None)
            self.__dict__.update(before)
            raise

    def _require_stream(self, sample: LeverageSample, n_rows: int, address: str) -> None:
        """Raise unless columns of `n_rows` values fit the stream, and the parameters are the same."""
        if n_rows != sample.n_features:
            raise BadParameter(
                f"{address}: columns of {n_rows} rows, but the columns before have {sample.n_features}; pass all rows "
                "of the new columns"
            )
        if point_of(sample) != self.about:
            raise Incompatible(
                f'the columns seen so far were measured about {point_of(sample)}, but about is "{self.about}"; set it '
                "to match, or start a new selector"
            )
        self._sample().empty(n_rows).require_mergeable(sample.with_context(prepare=(), feature_names=None))

    def _new_names(self, matrix: Matrix) -> tuple[str, ...] | None:
        """Return the names of a batch of columns; a data frame's were recorded when it was opened."""
        if hasattr(self, "feature_names_in_"):
            return tuple(map(str, self.feature_names_in_))
        return matrix.feature_names

    def fit_summary(self, summary: Any) -> Self:
        """Select from a `LeverageSample` of columns; see `BaseSelector.fit_summary`."""
        self.check_parameters()
        sample = cast(LeverageSample, pick(summary, *self.requires))
        self._sketch = None
        self._take_summary(sample, n_columns_seen(sample.seen))
        self._finish(names_of_columns(sample.feature_names, self.n_features_in_))
        self._judge_all_columns()
        return self

    def _judge_all_columns(self) -> None:
        """Warn if every column was sampled, as with the paper's constants unless there are very many columns.

        Streams are not checked: later columns may differ, and zeros alone are no reason to stop a stream.
        """
        sample = cast(LeverageSample, self.summary_)
        if not sample.squared_norm > 0:
            raise EmptyInput(f"{none_differs(point_of(sample))}: there is nothing to select")
        if self.support_.size == 0:
            raise EmptyInput(
                f"no column was sampled: the squares of all values sum to {sample.squared_norm:.3g}, and the ridge is "
                f"{sample.final_ridge:.3g}; set a smaller ridge or a larger sampling_rate, and scale values below "
                "1e-150 up"
            )
        n_nonzero = np.count_nonzero(self.scores_ > 0)
        if self.n_features_to_select is None and self.support_.size == n_nonzero > 1:
            rate = self.selection_.parameters["sampling_rate"]
            warn(
                f"every one of the {self.scores_.size} columns was selected: some are left out only if there are many "
                f"more than {rate:.3g} (the sampling rate) x the {self.summary_.n_features} rows (or their rank); set "
                "n_features_to_select, a smaller sampling_rate or a larger ridge, or use LeverageSelector"
            )

    @property
    def eps_(self) -> float:
        """Realised error; NaN if it is not known (after `fit_summary` of a sample without a measured error)."""
        if not hasattr(self, "selection_"):
            raise AttributeError("eps_ is available after fit")
        sample, sketch = cast(LeverageSample, self.summary_), getattr(self, "_sketch", None)
        if np.isnan(sample.error) and sketch is not None:
            self.summary_ = sample = _measured(sample, sketch)
            diagnostics = self.selection_.diagnostics | {"spectral_error": sample.error}
            self.selection_ = replace(self.selection_, diagnostics=diagnostics)
        return sample.error

    def _n_select(self, n_features: int) -> int:
        return n_features if self.n_features_to_select is None else super()._n_select(n_features)

    def _select(self, summary: LeverageSample, n_select: int) -> Selection:
        scores = scatter_scores(summary.seen, summary.scores)
        items, probabilities = summary.items, summary.probabilities
        if items.size > n_select:
            columns, shares = priority_sample(summary.intensities, summary.draws, n_select)
            items, probabilities = items[columns], shares
        elif self.n_features_to_select is not None and items.size < n_select:
            warn(
                f"{items.size} columns were sampled, fewer than n_features_to_select = {n_select}; raise "
                "sampling_rate for more"
            )
        rate = summary.rate(summary.n_features)
        return self._selection(
            summary,
            items,
            scores,
            weights=np.asarray(1.0 / np.sqrt(probabilities)),
            diagnostics={
                "ridge": summary.final_ridge,
                "spectral_error": None if np.isnan(summary.error) else summary.error,
                "n_kept": summary.n_kept,
                "kept_share_of_squared_norm": float(np.einsum("ij,ij->", summary.sample, summary.sample))
                / (summary.squared_norm or 1.0),
            },
            eps=summary.eps,
            sampling_rate=rate,
            ridge=summary.ridge,
            random_state=summary.seed,
            about=point_of(summary),
        )


def _require_memory(sample: LeverageSample, n_rows: int, n_columns: int, engine: Engine, address: str) -> None:
    """Raise `WillNotFit` if the columns that may be sampled, some of them copied by a merge, exceed the limit."""
    limit = engine.memory_limit
    most = min(n_columns, 2 * sample.most_rows(n_rows))
    # Disjoint samples wait for one another; each merge stacks two, scales them and copies the new sample.
    columns = min(n_columns, 8 * most) + 4 * engine.slots_per_process * most
    nbytes = library_nbytes(engine.kind) + 8 * (n_rows + 4) * columns
    if limit is not None and nbytes > limit:
        raise WillNotFit(
            f"{address}: at sampling rate {sample.rate(n_rows):.3g} up to {most} columns of {n_rows} values may be "
            f"sampled, and merging them can take {format_bytes(nbytes)} per process; the limit is "
            f"{format_bytes(limit)}. Raise memory_limit, lower sampling_rate, or use a larger ridge or eps"
        )


def _sketch(n: int) -> FrequentDirections:
    """Return a sketch of vectors of length n: exact up to 2,048."""
    if n <= EXACT_COLUMNS:
        return FrequentDirections(size=max(2, -(-n // EXACT_COLUMNS_PER_ROW)))
    return FrequentDirections(size=SKETCH_SIZE)


def _measured(sample: LeverageSample, sketch: FrequentDirections) -> LeverageSample:
    """Return the sample with its error, measured against a sketch of all columns."""
    with one_blas_thread():
        return sample.measured(
            spectral_error(
                sample.sample, sketch.directions, sketch.shrinkage, sample.final_ridge, sketch.single_rounding
            )
        )
