"""Base class of selectors that score columns on the top k directions of a Frequent Directions sketch."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.sketch.spectrum import subspace_angle
from sketchselect.linalg.validation import require_positive
from sketchselect.selectors.selection import Selection, rank
from sketchselect.selectors.streams.forgetting import DecayingSelector, Sketch
from sketchselect.summaries import Summary


class SketchedSelector(DecayingSelector):
    """Base of the selectors with k = `n_components` directions of a sketch of `sketch_size` rows.

    Parameters
    ----------
    n_components : int, optional
        Directions k; min(10, n_features - 1) by default. Must be below `sketch_size`.
    sketch_size : int, optional
        Rows l of the sketch; min(n_features, max(8 k, 64)) by default.
    """

    requires: ClassVar[tuple[str, ...]] = ("frequent-directions", "decayed-directions")
    limits_components: ClassVar[bool] = True

    n_components: int | None
    sketch_size: int | None
    compensate: bool
    literal: bool = False

    @abstractmethod
    def _scores(
        self, summary: Any, squares: Floats, n_components: int, n_select: int
    ) -> tuple[Floats, dict[str, Any], dict[str, Any]]:
        """Return the columns' scores, and the resolved parameters and the diagnostics that only this method has.

        `squares` are the s_i^2 to score with.
        """

    def _select(self, summary: Sketch, n_select: int) -> Selection:
        self.check_parameters()
        k = self._resolved_components(summary)
        compensate = bool(self.compensate) and not self.literal
        squares = scored_squares(summary, compensate)
        scores, parameters, diagnostics = self._scores(summary, squares, k, n_select)
        return Selection(
            method=self.method,
            support=np.sort(rank(scores)[:n_select]),
            scores=scores,
            feature_names=summary.feature_names,
            parameters={
                "n_features_to_select": n_select,
                "n_components": k,
                "sketch_size": summary.size,
                "normalize": self._normalized(summary),
                "compensate": compensate,
                "half_life": getattr(summary, "half_life", None),
                "window": self.window,
                **parameters,
            },
            diagnostics={
                "shrinkage": summary.shrinkage,
                "subspace_angle": subspace_angle(
                    summary.directions.squares, k, summary.shrinkage + summary.single_rounding, summary.n_features
                ),
                **diagnostics,
            },
        )

    def _components(self, n_features: int) -> int:
        if self.n_components is None:
            return max(min(10, n_features - 1), 1)
        return require_positive("n_components", self.n_components)

    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the sketch of `sketch_size` rows; the default is min(n_features, max(8 k, 64)), at least k + 1."""
        k = self._components(n_features)
        if self.sketch_size is None:
            return self._sketch(max(min(n_features, max(8 * k, 64)), k + 1, 2))
        sketch = self._sketch(self.sketch_size)
        if sketch.size <= k:
            raise BadParameter(
                f"sketch_size ({sketch.size}) must exceed n_components ({k}): a sketch has size - 1 directions"
            )
        return sketch

    def _resolved_components(self, summary: Sketch) -> int:
        """Return k; raise `BadParameter` if the sketch has fewer directions."""
        k = self._components(summary.n_features)
        if summary.size <= k:
            raise BadParameter(
                f"n_components = {k}, but a sketch of size {summary.size} has only {summary.size - 1} directions; "
                "lower n_components, or make the sketch larger"
            )
        return k


def scored_squares(summary: Sketch, compensate: bool) -> Floats:
    """Return s_i^2 of a sketch for scoring: with `compensate` their upper bounds."""
    squares = summary.directions.squares
    return np.where(squares > 0, squares + summary.shrinkage, 0.0) if compensate else squares


def n_significant(squares: Floats, n_features: int, n_components: int) -> int:
    """Return how many of the first `n_components` directions are above the rounding of the largest."""
    top = float(squares[0]) if squares.size else 0.0
    # Directions at rounding level are noise, which a division by their size would blow up.
    above = int(np.count_nonzero(squares > n_features * float(np.finfo(np.float64).eps) * top))
    return min(n_components, above)
