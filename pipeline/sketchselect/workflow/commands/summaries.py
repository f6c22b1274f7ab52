"""The command line's verbs on summary files: make one, merge several, select from one without the data.

Row numbers across files: ages and draws depend on them, and every file begins at 0 by itself.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sketchselect.errors import BadParameter, ConfigError, SketchSelectError
from sketchselect.job.load import check_select
from sketchselect.job.parameters import make_selector, selector_problem
from sketchselect.job.text import toml_value
from sketchselect.summaries import Bundle, Moments, Summary
from sketchselect.workflow.commands import Outcome
from sketchselect.workflow.commands.options import job_of, require_replaceable

if TYPE_CHECKING:
    from sketchselect.readers import Vector
    from sketchselect.summaries import Summary


def check_options(half_life: float | None, after: int, numbered: bool) -> None:
    """Raise `ConfigError` for a half-life out of range, or rows that came before where no summary numbers its rows."""
    if half_life is None:
        if after and not numbered:
            raise ConfigError("--after: nothing here depends on row numbers; add --half-life, --folds or --sample")
        return
    try:
        Moments(half_life=half_life)
    except BadParameter as error:
        raise ConfigError(f"--half-life: {error}") from None


def overlap(left: Summary[Any], right: Summary[Any], file: Path) -> str | None:
    """Return a note where the rows of a file have numbers that earlier files had, so that they seem as old as those."""
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


MAGIC = b"\x89SKS"


@dataclass(frozen=True)
class SummarizeOptions:
    """Which summaries `summarize_to_file` makes."""

    size: int = 64  # Rows of the sketch
    sketch: bool = True  # Whether there is one
    # Exact means and covariances, of the target too; `folds`, and `half_life` without a sketch, imply them
    moments: bool = False
    target: str | None = None  # A file, or an array in the store, with one target per row
    classes: bool = False  # The target holds class labels
    folds: int | None = None  # Moments by fold, for cross-validation
    seed: int = 0  # Decides which row is in which fold
    half_life: float | None = None  # Rows after which a row counts half, in sketch and moments
    degree: int = 1  # 2: moments of squares and products as well
    top_values: int | None = None  # Largest values kept of each column, for highly variable genes
    batches: str | None = None  # A file, or an array in the store, with the batch of each row: largest values by batch
    sample: int | None = None  # Rows kept, drawn by `seed`, for the methods on a sample
    after: int = 0  # Rows that came before these, in other files; ages and draws depend on row numbers across files

    @property
    def with_moments(self) -> bool:
        """Whether there are moments of any kind; a target is kept by nothing else, so it implies them."""
        alone = self.half_life is not None and not self.sketch
        return self.moments or self.folds is not None or alone or self.target is not None

    def check(self) -> None:
        """Raise `ConfigError` for options that contradict each other."""
        if self.classes and self.target is None:
            raise ConfigError("--classes: says what the target holds; add --target")
        if self.degree == 2 and not self.with_moments:
            raise ConfigError("--degree: only moments have one; add --moments or --folds")
        if self.half_life is not None and (self.folds is not None or self.classes or self.degree == 2):
            raise ConfigError("--half-life: goes with neither --folds nor --classes nor --degree 2; make two files")
        check_options(self.half_life, self.after, numbered=self.folds is not None or self.sample is not None)
        if self.batches is not None and self.top_values is None:
            raise ConfigError("--batches: only largest values are kept by batch; add --top-values")
        if self.batches is not None and self.target is not None:
            raise ConfigError("--batches: each row has one label in a pass, and --target names another; make two files")

    def members(self, target: Vector | None, missing: bool) -> dict[str, Summary[Any]]:
        """Return the descriptions by name."""
        from sketchselect.selectors.supervised import base as supervised_target
        from sketchselect.summaries import (
            ColumnStats,
            Folds,
            FrequentDirections,
            Groups,
            Moments,
            RowSample,
            TopValues,
        )

        members: dict[str, Summary[Any]] = {"columns": ColumnStats()}
        if self.sketch:
            members["sketch"] = FrequentDirections(size=self.size, half_life=self.half_life)
        if self.half_life is not None and self.with_moments:
            members["moments"] = Moments(half_life=self.half_life)
        elif self.with_moments:
            classes = None
            if self.classes and target is not None:
                classes = supervised_target.classes_of(target)
                supervised_target.require_several(classes)
            moments = Moments(degree=self.degree, missing="pairwise" if missing else None, classes=classes)
            members["moments"] = moments if self.folds is None else Folds(moments, self.folds, seed=self.seed)
        if self.top_values is not None:
            top = TopValues(self.top_values)
            labels = () if self.batches is None or target is None else supervised_target.classes_of(target)
            members["top-values"] = Groups(top, labels) if len(labels) > 1 else top
        if self.sample is not None:
            members["sample"] = RowSample(self.sample, seed=self.seed)
        return members


def summarize_to_file(
    source: str,
    output: Path,
    chosen: SummarizeOptions,
    *,
    prepare: Sequence[str],
    fitted: str | None,
    write_fitted: Path | None,
    checkpoint: Path | None,
    options: Mapping[str, Any],
    execution: Mapping[str, Any],
) -> Outcome:
    """Read a source once and write its summary: column statistics, a sketch, and moments where asked for."""
    from sketchselect.execution import Checkpoint, PassOptions, Source, fit_steps, make_progress, summarize_source
    from sketchselect.prepare import resolve
    from sketchselect.readers import open_matrix, open_vector
    from sketchselect.readers.base import require_few_dropped
    from sketchselect.summaries import Bundle, load, save
    from sketchselect.workflow.session import engine_for
    from sketchselect.workflow.stages.opening import library_logs

    require_replaceable(output, ".sks", MAGIC)
    chosen.check()
    if write_fitted is not None:
        require_replaceable(write_fitted, ".sks", MAGIC, "--write-fitted")
    missing = options.get("nonfinite") == "missing"
    if missing and (chosen.sketch or not chosen.with_moments):
        raise ConfigError("--nonfinite missing: only moments take missing values; add --moments --no-sketch")
    # "missing" is checked above: in a job it depends on the method, of which there is none here.
    checked = {**options, "nonfinite": "error"} if missing else options
    config = job_of(source, checked, {"steps": list(prepare), "fitted": fitted}, execution)
    inputs = config.input
    nonfinite = "missing" if missing else inputs.nonfinite
    vector = None
    named = chosen.target if chosen.batches is None else chosen.batches
    storage = inputs.storage_options or None
    matrix = open_matrix(
        inputs.url,
        key=inputs.key,
        storage_options=storage,
        missing_chunks=inputs.missing_chunks,
        nonfinite=nonfinite,
        vectors=(named,),
    )
    if named is not None:
        path = os.path.abspath(named) if os.path.exists(named) else named
        name = "target" if chosen.batches is None else "batches"
        vector = open_vector(path, matrix.shape[0], matrix=matrix, storage_options=storage, name=name)
        if vector.dtype.kind == "U" and not (chosen.classes or chosen.batches):
            raise ConfigError(f"--target {chosen.target}: holds text; add --classes to take it for class labels")
    progress = make_progress(True)
    for text in matrix.notes:
        progress.note(f"note: {text}")
    statistics = None if config.prepare.fitted is None else load(config.prepare.fitted)
    with library_logs(None), engine_for(config.execution) as engine:
        place = None if checkpoint is None else Checkpoint(checkpoint)
        passes = PassOptions(engine, config.execution.partition_bytes, place, progress)
        # Models are fitted to moments with a target, and multiply the rounding of products in float32.
        in_double = chosen.target is not None
        rows = Source(matrix, vector, None, resolve(config.prepare.entries), in_double=in_double)
        fit = fit_steps(rows, passes, statistics=statistics)
        for text in (text for step in fit.steps for text in step.notes()):
            progress.note(f"note: {text}")
        if write_fitted is not None:
            if fit.statistics is None:
                raise ConfigError("--write-fitted: no prepare step needs statistics; leave the option out")
            save(fit.statistics, write_fitted)
        rows, described = replace(rows, prepare=fit.steps), Bundle(chosen.members(vector, missing))
        summarized = summarize_source(rows, described, passes, start=chosen.after)
        summary, n_dropped = summarized.value, summarized.stats.rows_dropped
        if n_dropped:
            limit, n_rows = inputs.max_dropped, matrix.shape[0]
            dropped = require_few_dropped(matrix.address, n_dropped, n_rows, limit, "--max-dropped ")
            progress.note(f"note: {dropped}")
    save(summary, output)
    return Outcome(f"{_sentence(summary, output)}, {output.stat().st_size} bytes", _file(summary, output))


def _sentence(summary: Any, path: Path) -> str:
    return f"{path}: summary of {summary.n_rows} rows x {summary.n_features} columns"


def _file(summary: Any, path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    return {"file": str(path), "n_rows": summary.n_rows, "n_features": summary.n_features, "nbytes": size}


def merge_files(files: Sequence[Path], output: Path) -> Outcome:
    """Merge summary files in the order given."""
    from sketchselect.summaries import load, save

    if len(files) < 2:
        raise ConfigError("merge: give at least two summary files")
    require_replaceable(output, ".sks", MAGIC)
    merged = load(files[0])
    seen = {_digest(files[0]): files[0]}
    notes = []
    for file in files[1:]:
        other = load(file)
        first = seen.setdefault(_digest(file), file)
        if first is not file and other.n_rows:
            raise ConfigError(
                f"{file}: the same summary as {first}, so its rows would be counted twice; give every file once"
            )
        notes.append(overlap(merged, other, file))
        try:
            merged = merged.merge(other)
        except SketchSelectError as error:
            raise type(error)(f"{file}: {error}") from None
    save(merged, output)
    warnings = [note for note in notes if note is not None]
    done = f"{_sentence(merged, output)} from {len(files)} files"
    return Outcome("\n".join([done, *warnings]), {**_file(merged, output), "notes": warnings})


def _digest(path: Path) -> bytes:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def select_from_file(
    file: Path,
    output: Path,
    method: str,
    n_features: int | Literal["auto"] | None,
    settings: Sequence[str],
    model_file: Path | None = None,
) -> Outcome:
    """Select columns from a summary file, and write the fitted model where one is asked for."""
    from sketchselect import selectors
    from sketchselect.location import write_atomically
    from sketchselect.selectors.registry import require_known
    from sketchselect.summaries import load
    from sketchselect.workflow.commands.inspection import columns_in
    from sketchselect.workflow.stages.model import model_json, model_of
    from sketchselect.workflow.stages.opening import n_choices
    from sketchselect.workflow.tables import selection_json

    parameters: dict[str, Any] = {}
    for item in settings:
        name, sign, value = item.partition("=")
        if not sign:
            raise ConfigError(f"--set {item}: expected NAME=VALUE, a parameter of the method")
        parameters[name.strip()] = toml_value(value)
    if method in selectors.METHODS:
        try:
            require_known(method, parameters)
        except BadParameter as error:
            raise ConfigError(f"--set: {error}") from None
        if problem := selector_problem(method, parameters, n_features):
            raise ConfigError(f"--set: {problem}")
    number = {} if n_features is None else {"n_features": n_features}
    # The job's schema knows which methods there are, and says so in the same words.
    try:
        chosen = check_select({"method": method, **number, **parameters})
    except ConfigError as error:
        raise ConfigError(str(error).replace("job: select.method: ", "--method: ")) from None
    if model_file is not None and not selectors.METHODS[method].needs_target:
        raise ConfigError(f"--model: {method} fits no model; leave the option out")
    if chosen.parameters.get("window"):
        raise ConfigError(
            "--set window: a summary holds its rows as one, so that none can be left out; summarize only those that "
            "count, or take the window in a job"
        )
    require_replaceable(output, ".json", b"{")
    if model_file is not None:
        require_replaceable(model_file, ".json", b"{", "--model")
    summary = load(file)
    selector = make_selector(method, n_features, chosen.parameters)
    n_columns = columns_in(summary)
    if isinstance(n_features, int) and n_features > (most := n_choices(chosen.parameters, n_columns)):
        what = "columns" if most == n_columns else "columns, squares and products"
        raise ConfigError(f"--n-features: {n_features} asked for, the summary has {most} {what}")
    _check_folds(file, summary, chosen.parameters.get("cv"))
    try:
        selector.fit_summary(summary)
    except SketchSelectError as error:
        raise type(error)(f"{file}: {error}") from None
    selection = selector.selection_
    write_atomically(output, selection_json(selection).encode())
    done = [f"{output}: selected {len(selection.support)} of {selection.scores.size} columns with {method}"]
    model = model_of(selector)
    if model is not None:
        done.append(model.sentence())
        if model_file is not None:
            write_atomically(model_file, model_json(model).encode())
            done.append(f"{model_file}: the fitted model")
    missing = [step for step in selector.prepare_steps() if step not in summary.prepare]
    if missing:
        steps = " ".join(f"--prepare {step}" for step in missing)
        done.append(f"note: {method} asks for rows prepared with {steps}, and the summary was made without")
    return Outcome("\n".join(done), {"file": str(output), **selection.to_dict()})


def _check_folds(file: Path, summary: Summary[Any], cv: Any) -> None:
    """Raise `ConfigError` where another number of folds is asked for than the file holds: rows cannot change folds."""
    from sketchselect.summaries import Bundle, Folds

    members = list(summary.values()) if isinstance(summary, Bundle) else [summary]
    folds = [len(member) for member in members if isinstance(member, Folds)]
    if folds and isinstance(cv, int) and not isinstance(cv, bool) and cv not in folds:
        raise ConfigError(f"--set cv={cv}: {file} holds {folds[0]} folds; write cv={folds[0]}, or summarize again")
