"""RowSample: what its weights estimate, sparse rows, and what it refuses; the laws compare it with brute force."""

import numpy as np
import pytest

from sketchselect.errors import BadBlock, BadParameter, Incompatible, NotFinite
from sketchselect.summaries import RowSample


def skewed_rows():
    rng = np.random.default_rng(5)
    return np.vstack([rng.standard_normal((380, 4)), 40 + rng.standard_normal((20, 4))])


@pytest.mark.share(1)
@pytest.mark.parametrize("centred", [False, True])
def test_the_weights_estimate_sums_over_all_rows_without_bias(centred):
    X = skewed_rows()
    v = 0.5 + np.arange(len(X)) % 3
    center, spread = (X.mean(axis=0), float(((X - X.mean(axis=0)) ** 2).sum(axis=1).mean())) if centred else (None,) * 2
    expected = np.array([v.sum(), v @ X[:, 0], v @ (X**2).sum(axis=1)])
    result = []
    for seed in range(400):
        s = RowSample(60, seed, center, spread).from_block(X, sample_weight=v)
        result.append([s.weights.sum(), s.weights @ s.rows[:, 0], s.weights @ (s.rows**2).sum(axis=1)])
    result = np.array(result)
    # Five standard errors: a bias would show, chance does not.
    assert (np.abs(result.mean(axis=0) - expected) < 5 * result.std(axis=0) / np.sqrt(len(result))).all()


def test_far_rows_are_kept_with_higher_probability_about_a_centre():
    X = skewed_rows()
    kept = {
        name: np.mean([(RowSample(40, seed, *about).from_block(X).indices >= 380).sum() for seed in range(50)])
        for name, about in {"uniform": (None, None), "centred": (np.zeros(4), 4.0)}.items()
    }
    assert kept["uniform"] == pytest.approx(2, abs=0.6)
    assert kept["centred"] > 15


def test_few_rows_are_all_kept_with_their_own_weights():
    X = skewed_rows()[:10]
    v = np.arange(10.0)
    s = RowSample(9).from_block(X, sample_weight=v)
    assert sorted(s.indices) == list(range(1, 10))
    assert np.array_equal(s.weights, v[s.indices])
    assert s.threshold == np.inf


def test_classes_of_rows_are_checked_and_asked_for():
    X, y = skewed_rows()[:6], np.array(list("abcabc"))
    with pytest.raises(BadBlock, match=r"row 2 .* none of the 2 classes"):
        RowSample(3, classes=["a", "b"]).from_block(X, y)
    with pytest.raises(BadBlock, match="every row"):
        RowSample(3, classes=["a", "b", "c"]).from_block(X)
    with pytest.raises(Incompatible, match="without classes"):
        _ = RowSample(3).from_block(X, y).labels


def test_what_is_refused():
    for arguments in (
        {"size": 0},
        {"size": 3, "seed": -1},
        {"size": 3, "center": [0.0]},
        {"size": 3, "center": [0.0], "spread": 0.0},
        {"size": 3, "center": [[0.0]], "spread": 1.0},
        {"size": 3, "center": [np.nan], "spread": 1.0},
    ):
        with pytest.raises(BadParameter):
            RowSample(**arguments)
    with pytest.raises(Incompatible, match=r"2 columns.* 3"):
        RowSample(3, center=[0.0, 1.0], spread=1.0).from_block(np.ones((4, 3)))
    with pytest.raises(NotFinite, match="row 11, column 1"):
        RowSample(3).from_block(np.array([[1.0, 2.0], [1.0, np.nan]]), start=10)
