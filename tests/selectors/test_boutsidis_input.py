"""Column selection for k-means: partitions, sources, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from tests.selectors.conftest import blobs, objective

import sketchselect as sks
from sketchselect.errors import BadParameter, Incompatible, NotFinite, SourceError

SELECTORS = [sks.DeterministicSelector, sks.RandomizedSelector, sks.HybridSelector]


def test_a_partition_may_come_in_many_ways(tmp_path):
    X, labels = blobs()
    wanted = sks.DeterministicSelector(9, n_clusters=4).fit(X, partition=labels)
    np.save(tmp_path / "labels.npy", labels)
    sums = sks.summarize(X, {"a": sks.FrequentDirections(64), "b": sks.summaries.CentroidSums(4)}, y=labels)
    for got in (
        sks.DeterministicSelector(9, 4, labels).fit(X),
        sks.DeterministicSelector(9, 4, str(tmp_path / "labels.npy")).fit(X),
        sks.DeterministicSelector(9, 4).fit(X, partition=np.array(["d", "a", "c", "b"])[labels]),
        sks.DeterministicSelector(9, 4).fit(X, partition=labels.astype(float) - 7),
        sks.DeterministicSelector(9, 4, labels).fit_summary(sums),
        sks.DeterministicSelector(9, partition=labels).fit(X),
        sks.DeterministicSelector(9, 4, labels).fit_summary(wanted.summary_),
    ):
        assert got.support_.tolist() == wanted.support_.tolist()
        assert np.allclose(got.weights_, wanted.weights_, rtol=1e-8)
        assert got.selection_.parameters["n_clusters"] == 4
    # What fit was given holds for that fit alone.
    plain = sks.DeterministicSelector(9, 4)
    plain.fit(X, partition=labels)
    assert plain.fit(X).selection_.diagnostics["algorithm"] == 5


def test_the_target_is_ignored():
    X, labels = blobs()
    a, b = (sks.DeterministicSelector(9, 4).fit(X, y) for y in (None, labels))
    assert a.support_.tolist() == b.support_.tolist()
    assert a.weights_.tolist() == b.weights_.tolist()


def test_kmeans_plus_plus_makes_a_partition_first():
    X, labels = blobs(n=1500)
    chosen = sks.DeterministicSelector(9, 4, "kmeans++").fit(X)
    told = chosen.selection_.diagnostics
    assert told["algorithm"] == 4
    # Arthur and Vassilvitskii: 8 (log k + 2) in expectation; with refinement far below.
    assert told["partition_objective"] <= 2 * objective(X, labels)
    again = sks.DeterministicSelector(9, 4, "kmeans++").fit(X, client="serial")
    assert again.weights_.tobytes() == chosen.weights_.tobytes()
    weighted = sks.DeterministicSelector(9, 4, "kmeans++").fit(X, sample_weight=(labels < 3).astype(float))
    assert weighted.support_.size == 9


def test_the_sample_of_kmeans_plus_plus_does_not_depend_on_the_bands(monkeypatch):
    from sketchselect.execution import PassOptions, Source, open_engine
    from sketchselect.selectors import deterministic

    monkeypatch.setattr(deterministic, "SAMPLE_ROWS", 100)
    X, _ = blobs(n=3000)
    found = []
    for nbytes in (1 << 16, 1 << 18, 1 << 25):
        with open_engine("serial") as engine:
            source = Source(sks.open_matrix(X))
            found.append(deterministic.seeded(source, 4, 0, PassOptions(engine, nbytes)).centers)
    assert all((f == found[0]).all() for f in found)


@pytest.mark.parametrize(
    ("partition", "error", "message"),
    [
        (np.zeros(239, dtype=int), SourceError, "239"),
        (np.arange(240) % 5, BadParameter, "5 distinct labels"),
        (np.full(240, np.nan), BadParameter, "row 0"),
        (np.zeros((240, 2), dtype=int), BadParameter, "one label per row"),
        ("nowhere.npy", SourceError, "nowhere"),
    ],
)
def test_bad_partitions_are_named(partition, error, message):
    X, _ = blobs()
    with pytest.raises(error, match=message):
        sks.DeterministicSelector(9, 4, partition).fit(X)


def test_a_partition_needs_its_sums_and_all_rows():
    X, labels = blobs()
    selector = sks.DeterministicSelector(9, 4, labels)
    with pytest.raises(BadParameter, match="all rows"):
        selector.partial_fit(X)
    with pytest.raises(Incompatible, match="centroid-sums"):
        selector.fit_summary(sks.Moments().from_block(X))
    part = np.where(labels == 0, -1, labels)
    half = sks.Bundle.of({"a": sks.Moments().from_block(X), "b": sks.summaries.CentroidSums(4).from_block(X, part)})
    with pytest.raises(Incompatible, match="every row needs a cluster"):
        selector.fit_summary(half)


@pytest.mark.parametrize("cls", SELECTORS)
def test_the_same_selection_from_any_banding_and_the_same_bits_twice(cls):
    X, _ = blobs(n=2000)
    wanted = cls(9, n_clusters=4).fit(X)
    assert cls(9, n_clusters=4).fit(X, client="serial").weights_.tobytes() == wanted.weights_.tobytes()
    for nbytes in (40_000, 200_000):
        for description in (sks.Moments(), sks.FrequentDirections(64)):
            summary = sks.summarize(X, description, partition_bytes=nbytes)
            got = cls(9, n_clusters=4).fit_summary(summary)
            assert got.support_.tolist() == wanted.support_.tolist()
            assert np.allclose(got.weights_, wanted.weights_, rtol=1e-7)
    stream = cls(9, n_clusters=4)
    for start in range(0, 2000, 300):
        stream.partial_fit(X[start : start + 300])
    assert stream.support_.tolist() == wanted.support_.tolist()


@pytest.mark.parametrize("cls", SELECTORS)
def test_stores_sparse_rows_and_weights(cls, tmp_path):
    import scipy.sparse as sp
    import zarr

    X, labels = blobs()
    X[np.abs(X) < 1] = 0
    zarr.create_array(str(tmp_path / "x.zarr"), shape=X.shape, chunks=(64, 16), dtype=X.dtype)[:] = X
    wanted = cls(9, n_clusters=4).fit(X)
    for source in (str(tmp_path / "x.zarr"), sp.csr_array(X)):
        assert cls(9, n_clusters=4).fit(source).support_.tolist() == wanted.support_.tolist()
    # A row of weight two is two rows.
    weight = 1 + (labels == 0)
    twice = cls(9, n_clusters=4).fit(np.repeat(X, weight, axis=0))
    assert np.allclose(cls(9, n_clusters=4).fit(X, sample_weight=weight).weights_, twice.weights_, rtol=1e-6)


@pytest.mark.parametrize("cls", SELECTORS)
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_features_to_select": 4, "n_clusters": 4}, "must exceed n_clusters = 4"),
        ({"n_features_to_select": 3, "n_clusters": 7}, "must exceed n_clusters = 7"),
        ({"n_features_to_select": 9, "n_clusters": 40}, "below the number of columns"),
        ({"n_features_to_select": 9, "n_clusters": 0}, "n_clusters"),
        ({"n_features_to_select": 9, "n_clusters": 2.0}, "n_clusters"),
        ({"n_features_to_select": 0}, "n_features_to_select"),
        ({"n_features_to_select": True}, "n_features_to_select"),
        ({"n_features_to_select": 9, "n_clusters": 4, "sketch_size": 4}, "sketch_size"),
        ({"n_features_to_select": 9, "normalize": "l1"}, "l1|l2"),
    ],
)
def test_bad_parameters_are_named(cls, parameters, message):
    with pytest.raises(BadParameter, match=message):
        cls(**parameters).fit(blobs()[0])


@pytest.mark.parametrize("cls", [sks.RandomizedSelector, sks.HybridSelector])
@pytest.mark.parametrize(("name", "value"), [("n_draws", 0), ("svd", "best"), ("epsilon", 0.0), ("epsilon", 1)])
def test_bad_parameters_of_draws_are_named(cls, name, value):
    with pytest.raises(BadParameter, match=name):
        cls(9, n_clusters=4, **{name: value}).fit(blobs()[0])


@pytest.mark.parametrize("cls", SELECTORS)
def test_bad_data_are_named(cls, tmp_path):
    with pytest.raises(BadParameter, match="40 columns are constant"):
        cls(9, n_clusters=4).fit(np.zeros((50, 40)))
    X, _ = blobs()
    X[17, 3] = np.nan
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(NotFinite, match="column 3"):
        cls(9, n_clusters=4).fit(str(tmp_path / "x.npy"))
    with pytest.raises(ValueError, match="NaN"):
        cls(9, n_clusters=4).fit(X)
    with pytest.raises(BadParameter, match="size 4 has only 3 directions"):
        cls(9, n_clusters=4).fit_summary(sks.FrequentDirections(4).from_block(blobs(d=100)[0]))


@pytest.mark.parametrize("cls", SELECTORS)
def test_more_columns_than_there_are_selects_all_with_a_warning(cls):
    X, _ = blobs()
    with pytest.warns(UserWarning, match="41 but there are 40"):
        chosen = cls(41, n_clusters=4).fit(X)
    assert chosen.support_.tolist() == list(range(40))
    assert (chosen.weights_ == 1).all()
    assert np.isclose(chosen.certificate_.sigma_min, 1)


@pytest.mark.parametrize("cls", SELECTORS)
def test_a_stream_may_begin_with_one_row(cls):
    X, _ = blobs()
    chosen = cls(9, n_clusters=4).partial_fit(X[:1])
    assert chosen.support_.size == 9
    assert np.allclose(chosen.partial_fit(X[1:]).weights_, cls(9, n_clusters=4).fit(X).weights_, rtol=1e-7)


@pytest.mark.parametrize("cls", [sks.DeterministicSelector, sks.VarianceSelector])
def test_a_pass_of_a_subclass_begins_at_its_first_row(cls):
    class LateRows(cls):
        def single_pass(self, source):
            return super().single_pass(source)._replace(first_row=100)

    X, _ = blobs()
    parameters = {"n_clusters": 4} if cls is sks.DeterministicSelector else {}
    assert LateRows(5, **parameters).fit(X).summary_ == cls(5, **parameters).fit(X[100:]).summary_
