"""Shrinks with products in float32: the stated rounding is above the true one, and float64 where it would matter.

The reference is the Gram matrix in long double.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sketchselect.linalg.sketch import shrink as module
from sketchselect.linalg.sketch.shrink import shrink_block, shrink_factors
from sketchselect.linalg.sketch.single_products import SHARE, SingleProducts

SIZE, P = 4, 700


def rows_of(kind: str, n: int) -> Any:
    """Return rows whose products round in one direction, cancel, lose digits, or are far from 1."""
    rng = np.random.default_rng(len(kind))
    X = rng.standard_normal((n, P))
    if kind == "one direction":
        X = np.where(np.arange(n)[:, None] % 2, 1 + 2.0**-13, 1 + 2.0**-12) * np.ones(P)
        X += 0.3 * rng.standard_normal((n, P)).round(2)
    elif kind == "unequal rows":
        X *= 10.0 ** rng.uniform(-3, 3, n)[:, None]
    elif kind == "unequal columns":
        X *= 10.0 ** rng.uniform(-3, 0, P)
    elif kind == "tiny":
        X *= 1e-30
    elif kind == "huge":
        X *= 1e30
    return X


KINDS = ["noise", "one direction", "unequal rows", "unequal columns", "tiny", "huge"]


def gap(computed: Any, rows: Any) -> float:
    """Return the spectral norm of the error of the lower triangle of a Gram matrix."""
    wide = rows.astype(np.longdouble)
    low = np.tril(computed.astype(np.longdouble) - wide @ wide.T).astype(float)
    return float(np.linalg.norm(low + np.tril(low, -1).T, 2))


@pytest.mark.parametrize("kind", KINDS)
def test_the_error_of_a_gram_matrix_is_within_its_bound(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    filled = []
    fill = SingleProducts._fill

    def recorded(self: Any, gram: Any, rows: Any, *rest: Any) -> float:
        error = fill(self, gram, rows, *rest)
        filled.append((gap(gram, rows), error, bool(rest[-1])))
        return error

    monkeypatch.setattr(SingleProducts, "_fill", recorded)
    # The bound does not depend on what is lost: here nothing is refused.
    monkeypatch.setattr("sketchselect.linalg.sketch.single_products.SHARE", 1e9)
    X = rows_of(kind, 120).astype(np.float32)
    shrink_block(X, SIZE, np.zeros(P), np.ones(120))
    assert len(filled) > 10
    assert all(0 < true <= error for true, error, _ in filled)
    # The sketch is taken for orthogonal rows for ever, so that the bound grows, and holds all the same.
    assert not any(renewed for *_, renewed in filled)


def test_the_gram_matrix_of_the_sketch_is_renewed_before_its_drift_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    renewed, fill = [], SingleProducts._fill

    def recorded(self: Any, *rest: Any) -> float:
        renewed.append(rest[-1])
        return fill(self, *rest)

    monkeypatch.setattr(SingleProducts, "_fill", recorded)
    X = rows_of("noise", 4000).astype(np.float32)
    shrink_block(X, SIZE, np.zeros(P), np.ones(len(X)))
    assert 0 < sum(renewed) < len(renewed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_sketch_with_products_in_float32_is_one_of_the_rows(kind: str, weighted: bool) -> None:
    n = 400
    X = rows_of(kind, n).astype(np.float32)
    w = np.random.default_rng(0).uniform(0, 3, n) if weighted else np.ones(n)
    shift = X.mean(axis=0, dtype=np.float64)
    D = np.sqrt(w)[:, None] * (X - shift)
    B, delta, sums, squares = shrink_block(X, SIZE, shift, w)
    rounding = 1e-12 * float((D**2).sum())
    difference = np.linalg.eigvalsh(D.T @ D - B.T @ B)
    assert difference[0] >= -rounding
    assert difference[-1] <= delta + rounding
    exact, loss = shrink_block(X.astype(float), SIZE, shift, w)[:2]
    assert delta <= loss * (1 + 3 * SHARE)
    assert (B.dtype, len(B)) == (exact.dtype, len(exact))
    assert np.allclose(squares, (D**2).sum(axis=0))
    assert np.allclose(sums, (np.sqrt(w)[:, None] * D).sum(axis=0), atol=1e-9 * np.sqrt(w.sum() * squares.max()))


def test_products_are_in_float32_for_noise_and_in_float64_where_little_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []

    def counted(gram: Any, size: int) -> Any:
        shapes.append(gram.shape)
        return shrink_factors(gram, size)

    rng = np.random.default_rng(1)
    noise = rng.standard_normal((300, P)).astype(np.float32)
    low_rank = (rng.integers(-3, 4, (300, 2)) @ rng.integers(-3, 4, (2, P))).astype(np.float32)
    repeated = np.repeat(noise[:3], 100, axis=0)
    steep = (noise * (1.0 + np.arange(P)) ** -6.0).astype(np.float32)
    in_float32 = {}
    for name, X in {"noise": noise, "low rank": low_rank, "repeated": repeated, "steep": steep}.items():
        results = [shrink_block(rows, SIZE, np.zeros(P), np.ones(300)) for rows in (X, X.astype(float))]
        in_float32[name] = not np.array_equal(results[0][0], results[1][0])
        assert results[0][1] == results[1][1] or in_float32[name]
    assert in_float32 == {"noise": True, "low rank": False, "repeated": False, "steep": False}
    monkeypatch.setattr(module, "shrink_factors", counted)
    shrink_block(low_rank, SIZE, np.zeros(P), np.ones(300))
    assert len(shapes) == -(-(300 - 3) // (int(2.4 * SIZE) - 3)), "a shrink was computed twice"
