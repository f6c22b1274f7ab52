"""Command `verify`: what of a finished run still holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sketchselect.cli.options import CLUSTER_HELP, Debug, Workers
from sketchselect.cli.shell import plain_errors


def verify(
    folder: Annotated[Path, typer.Argument(help="The output folder of a run.")],
    share: Annotated[
        float, typer.Option("--share", help="Share of the saved parts whose rows are read again; 1 reads all rows.")
    ] = 1.0,
    cluster: Annotated[str | None, typer.Option("--cluster", "--scheduler-file", help=CLUSTER_HELP)] = None,
    workers: Workers = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Read and compute a finished run again. One line says of each result whether it holds."""
    with plain_errors(debug):
        import json
        from dataclasses import asdict

        from sketchselect.workflow.commands.verify import verify_run

        runs_on = {name: value for name, value in (("cluster", cluster), ("n_workers", workers)) if value is not None}
        checks = verify_run(folder, share=share, execution=runs_on, progress=not as_json)
        holds = all(check.holds is not False for check in checks)
        if as_json:
            typer.echo(json.dumps({"holds": holds, "checks": [asdict(check) for check in checks]}, indent=1))
        else:
            typer.echo("\n".join(check.line() for check in checks))
    if not holds:
        raise typer.Exit(1)
