"""The page of scikit-learn's checks is complete, and every exception on it is still necessary."""

import warnings
from collections.abc import Callable

import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import estimator_checks_generator
from tests.estimator_checks import EXCEPTIONS, PAGE, page, public_estimators

CASES = [(cls, check) for cls, checks in EXCEPTIONS.items() for check in checks]


def test_the_page_is_that_of_the_suite() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.estimator_checks"
    assert set(EXCEPTIONS) <= public_estimators()


@pytest.mark.slow
@pytest.mark.parametrize(("cls", "name"), CASES, ids=lambda case: getattr(case, "__name__", case))
def test_an_exception_is_a_check_that_fails(cls: type, name: str) -> None:
    checks = [check for _, check in estimator_checks_generator(cls()) if check.func.__name__ == name]
    assert checks, f"scikit-learn has no {name} any more"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not all(passes(check, cls()) for check in checks)


def passes(check: Callable[[BaseEstimator], object], estimator: BaseEstimator) -> bool:
    """Return whether an estimator passes a check."""
    try:
        check(estimator)
    except Exception:
        return False
    return True
