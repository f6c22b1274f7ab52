"""What a new user meets first: the import, the files, the README's words, and the distribution."""

from __future__ import annotations

import doctest
import importlib
import importlib.metadata
import json
import pkgutil
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import zarr

import sketchselect as sks

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WALKED = pkgutil.walk_packages(sks.__path__, "sketchselect.")
# They need extras; tests/deploy tries their examples where those are installed.
NOT_HERE = {
    "sketchselect.__main__",
    *(f"sketchselect{place}.{name}" for place in ("", ".integrations") for name in ("airflow", "prefect")),
}
MODULES = sorted(module.name for module in WALKED if module.name not in NOT_HERE)


def code_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def python(*words: str, cwd: Path, seconds: float = 250) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


FOLDERS = ("cluster", "execution", "prepare", "readers", "selectors", "solvers", "summaries", "testing", "workflow")


def test_public_names_are_few_and_there() -> None:
    assert len(sks.__all__) <= 45
    assert sks.__all__ == sorted(set(sks.__all__))
    assert {*sks.__all__, *FOLDERS, "errors", "pp", "tl"} == set(dir(sks))
    for name in dir(sks):
        assert getattr(sks, name) is not None, name


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


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="KMeens"):
        sks.KMeens


def test_import_is_light(tmp_path: Path) -> None:
    heavy = ["dask", "distributed", "zarr", "numba", "sklearn", "scipy", "matplotlib", "pandas", "pydantic", "typer"]
    program = f"import sys, sketchselect; print([m for m in {heavy} if m in sys.modules])"
    assert python("-c", program, cwd=tmp_path).strip() == "[]"


def test_help_is_light(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom sketchselect.cli import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit as end:\n    assert end.code in (0, None)\n"
        "heavy = ['dask', 'distributed', 'zarr', 'numba', 'sklearn', 'matplotlib']\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    assert python("-c", program, cwd=tmp_path).splitlines()[-1] == "[]"


def test_version_is_the_same_everywhere() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}$", changelog, flags=re.MULTILINE)
    assert newest
    assert {newest[1], importlib.metadata.version("sketchselect")} == {sks.__version__}


def test_readme_commands_are_those_that_the_ci_runs() -> None:
    commands = [line for block in code_blocks("sh") for line in block.splitlines() if "-m venv" in line]
    assert len(commands) == 2
    assert all(line.startswith("python3 -m venv .venv && .venv/bin/pip install ") for line in commands)
    assert commands[0].endswith("&& .venv/bin/sketchselect demo")
    assert commands[1].endswith("&& .venv/bin/python -m pytest -n 2 --dist worksteal")
    shown = subprocess.run([ROOT / ".ci" / "run", "--show-commands"], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines() == commands


def job_of_the_readme(about: str) -> str:
    """Return the one job file of the README that reads this source."""
    (job,) = (block for block in code_blocks("toml") if f'url = "{about}' in block)
    return job


def test_readme_text_job(tmp_path: Path) -> None:
    job = job_of_the_readme("documents.npz")
    # Fewer numbers of clusters than in the text, for the time it takes.
    (tmp_path / "job.toml").write_text(job.replace("[10, 40]", "[28, 32]"), encoding="utf-8")
    rng = np.random.default_rng(5)
    topics = rng.integers(30, size=400)
    words = rng.integers(40, size=(400, 60)) + 40 * topics[:, None]
    words[:, 30:] = rng.integers(1200, size=(400, 30))
    rows = np.repeat(np.arange(400), 60)
    counts = scipy.sparse.coo_array((np.ones(24_000), (rows, words.ravel())), shape=(400, 1200)).tocsr()
    scipy.sparse.save_npz(tmp_path / "documents.npz", counts)
    np.save(tmp_path / "topics.npy", topics)
    python("-m", "sketchselect", "run", "job.toml", "--cluster", "threads", cwd=tmp_path)
    seen = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"prepare.sks", "clusters.csv", "labels.zarr", "report.html"} <= seen
    assert len(json.loads((tmp_path / "out" / "selection.json").read_text(encoding="utf-8"))["support"]) == 1000


@pytest.mark.slow
def test_readme_supervised_job_and_its_saved_moments(tmp_path: Path) -> None:
    job = job_of_the_readme("patients")
    (tmp_path / "job.toml").write_text(job, encoding="utf-8")
    rng = np.random.default_rng(4)
    patients = rng.standard_normal((400, 30))
    np.save(tmp_path / "patients.npy", patients)
    np.save(tmp_path / "outcome.npy", 2 * patients[:, 3] - patients[:, 8] + rng.standard_normal(400))
    python("-m", "sketchselect", "run", "job.toml", cwd=tmp_path)
    model = json.loads((tmp_path / "model" / "model.json").read_text(encoding="utf-8"))
    assert {(3,), (8,)} <= {tuple(term) for term in model["terms"]}
    assert model["cv"]["n_folds"] == 5
    for name in re.findall(r'dir = "model"\s+# (.*)', job)[0].split(", "):
        assert (tmp_path / "model" / name).exists(), name
    for words in readme_commands("patients"):
        where = ["--cluster", "threads"] if words[0] == "summarize" else []
        python("-m", "sketchselect", *words, *where, cwd=tmp_path)
    assert len(json.loads((tmp_path / "today.json").read_text(encoding="utf-8"))["support"]) == 10
    assert len(json.loads((tmp_path / "tomorrow.json").read_text(encoding="utf-8"))["support"]) == 20
    assert len(json.loads((tmp_path / "today-model.json").read_text(encoding="utf-8"))["terms"]) == 10


def readme_commands(about: str = "") -> list[list[str]]:
    """Return the words of the commands of the README on one example that need neither set-up nor somebody's cluster."""
    blocks = [block for block in code_blocks("sh") if ("patients" in block) == (about == "patients")]
    lines = [line.split("#")[0].split() for block in blocks for line in block.splitlines()]
    commands = [words for words in lines if words[0] == ".venv/bin/sketchselect" and "--cluster" not in words]
    assert len(commands) == (3 if about else 8)
    return [words[1:] for words in commands]


@pytest.mark.slow
def test_readme_job_file_runs_on_a_store_of_ones_own(tmp_path: Path) -> None:
    job = job_of_the_readme("counts.zarr")
    (tmp_path / "job.toml").write_text(job, encoding="utf-8")
    counts = np.random.default_rng(3).poisson(2.0, size=(600, 40))
    np.savetxt(tmp_path / "counts.csv", counts, delimiter=",", fmt="%d")
    for words in readme_commands():
        if words[0] in {"convert", "run"}:
            python("-m", "sketchselect", *words, cwd=tmp_path)

    out = tmp_path / "out"
    section = README.split("## The output folder")[1].split("\n## ")[0]
    listed = {name for row in re.findall(r"^\| (`.*?`) \|", section, flags=re.MULTILINE) for name in named(row)}
    assert len(listed) >= 8
    for name in listed:
        assert (out / name).exists(), name
    seen = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    assert seen <= listed, "the README does not mention them"
    selection = json.loads((out / "selection.json").read_text(encoding="utf-8"))
    assert len(selection["support"]) == 20
    assert zarr.open_array(out / "labels.zarr", mode="r").shape == (600,)


@pytest.mark.slow
def test_readme_steps_run_one_by_one(tmp_path: Path) -> None:
    for day, seed in (("monday", 1), ("tuesday", 2)):
        rows = np.random.default_rng(seed).gamma(2.0, size=(500, 30))
        zarr.create_array(tmp_path / f"{day}.zarr", data=rows, chunks=(100, 30))
    done = []
    for words in readme_commands():
        # Threads instead of a cluster of processes: the same bits, in a fraction of the time.
        where = ["--cluster", "threads"] if words[0] in {"summarize", "cluster"} else []
        if words[0] not in {"convert", "run"}:
            out = python("-m", "sketchselect", *words, *where, cwd=tmp_path)
            done.append(words[0])
    assert done == ["summarize", "summarize", "merge", "select", "cluster", "inspect"]
    assert "1000" in out.replace(",", "")
    assert sks.load(tmp_path / "both.sks")["sketch"].n_rows == 1000
    assert zarr.open_array(tmp_path / "tuesday" / "labels.zarr", mode="r").shape == (500,)


def named(row: str) -> list[str]:
    return re.findall(r"`([^`]+)`", row)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "deploy/README.md"])
def test_files_that_the_texts_name_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    folder = (ROOT / name).parent
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    roots = ("pipeline/", "tests/", "deploy/", "notebooks/", ".ci/", ".github/")
    paths = [word for word in re.findall(r"`([\w./-]+)`", text) if word.startswith(roots)]
    assert links + paths
    for link in links:
        assert (folder / link).exists(), link
    for path in paths:
        assert (ROOT / path).exists(), path


THEIRS = {("", name) for name in ("Delayed", "Client", "Cluster")}
"""Names of Dask in the README."""


def test_readme_names_only_what_exists() -> None:
    """Every capitalised name in code font is public."""
    names = set(re.findall(r"`(?:sks\.)?(?:([a-z]+)\.)?([A-Z][A-Za-z]+)\b", README))
    assert {("", "KMeans"), ("summaries", "RowSample")} <= names
    for folder, name in names - THEIRS:
        public = getattr(sks, folder).__all__ if folder else [*sks.__all__, *sks.selectors.__all__]
        assert name in public, f"{folder}.{name}"


@pytest.mark.parametrize("name", MODULES)
def test_doctests(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


def test_most_public_objects_have_an_example() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    shown = [n for n in sks.__all__ if n != "__version__" and any(t.examples for t in finder.find(getattr(sks, n), n))]
    assert len(shown) >= len(sks.__all__) // 3, shown


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
