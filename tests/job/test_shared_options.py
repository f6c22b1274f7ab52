"""Options that all commands have, former names of options, and a job from standard input."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry
from tests.documentation.pages import text_of
from typer.testing import CliRunner
from zarr.storage import FsspecStore

import sketchselect as sks
from sketchselect.cli import GROUPS, app
from sketchselect.errors import ConfigError
from sketchselect.job.load import storage_options
from sketchselect.readers import convert
from sketchselect.selectors.registry import METHODS

from .commands import cli, refused, works

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
    done = works(*arguments, "--json")
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
        logger = logging.getLogger("some.library")
        try:
            raise ConnectionError("worker left")
        except ConnectionError:
            logger.info("opened", exc_info=True)
            logger.warning("cut", exc_info=True)
        try:
            raise asyncio.CancelledError
        except asyncio.CancelledError:
            logging.getLogger("distributed.nanny").exception("start of a worker cancelled")
        return "done", None

    monkeypatch.setattr("sketchselect.workflow.inspection.inspect_target", logging_inspection)
    log = cli("inspect", "rows.npy", "-v").stderr
    # Only what reports a problem has the traceback, and a cancellation is none.
    assert log.index("opened\ncut\nTraceback") >= 0
    assert log.count("Traceback") == 1
    assert "cancelled" not in log
    assert "opened" not in cli("inspect", "rows.npy").stderr


@pytest.mark.parametrize("form", [("--cluster", "serial"), ("--cluster=serial",), ("--scheduler-file", "serial")])
def test_former_names_of_options_are_taken_with_a_note(rows: Path, form: tuple[str, ...]) -> None:
    done = works("summarize", "rows.npy", "-o", "rows.sks", *form)
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
        (("summarize", "a.npy", "--size", 0, "-o", "b"), ("sketchselect summarize: ", "--size", "summarize --help")),
        (("merge", "a.sks"), ("sketchselect merge: ", "-o", "merge --help")),
        (("select", "a.sks"), ("sketchselect select: ", "select --help")),
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
    done = CliRunner().invoke(app, ["run", "-", "-q"], input=job("out"))
    assert done.exit_code == 0, done.stderr
    assert json.loads((rows / "out" / "selection.json").read_text())["support"] == [4, 5]


@pytest.mark.slow
def test_a_job_comes_through_a_pipe(rows: Path) -> None:
    command = [sys.executable, "-m", "sketchselect", "run", "-", "-q"]
    done = subprocess.run(command, input=job("out"), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((rows / "out" / "selection.json").read_text())["support"] == [4, 5]


def test_mistakes_in_a_job_from_standard_input_name_it(rows: Path) -> None:
    text = job("out").replace("n_features", "n_featurs")
    refused(CliRunner().invoke(app, ["run", "-"], input=text), 2, "standard input: select.n_featurs", "(line 5)")


# The option `--storage-option` of every command that opens a source.


class Locked(MemoryFileSystem):
    """Files in memory, behind a password."""

    protocol = "s3"
    store = {}  # noqa: RUF012 - of all instances, as in the base class
    cachable = False

    def __init__(self, *args, password=None, **options):
        super().__init__(*args, **options)
        self.password = (password or {}).get("word")

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.removeprefix("s3:/"))

    def _open(self, *args, **options):
        self._check()
        return super()._open(*args, **options)

    def cat_file(self, *args, **options):
        self._check()
        return super().cat_file(*args, **options)

    def _check(self):
        if self.password != "open sesame":
            raise PermissionError("wrong password")


OPTION = ("--storage-option", "password.word=open sesame")


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """A store and its labels at s3://bucket, and a folder for results."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(_registry, "s3", Locked)
    Locked.store.clear()
    rng = np.random.default_rng(0)
    options = {"password": {"word": "open sesame"}}
    rows = np.vstack([rng.normal(size=(40, 4)), 9 + rng.normal(size=(40, 4))])
    convert(rows, "s3://bucket/rows.zarr", storage_options=options)
    for name, entries in (("labels", np.repeat([0, 1], 40)), ("ones", np.ones(80))):
        np.save(f"{name}.npy", entries)
        zarr.create_array(FsspecStore.from_url(f"s3://bucket/{name}.zarr", storage_options=options), data=entries)
    return tmp_path


def opens(*arguments):
    return works(*arguments, *OPTION).stdout


def test_every_command_that_opens_a_source_takes_storage_options(bucket):
    refused(cli("inspect", "s3://bucket/rows.zarr"), 1, "cannot be read")
    assert "80 rows x 4 columns" in opens("inspect", "s3://bucket/rows.zarr")
    opens("init", "s3://bucket/rows.zarr")
    opens("convert", "s3://bucket/rows.zarr", "s3://bucket/again.zarr")
    opens("convert", "s3://bucket/again.zarr", "rows.zarr")
    opens("convert", "rows.zarr", "s3://bucket/third.zarr")
    opens("summarize", "s3://bucket/rows.zarr", "-o", "rows.sks", "--scheduler", "threads")
    for labels in ("labels.npy", "s3://bucket/labels.zarr"):
        words = ("--labels", labels, "--weight", labels.replace("labels", "ones"), "--n-clusters", "2")
        opens("certify", "s3://bucket/rows.zarr", *words, "--scheduler", "threads")
    settings = [
        *("--set", "execution.cluster=threads", "--set", "select.n_features=2", "--set", "cluster.n_clusters=2"),
        *("--set", "output.dir=out"),
    ]
    opens("plan", "job.toml", *settings, "--no-calibrate")
    opens("run", "job.toml", *settings)
    opens("verify", "out", "--scheduler", "threads")
    opens("certify", "out", "--method", "blocks", "--scheduler", "threads")
    opens("evaluate", "out", "--labels", "labels.npy")
    opens("assign", "out", "s3://bucket/rows.zarr", "-o", "new.csv")
    opens("cluster", "s3://bucket/rows.zarr", "--selection", "out/selection.json", "--n-clusters", "2", "-o", "two",
          "--scheduler", "threads")  # fmt: skip
    assert "open sesame" not in "".join(path.read_text() for path in (bucket / "out").glob("*.json"))
    assert json.loads((bucket / "out/manifest.json").read_text())
    refused(cli("verify", "out", "--scheduler", "threads"), 2, "storage options were not saved: give password again")


def test_options_are_read_as_in_a_job():
    assert storage_options(None) is None
    assert storage_options(["anon=true", "client_kwargs.endpoint_url=http://host:1", "key=a=b"]) == {
        "anon": True,
        "client_kwargs": {"endpoint_url": "http://host:1"},
        "key": "a=b",
    }
    with pytest.raises(ConfigError, match="expected KEY=VALUE") as caught:
        storage_options(["secret"])
    assert len(str(caught.value).splitlines()) == 1


def test_options_without_a_url_are_refused(tmp_path):
    np.save(tmp_path / "rows.npy", np.ones((4, 2)))
    refused(cli("inspect", tmp_path / "rows.npy", *OPTION), 2, "apply to remote URLs")


@pytest.mark.parametrize("words", [("summarize",), ("summarize", "rows.npy", "--nonsense"), ("nonsense",)])
def test_a_mistake_in_the_command_line_is_json_too(words: tuple[str, ...]) -> None:
    done = cli(*words, "--json")
    assert done.exit_code == 2
    stated = json.loads(done.stdout)
    assert stated["exit_code"] == 2
    assert done.stderr.strip() == f"error: {stated['error']}"


@pytest.mark.slow
def test_what_libraries_log_is_json_too(rows: Path) -> None:
    done = works("summarize", "rows.npy", "-o", "a.sks", "--verbose", "--log-format", "json", "--n-workers", 1)
    records = [json.loads(line) for line in done.stderr.splitlines()]
    assert any("logger" in record for record in records)
    assert any("pass" in record for record in records)


@pytest.mark.parametrize("path", ["none/run.prom", "."])
def test_a_file_of_metrics_that_cannot_be_written_is_refused_first(rows: Path, path: str) -> None:
    (rows / "job.toml").write_text(job("out"))
    done = cli("run", "job.toml", "--set", f"output.metrics={path}")
    assert done.exit_code == 2
    assert "output.metrics" in done.stderr
    assert not (rows / "out").exists()
