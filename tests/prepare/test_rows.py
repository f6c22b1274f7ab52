"""Row steps: unit length at any magnitude, and nothing but the row itself decides its bits."""

import numpy as np
import pytest

from sketchselect.prepare import apply
from sketchselect.prepare.steps import unit_l2


@pytest.mark.parametrize("top", [1.7e308, 1e200, 1.0, 1e-200, 1e-310, 5e-324])
def test_unit_length_at_any_magnitude(top):
    row = unit_l2(np.array([[top, -top, top]]))
    np.testing.assert_allclose(row, np.array([[1, -1, 1]]) / np.sqrt(3), rtol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.uint8])
def test_types_and_rows_of_zeros(dtype):
    X = np.array([[100, 0, 50], [0, 0, 0], [3, 4, 0]], dtype=dtype)
    got = unit_l2(X)
    assert got.dtype == (np.float32 if dtype == np.float32 else np.float64)
    np.testing.assert_allclose((got**2).sum(axis=1), [1, 0, 1], rtol=1e-6)
    assert np.array_equal(X, np.array([[100, 0, 50], [0, 0, 0], [3, 4, 0]], dtype=dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [7, 9001])
def test_the_bits_of_a_row_do_not_depend_on_the_block(dtype, width):
    X = np.random.default_rng(0).standard_normal((40, width)).astype(dtype)
    whole = unit_l2(X)
    assert np.vstack([unit_l2(X[i : i + 1]) for i in range(40)]).tobytes() == whole.tobytes()
    assert unit_l2(np.vstack([X, X[:1] * dtype(1e20)]))[:40].tobytes() == whole.tobytes()
    assert apply(["l2"], X).tobytes() == whole.tobytes()
