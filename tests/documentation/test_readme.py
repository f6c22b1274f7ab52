"""The README: its commands, its job, its steps, and its length."""

import contextlib
import io
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import zarr
from tests.documentation.pages import CHECK, LIKE_DOCTEST, ROOT, blocks, python, text_of

import sketchselect as sks

README = text_of("README.md")


def code_blocks(language: str) -> list[str]:
    return [block.text for block in blocks(README) if block.language == language]


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize("number", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_readme_programs_run(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = [block for block in blocks(README) if block.language == "python"]
    assert len(programs) == 2
    program = programs[number]
    monkeypatch.chdir(tmp_path)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(program.text, "README.md", "exec"), {"__name__": "__main__"})
    assert program.printed is not None
    # The last digit of a proved bound depends on the processor.
    printed, shown = (re.sub(r"\.\d %", ". %", text) for text in (program.printed, out.getvalue()))
    assert CHECK.check_output(printed, shown, LIKE_DOCTEST), out.getvalue()


def test_readme_commands_are_those_that_the_ci_runs() -> None:
    commands = [line for block in code_blocks("sh") for line in block.splitlines() if "-m venv" in line]
    assert len(commands) == 2
    assert all(line.startswith("python3 -m venv .venv && .venv/bin/pip install ") for line in commands)
    assert commands[0].endswith("&& .venv/bin/sketchselect demo")
    assert commands[1].endswith("&& .venv/bin/python -m pytest -n 2 --dist worksteal")
    shown = subprocess.run([ROOT / ".ci" / "run", "--show-commands"], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines() == commands


def readme_commands() -> list[list[str]]:
    """Return the words of the commands of the README that need neither set-up nor somebody's cluster."""
    lines = [line.split("#")[0].split() for block in code_blocks("sh") for line in block.splitlines()]
    commands = [words for words in lines if words[0] == ".venv/bin/sketchselect" and "--scheduler" not in words]
    assert len(commands) == 8
    return [words[1:] for words in commands]


@pytest.mark.slow
def test_readme_job_file_runs_on_a_store_of_ones_own(tmp_path: Path) -> None:
    (job,) = code_blocks("toml")
    (tmp_path / "job.toml").write_text(job, encoding="utf-8")
    counts = np.random.default_rng(3).poisson(2.0, size=(600, 40))
    np.savetxt(tmp_path / "counts.csv", counts, delimiter=",", fmt="%d")
    for words in readme_commands():
        if words[0] in {"convert", "run"}:
            python("-m", "sketchselect", *words, cwd=tmp_path)

    out = tmp_path / "out"
    text = text_of("notebooks/reference/output_folder.md")
    listed = {name for row in re.findall(r"^\| (`.*?`) \|", text, flags=re.MULTILINE) for name in named(row)}
    assert len(listed) >= 8
    for name in listed:
        assert (out / name).exists(), name
    seen = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    assert seen <= listed, "the documentation does not mention them"
    selection = json.loads((out / "selection.json").read_text(encoding="utf-8"))
    assert 1 <= len(selection["support"]) <= 40
    assert (out / "curve.csv").exists()
    assert zarr.open_array(out / "labels.zarr", mode="r").shape == (600,)


@pytest.mark.slow
def test_readme_steps_run_one_by_one(tmp_path: Path) -> None:
    for day, seed in (("monday", 1), ("tuesday", 2)):
        rows = np.random.default_rng(seed).gamma(2.0, size=(500, 30))
        zarr.create_array(tmp_path / f"{day}.zarr", data=rows, chunks=(100, 30))
    done = []
    for words in readme_commands():
        # Threads instead of a cluster of processes: the same bits, in a fraction of the time.
        where = ["--scheduler", "threads"] if words[0] in {"summarize", "cluster"} else []
        if words[0] not in {"convert", "run"}:
            out = python("-m", "sketchselect", *words, *where, cwd=tmp_path)
            done.append(words[0])
    assert done == ["summarize", "summarize", "merge", "select", "cluster", "inspect"]
    assert "1000" in out.replace(",", "")
    assert sks.load(tmp_path / "both.sks")["sketch"].n_rows == 1000
    assert zarr.open_array(tmp_path / "tuesday" / "labels.zarr", mode="r").shape == (500,)


def named(row: str) -> list[str]:
    return re.findall(r"`([^`]+)`", row)
