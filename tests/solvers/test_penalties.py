"""Every penalty is held to optimality: prox against brute force, value against its derivative, stationary paths."""

import numpy as np
import pytest

from sketchselect.errors import BadParameter
from sketchselect.solvers import MCP, PENALTIES, SCAD, ElasticNet, Lasso, Penalty, solve_path

CASES: list[Penalty] = [Lasso(), ElasticNet(0.3), ElasticNet(1.0), MCP(3.0), MCP(1.2), SCAD(3.7), SCAD(2.1)]
every = pytest.mark.parametrize("penalty", CASES, ids=repr)


def test_every_penalty_has_a_case():
    assert {penalty.name for penalty in CASES} == set(PENALTIES)


@pytest.mark.share(14)
@every
@pytest.mark.parametrize("step", [1.0, 0.4])
@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.3])
@pytest.mark.statement("Sun 2019, Equation 12")
def test_prox_is_the_brute_force_minimiser(penalty, step, alpha):
    grid = np.linspace(-8.0, 8.0, 160_001)
    cost = step * penalty.value(grid, alpha)
    points = np.concatenate([np.linspace(-6.0, 6.0, 41), [-alpha, alpha, 1e-3, 0.0]])
    for t in points:
        objective = 0.5 * (grid - t) ** 2 + cost
        b = penalty.prox(np.array([t]), alpha, step)[0]
        mine = 0.5 * (b - t) ** 2 + step * penalty.value(np.array([b]), alpha)[0]
        assert mine <= objective.min() + 1e-12
        assert abs(b - grid[objective.argmin()]) <= 2e-4 / (1.0 - 1.0 / 1.1)


@every
def test_pieces_are_the_derivative_of_the_value(penalty):
    b = np.linspace(0.011, 7.0, 300)
    slope = (penalty.value(b + 1e-6, 1.3) - penalty.value(b - 1e-6, 1.3)) / 2e-6
    assert penalty.subdiff_distance(b, -slope, 1.3).max() < 1e-5
    assert penalty.subdiff_distance(-b, slope, 1.3).max() < 1e-5
    assert penalty.subdiff_distance(b, -slope + 0.5, 1.3).min() > 0.49


@every
def test_at_zero_the_subdifferential_is_an_interval(penalty):
    level = (penalty.value(np.array([1e-9]), 1.3) / 1e-9)[0]
    gradient = np.array([0.0, level * 0.999, -level * 0.999, level + 0.5, -level - 0.5])
    np.testing.assert_allclose(penalty.subdiff_distance(np.zeros(5), gradient, 1.3), [0, 0, 0, 0.5, 0.5], atol=1e-6)


@every
@pytest.mark.parametrize(("n", "p"), [(300, 60), (40, 60)], ids=["tall", "wide"])
def test_every_model_of_a_path_is_stationary(make, penalty, n, p):
    data = make(n, p, 5)
    x = data.x.copy()
    problem = data.problem
    path = solve_path(problem, penalty, n_alphas=30, alpha_ratio=0.02)
    assert path.n_nonzero[0] == 0
    assert path.n_nonzero[-1] > 5
    for i, alpha in enumerate(path.alphas):
        b = path.coef(i)
        gradient = problem.correlation @ b - problem.xy[:, 0]
        assert penalty.subdiff_distance(b, gradient, alpha).max() <= 1e-8
        assert path.rss[i] == pytest.approx(problem.rss(b), abs=1e-10)
        # No single coefficient can be moved to advantage: brute force over a grid around each.
        j = int(np.abs(gradient).argmax())
        moves = np.linspace(-3, 3, 20_001)
        objective = 0.5 * (moves - b[j]) ** 2 + gradient[j] * (moves - b[j]) + penalty.value(moves, alpha)
        assert objective.min() >= penalty.value(b[j : j + 1], alpha)[0] - 1e-12
    assert (x == data.x).all()


class Steepening(Lasso):
    """The lasso, and from ``|b| = 1`` on a ridge too: convex, with two pieces, as those of other packages may be."""

    def value(self, coef, alpha):
        return super().value(coef, alpha) + 0.5 * np.maximum(np.abs(coef) - 1.0, 0.0) ** 2

    def pieces(self, alpha):
        out = np.zeros((*alpha.shape, 2, 3))
        out[..., 0, 0], out[..., 1, 0] = 1.0, np.inf
        out[..., 0, 2], out[..., 1, 2] = alpha, alpha - 1.0
        out[..., 1, 1] = 1.0
        return out


def test_a_convex_penalty_of_two_pieces_converges(make):
    problem = make(200, 20, 5).problem
    path = solve_path(problem, Steepening(), n_alphas=20)
    assert np.abs(path.coef(-1)).max() > 1.0
    assert path.optimality.max() <= 1e-10
    for i, alpha in enumerate(path.alphas):
        gradient = problem.correlation @ path.coef(i) - problem.xy[:, 0]
        assert Steepening().subdiff_distance(path.coef(i), gradient, alpha).max() <= 1e-8


@every
def test_a_column_of_zeros_stays_out(make, moments, penalty):
    data = make(100, 12, 3)
    x = data.x.copy()
    x[:, 4] = 7.0
    path = solve_path(moments(x, data.y), penalty, n_alphas=20)
    others = solve_path(moments(np.delete(x, 4, axis=1), data.y), penalty, n_alphas=20)
    np.testing.assert_allclose(path.alphas, others.alphas)
    for i in range(20):
        assert path.coef(i)[4] == 0.0
        np.testing.assert_allclose(np.delete(path.coef(i), 4), others.coef(i), atol=1e-9)


@pytest.mark.parametrize(
    ("make_penalty", "words"),
    [
        (lambda: ElasticNet(0.0), "l1_ratio must be a number above 0 and at most 1"),
        (lambda: ElasticNet(1.1), "l1_ratio"),
        (lambda: MCP(1.0), "gamma must be a number above 1"),
        (lambda: MCP(float("nan")), "gamma"),
        (lambda: SCAD(2.0), "gamma must be a number above 2"),
        (lambda: SCAD("3"), "gamma"),  # type: ignore[arg-type]
        (lambda: MCP(1.5).prox(np.ones(1), 1.0, step=1.5), "step 1.5 is too long"),
    ],
)
def test_bad_parameters_are_named(make_penalty, words):
    with pytest.raises(BadParameter, match=words):
        make_penalty()
