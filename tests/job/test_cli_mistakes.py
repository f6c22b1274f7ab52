"""One readable line for every mistake in a job, a source, a file or a folder, and nothing lost."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.passing import succeed

import sketchselect
from sketchselect import _kernel_cache

from .commands import cli, refused, start, works


def test_bad_job_files(job_file: Callable[..., Path], tmp_path: Path) -> None:
    refused(cli("run", tmp_path / "none.toml"), 2, "no such job file; check the path")
    refused(cli("run", job_file(select={"n_featurs": 3})), 2, "job.toml: select.n_featurs", "did you mean", "(line ")
    refused(cli("run", job_file(), "--set", "cluster.n_clusters=0"), 2, "cluster.n_clusters", "(from --set)")
    named = "got the string 'auto'; beside a number, cluster.range = [2, 20] compares others"
    refused(cli("run", job_file(), "--set", "cluster.n_clusters=auto"), 2, named)
    refused(cli("run", job_file(cluster={"n_clusters": "auto"})), 2, named, "job.toml: cluster.n_clusters")
    twice = ("--set", "cluster.n_clusters=2", "--set", "cluster.n_clusters = 3")
    refused(cli("run", job_file(), *twice), 2, "cluster.n_clusters=2", "cluster.n_clusters = 3")
    refused(
        cli("plan", job_file(), "--set", "execution.cluster=local", "--scheduler", "serial"), 2, "execution.cluster"
    )
    several = cli("run", job_file(select={"method": "x"}, cluster={"tol": -1.0}, output={"report": 3}))
    assert several.exit_code == 2
    assert len([line for line in several.stderr.splitlines() if line.startswith("error: job.toml: ")]) == 3
    assert not (tmp_path / "out").exists()


def test_the_command_line_names_its_steps(tmp_path: Path) -> None:
    for words in (
        ("summarize", "rows.npy", "-o", "rows.sks"),
        ("certify", "rows.npy", "--labels", "labels.npy", "--n-clusters", 2),
        ("cluster", "rows.npy", "--selection", "selection.json", "--n-clusters", 2, "-o", tmp_path / "out"),
    ):
        refused(cli(*words, "--prepare", "auto"), 2, "--prepare", 'name the steps; a job chooses them: steps = "auto"')


def bad_sources(folder: Path) -> dict[str, tuple[Path, str]]:
    """Name -> a source that cannot be a matrix of numbers, and what is said of it."""
    made: dict[str, tuple[Path, str]] = {"missing": (folder / "none.zarr", "none.zarr")}
    (folder / "photos").mkdir()
    (folder / "photos" / "a.jpg").write_bytes(b"x")
    made["not a store"] = (folder / "photos", "photos")
    for name, array in {
        "one-dimensional": np.zeros(10),
        "three-dimensional": np.zeros((4, 3, 2)),
        "complex": np.zeros((40, 12), complex),
        "text": np.full((40, 12), "a"),
    }.items():
        np.save(folder / f"{name}.npy", array)
        made[name] = (folder / f"{name}.npy", f"{name}.npy")
    np.save(folder / "objects.npy", np.full((40, 12), None), allow_pickle=True)
    made["objects"] = (folder / "objects.npy", "objects.npy")
    np.save(folder / "rowless.npy", np.zeros((0, 12)))
    made["no rows"] = (folder / "rowless.npy", "rowless.npy")
    np.save(folder / "row.npy", np.arange(12.0)[None])
    made["one row"] = (folder / "row.npy", "a single row")
    nan = np.ones((40, 12))
    nan[7, 3] = np.nan
    np.save(folder / "nan.npy", nan)
    made["not a number"] = (folder / "nan.npy", "row 7, column 3")
    return made


def test_bad_sources(job_file: Callable[..., Path], tmp_path: Path) -> None:
    for name, (path, expected) in bad_sources(tmp_path).items():
        done = cli("run", job_file(input={"url": str(path)}))
        assert done.exit_code in (1, 2), name
        refused(done, done.exit_code, expected)
        assert not (tmp_path / "out" / "summary.sks").exists(), name


def test_damaged_stores(job_file: Callable[..., Path], store: Path, tmp_path: Path) -> None:
    chunk = store / "c" / "3" / "0"
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[: len(whole) // 2])
    refused(cli("run", job_file()), 1, "c/3/0")
    chunk.unlink()
    refused(cli("run", job_file()), 1, "c/3/0", "fill")
    assert not (tmp_path / "out" / "summary.sks").exists()
    works("run", job_file(input={"missing_chunks": "fill"}))
    assert (
        "(optimistic: 7% of the chunks have no file yet"
        in cli("plan", job_file(input={"missing_chunks": "fill"})).stdout
    )


def test_folders_that_are_not_ours(job_file: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious.txt").write_text("mine")
    for arguments in (["run", job_file()], ["run", job_file(), "--fresh"], ["demo", "--output", tmp_path / "out"]):
        refused(cli(*arguments), 1, str(tmp_path / "out"), "not made by sketchselect")
    refused(cli("report", tmp_path / "out"), 1, "not an output folder")
    (tmp_path / "job.toml").write_text("")
    for command in ("report", "verify"):
        refused(cli(command, tmp_path / "job.toml"), 1, "not an output folder of sketchselect; give the")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["precious.txt"]


def test_files_that_are_not_ours(store: Path, tmp_path: Path) -> None:
    precious = tmp_path / "thesis.sks"
    precious.write_text("not a summary")
    refused(cli("summarize", store, "-o", precious, "--cluster", "serial"), 1, "not overwritten")
    assert precious.read_text() == "not a summary"
    refused(cli("summarize", store, "-o", tmp_path / "a.txt", "--cluster", "serial"), 2, "must end in .sks")
    refused(cli("summarize", store, "-o", tmp_path / "no" / "a.sks", "--cluster", "serial"), 1, "does not exist")
    refused(cli("inspect", precious), 1, "not a summary file")
    refused(cli("merge", precious, precious, "-o", tmp_path / "b.sks"), 1, "thesis.sks")
    (tmp_path / "theirs.zarr").mkdir()
    (tmp_path / "theirs.zarr" / "x").write_text("")
    np.save(tmp_path / "a.npy", np.zeros((3, 3)))
    refused(cli("convert", tmp_path / "a.npy", tmp_path / "theirs.zarr"), 1, "theirs.zarr")
    refused(cli("convert", tmp_path / "a.npy", tmp_path / "b.zarr", "--chunks", "10"), 2, "ROWSxCOLUMNS")
    labels = tmp_path / "labels.csv"
    labels.write_text("cluster")
    os.mkfifo(tmp_path / "pipe.csv")
    refused(cli("compare", tmp_path, "--csv", labels), 1, "not overwritten")
    refused(cli("compare", tmp_path, "--csv", tmp_path / "pipe.csv"), 1, "a pipe or a device")
    assert labels.read_text() == "cluster"
    assert (tmp_path / "pipe.csv").is_fifo()


def test_bad_selections(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.sks"
    works("summarize", store, "-o", file, "--size", 6, "--cluster", "serial")
    chosen = tmp_path / "s.json"
    select = ["select", file, "-o", chosen, "--n-features"]
    refused(cli(*select, 13, "--method", "variance"), 2, "13 asked for", "12 columns")
    refused(cli(*select, 3, "--method", "varience"), 2, "did you mean 'variance'?")
    refused(cli(*select, 3, "--method", "sketched-ridge", "--set", "n_component=2"), 2, "did you mean 'n_components'?")
    refused(cli(*select, 3, "--method", "sketched-ridge", "--set", "n_components=40"), 2, "n_components")
    refused(cli(*select, 3, "--method", "variance", "--set", "nothing"), 2, "NAME=VALUE")
    assert not chosen.exists()
    unprepared = works(*select, 3, "--method", "sketched-ridge", "--set", "n_components=2")
    assert "asks for rows prepared with --prepare l2" in unprepared.stdout
    assert "asks for rows" not in works(*select, 3, "--method", "greedy", "--set", "normalize=false").stdout
    scaled = tmp_path / "scaled.sks"
    works("summarize", store, "-o", scaled, "--size", 6, "--cluster", "serial", "--prepare", "standardise")
    advised = works("select", scaled, "-o", chosen, "--n-features", 3, "--method", "greedy")
    assert "asks for rows" not in advised.stdout, "rows of a table have no common scale"
    wide = tmp_path / "wide.npy"
    np.save(wide, np.random.default_rng(0).standard_normal((30, 20)))
    refused(
        cli("cluster", wide, "--selection", chosen, "--clusters", 2, "-o", tmp_path / "out", "--cluster", "serial"),
        2,
        "12 columns",
        "has 20",
    )


def test_a_summary_is_not_merged_with_itself(store: Path, tmp_path: Path) -> None:
    one, again = tmp_path / "one.sks", tmp_path / "again.sks"
    works("summarize", store, "-o", one, "--size", 6, "--cluster", "serial")
    before = one.read_bytes()
    shutil.copy(one, again)
    refused(cli("merge", one, again, "-o", one), 2, "again.sks", "counted twice")
    assert one.read_bytes() == before


def test_a_folder_that_is_not_there_is_no_run_that_did_not_finish(tmp_path: Path) -> None:
    done = cli("verify", tmp_path / "nope")
    assert done.exit_code != 0
    assert "nope: no such folder; give the output folder of a run" in done.stderr
    done = cli("run", tmp_path / "nope")
    assert "nope: no such file or folder" in done.stderr


def test_the_help_names_standard_input_and_one_word_for_a_cluster() -> None:
    for name in ("run", "plan"):
        assert "- is TOML from standard input" in " ".join(cli(name, "--help").stdout.split())
    for name in ("demo", "summarize", "cluster", "assign"):
        text = cli(name, "--help").stdout
        assert "CLUSTER" in text, name
        assert "WHERE" not in text, name


# A home and an installation that cannot be written: commands work, and `doctor` says where kernels are compiled.


@pytest.mark.slow
def test_commands_run_where_nothing_but_the_temporary_folder_can_be_written(tmp_path: Path) -> None:
    installed = tmp_path / "installed" / "sketchselect"
    source = Path(sketchselect.__file__).parent
    shutil.copytree(source, installed, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in {path.parent for path in installed.rglob("*.py")}:
        # A file in the place of the folder stops everybody, also the superuser.
        (folder / "__pycache__").touch()
    (tmp_path / "home").touch()
    (tmp_path / "tmp").mkdir()
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).standard_normal((50, 4)))
    environment = {
        name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")
    }
    environment |= {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {"PYTHONPATH": str(installed.parent)}

    def python(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
        return succeed(sys.executable, *words, env=environment | variables, cwd=tmp_path)

    summarize = "-m", "sketchselect", "summarize", "rows.npy", "-o", "rows.sks", "--moments", "--cluster", "serial"
    program = "import numpy, sketchselect as sks; sks.summarize(numpy.load('rows.npy'), sks.summaries.Moments())"
    first = python(*summarize)
    [folder] = (tmp_path / "tmp").glob("sketchselect-numba-*")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert any(folder.rglob("*.nbi"))
    assert first.stderr.count("compiling kernels") == 1
    assert str(folder) in first.stderr
    assert "compiling" not in python(*summarize).stderr
    assert "compiling" not in python(*summarize, "--quiet", NUMBA_CACHE_DIR=str(tmp_path / "quiet")).stderr
    # Other libraries compile functions that they make from text, which have no module.
    foreign = "import numba, sketchselect._kernels; f = lambda x: x; f.__module__ = None; numba.njit(f)(1)"
    assert "compiling" not in python("-c", foreign).stderr
    assert "compiling kernels" in python("-c", program, NUMBA_CACHE_DIR=str(tmp_path / "fit")).stderr
    told = python("-m", "sketchselect", "doctor").stdout
    assert f"kernel folder: compiled kernels are kept in {folder}" in told
    assert "NUMBA_CACHE_DIR" in told


def test_a_folder_that_others_can_write_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever writes there could run code in this process."""
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    expected = tmp_path / f"sketchselect-numba-{os.getuid()}"
    assert _kernel_cache._private_folder() == str(expected)
    assert _kernel_cache._private_folder() == str(expected)
    expected.chmod(0o777)
    other = _kernel_cache._private_folder()
    assert other is not None
    assert other != str(expected)
    shutil.rmtree(other)
    expected.rmdir()
    expected.symlink_to(tmp_path)
    assert _kernel_cache._private_folder() != str(expected)


def test_a_choice_of_the_user_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/somewhere")
    _kernel_cache.ensure_writable()
    assert os.environ["NUMBA_CACHE_DIR"] == "/somewhere"
    assert _kernel_cache.description() == "compiled kernels are kept in /somewhere (NUMBA_CACHE_DIR)"


def test_a_user_without_a_home_gets_a_temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unknown(_: int) -> None:
        raise KeyError("no such user")

    pwd = pytest.importorskip("pwd")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(_kernel_cache, "_is_writable", lambda _: False)
    for name in ("HOME", "XDG_CACHE_HOME", _kernel_cache.VARIABLE):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    _kernel_cache.ensure_writable()
    assert os.path.isabs(os.environ[_kernel_cache.VARIABLE])
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_report_is_drawn_whatever_backend_is_named(job_file: Callable[..., Path], tmp_path: Path) -> None:
    done = start("run", job_file(output={"report": True}), "--quiet", env={**os.environ, "MPLBACKEND": "nope"})
    _, lines = done.communicate()
    assert done.returncode == 0, lines
    assert (tmp_path / "out" / "manifest.json").exists()
    assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.parametrize("given", ["0", "-1", "abc", "", "2.5"])
def test_a_number_of_threads_that_numba_refuses_is_named(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", given)
    refused(cli("methods"), 2, f"NUMBA_NUM_THREADS must be at least 1, got {given!r}; correct it, or unset it")


@pytest.mark.parametrize("given", ["abc", "", "-3", "1e9", "99999999999999999999"])
def test_a_date_of_sources_that_numpy_refuses_is_named(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", given)
    refused(cli("methods"), 2, f"SOURCE_DATE_EPOCH must be seconds since 1970, got {given!r:.40}; correct it, or unset")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert cli("methods").exit_code == 0


@pytest.mark.slow
def test_a_setting_that_turns_compiled_kernels_off_is_named(job_file: Callable[..., Path]) -> None:
    done = start("run", job_file(), "--quiet", env={**os.environ, "NUMBA_DISABLE_JIT": "1"})
    _, lines = done.communicate()
    assert (done.returncode, lines) == (
        2,
        "error: NUMBA_DISABLE_JIT=1: results need compiled kernels; unset it before Python starts\n",
    )


def test_a_working_folder_that_is_gone_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    refused(cli("inspect", "rows.npy"), 1, "the working folder was deleted or moved; change to a folder that exists")


@pytest.mark.parametrize(
    ("typed", "there", "is_proposed"),
    [("nope.npy", "wine.npy", False), ("b.npy", "a.npy", False), ("trian.npy", "train.npy", True)],
)
def test_a_name_is_proposed_that_shares_more_than_its_ending(
    tmp_path: Path, typed: str, there: str, is_proposed: bool
) -> None:
    (tmp_path / there).touch()
    result = cli("inspect", tmp_path / typed)
    refused(result, 1, typed)
    assert (there in result.output) == is_proposed


@pytest.mark.parametrize(
    "words",
    [
        ("summarize", "rows.npy", "-o", "s3://me:hidden@bucket/a.sks"),
        ("report", "s3://me:hidden@bucket/run"),
        ("merge", "a.sks", "gs://me:hidden@bucket/b.sks", "-o", "c.sks"),
        ("run", "https://me:hidden@host/job.toml"),
    ],
    ids=lambda words: words[0],
)
def test_a_url_where_a_local_path_is_needed_is_named_as_it_was_given(words: tuple[str, ...]) -> None:
    result = cli(*words)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "://" in line
    assert "on this machine" in line
    assert "hidden" not in line


def test_a_file_url_where_a_path_is_needed_is_told_its_path() -> None:
    result = cli("report", "file:///runs/a")
    assert result.exit_code == 2
    assert "file:///runs/a: here a path is needed, not a URL; give /runs/a" in result.stderr
