"""Report of a finished run: one self-contained HTML page, drawn from the files of its folder."""

from __future__ import annotations

import contextlib
import os
import sys


def _load_matplotlib() -> None:
    """Import Matplotlib, also where ``MPLBACKEND`` names a backend that it refuses: pages are drawn without any."""
    if "matplotlib" in sys.modules:
        return
    named = os.environ.pop("MPLBACKEND", None)
    try:
        import matplotlib
    finally:
        if named is not None:
            os.environ["MPLBACKEND"] = named
    if named:
        with contextlib.suppress(ValueError):
            matplotlib.rcParams["backend"] = named


# Before the modules of this package import it.
_load_matplotlib()
