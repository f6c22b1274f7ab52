"""The option `--storage-option` of every command that opens a source."""

import json

import numpy as np
import pytest
import zarr
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry
from zarr.storage import FsspecStore

from sketchselect.errors import ConfigError
from sketchselect.job.load import storage_options
from sketchselect.readers import convert

from .commands import cli, refused


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


def works(*arguments):
    done = cli(*arguments, *OPTION)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_every_command_that_opens_a_source_takes_storage_options(bucket):
    refused(cli("inspect", "s3://bucket/rows.zarr"), 1, "cannot be read")
    assert "80 rows x 4 columns" in works("inspect", "s3://bucket/rows.zarr")
    works("init", "s3://bucket/rows.zarr")
    works("convert", "s3://bucket/rows.zarr", "s3://bucket/again.zarr")
    works("convert", "s3://bucket/again.zarr", "rows.zarr")
    works("convert", "rows.zarr", "s3://bucket/third.zarr")
    works("summarize", "s3://bucket/rows.zarr", "-o", "rows.sks", "--scheduler", "threads")
    for labels in ("labels.npy", "s3://bucket/labels.zarr"):
        words = ("--labels", labels, "--weight", labels.replace("labels", "ones"), "--n-clusters", "2")
        works("certify", "s3://bucket/rows.zarr", *words, "--scheduler", "threads")
    settings = [
        *("--set", "execution.cluster=threads", "--set", "select.n_features=2", "--set", "cluster.n_clusters=2"),
        *("--set", "output.dir=out"),
    ]
    works("plan", "job.toml", *settings, "--no-calibrate")
    works("run", "job.toml", *settings)
    works("verify", "out", "--scheduler", "threads")
    works("certify", "out", "--method", "blocks", "--scheduler", "threads")
    works("evaluate", "out", "--labels", "labels.npy")
    works("assign", "out", "s3://bucket/rows.zarr", "-o", "new.csv")
    works("cluster", "s3://bucket/rows.zarr", "--selection", "out/selection.json", "--n-clusters", "2", "-o", "two",
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
