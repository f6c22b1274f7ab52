"""Inputs of selectors: the selected columns of a block, and the names of the columns of a stream."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import Incompatible
from sketchselect.execution import Block
from sketchselect.linalg.sparse.csr import is_csr, take_columns
from sketchselect.readers import Matrix


def require_names(seen: tuple[str, ...] | None, matrix: Matrix) -> None:
    """Raise `Incompatible`, naming the column, if a batch's columns have other names than those of the stream."""
    names = matrix.feature_names
    if seen is None or names is None or seen == names:
        return
    j = next(i for i, (a, b) in enumerate(zip(seen, names, strict=True)) if a != b)
    raise Incompatible(
        f"{matrix.address}: column {j} is named {names[j]!r}, but {seen[j]!r} in the rows seen so far; bring the "
        "columns into the same order"
    )


def chosen_columns(support: NDArray[np.int64], block: Block) -> Any:
    """Return the selected columns of a block."""
    return take_columns(block.values, support) if is_csr(block.values) else block.values[:, support]
