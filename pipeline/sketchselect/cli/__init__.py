"""Command line: every command by name and group, and the commands on a whole job."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, cast

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
    plain_help,
    plain_usage,
    with_options,
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
    from sketchselect.job.load import with_cluster, with_storage
    from sketchselect.workflow.job import run as run_job

    overrides = with_storage(with_cluster(settings or (), cluster), storage)
    result = run_job(job, overrides=overrides, fresh=fresh, progress=True)
    return Outcome(result.summary(), result.manifest)


@command
def report(folder: Annotated[Path, typer.Argument(help="The output folder of a run.")]) -> Outcome:
    """Draw report.html of a finished run again."""
    from sketchselect.workflow.job import render_folder

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

HELP = {"help_option_names": ["-h", "--help"]}


class _Commands(Mapping[str, Any]):
    """Every command by name, built when it is asked for: one run needs one of them."""

    def __init__(self) -> None:
        self._examples = {f.__name__: (f, example) for commands in GROUPS.values() for f, example in commands.items()}
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            function, example = self._examples[name]
            alone = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=HELP)
            alone.command(cls=Command, epilog=f"Example: {example}")(with_options(function))
            self._built[name] = typer.main.get_command(alone)
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._examples)

    def __len__(self) -> int:
        return len(self._examples)


class _Grouped(typer.core.TyperGroup):
    """A list of commands in groups."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.commands = cast(Any, _Commands())

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **kwargs: Any) -> Any:
        """Read the words before a command."""
        with plain_help(), plain_usage("sketchselect", "--json" in args):
            return super().make_context(info_name, args, *rest, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Look for the command, and run it."""
        with plain_usage("sketchselect", "--json" in ctx.args):
            return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of each group under its name."""
        for group, commands in GROUPS.items():
            rows = [(f.__name__, re.split(r"(?<=\.)\s", f.__doc__ or "", maxsplit=1)[0]) for f in commands]
            with formatter.section(group):
                formatter.write_dl(rows)


app = typer.Typer(
    name="sketchselect",
    cls=_Grouped,
    help="Select columns of a matrix too big for memory, and cluster its rows with a proven bound.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=HELP,
)


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
