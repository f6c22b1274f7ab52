"""Row steps: each maps a block to a block of the same shape and looks at one row at a time."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Array
from sketchselect.linalg.row_norms import row_norms


def unit_l2(block: Array) -> Array:
    """Scale every row to unit Euclidean length; rows of zeros stay as they are.

    Rows are divided by their largest magnitude first, so neither huge nor tiny values leave the range of squares.
    float32 stays float32, all else becomes float64. Source: Huang 2015, section 3.1.
    """
    values = block if block.dtype in (np.float32, np.float64) else block.astype(np.float64)
    if values.size == 0:
        return values.copy()
    top = np.maximum(values.max(axis=1), -values.min(axis=1)).astype(np.float64)
    # A power of two, so that scaling by it is exact.
    exponent = np.frexp(np.where(top > 0, top, 1.0))[1]
    ordinary = np.abs(exponent) < 40
    exponent = np.where(ordinary, 0, exponent)
    if ordinary.all():
        norms = row_norms(values)
        norms[norms == 0] = 1.0
        out: Array = (values / norms[:, None]).astype(values.dtype, copy=False)
        return out
    scaled = np.ldexp(values.astype(np.float64), -exponent[:, None])
    norms = row_norms(scaled)
    norms[norms == 0] = 1.0
    scaled /= norms[:, None]
    return scaled.astype(values.dtype, copy=False)


ROW_STEPS: dict[str, Callable[[Array], Array]] = {"l2": unit_l2}
"""Name in a job file -> step."""


def check_steps(steps: Sequence[str] | None) -> tuple[str, ...]:
    """Return the steps as a tuple, or raise `BadParameter` naming the unknown one and the closest known one."""
    if steps is None:
        return ()
    if isinstance(steps, str):
        raise BadParameter(f"prepare must be a list of steps, got the text {steps!r}; write [{steps!r}]")
    for step in steps:
        if step not in ROW_STEPS:
            close = difflib.get_close_matches(str(step), ROW_STEPS, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; known steps: {', '.join(sorted(ROW_STEPS))}"
            raise BadParameter(f"unknown prepare step {step!r}{hint}")
    return tuple(steps)


def apply(steps: Sequence[str], block: Array) -> Array:
    """Return the block after the named steps, in order; the input is not changed."""
    for step in steps:
        block = ROW_STEPS[step](block)
    return block
