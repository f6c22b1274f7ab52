"""Numbers and text from outside, formatted for the page."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any

import numpy as np

from sketchselect._byte_sizes import format_bytes
from sketchselect.linalg.arrays import Floats

NAME_LENGTH = 60
NOTE_LENGTH = 600
JOB_LENGTH = 40_000

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# Cc control, Cf format (bidirectional overrides, zero width), Cs lone surrogates, Co private, Zl/Zp line separators.
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def clean(value: Any, length: int = NAME_LENGTH, keep: str = "") -> str:
    r"""Return `value` as printable text of at most `length` characters.

    Characters that cannot be seen, or that change how the text around them is shown, become U+FFFD; those in `keep`
    stay. Escaping is the template's business. Costs O(length) however long the text is.

    Examples
    --------
    >>> clean("a" * 100, 5)
    'aaaa…'
    >>> clean("left\u202eright")
    'left\ufffdright'
    """
    text = value if isinstance(value, str) else str(value)
    if len(text) > length:
        text = text[: length - 1] + "…"
    return "".join(c if c in keep or unicodedata.category(c) not in _INVISIBLE else "\ufffd" for c in text)


def as_numbers(values: Any) -> Floats:
    """Return numbers read from a file, where null stands for one that is not finite, as an array."""
    return np.asarray(values, dtype=np.float64)


def count(n: float) -> str:
    """Return a whole number with thousands separated: ``70,000``; weights keep up to two decimals."""
    if not math.isfinite(n):
        return number(n)
    return f"{round(n):,}" if float(n).is_integer() or abs(n) >= 1e6 else f"{n:,.2f}"


def number(x: float, digits: int = 4) -> str:
    """Return `x` to `digits` significant digits, with a power of ten only where it helps.

    Examples
    --------
    >>> number(1234.5678), number(0.00012), number(6.02e23), number(float("inf"))
    ('1,235', '0.00012', '6.02 × 10²³', '∞')
    """
    if math.isnan(x):
        return "–"
    if math.isinf(x):
        return "∞" if x > 0 else "−∞"
    if x == 0:
        return "0"
    if 1e-4 <= abs(x) < 1e7:
        rounded = float(f"{x:.{digits}g}")
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
        text = f"{rounded:,.{decimals}f}"
        return (text.rstrip("0").rstrip(".") if "." in text else text).replace("-", "−")
    mantissa, exponent = f"{x:.{digits - 1}e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".").replace("-", "−")
    return f"{mantissa} × 10{str(int(exponent)).translate(_SUPERSCRIPT)}"


def at_least(x: float, digits: int = 4) -> str:
    """Return a positive number as `number` does, rounded down: a lower bound stays one.

    Examples
    --------
    >>> number(1.2346789), at_least(1.2346789), at_least(0.0)
    ('1.235', '1.234', '0')
    """
    return number(_cut(x, digits, ROUND_FLOOR), digits)


def not_above(x: float, digits: int = 4) -> str:
    """Return a positive number as `number` does, rounded up: an upper bound stays one.

    Examples
    --------
    >>> not_above(1.23401)
    '1.235'
    """
    return number(_cut(x, digits, ROUND_CEILING), digits)


def _cut(x: float, digits: int, rounding: str) -> float:
    return float(Context(prec=digits, rounding=rounding).create_decimal_from_float(x)) if math.isfinite(x) else x


def tick(x: float) -> str:
    """Return the short label of an axis tick, powers of ten with superscripts."""
    if x != 0 and not 1e-3 <= abs(x) < 1e6:
        mantissa, exponent = f"{x:.2e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".").replace("-", "−")
        power = f"10{str(int(exponent)).translate(_SUPERSCRIPT)}"
        return power if mantissa == "1" else f"{mantissa}·{power}"
    return f"{x:,.6g}".replace("-", "−")


def percent(fraction: float, decimals: int = 1) -> str:
    """Return a fraction as per cent, rounded to the nearest."""
    return f"{100 * fraction:.{decimals}f} %"


def probability(p: float) -> str:
    """Return a probability as per cent, with all its decimals: nothing short of 1 becomes 100 %.

    Examples
    --------
    >>> probability(0.99), probability(0.99999)
    ('99.0 %', '99.999 %')
    """
    short = f"{100 * p:.1f}"
    return f"{short if math.isclose(float(short), 100 * p, rel_tol=1e-12) else f'{100 * p:.12g}'} %"


def at_most_percent(fraction: float, decimals: int = 1) -> str:
    """Return a fraction as per cent, rounded up: an upper bound stays one.

    Examples
    --------
    >>> at_most_percent(0.0671), at_most_percent(0.067)
    ('6.8 %', '6.7 %')
    """
    scale = 10**decimals
    return f"{math.ceil(round(100 * fraction * scale, 6)) / scale:,.{decimals}f} %"


def factor(x: float) -> str:
    """Return a factor rounded up to three decimals (``1.068``)."""
    if not math.isfinite(x):
        return number(x)
    return f"{math.ceil(round(x * 1000, 6)) / 1000:,.3f}" if x < 1e6 else number(x)


def words(name: str) -> str:
    """Return a ``snake_case`` key as words."""
    return name.replace("_", " ")


def flat(mapping: Mapping[str, Any], limit: int = 150, prefix: str = "") -> list[tuple[str, str]]:
    """Return the leaves of a nested mapping as (dotted key, text), at most `limit` of them, cleaned."""
    rows: list[tuple[str, str]] = []
    for key, value in _leaves(mapping, prefix):
        if len(rows) == limit:
            rows.append(("…", "shortened"))
            break
        rows.append((clean(key, 2 * NAME_LENGTH), clean(_readable(key, value), NOTE_LENGTH)))
    return rows


def _readable(key: str, value: Any) -> Any:
    """Return a number of bytes, known by the last part of its key, in units; anything else as it is."""
    last = key.rpartition(".")[2]
    is_bytes = last == "memory_limit" or last.endswith("bytes") or "_bytes_" in last
    return format_bytes(value) if is_bytes and isinstance(value, int) and not isinstance(value, bool) else value


def _leaves(mapping: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in mapping.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", "–" if value is None or value == {} else value
