"""The command line: a thin shell over `sketchselect.workflow`. A file of commands is added by naming it here."""

from __future__ import annotations

from sketchselect.cli import certify as certify
from sketchselect.cli import evaluate as evaluate
from sketchselect.cli import files as files
from sketchselect.cli import jobs as jobs
from sketchselect.cli import plan as plan
from sketchselect.cli.options import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line."""
    app()
