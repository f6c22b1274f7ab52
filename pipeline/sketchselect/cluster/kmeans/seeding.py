"""Starts of k-means: k-means||, k-means++, random rows, a function or an array; several are compared on a coreset.

Every draw is hashed from (seed, round, global row index), so the centres do not depend on partitions or workers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from sketchselect.cluster.kmeans.passes import Passes
from sketchselect.errors import BadParameter
from sketchselect.execution.source import Block, CachedBlock
from sketchselect.execution.summarize import summary_reduction
from sketchselect.execution.tasks import Reduction
from sketchselect.linalg.hashing import KeyedRows, derive_seed, exponential_keys, gaussians, smallest_rows, uniforms
from sketchselect.linalg.kmeans import lloyd
from sketchselect.linalg.kmeans.sample import MOST_NBYTES, POLISH_ITERATIONS, WeightedRows, sample_size
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import Floats, Labels
from sketchselect.summaries import CentroidSums, RowSample

Nearest = tuple[Labels, Floats]  # Per row of a block: index of the nearest candidate and squared distance to it

_NEAREST = "nearest candidates"


@dataclass(frozen=True)
class Survey:
    """Size and spread of the rows, with a sample."""

    sums: CentroidSums  # Of one cluster, unweighted: rows, mean and scatter
    weight: float  # Total weight
    n_weighted: int  # Rows with a positive weight
    sample: KeyedRows  # Hashed sample of the rows with a positive weight


def survey_block(seed: int, size: int, by_weight: bool, block: Block) -> Survey:
    """Return the survey of one block: a leaf.

    `seed`: Of the hash.
    `size`: Rows in the sample.
    `by_weight`: Whether rows are drawn in proportion to their weight, or all alike.
    """
    n_rows = block.values.shape[0]
    sums = CentroidSums(1).from_block(block.values, np.zeros(n_rows, dtype=np.int32), start=block.position)
    weights = block.row_weights
    heavy = weights > 0
    # Without a sample no row needs a key.
    rows = block.row_indices[: n_rows if size else 0]
    rates = weights if by_weight else heavy.astype(np.float64)
    keys = exponential_keys(seed, rows, rates[: rows.size])
    sample = smallest_rows(keys, rows.astype(np.int64), block.values, weights, size)
    return Survey(sums, float(weights.sum()), int(heavy.sum()), sample)


def merge_surveys(size: int, left: Survey, right: Survey) -> Survey:
    """Return the survey of the rows of both."""
    sums, sample = left.sums.merge(right.sums), left.sample.merge(right.sample, size)
    return Survey(sums, left.weight + right.weight, left.n_weighted + right.n_weighted, sample)


@dataclass(frozen=True)
class Candidates:
    """Candidate centres. Cached blocks keep each row's nearest, so that only new candidates are compared."""

    points: Floats  # shape (m, n_features): All candidates so far; later ones are only ever appended
    seed: int  # Distinguishes these candidates from those of another start

    def nearest(self, block: Block) -> Nearest:
        """Return the nearest candidate of each row; ties go to the lowest index."""
        memory = block.memory if isinstance(block, CachedBlock) else {}
        n_candidates = self.points.shape[0]
        seed, known, labels, distances = memory.get(_NEAREST, (self.seed, 0, None, None))
        if seed != self.seed or known > n_candidates:
            # The memory is of another start, or of a later round of a task that runs again.
            known = 0
        if known < n_candidates:
            new_labels, new_distances = lloyd.assign(block.values, self.points[known:])
            new_labels += np.int32(known)
            if known:
                keep = distances <= new_distances
                new_labels, new_distances = (
                    np.where(keep, labels, new_labels),
                    np.where(keep, distances, new_distances),
                )
            labels, distances = new_labels, new_distances
            memory[_NEAREST] = (self.seed, n_candidates, labels, distances)
        return labels, distances


@dataclass(frozen=True)
class Round:
    """State of one round of k-means||."""

    cost: float  # Weighted sum of squared distances to the candidates, of the rows so far
    # Rows whose key is below ``factor / cost``: a superset of the round's choice that shrinks with every merge and ends
    # as exactly that
    chosen: KeyedRows


def sample_round(candidates: Candidates, seed: int, factor: float, block: Block) -> Round:
    """Return the state of one block: row i is chosen iff u_i < factor w_i d_i^2 / cost, with hashed u_i."""
    _, distances = candidates.nearest(block)
    weights = block.row_weights
    pull = weights * distances
    cost = float(pull.sum())
    rows = block.row_indices
    keys = np.full(rows.shape, np.inf)
    far = pull > 0
    with np.errstate(over="ignore"):
        keys[far] = uniforms(seed, rows[far]) / pull[far]
    chosen = smallest_rows(keys, rows.astype(np.int64), block.values, weights, None, _limit(factor, cost))
    return Round(cost, chosen)


def merge_rounds(factor: float, left: Round, right: Round) -> Round:
    """Return the state of the rows of both."""
    cost = left.cost + right.cost
    return Round(cost, left.chosen.merge(right.chosen, None, _limit(factor, cost)))


@dataclass(frozen=True)
class CandidateWeights:
    """Weight of the rows nearest to each candidate, and a sample of the rows if one was requested."""

    weights: Floats
    rows: RowSample | None


def weigh_block(candidates: Candidates, description: RowSample | None, block: Block) -> CandidateWeights:
    """Return the weights of one block, shape (n_candidates,), and its sample; the block forgets its nearest."""
    labels, _ = candidates.nearest(block)
    if isinstance(block, CachedBlock):
        block.memory.pop(_NEAREST, None)
    n_candidates = candidates.points.shape[0]
    weights: Floats = np.bincount(labels, block.row_weights, n_candidates).astype(np.float64, copy=False)
    rows = None
    if description is not None:
        rows = description.from_block(block.values, start=block.position, sample_weight=block.weight)
    return CandidateWeights(weights, rows)


def merge_candidate_weights(left: CandidateWeights, right: CandidateWeights) -> CandidateWeights:
    """Return the weights and the sample of both."""
    rows = None if left.rows is None or right.rows is None else left.rows.merge(right.rows)
    return CandidateWeights(left.weights + right.weights, rows)


def _limit(factor: float, cost: float) -> float:
    return factor / cost if cost > 0 else np.inf


# The user's own method: rows, number of clusters and random state -> centres; the signature is scikit-learn's.
Seeding = Callable[[Floats, int, np.random.RandomState], Any]

METHODS = ("k-means||", "k-means++", "random")

ROUNDS, OVERSAMPLING = 5, 2  # Of k-means||: rounds, and candidates expected in each, as a multiple of k
AUTO_STARTS = 10  # Starts that "auto" compares, unless that is more work than `COMPARE_FLOPS`
COMPARE_FLOPS = 4e10  # Comparisons that take more are made in a projection

# Two are from the candidates of k-means||, which contain rare rows, and two from the coreset, which contains common
# ones.
LEAST_STARTS = 4

# A projection has `DIRECTIONS_PER_CLUSTER` k directions, and never fewer than `DIRECTIONS`.
DIRECTIONS, DIRECTIONS_PER_CLUSTER = 64, 2

# One start of k-means++ runs on all rows up to these bounds, on a hashed sample of this size beyond.
SAMPLE_ROWS, SAMPLE_NBYTES = 1 << 16, 256 << 20


def n_starts(n_init: int | str, n_clusters: int, n_features: int) -> int:
    """Return how many starts are compared: a function of these alone."""
    if not isinstance(n_init, str):
        return n_init
    rows = sample_size(n_clusters, n_features)
    if 8 * rows * n_features > MOST_NBYTES:
        return 1
    flops = _compare_flops(n_clusters, min(n_features, _directions(n_clusters)), rows)
    return int(np.clip(COMPARE_FLOPS // flops, LEAST_STARTS, AUTO_STARTS))


def n_directions(starts: int, n_clusters: int, n_features: int) -> int | None:
    """Return the directions of the projection that starts are compared in; None for all columns."""
    work = starts * _compare_flops(n_clusters, n_features, sample_size(n_clusters, n_features))
    directions = _directions(n_clusters)
    return directions if work > COMPARE_FLOPS and directions < n_features else None


def _directions(n_clusters: int) -> int:
    return max(DIRECTIONS, DIRECTIONS_PER_CLUSTER * n_clusters)


def _compare_flops(n_clusters: int, width: int, rows: int) -> float:
    return 2.0 * rows * n_clusters * width * POLISH_ITERATIONS


def checked_centers(init: Any, n_clusters: int, n_features: int) -> Floats:
    """Return user-supplied centres as float64, or raise `BadParameter`."""
    centers = np.array(CentroidSums(centers=init).centers, dtype=np.float64)
    if centers.shape != (n_clusters, n_features):
        raise BadParameter(
            f"init has shape {centers.shape}, but n_clusters is {n_clusters} and the data have {n_features} columns"
        )
    return centers


def survey_size(init: str | Seeding | Floats, n_clusters: int, n_features: int, starts: int = 1) -> int:
    """Return how many rows the survey samples: a function of these alone; none for centres that were given."""
    if isinstance(init, np.ndarray):
        return 0
    if isinstance(init, str) and init == "random":
        return n_clusters * starts
    if callable(init) or (isinstance(init, str) and init == "k-means++" and starts == 1):
        return max(n_clusters, min(SAMPLE_ROWS, SAMPLE_NBYTES // (8 * n_features)))
    return 1


def survey(passes: Passes, init: str | Seeding | Floats, n_clusters: int, seed: int, starts: int = 1) -> Survey:
    """Return size and spread of the rows, and the sample that `init` begins with; one pass.

    Raises `BadParameter` if there are fewer rows (with a positive weight) than clusters.
    """
    size = survey_size(init, n_clusters, passes.source.n_columns, starts)
    by_weight = not (isinstance(init, str) and init == "k-means++")
    nbytes = 8 * (passes.source.n_columns + 3) * (size + 2)
    reduction = Reduction(
        partial(survey_block, derive_seed(seed, "first"), size, by_weight),
        partial(merge_surveys, size),
        "k-means: survey",
        state_nbytes=nbytes,
        working_nbytes=2 * nbytes + (1 << 20),
    )
    state: Survey = passes.reduce(reduction)
    require_rows(passes, state.sums.n_rows, n_clusters)
    if state.n_weighted == 0:
        raise BadParameter(
            f"{passes.source.matrix.address}: every sample_weight is zero (or below 2.2e-308); some must be positive"
        )
    if state.n_weighted < n_clusters:
        raise BadParameter(
            f"{passes.source.matrix.address}: n_clusters={n_clusters} but only {state.n_weighted} rows have a positive "
            "sample_weight; ask for fewer clusters"
        )
    return state


def require_rows(passes: Passes, n_rows: int, n_clusters: int) -> None:
    """Raise `BadParameter` if there are fewer rows than clusters."""
    if n_rows < n_clusters:
        raise BadParameter(
            f"{passes.source.matrix.address}: n_clusters={n_clusters} but n_samples={n_rows}; ask for at most as many "
            "clusters as there are rows"
        )


def initial_centers(
    passes: Passes,
    init: str | Seeding | Floats,
    n_clusters: int,
    seed: int,
    survey: Survey,
    starts: int = 1,
    proposal: Floats | None = None,
) -> Floats:
    """Return the first centres, distinct; fewer than `n_clusters` only if there are fewer distinct rows.

    `init` of shape (n_clusters, n_features): The method; given centres are returned unchanged.
    `survey`: Of the same data, method, seed and number of starts.
    `starts`: Starts that are made. Of several, each is refined on a coreset of the rows, and the best on the coreset is
        returned.
    `proposal` of shape (n_clusters, n_features): Centres that compete with them; of one start, they are returned.
    """
    if isinstance(init, np.ndarray):
        return init
    if proposal is not None and starts == 1:
        # The rows are too wide for a coreset that could compare it with another.
        return fill(passes, distinct(proposal), n_clusters)
    sample, width = survey.sample, passes.source.n_columns
    size = sample_size(n_clusters, width)
    description = coreset(survey.sums, size, derive_seed(seed, "coreset")) if starts > 1 else None
    method_seed = derive_seed(seed, "function" if callable(init) else init)
    seeds = [derive_seed(method_seed, i) for i in range(starts)]
    if init == "k-means||":
        candidates, rows = _oversample(passes, sample.points, n_clusters, seed, description)
    else:
        candidates, rows = WeightedRows(sample.points, sample.weights), None
        if description is not None:
            rows = passes.reduce(summary_reduction(passes.source, description, "k-means: coreset"))
    comparison = None if rows is None else StartComparison(rows, n_directions(starts, n_clusters, width), seed)
    proposals: list[Floats]
    if init == "k-means||":
        # Candidates contain rare rows, the coreset common ones; of the starts from both the best wins.
        if comparison is not None:
            candidates = replace(candidates, rows=comparison.project(candidates.rows))
        proposals = candidates.starts(n_clusters, seeds[: starts - starts // 2])
        proposals = [candidates.polish(start)[1] for start in proposals]
    elif init == "k-means++":
        proposals = [] if comparison is not None else candidates.starts(n_clusters, seeds)
    else:
        if callable(init):
            points = sample.points[sample.weights > 0]
            states = [np.random.RandomState(s % 2**32) for s in seeds]
            proposals = [checked_centers(init(points.copy(), n_clusters, state), n_clusters, width) for state in states]
        else:
            proposals = [sample.points[i * n_clusters : (i + 1) * n_clusters] for i in range(starts)]
            proposals = [start for start in proposals if start.shape[0]]
        if comparison is not None:
            proposals = [comparison.project(start) for start in proposals]
    if comparison is None:
        return fill(passes, distinct(proposals[0]), n_clusters)
    if init in ("k-means||", "k-means++"):
        coreset_seed = derive_seed(method_seed, "coreset")
        proposals += comparison.points.starts(
            n_clusters, [derive_seed(coreset_seed, i) for i in range(starts - len(proposals))]
        )
    if proposal is not None:
        proposals.append(comparison.project(proposal))
    return fill(passes, distinct(comparison.best(proposals)), n_clusters)


def coreset(survey: CentroidSums, size: int, seed: int) -> RowSample:
    """Return the description of a sample: rows by weight times ``1 + ||x - mean||^2 / mean squared distance``.

    With it ``sum_i weights_i min_j ||x_i - c_j||^2`` is an unbiased estimate of the objective of any centres.

    `survey`: Of one cluster: mean and scatter of all rows.
    Source: Bachem, Lucic and Krause 2018 (lightweight coresets), drawn by priority and so mergeable.
    """
    variance = survey.objective / max(1, survey.n_rows)
    if not 0 < variance < np.inf:
        return RowSample(size, seed)
    return RowSample(size, seed, survey.cluster_means[0], variance)


class StartComparison:
    """The points that starts are compared on: a coreset, or its projection on its top directions where rows are wide.

    The projection is that of one step of subspace iteration. Clusters are found there as well as in all columns, and
    faster.

    `n_directions`: None for all columns.
    """

    def __init__(self, sample: RowSample, n_directions: int | None, seed: int) -> None:
        self.rows = WeightedRows(sample.rows, sample.weights)
        self._basis: Floats | None = None
        if n_directions is None:
            self.points = self.rows.dense()
            return
        self.rows, self._mean = self.rows.centered()
        draws = gaussians(derive_seed(seed, "projection"), (sample.n_features, n_directions))
        with one_blas_thread():
            self._basis = np.linalg.qr(self.rows.image(self.rows.rows @ draws))[0]
            self.points = replace(self.rows, rows=np.asarray(self.rows.rows @ self._basis))

    def project(self, points: Floats) -> Floats:
        """Return points of all columns where the coreset's are."""
        if self._basis is None:
            return points
        with one_blas_thread():
            return np.asarray((points - self._mean) @ self._basis)

    def best(self, starts: list[Floats]) -> Floats:
        """Return the best of the starts, polished, in all columns."""
        centers = self.points.best(starts)
        if self._basis is None:
            return centers
        labels = self.points.assign(centers)
        sums = CentroidSums(int(labels.max()) + 1).from_block(self.rows.rows, labels, sample_weight=self.rows.weights)
        return self.rows.polish(sums.cluster_means[sums.cluster_weights > 0])[1] + self._mean


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


def _oversample(
    passes: Passes, first: Floats, n_clusters: int, seed: int, rows: RowSample | None = None
) -> tuple[WeightedRows, RowSample | None]:
    """Return the candidates of k-means||, weighted by the rows nearest to each, and the sample; `ROUNDS` + 1 passes.

    Candidates without weight are left out.
    """
    factor = float(OVERSAMPLING * n_clusters)
    candidates = Candidates(first, seed)
    width = passes.source.n_columns
    for step in range(ROUNDS):
        # A block offers about `factor` rows, and rarely more than twice that.
        nbytes = int(8 * (width + 3) * 2 * factor) + 64
        reduction = Reduction(
            partial(sample_round, candidates, derive_seed(seed, "round", step), factor),
            partial(merge_rounds, factor),
            f"k-means: seeding {step + 1} of {ROUNDS + 1}",
            state_nbytes=nbytes,
            working_nbytes=2 * nbytes + _assign_nbytes(candidates),
        )
        state = passes.reduce(reduction)
        fresh = state.chosen.points
        if fresh.shape[0] == 0 and state.cost == 0:
            break
        candidates = replace(candidates, points=np.concatenate([candidates.points, fresh]))
    sample_nbytes = 0 if rows is None else rows.projected_nbytes(width)
    weighing = Reduction(
        partial(weigh_block, candidates, rows),
        merge_candidate_weights,
        f"k-means: seeding {ROUNDS + 1} of {ROUNDS + 1}",
        state_nbytes=8 * candidates.points.shape[0] + sample_nbytes,
        working_nbytes=_assign_nbytes(candidates) + 2 * sample_nbytes,
    )
    candidate_weights = passes.reduce(weighing)
    heavy = candidate_weights.weights > 0
    return WeightedRows(candidates.points[heavy], candidate_weights.weights[heavy]), candidate_weights.rows


def _assign_nbytes(candidates: Candidates) -> int:
    return 4 * candidates.points.nbytes + (4 << 20)
