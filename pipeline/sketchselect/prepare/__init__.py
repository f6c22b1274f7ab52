"""What is done to every block before anything else looks at it: steps of rows and of columns, named in a job file."""

from sketchselect.prepare.entries import (
    COLUMN_STEPS,
    ROW_STEPS,
    STEPS,
    apply,
    apply_steps,
    check_steps,
    columns_after,
    labels,
    names_after,
    resolve,
    widths,
)
from sketchselect.prepare.steps import Need, Step

__all__ = [
    "COLUMN_STEPS",
    "ROW_STEPS",
    "STEPS",
    "Need",
    "Step",
    "apply",
    "apply_steps",
    "check_steps",
    "columns_after",
    "labels",
    "names_after",
    "resolve",
    "widths",
]
