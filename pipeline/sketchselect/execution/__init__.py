"""Passes over the data as Dask graphs: a fixed tree, engines that all give the same bits, checkpoints and progress."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sketchselect._progress import Progress, Result, Statistics, make_progress
from sketchselect.execution.api import fit_prepare, summarize
from sketchselect.execution.checkpoints import Checkpoint
from sketchselect.execution.client import open_engine
from sketchselect.execution.engine import LocalEngine, PassOptions, reduce_blocks, source_partitions
from sketchselect.execution.plan import Engine
from sketchselect.execution.source import Block, Source
from sketchselect.execution.summarize import FittedSteps, fit_steps, fitted_source, summarize_source
from sketchselect.execution.tasks import Reduction

if TYPE_CHECKING:
    from sketchselect.execution.clusters import local_cluster
    from sketchselect.execution.dask_engine import DaskEngine

__all__ = [
    "Block",
    "Checkpoint",
    "DaskEngine",
    "Engine",
    "FittedSteps",
    "LocalEngine",
    "PassOptions",
    "Progress",
    "Reduction",
    "Result",
    "Source",
    "Statistics",
    "fit_prepare",
    "fit_steps",
    "fitted_source",
    "local_cluster",
    "make_progress",
    "open_engine",
    "reduce_blocks",
    "source_partitions",
    "summarize",
    "summarize_source",
]


def __getattr__(name: str) -> Any:
    # distributed takes most of a second to import; only those who use a cluster pay for it.
    modules = {"DaskEngine": "dask_engine", "local_cluster": "clusters"}
    if name not in modules:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"sketchselect.execution.{modules[name]}"), name)
