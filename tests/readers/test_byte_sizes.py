"""Sizes in words, and what is not one."""

from __future__ import annotations

import pytest

from sketchselect.errors import BadParameter
from sketchselect.readers import parse_bytes
from sketchselect.readers.byte_sizes import format_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (7, 7),
        ("7", 7),
        ("7B", 7),
        ("1KiB", 1024),
        ("1k", 1024),
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
    "wrong", ["", "MiB", "-1", "0", 0, -5, "1e3", "12 parsecs", "1,000", True, None, 1.5, "0.2B", "٣", "9" * 400]
)
def test_what_is_no_size(wrong):
    with pytest.raises(BadParameter, match="a size must be"):
        parse_bytes(wrong)


def test_sizes_for_people():
    assert [format_bytes(n) for n in (0, 1, 1023, 1024, 2**20 - 1, 2**20, 5 * 2**60)] == [
        "0 B", "1 B", "1023 B", "1.0 KiB", "1024.0 KiB", "1.0 MiB", "5120.0 PiB",
    ]  # fmt: skip
