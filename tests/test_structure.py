"""The figure of the package's structure that takes a job to measure: files entered before the first block is read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.structure import MOST_ENTERED

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow
def test_a_job_enters_few_files_before_it_reads() -> None:
    program = "from tests.structure import files_entered_by_a_job; print(*files_entered_by_a_job(), sep='\\n')"
    # The package of this tree, also where another copy is installed.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "pipeline")])}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, cwd=ROOT
    )
    files = [line for line in done.stdout.splitlines() if line.endswith(".py")]
    assert "workflow/job.py" in files
    # It stands in for a setting that zarr has since 3.2.
    assert len(set(files) - {"readers/zarr/store.py"}) <= MOST_ENTERED, files
