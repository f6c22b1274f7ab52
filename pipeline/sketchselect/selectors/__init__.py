"""Selectors: scikit-learn estimators around pure functions ``summary -> Selection``."""

from __future__ import annotations

import difflib
from typing import Any

from sketchselect.errors import BadParameter
from sketchselect.selectors.annealing import FeatureSelectionAnnealing
from sketchselect.selectors.base import BaseSelector
from sketchselect.selectors.deterministic import DeterministicSelector
from sketchselect.selectors.greedy import GreedySelector
from sketchselect.selectors.highly_variable import HighlyVariableGenes
from sketchselect.selectors.hybrid import HybridSelector
from sketchselect.selectors.leverage import LeverageSelector
from sketchselect.selectors.online_leverage import OnlineLeverageSelector
from sketchselect.selectors.penalized_concave import MCPPath, SCADPath
from sketchselect.selectors.penalized_convex import ElasticNetPath, LassoPath
from sketchselect.selectors.pivoted_qr import PivotedQRSelector
from sketchselect.selectors.randomized import RandomizedSelector
from sketchselect.selectors.sampled_graph import LaplacianScoreSelector, MCFSSelector
from sketchselect.selectors.selection import Selection, rank
from sketchselect.selectors.sketched_lasso import SketchedLassoSelector
from sketchselect.selectors.sketched_ridge import SketchedRidgeSelector
from sketchselect.selectors.stability import StabilitySelector
from sketchselect.selectors.stored_stream import StoredStream
from sketchselect.selectors.thresholded import ThresholdedOLS
from sketchselect.selectors.variance import VarianceSelector

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
        raise BadParameter(f"unknown selection method {method!r}{_hint(method, METHODS)}")
    known = METHODS[method]().get_params()
    for name in parameters:
        if name not in known:
            raise BadParameter(f"method {method!r} has no parameter {name!r}{_hint(name, known)}")
    return METHODS[method](**parameters)


def _hint(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(sorted(known))}"


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
    "StoredStream",
    "ThresholdedOLS",
    "VarianceSelector",
    "make",
    "rank",
]
