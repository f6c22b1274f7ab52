"""Runs to draw, and a strict reader of the page: what elements it has, what text, and whether they nest."""

from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from .certificates import certificate

Run = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]
"""Content of manifest.json, selection.json and report.json."""

VOID = {"meta", "img", "br", "hr", "wbr", "link", "input", "base"}
APART = {"td", "th", "li", "p", "b", "span", "h2", "h3", "text", "figcaption"}


class Page(HTMLParser):
    """Elements with their attributes, and the visible text, of a page whose elements must nest."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {k: v or "" for k, v in attrs}))
        if tag in APART:
            self.text.append(" ")
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {k: v or "" for k, v in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & {*self._open}:
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attrs for name, attrs in self.elements if name == tag]

    @property
    def words(self) -> str:
        return " ".join("".join(self.text).split())


@pytest.fixture(scope="session")
def parse() -> Callable[[str], Page]:
    return Page


FIELDS = {
    "title": "source.address",
    "n_columns": "prepared_columns",
    "method_parameters": "selection.parameters",
    "diagnostics": "selection.diagnostics",
    "cluster_weights": "clustering.cluster_sizes",
    "image_shape": "job.output.image_shape",
    "settings": "engine",
    **{name: name for name in ("stages", "seconds", "versions", "notes", "compared", "certificates")},
}
"""Where the manifest has what tests call by shorter names."""


def run_of(**fields: Any) -> Run:
    """Return a run with these fields, each in its place."""
    empty: dict[str, Any] = {"stages": [], "versions": {}, "notes": [], "method_parameters": {}, "seconds": 2.5}
    fields = empty | fields
    selected = ("method", "scores", "support", "weights", "feature_names", "columns")
    selection = {name: fields.pop(name) for name in selected if name in fields}
    manifest: dict[str, Any] = {
        "source": {"shape": [fields.pop("n_rows"), fields["n_columns"]]},
        "job": {"output": {}, "cluster": {"n_clusters": 3}},
        "selection": {},
    }
    if (known := fields.get("known_labels")) is not None:
        manifest["agreement"] = known
    fields["certificates"] = [one.to_dict() | {"factor": one.factor} for one in fields.get("certificates", ())]
    for name in fields.keys() & FIELDS:
        *above, last = FIELDS[name].split(".")
        place = manifest
        for key in above:
            place = place.setdefault(key, {})
        place[last] = fields.pop(name)
    return manifest, selection, fields


def agreement(table: Any, classes: list[str], *measures: float) -> dict[str, Any]:
    """Return the agreement with known labels: NMI, ARI and accuracy, and the same on all columns."""
    names = [name + end for end in ("", "_all_columns") for name in ("nmi", "ari", "accuracy")]
    return {"table": table, "classes": classes, **dict.fromkeys(names), **dict(zip(names, measures, strict=False))}


def stage(name: str, seconds: float, bytes_read: int | None = None, profile: dict[str, float] | None = None) -> Any:
    """Return the manifest's entry of a stage."""
    return {"name": name, "seconds": seconds, "bytes_read": bytes_read, "profile": profile or {}}


@pytest.fixture(scope="session")
def full_run() -> Callable[..., Run]:
    """Return a complete run of a 40 x 6 matrix: 2 columns selected, 3 clusters."""

    def make(**changes: Any) -> Run:
        rng = np.random.default_rng(5)
        fields: dict[str, Any] = {
            "title": "sensors.zarr",
            "n_rows": 40,
            "n_columns": 6,
            "method": "sketched-ridge",
            "scores": [0.5, 3.25, 0.25, 0.125, 2.5, 1.0],
            "support": [1, 4],
            "job_text": '[input]\nurl = "sensors.zarr"\n',
            "method_parameters": {"n_components": 2},
            "prepare": ["l2"],
            "feature_names": ["amber", "beryl", "coral", "delta", "ember", "flint"],
            "singular_values": [4.0, 2.0, 1.0],
            "shrinkage": 0.5,
            "squared_norm": 25.0,
            "cluster_weights": [14, 13, 13],
            "points": rng.normal(size=(40, 2)),
            "point_labels": np.arange(40) % 3,
            "centres_2d": rng.normal(size=(3, 2)),
            "image_shape": (2, 3),
            "certificates": [certificate("spectral", 1.0671, 10.0, 10.671, note="A note of its own.")],
            "known_labels": agreement([[10, 0, 1], [4, 13, 12]], ["even", "odd"], 0.51234, 0.41, 0.575, 0.62345, 0.5),
            "stages": [stage("summarise", 2.0, 3 * 2**20), stage("select", 0.5)],
            "versions": {"numpy": "2.0.0"},
            "settings": {"random_state": 7, "execution": {"n_workers": 2}},
            "notes": ["One column is constant."],
        }
        return run_of(**{**fields, **changes})

    return make


@pytest.fixture(scope="session")
def bare_run() -> Callable[..., Run]:
    """Return a run with the required fields only: 9 x 4, two columns selected."""

    def make(**changes: Any) -> Run:
        fields: dict[str, Any] = {
            "title": "t",
            "n_rows": 9,
            "n_columns": 4,
            "method": "variance",
            "scores": [1.0, 2.0, 3.0, 4.0],
            "support": [2, 3],
        }
        return run_of(**{**fields, **changes})

    return make
