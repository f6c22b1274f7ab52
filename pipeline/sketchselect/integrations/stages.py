"""Stages of a job as tasks of any orchestrator, the errors worth a retry, and the merge of several days."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sketchselect import errors

if TYPE_CHECKING:
    from sketchselect.execution import Progress

STAGES = ("summarize", "select", "cluster", "report")
"""Stages of a job; each works on the output folder of the one before."""

PERMANENT = (
    errors.ConfigError,
    errors.BadParameter,
    errors.Incompatible,
    errors.NoData,
    errors.BadBlock,
    errors.EmptyInput,
    errors.SourceError,
    errors.DamagedFile,
    errors.NotOurFolder,
    errors.WillNotFit,
    errors.PartitionCrash,
)
"""Errors that the same task would meet again: a mistake in the job, unexpected data, too little memory."""

TRANSIENT = (errors.ChunkReadError, errors.SourceChanged)
"""Exceptions, which are worth a retry: storage that did not answer, a source that was being written to."""


def worth_retrying(error: BaseException) -> bool:
    """Return whether the same task, run again, may succeed.

    True for lost schedulers and workers (exit code 75), interrupted runs, storage and everything unexpected; false for
    mistakes in the job and in the data. A task that is run again resumes from its checkpoints.

    Examples
    --------
    >>> from sketchselect.errors import ClusterLost, ConfigError
    >>> worth_retrying(ClusterLost("the scheduler went away")), worth_retrying(ConfigError("job.toml: ..."))
    (True, False)
    """
    return isinstance(error, TRANSIENT) or not isinstance(error, PERMANENT)


def require_stage(stage: str) -> None:
    """Raise `BadParameter` unless this is a stage, or ``"run"``."""
    if stage != "run" and stage not in STAGES:
        raise errors.BadParameter(f'stage must be "run", the whole job, or one of {", ".join(STAGES)}, got {stage!r}')


def run_stage(
    stage: str,
    job: str | os.PathLike[str] | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    cluster: str | None = None,
    progress: bool | Progress = False,
) -> Path:
    """Run one stage of a job, or with ``"run"`` the whole job, and return the path of its result.

    A stage that was interrupted, lost its cluster or is run a second time resumes: partitions in a checkpoint are not
    read again, and finished stages with the same input and settings are not repeated.

    Parameters
    ----------
    stage : str
        One of `STAGES`, or "run".
    job : path or mapping
        A job file, or its content.
    overrides : sequence of str
        Settings ``section.key=value`` that replace the job's.
    cluster : str, optional
        Replaces the job's ``execution.cluster``. A daemonic process, such as a task of Celery, may not start worker
        processes: it uses threads instead, with the same bits.
    progress : bool or Progress
        Whether, or to what, progress is reported.

    Returns
    -------
    Path
        ``summary.sks``, ``selection.json``, ``manifest.json`` (of "cluster" and "run") or ``report.html``; "report" of
        a job with ``output.report = false`` draws nothing and returns ``manifest.json``.

    Raises
    ------
    BadParameter, ConfigError, SketchSelectError
        `worth_retrying` tells which of them a retry can cure.
    """
    require_stage(stage)
    from sketchselect import workflow
    from sketchselect.execution import make_progress
    from sketchselect.job.load import load_job, with_cluster

    listener, settings = make_progress(progress), with_cluster(overrides, cluster)
    with _main_hidden():
        config = load_job(job, settings)
        if config.execution.cluster == "local" and multiprocessing.current_process().daemon:
            listener.note("note: a daemonic process cannot start worker processes, so tasks run in its threads")
            threads = config.execution.model_copy(update={"cluster": "threads"})
            config = config.model_copy(update={"execution": threads})
        folder = Path(config.output.dir)
        if stage == "summarize":
            return workflow.summarize(config, progress=listener)
        if stage == "select":
            return workflow.select(config)
        if stage == "report":
            return workflow.report(folder) if config.output.report else folder / "manifest.json"
        perform = workflow.cluster if stage == "cluster" else workflow.run
        return perform(config, progress=listener).folder / "manifest.json"


@contextlib.contextmanager
def _main_hidden() -> Iterator[None]:
    """Keep worker processes that are started meanwhile from importing the orchestrator's program once more.

    They do not need it, and under the settings of an Airflow task its program cannot be imported.
    """
    main: Any = sys.modules["__main__"]
    names = {name: getattr(main, name) for name in ("__file__", "__spec__") if getattr(main, name, None) is not None}
    for name in names:
        setattr(main, name, None)
    try:
        yield
    finally:
        for name, value in names.items():
            setattr(main, name, value)


@contextlib.contextmanager
def orderly_termination() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C: the running stage stops, closes its cluster and raises `Interrupted`.

    For orchestrators whose handler does not interrupt the task. Outside the main thread it changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    process_id, has_signal = os.getpid(), threading.Event()

    def stop(number: int, frame: Any) -> None:
        if os.getpid() == process_id and not has_signal.is_set():
            has_signal.set()
            raise errors.Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except errors.Terminated:
        interruption = errors.Interrupted(
            "terminated between two passes: run the task again to go on from its checkpoints"
        )
        interruption.exit_code = 143
        raise interruption from None
    finally:
        signal.signal(signal.SIGTERM, before)


def merge_days(folder: str | os.PathLike[str], *, last: str | None = None) -> Path:
    """Merge the summaries of several days, ``<folder>/<day>/summary.sks``, into ``<folder>/summary.sks``.

    The merge always reads the files of the days, in the order of their names, and never an earlier merge: a day that is
    summarised again, late or twice is counted once, and the same days give the same bits.

    Parameters
    ----------
    folder : path
        Folder with the output folder of each day, made by the stage "summarize"; names such as ``2026-03-01`` sort.
    last : str, optional
        Name of the last day to merge; all by default.

    Raises
    ------
    SourceError, Incompatible, ConfigError
        If there is no day; if days differ in columns, steps or summaries; if two are copies of each other.
    """
    from sketchselect.summaries import load, save
    from sketchselect.workflow.summary_files import merge_files

    parent = Path(folder).absolute()
    days = sorted(path for path in parent.glob("*/summary.sks") if last is None or path.parent.name <= last)
    if not days:
        raise errors.SourceError(
            f"{parent}: has no <day>/summary.sks{f' up to {last}' if last else ''}; summarise a day first"
        )
    output = parent / "summary.sks"
    if len(days) == 1:
        save(load(days[0]), output)
    else:
        merge_files(days, output)
    return output


def select_merged(
    job: str | os.PathLike[str] | Mapping[str, Any], summary: str | os.PathLike[str], overrides: Sequence[str] = ()
) -> Path:
    """Select from a merged summary with the job's method; write ``selection.json`` next to it and return that path.

    A method with a target writes ``model.json`` too. The data are not read.
    """
    from sketchselect.job.load import load_job
    from sketchselect.selectors import METHODS
    from sketchselect.workflow.summary_files import select_from_file

    select, source = load_job(job, overrides).select, Path(summary)
    settings = [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in select.parameters.items()]
    selection = source.with_name("selection.json")
    model = source.with_name("model.json") if METHODS[select.method].fits_model else None
    select_from_file(source, selection, select.method, select.n_features, settings, model)
    return selection
