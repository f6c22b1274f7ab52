from math import comb, log

import numpy as np
import pytest
from sklearn.linear_model import LassoLarsIC, LinearRegression

from sketchselect.errors import BadParameter
from sketchselect.solvers import homotopy_path, least_squares
from sketchselect.solvers.path import aic, bic, ebic, validation_error


def test_criteria_are_their_formulas():
    assert aic(50.0, 0.3, 4) == pytest.approx(50 * log(0.3) + 8)
    assert bic(50.0, 0.3, 4) == pytest.approx(50 * log(0.3) + 4 * log(50))
    assert ebic(50.0, 0.3, 4, 20, gamma=0.7) == pytest.approx(bic(50.0, 0.3, 4) + 1.4 * log(comb(20, 4)))
    assert ebic(50.0, 0.3, 4, 20, gamma=0.0) == bic(50.0, 0.3, 4)
    assert ebic(50.0, 0.3, 20, 20) == pytest.approx(bic(50.0, 0.3, 20))


@pytest.mark.parametrize(
    "call", [lambda: aic(5, 0.0, 1), lambda: ebic(5, 1.0, 1, 3, gamma=2.0), lambda: ebic(5, 1.0, 4, 3)]
)
def test_impossible_values_are_refused(call):
    with pytest.raises(BadParameter):
        call()


@pytest.mark.parametrize("name", ["aic", "bic"])
def test_choice_on_the_path_is_that_of_scikit_learn(make, name):
    data = make(200, 30, 5, beta=0.5)
    path = homotopy_path(data.problem)
    criterion = {"aic": aic, "bic": bic}[name]
    # scikit-learn takes the residual variance as known, from the full model.
    full = data.problem.rss(least_squares(data.problem, np.arange(30)))[0] * 200 / (200 - 30 - 1)
    values = [200 * rss / full + criterion(200, 1.0, int(k)) for rss, k in zip(path.rss, path.n_nonzero, strict=True)]
    model = LassoLarsIC(criterion=name).fit(data.z, data.centered[:, 0])
    assert path.alphas[int(np.argmin(values))] == pytest.approx(model.alpha_, abs=1e-9)


def test_validation_error_equals_the_rows(make):
    train, test = make(150, 20, 4, q=2, seed=1), make(90, 20, 4, q=2, seed=2)
    x = test.x + 1e4
    coef, intercept = train.problem.original_units(least_squares(train.problem, np.arange(20)))
    xc, yc = x - x.mean(axis=0), test.centered
    error = validation_error(
        coef, intercept, xc.T @ xc / 90, xc.T @ yc / 90, yc.T @ yc / 90, x.mean(axis=0), test.y.mean(axis=0)
    )
    np.testing.assert_allclose(error, ((test.y - x @ coef - intercept) ** 2).mean(axis=0), rtol=1e-9)


def test_least_squares_in_original_units_is_linear_regression(make):
    data = make(100, 8, 3, q=2)
    coef, intercept = data.problem.original_units(least_squares(data.problem, np.arange(8)))
    model = LinearRegression().fit(data.x, data.y)
    np.testing.assert_allclose(coef.T, model.coef_, rtol=1e-8)
    np.testing.assert_allclose(intercept, model.intercept_, rtol=1e-8)
