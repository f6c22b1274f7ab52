"""Paths against scikit-learn on the rows, and what only the options of a path decide."""

import numpy as np
import pytest
from sklearn.linear_model import MultiTaskElasticNet, MultiTaskLasso, enet_path, lasso_path

from sketchselect.errors import BadParameter
from sketchselect.solvers import (
    MCP,
    SCAD,
    ElasticNet,
    Lasso,
    adaptive_factors,
    least_squares,
    penalized,
    ridge,
    solve_path,
    standardize,
    standardize_rows,
)
from sketchselect.solvers.descent_kernels import _newton_step


def dense(path):
    return np.array([path.coef(i) for i in range(len(path))]).T


@pytest.mark.share(2)
@pytest.mark.parametrize(("n", "p"), [(400, 80), (60, 80)], ids=["tall", "wide"])
@pytest.mark.parametrize("l1_ratio", [1.0, 0.5, 0.1])
def test_convex_paths_equal_those_on_the_rows(make, n, p, l1_ratio):
    data = make(n, p, 8)
    mine = solve_path(data.problem, ElasticNet(l1_ratio) if l1_ratio < 1 else Lasso(), n_alphas=25)
    y = data.centered[:, 0]
    options = {"alphas": mine.alphas, "tol": 1e-13, "max_iter": 200_000}
    if l1_ratio < 1:
        _, theirs, _ = enet_path(data.z, y, l1_ratio=l1_ratio, **options)
    else:
        _, theirs, _ = lasso_path(data.z, y, **options)
    np.testing.assert_allclose(dense(mine), theirs, atol=1e-6)
    assert mine.optimality.max() <= 1e-10


@pytest.mark.parametrize("penalty", [Lasso(), ElasticNet(0.5), MCP(), SCAD()], ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("q", [1, 3])
def test_few_rows_have_the_models_of_their_correlations(make, penalty, q):
    data = make(30, 60, 5, q)
    whole = data.problem
    rows = (data.x - whole.mean) / np.sqrt(len(data.x))
    few = standardize_rows(
        rows, whole.xy * whole.scale[:, None], whole.yy, mean=whole.mean, y_mean=whole.y_mean, n=whole.n
    )
    np.testing.assert_allclose(few.correlation, whole.correlation, atol=1e-14)
    ours, theirs = (solve_path(p, penalty, n_alphas=10, target=0 if q == 1 else None) for p in (few, whole))
    np.testing.assert_allclose(ours.data, theirs.data, atol=1e-7)
    assert np.array_equal(ours.indices, theirs.indices)
    assert few.rss(ours.coef(-1)) == pytest.approx(whole.rss(theirs.coef(-1)), rel=1e-6)


def test_first_alpha_is_the_smallest_that_leaves_nothing(make):
    data = make(200, 30, 4)
    path = solve_path(data.problem, Lasso(), n_alphas=5)
    assert path.alphas[0] == pytest.approx(np.abs(data.problem.xy).max())
    just_below = solve_path(data.problem, Lasso(), alphas=[path.alphas[0] * 0.999])
    assert path.n_nonzero[0] == 0
    assert just_below.n_nonzero[0] == 1
    assert path.alphas[-1] == pytest.approx(1e-3 * path.alphas[0])


def test_alphas_are_sorted_and_may_be_zero(make):
    data = make(200, 10, 2)
    path = solve_path(data.problem, Lasso(), alphas=[0.0, 0.3, 0.1])
    assert path.alphas.tolist() == [0.3, 0.1, 0.0]
    np.testing.assert_allclose(path.coef(-1), np.linalg.lstsq(data.z, data.centered[:, 0])[0], atol=1e-8)


def test_strong_columns_are_found_without_shrinkage(make):
    data = make(2000, 100, 10)
    for penalty in (MCP(), SCAD()):
        path = solve_path(data.problem, penalty, max_features=10)
        assert path.support(-1).tolist() == data.true.tolist()
        np.testing.assert_allclose(path.coef(-1), least_squares(data.problem, data.true)[:, 0], atol=1e-8)


def test_max_features_stops_before_the_first_larger_model(make):
    data = make(300, 50, 10, beta=0.3)
    full = solve_path(data.problem, Lasso())
    short = solve_path(data.problem, Lasso(), max_features=7)
    assert (short.n_nonzero <= 7).all()
    assert full.n_nonzero[len(short)] > 7
    np.testing.assert_array_equal(short.alphas, full.alphas[: len(short)])
    with pytest.raises(BadParameter, match="max_features = 1"):
        solve_path(data.problem, Lasso(), alphas=[1e-3], max_features=1)


def test_penalty_factors_are_a_change_of_units(make):
    data = make(300, 20, 4)
    f = np.linspace(0.5, 2.0, 20)
    path = solve_path(data.problem, Lasso(), n_alphas=15, penalty_factor=f)
    _, theirs, _ = lasso_path(data.z / f, data.centered[:, 0], alphas=path.alphas, tol=1e-13, max_iter=100_000)
    np.testing.assert_allclose(dense(path), theirs / f[:, None], atol=1e-6)


def test_factor_zero_is_unpenalised_and_infinity_is_out(make):
    data = make(300, 20, 4)
    f = np.ones(20)
    f[[0, 1]] = 0.0
    f[data.true[-1]] = np.inf
    path = solve_path(data.problem, MCP(), n_alphas=30, penalty_factor=f)
    np.testing.assert_allclose(path.coef(0), least_squares(data.problem, [0, 1])[:, 0], atol=1e-9)
    assert not any(path.coef(i)[data.true[-1]] for i in range(30))
    gradient = data.problem.xy[:, 0] - data.problem.correlation @ path.coef(-1)
    assert np.abs(gradient[[0, 1]]).max() < 1e-9


def test_adaptive_lasso_keeps_strong_columns(make):
    data = make(400, 60, 6)
    f = adaptive_factors(ridge(data.problem, 1e-3))
    assert f[data.true].max() < np.delete(f, data.true).min()
    assert f.mean() == pytest.approx(1.0)
    path = solve_path(data.problem, Lasso(), penalty_factor=f, max_features=6)
    assert path.support(-1).tolist() == data.true.tolist()
    assert np.isinf(adaptive_factors([1.0, 0.0])[1])
    with pytest.raises(BadParameter, match="all coefficients"):
        adaptive_factors(np.zeros(3))


@pytest.mark.parametrize("l1_ratio", [1.0, 0.5])
def test_groups_equal_the_multi_task_models(make, l1_ratio):
    data = make(200, 40, 5, q=3, beta=0.5)
    mine = solve_path(data.problem, ElasticNet(l1_ratio), n_alphas=8, alpha_ratio=0.03, target=None)
    for i, alpha in enumerate(mine.alphas):
        options = {"alpha": alpha, "tol": 1e-14, "max_iter": 100_000}
        model = MultiTaskLasso(**options) if l1_ratio == 1 else MultiTaskElasticNet(l1_ratio=l1_ratio, **options)
        np.testing.assert_allclose(mine.coef(i), model.fit(data.z, data.centered).coef_.T, atol=1e-6)
    assert mine.optimality.max() <= 1e-10


@pytest.mark.parametrize("penalty", [MCP(), SCAD()], ids=repr)
def test_groups_are_stationary_on_the_norms(make, penalty):
    data = make(200, 40, 5, q=3)
    path = solve_path(data.problem, penalty, n_alphas=15, alpha_ratio=0.05, target=None)
    for i, alpha in enumerate(path.alphas):
        b = path.coef(i)
        residual = data.problem.xy - data.problem.correlation @ b
        size = np.linalg.norm(b, axis=1)
        used = size > 0
        assert used.sum() == path.n_nonzero[i]
        assert np.linalg.norm(residual[~used], axis=1).max(initial=0.0) <= alpha + 1e-8
        # Along b the condition is that of one coefficient; across it nothing may be left.
        along = (residual[used] * b[used]).sum(axis=1) / size[used]
        assert penalty.subdiff_distance(size[used], -along, alpha).max(initial=0.0) <= 1e-8
        across = residual[used] - along[:, None] * b[used] / size[used, None]
        assert np.abs(across).max(initial=0.0) <= 1e-8


@pytest.mark.parametrize("penalty", [Lasso(), MCP()], ids=repr)
def test_collinear_groups_converge(make, penalty):
    # A warning would fail the test: without second-order steps these take more sweeps than are allowed.
    path = solve_path(make(200, 80, 8, q=3, rho=0.95).problem, penalty, n_alphas=20, target=None)
    assert path.optimality.max() <= 1e-10


@pytest.mark.parametrize("definite", [True, False], ids=["convex", "concave"])
def test_newton_step_solves_the_whole_system(definite):
    rng = np.random.default_rng(3)
    k, q = 9, 4
    block = np.corrcoef(rng.standard_normal((k, 40)))
    unit = rng.standard_normal((k, q))
    unit /= np.linalg.norm(unit, axis=1)[:, None]
    slope = np.where(np.arange(k) % 3, 0.2, 0.0) if definite else np.full(k, -0.9)
    across = np.where(np.arange(k) % 2, 0.3, 0.0) if definite else np.full(k, 1.2)
    gradient = rng.standard_normal((k, q))
    step = _newton_step(block, slope + across, across, unit, gradient)
    hessian = np.kron(block + np.diag(slope + across), np.eye(q))
    for i in range(k):
        rows = slice(i * q, (i + 1) * q)
        hessian[rows, rows] -= across[i] * np.outer(unit[i], unit[i])
    assert (np.linalg.eigvalsh(hessian)[0] > 0) == definite
    np.testing.assert_allclose(step.ravel(), np.linalg.solve(hessian, gradient.ravel()), rtol=1e-9, atol=1e-11)


def test_groups_of_more_unknowns_than_a_system_of_all_targets_may_have(make):
    # 7 targets on more columns than rows: where one system of all unknowns was too large, sweeps alone never ended.
    path = solve_path(make(80, 400, 8, q=7, rho=0.9).problem, ElasticNet(0.5), n_alphas=40, target=None)
    assert path.n_nonzero[-1] * 7 > 500
    assert path.optimality.max() <= 1e-10


def test_one_target_of_several(make):
    data = make(200, 20, 3, q=2)
    path = solve_path(data.problem, Lasso(), n_alphas=5, target=1)
    _, theirs, _ = lasso_path(data.z, data.centered[:, 1], alphas=path.alphas, tol=1e-13)
    np.testing.assert_allclose(dense(path), theirs, atol=1e-6)


def test_duplicated_columns_give_a_stationary_path_every_time(make, moments):
    data = make(100, 10, 2)
    x = np.hstack([data.x, data.x, -data.x[:, :3]])
    problem = moments(x, data.y)
    first = solve_path(problem, Lasso(), n_alphas=20)
    again = solve_path(problem, Lasso(), n_alphas=20)
    assert (first.data == again.data).all()
    single = solve_path(data.problem, Lasso(), alphas=first.alphas)
    for i in range(20):
        b = first.coef(i)
        assert not b[10:].any()  # the first of equal columns is taken
        np.testing.assert_allclose(b[:10], single.coef(i), atol=1e-8)


@pytest.mark.parametrize("penalty", [Lasso(), ElasticNet(), MCP(), SCAD()], ids=repr)
def test_a_target_that_nothing_explains(moments, penalty):
    x = np.random.default_rng(0).standard_normal((30, 5))
    path = solve_path(moments(x, np.full(30, 4.0)), penalty)
    assert len(path) == 1
    assert path.n_nonzero.tolist() == [0]
    assert path.rss[0] == 0.0
    constant = solve_path(moments(np.ones((30, 3)), x[:, 0]), penalty)
    assert constant.n_nonzero.tolist() == [0]


@pytest.mark.parametrize("penalty", [Lasso(), MCP(), SCAD()], ids=repr)
def test_one_column(moments, penalty):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((50, 1))
    problem = moments(x, 2 * x[:, 0] + rng.standard_normal(50))
    path = solve_path(problem, penalty, n_alphas=10)
    for i, alpha in enumerate(path.alphas):
        assert path.coef(i)[0] == pytest.approx(penalty.prox(problem.xy[:, 0], alpha)[0], abs=1e-12)


@pytest.mark.parametrize("scale", [1e-140, 1e140])
@pytest.mark.parametrize("penalty", [Lasso(), MCP(), SCAD()], ids=repr)
def test_the_unit_of_the_target_does_not_matter(make, penalty, scale):
    p = make(100, 20, 3).problem
    far = standardize(p.correlation, p.xy * scale, p.yy * scale**2, mean=p.mean, y_mean=p.y_mean * scale, n=p.n)
    near = standardize(p.correlation, p.xy, p.yy, mean=p.mean, y_mean=p.y_mean, n=p.n)
    a, b = solve_path(near, penalty, n_alphas=12), solve_path(far, penalty, n_alphas=12)
    np.testing.assert_allclose(b.alphas / scale, a.alphas, rtol=1e-12)
    np.testing.assert_allclose(dense(b) / scale, dense(a), atol=1e-9)


def test_elastic_net_in_other_units_equals_the_rows(make):
    data = make(100, 20, 3)
    y = data.centered[:, 0] * 1e6
    p = data.problem
    far = standardize(p.correlation, p.xy * 1e6, p.yy * 1e12, mean=p.mean, y_mean=p.y_mean, n=p.n)
    alphas = np.geomspace(2.0, 0.05, 8)
    mine = solve_path(far, ElasticNet(0.5), alphas=alphas)
    _, theirs, _ = enet_path(data.z, y, l1_ratio=0.5, alphas=alphas, tol=1e-14, max_iter=100_000)
    np.testing.assert_allclose(dense(mine) / 1e6, theirs / 1e6, atol=1e-6)


@pytest.mark.parametrize("apart", [1e-2, 1e-3, 1e-4])
def test_few_columns_that_nearly_agree_are_solved_to_rounding(moments, apart):
    """Steps to their least squares would turn signs; a solver that stops early warns, which is an error here."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((75, 1)) + apart * rng.standard_normal((75, 2))
        y = X @ rng.standard_normal((2, 1)) / apart + 0.1 * rng.standard_normal((75, 1))
        path = solve_path(moments(X, y), Lasso())
        assert path.optimality.max() <= 1e-10


def test_failure_to_converge_is_said(make, monkeypatch):

    monkeypatch.setattr(penalized, "_MAX_ROUNDS", 0)
    with pytest.warns(RuntimeWarning, match="did not reach tol"):
        solve_path(make(100, 30, 5).problem, Lasso(), n_alphas=10)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"alphas": [-1.0]}, "alphas"),
        ({"alphas": []}, "alphas"),
        ({"alphas": [np.nan]}, "alphas"),
        ({"n_alphas": 0}, "n_alphas"),
        ({"alpha_ratio": 1.5}, "alpha_ratio"),
        ({"max_features": 0}, "max_features"),
        ({"penalty_factor": [1.0]}, "penalty_factor has shape"),
        ({"penalty_factor": -np.ones(6)}, "column 0"),
        ({"tol": 0}, "tol"),
        ({"target": 1}, "target 1 does not exist"),
    ],
)
def test_bad_options_are_named(make, options, words):
    with pytest.raises(BadParameter, match=words):
        solve_path(make(30, 6, 2).problem, Lasso(), **options)


@pytest.mark.parametrize("penalty", [Lasso(), ElasticNet(0.5), MCP(), SCAD()], ids=repr)
def test_objective_of_the_descent_is_that_of_the_penalty(make, penalty):
    from sketchselect.solvers.descent_kernels import objective

    problem = make(60, 15, 3).problem
    xy = problem.xy[:, 0].copy()
    rng = np.random.default_rng(0)
    for alpha in (0.01, 0.3, 2.0):
        b = rng.standard_normal(15) * (rng.random(15) < 0.7)
        pieces = penalty.pieces(np.full(15, alpha))
        exact = 0.5 * b @ problem.correlation @ b - xy @ b + penalty.value(b, alpha).sum()
        assert objective(b, xy - problem.correlation @ b, xy, pieces) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("penalty", [MCP(), SCAD()], ids=repr)
def test_weak_signals_do_not_stall(make, penalty):
    # Many coefficients near the ends of their pieces: without steps towards the solution on them some 500 and 1300.
    path = solve_path(make(2000, 200, 20, beta=0.05).problem, penalty)
    assert path.optimality.max() <= 1e-10
    assert path.n_iter.max() <= 300


@pytest.mark.parametrize("q", [1, 2])
def test_sweeps_see_contiguous_memory(make, monkeypatch, q):
    """The loop over a row of a strided array does not run in vector registers."""
    name = "sweep" if q == 1 else "sweep_groups"
    seen, original = [], getattr(penalized, name)

    def recorded(gram, *arguments):
        seen.append(gram.flags.c_contiguous)
        return original(gram, *arguments)

    monkeypatch.setattr(penalized, name, recorded)
    solve_path(make(200, 30, 8, q).problem, Lasso(), target=None)
    assert seen
    assert all(seen)
