"""The exact k-means objective of a given partition of the rows, in the original columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from sketchselect import prepare as steps
from sketchselect import readers
from sketchselect.errors import BadParameter
from sketchselect.execution.block import Source
from sketchselect.execution.checkpoint import Checkpoint
from sketchselect.execution.engine import Engine
from sketchselect.execution.engines import as_engine
from sketchselect.execution.progress import Progress
from sketchselect.execution.summarize import summarize_source
from sketchselect.summaries import CentroidSums


def kmeans_objective(
    X: Any, labels: Any, n_clusters: int, prepare: Sequence[str] | None = None, *, client: Any = None
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
    prepare : sequence of str, optional
        Row steps applied first, such as ``["l2"]``.
    client : Client, str, Engine or None
        What runs the pass: threads of this process by default; see `summarize`.

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
    Cost a row: 5 d flops in float64.

    Examples
    --------
    >>> import numpy as np
    >>> kmeans_objective(np.array([[0.0], [2.0], [9.0]]), np.array([0, 0, 1]), 2)
    2.0
    """
    checked = steps.check_steps(prepare)
    matrix = readers.open_matrix(X)
    vector = readers.open_vector(labels, matrix.shape[0], matrix_address=matrix.address, name="labels")
    with as_engine(client) as engine:
        return objective_source(Source(matrix, vector, None, checked), n_clusters, engine=engine)


def objective_source(
    source: Source,
    n_clusters: int,
    *,
    engine: Engine,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
) -> float:
    """Return the objective of the labels that are the target of `source`, weighted if it has weights; one pass."""
    if source.target is None:
        raise BadParameter("the objective needs the rows' labels as the target of the source")
    reduced = summarize_source(
        source,
        CentroidSums(n_clusters),
        engine=engine,
        progress=progress,
        checkpoint=checkpoint,
        stage="k-means objective",
    )
    return cast(CentroidSums, reduced.value).objective
