"""BlockBound: a lower bound of the k-means objective, summed over random blocks of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sketchselect.linalg.arrays import Array, Floats, global_rows
from sketchselect.linalg.hashing import derive_seed, uniforms
from sketchselect.linalg.kmeans.distances import spread_out
from sketchselect.linalg.kmeans.lloyd import assign_and_sum
from sketchselect.linalg.kmeans.partition_bound import ITERATIONS, partition_bound
from sketchselect.linalg.sparse.csr import is_csr
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import require_number, require_positive, require_seed
from sketchselect.summaries.base import Summary
from sketchselect.summaries.registry import register

_STARTS = 3
_LLOYD_ITERATIONS = 10

_EPS = float(np.finfo(np.float64).eps)
_LAST = 2.0**-1068
"""Some units of the smallest subnormal numbers, without effect on larger ones."""


@dataclass(frozen=True)
class BlockBoundRecord:
    """State of `BlockBound`: sums over blocks."""

    n_rows: int
    n_features: int
    weight: float
    n_blocks: int
    n_solved: int
    spectral: float
    """Sum of the spectral bounds of all blocks."""
    gained: float
    """Sum over the solved blocks of the difference between dual and spectral bound."""
    gain_limit: float
    """Upper bound of that difference in any block: objective of the best clustering tried less spectral bound."""


@register
class BlockBound(Summary[BlockBoundRecord]):
    """A lower bound of the k-means objective of every clustering into k clusters, from blocks of some hundred rows.

    The best clustering of all rows, restricted to a block, is a clustering of that block; so the optimum is at least
    the sum of lower bounds of the optima of blocks, for any partition of the rows into blocks. Each is bounded by the
    dual of a semidefinite relaxation (`linalg.kmeans.partition_bound`). `lower_bound` is rigorous if every block was
    solved (`fraction` = 1); from a sample of blocks it holds with a chosen probability.

    Parameters
    ----------
    n_clusters : int
        Number of clusters k.
    block_rows : int, default 400
        Rows of a block; the rows of each `from_block` are assigned by hash to ``max(1, rows // block_rows)`` equal
        blocks. Larger blocks give a larger bound at a cost that grows with the square.
    fraction : float in (0, 1], default 1
        Share of the blocks that are solved, chosen by a hash of global row indices; the others contribute their
        spectral bound. Below 1, `merge` refuses summaries that share an index: the same blocks would be solved in both.
    seed : int
        From 0 to 2^64 - 1; determines which rows share a block, and which blocks are solved.

    Notes
    -----
    The blocks depend on the partitions of the rows, so two layouts give different bounds, each valid. Rows sorted by
    class give a looser bound. Cost: half a second a block of 400 rows on one core, six seconds one of 1600.
    Rows of a sparse source are made dense a block at a time, without the columns that are empty there.
    Source: Peng and Wei 2007; summed over blocks.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [9.0], [10.0]])
    >>> round(BlockBound(n_clusters=2).from_block(X).lower_bound(), 6)
    1.0
    """

    kind = "block-bound"
    record_type = BlockBoundRecord
    accepts_sparse = True
    # Any density: the rows of a block are shuffled, so all must be there at once.
    sparse_limit = 1.0

    def __init__(self, n_clusters: int, block_rows: int = 400, fraction: float = 1.0, seed: int = 0) -> None:
        self.n_clusters = require_positive("n_clusters", n_clusters)
        self.block_rows = require_positive("block_rows", block_rows, 2)
        self.fraction = require_number("fraction", fraction, above=0, most=1)
        self.seed = require_seed(seed)

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the bytes of one state."""
        return 128

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the bytes for one block: its rows twice, and a dozen matrices of its order."""
        rows = 2 * self.block_rows
        return 8 * (2 * rows * n_features + 12 * rows * rows)

    def _empty(self, n_features: int, n_targets: int) -> BlockBoundRecord:
        return BlockBoundRecord(0, n_features, 0.0, 0, 0, 0.0, 0.0, 0.0)

    def _summarise(self, block: Any, targets: Any, start: int | Array, weights: Floats | None) -> BlockBoundRecord:
        n = block.shape[0]
        rows = global_rows(start, n)
        shuffled = np.argsort(uniforms(derive_seed(self.seed, "block-bound", "deal"), rows), kind="stable")
        chosen = derive_seed(self.seed, "block-bound", "solve")
        n_solved, spectral, gained, limit = 0, 0.0, 0.0, 0.0
        parts = np.array_split(shuffled, max(1, n // self.block_rows))
        with one_blas_thread():
            for part in parts:
                mine = _dense_rows(block, np.sort(part))
                w = None if weights is None else weights[np.sort(part)]
                solve = self.fraction == 1.0 or float(uniforms(chosen, rows[part[:1]])[0]) < self.fraction
                bound = partition_bound(mine, self.n_clusters, w, ITERATIONS if solve else 0)
                spectral += bound.spectral
                if solve:
                    n_solved += 1
                    gained += bound.lower - bound.spectral
                if self.fraction < 1.0:
                    # The objective may lack squares that underflowed.
                    most = self._tried(mine, w, bound.scatter) + mine.size * _LAST
                    limit = max(limit, most - bound.spectral)
        weight = float(n) if weights is None else float(weights.sum())
        return BlockBoundRecord(n, block.shape[1], weight, len(parts), n_solved, spectral, gained, limit)

    def _tried(self, rows: Floats, weights: Floats | None, scatter: float) -> float:
        """Return the objective of a clustering of these rows: an upper bound of every lower bound."""
        if scatter == 0.0:
            return 0.0
        w = np.ones(rows.shape[0]) if weights is None else weights
        best = scatter
        for start in range(_STARTS):
            seed = derive_seed(self.seed, "block-bound", "try", start)
            centers = rows[spread_out(rows, w, self.n_clusters, seed)]
            for _ in range(_LLOYD_ITERATIONS):
                sums = assign_and_sum(rows, centers, w)[2]
                best = min(best, float(sums.within.sum()) * (1 + 1e-9))
                centers = np.where(sums.weight[:, None] > 0, sums.mean, centers)
        return best

    def _combine(self, left: BlockBoundRecord, right: BlockBoundRecord) -> BlockBoundRecord:
        return BlockBoundRecord(
            left.n_rows + right.n_rows,
            left.n_features,
            left.weight + right.weight,
            left.n_blocks + right.n_blocks,
            left.n_solved + right.n_solved,
            left.spectral + right.spectral,
            left.gained + right.gained,
            max(left.gain_limit, right.gain_limit),
        )

    # --- answers -----------------------------------------------------------------------------------------------

    @property
    def keyed_by_rows(self) -> bool:
        """Whether global row indices decide which blocks are solved."""
        return self.fraction < 1.0

    @property
    def weight(self) -> float:
        """Total weight of the rows; their number by default."""
        return self.record.weight

    def lower_bound(self, confidence: float | None = None) -> float:
        """Return a lower bound of the objective of every clustering.

        Parameters
        ----------
        confidence : float in (0, 1), optional
            Probability of the bound over the choice of the solved blocks, by the Chernoff bound in its Kullback-Leibler
            form, which is valid for sampling without replacement, merged sources included. None: a bound that always
            holds.

        Examples
        --------
        >>> import numpy as np
        >>> X = np.random.default_rng(0).standard_normal((400, 2))
        >>> all_of_them = BlockBound(n_clusters=4, block_rows=20).from_block(X)
        >>> some = BlockBound(n_clusters=4, block_rows=20, fraction=0.5).from_block(X)
        >>> 0 < some.lower_bound() < all_of_them.lower_bound()
        True
        """
        record = self.record
        certain = max(record.spectral + record.gained - self.rounding, 0.0)
        if confidence is None or record.n_solved == record.n_blocks:
            return certain
        confidence = require_number("confidence", confidence, above=0, below=1)
        if record.n_solved == 0 or record.gain_limit <= 0:
            return certain
        share = min(record.gained / (record.n_solved * record.gain_limit), 1.0)
        mean = least_mean(share, record.n_solved, 1.0 - confidence)
        return max(certain, record.spectral + record.n_blocks * record.gain_limit * mean - self.rounding)

    @property
    def rounding(self) -> float:
        """Bound of the rounding of the sums over blocks; that of each bound has been subtracted from it."""
        sums = self.record.spectral + self.record.gained
        return self.record.n_blocks * (4.0 * _EPS * sums + (_LAST if sums > 0 else 0.0))


def _dense_rows(block: Any, rows: Array) -> Floats:
    """Return these rows as float64; of a sparse block without empty columns, which contribute nothing."""
    if not is_csr(block):
        return np.asarray(block[rows], dtype=np.float64)
    mine = block[rows]
    there = np.unique(mine.indices)
    dense: Floats = mine[:, there].toarray().astype(np.float64)
    return dense


def least_mean(observed: float, n: int, failure: float) -> float:
    """Return a lower confidence bound of the mean of numbers in [0, 1] from a sample mean.

    The smallest mu with ``n kl(observed || mu) <= log(1 / failure)``, rounded down.

    Examples
    --------
    >>> round(least_mean(0.5, 100, 0.01), 3)
    0.352
    """
    low, high = 0.0, observed
    allowed = np.log(1.0 / failure) / n
    for _ in range(80):
        middle = (low + high) / 2
        if _divergence(observed, middle) > allowed:
            low = middle
        else:
            high = middle
    return low


def _divergence(p: float, q: float) -> float:
    """Return the Kullback-Leibler divergence of two Bernoulli distributions."""
    if q <= 0.0:
        return float("inf") if p > 0 else 0.0
    first = p * np.log(p / q) if p > 0 else 0.0
    second = (1 - p) * np.log((1 - p) / (1 - q)) if p < 1 else 0.0
    return float(first + second)
