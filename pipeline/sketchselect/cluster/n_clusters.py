"""Comparison of a range of numbers of clusters: objective, proven gap, stability, and indices of separation."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np

from sketchselect import prepare as prepare_steps
from sketchselect._progress import make_progress
from sketchselect._text import Tabular, counted, number
from sketchselect.cluster.certificates.spectral import spectral_bound
from sketchselect.errors import BadParameter, Incompatible
from sketchselect.execution.api import open_source
from sketchselect.execution.checkpoints import as_checkpoint
from sketchselect.execution.client import open_engine
from sketchselect.execution.engine import PassOptions, reduce_blocks
from sketchselect.execution.source import Source
from sketchselect.execution.summarize import fitted_source, summarize_source
from sketchselect.execution.tasks import Reduction
from sketchselect.linalg.agreement import weighted_adjusted_rand
from sketchselect.linalg.hashing import approximate_directions, derive_seed, gaussians
from sketchselect.linalg.kmeans.sample import COST_TIE, LEAST_ROWS, ROWS_PER_CLUSTER, WeightedRows
from sketchselect.linalg.kmeans.separation import PIECE_NBYTES, Partition, distance_sums, sums_of_rows
from sketchselect.linalg.spectrum import Spectrum
from sketchselect.linalg.validation import MOST_TIMES, Floats, Labels, require_positive, require_seed
from sketchselect.plots import ClusterRangeDisplay
from sketchselect.summaries import SPECTRAL_KINDS, Bundle, CentroidSums, FrequentDirections, RowSample, Summary

N_SEEDS = 10
ITERATIONS = 100
STABLE = 0.8  # Least mean ARI between seeds of a number of clusters that is recommended
ELBOW = 1.5  # Least ratio of the fall of the objective before an elbow to that behind it
SLIGHT = 1.1  # The same of an elbow that is mentioned where no number is recommended; below it the curve is straight
FEW = 0.01  # Share of the rows below which the smallest cluster of a recommended number is mentioned
VALLEY = 0.5  # Most rows midway between neighbouring clusters, relative to the rows at their means
NEAR = 0.25  # Half the width that rows are counted in, as a share of half the distance of two means
SPARE_DIRECTIONS = 8  # Draws beyond the number of directions, without which the last ones are inaccurate
INDICES = {
    "calinski_harabasz": ("Calinski-Harabasz", max),
    "davies_bouldin": ("Davies-Bouldin", min),
    "silhouette": ("silhouette", max),
}
"""Indices of separation by the attribute of `ClusterCount`: the name, and which value is best."""


@dataclass(frozen=True)
class ClusterCount:
    """Inertia, bound and stability of one number of clusters.

    Parameters
    ----------
    n_clusters : int
        k.
    coreset_objective : float
        Estimate of the objective of the best centres found, from the coreset they were fitted to (so it is too low).
    objective : float or None
        Exact objective of the partition of all rows by these centres; None where only summaries were given.
    lower_bound : float or None
        No clustering of all rows into k clusters has a smaller objective; None without a spectrum.
    stability : float
        Mean adjusted Rand index between the clusterings of the coreset from different seeds; a pair of rows counts by
        the product of their weights, whose scale does not matter.
    calinski_harabasz : float or None
        (B / (k - 1)) / (W / (n - k)), with the scatter B of the means and W within the clusters, weighted, and n rows;
        None below two clusters, or without rows to spare. This and the next two are exact, for the partition of all
        rows, or of the coreset where only summaries were given.
    davies_bouldin : float or None
        Mean over the clusters of the largest (s_a + s_b) / ||mean_a - mean_b||, s the mean distance of the rows of a
        cluster to its mean; None below two clusters.
    silhouette : float or None
        Mean over the rows of (b - a) / max(a, b): a is the mean squared distance to the other rows of the cluster, b
        that to the rows of the next one; 0 for a row alone. None below two clusters.
    valley : float or None
        Rows of the coreset midway between the means of a cluster and its neighbour, divided by the geometric mean of
        those at the two means, in intervals of equal width along the line between them: the median over the clusters
        by weight. A log-concave density, such as a normal or uniform one that was merely cut, has none below 1.
    smallest_share : float or None
        Share of the rows in the smallest cluster, by weight: of all rows, or of the coreset where only summaries were
        given.

    Examples
    --------
    >>> import sketchselect as sks
    >>> from sklearn.datasets import make_blobs
    >>> X, _ = make_blobs(200, 6, centers=3, random_state=0)
    >>> count = sks.cluster_range(X, [3]).counts[0]
    >>> count.n_clusters, round(count.stability, 2), count.lower_bound <= count.objective
    (3, 1.0, True)
    """

    n_clusters: int
    coreset_objective: float
    objective: float | None
    lower_bound: float | None
    stability: float
    calinski_harabasz: float | None = None
    davies_bouldin: float | None = None
    silhouette: float | None = None
    valley: float | None = None
    smallest_share: float | None = None

    @property
    def best_objective(self) -> float:
        """The exact objective where it is known, else the estimate."""
        return self.coreset_objective if self.objective is None else self.objective

    @property
    def factor(self) -> float | None:
        """Objective / lower bound, at least 1: the certified gap; None where one of them is not known."""
        if self.objective is None or self.lower_bound is None:
            return None
        if self.objective == 0:
            return 1.0
        return max(self.objective / self.lower_bound, 1.0) if self.lower_bound > 0 else float("inf")


@dataclass(frozen=True)
class ClusterRange(Tabular):
    """A range of numbers of clusters.

    Parameters
    ----------
    counts : tuple of ClusterCount
        By ascending number of clusters.
    scatter : float
        Sum of squared distances to the mean: the objective of one cluster.
    n_rows, n_sampled, n_seeds : int
        Rows of all data and of the coreset, and seeds tried for each number.

    Examples
    --------
    >>> import sketchselect as sks
    >>> from sklearn.datasets import make_blobs
    >>> X, _ = make_blobs(200, 6, centers=3, random_state=0)
    >>> counts = sks.cluster_range(X, range(2, 6))
    >>> counts.recommended
    3
    >>> print(counts)  # doctest: +ELLIPSIS
    3 clusters: the sharpest elbow ...
    clusters   inertia  inertia / best, at most (spectral)  stability (mean ARI)  Calinski-Harabasz  Davies-Bouldin ...
    ...
    """

    counts: tuple[ClusterCount, ...]
    scatter: float
    n_rows: int
    n_sampled: int
    n_seeds: int

    def plot(self, ax: Any = None) -> Any:
        """Draw objective, bound, stability and silhouette on `ax`, two axes (new ones by default); return them.

        One axes is for objective and bound alone.
        """
        return ClusterRangeDisplay.from_range(self, ax=ax).ax_

    def __repr__(self) -> str:
        return f"<ClusterRange: {self.sentence()}>"

    def _table(self) -> tuple[str, list[list[str]]]:
        rows = [
            [
                str(c.n_clusters),
                number(c.best_objective, 6),
                "" if c.factor is None else number(c.factor),
                f"{c.stability:.3f}",
                *("" if getattr(c, name) is None else number(getattr(c, name)) for name in INDICES),
            ]
            for c in self.counts
        ]
        header = ["clusters", "inertia", "inertia / best, at most (spectral)", "stability (mean ARI)"]
        return self.sentence(), [[*header, *(label for label, _ in INDICES.values())], *rows]

    @property
    def elbows(self) -> dict[int, float]:
        """How much faster log(objective) falls against log(k) before each k than after it; undefined for the last k."""
        ks = [1, *(count.n_clusters for count in self.counts if count.n_clusters > 1)]
        objectives = [self.scatter, *(count.best_objective for count in self.counts if count.n_clusters > 1)]
        if min(objectives) <= 0:
            return {}
        slopes = np.maximum(-np.diff(np.log(objectives)) / np.diff(np.log(ks)), 1e-3)
        return {k: float(a / b) for k, a, b in zip(ks[1:], slopes, slopes[1:], strict=False)}

    @property
    def best_by_index(self) -> dict[str, int]:
        """The best k by each of `calinski_harabasz`, `davies_bouldin` and `silhouette`; the least of equal ones."""
        best = {}
        for name, (_, choose) in INDICES.items():
            values = {c.n_clusters: getattr(c, name) for c in self.counts if getattr(c, name) is not None}
            if values:
                best[name] = choose(values, key=values.__getitem__)
        return best

    @property
    def recommended(self) -> int | None:
        """The k of the sharpest elbow, of at least 1.5, with stability of at least 0.8 and a valley of at most 0.5.

        None if there is none. If the objective reaches 0, the smallest k that reaches it.
        """
        for count in self.counts:
            if count.best_objective <= 0:
                return count.n_clusters
        separate = {
            count.n_clusters
            for count in self.counts
            if count.stability >= STABLE and (count.valley is None or count.valley <= VALLEY)
        }
        sharp = {k: ratio for k, ratio in self.elbows.items() if k in separate and ratio >= ELBOW}
        return max(sharp, key=lambda k: (sharp[k], -k)) if sharp else None

    def sentence(self) -> str:
        """Return the recommendation and its rule in words, and the best numbers by the indices."""
        first, last = self.counts[0].n_clusters, self.counts[-1].n_clusters
        k = self.recommended
        count = next((count for count in self.counts if count.n_clusters == k), None)
        if count is not None and count.best_objective <= 0:
            if k == 1:
                return "1 cluster leaves no distance at all: the rows are all equal."
            return f"{k} clusters leave no distance at all: the rows have that many distinct values."
        best = ", ".join(f"{INDICES[name][0]} {k_best}" for name, k_best in self.best_by_index.items())
        indices = f" Best by index: {best}." if best else ""
        if len(self.counts) == 1:
            return (
                f"One number of clusters, {first}, has none to be compared with: give several, such as range(2, 21)."
                f"{indices}"
            )
        gaps = last - first >= len(self.counts)
        compared = f"of the {len(self.counts)} compared" if gaps else f"from {first} to {last}"
        if k is None or count is None:
            return (
                f"No number of clusters {compared} stands out: none has all three of an elbow (the inertia "
                f"falls {ELBOW:g} times as fast before it as after it, on logarithmic scales), clusters that different "
                f"seeds agree on (mean ARI of at least {STABLE:g}), and few rows between them (at most {VALLEY:g} "
                f"times as many as at their means).{self._nearest()}{indices}"
            )
        share, smallest = count.smallest_share, ""
        # A handful of rows far from all others makes an elbow too.
        if share is not None and share < FEW:
            smallest = f" The smallest of the {k} clusters has {100 * share:.2g} % of the rows."
        between = "" if count.valley is None else f"; {count.valley:.2f} times as many rows between as at the means"
        return (
            f"{k} clusters: the sharpest elbow {compared} (the inertia falls {self.elbows[k]:.1f} times "
            f"as fast before it as after it, on logarithmic scales) among the numbers of separate clusters that "
            f"different seeds agree on (mean ARI {count.stability:.2f}{between}).{smallest}{indices}"
        )

    def _nearest(self) -> str:
        """Return which of the three the sharpest elbow has; an empty text where too few numbers are compared."""
        elbows = self.elbows
        if not elbows:
            return ""
        k = max(elbows, key=lambda k: (elbows[k], -k))
        if elbows[k] < SLIGHT:
            return " No number has an elbow."
        count = next(count for count in self.counts if count.n_clusters == k)
        between = "" if count.valley is None else f", {count.valley:.2f} times as many rows between"
        return f" The sharpest elbow is at {k}: {elbows[k]:.1f} times as fast, mean ARI {count.stability:.3f}{between}."


def cluster_range(
    source: Any,
    ks: Iterable[int] = range(2, 21),
    *,
    n_seeds: int = N_SEEDS,
    sample_rows: int | None = None,
    prepare: Any = None,
    sample_weight: Any = None,
    random_state: int = 0,
    client: Any = None,
    checkpoint: Any = None,
    progress: Any = False,
) -> ClusterRange:
    """Return inertia, certified gap, stability and indices of separation for each number of clusters.

    For every k and seed two k-means++ starts, one of them along the top k directions, are refined on one coreset; of
    the best one of each k the exact objective over all rows is computed, and the indices of Calinski and Harabasz, of
    Davies and Bouldin, and the silhouette of squared distances of that partition. No clustering has an objective below
    `lower_bound` (spectral, see `certify`).

    Parameters
    ----------
    source : whatever `open_matrix` takes, or a RowSample, mapping or Bundle with one
        Rows of shape (n_rows, n_features); four passes are made. Of summaries (a RowSample, and FrequentDirections or
        Moments for the bound) nothing is read, the exact objectives are not known, and indices are those of the sample.
    ks : iterable of int
        Numbers of clusters, each at least 1; of one alone nothing is recommended.
    n_seeds : int, default 10
        Starts for each k; at least 2.
    sample_rows : int, optional
        Rows of the coreset: ``max(2000, 20 max(ks))`` by default.
    prepare, sample_weight, client, checkpoint, progress : optional
        As in `sketchselect.summarize`.
    random_state : int
        Seed.

    Returns
    -------
    ClusterRange
        With `recommended` and `sentence`, which state their rule.

    Raises
    ------
    BadParameter
        For numbers out of range, or more clusters than rows.
    Incompatible
        If summaries are given without a RowSample.

    Notes
    -----
    Cost: four passes (a sketch, the coreset, the objectives of all k at once, the distances for Davies-Bouldin and
    silhouette of all k at once; 4 k d flops a row and k) and, for each k and seed, up to 200 Lloyd iterations on the
    coreset. Calinski-Harabasz takes no pass of its own.
    Source: Bachem, Lucic and Krause 2018 (coreset); Hubert and Arabie 1985 (ARI); Drineas et al. 2004 (bound);
    Calinski and Harabasz 1974; Davies and Bouldin 1979; Rousseeuw 1987, of squared distances as in Spark; Prekopa 1973
    (projections of log-concave densities are log-concave).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = 20.0 * np.eye(4)[rng.integers(4, size=400)] + rng.standard_normal((400, 4))
    >>> cluster_range(X, range(2, 8)).recommended
    4
    """
    if isinstance(source, (Summary, Mapping)):
        members: list[Any] = list(source.values()) if isinstance(source, Mapping) else [source]
        sample = next((m for m in members if isinstance(m, RowSample)), None)
        if sample is None:
            raise Incompatible(f"cluster_range needs a summary of kind {RowSample.kind}, or the rows themselves")
        spectrum = next((m for m in members if m.kind in SPECTRAL_KINDS), None)
        seed = require_seed(random_state, "cluster_range: random_state")
        numbers = _checked(ks, sample.n_kept, "the coreset")
        return _on_coreset(sample, spectrum, numbers, n_seeds, seed)[0]
    rows = open_source(source, None, sample_weight, prepare_steps.resolve(prepare or ()))
    numbers = _checked(ks, rows.n_rows, rows.matrix.address)
    folder, reporting = as_checkpoint(checkpoint), make_progress(progress)
    with open_engine(client, rows.matrix, rows.weight) as engine:
        return range_of_source(
            rows,
            numbers,
            PassOptions(engine, checkpoint=folder, progress=reporting),
            n_seeds=n_seeds,
            sample_rows=sample_rows,
            random_state=random_state,
        )


def range_of_source(
    source: Source,
    ks: Iterable[int],
    options: PassOptions,
    *,
    n_seeds: int = N_SEEDS,
    sample_rows: int | None = None,
    random_state: int = 0,
) -> ClusterRange:
    """Return `cluster_range` of a source, which may have steps that are not fitted."""
    ks = _checked(ks, source.n_rows, source.matrix.address)
    random_state = require_seed(random_state, "cluster_range: random_state")
    source = fitted_source(source, options)

    def read(description: Summary[Any], stage: str) -> Any:
        return summarize_source(source, description, options, stage=stage).value

    sketch_size = max(2, min(source.n_columns, max(8 * max(ks), 64)))
    sketch = read(FrequentDirections(sketch_size), "range of clusters: sketch")
    if sample_rows is None:
        sample_rows = max(LEAST_ROWS, ROWS_PER_CLUSTER * max(ks))
    size = require_positive("sample_rows", sample_rows)
    variance = sketch.centered_squared_norm / sketch.weight if sketch.weight > 0 else 0.0
    sample_seed = derive_seed(random_state, "range", "coreset")
    sampling = RowSample(size, sample_seed, sketch.mean, variance) if variance > 0 else RowSample(size, sample_seed)
    sample = read(sampling, "range of clusters: coreset")
    estimates, centers = _on_coreset(sample, sketch, ks, n_seeds, random_state)
    bundle = Bundle({f"k{k}": CentroidSums(centers=best) for k, best in centers.items()})
    bundle = read(bundle, "range of clusters: objectives")
    sums = [cast(CentroidSums, bundle[f"k{k}"]) for k in centers]
    partitions = list(map(Partition.of, sums))
    # The state: for each number of clusters k + 1 totals, and behind them the number of rows.
    ends = np.cumsum([len(partition.weights) + 1 for partition in partitions])
    reduction: Reduction[Floats] = Reduction(
        partial(distance_sums, partitions),
        operator.add,
        "range of clusters: distances",
        state_nbytes=8 * (int(ends[-1]) + 1),
        working_nbytes=sum(partition.nbytes for partition in partitions) + PIECE_NBYTES,
    )
    result = reduce_blocks(replace(source, takes_sparse=True), reduction, options)
    if options.on_statistics is not None:
        options.on_statistics(result.stats)
    *parts, n_rows = np.split(result.value, ends)
    counts = [
        replace(
            count,
            objective=exact.objective,
            smallest_share=partition.smallest_share,
            **partition.indices(totals, int(n_rows[0])),
        )
        for count, exact, partition, totals in zip(estimates.counts, sums, partitions, parts, strict=True)
    ]
    return replace(estimates, counts=tuple(counts))


def _on_coreset(
    sample: RowSample, spectrum: Spectrum | None, ks: Sequence[int], n_seeds: int, seed: int
) -> tuple[ClusterRange, dict[int, Floats]]:
    """Return the range by the coreset and the spectrum, and the best centres of each k."""
    require_positive("n_seeds", n_seeds, 2, MOST_TIMES)
    points = WeightedRows(sample.rows, sample.weights).dense()
    if max(ks) > sample.n_kept:
        raise BadParameter(
            f"cluster_range: {max(ks)} clusters, but the coreset has {sample.n_kept} rows; ask for fewer clusters or, "
            "if there are more rows, a larger sample"
        )
    centered = points.centered()[0]
    directions = _directions(centered, max(ks), derive_seed(seed, "range", "directions"))
    counts, centers = [], {}
    for k in ks:
        clusterings = _clusterings(points, centered.rows @ directions[:, :k], k, n_seeds, seed)
        labels = [points.assign(best) for _, best in clusterings]
        cost, centers[k] = _least(clusterings)
        stability = [weighted_adjusted_rand(a, b, points.weights) for i, a in enumerate(labels) for b in labels[:i]]
        bound = None if spectrum is None else spectral_bound(spectrum, k)[0]
        sums = CentroidSums(centers=centers[k]).from_block(points.rows, sample_weight=points.weights)
        partition = Partition.of(sums)
        indices = partition.indices(sums_of_rows([partition], points.rows, points.weights)[:-1], sample.n_rows)
        valley = _valley(points, points.assign(partition.centers), partition)
        figures = {**indices, "valley": valley, "smallest_share": partition.smallest_share}
        counts.append(ClusterCount(k, cost, None, bound, float(np.mean(stability)), **figures))
    if spectrum is None:
        scatter = float(points.weights @ (centered.rows**2).sum(axis=1))
    else:
        scatter = float(spectrum.centered_squared_norm)
    return ClusterRange(tuple(counts), scatter, sample.n_rows, sample.n_kept, n_seeds), centers


def _directions(centered: WeightedRows, n_directions: int, seed: int) -> Floats:
    """Return about the top directions of centred rows, shape (n_columns, at most n_directions)."""
    rows = centered.rows * np.sqrt(centered.weights)[:, None]
    exponent = int(np.frexp(np.abs(rows).max(initial=0.0))[1])
    if abs(exponent) > 100:  # Cubes of such rows could overflow or vanish.
        rows = np.ldexp(rows, -exponent)
    draws = gaussians(seed, (rows.shape[0], min(n_directions + SPARE_DIRECTIONS, *rows.shape)))
    image = rows.T @ (rows @ (rows.T @ draws))
    return approximate_directions(image, lambda basis: rows.T @ (rows @ basis), n_directions)


def _clusterings(points: WeightedRows, short: Floats, k: int, n_seeds: int, seed: int) -> list[tuple[float, Floats]]:
    """Return cost and centres for each seed: the better of two starts, drawn in all columns and along directions.

    Where noise in many columns hides the clusters, k-means++ draws rows at random and Lloyd's iterations end in poor
    optima; along the top k directions it does not.
    """
    seeds = [derive_seed(seed, "range", k, start) for start in range(n_seeds)]
    clusterings = [points.polish(start, ITERATIONS) for start in points.starts(k, seeds)]
    if 0 < short.shape[1] < points.rows.shape[1]:
        along = replace(points, rows=np.ascontiguousarray(short))
        labelings = [along.assign(along.polish(start, ITERATIONS)[1]) for start in along.starts(k, seeds)]
        starts = [points.means([labels], int(labels.max()) + 1)[0][0] for labels in labelings]
        second = [points.polish(start, ITERATIONS) for start in starts]
        clusterings = [_least(pair) for pair in zip(clusterings, second, strict=True)]
    return clusterings


def _least(clusterings: Sequence[tuple[float, Floats]]) -> tuple[float, Floats]:
    """Return the clustering of least cost, the first of several within rounding."""
    least = min(cost for cost, _ in clusterings)
    return next(pair for pair in clusterings if pair[0] <= least * (1 + COST_TIE))


def _valley(points: WeightedRows, labels: Labels, partition: Partition) -> float | None:
    """Return `ClusterCount.valley`.

    A row's place is measured from the mean of the other rows of its cluster: a mean follows each of its own rows, which
    in many columns would show valleys in noise.
    """
    means, totals, k = partition.means, partition.weights, len(partition.weights)
    if k < 2:
        return None
    unit = float(points.weights.mean())

    def along(own: int, other: int) -> tuple[Floats, Floats]:
        # Coordinates of the rows of one cluster: -1 at the mean of the others, 1 at that of the other cluster
        members = labels == own
        weight = points.weights[members]
        step, apart = points.rows[members] - means[own], means[other] - means[own]
        back = np.divide(weight, totals[own] - weight, out=np.zeros_like(weight), where=weight < totals[own])
        squares, products, length = np.einsum("ij,ij->i", step, step), step @ apart, float(apart @ apart)
        # From the mean without the row, ``mean - back step``, to the other mean
        line = length + 2 * back * products + back**2 * squares
        position = (1 + back) * (products + back * squares)
        return np.divide(2 * position, line, out=np.zeros_like(line), where=line > 0) - 1, weight

    valleys = np.empty(k)
    for own in range(k):
        squares = np.square(means - means[own]).sum(axis=1)
        squares[own] = np.inf
        other = int(squares.argmin())
        (here, here_weight), (there, there_weight) = along(own, other), along(other, own)
        places, weights = np.concatenate([here, -there]), np.concatenate([here_weight, there_weight])
        low, middle, high = (weights @ (np.abs(places - at) < NEAR) + unit / 2 for at in (-1.0, 0.0, 1.0))
        # One root after another: with weights far from 1 the product of both sums would overflow or vanish.
        valleys[own] = middle / np.sqrt(low) / np.sqrt(high)
    order = np.argsort(valleys, kind="stable")
    shares = np.cumsum(totals[order]) / totals.sum()
    return float(valleys[order][min(int(np.searchsorted(shares, 0.5)), k - 1)])


def _checked(ks: Iterable[int], n_rows: int, of: str) -> tuple[int, ...]:
    """Return numbers of clusters, each once, ascending; raise `BadParameter` for more than the rows of something."""

    def checked(k: int) -> int:
        if require_positive("a number of clusters", k) > n_rows:
            raise BadParameter(
                f"cluster_range: {k} clusters, but {of} has {counted(n_rows, 'row')}; ask for fewer clusters"
            )
        return int(k)

    if isinstance(ks, (int, np.integer)):
        raise BadParameter(f"cluster_range: ks must be several numbers of clusters, such as range(2, 21), got {ks}")
    if isinstance(ks, range) and ks:
        checked(max(ks[0], ks[-1]))  # before a long one is walked
    numbers = sorted(set(map(checked, ks)))
    if not numbers:
        raise BadParameter("cluster_range: no number of clusters was given")
    return tuple(numbers)
