"""Base class of all selectors, a scikit-learn transformer around one pure function ``summary -> Selection``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from itertools import compress
from typing import Any, ClassVar, Literal, Self, Unpack

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from sketchselect import prepare
from sketchselect._byte_sizes import format_bytes
from sketchselect._memory import available_nbytes
from sketchselect._progress import make_progress, reporting_steps
from sketchselect._sklearn import BaseEstimator, SelectorMixin, as_configured, check_is_fitted
from sketchselect._text import counted, html_table, number
from sketchselect.errors import BadParameter, DamagedFile, EmptyInput, Incompatible, NoData, WillNotFit, warn
from sketchselect.execution import Block, Source, summarize_source
from sketchselect.execution.api import delayed_summary
from sketchselect.execution.client import check_batch, check_run, fit_options, run_options
from sketchselect.execution.engine import (
    PassOptions,
    PreparedKeywords,
    RunKeywords,
    map_blocks,
    require_unchanged,
    source_identities,
)
from sketchselect.execution.estimators import UserEstimator, with_callbacks
from sketchselect.execution.summarize import fitted_source
from sketchselect.linalg.csr import take_columns, varying_columns, with_wide_sums
from sketchselect.linalg.parameters import check_declared, inherit_parameters
from sketchselect.linalg.spectrum import About, constant_columns, share_of_the_mean
from sketchselect.linalg.validation import Floats, is_csr
from sketchselect.plots import SelectionScoresDisplay
from sketchselect.readers import DEFAULT_PARTITION_BYTES, Matrix, Vector, open_vector, row_partitions
from sketchselect.readers.arrays import is_anndata, is_xarray, variable_of
from sketchselect.readers.base import Nonfinite
from sketchselect.readers.dask import as_graph
from sketchselect.readers.opening import is_array_like, open_features, require_same_names, require_width
from sketchselect.summaries import RowSample, Summary, pick
from sketchselect.summaries.base import KINDS
from sketchselect.summaries.frequent_directions import PanelledDirections
from sketchselect.summaries.moment_panels import is_wide_sketch
from sketchselect.summaries.window import SlidingWindow

MOST_LISTED = 20  # Selected columns in a notebook's table


def all_alike(summary: Any, about: About) -> bool:
    """Return whether a summary shows that every column is constant, but for rounding, or zero."""
    if isinstance(summary, Mapping):
        return any(all_alike(member, about) for member in summary.values())
    whole = getattr(summary, "total", summary)
    if not np.max(getattr(whole, "weight", 0.0), initial=0.0) > 0:
        return False
    if isinstance(whole, RowSample):
        return whole.n_kept > 0 and whole.threshold == np.inf and not varying_columns(whole.rows).any()
    if about == "zero":
        return hasattr(whole, "column_squared_norms") and not whole.column_squared_norms.any()
    return hasattr(whole, "centered_column_squared_norms") and bool(constant_columns(whole).all())


@dataclass(frozen=True)
class Selection:
    """Selected columns, with the scores of all columns and the method.

    Parameters
    ----------
    method : str
        Name of the method, as in a job file.
    support : array of int, shape (n_selected,)
        Column indices, ascending.
    scores : array of float, shape (n_features,)
        One score per column, larger is better; NaN ranks last.
    weights : array of float, shape (n_selected,), or None
        Factor of each selected column in the method's guarantee; None for methods without.
    feature_names : tuple of str or None
        Names of all columns.
    parameters : dict
        The method's parameters, resolved.
    diagnostics : dict
        Numbers on the reliability of the scores.
    prepare : tuple of str
        Labels of the steps that the rows went through first; prepare rows for clustering in the same way.
    applied : str
        The same in words, and the point from which the method measures columns, if it has one.
    columns : dict of str to array of float, shape (n_features,)
        Further numbers of every column, such as p-values; further columns of ``scores.csv``.

    Examples
    --------
    >>> import sketchselect as sks
    >>> from sklearn.datasets import make_blobs
    >>> X, _ = make_blobs(200, 6, centers=3, random_state=0)
    >>> selection = sks.GreedySelector(2).fit(X).selection_
    >>> selection.method, selection.support.size, selection.scores.shape
    ('greedy', 2, (6,))
    """

    method: str
    support: NDArray[np.int64]
    scores: Floats
    weights: Floats | None = None
    feature_names: tuple[str, ...] | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    diagnostics: dict[str, Any] = field(default_factory=dict)
    prepare: tuple[str, ...] = ()
    applied: str = ""
    columns: dict[str, Floats] = field(default_factory=dict)

    def __repr__(self) -> str:
        part = "all" if 1 < self.support.size == self.scores.size else f"{self.support.size} of"
        return f"<Selection of {part} {counted(self.scores.size, 'column')} by {self.method}>"

    def plot(self, ax: Any = None) -> Any:
        """Draw the scores of all columns on `ax` (new axes by default); return the axes."""
        return SelectionScoresDisplay.from_selection(self, ax=ax).ax_

    def _repr_html_(self) -> str:
        order = [int(j) for j in self.ranking() if j in set(self.support.tolist())][:MOST_LISTED]
        names = self.feature_names
        rows = [[j, *(() if names is None else (names[j],)), number(float(self.scores[j]))] for j in order]
        header = ["column", *(() if names is None else ("name",)), "score"]
        left_off = self.support.size - len(rows)
        if left_off:
            rows.append([f"{left_off} more", *[""] * (len(header) - 1)])
        choice = self.diagnostics.get("choice")
        return html_table(f"{repr(self)[1:-1]}. {choice}" if choice else repr(self)[1:-1], rows, header)

    def ranking(self) -> NDArray[np.int64]:
        """Return all columns, best score first; NaN last, ties by the lowest index."""
        return rank(self.scores)

    def to_dict(self) -> dict[str, Any]:
        """Return the selection as JSON values: no time, path or run id, NaN as null."""
        return {
            "method": self.method,
            "support": [int(j) for j in self.support],
            "scores": _jsonable(self.scores),
            "weights": None if self.weights is None else _jsonable(self.weights),
            "feature_names": None if self.feature_names is None else list(self.feature_names),
            "parameters": {k: self.parameters[k] for k in sorted(self.parameters)},
            "diagnostics": {k: self.diagnostics[k] for k in sorted(self.diagnostics)},
            "prepare": list(self.prepare),
            "applied": self.applied,
            **({"columns": {k: _jsonable(v) for k, v in sorted(self.columns.items())}} if self.columns else {}),
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Selection:
        """Return the selection of a `to_dict`; raise `DamagedFile` naming the missing or wrong key."""
        for key in ("method", "support", "scores"):
            if key not in content:
                raise DamagedFile(f"this is not a selection: the key {key!r} is missing")
        scores = _from_json(content["scores"])
        support = np.array(content["support"], dtype=np.int64)
        if support.size and not (support.min() >= 0 and support.max() < scores.size and (np.diff(support) > 0).all()):
            raise DamagedFile("the selection's support must be ascending column indices below the number of scores")
        weights, names = content.get("weights"), content.get("feature_names")
        return cls(
            method=str(content["method"]),
            support=support,
            scores=scores,
            weights=None if weights is None else np.array(weights, dtype=np.float64),
            feature_names=None if names is None else tuple(names),
            parameters=dict(content.get("parameters", {})),
            diagnostics=dict(content.get("diagnostics", {})),
            prepare=tuple(content.get("prepare", ())),
            applied=str(content.get("applied", "")),
            columns={name: _from_json(values) for name, values in content.get("columns", {}).items()},
        )


def in_words(steps: Sequence[str], about: About | None) -> str:
    """Return what was applied to the rows, and the point from which columns are measured.

    Examples
    --------
    >>> in_words(("impute#00be1f0393", "l2"), "mean"), in_words((), None)
    ('rows prepared by impute, l2; columns about their means', 'rows as they are')
    """
    # After the "#" of a label is a digest of what the step was fitted to.
    names = ", ".join(label.partition("#")[0] for label in steps)
    rows = f"rows prepared by {names}" if steps else "rows as they are"
    return rows + {"mean": "; columns about their means", "zero": "; columns about zero", None: ""}[about]


def rank(scores: Floats) -> NDArray[np.int64]:
    """Return the order of scores from best to worst; NaN last, ties by the lowest index."""
    return np.argsort(-scores, kind="stable")


def _jsonable(values: Floats) -> list[float | None]:
    return [float(v) if np.isfinite(v) else None for v in values]


def _from_json(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


PARALLEL = 0.95
"""Share of all squares that the mean has from which on rows of unit length are called nearly parallel."""

ALL_EQUAL = 1e-6 * float(np.finfo(np.float64).eps) ** 2
"""Largest scatter, divided by the weight, of rows of unit length that are all equal: the rounding of a rounding."""

WHOLE_FACTOR = 40
"""Bytes that selecting takes for each entry of a sketch whose panels are put together."""

GONE = (
    "the workers that held the panels of this sketch ended with the fit, and this process had no room for it; give fit "
    "a Client that stays open"
)


def require_names(seen: tuple[str, ...] | None, matrix: Matrix) -> None:
    """Raise `Incompatible`, naming the column, if a batch's columns have other names than those of the stream."""
    names = matrix.feature_names
    if seen is None or names is None or seen == names:
        return
    j = next(i for i, (a, b) in enumerate(zip(seen, names, strict=True)) if a != b)
    raise Incompatible(
        f"{matrix.address}: column {j} is named {names[j]!r}, but {seen[j]!r} in the rows seen so far; bring the "
        "columns into the same order"
    )


def chosen_columns(support: NDArray[np.int64], block: Block) -> Any:
    """Return the selected columns of a block."""
    return take_columns(block.values, support) if is_csr(block.values) else block.values[:, support]


def as_count(n_select: float, n_features: int) -> int:
    """Return a number of columns; a value below 1 is a share."""
    return max(int(n_select * n_features), 1) if n_select < 1 else int(n_select)


def sketch_size(n_features: int, n_components: int) -> int:
    """Return the default number of rows of a sketch: min(n_features, max(8 k, 64)), at least k + 1."""
    return max(min(n_features, max(8 * n_components, 64)), n_components + 1, 2)


def require_more_rows(sketch: int, k: int, name: str = "n_components") -> None:
    """Raise `BadParameter` unless a sketch of this many rows has k directions."""
    if sketch <= k:
        raise BadParameter(f"sketch_size ({sketch}) must exceed {name} ({k}): a sketch has size - 1 directions")


def require_directions(size: int | None, k: int, name: str = "n_components") -> None:
    """Raise `BadParameter` if the sketch of a summary, of this many rows, has fewer than k directions."""
    if size is not None and size <= k:
        raise BadParameter(
            f"{name} = {k}, but a sketch of size {size} has only {size - 1} directions; lower {name}, or make the "
            "sketch larger"
        )


class Undecided(BadParameter):
    """A method that competes with others tells no column from another."""


class UnpreparedRows(UserWarning):
    """Warning that a summary was made of rows without the prepare steps that the selector asks for."""


def missing_steps(selector: BaseSelector, summary: Summary[Any]) -> tuple[str, ...]:
    """Return the labels of the steps that a selector asks for and that the rows of a summary lack.

    Columns that a step has put on one scale are those of a table, whose rows keep their lengths: none is missing there.
    """
    scaled = {label.partition("#")[0].partition("(")[0] for label in summary.prepare} & prepare.SCALING_STEPS
    if summary.of_columns or scaled:
        return ()
    return tuple(step for step in prepare.check_steps(selector.prepare_steps()) if step not in summary.prepare)


class BaseSelector(UserEstimator, SelectorMixin, BaseEstimator):  # type: ignore[misc]
    """Base of all selectors.

    A subclass names its `method` and the kinds of summary it `requires`, describes its summary (`summary_description`),
    and implements `_select`, which sees the summary alone. Everything else is derived: one pass over any source,
    fitting from a saved summary without data, streaming, transforming. A parameter that a base class documents need not
    be documented again.

    The rows of a selector with these parameters can fade (`half_life`), or count only while among the last (`window`):
    then `fit` reads the last `window` rows of a source, and `partial_fit` selects from the rows in a `SlidingWindow`,
    the last `window` ones, and those before in the same pane.

    Parameters
    ----------
    n_features_to_select : int or float, optional
        A number below 1 is a share of the columns. Half of them by default.
    normalize : "l2" or None
        Scale every row to unit length first, as suits texts and counts; None leaves rows as they are, as suits tables,
        for which ``sketchselect init`` writes ``normalize = false``.
    half_life : float, optional
        Rows after which a row counts half, so that the selection follows a drifting stream.
    window : int, optional
        Only this many of the last rows count, in `fit` too; not together with `half_life`. `partial_fit` rounds up to
        whole panes, each a 32nd of the window, and stores the states of the panes.

    Attributes
    ----------
    support_ : array of int, shape (n_selected,)
        Selected columns, ascending.
    scores_ : array of float, shape (n_features,)
        One score per column, larger is better.
    selection_ : Selection
        The same with parameters and diagnostics, as written to ``selection.json``.
    summary_ : Summary
        The summary it was computed from; can be saved and merged. A sketch in panels of columns on workers is gone when
        these end.
    window_ : SlidingWindow
        After `partial_fit` with a window: the rows that count (`start`, `end`), and their states.
    """

    method: ClassVar[str]
    requires: ClassVar[tuple[str, ...]]
    needs_target: ClassVar[bool] = False
    """Whether the selector learns from y; others ignore it."""
    fits_model: ClassVar[bool] = False
    """Whether the selector fits a model of the target, which predicts."""
    needs_counts: ClassVar[bool] = False
    """Whether the rows must be counts."""
    needs_double: ClassVar[bool] = False
    """Whether rows of float32 are summarised as float64, because results multiply the rounding of products."""
    has_weights: ClassVar[bool] = False
    """Whether a selection can have weights, by which its theory multiplies the columns."""
    limits_components: ClassVar[bool] = False
    """Whether `n_components` must be below the number of columns."""
    axis: ClassVar[Literal["rows", "columns"]] = "rows"
    """Direction in which a stream grows (`partial_fit`)."""
    auto_priority: ClassVar[int | None] = None
    """Priority among the methods that `AutoSelector` compares, which decides ties; None: not compared by default."""
    is_nested: ClassVar[bool] = False
    """Whether the top k columns are a prefix of the top k + 1 (by score, where nothing is drawn)."""
    automatic: ClassVar[dict[str, Any] | None] = None
    """Parameters with which the method itself chooses the number of columns; None where a curve does."""
    renamed: ClassVar[dict[str, str]] = {}
    """Former name of a parameter -> its name; the constructor takes both."""
    selects_in_panels: ClassVar[bool] = False
    """Whether columns are chosen from a sketch in panels where these are; others need all of it in this process."""
    selecting_copies: ClassVar[int] = 4
    """Times the bytes of a summary of sparse rows that selecting takes at most, the summary among them."""
    unrecorded: ClassVar[tuple[str, ...]] = ()
    """Parameters that a `Selection` does not state, because the summary determines them."""

    about: About | None = None
    """The point from which columns are measured; None where a method does not measure them from one."""
    implementation: ClassVar[frozenset[str]] = frozenset(
        {
            "check_parameters",
            "check_source",
            "collect_source",
            "competes",
            "complete",
            "for_clusters",
            "further_description",
            "inspect_rows",
            "inspect_target",
            "n_rivals",
            "prepare_steps",
            "sampled_labels",
            "selection_flops",
            "single_pass",
            "summary_description",
            "summary_kinds",
        }
    )

    half_life: float | None = None
    window: int | None = None
    n_rivals: int = 0  # Other methods, of which one is taken where this one tells no column from another
    competes: bool = False  # Whether others are compared with it, so that no warning is due of what it selects
    n_features_in_: int
    feature_names_in_: NDArray[Any]
    support_: NDArray[np.int64]
    scores_: Floats

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        inherit_parameters(cls)

    # `fit` calls `inspect_target` and `inspect_rows`; `collect_source`, by default the pass of `single_pass`;
    # `complete`, which makes a second pass where `further_description` names one; and `_select`.

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickle; parameters that did not exist then are as if they had: columns were measured from zero."""
        super().__setstate__(state)
        for name, parameter in signature(type(self)).parameters.items():
            if name not in state:
                setattr(self, name, "zero" if name == "about" else parameter.default)

    # --- what a new selector implements ------------------------------------------------------------------------

    @abstractmethod
    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the description of the summary that this selector needs for data of this width."""

    @abstractmethod
    def _select(self, summary: Any, n_select: int) -> Selection:
        """Return the selection of `n_select` columns; pure."""

    # --- derived -----------------------------------------------------------------------------------------------

    @property
    def uses_target(self) -> bool:
        """Whether this selector, with its parameters, learns from y."""
        return self.needs_target

    def n_passes(self, n_rows: int, n_columns: int) -> tuple[int, int] | None:
        """Return the typical and the largest number of passes where the rows decide on it; None elsewhere."""
        return None

    @property
    def reads_columns(self) -> bool:
        """Whether a pass of this selector, with its parameters, reads the source by columns."""
        return self.axis == "columns"

    def check_parameters(self) -> None:
        """Raise `BadParameter` for a parameter out of range, or parameters that exclude each other.

        Types and ranges are declared by the constructor; override this for conditions on several parameters.
        """
        check_declared(self)
        if self.window is not None and self.half_life is not None:
            raise BadParameter("window and half_life exclude each other; leave one of them out")

    def summary_kinds(self) -> tuple[str, ...]:
        """Return the kinds of summary that the selector, with its parameters, can select from, the best first."""
        is_decayed = (getattr(KINDS[kind], "decayed_kind", None) == kind for kind in self.requires)
        return self.requires if self.half_life is None else tuple(compress(self.requires, is_decayed))

    def inspect_target(self, y: Vector) -> None:
        """Inspect the whole target for what the description of the summary depends on, such as the classes.

        Called before `summary_description`, by `fit` and by a job.
        """

    def check_source(self, source: Source) -> None:
        """Raise `BadParameter` for a parameter that all rows of a source exclude.

        Called after `inspect_target`, by `fit` and by a job, and not for a stream, to which rows may be added.
        """

    def inspect_rows(self, source: Source) -> None:
        """Inspect a few rows for what the description of the summary depends on, such as bins.

        Called after `inspect_target`, by `fit`, by a job, and for the first batch of a stream without weights.
        """

    def selecting_nbytes(self, source: Source) -> int:
        """Return the bytes that selecting takes beside the summary, where they may be more than those of a pass."""
        return 0

    def largest_pass(self, source: Source) -> Summary[Any] | None:
        """Return the largest summary of a pass of `collect_source`, where a few rows do not tell how large it is."""
        return None

    def collecting_nbytes(self, source: Source) -> int:
        """Return the bytes that `collect_source` takes in its own process, where they may be more than a pass takes."""
        return 0

    @property
    def makes_passes(self) -> bool:
        """Whether `collect_source` makes other passes than the one that `summary_description` describes.

        A job calls `collect_source` if so; otherwise it adds the description to the summaries of its pass.
        """
        return self.window is not None or type(self).collect_source is not BaseSelector.collect_source

    def single_pass(self, source: Source) -> tuple[Source, Summary[Any]] | None:
        """Return source and summary of the one pass; None where `collect_source` makes several.

        With a window the pass reads the last rows, and no others.
        """
        first_row = 0 if self.window is None else max(source.n_rows - int(self.window), 0)
        return replace(source, first_row=first_row), self.summary_description(source.n_columns)

    def collect_source(self, source: Source, options: PassOptions) -> Summary[Any]:
        """Return the summary of a source that `_select` sees; override it where `single_pass` is None."""
        single = self.single_pass(source)
        assert single is not None
        return summarize_source(*single, options).value

    def further_description(self, summary: Summary[Any]) -> Summary[Any] | None:
        """Return the description of a second pass that the first summary shows to be necessary; None if it is not."""
        return None

    def complete(self, summary: Summary[Any], source: Source, options: PassOptions) -> Summary[Any]:
        """Return the summary to select from: that of `collect_source`, or of a pass with `further_description`."""
        return summary

    def prepare_steps(self) -> tuple[Any, ...]:
        """Return the row steps that the selector's `normalize` parameter adds, as entries for `prepare.resolve`."""
        normalize = getattr(self, "normalize", None)
        return () if normalize is None else (normalize,)

    @with_callbacks
    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None, **run: Unpack[PreparedKeywords]) -> Self:
        """Make one pass over X and select columns.

        Parameters
        ----------
        X : anything `open_matrix` takes, of shape (n_rows, n_features)
            Path or URL of a Zarr array, ndarray, Dask array, ...
        y : anything `open_vector` takes, of shape (n_rows,) or (n_rows, n_targets), optional
            Target of each row; selectors without `needs_target` ignore it, as scikit-learn's pipelines expect, and warn
            if it is given by name.
        sample_weight : array or path of shape (n_rows,), optional
        **run : prepare, client, partition_bytes, checkpoint, progress
            As in `sketchselect.summarize`. Steps of `prepare`, such as ``["impute", "standardise"]``, come before those
            of `normalize`; a model applies them to the rows of predictions too, and `transform` returns columns as they
            come. With "impute" NaN are missing values. "one-hot" makes columns of the levels of text columns, among
            which are the selected ones (``column=level``); "dates" reads dates as days.
        """
        source = self._open_source(X, y, sample_weight, run)
        # The panels of an earlier fit would take the workers' memory in this one.
        self._let_go_of_panels("the panels of this sketch made room for a later fit, which failed; fit again")
        with self._collecting(source, run, keeps_panels=self.selects_in_panels) as summary:
            self.summary_ = summary
            self.__dict__.pop("window_", None)
            self._refuse_constant_columns()
            with reporting_steps(make_progress(run.get("progress"))):
                return self._finish(self.summary_.feature_names)

    def collect(
        self, X: Any, y: Any = None, *, sample_weight: Any = None, compute: bool = True, **run: Unpack[PreparedKeywords]
    ) -> Any:
        """Return the summary that `fit` selects from, for `fit_summary`.

        Parameters
        ----------
        X, y, sample_weight, **run
            As in `fit`.
        compute : bool
            Whether to compute the summary now. False: a `dask.delayed.Delayed`, which composes with other Dask
            collections and runs on any Dask scheduler. Classes of a target are looked up at once, which computes the
            target, and so are bins, by a few of the rows; where the data show that a method needs a second pass,
            `fit_summary` refuses the first one's summary and names what is missing.

        Raises
        ------
        BadParameter
            For `compute=False` where the selector makes several passes, or together with options of a pass.

        Examples
        --------
        >>> import numpy as np, sketchselect as sks
        >>> X = np.diag([5.0, 1.0, 4.0, 2.0])
        >>> selector = sks.selectors.VarianceSelector(2)
        >>> summary = selector.collect(X, compute=False)
        >>> selector.fit_summary(summary.compute()).support_.tolist()
        [0, 2]
        """
        source = self._open_source(X, y, sample_weight, run)
        if not compute:
            run.pop("prepare", None)
            return self._delayed(source, run)
        with self._collecting(source, run) as summary:
            return summary

    def _open_source(self, X: Any, y: Any, sample_weight: Any, run: PreparedKeywords) -> Source:
        """Return the source of a fit, opened and checked; its steps are not fitted yet."""
        self.check_parameters()
        steps = prepare.resolve(run.get("prepare"), self.prepare_steps())
        self._fills_missing = any(step.fills_missing for step in steps)
        self._encode = prepare.encodings(steps)
        matrix = self._open(X, reset=True, vectors={"target": y, "sample_weight": sample_weight})
        if matrix.shape[0] == 1:
            raise EmptyInput(
                f"{matrix.address}: n_samples = 1, and one row does not differ from others; give more rows"
            )
        changing = next((step for step in steps if step.n_columns(matrix.shape[1]) != matrix.shape[1]), None)
        if changing is not None and changing.encodes is None:
            raise BadParameter(
                f"prepare: {changing.name!r} makes other columns than those of X, which cannot be selected here; put "
                "it into [prepare] of a job, or fit the summary of sketchselect.summarize(X, ..., prepare=...)"
            )
        target = self._open_target(y, matrix)
        if target is not None:
            self.inspect_target(target)
        weight = None
        if sample_weight is not None:
            weight = open_vector(sample_weight, matrix.shape[0], matrix=matrix, name="sample_weight")
        source = Source(matrix, target, weight, steps, in_double=self.needs_double)
        self.check_source(source)
        return source

    @contextmanager
    def _collecting(
        self, source: Source, run: PreparedKeywords, *, keeps_panels: bool = False
    ) -> Iterator[Summary[Any]]:
        """Yield the summary of a source while the workers that made it still run, and may hold its panels."""
        has_steps = bool(run.pop("prepare", None))
        self.__dict__.pop("steps_", None)
        self._n_made = None
        with fit_options(source.matrix, source.target, source.weight, **run) as options:
            options = options.but(keeps_panels=keeps_panels)
            if has_steps:
                source = fitted_source(source, options)
                self.steps_ = source.prepare
                self._n_made = source.n_columns if self._encode else None
            self.inspect_rows(source)
            if not keeps_panels:
                self._require_room(source)
            ends = keeps_panels and not options.engine.stays_open
            try:
                yield self.complete(self.collect_source(source, options), source, options)
                sketch = self.__dict__.get("summary_")
                if (
                    ends
                    and isinstance(sketch, PanelledDirections)
                    and WHOLE_FACTOR * sketch.n_features * sketch.size <= available_nbytes()
                ):
                    self.summary_ = sketch.whole()
            finally:
                if ends:
                    self._let_go_of_panels(GONE)

    def _let_go_of_panels(self, why: str) -> None:
        """Replace a sketch in panels by what is known of it without them, so that their memory is free."""
        if isinstance(summary := self.__dict__.get("summary_"), PanelledDirections):
            self.summary_ = summary.without_panels(why)

    def _require_room(self, source: Source) -> None:
        """Raise `WillNotFit` where a sketch in panels has to be put together here, and there is no memory for it."""
        single = self.single_pass(source)
        if single is None or source.matrix.dask_rows() is not None:
            return
        rows, description = replace(single[0], takes_sparse=True), single[1]
        if not (rows.is_sparse and is_wide_sketch(description, rows.n_columns)):
            return
        nbytes = WHOLE_FACTOR * rows.n_columns * int(description.parameters()["size"])
        if nbytes > (available := available_nbytes()):
            if self.selects_in_panels:
                what, instead = "collect needs", "call fit, which chooses columns on the panels of the sketch"
            else:
                what = f"{self.method} selects from"
                instead = "take a method that chooses columns on the panels of a sketch"
            raise WillNotFit(
                f"{rows.matrix.address}: {what} the whole sketch, which takes {format_bytes(nbytes)} of memory in this "
                f"process, and there are {format_bytes(available)}; {instead} (the page how_big names such methods)"
            )

    def _delayed(self, source: Source, run: PreparedKeywords) -> Any:
        if run:
            raise BadParameter(f"compute=False: the graph is not run, so leave out {', '.join(run)}")
        if waiting := next((step for step in source.prepare if not step.is_fitted), None):
            raise BadParameter(
                f"compute=False: {waiting.label!r} needs a pass of its own; fit it with fit_prepare first"
            )
        self.inspect_rows(source)
        single = self.single_pass(source)
        if single is None:
            why = "makes several passes over the source, which no single graph holds; leave out compute=False"
            raise BadParameter(f"{type(self).__name__} with these parameters {why}")
        return delayed_summary(*single)

    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, *, sample_weight: Any = None, **unknown: Any
    ) -> Self:
        """Add a batch of rows to the stream and select again, with the guarantees of one pass over all its rows.

        With `half_life` earlier rows fade, with `window` they leave it.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`; the batch may have any number of rows.
        classes : sequence, optional
            Every class that a batch may hold, for classification; used in the first call. None: those of the first
            batch.

        Raises
        ------
        Incompatible
            If the rows seen so far are in another window, or have another half-life or other steps, than this
            selector's.
        """
        check_batch(unknown)
        self.check_parameters()
        before: Summary[Any] | None = getattr(self, "summary_", None)
        window_before = getattr(self, "window_", None)
        if before is not None:
            self._require_half_life(before)
            self._require_same_window()
        matrix = self._open(X, reset=before is None, vectors={"target": y})
        target = self._open_target(y, matrix)
        steps = prepare.resolve(self.prepare_steps())
        labels = prepare.labels(steps)
        if before is None:
            self._start_stream(target, classes)
            if sample_weight is None:
                self.inspect_rows(Source(matrix, target, None, steps, in_double=self.needs_double))
            n_targets = 0 if target is None or len(target.shape) == 1 else target.shape[1]
            empty = self.summary_description(matrix.shape[1]).empty(matrix.shape[1], n_targets)
            summary = empty.with_context(prepare=labels, feature_names=matrix.feature_names)
        elif before.prepare != labels:
            raise Incompatible(
                f"the rows seen so far were prepared by {list(before.prepare)}, this selector prepares by "
                f"{list(labels)}; set `normalize` to match (fit with prepare= cannot go on by partial_fit)"
            )
        else:
            summary = before
            require_names(before.feature_names, matrix)
        weights = None if sample_weight is None else np.asarray(sample_weight)
        batch = Source(matrix, target, None, steps)
        at_first = source_identities(batch)
        partitions = row_partitions(matrix, DEFAULT_PARTITION_BYTES, sparse=matrix.is_sparse and summary.accepts_sparse)
        batches = (
            (
                self._in_precision(prepare.apply_steps(steps, matrix.read_rows(a, b))),
                None if target is None else target.read(a, b),
                None if weights is None else weights[a:b],
            )
            for a, b in zip(partitions.edges, partitions.edges[1:], strict=False)
        )
        # A batch that is refused leaves the stream as it was, so that it can be passed again.
        try:
            self.summary_ = self._updated(summary, batches)
            require_unchanged(at_first, batch)
            return self._finish(self.summary_.feature_names)
        except BaseException:
            for name, value in (("summary_", before), ("window_", window_before)):
                self.__dict__.pop(name, None)
                if value is not None:
                    setattr(self, name, value)
            raise

    def _in_precision(self, rows: Any) -> Any:
        """Return prepared rows in the precision in which they are summarised."""
        return rows.astype(np.float64) if self.needs_double and rows.dtype == np.float32 else rows

    def _updated(self, summary: Summary[Any], batches: Iterable[tuple[Any, Any, Any]]) -> Summary[Any]:
        """Return the summary of a stream after more batches (rows, targets, weights)."""
        if self.window is None:
            for rows, labels, weights in batches:
                summary = summary.update(rows, labels, sample_weight=weights, prepare=summary.prepare)
            return summary
        window: SlidingWindow[Any] | None = getattr(self, "window_", None)
        if window is None:
            window = SlidingWindow(self.summary_description(summary.n_features), rows=int(self.window))
        for rows, labels, weights in batches:
            window = window.update(rows, labels, sample_weight=weights)
        self.window_ = window
        try:
            last: Summary[Any] = window.summary()
        except NoData:
            return summary
        return last.with_context(prepare=summary.prepare, feature_names=summary.feature_names)

    def _require_half_life(self, summary: Any) -> None:
        """Raise `Incompatible` if the summary of the rows seen so far has another half-life than this selector."""
        before = getattr(summary, "half_life", None)
        # The summary's is a float, which not every whole number is.
        if before != (self.half_life and float(self.half_life)):
            were = "have no half_life" if before is None else f"have half_life {before:g}"
            raise Incompatible(
                f"the rows seen so far {were}, but half_life is {self.half_life}; set it to match, or start a new "
                "selector"
            )

    def _require_same_window(self) -> None:
        """Raise `Incompatible` unless the rows seen so far are in the window of this selector."""
        window: SlidingWindow[Any] | None = getattr(self, "window_", None)
        if self.window == (None if window is None else window.rows):
            return
        was = "are in one summary, which they cannot leave" if window is None else f"are in a window of {window.rows}"
        raise Incompatible(
            f"the rows seen so far {was}, but window is {self.window}; set it to match, or start a new selector with "
            "partial_fit"
        )

    def _start_stream(self, target: Vector | None, classes: Any) -> None:
        """Inspect the first batch of a stream for what the description of the summary depends on."""
        if classes is not None:
            raise BadParameter(f"{type(self).__name__} has no classes; leave the argument out")
        if target is not None:
            self.inspect_target(target)

    def fit_summary(self, summary: Any) -> Self:
        """Select from a summary (or the fitting member of a mapping or `Bundle`); no data are needed, all rows count.

        Raises
        ------
        Incompatible
            If there is no summary of the kind this selector needs, or its half-life is another one.
        """
        self.check_parameters()
        member = pick(summary, *self.summary_kinds())
        if self.half_life is not None:
            self._require_half_life(member)
        self._take_summary(member, member.n_features)
        self._refuse_constant_columns()
        return self._finish(self.summary_.feature_names)

    def _take_summary(self, summary: Summary[Any], n_features: int) -> None:
        """Forget the rows of an earlier fit: a summary comes without its own."""
        if missing := missing_steps(self, summary):
            listed = " and ".join(map(repr, missing))
            warn(
                f"{type(self).__name__} asks for rows prepared with {listed} (normalize), and the summary was made "
                f"without; summarize with prepare={list(missing)}, or set normalize=None to select from rows as they "
                "are",
                UnpreparedRows,
            )
        self.__dict__.pop("window_", None)
        self._fills_missing, self._encode, self._n_made = False, (), None
        self.summary_, self.n_features_in_ = summary, n_features
        self._forget_names()

    def _refuse_constant_columns(self) -> None:
        """Raise `EmptyInput` if no column varies, so that nothing distinguishes any; a stream may go on to vary.

        A model selects nothing, warns, and predicts the mean of the target.
        """
        summary: Any = self.summary_
        about: About = getattr(self, "about", "mean")
        if not self.fits_model and min(summary.n_rows, summary.n_features) > 1 and all_alike(summary, about):
            where = f"over {summary.n_rows} rows"
            if self._normalized(summary) is not None:
                where += " of unit length (normalize; None leaves rows as they are)"
            raise EmptyInput(
                f"all {summary.n_features} columns are {'zero' if about == 'zero' else 'constant'} {where}, or too "
                "small to be squared (below 1e-160): there is nothing to select"
            )

    def _open(self, X: Any, *, reset: bool, vectors: Mapping[str, Any] | None = None) -> Matrix:
        """Return the opened source, compared with that of `fit` unless `reset`."""
        missing = self._takes_nan
        policy: Nonfinite = "missing" if missing and not isinstance(X, Matrix) else "error"
        finite = "allow-nan" if missing else True
        checks = {"dtype": "numeric", "ensure_all_finite": finite}
        inside = {"groups": getattr(self, "_groups", None), "partition": getattr(self, "_partition", None)}
        encode = getattr(self, "_encode", ())
        if encode and not reset:
            encode = prepare.encodings(getattr(self, "steps_", ()), getattr(self, "feature_names_in_", None)) or encode
        return open_features(
            self, X, reset=reset, nonfinite=policy, vectors={**(vectors or {}), **inside}, encode=encode, **checks
        )

    @property
    def _takes_nan(self) -> bool:
        """Whether NaN in rows are missing values: for the summary, or filled by a step of the fit."""
        return getattr(self, "missing", None) is not None or getattr(self, "_fills_missing", False)

    def _open_target(self, y: Any, matrix: Matrix) -> Vector | None:
        """Return the opened target; None for a selector that uses none."""
        if not self.uses_target:
            if isinstance(y, str):  # Pipelines pass arrays; who names a target means it to be used.
                open_vector(y, matrix.shape[0], matrix=matrix, name="target")
                warn(
                    f"{type(self).__name__} selects without a target, and does not use {y!r:.80}; "
                    "sketchselect.selectors.TargetAutoSelector learns from it"
                )
            return None
        if y is None:
            raise BadParameter(f"{type(self).__name__} requires y to be passed, but the target y is None")
        return open_vector(y, matrix.shape[0], matrix=matrix, name="target")

    def _forget_names(self) -> None:
        self.__dict__.pop("feature_names_in_", None)

    def _finish(self, names: tuple[str, ...] | None) -> Self:
        summary: Any = self.summary_
        if not np.max(summary.weight, initial=0) > 0:
            raise EmptyInput(
                "no rows with a positive weight: all sample weights are zero (or below 2.2e-308), or the input is empty"
            )
        if names is not None and not hasattr(self, "feature_names_in_"):
            self.feature_names_in_ = np.array(names, dtype=object)
        if names is None and hasattr(self, "feature_names_in_"):
            names = tuple(map(str, self.feature_names_in_))
            self.summary_ = self.summary_.with_context(prepare=self.summary_.prepare, feature_names=names)
        self._warn_of_parallel_rows(self.summary_)
        selection = self._select(self.summary_, self._n_select(self._n_columns))
        steps = self._row_steps(self.summary_)
        self.selection_ = replace(selection, prepare=steps, applied=selection.applied or in_words(steps, None))
        self.support_ = self.selection_.support
        self.scores_ = self.selection_.scores
        if self.selection_.weights is not None:
            self.weights_ = self.selection_.weights
        return self

    def _warn_of_parallel_rows(self, summary: Any) -> None:
        """Warn if this selector made rows of unit length that are nearly parallel: little is left to cluster by."""
        if getattr(self, "normalize", None) is None or self._normalized(summary) is None:
            return
        for member in summary.values() if isinstance(summary, Mapping) else (summary,):
            if not hasattr(member, "centered_squared_norm"):
                continue
            # Rows that are all equal lose nothing. Multiples of one row do, and differ by rounding: far more than this.
            if member.centered_squared_norm <= ALL_EQUAL * float(np.max(member.weight)):
                continue
            if (share := share_of_the_mean(member)) >= PARALLEL:
                warn(
                    f"rows were scaled to unit length (normalize), and their mean is {100.0 * share:.1f} % of all "
                    "squares: columns far from zero make all rows nearly parallel, and what distinguishes them is "
                    "lost; set normalize=None (in a job normalize = false), or standardise the columns first"
                )
                return

    def _n_select(self, n_features: int) -> int:
        n_select = getattr(self, "n_features_to_select", None)
        if n_select is None:
            return max(n_features // 2, 1)
        n_select = as_count(n_select, n_features)
        if n_select > n_features:
            warn(f"n_features_to_select = {n_select} but there are {n_features} columns; all are selected")
            return n_features
        return int(n_select)

    def _selection(
        self,
        summary: Any,
        support: NDArray[np.int64],
        scores: Floats,
        *,
        weights: Floats | None = None,
        diagnostics: dict[str, Any] | None = None,
        columns: dict[str, Floats] | None = None,
        **computed: Any,
    ) -> Selection:
        """Return the selection from a summary; `computed` are parameters that the data resolve, and further ones."""
        of_summary = {"half_life": getattr(summary, "half_life", None), "normalize": self._normalized(summary)}
        names = self.get_params(deep=False)
        parameters = {name: value for name, value in of_summary.items() if name in names} | computed
        return Selection(
            method=self.method,
            support=support,
            scores=scores,
            weights=weights,
            feature_names=summary.feature_names,
            parameters=self._resolved(**parameters),
            diagnostics=diagnostics or {},
            applied=in_words(self._row_steps(summary), computed.get("about", self.about)),
            columns=columns or {},
        )

    def _resolved(self, **computed: Any) -> dict[str, Any]:
        """Return the parameters that repeat a selection, as plain values: the `computed` ones, others as given."""
        given = {k: v for k, v in self.get_params(deep=False).items() if k not in self.unrecorded}
        values = given | computed
        return {k: np.asarray(v).tolist() if isinstance(v, (np.generic, np.ndarray)) else v for k, v in values.items()}

    @staticmethod
    def _row_steps(summary: Summary[Any]) -> tuple[str, ...]:
        """Return the steps that rows went through; none for a summary of columns."""
        return () if summary.of_columns else summary.prepare

    @staticmethod
    def _normalized(summary: Summary[Any]) -> str | None:
        """Return the normalisation of a summary's rows, which may differ from this selector's."""
        # A fitted step scales no row by itself, and its label would be sought in every installed package.
        steps = [label for label in summary.prepare if "#" not in label and label in prepare.STEPS]
        return next((step for step in steps if prepare.STEPS[step].normalizes_rows), None)

    @property
    def _n_columns(self) -> int:
        """Columns that can be selected: those of X, or those that a prepare step made of them."""
        made: int | None = getattr(self, "_n_made", None)
        return int(self.n_features_in_) if made is None else made

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the selected columns; after the prepare step "one-hot" such as ``column=level``."""
        if getattr(self, "_n_made", None) is None:
            return np.asarray(super().get_feature_names_out(input_features))
        check_is_fitted(self, "support_")
        names = self.selection_.feature_names or [f"x{j}" for j in range(self._n_columns)]
        return np.array(names, dtype=object)[self.support_]

    def inverse_transform(self, X: Any) -> Any:
        """Return rows with the selected columns, and zeros in the others; not after steps for text and dates."""
        if getattr(self, "_n_made", None) is not None:
            listed = " and ".join(f'"{step.name}"' for step in self.steps_ if step.encodes is not None)
            raise BadParameter(f"columns that were made by the prepare step {listed} have no inverse")
        return super().inverse_transform(X)

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self, "support_")
        mask = np.zeros(self.scores_.size, dtype=bool)
        mask[self.support_] = True
        return mask

    def transform(self, X: Any, **run: Unpack[RunKeywords]) -> Any:
        """Return the selected columns: an array, or CSR for sparse rows; data frames where `set_output` says so.

        The values are those of X, as of scikit-learn's selectors: ``prepare=`` of `fit` changes the rows that columns
        are selected by, not what comes back, and NaN that it filled is NaN here. For prepared values put steps of
        scikit-learn before the selector in a pipeline, or give ``prepare=`` to what comes next too, such as
        ``KMeans(3).fit(columns, prepare=["impute"])``.

        Data frames give an array by default, as in scikit-learn: ``set_output(transform="pandas")`` keeps names and
        index. Arrays and frames of Dask stay lazy; of AnnData a view comes back. Of a store only the selected columns
        stay in memory, and rows dropped by its policy are left out; `run` (client, partition_bytes, progress) is for
        that pass. CSR of a store is a sparse matrix or a sparse array as scikit-learn's ``sparse_interface`` says, from
        1.9 on; an array before.
        After the prepare step "one-hot" an array comes back, of columns of levels and of numbers as they are.
        """
        check_is_fitted(self, "support_")
        if getattr(self, "_n_made", None) is not None:
            matrix = self._open(X, reset=False)
            as_columns = tuple(step for step in self.steps_ if step.encodes is not None)
            rows = Source(matrix, prepare=as_columns, takes_missing=matrix.nonfinite == "missing")
            with run_options(matrix, **run) as options:
                return as_configured(map_blocks(rows, partial(chosen_columns, self.support_), "transform", options))
        if is_array_like(X) or is_anndata(X) or is_xarray(X) or hasattr(X, "__dask_graph__"):
            check_run(run)
        if is_array_like(X):
            if not self.__sklearn_tags__().input_tags.allow_nan:
                self._open(X, reset=False)  # names the first NaN, where scikit-learn advises estimators of its own
            return super().transform(with_wide_sums(X) if issparse(X) else X)
        if is_anndata(X) or is_xarray(X):
            self._open(X, reset=False)
            return (variable_of(X) if is_xarray(X) else X)[:, self.support_]
        if hasattr(X, "__dask_graph__"):
            require_width(self, X.shape[-1])
            if hasattr(X, "columns"):
                require_same_names(self, tuple(map(str, X.columns)), "Dask frame")
                return X[self.get_feature_names_out(X.columns).tolist()]
            return as_graph(X)[:, self.support_]
        matrix = self._open(X, reset=False)
        rows = Source(matrix, takes_sparse=True, takes_missing=matrix.nonfinite == "missing")
        with run_options(matrix, **run) as options:
            return as_configured(map_blocks(rows, partial(chosen_columns, self.support_), "transform", options))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self._takes_nan
        tags.input_tags.positive_only = self.needs_counts
        tags.target_tags.required = self.uses_target
        return tags
