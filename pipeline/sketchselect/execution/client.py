"""The engine for a user's `client`, and the options of passes from a user's keywords."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sketchselect._progress import Progress, make_progress
from sketchselect._text import did_you_mean
from sketchselect.errors import BadParameter
from sketchselect.execution.checkpoints import as_checkpoint
from sketchselect.execution.engine import CLIENTS, FitKeywords, LocalEngine, PassOptions, RunKeywords
from sketchselect.execution.plan import Engine
from sketchselect.location import is_scheduler_file, is_url, scheduler_fault, scheduler_hint
from sketchselect.readers.base import Matrix, Vector
from sketchselect.readers.dask import futures_client


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
        from sketchselect.execution.dask_engine import beside_tasks

        with connect(address, security=security, worker_ttl=worker_ttl, progress=progress) as engine:
            engine.stays_open = False
            with beside_tasks(engine.client):
                yield engine
    else:
        from sketchselect.execution.dask_engine import DaskEngine, beside_tasks

        engine = DaskEngine(client, progress=progress)
        with beside_tasks(client):
            yield engine


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


@contextmanager
def fit_options(*sources: Matrix | Vector | None, checkpoint: Any = None, **run: Any) -> Iterator[PassOptions]:
    """Yield the options of passes that can be saved."""
    folder = None if checkpoint is None else as_checkpoint(checkpoint)
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
