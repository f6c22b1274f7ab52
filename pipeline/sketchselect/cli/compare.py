"""Command `compare`: methods, or finished runs, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sketchselect.cli.options import Sets, StorageOptions
from sketchselect.cli.shell import command
from sketchselect.workflow.commands.outcome import Outcome


@command
def compare(
    targets: Annotated[list[str], typer.Argument(help="Output folders of runs, or job files.", metavar="JOB...")],
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods", metavar="NAME,NAME", help="Run one job with each of these methods, such as greedy,variance."
        ),
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write the table here.")] = None,
    page: Annotated[Path | None, typer.Option("--page", help="Write the table here as a web page.")] = None,
    settings: Sets = None,
    storage: StorageOptions = None,
) -> Outcome:
    """Show methods side by side: objective, certificate, agreement with labels, stability, overlap, time."""
    from sketchselect.errors import ConfigError
    from sketchselect.job.load import with_storage
    from sketchselect.location import write_atomically
    from sketchselect.workflow.commands import compare as verb

    overrides = with_storage(settings or (), storage)
    if methods is None:
        compared = verb.compare_runs(targets, overrides, progress=True)
    elif len(targets) > 1:
        raise ConfigError("--methods: of one job file; leave the others out")
    else:
        names = [name.strip() for name in methods.split(",")]
        compared = verb.compare_methods(targets[0], names, overrides, progress=True)
    for path, text in ((csv, verb.to_csv), (page, verb.to_html)):
        if path is not None:
            write_atomically(path, text(compared).encode())
    return Outcome(verb.to_text(compared), verb.to_data(compared))
