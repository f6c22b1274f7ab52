"""The prepare step `impute`: missing values filled by mean or median, fitted in a pass that merges."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.impute import SimpleImputer

import sketchselect as sks
from sketchselect.errors import BadParameter, SketchSelectError
from sketchselect.prepare import apply_steps, fitted


@pytest.fixture
def gappy() -> np.ndarray:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((400, 7)) ** 3
    X[rng.random(X.shape) < 0.3] = np.nan
    X[:, 5] = 2.0
    return X


@pytest.mark.parametrize("by", ["mean", "median"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_values_are_those_of_scikit_learn(gappy: np.ndarray, by: str, dtype: str) -> None:
    X = gappy.astype(dtype)
    fit = sks.fit_prepare(X, [f"impute(by={by})"], partition_bytes=4000)
    filled = apply_steps(fit.steps, X)
    assert filled.dtype == X.dtype
    expected = SimpleImputer(strategy=by).fit_transform(X.astype(float))
    np.testing.assert_allclose(filled, expected, rtol=1e-6, atol=1e-6 if dtype == "f4" else 1e-12)


def test_stored_gaps_of_sparse_rows_are_filled_and_zeros_stay(gappy: np.ndarray) -> None:
    X = np.where(np.abs(gappy) < 0.3, 0.0, gappy)
    sparse = csr_array(X)
    filled = apply_steps(sks.fit_prepare(sparse, ["impute"]).steps, sparse)
    np.testing.assert_allclose(filled.toarray(), SimpleImputer().fit_transform(X), atol=1e-12)


def test_summaries_with_imputed_rows_and_their_merge(gappy: np.ndarray) -> None:
    expected = SimpleImputer().fit_transform(gappy)
    fit = sks.fit_prepare(gappy, ["impute", "l2"])
    parts = [sks.summarize(rows, sks.Moments(), prepare=fit.steps) for rows in (gappy[:150], gappy[150:])]
    whole = parts[0].merge(parts[1])
    unit = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(whole.mean, unit.mean(axis=0), atol=1e-12)


def test_large_sources_have_the_median_of_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).uniform(0, 1, (20_000, 2))
    X[::5, 0] = np.nan
    steps = sks.fit_prepare(X, ["impute(by=median)"]).steps
    assert np.abs(steps[0].value("value") - 0.5).max() < 0.06  # 1,000 rows: three deviations are 0.05
    assert fitted.SAMPLED_ROWS == 1000


def test_a_column_without_a_value_becomes_zero_and_is_named() -> None:
    X = np.array([[1.0, np.nan], [3.0, np.nan]])
    for by in ("mean", "median"):
        [step] = sks.fit_prepare(X, [f"impute(by={by})"]).steps
        assert apply_steps([step], X).tolist() == [[1.0, 0.0], [3.0, 0.0]]
        assert "1 column has no value" in step.notes()[0]


@pytest.mark.parametrize(
    ("steps", "value", "message"),
    [
        (["l2", "impute"], np.nan, "'l2' is not defined for rows with missing values; fill them by the prepare step"),
        (["impute"], np.inf, "infinite"),
        (["l2"], np.nan, 'fill missing values with the prepare step "impute"'),
    ],
)
def test_what_cannot_be_filled_is_refused(steps: list[str], value: float, message: str) -> None:
    X = np.ones((6, 3))
    X[2, 1] = value
    with pytest.raises(SketchSelectError, match=message):
        sks.summarize(X, sks.Moments(), prepare=steps)


def test_other_ways_are_refused() -> None:
    with pytest.raises(BadParameter, match='by must be "mean" or "median"'):
        sks.fit_prepare(np.ones((3, 2)), ["impute(by=mode)"])
