"""Text columns of any table become columns of levels, as scikit-learn's encoder makes them; dates are days."""

from __future__ import annotations

import tomllib
import warnings

import dask.dataframe
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.preprocessing import OneHotEncoder
from tests.job.commands import cli, works

import sketchselect as sks
from sketchselect.errors import BadBlock, BadParameter, Incompatible, SourceError
from sketchselect.prepare import apply_steps
from sketchselect.readers import open_matrix, open_vector
from sketchselect.workflow.plan.forecast import forecast_job

RNG = np.random.default_rng(3)
N, N_OLD = 900, 600
TOWNS = np.array([f"t{i:02d}" for i in range(20)])
FRAME = pd.DataFrame(
    {
        "area": RNG.normal(80, 20, N),
        "kind": RNG.choice(["loft", "flat", "house"], N, p=[0.05, 0.6, 0.35]),
        "rooms": RNG.integers(1, 7, N),
        "town": RNG.choice(TOWNS, N, p=np.arange(1, 21) / 210),
        "new": RNG.random(N) < 0.2,
    }
)
FRAME.loc[0, "town"] = "t19"
TEXT = ["kind", "town", "new"]
EFFECTS = dict(zip(TOWNS, RNG.normal(size=20), strict=True))
PRICE = pd.Series(
    0.02 * FRAME.area + FRAME.kind.map({"flat": 0, "house": 1, "loft": 2}) + FRAME.town.map(EFFECTS), name="price"
) + RNG.normal(0, 0.6, N)
OLD, NEW = FRAME[:N_OLD], FRAME[N_OLD:].reset_index(drop=True)


def as_source(form, frame, tmp_path):
    if form == "parquet":
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        for i, a in enumerate(range(0, len(frame), 170)):
            frame[a : a + 170].to_parquet(folder / f"{i}.parquet", index=False, row_group_size=70)
        return folder
    return {
        "pandas": lambda: frame,
        "categorical": lambda: frame.astype({"kind": "category", "town": "category"}),
        "polars": lambda: pl.from_pandas(frame),
        "arrow": lambda: pa.Table.from_pandas(frame, preserve_index=False),
        "dask": lambda: dask.dataframe.from_pandas(frame.reset_index(drop=True), npartitions=3),
    }[form]()


FORMS = ["pandas", "categorical", "polars", "arrow", "parquet", "dask"]


def encoded(frame, fitted=OLD, columns=TEXT, **options):
    """Return what scikit-learn's encoder makes of a frame, with names and order of the step's."""
    options = {"handle_unknown": "ignore", **options}
    encoder = OneHotEncoder(sparse_output=False, **options).fit(fitted[columns])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Found unknown categories")  # zeros, as the dropped level
        made = pd.DataFrame(encoder.transform(frame[columns]), columns=encoder.get_feature_names_out())
    parts = []
    for name in frame.columns:
        if name in columns:
            part = made[[c for c in made if c.startswith(f"{name}_")]]
            part.columns = [f"{name}={c.removeprefix(f'{name}_').replace('infrequent_sklearn', 'other')}" for c in part]
        else:
            part = frame[[name]]
        parts.append(part.reset_index(drop=True))
    return pd.concat(parts, axis=1).astype(float)


def prepared(source, steps, **options):
    """Return names and rows of a source after fitted steps."""
    matrix = open_matrix(source, encode=["text", "dates"], **options)
    names = sks.summarize(matrix, sks.ColumnStats(), prepare=steps).feature_names
    return list(names), apply_steps(steps, matrix.read_rows(0, matrix.shape[0]))


@pytest.mark.share(12)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"min_frequency": 20},
        {"min_frequency": 0.06},
        {"max_categories": 6},
        {"min_frequency": 12, "max_categories": 9},
        {"drop": "first", "max_categories": 6},
    ],
    ids=str,
)
def test_columns_are_those_of_scikit_learn(form, options, tmp_path):
    fit = sks.fit_prepare(as_source(form, OLD, tmp_path), [{"step": "one-hot", **options}])
    for frame in (OLD, NEW):
        expected = encoded(frame, **options)
        names, rows = prepared(as_source(form, frame, tmp_path), fit.steps)
        assert names == list(expected)
        np.testing.assert_array_equal(rows, expected)


def test_columns_that_may_name_the_rows_have_a_note():
    names = {"id": [f"P{i}" for i in range(150)], "name": [f"N{i // 50}{i % 120}" for i in range(150)]}
    frame = pd.DataFrame({**names, "kind": ["a", "b", "c"] * 50, "x": np.arange(150.0) / 2})
    (step,) = sks.fit_prepare(frame, ["one-hot"]).steps
    assert "more than 100 levels" in step.notes()[1]
    count, wide = step.notes(list(frame))
    assert "'id', 'name', 'kind'" in count
    assert f"'id' (150), 'name' ({frame.name.nunique()})" in wide
    assert "kind" not in wide


@pytest.mark.share(2)
@pytest.mark.parametrize("form", FORMS)
def test_models_of_tables_equal_those_of_encoded_rows(form, tmp_path):
    """The task of a table with text: held-out R2 below .3 by its numbers, about .7 with scikit-learn's encoder."""
    X, later = as_source(form, OLD, tmp_path), as_source(form, NEW, tmp_path)
    model = sks.LassoPath(cv=3).fit(X, PRICE[:N_OLD].to_numpy(), prepare=["one-hot"])
    plain = sks.LassoPath(cv=3).fit(encoded(OLD), PRICE[:N_OLD].to_numpy())
    assert list(model.get_feature_names_out()) == list(plain.get_feature_names_out())
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.asarray(model.predict(later)), plain.predict(encoded(NEW)), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(np.asarray(model.transform(later)), encoded(NEW).to_numpy()[:, plain.support_])
    numbers = sks.LassoPath(cv=3).fit(OLD[["area", "rooms"]], PRICE[:N_OLD])
    held_out = PRICE[N_OLD:].to_numpy()
    assert numbers.score(NEW[["area", "rooms"]], held_out) + 0.3 < model.score(later, held_out)
    assert model.score(later, held_out) == pytest.approx(plain.score(encoded(NEW), held_out), abs=1e-12)


@pytest.mark.share(2)
@pytest.mark.parametrize(
    "estimator",
    [sks.GreedySelector(6, normalize=None), sks.KMeans(3), sks.AutoSelector(n_clusters=3, normalize=None)],
    ids=str,
)
def test_estimators_take_the_step(estimator):
    holes = OLD.assign(area=OLD.area.where(OLD.rooms > 1))
    filled = encoded(holes).fillna({"area": holes.area.mean()})
    made, plain = (type(estimator)(**estimator.get_params()) for _ in range(2))
    made.fit(holes, prepare=["one-hot", "impute", "standardise"])
    plain.fit(filled, prepare=["standardise"])
    if isinstance(estimator, sks.KMeans):
        np.testing.assert_array_equal(made.labels_, plain.labels_)
        np.testing.assert_array_equal(made.predict(NEW), plain.predict(encoded(NEW)))
        assert made.top_features(3) == plain.top_features(3)
    else:
        assert made.get_feature_names_out().tolist() == plain.get_feature_names_out().tolist()
        np.testing.assert_array_equal(made.transform(NEW), encoded(NEW).to_numpy()[:, plain.support_])
    made.fit(filled)
    assert made.n_features_in_ == filled.shape[1], "an earlier fit's steps are forgotten"


def test_bits_depend_neither_on_files_partitions_engines_nor_order(tmp_path):
    steps = ["one-hot(max_categories=5)", "standardise"]
    folder = as_source("parquet", FRAME, tmp_path)
    fits = [
        sks.fit_prepare(folder, steps, partition_bytes=size, client=client)
        for size, client in ((None, "threads"), (4000, "serial"), (9000, "threads"))
    ]
    fits.append(sks.fit_prepare(FRAME, steps))
    assert len({fit.steps[0].label for fit in fits}) == 1
    shuffled = FRAME.sample(frac=1, random_state=1)
    assert sks.fit_prepare(shuffled, steps[:1]).steps == fits[0].steps[:1]
    again = sks.fit_prepare(folder, steps, fitted=fits[1].statistics)
    assert [step.label for step in again.steps] == [step.label for step in fits[1].steps]
    parts = [sks.fit_prepare(part, steps[:1]).statistics for part in (FRAME[:300], FRAME[300:])]
    merged = sks.fit_prepare(FRAME, steps[:1], fitted=parts[0].merge(parts[1]))
    assert merged.steps == fits[0].steps[:1], "counts of several sites merge, with their levels"


def test_levels_that_come_late_are_looked_up_there(tmp_path):
    values = ["a"] * 500 + ["b"] * 300 + ["\u00e9"] + ["b"] * 99
    pq.write_table(pa.table({"x": np.arange(900.0) / 2, "c": values}), tmp_path / "t.parquet", row_group_size=64)
    summary = sks.summarize(tmp_path / "t.parquet", sks.ColumnStats(), prepare=["one-hot"], partition_bytes=2000)
    assert summary.feature_names == ("x", "c=a", "c=b", "c=\u00e9")
    assert summary.sum[1:].tolist() == [500, 399, 1]


def one(values, entry="one-hot", later=None):
    """Return names and rows of a column after one step that is fitted to it."""
    frame = pd.DataFrame({"x": np.arange(float(len(values))) / 2, "c": pd.Series(values, dtype=object)})
    steps = sks.fit_prepare(frame, [entry]).steps
    new = frame if later is None else pd.DataFrame({"x": np.zeros(len(later)), "c": pd.Series(later, dtype=object)})
    names, rows = prepared(new, steps)
    return names[1:], rows[:, 1:].astype(int).tolist()


@pytest.mark.parametrize(
    ("values", "entry", "later", "names", "rows"),
    [
        (["b", None, "a"], "one-hot", None, ["a", "b", "missing"], [[0, 1, 0], [0, 0, 1], [1, 0, 0]]),
        (["b", np.nan, "a"], "one-hot(missing=zero)", None, ["a", "b"], [[0, 1], [0, 0], [1, 0]]),
        (["b", pd.NA, "missing"], "one-hot", None, ["b", "missing", "(missing)"], [[1, 0, 0], [0, 0, 1], [0, 1, 0]]),
        (["b", "a", "a"], "one-hot", ["z", "a", None], ["a", "b"], [[0, 0], [1, 0], [0, 0]]),
        (
            list("aab"),
            "one-hot(min_frequency=2,unknown=other)",
            ["z", "b", "a"],
            ["a", "other"],
            [[0, 1]] * 2 + [[1, 0]],
        ),
        (["other", "other", "b"], "one-hot(min_frequency=2)", None, ["other", "(other)"], [[1, 0], [1, 0], [0, 1]]),
        ([True, "1", 1], "one-hot", None, ["1", "True"], [[0, 1], [1, 0], [1, 0]]),
        (["b", None, "a"], "one-hot(drop=first)", ["z", "b", "a"], ["b", "missing"], [[0, 0], [1, 0], [0, 0]]),
        (["a", "a"], "one-hot(drop=first)", ["b", "a"], ["a"], [[0], [1]]),
        (["a", "b"], "one-hot(min_frequency=2,drop=first,unknown=other)", ["z", "a"], ["other"], [[1], [1]]),
        (list("aabc"), "one-hot(min_frequency=2,drop=first)", None, ["other"], [[0], [0], [1], [1]]),
        (["", " ", "a\0"], "one-hot", None, ["", " ", "a\0"], [[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
    ],
)
def test_missing_rare_unknown_and_odd_levels(values, entry, later, names, rows):
    assert one(values, entry, later) == ([f"c={name}" for name in names], rows)


def test_levels_that_are_left_out_are_named():
    frame = pd.DataFrame(
        {"x": np.arange(6.0) / 2, "c": list("bbcaac"), "d": ["u"] * 6, "e": [*"zzz", None, *"\u00e9z"]}
    )

    def last_note(options, names=tuple(frame)):
        (step,) = sks.fit_prepare(frame, [f"one-hot({options})"]).steps
        return step.notes(names)[-1]

    start = (
        "prepare, one-hot: drop = \"first\" left out 'c=a', 'e=z'; where all columns of a text column are 0, the entry"
    )
    assert last_note("drop=first") == f"{start} is the level left out or one that the rows of the fit did not have"
    assert last_note("drop=first,unknown=error") == f"{start} is the level left out"
    assert last_note("drop=first,unknown=error,missing=zero") == f"{start} is the level left out or missing"
    # Of the first text column all levels are rare: it keeps its one column.
    assert "left out 'e=other';" in last_note("drop=first,min_frequency=5")
    assert "'column 1=a', 'column 3=z'" in last_note("drop=first", None)
    assert "left out" not in last_note("min_frequency=1")


def test_what_cannot_be_encoded_is_refused(tmp_path):
    with pytest.raises(BadBlock, match=r"row 1, column .c.: a missing entry"):
        one(["a", None], "one-hot(missing=error)")
    with pytest.raises(BadBlock, match=r"row 0, column .c.: a level"):
        one(["a", "b"], "one-hot(unknown=error)", ["z", "a"])
    many = pd.DataFrame({"x": np.arange(20_000.0) / 2, "user": [f"u{i}" for i in range(20_000)]})
    with pytest.raises(BadParameter, match=r"'user' has 1,500 levels.*max_categories.*drop\(columns='user'\)"):
        sks.fit_prepare(many[:1500], ["one-hot"])
    assert sks.fit_prepare(many[:1500], ["one-hot(max_categories=4)"]).steps[0].n_columns(2) == 5
    with pytest.raises(BadParameter, match=r"'user' has more than 16,384 levels.*become columns; leave"):
        sks.fit_prepare(many, ["one-hot(max_categories=4)"])
    with pytest.raises(BadParameter, match="no text columns"):
        sks.LassoPath().fit(FRAME[["area", "rooms"]], PRICE, prepare=["one-hot"])
    with pytest.raises(BadParameter, match=r"'one-hot'.*before 'standardise'"):
        sks.fit_prepare(FRAME, ["standardise", "one-hot"])
    for options in (
        "max_categories=0",
        "min_frequency=-1",
        "min_frequency=1.5",
        "missing=mean",
        "unknown=x",
        "drop=last",
    ):
        with pytest.raises(BadParameter, match=options.split("=")[0]):
            sks.fit_prepare(FRAME, [f"one-hot({options})"])
    with pytest.raises(SourceError, match=r"'kind'.*one-hot"):
        sks.KMeans(2).fit(FRAME)
    with pytest.raises(SourceError, match=r"'kind'.*one-hot"):
        open_matrix(as_source("parquet", FRAME, tmp_path))
    with pytest.raises(BadParameter, match=r"'kind' is text.*one-hot"):
        sks.summarize(open_matrix(FRAME, encode=["text"]), sks.ColumnStats())
    model = sks.LassoPath(n_features_to_select=3).fit(OLD, PRICE[:N_OLD], prepare=["one-hot"])
    with pytest.raises(Incompatible, match="'kind' was text"):
        model.predict(NEW.assign(kind=1.0))
    with pytest.raises(Incompatible, match="'area' was numbers"):
        model.predict(NEW.assign(area="80"))
    with pytest.raises(BadParameter, match="compute=False"):
        sks.VarianceSelector(2).collect(OLD, compute=False, prepare=["one-hot"])
    with pytest.raises(BadParameter, match="no inverse"):
        sks.VarianceSelector(2).fit(OLD, prepare=["one-hot"]).inverse_transform(np.zeros((1, 2)))


def test_columns_are_kept_out_of_a_converted_table_when_it_is_converted_and_when_it_is_read(tmp_path):
    table = pd.DataFrame({"id": [f"h{i}" for i in range(N)], **FRAME[["area", "rooms", "town", "kind"]]})
    table.to_csv(tmp_path / "t.csv", index=False)

    def names(store, **options):
        return [name.partition("=")[0] for name in encoded_names(store, **options)]

    def encoded_names(store, **options):
        rows = open_matrix(store, encode=["text"], nonfinite="missing", **options)
        assert rows.read_rows(0, 5).shape == (5, rows.shape[1])
        return rows.feature_names

    with pytest.warns(UserWarning, match=r'features of text, but for columns that key = "-NAME,NAME" leaves out'):
        store = sks.convert(tmp_path / "t.csv", tmp_path / "t.zarr", key="-town")
    assert names(store) == ["area", "rooms", "kind"]
    assert names(store, key="-kind,rooms") == names(store, key="-kind,-rooms") == ["area"]
    assert open_matrix(store, key="-rooms").feature_names == ("area",), "without the step too"
    assert sks.readers.open_vector("obs/town", N, matrix=open_matrix(store, key="-rooms")).shape == (N,)
    assert open_matrix(store, key="-rooms,obs/kind").feature_names == ("area",), "as our messages call it"
    assert open_matrix(store, key="-id,rooms").feature_names == ("area",), "the names of the rows are no feature"
    with pytest.raises(BadParameter, match="key '-' names no column to leave out"):
        open_matrix(store, key="-")
    with pytest.raises(SourceError, match=r"no column 'towne' to leave out; did you mean 'town'"):
        open_matrix(store, key="-towne")
    with pytest.raises(SourceError, match=r"no column 'x' to leave out; there are 'area', 'rooms', .*'town'"):
        open_matrix(store, key="-x")
    with pytest.raises(SourceError, match="no column 'a' to leave out; its columns have no names"):
        open_matrix(sks.convert(np.ones((3, 2)), tmp_path / "plain.zarr"), key="-a")
    job = {
        "input": {"url": str(store), "key": "-rooms", "nonfinite": "missing"},
        "prepare": {"steps": ["one-hot", "impute"]},
        "select": {"method": "variance", "n_features": 1},
        "execution": {"cluster": "threads"},
        "output": {"dir": str(tmp_path / "out")},
    }
    result = sks.run(job)
    assert {name.partition("=")[0] for name in result.selection.feature_names} == {"area", "kind"}
    notes = result.manifest["notes"]
    assert any("('kind')" in note and 'input.key = "-NAME,NAME" leaves columns out' in note for note in notes)
    model = sks.VarianceSelector(1).fit(store, prepare=["one-hot"])
    assert model.transform(store).shape == (N, 1), "columns of the fit"


SOLD = pd.Timestamp("2024-01-01 06:00") + pd.to_timedelta(RNG.integers(0, 900, N), "D")
DAYS = (SOLD - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
DATED = FRAME[["area", "town"]].assign(sold=SOLD)


def test_text_files_are_encoded_after_their_conversion(tmp_path):
    table = pd.DataFrame({"id": [f"h{i}" for i in range(N)], **DATED, "price": PRICE})
    table.loc[3, "town"] = "NA"
    table.loc[5, "sold"] = pd.NaT
    table.to_csv(tmp_path / "t.csv", index=False)
    with pytest.warns(UserWarning, match=r"columns (is|are) text.*one-hot"):
        store = sks.convert(tmp_path / "t.csv", tmp_path / "t.zarr", key="-price")
    steps = ["one-hot", "dates", "impute"]
    made = sks.summarize(store, sks.ColumnStats(), prepare=steps)
    plain = sks.summarize(table[["area", "town", "sold"]].replace("NA", None), sks.ColumnStats(), prepare=steps)
    assert made.feature_names == plain.feature_names
    np.testing.assert_array_equal(made.mean, plain.mean)
    model = sks.LassoPath(n_features_to_select=5).fit(store, "obs/price", prepare=steps)
    assert len(model.predict(store)) == N
    assert sks.open_matrix(store).feature_names == ("area",), "without the steps text is no feature"
    table[["town", "area"]].to_csv(tmp_path / "first.csv", index=False)
    with pytest.warns(UserWarning, match=r"columns (is|are) text"):
        first = sks.convert(tmp_path / "first.csv", tmp_path / "first.zarr")
    assert open_matrix(first, encode=["text"]).feature_names == ("area", "town"), "names of rows that repeat"
    table.assign(sold="2024-02-30").to_csv(tmp_path / "bad.csv", index=False)
    with pytest.warns(UserWarning, match=r"columns (is|are) text"):
        bad = sks.convert(tmp_path / "bad.csv", tmp_path / "bad.zarr")
    with pytest.raises(SourceError, match=r"sold.*is no date"):
        sks.summarize(bad, sks.ColumnStats(), prepare=steps)


@pytest.mark.parametrize("form", ["pandas", "polars", "arrow", "parquet"])
def test_dates_are_days(form, tmp_path):
    zoned = DATED.assign(sold=DATED.sold.dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"), day=SOLD.date)
    holes = zoned.assign(sold=zoned.sold.where(zoned.index != 4))
    expected = np.column_stack([holes.area, np.where(holes.index == 4, np.nan, DAYS), np.floor(DAYS)])
    rows = open_matrix(as_source(form, holes.drop(columns="town"), tmp_path), encode=["dates"], nonfinite="missing")
    np.testing.assert_array_equal(rows.read_rows(0, N), expected)
    stats = sks.summarize(as_source(form, holes, tmp_path), sks.ColumnStats(), prepare=["dates", "one-hot", "impute"])
    assert stats.mean[-2] == pytest.approx(np.nanmean(expected[:, 1]))
    with pytest.raises(SourceError, match=r"'sold'.*\"dates\""):
        open_matrix(as_source(form, holes.drop(columns="town"), tmp_path))


@pytest.fixture(scope="module")
def sales(tmp_path_factory):
    """Return a table with truth values and a target of text, its text file, and the store of that."""
    folder = tmp_path_factory.mktemp("sales")
    table = DATED.assign(new=FRAME.new.map({True: "true", False: "false"}), outcome=np.where(PRICE > 2, "yes", "no"))
    table.to_csv(folder / "t.csv", index=False)
    with pytest.warns(UserWarning, match=r"columns (is|are) text"):
        return table, folder / "t.csv", sks.convert(folder / "t.csv", folder / "t.zarr")


def test_a_target_of_the_store_is_no_feature_however_it_is_given(sales, tmp_path, monkeypatch):
    store = sales[2]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.zarr").symlink_to(store)
    address = f"{store}/obs/outcome"
    opened = sks.readers.open_vector("obs/outcome", N, matrix=open_matrix(store))
    for y in ("obs/outcome", address, "link.zarr/obs/outcome", opened, sks.readers.grouped(opened, np.arange(N))):
        names = open_matrix(store, encode=["text", "dates"], vectors=(y,)).feature_names
        assert names == ("area", "town", "sold", "new"), y
    job = {
        "input": {"url": str(store), "target": address},
        "prepare": {"steps": ["one-hot"]},
        "select": {"method": "lasso", "n_features": 2, "task": "classification"},
        "execution": {"cluster": "threads"},
        "output": {"dir": str(tmp_path / "out")},
    }
    result = sks.run(job)
    assert not any("outcome" in name for name in result.selection.feature_names)
    assert any("'town'" in note and "'new'" in note for note in result.manifest["notes"])


@pytest.mark.parametrize("as_vector", [np.asarray, pd.Series], ids=["array", "series"])
def test_vectors_in_memory_go_with_a_converted_table(sales, as_vector):
    table, _, store = sales
    y, weight = as_vector(PRICE.to_numpy()), as_vector(np.ones(N))
    steps = ["one-hot", "dates", "impute"]
    moments = sks.summarize(store, sks.Moments(), y=y, prepare=steps)
    plain = sks.summarize(table, sks.Moments(), y=PRICE, prepare=steps)
    assert moments.feature_names[0] == plain.feature_names[0]
    model = sks.LassoPath(n_features_to_select=3).fit(store, y, sample_weight=weight, prepare=steps)
    assert model.score(store, y) > 0.1


def test_a_converted_table_has_the_levels_of_its_text_file_in_pandas(sales):
    _, file, store = sales
    model = sks.LassoPath(n_features_to_select=9).fit(store, PRICE.to_numpy(), prepare=["one-hot", "dates"])
    frame = pd.read_csv(file, parse_dates=["sold"])
    assert frame.new.dtype == bool
    np.testing.assert_allclose(np.asarray(model.predict(frame)), model.predict(store), rtol=1e-12)
    spelt = one(["true", "FALSE", "True", "maybe"])
    assert spelt[0] == ["c=False", "c=True", "c=maybe"]


@pytest.mark.parametrize("form", [*FORMS[2:], "pandas"])
def test_dates_of_the_fit_are_dates_of_predictions(form, tmp_path):
    rows = DATED[["area", "sold"]][:200]
    model = sks.LassoPath(n_features_to_select=2).fit(as_source(form, rows, tmp_path), PRICE[:200], prepare=["dates"])
    assert len(np.asarray(model.predict(as_source(form, rows, tmp_path)))) == 200
    with pytest.raises(Incompatible, match=r"'sold' was dates"):
        model.predict(as_source(form, rows.assign(sold=20240101), tmp_path))
    with pytest.raises(Incompatible, match=r"'area' was numbers"):
        model.predict(as_source(form, rows.assign(area=rows.sold), tmp_path))


BEYOND = {
    "date32": pa.array([3, 2**31 - 1, None], pa.date32()),  # the infinite date of DuckDB, as it writes it to Parquet
    "milliseconds": pa.array([3, 9 * 10**18, None], pa.timestamp("ms", "UTC")),
}


@pytest.mark.parametrize("column", BEYOND.values(), ids=BEYOND)
def test_dates_that_microseconds_do_not_hold_are_named(column, tmp_path):
    table = pa.table({"x": [1.0, 2.0, 3.0], "t": column})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=1)
    pq.write_table(table.select(["t"]), tmp_path / "d.parquet")
    with pytest.raises(SourceError, match=r"t\.parquet: row group 1: column 't': row 1 has a time before"):
        open_matrix(tmp_path / "t.parquet", encode=["dates"], nonfinite="missing").read_rows(0, 3)
    with pytest.raises(SourceError, match=r"'t': row 1 has a time before"):
        open_vector(tmp_path / "d.parquet", 3, name="dates", dates=True).read(0, 3)
    for frame in (table, pl.from_arrow(table), table.to_pandas(types_mapper=pd.ArrowDtype)):
        with pytest.raises(SourceError, match=r"column 't'.* has a time before"):
            open_matrix(frame, encode=["dates"], nonfinite="missing")


def test_parquet_takes_dates_of_nanoseconds(tmp_path):
    times = np.array(["2024-01-01T00:00:00.123456789", "NaT"], dtype="datetime64[ns]")
    pq.write_table(pa.table({"x": [1.0, 2.0], "t": times}), tmp_path / "t.parquet")
    rows = open_matrix(tmp_path / "t.parquet", encode=["dates"], nonfinite="missing").read_rows(0, 2)
    np.testing.assert_allclose(rows[:, 1], [19723 + 0.123456789 / 86400, np.nan], rtol=1e-15)


@pytest.mark.parametrize(
    "dates", [np.arange(60) + 20240101, np.arange(60.0), np.arange(60) > 30], ids=["int", "float", "bool"]
)
def test_numbers_are_no_dates_of_a_timeline(dates):
    with pytest.raises(SourceError, match=r"numbers are no dates.*to_datetime"):
        sks.timeline(np.eye(60), sks.VarianceSelector(1), dates=dates)


def test_a_column_that_was_opened_as_dates_is_dates_of_a_timeline():
    table = DATED[["area", "sold"]].sort_values("sold").reset_index(drop=True)
    opened = open_matrix(table, encode=["dates"])
    made, plain = (sks.timeline(X, sks.VarianceSelector(1), dates="sold", period="month") for X in (opened, table))
    np.testing.assert_array_equal(made.dates, plain.dates)
    assert made.feature_names == plain.feature_names == ("area",)


@pytest.mark.filterwarnings("ignore:.*columns (is|are) text:UserWarning")
def test_init_writes_the_steps_that_a_table_needs(tmp_path):
    with_dates = ["one-hot", "dates", "standardise"]
    for columns, steps in ((["area"], []), (["area", "town"], ["one-hot"]), (["area", "town", "sold"], with_dates)):
        DATED[columns].to_parquet(tmp_path / "t.parquet", index=False)
        job = tmp_path / f"{len(steps)}.toml"
        works("init", tmp_path / "t.parquet", "-o", job)
        assert tomllib.loads(job.read_text())["prepare"]["steps"] == steps
    DATED.to_csv(tmp_path / "t.csv", index=False)
    works("convert", tmp_path / "t.csv", tmp_path / "t.zarr")
    works("init", tmp_path / "t.zarr", "-o", tmp_path / "csv.toml")
    assert tomllib.loads((tmp_path / "csv.toml").read_text())["prepare"]["steps"] == with_dates


def csv_job(table, tmp_path, **sections):
    """Convert a table of text, and return the first job that is written for it, with fewer clusters."""
    table.to_csv(tmp_path / "t.csv", index=False)
    works("convert", tmp_path / "t.csv", tmp_path / "t.zarr")
    works("init", tmp_path / "t.zarr", "-o", tmp_path / "job.toml")
    job = tomllib.loads((tmp_path / "job.toml").read_text())
    job["input"]["url"], job["cluster"]["n_clusters"] = str(tmp_path / "t.zarr"), 2
    return job | {"execution": {"cluster": "serial"}, "output": {"dir": str(tmp_path / "out")}} | sections


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*columns are text:UserWarning")
@pytest.mark.filterwarnings("ignore:.*missing; the prepare step:UserWarning")
def test_a_first_job_leaves_out_columns_that_its_steps_would_refuse(tmp_path):
    rows = np.arange(2400)
    table = pd.DataFrame({"x": rows % 7 + 0.5, "kind": np.array(["a", "b", "c"])[rows % 3]})
    table["serial"] = [f"s{max(i, 1)}" for i in range(2400)]  # the first rows have two equal ones: no names of rows
    table["day"] = ["2024-03-31", *["soon"] * 2399]
    job = csv_job(table, tmp_path)
    text = (tmp_path / "job.toml").read_text()
    assert "# left out by the key: 'day' begins with a date and has other text too; 'serial' has more than 1" in text
    assert (job["input"]["key"], job["prepare"]["steps"]) == ("-day,serial", ["one-hot"])
    assert sks.run(job).selection.feature_names == ("x", "kind=a", "kind=b", "kind=c")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*columns are text:UserWarning")
def test_a_job_notes_text_and_dates_that_it_does_not_use(tmp_path):
    job = csv_job(DATED.reset_index(drop=True)[["area", "town", "sold"]], tmp_path)
    note = (
        "2 columns of text and dates are not used: 'town', 'sold'; "
        'the prepare steps "one-hot" and "dates" take them, first in prepare.steps'
    )
    for changes, expected in (
        ({}, []),
        ({"prepare": {"steps": []}}, [note]),
        (
            {"prepare": {"steps": ["dates"]}},
            [f"1 column of text is not used: 'town'; the prepare step \"one-hot\" takes it, {note[-22:]}"],
        ),
        ({"prepare": {"steps": ["one-hot"]}}, []),  # dates are levels then
        ({"prepare": {"steps": []}, "input": {**job["input"], "labels": "obs/town", "key": "-sold"}}, []),
    ):
        changed = job | changes | {"select": {"method": "variance", "n_features": 1}}
        result, forecast = sks.run(changed, fresh=True), forecast_job(changed, calibrate=False)
        assert [text for text in result.manifest["notes"] if "used:" in text] == expected
        assert [text for text in forecast.notes if "used:" in text] == expected


def test_a_first_job_takes_text_of_its_own_for_every_row_as_row_names(tmp_path):
    table = DATED.reset_index(drop=True)[["town", "area"]]
    table.insert(0, "car, name", [f"c{i}" for i in range(len(table))])
    table.insert(2, "remark", [f"r{i}" for i in range(len(table))])
    table.to_parquet(tmp_path / "t.parquet", index=False)
    done = works("init", tmp_path / "t.parquet", "-o", tmp_path / "first.toml")
    assert "a text of its own in 'car, name': taken as the names of the rows" in done.stdout
    job = tomllib.loads((tmp_path / "first.toml").read_text())
    assert job["input"] == {"url": "t.parquet", "key": "-remark", "row_names": "car, name"} | job["input"]
    assert job["prepare"]["steps"] == ["one-hot"]
    job["input"]["url"], job["cluster"]["n_clusters"] = str(tmp_path / "t.parquet"), 2
    result = sks.run(job | {"execution": {"cluster": "serial"}, "output": {"dir": str(tmp_path / "out")}})
    assert not any("c1" in name or "r1" in name for name in result.selection.feature_names)
    assert (tmp_path / "out" / "labels.csv").read_text().splitlines()[0] == '"car, name",cluster'

    table.set_index("car, name")[["remark", "area"]].to_parquet(tmp_path / "index.parquet")
    works("init", tmp_path / "index.parquet", "-o", tmp_path / "index.toml")
    job = tomllib.loads((tmp_path / "index.toml").read_text())
    assert job["input"] == {"url": job["input"]["url"], "key": "-remark"}
    assert job["prepare"]["steps"] == []


def test_a_first_job_takes_no_numbers_written_as_text_for_row_names(tmp_path):
    table = DATED.reset_index(drop=True)[["area", "town"]]
    table.insert(0, "length", [f"{i / 7:.6f}" for i in range(len(table))])
    table.to_parquet(tmp_path / "t.parquet", index=False)
    works("init", tmp_path / "t.parquet", "-o", tmp_path / "first.toml")
    assert "row_names" not in (tmp_path / "first.toml").read_text()
    table["length"] = [str(1000 + i) for i in range(len(table))]
    table.to_parquet(tmp_path / "t.parquet", index=False)
    works("init", tmp_path / "t.parquet", "-o", tmp_path / "names.toml")
    assert tomllib.loads((tmp_path / "names.toml").read_text())["input"]["row_names"] == "length"


@pytest.mark.filterwarnings("ignore:.*columns (is|are) text:UserWarning")
def test_a_first_job_for_a_converted_table_speaks_of_no_cells(tmp_path):
    table = DATED.reset_index(drop=True)[["area", "town"]]
    table.insert(1, "sample", [f"s{i}" for i in range(len(table))])
    table.to_csv(tmp_path / "t.csv", index=False)
    works("convert", tmp_path / "t.csv", tmp_path / "t.zarr")
    works("init", tmp_path / "t.zarr", "-o", tmp_path / "first.toml")
    text = (tmp_path / "first.toml").read_text()
    assert tomllib.loads(text)["input"]["row_names"] == "obs/sample"
    assert '# labels = "obs/town"' in text
    assert "# the table's other columns: obs/sample, obs/town" in text
    assert tomllib.loads(text)["prepare"]["steps"] == ["one-hot"]
    assert "anndata" not in text
    assert "columns of obs" not in text


def test_a_job_selects_levels_and_predicts_new_rows(tmp_path):
    old = as_source("parquet", DATED.assign(price=PRICE)[:N_OLD], tmp_path)
    new = as_source("parquet", DATED[["sold", "town", "area"]][N_OLD:], tmp_path)
    job = {
        "input": {"url": str(old), "target": "price"},
        "prepare": {"steps": ["one-hot(max_categories=8)", "dates", "standardise"]},
        "select": {"method": "lasso", "n_features": 6},
        "execution": {"cluster": "threads"},
        "output": {"dir": str(tmp_path / "out")},
    }
    result = sks.run(job)
    names = [result.selection.feature_names[j] for j in result.selection.support]
    assert len(result.selection.feature_names) == 10
    assert any(name.startswith("town=t") for name in names)
    table = DATED[:N_OLD].reset_index(drop=True)
    model = sks.LassoPath(n_features_to_select=6).fit(table, PRICE[:N_OLD], prepare=job["prepare"]["steps"])
    assert model.get_feature_names_out().tolist() == names
    predicted = tmp_path / "new.csv"
    works("assign", tmp_path / "out", new, "-o", predicted)
    np.testing.assert_allclose(pd.read_csv(predicted).price, np.asarray(model.predict(DATED[N_OLD:])), rtol=1e-12)


@pytest.mark.parametrize(
    ("spelt", "cure"),
    [
        ("%Y-%m-%d", "they look like dates"),
        ("%m/%d/%Y", "they look like dates"),
        ("%d.%m.%y 00:00", "they look like dates"),
        ("day %j of %Y", "put rare ones together"),
        ("%Y-%m%d", "put rare ones together"),
    ],
)
def test_dates_as_text_are_told_from_other_text_of_many_levels(spelt, cure):
    days = pd.date_range("2020-01-01", periods=1200).strftime(spelt)
    with pytest.raises(BadParameter, match=rf"column 'built' has 1,200 levels.*become columns; {cure}"):
        sks.VarianceSelector(1).fit(pd.DataFrame({"x": np.arange(1200) % 7, "built": days}), prepare=["one-hot"])


def test_new_rows_whose_columns_are_of_other_kinds_are_refused_by_name(tmp_path):
    table = DATED.reset_index(drop=True).assign(price=PRICE.to_numpy())
    job = {
        "input": {"url": str(as_source("parquet", table, tmp_path)), "target": "price"},
        "prepare": {"steps": ["one-hot", "dates", "impute"]},
        "select": {"method": "lasso", "n_features": 6},
        "execution": {"cluster": "threads"},
        "output": {"dir": str(tmp_path / "out")},
    }
    sks.run(job)
    for name, values, said in (
        ("sold", table.sold.astype(str), "column 'sold' is text here and was a date in the run"),
        ("sold", table.area, "column 'sold' is a number here and was a date in the run"),
        ("town", table.sold, "column 'town' is a date here and was text in the run"),
        ("area", table.town, "column 'area' is text here and was a number in the run"),
    ):
        new = as_source("parquet", table[["area", "town", "sold"]].assign(**{name: values}), tmp_path)
        done = cli("assign", tmp_path / "out", new, "-o", tmp_path / "new.csv")
        assert done.exit_code != 0
        assert said in done.output
    works("assign", tmp_path / "out", as_source("parquet", table, tmp_path), "-o", tmp_path / "new.csv")


@pytest.mark.parametrize("empty", [[None], [np.nan]], ids=str)
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "arrow"])
def test_new_rows_without_any_text_have_missing_levels(frame, empty):
    table = pd.DataFrame({"x": np.arange(20.0) / 2, "k": ["a", None] * 10})
    is_empty = table.k.isna().rename("is_empty")
    model = sks.LassoPath(n_features_to_select=2).fit(table, 9.0 * is_empty, prepare=["one-hot"])
    (level,) = np.asarray(model.predict(frame({"x": [0.0], "k": empty})))
    np.testing.assert_allclose(level, model.predict(table[:2].assign(x=0.0))[1], atol=1e-12)


@pytest.mark.parametrize("form", ["parquet", "dask"])
def test_partitions_without_rows_change_nothing(form, tmp_path):
    steps, empty = ["one-hot(min_frequency=0.1)", "dates", "standardise"], DATED[:0]
    whole = sks.LassoPath(n_features_to_select=4).fit(DATED, PRICE, prepare=steps)
    parts = [empty, DATED[:400], empty, DATED[400:], empty]
    if form == "dask":
        source = dask.dataframe.from_delayed([dask.delayed(part) for part in parts], meta=DATED)
    else:
        source = tmp_path
        for i, part in enumerate(parts):
            # Of a part without rows pandas does not know that a column is text.
            pq.write_table(pa.Table.from_pandas(part, pa.Schema.from_pandas(DATED)), tmp_path / f"{i}.parquet")
    model = sks.LassoPath(n_features_to_select=4).fit(source, PRICE.to_numpy(), prepare=steps)
    assert model.get_feature_names_out().tolist() == whole.get_feature_names_out().tolist()
    np.testing.assert_allclose(np.asarray(model.predict(source)), np.asarray(whole.predict(DATED)), rtol=1e-12)


def test_tables_in_another_order_or_of_other_kinds_are_refused(tmp_path):
    fit = sks.fit_prepare(DATED, ["one-hot", "dates"])
    moments = sks.summarize(DATED, sks.Moments(), y=PRICE, prepare=fit.steps)
    model = sks.LassoPath(n_features_to_select=5).fit_summary(moments).set_prepare(fit.steps)
    direct = sks.LassoPath(n_features_to_select=5).fit(DATED, PRICE, prepare=["one-hot", "dates"])
    np.testing.assert_array_equal(np.asarray(model.predict(DATED)), np.asarray(direct.predict(DATED)))
    for form in FORMS[:1] + FORMS[2:]:
        with pytest.raises(ValueError, match=r"order"):
            direct.predict(as_source(form, DATED[["town", "sold", "area"]], tmp_path))
    with pytest.raises(Incompatible, match=r"'sold' was dates.*is text now"):
        direct.predict(DATED.assign(sold="2024-01-01"))
    with pytest.raises(Incompatible, match=r"'town' was text.*is dates now"):
        direct.predict(DATED.assign(town=DATED.sold))
    dated = sks.VarianceSelector(1).fit(DATED[["area", "sold"]], prepare=["dates"])
    with pytest.raises(BadParameter, match=r"\"dates\" have no inverse"):
        dated.inverse_transform(np.zeros((1, 1)))


def test_names_and_steps_that_are_given_twice_are_refused():
    table = pd.DataFrame({"a": ["b=c", "x"], "a=b": ["c", "d"]})
    with pytest.raises(BadParameter, match=r"'a=b=c'.*'a', 'a=b'"):
        sks.VarianceSelector(1).fit(table, prepare=["one-hot"])
    with pytest.raises(BadParameter, match="'one-hot' is given twice"):
        sks.fit_prepare(OLD, ["one-hot", "one-hot"])
    with pytest.raises(BadBlock, match=r"column 'c': a missing entry"):
        one(["a", "b"], "one-hot(unknown=error)", ["a", None])
