"""The simulated data of Sun, Guo and Barbu (2019), section 5.1, row by row or as exact draws of their moments.

Rows are ``x = z 1 + u`` with z and u standard normal (any two columns correlate by one half), and
``y = x b + noise`` or its sign. With Gaussian rows the moments of n of them are a Wishart matrix and a normal vector,
which can be drawn at a cost that does not depend on n (Bartlett 1933). That is how a million rows are repeated often.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg.lapack import dlauum

from sketchselect.solvers import Problem, standardize
from sketchselect.summaries import Moments

Rng = np.random.Generator


def true_coefficients(p: int, k: int, beta: float) -> np.ndarray:
    """Return b with b_10, b_20, ... (counted from one) equal to `beta`, k of them."""
    b = np.zeros(p)
    step = p // k
    b[step - 1 :: step][:k] = beta
    return b


def row_blocks(rng: Rng, n: int, p: int, rows: int = 2000) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield blocks of rows and their noise; never more than `rows` rows at a time."""
    for start in range(0, n, rows):
        m = min(rows, n - start)
        X = rng.standard_normal((m, p))
        X += rng.standard_normal((m, 1))
        yield X, rng.standard_normal(m)


@dataclass(frozen=True)
class Sample:
    """Moments of n rows x and of their noise, from which those of y follow for any coefficients."""

    n: int
    mean: np.ndarray
    covariance: np.ndarray
    noise_xy: np.ndarray
    noise_variance: float
    noise_mean: float

    def problem(self, b: np.ndarray) -> Problem:
        """Return the standardised least-squares problem for ``y = x b + noise``."""
        support = np.flatnonzero(b)
        fitted = self.covariance[:, support] @ b[support]
        xy = fitted + self.noise_xy
        yy = b @ fitted + 2 * b @ self.noise_xy + self.noise_variance
        y_mean = self.mean @ b + self.noise_mean
        return standardize(self.covariance, xy, yy, mean=self.mean, y_mean=y_mean, n=self.n)


def sample_of(moments: Moments) -> Sample:
    """Return the sample whose moments of [x, noise] these are."""
    return Sample(
        moments.n_rows,
        moments.mean,
        moments.covariance(),
        moments.xy[:, 0],
        float(moments.yy[0, 0]),
        float(moments.y_mean[0]),
    )


def accumulate(rng: Rng, n: int, p: int) -> Sample:
    """Return the sample of real rows."""
    summary = Moments().empty(p, 1)
    for X, noise in row_blocks(rng, n, p):
        summary = summary.update(X, noise)
    return sample_of(summary)


def wishart(rng: Rng, degrees: int, dim: int) -> np.ndarray:
    """Return a draw of ``sum of `degrees` outer products of standard normal vectors``; needs degrees >= dim."""
    if degrees < dim:
        raise ValueError(f"{degrees} rows do not fill {dim} dimensions; draw rows instead")
    upper = rng.standard_normal((dim, dim)).T
    # U U' with U upper triangular: the factor of the usual form, turned by 180 degrees.
    np.fill_diagonal(upper, np.sqrt(rng.chisquare(degrees - np.arange(dim)[::-1])))
    product, info = dlauum(upper, lower=0, overwrite_c=1)
    if info:
        raise RuntimeError("dlauum failed")
    for a in range(0, dim, 512):
        b = min(a + 512, dim)
        corner = np.triu(product[a:b, a:b])
        product[a:b, a:b] = corner + np.triu(corner, 1).T
        product[b:, a:b] = product[a:b, b:].T
    return product


def _rows_of(W: np.ndarray, p: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Return scatter of x, of x with the noise, and of the noise, from that of (u, z, noise)."""
    uz, zz = W[:p, p], W[p, p]
    xx = W[:p, :p]
    xx += uz[:, None]
    xx += uz + zz
    return xx, W[:p, p + 1] + W[p, p + 1], float(W[p + 1, p + 1])


def draw_sample(rng: Rng, n: int, p: int) -> Sample:
    """Return a sample of n rows: an exact draw of its moments, or real rows where n is too small for that."""
    if n - 1 < p + 2:
        return accumulate(rng, n, p)
    xx, xe, ee = _rows_of(wishart(rng, n - 1, p + 2), p)
    v = rng.standard_normal(p + 2) / np.sqrt(n)
    xx /= n
    return Sample(n, v[:p] + v[p], xx, xe / n, ee / n, float(v[p + 1]))


def draw_classification(rng: Rng, n: int, b: np.ndarray) -> Problem:
    """Return the problem of n rows with ``y = sign(x b + noise)``, moments drawn exactly.

    Given the latent t = x b + noise, rows are ``x = a t + e`` with e independent of t: what e does along t and y is two
    normal vectors, and the rest a Wishart matrix.
    """
    p = b.size
    latent_variance = b @ b + b.sum() ** 2 + 1.0
    a = (b + b.sum()) / latent_variance
    t = rng.standard_normal(n) * np.sqrt(latent_variance)
    y = np.sign(t)
    t_mean, y_mean = t.mean(), y.mean()
    both = np.column_stack([t - t_mean, y - y_mean])
    R = np.linalg.qr(both, mode="r")

    def residual(V: np.ndarray) -> np.ndarray:
        x = V[:, :p] + V[:, p : p + 1]
        return x - np.outer(x @ b + V[:, p + 1], a)

    along = residual(rng.standard_normal((2, p + 2)))
    mean = residual(rng.standard_normal((1, p + 2)))[0] / np.sqrt(n)
    xx, xe, ee = _rows_of(wishart(rng, n - 3, p + 2), p)
    xt = xx @ b + xe
    tt = b @ xt + b @ xe + ee
    scatter = xx - np.outer(a, xt) - np.outer(xt, a) + tt * np.outer(a, a) + along.T @ along
    te = R[:, 0] @ along
    scatter += (both[:, 0] @ both[:, 0]) * np.outer(a, a) + np.outer(a, te) + np.outer(te, a)
    xy = a * (both[:, 0] @ both[:, 1]) + R[:, 1] @ along
    return standardize(scatter / n, xy / n, both[:, 1] @ both[:, 1] / n, mean=a * t_mean + mean, y_mean=y_mean, n=n)


@dataclass(frozen=True)
class Truth:
    """What an estimate is judged by: exact expectations over new rows, not a test sample."""

    b: np.ndarray

    @cached_property
    def support(self) -> np.ndarray:
        """The true columns."""
        return np.flatnonzero(self.b)

    def detection(self, support: np.ndarray) -> float:
        """Return the share of the true columns that were found, in percent."""
        return 100.0 * np.isin(self.support, support).mean()

    def rmse(self, coef: np.ndarray, intercept: float) -> float:
        """Return the root of the expected squared error on a new row."""
        d = coef - self.b
        return float(np.sqrt(1.0 + d @ d + d.sum() ** 2 + intercept**2))

    def auc(self, coef: np.ndarray) -> float:
        """Return the area under the ROC curve of ``x coef`` for the sign of ``x b + noise`` on new rows."""
        latent = self.b @ self.b + self.b.sum() ** 2 + 1.0
        spread = coef @ coef + coef.sum() ** 2
        if spread == 0:
            return 0.5
        correlation = (coef @ self.b + coef.sum() * self.b.sum()) / np.sqrt(latent * spread)
        return float(0.5 + 2 / np.pi * np.arcsin(correlation / np.sqrt(2)))
