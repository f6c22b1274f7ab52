"""What jobs are compared with, and a progress that remembers."""

from __future__ import annotations

import numpy as np


def unit(rows: np.ndarray) -> np.ndarray:
    rows = rows.astype(np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def scatter(rows: np.ndarray, labels: np.ndarray) -> float:
    rows = rows.astype(np.float64)
    return sum(float(((rows[labels == j] - rows[labels == j].mean(0)) ** 2).sum()) for j in np.unique(labels))


class Diary:
    """Keeps what a progress is told."""

    def __init__(self) -> None:
        self.passes: list[str] = []
        self.notes: list[str] = []

    def start(self, stage: str, total_bytes: int, n_partitions: int) -> None:
        self.passes.append(stage)

    def advance(self, nbytes: int) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)

    def finish(self, stage: str) -> None:
        pass
