"""Moments in all their forms against NumPy: merging, taking away, class labels, memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from sketchselect.errors import BadBlock, BadParameter, Incompatible, NotFinite
from sketchselect.summaries import DecayedMoments, Folds, Moments, decode, encode

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
    expected = first.merge(third)
    assert rest.n_rows == expected.n_rows
    assert rest.weight == pytest.approx(expected.weight, rel=1e-13)
    scale = np.sqrt(np.outer(expected.covariance().diagonal(), expected.covariance().diagonal()))
    assert (np.abs(rest.covariance() - expected.covariance()) <= 1e-13 * scale * 10).all()
    sd = np.sqrt(np.outer(expected.covariance().diagonal(), expected.yy.diagonal()))
    assert (np.abs(rest.xy - expected.xy) <= 1e-13 * sd * 10).all()
    if form == "degree 2":
        assert np.allclose(rest.expanded().covariance(), expected.expanded().covariance(), rtol=1e-11, atol=1e-11)


def test_unmerge_of_one_fold_of_ten_to_1e13():
    X, y, _ = some_rows(5000)
    parts = [Moments().from_block(X[i::10], y[i::10]) for i in range(10)]
    total = merged(parts)
    for i, part in enumerate(parts):
        expected = merged([p for j, p in enumerate(parts) if j != i])
        rest = total.unmerge(part)
        assert np.abs(rest.covariance() - expected.covariance()).max() <= 1e-13 * np.abs(expected.covariance()).max()
        assert np.abs(rest.xy - expected.xy).max() <= 1e-13 * np.abs(expected.xy).max()


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
