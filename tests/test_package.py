"""What a new user meets first: the import, the examples of docstrings, and the distribution."""

from __future__ import annotations

import doctest
import importlib
import importlib.metadata
import linecache
import pkgutil
import re
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
from packaging.version import Version
from tests.documentation.pages import python

import sketchselect as sks

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WALKED = pkgutil.walk_packages(sks.__path__, "sketchselect.")
# They need extras; tests/deploy tries their examples where those are installed.
NOT_HERE = {
    "sketchselect.__main__",
    *(f"sketchselect{place}.{name}" for place in ("", ".integrations") for name in ("airflow", "prefect")),
}
MODULES = sorted(module.name for module in WALKED if module.name not in NOT_HERE)


FOLDERS = (
    "cluster",
    "execution",
    "plots",
    "prepare",
    "readers",
    "selectors",
    "solvers",
    "summaries",
    "testing",
    "workflow",
)


def test_public_names_are_few_and_there() -> None:
    assert len(sks.__all__) <= 45
    assert sks.__all__ == sorted(set(sks.__all__))
    assert {*sks.__all__, *FOLDERS, "errors", "pp", "tl"} == set(dir(sks))
    for name in dir(sks):
        assert getattr(sks, name) is not None, name


def test_names_that_left_the_list_go_on_to_work() -> None:
    for name in ("CentroidSums", "LeverageSample"):
        assert getattr(sks, name) is getattr(sks.summaries, name)


def test_no_public_name_is_that_of_a_module() -> None:
    """An import of the module would put it in the place of the function or class, for everybody."""
    for stub in (ROOT / "pipeline" / "sketchselect").rglob("__init__.pyi"):
        package = stub.parent.relative_to(ROOT / "pipeline").as_posix().replace("/", ".")
        modules = {path.stem for path in stub.parent.iterdir()}
        lines = [line.split() for line in stub.read_text(encoding="utf-8").splitlines() if line.startswith("from ")]
        assert not {words[3] for words in lines if words[1] != package} & modules


def test_public_folders_list_what_they_have() -> None:
    for folder in FOLDERS:
        module = getattr(sks, folder)
        for name in module.__all__:
            assert getattr(module, name) is not None, f"{folder}.{name}"


def test_the_stub_names_each_public_name_once() -> None:
    """Type checkers read the stub itself, `import sketchselect` its lines: none may be of another form."""
    lines = (ROOT / "pipeline" / "sketchselect" / "__init__.pyi").read_text(encoding="utf-8").splitlines()
    entries = [line for line in lines if line and not line.startswith("#")]
    named = [re.fullmatch(r"from (sketchselect[.\w]*) import (\w+) as \2", line) for line in entries]
    assert None not in named, entries
    assert sorted(match[2] for match in named if match) == dir(sks)


def test_folders_need_no_import_of_their_own(tmp_path: Path) -> None:
    program = "import sketchselect as sks; print(sks.summaries.RowSample.kind, sks.testing.SummaryLaws.__name__)"
    assert python("-c", program, cwd=tmp_path).split() == ["row-sample", "SummaryLaws"]


def test_public_objects_are_documented() -> None:
    for name in sks.__all__:
        if name != "__version__":
            assert (getattr(sks, name).__doc__ or "").strip(), name


@pytest.mark.parametrize(
    "call",
    [
        lambda X, y: sks.GreedySelector(10).fit(X),
        lambda X, y: sks.LassoPath().fit(X, y),
        lambda X, y: sks.selectors.KnockoffSelector().fit(X, X[:, 0]),
    ],
)
def test_warnings_point_at_the_call_of_the_package(call: Callable[..., Any]) -> None:
    X = np.random.default_rng(0).standard_normal((60, 6)) + 100
    with pytest.warns(UserWarning) as seen:  # noqa: PT030
        call(X, np.ones(60))
    assert {warning.filename for warning in seen} == {__file__}


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="KMeens"):
        sks.KMeens
    with pytest.raises(AttributeError, match=r"sketchselect\.selectors\.LogisticPath"):
        sks.LogisticPath


HELP = """
from sketchselect.cli import app
try:
    app(["--help"])
except SystemExit as end:
    assert end.code in (0, None)
"""
FIT = """
import numpy as np, sketchselect as sks
assert sks.GreedySelector(5).fit(np.random.default_rng(0).standard_normal((200, 20))).support_.size == 5
"""
FEW = ["distributed", "matplotlib", "pandas", "pydantic", "scipy.stats", "zarr"]
"""Modules that take long to load, and that neither a first fit nor what is lighter needs."""
# Before 1.8, the base of scikit-learn loads SciPy's optimizers, which take names from its special functions.
OPTIMIZE, SPECIAL = (
    (["scipy.optimize"], ["scipy.special"]) if Version(sklearn.__version__) >= Version("1.8") else ([], [])
)
MOST = [*FEW, "dask", "numba", "scipy", "sklearn"]


@pytest.mark.parametrize(
    ("program", "heavy"),
    [
        ("import sketchselect", [*MOST, "numpy", "tempfile", "typer"]),
        (HELP, [*MOST, "hashlib", "html", "json", "logging", "numpy", "tempfile"]),
        (FIT, [*FEW, "dask.dataframe", *OPTIMIZE, "numpy.f2py", "sklearn.feature_selection", "typer"]),
        ("import sketchselect.workflow.job", ["matplotlib", "numpy.f2py", "pandas", *SPECIAL, "scipy.stats"]),
    ],
    ids=["import", "help", "fit", "job"],
)
def test_what_is_not_needed_is_not_loaded(program: str, heavy: list[str], tmp_path: Path) -> None:
    program += f"\nimport sys\nprint([m for m in {heavy} if m in sys.modules])"
    assert python("-c", program, cwd=tmp_path).splitlines()[-1] == "[]"


@pytest.mark.slow
def test_compiled_kernels_are_loaded_without_the_registries_of_the_compiler(tmp_path: Path) -> None:
    python("-c", FIT, cwd=tmp_path)  # compiles them, where that is still to be done
    program = FIT + "\nimport sys\nprint('numba.cpython.charseq' in sys.modules)"
    assert python("-c", program, cwd=tmp_path).split() == ["False"]


@pytest.mark.slow
def test_deferred_modules_are_loaded_when_used(tmp_path: Path) -> None:
    program = """
import sys, sketchselect as sks
from sketchselect._deferred import deferred
from sketchselect._sklearn import SelectorMixin
with deferred("colorsys", "no_such_module", "sys"):
    import colorsys
    stand_in = colorsys
    try:
        import no_such_module
    except ModuleNotFoundError:
        print("missing")
print("colorsys" in sys.modules)
assert stand_in.rgb_to_hsv(1, 0, 0) == (0, 1, 1)
import colorsys
assert colorsys is not stand_in and colorsys.rgb_to_hsv is stand_in.rgb_to_hsv
with deferred("json.tool"):
    import json.tool
    part = json.tool
assert not hasattr(json, "tool") and part.main.__module__ == "json.tool"
import numpy
assert numpy.f2py.get_include() and numpy.testing.assert_equal(1, 1) is None

rows = sks.GreedySelector(1).set_output(transform="pandas").fit_transform([[1.0, 2.0], [2.0, 1.0], [4.0, 9.0]])
import pandas, sklearn.feature_selection
assert isinstance(rows, pandas.DataFrame) and rows.shape == (3, 1)
assert sklearn.feature_selection.SelectorMixin is SelectorMixin and issubclass(sks.GreedySelector, SelectorMixin)
"""
    assert python("-c", program, cwd=tmp_path).split() == ["missing", "False"]


@pytest.mark.slow
def test_a_thread_that_imports_a_part_of_pandas_meanwhile_gets_it(tmp_path: Path) -> None:
    program = """
import importlib, sys, threading, time
done = threading.Event()

def parts():
    while "pandas" not in sys.modules and not done.is_set():
        time.sleep(0)
    if type(sys.modules.get("pandas")).__name__ != "module":
        importlib.import_module("pandas.api.types")

thread = threading.Thread(target=parts)
thread.start()
import sketchselect._sklearn
done.set()
thread.join()
import pandas.api.types
print(pandas.DataFrame({"a": [1]})["a"].sum())
"""
    assert python("-c", program, cwd=tmp_path).split() == ["1"]


def test_version_is_the_same_everywhere() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}$", changelog, flags=re.MULTILINE)
    assert newest
    assert {newest[1], importlib.metadata.version("sketchselect")} == {sks.__version__}


@pytest.mark.parametrize("name", MODULES)
def test_doctests(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The debugger that doctest makes for every example would look whether any file that was ever loaded has changed.
    monkeypatch.setattr(linecache, "checkcache", lambda filename=None: None)
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


def test_every_public_class_has_an_example() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True, recurse=False)
    classes = {f"sks.{n}": getattr(sks, n) for n in sks.__all__}
    for folder in ("selectors", "cluster", "plots"):
        classes |= {f"{folder}.{n}": getattr(getattr(sks, folder), n) for n in getattr(sks, folder).__all__}
    bare = {
        n for n, each in classes.items() if isinstance(each, type) and not any(t.examples for t in finder.find(each))
    }
    # A former name, the bases of parts of one's own, and what `KMeans` is made of.
    assert bare == {
        "sks.DecayedMoments",
        "selectors.BaseSelector",
        "plots.Display",
        "cluster.KMeansParameters",
        "cluster.KMeansResult",
    }


def test_wheel_holds_the_package_and_nothing_else(tmp_path: Path) -> None:
    python("-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path), cwd=ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    source = ROOT / "pipeline"
    wanted = {
        path.relative_to(source).as_posix()
        for path in (source / "sketchselect").rglob("*")
        if path.is_file() and path.suffix in {".py", ".pyi", ".typed", ".html", ".css", ".j2"}
    }
    assert "sketchselect/py.typed" in wanted
    assert any(name.startswith("sketchselect/report/") and not name.endswith(".py") for name in wanted)
    assert wanted == {name for name in names if ".dist-info/" not in name}
    assert any(name.endswith("licenses/LICENSE") for name in names)
