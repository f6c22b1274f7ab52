"""k-means of a stream: a weighted sample of all rows seen so far, clustered when somebody asks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sketchselect.cluster.kmeans.coreset import best_start, coreset, points_of
from sketchselect.errors import BadBlock, BadParameter
from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.hashing import derive_seed
from sketchselect.linalg.kmeans.distances import spread_out
from sketchselect.summaries import CentroidSums, RowSample

LEAST_ROWS = 5000
ROWS_PER_CLUSTER = 50
"""Rows kept of a stream: `ROWS_PER_CLUSTER` k, and never fewer than `LEAST_ROWS`."""

FIRST_ROWS = 256
"""Rows that are waited for before far rows are preferred: fewer do not show how far the rows are apart."""

STARTS = 10


@dataclass(frozen=True)
class StreamSample:
    """What is kept of a stream: the first rows as they are, later a `RowSample` about their mean.

    Rows are numbered as they arrive, and which of them are kept depends on their numbers and values alone: the same
    stream gives the same bits whatever batches it comes in.
    """

    n_clusters: int  # Decides how many rows are kept
    seed: int  # Of all draws
    n_rows: int = 0  # Rows seen
    first: RowSample | None = None  # The first `FIRST_ROWS` rows, until there are as many
    sample: RowSample | None = None  # All rows, once there are

    def add(self, rows: Any, weights: Floats | None = None) -> StreamSample:
        """Return the sample after more rows, with their weights, have arrived."""
        if self.sample is not None:
            more = self.sample.describe().from_block(rows, start=self.n_rows, sample_weight=weights)
            if more.n_features != self.sample.n_features:
                raise BadBlock(f"the batch has {more.n_features} columns, those before had {self.sample.n_features}")
            return replace(self, n_rows=self.n_rows + more.n_rows, sample=self.sample.merge(more))
        taken = min(FIRST_ROWS - self.n_rows, rows.shape[0])
        early = RowSample(FIRST_ROWS, self.seed).from_block(
            rows[:taken], start=self.n_rows, sample_weight=None if weights is None else weights[:taken]
        )
        first = early if self.first is None else self.first.merge(early)
        state = replace(self, n_rows=self.n_rows + taken, first=first)
        if state.n_rows < FIRST_ROWS:
            return state
        state = replace(state, sample=state.restarted(), first=None)
        return (
            state if taken == rows.shape[0] else state.add(rows[taken:], None if weights is None else weights[taken:])
        )

    def restarted(self) -> RowSample:
        """Return the first rows as a sample of the full size, about their own mean."""
        assert self.first is not None
        rows, weights = points_of(self.first)
        around = CentroidSums(1).from_block(rows, np.zeros(len(rows), dtype=np.int32))
        size = max(LEAST_ROWS, ROWS_PER_CLUSTER * self.n_clusters)
        return coreset(around, self.n_clusters, self.seed, size=size).from_block(
            rows, start=self.first.indices, sample_weight=weights
        )

    def centers(self, n_init: int | str = "auto") -> Floats:
        """Return centres: the best of several k-means++ starts on the sample, refined there.

        Raises `BadParameter` if fewer rows (of positive weight) than clusters have been seen.
        """
        sample = self.sample if self.sample is not None else self.first
        if sample is None or sample.n_kept < self.n_clusters:
            seen = 0 if sample is None else sample.n_kept
            raise BadParameter(
                f"n_clusters={self.n_clusters} but n_samples={seen} so far; go on with partial_fit before asking"
            )
        points, weights = points_of(sample)
        starts = n_init if not isinstance(n_init, str) else STARTS
        made = [
            points[spread_out(points, weights, self.n_clusters, derive_seed(self.seed, "stream", i))]
            for i in range(starts)
        ]
        return best_start(points, weights, made, most=100)
