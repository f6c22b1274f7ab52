"""Wording of messages: the nearest known name, numbers of things, lists of names, and durations."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return the end of a message about an unknown name: the nearest known one, or `otherwise` if none is near.

    Examples
    --------
    >>> did_you_mean("varience", ["greedy", "variance"]), did_you_mean("x", ["greedy"], "; known: greedy")
    ("; did you mean 'variance'?", '; known: greedy')
    """
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return f"; did you mean {nearest[0]!r}?" if nearest else otherwise


def printable(text: str) -> str:
    """Return a text that is one line in a terminal and cannot steer it.

    Examples
    --------
    >>> printable("a" + chr(27) + "[31m" + chr(10) + "b")
    'a?[31m?b'
    """
    return "".join(c if c.isprintable() else "?" for c in text)


def counted(number: int, noun: str) -> str:
    """Return a number of things.

    Examples
    --------
    >>> counted(1, "partition"), counted(2, "partition")
    ('1 partition', '2 partitions')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def first_names(names: Sequence[str]) -> str:
    """Return a list of names in quotes, of which the first five stand for all.

    Examples
    --------
    >>> first_names(["a", "b"]), first_names(list("abcdefg"))
    ("'a', 'b'", "'a', 'b', 'c', 'd', 'e', ...")
    """
    return ", ".join([*(f"{name!r:.80}" for name in names[:5]), *["..."] * (len(names) > 5)])


def format_seconds(seconds: float) -> str:
    """Return a duration in the units that people use.

    Examples
    --------
    >>> format_seconds(0.042), format_seconds(0.42), format_seconds(12.34)
    ('42 ms', '0.42 s', '12 s')
    >>> format_seconds(125), format_seconds(12_000)
    ('2 min 05 s', '3 h 20 min')
    """
    if seconds < 0.0995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 59.5:
        return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.0f} s"
    minutes, whole = divmod(round(seconds), 60)
    return f"{minutes} min {whole:02d} s" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60:02d} min"
