"""Comparison of methods, or of finished runs: inertia, certificate, agreement, stability, overlap and time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sketchselect._text import first_names
from sketchselect.cluster.certificates.certificate import Certificate, closer_one, strongest
from sketchselect.errors import ConfigError, warn
from sketchselect.job.load import check_select, load_job, make_selector, method_parameters
from sketchselect.location import is_url
from sketchselect.selectors import METHODS
from sketchselect.workflow.folder import claim, read_manifest, require_digests
from sketchselect.workflow.tables import csv_text, read_selection
from sketchselect.workflow.verify import complete

if TYPE_CHECKING:
    from sketchselect.job.schema import SelectSettings
    from sketchselect.selectors import Selection
    from sketchselect.summaries import Summary

FOLDS = 5
"""Folds of the rows; leaving out each once measures the stability of the columns."""

SHARED_STAGES = ("choose preparation", "summarize", "block certificate")
"""Stages that are charged to no method of one job: the first two are shared, the last is of the run's own clusters."""

CAPTION = "inertia: compare it, and not the closer bounds, which are of blocks drawn for each run's own clusters."
"""Note below a table of clusterings."""

CAPTIONS_OF_METHODS = (
    "seconds: of a whole run, without the summary, which the methods share, the block certificate, and stages that an "
    "earlier comparison in this folder finished; methods of the same columns are clustered once, and charged alike.",
    "k-means: has one start more here than in a run of one method alone, clusters of a sample of the rows, which the "
    "methods share; so the inertia of that run may be somewhat higher.",
)
"""Further notes on the methods of one job, a line each."""


SHOWN = {
    "n_features": "columns",
    "objective": "inertia in all columns",
    "factor": "inertia / best possible, at most",
    "likely_factor": "with the probability below, at most",
    "confidence": "probability of this closer bound",
    "certificates": "certificates (certain, closer)",
    "nmi": "NMI with the labels",
    "ari": "ARI with the labels",
    "measure": "measure of the model",
    "explained": "explained on the fitted rows",
    "held_out": "explained on held-out rows",
    "error": "error on held-out rows",  # of one measure by its name in `ERRORS`
    "standard_error": "standard error of this error",
    "misclassification": "misclassification rate on held-out rows",
    "misclassified_by": "how this rate was measured",
    "folds": "folds held out in turn",
    "stability": "stability (columns that stay)",
    "unused": "settings without effect",
}
"""Properties on the terminal; in CSV and JSON they have their own names."""

SAME = 1e-9
"""Relative difference of errors up to which rounding makes it: of one model from sums in another order."""

ERRORS = {"R2": "mean squared error", "D2": "mean deviance"}
"""What the error on held-out rows is, by the measure of the model."""


@dataclass(frozen=True)
class ComparedRun:
    """Results of one selection and its clustering."""

    name: str  # The method, or the folder of the run
    method: str
    n_features: int
    objective: float | None  # Exact, in all prepared columns
    # As `run` states it: the factor that is certain, and a closer one with its probability
    factor: float | None
    likely_factor: float | None
    confidence: float | None
    certificates: str | None  # The methods of both
    nmi: float | None  # Agreement with known labels
    ari: float | None
    target: str | None  # Of the model or the tests
    measure: str | None  # "R2", or "D2" of counts and log-loss
    # Share of the target's variance (or deviance) on the fitted rows and on held-out folds, with the error there
    explained: float | None
    held_out: float | None
    error: float | None
    standard_error: float | None
    misclassification: float | None  # On held-out folds
    misclassified_by: str | None  # "counted" on the rows, or "expected" from their moments
    folds: str | None  # How many, their seed, and the groups of rows that stay together
    stability: float | None  # Mean share of the columns that stay when a fold of the rows is left out
    seconds: float
    unused: str | None  # Settings of the job's [select] that this method does not have
    source: dict[str, Any]  # Where the rows are, which columns the job reads, and the fingerprint of their content
    support: tuple[int, ...]
    feature_names: tuple[str, ...] | None = None  # Of the selected columns, where the source names them

    @classmethod
    def of(
        cls,
        name: str,
        content: dict[str, Any],
        selection: Selection,
        seconds: float,
        stability: float | None = None,
        unused: Sequence[str] = (),
    ) -> ComparedRun:
        """Return the results in the manifest of a run."""
        certificates = [Certificate.from_dict(entry) for entry in content.get("certificates", ()) if entry["factor"]]
        sure = strongest([certificate for certificate in certificates if certificate.confidence == 1])
        likely = closer_one(certificates) if sure is not None else strongest(certificates)
        agreement, model = content.get("agreement") or {}, content.get("model") or {}
        cv = model.get("cv") or {}
        share = next((name for name in ("r2", "d2") if name in model), None)
        rates = model.get("misclassification") or {}
        return cls(
            name,
            selection.method,
            len(selection.support),
            content.get("objective"),
            None if sure is None else sure.factor,
            None if likely is None else likely.factor,
            None if likely is None else likely.confidence,
            ", ".join(certificate.method for certificate in (sure, likely) if certificate is not None) or None,
            agreement.get("nmi"),
            agreement.get("ari"),
            content["job"]["input"]["target"],
            None if share is None else share.upper(),
            None if share is None else model[share],
            None if share is None else cv.get(share),
            cv.get("mean_squared_error", cv.get("mean_deviance")),
            cv.get("standard_error"),
            rates.get("held_out"),
            ("counted" if rates["counted"] else "expected") if rates.get("held_out") is not None else None,
            _folds(content) if cv else None,
            stability,
            seconds,
            ", ".join(unused) or None,
            _source(content),
            tuple(map(int, selection.support)),
            None if (names := selection.feature_names) is None else tuple(names[j] for j in selection.support),
        )


def compare_runs(targets: Sequence[str], overrides: Sequence[str] = (), progress: Any = False) -> list[ComparedRun]:
    """Return the finished runs of output folders and job files; the job of a file is run, or resumed, first.

    `overrides`: Settings ``section.key=value`` of the jobs.
    """
    from sketchselect.workflow.job import run

    for target in targets:
        if not Path(target).exists():
            hint = f"; it is a method: --methods {target} runs the job with it" if target in METHODS else ""
            raise ConfigError(f"{target}: no such file or folder{hint}")
    runs = []
    for target in targets:
        path = Path(target)
        folder = path if path.is_dir() else run(path, overrides=overrides, progress=progress).folder
        if not (folder / "manifest.json").exists():
            raise ConfigError(f"{folder}: no manifest.json: the run did not finish; run its job first")
        content = read_manifest(folder, complete)
        require_digests(folder, content, "summary.sks", "selection.json")
        runs.append(ComparedRun.of(str(target), content, read_selection(folder / "selection.json"), content["seconds"]))
    if not same_source(runs):
        problem = _written_again(runs) or "the runs are of different sources"
        warn(f"{problem}: their inertias, models and columns cannot be compared")
    elif not _prepared_alike(runs) and any(each.objective is not None for each in runs):
        warn("the runs read or prepare other columns of one source: their inertias cannot be compared")
    return runs


def _source(content: dict[str, Any]) -> dict[str, Any]:
    source, settings = content["source"], content["job"]["input"]
    place = {"address": source["address"], "rows": source["shape"][0], "columns": source["shape"][1]}
    # Of a table these say which columns are read.
    reads = {name: settings.get(name) for name in ("key", "target", "cv_groups", "feature_names")}
    marks = {"identity": source["identity"], "summary": content.get("digests", {}).get("summary.sks")}
    return {**place, **reads, **marks, "prepare": content["prepare"]}


def _folds(content: dict[str, Any]) -> str:
    seed, groups = content["selection"]["parameters"].get("random_state", 0), content["job"]["input"].get("cv_groups")
    text = f"{content['model']['cv']['n_folds']}, seed {seed}"
    return text if groups is None else f"{text}, groups of {groups}"


def same_source(runs: Sequence[ComparedRun]) -> bool:
    """Return whether all runs are of the same rows: address, number, and content as far as it is known.

    A table's fingerprint is of the columns that a job reads, so only jobs that read the same ones are compared by it.
    A file that was written again has another one; its rows are the same where a summary of all of them is, to the bit.
    """
    return len({(each.source["address"], each.source["rows"]) for each in runs}) == 1 and all(
        len({reader.source["columns"] for reader in readers}) == 1 and _n_contents(readers) <= 1
        for readers in _readers(runs)
    )


def _prepared_alike(runs: Sequence[ComparedRun]) -> bool:
    """Return whether runs of one source read the same columns of it and prepare them alike."""
    return len({(each.source["identity"], repr(each.source["prepare"])) for each in runs}) == 1


def _readers(runs: Sequence[ComparedRun]) -> list[list[ComparedRun]]:
    """Return the runs in groups that read the same columns, but for those whose content has no fingerprint."""
    groups: dict[Any, list[ComparedRun]] = {}
    for each in runs:
        if each.source["identity"] is not None:
            reads = tuple(v for k, v in each.source.items() if k not in ("columns", "identity", "summary", "prepare"))
            groups.setdefault(reads, []).append(each)
    return list(groups.values())


def _n_contents(runs: Sequence[ComparedRun]) -> int:
    """Return how many contents are told apart: neither the fingerprint nor the summary of all rows is the same."""
    contents: list[set[Any]] = []
    for each in runs:
        marks = {each.source["identity"], each.source["summary"]} - {None}
        contents = [
            marks.union(*(content for content in contents if content & marks)),
            *(content for content in contents if not content & marks),
        ]
    return len(contents)


def _written_again(runs: Sequence[ComparedRun]) -> str:
    """Return what is known of runs of one file, of one shape, that was written again; empty of other runs."""
    if len({tuple(each.source[name] for name in ("address", "rows")) for each in runs}) > 1:
        return ""
    if any(len({reader.source["columns"] for reader in readers}) > 1 for readers in _readers(runs)):
        return ""
    return (
        f"{runs[0].source['address']} was written again between the runs, or its time was set, and whether its rows "
        "are the same is not known"
    )


def compare_methods(
    job: str, methods: Sequence[str], overrides: Sequence[str] = (), progress: Any = False
) -> list[ComparedRun]:
    """Return a job's runs with each of some methods, in a folder ``compare`` inside its own.

    All methods select from the summary of one pass, and without a fold of the rows from that of another one; each with
    the job's tolerance, and those of its parameters that the method has and that do not change the summary.
    """
    from sketchselect.execution import summarize_source
    from sketchselect.selectors import AutoSelector
    from sketchselect.summaries import Folds
    from sketchselect.workflow.job import run_config
    from sketchselect.workflow.session import open_session, require_apart
    from sketchselect.workflow.stages import columns as column_stage

    config = load_job(job, overrides)
    if learning := [name for name in methods if name in METHODS and METHODS[name]().uses_target]:
        raise ConfigError(
            f"--methods: {learning[0]} learns from a target, and is compared by job files, one for each method: "
            "sketchselect compare a.toml b.toml"
        )
    if AutoSelector.method in methods:
        raise ConfigError(
            f"--methods: {AutoSelector.method} runs methods itself and takes the best, so it is not one of them; name "
            "those that it chooses from, such as greedy,variance, or compare its finished run: sketchselect compare "
            "a.toml b.toml"
        )
    if config.cluster is None:
        raise ConfigError("compare: methods are compared by their clusterings, so the job needs [cluster]")
    size, sizing = config.select.n_features or "auto", dict[str, Any](n_clusters=config.cluster.n_clusters)
    has_weights = "weighted" in config.cluster.variants
    chosen = config.select
    if chosen.tolerance is not None:
        sizing["tolerance"] = chosen.tolerance
    # The settings of the summary: how rows are prepared, and how many are sampled.
    of_all = {k: v for k, v in chosen.parameters.items() if k in ("normalize", "sample_rows", "random_state")}
    settings = {"method": AutoSelector.method, "n_features": size, **of_all, "methods": list(methods)}
    together = check_select(settings)
    require_apart(config)
    if not is_url(config.output.dir):
        # The folder around ``compare`` is the job's own, which `run` uses afterwards.
        claim(Path(config.output.dir))
    output = config.output.model_copy(update={"dir": str(Path(config.output.dir) / "compare"), "report": False})
    config = config.model_copy(update={"select": together, "output": output})
    with open_session(config, progress=progress) as session:
        summary = column_stage.summarize(session)
        bundle = column_stage.description(config, session.selector, session.n_columns)
        source, options = session.source, session.pass_options
        folds: Any = summarize_source(source, Folds(bundle, FOLDS), options, stage="folds").value
    runs = []
    clustering_seconds: dict[Any, float] = {}  # By the columns and weights that are clustered
    for method in methods:
        parameters, unused = _of_method(method, chosen, size, sizing, session.n_columns)
        began = time.perf_counter()
        selection = _selected(method, size, summary, parameters, sizing)
        seconds = time.perf_counter() - began
        without = [
            _selected(method, len(selection.support), folds.complement(i), parameters, sizing).support
            for i in range(FOLDS)
        ]
        stay = [np.isin(selection.support, other).mean() for other in without]
        result = run_config(config, preset=selection, progress=progress)
        weights = selection.weights if has_weights else None
        clustered = selection.support.tobytes(), None if weights is None else weights.tobytes()
        charged = sum(stage["seconds"] for stage in _charged(result.manifest["stages"]))
        # Of the same columns a run finds the stages of the earlier one finished.
        seconds += clustering_seconds.setdefault(clustered, charged)
        runs.append(ComparedRun.of(method, result.manifest, selection, seconds, float(np.mean(stay)), unused))
    return runs


def _charged(stages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [stage for stage in stages if not stage["reused"] and stage["name"] not in SHARED_STAGES]


def _of_method(
    method: str, chosen: SelectSettings, size: Any, sizing: dict[str, Any], n_columns: int
) -> tuple[dict[str, Any], list[str]]:
    """Return the parameters of a job that a method takes, and the names of the settings that it does not."""

    def needed(parameters: dict[str, Any]) -> Any:
        return make_selector(method, size, parameters, **sizing).summary_description(n_columns)

    has = method_parameters(method)
    # The summary is made once for all methods, each with its defaults.
    usable = {k: v for k, v in chosen.parameters.items() if k in has and needed({k: v}) == needed({})}
    unused = [name for name in chosen.parameters if name not in usable]
    return usable, unused + ["tolerance_proved"] * (chosen.tolerance_proved is not None)


def _selected(
    method: str, size: Any, summary: Summary[Any], parameters: dict[str, Any], sizing: dict[str, Any]
) -> Selection:
    selector = make_selector(method, size, parameters, **sizing)
    if "n_clusters" in selector.get_params() and selector.get_params()["n_clusters"] is None:
        selector.set_params(**sizing)
    return selector.fit_summary(summary).selection_


def overlap(runs: Sequence[ComparedRun]) -> list[list[float]]:
    """Return the shares of the columns of two selections that both have (Jaccard), for all pairs; 1 of equal ones."""
    # Jobs that read other columns, or prepare them otherwise, number them otherwise.
    is_named = all(each.feature_names is not None for each in runs)
    sets = [set[Any](each.feature_names or () if is_named else each.support) for each in runs]
    return [[len(a & b) / len(a | b) if a | b else 1.0 for b in sets] for a in sets]


def to_rows(runs: Sequence[ComparedRun]) -> list[list[Any]]:
    """Return the table with its header: a row for each selection, its overlaps with the others last."""
    names = [field.name for field in fields(ComparedRun) if field.name not in ("source", "support", "feature_names")]
    head = [*names, *(f"overlap with {each.name}" for each in runs)]
    values = ([getattr(each, name) for name in names] for each in runs)
    return [head, *([*row, *shares] for row, shares in zip(values, overlap(runs), strict=True))]


def to_csv(runs: Sequence[ComparedRun]) -> str:
    """Return the table as CSV."""
    return csv_text([["" if value is None else value for value in row] for row in to_rows(runs)])


def to_text(runs: Sequence[ComparedRun]) -> str:
    """Return the table for a terminal, a line for each property that a run has."""
    properties = [row for row in zip(*to_rows(runs), strict=True) if any(value is not None for value in row[1:])]
    # Of classes the rate says most: R2 is that of the codes 0 and 1.
    names = [row[0] for row in properties]
    if "misclassification" in names and "measure" in names:
        place, rate = names.index("measure"), names.index("misclassification")
        properties[place:place] = [properties.pop(rate), properties.pop(rate)]
    measures = {str(each.measure) for each in runs if each.error is not None}
    labels = {**SHOWN, "error": f"{ERRORS[measures.pop()]} on held-out rows"} if len(measures) == 1 else SHOWN
    columns = [[labels.get(row[0], row[0]), *map(_shown, row[1:])] for row in properties]
    widths = [max(len(row[i]) for row in columns) for i in range(len(runs) + 1)]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in columns]
    clustered = [each for each in runs if each.objective is not None]
    # Inertias of other rows, or in other columns, are not to be compared.
    comparable = bool(clustered) and same_source(clustered) and _prepared_alike(clustered)
    captions = [CAPTION] if comparable else []
    # Only the methods of one job were run without folds of its rows.
    captions += CAPTIONS_OF_METHODS if any(each.stability is not None for each in runs) else []
    return "\n".join([*lines, *filter(None, (ranking(runs), *captions))])


def ranking(runs: Sequence[ComparedRun]) -> str:
    """Return which model predicts held-out rows best, in words; empty where there are no two models."""
    models = [each for each in runs if each.measure is not None]
    if len(models) < 2:
        return ""
    if not same_source(models):
        problem = _written_again(models)
        return f"The models are not ranked: {problem or 'they are of different sources'}."
    differ = "The models are of different targets, or measured differently, and not ranked."
    if len({(each.target, each.measure) for each in models}) > 1:
        return differ
    unmeasured = [each.name for each in models if each.held_out is None or each.error is None]
    if unmeasured:
        return (
            f"The models are not ranked: {first_names(unmeasured)} has no figure on held-out rows, which cv = 5 in "
            f"[select] gives; {models[0].measure} on the fitted rows rises with every further column."
        )
    if models[0].measure == "R2" and len({each.misclassification is None for each in models}) > 1:
        return differ  # codes of classes have other units than the numbers 0 and 1
    best, following = sorted(models, key=lambda each: each.error or 0.0)[:2]
    error = ERRORS[str(best.measure)]
    if np.isclose(float(best.error or 0), float(following.error or 0), rtol=SAME, atol=0):
        return f"{best.name} and {following.name} have the same {error} on held-out rows, {best.error:.6g}."
    text = (
        f"Best on held-out rows: {best.name} with {best.measure} {best.held_out:.4f}, {error} {best.error:.6g}, before "
        f"{following.name} with {following.held_out:.4f}, {error} {following.error:.6g}."
    )
    if best.folds != following.folds:
        text += (
            f" Their folds differ ({best.name}: {best.folds}; {following.name}: {following.folds}), which changes "
            "errors too: compare them on the same ones."
        )
    if best.standard_error is None:
        return text
    return (
        f"{text} The standard error of {best.name}'s own error is {best.standard_error:.3g}; that of the difference "
        "is not known, and may be smaller, as both errors are of the same rows."
    )


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
