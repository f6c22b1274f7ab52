"""Labels of any clustering as numbers of clusters from 0: text, and numbers that begin at 1."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Array
from sketchselect.readers import Vector

_ENTRIES = 1 << 20
"""Labels looked at in one go."""


def as_cluster_numbers(labels: Vector, n_clusters: int) -> Vector:
    """Return labels as numbers from 0: text by its sorted values, and numbers from 1 to `n_clusters` less one.

    Reads the labels once; others are returned as they are, for the pass to name what is wrong with them.
    Raises `BadParameter` if text labels have more than `n_clusters` different values.
    """
    if len(labels.shape) != 1 or labels.dtype.kind not in "fiuU":
        return labels
    values: set[Any] = set()
    is_text = labels.dtype.kind == "U"
    for start in range(0, labels.n_rows, _ENTRIES):
        part = labels.read(start, min(start + _ENTRIES, labels.n_rows))
        if not is_text and part.size and not (part.min() >= 1 and part.max() <= n_clusters):
            return labels
        values.update(np.unique(part).tolist())
        if is_text and len(values) > n_clusters:
            raise BadParameter(
                f"labels {labels.address}: more than {n_clusters} different values, and {n_clusters} clusters"
            )
    if is_text:
        return _Numbered(labels, np.array(sorted(values)))
    # Labels from 1 on that leave the last cluster empty cannot be told from labels from 0 on that leave out the first.
    return _Numbered(labels, np.arange(1.0, n_clusters + 1.0)) if n_clusters in values else labels


@dataclass(eq=False)
class _Numbered(Vector):
    """Labels, each replaced by its place among the sorted values."""

    labels: Vector
    values: Array = field(repr=False)

    def __post_init__(self) -> None:
        self.shape, self.dtype, self.address = self.labels.shape, np.dtype(np.float64), self.labels.address
        self.in_memory = self.labels.in_memory

    def read(self, start: int, stop: int) -> Array:
        labels = self.labels.read(start, stop)
        places = np.minimum(np.searchsorted(self.values, labels), len(self.values) - 1)
        # A number between two values is no label: left as it is, the pass names it and its row.
        numbers: Array = places.astype(np.float64)
        if labels.dtype.kind != "U":
            numbers = np.where(self.values[places] == labels, numbers, labels)
        return numbers

    def identity(self) -> str | None:
        inner = self.labels.identity()
        return None if inner is None else f"{inner}/numbered {self.values.tolist()}"
