"""`LogisticPath`: ``F(b) <= (1 + gap) min F`` for every model, with ``F = mean loss + alpha |b|_1``.

A lower bound of ``min F`` is the entropy of any probabilities whose residuals have covariances of at most alpha with
the columns; and sums over parts of the rows (`LikelihoodSums`) are those of all rows, whatever the parts.
"""

from typing import Any

import numpy as np
from scipy.special import entr, expit

from sketchselect.selectors import LogisticPath
from sketchselect.summaries import LikelihoodSums

from .instances import each_instance


def instance(seed: int) -> tuple[Any, Any]:
    """Rows with copies, far columns and classes that are separated or not, and their classes."""
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(12, 60)), int(rng.integers(3, 12))
    X = rng.standard_normal((n, p)) * 10.0 ** rng.uniform(-3, 3, p) + rng.choice([0.0, 1e3], p)
    X[:, -1] = rng.choice([0.0, 1.0, -2.0]) * X[:, 0]
    noise = rng.choice([0.0, 1.0]) * X[:, 1].std() * rng.standard_normal(n)
    y = (X[:, 0] - X[:, 0].mean()) / X[:, 0].std() + (X[:, 1] - X[:, 1].mean() + noise) / X[:, 1].std() > 0
    y[:2] = [False, True]
    return X, y.astype(int)


def least_objective(Z: Any, y: Any, means: Any, alpha: float) -> float:
    """Return a lower bound of ``min F`` by weak duality, from the means of a model."""
    residuals = y - means
    # Their sum is made zero class by class, so that the probabilities stay between 0 and 1.
    over, under = residuals[y == 1].sum(), -residuals[y == 0].sum()
    residuals = residuals * np.where(y == 1, min(1.0, under / over), min(1.0, over / under))
    residuals *= min(1.0, alpha / max(np.abs(Z.T @ residuals).max() / len(y), 1e-300))
    shares = y - residuals
    return float((entr(shares) + entr(1.0 - shares)).mean())


@each_instance
def test_objectives_are_within_the_gap(seeds: range) -> None:
    for seed in seeds:
        X, y = instance(seed)
        tol = 10.0 ** -np.random.default_rng(seed).integers(1, 8)
        model = LogisticPath(n_alphas=5, criterion="bic", tol=tol).fit(X, y, client="serial")
        assert model.converged_
        path = model.path_
        Z = np.divide(X - path.mean, path.scale, out=np.zeros(X.shape), where=path.scale > 0)
        for candidate in path.candidates:
            margins = (Z[:, candidate.support] @ candidate.coef + candidate.intercepts)[:, 0]
            value = (np.logaddexp(0, margins) - y * margins).mean() + candidate.value * np.abs(candidate.coef).sum()
            assert candidate.gap <= tol
            bound = least_objective(Z, y, expit(margins), candidate.value)
            assert bound <= value * (1 + 1e-12)
            # The residuals of a model that is off by a gap are off by its root.
            if tol <= 1e-6:
                assert value <= bound * (1 + 1e-3)
        tight = LogisticPath(alphas=path.alphas, criterion="bic", tol=1e-9).fit(X, y, client="serial").path_
        for loose, best in zip(path.candidates, tight.candidates, strict=True):
            values = []
            for one in (loose, best):
                margins = (Z[:, one.support] @ one.coef + one.intercepts)[:, 0]
                loss = (np.logaddexp(0, margins) - y * margins).mean()
                values.append(loss + one.value * np.abs(one.coef).sum())
            assert values[0] <= values[1] * (1 + loose.gap + 1e-12)


@each_instance
def test_sums_of_parts_are_those_of_all_rows(seeds: range) -> None:
    for seed in seeds:
        X, y = instance(seed)
        rng = np.random.default_rng(seed)
        models, terms = [[0.1, -1, 1], [0.1, 0, 1]], [[0, -1, 0, 0.2], [0, 1, 0, 0.5], [1, -1, 0, 0.1]]
        description = LikelihoodSums(
            "binomial", models, terms, X.mean(axis=0), X.std(axis=0), classes=[0, 1], n_folds=2, seed=seed
        )
        cut = int(rng.integers(1, len(X)))
        parts = [description.from_block(X[a:b], y[a:b], start=a) for a, b in ((0, cut), (cut, len(X)))]
        whole, merged = description.from_block(X, y), parts[0].merge(parts[1])
        for name in ("losses", "held_out", "gradients", "hessians", "fold_weights"):
            a, b = getattr(whole.record, name), getattr(merged.record, name)
            assert np.allclose(a, b, rtol=1e-12, atol=1e-12 * len(X))
