"""Sizes in bytes as text: ``"128MiB"``, read and written as Dask does."""

from __future__ import annotations

from sketchselect.errors import BadParameter


def parse_bytes(size: int | str) -> int:
    """Return a size in bytes, as `dask.utils.parse_bytes`: ``k M G T`` are powers of 1000, ``KiB MiB GiB TiB`` of 1024.

    Raises
    ------
    BadParameter
        If it is neither a positive whole number nor a number with such a unit.

    Examples
    --------
    >>> parse_bytes("128MiB"), parse_bytes("1.5 kB"), parse_bytes("2G"), parse_bytes(4096)
    (134217728, 1500, 2000000000, 4096)
    """
    from dask.utils import parse_bytes as parse

    try:
        # Dask takes a unit alone for one of it.
        if isinstance(size, bool) or not isinstance(size, (int, str)) or not any(c.isdigit() for c in str(size)):
            raise ValueError(size)
        n_bytes = int(parse(size))
    except (ValueError, OverflowError):
        raise BadParameter(
            f'a size must be a number of bytes or text like "128MiB" or "2GB", got {size!r:.40}'
        ) from None
    if n_bytes < 1:
        raise BadParameter(f"a size must be at least one byte, got {size!r:.40}")
    return n_bytes


def format_bytes(size: float) -> str:
    """Return a size with a binary unit, for messages, as `dask.utils.format_bytes`.

    Examples
    --------
    >>> format_bytes(512), format_bytes(3 * 2**20)
    ('512 B', '3.00 MiB')
    """
    from dask.utils import format_bytes as write

    text: str = write(round(size))
    return text
