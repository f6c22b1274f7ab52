"""Use of a fitted linear model: predictions, scores and selected columns of any source, partition by partition."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from sketchselect import prepare
from sketchselect.errors import BadParameter, Incompatible
from sketchselect.linalg.arrays import Array, Floats, require_finite
from sketchselect.linalg.sparse.csr import densify, is_csr
from sketchselect.readers import DEFAULT_PARTITION_BYTES, open_vector, row_partitions
from sketchselect.selectors.streams.forgetting import ForgettingSelector
from sketchselect.selectors.supervised.moments import Expansion


def _classifies(estimator: Any) -> bool:
    if estimator.task != "classification":
        raise AttributeError('decision_function needs task="classification"')
    return True


class LinearPredictor(ForgettingSelector):
    """Base class of fitted linear models: `predict`, `decision_function`, `score`, `transform`."""

    task: Any
    coef_: Floats
    intercept_: Any
    classes_: Array
    _terms: NDArray[np.int64]
    _term_names: tuple[str, ...] | None
    _expansion: Expansion | None

    def predict(self, X: Any) -> Array:
        """Return the predicted target, or label, of each row: shape (n_rows,), or (n_rows, n_targets).

        Parameters
        ----------
        X : anything `open_matrix` takes
            Read partition by partition; its rows go through the steps of the fit.
        """
        values = self._linear(X)
        if self.task != "classification":
            return values[:, 0] if np.ndim(self.intercept_) == 0 else values
        if values.shape[1] == 1:
            return np.asarray(self.classes_[(values[:, 0] > 0).astype(np.intp)])
        return np.asarray(self.classes_[values.argmax(axis=1)])

    @available_if(_classifies)  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Floats:
        """Return the log odds of the second class, shape (n_rows,), or log posteriors, shape (n_rows, n_classes).

        Log posteriors are up to a constant for each row. Both assume normal classes of equal spread (linear
        discriminant analysis); as a ranking they assume nothing.
        """
        values = self._linear(X)
        return values[:, 0] if values.shape[1] == 1 else values

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R^2 (regression; the mean over targets) or the accuracy (classification) of the predictions."""
        from sklearn.metrics import accuracy_score, r2_score

        matrix = self._open(X, reset=False, vectors=(y,))
        n_rows = matrix.shape[0]
        target = open_vector(y, n_rows, matrix_address=matrix.address, name="target").read(0, n_rows)
        predicted = self.predict(matrix)
        measure = accuracy_score if self.task == "classification" else r2_score
        return float(measure(target, predicted, sample_weight=sample_weight))

    def _linear(self, X: Any) -> Floats:
        """Return ``x'coef + intercept``, shape (n_rows, n_outputs)."""
        terms = self._check_fitted()
        coef = np.atleast_2d(self.coef_)[:, terms].T
        partitions = [self._columns(rows) @ coef for rows in self._bands(X)]
        out: Floats = np.concatenate(partitions) + self.intercept_
        return out

    def _check_fitted(self) -> NDArray[np.int64]:
        check_is_fitted(self, "coef_")
        return self._terms

    def _bands(self, X: Any) -> Any:
        """Yield the prepared rows, partition by partition."""
        matrix = self._open(X, reset=False)
        steps = self._steps()
        edges = row_partitions(matrix, DEFAULT_PARTITION_BYTES).edges
        for a, b in pairwise(edges):
            rows = matrix.read_rows(a, b)
            rows = densify(rows) if is_csr(rows) else rows
            require_finite(rows, a)
            yield prepare.apply_steps(steps, rows, position=a, address=matrix.address)

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
        resolved = prepare.resolve(steps)
        if prepare.labels(resolved) != self.summary_.prepare:
            raise Incompatible(
                f"the rows of the fit were prepared by {list(self.summary_.prepare)}, but these steps are "
                f"{list(prepare.labels(resolved))}"
            )
        self.steps_ = resolved
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

    def _columns(self, rows: Array) -> Any:
        """Return the selected columns of the design, for these rows."""
        if self._expansion is not None:
            return self._expansion.of_rows(rows, self._terms)
        return rows[:, self._terms]

    def transform(self, X: Any) -> Any:
        """Return the selected columns; with degree=2 the selected polynomial terms, of standardised columns.

        Columns are returned as by `BaseSelector.transform`, terms as an array.
        """
        if self._check_fitted() is not None and self._expansion is None:
            return super().transform(X)
        return np.concatenate([self._columns(rows) for rows in self._bands(X)])

    def inverse_transform(self, X: Any) -> Any:
        """Return rows with the selected columns, and zeros in the others; not possible for polynomial terms."""
        if self._check_fitted() is not None and self._expansion is not None:
            raise BadParameter("polynomial terms have no inverse; use degree=1")
        return super().inverse_transform(X)

    def _get_support_mask(self) -> NDArray[np.bool_]:
        terms = self._check_fitted()
        mask = np.zeros(self.scores_.size, dtype=bool)
        mask[terms] = True
        return mask

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the selected columns, or polynomial terms (``a``, ``a^2``, ``a b``)."""
        terms = self._check_fitted()
        if self._expansion is None or self._term_names is None:
            return np.asarray(super().get_feature_names_out(input_features))
        return np.array(self._term_names, dtype=object)[terms]
