"""A job opened, checked against its source and folder, and its state between stages.

Nothing is started before all checks have passed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import math
import os
import sys
import time
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sketchselect._blas_kernel import VARIABLE
from sketchselect._byte_sizes import format_bytes
from sketchselect._memory import trim
from sketchselect._progress import (
    LOG,
    METRICS_HEAD,
    Laps,
    LogLines,
    Metrics,
    Progress,
    SeveralProgress,
    give_detail,
    without_traceback,
)
from sketchselect._text import counted, first_names, format_seconds, without_credentials
from sketchselect._version import KERNEL_VERSION, __version__
from sketchselect.errors import (
    BadParameter,
    ClusterLost,
    ConfigError,
    Interrupted,
    NoScheduler,
    OutputFailed,
    SketchSelectError,
    SourceChanged,
)
from sketchselect.job.load import LOCAL_CLUSTER_KEYS, estimator, in_words_of_job
from sketchselect.job.schema import ClusterSettings, ExecutionSettings, JobConfig
from sketchselect.linalg.hashing import digest
from sketchselect.linalg.validation import Floats, Labels
from sketchselect.location import FULL, is_within, local_path, locate, unwritable, write_atomically
from sketchselect.readers import (
    DEFAULT_PARTITION_BYTES,
    Matrix,
    Vector,
    grouped,
    open_matrix,
    open_vector,
    row_partitions,
)
from sketchselect.readers.base import require_few_dropped
from sketchselect.readers.opening import ROW_NAMES, format_of, is_converted_table
from sketchselect.readers.results import doubt_of_target
from sketchselect.readers.row_order import names_in_unread
from sketchselect.readers.tables import ENCODINGS, different_columns, doubts_of, may_be_identifier
from sketchselect.selectors.registry import METHODS
from sketchselect.summaries import CentroidSums, RowSample, codec
from sketchselect.workflow.folder import PUBLISHED, OutputFolder, open_folder
from sketchselect.workflow.tables import column_title

if TYPE_CHECKING:
    from sketchselect.execution import Engine, PassOptions, Result, Source, Statistics
    from sketchselect.prepare import Step
    from sketchselect.selectors import BaseSelector, Selection
    from sketchselect.selectors.timelines import Periods
    from sketchselect.summaries import BlockBound, StepStatistics, Summary

VERSION = f"{__version__}/{KERNEL_VERSION}"
"""Version string in fingerprints."""


def engine_for(
    settings: ExecutionSettings, client: Any = None, progress: Progress | None = None
) -> contextlib.AbstractContextManager[Engine]:
    """Return the context of the engine that a job's ``[execution]`` names, or of the caller's `client`.

    `progress`: Told of waiting for workers.
    """
    from sketchselect.execution import open_engine

    if client is not None:
        return open_engine(client, progress=progress)
    security = None
    if settings.tls_ca and settings.tls_cert and settings.tls_key and settings.cluster not in ("local", "threads"):
        from sketchselect.execution.clusters import tls_security

        security = tls_security(settings.tls_ca, settings.tls_cert, settings.tls_key)
    return open_engine(
        settings.cluster,
        n_workers=settings.n_workers,
        memory_limit=settings.memory_limit,
        worker_ttl=settings.worker_ttl,
        security=security,
        progress=progress,
    )


FIRST_ROWS = 1000
"""Rows of a store that are read to tell identifiers."""

WIDE_COLUMNS = 1 << 16
"""Columns of sparse rows from which a sketch of them may go into panels, which worker processes share."""


FEW_NBYTES = 512 << 20
"""Rows, as rows x columns x 8 bytes, or stored entries x 16, for which to start worker processes does not pay.

The whole job on 70,000 images of 784 float32 numbers, 419 MiB as they are counted here, takes .56 of the processor time
on threads, and a store of twice as many rows .7.
"""


def suits_threads(source: Source, partition_bytes: int | str | None = None) -> bool:
    """Return whether to start worker processes would take longer than it saves.

    It does where all rows are one partition, or by default `FEW_NBYTES`.
    """
    from sketchselect.execution.engine import source_partitions

    source = replace(source, takes_sparse=True)
    if source.is_sparse and source.matrix.shape[1] > WIDE_COLUMNS:
        return False
    sizes = (None, FEW_NBYTES) if partition_bytes is None else (partition_bytes,)
    return any(len(source_partitions(source, size)) == 1 for size in sizes)


ON_THREADS = 'tasks run in threads, which is faster for so few rows; "local" would start worker processes'
"""Why threads were taken, for the log, the manifest and the plan."""


def settled(settings: ExecutionSettings, source: Source) -> ExecutionSettings:
    """Return threads in place of worker processes that no setting asks for, where they suit the source."""
    # Only of worker processes does anything notice that they stall.
    asked = bool(settings.model_fields_set & {"cluster", "stall_timeout"}) or any(
        getattr(settings, name) is not None for name in (*LOCAL_CLUSTER_KEYS, "worker_ttl")
    )
    # A source that no pass can cut is for the passes to refuse.
    with contextlib.suppress(SketchSelectError):
        if not asked and suits_threads(source, settings.partition_bytes):
            return settings.model_copy(update={"cluster": "threads"})
    return settings


def iterating_engine(engine: Engine, nbytes: int) -> Engine:
    """Return threads of this process in place of a cluster on this machine, where the data fit in their memory.

    The bits are the same; the data are then read once and cached, instead of once per iteration.
    """
    from sketchselect.cluster.kmeans.passes import CACHED_SHARE
    from sketchselect.execution import LocalEngine

    if engine.memory_limit is None:
        return engine
    memory = engine.memory_limit * (engine.n_slots // engine.slots_per_process)
    return LocalEngine(engine.n_slots, memory_limit=memory) if nbytes <= CACHED_SHARE * memory else engine


@contextlib.contextmanager
def noted_warnings(session: Session, subject: str, category: type[Warning] = UserWarning) -> Iterator[None]:
    """Make notes of the run of warnings of a category, with the subject before them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        if issubclass(warning.category, category):
            session.note(f"{subject}: {warning.message}")
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


@dataclass(frozen=True, eq=False)
class SampledStart:
    """Clusters of a sample of the rows."""

    centers: Floats  # In all prepared columns
    sample: RowSample

    def objective(self, labels: Labels) -> float:
        """Return the objective in all columns of labels of all rows, estimated from the sample."""
        sample = self.sample
        sampled = labels[sample.indices]
        sums = CentroidSums(int(sampled.max(initial=0)) + 1)
        return sums.from_block(sample.rows, sampled, sample_weight=sample.weights).objective


@dataclass
class Session:
    """A job being worked on."""

    config: JobConfig  # The job
    folder: OutputFolder  # Its output, locked
    progress: Progress  # Where progress is reported
    client: Any = None  # Replaces the job's ``[execution] cluster``; see `execution.open_engine`
    stages: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    engine_description: dict[str, Any] | None = None
    projected_nbytes: int = 0
    has_preset: bool = False
    on_threads: bool = False  # Instead of worker processes, for which the rows are too few; see `settled`
    statistics: StepStatistics | None = None
    block_bound: Result[BlockBound] | None = None  # Of the prepared rows in all columns, once it is made
    preparations: dict[str, Any] | None = None  # Comparison that ``steps = "auto"`` was decided by
    start: SampledStart | None = None  # Clusters of the summary's rows, if it has a sample of them
    _resources: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _engine: Any = None
    _vectors: dict[str, Vector] = field(default_factory=dict)

    @property
    def cluster_settings(self) -> ClusterSettings:
        """``[cluster]``, in the stages that a job without this section leaves out."""
        assert self.config.cluster is not None
        return self.config.cluster

    @cached_property
    def matrix(self) -> Matrix:
        """The source, opened and screened."""
        from sketchselect.prepare import encodings, resolve

        # Not `steps`: those of the method depend on the target, which may be a column of this matrix.
        return self.matrix_with(encodings(resolve(self.config.prepare.entries)))

    def matrix_with(self, encode: Collection[str]) -> Matrix:
        """Return the source, opened with these kinds of columns besides numbers."""
        inputs = self.config.input
        return open_matrix(
            inputs.url,
            key=inputs.key,
            storage_options=inputs.storage_options or None,
            missing_chunks=inputs.missing_chunks,
            nonfinite=inputs.nonfinite,
            feature_names=inputs.feature_names,
            vectors={
                **inputs.vectors,
                "timeline.dates": self.dates,
                "partition": self.config.select.parameters.get("partition"),
            },
            encode=encode,
        )

    @cached_property
    def identity(self) -> str | None:
        """Fingerprint of the source's content when the job began; None where it is unknown."""
        return self.matrix.identity(0, self.matrix.shape[0])

    @cached_property
    def witness(self) -> str | None:
        """Digest of rows of a source that states no versions, when the job began; None for all others."""
        return self.matrix.witness() if self.identity is None and self.matrix.is_remote else None

    @property
    def watched(self) -> dict[str, bool]:
        """``{"watched": False}`` for what is made from a source that states no versions, and nothing for all others."""
        return {} if self.witness is None else {"watched": False}

    @cached_property
    def selector(self) -> BaseSelector:
        """The unfitted estimator of the job's method, which has inspected the classes of its target."""
        with noted_warnings(self, self.config.select.method):
            return estimator(self.config, self.target)

    def target_name(self) -> str | None:
        """Return the name of the target: that of the column of the source, or of the file with several columns."""
        vector, address = self.vector("target"), self.config.input.target
        return None if vector is None else column_title(vector, address) or vector.name

    @cached_property
    def target(self) -> Vector | None:
        """The opened ``[input] target``, with the groups of its rows, if the job names any."""
        target, groups = self.vector("target"), self.vector("cv_groups")
        if target is not None and column_title(target, self.config.input.target) is None:
            names, features = [target.name], self.matrix.feature_names or ()
            if (doubt := doubt_of_target(names, features, "set input.target = {name}")) is not None:
                self.note(doubt)
        return target if target is None or groups is None else grouped(target, groups)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Prepare steps: the job's, then further steps of the method; fitted by the first stage."""
        from sketchselect.prepare import resolve

        return resolve(self.config.prepare.entries, self.selector.prepare_steps())

    def prepare_with(self, entries: Sequence[str]) -> None:
        """Prepare the rows with these steps from now on, in place of ``steps = "auto"``."""
        prepare = self.config.prepare.model_copy(update={"steps": list(entries)})
        self.config = self.config.model_copy(update={"prepare": prepare})
        for name in ("selector", "steps"):
            self.__dict__.pop(name, None)

    @property
    def is_prepared(self) -> bool:
        """Whether no step needs statistics of all rows, and the job gives none."""
        return self.config.prepare.fitted is None and all(step.is_fitted for step in self.steps)

    def fit_with(self, statistics: Summary[Any]) -> None:
        """Fit the steps with statistics that exist already; the source is not read."""
        from sketchselect.execution import LocalEngine, PassOptions, fit_steps

        fit = fit_steps(self.source, PassOptions(LocalEngine(kind="serial")), statistics=statistics)
        self.steps, self.statistics = fit.steps, fit.statistics

    @property
    def prepare_labels(self) -> tuple[str, ...]:
        """Labels of the prepare steps."""
        return tuple(step.label for step in self.steps)

    @property
    def n_columns(self) -> int:
        """Columns of the prepared rows."""
        from sketchselect.prepare import columns_after

        return columns_after(self.steps, self.matrix.shape[1])

    @property
    def source(self) -> Source:
        """The prepared rows, all columns, and the target of a method that learns from one."""
        from sketchselect.execution import Source

        target = self.target if self.selector.uses_target else None
        return Source(self.matrix, target, None, self.steps, in_double=self.selector.needs_double)

    @property
    def selects_apart(self) -> bool:
        """Whether the method selects from other rows than the prepared ones: it needs counts, and there are steps."""
        return self.selector.needs_counts and bool(self.steps)

    @property
    def selection_source(self) -> Source:
        """The rows that the method selects from: prepared, or raw for a method of counts."""
        return replace(self.source, prepare=()) if self.selects_apart else self.source

    @property
    def summary_source(self) -> Source:
        """The rows of ``summary.sks``: prepared, with the target if the method selects from this summary."""
        return self.rows if self.selects_apart else self.source

    @property
    def rows(self) -> Source:
        """The prepared rows, all columns, without a target."""
        from sketchselect.execution import Source

        return Source(self.matrix, None, None, self.steps)

    @property
    def written_rows(self) -> Source:
        """The prepared rows as ``features.zarr`` has them: missing values are written as such."""
        return replace(self.rows, takes_missing=self.config.input.nonfinite == "missing")

    def labelled_rows(self, labels_file: str) -> Source:
        """Return the prepared rows with published labels as their target."""
        labels = open_vector(str(self.folder.path / labels_file), self.matrix.shape[0], name="labels")
        return replace(self.rows, target=labels)

    @property
    def dates(self) -> str | None:
        """Address of the dates of the rows, if the job has a timeline by date."""
        return None if self.config.timeline is None else self.config.timeline.dates

    @cached_property
    def periods(self) -> Periods | None:
        """Periods of the dates of the rows, which are read for it."""
        from sketchselect.selectors.timelines import Periods

        dates = self.date_vector()
        return None if dates is None or self.config.timeline is None else Periods.of(dates, self.config.timeline.period)

    def vector(self, name: str) -> Vector | None:
        """Return ``[input] target``, ``cv_groups``, ``labels`` or ``row_names``, opened once."""
        return self._opened(name, getattr(self.config.input, name))

    def date_vector(self) -> Vector | None:
        """Return the dates of the rows, opened once; None without a timeline by date."""
        return self._opened("timeline.dates", self.dates, dates=True)

    def row_names(self) -> tuple[Any, str | None]:
        """Return the names of the rows, of the job or of the source, and their title; None where there are none."""
        given = self.vector("row_names")
        if given is not None:
            return given, column_title(given, self.config.input.row_names)
        names = self.matrix.row_names or self._naming_column
        return names, getattr(names, "name", None)

    @cached_property
    def _naming_column(self) -> Vector | None:
        return names_in_unread(self.matrix)

    def partition(self) -> Vector | None:
        """Return the labels that ``[select] partition`` names, opened once; None where it names no file."""
        address = self.config.select.parameters.get("partition")
        return self._opened("partition", None if address == "kmeans++" else address)

    def _opened(self, name: str, address: Any, *, dates: bool = False) -> Vector | None:
        if isinstance(address, str) and name not in self._vectors:
            self._vectors[name] = open_vector(
                address,
                self.matrix.shape[0],
                matrix=self.matrix,
                storage_options=self.config.input.storage_options or None,
                missing_chunks=self.config.input.missing_chunks,
                name=name,
                dates=dates,
                row_names=None if name == ROW_NAMES else self.vector(ROW_NAMES),
            )
            if (title := self._vectors[name].ordered_by) is not None:
                self.note(f"{name}: brought into the order of the source's rows by the file's column {title!r:.80}")
        return self._vectors.get(name)

    @property
    def engine(self) -> Engine:
        """Where tasks run; a cluster of our own starts here, when the first stage needs it."""
        if self._engine is None:
            self._engine = self._opened_engine()
            description = self.engine_description = self._engine.describe()
            if self.on_threads:
                description["reason"] = ON_THREADS
            if description.get("encrypted") is False and not self.starts_cluster:
                self.note(
                    "the connection to the cluster is neither encrypted nor authenticated: whoever reaches its port "
                    "can run code there; use tls:// outside a private network"
                )
        engine: Engine = self._engine
        return engine

    def _opened_engine(self) -> Engine:
        """Open the engine; exit with 75, not 1, if a scheduler that an earlier attempt reached is gone."""
        reached, cluster = self.folder.checkpoints / "cluster", self.config.execution.cluster
        try:
            engine: Engine = self._resources.enter_context(
                engine_for(self.config.execution, self.client, self.progress)
            )
        except NoScheduler as error:
            if not reached.is_file() or reached.read_text() != cluster:
                raise
            raise ClusterLost(f"{error}. An earlier run here reached it; the same command resumes") from error
        if engine.kind == "dask" and self.client is None and not (self.starts_cluster or self.folder.is_read_only):
            reached.parent.mkdir(exist_ok=True)
            reached.write_text(cluster)
        return engine

    def iterating_engine(self, nbytes: int) -> Engine:
        """Return the engine for iterating over data of this size; see `iterating_engine`."""
        return iterating_engine(self.engine, nbytes) if self.starts_cluster else self.engine

    @property
    def starts_cluster(self) -> bool:
        """Whether the job starts a cluster of its own."""
        return self.client is None and self.config.execution.cluster == "local"

    def close_engine(self, error: BaseException | None = None) -> None:
        """Close what was opened for the engine, without waiting for its tasks if an error ended the job."""
        self._engine = None
        resources, self._resources = self._resources, contextlib.ExitStack()
        resources.__exit__(None if error is None else type(error), error, None)

    @property
    def pass_options(self) -> PassOptions:
        """Options of every pass of the job."""
        from sketchselect.execution import Checkpoint, PassOptions

        execution = self.config.execution
        checkpoint = None
        if execution.checkpoint is not False:
            place = self.folder.checkpoints / "nodes" if execution.checkpoint == "auto" else execution.checkpoint
            checkpoint = Checkpoint(place, min_seconds=execution.checkpoint_seconds)
        return PassOptions(
            self.engine,
            execution.partition_bytes,
            checkpoint,
            self.progress,
            execution.retries,
            execution.stall_timeout,
        )

    def note(self, text: str) -> None:
        """Show a note now, and again in manifest and report."""
        if text not in self.notes:
            self.notes.append(text)
            self.progress.note(f"note: {text}")

    def note_dropped(self, n_dropped: int) -> None:
        """Note how many rows the policy for non-finite values left out; raise `NotFinite` if they are too many."""
        if n_dropped:
            limit, confirm = self.config.input.max_dropped, "--set input.max_dropped="
            self.note(require_few_dropped(self.matrix.address, n_dropped, self.matrix.shape[0], limit, confirm))

    def require_unchanged(self) -> None:
        """Raise `SourceChanged` if the source has changed since the job began."""
        if self.identity is not None:
            same = self.matrix.identity(0, self.matrix.shape[0]) == self.identity
        else:
            same = self.witness is None or self.matrix.witness() == self.witness
        if not same:
            raise SourceChanged(
                f"{self.matrix.address}: it was rewritten while the job ran, so nothing made from it is published; "
                "run again when it is no longer written to"
            )

    def source_fingerprint(self, **further: Any) -> dict[str, Any] | None:
        """Return the identity of the prepared rows with further entries; None if the source has no identity."""
        if self.identity is None:
            return None
        inputs = self.config.input
        return {
            "version": VERSION,
            "source": self.identity,
            "shape": list(self.matrix.shape),
            "feature_names": names_digest(self.matrix.feature_names),
            "prepare": list(self.prepare_labels),
            "policies": [inputs.nonfinite, inputs.missing_chunks],
            "partition_bytes": self.config.execution.partition_bytes,
            **further,
        }

    @cached_property
    def target_fingerprint(self) -> str | None:
        """Fingerprint of the target's content when it was first needed; None without a target."""
        return None if self.target is None else self.target.identity()

    def reusable(self, stage: str, fingerprint: dict[str, Any] | None, entry: dict[str, Any]) -> bool:
        """Fill the entry from an earlier run's finished stage if its inputs are the same."""
        result = self.folder.finished(stage, fingerprint)
        if result is None:
            changes = self.folder.differences(stage, fingerprint)
            if changes and stage not in {entry["name"] for entry in self.stages}:
                self.progress.note(
                    f"{stage}: repeated, because this changed since the last run here: {', '.join(changes)}"
                )
            if stage not in ("prepare", "summarize"):
                self.folder.invalidate_results()
            entry["build"] = list(self.engine.build())
            return False
        entry.update(result, reused=True)
        self.progress.note(f"{stage}: already done by an earlier run with the same input and settings")
        return True

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[dict[str, Any]]:
        """Time a stage; the yielded mapping becomes part of its entry in the manifest."""
        entry: dict[str, Any] = {"name": name, "seconds": 0.0, "reused": False}
        began = time.perf_counter()
        yield entry
        # Or what was freed adds up from stage to stage.
        trim() if self._engine is None else self._engine.trim()
        entry["seconds"] = round(time.perf_counter() - began, 3)
        is_again = name in {earlier["name"] for earlier in self.stages}
        self.stages.append(entry)
        if not entry["reused"]:
            say = partial(give_detail, self.progress) if is_again else self.progress.note
            say(_stage_line(entry))
        if differing := differing_builds(self.stages):
            self.note(
                f"stages of this result were computed by different libraries or processors ({'; '.join(differing)}): "
                "its bits are not those of one run; --fresh computes all of it again"
            )

    def add_statistics(self, entry: dict[str, Any], stats: Statistics) -> None:
        """Add a pass's statistics to its stage's entry; those of several passes are summed.

        Its profile is the seconds of all task slots: of each step of the tasks, and "wait" for the rest.
        """
        slots = self.engine.n_workers * self.engine.slots_per_process
        wait = max(0.0, slots * stats.seconds - sum(stats.profile.values()))
        profile = Laps.total([entry.get("profile", {}), stats.profile, {"wait": wait}])
        for name, value in stats.counts.items():
            entry[name] = entry.get(name, 0) + value
        entry["projected_nbytes"] = max(entry.get("projected_nbytes", 0), stats.projected_nbytes)
        entry["profile"] = {step: round(seconds, 3) for step, seconds in profile.items()}
        entry["build"] = list(self.engine.build())
        self.projected_nbytes = max(self.projected_nbytes, stats.projected_nbytes)
        self.note_dropped(stats.rows_dropped)
        if stats.worker_deaths:
            self.note(f"{entry['name']}: {counted(stats.worker_deaths, 'worker')} died, whose work was done again")


def _stage_line(entry: Mapping[str, Any]) -> str:
    """Return a finished stage in one line: its name, its time, and one figure."""
    figure = ""
    if "n_selected" in entry:
        figure = counted(entry["n_selected"], "column")
    elif "inertia" in entry:
        figure = f"inertia {entry['inertia']:.6g}"
    elif entry.get("bytes_read"):
        figure = f"{format_bytes(entry['bytes_read'])} read"
    return f"{entry['name']:<34} {format_seconds(entry['seconds']):>10}  {figure}".rstrip()


def differing_builds(stages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the differences between the builds of stages: versions, BLAS, processors; empty if there are none."""
    builds = [{*stage["build"]} for stage in stages if "build" in stage]
    return sorted(set.union(*builds) - set.intersection(*builds)) if builds else []


def names_digest(names: Sequence[str] | None) -> str | None:
    """Return a digest of the columns' names, which are no part of a matrix's identity, None if they have none."""
    return None if names is None else digest(json.dumps(list(names)))


class LogFile(logging.FileHandler):
    """A log file that loses records where it cannot be written, as on a full disk, and does not stop the run."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record if that is possible."""
        with contextlib.suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Report what is no failure to write, as by default."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)

    def close(self) -> None:
        """Close the file, even if its last records cannot be written."""
        with contextlib.suppress(OSError):
            super().close()


@contextlib.contextmanager
def library_logs(path: Path | None) -> Iterator[None]:
    """Send progress, and what libraries log, to a file, or nowhere, instead of to the terminal."""
    handler = logging.NullHandler() if path is None else LogFile(path, delay=True)
    handler.addFilter(without_traceback)
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(name)s %(levelname)s %(message)s"))
    loggers = logging.getLogger(), LOG
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
        handler.close()


@contextlib.contextmanager
def _metrics(path: str | None) -> Iterator[Progress]:
    """Yield what writes the file ``output.metrics``, if there is one; at the end it says whether all went well."""
    if path is None:
        yield Progress()
        return
    metrics = Metrics(partial(write_atomically, Path(path), durable=False))
    try:
        yield metrics
    except BaseException:
        metrics.close(failed=True)
        raise
    metrics.close(failed=False)


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
    from sketchselect.execution.clusters import require_main_guard

    require_main_guard()  # before the folder, which the process that started this worker has in use
    # The source is checked first: a job that cannot run leaves no folder behind.
    shown = SeveralProgress(make_progress(progress), LogLines())
    session = Session(config, OutputFolder(Path(config.output.dir)), shown, client)
    check_session(session)
    looked_at = contextlib.nullcontext(OutputFolder(Path(os.path.abspath(config.output.dir)), is_read_only=True))
    with (
        looked_at if read_only else open_folder(config.output.dir, fresh=fresh) as session.folder,
        library_logs(None if read_only else session.folder.path / "run.log"),
        _metrics(None if read_only else config.output.metrics) as metrics,
    ):
        session.progress = SeveralProgress(shown, metrics)
        if session.on_threads:
            give_detail(session.progress, ON_THREADS)
        if session.witness is not None:
            session.note(
                f"{session.matrix.address}: the server states no versions of its files, so the source was not watched: "
                "of a change during the run only that of the first or the last chunk would be seen"
            )
        kernel_notes = _kernel_notes(config.execution.blas_kernel)
        for text in (*session.matrix.notes, *unused_columns(session), *identifiers(session), *kernel_notes):
            session.note(text)
        try:
            yield session
        except BaseException as error:
            session.close_engine(error)
            if isinstance(error, (KeyboardInterrupt, Interrupted)):
                raise _interrupted(session, error, fresh) from None
            problem = None
            if isinstance(error, OutputFailed):
                problem = f"{session.folder.path}/{error}"
            elif isinstance(error, OSError) and error.errno in FULL:
                problem = f"{error.filename or session.folder.path}: {unwritable(error)}"
            if problem is None:
                raise
            raise OutputFailed(
                f"{problem} and {_same_command(fresh)}, which goes on after the stages that are saved "
                f"({_saved(session)})"
            ) from error
        session.close_engine()


def unused_columns(session: Session) -> Iterator[str]:
    """Yield a note if a table that was converted from a text file has text or dates that no prepare step takes."""
    inputs = session.config.input
    if session.selector.needs_counts or not is_converted_table(locate(inputs.url, inputs.storage_options or None)):
        return
    whole = session.matrix_with(tuple(ENCODINGS))
    names, used = whole.feature_names or (), session.matrix.feature_names or ()
    unused = {
        kind: [names[j] for j in columns if names[j] not in used]
        for kind, columns in (("text", whole.text_columns), ("dates", whole.date_columns))
    }
    kinds = [kind for kind, columns in unused.items() if columns]
    if kinds:
        columns = [name for columns in unused.values() for name in columns]
        verb, them = ("is", "it") if len(columns) == 1 else ("are", "them")
        steps = " and ".join(f'"{ENCODINGS[kind]}"' for kind in kinds)
        take = f"steps {steps} take" if len(kinds) > 1 else f"step {steps} takes"
        yield (
            f"{counted(len(columns), 'column')} of {' and '.join(kinds)} {verb} not used: {first_names(columns, 8)}; "
            f"the prepare {take} {them}, first in prepare.steps"
        )


def identifiers(session: Session) -> tuple[str, ...]:
    """Return a note if columns of a Zarr store are as identifiers are in its first rows; tables note their own."""
    inputs, matrix = session.config.input, session.matrix
    names = matrix.feature_names
    # Columns that are named are meant, and nothing is fetched for a note.
    if names is None or matrix.is_sparse or matrix.is_remote or not (inputs.key or "-").startswith("-"):
        return ()
    no_numbers = {*matrix.text_columns, *matrix.date_columns}
    columns = [j for j, name in enumerate(names) if may_be_identifier(name) and j not in no_numbers]
    if not columns or format_of(locate(inputs.url)) is not None:
        return ()
    try:
        rows = matrix.read_rows(0, min(matrix.shape[0], FIRST_ROWS))
    except SketchSelectError:
        return ()  # the pass over the rows says so
    return doubts_of(matrix.address, (), different_columns(rows[:, columns], [names[j] for j in columns]))


def _kernel_notes(kernel: str) -> Iterator[str]:
    """Yield a note if the job names a kernel of OpenBLAS that this process does not use."""
    from sketchselect.linalg.threads import blas_builds

    builds = blas_builds()
    if kernel not in ("auto", "default") and not any(kernel.casefold() in b.casefold().split() for b in builds):
        yield (
            f"execution.blas_kernel = {kernel!r}: this process uses {', '.join(builds)}, so the result has "
            f"its bits; for those of {kernel} set {VARIABLE}={kernel} before Python starts, on every worker"
        )


def _may_be_replaced(path: str) -> bool:
    """Return whether a file is empty, or a run wrote its metrics there."""
    if not os.path.isfile(path):
        return False  # such as a pipe, which is not to be waited for
    with open(path, "rb") as file:
        return file.read(len(METRICS_HEAD)) in (b"", METRICS_HEAD)


def require_apart(config: JobConfig) -> None:
    """Raise `ConfigError` where the run would write into its source, or replace it."""
    source, out = config.input.url, local_path(config.output.dir)
    places = {"output.dir": config.output.dir, "output.metrics": config.output.metrics}
    if config.execution.checkpoint not in ("auto", False):
        places["execution.checkpoint"] = str(config.execution.checkpoint)
    for key, place in places.items():
        if place is not None and is_within(place, source):
            raise ConfigError(f"{key}: {without_credentials(place)} is in the source; choose a place outside of it")
    ours = set() if out is None else {out / name for name in ("checkpoints", *PUBLISHED)}
    for file in (source, *filter(None, config.input.vectors.values())):
        inner = local_path(file)
        if inner is not None and os.path.exists(inner) and ours & {inner, *inner.parents}:
            raise ConfigError(
                f"output.dir: a run writes over {without_credentials(file)}, which it reads; choose another folder"
            )


def check_session(session: Session) -> None:
    """Raise an error for every mistake that can be found before anything is read, and settle where tasks run."""
    config = session.config
    if config.output.anndata and importlib.util.find_spec("anndata") is None:
        raise ConfigError('output.anndata: needs the package anndata: pip install "sketchselect[anndata]"')
    require_apart(config)
    if (path := config.output.metrics) is not None:
        if not os.path.isdir(folder := os.path.dirname(os.path.abspath(path))):
            raise ConfigError(f"output.metrics: no folder {folder}; create it first")
        if os.path.isdir(path):
            raise ConfigError(f"output.metrics: {path} is a folder; name a file in it")
        if os.path.lexists(path) and not _may_be_replaced(path):
            raise ConfigError(f"output.metrics: {path} is there and no file of metrics of a run; choose another name")
    if (path := config.prepare.fitted) is not None:
        try:
            session.fit_with(codec.load(Path(path)))
        except SketchSelectError as error:
            raise type(error)(f"prepare.fitted: {path}: {str(error).removeprefix(f'{path}: ')}") from None
    check_against_source(session)
    for name in ("target", "cv_groups", "labels", "row_names"):
        session.vector(name)
    _ = session.periods  # dates out of order end the job before a pass
    session.partition()
    check_method(session.selector, session.source, config.execution.partition_bytes)
    if config.timeline is not None:
        from sketchselect.selectors.timelines import require_one_summary

        try:
            require_one_summary(session.selector)
        except BadParameter as error:
            raise ConfigError(str(error)) from None
    settle_execution(session)


def settle_execution(session: Session) -> None:
    """Take threads instead of worker processes if the job leaves it open and its rows are few."""
    from sketchselect.cluster.preparation import costliest

    source, config = session.source, session.config
    if config.prepare.steps == "auto":
        source = replace(source, prepare=costliest(session.rows))
    execution = config.execution if session.client is not None else settled(config.execution, source)
    if execution is not config.execution:
        session.config, session.on_threads = config.model_copy(update={"execution": execution}), True


def check_against_source(session: Session) -> None:
    """Raise `ConfigError` with a line for everything in the job that its source makes impossible."""
    config, n_rows, n_columns = session.config, session.matrix.shape[0], session.n_columns
    address, select, problems = session.matrix.address, config.select, []
    # How many columns there are after "one-hot" is known when it is fitted.
    is_open = any(step.encodes is not None and not step.is_fitted for step in session.steps)
    if n_rows == 1:
        raise ConfigError(f"input.url: {address} has a single row, which does not differ from others; give more rows")
    limit = n_choices(select.parameters, n_columns)
    if not is_open and isinstance(select.n_features, int) and select.n_features > limit:
        noun = "columns" if limit == n_columns else "columns, squares and products"
        problems.append(f"select.n_features: {select.n_features} asked for, {address} has {limit} {noun}")
    rank = select.parameters.get("n_components")
    limits_rank = METHODS[select.method].limits_components and not is_open
    if limits_rank and isinstance(rank, int) and rank >= n_columns > 1:
        problems.append(f"select.n_components: must be below the {n_columns} columns of {address}, got {rank}")
    if config.cluster is not None and config.cluster.n_clusters > n_rows:
        problems.append(f"cluster.n_clusters: {config.cluster.n_clusters} asked for, {address} has {n_rows} rows")
    if config.cluster is not None and config.cluster.range is not None and max(config.cluster.range) > n_rows:
        problems.append(f"cluster.range: {max(config.cluster.range)} asked for, {address} has {n_rows} rows")
    shape = config.output.image_shape
    changing = [step.name for step in session.steps if step.encodes == "text" or step.n_columns(2) != 2]
    if changing and session.selector.needs_counts:
        problems.append(
            f"select.method: {select.method} selects columns of raw counts, and after {changing[0]!r} there are "
            "others; leave the step out"
        )
    if changing and shape is not None:
        problems.append(f"output.image_shape: after {changing[0]!r} the columns are others and no pixels; leave it out")
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
    try:
        selector.check_source(source)
    except BadParameter as error:
        raise ConfigError(f"select: {in_words_of_job(error)}") from None
    if selector.reads_columns:
        from sketchselect.selectors.leverage import column_source

        row_partitions(column_source(source, selector.method).matrix, column_partition_bytes(partition_bytes))


def column_partition_bytes(partition_bytes: int | None) -> int | None:
    """Return the bytes of a partition of columns: sizes for short rows would cut long columns too small."""
    return None if partition_bytes is None else max(partition_bytes, DEFAULT_PARTITION_BYTES)


def require_weights(config: JobConfig, selection: Selection | None = None) -> None:
    """Raise `ConfigError` where the job wants weighted columns and the method, or its selection, has no weights."""
    if config.cluster is None or config.cluster.weighted is False:
        return
    method = config.select.method if selection is None else selection.method
    if selection is None and METHODS[method].has_weights:
        return
    if selection is None or selection.weights is None:
        methods = ", ".join(name for name, cls in METHODS.items() if cls.has_weights)
        raise ConfigError(
            f"cluster.weighted: a selection by {method} has no weights; leave the key out, or use one of {methods}"
        )


def _finished(session: Session) -> str:
    return ", ".join(entry["name"] for entry in session.stages) or "none"


def _saved(session: Session) -> str:
    """Return the names of stages that are not done again; others may have what is in checkpoints."""
    return ", ".join(e["name"] for e in session.stages if session.folder.fingerprint(e["name"])) or "none"


def _same_command(fresh: bool) -> str:
    return "run the same command without --fresh" if fresh else "run the same command again"


def _interrupted(session: Session, error: BaseException, fresh: bool) -> Interrupted:
    saved_note = getattr(error, "saved", "")
    interrupt = Interrupted(
        f"interrupted; in {session.folder.path}: finished stages ({_finished(session)})"
        f"{saved_note and f'; {saved_note}'}; {_same_command(fresh)} to resume",
        saved_note,
    )
    interrupt.exit_code = getattr(error, "exit_code", Interrupted.exit_code)
    return interrupt
