"""The tables of methods and summaries say what the registries say."""

import re
from collections.abc import Iterator

import pytest
from tests.documentation.pages import text_of

import sketchselect as sks
from sketchselect import selectors
from sketchselect.cli.authoring import method_facts
from sketchselect.selectors.registry import METHODS
from sketchselect.summaries.base import KINDS

GUARANTEES = text_of("notebooks/reference/guarantees.md")


def tables(first_heading: str) -> Iterator[list[list[str]]]:
    """Yield the cells, row by row, of the tables whose first column has this heading."""
    for table in re.findall(r"(?:^\|.*\n)+", GUARANTEES, re.MULTILINE):
        heading, _, *lines = ([cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines())
        if heading[0] == first_heading:
            yield lines


def methods_in(cell: str) -> list[tuple[str, str]]:
    """Return the (method, class) pairs of a cell."""
    return re.findall(r"`([a-z-]+)`, `(?:[a-z]+\.)*([A-Za-z]+)`", cell)


FOR_CLUSTERING, FOR_A_TARGET = tables("method and class")
ROWS = {method: cells for cells in (*FOR_CLUSTERING, *FOR_A_TARGET) for method, _ in methods_in(cells[0])}


def test_every_public_method_has_a_row_with_its_class() -> None:
    named = {pair for cells in (*FOR_CLUSTERING, *FOR_A_TARGET) for pair in methods_in(cells[0])}
    public = {(name, cls.__name__) for name, cls in METHODS.items() if cls.__name__ in selectors.__all__}
    assert named == public


def test_advice_names_every_method_below_its_purpose() -> None:
    purposes = {name: each["purpose"] for name, each in method_facts().items()}
    advice: dict[str, set[str]] = {}
    for title, part in re.findall(
        r"^## (.*)\n((?:(?!## ).*\n)*)", text_of("notebooks/how-to/choose_a_method.md"), re.M
    ):
        rows = (row.split("|") for row in part.splitlines() if row.startswith("| "))
        advice[title.lower()] = {name for row in rows if len(row) == 5 for name in re.findall(r"`([a-z-]+)`", row[2])}
    for method, purpose in purposes.items():
        assert method in advice[purpose], f"{method} is missing under {purpose}"


@pytest.mark.parametrize("method", sorted(ROWS))
def test_a_method_is_in_the_table_of_what_it_needs(method: str) -> None:
    assert METHODS[method].needs_target == (ROWS[method] in FOR_A_TARGET)


@pytest.mark.parametrize("method", sorted(name for cells in FOR_CLUSTERING for name, _ in methods_in(cells[0])))
def test_reads_and_weights_are_those_of_the_class(method: str) -> None:
    _, reads, weights, _ = ROWS[method]
    cls = METHODS[method]
    assert bool(weights) == cls.has_weights
    by_columns = [cls(), *([cls(read="columns")] if "read" in cls().get_params() else [])]
    assert ("columns" in reads) == any(selector.reads_columns for selector in by_columns)
    assert reads.startswith(("rows, once", "a sample of rows")) == (not cls().makes_passes)


def test_summaries_of_the_table_are_those_of_the_registry() -> None:
    (rows,) = tables("summary")
    named = {name for cells in rows for name in re.findall(r"`(?:[a-z]+\.)*([A-Z][A-Za-z]+)\(", cells[0])}
    known = {cls.__name__ for cls in KINDS.values()}
    assert known & set(sks.__all__) <= named <= known
