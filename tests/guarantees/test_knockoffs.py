"""`KnockoffSelector`: ``E[false / selected] <= fdr``, by simulation; and its power beside knockoffs made from the rows.

Independent and correlated columns, Gaussian and heavy-tailed; the least number of rows; no true column; copies; sites
whose files are merged; several draws; model knockoffs of numbers and of classes.
"""

import warnings
from typing import Any

import numpy as np
import pytest
from tests.solvers.test_knockoffs import equicorrelated, statsmodels

from sketchselect.execution import summarize
from sketchselect.selectors import KnockoffSelector
from sketchselect.solvers import standardize
from sketchselect.solvers.knockoffs import (
    Augmented,
    construct,
    draw_fixed,
    entry_statistics,
    knockoff_threshold,
    ridge_statistics,
)
from sketchselect.summaries import Moments

from .instances import NIGHTLY

P, N_TRUE = 30, 10
SETTINGS: dict[str, dict[str, Any]] = {
    "fixed": {},
    "correlated": {"rho": 0.6},
    "heavy tails": {"tails": 3},
    "least rows": {"n": 2 * P + 1, "strength": 8.0},
    "no true column": {"strength": 0.0},
    "copies": {"copies": 6},
    "sites": {"sites": 5},
    "draws": {"draws": 5},
    "ridge": {"statistic": "ridge"},
    "model": {"knockoffs": "model"},
    "model, a small eigenvalue": {"knockoffs": "model", "n": 300, "mixing": 0.3, "strength": 17.0},
    "model, a small eigenvalue, few rows": {"knockoffs": "model", "n": 100, "mixing": 0.3, "strength": 10.0},
    "model, copies": {"knockoffs": "model", "copies": 6},
    "wide": {"n": 25, "strength": 10.0},
    "wide, a small eigenvalue": {"n": 25, "mixing": 0.3, "strength": 10.0},
    "classes": {"classes": 2, "n": 600},
    "four classes": {"classes": 4, "n": 600},
}
FDR = 0.2


def problem(seed: int, setting: dict[str, Any]) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Return rows, a numeric target, the true columns, and the options of the setting that are left."""
    options = dict(setting)
    n, rho = options.pop("n", 200), options.pop("rho", 0.3)
    mixing, strength, tails, copies = (
        options.pop("mixing", 0.0),
        options.pop("strength", 4.0),
        options.pop("tails", None),
        options.get("copies", 0),
    )
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, P)) if tails is None else rng.standard_t(tails, (n, P))
    for j in range(1, P):
        X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho * rho) * X[:, j]
    X @= np.eye(P) + mixing * rng.standard_normal((P, P))
    if copies:
        X[:, -copies:] = X[:, :copies] * 3.0
    true = rng.choice(P - copies, N_TRUE, replace=False)
    y = (X[:, true] * rng.choice([-1.0, 1.0], N_TRUE)).sum(axis=1) * strength / np.sqrt(n) + rng.standard_normal(n)
    return X, y, true if strength else true[:0], options


def share_of_false(seed: int, setting: dict[str, Any]) -> tuple[float, float]:
    """Return the share of false columns among those selected, and of true ones that are."""
    X, y, true, options = problem(seed, setting)
    sites, n_classes, copies = options.pop("sites", 1), options.pop("classes", 0), options.pop("copies", 0)
    classes = None
    if n_classes:
        y = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
        classes = tuple(range(n_classes))
    summary: Any = None
    for rows in np.array_split(np.arange(y.size), sites):
        part = summarize(X[rows], Moments(classes=classes), y=y[rows])
        summary = part if summary is None else summary.merge(part)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(6|12|30) columns")
        selector = KnockoffSelector(fdr=FDR, random_state=seed, **options).fit_summary(summary)
    # A copy of a true column says what the true one says: no selection of either is false.
    chosen = selector.support_
    is_true = np.zeros(P, dtype=bool)
    is_true[true] = True
    if copies:
        is_true[-copies:] = is_true[:copies]
    return float((~is_true[chosen]).sum() / max(chosen.size, 1)), float(is_true[chosen].sum() / N_TRUE)


FAST, ALL = range(24), range(24, 424)

each_repetition = pytest.mark.parametrize("seeds", [FAST, pytest.param(ALL, marks=NIGHTLY)], ids=["fast", "all"])


def power_of_rows(seed: int, setting: dict[str, Any]) -> float:
    """Return the share of true columns that fixed-X knockoffs select that are made as columns, from the rows."""
    X, y, true, _ = problem(seed, setting)
    n = y.size
    centred = X - X.mean(axis=0)
    centred /= np.sqrt((centred**2).sum(axis=0))
    made = construct(centred.T @ centred)
    rng = np.random.default_rng([seed, 1])
    known = np.column_stack([np.ones(n), centred, rng.standard_normal((n, P))])
    complement = np.linalg.qr(known)[0][:, P + 1 :]
    both = np.hstack([centred, centred @ made.mixing + complement @ made.root])
    template = standardize(centred.T @ centred, centred.T @ y, y @ y, mean=np.zeros(P), y_mean=0.0, n=1.0)
    statistics = entry_statistics(Augmented(both.T @ both, (both.T @ (y - y.mean()))[:, None]), template, seed)
    return float(np.isin(np.flatnonzero(statistics >= knockoff_threshold(statistics, FDR)), true).sum() / N_TRUE)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("setting", ["fixed", "correlated", "heavy tails"])
def test_power_is_that_of_knockoffs_made_from_the_rows(setting: str) -> None:
    pairs = [(share_of_false(i, SETTINGS[setting])[1], power_of_rows(i, SETTINGS[setting])) for i in range(400)]
    differences = np.subtract(*np.transpose(pairs))
    assert abs(differences.mean()) <= 0.02 + 3 * differences.std() / np.sqrt(differences.size)


def powers_beside_statsmodels(seed: int, setting: dict[str, Any]) -> tuple[float, float]:
    """Return the shares of true columns that are selected by ridge coefficients: knockoffs drawn, and statsmodels'."""
    RegressionFDR, ridge = statsmodels()
    X, y, true, _ = problem(seed, setting)
    X, y = X - X.mean(axis=0), y - y.mean()
    peer = RegressionFDR(y, X, ridge(y.size), rng=[seed, 1])
    allowed = peer.stats[(peer.stats > 0) & (peer.fdrp <= FDR)]
    X /= np.linalg.norm(X, axis=0)
    S, xy = X.T @ X, X.T @ y
    rss = float(y @ y - xy @ np.linalg.solve(S, xy))
    drawn = ridge_statistics(draw_fixed(equicorrelated(S), S, xy, rss, y.size - 1 - P, seed))
    thresholds = knockoff_threshold(drawn, FDR), np.min(allowed, initial=np.inf)
    chosen = (np.flatnonzero(least <= W) for W, least in zip((drawn, peer.stats), thresholds, strict=True))
    ours, theirs = (float(np.isin(columns, true).sum() / N_TRUE) for columns in chosen)
    return ours, theirs


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("setting", ["fixed", "correlated", "heavy tails"])
def test_power_is_that_of_statsmodels_and_gaps_of_least_variance_have_no_less(setting: str) -> None:
    options = SETTINGS[setting]
    differences = np.subtract(*np.transpose([powers_beside_statsmodels(i, options) for i in range(400)]))
    assert abs(differences.mean()) <= 0.02 + 3 * differences.std() / 20
    ridge = {**options, "statistic": "ridge"}
    gains = [share_of_false(i, ridge)[1] - powers_beside_statsmodels(i, options)[1] for i in range(400)]
    assert np.mean(gains) >= -0.02 - 3 * np.std(gains) / 20


@pytest.mark.share(4)
@each_repetition
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_expected_share_of_false_columns_is_kept(setting: str, seeds: range) -> None:
    shares = np.array([share_of_false(seed, SETTINGS[setting]) for seed in seeds])
    # Four standard errors of the mean: exceeded by chance less often than once in ten thousand.
    error = shares[:, 0].std() / np.sqrt(len(seeds))
    assert shares[:, 0].mean() <= FDR + 4 * error


def main() -> None:
    """Print the realised shares of all settings."""
    for name, setting in SETTINGS.items():
        shares = np.array([share_of_false(seed, setting) for seed in range(400)])
        false, true = shares.mean(axis=0)
        print(f"{name:16} false {false:.3f} +- {shares[:, 0].std() / 20:.3f}  true {true:.3f}")


if __name__ == "__main__":
    main()
