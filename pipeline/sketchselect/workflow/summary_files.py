"""Summary files: several merged into one, and a selection from one without the data.

Row numbers across files: ages and draws depend on them, and every file begins at 0 by itself.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from sketchselect.errors import (
    BadParameter,
    ConfigError,
    DamagedFile,
    Incompatible,
    NotOurFolder,
    SketchSelectError,
    SourceError,
)
from sketchselect.job.load import check_select, make_selector, selector_problem
from sketchselect.job.text import toml_value
from sketchselect.location import is_within, write_atomically
from sketchselect.selectors import METHODS, AutoSelector, Selection, TargetAutoSelector
from sketchselect.selectors.base import UnpreparedRows, missing_steps
from sketchselect.selectors.registry import require_known
from sketchselect.selectors.supervised.models import OfClasses
from sketchselect.summaries import Bundle, Folds, Moments, Summary, TargetHistogram, load, save
from sketchselect.workflow.folder import file_digest
from sketchselect.workflow.inspection import columns_in
from sketchselect.workflow.session import n_choices
from sketchselect.workflow.stages.model import model_json, model_of
from sketchselect.workflow.tables import selection_json, selection_lines

MAGIC = b"\x89SKS"


def require_replaceable(path: Path, suffix: str, *starts: bytes, option: str = "-o", source: str = "") -> None:
    """Raise unless `path` is free, or an existing file of the kind to be written, which begins in one of these ways.

    `source`: what is read; the file must not be in it.
    """
    if source and is_within(path, source):
        raise ConfigError(f"{option} {path}: is in the source; choose a place outside of it")
    if path.suffix != suffix:
        raise ConfigError(f"{option} {path}: the name must end in {suffix}")
    if path.is_dir():
        raise NotOurFolder(f"{path}: a folder is there; choose another name")
    if path.exists() and not path.is_file():
        raise NotOurFolder(f"{path}: a pipe or a device, which a file would replace; choose another name")
    if not path.parent.is_dir():
        raise SourceError(f"{path}: the folder {path.parent} does not exist; make it first")
    try:
        # Permissions of a folder do not tell whether a network file system or a full disk can be written.
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise SketchSelectError(f"{path}: cannot be written: {error.strerror}") from None
    if not path.exists():
        return
    with path.open("rb") as stream:
        head = stream.read(max(map(len, starts)))
    if head and not head.startswith(starts):
        raise DamagedFile(
            f"{path}: exists and does not begin as this {suffix} file will, so it is not overwritten; choose another "
            "name"
        )


def overlap(left: Summary[Any], right: Summary[Any], file: Path) -> str | None:
    """Return a note if the row numbers of a file overlap those of earlier files, so that rows seem equally old."""
    for before, after in zip(_fading(left), _fading(right), strict=False):
        if after.end - after.n_rows < before.end:
            return (
                f"note: rows {max(after.end - after.n_rows, 0)} to {after.end - 1} of {file} have numbers that other "
                "rows have too, so they are taken to be as old as those; if they came later, summarize them with "
                f"--after {before.end}"
            )
    return None


def _fading(summary: Summary[Any]) -> Iterator[Any]:
    members = summary.values() if isinstance(summary, Bundle) else [summary]
    for member in members:
        if member.decays and member.n_rows:
            yield member


def _has_moments(summary: Summary[Any]) -> bool:
    return isinstance(summary, Bundle) and any(held.kind in (Moments.kind, Folds.kind) for held in summary.values())


def merge_files(files: Sequence[Path], output: Path) -> tuple[Summary[Any], list[str]]:
    """Merge summary files in the order given; return the summary that was written, and notes for the user."""
    if len(files) < 2:
        raise ConfigError("merge: give at least two summary files")
    require_replaceable(output, ".sks", MAGIC)
    summary = load(files[0])
    files_by_digest = {file_digest(files[0]): files[0]}
    notes = []
    for file in files[1:]:
        other = load(file)
        first = files_by_digest.setdefault(file_digest(file), file)
        if first is not file and other.n_rows:
            raise ConfigError(
                f"{file}: the same summary as {first}, so its rows would be counted twice; give every file once"
            )
        if (note := overlap(summary, other, file)) is not None:
            notes.append(note)
        try:
            summary = summary.merge(other)
        except SketchSelectError as error:
            counted = isinstance(summary, TargetHistogram) and isinstance(other, TargetHistogram)
            command = f"sketchselect summarize SOURCE --for univariate --set score=SCORE --set bins={files[0]}"
            hint = f"; `{command}` counts alike" if counted else ""
            without = [name for name, held in ((files[0], summary), (file, other)) if not _has_moments(held)]
            if isinstance(summary, Bundle) and isinstance(other, Bundle) and len(without) == 1:
                hint = f"; {without[0]} was made without --target or --moments"
            raise type(error)(f"{file}: {error}{hint}") from None
    save(summary, output)
    return summary, notes


def named_settings(
    settings: Sequence[str], method: str, options: Mapping[str, tuple[str, Any]] | None = None
) -> dict[str, Any]:
    """Return the values of ``--set NAME=VALUE`` by name; refuse names that are no parameters of a known method.

    `options`: Other options of the command line that are parameters, each with its name and value.
    """
    parameters, sources = dict[str, Any](), dict[str, str]()
    items = [(option, *named) for option, named in (options or {}).items()]
    for item in settings:
        name, sign, value = item.partition("=")
        if not sign:
            raise ConfigError(f"--set {item}: expected NAME=VALUE, a parameter of the method")
        if name.strip() == "n_features_to_select":
            raise ConfigError(f"--set {item}: the number of columns is the option --n-features of `select`")
        items.append((f"--set {item}", name.strip(), toml_value(value)))
    for source, name, value in items:
        if name in parameters:
            raise ConfigError(f"{source}: {sources[name]} sets {name} too; give it once")
        parameters[name], sources[name] = value, source
    if method in METHODS:
        try:
            require_known(method, parameters)
        except BadParameter as error:
            raise ConfigError(f"--set: {error}") from None
    return parameters


def select_from_file(
    file: Path,
    output: Path,
    method: str,
    n_features: int | Literal["auto"] | None,
    settings: Sequence[str],
    model_file: Path | None = None,
) -> tuple[Selection, list[str]]:
    """Select columns from a summary file, and write the fitted model where `model_file` names a place for it.

    Return the selection that was written, and lines about it for the user.
    """
    parameters = named_settings(settings, method)
    if method in METHODS and (problem := selector_problem(method, parameters, n_features)):
        raise ConfigError(f"--set: {problem}")
    number = {} if n_features is None else {"n_features": n_features}
    # The job's schema checks the method, with the same messages.
    try:
        select = check_select({"method": method, **number, **parameters})
    except ConfigError as error:
        raise ConfigError(str(error).replace("job: select.method: ", "--method: ")) from None
    if model_file is not None and not METHODS[method].fits_model:
        raise ConfigError(f"--model: {method} fits no model; leave the option out")
    if select.parameters.get("window"):
        raise ConfigError(
            "--set window: a summary holds its rows as one, so that none can be left out; summarize only the rows that "
            "count, or set the window in a job"
        )
    require_replaceable(output, ".json", b"{")
    if model_file is not None:
        require_replaceable(model_file, ".json", b"{", option="--model")
    summary = load(file)
    selector = make_selector(method, n_features, select.parameters)
    n_columns = columns_in(summary)
    if isinstance(n_features, int) and n_features > (n_available := n_choices(select.parameters, n_columns)):
        noun = "columns" if n_available == n_columns else "columns, squares and products"
        raise ConfigError(f"--n-features: {n_features} asked for, the summary has {n_available} {noun}")
    _check_folds(file, summary, select.parameters.get("cv"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnpreparedRows)  # A note says so, in the words of the command.
            selector.fit_summary(summary)
    except SketchSelectError as error:
        sets = "".join(f" --set {item}" for item in settings)
        target = " --target TARGET" * METHODS[method].needs_target
        command = f"`sketchselect summarize --for {method}{sets}{target}`"
        hint = f"; {command} makes what it needs" * isinstance(error, Incompatible)
        if isinstance(error, OfClasses):
            hint = " (--set task=classification)"
        if hint and method == AutoSelector.method:
            hint += f"; for a target take --method {TargetAutoSelector.method}"
        raise type(error)(f"{file}: {error}{hint}") from None
    selection = selector.selection_
    write_atomically(output, map(str.encode, selection_json(selection)))
    lines = list(selection_lines(selection, output.name))
    model = model_of(selector)
    if model is not None:
        lines.append(model.sentence())
        if model_file is not None:
            write_atomically(model_file, model_json(model).encode())
            lines.append(f"{model_file}: the fitted model")
    if missing := missing_steps(selector, summary):
        steps = " ".join(f"--prepare {step}" for step in missing)
        lines.append(
            f"note: {method} asks for rows prepared with {steps}, as suits texts and counts, and the summary was made "
            "without; --set normalize=false asks for none"
        )
    return selection, lines


def _check_folds(file: Path, summary: Summary[Any], cv: Any) -> None:
    """Raise `ConfigError` for another number of folds than the file has: rows cannot change folds."""
    members = list(summary.values()) if isinstance(summary, Bundle) else [summary]
    folds = [len(member) for member in members if isinstance(member, Folds)]
    if folds and isinstance(cv, int) and not isinstance(cv, bool) and cv not in folds:
        raise ConfigError(f"--set cv={cv}: {file} holds {folds[0]} folds; write cv={folds[0]}, or summarize again")
