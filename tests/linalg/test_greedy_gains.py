"""Greedy selection that computes few gains: the order of a selection that computes all, and inequalities that hold."""

import numpy as np
import pytest
from scipy.linalg import eigh

from sketchselect.linalg import pivoting
from sketchselect.linalg.pivoting import (
    CLOSE,
    EXHAUSTED,
    REFRESH,
    TIE,
    GreedyGains,
    _descending,
    _Exclusion,
    is_positive,
    quadratic_forms,
)

RULE = CLOSE, TIE, EXHAUSTED


@pytest.fixture
def many_sets(monkeypatch):
    """Nested sets of few columns, from the first moment on at which there can be any."""
    for name, value in {"FIRST_SPLIT": 0, "SMALLEST": 6, "RATIO": 3}.items():
        monkeypatch.setattr(pivoting, name, value)


def order_of(columns, noise, n, alive=None):
    """Columns in order, and the largest number of exclusions at any time."""
    gains = GreedyGains(columns, noise, *RULE)
    gains.start(np.ones(len(columns), dtype=bool) if alive is None else alive)
    order, most = [], 0
    while len(order) < n and (j := gains.take()) >= 0:
        order.append(j)
        most = max(most, len(gains._exclusions))
    return order, most


def plain_order(columns, noise, n, alive=None):
    """The same with all gains of every step, from the definition and the rule for ties."""
    second = columns.T @ columns
    posterior = np.eye(columns.shape[1])
    left = np.ones(len(columns), dtype=bool) if alive is None else alive.copy()
    order = []
    while len(order) < n:
        u = columns @ posterior
        variance, reach = (u * columns).sum(axis=1), ((u @ second) * u).sum(axis=1)
        able = left & (variance > EXHAUSTED)
        with np.errstate(all="ignore"):
            gain = np.where(able, reach / (noise + variance), 0)
        if not gain.max() > EXHAUSTED:
            break
        near = np.flatnonzero(gain >= gain.max() * (1 - CLOSE))
        j = near[0]
        for i in near[1:]:
            j = i if variance[i] > variance[j] * (1 + TIE) else j
        order.append(int(j))
        left[j] = False
        posterior = posterior - np.outer(u[j], u[j]) / (noise[j] + variance[j])
    return order


def instance(kind, p, m=12, seed=0):
    """Columns of at most unit length, and noise."""
    rng = np.random.default_rng(seed)
    C = rng.standard_normal((p, m)) * np.geomspace(1, 0.03, m)
    noise = rng.exponential(size=p) * (C**2).sum(axis=1).mean()
    noise += noise.mean()
    if kind == "scales":
        C *= rng.lognormal(0, 2, p)[:, None]
    elif kind == "tiny":
        C *= 1e-5 ** rng.integers(0, 3, p)[:, None]
        noise = np.full(p, 1e-3)
    elif kind == "duplicates":
        C, noise = C[np.arange(p) % (p // 4)], noise[np.arange(p) % (p // 4)]
    elif kind == "norms":
        C /= np.linalg.norm(C, axis=1)[:, None]
        noise = np.full(p, 0.5)
    elif kind == "integers":
        C = rng.integers(-1, 2, (p, m)).astype(float)
        noise = np.full(p, 2.0)
    elif kind == "clusters":
        C = C[np.arange(p) % 9] + 1e-5 * rng.standard_normal((p, m))
        noise = np.full(p, 0.1)
    elif kind == "zeros":
        C[rng.random(p) < 0.5] = 0
    elif kind == "axes":
        C = np.eye(m)[np.arange(p) % m] * rng.integers(1, 4, p)[:, None]
    elif kind == "little noise":
        noise *= 1e-9
    elif kind == "weak directions":
        C *= np.geomspace(1, 1e-6, m)
    top = (C**2).sum(axis=1).max()
    return C / np.sqrt(top), noise / top


KINDS = ["plain", "scales", "tiny", "duplicates", "norms", "integers", "clusters", "zeros", "axes", "little noise",
         "weak directions"]  # fmt: skip
TIED = ["axes", "duplicates", "integers", "clusters", "little noise"]
"""Kinds in which no test says that columns are excluded: gains are equal, or change much with each column."""


@pytest.mark.share(8)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "little noise"])
def test_the_order_is_that_of_all_gains(kind, seed, many_sets):
    C, noise = instance(kind, 600, seed=seed)
    order, most = order_of(C, noise, 600)
    assert order == plain_order(C, noise, 600)
    assert most >= 2 or kind in TIED


@pytest.mark.parametrize("m", [1, 2, 33, 70])
def test_other_numbers_of_directions(m, many_sets):
    C, noise = instance("plain", 500, m)
    order, _ = order_of(C, noise, 400)
    assert order == plain_order(C, noise, 400)


def test_little_noise_does_not_matter_before_the_directions_are_spanned(many_sets):
    C, noise = instance("little noise", 600)
    # Then what is left of the posterior is mostly rounding.
    assert order_of(C, noise, 12)[0] == plain_order(C, noise, 12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(10), *(pytest.param(n, marks=pytest.mark.nightly) for n in range(10, 40))])
@pytest.mark.parametrize("kind", KINDS)
def test_one_set_and_many_have_the_same_order(kind, seed, monkeypatch):
    """The same bits, so that this holds for gains that only rounding tells apart too."""
    rng = np.random.default_rng(seed)
    p, m = int(rng.integers(100, 500)), int(rng.integers(1, 45))
    C, noise = instance(kind, p, m, seed)
    monkeypatch.setattr(pivoting, "FIRST_SPLIT", 10**9)
    expected, most = order_of(C, noise, p)
    assert most == 0
    for settings in ({"FIRST_SPLIT": 0, "SMALLEST": 6, "RATIO": 3}, {"FIRST_SPLIT": 128, "SMALLEST": 32, "RATIO": 8}):
        for name, value in settings.items():
            monkeypatch.setattr(pivoting, name, value)
        assert order_of(C, noise, p)[0] == expected


@pytest.mark.share(3)
@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("kind", ["plain", "scales", "norms", "clusters"])
def test_several_thousand_columns(kind, share, monkeypatch):
    C, noise = instance(kind, 4000, 20)
    order, most = order_of(C, noise, int(4000 * share))
    assert most >= 1 or kind in TIED
    monkeypatch.setattr(pivoting, "FIRST_SPLIT", 10**9)
    assert order == order_of(C, noise, int(4000 * share))[0]


def test_columns_are_left_out_at_the_start_and_on_the_way(many_sets):
    C, noise = instance("plain", 600)
    alive = np.arange(600) % 3 > 0
    gains = GreedyGains(C, noise, *RULE)
    for _ in range(2):  # A second start forgets the first.
        gains.start(alive)
        order = []
        while (j := gains.take()) >= 0:
            gains.exclude(np.array([j, (7 * j) % 600]))
            order.append(j)
        out = set(np.flatnonzero(~alive))
        for j in order:
            assert j not in out
            out |= {j, (7 * j) % 600}
        assert out == set(range(600))
    first = np.array(order[:1])
    assert plain_order(C, noise, 1, alive) == first.tolist()


# --- inequalities ------------------------------------------------------------------------------------------------


def exclusion(C, noise, posterior, weights):
    second = C.T @ C
    weighted = posterior @ second @ posterior
    variance, reach = np.einsum("ij,jk,ik->i", C, posterior, C), np.einsum("ij,jk,ik->i", C, weighted, C)
    bounds = [((reach + e * variance) / (noise + variance)).max() for e in weights]
    return second, _Exclusion(0, np.array(weights), np.array(bounds), weighted, posterior, (0.0, 0.0))


@pytest.mark.share(12)
@pytest.mark.parametrize("seed", range(50))
def test_no_gain_of_any_column_is_above_what_the_inequality_says(seed):
    rng = np.random.default_rng(seed)
    C, noise = instance("plain", 80, 5, seed)
    before = np.eye(5)
    for j in rng.integers(0, 80, 30):
        u = before @ C[j]
        before -= np.outer(u, u) / (noise[j] + C[j] @ u)
    after = before.copy()
    for j in rng.integers(0, 80, rng.integers(1, 20)):
        u = after @ C[j]
        after -= np.outer(u, u) / (noise[j] + C[j] @ u)
    e = float(rng.choice([0.0, 0.01, 0.1, 1.0]))
    second, one = exclusion(C, noise, before, [e])
    weighted = after @ second @ after
    # The column for which the inequality is sharpest: as large as the bound before allows.
    least, most = 0.0, 100.0 * one.bounds[0]
    for _ in range(60):
        middle = 0.5 * (least + most)
        holds = one.holds(middle, weighted, after, (0.0, 0.0), 0.0)
        least, most = (least, middle) if holds else (middle, most)
    for _ in range(200):
        c = rng.standard_normal(5) * np.geomspace(1, rng.choice([1, 1e-3]), 5)
        n = max(0.0, (c @ one.weighted @ c + e * (c @ before @ c)) / one.bounds[0] - c @ before @ c)
        assert c @ weighted @ c <= most * (1 + 1e-9) * (n + c @ after @ c)
    # And it is no weaker than it has to be: the smallest gain is that of a generalised eigenproblem.
    top = eigh(weighted + most * (before - after), one.weighted + e * before, eigvals_only=True)[-1]
    assert most / one.bounds[0] == pytest.approx(top, rel=1e-6)


def test_an_inequality_that_rounding_could_break_does_not_hold():
    C, noise = instance("plain", 50, 4)
    second, one = exclusion(C, noise, np.eye(4), [0.0])
    gain = float(one.bounds[0]) * (1 + 1e-9)
    assert one.holds(gain, second, np.eye(4), (0.0, 0.0), 1e-16)
    one.norms = norms = float(np.linalg.norm(second)), 2.0
    assert not one.holds(gain, second, np.eye(4), norms, 1e-6)


@pytest.mark.parametrize("bound", [0.0, np.inf, np.nan, 5e-324])
@pytest.mark.parametrize("gain", [0.0, np.nan, 1.0])
def test_no_bound_excludes_nothing(bound, gain):
    one = _Exclusion(0, np.array([0.0]), np.array([bound]), np.eye(2), np.eye(2), (0.0, 0.0))
    assert not one.holds(gain, np.eye(2), np.eye(2), (0.0, 0.0), 1e-16)


def test_stated_norms_are_no_less_than_those_of_every_posterior(many_sets):
    C, noise = instance("weak directions", 300)
    gains = GreedyGains(C, noise, *RULE)
    gains.start(np.ones(300, dtype=bool))
    for _ in range(3 * REFRESH - 1):
        gains.take()
        large = np.abs(gains.posterior)
        product = large @ np.abs(gains.second) @ large
        assert np.linalg.norm(product) <= gains._norms[0] * (1 + 1e-12)
        assert np.linalg.norm(large) <= gains._norms[1] * (1 + 1e-12)


# --- kernels -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 3, 4, 40])
@pytest.mark.parametrize("n", [0, 1, 63, 64, 200])
def test_quadratic_forms_have_the_same_bits_at_every_place(m, n):
    rng = np.random.default_rng(m)
    C, root = rng.standard_normal((300, m)), rng.standard_normal((m, m))
    M, S = root @ root.T, C.T @ C
    doubled = 2 * np.tril(S, -1) + np.diag(S.diagonal())
    members = rng.permutation(300)[:n]
    v, r = np.empty(n), np.empty(n)
    quadratic_forms(C, members, M, doubled, v, r)
    np.testing.assert_allclose(v, np.einsum("ij,jk,ik->i", C[members], M, C[members]), rtol=1e-12)
    np.testing.assert_allclose(r, np.linalg.norm(C @ M @ C[members].T, axis=0) ** 2, rtol=1e-12)
    every = np.empty((2, 300))
    quadratic_forms(C, np.arange(300), M, doubled, *every)
    assert every[:, members].tobytes() == np.array([v, r]).tobytes()


@pytest.mark.parametrize("m", [1, 2, 7, 40])
def test_positive_matrices_are_those_of_positive_eigenvalues(m):
    rng = np.random.default_rng(m)
    for _ in range(30):
        root = rng.standard_normal((m, m))
        matrix = root @ root.T
        least = np.linalg.eigvalsh(matrix)[0]
        below, above = (matrix - share * least * np.eye(m) for share in (0.99, 1.01))
        assert is_positive(below)
        assert not is_positive(above)
    assert not is_positive(np.full((m, m), np.nan))


@pytest.mark.share(8)
@pytest.mark.parametrize("seed", range(30))
def test_columns_by_their_norms_are_those_of_a_search_at_every_step(seed):
    rng = np.random.default_rng(seed)
    values = rng.choice([0, 1, 1 + 4e-11, 1 + 8e-11, 1 + 1.2e-10, 2, 3.5], 60) * rng.choice([1, 1e-30])
    alive, group = rng.random(60) < 0.8, rng.integers(0, 40, 60)
    left, expected = alive & (values > 0), []
    while left.any() and len(expected) < 25:
        j = int(np.flatnonzero(left & (values >= values[left].max() * (1 - TIE)))[0])
        left &= group != group[j]
        expected.append(j)
    mask = alive.copy()
    assert list(_descending(values, mask, lambda j: np.flatnonzero(group == group[j]), 25)) == expected
    assert np.array_equal(mask, alive & ~np.isin(group, group[expected]))
