"""The certificate of anybody's labels: objective and lower bound from one pass over the rows.

Labels of any clustering as numbers of clusters from 0: text, and numbers that begin at 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sketchselect.cluster.certificates.block import BlockOptions, opened_rows
from sketchselect.cluster.certificates.certificate import Certificate
from sketchselect.cluster.certificates.certify import bound_from_rows
from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Array
from sketchselect.linalg.validation import require_positive
from sketchselect.readers import Vector

_ENTRIES = 1 << 20  # Labels looked at in one go


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


def certify_labels(
    X: Any,
    labels: Any,
    n_clusters: int,
    method: str | None = None,
    *,
    block_rows: int = BlockOptions.block_rows,
    confidence: float | None = None,
    fraction: float | None = None,
    sample_weight: Any = None,
    prepare: Any = None,
    random_state: int = 0,
    client: Any = None,
    checkpoint: Any = None,
    progress: Any = False,
) -> Certificate:
    """Return how far a clustering, whoever made it, can be from the best one: one pass over the rows.

    The objective of the labels, exact in all columns, over a lower bound of the best possible one; see `certify`.

    Parameters
    ----------
    X : path, URL, array or Matrix of shape (n_rows, n_features)
        Whatever `open_matrix` takes.
    labels : array, path or URL of shape (n_rows,)
        Whole numbers from 0 to `n_clusters` - 1, or from 1 to `n_clusters`, or text; also a ``.csv`` or ``.txt`` file.
    n_clusters : int
        Number of clusters of the clusterings compared with.
    method : {"spectral", "blocks"}, optional
        The bound; None takes the closer of both, as in `certify`.
    sample_weight : array, path or URL of shape (n_rows,), optional
        Row weights, not negative: objective and bound are those of weighted k-means, and rows of weight 0 do not count.
    block_rows, confidence, fraction, prepare, random_state, client, checkpoint, progress : optional
        As in `certify`.

    Returns
    -------
    Certificate

    Raises
    ------
    BadParameter
        If a row that was read has a negative label: only a clustering of all rows can be certified.
    SourceError, BadBlock
        As `kmeans_objective`.

    Notes
    -----
    Cost: that of `kmeans_objective` and of the bound, with one reading; where the objective comes out as 0 the rows of
    each cluster are compared, in a second one, since squares of differences below 1e-162 vanish.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [9.0, 0.0], [9.0, 1.0]])
    >>> round(certify_labels(X, [0, 0, 1, 1], 2).factor, 6)
    1.0
    """
    n_clusters = require_positive("n_clusters", n_clusters)
    blocks = BlockOptions(block_rows, confidence, fraction, random_state)
    with opened_rows(X, labels, sample_weight, prepare, client, checkpoint, progress) as (rows, options):
        assert rows.target is not None
        rows = replace(rows, target=as_cluster_numbers(rows.target, n_clusters))
        return bound_from_rows(rows, None, n_clusters, method, blocks, options)
