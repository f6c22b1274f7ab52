"""Method for a target chosen by the data: paths of models compete by their cross-validated errors."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray

from sketchselect._progress import track
from sketchselect._text import counted
from sketchselect.errors import BadParameter, warn
from sketchselect.execution import Source
from sketchselect.linalg.parameters import SeedNumber, Size
from sketchselect.linalg.validation import Floats
from sketchselect.readers import Vector
from sketchselect.selectors.base import BaseSelector, Selection
from sketchselect.selectors.supervised import models
from sketchselect.selectors.supervised.binned import mutual_information, n_bins_for, target_edges
from sketchselect.selectors.supervised.models import Candidate, Design, ModelPath, Rule, design_of, usable_folds
from sketchselect.selectors.supervised.mrmr import mrmr_order
from sketchselect.selectors.supervised.path import (
    DEFAULT_FOLDS,
    Folded,
    PathSelector,
    can_validate,
    ignore_early_warnings,
)
from sketchselect.selectors.supervised.penalized import LassoPath
from sketchselect.selectors.supervised.predict import LinearModelMixin
from sketchselect.selectors.supervised.subsets import SizedSelector
from sketchselect.selectors.supervised.target import GuessedTaskMixin, Task
from sketchselect.solvers import Problem, least_squares
from sketchselect.summaries import Bundle, Folds, Moments, RowSample, Summary, TargetHistogram

MOST_TERMS = 500
"""Squares and products compete if they and the columns are at most so many: moments of 12 MB in all folds, and seconds
for the path. So they do up to 30 columns."""
MOST_SQUARES = 500
"""Columns up to which the columns of most mutual information compete, with their squares: moments of 40 MB in all
folds."""
MOST_COUNTS = 1_000_000
"""Rows are counted by column, bin and class if the counts are at most so many: 40 MB in all folds."""
FEW_ROWS = 1024
"""Rows up to which the folds are divided into blocks, so that methods are compared by several divisions into folds."""
JUDGED_ROWS = 4096
"""Rows of all folds on which wrong predictions of classes are counted; 16 MB for 500 columns. In blocks half as many,
which are all of the fewer rows there."""
MOST_BLOCKS_NBYTES = 256 << 20
"""Bytes of all blocks up to which folds are divided."""
CLOSE = 0.03
"""Of methods whose errors differ by at most this share, the first in their order is chosen."""

_BLOCKS = 4  # Of each fold: a power of two, so that the folds are those of their number
_DIVISIONS = 5

_NEAR = 0.1  # Share by which the error of a model may exceed the least for another division to prefer it
_LENGTHS: tuple[int, int, None] = (50, 75, None)  # Models of a path that are tried: the sparsest cost little
_WITHIN = 0.9  # Share of a path in which all near models are, if longer paths are not to have more of them

_ROWS = "rows"  # Member of the bundle in each fold: a sample of its rows with their classes
_LEAST_ROWS = 64
_INSPECTED_ROWS = 2048
_PLACES, _PLACES_IN_MEMORY = 8, 64


class RankedPath(SizedSelector):
    """Base of the paths of least squares on the first columns of an order."""

    @abstractmethod
    def _order(self, problem: Problem, explained: Floats, n_select: int) -> NDArray[np.int64]:
        """Return the first `n_select` columns; `explained` is the share of the target's variance that each explains."""

    def _of_sizes(self, problem: Problem, sizes: Sequence[int]) -> tuple[list[Candidate], Floats]:
        explained = self._explained(problem)
        order = self._order(problem, explained, max(sizes))
        supports = [np.sort(order[:size]) for size in sizes]
        out = [
            Candidate.of(problem, size, least_squares(problem, support), support)
            for size, support in zip(sizes, supports, strict=True)
        ]
        return out, explained

    def _explained(self, problem: Problem) -> Floats:
        """Return the share of variance between classes, or that of the target explained, by every column alone."""
        squares = problem.xy**2
        if self.task != "classification":
            shares = squares.sum(axis=1) / max(float(problem.yy.trace()), np.finfo(float).tiny)
        elif problem.n_targets == 1:
            shares = squares[:, 0] / max(float(problem.yy[0, 0]), np.finfo(float).tiny)
        else:
            filled = problem.y_mean > 0
            shares = (squares[:, filled] / problem.y_mean[filled]).sum(axis=1)
        return np.clip(np.where(problem.active, shares, 0.0), 0.0, 1.0)


class UnivariatePath(RankedPath):
    """Least squares on the columns of the largest F statistics."""

    method: ClassVar[str] = "univariate"

    def _order(self, problem: Problem, explained: Floats, n_select: int) -> NDArray[np.int64]:
        ranking = np.where(problem.active, explained, -1.0)
        return np.argsort(-ranking, kind="stable")[:n_select].astype(np.int64)


class MRMRPath(RankedPath):
    """Least squares on the columns of maximum relevance and minimum redundancy."""

    method: ClassVar[str] = "mrmr"

    def _order(self, problem: Problem, explained: Floats, n_select: int) -> NDArray[np.int64]:
        # The quotient of two columns' F statistics is that of these, whatever the number of rows.
        with np.errstate(divide="ignore"):
            relevance = np.where(problem.active, explained / (1.0 - explained), np.nan)
        return mrmr_order(relevance, problem.correlation, n_select, "quotient")[0]


@dataclass(frozen=True)
class InformedProblem(Problem):
    """Least squares on columns and their squares, and what each says of the target: shape (p,), in nats."""

    information: Floats

    @classmethod
    def of(cls, problem: Problem, counts: Any) -> InformedProblem:
        """Return the problem with the mutual information of the same rows' counts; a square has that of its column."""
        return cls(**vars(problem), information=np.tile(mutual_information(counts.counts).corrected, 2))


@dataclass(frozen=True)
class InformedDesign(Design):
    """A design of columns and squares with the counts of the rows in folds."""

    counts: Any = None

    def _made_splits(self) -> Iterator[tuple[Problem, Any]]:
        """Yield for every fold with rows the problem of the other rows, with their information, and its moments."""
        usable = usable_folds([fold.weight for fold in self.folds])
        for i, (problem, moments) in zip(usable, super()._made_splits(), strict=True):
            yield InformedProblem.of(problem, self.counts.complement(i)), moments


class InformationPath(UnivariatePath):
    """Least squares on the columns of most mutual information with the target, and on their squares.

    From folds of a bundle of moments of degree 2 and counts; columns of a fold's models are chosen without its rows.
    """

    method: ClassVar[str] = "mutual-information"

    def _design(self, summary: Any, with_folds: bool) -> Design:
        moments, counts = summary.of_member("moments"), summary.of_member("counts")
        design = design_of(moments, self.task, 2, with_folds=with_folds, products=False)
        of_all = InformedProblem.of(design.problem, counts.total)
        return InformedDesign(**vars(design) | {"problem": of_all}, counts=counts)

    def _explained(self, problem: Problem) -> Floats:
        assert isinstance(problem, InformedProblem)
        return problem.information


def _n_near(path: ModelPath, n_select: int) -> int:
    """Return the number of models, the sparsest first, up to the last that another division of the rows may choose.

    Of a lasso that is one whose error is above the least by at most 10 % and two standard errors of the difference.
    """
    if path.parameter != "alpha":
        return len(path)
    if n_select:
        return models.best_by_size(path.candidates, n_select) + 1
    errors, mean = path.cv_errors, path.mean_cv_error
    assert errors is not None
    assert mean is not None
    best = int(np.argmin(mean))
    excess = errors - errors[best]
    standard_error = excess.std(axis=1, ddof=1) / np.sqrt(excess.shape[1])
    near = np.flatnonzero((mean <= (1.0 + _NEAR) * mean[best]) & (excess.mean(axis=1) <= 2.0 * standard_error))
    return int(near[-1]) + 1 if near.size else mean.size


def _fitted_path(selector: PathSelector, folds: Any, n_select: int) -> ModelPath:
    """Fit; the lasso of squares and products to 50 of its alphas if the others are far from the best model.

    The densest models take most of the time of a path of many terms, and the more so the more alike these are.
    """
    if not isinstance(selector, LassoPath) or selector.degree == 1 or not can_validate(folds):
        return selector.fit_summary(folds).path_
    try:
        for length in _LENGTHS:
            selector._n_first = length
            path: ModelPath = selector.fit_summary(folds).path_
            is_whole = length is None or len(path) < length
            if is_whole or path.cv_errors is None or _n_near(path, n_select) <= _WITHIN * len(path):
                break
    finally:
        selector._n_first = None
    return path


def _divisions(summary: Folds, n_folds: int) -> list[Folds]:
    """Return the folds, and if they are given in blocks, other divisions of the blocks into as many folds."""
    n_blocks, per_fold = len(summary), len(summary) // n_folds
    if per_fold == 1:
        return [summary]
    rng = np.random.default_rng(summary.seed)
    places = [np.arange(n_blocks), *(rng.permutation(n_blocks) for _ in range(_DIVISIONS - 1))]
    first, *others = (
        summary.united([np.flatnonzero(place // per_fold == fold).tolist() for fold in range(n_folds)])
        for place in places
    )
    return [first, *filter(can_validate, others)]


class TargetAutoSelector(LinearModelMixin, GuessedTaskMixin, BaseSelector):
    """Select for a target by the method of the least cross-validated error; one pass.

    From moments in the same folds there compete: the lasso; least squares on the columns of the largest F statistics
    (tests of each column alone); least squares on the columns of maximum relevance and minimum redundancy (mRMR); up
    to 500 columns, least squares on the columns of most mutual information and their squares; and, up to 30 columns,
    the lasso on all squares and products too. The method of the least error on held-out folds wins; of those within
    3 % of it, which other rows could reverse, the first in this order. The estimator is then its model. Each fold
    is predicted by the model that the other folds choose from the path, because the least of many errors on a fold
    is too small, and the more so the less stable a method is. Up to 1,024 rows the error is the mean over five
    divisions of the rows into folds. The error of numbers is the mean squared one; that of classes is the
    misclassification rate, counted on a sample of at most 4,096 of the held-out rows, because squared errors of
    indicators favour squares that a discriminant does not need. Without a sample it is the rate that moments lead
    to expect if scores are normal within classes.

    Mutual information is that of rows counted by bin and class (`TargetHistogram`), and a straight line would not show
    what it sees: therefore its columns are judged with their squares. The bins are those of at most 2,048 rows, read
    at up to 64 places (of a source that is not in memory: 8) before the pass, or of the first batch of a stream.

    Parameters
    ----------
    n_features_to_select : int or float, optional
        Number of columns (or of terms, where squares and products win) of every model that is compared, the nearest
        not above it on each path; by default each method's number is that of its least error.
    cv : int, optional
        Number of folds, at most the number of rows; 5 by default, some of which may be empty.
    cv_rule : "min" or "1se"
        The model of a path that competes: the best, or the sparsest within one standard error of it.
    task : {"auto", "regression", "classification"}
        Whether the target is numbers or classes; by default classes if it is text, truth values, or whole numbers with
        at most 20 distinct values.
    random_state : int
        Seed of the folds.

    Attributes
    ----------
    best_ : PathSelector
        The winner, fitted.
    method_ : str
        Its name.
    errors_ : dict of str to float
        Method -> error on held-out folds: mean squared error over the variance of the target, 1 - R2; of classes the
        misclassification rate.
    coef_, intercept_, classes_, path_
        Of the winner, as for every selector with a path of models.

    Notes
    -----
    Guarantee: exact squared errors of models on the folds (`cross_validation_errors`), from moments alone, by which
    each path's model is chosen. The path of squares and products ends where denser models have errors far above the
    least; on the other divisions a lasso compares the models near the best of the first, and no fewer than 50. Of
    classes the methods are compared by wrong predictions of held-out rows, of more rows than the sample holds an
    unbiased estimate. The error of the winner is at most 1.03 times the least of `errors_`. As an estimate for new
    rows it has a bias: down, as the least of several; up, as of models of fewer rows.
    Mutual information does not compete, and wrong classes are expected and not counted, with weights (in a stream, from
    the first ones on), above 500 columns, above a million counts, in a stream whose first batch has fewer than 64 rows,
    and from a summary without counts, such as of ``sketchselect summarize``, which merges with those of other sites;
    `selection_.diagnostics["choice"]` says so.
    Cost a row: that of `Moments` of degree 2 up to 30 columns, up to 500 with squares alone, and of `TargetHistogram`,
    and a hash; the sampled rows are in the summary. After the pass each path, on all rows and each fold. Up to 1,024
    rows, unless it takes more than 256 MiB, four summaries for each fold, and the paths of five divisions into folds;
    of streams and of files of ``summarize``, which grow and merge, there is one division.
    Source: errors of a choice by folds that had no part in it, Varma and Simon 2006.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 6))
    >>> y = X[:, 4] + X[:, 1] ** 2 + 0.1 * rng.standard_normal(500)
    >>> chosen = TargetAutoSelector(cv_rule="1se").fit(X, y)
    >>> chosen.selection_.support.tolist(), chosen.method_
    ([1, 4], 'mutual-information')
    """

    method: ClassVar[str] = "auto-target"
    fits_model: ClassVar[bool] = True
    validates: ClassVar[bool] = True
    automatic: ClassVar[dict[str, Any] | None] = {"cv_rule": "1se"}
    requires: ClassVar[tuple[str, ...]] = ("folds",)

    def __init__(
        self,
        n_features_to_select: Size | None = None,
        cv: Folded | None = None,
        *,
        cv_rule: Rule = "min",
        task: Literal["auto"] | Task = "auto",
        random_state: SeedNumber = 0,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.cv = cv
        self.cv_rule: Rule = cv_rule
        self.task = task
        self.random_state = random_state

    @property
    def n_folds(self) -> int:
        """Number of folds that choose method and model."""
        return DEFAULT_FOLDS if self.cv is None else int(self.cv)

    def inspect_target(self, y: Vector) -> None:
        """Learn whether the target is classes, and which; nothing is known of the rows yet."""
        super().inspect_target(y)
        self._seen_counts: TargetHistogram | None = None
        self._n_blocks, self._is_stream = 1, False

    def _start_stream(self, target: Vector | None, classes: Any) -> None:
        self._seen_counts = None
        super()._start_stream(target, classes)
        self._n_blocks, self._is_stream = 1, True

    def inspect_rows(self, source: Source) -> None:
        """Learn whether there are few rows, and the bins of columns and target if mutual information is to compete.

        Bins are chosen by the first 2^k rows, k as large as possible, so that rows appended later seldom change them.
        """
        self._seen_counts = None
        # More rows may follow those of a stream.
        self._n_blocks = _BLOCKS if source.n_rows <= FEW_ROWS and not self._is_stream else 1
        n_rows = 1 << max(source.n_rows.bit_length() - 1, 0)
        if source.weight is not None or source.n_columns > MOST_SQUARES or n_rows < _LEAST_ROWS:
            return
        n_classes = n_bins_for(n_rows) if self.seen_classes is None else len(self.seen_classes)
        n_bins = n_bins_for(n_rows, n_classes)
        if source.n_columns * n_bins * n_classes > MOST_COUNTS:
            return
        places = _PLACES_IN_MEMORY if source.matrix.in_memory else _PLACES
        length = min(_INSPECTED_ROWS, n_rows) // places
        starts = [place * (n_rows // places) for place in range(places)]
        rows = np.concatenate([source.block(start, start + length).values for start in starts])
        if not rows.shape[0]:
            return
        target: Any = source.target
        edges = None
        if self.seen_classes is None:
            edges = target_edges(getattr(target, "target", target), n_classes, n_rows)
        self._seen_counts = TargetHistogram.of_sample(rows, n_bins, classes=self.seen_classes, target_edges=edges)

    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the moments of columns and target in folds, with squares and products of few columns, and counts."""
        counts: TargetHistogram | None = getattr(self, "_seen_counts", None)
        products = models.n_columns(n_features, 2) <= MOST_TERMS
        degree = 2 if products or counts is not None else 1
        moments: Summary[Any] = Moments(degree=degree, classes=self.seen_classes, products=products or degree == 1)
        n_folds, seed = self.n_folds, int(self.random_state)

        def in_folds(n_blocks: int, n_judged: int) -> Folds:
            inner = moments
            if counts is not None:
                members = {"moments": moments, "counts": counts}
                if self.seen_classes is not None:
                    members[_ROWS] = RowSample(max(n_judged // n_folds, 1), seed, classes=self.seen_classes)
                inner = Bundle(members)
            return Folds(inner, n_folds * n_blocks, seed, self.has_groups)

        n_blocks = getattr(self, "_n_blocks", 1)
        folds, blocks = in_folds(1, JUDGED_ROWS), in_folds(n_blocks, JUDGED_ROWS // min(n_blocks, 2))
        return blocks if blocks.projected_nbytes(n_features, 1) <= MOST_BLOCKS_NBYTES else folds

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, **options: Any) -> Any:
        """Add a batch of rows to the stream and fit again, as `TargetMixin.partial_fit` says.

        From the first batch with weights on, mutual information does not compete.
        """
        before = getattr(self, "summary_", None)
        if options.get("sample_weight") is not None and before is not None and isinstance(before.summary, Bundle):
            self.summary_ = before.of_member("moments")
        with warnings.catch_warnings():
            # A stream may begin with rows of one value, or with few.
            ignore_early_warnings()
            try:
                return super().partial_fit(X, y, classes, **options)
            except BaseException:
                if before is not None:
                    self.summary_ = before
                raise

    def _competitors(self, moments: Any, *, with_counts: bool) -> dict[str, PathSelector]:
        """Return the methods by name, unfitted, in the order that decides ties."""
        task = self._seen_task = "regression" if moments.classes is None else "classification"
        shared: dict[str, Any] = {"cv": self.n_folds, "cv_rule": self.cv_rule, "task": task}
        out: dict[str, PathSelector] = {cls.method: cls(**shared) for cls in (LassoPath, UnivariatePath, MRMRPath)}
        if with_counts:
            out[InformationPath.method] = InformationPath(degree=2, **shared)
        if moments.degree == 2 and moments.products:
            out["lasso of degree 2"] = LassoPath(degree=2, **shared)
        return out

    def _select(self, summary: Any, n_select: int) -> Selection:
        if summary.n_folds % self.n_folds:
            raise BadParameter(
                f"this summary is in {summary.n_folds} folds, of which cv = {self.n_folds} is no divisor"
            )
        with_counts = isinstance(summary.summary, Bundle)
        with_rows = with_counts and _ROWS in summary.summary.members
        divisions = _divisions(summary, self.n_folds)
        of_moments = [folds.of_member("moments") if with_counts else folds for folds in divisions]
        samples = [[cast(Bundle, fold)[_ROWS] for fold in folds] if with_rows else None for folds in divisions]
        competitors = self._competitors(of_moments[0].total, with_counts=with_counts)
        if not can_validate(divisions[0]):
            # The first rows of a stream may be in one fold: nothing can be compared yet, and a criterion chooses.
            competitors = {LassoPath.method: competitors[LassoPath.method].set_params(cv=None)}
        errors, shares, notes = {}, {}, {}
        summaries = {name: divisions if name == InformationPath.method else of_moments for name in competitors}
        is_regression = self.target_task == "regression"
        is_divided = len(divisions) > 1
        for name, selector in track(f"{self.method}: methods", competitors.items(), len(competitors)):
            of_divisions: list[float] = []
            what = f"{self.method}: {name}: divisions of the rows"
            for i, folds in track(what, enumerate(summaries[name]), len(divisions), shows_inner=not is_divided):
                if i == 0:
                    with warnings.catch_warnings(record=True) as notes[name]:
                        warnings.simplefilter("always")
                        path = _fitted_path(selector, folds, n_select)
                if path.cv_errors is None:
                    break
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    design, of_models = selector._design(folds, True), path.cv_errors
                    if i > 0:
                        n_models = max(_n_near(path, n_select), _LENGTHS[0])
                        of_models = selector._validation_errors(design, path.values[:n_models])
                    of_divisions.append(selector.held_out_error(design, path, n_select, of_models, samples[i]))
            if not of_divisions:
                continue
            error = float(np.mean(of_divisions))
            if not np.isfinite(error):
                warn(f"{name} is not compared: its error on held-out folds is not finite")
                continue
            chosen = models.best_by_size(path.candidates, n_select) if n_select else path.chosen
            size = path.candidates[chosen].support.size
            terms = counted(size, "term" if selector.degree == 2 else "column")
            if not size:
                terms = "no column, by the mean" if is_regression else "no column, by the most frequent class"
            share = f"{100.0 * (1.0 - error):.1f}" if is_regression else f"{100.0 * error:.3g}"
            errors[name], shares[name] = error, f"{share} % with {terms}"
        best = min(errors, key=lambda name: errors[name], default=LassoPath.method)
        winner = next((name for name in errors if errors[name] <= (1.0 + CLOSE) * errors[best]), best)
        self.errors_, self.best_, self.method_ = errors, competitors[winner], winner
        if n_select:
            self.best_.set_params(n_features_to_select=n_select, cv=None).fit_summary(summaries[winner][0])
        else:
            # A path that was made longer warned more than once.
            for note in {(note.category, str(note.message)): note for note in notes[winner]}.values():
                warnings.warn_explicit(note.message, note.category, note.filename, note.lineno)
        for name in ("path_", "coef_", "intercept_", "classes_", "_terms", "_term_scores", "_term_names", "_expansion"):
            self.__dict__.pop(name, None)
            if hasattr(self.best_, name):
                setattr(self, name, getattr(self.best_, name))
        is_spoilt = can_validate(divisions[0])
        why = "no error on held-out folds is finite" if is_spoilt else "the rows seen so far are in one fold"
        choice = f"{winner}: {why}, so that nothing was compared"
        if errors:
            others = [
                f"; {shares[name]} ({name})" for name in sorted(errors, key=lambda n: errors[n]) if name != winner
            ]
            condition = "" if with_rows else " expected if scores are normal within classes"
            rate = f"the misclassification rate{condition} is"
            does = "it explains" if is_regression else rate
            rank = "predicts best: on"
            if winner != best:
                rank = (
                    f"is taken, though the error of {best} is lower, by at most {100.0 * CLOSE:.0f} %: on other rows "
                    f"it may not be, and of methods so close the first is taken, in the order {', '.join(errors)}. On"
                )
            choice = f"{winner} {rank} held-out folds {does} {shares[winner]}{''.join(others)}"
            if not with_counts:
                why = f": more than {MOST_SQUARES} columns" if summary.n_features > MOST_SQUARES else ""
                choice += f"; mutual information was not compared{why}"
        selection = self.best_.selection_
        diagnostics = selection.diagnostics | {"competitor": winner, "choice": choice, "errors": errors}
        if errors and not is_regression:
            diagnostics["misclassification"] = {
                **diagnostics["misclassification"],
                "held_out": errors[winner],
                "counted": with_rows,
            }
        return replace(
            selection,
            method=self.method,
            parameters=self._resolved(task=self.target_task, cv=self.n_folds),
            diagnostics=diagnostics,
        )
