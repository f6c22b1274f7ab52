"""Command `assign`: new rows, by what a finished run left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sketchselect.cli.options import Cluster, Key, MaxDropped, StorageOptions
from sketchselect.cli.shell import command
from sketchselect.workflow.commands.outcome import Outcome


@command
def assign(
    target: Annotated[Path, typer.Argument(help="The output folder of a run, or the assign.json in it.")],
    source: Annotated[str, typer.Argument(help="A path or URL of a matrix with the columns that the run's had.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write (.csv).")],
    key: Key = None,
    row_names: Annotated[
        str | None, typer.Option("--row-names", help="A file, or a column of the source, with a name for every row.")
    ] = None,
    max_dropped: MaxDropped = 0.2,
    where: Cluster = "threads",
    storage: StorageOptions = None,
) -> Outcome:
    """Assign new rows to the clusters of a run, and predict with its model. Columns and prepare steps are the run's."""
    from sketchselect.job.load import storage_options
    from sketchselect.workflow.commands import assign as verb

    return verb.assign(
        target,
        source,
        output,
        key=key,
        row_names=row_names,
        max_dropped=max_dropped,
        cluster=where,
        storage_options=storage_options(storage),
        progress=True,
    )
