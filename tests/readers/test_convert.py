"""`convert`: what comes out is what went in, and nothing half-made ever has the final name."""

import gzip
import os
import re
import signal
import subprocess
import sys
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp
import zarr
from tests.readers.conftest import NAMED

from sketchselect import open_matrix
from sketchselect.errors import BadParameter, EmptyInput, NotOurFolder, SketchSelectError, SourceError
from sketchselect.location import Location
from sketchselect.readers import convert, open_vector
from sketchselect.readers.text import CsvRows
from sketchselect.testing.readers import MatrixConformance

NAMES = tuple(f"c{i}" for i in range(17))


def leftovers(folder):
    return sorted(p.name for p in folder.iterdir() if p.name.endswith(".partial"))


@pytest.mark.share(6)
def test_every_source(any_source, values, tmp_path, request):
    seen = []
    out = convert(any_source, tmp_path / "out.zarr", progress=lambda done, total: seen.append((done, total)))
    assert out == tmp_path / "out.zarr"
    matrix = open_matrix(out)
    MatrixConformance(matrix, values, NAMED.get(request.node.callspec.params["any_source"])).verify()
    assert matrix.notes == ()
    assert seen[-1] == (103, 103)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("chunks", ["10x4", (10, 4), "10 X 4"])
def test_chunks_and_names(write, values, tmp_path, chunks):
    out = convert(write(values), tmp_path / "out.zarr", chunks=chunks, feature_names=NAMES)
    array = zarr.open_array(str(out), mode="r")
    assert array.chunks == (10, 4)
    MatrixConformance(open_matrix(out), values, NAMES).verify()
    again = convert(out, tmp_path / "again.zarr", chunks="1000x1000")
    assert zarr.open_array(str(again), mode="r").chunks == (103, 17)
    assert open_matrix(again).feature_names == NAMES


def test_default_chunks_fit_the_default_partition(tmp_path):
    from sketchselect.readers import row_partitions

    for dtype, shape in (("f8", (70000, 40)), ("u1", (70000, 784)), ("f4", (3, 3_000_000))):
        out = convert(np.zeros((2, 2)), tmp_path / "x.zarr")
        assert out.is_dir()
        matrix = open_matrix(convert(np.broadcast_to(np.zeros(1, dtype), shape), tmp_path / f"{dtype}.zarr"))
        chunk = np.prod(matrix.describe()["chunks"])
        assert chunk <= 2 << 20
        assert chunk > 1 << 20 or shape[0] < 10
        assert row_partitions(matrix).read_amplification == 1


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", ">f8"])
def test_the_type_is_kept(tmp_path, dtype):
    numbers = (np.arange(60).reshape(20, 3) % 2).astype(dtype)
    numbers[7:14] = 0
    out = convert(numbers, tmp_path / "a.zarr", chunks=(7, 2))
    assert open_matrix(out).dtype == np.dtype(dtype).newbyteorder("=")
    assert np.array_equal(zarr.open_array(str(out), mode="r")[:], numbers)


def test_files_on_disk_are_as_promised(tmp_path):
    out = convert(np.zeros((50, 4)), tmp_path / "a.zarr", chunks=(10, 2))
    assert len([p for p in (out / "c").rglob("*") if p.is_file()]) == 10
    array = zarr.open_array(str(out), mode="r")
    assert {*array.attrs["sketchselect"]} == {"empty_chunks", "chunks", "document", "rows"}
    assert array.attrs["sketchselect"]["empty_chunks"] == "written"
    assert array.compressors[0].checksum is True
    assert array.metadata.zarr_format == 3


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("header", [True, False])
def test_text(values, tmp_path, delimiter, header):
    path = tmp_path / "a.csv"
    np.savetxt(
        path, values, delimiter=delimiter, fmt="%.9g", header=delimiter.join(NAMES) if header else "", comments=""
    )
    seen = []
    out = convert(path, tmp_path / "out.zarr", chunks=(20, 17), progress=lambda *n: seen.append(n))
    MatrixConformance(open_matrix(out), values.astype(float).astype("f4").astype(float), NAMES if header else None)
    got = open_matrix(out)
    assert got.dtype == np.float64
    assert np.array_equal(got.read_rows(0, 103).astype("f4"), values)
    assert got.feature_names == (NAMES if header else None)
    assert seen[-1] == (103, 103)


def test_awkward_text(tmp_path, monkeypatch):
    monkeypatch.setattr("sketchselect.readers.writing.BLOCK_BYTES", 32)
    lines = b'\xef\xbb\xbf"height, cm",weight\r\n1,"2.5"\r\n\r\n 3 ,-4e2\r\n\r\n\r\nnan,inf\r\n5,6'
    (tmp_path / "a.csv").write_bytes(lines)
    with gzip.open(tmp_path / "b.csv.gz", "wb") as file:
        file.write(lines)
    for name in ("a.csv", "b.csv.gz"):
        matrix = open_matrix(convert(tmp_path / name, tmp_path / "out.zarr", chunks=(1, 2)))
        assert matrix.feature_names == ("height, cm", "weight")
        expected = [[1, 2.5], [3, -400], [np.nan, np.inf], [5, 6]]
        assert np.array_equal(matrix.read_rows(0, 4), expected, equal_nan=True)
        assert matrix.shape == (4, 2)


def test_a_field_may_be_longer_than_the_usual_limit_of_csv(tmp_path):
    (tmp_path / "rows.csv").write_text(
        "a,story,b\n" + "".join(f"{i}.5,{'x' * 140_000},0.{'0' * 140_000}1\n" for i in range(3))
    )
    with pytest.warns(UserWarning, match="story"):
        matrix = open_matrix(convert(tmp_path / "rows.csv", tmp_path / "rows.zarr"))
    assert matrix.feature_names == ("a", "b")
    assert np.array_equal(matrix.read_rows(0, 3), [[0.5, 0], [1.5, 0], [2.5, 0]])


def test_columns_left_out_of_text(tmp_path):
    path = tmp_path / "a.csv"
    lines = [f"{1000 + 3 * i},{i % 5},{'' if i == 7 else i / 2},{i * i % 11}" for i in range(30)]
    path.write_text("\n".join(["id,a,outcome,b", *lines]))
    with (
        pytest.warns(UserWarning, match=r"'id' rises by whole numbers.*key=\"-id\""),
        pytest.warns(match="1 field is missing"),
    ):
        assert open_matrix(convert(path, tmp_path / "all.zarr")).feature_names == ("id", "a", "outcome", "b")
    with pytest.warns(UserWarning, match="2 of 4 columns are left out") as caught:
        matrix = open_matrix(convert(path, tmp_path / "out.zarr", key="-outcome, id"))
    assert len(caught) == 1
    assert matrix.feature_names == ("a", "b")
    assert np.array_equal(matrix.read_rows(0, 30), [[i % 5, i * i % 11] for i in range(30)])
    outcome = zarr.open_array(tmp_path / "out.zarr" / "obs" / "outcome", mode="r")[:]
    assert np.array_equal(outcome, [np.nan if i == 7 else i / 2 for i in range(30)], equal_nan=True)
    names = zarr.open_array(tmp_path / "out.zarr" / "obs" / "id", mode="r")[:]
    assert list(names) == [str(1000 + 3 * i) for i in range(30)]
    with pytest.raises(BadParameter, match="no column is named 'no'; the first line has the names"):
        convert(path, tmp_path / "no.zarr", key="-no")
    with pytest.raises(BadParameter, match="no column is named 'outcom'; did you mean 'outcome'"):
        convert(path, tmp_path / "no.zarr", key="-id,-outcom")
    path.write_text("\n".join(['"id, no",a,outcome,b', *lines]))
    with pytest.warns(UserWarning, match=r"key='-\"id, no\"'"), pytest.warns(match="1 field is missing"):
        convert(path, tmp_path / "all.zarr")
    with pytest.warns(UserWarning, match="1 of 4 columns is left out"), pytest.warns(match="1 field is missing"):
        assert open_matrix(convert(path, tmp_path / "out.zarr", key='-"id, no"')).feature_names == ("a", "outcome", "b")
    with pytest.raises(BadParameter, match="'id, no' has a comma, and stands in quotation marks"):
        convert(path, tmp_path / "no.zarr", key="-id, no")
    with pytest.raises(SourceError, match="'id, no' has a comma, and stands in quotation marks"):
        open_matrix(tmp_path / "all.zarr", key="-id, no")


ROWS = [[1, 2, 3], [4, 5, 6], [7, 8, 9.0]]
DIALECTS = {
    "a table of pandas with its index, without names": (",0,1,2\n0,1,2,3\n1,4,5,6\n2,7,8,9\n", ("0", "1", "2")),
    "spaces": ("1.0 2.0  3.0\n4 5 6\n7 8 9\n", None),
    "spaces and quotation marks": ('"a" "b c"  d\n"1" 2 3\n4 5 "6"\n7 8 9\n', ("a", "b c", "d")),
    "bars": ("a|b|c\n1|2|3\n4|5|6\n7|8|9\n", "abc"),
    "a separator at the end": ("a,b,c,\n1,2,3,\n4,5,6,\n7,8,9,\n", "abc"),
    "spaces before quotation marks": ('a, "b", c\n1, "2", 3\n4, "5", 6\n7, "8", 9\n', "abc"),
    "commas in quoted names": ('"a, x";"b, y, z";c\n1;2;3\n4;5;6\n7;8;9\n', ("a, x", "b, y, z", "c")),
    "commas in names between tabs": ("a, x\tb, y, z\tc\n1\t2\t3\n4\t5\t6\n7\t8\t9\n", ("a, x", "b, y, z", "c")),
    "tabs between quoted fields": ('"a"\t"b"\t"c"\n"1"\t"2"\t"3"\n"4"\t"5"\t"6"\n"7"\t"8"\t"9"\n', "abc"),
    "a line of white space": ("a;b;c\n\t\t\n1;2;3\n4;5;6\n7;8;9\n", "abc"),
    "a line separator in a name": ("a\u2028x\tb\tc\n1\t2\t3\n4\t5\t6\n7\t8\t9\n", ("a\u2028x", "b", "c")),
    "a line break in a name": ('"a\nx",b,c\n1,2,3\n4,5,6\n7,8,9\n', ("a\nx", "b", "c")),
    "carriage returns": ("a,b,c\r1,2,3\r4,5,6\r7,8,9\r", "abc"),
    "line ends of all kinds": ("a,b,c\n1,2,3\r4,5,6\n7,8,9\r\n", "abc"),
    "line breaks beside numbers": ('a,b,c\n1,2,"3\n"\n4,5,6\n7,8,"\n\n9"\n', "abc"),
    "line breaks in fields": ('id,a,b,c\n"x\ny",1,2,3\n"z\n\nw",4,5,6\nk,7,8,9\n', "abc"),
    "line breaks in last fields": ('a,b,c,id\n1,2,3,"x\ny"\n4,5,6,"z\n\nw"\n7,8,9,k\n', "abc"),
}


@pytest.mark.filterwarnings("ignore:.*is text and not used")
@pytest.mark.parametrize("name", DIALECTS)
def test_dialects_of_text(tmp_path, monkeypatch, name):
    monkeypatch.setattr("sketchselect.readers.writing.BLOCK_BYTES", 32)
    content, names = DIALECTS[name]
    (tmp_path / "a.csv").write_text(content, newline="")
    out = convert(tmp_path / "a.csv", tmp_path / "out.zarr", chunks=(1, 4))
    matrix = open_matrix(out, key="X" if (out / "X").exists() else None)
    assert np.array_equal(matrix.read_rows(0, matrix.shape[0]), ROWS)
    assert matrix.feature_names == (None if names is None else tuple(names))


@pytest.mark.filterwarnings("ignore:.*is text and not used")
@pytest.mark.parametrize(
    ("content", "part"),
    [("0,1,2\n5,6,1\n", "read as a row"), ("a;b;c\n1,5;2;3\n4,5;5;6\n", "looks like numbers in 'a'")],
)
def test_text_that_may_mean_something_else_is_a_warning(tmp_path, content, part):
    (tmp_path / "a.csv").write_text(content)
    with pytest.warns(UserWarning, match=part):
        convert(tmp_path / "a.csv", tmp_path / "out.zarr")


@pytest.mark.filterwarnings("ignore:.*(is|are) text and not used")
@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (["-", *["1.5"] * 999], "'x': 999 of 1,000 values are numbers; '-' in line 2 is not.*leave it empty"),
        (["?", *["1.5"] * 49] * 20, "'x': 980 of 1,000 values are numbers; '\\?' in line 2 is not"),
        (["?", "1.5", "NA"] * 400, "'x': 400 of 800 values are numbers; '\\?' in line 2 is not"),
        (["none yet", *["1.5"] * 1999], "'x': 1,999 of 2,000 values are numbers; that in line 2 is not"),
    ],
    ids=["first row", "every 50th", "half", "words"],
)
def test_a_column_that_one_sign_makes_text_is_a_warning(tmp_path, fields, says):
    (tmp_path / "a.csv").write_text("a,x,b,y\n" + "".join(f"{i / 8},{x},{i / 4},{x}\n" for i, x in enumerate(fields)))
    with pytest.warns(UserWarning, match=f"{says}.*; likewise in 'y'"):
        convert(tmp_path / "a.csv", tmp_path / "out.zarr")


@pytest.mark.parametrize(
    "fields", [["a1", "2", "b"] * 400 + ["3"] * 5000, ["m", "f"] * 50, ["x", "y", *["1"] * 8]], ids=len
)
def test_words_with_some_numbers_are_no_numbers(tmp_path, fields):
    (tmp_path / "a.csv").write_text("a,x\n" + "".join(f"{i / 8},{x}\n" for i, x in enumerate(fields)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        convert(tmp_path / "a.csv", tmp_path / "out.zarr")
    assert not any("are numbers" in str(warning.message) for warning in caught)


BAD_TEXT = [
    (b"1,5;2,5;3,5\n4,1;5,1;6,1\n", ["no column holds numbers", "';'", 'decimal=","']),
    (b"sep=;\na;b\n1;2\n", ["remove the lines before"]),
    (b'id,a\nx,1\n"y,2\nz,3\n', ["line 3", "not closed"]),
    (b'a,id\n1,x\n2,"y\n3,z\n', ["line 3", "not closed"]),
    (b"a,b\n1,2\n3,secret\n", ["line 3", "column 2 ('b')", "is not a number"]),
    (b"1,2\n3,secret\n", ["line 2", "column 2 is not"]),
    (b"a,b\n1,2\n3\n", ["line 3 has 1 field", "first line has 2"]),
    (b"a,b\n1,2,3\n", ["line 2 has 3 fields"]),
    (b"a,b\n1,2\n1,1_000\n", ["line 3", "column 2"]),
    (b"a,b\n1,\n\n1,2\n1,1+2j\n", ["line 5", "column 2"]),
    (b"a,b\n" + b"1,2\n" * 5000 + b"1,secret\n", ["line 5002", "column 2"]),
    (b"a,b\n1,\xff\n", ["UTF-8"]),
]


@pytest.mark.parametrize(("content", "parts"), BAD_TEXT)
def test_bad_text_names_line_and_column_and_leaves_nothing(tmp_path, content, parts):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(SourceError) as caught:
        convert(tmp_path / "a.csv", tmp_path / "out.zarr", chunks="100x2")
    for part in ["a.csv", *parts]:
        assert part in str(caught.value)
    assert "secret" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["a.csv"]


@pytest.mark.parametrize("content", [b"", b"\n1,2\n", b"a,b\n"])
def test_text_without_rows(tmp_path, content):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(EmptyInput, match=r"a\.csv"):
        convert(tmp_path / "a.csv", tmp_path / "out.zarr")


def test_matrix_market(tmp_path):
    m = sp.random(60, 9, 0.2, format="coo", random_state=0)
    symmetric = sp.coo_array(m.T @ m)
    pattern = sp.coo_array((np.ones(2), ([0, 1], [1, 2])), shape=(3, 3))
    scipy.io.mmwrite(tmp_path / "s.mtx", m)
    scipy.io.mmwrite(tmp_path / "y.mtx", symmetric, symmetry="symmetric")
    scipy.io.mmwrite(tmp_path / "p.mtx", pattern, field="pattern")
    scipy.io.mmwrite(tmp_path / "d.mtx", m.toarray())
    for name, reference in (
        ("s", m.toarray()),
        ("y", symmetric.toarray()),
        ("p", pattern.toarray()),
        ("d", m.toarray()),
    ):
        matrix = open_matrix(convert(tmp_path / f"{name}.mtx", tmp_path / "out.zarr"))
        rows = matrix.read_rows(0, matrix.shape[0])
        assert np.allclose(rows if name == "d" else rows.toarray(), reference, rtol=1e-14)
    scipy.io.mmwrite(tmp_path / "c.mtx", m * 1j)
    (tmp_path / "j.mtx").write_text("%%MatrixMarket matrix coordinate real general\n3 3 9\n1 1")
    for name, part in (("c", "complex128"), ("j", "line 3 must be row, column"), ("none", "no such file")):
        with pytest.raises(SourceError, match=part):
            convert(tmp_path / f"{name}.mtx", tmp_path / "bad.zarr")


@pytest.mark.parametrize(
    ("kind", "lines", "number"),
    [
        ("coordinate real", ["3 2 2", "1 1 1.5", "2 2 1D5"], 5),
        ("coordinate real", ["3 2 2", "1 1 1,5", "2 2 1"], 4),
        ("coordinate real", ["3 2 2", "1 1 1.5", "", "2 2 1 000"], 6),
        ("coordinate integer", ["3 2 1", "1 1 1e+05"], 4),
        ("coordinate integer", ["3 2 1", "1 1 0x10"], 4),
        ("coordinate pattern", ["3 2 1", "1 1 7"], 4),
        ("array integer", ["2 1", "1", "2e-1"], 5),
        ("array real", ["2 1", "1.2.3", "2"], 4),
    ],
    ids=str,
)
def test_matrix_market_numbers_are_taken_whole(kind, lines, number, tmp_path):
    path = tmp_path / "m.mtx"
    path.write_text(f"%%MatrixMarket matrix {kind} general\n% 1 1 1\n" + "\n".join(lines) + "\n")
    with pytest.raises(SourceError, match=f"line {number} must be "):
        open_matrix(path)


def test_every_notation_of_matrix_market_is_taken(tmp_path):
    path = tmp_path / "m.mtx"
    entries = "1 1 -.5\r\n 2\t1  3.\r\n\r\n3 1 1E-2 \r\n1 2 NaN\r\n2 2 -inf\r\n3 2 7"
    path.write_bytes(b"%%MatrixMarket matrix coordinate real general\r\n3 2 6\r\n" + entries.encode())
    rows = open_matrix(path, nonfinite="missing").read_rows(0, 3).toarray()
    np.testing.assert_array_equal(rows, [[-0.5, np.nan], [3, -np.inf], [0.01, 7]])


def test_what_is_not_ours_is_never_overwritten(write, values, tmp_path):
    foreign = write(values, "theirs.zarr")
    (tmp_path / "file").write_text("precious")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.txt").write_text("precious")
    (tmp_path / "empty").mkdir()
    ours = convert(values, tmp_path / "ours.zarr")
    (tmp_path / "link").symlink_to(ours)
    before = sorted(str(p) for p in tmp_path.rglob("*"))
    for name in ("theirs.zarr", "file", "folder", "empty", "link"):
        with pytest.raises(NotOurFolder, match=name):
            convert(values, tmp_path / name)
    assert sorted(str(p) for p in tmp_path.rglob("*")) == before
    assert np.array_equal(open_matrix(foreign).read_rows(0, 103), values)
    convert(2 * values, ours)
    assert np.array_equal(open_matrix(ours).read_rows(0, 103), 2 * values)


def test_bad_arguments(write, values, tmp_path):
    path = write(values)
    for chunks in ("10", "0x4", "10x", "axb", (0, 4), (1, 2, 3), (1.5, 2), 7, [True, 3]):
        with pytest.raises(BadParameter, match="ROWSxCOLS"):
            convert(path, tmp_path / "out.zarr", chunks=chunks)
    with pytest.raises(BadParameter, match="17 texts"):
        convert(path, tmp_path / "out.zarr", feature_names=["a"])
    with pytest.raises(BadParameter, match="different folders"):
        convert(convert(path, tmp_path / "o.zarr"), tmp_path / "o.zarr")
    with pytest.raises(BadParameter, match="does not exist"):
        convert(path, tmp_path / "no" / "out.zarr")
    with pytest.raises(BadParameter, match="web servers take no files"):
        convert(path, "https://host/out.zarr", storage_options={"allow_http": True})
    with pytest.raises(SourceError, match="a whole bucket; name a folder in it"):
        convert(path, "s3://bucket")
    with pytest.raises(BadParameter, match="only leave columns out"):
        convert(tmp_path / "a.csv", tmp_path / "out.zarr", key="X")
    assert not (tmp_path / "out.zarr").exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a bug"), OSError(28, "No space left on device")])
def test_an_interrupted_convert_leaves_nothing(values, tmp_path, error):
    def fail(done, total):
        raise error

    ours = convert(values, tmp_path / "ours.zarr")
    for target in (tmp_path / "new.zarr", ours):
        expected = SketchSelectError if isinstance(error, OSError) else type(error)
        with pytest.raises(expected, match="No space left" if isinstance(error, OSError) else None):
            convert(3 * values, target, chunks=(10, 17), progress=fail)
    assert [p.name for p in tmp_path.iterdir()] == ["ours.zarr"]
    assert np.array_equal(open_matrix(ours).read_rows(0, 103), values)


KILLED = """
import os, signal, sys
import numpy as np
import sketchselect.readers.writing as module
module.BAND_BYTES = 1
def progress(done, total):
    if done >= 40:
        os.kill(os.getpid(), signal.SIGKILL)
module.convert(np.load(sys.argv[1]), sys.argv[2], chunks=(10, 17), progress=progress)
"""


def test_killed_in_the_middle(values, tmp_path):
    np.save(tmp_path / "a.npy", values)
    target = tmp_path / "out.zarr"
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "a.npy", target], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not target.exists()
    assert len(leftovers(tmp_path)) == 1
    foreign = tmp_path / ".out.zarr.otherhost.1.abcd.partial"
    foreign.mkdir()
    convert(tmp_path / "a.npy", target)
    assert np.array_equal(open_matrix(target).read_rows(0, 103), values)
    assert leftovers(tmp_path) == [foreign.name], "only what a dead process of this machine left is removed"
    assert os.path.exists(foreign)


def test_a_text_column_of_a_converted_file_is_suggested_by_its_place(tmp_path):
    (tmp_path / "days.csv").write_text("when,a,b\n2026-01-01,1,2.5\n2026-01-01,3,4.5\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        convert(tmp_path / "days.csv", tmp_path / "days.zarr")
    with pytest.raises(SourceError, match="did you mean 'obs/when'"):
        open_vector("when", 2, matrix=open_matrix(tmp_path / "days.zarr"), name="dates", dates=True)


@pytest.mark.slow
def test_eight_times_the_rows_of_a_table_take_no_more_memory(tmp_path, monkeypatch):
    """Fields of text are many times as large as their numbers, and so not all of a block are split at once."""
    monkeypatch.setattr("sketchselect.readers.text._MOST_FIELDS", 1 << 14)
    peaks = []
    for n_rows in (10_000, 80_000):
        lines = "".join(f'{10**6 + i},2,"m{10**6 + i}"\n' for i in range(n_rows))
        (tmp_path / "t.csv").write_text(f"a,b,town\n{lines}")
        rows = CsvRows(Location(str(tmp_path / "t.csv")))
        tracemalloc.start()
        assert sum(len(block) for block, _ in rows.partitions(10**6)) == n_rows
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 2 * peaks[0]  # other objects of this process are in it


def test_a_line_of_units_under_the_names_is_refused_with_what_to_do(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,length,weight\n-,m,kg\na,1,2\nb,3,4\n")
    with pytest.raises(SourceError, match=r"line 2 has no number, as 'm' in 'length', and line 3 has 2; .*skiprows"):
        convert(path, tmp_path / "t.zarr")


@pytest.mark.parametrize("first", ["NA,NA,NA", "a,,", "a,NA,<0.1"])
def test_a_first_line_of_missing_values_is_no_line_of_units(tmp_path, first):
    path = tmp_path / "t.csv"
    path.write_text(f"id,x,y\n{first}\nb,2,3\nc,5,6\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        convert(path, tmp_path / "t.zarr")
    assert open_matrix(tmp_path / "t.zarr").shape[0] == 3


def test_folders_and_patterns_of_text_files_are_refused_with_what_to_do(tmp_path):
    folder = tmp_path / "tables"
    folder.mkdir()
    for name in ("a.csv", "b.csv", "notes.md"):
        (folder / name).write_text("x,y\n1,2\n")
    with pytest.raises(SourceError, match=r"a folder of 2 text files, such as 'a\.csv'; .*to_parquet"):
        convert(folder, tmp_path / "t.zarr")
    with pytest.raises(SourceError, match=r"\*\.csv: .*patterns are not read"):
        convert(folder / "*.csv", tmp_path / "t.zarr")


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_decimal_commas_in_most_columns_are_refused_with_what_to_do(tmp_path, separator):
    path = tmp_path / "t.csv"
    path.write_text("id;a;b\n1;1,5;2,5\n2;0,25;3\n".replace(";", separator))
    cure = '2 of 3 columns begin with a number with a comma; .*decimal="," (--decimal ,)'
    with pytest.raises(SourceError, match=re.escape(cure).replace(re.escape(".*"), ".*")):
        convert(path, tmp_path / "t.zarr")
    read = open_matrix(convert(path, tmp_path / "t.zarr", decimal=",")).read_rows(0, 2)
    assert np.array_equal(read, pd.read_csv(path, sep=separator, decimal=","))


@pytest.mark.filterwarnings("ignore:.*text|.*missing")
def test_decimal_commas_are_read_as_pandas_reads_them(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('id;a;"b;c";mass;note;left\nP1;-1,5e3;,5;NA;1.234,5;7,25\nP2;+0,25;3;2,5;x;8\n')
    expected = pd.read_csv(path, sep=";", decimal=",")
    store = convert(path, tmp_path / "t.zarr", decimal=",", key="-left")
    matrix = open_matrix(store)
    assert matrix.feature_names == ("a", "b;c", "mass")
    assert np.array_equal(zarr.open_array(store / "X", mode="r")[:], expected[["a", "b;c", "mass"]], equal_nan=True)
    assert open_vector("obs/left", 2, matrix=matrix).read(0, 2).tolist() == [7.25, 8.0]
    assert open_vector("obs/note", 2, matrix=matrix).read(0, 2).tolist() == ["1.234,5", "x"]


@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        ("1,5\t2,5\n3,5\t4,5\n", None, [[1.5, 2.5], [3.5, 4.5]]),
        ("a b\n1,5 2,5\n3 4\n", ("a", "b"), [[1.5, 2.5], [3, 4]]),
        ("1,5\n3,5\n", None, [[1.5], [3.5]]),
        ("a\n1,5\n3,5\n", ("a",), [[1.5], [3.5]]),
        ("a,x,y;b,z\n1,5;2\n3;4\n", ("a,x,y", "b,z"), [[1.5, 2], [3, 4]]),
        ('a, b\n"1,5", "2,5"\n3, 4\n', ("a", "b"), [[1.5, 2.5], [3, 4]]),
        ("a, b\n1, 2\n3, 4\n", ("a", "b"), [[1, 2], [3, 4]]),
    ],
)
def test_decimal_commas_are_no_separators(tmp_path, text, names, rows):
    (tmp_path / "t.csv").write_text(text)
    matrix = open_matrix(convert(tmp_path / "t.csv", tmp_path / "t.zarr", decimal=","))
    assert matrix.feature_names == names
    assert matrix.read_rows(0, 2).tolist() == rows


@pytest.mark.filterwarnings("ignore:.*1 of 2 columns is text")
def test_columns_that_are_no_numbers_are_said_with_the_decimal_sign_of_the_others(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a;b\n1.234,5;2,5\n2.345,6;4\n")
    with pytest.warns(UserWarning, match=r"written as 1234,5 \(decimal comma"):
        convert(path, tmp_path / "t.zarr", decimal=",")
    path.write_text("a;b\n1.5;2.5\n2.5;4.5\n")
    with pytest.raises(SourceError, match=r"no column holds numbers.*leave decimal out"):
        convert(path, tmp_path / "t.zarr", decimal=",")


def test_a_point_is_no_number_where_decimals_follow_a_comma(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a;b\n1,5;2\n1.500;3\n")
    with pytest.raises(SourceError, match=r"line 3, column 1 \('a'\) is not a number"):
        convert(path, tmp_path / "t.zarr", decimal=",")
    with pytest.raises(BadParameter, match="decimal must be"):
        convert(path, tmp_path / "t.zarr", decimal=";")
    np.save(tmp_path / "t.npy", np.ones((2, 2)))
    with pytest.raises(BadParameter, match="decimal goes with text files alone"):
        convert(tmp_path / "t.npy", tmp_path / "t.zarr", decimal=",")
    with pytest.raises(BadParameter, match="not with an object"):
        convert(np.ones((2, 2)), tmp_path / "t.zarr", decimal=",")


@pytest.mark.filterwarnings("ignore:.*rise by whole numbers", "ignore:.*text", "ignore:.*left out")
def test_commas_are_looked_for_in_the_columns_that_are_read_alone(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('id;a;b\n1;"1,5";"2,7"\n2;"1,5";"2,0"\n')
    left = convert(path, tmp_path / "left.zarr", key="-a,-b")
    assert np.array_equal(open_matrix(left).read_rows(0, 2), [[1], [2]])
    # A row of more lines than are looked at first.
    path.write_text('id,abstract,score\n1,"' + "line\n" * 30 + '",1\n2,q,2\n')
    long = convert(path, tmp_path / "long.zarr")
    assert np.array_equal(open_matrix(long).read_rows(0, 2), [[1, 1], [2, 2]])


@pytest.mark.parametrize(
    "index",
    [
        pd.date_range("2024-01-01", periods=3),
        pd.MultiIndex.from_arrays([["a", "a", "b"], [0, 1, 0]]),
        pd.Index(["a", None, "b"]),
        pd.Index([0.5, 1.5, 2.5]),
    ],
    ids=["dates", "levels", "missing", "floats"],
)
@pytest.mark.parametrize("kind", ["dask", "arrow"])
def test_an_index_in_dask_or_arrow_without_a_title_is_not_left_out_in_silence(index, kind, tmp_path):
    frame = pd.DataFrame(np.eye(3), columns=["x", "y", "z"], index=index)
    if kind == "dask":
        module = pytest.importorskip("dask.dataframe")
        source = module.from_map(lambda part: part, [frame.iloc[:2], frame.iloc[2:]], meta=frame.iloc[:0])
        cure = "in Dask, frame.map_partitions"
    else:
        source, cure = pytest.importorskip("pyarrow").Table.from_pandas(frame), r"frame = table\.to_pandas\(\)"
    with pytest.warns(UserWarning, match=f"the index, the names of the rows, is not in the store.*{cure}"):
        assert open_matrix(convert(source, tmp_path / "out.zarr")).row_names is None


def test_rows_that_pandas_or_dask_numbered_have_no_names_to_lose(tmp_path):
    module, pyarrow = pytest.importorskip("dask.dataframe"), pytest.importorskip("pyarrow")
    frame = pd.DataFrame(np.eye(3), columns=["x", "y", "z"])
    dated = pyarrow.Table.from_pandas(frame.set_axis(pd.date_range("2024-01-01", periods=3)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for source in (
            pyarrow.Table.from_pandas(frame),
            dated.select(["x", "y"]),
            module.from_pandas(frame, npartitions=2),
            module.concat([module.from_pandas(frame, npartitions=1)] * 2),
        ):
            convert(source, tmp_path / "out.zarr")


@pytest.mark.parametrize("index", [["a", "b", "c"], pd.RangeIndex(5, 8)], ids=["text", "range"])
def test_a_title_of_an_index_in_arrow_is_said(index, tmp_path):
    frame = pd.DataFrame(np.eye(3), columns=["x", "y", "id"], index=pd.Index(index, name="id"))
    table = pytest.importorskip("pyarrow").Table.from_pandas(frame.rename(columns={"id": "z"}))
    with pytest.warns(UserWarning, match="the index 'id', the names of the rows, is not in the store"):
        convert(table, tmp_path / "out.zarr")
    if isinstance(index, pd.RangeIndex):  # a column of the same name is a feature
        table = pytest.importorskip("pyarrow").Table.from_pandas(frame)
        assert open_matrix(table).feature_names == ("x", "y", "id")


@pytest.mark.parametrize(
    "index",
    [
        pd.date_range("2024-01-01", periods=3),
        pd.MultiIndex.from_arrays([["a", "a", "b"], [0, 1, 0]]),
        pd.Index(["a", None, "b"]),
        pd.Index([0.5, 1.5, 2.5]),
    ],
    ids=["dates", "levels", "missing", "floats"],
)
@pytest.mark.parametrize("to_file", [False, True], ids=["frame", "Parquet"])
def test_an_index_without_a_title_is_not_left_out_in_silence(index, to_file, tmp_path):
    frame = pd.DataFrame(np.eye(3), columns=["x", "y", "z"], index=index)
    source = frame
    if to_file:
        source = tmp_path / "rows.parquet"
        frame.to_parquet(source)
    with pytest.warns(UserWarning, match=r"the index, the names of the rows, is not in the store.*index\.map\(str\)"):
        convert(source, tmp_path / "out.zarr")
    frame.index = frame.index.map(str)
    named = open_matrix(convert(frame, tmp_path / "named.zarr"))
    assert named.row_names.read(0, 3).tolist() == list(frame.index)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("größe,b\n1,2\n3,4\n".encode("utf-16"), "the text is in UTF-16, .*; save it again in UTF-8 .iconv -f UTF-16 "),
        ("größe,b\n1,2\n".encode("utf-16-le"), "the text is in UTF-16LE, .*iconv -f UTF-16LE -t UTF-8"),
        ("1.5,2\n3.5,4\n".encode("utf-16-be"), "the text is in UTF-16BE, "),
        ("a,b\n1,2\n".encode("utf-32"), "the text is in UTF-32, "),
        ("größe,b\n1,2\n".encode("latin-1"), r"line 1 is not in UTF-8 \(byte 0xf6\), as of text in Latin-1"),
        (b"a,b\n" + b"1,2\n" * 9000 + "1,é\n".encode("cp1252"), r"line 9002 is not in UTF-8 \(byte 0xe9\)"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_text_in_another_encoding_is_told_which(content, says, packed, tmp_path):
    path = tmp_path / ("rows.csv.gz" if packed else "rows.csv")
    path.write_bytes(gzip.compress(content) if packed else content)
    for read in (lambda: convert(path, tmp_path / "rows.zarr"), lambda: open_vector(path, None, name="b")):
        with pytest.raises(SourceError, match=rf"rows\.csv.*: {says}"):
            read()


@pytest.mark.filterwarnings("ignore:.*is text and not used as features")
@pytest.mark.parametrize("n_rows", [2, 5000])
@pytest.mark.parametrize(
    "pattern",
    ["{0},1.5\n", "{0}.5,1.5\n", "{0}.5 1.5\n", '"{0}.5",1.5\n', "{0}.5\n"],
    ids=["names", "", " ", '"', "one"],
)
def test_a_mark_where_two_files_were_joined_is_named(pattern, n_rows, tmp_path):
    path = tmp_path / "rows.csv"
    rows = "".join(pattern.format(f"row {i}" if pattern.startswith("{0},") else i) for i in range(n_rows))
    path.write_text(rows + rows, encoding="utf-8")
    open_vector(path, None, name="b") if "," not in rows and " " not in rows else convert(path, tmp_path / "one.zarr")
    path.write_text("\ufeff" + rows + "\ufeff" + rows, encoding="utf-8")
    says = rf"rows\.csv: line {n_rows + 1} begins, in column 1, with a byte order mark .*joined; remove it"
    for read in (lambda: convert(path, tmp_path / "rows.zarr"), lambda: open_vector(path, None, name="b")):
        with pytest.raises(SourceError, match=says):
            read()


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_any_end_of_line_and_a_mark_at_the_start_are_read(end, mark, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(mark + end.join(["größe,b", "1.5,2", "3.5,4", ""]).encode())
    matrix = open_matrix(convert(path, tmp_path / "rows.zarr"))
    assert matrix.feature_names == ("größe", "b")
    assert matrix.read_rows(0, 2).tolist() == [[1.5, 2], [3.5, 4]]
