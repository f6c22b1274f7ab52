"""The contingency table of two groupings of the rows, merged from parts: NMI, ARI, purity and accuracy follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import BadBlock, BadParameter, Incompatible
from sketchselect.linalg import agreement
from sketchselect.linalg.arrays import Array

MAX_CELLS = 1 << 24
"""Largest number of cells of a table."""


@dataclass(frozen=True, eq=False)
class Contingency:
    """Number of rows for each pair of labels of two groupings, such as known classes and clusters.

    ``a.merge(b)`` is the table of the rows of both: integer counts, so exact, associative and commutative, with any
    labels in either part; the table without rows is its identity. All measures follow from the table.

    Parameters
    ----------
    classes : array of shape (n_classes,)
        Labels of the first grouping, ascending.
    clusters : array of shape (n_clusters,)
        Labels of the second grouping, ascending.
    counts : array of shape (n_classes, n_clusters), int64
        Rows of each class in each cluster.

    Notes
    -----
    Bytes: 8 n_classes n_clusters, for any number of rows.

    Examples
    --------
    >>> first = Contingency.of(["a", "a", "b"], [0, 0, 1])
    >>> both = first.merge(Contingency.of(["b", "c"], [1, 1]))
    >>> both.counts.tolist(), both.n_rows, both.accuracy
    ([[2, 0], [0, 2], [0, 1]], 5, 0.8)
    """

    classes: Array
    clusters: Array
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, classes: Any, clusters: Any) -> Contingency:
        """Return the table of some rows from their two labels.

        Parameters
        ----------
        classes, clusters : array of shape (n_rows,)
            Numbers (no NaN) or text.

        Raises
        ------
        BadBlock
            If they differ in length or are not one-dimensional, or a label is NaN.
        BadParameter
            If the table would have more than `MAX_CELLS` cells.
        """
        first, second = np.asarray(classes), np.asarray(clusters)
        if first.ndim != 1 or first.shape != second.shape:
            raise BadBlock(f"every row needs two labels, got arrays of shapes {first.shape} and {second.shape}")
        for labels in (first, second):
            if labels.dtype.kind == "f" and np.isnan(labels).any():
                raise BadBlock(f"the label of row {int(np.isnan(labels).argmax())} is NaN; leave such rows out")
        rows, row_of = np.unique(first, return_inverse=True)
        columns, column_of = np.unique(second, return_inverse=True)
        _require_cells(rows.size, columns.size)
        cells = np.bincount(row_of * columns.size + column_of, minlength=rows.size * columns.size)
        return cls(rows, columns, cells.astype(np.int64).reshape(rows.size, columns.size))

    def merge(self, other: Contingency) -> Contingency:
        """Return the table of the rows of both; neither is changed.

        Raises
        ------
        Incompatible
            If labels are text in one and numbers in the other.
        BadParameter
            If the table would have more than `MAX_CELLS` cells.
        """
        if not self.n_rows or not other.n_rows:
            return self if self.n_rows else other
        classes, clusters = _union(self.classes, other.classes), _union(self.clusters, other.clusters)
        _require_cells(classes.size, clusters.size)
        counts = np.zeros((classes.size, clusters.size), dtype=np.int64)
        for one in (self, other):
            counts[np.ix_(np.searchsorted(classes, one.classes), np.searchsorted(clusters, one.clusters))] += one.counts
        return Contingency(classes, clusters, counts)

    @property
    def n_rows(self) -> int:
        """Rows counted."""
        return int(self.counts.sum())

    @property
    def nmi(self) -> float:
        """Normalised mutual information, with the arithmetic mean of the entropies."""
        return agreement.normalized_mutual_information(self.counts)

    @property
    def ari(self) -> float:
        """Adjusted Rand index."""
        return agreement.adjusted_rand_index(self.counts)

    @property
    def purity(self) -> float:
        """Share of rows in the most frequent class of their cluster."""
        return agreement.purity(self.counts)

    @property
    def accuracy(self) -> float:
        """Share of rows whose class and cluster are a pair of the best one-to-one matching."""
        return agreement.matched_accuracy(self.counts)

    def __repr__(self) -> str:
        return f"<Contingency of {self.n_rows} rows: {len(self.classes)} classes x {len(self.clusters)} clusters>"


def _union(left: Array, right: Array) -> Array:
    if (left.dtype.kind == "U") != (right.dtype.kind == "U"):
        raise Incompatible("cannot merge tables of labels that are text in one and numbers in the other")
    both: Array = np.union1d(left, right)
    return both


def _require_cells(n_classes: int, n_clusters: int) -> None:
    if n_classes * n_clusters > MAX_CELLS:
        raise BadParameter(
            f"{n_classes} labels against {n_clusters} make a table of more than {MAX_CELLS} cells; "
            "use labels of groups, not a label for almost every row"
        )
