"""Checks of a cluster before work is sent to it."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
from collections import Counter
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from sketchselect.errors import BadCluster
from sketchselect.execution.engine import local_build
from sketchselect.location import location_of

CHECKED = ("sketchselect", "numpy", "scipy", "numba", "zarr", "dask")
"""Packages that must have the same version everywhere."""

ANSWER_SECONDS = 10.0
"""Seconds in which workers have to answer a question."""


def worker_builds(client: Any) -> list[tuple[str, ...]]:
    """Return what decides the bits on the workers, once for every kind of worker.

    Raises `BadCluster` if a worker lacks a package or has another version than this process; the message lists them.
    """
    try:
        versions = client.get_versions(packages=list(CHECKED))
    except OSError:
        raise
    except Exception as error:
        raise BadCluster(f"the workers cannot be asked for their versions ({type(error).__name__})") from error
    ours = _named_versions(versions["client"])
    wrong = Counter(
        (name, version)
        for worker in versions["workers"].values()
        for name, version in _named_versions(worker).items()
        if version != ours[name]
    )
    if wrong:
        listed = "; ".join(
            f"{name} {version} on {count} worker(s), {ours[name]} here"
            for (name, version), count in sorted(wrong.items())
        )
        raise BadCluster(f"workers and client have different libraries: {listed}. Use the same environment everywhere")
    builds = {tuple(build) for build in ask_workers(client, local_build)}
    return sorted(builds) or [local_build()]


def _named_versions(answer: Any) -> dict[str, str]:
    """Return the versions of Python (without the last number) and of the packages that are compared."""
    packages = answer["packages"]
    versions = {name: packages.get(name) or "missing" for name in CHECKED}
    return {"python": ".".join(packages["python"].split(".")[:2]), **versions}


def is_exposed(address: str) -> bool:
    """Return whether traffic to a scheduler leaves this machine unencrypted."""
    parts = urlsplit(address)
    if parts.scheme not in ("tcp", "ws") or not parts.hostname or parts.hostname == "localhost":
        return False
    try:
        return not ipaddress.ip_address(parts.hostname).is_loopback
    except ValueError:
        return True


def scheduler_settings(client: Any) -> dict[str, Any]:
    """Return settings as they are in effect on the scheduler; ours have no effect there if it runs elsewhere."""
    names = ("allowed_failures", "worker_ttl")
    with contextlib.suppress(Exception):  # a scheduler may forbid to be asked
        return dict(client.run_on_scheduler(lambda dask_scheduler: {n: getattr(dask_scheduler, n) for n in names}))
    return {}


def runs_tasks(client: Any, token: str) -> bool:
    """Return whether a worker still runs tasks of a pass: those that were cancelled run on to their end."""
    return any(ask_workers(client, lambda dask_worker: any(token in str(key) for key in dask_worker.active_keys)))


def ask_workers(client: Any, question: Any) -> list[Any]:
    """Return what workers answer; those that have died, or do not answer in time, are left out.

    `client.run` alone would wait for ever for a worker that is cut off, and so would the others' answers.
    """

    async def ask(workers: list[str]) -> list[Any]:
        asked = [asyncio.ensure_future(client._run(question, workers=[w], on_error="ignore")) for w in workers]
        done, late = await asyncio.wait(asked, timeout=ANSWER_SECONDS)
        for one in late:
            one.cancel()
        return [answer for one in asked if one in done and not one.exception() for answer in one.result().values()]

    with contextlib.suppress(Exception):
        workers = list(client.scheduler_info(n_workers=-1)["workers"])
        return list(client.sync(ask, workers)) if workers else []
    return []


def probe_folder(client: Any, directory: str | os.PathLike[str]) -> bool:
    """Return whether every worker can write files in a folder (or under a URL) that this process then sees."""
    place = location_of(directory)

    def write() -> str | None:
        name = f".probe-{uuid4().hex}"
        with contextlib.suppress(Exception):
            place.join(name).write(b"probe", durable=False)
            return name
        return None

    try:
        if place.is_local:
            os.makedirs(place.url, exist_ok=True)
    except OSError:
        return False
    answers, seen = ask_workers(client, write), 0
    for name in answers:
        if name is not None:
            with contextlib.suppress(Exception):
                place.join(name).remove()
                seen += 1
    return seen == len(answers) > 0
