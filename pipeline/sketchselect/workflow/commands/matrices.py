"""The command line's verbs on matrices: each a few lines over the layers below, and a sentence of what was done."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sketchselect.errors import ConfigError
from sketchselect.workflow.commands.options import job_of
from sketchselect.workflow.commands.outcome import Outcome

if TYPE_CHECKING:
    from sketchselect.workflow.job import RunResult


def cluster_on_selection(
    source: str,
    selection: Path,
    output: Path,
    *,
    n_clusters: int,
    random_state: int,
    weighted: bool | str,
    prepare: Sequence[str] | None,
    fitted: str | None,
    options: Mapping[str, Any],
    execution: Mapping[str, Any],
    fresh: bool,
) -> RunResult:
    """Cluster a source's rows on the columns of a selection file, and publish all that a job would.

    Rows are prepared as they were for the selection, unless `prepare` says otherwise: steps fitted to all rows with the
    statistics of `fitted`, or of the ``prepare.sks`` beside the selection.
    """
    from sketchselect.workflow.job import run_config
    from sketchselect.workflow.output.tables import read_selection
    from sketchselect.workflow.stages import preparing

    selected = read_selection(selection)
    cluster = {"n_clusters": n_clusters, "random_state": random_state, "weighted": weighted}
    steps = selected.prepare if prepare is None else prepare
    if fitted is None and prepare is None:
        fitted = preparing.beside(selection.parent, steps)
    settings = {"steps": list(steps), "fitted": fitted}
    config = job_of(source, options, settings, execution, cluster=cluster, output={"dir": str(output)})
    return run_config(config, selected, fresh=fresh, progress=True)


def convert_file(
    source: str, destination: str, chunks: str | None, key: str | None, storage: Mapping[str, Any] | None = None
) -> Outcome:
    """Convert a file to a Zarr store."""
    from sketchselect.readers import convert, open_matrix

    chunk = None
    if chunks is not None:
        match = re.fullmatch(r"([1-9][0-9]*)x([1-9][0-9]*)", chunks)
        if match is None:
            raise ConfigError(f"--chunks {chunks}: expected ROWSxCOLUMNS, for example 1000x784")
        chunk = int(match[1]), int(match[2])
    path = convert(source, destination, chunks=chunk, key=key, storage_options=storage, progress=_convert_progress())
    matrix = open_matrix(path, storage_options=storage if isinstance(path, str) else None)
    shape = matrix.shape
    data = {"store": str(path), "shape": list(shape), "dtype": str(matrix.dtype)}
    return Outcome(f"{path}: {shape[0]} x {shape[1]} {matrix.dtype}", data)


def _convert_progress() -> Any:
    import time

    from sketchselect.execution import make_progress

    progress = make_progress(True)
    last = [time.monotonic()]

    def report(done: int, total: int) -> None:
        if time.monotonic() - last[0] >= 2:
            last[0] = time.monotonic()
            progress.note(f"convert: {done} of {total} rows ({done / max(total, 1):.0%})")

    return report
