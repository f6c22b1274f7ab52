"""Record of a range of numbers of clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sketchselect.errors import BadParameter


@dataclass(frozen=True, eq=False, kw_only=True)
class ClusterCountRecord:
    """Objective, lower bound and stability of a range of numbers of clusters.

    Parameters
    ----------
    n_clusters : sequence of int
        The numbers, ascending.
    objectives : sequence of float
        Objective of the best clustering for each, over all rows.
    lower_bounds : sequence of float
        No clustering into that many clusters has a smaller objective.
    stability : sequence of float
        Mean adjusted Rand index between clusterings from different seeds.
    sentence : str
        The recommendation and its rule.
    n_seeds, n_sampled : int
        Seeds for each number, and rows of the coreset they were compared on.
    recommended : int or None
        One of the numbers.
    used : int or None
        The number of clusters that the job itself used.

    Raises
    ------
    BadParameter
        If the sequences differ in length.
    """

    n_clusters: Sequence[int]
    objectives: Sequence[float]
    lower_bounds: Sequence[float]
    stability: Sequence[float]
    sentence: str
    n_seeds: int
    n_sampled: int
    recommended: int | None = None
    used: int | None = None

    def __post_init__(self) -> None:
        """Refuse columns of different lengths."""
        lengths = {np.size(a) for a in (self.n_clusters, self.objectives, self.lower_bounds, self.stability)}
        if len(lengths) != 1 or 0 in lengths:
            raise BadParameter(f"report: columns of the range of clusters have lengths {sorted(lengths)}")
