"""Models of float32 rows: the least squares of the rows themselves, whatever the partitions.

With b the exact least-squares coefficients of the float32 values, S the correlations of the columns, s the standard
deviations and p columns:

    |s_j (coef_j - b_j)| <= c 2^-52 n cond(S) (s_y + max |s b|)         fitted from rows, at any partition size
    |s_j (coef_j - b_j)| <= c coefficient_error (s_y + max |s b|)       fitted from moments with float32 products,
    coefficient_error = 2^-24 cond(S), above 1e-4 with a warning; 1 where no digit is known
    |computed_ij - S_ij| <= 260 2^-24 sqrt(S_ii S_jj)                   products in float32, weights of any span, but
                                                                        for the rounding of the mean in float64

The reference solves the normal equations in rational arithmetic.
"""

import math
import warnings
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import sketchselect as sks
from sketchselect.linalg.comoments import SINGLE_ROUNDING
from sketchselect.selectors import StabilitySelector, ThresholdedOLS
from sketchselect.selectors.supervised.models import SinglePrecision

from .instances import each_number
from .rational import fractions_of, mean_of, rows_of, scatter_of, solve

FAST, ALL = range(30), range(30, 240)
whole = each_number(FAST, ALL)

FACTOR = 8.0


@pytest.fixture(autouse=True)
def _products_of_few_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few columns, of which float32 saves no time, be multiplied as many are."""
    monkeypatch.setattr("sketchselect.linalg.comoments._FEW_COLUMNS", 1)


@dataclass(frozen=True)
class Instance:
    """Correlated columns in float32, a target, and the exact least squares in units of standard deviations."""

    X: Any
    y: Any
    coef: Any
    sd: Any
    size: float
    condition: float


def instance(number: int) -> Instance:
    """Return one of many: columns that differ by little, far from zero, of any scale."""
    rng = np.random.default_rng(number)
    n, p = int(rng.integers(140, 400)), int(rng.integers(2, 5))
    c = 10.0 ** rng.uniform(-3.3, 0)
    X = rng.standard_normal((n, 1)) + c * rng.standard_normal((n, p))
    X = (X * 10.0 ** rng.integers(-3, 4, p) + rng.choice([0.0, 1.0, 30.0])).astype(np.float32)
    sd = X.astype(float).std(axis=0)
    y = (X / sd) @ rng.choice([-2.0, -1.0, 1.0, 3.0], p) + 0.1 * rng.standard_normal(n)
    coef = least_squares(X, y) * sd
    condition = float(np.linalg.cond(np.corrcoef(X.astype(float).T)))
    return Instance(X, y, coef, sd, float(y.std() + np.abs(coef).max()), condition)


def least_squares(X: Any, y: Any) -> Any:
    """Return the exact least squares of y on the columns and a constant, rounded once."""
    n, p = X.shape
    rows = [[Fraction(float(v)) for v in (*row, t)] for row, t in zip(X, y, strict=True)]
    means = [sum((row[j] for row in rows), Fraction()) / n for j in range(p + 1)]
    about = [[v - m for v, m in zip(row, means, strict=True)] for row in rows]
    gram = [[sum((r[i] * r[j] for r in about), Fraction()) for j in range(p + 1)] for i in range(p)]
    solved = solve([row[:p] for row in gram], [[row[p]] for row in gram])
    return np.array([float(row[0]) for row in solved])


def error(one: Instance, coef: Any) -> float:
    """Return the largest error of coefficients, as a share of the size of the problem."""
    return float(np.abs(coef * one.sd - one.coef).max()) / one.size


@whole
def test_models_of_float32_rows_are_those_of_the_rows_at_any_partition_size(number: int) -> None:
    one = instance(number)
    n, p = one.X.shape
    allowed = FACTOR * 2.0**-52 * n * one.condition
    whole_rows = ThresholdedOLS(p).fit(one.X, one.y)
    assert error(one, whole_rows.coef_) <= allowed
    assert "coefficient_error" not in whole_rows.selection_.diagnostics
    # In batches of a stream, below and above the size from which products in float32 pay.
    stream = ThresholdedOLS(p)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for a, b in ((0, 20), (20, n)):
            stream.partial_fit(one.X[a:b], one.y[a:b])
    assert error(one, stream.coef_) <= allowed
    in_double = ThresholdedOLS(p).fit(one.X.astype(float), one.y)
    assert np.array_equal(whole_rows.coef_, in_double.coef_)
    assert error(one, ThresholdedOLS(p).fit(csr_array(one.X), one.y).coef_) <= allowed


@whole
def test_the_error_of_products_in_float32_is_stated_with_the_answer(number: int) -> None:
    one = instance(number)
    moments = sks.summarize(one.X, sks.Moments(), y=one.y)
    assert moments.single_rounding > 0
    model = ThresholdedOLS(one.X.shape[1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit_summary(moments)
    stated = model.selection_.diagnostics["coefficient_error"]
    assert error(one, model.coef_) <= FACTOR * stated or stated == 1.0
    # An estimate of the condition number in the 1-norm, from a Cholesky factor of rounded correlations.
    p = one.X.shape[1]
    assert min(1.0, 2.0**-24 * one.condition / p) / 3 <= stated <= max(3 * p * 2.0**-24 * one.condition, 2.0**-24)
    told = [w for w in caught if issubclass(w.category, SinglePrecision)]
    assert bool(told) == (stated > 1e-4)


@whole
def test_the_bound_of_products_in_float32_holds_for_weights_of_any_span(number: int) -> None:
    """Weights that fade over up to 400 powers of two; only some rows deviate, of any scale."""
    rng = np.random.default_rng(number)
    n, p = int(rng.integers(128, 200)), 2
    X = (rng.standard_normal((n, 1)) + rng.choice([0.0, 1e-3, 1.0]) * rng.standard_normal((n, p))).astype(np.float32)
    if rng.integers(2):
        X[int(rng.integers(n // 2)) :] = X[0]
    X = (X * np.float32(10.0 ** rng.integers(-12, 13))).astype(np.float32)
    w = 2.0 ** (-np.arange(n) * rng.uniform(0, 400) / n)[:: int(rng.choice([-1, 1]))]
    computed = sks.Moments().from_block(X, sample_weight=w)._scatter()
    exact, mean = scatter_of(rows_of(X), fractions_of(w)), mean_of(rows_of(X), fractions_of(w))
    s = [math.sqrt(exact[j][j]) for j in range(p)]
    r = [16 * n * 2.0**-52 * math.sqrt(w.sum()) * abs(float(m)) for m in mean]
    for i in range(p):
        for j in range(p):
            allowed = SINGLE_ROUNDING * s[i] * s[j] + s[i] * r[j] + r[i] * s[j] + r[i] * r[j]
            assert abs(Fraction(float(computed[i, j])) - exact[i][j]) <= allowed


def test_a_column_correlates_with_its_copy_however_fast_rows_fade() -> None:
    x = np.random.default_rng(0).standard_normal((400, 1)).astype(np.float32)
    x[160:] = x[0]
    for fading in (sks.summaries.DecayedMoments(half_life=1), sks.summaries.DecayedMoments(half_life=4)):
        covariance = fading.from_block(np.hstack([x, x])).covariance()
        assert covariance[0, 1] == pytest.approx(covariance[0, 0], rel=1e-3)
        assert covariance[0, 0] > 0


@pytest.mark.share(2)
@pytest.mark.parametrize("number", range(6))
def test_cross_validation_of_float32_rows_is_that_of_float64_rows(number: int) -> None:
    one = instance(number)
    paths = [sks.LassoPath(cv=4).fit(X, one.y).path_ for X in (one.X, one.X.astype(float))]
    assert np.array_equal(paths[0].cv_errors, paths[1].cv_errors)
    assert np.array_equal(paths[0].coefs, paths[1].coefs)
    chosen = [StabilitySelector(ThresholdedOLS(2), max_false=2).fit(X, one.y) for X in (one.X, one.X.astype(float))]
    assert np.array_equal(chosen[0].scores_, chosen[1].scores_)


def test_lazy_and_stored_rows_are_read_as_float64_too(tmp_path: Path) -> None:
    import dask.array as da

    one = instance(3)
    exact = ThresholdedOLS(2).fit(one.X.astype(float), one.y).coef_
    np.save(tmp_path / "x.npy", one.X)
    summary = ThresholdedOLS(2).collect(one.X, one.y, compute=False).compute(scheduler="synchronous")
    assert np.array_equal(ThresholdedOLS(2).fit_summary(summary).coef_, exact)
    assert np.array_equal(ThresholdedOLS(2).fit(str(tmp_path / "x.npy"), one.y).coef_, exact)
    lazy = da.from_array(one.X, chunks=(len(one.X), -1))
    assert np.array_equal(ThresholdedOLS(2).fit(lazy, one.y).coef_, exact)


def test_a_job_and_the_command_line_read_float32_rows_as_float64(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from sketchselect.cli import app

    one = instance(5)
    np.save(tmp_path / "x.npy", one.X)
    np.save(tmp_path / "y.npy", one.y)
    job = tmp_path / "job.toml"
    job.write_text(
        f'[input]\nurl = "{tmp_path}/x.npy"\ntarget = "{tmp_path}/y.npy"\n'
        f'[select]\nmethod = "thresholded-ols"\nn_features = 2\n[output]\ndir = "{tmp_path}/out"\nfeatures = false\n'
        '[execution]\ncluster = "threads"\n'
    )
    done = CliRunner().invoke(app, ["run", str(job)])
    assert done.exit_code == 0, done.output
    assert sks.load(tmp_path / "out" / "summary.sks")["moments"].single_rounding == 0
    arguments = [str(tmp_path / "x.npy"), "-o", str(tmp_path / "s.sks"), "--target", str(tmp_path / "y.npy")]
    assert CliRunner().invoke(app, ["summarize", *arguments]).exit_code == 0
    assert sks.load(tmp_path / "s.sks")["moments"].single_rounding == 0
