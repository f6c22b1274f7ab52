"""Records to draw, and a strict reader of the page: what elements it has, what text, and whether they nest."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from sketchselect.report import Agreement, RunRecord, StageRecord

from .certificates import certificate

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


@pytest.fixture(scope="session")
def full_record() -> Callable[..., RunRecord]:
    """Return a complete record of a 40 x 6 matrix: 2 columns selected, 3 clusters."""

    def make(**changes: Any) -> RunRecord:
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
            "known_labels": Agreement([[10, 0, 1], [4, 13, 12]], ["even", "odd"], 0.51234, 0.41, 0.575, 0.62345, 0.5),
            "stages": [StageRecord("summarise", 2.0, 3 * 2**20), StageRecord("select", 0.5)],
            "versions": {"numpy": "2.0.0"},
            "settings": {"random_state": 7, "execution": {"n_workers": 2}},
            "notes": ["One column is constant."],
        }
        return RunRecord(**{**fields, **changes})

    return make


@pytest.fixture(scope="session")
def bare_record() -> Callable[..., RunRecord]:
    """Return a record with the required fields only: 9 x 4, two columns selected."""

    def make(**changes: Any) -> RunRecord:
        fields: dict[str, Any] = {
            "title": "t",
            "n_rows": 9,
            "n_columns": 4,
            "method": "variance",
            "scores": [1.0, 2.0, 3.0, 4.0],
            "support": [2, 3],
        }
        return RunRecord(**{**fields, **changes})

    return make
