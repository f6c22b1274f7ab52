"""Command `certify`: a bound on the distance of a clustering from the best possible one.

Command `verify`: what of a finished run still holds.

Command `compare`: methods, or finished runs, side by side.

Command `evaluate`: agreement of clusters with known labels.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sketchselect.cli.shell import CLUSTER_HELP, Key, MaxDropped, Prepare, Sets, StorageOptions, Workers, command
from sketchselect.workflow.commands import Outcome


@command
def certify(
    target: Annotated[str, typer.Argument(help="The output folder of a run, a matrix, or a summary file (.sks).")],
    clusters: Annotated[int | None, typer.Option("--n-clusters", min=1, help="Number of clusters.")] = None,
    labels: Annotated[
        str | None, typer.Option("--labels", help="The cluster of each row: a file, or an array in the store.")
    ] = None,
    objective: Annotated[
        float | None,
        typer.Option(
            "--objective", metavar="SUM", min=0, help="Sum of squared distances of the clustering, instead of labels."
        ),
    ] = None,
    weight: Annotated[
        str | None,
        typer.Option("--weight", help="Weight of each row: a file, or an array in the store."),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option("--method", metavar="spectral|blocks", help="Blocks are slower; the closer of both by default."),
    ] = None,
    block_rows: Annotated[
        int | None,
        typer.Option("--block-rows", min=2, help="Rows in a block (400): larger is tighter and slower."),
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(
            "--confidence",
            metavar="P",
            help="Solve a sample of the blocks; the bound then holds with this probability.",
        ),
    ] = None,
    fraction: Annotated[
        float | None, typer.Option("--fraction", help="Share of the blocks in the sample; a quarter by default.")
    ] = None,
    random_state: Annotated[int | None, typer.Option("--random-state", min=0, help="Seed of the blocks.")] = None,
    prepare: Prepare = None,
    key: Key = None,
    nonfinite: Annotated[
        str | None, typer.Option("--nonfinite", metavar="error|drop_rows", help="Rows with NaN.")
    ] = None,
    max_dropped: MaxDropped = 0.2,
    cluster: Annotated[
        str | None,
        typer.Option("--scheduler", metavar="CLUSTER", help=CLUSTER_HELP),
    ] = None,
    workers: Workers = None,
    storage: StorageOptions = None,
) -> Outcome:
    """Prove how far a clustering can be from the best possible one. It may be a run's, or any labels."""
    from sketchselect.job.load import storage_options
    from sketchselect.workflow.commands.certify import certify_target, to_text

    settings = {"method": method, "block_rows": block_rows, "confidence": confidence}
    certificate = certify_target(
        target,
        {**settings, "fraction": fraction, "random_state": random_state},
        clusters=clusters,
        labels=labels,
        objective=objective,
        weight=weight,
        prepare=prepare or None,
        options={"key": key, "nonfinite": nonfinite, "storage_options": storage_options(storage)},
        max_dropped=max_dropped,
        execution={"cluster": cluster, "n_workers": workers},
        progress=True,
    )
    return Outcome(to_text(certificate), certificate.to_dict())


@command
def verify(
    folder: Annotated[Path, typer.Argument(help="The output folder of a run.")],
    share: Annotated[
        float, typer.Option("--share", help="Share of the saved parts whose rows are read again; 1 reads all rows.")
    ] = 1.0,
    cluster: Annotated[str | None, typer.Option("--scheduler", metavar="CLUSTER", help=CLUSTER_HELP)] = None,
    workers: Workers = None,
    storage: StorageOptions = None,
) -> Outcome:
    """Read and compute a finished run again. One line says of each result whether it holds."""
    from dataclasses import asdict

    from sketchselect.job.load import storage_options
    from sketchselect.workflow.commands.verify import verify_run

    runs_on = {name: value for name, value in (("cluster", cluster), ("n_workers", workers)) if value is not None}
    options = storage_options(storage)
    checks = verify_run(folder, share=share, execution=runs_on, storage_options=options, progress=True)
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
    page: Annotated[Path | None, typer.Option("--page", help="Write the table here as a web page.")] = None,
    settings: Sets = None,
    storage: StorageOptions = None,
) -> Outcome:
    """Show methods side by side: objective, certificate, agreement with labels, stability, overlap, time."""
    from sketchselect.errors import ConfigError
    from sketchselect.job.load import with_storage
    from sketchselect.location import write_atomically
    from sketchselect.workflow.commands import compare as verb

    overrides = with_storage(settings or (), storage)
    if methods is None:
        compared = verb.compare_runs(targets, overrides, progress=True)
    elif len(targets) > 1:
        raise ConfigError("--methods: of one job file; leave the others out")
    else:
        names = [name.strip() for name in methods.split(",")]
        compared = verb.compare_methods(targets[0], names, overrides, progress=True)
    for path, text in ((csv, verb.to_csv), (page, verb.to_html)):
        if path is not None:
            write_atomically(path, text(compared).encode())
    return Outcome(verb.to_text(compared), verb.to_data(compared))


@command
def evaluate(
    target: Annotated[str, typer.Argument(help="The output folder of a run, or the cluster of each row.")],
    labels: Annotated[
        str | None,
        typer.Option("--labels", help="Known labels: a file, or an array in a store; by default the job's."),
    ] = None,
    storage: StorageOptions = None,
) -> Outcome:
    """Compare clusters with known labels: NMI, ARI, accuracy, purity. Accuracy is of the best matching."""
    from sketchselect.job.load import storage_options
    from sketchselect.workflow.stages.evaluation import evaluate_target

    agreement = evaluate_target(target, labels, storage_options(storage))
    return Outcome(agreement.to_text(), agreement.to_dict())
