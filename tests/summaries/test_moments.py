"""Moments in all their forms against NumPy: merging, taking away, class labels, memory."""

import tracemalloc
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
import scipy
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from sketchselect.errors import BadBlock, BadParameter, Incompatible, NotFinite
from sketchselect.summaries import (
    CentroidSums,
    DecayedMoments,
    Folds,
    Groups,
    LikelihoodSums,
    Moments,
    RowSample,
    TargetHistogram,
    decode,
    encode,
    moment_forms,
)
from sketchselect.summaries.moment_forms import expand, polynomial_names, recentre

from .moment_data import FORMS, blocks, merged, some_rows


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
    assert m.n_weighted_rows == len(X)
    assert np.allclose(m.covariance(ddof=1), whole[:6, :6] * total / (total - 1), rtol=1e-11, atol=1e-11)
    if form != "pairwise":
        A = X * np.sqrt(w)[:, None] if weighted else X
        assert np.allclose(m.gram(), A.T @ A, rtol=1e-11)


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_weight_zero_are_counted_and_not_among_the_weighted(form):
    X, y, w = some_rows()
    w[::3] = 0.0
    parts = blocks(FORMS[form], X, y, w)
    m = merged([decode(encode(part)) for part in parts])
    assert (m.n_rows, m.n_weighted_rows) == (400, np.count_nonzero(w))
    if form in ("degree 2", "squares"):
        assert m.expanded().n_weighted_rows == m.n_weighted_rows


def test_a_mask_in_a_file_that_does_not_count_rows_of_weight_zero_is_counted():
    X, y, _ = some_rows()
    mask = (np.arange(len(X)) % 3 > 0).astype(float)
    m = Moments().from_block(X, y, sample_weight=mask)
    old = m._with(replace(m.record, n_weightless=None), m.context)
    assert old.n_weighted_rows == m.n_weighted_rows == mask.sum()


@pytest.mark.parametrize("half_life", [None, 20.0])
@pytest.mark.parametrize("read", [np.asarray, np.float32, scipy.sparse.csr_array])
def test_few_rows_of_many_columns_are_rows_until_their_scatter_is_smaller(monkeypatch, read, half_life):
    monkeypatch.setattr(moment_forms, "_WIDE", 30)
    X, y, w = some_rows(60)
    X = read(np.hstack([X + 3.0] * 40))
    description = Moments(half_life=half_life)
    parts = [
        description.from_block(X[a : a + 6], y[a : a + 6], sample_weight=w[a : a + 6], start=a) for a in range(0, 60, 6)
    ]
    states = list(accumulate(parts, lambda a, b: decode(encode(a)).merge(b)))
    d = states[0].record.mean.size
    # Rows of blocks, and one for each merge.
    assert [s.few_rows is not None for s in states] == [4 * (7 * i + 6) <= d for i in range(10)]
    assert all(s.nbytes <= d * (d / 4 + 1) * 8 + 200 for s in states if s.few_rows is not None)
    for i, state in enumerate(states):
        rows, end = slice(0, 6 * i + 6), 6 * i + 6
        decay = 1.0 if half_life is None else 0.5 ** (np.arange(end)[::-1] / half_life)
        dense = np.asarray(X.toarray() if scipy.sparse.issparse(X) else X, dtype=float)
        whole = np.cov(np.hstack([dense[rows], y[rows]]).T, aweights=w[rows] * decay, ddof=0)
        assert np.allclose(state.covariance(), whole[:240, :240], rtol=1e-11, atol=1e-11)
        assert np.allclose(state.covariance(columns=np.array([5, 99])), whole[np.ix_([5, 99], [5, 99])], atol=1e-11)
        assert np.allclose(state.xy, whole[:240, 240:], rtol=1e-11, atol=1e-11)
        assert np.allclose(state.centered_column_squared_norms, whole.diagonal()[:240] * state.weight, rtol=1e-11)
        assert encode(decode(encode(state))) == encode(state)


@pytest.mark.parametrize("description", [Moments(), Moments(half_life=3), Folds(Moments(), n_folds=5)])
def test_empty_parts_of_many_columns_take_no_memory_for_pairs_of_columns(description):
    # The matrix of so many columns would take 320 GB.
    X = np.zeros((2, 200_000))
    X[1, ::2] = 2.0
    state = description.from_block(X, [0.0, 1.0])
    back = decode(encode(state.merge(description.empty(200_000, 1))))
    assert back == state
    assert state.nbytes < 10 * 8 * 200_001
    total = back.total if isinstance(back, Folds) else back
    assert total.covariance(columns=[0, 1])[1].tolist() == [0.0, 0.0]


def test_columns_of_the_covariance_are_features_and_never_the_target():
    X, y, _ = some_rows()
    for form in ("comoment", "qr", "pairwise"):
        m = FORMS[form].from_block(X, y)
        assert np.allclose(m.covariance(columns=[-1, 2]), m.covariance()[np.ix_([5, 2], [5, 2])], rtol=1e-13)
        for wrong in ([6], [-7], [0.5]):
            with pytest.raises(BadParameter, match="6 features"):
                m.covariance(columns=wrong)
    with pytest.raises(BadParameter, match="6 features"):
        FORMS["qr"].from_block(X, y).least_squares([6])


def test_squares_alone_and_squares_with_products_are_different_summaries():
    both, squares = (Moments(degree=2, products=products).from_block(np.eye(3)) for products in (True, False))
    for left, right in ((both, squares), (squares, both)):
        assert left != right
        assert left.describe() != right.describe()
        with pytest.raises(Incompatible, match="products"):
            left.merge(right)
    assert [decode(encode(m)) == m for m in (both, squares)] == [True, True]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_blocks", [1, 3, 40])
def test_variances_far_from_zero_keep_nine_digits(form, n_blocks):
    X = 1e8 + np.random.default_rng(1).standard_normal((5000, 4))
    m = merged(blocks(FORMS[form], X, n_blocks=n_blocks))
    exact = X.astype(np.longdouble).var(axis=0)
    assert np.abs(m.covariance().diagonal() / exact - 1).max() <= 1e-9


# --- class labels ----------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("start", [500, np.array([400, 501, 600])], ids=["first row", "every row"])
@pytest.mark.parametrize("summary", [Moments(), Folds(Moments(), n_folds=2)], ids=["moments", "folds"])
def test_a_target_that_is_not_finite_is_named_by_its_row_of_the_matrix(summary, start):
    with pytest.raises(NotFinite, match=r"1 NaN and 0 infinite, the first at row 501, target 0; leave"):
        summary.from_block(np.zeros((3, 2)), [0.0, np.nan, 1.0], start=start)


@pytest.mark.parametrize(
    ("summary", "labels", "said"),
    [
        (Moments(classes=["a", "b"]), ["a", "?", "b"], "row 501 is none of the 2 classes"),
        (Folds(Moments(classes=["a", "b"]), n_folds=2), ["a", "?", "b"], "row 501 is none of the 2 classes"),
        (Groups(Moments(), ["a", "b"]), ["a", "?", "b"], "row 501 is none of the 2 groups"),
        (RowSample(2, classes=["a", "b"]), ["a", "?", "b"], "row 501 is none of the 2 classes"),
        (TargetHistogram([0.0, 1.0], ["a", "b"]), ["a", "?", "b"], "row 501 is none of the 2 classes"),
        (CentroidSums(2), [0.0, 0.5, 1.0], r"0.5 of row 501"),
        (CentroidSums(2), [0, 2, 1], "unlike that of row 501"),
        (LikelihoodSums("poisson", np.zeros((0, 3)), np.zeros((0, 4))), [0.0, -1.0, 1.0], "unlike that of row 501"),
    ],
)
@pytest.mark.parametrize("start", [500, np.array([400, 501, 600])], ids=["first row", "every row"])
def test_a_label_that_is_refused_is_named_by_its_row_of_the_matrix(summary, labels, said, start):
    with pytest.raises(BadBlock, match=said):
        summary.from_block(np.zeros((3, 2)), labels, start=start)


# --- contract --------------------------------------------------------------------------------------------------------


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


@pytest.mark.slow
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


# Moments of missing values and of degree 2, against brute force and scikit-learn.

# --- missing values --------------------------------------------------------------------------------------------------


def test_pairwise_says_what_cannot_be_known():
    X = np.array([[1.0, np.nan, 3.0], [np.nan, 2.0, 4.0], [5.0, np.nan, 6.0]])
    m = Moments(missing="pairwise").from_block(X)
    with pytest.raises(BadParameter, match="columns 0 and 1"):
        m.covariance()
    with pytest.raises(BadParameter, match="no Gram matrix"):
        m.gram()
    with pytest.raises(NotFinite, match="row 11, column 2"):
        Moments(missing="pairwise").from_block([[0.0, 0.0, 0.0], [np.nan, 0.0, np.inf]], start=10)
    with pytest.raises(BadBlock, match="column 1"):
        Moments(missing="pairwise").from_block([[0.0, 0.0], [np.nan, 1e160]])
    with pytest.raises(NotFinite, match="row 0, column 1"):
        Moments().from_block(X)


# --- polynomial features ---------------------------------------------------------------------------------------------


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
    expected = np.cov(np.hstack([Z, y]).T, aweights=w, ddof=0)
    p = Z.shape[1]
    assert got.n_features == p
    assert np.allclose(got.covariance()[np.ix_(keep, keep)], expected[:p, :p][np.ix_(keep, keep)], rtol=1e-9, atol=1e-9)
    assert np.allclose(got.xy[keep], expected[:p, p:][keep], rtol=1e-8, atol=1e-8)
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


@pytest.mark.parametrize("q", [0, 2])
def test_squares_alone_are_a_part_of_all_products(q):
    rng = np.random.default_rng(9)
    X, y = 50 + rng.standard_normal((400, 4)) ** 3, rng.standard_normal((400, 2))[:, :q]
    mean, scale = X.mean(axis=0) + 0.5, X.std(axis=0)
    Z = np.hstack([(X - mean) / scale, ((X - mean) / scale) ** 2])
    squares, products = (
        merged(blocks(Moments(degree=2, products=all_), X, y if q else None)) for all_ in (False, True)
    )
    assert squares.nbytes < products.nbytes
    expected = np.cov(np.hstack([Z, y]).T, ddof=0)
    for got in (squares.expanded(mean, scale), products.expanded(mean, scale, products=False)):
        assert got.feature_names == ("x0", "x1", "x2", "x3", "x0^2", "x1^2", "x2^2", "x3^2")
        assert np.allclose(got.covariance(), expected[:8, :8], rtol=1e-9, atol=1e-9)
        assert np.allclose(got.xy, expected[:8, 8:], rtol=1e-9, atol=1e-9)
        assert np.allclose(got.mean, Z.mean(axis=0), atol=1e-10)
    assert np.allclose(squares.covariance(), np.cov(X.T, ddof=0), rtol=1e-12)
    assert decode(encode(squares)) == squares
    with pytest.raises(BadParameter, match="products"):
        squares.expanded(products=True)
    with pytest.raises(BadParameter, match="degree=2"):
        Moments(products=False)


def test_expand_makes_the_features_of_new_rows():
    X, _, _ = some_rows(50, 4)
    expected = PolynomialFeatures(2, include_bias=False).fit_transform(StandardScaler().fit_transform(X))
    assert np.allclose(expand(X, X.mean(0), X.std(0)), expected, rtol=1e-12, atol=1e-12)
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
