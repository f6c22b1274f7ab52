"""Stages of a job as tasks of Prefect 3, with progress and results as artifacts. Needs the extra ``prefect``."""

from __future__ import annotations

import contextvars
import json
import threading
import time
from pathlib import Path
from typing import Any
from uuid import UUID

from sketchselect._progress import Progress
from sketchselect._text import counted
from sketchselect.integrations import missing_extra, stages

try:
    from prefect import task
    from prefect.artifacts import (
        create_link_artifact,
        create_markdown_artifact,
        create_progress_artifact,
        create_table_artifact,
        update_progress_artifact,
    )
    from prefect.cache_policies import NO_CACHE
    from prefect.exceptions import ExternalSignal
    from prefect.logging import get_run_logger
except ModuleNotFoundError as error:
    raise missing_extra("prefect", error) from None

__all__ = ["ArtifactProgress", "cluster_stage", "merge_days", "report_stage", "select_stage", "summarize_stage"]

SHOWN = 50
"""Most selected columns in the table; the file has all."""

Job = str | dict[str, Any]


class ArtifactProgress(Progress):
    """Progress of a stage in the artifact ``sketchselect-<stage>-progress`` and in the log of its task run.

    A server that does not answer never ends a run: the artifact then stays unchanged.

    Parameters
    ----------
    stage : str
        The stage.
    every : float
        Least seconds between two updates.
    """

    def __init__(self, stage: str, every: float = 5.0) -> None:
        self._key, self._every = f"sketchselect-{stage}-progress", every
        self._logger = get_run_logger()
        # Partitions are counted in other threads, which do not have the context of the run.
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._artifact: UUID | None = None
        self._pass, self._total, self._done, self._last = stage, 0, 0, -float("inf")

    def start(self, stage: str, total_bytes: int, n_partitions: int) -> None:
        """Show the pass that begins."""
        with self._lock:
            self._pass, self._total, self._done = f"{stage}, {counted(n_partitions, 'partition')}", total_bytes, 0
            self._show()

    def advance(self, nbytes: int) -> None:
        """Count a partition."""
        with self._lock:
            self._done += nbytes
            self._show()

    def note(self, text: str) -> None:
        """Write a line to the log."""
        self._logger.info("%s", text)

    def finish(self, stage: str) -> None:
        """Show the end of the pass, if an update is due."""
        with self._lock:
            self._show()

    def close(self) -> None:
        """Show that the stage is done."""
        with self._lock:
            self._done, self._total, self._last = 1, 1, -float("inf")
            self._show()

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._last < self._every:
            return
        self._last = now
        percent = min(100.0, 100.0 * self._done / max(self._total, 1))
        try:
            self._context.run(self._send, percent)
        except Exception as error:
            self._logger.warning("progress cannot be shown (%s); the run goes on", type(error).__name__)

    def _send(self, percent: float) -> None:
        if self._artifact is None:
            self._artifact = create_progress_artifact(percent, key=self._key, description=self._pass)
        else:
            update_progress_artifact(self._artifact, percent, description=self._pass)


def retry_condition(task: Any, task_run: Any, state: Any) -> bool:
    """Return whether a failed task run is worth a retry."""
    error = state.result(raise_on_failure=False)
    return not isinstance(error, BaseException) or stages.worth_retrying(error)


_OPTIONS: dict[str, Any] = {
    "retries": 2,
    "retry_delay_seconds": 10,
    "retry_condition_fn": retry_condition,
    # The output folder decides what is done already, and not the arguments of the task.
    "cache_policy": NO_CACHE,
    "persist_result": False,
}


def _run(stage: str, job: Job, overrides: list[str] | None, cluster: str | None) -> Path:
    progress = ArtifactProgress(stage)
    try:
        path = stages.run_stage(stage, job, overrides or (), cluster=cluster, progress=progress)
    except Exception as error:
        # A task that runs in this thread reports the partition in which it was stopped; it is a signal all the same.
        if isinstance(error.__cause__, ExternalSignal):
            raise error.__cause__ from None
        raise
    progress.close()
    return path


@task(name="summarize", **_OPTIONS)
def summarize_stage(job: Job, overrides: list[str] | None = None, cluster: str | None = None) -> str:
    """Read the source; return the path of ``summary.sks``. See `sketchselect.integrations.stages.run_stage`."""
    return str(_run("summarize", job, overrides, cluster))


@task(name="select", **_OPTIONS)
def select_stage(job: Job, overrides: list[str] | None = None) -> str:
    """Select columns; return the path of ``selection.json``, and show the best columns in a table."""
    path = _run("select", job, overrides, None)
    _show_selection(path)
    return str(path)


@task(name="cluster", **_OPTIONS)
def cluster_stage(job: Job, overrides: list[str] | None = None, cluster: str | None = None) -> str:
    """Finish the job; return the path of ``manifest.json``, and show the result."""
    from sketchselect.workflow.inspection import inspect_target

    path = _run("cluster", job, overrides, cluster)
    create_markdown_artifact(f"```text\n{inspect_target(str(path.parent))[0]}\n```", key="sketchselect-result")
    return str(path)


@task(name="report", **_OPTIONS)
def report_stage(job: Job, overrides: list[str] | None = None) -> str:
    """Draw the page; return its path, and link to it."""
    path = _run("report", job, overrides, None)
    create_link_artifact(path.absolute().as_uri(), link_text=str(path), key="sketchselect-report")
    return str(path)


@task(name="merge days", **_OPTIONS)
def merge_days(job: Job, folder: str, last: str | None = None, overrides: list[str] | None = None) -> str:
    """Merge the days' summaries and select from all their rows; return the path of ``selection.json``."""
    path = stages.select_merged(job, stages.merge_days(folder, last=last), overrides or ())
    _show_selection(path)
    return str(path)


def _show_selection(path: Path) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    names, scores = content["feature_names"], content["scores"]
    best = sorted(content["support"], key=lambda j: (-(scores[j] or 0.0), j))[:SHOWN]
    table = [{"column": j, "name": names[j] if names else "", "score": scores[j]} for j in best]
    create_table_artifact(
        table,
        key="sketchselect-selection",
        description=f"{counted(len(content['support']), 'column')}, {content['method']}: {path}",
    )
