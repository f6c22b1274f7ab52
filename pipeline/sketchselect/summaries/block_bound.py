"""BlockBound: a lower bound of the k-means objective, summed over blocks of rows.

The bound of a block is that of the dual of a semidefinite relaxation. Its multipliers are found by an ascent in single
precision; they need not be exact, as any give a valid bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, eigvalsh
from scipy.sparse import csr_array

from sketchselect._kernels import REASSOCIATED, kernel
from sketchselect.linalg.centering import check_squares
from sketchselect.linalg.csr import densify
from sketchselect.linalg.hashing import derive_seed, uniforms
from sketchselect.linalg.kmeans.triangles import Triangles
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import (
    Array,
    Floats,
    as_labels,
    global_rows,
    is_csr,
    require_number,
    require_positive,
    require_seed,
)
from sketchselect.summaries.base import Summary, register

OVER_RELAXATION = 1.6

STIFFNESS = 2.0  # Penalty of the method, in units of ||K||_F / sqrt(k)
SPARE = 8  # Directions followed in addition to those in use, as replacements
_TINY = 1e-10  # Relative square below which a direction of the search space is rounding


class DualAscent:
    """The alternating direction method on the dual; each round improves the multipliers N >= 0 (entry by entry).

    The rounds project in turn onto {spectrum in [0, 1], trace k, Z u = u} and {entries >= 0}. The first needs the
    largest eigenvalues of a matrix that changes little from round to round: a Rayleigh-Ritz step on the directions of
    the round before and their images finds them with two products.

    `gram` of shape (n, n): K, with K u = 0.
    `unit` of shape (n,): u.
    `n_clusters`: k, at least 2 and less than n.
    `triangles`: Inequalities that the entries obey too; with none yet.
    """

    def __init__(self, gram: Floats, unit: Floats, n_clusters: int, triangles: Triangles | None = None) -> None:
        n = gram.shape[0]
        self._trace = float(n_clusters - 1)
        self._penalty = STIFFNESS * float(np.linalg.norm(gram)) / np.sqrt(n_clusters)
        self._unit = unit.astype(np.float32)
        self._scaled = (gram / self._penalty).astype(np.float32)
        self._entries: Array = np.outer(self._unit, self._unit)
        self._dual: Array = np.zeros_like(self._scaled)
        self._matrix: Array = self._entries + self._scaled
        n_directions = min(n_clusters + SPARE, n)
        draws = uniforms(n, np.arange(n * n_directions, dtype=np.uint64)).reshape(n, n_directions)
        self._directions: Array = (draws - 0.5).astype(np.float32)
        self._triangles = triangles

    def multipliers(self, rounds: int, every: int) -> Iterator[tuple[Floats, float]]:
        """Yield N after each `every` rounds, `rounds` in all, symmetric, in float64; and the rounding of tr NZ.

        N is not negative; with inequalities, not less than the sum of their matrices times their multipliers.
        """
        for done in range(1, rounds + 1):
            self._round()
            if done % every == 0 or done == rounds:
                multipliers, rounding = self._dual.astype(np.float64), 0.0
                multipliers += multipliers.T
                multipliers *= -0.5 * self._penalty
                if self._triangles:
                    np.maximum(multipliers, self._penalty * self._triangles.adjoint(), out=multipliers)
                    rounding = float(self._penalty * self._triangles.rounding)
                yield multipliers, rounding

    def separate(self) -> bool:
        """Add inequalities that the entries violate; return whether there are any, new ones or others."""
        if self._triangles is not None:
            self._triangles.separate(self._entries)
        return bool(self._triangles)

    def _round(self) -> None:
        spectral, raised = self._projection(), self._dual
        _aim(spectral, self._entries, self._dual, self._unit, np.float32(OVER_RELAXATION))
        if self._triangles:
            raised = self._dual + self._triangles.adjoint().astype(np.float32)
            self._triangles.project(raised)
        _settle(raised, self._entries, self._dual, self._matrix, self._scaled)

    def _projection(self) -> Array:
        """Return the nearest matrix with spectrum in [0, 1] and trace k - 1 outside u."""
        n = self._matrix.shape[0]
        if 4 * self._directions.shape[1] >= n:
            outside = self._matrix.astype(np.float64)
            image = outside @ self._unit
            image -= 0.5 * float(self._unit @ image) * self._unit
            outside -= np.outer(image, self._unit) + np.outer(self._unit, image)
            values, vectors = np.linalg.eigh(outside)
        else:
            values, vectors = self._ritz()
        capped = capped_simplex(values, self._trace)
        used = int(np.count_nonzero(capped))
        first = vectors.shape[1] - used
        self._directions = np.ascontiguousarray(vectors[:, max(first - SPARE, 0) :], np.float32)
        mine = np.ascontiguousarray(vectors[:, first:], np.float32)
        projected: Array = (mine * capped[first:].astype(np.float32)) @ mine.T
        return projected

    def _ritz(self) -> tuple[Floats, Array]:
        """Return Ritz values (ascending) and vectors of the matrix outside u, from the directions and their images."""
        v = self._outside(self._directions)
        image = self._outside(self._matrix @ v)
        lengths = np.linalg.norm(image, axis=0)
        w = image / np.where(lengths > 0, lengths, np.float32(1))
        basis = np.hstack([v, w]).astype(np.float64)
        images = np.hstack([image, self._outside(self._matrix @ w)]).astype(np.float64)
        squares, turn = np.linalg.eigh(basis.T @ basis)
        there = squares > _TINY * squares[-1]
        turn = turn[:, there] / np.sqrt(squares[there])
        small = turn.T @ (basis.T @ images) @ turn
        values, vectors = np.linalg.eigh((small + small.T) / 2)
        return values, (basis @ (turn @ vectors)).astype(np.float32)

    def _outside(self, columns: Array) -> Array:
        projected: Array = columns - np.outer(self._unit, self._unit @ columns)
        return projected


@kernel(error_model="numpy")
def capped_simplex(values: Floats, total: float) -> Floats:
    """Return the nearest point of {0 <= x <= 1, sum x = total}, by bisection on its threshold.

    Examples
    --------
    >>> capped_simplex(np.array([-1.0, 0.25, 0.5, 3.0]), 2.0).round(9).tolist()
    [0.0, 0.375, 0.625, 1.0]
    """
    low, high = values.min() - 1.0, values.max()
    for _ in range(64):
        middle = (low + high) / 2
        capped = 0.0
        for value in values:
            capped += min(max(value - middle, 0.0), 1.0)
        if capped > total:
            low = middle
        else:
            high = middle
    out = np.empty_like(values)
    for i in range(values.shape[0]):
        out[i] = min(max(values[i] - high, 0.0), 1.0)
    return out


@kernel(fastmath=REASSOCIATED, error_model="numpy")
def _aim(spectral: Array, entries: Array, dual: Array, unit: Array, relaxation: np.float32) -> None:
    """Write over the multipliers what is projected onto the entries that are possible."""
    n = spectral.shape[0]
    for i in range(n):
        for j in range(n):
            projected = spectral[i, j] + unit[i] * unit[j]
            dual[i, j] += relaxation * projected + (np.float32(1.0) - relaxation) * entries[i, j]


@kernel(fastmath=REASSOCIATED, error_model="numpy")
def _settle(raised: Array, entries: Array, dual: Array, matrix: Array, scaled: Array) -> None:
    """Set the entries to the positive part of `raised`, the multipliers to the difference, and the next matrix."""
    n = raised.shape[0]
    for i in range(n):
        for j in range(n):
            entry = max(raised[i, j], np.float32(0.0))
            entries[i, j] = entry
            dual[i, j] -= entry
            matrix[i, j] = entry - dual[i, j] + scaled[i, j]


ITERATIONS = 100  # Most rounds of the dual method, and as many with inequalities; further ones gain about a thousandth
EVALUATE_EVERY = 20  # Rounds between two evaluations of the bound, each of which costs as much as some twenty rounds
LEAST_GAIN = 4e-4  # Relative gain between two evaluations below which the method stops

_EPS = float(np.finfo(np.float64).eps)
_LAST = 2.0**-1072  # Some units of the smallest subnormal numbers, without effect on larger ones


class PartitionBound(NamedTuple):
    """Bounds of the objective of the best clustering of some rows."""

    lower: float  # No clustering has a smaller objective
    spectral: float  # The weaker bound from the spectrum alone
    scatter: float  # Objective of one cluster


def partition_bound(
    rows: Array,
    n_clusters: int,
    weights: Floats | None = None,
    iterations: int = ITERATIONS,
    *,
    triangles: bool = False,
) -> PartitionBound:
    """Return a lower bound of the k-means objective of these rows, valid after any number of iterations.

    With r the roots of the weights, u = r / ||r||, K the Gram matrix of the rows about their weighted mean, row i times
    r_i, P = I - uu' and any matrix N >= 0 (entry by entry), every partition into at most k clusters has a weighted
    objective of at least ``tr K - u'(K + N)u - sum_{i<k} max(lambda_i(P (K + N) P), 0)``. For that objective is
    tr K - tr K Z, where Z is the sum, over the clusters c, of r_c r_c' / ||r_c||^2 (r_c is r on the rows of c, 0
    elsewhere): Z >= 0, so tr K Z <= tr (K + N) Z; and Z = uu' + PZP, where PZP is a projection of rank at most k - 1.
    The iteration only improves N; N = 0 is the spectral bound. Rounding is subtracted.

    With `triangles` N need not be >= 0: N plus matrices A, times multipliers of at least 0, does for which
    tr AZ >= 0 says ``Y_ij + Y_ik <= Y_ii + Y_jk`` (`Triangles`). Those that the relaxation violates are added from
    where it gains no more without them.

    `rows` of shape (n_rows, n_features): Finite numbers.
    `weights` of shape (n_rows,): Row weights, not negative.
    `iterations`: Most rounds of the dual method; with 0 the result is the spectral bound.
    `triangles`: Whether triangle inequalities are added, and the rounds twice as many.
    Cost: n^2 p flops, 4/3 n^3 for each of the few evaluations, and about 6 n^2 k in single precision a round; with
    triangle inequalities up to 12 n^3 a round.
    Source: Peng and Wei 2007 for the relaxation; Piccialli, Sudoso and Wiegele 2022 for the inequalities; the
    alternating direction method with over-relaxation on its dual; weak duality for the bound.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [9.0], [10.0]])
    >>> round(partition_bound(X, 2).lower, 6)
    1.0
    """
    x = np.asarray(rows, dtype=np.float64)
    if weights is not None:
        x, weights = x[weights > 0], weights[weights > 0]
    n = x.shape[0]
    if n <= n_clusters:
        return PartitionBound(0.0, 0.0, 0.0)
    roots = np.ones(n) if weights is None else np.sqrt(weights / weights.max())
    unit = roots / np.linalg.norm(roots)
    # Twice: the rounding of the first mean is relative to the mean, which far from the origin exceeds the differences.
    for _ in range(2):
        x = x - np.average(x, axis=0, weights=roots * roots)
    x *= roots[:, None]
    largest = float(np.abs(x).max(initial=0.0))
    if largest == 0.0:
        return PartitionBound(0.0, 0.0, 0.0)
    # Scaled so that no product overflows or vanishes, by a power of two, which is exact; undone in the results.
    power = 2.0 ** math.floor(math.log2(largest))
    heaviest = 1.0 if weights is None else float(weights.max())
    x /= power
    gram = _outside(x @ x.T, unit)
    gram = (gram + gram.T) / 2
    scatter = float(np.trace(gram))
    # Rounding of the Gram matrix in Frobenius norm, times the square root of k, as it affects k eigenvalues.
    rounding = 8.0 * _EPS * (n + x.shape[1]) * math.sqrt(n_clusters) * scatter
    if scatter <= 0.0:
        return PartitionBound(0.0, 0.0, 0.0)
    spectral = _dual_value(gram, np.zeros_like(gram), unit, n_clusters, scatter)
    lower = spectral
    if n_clusters > 1 and iterations > 0:
        ascent = DualAscent(gram, unit, n_clusters, Triangles(roots) if triangles else None)
        rounds = 2 * iterations if triangles else iterations
        lower = _climbed(ascent, gram, unit, n_clusters, rounds, spectral)
    # The scale is applied twice, and the bounds are lowered a little: its square may vanish or be rounded up.
    lower, spectral, scatter = (
        value * heaviest * power * power for value in (lower - rounding, spectral - rounding, scatter + rounding)
    )
    return PartitionBound(max(lower - _LAST, 0.0), max(spectral - _LAST, 0.0), scatter + _LAST)


def _climbed(ascent: DualAscent, gram: Floats, unit: Floats, k: int, iterations: int, best: float) -> float:
    """Return the best dual value of the iteration; inequalities are added once it gains no more without them."""
    scatter, has_inequalities, may_lose = float(np.trace(gram)), False, False
    for multipliers, rounding in ascent.multipliers(iterations, EVALUATE_EVERY):
        value = _dual_value(gram, multipliers, unit, k, scatter) - rounding
        stalls = value - best <= LEAST_GAIN * max(value, 0.0)
        best = max(best, value)
        if stalls and has_inequalities and not may_lose:
            break
        # The first inequalities raise the bound only after some rounds.
        may_lose = stalls and not has_inequalities
        if stalls or has_inequalities:
            has_inequalities = ascent.separate()
            if not has_inequalities:
                break
    return best


def _dual_value(gram: Floats, dual: Floats, unit: Floats, k: int, scatter: float) -> float:
    """Return ``tr K - u'(K + N)u - sum of the k - 1 largest positive eigenvalues of P(K + N)P``, less rounding."""
    n = gram.shape[0]
    raised = gram + dual
    along = float(unit @ raised @ unit)
    top = 0.0
    if k > 1:
        top = float(np.maximum(_largest_eigenvalues(_outside(raised, unit), k - 1), 0.0).sum())
    rounding = 8.0 * _EPS * n * k * float(np.linalg.norm(raised))
    return float(scatter - along - top - rounding)


def _largest_eigenvalues(matrix: Floats, count: int) -> Floats:
    n = matrix.shape[0]
    try:
        some: Floats = eigvalsh(matrix, subset_by_index=[max(n - count, 0), n - 1], driver="evr", check_finite=False)
    except LinAlgError:  # LAPACK may fail to tell many equal eigenvalues apart, as of equidistant rows
        some = eigvalsh(matrix, driver="ev", check_finite=False)[-count:]
    return some


def _outside(matrix: Floats, unit: Floats) -> Floats:
    """Return P M P with P = I - uu', for a symmetric M."""
    image = matrix @ unit
    image -= 0.5 * float(unit @ image) * unit
    outer = np.outer(image, unit)
    projected: Floats = matrix - outer - outer.T
    return projected


MOST_BLOCKS = 32  # Of a partition, at most: with triangles a minute or two, and a longer silent pass would look dead
SKETCHED_COLUMNS = 256  # Rows of more columns are balanced in as many signed sums of columns
SWEEPS = 3  # Passes over the rows of a partition that exchange rows between blocks; further ones gain little
CANDIDATES = 20  # Rows of its cluster that a row may change places with, in each sweep


def balanced_blocks(block: Any, labels: Array, n_blocks: int, order: Array, seed: int) -> list[Array]:
    """Return a partition of the rows into equal blocks, in each of which clusters have about their means in all rows.

    The optimum of a block is at most the scatter of its rows about the means of the clusters *in the block*, so what
    is lost to the optimum of all rows is at least ``sum over blocks b and clusters c of n_bc ||mean_bc - mean_c||^2``.
    The rows of each cluster are dealt to the blocks in turn; then rows of a cluster change places wherever that makes
    this sum smaller.

    `block` of shape (n, p): Rows, dense or CSR.
    `labels` of shape (n,): Cluster of each row; any values.
    `order` of shape (n,): Permutation in which the rows are dealt.
    `seed`: Of the candidates, and of the signed sums of columns that stand for wide rows.
    Cost: ``3 SWEEPS CANDIDATES n min(p, 256)`` flops.
    Source: Papenberg and Klau 2021 for the exchange; Croella, Piccialli and Sudoso 2025 for blocks of rows.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0], [100.0], [101.0], [102.0], [103.0]])
    >>> blocks = balanced_blocks(X, np.repeat([0, 1], 4), 2, np.arange(8), 0)
    >>> [float(X[rows].sum()) for rows in blocks]
    [206.0, 206.0]
    """
    p = block.shape[1]
    if p > SKETCHED_COLUMNS:
        width = SKETCHED_COLUMNS
        # 2 * width bins: a column's bin says its sum and its sign.
        draws = uniforms(derive_seed(seed, "block-bound", "columns"), np.arange(p, dtype=np.uint64))
        bins = (draws * (2 * width)).astype(np.int64)
        sums = csr_array((np.where(bins % 2 == 0, 1.0, -1.0), bins // 2, np.arange(p + 1)), shape=(p, width))
        with np.errstate(over="ignore", invalid="ignore"):
            rows = densify(block @ sums) if is_csr(block) else block @ sums
    else:
        rows = densify(block) if is_csr(block) else np.asarray(block)
    # One cluster after another, so that a cluster's candidates are neighbours.
    order = order[np.argsort(labels[order], kind="stable")]
    rows, labels = rows[order].astype(np.float64), labels[order]
    starts = np.flatnonzero(np.diff(labels, prepend=labels[0] - 1))
    bounds = np.append(starts, labels.size)
    # Squares of huge numbers overflow: no rows are exchanged then, and the blocks are still a partition.
    with np.errstate(over="ignore", invalid="ignore"):
        for first, end in pairwise(bounds.tolist()):
            rows[first:end] -= rows[first:end].mean(axis=0)
        members = np.arange(labels.size) % n_blocks
        _exchange(rows, bounds, members, n_blocks, np.uint64(derive_seed(seed, "block-bound", "exchange")))
    return [order[members == b] for b in range(n_blocks)]


@kernel(fastmath=REASSOCIATED, error_model="numpy")
def _exchange(rows: Floats, bounds: Array, members: Array, n_blocks: int, seed: np.uint64) -> None:
    """Let rows of a cluster change blocks in pairs, where the squared norms of the clusters' sums in blocks decrease.

    `rows`: About the mean of their cluster; cluster c has those from ``bounds[c]`` to ``bounds[c + 1]``.
    `members`: Block of each row; overwritten.
    """
    p = rows.shape[1]
    state = seed | np.uint64(1)
    sums = np.empty((n_blocks, p))
    for c in range(bounds.shape[0] - 1):
        first, end = bounds[c], bounds[c + 1]
        sums[:] = 0.0
        for i in range(first, end):
            for q in range(p):
                sums[members[i], q] += rows[i, q]
        for _ in range(SWEEPS):
            n_exchanges = 0
            for i in range(first, end):
                best, least = -1, 0.0
                for _ in range(CANDIDATES):
                    # Marsaglia's xorshift: the choice of candidates costs less than looking at one.
                    state ^= state << np.uint64(13)
                    state ^= state >> np.uint64(7)
                    state ^= state << np.uint64(17)
                    j = first + np.int64(state % np.uint64(end - first))
                    mine, other = members[i], members[j]
                    if mine == other:
                        continue
                    change = 0.0
                    for q in range(p):
                        difference = rows[j, q] - rows[i, q]
                        change += difference * (sums[mine, q] - sums[other, q] + difference)
                    if change < least:
                        best, least = j, change
                if best >= 0:
                    mine, other = members[i], members[best]
                    for q in range(p):
                        difference = rows[best, q] - rows[i, q]
                        sums[mine, q] += difference
                        sums[other, q] -= difference
                    members[i], members[best] = other, mine
                    n_exchanges += 1
            if n_exchanges == 0:
                break


_UNDERFLOW = 2.0**-1068
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
    """Sum of the spectral bounds of all blocks, also of blocks that are never drawn; 0 without `spectral`."""
    gained: float
    """Sum over the solved blocks of the difference between dual and spectral bound."""
    log_gained: float = -math.inf
    """Sum of the logarithms of these differences; files of version 1 lack it."""


@register
class BlockBound(Summary[BlockBoundRecord]):
    """A lower bound of the k-means objective of every clustering into k clusters, from blocks of some hundred rows.

    The best clustering of all rows, restricted to a block, is a clustering of that block; so the optimum is at least
    the sum of lower bounds of the optima of blocks, for any partition of the rows into blocks. Each is bounded by the
    dual of a semidefinite relaxation (`partition_bound`). `lower_bound` is rigorous if every block was solved
    (`fraction` = 1); from a sample of blocks it holds with a chosen probability.

    Parameters
    ----------
    n_clusters : int
        Number of clusters k.
    block_rows : int, default 400
        Rows of a block; a hash deals those of each `from_block` to ``max(1, rows // block_rows)`` equal blocks.
        Where labels of a clustering are given as `y`, one a row, rows are then exchanged until its clusters have about
        the same mean in every block (`balanced_blocks`). Larger blocks give a larger bound, at a cost that grows with
        the square.
    fraction : float in (0, 1], default 1
        Share of the blocks that are solved, chosen by a hash of global row indices. Below 1, `merge` refuses summaries
        that share an index: the same blocks would be solved in both; and blocks of fewer than `block_rows` rows, or of
        at most k different ones, are never drawn.
    seed : int
        From 0 to 2^64 - 1; determines which rows share a block, and which blocks are solved.
    spectral : bool, default True
        Whether the blocks that are not solved contribute their spectral bound. Without it they cost nothing, and a
        sample of as many solved blocks proves less.
    triangles : bool, default True
        Whether the relaxation has triangle inequalities: a gap of .3 to .9 of that without, at 1.5 to 7 times the cost.

    Notes
    -----
    The blocks depend on the partitions of the rows, so two layouts give different bounds, each valid. Labels of a good
    clustering take a third of the gap away, or more, where every cluster has rows in every block; of clusters of single
    rows far away, blocks by hash may prove more. Any labels give a valid bound. Rows sorted by class give a looser
    bound. Cost: two seconds a block of 400 rows on one core; without `triangles` a third of a second.
    Rows of a sparse source are made dense a block at a time, without the columns that are empty there.
    Source: Peng and Wei 2007; Piccialli, Sudoso and Wiegele 2022; summed over blocks; Maclaurin's inequality for a
    sample of them.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [9.0], [10.0]])
    >>> round(BlockBound(n_clusters=2).from_block(X).lower_bound(), 6)
    1.0
    """

    kind = "block-bound"
    record_type = BlockBoundRecord
    format_version = 3
    later_parameters: ClassVar[Mapping[str, Any]] = {"triangles": False}
    accepts_sparse = True
    # Any density: the rows of a block are shuffled, so all must be there at once.
    sparse_limit = 1.0

    def __init__(
        self,
        n_clusters: int,
        block_rows: int = 400,
        fraction: float = 1.0,
        seed: int = 0,
        spectral: bool = True,
        triangles: bool = True,
    ) -> None:
        self.n_clusters = require_positive("n_clusters", n_clusters)
        self.block_rows = require_positive("block_rows", block_rows, 2)
        self.fraction = require_number("fraction", fraction, above=0, most=1)
        self.seed = require_seed(seed)
        self.spectral = bool(spectral)
        self.triangles = bool(triangles)

    @property
    def written_version(self) -> int:
        """The format version in files: 3 with triangle inequalities, which 2 did not have."""
        return 3 if self.triangles else 2

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the bytes of one state."""
        return 128

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the bytes for a block, and for dealing a partition."""
        balanced = MOST_BLOCKS * self.block_rows * min(n_features, SKETCHED_COLUMNS)
        return self.solving_nbytes(2 * self.block_rows, n_features) + 8 * 2 * balanced

    def solving_nbytes(self, n_rows: float, n_features: int) -> int:
        """Return the bytes for a block of so many rows: its rows twice, some matrices of its order."""
        return int(8 * (2 * n_rows * n_features + (14 if self.triangles else 12) * n_rows**2))

    def _targets(self, y: Any, n_rows: int, start: int | Array = 0) -> Array | None:
        return None if y is None else np.unique(as_labels(y, n_rows), return_inverse=True)[1]

    def _empty(self, n_features: int, n_targets: int) -> BlockBoundRecord:
        return BlockBoundRecord(0, n_features, 0.0, 0, 0, 0.0, 0.0, 0.0)

    def _summarise(self, block: Any, targets: Any, start: int | Array, weights: Floats | None) -> BlockBoundRecord:
        n = block.shape[0]
        rows = global_rows(start, n)
        shuffled = np.argsort(uniforms(derive_seed(self.seed, "block-bound", "deal"), rows), kind="stable")
        chosen = derive_seed(self.seed, "block-bound", "solve")
        n_solved, spectral, gained, log_gained = 0, 0.0, 0.0, 0.0
        n_blocks = max(1, n // self.block_rows)
        with one_blas_thread():
            if targets is None or n_blocks == 1:
                parts = np.array_split(shuffled, n_blocks)
            else:
                parts = balanced_blocks(block, targets, n_blocks, shuffled, self.seed)
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
                with np.errstate(over="ignore"):
                    squares = np.einsum("ij,ij,i->j", mine, mine, np.ones(len(mine)) if w is None else w)
                check_squares(squares, densify(block) if is_csr(block) else block, start)
                iterations = ITERATIONS if solve else 0
                bound = partition_bound(mine, self.n_clusters, w, iterations, triangles=self.triangles)
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
        sums = {f.name: getattr(left, f.name) + getattr(right, f.name) for f in fields(left)}
        return BlockBoundRecord(**sums | {"n_features": left.n_features})

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
        return n_terms * (4.0 * _EPS * sums + (_UNDERFLOW if sums > 0 else 0.0))


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
