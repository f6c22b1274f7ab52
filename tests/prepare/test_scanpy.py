"""The recipes of scanpy, step by step against scanpy itself."""

import warnings

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix
from tests.data_sets import data_set

import sketchselect as sks
from sketchselect.prepare import apply_steps

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    scanpy = pytest.importorskip("scanpy")
    anndata = pytest.importorskip("anndata")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module", params=["made", "mouse_bladder_cells"])
def cells(request):
    """Return 400 cells, made and real ones, as CSR of float32 counts."""
    if request.param == "made":
        rng = np.random.default_rng(3)
        depth, abundance = rng.lognormal(0, 0.5, (400, 1)), rng.lognormal(-3, 1.5, 1000)
        return csr_array(rng.poisson(depth * abundance).astype(np.float32))
    archive = data_set(request.param)
    X = csr_array((archive["data"], archive["indices"], archive["indptr"]), shape=tuple(archive["shape"]))
    return X[:400, :4000].astype(np.float32)


def by_scanpy(X, *calls):
    data = anndata.AnnData(csr_matrix(X))
    for name, options in calls:
        where = scanpy.pp if hasattr(scanpy.pp, name) else scanpy.experimental.pp
        getattr(where, name)(data, **options)
    return data.X.toarray() if hasattr(data.X, "toarray") else np.asarray(data.X)


@pytest.mark.share(0, 14)
@pytest.mark.parametrize("made", [np.asarray, csr_array], ids=["array", "csr"])
@pytest.mark.parametrize(
    ("steps", "calls"),
    [
        (["library-size"], [("normalize_total", {"target_sum": 1e4})]),
        (["library-size(target=median)"], [("normalize_total", {})]),
        (["library-size", "log1p"], [("normalize_total", {"target_sum": 1e4}), ("log1p", {})]),
        (
            ["library-size", "log1p", "standardise(ddof=1)", "clip(low=-10, high=10)"],
            [("normalize_total", {"target_sum": 1e4}), ("log1p", {}), ("scale", {"max_value": 10})],
        ),
        (
            ["log1p", "scale(ddof=1)", "clip(high=5)"],
            [("log1p", {}), ("scale", {"zero_center": False, "max_value": 5})],
        ),
        (["pearson-residuals"], [("normalize_pearson_residuals", {})]),
        (["pearson-residuals(theta=10, clip=3)"], [("normalize_pearson_residuals", {"theta": 10, "clip": 3})]),
    ],
    ids=["total", "median", "log1p", "scale", "scale without centring", "residuals", "residuals of theta 10"],
)
def test_steps_are_scanpy_s(cells, steps, calls, made):
    X = made(cells.toarray()) if made is np.asarray else cells
    result = apply_steps(sks.fit_prepare(X, steps).steps, X)
    result = result if isinstance(result, np.ndarray) else result.toarray()
    # Of a gene without counts scanpy's residuals are NaN, ours 0.
    expected = np.nan_to_num(by_scanpy(cells, *calls))
    # scanpy computes in float32 throughout.
    np.testing.assert_allclose(result, expected, rtol=3e-5, atol=3e-5)
