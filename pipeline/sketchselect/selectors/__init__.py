"""Selectors: scikit-learn estimators around pure functions ``summary -> Selection``; and components of a sketch."""

from __future__ import annotations

from sketchselect.selectors.base import BaseSelector
from sketchselect.selectors.counts.highly_variable import HighlyVariableGenes
from sketchselect.selectors.curve.auto import AutoSelector, selection_curve
from sketchselect.selectors.curve.curve import SelectionCurve
from sketchselect.selectors.graphs.sampled_graph import LaplacianScoreSelector, MCFSSelector
from sketchselect.selectors.kmeans_columns.deterministic import DeterministicSelector
from sketchselect.selectors.kmeans_columns.hybrid import HybridSelector
from sketchselect.selectors.kmeans_columns.randomized import RandomizedSelector
from sketchselect.selectors.leverage.leverage import LeverageSelector
from sketchselect.selectors.leverage.online import OnlineLeverageSelector
from sketchselect.selectors.registry import METHODS, make
from sketchselect.selectors.selection import Selection, rank
from sketchselect.selectors.sketched.greedy import GreedySelector
from sketchselect.selectors.sketched.lasso import SketchedLassoSelector
from sketchselect.selectors.sketched.pca import SketchedPCA
from sketchselect.selectors.sketched.pivoted_qr import PivotedQRSelector
from sketchselect.selectors.sketched.ridge import SketchedRidgeSelector
from sketchselect.selectors.sketched.variance import VarianceSelector
from sketchselect.selectors.streams.timeline import Timeline, timeline
from sketchselect.selectors.supervised.annealing import FeatureSelectionAnnealing
from sketchselect.selectors.supervised.concave import MCPPath, SCADPath
from sketchselect.selectors.supervised.convex import ElasticNetPath, LassoPath
from sketchselect.selectors.supervised.stability import StabilitySelector
from sketchselect.selectors.supervised.thresholded import ThresholdedOLS

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
    "SelectionCurve",
    "SketchedLassoSelector",
    "SketchedPCA",
    "SketchedRidgeSelector",
    "StabilitySelector",
    "ThresholdedOLS",
    "Timeline",
    "VarianceSelector",
    "make",
    "rank",
    "selection_curve",
    "timeline",
]
