"""Speed of the solvers on moments as ratios to what others take for the same models, in one run.

Run: ``python tests/benchmarks/bench_solvers.py`` (some minutes, 2.5 GB for p = 10,000); ``--quick`` for a smoke run,
``--large`` for the size of the source's Table 6 (four minutes, 4 GB).
The columns are those of Sun, Guo and Barbu 2019: every two have correlation 0.5, every tenth one has an effect of 1.
"""

import argparse
import importlib.util
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import enet_path, lars_path_gram
from timing import paired

from sketchselect.solvers import MCP, SCAD, Lasso, Problem, anneal, homotopy_path, solve_path, standardize, threshold
from sketchselect.solvers.annealing import schedule
from sketchselect.solvers.knockoffs import construct, draw_fixed, entry_statistics

sys.path.insert(0, str(Path(__file__).parent / "papers"))
from sun2019_data import draw_sample, true_coefficients


def simulate(n: int, p: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, Problem]:
    """Return standardised rows, centred target, and their problem."""
    rng = np.random.default_rng(seed)
    x = np.sqrt(0.5) * rng.standard_normal((n, 1)) + np.sqrt(0.5) * rng.standard_normal((n, p))
    y = x[:, 9::10].sum(axis=1) + rng.standard_normal(n)
    x = np.asfortranarray((x - x.mean(axis=0)) / x.std(axis=0))
    y -= y.mean()
    return x, y, standardize(x.T @ x / n, x.T @ y / n, y @ y / n, mean=np.zeros(p), y_mean=0.0, n=n)


def equicorrelated(p: int) -> Problem:
    """Return a problem of this size without rows: a correlation of 0.5 everywhere."""
    correlation = np.full((p, p), 0.5)
    np.fill_diagonal(correlation, 1.0)
    effect = np.zeros(p)
    effect[9::10] = 1.0
    xy = correlation @ effect
    return standardize(correlation, xy, effect @ xy + 1.0, mean=np.zeros(p), y_mean=0.0, n=10 * p, reuse_memory=True)


def rows_with_skglm(x: np.ndarray, y: np.ndarray, alphas: np.ndarray) -> Callable[[], Any] | None:
    """Return the MCP path on the raw matrix with skglm, or None if that is not installed."""
    if importlib.util.find_spec("skglm") is None:
        return None
    from skglm.datafits import Quadratic
    from skglm.penalties import MCPenalty
    from skglm.solvers import AndersonCD

    solver = AndersonCD(tol=1e-6, fit_intercept=False, warm_start=True)
    return lambda: solver.path(x, y, Quadratic(), MCPenalty(alphas[0], 3.0), alphas=alphas)


def knockoffs(p: int, repeats: int) -> str:
    """Return the line of one draw of fixed-X knockoffs, of columns of which neighbours have correlation 0.3."""
    lags = np.abs(np.subtract.outer(np.arange(p), np.arange(p)))
    correlation, rng = 0.3**lags, np.random.default_rng(0)
    effects = np.where(np.arange(p) % 10 == 0, 4 / np.sqrt(3 * p), 0.0)
    # Least squares of 3p rows: the effects, and noise of the covariance of their estimates.
    xy = correlation @ effects + np.linalg.cholesky(correlation) @ rng.standard_normal(p) / np.sqrt(3 * p)
    total = 1.0 + float(effects @ correlation @ effects)
    rss = max(total - float(xy @ np.linalg.solve(correlation, xy)), 0.0)
    problem = standardize(correlation, xy, total, mean=np.zeros(p), y_mean=0.0, n=3.0 * p)

    def draw() -> Any:
        return draw_fixed(construct(correlation), correlation, xy, rss, 2 * p - 1, 0)

    moments = draw()
    doubled = standardize(moments.gram, moments.xy, total, mean=np.zeros(2 * p), y_mean=0.0, n=3.0 * p)

    def floor() -> None:
        np.linalg.cholesky(correlation)
        np.linalg.eigh(correlation)
        homotopy_path(doubled)

    result = paired(lambda: entry_statistics(draw(), problem, 0), floor, repeats)
    return result.line(f"knockoffs, one draw, p = {p:,} / factors and lasso path of 2p", "<= 2.0")


def lines(quick: bool) -> Iterator[str]:
    """Yield one line per promise."""
    n, p, repeats = (1000, 200, 1) if quick else (10_000, 1000, 3)
    x, y, problem = simulate(n, p)
    alphas = solve_path(problem, MCP()).alphas
    theirs = rows_with_skglm(x, y, alphas)
    if theirs is None:
        yield "skglm is not installed: no MCP path on the raw matrix"
    else:
        # Ours to a violation of 1e-10, theirs to 1e-6; the accumulation of the moments is not counted.
        result = paired(lambda: solve_path(problem, MCP()), theirs, repeats)
        yield result.line(f"MCP path, 100 alphas, p = {p} / skglm on {n:,} rows", "<= 0.05")

    gram, xy = x.T @ x, x.T @ y
    path = solve_path(problem, Lasso(), n_alphas=200)
    for tol in (1e-4,) if quick else (1e-4, 1e-6):

        def scikit_learn(tol: float = tol) -> Any:
            return enet_path(
                x,
                y,
                l1_ratio=1.0,
                alphas=path.alphas,
                precompute=gram,
                Xy=xy,
                tol=tol,
                max_iter=10_000,
                check_input=False,
            )

        result = paired(lambda: solve_path(problem, Lasso(), n_alphas=200), scikit_learn, repeats)
        yield result.line(f"lasso path, 200 alphas, p = {p} / scikit-learn at tol {tol:g}", "<= 0.33")
    result = paired(lambda: solve_path(problem, SCAD()), lambda: solve_path(problem, MCP()), repeats)
    yield result.line(f"SCAD path / MCP path, p = {p}", "none")

    p = 300 if quick else 2000
    _, _, problem = simulate(1000 if quick else 5000, p)
    gram, xy, k = problem.correlation * problem.n, problem.xy[:, 0] * problem.n, 100
    result = paired(
        lambda: homotopy_path(problem, max_features=k),
        lambda: lars_path_gram(xy, gram, n_samples=int(problem.n), max_iter=k, method="lasso"),
        3 * repeats,
    )
    yield result.line(f"lasso to {k} columns, p = {p} / lars_path_gram", "<= 1.0")
    for name, other in (
        ("annealing", lambda: anneal(problem, k)),
        ("annealing by Newton steps", lambda: anneal(problem, k, newton=True)),
    ):
        result = paired(other, lambda: threshold(problem, k), repeats)
        yield result.line(f"{name} to {k} columns / thresholded OLS, p = {p}", "none")

    yield knockoffs(100 if quick else 1000, 1)

    p = 1000 if quick else 10_000
    problem = equicorrelated(p)
    copies = np.empty((p, p))

    def factorise() -> Any:
        # LAPACK overwrites its input, so a copy belongs to the floor as well: ours must leave the problem alone.
        np.copyto(copies, problem.correlation)
        return dpotrf(copies.T, lower=1, clean=0, overwrite_a=1)

    result = paired(lambda: threshold(problem, p // 10), factorise, repeats)
    yield result.line(f"thresholded OLS, p = {p:,} / one Cholesky factorisation", "<= 1.3")


def large(quick: bool) -> Iterator[str]:
    """Yield one line per solver at the size of the source's Table 6: a weak signal in a tenth of the columns.

    The first line is of knockoffs of 2,000 columns.
    """
    yield knockoffs(200 if quick else 2000, 1)
    p, n = (1000, 10_000) if quick else (10_000, 100_000)
    k = p // 10
    problem = draw_sample(np.random.default_rng(0), n, p).problem(true_coefficients(p, k, 0.01))
    matrix = problem.correlation
    kept = np.concatenate([[p], schedule(p, k, 500)[:-1]])

    def sweeps() -> None:
        # One product with the columns that are left per iteration; a row of blocks stands for blocks of any size.
        vector = np.ones(p)
        for size in kept:
            rows = max(1, int(size) ** 2 // p)
            matrix[:rows] @ vector

    result = paired(lambda: anneal(problem, k), sweeps, 1)
    yield result.line(f"annealing, p = {p:,} to {k:,} / one sweep per iteration", "15 s")
    result = paired(lambda: anneal(problem, k, newton=True), lambda: threshold(problem, k), 1)
    sizes = np.unique(np.append(schedule(p, k, 40), p)) / p
    yield result.line(f"  by Newton steps, p = {p:,} / thresholded OLS", f"{(sizes**3).sum():.1f} by operations")
    for penalty in (MCP(), SCAD(), Lasso()):
        for ratio in (None, 0.47):
            began = time.perf_counter()
            path = solve_path(problem, penalty, max_features=k, alpha_ratio=ratio)
            yield (
                f"{penalty.name} path, p = {p:,}, {len(path)} alphas to {path.n_nonzero.max():,} of {k:,} columns, "
                f"ratio {ratio}: {time.perf_counter() - began:.1f} s   target 60 s; gap {path.optimality.max():.0e}"
            )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast")
    parser.add_argument("--large", action="store_true", help="only p = 10,000 (4 GB): annealing and paths to 1000")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    for line in (large if options.large else lines)(options.quick):
        print(line, flush=True)


if __name__ == "__main__":
    main()
