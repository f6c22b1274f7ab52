"""Commands for the author of a job file; heavy imports are inside the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sketchselect.cli.options import Key, StorageOptions
from sketchselect.cli.shell import command
from sketchselect.workflow.commands.outcome import Outcome


@command
def init(
    source: Annotated[str, typer.Argument(help="A path or URL of a matrix.", metavar="SOURCE")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The job file to write.")] = Path("job.toml"),
    key: Key = None,
    storage: StorageOptions = None,
) -> Outcome:
    """Look at a matrix and write a first job file for it, with comments."""
    from sketchselect.job.load import storage_options
    from sketchselect.workflow.commands.authoring import write_first_job

    seen = write_first_job(source, output, key, storage_options(storage))
    text = f"{seen}\n{output} written; read it, then:  sketchselect run {output}"
    return Outcome(text, {"job": output, "source": seen})


@command
def methods(
    name: Annotated[str | None, typer.Argument(help="A method; all in short without it.", metavar="[NAME]")] = None,
) -> Outcome:
    """List the methods of selection, or describe one: what it does, guarantees, takes and costs."""
    from sketchselect.workflow.commands.authoring import describe_method, list_methods, method_facts

    if name is None:
        return Outcome(list_methods(), method_facts())
    text = describe_method(name)
    return Outcome(text, {**method_facts()[name], "description": text})


@command
def schema() -> Outcome:
    """Print the JSON schema of a job file, for editors that check and complete as one types."""
    import json

    from sketchselect.workflow.commands.authoring import job_schema

    return Outcome(json.dumps(job_schema(), indent=1), job_schema())
