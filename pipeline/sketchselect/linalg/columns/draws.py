"""Random sampling of columns, and approximate singular vectors by random projection."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.hashing import uniforms


def draw_columns(probabilities: Floats, n_draws: int, seed: int) -> NDArray[np.int64]:
    """Return columns drawn with replacement, shape (n_draws,); draw i depends on (seed, i) alone.

    Columns of probability 0 are never drawn.

    Examples
    --------
    >>> import numpy as np
    >>> draw_columns(np.array([0.0, 1.0, 0.0]), 4, seed=7).tolist()
    [1, 1, 1, 1]
    """
    cumulative = np.cumsum(probabilities)
    draws = uniforms(seed, np.arange(n_draws, dtype=np.uint64)) * cumulative[-1]
    # Rounding may carry a draw past the last column of positive probability.
    last = np.flatnonzero(probabilities)[-1]
    drawn: NDArray[np.int64] = np.minimum(np.searchsorted(cumulative, draws, "right"), last).astype(np.int64)
    return drawn


def draw_weights(probabilities: Floats, drawn: NDArray[np.int64]) -> Floats:
    """Return ``s_i^2 = (draws of i) / (n_draws p_i)``, summed over repetitions, shape (n_columns,).

    For any B with as many columns, ``E ||B Omega S||_F^2 = ||B||_F^2``; with p_i = ||v_i||^2 / k and
    ``r > 4 k log(20 k)`` draws, ``sigma_k^2(V' Omega S) >= 1 - sqrt(4 k log(20 k) / r)`` with probability 0.9.
    Source: Boutsidis and Magdon-Ismail 2012, Algorithm 3 and Lemma 9 (Rudelson and Vershynin 2007; constants of
    Magdon-Ismail 2010).
    """
    counts = np.bincount(drawn, minlength=probabilities.size)
    weights: Floats = counts / np.where(counts > 0, probabilities / probabilities.sum() * max(drawn.size, 1), 1.0)
    return weights


def gaussians(seed: int, shape: tuple[int, int]) -> Floats:
    """Return standard normal numbers (Box and Muller); each depends on (seed, position) alone."""
    size = shape[0] * shape[1]
    u = uniforms(seed, np.arange(2 * size, dtype=np.uint64))
    values: Floats = np.sqrt(-2.0 * np.log(u[:size])) * np.cos(2.0 * np.pi * u[size:])
    return values.reshape(shape)


def approximate_directions(image: Floats, multiply: Callable[[Floats], Floats], n_directions: int) -> Floats:
    """Return approximate top right singular vectors Z of a matrix B, shape (n_columns, at most n_directions).

    With ``image = B'N``, N standard normal with k + ceil(k / epsilon) + 1 columns,
    ``E ||B - B Z Z'||_F^2 <= (1 + epsilon) ||B - B_k||_F^2``.

    `image` of shape (n_columns, m): Random combinations of the rows of B; ``B'B N``, after a step of subspace
        iteration, is valid too.
    `multiply`: Returns ``B'B M`` for M of shape (n_columns, m).
    `n_directions`: k.
    Cost: 2 m products with B, and n m^2 flops.
    Source: Boutsidis, Drineas and Magdon-Ismail 2011 (arXiv 1103.0995), Lemma 11; Halko, Martinsson and Tropp 2011.
    """
    left, s, _ = np.linalg.svd(image, full_matrices=False)
    basis = left[:, s > image.shape[0] * np.finfo(np.float64).eps * float(s.max(initial=0.0))]
    values, turned = np.linalg.eigh(basis.T @ multiply(basis))
    keep = values > image.shape[0] * np.finfo(np.float64).eps * float(values.max(initial=0.0))
    directions: Floats = basis @ turned[:, keep][:, ::-1][:, :n_directions]
    return directions


def combinations(n_directions: int, epsilon: float) -> int:
    """Return the number of random combinations of rows for `approximate_directions`: k + ceil(k / epsilon) + 1."""
    return n_directions + int(np.ceil(n_directions / epsilon)) + 1
