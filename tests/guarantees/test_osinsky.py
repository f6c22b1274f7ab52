"""`osinsky`: ``||A - P_J A||_F^2 <= (r + 1) (||A - A_r||_F^2 + min{(p - r) Delta, (r + 1) (||A||^2 - ||B||^2)})``.

A are the rows about their mean, P_J projects on the span of the columns J, B is the sketch of A that was shrunk by at
most Delta (0 for an exact one, which leaves r + 1). Against NumPy's singular values and its projection; the bounds of
the run at hand (`error_bound`, `least_error`) hold too.
"""

import numpy as np
import pytest

from sketchselect.errors import EmptyInput
from sketchselect.selectors import OsinskySelector

from .instances import each_instance, matrix


def centered(X):
    return X - X.mean(axis=0)


def error_of(A, support):
    """Squared error of predicting A from some of its columns, by an SVD of these."""
    U, s, _ = np.linalg.svd(A[:, support], full_matrices=False)
    U = U[:, s > 1e-12 * max(float(s.max(initial=0.0)), 1e-300)]
    return float(((A - U @ (U.T @ A)) ** 2).sum())


@each_instance
@pytest.mark.parametrize("shrunk", [False, True], ids=["exact", "shrunk"])
def test_columns_span_nearly_as_much_as_the_best_directions(seeds, shrunk):
    for seed in seeds:
        rng = np.random.default_rng(seed)
        n, p = int(rng.integers(3, 80)), int(rng.integers(3, 60))
        X = matrix(rng, n, p)
        if rng.random() < 0.3:
            X = np.linalg.qr(rng.standard_normal((max(n, p), p)))[0] * rng.choice([1, 1e-3, 1e3], p)
        n_select = int(rng.integers(1, p + 1))
        r = None if rng.random() < 0.6 else int(rng.integers(1, n_select + 1))
        size = int(rng.integers(2, max(p // 2, 3))) if shrunk else None
        if shrunk and r is not None:
            r = min(r, size - 1)
        selector = OsinskySelector(n_select, n_components=r, sketch_size=size)
        if not np.ptp(X, axis=0).any():
            with pytest.raises(EmptyInput):
                selector.fit(X)
            continue
        chosen = selector.fit(X)
        said, A = chosen.selection_.diagnostics, centered(X)
        assert chosen.support_.size == n_select == len(set(chosen.support_.tolist()))
        k, squares = said["n_directions"], np.linalg.svd(A, compute_uv=False) ** 2
        best, total = squares[k:].sum(), squares.sum()
        lost = max(total - chosen.summary_.centered_directions.squares.sum(), 0.0)
        left = min((p - k) * chosen.summary_.shrinkage, (k + 1) * lost)
        error, rounding = error_of(A, chosen.support_), 1e-9 * total
        assert error <= (k + 1) * (best + left) + rounding, seed
        assert error <= said["error_bound"] + rounding, seed
        assert said["least_error"] <= best + rounding, seed
        assert said["proven_factor"] is None or error <= said["proven_factor"] * best + rounding
