"""Contingency tables: scikit-learn's measures, exact counts in any partition and order, and refusals."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix

from sketchselect.errors import BadBlock, BadParameter, Incompatible
from sketchselect.linalg.agreement import adjusted_rand_index, best_matching
from sketchselect.summaries import Contingency


def groupings():
    rng = np.random.default_rng(4)
    yield rng.integers(0, 5, 400), rng.integers(0, 7, 400)
    truth = rng.integers(0, 6, 300)
    yield truth, np.where(rng.random(300) < 0.2, rng.integers(0, 4, 300), truth % 4)
    yield np.array(["stem", "basal", "stem", "immune"]), np.array([2, 0, 2, 2])
    yield np.zeros(9, int), np.zeros(9, int)
    yield np.zeros(9, int), np.arange(9)
    yield np.arange(9), np.arange(9)[::-1]
    yield np.array([-1, 1, 1, -1, 1]), np.array([7, 9, 9, 7, 7])


@pytest.mark.parametrize(("first", "second"), list(groupings()))
def test_measures_are_those_of_scikit_learn(first, second):
    table = Contingency.of(first, second)
    assert (table.counts == contingency_matrix(first, second)).all()
    assert table.nmi == pytest.approx(normalized_mutual_info_score(first, second), abs=1e-12)
    assert table.ari == pytest.approx(adjusted_rand_score(first, second), abs=1e-12)
    assert table.purity == pytest.approx(
        sum(np.bincount(np.unique(first, return_inverse=True)[1][second == c]).max() for c in np.unique(second))
        / len(first)
    )


def test_accuracy_is_the_best_of_all_matchings():
    rng = np.random.default_rng(0)
    for shape in ((4, 4), (3, 5), (5, 2)):
        counts = rng.integers(0, 30, shape)
        wide = counts if shape[0] <= shape[1] else counts.T
        best = max(
            sum(wide[i, j] for i, j in enumerate(columns))
            for columns in itertools.permutations(range(wide.shape[1]), wide.shape[0])
        )
        table = Contingency(np.arange(shape[0]), np.arange(shape[1]), counts)
        assert table.accuracy == best / counts.sum()
        first, second = best_matching(counts)
        assert len(set(first.tolist())) == len(set(second.tolist())) == min(shape)


def test_any_partition_in_any_order_gives_the_same_table():
    rng = np.random.default_rng(1)
    first, second = rng.choice(["a", "b", "long name", "d"], 500), rng.integers(0, 9, 500)
    second[:100] = 20  # a label that some parts do not have
    whole = Contingency.of(first, second)
    for seed in range(5):
        cuts = np.sort(np.random.default_rng(seed).integers(0, 501, 7))
        parts = [Contingency.of(f, s) for f, s in zip(np.split(first, cuts), np.split(second, cuts), strict=True)]
        while len(parts) > 1:
            i, j = np.random.default_rng(seed + len(parts)).permutation(len(parts))[:2]
            merged = parts[i].merge(parts[j])
            parts = [merged, *(p for at, p in enumerate(parts) if at not in (i, j))]
        (result,) = parts
        assert result.classes.tolist() == whole.classes.tolist()
        assert result.clusters.tolist() == whole.clusters.tolist()
        assert (result.counts == whole.counts).all()
    empty = Contingency.of([], [])
    assert whole.merge(empty) is whole
    assert empty.merge(whole) is whole
    assert (empty.n_rows, empty.accuracy, empty.purity) == (0, 0.0, 0.0)


def test_billions_of_rows_do_not_overflow():
    """Pairs of rows are counted exactly: the oracle is rational arithmetic."""
    counts = np.array([[3_000_000_000, 17], [5, 4_000_000_001]], dtype=np.int64)
    n = Fraction(int(counts.sum()))
    both = sum(Fraction(int(c)) * (int(c) - 1) / 2 for c in counts.ravel())
    a, b = (sum(Fraction(int(c)) * (int(c) - 1) / 2 for c in counts.sum(axis=axis)) for axis in (0, 1))
    expected = a * b / (n * (n - 1) / 2)
    assert adjusted_rand_index(counts) == float((both - expected) / ((a + b) / 2 - expected))


def test_groups_without_rows_change_nothing():
    counts = np.array([[5, 0, 2], [0, 0, 0], [1, 0, 7]])
    table = Contingency(np.arange(3), np.arange(3), counts)
    full = Contingency(np.arange(2), np.arange(2), counts[[0, 2]][:, [0, 2]])
    assert (table.nmi, table.ari, table.accuracy, table.purity) == (full.nmi, full.ari, full.accuracy, full.purity)


def test_what_is_no_table_is_refused():
    with pytest.raises(BadBlock, match=r"shapes \(3,\) and \(2,\)"):
        Contingency.of([1, 2, 3], [1, 2])
    with pytest.raises(BadBlock, match="row 1 is NaN"):
        Contingency.of([0.0, np.nan], [1, 2])
    with pytest.raises(Incompatible, match="text in one"):
        Contingency.of(["a"], [0]).merge(Contingency.of([1], [0]))
    many = np.arange(5000)
    with pytest.raises(BadParameter, match="5000 labels against 5000"):
        Contingency.of(many, many)
    halves = [Contingency.of(part, part) for part in np.split(many, 2)]
    with pytest.raises(BadParameter, match="5000 labels against 5000"):
        halves[0].merge(halves[1])
