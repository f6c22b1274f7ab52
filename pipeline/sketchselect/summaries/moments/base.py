"""Base class of summaries of moments: means, covariances, effective number of rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Floats, as_targets
from sketchselect.linalg.sketch.spectrum import Directions, symmetric_directions
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.summaries.base import Summary
from sketchselect.summaries.moments.classes import Label, encode_labels, n_class_targets


class WeightedRecord(Protocol):
    """Common fields of records of moments."""

    @property
    def n_targets(self) -> int:
        """Number of target columns."""

    @property
    def weight(self) -> float:
        """Total weight."""

    @property
    def squared_weight(self) -> float:
        """Sum of squared weights."""


R = TypeVar("R", bound=WeightedRecord)
S = TypeVar("S")


class ClassTargets(Summary[S]):
    """Mixin of the summaries whose targets are numbers, or the codes of class labels."""

    classes: tuple[Label, ...] | None = None
    """Class labels if y are labels; the targets are then their codes."""

    def _targets(self, y: Any, n_rows: int) -> Floats:
        return as_targets(y, n_rows) if self.classes is None else encode_labels(y, self.classes, n_rows)

    def _n_joint(self, n_features: int, n_targets: int) -> tuple[int, int]:
        """Return the numbers of features and of target columns, which classes determine."""
        return n_features, n_targets if self.classes is None else n_class_targets(self.classes)


class JointMoments(ClassTargets[R]):
    """A summary of the mean and scatter of the rows [x, y]."""

    @abstractmethod
    def _joint_mean(self) -> Floats:
        """Return the mean of [x, y], shape (n_features + n_targets,)."""

    @abstractmethod
    def _scatter(self) -> Floats:
        """Return ``sum w (z - mean)(z - mean)'`` of z = [x, y]; it may be the state itself and is read-only."""

    def details(self) -> Iterator[str]:
        """Yield the kind of target."""
        count = self.n_targets
        kind = "none" if count == 0 else "numbers" if count == 1 else f"{count} columns of numbers"
        if self.classes is not None:
            shown = ", ".join(f"{label!s:.40}" for label in self.classes[:5])
            kind = f"{len(self.classes)} classes ({shown}{', ...' if len(self.classes) > 5 else ''})"
        yield f"target: {kind}"

    @property
    def weight(self) -> float:
        """Total weight of the rows; their number by default."""
        return self.record.weight

    @property
    def n_effective(self) -> float:
        """Effective number of rows, ``(sum w)^2 / sum w^2``; 0 without weight."""
        squared = self.record.squared_weight
        return self.weight * (self.weight / squared) if squared > 0 else 0.0

    @property
    def n_targets(self) -> int:
        """Number of target columns."""
        return self.record.n_targets

    @property
    def mean(self) -> Floats:
        """Means of the features, shape (n_features,)."""
        return self._joint_mean()[: self.n_features]

    @property
    def y_mean(self) -> Floats:
        """Means of the targets, shape (n_targets,)."""
        return self._joint_mean()[self.n_features :]

    @property
    def class_weights(self) -> Floats:
        """Total weight of the rows of each class, in the order of `classes`.

        Raises `BadParameter` if the targets are not class labels.
        """
        if self.classes is None:
            raise BadParameter("these moments have no classes; create them as Moments(classes=...)")
        shares = self.y_mean
        if len(self.classes) == 2:
            shares = np.array([(1 - shares[0]) / 2, (1 + shares[0]) / 2])
        return self.weight * shares

    def _divided(self, rows: slice, columns: slice, ddof: float = 0) -> Floats:
        divisor = self.weight - ddof
        if divisor <= 0:
            raise BadParameter(f"covariance of total weight {self.weight:g} with ddof = {ddof:g} is undefined")
        return self._scatter()[rows, columns] / divisor

    def covariance(self, ddof: float = 0) -> Floats:
        """Return ``sum w (x - mean)(x - mean)' / (W - ddof)``, shape (n_features, n_features)."""
        x = slice(0, self.n_features)
        return self._divided(x, x, ddof)

    def gram(self) -> Floats:
        """Return ``A'A = sum w x x'``, about zero; shape (n_features, n_features)."""
        p = self.n_features
        return self._scatter()[:p, :p] + np.outer(self.weight * self.mean, self.mean)

    @property
    def xy(self) -> Floats:
        """``(1/W) sum w (x - mean)(y - y_mean)'``, shape (n_features, n_targets)."""
        return self._divided(slice(0, self.n_features), slice(self.n_features, None))

    @property
    def yy(self) -> Floats:
        """``(1/W) sum w (y - y_mean)(y - y_mean)'``, shape (n_targets, n_targets)."""
        y = slice(self.n_features, None)
        return self._divided(y, y)

    @property
    def centered_column_squared_norms(self) -> Floats:
        """Squared norms of the feature columns about their means."""
        return self._scatter().diagonal()[: self.n_features].copy()

    @property
    def centered_squared_norm(self) -> float:
        """Total scatter of the features about their mean."""
        return float(self.centered_column_squared_norms.sum())

    @cached_property
    def centered_directions(self) -> Directions:
        """Squared singular values and right singular vectors of the centred feature matrix, descending; exact."""
        p = self.n_features
        with one_blas_thread():
            return symmetric_directions(self._scatter()[:p, :p])
