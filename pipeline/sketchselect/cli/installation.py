"""Commands on the installation: `doctor` checks it, `demo` runs a whole job on scikit-learn's digits."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from sketchselect.cli.shell import Fresh, JobCluster, Outcome, command
from sketchselect.errors import SketchSelectError


@command
def doctor() -> Outcome:
    """Check this installation. Versions, BLAS, memory, temporary folder, and a cluster on this machine."""
    checks = (_python, _libraries, _threads, _blas_kernel, _memory, _temporary_folder, _kernel_folder, _fold, _cluster)
    lines, healthy = [], True
    for check in checks:
        name = check.__name__.strip("_").replace("_", " ")
        try:
            lines.append(f"ok    {name}: {check()}")
        except (SketchSelectError, OSError, ImportError, MemoryError) as error:
            healthy = False
            lines.append(f"BAD   {name}: {error}")
    end = "all is well" if healthy else "a check failed, see above"
    return Outcome("\n".join([*lines, end]), {"healthy": healthy, "checks": lines}, healthy)


def _python() -> str:
    return f"{sys.version.split()[0]} at {sys.executable}"


def _libraries() -> str:
    from sketchselect.workflow.job import versions

    return ", ".join(f"{name} {version}" for name, version in versions().items() if name not in ("python", "platform"))


def _threads() -> str:
    from sketchselect.execution.engine import available_cores

    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    limits = [f"{name}={os.environ[name]}" for name in names if name in os.environ]
    return f"{available_cores()} cores, one BLAS thread a task{'; ' + ', '.join(limits) if limits else ''}"


def _blas_kernel() -> str:
    from sketchselect._blas_kernel import compare_kernels

    return compare_kernels()


def _memory() -> str:
    import psutil

    from sketchselect._byte_sizes import format_bytes

    memory = psutil.virtual_memory()
    if memory.available < 1 << 30:
        raise MemoryError(f"only {format_bytes(memory.available)} free; close something, or expect to be killed")
    return f"{format_bytes(memory.available)} of {format_bytes(memory.total)} free"


def _temporary_folder() -> str:
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="sketchselect-") as file:
        file.write(bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())
        return f"{Path(file.name).parent} can be written"


def _kernel_folder() -> str:
    from sketchselect import _kernel_cache

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


JOB = """\
# The whole job of `sketchselect demo`. Paths are relative to this file.
# Run it again:      sketchselect run {name}
# Change something:  sketchselect run {name} --set select.tolerance_proved=0.2 --set output.dir=other

[input]
url = "input/digits.zarr"        # 1797 handwritten digits, 8 x 8 pixels each
labels = "input/digit.npy"       # which digit it is: never used, only compared with at the end

[prepare]
rows = ["l2"]                    # every row scaled to length 1

[select]
method = "auto"                  # of all fast methods, the one that clusters best
n_features = "auto"              # as few of the 64 pixels as are needed so that
tolerance_proved = 0.10          # the clustering is proved to be within 10 % of the best one on all pixels

[cluster]
n_clusters = 10
random_state = 0
certificate = "auto"             # what proves it
compare_all_columns = true       # also cluster on all 64 pixels, to compare

[execution]
cluster = "threads"              # faster for so few rows; "local" starts worker processes

[output]
dir = "."
image_shape = [8, 8]
"""


@command
def demo(
    out: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder.")] = Path("sketchselect-demo"),
    cluster: JobCluster = None,
    fresh: Fresh = False,
) -> Outcome:
    """Run a whole job on 1797 digits of 8 x 8 pixels, which scikit-learn includes."""
    import numpy as np
    from sklearn.datasets import load_digits

    from sketchselect import workflow
    from sketchselect.job.load import with_cluster
    from sketchselect.readers import convert
    from sketchselect.workflow.folder import open_folder

    with open_folder(out, fresh=fresh) as folder:
        job, inputs = folder.path / "job.toml", folder.path / "input"
        inputs.mkdir(exist_ok=True)
        pixels, digit = load_digits(return_X_y=True)
        if not (inputs / "digits.zarr").exists():
            scratch = folder.staging("digits.npy")
            np.save(scratch, pixels.astype(np.float32))
            convert(scratch, inputs / "digits.zarr", chunks=(300, 64))
        if not (inputs / "digit.npy").exists():
            np.save(inputs / "digit.npy", digit.astype(np.int64))
        if not job.exists():
            job.write_text(JOB.format(name=os.path.relpath(job)))
    result = workflow.run(job, overrides=with_cluster((), cluster), progress=True)
    columns, best = result.manifest["prepared_columns"], result.certificate
    sentence = (
        f"{result.selection.support.size} of {columns} pixels do: the clustering on them is proved to be within "
        f"{math.ceil(1000 * (best.factor - 1)) / 10:.1f} % of the best one on all {columns}."
    )
    again = f"run it again, or change it:  sketchselect run {job}"
    return Outcome(f"{result.summary()}\n{again}\n{sentence}", result.manifest)
