"""BlockBound: a lower bound of the k-means objective, summed over random blocks of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sketchselect.linalg.arrays import Array, Floats, global_rows
from sketchselect.linalg.csr import is_csr
from sketchselect.linalg.hashing import derive_seed, uniforms
from sketchselect.linalg.kmeans.partition_bound import ITERATIONS, partition_bound
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import require_number, require_positive, require_seed
from sketchselect.summaries.base import Summary, register

_EPS = float(np.finfo(np.float64).eps)
_LAST = 2.0**-1068
"""Some units of the smallest subnormal numbers, without effect on larger ones."""
_LARGEST_LOGARITHM = 745.0


@dataclass(frozen=True)
class BlockBoundRecord:
    """State of `BlockBound`: sums over blocks."""

    n_rows: int
    n_features: int
    weight: float
    n_blocks: int
    """Blocks that are solved, or may be drawn."""
    n_solved: int
    spectral: float
    """Sum of the spectral bounds of all blocks, those that are never drawn included; 0 where they are not made."""
    gained: float
    """Sum over the solved blocks of the difference between dual and spectral bound."""
    log_gained: float = -math.inf
    """Sum of the logarithms of these differences; files of version 1 lack it."""


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
        Share of the blocks that are solved, chosen by a hash of global row indices. Below 1, `merge` refuses summaries
        that share an index: the same blocks would be solved in both; and blocks of fewer than `block_rows` rows, or of
        at most k different ones, are never drawn.
    seed : int
        From 0 to 2^64 - 1; determines which rows share a block, and which blocks are solved.
    spectral : bool, default True
        Whether the blocks that are not solved contribute their spectral bound. Without it they cost nothing, and a
        sample of as many solved blocks proves less.

    Notes
    -----
    The blocks depend on the partitions of the rows, so two layouts give different bounds, each valid. Rows sorted by
    class give a looser bound. Cost: half a second a block of 400 rows on one core, six seconds one of 1600.
    Rows of a sparse source are made dense a block at a time, without the columns that are empty there.
    Source: Peng and Wei 2007; summed over blocks; Maclaurin's inequality for a sample of them.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [9.0], [10.0]])
    >>> round(BlockBound(n_clusters=2).from_block(X).lower_bound(), 6)
    1.0
    """

    kind = "block-bound"
    record_type = BlockBoundRecord
    format_version = 2
    accepts_sparse = True
    # Any density: the rows of a block are shuffled, so all must be there at once.
    sparse_limit = 1.0

    def __init__(
        self, n_clusters: int, block_rows: int = 400, fraction: float = 1.0, seed: int = 0, spectral: bool = True
    ) -> None:
        self.n_clusters = require_positive("n_clusters", n_clusters)
        self.block_rows = require_positive("block_rows", block_rows, 2)
        self.fraction = require_number("fraction", fraction, above=0, most=1)
        self.seed = require_seed(seed)
        self.spectral = bool(spectral)

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
        n_solved, spectral, gained, log_gained = 0, 0.0, 0.0, 0.0
        parts = np.array_split(shuffled, max(1, n // self.block_rows))
        n_blocks = len(parts)
        with one_blas_thread():
            for part in parts:
                solve = self.fraction == 1.0
                if not solve:
                    may_gain = self._may_gain(block, part, weights)
                    n_blocks -= not may_gain
                    solve = may_gain and float(uniforms(chosen, rows[part[:1]])[0]) < self.fraction
                if not (solve or self.spectral):
                    continue
                mine = _dense_rows(block, np.sort(part))
                w = None if weights is None else weights[np.sort(part)]
                bound = partition_bound(mine, self.n_clusters, w, ITERATIONS if solve else 0)
                least = bound.spectral if self.spectral else 0.0
                spectral += least
                if solve:
                    n_solved += 1
                    gained += bound.lower - least
                    log_gained += math.log(bound.lower - least) if bound.lower > least else -math.inf
        weight = float(n) if weights is None else float(weights.sum())
        return BlockBoundRecord(n, block.shape[1], weight, n_blocks, n_solved, spectral, gained, log_gained)

    def _may_gain(self, block: Any, part: Array, weights: Floats | None) -> bool:
        """Return whether a block may be drawn: one that gains nothing would spoil the geometric mean of those drawn."""
        k = self.n_clusters
        if part.size < self.block_rows:
            return False
        if weights is not None:
            part = part[weights[part] > 0]
        # Nearly always the first k + 1 rows differ, and no others are looked at.
        return any(_different(_dense_rows(block, some)) > k for some in (part[: k + 1], part))

    def _combine(self, left: BlockBoundRecord, right: BlockBoundRecord) -> BlockBoundRecord:
        return BlockBoundRecord(
            left.n_rows + right.n_rows,
            left.n_features,
            left.weight + right.weight,
            left.n_blocks + right.n_blocks,
            left.n_solved + right.n_solved,
            left.spectral + right.spectral,
            left.gained + right.gained,
            left.log_gained + right.log_gained,
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

        With g the geometric mean of what the m solved of all B blocks gained over the spectral bound S, it is
        ``S + B g (1 - confidence)^(1 / m)``: the mean of the product of m numbers, drawn from B without replacement, is
        at most the m-th power of their mean (Maclaurin), and by Markov's inequality a product is rarely much larger
        than its mean. Blocks that gain about the same, as blocks dealt by hash do, lose little by it.

        B counts only blocks of at least `block_rows` rows, more than k of them different. Whether a block is one of
        these depends on its rows and not on the draw, so the m solved ones are as good as drawn from these B; all other
        blocks gain at least 0 and are in S.

        Parameters
        ----------
        confidence : float in (0, 1), optional
            Probability of the bound over the choice of the solved blocks, merged sources included. None: a bound that
            always holds.

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
        failure = 1.0 - require_number("confidence", confidence, above=0, below=1)
        mean = least_mean(record.log_gained, record.n_solved, failure)
        return max(certain, record.spectral + record.n_blocks * mean - self.rounding)

    @property
    def rounding(self) -> float:
        """Bound of the rounding of the sums over blocks; that of each bound has been subtracted from it."""
        sums = self.record.spectral + self.record.gained
        n_terms = self.record.n_blocks if self.fraction == 1.0 else self.record.n_rows
        return n_terms * (4.0 * _EPS * sums + (_LAST if sums > 0 else 0.0))


def _dense_rows(block: Any, rows: Array) -> Floats:
    """Return these rows as float64; of a sparse block without empty columns, which contribute nothing."""
    if not is_csr(block):
        return np.asarray(block[rows], dtype=np.float64)
    mine = block[rows]
    there = np.unique(mine.indices)
    dense: Floats = mine[:, there].toarray().astype(np.float64)
    return dense


def _different(rows: Floats) -> int:
    """Return how many different rows there are; 0.0 is added as it makes -0.0 the same as 0.0."""
    return len({row.tobytes() for row in rows + 0.0})


def least_mean(sum_of_logarithms: float, n: int, failure: float) -> float:
    """Return a lower confidence bound of the mean of positive numbers, from n of them drawn without replacement.

    The geometric mean of those drawn, times ``failure^(1 / n)``, less the rounding of the logarithms.

    Examples
    --------
    >>> round(least_mean(100 * math.log(0.5), 100, 0.01), 2)
    0.48
    """
    if n == 0:
        return 0.0
    return math.exp((sum_of_logarithms + math.log(failure)) / n - (n + 8) * _EPS * _LARGEST_LOGARITHM)
