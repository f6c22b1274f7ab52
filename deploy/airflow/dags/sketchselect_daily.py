"""Every day's rows, a store of their own, summarised by themselves and merged with those of the days before.

The data interval of a run names its day, so that runs may be late, repeated or backfilled in any order: every merge is
one of all days that are there, each counted once.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import CronDataIntervalTimetable, Param, dag, task

from sketchselect.airflow import SketchSelectOperator

DAY = "(data_interval_start | ds)"
PARAMS = {
    "job": Param("job.toml", type="string", description="Path of the job file, as the workers of Airflow see it."),
    "rows": Param("rows", type="string", description="Folder or URL of the days' stores, <day>.zarr."),
    "out": Param("days", type="string", description="Folder of what is made from them: one folder a day."),
    "cluster": Param("", type="string", description='"local", "threads", a Dask scheduler; empty for the job\'s own.'),
}


@dag(
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1),
    catchup=False,
    # The merge of one day must not run while that of another replaces the same files.
    max_active_runs=1,
    params=PARAMS,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    tags=["sketchselect"],
)
def sketchselect_daily() -> None:
    """Summarise the day, merge all days that are there, and select from all their rows."""
    summarize_day = SketchSelectOperator(
        task_id="summarize_day",
        stage="summarize",
        job="{{ params.job }}",
        overrides=[
            # As JSON, a text is quoted as settings want it, whatever is in it.
            f"input.url={{{{ (params.rows ~ '/' ~ {DAY} ~ '.zarr') | tojson }}}}",
            f"output.dir={{{{ (params.out ~ '/' ~ {DAY}) | tojson }}}}",
        ],
        cluster="{{ params.cluster }}",
    )

    @task
    def merge(summary: str) -> str:
        from sketchselect.airflow import merge_days, plain_failures

        with plain_failures():
            return str(merge_days(Path(summary).parents[1]))

    @task
    def select(merged: str, params: dict[str, Any]) -> str:
        from sketchselect.airflow import plain_failures, select_merged

        with plain_failures():
            return str(select_merged(params["job"], merged))

    select(merge(summarize_day.output))


sketchselect_daily()
