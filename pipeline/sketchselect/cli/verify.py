"""Command `verify`: what of a finished run still holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sketchselect.cli.options import CLUSTER_HELP, StorageOptions, Workers
from sketchselect.cli.shell import command
from sketchselect.workflow.commands.outcome import Outcome


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
