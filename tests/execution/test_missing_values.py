"""The policy "missing": NaN reach the summaries that take them, and nothing else, on every engine."""

from __future__ import annotations

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.errors import BadParameter, NotFinite, SketchSelectError
from sketchselect.summaries import Folds


@pytest.fixture
def holes():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 5))
    X[rng.random(X.shape) < 0.2] = np.nan
    return X


def brute(X, i, j):
    both = ~np.isnan(X[:, i] + X[:, j])
    return np.cov(X[both, i], X[both, j], ddof=0)[0, 1]


@pytest.mark.parametrize("client", ["serial", "threads"])
def test_missing_values_reach_the_summaries_that_take_them(holes, client):
    source = sks.open_matrix(holes, nonfinite="missing")
    expected = {"stats": sks.ColumnStats(), "moments": sks.Moments(missing="pairwise")}
    result = sks.summarize(source, expected, partition_bytes=1000, client=client)
    assert np.array_equal(result["stats"].missing, np.isnan(holes).sum(axis=0))
    covariance = result["moments"].covariance()
    for i in range(5):
        for j in range(5):
            assert covariance[i, j] == pytest.approx(brute(holes, i, j), rel=1e-11)
    assert result["moments"].n_rows == 400


def test_from_a_store_with_checkpoints(tmp_path, holes):
    np.save(tmp_path / "x.npy", holes)
    source = sks.open_matrix(tmp_path / "x.npy", nonfinite="missing")
    description = Folds(sks.Moments(missing="pairwise"), 2)
    first = sks.summarize(source, description, partition_bytes=1000, checkpoint=tmp_path / "kept")
    again = sks.summarize(source, description, partition_bytes=1000, checkpoint=tmp_path / "kept")
    assert first == again
    assert first.total.covariance()[0, 1] == pytest.approx(brute(holes, 0, 1), rel=1e-11)
    with pytest.raises(NotFinite):
        sks.summarize(tmp_path / "x.npy", description, partition_bytes=1000, checkpoint=tmp_path / "kept")


@pytest.mark.parametrize(
    "description", [sks.Moments(), sks.FrequentDirections(3), {"a": sks.ColumnStats(), "b": sks.Moments()}]
)
def test_others_are_refused_them_in_one_line(holes, description):
    source = sks.open_matrix(holes, nonfinite="missing")
    row, column = np.argwhere(np.isnan(holes))[0]
    with pytest.raises(NotFinite, match=f"row {row}, column {column}; .*drop_rows") as caught:
        sks.summarize(source, description)
    assert "\n" not in str(caught.value)
    full = sks.open_matrix(np.nan_to_num(holes), nonfinite="missing")
    sks.summarize(full, description)


def test_clustering_is_refused_them(holes):
    source = sks.open_matrix(holes, nonfinite="missing")
    with pytest.raises(SketchSelectError, match="missing values"):
        sks.KMeans(2).fit(source)


def test_infinity_and_prepare_steps_are_no_missing_values(holes):
    description = sks.Moments(missing="pairwise")
    with pytest.raises(NotFinite, match="'l2'"):
        sks.summarize(sks.open_matrix(holes, nonfinite="missing"), description, prepare=["l2"])
    holes[17, 3] = np.inf
    with pytest.raises(NotFinite, match="1 infinite"):
        sks.summarize(sks.open_matrix(holes, nonfinite="missing"), description)


def test_the_other_policies_are_as_they_were(holes):
    description = sks.Moments(missing="pairwise")
    with pytest.raises(NotFinite, match='nonfinite = "missing"'):
        sks.summarize(holes, description)
    whole = sks.summarize(sks.open_matrix(holes, nonfinite="drop_rows"), description)
    good = holes[~np.isnan(holes).any(axis=1)]
    assert whole.n_rows == len(good)
    assert np.allclose(whole.covariance(), np.cov(good.T, ddof=0))
    with pytest.raises(BadParameter, match='"missing"'):
        sks.open_matrix(holes, nonfinite="ignore")
