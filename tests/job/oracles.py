"""What jobs are compared with."""

import numpy as np


def unit(rows: np.ndarray) -> np.ndarray:
    rows = rows.astype(np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def scatter(rows: np.ndarray, labels: np.ndarray) -> float:
    rows = rows.astype(np.float64)
    return sum(float(((rows[labels == j] - rows[labels == j].mean(0)) ** 2).sum()) for j in np.unique(labels))
