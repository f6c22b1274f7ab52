"""Wording of messages and tables: known names, numbers, lists, durations, foreign text; the stream of a log."""

from __future__ import annotations

import contextlib
import difflib
import math
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

NAME_LENGTH = 60
CAPTION_LENGTH = 2000  # Sentences of our own stand there whole
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# Cc control, Cf format (bidirectional overrides, zero width), Cs lone surrogates, Co private, Zl/Zp line separators.
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
# Compiled when they are used: for all of them it is a twentieth of `--help`. Runs are bounded, so that the search of a
# text takes time in proportion to it. A number and a slash after a colon are a port, and no password; the user in a URL
# of Azure is the name of a container, and no secret.
_SCHEME = r"\b([A-Za-z][\w+.\-]{1,20}:/{1,2})"
_PASSWORD = (
    # Without the @ where a message was cut before.
    _SCHEME
    + r"(?!arn:|\[[\da-fA-F:.]+\])[^\s/\"@:]{0,500}:(?!\d{1,5}/)(?:[^\s\"]{0,2000}@|(?!\d{1,5}\D)[^\s\"'/:]{20,})"
)
_USER = _SCHEME.replace("(", "((?!azure|az:|abfs)", 1) + r"[^\s/\"@:]{1,2000}@"
_QUERY = _SCHEME[:-1] + r"[^\s?'\"]{0,2000})\?([^\s'\"]*[^\s'\":,;])"
_SIGNED = (
    r"(?i)(?:^|[&?])(?:x-(?:amz|goog|ms)-\w+|sig|key|[\w.-]{0,99}(?:signature|token|passw|pwd|secret|credential)"
    r"|[\w.-]{0,99}(?:access|account|api)[_.-]?key|auth|sas)[^&=]*="
)
_OF_KEYS = ("s3", "gs", "az", "abfs", "memory", "file")  # Schemes of stores, where a question mark is part of a name
# A name in quotation marks, perhaps with the sign of a column that is left out, or one without them.
_NAME = r'\s*(?:(-?)"((?:[^"]|"")+)"\s*(?=,|\Z)|([^,]*))(?:,|\Z)'


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return the end of a message about an unknown name: the nearest known one, or `otherwise` if none is near.

    Nearest of all is a name that differs by upper and lower case only.

    Examples
    --------
    >>> did_you_mean("varience", ["greedy", "variance"]), did_you_mean("x", ["greedy"], "; known: greedy")
    ("; did you mean 'variance'?", '; known: greedy')
    """
    names = list(known)
    same = [other for other in names if other.casefold() == name.casefold()]
    nearest = same or difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    return f"; did you mean {nearest[0]!r}?" if nearest else otherwise


def printable(text: str) -> str:
    """Return a text that is one line in a terminal and cannot steer it.

    Examples
    --------
    >>> printable("a" + chr(27) + "[31m" + chr(10) + "b")
    'a?[31m?b'
    """
    return "".join(c if c.isprintable() else "?" for c in text)


def without_credentials(text: str) -> str:
    """Return a text whose URLs have neither user and password nor, where it may be a secret, a query.

    In stores a question mark may be part of a name.

    Examples
    --------
    >>> without_credentials("http://me:word@host/a: is none"), without_credentials("'s3://b/a?X-Amz-Signature=9f'")
    ('http://***@host/a: is none', "'s3://b/a?***'")
    >>> without_credentials("az://me:word@c/a, not az://c@account/a or http://host:80/a@b")
    'az://***@c/a, not az://c@account/a or http://host:80/a@b'
    >>> without_credentials("tcp://[::1]:8786/a@b, s3://arn:aws:s3:us-west-2:1:accesspoint/ap/a@b")
    'tcp://[::1]:8786/a@b, s3://arn:aws:s3:us-west-2:1:accesspoint/ap/a@b'
    >>> without_credentials("http://host/a?b and s3://b/why?.npy")
    'http://host/a?*** and s3://b/why?.npy'
    """
    text = re.sub(_USER, r"\1***@", re.sub(_PASSWORD, r"\1***@", text))
    return re.sub(_QUERY, _without_query, text)


def _without_query(url: re.Match[str]) -> str:
    is_name = url[1].partition(":")[0].lower() in _OF_KEYS and not is_signed(url[2])
    return url[0] if is_name else f"{url[1]}?***"


def is_signed(query: str) -> bool:
    """Return whether the query of a URL has a parameter that may be a secret."""
    return re.search(_SIGNED, query) is not None


def counted(number: float, noun: str, text: Callable[[Any], str] = str) -> str:
    """Return a number, as `text` writes it, of things.

    Examples
    --------
    >>> counted(1, "partition"), counted(2, "partition"), counted(70_000, "row", count)
    ('1 partition', '2 partitions', '70,000 rows')
    """
    return f"{text(number)} {noun}{'' if number == 1 else 's'}"


def table_size(n_rows: int, n_columns: int) -> str:
    """Return the size of a matrix.

    Examples
    --------
    >>> table_size(12, 1)
    '12 rows x 1 column'
    """
    return f"{counted(n_rows, 'row')} x {counted(n_columns, 'column')}"


def listed_names(text: str) -> list[str]:
    """Return the names in a list with commas; a name with a comma stands in quotation marks, as in CSV.

    Examples
    --------
    >>> listed_names('age, "price, net",size')
    ['age', 'price, net', 'size']
    """
    names = (
        sign + quoted.replace('""', '"') if quoted else bare.strip() for sign, quoted, bare in re.findall(_NAME, text)
    )
    return [name for name in names if name]


def unquoted(name: str, known: Iterable[str]) -> str:
    """Return the hint that a name is a part of one with a comma; empty where it is of none.

    Examples
    --------
    >>> unquoted("net", ["age", "price, net"])
    "; 'price, net' has a comma, and stands in quotation marks within key"
    """
    whole = next((each for each in known if "," in each and name in listed_names(each)), None)
    return "" if whole is None else f"; {whole!r:.80} has a comma, and stands in quotation marks within key"


def name_list(names: Iterable[str]) -> str:
    """Return names as the list with commas that `listed_names` reads.

    Examples
    --------
    >>> name_list(["age", "price, net"])
    'age,"price, net"'
    """
    return ",".join(
        '"{}"'.format(name.replace('"', '""')) if set(name) & set(',"') or name != name.strip() else name
        for name in names
    )


def key_without(names: Iterable[str]) -> str:
    """Return the setting ``key`` that leaves columns of a table out, as a job file and Python take it.

    Examples
    --------
    >>> print(key_without(["id"]), key_without(["id", "price, net"]))
    key="-id" key='-id,"price, net"'
    """
    value = f"-{name_list(names)}"
    import json

    return f"key='{value}'" if '"' in value and "'" not in value else f"key={json.dumps(value, ensure_ascii=False)}"


def first_few(values: Any, n: int = 5, text: Callable[[Any], str] = str) -> str:
    """Return a list of values, of which the first `n` stand for all.

    Examples
    --------
    >>> first_few([3, 4]), first_few(range(9))
    ('3, 4', '0, 1, 2, 3, 4, ...')
    """
    return ", ".join([*map(text, values[:n]), *["..."] * (len(values) > n)])


def first_names(names: Sequence[str], n: int = 5) -> str:
    """Return a list of names in quotes, of which the first `n` stand for all.

    Examples
    --------
    >>> first_names(["a", "b"]), first_names(list("abcdefg"))
    ("'a', 'b'", "'a', 'b', 'c', 'd', 'e', ...")
    """
    return first_few(names, n, lambda name: f"{name!r:.80}")


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


def clean(value: Any, length: int = NAME_LENGTH, keep: str = "") -> str:
    r"""Return `value` as printable text of at most `length` characters.

    Invisible characters, and characters that change how the text around them is shown, become U+FFFD; characters in
    `keep` stay. Escaping is the template's business. Costs O(length) however long the text is.

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
    return _power(mantissa, int(exponent))


def _power(mantissa: str, exponent: int) -> str:
    mantissa = mantissa.rstrip("0").rstrip(".").replace("-", "−")
    return f"{mantissa} × 10{str(exponent).translate(_SUPERSCRIPT)}"


def from_logarithm(log: float, digits: int = 4) -> str:
    """Return the number with this natural logarithm as `number` does, also where it is below every float.

    Examples
    --------
    >>> from_logarithm(math.log(0.05)), from_logarithm(-1000.0, 3)
    ('0.05', '5.08 × 10⁻⁴³⁵')
    """
    if not math.isfinite(log) or log > math.log(1e-300):
        return number(math.exp(log), digits)
    exponent = math.floor(log / math.log(10))
    return _power(f"{math.exp(log - exponent * math.log(10)):.{digits - 1}f}", exponent)


def tick(x: float) -> str:
    """Return the short label of an axis tick, powers of ten with superscripts."""
    if x != 0 and not 1e-3 <= abs(x) < 1e6:
        mantissa, exponent = f"{x:.2e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".").replace("-", "−")
        power = f"10{str(int(exponent)).translate(_SUPERSCRIPT)}"
        return power if mantissa == "1" else f"{mantissa}·{power}"
    return f"{x:,.6g}".replace("-", "−")


def text_table(title: str, rows: Iterable[Sequence[str]], header: Sequence[str]) -> str:
    """Return a small table for a terminal, with a line above; cells stand at the right of their columns.

    Examples
    --------
    >>> print(text_table("Inertia by number of clusters", [["2", "8.25"], ["10", "1.5"]], ["k", "inertia"]))
    Inertia by number of clusters
     k  inertia
     2     8.25
    10      1.5
    """
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join([title, *("  ".join(map(str.rjust, line, widths)).rstrip() for line in lines)])


class Tabular(ABC):
    """Base of results that a terminal and a notebook show as a table."""

    @abstractmethod
    def _table(self) -> tuple[str, list[list[str]]]:
        """Return the line above the table, and its rows, the header first."""

    def __str__(self) -> str:
        caption, (header, *rows) = self._table()
        return text_table(caption, rows, header)

    def _repr_html_(self) -> str:
        caption, (header, *rows) = self._table()
        return html_table(caption, rows, header)


def html_table(caption: str, rows: Iterable[Sequence[Any]], header: Sequence[str] = ()) -> str:
    """Return a small table for a notebook; text is cleaned and escaped.

    Examples
    --------
    >>> html_table("Names", [["<b>", 1]])
    '<table><caption>Names</caption><tr><td>&lt;b&gt;</td><td>1</td></tr></table>'
    """
    import html

    lines = [("th", header)] if header else []
    lines += [("td", row) for row in rows]
    body = "".join(
        "<tr>" + "".join(f"<{tag}>{html.escape(clean(cell))}</{tag}>" for cell in row) + "</tr>" for tag, row in lines
    )
    return f"<table><caption>{html.escape(clean(caption, CAPTION_LENGTH))}</caption>{body}</table>"


class LogStream:
    """A text stream whose reader may go away and whose disk may fill: what it does not take is lost."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write what can be written."""
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush what can be flushed."""
        with contextlib.suppress(OSError):
            self._stream.flush()
