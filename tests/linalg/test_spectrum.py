"""Directions of the rows of a sketch, against the singular value decomposition of LAPACK."""

from __future__ import annotations

import numpy as np
import pytest

from sketchselect.linalg import spectrum
from sketchselect.linalg.spectrum import row_directions, subspace_angle, symmetric_directions

UNITS = 1e-13


@pytest.mark.parametrize("decades", [0, 1, 3, 6, 9, 14])
@pytest.mark.parametrize("scaling", [0, 3, 10])
def test_directions_are_those_of_an_svd_however_close_the_rows(decades: int, scaling: int) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        m = int(rng.integers(2, 20))
        p = m + int(rng.integers(1, 200))
        left, right = (np.linalg.qr(rng.standard_normal((n, m)))[0] for n in (m, p))
        rows = (left * 10.0 ** -rng.uniform(0, decades, m)) @ right.T
        rows *= 10.0 ** (rng.uniform(-scaling, 0, m)[:, None] + rng.uniform(-100, 100))
        result = row_directions(rows)
        values = np.linalg.svd(rows, compute_uv=False)
        top = values[0]
        np.testing.assert_allclose(np.sqrt(result.squares) / top, values / top, rtol=0, atol=UNITS)
        np.testing.assert_allclose(result.vectors @ result.vectors.T, np.eye(m), rtol=0, atol=UNITS)
        images = rows @ result.vectors.T
        np.testing.assert_allclose(np.linalg.norm(images, axis=0) / top, values / top, rtol=0, atol=UNITS)
        np.testing.assert_allclose(images @ result.vectors / top, rows / top, rtol=0, atol=UNITS)


@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (4, 9)])
def test_dependent_and_empty_rows_have_directions_too(shape: tuple[int, int]) -> None:
    rows = np.outer(np.arange(shape[0]), np.ones(shape[1]))
    result = row_directions(rows)
    assert result.squares[0] == pytest.approx((rows**2).sum())
    assert (result.squares[1:] <= 1e-13 * result.squares[0]).all()
    np.testing.assert_allclose(result.vectors @ result.vectors.T, np.eye(len(result.vectors)), atol=UNITS)


@pytest.mark.parametrize("rank", [1, 7, 25])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_pairs_of_a_gram_matrix_of_few_rows_are_those_of_all_its_columns(rank: int, offset: float) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        rows = offset + rng.standard_normal((rank, 100)) * 10.0 ** rng.uniform(-4, 0, 100)
        # Copies and zeros: the order of the pivots is not that of the columns.
        rows[:, 40:60], rows[:, 90:] = rows[:, :20], 0.0
        gram = rows.T @ rows
        few, every = symmetric_directions(gram, rank), symmetric_directions(gram)
        top, n = every.squares[0], few.squares.size
        assert 1 <= n <= rank
        np.testing.assert_allclose(few.squares / top, every.squares[:n] / top, rtol=0, atol=1e-14 * 100)
        assert every.squares[n:].sum() <= 1e-13 * top
        np.testing.assert_allclose(few.vectors @ few.vectors.T, np.eye(n), rtol=0, atol=UNITS)
        again = (few.vectors.T * few.squares) @ few.vectors
        np.testing.assert_allclose(again / top, gram / top, rtol=0, atol=UNITS)


def test_nothing_has_no_pairs_and_many_rows_have_all() -> None:
    assert symmetric_directions(np.zeros((8, 8)), 2).squares.size == 0
    assert symmetric_directions(np.eye(8), 3).squares.size == 8


@pytest.mark.parametrize("decades", [0, 4, 7, 14])
def test_vectors_in_place_of_the_rows_are_the_same(decades: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of four bands; of 14 decades they are so dependent that a decomposition of their own is needed."""
    monkeypatch.setattr(spectrum, "_BAND", 32)
    rng = np.random.default_rng(decades)
    left, right = np.linalg.qr(rng.standard_normal((9, 9)))[0], np.linalg.qr(rng.standard_normal((100, 9)))[0]
    rows = (left * np.logspace(0, -decades, 9)) @ right.T
    beside, before = row_directions(rows), rows.copy()
    assert np.array_equal(rows, before)
    instead = row_directions(rows, in_place=True)
    assert np.array_equal(instead.squares, beside.squares)
    assert np.array_equal(instead.vectors, beside.vectors)
    images = before @ instead.vectors.T
    np.testing.assert_allclose(images @ instead.vectors, before, rtol=0, atol=UNITS * np.sqrt(instead.squares[0]))


def test_no_direction_has_no_angle() -> None:
    assert subspace_angle(np.zeros(0), 0, 0.0, 3) is None
    assert subspace_angle(np.array([4.0]), 0, 0.0, 3) is None
    assert subspace_angle(np.array([4.0]), 2, 0.0, 3) is None
