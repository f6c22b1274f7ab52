"""Targets, weights and groups named by a column of what the rows came in: that column is no feature."""

import warnings

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import zarr

import sketchselect as sks
from sketchselect.errors import SourceError
from sketchselect.readers import open_vector

NAMES = ["a", "b", "c", "d"]


@pytest.fixture
def frame():
    rng = np.random.default_rng(8)
    frame = pd.DataFrame(rng.standard_normal((60, 4)), columns=NAMES)
    return frame.assign(y=frame["b"] - 2 * frame["d"] + 0.1, w=rng.uniform(1, 2, 60), g=np.arange(60) // 6)


def polars_of(frame):
    return pytest.importorskip("polars").DataFrame({name: frame[name].to_numpy() for name in frame})


FRAMES = {
    "pandas": lambda frame: frame,
    "pyarrow": pa.Table.from_pandas,
    "polars": polars_of,
    "Dask": lambda frame: dd.from_pandas(frame, npartitions=3),
    "opened": sks.open_matrix,
}


@pytest.mark.share(2)
@pytest.mark.parametrize("kind", list(FRAMES))
def test_columns_of_a_data_frame_are_target_weight_and_groups(kind, frame):
    model = sks.LassoPath(cv=3)
    expected = sks.LassoPath(cv=3)
    if kind == "Dask":  # groups are read beside the target, which takes a target in memory
        rows = FRAMES[kind](frame.drop(columns="g"))
        model.fit(rows, "y", sample_weight="w")
        expected.fit(frame[NAMES], frame["y"], sample_weight=frame["w"])
    else:
        rows = FRAMES[kind](frame)
        model.fit(rows, "y", sample_weight="w", groups="g")
        expected.fit(frame[NAMES], frame["y"], sample_weight=frame["w"], groups=frame["g"])
    assert model.feature_names_in_.tolist() == NAMES
    assert np.allclose(model.coef_, expected.coef_, rtol=1e-12, atol=1e-12)
    assert np.allclose(model.predict(frame[NAMES]), expected.predict(frame[NAMES]))
    if kind not in ("opened", "Dask"):
        with_target = rows.drop(columns=["w", "g"]) if kind == "pandas" else rows.drop(["w", "g"])
        assert model.score(with_target, "y") == pytest.approx(expected.score(frame[NAMES], frame["y"]), rel=1e-12)


@pytest.mark.parametrize("kind", ["pandas", "pyarrow", "polars", "Dask"])
@pytest.mark.parametrize("named", [True, False])
def test_new_rows_may_have_the_column_of_the_target(kind, named, frame):
    model = sks.LassoPath(cv=3)
    if named:
        model.fit(frame[[*NAMES, "y"]], "y")
    else:
        model.fit(frame[NAMES], frame["y"])
    expected = model.predict(frame[NAMES])
    assert np.array_equal(model.predict(FRAMES[kind](frame[["y", *NAMES]])), expected)
    assert model.score(frame[["y", *NAMES]], frame["y"]) == model.score(frame[NAMES], frame["y"])
    with pytest.raises(ValueError, match=r"w|5 features"):
        model.predict(FRAMES[kind](frame[[*NAMES, "w"]]))


@pytest.mark.parametrize("kind", ["pandas", "pyarrow", "polars"])
def test_text_of_a_column_is_classes(kind, frame):
    rows = frame[[*NAMES, "y"]].assign(y=np.where(frame["y"] > 0, "high", "low"))
    model = sks.ThresholdedOLS(n_features_to_select=2, task="classification").fit(FRAMES[kind](rows), "y")
    assert model.classes_.tolist() == ["high", "low"]
    assert model.support_.tolist() == [1, 3]
    batches = [FRAMES[kind](rows.iloc[part]) for part in (slice(0, 30), slice(30, 60))]
    stream = sks.ThresholdedOLS(n_features_to_select=2, task="classification")
    for batch in batches:
        stream.partial_fit(batch, "y", classes=["high", "low"])
    assert np.allclose(stream.coef_, model.coef_)


def test_a_column_is_weight_of_k_means_and_target_of_a_summary(frame):
    rows = frame.drop(columns=["y", "g"])
    by_name = sks.KMeans(3, random_state=0).fit(rows, sample_weight="w")
    assert by_name.inertia_ == sks.KMeans(3, random_state=0).fit(frame[NAMES], sample_weight=frame["w"]).inertia_
    moments = sks.summarize(rows, sks.Moments(), y="w")
    assert moments.n_features == 4
    assert np.array_equal(moments.xy, sks.summarize(frame[NAMES], sks.Moments(), y=frame["w"]).xy)


def anndata_of(frame):
    import anndata

    obs = pd.DataFrame({"y": frame["y"].to_numpy(), "kind": np.where(frame["y"] > 0, "high", "low")})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        obs.index = obs.index.astype(str)
        return anndata.AnnData(
            frame[NAMES].to_numpy(), obs=obs.astype({"kind": "category"}), var=pd.DataFrame(index=NAMES)
        )


def test_columns_of_obs_are_targets_of_an_object_in_memory(frame):
    cells = anndata_of(frame)
    model = sks.LassoPath(n_features_to_select=2).fit(cells, "obs/y")
    assert np.array_equal(model.coef_, sks.LassoPath(n_features_to_select=2).fit(frame[NAMES], frame["y"]).coef_)
    classes = sks.ThresholdedOLS(n_features_to_select=2, task="classification").fit(cells, "obs/kind")
    assert classes.classes_.tolist() == ["high", "low"]
    of_a_gene = sks.LassoPath(n_features_to_select=2).fit(cells, "c")
    assert of_a_gene.feature_names_in_.tolist() == ["a", "b", "d"]
    with pytest.raises(SourceError, match=r"did you mean 'obs/kind'\?"):
        classes.fit(cells, "obs/kinds")


def test_a_name_given_with_an_array_is_refused(frame, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    group = zarr.open_group("array", mode="w")
    group.create_array("y", data=np.arange(60.0))
    # An array in memory has nothing beside it, whatever is in the working directory.
    with pytest.raises(SourceError, match="no such file"):
        sks.LassoPath().fit(frame.to_numpy(), "y")


def test_a_target_of_an_opened_store_is_no_feature(tmp_path, frame):
    frame[[*NAMES, "y"]].to_parquet(tmp_path / "rows.parquet")
    matrix = sks.open_matrix(tmp_path / "rows.parquet")
    model = sks.LassoPath(n_features_to_select=2).fit(matrix, "y")
    assert model.feature_names_in_.tolist() == NAMES
    assert matrix.shape == (60, 5)
    assert open_vector("y", 60, matrix=matrix).read(0, 60).tolist() == frame["y"].tolist()


@pytest.mark.parametrize("kind", ["pandas", "pyarrow", "polars", "Dask", "parquet"])
def test_a_misspelt_target_is_named_before_a_text_column(kind, frame, tmp_path):
    rows = frame[[*NAMES, "y"]].rename(columns={"y": "outcome"}).assign(town="x")
    rows.to_parquet(tmp_path / "t.parquet")
    source = str(tmp_path / "t.parquet") if kind == "parquet" else FRAMES[kind](rows)
    with pytest.raises(SourceError, match=r"no column 'outcom' in .*did you mean 'outcome'"):
        sks.LassoPath().fit(source, "outcom")
    with pytest.raises(SourceError, match="'town' is of type"):
        sks.LassoPath().fit(source, "outcome")


@pytest.mark.parametrize("method", [sks.AutoSelector(3), sks.GreedySelector(3)], ids=lambda m: m.method)
def test_a_target_named_to_a_method_without_one_is_said_to_be_unused(method, tmp_path):
    X = np.random.default_rng(3).standard_normal((80, 6))
    frame = pd.DataFrame(X, columns=list("abcdef"))
    table = frame.assign(outcome=X[:, 2])
    table.to_parquet(tmp_path / "t.parquet")
    expected = method.fit(frame, X[:, 2]).support_.tolist()  # as in a pipeline, and without a word
    misspelt = "no column 'outcom' in .*; did you mean 'outcome'"
    for source in (table, tmp_path / "t.parquet"):
        with pytest.warns(UserWarning, match=r"does not use 'outcome'; .*TargetAutoSelector learns from it"):
            assert method.fit(source, "outcome").support_.tolist() == expected
        with pytest.raises(SourceError, match=misspelt):
            method.fit(source, "outcom")


@pytest.mark.parametrize("fit", [sks.LassoPath().fit, sks.KMeans(2).fit], ids=["selector", "k-means"])
def test_a_misspelt_weight_is_called_one(fit, tmp_path):
    frame = pd.DataFrame(np.random.default_rng(0).uniform(size=(50, 3)), columns=["price", "area", "weight"])
    frame.to_parquet(tmp_path / "t.parquet")
    frame.assign(town="x").to_parquet(tmp_path / "text.parquet")
    y = {} if fit.__self__.__class__ is sks.KMeans else {"y": "price"}
    for source in (frame, frame.assign(town="x"), tmp_path / "t.parquet", tmp_path / "text.parquet"):
        with pytest.raises(SourceError, match=r"^sample_weight: no column 'wieght' in .*did you mean 'weight'"):
            fit(source, sample_weight="wieght", **y)
    with pytest.raises(
        SourceError, match=r"^sample_weight: no column 'sales' in .*; columns: 'price', 'area', 'weight'"
    ):
        fit(frame, sample_weight="sales", **y)


def test_a_misspelt_target_of_a_frame_of_numbers_is_told_what_was_meant(tmp_path, monkeypatch):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 3)), columns=["price", "area", "age"])
    with pytest.raises(SourceError, match=r"no column 'pricee' in the data frame.*did you mean 'price'.*'area'"):
        sks.LassoPath().fit(frame, "pricee")
    with pytest.raises(SourceError, match=r"target: no column 'PRICE' in the data frame.*did you mean 'price'"):
        sks.LassoPath().fit(frame, "PRICE")
    with pytest.raises(SourceError, match=r"target: no column 'unlike' in the data frame.*; columns: 'price', 'area'"):
        sks.LassoPath().fit(frame, "unlike")
    with pytest.raises(SourceError, match=r"target: .*unlike\.npy: no such file or folder"):
        sks.LassoPath().fit(frame, "unlike.npy")
    # A file of that name is the target, and the column a feature.
    monkeypatch.chdir(tmp_path)
    np.save("price.npy", frame["area"].to_numpy())
    assert sks.LassoPath().fit(frame, "price.npy").n_features_in_ == 3
