"""Tasks of seeding: survey of the rows, samples of them, nearest candidates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sketchselect.execution.cached import CachedBlock
from sketchselect.execution.source import Block
from sketchselect.linalg.arrays import Floats, Labels, as_weights, global_rows
from sketchselect.linalg.bottom_k import KeyedRows, exponential_keys, smallest_rows
from sketchselect.linalg.hashing import uniforms
from sketchselect.linalg.kmeans import lloyd
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
