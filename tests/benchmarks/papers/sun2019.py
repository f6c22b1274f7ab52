"""Sun, Guo and Barbu (2019), "A novel framework for online supervised learning with feature selection", anew.

Run: ``python tests/benchmarks/papers/sun2019.py`` (about half an hour on two cores); ``--quick`` for a smoke run;
``--table 2 --table 4`` for some parts (2, 3, 4, 5, 6, "paths", "regret"); ``--json FILE`` writes figures as records.

Tables 2, 3 and 6 print detection rate, RMSE or AUC, and seconds beside the paper's. Moments of Gaussian rows are drawn
from their exact distribution, so that a repetition costs the same for any n; seconds of accumulating are of real rows
through `Moments`. RMSE and AUC are exact expectations for the estimate over new rows. Nothing holds n x p numbers but
the libraries that take the raw matrix.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import sun2019_paper as paper
import sun2019_real as real
import sun2019_streams as streams
import sun2019_tables as tables

PARTS = ("paths", "2", "3", "4", "5", "6", "regret")
Records = list[dict[str, Any]]


def tenth(p: int) -> int:
    """Return the number of true columns."""
    return p // 10


def by_size(rows: list[paper.Row]) -> dict[tuple[int, int], list[float]]:
    """Return (p, n) -> signals: what shares its columns in one draw."""
    out: dict[tuple[int, int], list[float]] = {}
    for p, beta, n in rows:
        out.setdefault((p, n), []).append(beta)
    return out


def repeated(work: Callable[[int], None], repetitions: int, minutes: float) -> None:
    """Call `work` with 0, 1, ...; at least once, and as often as the time allows."""
    began = time.perf_counter()
    for repetition in range(repetitions):
        work(repetition)
        used = time.perf_counter() - began
        if used * (repetition + 2) / (repetition + 1) > 60 * minutes:
            return


def regression_rows(rows: list[paper.Row], options: argparse.Namespace, minutes: float) -> Any:
    """Return the cells of rows of Tables 2 and 6."""
    cells = tables.new_cells()
    wide = rows[0][0] > 5000
    methods = ["OLS-th", "OFSA", "OElnet", "OMCP"]
    sizes = by_size(rows)
    for n_done, ((p, n), betas) in enumerate(sizes.items()):

        def once(repetition: int, p: int = p, n: int = n, betas: list[float] = betas) -> None:
            rng = np.random.default_rng([2019, p, n, repetition])
            # Paths of a wide problem take longer than all else; one repetition has a thousand true columns to find.
            most = (4 if options.large_mcp else 3) if repetition == 0 else 2
            chosen = methods[:most] if wide else methods
            tables.regression(p, tenth(p), betas, n, chosen, rng, cells)

        began = time.perf_counter()
        repeated(once, options.repetitions, minutes / (len(sizes) - n_done))
        minutes -= (time.perf_counter() - began) / 60
    return cells


def accumulation(p: int, sizes: list[int], most: int) -> Iterator[str]:
    """Yield seconds of accumulating real rows; beyond `most` rows, in proportion."""
    rows = min(max(sizes), most)
    seconds, _ = tables.accumulating(p, rows)
    for n in sizes:
        theirs = next(v["accumulate"][2] for row, v in paper.REGRESSION.items() if (row[0], row[2]) == (p, n))
        how = "measured" if n == rows else f"in proportion to {rows} rows"
        yield f"  accumulating n = {n}: {seconds * n / rows:.3f} s ({how}); paper {theirs:g} s"


def table_2_or_6(number: str, options: argparse.Namespace) -> Records:
    """Print and return a table of regression."""
    found: Records = []
    rows = [row for row in paper.REGRESSION if (row in paper.IN_TABLE_2) == (number == "2")]
    for p in sorted({row[0] for row in rows}):
        mine = [row for row in rows if row[0] == p]
        if options.quick:
            mine = [row for row in mine if row[2] <= 3000 and p == 1000][:2]
        if not mine:
            continue
        cells = regression_rows(mine, options, options.minutes * (0.45 if p > 5000 else 0.1))
        if p <= 5000:
            largest = 1000 if options.quick else 10_000
            for p_, beta, n in [row for row in mine if row[2] <= largest]:
                tables.baselines(p_, tenth(p_), beta, n, 0, cells, labels=False, batch=not options.quick)
        for line in tables.lines(cells, paper.REGRESSION, tenth, "RMSE", f"Table {number}: regression"):
            print(line)
        for line in accumulation(
            p, sorted({row[2] for row in mine}), 2000 if options.quick else 100_000 if p <= 5000 else 8192
        ):
            print(line)
        found += tables.records(cells, paper.REGRESSION, number)
    return found


def table_3(options: argparse.Namespace) -> Records:
    """Print and return the table of classification."""
    cells = tables.new_cells()
    rows = list(paper.CLASSIFICATION)[:1] if options.quick else list(paper.CLASSIFICATION)
    minutes = options.minutes * 0.1 / len(rows)
    for p, beta, n in rows:

        def once(repetition: int, p: int = p, beta: float = beta, n: int = n) -> None:
            rng = np.random.default_rng([3, int(1000 * beta), n, repetition])
            tables.classification(p, tenth(p), beta, n, ["OFSA", "OLS-th", "OLasso", "OMCP"], rng, cells)

        repeated(once, options.repetitions, minutes)
        if n <= 10_000 and not options.quick:
            tables.baselines(p, tenth(p), beta, n, 0, cells, labels=True, batch=False)
    for line in tables.lines(cells, paper.CLASSIFICATION, tenth, "AUC", "Table 3: classification"):
        print(line)
    return list(tables.records(cells, paper.CLASSIFICATION, "3"))


def table_4(options: argparse.Namespace) -> Records:
    """Print and return section 5.3: both streams of changing coefficients."""
    found: Records = []
    print("\nTable 4 and section 5.3: RMSE of the next period, noise 1, over the last 300 periods")
    for which in ["sine"] if options.quick else streams.STREAMS:
        scores: list[dict[str, float]] = []

        def once(seed: int, which: str = which, scores: list[dict[str, float]] = scores) -> None:
            scores.append(streams.adaptation(which, seed, n_scored=3 if options.quick else 20))

        repeated(once, 2 if options.quick else options.repetitions, options.minutes * 0.07)
        runs = len(scores)
        for name in scores[0]:
            values = [s[name] for s in scores]
            error = np.std(values, ddof=1) / np.sqrt(runs) if runs > 1 else np.nan
            printed = f"paper {paper.ADAPTATION[name]:.3f}" if which == "sine" else "paper: figure only"
            print(f"  {which:<8} {name:<20} {np.mean(values):.4f} +- {error:.4f}   {printed}   ({runs} runs)")
            found.append({"table": "4", "data": which, "method": name, "metric": float(np.mean(values)), "runs": runs})
    return found


def table_5(options: argparse.Namespace) -> Records:
    """Print and return the real data that are there, and say which are not."""
    print("\nTable 5: mean test score over random splits of 80 % / 20 %, best number of columns")
    found: Records = []
    if options.data is None or not options.data.is_dir():
        print("  no folder with data (--data)")
    else:
        for records in real.studies(options.data, 1 if options.quick else options.repetitions, small=options.quick):
            for r in records:
                metric = "AUC" if "AUC" in r else "R2"
                columns = f"k = {r['k']}" if r["k"] else "all"
                print(
                    f"  {r['data']:<24} degree {r['degree']}  {r['method']:<14} {columns:<8} {metric} {r[metric]:.3f}"
                )
            found += [{"table": "5", **r} for r in records]
    print("  " + paper.REAL_DATA.replace("\n", "\n  "))
    return found


def paths(options: argparse.Namespace) -> Records:
    """Print the paths of Figure 1."""
    print("\nFigure 1: paths of OLS-th and the lasso on 1,176 rows of Year Prediction MSD")
    for line in real.paths(options.data) if options.data is not None else ["  no folder with data (--data)"]:
        print(line)
    return []


def regret(options: argparse.Namespace) -> Records:
    """Print and return the curves of Figures 3 and 4, and their exponents."""
    p, k, last = (100, 10, 20_000) if options.quick else (1000, 100, 100_000)
    print(
        f"\nFigures 3 and 4: regret, p = {p}, k = {k}; exponent over the last factor of ten (Theorem 5: -1 with log n)"
    )
    found: Records = []
    for beta in (1.0, 0.1, 0.01):
        runs = [streams.regret(p, k, beta, last, seed) for seed in range(1 if options.quick else options.regret_runs)]
        curves = {name: np.mean([run[name] for run in runs], axis=0).tolist() for name in runs[0]}
        for name, values in curves.items():
            if name == "n":
                continue
            exponent = streams.slope(curves["n"], values)
            picks = "  ".join(f"{curves['n'][i]:.0f}: {values[i]:.4g}" for i in range(0, len(values), 4))
            print(f"  beta = {beta:<5g} {name:<8} exponent {exponent:6.2f}   {picks}")
            found.append({"table": "regret", "beta": beta, "method": name, "n": curves["n"], "regret": values})
    return found


def main() -> None:
    """Print the parts asked for, and write the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="append", choices=PARTS, help="a part; all by default")
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--regret-runs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=28.0, help="about how long all tables may take")
    parser.add_argument("--large-mcp", action="store_true", help="MCP also at p = 10,000, minutes for each row")
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    parser.add_argument("--data", type=Path, default=None, help="folder of madelon.npz, arcene.npz, ...")
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    if options.quick:
        options.repetitions = min(options.repetitions, 2)
    found: Records = []
    for part in options.table or PARTS:
        began = time.perf_counter()
        if part in "26":
            found += table_2_or_6(part, options)
        else:
            works = {"3": table_3, "4": table_4, "5": table_5, "paths": paths, "regret": regret}
            found += works[part](options)
        print(f"[part {part}: {time.perf_counter() - began:.0f} s]", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
