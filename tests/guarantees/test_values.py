"""Summaries of values and of parts of the rows: exact values, and members as by themselves, to the bit.

    top[:, j] = the n largest values of column j, descending,    Groups[g] = summary of {i : y_i = g}
    Folds[f] = summary of the rows whose hash is f,    complement(f) = that of all other rows,    Bundle[m] = m alone

References: NumPy's sort, and the inner summary of the rows of each part.
"""

import numpy as np
from scipy.sparse import csr_array

import sketchselect as sks
from sketchselect.summaries import Groups, LevelCounts, StepStatistics, TargetHistogram, TopValues

from .instances import each_instance, matrix, merged


def instance(seed):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(1, 60)), int(rng.integers(1, 10))
    X = matrix(rng, n, p)
    if seed % 3 == 0:
        X = np.where(rng.random(X.shape) < 0.7, 0.0, X)
    return rng, X


@each_instance
def test_the_largest_values_are_exact(seeds):
    for seed in seeds:
        rng, X = instance(seed)
        size = int(rng.integers(1, 70))
        for rows in (X, csr_array(X)):
            result = merged(rng, TopValues(size), rows)
            assert np.array_equal(result.top, -np.sort(-X, axis=0)[:size])


@each_instance
def test_rows_of_each_bin_and_class_are_counted(seeds):
    for seed in seeds:
        rng, X = instance(seed)
        labels = np.array(["a", "b"])[rng.integers(2, size=len(X))]
        description = TargetHistogram.of_sample(X[: 1 + len(X) // 2], int(rng.integers(2, 8)), classes=["a", "b"])
        for rows in (X, csr_array(X)):
            counts = merged(rng, description, rows, y=labels).counts
            for j, column in enumerate(X.T):
                bins = np.maximum(np.searchsorted(description.edges[j], column, side="right") - 1, 0)
                for k, name in enumerate("ab"):
                    expected = np.bincount(bins[labels == name], minlength=counts.shape[1])
                    assert np.array_equal(counts[j, :, k], expected)


@each_instance
def test_distinct_values_are_counted_and_first_rows_are_right(seeds):
    for seed in seeds:
        rng, X = instance(seed)
        X = np.where(rng.random(X.shape) < 0.1, np.nan, np.round(X))
        limit = int(rng.integers(1, 20))
        counts = merged(rng, LevelCounts(limit), X)
        for j, column in enumerate(X.T):
            values, first, number = np.unique(column[~np.isnan(column)], return_index=True, return_counts=True)
            is_listed = values.size <= limit
            listed, rows = counts.levels(j), counts.first_rows(j)
            assert np.array_equal(listed[0], values[: values.size * is_listed])
            assert np.array_equal(listed[1], number[: values.size * is_listed])
            assert np.array_equal(rows, np.flatnonzero(~np.isnan(column))[first[: values.size * is_listed]])


@each_instance
def test_one_summary_for_each_group(seeds):
    for seed in seeds:
        rng, X = instance(seed)
        labels = np.array(["a", "b", "c"])[rng.integers(3, size=len(X))]
        groups = merged(rng, Groups(TopValues(5), ["a", "b", "c"]), X, y=labels)
        for name, group in zip("abc", groups, strict=True):
            own = X[labels == name]
            assert group.n_rows == len(own)
            if len(own):
                assert np.array_equal(group.top, -np.sort(-own, axis=0)[:5])


@each_instance
def test_folds_are_the_rows_of_their_hash(seeds):
    for seed in seeds:
        rng, X = instance(seed)
        n_folds = int(rng.integers(2, 5))
        description = sks.Folds(sks.Moments(), n_folds, seed=seed)
        folds = merged(rng, description, X)
        which = description.fold_of(np.arange(len(X), dtype=np.uint64))
        for fold in range(n_folds):
            for part, rows in ((folds[fold], X[which == fold]), (folds.complement(fold), X[which != fold])):
                assert part.n_rows == len(rows)
                if len(rows):
                    scale = np.abs(rows).max(axis=0)
                    assert np.allclose(part.mean, rows.mean(axis=0), rtol=0, atol=1e-12 * scale.max() + 1e-300)
                    centered = rows - rows.mean(axis=0)
                    room = 1e-11 * len(X) * np.outer(scale, scale)
                    assert (np.abs(part.covariance() * len(rows) - centered.T @ centered) <= room).all()


@each_instance
def test_members_of_a_bundle_are_those_of_passes_by_themselves(seeds):
    for seed in seeds:
        rng, X = instance(seed)
        parts = {"moments": sks.Moments(), "columns": sks.ColumnStats(), "top": TopValues(3)}
        state = rng.bit_generator.state
        together = merged(rng, sks.Bundle(parts), X)
        for name, description in parts.items():
            rng.bit_generator.state = state
            assert together[name] == merged(rng, description, X)
        steps = [StepStatistics.of({"0 scale": sks.ColumnStats().from_block(rows)}) for rows in (X, X[::-1])]
        both = sks.ColumnStats().from_block(X).merge(sks.ColumnStats().from_block(X[::-1]))
        assert np.array_equal(steps[0].merge(steps[1])["0 scale"].sum, both.sum)
