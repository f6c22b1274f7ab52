"""Deterministic column selection for k-means (Boutsidis and Magdon-Ismail 2012, Algorithms 4 and 5)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, Unpack

import numpy as np

from sketchselect.errors import BadParameter, Incompatible
from sketchselect.execution import Source, summarize_source
from sketchselect.execution.engine import PassOptions, PreparedKeywords, reduce_blocks
from sketchselect.execution.source import Block
from sketchselect.execution.tasks import Reduction
from sketchselect.linalg.barrier import longest_run, sample_frobenius, sample_spectral, top_up
from sketchselect.linalg.hashing import KeyedRows, derive_seed, smallest_rows, uniforms
from sketchselect.linalg.parameters import Count, Size, SketchSize
from sketchselect.linalg.validation import Floats, seed_of
from sketchselect.readers import open_vector
from sketchselect.selectors.kmeans_columns import ColumnSelector, ColumnSubspace, by_leverage
from sketchselect.summaries import Bundle, CentroidSums, Summary, pick

SAMPLE_ROWS, SAMPLE_NBYTES = 1 << 16, 256 << 20  # Most rows and bytes that k-means++ runs on; a hashed sample of more


def partition_sums(source: Source, labels: Any, n_clusters: int | None) -> tuple[Source, CentroidSums]:
    """Return the source with the labels, numbers or text, as codes next to the rows, and the description of their sums.

    Raises `BadParameter` if there are more distinct labels than `n_clusters`; `SourceError` if the number of labels is
    not that of the rows.
    """
    n_rows = source.n_rows
    vector = open_vector(labels, n_rows, matrix=source.matrix, name="partition")
    values = np.asarray(vector.read(0, n_rows))
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise BadParameter(f"a partition is one label per row, got an array of shape {values.shape}")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise BadParameter(f"the partition's label of row {int(np.argmin(np.isfinite(values)))} is not finite")
    distinct, codes = np.unique(values, return_inverse=True)
    if n_clusters is not None and distinct.size > n_clusters:
        raise BadParameter(f"the partition has {distinct.size} distinct labels, more than n_clusters = {n_clusters}")
    codes = codes.astype(np.int64)
    target = open_vector(codes, n_rows, matrix=source.matrix, name="partition")
    return replace(source, target=target), CentroidSums(int(distinct.size))


def kmeans_sums(source: Source, n_clusters: int, seed: int, options: PassOptions) -> CentroidSums:
    """Return the sums over the clusters of k-means++, whose centres are refined on the sampled rows; one pass.

    Every draw is hashed from the global row index, so the centres do not depend on partitions or workers.
    """
    from sketchselect.linalg.kmeans.sample import WeightedRows

    size = max(n_clusters, min(SAMPLE_ROWS, SAMPLE_NBYTES // (8 * source.n_columns)))
    nbytes = 8 * (source.n_columns + 2) * size
    leaf = _SampleBlock(derive_seed(seed, "partition"), size)
    stage = "sample rows for k-means++"
    reduction = Reduction(leaf, leaf.merge, stage, state_nbytes=nbytes, working_nbytes=2 * nbytes)
    result = reduce_blocks(source, reduction, options)
    if options.on_statistics is not None:
        options.on_statistics(result.stats)
    sample = result.value
    if not sample.weights.size:
        raise BadParameter("no row has a positive weight")
    points = WeightedRows(sample.points, sample.weights)
    (start,) = points.starts(n_clusters, [derive_seed(seed, "k-means++")])
    return CentroidSums(centers=points.polish(start, tol=-np.inf)[1])


def within_columns(sums: CentroidSums, summary: Any) -> Floats:
    """Return the sum of squares within clusters of every column, from cluster means and the column's own scatter.

    Raises `Incompatible` if the two do not summarise the same rows.
    """
    if sums.n_rows != summary.n_rows or not np.isclose(sums.weight, summary.weight, rtol=1e-9):
        raise Incompatible(
            f"the partition has {sums.n_rows} rows of weight {sums.weight:g}, the sketch {summary.n_rows} of weight "
            f"{summary.weight:g}: every row needs a cluster"
        )
    steps = sums.cluster_means - summary.mean
    between = np.einsum("j,ji,ji->i", sums.cluster_weights, steps, steps)
    within: Floats = np.maximum(summary.centered_column_squared_norms - between, 0.0)
    return within


@dataclass(frozen=True)
class _SampleBlock:
    seed: int
    size: int

    def __call__(self, block: Block) -> KeyedRows:
        weights, rows = block.row_weights, block.row_indices
        keys = np.where(weights > 0, uniforms(self.seed, rows), np.inf)
        return smallest_rows(keys, rows.astype(np.int64), block.values, weights, self.size)

    def merge(self, left: KeyedRows, right: KeyedRows) -> KeyedRows:
        return left.merge(right, self.size)


RUN_STEPS = 20  # About the steps of all runs for each selected column; the longest run counts


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
    sketch; `certificate_` bounds any clustering of these columns, from every sketch.

    y is ignored. Cost after the pass: 2 n k^2 flops for each of at most 8 r steps, in some eight runs.
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
    auto_priority: ClassVar[int | None] = 3
    unrecorded: ClassVar[tuple[str, ...]] = ("random_state",)

    def __init__(
        self,
        n_features_to_select: Size | None = None,
        n_clusters: Count | None = None,
        partition: Any = None,
        sketch_size: SketchSize | None = None,
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
        **run: Unpack[PreparedKeywords],
    ) -> Self:
        """Make one pass over X (two for "kmeans++") and select columns.

        Parameters
        ----------
        X : anything `open_matrix` takes
        y : ignored
        partition : optional
            In place of the constructor's.
        sample_weight : array or path of shape (n_rows,), optional
        **run : prepare, client, partition_bytes, checkpoint, progress
            As in `BaseSelector.fit`.
        """
        self._partition = self.partition if partition is None else partition
        try:
            super().fit(X, y, sample_weight=sample_weight, **run)
        finally:
            del self._partition
        return self

    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, *, sample_weight: Any = None, **unknown: Any
    ) -> Self:
        """Add a batch of rows and select again; not with a partition, which has a label for each row of the source."""
        if self.partition is not None or isinstance(getattr(self, "summary_", None), Bundle):
            raise BadParameter("a partition needs all rows at once; use fit, or fit_summary")
        return super().partial_fit(X, y, classes, sample_weight=sample_weight, **unknown)

    def fit_summary(self, summary: Any) -> Self:
        """Select from a summary; with a partition, from a Bundle or mapping that also has its centroid sums.

        Raises
        ------
        Incompatible
            If there is no summary of the kinds this selector needs.
        """
        if self.partition is None:
            return super().fit_summary(summary)
        self.check_parameters()
        both = Bundle.of({"sketch": pick(summary, *self.requires), "partition": pick(summary, "centroid-sums")})
        self._take_summary(both, both.n_features)
        return self._finish(both.feature_names)

    @property
    def makes_passes(self) -> bool:
        """Whether there is a partition."""
        return self.partition is not None

    def single_pass(self, source: Source) -> tuple[Source, Summary[Any]] | None:
        """Return the pass of the sketch, or of the sketch and the centroid sums of a partition; None for k-means++."""
        partition = getattr(self, "_partition", self.partition)
        if partition is None:
            return super().single_pass(source)
        if isinstance(partition, str) and partition == "kmeans++":
            return None
        source, sums = partition_sums(source, partition, self.n_clusters)
        return self._both(source, self._clusters(source.n_columns, sums.n_clusters), sums)

    def _both(self, source: Source, n_clusters: int, sums: CentroidSums) -> tuple[Source, Summary[Any]]:
        return source, Bundle({"sketch": self._sketch(source.n_columns, n_clusters), "partition": sums})

    def collect_source(self, source: Source, options: PassOptions) -> Summary[Any]:
        """Return the sketch, or the sketch and the centroid sums of the partition."""
        both = self.single_pass(source)
        if both is None:
            k = self._clusters(source.n_columns)
            both = self._both(source, k, kmeans_sums(source, k, seed_of(self.random_state), options))
        return summarize_source(*both, options).value

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
        diagnostics["proven_factor"] = subspace.proven_factor(factor, n_clusters)
        return squares, diagnostics | {"n_iterations": run.n_iterations, "n_added": n_select - run.n_columns}
