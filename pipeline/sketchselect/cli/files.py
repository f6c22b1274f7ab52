"""Commands on sources, summaries and selections; heavy imports are inside the commands.

Command `assign`: new rows, by what a finished run left.

Commands for the author of a job file; heavy imports are inside the commands.

Command `plan`: the cost of a job, forecast before it runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sketchselect.cli.shell import (
    Cluster,
    Fitted,
    Fresh,
    JobCluster,
    Key,
    MaxDropped,
    Partition,
    Prepare,
    Sets,
    StorageOptions,
    Workers,
    command,
)
from sketchselect.workflow.commands import Outcome


@command
def summarize(
    source: Annotated[str, typer.Argument(help="A path or URL of a matrix.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The summary file to write (.sks).")],
    size: Annotated[int, typer.Option("--size", min=2, help="Rows of the sketch.")] = 64,
    sketch: Annotated[bool, typer.Option("--sketch/--no-sketch", help="Whether to keep a sketch.")] = True,
    moments: Annotated[bool, typer.Option("--moments", help="Also keep exact means and covariances.")] = False,
    target: Annotated[
        str | None,
        typer.Option("--target", help="Target of each row: a file, or an array in the store."),
    ] = None,
    classes: Annotated[bool, typer.Option("--classes", help="The target holds class labels, not numbers.")] = False,
    folds: Annotated[
        int | None, typer.Option("--folds", min=2, help="Number of folds; cross-validation then needs no further pass.")
    ] = None,
    random_state: Annotated[
        int, typer.Option("--random-state", min=0, help="Seed of the folds and of the sample.")
    ] = 0,
    half_life: Annotated[
        float | None,
        typer.Option("--half-life", metavar="ROWS", help="Number of rows after which the weight of a row has halved."),
    ] = None,
    after: Annotated[
        int,
        typer.Option("--after", min=0, help="With --half-life, --folds, --sample: number of rows in earlier files."),
    ] = 0,
    degree: Annotated[
        int, typer.Option("--degree", metavar="1|2", min=1, max=2, help="2: also squares and products of columns.")
    ] = 1,
    top_values: Annotated[
        int | None,
        typer.Option("--top-values", min=1, help="Largest values to keep of each column, for hvg (64)."),
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
        Path | None, typer.Option("--write-fitted", help="File for the statistics of prepare steps (.sks).")
    ] = None,
    key: Key = None,
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
    cluster: Cluster = "local",
    workers: Workers = None,
    storage: StorageOptions = None,
) -> Outcome:
    """Read a matrix once and write its summary. It holds column statistics, a sketch and moments."""
    from sketchselect.job.load import storage_options
    from sketchselect.workflow.commands.summaries import SummarizeOptions, summarize_to_file

    inputs = {"key": key, "nonfinite": nonfinite, "max_dropped": max_dropped, "missing_chunks": missing_chunks}
    return summarize_to_file(
        source,
        output,
        SummarizeOptions(
            *(size, sketch, moments, target, classes, folds, random_state),
            *(half_life, degree, top_values, batches, sample, after),
        ),
        prepare=prepare or [],
        fitted=fitted,
        write_fitted=write_fitted,
        checkpoint=checkpoint,
        options=inputs | {"storage_options": storage_options(storage)},
        execution={"cluster": cluster, "n_workers": workers, "partition_bytes": partition_bytes},
    )


@command
def merge(
    files: Annotated[list[Path], typer.Argument(help="Two or more summary files of different rows.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The summary file to write (.sks).")],
) -> Outcome:
    """Merge summary files of different rows, in the given order, into one."""
    from sketchselect.workflow.commands.summaries import merge_files

    return merge_files(files, output)


@command
def select(
    file: Annotated[Path, typer.Argument(help="A summary file (.sks).")],
    method: Annotated[str, typer.Option("--method", help="Selection method, such as sketched-ridge.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The selection file to write (.json).")],
    features: Annotated[
        int | None,
        typer.Option("--n-features", min=1, help="Number of columns; some methods choose it themselves."),
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
    from sketchselect.workflow.commands.summaries import select_from_file

    return select_from_file(file, output, method, features, settings or [], model)


@command
def cluster(
    source: Annotated[str, typer.Argument(help="A path or URL of a matrix.")],
    selection: Annotated[Path, typer.Option("--selection", help="The selection file of `sketchselect select`.")],
    clusters: Annotated[int, typer.Option("--n-clusters", min=1, help="Number of clusters.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FOLDER", help="Folder.")],
    prepare: Annotated[
        list[str] | None,
        typer.Option("--prepare", metavar="STEP", help="A prepare step; by default those of the selection."),
    ] = None,
    fitted: Fitted = None,
    key: Key = None,
    labels: Annotated[str | None, typer.Option("--labels", help="Known labels to compare with.")] = None,
    random_state: Annotated[int, typer.Option("--random-state", min=0, help="Seed.")] = 0,
    weighted: Annotated[
        str,
        typer.Option("--weighted", metavar="true|false|both", help="Multiply the columns by the selection's weights."),
    ] = "false",
    where: Cluster = "local",
    workers: Workers = None,
    fresh: Fresh = False,
    storage: StorageOptions = None,
) -> Outcome:
    """Cluster the rows of a matrix on selected columns."""
    from sketchselect.job.load import storage_options
    from sketchselect.workflow.commands.inspection import cluster_on_selection

    result = cluster_on_selection(
        source,
        selection,
        output,
        n_clusters=clusters,
        random_state=random_state,
        weighted={"true": True, "false": False}.get(weighted, weighted),
        prepare=prepare,
        fitted=fitted,
        options={"key": key, "labels": labels, "storage_options": storage_options(storage)},
        execution={"cluster": where, "n_workers": workers},
        fresh=fresh,
    )
    return Outcome(result.summary(), result.manifest)


@command
def inspect(
    target: Annotated[str, typer.Argument(help="A summary file, an output folder, or a matrix.")],
    key: Key = None,
    storage: StorageOptions = None,
) -> Outcome:
    """Describe a summary file, an output folder or a matrix."""
    from sketchselect.job.load import storage_options
    from sketchselect.workflow.commands.inspection import inspect_data, inspect_target

    options = {"key": key, "storage_options": storage_options(storage)}
    return Outcome(inspect_target(target, options), inspect_data(target, options))


@command
def convert(
    source: Annotated[
        str,
        typer.Argument(help="A .npy, .npz, .csv, .mtx, svmlight, Parquet or .h5ad file, or a store."),
    ],
    destination: Annotated[str, typer.Argument(help="The Zarr store to write, a path or URL.")],
    chunks: Annotated[
        str | None, typer.Option("--chunks", metavar="ROWSxCOLUMNS", help="For example 1000x784.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", help="Name of the array inside the store; of a text file -NAME,NAME: no features."),
    ] = None,
    storage: StorageOptions = None,
) -> Outcome:
    """Convert a matrix to a Zarr store with checksums. Its chunks suit reading by rows."""
    from sketchselect.job.load import storage_options
    from sketchselect.workflow.commands.inspection import convert_file

    return convert_file(source, destination, chunks, key, storage_options(storage))


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
    from sketchselect.job.load import storage_options
    from sketchselect.workflow.commands import assign as verb

    return verb.assign(
        target,
        source,
        output,
        key=key,
        row_names=row_names,
        max_dropped=max_dropped,
        cluster=where,
        storage_options=storage_options(storage),
        progress=True,
    )


@command
def init(
    source: Annotated[str, typer.Argument(help="A path or URL of a matrix.", metavar="SOURCE")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The job file to write.")] = Path("job.toml"),
    key: Key = None,
    storage: StorageOptions = None,
) -> Outcome:
    """Look at a matrix and write a first job file for it, with comments."""
    from sketchselect.job.load import storage_options
    from sketchselect.workflow.commands.authoring import write_first_job

    seen = write_first_job(source, output, key, storage_options(storage))
    text = f"{seen}\n{output} written; read it, then:  sketchselect run {output}"
    return Outcome(text, {"job": output, "source": seen})


@command
def methods(
    name: Annotated[str | None, typer.Argument(help="A method; all in short without it.", metavar="[NAME]")] = None,
) -> Outcome:
    """List the methods of selection, or describe one: what it does, guarantees, takes and costs."""
    from sketchselect.workflow.commands.authoring import describe_method, list_methods, method_facts

    if name is None:
        return Outcome(list_methods(), method_facts())
    text = describe_method(name)
    return Outcome(text, {**method_facts()[name], "description": text})


@command
def schema() -> Outcome:
    """Print the JSON schema of a job file, for editors that check and complete as one types."""
    import json

    from sketchselect.workflow.commands.authoring import job_schema

    return Outcome(json.dumps(job_schema(), indent=1), job_schema())


@command
def plan(
    job: Annotated[Path, typer.Argument(help="A job file, TOML or YAML; - is TOML from standard input.")],
    workers: Workers = None,
    cluster: JobCluster = None,
    settings: Sets = None,
    storage: StorageOptions = None,
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="Print a patch for deploy/kubernetes/job/overlays/planned.")
    ] = False,
    price: Annotated[
        float | None, typer.Option("--price", metavar="AMOUNT", min=0, help="Of a worker for an hour, in any currency.")
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate/--no-calibrate", help="Time one partition of every pass, about 10 s at most.")
    ] = True,
) -> Outcome:
    """Forecast the passes, memory, traffic and time of a job. Nothing is written, and no cluster started."""
    from sketchselect.job.load import with_cluster, with_storage
    from sketchselect.workflow.plan.forecast import forecast_job

    overrides = with_storage(with_cluster(settings or (), cluster), storage)
    forecast = forecast_job(job, overrides=overrides, n_workers=workers, calibrate=calibrate, price=price)
    if kubernetes:
        patch = forecast.kubernetes_patch().rstrip("\n")
        return Outcome(patch, {"patch": patch})
    return Outcome(forecast.text(), forecast.to_dict())
