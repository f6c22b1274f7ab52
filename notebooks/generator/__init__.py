"""Sphinx extension: pages made of the package and of the repository's other texts, before the site is built."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from generator.interface import command_page, interface_pages
from generator.methods import method_pages
from generator.texts import COPIES, copied, relinked


def write_pages(app: Any) -> None:
    """Write everything below `generated`, which is not in the repository."""
    site = Path(app.srcdir)
    folder = site / "generated"
    shutil.rmtree(folder, ignore_errors=True)
    pages = {"commands.md": command_page()}
    pages |= {f"api/{name}": text for name, text in interface_pages().items()}
    pages |= {target: copied(site, source) for source, target in COPIES.items()}
    pages |= method_pages(site, folder / "methods")
    for name, text in pages.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def relink_page(app: Any, name: str, source: list[str]) -> None:
    """Point the links of a written page to pages of the site."""
    page = Path(app.env.doc2path(name))
    if page.suffix == ".md" and "generated" not in page.parts:
        source[0] = relinked(source[0], Path(app.srcdir), page.parent, page.parent)


def is_theirs(app: Any, what: str, name: str, item: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what a class inherits from other packages, whose documentation has it."""
    home = getattr(getattr(item, "fget", item), "__module__", None) or "sketchselect"
    return None if home.startswith("sketchselect") else True


def setup(app: Any) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("builder-inited", write_pages)
    app.connect("source-read", relink_page)
    app.connect("autodoc-skip-member", is_theirs)
    return {"parallel_read_safe": True}
