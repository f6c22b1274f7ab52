"""Lloyd's k-means over any engine: every iteration is one fold of `CentroidSums`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchselect.cluster import seeding
from sketchselect.cluster.passes import Passes, open_passes
from sketchselect.errors import BadParameter
from sketchselect.execution.block import Block, Source
from sketchselect.execution.checkpoint import Checkpoint
from sketchselect.execution.engine import Engine
from sketchselect.execution.progress import Progress
from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.hashing import derive_seed
from sketchselect.summaries import CentroidSums
from sketchselect.summaries.base import require_positive

MOST_REPAIRS = 10
"""How often clusters left empty at the very end are reseeded."""


class FewerClusters(UserWarning):
    """There are fewer distinct rows than clusters asked for, so there are fewer clusters."""


@dataclass(frozen=True)
class KMeansParameters:
    """What `fit_kmeans` needs to know.

    Parameters
    ----------
    n_clusters : int
        Clusters wanted.
    init : {"k-means||", "k-means++", "random"} or array of shape (n_clusters, n_features)
        Where to start.
    n_init : int
        Starts, of which the one with the lowest inertia wins; given centres are one start.
    max_iter : int
        Most iterations of one start.
    tol : float
        Stop when the squared movement of all centres together is at most `tol` times the mean variance of the columns.
    random_state : int
        Seed.
    """

    n_clusters: int = 8
    init: str | ArrayLike = "k-means||"
    n_init: int = 1
    max_iter: int = 300
    tol: float = 1e-4
    random_state: int = 0

    def checked(self, n_features: int) -> KMeansParameters:
        """Return the parameters, centres as float64, or raise `BadParameter`."""
        require_positive("n_clusters", self.n_clusters)
        require_positive("n_init", self.n_init)
        require_positive("max_iter", self.max_iter)
        if (
            isinstance(self.tol, bool)
            or not isinstance(self.tol, (int, float, np.number))
            or not 0 <= self.tol < np.inf
        ):
            raise BadParameter(f"tol must be a number of at least 0, got {self.tol!r}")
        if isinstance(self.random_state, bool) or not isinstance(self.random_state, (int, np.integer)):
            raise BadParameter(f"random_state must be a whole number, got {self.random_state!r}")
        init = self.init
        if isinstance(init, str):
            if init not in seeding.METHODS:
                raise BadParameter(
                    f"init must be one of {', '.join(seeding.METHODS)} or an array of centres, got {init!r}"
                )
        else:
            init = np.array(CentroidSums(centers=init).centers, dtype=np.float64)
            if init.shape != (self.n_clusters, n_features):
                raise BadParameter(
                    f"init has shape {init.shape}, but n_clusters is {self.n_clusters} and the data have {n_features} "
                    "columns"
                )
        return KMeansParameters(
            self.n_clusters, init, self.n_init, self.max_iter, float(self.tol), int(self.random_state)
        )


@dataclass(frozen=True)
class KMeansResult:
    """A clustering.

    Parameters
    ----------
    labels : int32 array of shape (n_rows,)
        Cluster of each row of the source; -1 where the row was dropped. The nearest of `centers`.
    centers : array of shape (n_clusters, n_features)
        float64; every one has rows.
    inertia : float
        Weighted sum of squared distances of the rows to their centre: of exactly these labels and centres.
    n_iter : int
        Lloyd iterations of the winning start.
    cluster_weights : array of shape (n_clusters,)
        Total weight of each cluster.
    converged : bool
        Whether the iteration stopped before `max_iter`.
    """

    labels: NDArray[np.int32]
    centers: Floats
    inertia: float
    n_iter: int
    cluster_weights: Floats
    converged: bool

    @property
    def n_clusters(self) -> int:
        """Number of clusters found."""
        return int(self.centers.shape[0])


def fit_kmeans(
    source: Source,
    parameters: KMeansParameters | Mapping[str, Any],
    *,
    engine: Engine,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
    retries: int = 2,
    stall_timeout: float = 300.0,
) -> KMeansResult:
    """Cluster the (prepared, chosen) rows of a source; the same bits on every engine.

    Parameters
    ----------
    source : Source
        Rows, and weights if it has any.
    parameters : KMeansParameters or mapping
        See there.
    engine : Engine
        What runs the passes. Small data are held and clustered in this process even where a cluster is given.
    progress : Progress, optional
        Told of every pass over the source.
    checkpoint : Checkpoint, optional
        Where passes that are worth it are kept; a run that resumes repeats its steps from there.
    retries, stall_timeout : int, float
        Of every pass, as in `reduce_blocks`.

    Returns
    -------
    KMeansResult

    Raises
    ------
    BadParameter
        For parameters out of range, or fewer rows than clusters.

    Notes
    -----
    Cost: one pass to survey, six to seed by k-means||, one per iteration and one for the labels.
    Source: Lloyd 1982; Bahmani et al. 2012 (k-means||).
    """
    if isinstance(parameters, Mapping):
        parameters = KMeansParameters(**parameters)
    wanted = parameters.checked(source.n_columns)
    passes = open_passes(
        source,
        wanted.n_clusters,
        engine=engine,
        progress=progress,
        checkpoint=checkpoint,
        retries=retries,
        stall_timeout=stall_timeout,
    )
    init = wanted.init
    assert isinstance(init, (str, np.ndarray))
    best: KMeansResult | None = None
    for start in range(wanted.n_init if isinstance(init, str) else 1):
        seed = derive_seed(wanted.random_state, "k-means", start)
        found = seeding.survey(passes, init, wanted.n_clusters, seed)
        centers = seeding.initial_centers(passes, init, wanted.n_clusters, seed, found)
        scatter = found.sums.objective / (found.sums.n_rows * source.n_columns)
        result = _run(passes, centers, wanted.max_iter, wanted.tol * scatter)
        if best is None or result.inertia < best.inertia:
            best = result
    assert best is not None
    if best.n_clusters < wanted.n_clusters:
        warnings.warn(
            f"{source.matrix.address}: there are fewer distinct rows than n_clusters={wanted.n_clusters}, so only "
            f"{best.n_clusters} cluster{'s were' if best.n_clusters > 1 else ' was'} made",
            FewerClusters,
            stacklevel=2,
        )
    if progress is not None:
        how = "converged" if best.converged else "stopped at max_iter"
        progress.note(f"k-means: {best.n_clusters} clusters, {best.n_iter} iterations, {how}")
    return best


def _run(passes: Passes, centers: Floats, max_iter: int, tolerance: float) -> KMeansResult:
    """Iterate from these centres until they move no more than the tolerance (squared, in all)."""
    n_iter, converged = 0, False
    while n_iter < max_iter and not converged:
        n_iter += 1
        sums = passes.sums(CentroidSums(centers=centers), f"k-means: iteration {n_iter}")
        moved = _reseeded(sums, centers)
        converged = float(((moved - centers) ** 2).sum()) <= tolerance
        centers = moved
    final = label_rows(passes, centers)
    for repair in range(MOST_REPAIRS):
        empty = final.sums.cluster_weights == 0
        if not empty.any():
            break
        if final.sums.farthest_points.shape[0] and repair < MOST_REPAIRS - 1:
            centers = np.where(empty[:, None], _reseeded(final.sums, centers), centers)
        else:
            # Every row lies on a centre: the others stand for nothing.
            centers = centers[~empty]
        final = label_rows(passes, centers)
    sums = final.sums
    return KMeansResult(final.labels, centers, sums.inertia(), n_iter, sums.cluster_weights, converged)


def _reseeded(sums: CentroidSums, centers: Floats) -> Floats:
    """Return the means; empty clusters get the farthest rows, and stay where they are when there are none."""
    empty = np.flatnonzero(sums.cluster_weights == 0)
    moved = np.where(sums.cluster_weights[:, None] > 0, sums.cluster_means, centers)
    if empty.size:
        far = seeding.distinct(sums.farthest_points)[: empty.size]
        moved[empty[: far.shape[0]]] = far
    return moved


@dataclass(frozen=True)
class Labelled:
    """Labels of consecutive rows, and the sums that go with them."""

    sums: CentroidSums
    labels: NDArray[np.int32]


@dataclass(frozen=True)
class LabelBlock:
    """Leaf of the labelling pass."""

    description: CentroidSums

    def __call__(self, block: Block) -> Labelled:
        """Return the labels of one block's rows, -1 for those dropped, and their sums."""
        nearest, sums = self.description.label_block(block.values, start=block.position, sample_weight=block.weight)
        if block.kept is None:
            return Labelled(sums, nearest)
        labels = np.full(block.stop - block.start, -1, dtype=np.int32)
        labels[block.kept - block.start] = nearest
        return Labelled(sums, labels)


def merge_labelled(left: Labelled, right: Labelled) -> Labelled:
    """Return the labels of both, one behind the other, and their sums."""
    return Labelled(left.sums.merge(right.sums), np.concatenate([left.labels, right.labels]))


def label_rows(passes: Passes, centers: Floats) -> Labelled:
    """Return every row's nearest centre and the sums of that assignment; one pass."""
    description = CentroidSums(centers=centers)
    width = passes.source.n_columns
    return passes.fold(
        LabelBlock(description),
        merge_labelled,
        "k-means: labels",
        state_nbytes=description.projected_nbytes(width),
        working_nbytes=description.working_nbytes(width),
    )
