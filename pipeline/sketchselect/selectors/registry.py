"""Selection methods: name in a job file -> selector."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sketchselect._plugins import Registry
from sketchselect._text import did_you_mean
from sketchselect.errors import BadParameter
from sketchselect.selectors.auto import AutoSelector
from sketchselect.selectors.base import BaseSelector
from sketchselect.selectors.deterministic import DeterministicSelector
from sketchselect.selectors.graph import LaplacianScoreSelector, MCFSSelector
from sketchselect.selectors.greedy import GreedySelector, PivotedQRSelector
from sketchselect.selectors.highly_variable import HighlyVariableGenes
from sketchselect.selectors.leverage import LeverageSelector
from sketchselect.selectors.online import OnlineLeverageSelector
from sketchselect.selectors.osinsky import OsinskySelector
from sketchselect.selectors.randomized import HybridSelector, RandomizedSelector
from sketchselect.selectors.sketched import SketchedLassoSelector, SketchedRidgeSelector, VarianceSelector
from sketchselect.selectors.supervised.auto import TargetAutoSelector
from sketchselect.selectors.supervised.knockoffs import KnockoffSelector
from sketchselect.selectors.supervised.logistic import LogisticPath
from sketchselect.selectors.supervised.mrmr import MRMRSelector
from sketchselect.selectors.supervised.penalized import ElasticNetPath, LassoPath, MCPPath, SCADPath
from sketchselect.selectors.supervised.stability import StabilitySelector
from sketchselect.selectors.supervised.subsets import FeatureSelectionAnnealing, ThresholdedOLS
from sketchselect.selectors.supervised.univariate import UnivariateSelector

METHODS: Registry[type[BaseSelector]] = Registry(
    "methods",
    BaseSelector,
    "method",
    (
        AutoSelector,
        ElasticNetPath,
        FeatureSelectionAnnealing,
        GreedySelector,
        KnockoffSelector,
        LaplacianScoreSelector,
        LassoPath,
        LeverageSelector,
        LogisticPath,
        MCFSSelector,
        MCPPath,
        MRMRSelector,
        OnlineLeverageSelector,
        OsinskySelector,
        PivotedQRSelector,
        SCADPath,
        SketchedLassoSelector,
        SketchedRidgeSelector,
        StabilitySelector,
        TargetAutoSelector,
        ThresholdedOLS,
        UnivariateSelector,
        VarianceSelector,
        DeterministicSelector,
        HighlyVariableGenes,
        HybridSelector,
        RandomizedSelector,
    ),
)
"""All selectors that a job file can name, with those of other packages."""

AutoSelector.registered = StabilitySelector.registered = METHODS


def make(method: str, **parameters: Any) -> BaseSelector:
    """Return the selector of this name with these parameters.

    Raises
    ------
    BadParameter
        For an unknown method or parameter, naming the closest known one.
    """
    require_known(method, parameters)
    return METHODS[method](**parameters)


def require_known(method: str, parameters: Iterable[str]) -> None:
    """Raise `BadParameter` for an unknown method, or a parameter that it does not have."""
    if method not in METHODS:
        raise BadParameter(f"unknown selection method {method!r}{_hint(method, METHODS.known())}")
    known = {*METHODS[method]().get_params(), *METHODS[method].renamed}
    for name in parameters:
        if name not in known:
            raise BadParameter(f"method {method!r} has no parameter {name!r}{_hint(name, known)}")


def _hint(name: str, known: Iterable[str]) -> str:
    return did_you_mean(name, known, f"; known: {', '.join(sorted(known))}")
