"""Two flows, one task per stage: a whole job, and a day's rows added to what earlier days left."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.runtime import flow_run

from sketchselect.prefect import cluster_stage, merge_days, report_stage, select_stage, summarize_stage


@flow(name="sketchselect-job")
def job_flow(
    job: str | dict[str, Any],
    overrides: list[str] | None = None,
    cluster: str | None = None,
    retries: int = 2,
    retry_delay: float = 10.0,
) -> str:
    """Summarise, select, cluster, report.

    `job` is a job file or its content, `overrides` are settings such as "select.n_features=50", `cluster` is where
    the work is done, instead of the job's execution.cluster: "local", "threads" or the address of a Dask scheduler.
    Run it again after rows were appended to the source: only what no checkpoint holds is read.
    """
    again: dict[str, Any] = {"retries": retries, "retry_delay_seconds": retry_delay}
    summarize_stage.with_options(**again)(job, overrides, cluster)
    select_stage.with_options(**again)(job, overrides)
    cluster_stage.with_options(**again)(job, overrides, cluster)
    return report_stage.with_options(**again)(job, overrides)


@flow(name="sketchselect-daily")
def daily_flow(
    job: str | dict[str, Any],
    rows: str,
    out: str,
    day: str | None = None,
    overrides: list[str] | None = None,
    cluster: str | None = None,
    retries: int = 2,
    retry_delay: float = 10.0,
) -> str:
    """Summarise the store `rows`/<day>.zarr into `out`/<day>, merge all days there are, and select from all their rows.

    `day` is a date such as "2026-03-01"; a scheduled run that names none takes the day before the one it is due on.
    """
    if day is None:
        day = (flow_run.scheduled_start_time - timedelta(days=1)).date().isoformat()
    again: dict[str, Any] = {"retries": retries, "retry_delay_seconds": retry_delay}
    where = [f"input.url={json.dumps(f'{rows}/{day}.zarr')}", f"output.dir={json.dumps(f'{out}/{day}')}"]
    summary = summarize_stage.with_options(**again)(job, [*(overrides or []), *where], cluster)
    return merge_days.with_options(**again)(job, str(Path(summary).parents[1]), overrides=overrides)
