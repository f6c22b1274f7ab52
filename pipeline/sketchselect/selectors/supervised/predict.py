"""Use of a fitted linear model: predictions, scores, discriminant and selected columns, partition by partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self, Unpack

import numpy as np
import scipy
from numpy.typing import NDArray

from sketchselect import prepare
from sketchselect._sklearn import BaseEstimator, available_if, check_is_fitted
from sketchselect.errors import BadParameter, Incompatible, NotFinite
from sketchselect.execution import Block, Source
from sketchselect.execution.client import check_run, run_options
from sketchselect.execution.engine import RunKeywords, map_blocks
from sketchselect.linalg.validation import Array, Floats
from sketchselect.readers import Matrix, open_matrix, open_vector
from sketchselect.readers.arrays import is_dask, unwrapped
from sketchselect.readers.results import lazy_rows, like_rows
from sketchselect.selectors.supervised.models import Candidate, Expansion, n_columns
from sketchselect.solvers import Problem

_LEAST_SPREAD = 1e-12
_N_NODES = 40


def class_statistics(problem: Problem, n_classes: int) -> tuple[Floats, Floats]:
    """Return ``(priors, differences)``: class frequencies and class means minus the overall mean, standardised columns.

    Follows from the regression's own moments: with an indicator z_k of class k, ``cov(x, z_k) = prior_k (mean_k -
    mean)``; one target of +-1 stands for the indicators ``(1 -+ y) / 2``.

    `problem`: With one target per class, or one of +-1 for two classes (the second is +1).

    Returns
    -------
    priors : array of shape (n_classes,)
    differences : array of shape (p, n_classes)
        Zero for a class without rows.
    """
    if problem.xy.shape[1] == 1 and n_classes == 2:
        positive = float(np.clip((1.0 + problem.y_mean[0]) / 2.0, 0.0, 1.0))
        priors = np.array([1.0 - positive, positive])
        covariance = np.hstack([-problem.xy, problem.xy]) / 2.0
    else:
        priors = np.clip(problem.y_mean, 0.0, 1.0)
        covariance = problem.xy
    present = priors > 0
    return priors, np.where(present, covariance / np.where(present, priors, 1.0), 0.0)


def discriminant(problem: Problem, model: Candidate, n_classes: int) -> tuple[Floats, Floats]:
    """Return coefficients and intercepts of the log posterior odds of a selected model.

    The regression's scores ``t = B'x`` have class means m_k and a common covariance V within the classes, both known
    from the moments; the discriminant is ``log prior_k + t'V^-1 m_k - m_k'V^-1 m_k / 2``. For a model that is the
    least-squares fit of its support this equals linear discriminant analysis of the selected columns; for a shrunken
    one it keeps the direction and sets slope and threshold right, which the regression's own intercept does not do
    unless the classes are equally frequent.

    `problem`: The standardised problem with class targets.
    `model`: The selected model.

    Returns
    -------
    coef : array of shape (k, n_outputs)
        In original units, for the columns of the support; n_outputs is 1 (the odds of the second class) for two
        classes, else n_classes.
    intercept : array of shape (n_outputs,)
        Minus infinity for a class without rows, which is never predicted; plus infinity for the first of two.

    Notes
    -----
    Source: Hastie, Tibshirani and Friedman, Elements of Statistical Learning, sections 4.3 and 12.5 (optimal scoring).
    """
    priors, differences = class_statistics(problem, n_classes)
    s, b = model.support, model.coef
    d = differences[s]
    correlation = problem.gram[np.ix_(s, s)]
    means = b.T @ d
    total = b.T @ correlation @ b
    within = total - (means * priors) @ means.T
    # Classes that the scores separate without error would have infinite odds: their spread is set to 1e-6 sd.
    scale = max(float(np.trace(total)), np.finfo(np.float64).tiny)
    squares, axes = np.linalg.eigh((within + within.T) / 2.0)
    squares = np.maximum(squares, _LEAST_SPREAD * scale)
    # Along the axes: a full inverse would drown the others in the rounding of the smallest one.
    along = axes.T @ means
    slopes = (b @ axes) @ (along / squares[:, None])
    with np.errstate(divide="ignore"):
        offsets = np.log(priors) - 0.5 * (along * along / squares[:, None]).sum(axis=0)
    if n_classes == 2:
        slopes, offsets = slopes[:, 1:] - slopes[:, :1], offsets[1:] - offsets[:1]
    coef: Floats = slopes / problem.scale[s, None]
    intercept: Floats = offsets - problem.mean[s] @ coef
    return coef, intercept


def expected_wrong(coef: Floats, intercept: Floats, support: NDArray[np.int64], moments: Any) -> float:
    """Return the share of rows that a discriminant is expected to put into a wrong class, from moments of these rows.

    For scores that are normal within classes, with the covariance that they have there: a row of class k is right if
    its score k leads all others. The leads are taken to have one correlation, the mean of theirs; of two classes there
    is one lead, and nothing to approximate.

    `coef`, `intercept`, `support`: As from `discriminant`, and its columns.
    `moments`: Of any rows, with classes.

    Notes
    -----
    Source: Dunnett and Sobel 1955 (normal variables of one correlation); by Gauss-Hermite quadrature.
    """
    weights = moments.class_weights
    priors = weights / weights.sum()
    covariances = moments.xy[support]
    if len(weights) == 2:
        # Odds without end are those of a first class without rows: its score is minus infinity, as that of any such.
        both = [-np.inf, 0.0] if np.isposinf(intercept[0]) else [0.0, intercept[0]]
        coef, intercept = np.hstack([np.zeros_like(coef), coef]), np.array(both)
        covariances = np.hstack([-covariances, covariances]) / 2.0
    present = priors > 0
    # Class means of the scores, less the overall mean.
    offsets = (covariances / np.where(present, priors, 1.0)).T @ coef
    within = coef.T @ moments.covariance(columns=support) @ coef - (offsets.T * priors) @ offsets
    within *= moments.n_rows / max(moments.n_rows - np.count_nonzero(present), 1)
    scores = offsets + moments.mean[support] @ coef + intercept
    nodes, shares = np.polynomial.hermite_e.hermegauss(_N_NODES)
    wrong = 0.0
    for k in np.flatnonzero(present):
        if np.isneginf(scores[k, k]):
            wrong += priors[k]
            continue
        others = np.arange(len(weights)) != k
        others &= ~np.isneginf(scores[k])
        if not others.any():
            continue
        lead = scores[k, k] - scores[k, others]
        together = within[k, k] - within[k, others] - within[k, others][:, None] + within[np.ix_(others, others)]
        spread = np.sqrt(np.maximum(together.diagonal(), _LEAST_SPREAD * lead**2 + np.finfo(np.float64).tiny))
        correlation = 0.0
        if lead.size > 1:
            of_pairs = (together / spread / spread[:, None])[~np.eye(lead.size, dtype=bool)]
            correlation = float(np.clip(of_pairs.mean(), 0.0, 0.99))
        steps = lead / spread + np.sqrt(correlation) * nodes[:, None]
        right = shares @ np.prod(scipy.special.ndtr(steps / np.sqrt(1.0 - correlation)), axis=1) / shares.sum()
        wrong += priors[k] * (1.0 - float(right))
    return float(wrong)


def observed_wrong(
    coef: Floats, intercept: Floats, terms: NDArray[np.int64], expansion: Expansion | None, sample: Any
) -> float:
    """Return the share of rows that a discriminant puts into a wrong class, estimated from a sample of the rows.

    `coef`, `intercept`, `terms`: As from `discriminant`, and its columns, or terms of the `expansion`.
    `sample`: `RowSample` with classes.

    NaN where a coefficient is not finite.
    """
    if not np.isfinite(coef).all():
        return float("nan")
    block = Block(sample.rows, None, None, 0, sample.n_kept)
    predicted = _labels(_linear_block(terms, expansion, coef, block) + intercept, np.arange(len(sample.classes)))
    return float(np.average(predicted != sample.labels, weights=sample.weights))


def _classifies(estimator: Any) -> bool:
    if estimator.target_task != "classification":
        raise AttributeError('decision_function needs task="classification"')
    return True


class LinearModelMixin(BaseEstimator):  # type: ignore[misc]
    """Mixin of selectors that fit a linear model: `predict`, `decision_function`, `score`, `transform`."""

    target_task: Any
    coef_: Floats
    intercept_: Any
    classes_: Array
    _terms: NDArray[np.int64]
    _term_scores: Floats
    _term_names: tuple[str, ...] | None
    _expansion: Expansion | None

    def _n_select(self, n_features: int) -> int:
        # 0 leaves the number to cross-validation, or a criterion.
        if self.n_features_to_select is None:
            return 0
        n_terms: int = super()._n_select(n_columns(n_features, getattr(self, "degree", 1)))
        return n_terms

    def _finish(self, names: tuple[str, ...] | None) -> Self:
        super()._finish(names)
        # The selection, which the job uses, is of columns; the estimator's attributes are of the terms it fitted.
        self.support_, self.scores_ = self._terms, self._term_scores
        return self

    def predict(self, X: Any, **run: Unpack[RunKeywords]) -> Any:
        """Return the predicted target, or label, of each row: shape (n_rows,), or (n_rows, n_targets).

        Of a Dask array a Dask array is returned, of a data frame of Dask a Dask Series with its divisions, of an xarray
        DataArray a DataArray, of AnnData a Series for ``obs``. A data frame of pandas or polars gives a Series with
        its index and the name of the target (a data frame for several targets), unless the model was fitted to a bare
        array of targets: then an array, as scikit-learn's meta-estimators need it.

        Parameters
        ----------
        X : anything `open_matrix` takes
            Its rows go through the steps of the fit.
        **run : client, partition_bytes, progress
            As in `sketchselect.summarize`.

        Raises
        ------
        NotFinite
            For NaN or infinity in X, also where the policy of X drops such rows: each row has a prediction.
        """
        matrix = self._open(X, reset=False)
        values = self._linear(X, matrix, run)
        names, lazy = getattr(self, "_target_names", (None,)), lazy_rows(X, matrix)
        if self.target_task != "classification":
            if np.ndim(self.intercept_) == 0:
                return like_rows(X, values[:, 0], names=names, lazy=lazy)
            return like_rows(X, values, names=names, dimension="target", lazy=lazy)
        if is_dask(values):
            classes = self.classes_
            labels = values.map_blocks(_labels, classes, dtype=classes.dtype, drop_axis=1, meta=classes[:0])
        else:
            labels = _labels(values, self.classes_)
        return like_rows(X, labels, names=names, lazy=lazy)

    @available_if(_classifies)  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any, **run: Unpack[RunKeywords]) -> Any:
        """Return the log odds of the second class, shape (n_rows,), or log posteriors, shape (n_rows, n_classes).

        Log posteriors are up to a constant for each row. Both assume normal classes of equal spread (linear
        discriminant analysis); as a ranking they assume nothing. `run` as in `predict`.
        """
        values = self._linear(X, self._open(X, reset=False), run)
        return like_rows(X, values[:, 0]) if values.shape[1] == 1 else like_rows(X, values, dimension="class")

    def score(self, X: Any, y: Any, sample_weight: Any = None, **run: Unpack[RunKeywords]) -> float:
        """Return R^2 (regression; the mean over targets) or the accuracy (classification); `run` as in `predict`."""
        from sklearn.metrics import accuracy_score, r2_score

        self._check_fitted()
        matrix = self._open(X, reset=False, vectors={"target": y})
        n_rows = matrix.shape[0]
        target = open_vector(y, n_rows, matrix=matrix, name="target").read(0, n_rows)
        predicted = self.predict(matrix, **run)
        measure = accuracy_score if self.target_task == "classification" else r2_score
        return float(measure(target, predicted, sample_weight=sample_weight))

    def _linear(self, X: Any, matrix: Matrix, run: RunKeywords) -> Any:
        """Return ``x'coef + intercept``, shape (n_rows, n_outputs); lazy as X is."""
        terms = self._check_fitted()
        coef = np.atleast_2d(self.coef_)[:, terms].T
        function = partial(_linear_block, terms, self._expansion, coef)
        out = self._apply_to_rows(X, matrix, function, coef.shape[1], "predict", run)
        out += self.intercept_
        return out

    def _check_fitted(self) -> NDArray[np.int64]:
        check_is_fitted(self, "coef_")
        return self._terms

    def _apply_to_rows(
        self, X: Any, matrix: Matrix, function: Callable[[Block], Any], width: int, stage: str, run: RunKeywords
    ) -> Any:
        """Return the `width` columns that a function computes from the prepared rows; lazily for a Dask array."""
        graph = unwrapped(X)
        if is_dask(graph):
            check_run(run)
            rows = graph.rechunk({1: -1})
            piece = partial(_lazy_piece, self._steps(), function)
            return rows.map_blocks(piece, chunks=(rows.chunks[0], (width,)), dtype=np.float64, meta=np.empty((0, 0)))
        with run_options(matrix, **run) as options:
            return map_blocks(Source(matrix, prepare=self._steps()), function, stage, options)

    def set_prepare(self, steps: Sequence[Any]) -> Self:
        """Set the fitted steps of the rows of the fit, for the rows of predictions.

        Needed for models of a summary whose steps have statistics of all rows (tf-idf, standardise).

        Parameters
        ----------
        steps : sequence of Step
            `fit_prepare(...).steps`.

        Raises
        ------
        Incompatible
            If their labels are not those of the summary; the message names both.
        """
        check_is_fitted(self, "coef_")
        resolved_steps = prepare.resolve(steps)
        if prepare.labels(resolved_steps) != self.summary_.prepare:
            raise Incompatible(
                f"the rows of the fit were prepared by {list(self.summary_.prepare)}, but these steps are "
                f"{list(prepare.labels(resolved_steps))}"
            )
        self.steps_ = resolved_steps
        if encode := prepare.encodings(resolved_steps):
            # Rows of predictions are those of the table, which has other columns than the summary.
            names = self.summary_.feature_names
            for step in (step for step in reversed(resolved_steps) if step.encodes is not None):
                names = names and step.names_before(names)
            self._encode, self._n_made = encode, self.summary_.n_features
            if names is not None:
                self.n_features_in_, self.feature_names_in_ = len(names), np.array(names, dtype=object)
        return self

    def _steps(self) -> tuple[prepare.Step, ...]:
        """Return the steps of the rows of the fit."""
        steps: tuple[prepare.Step, ...] = getattr(self, "steps_", ())
        labels: tuple[str, ...] = self.summary_.prepare
        if prepare.labels(steps) != labels:
            steps = prepare.resolve(labels)
        waiting = next((step for step in steps if not step.is_fitted), None)
        if waiting is not None:
            raise BadParameter(
                f"the rows of the fit were prepared by {waiting.label!r}, whose statistics are not in the summary; "
                "pass them to set_prepare(sketchselect.fit_prepare(source, steps, fitted=...).steps)"
            )
        return steps

    def transform(self, X: Any, **run: Unpack[RunKeywords]) -> Any:
        """Return the selected columns; with degree=2 the selected polynomial terms, of standardised columns.

        Columns are returned as by `BaseSelector.transform`, terms as predictions are.
        """
        terms = self._check_fitted()
        if self._expansion is None:
            return super().transform(X, **run)
        function = partial(_term_values, terms, self._expansion)
        values = self._apply_to_rows(X, self._open(X, reset=False), function, terms.size, "transform", run)
        return like_rows(X, values, dimension="term")

    def inverse_transform(self, X: Any) -> Any:
        """Return rows with the selected columns, and zeros in the others; not possible for polynomial terms."""
        if self._check_fitted() is not None and self._expansion is not None:
            raise BadParameter("polynomial terms have no inverse; use degree=1")
        return super().inverse_transform(X)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the selected columns, or polynomial terms (``a``, ``a^2``, ``a b``)."""
        terms = self._check_fitted()
        if self._expansion is None or self._term_names is None:
            return np.asarray(super().get_feature_names_out(input_features))
        return np.array(self._term_names, dtype=object)[terms]


def _term_values(terms: NDArray[np.int64], expansion: Expansion | None, block: Block) -> Floats:
    """Return the selected columns of the design, for the rows of a block."""
    if block.n_dropped:
        raise NotFinite(f"{block.n_dropped} of rows {block.start} to {block.stop - 1} have NaN or infinity")
    return block.values[:, terms] if expansion is None else expansion.of_rows(block.values, terms)


def _linear_block(terms: NDArray[np.int64], expansion: Expansion | None, coef: Floats, block: Block) -> Floats:
    return _term_values(terms, expansion, block) @ coef


def _lazy_piece(steps: tuple[prepare.Step, ...], function: Callable[[Block], Any], rows: Any) -> Any:
    """Return the values of a function for a chunk of rows of a Dask array."""
    policy = "missing" if any(step.fills_missing for step in steps) else "error"
    return function(Source(open_matrix(rows, nonfinite=policy), prepare=steps).block(0, rows.shape[0]))


def _labels(values: Floats, classes: Array) -> Array:
    """Return the label of each row: of two classes by the sign, else that of the largest value."""
    indices = (values[:, 0] > 0).astype(np.intp) if values.shape[1] == 1 else values.argmax(axis=1)
    return np.asarray(classes[indices])
