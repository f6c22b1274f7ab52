"""Chunks that are missing, cut off, flipped or hostile: an error that names them, never wrong numbers."""

import gzip
import os
import shutil
import struct
from pathlib import Path

import fsspec
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numcodecs import Blosc, Zstd
from tests.passing import flip
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec
from zarr.storage import FsspecStore

from sketchselect import open_matrix
from sketchselect.errors import ChunkReadError, MissingChunks, SourceChanged, SourceError
from sketchselect.readers import convert, open_vector
from sketchselect.readers.stored import MATRICES
from sketchselect.readers.zarr.array import zstd_content_size

from .conftest import CHECKED


def test_missing_chunks_are_counted_and_the_first_five_named(write, values):
    path = write(values)  # 6 x 3 chunks
    for key in ("0/1", "3/0", "3/1", "3/2", "4/0", "5/2", "5/1"):
        os.remove(path / "c" / key)
    with pytest.raises(MissingChunks) as caught:
        open_matrix(path)
    message = str(caught.value)
    assert "7 of 18 chunks are missing (c/0/1, c/3/0, c/3/1, c/3/2, c/4/0, ...)" in message
    assert "lost" in message
    assert "only the fill value" in message
    assert 'missing_chunks="fill"' in message
    filled = open_matrix(path, missing_chunks="fill").read_rows(0, 103)
    assert not filled[0:20, 6:12].any()
    assert np.array_equal(filled[20:60], values[20:60])


@pytest.mark.parametrize("options", [{"zarr_format": 2}, {"chunks": (10, 6), "shards": (40, 12)}])
def test_missing_files_of_other_layouts(write, values, options):
    path = write(values, **options)
    key = "1.0" if "zarr_format" in options else "c/1/0"
    os.remove(path / key)
    with pytest.raises(MissingChunks, match=rf"1 of \d+ chunks are missing \({key}\)"):
        open_matrix(path)


def test_all_fill_chunks_that_zarr_left_out_need_the_word_of_the_user(write):
    zeros = np.zeros((40, 6), np.float32)
    zeros[0, 0] = 1
    path = write(zeros)
    with pytest.raises(MissingChunks, match=r"1 of 2 chunks are missing \(c/1/0\)"):
        open_matrix(path)
    assert np.array_equal(open_matrix(path, missing_chunks="fill").read_rows(0, 40), zeros)


def test_our_own_stores_leave_no_doubt(values, tmp_path):
    convert(np.zeros((40, 6)), tmp_path / "z.zarr", chunks=(20, 6))
    assert not open_matrix(tmp_path / "z.zarr").read_rows(0, 40).any()
    os.remove(tmp_path / "z.zarr" / "c" / "1" / "0")
    with pytest.raises(MissingChunks, match="written with every chunk, so they were lost"):
        open_matrix(tmp_path / "z.zarr")


def test_a_folder_in_place_of_a_chunk_is_a_missing_chunk(write, values):
    path = write(values)
    os.remove(path / "c/2/2")
    os.mkdir(path / "c/2/2")
    with pytest.raises(MissingChunks, match=r"c/2/2"):
        open_matrix(path)


def test_files_that_are_no_chunks_do_not_count(write, values):
    path = write(values)
    for name in ("c/0/3", "c/00/0", "c/0/0.a1b2.partial", "c/x", "c/6/0", "notes.txt"):
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(b"junk")
    matrix = open_matrix(path)
    assert np.array_equal(matrix.read_rows(0, 103), values)
    assert "2 chunk files lie beyond the shape 103 x 17" in matrix.notes[-1]
    os.remove(path / "c/0/2")
    with pytest.raises(MissingChunks, match="1 of 18"):
        open_matrix(path)


@pytest.mark.parametrize("missing", ["error", "fill"])
@pytest.mark.parametrize("options", [{}, {"chunks": (10, 6), "shards": (40, 12)}, {"compressors": None}])
def test_an_empty_file_is_damage_under_either_policy(write, values, options, missing):
    path = write(values, **options)
    (path / "c/1/1").write_bytes(b"")
    with pytest.raises(ChunkReadError, match=r"chunk c/1/1 is empty"):
        open_matrix(path, missing_chunks=missing)


def test_a_chunk_that_goes_away_after_the_preflight(write, values, tmp_path):
    url = f"memory://{tmp_path.name}/a.zarr"
    remote = zarr.create_array(FsspecStore.from_url(url), shape=values.shape, chunks=(20, 6), dtype="f4")
    remote[...] = values
    path = write(values)
    sharded = write(values, "s.zarr", chunks=(10, 6), shards=(20, 6))
    here, there, shards = open_matrix(path), open_matrix(url), open_matrix(sharded)
    os.remove(path / "c/2/1")
    os.remove(sharded / "c/2/1")
    fsspec.filesystem("memory").rm(f"{tmp_path.name}/a.zarr/c/2/1")
    for matrix, place in ((here, f"{path}/c/2/1"), (there, f"{url}/c/2/1"), (shards, f"{sharded}/c/2/1")):
        assert np.array_equal(matrix.read_rows(0, 40), values[:40])
        with pytest.raises(MissingChunks) as caught:
            matrix.read_rows(0, 103)
        assert f"chunk c/2/1 (file {place}) is missing" in str(caught.value)


CODECS = {
    "zstd": [ZstdCodec()],
    "zstd checksum": [CHECKED],
    "gzip": [GzipCodec()],
    "blosc": [BloscCodec(cname="lz4")],
    "crc32c": [Crc32cCodec()],
    "none": None,
}


@pytest.mark.parametrize("codec", list(CODECS))
@pytest.mark.parametrize("keep", [1, 20, 0.5, 0.99])
def test_a_chunk_cut_off_is_named_with_its_file(write, values, codec, keep):
    path = write(values, compressors=CODECS[codec])
    matrix = open_matrix(path)
    chunk = path / "c/1/2"
    size = chunk.stat().st_size
    left = keep if keep >= 1 else int(size * keep)
    os.truncate(chunk, left)
    if codec != "blosc":  # the library decodes such chunks without complaint; the preflight sees them
        with pytest.raises(ChunkReadError) as caught:
            matrix.read_rows(0, 103)
        assert f"{path}: chunk c/1/2 (file {chunk}), {left} bytes," in str(caught.value)
    else:
        with pytest.raises(ChunkReadError, match=r"chunk c/1/2 is cut off"):
            open_matrix(path)
    assert np.array_equal(matrix.read_rows(40, 103), values[40:])


@settings(max_examples=40, deadline=None)
@given(at=st.integers(0, 10**6), bit=st.integers(0, 7), codec=st.sampled_from(["zstd checksum", "crc32c", "gzip"]))
def test_every_flipped_bit_under_a_checksum_is_an_error(tmp_path_factory, at, bit, codec):
    values = np.random.default_rng(3).standard_normal((30, 5))
    path = tmp_path_factory.mktemp("flip") / "a.zarr"
    zarr.create_array(str(path), data=values, chunks=(10, 5), compressors=CODECS[codec])
    flip(path / "c/1/0", at, 1 << bit)
    try:
        got = open_matrix(path).read_rows(0, 30)
    except ChunkReadError as caught:
        got, message = None, str(caught)
    if got is None:
        assert "chunk c/1/0" in message
    else:  # bits of a header that decide nothing, as the time in gzip's
        assert np.array_equal(got, values)
    shutil.rmtree(path)


@pytest.mark.parametrize("codec", ["zstd checksum", "crc32c"])
def test_the_error_says_checksum_where_that_is_what_failed(write, values, codec):
    path = write(values, compressors=CODECS[codec])
    matrix = open_matrix(path)
    flip(path / "c/0/0", -1)
    with pytest.raises(ChunkReadError, match=r"chunk c/0/0 .* fails its checksum"):
        matrix.read_rows(0, 5)


def test_a_damaged_shard(write, values):
    path = write(values, chunks=(10, 6), shards=(40, 12), compressors=[CHECKED])
    matrix = open_matrix(path)
    os.truncate(path / "c/1/0", (path / "c/1/0").stat().st_size - 3)
    assert np.array_equal(matrix.read_rows(0, 40), values[:40])
    with pytest.raises(ChunkReadError, match=r"chunk c/1/0 \(file"):
        matrix.read_rows(30, 60)


@pytest.mark.filterwarnings("ignore:The data type")  # of zarr 3.1: version 3 has no texts of one length in its core
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("codec", ["default", "blosc", None])
def test_compressed_texts_of_one_length_are_read_and_those_beyond_their_shape_are_not(tmp_path, zarr_format, codec):
    blosc = Blosc() if zarr_format == 2 else BloscCodec()
    compressors = {"default": "auto", "blosc": blosc, None: None}[codec]
    names, group = np.array([f"cell{i}" for i in range(70)]), zarr.open_group(tmp_path, zarr_format=zarr_format)
    array = group.create_array("names", shape=70, chunks=(30,), dtype=names.dtype, compressors=compressors)
    array[:] = names
    place = f"{tmp_path}/names"
    assert open_vector(place, 70, name="names").read(0, 70).tolist() == names.tolist()
    if codec == "blosc":
        (tmp_path / "names" / ("0" if zarr_format == 2 else "c/0")).write_bytes(bomb(Blosc("zstd"), 64 << 20))
        with pytest.raises(ChunkReadError, match=r"would expand to 64.00 MiB, its shape needs 720 B"):
            open_vector(place, 70, name="names")


def bomb(codec, size):
    return codec.encode(np.zeros(size, np.uint8).tobytes())


@pytest.mark.parametrize("frame", ["zstd", "blosc"])
def test_a_chunk_that_would_expand_far_beyond_its_shape_is_not_decoded(write, values, frame):
    path = write(values, compressors=[ZstdCodec() if frame == "zstd" else BloscCodec(cname="zstd")])
    (path / "c/2/0").write_bytes(bomb(Zstd(3) if frame == "zstd" else Blosc("zstd"), 64 << 20))
    with pytest.raises(ChunkReadError, match=r"chunk c/2/0 would expand to 64.00 MiB, its shape needs 480 B"):
        open_matrix(path)


@pytest.mark.parametrize("size", [0, 1, 200, 255, 256, 257, 300, 65535, 65791, 65792, 70000, 1 << 20])
def test_zstd_frame_headers(size):
    assert zstd_content_size(Zstd(1).encode(np.zeros(size, np.uint8).tobytes())[:18] if size else b"") == (size or None)
    assert zstd_content_size(b"junk and more junk") is None
    large = b"\x28\xb5\x2f\xfd" + bytes([3 << 6]) + b"\x00" + struct.pack("<Q", 5 << 40)
    assert zstd_content_size(large) == 5 << 40


def test_a_store_rewritten_while_open(write, values, tmp_path):
    path = write(values)
    matrix = open_matrix(path)
    sent = type(matrix)(matrix.source, None, None, "error")
    shutil.rmtree(path)
    write(values.astype(np.float64))
    from sketchselect.readers.zarr import array as zarr_array

    zarr_array.OPEN_ARRAYS.clear()  # what another process knows
    with pytest.raises(SourceChanged, match="rewritten after it was opened"):
        sent.read_rows(0, 5)
    shutil.rmtree(path)
    with pytest.raises(SourceError, match="no such file"):
        sent.read_rows(0, 5)
    write(values[:50])
    with pytest.raises(SourceChanged):
        sent.read_rows(0, 5)


def test_files_cut_off_or_rewritten_while_open(tmp_path):
    values = np.arange(6000.0).reshape(2000, 3)
    np.save(tmp_path / "a.npy", values)
    np.savez(tmp_path / "a.npz", X=values)
    npy, npz = open_matrix(tmp_path / "a.npy"), open_matrix(tmp_path / "a.npz")
    size = (tmp_path / "a.npy").stat().st_size
    os.truncate(tmp_path / "a.npy", size // 2)
    with pytest.raises(SourceChanged, match=r"a\.npy"):
        npy.read_rows(1500, 1600)
    os.truncate(tmp_path / "a.npz", size // 2)
    MATRICES.clear()  # what another process knows
    with pytest.raises(SourceChanged, match=r"a\.npz"):
        npz.read_rows(0, 5)


def test_a_file_in_fortran_order_that_is_cut_off_while_it_is_read_is_an_error(tmp_path, monkeypatch):
    path = tmp_path / "f.npy"
    np.save(path, np.asfortranarray(np.ones((5000, 30))))
    matrix = open_matrix(path)
    os.truncate(path, path.stat().st_size - 8)
    # It is as it was when reading begins.
    monkeypatch.setattr("sketchselect.location.Location.require_version", lambda *_: None)
    for start in (0, 4999):
        with pytest.raises(ChunkReadError, match=f"ends within rows {start} to 4999"):
            matrix.read_rows(start, 5000)


def test_a_damaged_archive(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", X=np.random.default_rng(0).standard_normal((100, 9)))
    flip(tmp_path / "a.npz", 3000)
    with pytest.raises(SourceError, match=r"a\.npz: the archive is damaged"):
        open_matrix(tmp_path / "a.npz")


def test_an_unreadable_chunk_says_why(write, values, monkeypatch):
    path = write(values)
    matrix = open_matrix(path)
    original = Path.read_bytes

    def refuse(self):
        if self.name == "1":
            raise PermissionError(13, "Permission denied")
        return original(self)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ChunkReadError, match=r"chunk c/0/1 .*cannot be read \(Permission denied\)"):
        matrix.read_rows(0, 5)


def test_a_remote_store_that_stumbles_is_read_again(values, tmp_path, monkeypatch):
    from fsspec.implementations.memory import MemoryFileSystem

    from sketchselect.readers.zarr import array as zarr_array

    url = f"memory://{tmp_path.name}/a.zarr"
    array = zarr.create_array(FsspecStore.from_url(url), shape=values.shape, chunks=(20, 6), dtype="f4")
    array[...] = values
    failures = [0]
    original = MemoryFileSystem.cat_file

    def stumble(self, path, *args, **kwargs):
        if failures[0] and path.endswith("c/0/0"):
            failures[0] -= 1
            raise OSError(104, "Connection reset by peer")
        return original(self, path, *args, **kwargs)

    monkeypatch.setattr(zarr_array, "PAUSES", (0.0, 0.0))
    monkeypatch.setattr(MemoryFileSystem, "cat_file", stumble)
    matrix = open_matrix(url)
    failures[0] = 2
    assert np.array_equal(matrix.read_rows(0, 103), values)
    assert failures[0] == 0
    failures[0] = 100
    with pytest.raises(ChunkReadError, match=r"chunk c/0/0 .*Connection reset"):
        matrix.read_rows(0, 103)


@pytest.mark.parametrize(
    "text", [b"%%MatrixMarket matrix array real general\n200 3\n", b""], ids=["a.mtx.gz", "a.svm.gz"]
)
def test_every_flipped_byte_of_a_packed_text_file_is_an_error_or_harmless(tmp_path, text):
    rows = np.random.default_rng(0).integers(0, 99, (200, 3))
    lines = map(str, rows.ravel()) if text else (f"0 1:{a} 2:{b} 3:{c + 1}" for a, b, c in rows)
    path = tmp_path / ("a.mtx.gz" if text else "a.svm.gz")
    whole = gzip.compress(text + "\n".join(lines).encode() + b"\n", mtime=0)
    path.write_bytes(whole)
    expected = open_matrix(path).read_rows(0, 200)
    n_errors = 0
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            assert abs(open_matrix(path).read_rows(0, 200) - expected).max() == 0
        except SourceError:
            n_errors += 1
    assert n_errors > len(whole) // 2
