"""Wording of messages: the nearest known name, and durations."""

import pytest

from sketchselect._text import counted, did_you_mean, format_seconds, table_size


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0 ms"),
        (0.0341, "34 ms"),
        (0.25, "0.25 s"),
        (9.999, "10 s"),
        (59.99, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3599.9, "1 h 00 min"),
        (12_000, "3 h 20 min"),
    ],
)
def test_durations(seconds: float, shown: str) -> None:
    assert format_seconds(seconds) == shown


def test_the_nearest_name_is_suggested_and_only_a_near_one() -> None:
    assert did_you_mean("n_featurs", ["method", "n_features"]) == "; did you mean 'n_features'?"
    assert did_you_mean("colour", ["method", "n_features"]) == ""
    assert did_you_mean("Y", ["x", "y"]) == "; did you mean 'y'?"
    assert did_you_mean("AGE", ["wage", "age"]) == "; did you mean 'age'?"
    assert did_you_mean("colour", ["method"], "; known: method") == "; known: method"


def test_one_of_a_thing_is_singular() -> None:
    assert (table_size(1, 1), table_size(2, 3)) == ("1 row x 1 column", "2 rows x 3 columns")
    assert counted(1, "file") == "1 file"
