"""Sizes written by people: ``"128MiB"`` and its like."""

from __future__ import annotations

import math
import re

from sketchselect.errors import BadParameter

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", re.ASCII)
_FACTORS = {"": 1, "b": 1} | {
    letter + ending: base**power
    for power, letter in enumerate("kmgtp", start=1)
    for ending, base in (("", 1024), ("ib", 1024), ("b", 1000))
}


def parse_bytes(size: int | str) -> int:
    """Return a size in bytes: ``KiB MiB GiB TiB`` (or ``K M G T``) are powers of 1024, ``kB MB GB TB`` powers of 1000.

    Raises
    ------
    BadParameter
        If it is neither a positive whole number nor a number with such a unit.

    Examples
    --------
    >>> parse_bytes("128MiB"), parse_bytes("1.5 kB"), parse_bytes(4096)
    (134217728, 1500, 4096)
    """
    if isinstance(size, int) and not isinstance(size, bool):
        number = float(size)
    else:
        match = _SIZE.fullmatch(size) if isinstance(size, str) else None
        factor = _FACTORS.get(match[2].lower()) if match else None
        if match is None or factor is None:
            raise BadParameter(f'a size must be a number of bytes or text like "128MiB" or "2GB", got {size!r:.40}')
        number = float(match[1]) * factor
    if not (1 <= number < math.inf):
        raise BadParameter(f"a size must be at least one byte, got {size!r:.40}")
    return size if isinstance(size, int) else int(number)


def format_bytes(size: float) -> str:
    """Return a size with a binary unit and three digits, for messages.

    Examples
    --------
    >>> format_bytes(512), format_bytes(3 * 2**20)
    ('512 B', '3.0 MiB')
    """
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    step = min(int(math.log2(size) // 10), len(units) - 1) if size >= 1 else 0
    return f"{size:.0f} B" if step == 0 else f"{size / 1024**step:.1f} {units[step]}"
