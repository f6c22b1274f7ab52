"""Comparison of preparations of counts, by how well clusters made from half of every count predict the other half."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import scipy  # its statistics take half a second to load, and are loaded where they are used
from scipy.sparse import csr_array

from sketchselect import prepare as steps
from sketchselect._progress import make_progress
from sketchselect._text import Tabular, counted
from sketchselect.errors import BadParameter, EmptyInput, warn
from sketchselect.execution.api import open_source
from sketchselect.execution.client import open_engine
from sketchselect.execution.engine import LocalEngine, PassOptions
from sketchselect.execution.source import Source
from sketchselect.execution.summarize import fit_steps, summarize_source
from sketchselect.linalg.hashing import derive_seed, gaussians, splitmix64, uniforms
from sketchselect.linalg.kmeans.sample import COST_TIE, WeightedRows, sample_size
from sketchselect.linalg.validation import Array, Floats, Labels, is_csr, require_positive, require_seed
from sketchselect.prepare.fitted import PearsonResiduals, TfIdf
from sketchselect.prepare.steps import BadEntry, Block, LibrarySize, Log1p, Step, UnitRows, place_of, stored
from sketchselect.readers import open_matrix
from sketchselect.summaries import RowSample

CANDIDATES: tuple[tuple[Step, ...], ...] = (
    (UnitRows(),),
    (TfIdf(sublinear=True), UnitRows()),
    (LibrarySize(), Log1p(), UnitRows()),
    (PearsonResiduals(), UnitRows()),
)
"""Preparations that are compared where the user names none: of words, of cells, and unit length alone."""
DENSE_NBYTES = 1 << 31  # Of all rows as float64, up to which a preparation that makes sparse rows dense is compared
MOST_COUNTS = 2.0**53  # Beyond, whole numbers are not exact
COUNT_NBYTES = 20 * 8  # Of a sampled count, in arrays of places, halves, sums and logarithms
STARTS = 8  # Of k-means on the prepared rows of the sample
ITERATIONS, TOL = 100, 1e-4  # Of each start, at most, and the least fall of the cost
SPARE_DIRECTIONS = 8
SHARES = np.array([0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.0])
"""Shares of the composition of all rows in that of a cluster, of which one is taken; 1 means no clusters."""
CERTAIN = 2.0  # Standard errors by which the best preparation is above the next where the sentence says so


@dataclass(frozen=True)
class PreparationScore:
    """How well the clusters of one preparation predict counts that were set aside.

    Parameters
    ----------
    steps : tuple of str
        The prepare steps.
    gain : float
        Mean over the rows of the log-likelihood per count set aside, above that with a single cluster, in nats.
    error : float
        Standard error of the difference between this gain and the largest one; 0 for that.
    makes_dense : bool
        Whether sparse rows become dense.

    Examples
    --------
    >>> PreparationScore(("tf-idf", "l2"), 0.25, 0.0).name
    'tf-idf, l2'
    """

    steps: tuple[str, ...]
    gain: float
    error: float
    makes_dense: bool = False

    @property
    def name(self) -> str:
        """The steps in one string."""
        return ", ".join(self.steps) or "no step"


@dataclass(frozen=True)
class Preparations(Tabular):
    """Preparations of counts, compared.

    Parameters
    ----------
    scores : tuple of PreparationScore
        In the order in which they were given.
    n_clusters, n_rows, n_sampled : int
        Clusters, rows of all data, and rows that were clustered: sampled ones with two counts or more.
    shows_no_clusters : bool
        Whether the largest gain is within two of its standard errors of 0.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> topics = rng.dirichlet(np.full(60, 0.1), 4)
    >>> X = np.stack([rng.multinomial(rng.integers(20, 400), topics[i % 4]) for i in range(400)])
    >>> compared = compare_preparations(X, 4)
    >>> len(compared.scores), compared.best.gain > 0
    (4, True)
    """

    scores: tuple[PreparationScore, ...]
    n_clusters: int
    n_rows: int
    n_sampled: int
    shows_no_clusters: bool = False

    @property
    def best(self) -> PreparationScore:
        """The preparation of largest gain; if that makes sparse rows dense, the best other within two standard errors.

        Of equal ones it is the first.
        """
        largest = self._largest
        if largest.makes_dense:
            near = [s for s in self.scores if not s.makes_dense and largest.gain - s.gain < CERTAIN * s.error]
            return max(near, key=lambda score: score.gain, default=largest)
        return largest

    @property
    def _largest(self) -> PreparationScore:
        return max(self.scores, key=lambda score: score.gain)

    def sentence(self) -> str:
        """Return in words which preparation is best, by how much, and how that was measured."""
        best, largest = self.best, self._largest
        others = [score for score in self.scores if score is not best]
        rows = counted(self.n_sampled, "sampled row") if self.n_sampled < self.n_rows else "all rows"
        compared = f" ({'; '.join(f'{score.name}: {score.gain:.3f}' for score in others)})" if others else ""
        close = ""
        if best is not largest:
            close = f" The gain of {largest.name} is larger by less than two standard errors, and it makes rows dense."
        elif near := [s.name for s in others if largest.gain - s.gain <= CERTAIN * s.error]:
            close = f" The difference from {' and from '.join(near)} is within two standard errors."
        made = f"{counted(self.n_clusters, 'cluster')} of {rows}, made from half of every count,"
        verb = "raises" if self.n_clusters == 1 else "raise"
        return (
            f"Of {counted(len(self.scores), 'preparation')}, {best.name} is taken: {made} {verb} the "
            f"log-likelihood of the other half by {best.gain:.3f} per count{compared}.{close}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain values."""
        return {
            "sentence": self.sentence(),
            "steps": list(self.best.steps),
            "n_clusters": self.n_clusters,
            "n_rows": self.n_rows,
            "n_sampled": self.n_sampled,
            "shows_no_clusters": self.shows_no_clusters,
            "scores": [{"steps": list(s.steps), "gain": s.gain, "error": s.error} for s in self.scores],
        }

    def __repr__(self) -> str:
        return f"<Preparations: {self.sentence()}>"

    def _table(self) -> tuple[str, list[list[str]]]:
        rows = [[s.name, f"{s.gain:.4f}", f"{s.error:.4f}" if s.error else ""] for s in self.scores]
        header = ["preparation", "gain (nats a count)", "standard error of the difference from the best"]
        return self.sentence(), [header, *rows]


def compare_preparations(
    source: Any,
    n_clusters: int,
    *,
    candidates: Sequence[Sequence[Any]] | None = None,
    sample_rows: int | None = None,
    sample_weight: Any = None,
    random_state: int = 0,
    client: Any = None,
    progress: Any = False,
) -> Preparations:
    """Return how well clusters of differently prepared counts predict counts that were set aside.

    Inertia cannot be compared between preparations. Counts can be divided: of each count x of a sample of the rows a
    binomial number, of x tosses of a fair coin, goes into one half and the rest into the other. For Poisson counts the
    halves are independent. Rows are prepared and clustered by k-means from the first half; the second half of each row
    is predicted by the composition of its cluster in the first half, without the row itself, mixed with that of all
    rows. A preparation that lets a few long rows, or their lengths, decide the clusters predicts badly.

    Parameters
    ----------
    source : whatever `open_matrix` takes
        Rows of whole numbers of at least 0, shape (n_rows, n_features); one pass is made.
    n_clusters : int
        k.
    candidates : sequence of lists of prepare steps, optional
        Preparations; unit rows, tf-idf, library size with logarithms, and Pearson residuals by default, each with rows
        of unit length. Of these, what makes sparse rows dense is left out beyond 2 GiB.
    sample_rows : int, optional
        Rows of the sample; ``max(2000, 20 n_clusters)``, fewer where they are wide, by default.
    sample_weight, client, progress : optional
        As in `sketchselect.summarize`.
    random_state : int
        Seed.

    Returns
    -------
    Preparations
        With `best`, whose `steps` are what `prepare` takes, and `sentence`.

    Raises
    ------
    BadBlock
        If a value is negative, not a whole number, or 2^53 and more; names row and column.
    BadParameter
        For parameters out of range, or fewer rows with counts than clusters.

    Notes
    -----
    Cost: one pass; then for each preparation 8 starts of k-means on the k + 8 top directions of the sample.
    Source: Neufeld et al. 2024, Data thinning for convolution-closed distributions (the halves).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> topics = rng.dirichlet(np.full(60, 0.1), 4)
    >>> X = np.stack([rng.multinomial(rng.integers(20, 400), topics[i % 4]) for i in range(400)])
    >>> compare_preparations(X, 4, candidates=[[], ["l2"]]).best.steps
    ('l2',)
    """
    rows = open_source(source, None, sample_weight, ())
    with open_engine(client, rows.matrix, rows.weight) as engine:
        options = PassOptions(engine, progress=make_progress(progress))
        return preparations_of_source(
            rows, n_clusters, options, candidates=candidates, sample_rows=sample_rows, random_state=random_state
        )


def preparations_of_source(
    source: Source,
    n_clusters: int,
    options: PassOptions,
    *,
    candidates: Sequence[Sequence[Any]] | None = None,
    sample_rows: int | None = None,
    random_state: int = 0,
) -> Preparations:
    """Return `compare_preparations` of a source without steps."""
    k, seed = require_positive("n_clusters", n_clusters), require_seed(random_state, "random_state")
    if isinstance(candidates, str) or any(isinstance(candidate, str) for candidate in candidates or ()):
        raise BadParameter(f"candidates must be a list of lists of prepare steps, got {candidates!r:.60}")
    chosen = default_candidates(source) if candidates is None else tuple(map(steps.resolve, candidates))
    if not chosen:
        raise BadParameter("candidates: none was given; leave it out for those of counts")
    size = sample_size(k, source.n_columns) if sample_rows is None else require_positive("sample_rows", sample_rows)
    sampling = RowSample(size, derive_seed(seed, "preparations", "sample"))
    counts = replace(source, prepare=(OnlyCounts(),))
    sample = summarize_source(counts, sampling, options, stage="preparations: sample").value
    assert isinstance(sample, RowSample)
    return compared_on(sample, k, chosen, seed)


@dataclass(frozen=True, eq=False)
class OnlyCounts(Step):
    """No change, and an error at the first value that is not a count: negative, not whole, or of 2^53 and more."""

    name: ClassVar[str] = "only-counts"
    acts_on: ClassVar[Literal["rows", "columns"]] = "rows"

    def apply(self, block: Block) -> Block:
        """Return the block."""
        values = stored(block)
        wrong = (values < 0) | (values != np.rint(values)) | (values >= MOST_COUNTS)
        if wrong.any():
            first = int(wrong.argmax())
            problem = f"{float(values.flat[first]):g} is not a count, and only preparations of counts can be compared; "
            raise BadEntry(*place_of(block, first), f"{problem}correct it, or choose the prepare steps yourself")
        return block


def default_candidates(source: Source) -> tuple[tuple[Step, ...], ...]:
    """Return `CANDIDATES`, without those that would make more sparse rows dense than `DENSE_NBYTES`."""
    if not source.matrix.is_sparse or 8 * source.n_rows * source.n_columns <= DENSE_NBYTES:
        return CANDIDATES
    return tuple(c for c in CANDIDATES if all(step.keeps_sparsity for step in c))


def costliest(source: Source) -> tuple[Step, ...]:
    """Return the one of `default_candidates` that takes the most memory and passes."""

    def cost(candidate: tuple[Step, ...]) -> tuple[int, int]:
        return sum(not step.keeps_sparsity for step in candidate), sum(not step.is_fitted for step in candidate)

    return max(default_candidates(source), key=cost)


def comparing_nbytes(source: Source, n_clusters: int) -> int:
    """Return about the most bytes that the comparison of `default_candidates` takes, besides the pass."""
    matrix, n_columns = source.matrix, source.n_columns
    n_rows = min(sample_size(n_clusters, n_columns), source.n_rows)
    counts = n_rows * n_columns
    if matrix.is_sparse:
        # Of rows of twice the mean length; a value is stored with its column.
        counts = min(counts, 2 * n_rows * matrix.stored_nbytes(0, source.n_rows) // source.n_rows // 8)
    is_dense = any(not step.keeps_sparsity for candidate in default_candidates(source) for step in candidate)
    return COUNT_NBYTES * counts + (3 * 8 * n_rows * n_columns if is_dense else 0)


def compared_on(sample: RowSample, n_clusters: int, candidates: Sequence[tuple[Step, ...]], seed: int) -> Preparations:
    """Return the comparison on a sample of raw rows."""
    halves = Halves.of(sample, derive_seed(seed, "preparations", "halves"))
    n_rows = halves.first.shape[0]
    if n_rows < n_clusters:
        raise BadParameter(
            f"n_clusters: {n_clusters} clusters, but {counted(n_rows, 'sampled row')} with two counts or more"
        )
    gains = []
    for number, candidate in enumerate(candidates):
        labels = halves.clusters(candidate, n_clusters, derive_seed(seed, "preparations", number))
        gains.append(halves.gains(labels))
    shares = halves.weights / halves.weights.sum()
    means = [float(shares @ gain) for gain in gains]
    best = int(np.argmax(means))

    def standard_error(values: Floats) -> float:
        return float(np.sqrt(shares**2 @ (values - shares @ values) ** 2))

    errors = [standard_error(gain - gains[best]) for gain in gains]
    is_in_doubt = means[best] <= CERTAIN * standard_error(gains[best])
    if is_in_doubt:
        warn(no_clusters(n_clusters))
    scores = tuple(
        PreparationScore(
            tuple(step.description for step in candidate),
            mean,
            error,
            sample.is_sparse and not all(step.keeps_sparsity for step in candidate),
        )
        for candidate, mean, error in zip(candidates, means, errors, strict=True)
    )
    return Preparations(scores, n_clusters, sample.n_rows, n_rows, is_in_doubt)


def no_clusters(n_clusters: int) -> str:
    """Return the warning of a comparison without a gain."""
    verb = "predicts" if n_clusters == 1 else "predict"
    return (
        f"{counted(n_clusters, 'cluster')} {verb} counts that were set aside no better than the composition of all "
        "rows, whatever the preparation: the counts show no clusters; try another number of clusters"
    )


@dataclass(frozen=True, eq=False)
class Halves:
    """Sampled rows of counts, each count divided in two; rows with nothing in one of the halves are left out.

    `first` and `second` are CSR with the same places, of which some hold zeros; `weights` those of the rows.
    """

    first: csr_array
    second: csr_array
    weights: Floats

    @classmethod
    def of(cls, sample: RowSample, seed: int) -> Halves:
        """Return the halves of a sample of counts, the same for any partitions of the source."""
        if sample.n_kept == 0:
            raise EmptyInput(
                "no rows with a positive weight: all sample weights are zero (or below 2.2e-308), or the input is empty"
            )
        counts = csr_array(sample.rows)
        row_of = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        places = (sample.indices[row_of] * counts.shape[1] + counts.indices).astype(np.uint64)
        heads = tossed(counts.data, seed, places)
        filled = [np.bincount(row_of, values, counts.shape[0]) > 0 for values in (heads, counts.data - heads)]
        rows = np.flatnonzero(filled[0] & filled[1])
        if rows.size == 0:
            raise EmptyInput("no row has two counts or more, and only preparations of counts can be compared")
        halves = (
            csr_array((v, counts.indices, counts.indptr), shape=counts.shape) for v in (heads, counts.data - heads)
        )
        first, second = (half[rows] for half in halves)
        return cls(first, second, sample.weights[rows])

    def clusters(self, candidate: tuple[Step, ...], n_clusters: int, seed: int) -> Labels:
        """Return clusters of the first half, prepared: the best of some starts along its top directions."""
        counts = self.first.copy()
        counts.eliminate_zeros()
        source = Source(open_matrix(counts), None, None, candidate)
        fitted = fit_steps(source, PassOptions(LocalEngine(kind="serial"))).steps
        rows = steps.apply_steps(fitted, counts)
        if not is_csr(rows):
            rows -= self.weights @ rows / self.weights.sum()
        points = WeightedRows(rows, self.weights)
        n_directions = min(n_clusters + SPARE_DIRECTIONS, *rows.shape)
        draws = gaussians(derive_seed(seed, "directions"), (rows.shape[1], n_directions))
        images = rows @ (rows.T @ (rows @ draws))
        along = points.along(np.linalg.qr(images)[0])
        seeds = [derive_seed(seed, start) for start in range(STARTS)]
        runs = [along.clusters(start, ITERATIONS, TOL) for start in along.starts(n_clusters, seeds)]
        least = min(cost for cost, _, _ in runs)
        return next(labels for cost, _, labels in runs if cost <= least * (1 + COST_TIE))

    def gains(self, labels: Labels) -> Floats:
        """Return the log-likelihood per count of the second half of each row, above that with a single cluster.

        The composition of a cluster is that of the first half of its other rows, mixed with a share of that of all
        other rows; of `SHARES` the one that is best for the odd rows is taken for the even ones, and the reverse.
        """
        return self._likelihood(labels) - self._likelihood(np.zeros_like(labels))

    def _likelihood(self, labels: Labels) -> Floats:
        n_rows, n_columns = self.first.shape
        row_of = np.repeat(np.arange(n_rows), np.diff(self.first.indptr))
        columns, own, of = self.first.indices, self.first.data * self.weights[row_of], labels[row_of].astype(np.int64)
        lengths = np.bincount(row_of, own, n_rows)[row_of]
        # Half a count more in every column: none of the second half is impossible.
        more = 0.5 * float(self.weights.mean())
        column_sums = np.bincount(columns, own, n_columns)
        of_all = (column_sums[columns] - own + more) / (column_sums.sum() - lengths + more * n_columns)
        # Only pairs of cluster and column that occur: all of them may be too many.
        _, pair = np.unique(of * n_columns + columns, return_inverse=True)
        sums, totals = np.maximum(np.bincount(pair, own)[pair] - own, 0.0), np.bincount(of, own)[of] - lengths
        of_cluster = np.divide(sums, totals, out=np.zeros_like(sums), where=totals > 0)
        second = self.second.data
        sizes = np.bincount(row_of, second, n_rows)
        values = np.stack(
            [
                np.bincount(row_of, second * np.log((1.0 - share) * of_cluster / of_all + share), n_rows) / sizes
                for share in SHARES
            ]
        )
        is_odd = np.arange(n_rows) % 2 == 1
        best = {odd: int((values[:, is_odd == odd] @ self.weights[is_odd == odd]).argmax()) for odd in (False, True)}
        gains: Floats = np.where(is_odd, values[best[False]], values[best[True]])
        return gains


def tossed(counts: Floats, seed: int, places: Array) -> Floats:
    """Return the number of heads in as many tosses of a fair coin as each count says, hashed from seed and place.

    Above a million, rounded from a normal number, which no test can tell from it.

    Examples
    --------
    >>> heads = tossed(np.full(1000, 10.0), 0, np.arange(1000, dtype=np.uint64))
    >>> bool(4.7 < heads.mean() < 5.3), bool(2.0 < heads.var() < 3.0)
    (True, True)
    """
    out = np.empty(counts.shape)
    in_word, is_huge = counts <= 64, counts > 1e6
    offset = np.uint64((seed * 0xD1342543DE82EF95) & 0xFFFFFFFFFFFFFFFF)
    unused = (np.uint64(64) - counts[in_word].astype(np.uint64)) % np.uint64(64)
    words = splitmix64(places[in_word] + offset) >> unused
    words[counts[in_word] == 0] = 0
    out[in_word] = np.bitwise_count(words)
    between = ~in_word & ~is_huge
    if between.any():
        out[between] = scipy.stats.binom.ppf(uniforms(seed, places[between]), counts[between], 0.5)
    if is_huge.any():
        huge = counts[is_huge]
        heads = np.rint(0.5 * huge + 0.5 * np.sqrt(huge) * scipy.special.ndtri(uniforms(seed, places[is_huge])))
        out[is_huge] = np.clip(heads, 0.0, huge)
    return out
