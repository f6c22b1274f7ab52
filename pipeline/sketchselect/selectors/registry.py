"""Selection methods: name in a job file -> selector."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sketchselect._plugins import Registry
from sketchselect._text import did_you_mean
from sketchselect.errors import BadParameter
from sketchselect.selectors.base import BaseSelector

METHODS: Registry[type[BaseSelector]] = Registry(
    "methods",
    BaseSelector,
    "method",
    {
        "auto": "sketchselect.selectors.auto:AutoSelector",
        "elastic-net": "sketchselect.selectors.supervised.penalized:ElasticNetPath",
        "annealing": "sketchselect.selectors.supervised.subsets:FeatureSelectionAnnealing",
        "greedy": "sketchselect.selectors.greedy:GreedySelector",
        "knockoffs": "sketchselect.selectors.supervised.knockoffs:KnockoffSelector",
        "laplacian-score": "sketchselect.selectors.graph:LaplacianScoreSelector",
        "lasso": "sketchselect.selectors.supervised.penalized:LassoPath",
        "leverage": "sketchselect.selectors.leverage:LeverageSelector",
        "logistic": "sketchselect.selectors.supervised.logistic:LogisticPath",
        "mcfs": "sketchselect.selectors.graph:MCFSSelector",
        "mcp": "sketchselect.selectors.supervised.penalized:MCPPath",
        "mrmr": "sketchselect.selectors.supervised.mrmr:MRMRSelector",
        "online-leverage": "sketchselect.selectors.online:OnlineLeverageSelector",
        "osinsky": "sketchselect.selectors.osinsky:OsinskySelector",
        "pivoted-qr": "sketchselect.selectors.greedy:PivotedQRSelector",
        "scad": "sketchselect.selectors.supervised.penalized:SCADPath",
        "sketched-lasso": "sketchselect.selectors.sketched:SketchedLassoSelector",
        "sketched-ridge": "sketchselect.selectors.sketched:SketchedRidgeSelector",
        "stability": "sketchselect.selectors.supervised.stability:StabilitySelector",
        "auto-target": "sketchselect.selectors.supervised.auto:TargetAutoSelector",
        "thresholded-ols": "sketchselect.selectors.supervised.subsets:ThresholdedOLS",
        "univariate": "sketchselect.selectors.supervised.univariate:UnivariateSelector",
        "variance": "sketchselect.selectors.sketched:VarianceSelector",
        "deterministic": "sketchselect.selectors.deterministic:DeterministicSelector",
        "hvg": "sketchselect.selectors.highly_variable:HighlyVariableGenes",
        "hybrid": "sketchselect.selectors.randomized:HybridSelector",
        "randomized": "sketchselect.selectors.randomized:RandomizedSelector",
    },
)
"""All selectors that a job file can name, with those of other packages."""


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
