"""Checks of parameters: limits, types, and seeds."""

from __future__ import annotations

import numpy as np
import pytest

from sketchselect.errors import BadParameter
from sketchselect.linalg.validation import require_number, require_positive, require_seed, seed_of


@pytest.mark.parametrize("value", [1, 3, np.int8(2), np.uint64(7)])
def test_whole_numbers_become_ints(value):
    assert require_positive("n", value) == int(value)
    assert type(require_positive("n", value)) is int


@pytest.mark.parametrize("value", [0, -1, True, 2.0, "3", None, np.float64(2)])
def test_other_values_are_no_whole_numbers(value):
    with pytest.raises(BadParameter, match="n must be a whole number of at least 1, got"):
        require_positive("n", value)


@pytest.mark.parametrize("value", [0.5, 1, np.float32(0.25), np.int64(1)])
def test_numbers_within_limits_become_floats(value):
    assert require_number("decay", value, above=0, most=1) == float(value)
    assert type(require_number("decay", value, above=0, most=1)) is float


@pytest.mark.parametrize("value", [0, 1.5, np.nan, np.inf, True, "1", None, 1j])
def test_the_message_names_parameter_limits_and_value(value):
    with pytest.raises(BadParameter, match="decay must be a number above 0 and at most 1, got"):
        require_number("decay", value, above=0, most=1)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_without_limits_a_number_is_finite(value):
    with pytest.raises(BadParameter, match="x must be a finite number"):
        require_number("x", value)


@pytest.mark.parametrize("seed", [0, 2**64 - 1, np.int32(5)])
def test_seeds_are_words_of_64_bits(seed):
    assert require_seed(seed) == seed_of(seed) == int(seed)


@pytest.mark.parametrize("seed", [-1, 2**64, True, 1.0, "1", np.random.default_rng(0)])
def test_what_is_no_seed_is_refused(seed):
    with pytest.raises(BadParameter, match="seed must be a whole number from 0"):
        require_seed(seed)
    with pytest.raises(BadParameter, match="random_state must be a whole number from 0"):
        seed_of(seed)


def test_a_generator_is_asked_for_a_seed():
    assert seed_of(np.random.RandomState(3)) == seed_of(np.random.RandomState(3))
    assert len({seed_of(np.random.RandomState(i)) for i in range(5)}) == 5
    assert 0 <= seed_of(None) < 2**31
