"""Parquet: chosen columns, row groups as chunks, nulls, folders, labels beside the matrix, and damage."""

import os
import pickle
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from packaging.version import Version

import sketchselect as sks
from sketchselect import convert, open_matrix
from sketchselect.errors import BadParameter, ChunkReadError, SourceChanged, SourceError
from sketchselect.readers import open_vector, parquet, row_partitions
from sketchselect.readers.base import as_entries, row_texts
from sketchselect.testing.readers import MatrixConformance


@pytest.fixture
def table():
    rng = np.random.default_rng(4)
    numbers = {"a": rng.standard_normal(100), "b": rng.integers(0, 9, 100).astype(np.int16), "c": rng.random(100) > 0.5}
    return pa.table(numbers | {"kind": rng.choice(["x", "y"], 100).tolist()})


@pytest.fixture
def path(table, tmp_path):
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=30)
    return tmp_path / "t.parquet"


def numbers(table, *names):
    return np.stack([table[name].to_numpy().astype(np.float64) for name in names], axis=1)


def test_columns_are_chosen_or_left_out(path, table):
    matrix = open_matrix(path, key="c,a")
    MatrixConformance(matrix, numbers(table, "c", "a"), ("c", "a")).verify()
    assert matrix.chunk_edges == (0, 30, 60, 90, 100)
    assert open_matrix(path, key="-kind").feature_names == ("a", "b", "c")
    assert (
        open_matrix(path, key="-kind,a").feature_names == open_matrix(path, key="-kind, -a").feature_names == ("b", "c")
    )
    assert open_matrix(path, key="b").dtype == np.int16
    assert len(pickle.dumps(matrix)) < 3000
    with pytest.raises(SourceError, match=r"'kind'.*string.*key=\"-kind\""):
        open_matrix(path)
    with pytest.raises(SourceError, match=r"'z'.*'a', 'b', 'c', 'kind'"):
        open_matrix(path, key="a,z")
    with pytest.raises(BadParameter, match="none twice"):
        open_matrix(path, key="a,a")


def test_names_with_commas_and_blanks_stand_in_quotation_marks(tmp_path):
    names = ["id, no", "a", "-b", 'the "c", or d', " e"]
    values = np.column_stack([np.arange(30), np.random.default_rng(0).normal(size=(30, 4))])
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(dict(zip(names, values.T, strict=True))), path)

    def read(key, *vectors):
        return list(open_matrix(path, key=key, vectors=vectors).feature_names)

    (doubt,) = open_matrix(path).doubts
    advised = re.search(r"key='(.*?)'", doubt)[1]
    assert read(advised) == names[1:]
    assert read('"id, no",a') == ["id, no", "a"]
    assert read('-"id, no",-"-b",a,-" e"') == ['the "c", or d']
    assert read('-"the ""c"", or d", id, no'.replace("id, no", '"id, no"')) == ["a", "-b", " e"]
    for key, left in ((None, names), ("-a", ["id, no", "-b", *names[3:]]), ('"id, no"," e",a', ["id, no", " e", "a"])):
        for name in left:
            assert read(key, name) == [other for other in left if other != name]
    with pytest.raises(SourceError, match=r"no column 'id'.*'id, no' has a comma, and stands in quotation marks"):
        read("-id, no")


def test_only_the_chosen_columns_are_read(path, monkeypatch):
    seen = []
    read = pq.ParquetFile.iter_batches

    def recorded(self, size, groups, **options):
        seen.append((groups, options["columns"]))
        return read(self, size, groups, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", recorded)
    open_matrix(path, key="a").read_rows(35, 61)
    assert seen == [([1], ["a"]), ([2], ["a"])]


def test_rows_of_a_tall_row_group_are_decoded_in_batches(table, tmp_path, monkeypatch):
    """pandas writes one row group by default: a batch, and not the group, is in memory beside the rows."""
    monkeypatch.setattr("sketchselect.readers.parquet_files.BATCH_ENTRIES", 1)
    monkeypatch.setattr("sketchselect.readers.parquet_files.BATCH_ROWS", 7)
    heights = []
    read = pq.ParquetFile.iter_batches

    def recorded(self, *arguments, **options):
        for batch in read(self, *arguments, **options):
            heights.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", recorded)
    pq.write_table(table, tmp_path / "tall.parquet")
    matrix = open_matrix(tmp_path / "tall.parquet", key="a,c")
    MatrixConformance(matrix, numbers(table, "a", "c"), ("a", "c")).verify()
    assert max(heights) == 7
    heights.clear()
    matrix.read_rows(10, 12)
    assert heights == [7, 7], "what lies behind the rows is not decoded"
    # Of lists all entries count.
    monkeypatch.setattr("sketchselect.readers.parquet_files.BATCH_ENTRIES", 20)
    heights.clear()
    pq.write_table(pa.table({"e": [[float(i), 0.5] for i in range(30)]}), tmp_path / "lists.parquet")
    open_matrix(tmp_path / "lists.parquet").read_rows(0, 30)
    assert max(heights) == 10


def test_labels_are_a_column_beside_the_matrix(path, table):
    labels = open_vector("kind", 100, matrix=str(path), name="labels")
    assert labels.read(0, 100).tolist() == table["kind"].to_pylist()
    assert labels.read(28, 33).tolist() == table["kind"].to_pylist()[28:33]
    assert labels.identity() == open_vector("kind", 100, matrix=str(path)).identity()
    with pytest.raises(SourceError, match=r"labels: .*no column 'labels'"):
        open_vector(path, 100, name="labels")


def test_nulls_are_missing_values(tmp_path):
    pq.write_table(pa.table({"a": [1, None, 3], "b": [1.5, 2.5, None]}), tmp_path / "n.parquet")
    matrix = open_matrix(tmp_path / "n.parquet")
    assert matrix.dtype == np.float64
    assert np.array_equal(matrix.read_rows(0, 3), [[1, 1.5], [np.nan, 2.5], [3, np.nan]], equal_nan=True)


def test_a_file_without_statistics_may_hold_nulls(tmp_path):
    pq.write_table(pa.table({"a": [1, None, 3]}), tmp_path / "n.parquet", write_statistics=False)
    assert np.array_equal(open_matrix(tmp_path / "n.parquet").read_rows(0, 3)[:, 0], [1, np.nan, 3], equal_nan=True)


def test_a_new_file_in_the_folder_leaves_the_others_as_they_are(tmp_path, table):
    folder = tmp_path / "days"
    folder.mkdir()
    whole = table.select(["a", "b"])
    pq.write_table(whole[:40], folder / "day1.parquet", row_group_size=20)
    before = open_matrix(folder)
    partitions = row_partitions(before, 8 * 2 * 20)
    pq.write_table(whole[40:], folder / "day2.parquet", row_group_size=20)
    after = open_matrix(folder)
    assert after.shape == (100, 2)
    assert [after.identity(*partitions[i]) for i in range(2)] == [before.identity(*partitions[i]) for i in range(2)]
    assert np.array_equal(after.read_rows(0, 100), numbers(table, "a", "b"))


def test_files_of_one_folder_must_have_the_same_columns(tmp_path, table):
    pq.write_table(table.select(["a", "b"]), tmp_path / "1.parquet")
    pq.write_table(table.select(["a", "c"]), tmp_path / "2.parquet")
    with pytest.raises(SourceError, match=r"2\.parquet: .*1\.parquet.*column 1"):
        open_matrix(tmp_path)


def test_a_file_system_that_refuses_to_list_is_one_line_without_secrets(monkeypatch):
    from fsspec.implementations.memory import MemoryFileSystem

    def refuse(self, path):
        raise PermissionError("Forbidden\nfor secret hushhush")

    monkeypatch.setattr(MemoryFileSystem, "isdir", refuse)
    with pytest.raises(SourceError, match=r"memory://box/rows\.parquet: cannot be read \(PermissionError") as caught:
        open_matrix("memory://box/rows.parquet", storage_options={"token": "hushhush"})
    assert "hush" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_damage_is_named(path):
    matrix = open_matrix(path, key="a")
    content = path.read_bytes()
    path.write_bytes(content[:-40])
    with pytest.raises(SourceChanged, match="rewritten"):
        matrix.read_rows(0, 10)
    with pytest.raises(SourceError, match="not a Parquet file"):
        open_matrix(path)
    path.write_bytes(b"\0" * 400 + content[400:])
    damaged = open_matrix(path, key="a")
    with pytest.raises(ChunkReadError, match="row group 0"):
        damaged.read_rows(0, 10)


@pytest.mark.parametrize("remote", [False, True])
def test_a_flipped_bit_of_a_page_with_a_checksum_is_an_error(tmp_path, remote):
    entries = np.random.default_rng(0).standard_normal(1000)
    options = {"write_page_checksum": True, "use_dictionary": False, "compression": "none"}
    pq.write_table(pa.table({"a": entries}), tmp_path / "t.parquet", **options)
    content = bytearray((tmp_path / "t.parquet").read_bytes())
    content[content.index(entries[500].tobytes())] ^= 1
    (tmp_path / "t.parquet").write_bytes(content)
    source = tmp_path / "t.parquet"
    if remote:
        import fsspec

        source = f"memory://{tmp_path.name}/t.parquet"
        fsspec.filesystem("memory").pipe(source, bytes(content))
    with pytest.raises(ChunkReadError, match=r"row group 0 cannot be read \(OSError: it fails its checksum\)"):
        open_matrix(source).read_rows(0, 1000)


@pytest.mark.parametrize("store_schema", [False, True])
def test_every_flipped_bit_before_the_name_of_a_column_is_an_error_in_one_line_or_opens(tmp_path, store_schema):
    """Arrow ended the process where the type of a column is damaged, and names in no encoding were an unnamed error.

    In a file with the schema of Arrow it did so too where a column lost that it may have missing values.
    """
    pq.write_table(pa.table({"ab": [0.5, 1.5], "cd": [1, 2]}), tmp_path / "t.parquet", store_schema=store_schema)
    code = """
import sys, pathlib
from sketchselect.errors import SketchSelectError
from sketchselect.readers import open_matrix
path = pathlib.Path(sys.argv[1])
whole = path.read_bytes()
footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
name = (whole.index if sys.argv[2] == "True" else whole.rindex)(b"ab", footer)  # of the schema, of a row group
n_errors = 0
for place in range(name - 12, name + 2):
    for bit in range(8):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << bit
        path.write_bytes(damaged)
        try:
            open_matrix(path)
        except SketchSelectError as error:
            assert str(path) in str(error) and len(str(error).splitlines()) == 1, error
            n_errors += 1
assert n_errors
"""
    words = [sys.executable, "-c", code, str(tmp_path / "t.parquet"), str(store_schema)]
    run = subprocess.run(words, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]


def test_batches_of_wide_tables_and_footers_of_many_row_groups_are_stated(tmp_path):
    """Both were not: a process took more than `plan` says."""
    wide = pa.table({f"c{j}": np.zeros(1100, np.float32) for j in range(2000)})
    pq.write_table(wide, tmp_path / "wide.parquet")
    # As stored, as decoded and as a block.
    assert open_matrix(tmp_path / "wide.parquet").piece_nbytes >= 3 * 8 * 1024 * 2000
    many = wide.select([f"c{j}" for j in range(20)]).slice(0, 300)
    pq.write_table(many, tmp_path / "many.parquet", row_group_size=1)
    pq.write_table(many, tmp_path / "one.parquet")
    few, lots = (open_matrix(tmp_path / name).loaded_nbytes for name in ("one.parquet", "many.parquet"))
    footer = pq.ParquetFile(tmp_path / "many.parquet").metadata
    assert lots - few > footer.serialized_size
    values = pa.table({"a": np.random.default_rng(0).standard_normal(400_000)})
    pq.write_table(values, tmp_path / "large.parquet", dictionary_pagesize_limit=64 << 20)
    # As stored, as uncompressed and as decoded, beside the batch.
    assert open_matrix(tmp_path / "large.parquet").piece_nbytes >= 3 * 8 * (1 << 20) + 3 * 8 * 400_000


def test_converted_to_a_store(path, table, tmp_path):
    source = open_matrix(path, key="-kind")
    out = open_matrix(convert(source, tmp_path / "o.zarr"))
    MatrixConformance(out, numbers(table, "a", "b", "c"), ("a", "b", "c")).verify()
    with pytest.warns(UserWarning, match="left out are not in the store"):
        convert(path, tmp_path / "p.zarr", key="-kind")


@pytest.mark.parametrize("names", [["x", "z", "y"], [7, 5, 6]])
def test_a_store_has_the_names_of_the_rows_of_a_table(tmp_path, names):
    frame = pd.DataFrame({"a": [1.0, 2.0, 4.0], "b": [0.0, 1.0, 2.0]}, index=pd.Index(names, name="wine"))
    frame.to_parquet(tmp_path / "named.parquet")
    frame["a"].rename("target")[::-1].to_csv(tmp_path / "y.csv")
    for source in (tmp_path / "named.parquet", frame):
        matrix = open_matrix(convert(source, tmp_path / "named.zarr"))
        MatrixConformance(matrix, frame.to_numpy(), ("a", "b")).verify()
        assert row_texts(matrix.row_names, 0, 3) == [str(name) for name in names]
        assert open_vector(str(tmp_path / "y.csv"), 3, matrix=matrix).read(0, 3).tolist() == [1.0, 2.0, 4.0]


@pytest.mark.parametrize("title", ["zarr.json", "a\nb", "a\\b", "x" * 300])
def test_an_index_whose_title_names_no_folder_is_not_in_the_store(tmp_path, title):
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [0.0, 1.0]}, index=pd.Index(["x", "y"], name=title))
    with pytest.warns(UserWarning, match="the names of the rows, is not in the store"):
        store = convert(frame, tmp_path / "named.zarr")
    assert np.array_equal(open_matrix(store).read_rows(0, 2), frame)


@pytest.mark.filterwarnings("ignore:.*the names of the rows, is not in the store")
def test_a_missing_name_of_a_row_is_no_name_in_a_store(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0]}, index=pd.Index(["x", None], name="wine"))
    assert open_matrix(convert(frame, tmp_path / "named.zarr")).row_names is None


@pytest.mark.filterwarnings("ignore:.*infer_string")
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("title", [None, "cell"])
def test_a_store_has_the_names_of_cells(tmp_path, title, sparse):
    anndata = pytest.importorskip("anndata")
    names = pd.DataFrame(index=pd.Index(["x", "y", "z"], name=title))
    X = np.array([[0.0, 1.5], [0.0, 0.0], [2.0, 3.0]])
    cells = anndata.AnnData(X=scipy.sparse.csr_array(X) if sparse else X, obs=names)
    cells.write_h5ad(tmp_path / "s.h5ad")
    for source in (tmp_path / "s.h5ad", cells):
        matrix = open_matrix(convert(source, tmp_path / "s.zarr"))
        assert matrix.is_sparse == sparse
        MatrixConformance(matrix, X, ("0", "1")).verify()
        assert row_texts(matrix.row_names, 0, 3) == ["x", "y", "z"]
        # Without a title in memory, where AnnData keeps it.
        assert matrix.row_names.name == (title if source is not cells else None)


@pytest.mark.parametrize(
    "index",
    [
        pd.Index(["x", "z", "y"]),
        pd.Index([7, 5, 6]),
        pd.CategoricalIndex(["x", "z", "y"], name="wine"),
        pd.Index(["x", "z", "y"], name="wine"),
    ],
)
def test_a_store_has_the_names_of_the_rows_of_a_frame_with_any_index(tmp_path, index):
    dask_frames = pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame({"a": [1.0, 2.0, 4.0]}, index=index)
    sources = [frame]
    if index.name and index.dtype != "category":
        sources.append(dask_frames.from_pandas(frame, npartitions=2, sort=False))
    for source in sources:
        matrix = open_matrix(convert(source, tmp_path / "named.zarr"))
        MatrixConformance(matrix, frame.to_numpy(), ("a",)).verify()
        assert row_texts(matrix.row_names, 0, 3) == [str(name) for name in index]
        assert matrix.row_names.name == index.name


def test_dates_of_an_index_are_said_not_to_be_in_the_store(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0]}, index=pd.to_datetime(["2026-01-01", "2026-02-01"]).rename("day"))
    dask_frames = pytest.importorskip("dask.dataframe")
    for source in (frame, dask_frames.from_pandas(frame, npartitions=1)):
        with pytest.warns(UserWarning, match="the index 'day', the names of the rows, is not in the store"):
            convert(source, tmp_path / "dated.zarr")
        assert open_matrix(tmp_path / "dated.zarr").row_names is None


def test_names_that_are_missing_in_an_index_of_dask_are_said(tmp_path):
    dask_frames = pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame({"a": [1.0, 2.0]}, index=pd.Index(["x", None], name="wine"))
    source = dask_frames.from_map(lambda part: part, [frame, frame], meta=frame.iloc[:0])
    with pytest.warns(UserWarning, match="the index 'wine', the names of the rows, is not in the store"):
        convert(source, tmp_path / "named.zarr")
    assert open_matrix(tmp_path / "named.zarr").row_names is None


def test_categories_with_a_missing_one_do_not_name_the_rows():
    for categories in ([7, 5, None], ["x", None, "y"]):
        frame = pd.DataFrame({"a": [1.0, 2.0, 4.0]}, index=pd.CategoricalIndex(categories))
        assert np.array_equal(open_matrix(frame).read_rows(0, 3), frame.to_numpy())


def test_names_of_rows_that_a_store_does_not_have_are_said(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [0.0, 1.0, 2.0]}, index=pd.Index(["x", None, "y"], name="wine"))
    frame.to_parquet(tmp_path / "named.parquet")
    with pytest.warns(
        UserWarning, match=r"named\.parquet: the index 'wine', the names of the rows, is not in the store"
    ):
        convert(tmp_path / "named.parquet", tmp_path / "named.zarr")
    frame.reset_index(drop=True).to_parquet(tmp_path / "plain.parquet")
    convert(tmp_path / "plain.parquet", tmp_path / "plain.zarr")


@pytest.mark.parametrize(
    ("entries", "levels"),
    [
        ([30, 10, None, 10], ["z=10", "z=30"]),
        ([1.5, 0.5, None, 0.5], ["z=0.5", "z=1.5"]),
        ([True, False, None, False], ["z=False", "z=True"]),
        (["y", "x", None, "x"], ["z=x", "z=y"]),
    ],
)
def test_categories_are_levels_whatever_they_are_and_wherever_they_are_read(entries, levels, tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "z": pd.Categorical(entries)})
    frame.to_parquet(tmp_path / "f.parquet")
    frame.to_parquet(tmp_path / "runs.parquet", row_group_size=2)
    kinds = pa.table(frame)
    lazy = pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=2)
    for source in (frame, lazy, kinds, str(tmp_path / "f.parquet"), str(tmp_path / "runs.parquet")):
        summary = sks.summarize(source, sks.ColumnStats(), prepare=["one-hot"])
        assert summary.feature_names == ("a", *levels, "z=missing")
        assert summary.mean.tolist() == [2.5, 0.5, 0.25, 0.25]
        with pytest.raises(SourceError, match=r"column 'z' is of type (category|Categorical|dictionary).*\"one-hot\""):
            sks.summarize(source, sks.ColumnStats())


def test_categories_of_numbers_are_numbers_as_a_target(tmp_path):
    pd.DataFrame({"a": [1.0, 2.0], "y": pd.Categorical([20, 10])}).to_parquet(tmp_path / "f.parquet")
    assert open_vector("y", 2, matrix=f"{tmp_path}/f.parquet").read(0, 2).tolist() == [20, 10]


def test_files_of_one_folder_may_have_more_categories_than_others(tmp_path):
    for name, n in (("a", 3), ("b", 300)):
        frame = pd.DataFrame({"z": pd.Categorical(np.arange(n) % 3, categories=range(n))})
        frame.to_parquet(tmp_path / f"{name}.parquet")
    assert sks.summarize(str(tmp_path), sks.ColumnStats(), prepare=["one-hot"]).feature_names == ("z=0", "z=1", "z=2")


def test_without_pyarrow_the_extra_is_named(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(SourceError, match=r"sketchselect\[parquet\]"):
        open_matrix(os.fspath(path))


@pytest.mark.parametrize(
    ("index", "names"),
    [
        (pd.Index([f"cell{i}" for i in range(100)]), [f"cell{i}" for i in range(100)]),
        (pd.Index([f"cell{i}" for i in range(100)], name="cell"), [f"cell{i}" for i in range(100)]),
        (pd.Index(np.arange(100) * 7 % 100, name="id"), [i * 7 % 100 for i in range(100)]),
        (pd.CategoricalIndex(["a", "b"] * 50), ["a", "b"] * 50),
        (pd.Index(np.linspace(0, 1, 100)), None),
        (pd.date_range("2020-01-01", periods=100), None),
        (pd.MultiIndex.from_product([range(10), range(10)]), None),
        (pd.RangeIndex(100), None),
    ],
)
def test_the_row_index_of_pandas_is_no_feature(index, names, tmp_path):
    values = np.random.default_rng(0).standard_normal((100, 3))
    frame = pd.DataFrame(values, columns=["a", "b", "c"], index=index)
    frame.to_parquet(tmp_path / "f.parquet", row_group_size=30)
    matrix = open_matrix(tmp_path / "f.parquet")
    MatrixConformance(matrix, values, ("a", "b", "c")).verify()
    assert open_matrix(tmp_path / "f.parquet", key="-b").feature_names == ("a", "c")
    assert (matrix.row_names is None) == (names is None)
    table = open_matrix(pq.read_table(tmp_path / "f.parquet"))
    MatrixConformance(table, values, ("a", "b", "c")).verify()
    if names is not None:
        assert matrix.row_names.read(0, 100).tolist() == names
        assert pickle.loads(pickle.dumps(matrix)).row_names.read(28, 33).tolist() == names[28:33]
    if index.name == "id":
        chosen = open_matrix(tmp_path / "f.parquet", key="id,b")
        assert np.array_equal(chosen.read_rows(0, 100), np.column_stack([names, values[:, 1]]))
        assert open_vector("id", 100, matrix=matrix).read(0, 3).tolist() == names[:3]


def test_an_empty_folder_with_the_ending_is_named(tmp_path):
    (tmp_path / "a.parquet").mkdir()
    with pytest.raises(SourceError, match=r"a\.parquet: .*\.parquet or \.pq"):
        open_matrix(tmp_path / "a.parquet")


def test_a_column_of_numbers_keeps_its_type_as_a_target(path, table):
    for name, dtype in (("a", np.float64), ("b", np.int16), ("c", np.bool_)):
        vector = open_vector(name, 100, matrix=str(path))
        assert vector.dtype == dtype
        assert vector.read(25, 70).dtype == dtype
        assert vector.read(25, 70).tolist() == table[name].to_pylist()[25:70]
    assert open_vector("kind", 100, matrix=str(path)).read(4, 4).size == 0


@pytest.mark.parametrize("column", [[[1.0], [2.0, 3.0]], [b"a", b"b"], [{"x": 1}, {"x": 2}]])
def test_a_column_of_other_things_is_no_target(column, tmp_path):
    pq.write_table(pa.table({"a": [1.0, 2.0], "y": column}), tmp_path / "t.parquet")
    with pytest.raises(SourceError, match=r"t\.parquet: column 'y' is of type .*, neither numbers nor text"):
        open_vector("y", 2, matrix=f"{tmp_path}/t.parquet")


def test_text_of_every_type_of_arrow_is_a_target(tmp_path):
    views = [pa.string_view()] if Version(pa.__version__) >= Version("21") else []  # which older ones do not write
    for kind in (pa.string(), pa.large_string(), *views):
        pq.write_table(pa.table({"a": [1.0, 2.0], "y": pa.array(["u", "v"], kind)}), tmp_path / "t.parquet")
        assert open_vector("y", 2, matrix=f"{tmp_path}/t.parquet").read(0, 2).tolist() == ["u", "v"]


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us")])
def test_dates_beyond_the_year_9999_are_read(kind, tmp_path):
    days = np.array([2932897, 18262])  # 10000-01-01 and 2020-01-01
    times = pa.array(days.astype("datetime64[D]").astype("datetime64[us]")).cast(kind)
    table = pa.table({"a": [1.0, 2.0], "c": times})
    pq.write_table(table, tmp_path / "t.parquet")
    assert open_matrix(tmp_path / "t.parquet", key="-c").feature_names == ("a",)
    for source in (str(tmp_path / "t.parquet"), table):
        assert sks.summarize(source, sks.ColumnStats(), prepare=["dates"]).mean[1] == days.mean()


def test_a_row_group_too_tall_for_the_partitions_is_to_be_written_again_as_parquet(tmp_path):
    # Not as a store, which has none of the table's dates.
    frame = pd.DataFrame(np.zeros((6000, 12)), columns=[f"c{j}" for j in range(12)])
    frame.to_parquet(tmp_path / "one.parquet")
    with pytest.raises(BadParameter, match="row_group_size=256") as caught:
        row_partitions(open_matrix(tmp_path / "one.parquet"), "24KiB")
    assert "convert" not in str(caught.value)
    frame.to_parquet(tmp_path / "one.parquet", row_group_size=256)
    assert len(row_partitions(open_matrix(tmp_path / "one.parquet"), "24KiB").edges) == 6000 // 256 + 2


def test_text_is_decoded_in_batches_of_few_rows(tmp_path, monkeypatch):
    # A million rows at once, as of numbers, were 320 MB of labels of 320 characters.
    texts = [f"{i % 7}" for i in range(40_000)]
    pq.write_table(pa.table({"x": np.ones(40_000), "text": texts}), tmp_path / "a.parquet", row_group_size=40_000)
    heights = []

    def entries(values, *place):
        heights.append(len(values))
        return as_entries(values, *place)

    monkeypatch.setattr(parquet, "as_entries", entries)
    for name, most in (("text", 1 << 14), ("x", 40_000)):
        heights.clear()
        read = open_vector(name, 40_000, matrix=open_matrix(tmp_path / "a.parquet", key="x", vectors=[])).read(
            0, 40_000
        )
        assert read.tolist() == (texts if name == "text" else [1.0] * 40_000)
        assert max(heights) == most
