"""Everything that the package imports is declared: in `dependencies`, or in an extra for users."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml
from tests.structure import package_modules

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BUILD = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
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


def test_the_oldest_versions_are_those_of_every_requirement(tmp_path: Path) -> None:
    script = (ROOT / ".ci" / "run").read_text()
    command = re.search(r"^  grep .* pyproject\.toml .*\n.*oldest\.txt\"$", script, re.MULTILINE)
    assert command is not None
    subprocess.run(["bash", "-c", command[0]], cwd=ROOT, env={**os.environ, "scratch": str(tmp_path)}, check=True)
    lines = [
        *BUILD,
        *PROJECT["dependencies"],
        *(line for some in PROJECT["optional-dependencies"].values() for line in some),
    ]
    oldest = [re.match(r"([A-Za-z0-9-]+)(?:\[.*\])?>=([0-9.]+)", line) for line in lines]
    expected = sorted({f"{match[1]}=={match[2]}" for match in oldest if match})
    assert sorted((tmp_path / "oldest.txt").read_text().split()) == expected


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


def test_the_conda_recipe_asks_for_the_same() -> None:
    recipe = yaml.safe_load(re.sub(r"{%.*%}|[{}]{2}", "", (ROOT / "deploy/conda/meta.yaml").read_text()))
    asked = {line.replace("dask-core", "dask") for line in recipe["requirements"]["run"]}
    assert asked == {*PROJECT["dependencies"], f"python {PROJECT['requires-python']}"}
    assert recipe["build"]["entry_points"] == [f"{name} = {place}" for name, place in PROJECT["scripts"].items()]
    assert set(recipe["requirements"]["host"]) >= set(BUILD)
    assert (recipe["package"]["name"], recipe["about"]["license"], recipe["about"]["summary"]) == (
        PROJECT["name"],
        PROJECT["license"],
        PROJECT["description"],
    )


def test_every_import_is_declared() -> None:
    declared = names(PROJECT["dependencies"])
    for name, extra in PROJECT["optional-dependencies"].items():
        if name not in ("test", "dev", "bench", "notebook", "docs"):
            declared |= names(extra)
    required = {COMES_WITH.get(root) or DISTRIBUTIONS.get(root, root) for root in imported_packages()}
    assert {name.lower() for name in required} <= declared
