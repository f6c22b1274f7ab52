"""Command line: a thin shell over `sketchselect.workflow`, one file for each group of commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
import typer.core

from sketchselect.cli.assign import assign
from sketchselect.cli.authoring import init, methods, schema
from sketchselect.cli.certify import certify
from sketchselect.cli.evaluate import evaluate
from sketchselect.cli.files import cluster, convert, inspect, merge, select, summarize
from sketchselect.cli.jobs import demo, doctor, report, run
from sketchselect.cli.plan import plan
from sketchselect.cli.shell import open_closed_streams

__all__ = ["app", "main"]

GROUPS: dict[str, dict[Callable[..., None], str]] = {
    "Start": {
        demo: "sketchselect demo",
        init: "sketchselect init rows.zarr -o job.toml",
        methods: "sketchselect methods greedy",
        doctor: "sketchselect doctor",
    },
    "Whole jobs": {
        plan: "sketchselect plan job.toml",
        run: "sketchselect run job.toml --set select.n_features=50",
        report: "sketchselect report rows-selected",
        schema: "sketchselect schema > job.schema.json",
    },
    "Steps of a job, one by one": {
        convert: "sketchselect convert table.csv rows.zarr",
        inspect: "sketchselect inspect rows.zarr",
        summarize: "sketchselect summarize rows.zarr -o rows.sks",
        merge: "sketchselect merge monday.sks tuesday.sks -o week.sks",
        select: "sketchselect select rows.sks --method greedy --features 50 -o columns.json",
        cluster: "sketchselect cluster rows.zarr --selection columns.json --clusters 8 -o clusters",
    },
    "Proofs, comparisons and new rows": {
        certify: "sketchselect certify rows.zarr --labels labels.npy --clusters 3",
        evaluate: "sketchselect evaluate clusters --labels truth.npy",
        assign: "sketchselect assign rows-selected new.zarr -o new-labels.csv",
    },
}
"""All commands, by what they are for, each with an example."""


class _Grouped(typer.core.TyperGroup):
    """A list of commands in groups."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of each group under its name."""
        for group, commands in GROUPS.items():
            rows = [(f.__name__, self.commands[f.__name__].get_short_help_str(100)) for f in commands]
            with formatter.section(group):
                formatter.write_dl(rows)


app = typer.Typer(
    name="sketchselect",
    cls=_Grouped,
    help="Select columns of a matrix too big for memory, and cluster its rows with a proven bound.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for _commands in GROUPS.values():
    for _command, _example in _commands.items():
        app.command(epilog=f"Example: {_example}")(_command)


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
