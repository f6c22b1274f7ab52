"""Moments in all their forms against oracles: extended precision, brute force, scikit-learn, exact coefficients."""

from __future__ import annotations

import tracemalloc
from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from sketchselect.errors import BadBlock, BadParameter, Incompatible, NotFinite
from sketchselect.linalg.comoments import centered_gram
from sketchselect.linalg.single_precision import SINGLE_ROUNDING, single_gram, suits_single
from sketchselect.summaries import DecayedMoments, Folds, Moments, decode, encode
from sketchselect.summaries.polynomial import expand, polynomial_names, recentre

FORMS = {
    "comoment": Moments(),
    "qr": Moments(method="qr"),
    "pairwise": Moments(missing="pairwise"),
    "degree 2": Moments(degree=2),
}


def blocks(description, X, y=None, weights=None, n_blocks=7):
    """Return the summary of each of some unequal blocks."""
    edges = np.unique(np.r_[0, (len(X) * np.linspace(0, 1, n_blocks + 1)[1:-1] ** 1.5).astype(int), len(X)])
    return [
        description.from_block(
            X[a:b],
            None if y is None else y[a:b],
            start=int(a),
            sample_weight=None if weights is None else weights[a:b],
        )
        for a, b in pairwise(edges)
    ]


def merged(parts):
    return reduce(lambda a, b: a.merge(b), parts)


def some_rows(n=400, p=6, q=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) @ rng.standard_normal((p, p)) + 10 * rng.standard_normal(p)
    y = X[:, :q] * 3 + rng.standard_normal((n, q))
    return X, y, rng.integers(0, 4, n) + rng.random(n)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("weighted", [False, True])
def test_equal_to_numpy_for_blocks_weights_and_several_targets(form, weighted):
    X, y, w = some_rows()
    weights = w if weighted else None
    m = merged(blocks(FORMS[form], X, y, weights))
    whole = np.cov(np.hstack([X, y]).T, aweights=weights, ddof=0)
    assert np.allclose(m.covariance(), whole[:6, :6], rtol=1e-11, atol=1e-11)
    assert np.allclose(m.xy, whole[:6, 6:], rtol=1e-11, atol=1e-11)
    assert np.allclose(m.yy, whole[6:, 6:], rtol=1e-11, atol=1e-11)
    assert np.allclose(m.mean, np.average(X, axis=0, weights=weights), rtol=1e-13)
    assert np.allclose(m.y_mean, np.average(y, axis=0, weights=weights), rtol=1e-13)
    total = w.sum() if weighted else len(X)
    assert m.n_effective == pytest.approx(total**2 / (w**2).sum() if weighted else len(X))
    assert np.allclose(m.covariance(ddof=1), whole[:6, :6] * total / (total - 1), rtol=1e-11, atol=1e-11)
    if form != "pairwise":
        A = X * np.sqrt(w)[:, None] if weighted else X
        assert np.allclose(m.gram(), A.T @ A, rtol=1e-11)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_blocks", [1, 3, 40])
def test_variances_far_from_zero_keep_nine_digits(form, n_blocks):
    X = 1e8 + np.random.default_rng(1).standard_normal((5000, 4))
    m = merged(blocks(FORMS[form], X, n_blocks=n_blocks))
    exact = X.astype(np.longdouble).var(axis=0)
    assert np.abs(m.covariance().diagonal() / exact - 1).max() <= 1e-9


@pytest.mark.parametrize("form", ["comoment", "pairwise", "degree 2"])
def test_unmerge_is_the_inverse_of_merge(form):
    X, y, w = some_rows(900)
    first, second, third = (FORMS[form].from_block(X[i::3], y[i::3], sample_weight=w[i::3]) for i in range(3))
    total = first.merge(second).merge(third)
    rest = total.unmerge(second)
    wanted = first.merge(third)
    assert rest.n_rows == wanted.n_rows
    assert rest.weight == pytest.approx(wanted.weight, rel=1e-13)
    scale = np.sqrt(np.outer(wanted.covariance().diagonal(), wanted.covariance().diagonal()))
    assert (np.abs(rest.covariance() - wanted.covariance()) <= 1e-13 * scale * 10).all()
    sd = np.sqrt(np.outer(wanted.covariance().diagonal(), wanted.yy.diagonal()))
    assert (np.abs(rest.xy - wanted.xy) <= 1e-13 * sd * 10).all()
    if form == "degree 2":
        assert np.allclose(rest.expanded().covariance(), wanted.expanded().covariance(), rtol=1e-11, atol=1e-11)


def test_unmerge_of_one_fold_of_ten_to_1e13():
    X, y, _ = some_rows(5000)
    parts = [Moments().from_block(X[i::10], y[i::10]) for i in range(10)]
    total = merged(parts)
    for i, part in enumerate(parts):
        wanted = merged([p for j, p in enumerate(parts) if j != i])
        rest = total.unmerge(part)
        assert np.abs(rest.covariance() - wanted.covariance()).max() <= 1e-13 * np.abs(wanted.covariance()).max()
        assert np.abs(rest.xy - wanted.xy).max() <= 1e-13 * np.abs(wanted.xy).max()


def test_unmerge_refuses_what_is_no_part():
    X, y, _ = some_rows()
    m = Moments().from_block(X, y)
    assert m.unmerge(Moments().empty(6, 2)) == m
    nothing = m.unmerge(m)
    assert (nothing.n_rows, nothing.weight) == (0, 0.0)
    with pytest.raises(Incompatible, match="401 rows"):
        m.unmerge(m.update(X[:1], y[:1]))
    with pytest.raises(Incompatible, match="column 0"):
        m.unmerge(Moments().from_block(100 * X[:300], y[:300]))
    with pytest.raises(Incompatible, match="6 and 5"):
        m.unmerge(Moments().from_block(X[:, :5], y))
    factored = Moments(method="qr").from_block(X, y)
    with pytest.raises(Incompatible, match="complement"):
        factored.unmerge(factored)


# --- float32 ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("scale", [1e-18, 1.0, 1e18])
def test_float32_products_are_as_good_as_float32_data(offset, scale):
    rng = np.random.default_rng(3)
    X = ((offset + rng.standard_normal((6000, 8)) @ rng.standard_normal((8, 8))) * scale).astype(np.float32)
    y = X[:, :1].astype(float) + scale * rng.standard_normal((6000, 1))
    w = 10.0 ** rng.uniform(-12, 3, 6000)
    for weights in (None, w):
        total, mean, S, squares = single_gram(X, weights, 0, y)
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
    _, _, S, _ = single_gram(X)
    exact = centered_gram(X.astype(float))[2]
    assert np.isfinite(S).all()
    assert np.linalg.norm(S - exact, 2) <= SINGLE_ROUNDING * np.trace(exact)


@pytest.mark.parametrize("kind", ["duplicates", "few values", "heavy tails", "one row of all the energy"])
def test_the_stated_bound_holds_for_what_rounds_worst(kind):
    rng = np.random.default_rng(12)
    X = {
        "duplicates": np.repeat(rng.choice([0.1, 0.7], (4000, 1), p=[0.95, 0.05]), 20, axis=1),
        "few values": rng.choice([0.1, 0.2, 0.9], (4000, 20), p=[0.9, 0.099, 0.001]),
        "heavy tails": rng.standard_cauchy((4000, 20)),
        "one row of all the energy": np.where(np.arange(4000)[:, None] == 700, 1e6, rng.random((4000, 20))),
    }[kind].astype(np.float32)
    assert suits_single(X)
    m = merged(blocks(Moments(), X, n_blocks=3))
    exact = merged(blocks(Moments(), X.astype(float), n_blocks=3))
    gap = np.linalg.norm(m.record.comoment - exact.record.comoment, 2)
    assert 0 < gap <= m.single_rounding
    assert exact.single_rounding == 0
    assert m.unmerge(Moments().from_block(X[:10])).single_rounding >= m.single_rounding
    assert decode(encode(m)).single_rounding == m.single_rounding


def test_indicators_in_float32_stay_exactly_dependent():
    codes = np.random.default_rng(6).choice(4, 5000, p=[0.002, 0.1, 0.3, 0.598])
    X = np.hstack([np.eye(4)[codes], np.random.default_rng(7).standard_normal((5000, 3))]).astype(np.float32)
    assert not suits_single(X)
    m = merged(blocks(Moments(), X))
    assert m.single_rounding == 0
    sd = np.sqrt(m.covariance().diagonal())
    smallest = np.linalg.eigvalsh(m.covariance() / np.outer(sd, sd))[0]
    assert abs(smallest) < 1e-13


def test_integers_and_float64_are_summed_in_float64():
    X = np.random.default_rng(5).integers(0, 200, (3000, 4))
    for dtype in (np.uint8, np.int64, np.float64, np.float16):
        wanted = np.cov(X.astype(dtype).astype(float).T, ddof=0)
        assert np.allclose(Moments().from_block(X.astype(dtype)).covariance(), wanted, rtol=1e-12)


# --- class labels ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "dtype"),
    [(["no", "yes"], str), (["no", "yes"], object), ([3, 7], np.int16), ([0.5, 2.5], float), ([False, True], bool)],
)
def test_two_classes_are_minus_and_plus_one(classes, dtype):
    X, _, _ = some_rows(90)
    code = np.arange(90) % 3 == 0
    labels = np.array([classes[c] for c in code.astype(int)], dtype=dtype)
    m = Moments(classes=classes).from_block(X, labels)
    assert m.n_targets == 1
    assert np.allclose(m.xy, Moments().from_block(X, np.where(code, 1.0, -1.0)).xy)
    assert np.allclose(m.class_weights, [60, 30])
    back = decode(encode(m))
    assert back == m
    assert back.classes == tuple(classes)
    assert back.merge(m).n_rows == 180


def test_several_classes_are_indicator_columns():
    X, _, w = some_rows(90)
    names = ["b", "a", "c \u03b2"]
    labels = np.array(names)[np.arange(90) % 3]
    m = merged(blocks(Moments(classes=names), X, labels, w))
    assert np.allclose(m.xy, Moments().from_block(X, np.eye(3)[np.arange(90) % 3], sample_weight=w).xy)
    assert np.allclose(m.class_weights, [w[i::3].sum() for i in range(3)])
    assert m.projected_nbytes(6, 1) >= m.nbytes


def test_bad_labels_are_refused():
    X = np.zeros((3, 2))
    m = Moments(classes=["a", "b"])
    with pytest.raises(BadBlock, match=r"row 1 .* none of the 2 classes"):
        m.from_block(X, ["a", "x", "b"])
    with pytest.raises(BadBlock, match="pass y"):
        m.from_block(X)
    with pytest.raises(BadBlock, match="text"):
        m.from_block(X, [0, 1, 1])
    with pytest.raises(BadBlock, match="shape"):
        m.from_block(X, ["a", "b"])
    with pytest.raises(BadBlock, match="row 2"):
        Moments(classes=[0, 1]).from_block(X, [0, 1, np.nan])
    for classes in (["a"], [], "ab", ["a", 1], ["a", "a"], [1.0, np.nan], [None, "a"]):
        with pytest.raises(BadParameter):
            Moments(classes=classes)
    with pytest.raises(Incompatible, match="classes"):
        m.from_block(X, ["a", "b", "b"]).merge(Moments(classes=["b", "a"]).from_block(X, ["a", "b", "b"]))
    with pytest.raises(BadParameter, match="classes"):
        _ = Moments().from_block(X).class_weights


def test_targets_that_are_not_finite_are_refused_naming_the_row():
    with pytest.raises(NotFinite, match="row 1"):
        Moments().from_block(np.zeros((3, 2)), [0.0, np.nan, 1.0])
    with pytest.raises(BadBlock, match="target 0"):
        Moments().from_block(np.zeros((3, 2)), [0.0, 1e200, 1.0])


# --- triangular factor -----------------------------------------------------------------------------------------


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
    wanted = np.linalg.lstsq(np.hstack([np.ones((400, 1)), X[:, [4, 1]]]) * root, y * root, rcond=None)[0]
    coef, intercept = m.least_squares([4, 1])
    assert np.allclose(coef, wanted[1:], rtol=1e-10)
    assert np.allclose(intercept, wanted[0], rtol=1e-10)
    doubled = Moments(method="qr").from_block(np.hstack([X, 2 * X[:, :1]]), y)
    with pytest.raises(BadParameter, match="column 6"):
        doubled.least_squares()
    with pytest.raises(BadParameter, match="column 2"):
        Moments(method="qr").from_block(np.where(np.arange(6) == 2, 0.1, X), y).least_squares()
    with pytest.raises(BadParameter, match="rows"):
        Moments(method="qr").from_block(X[:3], y[:3]).least_squares()
    with pytest.raises(BadParameter, match="qr"):
        Moments().from_block(X, y).least_squares()


# --- missing values --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_pairwise_is_the_covariance_of_the_rows_that_have_both(weighted):
    X, y, w = some_rows(300)
    rng = np.random.default_rng(7)
    X = np.where(rng.random(X.shape) < np.linspace(0, 0.6, 6), np.nan, X)
    # Missing in runs, so that whole blocks have no value of a column.
    X[:150, 3] = np.nan
    weights = w if weighted else None
    m = merged(blocks(Moments(missing="pairwise"), X, y, weights))
    Z = np.hstack([X, y])
    for i in range(8):
        for j in range(8):
            both = ~np.isnan(Z[:, i] + Z[:, j])
            wanted = np.cov(Z[both, i], Z[both, j], aweights=None if weights is None else w[both], ddof=0)[0, 1]
            found = np.block([[m.covariance(), m.xy], [m.xy.T, m.yy]])[i, j]
            assert found == pytest.approx(wanted, rel=1e-11, abs=1e-12)
            if i < 6 and j < 6:
                assert m.pair_weights[i, j] == pytest.approx(w[both].sum() if weighted else both.sum())
    present = ~np.isnan(X)
    wanted = [np.average(X[present[:, j], j], weights=w[present[:, j]] if weighted else None) for j in range(6)]
    assert np.allclose(m.mean, wanted, rtol=1e-12)


def test_pairwise_says_what_cannot_be_known():
    X = np.array([[1.0, np.nan, 3.0], [np.nan, 2.0, 4.0], [5.0, np.nan, 6.0]])
    m = Moments(missing="pairwise").from_block(X)
    with pytest.raises(BadParameter, match="columns 0 and 1"):
        m.covariance()
    with pytest.raises(BadParameter, match="not known"):
        m.gram()
    with pytest.raises(NotFinite, match="row 11, column 2"):
        Moments(missing="pairwise").from_block([[0.0, 0.0, 0.0], [np.nan, 0.0, np.inf]], start=10)
    with pytest.raises(BadBlock, match="column 1"):
        Moments(missing="pairwise").from_block([[0.0, 0.0], [np.nan, 1e160]])
    with pytest.raises(NotFinite, match="row 0, column 1"):
        Moments().from_block(X)


# --- polynomial features ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_blocks", [1, 4, 9])
def test_expanded_is_the_gram_of_the_standardised_polynomial_features(n_blocks):
    X, y, w = some_rows(500, 5)
    X = (X + 1000) * 10.0 ** np.arange(-4, 6, 2)
    X[:, 3] = 0.1
    m = merged(blocks(Moments(degree=2), X, y, w, n_blocks))
    maker = PolynomialFeatures(2, include_bias=False)
    # Not StandardScaler: with weights its variance of the constant column comes out negative.
    centred = (X - np.average(X.astype(np.longdouble), axis=0, weights=w)).astype(float)
    sd = np.sqrt(np.average(centred**2, axis=0, weights=w))
    Z = maker.fit_transform(centred / np.where(np.ptp(X, axis=0) > 0, sd, 1))
    keep = [i for i, name in enumerate(maker.get_feature_names_out()) if "x3" not in name]
    got = m.expanded()
    wanted = np.cov(np.hstack([Z, y]).T, aweights=w, ddof=0)
    p = Z.shape[1]
    assert got.n_features == p
    assert np.allclose(got.covariance()[np.ix_(keep, keep)], wanted[:p, :p][np.ix_(keep, keep)], rtol=1e-9, atol=1e-9)
    assert np.allclose(got.xy[keep], wanted[:p, p:][keep], rtol=1e-8, atol=1e-8)
    assert np.allclose(got.mean[keep], np.average(Z, axis=0, weights=w)[keep], atol=1e-10)
    assert got.feature_names == tuple(maker.get_feature_names_out())
    assert (got.n_rows, got.weight, got.n_effective) == (m.n_rows, m.weight, m.n_effective)
    assert np.isfinite(got.covariance()).all()


def test_expanded_far_from_zero_and_in_the_units_of_others():
    rng = np.random.default_rng(8)
    X = 1e8 + rng.standard_normal((3000, 3))
    m = merged(blocks(Moments(degree=2), X))
    Z = PolynomialFeatures(2, include_bias=False).fit_transform(StandardScaler().fit_transform(X - 1e8))
    assert np.allclose(m.expanded().covariance(), np.cov(Z.T, ddof=0), atol=1e-6)
    mean, scale = np.array([1e8 + 1, 1e8, 1e8 - 2]), np.array([2.0, 1.0, 0.5])
    got = m.expanded(mean=mean, scale=scale)
    Z = expand(X, mean, scale)
    assert np.allclose(got.covariance(), np.cov(Z.T, ddof=0), rtol=1e-9, atol=1e-9)
    assert np.allclose(got.mean, Z.mean(axis=0), atol=1e-7)
    with pytest.raises(BadParameter, match="degree=2"):
        Moments().from_block(X).expanded()


def test_expand_makes_the_features_of_new_rows():
    X, _, _ = some_rows(50, 4)
    wanted = PolynomialFeatures(2, include_bias=False).fit_transform(StandardScaler().fit_transform(X))
    assert np.allclose(expand(X, X.mean(0), X.std(0)), wanted, rtol=1e-12, atol=1e-12)
    assert polynomial_names(("a", "b"), 2) == ("a", "b", "a^2", "a b", "b^2")
    assert (expand(X, X.mean(0), np.zeros(4)) == 0).all()


def test_recentre_there_and_back():
    X, y, _ = some_rows(60, 4)
    Z = np.hstack([expand(X, np.zeros(4)), y])
    m = Moments().from_block(Z).record
    offset = np.array([1.0, -2.0, 0.5, 3.0])
    mean, comoment = recentre(m.mean, m.comoment, offset)
    moved = Moments().from_block(np.hstack([expand(X, offset), y])).record
    assert np.allclose(mean, moved.mean, rtol=1e-10, atol=1e-10)
    assert np.allclose(comoment, moved.comoment, rtol=1e-9, atol=1e-9 * np.abs(moved.comoment).max())
    back = recentre(mean, comoment, -offset)
    assert np.allclose(back[1], m.comoment, rtol=1e-9, atol=1e-9 * np.abs(m.comoment).max())


def test_products_that_leave_float64_are_refused():
    for size in (1e80, 1e-80):
        X = np.ones((4, 3))
        X[:, 1] = size * np.array([1, 2, 3, 9.0])
        with pytest.raises(BadBlock, match=r"column 1 .*row 8"):
            Moments(degree=2).from_block(X, start=5)


# --- contract --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"method": "svd"},
        {"degree": 3},
        {"degree": True},
        {"missing": "mean"},
        {"method": "qr", "degree": 2},
        {"method": "qr", "missing": "pairwise"},
        {"degree": 2, "missing": "pairwise"},
    ],
)
def test_bad_parameters(arguments):
    with pytest.raises(BadParameter):
        Moments(**arguments)


@pytest.mark.parametrize("name", [*FORMS, "decayed", "folds", "classes"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_memory_stays_below_the_projection(name, dtype):
    others = {
        "decayed": DecayedMoments(half_life=100),
        "folds": Folds(Moments(), 3),
        "classes": Moments(classes=list(range(10))),
    }
    description = {**FORMS, **others}[name]
    p, q = (20, 3) if name == "degree 2" else (260, 3)
    rng = np.random.default_rng(9)
    X = rng.standard_normal((5000, p)).astype(dtype)
    y = rng.standard_normal((5000, q)) if name != "classes" else np.arange(5000) % 10
    description.from_block(X[:300], y[:300])
    state, working = description.projected_nbytes(p, q), description.working_nbytes(p, q)
    # A fold's rows are copied out of the block; that is what reading a block is projected with.
    copied = X.nbytes + y.nbytes if name == "folds" else 0
    slack = 200_000
    tracemalloc.start()
    try:
        a = description.from_block(X, y)
        assert tracemalloc.get_traced_memory()[1] <= state + working + copied + slack
        b = description.from_block(X[:2500], y[:2500], start=5000)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        a.merge(b)
        assert tracemalloc.get_traced_memory()[1] - before <= state + working + slack
    finally:
        tracemalloc.stop()
    assert a.nbytes <= state
