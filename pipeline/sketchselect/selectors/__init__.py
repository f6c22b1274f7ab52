"""Selectors: scikit-learn estimators around pure functions ``summary -> Selection``; and components of a sketch."""

from __future__ import annotations

from sketchselect.selectors.auto import AutoSelector, selection_curve
from sketchselect.selectors.base import BaseSelector, Selection, rank
from sketchselect.selectors.curve import SelectionCurve
from sketchselect.selectors.deterministic import DeterministicSelector
from sketchselect.selectors.graph import LaplacianScoreSelector, MCFSSelector
from sketchselect.selectors.greedy import GreedySelector, PivotedQRSelector
from sketchselect.selectors.highly_variable import HighlyVariableGenes
from sketchselect.selectors.leverage import LeverageSelector
from sketchselect.selectors.online import OnlineLeverageSelector
from sketchselect.selectors.osinsky import OsinskySelector
from sketchselect.selectors.pca import SketchedPCA
from sketchselect.selectors.randomized import HybridSelector, RandomizedSelector
from sketchselect.selectors.registry import METHODS, make
from sketchselect.selectors.sketched import SketchedLassoSelector, SketchedRidgeSelector, VarianceSelector
from sketchselect.selectors.supervised.auto import TargetAutoSelector
from sketchselect.selectors.supervised.knockoffs import KnockoffSelector
from sketchselect.selectors.supervised.logistic import LogisticPath
from sketchselect.selectors.supervised.mrmr import MRMRSelector
from sketchselect.selectors.supervised.penalized import ElasticNetPath, LassoPath, MCPPath, SCADPath
from sketchselect.selectors.supervised.stability import StabilitySelector
from sketchselect.selectors.supervised.subsets import FeatureSelectionAnnealing, ThresholdedOLS
from sketchselect.selectors.supervised.univariate import UnivariateSelector
from sketchselect.selectors.timeline import Timeline, timeline

__all__ = [
    "METHODS",
    "AutoSelector",
    "BaseSelector",
    "DeterministicSelector",
    "ElasticNetPath",
    "FeatureSelectionAnnealing",
    "GreedySelector",
    "HighlyVariableGenes",
    "HybridSelector",
    "KnockoffSelector",
    "LaplacianScoreSelector",
    "LassoPath",
    "LeverageSelector",
    "LogisticPath",
    "MCFSSelector",
    "MCPPath",
    "MRMRSelector",
    "OnlineLeverageSelector",
    "OsinskySelector",
    "PivotedQRSelector",
    "RandomizedSelector",
    "SCADPath",
    "Selection",
    "SelectionCurve",
    "SketchedLassoSelector",
    "SketchedPCA",
    "SketchedRidgeSelector",
    "StabilitySelector",
    "TargetAutoSelector",
    "ThresholdedOLS",
    "Timeline",
    "UnivariateSelector",
    "VarianceSelector",
    "make",
    "rank",
    "selection_curve",
    "timeline",
]
