"""`KMeans` and `kmeans_objective`: labels and inertia are those of the final centres, objectives are exact.

labels_i = argmin_c ||x_i - center_c||,   inertia_ = sum_i ||x_i - center_{labels_i}||^2
kmeans_objective = F in rational arithmetic, to 1e-12 a row of F and of (eps |x|)^2
"""

import numpy as np

import sketchselect as sks

from .instances import each_instance, matrix
from .rational import fractions_of, objective_of, rows_of


@each_instance
def test_labels_and_inertia_are_those_of_the_centres(seeds):
    for seed in seeds:
        rng = np.random.default_rng(seed)
        X = matrix(rng, int(rng.integers(4, 60)), int(rng.integers(1, 8)))
        k = int(rng.integers(1, min(5, len(np.unique(X, axis=0))) + 1))
        model = sks.KMeans(k, random_state=seed, n_init=1).fit(X)
        distances = ((X[:, None] - model.cluster_centers_[None]) ** 2).sum(axis=2)
        room = 1e-12 * (np.abs(X).max() ** 2 + 1e-300) * X.shape[1]
        own = distances[np.arange(len(X)), model.labels_]
        # Ties within the rounding of float32 products may go either way, and cost no more than that.
        assert (own <= distances.min(axis=1) + room).all()
        assert abs(model.inertia_ - own.sum()) <= 1e-9 * own.sum() + len(X) * room


@each_instance
def test_objectives_are_exact(seeds):
    for seed in seeds:
        rng = np.random.default_rng(seed)
        X = matrix(rng, int(rng.integers(2, 30)), int(rng.integers(1, 4)))
        k = int(rng.integers(1, 4))
        labels = rng.integers(k, size=len(X))
        exact = float(objective_of(rows_of(X), fractions_of(np.ones(len(X))), labels.tolist()))
        rounding = len(X) * (2.0**-50 * np.abs(X).max()) ** 2 * X.size
        assert abs(sks.kmeans_objective(X, labels, k) - exact) <= 1e-12 * len(X) * exact + rounding
