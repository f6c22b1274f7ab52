"""Command `plan`: the cost of a job, forecast before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sketchselect.cli.options import JobCluster, Sets, StorageOptions, Workers
from sketchselect.cli.shell import command
from sketchselect.workflow.commands.outcome import Outcome


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
    from sketchselect.workflow.forecast.forecast import forecast_job

    overrides = with_storage(with_cluster(settings or (), cluster), storage)
    forecast = forecast_job(job, overrides=overrides, n_workers=workers, calibrate=calibrate, price=price)
    if kubernetes:
        patch = forecast.kubernetes_patch().rstrip("\n")
        return Outcome(patch, {"patch": patch})
    return Outcome(forecast.text(), forecast.to_dict())
