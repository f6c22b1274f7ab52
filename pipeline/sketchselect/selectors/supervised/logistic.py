"""Sparse logistic, multinomial and Poisson regression, fitted by a few passes over the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Unpack

import numpy as np
import scipy

from sketchselect._sklearn import available_if
from sketchselect.errors import BadParameter, Incompatible, warn
from sketchselect.execution import Source
from sketchselect.execution.engine import PassOptions, RunKeywords
from sketchselect.linalg.likelihood import Family, mean_response
from sketchselect.linalg.parameters import Limits, Positive, SeedNumber, Share, Size, whole
from sketchselect.linalg.validation import Floats
from sketchselect.readers import Vector, open_vector
from sketchselect.readers.arrays import is_dask
from sketchselect.readers.results import like_rows
from sketchselect.selectors.base import BaseSelector, Selection
from sketchselect.selectors.supervised import models
from sketchselect.selectors.supervised.likelihood_path import (
    TYPICAL_PASSES,
    PathSettings,
    fit_path,
    n_sampled_rows,
    points_of,
    survey_description,
)
from sketchselect.selectors.supervised.models import Candidate, Criterion, ModelPath, Rule, Units
from sketchselect.selectors.supervised.path import DEFAULT_FOLDS, NOTHING_VARIES, Folded, Probability
from sketchselect.selectors.supervised.penalized import Alphas, NAlphas
from sketchselect.selectors.supervised.predict import LinearModelMixin
from sketchselect.selectors.supervised.target import ConstantColumns, ConstantTarget, TargetMixin, Task, with_task
from sketchselect.solvers import NetPenalty
from sketchselect.summaries import LikelihoodSums, Summary
from sketchselect.summaries.likelihood import ALL_ROWS


class MorePasses(UserWarning):
    """Warning that the passes allowed were too few for some models to reach their optimum."""


@dataclass(frozen=True)
class LikelihoodCandidate(Candidate):
    """A sparse generalised linear model of standardised columns; `rss` is its mean deviance."""

    intercepts: Floats = field(default_factory=lambda: np.zeros(1))  # shape (n_outputs,): Of the standardised columns

    def original_units(self, units: Units) -> tuple[Floats, Floats]:
        """Return the coefficients of the support, shape (k, n_outputs), and intercepts, in the data's units."""
        coef: Floats = self.coef / units.scale[self.support, None]
        intercept: Floats = self.intercepts - units.mean[self.support] @ coef
        return coef, intercept


@dataclass(frozen=True)
class LikelihoodPath(ModelPath):
    """Generalised linear models that were compared; fit and errors are mean deviances instead of squared residuals.

    `target_squares` is the deviance of the model without columns, so that shares explained are D^2.
    """

    @cached_property
    def criteria(self) -> dict[str, Floats]:
        """Values of aic, bic and ebic, each of shape (m,); smaller is better.

        With n rows, k non-zero coefficients and mean deviance d: ``n d + 2k``, ``n d + k log n`` and ``n d + k log n +
        2 gamma log C(p, k)``; the degrees of freedom of a lasso are about k (Park and Hastie 2007).
        """
        n = self.n
        deviance, k = n * self.residual_squares, np.array([float(c.n_nonzero.sum()) for c in self.candidates])
        p = self.n_active * self.candidates[0].coef.shape[1]
        choices = scipy.special.gammaln(p + 1.0) - scipy.special.gammaln(k + 1.0) - scipy.special.gammaln(p - k + 1.0)
        bic = deviance + k * np.log(max(n, 1.0))
        return {"aic": deviance + 2.0 * k, "bic": bic, "ebic": bic + 2.0 * self.ebic_gamma * choices}


def _classifies(estimator: Any) -> bool:
    if estimator.task != "classification":
        raise AttributeError(f"{type(estimator).__name__} has classes with the families of classes only")
    return True


def _streams(estimator: Any) -> bool:
    raise AttributeError(f"{type(estimator).__name__} reads all rows several times, so it takes no batches: use fit")


def _are_ratios(value: Any) -> bool:
    try:
        ratios = np.asarray(value)
    except ValueError:  # lists of several lengths
        return False
    is_number = ratios.dtype.kind in "fiu" and ratios.ndim <= 1 and ratios.size > 0
    return is_number and bool(((ratios > 0) & (ratios <= 1)).all())


L1Ratios = Annotated[
    float | Sequence[float], Limits("a number above 0 and at most 1, or a list of such numbers", _are_ratios)
]


class LogisticPath(LinearModelMixin, TargetMixin, BaseSelector):
    """Path of sparse logistic, multinomial or Poisson regressions, by a few passes over the rows.

    Minimises ``(1/n) sum_i l(y_i, b0 + z_i'b) + alpha (l1_ratio |b|_1 + (1 - l1_ratio) |b|^2 / 2)`` over standardised
    columns z, for a decreasing sequence of alpha and for every fold at once, where l is minus the log likelihood. A
    sample of the rows from the first pass gives the start of every model; each further pass sums gradient and Hessian
    of all models over all rows (`LikelihoodSums`), for one proximal Newton step of each. Rows that fit into the sample
    (16 MiB) are read twice.

    Parameters
    ----------
    alphas : sequence of float, optional
        Regularisation strengths: alpha is ``1 / (n C)`` of scikit-learn's `LogisticRegression`, for standardised
        columns; by default `n_alphas`, geometric from the one where the first column enters down to `alpha_ratio` times
        it.
    n_features_to_select : int, optional
        Take the last model with at most this number of columns.
    criterion : "aic", "bic" or "ebic", optional
        Choose the model by an information criterion, without folds.
    cv : int, optional
        Number of folds; 5 by default, if no other parameter chooses the model. The model of least mean deviance on the
        rows left out is taken. The folds are hashed rows, and their models are fitted in the same passes: that takes as
        many times the work and the memory as there are folds.
    family : "auto", "binomial", "multinomial" or "poisson"
        Two classes by the log odds of the second; classes by softmax with coefficients for each; counts by their
        logarithm. "auto": by the number of classes.
    l1_ratio : float or sequence of float
        Share of the lasso in the penalty, above 0; 1 is the lasso. Of several, one is chosen with alpha by
        cross-validation; their models are fitted in the same passes. Smaller ones select more columns.
    alpha : float, optional
        Fit the model at this alpha alone.
    n_alphas : int
        Number of alphas.
    alpha_ratio : float, optional
        1e-3 if there are more rows than columns, else 1e-2.
    cv_rule : "min" or "1se"
        The best model, or the sparsest within one standard error.
    ebic_gamma : float
        Weight of the number of possible models in "ebic", from 0 to 1.
    max_passes : int
        Most passes over the rows, the first one included.
    tol : float
        A model has converged when its objective is proved to exceed the least one by at most this share.
    random_state : int
        Seed of the folds and the sample.

    Attributes
    ----------
    coef_ : array of shape (n_columns,) or (n_outputs, n_columns)
        In the data's own units: one row for two classes (the log odds of the second), one for each class of a
        multinomial model; of shape (n_columns,) for counts.
    intercept_ : float or array of shape (n_outputs,)
    classes_ : array
        Labels, ascending; not for counts.
    path_ : LikelihoodPath
        All models compared: ``alphas``, ``coefs``, ``n_nonzero``, ``criteria``, ``cv_errors`` (mean deviances),
        ``gaps``, ``plot_path()``.
    l1_ratio_ : float
        The share of the lasso of the chosen model, and of the models of `path_`.
    converged_ : bool
        Whether every model reached `tol`, those of the folds too.
    support_, scores_, selection_, summary_
        As for every selector; `scores_` are norms of the standardised coefficients.

    Warns
    -----
    MorePasses
        If `max_passes` were too few for some models.

    Notes
    -----
    Guarantee: ``F(b) <= (1 + gap) min F`` with the gap of ``path_.gaps``, at most `tol` if `converged_`; the bound
    takes an intercept to be off by no more than its own size, or 1. Classes that columns separate have finite
    coefficients at every alpha.
    Cost of a pass a row: ``4 m p`` flops for m models, and ``2 s^2`` for each model with s coefficients that has not
    converged; with folds m is (folds + 1) times the number of alphas, and of values of `l1_ratio`. Hessians of more
    than 32 MiB are summed for one group of models after the other: a pass then reads the rows once for each.
    Source: Friedman, Hastie and Tibshirani 2010; Lee, Sun and Saunders 2014 (proximal Newton); Tibshirani et al. 2012
    (which columns become candidates along the path).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 20))
    >>> y = np.where(3 * X[:, 4] - 2 * X[:, 11] + rng.logistic(size=500) > 0, "yes", "no")
    >>> model = LogisticPath(n_features_to_select=2).fit(X, y)
    >>> model.support_.tolist(), model.predict(X[:3]).tolist(), model.predict_proba(X[:3]).shape
    ([4, 11], ['no', 'yes', 'yes'], (3, 2))
    """

    method: ClassVar[str] = "logistic"
    requires: ClassVar[tuple[str, ...]] = ("likelihood-sums",)
    fits_model: ClassVar[bool] = True
    automatic: ClassVar[dict[str, Any] | None] = {"cv": 5, "cv_rule": "1se"}

    _expansion = None

    def __init__(
        self,
        alphas: Alphas | None = None,
        n_features_to_select: Size | None = None,
        criterion: Criterion | None = None,
        cv: Folded | None = None,
        *,
        family: Literal["auto", "binomial", "multinomial", "poisson"] = "auto",
        l1_ratio: L1Ratios = 1.0,
        alpha: Positive | None = None,
        n_alphas: NAlphas = 50,
        alpha_ratio: Share | None = None,
        cv_rule: Rule = "min",
        ebic_gamma: Probability = 0.5,
        max_passes: Annotated[int, whole(2)] = 12,
        tol: Positive = 1e-6,
        random_state: SeedNumber = 0,
    ) -> None:
        self.alphas = alphas
        self.n_features_to_select = n_features_to_select
        self.criterion = criterion
        self.cv = cv
        self.family = family
        self.l1_ratio = l1_ratio
        self.alpha = alpha
        self.n_alphas = n_alphas
        self.alpha_ratio = alpha_ratio
        self.cv_rule: Rule = cv_rule
        self.ebic_gamma = ebic_gamma
        self.max_passes = max_passes
        self.tol = tol
        self.random_state = random_state

    @property
    def numbers_advice(self) -> str:
        """What to do about numbers that are no classes, for messages."""
        return 'set family="poisson" for counts, take another method for other numbers'

    def check_parameters(self) -> None:
        """Raise `BadParameter` for a parameter out of range, or parameters that exclude each other."""
        super().check_parameters()
        given = [
            name for name in ("n_features_to_select", "criterion", "cv", "alpha") if getattr(self, name) is not None
        ]
        if len(given) > 1:
            raise BadParameter(f"{given[0]} and {given[1]} both choose the model; leave one of them out")
        if self.alpha is not None and self.alphas is not None:
            raise BadParameter("alpha is the only model that is fitted; leave alphas out")
        if len(self._ratios()) > 1 and not self.n_folds:
            raise BadParameter(f"l1_ratio is chosen by cross-validation; leave {given[0]} out, or take one l1_ratio")

    @property
    def task(self) -> Task:
        """Whether the target is numbers or classes."""
        return "regression" if self.family == "poisson" else "classification"

    @property
    def n_folds(self) -> int:
        """Number of folds that choose the model; 0 if another parameter does."""
        others = (self.criterion, self.n_features_to_select, self.alpha)
        return (DEFAULT_FOLDS if self.cv is None else self.cv) if all(other is None for other in others) else 0

    def _ratios(self) -> tuple[float, ...]:
        """Return the shares of the lasso, descending."""
        return tuple(np.unique(np.asarray(self.l1_ratio, dtype=np.float64))[::-1].tolist())

    # --- passes --------------------------------------------------------------------------------------------------

    def inspect_target(self, y: Vector) -> None:
        """Learn the classes, or check that the target is numeric; and whether rows have groups."""
        super().inspect_target(y)
        classes = self.seen_classes
        if self.family == "binomial" and classes is not None and len(classes) != 2:
            raise BadParameter(
                f'target {y.address}: {len(classes)} classes, family="binomial" takes two; use "multinomial", or "auto"'
            )
        if self.has_groups and not self.n_folds:
            raise BadParameter("groups are for the folds of cross-validation, and another parameter chooses the model")
        if classes is None and len(y.shape) == 2 and y.shape[1] != 1:
            raise BadParameter(f"target {y.address}: {y.shape[1]} columns; {type(self).__name__} takes one")

    def _settings(self) -> PathSettings:
        classes = self.seen_classes
        family: Family = "poisson"
        if classes is not None:
            family = "multinomial" if self.family == "multinomial" or len(classes) > 2 else "binomial"
        alphas = self.alphas if self.alpha is None else [self.alpha]
        return PathSettings(
            family=family,
            classes=classes,
            l1_ratios=self._ratios(),
            alphas=None if alphas is None else np.unique(np.asarray(alphas, dtype=np.float64))[::-1].tolist(),
            n_alphas=int(self.n_alphas),
            alpha_ratio=None if self.alpha_ratio is None else float(self.alpha_ratio),
            n_folds=int(self.n_folds),
            seed=int(self.random_state),
            groups=self.has_groups,
            max_passes=int(self.max_passes),
            tol=float(self.tol),
        )

    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the summaries of the first pass."""
        return survey_description(n_features, int(self.random_state))

    def single_pass(self, source: Source) -> tuple[Source, Summary[Any]] | None:
        """Return None: there are several passes."""
        return None

    def n_passes(self, n_rows: int, n_columns: int) -> tuple[int, int]:
        """Return 2 passes for rows that fit into the sample, and a usual number for more; and `max_passes`."""
        usual = 2 if n_rows <= n_sampled_rows(n_columns) else TYPICAL_PASSES
        return min(usual, self.max_passes), self.max_passes

    def largest_pass(self, source: Source) -> Summary[Any]:
        """Return the sums of as many and as large models as usual rows lead to."""
        return self._settings().largest(source.n_rows, source.n_columns)

    def collecting_nbytes(self, source: Source) -> int:
        """Return the bytes of the sample and the steps of its models."""
        return self._settings().working_nbytes(source.n_rows, source.n_columns)

    def collect_source(self, source: Source, options: PassOptions) -> Summary[Any]:
        """Return the sums of all models at their optima."""
        return fit_path(source, self._settings(), options, self.method)

    @available_if(_streams)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, **options: Any) -> Any:
        """Not available: all rows are read several times."""

    # --- choice --------------------------------------------------------------------------------------------------

    def _select(self, summary: Any, n_select: int) -> Selection:
        sums: LikelihoodSums = summary
        if (sums.family == "poisson") != (self.task == "regression") or self.family not in ("auto", sums.family):
            raise Incompatible(f"this summary is of {sums.family} models, but family is {self.family!r}")
        theirs, ours = (
            ", ".join(f"{ratio:g}" for ratio in ratios) for ratios in (np.unique(sums.l1_ratios)[::-1], self._ratios())
        )
        if theirs != ours:
            raise Incompatible(f"this summary is of models with l1_ratio {theirs}, not {ours}")
        if self.cv is not None and sums.n_folds != self.cv:
            raise Incompatible(f"this summary has {sums.n_folds} folds, but cv is {self.cv}; set it to match")
        candidates, gaps = _candidates(sums, float(self.tol))
        p = sums.n_features
        scale = np.ones(p) if sums.scale is None else sums.scale
        path = LikelihoodPath(
            parameter="alpha",
            candidates=candidates,
            mean=np.zeros(p) if sums.mean is None else sums.mean,
            scale=scale,
            y_mean=np.zeros(sums.n_outputs),
            target_squares=np.array([sums.null_deviance]),
            n=sums.n_effective,
            n_active=int(np.count_nonzero(scale)),
            ebic_gamma=float(self.ebic_gamma),
            family=sums.family,
            feature_names=sums.feature_names,
        )
        chosen, errors, held_out = self._choice(sums, path, n_select)
        of_all = sums.l1_ratios[sums.folds == ALL_ROWS]
        self.l1_ratio_ = float(of_all[chosen])
        alike = np.flatnonzero(of_all == self.l1_ratio_).tolist()
        path = replace(
            path,
            candidates=[candidates[i] for i in alike],
            chosen=chosen - alike[0],
            cv_errors=None if errors is None else errors[alike],
        )
        self.path_, self.converged_ = path, bool((gaps <= self.tol).all())
        if not self.converged_:
            n_open = int((gaps > self.tol).sum())
            are = "is" if n_open == 1 else "are"
            warn(
                f"{n_open} of {gaps.size} models {are} not within tol = {self.tol:g} of the optimum "
                f"(largest gap {gaps.max():.1e}); raise max_passes = {self.max_passes}, alpha_ratio or tol",
                MorePasses,
            )
        if not (path.target_squares > 0).any():
            warn("the target is constant: no column is selected, and its mean is predicted", ConstantTarget)
        elif not path.n_active:
            warn(NOTHING_VARIES, ConstantColumns)
        rates = None
        if sums.misclassification_rates is not None:
            fitted = float(sums.misclassification_rates[sums.folds == ALL_ROWS][chosen])
            rates = {"held_out": held_out, "fitted": fitted if np.isfinite(fitted) else None}
            rates |= {"counted": True, "fitted_counted": True}
        return self._fitted(sums, path, rates)

    def _choice(
        self, sums: LikelihoodSums, path: LikelihoodPath, n_select: int
    ) -> tuple[int, Floats | None, float | None]:
        """Return the index of the chosen model, the mean deviances on the folds, and the misclassification rate there.

        The other folds choose the model that predicts a fold, as in `PathSelector.held_out_error`.
        """
        if n_select:
            return models.best_by_size(path.candidates, n_select), None, None
        if self.criterion is not None or (not sums.n_folds and self.alpha is None):
            return int(np.argmin(path.criteria[self.criterion or self.default_criterion])), None, None
        if self.alpha is not None:
            return int(np.argmin(np.abs(path.values - self.alpha))), None, None
        usable = models.usable_folds(sums.record.fold_weights.tolist())
        errors = np.column_stack([sums.held_out_deviances[sums.folds == fold] for fold in usable])
        sizes = [candidate.support.size for candidate in path.candidates]
        sparsest = np.argsort(sizes, kind="stable") if len(self._ratios()) > 1 else np.arange(len(sizes))

        def best(errors: Floats) -> int:
            return int(sparsest[models.best_by_validation(errors[sparsest], self.cv_rule)])

        rate = None
        if (wrong := sums.record.held_out_wrong) is not None:
            by_others = [best(np.delete(errors, i, axis=1)) for i in range(len(usable))]
            counts = [wrong[sums.folds == fold][model] for fold, model in zip(usable, by_others, strict=True)]
            rate = float(sum(counts) / sums.record.fold_weights[usable].sum())
        return best(errors), errors, rate

    @property
    def default_criterion(self) -> str:
        """The criterion that chooses the model of a summary without folds by default."""
        return "bic"

    def _fitted(
        self, sums: LikelihoodSums, path: LikelihoodPath, misclassification: dict[str, Any] | None
    ) -> Selection:
        model, p = path.model, sums.n_features
        coef, intercept = model.original_units(path)
        if sums.n_outputs > 1:
            # Softmax does not change if all intercepts move together.
            intercept = intercept - intercept.mean()
        dense = np.zeros((p, coef.shape[1]))
        dense[model.support] = coef
        is_number = sums.family == "poisson"
        self.coef_ = dense[:, 0] if is_number else dense.T.copy()
        self.intercept_ = float(intercept[0]) if is_number else intercept
        self._terms, self._term_names, self._term_scores = model.support, sums.feature_names, model.strengths(p)
        if sums.classes is not None:
            self.classes_ = np.array(sums.classes)
        elif hasattr(self, "classes_"):
            del self.classes_  # of an earlier fit with another family
        total = float(path.target_squares.sum())
        sized: dict[str, Any] = {}
        if self.n_features_to_select is not None:
            sized["n_features_to_select"] = int(model.support.size)
        return self._selection(
            sums,
            model.support,
            self._term_scores,
            diagnostics={
                "n_selected": int(model.support.size),
                "coefficients": coef.T.tolist(),
                "intercept": intercept.tolist(),
                "explained": 1.0 - float(model.rss.sum()) / total if total > 0 else None,
                "effective_rows": float(path.n),
                "model": float(model.value),
                **({"l1_ratio": self.l1_ratio_} if len(self._ratios()) > 1 else {}),
                "converged": self.converged_,
                "cv_error": None if path.cv_errors is None else float(path.cv_errors[path.chosen].mean()),
                **({} if misclassification is None else {"misclassification": misclassification}),
            },
            family=sums.family,
            **sized,
        )

    @property
    def alpha_(self) -> float:
        """The alpha of the model that was chosen."""
        return float(self.path_.model.value)

    # --- use -----------------------------------------------------------------------------------------------------

    def predict(self, X: Any, **run: Unpack[RunKeywords]) -> Any:
        """Return the label of each row, or the mean of its count; see `LassoPath.predict` for parameters and errors."""
        out = super().predict(X, **run)
        return np.exp(out) if self.task == "regression" else out

    @available_if(_classifies)  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any, **run: Unpack[RunKeywords]) -> Any:
        """Return the log odds of the second class, shape (n_rows,), or the outputs, shape (n_rows, n_classes).

        `run` as in `predict`.
        """
        values = self._linear(X, self._open(X, reset=False), run)
        return like_rows(X, values[:, 0]) if values.shape[1] == 1 else like_rows(X, values, dimension="class")

    @available_if(_classifies)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any, **run: Unpack[RunKeywords]) -> Any:
        """Return the probability of each class, shape (n_rows, n_classes); `run` as in `predict`."""
        values, n_classes = self._linear(X, self._open(X, reset=False), run), self.classes_.size
        if not is_dask(values):
            return like_rows(X, _probabilities(values), dimension="class")
        chunks = (values.chunks[0], (n_classes,))
        lazy = values.map_blocks(_probabilities, chunks=chunks, dtype=np.float64, meta=np.empty((0, 0)))
        return like_rows(X, lazy, dimension="class")

    def score(self, X: Any, y: Any, sample_weight: Any = None, **run: Unpack[RunKeywords]) -> float:
        """Return the accuracy, or of counts the share D^2 of the deviance explained; `run` as in `predict`."""
        if self.task == "classification":
            return super().score(X, y, sample_weight, **run)
        from sklearn.metrics import d2_tweedie_score

        matrix = self._open(X, reset=False, vectors={"target": y})
        target = open_vector(y, matrix.shape[0], matrix=matrix, name="target").read(0, matrix.shape[0])
        return float(d2_tweedie_score(target, self.predict(matrix, **run), sample_weight=sample_weight, power=1))

    def __sklearn_tags__(self) -> Any:
        tags = with_task(super().__sklearn_tags__(), self.task)
        tags.target_tags.multi_output = False
        tags.target_tags.positive_only = self.task == "regression"
        return tags


def _probabilities(margins: Floats) -> Floats:
    """Return the probability of each class from the outputs of a model, shape (n_rows, n_classes)."""
    if margins.shape[1] > 1:
        return mean_response("multinomial", margins)
    return np.hstack([mean_response("binomial", -margins), mean_response("binomial", margins)])


def _candidates(sums: LikelihoodSums, tol: float) -> tuple[Sequence[LikelihoodCandidate], Floats]:
    """Return the models of all rows, and the gaps of all models, those of folds too."""
    terms = sums.coefficients
    varying = np.ones(sums.n_features, dtype=bool) if sums.scale is None else sums.scale > 0
    candidates, gaps = [], []
    for i, point in enumerate(points_of(sums)):
        at = terms.of_model(i)
        dense = np.zeros((sums.n_outputs, sums.n_features + 1))
        dense[terms.outputs[at], terms.columns[at]] = terms.values[at]
        coef = dense[:, :-1].T
        gap = point.gap(dense, NetPenalty.of(float(sums.alphas[i]), float(sums.l1_ratios[i])), varying)
        gaps.append(gap)
        if sums.folds[i] == ALL_ROWS:
            support = np.flatnonzero((coef != 0).any(axis=1)).astype(np.int64)
            deviance = np.array([float(sums.deviances[i])])
            alpha = float(sums.alphas[i])
            candidates.append(
                LikelihoodCandidate(alpha, support, coef[support], deviance, gap, gap <= tol, None, dense[:, -1])
            )
    return candidates, np.array(gaps)
