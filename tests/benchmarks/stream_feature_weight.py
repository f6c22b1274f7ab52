"""Algorithm 2 of Huang et al. (2015) as printed, batch by batch, from the package's kernels.

The package's sketch is of the rows about their mean, and shrinks whenever its buffer is full, whatever the batches; its
weights differ from these by the error of a sketch. Large batches are shrunk less often here, and lose less.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from sketchselect.linalg.sketch.shrink import shrink
from sketchselect.selectors.sketched.ridge import ridge_weights


def stream_feature_weights(batches: Iterable[Any], size: int, k: int, alpha: Any = "paper") -> tuple[Any, Any, float]:
    """Return (weights, sketch of at most size - 1 rows, shrinkage) after the last batch of rows."""
    sketch, shrinkage = None, 0.0
    for batch in batches:
        rows = batch.toarray() if hasattr(batch, "toarray") else np.asarray(batch)
        stacked = rows if sketch is None else np.vstack([sketch, rows])
        sketch, lost = shrink(stacked, size)
        shrinkage += lost
    if sketch is None:
        raise ValueError("there are no batches")
    _, s, vt = np.linalg.svd(sketch, full_matrices=False)
    return ridge_weights(s**2, vt, k, alpha)[0], sketch, shrinkage
