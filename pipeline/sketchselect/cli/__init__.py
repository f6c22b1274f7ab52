"""Command line: every command by name and group, and the commands on a whole job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from sketchselect.cli.authoring import init, methods, plan, schema
from sketchselect.cli.certify import certify, compare, evaluate, verify
from sketchselect.cli.files import assign, cluster, convert, drift, inspect, merge, select, summarize
from sketchselect.cli.installation import demo, doctor
from sketchselect.cli.shell import (
    Command,
    Fresh,
    JobCluster,
    Outcome,
    Sets,
    StorageOptions,
    command,
    open_standard_streams,
    plain_usage,
)

__all__ = ["app", "main"]


@command
def run(
    job: Annotated[Path, typer.Argument(help="A job file, TOML or YAML; - is TOML from standard input.")],
    cluster: JobCluster = None,
    fresh: Fresh = False,
    settings: Sets = None,
    storage: StorageOptions = None,
) -> Outcome:
    """Run a whole job: summarise, select, cluster, certify, report."""
    from sketchselect import workflow
    from sketchselect.job.load import with_cluster, with_storage

    overrides = with_storage(with_cluster(settings or (), cluster), storage)
    result = workflow.run(job, overrides=overrides, fresh=fresh, progress=True)
    return Outcome(result.summary(), result.manifest)


@command
def report(
    folder: Annotated[Path, typer.Argument(help="The output folder of a run.")],
) -> Outcome:
    """Draw report.html of a finished run again."""
    from sketchselect.workflow.pages import render_folder

    page = render_folder(folder)
    return Outcome(f"report: {page}", {"report": page})


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
        select: "sketchselect select rows.sks --method greedy --n-features 50 -o columns.json",
        cluster: "sketchselect cluster rows.zarr --selection columns.json --n-clusters 8 -o clusters",
    },
    "Proofs, comparisons and new rows": {
        certify: "sketchselect certify rows.zarr --labels labels.npy --n-clusters 3",
        verify: "sketchselect verify rows-selected",
        compare: "sketchselect compare job.toml --methods greedy,variance",
        evaluate: "sketchselect evaluate clusters --labels truth.npy",
        assign: "sketchselect assign rows-selected new.zarr -o new-labels.csv",
        drift: "sketchselect drift year.sks today.sks",
    },
}
"""All commands by purpose, each with an example."""


class _Grouped(typer.core.TyperGroup):
    """A list of commands in groups."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read the words before a command."""
        with plain_usage("sketchselect"):
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Look for the command, and run it."""
        with plain_usage("sketchselect"):
            return super().invoke(ctx)

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
        app.command(cls=Command, epilog=f"Example: {_example}")(_command)


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
    open_standard_streams()
    app()
