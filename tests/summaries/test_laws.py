"""Every summary obeys the laws on every nasty matrix. A new summary adds one entry to LAWS."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array
from tests.summaries.oracles import (
    check_batches,
    check_bound,
    check_bundle,
    check_centroids,
    check_columns,
    check_decayed,
    check_decayed_directions,
    check_directions,
    check_folds,
    check_groups,
    check_histogram,
    check_labels,
    check_levels,
    check_likelihood,
    check_moments,
    check_pairs,
    check_panel,
    check_products,
    check_row_sample,
    check_sample,
    check_scheduled,
    check_scores,
    check_step_statistics,
    check_top,
    some_targets,
    three_labels,
    with_holes,
)

from sketchselect.summaries import (
    KINDS,
    BatchDirections,
    BlockBound,
    Bundle,
    CentroidSums,
    ColumnStats,
    ComomentPanel,
    DecayedDirections,
    DecayedMoments,
    Folds,
    FrequentDirections,
    Groups,
    LevelCounts,
    LeverageSample,
    LeverageScores,
    LikelihoodSums,
    Moments,
    RowSample,
    StepStatistics,
    TargetHistogram,
    TopValues,
    moment_forms,
)
from sketchselect.testing.laws import SummaryLaws
from sketchselect.testing.nasty import nasty_matrices, nasty_sparse_matrices

NASTY = nasty_matrices()
SPARSE = nasty_sparse_matrices()
NARROW_SPARSE = {name: X[:, :8] for name, X in SPARSE.items()}
NARROW = {name: X for name, X in NASTY.items() if X.shape[1] <= 12}


WIDE_40 = {name: X for name, X in nasty_matrices().items() if X.shape[1] == 40}
FACTOR_40 = np.linalg.cholesky(sum(X.T @ X for X in WIDE_40.values()) + np.eye(40))


# Two softmax models of one column, the second of which leaves a fold out and has a Hessian.
MODELS = [[0.1, -1, 0], [0.1, 1, 1]]
TERMS = [[0, -1, 0, 0.3], [0, 0, 1, 1e-3], [0, -1, 2, -0.1], [1, -1, 0, 0.2], [1, 0, 0, -1e-3], [1, -1, 1, 0.0]]

# Each of hundreds of blocks is an optimisation: some matrices will do.
SOME = {name: NASTY[name] for name in list(NASTY)[::4]}
LAWS = {
    "frequent-directions size 8": SummaryLaws(FrequentDirections(8), check_directions, other=FrequentDirections(9)),
    "frequent-directions size 2": SummaryLaws(FrequentDirections(2), check_directions, other=FrequentDirections(3)),
    "frequent-directions size 20": SummaryLaws(FrequentDirections(20), check_directions, other=Moments()),
    "moments": SummaryLaws(Moments(), check_moments, targets=some_targets, other=ColumnStats()),
    "moments qr": SummaryLaws(Moments(method="qr"), check_moments, targets=some_targets, other=Moments()),
    "moments classes": SummaryLaws(
        Moments(classes=[0, 1, 2]), check_labels, targets=three_labels, other=Moments(classes=[0, 2, 1])
    ),
    "moments squares": SummaryLaws(
        Moments(degree=2, products=False),
        check_products,
        targets=some_targets,
        other=Moments(degree=2),
        matrices=NARROW,
    ),
    "moments degree 2": SummaryLaws(
        Moments(degree=2), check_products, targets=some_targets, other=Moments(), matrices=NARROW, sparse=NARROW_SPARSE
    ),
    "moments pairwise": SummaryLaws(
        Moments(missing="pairwise"),
        check_pairs,
        targets=lambda X: some_targets(np.nan_to_num(X)),
        other=ColumnStats(),
        matrices={name: with_holes(X) for name, X in NASTY.items()},
        sparse={"some missing": csr_array(with_holes(SPARSE["counts"].toarray()[:, :8]))},
    ),
    "decayed-moments": SummaryLaws(
        DecayedMoments(half_life=20), check_decayed, targets=some_targets, other=DecayedMoments(half_life=21)
    ),
    "decayed-directions size 8": SummaryLaws(
        DecayedDirections(8, half_life=20), check_decayed_directions, other=DecayedDirections(8, half_life=21)
    ),
    "decayed-directions size 2": SummaryLaws(
        DecayedDirections(2, half_life=20), check_decayed_directions, other=FrequentDirections(2)
    ),
    "decayed-moments rates": SummaryLaws(
        DecayedMoments(rates=[1, 0.5, 0.4, 0.1]),
        check_scheduled,
        targets=some_targets,
        other=DecayedMoments(rates=[1, 0.5, 0.4, 0.2]),
        matrices=SOME,
        sparse=NARROW_SPARSE,
    ),
    "batch-directions size 8": SummaryLaws(BatchDirections(8), check_batches, other=FrequentDirections(8)),
    "batch-directions size 2": SummaryLaws(BatchDirections(2), check_batches, other=BatchDirections(3)),
    "folds": SummaryLaws(
        Folds(Moments(), n_folds=3), check_folds, targets=some_targets, other=Folds(Moments(), n_folds=3, seed=1)
    ),
    "comoment-panel": SummaryLaws(ComomentPanel(1, 4), check_panel, targets=some_targets, other=ComomentPanel(2, 4)),
    "column-stats": SummaryLaws(ColumnStats(), check_columns, other=FrequentDirections(8)),
    "groups": SummaryLaws(
        Groups(ColumnStats(), [0, 1, 2]), check_groups, targets=three_labels, other=Groups(ColumnStats(), [0, 2, 1])
    ),
    "level-counts": SummaryLaws(LevelCounts(30), check_levels, other=LevelCounts(31)),
    "top-values": SummaryLaws(TopValues(7), check_top, other=TopValues(8)),
    "target-histogram": SummaryLaws(
        TargetHistogram(range(5), classes=[0, 1, 2]),
        check_histogram,
        targets=three_labels,
        other=TargetHistogram(range(5), classes=[0, 2, 1]),
    ),
    "target-histogram of numbers": SummaryLaws(
        TargetHistogram.of_sample(np.concatenate(list(WIDE_40.values())), 7, target_edges=[-1.0, 0.0, 3.0]),
        check_histogram,
        targets=lambda X: some_targets(X)[:, 0],
        other=TargetHistogram(range(7), target_edges=[-1.0, 0.0, 3.0]),
        matrices=WIDE_40,
    ),
    "centroid-sums": SummaryLaws(
        CentroidSums(n_clusters=3), check_centroids, targets=three_labels, other=CentroidSums(n_clusters=4)
    ),
    "likelihood-sums": SummaryLaws(
        LikelihoodSums("multinomial", MODELS, TERMS, classes=[0, 1, 2], n_folds=2, seed=1),
        check_likelihood,
        targets=three_labels,
        other=LikelihoodSums("multinomial", MODELS, TERMS, classes=[0, 1, 2], n_folds=2, seed=2),
    ),
    "leverage-sample": SummaryLaws(
        LeverageSample(sampling_rate="paper"), check_sample, other=LeverageSample(sampling_rate="paper", seed=1)
    ),
    "leverage-scores": SummaryLaws(
        LeverageScores(FACTOR_40, 1.0), check_scores, other=LeverageScores(2 * FACTOR_40, 1.0), matrices=WIDE_40
    ),
    "row-sample uniform": SummaryLaws(RowSample(9, seed=3), check_row_sample, other=RowSample(9, seed=4)),
    "row-sample": SummaryLaws(
        RowSample(12, center=np.linspace(-1, 1, 40), spread=20.0),
        check_row_sample,
        other=RowSample(12, center=np.linspace(-1, 1, 40), spread=21.0),
        matrices=WIDE_40,
    ),
    "row-sample with classes": SummaryLaws(
        RowSample(9, seed=3, classes=[2, 0, 1]),
        check_row_sample,
        targets=three_labels,
        other=RowSample(9, seed=3, classes=[0, 1, 2]),
    ),
    "block-bound": SummaryLaws(
        BlockBound(n_clusters=3, block_rows=20),
        check_bound,
        other=BlockBound(n_clusters=2),
        matrices=SOME,
        sparse={"counts": SPARSE["counts"][:60], "one row": SPARSE["one row"]},
    ),
    "step-statistics": SummaryLaws(
        StepStatistics({"0 tf-idf": ColumnStats(), "2 fourier": RowSample(9, seed=3)}),
        check_step_statistics,
        other=StepStatistics({"0 scale": ColumnStats(), "2 fourier": RowSample(9, seed=3)}),
    ),
    "bundle": SummaryLaws(
        Bundle(stats=ColumnStats(), moments=Moments()),
        check_bundle,
        targets=some_targets,
        other=Bundle(stats=ColumnStats()),
    ),
}


@pytest.mark.share(12, 260)
@pytest.mark.parametrize(("law", "matrix"), [(law, name) for law, laws in LAWS.items() for name in laws.matrices])
def test_laws(law, matrix):
    LAWS[law].verify(matrix)


@pytest.mark.share(16, 294)
@pytest.mark.parametrize(("law", "matrix"), [(law, name) for law, laws in LAWS.items() for name in laws.sparse])
def test_sparse_laws(law, matrix):
    LAWS[law].verify_sparse(matrix)


@pytest.mark.slow
@pytest.mark.parametrize("law", ["moments", "decayed-moments", "folds"])
def test_laws_of_few_rows_of_many_columns(law, monkeypatch):
    monkeypatch.setattr(moment_forms, "_WIDE", 2)
    for name in LAWS[law].matrices:
        LAWS[law].verify(name)
    for name in LAWS[law].sparse:
        LAWS[law].verify_sparse(name)


def test_every_registered_kind_is_under_the_laws():
    assert {laws.description.kind for laws in LAWS.values()} == set(KINDS)


class LosesRows(Moments):
    """A wrong summary: its merge forgets the spread between the two means."""

    kind = "moments"

    def _combine(self, left, right):
        good = super()._combine(left, right)
        return replace(good, comoment=left.comoment + right.comoment)


def test_the_laws_can_fail():
    with pytest.raises(AssertionError):
        SummaryLaws(LosesRows(), check_moments, targets=some_targets).verify("rank 3")
