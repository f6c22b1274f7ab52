"""Context of every command: shared options, results and errors as readable lines, shutdown, standard streams."""

from __future__ import annotations

import contextlib
import contextvars
import errno
import functools
import inspect
import os
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn, TextIO, cast, get_type_hints

import typer
import typer.core

from sketchselect._text import LogStream, printable, without_credentials
from sketchselect.errors import (
    NO_MORE_THREADS,
    BadParameter,
    HungUp,
    Interrupted,
    SketchSelectError,
    Terminated,
    is_out_of_threads,
)

INTERRUPTED = "interrupted; run the same command again"
RESUMABLE = "interrupted; finished work is kept: run the same command again to resume"
RESUMING = ("run", "cluster", "compare", "demo")
"""Commands that keep finished stages; so does any that is given a folder for checkpoints."""

STOPPING: dict[signal.Signals, type[KeyboardInterrupt]] = {
    getattr(signal, name): error
    for name, error in (("SIGINT", KeyboardInterrupt), ("SIGTERM", Terminated), ("SIGHUP", HungUp))
    if hasattr(signal, name)  # Windows has no SIGHUP
}
"""Signals that end a command in good order, and what they raise; whoever starts it may have it ignore some."""

GRACE_SECONDS = 3.5
"""Seconds to clean up after such a signal before the process is ended."""

EXIT_MESSAGE_SECONDS = 0.5
"""Seconds to write the exit message."""

REMOVAL_SECONDS = 3.0
"""Seconds to remove what was half written; with those above less than the ten after which Docker kills a process."""

DASK_CONFIG_ERROR = "A dask config file at"
"""How the `ValueError` begins that importing Dask ends with where a file of its configuration cannot be read."""

SHARED_OPTIONS = {
    "as_json": Annotated[bool, typer.Option("--json", help="Print the result as JSON, and no progress.")],
    "quiet": Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress, the result alone.")],
    "verbose": Annotated[bool, typer.Option("--verbose", "-v", help="Print every pass, and what libraries log.")],
    "debug": Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")],
    "log_format": Annotated[
        str, typer.Option("--log-format", metavar="text|json", help="Lines on standard error: text, or JSON records.")
    ],
}
LOG_FORMATS = ("text", "json")
RENAMED = {
    "--out": "--output",
    "--features": "--n-features",
    "--cluster": "--scheduler",
    "--scheduler-file": "--scheduler",
    "--clusters": "--n-clusters",
    "--seed": "--random-state",
    "--objective": "--inertia",
    "--workers": "--n-workers",
}
"""Former name of an option -> its name; the command line takes both."""

METAVARS = {
    "N": "--after --block-rows --folds --n-clusters --n-features --n-workers --random-state --sample --size"
    " --top-values",
    "0..1": "--fraction --max-dropped",
    "FILE": "--csv --fitted --model --output --selection --write-fitted",
    "FILE|NAME": "--batches --labels --row-names --target --weight",
    "NAME": "--key --method",
}
"""Placeholder of a value in the help -> options that have it, unless a command says otherwise."""

_METAVARS = {option: metavar for metavar, options in METAVARS.items() for option in options.split()}


class Outcome(NamedTuple):
    """Result of a command: its text, its data and its exit code."""

    text: str
    data: Any  # Printed by ``--json``
    is_good: bool = True  # Whether the exit code is 0
    exit_code: int = 1  # The exit code otherwise


def command(function: Callable[..., Outcome]) -> Callable[..., None]:
    """Return a command of a function that returns an `Outcome`, with the shared options."""

    @functools.wraps(function)
    def run(*, as_json: bool, quiet: bool, verbose: bool, debug: bool, log_format: str, **parameters: Any) -> None:
        from sketchselect._memory import share_heap

        share_heap()
        logs_json = log_format == "json"
        resumes = function.__name__ in RESUMING or parameters.get("checkpoint") is not None
        interrupted = RESUMABLE if resumes else INTERRUPTED
        with _reporting(quiet or as_json, verbose, logs_json), plain_errors(debug, as_json, interrupted):
            if log_format not in LOG_FORMATS:
                raise BadParameter(f"--log-format: {' or '.join(LOG_FORMATS)}, got {log_format!r:.40}")
            if re.fullmatch(r" *\+?0*[1-9][0-9]* *", threads := os.environ.get("NUMBA_NUM_THREADS", "1")) is None:
                # Numba would end with a traceback, or print one and go on.
                raise BadParameter(
                    f"NUMBA_NUM_THREADS must be at least 1, got {threads!r:.40}; correct it, or unset it"
                )
            if re.fullmatch(r"\d{1,11}", date := os.environ.get("SOURCE_DATE_EPOCH", "0")) is None:
                # NumPy reads it, of all places, when SciPy is imported.
                raise BadParameter(
                    f"SOURCE_DATE_EPOCH must be seconds since 1970, got {date!r:.40}; correct it, or unset it"
                )
            _require_local(parameters.values())
            outcome = function(**parameters)
            if as_json:
                from sketchselect.workflow.tables import plain_value

                with _naming_output():
                    _print_json(plain_value(outcome.data))
            elif outcome.text:
                with _naming_output():
                    typer.echo(outcome.text)
        if not outcome.is_good:
            raise typer.Exit(outcome.exit_code)

    return run


def _require_local(values: Iterable[Any]) -> None:
    """Raise `BadParameter` for a path that was given as a URL, whose slashes a `Path` does not keep."""
    for value in values:
        for path in value if isinstance(value, list) else [value]:
            if isinstance(path, Path) and (url := re.match(r"([a-z][a-z0-9+]+):/(?=[^/])", str(path))) is not None:
                rest = str(path)[url.end() :]
                if url[1] == "file":
                    raise BadParameter(f"file:///{rest}: here a path is needed, not a URL; give /{rest}")
                address = without_credentials(f"{url[1]}://{rest}")
                raise BadParameter(f"{address}: here a path on this machine is needed; copy the file or folder first")


def with_options(run: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the signature that Typer reads: the options of its function, and the shared ones."""
    function = inspect.unwrap(run)
    hints = get_type_hints(function, include_extras=True)
    signature = inspect.signature(function)
    parameters = [p.replace(annotation=hints[p.name]) for p in signature.parameters.values()]
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters += [
        inspect.Parameter(name, keyword, default="text" if name == "log_format" else False, annotation=annotation)
        for name, annotation in SHARED_OPTIONS.items()
    ]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


@contextlib.contextmanager
def _reporting(quiet: bool, verbose: bool, logs_json: bool) -> Iterator[None]:
    """Show no progress, a brief log, or all passes and the log of libraries."""
    import logging

    from sketchselect._progress import RecordFormatter, reporting, without_traceback

    # Of what is logged, a brief log has only that kernels are compiled.
    logger = logging.getLogger(None if verbose else "sketchselect._kernels")
    handler = logging.NullHandler() if quiet and not verbose else logging.StreamHandler(sys.stderr)
    handler.addFilter(without_traceback)
    if logs_json:
        handler.setFormatter(RecordFormatter())
    level = logger.level
    logger.addHandler(handler)
    if verbose:
        logger.setLevel(logging.INFO)
    try:
        with reporting("silent" if quiet else "all" if verbose else "brief", logs_json=logs_json):
            yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


USAGE_ERROR = cast(type[Exception], typer.BadParameter.__base__)
"""The error of Typer's parser, which has no public name."""


@contextlib.contextmanager
def plain_usage(name: str, as_json: bool = False) -> Iterator[None]:
    """Turn an error of Typer's parser into one line that names the help; with `as_json` also into JSON."""
    try:
        yield
    except USAGE_ERROR as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # the help itself
            raise
        mistake = _one_line(cast(Any, error).format_message()).rstrip(".")
        _fail([f"{name}: {mistake[:1].lower()}{mistake[1:]}; {name} --help lists what it takes"], 2, as_json)


@contextlib.contextmanager
def plain_help() -> Iterator[None]:
    """Turn the error of a version or help that cannot be written into one line."""
    try:
        with _naming_output():
            yield
    except BrokenPipeError:
        raise
    except OSError as error:
        _end(error, False, INTERRUPTED)


@contextlib.contextmanager
def _naming_output() -> Iterator[None]:
    """Give an error of writing to standard output, which has no name, that name."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is None:
            error.filename = "standard output"
        raise


class Command(typer.core.TyperCommand):
    """A command that also takes the former names of its options, and names the value of each."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for parameter in self.params:
            if parameter.metavar is None and not getattr(parameter, "is_flag", False) and parameter.name:
                names = (_METAVARS[option] for option in parameter.opts if option in _METAVARS)
                parameter.metavar = next(names, parameter.name.upper())

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the words of a command line."""
        with plain_help(), plain_usage(f"sketchselect {info_name}", "--json" in args):
            return super().make_context(info_name, args, parent, **extra)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Replace former names, with a note."""
        current = []
        for word in args:
            name, sign, value = word.partition("=")
            if name in RENAMED:
                typer.echo(f"note: {name} is now {RENAMED[name]}; the old name will go", err=True)
            current.append(RENAMED.get(name, name) + sign + value)
        return super().parse_args(ctx, current)


@contextlib.contextmanager
def plain_errors(debug: bool, as_json: bool = False, interrupted: str = INTERRUPTED) -> Iterator[None]:
    """Turn an error into one readable line and the right exit code, and signals into an orderly end.

    With `as_json` standard output has the error too, as a line of JSON with its exit code.
    `interrupted`: The line after such a signal.
    """
    with _orderly_signals(as_json, interrupted), _plain_warnings():
        try:
            yield
        except BrokenPipeError as error:
            if output_is_unread():
                raise typer.Exit(1) from None  # `sketchselect ... | head` wants no message
            _end(error, as_json, interrupted)
        except (SketchSelectError, KeyboardInterrupt, OSError, MemoryError, ImportError) as error:
            if debug and not isinstance(error, KeyboardInterrupt):
                raise
            _end(error, as_json, interrupted)
        except typer.Exit:
            raise
        except Exception as error:
            if (signalled := _signal_behind(error)) is not None:
                _end(signalled, as_json, interrupted)
            if debug:
                raise
            if str(error).startswith(DASK_CONFIG_ERROR):
                _fail([f"{_one_line(error)}; correct the file (DASK_CONFIG, ~/.config/dask or /etc/dask)"], 2, as_json)
            if is_out_of_threads(error):
                _fail([NO_MORE_THREADS], 1, as_json)
            kind = type(error).__name__
            _fail([f"unexpected {kind}: {_one_line(error)} (--debug shows where; please report it)"], 1, as_json)


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print the text of a warning once, without code; those that are not for users go to the log."""
    import warnings

    from sketchselect._progress import log_line

    seen_texts: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        text = without_credentials(_one_line(message))
        if text in seen_texts:
            return
        seen_texts.add(text)
        if issubclass(category, UserWarning):
            print(log_line("warning", printable(text)), file=sys.stderr, flush=True)
        else:
            import logging

            logging.getLogger("py.warnings").info("%s: %s", category.__name__, text)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _end(error: BaseException, as_json: bool, interrupted: str) -> NoReturn:
    code = 1
    if isinstance(error, KeyboardInterrupt):
        lines, code = [interrupted], getattr(error, "exit_code", Interrupted.exit_code)
    elif isinstance(error, SketchSelectError):
        # A parameter that a lower layer refuses came from the job file or the command line.
        lines, code = str(error).splitlines(), 2 if isinstance(error, BadParameter) else error.exit_code
    elif isinstance(error, OSError):
        prefix = f"{error.filename}: " if error.filename else ""
        cure = "; raise the limit of open files (ulimit -n)" if error.errno == errno.EMFILE else ""
        lines = [f"{prefix}{error.strerror or _one_line(error)}{cure or _limited_addresses(error)}"]
        if error.errno == errno.ENOENT and not prefix and _working_folder_is_gone():
            lines = ["the working folder was deleted or moved; change to a folder that exists"]
    else:
        lines = [f"{type(error).__name__}: {_one_line(error)}{_limited_addresses(error)}"]
    _fail(lines, code, as_json)


def _limited_addresses(error: BaseException) -> str:
    """Return a note on the limit of address space, which errors of the system's loader do not name."""
    number = getattr(error, "errno", None)
    if sys.platform == "win32" or isinstance(error, ModuleNotFoundError) or number not in (None, errno.ENOMEM):
        return ""
    import resource

    from sketchselect._byte_sizes import format_bytes

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return ""
    return f"; this process may have {format_bytes(limit)} of addresses, which may be too few: raise it (ulimit -v)"


def _signal_behind(error: BaseException) -> KeyboardInterrupt | None:
    """Return what a signal raised, where a library failed as it handled that (a future of Dask's, set twice)."""
    context: BaseException | None = error
    while context is not None and not isinstance(context, KeyboardInterrupt):
        context = context.__context__
    return context


def _working_folder_is_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _fail(lines: list[str], code: int, as_json: bool) -> NoReturn:
    """Print an error, and leave with its exit code."""
    _print_failure(lines, code, as_json)
    _said.set()
    raise typer.Exit(code) from None


_said = threading.Event()
"""Whether the last line is printed, though the process may still have to end."""


def _print_failure(lines: list[str], code: int, as_json: bool) -> None:
    from sketchselect._progress import log_line

    lines = [without_credentials(line) for line in lines]
    for line in lines:
        print(log_line("error", printable(line)), file=sys.stderr, flush=True)
    if as_json:
        with contextlib.suppress(OSError):  # whoever would read it is gone, and the exit code is not
            _print_json({"error": "\n".join(lines), "exit_code": code})


def _print_json(data: Any) -> None:
    """Print data as JSON: in one line, unless a person reads it."""
    import json

    typer.echo(json.dumps(data, indent=1 if sys.stdout.isatty() else None, default=str))


def _one_line(error: BaseException | str) -> str:
    return " ".join(str(error).split())[:500]


@contextlib.contextmanager
def _orderly_signals(as_json: bool, interrupted: str) -> Iterator[None]:
    """Raise in the main thread on the signals of `STOPPING`, and end the process if cleaning up takes too long."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[signal.Signals] = []
    _said.clear()
    was_lost = threading.Event()

    def stop(number: int, frame: Any) -> None:
        if received and not was_lost.is_set():
            return
        if not received:
            received.append(signal.Signals(number))
            end = functools.partial(contextvars.copy_context().run, _end_soon, 128 + number, as_json, interrupted)
            threading.Thread(target=end, daemon=True).start()
        was_lost.clear()
        raise STOPPING[received[0]]

    def raise_again(unraisable: Any) -> None:
        # A callback of the garbage collector, or a finaliser, in which the signal arrives ignores what is raised there.
        if not received or not isinstance(unraisable.exc_value, KeyboardInterrupt):
            report(unraisable)
            return
        was_lost.set()
        threading.Timer(0.01, os.kill, (os.getpid(), received[0])).start()

    numbers = [n for n in STOPPING if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in numbers}
    report, sys.unraisablehook = sys.unraisablehook, raise_again
    try:
        yield
    finally:
        sys.unraisablehook = report
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_soon(code: int, as_json: bool, interrupted: str) -> None:
    """End the process after the time to clean up, and its children, even if standard error blocks."""
    try:
        time.sleep(GRACE_SECONDS)
        import multiprocessing

        for child in multiprocessing.active_children():
            child.kill()
        last: list[tuple[Callable[[], object], float]] = []
        if not _said.is_set():
            message = functools.partial(contextvars.copy_context().run, _print_failure, [interrupted], code, as_json)
            last.append((message, EXIT_MESSAGE_SECONDS))
        if (writing := sys.modules.get("sketchselect.readers.writing")) is not None:
            last.append((writing.remove_unfinished, REMOVAL_SECONDS))
        # In threads of their own: a full pipe without a reader, or a folder of a server that is gone, blocks for ever.
        for call, seconds in last:
            thread = threading.Thread(target=call, daemon=True)
            thread.start()
            thread.join(seconds)
    finally:
        os._exit(code)


def open_standard_streams() -> None:
    """Open the null device for standard streams that are closed, so that no other file gets their descriptors.

    Output that standard error cannot take is lost: a broken log ends no work.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if name == "stdin" else "w", closefd=False))  # noqa: SIM115 - for the life of the process
    sys.stderr = cast(TextIO, LogStream(sys.stderr))


def output_is_unread() -> bool:
    """Return whether standard output is a pipe whose other end is closed."""
    poll = select.poll()
    poll.register(1, select.POLLOUT)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


CLUSTER_HELP = "local, threads, serial, env, the address of a Dask scheduler, or its scheduler file (.json)."
Cluster = Annotated[str, typer.Option("--scheduler", metavar="CLUSTER", help=CLUSTER_HELP)]
OpenCluster = Annotated[
    str | None,
    typer.Option(
        "--scheduler", metavar="CLUSTER", help=f"{CLUSTER_HELP} By default local; threads where rows are few."
    ),
]
JobCluster = Annotated[
    str | None, typer.Option("--scheduler", metavar="CLUSTER", help="Replaces the job's execution.cluster.")
]
Workers = Annotated[int | None, typer.Option("--n-workers", min=1, help="Worker processes or threads (one per core).")]
Fresh = Annotated[bool, typer.Option("--fresh/--resume", help="Discard the results of an earlier run, or resume it.")]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Replace a key of the job, such as select.n_features=50; may be repeated. "
        "Paths are relative to the job file.",
    ),
]
Key = Annotated[str | None, typer.Option("--key", help="Name of the array inside the store.")]
FeatureNames = Annotated[
    str | None,
    typer.Option("--feature-names", metavar="FILE", help="A text file with one name per column, for .npy, .npz, .mtx."),
]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="An argument of the file system of a URL, such as anon=true or client_kwargs.endpoint_url=ADDRESS; "
        "may be repeated.",
    ),
]


def steps_named(prepare: list[str] | None) -> list[str] | None:
    """Return the steps of ``--prepare``, none of which is "auto", as in a job file."""
    if "auto" in (prepare or ()):
        raise typer.BadParameter('name the steps; a job chooses them: steps = "auto" in its [prepare]')
    return prepare


Prepare = Annotated[
    list[str] | None,
    typer.Option(
        "--prepare",
        metavar="STEP",
        help='A prepare step, such as l2 or "library-size(target=1000)"; may be repeated.',
        callback=steps_named,
    ),
]
Fitted = Annotated[
    str | None, typer.Option("--fitted", help="Statistics of prepare steps from an earlier run (prepare.sks).")
]
Partition = Annotated[
    str | None, typer.Option("--partition-bytes", metavar="BYTES", help='Size of a partition, such as "128MiB".')
]
MaxDropped = Annotated[
    float, typer.Option("--max-dropped", min=0, max=1, help="Share of the rows that drop_rows may leave out.")
]
