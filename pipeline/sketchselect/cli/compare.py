"""Command `compare`: methods, or finished runs, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sketchselect.cli.options import Debug, Sets
from sketchselect.cli.shell import plain_errors


def compare(
    targets: Annotated[list[str], typer.Argument(help="Output folders of runs, or job files.", metavar="JOB...")],
    methods: Annotated[
        str | None, typer.Option("--methods", help="Run one job with each of these methods, such as greedy,variance.")
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write the table here.")] = None,
    page: Annotated[Path | None, typer.Option("--page", help="Write the table here as a web page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    settings: Sets = None,
    debug: Debug = False,
) -> None:
    """Show methods side by side: objective, certificate, agreement with labels, stability, overlap, time."""
    with plain_errors(debug):
        from sketchselect.errors import ConfigError
        from sketchselect.location import write_atomically
        from sketchselect.workflow.commands import compare as command

        if methods is None:
            compared = command.compare_runs(targets, progress=not as_json)
        elif len(targets) > 1:
            raise ConfigError("--methods: of one job file; leave the others out")
        else:
            names = [name.strip() for name in methods.split(",")]
            compared = command.compare_methods(targets[0], names, settings or (), progress=not as_json)
        for path, text in ((csv, command.to_csv), (page, command.to_html)):
            if path is not None:
                write_atomically(path, text(compared).encode())
        typer.echo(command.to_json(compared) if as_json else command.to_text(compared))
