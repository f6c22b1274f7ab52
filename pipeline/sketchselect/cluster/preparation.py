"""Comparison of preparations of counts, by how well clusters made from half of every count predict the other half."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.stats import binom

from sketchselect import prepare as steps
from sketchselect._progress import make_progress
from sketchselect._text import counted, html_table, text_table
from sketchselect.errors import BadBlock, BadParameter, EmptyInput, warn
from sketchselect.execution.api import open_source
from sketchselect.execution.client import open_engine
from sketchselect.execution.engine import LocalEngine, PassOptions
from sketchselect.execution.source import Source
from sketchselect.execution.summarize import fit_steps, summarize_source
from sketchselect.linalg.hashing import derive_seed, gaussians, splitmix64, uniforms
from sketchselect.linalg.kmeans.sample import COST_TIE, WeightedRows, sample_size
from sketchselect.linalg.validation import Array, Floats, Labels, require_positive, require_seed
from sketchselect.prepare.fitted import PearsonResiduals, TfIdf
from sketchselect.prepare.steps import LibrarySize, Log1p, Step, UnitRows
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
STARTS = 8  # Of k-means on the prepared rows of the sample
ITERATIONS, TOL = 100, 1e-4  # Of each start, at most, and the least fall of the cost
SPARE_DIRECTIONS = 8
SHARES = np.array([0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.0])
"""Shares of the composition of all rows in that of a cluster: the best one is taken, 1 means no clusters."""
CERTAIN = 2.0  # Standard errors by which the best preparation is above the next where the sentence says so


@dataclass(frozen=True)
class PreparationScore:
    """How well the clusters of one preparation predict counts that were set aside.

    Parameters
    ----------
    steps : tuple of str
        The prepare steps.
    gain : float
        Mean over the rows of the log-likelihood for each count set aside, above that of one cluster of all rows, in
        nats.
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
class Preparations:
    """Preparations of counts, compared.

    Parameters
    ----------
    scores : tuple of PreparationScore
        In the order in which they were given.
    n_clusters, n_rows, n_sampled : int
        Clusters, rows of all data, and rows that were clustered.

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
        rows = f"{self.n_sampled} of {counted(self.n_rows, 'row')}" if self.n_sampled < self.n_rows else "all rows"
        compared = f" ({'; '.join(f'{score.name}: {score.gain:.3f}' for score in others)})" if others else ""
        close = ""
        if best is not largest:
            close = f" The gain of {largest.name} is larger by less than two standard errors, and it makes rows dense."
        elif near := [s.name for s in others if largest.gain - s.gain < CERTAIN * s.error]:
            close = f" The difference from {' and from '.join(near)} is less than two standard errors."
        made = counted(self.n_clusters, "cluster")
        return (
            f"Of {counted(len(self.scores), 'preparation')}, {best.name} is taken: {made} of {rows}, made from half of "
            f"every count, raise the log-likelihood of the other half by {best.gain:.3f} per count{compared}.{close}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain values."""
        return {
            "sentence": self.sentence(),
            "steps": list(self.best.steps),
            "n_clusters": self.n_clusters,
            "n_rows": self.n_rows,
            "n_sampled": self.n_sampled,
            "scores": [{"steps": list(s.steps), "gain": s.gain, "error": s.error} for s in self.scores],
        }

    def __repr__(self) -> str:
        return f"<Preparations: {self.sentence()}>"

    def __str__(self) -> str:
        header, *rows = self._table()
        return text_table(self.sentence(), rows, header)

    def _repr_html_(self) -> str:
        header, *rows = self._table()
        return html_table(self.sentence(), rows, header)

    def _table(self) -> list[list[str]]:
        rows = [[s.name, f"{s.gain:.4f}", f"{s.error:.4f}" if s.error else ""] for s in self.scores]
        return [["preparation", "gain (nats a count)", "standard error of the difference from the best"], *rows]


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
        If a value is negative or not a whole number; names row and column.
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
    chosen = default_candidates(source) if candidates is None else tuple(map(steps.resolve, candidates))
    if not chosen:
        raise BadParameter("candidates: none was given; leave it out for those of counts")
    size = sample_size(k, source.n_columns) if sample_rows is None else require_positive("sample_rows", sample_rows)
    sampling = RowSample(size, derive_seed(seed, "preparations", "sample"))
    sample = summarize_source(source, sampling, options, stage="preparations: sample").value
    assert isinstance(sample, RowSample)
    return compared_on(sample, k, chosen, seed, source.matrix.feature_names)


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


def compared_on(
    sample: RowSample,
    n_clusters: int,
    candidates: Sequence[tuple[Step, ...]],
    seed: int,
    names: Sequence[str] | None = None,
) -> Preparations:
    """Return the comparison on a sample of raw rows."""
    halves = Halves.of(sample, derive_seed(seed, "preparations", "halves"), names)
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
    if means[best] <= CERTAIN * standard_error(gains[best]):
        warn(
            f"{counted(n_clusters, 'cluster')} of no preparation predict counts that were set aside clearly better "
            "than the composition of all rows: the counts show no clusters; try another number of clusters"
        )
    scores = tuple(
        PreparationScore(
            tuple(step.description for step in candidate),
            mean,
            error,
            sample.is_sparse and not all(step.keeps_sparsity for step in candidate),
        )
        for candidate, mean, error in zip(candidates, means, errors, strict=True)
    )
    return Preparations(scores, n_clusters, sample.n_rows, n_rows)


@dataclass(frozen=True, eq=False)
class Halves:
    """Sampled rows of counts, each count divided in two; rows with nothing in one of the halves are left out.

    `first` and `second` are CSR with the same places, of which some hold zeros; `weights` those of the rows.
    """

    first: csr_array
    second: csr_array
    weights: Floats

    @classmethod
    def of(cls, sample: RowSample, seed: int, names: Sequence[str] | None = None) -> Halves:
        """Return the halves of a sample, the same for any partitions of the source."""
        counts = csr_array(sample.rows)
        row_of = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        wrong = (counts.data < 0) | (counts.data != np.rint(counts.data))
        if wrong.any():
            at = int(wrong.argmax())
            column = int(counts.indices[at])
            name = f"{column}" if names is None else f"{names[column]!r:.80}"
            raise BadBlock(
                f"row {int(sample.indices[row_of[at]])}, column {name}: {counts.data[at]:g} is not a count, and only "
                "preparations of counts can be compared; name the prepare steps"
            )
        places = sample.indices[row_of].astype(np.uint64) * np.uint64(counts.shape[1]) + counts.indices.astype(
            np.uint64
        )
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
        matrix = open_matrix(counts)
        source = Source(matrix, None, None, candidate)
        fitted = fit_steps(source, PassOptions(LocalEngine(kind="serial"))).steps
        rows = steps.apply_steps(fitted, counts)
        points = WeightedRows(rows, self.weights).centered()[0]
        draws = gaussians(
            derive_seed(seed, "directions"), (rows.shape[1], min(n_clusters + SPARE_DIRECTIONS, *rows.shape))
        )
        near = points.rows @ (points.rows.T @ (points.rows @ draws))
        short = points.along(np.linalg.qr(near)[0])
        seeds = [derive_seed(seed, start) for start in range(STARTS)]
        runs = [short.clusters(start, ITERATIONS, TOL) for start in short.starts(n_clusters, seeds)]
        least = min(cost for cost, _, _ in runs)
        return next(labels for cost, _, labels in runs if cost <= least * (1 + COST_TIE))

    def gains(self, labels: Labels) -> Floats:
        """Return the log-likelihood a count of the second half of each row, above that of one cluster of all rows.

        The composition of a cluster is that of the first half of its other rows, mixed with a share, the best of
        `SHARES`, of that of all rows.
        """
        n_rows, n_columns = self.first.shape
        row_of = np.repeat(np.arange(n_rows), np.diff(self.first.indptr))
        own, of = self.first.data * self.weights[row_of], labels[row_of]
        sums = np.bincount(of * n_columns + self.first.indices, own, (int(labels.max()) + 1) * n_columns)
        totals, lengths = np.bincount(of, own), np.bincount(row_of, own, n_rows)
        everything = np.bincount(self.first.indices, own, n_columns)
        # Half a count more everywhere: no column of the second half is impossible.
        unit = 0.5 * float(self.weights.mean())
        common = (everything + unit) / (everything.sum() + unit * n_columns)
        others = totals[of] - lengths[row_of]
        alone = np.maximum(sums[of * n_columns + self.first.indices] - own, 0.0)
        shares = np.divide(alone, others, out=np.zeros_like(alone), where=others > 0)
        ratios = shares / common[self.first.indices]
        second = self.second.data
        sizes = np.bincount(row_of, second, n_rows)
        best, most = np.zeros(n_rows), 0.0
        for share in SHARES:
            gain = np.bincount(row_of, second * np.log((1.0 - share) * ratios + share), n_rows) / sizes
            if (value := float(self.weights @ gain)) > most:
                best, most = gain, value
        return best


def tossed(counts: Floats, seed: int, places: Array) -> Floats:
    """Return the number of heads in as many tosses of a fair coin as each count says, hashed from seed and place.

    Examples
    --------
    >>> heads = tossed(np.full(1000, 10.0), 0, np.arange(1000, dtype=np.uint64))
    >>> bool(4.7 < heads.mean() < 5.3), bool(2.0 < heads.var() < 3.0)
    (True, True)
    """
    few = counts <= 64
    out = np.empty(counts.shape)
    offset = np.uint64((seed * 0xD1342543DE82EF95) & 0xFFFFFFFFFFFFFFFF)
    unused = (np.uint64(64) - counts[few].astype(np.uint64)) % np.uint64(64)
    words = splitmix64(places[few] + offset) >> unused
    words[counts[few] == 0] = 0
    out[few] = np.bitwise_count(words)
    if not few.all():
        out[~few] = binom.ppf(uniforms(seed, places[~few]), counts[~few], 0.5)
    return out
