"""Opening of a job: source, folder and settings checked against each other before anything is started."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sketchselect.errors import Interrupted, SketchSelectError, Terminated
from sketchselect.job.schema import JobConfig
from sketchselect.workflow.output.folder import OutputFolder, open_folder
from sketchselect.workflow.stages import preparing, timeline
from sketchselect.workflow.stages.engines import library_logs
from sketchselect.workflow.stages.method import check_against_source, check_method
from sketchselect.workflow.stages.session import Session


@contextlib.contextmanager
def open_session(
    config: JobConfig, client: Any = None, *, fresh: bool = False, progress: Any = False
) -> Iterator[Session]:
    """Open source, folder and diary of a job, checked against each other, and close everything at the end.

    Parameters
    ----------
    config : JobConfig
        The job.
    client : object, optional
        Instead of the job's ``[execution] cluster``: whatever `sketchselect.summarize` takes as its `client`.
    fresh : bool
        Discard what earlier runs left in the output folder.
    progress : bool or Progress
        Whether, or to what, progress is reported.

    Raises
    ------
    ConfigError, SourceError, NotOurFolder, RunInProgress
        Before anything is started.
    """
    from sketchselect.execution import make_progress

    # The source is looked at first: a job that cannot run leaves no folder behind.
    probe = Session(config, OutputFolder(Path(config.output.dir)), make_progress(progress), client)
    check_session(probe)
    with open_folder(config.output.dir, fresh=fresh) as folder, library_logs(folder.path / "run.log"):
        session = Session(config, folder, probe.progress, client)
        session.__dict__.update(matrix=probe.matrix, selector=probe.selector, steps=probe.steps)
        session.statistics = probe.statistics
        for text in probe.matrix.notes:
            session.note(text)
        try:
            yield session
        except BaseException as error:
            session.close_engine(error)
            if isinstance(error, (KeyboardInterrupt, Interrupted)):
                raise _interrupted(session, error) from None
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise SketchSelectError(
                    f"{error.filename or folder.path}: cannot be written ({error.strerror}); make room and run the "
                    "same command again: what was finished is kept"
                ) from error
            raise
        session.close_engine()


def check_session(session: Session) -> None:
    """Raise an error for whatever can be known to be wrong before anything is read."""
    config = session.config
    preparing.use_given(session)
    preparing.check_steps(session)
    check_against_source(config, session.matrix, session.n_columns)
    for name in ("target", "labels"):
        session.vector(name)
    session.partition()
    check_method(session.selector, session.source, config.execution.partition_bytes)
    timeline.check(config, session.selector)


def _interrupted(session: Session, error: BaseException) -> Interrupted:
    done = ", ".join(entry["name"] for entry in session.stages) or "none"
    saved = getattr(error, "saved", "")
    stopped = Interrupted(
        f"interrupted; in {session.folder.path}: finished stages ({done}){saved and f'; {saved}'}; "
        "run the same command again to resume",
        saved,
    )
    stopped.exit_code = 143 if isinstance(error, Terminated) else getattr(error, "exit_code", Interrupted.exit_code)
    return stopped
