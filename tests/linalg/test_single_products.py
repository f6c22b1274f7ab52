"""Shrinks with products in float32: the stated rounding is above the true one, and float64 where it would matter.

The reference are products in long double.
"""

import tracemalloc
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.errors import NotFinite
from sketchselect.linalg import shrink
from sketchselect.linalg.shrink import shrink_block, shrink_factors
from sketchselect.summaries import BatchDirections

SIZE, P = 4, 300


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


Sketch = shrink._SingleSketch


def edges_of(n: int, step: int = 6) -> Any:
    return np.unique(np.append(np.arange(0, n, step), n))


def recorded_shrinks(X: Any, monkeypatch: pytest.MonkeyPatch, shift: Any = None, weights: Any = None) -> list[dict]:
    """Return what each shrink of the rows read, computed and stated, in units of the rows; none is refused."""
    monkeypatch.setattr(shrink, "SHARE", 1e9)
    shift = np.zeros(P) if shift is None else shift
    weights = np.ones(len(X)) if weights is None else weights
    D = np.sqrt(weights.astype(np.longdouble))[:, None] * (X.astype(np.longdouble) - shift)
    edges, steps, row = edges_of(len(X)), [], 0
    sketch = Sketch(np.empty((2, SIZE - 1 + 6, P), np.float32), SIZE)
    moments = np.zeros((2, P))

    def unit() -> float:
        return float(np.ldexp(1.0, sketch._exponent or 0))

    def filled(gram: Any, exponent: int, renew: bool) -> tuple[float, float]:
        error, energy = fill(sketch, gram, exponent, renew)
        steps[-1] |= {"gram": gram.copy(), "error": error, "energy": energy, "renewed": renew}
        return error, energy

    def factored(gram: Any, size: int) -> Any:
        result = shrink_factors(gram, size)
        steps[-1]["matrix"] = result[0]
        return result

    fill = Sketch._fill
    monkeypatch.setattr(sketch, "_fill", filled)
    monkeypatch.setattr(shrink, "shrink_factors", factored)
    for a, b in pairwise(edges):
        old = sketch._buffer[: len(sketch._norms)].astype(np.longdouble) * unit()
        before = sketch.lost, sketch.gained
        steps.append({"rows": np.vstack([old, D[row:b]])})
        assert sketch.shrink(X[a:b], shift, weights[a:b], moments)
        steps[-1] |= {
            "sketch": sketch._buffer[: len(sketch._norms)].astype(np.longdouble) * unit(),
            "norms": sketch._norms,
            "drift": sketch._drift,
            "lost": sketch.lost - before[0],
            "gained": sketch.gained - before[1],
        }
        row = b
    return steps


def norm(matrix: Any) -> float:
    return float(np.linalg.norm(matrix.astype(float), 2))


@pytest.mark.share(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_errors_of_products_are_within_their_bounds(
    kind: str, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = rows_of(kind, 120).astype(np.float32)
    w = np.random.default_rng(0).uniform(0, 3, 120) if weighted else None
    steps = recorded_shrinks(X, monkeypatch, X.mean(axis=0, dtype=np.float64), w)
    assert len(steps) == 20
    for step in steps:
        rows, sketch = step["rows"], step["sketch"]
        low = np.tril(step["gram"] - rows @ rows.T)
        assert 0 < norm(low + np.tril(low, -1).T) <= step["error"]
        assert float((rows**2).sum()) <= step["energy"]
        assert norm(sketch @ sketch.T - np.diag(step["norms"])) <= step["drift"]
        difference = np.linalg.eigvalsh((rows.T @ rows - sketch.T @ sketch).astype(float))
        rounding = 1e-14 * norm(rows) ** 2
        assert -np.minimum(difference + rounding, 0).sum() <= step["gained"]
        assert difference[-1] <= step["lost"] + rounding


@pytest.mark.parametrize("n_columns", [shrink.CHUNK * shrink.RUN * k + 7 for k in (0, 1, 2)])
def test_the_errors_of_sums_of_many_chunks_are_within_their_bound(n_columns: int) -> None:
    rng = np.random.default_rng(0)
    # Products that all round in one direction: the sums in float32 are off by far more than random ones.
    rows = (1 + 2.0**-12 + 2.0**-20 * rng.integers(0, 9, (24, n_columns))).astype(np.float32)
    sketch = Sketch(np.stack([rows, rows]), 10)
    wide = rows.astype(np.longdouble)
    exact = wide @ wide.T
    sketch._norms = np.diag(exact)[:9].astype(float)
    gram = np.zeros((24, 24))
    error, energy = sketch._fill(gram, 0, False)
    low = np.tril(gram - exact)[9:]
    assert 0 < norm(low) <= error
    norms = np.sqrt(np.diag(exact))
    assert (np.abs(low) <= shrink.ENTRY * norms[9:, None] * norms).all()
    assert float((wide**2).sum()) <= energy


def test_the_gram_matrix_of_the_sketch_is_renewed_before_its_drift_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    renewed, fill = [], Sketch._fill

    def recorded(self: Any, *rest: Any) -> tuple[float, float]:
        renewed.append(rest[-1])
        return fill(self, *rest)

    monkeypatch.setattr(Sketch, "_fill", recorded)
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
    B, delta, gained, sums, squares = shrink_block(X, SIZE, shift, w)
    rounding = 1e-12 * float((D**2).sum())
    difference = np.linalg.eigvalsh(D.T @ D - B.T @ B)
    assert difference[0] >= -rounding - gained
    assert difference[-1] <= delta + rounding
    exact, _, zero = shrink_block(X.astype(float), SIZE, shift, w)[:3]
    assert zero == 0
    assert (B.dtype, len(B)) == (exact.dtype, len(exact))
    assert delta * SIZE <= 1.25 * float((D**2).sum())
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
        in_float32[name] = results[0][2] > 0
        assert in_float32[name] or all(np.array_equal(a, b) for a, b in zip(*results, strict=True))
    assert in_float32 == {"noise": True, "low rank": False, "repeated": False, "steep": False}
    for function in (shrink, shrink):
        monkeypatch.setattr(function, "shrink_factors", counted)
    shrink_block(low_rank.astype(float), SIZE, np.zeros(P), np.ones(300))
    steps = len(shapes)
    shrink_block(low_rank, SIZE, np.zeros(P), np.ones(300))
    assert len(shapes) == 2 * steps + 1, "one shrink shows that float32 is not enough"


def test_a_new_sketch_begins_where_the_strongest_directions_grow_too_much() -> None:
    rng = np.random.default_rng(2)
    n = 400
    X = (rng.standard_normal((n, P)) + 8 * rng.standard_normal((n, 1))).astype(np.float32)
    edges, moments = edges_of(n), np.zeros((2, P))
    done, sketches, lost, gained = shrink.shrink_single(X, edges, SIZE, np.zeros(P), np.ones(n), moments)
    assert done == n
    assert len(sketches) > 1
    assert np.allclose(moments, [X.sum(axis=0, dtype=float), (X.astype(float) ** 2).sum(axis=0)])
    X = X.astype(float)
    B = np.vstack(sketches)
    difference = np.linalg.eigvalsh(X.T @ X - B.T @ B)
    rounding = 1e-13 * n * norm(X) ** 2
    assert -gained - rounding <= difference[0] <= difference[-1] <= lost + rounding
    B, lost, gained, *_ = shrink_block(X.astype(np.float32), SIZE, np.zeros(P), np.ones(n))
    assert len(B) == SIZE - 1
    difference = np.linalg.eigvalsh(X.T @ X - B.T @ B)
    assert -gained - rounding <= difference[0] <= difference[-1] <= lost + rounding


def test_numbers_that_become_too_large_for_float32_are_multiplied_in_float64() -> None:
    X = rows_of("noise", 300).astype(np.float32)
    X[150:] *= 1e18
    B, lost, gained, _, squares = shrink_block(X, SIZE, np.zeros(P), np.ones(300))
    D = X.astype(float)
    assert np.allclose(squares, (D**2).sum(axis=0))
    difference = np.linalg.eigvalsh(D.T @ D - B.T @ B)
    assert difference[0] >= -1e-11 * (D**2).sum() - gained
    assert difference[-1] <= lost + 1e-11 * (D**2).sum()


@pytest.mark.parametrize("exponent", [-350, -270, 170, 350])
def test_bounds_are_those_of_the_rows_in_any_units(exponent: int) -> None:
    """Products of two squared norms would leave float64, and the bound of the rounding with them."""
    X = rows_of("noise", 300).astype(np.float32)
    weights = np.full(300, np.ldexp(1.0, 2 * exponent))
    ours, plain = (shrink_block(X, SIZE, np.zeros(P), w)[1:3] for w in (weights, np.ones(300)))
    assert plain[1] > 0
    assert np.allclose(np.ldexp(ours, -2 * exponent), plain, rtol=1e-9, atol=0)


@pytest.mark.parametrize("row", [2, 150, 299])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_named_by_their_row_of_the_block(row: int, value: float) -> None:
    X = rows_of("noise", 300).astype(np.float32)
    X[row, 7] = value
    with pytest.raises(NotFinite, match=f"row {1000 + row}, column 7"):
        shrink_block(X, SIZE, np.zeros(P), np.ones(300), 1000)


def test_memory_is_enough_for_sketches_of_a_block_and_rows_in_float64_behind_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size, p, shrink = 20, 2000, Sketch.shrink
    accepted = iter(())

    def refused_every_fifth_time(self: Any, *rest: Any) -> bool:
        return next(accepted, False) and shrink(self, *rest)

    monkeypatch.setattr(Sketch, "shrink", refused_every_fifth_time)
    X = np.random.default_rng(3).standard_normal((40 * size, p)).astype(np.float32)
    for summary in (sks.FrequentDirections(size), BatchDirections(size)):
        for traced in (False, True):
            # Four sketches of four steps each, and all others in float64.
            accepted = iter(3 * [True, True, True, True, False] + [True] * 4)
            if traced:
                tracemalloc.start()
            sketch = summary.from_block(X)
            peak = tracemalloc.get_traced_memory()[1] if traced else 0
            tracemalloc.stop()
        assert sketch.single_rounding > 0
        assert peak <= summary.working_nbytes(p) + summary.projected_nbytes(p)
