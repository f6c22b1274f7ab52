"""Moments: weight, mean and centred co-moment of features and targets, merged pairwise without cancellation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Array, Floats, as_targets
from sketchselect.linalg.comoments import centered_gram, merge_means
from sketchselect.linalg.spectrum import Directions, symmetric_directions
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.summaries.base import Summary
from sketchselect.summaries.registry import register


@dataclass(frozen=True)
class MomentsRecord:
    """State of `Moments`; the last `n_targets` columns of mean and co-moment are the targets."""

    n_rows: int
    n_targets: int
    weight: float
    squared_weight: float
    mean: Floats
    comoment: Floats

    @property
    def n_features(self) -> int:
        """Number of columns of X."""
        return int(self.mean.shape[0]) - self.n_targets


@register
class Moments(Summary[MomentsRecord]):
    """First and second moments of the rows [x, y]: everything a linear model needs, exactly.

    Keeps ``C = sum w (z - mean)(z - mean)'`` for z = [x, y]; merged with
    ``C = C_a + C_b + (W_a W_b / W) (mean_b - mean_a)(mean_b - mean_a)'``. Relative error of variances about
    1e-11 at mean/sd = 1e8, where raw sums of squares keep no digit.

    Notes
    -----
    Cost a row: (p + q)^2 flops. Bytes: 8 (p + q)^2.
    Source: Chan, Golub and LeVeque 1983; used as in Sun, Guo and Barbu 2019, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> X = 1e8 + np.arange(6.0).reshape(3, 2)
    >>> m = Moments().from_block(X[:1]).merge(Moments().from_block(X[1:]))
    >>> m.covariance().diagonal().round(6).tolist()
    [2.666667, 2.666667]
    """

    kind = "moments"
    record_type = MomentsRecord

    def parameters(self) -> dict[str, Any]:
        """Return the constructor's arguments: none."""
        return {}

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the bytes of one state."""
        d = n_features + n_targets
        return 8 * (d * d + d) + 64

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the extra bytes of one `from_block` or `merge`."""
        d = n_features + n_targets
        return 8 * (2 * d * d + 2 * 2048 * d)

    def _targets(self, y: Any, n_rows: int) -> Floats:
        return as_targets(y, n_rows)

    def _empty(self, n_features: int, n_targets: int) -> MomentsRecord:
        d = n_features + n_targets
        return MomentsRecord(0, n_targets, 0.0, 0.0, np.zeros(d), np.zeros((d, d)))

    def _summarise(self, block: Array, targets: Floats, start: int | Array, weights: Floats | None) -> MomentsRecord:
        joint = block if targets.shape[1] == 0 else np.hstack([block.astype(np.float64, copy=False), targets])
        weight, mean, comoment, _ = centered_gram(joint, weights, start)
        squared = float(block.shape[0]) if weights is None else float(weights @ weights)
        return MomentsRecord(block.shape[0], targets.shape[1], weight, squared, mean, comoment)

    def _combine(self, left: MomentsRecord, right: MomentsRecord) -> MomentsRecord:
        weight, mean, difference, factor = merge_means(left.weight, left.mean, right.weight, right.mean)
        comoment = np.outer(factor * difference, difference)
        comoment += left.comoment
        comoment += right.comoment
        squared = left.squared_weight + right.squared_weight
        return MomentsRecord(left.n_rows + right.n_rows, left.n_targets, weight, squared, mean, comoment)

    # --- answers -----------------------------------------------------------------------------------------------

    @property
    def weight(self) -> float:
        """Total weight of the rows (their number, if none were given)."""
        return self.record.weight

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return self.record.n_targets

    @property
    def mean(self) -> Floats:
        """Means of the features, shape (n_features,)."""
        return self.record.mean[: self.n_features]

    @property
    def y_mean(self) -> Floats:
        """Means of the targets, shape (n_targets,)."""
        return self.record.mean[self.n_features :]

    def _scaled(self, rows: slice, columns: slice, ddof: float = 0) -> Floats:
        divisor = self.weight - ddof
        if divisor <= 0:
            raise BadParameter(f"covariance of total weight {self.weight:g} with ddof = {ddof:g} is undefined")
        return self.record.comoment[rows, columns] / divisor

    def covariance(self, ddof: float = 0) -> Floats:
        """Return ``sum w (x - mean)(x - mean)' / (W - ddof)``, shape (n_features, n_features)."""
        x = slice(0, self.n_features)
        return self._scaled(x, x, ddof)

    def gram(self) -> Floats:
        """Return ``A'A = sum w x x'``, about zero; shape (n_features, n_features)."""
        p = self.n_features
        return self.record.comoment[:p, :p] + np.outer(self.weight * self.mean, self.mean)

    @property
    def xy(self) -> Floats:
        """``(1/W) sum w (x - mean)(y - y_mean)'``, shape (n_features, n_targets)."""
        return self._scaled(slice(0, self.n_features), slice(self.n_features, None))

    @property
    def yy(self) -> Floats:
        """``(1/W) sum w (y - y_mean)(y - y_mean)'``, shape (n_targets, n_targets)."""
        y = slice(self.n_features, None)
        return self._scaled(y, y)

    @property
    def centered_column_squared_norms(self) -> Floats:
        """Squared norms of the feature columns about their means."""
        return self.record.comoment.diagonal()[: self.n_features].copy()

    @property
    def centered_squared_norm(self) -> float:
        """Total scatter of the features about their mean."""
        return float(self.centered_column_squared_norms.sum())

    @cached_property
    def centered_directions(self) -> Directions:
        """Squared singular values and right singular vectors of the centred feature matrix, descending; exact."""
        p = self.n_features
        with one_blas_thread():
            return symmetric_directions(self.record.comoment[:p, :p])
