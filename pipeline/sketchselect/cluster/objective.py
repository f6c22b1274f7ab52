"""The exact k-means objective of a given partition of the rows, in the original columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sketchselect import prepare as steps
from sketchselect._progress import Statistics
from sketchselect.cluster.kmeans.lloyd import RowLabels, merge_labels, with_dropped_rows
from sketchselect.errors import BadParameter
from sketchselect.execution.api import open_source
from sketchselect.execution.client import open_engine
from sketchselect.execution.engine import PassOptions, reduce_blocks
from sketchselect.execution.source import Block, Source
from sketchselect.execution.summarize import fitted_source, summarize_source, summary_reduction
from sketchselect.readers.results import like_rows
from sketchselect.summaries import CentroidSums


def kmeans_objective(
    X: Any,
    labels: Any,
    n_clusters: int,
    prepare: Sequence[Any] | None = None,
    *,
    sample_weight: Any = None,
    client: Any = None,
) -> float:
    """Return the sum of squared distances of the rows to the mean of their cluster; one pass.

    F = sum_j sum_{i: label_i = j} ||x_i - mean_j||^2 over all columns, exact to rounding at any offset and separation
    (sums about a member of each cluster, merged pairwise).

    Parameters
    ----------
    X : path, URL, array or Matrix of shape (n_rows, n_features)
        Whatever `open_matrix` takes.
    labels : array, path or URL of shape (n_rows,)
        Whole numbers below `n_clusters`; rows with a negative label are left out.
    n_clusters : int
        Number of clusters.
    prepare : sequence, optional
        Steps applied first, such as ``["l2"]``; as in `summarize`.
    sample_weight : array, path or URL of shape (n_rows,), optional
        Row weights, not negative: squared distances count by them, about weighted means.
    client : optional
        Runs the pass, as in `summarize`.

    Returns
    -------
    float

    Raises
    ------
    SourceError
        If rows and labels differ in number.
    BadBlock
        If a label is not a whole number or not below `n_clusters`.

    Notes
    -----
    Cost a row: 5 d flops in float64. Squares of differences below 1e-162 vanish, so a result of 0 need not be exact.

    Examples
    --------
    >>> import numpy as np
    >>> kmeans_objective(np.array([[0.0], [2.0], [9.0]]), np.array([0, 0, 1]), 2)
    2.0
    """
    source = _with_labels(X, labels, prepare, sample_weight)
    with open_engine(client, source.matrix, source.target, source.weight) as engine:
        options = PassOptions(engine)
        return objective_source(fitted_source(source, options), n_clusters, options)


@dataclass(frozen=True, eq=False)
class Reassigned:
    """A partition after one step of k-means in all columns.

    Parameters
    ----------
    labels : int32 array of shape (n_rows,)
        Cluster of each row; negative where the row was left out before, or dropped. In the container of the rows, as
        `KMeans.labels_`.
    objective_before, objective : float
        Exact within-cluster sum of squares of the given partition and of this one, each about its own means.
    means : array of shape (n_clusters, n_features)
        Means of the clusters now; zeros where a cluster is empty.

    Examples
    --------
    >>> import sketchselect as sks
    >>> from sklearn.datasets import make_blobs
    >>> X, _ = make_blobs(200, 6, centers=3, random_state=0)
    >>> labels = sks.KMeans(3, random_state=0).fit(X[:, :2]).labels_
    >>> moved = sks.reassign(X, labels, 3)
    >>> moved.objective <= moved.objective_before
    True
    >>> moved.means.shape
    (3, 6)
    """

    labels: Any
    objective_before: float
    objective: float
    means: NDArray[np.float64]


def reassign(
    X: Any, labels: Any, n_clusters: int, prepare: Sequence[Any] | None = None, *, client: Any = None
) -> Reassigned:
    """Move every row to the nearest of the clusters' means in all columns, once; two passes.

    The objective never rises: rows move to means that are no farther, and the new means are better. If rounding
    would raise it, the labels stay unchanged. For labels found in selected columns this is the cheapest improvement.

    Parameters
    ----------
    X, labels, n_clusters, prepare, client
        As in `kmeans_objective`.

    Returns
    -------
    Reassigned

    Raises
    ------
    SourceError, BadBlock
        As `kmeans_objective`.

    Notes
    -----
    Cost a row: 2 k d flops in float32 products and 13 d in float64.
    Source: Lloyd 1982.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 0.0], [1.0, 0.0], [9.0, 9.0], [1.0, 9.0]])
    >>> result = reassign(X, np.array([0, 1, 1, 1]), 2)
    >>> result.labels.tolist(), round(result.objective_before, 2), round(result.objective, 2)
    ([0, 0, 1, 1], 96.67, 32.5)
    """
    source = _with_labels(X, labels, prepare)
    with open_engine(client, source.matrix, source.target) as engine:
        options = PassOptions(engine)
        rows = fitted_source(source, options)
        sums = summarize_source(rows, CentroidSums(n_clusters), options, stage="inertia")
        result = reassign_source(rows, cast(CentroidSums, sums.value), options)[0]
    labels = like_rows(X, result.labels, names=("cluster",), lazy=source.matrix.dask_rows())
    return replace(result, labels=labels)


def reassign_source(source: Source, before: CentroidSums, options: PassOptions) -> tuple[Reassigned, Statistics]:
    """Return the rows of `source` moved to the nearest mean of `before`, and the statistics of the pass.

    Parameters
    ----------
    source : Source
        Its target is the labels that `before` was made with: rows with a negative one stay out.
    before : CentroidSums
        The clusters; empty ones stay empty.
    options : PassOptions
        Of the pass.
    """
    nonempty = np.flatnonzero(before.cluster_weights > 0)
    if nonempty.size == 0:
        raise BadParameter("reassign: no row has a cluster, so there is nothing to move rows to")
    description = CentroidSums(centers=before.cluster_means[nonempty])
    source = replace(source, takes_sparse=description.accepts_sparse)
    reduction = summary_reduction(source, description, "reassign", partial(_reassign, description), merge_labels)
    result = reduce_blocks(source, reduction, options)
    sums, nearest = result.value.sums, result.value.labels
    if not sums.objective <= before.objective:
        assert source.target is not None
        labels = np.where(nearest < 0, -1, source.target.read(0, nearest.size).reshape(-1)).astype(np.int32)
        return Reassigned(labels, before.objective, before.objective, before.cluster_means), result.stats
    labels = np.where(nearest < 0, nearest, nonempty[nearest]).astype(np.int32)
    means = np.zeros(before.cluster_means.shape)
    means[nonempty] = sums.cluster_means
    return Reassigned(labels, before.objective, sums.objective, means), result.stats


def _reassign(description: CentroidSums, block: Block) -> RowLabels:
    """Return the nearest centre of every row of a block that has a label, and the sums of the clusters."""
    out = np.asarray(block.target).reshape(-1) < 0
    counts = None if not out.any() else (~out).astype(np.float64)
    nearest, sums = description.label_block(block.values, start=block.position, sample_weight=counts)
    return RowLabels(sums, with_dropped_rows(np.where(out, -1, nearest).astype(np.int32), block))


def _with_labels(X: Any, labels: Any, prepare: Sequence[Any] | None, sample_weight: Any = None) -> Source:
    return open_source(X, labels, sample_weight, steps.resolve(prepare), target_name="labels")


def objective_source(source: Source, n_clusters: int, options: PassOptions) -> float:
    """Return the objective of the labels that are the target of `source`, weighted if it has weights; one pass."""
    if source.target is None:
        raise BadParameter("the objective needs the rows' labels as the target of the source")
    result = summarize_source(source, CentroidSums(n_clusters), options, stage="inertia")
    return cast(CentroidSums, result.value).objective
