"""The layer and safety rules, read from the source with `ast`, and the proof that each can fail."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest
from tests.structure import PACKAGE, Module, dotted, import_circles, import_graph, imported, lines_of, package_modules

ORDER = [
    # The ground floor: what every layer may use.
    {"_text", "_deferred"},
    {"_version", "errors", "_memory", "_kernel_cache", "_lazy", "_sklearn"},
    {"_byte_sizes", "_blas_kernel", "_kernels", "_plugins"},
    {"_progress"},
    {"linalg", "location"},
    {"plots"},
    {"solvers", "summaries", "readers", "prepare"},
    {"execution"},
    {"selectors", "cluster"},
    {"report"},
    {"job"},
    {"workflow"},
    {"cli", "integrations"},
    # Outside the order: public names, the package itself (lazy names only), `python -m`, suites for users.
    {"airflow", "pp", "prefect", "tl", "__init__", "__main__", "testing"},
]
RANKS = {layer: rank for rank, layers in enumerate(ORDER) for layer in layers}
NOT_IMPORTABLE = {"__init__", "__main__", "testing"}
DASK = {"dask", "distributed"}
# Readers that a user may hand a Dask array to; sizes, which are read and written as Dask does.
MAY_MEET_DASK = {"readers.dask", "_byte_sizes"}
CODE_FROM_DATA = {"pickle", "cloudpickle", "joblib", "dill", "marshal", "shelve"}

# What Dask itself does between client and workers, once per pass instead of once per task; no file is read.
MAY_PICKLE = {"execution.dask_engine": {"cloudpickle.dumps", "pickle.loads"}}


def layer_of(name: str) -> str:
    return name.split(".")[0]


def backward_arrows(module: Module) -> list[str]:
    if layer_of(module.name) not in RANKS:
        return [f"{module.name}: {layer_of(module.name)!r} is in no layer; add it to RANKS and to CONTRIBUTING.md"]
    result = []
    for line, name in imported(module):
        parts = name.split(".")
        if parts[0] != "sketchselect" or name.startswith("sketchselect._version"):
            continue
        target = parts[1] if len(parts) > 1 else "__init__"
        if target not in RANKS:
            # `from sketchselect import Moments` inside the package goes round the order through the lazy names.
            target = "__init__"
        if target == layer_of(module.name) and layer_of(module.name) != "__init__":
            continue
        above = RANKS[target] >= RANKS[layer_of(module.name)] and layer_of(module.name) not in NOT_IMPORTABLE
        if above or target in {"testing", "__main__"}:
            result.append(f"{module.name}, line {line}: {layer_of(module.name)} may not import {name}")
    return result


def dask_outside(module: Module) -> list[str]:
    if layer_of(module.name) in {"execution", "testing"} or module.name in MAY_MEET_DASK:
        return []
    return [
        f"{module.name}, line {line}: {name} is imported outside execution/"
        for line, name in imported(module)
        if name.split(".")[0] in DASK
    ]


def unsafe(module: Module) -> list[str]:
    """Return what could run code found in data, or overwrite what is the user's."""
    result = [
        f"{module.name}, line {line}: {name} can run code that it reads"
        for line, name in imported(module)
        # The suites check that objects survive the way to another process; that is a pickle of their own making.
        if name.split(".")[0] in CODE_FROM_DATA
        and layer_of(module.name) != "testing"
        and name not in MAY_PICKLE.get(module.name, ())
    ]
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call):
            continue
        function = dotted(node.func)
        where = f"{module.name}, line {node.lineno}"
        if function in {"eval", "exec"}:
            result.append(f"{where}: {function}")
        if function.endswith("entry_points") and module.name != "_plugins":
            result.append(f"{where}: {function}; _plugins loads them by their exact names")
        if function in {"yaml.load", "yaml.unsafe_load", "yaml.full_load"}:
            result.append(f"{where}: {function} instead of a safe loader")
        for keyword in node.keywords:
            value = keyword.value.value if isinstance(keyword.value, ast.Constant) else object()
            if keyword.arg == "allow_pickle" and value is not False:
                result.append(f"{where}: allow_pickle")
            if keyword.arg == "overwrite" and value is not False:
                result.append(f"{where}: overwrite")
            if keyword.arg == "mode" and value == "w" and (function.startswith("zarr") or "zarr" in function):
                result.append(f'{where}: mode="w" empties whatever is there')
            if keyword.arg == "shell" and value is not False:
                result.append(f"{where}: shell")
    return result


RULES: dict[str, Callable[[Module], list[str]]] = {"arrows": backward_arrows, "dask": dask_outside, "safety": unsafe}


@pytest.fixture(scope="module")
def modules() -> list[Module]:
    """Return the modules of the package, each of which is parsed once."""
    return list(package_modules())


@pytest.mark.parametrize("rule", RULES)
def test_package_keeps_the_rule(modules: list[Module], rule: str) -> None:
    assert len(modules) > 20
    assert [line for module in modules for line in RULES[rule](module)] == []


def test_every_layer_of_the_order_exists(modules: list[Module]) -> None:
    assert set(RANKS) == {layer_of(module.name) for module in modules}


def test_lines_are_counted_by_folder() -> None:
    modules = [Module("execution.a", "1\n2\n"), Module("execution", "3\n"), Module("executions.b", "4\n")]
    assert (lines_of(modules, "execution"), lines_of(modules)) == (3, 4)


def test_no_module_imports_itself_by_way_of_others(modules: list[Module]) -> None:
    assert import_circles(import_graph(modules)) == []


def test_a_circle_is_found_wherever_the_import_stands() -> None:
    modules = [
        Module("linalg.a", "def f():\n    from sketchselect.linalg.b import g"),
        Module("linalg.b", "if TYPE_CHECKING:\n    from sketchselect.linalg.c import h"),
        Module("linalg.c", "from .a import f"),
        Module("linalg.d", "from sketchselect.linalg.a import f"),
    ]
    assert import_circles(import_graph(modules)) == [["linalg.a", "linalg.b", "linalg.c"]]


def test_nothing_but_source_and_known_data_lies_in_the_package() -> None:
    files = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*") if path.is_file()]
    kinds = {path.suffix for path in files if not path.parts[0].startswith(".") and "cache" not in str(path.parent)}
    assert kinds <= {".py", ".pyi", ".typed", ".html", ".css", ".j2", ""}


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
        ("arrows", "report.page", "from sketchselect.job.schema import Job"),
        ("arrows", "job.schema", "from sketchselect.workflow import run"),
        ("arrows", "job.text", "from sketchselect.workflow import run"),
        ("arrows", "workflow", "from sketchselect.testing import laws"),
        ("arrows", "cli", "import sketchselect.testing.laws"),
        ("arrows", "surprise", "import math"),
        ("dask", "cluster.kmeans", "def f():\n    import dask.array as da"),
        ("dask", "readers.store", "from distributed import Client"),
        ("safety", "readers.store", "import pickle"),
        ("safety", "summaries.codec", "metadata.entry_points(group=kind)"),
        ("safety", "readers.store", "from joblib import load"),
        ("safety", "execution.dask_engine", "from pickle import load"),
        ("safety", "readers.store", "eval('1')"),
        ("safety", "readers.store", "np.load(path, allow_pickle=True)"),
        ("safety", "readers.store", "np.load(path, allow_pickle=flag)"),
        ("safety", "readers.store", "zarr.open(path, mode='w')"),
        ("safety", "readers.store", "zarr.create_array(path, overwrite=True)"),
        ("safety", "job.text", "yaml.load(text)"),
        ("safety", "workflow", "subprocess.run(command, shell=True)"),
    ],
)
def test_rule_can_fail(rule: str, name: str, text: str) -> None:
    assert RULES[rule](Module(name, text))


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        ("arrows", "summaries.moments", "from sketchselect.linalg.validation import Array\nfrom .base import Summary"),
        ("arrows", "workflow", "from sketchselect.job.schema import Job\nfrom sketchselect import report"),
        ("arrows", "job.schema", "from sketchselect import errors, selectors"),
        ("arrows", "job.load", "from sketchselect.job.schema import JobConfig"),
        ("arrows", "__main__", "from sketchselect.cli import main"),
        ("arrows", "testing.laws", "import sketchselect as sks\nfrom sketchselect.execution import summarize"),
        ("arrows", "__init__", "from sketchselect.workflow import run"),
        ("dask", "execution.dask_engine", "from distributed import Client"),
        ("dask", "cluster.kmeans", "import daskly"),
        ("safety", "readers.store", "np.load(path, allow_pickle=False)\nzarr.open(path, mode='r')\nopen(path, 'w')"),
        ("safety", "linalg.sparse", "matrix.evaluate()\nself.eval()"),
    ],
)
def test_rule_lets_good_code_pass(rule: str, name: str, text: str) -> None:
    assert RULES[rule](Module(name, text)) == []
