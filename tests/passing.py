"""Options of passes on the reference engine."""

from __future__ import annotations

from typing import Any

from sketchselect.execution import LocalEngine, PassOptions


def serial(**options: Any) -> PassOptions:
    """Return options of passes that Dask's synchronous scheduler computes."""
    return PassOptions(LocalEngine(kind="serial"), **options)
