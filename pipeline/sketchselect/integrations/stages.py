"""What orchestrators share: one stage of a job as one task, which errors a retry can cure, and days that are merged."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sketchselect import errors

if TYPE_CHECKING:
    from sketchselect.execution import Progress
    from sketchselect.job.schema import JobConfig

STAGES = ("summarize", "select", "cluster", "report")
"""The stages of a job, each of which works on the output folder that the one before left."""

LASTING = (
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
"""What the same task would meet again: a mistake in the job, data that are not as promised, too little memory."""

PASSING = (errors.ChunkReadError, errors.SourceChanged)
"""What is among them by its class, and may pass: storage that did not answer, a source that somebody wrote to."""


def worth_retrying(error: BaseException) -> bool:
    """Return whether the same task, run again, may succeed.

    Lost schedulers and workers (exit code 75), interrupted runs, storage and everything unexpected are; mistakes in the
    job and in the data are not. A task that is run again goes on from its checkpoints.

    Examples
    --------
    >>> from sketchselect.errors import ClusterLost, ConfigError
    >>> worth_retrying(ClusterLost("the scheduler went away")), worth_retrying(ConfigError("job.toml: ..."))
    (True, False)
    """
    return isinstance(error, PASSING) or not isinstance(error, LASTING)


def require_stage(stage: str) -> None:
    """Raise `BadParameter` for what is neither a stage nor ``"run"``."""
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
    """Run one stage of a job, or with ``"run"`` the whole, and return the path of what it left.

    A stage that was interrupted, lost its cluster or is run a second time resumes: partitions that a checkpoint holds
    are not read again, and finished stages with the same input and settings are not done again.

    Parameters
    ----------
    stage : str
        One of `STAGES`, or "run".
    job : path or mapping
        A job file, or its content.
    overrides : sequence of str
        Settings ``section.key=value`` that win over the job's.
    cluster : str, optional
        Where tasks run, instead of the job's ``execution.cluster``. A daemonic process, such as a task of Celery, may
        start no worker processes: where the job asks for them, it gets threads there, and the same bits.
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
        See `worth_retrying` for what to do about them.
    """
    require_stage(stage)
    from sketchselect import workflow
    from sketchselect.execution import make_progress

    listener = make_progress(progress)
    config = _config(job, overrides, cluster, listener)
    folder = Path(config.output.dir)
    if stage == "summarize":
        return workflow.summarize(config, progress=listener)
    if stage == "select":
        return workflow.select(config)
    if stage == "report":
        return workflow.report(folder) if config.output.report else folder / "manifest.json"
    perform = workflow.cluster if stage == "cluster" else workflow.run
    return perform(config, progress=listener).folder / "manifest.json"


def _config(
    job: str | os.PathLike[str] | Mapping[str, Any], overrides: Sequence[str], cluster: str | None, progress: Progress
) -> JobConfig:
    from sketchselect.job.load import load_job

    wanted = [*overrides, *([f"execution.cluster={json.dumps(cluster)}"] if cluster else [])]
    config = load_job(job, wanted)
    if config.execution.cluster == "local" and multiprocessing.current_process().daemon:
        progress.note("note: a daemonic process can start no worker processes, so tasks run in its threads")
        config = load_job(job, [*wanted, 'execution.cluster="threads"'])
    return config


@contextlib.contextmanager
def orderly_termination() -> Iterator[None]:
    """Give SIGTERM the way of Ctrl-C: what runs stops, closes its cluster and ends with `Interrupted`.

    For orchestrators whose own handler does not interrupt the task. Outside the main thread nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    here, seen = os.getpid(), threading.Event()

    def stop(number: int, frame: Any) -> None:
        if os.getpid() == here and not seen.is_set():
            seen.set()
            raise errors.Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except errors.Terminated:
        stopped = errors.Interrupted(
            "terminated; finished stages and checkpoints are kept: run the task again to resume"
        )
        stopped.exit_code = 143
        raise stopped from None
    finally:
        signal.signal(signal.SIGTERM, before)


def merge_days(folder: str | os.PathLike[str], *, last: str | None = None) -> Path:
    """Merge the summaries of several days, ``<folder>/<day>/summary.sks``, into ``<folder>/summary.sks``.

    Always from the days' own files, in the order of their names, and never into what an earlier merge left: a day that
    is summarised again, late or twice is counted once, and the same days give the same bits.

    Parameters
    ----------
    folder : path
        Folder of the days' output folders, each left by the stage "summarize"; names such as ``2026-03-01`` sort.
    last : str, optional
        Name of the last day to merge; all by default.

    Raises
    ------
    SourceError, Incompatible, ConfigError
        If there is no day; if days differ in columns, steps or summaries; if two are copies of one another.
    """
    from sketchselect.summaries import load, save
    from sketchselect.workflow.commands.summaries import merge_files

    place = Path(folder).absolute()
    days = sorted(path for path in place.glob("*/summary.sks") if last is None or path.parent.name <= last)
    if not days:
        raise errors.SourceError(
            f"{place}: no <day>/summary.sks in it{f' up to {last}' if last else ''}; summarise a day"
        )
    merged = place / "summary.sks"
    if len(days) == 1:
        save(load(days[0]), merged)
    else:
        merge_files(days, merged)
    return merged


def select_merged(
    job: str | os.PathLike[str] | Mapping[str, Any], summary: str | os.PathLike[str], overrides: Sequence[str] = ()
) -> Path:
    """Select from a merged summary with the job's method; leave ``selection.json`` beside it and return its path.

    A method with a target leaves ``model.json`` too. The data are not read.
    """
    from sketchselect.job.load import load_job
    from sketchselect.selectors import METHODS
    from sketchselect.workflow.commands.summaries import select_from_file

    chosen, source = load_job(job, overrides).select, Path(summary)
    settings = [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in chosen.parameters.items()]
    selection = source.with_name("selection.json")
    model = source.with_name("model.json") if METHODS[chosen.method].needs_target else None
    select_from_file(source, selection, chosen.method, chosen.n_features, settings, model)
    return selection
