# ruff: noqa: E501 (the table is one row per way to be wrong)
"""Bad input: the class of the error, and that its one line names the thing. One row per way to be wrong."""

import json
import os
from functools import partial

import h5py
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import zarr

from sketchselect import Moments, open_matrix, summarize
from sketchselect.cluster import KMeans
from sketchselect.errors import BadParameter, EmptyInput, SketchSelectError, SourceError, SourceMissing
from sketchselect.readers import open_vector
from sketchselect.readers.zarr import metadata as zarr_metadata
from sketchselect.selectors import GreedySelector

GOOD = np.arange(12.0).reshape(4, 3)


def store(values=GOOD, name="a.zarr", **options):
    def make(folder):
        zarr.create_array(str(folder / name), data=np.asarray(values), **options)
        return folder / name

    return make


def edited(*path, value, name="zarr.json", version=3):
    """Make a good store, then change one entry of its metadata."""

    def make(folder):
        store(zarr_format=version)(folder)
        file = folder / "a.zarr" / name
        document = json.loads(file.read_text())
        inner = document
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = value
        file.write_text(json.dumps(document))
        return folder / "a.zarr"

    return make


def text(content, name):
    def make(folder):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
        return folder / name.partition("/")[0]

    return make


def cut_metadata(folder):
    store()(folder)
    file = folder / "a.zarr" / "zarr.json"
    file.write_bytes(file.read_bytes()[:100])
    return folder / "a.zarr"


def group(folder):
    made = zarr.open_group(str(folder / "g.zarr"), mode="w")
    made.create_array("counts", data=GOOD)
    made.create_array("labels", data=np.arange(4))
    made.create_group("deep").create_array("X", data=GOOD.astype("f4"))
    return folder / "g.zarr"


def pipe(name):
    def make(folder):
        os.mkfifo(folder / name)
        return folder / name

    return make


def link(to):
    def make(folder):
        (folder / "a.npy").symlink_to(folder / to)
        return folder / "a.npy"

    return make


def no_array_in(folder):
    zarr.open_group(str(folder / "g.zarr"), mode="w")
    return folder / "g.zarr"


def near(folder):
    store()(folder)
    return folder / "a.zar"


def npy(values, cut=0):
    def make(folder):
        np.save(folder / "a.npy", values, allow_pickle=True)
        if cut:
            os.truncate(folder / "a.npy", (folder / "a.npy").stat().st_size - cut)
        return folder / "a.npy"

    return make


def npz(**arrays):
    def make(folder):
        np.savez(folder / "a.npz", **arrays)
        return folder / "a.npz"

    return make


def bad_csr(folder, **change):
    m = sp.csr_matrix(GOOD)
    parts = {"data": m.data, "indices": m.indices, "indptr": m.indptr, "shape": m.shape} | change
    np.savez(folder / "a.npz", **parts)
    return folder / "a.npz"


def huge_npy(folder):
    np.save(folder / "a.npy", GOOD)
    content = bytearray((folder / "a.npy").read_bytes())
    at = content.index(b"(4, 3), }")
    content[at : at + 17] = b"(400000000000, 3)"[:17]
    (folder / "a.npy").write_bytes(bytes(content).replace(b"3)    ", b"3), } "))
    return folder / "a.npy"


V2 = partial(edited, name=".zarray", version=2)
GRID = ("chunk_grid", "configuration", "chunk_shape")
DATES = np.zeros((2, 2), "M8[s]")
RECORDS = np.zeros((2, 2), [("a", "f4"), ("b", "i4")])
MASKED = np.ma.masked_equal(GOOD, 3)
TWO = {"A": GOOD, "B": GOOD}

# what, maker of the source, arguments of open_matrix, class, parts that the message must have
MARKET = b"%%MatrixMarket matrix coordinate integer general\n% 1.0\n"


def linked(target):
    def make(folder):
        with h5py.File(folder / "b.h5", "w") as other:
            other["m"] = GOOD
        with h5py.File(folder / "a.h5", "w") as file:
            file["e"] = h5py.ExternalLink("b.h5", "/")
            file["X"] = h5py.SoftLink(target)
        return folder / "a.h5"

    return make


def archive(**arrays):
    def make(folder):
        rows = sp.csr_matrix(GOOD)
        parts = {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr, "shape": rows.shape}
        np.savez(folder / "a.npz", **parts | arrays)
        return folder / "a.npz"

    return make


def encrypted(folder):
    np.savez(folder / "a.npz", X=GOOD)
    content = bytearray((folder / "a.npz").read_bytes())
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.find(mark) + place] |= 1
    (folder / "a.npz").write_bytes(content)
    return folder / "a.npz"


def misplaced(folder):
    rows = sp.coo_matrix(GOOD)
    rows.row[0] = 10**9
    return rows


CASES = [
    ("missing path", lambda d: d / "no-such.zarr", {}, SourceMissing, ["no-such.zarr", "no such file"]),
    ("missing folder", lambda d: d / "nowhere" / "x.zarr", {}, SourceMissing, ["nowhere", "nor the folder"]),
    ("misspelt path", near, {}, SourceMissing, ["a.zar:", "did you mean 'a.zarr'?"]),
    ("not zarr", lambda d: d, {}, SourceError, ["not a Zarr array", "nor a Parquet file; give a file such as"]),
    ("a text file", text(b"hello", "a.bin"), {}, SourceError, ["a.bin", "not a Zarr array", "known by this ending; write it as"]),
    ("feather", text(b"ARROW1", "a.feather"), {}, SourceError, ["a.feather", "not read in place; write it as Parquet", "read_feather('a.feather').to_parquet("]),
    ("arrow", text(b"ARROW1", "a.arrow"), {}, SourceError, ["a.arrow", "not read in place; write it as Parquet"]),
    ("csv", text(b"1,2\n", "a.csv"), {}, SourceError, ["sketchselect convert a.csv"]),
    ("hdf5", text(b"\x89HDF", "a.h5ad"), {"key": "X"}, SourceError, ["a.h5ad", "not an HDF5 file"]),
    ("missing csv", lambda d: d / "b.csv", {}, SourceMissing, ["no such file"]),
    ("1-D store", store(np.arange(5)), {}, SourceError, ["a.zarr", "two dimensions", "has 1 (shape 5)", "X[:, None]"]),
    ("3-D store", store(np.zeros((2, 3, 4))), {}, SourceError, ["has 3 (shape 2 x 3 x 4)"]),
    ("no rows", store(np.zeros((0, 3))), {}, EmptyInput, ["a.zarr", "0 x 3", "no rows"]),
    ("no columns", store(np.zeros((3, 0))), {}, EmptyInput, ["3 x 0", "no columns"]),
    ("complex", store(GOOD * 1j), {}, SourceError, ["complex128", "real part", "float64"]),
    ("dates", edited("data_type", value={"name": "numpy.datetime64", "configuration": {}}), {}, SourceError, ["datetime64", "dates into numbers"]),
    ("text v3", edited("data_type", value="string"), {}, SourceError, ["not real numbers", "text columns"]),
    ("object v2", V2("dtype", value="|O"), {}, SourceError, ["type object", "allowed are bool"]),
    ("text v2", V2("dtype", value="<U5"), {}, SourceError, ["<U5", "text columns"]),
    ("records v2", V2("dtype", value=[["a", "<f4"]]), {}, SourceError, ["not real numbers"]),
    ("unknown type", edited("data_type", value="bfloat17"), {}, SourceError, ["not real numbers"]),
    ("group", group, {}, SourceError, ["this is a group", "key=", "counts (4 x 3 float64)", "deep/X (4 x 3 float32)", "labels (4 int64)"]),
    ("empty group", no_array_in, {}, SourceError, ["without arrays"]),
    ("misspelt key", group, {"key": "count"}, SourceError, ["'count'", "did you mean 'counts'?"]),
    ("key of a group", group, {"key": "deep"}, SourceError, ["deep: this is a group", "deep/X"]),
    ("key of nothing", group, {"key": "zzz"}, SourceError, ["'zzz'", "arrays there: counts"]),
    ("1-D key", group, {"key": "labels"}, SourceError, ["g.zarr/labels", "has 1"]),
    ("key that leaves", group, {"key": "../x"}, SourceError, ["plain path inside"]),
    ("key of an array", store(), {"key": "X"}, SourceError, ["'X'", "leave key out"]),
    ("cut metadata", cut_metadata, {}, SourceError, ["zarr.json", "cut off (100 bytes)"]),
    ("metadata not json", text(b"\xff\xfe{}", "b.zarr/zarr.json"), {}, SourceError, ["zarr.json", "damaged"]),
    ("metadata a list", text(b"[1]", "b.zarr/zarr.json"), {}, SourceError, ["not a JSON object"]),
    ("metadata nested", text(b"[" * 100000, "b.zarr/zarr.json"), {}, SourceError, ["damaged"]),
    ("no node type", text(b"{}", "b.zarr/zarr.json"), {}, SourceError, ["no node type"]),
    ("no shape", text(b'{"node_type": "array", "zarr_format": 3}', "b.zarr/zarr.json"), {}, SourceError, ["metadata is damaged"]),
    ("format 99", V2("zarr_format", value=99), {}, SourceError, ["format 99"]),
    ("negative shape", edited("shape", value=[-4, 3]), {}, SourceError, ["is not a shape"]),
    ("shape of text", edited("shape", value=["4", 3]), {}, SourceError, ["is not a shape"]),
    ("zero chunk", edited(*GRID, value=[0, 3]), {}, SourceError, ["is not a shape"]),
    ("1-D chunk", edited(*GRID, value=[4]), {}, SourceError, ["metadata"]),
    ("huge chunk", edited(*GRID, value=[10**6, 10**6]), {}, SourceError, ["1000000 x 1000000", "limit is 4.00 GiB", "smaller chunks"]),
    ("1e11 chunks", edited("shape", value=[10**11, 3]), {}, SourceError, ["chunks of 4 x 3", "limit is 10000000"]),
    ("unknown codec", edited("codecs", value=[{"name": "bytes"}, {"name": "nonsense"}]), {}, SourceError, ["codec 'nonsense'"]),
    ("pickle codec v3", edited("codecs", value=[{"name": "numcodecs.pickle", "configuration": {}}]), {}, SourceError, ["'numcodecs.pickle'"]),
    ("pickle filter v2", V2("filters", value=[{"id": "pickle"}]), {}, SourceError, ["'pickle'"]),
    ("pickle compressor v2", V2("compressor", value={"id": "pickle", "protocol": 5}), {}, SourceError, ["'pickle'"]),
    ("codec inside a shard", edited("codecs", value=[{"name": "sharding_indexed", "configuration": {"chunk_shape": [2, 3], "codecs": [{"name": "evil"}]}}]), {}, SourceError, ["'evil'"]),
    ("other grid", edited("chunk_grid", "name", value="rectilinear"), {}, SourceError, ["'rectilinear'"]),
    ("npy objects", npy(np.array([[1, "a"]], dtype=object)), {}, SourceError, ["a.npy", "type object"]),
    ("npy cut off", npy(GOOD, cut=9), {}, SourceError, ["a.npy", "cut off", "215 bytes", "224"]),
    ("npy of nothing", text(b"", "a.npy"), {}, SourceError, ["a.npy", "not a NumPy file"]),
    ("npy of 1e12 rows", huge_npy, {}, SourceError, ["a.npy"]),
    ("npy 1-D", npy(np.arange(3)), {}, SourceError, ["has 1"]),
    ("npy with key", npy(GOOD), {"key": "X"}, BadParameter, ["leave key out"]),
    ("npy missing", lambda d: d / "q.npy", {}, SourceMissing, ["q.npy", "no such file"]),
    ("npz missing", lambda d: d / "q.npz", {}, SourceMissing, ["q.npz", "no such file"]),
    ("npz not a zip", text(b"PK", "a.npz"), {}, SourceError, ["a.npz", "not a NumPy archive"]),
    ("npz two matrices", npz(**TWO), {}, SourceError, ["several arrays", "A (4 x 3 float64)", "key="]),
    ("npz no matrix", npz(a=np.arange(3)), {}, SourceError, ["no array", "a (3 int64)"]),
    ("npz wrong key", npz(**TWO), {"key": "C"}, SourceError, ["'C'", "A (4 x 3 float64)"]),
    ("npz 3-D key", npz(A=np.zeros((2, 2, 2))), {"key": "A"}, SourceError, ["'A'", "has 3"]),
    ("npz objects", npz(X=np.array([[None]])), {}, SourceError, ["'X'", "never unpickled"]),
    ("csr indptr", lambda d: bad_csr(d, indptr=np.array([0, 3, 2, 8, 11])), {}, SourceError, ["a.npz", "decreases after row 1"]),
    ("csr index", lambda d: bad_csr(d, indices=np.full(11, 3)), {}, SourceError, ["row 0 has an entry in column 3, and there are 3 columns"]),
    ("csr length", lambda d: bad_csr(d, data=np.ones(5)), {}, SourceError, ["there are 5 values"]),
    ("csr rows", lambda d: bad_csr(d, shape=(9, 3)), {}, SourceError, ["for 9 rows"]),
    ("1-D array", lambda d: np.arange(3), {}, SourceError, ["array: ", "has 1"]),
    ("0-D array", lambda d: np.float64(3), {}, SourceError, ["has 0"]),
    ("object array", lambda d: np.array([[1, None]]), {}, SourceError, ["type object"]),
    ("text array", lambda d: np.array([["a"]]), {}, SourceError, ["<U1", "encode"]),
    ("records", lambda d: RECORDS, {}, SourceError, ["structured type"]),
    ("dates array", lambda d: DATES, {}, SourceError, ["datetime64[s]"]),
    ("masked", lambda d: MASKED, {}, SourceError, ["masked"]),
    ("masked rows", lambda d: list(MASKED), {}, SourceError, ["masked"]),
    ("ragged", lambda d: [[1, 2], [3]], {}, SourceError, ["equal length"]),
    ("no source", lambda d: object(), {}, SourceError, ["type object is not a source"]),
    ("None", lambda d: None, {}, SourceError, ["NoneType is not a source"]),
    ("empty list", lambda d: np.zeros((0, 0)), {}, EmptyInput, ["0 x 0"]),
    ("frame of text", lambda d: pd.DataFrame({"a": [1], "name": ["x"]}), {}, SourceError, ["column 'name'", "encode"]),
    ("frame of dates", lambda d: pd.DataFrame({"when": DATES[0]}), {}, SourceError, ["column 'when'", "datetime64"]),
    ("names twice", lambda d: pa.table([[1.0], [2.0], [3.0]], ["b", "a", "a"]), {}, SourceError, ["2 columns are named 'a'"]),
    ("frame of nothing", lambda d: pd.DataFrame(), {}, EmptyInput, ["0 x 0"]),
    ("sparse complex", lambda d: sp.csr_matrix(GOOD * 1j), {}, SourceError, ["complex128"]),
    ("sparse empty", lambda d: sp.csr_matrix((0, 4)), {}, EmptyInput, ["0 x 4"]),
    ("key of an object", lambda d: GOOD, {"key": "X"}, BadParameter, ["not with an object"]),
    ("nonfinite", lambda d: GOOD, {"nonfinite": "ignore"}, BadParameter, ["nonfinite", "drop_rows", "'ignore'"]),
    ("missing_chunks", lambda d: GOOD, {"missing_chunks": "zero"}, BadParameter, ["missing_chunks", '"fill"', "'zero'"]),
    ("source_id of an array", lambda d: GOOD, {"source_id": "a"}, BadParameter, ["source_id", "Dask"]),
    ("source_id of a path", store(), {"source_id": "a"}, BadParameter, ["source_id"]),
    ("options of a path", store(), {"storage_options": {"anon": True}}, BadParameter, ["storage_options", "local path"]),
    ("scheme", lambda d: "ftp://host/x", {}, SourceError, ["ftp://", "allowed: file, memory, s3"]),
    ("scheme of code", lambda d: "python://os", {}, SourceError, ["python://"]),
    ("http", lambda d: "http://host/x", {}, SourceError, ["--storage-option allow_http=true", '{"allow_http": True}']),
    ("https", lambda d: "HTTPS://host/x", {}, SourceError, ["allow_http"]),
    ("one slash", lambda d: "s3:/bucket/x.zarr", {}, SourceMissing, ["did you mean s3://bucket/x.zarr?"]),
    ("chained", lambda d: "simplecache::s3://b/x", {}, SourceError, ["chained URLs"]),
    ("chained path", lambda d: "zip::/etc/passwd", {}, SourceError, ["chained URLs"]),
    ("control", lambda d: "a\0b", {}, SourceError, ["control characters"]),
    ("empty text", lambda d: "", {}, SourceError, ["a source must be"]),
    ("nothing in memory", lambda d: "memory://nothing/there", {}, SourceError, ["memory://nothing/there", "not a Zarr array"]),
    ("zip", text(b"PK", "rows.zarr.zip"), {}, SourceError, ["rows.zarr.zip", "unpack it", "ZipStore("]),
    ("packed text", text(b"BZh9", "rows.csv.bz2"), {}, SourceError, ["rows.csv.bz2", "unpack it first"]),
    ("link to another file", linked("/e/m"), {"key": "X"}, SourceError, ["'X'", "another file"]),
    ("link to itself", linked("/X"), {"key": "X"}, SourceError, ["'X'", "itself"]),
    ("hdf5 without a matrix", linked("/no"), {}, SourceError, ["a.h5", "no matrix"]),
    ("encrypted archive", encrypted, {}, SourceError, ["a.npz", "encrypted"]),
    ("archive of two words", archive(format=np.array(["csr", "x"])), {}, SourceError, ["'format'"]),
    ("archive of one length", archive(format=np.array("csr"), shape=np.array(60)), {}, SourceError, ["'shape'"]),
    ("fractions of mtx", text(MARKET + b"3 2 2\n1 1 5\n2 2 1.5\n", "a.mtx"), {}, SourceError, ["line 5 must be row, column, a whole number"]),
    ("mtx too large", text(MARKET + b"3 2 9999999999999\n1 1 5\n", "a.mtx"), {}, SourceError, ["9,999,999,999,999 entries", "memory"]),
    ("places of coo", misplaced, {}, SourceError, ["not a valid COO matrix"]),
    ("128 bits", lambda d: pl.DataFrame({"a": [1]}, schema={"a": pl.Int128}), {}, SourceError, ["column 'a'", "Int128"]),
    ("frame of arrays", lambda d: pl.DataFrame({"e": GOOD}, schema={"e": pl.Array(pl.Float64, 3)}), {}, SourceError, ["column 'e'"]),
    *((f"pipe {name}", pipe(name), {}, SourceError, [name, "pipe", "to a file first"]) for name in ("a.npy", "a.npz", "a.h5", "a.mtx", "a.svm", "a.parquet", "a")),
    *((f"file is a link to {to}", link(to), {}, SourceMissing, ["a.npy", "a link that leads to nothing"]) for to in ("a.npy", "b.npy")),
    ("text too long for a path", lambda d: f"{d}/" + 300 * "x" + ".npy", {}, SourceMissing, ["no such file"]),
    ("remote npy", lambda d: "memory://a.npy", {}, SourceError, ["local disks only"]),
    ("zarr group object", lambda d: zarr.open_group(str(group(d)), mode="r"), {}, SourceError, ["this is a group", "counts"]),
]  # fmt: skip


@pytest.mark.parametrize(("maker", "arguments", "kind", "parts"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_one_line_that_names_it(tmp_path, maker, arguments, kind, parts):
    source = maker(tmp_path)
    with pytest.raises(kind) as caught:
        open_matrix(source, **arguments)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 900
    for part in parts:
        assert part in message
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("column", "part"),
    [
        (pd.date_range("2020", periods=3), "'b' is of type datetime64"),
        (pd.date_range("2020", periods=3, tz="UTC"), "'b' is of type datetime64"),
        (pd.to_timedelta([1, 2, 3]), "'b' is of type timedelta64"),
        (["x", "y", "z"], "'b' is of type"),
    ],
)
def test_estimators_refuse_columns_that_are_no_numbers(column, part):
    """NumPy would make numbers of dates where all columns are dates."""
    for frame in (pd.DataFrame({"b": column}), pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": column})):
        with pytest.raises(SourceError, match=part) as caught:
            KMeans(1).fit(frame)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "other", [[1.0, 2.0, 3.0], [True, False, True], pd.array([1, 2, 3], "Int64"), pd.array([1.5, 2, 3], "Float64")]
)
def test_estimators_refuse_complex_columns_by_name(other):
    """NumPy would drop the imaginary part where another column is nullable."""
    for dtype in (complex, object):
        frame = pd.DataFrame({"a": other, "b": np.array([1 + 1j, 2, 3], dtype)})
        with pytest.raises(SourceError, match=f"'b' is of type {np.dtype(dtype)}") as caught:
            KMeans(1).fit(frame)
        assert "\n" not in str(caught.value)
        assert dtype is object or "real part or the modulus" in str(caught.value)


def test_estimators_refuse_names_that_are_there_twice():
    with pytest.raises(SourceError, match="2 columns are named 'a'"):
        KMeans(1).fit(pd.DataFrame(GOOD, columns=[*"bca"[: GOOD.shape[1] - 2], "a", "a"]))


def test_dask_arrays():
    import dask.array as da

    x = da.from_array(GOOD, chunks=(2, 2))
    for source, part in ((x[x[:, 0] > 1], "compute_chunk_sizes"), (x[:, 0], "has 1"), (x.astype(complex), "complex")):
        with pytest.raises(SourceError, match=part):
            open_matrix(source)
    broken = x.map_blocks(lambda block: block / [0][1], dtype=float)
    with pytest.raises(SourceError, match=r"Dask array: rows 1 to 2 could not be computed \(IndexError\)"):
        open_matrix(broken).read_rows(1, 3)


@pytest.mark.parametrize("lie", [lambda b: b[:1], lambda b: np.vstack([b, b]), lambda b: b[:, :1]])
def test_dask_arrays_whose_blocks_have_another_shape(lie):
    import dask.array as da

    wrong = da.from_array(GOOD, chunks=(2, 3)).map_blocks(lie, dtype=float, meta=np.empty((0, 0)))
    for read in (lambda: open_matrix(wrong).read_rows(0, 4), lambda: summarize(wrong, Moments())):
        with pytest.raises(SketchSelectError, match=r"^Dask array.*rows 0 to 3 came as"):
            read()


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("a.mtx", "no vectors are read from Matrix Market files"),
        ("a.h5ad", "no vectors are read from HDF5 files; give its name in the file alone"),
    ],
)
def test_files_without_vectors_name_what_to_do(tmp_path, name, part):
    (tmp_path / name).write_bytes(b"1")
    with pytest.raises(SourceError, match=part):
        open_vector(tmp_path / name, 3)


def test_a_zarr_store_may_have_any_name(tmp_path):
    for name in ("a.h5ad", "a.npy", "a.csv"):
        assert open_matrix(store(name=name)(tmp_path)).shape == (4, 3)


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIAKEY:hushhush@bucket/x",
        "s3://hushhush@bucket/x",
        "gs://user:hushhush@bucket/x",
        "az://me:hushhush@box/x",
        "https://me:hushhush@host/x?sig=hushhush",
        "simplecache::https://hushhush@host/x?token=hushhush",
        "ftp://hushhush@host/x?token=hushhush",
    ],
)
def test_credentials_are_never_shown(url):
    with pytest.raises(SourceError) as caught:
        open_matrix(url)
    assert "hush" not in str(caught.value)


def test_options_are_blanked_out_of_errors(monkeypatch):
    from fsspec.implementations.memory import MemoryFileSystem

    def refuse(self, path, *args, **kwargs):
        raise PermissionError(13, "no access for key AKIAKEY with secret hushhush")

    monkeypatch.setattr(MemoryFileSystem, "cat_file", refuse)
    options = {"key": "AKIAKEY", "client_kwargs": {"secret": "hushhush"}}
    with pytest.raises(SourceError) as caught:
        open_matrix("memory://box/x.zarr", storage_options=options)
    assert "AKIA" not in str(caught.value)
    assert "hush" not in str(caught.value)
    assert "no access" in str(caught.value)


def test_too_many_chunks_are_refused_before_the_store_is_listed(tmp_path, monkeypatch):
    source = edited("shape", value=[10**11, 3])(tmp_path)
    monkeypatch.setattr("sketchselect.readers.zarr.matrix.scan", lambda *_: pytest.fail("listed"))
    with pytest.raises(SourceError, match="limit is 10000000"):
        open_matrix(source)


def test_the_limits_are_the_last_allowed_values(monkeypatch, tmp_path):
    source = store(chunks=(2, 3))(tmp_path)
    monkeypatch.setattr(zarr_metadata, "MAX_CHUNKS", 2)
    monkeypatch.setattr(zarr_metadata, "MAX_CHUNK_BYTES", 48)
    assert open_matrix(source).shape == (4, 3)
    monkeypatch.setattr(zarr_metadata, "MAX_CHUNKS", 1)
    with pytest.raises(SourceError, match="2 chunks"):
        open_matrix(source)
    monkeypatch.setattr(zarr_metadata, "MAX_CHUNKS", 2)
    monkeypatch.setattr(zarr_metadata, "MAX_CHUNK_BYTES", 47)
    with pytest.raises(SourceError, match="48 B"):
        open_matrix(source)


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_matrix, sp.csr_array])
def test_a_missing_value_of_an_estimators_x_is_named(wrap):
    X = np.random.default_rng(0).standard_normal((30, 4))
    X[7, 2], X[8, 1] = np.nan, np.inf
    with pytest.raises(ValueError, match=r"1 NaN and 1 infinite values, the first at row 7, column 2"):
        GreedySelector(2).fit(wrap(X))
