"""Counts as documents and cells have them: sparse, with rows and columns of zeros, in several types."""

import numpy as np
import pytest
from scipy.sparse import csr_array


@pytest.fixture(scope="session")
def counts():
    """Return 300 x 60 counts, a tenth of them above 0; row 7 and columns 5 and 41 are all zero."""
    rng = np.random.default_rng(11)
    X = rng.poisson(2.0, (300, 60)) * (rng.random((300, 60)) < 0.1)
    X[7], X[:, [5, 41]] = 0, 0
    return X.astype(np.int64)


FORMS = {
    "float64": lambda X: X.astype(np.float64),
    "float32": lambda X: X.astype(np.float32),
    "int64": lambda X: X,
    "uint8": lambda X: X.astype(np.uint8),
    "csr float64": lambda X: csr_array(X.astype(np.float64)),
    "csr float32": lambda X: csr_array(X.astype(np.float32)),
    "csr int64": lambda X: csr_array(X),
}


@pytest.fixture(params=FORMS)
def form(request, counts):
    """Return the counts in one form, and the relative accuracy that its type has."""
    return FORMS[request.param](counts), 1e-6 if "float32" in request.param else 1e-13


def dense(block):
    return block if isinstance(block, np.ndarray) else block.toarray()


def snapshot(block):
    """Return copies of all arrays of a block, to see that it was not changed."""
    arrays = [block] if isinstance(block, np.ndarray) else [block.data, block.indices, block.indptr]
    return [a.copy() for a in arrays], arrays


@pytest.fixture
def unchanged(form):
    """Fail where the block of `form` is not what it was before the test."""
    before, arrays = snapshot(form[0])
    yield
    assert all(np.array_equal(a, b) for a, b in zip(before, arrays, strict=True))
