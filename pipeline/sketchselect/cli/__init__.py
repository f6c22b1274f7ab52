"""Command line: a thin shell over `sketchselect.workflow`, one file for each group of commands."""

from __future__ import annotations

from sketchselect.cli import certify as certify
from sketchselect.cli import evaluate as evaluate
from sketchselect.cli import files as files
from sketchselect.cli import jobs as jobs
from sketchselect.cli import plan as plan
from sketchselect.cli.options import app
from sketchselect.cli.streams import open_closed_streams

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line."""
    open_closed_streams()
    app()
