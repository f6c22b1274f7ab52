"""Checks of parameters: limits, types, and seeds."""

import numpy as np
import pytest

from sketchselect.errors import BadParameter
from sketchselect.linalg.validation import first_nonfinite, require_number, require_positive, require_seed, seed_of


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


# The first NaN or infinity of a block, and none where only sums of squares overflow.


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 3, 64])
def test_every_place_is_seen(dtype, width):
    rng = np.random.default_rng(width)
    for value in (np.nan, np.inf, -np.inf):
        for place in rng.choice(50 * width, 20, replace=False):
            X = rng.standard_normal((50, width)).astype(dtype)
            X.flat[place] = value
            first = (place // width, place % width, int(np.isnan(value)), int(np.isinf(value)))
            assert first_nonfinite(X) == first_nonfinite(np.asfortranarray(X)) == first


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_finite_values_of_any_size_are_finite(dtype):
    largest = np.finfo(dtype).max
    for X in (np.full((4, 3), largest, dtype), np.array([[largest, -largest], [largest, 1]], dtype)):
        assert first_nonfinite(X) is None
        assert first_nonfinite(np.hstack([X, X])[:, ::2]) is None
    X = np.full((4, 3), largest, dtype)
    X[2, 1] = np.nan
    assert first_nonfinite(X) == (2, 1, 1, 0)


def test_squares_are_summed_where_blas_sums_them(monkeypatch):
    kinds, dot = [], np.vdot
    monkeypatch.setattr(np, "vdot", lambda a, b: (kinds.append(a.dtype.name), dot(a, b))[1])
    for dtype in (np.float16, np.float32, np.float64):
        assert first_nonfinite(np.ones((50, 3), dtype)) is None
        assert first_nonfinite(np.array([[1, np.nan], [np.inf, 0]], dtype)) == (0, 1, 1, 1)
    assert set(kinds) == {"float32", "float64"}


def test_integers_and_empty_blocks_are_finite():
    assert first_nonfinite(np.ones((3, 2), np.int64)) is None
    assert first_nonfinite(np.empty((0, 2))) is None
