"""Targets, labels and weights from every place they may be."""

import os
import pickle

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import zarr

from sketchselect import open_matrix
from sketchselect.errors import BadParameter, MissingChunks, SourceChanged, SourceError
from sketchselect.readers import Vector, open_vector, stored

Y = np.arange(50) % 7 + 1
WORDS = np.array(["cat", "dog", "tortoise"])[Y % 3]


def npy(y, d):
    np.save(d / "y.npy", y)
    return d / "y.npy"


def npz_target(y, d):
    np.savez(d / "y.npz", target=y, y=np.zeros(50), X=np.zeros((50, 3)))
    return str(d / "y.npz")


def npz_y(y, d):
    np.savez_compressed(d / "y.npz", y=y, z=y[::-1])
    return d / "y.npz"


def npz_only(y, d):
    np.savez(d / "y.npz", classes=y, few=y[:3])
    return d / "y.npz"


def store(y, d):
    zarr.create_array(str(d / "y.zarr"), data=y, chunks=(20, *y.shape[1:]))
    return d / "y.zarr"


def dask_array(y, d):
    return da.from_array(y, chunks=17)


MAKERS = [npy, npz_target, npz_y, npz_only, store, dask_array, lambda y, d: y]


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("y", [Y, Y * 0.5, Y.astype(">f4"), Y > 3, np.stack([Y, Y * Y], axis=1)])
@pytest.mark.parametrize("small", [True, False])
def test_every_place(maker, y, tmp_path, monkeypatch, small):
    if not small:
        monkeypatch.setattr(stored, "WHOLE_NBYTES", 0)
    if maker is npz_only and y.ndim == 2:
        pytest.skip("an archive is searched for one entry per row")
    vector = open_vector(maker(y, tmp_path), 50)
    assert isinstance(vector, Vector)
    assert vector.n_rows == 50
    assert vector.in_memory == (maker is MAKERS[-1])
    for start, stop in ((0, 50), (0, 0), (50, 50), (13, 37), (19, 21)):
        for one in (vector, pickle.loads(pickle.dumps(vector))):
            got = one.read(start, stop)
            assert np.array_equal(got, y[start:stop])
            assert got.dtype == y.dtype.newbyteorder("=")
            assert got.flags.c_contiguous
    assert vector.identity() == vector.identity()
    assert (vector.identity() is None) == (maker is dask_array)
    with pytest.raises(BadParameter, match="outside"):
        vector.read(0, 51)


@pytest.mark.parametrize("maker", [npy, npz_y, lambda y, d: y, lambda y, d: pd.Series(y), lambda y, d: list(y)])
def test_text_labels(maker, tmp_path):
    vector = open_vector(maker(WORDS, tmp_path), 50, name="labels")
    assert np.array_equal(vector.read(3, 9), WORDS[3:9])


def test_text_labels_in_a_store(tmp_path):
    group = zarr.open_group(str(tmp_path / "g"), mode="w")
    group.create_array("X", data=np.ones((50, 2)))
    group.create_array("cells", data=WORDS.astype(np.dtypes.StringDType()))
    address = open_matrix(tmp_path / "g", key="X").address
    assert open_vector("cells", 50, matrix=address).read(0, 4).tolist() == WORDS[:4].tolist()


def test_pandas():
    assert open_vector(pd.Series(Y, index=Y * 10), 50).read(0, 3).tolist() == Y[:3].tolist()
    assert open_vector(pd.Series(WORDS, dtype="category"), 50).read(0, 2).tolist() == WORDS[:2].tolist()
    assert open_vector(pd.DataFrame({"a": Y, "b": Y}), 50).read(0, 2).shape == (2, 2)


def test_an_array_in_the_store_of_the_matrix(tmp_path, monkeypatch):
    group = zarr.open_group(str(tmp_path / "g"), mode="w")
    group.create_array("y", data=Y)
    deep = group.create_group("a").create_group("b")
    deep.create_array("X", data=np.ones((50, 2)))
    deep.create_array("w", data=Y / 2)
    address = open_matrix(tmp_path / "g", key="a/b/X").address
    assert np.array_equal(open_vector("y", 50, matrix=address).read(0, 50), Y)
    assert np.array_equal(open_vector("w", 50, matrix=address).read(0, 50), Y / 2)
    assert np.array_equal(open_vector("a/b/w", 50, matrix=address).read(0, 50), Y / 2)
    monkeypatch.chdir(tmp_path)
    np.save("w", Y)
    os.rename("w.npy", "y.npy")
    assert np.array_equal(open_vector("y.npy", 50, matrix=address).read(0, 50), Y), "a file comes first"
    missing = r"target: .*no such file.*nor is there such an array or column in .*g/a/b/X"
    with pytest.raises(SourceError, match=missing):
        open_vector("z", 50, matrix=address)
    with pytest.raises(SourceError, match="no such file"):
        open_vector("z", 50, matrix="array")


def test_an_array_of_the_archive_of_the_matrix_is_named_by_the_path(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.ones((50, 2)), y=Y)
    matrix = open_matrix(tmp_path / "t.npz")
    with pytest.raises(SourceError, match=r"target: 'y' is an array of .*t\.npz; give the path of this archive"):
        open_vector("y", 50, matrix=matrix)
    assert np.array_equal(open_vector(tmp_path / "t.npz", 50, matrix=matrix).read(0, 50), Y)


@pytest.mark.parametrize("target", [(), ("specis",)])
@pytest.mark.parametrize(
    ("name", "cure"), [("t.csv", "sketchselect convert"), ("t.mtx", "Matrix Market"), ("t.npy", "")]
)
def test_a_refused_file_is_named_as_what_it_is(tmp_path, name, cure, target):
    (tmp_path / name).write_text("a,b\n1,2\n")
    with pytest.raises(SourceError, match=rf"{name}.*{cure}") as refusal:
        open_matrix(tmp_path / name, vectors=target)
    assert "Parquet" not in str(refusal.value)


def test_a_misspelt_column_is_no_path(tmp_path):
    frame = pd.DataFrame({"height": Y, "species": Y, **{f"x{j}": Y for j in range(9)}})
    frame.to_parquet(tmp_path / "iris.parquet")
    matrix = open_matrix(tmp_path / "iris.parquet")
    near = (
        r"no column 'specis' in .*iris.parquet, .*; did you mean 'species'\? columns: 'height', 'species', .*, \.\.\.$"
    )
    with pytest.raises(SourceError, match=near):
        open_vector("specis", 50, matrix=matrix)
    with pytest.raises(SourceError, match=r"no column 'weight_of_it' in .*; columns: 'height', 'species'"):
        open_vector("weight_of_it", 50, matrix=matrix)
    with pytest.raises(SourceError, match=r"y.npy: no such file or folder"):
        open_vector("y.npy", 50, matrix=matrix)


@pytest.mark.parametrize(
    ("maker", "parts"),
    [
        (lambda d: Y[:49], ["labels", "(49,)", "50 rows"]),
        (lambda d: npy(Y[:49], d), ["labels", "y.npy", "(49,)", "50 rows"]),
        (lambda d: store(Y[:49], d), ["labels", "y.zarr", "(49,)", "50 rows"]),
        (lambda d: np.zeros((50, 2, 2)), ["labels", "3 dimensions"]),
        (lambda d: np.float64(3), ["labels", "0 dimensions"]),
        (lambda d: Y * 1j, ["labels", "complex128"]),
        (lambda d: np.array([1, "a"] * 25, dtype=object), ["labels", "neither all numbers nor all text"]),
        (lambda d: npy(np.array([1, "a"] * 25, dtype=object), d), ["y.npy", "object"]),
        (lambda d: np.ma.masked_equal(Y, 3), ["masked"]),
        (lambda d: list(np.ma.masked_equal(Y, 3)), ["masked"]),
        (lambda d: d / "none.npy", ["labels", "none.npy", "no such file"]),
        (lambda d: npz_archive(d, a=Y, b=Y), ["no array 'labels' or 'y'", "a (50 int64)"]),
        (lambda d: npz_archive(d, y=Y[:3]), ["array 'y'", "(3,)", "50 rows"]),
        (lambda d: group_of(d), ["this is a group", "key"]),
        (lambda d: da.from_array(Y, chunks=9)[da.from_array(Y, chunks=9) > 1], ["compute_chunk_sizes"]),
        (lambda d: "http://host/y.zarr", ["allow_http"]),
    ],
)
def test_bad_ones(maker, parts, tmp_path):
    with pytest.raises(SourceError) as caught:
        open_vector(maker(tmp_path), 50, name="labels")
    for part in parts:
        assert part in str(caught.value)


def npz_archive(d, **arrays):
    np.savez(d / "q.npz", **arrays)
    return d / "q.npz"


def group_of(d):
    zarr.open_group(str(d / "g"), mode="w").create_array("y", data=Y)
    return d / "g"


def test_missing_chunks(tmp_path):
    path = store(Y, tmp_path)
    before = open_vector(path, 50).identity()
    os.remove(path / "c" / "1")
    with pytest.raises(MissingChunks, match="c/1"):
        open_vector(path, 50)
    filled = open_vector(path, 50, missing_chunks="fill")
    assert not filled.read(20, 40).any()
    assert filled.identity() != before


def test_a_file_rewritten_while_open(tmp_path):
    vector = open_vector(npy(Y, tmp_path), 50)
    before = vector.identity()
    npy(Y.astype("f4"), tmp_path)
    assert vector.identity() != before
    with pytest.raises(SourceChanged, match=r"y\.npy"):
        vector.read(0, 5)


@pytest.mark.parametrize("missing", ["NA", '""', "nan", "null"])
@pytest.mark.parametrize("header", ["", "y\n"])
def test_missing_entries_of_numbers_in_a_text_file_are_nan(tmp_path, missing, header):
    (tmp_path / "y.csv").write_text(f"{header}{missing}\n1.5\n2\n{missing}\n")
    vector = open_vector(tmp_path / "y.csv", 4)
    assert np.array_equal(vector.read(0, 4), [np.nan, 1.5, 2, np.nan], equal_nan=True)


@pytest.mark.parametrize("missing", ["NA", "none", "nan", "NaN"])
def test_labels_that_are_missing_but_for_the_first_have_no_heading(tmp_path, missing):
    (tmp_path / "y.csv").write_text(f"yes\n{missing}\n{missing}\n")
    as_labels = ["yes", missing, missing] if missing == "none" else ["yes", "", ""]
    assert open_vector(tmp_path / "y.csv", 3).read(0, 3).tolist() == as_labels
    assert open_vector(tmp_path / "y.csv", 3, name="row_names").read(0, 3).tolist() == ["yes", missing, missing]


@pytest.mark.parametrize("absent", [None, float("nan")])
def test_missing_entries_of_objects_are_nan_among_numbers_and_named_among_text(absent):
    numbers = open_vector(np.array([1, absent, 2.5], dtype=object), 3).read(0, 3)
    assert np.array_equal(numbers, [1, np.nan, 2.5], equal_nan=True)
    with pytest.raises(
        SourceError, match=r"labels: 2 entries are missing, the first at row 1; leave these rows out, or"
    ):
        open_vector(np.array(["a", absent, absent], dtype=object), 3, name="labels")


def test_missing_entries_of_a_parquet_file(tmp_path):
    columns = {"y": [1.0, None, 2.5, 3.0], "whole": [1, 2, None, 4], "ward": ["a", "b", "a", None]}
    parquet.write_table(pa.table(columns), path := tmp_path / "t.parquet", row_group_size=2)
    opened = {name: open_vector(path, 4, name=name) for name in columns}
    assert np.array_equal(opened["y"].read(0, 4), [1, np.nan, 2.5, 3], equal_nan=True)
    assert np.array_equal(opened["whole"].read(1, 4), [2, np.nan, 4], equal_nan=True)
    assert opened["ward"].read(0, 3).tolist() == ["a", "b", "a"]
    with pytest.raises(SourceError, match=r"t\.parquet: column 'ward': 1 entry is missing, the first at row 3"):
        opened["ward"].read(1, 4)


def test_an_empty_line_does_not_make_the_name_of_a_column_its_first_entry(tmp_path):
    """As many lines hold text as the matrix has rows, and each label would be that of the row after its own."""
    (tmp_path / "y.csv").write_text("label\na\n\nb\na\n")
    with pytest.raises(SourceError, match=r"y\.csv: line 3 is empty; remove it, or write NA"):
        open_vector(tmp_path / "y.csv", 4)
    (tmp_path / "y.csv").write_text("label\na\nb\na\n\n\n")
    assert open_vector(tmp_path / "y.csv", 3).read(0, 3).tolist() == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("lines", "entries"),
    [
        (["9007199254740993", "9007199254740992", "-3"], np.array([2**53 + 1, 2**53, -3])),
        (["1e19", "1", "2"], np.array([1e19, 1, 2])),
        (["-9223372036854775809", "1", "2"], np.array([-(2.0**63), 1, 2])),
    ],
    ids=["digits", "exponent", "beyond int64"],
)
def test_large_whole_numbers_of_a_text_file_are_no_others(lines, entries, tmp_path):
    (tmp_path / "y.csv").write_text("\n".join(lines) + "\n")
    vector = open_vector(tmp_path / "y.csv", 3)
    assert vector.dtype == entries.dtype
    np.testing.assert_array_equal(vector.read(0, 3), entries)


def test_bytes_that_are_no_text_are_one_line():
    with pytest.raises(SourceError, match=r"^labels: entries are bytes that are no plain text"):
        open_vector(np.array([b"a", b"\xff"]), 2, name="labels")
