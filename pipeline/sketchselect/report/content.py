"""Content of a page: the manifest of a run with its selection and figures, checked against one another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sketchselect.cluster import Certificate
from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Floats
from sketchselect.report.text import as_numbers


class RunContent:
    """A run to draw, from the content of three files in its folder; see `sketchselect.report.render`.

    Raises `BadParameter` if they contradict each other.
    """

    def __init__(self, manifest: Mapping[str, Any], selection: Mapping[str, Any], figures: Mapping[str, Any]) -> None:
        self.manifest, self.figures = manifest, figures
        self.n_rows: int = manifest["source"]["shape"][0]
        self.n_columns: int = manifest["prepared_columns"]
        self.n_dropped: int = figures.get("n_dropped", 0)
        self.prepare: Sequence[str] = figures.get("prepare", ())
        self.method: str = selection["method"]
        self.scores = as_numbers(selection["scores"])
        self.support = np.asarray(selection["support"], dtype=np.int64)
        self.names: Sequence[str] | None = selection.get("feature_names")
        self.weights = _numbers(selection.get("weights"))
        self.diagnostics: Mapping[str, Any] = manifest["selection"].get("diagnostics", {})
        self.sizes = _numbers(manifest["clustering"]["cluster_sizes"] if "clustering" in manifest else None)
        self.certificates = [Certificate.from_dict(entry) for entry in manifest.get("certificates", ())]
        self.image_shape: Sequence[int] | None = manifest["job"]["output"].get("image_shape")
        self.stages: Sequence[Mapping[str, Any]] = manifest["stages"]
        self.seconds: float = manifest["seconds"]
        self.profiles, self.centres = _numbers(figures.get("profiles")), _numbers(figures.get("centres"))
        self.points, self.point_labels = _numbers(figures.get("points")), figures.get("point_labels")
        self.model: Mapping[str, Any] | None = figures.get("model")
        self._check()

    def _check(self) -> None:
        d, support, figures = self.n_columns, self.support, self.figures
        require_shape("scores", self.scores, (d,))
        if support.ndim != 1 or (support.size and not (support.min() >= 0 and support.max() < d)):
            raise BadParameter(f"report: support must be a list of columns in 0..{d - 1}, got shape {support.shape}")
        require_shape("feature_names", self.names, (d,))
        require_shape("weights", self.weights, (support.size,))
        if self.sizes is not None:
            require_shape("profiles", self.profiles, (self.sizes.size, support.size))
            require_shape("centres", self.centres, (self.sizes.size, d))
        if self.points is not None and len(self.points):
            require_shape("points", self.points, (len(self.points), 2))
            require_shape("point_labels", self.point_labels, (len(self.points),))
        shape = self.image_shape
        if shape is not None and (len(shape) not in (2, 3) or int(np.prod(shape)) != d):
            raise BadParameter(f"report: image_shape {tuple(shape)} does not hold {d} columns")
        if (known := figures.get("known_labels")) is not None:
            rows = np.shape(known["table"])
            if len(rows) != 2 or rows[0] != len(known["classes"]):
                raise BadParameter(f"report: known_labels.table has shape {rows} for {len(known['classes'])} classes")
        for name, check in (("model", _check_model), ("timeline", check_timeline), ("cluster_count", _check_counts)):
            if figures.get(name) is not None:
                check(figures[name])


def require_shape(name: str, values: Any, expected: tuple[int, ...]) -> None:
    """Raise `BadParameter` unless values, if given, have this shape."""
    shape = np.shape(values)
    # An empty table read back from a file has lost its width.
    if values is not None and shape != expected and (math.prod(shape) or math.prod(expected)):
        raise BadParameter(f"report: {name} has shape {shape}, expected {expected}")


def _check_model(model: Mapping[str, Any]) -> None:
    m, n, q = len(model["values"]), len(model["terms"]), len(model["outputs"])
    if not 0 <= model["chosen"] < m:
        raise BadParameter(f"report: model.chosen is {model['chosen']}, the path has {m} models")
    require_shape("model.strengths", model["strengths"], (n,))
    require_shape("model.intercepts", model["intercepts"], (q,))
    require_shape("model.coefficients", model["coefficients"], (n, q))
    if len(model["path_terms"]):
        require_shape("model.path_lines", model["path_lines"], (m, len(model["path_terms"])))
    curves = {name: model[name] for name in ("sizes", "cv_mean", "cv_error")} | dict(model["criteria"])
    for name, values in curves.items():
        require_shape(f"model.{name}", values, (m,))


def check_timeline(timeline: Mapping[str, Any]) -> None:
    """Raise `BadParameter` if parts of a timeline contradict each other."""
    t, m = len(timeline["rows"]), len(timeline["names"])
    if t == 0:
        raise BadParameter("report: timeline has no points")
    require_shape("timeline.n_selected", timeline["n_selected"], (t,))
    require_shape("timeline.ranks", timeline["ranks"], (t, m))
    if not 0 <= timeline["n_risen"] <= m:
        raise BadParameter(f"report: timeline.n_risen is {timeline['n_risen']} of {m} columns shown")


def _check_counts(counts: Mapping[str, Any]) -> None:
    lengths = {len(counts[name]) for name in ("n_clusters", "objectives", "lower_bounds", "stability")}
    if len(lengths) != 1 or 0 in lengths:
        raise BadParameter(f"report: columns of the range of clusters have lengths {sorted(lengths)}")


def _numbers(values: Any) -> Floats | None:
    return None if values is None else as_numbers(values)
