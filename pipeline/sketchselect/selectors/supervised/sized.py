"""Base class of supervised selectors whose models differ in their number of columns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from sketchselect.linalg.arrays import Floats
from sketchselect.selectors.supervised.base import SupervisedSelector
from sketchselect.selectors.supervised.model_path import Candidate
from sketchselect.solvers import Problem

_SIZES = 50


class SizedSelector(SupervisedSelector):
    """Base of `ThresholdedOLS` and `FeatureSelectionAnnealing`."""

    parameter: ClassVar[str] = "n_features"
    # the models of a size are least-squares fits of their columns from the start
    refit = False

    @property
    def refits(self) -> bool:
        """Whether the chosen model is the unregularised fit of its columns: always."""
        return True

    @abstractmethod
    def _of_sizes(self, problem: Problem, sizes: Sequence[int]) -> tuple[list[Candidate], Floats]:
        """Return a model of each of these sizes (ascending, at least 1), and the scores of all columns."""

    def _models(
        self, problem: Problem, size: int | None, values: Sequence[float] | None
    ) -> tuple[Sequence[Candidate], Floats | None]:
        n_active = int(np.count_nonzero(problem.active))
        if size is not None:
            return self._of_sizes(problem, [min(size, n_active)])
        if values is None:
            most = max(min(n_active, self._most_columns(problem)), 1)
            values = [0, *np.unique(np.round(np.geomspace(1, most, _SIZES)).astype(int)).tolist()]
        # A fold may leave a column constant.
        sizes = [min(int(v), n_active) for v in values]
        positive = [s for s in sizes if s > 0]
        candidates, scores = self._of_sizes(problem, positive) if positive else ([], np.zeros(problem.scale.size))
        empty = [Candidate.of(problem, 0.0, np.zeros(problem.xy.shape)) for s in sizes if s == 0]
        return [*empty, *candidates], scores
