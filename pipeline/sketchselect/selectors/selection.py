"""The result of a selection: plain data, the content of `selection.json`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import DamagedFile
from sketchselect.linalg.arrays import Floats


@dataclass(frozen=True)
class Selection:
    """Selected columns, with the scores of all columns and the method.

    Parameters
    ----------
    method : str
        Name of the method, as in a job file.
    support : array of int, shape (n_selected,)
        Column indices, ascending.
    scores : array of float, shape (n_features,)
        One score per column, larger is better; NaN ranks last.
    weights : array of float, shape (n_selected,), or None
        Factor of each selected column in the method's guarantee; None for methods without.
    feature_names : tuple of str or None
        Names of all columns.
    parameters : dict
        The method's parameters, resolved.
    diagnostics : dict
        Numbers on the reliability of the scores.
    prepare : tuple of str
        Labels of the steps that the rows went through first; prepare rows for clustering in the same way.
    """

    method: str
    support: NDArray[np.int64]
    scores: Floats
    weights: Floats | None = None
    feature_names: tuple[str, ...] | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    diagnostics: dict[str, Any] = field(default_factory=dict)
    prepare: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Selection of {self.support.size} of {self.scores.size} columns by {self.method}>"

    def ranking(self) -> NDArray[np.int64]:
        """Return all columns, best score first; NaN last, ties by the lowest index."""
        return rank(self.scores)

    def to_dict(self) -> dict[str, Any]:
        """Return the selection as JSON values: no time, path or run id, NaN as null."""
        return {
            "method": self.method,
            "support": [int(j) for j in self.support],
            "scores": _jsonable(self.scores),
            "weights": None if self.weights is None else _jsonable(self.weights),
            "feature_names": None if self.feature_names is None else list(self.feature_names),
            "parameters": {k: self.parameters[k] for k in sorted(self.parameters)},
            "diagnostics": {k: self.diagnostics[k] for k in sorted(self.diagnostics)},
            "prepare": list(self.prepare),
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Selection:
        """Return the selection of a `to_dict`; raise `DamagedFile` naming the missing or wrong key."""
        for key in ("method", "support", "scores"):
            if key not in content:
                raise DamagedFile(f"this is not a selection: the key {key!r} is missing")
        scores = np.array([np.nan if s is None else s for s in content["scores"]], dtype=np.float64)
        support = np.array(content["support"], dtype=np.int64)
        if support.size and not (support.min() >= 0 and support.max() < scores.size and (np.diff(support) > 0).all()):
            raise DamagedFile("the selection's support must be ascending column indices below the number of scores")
        weights, names = content.get("weights"), content.get("feature_names")
        return cls(
            method=str(content["method"]),
            support=support,
            scores=scores,
            weights=None if weights is None else np.array(weights, dtype=np.float64),
            feature_names=None if names is None else tuple(names),
            parameters=dict(content.get("parameters", {})),
            diagnostics=dict(content.get("diagnostics", {})),
            prepare=tuple(content.get("prepare", ())),
        )


def rank(scores: Floats) -> NDArray[np.int64]:
    """Return the order of scores from best to worst; NaN last, ties by the lowest index."""
    return np.argsort(-scores, kind="stable")


def _jsonable(values: Floats) -> list[float | None]:
    return [float(v) if np.isfinite(v) else None for v in values]
