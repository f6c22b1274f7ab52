"""Everything that the package imports is declared: in `dependencies`, or in an extra for users."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

from tests.structure import package_modules

PROJECT = tomllib.loads((Path(__file__).resolve().parent.parent / "pyproject.toml").read_text())["project"]
DISTRIBUTIONS = {"sklearn": "scikit-learn", "yaml": "pyyaml", "skmisc": "scikit-misc", "airflow": "apache-airflow"}
"""Packages whose distribution has another name."""
COMES_WITH = {
    "botocore": "s3fs",
    "tornado": "distributed",
    "pendulum": "apache-airflow",
    "click": "typer",
    "markupsafe": "jinja2",
    "pandas": "anndata",
}
"""Packages that are used only where another one is, which depends on them."""


def names(requirements: list[str]) -> set[str]:
    """Return the distributions that are named by requirements."""
    return {re.split(r"[\[<>=~!; ]", requirement, maxsplit=1)[0].lower() for requirement in requirements}


def imported_packages() -> set[str]:
    """Return the top-level packages that modules import, our own and the standard library's left out."""
    roots = set()
    for module in package_modules():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                roots |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                roots.add(str(node.module).partition(".")[0])
    return roots - {"sketchselect"} - set(sys.stdlib_module_names)


def test_every_import_is_declared() -> None:
    declared = names(PROJECT["dependencies"])
    for name, extra in PROJECT["optional-dependencies"].items():
        if name not in ("test", "dev", "bench", "notebook", "docs"):
            declared |= names(extra)
    required = {COMES_WITH.get(root) or DISTRIBUTIONS.get(root, root) for root in imported_packages()}
    assert {name.lower() for name in required} <= declared
