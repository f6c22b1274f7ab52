"""`KnockoffSelector`: ``E[false / selected] <= fdr``, by simulation; and its power beside knockoffs made from the rows.

Independent and correlated columns, Gaussian and heavy-tailed; the least number of rows; no true column; copies; sites
whose files are merged; several draws; model knockoffs of numbers and of classes.
"""

import warnings
from typing import Any

import numpy as np
import pytest

from sketchselect.execution import summarize
from sketchselect.selectors import KnockoffSelector
from sketchselect.summaries import Moments

from .instances import each_instance

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
    "wide": {"n": 25, "strength": 10.0},
    "classes": {"classes": 2, "n": 600},
    "four classes": {"classes": 4, "n": 600},
}
FDR = 0.2


def share_of_false(seed: int, setting: dict[str, Any]) -> tuple[float, float]:
    """Return the share of false columns among those selected, and of true ones that are."""
    options = dict(setting)
    n, rho = options.pop("n", 200), options.pop("rho", 0.3)
    strength, tails, copies = options.pop("strength", 4.0), options.pop("tails", None), options.pop("copies", 0)
    sites, n_classes = options.pop("sites", 1), options.pop("classes", 0)
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, P)) if tails is None else rng.standard_t(tails, (n, P))
    for j in range(1, P):
        X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho * rho) * X[:, j]
    if copies:
        X[:, -copies:] = X[:, :copies] * 3.0
    true = rng.choice(P - copies, N_TRUE, replace=False)
    y = (X[:, true] * rng.choice([-1.0, 1.0], N_TRUE)).sum(axis=1) * strength / np.sqrt(n) + rng.standard_normal(n)
    classes = None
    if n_classes:
        y = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
        classes = tuple(range(n_classes))
    summary: Any = None
    for rows in np.array_split(np.arange(n), sites):
        part = summarize(X[rows], Moments(classes=classes), y=y[rows])
        summary = part if summary is None else summary.merge(part)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "6 columns|12 columns")
        selector = KnockoffSelector(fdr=FDR, random_state=seed, **options).fit_summary(summary)
    # A copy of a true column says what the true one says: no selection of either is false.
    chosen = selector.support_
    is_true = np.zeros(P, dtype=bool)
    is_true[true if strength else []] = True
    if copies:
        is_true[-copies:] = is_true[:copies]
    return float((~is_true[chosen]).sum() / max(chosen.size, 1)), float(is_true[chosen].sum() / N_TRUE)


@each_instance
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
