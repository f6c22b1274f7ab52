"""Completeness of the page of scikit-learn's checks; the contract tests show that exceptions fail."""

from sklearn.utils.estimator_checks import estimator_checks_generator
from tests.estimator_checks import EXCEPTIONS, PAGE, page, public_estimators


def test_the_page_is_that_of_the_suite() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.estimator_checks"
    assert set(EXCEPTIONS) <= public_estimators()
    for cls, checks in EXCEPTIONS.items():
        assert set(checks) <= {check.func.__name__ for _, check in estimator_checks_generator(cls())}, cls
