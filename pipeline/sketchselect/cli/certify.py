"""Commands on clusterings: certificates, verification, comparison, agreement with labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sketchselect.cli.shell import (
    CLUSTER_HELP,
    Fitted,
    Key,
    MaxDropped,
    OpenCluster,
    Outcome,
    Prepare,
    Sets,
    StorageOptions,
    Workers,
    command,
)

if TYPE_CHECKING:
    from sketchselect.cluster import Certificate


@command
def certify(
    target: Annotated[str, typer.Argument(help="The output folder of a run, a matrix, or a summary file (.sks).")],
    clusters: Annotated[int | None, typer.Option("--n-clusters", min=1, help="Number of clusters.")] = None,
    labels: Annotated[
        str | None, typer.Option("--labels", help="The cluster of each row: a file, or an array in the store.")
    ] = None,
    inertia: Annotated[
        float | None,
        typer.Option(
            "--inertia", metavar="SUM", min=0, help="Sum of squared distances of the clustering, instead of labels."
        ),
    ] = None,
    weight: Annotated[
        str | None, typer.Option("--weight", help="Weight of each row: a file, or an array in the store.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="spectral|blocks",
            help="Blocks take seconds for every 400 rows; by default the closer of both.",
        ),
    ] = None,
    block_rows: Annotated[
        int | None, typer.Option("--block-rows", min=2, help="Rows in a block (400): larger is tighter and slower.")
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(
            "--confidence",
            metavar="P",
            help="Solve a quarter of the blocks, faster; the bound then holds with this probability.",
        ),
    ] = None,
    fraction: Annotated[
        float | None, typer.Option("--fraction", help="Share of the blocks in the sample; a quarter by default.")
    ] = None,
    random_state: Annotated[int | None, typer.Option("--random-state", min=0, help="Seed of the blocks.")] = None,
    prepare: Prepare = None,
    fitted: Fitted = None,
    key: Key = None,
    nonfinite: Annotated[
        str | None, typer.Option("--nonfinite", metavar="error|drop_rows", help="Rows with NaN.")
    ] = None,
    max_dropped: MaxDropped = 0.2,
    cluster: OpenCluster = None,
    workers: Workers = None,
    storage: StorageOptions = None,
) -> Outcome:
    """Prove how far a clustering, of a run or of any labels, can be from the best possible one."""
    from dataclasses import replace
    from functools import partial

    from sketchselect._progress import give_detail
    from sketchselect.cluster import certify as certify_rows
    from sketchselect.cluster import certify_labels
    from sketchselect.errors import ConfigError
    from sketchselect.execution import LocalEngine, PassOptions, Source, fit_steps, make_progress
    from sketchselect.job.load import storage_options
    from sketchselect.job.schema import ExecutionSettings
    from sketchselect.prepare import encodings, resolve
    from sketchselect.readers import open_matrix, open_vector
    from sketchselect.readers.base import require_few_dropped
    from sketchselect.summaries import load
    from sketchselect.workflow.folder import MARKER
    from sketchselect.workflow.session import ON_THREADS, engine_for, settled
    from sketchselect.workflow.verify import certify_folder, certify_summary, refuse

    prepare, path = prepare or None, Path(target)
    bound = _given_options(
        method=method, block_rows=block_rows, confidence=confidence, fraction=fraction, random_state=random_state
    )
    inputs = _given_options(key=key, nonfinite=nonfinite, storage_options=storage_options(storage))
    runs_on = _given_options(cluster=cluster, n_workers=workers)
    if (path / MARKER).is_file():
        options = inputs.pop("storage_options", None)
        of_runs: dict[str, Any] = {
            "--n-clusters": clusters,
            "--labels": labels,
            "--inertia": inertia,
            "--weight": weight,
        }
        of_runs |= {"--prepare": prepare, "--fitted": fitted, **{f"--{name}": value for name, value in inputs.items()}}
        refuse("a run's folder has its own", of_runs)
        return _outcome(certify_folder(path, bound, runs_on, options, progress=True))
    if clusters is None:
        raise ConfigError("--n-clusters: missing; say how many clusters the clustering has")
    if path.suffix == ".sks":
        rows = {"--labels": labels, "--weight": weight, "--fitted": fitted} | {f"--{n}": v for n, v in inputs.items()}
        refuse("a summary file holds no rows", rows)
        if inertia is None:
            raise ConfigError("--inertia: missing; a summary file holds no labels (kmeans_objective in Python sums it)")
        return _outcome(certify_summary(path, bound, clusters, inertia, prepare))
    if (labels is None) == (inertia is None):
        raise ConfigError("give either --labels (each row's cluster) or --inertia (what the clustering costs)")
    encode = encodings(resolve(prepare))
    matrix = open_matrix(target, **inputs, vectors={"labels": labels, "sample_weight": weight}, encode=encode)
    vector = partial(open_vector, n_rows=matrix.shape[0], matrix=matrix, storage_options=inputs.get("storage_options"))
    weights = None if weight is None else vector(weight, name="sample_weight")
    progress, asked = make_progress(True), ExecutionSettings(**runs_on)
    steps = resolve(prepare)
    if fitted is not None:
        unfitted, serial = Source(matrix, prepare=steps), PassOptions(LocalEngine(kind="serial"))
        steps = fit_steps(unfitted, serial, statistics=load(fitted)).steps
    if (execution := settled(asked, Source(matrix, None, weights, steps))) is not asked:
        give_detail(progress, ON_THREADS)
    with engine_for(execution, progress=progress) as engine:
        common = {"sample_weight": weights, "prepare": steps, "client": engine, "progress": progress, **bound}
        if labels is not None:
            certificate = certify_labels(matrix, vector(labels, name="labels"), clusters, **common)
        else:
            assert inertia is not None
            certificate = certify_rows(matrix, inertia, clusters, **common)
    n_rows = matrix.shape[0]
    if n_dropped := n_rows - int(certificate.details["n_rows"]):
        dropped_note = require_few_dropped(matrix.address, n_dropped, n_rows, max_dropped, "--max-dropped ")
        certificate = replace(certificate, note=f"{certificate.note} {dropped_note}.".lstrip())
    return _outcome(certificate)


def _given_options(**options: Any) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def _outcome(certificate: Certificate) -> Outcome:
    """Return a certificate as text: the sentence, and its cost."""
    from sketchselect._byte_sizes import format_bytes
    from sketchselect._text import format_seconds

    size = format_bytes(certificate.bytes_read)
    reading = f", {certificate.rows_read:,} rows ({size}) read" if certificate.rows_read else ""
    text = f"{certificate.sentence()}\ncost: {format_seconds(certificate.cost)}{reading}"
    return Outcome(text, certificate.to_dict())


@command
def verify(
    target: Annotated[str, typer.Argument(help="The output folder of a run, or a store that convert wrote.")],
    cluster: Annotated[str | None, typer.Option("--scheduler", metavar="CLUSTER", help=CLUSTER_HELP)] = None,
    workers: Workers = None,
    storage: StorageOptions = None,
    seal: Annotated[bool, typer.Option("--seal", help="Of a converted store: take in rows appended to it.")] = False,
) -> Outcome:
    """Read a finished run, or a converted store, again. A line for each result says whether it holds."""
    from dataclasses import asdict

    from sketchselect.errors import ConfigError
    from sketchselect.job.load import storage_options
    from sketchselect.location import is_url
    from sketchselect.workflow.verify import verify_run, verify_store

    runs_on, options = _given_options(cluster=cluster, n_workers=workers), storage_options(storage)
    is_store = is_url(target) or (Path(target) / "zarr.json").is_file()
    checks = verify_store(target, options, seals=seal) if is_store else None
    if checks is None:
        if seal and not (is_url(target) or Path(target).exists()):
            raise ConfigError(f"{target}: no such store; --seal takes rows in that were appended to one")
        if seal:
            raise ConfigError(f"--seal: {target} is no converted store; leave it out")
        checks = verify_run(Path(target), execution=runs_on, storage_options=options, progress=True)
    holds = all(check.holds is not False for check in checks)
    text = "\n".join(check.line() for check in checks)
    return Outcome(text, {"holds": holds, "checks": [asdict(check) for check in checks]}, holds)


@command
def compare(
    targets: Annotated[list[str], typer.Argument(help="Output folders of runs, or job files.", metavar="JOB...")],
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods", metavar="NAME,NAME", help="Run one job with each of these methods, such as greedy,variance."
        ),
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write the table here.")] = None,
    settings: Sets = None,
    storage: StorageOptions = None,
) -> Outcome:
    """Compare methods in a table: inertia, certificate, agreement with labels, stability, overlap, time."""
    from dataclasses import asdict

    from sketchselect.errors import ConfigError
    from sketchselect.job.load import with_storage
    from sketchselect.location import write_atomically
    from sketchselect.workflow import compare as table
    from sketchselect.workflow.summary_files import require_replaceable

    if csv is not None:
        require_replaceable(csv, ".csv", b"name,method,", option="--csv")
    overrides = with_storage(settings or (), storage)
    if methods is None:
        runs = table.compare_runs(targets, overrides, progress=True)
    elif len(targets) > 1:
        raise ConfigError("--methods: takes one job file; leave the others out")
    else:
        names = [name.strip() for name in methods.split(",")]
        runs = table.compare_methods(targets[0], names, overrides, progress=True)
    if csv is not None:
        write_atomically(csv, table.to_csv(runs).encode())
    data = {"compared": [asdict(each) for each in runs], "overlap": table.overlap(runs)}
    return Outcome(
        table.to_text(runs), {**data, "same_source": table.same_source(runs), "ranking": table.ranking(runs) or None}
    )


@command
def evaluate(
    target: Annotated[str, typer.Argument(help="The output folder of a run, or the cluster of each row.")],
    labels: Annotated[
        str | None, typer.Option("--labels", help="Known labels: a file, or an array in a store; by default the job's.")
    ] = None,
    storage: StorageOptions = None,
) -> Outcome:
    """Compare clusters with known labels: NMI, ARI, accuracy, purity. Accuracy is of the best matching."""
    from sketchselect.job.load import storage_options
    from sketchselect.workflow.agreement import evaluate_target

    agreement = evaluate_target(target, labels, storage_options(storage))
    return Outcome(agreement.to_text(), agreement.to_dict())
