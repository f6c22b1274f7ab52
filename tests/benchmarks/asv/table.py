"""Seconds of our side and of the floor of every case."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cases import CASES, FLOOR, OURS, Setting


class Table:
    """The cases of the table."""

    params = (list(CASES), [OURS, FLOOR])
    param_names = ("case", "side")
    number, repeat = 1, 5

    def setup(self, case: str, side: str) -> None:
        """Make the work ready, and warm up."""
        self.work = CASES[case](Setting(bool(os.environ.get("SKETCHSELECT_SMALL")))).sides[side]()
        self.work()

    def time_case(self, case: str, side: str) -> None:
        """Time one run."""
        self.work()
