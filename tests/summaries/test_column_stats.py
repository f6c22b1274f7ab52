"""Column statistics where the first row is a bad point of reference, and the memory that they take."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from sketchselect.summaries import ColumnStats


def exact_variance(X, w):
    X, w = X.astype(np.longdouble), w.astype(np.longdouble)[:, None] * np.ones(X.shape[1])
    w = np.where(np.isnan(X), 0, w)
    X = np.where(np.isnan(X), 0, X)
    mean = (w * X).sum(axis=0) / w.sum(axis=0)
    return ((w * (X - mean) ** 2).sum(axis=0) / w.sum(axis=0)).astype(float)


@pytest.mark.parametrize("n_rows", [50, 5000])
@pytest.mark.parametrize("case", ["missing", "no weight", "light", "late"])
def test_the_first_row_spoils_nothing(case, n_rows):
    rng = np.random.default_rng(0)
    X = 1e8 + rng.standard_normal((n_rows, 4))
    w = rng.random(n_rows) + 0.5
    if case == "missing":
        X[0] = np.nan
    elif case == "late":
        X[: n_rows // 2, 1:3] = np.nan
    else:
        X[0] = -1e9
        w[0] = 0.0 if case == "no weight" else 1e-15
    s = ColumnStats().from_block(X, sample_weight=w)
    np.testing.assert_allclose(s.variance, exact_variance(X, w), rtol=1e-8)
    cut = n_rows // 3
    parts = [ColumnStats().from_block(X[a:b], sample_weight=w[a:b]) for a, b in ((0, cut), (cut, n_rows))]
    np.testing.assert_allclose(parts[0].merge(parts[1]).variance, exact_variance(X, w), rtol=1e-8)


def test_a_column_that_is_all_missing():
    X = np.array([[np.nan, 1.0], [np.nan, 3.0]])
    s = ColumnStats().from_block(X)
    assert s.missing.tolist() == [2, 0]
    assert s.variance.tolist() == [0.0, 1.0]


def _tall(rng: np.random.Generator) -> Any:
    return rng.standard_normal((20_000, 1000))


def _gaps(rng: np.random.Generator) -> Any:
    X = rng.standard_normal((20, 200_000))
    return np.where(X > 1.0, np.nan, X)


def _about_a_billion(rng: np.random.Generator) -> Any:
    X = 1e9 + _tall(rng)
    X[0] = 0.0  # so that it is swept again
    return X


def _words(rng: np.random.Generator) -> Any:
    return sparse.random_array((20, 200_000), density=0.1, format="csr", rng=rng)


@pytest.mark.parametrize("rows", [_tall, _gaps, _about_a_billion, _words])
def test_memory_stays_below_the_projection(rows):
    X = rows(np.random.default_rng(1))
    n, p = X.shape
    a = ColumnStats().from_block(X)
    bound = a.projected_nbytes(p) + a.working_nbytes(p) + 8 * n  # their weights count as a column of the block
    for call in (lambda: ColumnStats().from_block(X), lambda: a.merge(a)):
        tracemalloc.start()
        try:
            call()
            assert tracemalloc.get_traced_memory()[1] <= bound
        finally:
            tracemalloc.stop()
