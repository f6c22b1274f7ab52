"""The verb `assign`: rows of another site get the clusters and the predictions of a finished run."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import sketchselect as sks
from sketchselect.readers import open_vector
from sketchselect.workflow import assignment

from .commands import cli, refused, works


def job(folder: Path, **sections: Any) -> dict[str, Any]:
    return {
        "input": {"url": str(folder / "rows.npy")},
        "select": {"method": "greedy", "n_features": 4},
        "cluster": {"n_clusters": 3},
        "execution": {"cluster": "serial"},
        "output": {"dir": str(folder / "out"), "report": False},
        **sections,
    }


@pytest.fixture
def rows(tmp_path: Path) -> np.ndarray:
    rng = np.random.default_rng(4)
    values = rng.standard_normal((240, 9)) + 5 * rng.integers(0, 2, (3, 9))[rng.integers(3, size=240)]
    np.save(tmp_path / "rows.npy", values)
    return values


def assigned(*words: object) -> list[dict[str, str]]:
    works("assign", *words, "--cluster", "serial")
    with open(str(words[words.index("-o") + 1]), newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("sections", "policy"),
    [
        ({}, "error"),
        ({"prepare": {"steps": ["standardise"]}}, "error"),
        ({"prepare": {"steps": [{"step": "impute", "by": "median"}, "scale"]}}, "missing"),
        ({"select": {"method": "hybrid", "n_features": 4}, "cluster": {"n_clusters": 3, "weighted": True}}, "error"),
        ({"cluster": {"n_clusters": 6, "metric": "least-squares"}}, "error"),
        ({"cluster": {"n_clusters": 6, "reassign": True}}, "error"),
        ({"cluster": {"n_clusters": 6, "reassign": True}, "select": {"method": "hybrid", "n_features": 7}}, "error"),
    ],
)
def test_the_rows_of_the_run_get_its_labels(
    rows: np.ndarray, tmp_path: Path, sections: dict[str, Any], policy: str
) -> None:
    rows[::50, 2] = np.nan if policy == "missing" else 0.0
    np.save(tmp_path / "rows.npy", rows)
    whole = job(tmp_path, **sections)
    whole["input"]["nonfinite"] = policy
    result = sks.run(whole)
    # The second site has the one file, and neither the folder nor the rows.
    (tmp_path / "site").mkdir()
    shutil.copy(result.folder / "assign.json", tmp_path / "site")
    np.save(tmp_path / "site" / "new.npy", rows[100:])
    table = assigned(tmp_path / "site" / "assign.json", tmp_path / "site" / "new.npy", "-o", tmp_path / "new.csv")
    assert [int(line["cluster"]) for line in table] == result.labels[100:].tolist()
    assert table[0]["row"] == "0"


@pytest.mark.parametrize(
    "select",
    [
        {"method": "lasso", "criterion": "bic"},
        {"method": "lasso", "n_features": 6, "degree": 2},
        {"method": "thresholded-ols", "n_features": 3, "task": "classification"},
    ],
)
def test_predictions_are_those_of_the_estimator(rows: np.ndarray, tmp_path: Path, select: dict[str, Any]) -> None:
    target = rows[:, 1] - 2 * rows[:, 4] + rows[:, 1] * rows[:, 7]
    if "task" in select:
        target = np.array(["low", "middle", "high"])[np.digitize(target, np.quantile(target, [0.3, 0.6]))]
    np.save(tmp_path / "y.npy", target)
    whole = job(tmp_path, select=select)
    del whole["cluster"]
    whole["input"]["target"] = str(tmp_path / "y.npy")
    sks.run(whole)
    parameters = {("n_features_to_select" if name == "n_features" else name): v for name, v in select.items()}
    cls = {"lasso": sks.LassoPath, "thresholded-ols": sks.ThresholdedOLS}[parameters.pop("method")]
    expected = cls(**parameters).fit(rows, target).predict(rows)
    # Sparse rows are the same rows.
    scipy.sparse.save_npz(tmp_path / "new.npz", scipy.sparse.csr_array(rows))
    for new in ("rows.npy", "new.npz"):
        table = assigned(tmp_path / "out", tmp_path / new, "-o", tmp_path / "new.csv")
        if "task" in select:
            assert [line["class"] for line in table] == expected.tolist()
        else:
            np.testing.assert_allclose([float(line["target"]) for line in table], expected, rtol=1e-9, atol=1e-9)


def test_rows_that_are_dropped_and_names(rows: np.ndarray, tmp_path: Path) -> None:
    whole = job(tmp_path)
    whole["input"]["nonfinite"] = "drop_rows"
    result = sks.run(whole)
    rows[[3, 8], 1] = np.inf
    np.save(tmp_path / "new.npy", rows[:20])
    (tmp_path / "ids.txt").write_text("".join(f"P{i}\n" for i in range(20)))
    where = (tmp_path / "out", tmp_path / "new.npy", "-o", tmp_path / "new.csv")
    table = assigned(*where, "--row-names", tmp_path / "ids.txt")
    assert [line["row"] for line in table] == [f"P{i}" for i in range(20)]
    expected = result.labels[:20].copy()
    expected[[3, 8]] = -1
    assert [int(line["cluster"]) for line in table] == expected.tolist()
    refused(cli("assign", *where, "--max-dropped", 0.05), 1, "left out 2 of 20 rows", "--max-dropped 0.1")


@pytest.mark.parametrize("ending", ["parquet", "zarr"])
def test_columns_are_matched_by_their_names(rows: np.ndarray, tmp_path: Path, ending: str) -> None:
    table = pd.DataFrame(rows, columns=[f"x{j}" for j in range(9)])
    _written(table, tmp_path / f"rows.{ending}")
    whole = job(tmp_path)
    whole["input"]["url"] = str(tmp_path / f"rows.{ending}")
    labels = sks.run(whole).labels.tolist()
    other = table[table.columns[::-1]].assign(ward=1.0, bed=2.0)
    _written(other, tmp_path / f"other.{ending}")
    words = (tmp_path / "out", tmp_path / f"other.{ending}", "-o", tmp_path / "new.csv", "--cluster", "serial")
    done = works("assign", *words)
    assert "2 columns that the run did not have are left out: 'ward', 'bed'" in done.stdout
    with open(tmp_path / "new.csv", newline="") as stream:
        assert [int(line["cluster"]) for line in csv.DictReader(stream)] == labels
    used = {f"x{j}" for j in json.loads((tmp_path / "out" / "selection.json").read_text())["support"]}
    for name in used:
        _written(other.drop(columns=name), tmp_path / f"other.{ending}")
        refused(cli("assign", *words), 1, "of the run's 9 columns these are not in it", f"'{name}'", "give them")


def test_columns_that_the_run_left_out_may_be_of_any_type_and_its_labels_absent(
    rows: np.ndarray, tmp_path: Path
) -> None:
    table = pd.DataFrame(rows, columns=[f"x{j}" for j in range(9)]).assign(
        kind=["a", "b"] * 120, day=pd.date_range("2024-01-01", periods=240)
    )
    table.to_parquet(tmp_path / "rows.parquet")
    whole = job(tmp_path)
    whole["input"] = {"url": str(tmp_path / "rows.parquet"), "key": "-day", "labels": "kind"}
    labels = sks.run(whole).labels.tolist()
    table.drop(columns="kind").assign(note="seen").to_parquet(tmp_path / "new.parquet")
    done = works(
        "assign", tmp_path / "out", tmp_path / "new.parquet", "-o", tmp_path / "new.csv", "--cluster", "serial"
    )
    assert "2 columns that the run did not have are left out: 'day', 'note'" in done.stdout
    with open(tmp_path / "new.csv", newline="") as stream:
        assert [int(line["cluster"]) for line in csv.DictReader(stream)] == labels


def test_a_unit_with_a_slash_stays_in_the_name_of_the_predictions(rows: np.ndarray, tmp_path: Path) -> None:
    table = pd.DataFrame(rows, columns=[f"x{j}" for j in range(9)])
    table["yield t/ha"], table["row/column"] = table.x2, [f"{i}/0" for i in range(len(rows))]
    table.to_parquet(tmp_path / "rows.parquet")
    whole = {**job(tmp_path, select={"method": "lasso", "alpha": 0.1}), "cluster": None}
    whole["input"] = {"url": str(tmp_path / "rows.parquet"), "target": "yield t/ha", "row_names": "row/column"}
    sks.run(whole)
    works("assign", tmp_path / "out", tmp_path / "rows.parquet", "-o", tmp_path / "new.csv", "--cluster", "serial")
    assert pd.read_csv(tmp_path / "new.csv").columns.tolist() == ["row/column", "yield t/ha"]


@pytest.mark.parametrize("ending", ["parquet", "zarr"])
@pytest.mark.filterwarnings("ignore:.*text and not used")
def test_columns_that_nothing_uses_may_be_absent(rows: np.ndarray, tmp_path: Path, ending: str) -> None:
    table = pd.DataFrame(rows, columns=[f"x{j}" for j in range(9)])
    table["ward"], table["day"] = ["north", "south"] * 120, pd.date_range("2024-01-01", periods=240)
    table["price"] = 3 * table.x2 + 4 * (table.ward == "north")
    _written(table, tmp_path / f"rows.{ending}")
    whole = job(tmp_path, select={"method": "lasso", "n_features": 3}, prepare={"steps": ["one-hot", "dates", "scale"]})
    whole["input"] = {"url": str(tmp_path / f"rows.{ending}"), "target": "price"}
    result = sks.run(whole)
    used = {result.selection.feature_names[j].partition("=")[0] for j in result.selection.support}
    assert {"x2", "ward"} <= used
    words = (tmp_path / "out", tmp_path / f"rows.{ending}", "-o", tmp_path / "new.csv", "--cluster", "serial")
    works("assign", *words)
    expected = (tmp_path / "new.csv").read_bytes()
    unused = [name for name in table.columns[:-1] if name not in used]
    assert len(unused) > 7
    _written(table.drop(columns=["price", *unused]), tmp_path / f"rows.{ending}")
    done = works("assign", *words)
    assert f"note: {len(unused)} columns of the run are not in" in done.stdout
    assert (tmp_path / "new.csv").read_bytes() == expected
    _written(table.drop(columns=["price", "ward", unused[0]]), tmp_path / f"rows.{ending}")
    refused(cli("assign", *words), 1, "these are not in it, or not once: 'ward'; give them")


@pytest.mark.parametrize("title", ["Preis (€)", "target"])
def test_predictions_have_the_title_of_the_target_of_a_file(rows: np.ndarray, tmp_path: Path, title: str) -> None:
    names = [f"r{i}" for i in range(len(rows))]
    frame = pd.DataFrame(rows, columns=[f"c{j}" for j in range(9)], index=pd.Index(names, name="id"))
    frame.to_parquet(tmp_path / "rows.parquet")
    (3 * frame["c2"]).rename(title).to_csv(tmp_path / "price.csv")
    whole = job(tmp_path, select={"method": "lasso", "n_features": 1})
    whole["input"] = {"url": str(tmp_path / "rows.parquet"), "target": str(tmp_path / "price.csv")}
    result = sks.run(whole)
    table = pd.read_csv(assigned_file(tmp_path / "out", tmp_path / "rows.parquet"))
    assert table.columns.tolist() == ["id", "cluster", title]
    np.testing.assert_allclose(table[title], 3 * frame["c2"], rtol=0.1)
    assert json.loads((result.folder / "model.json").read_text())["outputs"] == [title]
    works("verify", result.folder)


def test_a_column_that_a_step_uses_may_not_be_absent(rows: np.ndarray, tmp_path: Path) -> None:
    table = pd.DataFrame(rows, columns=[f"x{j}" for j in range(9)])
    _written(table, tmp_path / "rows.parquet")
    whole = job(tmp_path, prepare={"steps": ["l2"]})
    whole["input"]["url"] = str(tmp_path / "rows.parquet")
    support = sks.run(whole).selection.support.tolist()
    (unused, *_) = (j for j in range(9) if j not in support)
    _written(table.drop(columns=f"x{unused}"), tmp_path / "rows.parquet")
    words = (tmp_path / "out", tmp_path / "rows.parquet", "-o", tmp_path / "new.csv")
    refused(cli("assign", *words), 1, "these are not in it, or not once", f"'x{unused}'")


def test_text_that_a_step_refuses_where_it_is_missing_may_not_be_absent(rows: np.ndarray, tmp_path: Path) -> None:
    table = pd.DataFrame(rows, columns=[f"x{j}" for j in range(9)]).assign(ward=["north", "south"] * 120)
    _written(table, tmp_path / "rows.parquet")
    whole = job(tmp_path, prepare={"steps": ['one-hot(unknown="error")']})
    whole["input"]["url"] = str(tmp_path / "rows.parquet")
    sks.run(whole)
    _written(table.drop(columns="ward"), tmp_path / "rows.parquet")
    words = (tmp_path / "out", tmp_path / "rows.parquet", "-o", tmp_path / "new.csv")
    refused(cli("assign", *words), 1, "these are not in it, or not once", "'ward'")


def _written(table: pd.DataFrame, path: Path) -> None:
    if path.suffix == ".parquet":
        table.to_parquet(path, index=False)
    else:
        table.to_csv(path.with_suffix(".csv"), index=False)
        shutil.rmtree(path, ignore_errors=True)
        works("convert", path.with_suffix(".csv"), path)


def test_other_columns_and_other_files_are_refused(rows: np.ndarray, tmp_path: Path) -> None:
    sks.run(job(tmp_path))
    np.save(tmp_path / "new.npy", rows[:, :7])
    out = ("-o", tmp_path / "new.csv")
    refused(cli("assign", tmp_path / "out", tmp_path / "new.npy", *out), 1, "has 7 columns, the run's rows had 9")
    refused(cli("assign", tmp_path / "rows.npy", tmp_path / "new.npy", *out), 1, "rows.npy", "assign.json")
    refused(cli("assign", tmp_path, tmp_path / "new.npy", *out), 1, "assign.json: no such file")
    (tmp_path / "new.csv").write_text("mine\n")
    refused(cli("assign", tmp_path / "out", tmp_path / "rows.npy", *out), 1, "not overwritten")


def test_the_file_names_no_place_and_no_row(rows: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "known.npy", np.arange(240) % 3)
    whole = job(tmp_path)
    whole["input"]["labels"] = str(tmp_path / "known.npy")
    sks.run(whole)
    text = (tmp_path / "out" / "assign.json").read_text()
    assert str(tmp_path) not in text
    assert json.loads(text)["no_features"] == []


def test_names_and_classes_that_are_negative_numbers_stay_numbers(rows: np.ndarray, tmp_path: Path) -> None:
    classes = np.where(rows[:, 0] > 2.5, 1, -1)
    np.save(tmp_path / "classes.npy", classes)
    ids = np.arange(len(rows)) - 100
    frame = pd.DataFrame(rows, columns=[f"c{j}" for j in range(9)])
    frame.assign(id=ids).to_parquet(tmp_path / "rows.parquet")
    whole = job(tmp_path, select={"method": "lasso", "task": "classification"})
    whole["input"] = {"url": str(tmp_path / "rows.parquet"), "target": str(tmp_path / "classes.npy"), "row_names": "id"}
    result = sks.run(whole)
    table = pd.read_csv(assigned_file(tmp_path / "out", tmp_path / "rows.parquet"))
    assert table["id"].tolist() == ids.tolist()
    predicted = table[table.columns[-1]]
    assert set(predicted) == {-1, 1}
    assert np.mean(predicted == classes) > 0.7
    assert pd.read_csv(result.folder / "labels.csv")["id"].tolist() == ids.tolist()
    output = works("evaluate", result.folder, "--labels", tmp_path / "classes.npy").output
    assert "\n-1 " in output
    assert "'-1" not in output


@pytest.mark.filterwarnings("ignore:.*columns is text")
def test_new_rows_are_named_by_the_column_that_named_those_of_the_store(rows: np.ndarray, tmp_path: Path) -> None:
    frame = pd.DataFrame(rows, columns=[f"c{j}" for j in range(9)])
    frame.insert(0, "house", [f"H{i}" for i in range(len(rows))])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "new.parquet")
    whole = job(tmp_path)
    whole["input"] = {"url": str(sks.convert(tmp_path / "rows.csv", tmp_path / "rows.zarr"))}
    sks.run(whole)
    output = tmp_path / "new.csv"
    said = works("assign", tmp_path / "out", tmp_path / "new.parquet", "-o", output, "--scheduler", "serial").output
    assert pd.read_csv(output)["house"].tolist() == frame["house"].tolist()
    assert "left out" not in said


def test_a_missing_value_of_new_rows_says_the_way_that_a_run_has(rows: np.ndarray, tmp_path: Path) -> None:
    sks.run(job(tmp_path))
    new = rows.copy()
    new[3, 2] = np.nan
    np.save(tmp_path / "new.npy", new)
    said = cli("assign", tmp_path / "out", tmp_path / "new.npy", "-o", tmp_path / "new.csv", "--scheduler", "serial")
    refused(said, 1, "row 3, column 2", "impute")
    assert "nonfinite" not in said.stderr
    assert not (tmp_path / "new.csv").exists()


def assigned_file(*words: object) -> Path:
    """Return the CSV that `assign` writes."""
    path = Path(str(words[-1])).with_suffix(".assigned.csv")
    works("assign", *words, "-o", path, "--cluster", "serial")
    return path


@pytest.mark.parametrize("cluster", ["serial", "threads"])
def test_what_the_steps_replaced_in_new_rows_is_noted(tmp_path: Path, cluster: str) -> None:
    rng = np.random.default_rng(2)
    table = pd.DataFrame(rng.standard_normal((240, 4)), columns=list("abcd"))
    table["ward"] = rng.choice(["A1", "A2", "B"], 240)
    table.to_parquet(tmp_path / "rows.parquet")
    whole = job(tmp_path, prepare={"steps": ["one-hot", "impute", "standardise"]})
    whole["input"]["url"] = str(tmp_path / "rows.parquet")
    sks.run(whole)
    words = ("assign", tmp_path / "out", tmp_path / "new.parquet", "-o", tmp_path / "new.csv", "--cluster", cluster)
    table.to_parquet(tmp_path / "new.parquet", row_group_size=60)
    quiet = works(*words)
    assert "did not have" not in quiet.stdout
    assert "missing" not in quiet.stdout
    new = table.copy()
    new.loc[[3, 5, 70, 71, 200, 239], "ward"] = ["ICU", "C", "ICU", "D", "E", "F"]
    new.loc[[9, 100], "ward"] = None
    new.loc[::80, "c"] = np.nan
    new.to_parquet(tmp_path / "new.parquet", row_group_size=60)
    done = works(*words)
    assert "note: levels that the run did not have: 'ward' in 8 rows ('ICU', 'C', missing, ...)" in done.stdout
    assert "note: missing values that were filled: 'c' in 3 rows" in done.stdout


@pytest.mark.parametrize("names", [None, open_vector([f"r{i}" for i in range(10)], 10)])
def test_the_table_of_new_rows_is_written_part_by_part(monkeypatch: pytest.MonkeyPatch, names: Any) -> None:
    rates = np.log(np.arange(1.0, 11))[:, None]
    rates[7] = np.nan
    result = assignment.Assigned(np.arange(10, dtype=np.int32), rates, {})
    model = {"family": "poisson", "classes": None}

    def parts() -> list[bytes]:
        return list(assignment.assigned_csv(result, model, ["row", "cluster", "y"], names, 10))

    whole = b"".join(parts())
    monkeypatch.setattr(assignment, "PART_ROWS", 3)
    assert max(map(len, parts())) < len(whole) / 2
    assert b"".join(parts()) == whole
    assert whole.splitlines()[8] == (b"7,7," if names is None else b"r7,7,")
