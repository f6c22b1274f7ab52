"""The nearest positive semi-definite matrix to a pairwise or rounded covariance."""

from __future__ import annotations

import numpy as np

from sketchselect.linalg.arrays import Floats


def nearest_psd(covariance: Floats) -> Floats:
    """Return a nearby positive semi-definite matrix with the same diagonal.

    Negative eigenvalues of the correlation matrix are set to zero and its diagonal is rescaled to one, so the result
    does not depend on the units of the columns. A matrix that is positive semi-definite to rounding is returned
    unchanged.

    Parameters
    ----------
    covariance : array of shape (p, p)
        Symmetric; columns of zero variance stay zero.

    Notes
    -----
    Cost: an eigendecomposition, about 9 p^3; 3 p^2 numbers. Source: Higham 2002, one step of the alternating
    projections.

    Examples
    --------
    >>> fixed = nearest_psd(np.array([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]]))
    >>> bool(np.linalg.eigvalsh(fixed).min() > -1e-12), fixed.diagonal().round(12).tolist()
    (True, [1.0, 1.0, 1.0])
    """
    scale = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    correlation = covariance * inverse[:, None] * inverse
    values, vectors = np.linalg.eigh((correlation + correlation.T) * 0.5)
    if values.size == 0 or values[0] >= -values.size * np.finfo(np.float64).eps * max(values[-1], 1.0):
        return covariance
    positive = values > 0
    root = vectors[:, positive] * np.sqrt(values[positive])
    length = np.sqrt((root * root).sum(axis=1))
    root *= np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)[:, None]
    out: Floats = (root @ root.T) * scale[:, None] * scale
    np.fill_diagonal(out, np.maximum(covariance.diagonal(), 0.0))
    return out
