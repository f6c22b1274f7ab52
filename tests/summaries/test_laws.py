"""Every summary obeys the laws on every nasty matrix. A new summary adds one entry to LAWS."""

from __future__ import annotations

import numpy as np
import pytest

from sketchselect.summaries import KINDS, Bundle, CentroidSums, ColumnStats, FrequentDirections, Moments
from sketchselect.testing.laws import SummaryLaws
from sketchselect.testing.nasty import nasty_matrices


def exact_moments(Z, w):
    """Weighted mean and centred co-moment in extended precision."""
    Z, w = Z.astype(np.longdouble), w.astype(np.longdouble)
    total = w.sum()
    mean = (w @ Z) / total if total > 0 else np.zeros(Z.shape[1], np.longdouble)
    D = Z - mean
    return float(total), mean.astype(float), ((D * w[:, None]).T @ D).astype(float)


def scatter_tolerance(Z, w):
    """What rounding may do to centred sums of squares: relative 1e-9 of them, plus eps times the offset squared."""
    Z = Z.astype(float)
    _, _, C = exact_moments(Z, w)
    eps = np.finfo(float).eps
    d = np.sqrt(np.maximum(np.diag(C), 0))
    off = np.sqrt(w.sum()) * np.abs(Z).max(axis=0, initial=0)
    return 1e-10 * np.outer(d, d) + 4 * eps * (np.outer(d, off) + np.outer(off, d)) + 40 * eps**2 * np.outer(off, off)


def check_directions(s, X, y, w):
    Z = X.astype(float) * np.sqrt(w)[:, None]
    total, mean, C = exact_moments(X, w)
    norm = float((Z**2).sum())
    spread = np.diag(scatter_tolerance(X, w))
    # About the mean the oracle is the scatter: against the raw norm nothing far from the origin could fail.
    slacks = (1e-10 * norm, 1e-10 * np.trace(C) + spread.sum())
    slack = slacks[1]
    assert s.weight == pytest.approx(total)
    assert np.allclose(s.mean, mean, rtol=1e-12, atol=1e-14 * np.abs(X.astype(float)).max(initial=0))
    assert s.squared_norm == pytest.approx(norm, rel=1e-12, abs=1e-300)
    assert (np.abs(s.centered_column_squared_norms - np.diag(C)) <= spread).all()
    for rows, gram, room in zip((s.sketch, s.centered_sketch), (Z.T @ Z, C), slacks, strict=True):
        gap = np.linalg.eigvalsh(gram - rows.T @ rows)
        assert gap[0] >= -room, "the sketch exceeds the data"
        assert gap[-1] <= s.shrinkage + room, "the error exceeds the shrinkage"
    if s.is_exact:
        assert s.shrinkage == 0
        assert s.sketch.shape[0] <= X.shape[1]
    else:
        assert s.sketch.shape[0] <= s.size
        assert s.centered_sketch.shape[0] <= s.size - 1
    tails = np.maximum(np.linalg.eigvalsh(C)[::-1], 0)
    for k in range(min(s.size, tails.size)):
        assert s.shrinkage <= tails[k:].sum() / (s.size - k) * (1 + 1e-9) + slack


def check_moments(s, X, y, w):
    Z = np.hstack([X.astype(float), y.reshape(len(X), -1)])
    total, mean, C = exact_moments(Z, w)
    p = X.shape[1]
    assert s.weight == total
    assert np.allclose(np.r_[s.mean, s.y_mean], mean, rtol=1e-12, atol=1e-14 * np.abs(Z).max())
    if total > 0:
        tol = scatter_tolerance(Z, w) / total
        assert (np.abs(s.covariance() - C[:p, :p] / total) <= tol[:p, :p]).all()
        assert (np.abs(s.xy - C[:p, p:] / total) <= tol[:p, p:]).all()
        assert (np.abs(s.yy - C[p:, p:] / total) <= tol[p:, p:]).all()
        assert (np.diag(s.covariance()) >= 0).all()


def check_columns(s, X, y, w):
    X = X.astype(float)
    total, mean, C = exact_moments(X, w)
    assert np.array_equal(s.weight, np.full(X.shape[1], total))
    assert np.array_equal(s.missing, np.zeros(X.shape[1]))
    assert np.array_equal(s.nonzero, (X != 0).sum(axis=0))
    assert np.array_equal(s.minimum, X.min(axis=0))
    assert np.array_equal(s.maximum, X.max(axis=0))
    if total > 0:
        assert np.allclose(s.mean, mean, rtol=1e-12, atol=1e-14 * np.abs(X).max())
    constant = X.min(axis=0) == X.max(axis=0)
    assert (s.variance[constant] == 0).all()
    spread = np.diag(scatter_tolerance(X, w))
    assert (np.abs(s.centered_column_squared_norms - np.diag(C)) <= spread)[~constant].all()


def check_bundle(s, X, y, w):
    check_columns(s["stats"], X, y, w)
    check_moments(s["moments"], X, y, w)


def check_centroids(s, X, y, w):
    X = X.astype(float)
    for j in range(3):
        rows, v = X[y == j], w[y == j]
        total, mean, C = exact_moments(rows, v)
        assert s.cluster_weights[j] == pytest.approx(total)
        if total > 0:
            assert np.allclose(s.cluster_means[j], mean, rtol=1e-12, atol=1e-13 * np.abs(rows).max())
            spread = np.diag(scatter_tolerance(rows, v)).sum()
            assert abs(s.within[j] - np.trace(C)) <= spread + 1e-300


def some_targets(X):
    """Two targets, one of them far from zero."""
    base = np.tanh(X.astype(float)).sum(axis=1)
    return np.stack([base, 1e6 + np.arange(len(X))], axis=1)


def three_labels(X):
    return np.arange(len(X)) * 7 % 3


LAWS = {
    "frequent-directions size 8": SummaryLaws(FrequentDirections(8), check_directions, other=FrequentDirections(9)),
    "frequent-directions size 2": SummaryLaws(FrequentDirections(2), check_directions, other=FrequentDirections(3)),
    "frequent-directions size 20": SummaryLaws(FrequentDirections(20), check_directions, other=Moments()),
    "moments": SummaryLaws(Moments(), check_moments, targets=some_targets, other=ColumnStats()),
    "column-stats": SummaryLaws(ColumnStats(), check_columns, other=FrequentDirections(8)),
    "centroid-sums": SummaryLaws(
        CentroidSums(n_clusters=3), check_centroids, targets=three_labels, other=CentroidSums(n_clusters=4)
    ),
    "bundle": SummaryLaws(
        Bundle(stats=ColumnStats(), moments=Moments()),
        check_bundle,
        targets=some_targets,
        other=Bundle(stats=ColumnStats()),
    ),
}


@pytest.mark.parametrize("matrix", list(nasty_matrices()))
@pytest.mark.parametrize("law", list(LAWS))
def test_laws(law, matrix):
    LAWS[law].verify(matrix)


def test_every_registered_kind_is_under_the_laws():
    assert {laws.description.kind for laws in LAWS.values()} == set(KINDS)


class LosesRows(Moments):
    """A wrong summary: its merge forgets the spread between the two means."""

    kind = "moments"

    def _combine(self, left, right):
        good = super()._combine(left, right)
        return type(good)(
            good.n_rows, good.n_targets, good.weight, good.squared_weight, good.mean, left.comoment + right.comoment
        )


def test_the_laws_can_fail():
    with pytest.raises(AssertionError):
        SummaryLaws(LosesRows(), check_moments, targets=some_targets).verify("rank 3")
