"""Sparse rows in one canonical form; damaged ones are refused by row; columns taken apart; products."""

import numpy as np
import pytest
import scipy.sparse as sp

from sketchselect.errors import BadBlock, NotFinite, SourceError
from sketchselect.linalg.csr import (
    FULL_SHARE,
    add_row_gram,
    add_transposed_times,
    as_csr,
    by_column,
    columns_dense,
    complete,
    densify,
    density,
    finite_rows,
    first_nonfinite_entry,
    row_pieces,
    split_columns,
    stays_sparse,
    take_columns,
    take_rows,
    times_dense,
)
from sketchselect.linalg.validation import is_csr
from sketchselect.readers import open_matrix
from sketchselect.testing.laws import sparse_variants
from sketchselect.testing.nasty import nasty_sparse_matrices

MATRICES = nasty_sparse_matrices()


def damaged(data=(1.0, 2.0, 3.0), indices=(0, 3, 1), indptr=(0, 2, 2, 3), shape=(3, 4)):
    """A csr_array whose arrays are what they are told to be, whatever SciPy thinks of it."""
    out = sp.csr_array((3, 4))
    out.data, out.indices, out.indptr = np.array(data), np.array(indices), np.array(indptr)
    out._shape = shape
    return out


@pytest.mark.parametrize("name", MATRICES)
def test_every_representation_becomes_the_same_canonical_arrays(name):
    X = MATRICES[name]
    for variant in sparse_variants(X):
        before = variant.toarray()
        got = as_csr(variant)
        assert is_csr(got)
        assert isinstance(got, sp.csr_array)
        assert got.indices.dtype == got.indptr.dtype == np.int32
        assert np.array_equal(got.indices, X.indices)
        assert np.array_equal(got.indptr, X.indptr)
        assert got.data.tobytes() == X.data.tobytes()
        assert np.array_equal(variant.toarray(), before), "the input was changed"


def test_a_canonical_matrix_is_shared_and_not_copied():
    X = as_csr(sp.random_array((50, 30), density=0.1, format="csr", random_state=0))
    assert np.shares_memory(as_csr(X).data, X.data)


@pytest.mark.parametrize(("dtype", "expected"), [("bool", "f8"), ("i2", "i2"), ("u1", "u1"), ("f4", "f4")])
def test_types(dtype, expected):
    X = sp.csr_array(np.array([[0, 1], [1, 0]]).astype(dtype))
    assert as_csr(X).dtype == np.dtype(expected)


def test_whole_numbers_stored_twice_do_not_wrap_around():
    twice = sp.csr_array((np.array([200, 100], np.uint8), [1, 1], [0, 2]), shape=(1, 3))
    assert as_csr(twice).toarray().tolist() == [[0.0, 300.0, 0.0]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indices": (0, 4, 1)}, "row 7 has an entry in column 4, and there are 4 columns"),
        ({"indices": (0, -1, 1)}, "row 7 has an entry in column -1"),
        ({"indptr": (0, 2, 1, 3)}, "indptr decreases after row 1"),
        ({"indptr": (1, 2, 2, 3)}, "indptr must begin with 0"),
        ({"indptr": (0, 2, 2, 9)}, "indptr ends at 9, there are 3 values and 3 indices"),
        ({"indptr": (0, 2, 3)}, "indptr has 3 entries for 3 rows"),
        ({"indices": (0.0, 3.0, 1.0)}, "integer type"),
        ({"data": ("a", "b", "c")}, "real numeric type"),
    ],
)
def test_damaged_matrices_are_refused_by_row(change, message):
    with pytest.raises(BadBlock, match=message) as caught:
        as_csr(damaged(**change), first_row=7)
    assert "\n" not in str(caught.value)
    if "data" not in change:
        with pytest.raises(SourceError, match="write it again"):
            open_matrix(damaged(**change))


def test_damage_in_other_formats_is_found_before_it_is_followed():
    X = sp.csc_array(np.eye(4))
    X.indices[2] = 77
    with pytest.raises(BadBlock, match="not a valid CSC matrix"):
        as_csr(X)


@pytest.mark.parametrize("name", MATRICES)
def test_parts(name):
    X = MATRICES[name]
    dense = X.toarray()
    assert densify(X).dtype == X.dtype
    assert np.array_equal(densify(X), dense)
    assert density(X) == (dense != 0).mean()
    columns = [0, 3, 7, 9, 39]
    taken = take_columns(X, columns)
    assert taken.has_canonical_format
    assert np.array_equal(taken.toarray(), dense[:, columns])
    assert np.array_equal(columns_dense(X, np.array(columns)), dense[:, columns])
    runs = list(row_pieces(X, 7 * 40))
    assert all(b - a <= 7 for a, b in runs)
    assert np.array_equal(np.vstack([take_rows(X, a, b).toarray() for a, b in runs]), dense)


def test_what_is_not_finite_is_found_by_row():
    X = as_csr(sp.random_array((30, 20), density=0.2, format="csr", random_state=1))
    assert first_nonfinite_entry(X) is None
    assert finite_rows(X).all()
    row = 17
    place = int(X.indptr[row]) + 1
    X.data[place], X.data[-1] = np.nan, np.inf
    assert first_nonfinite_entry(X) == (row, int(X.indices[place]), 1, 1)
    dense = X.toarray()
    assert np.array_equal(finite_rows(X), np.isfinite(dense).all(axis=1))


@pytest.mark.share(10)
@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("weighted", [False, True])
def test_split_columns(name, weighted):
    X = MATRICES[name]
    dense = X.toarray().astype(np.longdouble)
    w = np.floor(4 * np.random.default_rng(3).random(X.shape[0])) if weighted else None
    v = np.ones(X.shape[0]) if w is None else w
    split = split_columns(X, w)
    share = (v[:, None] * (dense != 0)).sum(axis=0)
    assert split.full.tolist() == np.flatnonzero(share > FULL_SHARE * v.sum()).tolist()
    light = np.setdiff1d(np.arange(40), split.full)
    assert np.array_equal(split.sparse.toarray()[:, light], dense[:, light])
    assert not split.sparse.toarray()[:, split.full].any()
    assert np.array_equal(split.dense, X.toarray()[:, split.full])
    if v.sum() > 0:
        mean = v @ dense / v.sum()
        squares = v @ (dense - mean) ** 2
        # No offset, however large, makes more of this than rounding: it is relative to the centred squares.
        assert np.allclose(split.mean[light], mean[light].astype(float), rtol=1e-13, atol=0)
        assert np.allclose(split.squares[light], squares[light].astype(float), rtol=1e-12, atol=0)


def test_a_row_that_outweighs_all_others_does_not_make_everything_dense():
    X = as_csr(sp.random_array((4000, 200), density=0.001, format="csr", random_state=2))
    full = sp.vstack([X, sp.csr_array(np.ones((1, 200)))], format="csr")
    weights = np.ones(4001)
    assert stays_sparse(full, weights, 0.05)
    weights[-1] = 1e9
    assert not stays_sparse(full, weights, 0.05)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_values_that_cannot_be_squared_are_named(value):
    X = as_csr(sp.random_array((40, 20), density=0.1, format="csr", random_state=1))
    X.data[10] = value
    row = int(np.searchsorted(X.indptr, 10, side="right")) - 1
    with pytest.raises((NotFinite, BadBlock), match=f"row {100 + row}, column {X.indices[10]}"):
        split_columns(X, None, 100)


@pytest.mark.parametrize("name", MATRICES)
def test_products(name):
    X = MATRICES[name].astype(np.float64)
    dense = X.toarray()
    order = by_column(X)
    values = X.data[order.places]
    assert np.array_equal(sp.csc_array((values, order.rows, order.ends), shape=X.shape).toarray(), dense)
    size = np.abs(dense)
    rng = np.random.default_rng(0)
    M, U = rng.standard_normal((40, 5)), rng.standard_normal((X.shape[0], 5))
    eps = 1e-14
    gram = np.zeros((X.shape[0],) * 2)
    add_row_gram(values, order, gram)
    complete(gram, 0, np.zeros(X.shape[0]), np.zeros(X.shape[0]))
    assert (np.abs(gram - dense @ dense.T) <= eps * size @ size.T).all()
    assert (np.abs(times_dense(values, order, X.shape[0], M) - dense @ M) <= eps * size @ np.abs(M)).all()
    out = np.ones((40, 6))
    add_transposed_times(values, order, U, out)
    assert (np.abs(out[:, :5] - 1 - dense.T @ U) <= eps * (1 + size.T @ np.abs(U))).all()
    assert (out[:, 5] == 1).all()


@pytest.mark.parametrize("first", [0, 5, 70])
def test_complete_takes_a_product_off_and_mirrors(first):
    rng = np.random.default_rng(0)
    A, t, v = rng.standard_normal((70, 70)), rng.standard_normal(70 - first), rng.standard_normal(70 - first)
    result = np.tril(A) + np.triu(rng.standard_normal((70, 70)), 1)
    complete(result, first, t, v)
    expected = np.tril(A) + np.tril(A, -1).T
    expected[first:, first:] -= np.outer(t, v) + np.outer(v, t)
    assert np.allclose(result, expected, rtol=1e-14, atol=1e-14)
    assert np.array_equal(result, result.T)
