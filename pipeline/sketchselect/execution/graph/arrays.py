"""Tasks of the user's Dask arrays inside the graph of a pass, and the partition that one of them belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from dask.core import get_dependencies
from dask.task_spec import Task


def partition_of(failed: Any, graph: Mapping[Any, Any], keys: Sequence[Sequence[Any]]) -> int | None:
    """Return the first partition whose rows depend on a task; None if none does."""
    for partition, pieces in enumerate(zip(*keys, strict=True)):
        waiting, seen = [*pieces], set()
        while waiting:
            key = waiting.pop()
            if key == failed:
                return partition
            if key not in seen and key in graph:
                seen.add(key)
                waiting += get_dependencies(graph, key)
    return None


class UserTaskFailed(Exception):
    """An error in a task of the user's graph: the key of the task, and the error as the cause."""


def naming_failures(graph: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a graph whose tasks raise `UserTaskFailed`; local schedulers do not say which task has failed."""
    return {
        key: Task(key, partial(_named, key, task.func), *task.args, **task.kwargs) if type(task) is Task else task
        for key, task in graph.items()
    }


def _named(key: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        return function(*args, **kwargs)
    except Exception as error:
        raise UserTaskFailed(key) from error
