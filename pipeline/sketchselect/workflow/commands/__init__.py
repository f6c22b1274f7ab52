"""Verbs of the command line."""

from __future__ import annotations

from typing import Any, NamedTuple


class Outcome(NamedTuple):
    """What a command has to say."""

    text: str
    data: Any  # Printed by ``--json``
    is_good: bool = True  # Whether the exit code is 0
