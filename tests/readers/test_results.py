"""Labels and predictions come back in the container of the rows, with their index, divisions, coordinates and names."""

import dask.array as da
import numpy as np
import pandas as pd
import polars
import pytest
from sklearn.compose import TransformedTargetRegressor

import sketchselect as sks

RNG = np.random.default_rng(0)
X = np.repeat([[0.0, 0.0, 1.0], [8.0, 8.0, 2.0], [0.0, 8.0, 3.0]], 20, axis=0) + RNG.normal(size=(60, 3)) / 9
Y = X @ [1.0, -2.0, 0.5] + RNG.normal(size=60) / 50
ROWS = [f"row {i}" for i in range(60)]
FRAME = pd.DataFrame(X, index=ROWS, columns=list("abc"))
PRICE = pd.Series(Y, index=ROWS, name="price")
KIND = pd.Series(np.where(X[:, 1] < 4.0, "high", "low"), index=ROWS, name="kind")


@pytest.fixture(scope="module")
def labels():
    """Labels of the bare array."""
    labels = sks.KMeans(3).fit(X).labels_
    assert type(labels) is np.ndarray
    return labels


@pytest.fixture(scope="module")
def predicted():
    """Predictions for the bare array."""
    predicted = sks.LassoPath().fit(X, Y).predict(X)
    assert type(predicted) is np.ndarray
    return predicted


def test_pandas_gives_series_with_its_index(labels, predicted):
    expected = pd.Series(labels, index=FRAME.index, name="cluster")
    km = sks.KMeans(3).fit(FRAME)
    for given in (km.labels_, km.predict(FRAME), sks.KMeans(3).fit_predict(FRAME)):
        pd.testing.assert_series_equal(given, expected)
    few = FRAME.iloc[::-7]
    pd.testing.assert_series_equal(km.predict(few), expected[few.index])
    pd.testing.assert_series_equal(sks.reassign(FRAME, km.labels_, 3).labels, expected)
    target = pd.Series(predicted, index=FRAME.index, name="price")
    pd.testing.assert_series_equal(sks.LassoPath().fit(FRAME, PRICE).predict(FRAME), target)
    named = sks.LassoPath().fit(FRAME.assign(price=PRICE), "price")  # the target by the name of its column
    pd.testing.assert_series_equal(named.predict(FRAME), target)


def test_classes_and_several_targets_of_pandas_have_names():
    kinds = sks.LassoPath(task="classification").fit(FRAME, KIND).predict(FRAME)
    assert kinds.name == "kind"
    assert kinds.index.equals(FRAME.index)
    assert (kinds == KIND).mean() > 0.9
    targets = pd.DataFrame({"price": PRICE, "loss": -PRICE})
    both = sks.LassoPath().fit(FRAME, targets).predict(FRAME)
    assert both.columns.tolist() == ["price", "loss"]
    assert both.index.equals(FRAME.index)


def test_a_bare_target_gives_an_array_that_meta_estimators_can_reshape(predicted):
    assert type(sks.LassoPath().fit(FRAME, Y).predict(FRAME)) is np.ndarray
    doubled = TransformedTargetRegressor(sks.LassoPath(), func=lambda y: 2 * y, inverse_func=lambda y: y / 2)
    np.testing.assert_allclose(np.ravel(doubled.fit(FRAME, PRICE).predict(FRAME)), predicted)


def test_a_summary_has_no_target_name(predicted):
    model = sks.LassoPath().fit(FRAME, PRICE)
    pd.testing.assert_series_equal(
        model.fit_summary(model.summary_).predict(FRAME), pd.Series(predicted, index=FRAME.index)
    )


def test_polars_gives_its_series(labels, predicted):
    frame = polars.DataFrame(X, schema=list("abc"))
    km = sks.KMeans(3).fit(frame)
    assert km.labels_.equals(polars.Series("cluster", labels), check_names=True, check_dtypes=True)
    assert km.predict(frame).equals(km.labels_)
    assert frame.with_columns(km.labels_)["cluster"].to_list() == labels.tolist()
    model = sks.LassoPath().fit(frame, polars.Series("price", Y))
    assert model.predict(frame).equals(polars.Series("price", predicted), check_names=True)


@pytest.mark.parametrize("known", [True, False])
def test_dask_frames_take_their_labels_as_a_column(labels, predicted, known):
    dataframe = pytest.importorskip("dask.dataframe")
    # Rows of one name in different partitions: an alignment by the index would be wrong.
    frame = FRAME.sort_index() if known else FRAME.set_axis([f"row {i % 9}" for i in range(60)])
    order = [ROWS.index(name) for name in frame.index] if known else range(60)
    lazy = dataframe.from_pandas(frame, npartitions=4, sort=known)
    lazy = lazy[lazy["c"] < 2.5]  # an empty partition, or a short one
    kept = [i for i in order if X[i, 2] < 2.5]
    fitted = sks.KMeans(2).fit(lazy).labels_, sks.KMeans(2).fit(X[kept]).labels_
    for series, expected in (fitted, (sks.KMeans(3).fit(FRAME).predict(lazy), labels[kept])):
        assert lazy.divisions == series.divisions
        assert lazy.known_divisions == known
        both = lazy.assign(cluster=series).compute()
        assert both.index.tolist() == [frame.index[list(order).index(i)] for i in kept]
        np.testing.assert_array_equal(both["cluster"], expected)
        assert both["cluster"].dtype == series.dtype == np.int32
    model = sks.LassoPath().fit(FRAME, PRICE)
    table = lazy.assign(price=model.predict(lazy)).compute()
    np.testing.assert_allclose(table["price"], predicted[kept])
    kinds = sks.LassoPath(task="classification").fit(FRAME, KIND).predict(lazy)
    assert kinds.compute().dtype == kinds.dtype
    both = sks.LassoPath().fit(FRAME, pd.DataFrame({"price": PRICE, "loss": -PRICE})).predict(lazy)
    assert both.compute().columns.tolist() == ["price", "loss"]


def test_xarray_gives_a_data_array_of_its_rows(labels, predicted):
    xarray = pytest.importorskip("xarray")
    array = xarray.DataArray(X, dims=("day", "station"), coords={"day": ROWS})
    expected = xarray.DataArray(labels, dims="day", coords={"day": ROWS}, name="cluster")
    km = sks.KMeans(3).fit(array)
    for given in (km.labels_, km.predict(array)):
        xarray.testing.assert_identical(given, expected)
    lazy = array.copy(data=da.from_array(X, chunks=(25, 3)))
    stays_lazy = km.fit(lazy).labels_
    assert stays_lazy.chunks == ((25, 25, 10),)
    xarray.testing.assert_identical(stays_lazy.compute(), expected)
    target = xarray.DataArray(Y, dims="day", coords={"day": ROWS}, name="price")
    xarray.testing.assert_allclose(sks.LassoPath().fit(array, target).predict(array), target.copy(data=predicted))


def test_anndata_gives_a_column_of_obs(labels, predicted):
    anndata = pytest.importorskip("anndata")
    cells = anndata.AnnData(X, obs=pd.DataFrame({"price": Y}, index=ROWS))
    km = sks.KMeans(3).fit(cells)
    expected = pd.Series(labels, index=pd.Index(ROWS), name="cluster")
    pd.testing.assert_series_equal(km.labels_, expected, check_index_type=False)
    pd.testing.assert_series_equal(km.predict(cells[::2]), expected[::2], check_index_type=False)
    cells.obs["cluster"] = km.labels_
    cells.obs["predicted"] = sks.LassoPath().fit(cells, "obs/price").predict(cells)
    np.testing.assert_array_equal(cells.obs["cluster"], labels)
    np.testing.assert_array_equal(cells.obs["predicted"], predicted)
    assert sks.LassoPath().fit(cells, "obs/price").predict(cells).name == "price"


def test_a_unit_with_a_slash_stays_in_the_name_of_a_target(tmp_path):
    rows = pd.DataFrame(np.random.default_rng(0).standard_normal((40, 3)), columns=["a m/s", "b", "yield t/ha"])
    rows.to_parquet(tmp_path / "rows.parquet")
    for source in (rows, str(tmp_path / "rows.parquet")):
        model = sks.LassoPath(alpha=0.1).fit(source, "yield t/ha")
        assert model.predict(rows[["a m/s", "b"]]).name == "yield t/ha"
