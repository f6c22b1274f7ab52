"""What one task of seeding does: survey the rows, sample them, and keep track of the nearest candidate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sketchselect.execution.block import Block
from sketchselect.linalg import lloyd
from sketchselect.linalg.arrays import Array, Floats, as_weights, global_rows
from sketchselect.linalg.hashing import uniforms
from sketchselect.linalg.lloyd_kernels import Labels
from sketchselect.summaries import CentroidSums

Nearest = tuple[Labels, Floats]
"""Per row of a block: index of the nearest candidate and squared distance to it."""


@dataclass(frozen=True)
class Sample:
    """Rows with the smallest keys; ties by row index. Which rows these are does not depend on the partitions.

    Parameters
    ----------
    keys : array of shape (m,)
        Ascending.
    rows : array of shape (m,)
        Global row indices.
    points : array of shape (m, n_features)
        Their values, float64.
    weights : array of shape (m,)
        Their weights.
    """

    keys: Floats
    rows: NDArray[np.int64]
    points: Floats
    weights: Floats

    def merge(self, other: Sample, size: int | None = None, below: float = np.inf) -> Sample:
        """Return the sample of the rows of both: the `size` smallest keys, and of them those below a limit."""
        return smallest(
            np.concatenate([self.keys, other.keys]),
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.points, other.points]),
            np.concatenate([self.weights, other.weights]),
            size,
            below,
        )


def smallest(
    keys: Floats, rows: NDArray[np.int64], values: Array, weights: Floats, size: int | None, below: float = np.inf
) -> Sample:
    """Return the `size` rows (None: all) of smallest key below a limit."""
    found = np.flatnonzero(keys < below)
    if size is not None and found.size > size:
        found = found[keys[found] <= np.partition(keys[found], size - 1)[size - 1]]
    found = found[np.lexsort((rows[found], keys[found]))][:size]
    return Sample(keys[found], rows[found], values[found].astype(np.float64), weights[found])


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
    """Size and spread of the rows, and a sample of them.

    Parameters
    ----------
    sums : CentroidSums
        Of one cluster, unweighted: rows, mean and scatter.
    weight : float
        Total weight.
    n_weighted : int
        Rows with a positive weight.
    sample : Sample
        A hashed sample of them.
    """

    sums: CentroidSums
    weight: float
    n_weighted: int
    sample: Sample


@dataclass(frozen=True)
class SurveyBlock:
    """Leaf of the survey.

    Parameters
    ----------
    seed : int
        Of the hash.
    size : int
        Rows in the sample.
    by_weight : bool
        Whether rows are drawn in proportion to their weight, or all alike.
    """

    seed: int
    size: int
    by_weight: bool

    def __call__(self, block: Block) -> Survey:
        """Return the survey of one block."""
        n_rows = block.values.shape[0]
        sums = CentroidSums(1).from_block(block.values, np.zeros(n_rows, dtype=np.int32), start=block.position)
        weights = block_weights(block)
        rows = block_rows(block)
        heavy = weights > 0
        # Exponential race: the smallest -log(u) / w wins with probability proportional to w.
        keys = np.full(n_rows, np.inf)
        with np.errstate(over="ignore"):
            keys[heavy] = -np.log(uniforms(self.seed, rows[heavy])) / (weights[heavy] if self.by_weight else 1.0)
        sample = smallest(keys, rows.astype(np.int64), block.values, weights, self.size)
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
    """Candidate centres, of which only the latest are new to blocks whose nearest candidate is remembered.

    Parameters
    ----------
    points : array of shape (m, n_features)
        All candidates, or only the latest.
    first : int
        Index of ``points[0]`` among all candidates.
    known : mapping of int to (labels, distances)
        Per block (by its start): nearest among the candidates before `first`.
    """

    points: Floats
    first: int = 0
    known: Mapping[int, Nearest] = field(default_factory=dict)

    def nearest(self, block: Block) -> Nearest:
        """Return the nearest of all candidates for each row; ties go to the lowest index."""
        before = self.known.get(block.start)
        if before is not None and not self.points.shape[0]:
            return before
        labels, distances = lloyd.assign(block.values, self.points)
        labels += np.int32(self.first)
        if before is not None:
            keep = before[1] <= distances
            labels = np.where(keep, before[0], labels)
            distances = np.where(keep, before[1], distances)
        return labels, distances


@dataclass(frozen=True)
class Round:
    """State of one round of k-means||.

    Parameters
    ----------
    cost : float
        Weighted sum of squared distances to the candidates, of the rows so far.
    chosen : Sample
        Rows whose key is below ``factor / cost``: a superset of the round's choice that shrinks with every merge and
        ends as exactly that.
    known : mapping
        Nearest candidates, where they are to be remembered.
    """

    cost: float
    chosen: Sample
    known: Mapping[int, Nearest]


@dataclass(frozen=True)
class SampleBlock:
    """Leaf of a round of k-means||: row i is chosen iff u_i < factor w_i d_i^2 / cost, with hashed u_i."""

    candidates: Candidates
    seed: int
    factor: float
    remember: bool

    def __call__(self, block: Block) -> Round:
        """Return the state of one block."""
        labels, distances = self.candidates.nearest(block)
        weights = block_weights(block)
        pull = weights * distances
        cost = float(pull.sum())
        rows = block_rows(block)
        keys = np.full(rows.shape, np.inf)
        far = pull > 0
        with np.errstate(over="ignore"):
            keys[far] = uniforms(self.seed, rows[far]) / pull[far]
        chosen = smallest(keys, rows.astype(np.int64), block.values, weights, None, _limit(self.factor, cost))
        return Round(cost, chosen, {block.start: (labels, distances)} if self.remember else {})


@dataclass(frozen=True)
class MergeRounds:
    """Merge of a round of k-means||."""

    factor: float

    def __call__(self, left: Round, right: Round) -> Round:
        """Return the state of both."""
        cost = left.cost + right.cost
        chosen = left.chosen.merge(right.chosen, None, _limit(self.factor, cost))
        return Round(cost, chosen, {**left.known, **right.known})


@dataclass(frozen=True)
class WeighBlock:
    """Leaf of the last pass of k-means||: the weight of the rows nearest to each candidate."""

    candidates: Candidates

    def __call__(self, block: Block) -> Floats:
        """Return the weights of one block, shape (n_candidates,)."""
        labels, _ = self.candidates.nearest(block)
        n_candidates = self.candidates.first + self.candidates.points.shape[0]
        weights: Floats = np.bincount(labels, block_weights(block), n_candidates).astype(np.float64, copy=False)
        return weights


def add(left: Floats, right: Floats) -> Floats:
    """Return the sum: merge of `WeighBlock`."""
    return left + right


def _limit(factor: float, cost: float) -> float:
    return factor / cost if cost > 0 else np.inf
