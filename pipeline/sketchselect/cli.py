"""The command line: a thin shell over `sketchselect.workflow`. What is heavy is imported inside the commands."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from sketchselect.errors import BadParameter, SketchSelectError, Terminated

INTERRUPTED = "interrupted; what was finished is kept: run the same command again to resume"

GRACE_SECONDS = 3.5
"""Time for tidying up after Ctrl-C or SIGTERM; then the process ends as it is."""

app = typer.Typer(
    name="sketchselect",
    help="Which columns of a matrix too big for memory matter, and how good the answer provably is.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Cluster = Annotated[
    str, typer.Option("--cluster", help="local, threads, serial, env, or the address of a Dask scheduler.")
]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Worker processes (or threads); one per core.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Fresh = Annotated[bool, typer.Option("--fresh/--resume", help="Discard what an earlier run left, or go on from it.")]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override one key of the job, such as select.n_features=50; may be repeated; "
        "paths are relative to the job file.",
    ),
]
Key = Annotated[str | None, typer.Option("--key", help="Name of the array inside the store.")]
Prepare = Annotated[list[str] | None, typer.Option("--prepare", help="A row step, such as l2; may be repeated.")]
Partition = Annotated[str | None, typer.Option("--partition-bytes", help='Size of a partition, such as "128MiB".')]


def _show_version(wanted: bool) -> None:
    if wanted:
        from sketchselect import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Read the options that stand before a command."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Output folder.")] = Path("sketchselect-demo"),
    cluster: Cluster = "local",
    fresh: Fresh = False,
    debug: Debug = False,
) -> None:
    """Run the whole job on real data that ships with scikit-learn: 1797 digits of 8 x 8 pixels."""
    with plain_errors(debug):
        from sketchselect.workflow.demo import prepare_demo
        from sketchselect.workflow.job import run

        job = prepare_demo(out, fresh=fresh)
        typer.echo(run(job, overrides=[f'execution.cluster="{cluster}"'], progress=True).summary())
        typer.echo(f"run it again, or change it:  sketchselect run {job}")


@app.command()
def run(
    job: Annotated[Path, typer.Argument(help="A job file, TOML or YAML.")],
    cluster: Annotated[str | None, typer.Option("--cluster", help="Instead of the job's execution.cluster.")] = None,
    fresh: Fresh = False,
    settings: Sets = None,
    debug: Debug = False,
) -> None:
    """Run a whole job: summarise, select, cluster, certify, report."""
    with plain_errors(debug):
        from sketchselect.workflow.job import run as run_job

        overrides = [*(settings or []), *([f'execution.cluster="{cluster}"'] if cluster else [])]
        typer.echo(run_job(job, overrides=overrides, fresh=fresh, progress=True).summary())


@app.command()
def summarize(
    source: Annotated[str, typer.Argument(help="A path or URL of a matrix.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The summary file to write (.sks).")],
    size: Annotated[int, typer.Option("--size", min=2, help="Rows of the sketch.")] = 64,
    sketch: Annotated[bool, typer.Option("--sketch/--no-sketch", help="Keep a sketch, or none.")] = True,
    moments: Annotated[bool, typer.Option("--moments", help="Also keep exact means and covariances.")] = False,
    target: Annotated[
        str | None, typer.Option("--target", help="One target per row, kept by the moments: a file, or an array.")
    ] = None,
    classes: Annotated[bool, typer.Option("--classes", help="The target holds class labels, not numbers.")] = False,
    folds: Annotated[
        int | None, typer.Option("--folds", min=2, help="Moments by fold: cross-validation needs no further pass.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Decides which row is in which fold.")] = 0,
    half_life: Annotated[
        float | None, typer.Option("--half-life", help="Moments that forget: rows after which a row counts half.")
    ] = None,
    degree: Annotated[int, typer.Option("--degree", min=1, max=2, help="2: moments of squares and products too.")] = 1,
    prepare: Prepare = None,
    key: Key = None,
    nonfinite: Annotated[str, typer.Option("--nonfinite", help="error, drop_rows or missing.")] = "error",
    missing_chunks: Annotated[str, typer.Option("--missing-chunks", help="error or fill.")] = "error",
    partition_bytes: Partition = None,
    checkpoint: Annotated[Path | None, typer.Option("--checkpoint", help="Folder for checkpoints.")] = None,
    cluster: Cluster = "local",
    workers: Workers = None,
    debug: Debug = False,
) -> None:
    """Read a matrix once and keep its summary: column statistics, a sketch, and moments, in one small file."""
    with plain_errors(debug):
        from sketchselect.workflow.summary_files import Wanted, summarize_to_file

        text = summarize_to_file(
            source,
            output,
            Wanted(size, sketch, moments, target, classes, folds, seed, half_life, degree),
            prepare=prepare or [],
            checkpoint=checkpoint,
            options={"key": key, "nonfinite": nonfinite, "missing_chunks": missing_chunks},
            execution={"cluster": cluster, "n_workers": workers, "partition_bytes": partition_bytes},
        )
        typer.echo(text)


@app.command()
def merge(
    files: Annotated[list[Path], typer.Argument(help="Two or more summary files of different rows.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The summary file to write (.sks).")],
    debug: Debug = False,
) -> None:
    """Merge summary files, in the order given, into the summary of all their rows."""
    with plain_errors(debug):
        from sketchselect.workflow.summary_files import merge_files

        typer.echo(merge_files(files, output))


@app.command()
def select(
    file: Annotated[Path, typer.Argument(help="A summary file (.sks).")],
    method: Annotated[str, typer.Option("--method", help="Selection method, such as sketched-ridge.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The selection file to write (.json).")],
    features: Annotated[
        int | None,
        typer.Option("--features", min=1, help="How many columns; some methods choose the number themselves."),
    ] = None,
    model: Annotated[
        Path | None, typer.Option("--model", help="Where to write the fitted model (.json), for methods with a target.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the method, such as alpha=paper."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Select columns from a summary file, without the data."""
    with plain_errors(debug):
        from sketchselect.workflow.summary_files import select_from_file

        typer.echo(select_from_file(file, output, method, features, settings or [], model))


@app.command()
def cluster(
    source: Annotated[str, typer.Argument(help="A path or URL of a matrix.")],
    selection: Annotated[Path, typer.Option("--selection", help="The selection file of `sketchselect select`.")],
    clusters: Annotated[int, typer.Option("--clusters", min=1, help="Number of clusters.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Output folder.")],
    prepare: Annotated[
        list[str] | None, typer.Option("--prepare", help="A row step; as for the selection if not given.")
    ] = None,
    key: Key = None,
    labels: Annotated[str | None, typer.Option("--labels", help="Known labels, to compare with.")] = None,
    random_state: Annotated[int, typer.Option("--random-state", min=0, help="Seed.")] = 0,
    weighted: Annotated[
        str, typer.Option("--weighted", help="true, false or both: multiply the columns by the selection's weights.")
    ] = "false",
    where: Cluster = "local",
    workers: Workers = None,
    fresh: Fresh = False,
    debug: Debug = False,
) -> None:
    """Cluster the rows of a matrix on selected columns."""
    with plain_errors(debug):
        from sketchselect.workflow.verbs import cluster_on_selection

        text = cluster_on_selection(
            source,
            selection,
            output,
            n_clusters=clusters,
            random_state=random_state,
            weighted={"true": True, "false": False}.get(weighted, weighted),
            prepare=prepare,
            options={"key": key, "labels": labels},
            execution={"cluster": where, "n_workers": workers},
            fresh=fresh,
        )
        typer.echo(text)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="The output folder of a run.")],
    debug: Debug = False,
) -> None:
    """Make report.html of a finished run again."""
    with plain_errors(debug):
        from sketchselect.workflow.pages import render_folder

        typer.echo(f"report: {render_folder(folder)}")


@app.command()
def inspect(
    target: Annotated[str, typer.Argument(help="A summary file, an output folder, or a matrix.")],
    key: Key = None,
    debug: Debug = False,
) -> None:
    """Say what a summary file, an output folder or a source holds."""
    with plain_errors(debug):
        from sketchselect.workflow.inspection import inspect_target

        typer.echo(inspect_target(target, key))


@app.command()
def convert(
    source: Annotated[str, typer.Argument(help="A .npy, .npz, .csv or .mtx file, or a store with other chunks.")],
    destination: Annotated[Path, typer.Argument(help="The Zarr store to make.")],
    chunks: Annotated[
        str | None, typer.Option("--chunks", metavar="ROWSxCOLUMNS", help="For example 1000x784.")
    ] = None,
    key: Key = None,
    debug: Debug = False,
) -> None:
    """Convert a matrix to a Zarr store with checksums, chunked for reading by rows."""
    with plain_errors(debug):
        from sketchselect.workflow.verbs import convert_file

        typer.echo(convert_file(source, destination, chunks, key))


@app.command()
def doctor(debug: Debug = False) -> None:
    """Check this installation: versions, BLAS, memory, temporary folder, and a cluster on this machine."""
    with plain_errors(debug):
        from sketchselect.workflow.doctor import examine

        healthy = examine(typer.echo)
    if not healthy:
        raise typer.Exit(1)


@contextlib.contextmanager
def plain_errors(debug: bool) -> Iterator[None]:
    """Turn what goes wrong into one readable line and the right exit code, and SIGTERM into an orderly end."""
    with _orderly_signals(), _plain_warnings():
        try:
            yield
        except (SketchSelectError, KeyboardInterrupt, OSError, MemoryError, ImportError) as error:
            if debug and not isinstance(error, KeyboardInterrupt):
                raise
            _end(error)
        except typer.Exit:
            raise
        except Exception as error:
            if debug:
                raise
            _say(f"unexpected {type(error).__name__}: {_one_line(error)} (--debug shows where; please report it)")
            raise typer.Exit(1) from None


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Say what a warning says, once and without lines of code; what is not meant for users goes to the log."""
    import warnings

    said: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        text = _one_line(message)
        if text in said:
            return
        said.add(text)
        if issubclass(category, UserWarning):
            print(f"warning: {text}", file=sys.stderr, flush=True)
        else:
            import logging

            logging.getLogger("py.warnings").info("%s: %s", category.__name__, text)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _end(error: BaseException) -> NoReturn:
    if isinstance(error, KeyboardInterrupt):
        _say(INTERRUPTED)
        raise typer.Exit(143 if isinstance(error, Terminated) else 130) from None
    if isinstance(error, SketchSelectError):
        for line in str(error).splitlines():
            _say(line)
        # Whatever parameter a layer below refuses was written in the job file or on the command line.
        raise typer.Exit(2 if isinstance(error, BadParameter) else error.exit_code) from None
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        _say(f"{place}{error.strerror or _one_line(error)}")
    else:
        _say(f"{type(error).__name__}: {_one_line(error)}")
    raise typer.Exit(1) from None


def _say(line: str) -> None:
    print(f"error: {line}", file=sys.stderr, flush=True)


def _one_line(error: BaseException | str) -> str:
    return " ".join(str(error).split())[:500]


@contextlib.contextmanager
def _orderly_signals() -> Iterator[None]:
    """Raise in the main thread on Ctrl-C and SIGTERM, and end the process if tidying up takes too long."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []

    def stop(number: int, frame: Any) -> None:
        if seen:
            return
        seen.append(number)
        threading.Thread(target=_end_soon, args=(128 + number,), daemon=True).start()
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_soon(code: int) -> None:
    time.sleep(GRACE_SECONDS)
    import multiprocessing

    _say(INTERRUPTED)
    for child in multiprocessing.active_children():
        child.kill()
    os._exit(code)


def main() -> None:
    """Run the command line."""
    app()
