"""Commands: the options that all of them have, and their outcome in words or as JSON."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, get_type_hints

import typer
import typer.core

from sketchselect.cli.shell import plain_errors

SHARED = {
    "as_json": Annotated[bool, typer.Option("--json", help="Print the result as JSON, and no progress.")],
    "quiet": Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress, the result alone.")],
    "verbose": Annotated[bool, typer.Option("--verbose", "-v", help="Also print what the libraries log.")],
    "debug": Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")],
}
RENAMED = {"--cluster": "--scheduler", "--scheduler-file": "--scheduler", "--clusters": "--n-clusters"}
"""Former name of an option -> its name; the command line takes both."""


def command(function: Callable[..., Any]) -> Callable[..., None]:
    """Return a command of a function that returns an `Outcome`, with the shared options."""

    @functools.wraps(function)
    def run(*, as_json: bool, quiet: bool, verbose: bool, debug: bool, **parameters: Any) -> None:
        with plain_errors(debug), _reporting(quiet or as_json, verbose):
            outcome = function(**parameters)
            if as_json:
                import json

                from sketchselect.workflow.output.tables import plain_value

                typer.echo(json.dumps(plain_value(outcome.data), indent=1, default=str))
            elif outcome.text:
                typer.echo(outcome.text)
        if not outcome.is_good:
            raise typer.Exit(1)

    hints = get_type_hints(function, include_extras=True)
    signature = inspect.signature(function)
    parameters = [p.replace(annotation=hints[p.name]) for p in signature.parameters.values()]
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters += [inspect.Parameter(name, keyword, default=False, annotation=SHARED[name]) for name in SHARED]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


@contextmanager
def _reporting(quiet: bool, verbose: bool) -> Iterator[None]:
    """Show no progress, or also what libraries log."""
    import logging

    from sketchselect._progress import silenced

    root, handler = logging.getLogger(), logging.StreamHandler(sys.stderr)
    level = root.level
    if verbose:
        root.addHandler(handler)
        root.setLevel(logging.INFO)
    try:
        with silenced(quiet):
            yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


class Command(typer.core.TyperCommand):
    """A command that also takes the former names of its options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Replace former names, and say so."""
        current = []
        for word in args:
            name, sign, value = word.partition("=")
            if name in RENAMED:
                typer.echo(f"note: {name} is now {RENAMED[name]}; the old name will go", err=True)
            current.append(RENAMED.get(name, name) + sign + value)
        return super().parse_args(ctx, current)
