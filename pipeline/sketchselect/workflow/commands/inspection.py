"""Descriptions of a file, folder or source in a few lines of text.

The command line's verbs on matrices: each a few lines over the layers below, and a sentence of what was done.

Checks of an installation: each reports its result, and the remedy where that is bad.

The demo: a complete job on scikit-learn's digits, with its input and job file left in the output folder.
"""

from __future__ import annotations

import math
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sketchselect import _kernel_cache
from sketchselect._blas_kernel import describe_kernels, measure_kernels
from sketchselect._text import printable
from sketchselect.errors import ConfigError, SketchSelectError
from sketchselect.location import location_of
from sketchselect.workflow.commands import Outcome
from sketchselect.workflow.commands.options import job_of
from sketchselect.workflow.folder import MARKER, open_folder, read_manifest

if TYPE_CHECKING:
    from sketchselect.workflow.job import RunResult


def inspect_target(target: str, options: Mapping[str, Any] | None = None) -> str:
    """Describe a summary file, an output folder, or anything that can be opened as a matrix.

    `options`: Arguments of `open_matrix`; with a key the target is a matrix.
    Raises `SourceError` or `DamagedFile` if it is none of these.
    """
    path = Path(target)
    if target.endswith(".sks"):
        from sketchselect.summaries import load

        lines = [f"{target}: summary file", *_summary_lines(load(target), "")]
    elif (path / MARKER).is_file() and not (options or {}).get("key"):
        text = "output folder of a run that has not finished; run the job again to resume it"
        if (path / "manifest.json").exists():
            text = read_manifest(path, lambda content: "\n".join(_run_lines(content)))
        lines = [f"{path}: {text}"]
    else:
        lines = list(_matrix_lines(location_of(target).url, options or {}))
    return "\n".join(lines)


def inspect_data(target: str, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what `inspect_target` describes, as plain data."""
    path = Path(target)
    if target.endswith(".sks"):
        from sketchselect.summaries import load

        return {"file": target, **_summary_data(load(target))}
    if (path / MARKER).is_file() and not (options or {}).get("key"):
        finished = (path / "manifest.json").exists()
        return {"folder": target, "finished": finished, **(read_manifest(path, dict) if finished else {})}
    from sketchselect.readers import open_matrix

    matrix = open_matrix(location_of(target).url, **(options or {}))
    names = None if matrix.feature_names is None else list(matrix.feature_names)
    data = {"address": matrix.address, "shape": list(matrix.shape), "dtype": str(matrix.dtype), "feature_names": names}
    return {**data, "sparse": matrix.is_sparse, "notes": list(matrix.notes)}


def _summary_data(summary: Any) -> dict[str, Any]:
    if isinstance(summary, Mapping):
        return {"members": {name: _summary_data(member) for name, member in summary.items()}}
    fields = ("kind", "format_version", "n_rows", "n_features", "nbytes", "prepare", "feature_names")
    parameters = {k: _parameter(v) for k, v in summary.parameters().items() if not hasattr(v, "shape")}
    data = {name: getattr(summary, name) for name in fields}
    return {**data, "parameters": parameters, "details": list(summary.details())}


def _summary_lines(summary: Any, indent: str) -> Iterator[str]:
    from sketchselect._byte_sizes import format_bytes

    is_bundle = isinstance(summary, Mapping)
    if is_bundle:
        size = f"{len(summary)} summaries, {summary.n_rows} rows x {summary.n_features} columns"
        yield f"{indent}{summary.kind.replace('-', ' ')} of {size}"
        for name, member in summary.items():
            yield f"{indent}  {name}:"
            yield from _summary_lines(member, indent + "    ")
        return
    parameters = ", ".join(f"{k}={_parameter(v)}" for k, v in summary.parameters().items() if not hasattr(v, "shape"))
    version = f"format version {summary.format_version}"
    yield f"{indent}kind {', '.join(filter(None, (summary.kind, version, parameters)))}"
    if summary.of_columns:
        size = f"{columns_in(summary)} columns of {summary.n_features} values each"
    else:
        size = f"{summary.n_rows} rows x {summary.n_features} columns"
    yield f"{indent}{size}, {format_bytes(summary.nbytes)}"
    yield f"{indent}prepared with: {', '.join(summary.prepare) or 'nothing'}"
    names = summary.feature_names
    if names is not None:
        shown = ", ".join(_clean(name) for name in names[:5])
        yield f"{indent}feature names: {shown}{', ...' if len(names) > 5 else ''}"
    yield from (f"{indent}{printable(line)}" for line in summary.details())


def columns_in(summary: Any) -> int:
    """Return the number of columns of the data that a summary is of."""
    if not summary.of_columns:
        return int(summary.n_features)
    from sketchselect.selectors.leverage import n_columns_seen

    return n_columns_seen(summary.seen)


def _parameter(value: Any) -> str:
    """Return a parameter in short: a description of a summary by its kind."""
    from sketchselect.summaries import Summary

    shown = value.kind if isinstance(value, Summary) else repr(value)
    return _clean(shown)


def _run_lines(content: dict[str, Any]) -> Iterator[str]:
    from sketchselect.cluster.certificates.certificate import Certificate, strongest

    source, chosen = content["source"], content["selection"]
    yield f"output folder, finished {content['finished']}"
    yield f"  source: {source['address']}, {source['shape'][0]} x {source['shape'][1]} {source['dtype']}"
    yield from (f"  note: {text}" for text in content.get("notes", ()))
    yield f"  selected: {chosen['n_selected']} columns with {chosen['method']}"
    if "model" in content:
        model = content["model"]
        yield f"  model: {model['task']} on {model['n_terms']} terms, chosen by {model['chosen_by']}"
    certificates = content.get("certificates", [])
    if certificates:
        best = strongest([Certificate.from_dict(entry) for entry in certificates])
        yield from () if best is None else (f"  {best.sentence()}",)
    if "agreement" in content:
        yield f"  NMI with the given labels: {content['agreement']['nmi']:.3f}"
    yield f"  files: {', '.join(content['files'])}"


def _matrix_lines(target: str, options: Mapping[str, Any]) -> Iterator[str]:
    from sketchselect._byte_sizes import format_bytes
    from sketchselect.readers import open_matrix, row_partitions

    matrix = open_matrix(target, **options)
    nbytes = matrix.shape[0] * matrix.shape[1] * matrix.dtype.itemsize
    yield f"{matrix.address}: {matrix.shape[0]} rows x {matrix.shape[1]} columns, {matrix.dtype}"
    if matrix.entry_offsets is not None:
        entries = int(matrix.entry_offsets[-1])
        share = f"{100 * entries / max(1, matrix.shape[0] * matrix.shape[1]):.3g} % of all values"
        yield f"  sparse: {entries} entries, {share}; {format_bytes(matrix.stored_nbytes(0, matrix.shape[0]))}"
    else:
        yield f"  {format_bytes(nbytes)} decoded, read {matrix.chunk_rows} rows at a time at least"
    if min(matrix.shape):
        partitions = row_partitions(matrix, sparse=matrix.is_sparse)
        again = (
            f", every byte decoded {partitions.read_amplification:.1f} times"
            if partitions.read_amplification > 1
            else ""
        )
        yield f"  {len(partitions)} partition{'s' * (len(partitions) > 1)} of {partitions.edges[1]} rows{again}"
    yield from (f"  note: {text}" for text in matrix.notes)
    names = matrix.feature_names
    if names is not None:
        yield f"  feature names: {', '.join(_clean(n) for n in names[:5])}{', ...' if len(names) > 5 else ''}"


def _clean(name: str) -> str:
    """Return a name that is safe to show in a terminal."""
    shown = printable(name)
    return shown if len(shown) <= 40 else shown[:37] + "..."


def cluster_on_selection(
    source: str,
    selection: Path,
    output: Path,
    *,
    n_clusters: int,
    random_state: int,
    weighted: bool | str,
    prepare: Sequence[str] | None,
    fitted: str | None,
    options: Mapping[str, Any],
    execution: Mapping[str, Any],
    fresh: bool,
) -> RunResult:
    """Cluster a source's rows on the columns of a selection file, and publish all that a job would.

    Rows are prepared as they were for the selection, unless `prepare` says otherwise: steps fitted to all rows with the
    statistics of `fitted`, or of the ``prepare.sks`` beside the selection.
    """
    from sketchselect.workflow.job import run_config
    from sketchselect.workflow.stages import features
    from sketchselect.workflow.tables import read_selection

    selected = read_selection(selection)
    cluster = {"n_clusters": n_clusters, "random_state": random_state, "weighted": weighted}
    steps = selected.prepare if prepare is None else prepare
    if fitted is None and prepare is None:
        fitted = features.beside(selection.parent, steps)
    settings = {"steps": list(steps), "fitted": fitted}
    config = job_of(source, options, settings, execution, cluster=cluster, output={"dir": str(output)})
    return run_config(config, selected, fresh=fresh, progress=True)


def convert_file(
    source: str, destination: str, chunks: str | None, key: str | None, storage: Mapping[str, Any] | None = None
) -> Outcome:
    """Convert a file to a Zarr store."""
    from sketchselect.readers import convert, open_matrix

    chunk = None
    if chunks is not None:
        match = re.fullmatch(r"([1-9][0-9]*)x([1-9][0-9]*)", chunks)
        if match is None:
            raise ConfigError(f"--chunks {chunks}: expected ROWSxCOLUMNS, for example 1000x784")
        chunk = int(match[1]), int(match[2])
    path = convert(source, destination, chunks=chunk, key=key, storage_options=storage, progress=_convert_progress())
    matrix = open_matrix(path, storage_options=storage if isinstance(path, str) else None)
    shape = matrix.shape
    data = {"store": str(path), "shape": list(shape), "dtype": str(matrix.dtype)}
    return Outcome(f"{path}: {shape[0]} x {shape[1]} {matrix.dtype}", data)


def _convert_progress() -> Any:
    import time

    from sketchselect.execution import make_progress

    progress = make_progress(True)
    last = [time.monotonic()]

    def report(done: int, total: int) -> None:
        if time.monotonic() - last[0] >= 2:
            last[0] = time.monotonic()
            progress.note(f"convert: {done} of {total} rows ({done / max(total, 1):.0%})")

    return report


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
    from sketchselect.workflow.manifest import versions

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
method = "auto"                  # the one of all fast methods that clusters best
n_features = "auto"              # as few of the 64 pixels as it takes, so that
tolerance_proved = 0.10          # the clustering is proved to be within 10 % of the best one on all of them

[cluster]
n_clusters = 10
random_state = 0
certificate = "auto"             # what proves it
compare_all_columns = true       # also cluster on all 64 pixels, to compare

[execution]
cluster = "local"
n_workers = 2

[output]
dir = "."
image_shape = [8, 8]
"""


def proved_sentence(result: RunResult) -> str:
    """Return what the demo ends with: how few pixels do, and what is proved of the clustering."""
    columns, best = result.manifest["prepared_columns"], result.certificate
    return (
        f"{result.selection.support.size} of {columns} pixels do: the clustering on them is proved to be within "
        f"{math.ceil(1000 * (best.factor - 1)) / 10:.1f} % of the best one on all {columns}."
    )


def prepare_demo(out: str | os.PathLike[str], *, fresh: bool = False) -> Path:
    """Make the folder with ``input/digits.zarr``, ``input/digit.npy`` and ``job.toml``; return the job file's path.

    Raises `NotOurFolder` or `RunInProgress` as for every output folder.
    """
    from sklearn.datasets import load_digits

    from sketchselect.readers import convert

    with open_folder(out, fresh=fresh) as folder:
        job = folder.path / "job.toml"
        inputs = folder.path / "input"
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
        return job
