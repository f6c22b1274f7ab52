"""Commands on sources, summaries and selections; heavy imports are inside the commands."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sketchselect._text import counted, table_size
from sketchselect.cli.shell import (
    Cluster,
    FeatureNames,
    Fitted,
    Fresh,
    Key,
    MaxDropped,
    OpenCluster,
    Outcome,
    Partition,
    Prepare,
    StorageOptions,
    Workers,
    command,
    steps_named,
)

if TYPE_CHECKING:
    from sketchselect.job.schema import JobConfig
    from sketchselect.prepare import Step
    from sketchselect.selectors.base import BaseSelector
    from sketchselect.summaries import Summary


@command
def summarize(
    source: Annotated[str, typer.Argument(help="A path or URL of a matrix.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The summary file to write (.sks).")],
    method: Annotated[
        str | None, typer.Option("--for", metavar="METHOD", help="Keep only what `select --method METHOD` needs.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the method of --for, such as score=wilcoxon."),
    ] = None,
    size: Annotated[int | None, typer.Option("--size", min=2, help="Rows of the sketch (64).")] = None,
    sketch: Annotated[bool, typer.Option("--sketch/--no-sketch", help="Whether to keep a sketch.")] = True,
    moments: Annotated[bool, typer.Option("--moments", help="Also keep exact means and covariances.")] = False,
    target: Annotated[
        str | None, typer.Option("--target", help="Target of each row: a file, or an array in the store.")
    ] = None,
    classes: Annotated[bool, typer.Option("--classes", help="The target holds class labels, not numbers.")] = False,
    folds: Annotated[
        int | None, typer.Option("--folds", min=2, help="Number of folds; cross-validation then needs no further pass.")
    ] = None,
    random_state: Annotated[
        int | None, typer.Option("--random-state", min=0, help="Seed of the folds and of the sample (0).")
    ] = None,
    half_life: Annotated[
        float | None,
        typer.Option("--half-life", metavar="ROWS", help="Number of rows after which the weight of a row has halved."),
    ] = None,
    after: Annotated[
        int, typer.Option("--after", min=0, help="Number of rows in earlier files, for folds, samples and ages.")
    ] = 0,
    degree: Annotated[
        int, typer.Option("--degree", metavar="1|2", min=1, max=2, help="2: also squares and products of columns.")
    ] = 1,
    top_values: Annotated[
        int | None, typer.Option("--top-values", min=1, help="Largest values to keep of each column, for hvg (64).")
    ] = None,
    batches: Annotated[
        str | None, typer.Option("--batches", help="Batch of each row, for hvg: a file, or an array in the store.")
    ] = None,
    sample: Annotated[
        int | None, typer.Option("--sample", min=1, help="Number of rows to sample, for mcfs and laplacian-score.")
    ] = None,
    prepare: Prepare = None,
    fitted: Fitted = None,
    write_fitted: Annotated[
        Path | None,
        typer.Option(
            "--write-fitted", help="File for the statistics of prepare steps (.sks); --fitted may have the first."
        ),
    ] = None,
    key: Key = None,
    feature_names: FeatureNames = None,
    nonfinite: Annotated[
        str, typer.Option("--nonfinite", metavar="error|drop_rows|missing", help="Rows with NaN.")
    ] = "error",
    max_dropped: MaxDropped = 0.2,
    missing_chunks: Annotated[
        str, typer.Option("--missing-chunks", metavar="error|fill", help="Chunks without a file.")
    ] = "error",
    partition_bytes: Partition = None,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", metavar="FOLDER", help="Folder for checkpoints.")
    ] = None,
    cluster: OpenCluster = None,
    workers: Workers = None,
    storage: StorageOptions = None,
) -> Outcome:
    """Read a matrix once and write its summary. It holds column statistics, a sketch and moments."""
    import shlex
    from dataclasses import replace

    from sketchselect import summaries
    from sketchselect._byte_sizes import format_bytes
    from sketchselect._progress import give_detail
    from sketchselect.errors import BadParameter, ConfigError
    from sketchselect.execution import Checkpoint, PassOptions, Source, fit_steps, make_progress, summarize_source
    from sketchselect.job.load import storage_options
    from sketchselect.prepare import encodings, resolve
    from sketchselect.readers import open_matrix, open_vector
    from sketchselect.readers.base import require_few_dropped
    from sketchselect.selectors import AutoSelector, TargetAutoSelector
    from sketchselect.selectors.supervised.target import classes_of, require_several
    from sketchselect.summaries import Bundle, Moments, load, save
    from sketchselect.workflow.session import ON_THREADS, engine_for, library_logs, settled
    from sketchselect.workflow.summary_files import MAGIC, require_replaceable

    require_replaceable(output, ".sks", MAGIC, source=source)
    if write_fitted is not None:
        require_replaceable(write_fitted, ".sks", MAGIC, option="--write-fitted", source=source)
    missing = nonfinite == "missing"
    selector = None
    if method == AutoSelector.method and target is not None:
        method = TargetAutoSelector.method  # as in a job
    if method is not None:
        flags: dict[str, tuple[str, Any]]
        flags = {"--size": ("sketch_size", size), "--half-life": ("half_life", half_life), "--folds": ("cv", folds)}
        flags |= {"--random-state": ("random_state", random_state), "--sample": ("sample_rows", sample)}
        flags |= {"--top-values": ("top_values", top_values), "--degree": ("degree", degree if degree > 1 else None)}
        flags |= {
            "--batches": ("batches", None if batches is None else True),
            "--classes": ("task", "classification" if classes else None),
        }
        flags |= {"--nonfinite missing": ("missing", "pairwise" if missing else None)}
        other_options = {"--moments": moments, "--no-sketch": not sketch}
        selector = _selector(method, flags, [name for name, value in other_options.items() if value], settings or [])
        if selector.needs_target and target is None:
            raise ConfigError(f"--target: missing; {method} learns from a target")
    elif settings:
        raise ConfigError(f"--set {settings[0]}: a parameter of a method; name it with --for")
    else:
        # Only moments keep a target, so it implies moments; so do folds, and a half-life without a sketch.
        moments = moments or folds is not None or target is not None or (half_life is not None and not sketch)
        if degree == 2 and not moments:
            raise ConfigError("--degree: only moments have one; add --moments or --folds")
        if half_life is not None and (folds is not None or classes or degree == 2):
            raise ConfigError("--half-life: goes with neither --folds nor --classes nor --degree 2; make two files")
        try:
            Moments(half_life=half_life)
        except BadParameter as error:
            raise ConfigError(f"--half-life: {error}") from None
        if batches is not None and top_values is None:
            raise ConfigError("--batches: only largest values are kept by batch; add --top-values")
        if missing and (sketch or not moments):
            raise ConfigError(
                "--nonfinite missing: only moments accept missing values; fill them by --prepare impute instead of "
                "this option, or add --moments --no-sketch"
            )
    if classes and target is None:
        raise ConfigError("--classes: says what the target holds; add --target")
    if batches is not None and target is not None:
        raise ConfigError("--batches: each row has one label in a pass, and --target names another; make two files")
    inputs: dict[str, Any] = {"key": key, "max_dropped": max_dropped, "missing_chunks": missing_chunks}
    # "missing" is checked above: a job's check depends on its method, which this command lacks.
    inputs |= {"nonfinite": "error" if missing else nonfinite, "storage_options": storage_options(storage)}
    execution = {"cluster": cluster, "n_workers": workers, "partition_bytes": partition_bytes}
    config = _job(source, inputs, {"steps": prepare or [], "fitted": fitted}, execution)
    steps = resolve(config.prepare.entries, () if selector is None else selector.prepare_steps())
    label = target if batches is None else batches
    options = config.input.storage_options or None
    matrix = open_matrix(
        config.input.url,
        key=key,
        storage_options=options,
        missing_chunks=config.input.missing_chunks,
        nonfinite="missing" if missing else config.input.nonfinite,
        vectors={"target" if batches is None else "batches": label},
        feature_names=feature_names,
        encode=encodings(steps),
    )
    vector = None
    if label is not None:
        label_path = os.path.abspath(label) if os.path.exists(label) else label
        name = "target" if batches is None else "batches"
        vector = open_vector(label_path, matrix.shape[0], matrix=matrix, storage_options=options, name=name)
        if vector.dtype.kind == "U" and not (classes or batches):
            raise ConfigError(f"--target {target}: holds text; add --classes to take it for class labels")
    progress = make_progress(True)
    for text in matrix.notes:
        progress.note(f"note: {text}")
    statistics = None if config.prepare.fitted is None else load(config.prepare.fitted)
    if selector is not None and vector is not None and selector.uses_target:
        selector.inspect_target(vector)
    # Models fitted to moments with a target multiply the rounding of products in float32.
    in_double = target is not None if selector is None else selector.needs_double
    rows = Source(matrix, vector, None, steps, in_double=in_double)
    goes_by_numbers = not (half_life is None and folds is None and sample is None)
    if after and selector is not None:
        single = selector.single_pass(replace(rows, prepare=()))
        goes_by_numbers = single is not None and single[1].goes_by_row_numbers
    if after and not goes_by_numbers and not any(map(_is_fitted_from_draws, steps)):
        if selector is None:
            raise ConfigError("--after: nothing here depends on row numbers; add --half-life, --folds or --sample")
        raise ConfigError(f"--after: nothing of {method} that merges depends on row numbers; leave it out")
    if (execution_settings := settled(config.execution, rows)) is not config.execution:
        give_detail(progress, ON_THREADS)
    with library_logs(None), engine_for(execution_settings, progress=progress) as engine:
        saved_nodes = None if checkpoint is None else Checkpoint(checkpoint)
        passes = PassOptions(engine, config.execution.partition_bytes, saved_nodes, progress, start=after)
        fit = fit_steps(rows, passes, statistics=statistics, continues=write_fitted is not None)
        for text in (text for step in fit.steps for text in step.notes(matrix.feature_names)):
            progress.note(f"note: {text}")
        if write_fitted is not None:
            if fit.statistics is None:
                raise ConfigError("--write-fitted: no prepare step needs statistics; leave the option out")
            save(fit.statistics, write_fitted)
        rows, dropped_rows = replace(rows, prepare=fit.steps), list[int]()
        passes = passes.but(
            on_statistics=lambda stats: dropped_rows.append(stats.rows_dropped), start=after if goes_by_numbers else 0
        )
        if selector is not None:
            n_columns = rows.n_columns
            nbytes = selector.summary_description(n_columns).projected_nbytes(n_columns, int(target is not None))
            progress.note(f"note: a summary of {counted(n_columns, 'column')} takes {format_bytes(nbytes)} of memory")
            summary = selector.complete(selector.collect_source(rows, passes), rows, passes)
        else:
            seed = random_state or 0
            members: dict[str, Summary[Any]] = {"columns": summaries.ColumnStats()}
            if sketch:
                members["sketch"] = summaries.FrequentDirections(size or 64, half_life)
            if moments:
                names = classes_of(vector) if classes and vector is not None else None
                if names is not None:
                    require_several(names)
                policy = "pairwise" if missing else None
                of_all = Moments(degree=degree, missing=policy, classes=names, half_life=half_life)
                members["moments"] = of_all if folds is None else summaries.Folds(of_all, folds, seed=seed)
            if top_values is not None:
                top = summaries.TopValues(top_values)
                known = classes_of(vector) if batches is not None and vector is not None else ()
                members["top-values"] = summaries.Groups(top, known) if len(known) > 1 else top
            if sample is not None:
                members["sample"] = summaries.RowSample(sample, seed=seed)
            summary = summarize_source(rows, Bundle(members), passes).value
        if n_dropped := max(dropped_rows, default=0):
            confirm = require_few_dropped(
                matrix.address, n_dropped, matrix.shape[0], config.input.max_dropped, "--max-dropped "
            )
            progress.note(f"note: {confirm}")
    save(summary, output)
    lines = [f"{_sentence(summary, output)}, {output.stat().st_size} bytes"]
    if selector is not None:
        kinds = ", ".join(member.kind for member in summary.values()) if isinstance(summary, Bundle) else summary.kind
        by = f" of rows prepared with {', '.join(summary.prepare)}" if summary.prepare else ""
        sets = "".join(f" --set {shlex.quote(item)}" for item in settings or ())
        select = f"sketchselect select {output} --method {method}{sets}"
        lines.append(f"it holds what {method} needs, {kinds}{by}; next:  {select}")
    return Outcome("\n".join(lines), _facts(summary, output))


def _is_fitted_from_draws(step: Step) -> bool:
    """Return whether a step is fitted from rows that are drawn by their numbers, as medians are."""
    from sketchselect.summaries import KINDS

    return step.needs is not None and KINDS[step.needs.kind](**step.needs.parameters).keyed_by_rows


def _selector(
    method: str, named: Mapping[str, tuple[str, Any]], others: list[str], settings: Sequence[str]
) -> BaseSelector:
    """Return the method of ``--for`` with the options that are its parameters; refuse other options."""
    from sketchselect.errors import BadParameter, ConfigError
    from sketchselect.job.load import make_selector, method_parameters, selector_problem
    from sketchselect.selectors.registry import require_known
    from sketchselect.workflow.summary_files import named_settings

    try:
        require_known(method, ())
        parameters = method_parameters(method)
        given_options = {option: (name, value) for option, (name, value) in named.items() if value is not None}
        if unknown := [option for option, (name, _) in given_options.items() if name not in parameters] + others:
            raise ConfigError(f"{', '.join(unknown)}: not for {method}, which --for names; leave it out")
        values = named_settings(settings, method, given_options)
        if problem := selector_problem(method, values):
            raise ConfigError(f"--for {method}: {problem}")
        return make_selector(method, None, values)
    except BadParameter as error:
        raise ConfigError(f"--for: {error}") from None


def _job(
    source: str,
    inputs: Mapping[str, Any],
    prepare: Mapping[str, Any],
    execution: Mapping[str, Any],
    **sections: Mapping[str, Any],
) -> JobConfig:
    """Return options of the command line as a checked job, so that mistakes get the job file's messages."""
    from sketchselect.job.load import load_job
    from sketchselect.selectors.sketched import VarianceSelector

    return load_job(
        {
            "input": {"url": source, **{k: v for k, v in inputs.items() if v is not None}},
            "prepare": prepare,
            "select": {"method": VarianceSelector.method},  # unused: these commands select nothing
            "execution": {k: v for k, v in execution.items() if v is not None},
            **sections,
        }
    )


def _sentence(summary: Any, path: Path) -> str:
    return f"{path}: summary of {table_size(summary.n_rows, summary.n_features)}"


def _facts(summary: Any, path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    return {"file": str(path), "n_rows": summary.n_rows, "n_features": summary.n_features, "nbytes": size}


@command
def merge(
    files: Annotated[list[Path], typer.Argument(help="Two or more summary files of different rows.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The summary file to write (.sks).")],
) -> Outcome:
    """Merge summary files of different rows, in the given order, into one."""
    from sketchselect.workflow.summary_files import merge_files

    summary, notes = merge_files(files, output)
    text = f"{_sentence(summary, output)} from {counted(len(files), 'file')}"
    return Outcome("\n".join([text, *notes]), {**_facts(summary, output), "notes": notes})


@command
def select(
    file: Annotated[Path, typer.Argument(help="A summary file (.sks).")],
    method: Annotated[str, typer.Option("--method", help="Selection method, such as greedy.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The selection file to write (.json).")],
    features: Annotated[
        int | None, typer.Option("--n-features", min=1, help="Number of columns; some methods choose it themselves.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option("--model", help="File for the fitted model (.json), for methods with a target.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the method, such as alpha=paper."),
    ] = None,
) -> Outcome:
    """Select columns from a summary file, without the data."""
    from sketchselect.workflow.summary_files import select_from_file

    selection, lines = select_from_file(file, output, method, features, settings or [], model)
    return Outcome(f"{output}: " + "\n".join(lines), {"file": str(output), **selection.to_dict()})


@command
def cluster(
    source: Annotated[str, typer.Argument(help="A path or URL of a matrix.")],
    selection: Annotated[Path, typer.Option("--selection", help="The selection file of `sketchselect select`.")],
    clusters: Annotated[int, typer.Option("--n-clusters", min=1, help="Number of clusters.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FOLDER", help="Folder.")],
    prepare: Annotated[
        list[str] | None,
        typer.Option(
            "--prepare", metavar="STEP", help="A prepare step; by default those of the selection.", callback=steps_named
        ),
    ] = None,
    fitted: Fitted = None,
    key: Key = None,
    labels: Annotated[str | None, typer.Option("--labels", help="Known labels to compare with.")] = None,
    random_state: Annotated[int, typer.Option("--random-state", min=0, help="Seed.")] = 0,
    weighted: Annotated[
        str,
        typer.Option("--weighted", metavar="true|false|both", help="Multiply the columns by the selection's weights."),
    ] = "false",
    metric: Annotated[
        str,
        typer.Option(
            "--metric", metavar="euclidean|least-squares", help="Distances: of the columns, or of their predictions."
        ),
    ] = "euclidean",
    where: OpenCluster = None,
    workers: Workers = None,
    fresh: Fresh = False,
    storage: StorageOptions = None,
) -> Outcome:
    """Cluster the rows of a matrix on selected columns."""
    from sketchselect.errors import ConfigError, warn
    from sketchselect.job.load import storage_options
    from sketchselect.workflow.job import run_config
    from sketchselect.workflow.stages.columns import STEPS_FILE
    from sketchselect.workflow.tables import read_selection

    selection_read, statistics = read_selection(selection), selection.parent / STEPS_FILE
    if selection_read.support.size == 0:
        raise ConfigError(f"{selection}: no columns are selected, so that there is nothing to cluster by")
    steps = list(selection_read.prepare if prepare is None else prepare)
    # Steps fitted to all rows (their labels have a #) need the statistics in the folder of the selection's run.
    if fitted is None and prepare is None and statistics.exists() and any("#" in label for label in steps):
        fitted = str(statistics)
    fitted_before = {label.partition("#")[0] for label in selection_read.prepare if "#" in label}
    if fitted is None and (own := [repr(step) for step in steps if step in fitted_before]):
        warn(
            f"{selection}: {', '.join(own)} of the selection had statistics of other rows, and here those of {source}, "
            "so that centres are in other units: to have the same, give --fitted"
        )
    config = _job(
        source,
        {"key": key, "labels": labels, "storage_options": storage_options(storage)},
        {"steps": steps, "fitted": fitted},
        {"cluster": where, "n_workers": workers},
        cluster={
            "n_clusters": clusters,
            "random_state": random_state,
            "weighted": {"true": True, "false": False}.get(weighted, weighted),
            "metric": metric,
        },
        output={"dir": str(output)},
    )
    result = run_config(config, selection_read, fresh=fresh, progress=True)
    return Outcome(result.summary(), result.manifest)


@command
def inspect(
    target: Annotated[str, typer.Argument(help="A summary file, a selection, an output folder, or a matrix.")],
    key: Key = None,
    storage: StorageOptions = None,
) -> Outcome:
    """Describe a summary file, a selection, an output folder or a matrix."""
    from sketchselect.job.load import storage_options
    from sketchselect.workflow.inspection import inspect_target

    return Outcome(*inspect_target(target, {"key": key, "storage_options": storage_options(storage)}))


@command
def convert(
    source: Annotated[
        str, typer.Argument(help="A .npy, .npz, .csv, .mtx, svmlight, Parquet or .h5ad file, or a store.")
    ],
    destination: Annotated[str, typer.Argument(help="The Zarr store to write, a path or URL.")],
    chunks: Annotated[
        str | None, typer.Option("--chunks", metavar="ROWSxCOLUMNS", help="For example 1000x784.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", help="Name of the array inside the store; of a text file -NAME,NAME: no features."),
    ] = None,
    feature_names: FeatureNames = None,
    decimal: Annotated[
        str, typer.Option("--decimal", metavar="SIGN", help="Sign before decimals of a text file: point or comma.")
    ] = ".",
    storage: StorageOptions = None,
) -> Outcome:
    """Convert a matrix to a Zarr store with checksums. Its chunks suit reading by rows."""
    import re
    import time

    from sketchselect.errors import ConfigError
    from sketchselect.execution import make_progress
    from sketchselect.job.load import storage_options
    from sketchselect.location import locate
    from sketchselect.readers import convert, open_matrix
    from sketchselect.readers.opening import is_converted_table, obs_columns

    shape = None
    if chunks is not None:
        match = re.fullmatch(r"([1-9][0-9]*)x([1-9][0-9]*)", chunks)
        if match is None:
            raise ConfigError(f"--chunks {chunks}: expected ROWSxCOLUMNS, for example 1000x784")
        shape = int(match[1]), int(match[2])
    progress, last = make_progress(True), time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= 2:
            last = time.monotonic()
            progress.note(f"convert: {done} of {total} rows ({done / max(total, 1):.0%})")

    options = storage_options(storage)
    path = convert(
        source,
        destination,
        chunks=shape,
        key=key,
        feature_names=feature_names,
        decimal=decimal,
        storage_options=options,
        progress=report,
    )
    matrix = open_matrix(path, storage_options=options if isinstance(path, str) else None)
    data = {"store": str(path), "shape": list(matrix.shape), "dtype": str(matrix.dtype)}
    place = locate(str(path), options if isinstance(path, str) else None)
    size = f"{matrix.shape[0]} x {matrix.shape[1]} {matrix.dtype}"
    if texts := obs_columns(place, None) if is_converted_table(place) else None:
        size = (
            f"{counted(matrix.shape[0], 'row')}, {counted(matrix.shape[1], 'column')} of numbers ({matrix.dtype}) and "
        )
        size += f"{len(texts)} of text"
    return Outcome(f"{path}: {size}", data)


@command
def assign(
    target: Annotated[Path, typer.Argument(help="The output folder of a run, or the assign.json in it.")],
    source: Annotated[str, typer.Argument(help="A path or URL of a matrix with the columns that the run's had.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write (.csv).")],
    key: Key = None,
    row_names: Annotated[
        str | None, typer.Option("--row-names", help="A file, or a column of the source, with a name for every row.")
    ] = None,
    max_dropped: MaxDropped = 0.2,
    where: Cluster = "threads",
    storage: StorageOptions = None,
) -> Outcome:
    """Assign new rows to the clusters of a run, and predict with its model. Columns and prepare steps are the run's."""
    import numpy as np

    from sketchselect.errors import NotFinite
    from sketchselect.execution import PassOptions, Source, fit_steps, make_progress, reduce_blocks
    from sketchselect.execution.tasks import Reduction
    from sketchselect.job.load import storage_options
    from sketchselect.job.schema import ExecutionSettings
    from sketchselect.location import write_atomically
    from sketchselect.prepare import FILLING_STEP, encodings, resolve
    from sketchselect.readers import open_matrix
    from sketchselect.readers.base import require_few_dropped
    from sketchselect.workflow import assignment
    from sketchselect.workflow.session import engine_for
    from sketchselect.workflow.stages.model import rates_in_words
    from sketchselect.workflow.summary_files import require_replaceable
    from sketchselect.workflow.tables import csv_text

    options = storage_options(storage)
    rules = assignment.read_assignment(target)
    no_features, left_out = rules["no_features"], list[str]()
    if key is None:
        key, no_features, left_out = assignment.columns_to_read(source, rules, options)
    vectors = (*no_features, row_names or rules.get("row_names"))
    entries = resolve(rules["prepare"])
    inputs: dict[str, Any] = {"key": key, "storage_options": options, "nonfinite": rules["nonfinite"]}
    matrix = open_matrix(source, **inputs, vectors=vectors, encode=encodings(entries))
    names, title = assignment.names_of_rows(matrix, row_names, rules, options)
    header = assignment.assigned_header(rules, title)
    require_replaceable(output, ".csv", csv_text([header]).encode(), b"row,", source=source)
    matrix, notes, absent = assignment.columns_of_run(matrix, rules, entries)
    notes = [*left_out, *notes]
    assignment.require_kinds_of_run(matrix, rules)
    model, centers, weights = rules["model"], rules["centers"], rules["weights"]
    leaf = assignment.AssignBlock(
        tuple(rules["support"]),
        rules["dtype"],
        None if weights is None else np.array(weights),
        None if centers is None else np.array(centers),
        model,
    )
    n_outputs = 0 if model is None else len(model["intercepts"])
    progress = make_progress(True)
    with engine_for(ExecutionSettings(cluster=where), progress=progress) as engine:
        passes = PassOptions(engine, progress=progress)
        plain = Source(matrix, prepare=entries, takes_missing=rules["nonfinite"] == "missing")
        steps = fit_steps(plain, passes, statistics=rules["statistics"]).steps
        notes += assignment.unneeded(matrix, rules, steps, absent)
        rows = Source(matrix, prepare=steps, takes_missing=plain.takes_missing, takes_sparse=True, counts="replaced")
        state = matrix.shape[0] * (4 + 8 * n_outputs)
        try:
            result = reduce_blocks(
                rows, Reduction(leaf, assignment.Assigned.followed_by, "assign", state_nbytes=state), passes
            )
        except NotFinite as error:
            place, given, _ = str(error).partition("; clean the data")
            cure = f"; leave such rows out, or run again with {FILLING_STEP}, which then fills new rows too"
            raise (NotFinite(place + cure) if given else error) from error
    if result.stats.rows_dropped:
        shape, confirm = matrix.shape, "--max-dropped "
        notes += [require_few_dropped(matrix.address, result.stats.rows_dropped, shape[0], max_dropped, confirm)]
    notes += assignment.replaced_in_words(result.value.replaced, steps, matrix, absent)
    write_atomically(output, assignment.assigned_csv(result.value, model, header, names, matrix.shape[0]))
    outputs = [f"assigned to {counted(len(centers), 'cluster')}"] if centers is not None else []
    outputs += [f"with predictions of {', '.join(assignment.prediction_names(model))}"] if model is not None else []
    if model is not None and (rates := model.get("misclassification")) is not None:
        notes = [f"note: {rates_in_words(rates)}, of the run's model", *notes]
    n_rows = matrix.shape[0]
    data = {"file": str(output), "n_rows": n_rows, "n_dropped": result.stats.rows_dropped, "notes": notes}
    return Outcome("\n".join([f"{output}: {counted(n_rows, 'row')}, {' and '.join(outputs)}", *notes]), data)


@command
def drift(
    base: Annotated[Path, typer.Argument(help="The summary file of earlier rows (.sks).")],
    today: Annotated[list[Path], typer.Argument(help="Summary files of new rows (.sks), such as one for each day.")],
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold",
            metavar="SHARE",
            help="Share, from 0 to 1, above which the exit code is 3; by default from BASE, as is one for the mean.",
        ),
    ] = None,
    figure: Annotated[
        Path | None, typer.Option("--figure", metavar="FILE", help="Draw the shares and their thresholds (.svg).")
    ] = None,
) -> Outcome:
    """Measure how much of new rows lies outside the directions of earlier ones. Exit code 3 is an alarm."""
    from sketchselect.errors import SketchSelectError
    from sketchselect.location import write_atomically
    from sketchselect.summaries import drift as measure
    from sketchselect.summaries import load
    from sketchselect.workflow.summary_files import require_replaceable

    if figure is not None:
        require_replaceable(figure, ".svg", b"<svg ", option="--figure")
    earlier, days = load(base), []
    for file in today:
        new = load(file)
        try:
            days.append(measure(earlier, new, threshold=threshold))
        except SketchSelectError as error:
            raise type(error)(f"{base}, {file}: {error}") from None
    data = [{"file": str(file), **day.to_dict()} for file, day in zip(today, days, strict=True)]
    if figure is not None:
        from sketchselect.report.page import drift_figure

        write_atomically(figure, drift_figure([file.stem for file in today], data).encode())
    alarms = sum(day.exceeded for day in days)
    lines = [
        f"{'DRIFT' if day.exceeded else 'no drift'}: {f'{file}: ' if len(days) > 1 else ''}{day.sentence()}"
        for file, day in zip(today, days, strict=True)
    ]
    facts = data[0] if len(days) == 1 else {"exceeded": alarms > 0, "days": data}
    return Outcome("\n".join(lines), {"base": str(base), **facts}, alarms == 0, 3)
