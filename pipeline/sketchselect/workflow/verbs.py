"""The command line's verbs on single files: each a few lines over the layers below, and a sentence of what was done."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sketchselect.config import JobConfig
from sketchselect.errors import ConfigError, DamagedFile, NotOurFolder, SketchSelectError, SourceError
from sketchselect.jobfile import load_job, selector_parameters, selector_problem
from sketchselect.jobtext import toml_value

MAGIC = b"\x89SKS"


def summarize_to_file(
    source: str,
    output: Path,
    *,
    size: int,
    moments: bool,
    target: str | None,
    prepare: Sequence[str],
    checkpoint: Path | None,
    options: Mapping[str, Any],
    execution: Mapping[str, Any],
) -> str:
    """Read a source once and write its summary: sketch, column statistics, and moments where asked for."""
    from sketchselect.execution import Checkpoint, Source, make_progress, summarize_source
    from sketchselect.readers import open_matrix, open_vector
    from sketchselect.summaries import Bundle, ColumnStats, FrequentDirections, Moments, Summary, save
    from sketchselect.workflow.engines import engine_for, library_logs

    require_replaceable(output, ".sks", MAGIC)
    if not output.parent.is_dir():
        raise SourceError(f"{output}: the folder {output.parent} does not exist; make it first")
    if target is not None and not moments:
        raise ConfigError("--target: only moments keep targets; add --moments")
    config = _job(source, options, prepare, execution, {"method": "variance"})
    given = config.input
    matrix = open_matrix(given.url, key=given.key, missing_chunks=given.missing_chunks, nonfinite=given.nonfinite)
    wanted: dict[str, Summary[Any]] = {"sketch": FrequentDirections(size=size), "columns": ColumnStats()}
    if moments:
        wanted["moments"] = Moments()
    vector = None
    if target is not None:
        path = os.path.abspath(target) if os.path.exists(target) else target
        vector = open_vector(path, matrix.shape[0], matrix_address=matrix.address)
    steps = tuple(config.prepare.rows)
    progress = make_progress(True)
    for text in matrix.notes:
        progress.note(f"note: {text}")
    with library_logs(None), engine_for(config.execution) as engine:
        summary = summarize_source(
            Source(matrix, vector, None, steps),
            Bundle(wanted),
            engine=engine,
            partition_bytes=config.execution.partition_bytes,
            checkpoint=None if checkpoint is None else Checkpoint(checkpoint),
            progress=progress,
        ).value
    save(summary, output)
    return f"{output}: summary of {summary.n_rows} rows x {summary.n_features} columns, {output.stat().st_size} bytes"


def merge_files(files: Sequence[Path], output: Path) -> str:
    """Merge summary files in the order given."""
    from sketchselect.summaries import load, save

    if len(files) < 2:
        raise ConfigError("merge: give at least two summary files")
    require_replaceable(output, ".sks", MAGIC)
    merged = load(files[0])
    seen = {_digest(files[0]): files[0]}
    for file in files[1:]:
        other = load(file)
        first = seen.setdefault(_digest(file), file)
        if first is not file and other.n_rows:
            raise ConfigError(
                f"{file}: the same summary as {first}, so its rows would be counted twice; give every file once"
            )
        try:
            merged = merged.merge(other)
        except SketchSelectError as error:
            raise type(error)(f"{file}: {error}") from None
    save(merged, output)
    return f"{output}: summary of {merged.n_rows} rows x {merged.n_features} columns from {len(files)} files"


def _digest(path: Path) -> bytes:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def select_from_file(file: Path, output: Path, method: str, n_features: int, settings: Sequence[str]) -> str:
    """Select columns from a summary file."""
    from sketchselect import selectors
    from sketchselect.summaries import load
    from sketchselect.summaries.codec import write_atomically
    from sketchselect.workflow.tables import selection_json

    parameters: dict[str, Any] = {}
    for item in settings:
        name, sign, value = item.partition("=")
        if not sign:
            raise ConfigError(f"--set {item}: expected NAME=VALUE, a parameter of the method")
        parameters[name.strip()] = toml_value(value)
    if method in selectors.METHODS and (problem := selector_problem(method, parameters)):
        raise ConfigError(f"--set: {problem}")
    # The job's schema knows which methods there are, and says so in the same words.
    try:
        config = load_job(
            {"input": {"url": str(file)}, "select": {"method": method, "n_features": n_features, **parameters}}
        )
    except ConfigError as error:
        raise ConfigError(str(error).replace("job: select.method: ", "--method: ")) from None
    require_replaceable(output, ".json", b"{")
    summary = load(file)
    if n_features > summary.n_features:
        raise ConfigError(f"--features: {n_features} wanted, the summary has {summary.n_features} columns")
    chosen = config.select
    selector = selectors.make(
        method, n_features_to_select=n_features, **selector_parameters(method, chosen.parameters)
    ).fit_summary(summary)
    if not output.parent.is_dir():
        raise SourceError(f"{output}: the folder {output.parent} does not exist; make it first")
    write_atomically(output, selection_json(selector.selection_).encode())
    done = f"{output}: selected {len(selector.support_)} of {summary.n_features} columns with {method}"
    missing = [step for step in selector.prepare_steps() if step not in summary.prepare]
    if missing:
        steps = " ".join(f"--prepare {step}" for step in missing)
        done += f"\nnote: {method} asks for rows prepared with {steps}, and the summary was made without"
    return done


def cluster_on_selection(
    source: str,
    selection: Path,
    output: Path,
    *,
    n_clusters: int,
    random_state: int,
    prepare: Sequence[str] | None,
    options: Mapping[str, Any],
    execution: Mapping[str, Any],
    fresh: bool,
) -> str:
    """Cluster a source's rows on the columns of a selection file, and publish all that a job would.

    Rows are prepared as they were for the selection, unless `prepare` says otherwise.
    """
    from sketchselect.workflow.job import run_given
    from sketchselect.workflow.tables import read_selection

    given = read_selection(selection)
    cluster = {"n_clusters": n_clusters, "random_state": random_state}
    steps = given.prepare if prepare is None else prepare
    config = _job(
        source, options, steps, execution, {"method": "variance"}, cluster=cluster, output={"dir": str(output)}
    )
    return run_given(config, given, fresh=fresh, progress=True).summary()


def convert_file(source: str, destination: Path, chunks: str | None, key: str | None) -> str:
    """Convert a file to a Zarr store."""
    from sketchselect.readers import convert, open_matrix

    shape = None
    if chunks is not None:
        match = re.fullmatch(r"([1-9][0-9]*)x([1-9][0-9]*)", chunks)
        if match is None:
            raise ConfigError(f"--chunks {chunks}: expected ROWSxCOLUMNS, for example 1000x784")
        shape = int(match[1]), int(match[2])
    path = convert(source, destination, chunks=shape, key=key, progress=_convert_progress())
    matrix = open_matrix(str(path))
    return f"{path}: {matrix.shape[0]} x {matrix.shape[1]} {matrix.dtype}"


def require_replaceable(path: Path, suffix: str, start: bytes) -> None:
    """Raise unless `path` is free, or a file of the kind that is about to be written there."""
    if path.suffix != suffix:
        raise ConfigError(f"-o {path}: the name must end in {suffix}")
    if path.is_dir():
        raise NotOurFolder(f"{path}: a folder is there; choose another name")
    if not path.exists():
        return
    with path.open("rb") as stream:
        head = stream.read(len(start))
    if head and head != start:
        raise DamagedFile(
            f"{path}: exists and is not a {suffix} file of ours, so it is not overwritten; choose another name"
        )


def _job(
    source: str,
    options: Mapping[str, Any],
    prepare: Sequence[str],
    execution: Mapping[str, Any],
    select: Mapping[str, Any],
    **sections: Mapping[str, Any],
) -> JobConfig:
    """Return the command line's options as a checked job, so that they get the job file's messages."""
    return load_job(
        {
            "input": {"url": source, **{k: v for k, v in options.items() if v is not None}},
            "prepare": {"rows": list(prepare)},
            "select": dict(select),
            "execution": {k: v for k, v in execution.items() if v is not None},
            **sections,
        }
    )


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
