"""`lasso`, `elastic-net`: optima by a duality gap computed from the rows; `mcp`, `scad`: stationary models.

    convex:   P(b) - D(u) <= 1e-5 yy for the dual point u of the residuals, where the model says `converged`
    concave:  |z_j'(y - Z b) / n - alpha-slope_j(b)| <= 1e-5 sd(y)

References: primal and dual objectives, and gradients, of standardised rows.
"""

from __future__ import annotations

import numpy as np
import pytest

import sketchselect as sks

from .instances import each_instance


def instance(seed):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(20, 80)), int(rng.integers(2, 15))
    shared = rng.standard_normal((n, 1)) * rng.choice([0.0, 1.0, 10.0])
    X = (rng.standard_normal((n, p)) + shared) * 10.0 ** rng.uniform(-2, 2, p) + rng.choice([0.0, 50.0])
    if p > 3 and seed % 3 == 0:
        X[:, 1] = X[:, 0] * 2  # A copy.
    y = (X[:, :2] / X[:, :2].std(axis=0)) @ [2.0, -1.0] + rng.standard_normal(n)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    c = y - y.mean()
    top = float(np.abs(Z.T @ c).max()) / n
    return X, y, Z, c, top * np.geomspace(0.9, 0.02, 6)


@each_instance
@pytest.mark.parametrize("ratio", [1.0, 0.5])
def test_convex_models_are_optimal(seeds, ratio):
    for seed in seeds:
        X, y, Z, c, alphas = instance(seed)
        method = sks.LassoPath(alphas=alphas) if ratio == 1 else sks.ElasticNetPath(alphas=alphas, l1_ratio=ratio)
        path = method.fit(X, y).path_
        n = len(y)
        for i, alpha in enumerate(alphas):
            b = path.coefs[:, i] * X.std(axis=0)
            l1, l2 = alpha * ratio, alpha * (1 - ratio)
            r = c - Z @ b
            primal = r @ r / (2 * n) + l1 * np.abs(b).sum() + l2 * (b @ b) / 2
            # The quadratic part as further rows: residuals of these are -sqrt(n l2) b.
            correlations = np.abs(Z.T @ r / n - l2 * b).max()
            s = min(1.0, l1 / correlations) if correlations > 0 else 1.0
            dual = s * (c @ r) / n - s * s * (r @ r + n * l2 * (b @ b)) / (2 * n)
            assert primal - dual <= 1e-5 * (c @ c) / n, (seed, i)


@each_instance
@pytest.mark.parametrize("name", ["mcp", "scad"])
def test_concave_models_are_stationary(seeds, name):
    for seed in seeds:
        X, y, Z, c, alphas = instance(seed)
        path = {"mcp": sks.MCPPath, "scad": sks.SCADPath}[name](alphas=alphas).fit(X, y).path_
        gamma = {"mcp": 3.0, "scad": 3.7}[name]
        for i, alpha in enumerate(alphas):
            b = path.coefs[:, i] * X.std(axis=0)
            pull, size, room = Z.T @ (c - Z @ b) / len(y), np.abs(b), 1e-5 * c.std()
            if name == "mcp":
                slope = np.maximum(alpha - size / gamma, 0.0)
            else:
                slope = np.where(size <= alpha, alpha, np.maximum(gamma * alpha - size, 0.0) / (gamma - 1))
            assert np.abs(pull[b == 0]).max(initial=0.0) <= alpha + room
            assert np.abs(pull - np.sign(b) * slope)[b != 0].max(initial=0.0) <= room
