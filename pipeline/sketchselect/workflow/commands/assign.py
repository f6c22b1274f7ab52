"""The verb `assign` of the command line: clusters and predictions of new rows, by what a finished run left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sketchselect.errors import Incompatible
from sketchselect.execution import PassOptions, Source, fit_steps, make_progress, reduce_blocks
from sketchselect.execution.passes import Reduction
from sketchselect.job.schema import ExecutionSettings
from sketchselect.location import write_atomically
from sketchselect.prepare import resolve
from sketchselect.readers import Matrix, open_matrix, open_vector
from sketchselect.readers.base import require_few_dropped
from sketchselect.readers.views import ChosenColumns
from sketchselect.workflow.assignment import AssignBlock, Assigned, read_assignment
from sketchselect.workflow.commands import Outcome
from sketchselect.workflow.commands.options import require_replaceable
from sketchselect.workflow.session import engine_for
from sketchselect.workflow.tables import csv_text, disarmed, row_texts


def assign(
    target: Path,
    source: str,
    output: Path,
    *,
    key: str | None = None,
    row_names: str | None = None,
    max_dropped: float = 0.2,
    cluster: str = "threads",
    storage_options: Mapping[str, Any] | None = None,
    progress: Any = False,
) -> Outcome:
    """Write the cluster and the prediction of every row of a source as CSV, and say in words what was written.

    `target`: The output folder of a run, or its ``assign.json``.
    `source`: A matrix with the columns that the run's had: by name where both have names, else in their order.
    `output`: The file to write (.csv): the row's name or number, its nearest centre, the model's outputs.
    `key`, `row_names`: As ``[input]`` of a job.
    `max_dropped`: Share of the rows that may be left out for values that are not finite, where the run did so.
    `cluster`: As ``[execution] cluster``.
    `storage_options`: As ``[input] storage_options``.
    Raises `Incompatible` if the columns are not those of the run.
    """
    require_replaceable(output, ".csv", b"row,")
    rules = read_assignment(target)
    vectors = (*rules["no_features"], row_names)
    matrix = open_matrix(
        source, key=key, storage_options=storage_options, nonfinite=rules["nonfinite"], vectors=vectors
    )
    matrix, notes = _columns_of_run(matrix, rules)
    model, centers, weights = rules["model"], rules["centers"], rules["weights"]
    leaf = AssignBlock(
        tuple(rules["support"]),
        rules["dtype"],
        None if weights is None else np.array(weights),
        None if centers is None else np.array(centers),
        model,
    )
    n_outputs = 0 if model is None else len(model["intercepts"])
    with engine_for(ExecutionSettings(cluster=cluster)) as engine:
        options = PassOptions(engine, progress=make_progress(progress))
        plain = Source(matrix, prepare=resolve(rules["prepare"]), takes_missing=rules["nonfinite"] == "missing")
        steps = fit_steps(plain, options, statistics=rules["statistics"]).steps
        rows = Source(matrix, prepare=steps, takes_missing=plain.takes_missing, takes_sparse=True)
        state = matrix.shape[0] * (4 + 8 * n_outputs)
        reduced = reduce_blocks(rows, Reduction(leaf, Assigned.joined, "assign", state_nbytes=state), options)
    if reduced.stats.rows_dropped:
        shape, confirm = matrix.shape, "--max-dropped "
        notes += [require_few_dropped(matrix.address, reduced.stats.rows_dropped, shape[0], max_dropped, confirm)]
    names = matrix.row_names
    if row_names is not None:
        names = open_vector(
            row_names,
            matrix.shape[0],
            matrix=matrix,
            storage_options=storage_options,
            name="row_names",
        )
    write_atomically(output, _table(reduced.value, model, names, matrix.shape[0]).encode())
    what = [f"{len(centers)} clusters"] if centers is not None else []
    what += [f"the model's {', '.join(_columns_of(model))}"] if model is not None else []
    n_rows = matrix.shape[0]
    data = {"file": str(output), "n_rows": n_rows, "n_dropped": reduced.stats.rows_dropped, "notes": notes}
    return Outcome("\n".join([f"{output}: {n_rows} rows, {' and '.join(what)}", *notes]), data)


def _columns_of_run(matrix: Matrix, rules: dict[str, Any]) -> tuple[Matrix, list[str]]:
    """Return the matrix with the columns of the run, by their names where both have such, and what was left out."""
    n_columns, names, ours = rules["n_columns"], rules["feature_names"], matrix.feature_names
    places = dict.fromkeys(names or (), 0)
    if names is None or ours is None or len(places) < len(names):
        if matrix.shape[1] != n_columns:
            raise Incompatible(f"{matrix.address}: has {matrix.shape[1]} columns, the run's rows had {n_columns}")
        return matrix, []
    if ours == tuple(names):
        return matrix, []
    times = Counter(ours)
    if absent := [name for name in names if times[name] != 1]:
        raise Incompatible(
            f"{matrix.address}: of the run's {n_columns} columns these are not in it, or not once: {_some(absent)}"
        )
    extra = [name for name in times if name not in places]
    notes = [f"note: {len(extra)} columns that the run did not have are left out: {_some(extra)}"] if extra else []
    places |= {name: place for place, name in enumerate(ours)}
    return ChosenColumns(matrix, [places[name] for name in names]), notes


def _some(names: list[str]) -> str:
    return ", ".join(f"{name!r:.80}" for name in names[:5]) + (", ..." if len(names) > 5 else "")


def _columns_of(model: dict[str, Any]) -> list[str]:
    return ["class"] if model["classes"] else [str(name) for name in model["outputs"]]


def _table(assigned: Assigned, model: dict[str, Any] | None, names: Any, n_rows: int) -> str:
    rows = range(n_rows) if names is None else [disarmed(name) for name in row_texts(names, 0, n_rows)]
    columns: dict[str, Any] = {"row": rows}
    if assigned.labels is not None:
        columns["cluster"] = assigned.labels.tolist()
    if model is not None and assigned.outputs is not None:
        columns |= dict(zip(_columns_of(model), _predictions(model, assigned.outputs), strict=True))
    return csv_text([list(columns), *zip(*columns.values(), strict=True)])


def _predictions(model: dict[str, Any], outputs: Any) -> list[list[Any]]:
    """Return the columns of predictions: the targets, or the class; empty where the row was dropped."""
    dropped = np.isnan(outputs).any(axis=1).tolist()
    columns = outputs.T.tolist()
    if classes := model["classes"]:
        places = (outputs[:, 0] > 0).astype(int) if outputs.shape[1] == 1 else outputs.argmax(axis=1)
        columns = [[disarmed(str(classes[place])) for place in places.tolist()]]
    return [["" if absent else value for absent, value in zip(dropped, one, strict=True)] for one in columns]
