"""Stores in S3, read by obstore and by s3fs: the same rows, errors and refusals, and a pass that can be interrupted."""

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import zarr
from tests.readers.test_url_outputs import require_others_untouched

from sketchselect.errors import ChunkReadError, MissingChunks, SourceError, SourceMissing
from sketchselect.location import locate
from sketchselect.readers import open_matrix

moto = pytest.importorskip("moto.server")
s3fs = pytest.importorskip("s3fs")
pytest.importorskip("obstore")

from sketchselect.readers.zarr import store as stores  # noqa: E402

ROWS = np.random.default_rng(0).standard_normal((60, 6))
KEYS = {"key": "any", "secret": "hushhush"}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture(params=["obstore", "s3fs"])
def library(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "s3fs":
        with mock.patch.object(stores, "s3_store", return_value=None):
            yield request.param
    else:
        with mock.patch.object(stores, "make_store", side_effect=AssertionError("s3fs need not read")):
            yield request.param


@pytest.fixture
def bucket(endpoint: str, tmp_path: Path) -> tuple[Any, str, dict[str, str]]:
    """The file system, a bucket that is new, and its name."""
    files = s3fs.S3FileSystem(**KEYS, endpoint_url=endpoint)
    name = tmp_path.name.replace("_", "-").lower()[-40:].strip("-")
    files.mkdir(name)
    return files, name, {**KEYS, "endpoint_url": endpoint}


def put(files: Any, folder: Path, place: str, **options: Any) -> None:
    zarr.create_array(folder / "rows", data=ROWS, **({"chunks": (20, 6), "compressors": None} | options))
    files.put(str(folder / "rows"), place, recursive=True)


@pytest.mark.parametrize("layout", [{}, {"chunks": (10, 3), "shards": (20, 6)}, {"zarr_format": 2}])
def test_rows_are_those_that_were_written(bucket: Any, library: str, layout: Any, tmp_path: Path) -> None:
    files, name, options = bucket
    put(files, tmp_path, f"{name}/a/rows", **layout)
    matrix = open_matrix(f"s3://{name}/a/rows", storage_options=options)
    assert np.array_equal(matrix.read_rows(0, 60), ROWS)
    assert np.array_equal(matrix.read_rows(5, 33), ROWS[5:33])  # parts of chunks, which are remembered
    store = matrix.source.open().store
    assert isinstance(store, stores.S3Store) == (library == "obstore")
    assert matrix.read_rows(25, 33).tolist() == ROWS[25:33].tolist()
    files.pipe_file(f"{name}/a/rows/c/1/0" if "zarr_format" not in layout else f"{name}/a/rows/1.0", b"short")
    with pytest.raises(ChunkReadError, match=r"chunk .*1.0"):
        matrix.read_rows(25, 33)


def test_no_size_is_asked_for(bucket: Any, library: str, tmp_path: Path) -> None:
    files, name, options = bucket
    put(files, tmp_path, f"{name}/sizes/rows")
    with mock.patch.object(s3fs.S3FileSystem, "_size", side_effect=AssertionError("one request a file will do")):
        matrix = open_matrix(f"s3://{name}/sizes/rows", storage_options=options)
        assert np.array_equal(matrix.read_rows(0, 60), ROWS)


def test_a_chunk_that_went_away_is_an_error(bucket: Any, library: str, tmp_path: Path) -> None:
    files, name, options = bucket
    put(files, tmp_path, f"{name}/rows")
    matrix = open_matrix(f"s3://{name}/rows", storage_options=options)
    files.rm_file(f"{name}/rows/c/1/0")
    with pytest.raises(MissingChunks, match="c/1/0"):
        matrix.read_rows(0, 60)


def test_what_obstore_cannot_open_s3fs_does(bucket: Any, tmp_path: Path) -> None:
    files, name, options = bucket
    put(files, tmp_path, f"{name}/rows")

    def elsewhere(location: Any) -> Any:
        return original(locate(f"{location.url}/elsewhere", location.options))

    original = stores.s3_store
    with mock.patch.object(stores, "s3_store", elsewhere):
        matrix = open_matrix(f"s3://{name}/rows", storage_options=options)
        assert np.array_equal(matrix.read_rows(0, 60), ROWS)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"region": "us-east-1"}),
        ({"region": "eu-west-3"}, {"region": "eu-west-3"}),
        ({"client_kwargs": {"region_name": "eu-west-3"}}, {"region": "eu-west-3"}),
        ({"anon": True}, {"skip_signature": True}),
        ({"requester_pays": True}, None),
        ({"client_kwargs": {"verify": False}}, None),
    ],
)
def test_both_libraries_have_the_same_options(options: Any, expected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT", "http://wrong:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "wrong")
    location = locate("s3://box/a/rows", {**KEYS, "endpoint_url": "http://127.0.0.1:9"} | options)
    store = stores.s3_store(location)
    if expected is None:
        assert store is None
        return
    assert store is not None
    config, s3 = store.store.config, location.filesystem()[0].s3
    assert config["endpoint"] == s3.meta.endpoint_url == "http://127.0.0.1:9"
    assert config["region"] == expected.get("region", "us-east-1")
    assert {"region": s3.meta.region_name or "us-east-1"}.items() <= config.items()
    assert store.store.prefix == "a/rows"
    assert store.store.credential_provider()["access_key_id"] == "any"
    assert config["skip_signature"] in ((True, "true") if options.get("anon") else (False, "false"))


def test_credentials_come_from_where_s3fs_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ACCESS_KEY_ID", "mine"), ("SECRET_ACCESS_KEY", "word"), ("SESSION_TOKEN", "pass")):
        monkeypatch.setenv(f"AWS_{name}", value)
    store = stores.s3_store(locate("s3://box/rows", {"endpoint_url": "http://127.0.0.1:9/"}))
    assert store is not None
    given = store.store.credential_provider()
    assert (given["access_key_id"], given["secret_access_key"], given["token"]) == ("mine", "word", "pass")
    assert given["expires_at"] is not None
    assert "word" not in repr(store)


@pytest.mark.slow
def test_a_server_that_is_gone_is_one_line_without_secrets(bucket: Any, library: str, tmp_path: Path) -> None:
    files, name, options = bucket
    put(files, tmp_path, f"{name}/rows")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)  # has the buckets of the other one
    server.start()
    host, port = server.get_host_and_port()
    matrix = open_matrix(f"s3://{name}/rows", storage_options=options | {"endpoint_url": f"http://{host}:{port}"})
    assert np.array_equal(matrix.read_rows(0, 60), ROWS)
    server.stop()
    with (
        mock.patch("sketchselect.readers.zarr.array.PAUSES", ()),
        pytest.raises(ChunkReadError, match=r"c/0/0.*check the (network|address)") as caught,
    ):
        matrix.read_rows(0, 60)
    assert "\n" not in str(caught.value)
    assert "hush" not in str(caught.value)


def test_access_denied_says_so(bucket: Any, tmp_path: Path) -> None:
    files, name, options = bucket
    put(files, tmp_path, f"{name}/rows")
    matrix = open_matrix(f"s3://{name}/rows", storage_options=options)
    matrix.source.open()
    with (
        mock.patch.object(stores.ObjectStore, "get", side_effect=_denied()),
        pytest.raises(SourceError, match=r"access denied.*permissions") as caught,
    ):
        matrix.read_rows(0, 60)
    assert "hush" not in str(caught.value)


def test_access_that_s3fs_denies_is_no_damage(bucket: Any, tmp_path: Path) -> None:
    files, name, options = bucket
    put(files, tmp_path, f"{name}/rows")
    matrix = open_matrix(f"s3://{name}/rows", storage_options={**options, "max_concurrency": 1})
    with (
        mock.patch.object(s3fs.S3FileSystem, "_cat_file", side_effect=PermissionError("AWSAccessKeyId hushhush")),
        pytest.raises(SourceError, match=r"c/0/0.*access denied.*permissions") as caught,
    ):
        matrix.read_rows(0, 60)
    assert "hush" not in str(caught.value)


@pytest.mark.slow
def test_names_with_the_signs_of_a_pattern_leave_all_others_as_they_are(
    bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, name, options = bucket
    for variable, option in (
        ("ACCESS_KEY_ID", "key"),
        ("SECRET_ACCESS_KEY", "secret"),
        ("ENDPOINT_URL", "endpoint_url"),
    ):
        monkeypatch.setenv(f"AWS_{variable}", options[option])
    require_others_untouched(f"s3://{name}/d", files, f"{name}/d", n=12)


@pytest.mark.slow
@pytest.mark.parametrize("status", [500, 503])
def test_a_store_that_asks_to_slow_down_is_not_asked_for_minutes(bucket: Any, status: int, tmp_path: Path) -> None:
    files, name, options = bucket
    put(files, tmp_path, f"{name}/rows")
    make_server = pytest.importorskip("werkzeug.serving").make_server
    code, asked = {500: "InternalError", 503: "SlowDown"}[status], 0

    def answer(environ: Any, start: Any) -> list[bytes]:
        nonlocal asked
        if environ["REQUEST_METHOD"] == "HEAD":
            start("200 OK", [("Content-Length", "480"), ("ETag", '"0"')])
            return []
        asked += 1
        body = f"<Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
        start(f"{status} no", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]

    store = stores.make_store(locate(f"s3://{name}/rows", {**options, "max_concurrency": 1}))
    assert store.fs.retries == stores.S3FS_TRIES
    server = make_server("127.0.0.1", 0, answer, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    store = stores.make_store(locate(f"s3://{name}/rows", {**KEYS, "endpoint_url": url}))
    with pytest.raises(OSError, match=r"injected|Internal|Unavailable"):
        zarr.core.sync.sync(store.get("c/0/0", zarr.core.buffer.default_buffer_prototype()))
    server.shutdown()
    assert asked == (6 if status == 503 else 3)


def _refusing(status: str, code: str, asked: list[str]) -> Any:
    """Return a running server of S3 that refuses every request."""
    make_server = pytest.importorskip("werkzeug.serving").make_server

    def answer(environ: Any, start: Any) -> list[bytes]:
        asked.append(environ["PATH_INFO"])
        body = b"" if environ["REQUEST_METHOD"] == "HEAD" else f"<Error><Code>{code}</Code></Error>".encode()
        start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]

    server = make_server("127.0.0.1", 0, answer, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.mark.parametrize(
    ("status", "code", "message", "exit_code"),
    [
        ("301 Moved", "PermanentRedirect", "the server sends every request elsewhere.*region", 1),
        ("503 Slow Down", "SlowDown", "SlowDown", 75),
    ],
)
def test_a_server_that_refuses_is_named_with_its_cure(status: str, code: str, message: str, exit_code: int) -> None:
    asked: list[str] = []
    server = _refusing(status, code, asked)
    url = f"http://127.0.0.1:{server.server_port}"
    with pytest.raises(SourceError, match=message) as caught:
        open_matrix("s3://box/rows", storage_options={**KEYS, "endpoint_url": url})
    server.shutdown()
    assert caught.value.exit_code == exit_code


@pytest.mark.parametrize("name", ["rows", "rows.parquet"])
def test_a_bucket_that_does_not_exist_is_said_to_be_missing(bucket: Any, name: str) -> None:
    _, there, options = bucket
    with pytest.raises(SourceMissing, match="there is no bucket 'no-such-bucket-9'"):
        open_matrix(f"s3://no-such-bucket-9/{name}", storage_options=options)
    with pytest.raises(SourceError, match=r"not a Zarr array|no such file"):
        open_matrix(f"s3://{there}/{name}", storage_options=options)


def test_a_server_that_is_silent_is_said_to_be_so_and_the_run_may_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sketchselect.location.NOTED_SECONDS", 0.5)
    monkeypatch.setattr("sketchselect.location.S3_SILENT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = {**KEYS, "endpoint_url": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        with (
            pytest.warns(UserWarning, match="box/rows: opening has taken .*the server answers slowly"),
            pytest.raises(SourceError, match="Read timeout") as caught,
        ):
            open_matrix("s3://box/rows", storage_options=options)
    assert caught.value.exit_code == 75


@pytest.mark.parametrize(
    ("variable", "content", "is_ours"),
    [
        (None, "", True),
        ("AWS_RETRY_MODE", "adaptive", False),
        ("AWS_MAX_ATTEMPTS", "7", False),
        ("AWS_CONFIG_FILE", "[default]\nmax_attempts = 7\n", False),
        ("AWS_CONFIG_FILE", "[default]\nregion = eu-west-3\n[profile other]\nretry_mode = adaptive\n", True),
        ("AWS_CONFIG_FILE", "no file of AWS", True),
    ],
)
def test_retries_that_the_user_states_stand(
    variable: str | None, content: str, is_ours: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_RETRY_MODE", "AWS_MAX_ATTEMPTS", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    if variable == "AWS_CONFIG_FILE":
        (tmp_path / "config").write_text(content)
    elif variable is not None:
        monkeypatch.setenv(variable, content)
    given = locate("s3://box/rows", KEYS).file_options.get("config_kwargs", {})
    assert ("retries" in given) == is_ours


def _denied() -> Exception:
    from obstore.exceptions import PermissionDeniedError

    return PermissionDeniedError("403 AWSAccessKeyId hushhush")


PASS = """
import sys, time
import sketchselect as sks
from sketchselect.execution import Checkpoint
from sketchselect._progress import Progress

class Slowly(Progress):
    def advance(self, nbytes):
        print("partition", flush=True)
        time.sleep(0.5 if sys.argv[3] == "slow" else 0)

saved = Checkpoint(sys.argv[2], min_bytes=0, state_ratio=0, min_seconds=0)
options = {"key": "any", "secret": "hushhush", "endpoint_url": sys.argv[4]}
rows = sks.open_matrix(sys.argv[1], storage_options=options)
if __name__ == "__main__":
    summary = sks.summarize(rows, sks.Moments(), client="threads", partition_bytes=20 * 6 * 8, checkpoint=saved,
                            progress=Slowly())
    print("sum", summary.mean.tolist())
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_pass_that_is_ended_goes_on_where_it_was(bucket: Any, how: int, tmp_path: Path) -> None:
    files, name, options = bucket
    put(files, tmp_path, f"{name}/rows", chunks=(1, 6))
    (tmp_path / "run.py").write_text(PASS)

    def started(pace: str, saved: str) -> subprocess.Popen[str]:
        words = [
            sys.executable,
            tmp_path / "run.py",
            f"s3://{name}/rows",
            tmp_path / saved,
            pace,
            options["endpoint_url"],
        ]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    whole = started("fast", "other").communicate(timeout=600)[0].splitlines()[-1]
    with started("slow", "saved") as ended:
        assert ended.stdout is not None
        assert ended.stdout.readline() == "partition\n"
        ended.send_signal(how)
        ended.communicate(timeout=600)
        assert ended.returncode != 0
    assert started("fast", "saved").communicate(timeout=600)[0].splitlines()[-1] == whole
