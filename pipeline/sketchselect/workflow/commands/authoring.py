"""Help for the author of a job file: the methods, the schema, and a first job for a source."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sketchselect._text import did_you_mean
from sketchselect.errors import BadParameter, SketchSelectError
from sketchselect.linalg.csr import is_csr
from sketchselect.location import locate, location_of
from sketchselect.readers import Matrix, open_matrix, open_vector, row_partitions
from sketchselect.readers.opening import obs_columns
from sketchselect.selectors import METHODS, AutoSelector, HighlyVariableGenes
from sketchselect.selectors.base import BaseSelector

JOB = """\
# {description}
# Run it:  sketchselect run {name}        Forecast memory and time:  sketchselect plan {name}

[input]
url = {url}
{key}# target = "y.npy"               # for a method with a target: a file, or an array or column of the source
{labels} # known classes, never used, only compared with at the end
{columns}{nonfinite}
[prepare]
{prepare}
[select]
method = {method}              # sketchselect methods lists all
n_features = {n_features}                  # of {n_columns}{fewest}

[cluster]                        # leave the section out to select only
n_clusters = 8                   # or: range = [2, 12]
certificate = "auto"             # "blocks" is closer and may take long, "spectral" takes nothing

[execution]
cluster = "local"                # "threads", or the address of a Dask scheduler

[output]
dir = {folder}
{anndata}"""

_SAMPLE_ROWS = 1000
_LISTED = 20
_GENES = 2000  # as scanpy takes by default


def method_facts() -> dict[str, dict[str, Any]]:
    """Return what each method does, its class, what it needs and guarantees, its cost, and whether it has weights."""
    return {
        name: {
            "does": re.sub("`+", "", (cls.__doc__ or "").strip().splitlines()[0].rstrip(".")),
            "class": cls.__name__,
            "needs": _needs(cls),
            "guarantee": _note(cls, "Guarantee"),
            "cost": _note(cls, "Cost[^:]*"),
            "has_weights": cls.has_weights,
        }
        for name, cls in sorted(METHODS.items())
    }


def list_methods() -> str:
    """Return a line for each method: its name, what it needs, and what it does."""
    width = max(map(len, METHODS))
    needs = {name: f" (needs {facts['needs']})" if facts["needs"] else "" for name, facts in method_facts().items()}
    return "\n".join(f"{name:<{width}}  {facts['does']}{needs[name]}" for name, facts in method_facts().items())


def describe_method(name: str) -> str:
    """Return the documentation of a method: what it does and guarantees, its parameters, its cost and its source.

    Raises `BadParameter` for an unknown method, naming the closest one.
    """
    if name not in METHODS:
        hint = did_you_mean(name, METHODS, "; `sketchselect methods` lists all")
        raise BadParameter(f"unknown selection method {name!r}{hint}")
    cls = METHODS[name]
    text = inspect.cleandoc(cls.__doc__ or "").partition("\nExamples\n")[0]
    text = re.sub("`+", "", text.replace("n_features_to_select", "n_features"))
    text = text.replace("Parameters\n----------", "Keys of [select]\n----------------")
    needs = f"needs {_needs(cls)}\n" if _needs(cls) else ""
    return f"{name} ({cls.__name__})\n{needs}\n{text.strip()}"


def _note(cls: type[BaseSelector], label: str) -> str | None:
    """Return what follows a label in the documentation of a method, or None."""
    match = re.search(rf"\b{label}: (.+?)(?:\s(?:Cost[^:]*|Source):|\n\n|\Z)", inspect.getdoc(cls) or "", re.DOTALL)
    return None if match is None else " ".join(match[1].replace("`", "").split())


def _needs(cls: type[BaseSelector]) -> str:
    needs = [word for word, is_needed in (("a target", cls.needs_target), ("counts", cls.needs_counts)) if is_needed]
    return " and ".join(needs)


def job_schema() -> dict[str, Any]:
    """Return the JSON schema of a job file, for editors."""
    from sketchselect.job.schema import JobConfig

    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **JobConfig.model_json_schema()}


def write_first_job(
    source: str, job: Path, key: str | None = None, storage_options: Mapping[str, Any] | None = None
) -> str:
    """Look at a source, write a job file for it with comments, and return what was seen.

    Raises `BadParameter` if the file exists, and what `open_matrix` raises.
    """
    matrix = open_matrix(source, key=key, nonfinite="missing", storage_options=storage_options)
    if job.exists():
        raise BadParameter(f"{job}: exists already; choose another name with -o")
    start, stop = row_partitions(matrix, sparse=matrix.is_sparse)[0]
    block = matrix.read_rows(start, min(stop, start + _SAMPLE_ROWS))
    values = block.data if is_csr(block) else block
    description = _description(matrix)
    n_missing = int(np.count_nonzero(~np.isfinite(values)))
    counts = n_missing == 0 and bool(values.size and (values >= 0).all() and (values == np.rint(values)).all())
    sparse_counts = counts and matrix.is_sparse
    fill = (
        f'# the first {block.shape[0]} rows have {n_missing} values that are missing or infinite\nnonfinite = "missing"'
    )
    steps = '["impute"]' if n_missing else '["library-size", "log1p"]' if sparse_counts else "[]"
    place = location_of(os.path.expanduser(source))
    # A relative path stays one, so that job and data can be moved together; a job's paths are relative to its file.
    relative = place.is_local and not os.path.isabs(os.path.expanduser(source))
    url = os.path.relpath(place.url, job.absolute().parent) if relative else place.url
    n_columns = matrix.shape[1]
    cells = obs_columns(place if storage_options is None else locate(source, storage_options), key)
    label, listed = _labels(cells, matrix, storage_options)
    text = JOB.format(
        description=description,
        name=job,
        url=json.dumps(url),
        key=f"key = {json.dumps(key)}\n" if key else "",
        labels=f"# labels = {json.dumps(label)}".ljust(32),
        columns=listed,
        anndata=_annotations() if cells else "",
        nonfinite=f"{fill}\n" if n_missing else "",
        prepare=f"steps = {steps}".ljust(32) + ' # such as "standardise" for columns of different units\n',
        method=json.dumps((HighlyVariableGenes if sparse_counts else AutoSelector).method),
        n_features=max(1, min(_GENES if cells else 50, n_columns // 2)) if sparse_counts else '"auto"',
        n_columns=n_columns,
        fewest="" if sparse_counts else "; the fewest within 5 % of clustering on all of them, or a number",
        folder=json.dumps(f"{Path(source.rstrip('/')).name.partition('.')[0]}-selected"),
    )
    job.write_text(text, encoding="utf-8")
    return description


def _labels(cells: list[str], matrix: Matrix, storage_options: Mapping[str, Any] | None) -> tuple[str, str]:
    """Return what labels may be named by: the first column of ``obs`` that is text, if any is; and a line of all."""
    if not cells:
        return "labels.csv", ""
    few = cells[:_LISTED]
    texts = (name for name in few if _is_text(name, matrix, storage_options))
    return next(texts, few[0]), f"# the columns of obs: {', '.join(few)}{', ...' * (len(cells) > len(few))}\n"


def _is_text(name: str, matrix: Matrix, storage_options: Mapping[str, Any] | None) -> bool:
    try:
        return open_vector(name, None, matrix=matrix, storage_options=storage_options).dtype.kind == "U"
    except SketchSelectError:
        return False  # neither numbers nor text, such as a date


def _annotations() -> str:
    why = "annotations.h5ad, with the keys of scanpy"
    if importlib.util.find_spec("anndata") is None:
        return f'# anndata = true                 # {why}; needs pip install "sketchselect[anndata]"\n'
    return f"anndata = true                   # {why}\n"


def _description(matrix: Matrix) -> str:
    kind = "sparse " if matrix.is_sparse else ""
    return f"{matrix.address}: {matrix.shape[0]} rows x {matrix.shape[1]} columns, {kind}{matrix.dtype}"
