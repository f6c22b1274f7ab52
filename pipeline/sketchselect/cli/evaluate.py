"""Command `evaluate`: agreement of clusters with known labels."""

from __future__ import annotations

from typing import Annotated

import typer

from sketchselect.cli.options import StorageOptions
from sketchselect.cli.shell import command
from sketchselect.workflow.commands.outcome import Outcome


@command
def evaluate(
    target: Annotated[str, typer.Argument(help="The output folder of a run, or the cluster of each row.")],
    labels: Annotated[
        str | None,
        typer.Option("--labels", help="Known labels: a file, or an array in a store; by default the job's."),
    ] = None,
    storage: StorageOptions = None,
) -> Outcome:
    """Compare clusters with known labels: NMI, ARI, accuracy, purity. Accuracy is of the best matching."""
    from sketchselect.job.load import storage_options
    from sketchselect.workflow.stages.agreement import evaluate_target

    agreement = evaluate_target(target, labels, storage_options(storage))
    return Outcome(agreement.to_text(), agreement.to_dict())
