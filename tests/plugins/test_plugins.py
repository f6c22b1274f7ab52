"""Parts of other packages: installed for real and named by a job, and everything that can be wrong with them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tests.documentation.pages import blocks, text_of

import sketchselect as sks
from sketchselect.errors import BadParameter, BadPlugin, ConfigError, DamagedFile
from sketchselect.job.load import load_job
from sketchselect.prepare import STEPS, resolve
from sketchselect.readers.opening import FORMATS, format_by_ending
from sketchselect.selectors import METHODS, make
from sketchselect.summaries import KINDS, ColumnStats, decode, encode
from sketchselect.testing.laws import SummaryLaws
from sketchselect.testing.readers import MatrixConformance

PACKAGE = Path(__file__).parent / "peaks"
ENTRY_POINTS = """\
[sketchselect.methods]
peak = sketchselect_peaks:PeakSelector
[sketchselect.summaries]
column-peaks = sketchselect_peaks:ColumnPeaks
[sketchselect.steps]
signed-root = sketchselect_peaks:SignedRoot
[sketchselect.readers]
fvecs = sketchselect_peaks:FVECS
"""
PARTS = {"methods": (METHODS, "variance"), "summaries": (KINDS, "moments"), "steps": (STEPS, "l2")}


def describe_package(folder: Path, name: str, entry_points: str) -> None:
    """Write what an installed package says about itself."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(entry_points, encoding="utf-8")


@pytest.fixture
def peaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The package of this folder, as if installed."""
    describe_package(tmp_path / "site", "sketchselect-peaks", ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.syspath_prepend(str(PACKAGE))
    import sketchselect_peaks

    return sketchselect_peaks


def write_fvecs(path: Path, rows: np.ndarray) -> None:
    values = np.empty((rows.shape[0], rows.shape[1] + 1), np.float32)
    values[:, 1:] = rows
    values[:, 0] = np.array([rows.shape[1]], np.int32).view(np.float32)
    values.tofile(path)


def test_parts_of_a_package_are_found_by_their_names(peaks: ModuleType, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((50, 6)).astype(np.float32)
    selector = make("peak", n_features_to_select=2).fit(rows)
    assert type(selector) is peaks.PeakSelector
    assert set(selector.support_) == set(np.argsort(np.abs(rows).max(axis=0))[-2:])
    assert decode(encode(selector.summary_)) == selector.summary_
    [step] = resolve(["signed-root"])
    np.testing.assert_allclose(step.apply(rows), np.sign(rows) * np.sqrt(np.abs(rows)), rtol=1e-6)
    write_fvecs(tmp_path / "rows.fvecs", rows)
    MatrixConformance(sks.open_matrix(tmp_path / "rows.fvecs"), rows).verify()
    for path in ("x/rows.fvecs", "rows.part.fvecs"):
        assert format_by_ending(path) is peaks.FVECS


@pytest.mark.parametrize("matrix", ["offset 1e8", "int8", "two equal rows"])
def test_summary_of_a_package_keeps_the_laws(peaks: ModuleType, matrix: str) -> None:
    def check(summary: Any, X: np.ndarray, *_: object) -> None:
        np.testing.assert_array_equal(summary.record.peaks, np.abs(X.astype(np.float64)).max(axis=0))

    SummaryLaws(peaks.ColumnPeaks(), check).verify(matrix)


def test_what_is_installed_changes_no_default(peaks: ModuleType) -> None:
    make("peak")
    assert "peak" in METHODS.known()
    assert "peak" not in set(METHODS)
    assert "signed-root" not in set(STEPS)
    assert "column-peaks" not in set(KINDS)
    assert all(".fvecs" not in known.endings for known in FORMATS)


@pytest.mark.parametrize("group", PARTS)
def test_a_broken_part_is_one_line_that_names_package_and_entry_point(
    group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, builtin = PARTS[group]
    lines = ["missing = no_such_module:Part", "number = math:pi", "other-name = sketchselect.summaries:Moments"]
    describe_package(tmp_path, "broken", f"[sketchselect.{group}]\n" + "\n".join([*lines, f"{builtin} = math:pi"]))
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, problem in (("missing", "no_such_module"), ("number", "subclass"), ("other-name", "subclass")):
        with pytest.raises(BadPlugin) as error:
            registry[name]
        text = str(error.value)
        assert "\n" not in text
        assert all(part in text for part in ("broken 1.0", repr(name), f"sketchselect.{group}", problem)), text
    # A name of this package is never looked for elsewhere.
    assert registry[builtin].__module__.startswith("sketchselect.")


def test_a_broken_format_is_one_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    describe_package(tmp_path, "broken", "[sketchselect.readers]\nvec = math:pi\nnpy = math:pi\nzarr = math:pi\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(BadPlugin, match=r"broken 1\.0: .*'vec'.*sketchselect\.readers"):
        sks.open_matrix(tmp_path / "rows.vec")
    assert format_by_ending("rows.npy") in FORMATS
    assert format_by_ending("rows.zarr") is None


def test_a_name_of_two_packages_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("first", "second"):
        describe_package(tmp_path / package, package, "[sketchselect.methods]\ntwice = math:pi\n")
        monkeypatch.syspath_prepend(str(tmp_path / package))
    with pytest.raises(BadPlugin, match=r"'twice'.*first 1\.0 and second 1\.0"):
        make("twice")


def test_an_unknown_name_imports_nothing_and_lists_installed_ones(peaks: ModuleType) -> None:
    entries = ("os:system", "no.such.step", "sketchselect_peaks:SignedRoot")
    files = {entry: _with_kind(entry) for entry in entries}
    before = set(sys.modules)
    with pytest.raises(BadParameter, match="did you mean 'peak'"):
        make("peek")
    for entry in entries:
        with pytest.raises(BadParameter, match="prepare step"):
            resolve([entry])
        with pytest.raises(DamagedFile, match="unknown kind"):
            decode(files[entry])
    assert set(sys.modules) == before


def _with_kind(kind: str) -> bytes:
    """Return a summary file of this kind that is sound in all else."""
    summary = ColumnStats().from_block(np.eye(2))
    summary.__dict__["kind"] = kind
    return encode(summary)


def test_a_package_may_not_register_a_kind_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    other = type("Moments", (ColumnStats,), {"kind": "moments", "__qualname__": "Moments", "__module__": "elsewhere"})
    with pytest.raises(ValueError, match="moments"):
        sks.summaries.register(other)
    assert KINDS["moments"] is sks.Moments


def test_a_job_file_names_the_broken_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    describe_package(tmp_path, "broken", "[sketchselect.methods]\nmissing = no_such_module:Part\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    job = '[input]\nurl = "x.npy"\n[select]\nmethod = "%s"\nn_features = 2\n[output]\ndir = "out"\n'
    (tmp_path / "job.toml").write_text(job % "missing", encoding="utf-8")
    with pytest.raises(BadPlugin, match="broken"):
        load_job(tmp_path / "job.toml")
    (tmp_path / "job.toml").write_text(job % "missin", encoding="utf-8")
    with pytest.raises(ConfigError, match="did you mean 'missing'"):
        load_job(tmp_path / "job.toml")


def test_page_shows_this_package() -> None:
    source = (PACKAGE / "sketchselect_peaks.py").read_text(encoding="utf-8")
    settings = (PACKAGE / "pyproject.toml").read_text(encoding="utf-8")
    shown = list(blocks(text_of("notebooks/how-to/plugins.md")))
    [python] = [block.text for block in shown if block.language == "python" and "class ColumnPeaks" in block.text]
    imports, *classes = (part.strip() for part in python.split("\n\n\n"))
    assert len(classes) == 3
    assert all(line in source for line in imports.splitlines())
    assert all(part in source for part in classes)
    assert [block.text for block in shown if "pyproject.toml" in block.text] == [settings]


@pytest.mark.slow
def test_installed_package_serves_a_job_and_its_workers(tmp_path: Path) -> None:
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--no-index"]
    subprocess.run([*install, "--target", site, _copy_of_package(tmp_path)], check=True, capture_output=True)
    rows = np.random.default_rng(3).standard_normal((3000, 12)).astype(np.float32)
    rows[1234, 7], rows[2500, 3] = -90, 60
    write_fvecs(tmp_path / "rows.fvecs", rows)
    (tmp_path / "job.toml").write_text(
        """
        [input]
        url = "rows.fvecs"
        [prepare]
        rows = ["signed-root"]
        [select]
        method = "peak"
        n_features = 2
        [output]
        dir = "out"
        [execution]
        n_workers = 2
        partition_bytes = "32 KiB"
        """,
        encoding="utf-8",
    )
    here = os.environ.get("PYTHONPATH")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *([here] if here else [])])}
    command = [sys.executable, "-m", "sketchselect", "run", "job.toml"]
    options = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
    run = subprocess.run(command, timeout=600, **options)
    assert run.returncode == 0, run.stderr
    selection = json.loads((tmp_path / "out" / "selection.json").read_text(encoding="utf-8"))
    assert (selection["method"], selection["support"]) == ("peak", [3, 7])
    np.testing.assert_allclose(selection["scores"], np.sqrt(np.abs(rows).max(axis=0)), rtol=1e-6)
    load = "import sketchselect as sks; print(*sks.load('out/summary.sks'))"
    printed = subprocess.run(
        [sys.executable, "-c", load], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert "column-peaks" in printed.stdout.split(), printed.stderr
    # Where the package is not installed, nothing of the file is read.
    without = subprocess.run([sys.executable, "-c", load], **options | {"env": dict(os.environ)})
    assert "DamagedFile: out/summary.sks: unknown kind of summary 'column-peaks'" in without.stderr


def _copy_of_package(folder: Path) -> Path:
    """Return a copy of the package, so that building it leaves nothing in the repository."""
    copy = folder / "peaks"
    copy.mkdir()
    for path in PACKAGE.iterdir():
        if path.is_file():
            (copy / path.name).write_bytes(path.read_bytes())
    return copy
