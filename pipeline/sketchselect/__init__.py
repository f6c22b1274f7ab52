"""Which columns of a matrix too big for memory matter, and how good the answer provably is.

One pass over the data leaves small mergeable summaries; selection, clustering and certificates come from them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "BaseSelector": "sketchselect.selectors",
    "Bundle": "sketchselect.summaries",
    "CentroidSums": "sketchselect.summaries",
    "Certificate": "sketchselect.cluster",
    "Checkpoint": "sketchselect.execution",
    "ColumnStats": "sketchselect.summaries",
    "FrequentDirections": "sketchselect.summaries",
    "KMeans": "sketchselect.cluster",
    "Moments": "sketchselect.summaries",
    "RunResult": "sketchselect.workflow",
    "Selection": "sketchselect.selectors",
    "SketchedRidgeSelector": "sketchselect.selectors",
    "Summary": "sketchselect.summaries",
    "VarianceSelector": "sketchselect.selectors",
    "certify": "sketchselect.cluster",
    "convert": "sketchselect.readers",
    "kmeans_objective": "sketchselect.cluster",
    "load": "sketchselect.summaries",
    "local_cluster": "sketchselect.execution",
    "open_matrix": "sketchselect.readers",
    "run": "sketchselect.workflow",
    "save": "sketchselect.summaries",
    "summarize": "sketchselect.execution",
}

__all__ = [
    "BaseSelector",
    "Bundle",
    "CentroidSums",
    "Certificate",
    "Checkpoint",
    "ColumnStats",
    "FrequentDirections",
    "KMeans",
    "Moments",
    "RunResult",
    "Selection",
    "SketchedRidgeSelector",
    "Summary",
    "VarianceSelector",
    "__version__",
    "certify",
    "convert",
    "kmeans_objective",
    "load",
    "local_cluster",
    "open_matrix",
    "run",
    "save",
    "summarize",
]

if TYPE_CHECKING:
    from sketchselect.cluster import Certificate, KMeans, certify, kmeans_objective
    from sketchselect.execution import Checkpoint, local_cluster
    from sketchselect.execution.summarize import summarize
    from sketchselect.readers import convert, open_matrix
    from sketchselect.selectors import BaseSelector, Selection, SketchedRidgeSelector, VarianceSelector
    from sketchselect.summaries import (
        Bundle,
        CentroidSums,
        ColumnStats,
        FrequentDirections,
        Moments,
        Summary,
        load,
        save,
    )
    from sketchselect.workflow import RunResult, run


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'sketchselect' has no attribute {name!r}")
    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
