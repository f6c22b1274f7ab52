"""Files, headings and public names that the documentation names exist."""

import re

import pytest
from tests.documentation.pages import GENERATED, ROOT, pages, text_of

import sketchselect as sks

TEXTS = [*pages(), "CONTRIBUTING.md", "DISCLOSURE.md", "SECURITY.md", "CHANGELOG.md"]
TEXTS += sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "deploy").rglob("*.md"))
FOLDERS = ("pipeline/", "tests/", "deploy/", "notebooks/", ".ci/", ".github/")
THEIRS = {"Delayed", "Client", "Cluster", "Dataset", "DataArray"}
"""Names of Dask and xarray."""


def headings(text: str) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub and the site make them."""
    lines = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines}


@pytest.mark.parametrize("name", TEXTS)
def test_links_lead_to_files_and_headings(name: str) -> None:
    page = ROOT / name
    text = page.read_text(encoding="utf-8")
    for link, heading in re.findall(r"\]\((?!\w+:)([^)#]*)(?:#([^)]+))?\)", text):
        target = page.parent / link if link else page
        assert target.exists() or set(GENERATED) & set(target.parts), link
        if heading and target.suffix == ".md":
            assert heading in headings(target.read_text(encoding="utf-8")), f"{link}#{heading}"


@pytest.mark.parametrize("name", TEXTS)
def test_files_in_code_font_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    for path in re.findall(r"`([\w./-]+)`", text):
        assert not path.startswith(FOLDERS) or (ROOT / path).exists(), path


@pytest.mark.parametrize("name", ["README.md", "notebooks/reference/guarantees.md"])
def test_capitalised_names_in_code_font_are_public(name: str) -> None:
    names = set(re.findall(r"`(?:sks\.)?(?:([a-z]+)\.)?([A-Z][A-Za-z]+)\b", text_of(name)))
    for folder, each in names:
        public = getattr(sks, folder).__all__ if folder else [*sks.__all__, *sks.selectors.__all__]
        assert each in public or each in THEIRS, f"{folder}.{each}"


@pytest.mark.parametrize("name", TEXTS)
def test_shell_loops_that_wait_have_an_end(name: str) -> None:
    for command in re.findall(
        r"^.*\b(?:until|while) .*; do .*$", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE
    ):
        assert command.startswith("timeout "), f"{name}: waits for ever where nothing comes: {command}"
