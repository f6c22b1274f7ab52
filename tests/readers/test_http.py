"""Zarr stores of a web server, which lists no files."""

import functools
import http.server
import io
import os
import re
import socket
import ssl
import threading
import time
import traceback
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import zarr
from tests.deploy.links import Link

from sketchselect.errors import ChunkReadError, MissingChunks, SourceError
from sketchselect.execution import LocalEngine, summarize
from sketchselect.location import LAST_PAUSE, PAUSES, Location, persistent, refused_chunk, warnings_of_waiting
from sketchselect.readers import convert, open_matrix
from sketchselect.selectors import VarianceSelector
from sketchselect.summaries import Moments
from sketchselect.workflow.inspection import inspect_target

pytest.importorskip("aiohttp")


PAGE = b"\n<!DOCTYPE html><html><body>Please log in" + b"." * 3000 + b"</body></html>"


@pytest.fixture
def serve(tmp_path, monkeypatch):
    """Start a server of a folder, whose chunks are asked for again without a pause; return it."""
    monkeypatch.setattr("sketchselect.readers.zarr.array.PAUSES", (0.0, 0.0))

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def list_directory(self, path):
            self.send_error(403)

        def send_head(self):
            """Answer as ever, but with an error a few times, or otherwise where there is no such file."""
            if self.server.busy:
                self.server.busy -= 1
                return self.send_error(self.server.status)
            if os.path.isfile(self.translate_path(self.path)) or self.server.missing == 404:
                return super().send_head()
            if self.server.missing != 200:
                return self.send_error(self.server.missing)
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(PAGE)))
            self.end_headers()
            return io.BytesIO(PAGE)

        def do_HEAD(self):
            if self.server.together is not None:
                self.server.together.wait(timeout=10)
            super().do_HEAD()

        def do_GET(self):
            for part, status in self.server.answers.items():
                if self.path.endswith(part):
                    self.send_error(status)
                    return
            if self.server.refused in self.path:
                if "?" in self.path:
                    self.send_error(403)
                else:
                    self.send_response(302)
                    self.send_header("Location", f"{self.path}?signature=secret")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                return
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            there = os.path.isfile(self.translate_path(self.path))
            if self.server.busy or not (self.server.ranges and asked and there):
                super().do_GET()
                return
            content = Path(self.translate_path(self.path)).read_bytes()
            first, last = int(asked[1]), min(int(asked[2]), len(content) - 1)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
            self.send_header("Content-Length", str(last + 1 - first))
            self.end_headers()
            self.wfile.write(content[first : last + 1])

        def send_header(self, keyword, value):
            if keyword != "Last-Modified" or self.server.dated:
                super().send_header(keyword, value)

        def end_headers(self):
            if self.server.ranges:
                self.send_header("Accept-Ranges", "bytes")
            if self.server.tagged:
                self.send_header("ETag", f"{self.path} {self.server.tagged}")
            super().end_headers()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=tmp_path)) as server:
        server.tagged, server.ranges, server.dated, server.together = "", False, False, None
        server.refused, server.answers = "\0", {}
        server.busy, server.status, server.missing = 0, 503, 404
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def opened(server, path, **options):
    address = f"http://127.0.0.1:{server.server_address[1]}/{path}"
    return open_matrix(address, storage_options={"allow_http": True}, **options)


def test_a_store_of_a_web_server(serve, tmp_path):
    values = np.random.default_rng(0).normal(size=(60, 7))
    zarr.create_array(tmp_path / "rows.zarr", data=values, chunks=(20, 7))
    matrix = opened(serve, "rows.zarr")
    assert np.array_equal(matrix.read_rows(10, 50), values[10:50])
    assert matrix.identity(0, 60) is None
    assert any("lists no files" in note for note in matrix.notes)
    serve.tagged = "first"
    before = matrix.identity(0, 60)
    assert before is not None
    assert matrix.identity(0, 60) == before
    serve.tagged = "second"
    assert matrix.identity(0, 60) != before
    (tmp_path / "rows.zarr/c/1/0").unlink()
    assert np.array_equal(matrix.read_rows(0, 20), values[:20])
    with pytest.raises(MissingChunks, match=r"rows\.zarr: chunk c/1/0"):
        matrix.read_rows(10, 50)


def test_a_chunk_that_is_rewritten_on_a_server_with_times_alone_is_seen(serve, tmp_path):
    """As of `python -m http.server`, which gives no ETag."""
    zarr.create_array(tmp_path / "rows.zarr", data=np.ones((60, 7)), chunks=(20, 7))
    serve.dated = True
    matrix = opened(serve, "rows.zarr")
    before = matrix.identity(0, 60)
    assert before is not None
    assert matrix.identity(0, 60) == before
    chunk = tmp_path / "rows.zarr/c/1/0"
    chunk.write_bytes(chunk.read_bytes())
    os.utime(chunk, (0, chunk.stat().st_mtime + 5))
    assert matrix.identity(0, 60) != before
    assert matrix.identity(0, 20) == opened(serve, "rows.zarr").identity(0, 20)


def test_chunks_are_asked_about_side_by_side_and_rows_are_read_ahead(serve, tmp_path):
    """Each question takes as long as the way to the server and back."""
    values = np.random.default_rng(0).normal(size=(60, 7))
    zarr.create_array(tmp_path / "rows.zarr", data=values, chunks=(10, 7))
    matrix = opened(serve, "rows.zarr")
    assert matrix.is_remote
    serve.tagged, serve.together = "first", threading.Barrier(3)  # an answer waits for two others
    together = matrix.identity(0, 60)
    serve.together = None
    assert together == matrix.identity(0, 60) is not None
    clients = ("serial", LocalEngine(2))
    summaries = [summarize(matrix, Moments(), client=client, partition_bytes=10 * 7 * 8) for client in clients]
    assert summaries[0] == summaries[1]
    assert summaries[0].n_rows == 60


def test_arrays_of_a_group_are_known_by_consolidated_metadata(serve, tmp_path):
    group = zarr.create_group(tmp_path / "g.zarr")
    group.create_array("counts", data=np.ones((6, 3)))
    with pytest.raises(SourceError, match="a Zarr group without arrays"):
        opened(serve, "g.zarr")
    with pytest.warns(UserWarning, match="[Cc]onsolidated metadata"):
        zarr.consolidate_metadata(tmp_path / "g.zarr")
    with pytest.raises(SourceError, match=r"choose one with key= \(or --key\): counts \(6 x 3 float64\)"):
        opened(serve, "g.zarr")
    assert opened(serve, "g.zarr", key="counts").shape == (6, 3)


def test_row_groups_of_a_parquet_file_are_read_by_ranges(serve, tmp_path):
    values = np.random.default_rng(0).normal(size=(4000, 4))
    pq.write_table(pa.table({f"x{j}": values[:, j] for j in range(4)}), tmp_path / "rows.parquet", row_group_size=500)
    with pytest.raises(SourceError, match=r"sends no parts of files .*; download the file") as caught:
        opened(serve, "rows.parquet")
    assert len(str(caught.value).splitlines()) == 1
    # The footer of a small one comes with its beginning.
    pq.write_table(
        pa.table({f"x{j}": values[:331, j % 4] for j in range(11)}), tmp_path / "a.parquet", row_group_size=37
    )
    with pytest.raises(SourceError, match=r"a\.parquet: the web server sends no parts of files .*; download the file"):
        opened(serve, "a.parquet").read_rows(0, 331)
    serve.ranges = True
    matrix = opened(serve, "rows.parquet")
    assert matrix.chunk_edges == tuple(range(0, 4001, 500))
    assert np.array_equal(matrix.read_rows(700, 1200), values[700:1200])
    with pytest.raises(SourceError, match="no such file"):
        opened(serve, "none.parquet")


@pytest.mark.parametrize("refused", ["a.zarr/zarr.json", "a.zarr/c/1", "a.parquet"])
def test_a_refusal_is_no_damage_and_the_signed_address_of_a_redirection_is_not_shown(serve, tmp_path, refused):
    zarr.create_array(tmp_path / "a.zarr", data=np.ones((6, 3)), chunks=(2, 3))
    pq.write_table(pa.table({"a": np.ones(6)}), tmp_path / "a.parquet")
    serve.refused, serve.ranges = refused, True
    with pytest.raises(SourceError, match="the server answers 403") as caught:
        opened(serve, refused.partition("/")[0]).read_rows(0, 6)
    assert refused in str(caught.value)
    assert "damaged" not in str(caught.value)
    assert "secret" not in "".join(traceback.format_exception(caught.value))


VALUES = np.random.default_rng(0).normal(size=(60, 7))


def stores(folder):
    """Write the same rows in every kind of store that a web server can have."""
    zarr.create_array(folder / "3.zarr", data=VALUES, chunks=(20, 7))
    zarr.create_array(folder / "2.zarr", data=VALUES, chunks=(20, 7), zarr_format=2)
    zarr.create_array(folder / "plain.zarr", data=VALUES, chunks=(20, 7), compressors=None)
    zarr.create_array(folder / "shards.zarr", data=VALUES, chunks=(10, 7), shards=(20, 7))
    convert(sp.csr_array(VALUES), folder / "sparse.zarr")
    convert(VALUES, folder / "converted.zarr", chunks=(20, 7))
    table = pa.table({f"x{j}": VALUES[:, j] for j in range(7)})
    pq.write_table(table, folder / "rows.parquet", row_group_size=20)


STORES = ("3.zarr", "2.zarr", "plain.zarr", "shards.zarr", "sparse.zarr", "converted.zarr", "rows.parquet")


def rows_of(matrix):
    rows = matrix.read_rows(0, 60)
    return rows.toarray() if matrix.is_sparse else rows


@pytest.mark.parametrize("missing", [200, 403])
@pytest.mark.parametrize("name", STORES)
def test_a_server_that_has_no_404_has_stores_all_the_same(serve, tmp_path, name, missing):
    """As one of a single page, or of a bucket whose files may not be listed."""
    stores(tmp_path)
    serve.missing, serve.ranges = missing, True
    assert np.array_equal(rows_of(opened(serve, name)), VALUES)


@pytest.mark.parametrize("file", [".zattrs", "zarr.json"])
@pytest.mark.parametrize("refused", [True, False])
def test_metadata_that_alone_is_refused_or_a_page_is_not_taken_for_missing(serve, tmp_path, file, refused):
    scaled = {"scale_factor": 2.0, "add_offset": 1.0}
    zarr.create_array(tmp_path / "rows.zarr", data=VALUES, chunks=(20, 7), zarr_format=2, attributes=scaled)
    (tmp_path / "rows.zarr" / file).write_bytes(PAGE)
    serve.refused, serve.ranges = file if refused else "\0", True
    with pytest.raises(SourceError, match=f"{file}.*" + ("403" if refused else "sends a page")):
        opened(serve, "rows.zarr")


@pytest.mark.parametrize("status", [401, 403, 503])
def test_metadata_are_not_taken_for_missing_where_the_server_does_not_say(serve, tmp_path, status, monkeypatch):
    monkeypatch.setattr("sketchselect.location.PAUSES", (0.0, 0.0))
    scaled = {"scale_factor": 2.0, "add_offset": 1.0}
    zarr.create_array(tmp_path / "rows.zarr", data=VALUES, chunks=(20, 7), zarr_format=2, attributes=scaled)
    serve.answers = {".zattrs": status if status != 503 else 403, "no-such-file": status if status != 403 else 404}
    with pytest.raises(SourceError, match=f"{status}"):
        opened(serve, "rows.zarr")


@pytest.mark.parametrize("status", [401, 403])
def test_what_is_above_a_store_may_be_closed(serve, tmp_path, status):
    (tmp_path / "a").mkdir()
    zarr.create_array(tmp_path / "a" / "rows.zarr", data=VALUES, chunks=(20, 7))
    serve.answers = {"/a/zarr.json": status, "/a/.zarray": status, "/a/.zgroup": status}
    assert np.array_equal(rows_of(opened(serve, "a/rows.zarr")), VALUES)


@pytest.mark.parametrize("start", [b"<?xml version='1.0'?>\n<!DOCTYPE html>", b"<!-- x -->\n<html>", b"<title>Log in"])
def test_pages_are_known_by_what_they_begin_with(serve, tmp_path, start):
    (tmp_path / "rows.zarr").mkdir()
    (tmp_path / "rows.zarr" / "zarr.json").write_bytes(start + PAGE[20:])
    with pytest.raises(SourceError, match=r"sends a page \(HTML\)"):
        opened(serve, "rows.zarr")


@pytest.mark.parametrize("policy", ["error", "fill"])
@pytest.mark.parametrize("name", ["none", "none.zarr", "none.parquet"])
def test_a_page_in_the_place_of_a_store_is_said_to_be_one(serve, name, policy):
    serve.missing, serve.ranges = 200, True
    with pytest.raises(SourceError, match=rf"/{name}.*sends a page \(HTML\)") as caught:
        opened(serve, name, missing_chunks=policy)
    assert len(str(caught.value).splitlines()) == 1
    assert "damaged" not in str(caught.value)


@pytest.mark.parametrize("policy", ["error", "fill"])
@pytest.mark.parametrize(
    "chunk",
    [
        *("3.zarr/c/1/0", "2.zarr/1.0", "plain.zarr/c/1/0", "shards.zarr/c/1/0", "converted.zarr/c/1/0"),
        *(f"sparse.zarr/{part}/c/0" for part in ("data", "indices", "indptr")),
    ],
)
def test_a_page_in_the_place_of_a_chunk_is_no_fill_value(serve, tmp_path, chunk, policy):
    stores(tmp_path)
    serve.missing = 200
    (tmp_path / chunk).unlink()
    with pytest.raises(ChunkReadError, match=rf"{chunk}: .*sends a page \(HTML\)"):
        rows_of(opened(serve, chunk.partition("/")[0], missing_chunks=policy))


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("name", STORES)
def test_a_server_that_is_busy_for_a_moment_is_asked_again(serve, tmp_path, name, status, monkeypatch):
    monkeypatch.setattr("sketchselect.location.PAUSES", (0.0, 0.0))
    stores(tmp_path)
    serve.status, serve.ranges, serve.tagged = status, True, "first"
    serve.busy = 2
    matrix = opened(serve, name)
    before = matrix.identity(0, 60)
    serve.busy = 2
    assert matrix.identity(0, 60) == before
    serve.busy = 1
    assert np.array_equal(rows_of(matrix), VALUES)
    serve.busy = 10**9
    with pytest.raises(SourceError, match=f"the server answers {status}"):
        opened(serve, name)


@pytest.mark.parametrize(("status", "code"), [(503, 75), (403, 1)])
@pytest.mark.parametrize("when", ["before", "start"])
@pytest.mark.parametrize("name", ["3.zarr", "rows.parquet"])
def test_a_run_may_be_repeated_where_its_server_stays_busy(serve, tmp_path, name, when, status, code, monkeypatch):
    """As exit code 75 says to whoever started it."""
    monkeypatch.setattr("sketchselect.location.PAUSES", (0.0, 0.0))
    monkeypatch.setattr("sketchselect.readers.zarr.array.PAUSES", (0.0, 0.0))
    monkeypatch.setattr("sketchselect.execution.tasks.FIRST_PAUSE", 0.0)
    stores(tmp_path)
    serve.status, serve.ranges = status, True
    matrix = opened(serve, name)

    def close(event, *_):
        serve.busy = serve.busy or 10**9 * (event == when)

    close("before")
    with pytest.raises(SourceError, match=f"the server answers {status}") as caught:
        VarianceSelector(2).fit(matrix, progress=close)
    assert caught.value.exit_code == code


def test_a_server_that_is_out_of_reach_for_five_seconds_is_asked_again(serve, tmp_path, monkeypatch):
    """As while it restarts; its chunks are asked for by `read_block` as often as the job says."""
    stores(tmp_path)
    serve.tagged, link, away = "first", Link(serve.server_address[1]), []

    def sleep(seconds):
        away.append(seconds)
        if sum(away) >= 5:
            link.mend()

    monkeypatch.setattr("sketchselect.location.time.sleep", sleep)
    address = f"http://127.0.0.1:{link.port}/plain.zarr"
    try:
        matrix = open_matrix(address, storage_options={"allow_http": True})
        before = matrix.identity(0, 60)
        link.cut()
        assert matrix.identity(0, 60) == before
        assert away
        away.clear()
        link.cut()
        assert open_matrix(address, storage_options={"allow_http": True}).shape == VALUES.shape
        assert away
    finally:
        link.close()


def test_a_server_that_sends_nothing_any_more_is_given_up(serve, tmp_path, monkeypatch):
    monkeypatch.setattr("sketchselect.location.SILENT_SECONDS", 0.5)
    stores(tmp_path)
    link = Link(serve.server_address[1])
    try:
        matrix = open_matrix(f"http://127.0.0.1:{link.port}/plain.zarr", storage_options={"allow_http": True})
        link.stall()
        with pytest.raises((SourceError, ChunkReadError), match="the server sends nothing; raise the option timeout"):
            matrix.read_rows(0, 10)
        link.mend()
        assert np.array_equal(rows_of(matrix), VALUES)
    finally:
        link.close()


def test_a_server_that_is_silent_as_it_is_opened_is_said_to_be_so_and_the_run_may_be_repeated(monkeypatch):
    monkeypatch.setattr("sketchselect.location.SILENT_SECONDS", 0.3)
    monkeypatch.setattr("sketchselect.location.NOTED_SECONDS", 0.2)
    monkeypatch.setattr("sketchselect.location.PAUSES", (0.0, 0.0))
    monkeypatch.setattr("sketchselect.location.LAST_PAUSE", 0.0)
    silent = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{silent.getsockname()[1]}/a.zarr"
    with (
        silent,
        pytest.warns(UserWarning, match=r"a\.zarr: opening has taken .*the server answers slowly"),
        pytest.raises(SourceError, match="the server sends nothing") as caught,
    ):
        open_matrix(address, storage_options={"allow_http": True})
    assert caught.value.exit_code == 75
    assert "sketchselect-waiting" not in [thread.name for thread in threading.enumerate()]


def test_what_is_said_of_a_source_that_is_being_opened_has_no_secret(monkeypatch):
    monkeypatch.setattr("sketchselect.location.NOTED_SECONDS", 0.01)
    with (
        pytest.warns(UserWarning, match=r"^https://host/a\.zarr: opening has taken 0 s so far; "),
        warnings_of_waiting("https://me:word@host/a.zarr?sig=1#key=2"),
    ):
        time.sleep(0.2)
    assert "sketchselect-waiting" not in [thread.name for thread in threading.enumerate()]


def test_the_configuration_of_fsspec_stands_beside_our_own(monkeypatch):
    pytest.importorskip("aiohttp")
    monkeypatch.setattr("fsspec.config.conf", conf := {})
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    for name in ("AWS_RETRY_MODE", "AWS_MAX_ATTEMPTS", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    conf["s3"] = {"config_kwargs": {"signature_version": "s3v4"}}
    conf["https"] = {"client_kwargs": {"trust_env": True}}
    arguments = Location("s3://box/rows").file_options["config_kwargs"]
    assert arguments.keys() == {"signature_version", "retries", "read_timeout"}
    assert Location("https://host/rows").file_options["client_kwargs"].keys() == {"trust_env", "timeout"}
    given = Location("https://host/rows", {"client_kwargs": {"headers": {}}}).file_options["client_kwargs"]
    assert given.keys() == {"headers", "timeout"}, "what is given has precedence"
    conf["s3"] = {"config_kwargs": {"retries": {"max_attempts": 9}}}
    assert "config_kwargs" not in Location("s3://box/rows").file_options


def test_a_certificate_that_is_not_trusted_is_no_fault_that_passes(monkeypatch):
    """Exit code 75 would have the run repeated for ever."""
    aiohttp, asked = pytest.importorskip("aiohttp"), []
    key = SimpleNamespace(host="h", port=443, ssl=True, is_ssl=True)
    error = aiohttp.ClientConnectorCertificateError(key, ssl.SSLCertVerificationError("self-signed"))
    chunk = refused_chunk("chunk 3.0", error)
    assert (chunk.exit_code, str(chunk)) == (
        1,
        "chunk 3.0 cannot be read (its certificate is not trusted); check the server's certificate and this machine's "
        "clock",
    )

    def call():
        asked.append(1)
        raise error

    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        persistent(call)
    assert len(asked) == 1


def test_a_server_that_is_out_of_reach_is_inspected_once(serve, tmp_path, monkeypatch):
    stores(tmp_path)
    link, pauses = Link(serve.server_address[1]), []
    monkeypatch.setattr("sketchselect.location.time.sleep", pauses.append)
    link.cut()
    try:
        with pytest.raises(SourceError, match="cannot be read"):
            inspect_target(f"http://127.0.0.1:{link.port}/plain.zarr", {"storage_options": {"allow_http": True}})
    finally:
        link.close()
    assert pauses == [*PAUSES, LAST_PAUSE]


def test_parts_of_shards_are_read_where_the_server_sends_whole_files(serve, tmp_path):
    """As `python -m http.server` does."""
    stores(tmp_path)
    matrix = opened(serve, "shards.zarr")
    for start, stop in ((0, 10), (10, 20), (5, 45)):
        assert np.array_equal(matrix.read_rows(start, stop), VALUES[start:stop])
