"""Small matrices that expose numerical mistakes, dense and sparse."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from sketchselect.linalg.csr import as_csr
from sketchselect.linalg.validation import Array


def nasty_matrices() -> dict[str, Array]:
    """Return name -> small matrix: degenerate shapes, huge offsets, cancelling scales, repeated and empty columns.

    Examples
    --------
    >>> "offset 1e8" in nasty_matrices()
    True
    """
    rng = np.random.default_rng(20260101)
    normal = rng.standard_normal
    heavy = normal((80, 30))
    heavy[11] *= 1e6
    late = normal((15, 40)) * 1e-6
    late[10:] += 100 * normal((5, 40))
    holes = normal((60, 20))
    holes[:, ::3] = 0
    holes[::5] = 0
    return {
        "one row": normal((1, 25)),
        "two equal rows": np.ones((2, 6)) * 0.1,
        "one column": normal((50, 1)),
        "rank 3": normal((90, 3)) @ normal((3, 40)),
        "one huge row": heavy,
        "all the energy in the last rows": late,
        "offset 1e8": 1e8 + normal((200, 12)),
        "wide, offset 1e8": 1e8 + normal((90, 45)),
        "all negative": -1.0 - rng.random((70, 9)),
        "duplicated columns": np.repeat(normal((70, 5)), 4, axis=1),
        "constant column 0.1": np.hstack([np.full((64, 1), 0.1), normal((64, 3))]),
        "zero rows and columns": holes,
        "all zero": np.zeros((30, 10)),
        "wide": normal((20, 200))[:, :80],
        "column scales 1e-30..1e30": normal((100, 9)) * 10.0 ** np.linspace(-30, 30, 9),
        "float32": normal((120, 17)).astype(np.float32) + np.float32(1000),
        "int8": rng.integers(-128, 128, (90, 11)).astype(np.int8),
        "uint16 counts": rng.poisson(0.3, (80, 25)).astype(np.uint16) * 40000,
        "bool": rng.random((40, 8)) < 0.3,
    }


def nasty_sparse_matrices() -> dict[str, csr_array]:
    """Return name -> small canonical CSR matrix of 40 columns: empty and full rows and columns, far and rare values.

    Examples
    --------
    >>> matrices = nasty_sparse_matrices()
    >>> {m.shape[1] for m in matrices.values()}, matrices["one full row"].nnz > 40
    ({40}, True)
    """
    rng = np.random.default_rng(20260102)
    shape = (240, 40)

    def scattered(share: float) -> Array:
        out: Array = np.where(rng.random(shape) < share, rng.standard_normal(shape), 0)
        return out

    full_row, full_column, far, heavy = scattered(0.02), scattered(0.01), scattered(0.005), scattered(0.03)
    full_row[100] = rng.standard_normal(40)
    full_column[:, 7] = 1e8 + rng.standard_normal(240)
    far[:50, 3] = 1e8 + rng.standard_normal(50)
    far[50:, 9] = 1e8
    heavy[200] *= 1e6
    holes = scattered(0.04)
    holes[::4] = 0
    holes[:, ::3] = 0
    matrices = {
        "counts": rng.poisson(0.03, shape).astype(np.int8),
        "uint16 counts": rng.poisson(0.02, shape).astype(np.uint16) * 40000,
        "one full row": full_row,
        "one full column, offset 1e8": full_column,
        "columns partly far away": far,
        "one huge row": heavy,
        "empty rows and columns": holes,
        "no entries": np.zeros(shape),
        "two repeated rows": np.repeat(scattered(0.03)[:2], 120, axis=0),
        "all the energy in the last rows": np.vstack([1e-6 * scattered(0.03)[:230], 100 * scattered(0.2)[:10]]),
        "column scales 1e-30..1e30": scattered(0.04) * 10.0 ** np.linspace(-30, 30, 40),
        "half full": scattered(0.5),
        "float32": scattered(0.04).astype(np.float32),
        "bool": rng.random(shape) < 0.03,
        "one row": scattered(0.05)[:1],
    }
    return {name: as_csr(csr_array(values)) for name, values in matrices.items()}
