"""Ranges of global row indices, and whether two summaries share a row."""

from __future__ import annotations

from sketchselect.errors import Incompatible

Ranges = tuple[tuple[int, int], ...]
"""Pairs of first and last + 1, ascending and disjoint."""


def joined(left: Ranges | None, right: Ranges | None) -> Ranges | None:
    """Return the ranges of the rows of both; None, unknown, adds nothing.

    Examples
    --------
    >>> joined(((0, 5),), ((9, 12), (5, 7)))
    ((0, 7), (9, 12))
    """
    if left is None or right is None:
        return right if left is None else left
    merged: list[tuple[int, int]] = []
    for start, stop in sorted((*left, *right)):
        if merged and start <= merged[-1][1]:
            start, stop = merged[-1][0], max(merged.pop()[1], stop)
        merged.append((start, stop))
    return tuple(merged)


def require_disjoint(kind: str, left: Ranges | None, right: Ranges | None) -> None:
    """Raise `Incompatible`, naming the first rows that both have, if any is in both.

    Examples
    --------
    >>> require_disjoint("row-sample", ((0, 5),), ((5, 7),))
    """
    for first, last in left or ():
        for start, stop in right or ():
            if max(first, start) < min(last, stop):
                raise shared_rows(kind, max(first, start), min(last, stop) - 1, max((*left, *right))[1])  # type: ignore[misc]


def shared_rows(kind: str, first: int, last: int, free: int) -> Incompatible:
    """Return the error for rows that are in both summaries; `free` is the first index above all."""
    rows = f"row {first} is" if first == last else f"rows {first} to {last} are"
    return Incompatible(
        f"cannot merge {kind} summaries that share row indices: {rows} in both, so the draws for them would not be "
        f"independent; summarize the second source with start={free} (--after {free} on the command line) or more"
    )
