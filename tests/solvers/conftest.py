"""Data of the source's simulations (equicorrelated columns), and the moments that solvers take."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from sketchselect.solvers import Problem, standardize


@dataclass(frozen=True)
class Data:
    """Rows, their problem, and the rows standardised the way the problem is."""

    x: np.ndarray
    y: np.ndarray
    problem: Problem
    true: np.ndarray

    @property
    def z(self) -> np.ndarray:
        sd = self.x.std(axis=0)
        return np.divide(self.x - self.x.mean(axis=0), sd, out=np.zeros(self.x.shape), where=sd > 0)

    @property
    def centered(self) -> np.ndarray:
        return self.y - self.y.mean(axis=0)


def problem_of(x: np.ndarray, y: np.ndarray) -> Problem:
    y = y[:, None] if y.ndim == 1 else y
    xc, yc = x - x.mean(axis=0), y - y.mean(axis=0)
    n = len(x)
    return standardize(xc.T @ xc / n, xc.T @ yc / n, yc.T @ yc / n, mean=x.mean(axis=0), y_mean=y.mean(axis=0), n=n)


def simulate(n: int, p: int, k: int, q: int = 1, beta: float = 1.0, rho: float = 0.5, seed: int = 0) -> Data:
    """Columns with correlation rho to each other; every (p // k)-th one has an effect."""
    rng = np.random.default_rng(seed)
    x = np.sqrt(rho) * rng.standard_normal((n, 1)) + np.sqrt(1 - rho) * rng.standard_normal((n, p))
    true = np.arange(k) * (p // k) + p // k - 1
    coef = np.zeros((p, q))
    coef[true] = beta
    x = 3.0 + x * np.linspace(0.5, 2.0, p)
    y = 5.0 + (x - 3.0) / np.linspace(0.5, 2.0, p) @ coef + rng.standard_normal((n, q))
    return Data(x, y, problem_of(x, y), true)


@pytest.fixture
def make() -> Callable[..., Data]:
    return simulate


@pytest.fixture
def moments() -> Callable[[np.ndarray, np.ndarray], Problem]:
    return problem_of
