"""A job, stage by stage: TaskFlow tasks that pass nothing but paths, on one output folder.

Run again after rows were appended to the source, only what no checkpoint holds is read.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import Param, dag, task

PARAMS = {
    "job": Param("job.toml", type="string", description="Path of the job file, as the workers of Airflow see it."),
    "overrides": Param([], type="array", items={"type": "string"}, description='Such as "select.n_features=50".'),
    "cluster": Param("", type="string", description='"local", "threads", a Dask scheduler; empty for the job\'s own.'),
}


@dag(
    schedule=None,
    start_date=datetime(2026, 1, 1),
    catchup=False,
    # Two runs of one output folder at a time would wait for one another's lock, and fail.
    max_active_runs=1,
    params=PARAMS,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    tags=["sketchselect"],
)
def sketchselect_job() -> None:
    """Summarise, select, cluster, report."""

    def stage(name: str, params: dict[str, Any]) -> str:
        from sketchselect.airflow import run_stage

        return run_stage(name, params["job"], params["overrides"], cluster=params["cluster"] or None)

    @task
    def summarize(params: dict[str, Any]) -> str:
        return stage("summarize", params)

    @task
    def select(summary: str, params: dict[str, Any]) -> str:
        return stage("select", params)

    @task
    def cluster(selection: str, params: dict[str, Any]) -> str:
        return stage("cluster", params)

    @task
    def report(manifest: str, params: dict[str, Any]) -> str:
        return stage("report", params)

    report(cluster(select(summarize())))


sketchselect_job()
