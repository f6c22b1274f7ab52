"""From what a user may pass as `client` to an engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sketchselect.errors import BadParameter
from sketchselect.execution.engine import Engine, SerialEngine
from sketchselect.execution.threads_engine import ThreadEngine

_SCHEMES = ("tcp://", "tls://", "ws://", "wss://", "inproc://")


@contextmanager
def as_engine(client: Any = None) -> Iterator[Engine]:
    """Yield the engine for `client`, and close what was opened for it.

    Parameters
    ----------
    client : None, str, distributed.Client or Engine
        None or "threads": threads of this process; "serial"; the address of a scheduler; "env": the address in
        ``DASK_SCHEDULER_ADDRESS``; a client or an engine is used and left open.

    Examples
    --------
    >>> with as_engine("serial") as engine:
    ...     engine.kind
    'serial'
    """
    if client is None or client == "threads":
        yield ThreadEngine()
    elif client == "serial":
        yield SerialEngine()
    elif isinstance(client, str):
        if client != "env" and not client.startswith(_SCHEMES):
            raise BadParameter(
                f'client must be "threads", "serial", "env" or the address of a scheduler (tcp://...), got {client!r}'
            )
        from sketchselect.execution.dask.clusters import connect

        with connect(client) as engine:
            yield engine
    elif _is_engine(client):
        yield client
    else:
        from sketchselect.execution.dask.engine import DaskEngine

        yield DaskEngine(client)


def _is_engine(client: Any) -> bool:
    return all(hasattr(client, name) for name in ("kind", "run", "describe", "build", "can_write"))
