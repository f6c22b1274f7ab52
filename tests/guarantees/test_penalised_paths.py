"""`lasso`, `elastic-net`: optima by a duality gap computed from the rows; `mcp`, `scad`: stationary models.

    convex:   P(b) - D(u) <= (gaps + rounding) yy for the dual point u of the residuals
    concave:  |z_j'(y - Z b) / n - alpha-slope_j(b)| <= (gaps + rounding) sd(y)
    converged_  <=>  gaps <= max(tol, rounding)  <=>  no warning
    rounding: 1e-11, convex also 16 eps (sd(y) + |b|_1) / alpha, by which the dual point is scaled

References: primal and dual objectives, and gradients, of standardised rows. Also of columns within 1e-10 to 1e-5 of one
another, where solvers do stop early.
"""

import warnings

import numpy as np
import pytest

import sketchselect as sks

from .instances import each_instance


def instance(seed, near=12):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(20, 80)), int(rng.integers(2, 15))
    shared = rng.standard_normal((n, 1)) * rng.choice([0.0, 1.0, 10.0])
    X = (rng.standard_normal((n, p)) + shared) * 10.0 ** rng.uniform(-2, 2, p) + rng.choice([0.0, 50.0])
    if p > 3 and seed % 3 == 0:
        X[:, 1] = X[:, 0] * 2  # A copy.
    if p > 5 and seed % near == near - 5:  # Nearly dependent columns, on which descent is slow.
        X[:, 2:] = X[:, rng.integers(2, size=p - 2)] * (1 + 10.0 ** rng.uniform(-10, -5) * X[:, 2:])
    y = (X[:, :2] / X[:, :2].std(axis=0)) @ [2.0, -1.0] + rng.standard_normal(n)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    c = y - y.mean()
    top = float(np.abs(Z.T @ c).max()) / n
    return X, y, Z, c, top * np.geomspace(0.9, 0.02, 6)


def fitted(method, X, y, unfinished):
    """Return the path, after a look at what it says of itself; `unfinished` counts."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = method.fit(X, y)
    path = model.path_
    told = [w for w in caught if issubclass(w.category, RuntimeWarning)]
    assert model.converged_ == bool(path.converged.all()) == (not told)
    assert model.selection_.diagnostics["converged"] == model.converged_
    assert (path.gaps[path.converged] <= 1e-9).all()
    assert (path.gaps[~path.converged] > 1e-10).all()
    unfinished.append(not model.converged_)
    return path


@pytest.mark.share(1)
@each_instance
@pytest.mark.parametrize("method", ["lasso", "elastic-net", "homotopy"])
def test_convex_models_are_as_near_to_the_optimum_as_they_say(seeds, method):
    unfinished = []
    for seed in seeds:
        X, y, Z, c, alphas = instance(seed, near=12 if method == "homotopy" else 120)
        ratio = 0.5 if method == "elastic-net" else 1.0
        estimator = {
            "lasso": sks.LassoPath(alphas=alphas),
            "elastic-net": sks.ElasticNetPath(alphas=alphas, l1_ratio=ratio),
            "homotopy": sks.LassoPath(n_features_to_select=X.shape[1] // 2 + 1),
        }[method]
        path = fitted(estimator, X, y, unfinished)
        n = len(y)
        for i, alpha in enumerate(path.values):
            b = path.coefs[:, i] * X.std(axis=0)
            l1, l2 = alpha * ratio, alpha * (1 - ratio)
            r = c - Z @ b
            primal = r @ r / (2 * n) + l1 * np.abs(b).sum() + l2 * (b @ b) / 2
            # The quadratic part as further rows: residuals of these are -sqrt(n l2) b.
            correlations = np.abs(Z.T @ r / n - l2 * b).max()
            s = min(1.0, l1 / correlations) if correlations > 0 else 1.0
            dual = s * (c @ r) / n - s * s * (r @ r + n * l2 * (b @ b)) / (2 * n)
            # At alpha 0 every dual point is feasible but for rounding.
            room = 1e-11 + 16 * 2.0**-52 * (c.std() + np.abs(b).sum()) / max(alpha, 1e-300)
            assert primal - dual <= (path.gaps[i] * (1 + 1e-6) + room) * (c @ c) / n, (seed, i)
    assert sum(unfinished) < len(seeds) / 4
    assert any(unfinished) or method != "homotopy"


@pytest.mark.share(1)
@each_instance
@pytest.mark.parametrize("name", ["mcp", "scad"])
def test_concave_models_are_stationary(seeds, name):
    unfinished = []
    for seed in seeds:
        X, y, Z, c, alphas = instance(seed)
        path = fitted({"mcp": sks.MCPPath, "scad": sks.SCADPath}[name](alphas=alphas), X, y, unfinished)
        gamma = {"mcp": 3.0, "scad": 3.7}[name]
        for i, alpha in enumerate(alphas):
            b = path.coefs[:, i] * X.std(axis=0)
            pull, size, room = Z.T @ (c - Z @ b) / len(y), np.abs(b), (path.gaps[i] + 1e-9) * c.std()
            if name == "mcp":
                slope = np.maximum(alpha - size / gamma, 0.0)
            else:
                slope = np.where(size <= alpha, alpha, np.maximum(gamma * alpha - size, 0.0) / (gamma - 1))
            assert np.abs(pull[b == 0]).max(initial=0.0) <= alpha + room
            assert np.abs(pull - np.sign(b) * slope)[b != 0].max(initial=0.0) <= room
