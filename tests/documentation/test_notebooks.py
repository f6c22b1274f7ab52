"""Notebooks are stored with their outputs, which the site shows: `pytest --nbmake notebooks` runs them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.documentation.pages import GENERATED, ROOT, SITE

NOTEBOOKS = sorted(path for path in SITE.rglob("*.ipynb") if not set(GENERATED) & set(path.parts))


def outputs(path: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return every output of a notebook, with its cell."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [(cell, output) for cell in cells for output in cell.get("outputs", [])]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_outputs_are_stored_without_errors_and_pictures_are_described(path: Path) -> None:
    stored = outputs(path)
    assert stored, "no outputs: CONTRIBUTING.md has the command that stores them"
    assert [output["output_type"] for _, output in stored if output["output_type"] == "error"] == []
    assert [output["text"] for _, output in stored if output.get("name") == "stderr"] == []
    pictures = [cell for cell, output in stored if "image/png" in output.get("data", {})]
    described = [cell for cell in pictures if cell["metadata"].get("mystnb", {}).get("image", {}).get("alt")]
    assert len(described) == len(pictures)
    assert str(ROOT) not in path.read_text(encoding="utf-8")


def test_most_notebooks_have_pictures() -> None:
    drawn = [path for path in NOTEBOOKS if any("image/png" in output.get("data", {}) for _, output in outputs(path))]
    assert len(drawn) >= len(NOTEBOOKS) - 1


def test_the_quickstart_shows_what_the_readme_shows() -> None:
    # Both are the first page for somebody, so neither may show a weaker method.
    example = (ROOT / "README.md").read_text(encoding="utf-8").partition("```python")[2].partition("```")[0]
    shown = set(re.findall(r"sks\.([A-Za-z_]+)\(", example))
    cells = json.loads((SITE / "quickstart.ipynb").read_text(encoding="utf-8"))["cells"]
    code = "".join(line for cell in cells if cell["cell_type"] == "code" for line in cell["source"])
    assert {"AutoSelector", "certify_labels"} <= shown
    assert shown <= set(re.findall(r"sks\.([A-Za-z_]+)\(", code))
