"""The online methods that Sun, Guo and Barbu (2019) compare with, each in a few lines; one row at a time.

State is passed in and comes back, so that data can arrive in blocks. Those with a penalty run for a whole grid of
strengths at once, as their strength has to be tuned to the wanted number of columns.
"""

import numpy as np
from numba import njit


@njit(cache=True)
def _truncate(w, k):  # type: ignore[no-untyped-def]
    least = np.partition(np.abs(w), w.size - k)[w.size - k]
    for j in range(w.size):
        if abs(w[j]) < least:
            w[j] = 0.0


@njit(cache=True)
def tsgd(X, y, w, k, step, losses):  # type: ignore[no-untyped-def]
    """Truncated stochastic gradient descent (Fan et al. 2018): a normalised step, then the k largest are kept."""
    for i in range(X.shape[0]):
        error = y[i] - X[i] @ w
        losses[i] = error * error
        w += step * error / (X[i] @ X[i]) * X[i]
        _truncate(w, k)
    return w


@njit(cache=True)
def _soft(v, a):  # type: ignore[no-untyped-def]
    return np.sign(v) * max(abs(v) - a, 0.0)


@njit(cache=True)
def sadmm(X, y, W, Z, U, alphas, rho, step, t, losses):  # type: ignore[no-untyped-def]
    """Stochastic ADMM for the lasso (Ouyang et al. 2013); models are the rows of Z, `losses` those of the last."""
    for i in range(X.shape[0]):
        t += 1
        eta = step / np.sqrt(t)
        for m in range(alphas.size):
            error = X[i] @ W[m] - y[i]
            if m == alphas.size - 1:
                losses[i] = (X[i] @ Z[m] - y[i]) ** 2
            for j in range(X.shape[1]):
                w = (rho * (Z[m, j] - U[m, j]) + W[m, j] / eta - error * X[i, j]) / (rho + 1 / eta)
                z = _soft(w + U[m, j], alphas[m] / rho)
                U[m, j] += w - z
                W[m, j], Z[m, j] = w, z
    return t


@njit(cache=True)
def opg(X, y, W, alphas, ridge, step, t):  # type: ignore[no-untyped-def]
    """Online proximal gradient, elastic net (Duchi and Singer 2009), for labels -1 and +1 and squared loss."""
    for i in range(X.shape[0]):
        t += 1
        eta = step / np.sqrt(t)
        for m in range(alphas.size):
            error = X[i] @ W[m] - y[i]
            for j in range(X.shape[1]):
                W[m, j] = _soft(W[m, j] - eta * error * X[i, j], eta * alphas[m]) / (1 + eta * ridge)
    return t


@njit(cache=True)
def rda(X, y, W, G, alphas, ridge, strength, t):  # type: ignore[no-untyped-def]
    """Regularised dual averaging, elastic net (Xiao 2010); G are the sums of gradients."""
    for i in range(X.shape[0]):
        t += 1
        for m in range(alphas.size):
            error = X[i] @ W[m] - y[i]
            for j in range(X.shape[1]):
                G[m, j] += error * X[i, j]
                W[m, j] = -_soft(G[m, j] / t, alphas[m]) / (ridge + strength / np.sqrt(t))
    return t


@njit(cache=True)
def fofs(X, y, w, k, step, ridge):  # type: ignore[no-untyped-def]
    """First-order online feature selection (Wu et al. 2017): hinge loss, projection on a ball, truncation."""
    radius = 1 / np.sqrt(ridge)
    for i in range(X.shape[0]):
        if y[i] * (X[i] @ w) <= 1:
            w *= 1 - ridge * step
            w += step * y[i] * X[i]
            norm = np.sqrt(w @ w)
            if norm > radius:
                w *= radius / norm
            _truncate(w, k)
    return w


@njit(cache=True)
def sofs(X, y, w, variance, k, gamma):  # type: ignore[no-untyped-def]
    """Second-order online feature selection (Wu et al. 2017): diagonal AROW; the k most certain columns are kept."""
    for i in range(X.shape[0]):
        margin = y[i] * (X[i] @ w)
        if margin < 1:
            beta = 1 / ((variance * X[i] * X[i]).sum() + gamma)
            w += (1 - margin) * beta * y[i] * variance * X[i]
            variance -= beta * (variance * X[i]) ** 2
            kept = np.argsort(variance, kind="mergesort")[:k]
            new = np.zeros_like(w)
            for j in kept:
                new[j] = w[j]
            w[:] = new
    return w


def within(W: np.ndarray, k: int) -> np.ndarray:
    """Return, of the models of a grid, the one with most columns that has no more than k; no column if none has."""
    sizes = (W != 0).sum(axis=1)
    fitting = np.where(sizes <= k, sizes, -1)
    return W[int(fitting.argmax())] if fitting.max() > 0 else np.zeros(W.shape[1])
