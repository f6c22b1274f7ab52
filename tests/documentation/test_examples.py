"""The examples of the documentation run, and print what it says."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.documentation.pages import blocks, pages, run_page, text_of

import sketchselect as sks

EXTRAS = ("anndata", "pandas", "xarray", "scanpy", "igraph")
"""Packages that pages need, by an import or `pip install`, and that not every installation has."""

FAST = {"how-to/column_streams.md", "how-to/dask.md", "how-to/sources.md", "reference/sks_format.md"}
"""Pages that every run of the tests tries."""


def selection_of_the_rows(names: dict[str, Any]) -> None:
    """Compare the page's own graph with plain arrays."""
    rows = np.concatenate([site.values for site in names["rows"]])
    assert names["summary"].n_rows == rows.shape[0] == 5000
    np.testing.assert_allclose(names["means"], rows[:3000].mean(axis=0), rtol=1e-12, atol=1e-12)
    selected = sks.GreedySelector(n_features_to_select=10).fit(rows).support_
    np.testing.assert_array_equal(names["selector"].support_, selected)


def files_of_the_model(_: dict[str, Any]) -> None:
    """Look for the files that the job's comment names, and the folds that it asks for."""
    comment = re.search(r'dir = "model"\s+# (.*)', text_of("notebooks/tutorials/target.md"))
    assert comment
    for name in comment[1].split(", "):
        assert (Path("model") / name).exists(), name
    assert json.loads(Path("model/model.json").read_text(encoding="utf-8"))["cv"]["n_folds"] == 5


def files_of_the_topics(_: dict[str, Any]) -> None:
    """Look for the files that only such a job leaves."""
    assert {"prepare.sks", "clusters.csv"} <= {path.name for path in Path("topics").iterdir()}
    assert len(json.loads(Path("topics/selection.json").read_text(encoding="utf-8"))["support"]) == 300


CHECKS: dict[str, Callable[[dict[str, Any]], None]] = {
    "how-to/dask.md": selection_of_the_rows,
    "tutorials/target.md": files_of_the_model,
    "tutorials/text.md": files_of_the_topics,
}
"""What else has to hold after a page has run."""

RUNNABLE = [
    pytest.param(page, marks=() if page in FAST else pytest.mark.slow)
    for name in pages()
    if (page := name.removeprefix("notebooks/")) != "README.md"
    and any(block.language in {"python", "sh"} for block in blocks(text_of(name)))
]


@pytest.mark.parametrize("page", RUNNABLE)
@pytest.mark.filterwarnings("ignore")
def test_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"notebooks/{page}"
    for module in EXTRAS:
        if re.search(rf"import {module}|pip install [^`]*\b{module}\b", text_of(name)):
            pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    names = run_page(name)
    CHECKS.get(page, lambda _: None)(names)
