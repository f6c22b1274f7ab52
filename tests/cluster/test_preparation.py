"""Preparations of counts are compared by counts set aside: against loops, in any partitions, on planted topics.

For Poisson counts ``first ~ B(x, 1/2)`` and ``x - first`` are independent, so the gain of rows of one composition is 0.
"""

import re

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from scipy.stats import binom, norm
from sklearn.metrics import normalized_mutual_info_score

import sketchselect as sks
from sketchselect.cluster.preparation import CANDIDATES, SHARES, Halves, Preparations, PreparationScore, tossed
from sketchselect.errors import BadBlock, BadParameter, EmptyInput
from sketchselect.summaries import RowSample

from .data import documents


def halves_of(X, weights=None):
    sample = RowSample(len(X)).from_block(X, sample_weight=weights)
    return Halves.of(sample, 3), sample.indices


@pytest.mark.parametrize("count", [0, 1, 5, 64, 65, 1000, 10**6, 10**6 + 1, 2**53])
def test_tosses_are_binomial(count):
    places = np.arange(20_000, dtype=np.uint64)
    heads = np.sort(tossed(np.full(places.size, float(count)), 7, places))
    assert heads[0] >= 0
    assert heads[-1] <= count
    assert (heads == np.rint(heads)).all()
    # Around 1e6 by the normal distribution: SciPy's quantiles of larger counts are not to be relied on.
    exact = binom.cdf(heads, count, 0.5) if count <= 1e6 else norm.cdf((heads + 0.5 - count / 2) / np.sqrt(count / 4))
    error = np.abs(np.searchsorted(heads, heads, side="right") / places.size - exact).max()
    # Of an empirical distribution function (Massart): less than once in a million.
    assert error <= np.sqrt(np.log(2e6) / (2 * places.size))


def test_halves_of_poisson_counts_are_independent():
    rng = np.random.default_rng(0)
    X = rng.poisson(8.0, (4000, 3))
    halves, _ = halves_of(X)
    first, second = halves.first.toarray(), halves.second.toarray()
    for j in range(3):
        assert abs(np.corrcoef(first[:, j], second[:, j])[0, 1]) < 5 / np.sqrt(4000)
    assert abs(first.mean() - 4.0) < 5 * np.sqrt(4.0 / first.size)


def test_halves_add_up_and_rows_without_two_counts_are_left_out():
    X = np.random.default_rng(1).poisson(0.05, (200, 40))
    halves, order = halves_of(X)
    total = (halves.first + halves.second).toarray()
    rows = {tuple(row) for row in X[order]}
    assert 0 < len(total) < len(X)
    assert all(tuple(row) in rows for row in total.astype(int))
    assert (halves.first.sum(axis=1) > 0).all()
    assert (halves.second.sum(axis=1) > 0).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_gains_are_those_of_loops(weighted):
    X, _ = documents(60, 3, 30)
    weights = np.random.default_rng(2).integers(1, 4, 60).astype(float) if weighted else None
    halves, _ = halves_of(X, weights)
    labels = np.random.default_rng(3).integers(4, size=len(halves.weights)).astype(np.int32)
    labels[5] = 4  # a cluster of one row says nothing of it
    np.testing.assert_allclose(halves.gains(labels), gains_by_loops(halves, labels), rtol=1e-9, atol=1e-12)


def gains_by_loops(halves, labels):
    """Return the gains by their definition, one row after the other."""
    first, second, w = halves.first.toarray(), halves.second.toarray(), halves.weights
    n, more = len(w), 0.5 * w.mean()

    def values(of):
        table = np.zeros((len(SHARES), n))
        for i in range(n):
            others = np.arange(n) != i
            common = w[others] @ first[others] + more
            common /= common.sum()
            mates = others & (of == of[i])
            sums = w[mates] @ first[mates]
            own = sums / sums.sum() if sums.sum() > 0 else np.zeros_like(sums)
            for s, share in enumerate(SHARES):
                table[s, i] = second[i] @ np.log((1 - share) * own / common + share) / second[i].sum()
        even = np.arange(n) % 2 == 0
        best_of_odd, best_of_even = ((table[:, some] @ w[some]).argmax() for some in (~even, even))
        return np.where(even, table[best_of_odd], table[best_of_even])

    return values(labels) - values(np.zeros(n, dtype=int))


def test_planted_topics_are_predicted_and_one_topic_is_not():
    X, labels = documents()
    halves, order = halves_of(X)
    truth = labels[order][: len(halves.weights)]
    assert len(truth) == len(halves.weights)
    right = halves.gains(truth.astype(np.int32))
    wrong = halves.gains(np.random.default_rng(0).permutation(truth).astype(np.int32))
    assert halves.weights @ right > 0.05 * halves.weights.sum()
    assert halves.weights @ wrong <= 1e-3 * halves.weights.sum()


@pytest.mark.share(3)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("form", [np.asarray, csr_array])
def test_the_choice_finds_topics_that_raw_counts_hide(form, seed):
    X, labels = documents(seed=seed)
    compared = sks.cluster.compare_preparations(form(X), 6, candidates=[[], *CANDIDATES], client="serial")
    agreement = {}
    for score in compared.scores:
        fit = sks.KMeans(6, random_state=0).fit(X, prepare=list(score.steps))
        agreement[score.name] = normalized_mutual_info_score(labels, fit.labels_)
    assert agreement[compared.best.name] >= max(agreement.values()) - 0.1
    assert agreement[compared.best.name] >= agreement["no step"] + 0.2


def test_partitions_form_and_engine_change_nothing():
    X, _ = documents(300)
    whole = sks.cluster.compare_preparations(X, 6, client="serial")
    assert whole == sks.cluster.compare_preparations(X, 6, client="threads")
    assert whole == sks.cluster.compare_preparations(da.from_array(X, chunks=(37, -1)), 6, client="serial")
    sparse = sks.cluster.compare_preparations(csr_array(X.astype(np.uint16)), 6, client="serial")
    for a, b in zip(whole.scores, sparse.scores, strict=True):
        assert a.steps == b.steps
        assert a.gain == pytest.approx(b.gain, abs=1e-9)


def test_rows_of_one_composition_have_no_clusters():
    rng = np.random.default_rng(0)
    X = rng.multinomial(200, rng.dirichlet(np.ones(50)), size=400)
    with pytest.warns(UserWarning, match="show no clusters"):
        compared = sks.cluster.compare_preparations(X, 5, client="serial")
    assert compared.best.gain < 1e-3


def test_one_cluster_gains_nothing():
    compared = sks.cluster.compare_preparations
    with pytest.warns(UserWarning, match="show no clusters"):
        assert [score.gain for score in compared(documents(100)[0], 1, client="serial").scores] == [0.0] * 4


@pytest.mark.parametrize("bad", [0.5, -1.0, 2.0**54])
def test_what_is_no_count_is_named(bad):
    X = documents(50)[0].astype(float)
    X[17, 3] = bad  # read by every pass, in the sample or not
    with pytest.raises(BadBlock, match=rf"row 17, column 3: {re.escape(f'{bad:g}')} is not a count"):
        sks.cluster.compare_preparations(X, 3, sample_rows=20, client="serial")
    frame = pd.DataFrame(X, columns=[f"word {j}" for j in range(X.shape[1])])
    with pytest.raises(BadBlock, match="row 17, column 'word 3'"):
        sks.cluster.compare_preparations(frame, 3, client="serial")


def test_what_cannot_be_compared_is_refused():
    X = documents(50)[0]
    with pytest.raises(BadParameter, match="candidates"):
        sks.cluster.compare_preparations(X, 3, candidates=[], client="serial")
    with pytest.raises(BadParameter, match="candidates must be a list of lists"):
        sks.cluster.compare_preparations(X, 3, candidates=["l2"], client="serial")
    with pytest.raises(BadParameter, match="50 sampled rows"):
        sks.cluster.compare_preparations(X, 51, client="serial")
    with pytest.raises(EmptyInput, match="two counts or more"):
        sks.cluster.compare_preparations(np.eye(5), 2, client="serial")


def test_a_preparation_that_makes_rows_dense_has_to_be_clearly_better():
    def compared(gain, error):
        scores = PreparationScore(("tf-idf",), gain, error), PreparationScore(("pearson-residuals",), 0.3, 0.0, True)
        return Preparations(scores, 5, 100, 100)

    assert compared(0.2, 0.01).best.steps == ("pearson-residuals",)
    assert compared(0.29, 0.01).best.steps == ("tf-idf",)
    assert "makes rows dense" in compared(0.29, 0.01).sentence()


def test_wide_sparse_rows_are_not_made_dense():
    from sketchselect.cluster.preparation import costliest, default_candidates
    from sketchselect.execution.api import open_source

    wide = open_source(csr_array((200_000, 10_000)), None, None, ())
    assert all(step.keeps_sparsity for c in default_candidates(wide) for step in c)
    assert any(not step.is_fitted for step in costliest(wide))
    narrow = open_source(csr_array((2000, 1000)), None, None, ())
    assert default_candidates(narrow) == CANDIDATES
    assert costliest(narrow)[0].name == "pearson-residuals"
