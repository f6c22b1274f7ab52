"""Parquet as other programs write it: folders of folders, Hive partitions, columns of lists, a cached footer."""

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from sketchselect import open_matrix
from sketchselect.errors import ChunkReadError, EmptyInput, SourceChanged, SourceError
from sketchselect.readers import open_vector
from sketchselect.testing.readers import MatrixConformance

NAMES = ("a", "b", "c")


@pytest.fixture
def values():
    return np.random.default_rng(8).standard_normal((60, 3))


def table(values, **columns):
    return pa.table(dict(zip(NAMES, values.T, strict=True)) | columns)


@pytest.fixture
def hive(values, tmp_path):
    """A data set that pyarrow partitioned by a whole number and a text."""
    years, sites = np.repeat([2020, 2021, 2022], 20), np.tile(np.repeat(["a b", "c"], 10), 3)
    ds.write_dataset(
        table(values, year=years, site=sites.tolist()),
        tmp_path / "hive",
        format="parquet",
        partitioning=ds.partitioning(pa.schema([("year", pa.int64()), ("site", pa.string())]), flavor="hive"),
    )
    (tmp_path / "hive" / "_SUCCESS").touch()
    (tmp_path / "hive" / "notes.txt").write_text("not a table")
    (tmp_path / "hive" / "_temporary").mkdir()
    pq.write_table(table(values), tmp_path / "hive" / "_temporary" / "part.parquet")
    return tmp_path / "hive", years, sites


def test_the_keys_of_hive_partitions_are_columns_and_no_features(hive, values):
    path, years, sites = hive
    matrix = open_matrix(path)
    MatrixConformance(matrix, values, NAMES).verify()
    assert len(matrix.chunk_edges) == 7
    assert open_vector("year", 60, matrix=matrix).read(0, 60).tolist() == years.tolist()
    assert open_vector("site", 60, matrix=matrix).read(5, 25).tolist() == sites[5:25].tolist()
    chosen = open_matrix(path, key="year,b")
    MatrixConformance(chosen, np.stack([years, values[:, 1]], axis=1), ("year", "b")).verify()


def test_keys_of_other_folders_are_refused(hive, values):
    path = hive[0]
    (path / "year=2023").mkdir()
    pq.write_table(table(values), path / "year=2023" / "part.parquet")
    with pytest.raises(SourceError, match=r"year=2023/part.parquet is in folders of other keys than year=2020"):
        open_matrix(path)


def test_a_folder_of_a_remote_store(values):
    system = fsspec.filesystem("memory")
    for part in range(2):
        with system.open(f"/store.parquet/part-{part}.parquet", "wb") as file:
            pq.write_table(table(values[30 * part : 30 * part + 30]), file)
    try:
        MatrixConformance(open_matrix("memory://store.parquet"), values, NAMES).verify()
    finally:
        system.store.clear()


@pytest.mark.parametrize("kind", ["fixed", "list", "large"])
def test_an_embedding_gives_a_feature_for_each_entry(values, tmp_path, kind):
    types = {"fixed": pa.list_(pa.float64(), 3), "list": pa.list_(pa.float64()), "large": pa.large_list(pa.float64())}
    column = pa.array(values.tolist(), types[kind])
    ids = np.arange(60)
    pq.write_table(pa.table({"id": ids, "e": column}), tmp_path / "e.parquet", row_group_size=25)
    matrix = open_matrix(tmp_path / "e.parquet", key="e")
    MatrixConformance(matrix, values, ("e[0]", "e[1]", "e[2]")).verify()
    both = open_matrix(tmp_path / "e.parquet")
    MatrixConformance(both, np.c_[ids, values], ("id", "e[0]", "e[1]", "e[2]")).verify()


def test_lists_of_other_lengths_and_nulls(tmp_path):
    path = tmp_path / "e.parquet"
    pq.write_table(pa.table({"e": [[1.0, None], [3.0, 4.0]]}), path)
    expected = [[1.0, np.nan], [3.0, 4.0]]
    assert np.array_equal(open_matrix(path, nonfinite="missing").read_rows(0, 2), expected, equal_nan=True)
    for rows, message in (
        ([[1.0, 2.0], [3.0, 4.0], [5.0]], r"row group 0: column 'e' has a list of 1 entries in row 2"),
        ([[1.0, 2.0], None], r"column 'e' has no list in row 1"),
    ):
        pq.write_table(pa.table({"e": pa.array(rows, pa.list_(pa.float64()))}), path)
        with pytest.raises(ChunkReadError, match=message):
            open_matrix(path).read_rows(0, len(rows))
    pq.write_table(pa.table({"e": pa.array([[], []], pa.list_(pa.float64()))}), path)
    with pytest.raises(EmptyInput, match="have no entries"):
        open_matrix(path)
    pq.write_table(pa.table({"e": [["x"], ["y"]]}), path)
    with pytest.raises(SourceError, match=r"column 'e' is of type list<.*string>"):
        open_matrix(path)


def test_booleans_with_nulls_are_numbers(tmp_path):
    pq.write_table(pa.table({"a": [True, None, False], "b": [1, 2, None]}), tmp_path / "n.parquet")
    matrix = open_matrix(tmp_path / "n.parquet", nonfinite="missing")
    assert np.array_equal(matrix.read_rows(0, 3), [[1, 1], [np.nan, 2], [0, np.nan]], equal_nan=True)


def test_a_footer_is_parsed_once_and_again_for_another_file(values, tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    pq.write_table(table(values), path, row_group_size=10)
    matrix = open_matrix(path)
    parsed = []
    init = pq.ParquetFile.__init__

    def count(self, source, **options):
        parsed.append(options.get("metadata") is None)
        init(self, source, **options)

    monkeypatch.setattr(pq.ParquetFile, "__init__", count)
    matrix.read_rows(0, 60)
    assert sum(parsed) == 1
    assert len(parsed) == 2
    pq.write_table(table(values[:50] * 2), path, row_group_size=10)
    with pytest.raises(SourceChanged):
        matrix.read_rows(0, 60)
    assert np.array_equal(open_matrix(path).read_rows(0, 50), values[:50] * 2)
