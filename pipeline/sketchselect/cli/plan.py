"""Command `plan`: the cost of a job, forecast before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sketchselect.cli.options import Debug, JobCluster, Sets, Workers
from sketchselect.cli.shell import plain_errors


def plan(
    job: Annotated[Path, typer.Argument(help="A job file, TOML or YAML.")],
    workers: Workers = None,
    cluster: JobCluster = None,
    settings: Sets = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON, for schedulers.")] = False,
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="Print a patch for deploy/kubernetes/job/overlays/planned.")
    ] = False,
    calibrate: Annotated[
        bool, typer.Option("--calibrate/--no-calibrate", help="Time one partition of every pass, about 10 s at most.")
    ] = True,
    debug: Debug = False,
) -> None:
    """Forecast the passes, memory, traffic and time of a job. Nothing is written, and no cluster started."""
    with plain_errors(debug):
        import json

        from sketchselect.errors import BadParameter
        from sketchselect.job.load import with_cluster
        from sketchselect.workflow.forecast.forecast import forecast_job

        if as_json and kubernetes:
            raise BadParameter("--json and --kubernetes cannot be combined")
        overrides = with_cluster(settings or (), cluster)
        forecast = forecast_job(job, overrides=overrides, n_workers=workers, calibrate=calibrate)
        if kubernetes:
            typer.echo(forecast.kubernetes_patch(), nl=False)
        else:
            typer.echo(json.dumps(forecast.to_dict(), indent=1) if as_json else forecast.text())
