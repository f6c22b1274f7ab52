"""Stores written to URLs: converted matrices, and labels of k-means."""

import json
import re

import fsspec
import numpy as np
import pytest
import scipy.sparse
import zarr
from tests.job.commands import works

import sketchselect as sks
from sketchselect.errors import NotOurFolder, SourceError
from sketchselect.readers import convert, open_matrix
from sketchselect.readers.opening import locate
from sketchselect.readers.writing import create_array, put_in_place

X = np.random.default_rng(0).normal(size=(60, 5))
LOCAL = fsspec.filesystem("file")


@pytest.fixture
def memory():
    """An empty file system in memory."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    yield fs
    fs.store.clear()


@pytest.mark.parametrize("sparse", [False, True])
def test_a_matrix_is_converted_to_a_url_and_replaced_there(memory, sparse):
    rows = scipy.sparse.csr_array(X * (X > 1)) if sparse else X
    for values in (rows, 2 * rows[:30]):
        assert convert(values, "memory://bucket/rows.zarr") == "memory://bucket/rows.zarr"
        matrix = open_matrix("memory://bucket/rows.zarr")
        read = matrix.read_rows(0, matrix.shape[0])
        assert matrix.is_sparse == sparse
        difference = read - values
        assert np.abs(difference).max() == 0
        assert [name.rpartition("/")[2] for name in memory.ls("/bucket", detail=False)] == ["rows.zarr"]


def test_chunks_of_a_longer_store_that_was_replaced_are_gone(memory):
    convert(X, "memory://bucket/rows.zarr", chunks=(10, 5))
    convert(X[:20], "memory://bucket/rows.zarr", chunks=(10, 5))
    assert sorted(memory.find("/bucket/rows.zarr")) == [
        f"/bucket/rows.zarr/{key}" for key in ("c/0/0", "c/1/0", "zarr.json")
    ]


@pytest.mark.parametrize("name", ["a*b", "a?b", "a[1-9]b", "**"])
def test_a_name_with_the_signs_of_a_pattern_is_that_of_one_store(memory, name):
    for place in ("a7b", name):
        for values in (X[:30], X):
            convert(values, f"memory://patterns/{place}/rows.zarr", chunks=(10, 5))
    for place in ("a7b", name):
        assert np.array_equal(open_matrix(f"memory://patterns/{place}/rows.zarr").read_rows(0, 60), X)
    assert not [path for path in memory.find("/patterns") if "partial" in path]


def names_with_signs(n):
    """Return names of which many are patterns of others, with names that these match."""
    rng = np.random.default_rng(7)
    signs = [*"ab7", "*", "**", "?", "[a7]", "[!a]", "[", "]", "{a,b}", "#", "+", " "]
    names = ["".join(rng.choice(signs, size=rng.integers(1, 5))).strip() or "*" for _ in range(n)]
    matched = {re.sub(r"\[a7\]|\[!a\]|\{a,b\}|[*?]+", "7", name) for name in names} | {"7", "77", "a7b", "b"}
    return sorted(set(names)), sorted(matched - set(names))


@pytest.mark.parametrize("where", ["memory", "local"])
def test_names_with_the_signs_of_a_pattern_leave_all_others_as_they_are(memory, where, tmp_path):
    base, fs, top = ("memory://names", memory, "/names") if where == "memory" else (tmp_path, LOCAL, str(tmp_path))
    require_others_untouched(base, fs, top, n=15)


def require_others_untouched(base, fs, top, n):
    """Write, and replace, stores with such names, as folders and in folders, beside others; then compare these."""
    names, others = names_with_signs(n)
    for name in others:
        for path in (f"{name}.zarr/c/0/0", f"{name}/rows.zarr/c/0/0", f".{name}.zarr.elsewhere.1.0.partial/c/0/0"):
            fs.makedirs(f"{top}/{path}".rpartition("/")[0], exist_ok=True)
            fs.pipe_file(f"{top}/{path}", path.encode())
    written: dict[str, int] = {}
    for i, name in enumerate(names):
        for place in (f"{name}.zarr", f"{name}/rows.zarr"):
            fs.makedirs(f"{top}/{place}".rpartition("/")[0], exist_ok=True)
            for values in (X, X[: i + 1]):
                convert(values, f"{base}/{place}", chunks=(20, 5))
            written[place] = i + 1
    files = {path.removeprefix(top.lstrip("/")).lstrip("/") for path in (p.lstrip("/") for p in fs.find(top))}
    for name in others:
        for path in (f"{name}.zarr/c/0/0", f"{name}/rows.zarr/c/0/0", f".{name}.zarr.elsewhere.1.0.partial/c/0/0"):
            assert fs.cat_file(f"{top}/{path}") == path.encode()
            files.remove(path)
    for place, n_rows in written.items():
        assert np.array_equal(open_matrix(f"{base}/{place}").read_rows(0, n_rows), X[:n_rows])
        files -= {f"{place}/{key}" for key in ("zarr.json", *(f"c/{j}/0" for j in range(-(-n_rows // 20))))}
    assert not files


def test_what_is_not_ours_stays(memory):
    memory.pipe("/bucket/rows.zarr/notes.txt", b"mine")
    zarr.create_array(zarr.storage.FsspecStore.from_url("memory://bucket/theirs"), data=X)
    for name in ("rows.zarr", "theirs"):
        with pytest.raises(NotOurFolder, match="not overwritten"):
            convert(X, f"memory://bucket/{name}")
    assert memory.cat("/bucket/rows.zarr/notes.txt") == b"mine"
    assert np.array_equal(open_matrix("memory://bucket/theirs").read_rows(0, 60), X)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_store_that_was_not_finished_is_gone_and_the_old_one_stays(memory, error):
    convert(X, "memory://bucket/rows.zarr")

    def stop(done, total):
        raise error

    with pytest.raises((KeyboardInterrupt, SourceError)):
        convert(2 * X, "memory://bucket/rows.zarr", progress=stop)
    assert np.array_equal(open_matrix("memory://bucket/rows.zarr").read_rows(0, 60), X)
    assert len(memory.ls("/bucket")) == 1


def test_the_document_of_a_store_is_copied_last(memory, monkeypatch):
    copied = []
    single = type(memory).cp_file

    def note(self, source, target, **options):
        copied.append(target.rpartition("rows.zarr/")[2])
        return single(self, source, target, **options)

    monkeypatch.setattr(type(memory), "cp_file", note)
    with put_in_place(locate("memory://bucket/rows.zarr")) as place:
        create_array(place, (4,), (1,), np.int32)[...] = 1
    assert sorted(copied) == ["c/0", "c/1", "c/2", "c/3", "zarr.json"]
    assert copied[-1] == "zarr.json"


@pytest.mark.parametrize("regular", [True, False])
def test_labels_are_written_to_a_url(memory, regular):
    values = np.vstack([X, X + 20])
    rows = scipy.sparse.csr_array(values) if not regular else values
    model = sks.KMeans(2, random_state=0).fit(rows)
    assert model.predict(rows, out="memory://bucket/labels") == "memory://bucket/labels"
    labels = zarr.open_array(zarr.storage.FsspecStore.from_url("memory://bucket/labels"), mode="r")
    assert np.array_equal(labels[:], model.labels_)
    assert set(model.labels_[:60]) != set(model.labels_[60:])


def test_the_command_converts_to_a_url(memory, tmp_path):
    np.save(tmp_path / "rows.npy", X)
    done = works("convert", tmp_path / "rows.npy", "memory://bucket/rows.zarr", "--json")
    assert json.loads(done.stdout)["store"] == "memory://bucket/rows.zarr"
    assert np.array_equal(open_matrix("memory://bucket/rows.zarr").read_rows(0, 60), X)
