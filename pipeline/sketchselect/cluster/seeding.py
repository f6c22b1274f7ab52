"""Where k-means starts: k-means||, k-means++, random rows or given centres.

Every draw is hashed from (seed, round, global row index), so the centres do not depend on partitions or workers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sketchselect.cluster.passes import Passes
from sketchselect.cluster.rounds import (
    Candidates,
    MergeRounds,
    MergeSurveys,
    Nearest,
    SampleBlock,
    Survey,
    SurveyBlock,
    WeighBlock,
    add,
)
from sketchselect.errors import BadParameter
from sketchselect.linalg import lloyd
from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.distances import spread_out
from sketchselect.linalg.hashing import derive_seed
from sketchselect.summaries import CentroidSums

METHODS = ("k-means||", "k-means++", "random")

ROUNDS = 5
OVERSAMPLING = 2
"""k-means|| expects this many times k candidates a round."""

TRIES = 10
"""Seedings of the weighted candidates, each refined, of which the best is taken."""

TRIES_FLOPS = 4e9
REFINEMENTS = 25
"""Most Lloyd iterations on the weighted candidates."""

SAMPLE_ROWS = 1 << 16
SAMPLE_NBYTES = 256 << 20
"""k-means++ runs on all rows up to these bounds, on a hashed sample of so many beyond."""


def sample_size(init: str | Floats, n_clusters: int, n_features: int) -> int:
    """Return how many rows the survey samples: a function of these alone."""
    if isinstance(init, str) and init == "random":
        return n_clusters
    if isinstance(init, str) and init == "k-means++":
        return max(n_clusters, min(SAMPLE_ROWS, SAMPLE_NBYTES // (8 * n_features)))
    return 1


def survey(passes: Passes, init: str | Floats, n_clusters: int, seed: int) -> Survey:
    """Return size and spread of the rows, and the sample that `init` begins with; one pass.

    Raises
    ------
    BadParameter
        If there are fewer rows (with a positive weight) than clusters.
    """
    size = sample_size(init, n_clusters, passes.source.n_columns)
    by_weight = not (isinstance(init, str) and init == "k-means++")
    nbytes = 8 * (passes.source.n_columns + 3) * (size + 2)
    found = passes.fold(
        SurveyBlock(derive_seed(seed, "first"), size, by_weight),
        MergeSurveys(size),
        "k-means: survey",
        state_nbytes=nbytes,
        working_nbytes=2 * nbytes + (1 << 20),
    )
    n_rows = found.sums.n_rows
    if n_rows < n_clusters:
        raise BadParameter(
            f"{passes.source.matrix.address}: n_clusters={n_clusters} but n_samples={n_rows}; ask for at most as many "
            "clusters as there are rows"
        )
    if found.n_weighted == 0:
        raise BadParameter(f"{passes.source.matrix.address}: every sample_weight is zero; some must be positive")
    if found.n_weighted < n_clusters:
        raise BadParameter(
            f"{passes.source.matrix.address}: n_clusters={n_clusters} but only {found.n_weighted} rows have a positive "
            "sample_weight; ask for fewer clusters"
        )
    return found


def initial_centers(passes: Passes, init: str | Floats, n_clusters: int, seed: int, found: Survey) -> Floats:
    """Return the first centres, distinct; fewer than `n_clusters` only where there are fewer distinct rows.

    Parameters
    ----------
    passes : Passes
        The data.
    init : {"k-means||", "k-means++", "random"} or array of shape (n_clusters, n_features)
        The method; centres given are returned as they are.
    n_clusters : int
    seed : int
    found : Survey
        Of the same data, method and seed.
    """
    if not isinstance(init, str):
        return init
    sample = found.sample
    if init == "k-means||":
        points, weights = _oversample(passes, sample.points, n_clusters, seed)
        centers = _recluster(points, weights, n_clusters, seed)
    elif init == "k-means++":
        chosen = spread_out(sample.points, sample.weights, n_clusters, derive_seed(seed, "k-means++"))
        centers = sample.points[chosen]
    else:
        centers = distinct(sample.points)
    return fill(passes, centers, n_clusters)


def distinct(points: Floats) -> Floats:
    """Return the points without repetitions, in order of first appearance."""
    _, first = np.unique(points, axis=0, return_index=True)
    return points[np.sort(first)]


def fill(passes: Passes, centers: Floats, n_clusters: int) -> Floats:
    """Return the centres and, where they are too few, the rows farthest from them; one pass per doubling."""
    while centers.shape[0] < n_clusters:
        far = passes.sums(CentroidSums(centers=centers), "k-means: farthest rows").farthest_points
        if far.shape[0] == 0:
            break
        centers = np.concatenate([centers, distinct(far)[: n_clusters - centers.shape[0]]])
    return centers


def _oversample(passes: Passes, first: Floats, n_clusters: int, seed: int) -> tuple[Floats, Floats]:
    """Return the candidates of k-means|| and the weight of the rows nearest to each; `ROUNDS` + 1 passes."""
    factor = float(OVERSAMPLING * n_clusters)
    remember = passes.held
    points, fresh = first, first
    known: Mapping[int, Nearest] = {}
    width = passes.source.n_columns
    for step in range(ROUNDS):
        candidates = Candidates(fresh, points.shape[0] - fresh.shape[0], known) if remember else Candidates(points)
        # A block offers about `factor` rows, and rarely more than twice that.
        nbytes = int(8 * (width + 3) * 2 * factor) + 64
        state = passes.fold(
            SampleBlock(candidates, derive_seed(seed, "round", step), factor, remember),
            MergeRounds(factor),
            f"k-means: seeding {step + 1} of {ROUNDS + 1}",
            state_nbytes=nbytes,
            working_nbytes=2 * nbytes + _assign_nbytes(candidates),
        )
        known, fresh = state.known, state.chosen.points
        if fresh.shape[0] == 0 and state.cost == 0:
            break
        points = np.concatenate([points, fresh])
    candidates = Candidates(fresh, points.shape[0] - fresh.shape[0], known) if remember else Candidates(points)
    weights = passes.fold(
        WeighBlock(candidates),
        add,
        f"k-means: seeding {ROUNDS + 1} of {ROUNDS + 1}",
        state_nbytes=8 * points.shape[0],
        working_nbytes=_assign_nbytes(candidates),
    )
    return points, weights


def _assign_nbytes(candidates: Candidates) -> int:
    return 4 * candidates.points.nbytes + (4 << 20)


def _recluster(points: Floats, weights: Floats, n_clusters: int, seed: int) -> Floats:
    """Return the best of several k-means++ seedings of weighted points, each refined by Lloyd iterations."""
    heavy = weights > 0
    points, weights = points[heavy], weights[heavy]
    flops = 3.0 * points.size * n_clusters * (2 + np.log(n_clusters))
    best, centers = np.inf, points[:0]
    for attempt in range(int(np.clip(TRIES_FLOPS // flops, 1, TRIES))):
        chosen = spread_out(points, weights, n_clusters, derive_seed(seed, "recluster", attempt))
        trial = points[chosen]
        for _ in range(REFINEMENTS):
            _, distances, sums = lloyd.assign_and_sum(points, trial, weights)
            moved = np.where(sums.weight[:, None] > 0, sums.mean, trial)
            if (moved == trial).all():
                break
            trial = moved
        _, distances = lloyd.assign(points, trial)
        cost = float((weights * distances).sum())
        if cost < best:
            best, centers = cost, trial
    return distinct(centers)
