"""Sources that change: of every kind of store, appended to, shortened, swapped while read, and between kill and resume.

A result is that of the rows as they were, or as they are; a mixture is an error.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import zarr
from tests.deploy.conftest import wait_until
from tests.deploy.links import served
from tests.passing import Meanwhile, Recorder

import sketchselect as sks
from sketchselect.errors import Interrupted, SketchSelectError, SourceChanged
from sketchselect.execution import Checkpoint, summarize
from sketchselect.readers import convert, open_matrix
from sketchselect.summaries import Moments, Summary

HEIGHT, N_COLUMNS = 20, 7
PARTITION = HEIGHT * N_COLUMNS * 8
OLD, NEW = (np.random.default_rng(seed).normal(size=(6 * HEIGHT, N_COLUMNS)) for seed in (0, 1))


def write(path: Path, rows: np.ndarray) -> None:
    """Write a store anew; in chunks without compression, which all have one length."""
    zarr.create_array(path, data=rows, chunks=(HEIGHT, N_COLUMNS), compressors=None, overwrite=True)


@dataclass
class Place:
    """A store somewhere, and how it is written."""

    url: str
    folder: Path  # What is written there
    send: Callable[[Path], None] = lambda folder: None  # Makes the place hold the folder's files, and no others
    options: dict[str, Any] = field(default_factory=dict)
    has_versions: bool = True

    def put(self, rows: np.ndarray) -> None:
        """Make the store hold these rows, whatever was there."""
        write(self.folder, rows)
        self.send(self.folder)

    def append(self, rows: np.ndarray) -> None:
        """Add rows behind those that are there."""
        array: Any = zarr.open_array(self.folder, mode="r+")
        array.append(rows)
        self.send(self.folder)

    def shorten(self, n_rows: int) -> None:
        """Take the last rows away."""
        array: Any = zarr.open_array(self.folder, mode="r+")
        array.resize((n_rows, N_COLUMNS))
        self.send(self.folder)

    def open(self) -> Any:
        """Return the matrix."""
        return open_matrix(self.url, storage_options=self.options or None)


@contextlib.contextmanager
def web(folder: Path, *headers: str) -> Iterator[Place]:
    """Serve a folder, with these headers for the versions of files."""
    pytest.importorskip("aiohttp")

    def send(folder: Path) -> None:
        # The time in Last-Modified has whole seconds; here every write is in a second of its own.
        seconds[0] += 1
        for file in folder.rglob("*"):
            if file.is_file() and file.stat().st_mtime > 1e9:
                os.utime(file, (seconds[0], seconds[0]))

    seconds = [10**8]
    with served(folder, *headers) as port:
        url = f"http://127.0.0.1:{port}/rows.zarr"
        yield Place(url, folder / "rows.zarr", send, {"allow_http": True}, has_versions=bool(headers))


@contextlib.contextmanager
def bucket(folder: Path, protocol: str, url: str, options: dict[str, Any]) -> Iterator[Place]:
    """Use a bucket of an object store, which fsspec writes to."""
    import fsspec

    sent: dict[str, bytes] = {}

    def send(folder: Path) -> None:
        files = fsspec.filesystem(protocol, **options)
        now = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for name in sent.keys() - now.keys():
            files.rm_file(f"{url}/{name}")
        for name, content in now.items():
            if sent.get(name) != content:
                files.pipe_file(f"{url}/{name}", content)
        sent.clear()
        sent.update(now)

    yield Place(url, folder / "rows.zarr", send, options)


@contextlib.contextmanager
def s3(folder: Path, *, versions: bool, obstore: bool = True) -> Iterator[Place]:
    """Use a bucket of a server of S3 in this process, which keeps old versions or does not; read by obstore or not."""
    moto = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    import boto3

    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        endpoint = "http://{}:{}".format(*server.get_host_and_port())
        keys = {"key": "any", "secret": "word"}
        names = {"aws_access_key_id": "any", "aws_secret_access_key": "word", "region_name": "us-east-1"}
        client = boto3.client("s3", endpoint_url=endpoint, **names)
        client.create_bucket(Bucket="rows")
        if versions:
            client.put_bucket_versioning(Bucket="rows", VersioningConfiguration={"Status": "Enabled"})
        # With an option that obstore has not, s3fs reads.
        options = keys | {"endpoint_url": endpoint} | ({} if obstore else {"max_concurrency": 1})
        with bucket(folder, "s3", "s3://rows/a/rows.zarr", options) as place:
            yield place
    finally:
        server.stop()


@contextlib.contextmanager
def gs(folder: Path) -> Iterator[Place]:
    """Use a bucket of an emulator of Google's store."""
    emulator = pytest.importorskip("gcp_storage_emulator.server")
    # Otherwise gcsfs, which reads this as it is imported, asks by gRPC what kind of bucket it is: nobody answers.
    with mock.patch.dict(os.environ, {"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}):
        pytest.importorskip("gcsfs")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = emulator.create_server("127.0.0.1", port, in_memory=True, default_bucket="rows")
    server.start()
    try:
        options = {"endpoint_url": f"http://127.0.0.1:{port}", "token": "anon", "project": "any"}
        with bucket(folder, "gs", "gs://rows/a/rows.zarr", options) as place:
            yield place
    finally:
        server.stop()


def listens(port: int) -> bool:
    """Return whether a server listens on a port of this machine."""
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def azure(folder: Path) -> Iterator[Place]:
    """Use a container of Azurite, whose account and key are those of its documentation."""
    import subprocess

    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("azurite-blob is not installed")
    pytest.importorskip("adlfs")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [program, "--silent", "--skipApiVersionCheck", "--blobPort", str(port), "--location", str(folder / "azure")]
    process = subprocess.Popen(words)
    try:
        key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
        account = f"AccountName=devstoreaccount1;AccountKey={key};DefaultEndpointsProtocol=http"
        text = f"{account};BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1;"
        # A client that finds nobody waits for some 15 seconds.
        wait_until(lambda: listens(port), "an answer of Azurite")
        options = {"connection_string": text}
        with bucket(folder, "az", "az://rows/a/rows.zarr", options) as place:
            import fsspec

            fsspec.filesystem("az", **options).mkdir("rows")
            yield place
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def local(folder: Path) -> Iterator[Place]:
    """Use a folder."""
    yield Place(str(folder / "rows.zarr"), folder / "rows.zarr")


class ZipPlace(Place):
    """A store in a Zip file, which is opened by the zarr library."""

    def open(self) -> Any:
        store = zarr.storage.ZipStore(self.url, mode="r")
        return open_matrix(zarr.open_array(store, mode="r"))


@contextlib.contextmanager
def zipped(folder: Path) -> Iterator[Place]:
    """Use a Zip file, written over the old one."""

    def send(stored: Path) -> None:
        archive = shutil.make_archive(str(folder / "new"), "zip", stored)
        (folder / "rows.zip").write_bytes(Path(archive).read_bytes())

    yield ZipPlace(str(folder / "rows.zip"), folder / "rows.zarr", send)


STORES: dict[str, Callable[[Path], contextlib.AbstractContextManager[Place]]] = {
    "local": local,
    "zip": zipped,
    "http, ETag": lambda folder: web(folder, "ETag"),
    "http, Last-Modified": lambda folder: web(folder, "Last-Modified"),
    "http, neither": web,
    "s3": functools.partial(s3, versions=False),
    "s3, versions": functools.partial(s3, versions=True),
    "s3, s3fs": functools.partial(s3, versions=False, obstore=False),
    "gs": gs,
    "az": azure,
}


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with STORES[request.param](tmp_path) as place:
        place.put(OLD)
        yield place


def moments(rows: Any, **options: Any) -> Summary[Any]:
    """Return a summary, computed partition by partition in this thread."""
    return summarize(rows, Moments(), client="serial", partition_bytes=PARTITION, **options)


def test_rows_are_appended_while_it_is_read(place: Place) -> None:
    matrix = place.open()
    try:
        summary = moments(matrix, progress=Meanwhile(lambda: place.append(NEW)))
    except SketchSelectError:
        # In a file, rows that are there may move; whole chunks do not.
        assert isinstance(place, ZipPlace)
        return
    assert summary == moments(OLD)
    assert moments(place.open()) == moments(np.vstack([OLD, NEW]))


@pytest.mark.share(2)
def test_it_is_shortened_while_it_is_read(place: Place) -> None:
    matrix = place.open()
    with pytest.raises(SketchSelectError):
        moments(matrix, progress=Meanwhile(lambda: place.shorten(3 * HEIGHT)))
    assert moments(place.open()) == moments(OLD[: 3 * HEIGHT])


def test_it_is_swapped_while_it_is_read(place: Place) -> None:
    matrix = place.open()
    with pytest.raises(SketchSelectError):
        moments(matrix, progress=Meanwhile(lambda: place.put(NEW)))
    assert moments(place.open()) == moments(NEW)


@pytest.mark.share(2)
@pytest.mark.parametrize("change", ["swapped", "appended", "shortened"])
def test_it_changes_between_kill_and_resume(place: Place, change: str, tmp_path: Path) -> None:
    def kill() -> None:
        raise KeyboardInterrupt

    options = {"checkpoint": Checkpoint(tmp_path / "saved", min_bytes=0, state_ratio=0, min_seconds=0)}
    with pytest.raises(Interrupted):
        moments(place.open(), progress=Meanwhile(kill), **options)
    now = {"swapped": NEW, "appended": np.vstack([OLD, NEW]), "shortened": OLD[: 3 * HEIGHT]}[change]
    if change == "swapped":
        place.put(NEW)
    elif change == "appended":
        place.append(NEW)
    else:
        place.shorten(3 * HEIGHT)
    assert moments(place.open(), **options) == moments(now)


@pytest.mark.share(2)
def test_it_is_swapped_while_it_is_converted(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sketchselect.readers.writing.BLOCK_BYTES", PARTITION)
    matrix, swap = place.open(), Meanwhile(lambda: place.put(NEW))
    with pytest.raises(SketchSelectError):
        convert(matrix, tmp_path / "out.zarr", chunks=(HEIGHT, N_COLUMNS), progress=lambda done, total: swap.advance(0))
    assert not (tmp_path / "out.zarr").exists()


@pytest.mark.parametrize("content", [NEW, np.vstack([OLD, NEW]), OLD[: 3 * HEIGHT]], ids=["new", "longer", "shorter"])
def test_a_text_file_is_written_anew_while_it_is_converted(
    content: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sketchselect.readers.writing.BLOCK_BYTES", PARTITION)
    path = tmp_path / "rows.csv"
    np.savetxt(path, OLD, delimiter=",")

    def rewrite() -> None:
        np.savetxt(path, content, delimiter=",")
        os.utime(path, (1, 1))

    swap = Meanwhile(rewrite)
    with pytest.raises(SourceChanged, match=r"rows\.csv"):
        convert(path, tmp_path / "out.zarr", chunks=(HEIGHT, N_COLUMNS), progress=lambda done, total: swap.advance(0))
    assert not (tmp_path / "out.zarr").exists()


@pytest.mark.parametrize("estimator", [sks.GreedySelector(2), sks.OnlineLeverageSelector(), sks.KMeans(2)], ids=repr)
def test_it_is_swapped_while_it_is_a_batch_of_a_stream(
    estimator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(rows: np.ndarray) -> None:
        zarr.create_array(tmp_path / "rows.zarr", data=rows, chunks=(HEIGHT, 1), overwrite=True)

    put(OLD)
    matrix = open_matrix(tmp_path / "rows.zarr")
    swap = Meanwhile(lambda: put(NEW))

    def watched(method: Callable[[Any, int, int], Any]) -> Callable[[Any, int, int], Any]:
        def read(self: Any, start: int, stop: int) -> Any:
            swap.advance(0)
            return method(self, start, stop)

        return read

    for name in ("read_rows", "read_columns"):
        monkeypatch.setattr(type(matrix), name, watched(getattr(type(matrix), name)))
    for module in ("selectors.base", "selectors.online", "execution.engine"):
        monkeypatch.setattr(f"sketchselect.{module}.DEFAULT_PARTITION_BYTES", PARTITION)
    monkeypatch.setattr("sketchselect.readers.base.DEFAULT_PARTITION_BYTES", PARTITION)
    with pytest.raises(SourceChanged, match="rewritten while"):
        estimator.partial_fit(matrix)


def test_it_is_shortened_after_it_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "rows.zarr"
    array = zarr.create_array(path, data=OLD, chunks=(2 * HEIGHT, N_COLUMNS))
    matrix = open_matrix(path)
    matrix.read_rows(0, 1)
    (path / "c" / "2").rename(tmp_path / "last")
    array.resize((3 * HEIGHT, N_COLUMNS))
    array[2 * HEIGHT :] = OLD[2 * HEIGHT : 3 * HEIGHT]  # rows beyond these are the fill value in the chunk
    (tmp_path / "last").rename(path / "c" / "2")
    with pytest.raises(SourceChanged, match=r"rows\.zarr"):
        moments(matrix)


@pytest.mark.share(2)
def test_a_job_says_whether_its_source_was_watched(place: Place, tmp_path: Path) -> None:
    if isinstance(place, ZipPlace):
        pytest.skip("jobs open no Zip files")
    job = {
        "input": {"url": place.url, "storage_options": place.options},
        "select": {"method": "greedy", "n_features": 3},
        "cluster": {"n_clusters": 2, "max_iter": 3},
        "execution": {"cluster": "serial"},
        "output": {"dir": str(tmp_path / "out"), "report": False},
    }
    result = sks.run(job)
    assert result.manifest["source"].get("watched", True) == place.has_versions
    assert any("not watched" in note for note in result.manifest["notes"]) != place.has_versions
    # Rewritten as the pass begins that computes the objective.
    place.put(OLD)
    rewriting = Recorder("inertia", lambda: place.put(NEW))
    with pytest.raises(SourceChanged, match="rewritten while"):
        sks.run(job, fresh=True, progress=rewriting)
    assert "inertia" in rewriting.stages
    assert not (tmp_path / "out" / "manifest.json").exists()
