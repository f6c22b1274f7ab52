"""Random Fourier features: columns whose inner products are close to a Gaussian kernel of the rows."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import scipy

from sketchselect.linalg.hashing import derive_seed, uniforms
from sketchselect.linalg.parameters import Count, Positive, whole
from sketchselect.linalg.validation import Array, Floats, is_csr, pieces
from sketchselect.prepare.steps import Block, Need, Step, as_floats, dense, piece_rows

PILOT_ROWS = 1000
"""Rows, drawn by hash, whose distances decide the bandwidth."""

_LOCK = threading.Lock()


def frequencies(seed: int, n_columns: int, n_components: int) -> Floats:
    """Return standard normal numbers of shape (n_columns, n_components).

    Entry (i, j) depends on the seed, i and j alone: more components, or more columns, leave the others as they are.
    """
    with _LOCK:
        return _frequencies(seed, n_columns, n_components)


@lru_cache(maxsize=1)
def _frequencies(seed: int, n_columns: int, n_components: int) -> Floats:
    key, out = derive_seed(seed, "fourier frequencies"), np.empty((n_columns, n_components))
    components = np.arange(n_components, dtype=np.uint64) << np.uint64(32)
    for a, b in pieces(out):
        rows = np.arange(a, b, dtype=np.uint64)
        out[a:b] = scipy.special.ndtri(uniforms(key, rows[:, None] + components))
    out.flags.writeable = False
    return out


@dataclass(frozen=True, eq=False)
class Fourier(Step):
    """``z_j(x) = sqrt(2 / D) cos(w_j'x + b_j)``: D random features of all columns, for a Gaussian kernel.

    With ``w_j ~ N(0, 2 gamma I)`` and b_j uniform on [0, 2 pi), ``E z(x)'z(y) = exp(-gamma ||x - y||^2)``, and for any
    two rows ``P(|z(x)'z(y) - exp(-gamma ||x - y||^2)| >= t) <= 2 exp(-D t^2 / 8)`` (Hoeffding). The same w and b serve
    all rows. Sparse rows are multiplied as they are; the features are dense.

    Parameters
    ----------
    n_components : int
        D, the number of columns after the step.
    gamma : float or "median"
        "median": 1 / (2 m^2) with m the median distance between rows of a sample of 1000, from an earlier pass.
    seed : int
        Decides w and b.

    Notes
    -----
    Cost a row: 2 D flops an entry. Bytes: 8 D n_columns for w, once a process.
    Source: Rahimi and Recht 2007, Claim 1; Huang 2015, section 3.2 ("Other Kernels") and section 5.1.
    """

    name: ClassVar[str] = "fourier"
    acts_on: ClassVar[Literal["rows", "columns"]] = "columns"
    keeps_sparsity = False

    n_components: Count = 500
    gamma: Positive | Literal["median"] = "median"
    seed: Annotated[int, whole(0)] = 0

    def may_be_negative(self, before: bool) -> bool:
        """Return True: cosines are."""
        return True

    @property
    def needs(self) -> Need | None:
        """A sample of rows, for the median distance."""
        sample = Need("row-sample", {"size": PILOT_ROWS, "seed": self.seed}, weighted=False)
        return sample if self.gamma == "median" else None

    def learn(self, summary: Any) -> dict[str, Array]:
        """Return gamma; 1 where all sampled rows are equal."""
        rows = dense(summary.rows)
        median = float(np.median(scipy.spatial.distance.pdist(rows))) if len(rows) > 1 else 0.0
        return {"gamma": np.asarray(0.5 / median**2 if median > 0 else 1.0)}

    def notes(self, names: Sequence[str] | None = None) -> list[str]:
        """Return a note on what the columns now are."""
        return [
            f"prepare, fourier: the columns are now {self.n_components} random features (fourier_0, ...), each of all "
            "columns of the source; features are selected, not columns of the source"
        ]

    def n_columns(self, n_columns: int) -> int:
        """Return D."""
        return self.n_components

    def column_names(self, names: tuple[str, ...] | None, n_columns: int) -> tuple[str, ...]:
        """Return ``fourier_0``, ``fourier_1``, ..."""
        return tuple(f"{self.name}_{j}" for j in range(self.n_components))

    def working_nbytes(self, n_columns: int) -> int:
        """Return the bytes of w."""
        return 8 * n_columns * self.n_components

    def apply(self, block: Block) -> Array:
        """Return the features, shape (n_rows, n_components)."""
        gamma = float(self.value("gamma")) if self.gamma == "median" else float(self.gamma)
        d = self.n_components
        w = frequencies(self.seed, block.shape[1], d)
        offsets = uniforms(derive_seed(self.seed, "fourier offsets"), np.arange(d, dtype=np.uint64)) * (2 * np.pi)
        single = as_floats(block.data if is_csr(block) else block[:0]).dtype == np.float32
        out = np.empty((block.shape[0], d), dtype=np.float32 if single else np.float64)
        for a, b in pieces(out, piece_rows(block.shape[1] + 2 * d)):
            angles = np.asarray(block[a:b].astype(np.float64) @ w)
            angles *= np.sqrt(2 * gamma)
            angles += offsets
            out[a:b] = np.sqrt(2 / d) * np.cos(angles)
        return out
