"""Checks of a cluster before work is sent to it."""

from __future__ import annotations

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
    builds = {tuple(build) for build in client.run(local_build).values()}
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
    return any(
        ask_workers(client, lambda dask_worker: any(token in str(task.key) for task in dask_worker.state.executing))
    )


def ask_workers(client: Any, question: Any) -> list[Any]:
    """Return what workers answer; those that do not answer in time are left out.

    `client.run` alone would wait for ever for a worker that is cut off.
    """
    with contextlib.suppress(Exception):
        answers = client.sync(client._run, question, on_error="ignore", callback_timeout=ANSWER_SECONDS)
        return list(answers.values())
    return []


def probe_folder(client: Any, directory: str | os.PathLike[str]) -> bool:
    """Return whether every worker can write files in a folder (or under a URL) that this process then sees."""
    place = location_of(directory)

    def write() -> str:
        name = f".probe-{uuid4().hex}"
        place.join(name).write(b"probe", durable=False)
        return name

    try:
        if place.is_local:
            os.makedirs(place.url, exist_ok=True)
        answers = client.run(write, on_error="return")
    except Exception:
        return False
    seen = 0
    for name in answers.values():
        if isinstance(name, str):
            with contextlib.suppress(Exception):
                place.join(name).remove()
                seen += 1
    return seen == len(answers)
