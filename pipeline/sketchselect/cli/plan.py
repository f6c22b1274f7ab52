"""Command `plan`: the cost of a job, forecast before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sketchselect.cli.options import JobCluster, Sets, Workers
from sketchselect.cli.shell import command
from sketchselect.workflow.commands.outcome import Outcome


@command
def plan(
    job: Annotated[Path, typer.Argument(help="A job file, TOML or YAML.")],
    workers: Workers = None,
    cluster: JobCluster = None,
    settings: Sets = None,
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="Print a patch for deploy/kubernetes/job/overlays/planned.")
    ] = False,
    calibrate: Annotated[
        bool, typer.Option("--calibrate/--no-calibrate", help="Time one partition of every pass, about 10 s at most.")
    ] = True,
) -> Outcome:
    """Forecast the passes, memory, traffic and time of a job. Nothing is written, and no cluster started."""
    from sketchselect.job.load import with_cluster
    from sketchselect.workflow.forecast.forecast import forecast_job

    overrides = with_cluster(settings or (), cluster)
    forecast = forecast_job(job, overrides=overrides, n_workers=workers, calibrate=calibrate)
    if kubernetes:
        patch = forecast.kubernetes_patch().rstrip("\n")
        return Outcome(patch, {"patch": patch})
    return Outcome(forecast.text(), forecast.to_dict())
