"""Opening of a job: source, folder and settings checked against each other before anything is started."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import logging
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sketchselect._blas_kernel import VARIABLE
from sketchselect.errors import BadParameter, ConfigError, Interrupted, SketchSelectError, Terminated
from sketchselect.job.parameters import in_words_of_job
from sketchselect.job.schema import JobConfig
from sketchselect.readers import DEFAULT_PARTITION_BYTES, row_partitions
from sketchselect.selectors.registry import METHODS
from sketchselect.workflow.folder import OutputFolder, open_folder
from sketchselect.workflow.session import Session
from sketchselect.workflow.stages import features, timeline

if TYPE_CHECKING:
    from sketchselect.execution import Source
    from sketchselect.selectors import BaseSelector, Selection


@contextlib.contextmanager
def library_logs(path: Path | None) -> Iterator[None]:
    """Send what libraries log to a file, or nowhere, instead of to the terminal."""
    handler = logging.NullHandler() if path is None else logging.FileHandler(path, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(name)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


@contextlib.contextmanager
def open_session(
    config: JobConfig, client: Any = None, *, fresh: bool = False, read_only: bool = False, progress: Any = False
) -> Iterator[Session]:
    """Open source, folder and diary of a job, checked against each other, and close everything at the end.

    A `client`, whatever `sketchselect.summarize` takes, replaces the job's ``[execution] cluster``; `fresh` discards
    the results of earlier runs in the output folder; with `read_only` nothing is written to it, not even a lock.
    Raises `ConfigError` or `SourceError` or `NotOurFolder` or `RunInProgress` before anything is started.
    """
    from sketchselect.execution import make_progress

    # The source is looked at first: a job that cannot run leaves no folder behind.
    session = Session(config, OutputFolder(Path(config.output.dir)), make_progress(progress), client)
    check_session(session)
    looked_at = contextlib.nullcontext(OutputFolder(Path(os.path.abspath(config.output.dir)), is_read_only=True))
    with (
        looked_at if read_only else open_folder(config.output.dir, fresh=fresh) as session.folder,
        library_logs(None if read_only else session.folder.path / "run.log"),
    ):
        for text in (*session.matrix.notes, *_kernel_notes(config.execution.blas_kernel)):
            session.note(text)
        try:
            yield session
        except BaseException as error:
            session.close_engine(error)
            if isinstance(error, (KeyboardInterrupt, Interrupted)):
                raise _interrupted(session, error) from None
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                place = error.filename or session.folder.path
                raise SketchSelectError(
                    f"{place}: cannot be written ({error.strerror}); make room and run the "
                    "same command again: what was finished is kept"
                ) from error
            raise
        session.close_engine()


def _kernel_notes(kernel: str) -> Iterator[str]:
    """Yield a note where the job names a kernel of OpenBLAS that this process does not use."""
    from sketchselect.linalg.threads import blas_builds

    builds = blas_builds()
    if kernel not in ("auto", "default") and not any(kernel.casefold() in b.casefold().split() for b in builds):
        yield (
            f"execution.blas_kernel = {kernel!r}: this process uses {', '.join(builds)}, so the result has "
            f"its bits; for those of {kernel} set {VARIABLE}={kernel} before Python starts, on every worker"
        )


def check_session(session: Session) -> None:
    """Raise an error for whatever can be known to be wrong before anything is read."""
    config = session.config
    if config.output.anndata and importlib.util.find_spec("anndata") is None:
        raise ConfigError('output.anndata: needs the package anndata: pip install "sketchselect[anndata]"')
    if config.prepare.fitted is not None:
        features.use_earlier(session)
    check_against_source(session)
    for name in ("target", "cv_groups", "labels", "row_names"):
        session.vector(name)
    session.partition()
    check_method(session.selector, session.source, config.execution.partition_bytes)
    if config.timeline is not None:
        timeline.check(session.selector)


def check_against_source(session: Session) -> None:
    """Raise `ConfigError` with a line for everything in the job that its source makes impossible."""
    config, n_rows, n_columns = session.config, session.matrix.shape[0], session.n_columns
    address, select, problems = session.matrix.address, config.select, []
    if isinstance(select.n_features, int) and select.n_features > (most := n_choices(select.parameters, n_columns)):
        what = "columns" if most == n_columns else "columns, squares and products"
        problems.append(f"select.n_features: {select.n_features} asked for, {address} has {most} {what}")
    rank = select.parameters.get("n_components")
    if METHODS[select.method].limits_components and isinstance(rank, int) and rank >= n_columns > 1:
        problems.append(f"select.n_components: must be below the {n_columns} columns of {address}, got {rank}")
    if config.cluster is not None and config.cluster.n_clusters > n_rows:
        problems.append(f"cluster.n_clusters: {config.cluster.n_clusters} asked for, {address} has {n_rows} rows")
    shape = config.output.image_shape
    changing = [step.name for step in session.steps if step.n_columns(2) != 2]
    if changing and session.selector.needs_counts:
        problems.append(
            f"select.method: {select.method} selects columns of raw counts, and after {changing[0]!r} there are "
            "others; leave the step out"
        )
    if changing and shape is not None:
        problems.append(
            f"output.image_shape: after {changing[0]!r} the columns are random features and no pixels; leave it out"
        )
    elif shape is not None and math.prod(shape) != n_columns:
        problems.append(
            f"output.image_shape: {list(shape)} is {math.prod(shape)} pixels, {address} has {n_columns} columns"
        )
    if problems:
        raise ConfigError("\n".join(problems))


def n_choices(parameters: Mapping[str, Any], n_columns: int) -> int:
    """Return how many features a method chooses from: the columns, or with ``degree = 2`` also their products."""
    return n_columns + n_columns * (n_columns + 1) // 2 if parameters.get("degree") == 2 else n_columns


def check_method(selector: BaseSelector, source: Source, partition_bytes: int | None) -> None:
    """Raise `ConfigError` where the method's parameters cannot work for this source."""
    matrix = source.matrix
    try:
        selector.check_parameters()
        selector.summary_description(source.n_columns)
    except BadParameter as error:
        where = f"{matrix.address} has {source.n_columns} columns"
        raise ConfigError(f"select: {in_words_of_job(error)} ({where})") from None
    if selector.reads_columns:
        from sketchselect.selectors.leverage import column_source

        row_partitions(column_source(source, selector.method).matrix, column_partition_bytes(partition_bytes))


def column_partition_bytes(partition_bytes: int | None) -> int | None:
    """Return the bytes of a partition of columns: few, as suit short rows, would cut long columns too small."""
    return None if partition_bytes is None else max(partition_bytes, DEFAULT_PARTITION_BYTES)


def require_weights(config: JobConfig, selection: Selection | None = None) -> None:
    """Raise `ConfigError` where the job wants weighted columns and the method, or its selection, has no weights."""
    if config.cluster is None or config.cluster.weighted is False:
        return
    method = config.select.method if selection is None else selection.method
    if selection is None and METHODS[method].has_weights:
        return
    if selection is None or selection.weights is None:
        weighted = ", ".join(name for name, cls in METHODS.items() if cls.has_weights)
        raise ConfigError(
            f"cluster.weighted: a selection by {method} has no weights; leave the key out, or use one of {weighted}"
        )


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
