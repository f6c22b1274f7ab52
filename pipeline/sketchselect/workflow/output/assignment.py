"""The file that treats new rows as those of a finished run: columns, prepare steps, centres and model, as JSON."""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import DamagedFile, SketchSelectError, SourceError
from sketchselect.execution import Block
from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.kmeans.distances import distances_to
from sketchselect.linalg.sparse.csr import densify, is_csr, take_columns
from sketchselect.location import is_url
from sketchselect.summaries import codec
from sketchselect.workflow.output.folder import sealed, unsealed
from sketchselect.workflow.output.manifest import JobResults
from sketchselect.workflow.output.tables import plain_value
from sketchselect.workflow.stages.features import feature_dtype
from sketchselect.workflow.stages.model import model_json
from sketchselect.workflow.stages.session import Session

FILE = "assign.json"
"""Name of the file in an output folder."""


def assignment_json(session: Session, results: JobResults) -> str | None:
    """Return the content of ``assign.json``: no row and no label of the source; None where nothing can be assigned."""
    clustering, model, support = results.clustering, results.model, results.selection.support
    if clustering is None and model is None:
        return None
    inputs, weights = session.config.input, None
    centers = None if clustering is None else clustering.centers
    if clustering is not None and clustering.nearest is not None:
        support, centers = np.arange(clustering.nearest.shape[1]), clustering.nearest
    elif clustering is not None and clustering.variant == "weighted":
        weights = results.selection.weights
    entries = session.config.prepare.entries
    content = {
        "format": 1,
        "n_columns": session.matrix.shape[1],
        "feature_names": session.matrix.feature_names,
        "no_features": [
            name for name in inputs.beside if name is not None and not os.path.isabs(name) and not is_url(name)
        ],
        "nonfinite": inputs.nonfinite,
        "prepare": [
            *entries,
            *(step.name for step in session.steps[len(entries) :]),
        ],
        "statistics": None
        if session.statistics is None
        else base64.b64encode(codec.encode(session.statistics)).decode("ascii"),
        "support": support,
        "dtype": str(feature_dtype(session.rows)),
        "weights": weights,
        "centers": centers,
        "model": None if model is None else json.loads(model_json(model)),
    }
    return sealed(plain_value(content))


def read_assignment(target: Path) -> dict[str, Any]:
    """Return the content of an ``assign.json``, of a run's folder or by itself, with its statistics decoded.

    Raises `SourceError` or `DamagedFile` if there is none, or it is not one.
    """
    path = target / FILE if target.is_dir() else target
    try:
        content: dict[str, Any] = unsealed(path)
        statistics = content["statistics"]
        if statistics is not None:
            content["statistics"] = codec.decode(base64.b64decode(statistics), str(path))
        content["support"], content["prepare"], content["model"], content["centers"]
    except FileNotFoundError:
        raise SourceError(
            f"{path}: no such file; a finished run that clustered rows or fitted a model leaves one in its folder"
        ) from None
    except SketchSelectError:
        raise
    except (ValueError, KeyError, TypeError):
        raise DamagedFile(
            f"{path}: not what a run leaves for new rows; give the output folder of a run, or its assign.json"
        ) from None
    return content


@dataclass(frozen=True)
class Assigned:
    """Clusters (-1 where the row was dropped) and outputs of the model, of consecutive rows; None without."""

    labels: NDArray[np.int32] | None
    outputs: Floats | None

    def joined(self, other: Assigned) -> Assigned:
        """Return both, one behind the other."""
        labels = None if self.labels is None else np.concatenate([self.labels, other.labels])
        outputs = None if self.outputs is None else np.concatenate([self.outputs, other.outputs])
        return Assigned(labels, outputs)


@dataclass(frozen=True)
class AssignBlock:
    """Leaf of the pass that assigns rows: the nearest centre in the selected columns, and the model's outputs."""

    support: tuple[int, ...]
    dtype: str
    weights: Floats | None
    centers: Floats | None
    model: dict[str, Any] | None

    def __call__(self, block: Block) -> Assigned:
        """Return what is known of one block's rows."""
        labels = outputs = None
        if self.centers is not None:
            scale = 1.0 if self.weights is None else self.weights
            rows = _columns(block.values, self.support).astype(self.dtype).astype(np.float64)
            nearest = distances_to(rows * scale, self.centers * scale).argmin(axis=1) if len(rows) else np.empty(0)
            labels = _spread(block, nearest.astype(np.int32), -1)
        if self.model is not None:
            outputs = _spread(block, outputs_of(self.model, block.values), np.nan)
        return Assigned(labels, outputs)


def outputs_of(model: dict[str, Any], rows: Any) -> Floats:
    """Return the outputs of the model in ``model.json`` for prepared rows, shape (n_rows, n_outputs)."""
    intercepts = np.array([-np.inf if value is None else value for value in model["intercepts"]])
    used = sorted({j for columns in model["terms"] for j in columns})
    values = _columns(rows, tuple(used)).astype(np.float64)
    if (scaling := model["scaling"]) is not None:
        values = (values - scaling["mean"]) / scaling["scale"]
    place = {j: i for i, j in enumerate(used)}
    terms = [values[:, [place[j] for j in columns]].prod(axis=1) for columns in model["terms"]]
    products = np.stack(terms, axis=1) if terms else np.zeros((values.shape[0], 0))
    outputs: Floats = products @ np.reshape(model["coefficients"], (len(terms), intercepts.size)) + intercepts
    return outputs


def _columns(rows: Any, columns: tuple[int, ...]) -> Any:
    return densify(take_columns(rows, columns)) if is_csr(rows) else rows[:, list(columns)]


def _spread(block: Block, values: Any, absent: float) -> Any:
    if block.surviving is None:
        return values
    whole = np.full((block.stop - block.start, *values.shape[1:]), absent, dtype=values.dtype)
    whole[block.surviving - block.start] = values
    return whole
