"""The command that compares clusters with labels known beforehand."""

from __future__ import annotations

from typing import Annotated

import typer

from sketchselect.cli.options import Debug, app
from sketchselect.cli.shell import plain_errors


@app.command()
def evaluate(
    target: Annotated[str, typer.Argument(help="The output folder of a run, or each row's cluster: a file, an array.")],
    labels: Annotated[
        str | None,
        typer.Option("--labels", help="Each row's known label: a file, or an array (of a run: by default its job's)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the measures and the whole table as JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Compare clusters with known labels: NMI, ARI, accuracy (best matching), purity."""
    with plain_errors(debug):
        import json

        from sketchselect.workflow.stages.agreement import evaluate_target

        found = evaluate_target(target, labels)
        typer.echo(json.dumps(found.to_dict(), indent=1, allow_nan=False) if as_json else found.to_text())
