"""The verbs of a job: `run` does them all; each verb works on the output folder of the one before.

`summarize`, `select`, `cluster` and `report` take a job and something to run on, so that an orchestrator can make
each its own task: they pass nothing but files of the output folder on to one another.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from sketchselect.job.schema import JobConfig
    from sketchselect.workflow.job import RunResult, run

    Job: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | JobConfig

__all__ = ["RunResult", "cluster", "report", "run", "select", "summarize"]


def __getattr__(name: str) -> Any:
    # Workers import this package for the leaf of one pass, which needs neither estimators nor drawing.
    if name in ("RunResult", "run"):
        from sketchselect.workflow import job

        return getattr(job, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def summarize(job: Job, client: Any = None, *, progress: Any = False) -> Path:
    """Read the source and write ``summary.sks`` (and, for some methods, ``columns.sks``); return the former's path."""
    from sketchselect.workflow.session import open_session
    from sketchselect.workflow.stages import columns as column_stage

    with open_session(_config(job), client, progress=progress) as session:
        column_stage.collect(session, column_stage.summarize(session))
        return session.folder.path / "summary.sks"


def select(job: Job) -> Path:
    """Select columns from the files of `summarize`, and write ``selection.json``; return its path."""
    from sketchselect.summaries import load
    from sketchselect.workflow.session import open_session
    from sketchselect.workflow.stages import columns as column_stage

    with open_session(_config(job)) as session:
        # The files of `summarize` show whether the method read the rows once more.
        more = session.selector.makes_passes or (session.folder.path / "columns.sks").exists()
        name = "columns.sks" if more else "summary.sks"
        _needed(session.folder.path / "summary.sks", "summarize")
        summary = column_stage.load_summary(session)
        selection_summary = load(_needed(session.folder.path / name, "summarize")) if more else summary
        column_stage.select(session, selection_summary, summary)
        return session.folder.path / "selection.json"


def cluster(job: Job, client: Any = None, *, progress: Any = False) -> RunResult:
    """Finish the job after `summarize` and `select`: features, k-means, certificates, manifest, report."""
    from sketchselect.workflow.job import run

    config = _config(job)
    _needed(Path(config.output.dir) / "selection.json", "select")
    return run(config, client=client, progress=progress)


def report(folder: str | os.PathLike[str]) -> Path:
    """Draw ``report.html`` of an output folder again; return its path."""
    from sketchselect.workflow.job import render_folder

    return render_folder(Path(folder))


def _config(job: Job) -> JobConfig:
    from sketchselect.job.load import load_job
    from sketchselect.job.schema import JobConfig

    return job if isinstance(job, JobConfig) else load_job(job)


def _needed(path: Path, verb: str) -> Path:
    from sketchselect.errors import SourceError

    if not path.exists():
        raise SourceError(f"{path}: not there yet; `{verb}` makes it")
    return path
