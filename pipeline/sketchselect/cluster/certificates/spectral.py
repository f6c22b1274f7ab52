"""The spectral bound: what the singular values of centred rows say of every clustering."""

from __future__ import annotations

import math

import numpy as np

from sketchselect.cluster.certificates.underflow import underflow
from sketchselect.errors import Incompatible
from sketchselect.linalg.arrays import Floats
from sketchselect.summaries import FrequentDirections, Moments


def spectral_bound(summary: FrequentDirections | Moments, n_clusters: int) -> tuple[float, dict[str, float]]:
    """Return what no clustering of the summarised rows is below, and what that is made of; see `certify`."""
    if isinstance(summary, Moments) and summary.missing is not None:
        raise Incompatible(
            "moments of rows with missing values bound nothing: no clustering has an objective in entries that are not "
            "there; summarise the complete rows"
        )
    total = summary.centered_squared_norm
    squares: Floats = summary.centered_directions.squares
    delta = summary.shrinkage if isinstance(summary, FrequentDirections) else 0.0
    lost = max(total - float(squares.sum()), 0.0)
    top = float(squares[: n_clusters - 1].sum())
    # An exact summary loses nothing, whatever rounding says.
    unseen = min((n_clusters - 1) * delta, lost) if delta > 0 else 0.0
    # Of an exact summary all p eigenvalues count, also those that are zero and not computed.
    slack = _rounding(summary, total, squares.size if delta > 0 else summary.n_features)
    vanished = underflow(summary.n_rows, summary.n_features, float(summary.weight))
    # Of the total, and of each eigenvalue: a matrix whose entries are off by e each has eigenvalues off by n e.
    slack += n_clusters * vanished + (n_clusters - 1) * summary.single_rounding
    bound = float(total - top - unseen - slack)
    details = {
        "n_rows": summary.n_rows,
        "n_features": summary.n_features,
        "scatter": float(total),
        "top_squares": float(top),
        "shrinkage": float(delta),
        "unseen": float(unseen),
        "rounding": float(slack),
        "underflow": vanished,
    }
    # As many clusters as rows can leave nothing over; the formula knows that only up to rounding.
    return (max(bound, 0.0) if n_clusters < summary.n_rows else 0.0), details


def _rounding(summary: FrequentDirections | Moments, total: float, n_values: int) -> float:
    """Return what rounding can have added to a spectral bound, whatever the blocks and the tree.

    Two parts. Column sums, products and shrinks carry up to some units of the total a row, since a sum of n terms can
    be off by n units. And a mean is rounded at each merge, to a unit of itself, which far from the origin is more than
    that: an error e of the means changes the scatter by at most 2 sqrt(W total) e + W e^2.
    """
    eps, n_rows = float(np.finfo(np.float64).eps), summary.n_rows
    off = 2.0 * eps * n_rows * float(np.linalg.norm(summary.mean))
    weight = float(summary.weight)
    return 8.0 * eps * (n_values + 8 + n_rows) * total + 2.0 * math.sqrt(weight * total) * off + weight * off * off
