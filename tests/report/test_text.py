"""Numbers as people read them: never a false promise by rounding, never more digits than asked."""

from __future__ import annotations

import doctest
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketchselect import _text
from sketchselect.plots.charts import rank
from sketchselect.report import drawing
from sketchselect.report.charts import describe_scores


def test_doctests():
    assert doctest.testmod(drawing).failed == 0


@given(st.floats(min_value=0, max_value=5))
def test_percentages_of_a_guarantee_are_never_rounded_down(fraction):
    shown = float(drawing.at_most_percent(fraction).removesuffix(" %")) / 100
    assert shown >= fraction - 1e-8
    assert shown <= fraction + 0.001 + 1e-8


@given(st.floats(min_value=1, max_value=1e5))
def test_factors_are_never_rounded_down(value):
    shown = float(drawing.factor(value).replace(",", ""))
    assert value - 1e-8 <= shown <= value + 0.001 + 1e-8


@given(st.floats(min_value=-1e308, max_value=1e308))
def test_numbers_read_back_to_four_digits(value):
    shown = _text.number(value).replace(",", "").replace("−", "-").replace(" × 10", "e")
    shown = shown.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
    assert float(shown) == pytest.approx(value, rel=6e-4, abs=0)


@given(st.floats(min_value=-1e308, max_value=1e308))
def test_ticks_read_back_to_three_digits(value):
    shown = _text.tick(value).replace(",", "").replace("−", "-").replace("·10", "e")
    shown = "1e" + shown[2:] if shown.startswith("10") and any(c in "⁻⁰¹²³⁴⁵⁶⁷⁸⁹" for c in shown) else shown
    shown = shown.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
    assert float(shown) == pytest.approx(value, rel=6e-3, abs=0)


@given(st.text(), st.integers(1, 40))
def test_cleaned_text_is_printable_and_short(value, length):
    shown = _text.clean(value, length)
    assert len(shown) <= length
    assert shown.isprintable() or all(c.isprintable() or c.isspace() for c in shown)


def test_infinite_and_missing_numbers():
    assert [_text.number(v) for v in (math.nan, math.inf, -math.inf)] == ["–", "∞", "−∞"]
    assert drawing.factor(math.inf) == "∞"


@pytest.mark.parametrize(
    ("support", "says"),
    [([], "No column"), ([0, 1], "2 columns with the highest"), ([0, 2], "1 of the 2"), ([0, 1, 2], "Every column")],
)
def test_the_caption_of_scores_says_how_the_selection_goes_by_them(support, says):
    assert says in describe_scores(rank(np.array([3.0, 2.0, 1.0]), np.array(support, dtype=int)))
