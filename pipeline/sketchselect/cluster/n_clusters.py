"""Comparison of a range of numbers of clusters: objective, proven gap and stability, from one coreset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from sketchselect import prepare as steps
from sketchselect._progress import make_progress
from sketchselect._text import html_table, number
from sketchselect.cluster.certificates.spectral import spectral_bound
from sketchselect.errors import BadParameter, Incompatible
from sketchselect.execution.api import open_source
from sketchselect.execution.checkpoints import as_checkpoint
from sketchselect.execution.client import open_engine
from sketchselect.execution.engine import PassOptions
from sketchselect.execution.source import Source
from sketchselect.execution.summarize import summarize_source
from sketchselect.linalg.agreement import weighted_adjusted_rand
from sketchselect.linalg.hashing import derive_seed
from sketchselect.linalg.kmeans.sample import LEAST_ROWS, ROWS_PER_CLUSTER, WeightedRows
from sketchselect.linalg.spectrum import Spectrum
from sketchselect.linalg.validation import Floats, require_positive, require_seed
from sketchselect.plots import ClusterRangeDisplay
from sketchselect.summaries import SPECTRAL_KINDS, Bundle, CentroidSums, FrequentDirections, RowSample, Summary

N_SEEDS = 10
ITERATIONS = 100
STABLE = 0.8  # Least mean ARI between seeds of a number of clusters that is recommended
ELBOW = 1.5  # Least ratio of the fall of the objective before an elbow to that behind it


@dataclass(frozen=True)
class ClusterCount:
    """Objective, bound and stability of one number of clusters.

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
    """

    n_clusters: int
    coreset_objective: float
    objective: float | None
    lower_bound: float | None
    stability: float

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
class ClusterRange:
    """A range of numbers of clusters.

    Parameters
    ----------
    counts : tuple of ClusterCount
        By ascending number of clusters.
    scatter : float
        Sum of squared distances to the mean: the objective of one cluster.
    n_rows, n_sampled, n_seeds : int
        Rows of all data and of the coreset, and seeds tried for each number.
    """

    counts: tuple[ClusterCount, ...]
    scatter: float
    n_rows: int
    n_sampled: int
    n_seeds: int

    def plot(self, ax: Any = None) -> Any:
        """Draw objective, bound and stability on `ax`, two axes (new ones by default); return them.

        One axes is for objective and bound alone.
        """
        return ClusterRangeDisplay.from_range(self, ax=ax).ax_

    def _repr_html_(self) -> str:
        rows = [
            [
                c.n_clusters,
                number(c.best_objective, 6),
                "" if c.factor is None else number(c.factor),
                f"{c.stability:.3f}",
            ]
            for c in self.counts
        ]
        header = ["clusters", "inertia", "at most times the best", "stability (mean ARI)"]
        return html_table(self.sentence(), rows, header)

    @property
    def elbows(self) -> dict[int, float]:
        """How much faster log(objective) falls against log(k) before each k than after it; undefined for the last k."""
        ks = [1, *(count.n_clusters for count in self.counts if count.n_clusters > 1)]
        falls = [self.scatter, *(count.best_objective for count in self.counts if count.n_clusters > 1)]
        if min(falls) <= 0:
            return {}
        slopes = np.maximum(-np.diff(np.log(falls)) / np.diff(np.log(ks)), 1e-3)
        return {k: float(a / b) for k, a, b in zip(ks[1:], slopes, slopes[1:], strict=False)}

    @property
    def recommended(self) -> int | None:
        """The k of the sharpest elbow among those with stability of at least 0.8; None where none is sharper than 1.5.

        If the objective reaches 0, the smallest k that reaches it.
        """
        for count in self.counts:
            if count.best_objective <= 0:
                return count.n_clusters
        stable = {count.n_clusters for count in self.counts if count.stability >= STABLE}
        sharp = {k: ratio for k, ratio in self.elbows.items() if k in stable and ratio >= ELBOW}
        return max(sharp, key=lambda k: (sharp[k], -k)) if sharp else None

    def sentence(self) -> str:
        """Return the recommendation and its rule in words."""
        first, last = self.counts[0].n_clusters, self.counts[-1].n_clusters
        k = self.recommended
        if k is None:
            return (
                f"No number of clusters from {first} to {last} stands out: none has both an elbow (the objective falls "
                f"{ELBOW:g} times as fast before it as after it, on logarithmic scales) and clusters that different "
                f"seeds agree on (mean ARI of at least {STABLE:g})."
            )
        count = next(c for c in self.counts if c.n_clusters == k)
        if count.best_objective <= 0:
            return f"{k} clusters leave no distance at all: the rows have that many distinct values."
        return (
            f"{k} clusters: the sharpest elbow from {first} to {last} (the objective falls {self.elbows[k]:.1f} times "
            f"as fast before it as after it, on logarithmic scales) among the numbers that different seeds agree on "
            f"(mean ARI {count.stability:.2f}; at least {STABLE:g} is asked for)."
        )


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
    """Return objective, certified gap and stability for each number of clusters.

    For every k and seed a k-means++ start is refined on one coreset; of the best one of each k the exact objective
    over all rows is computed. No clustering has an objective below `lower_bound` (spectral, see `certify`).

    Parameters
    ----------
    source : whatever `open_matrix` takes, or a RowSample, mapping or Bundle with one
        Rows of shape (n_rows, n_features); three passes are made. Of summaries (a RowSample, and FrequentDirections or
        Moments for the bound) nothing is read, and the exact objectives are not known.
    ks : iterable of int
        Numbers of clusters.
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
    Cost: three passes (a sketch, the coreset, the objectives of all k at once) and, for each k and seed, up to 100
    Lloyd iterations on the coreset.
    Source: Bachem, Lucic and Krause 2018 (coreset); Hubert and Arabie 1985 (ARI); Drineas et al. 2004 (bound).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = 20.0 * np.eye(4)[rng.integers(4, size=400)] + rng.standard_normal((400, 4))
    >>> cluster_range(X, range(2, 8)).recommended
    4
    """
    numbers = _checked(ks)
    if isinstance(source, (Summary, Mapping)):
        members: list[Any] = list(source.values()) if isinstance(source, Mapping) else [source]
        sample = next((m for m in members if isinstance(m, RowSample)), None)
        if sample is None:
            raise Incompatible(f"cluster_range needs a summary of kind {RowSample.kind}, or the rows themselves")
        spectrum = next((m for m in members if m.kind in SPECTRAL_KINDS), None)
        return _on_coreset(sample, spectrum, numbers, n_seeds, random_state)[0]
    rows = open_source(source, None, sample_weight, steps.resolve(prepare or ()))
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
    ks: Sequence[int],
    options: PassOptions,
    *,
    n_seeds: int = N_SEEDS,
    sample_rows: int | None = None,
    random_state: int = 0,
) -> ClusterRange:
    """Return `cluster_range` of a source, which may have steps that are not fitted."""
    ks = _checked(ks)
    random_state = require_seed(random_state, "cluster_range: random_state")
    largest = max(ks)

    def read(description: Summary[Any], stage: str) -> Any:
        return summarize_source(source, description, options, stage=stage).value

    sketch = read(FrequentDirections(max(2, min(source.n_columns, max(8 * largest, 64)))), "range of clusters: sketch")
    size = (
        max(LEAST_ROWS, ROWS_PER_CLUSTER * largest)
        if sample_rows is None
        else require_positive("sample_rows", sample_rows)
    )
    variance = sketch.centered_squared_norm / sketch.weight if sketch.weight > 0 else 0.0
    sample_seed = derive_seed(random_state, "range", "coreset")
    sampling = RowSample(size, sample_seed, sketch.mean, variance) if variance > 0 else RowSample(size, sample_seed)
    sample = read(sampling, "range of clusters: coreset")
    estimates, centers = _on_coreset(sample, sketch, ks, n_seeds, random_state)
    sums_of_all = Bundle({f"k{k}": CentroidSums(centers=best) for k, best in centers.items()})
    sums = cast(Bundle, read(sums_of_all, "range of clusters: objectives"))
    objectives = {k: cast(CentroidSums, sums[f"k{k}"]).objective for k in centers}
    counts = tuple(replace(count, objective=objectives[count.n_clusters]) for count in estimates.counts)
    return replace(estimates, counts=counts)


def _on_coreset(
    sample: RowSample, spectrum: Spectrum | None, ks: Sequence[int], n_seeds: int, seed: int
) -> tuple[ClusterRange, dict[int, Floats]]:
    """Return the range by the coreset and the spectrum, and the best centres of each k."""
    require_positive("n_seeds", n_seeds, 2)
    points = WeightedRows(sample.rows, sample.weights).dense()
    if max(ks) > sample.n_kept:
        raise BadParameter(
            f"cluster_range: {max(ks)} clusters, but the coreset has {sample.n_kept} rows; ask for fewer clusters or, "
            "if there are more rows, a larger sample"
        )
    counts, centers = [], {}
    for k in ks:
        starts = points.starts(k, (derive_seed(seed, "range", k, start) for start in range(n_seeds)))
        clusterings = [points.polish(start, ITERATIONS) for start in starts]
        labels = [points.assign(best) for _, best in clusterings]
        cost, centers[k] = min(clusterings, key=lambda clustering: clustering[0])
        stability = [weighted_adjusted_rand(a, b, points.weights) for i, a in enumerate(labels) for b in labels[:i]]
        bound = None if spectrum is None else spectral_bound(spectrum, k)[0]
        counts.append(ClusterCount(k, cost, None, bound, float(np.mean(stability))))
    if spectrum is None:
        scatter = float(points.weights @ (points.centered()[0].rows ** 2).sum(axis=1))
    else:
        scatter = float(spectrum.centered_squared_norm)
    return ClusterRange(tuple(counts), scatter, sample.n_rows, sample.n_kept, n_seeds), centers


def _checked(ks: Iterable[int]) -> tuple[int, ...]:
    if isinstance(ks, (int, np.integer)):
        raise BadParameter(f"cluster_range: ks must be several numbers of clusters, such as range(2, 21), got {ks}")
    numbers = sorted({require_positive("a number of clusters", k) for k in ks})
    if not numbers:
        raise BadParameter("cluster_range: no number of clusters was given")
    return tuple(numbers)
