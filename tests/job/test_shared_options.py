"""Options that all commands have, former names of options, and a job from standard input."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.documentation.pages import text_of

import sketchselect as sks
from sketchselect.cli import GROUPS
from sketchselect.selectors.registry import METHODS

from .commands import cli, refused

COMMANDS = [command.__name__ for group in GROUPS.values() for command in group]


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", np.random.default_rng(0).normal(size=(60, 6)) * np.arange(1, 7) ** 3)
    return tmp_path


def job(folder: str) -> str:
    return (
        '[input]\nurl = "rows.npy"\n[select]\nmethod = "variance"\nn_features = 2\n[cluster]\nn_clusters = 2\n'
        f'[execution]\ncluster = "threads"\n[output]\ndir = "{folder}"\nreport = false\n'
    )


def as_data(*arguments: object) -> Any:
    """Run a command with `--json`, which prints nothing else, and return what it prints."""
    done = cli(*arguments, "--json")
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_shared_options_and_is_documented(name: str) -> None:
    shown = cli(name, "--help").stdout
    for option in ("--json", "-q, --quiet", "-v, --verbose", "--debug", "Example: sketchselect "):
        assert option in shown, option
    assert "--cluster " not in shown
    assert not re.search(r"(?m)^ +-.* (<\w+|TEXT|INTEGER)", shown), "values have names, not types"
    assert f"`{name}" in text_of("notebooks/reference/command_line.md").replace("sketchselect ", "")


def test_results_are_printed_as_json(rows: Path) -> None:
    (rows / "job.toml").write_text(job("out"))
    assert as_data("inspect", "rows.npy")["shape"] == [60, 6]
    assert as_data("convert", "rows.npy", "rows.zarr")["shape"] == [60, 6]
    assert as_data("init", "rows.npy", "-o", "first.toml")["job"] == "first.toml"
    assert set(as_data("methods")) == set(METHODS)
    assert "properties" in as_data("schema")
    assert as_data("plan", "job.toml", "--no-calibrate")["passes"]
    assert as_data("run", "job.toml")["selection"]["n_selected"] == 2
    assert as_data("inspect", "out")["finished"]
    assert as_data("assign", "out", "rows.npy", "-o", "new.csv")["n_rows"] == 60
    serial = ("--scheduler", "serial")
    assert as_data("summarize", "rows.npy", "-o", "a.sks", *serial)["n_rows"] == 60
    members = as_data("inspect", "a.sks")["members"]
    assert members["sketch"]["kind"] == sks.FrequentDirections.kind
    chosen = as_data("select", "a.sks", "--method", "variance", "--n-features", 2, "-o", "chosen.json")
    assert chosen["support"] == [4, 5]
    clustered = as_data("cluster", "rows.npy", "--selection", "chosen.json", "--n-clusters", 2, "-o", "c", *serial)
    assert clustered["selection"]["n_selected"] == 2
    np.save("more.npy", np.load("rows.npy") + 1)
    as_data("summarize", "more.npy", "-o", "b.sks", *serial)
    assert as_data("merge", "a.sks", "b.sks", "-o", "both.sks")["n_rows"] == 120


def test_a_quiet_command_prints_the_result_alone(rows: Path) -> None:
    (rows / "job.toml").write_text(job("out"))
    done = cli("run", "job.toml", "-q")
    assert done.exit_code == 0
    assert done.stderr == ""
    assert "selected 2 of 6 columns" in done.stdout
    assert cli("run", "job.toml", "--fresh").stderr != ""


def test_a_verbose_command_prints_what_libraries_log(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import logging

    def logging_inspection(*_: object) -> tuple[str, None]:
        logging.getLogger("some.library").info("opened")
        return "done", None

    monkeypatch.setattr("sketchselect.workflow.inspection.inspect_target", logging_inspection)
    assert "opened" in cli("inspect", "rows.npy", "-v").stderr
    assert "opened" not in cli("inspect", "rows.npy").stderr


@pytest.mark.parametrize("form", [("--cluster", "serial"), ("--cluster=serial",), ("--scheduler-file", "serial")])
def test_former_names_of_options_are_taken_with_a_note(rows: Path, form: tuple[str, ...]) -> None:
    done = cli("summarize", "rows.npy", "-o", "rows.sks", *form)
    assert done.exit_code == 0, done.output
    assert f"note: {form[0].partition('=')[0]} is now --scheduler" in done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("nope",), ("sketchselect: ", "'nope'", "sketchselect --help")),
        (("--nope",), ("sketchselect: ", "--nope", "sketchselect --help")),
        (("run",), ("sketchselect run: ", "JOB", "sketchselect run --help")),
        (("run", "j.toml", "--scheduller", "x"), ("sketchselect run: ", "--scheduller", "--scheduler", "run --help")),
        (("demo", "--scheduler"), ("sketchselect demo: ", "--scheduler", "demo --help")),
        (("plan", "j.toml", "--workers", 0), ("sketchselect plan: ", "--n-workers", "plan --help")),
        (("summarize", "a.npy", "--size", "x", "-o", "b"), ("sketchselect summarize: ", "--size", "summarize --help")),
        (("methods", "greedy", "variance"), ("sketchselect methods: ", "variance", "methods --help")),
    ],
)
def test_a_mistake_in_the_words_of_a_command_is_one_line(words: tuple[object, ...], expected: tuple[str, ...]) -> None:
    done = cli(*words)
    refused(done, 2, *expected)
    assert [line for line in done.stderr.splitlines() if not line.startswith("note: ")] == [
        done.stderr.splitlines()[-1]
    ]


def test_the_command_line_without_a_command_is_helped() -> None:
    done = cli()
    assert done.exit_code == 2
    assert "Start:" in done.output
    assert "error: " not in done.output


def test_a_job_comes_from_standard_input(rows: Path) -> None:
    command = [sys.executable, "-m", "sketchselect", "run", "-", "-q"]
    done = subprocess.run(command, input=job("out"), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((rows / "out" / "selection.json").read_text())["support"] == [4, 5]


def test_mistakes_in_a_job_from_standard_input_name_it(rows: Path) -> None:
    from typer.testing import CliRunner

    from sketchselect.cli import app

    text = job("out").replace("n_features", "n_featurs")
    refused(CliRunner().invoke(app, ["run", "-"], input=text), 2, "standard input: select.n_featurs", "(line 5)")
