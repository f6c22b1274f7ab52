"""Every reader keeps the promises of `Matrix`; a new reader adds one maker to SOURCES."""

import os
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from tests.readers.conftest import NAMED, SOURCES, writer

from sketchselect import convert, open_matrix
from sketchselect.location import Location, locate
from sketchselect.readers.opening import FORMATS, format_of
from sketchselect.testing.readers import MatrixConformance


def test_every_file_format_is_among_the_sources(values, tmp_path):
    """Numbers in text have no type, so these are compared in test_sparse_stores.py and test_svmlight.py."""
    tried = set()
    for name, maker in SOURCES.items():
        (tmp_path / name).mkdir()
        source = maker(writer(tmp_path / name), values, tmp_path / name)
        if isinstance(source, (str, os.PathLike)):
            tried.add(format_of(locate(source)))
    assert [f.name for f in FORMATS if f.matrix is not None and f not in tried] == [
        "Matrix Market files",
        "svmlight files",
    ]
    assert None in tried, "Zarr stores have no ending"


def test_every_reader(any_source, values, request):
    matrix = open_matrix(any_source)
    MatrixConformance(matrix, values, NAMED.get(request.node.callspec.params["any_source"])).verify()
    assert open_matrix(matrix) is matrix
    assert matrix.nonfinite == "error"
    kind = f"{'sparse ' if matrix.is_sparse else ''}{matrix.dtype}"
    rows, columns = values.shape
    assert repr(matrix) == f"<{type(matrix).__name__} {matrix.address}: {rows} rows x {columns} columns, {kind}>"
    assert matrix.is_sparse or matrix.entry_offsets is None
    assert matrix.in_memory == (not isinstance(any_source, (str, bytes)) and not hasattr(any_source, "__fspath__")) or (
        hasattr(any_source, "store") or hasattr(any_source, "__dask_graph__") or hasattr(any_source, "chunks")
    )


def test_a_path_pickles_as_a_path(write, tmp_path):
    big = np.ones((2000, 300))
    np.save(tmp_path / "a.npy", big)
    np.savez(tmp_path / "a.npz", X=big)
    for source in (write(big, chunks=(500, 100)), tmp_path / "a.npy", tmp_path / "a.npz"):
        assert len(pickle.dumps(open_matrix(source))) < 3000


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "uint32", "int64", "float16", "float64"])
def test_types_are_kept_and_small_ones_widened(write, dtype):
    numbers = (np.arange(60).reshape(20, 3) % 5 - (0 if dtype in ("bool", "uint8", "uint32") else 2)).astype(dtype)
    matrix = open_matrix(write(numbers, chunks=(7, 2)), missing_chunks="fill")
    MatrixConformance(matrix, numbers).verify()
    expected = np.float64 if dtype in ("bool", "float16") else np.dtype(dtype)
    assert matrix.read_rows(0, 20).dtype == expected


@pytest.mark.parametrize("sign", "#?;%*[")
@pytest.mark.parametrize("converted", [False, True])
def test_signs_of_a_url_in_a_path_are_part_of_its_name(tmp_path, values, sign, converted):
    """Beside a store that has the name before the sign, which is not read."""
    zarr.create_array(tmp_path / "rows", data=np.zeros_like(values), chunks=(20, 3))
    if converted:
        convert(values, tmp_path / f"rows{sign}1")
    else:
        zarr.create_array(tmp_path / f"rows{sign}1", data=values, chunks=(20, 3))
    MatrixConformance(open_matrix(tmp_path / f"rows{sign}1"), values).verify()


def test_whole_numbers_that_float64_cannot_hold_are_named(values):
    with pytest.warns(UserWarning, match=r"2\^53"):
        open_matrix(np.array([[1, 2**60]])).read_rows(0, 1)
    open_matrix(np.array([[1, 2**53]])).read_rows(0, 1)


@pytest.mark.parametrize("largest", [2**53, -(2**53) - 1, 2**60])
@pytest.mark.parametrize("other", [0.5, None])
def test_so_are_those_in_a_column_beside_one_of_another_type(tmp_path, largest, other):
    """Such a table is read as float64, in which the numbers are rounded already."""
    columns = {"id": [7, largest], "other": [1.5, other]} if other else {"id": [7, largest, None]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    frame = pl.DataFrame(columns)
    pandas = pd.DataFrame(columns) if other else frame.to_pandas(use_pyarrow_extension_array=True)
    lines = [",".join("" if entry is None else str(entry) for entry in row) for row in frame.rows()]
    (tmp_path / "t.csv").write_text("\n".join([",".join(columns), *("NA" if line == "" else line for line in lines)]))
    reads = [
        lambda: open_matrix(tmp_path / "t.parquet").read_rows(0, 2),
        lambda: open_matrix(pandas).read_rows(0, 2),
        lambda: open_matrix(frame).read_rows(0, 2),
        lambda: convert(tmp_path / "t.csv", tmp_path / "t.zarr"),
    ]
    for read in reads:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            read()
        assert any("2^53" in str(warning.message) for warning in caught) == (largest != 2**53)


@pytest.mark.parametrize("largest", [2**53, -(2**53) - 1, 2**60])
@pytest.mark.parametrize("form", ["list", "list of one length", "dask", "dask with missing"])
def test_so_are_those_in_lists_and_frames_of_dask(tmp_path, largest, form):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if form.startswith("dask"):
            frame = pytest.importorskip("dask.dataframe")
            id_ = pd.array([7, largest, None], dtype="Int64") if "missing" in form else [7, largest, 8]
            table = pd.DataFrame({"id": id_, "other": [0.5, 1.5, 2.5]})
            matrix = open_matrix(frame.from_pandas(table, npartitions=2), nonfinite="missing")
        else:
            kind = pa.list_(pa.int64(), 2 if "one length" in form else -1)
            lists = pa.array([[1, 7], [2, largest], [3, 8]], kind)
            pq.write_table(pa.table({"e": lists, "other": [0.5, 1.5, 2.5]}), tmp_path / "t.parquet")
            matrix = open_matrix(tmp_path / "t.parquet")
        matrix.read_rows(0, 3)
    assert any("2^53" in str(warning.message) for warning in caught) == (largest != 2**53)


@pytest.mark.filterwarnings("ignore:.*is left out and not used")
def test_so_are_groups_that_are_kept_apart_in_a_text_file(tmp_path):
    """Two persons whose numbers differ in the last digit alone would become one."""
    (tmp_path / "t.csv").write_text(f"x,person,y\n1,{2**60},2\n3,{2**60 + 1},4\n")
    with pytest.warns(UserWarning, match=r"t\.csv: whole numbers beyond 2\^53"):
        convert(tmp_path / "t.csv", tmp_path / "t.zarr", key="-person")


def test_a_fresh_process_reads_the_same(write, values, tmp_path):
    matrix = open_matrix(write(values, compressors=None))
    code = (
        "import pickle, sys; m = pickle.load(sys.stdin.buffer); sys.stdout.buffer.write(m.read_rows(3, 50).tobytes())"
    )
    sent = pickle.dumps(matrix)
    done = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True, check=True, timeout=60)
    assert done.stdout == values[3:50].tobytes()


def test_many_threads_read_at_once(write, values):
    from concurrent.futures import ThreadPoolExecutor

    matrix = pickle.loads(pickle.dumps(open_matrix(write(values))))
    ranges = [(a, b) for a in range(0, 100, 9) for b in range(a, 103, 13)]
    with ThreadPoolExecutor(8) as pool:
        for (a, b), block in zip(ranges, pool.map(lambda r: matrix.read_rows(*r), ranges), strict=True):
            assert np.array_equal(block, values[a:b])


NAMES = tuple(f"gene {i}" for i in range(17))


def named_attribute(values, path):
    zarr.create_array(str(path), data=values, attributes={"feature_names": list(NAMES)})
    return path, None


def named_attribute_v2(values, path):
    zarr.create_array(str(path), data=values, attributes={"feature_names": list(NAMES)}, zarr_format=2)
    return path, None


def named_coordinate(values, path):
    group = zarr.open_group(str(path), mode="w")
    group.create_array("X", data=values, dimension_names=["cell", "gene"])
    group.create_array("gene", data=np.array(NAMES, dtype=np.dtypes.StringDType()))
    return path, "X"


def named_coordinate_in_a_subgroup(values, path):
    group = zarr.open_group(str(path), mode="w", zarr_format=2).create_group("deep")
    group.create_array("X", data=values, attributes={"_ARRAY_DIMENSIONS": ["cell", "gene"]})
    group.create_array("gene", data=np.array(NAMES, dtype="U10"))
    return path, "deep/X"


def named_frame(values, path):
    return pd.DataFrame(values, columns=list(NAMES)), None


def named_npz(values, path):
    np.savez(path, X=values, feature_names=np.array(NAMES))
    return f"{path}.npz", None


@pytest.mark.parametrize(
    "maker",
    [named_attribute, named_attribute_v2, named_coordinate, named_coordinate_in_a_subgroup, named_frame, named_npz],
)
def test_names_of_columns(maker, values, tmp_path):
    source, key = maker(values, tmp_path / "named")
    matrix = open_matrix(source, key=key)
    MatrixConformance(matrix, values, NAMES).verify()


def test_numeric_coordinate_names(values, tmp_path):
    group = zarr.open_group(str(tmp_path / "g"), mode="w")
    group.create_array("X", data=values, dimension_names=["t", "wave"])
    group.create_array("wave", data=np.arange(17) * 10)
    assert open_matrix(tmp_path / "g", key="X").feature_names[:2] == ("0", "10")


@pytest.mark.parametrize("names", [["a"], list(range(17)), "abc", None, {"a": 1}])
def test_names_that_do_not_fit_are_no_names(values, tmp_path, names):
    zarr.create_array(str(tmp_path / "a"), data=values, attributes={"feature_names": names})
    assert open_matrix(tmp_path / "a").feature_names is None
    assert open_matrix(pd.DataFrame(values)).feature_names is None


def test_missing_values_of_a_frame_are_nan():
    frame = pd.DataFrame({"a": [1, 2], "b": [True, False], "c": pd.array([1, None], dtype="Int64")})
    got = open_matrix(frame, nonfinite="drop_rows")
    assert got.nonfinite == "drop_rows"
    assert np.array_equal(got.read_rows(0, 2), [[1, 1, 1], [2, 0, np.nan]], equal_nan=True)


def test_a_note_where_nothing_detects_a_flipped_bit(write, values):
    from zarr.codecs import Crc32cCodec, GzipCodec

    from .conftest import CHECKED

    assert "no checksum" in open_matrix(write(values, "a.zarr")).notes[0]
    for i, codecs in enumerate(([CHECKED], [GzipCodec()], [Crc32cCodec()])):
        assert open_matrix(write(values, f"{i}.zarr", compressors=codecs)).notes == ()
    inside = write(values, "s.zarr", chunks=(10, 6), shards=(40, 12), compressors=[CHECKED])
    assert open_matrix(inside).notes == ()


@pytest.mark.parametrize("version", [2, 3])
def test_the_metadata_of_a_plain_array_are_read_once_before_zarr_reads_them(write, values, monkeypatch, version):
    path = write(values, zarr_format=version)
    name = {2: ".zarray", 3: "zarr.json"}[version]
    reads = []
    original = Location.read

    def read(self, key=None):
        reads.append((self.url, key))
        return original(self, key)

    monkeypatch.setattr(Location, "read", read)
    matrix = open_matrix(path)
    assert reads.count((str(path), name)) == 1
    assert len(set(reads)) == len(reads)
    matrix.read_rows(0, 103)
    matrix.read_columns(0, 3)
    assert reads.count((str(path), name)) == 1, "nor again in this process"
