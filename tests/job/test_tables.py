"""A table as people have it: text, empty cells, identifiers and units, from `convert` to the labels of its rows."""

import csv
import gzip
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sketchselect as sks
from sketchselect.errors import SketchSelectError, SourceError
from sketchselect.job.load import load_job
from sketchselect.readers import convert, open_vector
from sketchselect.workflow.plan.forecast import forecast_job

from .commands import cli, works

JOB = """
[input]
url = "patients.zarr"
labels = "obs/group"
nonfinite = "missing"
[prepare]
steps = ["impute"]
[select]
method = "greedy"
n_features = 2
normalize = false
[cluster]
n_clusters = 3
[execution]
cluster = "serial"
"""


@pytest.fixture
def table(tmp_path: Path) -> np.ndarray:
    """Three groups of patients that age and crp tell apart and income, in another unit, does not."""
    rng = np.random.default_rng(5)
    group = np.arange(300) % 3
    values = np.column_stack([30 + 20 * group, rng.uniform(2e4, 8e4, 300), 0.1 + 0.4 * group])
    values += rng.standard_normal((300, 3)) * [3, 0, 0.04]
    fields = [[f"{value:.17g}" for value in row] for row in values]
    fields[0][2], fields[7][0], fields[9][1] = "NA", "", "n/a"
    values[0, 2] = values[7, 0] = values[9, 1] = np.nan
    with (tmp_path / "patients.csv").open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["patient", "age", "group", "income", "crp"])
        rows.writerows([f"P{i}", row[0], "abc"[i % 3], *row[1:]] for i, row in enumerate(fields))
    (tmp_path / "job.toml").write_text(JOB)
    return values


@pytest.mark.filterwarnings("default")
def test_text_and_empty_cells_of_a_table(table: np.ndarray, tmp_path: Path) -> None:
    done = works("convert", tmp_path / "patients.csv", tmp_path / "patients.zarr")
    told = " ".join(done.stderr.split())
    assert "2 of 5 columns are text and not used as features, 'patient' names the rows" in told
    assert '"obs/group"' in told
    assert "3 fields are missing" in told
    matrix = sks.open_matrix(tmp_path / "patients.zarr", nonfinite="missing")
    assert matrix.feature_names == ("age", "income", "crp")
    assert np.array_equal(matrix.read_rows(0, 300), table, equal_nan=True)
    assert matrix.row_names.read(0, 2).tolist() == ["P0", "P1"]
    group = open_vector("obs/group", 300, matrix=matrix)
    assert group.read(0, 4).tolist() == ["a", "b", "c", "a"]
    for wrong in ("obs/groop", "obs/group.1"):  # a dot does not make a path of it
        with pytest.raises(SourceError, match="did you mean 'obs/group'"):
            open_vector(wrong, 300, matrix=matrix)


@pytest.mark.filterwarnings("ignore:.*columns (is|are) text", "ignore:.*fields are missing")
def test_identifiers_come_back_and_mixed_units_are_noted(table: np.ndarray, tmp_path: Path) -> None:
    convert(tmp_path / "patients.csv", tmp_path / "patients.zarr")
    mixed = sks.run(tmp_path / "job.toml")
    [note] = mixed.manifest["notes"]
    assert "'income'" in note
    assert '"standardise"' in note
    better = sks.run(tmp_path / "job.toml", overrides=['prepare.steps=["impute", "standardise"]'])
    assert better.manifest["notes"] == []
    assert mixed.nmi < 0.5 < better.nmi
    lines = (better.folder / "labels.csv").read_text().splitlines()
    assert lines == ["patient,cluster", *(f"P{i},{label}" for i, label in enumerate(better.labels))]
    by_name = pd.read_csv(better.paths["labels.csv"], index_col=0)["cluster"]
    assert by_name.index.name == "patient"
    assert by_name["P7"] == better.labels[7]


@pytest.mark.filterwarnings("ignore:.*columns (is|are) text")
@pytest.mark.parametrize("column", ["town", "ward"], ids=["first column", "another"])
def test_words_for_a_missing_value_are_no_classes_of_a_text_file(tmp_path: Path, column: str) -> None:
    """As an empty cell is none; None may be a class, and NA the name of a row, or a class of a Parquet file."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"town": list("ab") * 30, "ward": list("xy") * 30, "age": rng.uniform(size=60)})
    frame["dose"] = rng.uniform(size=60)
    select = {"method": "univariate", "task": "classification"}
    for words in (["NA", "n/a", "nan", "NULL"], ["", "", "", ""]):
        frame.loc[5:8, column] = words
        frame.to_csv(tmp_path / "t.csv", index=False)
        frame[[column]].to_csv(tmp_path / "y.csv", index=False)
        convert(tmp_path / "t.csv", tmp_path / "t.zarr")
        for target in (f"obs/{column}", str(tmp_path / "y.csv")):
            source = {"url": str(tmp_path / "t.zarr"), "target": target}
            job = {"input": source, "select": select, "output": {"dir": str(tmp_path / "out")}}
            with pytest.raises(SketchSelectError, match="4 entries are missing, the first at row 5; leave these rows"):
                sks.run(job | {"execution": {"cluster": "serial"}})
    frame.loc[5:8, column] = ["NA", "None", "none", "NA"]
    frame.to_csv(tmp_path / "t.csv", index=False)
    convert(tmp_path / "t.csv", tmp_path / "t.zarr")
    matrix = sks.open_matrix(tmp_path / "t.zarr")
    labels = open_vector(f"obs/{column}", 60, matrix=matrix)
    assert labels.read(5, 9).tolist() == ["", "None", "none", ""]
    names = open_vector(f"obs/{column}", 60, matrix=matrix, name="row_names")
    assert names.read(5, 9).tolist() == ["NA", "None", "none", "NA"]
    frame.to_parquet(tmp_path / "t.parquet")
    assert open_vector(column, 60, matrix=str(tmp_path / "t.parquet")).read(5, 7).tolist() == ["NA", "None"]


@pytest.mark.filterwarnings("ignore:.*columns (is|are) text", "ignore:.*fields are missing")
def test_files_carry_the_names_of_rows_and_target(table: np.ndarray, tmp_path: Path) -> None:
    whole = (tmp_path / "patients.csv").read_text().replace("n/a", "50000")  # the only income that is missing
    (tmp_path / "patients.csv").write_text(whole)
    convert(tmp_path / "patients.csv", tmp_path / "patients.zarr")
    source = {"url": str(tmp_path / "patients.zarr"), "nonfinite": "missing"}
    job = {"prepare": {"steps": ["impute"]}, "select": {"method": "lasso"}, "execution": {"cluster": "serial"}}
    new = tmp_path / "new.csv"
    for target, task in (("income", "regression"), ("obs/group", "classification")):
        job["select"] = {"method": "lasso", "task": task}
        sks.run(job | {"input": source | {"target": target}, "output": {"dir": str(tmp_path / task)}})
        # The file is ours by its own header, and may be written again.
        new.unlink(missing_ok=True)
        for _ in range(2):
            works("assign", tmp_path / task, tmp_path / "patients.zarr", "-o", new, "--cluster", "serial")
        lines = new.read_text().splitlines()
        assert lines[0] == f"patient,{target.removeprefix('obs/')}"
        assert [line.split(",")[0] for line in lines[1:]] == [f"P{i}" for i in range(300)]
    new.write_text("patient,visits\nP0,3\n")
    refused = cli("assign", tmp_path / "regression", tmp_path / "patients.zarr", "-o", new)
    assert "does not begin as this .csv file will" in refused.output
    assert new.read_text() == "patient,visits\nP0,3\n"


def test_new_rows_are_named_by_the_column_that_named_those_of_the_run(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((40, 3)), columns=list("abc")).assign(ward=np.arange(40) + 100)
    frame.to_parquet(tmp_path / "rows.parquet")
    frame[20:].reset_index(drop=True).to_parquet(tmp_path / "new.parquet")
    source = {"url": str(tmp_path / "rows.parquet"), "row_names": "ward"}
    result = sks.run(
        {"input": source, "select": {"method": "variance", "n_features": 2}, "cluster": {"n_clusters": 2}}
        | {"execution": {"cluster": "serial"}, "output": {"dir": str(tmp_path / "out"), "report": False}}
    )
    labels = (result.folder / "labels.csv").read_text().splitlines()
    assert labels[:2] == ["ward,cluster", f"100,{result.labels[0]}"]
    new = tmp_path / "new.csv"
    works("assign", tmp_path / "out", tmp_path / "new.parquet", "-o", new, "--cluster", "serial")
    assert new.read_text().splitlines() == [labels[0], *labels[21:]]


def test_a_file_names_the_rows_of_a_source_without_names(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((60, 4))
    np.save(tmp_path / "rows.npy", rows)
    (tmp_path / "ids.csv").write_text("id\n" + "".join(f"id{i}\n" for i in range(60)))
    (tmp_path / "job.toml").write_text(
        JOB.replace("patients.zarr", "rows.npy").replace('labels = "obs/group"', 'row_names = "ids.csv"')
    )
    result = sks.run(tmp_path / "job.toml")
    lines = (result.folder / "labels.csv").read_text().splitlines()
    assert lines == ["row,cluster", *(f"id{i},{label}" for i, label in enumerate(result.labels))]


@pytest.mark.parametrize(
    ("content", "features", "names"),
    [
        (",a,b\n0,1,2\n1,3,\n", [[1, 2], [3, np.nan]], ["0", "1"]),  # the index of pandas
        ("id;a/b;c\nx;t;1\ny;u;NULL\n", [[1], [np.nan]], ["x", "y"]),
        ("a,b\n,1\nNA,2\n", [[np.nan, 1], [np.nan, 2]], None),
    ],
)
@pytest.mark.filterwarnings("ignore:.*columns (is|are) text", "ignore:.*fields? (is|are) missing")
def test_columns_of_text_are_told_by_their_first_entry(
    content: str, features: list[list[float]], names: list[str] | None, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text(content)
    matrix = sks.open_matrix(convert(tmp_path / "t.csv", tmp_path / "t.zarr", chunks="1x9"), nonfinite="missing")
    assert np.array_equal(matrix.read_rows(0, 2), features, equal_nan=True)
    assert (None if matrix.row_names is None else matrix.row_names.read(0, 2).tolist()) == names


def test_numbers_in_another_notation_are_warned_of_and_repeated_names_refused(tmp_path: Path) -> None:
    text = "id,age,{},bmi,weight,cost,visit,sex\n" + '1A,30,1,"22,5",70 kg,"1,200.50",2024-01-31,m\n' * 2
    (tmp_path / "t.csv").write_text(text.format("sbp"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        convert(tmp_path / "t.csv", tmp_path / "t.zarr")
    texts = [str(warning.message) for warning in caught]
    assert any("text looks like numbers in 'bmi', 'weight', 'cost'; written as 1234.5" in text for text in texts)
    assert any('decimal commas are read with decimal="," (--decimal ,)' in text for text in texts)
    assert not any("dates such as" in text for text in texts)
    (tmp_path / "t.csv").write_text(text.format("age"))
    with pytest.raises(SourceError, match=r"t\.csv: columns 0 and 1 are both named 'age'"):
        convert(tmp_path / "t.csv", tmp_path / "t.zarr")


def test_dates_in_another_notation_are_said_to_be_dates(tmp_path: Path) -> None:
    head = "id,age,came,left,seen,at,version,ip\n"
    (tmp_path / "t.csv").write_text(
        head + "1A,30,31.12.2024,12/31/24,3-4-2024,1.2.2024 08:00,1.12.3.4,10.0.2024.1\n" * 2
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        convert(tmp_path / "t.csv", tmp_path / "t.zarr")
    texts = [str(warning.message) for warning in caught]
    (of_dates,) = [text for text in texts if "dates such as" in text]
    assert "in 'came', 'left', 'seen', 'at' are read as text; written as 2024-12-31" in of_dates
    assert not any("looks like numbers" in text and "'came'" in text for text in texts)


def test_a_table_of_text_alone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\nx,y\n")
    with pytest.raises(SourceError, match=r"t\.csv: no column holds numbers"):
        convert(tmp_path / "t.csv", tmp_path / "t.zarr")


@pytest.fixture
def numbered(tmp_path: Path) -> dict[str, np.ndarray]:
    """Columns of which "id" and "row" rise as identifiers do; others have fractions or equals, fall, or are large."""
    rng, n = np.random.default_rng(8), 100
    late = np.arange(n)
    late[60:] -= 50
    columns = {"id": 7 + 3 * np.arange(n) ** 2, "a": rng.standard_normal(n), "sorted": np.sort(rng.random(n) * n)}
    large = np.sort(rng.random(n).astype(np.float32)) * np.float32(2**26)
    columns |= {"age": np.arange(n) // 2, "late": late, "row": np.arange(n) / 1.0, "down": -np.arange(n)}
    return columns | {"large": large}


def _frame(columns: dict[str, np.ndarray], form: str, folder: Path) -> Any:
    if form == "pandas":
        return pd.DataFrame(columns)
    if form == "polars":
        return pytest.importorskip("polars").DataFrame(columns)
    path = folder / "t.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=int(form))
    return str(path)


@pytest.mark.parametrize("form", ["pandas", "polars", "15", "40", "1000"])
def test_identifiers_are_named(numbered: dict[str, np.ndarray], tmp_path: Path, form: str) -> None:
    frame = _frame(numbered, form, tmp_path)
    for use in (
        lambda: sks.VarianceSelector(2).fit(frame),
        lambda: sks.KMeans(2).fit(frame),
        lambda: sks.summarize(frame, sks.Moments()),
        lambda: convert(frame, tmp_path / "t.zarr"),
    ):
        with pytest.warns(UserWarning, match="'id', 'row' rise by whole numbers") as caught:
            use()
        assert len([each for each in caught if "identifiers" in str(each.message)]) == 1
    others = {name: values for name, values in numbered.items() if name not in ("id", "row")}
    few = {name: values[:19] for name, values in numbered.items()}
    for columns in (others, few):
        assert sks.VarianceSelector(2).fit(_frame(columns, form, tmp_path)).n_features_in_ == len(columns)
    with_target = sks.selectors.UnivariateSelector().fit(_frame(others | {"id": numbered["id"]}, form, tmp_path), "id")
    assert with_target.n_features_in_ == len(others)


def test_a_job_names_identifiers_of_parquet(numbered: dict[str, np.ndarray], tmp_path: Path) -> None:
    url = _frame(numbered, "40", tmp_path)
    job = {"select": {"method": "variance", "n_features": 2}, "execution": {"cluster": "serial"}}
    job |= {"output": {"dir": str(tmp_path / "out"), "report": False}}
    for key, there in ((None, True), ("-id,row", False), ("id,a,row", False)):
        notes = sks.run(job | {"input": {"url": url, **({} if key is None else {"key": key})}}).manifest["notes"]
        assert any("'id', 'row' rise by whole numbers" in note and 'key="-id,row"' in note for note in notes) is there


def test_dates_are_no_identifiers() -> None:
    rng = np.random.default_rng(1)
    days = {name: pd.to_datetime(rng.permutation(100), unit="D") for name in ("id", "date_id")}
    sks.KMeans(2).fit(pd.DataFrame(days | {"a": rng.standard_normal(100)}), prepare=["dates", "standardise"])


@pytest.mark.parametrize("form", ["pandas", "polars", "40", "dask", "csv"])
def test_identifiers_in_any_order_are_named_where_they_are_called_so(tmp_path: Path, form: str) -> None:
    rng, n = np.random.default_rng(9), 100
    columns = {"customer_id": rng.permutation(n) + 1000, "a": rng.standard_normal(n), "salary": rng.permutation(n) * 7}
    columns |= {"group_id": np.arange(n) // 3, "humid": rng.permutation(n), "key": rng.standard_normal(n)}

    def named(columns: dict[str, np.ndarray]) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if form == "dask":
                frame = dask_frames.from_pandas(pd.DataFrame(columns), npartitions=2)
                sks.VarianceSelector(2).fit(frame)
            elif form == "csv":
                pd.DataFrame(columns).to_csv(tmp_path / "t.csv", index=False)
                convert(tmp_path / "t.csv", tmp_path / "t.zarr")
            else:
                sks.VarianceSelector(2).fit(_frame(columns, form, tmp_path))
        assert "elements" not in str([each.message for each in caught])  # of Dask, on short partitions
        return [str(each.message) for each in caught if "identifiers" in str(each.message)]

    dask_frames = pytest.importorskip("dask.dataframe") if form == "dask" else None
    [text] = named(columns)
    assert (
        "column 'customer_id' has a different whole number in every row seen, as identifiers do, and is a feature"
        in text
    )
    assert not named({name: values for name, values in columns.items() if name != "customer_id"})
    assert not named({name: values[:19] for name, values in columns.items()})


@pytest.mark.filterwarnings("ignore:.*columns (is|are) text")
def test_each_count_of_columns_says_what_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(9)
    table = pd.DataFrame({"a": rng.standard_normal(90), "town": list("xyz") * 30, "b": rng.random(90)})
    table.to_csv("t.csv", index=False)
    assert "90 rows, 2 columns of numbers (float64) and 1 of text" in works("convert", "t.csv", "t.zarr").stdout
    assert "90 rows x 3 columns (2 of numbers, 1 of text), float64" in works("init", "t.zarr").stdout
    done = works("run", "job.toml", "-q", "--set", "select.method=variance", "--set", "select.n_features=2")
    made = "selected 2 of 5 columns with variance; the prepare steps make these 5 of the source's 3"
    assert made in done.stdout.splitlines()
    table.drop(columns="town").to_csv("n.csv", index=False)
    assert "n.zarr: 90 x 2 float64" in works("convert", "n.csv", "n.zarr").stdout
    assert "90 rows x 2 columns, float64" in works("init", "n.zarr", "-o", "n.toml").stdout


@pytest.mark.filterwarnings("ignore:.*columns is text", "ignore:.*as identifiers do")
@pytest.mark.parametrize("text", [{}, {"town": ["x", "y"] * 50}], ids=["numbers", "numbers and text"])
def test_a_job_on_a_converted_store_notes_its_identifiers(tmp_path: Path, text: dict[str, list[str]]) -> None:
    rng = np.random.default_rng(9)
    columns = {"customer_id": rng.permutation(100) + 1000, "a": rng.standard_normal(100), "b": rng.random(100)}
    pd.DataFrame(columns | text).to_csv(tmp_path / "t.csv", index=False)
    url = str(convert(tmp_path / "t.csv", tmp_path / "t.zarr"))
    job = {"select": {"method": "variance", "n_features": 1}, "execution": {"cluster": "serial"}}
    job |= {"input": {"url": url}, "output": {"dir": str(tmp_path / "out")}}
    noted = [*sks.run(job).manifest["notes"], *forecast_job(job, calibrate=False).notes]
    assert sum("column 'customer_id' has a different whole number in every row seen" in note for note in noted) == 2
    without = sks.run(job, overrides=["input.key=-customer_id"])
    assert not [note for note in without.manifest["notes"] if "whole number" in note]


@pytest.mark.filterwarnings("ignore:.*columns is text")
def test_a_first_job_leaves_identifiers_out_if_one_wants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(9)
    table = pd.DataFrame({"customer_id": rng.permutation(100), "a": rng.standard_normal(100), "b": rng.random(100)})
    table["c"] = ["x", "y"] * 50
    table.to_csv("t.csv", index=False)
    with pytest.warns(UserWarning, match="customer_id"):
        convert("t.csv", "t.zarr")
    table.drop(columns="c").to_parquet("t.parquet")
    for source in ("t.zarr", "t.parquet"):
        works("init", source, "-o", f"{source}.toml")
        text = Path(f"{source}.toml").read_text()
        [line] = (line for line in text.splitlines() if "identifiers" in line)
        assert line.startswith('# key = "-customer_id"')
        Path(f"{source}.toml").write_text(text.replace(line, line.removeprefix("# ")))
        opened = sks.open_matrix(source, key=load_job(f"{source}.toml").input.key)
        assert opened.feature_names == ("a", "b")
    for order, is_hinted in ((["sensor", "a", "b"], True), (["a", "sensor", "b"], False)):
        table.rename(columns={"customer_id": "sensor"})[order].to_parquet("s.parquet")
        works("init", "s.parquet", "-o", f"{order[0]}.toml")
        assert ('# key = "-sensor"' in Path(f"{order[0]}.toml").read_text()) == is_hinted, (
            "the first column, by any name"
        )


@pytest.mark.filterwarnings("ignore:.*columns are text")
def test_inspect_describes_text(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {"id": [f"p{i}" for i in range(60)], "age": np.arange(60) % 7, "town": ["mill", "lake", "mill"] * 20}
    )
    table["day"] = pd.date_range("2024-01-01", periods=60).astype(str)
    table.loc[4, "town"] = None
    table.to_csv(tmp_path / "t.csv", index=False)
    convert(tmp_path / "t.csv", tmp_path / "t.zarr")
    table.to_parquet(tmp_path / "t.parquet")
    for arguments, size in (
        ([tmp_path / "t.parquet"], "60 rows x 4 columns"),
        ([tmp_path / "t.zarr"], "60 rows x 1 column,"),
        ([tmp_path / "t.zarr", "--key", "obs/town"], "obs/town: 60 texts"),
        ([tmp_path / "t.zarr" / "obs" / "town"], "obs/town: 60 texts"),
    ):
        told = works("inspect", *arguments).stdout
        assert size in told
        assert "2 levels, the most frequent mill (40), lake (19)" in told
        assert ("prepare steps 'one-hot' and 'dates'" in told) == ("texts" not in size)
    assert "id: a different text in every row, as names of rows do" in works("inspect", tmp_path / "t.parquet").stdout
    table.assign(town=pd.array([None] * 60, dtype="string")).to_parquet(tmp_path / "none.parquet")
    assert "town: no level, all entries are missing\n" in works("inspect", tmp_path / "none.parquet").stdout
    np.save(tmp_path / "y.npy", np.arange(9.0))
    assert "y.npy: 9 numbers, float64" in works("inspect", tmp_path / "y.npy").stdout
    assert "no array 'towne' in this group" in cli("inspect", tmp_path / "t.zarr", "--key", "towne").stderr


@pytest.mark.filterwarnings("ignore:.*missing")
@pytest.mark.parametrize("quoted", ['""', '" "'])
@pytest.mark.parametrize("name", ["a\n", '"a"\n', ""])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_empty_entry_of_the_only_column_is_a_row(tmp_path: Path, quoted: str, name: str, end: str) -> None:
    """So pandas writes a missing value there; a blank line is none, as for pandas."""
    lines = f"{name}1\n{quoted}\n2\n\n3\n{quoted}\n"
    (tmp_path / "t.csv").write_bytes(lines.replace("\n", end).encode())
    convert(tmp_path / "t.csv", tmp_path / "t.zarr")
    rows = sks.open_matrix(tmp_path / "t.zarr", nonfinite="missing").read_rows(0, 5)
    assert np.array_equal(rows[:, 0], [1, np.nan, 2, 3, np.nan], equal_nan=True)


def test_a_packed_table_that_is_damaged_is_named(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress("".join(f"{i},{i * 7 % 13}\n" for i in range(5000)).encode()))
    packed[200] ^= 255
    (tmp_path / "t.csv.gz").write_bytes(packed)
    with pytest.raises(SourceError, match=r"t\.csv\.gz: .*cut off"):
        convert(tmp_path / "t.csv.gz", tmp_path / "t.zarr")


def test_a_column_that_no_step_encodes_is_named_before_text(tmp_path: Path) -> None:
    table = {"town": ["mill", "lake"], "nothing": pa.array([None, None]), "a": [1.0, 2.0]}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    for command in (["inspect"], ["init", "-o", tmp_path / "job.toml"]):
        done = cli(*command, tmp_path / "t.parquet")
        assert done.exit_code == 1
        assert "column 'nothing' is of type null" in done.stderr


def test_levels_of_equal_frequency_have_one_order(tmp_path: Path) -> None:
    towns = [f"town {i % 7}" for i in range(70)]
    pd.DataFrame({"a": np.arange(70) / 2, "town": towns}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.warns(UserWarning, match="text"):
        convert(tmp_path / "t.csv", tmp_path / "t.zarr")
    listed = ", ".join(f"town {i} (10)" for i in range(4))
    for key in ([], ["--key", "obs/town"]):
        assert f"the most frequent {listed}" in works("inspect", tmp_path / "t.zarr", *key).stdout


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("options", [[], ["-q"]])
def test_a_conversion_warns_of_columns_that_are_no_numbers(tmp_path: Path, options: list[str]) -> None:
    """Also where it is quiet: what is lost is no progress."""
    (tmp_path / "t.csv").write_text("a,town\n1,mill\n2,lake\n")
    assert "warning: " in works("convert", tmp_path / "t.csv", tmp_path / "t.zarr", *options).stderr
