"""Targets and labels that name their rows: files are brought into the order of the source, others are refused."""

import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import anndata
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import sketchselect as sks
from sketchselect.errors import ChunkReadError, SketchSelectError, SourceError
from sketchselect.readers import open_vector
from sketchselect.readers.parquet import ParquetVector

N = 30
NAMES = [f"w{i}" for i in range(N)]
ORDER = np.random.default_rng(2).permutation(N)
VALUES = np.arange(N) * 10


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A Parquet table whose rows have names."""
    rows = np.random.default_rng(0).standard_normal((N, 3))
    frame = pd.DataFrame(rows, columns=list("abc"), index=pd.Index(NAMES, name="wine"))
    frame.to_parquet(tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


def table(path: Path, title: str = "wine", names: Any = NAMES, order: Any = ORDER) -> Path:
    """Write values by name in another order."""
    frame = pd.DataFrame({title: np.array(names), "target": VALUES})
    if order is not None:
        frame = frame.iloc[order]
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_entries_come_in_the_order_of_the_rows(source: Path, tmp_path: Path, ending: str) -> None:
    matrix = sks.open_matrix(str(source))
    for order in (ORDER, None):
        vector = open_vector(str(table(tmp_path / f"y.{ending}", order=order)), N, matrix=matrix)
        assert vector.read(0, N).tolist() == VALUES.tolist()


@pytest.mark.parametrize(
    ("entry", "says"), [("12x", r"'12x' of row 7 \('w7'\) is no number"), ("", r"first at row 7 \('w7'\)")]
)
@pytest.mark.parametrize("selector", [sks.LassoPath, sks.selectors.TargetAutoSelector])
def test_a_bad_entry_is_named_by_its_row(source: Path, tmp_path: Path, entry: str, says: str, selector: Any) -> None:
    values = pd.Series(0.5 + np.arange(N), dtype=str)
    values[7] = entry
    pd.DataFrame({"wine": NAMES, "target": values}).iloc[ORDER].to_csv(tmp_path / "y.csv", index=False)
    with pytest.raises(SketchSelectError, match=says):
        selector().fit(str(source), str(tmp_path / "y.csv"))


def test_names_under_another_title_are_refused_in_another_order(source: Path, tmp_path: Path) -> None:
    matrix = sks.open_matrix(str(source))
    for title in ("rival", "Wine name"):
        with pytest.raises(SourceError, match=rf"column '{title}' has the names .* another order; call it 'wine'"):
            open_vector(str(table(tmp_path / "y.csv", title=title)), N, matrix=matrix)
    # In place, beside a column of the right title, or with other entries they are let be.
    for frame in (
        pd.DataFrame({"rival": NAMES, "target": VALUES}),
        pd.DataFrame({"wine": NAMES, "rival": np.array(NAMES)[ORDER], "target": VALUES}),
        pd.DataFrame({"rival": ["w0", *NAMES[:-1]], "target": VALUES}),
    ):
        frame.to_csv(tmp_path / "y.csv", index=False)
        assert open_vector(str(tmp_path / "y.csv"), N, matrix=matrix).read(0, N).tolist() == VALUES.tolist()
    rows = np.random.default_rng(0).standard_normal((N, 3))
    pd.DataFrame(rows, columns=list("abc")).assign(wine=NAMES).to_parquet(tmp_path / "rows.parquet")
    matrix = sks.open_matrix(str(tmp_path / "rows.parquet"), key="-wine")
    with pytest.raises(SourceError, match="call it 'wine', to go by it"):
        open_vector(str(table(tmp_path / "y.csv", title="Name")), N, matrix=matrix)
    series = pd.Series(VALUES, index=NAMES).iloc[ORDER]
    assert open_vector(series, N, matrix=matrix).read(0, N).tolist() == VALUES.tolist()


def test_a_run_names_its_rows_by_a_column_that_is_no_feature(tmp_path: Path) -> None:
    from sketchselect.workflow.agreement import evaluate_target

    rows = np.random.default_rng(0).standard_normal((N, 3)) + 9 * (np.arange(N) % 2)[:, None]
    for title, names in (("wine", NAMES), ("sensor", np.arange(N) + 5)):
        source = tmp_path / f"{title}.parquet"
        pd.DataFrame(rows, columns=list("abc")).assign(**{title: names}).to_parquet(source)
        folder = tmp_path / title
        result = sks.run(
            {
                "input": {"url": str(source), "key": f"-{title}"},
                "select": {"method": "variance", "n_features": 2, "normalize": False},
                "cluster": {"n_clusters": 2},
                "execution": {"cluster": "serial"},
                "output": {"dir": str(folder), "report": False},
            }
        )
        pd.DataFrame({title: names, "labels": result.labels}).iloc[ORDER].to_csv(tmp_path / "l.csv", index=False)
        assert evaluate_target(str(folder), str(tmp_path / "l.csv")).table.ari == 1.0
        is_named = (folder / "labels.csv").exists()
        assert is_named == (title == "wine")  # other whole numbers may be measured
        if is_named:  # the run has the names where its source is gone
            source.unlink()
            assert evaluate_target(str(folder), str(tmp_path / "l.csv")).table.ari == 1.0


def test_names_written_in_another_way_are_warned_of(source: Path, tmp_path: Path) -> None:
    for title in ("wine", "rival"):
        path = table(tmp_path / "y.csv", title, names=[f"bottle {i}" for i in range(N)])
        with pytest.warns(UserWarning, match=f"'{title}' has none of the names of the source's rows, such as 'w0'"):
            vector = open_vector(str(path), N, matrix=sks.open_matrix(str(source)))
        assert vector.read(0, N).tolist() == VALUES[ORDER].tolist()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("title", "names"), [("wine", NAMES), ("wine_id", np.arange(N)[::-1] + 1)], ids=["text", "numbers"]
)
def test_a_column_that_is_no_feature_names_the_rows(tmp_path: Path, title: str, names: Any, ending: str) -> None:
    rows = pd.DataFrame(np.random.default_rng(0).standard_normal((N, 3)), columns=list("abc"))
    notes = [None if i == 3 else f"n{i}" for i in range(N)]
    path = table(tmp_path / f"y.{ending}", title, names)
    for index in (None, np.random.default_rng(1).permutation(N)):
        rows.set_axis(index if index is not None else rows.index).assign(note=notes, **{title: names}).to_parquet(
            tmp_path / "rows.parquet"
        )
        for key in (f"-{title},note", "a,b"):
            matrix = sks.open_matrix(str(tmp_path / "rows.parquet"), key=key)
            assert open_vector(str(path), N, matrix=matrix).read(0, N).tolist() == VALUES.tolist()
            grouped = sks.readers.grouped(str(path), VALUES, matrix)
            assert grouped.target.read(0, N).tolist() == VALUES.tolist()


def test_whole_numbers_of_a_column_left_out_that_mostly_agree_are_names(tmp_path: Path) -> None:
    ids = 1000 + 7 * np.arange(N)
    rows = pd.DataFrame(np.random.default_rng(0).standard_normal((N, 3)), columns=list("abc"))
    rows.assign(bird=ids).to_parquet(tmp_path / "rows.parquet")
    matrix = sks.open_matrix(str(tmp_path / "rows.parquet"), key="-bird")
    for wrong in (1, 1000 + 7 * N):
        typed = np.where(np.arange(N) == 4, wrong, ids)
        with pytest.raises(SourceError, match=r"'bird' names other rows than the source, whose row '1028' is missing"):
            open_vector(str(table(tmp_path / "y.csv", "bird", typed)), N, matrix=matrix)
        # In the order of the rows nothing shows that they are names.
        in_place = open_vector(str(table(tmp_path / "y.csv", "bird", typed, order=None)), N, matrix=matrix)
        assert in_place.read(0, N).tolist() == VALUES.tolist()
    # Numbers that count the rows of two tables, from 0 and from 1.
    rows.assign(bird=np.arange(N)).to_parquet(tmp_path / "rows.parquet")
    matrix = sks.open_matrix(str(tmp_path / "rows.parquet"), key="-bird")
    by_place = open_vector(str(table(tmp_path / "y.csv", "bird", 1 + np.arange(N), order=None)), N, matrix=matrix)
    assert by_place.read(0, N).tolist() == VALUES.tolist()


def test_identifiers_written_as_floats_name_the_rows_of_a_file_of_two_columns(tmp_path: Path) -> None:
    ids = 1000 + 7 * np.arange(N)
    rows = pd.DataFrame(np.random.default_rng(0).standard_normal((N, 3)), columns=list("abc"))
    rows.assign(bird_id=ids).to_parquet(tmp_path / "rows.parquet")
    matrix = sks.open_matrix(str(tmp_path / "rows.parquet"), key="-bird_id")
    frame = pd.DataFrame({"bird_id": ids.astype(float), "weight (g)": VALUES}).iloc[ORDER]
    frame.to_csv(tmp_path / "y.csv", index=False)
    assert open_vector(str(tmp_path / "y.csv"), N, matrix=matrix).read(0, N).tolist() == VALUES.tolist()


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Paris"])
@pytest.mark.parametrize("as_objects", [False, True])
@pytest.mark.parametrize("has_missing", [False, True])
def test_an_index_of_dates_fits_whatever_they_are(zone: str | None, as_objects: bool, has_missing: bool) -> None:
    days = pd.date_range("2024-01-01", periods=N, tz=zone, name="when")
    index: Any = days.where(np.arange(N) > 0) if has_missing else days
    if as_objects:
        index = pd.Index(index.to_pydatetime(), dtype=object, name="when")
    frame = pd.DataFrame(np.random.default_rng(0).standard_normal((N, 3)), columns=list("abc"), index=index)
    twice = (2 * frame["a"]).rename("twice")
    assert sks.LassoPath(cv=3).fit(frame, twice).score(frame, twice) > 0.9


def test_columns_that_may_not_name_the_rows_refuse_nothing(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((N, 3))
    missing = np.array([None if i == 3 else f"n{i}" for i in range(N)], dtype=object)
    for entries, others in (
        (missing, missing),  # entries are missing
        (NAMES, [f"w{i + 25}" for i in range(N)]),  # few of them are shared
        (["x", *NAMES[1:-1], "x"], NAMES),  # one occurs twice
    ):
        pd.DataFrame(rows, columns=list("abc")).assign(note=entries).to_parquet(tmp_path / "rows.parquet")
        matrix = sks.open_matrix(str(tmp_path / "rows.parquet"), key="-note")
        path = table(tmp_path / "y.parquet", "note", others)
        assert open_vector(str(path), N, matrix=matrix).read(0, N).tolist() == VALUES[ORDER].tolist()
    # So do columns of text with other titles.
    pd.DataFrame(rows, columns=list("abc")).assign(wine=NAMES, note=missing).to_parquet(tmp_path / "rows.parquet")
    matrix = sks.open_matrix(str(tmp_path / "rows.parquet"), key="-wine,note")
    pd.DataFrame({"remark": missing, "taste": ["x", *NAMES[1:]], "target": VALUES}).to_parquet(tmp_path / "y.parquet")
    assert open_vector(str(tmp_path / "y.parquet"), N, matrix=matrix).read(0, N).tolist() == VALUES.tolist()
    # Text names rows before numbers do, and a longer file says its length.
    frame = pd.DataFrame(rows, columns=list("abc")).assign(row_id=np.arange(N), wine=NAMES)
    frame.to_parquet(tmp_path / "rows.parquet")
    matrix = sks.open_matrix(str(tmp_path / "rows.parquet"), key="-row_id,wine")
    labels = pd.DataFrame({"row_id": np.arange(N), "wine": np.array(NAMES)[ORDER], "target": VALUES[ORDER]})
    labels.to_csv(tmp_path / "y.csv", index=False)
    assert open_vector(str(tmp_path / "y.csv"), N, matrix=matrix).read(0, N).tolist() == VALUES.tolist()
    pd.concat([labels, labels.assign(wine="v" + labels.wine)]).to_csv(tmp_path / "y.csv", index=False)
    with pytest.raises(SourceError, match="the matrix has 30 rows"):
        open_vector(str(tmp_path / "y.csv"), N, matrix=matrix)


def test_measured_numbers_that_are_no_feature_name_no_rows(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((N, 3))
    for title, names in (
        ("wine_id", np.arange(N) + 1),  # other numbers
        ("wine_id", np.arange(N) // 2),  # numbers that occur twice
    ):
        pd.DataFrame(rows, columns=list("abc")).assign(**{title: np.arange(N)}).to_parquet(tmp_path / "rows.parquet")
        matrix = sks.open_matrix(str(tmp_path / "rows.parquet"), key=f"-{title}")
        vector = open_vector(str(table(tmp_path / "y.csv", title, names)), N, matrix=matrix)
        assert vector.read(0, N).tolist() == VALUES[ORDER].tolist()


def test_a_series_goes_by_the_names_of_the_rows_of_a_file(source: Path) -> None:
    matrix = sks.open_matrix(str(source))
    series = pd.Series(VALUES, index=NAMES)
    for given, values in (
        (series.iloc[ORDER], VALUES),
        (series.iloc[ORDER].reset_index(drop=True), VALUES[ORDER]),
        (series.iloc[ORDER].set_axis(pd.CategoricalIndex(np.array(NAMES)[ORDER])), VALUES),
        (series.iloc[ORDER].set_axis(ORDER), VALUES[ORDER]),  # numbers, and no names of the rows
    ):
        assert open_vector(given, N, matrix=matrix).read(0, N).tolist() == values.tolist()
    with pytest.warns(UserWarning, match="has none of the names"):
        open_vector(series.add_prefix("bottle "), N, matrix=matrix)
    with pytest.raises(SourceError, match="names other rows than the source, whose row 'w0'"):
        open_vector(series.rename({"w0": "x0"}), N, matrix=matrix)


def test_numbers_under_another_title_may_be_ranks_where_the_source_counts_its_rows(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((N, 3))
    frame = pd.DataFrame(rows, columns=list("abc"), index=pd.Index(np.arange(N) + 1, name="id"))
    frame.to_parquet(tmp_path / "rows.parquet")
    for rank in (ORDER + 1, np.arange(N) + 1.0):
        pd.DataFrame({"rank": rank, "target": VALUES}).to_csv(tmp_path / "y.csv", index=False)
        for source, own in ((str(tmp_path / "rows.parquet"), "call it 'id'"), (anndata.AnnData(rows), "")):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                vector = open_vector(str(tmp_path / "y.csv"), N, matrix=sks.open_matrix(source))
            assert vector.read(0, N).tolist() == VALUES.tolist()
            # Obs are counted from 0, and 1 to N are other numbers.
            is_noted = bool(own) and rank.dtype.kind == "i"
            noted = [
                str(each.message) for each in caught if "'rank' has the names of the source's rows" in str(each.message)
            ]
            assert len(noted) == is_noted
            assert all("taken by place" in text and own in text for text in noted)
    pd.DataFrame({"id": ORDER + 1.0, "target": VALUES[ORDER]}).to_parquet(tmp_path / "y.parquet")
    vector = open_vector(str(tmp_path / "y.parquet"), N, matrix=sks.open_matrix(str(tmp_path / "rows.parquet")))
    assert vector.read(0, N).tolist() == VALUES.tolist()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_other_numbers_and_most_of_the_names_are_refused_in_another_order(tmp_path: Path, ending: str) -> None:
    rows = np.random.default_rng(0).standard_normal((N, 3))
    path = tmp_path / f"y.{ending}"
    renamed = [name if i % 3 else f"new {name}" for i, name in enumerate(NAMES)]
    for own, theirs in ((np.arange(N)[::-1] * 7 + 1, np.arange(N)[::-1] * 7 + 1), (np.array(NAMES), np.array(renamed))):
        frame = pd.DataFrame(rows, columns=list("abc"), index=pd.Index(own, name="id"))
        frame.to_parquet(tmp_path / "rows.parquet")
        matrix = sks.open_matrix(str(tmp_path / "rows.parquet"))
        with pytest.raises(SourceError, match=r"column 'Sample' has the names .* another order; call it 'id'"):
            open_vector(str(table(path, "Sample", theirs)), N, matrix=matrix)
        in_place = open_vector(str(table(path, "Sample", theirs, order=None)), N, matrix=matrix)
        assert in_place.read(0, N).tolist() == VALUES.tolist()
        # A few of them may be a coincidence.
        few = [*theirs[:3][::-1], *(np.arange(N - 3) + 10**6)]
        assert (
            open_vector(str(table(path, "Sample", few, order=None)), N, matrix=matrix).read(0, N).tolist()
            == VALUES.tolist()
        )


def test_a_column_in_place_goes_before_one_in_another_order(source: Path, tmp_path: Path) -> None:
    best = np.array(NAMES)[ORDER]  # the wine that each was compared with
    pd.DataFrame({"wine": NAMES, "rival": best, "target": VALUES}).to_csv(tmp_path / "y.csv", index=False)
    vector = open_vector(str(tmp_path / "y.csv"), N, matrix=sks.open_matrix(str(source)))
    assert vector.read(0, N).tolist() == VALUES.tolist()
    assert vector.ordered_by is None


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_names_that_occur_twice_are_refused_in_another_order(tmp_path: Path, ending: str) -> None:
    names = [f"w{i // 2}" for i in range(N)]
    frame = pd.DataFrame(np.eye(N), index=pd.Index(names, name="wine")).rename(columns=str)
    frame.to_parquet(tmp_path / "rows.parquet")
    matrix = sks.open_matrix(str(tmp_path / "rows.parquet"))
    vector = open_vector(str(table(tmp_path / f"y.{ending}", names=names, order=None)), N, matrix=matrix)
    assert vector.read(0, N).tolist() == VALUES.tolist()
    with pytest.raises(SourceError, match="more than once"):
        open_vector(str(table(tmp_path / f"y.{ending}", names=names)), N, matrix=matrix)
    with pytest.raises(SourceError, match="names other rows"):
        open_vector(str(table(tmp_path / f"y.{ending}", names=["w0", *names[1:-1], "w0"])), N, matrix=matrix)


@pytest.mark.parametrize("theirs", [" w {} ", "w  {}", "w {}"])
def test_blanks_do_not_make_names_differ(tmp_path: Path, theirs: str) -> None:
    names = [f" w {i}" for i in range(N)]
    frame = pd.DataFrame(np.eye(N), index=pd.Index(names, name="wine")).rename(columns=str)
    frame.to_parquet(tmp_path / "rows.parquet")
    path = table(tmp_path / "y.csv", names=[theirs.format(i) for i in range(N)])
    vector = open_vector(str(path), N, matrix=sks.open_matrix(str(tmp_path / "rows.parquet")))
    assert vector.read(0, N).tolist() == VALUES.tolist()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_names_of_other_rows_are_refused(source: Path, tmp_path: Path, ending: str) -> None:
    matrix = sks.open_matrix(str(source))
    path = table(tmp_path / f"y.{ending}", names=[*NAMES[:-1], "w99"])
    with pytest.raises(SourceError, match=r"'wine' names other rows .* 'w29' is missing"):
        open_vector(str(path), N, matrix=matrix)


def test_missing_entries_of_text_stay_missing(source: Path, tmp_path: Path) -> None:
    labels = np.array(["red", "NA", "white"])[np.arange(N) % 3]
    pd.DataFrame({"wine": NAMES, "label": labels}).iloc[ORDER].to_csv(tmp_path / "l.csv", index=False)
    vector = open_vector(str(tmp_path / "l.csv"), N, matrix=sks.open_matrix(str(source)), name="labels")
    assert vector.read(0, N).tolist() == np.where(labels == "NA", "", labels).tolist()


@pytest.mark.parametrize(
    ("given", "form"), [("row_names", "w{}"), (None, "w{}"), (None, "=w{}"), (None, "-{}.5"), (None, "a;@b{}")]
)
def test_a_job_its_labels_and_their_evaluation_go_by_name(
    source: Path, tmp_path: Path, given: str | None, form: str
) -> None:
    names = [form.format(i) for i in range(N)]
    rows = np.repeat([[0.0, 0, 0], [9, 0, 0], [0, 9, 9]], N // 3, axis=0) + np.arange(N)[:, None] % 7 / 10
    frame = pd.DataFrame(rows, columns=list("abc"), index=pd.Index(names, name="wine"))
    (frame.reset_index() if given else frame).to_parquet(source, index=not given)
    truth = np.repeat(["x", "y", "z"], N // 3)
    pd.DataFrame({"wine": names, "labels": truth}).iloc[ORDER].to_csv(tmp_path / "truth.csv", index=False)
    job = {
        "input": {"url": str(source), "labels": str(tmp_path / "truth.csv"), **({given: "wine"} if given else {})},
        "select": {"method": "variance", "n_features": 3, "normalize": False},
        "cluster": {"n_clusters": 3},
        "execution": {"cluster": "serial"},
        "output": {"dir": str(tmp_path / "out"), "report": False},
    }
    result = sks.run(job)
    assert result.manifest["agreement"]["ari"] == 1.0
    assert any("order of the source's rows by the file's column 'wine'" in note for note in result.manifest["notes"])
    from sketchselect.workflow.agreement import evaluate_target

    assert evaluate_target(str(tmp_path / "out"), str(tmp_path / "truth.csv")).table.ari == 1.0


def test_a_series_in_another_order_than_the_frame_is_refused() -> None:
    frame = pd.DataFrame(np.random.default_rng(0).standard_normal((N, 3)), columns=list("abc"), index=NAMES)
    series = pd.Series(VALUES, index=NAMES)
    shuffled, elsewhere = series.iloc[ORDER], series.set_axis(range(N))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cells = anndata.AnnData(frame)
    for fit in (
        lambda y: sks.LassoPath(cv=2).fit(frame, y),
        lambda y: sks.summarize(frame, sks.Moments(), y=y),
        lambda y: sks.certify_labels(frame, y % 3, 3),
        lambda y: sks.summarize(cells, sks.Moments(), y=y),
        lambda y: sks.KMeans(2).fit(frame, sample_weight=y + 1),
    ):
        with pytest.raises(ValueError, match="rows in another order"):
            fit(shuffled)
        fit(series)
        fit(elsewhere)  # no names of these rows: by place
        fit(shuffled.to_numpy())
    # Rows that pandas numbered have no names: after a shuffle the numbers of the target tell nothing.
    numbered = frame.reset_index(drop=True)
    with pytest.warns(UserWarning, match="the numbers of X's rows in another order"):
        sks.LassoPath(cv=2).fit(numbered, series.set_axis(ORDER))
    sks.KMeans(2).fit(numbered.iloc[ORDER], sample_weight=pd.Series(np.ones(N)))
    with pytest.raises(ValueError, match="0 sample"):
        sks.LassoPath().fit(numbered.iloc[:0], pd.Series([], dtype=float))


def test_two_tables_that_begin_with_the_same_column_go_by_it(tmp_path: Path) -> None:
    from sketchselect.workflow.agreement import evaluate_target

    clusters = np.arange(N) % 3
    pd.DataFrame({"id": NAMES, "cluster": clusters}).to_csv(tmp_path / "c.csv", index=False)
    pd.DataFrame({"id": NAMES, "labels": clusters}).iloc[ORDER].to_csv(tmp_path / "l.csv", index=False)
    agreement = evaluate_target(str(tmp_path / "c.csv"), str(tmp_path / "l.csv"))
    assert agreement.table.ari == 1.0
    assert "by their column 'id'" in agreement.to_text()
    pd.DataFrame({"id": np.arange(N) + 7, "cluster": clusters}).to_csv(tmp_path / "c.csv", index=False)
    pd.DataFrame({"id": ORDER + 7, "labels": clusters[ORDER]}).to_csv(tmp_path / "l.csv", index=False)
    assert evaluate_target(str(tmp_path / "c.csv"), str(tmp_path / "l.csv")).table.ari == 1.0
    # Other numbers, in place: by place.
    for title, entries in (("rank", ORDER), ("x", np.sort(ORDER) / 7)):
        pd.DataFrame({title: entries, "labels": clusters}).to_csv(tmp_path / "l.csv", index=False)
        pd.DataFrame({title: ORDER / 7, "cluster": clusters}).to_csv(tmp_path / "c.csv", index=False)
        assert evaluate_target(str(tmp_path / "c.csv"), str(tmp_path / "l.csv")).table.ari == 1.0
    # One file may count its rows from 0, the other from 1; other whole numbers are names.
    ids = np.arange(N) + 100
    for ours, theirs, why in ((ids - 100, ids - 99, None), (ids, np.where(ids == 111, 999, ids), "'111' is missing")):
        pd.DataFrame({"id": ours, "cluster": clusters}).to_csv(tmp_path / "c.csv", index=False)
        order = ORDER if why else np.arange(N)
        pd.DataFrame({"id": theirs, "labels": clusters}).iloc[order].to_csv(tmp_path / "l.csv", index=False)
        with nullcontext() if why is None else pytest.raises(SourceError, match=why):
            assert evaluate_target(str(tmp_path / "c.csv"), str(tmp_path / "l.csv")).table.ari == 1.0
    pd.DataFrame({"id": NAMES, "cluster": clusters}).to_csv(tmp_path / "c.csv", index=False)
    for names, why in (
        ([*NAMES[:-1], "w99"], "'w29' is missing"),
        ([*NAMES[:-1], "w0"], "'w29' is missing"),
        ([name.upper() for name in NAMES], None),
    ):
        pd.DataFrame({"id": names, "labels": clusters}).iloc[ORDER].to_csv(tmp_path / "l.csv", index=False)
        expected = (
            pytest.warns(UserWarning, match="none of the names")
            if why is None
            else pytest.raises(SourceError, match=why)
        )
        with expected:
            evaluate_target(str(tmp_path / "c.csv"), str(tmp_path / "l.csv"))


def test_any_column_of_a_table_of_clusters_may_name_the_rows(tmp_path: Path) -> None:
    from sketchselect.workflow.agreement import evaluate_target

    clusters, sites = np.arange(N) % 3, np.array(["north", "south"] * (N // 2))
    table, labels = tmp_path / "c.csv", tmp_path / "l.csv"
    for names in (NAMES, np.arange(N) * 7 + 100):
        known = pd.DataFrame({"rank": np.arange(N), "wine": names, "labels": clusters})
        known.iloc[ORDER].assign(rank=np.arange(N)).to_csv(labels, index=False)
        for before in ({"site": sites}, {"rank": np.arange(N)}, {"dose": np.arange(N) / 7}, {}):
            pd.DataFrame({**before, "wine": names, "cluster": clusters}).to_csv(table, index=False)
            assert evaluate_target(str(table), str(labels)).table.ari == 1.0
    # Numbers that differ are no names unless their title says so.
    known.drop(columns="wine").assign(dose=np.arange(N) + 50).to_csv(labels, index=False)
    pd.DataFrame({"site": sites, "dose": np.arange(N) + 51, "cluster": clusters}).to_csv(table, index=False)
    assert evaluate_target(str(table), str(labels)).table.ari == 1.0


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_name_that_occurs_twice_is_shown(tmp_path: Path, ending: str) -> None:
    names = ["w3" if i == 17 else name for i, name in enumerate(NAMES)]
    path = str(table(tmp_path / f"y.{ending}", "wine", names, order=None))
    for name in ("target", "labels"):
        kinds = pd.DataFrame({"wine": names, "kind": np.arange(N) % 3})
        kinds.to_csv(path, index=False) if ending == "csv" else kinds.to_parquet(path, index=False)
        with pytest.raises(SourceError, match=r"'wine' does not name the rows, as it has 'w3' in rows 3 and 17"):
            open_vector(path, N, name=name)
    kinds = pd.DataFrame({"site": ["north", "south"] * (N // 2), "kind": np.arange(N) % 3})
    kinds.to_csv(path, index=False) if ending == "csv" else kinds.to_parquet(path, index=False)
    with pytest.raises(SourceError) as error:
        open_vector(path, N, name="labels")
    assert "name the rows" not in str(error.value)


def test_a_file_goes_by_the_index_of_a_data_frame(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.standard_normal((N, 3)), columns=list("abc"), index=pd.Index(NAMES, name="wine"))
    target = 3.0 * X["a"]
    pd.DataFrame({"wine": NAMES, "target": target.to_numpy()}).iloc[ORDER].to_csv(tmp_path / "y.csv", index=False)
    model = sks.LassoPath(n_features_to_select=1).fit(X, str(tmp_path / "y.csv"))
    assert model.get_feature_names_out().tolist() == ["a"]
    assert sks.summarize(X, sks.Moments(), y=str(tmp_path / "y.csv")).xy[0, 0] == pytest.approx(
        sks.summarize(X, sks.Moments(), y=target).xy[0, 0], rel=1e-12
    )
    # Days may be written otherwise in the file.
    days = X.set_axis(pd.date_range("2025-01-01", periods=N, name="wine"))
    pd.DataFrame({"wine": days.index.strftime("%d.%m.%Y"), "target": target.to_numpy()}).to_csv(
        tmp_path / "d.csv", index=False
    )
    with pytest.warns(UserWarning, match="'wine' has none of the names of .* such as '2025-01-01'; .* by place"):
        assert sks.summarize(days, sks.Moments(), y=str(tmp_path / "d.csv")).n_rows == N
    lazy = sks.summarize(dd.from_pandas(X, 3, sort=False), sks.Moments(), y=str(tmp_path / "y.csv"))
    assert lazy.xy[0, 0] == pytest.approx(sks.summarize(X, sks.Moments(), y=target).xy[0, 0], rel=1e-12)
    # Rows that pandas numbered have no names.
    shuffled = sks.summarize(X.reset_index(drop=True), sks.Moments(), y=str(tmp_path / "y.csv"))
    assert shuffled.xy[0, 0] != pytest.approx(sks.summarize(X, sks.Moments(), y=target).xy[0, 0], rel=1e-3)


def test_no_column_of_a_large_file_is_read_to_compare_it(source: Path, tmp_path: Path, monkeypatch) -> None:
    table(tmp_path / "y.parquet", title="sample", names=[f"bottle {i}" for i in range(N)])
    matrix = sks.open_matrix(str(source))
    read = []
    whole = ParquetVector.read
    monkeypatch.setattr("sketchselect.readers.row_order._FIRST_ROWS", 20)
    monkeypatch.setattr(
        ParquetVector, "read", lambda self, *rows: read.append((self.column, rows)) or whole(self, *rows)
    )
    with pytest.warns(UserWarning, match="'sample' has none of the names"):
        open_vector(str(tmp_path / "y.parquet"), N, matrix=matrix)
    assert ("sample", (0, N)) not in read


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_of_two_columns_the_second_is_taken_where_the_first_names_the_rows(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"y.{ending}"

    def columns(**values: Any) -> str:
        frame = pd.DataFrame(values)
        frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
        return str(path)

    kinds = np.arange(N) % 3
    for title, names in (("wine", NAMES), ("wine_id", np.arange(N))):
        for values in (kinds, kinds + 0.5, np.where(kinds, "red", "white"), kinds > 1):
            vector = open_vector(columns(**{title: names}, kind=values), N)
            expected = values if values.dtype != bool or ending == "parquet" else values.astype(str)
            assert vector.read(0, N).tolist() == expected.tolist()
    missing = [None if i == 3 else "red" for i in range(N)]
    assert open_vector(columns(wine=NAMES, kind=missing), N).n_rows == N
    for ambiguous in (
        {"kind": kinds, "wine": NAMES},
        {"rank": np.arange(N), "kind": kinds},
        {"rank": np.arange(N), "wine": NAMES},
        {"dose": np.arange(N) + 0.5, "wine": NAMES},
        {"wine": NAMES, "kind": kinds, "dose": kinds},
    ):
        with pytest.raises(SourceError, match=r"none of them called|has no column"):
            open_vector(columns(**ambiguous), N)
    for name in ("groups", "cv_groups"):
        assert open_vector(columns(wine=NAMES, kind=kinds), N, name=name).read(0, N).tolist() == kinds.tolist()
    for name in ("sample_weight", "row_names"):
        with pytest.raises(SourceError, match=r"none of them called|has no column"):
            open_vector(columns(wine=NAMES, kind=kinds), N, name=name)


def test_a_file_without_titles_is_refused(tmp_path: Path) -> None:
    table(tmp_path / "y.csv").write_text("".join(f"w{i},{i % 3}\n" for i in range(N + 1)))
    with pytest.raises(SourceError, match="none of them called"):
        open_vector(str(tmp_path / "y.csv"), N)


def test_one_column_beside_an_index_needs_no_title(tmp_path: Path) -> None:
    pd.DataFrame({"kind": VALUES}, index=pd.Index(NAMES, name="wine")).to_parquet(tmp_path / "y.parquet")
    assert open_vector(str(tmp_path / "y.parquet"), N).read(0, N).tolist() == VALUES.tolist()


def test_a_series_goes_by_the_whole_numbers_that_name_the_rows(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((N, 3))
    pd.DataFrame(rows, columns=list("abc"), index=np.arange(N)[::-1]).to_parquet(tmp_path / "rows.parquet")
    matrix = sks.open_matrix(str(tmp_path / "rows.parquet"))
    series = pd.Series(VALUES, index=np.arange(N)[::-1]).iloc[ORDER]
    assert open_vector(series, N, matrix=matrix).read(0, N).tolist() == VALUES.tolist()
    assert open_vector(series.set_axis(ORDER + 1), N, matrix=matrix).read(0, N).tolist() == VALUES[ORDER].tolist()


def test_rows_without_an_entry_are_named(source: Path, tmp_path: Path) -> None:
    matrix = sks.open_matrix(str(source))
    table(tmp_path / "y.csv", order=np.delete(np.arange(N), [3, 7]))
    with pytest.raises(SourceError, match="2 rows of the source have no entry, such as 'w3'"):
        open_vector(str(tmp_path / "y.csv"), N, matrix=matrix)


@pytest.mark.filterwarnings("ignore:.*infer_string")
def test_a_series_goes_by_the_cells_of_a_file_and_not_against_a_frame_of_dask(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((N, 3))
    series = pd.Series(VALUES, index=NAMES).iloc[ORDER]
    anndata.AnnData(rows, obs=pd.DataFrame(index=NAMES)).write_h5ad(tmp_path / "cells.h5ad")
    matrix = sks.open_matrix(str(tmp_path / "cells.h5ad"))
    assert open_vector(series, N, matrix=matrix).read(0, N).tolist() == VALUES.tolist()
    names = np.arange(N) + 5
    lazy = dd.from_pandas(pd.DataFrame(rows, index=names, columns=list("abc")), 2)
    with pytest.raises(SourceError, match="its index has the rows in another order"):
        sks.LassoPath().fit(lazy, pd.Series(VALUES, index=names).iloc[ORDER])
    shuffled = dd.from_pandas(pd.Series(VALUES, index=names).iloc[ORDER], npartitions=2, sort=False)
    for X in (lazy, lazy.compute()):
        with pytest.raises(SourceError, match="another order"):
            sks.LassoPath().fit(X, shuffled)
    sks.LassoPath().fit(lazy, dd.from_pandas(pd.Series(VALUES, index=names), npartitions=2))
    sks.LassoPath().fit(lazy, pd.Series(VALUES, index=names))


def test_two_tables_with_names_under_two_titles_are_refused_in_another_order(tmp_path: Path) -> None:
    from sketchselect.workflow.agreement import evaluate_target

    clusters = np.arange(N) % 3
    pd.DataFrame({"id": NAMES, "cluster": clusters}).to_csv(tmp_path / "c.csv", index=False)
    labels = pd.DataFrame({"Site Code": NAMES, "labels": clusters})
    labels.to_csv(tmp_path / "l.csv", index=False)
    assert evaluate_target(str(tmp_path / "c.csv"), str(tmp_path / "l.csv")).table.ari == 1.0
    labels.iloc[ORDER].to_csv(tmp_path / "l.csv", index=False)
    with pytest.raises(SourceError, match=r"'Site Code' has the names .* call it 'id'"):
        evaluate_target(str(tmp_path / "c.csv"), str(tmp_path / "l.csv"))


def test_a_column_of_whole_numbers_names_the_rows_of_labels(tmp_path: Path) -> None:
    from sketchselect.workflow.agreement import evaluate_target

    rows, ids, kinds = np.random.default_rng(0).standard_normal((N, 3)), np.arange(N)[::-1] * 7 + 1, np.arange(N) % 3
    pd.DataFrame(rows, columns=list("abc"), index=pd.Index(ids, name="sample")).to_parquet(tmp_path / "rows.parquet")
    pd.DataFrame({"sample": ids, "cluster": kinds}).to_csv(tmp_path / "clusters.csv", index=False)
    matrix = sks.open_matrix(str(tmp_path / "rows.parquet"))
    clusters, labels = str(tmp_path / "clusters.csv"), str(tmp_path / "labels.csv")
    shuffled = pd.DataFrame({"sample": ids, "kind": kinds}).iloc[ORDER]
    shuffled.to_csv(labels, index=False)
    assert open_vector(labels, N, matrix=matrix, name="labels").read(0, N).tolist() == kinds.tolist()
    assert evaluate_target(clusters, labels).table.ari == 1.0
    # A target may have a whole number of its own for every row.
    with pytest.raises(SourceError, match="none of them called 'target'"):
        open_vector(labels, N, matrix=matrix, name="target")
    shuffled.rename(columns={"sample": "Sample No"}).to_csv(labels, index=False)
    with pytest.raises(SourceError, match=r"'Sample No' has the names of .* call it 'sample'"):
        open_vector(labels, N, matrix=matrix, name="labels")
    with pytest.raises(SourceError, match=r"'Sample No' has the names of .* call it 'sample'"):
        evaluate_target(clusters, labels)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_feature_that_numbers_the_rows_of_a_file_in_another_order_is_refused(tmp_path: Path, ending: str) -> None:
    frame = pd.DataFrame(np.random.default_rng(0).standard_normal((N, 3)), columns=list("abc"))
    frame["plot"] = np.arange(N)[::-1] * 7 + 1
    frame.to_parquet(tmp_path / "rows.parquet")
    path = tmp_path / f"y.{ending}"
    for source in (str(tmp_path / "rows.parquet"), frame):
        with pytest.raises(SourceError, match=r"'plot' is a feature of the source, in another order; .*key=\"-plot\""):
            open_vector(str(table(path, "plot", frame["plot"])), N, matrix=sks.open_matrix(source))
    without = sks.open_matrix(str(tmp_path / "rows.parquet"), key="-plot")
    assert open_vector(str(path), N, matrix=without).read(0, N).tolist() == VALUES.tolist()
    # In place, with other entries or no whole numbers it may be anything.
    for names in (frame["plot"], frame["plot"] + 1, frame["plot"] + 0.5):
        in_place = open_vector(str(table(path, "plot", names, order=None)), N, matrix=sks.open_matrix(frame))
        assert in_place.read(0, N).tolist() == VALUES.tolist()


def test_most_of_an_index_or_one_of_text_is_refused_in_another_order() -> None:
    frame = pd.DataFrame(
        np.random.default_rng(0).standard_normal((N, 3)), columns=list("abc"), index=np.arange(N) * 7 + 1
    )
    moved = pd.Series(VALUES.astype(float), index=frame.index).iloc[ORDER]
    one_unknown = moved.rename(index={moved.index[0]: -5})
    for series in (moved, one_unknown, moved.set_axis(moved.index.astype(str))):
        with pytest.raises(SourceError, match="its index has the rows in another order"):
            sks.LassoPath(cv=2).fit(frame, series)
    few = moved.set_axis(np.where(np.arange(N) < 20, -1 - np.arange(N), moved.index))
    sks.LassoPath(cv=2).fit(frame, few)


def test_few_rows_of_a_wide_source_are_read_to_compare_a_feature(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    frame = pd.DataFrame(np.zeros((100, 40_000)))
    frame[0] = np.arange(100) * 7 + 1
    frame.columns = frame.columns.astype(str)
    matrix, read = sks.open_matrix(frame), []
    rows = matrix.read_rows
    monkeypatch.setattr(matrix, "read_rows", lambda start, stop: read.append(stop - start) or rows(start, stop))
    beside = pd.DataFrame({"1": np.arange(100) / 7, "2": np.arange(100) % 9, "target": np.arange(100)})
    beside.to_csv(tmp_path / "y.csv", index=False)
    open_vector(str(tmp_path / "y.csv"), 100, matrix=matrix)
    assert not read
    beside.assign(**{"0": frame["0"][::-1].to_numpy(), "3": range(100)}).to_csv(tmp_path / "y.csv", index=False)
    with pytest.raises(SourceError, match="column '0' is a feature of the source, in another order"):
        open_vector(str(tmp_path / "y.csv"), 100, matrix=matrix)
    assert len(read) == 1
    assert read[0] < 50


def test_an_index_of_several_levels_is_compared() -> None:
    firms = pd.MultiIndex.from_product([["a", "b", "c"], range(10)])
    frame = pd.DataFrame(np.random.default_rng(0).standard_normal((N, 3)), columns=list("abc"), index=firms)
    series = pd.Series(VALUES.astype(float), index=firms)
    with pytest.raises(SourceError, match="its index has the rows in another order"):
        sks.LassoPath(cv=2).fit(frame, series.iloc[ORDER])
    sks.LassoPath(cv=2).fit(frame, series.set_axis(pd.MultiIndex.from_product([["d", "e", "f"], range(10)])))


def test_numbers_that_are_written_in_another_way_are_compared_as_numbers(source: Path, tmp_path: Path) -> None:
    frame = pd.read_parquet(source).set_index(pd.Index([f"{i:04}" for i in range(5, 5 + N)], name="plot"))
    frame.to_parquet(source)
    for numbers in (np.arange(5, 5 + N), np.arange(5.0, 5 + N)):
        labels = table(tmp_path / "y.csv", "number", numbers)
        with pytest.raises(SourceError, match="'number' has the names of the source's rows in another order"):
            open_vector(str(labels), N, matrix=sks.open_matrix(str(source)))
        in_place = str(table(tmp_path / "y.csv", "number", numbers, order=None))
        assert open_vector(in_place, N, matrix=sks.open_matrix(str(source))).read(0, N).tolist() == VALUES.tolist()


def test_names_that_cannot_be_read_are_an_error(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*rows: Any) -> Any:
        raise ChunkReadError("rows.parquet: cannot be read now")

    path = str(table(tmp_path / "y.csv", "Sample"))
    matrix = sks.open_matrix(str(source))
    monkeypatch.setattr("sketchselect.readers.row_order.row_texts", failing)
    with pytest.raises(ChunkReadError, match="cannot be read now"):
        open_vector(path, N, matrix=matrix)


def test_a_range_with_a_name_names_the_rows(tmp_path: Path) -> None:
    rows = pd.DataFrame(np.random.default_rng(0).standard_normal((N, 3)), columns=list("abc"))
    birds = pd.RangeIndex(10000, 10000 + 2 * N, 2, name="bird")
    frame = rows.set_axis(birds)
    frame.to_parquet(tmp_path / "rows.parquet")
    matrix = sks.open_matrix(str(tmp_path / "rows.parquet"))
    assert matrix.feature_names == ("a", "b", "c")
    for ending in ("csv", "parquet"):
        path = str(table(tmp_path / f"y.{ending}", "bird", birds))
        assert open_vector(path, N, matrix=matrix).read(0, N).tolist() == VALUES.tolist()
        with pytest.raises(SourceError, match="call it 'bird'"):
            open_vector(str(table(tmp_path / f"y.{ending}", "Ring", birds)), N, matrix=matrix)
    backwards = pd.DataFrame({"target": VALUES}, index=birds)[::-1]
    backwards.to_parquet(tmp_path / "y.parquet")
    assert open_vector(str(tmp_path / "y.parquet"), N, matrix=matrix).read(0, N).tolist() == VALUES.tolist()
    with pytest.raises(SourceError, match="its index has the rows in another order"):
        sks.LassoPath(cv=2).fit(frame, backwards["target"])
    result = sks.run(
        {
            "input": {"url": str(tmp_path / "rows.parquet")},
            "select": {"method": "variance", "n_features": 2},
            "cluster": {"n_clusters": 2},
            "execution": {"cluster": "serial"},
            "output": {"dir": str(tmp_path / "out"), "report": False},
        }
    )
    assert pd.read_csv(result.folder / "labels.csv")["bird"].tolist() == birds.tolist()
    # A range without a name counts the rows.
    rows.to_parquet(tmp_path / "rows.parquet")
    assert sks.open_matrix(str(tmp_path / "rows.parquet")).row_names is None


def test_the_files_of_a_folder_have_a_range_of_names_each(tmp_path: Path) -> None:
    rows = pd.DataFrame(np.random.default_rng(0).standard_normal((N, 2)), columns=list("ab"))
    birds = np.r_[np.arange(500, 512), np.arange(100, 100 - (N - 12), -1)]
    (tmp_path / "rows").mkdir()
    for i, part in enumerate((slice(12), slice(12, N))):
        first, step = birds[part][0], 1 - 2 * i
        index = pd.RangeIndex(first, first + step * len(birds[part]), step, name="bird")
        rows[part].set_axis(index).to_parquet(tmp_path / "rows" / f"{i}.parquet")
    matrix = sks.open_matrix(str(tmp_path / "rows"))
    for start, stop in ((0, N), (5, 9), (11, 20), (12, 12), (13, N)):
        assert matrix.row_names.read(start, stop).tolist() == birds[start:stop].tolist()
    labels = str(table(tmp_path / "y.csv", "bird", birds))
    assert open_vector(labels, N, matrix=matrix).read(0, N).tolist() == VALUES.tolist()
    # Of a range of all rows in every file no one knows which rows are where.
    frame = rows.assign(site=["x", "y", "z"] * (N // 3)).set_axis(pd.RangeIndex(7, 7 + N, name="bird"))
    frame.to_parquet(tmp_path / "sites", partition_cols=["site"])
    matrix = sks.open_matrix(str(tmp_path / "sites"))
    assert matrix.row_names is None
    (note,) = matrix.notes
    assert "the row names 'bird' as a range" in note


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_names_that_match_none_of_a_column_left_out_are_warned_of(tmp_path: Path, ending: str) -> None:
    rows = pd.DataFrame(np.random.default_rng(0).standard_normal((N, 2)), columns=list("ab"))
    for title, ours, theirs in (
        ("wine", NAMES, [f"bottle {i}" for i in range(N)]),
        ("wine_id", np.arange(N) + 1000, np.arange(N) + 2000),
    ):
        rows.assign(**{title: ours}).to_parquet(tmp_path / "rows.parquet")
        matrix = sks.open_matrix(str(tmp_path / "rows.parquet"), key=f"-{title}")
        path = str(table(tmp_path / f"y.{ending}", title, theirs, order=None))
        with pytest.warns(UserWarning, match=f"'{title}' has none of the names .* taken by place"):
            assert open_vector(path, N, matrix=matrix).read(0, N).tolist() == VALUES.tolist()
    # Numbers of another kind, and names in the same order, are no reason for a warning.
    rows.assign(wine=NAMES, dose=np.arange(N) + 50).to_parquet(tmp_path / "rows.parquet")
    matrix = sks.open_matrix(str(tmp_path / "rows.parquet"), key="-wine,dose")
    for title, theirs in (("dose", np.arange(N) + 500), ("bottle", NAMES)):
        path = str(table(tmp_path / f"y.{ending}", title, theirs, order=None))
        assert open_vector(path, N, matrix=matrix).read(0, N).tolist() == VALUES.tolist()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_whole_numbers_that_are_floats_name_the_rows(tmp_path: Path, ending: str) -> None:
    rows, ids = (
        pd.DataFrame(np.random.default_rng(0).standard_normal((N, 2)), columns=list("ab")),
        np.arange(N) * 3.0 + 7,
    )
    rows.assign(patient=ids).to_parquet(tmp_path / "rows.parquet")
    matrix = sks.open_matrix(str(tmp_path / "rows.parquet"), key="-patient")
    path = str(table(tmp_path / f"y.{ending}", "patient", ids))
    assert open_vector(path, N, matrix=matrix).read(0, N).tolist() == VALUES.tolist()
    with pytest.raises(SourceError, match=r"'number' has the names of .* call it 'patient'"):
        open_vector(str(table(tmp_path / f"y.{ending}", "number", ids)), N, matrix=matrix)
    for other in (ids + 0.5, np.where(np.arange(N) == 3, np.nan, ids)):
        rows.assign(patient=other).to_parquet(tmp_path / "rows.parquet")
        matrix = sks.open_matrix(str(tmp_path / "rows.parquet"), key="-patient")
        path = str(table(tmp_path / f"y.{ending}", "patient", other))
        assert open_vector(path, N, matrix=matrix).read(0, N).tolist() == VALUES[ORDER].tolist()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_dates_name_the_rows(tmp_path: Path, ending: str) -> None:
    rows = pd.DataFrame(np.random.default_rng(0).standard_normal((N, 3)), columns=list("abc"))
    days, hours = (pd.date_range("2025-01-01 00:00", periods=N, freq=freq, name="time") for freq in ("D", "h"))
    for dates, forms in ((days, ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", None]), (hours, ["%Y-%m-%d %H:%M", None])):
        indexed, column = tmp_path / "indexed.parquet", tmp_path / "column.parquet"
        rows.set_axis(dates).to_parquet(indexed)
        rows.assign(time=dates).to_parquet(column)
        sources = [
            sks.open_matrix(str(indexed)),
            sks.open_matrix(str(column), key="-time"),
            sks.open_matrix(rows.set_axis(dates)),
        ]
        for form, matrix in ((form, matrix) for form in forms for matrix in sources):
            written = dates if form is None else dates.strftime(form)
            path = str(table(tmp_path / f"y.{ending}", "time", written))
            assert open_vector(path, N, matrix=matrix).read(0, N).tolist() == VALUES.tolist()
            with pytest.raises(SourceError, match=r"names other rows than the source, whose row '2025-01-01 00:00:00'"):
                open_vector(str(table(tmp_path / f"y.{ending}", "time", [written[1], *written[1:]])), N, matrix=matrix)
            with pytest.raises(SourceError, match=r"'day' has the names of .* call it 'time'"):
                open_vector(str(table(tmp_path / f"y.{ending}", "day", written)), N, matrix=matrix)
            # Other dates of the same rows have many of the same days.
            later = dates.shift(3) if form is None else dates.shift(3).strftime(form)
            path = str(table(tmp_path / f"y.{ending}", "until", later, order=None))
            assert open_vector(path, N, matrix=matrix).read(0, N).tolist() == VALUES.tolist()
        series = pd.Series(VALUES, index=dates).iloc[ORDER]
        for matrix in sources[:2]:
            assert open_vector(series, N, matrix=matrix).read(0, N).tolist() == VALUES.tolist()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("names", [NAMES, np.arange(N) * 7 + 1, np.arange(N)], ids=["text", "numbers", "range"])
def test_a_name_that_is_there_twice_or_missing_is_refused_in_another_order(
    tmp_path: Path, ending: str, names: Any
) -> None:
    rows = pd.DataFrame(np.random.default_rng(0).standard_normal((N, 3)), columns=list("abc"))
    rows.assign(wine=names).to_parquet(tmp_path / "rows.parquet")
    matrix = sks.open_matrix(str(tmp_path / "rows.parquet"), key="-wine")
    twice = np.where(np.arange(N) == 4, names[9], names)
    missing = pd.array(names, dtype="string" if isinstance(names, list) else "Int64")
    missing[4] = pd.NA
    for bad, says in (
        (twice, r"'wine' names other rows than the source, whose row '\w+' is missing"),
        (missing, "is missing"),
    ):
        path = tmp_path / f"y.{ending}"
        pd.DataFrame({"wine": bad, "target": VALUES}).iloc[ORDER].to_csv(path, index=False)
        if ending == "parquet":
            pd.DataFrame({"wine": bad, "target": VALUES}).iloc[ORDER].to_parquet(path)
        with pytest.raises(SourceError, match=says):
            open_vector(str(path), N, matrix=matrix)


def test_a_series_with_a_wrong_name_or_floats_goes_not_by_place(tmp_path: Path) -> None:
    rows = pd.DataFrame(np.random.default_rng(0).standard_normal((N, 3)), columns=list("abc"))
    numbers = np.arange(N) * 7 + 1
    for names in (NAMES, numbers, numbers.astype(float)):
        index = pd.Index(names, name="wine")
        rows.assign(wine=names).to_parquet(tmp_path / "column.parquet")
        rows.set_axis(index).to_parquet(tmp_path / "indexed.parquet")
        for matrix in (
            sks.open_matrix(str(tmp_path / "column.parquet"), key="-wine"),
            sks.open_matrix(str(tmp_path / "indexed.parquet")),
        ):
            for given in (index, index.rename(None), index.astype(float) if names is numbers else index):
                series = pd.Series(VALUES, index=given).iloc[ORDER]
                assert open_vector(series, N, matrix=matrix).read(0, N).tolist() == VALUES.tolist()
            wrong = "w99" if names is NAMES else 9999
            with pytest.raises(SourceError, match="its index names other rows than the source"):
                open_vector(pd.Series(VALUES, index=index).iloc[ORDER].rename({names[4]: wrong}), N, matrix=matrix)


def test_accents_and_names_of_which_some_are_numbers(tmp_path: Path) -> None:
    rows = pd.DataFrame(np.random.default_rng(0).standard_normal((N, 3)), columns=list("abc"))
    rows.set_axis(pd.Index([f"Zo\u00eb {i}" for i in range(N)], name="wine")).to_parquet(tmp_path / "rows.parquet")
    path = table(tmp_path / "y.csv", names=[f"Zoe\u0308 {i}" for i in range(N)])
    vector = open_vector(str(path), N, matrix=sks.open_matrix(str(tmp_path / "rows.parquet")))
    assert vector.read(0, N).tolist() == VALUES.tolist()
    names = [str(i) if i % 3 else f"{i}a" for i in range(N)]
    rows.set_axis(pd.Index(names, name="wine")).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(SourceError, match=r"'plot' has the names of .* call it 'wine'"):
        open_vector(
            str(table(tmp_path / "y.csv", "plot", names)), N, matrix=sks.open_matrix(str(tmp_path / "rows.parquet"))
        )


def test_a_shorter_file_beside_a_data_frame_names_the_row_that_is_missing(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((N, 3))
    frame = pd.DataFrame(rows, columns=list("abc"), index=pd.Index(NAMES, name="wine"))
    pd.DataFrame({"wine": NAMES, "target": VALUES})[1:].to_csv(tmp_path / "y.csv", index=False)
    with pytest.raises(SourceError, match="1 row of the source has no entry, such as 'w0'"):
        sks.LassoPath(cv=2).fit(frame, str(tmp_path / "y.csv"))
    with pytest.raises(SourceError, match="call it 'wine', to go by it"):
        sks.LassoPath(cv=2).fit(frame, str(table(tmp_path / "y.csv", "bottle")))
