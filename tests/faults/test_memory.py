"""The referee of memory: no process of a job takes more than `plan` says, nor is what it says much more."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.memory.jobs import JOBS, MIB, Job
from tests.faults.memory.measure import measure

LARGE = 480 * MIB
"""Peak from which on a job, and not the interpreter with its libraries, is most of what is stated."""


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_no_process_takes_more_than_plan_says(job: Job, tmp_path: Path) -> None:
    seen = measure(job.content(tmp_path), tmp_path)
    assert seen.peak <= seen.stated, f"{seen.peak / MIB:.0f} of {seen.stated / MIB:.0f} MiB"
    assert seen.peak_here <= seen.stated_here, f"{seen.peak_here / MIB:.0f} of {seen.stated_here / MIB:.0f} MiB"
    if seen.peak >= LARGE:
        assert seen.stated <= 1.5 * seen.peak, f"{seen.peak / MIB:.0f} of {seen.stated / MIB:.0f} MiB"
