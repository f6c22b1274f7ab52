"""Objects with names go into every estimator and come out of it: AnnData, xarray, data frames; others are refused."""

import warnings

import dask.array as da
import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import xarray as xr

import sketchselect as sks
from sketchselect.errors import BadParameter, NotFinite, SourceError

NAMES = ("a", "b", "c", "d", "e")
ROWS = tuple(f"row {i}" for i in range(60))


@pytest.fixture
def values():
    return np.random.default_rng(3).standard_normal((60, 5)) * np.arange(1, 6) + 4 * (np.arange(60) % 2)[:, None]


def anndata_of(values):
    import anndata

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return anndata.AnnData(values, obs=pd.DataFrame(index=list(ROWS)), var=pd.DataFrame(index=list(NAMES)))


def data_array(values):
    return xr.DataArray(
        values,
        dims=("cell", "gene"),
        coords={"cell": list(ROWS), "gene": list(NAMES), "batch": ("cell", np.arange(60))},
    )


def polars_frame(values):
    return pytest.importorskip("polars").DataFrame(dict(zip(NAMES, values.T, strict=True)))


OBJECTS = {
    "anndata": anndata_of,
    "anndata CSR": lambda values: anndata_of(sp.csr_matrix(values)),
    "DataArray": data_array,
    "lazy DataArray": lambda values: data_array(values).chunk({"cell": 20}),
    "Dataset": lambda values: xr.Dataset({"x": data_array(values), "batch of a cell": ("cell", np.arange(60))}),
    "pandas": lambda values: pd.DataFrame(values, columns=list(NAMES)),
    "pyarrow": lambda values: pa.table(dict(zip(NAMES, values.T, strict=True))),
    "polars": polars_frame,
}


@pytest.mark.parametrize("kind", list(OBJECTS))
@pytest.mark.parametrize("make", [lambda: sks.VarianceSelector(2), lambda: sks.KMeans(2)], ids=["selector", "k-means"])
def test_names_go_in_with_every_object(make, kind, values):
    fitted = make().fit(OBJECTS[kind](values))
    assert fitted.feature_names_in_.tolist() == list(NAMES)
    expected = make().fit(values)
    for name in ("support_", "labels_"):
        if hasattr(expected, name):
            assert np.array_equal(np.asarray(getattr(fitted, name)), getattr(expected, name))


@pytest.mark.parametrize("kind", ["anndata", "DataArray", "lazy DataArray", "Dataset", "pandas", "pyarrow"])
@pytest.mark.parametrize("make", [lambda: sks.VarianceSelector(2), lambda: sks.KMeans(2)], ids=["selector", "k-means"])
def test_columns_of_another_order_are_refused(make, kind, values):
    fitted = make().fit(data_array(values))
    other = OBJECTS[kind](values[:, ::-1])
    columns = list(NAMES[::-1])
    if kind == "anndata":
        other.var_names = columns
    elif kind in ("pandas", "pyarrow"):
        other = other.set_axis(columns, axis=1) if kind == "pandas" else other.rename_columns(columns)
    else:
        other = other.assign_coords(gene=columns)
    message = "feature names" if kind == "pandas" else "column 0 is named 'e', but 'a' when"
    with pytest.raises(ValueError, match=message):
        fitted.transform(other)
    with pytest.raises(ValueError, match="5"):
        fitted.transform(data_array(values)[:, :3])


def test_chosen_columns_come_back_in_the_same_object(values):
    selector = sks.VarianceSelector(2).fit(values)
    view = selector.transform(anndata_of(values))
    assert view.var_names.tolist() == ["d", "e"]
    assert view.obs_names.tolist() == list(ROWS)
    for source in (data_array(values), data_array(values).chunk({"cell": 20}), OBJECTS["Dataset"](values)):
        out = selector.transform(source)
        assert out.dims == ("cell", "gene")
        assert out.gene.values.tolist() == ["d", "e"]
        assert np.array_equal(out.values, values[:, 3:])
    table = selector.transform(OBJECTS["pyarrow"](values))
    assert np.array_equal(table, values[:, 3:])


@pytest.mark.parametrize("chunked", [False, True])
def test_labels_and_distances_of_an_xarray_have_the_coordinates_of_its_rows(values, chunked):
    source = data_array(values)
    model = sks.KMeans(2).fit(source)
    source = source.chunk({"cell": 20}) if chunked else source
    labels, distances = model.predict(source), model.transform(source)
    assert (labels.dims, distances.dims) == (("cell",), ("cell", "cluster"))
    assert isinstance(labels.data, da.Array) is chunked
    assert set(labels.coords) == set(distances.coords) == {"cell", "batch"}
    assert int(labels.sel(cell="row 7")) == model.labels_[7]
    assert np.array_equal(labels.values, model.labels_)
    assert np.array_equal(distances.values.argmin(axis=1), model.labels_)
    assert np.array_equal(model.fit_predict(source).cell.values, ROWS)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("degree", [1, 2])
def test_predictions_of_an_xarray_are_lazy_as_it_is_and_have_the_coordinates_of_its_rows(values, chunked, degree):
    source = data_array(values).chunk({"cell": 20, "gene": 3}) if chunked else data_array(values)
    y = values[:, 0] + values[:, 1] * values[:, 4]
    both = np.column_stack([y, -y])
    kinds = np.array(["low", "mid", "high"])[np.digitize(y, [-3, 3])]
    options = {"n_features_to_select": 2, "degree": degree}
    one, two = sks.ThresholdedOLS(**options).fit(values, y), sks.ThresholdedOLS(**options).fit(values, both)
    options["task"] = "classification"
    three, sign = sks.ThresholdedOLS(**options).fit(values, kinds), sks.ThresholdedOLS(**options).fit(values, y > 0)
    for method, dims in (
        (one.predict, ("cell",)),
        (two.predict, ("cell", "target")),
        (three.predict, ("cell",)),
        (sign.predict, ("cell",)),
        (three.decision_function, ("cell", "class")),
        (sign.decision_function, ("cell",)),
        (one.transform, ("cell", "gene" if degree == 1 else "term")),
    ):
        made, expected = method(source), method(values)
        assert made.dims == dims
        assert made.name is None, "no key of Dask's"
        assert isinstance(made.data, da.Array) is chunked
        assert made.dtype == expected.dtype
        assert made.shape == expected.shape
        assert set(made.coords) >= {"cell", "batch"}
        assert np.array_equal(made.values, expected) or np.allclose(made.values, expected, rtol=1e-12)


def test_steps_of_the_summary_are_applied_to_lazy_rows(values):
    counts, y = np.abs(values), values[:, 0]
    summary = sks.summarize(counts, sks.Moments(), y=y, prepare=["log1p"])
    model = sks.LassoPath(n_features_to_select=2).fit_summary(summary)
    lazy = model.predict(da.from_array(counts, chunks=(20, 3)))
    assert isinstance(lazy, da.Array)
    assert np.allclose(lazy.compute(scheduler="synchronous"), np.log1p(counts) @ model.coef_ + model.intercept_)


def test_a_lazy_prediction_names_what_is_not_finite(values):
    model = sks.LassoPath(n_features_to_select=2).fit(values, values[:, 0])
    lazy = model.predict(da.from_array(np.where(values == values[3, 0], np.nan, values), chunks=(20, 5)))
    with pytest.raises(NotFinite, match="row 3, column 0"):
        lazy.compute(scheduler="synchronous")


def test_a_lazy_data_array_is_read_in_partitions(values):
    heights = []

    def look(block):
        if block.size:
            heights.append(block.shape[0])
        return block

    blocks = da.from_array(values, chunks=(20, 5)).map_blocks(look, dtype=float, meta=np.empty((0, 0)))
    lazy = xr.DataArray(blocks, dims=("cell", "gene"))
    sks.KMeans(2).fit(lazy)
    assert set(heights) == {20}


def test_a_dataset_needs_a_key_where_there_are_several_matrices(values):
    both = xr.Dataset({"x": data_array(values), "y": data_array(2 * values)})
    assert np.array_equal(sks.open_matrix(both, key="y").read_rows(0, 60), 2 * values)
    with pytest.raises(SourceError, match="there are: 'x', 'y'"):
        sks.KMeans(2).fit(both)
    with pytest.raises(SourceError, match="no variable 'z'"):
        sks.open_matrix(both, key="z")


class Unknown:
    """Neither an array nor a sequence."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return self


@pytest.mark.parametrize("estimator", [sks.VarianceSelector(), sks.KMeans(2)], ids=["selector", "k-means"])
def test_an_object_that_is_no_source_is_refused_with_its_type(estimator):
    with pytest.raises(SourceError, match=r"Unknown is not a source"):
        estimator.fit(Unknown())


def test_columns_of_data_frames_that_are_no_numbers_are_named(values):
    table = pa.table({"x": [1.0, 2.0], "kind": ["u", "v"]})
    with pytest.raises(SourceError, match="column 'kind' is of type String"):
        sks.VarianceSelector().fit(table)
    with pytest.raises(BadParameter, match="source_id"):
        sks.open_matrix(table, source_id="t")
    nulls = sks.open_matrix(pa.table({"i": [1, None], "b": [None, True], "f": pa.array([0.5, None], pa.float32())}))
    expected = np.array([[1, np.nan, 0.5], [np.nan, 1, np.nan]])
    assert np.array_equal(nulls.read_rows(0, 2), expected, equal_nan=True)


@pytest.mark.parametrize("dtype", [None, object, "category"])
@pytest.mark.parametrize("make", [lambda: sks.VarianceSelector(2), lambda: sks.KMeans(2)], ids=["selector", "k-means"])
def test_columns_of_text_are_named_by_every_estimator(make, dtype, values):
    frame = pd.DataFrame(values, columns=list(NAMES))
    with pytest.raises(SourceError, match="column 'name' is of type"):
        make().fit(frame.assign(name=pd.Series(["x"] * 60, dtype=dtype)))
    assert make().fit(frame.astype({"a": object})).n_features_in_ == 5


def test_all_columns_of_text_are_named_at_once(tmp_path):
    flags = [True, False]
    table = pa.table({"ward": ["n", "s"], "x": [1.0, 2.0], "sex": ["f", "m"], "in": flags, "note": ["", "a"]})
    frame = table.to_pandas().astype({"note": "category"})
    for source in (table, frame):
        with pytest.raises(
            SourceError, match=r"column 'ward' is of type .*, and 'sex', 'note' are text too; .*them out"
        ):
            sks.open_matrix(source)
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(SourceError, match=r"'sex', 'note' are text too; .*leave them out with key=\"-ward,sex,note\""):
        sks.open_matrix(tmp_path / "t.parquet")
    assert sks.open_matrix(tmp_path / "t.parquet", key="-ward,sex,note").feature_names == ("x", "in")
    with pytest.raises(SourceError, match=r"no column 'warde'; did you mean 'ward'\?"):
        sks.open_matrix(tmp_path / "t.parquet", key="-warde")


def test_a_column_of_text_of_polars_is_named(values):
    with pytest.raises(SourceError, match="column 'name' is of type String"):
        sks.KMeans(2).fit(polars_frame(values).with_columns(name=polars.lit("x")))


def test_a_lazy_data_frame_is_to_be_computed_first(values):
    frame = polars_frame(values).lazy()
    with pytest.raises(SourceError, match="compute it first"):
        sks.KMeans(2).fit(frame)
