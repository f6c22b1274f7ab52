"""Class labels as targets of least squares: a column of -1 and +1 for two classes, else an indicator column each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sketchselect.errors import BadBlock, BadParameter
from sketchselect.linalg.arrays import Array, Floats, as_labels

Label = str | bool | int | float


def as_classes(classes: Sequence[Any] | Array | None) -> tuple[Label, ...] | None:
    """Return the classes as a tuple of plain values, all text or all numbers, in their order; None stays None.

    Raises `BadParameter` for fewer than two classes, repeated classes, NaN, or text beside numbers.
    """
    if classes is None:
        return None
    if isinstance(classes, (str, bytes)):
        raise BadParameter("classes must be a sequence of labels, got a single text")
    labels = tuple(c.item() if isinstance(c, np.generic) else c for c in classes)
    if len(labels) < 2:
        raise BadParameter(f"classification needs at least two classes, got {len(labels)}")
    texts = [isinstance(c, str) for c in labels]
    if not all(texts) and (any(texts) or not all(isinstance(c, (bool, int, float)) for c in labels)):
        raise BadParameter("classes must be all text or all numbers")
    if any(isinstance(c, float) and not np.isfinite(c) for c in labels):
        raise BadParameter("classes must be finite; leave rows without a label out")
    if len(set(labels)) < len(labels):
        raise BadParameter("classes must differ from each other")
    return labels


def n_class_targets(classes: tuple[Label, ...]) -> int:
    """Return the number of target columns: one for two classes, else one for each class."""
    return 1 if len(classes) == 2 else len(classes)


def encode_labels(labels: Any, classes: tuple[Label, ...], n_rows: int) -> Floats:
    """Return labels as targets: -1 for the first of two classes and +1 for the second, else indicator columns.

    Raises `BadBlock` if the number or type of the labels is wrong, or a label is not among the classes, naming its row
    in the block.
    """
    if labels is None:
        raise BadBlock("moments with classes need a label for every row; pass y")
    values = as_labels(labels, n_rows)
    if values.dtype.kind == "O":
        values = np.array(values.tolist()) if n_rows else values
    text = isinstance(classes[0], str)
    if n_rows and values.dtype.kind not in ("UT" if text else "fiub"):
        raise BadBlock(f"the labels are of type {values.dtype}, the classes are {'text' if text else 'numbers'}")
    out = np.zeros((n_rows, len(classes)))
    for column, label in enumerate(classes):
        out[:, column] = values == label
    unknown = np.flatnonzero(out.sum(axis=1) != 1)
    if unknown.size:
        raise BadBlock(
            f"the label of row {int(unknown[0])} of the block is none of the {len(classes)} classes "
            f"({unknown.size} such rows); list every class that occurs"
        )
    return out[:, 1:] - out[:, :1] if len(classes) == 2 else out
