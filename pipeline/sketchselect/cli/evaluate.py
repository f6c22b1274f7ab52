"""Command `evaluate`: agreement of clusters with known labels."""

from __future__ import annotations

from typing import Annotated

import typer

from sketchselect.cli.options import Debug
from sketchselect.cli.shell import plain_errors


def evaluate(
    target: Annotated[str, typer.Argument(help="The output folder of a run, or the cluster of each row.")],
    labels: Annotated[
        str | None,
        typer.Option("--labels", help="Known labels: a file, or an array in a store; by default the job's."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the measures and the whole table as JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Compare clusters with known labels: NMI, ARI, accuracy, purity. Accuracy is of the best matching."""
    with plain_errors(debug):
        import json

        from sketchselect.workflow.stages.agreement import evaluate_target

        agreement = evaluate_target(target, labels)
        typer.echo(json.dumps(agreement.to_dict(), indent=1, allow_nan=False) if as_json else agreement.to_text())
