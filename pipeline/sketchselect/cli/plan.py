"""The command that says what a job will take, before it is run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sketchselect.cli.options import Debug, Sets, Workers, app
from sketchselect.cli.shell import plain_errors


@app.command()
def plan(
    job: Annotated[Path, typer.Argument(help="A job file, TOML or YAML.")],
    workers: Workers = None,
    cluster: Annotated[str | None, typer.Option("--cluster", help="Instead of the job's execution.cluster.")] = None,
    settings: Sets = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON, for schedulers.")] = False,
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="Print a patch for deploy/kubernetes/job/overlays/planned.")
    ] = False,
    calibrate: Annotated[
        bool, typer.Option("--calibrate/--no-calibrate", help="Time a partition of every pass, for about 10 s at most.")
    ] = True,
    debug: Debug = False,
) -> None:
    """Say what a job will read, compute, hold and send, and where it will not scale. No cluster, nothing written."""
    with plain_errors(debug):
        import json

        from sketchselect.errors import BadParameter
        from sketchselect.workflow.forecast.forecast import plan_job

        if as_json and kubernetes:
            raise BadParameter("--json and --kubernetes are two forms of one answer; give one of them")
        overrides = [*(settings or []), *([f'execution.cluster="{cluster}"'] if cluster else [])]
        found = plan_job(job, overrides=overrides, n_workers=workers, calibrate=calibrate)
        if kubernetes:
            typer.echo(found.kubernetes_patch(), nl=False)
        else:
            typer.echo(json.dumps(found.to_dict(), indent=1) if as_json else found.text())
