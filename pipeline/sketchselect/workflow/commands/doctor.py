"""Checks of an installation: each reports its result, and the remedy where that is bad."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from sketchselect import _kernel_cache
from sketchselect._blas_kernel import describe_kernels, measure_kernels
from sketchselect.errors import SketchSelectError


def examine(say: Callable[[str], object]) -> bool:
    """Run every check, report each with `say`, and return whether all is well."""
    checks = (_python, _libraries, _threads, _blas_kernel, _memory, _temporary_folder, _kernel_folder, _fold, _cluster)
    healthy = True
    for check in checks:
        name = check.__name__.strip("_").replace("_", " ")
        try:
            say(f"ok    {name}: {check()}")
        except (SketchSelectError, OSError, ImportError, MemoryError) as error:
            healthy = False
            say(f"BAD   {name}: {error}")
    say("all is well" if healthy else "something is wrong, see above")
    return healthy


def _python() -> str:
    return f"{sys.version.split()[0]} at {sys.executable}"


def _libraries() -> str:
    from sketchselect.workflow.output.manifest import versions

    return ", ".join(f"{name} {version}" for name, version in versions().items() if name not in ("python", "platform"))


def _threads() -> str:
    from sketchselect.execution.engine import available_cores

    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    limits = [f"{name}={os.environ[name]}" for name in names if name in os.environ]
    return f"{available_cores()} cores, one BLAS thread a task{'; ' + ', '.join(limits) if limits else ''}"


def _blas_kernel() -> str:
    return describe_kernels(measure_kernels())


def _memory() -> str:
    import psutil

    from sketchselect._byte_sizes import format_bytes

    memory = psutil.virtual_memory()
    if memory.available < 1 << 30:
        raise MemoryError(f"only {format_bytes(memory.available)} free; close something, or expect to be killed")
    return f"{format_bytes(memory.available)} of {format_bytes(memory.total)} free"


def _temporary_folder() -> str:
    with tempfile.NamedTemporaryFile(prefix="sketchselect-") as file:
        file.write(bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())
        return f"{Path(file.name).parent} can be written"


def _kernel_folder() -> str:
    return _kernel_cache.description()


def _fold() -> str:
    import numpy as np

    from sketchselect.execution import summarize
    from sketchselect.summaries import FrequentDirections

    rows = np.random.default_rng(0).standard_normal((400, 100))
    summary = summarize(rows, FrequentDirections(size=6), partition_bytes="64KiB")
    gap = np.linalg.eigvalsh(rows.T @ rows - summary.sketch.T @ summary.sketch)
    if gap[0] < -1e-6 or gap[-1] > summary.shrinkage + 1e-6:
        raise SketchSelectError(
            "a sketch breaks its guarantee on this machine: the numeric libraries are broken; reinstall"
        )
    return "a sketch keeps its guarantee"


def _cluster() -> str:
    import numpy as np

    from sketchselect.execution import local_cluster, summarize
    from sketchselect.summaries import ColumnStats

    with local_cluster(n_workers=1) as engine:
        summary = summarize(np.ones((10, 3)), ColumnStats(), client=engine)
    return f"a worker process starts on this machine's loopback and summarises {summary.n_rows} rows"
