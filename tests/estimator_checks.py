"""Checks of scikit-learn that an estimator must fail, each with the reason; run as a program it writes their page."""

import contextlib
from collections.abc import Callable, Iterable
from itertools import chain, islice
from pathlib import Path
from typing import Any
from unittest import SkipTest

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import estimator_checks_generator

from sketchselect import KMeans, cluster, selectors
from sketchselect.selectors import METHODS

PAGE = Path(__file__).resolve().parents[1] / "notebooks" / "reference" / "estimator_checks.md"
WEIGHTS = ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data")
SPLITS = (
    "the check puts splits of rows in place of `cv`; folds of moments are hashed rows, so that `cv` is their number"
)
SAMPLE = "the rows of a sample count alike in its graph: a weight says how likely a row is drawn, not how often"
HALVES = "halves are drawn by a hash of rows' indices: a row of weight 2 is in one half, two equal rows may be in both"
DRAWS = (
    "draws are hashed by row index, so leaving rows out or repeating them starts elsewhere than weights 0 and 2 "
    "(scikit-learn's own `KMeans` fails it too)"
)
SCORE = "`score` is the name of the test, a parameter, where scikit-learn expects a method of that name"
COLUMNS = "`partial_fit` takes the next columns, so another number of them is no error"

EXCEPTIONS: dict[type, dict[str, str]] = {
    **{METHODS[name]: dict.fromkeys(WEIGHTS, SAMPLE) for name in ("mcfs", "laplacian-score")},
    **{
        METHODS[name]: dict.fromkeys(WEIGHTS, SPLITS)
        for name in ("thresholded-ols", "annealing", "lasso", "elastic-net", "mcp", "scad", "auto-target", "logistic")
    },
    METHODS["stability"]: dict.fromkeys(WEIGHTS, HALVES),
    METHODS["univariate"]: dict.fromkeys(
        ("check_fit_score_takes_y", "check_n_features_in_after_fitting", "check_pipeline_consistency"), SCORE
    ),
    selectors.OnlineLeverageSelector: {"check_n_features_in_after_fitting": COLUMNS},
    KMeans: dict.fromkeys(WEIGHTS, DRAWS),
}


SHORT: dict[str, dict[str, int]] = {
    "auto-target": {"cv": 2},
    "stability": {"n_pairs": 5},
    **{name: {"n_alphas": 10} for name in ("lasso", "elastic-net", "mcp", "scad", "logistic")},
}
"""Parameters of short paths and few folds: they take the time, and no law over all methods asks about them."""


def run_checks(
    estimators: Iterable[BaseEstimator],
    part: int = 0,
    parts: int = 1,
    surroundings: Callable[[BaseEstimator], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
) -> None:
    """Run every so-many-th of scikit-learn's checks of estimators, beginning with number `part`, each in surroundings.

    One of `EXCEPTIONS` has to fail. A failure says check and estimator. Thousands of tests by themselves take longer to
    collect and to report than to run.
    """
    checks = chain.from_iterable(estimator_checks_generator(estimator) for estimator in estimators)
    for estimator, check in islice(checks, part, None, parts):
        name = check.func.__name__
        must_fail = name in EXCEPTIONS.get(type(estimator), {})
        try:
            with surroundings(estimator), pytest.raises(Exception) if must_fail else contextlib.suppress(SkipTest):
                check(estimator)
        except BaseException as error:
            error.add_note(f"{name} of {estimator}")
            raise


def of_size(method: str, n_features: float, **parameters: Any) -> Any:
    """Return the selector of this many columns by a method, or with no number where the method finds it itself."""
    if "n_features_to_select" in METHODS[method]().get_params():
        parameters["n_features_to_select"] = n_features
    return METHODS[method](**parameters)


def target_for(method: str, y: Any) -> Any:
    """Return a target that a method takes by default: the numbers, or which of them are above the median."""
    classifies = getattr(METHODS[method](), "task", None) == "classification"
    return (y > np.median(y)).astype(np.int64) if classifies else y


def public_estimators() -> set[type]:
    """Return the classes of all estimators that users can import and make."""
    names = [getattr(module, name) for module in (selectors, cluster) for name in module.__all__]
    classes = {one for one in names if isinstance(one, type) and issubclass(one, BaseEstimator)}
    return {cls for cls in classes if not getattr(cls, "__abstractmethods__", None)} | set(METHODS.values())


def page() -> str:
    """Return the page of all estimators and their exceptions."""
    lines = [
        "# scikit-learn's checks",
        "",
        "Every estimator runs scikit-learn's own suite of checks, models with a target for numbers",
        "and for classes. These checks are left out, because what they ask for is not what the method promises:",
        "",
        "| estimator | check | why not |",
        "|---|---|---|",
    ]
    for cls in sorted(public_estimators(), key=lambda one: one.__name__):
        reasons: dict[str, list[str]] = {}
        for check, reason in EXCEPTIONS.get(cls, {}).items():
            reasons.setdefault(reason, []).append(f"`{check}`")
        lines += [f"| `{cls.__name__}` | {', '.join(checks)} | {reason} |" for reason, checks in reasons.items()]
        lines += [] if reasons else [f"| `{cls.__name__}` | none | |"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
