"""k-means against scikit-learn, on nasty data, and the same to the bit however it is run."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from tests.passing import Recorder, serial

from sketchselect.cluster import FewerClusters, KMeans, KMeansParameters, fit_kmeans
from sketchselect.cluster.kmeans import passes, seeding
from sketchselect.errors import BadParameter
from sketchselect.execution import LocalEngine, PassOptions, Source
from sketchselect.linalg.kmeans.sample import sample_size
from sketchselect.readers import open_matrix

from .data import blobs, exact_distances, exact_sums


def fit(X, engine=None, **parameters):
    """Return the result of our k-means on rows in memory."""
    return fit_kmeans(Source(open_matrix(X)), parameters, PassOptions(engine or LocalEngine(kind="serial")))


def assert_consistent(result, X):
    """Assert that labels and inertia are those of the final centres, and that no centre is a phantom."""
    exact = exact_distances(X, result.centers)
    chosen = exact[np.arange(len(X)), result.labels]
    assert (chosen <= exact.min(axis=1) * (1 + 1e-12)).all()
    np.testing.assert_allclose(result.inertia, float(chosen.sum()), rtol=1e-11, atol=1e-20)
    assert sorted(set(result.labels.tolist())) == list(range(result.n_clusters))
    assert (result.cluster_weights > 0).all()


def both_fits(X, centers, max_iter, tol):
    """Return our and scikit-learn's clustering from the same centres, whose labels and iterations are the same."""
    from sklearn.cluster import KMeans as Theirs

    k = len(centers)
    ours = fit(X, n_clusters=k, init=centers, max_iter=max_iter, tol=tol)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = Theirs(k, init=centers, n_init=1, max_iter=max_iter, tol=tol, algorithm="lloyd").fit(X)
    assert (ours.labels == theirs.labels_).all()
    assert ours.n_iter == theirs.n_iter_
    assert_consistent(ours, X)
    return ours, theirs


@pytest.mark.share(6)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("max_iter", [1, 2, 5, 300])
@pytest.mark.parametrize("tol", [0.0, 1e-4, 1e-2])
def test_scikit_learn_from_the_same_centres_converged_or_not(dtype, max_iter, tol):
    X = blobs(1, 1500, 8, 6, separation=2.0).astype(dtype)
    ours, theirs = both_fits(X, X[:6].copy(), max_iter, tol)
    single = dtype == np.float32
    np.testing.assert_allclose(ours.centers, theirs.cluster_centers_, rtol=0, atol=1e-5 if single else 1e-12)
    np.testing.assert_allclose(ours.inertia, theirs.inertia_, rtol=1e-5 if single else 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("max_iter", [2, 300])
def test_scikit_learn_with_two_hundred_clusters(max_iter):
    """Rows of several partitions' worth of sums, and as many clusters as let most implementations lose some."""
    X = blobs(2, 6000, 16, 200, separation=3.0)
    centers = X[np.random.default_rng(0).choice(len(X), 200, replace=False)]
    ours, theirs = both_fits(X, centers, max_iter, tol=0.0)
    np.testing.assert_allclose(ours.inertia, theirs.inertia_, rtol=1e-12)


def test_labels_that_stay_end_the_iteration():
    """Sums of the same rows about other centres differ by rounding for ever: that is no movement, even at tol = 0."""
    rng = np.random.default_rng(0)
    middle = 2.0 * rng.standard_normal((50, 16))
    X = (middle[rng.integers(0, 50, 100_000)] + rng.standard_normal((100_000, 16))).astype(np.float32)
    found = fit(X, n_clusters=50, init=X[:50].astype(np.float64), tol=0.0, max_iter=150)
    assert found.converged
    longer = fit(X, n_clusters=50, init=found.centers, tol=0.0, max_iter=3)
    assert (longer.labels == found.labels).all()


def test_weights_are_repetitions():
    X = blobs(2, 200, 3)
    weights = np.random.default_rng(2).integers(0, 4, size=200)
    one = KMeans(4, init=X[:4], n_init=1).fit(X, sample_weight=weights)
    many = KMeans(4, init=X[:4], n_init=1).fit(np.repeat(X, weights, axis=0))
    np.testing.assert_allclose(one.inertia_, many.inertia_, rtol=1e-10)
    np.testing.assert_allclose(one.cluster_centers_, many.cluster_centers_, rtol=1e-9)
    assert one.cluster_weights_.tolist() == many.cluster_weights_.tolist()


@pytest.mark.parametrize("max_iter", [1, 2, 300])
def test_inertia_is_a_sum_of_squares_of_the_final_labels(max_iter):
    """D6: a run stopped by max_iter must not report something else."""
    X = blobs(3, 600, 4, separation=1.0)
    for init in ("k-means||", "k-means++", "random"):
        assert_consistent(fit(X, n_clusters=5, init=init, max_iter=max_iter, tol=0.0), X)


def test_an_empty_cluster_never_becomes_the_origin():
    """D7: centres that attract nothing are moved to the farthest rows."""
    X = 100 + blobs(4, 300, 2, separation=3.0)
    centers = np.vstack([X[:2], [[1e4, 1e4], [-1e4, 1e4], [1e4, 1e4]]])
    result = fit(X, n_clusters=5, init=centers)
    assert_consistent(result, X)
    assert result.n_clusters == 5
    assert result.centers.min() > 50
    for max_iter in (1, 2):
        assert_consistent(fit(X, n_clusters=5, init=centers, max_iter=max_iter), X)


def test_many_clusters_are_seeded_where_the_rows_are():
    """D8: oversampling grows with k, so 200 separate blobs are all found."""
    rng = np.random.default_rng(5)
    middle = 1000.0 * np.stack(np.meshgrid(np.arange(20), np.arange(10)), axis=-1).reshape(200, 2)
    X = np.repeat(middle, 25, axis=0) + rng.standard_normal((5000, 2))
    result = fit(X, n_clusters=200, max_iter=20)
    assert_consistent(result, X)
    assert result.n_clusters == 200
    _, _, within = exact_sums(X, np.repeat(np.arange(200), 25), 200)
    assert result.inertia <= 20 * float(within.sum())
    # One blob shared by two centres and two blobs shared by one cost about 25 * 2 * 500^2 each.
    assert result.inertia <= float(within.sum()) + 12 * 25 * 2 * 500**2


def test_candidates_are_about_ten_k_and_weighted_by_their_rows():
    X = blobs(6, 4000, 3)
    run = passes.open_passes(Source(open_matrix(X)), 2, serial())
    candidates, _ = seeding._oversample(run, X[:1], 30, seed=1)
    points, weights = candidates.rows, candidates.weights
    assert 5 * 60 * 0.6 < len(points) < 5 * 60 * 1.4
    labels = exact_distances(X, points).argmin(axis=1)
    assert weights.tolist() == np.bincount(labels, minlength=len(points)).tolist()


def test_the_first_centre_is_not_always_row_zero():
    X = blobs(7, 500, 2)
    run = passes.open_passes(Source(open_matrix(X)), 2, serial())
    rows = [int(seeding.survey(run, "k-means||", 2, seed).sample.rows[0]) for seed in range(30)]
    assert len(set(rows)) > 20
    assert max(rows) > 250


@pytest.mark.parametrize("init", ["k-means||", "k-means++", "random"])
def test_seeding_is_as_good_as_scikit_learn(init):
    from sklearn.cluster import KMeans as Theirs

    X = blobs(8, 1500, 6, 12, separation=3.0)
    ours = [fit(X, n_clusters=12, init=init, random_state=s, n_init=3).inertia for s in range(5)]
    theirs = [
        Theirs(12, init="random" if init == "random" else "k-means++", n_init=3, random_state=s).fit(X).inertia_
        for s in range(5)
    ]
    assert np.mean(ours) <= 1.05 * np.mean(theirs)


@pytest.mark.parametrize("seed", [4, 5, 6])
def test_where_comparing_is_dear_several_starts_still_find_planted_clusters(seed, monkeypatch):
    """Clusters so far apart are the best ones; with seed 5 a single start misses them."""
    monkeypatch.setattr(seeding, "COMPARE_FLOPS", 1.0)
    rng = np.random.default_rng(seed)
    planted = np.arange(1600) % 16
    X = (4.0 * rng.standard_normal((16, 30)))[planted] + rng.standard_normal((1600, 30))
    best = sum(((X[planted == c] - X[planted == c].mean(axis=0)) ** 2).sum() for c in range(16))
    assert fit(X, n_clusters=16, random_state=seed).inertia == pytest.approx(best, rel=1e-9)


def test_the_number_of_starts_depends_on_the_work_of_comparing_them_and_on_its_memory():
    sizes = (10, 100), (16, 20_000), (30, 40_000), (500, 784), (16, 1_000_000)
    assert [seeding.n_starts("auto", k, p) for k, p in sizes] == [10, 10, 10, 4, 1]
    assert [seeding.n_directions(10, k, p) for k, p in sizes[:3]] == [None, 64, 64]
    assert [sample_size(k, p) for k, p in sizes] == [2000, 2000, 1677, 10_000, 320]
    assert seeding.n_starts(3, 16, 1_000_000) == 3


@pytest.mark.share(2)
@pytest.mark.parametrize("init", ["k-means||", "k-means++", "function"])
@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_starts_compared_in_a_projection_find_planted_clusters_in_dense_and_sparse_rows(init, offset, monkeypatch):
    """The first 40 rows are of one cluster each, as a function of the user's may know."""
    near = 1e-9 if init == "function" else 0.01
    monkeypatch.setattr(seeding, "COMPARE_FLOPS", 1.0)
    rng = np.random.default_rng(3)
    planted = np.arange(1200) % 40
    X = offset + (1.2 * rng.standard_normal((40, 300)))[planted] + rng.standard_normal((1200, 300))
    if offset == 0.0:
        X = np.where(rng.random((40, 300))[planted] < 0.5, X, 0.0)
    best = sum(((X[planted == c] - X[planted == c].mean(axis=0)) ** 2).sum() for c in range(40))
    for rows in (X, sp.csr_array(X))[: 1 if offset else 2]:
        start = (lambda *_: X[:40]) if init == "function" else init
        result = fit(rows, n_clusters=40, init=start, random_state=3, n_init=10)
        assert result.inertia <= best * (1 + near)
        assert result.centers.shape == (40, 300)


def test_n_init_keeps_the_best_and_seeds_differ():
    X = blobs(9, 800, 3, 9, separation=2.0)
    singles = [fit(X, n_clusters=9, init="random", random_state=s).inertia for s in range(6)]
    assert len(set(singles)) > 1
    assert fit(X, n_clusters=9, init="random", n_init=6).inertia <= fit(X, n_clusters=9, init="random").inertia


@pytest.mark.parametrize("init", ["k-means||", "k-means++", "random"])
def test_identical_rows_give_one_cluster_and_a_warning(init):
    with pytest.warns(FewerClusters, match="n_clusters=3"):
        result = fit(np.full((50, 4), 7.25), n_clusters=3, init=init)
    assert result.centers.tolist() == [[7.25] * 4]
    assert result.inertia == 0.0
    assert result.labels.tolist() == [0] * 50


@pytest.mark.parametrize("init", ["k-means||", "k-means++", "random", "array"])
def test_duplicates_give_as_many_clusters_as_distinct_rows(init):
    rows = np.array([[0.1, 0.2], [5.3, 5.1], [9.7, 0.3]])
    X = np.repeat(rows, [1, 40, 7], axis=0)
    with pytest.warns(FewerClusters):
        result = fit(X, n_clusters=5, init=np.zeros((5, 2)) + 0.1 if init == "array" else init)
    assert result.n_clusters == 3
    assert result.inertia == pytest.approx(0.0, abs=1e-25)
    assert_consistent(result, X)


def test_as_many_clusters_as_rows_and_one():
    X = blobs(10, 12, 3)
    result = fit(X, n_clusters=12)
    assert result.n_clusters == 12
    assert result.inertia == 0.0
    one = fit(X, n_clusters=1)
    np.testing.assert_allclose(one.centers[0], X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(one.inertia, ((X - X.mean(axis=0)) ** 2).sum(), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_from_the_origin(dtype):
    """Row 44: at offset 1e8 scikit-learn's float32 inertia is 0."""
    X = (1e8 + 64 * blobs(11, 900, 3, 3, separation=20.0)).astype(dtype)
    result = fit(X, n_clusters=3)
    near = fit(X.astype(np.float64) - 1e8, n_clusters=3)
    assert_consistent(result, X)
    np.testing.assert_allclose(result.inertia, near.inertia, rtol=1e-9)
    assert (result.labels == near.labels).all()


def variants(monkeypatch):
    """Yield (name, engine) of every way to run in this process; some read the source again in each pass."""
    for share in (0.25, 0.0):
        monkeypatch.setattr(passes, "CACHED_SHARE", share)
        for engine in (LocalEngine(kind="serial"), LocalEngine(1), LocalEngine(2), LocalEngine(5)):
            yield f"{engine.describe()} cached={bool(share)}", engine


@pytest.mark.share(1)
@pytest.mark.parametrize("init", ["k-means||", "k-means++", "random"])
def test_bits_do_not_depend_on_engine_threads_or_memory(init, monkeypatch):
    monkeypatch.setattr(passes, "LEAST_PARTITION_NBYTES", 4096)
    X = blobs(12, 2500, 4, 8, separation=2.0).astype(np.float32)
    weights = np.random.default_rng(0).random(2500)
    seen = set()
    for name, engine in variants(monkeypatch):
        result = KMeans(8, init=init, max_iter=8).fit(X, sample_weight=weights, client=engine)
        bits = result.cluster_centers_.tobytes() + result.labels_.tobytes() + np.float64(result.inertia_).tobytes()
        seen.add(bits)
        assert len(seen) == 1, name


def test_partitions_change_nothing_but_rounding(monkeypatch):
    X = blobs(13, 3000, 4, 6)
    found = []
    monkeypatch.setattr(passes, "CENTER_RATIO", 1)
    for least in (2048, 32768, 4 << 20):
        monkeypatch.setattr(passes, "LEAST_PARTITION_NBYTES", least)
        found.append(fit(X, n_clusters=6))
    for other in found[1:]:
        assert (other.labels == found[0].labels).all()
        np.testing.assert_allclose(other.centers, found[0].centers, rtol=1e-12)


def test_selected_columns_and_preparation_are_what_is_clustered():
    X = blobs(14, 400, 6)
    source = Source(open_matrix(X), prepare=("l2",), columns=(1, 4))
    result = fit_kmeans(source, KMeansParameters(3), serial())
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    assert_consistent(result, unit[:, [1, 4]])


def test_dropped_rows_are_labelled_minus_one(monkeypatch):
    monkeypatch.setattr(passes, "LEAST_PARTITION_NBYTES", 2048)
    X = blobs(15, 500, 3)
    bad = np.array([0, 17, 100, 101, 499])
    X[bad, 1] = np.nan
    result = fit_kmeans(
        Source(open_matrix(X, nonfinite="drop_rows")),
        {"n_clusters": 4, "init": "k-means++"},
        PassOptions(LocalEngine(2)),
    )
    assert np.flatnonzero(result.labels == -1).tolist() == bad.tolist()
    good = np.delete(X, bad, axis=0)
    exact = exact_distances(good, result.centers)
    assert (np.delete(result.labels, bad) == exact.argmin(axis=1)).all()
    np.testing.assert_allclose(result.inertia, float(exact.min(axis=1).sum()), rtol=1e-12)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"n_clusters": 0}, "n_clusters"),
        ({"n_clusters": 9}, "n_clusters=9 but n_samples=8"),
        ({"n_clusters": 2, "n_init": 0}, "n_init"),
        ({"n_clusters": 2, "max_iter": 0}, "max_iter"),
        ({"n_clusters": 2, "tol": -1.0}, "tol"),
        ({"n_clusters": 2, "tol": "small"}, "tol"),
        ({"n_clusters": 2, "random_state": 1.5}, "random_state"),
        ({"n_clusters": 2, "init": "kmeans"}, "init"),
        ({"n_clusters": 2, "init": np.zeros((3, 3))}, "init has shape"),
        ({"n_clusters": 2, "init": np.full((2, 3), np.nan)}, "finite"),
    ],
)
def test_bad_parameters(parameters, match):
    with pytest.raises(BadParameter, match=match):
        fit(blobs(16, 8, 3), **parameters)


def test_bad_weights():
    X = blobs(17, 20, 2)
    with pytest.raises(BadParameter, match="zero"):
        KMeans(2).fit(X, sample_weight=np.zeros(20))
    with pytest.raises(BadParameter, match="1 rows have a positive"):
        KMeans(2).fit(X, sample_weight=np.eye(20)[3])
    with pytest.raises(ValueError, match="sample_weight"):
        KMeans(2).fit(X, sample_weight=-np.ones(20))


def test_rows_without_weight_pull_nothing():
    X = np.vstack([blobs(18, 100, 2), [[1e6, 1e6]] * 3])
    weights = np.concatenate([np.ones(100), np.zeros(3)])
    for init in ("k-means||", "k-means++", "random"):
        km = KMeans(4, init=init).fit(X, sample_weight=weights)
        assert np.abs(km.cluster_centers_).max() < 1e3
        assert len(km.labels_) == 103


def test_parts_of_passes_that_read_again_are_kept_too(tmp_path, monkeypatch):
    from sketchselect.execution import Checkpoint

    monkeypatch.setattr(passes, "CACHED_SHARE", 0.0)
    X = blobs(19, 600, 3)
    np.save(tmp_path / "x.npy", X)
    source = Source(open_matrix(tmp_path / "x.npy"))
    kept = Checkpoint(str(tmp_path / "kept"), min_bytes=0, state_ratio=0)
    plain = fit(X, n_clusters=4)
    run = serial(checkpoint=kept)
    first = fit_kmeans(source, {"n_clusters": 4}, run)
    files = sorted(p.name for p in (tmp_path / "kept").rglob("*.sks"))
    assert len(files) >= first.n_iter
    again = fit_kmeans(source, {"n_clusters": 4}, run)
    assert sorted(p.name for p in (tmp_path / "kept").rglob("*.sks")) == files
    for result in (first, again):
        assert result.centers.tobytes() == plain.centers.tobytes()
        assert result.labels.tobytes() == plain.labels.tobytes()


def test_progress_is_told_once_how_it_ended():
    told = Recorder()
    fit_kmeans(Source(open_matrix(blobs(20, 50, 2))), {"n_clusters": 2}, serial(progress=told))
    assert len(told.notes) == 1
    assert "2 clusters" in told.notes[0]
    assert "converged" in told.notes[0]
