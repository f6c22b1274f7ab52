"""A sketch that forgets, against the Gram matrix of rows whose weights are written out; and selectors on it."""

from functools import partial

import numpy as np
import pytest
from tests.passing import drifting
from tests.summaries.oracles import check_directions

import sketchselect as sks
from sketchselect.errors import BadParameter, Incompatible
from sketchselect.summaries import Bundle, DecayedDirections, DecayedMoments, FrequentDirections


def rows(n=400, p=60, seed=0):
    """Rows whose directions change half way, far from the origin."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) * np.linspace(3, 0.2, p)
    X[n // 2 :, ::-1] = X[n // 2 :].copy()
    return 4 + X, rng.random(n) * 3


@pytest.mark.parametrize("description", [DecayedDirections(3, half_life=30), DecayedDirections(3, decay=0.93)])
@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_the_guarantee_holds_against_weights_written_out_at_any_batch_size(description, step):
    X, w = rows()
    g = 0.93 if description.decay else 2.0 ** (-1 / 30)
    stream = description
    for i in range(0, len(X), step):
        stream = stream.update(X[i : i + step], sample_weight=w[i : i + step])
    assert stream.end == 400
    assert stream.shrinkage > 0
    check_directions(stream, X, None, w * g ** np.arange(400)[::-1])


def test_rows_are_weighted_by_their_own_index_across_gaps():
    X, w = rows()
    kept = np.flatnonzero(np.random.default_rng(2).random(400) < 0.4)
    kept = np.r_[kept[kept < 100], kept[kept > 300]]
    d = DecayedDirections(4, decay=0.98)
    early, late = kept[kept < 60], kept[kept >= 60]
    merged = d.from_block(X[early], start=early, sample_weight=w[early]).merge(
        d.from_block(X[late], start=late, sample_weight=w[late])
    )
    assert (merged.end, merged.n_rows) == (kept[-1] + 1, len(kept))
    check_directions(merged, X[kept], None, w[kept] * 0.98 ** (kept[-1] - kept))


def test_what_was_lost_fades_too():
    X, _ = rows()
    d = DecayedDirections(3, half_life=10)
    old = d.from_block(X[:200])
    assert old.shrinkage > 0
    # A row at the mean adds nothing: ten half-lives later all that is left is 2^-10 of what there was.
    later = old.update(old.mean[None, :], start=299)
    assert later.shrinkage == pytest.approx(old.shrinkage * 2.0**-10, rel=1e-9)
    assert later.centered_squared_norm == pytest.approx(old.centered_squared_norm * 2.0**-10, rel=1e-9)
    recent = d.from_block(X[200:], start=10**12)
    merged = old.merge(recent)
    assert np.allclose(merged.sketch.T @ merged.sketch, recent.sketch.T @ recent.sketch, rtol=1e-12)
    assert merged.shrinkage == pytest.approx(recent.shrinkage, rel=1e-12)


def test_without_decay_it_is_the_plain_sketch():
    X, w = rows()
    plain = FrequentDirections(4).from_block(X, sample_weight=w)
    result = DecayedDirections(4, decay=1).from_block(X, sample_weight=w)
    assert np.array_equal(result.sketch, plain.sketch)
    assert result.shrinkage == plain.shrinkage
    with pytest.raises(Incompatible, match="different kinds"):
        plain.merge(result)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "either half_life"),
        ({"half_life": 3, "decay": 0.5}, "either half_life"),
        ({"half_life": 0}, "half_life must be a number above 0, got 0"),
        ({"half_life": -2.0}, "got -2.0"),
        ({"half_life": np.inf}, "half_life"),
        ({"half_life": "long"}, "half_life must be a number"),
        ({"decay": 0}, "decay must be a number above 0 and at most 1, got 0"),
        ({"decay": 1.5}, "got 1.5"),
        ({"decay": np.nan}, "decay"),
        ({"decay": True}, "decay must be a number"),
    ],
)
@pytest.mark.parametrize("make", [DecayedMoments, partial(DecayedDirections, 4)], ids=["moments", "directions"])
def test_bad_parameters(make, arguments, named):
    with pytest.raises(BadParameter, match=named) as caught:
        make(**arguments)
    assert "\n" not in str(caught.value)


# --- selectors ---------------------------------------------------------------------------------------------------


def makers():
    common = {"n_features_to_select": 2, "n_components": 2, "sketch_size": 4, "normalize": None}
    return [
        lambda **kw: sks.SketchedRidgeSelector(**common, **kw),
        lambda **kw: sks.GreedySelector(**common, **kw),
        lambda **kw: sks.PivotedQRSelector(**common, **kw),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("make", makers(), ids=["sketched-ridge", "greedy", "pivoted-qr"])
@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_a_forgetting_selector_follows_the_stream_and_one_that_does_not_stays(make, step):
    X = drifting(300 if step == 1 else 600, p=50)
    forgetting, staying = make(half_life=20.0), make()
    for i in range(0, len(X), step):
        forgetting.partial_fit(X[i : i + step])
        if step > 1:
            staying.partial_fit(X[i : i + step])
    assert forgetting.support_.tolist() == [30, 44]
    assert forgetting.selection_.parameters["half_life"] == 20.0
    if step > 1:
        assert staying.support_.tolist() == [2, 5]
    assert make(half_life=20.0).fit(X).support_.tolist() == [30, 44]


def test_selectors_and_summaries_that_forget_differently_do_not_go_together():
    X = drifting(p=50)
    both = Bundle(plain=FrequentDirections(20), fading=DecayedDirections(20, half_life=20)).from_block(X)
    assert sks.SketchedRidgeSelector(2, 2, half_life=20, normalize=None).fit_summary(both).support_.tolist() == [30, 44]
    assert sks.SketchedRidgeSelector(2, 2, normalize=None).fit_summary(both).support_.tolist() == [2, 5]
    assert sks.GreedySelector(2, 2, normalize=None).fit_summary(both["fading"]).support_.tolist() == [30, 44]
    with pytest.raises(Incompatible, match="have half_life 20, but half_life is 30"):
        sks.SketchedRidgeSelector(2, 2, half_life=30).fit_summary(both)
    with pytest.raises(Incompatible, match="decayed-directions"):
        sks.SketchedRidgeSelector(2, 2, half_life=30).fit_summary(both["plain"])
    seen = sks.PivotedQRSelector(2, 2).fit(X).set_params(half_life=5.0)
    with pytest.raises(Incompatible, match="have no half_life, but half_life is 5"):
        seen.partial_fit(X)
