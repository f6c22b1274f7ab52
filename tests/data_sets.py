"""The data sets outside the repository: where they are looked for, and the skip of a test that has none."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(os.environ.get("SKETCHSELECT_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
MISSING = "data set outside the repository: "
"""The beginning of the reason of every such skip; the summary of a run counts them by it."""


def data_set_path(name: str) -> Path:
    """Return the path of a data set, or skip the test that asks for it."""
    path = FOLDER / f"{name}.npz"
    if not path.exists():
        pytest.skip(MISSING + name)
    return path


def data_set(name: str) -> dict[str, Any]:
    """Return the arrays of a data set, or skip the test that asks for it."""
    with np.load(data_set_path(name)) as archive:
        return dict(archive)
