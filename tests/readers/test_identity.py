"""The identity of rows changes when what is under them changes, and only then."""

import os
import time

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from zarr.storage import FsspecStore

from sketchselect import open_matrix

RUNS = [(0, 20), (20, 60), (60, 100)]


def touched(path):
    """Give a file a later modification time, as any rewrite does."""
    status = os.stat(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))


def identities(source, **options):
    matrix = open_matrix(source, **options)
    return [matrix.identity(a, b) for a, b in [*RUNS, (0, matrix.shape[0])]]


@pytest.mark.parametrize("options", [{}, {"zarr_format": 2}, {"chunks": (10, 6), "shards": (20, 12)}])
def test_one_rewritten_chunk(write, values, options):
    path = write(values[:100], **options)
    before = identities(path)
    assert identities(path) == before
    assert len(set(before)) == 4
    key = "2.1" if "zarr_format" in options else "c/2/1"
    touched(path / key)  # rows 40 to 60
    after = identities(path)
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, True, False]
    content = (path / key).read_bytes()
    status = os.stat(path / key)
    (path / key).write_bytes(content + b"x")
    os.utime(path / key, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert identities(path)[1] not in (before[1], after[1]), "size alone"
    os.remove(path / key)
    assert identities(path, missing_chunks="fill")[1] not in (before[1], after[1]), "absence"


@pytest.mark.parametrize("version", [2, 3])
def test_appended_rows_leave_the_rows_before_them_alone(write, values, version):
    path = write(values[:60], zarr_format=version)
    before = [open_matrix(path).identity(a, b) for a, b in RUNS[:2]]
    zarr.open_array(str(path), mode="r+").append(values[60:])
    assert open_matrix(path).shape == (103, 17)
    assert [open_matrix(path).identity(a, b) for a, b in RUNS[:2]] == before


def test_rows_appended_into_the_last_chunk_change_that_chunk_only(write, values):
    path = write(values[:50])
    before = [open_matrix(path).identity(0, 40), open_matrix(path).identity(40, 50)]
    time.sleep(0.01)
    zarr.open_array(str(path), mode="r+").append(values[50:])
    matrix = open_matrix(path)
    assert matrix.identity(0, 40) == before[0]
    assert matrix.identity(40, 50) != before[1]


def test_attributes_do_not_matter_and_codecs_do(write, values):
    path = write(values)
    before = identities(path)
    zarr.open_array(str(path), mode="r+").attrs["note"] = "seen"
    assert identities(path) == before
    document = (path / "zarr.json").read_text()
    (path / "zarr.json").write_text(document.replace('"fill_value": 0.0', '"fill_value": 1.0'))
    assert not set(identities(path)) & set(before)


def test_two_stores_of_the_same_times_are_two(write, values):
    a, b = write(values, "a.zarr"), write(values, "b.zarr")
    for path in (a, b):
        for file in path.rglob("*"):
            os.utime(file, ns=(1, 1))
    assert not set(identities(a)) & set(identities(b))


def test_remote_chunks(values, tmp_path):
    url = f"memory://{tmp_path.name}/a.zarr"
    array = zarr.create_array(FsspecStore.from_url(url), shape=(100, 17), chunks=(20, 6), dtype="f4")
    array[...] = values[:100]
    before = identities(url)
    assert len(set(before)) == 4
    matrix = open_matrix(url)
    array[45, 7] = 1
    after = identities(url)
    assert [a == b for a, b in zip(before, after, strict=True)][::2] == [True, True]
    assert after[1] != before[1]
    assert matrix.identity(0, 100) != before[3], "all rows are looked up again"
    assert matrix.identity(20, 60) == after[1], "and the parts follow"


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_files(values, tmp_path, name):
    save = np.save if name.endswith("npy") else lambda path, x: np.savez(path, X=x)
    save(tmp_path / name, values)
    before = identities(tmp_path / name)
    assert identities(tmp_path / name) == before
    touched(tmp_path / name)
    assert not set(identities(tmp_path / name)) & set(before)


@pytest.mark.parametrize("make", [np.asarray, np.asfortranarray, sp.csr_array, sp.csr_matrix])
def test_arrays_are_identified_by_content(values, make):
    source = np.where(values > 0, values, 0)
    before = identities(make(source))
    assert len(set(before)) == 4
    assert identities(make(source.copy())) == before
    changed = source.copy()
    changed[30, 5] += 1
    assert [a == b for a, b in zip(before, identities(make(changed)), strict=True)] == [True, False, True, False]
    longer = np.vstack([source, source])
    assert identities(make(longer))[:3] == before[:3]
    assert identities(make(source.astype(np.float64)))[0] != before[0]
    assert identities(np.asfortranarray(source)) == identities(source)


def test_dask_arrays_have_the_identity_they_are_given(values):
    import dask.array as da

    x = da.from_array(values, chunks=(25, 17))
    assert identities(x) == [None] * 4
    named = identities(x, source_id="run 7")
    assert len(set(named)) == 4
    assert named == identities(x.rechunk((10, 17)), source_id="run 7")
    assert not set(named) & set(identities(x, source_id="run 8"))
