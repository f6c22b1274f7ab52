"""Singular values and right singular vectors of small factors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sketchselect.linalg.arrays import Floats


@dataclass(frozen=True)
class Directions:
    """Squared singular values (descending, shape (m,)) and right singular vectors (rows, shape (m, n_columns))."""

    squares: Floats
    vectors: Floats


def symmetric_directions(gram: Floats) -> Directions:
    """Return the eigenpairs of a positive semidefinite matrix, descending, negative rounding clipped to zero."""
    lam, vectors = np.linalg.eigh(gram)
    return Directions(np.maximum(lam[::-1], 0.0), np.ascontiguousarray(vectors[:, ::-1].T))


def row_directions(rows: Floats) -> Directions:
    """Return the squared singular values and right singular vectors of a matrix with few rows.

    The rows must be finite (LAPACK's SVD may never return on infinities); summaries refuse others on entry.
    """
    if rows.shape[0] == 0 or rows.shape[1] == 0:
        return Directions(np.zeros(0), np.zeros((0, rows.shape[1])))
    _, s, vt = np.linalg.svd(rows, full_matrices=False)
    return Directions(s * s, vt)
