"""A range of numbers of clusters: exact objectives, valid bounds, and a recommendation whose rule is stated."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import sketchselect as sks
from sketchselect._text import format_seconds
from sketchselect.cluster import cluster_range
from sketchselect.cluster.certificates.block import CONFIDENCE, SHARE, Affordable, BlockOptions, affordable_blocks
from sketchselect.errors import BadParameter, Incompatible
from sketchselect.execution import Source
from sketchselect.linalg.agreement import weighted_adjusted_rand
from sketchselect.readers import open_matrix

from .data import best_objective, blobs


@pytest.mark.parametrize("n_blobs", [3, 7])
def test_separate_groups_are_recommended(n_blobs):
    X = 30 * np.eye(8)[np.arange(3000) % n_blobs] + np.random.default_rng(n_blobs).standard_normal((3000, 8))
    result = cluster_range(X, range(2, 11))
    assert result.recommended == n_blobs
    assert f"{n_blobs} clusters" in result.sentence()
    by_k = {one.n_clusters: one for one in result.counts}
    assert by_k[n_blobs].stability == pytest.approx(1.0, abs=0.01)
    labels = np.arange(3000) % n_blobs
    assert by_k[n_blobs].objective == pytest.approx(sks.kmeans_objective(X, labels, n_blobs), rel=1e-9)


def test_nothing_is_recommended_where_nothing_stands_out():
    result = cluster_range(np.random.default_rng(0).standard_normal((2000, 10)), range(2, 9))
    assert result.recommended is None
    assert "No number of clusters from 2 to 8" in result.sentence()


def test_objectives_are_those_of_a_partition_and_bounds_hold():
    """Small enough for the optimum by brute force: bound <= optimum <= objective."""
    X = blobs(1, 9, 2, 3)
    for one in cluster_range(X, [1, 2, 3]).counts:
        best = best_objective(X, one.n_clusters)
        assert one.lower_bound <= best * (1 + 1e-9)
        assert one.objective >= best * (1 - 1e-9)
        # All nine rows are in the coreset, so the estimate is no estimate.
        assert one.coreset_objective == pytest.approx(one.objective, rel=1e-6)
        # In two columns, three clusters have no singular values left over.
        expected = one.objective / one.lower_bound if one.lower_bound else np.inf
        assert one.factor == pytest.approx(max(1, expected))


def test_the_same_on_every_engine_and_with_weights(tmp_path):
    X = blobs(2, 5000, 4, 5)
    np.save(tmp_path / "x.npy", X)
    weights = np.random.default_rng(1).integers(1, 3, 5000)
    run = {"n_seeds": 3, "sample_weight": weights.astype(float)}
    assert cluster_range(X, [3, 5], client="serial", **run) == cluster_range(tmp_path / "x.npy", [3, 5], **run)
    repeated = cluster_range(np.repeat(X, weights, axis=0), [5], n_seeds=3)
    weighted = cluster_range(X, [5], **run)
    assert weighted.scatter == pytest.approx(repeated.scatter)
    assert weighted.counts[0].objective == pytest.approx(repeated.counts[0].objective, rel=1e-3)


def test_summaries_alone_give_estimates_and_bounds():
    X = blobs(3, 6000, 6, 4)
    members = sks.summarize(X, {"rows": sks.summaries.RowSample(3000), "sketch": sks.FrequentDirections(12)})
    result = cluster_range(members, range(2, 7))
    full = cluster_range(X, range(2, 7))
    assert result.recommended == full.recommended == 4
    for ours, whole in zip(result.counts, full.counts, strict=True):
        assert ours.objective is None
        assert ours.factor is None
        assert ours.coreset_objective == pytest.approx(whole.objective, rel=0.1)
        assert ours.lower_bound <= whole.objective
    bare = cluster_range(members["rows"], [2])
    assert bare.counts[0].lower_bound is None
    with pytest.raises(Incompatible, match="row-sample"):
        cluster_range(members["sketch"], [2])


def test_identical_rows_and_distinct_values():
    result = cluster_range(np.repeat(np.arange(3.0)[:, None], 20, axis=0), [2, 3])
    assert result.recommended == 3
    assert "distinct values" in result.sentence()


def test_what_is_refused():
    X = blobs(4, 20, 2)
    with pytest.raises(BadParameter, match="no number"):
        cluster_range(X, [])
    with pytest.raises(BadParameter, match="whole number"):
        cluster_range(X, [0, 2])
    with pytest.raises(BadParameter, match="30 clusters, but the coreset has 20 rows"):
        cluster_range(X, [30])
    with pytest.raises(BadParameter, match="n_seeds"):
        cluster_range(X, [2], n_seeds=1)


def test_adjusted_rand_index_is_that_of_scikit_learn():
    rng = np.random.default_rng(5)
    a, b = rng.integers(4, size=200), rng.integers(3, size=200)
    b[:120] = a[:120] % 3
    for weight in (1.0, 1e-9, 0.01, 1e12):
        ours = weighted_adjusted_rand(a, b, np.full(200, weight))
        assert ours == pytest.approx(adjusted_rand_score(a, b), rel=1e-12)


@pytest.mark.parametrize("scale", [2.0**-9, 2.0**-40, 2.0**20])
def test_stability_does_not_depend_on_the_scale_of_the_weights(scale):
    X = np.random.default_rng(6).standard_normal((300, 5))
    for weights in (np.ones(300), np.random.default_rng(7).exponential(size=300)):
        plain = cluster_range(X, [2, 4], n_seeds=4, sample_weight=weights)
        scaled = cluster_range(X, [2, 4], n_seeds=4, sample_weight=weights * scale)
        for a, b in zip(plain.counts, scaled.counts, strict=True):
            assert b.stability == pytest.approx(a.stability, rel=1e-12)
        assert scaled.counts[1].stability < 0.6  # noise has no clusters


def test_weighted_agreement_of_random_labels_is_zero_on_average():
    rng = np.random.default_rng(8)
    weights = rng.pareto(1.0, 40) * 1e-3
    a = rng.integers(3, size=40)
    values = [weighted_adjusted_rand(a, rng.permutation(a), weights) for _ in range(4000)]
    assert abs(np.mean(values)) < 5 * np.std(values) / np.sqrt(4000)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ks": 5}, "several numbers of clusters"),
        ({"ks": [2], "random_state": None}, "random_state must be a whole number"),
        ({"ks": [2], "random_state": True}, "random_state must be a whole number"),
        ({"ks": [2], "sample_rows": -1}, "sample_rows"),
    ],
)
def test_mistakes_name_their_parameter(given, said):
    with pytest.raises(BadParameter, match=said):
        sks.cluster_range(np.random.default_rng(0).random((50, 3)), **given)


# How many blocks a certificate may solve beside a run: a function of the shape and the job, at most its share.


def planned(n_rows: int, n_columns: int, **options: object) -> Affordable:
    """Return what is solved of rows that take no memory."""
    rows = np.broadcast_to(np.float32(1), (n_rows, n_columns))
    every = bool(options.pop("every", False))
    source = Source(open_matrix(rows))
    return affordable_blocks(source, min(50, n_columns), 10, 1, BlockOptions(**options), every=every)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(60, 5), (1797, 64), (9298, 256), (72, 7129)])
def test_all_blocks_of_small_data_are_solved(shape: tuple[int, int]) -> None:
    found = planned(*shape)
    assert found.description is not None
    assert found.description.fraction == 1.0
    assert found.confidence is None
    assert found.n_solved == found.n_blocks == max(1, shape[0] // 400)


def test_more_blocks_are_sampled_with_a_confidence_that_is_said() -> None:
    found = planned(70_000, 784)
    assert found.description is not None
    assert (found.description.spectral, found.confidence) == (True, CONFIDENCE)
    assert found.n_blocks == 175
    assert found.description.fraction == pytest.approx(found.n_solved / 175)
    assert f"about {found.n_solved} of 175 blocks" in found.sentence()
    assert planned(70_000, 784, confidence=0.9).confidence == 0.9
    assert planned(70_000, 784) == found
    every = planned(70_000, 784, every=True)
    assert (every.n_solved, every.confidence) == (175, None)
    assert every.cost_share > found.cost_share


def test_a_sample_of_nearly_all_blocks_is_all_of_them() -> None:
    solved = [planned(400 * n, 64) for n in range(10, 200)]
    assert {one.confidence for one in solved} == {None, CONFIDENCE}
    for n, one in enumerate(solved, 10):
        assert one.n_solved == n if one.confidence is None else one.n_solved < 0.9 * n


def test_the_cost_is_said_in_seconds_and_as_a_share_only_below_all() -> None:
    small, large = planned(2800, 64), planned(20_000_000, 300)
    assert small.cost_share > 1
    assert f"all 7 blocks of rows are solved, for about {format_seconds(small.seconds)} of one core" in small.sentence()
    assert "%" not in small.sentence()
    assert large.sentence().endswith(
        f"one core, {100 * large.cost_share:.0f} % of what this run is estimated to cost without them"
    )


def test_of_very_many_rows_only_the_sample_is_computed_on_and_the_share_is_kept() -> None:
    found = planned(20_000_000, 300)
    assert found.description is not None
    assert not found.description.spectral
    assert found.n_solved > planned(2_000_000, 300).n_solved
    assert 0 < found.cost_share <= SHARE


def test_blocks_too_large_for_memory_are_left_out() -> None:
    found = planned(2000, 200_000)
    assert found.description is None
    assert (found.n_blocks, found.n_solved, found.cost_share) == (5, 0, 0.0)
    assert "spectrum alone" in found.sentence()
