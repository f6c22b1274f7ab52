"""What Huang, Yoo and Kasiviswanathan (2015) prove and claim: ridge weights from a sketch, any batches, drift, text."""

import numpy as np
import pytest
from sklearn.cluster import KMeans

import sketchselect as sks
from sketchselect.selectors import rank
from sketchselect.solvers.homotopy import Design, lasso_coefficients


def streamed(selector, X, size):
    """Feed rows in batches, as a stream brings them; the selection is made once, at the end."""
    sketch = selector.summary_description(X.shape[1])
    for start in range(0, len(X), size):
        sketch = sketch.update(X[start : start + size])
    return selector.fit_summary(sketch)


def offline_weights(A, k, alpha):
    """Algorithm 1 with p = 2: the regressions of the top left singular vectors, solved as they stand."""
    U, s, _ = np.linalg.svd(A, full_matrices=False)
    ridge = 8 * s[k - 1] if alpha == "paper" else s[k - 1] ** 2
    X = np.linalg.solve(A.T @ A + ridge * np.eye(A.shape[1]), A.T @ U[:, :k])
    return np.abs(X).max(axis=1)


@pytest.fixture(scope="module")
def low_rank():
    """500 rows of rank 9 in 40 columns, with a spectrum that falls."""
    rng = np.random.default_rng(7)
    return (rng.standard_normal((500, 9)) * 0.7 ** np.arange(9)) @ rng.standard_normal((9, 40))


@pytest.mark.parametrize("size", [1, 33, 500])
@pytest.mark.parametrize("alpha", ["auto", "paper"])
@pytest.mark.statement("Huang 2015, Lemma 3.3", "Huang 2015, Algorithm 1, p = 2", "Huang 2015, Algorithm 2")
def test_the_stream_equals_the_offline_method_where_the_sketch_loses_nothing(low_rank, alpha, size):
    """Lemma 3.3 and Algorithms 1 and 2: rows of rank 9 fit into a sketch of 12, whatever the batches."""
    fitted = streamed(sks.SketchedRidgeSelector(5, 4, 12, alpha=alpha, normalize=None), low_rank, size)
    assert fitted.selection_.diagnostics["shrinkage"] <= 1e-9 * np.linalg.norm(low_rank) ** 2
    expected = offline_weights(low_rank, 4, alpha)
    np.testing.assert_allclose(fitted.scores_, expected, rtol=1e-6, atol=1e-9 * expected.max())
    assert set(fitted.support_) == set(np.argsort(-expected)[:5])


@pytest.mark.statement("Huang 2015, Lemma 3.1", "Huang 2015, Corollary 3.2")
def test_lasso_of_orthonormal_columns_is_soft_thresholding():
    """Lemma 3.1 and Corollary 3.2: with orthonormal columns lasso and ridge put the columns in the same order."""
    rng = np.random.default_rng(3)
    A = np.linalg.qr(rng.standard_normal((80, 15)))[0]
    target = rng.standard_normal(80)
    plain = A.T @ target
    sizes = np.sort(np.abs(plain))[::-1]
    for n in (1, 4, 9):
        result = lasso_coefficients(Design(A, center=False), target, n)
        np.testing.assert_allclose(result, np.sign(plain) * np.maximum(np.abs(plain) - sizes[n], 0), atol=1e-10)
        ridge = np.linalg.solve(A.T @ A + 0.7 * np.eye(15), plain)
        assert rank(np.abs(result))[:n].tolist() == rank(np.abs(ridge))[:n].tolist()


@pytest.fixture(scope="module")
def planted_change():
    """1,000 rows whose three clusters show in columns 0 to 5, then 3,000 whose clusters show in columns 20 to 25."""
    rng = np.random.default_rng(4)
    X = 0.3 * rng.standard_normal((4000, 60))
    y = rng.integers(0, 3, 4000)
    for rows, first in ((slice(0, 1000), 0), (slice(1000, 4000), 20)):
        for c in range(3):
            X[rows, first + 2 * c : first + 2 * c + 2] += 3.0 * (y[rows] == c)[:, None]
    return X, y


@pytest.mark.statement("Huang 2015, Section 5.4")
def test_the_adapting_selection_finds_a_planted_change_the_static_one_cannot(planted_change):
    """Section 5.4."""
    X, y = planted_change
    old, new = set(range(6)), set(range(20, 26))
    static = streamed(sks.SketchedRidgeSelector(6, 3), X[:1000], 250)
    assert set(static.support_) == old
    adapting, fading = sks.SketchedRidgeSelector(12, 6), sks.SketchedRidgeSelector(6, 3, half_life=200.0)
    for start in range(0, 4000, 250):
        adapting.partial_fit(X[start : start + 250])
        fading.partial_fit(X[start : start + 250])
    assert set(adapting.support_) == old | new, "all that ever mattered"
    assert set(fading.support_) == new, "what matters now"
    nmi = {}
    for name, columns in (("static", static.support_), ("adapting", adapting.support_), ("fading", fading.support_)):
        labels = KMeans(3, n_init=5, random_state=0).fit_predict(X[3000:][:, columns])
        nmi[name] = sks.summaries.Contingency.of(y[3000:], labels).nmi
    assert nmi["static"] < 0.05
    assert nmi["adapting"] > 0.95
    assert nmi["fading"] > 0.95
