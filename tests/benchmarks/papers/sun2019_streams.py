"""Sections 5.2 and 5.3 of Sun, Guo and Barbu (2019): regret along a stream, and coefficients that change."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import online_baselines as online
from sun2019_data import row_blocks, sample_of, true_coefficients

from sketchselect.solvers import Problem, anneal, least_squares, standardize, threshold
from sketchselect.summaries import DecayedMoments, Moments

EXTRACT = {"OLS-th": threshold, "OFSA": anneal}


def moments_problem(moments: Any) -> Problem:
    """Return the least-squares problem of some moments."""
    return standardize(
        moments.covariance(), moments.xy, moments.yy, mean=moments.mean, y_mean=moments.y_mean, n=moments.n_effective
    )


# --- regret ------------------------------------------------------------------------------------------------------


def checkpoints(first: int, last: int, ratio: float = 1.25) -> list[int]:
    """Return growing numbers of rows, each some `ratio` times the one before."""
    out = [first]
    while out[-1] < last:
        out.append(min(last, max(out[-1] + 1, int(out[-1] * ratio))))
    return out


def regret(p: int, k: int, beta: float, last: int, seed: int, burn_in: int = 1000) -> dict[str, list[float]]:
    """Return n and the regret of each method after n rows, counted from row `burn_in` on.

    ``R_n = (1/n) sum (y_i - x_i b_i)^2 - min over the true support``; b_i of the moments' methods is extracted at each
    checkpoint from the rows before it, TSGD and SADMM change with every row.
    """
    rng = np.random.default_rng(seed)
    b = true_coefficients(p, k, beta)
    support = np.flatnonzero(b)
    summary, scored = Moments().empty(p, 1), Moments().empty(k, 1)
    w = np.zeros(p)
    state = [np.zeros((1, p)) for _ in range(3)]
    t = 0
    loss = dict.fromkeys((*EXTRACT, "TSGD", "SADMM"), 0.0)
    models: dict[str, tuple[np.ndarray, float]] = {}
    curves: dict[str, list[float]] = {"n": [], **{name: [] for name in loss}}
    seen = 0
    for edge in checkpoints(burn_in, last):
        for X, noise in row_blocks(rng, edge - seen, p):
            y = X @ b + noise
            losses = np.empty((2, len(y)))
            online.tsgd(X, y, w, k, 0.1, losses[0])
            t = online.sadmm(X, y, *state, np.array([0.05 * (1 + beta * k)]), 1.0, 1 / p, t, losses[1])
            if seen >= burn_in:
                loss["TSGD"] += losses[0].sum()
                loss["SADMM"] += losses[1].sum()
                for name, (coef, intercept) in models.items():
                    loss[name] += ((y - X @ coef - intercept) ** 2).sum()
                scored = scored.update(X[:, support], y)
            summary = summary.update(X, noise)
        seen = edge
        problem = sample_of(summary).problem(b)
        for name, extract in EXTRACT.items():
            coef, intercept = problem.original_units(least_squares(problem, extract(problem, k).support)[:, 0])
            models[name] = coef, float(intercept)
        if seen > burn_in:
            best = moments_problem(scored)
            least = best.rss(least_squares(best, np.arange(k))[:, 0])
            curves["n"].append(seen - burn_in)
            for name, total in loss.items():
                curves[name].append(total / (seen - burn_in) - least)
    return curves


def slope(n: list[float], values: list[float]) -> float:
    """Return the exponent of a regret curve over its last factor of ten in n; NaN where it is not positive."""
    x, y = np.asarray(n, float), np.asarray(values)
    late = (x >= x[-1] / 10) & (y > 0)
    return float(np.polyfit(np.log(x[late]), np.log(y[late]), 1)[0]) if late.sum() > 2 else float("nan")


# --- coefficients that change ------------------------------------------------------------------------------------


def sine(period: float, a: float, b: float, k: int, length: float) -> np.ndarray:
    """Return the k coefficients of a period, eq. 17."""
    j = np.arange(1, k + 1)
    return a * np.sin(2 * np.pi * (period - 100 * j) / length) + b


def sine_stream(rng: np.random.Generator, first: int, last: int, k: int, p: int) -> Iterator[Any]:
    """Yield (period, X, y) of the first experiment: 1000 rows a period, ten sine coefficients with T = 1000."""
    support = np.arange(p // k - 1, p, p // k)
    for period in range(first, last):
        X, noise = next(row_blocks(rng, 1000, p))
        yield period, X, X[:, support] @ sine(period, 0.4, 0.6, k, 1000) + noise


def pricing_stream(rng: np.random.Generator, first: int, last: int, k: int, p: int) -> Iterator[Any]:
    """Yield (period, X, y) of the second: demand, 200 rows a period; column 0 is the price, uniform on [10, 20]."""
    support = np.arange(p // k - 1, p, p // k)[1:]
    for period in range(first, last):
        X, noise = next(row_blocks(rng, 200, p))
        X[:, 0] = rng.uniform(10, 20, len(X))
        beta = sine(period, 0.2, 0.4, k, 2000)[1:]
        yield period, X, 5.0 - 0.5 * X[:, 0] + X[:, support] @ beta + noise


STREAMS = {"sine": (sine_stream, 1000), "pricing": (pricing_stream, 2000)}


def adaptation(which: str, seed: int, *, p: int = 100, k: int = 10, scored: int = 300, n_scored: int = 20) -> dict:
    """Return RMSE of predicting the next period, with and without forgetting.

    Scored are `n_scored` of the last `scored` periods. Forgetting is ``alpha = 0.01`` for each observation, a factor of
    0.99 a row: what lies ten periods back has a weight below one part in 1e8 and is not gathered.
    """
    make, last = STREAMS[which]
    rng = np.random.default_rng([seed, 53])
    names = {"with adaptation": DecayedMoments(decay=0.99), "without adaptation": Moments()}
    states: dict[str, Any] = {name: description.empty(p, 1) for name, description in names.items()}
    errors: dict[str, list[float]] = {name: [] for name in names}
    times = set(np.linspace(last - scored, last - 1, n_scored).astype(int).tolist())
    waiting: list[tuple[np.ndarray, np.ndarray]] = []

    def gather() -> None:
        if waiting:
            rows, targets = (np.concatenate(parts) for parts in zip(*waiting, strict=True))
            states["without adaptation"] = states["without adaptation"].update(rows, targets)
            waiting.clear()

    for period, X, y in make(rng, 0, last, k, p):
        if period in times:
            # Rows without a factor may be gathered in any portions: in large ones, that is faster.
            gather()
            for name, state in states.items():
                problem = moments_problem(state)
                coef, intercept = problem.original_units(anneal(problem, k).coef[:, 0])
                errors[name].append(float(np.mean((y - X @ coef - intercept) ** 2)))
        if any(0 <= at - period <= 10 for at in times):
            states["with adaptation"] = states["with adaptation"].update(X, y, start=period * len(y))
        waiting.append((X, y))
        if len(waiting) >= 50:
            gather()
    return {name: float(np.sqrt(np.mean(e))) for name, e in errors.items()}
