"""Running a pass over the data: a fixed plan, engines that all give the same bits, checkpoints and progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sketchselect.execution.checkpoints.index import Checkpoint
from sketchselect.execution.client import as_engine
from sketchselect.execution.engine import Engine, SerialEngine
from sketchselect.execution.fitting import FittedSteps, fit_prepare, fit_steps, fitted_source
from sketchselect.execution.graph.tree import Plan, make_plan
from sketchselect.execution.memory.projection import Projection, projection
from sketchselect.execution.progress import Progress, make_progress
from sketchselect.execution.run import PassStats, Reduced, reduce_blocks
from sketchselect.execution.source import Block, Source
from sketchselect.execution.summarize import summarize, summarize_source
from sketchselect.execution.threads_engine import ThreadEngine

if TYPE_CHECKING:
    from sketchselect.execution.dask.clusters import local_cluster
    from sketchselect.execution.dask.engine import DaskEngine

__all__ = [
    "Block",
    "Checkpoint",
    "DaskEngine",
    "Engine",
    "FittedSteps",
    "PassStats",
    "Plan",
    "Progress",
    "Projection",
    "Reduced",
    "SerialEngine",
    "Source",
    "ThreadEngine",
    "as_engine",
    "fit_prepare",
    "fit_steps",
    "fitted_source",
    "local_cluster",
    "make_plan",
    "make_progress",
    "projection",
    "reduce_blocks",
    "summarize",
    "summarize_source",
]


def __getattr__(name: str) -> Any:
    # distributed takes most of a second to import; only those who use a cluster pay for it.
    if name == "DaskEngine":
        from sketchselect.execution.dask.engine import DaskEngine

        return DaskEngine
    if name == "local_cluster":
        from sketchselect.execution.dask.clusters import local_cluster

        return local_cluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
