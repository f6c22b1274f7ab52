"""Cross-validation from one pass: the errors of refitting on the rows themselves, ``mean (y_i - f_{-fold}(x_i))^2``.

References: the same estimator fitted on the rows outside of each fold, its errors on the rows of the fold; regression
with one and several targets, several methods, to 1e-6 of the variance of the target.
"""

import numpy as np
import pytest

import sketchselect as sks

from .instances import each_instance

METHODS = {"lasso": sks.LassoPath, "elastic-net": sks.ElasticNetPath, "mcp": sks.MCPPath}


@each_instance
@pytest.mark.parametrize("name", METHODS)
def test_errors_are_those_of_refits_on_the_rows(seeds, name):
    for seed in seeds:
        rng = np.random.default_rng(seed)
        n, p, n_folds = int(rng.integers(40, 90)), int(rng.integers(2, 8)), int(rng.integers(2, 5))
        X = rng.standard_normal((n, p)) * 10.0 ** rng.uniform(-2, 2, p) + rng.choice([0.0, 30.0])
        y = X[:, 0] / X[:, 0].std() + rng.standard_normal(n)
        alphas = y.std() * np.array([0.5, 0.1, 0.02])
        refit = bool(rng.random() < 0.5)
        # A convex model is unique; of a concave one the path of the fold's own rows is followed.
        method = METHODS[name](alphas=alphas, cv=n_folds, random_state=seed, refit=refit)
        errors = method.fit(X, y).path_.cv_errors
        fold = sks.Folds(sks.Moments(), n_folds, seed=seed).fold_of(np.arange(n, dtype=np.uint64))
        present = [f for f in range(n_folds) if (fold == f).any()]
        for column, f in enumerate(present):
            path = METHODS[name](alphas=alphas, criterion="bic", refit=refit).fit(X[fold != f], y[fold != f]).path_
            predicted = X[fold == f] @ path.coefs + path.intercepts
            exact = ((y[fold == f, None] - predicted) ** 2).mean(axis=0)
            assert np.allclose(errors[:, column], exact, rtol=1e-6, atol=1e-6 * y.var())
