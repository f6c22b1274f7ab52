"""Paired timing: both sides in turn, many times, in one run; the median of the pairwise ratios is what is quoted."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Ratio:
    """Median seconds of each side, and the median, least and greatest of the pairwise ratios ours / floor."""

    ours: float
    floor: float
    median: float
    low: float
    high: float

    def line(self, what: str, target: str) -> str:
        """Return one row of a table."""
        return (
            f"{what:<58} {self.ours * 1e3:10.1f} ms {self.floor * 1e3:10.1f} ms   "
            f"ratio {self.median:5.2f} ({self.low:.2f}..{self.high:.2f})   target {target}"
        )


def seconds(work: Callable[[], Any]) -> float:
    """Return the wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def paired(ours: Callable[[], Any], floor: Callable[[], Any], repeats: int = 7) -> Ratio:
    """Time both in turn, after one warm-up each."""
    ours(), floor()
    a, b = [], []
    for _ in range(repeats):
        a.append(seconds(ours))
        b.append(seconds(floor))
    ratios = [x / y for x, y in zip(a, b, strict=True)]
    return Ratio(statistics.median(a), statistics.median(b), statistics.median(ratios), min(ratios), max(ratios))
