"""Commands for the author of a job file; heavy imports are inside the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sketchselect.cli.options import Debug, Key
from sketchselect.cli.shell import plain_errors


def init(
    source: Annotated[str, typer.Argument(help="A path or URL of a matrix.", metavar="SOURCE")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The job file to write.")] = Path("job.toml"),
    key: Key = None,
    debug: Debug = False,
) -> None:
    """Look at a matrix and write a first job file for it, with comments."""
    with plain_errors(debug):
        from sketchselect.workflow.commands.authoring import write_first_job

        typer.echo(write_first_job(source, output, key))
        typer.echo(f"{output} written; read it, then:  sketchselect run {output}")


def methods(
    name: Annotated[str | None, typer.Argument(help="A method; all in short without it.", metavar="[NAME]")] = None,
    debug: Debug = False,
) -> None:
    """List the methods of selection, or describe one: what it does, guarantees, takes and costs."""
    with plain_errors(debug):
        from sketchselect.workflow.commands.authoring import describe_method, list_methods

        for line in list_methods() if name is None else [describe_method(name)]:
            typer.echo(line)


def schema(debug: Debug = False) -> None:
    """Print the JSON schema of a job file, for editors that check and complete as one types."""
    with plain_errors(debug):
        import json

        from sketchselect.workflow.commands.authoring import job_schema

        typer.echo(json.dumps(job_schema(), indent=1))
