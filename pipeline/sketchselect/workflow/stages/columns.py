"""The stages up to the selected columns: choose a preparation, prepare, summarize, collect, select, write features.

Each publishes its own files, and is skipped if an earlier run published the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np

from sketchselect._byte_sizes import format_bytes
from sketchselect._progress import give_detail, reporting_steps
from sketchselect._text import counted
from sketchselect.cluster import certify_selection
from sketchselect.cluster.certificates.spectral import sketch_rows
from sketchselect.cluster.preparation import no_clusters, preparations_of_source
from sketchselect.errors import Incompatible, SketchSelectError
from sketchselect.execution import Source, fit_steps, summarize_source
from sketchselect.execution.summarize import source_for, summary_key, summary_projection
from sketchselect.job.schema import JobConfig
from sketchselect.linalg.panel_columns import Panels, StoredPanels
from sketchselect.linalg.spectrum import Directions, Spectrum, centered_in_place
from sketchselect.prepare.units import outweighing_variances
from sketchselect.readers import open_matrix
from sketchselect.selectors import AutoSelector, BaseSelector, Selection, TargetAutoSelector
from sketchselect.summaries import Bundle, ColumnStats, FrequentDirections, Summary, codec, pick
from sketchselect.summaries.frequent_directions import PanelledDirections
from sketchselect.workflow import tables
from sketchselect.workflow.folder import file_digest
from sketchselect.workflow.session import Session, column_partition_bytes, names_digest, noted_warnings, require_weights
from sketchselect.workflow.stages.features import View, feature_dtype, write_features
from sketchselect.workflow.stages.model import Model, model_json, model_of, path_csv

BOUND = "selection_bound"
"""Key, in the diagnostics of a selection and in the manifest, of the bound of clusterings of its columns."""

STEPS_FILE = "prepare.sks"
"""Name of the file of statistics of prepare steps in an output folder."""


def choose_preparation(session: Session) -> None:
    """Decide ``[prepare] steps = "auto"`` on a sample of the rows; a list of steps stays as it is."""
    settings = session.config.cluster
    if session.config.prepare.steps != "auto" or settings is None:
        return
    source, k, seed = replace(session.rows, prepare=()), settings.n_clusters, settings.random_state
    fingerprint = session.source_fingerprint(n_clusters=k, random_state=seed)
    with session.stage("choose preparation") as entry:
        if not session.reusable("choose preparation", fingerprint, entry):
            options = session.pass_options.but(on_statistics=lambda stats: session.add_statistics(entry, stats))
            with noted_warnings(session, "prepare"):
                preparations = preparations_of_source(source, k, options, random_state=seed)
            session.require_unchanged()
            entry["preparations"] = preparations.to_dict()
            session.folder.finish("choose preparation", fingerprint, [], entry)
        session.preparations = comparison = entry.pop("preparations")
    session.prepare_with(comparison["steps"])
    session.note(f"prepare: {comparison['sentence']}")
    if comparison.get("shows_no_clusters"):
        session.note(f"prepare: {no_clusters(k)}")


def prepare(session: Session) -> None:
    """Fit the steps that need statistics of all rows, one pass each, and publish the statistics.

    Without such steps nothing is done. The statistics of an earlier run of the same steps on the same source are used
    again; so is the file of ``[prepare] fitted``, with which only appended rows are read.
    """
    if session.statistics is not None:
        raw, path = codec.encode(session.statistics), session.folder.path / STEPS_FILE
        if not path.exists() or path.read_bytes() != raw:
            session.folder.invalidate_results()
            session.folder.write(STEPS_FILE, raw)
        session.progress.note(
            f"prepare: fitted with the statistics of {session.config.prepare.fitted}; nothing is read"
        )
        return
    if session.is_prepared:
        return
    fingerprint = session.source_fingerprint()
    with session.stage("prepare") as entry:
        if session.reusable("prepare", fingerprint, entry):
            session.fit_with(codec.load(session.folder.path / STEPS_FILE))
            return
        options = session.pass_options.but(on_statistics=lambda stats: session.add_statistics(entry, stats))
        fit = fit_steps(session.source, options)
        assert fit.statistics is not None
        session.require_unchanged()
        session.folder.invalidate_results()
        session.folder.write(STEPS_FILE, codec.encode(fit.statistics))
        session.folder.finish("prepare", fingerprint, [STEPS_FILE], entry)
        session.steps, session.statistics = fit.steps, fit.statistics


def description(config: JobConfig, selector: BaseSelector, n_features: int) -> Bundle:
    """Return the bundle of all summaries that the job needs, for one pass.

    Methods with passes of their own add nothing; jobs that learn from a target and cluster nothing need no sketch.
    """
    members: dict[str, Summary[Any]] = {}
    if not (selector.makes_passes or (selector.needs_counts and config.prepare.entries)):
        bundle = selector.summary_description(n_features)
        members = dict(bundle.items()) if isinstance(bundle, Bundle) else {bundle.kind: bundle}
    kinds = {member.kind for member in members.values()}
    if ColumnStats.kind not in kinds:
        members[ColumnStats.kind] = ColumnStats()
    unsketched = selector.needs_target and config.cluster is None
    if FrequentDirections.kind not in kinds and not unsketched:
        n_clusters = config.cluster.n_clusters if config.cluster else 8
        size = max(2, min(sketch_rows(n_clusters), n_features))
        members[FrequentDirections.kind] = FrequentDirections(size=size)
    return Bundle(members)


def summarize(session: Session) -> Summary[Any]:
    """Pass 1: publish ``summary.sks``, a bundle of all summaries that selection and certificate need."""
    folder = session.folder
    choose_preparation(session)
    if not session.is_prepared:
        prepare(session)
    for text in (text for step in session.steps for text in step.notes(session.source.matrix.feature_names)):
        session.note(text)
    session.selector.inspect_rows(session.source)
    bundle = description(session.config, session.selector, session.n_columns)
    if session.config.input.target is not None and not session.selector.uses_target:
        # No summary of these methods keeps a target: say that it is not used.
        method = session.config.select.method
        alone = f', as "{method}" does without [cluster]' if isinstance(session.selector, AutoSelector) else ""
        session.note(
            f"input.target is checked and otherwise not used: {method} selects without a target; "
            f'method = "{TargetAutoSelector.method}" learns from it{alone}'
        )
    fingerprint = session.source_fingerprint(summaries=summary_key(bundle), target=session.target_fingerprint)
    with session.stage("summarize") as entry:
        if session.reusable("summarize", fingerprint, entry):
            summary = load_summary(session)
            session.note_dropped(session.matrix.shape[0] - pick(summary, ColumnStats.kind).n_rows)
            _note_units(session, summary)
            return summary
        _require_same_names(session)
        names = [step.name for step in session.steps]
        own, more = names[: (count := len(session.config.prepare.entries))], names[count:]
        if more:
            unit_rows = all(step.normalizes_rows for step in session.steps[count:])
            meaning = " (every row scaled to length 1)" if unit_rows else ""
            where = f"after your own steps ({', '.join(own)}), " if own else ""
            session.progress.note(
                f"{', '.join(more)}{meaning} is applied to the rows {where}here and in all later stages, because of "
                "select.normalize; normalize = false in [select] leaves it out"
            )
        execution = session.config.execution
        if folder.was_stopped_early and execution.checkpoint == "auto":
            cure = "; execution.checkpoint_seconds = 0 saves every part" * (execution.checkpoint_seconds != 0)
            session.progress.note(
                f"summarize: the run before ended before any part was saved, and all rows are read again{cure}"
            )
        folder.checkpoints.mkdir(exist_ok=True)
        if session.config.output.features and not session.engine.can_write(str(folder.checkpoints)):
            raise SketchSelectError(
                f"{folder.path}: the workers cannot write there; output.dir must be a folder that this process and "
                "every worker share"
            )
        source = session.summary_source
        options = session.pass_options.but(keeps_panels=selects_in_panels(session))
        _state_projection(session, source, bundle)
        result = summarize_source(source, bundle, options)
        session.add_statistics(entry, result.stats)
        session.require_unchanged()
        # Only now: a source that cannot be read must not cost the files of the earlier run.
        session.folder.invalidate_results()
        if session.statistics is None:
            folder.discard((STEPS_FILE,))
        folder.write("summary.sks", codec.encoded_parts(result.value))
        folder.finish("summarize", fingerprint, ["summary.sks"], entry)
        sketch = sketch_of(result.value)
        summary = result.value
        if isinstance(sketch, PanelledDirections):
            # As a run that goes on from the file has it, with panels that are in place already.
            summary = load_summary(session, sketch.panels)
        _note_units(session, summary)
        return summary


def selects_in_panels(session: Session) -> bool:
    """Return whether a wide sketch stays in panels of columns: the rows are sparse, and the method needs no more."""
    bundle = description(session.config, session.selector, session.n_columns)
    return session.selector.selects_in_panels and source_for(session.summary_source, bundle).is_sparse


def load_summary(session: Session, held: Panels | None = None) -> Summary[Any]:
    """Return the summary in the folder.

    Where the method selects on the panels of a sketch they stay in the file, and come to the workers when needed;
    `held` are there already.
    """
    path = session.folder.path / "summary.sks"
    if not selects_in_panels(session):
        return codec.load(path)
    return codec.load_in_panels(path, lambda panels, edges: session.engine.hold(panels, edges), held)


def let_go(summary: Summary[Any]) -> None:
    """Free the memory of panels, for the passes over the rows that follow; what needs them again reads them again."""
    sketch = sketch_of(summary)
    if isinstance(sketch, PanelledDirections) and isinstance(sketch.panels, StoredPanels):
        sketch.panels.let_go()


def _require_same_names(session: Session) -> None:
    """Raise `Incompatible` if rows were appended and the columns have other names than before.

    Summaries of an earlier run would be merged with parts whose columns stand for something else.
    """
    before = session.folder.fingerprint("summarize")
    names = session.matrix.feature_names
    if before is None or names is None or before.get("feature_names") in (None, names_digest(names)):
        return
    rows, width = before["shape"]
    if width != len(names) or rows >= session.matrix.shape[0]:
        return
    try:
        old = codec.load(session.folder.path / "summary.sks").feature_names
    except SketchSelectError:
        return
    for j, (a, b) in enumerate(zip(old or (), names, strict=False)):
        if a != b:
            raise Incompatible(
                f"{session.matrix.address}: rows were appended since the last run here, and column {j}, which was "
                f"named {a!r}, is named {b!r} now; put the columns in the order they had, or start again with --fresh"
            )


def _note_units(session: Session, summary: Summary[Any]) -> None:
    """Add a note if few columns have nearly all of the variance; `auto` says it of the rows that it samples."""
    same_units = all(step.keeps_units for step in session.steps)
    says_so = session.selector.needs_target or isinstance(session.selector, AutoSelector)
    if says_so or session.matrix.is_sparse or not same_units:
        return
    stats: Any = pick(summary, ColumnStats.kind)
    # Rows of unit length leave a column of large values almost no variance.
    normalized = any(step.normalizes_rows for step in session.steps)
    variances = np.asarray(stats.variance + stats.mean**2 if normalized else stats.variance)
    if remark := outweighing_variances(variances, session.matrix.feature_names):
        session.note(remark)


def collect(session: Session, summary: Summary[Any]) -> Summary[Any]:
    """Return the summary that the method selects from: of the rows, or of its own or further passes.

    Methods that read columns, some rows, raw counts as well as prepared rows, or the source more than once, publish
    ``columns.sks``.
    """
    folder, selector = session.folder, session.selector
    further, collects = None, selector.makes_passes or session.selects_apart
    if not session.has_preset and not collects:
        further = selector.further_description(summary)
    if session.has_preset or not (collects or further is not None):
        folder.discard(("columns.sks",))
        return summary
    parameters = selector.get_params()
    if selector.axis == "columns":
        # The summary of a stream of columns does not depend on how many are selected in the end.
        del parameters["n_features_to_select"]
    labels = session.partition()
    fingerprint = session.source_fingerprint(
        method=selector.method,
        parameters=tables.plain_value(parameters),
        target=session.target_fingerprint,
        partition=None if labels is None else labels.identity(),
        further=None if further is None else summary_key(further),
    )
    with session.stage("collect") as entry:
        if session.reusable("collect", fingerprint, entry):
            return codec.load(folder.path / "columns.sks")
        options = session.pass_options.but(on_statistics=lambda stats: session.add_statistics(entry, stats))
        if selector.reads_columns:
            size = column_partition_bytes(session.config.execution.partition_bytes)
            options = options.but(partition_bytes=size)
        selection_summary: Summary[Any]
        if further is None:
            source = session.selection_source
            selection_summary = selector.complete(selector.collect_source(source, options), source, options)
        else:
            selection_summary = selector.complete(summary, session.source, options)
        session.require_unchanged()
        folder.write("columns.sks", codec.encode(selection_summary))
        folder.finish("collect", fingerprint, ["columns.sks"], entry)
        return selection_summary


def select(
    session: Session, selection_summary: Summary[Any], summary: Summary[Any], preset: Selection | None = None
) -> tuple[Selection, Model | None]:
    """Publish ``selection.json`` and ``scores.csv``, and of a method with a target ``model.json`` and ``path.csv``.

    The data are not read: the columns come from `selection_summary`, the result of `collect`, or are those of a
    `preset`; the bound of their clusterings comes from `summary`, the result of `summarize`.
    """
    folder, settings, model = session.folder, session.config.select, None
    with session.stage("select") as entry:
        if preset is None:
            selector = fit_selector(session, selection_summary)
            selection: Selection = selector.selection_
            if selector.needs_target:
                model = model_of(selector, session.target_name())
            if model is not None and model.is_of_codes and "task" in selector.get_params():
                session.note(
                    'the target has the values 0 and 1 alone: task = "classification" in [select] predicts these as '
                    "classes, and states the share of wrong predictions"
                )
        else:
            selection = preset
        if selection.applied:
            give_detail(session.progress, f"select: {selection.applied}")
        selection = with_bound(session, summary, selection)
        entry["n_selected"] = len(selection.support)
        folder.write("selection.json", tables.selection_json(selection))
        folder.write("scores.csv", tables.scores_csv(selection))
        if (curve := selection.diagnostics.get("curve")) is None:
            folder.discard(("curve.csv",))
        else:
            folder.write("curve.csv", tables.csv_text([list(curve), *map(list, zip(*curve.values(), strict=True))]))
        if model is None:
            folder.discard(("model.json", "path.csv"))
        else:
            folder.write("model.json", model_json(model))
            folder.write("path.csv", path_csv(model))
    n_selected = len(selection.support) if model is None else model.terms.size
    if preset is None and isinstance(settings.n_features, int) and n_selected < settings.n_features:
        session.note(
            f"{settings.method} selected {n_selected} of the {counted(settings.n_features, 'column')} asked for"
        )
    require_weights(session.config, selection)
    return selection, model


def with_bound(session: Session, summary: Summary[Any], selection: Selection) -> Selection:
    """Return the selection with what is proved of clusterings of its columns, if the job clusters and certifies."""
    settings = session.config.cluster
    diagnostics = {key: value for key, value in selection.diagnostics.items() if key != BOUND}
    if settings is not None and settings.certificate_settings is not None and selection.support.size > 0:
        diagnostics[BOUND] = certify_selection(summary, selection.support, settings.n_clusters).to_dict()
    return replace(selection, diagnostics=diagnostics)


def fit_selector(session: Session, summary: Summary[Any]) -> BaseSelector:
    """Return the fitted selector; its warnings are notes of the run."""
    with noted_warnings(session, session.selector.method), reporting_steps(session.progress):
        return session.selector.fit_summary(summary)


def write_selected(
    session: Session, summary: Summary[Any], selection: Selection
) -> tuple[Source | None, dict[str, Any] | None]:
    """Publish ``features.zarr``, and return it as a source with the sample for the 2-D view."""
    folder, seed = session.folder, _seed(session)
    if not session.config.output.features or selection.support.size == 0:
        folder.discard(("features.zarr",))
        return None, None
    fingerprint = session.source_fingerprint(
        support=[int(j) for j in selection.support],
        dtype=str(feature_dtype(session.rows)),
        seed=seed,
        summary=file_digest(folder.path / "summary.sks"),
    )
    with session.stage("write features") as entry:
        if not session.reusable("write features", fingerprint, entry):
            path = folder.staging("features.zarr")
            view = view_of(summary)
            let_go(summary)  # a pass over the rows needs the memory
            result = write_features(session.written_rows, selection.support, path, view, seed, session.pass_options)
            session.add_statistics(entry, result.stats)
            session.require_unchanged()
            folder.publish("features.zarr")
            entry["view"] = {"rows": result.value.rows.tolist(), "points": result.value.points.tolist()}
            folder.finish("write features", fingerprint, ["features.zarr"], entry)
        view_sample = entry.pop("view")
    policy = session.config.input.nonfinite
    return Source(open_matrix(str(folder.path / "features.zarr"), nonfinite=policy)), view_sample


def view_of(summary: Summary[Any]) -> View | None:
    """Return the plane of the sketch's two top directions through the mean, signs fixed; None without a sketch."""
    sketch = sketch_of(summary)
    if sketch is None:
        return None
    axes = np.zeros((2, sketch.n_features))
    top = centered_in_place(sketch).remembered(Directions.top)
    axes[: len(top)] = top
    largest = np.abs(axes).argmax(axis=1)
    signs = np.where(axes[np.arange(2), largest] < 0, -1.0, 1.0)
    return View(np.asarray(sketch.mean), (axes * signs[:, None]).T.copy())


def sketch_of(summary: Summary[Any]) -> Spectrum | None:
    """Return the sketch in a job's summary; None if the job makes none."""
    members = summary.values() if isinstance(summary, Bundle) else [summary]
    return next((cast(Spectrum, member) for member in members if member.kind == FrequentDirections.kind), None)


def _state_projection(session: Session, source: Source, description: Summary[Any]) -> None:
    """Report the memory and passes before the first pass starts."""
    memory, n_passes, amplification = summary_projection(source, description, session.pass_options)
    if amplification > 1:
        session.note(
            f"{session.matrix.address}: chunks are taller than a partition, every byte is decoded {amplification:.1f} "
            "times; `sketchselect convert --chunks` makes a store that is not"
        )
    times = f"; {n_passes} passes, each over all rows" if n_passes > 1 else ""
    session.progress.note(f"memory to summarize: at most {format_bytes(memory.nbytes)} per process{times}")
    give_detail(session.progress, f"summarize: {memory.sentence()}")


def _seed(session: Session) -> int:
    return session.config.cluster.random_state if session.config.cluster else 0
