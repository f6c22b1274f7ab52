"""What all estimators have in common: names that users see, scikit-learn's callbacks (its SLEP 23), options of passes.

The engine for a user's `client`, and the options of passes from a user's keywords, are those of other calls too.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, ClassVar, Self, TypeVar, cast

from sketchselect._progress import Progress, make_progress, reporting_tasks, surrounding_tasks
from sketchselect._sklearn import HAS_CALLBACKS, available_if
from sketchselect._text import did_you_mean
from sketchselect.errors import BadParameter
from sketchselect.execution.checkpoints import Checkpoint
from sketchselect.execution.engine import CLIENTS, FitKeywords, LocalEngine, PassOptions, PreparedKeywords, RunKeywords
from sketchselect.execution.plan import Engine
from sketchselect.location import is_scheduler_file, is_url, scheduler_fault, scheduler_hint
from sketchselect.readers.base import Matrix, Vector
from sketchselect.readers.dask import futures_client

Fit = TypeVar("Fit", bound=Callable[..., Any])


class UserEstimator:
    """Mixin of estimators whose `dir` is for users, and whose fits report to scikit-learn's callbacks, from 1.9 on."""

    implementation: ClassVar[frozenset[str]] = frozenset()
    """Methods that are for authors of estimators."""

    def __new__(cls, *arguments: Any, **parameters: Any) -> Self:
        """Return a new estimator; raise `TypeError` where prepare steps are given to it and not to its fit."""
        if "prepare" in parameters and PreparedKeywords.__name__ in str(inspect.signature(cast(Any, cls).fit)):
            name, steps = cls.__name__, parameters["prepare"]
            raise TypeError(
                f"{name}: prepare belongs to fit, not to the constructor: {name}(...).fit(X, prepare={steps})"
            )
        return super().__new__(cls)

    @available_if(lambda estimator: HAS_CALLBACKS)  # type: ignore[untyped-decorator]
    def set_callbacks(self, *callbacks: Any) -> Self:
        """Set what is called while `fit` runs, such as ``sklearn.callback.ProgressBar()``; nothing removes all.

        Tasks of a fit are its passes, with their partitions, and its loops: iterations of k-means (which end where a
        callback returns True, and of which callbacks get a fitted estimator), folds, models of a path, halves of
        stability selection. A callback may be called from several threads, one at a time.

        Raises
        ------
        TypeError
            For what is no callback.
        """
        from sklearn.callback import CallbackSupportMixin

        CallbackSupportMixin.set_callbacks(self, *callbacks)
        return self

    def __dir__(self) -> list[str]:
        """Return parameters, fitted attributes and methods for users, and nothing else."""
        cls = type(self)
        methods = {
            name
            for name in super().__dir__()
            if not name.startswith("_")
            and name not in cls.implementation
            and not isinstance(inspect.getattr_static(cls, name, None), property)
            and callable(getattr(self, name, None))
        }
        fitted = {name for name in vars(self) if name.endswith("_") and not name.startswith("_")}
        if fitted:
            computed = (name for name, value in inspect.getmembers_static(cls) if isinstance(value, property))
            fitted |= {name for name in computed if name.endswith("_") and hasattr(self, name)}
        return sorted(methods | fitted | set(cast(Any, self).get_params(deep=False)))


class FitTasks(Progress):
    """The tasks of a fit, as scikit-learn's callbacks see them: stages and their parts.

    Of stages within a stage, such as the passes of an iteration, callbacks see nothing.

    Parameters
    ----------
    context : sklearn.callback.CallbackContext
        The context of the fit.
    estimator : estimator
        What is fitted.
    data : dict
        X, y and metadata.
    """

    def __init__(self, context: Any, estimator: Any, data: Mapping[str, Any]) -> None:
        self._context, self._data = context, {"estimator": estimator, **data}
        self._lock, self._stage, self._depth, self._left = threading.Lock(), context, 0, 0

    @contextmanager
    def _calling(self) -> Iterator[None]:
        # What a callback computes, such as a score, is no task of the fit.
        with self._lock, reporting_tasks(None):
            yield

    def start(self, stage: str, total_bytes: int, n_partitions: int) -> None:
        """Begin a task with these parts."""
        with self._calling():
            self._depth += 1
            if self._depth == 1:
                self._stage = self._context.subcontext(task_name=stage, max_subtasks=n_partitions)
                self._left = n_partitions
                self._stage.call_on_fit_task_begin(**self._data)

    def advance(self, nbytes: int) -> None:
        """End a part."""
        self.end_part()

    def end_part(self, attributes: Callable[[], dict[str, Any]] | None = None) -> bool:
        """End a part, after which the estimator would have these attributes; return whether callbacks say to stop."""
        with self._calling():
            # A partition whose worker died is done twice.
            if self._depth != 1 or not self._left:
                return False
            self._left -= 1
            part = self._stage.subcontext(task_name="part").call_on_fit_task_begin(**self._data)
            return bool(part.call_on_fit_task_end(reconstruction_attributes=attributes, **self._data))

    def finish(self, stage: str) -> None:
        """End the task."""
        with self._calling():
            self._depth -= 1
            if not self._depth:
                self._stage.call_on_fit_task_end(**self._data)

    @contextmanager
    def stage(self, name: str, n_parts: int) -> Iterator[None]:
        """Be in a task of at most so many parts."""
        self.start(name, 0, n_parts)
        try:
            yield
        finally:
            self.finish(name)


def fit_tasks() -> FitTasks | None:
    """Return the tasks of the fit that runs, if it has callbacks."""
    return cast(FitTasks | None, surrounding_tasks())


def with_callbacks(fit: Fit) -> Fit:
    """Let a method `fit` report to the estimator's callbacks, if it has any."""
    signature = inspect.signature(fit)

    @wraps(fit)
    def reporting(*arguments: Any, **options: Any) -> Any:
        estimator = arguments[0]
        if "_skl_callbacks" not in vars(estimator):
            return fit(*arguments, **options)
        from sklearn.callback import CallbackSupportMixin
        from sklearn.callback import with_callbacks as with_teardown

        given = signature.bind(*arguments, **options).arguments

        def run(estimator: Any) -> Any:
            context = CallbackSupportMixin._init_callback_context(estimator, max_subtasks=None)
            weight = given.get("sample_weight")
            metadata = {} if weight is None else {"sample_weight": weight}
            data = {"X": given["X"], "y": given.get("y"), "metadata": metadata}
            context.call_on_fit_task_begin(estimator=estimator, **data)
            with reporting_tasks(FitTasks(context, estimator, data)):
                fitted = fit(*arguments, **options)
            context.call_on_fit_task_end(estimator=estimator, reconstruction_attributes=dict, **data)
            return fitted

        return with_teardown(run)(estimator)

    return cast(Fit, reporting)


@contextmanager
def run_options(
    *sources: Matrix | Vector | None,
    client: Any = None,
    partition_bytes: int | str | None = None,
    progress: Any = False,
    **unknown: Any,
) -> Iterator[PassOptions]:
    """Yield the options of passes over these sources, from what users pass; see `sketchselect.summarize`."""
    check_run(unknown)
    reporting = make_progress(progress)
    with open_engine(client, *sources, progress=reporting) as engine:
        yield PassOptions(engine, partition_bytes, progress=reporting)


def as_checkpoint(checkpoint: Checkpoint | str | os.PathLike[str] | None) -> Checkpoint | None:
    """Return a `Checkpoint` from what a user may pass."""
    if checkpoint is None or isinstance(checkpoint, Checkpoint):
        return checkpoint
    if isinstance(checkpoint, (str, os.PathLike)):
        return Checkpoint(checkpoint)
    raise BadParameter(f"checkpoint must be a folder, a URL, a Checkpoint or None, got {type(checkpoint).__name__}")


@contextmanager
def fit_options(*sources: Matrix | Vector | None, checkpoint: Any = None, **run: Any) -> Iterator[PassOptions]:
    """Yield the options of passes that can be saved."""
    folder = as_checkpoint(checkpoint)
    with run_options(*sources, **run) as options:
        yield options.but(checkpoint=folder)


def check_run(run: Mapping[str, Any]) -> None:
    """Raise `TypeError` for a keyword that is no option of a pass."""
    for name in run.keys() - RunKeywords.__annotations__.keys():
        known = list(RunKeywords.__annotations__)
        hint = did_you_mean(name, [*known, "sample_weight"], f"; known: {', '.join(known)}")
        raise TypeError(f"{name!r} is not an option{hint}")


def check_batch(unknown: Mapping[str, Any]) -> None:
    """Raise for keywords that no `partial_fit` takes; `BadParameter` for those of `fit`, with what to do instead."""
    for name in unknown:
        if name == "prepare":
            raise BadParameter(
                "partial_fit takes no prepare, whose steps may need all rows: pass batches that are prepared "
                "(sketchselect.prepare.apply(steps, X)), or use fit"
            )
        known = f"; {name} is an option of fit" * (name in FitKeywords.__annotations__)
        raise TypeError(f"partial_fit() got an unexpected keyword argument {name!r}{known}")


@contextmanager
def open_engine(
    client: Any = None,
    *sources: Matrix | Vector | None,
    n_workers: int | None = None,
    memory_limit: int | None = None,
    worker_ttl: float | None = None,
    security: Any = None,
    progress: Progress | None = None,
) -> Iterator[Engine]:
    """Yield the engine for a `client`, as in `sketchselect.summarize`, that will read these sources; close it again.

    A client, a cluster or an engine that is given stays open; "local" starts `n_workers` processes on this machine, and
    "threads" takes as many threads. A worker that is silent for `worker_ttl` seconds is given up. `security` is that
    of a connection to a scheduler, and `progress` is told of waiting for its workers.
    """
    parts = [source for source in sources if source is not None]
    if client is None:
        client = _client_for(parts)
    elif client in ("threads", "serial") and any(futures_client(part.dask_rows()) is not None for part in parts):
        raise BadParameter(f"client={client!r}: these rows are persisted on a cluster; leave out client for that")
    if client is None or client in ("threads", "serial"):
        yield LocalEngine(n_workers, memory_limit=memory_limit, kind=client or "threads")
    elif isinstance(client, Engine):
        yield client
    elif client == "local":
        from sketchselect.execution.clusters import local_cluster

        with local_cluster(n_workers, memory_limit, worker_ttl=worker_ttl) as engine:
            engine.stays_open = False
            yield engine
    elif isinstance(client, (str, os.PathLike)) or hasattr(client, "get_client"):
        address = os.fspath(client) if isinstance(client, (str, os.PathLike)) else client
        named = isinstance(address, str) and address != "env"
        if named and is_url(address) and (fault := scheduler_fault(address)) is not None:
            raise BadParameter(fault)
        if named and not (is_url(address) or is_scheduler_file(address)):
            raise BadParameter(f"client must be {CLIENTS}, got {address!r}{scheduler_hint(address)}")
        from sketchselect.execution.clusters import connect

        with connect(address, security=security, worker_ttl=worker_ttl, progress=progress) as engine:
            engine.stays_open = False
            yield engine
    else:
        from sketchselect.execution.dask_engine import DaskEngine

        yield DaskEngine(client, progress=progress)


def _client_for(sources: list[Matrix | Vector]) -> Any | None:
    """Return the client that sources ask for by themselves."""
    if "distributed" not in sys.modules:
        return None
    for source in sources:
        client = futures_client(source.dask_rows())
        if client is not None:
            return client
    return None if all(source.in_memory for source in sources) else surrounding_client()


def surrounding_client() -> Any | None:
    """Return the client that Dask's collections would use; None without one, and in a task of a worker."""
    from distributed import default_client, get_worker

    with contextlib.suppress(ValueError):
        get_worker()
        return None
    with contextlib.suppress(ValueError):
        client = default_client()
        return None if client.asynchronous else client
    return None
