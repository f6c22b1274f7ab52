"""The certificate of anybody's labels: objective and lower bound from one pass over the rows."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, cast

from sketchselect.cluster.block_certificate import block_description, block_pass
from sketchselect.cluster.certificate import METHODS, Certificate, blocks_certificate, certify
from sketchselect.errors import BadParameter
from sketchselect.summaries import BlockBound, Bundle, CentroidSums, FrequentDirections, Summary

SKETCH_ROWS = 8
"""Rows of the sketch per cluster: the spectral bound is then within a few percent of the exact one."""


def certify_labels(
    X: Any,
    labels: Any,
    n_clusters: int,
    method: str = "blocks",
    *,
    block_rows: int = 400,
    confidence: float | None = None,
    fraction: float | None = None,
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
    Cost: that of `kmeans_objective` and of the bound, with one reading.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [9.0, 0.0], [9.0, 1.0]])
    >>> round(certify_labels(X, [0, 0, 1, 1], 2).factor, 6)
    1.0
    """
    began = time.perf_counter()
    if method not in METHODS:
        raise BadParameter(f"certify method {method!r} is not available; available: {', '.join(map(repr, METHODS))}")
    if method == "spectral":
        idle = {"block_rows": block_rows != 400, "confidence": confidence is not None, "fraction": fraction is not None}
        if unused := [name for name, is_given in (idle | {"seed": seed != 0}).items() if is_given]:
            raise BadParameter(f'certify: {", ".join(unused)} is for method="blocks"; leave it out')
        bound: Summary[Any] = FrequentDirections(size=max(SKETCH_ROWS * n_clusters, 2))
    else:
        bound = block_description(n_clusters, block_rows, confidence, fraction, seed)
    reduced = block_pass(
        X,
        Bundle(objective=CentroidSums(n_clusters), bound=bound),
        labels=labels,
        prepare=prepare,
        client=client,
        checkpoint=checkpoint,
        progress=progress,
    )
    found, stats = cast(Bundle, reduced.value), reduced.stats
    sums = cast(CentroidSums, found["objective"])
    require_all_rows(sums, found.n_rows)
    if method == "blocks":
        return blocks_certificate(cast(BlockBound, found["bound"]), sums.objective, confidence, began, stats)
    certificate = certify(found["bound"], sums.objective, n_clusters)
    spent = time.perf_counter() - began
    return replace(certificate, cost=spent, rows_read=stats.rows_read, bytes_read=stats.bytes_read)


def require_all_rows(sums: CentroidSums, n_rows: int) -> None:
    """Raise `BadParameter` unless every one of the rows has a cluster: a bound of more rows would prove too much."""
    missing = n_rows - round(sums.weight)
    if missing:
        raise BadParameter(
            f"labels: {missing} of {n_rows} rows have a negative label, and only a clustering of all rows can be "
            "certified; give them a cluster, or leave the rows out of the source too"
        )
