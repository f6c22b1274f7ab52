"""Bounds from a sketch that may exceed its rows, as products in float32 let it: held to the rows themselves.

The sketch is moved by far more than rounding, so that a bound that leaves `single_rounding` out is violated.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.cluster.certificates.spectral import spectral_bound
from sketchselect.linalg.leverage import leverage_bounds, spectral_error, tail_ridge
from sketchselect.linalg.spectrum import single_noise
from sketchselect.selectors import SketchedPCA
from sketchselect.selectors.kmeans_columns import column_subspace
from sketchselect.selectors.osinsky import OsinskySelector, directions_left
from sketchselect.summaries.moment_forms import SINGLE_UNIT

from .conftest import leverage, objective, tail

N, P, SIZE = 60, 90, 5


def moved(seed: int) -> tuple[Any, Any]:
    """Return rows, and a sketch of them that exceeds them by its `single_rounding`."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, P)) * (1.0 + np.arange(P)) ** -float(rng.choice([0.0, 0.5, 1.0]))
    sketch = sks.FrequentDirections(SIZE).from_block(X)
    B = sketch.centered_sketch * (1 + 0.2 * rng.random())
    B = B + 0.05 * np.linalg.norm(B) / np.sqrt(B.size) * rng.standard_normal(B.shape)
    D = X - X.mean(axis=0)
    difference = np.linalg.eigvalsh(D.T @ D - B.T @ B)
    record = replace(
        sketch.record,
        rows=B,
        shrinkage=max(float(difference[-1]), 1e-9),
        single_rounding=float(-np.minimum(difference, 0).sum()) * (1 + 1e-9),
    )
    return D, sketch._with(record, sketch.context)


SEEDS = pytest.mark.parametrize("seed", range(40))


@pytest.mark.share(8)
@SEEDS
def test_no_clustering_is_below_the_spectral_bound(seed: int) -> None:
    D, sketch = moved(seed)
    squares = np.linalg.svd(D, compute_uv=False) ** 2
    for k in range(1, SIZE):
        exact = squares[k - 1 :].sum()
        assert spectral_bound(sketch, k)[0] <= exact
        assert column_subspace(sketch, k).lower_bound(k) <= exact


@pytest.mark.share(8)
@SEEDS
def test_remainders_of_columns_are_within_their_bounds(seed: int) -> None:
    D, sketch = moved(seed)
    for k in range(1, SIZE):
        subspace = column_subspace(sketch, k)
        left = D - D @ subspace.vectors @ subspace.vectors.T
        assert ((left**2).sum(axis=0) <= subspace.column_residuals * (1 + 1e-9)).all()
        assert (left**2).sum() <= subspace.residual
        if subspace.angle is not None:
            exact = np.linalg.svd(D)[2][:k].T
            outside = subspace.vectors - exact @ (exact.T @ subspace.vectors)
            assert np.linalg.norm(outside, 2) <= subspace.angle + 1e-9


@pytest.mark.share(8)
@SEEDS
def test_leverage_scores_are_within_their_bounds(seed: int) -> None:
    D, sketch = moved(seed)
    directions, gained = sketch.centered_directions, sketch.single_rounding
    gram, norms = D.T @ D, (D**2).sum(axis=0)
    tail = (np.linalg.svd(D, compute_uv=False)[2:] ** 2).sum() / 2
    ridge = tail_ridge(directions, float(norms.sum()), sketch.shrinkage, 2, gained)
    assert ridge <= tail * (1 + 1e-12)
    for ridge in (0.5 * gained, 1.5 * gained, 3 * gained, 10 * gained, 100 * gained, tail):
        exact = np.diag(np.linalg.solve(gram + ridge * np.eye(P), gram))
        lower, upper = leverage_bounds(directions, norms, sketch.shrinkage, ridge, gained)
        assert (lower <= exact + 1e-9).all()
        assert (exact <= upper + 1e-9).all()


@pytest.mark.share(8)
@SEEDS
def test_the_error_of_a_sample_is_at_most_what_is_said(seed: int) -> None:
    D, sketch = moved(seed)
    gained = sketch.single_rounding
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.permutation(N)[: int(rng.integers(2, N))])
    sample = D[chosen] * np.sqrt(N / chosen.size)
    gram = D.T @ D
    for ridge in (0.5 * gained, 1.5 * gained, 3 * gained, 100 * gained):
        root = np.linalg.inv(np.linalg.cholesky(gram + ridge * np.eye(P)))
        exact = np.abs(np.linalg.eigvalsh(root @ (sample.T @ sample - gram) @ root.T)).max()
        bound = spectral_error(sample, sketch.centered_directions, sketch.shrinkage, ridge, gained)
        assert exact <= bound * (1 + 1e-9)


@pytest.mark.share(8)
@SEEDS
def test_variances_are_within_their_intervals(seed: int) -> None:
    D, sketch = moved(seed)
    pca = SketchedPCA(n_components=SIZE - 2).fit_summary(sketch)
    exact = np.linalg.svd(D, compute_uv=False)[: pca.n_components_] ** 2 / (N - 1)
    low, high = pca.explained_variance_bounds_.T
    assert (low <= exact * (1 + 1e-9)).all()
    assert (exact <= high * (1 + 1e-9)).all()


def rows_of(family: str, rng: Any) -> Any:
    X = rng.standard_normal((N, P))
    if family == "low rank":
        X = X[:, :6] @ rng.standard_normal((6, P))
    elif family == "decay":
        X *= (1.0 + np.arange(P)) ** -1.0
    elif family == "units":
        X *= 10.0 ** rng.uniform(-3, 3, P)
    elif family == "copies":
        X = np.repeat(X[:, : P // 9], 9, axis=1)
    elif family == "heavy tails":
        X = rng.standard_cauchy((N, P))
    return X


@pytest.mark.share(8)
@pytest.mark.parametrize("family", ["plain", "low rank", "decay", "units", "copies", "heavy tails"])
@pytest.mark.parametrize("size", [1e-6, 1e-3, 0.1])
@pytest.mark.parametrize("seed", range(4))
def test_bounds_hold_whatever_products_of_moments_lost(family: str, size: float, seed: int) -> None:
    """All of the Frobenius norm of the error lies where it hurts most: along k directions, all of one sign."""
    rng = np.random.default_rng(seed)
    X = rows_of(family, rng)
    D, moments = X - X.mean(axis=0), sks.Moments().from_block(X)
    _, s, vt = np.linalg.svd(D)
    squares = s**2
    single, norms = size * squares.sum(), np.linalg.norm(D, axis=0)
    for k in (1, 2, 5, 16):
        random = np.linalg.qr(rng.standard_normal((P, k)))[0].T
        for V, sign in ((vt[:k], -1), (vt[:k], 1), (vt[k : 2 * k], 1), (random, -1), (random, 0)):
            E = V.T @ V - np.diag(np.einsum("ij,ij->j", V, V))
            E *= sign * single / np.linalg.norm(E)
            scatter = moments.record.comoment + E
            record = replace(moments.record, comoment=scatter, single_scatter=single / SINGLE_UNIT)
            summary = moments._with(record, moments.context)
            rounding = 1e-11 * squares.sum()
            subspace = column_subspace(summary, k)
            left = D - D @ subspace.vectors @ subspace.vectors.T
            most = squares[k:].sum() + rounding
            bounds = spectral_bound(summary, k + 1)[0], subspace.lower_bound(k + 1), directions_left(summary, k)
            assert max(bounds) <= most
            assert (left**2).sum() <= subspace.residual
            if (np.abs(E) <= SINGLE_UNIT * np.outer(norms, norms)).all():
                assert ((left**2).sum(axis=0) <= subspace.column_residuals + rounding).all()
            if sign == 0:  # No wider than what the norm of the error allows
                assert min(bounds) >= squares[k:].sum() - np.sqrt(k) * single - rounding
                assert subspace.residual <= (left**2).sum() + np.sqrt(k) * single + rounding


@pytest.mark.share(8)
@pytest.mark.parametrize("family", ["plain", "low rank", "decay", "units", "copies", "heavy tails"])
@pytest.mark.parametrize("seed", range(4))
def test_remainders_of_columns_are_within_their_bounds_whatever_any_product_lost(family: str, seed: int) -> None:
    """Every product of two columns is off by all of its bound, in the direction that hurts one column most."""
    rng = np.random.default_rng(seed)
    X = rows_of(family, rng)
    D, moments = X - X.mean(axis=0), sks.Moments().from_block(X)
    norms, vt = np.linalg.norm(D, axis=0), np.linalg.svd(D)[2]
    scatter = float(norms @ norms)
    for k in (1, 5, 16):
        for column in rng.permutation(P)[:6]:
            signs = np.sign(np.eye(P)[column] - vt[:k].T @ vt[:k, column])
            for sign in (-1, 1):
                E = sign * SINGLE_UNIT * np.outer(signs * norms, signs * norms)
                np.fill_diagonal(E, 0.0)
                record = replace(moments.record, comoment=moments.record.comoment + E, single_scatter=scatter)
                subspace = column_subspace(moments._with(record, moments.context), k)
                left = D - D @ subspace.vectors @ subspace.vectors.T
                assert ((left**2).sum(axis=0) <= subspace.column_residuals + 1e-11 * norms**2).all()


@pytest.mark.parametrize(("decades", "of_all", "of_one", "of_factor"), [(0, 80, 0.7, 110), (3, 5, 1e-3, 60)])
def test_columns_count_the_rounding_of_their_own_products(
    decades: int, of_all: float, of_one: float, of_factor: float
) -> None:
    """Each had counted that of the products of all columns: 192 times in all, and 240 or 390 times in the factor."""
    X = np.random.default_rng(0).standard_normal((3000, 200)) * np.logspace(-decades, 0, 200)
    moments, exact = (sks.Moments().from_block(X.astype(np.float32).astype(kind)) for kind in (np.float32, float))
    rounded, known = (column_subspace(one, 8).column_residuals for one in (moments, exact))
    single = moments.single_rounding
    assert single > 0
    assert (rounded - known).sum() < of_all * single
    assert ((rounded - known)[:100] < of_one * single).all()
    chosen, least = (sks.DeterministicSelector(20, n_clusters=8).fit_summary(one) for one in (moments, exact))
    factor, exact_factor = (one.selection_.diagnostics["proven_factor"] for one in (chosen, least))
    assert exact_factor < factor < exact_factor * (1 + of_factor * single / moments.centered_squared_norm)


@pytest.mark.share(8)
@SEEDS
def test_what_a_sketch_gained_is_no_part_of_what_it_lost(seed: int) -> None:
    """Its gain has a trace of at most `single_rounding`, which k directions share."""
    D, sketch = moved(seed)
    B, delta, gained = sketch.centered_sketch, sketch.shrinkage, sketch.single_rounding
    squares, total = np.linalg.svd(B, compute_uv=False) ** 2, (D**2).sum()
    for k in range(2, SIZE):
        least = total - squares[: k - 1].sum() - (k - 1) * delta - 1e-11 * total
        assert spectral_bound(sketch, k)[0] >= least
        assert column_subspace(sketch, k).lower_bound(k) >= least
        assert directions_left(sketch, k - 1) >= least
        assert column_subspace(sketch, k).residual <= max(total - squares[:k].sum(), 0.0) + gained + 1e-11 * total


# Selection from float32: exact where that is promised, and bounds that give way by what float32 products lost.


def nearly_low_rank(n=300, p=900, rank=5, noise=1e-3):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, p)) + noise * rng.standard_normal((n, p))
    return X.astype(np.float32)


@pytest.mark.parametrize("ridge", ["auto", 0.0])
@pytest.mark.parametrize(("about", "offset"), [("zero", 0.0), ("mean", 0.0), ("mean", 1000.0)])
def test_float32_columns_are_scored_in_float64(ridge, about, offset):
    """What float32 products lose of AA', or differences from a mean far away, is more than five directions leave."""
    X = nearly_low_rank() + np.float32(offset)
    chosen = sks.LeverageSelector(40, ridge=ridge, read="columns", n_components=5, about=about).fit(X)
    wide = X.astype(np.float64)
    if about == "mean":
        wide -= wide.mean(axis=0)
    used = chosen.selection_.diagnostics["ridge"]
    assert np.allclose(chosen.scores_, leverage(wide, used), atol=1e-8)
    if ridge == "auto":
        assert used == pytest.approx(tail(wide, 5), rel=1e-7)


@pytest.mark.parametrize("ridge", ["auto", 1e5])
def test_bounds_from_moments_of_float32_hold(ridge):
    X = nearly_low_rank(900, 300)
    moments = sks.Moments().from_block(X)
    assert moments.single_rounding > 0
    chosen = sks.LeverageSelector(40, ridge=ridge, n_components=5).fit_summary(moments)
    tau = leverage(X.astype(np.float64), chosen.selection_.diagnostics["ridge"])
    lower, upper = chosen.score_bounds_
    assert (lower <= tau).all()
    assert (tau <= upper).all()
    assert (lower <= chosen.scores_).all()
    assert (chosen.scores_ <= upper).all()
    assert (lower > 0).any() == (ridge != "auto")


@pytest.mark.parametrize("cls", [sks.DeterministicSelector, sks.RandomizedSelector, sks.HybridSelector])
@pytest.mark.parametrize("noise", [1e-3, 1.0])
def test_what_moments_of_float32_say_holds_for_the_rows(cls, noise):
    """Products in float32 hide what is left beside strong directions; the bounds have to give way by as much."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((900, 5)) @ rng.standard_normal((5, 80)) + noise * rng.standard_normal((900, 80))
    X = X.astype(np.float32)
    moments = sks.Moments().from_block(X)
    assert moments.single_rounding > 0
    chosen = cls(20, n_clusters=5).fit_summary(moments)
    A = X.astype(np.float64)
    A -= A.mean(axis=0)
    result = column_subspace(moments, 5)
    E = A - A @ result.vectors @ result.vectors.T
    assert (E**2).sum() <= result.residual
    assert ((E**2).sum(axis=0) <= result.column_residuals).all()
    squares = np.linalg.svd(A, compute_uv=False) ** 2
    for k in (1, 2, 5, 6):
        assert result.lower_bound(k) <= squares[k - 1 :].sum()
    C = A[:, chosen.support_] * chosen.weights_
    for k in (1, 5):
        X_out = rng.integers(0, k, 900)
        assert chosen.certificate_.structural_bound(objective(C, X_out)) >= objective(A, X_out)
    if cls is sks.DeterministicSelector:
        # The theorems need ||E||^2, here by column, against the best one; beside strong directions it is not known.
        excess = result.column_residuals.sum() / squares[5:].sum()
        exact = cls(20, n_clusters=5).fit_summary(sks.Moments().from_block(X.astype(float)))
        factor, least = (one.selection_.diagnostics["proven_factor"] for one in (chosen, exact))
        assert factor is None if noise < 1 else least * excess <= factor * (1 + 1e-12) < 1.01 * least


def test_what_best_directions_leave_counts_no_rounding():
    """Eigenvalues that rounding makes negative are set to zero, and those left are too much by as much."""
    rng = np.random.default_rng(9)
    X = (rng.standard_normal((400, 1)) @ rng.standard_normal((1, 300))).astype(np.float32)
    sketch = sks.Moments().from_block(X)
    A = X.astype(float) - X.astype(float).mean(axis=0)
    squares = np.linalg.svd(A, compute_uv=False) ** 2
    assert sketch.centered_directions.squares[1:].sum() > squares[1:].sum() + 1e-12 * squares[0]
    assert directions_left(sketch, 1) <= squares[1:].sum() + 1e-12 * squares[0]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_rows_of_low_rank_have_no_more_directions(rank):
    """Columns of mostly one value: its rounding is the same in all rows, so that it adds up."""
    rng = np.random.default_rng(rank)
    rows = rng.standard_normal((3000, rank)) @ rng.standard_normal((rank, 200)) * (rng.random((3000, 1)) < 0.1)
    X = (rows - 0.37 * np.abs(rng.standard_normal(200))).astype(np.float32)
    sketch = sks.Moments().from_block(X)
    assert sketch.single_rounding > 0
    assert column_subspace(sketch, 6).vectors.shape[1] == rank


def of_low_rank(kind, rank=12, n=2000, p=80):
    rng = np.random.default_rng(rank)
    X = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, p))
    if kind == "units":
        X *= 10.0 ** rng.uniform(-3, 3, p)
    elif kind == "decades":
        X = (rng.standard_normal((n, rank)) * 10.0 ** -np.linspace(0, 2, rank)) @ rng.standard_normal((rank, p))
    elif kind == "mostly one value":
        X = X * (rng.random((n, 1)) < 0.1) - 0.37 * np.abs(rng.standard_normal(p))
    elif kind == "beside a strong one":
        X[:, 0] *= 1e3
    return X.astype(np.float32)


SELECTORS = [
    partial(sks.GreedySelector, normalize=None),
    partial(sks.GreedySelector, normalize=None, noise=None, about="zero"),
    partial(sks.PivotedQRSelector, normalize=None),
    OsinskySelector,
    partial(OsinskySelector, n_components=5),
    sks.DeterministicSelector,
]


@pytest.mark.parametrize("make", SELECTORS)
@pytest.mark.parametrize("kind", ["plain", "units", "decades", "mostly one value", "beside a strong one"])
def test_no_more_directions_of_float32_rows_than_their_rank_are_selected_on(make, kind):
    X = of_low_rank(kind)
    moments = sks.Moments().from_block(X)
    assert moments.single_rounding > 0
    chosen, exact = (make(20).fit_summary(one) for one in (moments, sks.Moments().from_block(X.astype(float))))
    name = "n_directions" if "n_directions" in exact.selection_.diagnostics else "n_components"
    assert chosen.selection_.diagnostics[name] == exact.selection_.diagnostics[name] <= 13
    # Where the columns before it leave nothing, rounding chooses the next one in float64, too.
    assert np.isin(chosen.support_, exact.support_).sum() >= 15
    A = X.astype(float) - X.astype(float).mean(axis=0)
    left = A - A[:, chosen.support_] @ np.linalg.lstsq(A[:, chosen.support_], A)[0]
    bound = chosen.selection_.diagnostics.get("error_bound")
    assert bound is None or (left**2).sum() <= bound
    # A stop among the directions of the rows: their remainder is more than rounding, and orders the columns.
    few, least = (make(8).fit_summary(one) for one in (moments, sks.Moments().from_block(X.astype(float))))
    assert few.support_.tolist() == least.support_.tolist()


@pytest.mark.parametrize("make", SELECTORS)
@pytest.mark.parametrize("exponents", [[3] + [0] * 79, np.linspace(-3, 3, 80)])
def test_columns_in_small_units_are_no_rounding(make, exponents):
    """Their products in float32 are as precise as those of columns that are 1,000 times larger."""
    X = (np.random.default_rng(0).standard_normal((2000, 80)) * 10.0 ** np.asarray(exponents)).astype(np.float32)
    moments = sks.Moments().from_block(X)
    assert moments.single_rounding > 0
    chosen, exact = (make(20).fit_summary(one) for one in (moments, sks.Moments().from_block(X.astype(float))))
    assert chosen.support_.tolist() == exact.support_.tolist()
    name = "n_directions" if "n_directions" in exact.selection_.diagnostics else "n_components"
    assert chosen.selection_.diagnostics[name] == exact.selection_.diagnostics[name]


def test_directions_of_columns_in_small_units_come_before_those_that_are_rounding():
    """Two columns are multiples of each other, and what float32 products leave of that exceeds the small ones."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((2000, 80))
    X[:, 1:40] = X[:, :1] @ rng.standard_normal((1, 39))
    X[:, 40:] *= 1e-4
    X = X.astype(np.float32)
    moments = sks.Moments().from_block(X)
    noise = moments.centered_directions.squares
    real = np.linalg.svd(X[:, 40:] - X[:, 40:].mean(axis=0, dtype=float), compute_uv=False) ** 2
    assert noise[1] > real[20] > noise[-1]
    subspace = column_subspace(moments, 30)
    assert np.linalg.norm(subspace.vectors[40:]) ** 2 == pytest.approx(29, rel=1e-3)
    assert subspace.angle is None
    A = X.astype(float) - X.astype(float).mean(axis=0)
    E = A - A @ subspace.vectors @ subspace.vectors.T
    assert (E**2).sum() <= subspace.residual
    assert ((E**2).sum(axis=0) <= subspace.column_residuals).all()
    greedy = sks.GreedySelector(20, n_components=30, normalize=None).fit_summary(moments)
    assert (greedy.support_ >= 40).sum() == 19
    assert greedy.selection_.diagnostics["subspace_angle"] is None
    assert (OsinskySelector(20).fit_summary(moments).support_ >= 40).sum() == 19


SKETCHED = [*SELECTORS, sks.LeverageSelector, partial(sks.HybridSelector, random_state=0)]


@pytest.mark.parametrize("make", SKETCHED)
@pytest.mark.parametrize("kind", ["units", "copies", "near copies", "one strong column"])
def test_sketches_with_products_in_float32_select_the_columns_that_those_in_float64_do(make, kind):
    rng = np.random.default_rng(8)
    X = rng.standard_normal((3000, 100)) * rng.uniform(1, 2, 100)
    if kind == "units":
        X *= 10.0 ** rng.uniform(-4, 4, 100)
    elif kind == "copies":
        X[:, 90:94], X[:, 95] = 1.7 * X[:, :4], X[:, 7] + X[:, 8]
    elif kind == "near copies":
        X[:, 94:] = X[:, :6] + 10.0 ** -np.arange(6) * rng.standard_normal((3000, 6))
    else:
        X[:, 0] *= 1e3
    X = X.astype(np.float32)
    sketch, exact = (sks.FrequentDirections(40).from_block(X.astype(kind)) for kind in (np.float32, np.float64))
    assert sketch.single_rounding > exact.single_rounding == 0
    assert make(20).fit_summary(sketch).support_.tolist() == make(20).fit_summary(exact).support_.tolist()


def test_weak_directions_of_sketches_with_products_in_float32_are_no_rounding():
    X = np.random.default_rng(8).standard_normal((3000, 100))
    X[:, 96:] = X[:, :4] + 1e-3 * X[:, 96:]
    sketch = sks.FrequentDirections(40).from_block(X.astype(np.float32))
    assert sketch.single_rounding > 0
    assert OsinskySelector(100).fit_summary(sketch).selection_.diagnostics["n_directions"] == 100
    assert (single_noise(sketch, sketch.centered_directions) == 0).all()


def test_intervals_of_variances_include_the_rounding_of_products_both_ways():
    X = np.random.default_rng(2).standard_normal((3000, 100)).astype(np.float32)
    summary = sks.FrequentDirections(40).from_block(X)
    A = X.astype(float) - X.astype(float).mean(axis=0)
    exact = np.linalg.svd(A, compute_uv=False)[:20] ** 2 / 2999
    pca = SketchedPCA(20).fit_summary(summary)
    least, most = pca.explained_variance_bounds_.T
    rounding = 1e-13 * exact.sum()
    assert (np.abs(pca.explained_variance_ - exact) > 20 * rounding).any()
    assert (least <= exact + rounding).all()
    assert (exact <= most + rounding).all()
    assert (most - pca.explained_variance_ >= summary.single_rounding / 2999).all()
