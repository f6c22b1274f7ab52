"""Which columns of a matrix too big for memory matter, and how good the answer provably is.

One pass over the data leaves small mergeable summaries; selection, clustering and certificates come from them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "BaseSelector": "sketchselect.selectors",
    "BlockBound": "sketchselect.summaries",
    "Bundle": "sketchselect.summaries",
    "CentroidSums": "sketchselect.summaries",
    "Certificate": "sketchselect.cluster",
    "Checkpoint": "sketchselect.execution",
    "ColumnStats": "sketchselect.summaries",
    "DecayedMoments": "sketchselect.summaries",
    "DeterministicSelector": "sketchselect.selectors",
    "ElasticNetPath": "sketchselect.selectors",
    "FeatureSelectionAnnealing": "sketchselect.selectors",
    "Folds": "sketchselect.summaries",
    "FrequentDirections": "sketchselect.summaries",
    "GreedySelector": "sketchselect.selectors",
    "HybridSelector": "sketchselect.selectors",
    "KMeans": "sketchselect.cluster",
    "LassoPath": "sketchselect.selectors",
    "LeverageSample": "sketchselect.summaries",
    "LeverageScores": "sketchselect.summaries",
    "LeverageSelector": "sketchselect.selectors",
    "OnlineLeverageSelector": "sketchselect.selectors",
    "MCPPath": "sketchselect.selectors",
    "Moments": "sketchselect.summaries",
    "PivotedQRSelector": "sketchselect.selectors",
    "RandomizedSelector": "sketchselect.selectors",
    "RunResult": "sketchselect.workflow",
    "SCADPath": "sketchselect.selectors",
    "Selection": "sketchselect.selectors",
    "SketchedRidgeSelector": "sketchselect.selectors",
    "StabilitySelector": "sketchselect.selectors",
    "Summary": "sketchselect.summaries",
    "ThresholdedOLS": "sketchselect.selectors",
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
    "BlockBound",
    "Bundle",
    "CentroidSums",
    "Certificate",
    "Checkpoint",
    "ColumnStats",
    "DecayedMoments",
    "DeterministicSelector",
    "ElasticNetPath",
    "FeatureSelectionAnnealing",
    "Folds",
    "FrequentDirections",
    "GreedySelector",
    "HybridSelector",
    "KMeans",
    "LassoPath",
    "LeverageSample",
    "LeverageScores",
    "LeverageSelector",
    "MCPPath",
    "Moments",
    "OnlineLeverageSelector",
    "PivotedQRSelector",
    "RandomizedSelector",
    "RunResult",
    "SCADPath",
    "Selection",
    "SketchedRidgeSelector",
    "StabilitySelector",
    "Summary",
    "ThresholdedOLS",
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
    from sketchselect.selectors import (
        BaseSelector,
        DeterministicSelector,
        ElasticNetPath,
        FeatureSelectionAnnealing,
        GreedySelector,
        HybridSelector,
        LassoPath,
        LeverageSelector,
        MCPPath,
        OnlineLeverageSelector,
        PivotedQRSelector,
        RandomizedSelector,
        SCADPath,
        Selection,
        SketchedRidgeSelector,
        StabilitySelector,
        ThresholdedOLS,
        VarianceSelector,
    )
    from sketchselect.summaries import (
        BlockBound,
        Bundle,
        CentroidSums,
        ColumnStats,
        DecayedMoments,
        Folds,
        FrequentDirections,
        LeverageSample,
        LeverageScores,
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
