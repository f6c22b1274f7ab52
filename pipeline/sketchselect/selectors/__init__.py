"""Selectors: scikit-learn estimators around pure functions ``summary -> Selection``."""

from __future__ import annotations

from typing import Any

from sketchselect._text import did_you_mean
from sketchselect.errors import BadParameter
from sketchselect.selectors.base import BaseSelector
from sketchselect.selectors.counts.highly_variable import HighlyVariableGenes
from sketchselect.selectors.graphs.sampled_graph import LaplacianScoreSelector, MCFSSelector
from sketchselect.selectors.kmeans_columns.deterministic import DeterministicSelector
from sketchselect.selectors.kmeans_columns.hybrid import HybridSelector
from sketchselect.selectors.kmeans_columns.randomized import RandomizedSelector
from sketchselect.selectors.leverage.leverage import LeverageSelector
from sketchselect.selectors.leverage.online import OnlineLeverageSelector
from sketchselect.selectors.selection import Selection, rank
from sketchselect.selectors.sketched.greedy import GreedySelector
from sketchselect.selectors.sketched.lasso import SketchedLassoSelector
from sketchselect.selectors.sketched.pivoted_qr import PivotedQRSelector
from sketchselect.selectors.sketched.ridge import SketchedRidgeSelector
from sketchselect.selectors.sketched.variance import VarianceSelector
from sketchselect.selectors.streams.timeline import Timeline, timeline
from sketchselect.selectors.supervised.annealing import FeatureSelectionAnnealing
from sketchselect.selectors.supervised.concave import MCPPath, SCADPath
from sketchselect.selectors.supervised.convex import ElasticNetPath, LassoPath
from sketchselect.selectors.supervised.stability import StabilitySelector
from sketchselect.selectors.supervised.thresholded import ThresholdedOLS

METHODS: dict[str, type[BaseSelector]] = {
    cls.method: cls
    for cls in (
        ElasticNetPath,
        FeatureSelectionAnnealing,
        GreedySelector,
        LaplacianScoreSelector,
        LassoPath,
        LeverageSelector,
        MCFSSelector,
        MCPPath,
        OnlineLeverageSelector,
        PivotedQRSelector,
        SCADPath,
        SketchedLassoSelector,
        SketchedRidgeSelector,
        ThresholdedOLS,
        VarianceSelector,
        DeterministicSelector,
        HighlyVariableGenes,
        HybridSelector,
        RandomizedSelector,
    )
}
"""Name in a job file -> selector."""


def make(method: str, **parameters: Any) -> BaseSelector:
    """Return the selector of this name with these parameters.

    Raises
    ------
    BadParameter
        For an unknown method or parameter, naming the closest known one.
    """
    if method not in METHODS:
        raise BadParameter(f"unknown selection method {method!r}{_nearest(method, METHODS)}")
    known = METHODS[method]().get_params()
    for name in parameters:
        if name not in known:
            raise BadParameter(f"method {method!r} has no parameter {name!r}{_nearest(name, known)}")
    return METHODS[method](**parameters)


def _nearest(name: str, known: Any) -> str:
    return did_you_mean(name, known, f"; known: {', '.join(sorted(known))}")


__all__ = [
    "METHODS",
    "BaseSelector",
    "DeterministicSelector",
    "ElasticNetPath",
    "FeatureSelectionAnnealing",
    "GreedySelector",
    "HighlyVariableGenes",
    "HybridSelector",
    "LaplacianScoreSelector",
    "LassoPath",
    "LeverageSelector",
    "MCFSSelector",
    "MCPPath",
    "OnlineLeverageSelector",
    "PivotedQRSelector",
    "RandomizedSelector",
    "SCADPath",
    "Selection",
    "SketchedLassoSelector",
    "SketchedRidgeSelector",
    "StabilitySelector",
    "ThresholdedOLS",
    "Timeline",
    "VarianceSelector",
    "make",
    "rank",
    "timeline",
]
