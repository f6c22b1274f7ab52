"""Command `certify`: a bound on the distance of a clustering from the best possible one."""

from __future__ import annotations

from typing import Annotated

import typer

from sketchselect.cli.options import CLUSTER_HELP, Key, MaxDropped, Prepare, StorageOptions, Workers
from sketchselect.cli.shell import command
from sketchselect.workflow.commands.outcome import Outcome


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
