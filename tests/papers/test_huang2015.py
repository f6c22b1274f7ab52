"""What Huang, Yoo and Kasiviswanathan (2015) prove and claim: ridge weights from a sketch, any batches, drift, text."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import TfidfTransformer
from tests.data_sets import data_set

import sketchselect as sks
from sketchselect.execution import source as block
from sketchselect.linalg.csr import densify
from sketchselect.selectors import rank
from sketchselect.solvers.homotopy import Design, lasso_coefficients
from sketchselect.summaries import base


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


@pytest.mark.parametrize("size", [1, 10, 100, 1000])
def test_no_batch_size_changes_what_is_guaranteed(size):
    """Steps 1 to 4 for n_t = 1 up to all rows: 0 <= A'A - B'B <= Delta I, and Delta within its bound for every k."""
    rng = np.random.default_rng(1)
    A = rng.standard_normal((1000, 60)) * 0.9 ** np.arange(60) + 0.1 * rng.standard_normal((1000, 60))
    fitted = streamed(sks.SketchedRidgeSelector(10, 5, 16, normalize=None), A, size)
    sketch = fitted.summary_
    gap = np.linalg.eigvalsh(A.T @ A - sketch.sketch.T @ sketch.sketch)
    slack = 1e-10 * (A**2).sum()
    assert -slack <= gap[0] <= gap[-1] <= sketch.shrinkage + slack
    squares = np.linalg.svd(A, compute_uv=False) ** 2
    assert all(sketch.shrinkage <= squares[k:].sum() / (16 - k) + slack for k in range(16))


@pytest.mark.parametrize("size", [20, 30, 60])
def test_the_top_directions_are_as_close_as_is_said(size):
    """The place of Theorem 3.1: the measured angle to the exact top-k directions is below the printed one."""
    rng = np.random.default_rng(2)
    strong = rng.standard_normal((800, 4)) @ np.linalg.qr(rng.standard_normal((50, 4)))[0].T
    A = 6 * strong + 0.3 * rng.standard_normal((800, 50))
    fitted = streamed(sks.SketchedRidgeSelector(10, 4, size, normalize=None), A, 100)
    bound = fitted.selection_.diagnostics["subspace_angle"]
    assert bound is not None
    exact = np.linalg.svd(A, full_matrices=False)[2][:4]
    result = fitted.summary_.directions.vectors[:4]
    sine = np.sqrt(max(1 - np.linalg.svd(exact @ result.T, compute_uv=False).min() ** 2, 0))
    assert sine <= bound + 1e-7


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


def made_stories():
    """Return counts of terms in 1,200 documents of eight classes, which differ in 50 terms each, and the classes."""
    rng = np.random.default_rng(2)
    y = np.repeat(np.arange(8), 150)
    rates = np.tile(0.02 / np.arange(1, 3001) ** 0.5, (8, 1))
    for label in range(8):
        rates[label, 100 + 50 * label : 150 + 50 * label] = 0.5
    return csr_array(rng.poisson(rates[y]).astype(np.float64)), y


@pytest.fixture(scope="module", params=["made", "TDT2"])
def stories(request):
    """Counts of terms, and classes, sorted by class: the worst order for a stream."""
    if request.param == "made":
        return made_stories()
    archive = data_set(request.param)
    index = (archive["indices"].astype(np.int32), archive["indptr"].astype(np.int32))
    return csr_array((archive["data"].astype(np.float64), *index), shape=tuple(archive["shape"])), archive["y"]


@pytest.mark.slow
def test_text_is_never_made_dense_and_its_sketch_is_as_close_as_is_said(stories, monkeypatch):
    """One pass over sparse rows: the exact singular values lie within Delta, which is within its bound."""
    counts, y = stories
    k, dense_rows = len(np.unique(y)), []

    def watched(rows, *rest):
        dense_rows.append(rows.shape[0])
        return densify(rows, *rest)

    for module in (base, block):
        monkeypatch.setattr(module, "densify", watched)
    selector = sks.SketchedRidgeSelector(min(1000, counts.shape[1] // 3), k)
    steps = [{"step": "tf-idf", "sublinear": True}, "l2"]
    sketch = sks.summarize(counts, selector.summary_description(counts.shape[1]), prepare=steps, client="serial")
    assert max(dense_rows, default=0) <= counts.shape[0] / 20
    X = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    start = np.random.default_rng(0).standard_normal(min(X.shape))
    exact = np.sort(svds(X, k=k, v0=start, return_singular_vectors=False))[::-1] ** 2
    result, slack = sketch.directions.squares[:k], 1e-9 * exact[0]
    assert (result <= exact + slack).all()
    assert (exact <= result + sketch.shrinkage + slack).all()
    # Rows have unit length, so the whole squared norm is their number.
    tail = X.shape[0] - exact.sum()
    assert sketch.shrinkage <= tail / (sketch.size - k)
