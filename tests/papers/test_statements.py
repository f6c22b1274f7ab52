"""Every statement of the four papers is tested, measured, or its absence explained, and the page says where."""

import pytest

from .statements import PAGE, TESTS, marked_tests, page, papers

STATEMENTS = {s.name: s for statements in papers().values() for s in statements}
MARKED = {statement for statement, _ in marked_tests()}


def test_no_statement_is_listed_twice():
    assert len(STATEMENTS) == sum(map(len, papers().values()))


def test_markers_name_statements_of_the_list():
    assert set(STATEMENTS) >= MARKED


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_is_tested_or_measured_or_has_a_reason(name):
    statement = STATEMENTS[name]
    shown = name in MARKED or bool(statement.benchmark)
    assert shown != bool(statement.reason)
    if statement.benchmark:
        assert (TESTS / "benchmarks" / statement.benchmark.split()[0]).is_file()


def test_no_cell_of_the_page_breaks_its_table():
    for s in STATEMENTS.values():
        assert "|" not in s.id + s.says + s.note + s.reason


def test_the_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python tests/papers/statements.py"
