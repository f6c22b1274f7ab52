"""The certificate of anybody's labels: objective and lower bound from one pass over the rows."""

from __future__ import annotations

import time
from typing import Any

from sketchselect.cluster.certificates.block import BlockOptions, blocks_certificate, opened_rows
from sketchselect.cluster.certificates.certificate import Certificate, compared, with_account
from sketchselect.cluster.certificates.certify import require_method, spectral_certificate
from sketchselect.cluster.certificates.labelled_rows import Measured, measure
from sketchselect.linalg.validation import require_positive
from sketchselect.summaries import BlockBound, FrequentDirections, Summary

SKETCH_ROWS = 8
"""Rows of the sketch per cluster: the spectral bound is then within a few percent of the exact one."""


def certify_labels(
    X: Any,
    labels: Any,
    n_clusters: int,
    method: str = "blocks",
    *,
    block_rows: int = BlockOptions.block_rows,
    confidence: float | None = None,
    fraction: float | None = None,
    sample_weight: Any = None,
    prepare: Any = None,
    seed: int = 0,
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
        Whole numbers from 0 to `n_clusters` - 1.
    n_clusters : int
        Number of clusters of the clusterings compared with.
    method : {"blocks", "spectral"}
        The bound; "spectral" makes a sketch of the rows, which is cheaper and looser.
    sample_weight : array, path or URL of shape (n_rows,), optional
        Row weights, not negative: objective and bound are those of weighted k-means, and rows of weight 0 do not count.
    block_rows, confidence, fraction, prepare, seed, client, checkpoint, progress : optional
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
    began = time.perf_counter()
    n_clusters = require_positive("n_clusters", n_clusters)
    require_method(method)
    blocks = BlockOptions(block_rows, confidence, fraction, seed)
    if method == "spectral":
        blocks.require_unused('for method="blocks"')
        bound: Summary[Any] = FrequentDirections(size=sketch_rows(n_clusters))
    else:
        bound = blocks.description(n_clusters)
    with opened_rows(X, labels, sample_weight, prepare, client, checkpoint, progress) as (rows, options):
        measured = measure(rows, n_clusters, bound, options, stage="certificate")
    return measured_certificate(measured, measured.bound, n_clusters, confidence, began)


def sketch_rows(n_clusters: int) -> int:
    """Return the rows of a sketch that gives a spectral bound."""
    return max(SKETCH_ROWS * n_clusters, 2)


def measured_certificate(
    measured: Measured, bound: Any, n_clusters: int, confidence: float | None, began: float
) -> Certificate:
    """Return the certificate of measured labels.

    `measured`: The labels' objective.
    `bound`: Of the same rows.
    `n_clusters`, `confidence`: As in `certify`.
    `began`: When `time.perf_counter` was asked.
    """
    if isinstance(bound, BlockBound):
        certificate = blocks_certificate(bound, measured.objective, confidence, began)
    else:
        certificate = spectral_certificate(bound, measured.objective, n_clusters, began)
    certificate = certificate if measured.same_rows is None else compared(certificate, measured.same_rows)
    return with_account(certificate, measured.stats, began)
