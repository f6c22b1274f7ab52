"""Deterministic column selection for k-means (Boutsidis and Magdon-Ismail 2012, Algorithms 4 and 5)."""

from __future__ import annotations

from typing import Any, ClassVar, Self, Unpack

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.execution import Source
from sketchselect.execution.options import FitKeywords, PassOptions
from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.columns.barrier import longest_run, sample_frobenius, sample_spectral, top_up
from sketchselect.linalg.validation import seed_of
from sketchselect.selectors.base import SelectorPass
from sketchselect.selectors.kmeans_columns.base import ColumnSelector, by_leverage
from sketchselect.selectors.kmeans_columns.partition import labelled, seeded, within_columns
from sketchselect.selectors.kmeans_columns.subspace import ColumnSubspace
from sketchselect.summaries import Bundle, CentroidSums, Summary, pick

RUN_STEPS = 20
"""Steps of all runs of which the longest is taken, about, for each column that is selected."""


class DeterministicSelector(ColumnSelector):
    """Select columns with a guarantee for k-means on them, deterministically; with a partition, also for that one.

    With k = `n_clusters`, n columns, R >= r steps of barrier sampling (`selection_.diagnostics`) and a
    gamma-approximate clustering of the weighted selected columns, its objective in all columns is at most
    ``1 + 4 gamma (1 + sqrt(n / R))^2 / (1 - sqrt(k / R))^2`` times the best one; with a partition, at most
    ``1 + 4 gamma / (1 - sqrt(k / R))^2`` times that of the partition. Both hold for an exact sketch; the bounds of
    `certificate_` hold for every sketch.

    Parameters
    ----------
    n_clusters : int, optional
        k; min(8, r // 2) by default, or the number of distinct labels of the partition.
    partition : "kmeans++", array, path or URL of shape (n_rows,), optional
        A label for each row (Algorithm 4); "kmeans++" finds labels first, with one more pass. None is Algorithm 5. When
        fitting a summary, the partition is its member of kind "centroid-sums".
    random_state : int, RandomState or None, default 0
        Used by "kmeans++" alone.

    Notes
    -----
    Guarantee: k-means on the weighted columns is within `proven_factor` of the best clustering, for an exact
    sketch; `certificate_` bounds any clustering of them, from every sketch.

    y is ignored. Cost, beside the pass: 2 n k^2 flops for each of at most 8 r steps, in some eight runs.
    Source: Boutsidis and Magdon-Ismail 2012, Theorems 2 and 4, section 2.3, with the missing square root of
    Algorithm 2, on the rows about their mean.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = 0.1 * rng.standard_normal((300, 12))
    >>> X[:, [2, 7]] += 6 * rng.integers(2, size=(300, 2))
    >>> chosen = DeterministicSelector(3, n_clusters=2).fit(X)
    >>> len(chosen.support_), {2, 7} <= set(chosen.support_.tolist())
    (3, True)
    """

    method: ClassVar[str] = "deterministic"
    competes: ClassVar[int | None] = 3

    def __init__(
        self,
        n_features_to_select: float | None = None,
        n_clusters: int | None = None,
        partition: Any = None,
        sketch_size: int | None = None,
        normalize: str | None = None,
        random_state: Any = 0,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.n_clusters = n_clusters
        self.partition = partition
        self.sketch_size = sketch_size
        self.normalize = normalize
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        partition: Any = None,
        sample_weight: Any = None,
        **run: Unpack[FitKeywords],
    ) -> Self:
        """Make one pass over X (two for "kmeans++") and select columns.

        Parameters
        ----------
        X : anything `open_matrix` takes
        y : ignored
        partition : optional
            In place of the constructor's.
        sample_weight : array or path of shape (n_rows,), optional
        **run : client, partition_bytes, checkpoint, progress
            As in `sketchselect.summarize`.
        """
        self._partition = self.partition if partition is None else partition
        try:
            super().fit(X, y, sample_weight=sample_weight, **run)
        finally:
            del self._partition
        return self

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, *, sample_weight: Any = None) -> Self:
        """Add a batch of rows and select again; not with a partition, which has a label for each row of the source."""
        if self.partition is not None or isinstance(getattr(self, "summary_", None), Bundle):
            raise BadParameter("a partition needs all rows at once; use fit, or fit_summary")
        return super().partial_fit(X, y, classes, sample_weight=sample_weight)

    def fit_summary(self, summary: Any) -> Self:
        """Select from a summary; with a partition, from a Bundle or mapping that also has its centroid sums.

        Raises
        ------
        Incompatible
            If there is no summary of the kinds this selector needs.
        """
        if self.partition is None:
            return super().fit_summary(summary)
        both = Bundle.of({"sketch": pick(summary, *self.requires), "partition": pick(summary, "centroid-sums")})
        self.summary_ = both
        self.n_features_in_ = both.n_features
        self._forget_names()
        return self._finish(both.feature_names)

    @property
    def makes_passes(self) -> bool:
        """Whether there is a partition."""
        return self.partition is not None

    def single_pass(self, source: Source) -> SelectorPass | None:
        """Return the pass of the sketch, or of the sketch and the centroid sums of a partition; None for k-means++."""
        partition = getattr(self, "_partition", self.partition)
        if partition is None:
            return super().single_pass(source)
        self.check_parameters()
        if isinstance(partition, str) and partition == "kmeans++":
            return None
        source, sums = labelled(source, partition, self.n_clusters)
        return self._both(source, self._clusters(source.n_columns, sums.n_clusters), sums)

    def _both(self, source: Source, n_clusters: int, sums: CentroidSums) -> SelectorPass:
        return SelectorPass(source, Bundle({"sketch": self._sketch(source.n_columns, n_clusters), "partition": sums}))

    def collect_source(self, source: Source, options: PassOptions) -> Summary[Any]:
        """Return the sketch, or the sketch and the centroid sums of the partition."""
        one = self.single_pass(source)
        if one is None:
            k = self._clusters(source.n_columns)
            one = self._both(source, k, seeded(source, k, seed_of(self.random_state), options))
        return one.summarize(options)

    def selection_flops(self, n_features: int, n_select: int) -> float:
        """Return about how many operations selecting takes: the steps of all runs, on k directions of every column."""
        k = min(n_features, n_select - 1, self.n_clusters or 8)
        return 2.0 * RUN_STEPS * n_select * n_features * k * k

    def _further_parameters(self, summary: Any) -> dict[str, Any]:
        if not isinstance(summary, Bundle):
            return {"partition": None}
        return {
            "partition": "kmeans++" if isinstance(self.partition, str) and self.partition == "kmeans++" else "given"
        }

    def _sample(
        self, subspace: ColumnSubspace, summary: Any, n_select: int, n_clusters: int
    ) -> tuple[Floats, dict[str, Any]]:
        vectors = subspace.vectors
        k = vectors.shape[1]
        if not isinstance(summary, Bundle):
            run = longest_run(lambda steps: sample_spectral(vectors, steps, most=n_select), n_select)
            squares = top_up(run.squares, by_leverage(subspace), n_select)
            norm = 1.0 + np.sqrt(vectors.shape[0] / run.n_iterations)
            diagnostics: dict[str, Any] = {"algorithm": 5}
            factor = 1.0 + 4.0 * float(norm / (1.0 - np.sqrt(k / run.n_iterations))) ** 2
        else:
            sums = pick(summary, "centroid-sums")
            assert isinstance(sums, CentroidSums)
            costs = subspace.column_residuals + within_columns(sums, pick(summary, *self.requires))
            run = longest_run(lambda steps: sample_frobenius(vectors, costs, steps, most=n_select), n_select)
            squares = top_up(run.squares, by_leverage(subspace), n_select, costs, float(costs.sum()))
            diagnostics = {"algorithm": 4, "partition_objective": sums.objective}
            factor = 1.0 + 4.0 / float(1.0 - np.sqrt(k / run.n_iterations)) ** 2
        # The theorems are about exact singular vectors.
        diagnostics["proven_factor"] = factor if subspace.is_exact else None
        return squares, diagnostics | {"n_iterations": run.n_iterations, "n_added": n_select - run.n_columns}
