"""The certificate of anybody's labels: objective and lower bound from one pass over the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sketchselect.cluster.certificates.block import BlockOptions, opened_rows
from sketchselect.cluster.certificates.certificate import Certificate
from sketchselect.cluster.certificates.certify import bound_from_rows
from sketchselect.cluster.certificates.label_numbers import as_cluster_numbers
from sketchselect.linalg.validation import require_positive


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
