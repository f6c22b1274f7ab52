"""Sizes in words, and what is not one."""

from __future__ import annotations

import dask.utils
import pytest

from sketchselect._byte_sizes import format_bytes
from sketchselect.errors import BadParameter
from sketchselect.readers import parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (7, 7),
        ("7", 7),
        ("7B", 7),
        ("1KiB", 1024),
        ("1k", 1000),
        ("2G", 2 * 10**9),
        ("1e3", 1000),
        ("1 kB", 1000),
        ("2MiB", 2 * 2**20),
        ("2MB", 2 * 10**6),
        (" 1.5 GiB ", 3 * 2**29),
        ("1gb", 10**9),
        ("1TiB", 2**40),
        ("1pib", 2**50),
    ],
)
def test_sizes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "wrong", ["", "MiB", "-1", "0", 0, -5, "12 parsecs", "1,000", True, None, 1.5, "0.2B", "9" * 400]
)
def test_what_is_no_size(wrong):
    with pytest.raises(BadParameter, match="a size must be"):
        parse_bytes(wrong)


def test_sizes_are_those_of_dask():
    for text in ("3", "3k", "3 M", "3gb", "3TiB", "0.5 MiB"):
        assert parse_bytes(text) == dask.utils.parse_bytes(text)
    for size in (0, 1, 1023, 2**20, 5 * 2**60):
        assert format_bytes(size) == dask.utils.format_bytes(size)
    assert format_bytes(12.0) == "12 B"
