"""Zarr stores of a web server, which lists no files."""

import functools
import http.server
import os
import re
import threading
from pathlib import Path

import numpy as np
import pytest
import zarr

from sketchselect.errors import MissingChunks, SourceError
from sketchselect.execution import LocalEngine, summarize
from sketchselect.readers import open_matrix
from sketchselect.summaries import Moments

pytest.importorskip("aiohttp")


@pytest.fixture
def serve(tmp_path):
    """Start a server of a folder; return its address."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def list_directory(self, path):
            self.send_error(403)

        def do_HEAD(self):
            if self.server.together is not None:
                self.server.together.wait(timeout=10)
            super().do_HEAD()

        def do_GET(self):
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
            if not (self.server.ranges and asked):
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
        server.refused = "\0"
        thread = threading.Thread(target=server.serve_forever)
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
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    values = np.random.default_rng(0).normal(size=(4000, 4))
    pq.write_table(pa.table({f"x{j}": values[:, j] for j in range(4)}), tmp_path / "rows.parquet", row_group_size=500)
    with pytest.raises(SourceError, match=r"sends no parts of files .*; download the file") as caught:
        opened(serve, "rows.parquet")
    assert len(str(caught.value).splitlines()) == 1
    serve.ranges = True
    matrix = opened(serve, "rows.parquet")
    assert matrix.chunk_edges == tuple(range(0, 4001, 500))
    assert np.array_equal(matrix.read_rows(700, 1200), values[700:1200])
    with pytest.raises(SourceError, match="no such file"):
        opened(serve, "none.parquet")


@pytest.mark.parametrize("refused", ["a.zarr/zarr.json", "a.zarr/c/1", "a.parquet"])
def test_a_refusal_is_no_damage_and_the_signed_address_of_a_redirection_is_not_shown(serve, tmp_path, refused):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    zarr.create_array(tmp_path / "a.zarr", data=np.ones((6, 3)), chunks=(2, 3))
    pq.write_table(pa.table({"a": np.ones(6)}), tmp_path / "a.parquet")
    serve.refused, serve.ranges = refused, True
    with pytest.raises(SourceError, match="the server answers 403") as caught:
        opened(serve, refused.partition("/")[0]).read_rows(0, 6)
    assert refused in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "damaged" not in str(caught.value)
