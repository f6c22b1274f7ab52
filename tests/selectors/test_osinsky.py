"""Osinsky's columns: brute force, the algorithm step by step on full matrices, and matrices where r + 1 is attained."""

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.selectors import OsinskySelector
from sketchselect.selectors.osinsky import near_columns, prediction_error


def by_definition(A, r):
    """The algorithm as it is stated, with matrices of full size: columns and the error of interpolation."""
    V = np.linalg.svd(A, full_matrices=False)[2][:r].T
    E, order = A - A @ V @ V.T, []
    for _ in range(r):
        squares = (V**2).sum(axis=1)
        ratios = np.where(squares > 1e-14, (E**2).sum(axis=0) / np.maximum(squares, 1e-14), np.inf)
        ratios[order] = np.inf
        j = int(ratios.argmin())
        E = E - np.outer(E[:, j], V @ V[j] / squares[j])
        # An orthonormal basis of what is orthogonal to row j.
        V = V @ np.linalg.svd(V[[j]])[2][1:].T
        order.append(j)
    return order, (E**2).sum()


def unexplained(A, columns):
    Q, _ = np.linalg.qr(A[:, columns])
    return ((A - Q @ (Q.T @ A)) ** 2).sum()


@pytest.mark.share(20)
@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("with_extra", [False, True])
def test_the_kernel_does_what_the_algorithm_says(seed, with_extra):
    rng = np.random.default_rng(seed)
    p, r = int(rng.integers(4, 25)), int(rng.integers(1, 4))
    A = rng.standard_normal((30, p)) * rng.uniform(0.1, 3, p)
    extra = rng.uniform(0, 5, p) if with_extra else np.zeros(p)
    vectors = np.linalg.svd(A)[2]
    squares = np.linalg.svd(A, compute_uv=False)
    tail = squares[r:, None] * vectors[r : len(squares)]
    order, error = near_columns(tail, vectors[:r], extra, np.ones(p, bool))
    # The data with `extra` as further rows, whose directions are no longer singular vectors: by interpolation.
    whole = np.vstack([A, np.diag(np.sqrt(extra))])
    V = vectors[:r].T
    left = whole - whole @ V @ V.T
    interpolated = whole - whole[:, order] @ np.linalg.inv(V[order].T) @ V.T
    assert error == pytest.approx((interpolated**2).sum(), rel=1e-9)
    assert error <= (r + 1) * (left**2).sum() * (1 + 1e-12)
    assert prediction_error(A, extra, order) == pytest.approx(unexplained(whole, order), rel=1e-9)
    if not with_extra:
        expected, least = by_definition(A, r)
        assert order.tolist() == expected
        assert error == pytest.approx(least, rel=1e-9)


@pytest.mark.share(6)
@pytest.mark.parametrize("seed", range(20))
def test_of_exact_summaries_the_bounds_are_the_errors(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((25, 9)) @ rng.standard_normal((9, 9)) + 100.0
    A, r = X - X.mean(axis=0), int(rng.integers(1, 5))
    least = (np.linalg.svd(A, compute_uv=False)[r:] ** 2).sum()
    chosen = OsinskySelector(r).fit(X)
    said = chosen.selection_.diagnostics
    assert said["error_bound"] == pytest.approx(unexplained(A, chosen.support_), rel=1e-9)
    assert said["least_error"] == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("r", [1, 2, 3])
def test_the_factor_is_attained(r):
    """Columns that share r directions and have one of their own each (Deshpande et al. 2006, proposition 3.3)."""
    size = 60
    block = np.vstack([np.ones(size), 1e-3 * np.eye(size)])
    X = np.kron(np.eye(r), block)
    X = np.vstack([X, -X])
    least = (np.linalg.svd(X, compute_uv=False)[r:] ** 2).sum()
    chosen = OsinskySelector(r).fit(X)
    assert sorted(int(j) // size for j in chosen.support_) == list(range(r))
    factor = unexplained(X, chosen.support_) / least
    assert 1.9 < factor <= r + 1
    if r == 1:
        # Every single column is as bad: no method has a smaller factor.
        assert min(unexplained(X, [j]) for j in range(size)) == pytest.approx(factor * least)


def test_rounds_go_on_where_directions_end():
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((200, 3))
    X = np.c_[Z, Z @ rng.standard_normal((3, 4)), np.full(200, 7.0)]
    errors = []
    for size in range(1, 9):
        chosen = OsinskySelector(size, n_components=1).fit(X)
        assert chosen.support_.size == size == len(set(chosen.support_.tolist()))
        errors.append(unexplained(X - X.mean(axis=0), chosen.support_))
    assert errors[0] > errors[1] > 1.0
    assert max(errors[2:]) < 1e-9
    # The column that never varies is the last.
    assert OsinskySelector(7).fit(X).support_.tolist() == list(range(7))


def test_translation_scale_and_order_of_rows_change_nothing():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((300, 40)) * np.geomspace(1, 30, 40)
    chosen = OsinskySelector(10).fit(X).support_.tolist()
    for other in (X + rng.uniform(-50, 50, 40), 1024.0 * X, X[::-1]):
        assert OsinskySelector(10).fit(other).support_.tolist() == chosen


def test_the_same_from_moments_a_stream_and_with_equal_columns():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((300, 20)) * np.geomspace(1, 30, 20)
    chosen = OsinskySelector(6).fit(X)
    assert OsinskySelector(6).fit_summary(sks.Moments().from_block(X)).support_.tolist() == chosen.support_.tolist()
    stream = OsinskySelector(6)
    for rows in np.array_split(X, 7):
        stream.partial_fit(rows)
    assert stream.support_.tolist() == chosen.support_.tolist()
    twice = OsinskySelector(6).fit(np.hstack([X, X]))
    assert twice.support_.tolist() == chosen.support_.tolist()
    assert not hasattr(chosen, "weights_") or chosen.weights_ is None
