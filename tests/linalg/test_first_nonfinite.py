"""The first NaN or infinity of a block, and none where only sums of squares overflow."""

from __future__ import annotations

import numpy as np
import pytest

from sketchselect.linalg.validation import first_nonfinite


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 3, 64])
def test_every_place_is_seen(dtype, width):
    rng = np.random.default_rng(width)
    for value in (np.nan, np.inf, -np.inf):
        for place in rng.choice(50 * width, 20, replace=False):
            X = rng.standard_normal((50, width)).astype(dtype)
            X.flat[place] = value
            first = (place // width, place % width, int(np.isnan(value)), int(np.isinf(value)))
            assert first_nonfinite(X) == first_nonfinite(np.asfortranarray(X)) == first


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_finite_values_of_any_size_are_finite(dtype):
    largest = np.finfo(dtype).max
    for X in (np.full((4, 3), largest, dtype), np.array([[largest, -largest], [largest, 1]], dtype)):
        assert first_nonfinite(X) is None
        assert first_nonfinite(np.hstack([X, X])[:, ::2]) is None
    X = np.full((4, 3), largest, dtype)
    X[2, 1] = np.nan
    assert first_nonfinite(X) == (2, 1, 1, 0)


def test_squares_are_summed_where_blas_sums_them(monkeypatch):
    kinds, dot = [], np.vdot
    monkeypatch.setattr(np, "vdot", lambda a, b: (kinds.append(a.dtype.name), dot(a, b))[1])
    for dtype in (np.float16, np.float32, np.float64):
        assert first_nonfinite(np.ones((50, 3), dtype)) is None
        assert first_nonfinite(np.array([[1, np.nan], [np.inf, 0]], dtype)) == (0, 1, 1, 1)
    assert set(kinds) == {"float32", "float64"}


def test_integers_and_empty_blocks_are_finite():
    assert first_nonfinite(np.ones((3, 2), np.int64)) is None
    assert first_nonfinite(np.empty((0, 2))) is None
