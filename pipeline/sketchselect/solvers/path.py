"""A path of sparse models, the result of path solvers."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sketchselect.linalg.arrays import Floats

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Path:
    """Sparse models for descending strengths of a penalty.

    Parameters
    ----------
    alphas : array of shape (m,)
        Strengths, descending, as scikit-learn scales them.
    indptr : array of int, shape (m + 1,)
        Model i has the entries ``indptr[i]:indptr[i + 1]`` of `indices` and `data`.
    indices : array of int, shape (nnz,)
        Columns with a non-zero coefficient, ascending within a model.
    data : array of shape (nnz,) or (nnz, q)
        Their coefficients for standardised columns, in units of the target; with q targets of one support a row for
        each column.
    n_features : int
        Number of columns, p.
    rss : array of shape (m,)
        Mean squared residual, summed over targets.
    optimality : array of shape (m,)
        Relative distance from the optimum: for a convex penalty the duality gap divided by the variance of the targets,
        otherwise the largest violation of the stationarity conditions divided by the standard deviation of the targets.
    converged : array of bool, shape (m,)
        Whether that is at most the solver's `tol`, or rounding.
    n_iter : array of int, shape (m,)
        Sweeps over the working set; for the homotopy, breakpoints so far.
    """

    alphas: Floats
    indptr: Ints
    indices: Ints
    data: Floats
    n_features: int
    rss: Floats
    optimality: Floats
    converged: NDArray[np.bool_]
    n_iter: Ints

    def __len__(self) -> int:
        return int(self.alphas.size)

    @property
    def n_nonzero(self) -> Ints:
        """Number of non-zero columns of each model, shape (m,)."""
        return np.diff(self.indptr)

    def support(self, i: int) -> Ints:
        """Return the columns of model i, ascending."""
        i = range(len(self))[i]
        return self.indices[self.indptr[i] : self.indptr[i + 1]]

    def coef(self, i: int) -> Floats:
        """Return the coefficients of model i for all standardised columns, shape (p,) or (p, q)."""
        i = range(len(self))[i]
        out = np.zeros((self.n_features, *self.data.shape[1:]))
        out[self.support(i)] = self.data[self.indptr[i] : self.indptr[i + 1]]
        return out


class PathBuilder:
    """A path under construction, model by model."""

    def __init__(self, n_features: int) -> None:
        self._n_features = n_features
        self._rows: list[tuple[float, Ints, Floats, float, float, bool, int]] = []

    def add(
        self, alpha: float, columns: Ints, values: Floats, rss: float, optimality: float, converged: bool, n_iter: int
    ) -> None:
        """Append a model whose columns are ascending."""
        self._rows.append((alpha, columns, values, rss, optimality, converged, n_iter))

    @property
    def empty(self) -> bool:
        """Whether there is no model yet."""
        return not self._rows

    def build(self, tol: float) -> Path:
        """Return the path of at least one model; warn of models that did not reach `tol`."""
        rows = self._rows
        unfinished = [r[4] for r in rows if not r[5]]
        if unfinished:
            warnings.warn(
                f"{len(unfinished)} of {len(rows)} models did not reach tol = {tol:g} (largest gap or violation "
                f"{max(unfinished):.1e}); use a larger alpha_ratio or a ridge penalty",
                RuntimeWarning,
                stacklevel=3,
            )
        return Path(
            alphas=np.array([r[0] for r in rows]),
            indptr=np.concatenate([[0], np.cumsum([r[1].size for r in rows])]).astype(np.int64),
            indices=np.concatenate([r[1] for r in rows]).astype(np.int64),
            data=np.concatenate([r[2] for r in rows]),
            n_features=self._n_features,
            rss=np.array([r[3] for r in rows]),
            optimality=np.array([r[4] for r in rows]),
            converged=np.array([r[5] for r in rows]),
            n_iter=np.array([r[6] for r in rows], dtype=np.int64),
        )
