"""Jobs as tasks of Airflow 3: an operator, and the function that TaskFlow tasks call. Needs the extra ``airflow``."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sketchselect.integrations import missing_extra, stages
from sketchselect.integrations.stages import merge_days, select_merged

try:
    from airflow.sdk import BaseOperator
    from airflow.sdk.exceptions import AirflowFailException
except ModuleNotFoundError as error:
    raise missing_extra("airflow", error) from None

__all__ = ["SketchSelectOperator", "merge_days", "plain_failures", "run_stage", "select_merged"]


@contextlib.contextmanager
def plain_failures() -> Iterator[None]:
    """Fail a task at once, whatever its ``retries``, where a retry cannot help; stop in order on SIGTERM."""
    try:
        with stages.orderly_termination():
            yield
    except Exception as error:
        if stages.worth_retrying(error):
            raise
        raise AirflowFailException(str(error)) from error


def run_stage(
    stage: str,
    job: str | os.PathLike[str] | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    cluster: str | None = None,
) -> str:
    """Run one stage of a job inside a task and return the path of its result, small enough for any XCom backend.

    Progress is written to the task's log, a line every few seconds.

    Parameters
    ----------
    stage : str
        "summarize", "select", "cluster" or "report", or "run" for the whole job.
    job : path or mapping
        A job file, or its content.
    overrides : sequence of str
        Settings ``section.key=value`` that replace the job's.
    cluster : str, optional
        Replaces the job's ``execution.cluster``.

    Raises
    ------
    AirflowFailException
        For errors that a retry cannot cure, such as a mistake in the job; it uses no retries.
    SketchSelectError
        For other errors, such as a lost cluster: the next try resumes from the checkpoints.
    """
    from sketchselect._progress import Lines

    with plain_failures():
        return str(stages.run_stage(stage, job, overrides, cluster=cluster, progress=Lines(sys.stdout)))


class SketchSelectOperator(BaseOperator):
    """A job, or one of its stages, as one task; its XCom is the path of the result.

    Parameters
    ----------
    job : str or mapping
        Path of a job file, or its content; templated.
    overrides : sequence of str
        Settings ``section.key=value`` that replace the job's; templated, for example
        ``'input.url="rows/{{ data_interval_start | ds }}.zarr"'``.
    stage : str
        "run", the whole job, or one of "summarize", "select", "cluster", "report".
    cluster : str, optional
        Replaces the job's ``execution.cluster`` unless empty; templated.
    **options
        Arguments of every operator, such as ``task_id`` and ``retries``.

    Raises
    ------
    BadParameter
        For a stage that does not exist, when the DAG is read.

    Examples
    --------
    >>> SketchSelectOperator(task_id="summarize_day", job="job.toml", stage="summarize", retries=3).stage
    'summarize'
    """

    template_fields: Sequence[str] = ("job", "overrides", "cluster")

    def __init__(
        self,
        *,
        job: str | Mapping[str, Any],
        overrides: Sequence[str] = (),
        stage: str = "run",
        cluster: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        stages.require_stage(stage)
        self.job = job
        self.overrides = overrides
        self.stage = stage
        self.cluster = cluster

    def execute(self, context: Any) -> str:
        """Run the stage; called by Airflow."""
        return run_stage(self.stage, self.job, self.overrides, cluster=self.cluster or None)
