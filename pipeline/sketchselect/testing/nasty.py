"""Matrices that break careless code; a law that holds on these is worth something."""

from __future__ import annotations

import numpy as np

from sketchselect.linalg.arrays import Array


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
        "wide": normal((20, 200)),
        "column scales 1e-30..1e30": normal((100, 9)) * 10.0 ** np.linspace(-30, 30, 9),
        "float32": normal((120, 17)).astype(np.float32) + np.float32(1000),
        "int8": rng.integers(-128, 128, (90, 11)).astype(np.int8),
        "uint16 counts": rng.poisson(0.3, (80, 25)).astype(np.uint16) * 40000,
        "bool": rng.random((40, 8)) < 0.3,
    }
