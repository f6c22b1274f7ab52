"""Command line: a thin shell over `sketchselect.workflow`, one file for each group of commands."""

from __future__ import annotations

from typing import Annotated

import typer

from sketchselect.cli.assign import assign
from sketchselect.cli.certify import certify
from sketchselect.cli.evaluate import evaluate
from sketchselect.cli.files import cluster, convert, inspect, merge, select, summarize
from sketchselect.cli.jobs import demo, doctor, report, run
from sketchselect.cli.plan import plan
from sketchselect.cli.shell import open_closed_streams

__all__ = ["app", "main"]

app = typer.Typer(
    name="sketchselect",
    help="Select columns of a matrix too big for memory, and cluster its rows with a proven bound.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

CLUSTER_HELP = "local, threads, serial, env, the address of a Dask scheduler, or its scheduler file (.json)."

COMMANDS = (
    *(demo, run, report, doctor, plan, summarize, merge, select),
    *(cluster, certify, evaluate, assign, inspect, convert),
)
"""All commands."""

for _command in COMMANDS:
    app.command()(_command)


def _show_version(is_set: bool) -> None:
    if is_set:
        from sketchselect._version import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Read the options that stand before a command."""


def main() -> None:
    """Run the command line."""
    open_closed_streams()
    app()
