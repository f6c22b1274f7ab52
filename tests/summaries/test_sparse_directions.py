"""Frequent Directions of sparse rows: the guarantee by brute force, on data that break estimates of it."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from sketchselect.errors import BadBlock, NotFinite
from sketchselect.linalg import sparse_shrink
from sketchselect.linalg.csr import as_csr, take_rows
from sketchselect.linalg.shrink import shrink_factors
from sketchselect.linalg.sparse_shrink import (
    Total,
    column_panels,
    empty_panel,
    joined,
    n_steps,
    panel_products,
    require_summable,
    rows_gram,
    shrink_panels,
    shrink_sparse,
    shrunk_panel,
)
from sketchselect.summaries import FrequentDirections

RNG = np.random.default_rng(20260103)


def counts(n, p, share, seed=0):
    rng = np.random.default_rng(seed)
    return sp.random_array(
        (n, p), density=share, format="csr", random_state=rng, data_sampler=lambda size: 1.0 + rng.poisson(1, size)
    )


def full_row(n=500, p=160):
    X = counts(n, p, 0.02).tolil()
    X[n // 2] = 50 * RNG.standard_normal(p)
    return X


def nasty():
    few = counts(6, 160, 0.05).toarray()
    clusters = np.repeat(few, 100, axis=0)
    late = counts(600, 160, 0.03).toarray() * 1e-6
    late[-40:] = counts(40, 160, 0.04, 1).toarray() * 100
    far = counts(500, 160, 0.02).toarray()
    far[:, 11] = 1e8 + RNG.standard_normal(500)
    far[:100, 12] = 1e8 + RNG.standard_normal(100)
    steps = np.zeros((400, 160))
    steps[np.arange(400), np.arange(400) % 160] = np.repeat([100.0, 10.0, 1.0, 0.1], 100)
    empty = counts(700, 160, 0.02).toarray()
    empty[::2] = 0
    empty[:, ::3] = 0
    return {
        "counts": counts(900, 160, 0.03),
        "empty rows and columns": empty,
        "one full row": full_row(),
        "six rows again and again": clusters,
        "all the energy in the last rows": late,
        "far columns": far,
        "flat spectrum": np.tile(np.eye(160), (5, 1)),
        "steps": steps,
        "wide": counts(200, 700, 0.01),
        "no entries": np.zeros((300, 160)),
    }


NASTY = {name: as_csr(sp.csr_array(X)) for name, X in nasty().items()}


@pytest.mark.share(10)
@pytest.mark.parametrize("name", NASTY)
@pytest.mark.parametrize("size", [4, 16])
@pytest.mark.parametrize("weighted", [False, True])
def test_guarantee(name, size, weighted):
    X = NASTY[name]
    n = X.shape[0]
    w = np.floor(4 * np.random.default_rng(5).random(n)) if weighted else np.ones(n)
    B, delta, weight, mean, squares = shrink_sparse(X, size, w if weighted else None)
    dense = X.toarray()
    wide = dense.astype(np.longdouble)
    exact_mean = (w @ wide) / w.sum()
    centred = ((wide - exact_mean) * np.sqrt(w)[:, None]).astype(float)
    total = float((centred**2).sum())
    slack = 1e-12 * total + 1e-14 * float((w[:, None] * dense**2).sum()) ** 0.5 * total**0.5
    assert B.shape[0] <= size - 1
    assert weight == w.sum()
    assert np.allclose(mean, exact_mean.astype(float), rtol=1e-13, atol=0)
    room = 1e-12 * squares + 1e-26 * (w[:, None] * dense**2).sum(axis=0)
    assert (np.abs(squares - (centred**2).sum(axis=0)) <= room).all()
    gap = np.linalg.eigvalsh(centred.T @ centred - B.T @ B)
    assert gap[0] >= -slack, "the sketch exceeds the data"
    assert gap[-1] <= delta + slack, "the error exceeds Delta"
    tails = np.linalg.eigvalsh(centred.T @ centred)[::-1].clip(0)
    for k in range(size):
        assert delta <= tails[k:].sum() / (size - k) * (1 + 1e-9) + 1e3 * slack


def test_delta_holds_wherever_the_power_iteration_stops(monkeypatch):
    """Eigenvectors that are hardly any cost a larger Delta, or exact ones are taken; the guarantee stays."""
    X = NASTY["counts"]
    centred = X.toarray() - X.toarray().mean(axis=0)
    result = []
    for rounds in (0, 1, 4):
        monkeypatch.setattr(sparse_shrink, "_ROUNDS", rounds)
        B, delta, *_ = shrink_sparse(X, 16, None)
        gap = np.linalg.eigvalsh(centred.T @ centred - B.T @ B)
        assert gap[0] >= -1e-10
        assert gap[-1] <= delta
        result.append(delta)
    assert len(set(result)) == 3


def test_a_bound_that_is_not_one_is_never_taken(monkeypatch):
    """Where the leading eigenvectors are wrong altogether, no bound passes and the exact ones are computed."""
    gram = NASTY["one full row"].toarray()
    gram = gram @ gram.T

    def wrong(matrix, width, trace, known):
        vectors = np.linalg.eigh(matrix)[1][:, :width][:, ::-1]
        return np.einsum("ij,ij->j", vectors, matrix @ vectors), vectors, matrix @ vectors

    monkeypatch.setattr(sparse_shrink, "_leading", wrong)
    matrix, kept, lost = sparse_shrink.sparse_factors(gram, 16, 0)
    exact = shrink_factors(gram, 16)
    assert lost == exact[2]
    assert np.array_equal(matrix, exact[0])
    assert np.array_equal(kept, exact[1])


@pytest.mark.parametrize("condition", [1.0, 1e3, 1e10])
def test_an_upper_bound_is_above_every_eigenvalue(condition):
    """Shown in float32, for eigenvalues crowded at the top as well as spread; below them nothing is shown."""
    rng = np.random.default_rng(3)
    turn = np.linalg.qr(rng.standard_normal((300, 300)))[0]
    matrix = ((turn * np.geomspace(1.0, 1.0 / condition, 300)) @ turn.T).astype(np.float32)
    exact = matrix.astype(np.float64)
    top = np.linalg.eigvalsh((exact + exact.T) / 2)[-1]
    for bound in (1.0 - 1e-6, 1.0, 1.0 + 1e-7, 1.0 + 1e-5, 1.02):
        assert sparse_shrink._upper(np.asfortranarray(matrix), bound) >= top * (1 - 1e-6)
    assert sparse_shrink._upper(np.asfortranarray(matrix), 1.02) <= 1.03
    assert sparse_shrink._upper(np.asfortranarray(matrix), 0.98) == np.inf


@pytest.mark.parametrize("scale", [1e-12, 1e-7, 1e-3, 1.0])
def test_bases_are_orthonormal_however_dependent_the_columns(scale):
    rng = np.random.default_rng(4)
    common = rng.standard_normal((200, 1)) * 1e8
    matrix = common + scale * 1e8 * rng.standard_normal((200, 30))
    basis, turn = sparse_shrink._orthonormal(matrix)
    basis = basis @ turn
    assert np.abs(basis.T @ basis - np.eye(30)).max() <= 1e-14
    left = matrix - basis @ (basis.T @ matrix)
    assert np.abs(left).max() <= 1e-13 * np.abs(matrix).max()


def test_sparse_rows_lose_no_more_than_dense_ones():
    """Larger buffers: what is lost is less, although the eigenvectors are approximate."""
    X = as_csr(counts(3000, 400, 0.02))
    sparse, dense = (FrequentDirections(16).from_block(Z) for Z in (X, X.toarray()))
    assert not sparse.is_exact
    assert sparse.shrinkage < dense.shrinkage
    assert sparse.squared_norm == pytest.approx(dense.squared_norm, rel=1e-13)


def test_sparse_and_dense_sketches_merge():
    X = as_csr(counts(1200, 400, 0.02))
    dense = X.toarray()
    centred = dense - dense.mean(axis=0)
    d = FrequentDirections(16)
    merged = d.from_block(X[:500]).merge(d.from_block(dense[500:700])).merge(d.from_block(X[700:]))
    gap = np.linalg.eigvalsh(centred.T @ centred - merged.centered_sketch.T @ merged.centered_sketch)
    assert gap[0] >= -1e-9
    assert gap[-1] <= merged.shrinkage
    assert merged.n_rows == 1200


def test_density_decides():
    """Above the limit rows are made dense, some at a time; the result is that of those dense pieces, merged."""
    X = as_csr(counts(300, 160, 0.3))
    d = FrequentDirections(8)
    assert d.from_block(X) == d.from_block(X.toarray())
    assert d.from_block(as_csr(counts(300, 160, 0.02))) != d.from_block(counts(300, 160, 0.02).toarray())


@pytest.mark.parametrize("bad", ["index", "nan"])
def test_bad_rows_are_named(bad):
    X = counts(50, 160, 0.03)
    place = int(X.indptr[20])
    row = int(np.searchsorted(X.indptr, place, side="right")) - 1
    if bad == "index":
        X.indices[place] = 160
    else:
        X.data[place] = np.nan
    with pytest.raises(ValueError, match=f"row {row}") as caught:
        FrequentDirections(8).from_block(X)
    assert "\n" not in str(caught.value)


# --- in panels of columns ---


def sketched(X, size, edges, weights, height):
    total, panels = Total.empty(), [empty_panel(b - a) for a, b in pairwise(edges)]
    for a in range(0, X.shape[0], height):
        w = weights[a : a + height]
        blocks = column_panels(take_rows(X, a, min(a + height, X.shape[0])), edges)
        parts = [panel_products(panel, block, total, w) for panel, block in zip(panels, blocks, strict=True)]
        after = shrink_panels(total, rows_gram(blocks, w), w, parts, size)
        pairs = zip(panels, blocks, strict=True)
        panels = [shrunk_panel(panel, block, total, after, w) for panel, block in pairs]
        total = after
    return total, *joined(iter(panels), X.shape[1], total.norms.size)


@pytest.mark.share(12)
@pytest.mark.parametrize("name", NASTY)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("size", "height"), [(4, 37), (16, 150), (16, 7)])
def test_guarantee_in_panels(name, weighted, size, height):
    X = NASTY[name]
    n, p = X.shape
    # Whole steps without weight, too.
    w = np.floor(3 * np.random.default_rng(5).random(n)) * (np.arange(n) // height % 3 > 0) if weighted else np.ones(n)
    total, B, mean, squares = sketched(X, size, [0, p // 3, p // 3 + 1, p], w, height)
    wide = X.toarray().astype(np.longdouble)
    exact_mean = (w @ wide) / w.sum()
    centred = ((wide - exact_mean) * np.sqrt(w)[:, None]).astype(float)
    energy = float((w[:, None] * X.toarray() ** 2).sum())
    scatter = float((centred**2).sum())
    slack = 1e-12 * scatter + 1e-14 * (energy * scatter) ** 0.5
    assert B.shape[0] <= size - 1
    assert total.n_rows == n
    assert total.weight == w.sum()
    assert np.allclose(mean, exact_mean.astype(float), rtol=1e-13, atol=1e-15 * np.abs(mean).max(initial=0))
    # A step adds factor d^2, d the difference of two means, each rounded to half a unit of the largest value.
    steps, far = -(-n // height), np.abs(X.toarray()).max(axis=0)
    room = 1e-12 * squares + steps * 4 * np.finfo(float).eps * far * np.sqrt(squares * w.max() * height)
    assert (np.abs(squares - (centred**2).sum(axis=0)) <= room).all()
    gap = np.linalg.eigvalsh(centred.T @ centred - B.T @ B)
    assert gap[0] >= -slack, "the sketch exceeds the data"
    assert gap[-1] <= total.shrinkage + slack, "the error exceeds Delta"
    assert np.abs(B @ B.T - np.diag(total.norms)).max(initial=0) <= 1e-12 * max(total.norms.max(initial=0), 1e-300)
    tails = np.linalg.eigvalsh(centred.T @ centred)[::-1].clip(0)
    for k in range(size):
        assert total.shrinkage <= tails[k:].sum() / (size - k) * (1 + 1e-9) + 1e3 * slack


@pytest.mark.parametrize("edges", [[0, 160], [0, 1, 2, 160], [0, 53, 107, 160]])
def test_panels_change_no_more_than_rounding(edges):
    X = NASTY["counts"]
    w = np.ones(X.shape[0])
    whole, B, *_ = sketched(X, 16, [0, 160], w, 200)
    total, other, *_ = sketched(X, 16, edges, w, 200)
    assert total.shrinkage == pytest.approx(whole.shrinkage, rel=1e-9)
    np.testing.assert_allclose(other.T @ other, B.T @ B, atol=1e-9 * whole.norms.max())


def test_columns_are_cut_at_the_edges():
    X = NASTY["one full row"]
    panels = column_panels(X, [0, 5, 6, 160])
    assert np.array_equal(np.hstack([panel.toarray() for panel in panels]), X.toarray())
    assert [panel.shape for panel in panels] == [(500, 5), (500, 1), (500, 154)]


@pytest.mark.parametrize(("value", "error"), [(np.nan, NotFinite), (1e151, BadBlock), (9e149, BadBlock)])
def test_values_that_cannot_be_squared_are_named_in_the_whole_matrix(value, error):
    X = as_csr(sp.csr_array(([1.0, value], ([0, 3], [2, 7])), shape=(5, 9)))
    with pytest.raises(error, match=r"row 103, column 7"):
        require_summable(X, None, 100)


def test_steps_are_at_least_one():
    assert [n_steps(n, 4) for n in (0, 1, 48, 49, 480)] == [1, 1, 1, 2, 10]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("factor", [1e-25, 1e-18, 1.0, 1e25])
def test_rows_whose_squares_are_beyond_float32_raise_no_warning_and_keep_the_bound(factor):
    X = counts(500, 160, 0.02)
    of_plain = FrequentDirections(8).from_block(X).record
    scaled = FrequentDirections(8).from_block(X * factor).record
    rows, centred = scaled.rows / factor, X.toarray() - X.toarray().mean(axis=0)
    left = np.linalg.eigvalsh(centred.T @ centred - rows.T @ rows)
    delta = scaled.shrinkage / factor**2
    assert -1e-10 * (centred**2).sum() <= left[0]
    assert left[-1] <= delta * (1 + 1e-10)
    assert delta == pytest.approx(of_plain.shrinkage, rel=0.1)


@pytest.mark.filterwarnings("error")
def test_rows_that_fade_within_a_block_raise_no_warning():
    X = counts(4000, 160, 0.02)
    assert np.isfinite(FrequentDirections(8, half_life=10.0).from_block(X).record.rows).all()
