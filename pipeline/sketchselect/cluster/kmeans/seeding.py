"""Starts of k-means: k-means||, k-means++, random rows, a function or an array; several are compared on a coreset.

Every draw is hashed from (seed, round, global row index), so the centres do not depend on partitions or workers.

Tasks of seeding: survey of the rows, samples of them, nearest candidates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sketchselect.cluster.kmeans.coreset import MOST_NBYTES, Comparison, coreset, coreset_rows
from sketchselect.cluster.kmeans.passes import Passes
from sketchselect.errors import BadParameter
from sketchselect.execution.source import Block, CachedBlock
from sketchselect.execution.summarize import summary_reduction
from sketchselect.execution.tasks import Reduction
from sketchselect.linalg.arrays import Floats, Labels, as_weights, global_rows
from sketchselect.linalg.hashing import KeyedRows, derive_seed, exponential_keys, smallest_rows, uniforms
from sketchselect.linalg.kmeans import lloyd
from sketchselect.linalg.kmeans.distances import spread_out
from sketchselect.linalg.kmeans.lloyd import REFINEMENTS, refine
from sketchselect.summaries import CentroidSums, RowSample

Nearest = tuple[Labels, Floats]
"""Per row of a block: index of the nearest candidate and squared distance to it."""

_NEAREST = "nearest candidates"


def block_weights(block: Block) -> Floats:
    """Return the weights of a block's rows; ones where there are none."""
    n_rows = block.values.shape[0]
    weights = as_weights(block.weight, n_rows)
    return np.ones(n_rows) if weights is None else weights


def block_rows(block: Block) -> NDArray[np.uint64]:
    """Return the global index of each row of a block."""
    return global_rows(block.position, block.values.shape[0])


@dataclass(frozen=True)
class Survey:
    """Size and spread of the rows, and a sample of them."""

    sums: CentroidSums  # Of one cluster, unweighted: rows, mean and scatter
    weight: float  # Total weight
    n_weighted: int  # Rows with a positive weight
    sample: KeyedRows  # A hashed sample of them


@dataclass(frozen=True)
class SurveyBlock:
    """Leaf of the survey."""

    seed: int  # Of the hash
    size: int  # Rows in the sample
    by_weight: bool  # Whether rows are drawn in proportion to their weight, or all alike

    def __call__(self, block: Block) -> Survey:
        """Return the survey of one block."""
        n_rows = block.values.shape[0]
        sums = CentroidSums(1).from_block(block.values, np.zeros(n_rows, dtype=np.int32), start=block.position)
        weights = block_weights(block)
        heavy = weights > 0
        # Without a sample no row needs a key.
        rows = block_rows(block)[: n_rows if self.size else 0]
        rates = weights if self.by_weight else heavy.astype(np.float64)
        keys = exponential_keys(self.seed, rows, rates[: rows.size])
        sample = smallest_rows(keys, rows.astype(np.int64), block.values, weights, self.size)
        return Survey(sums, float(weights.sum()), int(heavy.sum()), sample)


@dataclass(frozen=True)
class MergeSurveys:
    """Merge of the survey."""

    size: int

    def __call__(self, left: Survey, right: Survey) -> Survey:
        """Return the survey of both."""
        return Survey(
            left.sums.merge(right.sums),
            left.weight + right.weight,
            left.n_weighted + right.n_weighted,
            left.sample.merge(right.sample, self.size),
        )


@dataclass(frozen=True)
class Candidates:
    """Candidate centres. Cached blocks remember their rows' nearest, so that only new candidates are compared."""

    points: Floats  # shape (m, n_features): All candidates so far; later ones are only ever appended
    seed: int  # Tells them from the candidates of another start

    def nearest(self, block: Block) -> Nearest:
        """Return the nearest candidate of each row; ties go to the lowest index."""
        memory = block.memory if isinstance(block, CachedBlock) else {}
        n_candidates = self.points.shape[0]
        seed, known, labels, distances = memory.get(_NEAREST, (self.seed, 0, None, None))
        if seed != self.seed or known > n_candidates:
            # Of another start, or of a later round of a task that is run again.
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

    def last_nearest(self, block: Block) -> Nearest:
        """Return `nearest`, and let the block forget it."""
        nearest = self.nearest(block)
        if isinstance(block, CachedBlock):
            block.memory.pop(_NEAREST, None)
        return nearest


@dataclass(frozen=True)
class Round:
    """State of one round of k-means||."""

    cost: float  # Weighted sum of squared distances to the candidates, of the rows so far
    # Rows whose key is below ``factor / cost``: a superset of the round's choice that shrinks with every merge and ends
    # as exactly that
    chosen: KeyedRows


@dataclass(frozen=True)
class SampleBlock:
    """Leaf of a round of k-means||: row i is chosen iff u_i < factor w_i d_i^2 / cost, with hashed u_i."""

    candidates: Candidates
    seed: int
    factor: float

    def __call__(self, block: Block) -> Round:
        """Return the state of one block."""
        _, distances = self.candidates.nearest(block)
        weights = block_weights(block)
        pull = weights * distances
        cost = float(pull.sum())
        rows = block_rows(block)
        keys = np.full(rows.shape, np.inf)
        far = pull > 0
        with np.errstate(over="ignore"):
            keys[far] = uniforms(self.seed, rows[far]) / pull[far]
        chosen = smallest_rows(keys, rows.astype(np.int64), block.values, weights, None, _limit(self.factor, cost))
        return Round(cost, chosen)


@dataclass(frozen=True)
class MergeRounds:
    """Merge of a round of k-means||."""

    factor: float

    def __call__(self, left: Round, right: Round) -> Round:
        """Return the state of both."""
        cost = left.cost + right.cost
        chosen = left.chosen.merge(right.chosen, None, _limit(self.factor, cost))
        return Round(cost, chosen)


@dataclass(frozen=True)
class Weighed:
    """Weight of the rows nearest to each candidate, and a sample of the rows where one was asked for."""

    weights: Floats
    rows: RowSample | None


@dataclass(frozen=True)
class WeighBlock:
    """Leaf of the last pass of k-means||: candidates are weighed, and rows sampled as `rows` describes."""

    candidates: Candidates
    rows: RowSample | None = None

    def __call__(self, block: Block) -> Weighed:
        """Return the weights of one block, shape (n_candidates,), and its sample."""
        labels, _ = self.candidates.last_nearest(block)
        n_candidates = self.candidates.points.shape[0]
        weights: Floats = np.bincount(labels, block_weights(block), n_candidates).astype(np.float64, copy=False)
        rows = None
        if self.rows is not None:
            rows = self.rows.from_block(block.values, start=block.position, sample_weight=block.weight)
        return Weighed(weights, rows)


def merge_weighed(left: Weighed, right: Weighed) -> Weighed:
    """Return the weights and the sample of both: merge of `WeighBlock`."""
    rows = left.rows
    if rows is not None and right.rows is not None:
        rows = rows.merge(right.rows)
    return Weighed(left.weights + right.weights, rows)


def _limit(factor: float, cost: float) -> float:
    return factor / cost if cost > 0 else np.inf


Seeding = Callable[[Floats, int, np.random.RandomState], Any]
"""The user's own method: rows, number of clusters and random state -> centres; the signature is scikit-learn's."""

METHODS = ("k-means||", "k-means++", "random")

ROUNDS = 5
OVERSAMPLING = 2
"""k-means|| expects this many times k candidates a round."""

AUTO_STARTS = 10
"""Starts that "auto" compares, unless that is more work than `COMPARE_FLOPS`."""

COMPARE_FLOPS = 4e10
"""Comparisons that take more are made in a projection."""

LEAST_STARTS = 4
"""Two are from the candidates of k-means||, which hold what is rare, and two from the coreset, which holds what is
common."""

DIRECTIONS, DIRECTIONS_PER_CLUSTER = 64, 2
"""A projection has `DIRECTIONS_PER_CLUSTER` k directions, and never fewer than `DIRECTIONS`."""

SAMPLE_ROWS = 1 << 16
SAMPLE_NBYTES = 256 << 20
"""One start of k-means++ runs on all rows up to these bounds, on a hashed sample of this size beyond."""


def n_starts(n_init: int | str, n_clusters: int, n_features: int) -> int:
    """Return how many starts are compared: a function of these alone."""
    if not isinstance(n_init, str):
        return n_init
    rows = coreset_rows(n_clusters, n_features)
    if 8 * rows * n_features > MOST_NBYTES:
        return 1
    flops = _compare_flops(n_clusters, min(n_features, _directions(n_clusters)), rows)
    return int(np.clip(COMPARE_FLOPS // flops, LEAST_STARTS, AUTO_STARTS))


def n_directions(starts: int, n_clusters: int, n_features: int) -> int | None:
    """Return the directions of the projection that starts are compared in; None for all columns."""
    work = starts * _compare_flops(n_clusters, n_features, coreset_rows(n_clusters, n_features))
    directions = _directions(n_clusters)
    return directions if work > COMPARE_FLOPS and directions < n_features else None


def _directions(n_clusters: int) -> int:
    return max(DIRECTIONS, DIRECTIONS_PER_CLUSTER * n_clusters)


def _compare_flops(n_clusters: int, width: int, rows: int) -> float:
    return 2.0 * rows * n_clusters * width * REFINEMENTS


def checked_centers(init: Any, n_clusters: int, n_features: int) -> Floats:
    """Return centres that a user gave, as float64, or raise `BadParameter`."""
    centers = np.array(CentroidSums(centers=init).centers, dtype=np.float64)
    if centers.shape != (n_clusters, n_features):
        raise BadParameter(
            f"init has shape {centers.shape}, but n_clusters is {n_clusters} and the data have {n_features} columns"
        )
    return centers


def sample_size(init: str | Seeding | Floats, n_clusters: int, n_features: int, starts: int = 1) -> int:
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
    size = sample_size(init, n_clusters, passes.source.n_columns, starts)
    by_weight = not (isinstance(init, str) and init == "k-means++")
    nbytes = 8 * (passes.source.n_columns + 3) * (size + 2)
    reduction = Reduction(
        SurveyBlock(derive_seed(seed, "first"), size, by_weight),
        MergeSurveys(size),
        "k-means: survey",
        state_nbytes=nbytes,
        working_nbytes=2 * nbytes + (1 << 20),
    )
    state = passes.reduce(reduction)
    require_rows(passes, state.sums.n_rows, n_clusters)
    if state.n_weighted == 0:
        raise BadParameter(f"{passes.source.matrix.address}: every sample_weight is zero; some must be positive")
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
    passes: Passes, init: str | Seeding | Floats, n_clusters: int, seed: int, surveyed: Survey, starts: int = 1
) -> Floats:
    """Return the first centres, distinct; fewer than `n_clusters` only where there are fewer distinct rows.

    `init` of shape (n_clusters, n_features): The method; centres given are returned as they are.
    `surveyed`: Of the same data, method, seed and number of starts.
    `starts`: Starts that are made. Of several, each is refined on a coreset of the rows, and the best there is
        returned.
    """
    if isinstance(init, np.ndarray):
        return init
    sample, several, width = surveyed.sample, starts > 1, passes.source.n_columns
    description = coreset(surveyed.sums, n_clusters, seed) if several else None
    method_seed = derive_seed(seed, "function" if callable(init) else init)
    made: list[Floats] = []
    if callable(init):
        rows = _sampled(passes, description)
        states = [np.random.RandomState(derive_seed(method_seed, i) % 2**32) for i in range(starts)]
        points = sample.points[sample.weights > 0]
        made = [checked_centers(init(points.copy(), n_clusters, s), n_clusters, width) for s in states]
    elif init == "k-means||":
        points, weights, rows = _oversample(passes, sample.points, n_clusters, seed, description)
    elif init == "k-means++":
        rows = _sampled(passes, description)
        made = [] if several else _spread_starts(sample.points, sample.weights, n_clusters, method_seed, 1)
    else:
        rows = _sampled(passes, description)
        made = [sample.points[i * n_clusters : (i + 1) * n_clusters] for i in range(starts)]
        made = [one for one in made if one.shape[0]]
    compared = None if rows is None else Comparison(rows, n_directions(starts, n_clusters, width), seed)
    if init == "k-means||":
        # Candidates hold what is rare, the coreset what is common; where both offer starts the better ones win.
        near = points if compared is None else compared.of(points)
        made = _spread_starts(near, weights, n_clusters, method_seed, starts - starts // 2)
        made = [refine(near, weights, one)[1] for one in made]
    elif compared is not None:
        made = [compared.of(one) for one in made]
    if compared is None:
        return fill(passes, distinct(made[0]), n_clusters)
    if init in ("k-means||", "k-means++"):
        method_seed = derive_seed(method_seed, "coreset")
        made += _spread_starts(compared.points, compared.weights, n_clusters, method_seed, starts - len(made))
    return fill(passes, distinct(compared.best(made)), n_clusters)


def _spread_starts(points: Floats, weights: Floats, n_clusters: int, seed: int, starts: int) -> list[Floats]:
    return [points[spread_out(points, weights, n_clusters, derive_seed(seed, i))] for i in range(starts)]


def _sampled(passes: Passes, description: RowSample | None) -> RowSample | None:
    if description is None:
        return None
    return cast(RowSample, passes.reduce(summary_reduction(passes.source, description, "k-means: coreset")))


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
) -> tuple[Floats, Floats, RowSample | None]:
    """Return the candidates of k-means||, the weight of the rows nearest to each, and the sample; `ROUNDS` + 1 passes.

    Candidates without weight are left out.
    """
    factor = float(OVERSAMPLING * n_clusters)
    candidates = Candidates(first, seed)
    width = passes.source.n_columns
    for step in range(ROUNDS):
        # A block offers about `factor` rows, and rarely more than twice that.
        nbytes = int(8 * (width + 3) * 2 * factor) + 64
        reduction = Reduction(
            SampleBlock(candidates, derive_seed(seed, "round", step), factor),
            MergeRounds(factor),
            f"k-means: seeding {step + 1} of {ROUNDS + 1}",
            state_nbytes=nbytes,
            working_nbytes=2 * nbytes + _assign_nbytes(candidates),
        )
        state = passes.reduce(reduction)
        fresh = state.chosen.points
        if fresh.shape[0] == 0 and state.cost == 0:
            break
        candidates = replace(candidates, points=np.concatenate([candidates.points, fresh]))
    sampled = 0 if rows is None else rows.projected_nbytes(width)
    weighing = Reduction(
        WeighBlock(candidates, rows),
        merge_weighed,
        f"k-means: seeding {ROUNDS + 1} of {ROUNDS + 1}",
        state_nbytes=8 * candidates.points.shape[0] + sampled,
        working_nbytes=_assign_nbytes(candidates) + 2 * sampled,
    )
    weighed = passes.reduce(weighing)
    heavy = weighed.weights > 0
    return candidates.points[heavy], weighed.weights[heavy], weighed.rows


def _assign_nbytes(candidates: Candidates) -> int:
    return 4 * candidates.points.nbytes + (4 << 20)
