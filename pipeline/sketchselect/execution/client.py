"""The engine for what a user passes as `client`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sketchselect.errors import BadParameter
from sketchselect.execution.engine import CLIENTS, Engine, LocalEngine
from sketchselect.location import is_scheduler_file
from sketchselect.readers.arrays.dask import futures_client
from sketchselect.readers.base import Matrix
from sketchselect.readers.vector import Vector

_SCHEMES = ("tcp://", "tls://", "ws://", "wss://", "inproc://")


@contextmanager
def as_engine(client: Any = None, *sources: Matrix | Vector | None) -> Iterator[Engine]:
    """Yield the engine for `client`, and close what was opened for it.

    Parameters
    ----------
    client : None, str, path, distributed.Client, Cluster or Engine
        "threads" or "serial": Dask's schedulers in this process; the address of a scheduler, or its scheduler file
        (``.json``); "env": the address in ``DASK_SCHEDULER_ADDRESS``; a client, a cluster or an engine is used and
        left open. None: the client of persisted Dask arrays; for other Dask arrays, stores and files the surrounding
        client, as with Dask's own collections; threads where there is none, and for arrays in this process's memory.
    *sources : Matrix or Vector
        What will be read.

    Examples
    --------
    >>> with as_engine("serial") as engine:
    ...     engine.kind
    'serial'
    """
    parts = [source for source in sources if source is not None]
    if client is None:
        client = _client_for(parts)
    elif client in ("threads", "serial") and any(futures_client(part.dask_rows()) is not None for part in parts):
        raise BadParameter(
            f"client={client!r}: these rows are persisted on a cluster; leave out client to compute there"
        )
    if client is None or client == "threads":
        yield LocalEngine()
    elif client == "serial":
        yield LocalEngine(kind="serial")
    elif isinstance(client, Engine):
        yield client
    elif isinstance(client, (str, os.PathLike)) or hasattr(client, "get_client"):
        address = os.fspath(client) if isinstance(client, (str, os.PathLike)) else client
        named = isinstance(address, str) and address != "env"
        if named and not (address.startswith(_SCHEMES) or is_scheduler_file(address)):
            raise BadParameter(f"client must be {CLIENTS}, got {address!r}")
        from sketchselect.execution.dask.clusters import connect

        with connect(address) as engine:
            yield engine
    else:
        from sketchselect.execution.dask.engine import DaskEngine

        yield DaskEngine(client)


def _client_for(sources: list[Matrix | Vector]) -> Any | None:
    """Return the client that sources ask for by themselves."""
    if "distributed" not in sys.modules:
        return None
    for source in sources:
        client = futures_client(source.dask_rows())
        if client is not None:
            return client
    if all(source.in_memory for source in sources):
        return None
    return surrounding_client()


def surrounding_client() -> Any | None:
    """Return the client that Dask's collections would use; None in a task of a worker, and where there is none."""
    from distributed import default_client, get_worker

    with contextlib.suppress(ValueError):
        get_worker()
        return None
    with contextlib.suppress(ValueError):
        client = default_client()
        return None if client.asynchronous else client
    return None
