"""Selection by knockoffs: rows, merged files and streams; what is proved is said, what is not is refused."""

import functools
import tracemalloc
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sketchselect as sks
from sketchselect.errors import BadParameter, Incompatible
from sketchselect.execution import Source
from sketchselect.readers import open_matrix
from sketchselect.selectors import KnockoffSelector, MRMRSelector
from sketchselect.summaries import Moments

N_TRUE = 12


def problem(seed: int = 0, n: int = 300, p: int = 40, strength: float = 0.6) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) @ (np.eye(p) + 0.3 * np.eye(p, k=1)) * np.geomspace(1e-3, 1e3, p) + 50.0
    varied = (X - X.mean(axis=0)) / X.std(axis=0)
    return X, strength * varied[:, :N_TRUE].sum(axis=1) + rng.standard_normal(n)


@pytest.mark.parametrize("parameters", [{}, {"knockoffs": "model"}, {"draws": 5, "fdr": 0.2}, {"statistic": "ridge"}])
def test_strong_columns_are_selected_and_the_sentence_says_what_is_proved(parameters: dict[str, Any]) -> None:
    X, y = problem()
    selector = KnockoffSelector(**{"fdr": 0.1, **parameters}).fit(X, y)
    true = np.count_nonzero(selector.support_ < N_TRUE)
    assert true >= N_TRUE - 1
    np.testing.assert_array_equal(selector.support_, np.flatnonzero(selector.statistics_ >= selector.threshold_))
    sentence = selector.selection_.diagnostics["choice"]
    assert f"{selector.support_.size} columns at most {selector.fdr * 100:g} %" in sentence
    n_draws = parameters.get("draws", 1)
    drawn = f"drawn at random ({n_draws} draw{'s' * (n_draws > 1)}, random_state = 0), and another seed may select "
    drawn += "other columns" if n_draws == 1 else "a few others"
    assert drawn in sentence
    assert ("draws = 25 or more make the selection stable" in sentence) == (n_draws == 1)
    assert ("Gaussian errors" in sentence) == (selector.selection_.parameters["knockoffs"] == "fixed")


def test_more_draws_agree_more_between_seeds() -> None:
    X, y = problem(strength=0.2)
    moments = sks.summarize(X, Moments(), y=y)

    def agreement(draws: int) -> float:
        sets = [
            set(KnockoffSelector(0.2, draws=draws, random_state=seed).fit_summary(moments).support_.tolist())
            for seed in range(4)
        ]
        return float(np.mean([len(a & b) / max(len(a | b), 1) for i, a in enumerate(sets) for b in sets[:i]]))

    assert agreement(1) < agreement(25)


def test_merged_files_of_sites_and_streams_select_what_all_rows_do(tmp_path: Any) -> None:
    X, y = problem()
    whole = KnockoffSelector().fit(X, y)
    paths = []
    for i, part in enumerate(np.array_split(np.arange(len(X)), 5)):
        paths.append(tmp_path / f"{i}.sks")
        sks.save(sks.summarize(X[part], Moments(), y=y[part]), paths[-1])
    merged = KnockoffSelector().fit_summary(functools.reduce(lambda a, b: a.merge(b), map(sks.load, paths)))
    stream = KnockoffSelector()
    for part in np.array_split(np.arange(len(X)), 3):
        stream.partial_fit(X[part], y[part])
    for other in (merged, stream):
        np.testing.assert_array_equal(other.support_, whole.support_)
        np.testing.assert_allclose(other.statistics_, whole.statistics_, rtol=1e-6, atol=1e-9)


def test_weights_are_inverse_variances_and_each_row_of_positive_weight_is_one_row() -> None:
    X, y = problem(n=110)
    rng = np.random.default_rng(1)
    w = np.exp(rng.standard_normal(110))
    plain = KnockoffSelector().fit(X, y)
    assert plain.selection_.parameters["knockoffs"] == "fixed"
    # Fewer effective rows than 2 p + 1
    assert sks.summarize(X, Moments(), y=y, sample_weight=w).n_effective < 81
    for weights in (w, np.full(110, 3.0)):
        fixed = KnockoffSelector(knockoffs="fixed").fit(X, y, sample_weight=weights)
        auto = KnockoffSelector().fit(X, y, sample_weight=weights)
        np.testing.assert_array_equal(auto.statistics_, fixed.statistics_)
        said = "inverse to the weights of the rows;" if weights is w else "Gaussian errors of one variance;"
        assert said in fixed.selection_.diagnostics["choice"]
    np.testing.assert_array_equal(auto.support_, plain.support_)
    without = np.arange(110) >= 10
    zeros = KnockoffSelector().fit(X, y, sample_weight=np.where(without, w, 0.0))
    fewer = KnockoffSelector().fit(X[without], y[without], sample_weight=w[without])
    np.testing.assert_allclose(zeros.statistics_, fewer.statistics_, rtol=1e-6, atol=1e-9)
    with pytest.raises(BadParameter, match=r"at least 2 n_features \+ 1 = 81 rows, got 80 of positive weight; take"):
        KnockoffSelector(knockoffs="fixed").fit(X, y, sample_weight=np.where(np.arange(110) >= 30, w, 0.0))
    with pytest.raises(BadParameter, match=r"rows, got 80; take"):
        KnockoffSelector(knockoffs="fixed").fit(X[:80], y[:80], sample_weight=w[:80])


def test_units_of_columns_and_target_and_constant_columns_change_nothing() -> None:
    X, y = problem()
    whole = KnockoffSelector().fit(X, y)
    scaled = KnockoffSelector().fit(np.column_stack([X * 1e3 - 7.0, np.full(len(X), 2.0)]), 5.0 * y + 1.0)
    np.testing.assert_array_equal(scaled.support_, whole.support_)
    np.testing.assert_allclose(scaled.statistics_[:-1], 5.0 * whole.statistics_, rtol=1e-6, atol=1e-8)
    assert scaled.statistics_[-1] == 0


def test_classes_and_wide_rows_get_model_knockoffs() -> None:
    X, y = problem(strength=1.0)
    labels = np.digitize(y, np.quantile(y, [0.4, 0.7]))
    for target in (labels, np.where(labels == 0, "low", "high")):
        selector = KnockoffSelector(fdr=0.2).fit(X, target)
        assert selector.selection_.parameters["knockoffs"] == "model"
        assert np.count_nonzero(selector.support_ < N_TRUE) >= N_TRUE - 3
    assert KnockoffSelector().fit(X[:60], y[:60]).selection_.parameters["knockoffs"] == "model"
    assert KnockoffSelector(fdr=0.5).fit(X[:30], y[:30]).statistics_.shape == (40,)


def test_copies_are_named_and_not_selected() -> None:
    X, y = problem()
    X[:, 20] = 3.0 * X[:, 0]
    with pytest.warns(UserWarning, match="columns 0, 20"):
        selector = KnockoffSelector().fit(X, y)
    assert not {0, 20} & set(selector.support_.tolist())
    assert set(range(1, N_TRUE)) <= set(selector.support_.tolist())


def test_dependent_columns_have_their_names_and_levels_their_column() -> None:
    X, y = problem()
    frame = pd.DataFrame(X, columns=[f"gene {j}" for j in range(X.shape[1])])
    with pytest.warns(UserWarning, match="columns 'gene 0', 'twin'; leave out those that repeat others"):
        KnockoffSelector().fit(frame.assign(twin=3.0 * X[:, 0]), y)
    table = frame.assign(ward=np.array(["east", "north", "south"])[np.arange(len(X)) % 3])
    told = "columns 'ward=east', 'ward=north', 'ward=south': the levels of 'ward', which add up to 1 in every row"
    with pytest.warns(UserWarning, match=f"{told}; leave it out, or one of its levels, by .*one-hot.drop=first."):
        KnockoffSelector().fit(table, y, prepare=["one-hot"])
    two = table.assign(bed=np.array(["low", "high"])[np.arange(len(X)) % 2])
    with pytest.warns(UserWarning, match="the levels of 'ward', 'bed', .*; leave each out, or one of its levels"):
        KnockoffSelector().fit(two, y, prepare=["one-hot"])
    # As the message advises, nothing is dependent.
    KnockoffSelector().fit(pd.get_dummies(table, columns=["ward"], drop_first=True), y)
    KnockoffSelector().fit(two, y, prepare=["one-hot(drop=first)"])
    with pytest.warns(UserWarning, match="'ward=north', .*; leave out those that repeat others"):
        KnockoffSelector().fit(two.assign(copy=two.ward), y, prepare=["one-hot(drop=first)"])


def test_a_level_of_a_text_column_is_selected_once_one_of_them_is_left_out() -> None:
    X, y = problem()
    ward = np.array(["east", "north", "south"])[np.arange(len(X)) % 3]
    table = pd.DataFrame(X, columns=[f"gene {j}" for j in range(X.shape[1])]).assign(ward=ward)
    y = y + 20.0 * (ward == "south")
    selector = KnockoffSelector(fdr=0.3).fit(table, y, prepare=["one-hot(drop=first)"])
    assert "ward=south" in selector.get_feature_names_out()


def test_what_the_proof_does_not_cover_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sketchselect.linalg.comoments._FEW_COLUMNS", 1)  # products in float32 from the first column on
    X, y = problem()
    with pytest.raises(BadParameter, match="81 rows, got 80"):
        KnockoffSelector(knockoffs="fixed").fit(X[:80], y[:80])
    assert KnockoffSelector(knockoffs="fixed").fit(X[:81], y[:81]).selection_.parameters["knockoffs"] == "fixed"
    with pytest.raises(BadParameter, match="classes"):
        KnockoffSelector(knockoffs="fixed").fit(X, y > 0)
    with pytest.raises(Incompatible, match="float32"):
        KnockoffSelector().fit_summary(sks.summarize(X.astype(np.float32), Moments(), y=y))
    for selector in (KnockoffSelector(), MRMRSelector(3)):
        with pytest.raises(Incompatible, match="missing"):
            selector.fit_summary(sks.summarize(X, Moments(missing="pairwise"), y=y))
        with pytest.raises(Incompatible, match="no target"):
            selector.fit_summary(sks.summarize(X, Moments()))
        with pytest.raises(Incompatible, match="2 targets"):
            selector.fit_summary(sks.summarize(X, Moments(), y=np.column_stack([y, y])))


def test_too_few_columns_for_any_selection_are_said() -> None:
    X, y = problem(p=15)
    with pytest.warns(UserWarning, match="at least 20 columns"):
        selector = KnockoffSelector(fdr=0.05).fit(X, y)
    assert selector.support_.size == 0
    assert selector.threshold_ == np.inf
    assert "at least 20 columns" in selector.selection_.diagnostics["choice"]


@pytest.mark.share(2)
@pytest.mark.parametrize("parameters", [{}, {"draws": 3}, {"knockoffs": "model"}, {"statistic": "ridge"}])
def test_selecting_takes_no_more_memory_than_is_said(parameters: dict[str, Any]) -> None:
    X, y = problem(n=900, p=300)
    moments = Moments().from_block(X, y)
    selector = KnockoffSelector(**parameters)
    said = selector.selecting_nbytes(Source(open_matrix(X)))
    tracemalloc.start()
    try:
        selector.fit_summary(moments)
        assert tracemalloc.get_traced_memory()[1] <= said
    finally:
        tracemalloc.stop()
