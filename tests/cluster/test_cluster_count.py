"""A range of numbers of clusters: exact objectives, valid bounds, and a recommendation whose rule is stated."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.impute import SimpleImputer
from sklearn.metrics import adjusted_rand_score, calinski_harabasz_score, davies_bouldin_score, silhouette_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sketchselect as sks
from sketchselect._text import format_seconds
from sketchselect.cluster import cluster_range
from sketchselect.cluster.certificates import block
from sketchselect.cluster.certificates.block import CONFIDENCE, SHARE, Affordable, BlockOptions, affordable_blocks
from sketchselect.errors import BadParameter, Incompatible
from sketchselect.execution import Source
from sketchselect.linalg.agreement import weighted_adjusted_rand
from sketchselect.linalg.kmeans.separation import Partition, sums_of_rows
from sketchselect.readers import open_matrix
from sketchselect.summaries import CentroidSums, RowSample

from .data import blobs
from .exhaustive import solved


@pytest.mark.share(1)
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


def test_an_elbow_of_a_few_far_rows_is_said_to_be_one():
    rng = np.random.default_rng(0)
    X = 12.0 * np.eye(4)[np.arange(2000) % 4] + rng.standard_normal((2000, 4))
    assert "The smallest" not in cluster_range(X, range(2, 8), random_state=0).sentence()
    X[:10] += 120.0
    result = cluster_range(X, range(2, 8), random_state=0)
    assert result.recommended == 5
    assert "The smallest of the 5 clusters has 0.5 % of the rows." in result.sentence()


def test_nothing_is_recommended_where_nothing_stands_out():
    result = cluster_range(np.random.default_rng(0).standard_normal((2000, 10)), range(2, 9))
    assert result.recommended is None
    assert "No number of clusters from 2 to 8" in result.sentence()


def test_one_number_is_compared_with_none():
    X = np.random.default_rng(0).standard_normal((200, 3))
    for k in (1, 3):
        sentence = cluster_range(X, [k]).sentence()
        assert sentence.startswith(f"One number of clusters, {k}, has none to be compared with: give several")


def topics(seed: int, n_topics: int, sizes: np.ndarray | None = None, **options: float) -> np.ndarray:
    """Rows of unit length: tf-idf of documents, each on one topic; a share of their words is common to all topics."""
    rng = np.random.default_rng(seed)
    common, n_rows = options.get("common", 0.5), int(options.get("n_rows", 900))
    shared = 1 / np.arange(1, 1001)
    words = common * shared / shared.sum() + (1 - common) * rng.dirichlet(np.full(1000, 0.05), n_topics)
    of_row = rng.choice(n_topics, n_rows, p=sizes)
    counts = np.array([rng.multinomial(1 + rng.poisson(60), words[topic]) for topic in of_row])
    rows: np.ndarray = TfidfTransformer(sublinear_tf=True).fit_transform(counts).toarray()
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_topics", "ks", "options"),
    [(12, (8, 17), {}), (12, (8, 17), {"common": 0.75}), (7, (2, 12), {"sizes": np.arange(1, 8) / 28})],
)
def test_as_many_clusters_as_there_are_topics(n_topics, ks, options):
    assert cluster_range(topics(0, n_topics, **options), range(*ks)).recommended == n_topics


@pytest.mark.share(1)
@pytest.mark.parametrize("kind", ["square", "cigar", "exponential", "one topic", "depth"])
def test_what_is_merely_cut_does_not_stand_out(kind):
    """Each of the first three has a number of clusters of which all seeds agree on the cuts, at an elbow."""
    rng = np.random.default_rng(1)
    X = {
        "square": lambda: rng.random((1000, 2)),
        "cigar": lambda: rng.standard_normal((1000, 50)) * np.r_[6.0, np.ones(49)],
        "exponential": lambda: rng.exponential(size=(1000, 4)),
        "one topic": lambda: topics(1, 1, n_rows=600),
        "depth": lambda: np.log1p(rng.poisson(rng.gamma(0.5, 2.0, 60) * rng.lognormal(0, 0.5, (800, 1)))),
    }[kind]()
    result = cluster_range(X, range(2, 10))
    assert result.recommended is None
    assert min(count.valley for count in result.counts if count.stability >= 0.8 or count.n_clusters < 4) > 0.5


def spark_silhouette(X: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> float:
    """The silhouette of squared distances as Spark defines it, from all pairs of rows."""
    squares = ((X[:, None] - X) ** 2).sum(axis=2)
    member = labels[:, None] == np.unique(labels)
    totals = weights @ member
    means = squares @ (weights[:, None] * member) / totals
    scores = np.zeros(len(X))
    for i, (own, weight) in enumerate(zip(labels, weights, strict=True)):
        if totals[own] != weight:
            a, b = means[i, own] * totals[own] / (totals[own] - weight), np.delete(means[i], own).min()
            scores[i] = 1 - a / b if a < b else (b / a - 1 if a > b else 0)
    return float(weights @ scores / weights.sum())


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_indices_are_those_of_scikit_learn_and_spark(offset, sparse, weighted):
    rng = np.random.default_rng(4)
    X = np.concatenate([rng.standard_normal((90, 4)), 5 + rng.standard_normal((60, 4)), [[40.0, 0, 0, 0]]])
    weights = rng.integers(1, 4, len(X)).astype(float) if weighted else np.ones(len(X))
    centers = np.array([X[0], X[1], X[100], X[-1]]) + offset
    sums = CentroidSums(centers=centers).from_block(X + offset, sample_weight=weights)
    rows = csr_array(X + offset) if sparse else X + offset
    partition = Partition.of(sums)
    *totals, n_rows = sums_of_rows([partition], rows, weights)
    assert n_rows == len(X)
    ours = partition.indices(np.array(totals), len(X))
    labels = ((X[:, None] - (centers - offset)) ** 2).sum(axis=2).argmin(axis=1)
    near = {"rel": 1e-12 if offset == 0 else 1e-8}
    assert ours["silhouette"] == pytest.approx(spark_silhouette(X, labels, weights), **near)
    if not weighted:
        assert ours["silhouette"] == pytest.approx(silhouette_score(X, labels, metric="sqeuclidean"), **near)
    # Of whole weights the sums are those of repeated rows; n is that of the rows.
    Y, repeated = (np.repeat(values, weights.astype(int), axis=0) for values in (X, labels))
    assert ours["davies_bouldin"] == pytest.approx(davies_bouldin_score(Y, repeated), **near)
    freedom = (len(X) - 4) / (len(Y) - 4)
    assert ours["calinski_harabasz"] == pytest.approx(calinski_harabasz_score(Y, repeated) * freedom, **near)


def test_numbers_with_gaps_are_not_said_to_be_a_range():
    X = np.concatenate([np.random.default_rng(1).standard_normal((50, 3)) + 9 * i for i in range(3)])
    assert "of the 2 compared" in cluster_range(X, (2, 8), random_state=0).sentence()
    assert "from 2 to 4" in cluster_range(X, range(2, 5), random_state=0).sentence()


def test_rows_of_no_weight_change_no_index():
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.standard_normal((60, 3)), 6 + rng.standard_normal((60, 3))])
    further = np.concatenate([X, rng.standard_normal((50, 3))])
    weights = np.repeat([1.0, 0.0], [120, 50])
    alone = cluster_range(X, [2, 3], sample_weight=np.ones(120), random_state=0)
    beside = cluster_range(further, [2, 3], sample_weight=weights, random_state=0)
    for one, other in zip(alone.counts, beside.counts, strict=True):
        assert other.calinski_harabasz == pytest.approx(one.calinski_harabasz, rel=0.05)


def test_indices_of_a_range_are_those_of_its_partitions_of_all_rows():
    X = blobs(2, 4000, 4, 3)
    for count in cluster_range(csr_array(np.where(np.abs(X) < 1, 0, X)), [1, 2, 3], sample_rows=200).counts:
        if count.n_clusters == 1:
            assert count.silhouette is count.davies_bouldin is count.calinski_harabasz is count.valley is None
            scatter = count.objective
        else:
            k, within = count.n_clusters, count.objective
            expected = (scatter - within) / (k - 1) / (within / (len(X) - k))
            assert count.calinski_harabasz == pytest.approx(expected, rel=1e-9)
            assert 0 < count.silhouette < 1


def test_objectives_are_those_of_a_partition_and_bounds_hold():
    """Small enough for the optimum by brute force: bound <= optimum <= objective."""
    X = blobs(1, 9, 2, 3)
    for one in cluster_range(X, [1, 2, 3]).counts:
        best = solved(X, one.n_clusters)[0]
        assert one.lower_bound <= best * (1 + 1e-9)
        assert one.objective >= best * (1 - 1e-9)
        # All nine rows are in the coreset, so the estimate is no estimate.
        assert one.coreset_objective == pytest.approx(one.objective, rel=1e-6)
        # In two columns, three clusters have no singular values left over.
        expected = one.objective / one.lower_bound if one.lower_bound else np.inf
        assert one.factor == pytest.approx(max(1, expected))


def test_ranges_and_curves_prepare_rows_as_scikit_learn_does():
    X = np.random.default_rng(5).normal(size=(300, 5)) * [1, 10, 100, 1, 1] + 8 * (np.arange(300) % 3)[:, None]
    X[::9, 1] = np.nan
    Z, steps = make_pipeline(SimpleImputer(), StandardScaler()).fit_transform(X), ["impute", "standardise"]
    ours, theirs = (cluster_range(rows, [2, 3], n_seeds=2, prepare=p).counts for rows, p in ((X, steps), (Z, None)))
    np.testing.assert_allclose([c.objective for c in ours], [c.objective for c in theirs], rtol=1e-9)
    options = {"methods": ["greedy"], "sizes": [2], "normalize": None}
    ours, theirs = (sks.selection_curve(rows, 3, prepare=p, **options).points for rows, p in ((X, steps), (Z, None)))
    np.testing.assert_allclose(ours[0].ratio, theirs[0].ratio, rtol=1e-9)
    with pytest.raises(BadParameter, match="prepare is for rows"):
        sks.selection_curve({"sample": RowSample(5)}, 3, prepare=steps)


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
        assert ours.silhouette == pytest.approx(whole.silhouette, abs=0.05)
    bare = cluster_range(members["rows"], [2])
    assert bare.counts[0].lower_bound is None
    with pytest.raises(Incompatible, match="row-sample"):
        cluster_range(members["sketch"], [2])


def test_identical_rows_and_distinct_values():
    result = cluster_range(np.repeat(np.arange(3.0)[:, None], 20, axis=0), [2, 3])
    assert result.recommended == 3
    assert "distinct values" in result.sentence()
    equal = sks.cluster_range(np.ones((20, 2)), [1, 2, 3])
    assert equal.sentence() == "1 cluster leaves no distance at all: the rows are all equal."


def test_what_is_refused():
    X = blobs(4, 20, 2)
    with pytest.raises(BadParameter, match="no number"):
        cluster_range(X, [])
    with pytest.raises(BadParameter, match="whole number"):
        cluster_range(X, [0, 2])
    with pytest.raises(BadParameter, match="30 clusters, but array has 20 rows"):
        cluster_range(X, [30])
    with pytest.raises(BadParameter, match="n_seeds"):
        cluster_range(X, [2], n_seeds=1)
    for source in (X, RowSample(20).from_block(X)):
        with pytest.raises(BadParameter, match="random_state"):
            cluster_range(source, [2], random_state=-1)


def test_adjusted_rand_index_is_that_of_scikit_learn():
    rng = np.random.default_rng(5)
    a, b = rng.integers(4, size=200), rng.integers(3, size=200)
    b[:120] = a[:120] % 3
    for weight in (1.0, 1e-9, 0.01, 1e12):
        ours = weighted_adjusted_rand(a, b, np.full(200, weight))
        assert ours == pytest.approx(adjusted_rand_score(a, b), rel=1e-12)


@pytest.mark.share(1)
@pytest.mark.parametrize("scale", [2.0**-9, 2.0**-40, 2.0**20, 2.0**-700])
def test_stability_and_valleys_do_not_depend_on_the_scale_of_the_weights(scale):
    X = np.random.default_rng(6).standard_normal((300, 5))
    for weights in (np.ones(300), np.random.default_rng(7).exponential(size=300)):
        plain = cluster_range(X, [2, 4], n_seeds=4, sample_weight=weights)
        scaled = cluster_range(X, [2, 4], n_seeds=4, sample_weight=weights * scale)
        for a, b in zip(plain.counts, scaled.counts, strict=True):
            assert (b.stability, b.valley) == pytest.approx((a.stability, a.valley), rel=1e-12)
        assert scaled.counts[1].stability < 0.6  # noise has no clusters


@pytest.mark.parametrize("exponent", [460, -400])
def test_the_unit_of_the_rows_does_not_matter(exponent):
    X = blobs(3, 200, 4)
    plain, scaled = (cluster_range(rows, [2, 3, 4], n_seeds=3) for rows in (X, np.ldexp(X, exponent)))
    for a, b in zip(plain.counts, scaled.counts, strict=True):
        assert np.ldexp(b.objective, -2 * exponent) == pytest.approx(a.objective, rel=1e-9)
        assert (b.stability, b.valley) == pytest.approx((a.stability, a.valley), rel=1e-9)


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


@pytest.mark.parametrize("shape", [(60, 5), (1797, 64), (72, 7129)])
def test_all_blocks_of_small_data_are_solved(shape: tuple[int, int]) -> None:
    found = planned(*shape)
    assert found.description is not None
    assert found.description.fraction == 1.0
    assert found.confidence is None
    assert found.n_solved == found.n_blocks == max(1, shape[0] // 400)


def test_more_blocks_are_sampled_with_a_confidence_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned(70_000, 784).description is None
    monkeypatch.setattr(block, "LEAST_SECONDS", 10.0)
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


def test_a_sample_of_nearly_all_blocks_is_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block, "LEAST_SECONDS", 10.0)
    solved = [planned(400 * n, 64) for n in range(10, 200)]
    assert {one.confidence for one in solved} == {None, CONFIDENCE}
    for n, one in enumerate(solved, 10):
        assert one.n_solved == n if one.confidence is None else one.n_solved < 0.9 * n


def test_of_few_blocks_all_are_solved_and_never_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds in np.linspace(0.1, 4, 40):
        monkeypatch.setattr(block, "LEAST_SECONDS", seconds)
        for n_blocks in range(1, 17):
            assert planned(400 * n_blocks, 64).n_solved in (0, n_blocks)


def test_the_cost_is_said_in_seconds_and_as_a_share_only_below_all() -> None:
    small, large = planned(2800, 64), planned(20_000_000, 300)
    assert small.cost_share > 1
    assert f"all 7 blocks of rows are solved, for about {format_seconds(small.seconds)} of one core" in small.sentence()
    assert "%" not in small.sentence()
    share = (
        f"one core, {100 * large.cost_share:.0f} % of what this run is estimated to cost without them; estimated from"
    )
    assert share in large.sentence()


def test_of_very_many_rows_only_the_sample_is_computed_on_and_the_share_is_kept() -> None:
    found = planned(20_000_000, 300)
    assert found.description is not None
    assert not found.description.spectral
    assert found.n_solved > planned(2_000_000, 300).n_solved
    assert 0 < found.cost_share <= SHARE


def test_blocks_too_large_for_memory_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    found = planned(2000, 200_000)
    assert found.description is None
    assert (found.n_blocks, found.n_solved, found.cost_share) == (5, 0, 0.0)
    assert "spectrum alone" in found.sentence()
    few = planned(60, 5).description
    assert few is not None
    for spare, is_solved in ((0, True), (-1, False)):
        monkeypatch.setattr(block, "MOST_NBYTES", few.solving_nbytes(60, 5) + spare)
        assert (planned(60, 5).description is not None) == is_solved
    assert few.triangles
