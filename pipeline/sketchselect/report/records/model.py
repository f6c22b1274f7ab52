"""Record of a fitted model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from sketchselect.errors import BadParameter
from sketchselect.report.records.shapes import require_shape


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelRecord:
    """A sparse linear model and the path of models it was chosen from.

    Parameters
    ----------
    task : str
        "regression" or "classification".
    outputs : sequence of str
        Names of the outputs.
    terms : sequence of str
        The listed terms of the model, strongest first: a column's number or name, or a product of columns.
    coefficients : array (n_listed, n_outputs)
        Coefficients of the listed terms, in units of the data.
    strengths : array (n_listed,)
        Coefficients of the standardised terms (norms of several targets'): comparable with one another.
    intercepts : array (n_outputs,)
        Not finite where an output never wins.
    n_terms : int
        Terms of the model, listed or not.
    chosen_by : str
        Rule that this model was chosen by.
    explained, explained_held_out : float or None
        Share of the target's variance that the model explains on the rows it was fitted to, and on held-out folds.
    parameter : str
        "alpha" or "n_features": the parameter that varies along the path.
    values, sizes : array (m,)
        That parameter, and the number of terms, of each model of the path.
    chosen : int
        Index of the chosen model.
    path_terms : sequence of str
        Terms followed along the path, strongest first.
    path_lines : array (m, n_followed)
        Their standardised coefficients.
    criteria : mapping of str to array (m,)
        Information criteria; smaller is better.
    cv_mean, cv_error : array (m,) or None
        Mean squared error over held-out folds, and its standard error.
    cv_folds : int
        Number of folds.
    cv_rule : str
        "min" or "1se".
    expanded : bool
        Whether terms include squares and products of columns.

    Raises
    ------
    BadParameter
        Two fields contradict each other.
    """

    task: str
    outputs: Sequence[str]
    terms: Sequence[str]
    coefficients: ArrayLike
    strengths: ArrayLike
    intercepts: ArrayLike
    n_terms: int
    chosen_by: str
    values: ArrayLike
    sizes: ArrayLike
    chosen: int
    parameter: str = "alpha"
    explained: float | None = None
    explained_held_out: float | None = None
    path_terms: Sequence[str] = ()
    path_lines: ArrayLike | None = None
    criteria: Mapping[str, ArrayLike] = field(default_factory=dict)
    cv_mean: ArrayLike | None = None
    cv_error: ArrayLike | None = None
    cv_folds: int = 0
    cv_rule: str = "min"
    expanded: bool = False

    def __post_init__(self) -> None:
        """Refuse records whose parts do not fit together."""
        m, n, q = len(np.asarray(self.values)), len(self.terms), len(self.outputs)
        if not 0 <= self.chosen < m:
            raise BadParameter(f"report: model.chosen is {self.chosen}, the path has {m} models")
        require_shape("model.strengths", self.strengths, (n,))
        require_shape("model.intercepts", self.intercepts, (q,))
        require_shape("model.coefficients", self.coefficients, (n, q))
        if len(self.path_terms):
            require_shape("model.path_lines", self.path_lines, (m, len(self.path_terms)))
        curves = {"sizes": self.sizes, "cv_mean": self.cv_mean, "cv_error": self.cv_error, **self.criteria}
        for name, values in curves.items():
            require_shape(f"model.{name}", values, (m,))
