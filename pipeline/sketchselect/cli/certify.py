"""The command that proves how far a clustering can be from the best possible one."""

from __future__ import annotations

from typing import Annotated

import typer

from sketchselect.cli.options import Debug, Key, Prepare, Workers, app
from sketchselect.cli.shell import plain_errors


@app.command()
def certify(
    target: Annotated[str, typer.Argument(help="The output folder of a run, a matrix, or a summary file (.sks).")],
    clusters: Annotated[int | None, typer.Option("--clusters", min=1, help="Number of clusters.")] = None,
    labels: Annotated[
        str | None, typer.Option("--labels", help="Each row's cluster, whoever made them: a file, or an array.")
    ] = None,
    objective: Annotated[
        float | None,
        typer.Option("--objective", min=0, help="Instead of labels: the clustering's sum of squared distances."),
    ] = None,
    weight: Annotated[
        str | None, typer.Option("--weight", help="Row weights, where the clustering is of weighted rows.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option("--method", help="spectral, or blocks (closer, and more work; what rows get if not given)."),
    ] = None,
    block_rows: Annotated[
        int | None, typer.Option("--block-rows", min=2, help="Rows of a block: more are closer, and more work; 400.")
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option("--confidence", help="Solve only some blocks; the bound then holds with this probability."),
    ] = None,
    fraction: Annotated[
        float | None, typer.Option("--fraction", help="Share of the blocks that are solved; a quarter.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Which rows share a block.")] = None,
    prepare: Prepare = None,
    key: Key = None,
    nonfinite: Annotated[str | None, typer.Option("--nonfinite", help="error or drop_rows.")] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", help="local, threads, serial, env, or the address of a Dask scheduler."),
    ] = None,
    workers: Workers = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole certificate as JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Prove how far a clustering can be from the best possible one: of a run's folder, or of anybody's labels."""
    with plain_errors(debug):
        import json

        from sketchselect.workflow.commands.certify import certify_target, to_text
        from sketchselect.workflow.output.tables import plain_value

        found = certify_target(
            target,
            {
                "method": method,
                "block_rows": block_rows,
                "confidence": confidence,
                "fraction": fraction,
                "seed": seed,
            },
            clusters=clusters,
            labels=labels,
            objective=objective,
            weight=weight,
            prepare=prepare or None,
            options={"key": key, "nonfinite": nonfinite},
            execution={"cluster": cluster, "n_workers": workers},
            progress=not as_json,
        )
        typer.echo(json.dumps(plain_value(found.to_dict()), indent=1) if as_json else to_text(found))
