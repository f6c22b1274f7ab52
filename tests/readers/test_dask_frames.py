"""Data frames of Dask, against the same frame in memory."""

import numpy as np
import pandas as pd
import pytest

import sketchselect as sks
from sketchselect.errors import BadParameter, ChunkReadError, SourceError
from sketchselect.readers import open_matrix, open_vector

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


@pytest.fixture
def frames():
    dataframe = pytest.importorskip("dask.dataframe")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((200, 6)) * np.arange(1, 7), columns=list("abcdef"))
    return frame, dataframe.from_pandas(frame, npartitions=7)


def test_rows_names_and_targets_are_those_of_the_frame(frames):
    frame, lazy = frames
    matrix = open_matrix(lazy)
    assert matrix.feature_names == tuple("abcdef")
    np.testing.assert_array_equal(matrix.read_rows(20, 120), frame.to_numpy()[20:120])
    np.testing.assert_array_equal(open_vector(lazy["c"], 200).read(5, 200), frame["c"].to_numpy()[5:])


def test_estimators_take_it(frames):
    frame, lazy = frames
    selector = sks.GreedySelector(n_features_to_select=3).fit(lazy)
    assert selector.get_feature_names_out().tolist() == list(
        sks.GreedySelector(n_features_to_select=3).fit(frame).get_feature_names_out()
    )
    model = sks.LassoPath(n_features_to_select=1).fit(lazy[list("abcde")], lazy["a"] * 2 + lazy["f"] * 0.01)
    assert model.get_feature_names_out().tolist() == ["a"]
    labels = sks.KMeans(n_clusters=3, random_state=0).fit(lazy).labels_
    np.testing.assert_array_equal(np.asarray(labels), sks.KMeans(n_clusters=3, random_state=0).fit(frame).labels_)


def test_missing_values_of_pandas_are_nan():
    dataframe = pytest.importorskip("dask.dataframe")
    values = pd.DataFrame({"x": pd.array([1, None, 3], dtype="Int64"), "y": [0.5, 1.5, 2.5]})
    matrix = open_matrix(dataframe.from_pandas(values, npartitions=2), nonfinite="missing")
    np.testing.assert_array_equal(matrix.read_rows(0, 3), [[1, 0.5], [np.nan, 1.5], [3, 2.5]])


def test_a_column_of_text_is_named(frames):
    _, lazy = frames
    with pytest.raises(SourceError, match="column 'kind' is of type"):
        open_matrix(lazy.assign(kind="text"))
    with pytest.raises(SourceError, match=r"column 'kind' is of type \w+, and 'unit' is text too; .*: leave them out"):
        open_matrix(lazy.assign(kind="text", unit="kg"))


def test_a_series_is_no_matrix(frames):
    with pytest.raises(SourceError, match=r"Dask series: .* X\.to_frame\(\)"):
        open_matrix(frames[1]["a"])


def test_partitions_that_are_not_as_the_frame_says_are_one_line(frames):
    frame, lazy = frames
    other = lazy.map_partitions(lambda part: part[list("fedcba")], meta=frame)
    with pytest.raises(ChunkReadError, match=r"^Dask frame: .* could not be computed \(ValueError\).*above$"):
        open_matrix(other)


def test_selected_columns_are_a_lazy_frame(frames):
    frame, lazy = frames
    selector = sks.VarianceSelector(2).fit(lazy)
    chosen = selector.transform(lazy)
    assert type(chosen) is type(lazy)
    pd.testing.assert_frame_equal(chosen.compute(), frame[["e", "f"]])
    with pytest.raises(BadParameter, match=r"^Dask frame: column 0 is named 'f', but 'a' when VarianceSelector was "):
        selector.transform(lazy[list("fedcba")])
