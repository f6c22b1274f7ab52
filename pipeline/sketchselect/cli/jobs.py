"""Commands on whole jobs; heavy imports are inside the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sketchselect.cli.options import Cluster, Debug, Fresh, JobCluster, Sets
from sketchselect.cli.shell import plain_errors


def demo(
    out: Annotated[Path, typer.Option("--out", help="Output folder.")] = Path("sketchselect-demo"),
    cluster: Cluster = "local",
    fresh: Fresh = False,
    debug: Debug = False,
) -> None:
    """Run a whole job on 1797 digits of 8 x 8 pixels, which scikit-learn includes."""
    with plain_errors(debug):
        from sketchselect.job.load import with_cluster
        from sketchselect.workflow.commands.demo import prepare_demo
        from sketchselect.workflow.job import run

        job = prepare_demo(out, fresh=fresh)
        typer.echo(run(job, overrides=with_cluster((), cluster), progress=True).summary())
        typer.echo(f"run it again, or change it:  sketchselect run {job}")


def run(
    job: Annotated[Path, typer.Argument(help="A job file, TOML or YAML.")],
    cluster: JobCluster = None,
    fresh: Fresh = False,
    settings: Sets = None,
    debug: Debug = False,
) -> None:
    """Run a whole job: summarise, select, cluster, certify, report."""
    with plain_errors(debug):
        from sketchselect.job.load import with_cluster
        from sketchselect.workflow.job import run as run_job

        overrides = with_cluster(settings or (), cluster)
        typer.echo(run_job(job, overrides=overrides, fresh=fresh, progress=True).summary())


def report(
    folder: Annotated[Path, typer.Argument(help="The output folder of a run.")],
    debug: Debug = False,
) -> None:
    """Draw report.html of a finished run again."""
    with plain_errors(debug):
        from sketchselect.workflow.output.pages import render_folder

        typer.echo(f"report: {render_folder(folder)}")


def doctor(debug: Debug = False) -> None:
    """Check this installation. Versions, BLAS, memory, temporary folder, and a cluster on this machine."""
    with plain_errors(debug):
        from sketchselect.workflow.commands.doctor import examine

        healthy = examine(typer.echo)
    if not healthy:
        raise typer.Exit(1)
