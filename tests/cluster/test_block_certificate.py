"""The block certificate: against exhaustive optima, on real data, on every engine, sampled, saved and merged."""

from __future__ import annotations

from dataclasses import fields
from inspect import signature
from itertools import combinations

import numpy as np
import pytest
import zarr
from scipy.sparse import csr_array
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits

import sketchselect as sks
from sketchselect.cli.certify import certify as certify_command
from sketchselect.cluster import blocks_certificate
from sketchselect.cluster.certificates import block as block_certificate
from sketchselect.errors import BadBlock, BadParameter, Incompatible, Interrupted, NotFinite
from sketchselect.execution import Checkpoint, Source
from sketchselect.execution.engine import source_partitions
from sketchselect.job.schema import CertificateSettings
from sketchselect.readers import open_matrix
from sketchselect.summaries import BlockBound, Bundle
from sketchselect.summaries.block_bound import balanced_blocks, least_mean


@pytest.fixture(scope="module")
def digits():
    X = load_digits().data
    return X, float(KMeans(10, n_init=3, random_state=0).fit(X).inertia_)


@pytest.mark.slow
def test_digits_are_certified_within_a_few_percent(digits):
    X, objective = digits
    found = sks.certify(X, objective, 10, method="blocks", block_rows=300)
    assert found.method == "blocks"
    assert found.confidence == 1.0
    assert found.details["n_blocks"] == found.details["n_solved"] == 5
    assert 1.0 <= found.factor <= 1.075
    spectral = sks.certify(sks.Moments().from_block(X), objective, 10)
    assert spectral.lower_bound < found.lower_bound <= objective
    assert "within" in found.sentence()


@pytest.mark.parametrize(("n_rows", "k"), [(8, 2), (21, 3), (100, 3)])
def test_equidistant_rows_have_a_bound_that_is_reached(n_rows, k):
    """LAPACK fails to find some of the equal eigenvalues by their numbers."""
    bound = BlockBound(k, n_rows, triangles=False).from_block(np.eye(n_rows), np.arange(n_rows) % k).lower_bound()
    assert n_rows - k - 1e-9 <= bound <= n_rows - k


@pytest.mark.slow
def test_labels_take_a_third_of_the_gap_away(digits):
    X, objective = digits
    labels = KMeans(10, n_init=3, random_state=0).fit(X).labels_
    bound = BlockBound(10, 400, triangles=False)
    by_hash, by_labels = (bound.from_block(X, y).lower_bound() for y in (None, labels))
    assert objective / by_labels - 1 <= 0.67 * (objective / by_hash - 1)
    assert by_labels <= objective


def test_triangle_inequalities_take_half_of_the_gap_away(digits):
    """In a block of one partition, whose best clustering is nearly proved; and they never lose anything."""
    X = digits[0][:200]
    best = float(KMeans(10, n_init=20, random_state=0).fit(X).inertia_)
    without, by_default = (BlockBound(10, 200, **some).from_block(X) for some in ({"triangles": False}, {}))
    assert best / by_default.lower_bound() - 1 <= 0.5 * (best / without.lower_bound() - 1)
    assert by_default.lower_bound() <= best


@pytest.mark.parametrize(
    "X",
    [
        np.random.default_rng(0).standard_normal((101, 3)),
        np.random.default_rng(1).standard_normal((57, 400)),
        csr_array(np.random.default_rng(2).poisson(0.1, (80, 300)).astype(float)),
        np.full((30, 2), 1e300) * np.random.default_rng(3).standard_normal((30, 1)),
        np.zeros((12, 1)),
    ],
    ids=["narrow", "wide", "sparse", "huge", "equal"],
)
@pytest.mark.parametrize("labels", ["three", "each", "one"])
def test_balanced_blocks_are_a_partition_into_equal_parts(X, labels):
    n = X.shape[0]
    y = {"three": np.arange(n) % 3, "each": np.arange(n), "one": np.zeros(n, dtype=int)}[labels]
    order = np.random.default_rng(0).permutation(n)
    blocks = balanced_blocks(X, y, 4, order, n)
    assert np.array_equal(np.sort(np.concatenate(blocks)), np.arange(n))
    assert max(map(len, blocks)) - min(map(len, blocks)) <= 1
    if labels == "three":
        # And of every cluster within one of a quarter.
        assert all(np.ptp(np.bincount(y[rows], minlength=3)) <= 2 for rows in blocks)
    if not isinstance(X, csr_array):
        for rows, same in zip(blocks, balanced_blocks(csr_array(X), y, 4, order, n), strict=True):
            assert np.array_equal(rows, same)


class Stopped:
    """Progress that ends the process's work, as Ctrl-C does, after so many partitions."""

    def __init__(self, after=None):
        self.after, self.done = after, 0

    def start(self, stage, total_bytes, n_partitions):
        self.n_partitions = n_partitions

    def advance(self, nbytes):
        self.done += 1
        if self.done == self.after:
            raise KeyboardInterrupt

    def note(self, text): ...

    def finish(self, stage): ...


@pytest.mark.slow
def test_same_bits_on_every_engine_and_from_a_checkpoint(digits, tmp_path, monkeypatch):
    """Ten partitions of blocks; a run that is interrupted after four of them goes on where it was."""
    monkeypatch.setattr(block_certificate, "DEFAULT_PARTITION_BYTES", 40 * 64 * 8)
    monkeypatch.setattr(block_certificate, "BLOCKS_PER_PARTITION", 1)
    # So small that every partition is a leaf of its own.
    monkeypatch.setattr(BlockBound, "projected_nbytes", lambda *_: 8)
    X = digits[0][:400]
    np.save(tmp_path / "x.npy", X)
    options = {"block_rows": 20, "sample_weight": np.linspace(0.5, 2.0, 400)}
    plain = sks.certify(X, 1e9, 10, client="serial", **options)
    assert plain.details["n_blocks"] == 20
    rows = tmp_path / "x.npy"
    for engine in ("serial", "threads"):
        kept = Checkpoint(tmp_path / engine, min_bytes=0, state_ratio=0.0)
        with pytest.raises(Interrupted):
            sks.certify(rows, 1e9, 10, client=engine, checkpoint=kept, progress=Stopped(4), **options)
        told = Stopped()
        found = sks.certify(rows, 1e9, 10, client=engine, checkpoint=kept, progress=told, **options)
        # What was kept is not read again.
        assert 0 < found.rows_read < 400
        assert told.n_partitions == found.rows_read // 40
        assert (found.lower_bound, found.details) == (plain.lower_bound, plain.details)
        again = sks.certify(rows, 1e9, 10, client=engine, checkpoint=kept, **options)
        assert (again.lower_bound, again.rows_read) == (plain.lower_bound, 0)
        # Another bound of the same rows does not pick it up.
        assert sks.certify(rows, 1e9, 9, client=engine, checkpoint=kept, **options).rows_read == 400


@pytest.mark.slow
def test_blocks_are_dealt_by_hash_not_by_order(digits):
    X = digits[0]
    order = np.argsort(load_digits().target, kind="stable")[:600]
    sorted_rows, shuffled = X[order], X[np.random.default_rng(0).permutation(order)]
    bound = BlockBound(10, block_rows=100)
    a, b = (bound.from_block(rows).lower_bound() for rows in (sorted_rows, shuffled))
    assert a == pytest.approx(b, rel=0.05)


def test_a_sample_of_blocks_holds_with_its_probability():
    rng = np.random.default_rng(5)
    X = 2 * rng.standard_normal((3, 6))[rng.integers(0, 3, 600)] + rng.standard_normal((600, 6))
    objective = float(KMeans(3, n_init=3, random_state=0).fit(X).inertia_)
    found = sks.certify(X, objective, 3, block_rows=20, confidence=0.9, fraction=0.5, client="serial")
    assert found.confidence == 0.9
    assert found.details["n_solved"] < found.details["n_blocks"]
    assert "probability 0.9" in found.sentence()
    certain = sks.certify(BlockBound(3, block_rows=20, fraction=0.5).from_block(X), objective, 3)
    assert certain.confidence == 1.0
    assert certain.lower_bound < found.lower_bound <= objective


def test_a_sampled_bound_that_an_objective_refutes_is_not_used():
    """An objective below the bound shows that the sample misled; then only what is certain is left."""
    rng = np.random.default_rng(5)
    X = 2 * rng.standard_normal((3, 6))[rng.integers(0, 3, 600)] + rng.standard_normal((600, 6))
    found = BlockBound(3, block_rows=20, fraction=0.5).from_block(X)
    certain, sampled = found.lower_bound(), found.lower_bound(0.5)
    assert certain < sampled
    made = blocks_certificate(found, (certain + sampled) / 2, 0.5, 0.0)
    assert (made.confidence, made.lower_bound) == (1.0, certain)
    assert "holds for certain. Nothing more can be said with probability 0.5: " in made.sentence()
    assert "above an objective that was reached" in made.to_dict()["sentence"]
    holds = blocks_certificate(found, 2 * sampled, 0.5, 0.0)
    assert (holds.confidence, holds.note) == (0.5, "")


def test_too_few_blocks_for_the_probability_are_told():
    """One block in a few says almost nothing with 99.9 %; what is certain of the others' spectra is more."""
    X = np.random.default_rng(1).standard_normal((120, 3))
    for fraction, solved in ((0.3, 1), (1e-9, 0)):
        seed = next(s for s in range(99) if of_blocks(X, fraction, s).record.n_solved == solved)
        options = {"block_rows": 30, "confidence": 0.999, "fraction": fraction, "random_state": seed}
        found = sks.certify(X, 1e6, 2, **options)
        bound = of_blocks(X, fraction, seed)
        assert (found.confidence, found.lower_bound) == (1.0, bound.lower_bound())
        was = "was" if solved == 1 else "were"
        reason = f"with probability 0.999: only {solved} of 4 blocks {was} solved, which is too few. A larger fraction"
        assert reason in found.sentence()
    assert sks.certify(X, 1e6, 2, block_rows=30, confidence=0.999, fraction=1.0).note == ""
    assert of_blocks(X, 1.0, 0).record.n_solved == 4


@pytest.mark.share(2)
@pytest.mark.parametrize("rows", [*(np.arange(12.0).reshape(-1, 3)[:n] for n in (1, 2, 3, 4)), np.ones((30, 3))])
@pytest.mark.parametrize("form", [np.asarray, csr_array])
def test_blocks_that_cannot_gain_are_not_drawn_and_spoil_nothing(rows, form):
    """A last partition shorter than a block, and one of equal rows: they count by their spectrum."""
    X = np.random.default_rng(1).standard_normal((1200, 3))
    bound = BlockBound(2, block_rows=30, fraction=0.4)
    some = bound.from_block(form(X))
    least = BlockBound(2, block_rows=30, fraction=1e-9).from_block(rows).lower_bound()
    for start in range(1200, 1220):
        both = some.merge(bound.from_block(form(rows), start=start))
        assert (both.record.n_blocks, both.record.n_solved) == (40, some.record.n_solved)
        assert both.lower_bound(0.9) == pytest.approx(some.lower_bound(0.9) + least, rel=1e-9)
    weights = np.repeat([0.0, 1.0], [29, 1])
    assert bound.from_block(X[:30], sample_weight=weights).record.n_blocks == 0


def test_why_a_sample_proves_no_more_is_the_true_reason():
    X = np.random.default_rng(1).standard_normal((300, 3))
    found = sks.certify(X[:20], 1e6, 2, block_rows=30, confidence=0.9, fraction=0.5)
    assert "no block of 30 rows of which more than 2 are different" in found.note
    # One cluster: the spectral bound is the objective, and nothing is gained.
    found = sks.certify(X, 1e6, 1, method="blocks", block_rows=30, confidence=0.9, fraction=0.5)
    assert 0 < found.details["n_solved"] < 10
    assert "gained nothing over the spectral bound" in found.note


def of_blocks(X, fraction, seed):
    return BlockBound(2, block_rows=30, fraction=fraction, seed=seed).from_block(X)


def test_the_job_key_and_the_verbs_take_the_same_options():
    names = {one.name for one in fields(block_certificate.BlockOptions)}
    assert set(CertificateSettings.model_fields) == names - {"random_state"} | {"method"}
    for verb in (sks.certify, sks.certify_labels):
        taken = signature(verb).parameters
        defaults = block_certificate.BlockOptions()
        assert {name: taken[name].default for name in names} == {name: getattr(defaults, name) for name in names}
    of_command = signature(certify_command).parameters
    assert names <= set(of_command)


def test_sparse_rows_are_bounded_as_dense_ones():
    X = np.maximum(np.random.default_rng(3).standard_normal((300, 40)) - 1.5, 0.0)
    bound = BlockBound(4, block_rows=60)
    dense, sparse = bound.from_block(X).lower_bound(), bound.from_block(csr_array(X)).lower_bound()
    # To the rounding of single precision: the multipliers differ in their last bits, both bounds are valid.
    assert sparse == pytest.approx(dense, rel=1e-4)


def test_blocks_no_larger_than_the_number_of_clusters_prove_nothing_and_break_nothing():
    X = np.random.default_rng(0).standard_normal((60, 3))
    for fraction in (0.5, 1.0):
        found = BlockBound(8, block_rows=6, fraction=fraction).from_block(X)
        assert found.lower_bound() == found.lower_bound(0.9) == 0.0
    weights = np.zeros(60)
    assert BlockBound(2, block_rows=20, fraction=0.5).from_block(X, sample_weight=weights).lower_bound(0.9) == 0.0


def test_least_mean_fails_for_no_more_subsets_than_it_says():
    """Every subset of every size of a few numbers, alike and very unequal ones: exhaustive."""
    rng = np.random.default_rng(0)
    failed = 0
    for spread in (0.1, 1.0, 4.0):
        numbers = np.exp(spread * rng.standard_normal(9))
        for size in range(1, 9):
            drawn = [np.log(numbers[list(those)]).sum() for those in combinations(range(9), size)]
            for failure in (0.5, 0.1, 0.02):
                share = np.mean([least_mean(total, size, failure) > numbers.mean() for total in drawn])
                assert share <= failure
                failed += share > 0
    assert failed > 5
    assert least_mean(-np.inf, 5, 0.1) == least_mean(0.0, 0, 0.1) == 0.0


@pytest.mark.slow
def test_blocks_that_are_not_touched_prove_less_and_nothing_wrong(digits):
    X = digits[0][:600]
    every = BlockBound(10, block_rows=30).from_block(X).lower_bound()
    with_spectra, without = (BlockBound(10, 30, 0.5, 1, spectral).from_block(X) for spectral in (True, False))
    assert with_spectra.record.n_solved == without.record.n_solved < without.record.n_blocks == 20
    assert 0 < without.lower_bound() < with_spectra.lower_bound() < every
    assert without.lower_bound() < without.lower_bound(0.9) < with_spectra.lower_bound(0.9) < every


def test_saved_merged_and_refused(tmp_path, digits):
    X, objective = digits[0][:400], digits[1]
    bound = BlockBound(10, block_rows=100)
    halves = bound.from_block(X[:200]).merge(bound.from_block(X[200:], start=200))
    sks.save(halves, tmp_path / "b.sks")
    again = sks.load(tmp_path / "b.sks")
    assert sks.certify(again, objective, 10).lower_bound == halves.lower_bound()
    with pytest.raises(Incompatible, match="10 clusters, the clustering has 9"):
        sks.certify(again, objective, 9)
    with pytest.raises(BadParameter, match="impossible"):
        sks.certify(again, 0.5 * halves.lower_bound(), 10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"confidence": 1.0}, "confidence"),
        ({"confidence": True}, "confidence"),
        ({"confidence": "0.9"}, "confidence"),
        ({"random_state": 1.5}, "random_state"),
        ({"objective": "much"}, "objective"),
        ({"objective": -1.0}, "objective"),
        ({"block_rows": 1}, "block_rows"),
        ({"fraction": 0.0}, "fraction"),
        ({"method": "spectral", "block_rows": 300}, "block_rows"),
    ],
)
def test_bad_parameters(options, message):
    with pytest.raises(BadParameter, match=message):
        sks.certify(np.eye(4), **({"objective": 1.0, "n_clusters": 2} | options))


def test_words_for_a_bound_of_nothing_and_for_one_that_is_reached():
    X = np.random.default_rng(0).standard_normal((60, 3))
    small = sks.certify(X, 150.0, 10, block_rows=10)
    assert small.lower_bound == 0.0
    assert "larger blocks may give one" in small.sentence()
    total = float(((X - X.mean(axis=0)) ** 2).sum())
    reached = sks.certify(X, total, 1)
    assert 1.0 < reached.factor < 1.0 + 1e-9
    assert "up to rounding the best possible one with 1 cluster" in reached.sentence()


@pytest.mark.parametrize("option", [{"block_rows": 300}, {"fraction": 0.5}, {"prepare": ["l2"]}, {"confidence": 0.9}])
def test_options_for_rows_are_not_ignored_beside_a_summary(option):
    with pytest.raises(BadParameter, match=next(iter(option))):
        sks.certify(sks.Moments().from_block(np.eye(4)), 3.0, 2, **option)


@pytest.mark.parametrize("n_columns", [2, 40, 784])
def test_no_partition_is_minutes_of_work(n_columns):
    """Narrow rows would have thousands of blocks in a partition of the usual size."""
    source = Source(open_matrix(np.zeros((1000, n_columns), dtype=np.float32)))
    for description in (BlockBound(5, block_rows=400), Bundle({"bound": BlockBound(5, block_rows=400)})):
        rows = block_certificate.block_partition_bytes(description, source) / (8 * n_columns)
        assert 8 * 400 <= rows <= 32 * 400


@pytest.mark.parametrize("n_columns", [2, 1000])
def test_rows_in_tall_chunks_are_certified(tmp_path, n_columns):
    """Partitions for the blocks are smaller than those of other passes, and chunks may be taller than four of them."""
    height = 5 * block_certificate.DEFAULT_PARTITION_BYTES // (8 * 1000)
    path = str(tmp_path / "tall.zarr")
    zarr.create_array(path, shape=(2 * height, n_columns), chunks=(height, n_columns), dtype="f8")
    source = Source(open_matrix(path, missing_chunks="fill"))
    size = block_certificate.block_partition_bytes(BlockBound(5, block_rows=40), source)
    partitions = source_partitions(source, size)
    assert 1 < partitions.read_amplification <= 4


@pytest.mark.parametrize("form", [np.asarray, csr_array])
def test_rows_and_labels_without_a_bound_are_named(form):
    X = np.random.default_rng(0).standard_normal((20, 3))
    with pytest.raises(BadBlock, match=r"shape \(19,\).* 20 rows"):
        BlockBound(2).from_block(form(X), np.zeros(19))
    for value, weights in ((1e200, None), (-1e160, None), (1e100, np.full(20, 1e150))):
        X[7, 1] = value
        with pytest.raises(BadBlock, match=r"row 107, column 1"):
            BlockBound(2).from_block(form(X), start=100, sample_weight=weights)
    X[7, 1] = np.nan
    with pytest.raises(NotFinite, match=r"row 107, column 1"):
        BlockBound(2).from_block(form(X), start=100)


@pytest.mark.parametrize("label", [0.5, np.nan, -0.5])
def test_a_label_that_is_no_whole_number_is_named(label):
    labels = np.arange(20) % 2.0
    labels[7] = label
    with pytest.raises(BadBlock, match=rf"row 7 has the label {label}"):
        sks.certify_labels(np.random.default_rng(0).standard_normal((20, 3)), labels, 2)
