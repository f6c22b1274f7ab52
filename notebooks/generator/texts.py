"""Texts of the repository that are pages of the site, and links between files as links between pages."""

from __future__ import annotations

import os
import re
from pathlib import Path

COPIES = {
    "DISCLOSURE.md": "disclosure.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "deploy/README.md": "deploy/index.md",
    "deploy/prefect/README.md": "deploy/prefect.md",
    "deploy/airflow/README.md": "deploy/airflow.md",
}
"""Texts outside of the site's folder -> pages below `generated`."""

PARTS = {"deploy/README.md": ("prefect", "airflow")}
"""Pages that are below such a page."""

LINK = re.compile(r"\[([^\]]*)\]\((?!\w+:|#)([^)#]*)(#[^)]*)?\)")


def copied(site: Path, source: str) -> str:
    """Return a text of the repository as a page below `generated`."""
    path = site.parent / source
    page = site / "generated" / COPIES[source]
    text = relinked(path.read_text(encoding="utf-8"), site, path.parent, page.parent)
    below = "\n".join(PARTS.get(source, ()))
    return f"{text}\n```{{toctree}}\n:hidden:\n\n{below}\n```\n" if below else text


def relinked(text: str, site: Path, before: Path, after: Path) -> str:
    """Return a text whose links lead to pages of the site; those to other files of the repository name the file.

    The links are relative to the folder `before`, and are to be so to the folder `after`.
    """
    root = site.parent

    def replace(match: re.Match[str]) -> str:
        label, link, heading = match[1], match[2], match[3] or ""
        target = (before / link).resolve()
        source = target.relative_to(root).as_posix()
        if source in COPIES:
            target = site / "generated" / COPIES[source]
        elif source == "README.md":
            target = site / "index.md"
        elif not target.is_relative_to(site):
            return f"`{source}`" if label == link else f"{label} (`{source}`)"
        return f"[{label}]({os.path.relpath(target, after)}{heading})"

    return LINK.sub(replace, text)
