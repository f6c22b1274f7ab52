"""The leading eigenpairs of small symmetric matrices: held to all eigenpairs, and refused rather than wrong."""

import numpy as np
import pytest

from sketchselect.linalg import spectrum
from sketchselect.linalg.shrink import RESIDUALS, leading_eigenpairs, shrink, shrink_factors
from sketchselect.linalg.spectrum import row_directions, subspace_angle, symmetric_directions

EPS = float(np.finfo(np.float64).eps)


def gram_of(values, seed=0):
    q, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values), len(values))))
    gram = (q * values) @ q.T
    return (gram + gram.T) / 2


M = 120
SPECTRA = {
    "even": np.linspace(1, 2, M),
    "close": 1 + 1e-9 * np.arange(M),
    "steep": 0.7 ** np.arange(M),
    "graded": np.logspace(0, -12, M),
    "one huge": np.r_[1e12, np.linspace(1, 2, M - 1)],
    "low rank": np.r_[np.linspace(1, 2, 70), np.zeros(M - 70)],
    "tiny": 1e-290 * np.linspace(1, 2, M),
    "large": 1e299 * np.linspace(1, 2, M),
}


@pytest.mark.parametrize("name", SPECTRA)
def test_vectors_are_orthonormal_and_their_residual_is_bounded(name):
    gram = gram_of(SPECTRA[name])
    pairs = leading_eigenpairs(gram, 50)
    if pairs is None:
        # Which spectra are refused may depend on the build of LAPACK; these two must not be.
        assert name not in {"even", "one huge"}
        return
    lam, vectors, residual = pairs
    top = lam[0]
    assert np.allclose(vectors.T @ vectors, np.eye(50), rtol=0, atol=1e-12)
    assert np.abs(lam - np.linalg.eigvalsh(gram)[::-1][:51]).max() <= 20 * M * EPS * top
    difference = (gram / top) @ vectors - vectors * (lam[:50] / top)
    assert np.linalg.norm(difference) <= residual / top + 2 * M * EPS


@pytest.mark.share(12)
@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("gap", [1e-6, 1e-7, 1e-8, 3e-9, 1e-9, 1e-10])
@pytest.mark.parametrize(("m", "n"), [(120, 50), (240, 99), (480, 199)])
def test_close_eigenvalues_have_vectors_orthonormal_to_rounding_or_none(m, n, gap, groups):
    """Whatever the gap: rows of a sketch may grow by no more than the rounding that the shrinkage includes."""
    values = np.repeat(np.linspace(1, 2, m // 4), 4) if groups else np.ones(m)
    pairs = leading_eigenpairs(gram_of(values + gap * np.arange(m)), n)
    if pairs is not None:
        assert np.linalg.norm(pairs[1].T @ pairs[1] - np.eye(n), 2) <= m * EPS


@pytest.mark.share(6)
@pytest.mark.parametrize("seed", range(20))
def test_an_error_of_eigenvectors_moves_eigenvalues_by_at_most_its_bound(seed):
    rng = np.random.default_rng(seed)
    column = rng.standard_normal((9, int(rng.integers(1, 5))))
    # The worst case of one column, too: 1 / sqrt(3) beside sqrt(2 / 3).
    column = np.array([[np.sqrt(1 / 3)], [np.sqrt(2 / 3)]]) if seed == 0 else column
    n = column.shape[1]
    x = (column[:n] + column[:n].T) / 2
    column = np.vstack([x, column[n:]]) / np.linalg.norm(np.vstack([x, column[n:]]), 2)
    whole = np.zeros((len(column), len(column)))
    whole[:, :n] = column
    whole[:n, :] = column.T
    assert np.linalg.norm(whole, 2) <= RESIDUALS


def test_a_pivot_of_zero_counts_as_the_negative_one_that_it_is_taken_for():
    """The first interval is [-2, 2], so that the second of its middles is the first entry itself."""
    gram = np.diag(np.r_[1.0, 1.5 - 1e-3, np.linspace(0.01, 0.3, M - 2)])
    gram += np.diag(np.r_[0.5, np.full(M - 2, 1e-3)], -1)
    lam, _, _ = leading_eigenpairs(gram, 1)
    assert np.allclose(lam, np.linalg.eigvalsh(gram)[:-3:-1], rtol=1e-14 * M, atol=0)


def test_only_the_lower_triangle_is_read():
    gram = gram_of(SPECTRA["even"])
    lower = np.tril(gram) + np.triu(np.full((M, M), np.nan), 1)
    lam, vectors, _ = leading_eigenpairs(lower, 40)
    assert np.allclose(gram @ vectors, vectors * lam[:40])


@pytest.mark.parametrize(
    "gram",
    [np.eye(M), np.zeros((M, M)), np.full((M, M), np.inf), np.full((M, M), np.nan)],
    ids=["equal", "zero", "infinite", "not a number"],
)
def test_what_cannot_be_separated_is_refused(gram):
    assert leading_eigenpairs(gram, 50) is None


@pytest.mark.parametrize("name", [*SPECTRA, "equal", "rank one", "arrow", "diagonal"])
def test_a_shrink_loses_at_most_what_it_says(name):
    """In extended precision, on the rows themselves: neither side rests on the eigenpairs."""
    size = 40
    values = {"equal": np.ones(M), "rank one": np.r_[1.0, np.zeros(M - 1)], "arrow": np.ones(M), "diagonal": np.ones(M)}
    values = values[name] if name in values else SPECTRA[name] / SPECTRA[name].max()
    q, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((M, M)))
    r, _ = np.linalg.qr(np.random.default_rng(2).standard_normal((M, M)))
    rows = (q * np.sqrt(values)) @ r.T
    if name in {"arrow", "diagonal"}:
        rows = rows if name == "arrow" else np.eye(M)
        rows[1:, 1:] = np.diag(np.linspace(1, 2, M - 1))
    sketch, lost = shrink(rows, size)
    long = rows.astype(np.longdouble)
    gap = (long.T @ long - sketch.astype(np.longdouble).T @ sketch).astype(float)
    lam, slack = np.linalg.eigvalsh(gap), 2 * M * EPS * np.linalg.norm(rows, 2) ** 2
    assert lam[0] >= -slack
    assert lam[-1] <= lost + slack
    assert size * lost <= (rows**2).sum() - (sketch**2).sum() + size * 4 * slack


def test_factors_are_those_of_all_eigenpairs(monkeypatch):
    gram = gram_of(SPECTRA["even"])
    ours = shrink_factors(gram, 50)
    monkeypatch.setattr("sketchselect.linalg.shrink.leading_eigenpairs", lambda *_: None)
    all_pairs = shrink_factors(gram, 50)
    assert np.allclose(ours[0].T @ ours[0], all_pairs[0].T @ all_pairs[0], rtol=0, atol=1e-11)
    assert np.allclose(ours[1], all_pairs[1], rtol=1e-12)
    assert ours[2] == pytest.approx(all_pairs[2], rel=1e-12)


# Directions of the rows of a sketch, against the singular value decomposition of LAPACK.

UNITS = 1e-13


@pytest.mark.share(6)
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
