"""The kernels that centre rows and add up columns, on every remainder of rows, against NumPy."""

from typing import Any

import numpy as np
import pytest

from sketchselect.errors import BadBlock, NotFinite
from sketchselect.linalg.centering import block_mean, center_into, center_scaled, check_squares

TYPES = [np.float64, np.float32, np.uint8, np.int64]


def made(n: int, dtype: Any) -> tuple[Any, Any, Any]:
    """Return a block of 7 columns, weights and a shift."""
    rng = np.random.default_rng(n)
    block = (20 * rng.random((n, 7))).astype(dtype)
    return block, rng.uniform(0, 3, n), rng.standard_normal(7)


@pytest.mark.share(15)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", range(10))
def test_rows_are_centred_and_added_up(n: int, dtype: Any) -> None:
    block, w, shift = made(n, dtype)
    out, sums, squares = np.full((n, 9), np.nan), np.ones(7), np.ones(7)
    center_into(block, shift, w, out, sums, squares, offset=2)
    D = block.astype(float) - shift
    assert np.isnan(out[:, :2]).all()
    assert np.allclose(out[:, 2:], np.sqrt(w)[:, None] * D, rtol=1e-14, atol=1e-13)
    assert np.allclose(sums, 1 + w @ D, rtol=1e-13, atol=1e-12)
    assert np.allclose(squares, 1 + w @ D**2, rtol=1e-13, atol=1e-12)


@pytest.mark.parametrize("n", range(10))
def test_rows_are_centred_in_single_precision_with_products_in_double(n: int) -> None:
    block, w, shift = made(n, np.float32)
    targets = np.random.default_rng(0).standard_normal((n, 2))
    scale = 2.0 ** np.arange(-3, 4)
    out, sums, squares, cross = np.empty((n, 7), np.float32), np.zeros(7), np.zeros(7), np.zeros((2, 7))
    center_scaled(block, shift, scale, w, targets, out, sums, squares, cross)
    D = block.astype(float) - shift
    assert np.allclose(out, np.sqrt(w)[:, None] * D * scale, rtol=2.0**-23, atol=0)
    assert np.allclose(sums, w @ D, rtol=1e-13, atol=1e-12)
    assert np.allclose(squares, w @ D**2, rtol=1e-13, atol=1e-12)
    assert np.allclose(cross, (np.sqrt(w)[:, None] * targets).T @ D, rtol=1e-12, atol=1e-12)


@pytest.mark.share(20)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", range(1, 10))
@pytest.mark.parametrize("weighted", [False, True])
def test_the_mean_of_a_block(n: int, dtype: Any, weighted: bool) -> None:
    block, w, _ = made(n, dtype)
    weight, mean = block_mean(block, w if weighted else None)
    w = w if weighted else np.ones(n)
    assert weight == pytest.approx(w.sum(), rel=1e-14)
    assert np.allclose(mean, np.average(block.astype(float), axis=0, weights=w), rtol=1e-13, atol=1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_values_that_are_not_finite_are_named(value: float, dtype: Any) -> None:
    block = np.ones((6, 3), dtype)
    block[5, 1] = value
    with pytest.raises(NotFinite, match="row 45, column 1"):
        block_mean(block, None, 40)


@pytest.mark.parametrize("square", [np.nan, np.inf, 1e300])
def test_squares_that_leave_float64_are_named(square: float) -> None:
    block = np.array([[1.0, 2.0], [1.0, 1e200]])
    check_squares(np.array([1.0, 9e299]), block)
    with pytest.raises(BadBlock, match="row 1, column 1"):
        check_squares(np.array([1.0, square]), block)
