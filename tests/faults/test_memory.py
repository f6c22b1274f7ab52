"""The referee of memory: no process of a job takes more than `plan` says, nor is what it says much more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.faults.memory.jobs import JOBS, MIB, Job
from tests.faults.memory.measure import measure

EVERY_CHANGE = frozenset(
    ("parquet-small-groups", "csv", "npy", "hdf5", "zarr-processes", "cells-zarr", "auto-processes", "blocks", "lasso")
)
"""Jobs of most sources and every engine that take seconds; the others are left to the night."""


def marked(job: Job) -> Any:
    """Return a job as a parameter."""
    return pytest.param(job, id=job.name, marks=[] if job.name in EVERY_CHANGE else [pytest.mark.nightly])


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option", "ignore:Writing zarr v2 data")
@pytest.mark.parametrize("job", [marked(job) for job in JOBS])
def test_no_process_takes_more_than_plan_says(job: Job, tmp_path: Path) -> None:
    seen = measure(job.content(tmp_path), tmp_path)
    assert seen.peak <= seen.stated, f"{seen.peak / MIB:.0f} of {seen.stated / MIB:.0f} MiB"
    assert seen.peak_here <= seen.stated_here, f"{seen.peak_here / MIB:.0f} of {seen.stated_here / MIB:.0f} MiB"
    # How many partitions are read ahead and held at the same time on threads depends on what else the machine does.
    most = 2.0 if job.cluster == "threads" else 1.5
    assert seen.stated <= most * seen.peak, f"{seen.peak / MIB:.0f} of {seen.stated / MIB:.0f} MiB"
