"""The layer, size and safety rules, read from the source with `ast`, and the proof that each can fail."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "pipeline" / "sketchselect"
LONGEST = 400

RANKS = {
    "errors": 0,
    "linalg": 1,
    "solvers": 2,
    "summaries": 2,
    "readers": 2,
    "prepare": 2,
    "execution": 3,
    "selectors": 4,
    "cluster": 4,
    "report": 5,
    "config": 6,
    "workflow": 7,
    "cli": 8,
    "orchestrate": 8,
    "airflow": 9,
    "prefect": 9,
    # Outside the order: the package itself (lazy names only), `python -m`, and the suites shipped for users' own tests.
    "__init__": 9,
    "__main__": 9,
    "testing": 9,
}
# Layers of several files that stand at the top of the package.
BELONGS_TO = dict.fromkeys(("jobfile", "jobtext", "jobwords", "jobmethod"), "config")
NOT_IMPORTABLE = {"__init__", "__main__", "testing"}
DASK = {"dask", "distributed"}
# Readers that a user may hand a Dask array to.
MAY_MEET_DASK = {"readers.dask_array", "readers.vectors"}
CODE_FROM_DATA = {"pickle", "cloudpickle", "joblib", "dill", "marshal", "shelve"}

# What Dask itself does between client and workers, once per pass instead of once per task; no file is read.
MAY_PICKLE = {"execution.sending": {"cloudpickle.dumps"}, "execution.shipping": {"pickle.loads"}}


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name below the package, and its text."""

    name: str
    text: str
    is_package: bool = False

    @property
    def layer(self) -> str:
        return layer_of(self.name.split(".")[0])

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)


def layer_of(top: str) -> str:
    return BELONGS_TO.get(top, top)


def package_modules() -> Iterator[Module]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package and len(parts) > 1 else parts)
        yield Module(name, path.read_text(encoding="utf-8"), is_package)


def imported(module: Module) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of every import, wherever it stands: also inside functions and `if TYPE_CHECKING`."""
    package = ["sketchselect", *module.name.split(".")]
    if module.name == "__init__":
        package = ["sketchselect"]
    elif not module.is_package:
        package.pop()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif is_dynamic_import(node):
            yield node.lineno, str(ast.literal_eval(node.args[0]))


def is_dynamic_import(node: ast.AST) -> TypeGuard[ast.Call]:
    if not isinstance(node, ast.Call) or dotted(node.func).split(".")[-1] not in {"import_module", "__import__"}:
        return False
    return bool(node.args) and isinstance(node.args[0], ast.Constant)


def dotted(node: ast.expr) -> str:
    """Return `a.b.c` of a chain of attributes; calls and subscripts inside it count as nothing."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def backward_arrows(module: Module) -> list[str]:
    if module.layer not in RANKS:
        return [f"{module.name}: {module.layer!r} is in no layer; add it to RANKS and to CONTRIBUTING.md"]
    found = []
    for line, name in imported(module):
        parts = name.split(".")
        if parts[0] != "sketchselect" or name == "sketchselect.__version__":
            continue
        target = layer_of(parts[1]) if len(parts) > 1 else "__init__"
        if target not in RANKS:
            # `from sketchselect import Moments` inside the package goes round the order through the lazy names.
            target = "__init__"
        if target == module.layer and module.layer != "__init__":
            continue
        above = RANKS[target] >= RANKS[module.layer] and module.layer not in NOT_IMPORTABLE
        if above or target in {"testing", "__main__"}:
            found.append(f"{module.name}, line {line}: {module.layer} may not import {name}")
    return found


def dask_outside(module: Module) -> list[str]:
    if module.layer in {"execution", "testing"} or module.name in MAY_MEET_DASK:
        return []
    return [
        f"{module.name}, line {line}: {name} is imported outside execution/"
        for line, name in imported(module)
        if name.split(".")[0] in DASK
    ]


def too_long(module: Module) -> list[str]:
    n_lines = len(module.text.splitlines())
    return [f"{module.name}: {n_lines} lines, more than {LONGEST}"] if n_lines > LONGEST else []


def unsafe(module: Module) -> list[str]:
    """Return what could run code found in data, or overwrite what is the user's."""
    found = [
        f"{module.name}, line {line}: {name} can run code that it reads"
        for line, name in imported(module)
        # The suites check that objects survive the way to another process; that is a pickle of their own making.
        if name.split(".")[0] in CODE_FROM_DATA
        and module.layer != "testing"
        and name not in MAY_PICKLE.get(module.name, ())
    ]
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call):
            continue
        function = dotted(node.func)
        where = f"{module.name}, line {node.lineno}"
        if function in {"eval", "exec"}:
            found.append(f"{where}: {function}")
        if function in {"yaml.load", "yaml.unsafe_load", "yaml.full_load"}:
            found.append(f"{where}: {function} instead of a safe loader")
        for keyword in node.keywords:
            value = keyword.value.value if isinstance(keyword.value, ast.Constant) else object()
            if keyword.arg == "allow_pickle" and value is not False:
                found.append(f"{where}: allow_pickle")
            if keyword.arg == "overwrite" and value is not False:
                found.append(f"{where}: overwrite")
            if keyword.arg == "mode" and value == "w" and (function.startswith("zarr") or "zarr" in function):
                found.append(f'{where}: mode="w" empties whatever is there')
            if keyword.arg == "shell" and value is not False:
                found.append(f"{where}: shell")
    return found


RULES: dict[str, Callable[[Module], list[str]]] = {
    "arrows": backward_arrows,
    "dask": dask_outside,
    "length": too_long,
    "safety": unsafe,
}


@pytest.mark.parametrize("rule", RULES)
def test_package_keeps_the_rule(rule: str) -> None:
    modules = list(package_modules())
    assert len(modules) > 20
    assert [line for module in modules for line in RULES[rule](module)] == []


def test_every_layer_of_the_order_exists() -> None:
    layers = {module.layer for module in package_modules()}
    # Folders that a later part of the project fills are named in the order already.
    assert set(RANKS) - layers <= {"solvers"}


def test_nothing_but_source_and_known_data_lies_in_the_package() -> None:
    files = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*") if path.is_file()]
    kinds = {path.suffix for path in files if not path.parts[0].startswith(".") and "cache" not in str(path.parent)}
    assert kinds <= {".py", ".typed", ".html", ".css", ".j2", ""}


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        ("arrows", "summaries.moments", "from sketchselect.execution import summarize"),
        ("arrows", "summaries.moments", "from sketchselect.readers.base import Matrix"),
        ("arrows", "linalg.shrink", "import sketchselect.cli"),
        ("arrows", "errors", "from sketchselect.linalg import arrays"),
        ("arrows", "readers.base", "def f():\n    from ..execution import block"),
        ("arrows", "readers.base", "from .. import cluster"),
        ("arrows", "readers.base", "import importlib\nimportlib.import_module('sketchselect.workflow')"),
        ("arrows", "readers.base", "from sketchselect import Moments"),
        ("arrows", "selectors.base", "from sketchselect.cluster import KMeans"),
        ("arrows", "report.page", "from sketchselect.config import Job"),
        ("arrows", "config", "from sketchselect.workflow import run"),
        ("arrows", "jobtext", "from sketchselect.workflow import run"),
        ("arrows", "workflow", "from sketchselect.testing import laws"),
        ("arrows", "cli", "import sketchselect.testing.laws"),
        ("arrows", "surprise", "import math"),
        ("dask", "cluster.kmeans", "def f():\n    import dask.array as da"),
        ("dask", "readers.store", "from distributed import Client"),
        ("length", "linalg.long", "x = 1\n" * (LONGEST + 1)),
        ("safety", "readers.store", "import pickle"),
        ("safety", "readers.store", "from joblib import load"),
        ("safety", "execution.shipping", "from pickle import load"),
        ("safety", "readers.store", "eval('1')"),
        ("safety", "readers.store", "np.load(path, allow_pickle=True)"),
        ("safety", "readers.store", "np.load(path, allow_pickle=flag)"),
        ("safety", "readers.store", "zarr.open(path, mode='w')"),
        ("safety", "readers.store", "zarr.create_array(path, overwrite=True)"),
        ("safety", "config", "yaml.load(text)"),
        ("safety", "workflow", "subprocess.run(command, shell=True)"),
    ],
)
def test_rule_can_fail(rule: str, name: str, text: str) -> None:
    assert RULES[rule](Module(name, text))


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        ("arrows", "summaries.moments", "from sketchselect.linalg.arrays import Array\nfrom .base import Summary"),
        ("arrows", "workflow", "from sketchselect.config import Job\nfrom sketchselect import report"),
        ("arrows", "config", "from sketchselect import errors, selectors, __version__"),
        ("arrows", "jobfile", "from sketchselect.config import JobConfig"),
        ("arrows", "__main__", "from sketchselect.cli import main"),
        ("arrows", "testing.laws", "import sketchselect as sks\nfrom sketchselect.execution import summarize"),
        ("arrows", "__init__", "from sketchselect.workflow import run"),
        ("dask", "execution.dask_engine", "from distributed import Client"),
        ("dask", "cluster.kmeans", "import daskly"),
        ("length", "linalg.short", "x = 1\n" * LONGEST),
        (
            "safety",
            "readers.store",
            "np.load(path, allow_pickle=False)\nzarr.open(path, mode='r')\nopen(path, 'w')",
        ),
        ("safety", "linalg.sparse", "matrix.evaluate()\nself.eval()"),
    ],
)
def test_rule_lets_good_code_pass(rule: str, name: str, text: str) -> None:
    assert RULES[rule](Module(name, text)) == []
