"""The command line, in this process or in one of its own, and what every refusal has to be."""

import subprocess
import sys
from typing import Any

from typer.testing import CliRunner, Result

from sketchselect.cli import app

IN_PANELS = """
from sketchselect.summaries import frequent_directions
frequent_directions.PANELS_ABOVE_NBYTES, frequent_directions.PANEL_NBYTES = 1, 8 * 12 * 128
from sketchselect.__main__ import main
if __name__ == "__main__":
    main()
"""
"""The command line as a program that keeps sketches of narrow sparse rows in panels of columns."""


def cli(*arguments: object) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(app, [str(a) for a in arguments])


def works(*arguments: object) -> Result:
    """Run the command line in this process, which must succeed."""
    done = cli(*arguments)
    assert done.exit_code == 0, done.output
    return done


def start(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Run the command line in a process of its own."""
    command = [sys.executable, "-m", "sketchselect", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def refused(result: Result, code: int, *expected: str) -> None:
    """Assert one readable line on stderr, this exit code, and no traceback."""
    assert result.exit_code == code, result.output
    [line] = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    for text in expected:
        assert text in line
    assert "Traceback" not in result.output
