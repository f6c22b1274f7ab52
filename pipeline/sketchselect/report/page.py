"""Report page: the sections of a record, laid out by the template in this folder."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup, escape

from sketchselect._byte_sizes import format_bytes
from sketchselect._text import NAME_LENGTH, clean, count, format_seconds, number
from sketchselect.cluster.certificates.certificate import shown_share, strongest
from sketchselect.plots.charts import rank
from sketchselect.report import charts, drawing, tables
from sketchselect.report.drawing import (
    JOB_LENGTH,
    NOTE_LENGTH,
    as_numbers,
    at_least,
    factor,
    flat,
    not_above,
    percent,
    probability,
    words,
)
from sketchselect.report.model import model_section

_MAX_NOTES = 100

# Entries of the manifest, and their keys, with statements on the selected columns.
PROOFS = (
    ("selection_bound", "sentence"),
    ("selection_bound", "sentence_least_squares"),
    ("certificate_selected_columns", "sentence"),
)


def render(manifest: Mapping[str, Any], selection: Mapping[str, Any], figures: Mapping[str, Any]) -> str:
    """Draw the report page of a run.

    Same content, same bytes (for one version of the drawing library). The page loads nothing, runs one script, that of
    the package, and stays below 600 kB whatever the size of the matrix; text from outside is escaped and shortened.

    Parameters
    ----------
    manifest : mapping
        The content of ``manifest.json``.
    selection : mapping
        That of ``selection.json``: `method`, `scores` (n_columns,), `support` (r,), `weights`, `feature_names`.
    figures : mapping
        That of ``report.json``; a section without data is left out. `job_text`: the job file that repeats the run.
        `prepare`: descriptions of the steps. `n_dropped`: rows left out for values that are not finite.
        `singular_values` of the sketch, descending, with `shrinkage` (the true squares lie in [s^2, s^2 + shrinkage])
        and `squared_norm` of the centred rows. `points` (m, 2): a sample of the rows on the top two directions, with
        `point_labels` and `centres_2d`. `centres` (k, n_columns): means of the clusters. `profiles` (k, r): the same
        less the mean of all rows, in standard deviations. `known_labels`: `table` of `classes` by clusters. `model`:
        see `workflow.stages.model.Model.figure`; `timeline` and `cluster_count`: see the stages that make them.

    Returns
    -------
    str
        A complete HTML document; write it as UTF-8.

    Raises
    ------
    BadParameter
        Two arrays contradict each other.
    """
    with drawing.style():
        return _template().render(_context(tables.RunContent(manifest, selection, figures)))


def drift_figure(names: Sequence[str], days: Sequence[Mapping[str, Any]]) -> str:
    """Draw the shares of drift of several days, with their intervals and thresholds, as an SVG file.

    Parameters
    ----------
    names : sequence of str
        Name of each day.
    days : sequence of mapping
        `Drift.to_dict` of each day.

    Returns
    -------
    str
        A complete SVG document in the colours of the page, light or dark; write it as UTF-8.
    """
    with drawing.style():
        figure = charts.draw_drift([clean(name) for name in names], days)
    page = resources.files("sketchselect.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    colours = page[page.index(":root {") : page.index("@media print")]
    style = f"<style>{colours}svg {{ background: var(--card); font-family: sans-serif; }}</style>"
    head, mark, body = figure.partition(">")
    return f'{head} xmlns="http://www.w3.org/2000/svg"{mark}{style}{body}'


def _context(run: tables.RunContent) -> dict[str, Any]:
    manifest, figures, ranking = run.manifest, run.figures, rank(run.scores, run.support)
    timeline, cluster_count = figures.get("timeline"), figures.get("cluster_count")
    proofs = [
        manifest[name][key]
        for name, key in PROOFS
        # An earlier version's bound is of one metric; one of all columns says nothing.
        if key in manifest.get(name, ())
        and not (name == "selection_bound" and manifest[name]["n_selected"] == manifest[name]["n_features"])
    ]
    settings = {name: manifest[name] for name in ("seeds", "engine", "memory") if name in manifest}
    clusters = counts = None
    if cluster_count is not None:
        counts = charts.cluster_count_section(cluster_count, manifest["job"]["cluster"]["n_clusters"])
    if run.sizes is not None:
        listed, remark = tables.cluster_rows(run, run.sizes, drawing.N_COLOURS)
        clusters = {"rows": listed, "remark": remark}
    return {
        "title": clean(manifest["source"]["address"], 2 * NAME_LENGTH) or "sketchselect",
        "summary": tables.summary_sentence(run),
        "headline": tables.headline(run),
        "facts": _facts(run),
        "certificates": _certificates(run),
        "statements": [clean(sentence, NOTE_LENGTH) for sentence in proofs],
        "spectrum": _spectrum(figures),
        "scores": None
        if ranking.is_order or not ranking.n_scored
        else {"svg": Markup(charts.score_figure(ranking)), "caption": charts.describe_scores(ranking)},
        "images": None if run.image_shape is None else charts.draw_images(run.scores, run.support, run.image_shape),
        "centres": None
        if run.image_shape is None or run.centres is None or run.sizes is None
        else charts.draw_centres(run.centres, run.sizes, run.image_shape),
        "features": tables.feature_rows(run, ranking),
        "tests": tables.TESTS if tables.has_tests(run) else (),
        "volcano": charts.volcano_section(
            run.columns, run.support, run.names, str(run.diagnostics.get("effect", "effect"))
        )
        if tables.has_tests(run)
        else None,
        "features_total": run.support.size,
        "is_order": ranking.is_order,
        "profiles": tables.profile_table(run),
        "has_names": run.names is not None,
        "has_weights": run.weights is not None,
        "clusters": clusters,
        "errors_of_all": "standard_errors" in run.columns,
        "model": None if run.model is None else model_section(run.model, run.prepare),
        "timeline": None if timeline is None else charts.timeline_section(timeline),
        "cluster_count": counts,
        "curve": charts.curve_section(run.diagnostics, run.method, run.support.size),
        "choice": "" if "curve" in run.diagnostics else clean(str(run.diagnostics.get("choice", "")), NOTE_LENGTH),
        "diagnostics": _diagnostics(run),
        "bound": _selection_bound(run),
        "compared": _compared(run),
        "scatter": _scatter(run),
        "known": _known(run),
        "stages": tables.stage_rows(run.stages),
        "stage_profile": tables.stage_profile(run.stages),
        "total_time": format_seconds(run.seconds),
        "notes": [clean(note, NOTE_LENGTH) for note in manifest["notes"][:_MAX_NOTES]],
        "notes_left_off": max(0, len(manifest["notes"]) - _MAX_NOTES),
        "method": clean(run.method),
        "method_parameters": [(words(key), value) for key, value in flat(manifest["selection"]["parameters"])],
        "settings": flat(settings),
        "versions": flat(manifest["versions"]),
        "job_text": clean(figures.get("job_text", ""), JOB_LENGTH, keep="\n\t"),
        "colours": range(drawing.N_COLOURS),
    }


@lru_cache(maxsize=1)
def _template() -> Template:
    folder = resources.files("sketchselect.report")
    source, script = (folder.joinpath(name).read_text(encoding="utf-8") for name in ("page.html.j2", "columns.j2"))
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["number"] = number
    environment.filters["breakable"] = _breakable
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.globals |= {"script": Markup(script), "script_digest": f"sha256-{digest}"}
    return environment.from_string(source)


def _breakable(key: str) -> Markup:
    """Return a key that a narrow screen may break after a dot or an underscore."""
    return Markup(re.sub(r"([._])", r"\1<wbr>", str(escape(key))))


def _facts(run: tables.RunContent) -> list[tuple[str, str]]:
    """Return the tiles under the headline: (value, meaning)."""
    bytes_read = sum(stage.get("bytes_read") or 0 for stage in run.stages)
    facts = [
        (count(run.n_rows), "rows"),
        (count(run.n_columns), "columns"),
        (count(run.support.size), "selected"),
        (None if run.sizes is None else count(run.sizes.size), "clusters"),
        (format_bytes(bytes_read) if bytes_read else None, "read"),
        (format_seconds(run.seconds) if run.stages else None, "total time"),
        (count(run.n_dropped) if run.n_dropped else None, "rows dropped"),
    ]
    return [(value, meaning) for value, meaning in facts if value is not None]


def _certificates(run: tables.RunContent) -> list[Mapping[str, str]]:
    return [
        {
            "method": clean(c.method),
            "factor": factor(c.factor),
            "share": "–" if c.share is None else shown_share(c.share),
            "lower_bound": at_least(c.lower_bound),
            "objective": f"≤ {not_above(c.objective)}" if c.is_bounded else number(c.objective),
            "holds": "always" if c.confidence == 1 else f"with {probability(c.confidence)} confidence",
            "sentence": clean(c.sentence(), NOTE_LENGTH),
        }
        for c in run.certificates
    ]


def _diagnostics(run: tables.RunContent) -> list[tuple[str, str]]:
    """Return the method's figures; a fitted model has its own sections, which include them."""
    if run.model is not None:
        return []
    values = {
        key: number(value, 6) if isinstance(value, float) else value
        for key, value in run.diagnostics.items()
        if key not in ("curve", "choice", "selection_bound", "cluster_centers")
    }
    return [(words(key), value) for key, value in flat(values)]


def _selection_bound(run: tables.RunContent) -> str:
    """Return in words the bound of a selection before anything is clustered."""
    value = run.diagnostics.get("factor_before_clustering")
    if not isinstance(value, (int, float)) or not np.isfinite(value):
        return ""
    return (
        "Proven for these columns before any clustering: the best clustering by the selected columns, each multiplied "
        f"by its weight, costs over all columns at most {factor(float(value))} times as much as the best possible one."
    )


def _compared(run: tables.RunContent) -> Mapping[str, Any] | None:
    """Return the table of several clusterings and of a single cluster, the best value of each measure marked."""
    best, agreement = strongest(run.certificates), run.manifest.get("agreement")
    clusterings = list(run.manifest.get("compared", ()))
    if best is not None and best.scatter is not None:
        measures = (
            {"nmi": None, "ari": None} if agreement is None else {"nmi": agreement["nmi"], "ari": agreement["ari"]}
        )
        alone = {"columns": "selected columns", "objective": best.objective, "published": True, **measures}
        none = {"columns": "none: all rows are one cluster", "objective": best.scatter, "published": False}
        clusterings = [*(clusterings or [alone]), none | dict.fromkeys(measures, None if agreement is None else 0.0)]
    if len(clusterings) < 2:
        return None
    least = min(entry["objective"] for entry in clusterings)
    rows = [
        {
            "columns": clean(entry["columns"]),
            "objective": number(entry["objective"], 6),
            "above": _above(entry["objective"], least),
            "nmi": _measure(entry["nmi"]),
            "ari": _measure(entry["ari"]),
            "published": entry["published"],
        }
        for entry in clusterings
    ]
    return {
        "rows": rows,
        "labelled": any(entry["nmi"] is not None for entry in clusterings),
        "weighted": any("weighted" in entry["columns"] for entry in clusterings),
    }


def _measure(value: float | None) -> str:
    return "–" if value is None or not np.isfinite(value) else f"{value:.3f}"


def _above(objective: float, least: float) -> str:
    if objective <= least * (1 + 1e-9):
        return "the lowest"
    return f"+{percent(objective / least - 1, 2)}" if least > 0 else "–"


def _spectrum(figures: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if figures.get("singular_values") is None or not len(figures["singular_values"]):
        return None
    values, shrinkage = as_numbers(figures["singular_values"]), float(figures.get("shrinkage", 0.0))
    return {
        "svg": Markup(charts.draw_spectrum(values, shrinkage)),
        "caption": charts.describe_spectrum(values, shrinkage, figures.get("squared_norm")),
    }


def _scatter(run: tables.RunContent) -> Mapping[str, Any] | None:
    if run.points is None or not len(run.points):
        return None
    labels = None if run.point_labels is None else np.asarray(run.point_labels, dtype=np.int64)
    centres = run.figures.get("centres_2d")
    n_clusters = 0 if labels is None else int(labels.max(initial=-1)) + 1
    return {
        "svg": Markup(charts.scatter_figure(run.points, labels, None if centres is None else as_numbers(centres))),
        "caption": charts.describe_scatter(len(run.points), run.n_rows, n_clusters),
        "clustered": n_clusters > 0,
    }


def _known(run: tables.RunContent) -> Mapping[str, Any] | None:
    known, measures = run.figures.get("known_labels"), run.manifest.get("agreement")
    if known is None or measures is None:
        return None
    names = {
        "nmi": "NMI (normalised mutual information)",
        "ari": "ARI (adjusted Rand index)",
        "accuracy": "Accuracy (best matching)",
    }
    return {
        "table": tables.contingency(as_numbers(known["table"]), known["classes"]),
        "measures": [
            (name, _measure(measures[key]), _measure(measures[f"{key}_all_columns"])) for key, name in names.items()
        ],
        "compared": any(measures[f"{key}_all_columns"] is not None for key in ("nmi", "ari")),
        "r": count(run.support.size),
    }
