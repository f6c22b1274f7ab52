"""Report page: the sections of a record, laid out by the template in this folder."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup, escape

from sketchselect._byte_sizes import format_bytes
from sketchselect._text import format_seconds
from sketchselect.cluster.certificates.certificate import shown_share, strongest
from sketchselect.report import drawing
from sketchselect.report.charts import (
    cluster_count_section,
    curve_section,
    describe_scatter,
    describe_spectrum,
    draw_centres,
    draw_images,
    draw_scatter,
    draw_spectrum,
    timeline_section,
)
from sketchselect.report.model import model_section
from sketchselect.report.records import ComparedRecord, RunRecord
from sketchselect.report.tables import (
    cluster_rows,
    contingency,
    describe_scores,
    draw_scores,
    feature_rows,
    headline,
    profile_table,
    rank,
    stage_profile,
    stage_rows,
    summary_sentence,
)
from sketchselect.report.text import (
    JOB_LENGTH,
    NAME_LENGTH,
    NOTE_LENGTH,
    at_least,
    clean,
    count,
    factor,
    flat,
    not_above,
    number,
    percent,
    probability,
    words,
)

_MAX_NOTES = 100


def render_page(record: RunRecord) -> str:
    """Return the HTML document; see `sketchselect.report.render`."""
    with drawing.style():
        return _template().render(_context(record))


def _context(record: RunRecord) -> dict[str, Any]:
    scores = np.asarray(record.scores, dtype=float)
    support = np.asarray(record.support, dtype=np.int64)
    ranking = rank(scores, support)
    context: dict[str, Any] = {
        "title": clean(record.title, 2 * NAME_LENGTH) or "sketchselect",
        "summary": summary_sentence(record),
        "headline": headline(record),
        "facts": _facts(record),
        "certificates": _certificates(record),
        "statements": [clean(text, NOTE_LENGTH) for text in record.statements],
        "spectrum": _spectrum(record),
        "scores": None,
        "images": None,
        "centres": None,
        "features": feature_rows(record, ranking),
        "features_total": len(support),
        "is_order": ranking.is_order,
        "profiles": profile_table(record),
        "has_names": record.feature_names is not None,
        "has_weights": record.weights is not None,
        "clusters": None,
        "model": None if record.model is None else model_section(record.model),
        "timeline": None if record.timeline is None else timeline_section(record.timeline),
        "cluster_count": None if record.cluster_count is None else cluster_count_section(record.cluster_count),
        "curve": curve_section(record.diagnostics, record.method, len(support)),
        "diagnostics": _diagnostics(record),
        "bound": _selection_bound(record),
        "compared": _compared(record),
        "scatter": _scatter(record),
        "known": _known(record),
        "stages": stage_rows(record),
        "stage_profile": stage_profile(record),
        "total_time": format_seconds(_seconds(record)),
        "notes": [clean(note, NOTE_LENGTH) for note in list(record.notes)[:_MAX_NOTES]],
        "notes_left_off": max(0, len(record.notes) - _MAX_NOTES),
        "method": clean(record.method),
        "method_parameters": [(words(key), value) for key, value in flat(record.method_parameters)],
        "settings": flat(record.settings),
        "versions": flat(record.versions),
        "job_text": clean(record.job_text, JOB_LENGTH, keep="\n\t"),
        "colours": range(drawing.N_COLOURS),
    }
    if ranking.n_scored and not ranking.is_order:
        context["scores"] = {"svg": Markup(draw_scores(ranking)), "caption": describe_scores(ranking)}
    if record.image_shape is not None:
        context["images"] = draw_images(scores, support, [int(n) for n in record.image_shape])
    if record.cluster_weights is not None:
        weights = np.asarray(record.cluster_weights, dtype=float)
        listed, remark = cluster_rows(weights, drawing.N_COLOURS)
        if record.image_shape is not None and record.centres is not None:
            context["centres"] = draw_centres(np.asarray(record.centres, dtype=float), weights, record.image_shape)
        context["clusters"] = {"rows": listed, "remark": remark, "unit": "weight" if record.weighted else "rows"}
    return context


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


def _facts(record: RunRecord) -> list[tuple[str, str]]:
    """Return the tiles under the headline: (value, meaning)."""
    facts = [
        (count(record.n_rows), "rows"),
        (count(record.n_columns), "columns"),
        (count(len(np.asarray(record.support))), "selected"),
    ]
    if record.cluster_weights is not None:
        facts.append((count(len(np.asarray(record.cluster_weights))), "clusters"))
    read = sum(stage.bytes_read or 0 for stage in record.stages)
    if read:
        facts.append((format_bytes(read), "read"))
    if record.stages:
        facts.append((format_seconds(_seconds(record)), "total time"))
    if record.n_dropped:
        facts.append((count(record.n_dropped), "rows dropped"))
    return facts


def _seconds(record: RunRecord) -> float:
    return sum(stage.seconds for stage in record.stages) if record.seconds is None else record.seconds


def _certificates(record: RunRecord) -> list[Mapping[str, str]]:
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
        for c in record.certificates
    ]


def _diagnostics(record: RunRecord) -> list[tuple[str, str]]:
    """Return the method's figures; a fitted model has its own sections, which include them."""
    if record.model is not None:
        return []
    shown = {
        key: number(v, 6) if isinstance(v, float) else v
        for key, v in record.diagnostics.items()
        if key not in ("curve", "choice")
    }
    return [(words(key), value) for key, value in flat(shown)]


def _selection_bound(record: RunRecord) -> str:
    """Return in words the bound that a selection has before anything is clustered."""
    value = record.diagnostics.get("factor_before_clustering")
    if not isinstance(value, (int, float)) or not np.isfinite(value):
        return ""
    return (
        "Proven for these columns before any clustering: the best clustering by the selected columns, each multiplied "
        f"by its weight, costs over all columns at most {factor(float(value))} times as much as the best possible one."
    )


def _compared(record: RunRecord) -> Mapping[str, Any] | None:
    """Return the table of several clusterings and of a single cluster, the best value of each measure marked."""
    best, known = strongest(record.certificates), record.known_labels
    compared = list(record.compared)
    if best is not None and best.scatter is not None:
        nmi, ari = (None, None) if known is None else (known.nmi, known.ari)
        compared = compared or [ComparedRecord("selected columns", best.objective, nmi, ari, published=True)]
        one = None if known is None else 0.0
        compared.append(ComparedRecord("none: all rows are one cluster", best.scatter, one, one))
    if len(compared) < 2:
        return None
    least = min(c.objective for c in compared)
    labelled = any(c.nmi is not None for c in compared)
    rows = [
        {
            "columns": clean(c.columns),
            "objective": number(c.objective, 6),
            "above": _above(c.objective, least),
            "nmi": _measure(c.nmi),
            "ari": _measure(c.ari),
            "published": c.published,
        }
        for c in compared
    ]
    return {"rows": rows, "labelled": labelled, "weighted": any("weighted" in c.columns for c in compared)}


def _measure(value: float | None) -> str:
    return "–" if value is None or not np.isfinite(value) else f"{value:.3f}"


def _above(objective: float, least: float) -> str:
    if objective <= least * (1 + 1e-9):
        return "the lowest"
    return f"+{percent(objective / least - 1, 2)}" if least > 0 else "–"


def _spectrum(record: RunRecord) -> Mapping[str, Any] | None:
    if record.singular_values is None:
        return None
    values = np.asarray(record.singular_values, dtype=float).ravel()
    if values.size == 0:
        return None
    return {
        "svg": Markup(draw_spectrum(values, float(record.shrinkage))),
        "caption": describe_spectrum(values, float(record.shrinkage), record.squared_norm),
        "centred": record.spectrum_centred,
    }


def _scatter(record: RunRecord) -> Mapping[str, Any] | None:
    if record.points is None or not len(np.asarray(record.points)):
        return None
    points = np.asarray(record.points, dtype=float)
    labels = None if record.point_labels is None else np.asarray(record.point_labels, dtype=np.int64)
    centres = None if record.centres_2d is None else np.asarray(record.centres_2d, dtype=float)
    n_clusters = 0 if labels is None else int(labels.max(initial=-1)) + 1
    return {
        "svg": Markup(draw_scatter(points, labels, centres)),
        "caption": describe_scatter(len(points), record.n_rows, n_clusters),
        "clustered": n_clusters > 0,
    }


def _known(record: RunRecord) -> Mapping[str, Any] | None:
    known = record.known_labels
    if known is None:
        return None
    return {
        "table": contingency(known),
        "measures": [
            ("NMI (normalised mutual information)", _measure(known.nmi), _measure(known.nmi_all_columns)),
            ("ARI (adjusted Rand index)", _measure(known.ari), _measure(known.ari_all_columns)),
            ("Accuracy (best matching)", _measure(known.accuracy), _measure(known.accuracy_all_columns)),
        ],
        "compared": known.nmi_all_columns is not None or known.ari_all_columns is not None,
        "r": count(len(np.asarray(record.support))),
    }
