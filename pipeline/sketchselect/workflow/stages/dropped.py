"""Rows left out by the policy for values that are not finite: how many they are, and how many they may be."""

from __future__ import annotations

import math

from sketchselect.errors import NotFinite


def require_few_dropped(address: str, n_dropped: int, n_rows: int, max_dropped: float, confirm: str) -> str:
    """Return in words how many rows were left out, and how many are used.

    Parameters
    ----------
    address : str
        The source, for the message.
    n_dropped, n_rows : int
        Rows left out, and all rows.
    max_dropped : float
        Share of the rows that may be left out.
    confirm : str
        Option that confirms a larger share, without its value.

    Raises
    ------
    NotFinite
        If more are.
    """
    share = f"{100 * n_dropped / n_rows:.2g} %" if n_dropped < n_rows else "100 %"
    used = f"{n_rows - n_dropped:,} are used"
    dropped = f'{address}: nonfinite = "drop_rows" left out {n_dropped:,} of {n_rows:,} rows ({share}), so {used}'
    if n_dropped > max_dropped * n_rows:
        raise NotFinite(
            f"{dropped}; that is more than max_dropped = {max_dropped:g} allows: fill missing values with the prepare "
            f'step "impute", leave out the columns that lack most, or confirm with {confirm}'
            f"{math.ceil(100 * n_dropped / n_rows) / 100:g}"
        )
    return dropped
