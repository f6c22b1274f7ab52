"""Every step against scikit-learn, SciPy or its formula, on arrays and CSR of all types; the input never changes."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import StandardScaler, normalize

import sketchselect as sks
from sketchselect.errors import BadBlock, BadParameter, Incompatible
from sketchselect.linalg.csr import as_csr
from sketchselect.prepare import STEPS, apply, apply_steps, resolve

from .conftest import dense

pytestmark = pytest.mark.usefixtures("unchanged")

ALL = ["l2", "log1p", "library-size", "library-size(target=median)", "tf-idf", "tf-idf(sublinear=true)", "standardise"]
ALL += [
    "pearson-residuals",
    "scale",
    "pilot-scale",
    "clip(high=2)",
    "clip(sd=1)",
    "fourier(n_components=16)",
    "impute",
    "impute(by=median)",
]


def prepared(X, *entries, whole=None):
    """Return X after the steps, fitted to `whole` (X itself by default)."""
    return apply_steps(sks.fit_prepare(X if whole is None else whole, list(entries), client="serial").steps, X)


def check(result, expected, X, accuracy):
    """Compare values, and the type: float32 stays float32, all else becomes float64."""
    assert result.dtype == (np.float32 if X.dtype == np.float32 else np.float64)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(dense(result), expected, rtol=accuracy, atol=accuracy * scale)


def test_l2(form):
    X, accuracy = form
    check(apply(["l2"], X), normalize(dense(X).astype(float)), X, accuracy)


def test_log1p(form):
    X, accuracy = form
    check(apply(["log1p"], X), np.log1p(dense(X).astype(float)), X, accuracy)


@pytest.mark.parametrize("target", [1e4, 3, "median"])
def test_library_size(form, target):
    X, accuracy = form
    Z = dense(X).astype(float)
    totals = Z.sum(axis=1, keepdims=True)
    goal = np.median(totals[totals > 0]) if target == "median" else target
    expected = np.divide(Z * goal, totals, out=np.zeros_like(Z), where=totals > 0)
    result = prepared(X, {"step": "library-size", "target": target})
    check(result, expected, X, accuracy)
    assert not dense(result)[7].any(), "a row of zeros stays one"


@pytest.mark.parametrize("sublinear", [False, True])
def test_tf_idf_is_that_of_scikit_learn(form, sublinear):
    X, accuracy = form
    reference = TfidfTransformer(norm=None, smooth_idf=True, sublinear_tf=sublinear)
    expected = reference.fit_transform(csr_array(dense(X).astype(float))).toarray()
    fit = sks.fit_prepare(X, [{"step": "tf-idf", "sublinear": sublinear}])
    check(apply_steps(fit.steps, X), expected, X, accuracy)
    np.testing.assert_allclose(fit.steps[0].value("idf"), reference.idf_, rtol=1e-14)


def test_tf_idf_without_smoothing(form):
    X, accuracy = form
    Z = dense(X).astype(float)
    df = (Z != 0).sum(axis=0)
    expected = Z * (np.log(len(Z) / np.maximum(df, 1)) + 1)
    result = prepared(X, {"step": "tf-idf", "smooth": False})
    check(result, expected, X, accuracy)
    assert not dense(result)[:, [5, 41]].any(), "a column of zeros stays one"


@pytest.mark.parametrize(("theta", "clip"), [(100.0, None), (2.0, 1.5), (np.inf, np.inf)])
def test_pearson_residuals(form, theta, clip):
    X, accuracy = form
    Z = dense(X).astype(float)
    expected = np.outer(Z.sum(axis=1), Z.sum(axis=0)) / Z.sum()
    with np.errstate(invalid="ignore"):
        residuals = np.nan_to_num((Z - expected) / np.sqrt(expected + expected**2 / theta))
    bound = np.sqrt(len(Z)) if clip is None else clip
    steps = {"step": "pearson-residuals", "theta": theta}
    result = prepared(X, steps if clip is None else steps | {"clip": clip})
    check(result, np.clip(residuals, -bound, bound), X, accuracy)
    assert not result[7].any(), "an empty row has no residuals"
    assert not result[:, [5, 41]].any(), "an empty column has no residuals"


def test_standardise(form):
    X, accuracy = form
    Z = dense(X).astype(float)
    result = prepared(X, "standardise")
    check(result, StandardScaler().fit_transform(Z), X, 10 * accuracy)
    assert isinstance(result, np.ndarray)
    assert (result[:, [5, 41]] == 0).all(), "constant columns become 0"


@pytest.mark.parametrize("ddof", [0, 1])
def test_scale(form, ddof):
    X, accuracy = form
    Z = dense(X).astype(float)
    sd = Z.std(axis=0, ddof=ddof)
    check(prepared(X, {"step": "scale", "ddof": ddof}), Z / np.where(sd > 0, sd, 1), X, 10 * accuracy)


def test_pilot_scale_goes_by_the_first_partition(form):
    X, accuracy = form
    Z = dense(X).astype(float)
    fit = sks.fit_prepare(X, ["pilot-scale"], partition_bytes=20_000)
    (statistics,) = fit.statistics.values()
    assert 1 < statistics.n_rows < len(Z)
    sd = Z[: statistics.n_rows].std(axis=0)
    sd = np.where(sd > 0, sd, np.median(sd[sd > 0]))
    check(apply_steps(fit.steps, X), Z / sd, X, 10 * accuracy)


@pytest.mark.parametrize("bounds", [{"low": 1}, {"high": 2}, {"low": -1, "high": 1.5}, {"high": -0.5}])
def test_clip(form, bounds):
    X, accuracy = form
    expected = np.clip(dense(X).astype(float), bounds.get("low"), bounds.get("high"))
    check(apply([{"step": "clip", **bounds}], X), expected, X, accuracy)


def test_clip_by_standard_deviations(form):
    X, accuracy = form
    Z = dense(X).astype(float)
    mean, sd = Z.mean(axis=0), Z.std(axis=0)
    check(prepared(X, "clip(sd=1.5)"), np.clip(Z, mean - 1.5 * sd, mean + 1.5 * sd), X, 10 * accuracy)


@pytest.mark.share(30)
@pytest.mark.parametrize("entry", ALL)
def test_sparse_stays_canonical_or_becomes_dense(form, entry):
    X, _ = form
    steps = sks.fit_prepare(X, [entry]).steps
    result = apply_steps(steps, X)
    assert isinstance(result, np.ndarray) == (isinstance(X, np.ndarray) or not steps[0].keeps_sparsity)
    if not isinstance(result, np.ndarray):
        again = as_csr(csr_array((result.data, result.indices, result.indptr), shape=result.shape))
        assert again.nnz == result.nnz
        assert np.array_equal(again.indices, result.indices)
        assert again.indices.dtype == result.indices.dtype


@pytest.mark.share(30)
@pytest.mark.parametrize("entry", [e for e in ALL if not e.startswith("fourier")])
def test_the_bits_of_a_row_do_not_depend_on_the_block(form, entry):
    X, _ = form
    steps = sks.fit_prepare(X, [entry]).steps
    whole = dense(apply_steps(steps, X))
    parts = [dense(apply_steps(steps, X[a : a + 37])) for a in range(0, X.shape[0], 37)]
    assert np.vstack(parts).tobytes() == whole.tobytes()


@pytest.mark.share(4)
@pytest.mark.parametrize("entry", ["log1p", "library-size", "library-size(target=median)", "tf-idf"])
def test_negative_counts_are_refused_by_place(form, entry):
    X, _ = form
    if X.dtype.kind == "u":
        return
    bad = dense(X).copy()
    bad[123, 17] = -2
    bad = bad if isinstance(X, np.ndarray) else csr_array(bad)
    with pytest.raises(BadBlock, match=r"row 123, column 17: a negative value, but '[a-z0-9-]+' is for counts"):
        sks.summarize(bad, sks.ColumnStats(), prepare=[entry], partition_bytes=20_000, client="serial")


@pytest.mark.parametrize("entry", ["tf-idf", "pearson-residuals", "standardise", "scale", "pilot-scale", "clip(sd=1)"])
def test_other_columns_than_those_of_the_fit_are_refused(form, entry):
    X, _ = form
    steps = sks.fit_prepare(X, [entry]).steps
    with pytest.raises(Incompatible, match="fitted with 60 columns, the rows have 59"):
        apply_steps(steps, X[:, :59])


def test_a_step_that_is_not_fitted_says_how_it_can_be(form):
    X, _ = form
    with pytest.raises(BadParameter, match=r"'tf-idf' needs statistics of all rows.*fit_prepare.*prepare\.sks"):
        apply(["tf-idf"], X)


@pytest.mark.share(30)
@pytest.mark.parametrize("entry", ALL)
def test_no_rows_give_no_rows(form, entry):
    X, _ = form
    steps = sks.fit_prepare(X, [entry]).steps
    assert apply_steps(steps, X[:0]).shape == (0, steps[0].n_columns(60))


def test_every_step_is_tried_here(form):
    # Those of tables, which arrays are not, are tried in `test_tables`.
    assert {step.name for entry in ALL for step in resolve([entry])} | {"one-hot", "dates"} == set(STEPS)
