"""Certified digits: NIST's reference data for linear regression and analysis of variance, from merged moments.

Each set is cut into 1, 3 and 7 blocks of rows, in shuffled order, and merged. Counted are the certified digits that
come out, -log10 of the relative error. Floors: what careful double-precision arithmetic of this form reaches, less
1.3 digits for the order of summation.
"""

import functools
from pathlib import Path

import numpy as np
import pytest
import scipy

from sketchselect.solvers import least_squares, standardize
from sketchselect.summaries import CentroidSums, Moments

HERE = Path(__file__).parent
SCIPY = Path(scipy.__file__).parent / "stats" / "tests" / "data"

DELTA = np.array([759, -2048, 2048, -2048, 2523, -2048, 2048, -2048, 1838, -2048, 2048.0])
BLOCKS = (1, 3, 7)

# Certified digits of the coefficients: from the co-moment, and from its triangular factor.
REGRESSION = {
    "norris": (13.3, 13.2),
    "pontius": (11.4, 13.2),
    "longley": (12.3, 10.8),
    "wampler1": (6.7, 9.7),
    "wampler2": (10.3, 13.0),
    "wampler3": (6.9, 9.4),
    "wampler4": (7.0, 8.4),
    "wampler5": (6.2, 6.3),
    "filip": (None, 7.1),
}
# Certified digits of the F statistic.
ANOVA = {
    "AtmWtAg": 9.7,
    "SiRstv": 12.4,
    "SmLs01": 14.9,
    "SmLs02": 14.9,
    "SmLs03": 14.9,
    "SmLs04": 10.4,
    "SmLs05": 9.4,
    "SmLs06": 9.6,
    "SmLs07": 3.2,
    "SmLs08": 3.7,
    "SmLs09": 3.6,
}
SLACK = 1.3


def powers(x, degree):
    return x[:, None] ** np.arange(1, degree + 1)


def ours(name):
    lines = (HERE / f"{name}.txt").read_text().splitlines()
    rows = np.array([line.split() for line in lines[3:]], dtype=float)
    degree = {"pontius": 2, "filip": 10}.get(name)
    X = rows[:, 1:] if degree is None else powers(rows[:, 1], degree)
    return X, rows[:, 0], np.array(lines[1].split()[2:], dtype=float), float(lines[2].split()[-1])


def norris():
    file = SCIPY / "nist_linregress" / "Norris.dat"
    if not file.exists():
        pytest.skip("this SciPy comes without its test data")
    lines = file.read_text().splitlines()
    result = [line.split() for line in lines]
    certified = {words[0]: float(words[1]) for words in result if len(words) == 3 and words[0] in ("B0", "B1")}
    deviation = next(float(w[-1]) for line, w in zip(lines, result, strict=True) if "Standard Deviation  " in line)
    first = next(i for i, line in enumerate(lines) if line.startswith("Data:       y"))
    rows = np.array([line.split() for line in lines[first + 1 :] if line.strip()], dtype=float)
    return rows[:, 1:], rows[:, 0], np.array([certified["B0"], certified["B1"]]), deviation


def wampler(number):
    """Return Wampler's polynomials: exact coefficients by construction, and noise orthogonal to them."""
    x = np.arange(21.0)
    base = 0.1 if number == 2 else 1.0
    size = {3: 1.0, 4: 100.0, 5: 10_000.0}.get(number, 0.0)
    noise = np.concatenate([DELTA, DELTA[-2::-1]])
    y = sum((base * x) ** k for k in range(6)) + size * noise
    return powers(x, 5), y, base ** np.arange(6.0), size * 2360.14502379268


@functools.cache
def regression(name):
    if name == "norris":
        return norris()
    return wampler(int(name[-1])) if name.startswith("wampler") else ours(name)


def merged(description, X, y, n_blocks):
    """Return the summary of shuffled rows in blocks, merged two by two."""
    order = np.random.default_rng(n_blocks).permutation(len(X))
    parts = [description.from_block(X[rows], y[rows]) for rows in np.array_split(order, n_blocks)]
    while len(parts) > 1:
        parts = [a.merge(b) for a, b in zip(parts[::2], parts[1::2], strict=False)] + parts[len(parts) // 2 * 2 :]
    return parts[0]


def digits(got, certified):
    """Return certified digits of the worst of some numbers, 15 at most."""
    error = np.max(np.abs(np.asarray(got) - certified) / np.abs(certified))
    return 15.0 if error == 0 else min(15.0, -np.log10(error))


# --- the data are the certified ones -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(REGRESSION))
def test_the_data_are_nists(name):
    """The certified coefficients leave the certified residuals, in extended precision."""
    X, y, certified, deviation = regression(name)
    X, y, certified = X.astype(np.longdouble), y.astype(np.longdouble), certified.astype(np.longdouble)
    residual = y - certified[0] - X @ certified[1:]
    got = np.sqrt(float(residual @ residual) / (len(y) - X.shape[1] - 1))
    scale = float(np.abs(X @ certified[1:]).max())
    # Filip's terms are some 1e5 times their sum, and its coefficients are certified to 15 digits.
    assert got == pytest.approx(deviation, rel=1e-6, abs=1e-12 * scale)


def test_wampler_noise_is_nists():
    """Five values of the published Wampler3."""
    _, y, _, _ = wampler(3)
    assert y[[0, 1, 5, 10, 20]].tolist() == [760.0, -2042.0, 1858.0, 113159.0, 3369180.0]


# --- regression --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_blocks", BLOCKS)
@pytest.mark.parametrize("name", [name for name, (floor, _) in REGRESSION.items() if floor is not None])
def test_regression_from_the_comoment(name, n_blocks):
    X, y, certified, _ = regression(name)
    m = merged(Moments(), X, y, n_blocks)
    problem = standardize(m.covariance(), m.xy, m.yy, mean=m.mean, y_mean=m.y_mean, n=m.n_effective)
    coef, intercept = problem.original_units(least_squares(problem, np.arange(X.shape[1])))
    assert digits(np.append(intercept, coef), certified) >= REGRESSION[name][0] - SLACK


@pytest.mark.parametrize("n_blocks", BLOCKS)
@pytest.mark.parametrize("name", list(REGRESSION))
def test_regression_from_the_factor(name, n_blocks):
    X, y, certified, _ = regression(name)
    coef, intercept = merged(Moments(method="qr"), X, y, n_blocks).least_squares()
    assert digits(np.append(intercept, coef), certified) >= REGRESSION[name][1] - SLACK


# --- analysis of variance ----------------------------------------------------------------------------------------


@functools.cache
def anova(name):
    file = SCIPY / "nist_anova" / f"{name}.dat"
    if not file.exists():
        pytest.skip("this SciPy comes without its test data")
    lines = file.read_text().splitlines()
    certified = float(next(line for line in lines if line.startswith("Between")).split()[-1])
    rows = np.array([line.split() for line in lines[60:] if line.strip()], dtype=float)
    return rows[:, 1:], rows[:, 0].astype(int), certified


@pytest.mark.share(10)
@pytest.mark.parametrize("n_blocks", BLOCKS)
@pytest.mark.parametrize("name", list(ANOVA))
def test_f_statistic_from_class_moments(name, n_blocks):
    """The sum of squares between classes is what the regression on their indicators explains."""
    X, labels, certified = anova(name)
    k = len(np.unique(labels))
    m = merged(Moments(classes=range(1, k + 1)), X, labels, n_blocks)
    if k == 2:
        between = m.xy[0, 0] ** 2 / m.yy[0, 0]
    else:
        between = float((m.xy[0] ** 2 / m.y_mean).sum())
    within = m.covariance()[0, 0] - between
    # The sum within classes is a difference here, which costs up to another digit.
    assert digits(between / (k - 1) / (within / (len(X) - k)), certified) >= ANOVA[name] - SLACK - 1


@pytest.mark.share(10)
@pytest.mark.parametrize("n_blocks", BLOCKS)
@pytest.mark.parametrize("name", list(ANOVA))
def test_f_statistic_from_sums_by_class(name, n_blocks):
    X, labels, certified = anova(name)
    k = len(np.unique(labels))
    s = merged(CentroidSums(n_clusters=k), X, labels - 1, n_blocks)
    means, weights = s.cluster_means[:, 0], s.cluster_weights
    between = weights @ (means - weights @ means / weights.sum()) ** 2
    within = s.within.sum()
    assert digits(between / (k - 1) / (within / (len(X) - k)), certified) >= ANOVA[name] - SLACK


# --- far from zero -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_blocks", BLOCKS)
def test_variances_at_mean_1e8(n_blocks):
    X = 1e8 + np.random.default_rng(0).normal(size=(5000, 20))
    exact = np.var(X.astype(np.longdouble), axis=0).astype(float)
    m = merged(Moments(), X, X[:, 0], n_blocks)
    assert np.allclose(m.covariance().diagonal(), exact, rtol=1e-9, atol=0)


@pytest.mark.parametrize("n_blocks", BLOCKS)
@pytest.mark.parametrize(("offset", "floor"), [(1.2, 15), (1_000_000.2, 9.5), (10_000_000.2, 8.3)])
def test_numerical_accuracy_sets(offset, floor, n_blocks):
    """NumAcc2 to 4: 1001 values that alternate by 0.1 about a mean; standard deviation 0.1 exactly."""
    x = np.where(np.arange(1001) == 0, offset, offset + 0.1 * (-1.0) ** np.arange(1001))[:, None]
    x = np.array([float(f"{v:.1f}") for v in x[:, 0]])[:, None]
    m = merged(Moments(), x, np.zeros(1001), n_blocks)
    assert digits(np.sqrt(m.covariance(ddof=1)[0, 0]), 0.1) >= floor - SLACK
