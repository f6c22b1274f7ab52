"""Random Fourier features approximate the Gaussian kernel within Hoeffding's bound, on arrays and CSR alike."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.spatial.distance import pdist
from scipy.stats import kstest
from sklearn.metrics.pairwise import rbf_kernel

import sketchselect as sks
from sketchselect.prepare import apply, resolve
from sketchselect.prepare.fourier import frequencies


def rows(n=60, d=40):
    rng = np.random.default_rng(5)
    return rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.3)


@pytest.mark.parametrize("gamma", [0.01, 0.05, 0.4])
@pytest.mark.parametrize("n_components", [200, 3000])
@pytest.mark.statement("Huang 2015, Section 3.2, other kernels")
def test_kernel_within_hoeffding(gamma, n_components):
    """P(any of m pairs is off by t or more) <= 2 m exp(-D t^2 / 8): here one in ten thousand."""
    X = rows()
    Z = apply([{"step": "fourier", "n_components": n_components, "gamma": gamma}], X)
    pairs = len(X) * (len(X) + 1) // 2
    t = np.sqrt(8 * np.log(2 * pairs / 1e-4) / n_components)
    error = np.abs(Z @ Z.T - rbf_kernel(X, gamma=gamma))
    assert error.max() < t
    assert error.max() > t / 50, "and it is random: nothing else would be this close"


def test_errors_shrink_with_the_number_of_components():
    """The standard error of an entry is below sqrt(1.5 / D): the mean over seeds is unbiased, its square halves."""
    X = rows(12)
    kernel = rbf_kernel(X, gamma=0.1)
    for d in (100, 400):
        errors = []
        for seed in range(100):
            Z = apply([{"step": "fourier", "n_components": d, "gamma": 0.1, "seed": seed}], X)
            errors.append(Z @ Z.T - kernel)
        squares = np.mean(np.square(errors), axis=0)
        # E z_j^2 <= (1 + k^4 / 2) <= 1.5 for every pair; four standard errors of a mean of 100 squares are 0.6 of it.
        assert (squares < 1.5 / d * 1.6).all()
        assert (np.abs(np.mean(errors, axis=0)) < 5 * np.sqrt(1.5 / d / 100)).all()


def test_sparse_rows_give_the_same_features():
    X = rows()
    entry = [{"step": "fourier", "n_components": 50, "gamma": 0.1}]
    for dtype, accuracy in ((np.float64, 1e-12), (np.float32, 2e-6)):
        a, b = apply(entry, X.astype(dtype)), apply(entry, csr_array(X.astype(dtype)))
        assert a.dtype == b.dtype == dtype
        np.testing.assert_allclose(a, b, atol=accuracy)


def test_sparse_rows_are_not_made_dense():
    n = 200_000
    X = csr_array((np.ones(3), ([0, 1, 2], [5, n - 1, 5])), shape=(2000, n))
    # As an array this would be 3.2 GB; w itself is 6.4 MB.
    Z = apply([{"step": "fourier", "n_components": 4, "gamma": 0.5}], X)
    assert Z.shape == (2000, 4)
    assert np.array_equal(Z[0], Z[2])


def test_frequencies_are_normal_and_each_depends_on_its_own_place():
    w = frequencies(3, 500, 40)
    assert kstest(w.ravel(), "norm").pvalue > 1e-3
    assert np.abs(np.corrcoef(w.T) - np.eye(40)).max() < 5 / np.sqrt(500)
    assert np.array_equal(frequencies(3, 200, 10), w[:200, :10]), "more columns and components leave the others alone"
    assert not np.array_equal(frequencies(4, 500, 40), w)


def test_median_bandwidth_is_that_of_the_rows():
    X = rows()
    (step,) = sks.fit_prepare(X, ["fourier(n_components=5)"]).steps
    assert float(step.value("gamma")) == pytest.approx(0.5 / np.median(pdist(X)) ** 2, rel=1e-12)
    (sparse,) = sks.fit_prepare(csr_array(X), ["fourier(n_components=5)"]).steps
    assert sparse.label == step.label
    # Beyond a thousand rows a sample, drawn by hash of the row's index: the same for every cut.
    many = np.random.default_rng(1).standard_normal((3000, 3))
    result = [sks.fit_prepare(many, ["fourier(n_components=5)"], partition_bytes=b).labels for b in (9000, 30_000)]
    assert result[0] == result[1]
    (step,) = sks.fit_prepare(many, ["fourier(n_components=5)"]).steps
    assert float(step.value("gamma")) == pytest.approx(0.5 / np.median(pdist(many)) ** 2, rel=0.05)


def test_equal_rows_have_some_bandwidth():
    (step,) = sks.fit_prepare(np.ones((9, 2)), ["fourier(n_components=5)"]).steps
    assert float(step.value("gamma")) == 1.0


def test_the_columns_that_come_out_have_names_and_a_summary_of_their_width():
    X = rows()
    s = sks.summarize(X, {"c": sks.ColumnStats(), "m": sks.Moments()}, prepare=["fourier(n_components=5)"])
    assert s.n_features == 5
    assert s.feature_names == tuple(f"fourier_{j}" for j in range(5))
    Z = apply(list(sks.fit_prepare(X, ["fourier(n_components=5)"]).steps), X)
    np.testing.assert_allclose(s["m"].covariance(), np.cov(Z.T, ddof=0), atol=1e-12)


def test_memory_of_the_random_numbers_is_known():
    (step,) = resolve(["fourier(n_components=50, gamma=1)"])
    assert step.working_nbytes(1000) == frequencies(0, 1000, 50).nbytes
