"""The catalogue of faults: every row has tests, every test is there, and the page says the same."""

import ast
from functools import cache

import pytest
from tests.faults.catalogue import FAULTS, PAGE, TESTS, Fault, page


def test_the_page_is_that_of_the_catalogue() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


@cache
def functions(file: str) -> list[ast.FunctionDef]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_every_fault_has_tests_that_exist(fault: Fault) -> None:
    assert fault.tests
    for name in fault.tests:
        file, _, test = name.partition("::")
        (function,) = [node for node in functions(file) if node.name == test]
        assert not any("skip" in ast.unparse(mark) or "xfail" in ast.unparse(mark) for mark in function.decorator_list)
