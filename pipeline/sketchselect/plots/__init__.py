"""Figures of selections, models and clusters, as displays on axes of Matplotlib."""

from sketchselect.plots.displays import (
    CertificateDisplay,
    ClusterRangeDisplay,
    ClustersDisplay,
    CrossValidationDisplay,
    Display,
    ModelPathDisplay,
    SelectionCurveDisplay,
    SelectionScoresDisplay,
    TimelineDisplay,
    VolcanoDisplay,
)

__all__ = [
    "CertificateDisplay",
    "ClusterRangeDisplay",
    "ClustersDisplay",
    "CrossValidationDisplay",
    "Display",
    "ModelPathDisplay",
    "SelectionCurveDisplay",
    "SelectionScoresDisplay",
    "TimelineDisplay",
    "VolcanoDisplay",
]
