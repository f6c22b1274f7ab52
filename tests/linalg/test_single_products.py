"""Shrinks and Gram matrices with products in float32: rounding as stated, and float64 where it would matter.

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
from sketchselect.linalg.comoments import _SingleProducts, block_gram, centered_gram
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


def recorded_shrinks(
    X: Any, monkeypatch: pytest.MonkeyPatch, shift: Any, weights: Any, n_apart: int, size: int = 8
) -> list[dict]:
    """Return what each shrink of the rows read, computed and stated, in units of the sketch; none is refused."""
    monkeypatch.setattr(shrink, "SHARE", 1e9)
    monkeypatch.setattr(shrink, "_n_apart", lambda *_: n_apart)
    D = np.sqrt(weights.astype(np.longdouble))[:, None] * (X.astype(np.longdouble) - shift)
    edges, steps = edges_of(len(X), 10), []
    sketch = Sketch(np.empty((2, size - 1 + 10, P), np.float32), size)
    moments = np.zeros((2, P))

    def rows_now() -> Any:
        """Return the rows that the sketch stands for, exactly but for rounding of long double."""
        basis = sketch._basis.astype(np.longdouble)
        rows = sketch._buffer[: len(sketch._norms)].astype(np.longdouble)
        return rows + (sketch._coordinates - rows @ basis.T) @ basis

    def filled(gram: Any, coordinates: Any, renew: bool) -> tuple[float, Any]:
        error, rest = fill(sketch, gram, coordinates, renew)
        steps[-1] |= {"gram": gram.copy(), "error": error, "rest": rest, "renewed": renew}
        steps[-1]["remainders"] = sketch._buffer[: len(gram)].astype(np.longdouble)
        return error, rest

    fill = Sketch._fill
    monkeypatch.setattr(sketch, "_fill", filled)
    n_begun, refused = sketch.begin(X, edges, shift, weights, 0, moments)
    assert refused is None
    assert len(sketch._basis) == n_apart
    begun, unit = rows_now(), np.ldexp(np.longdouble(1), -sketch._exponent)
    D = D * unit
    steps.append({"rows": D[: edges[n_begun]], "sketch": begun, "lost": sketch.lost, "gained": sketch.gained})
    for a, b in pairwise(edges[n_begun:]):
        before = sketch.lost, sketch.gained
        steps.append({"rows": np.vstack([rows_now(), D[a:b]])})
        assert sketch.shrink(X[a:b], shift, weights[a:b], moments)
        steps[-1] |= {
            "sketch": rows_now(),
            "norms": sketch._norms,
            "drift": sketch._drift,
            "lost": sketch.lost - before[0],
            "gained": sketch.gained - before[1],
        }
    for step in steps:
        step["lost"], step["gained"] = (np.ldexp(step[name], -2 * sketch._exponent) for name in ("lost", "gained"))
    return steps


def norm(matrix: Any) -> float:
    return float(np.linalg.norm(matrix.astype(float), 2))


@pytest.mark.share(4)
@pytest.mark.parametrize("n_apart", [0, 1, 4, 7])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_errors_of_products_are_within_their_bounds(
    kind: str, weighted: bool, n_apart: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = rows_of(kind, 200).astype(np.float32)
    w = np.random.default_rng(0).uniform(0, 3, 200) if weighted else np.ones(200)
    steps = recorded_shrinks(X, monkeypatch, X.mean(axis=0, dtype=np.float64), w, n_apart)
    assert len(steps) == (20 if n_apart == 0 else 19)
    for step in steps:
        rows, sketch = step["rows"], step["sketch"]
        difference = np.linalg.eigvalsh((rows.T @ rows - sketch.T @ sketch).astype(float))
        rounding = 1e-14 * norm(rows) ** 2
        assert -np.minimum(difference + rounding, 0).sum() <= step["gained"]
        assert difference[-1] <= step["lost"] + rounding
    for step in steps[1:]:
        rows, sketch = step["rows"], step["sketch"]
        low = np.tril(step["gram"] - rows @ rows.T)
        assert 0 < norm(low + np.tril(low, -1).T) <= step["error"]
        assert (np.linalg.norm(step["remainders"].astype(float), axis=1) <= step["rest"]).all()
        assert norm(sketch @ sketch.T - np.diag(step["norms"])) <= step["drift"]


def test_directions_that_are_taken_out_make_float32_enough_where_the_spectrum_decays() -> None:
    rng = np.random.default_rng(5)
    n, size = 2000, 40
    X = rng.standard_normal((n, P)) + rng.standard_normal((n, 4)) @ (200 * rng.standard_normal((4, P)))
    X = X.astype(np.float32)
    B, lost, gained, *_ = shrink_block(X, size, np.zeros(P), np.ones(n))
    assert gained > 0
    exact, least, _, *_ = shrink_block(X.astype(float), size, np.zeros(P), np.ones(n))
    assert len(B) == len(exact)
    assert least < lost < 17 / 16 * least
    D = X.astype(float)
    difference = np.linalg.eigvalsh(D.T @ D - B.T @ B)
    rounding = 1e-13 * norm(D) ** 2
    assert -gained - rounding <= difference[0] <= difference[-1] <= lost + rounding


@pytest.mark.parametrize("n_columns", [shrink.CHUNK * shrink.RUN * k + 7 for k in (0, 1, 2)])
def test_the_errors_of_sums_of_many_chunks_are_within_their_bound(n_columns: int) -> None:
    rng = np.random.default_rng(0)
    # Products that all round in one direction: the sums in float32 are off by far more than random ones.
    rows = (1 + 2.0**-12 + 2.0**-20 * rng.integers(0, 9, (24, n_columns))).astype(np.float32)
    sketch = Sketch(np.stack([rows, rows]), 10)
    wide = rows.astype(np.longdouble)
    exact = wide @ wide.T
    sketch._buffer, sketch._norms = rows, np.diag(exact)[:9].astype(float)
    sketch._rest, sketch._drift = np.sqrt(sketch._norms), 0.0
    gram = np.zeros((24, 24))
    error, rest = sketch._fill(gram, np.empty((24, 0)), False)
    low = np.tril(gram - exact)[9:]
    assert 0 < norm(low) <= error
    norms = np.sqrt(np.diag(exact))
    assert (np.abs(low) <= shrink.ENTRY * norms[9:, None] * norms).all()
    assert (norms.astype(float) <= rest * (1 + 1e-15)).all()


def test_the_gram_matrix_of_the_sketch_is_renewed_before_its_drift_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    renewed, fill = [], Sketch._fill

    def recorded(self: Any, *rest: Any) -> tuple[float, Any]:
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
        (B, delta, *_), (exact, least, *_) = results
        rounding = 1e-12 * norm(X) ** 2
        assert in_float32[name] or abs(delta - least) + norm(B.T @ B - exact.T @ exact) <= rounding
    assert in_float32 == {"noise": True, "low rank": False, "repeated": False, "steep": False}
    for function in (shrink, shrink):
        monkeypatch.setattr(function, "shrink_factors", counted)
    shrink_block(low_rank.astype(float), SIZE, np.zeros(P), np.ones(300))
    steps = len(shapes)
    shrink_block(low_rank, SIZE, np.zeros(P), np.ones(300))
    assert len(shapes) == 2 * steps, "the first shrinks show that float32 is not enough"


def test_a_new_sketch_begins_where_the_strongest_directions_grow_too_much() -> None:
    rng = np.random.default_rng(2)
    n = 400
    X = (rng.standard_normal((n, P)) + 8 * rng.standard_normal((n, 1))).astype(np.float32)
    edges, moments = edges_of(n), np.zeros((2, P))
    done, sketches, initial, lost, gained = shrink.shrink_single(X, edges, SIZE, np.zeros(P), np.ones(n), 0, moments)
    assert (done, initial) == (len(edges) - 1, None)
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


def test_rows_that_become_too_large_while_a_sketch_begins_are_multiplied_in_float64() -> None:
    Z = np.random.default_rng(0).standard_normal
    X = Z((400, P))
    X[:32] = 1e-30 * (Z((32, 3)) @ Z((3, P)))
    X[32:] *= 1e12
    B, lost, gained, *_ = shrink_block(X.astype(np.float32), 20, np.zeros(P), np.ones(400))
    D = X.astype(np.float32).astype(float)
    assert len(B) == 19
    difference = np.linalg.eigvalsh(D.T @ D - B.T @ B)
    rounding = 1e-12 * norm(D) ** 2
    assert -gained - rounding <= difference[0] <= difference[-1] <= lost + rounding


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
            # Four sketches of four steps each after their first ones, and all others in float64.
            accepted = iter(3 * [True, True, True, True, False] + [True] * 4)
            if traced:
                tracemalloc.start()
            sketch = summary.from_block(X)
            peak = tracemalloc.get_traced_memory()[1] if traced else 0
            tracemalloc.stop()
        assert sketch.single_rounding > 0
        assert peak <= summary.working_nbytes(p) + summary.projected_nbytes(p)


def rows_with_edges(n: int = 2000, p: int = 120) -> Any:
    """Return standardised rows some of whose columns are of one value but for the same one or two rows."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, p))
    X[:, :6] = 0.0
    X[7, :3], X[[8, 11], 3], X[[8, 11], 4], X[11, 5] = [1, 2, 3], [1, 2], [2, 3], 4
    return ((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32)


def refused(kind: str) -> Any:
    """Return rows of which float32 would change the rank, or the squares in some direction by much."""
    rng = np.random.default_rng(4)
    X, line = rng.standard_normal((2000, 120)), np.arange(2000)[:, None] / 2000
    if kind == "low rank":
        X = X[:, :30] @ rng.standard_normal((30, 120))
    elif kind == "few directions missing":
        X = X[:, :116] @ rng.standard_normal((116, 120))
    elif kind == "a strong direction":
        X += 300 * rng.standard_normal((2000, 1))
    elif kind == "smooth":
        X = np.sin(line * np.arange(1, 121)) + 1e-3 * X
    elif kind == "mostly one value":
        X = 1.37 * (line[:, :1] > 0.9) + 0.1 * np.where(rng.random((2000, 120)) < 0.05, X, 0.0) + 0.4
    elif kind == "nearly copies":
        X[:, 0] = X[:, 1] + 1e-4 * X[:, 2:12].sum(axis=1)
    elif kind == "categories":
        X = (np.eye(120)[rng.integers(0, 120, 2000)] - 1 / 120) * 7.3
    return X.astype(np.float32)


@pytest.mark.parametrize("weighted", [False, True])
def test_columns_that_depend_on_others_do_so_in_products_in_float32(weighted: bool) -> None:
    X = rows_with_edges()
    weights = np.random.default_rng(0).lognormal(size=len(X)) if weighted else None
    *_, gram, squares, rounding = block_gram(X, weights, keeps_rank=True)
    exact = centered_gram(X, weights)[2]
    assert rounding > 0
    roots = np.outer(np.sqrt(squares), np.sqrt(squares))
    ours, expected = np.linalg.eigvalsh(gram / roots), np.linalg.eigvalsh(exact / roots)
    assert np.abs(ours[expected < 1e-10]).max() < 1e-10
    assert (expected < 1e-10).sum() >= 3
    np.testing.assert_allclose(ours[expected > 1e-10], expected[expected > 1e-10], rtol=1e-2)
    np.testing.assert_array_equal(gram, gram.T)
    np.testing.assert_array_equal(gram.diagonal(), squares)


def test_rounding_in_float64_of_one_sign_in_many_rows_is_no_independent_direction() -> None:
    rng = np.random.default_rng(6)
    X = rng.standard_normal((40_000, 64))
    X[:, :3] = -0.01
    X[7, :3] = 70, 90, 140
    *_, squares, rounding = block_gram(X.astype(np.float32), keeps_rank=True)
    assert rounding > 0
    assert (squares > 0).all()


FEW_STRONG = ["low rank", "few directions missing", "a strong direction", "mostly one value", "smooth"]


@pytest.mark.parametrize("kind", [*FEW_STRONG, "nearly copies", "categories", "wide"])
def test_products_are_in_float64_where_a_direction_is_near_the_rounding_of_float32(kind: str) -> None:
    X = refused(kind)[: 400 if kind == "wide" else None]
    weight, mean, gram, squares, rounding = block_gram(X, keeps_rank=True)
    assert rounding == 0
    for ours, reference in zip((weight, mean, gram, squares), centered_gram(X), strict=True):
        np.testing.assert_array_equal(ours, reference)


def rows_of_products(X: Any, monkeypatch: Any) -> tuple[int, bool]:
    """Return how many rows had products in float32, and whether these were kept."""
    rows: list[int] = []
    add = _SingleProducts.add
    with monkeypatch.context() as patch:
        patch.setattr(_SingleProducts, "add", lambda self, a, b: (rows.append(b - a), add(self, a, b))[1])
        kept = block_gram(X, keeps_rank=True)[4] > 0
    return sum(rows), kept


@pytest.mark.parametrize("kind", ["low rank", "smooth"])
def test_rows_without_a_rank_are_given_up_after_a_sample(kind: str, monkeypatch: Any) -> None:
    rows, kept = rows_of_products(refused(kind), monkeypatch)
    assert rows == 256
    assert not kept


@pytest.mark.parametrize("kind", ["constant", "nearly copies"])
def test_rows_are_not_given_up_for_a_sample_unlike_the_others(kind: str, monkeypatch: Any) -> None:
    X = np.random.default_rng(6).standard_normal((2000, 120))
    if kind == "constant":
        X[:256, :20] = 0.7
    else:
        X[:256, :20] = X[:256, 20:40] + 1e-2 * X[:256, :20]
    assert rows_of_products(X.astype(np.float32), monkeypatch) == (2000, True)


def test_products_beside_targets_are_in_float64_where_the_rank_is_kept() -> None:
    X = np.random.default_rng(6).standard_normal((2000, 120)).astype(np.float32)
    ours, reference = block_gram(X, targets=X[:, :1].astype(float), keeps_rank=True), centered_gram(X)
    assert ours[4] == 0
    np.testing.assert_array_equal(ours[2][:-1, :-1], reference[2])


def test_a_sample_without_weight_or_of_constant_columns_is_no_error() -> None:
    X = np.random.default_rng(5).standard_normal((1000, 64)).astype(np.float32)
    X[:, 9] = 2.5
    weights = np.zeros(1000)
    weights[900:] = 1.0
    for w in (weights, np.where(np.arange(1000) == 3, 1.0, 0.0), np.zeros(1000)):
        ours, reference = block_gram(X, w, keeps_rank=True), centered_gram(X, w)
        np.testing.assert_allclose(ours[2], reference[2], atol=1e-4)
    assert block_gram(X, keeps_rank=True)[4] > 0
