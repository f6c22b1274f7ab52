"""Moments where digits are few: float32 rows within the bound that they state, and the triangular factor."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from sketchselect.errors import BadParameter, NotFinite
from sketchselect.linalg.comoments import SINGLE_ROUNDING, block_gram, centered_gram
from sketchselect.summaries import Moments, decode, encode
from sketchselect.summaries.base import Context

from .moment_data import blocks, merged, some_rows

# --- float32 ---------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _products_of_few_columns(monkeypatch):
    """Let few columns, of which float32 saves no time, be multiplied as many are."""
    monkeypatch.setattr("sketchselect.linalg.comoments._FEW_COLUMNS", 1)


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("scale", [1e-18, 1.0, 1e18])
def test_float32_products_are_as_good_as_float32_data(offset, scale):
    rng = np.random.default_rng(3)
    X = ((offset + rng.standard_normal((6000, 8)) @ rng.standard_normal((8, 8))) * scale).astype(np.float32)
    y = X[:, :1].astype(float) + scale * rng.standard_normal((6000, 1))
    w = 10.0 ** rng.uniform(-12, 3, 6000)
    for weights in (None, w):
        total, mean, S, squares, rounding = block_gram(X, weights, 0, y)
        assert rounding == pytest.approx(SINGLE_ROUNDING * squares[:8].sum())
        Z = np.hstack([X, y]).astype(np.longdouble)
        v = np.ones(6000) if weights is None else w
        exact_mean = v @ Z / v.sum()
        D = Z - exact_mean
        exact = ((D * v[:, None]).T @ D).astype(float)
        size = np.sqrt(np.outer(exact.diagonal(), exact.diagonal()))
        error = np.abs(S - exact) / size
        assert total == pytest.approx(v.sum(), rel=1e-13)
        assert np.allclose(mean, exact_mean.astype(float), rtol=1e-12, atol=1e-12 * scale)
        assert error[:8, :8].max() <= 3e-7
        assert error.diagonal().max() <= 1e-12
        assert error[:, 8].max() <= 1e-11
        assert (S == S.T).all()
        assert (squares == S.diagonal()).all()


def test_float32_with_a_huge_row_neither_overflows_nor_forgets_the_others():
    X = np.random.default_rng(4).standard_normal((3000, 5)).astype(np.float32)
    X[2500] = 3e38
    _, _, S, _, rounding = block_gram(X)
    exact = centered_gram(X.astype(float))[2]
    assert np.isfinite(S).all()
    assert np.linalg.norm(S - exact, 2) <= rounding == pytest.approx(SINGLE_ROUNDING * np.trace(S))


@pytest.mark.parametrize("kind", ["duplicates", "few values", "heavy tails", "one row of all the energy"])
def test_the_stated_bound_holds_for_what_rounds_worst(kind):
    rng = np.random.default_rng(12)
    X = {
        "duplicates": np.repeat(rng.choice([0.1, 0.7], (4000, 1), p=[0.95, 0.05]), 20, axis=1),
        "few values": rng.choice([0.1, 0.2, 0.9], (4000, 20), p=[0.9, 0.099, 0.001]),
        "heavy tails": rng.standard_cauchy((4000, 20)),
        "one row of all the energy": np.where(np.arange(4000)[:, None] == 700, 1e6, rng.random((4000, 20))),
    }[kind].astype(np.float32)
    assert block_gram(X)[4] > 0
    m = merged(blocks(Moments(), X, n_blocks=3))
    exact = merged(blocks(Moments(), X.astype(float), n_blocks=3))
    gap = np.linalg.norm(m.record.comoment - exact.record.comoment, 2)
    assert 0 < gap <= m.single_rounding
    assert exact.single_rounding == 0
    assert decode(encode(m)).single_rounding == m.single_rounding


def test_files_state_the_rounding_of_the_version_that_wrote_them():
    X = np.random.default_rng(9).standard_normal((900, 4)).astype(np.float32)
    m = Moments().from_block(X)
    scatter = m.centered_squared_norm
    assert decode(encode(m)).single_rounding == m.single_rounding == pytest.approx(260 * 2.0**-24 * scatter)
    # Products were summed over 2048 rows once, and the record had the scatter of their columns.
    older = decode(encode(m._with(replace(m.record, single_scatter=scatter), Context())))
    assert older.single_rounding == pytest.approx(2050 * 2.0**-24 * scatter)
    assert older.product_rounding == pytest.approx(2050 * 2.0**-24)
    both = older.merge(m)
    assert both.single_rounding == pytest.approx(2310 * 2.0**-24 * scatter)


def test_a_row_of_weight_zero_sets_no_scale():
    rng = np.random.default_rng(8)
    X, w = (rng.standard_normal((400, 1)) + 0.1 * rng.standard_normal((400, 9))).astype(np.float32), np.ones(400)
    X[:, 4] = 0.1
    X[7], w[7] = 1e30, 0.0
    _, _, S, _, rounding = block_gram(X, w)
    exact = centered_gram(X.astype(float), w)[2]
    assert 0 < np.linalg.norm(S - exact) <= rounding
    assert (S[4] == 0).all()


def test_indicators_in_float32_stay_exactly_dependent():
    codes = np.random.default_rng(6).choice(4, 5000, p=[0.002, 0.1, 0.3, 0.598])
    X = np.hstack([np.eye(4)[codes], np.random.default_rng(7).standard_normal((5000, 3))]).astype(np.float32)
    assert block_gram(X)[4] == 0
    m = merged(blocks(Moments(), X))
    assert m.single_rounding == 0
    sd = np.sqrt(m.covariance().diagonal())
    smallest = np.linalg.eigvalsh(m.covariance() / np.outer(sd, sd))[0]
    assert abs(smallest) < 1e-13


def exact_scatter(X):
    """Return the scatter of whole numbers, each entry rounded once."""
    Z = X.astype(object)
    n, sums = len(X), X.astype(np.int64).sum(axis=0).astype(object)
    gram = np.dot(Z.T.astype(np.int64), Z.astype(np.int64)).astype(object)
    return np.array([[float(Fraction(g, n)) for g in row] for row in n * gram - np.outer(sums, sums)])


WHOLE = {
    "images": lambda rng: rng.integers(0, 256, (2000, 9)) * (rng.random((2000, 9)) < 0.3),
    "full": lambda rng: rng.integers(0, 200, (255, 70)),
    "the largest": lambda rng: rng.permuted(np.full((1500, 4), 744) + 512 * (np.arange(1500)[:, None] % 2), axis=0),
    "ends of the range": lambda rng: np.where(np.arange(1024)[:, None] % 256 == np.arange(5), 512, 256),
    "rare": lambda rng: (rng.random((3000, 6)) < 0.002) * 200,
    "constants beside": lambda rng: np.where(np.arange(6) % 2, 70_000, rng.integers(-9, 9, (700, 6))),
}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32, np.float64])
def test_products_of_whole_numbers_are_exact_in_any_type(name, dtype):
    X = WHOLE[name](np.random.default_rng(5))
    if dtype == np.uint8 and X.max() > 255:
        X = X // 256
    X = X.astype(dtype)
    _, _, S, _, rounding = block_gram(X)
    exact = exact_scatter(X)
    assert rounding == 0
    # Two roundings: the exact sum of products about a whole number, and what the mean differs from it.
    size = np.sqrt(np.outer(exact.diagonal(), exact.diagonal()))
    assert (np.abs(S - exact) <= 4 * np.finfo(float).eps * size).all()
    assert (S == S.T).all()
    assert (S[:, exact.diagonal() == 0] == 0).all()


@pytest.mark.parametrize("change", ["too large", "weights", "a fraction", "two kinds"])
def test_other_whole_numbers_are_multiplied_in_float64(change):
    rng = np.random.default_rng(6)
    X, w = rng.integers(0, 200, (3000, 4)).astype(np.float32), None
    if change == "too large":
        X[1000:1500, 2] = 1000
    elif change == "a fraction":
        X[2999, 3] = 0.5
    elif change == "two kinds":
        X[:, 1] = rng.standard_normal(3000)
    else:
        w = rng.random(3000)
    S, expected = block_gram(X, w), centered_gram(X, w)
    assert S[4] == 0
    assert (S[2] == expected[2]).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float64, np.float16])
def test_any_type_of_numbers_has_its_covariance(dtype):
    X = np.random.default_rng(5).integers(0, 200, (3000, 4)).astype(dtype)
    expected = np.cov(X.astype(float).T, ddof=0)
    assert np.allclose(Moments().from_block(X).covariance(), expected, rtol=1e-12)


def test_values_that_are_not_finite_are_named():
    X = np.random.default_rng(7).standard_normal((500, 70)).astype(np.float32)
    for value in (np.nan, np.inf, -np.inf):
        X[417, 33] = value
        with pytest.raises(NotFinite, match=r"row 1417.*column 33"):
            block_gram(X, start=1000)


# --- triangular factor -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_blocks", [1, 3, 7])
def test_factor_is_triangular_and_that_of_the_centred_data(n_blocks):
    X, y, w = some_rows()
    m = merged(blocks(Moments(method="qr"), X, y, w, n_blocks))
    Z = np.hstack([X, y])
    D = (Z - np.average(Z, axis=0, weights=w)) * np.sqrt(w)[:, None]
    R = np.linalg.qr(D, mode="r")
    assert np.allclose(m.factor, R * np.sign(R.diagonal())[:, None], rtol=1e-10, atol=1e-10)
    assert (np.tril(m.factor, -1) == 0).all()


@pytest.mark.parametrize("n_blocks", [1, 3, 7])
def test_factor_solves_what_the_covariance_cannot(n_blocks):
    # Wampler 1 and 2: polynomials of degree 5 with known coefficients.
    x = np.arange(21.0)
    powers = x[:, None] ** np.arange(1, 6)
    for true in (np.ones(6), 0.1 ** np.arange(6)):
        y = np.vander(x, 6, increasing=True) @ true
        m = merged(blocks(Moments(method="qr"), powers, y, n_blocks=n_blocks))
        coef, intercept = m.least_squares()
        digits = -np.log10(np.abs(np.r_[intercept, coef[:, 0]] / true - 1) + 1e-16)
        assert digits.min() >= 8
    plain = merged(blocks(Moments(), powers, np.vander(x, 6).sum(axis=1), n_blocks=n_blocks))
    normal = np.linalg.solve(plain.covariance(), plain.xy[:, 0])
    assert np.abs(normal - 1).max() > 1e-9, "the covariance would have done"


def test_least_squares_on_some_columns_and_what_it_refuses():
    X, y, w = some_rows()
    m = Moments(method="qr").from_block(X, y, sample_weight=w)
    root = np.sqrt(w)[:, None]
    expected = np.linalg.lstsq(np.hstack([np.ones((400, 1)), X[:, [4, 1]]]) * root, y * root, rcond=None)[0]
    coef, intercept = m.least_squares([4, 1])
    assert np.allclose(coef, expected[1:], rtol=1e-10)
    assert np.allclose(intercept, expected[0], rtol=1e-10)
    doubled = Moments(method="qr").from_block(np.hstack([X, 2 * X[:, :1]]), y)
    with pytest.raises(BadParameter, match="column 6"):
        doubled.least_squares()
    with pytest.raises(BadParameter, match="column 2"):
        Moments(method="qr").from_block(np.where(np.arange(6) == 2, 0.1, X), y).least_squares()
    with pytest.raises(BadParameter, match="rows"):
        Moments(method="qr").from_block(X[:3], y[:3]).least_squares()
    with pytest.raises(BadParameter, match="qr"):
        Moments().from_block(X, y).least_squares()
