"""Preparation of every block before anything else sees it: steps on rows and on columns, named in a job file."""

from sketchselect.prepare.entries import (
    COLUMN_STEPS,
    ROW_STEPS,
    STEPS,
    apply,
    apply_steps,
    check_steps,
    columns_after,
    encodings,
    labels,
    names_after,
    resolve,
    widths,
)
from sketchselect.prepare.fitted import FILLING_STEP, SCALING_STEPS
from sketchselect.prepare.steps import Need, Step
from sketchselect.prepare.tables import TEXT_STEP

__all__ = [
    "COLUMN_STEPS",
    "FILLING_STEP",
    "ROW_STEPS",
    "SCALING_STEPS",
    "STEPS",
    "TEXT_STEP",
    "Need",
    "Step",
    "apply",
    "apply_steps",
    "check_steps",
    "columns_after",
    "encodings",
    "labels",
    "names_after",
    "resolve",
    "widths",
]
