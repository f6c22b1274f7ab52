"""One rule for every seed that a user gives: a whole number from 0 to 2^64 - 1."""

from __future__ import annotations

import numpy as np
import pytest
from tests.estimator_checks import of_size

import sketchselect as sks
from sketchselect.errors import BadParameter
from sketchselect.selectors import METHODS

X = np.random.default_rng(0).random((40, 6))
SEEDED = sorted(name for name, cls in METHODS.items() if "random_state" in cls().get_params())


@pytest.mark.parametrize("seed", [True, -1, 2**64, 1.5, "7"], ids=repr)
@pytest.mark.parametrize("method", SEEDED)
def test_a_method_takes_seeds_alone(method: str, seed: object) -> None:
    parameters = {"partition": "kmeans++"} if "partition" in METHODS[method]().get_params() else {}
    selector = of_size(method, 3, random_state=seed, **parameters)
    with pytest.raises(BadParameter, match="random_state must be a whole number from 0 to 2"):
        selector.fit(X, X[:, 0])


@pytest.mark.parametrize("seed", [True, -1, 2**64, 1.5, "7"], ids=repr)
def test_clustering_takes_seeds_alone(seed: object) -> None:
    with pytest.raises(BadParameter, match="random_state must be a whole number from 0 to 2"):
        sks.KMeans(2, random_state=seed).fit(X)
    with pytest.raises(BadParameter, match="random_state must be a whole number from 0 to 2"):
        sks.cluster_range(X, [2, 3], random_state=seed)


def test_the_largest_seed_is_one() -> None:
    assert sks.KMeans(2, random_state=2**64 - 1).fit(X).labels_.size == 40
