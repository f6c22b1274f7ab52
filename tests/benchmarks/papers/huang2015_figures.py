"""The figures of Huang et al. (2015) as tables: effect of alpha, drift, batch sizes, efficient storage."""

from functools import reduce
from types import SimpleNamespace
from typing import Any

import numpy as np
from gfw import ridge_against_lasso, top_directions
from huang2015_methods import batches, best, by_date, fsds, nmi_of, scorers, stream_scores, timed
from real_data import DataSet

from sketchselect.selectors.sketched import ridge_weights


def _subsets(data: DataSet, n_subsets: int, n_rows: int = 2000):
    for seed in range(n_subsets):
        rows = np.sort(np.random.default_rng(seed).permutation(len(data.y))[:n_rows])
        yield data.select[rows], data.cluster[rows], data.y[rows]


def ridge_or_lasso(data: DataSet, n_subsets: int, n_init: int) -> None:
    """Figure 1: top 1000 columns by ridge and by lasso, on random subsets of 2,000 rows."""
    k, wins, slower = data.n_clusters, 0, []
    for place, (select, cluster, y) in enumerate(_subsets(data, n_subsets)):
        *chosen, ridge_seconds, lasso_seconds = ridge_against_lasso(select, k, min(1000, select.shape[1] // 2))
        ridge, lasso = (nmi_of(cluster, y, k, columns, range(3), n_init).mean() for columns in chosen)
        wins += lasso >= ridge
        slower.append(lasso_seconds / ridge_seconds)
        print(f"  subset {place}: NMI ridge {ridge:.3f}, lasso {lasso:.3f}; lasso takes {slower[-1]:.0f} times as long")
    print(f"  lasso at least as good on {wins} of {n_subsets} subsets, {np.median(slower):.0f} times as slow")


def effect_of_alpha(data: DataSet, n_subsets: int, n_init: int) -> None:
    """Figure 2: NMI of the top 1000 columns against alpha = 2^i sigma_k, offline, on random subsets of 2,000 rows."""
    k, powers = data.n_clusters, (-2, 0, 1, 2, 3, 4, 5, 6, 8)
    found = np.zeros((n_subsets, len(powers) + 1))
    used = np.zeros(n_subsets)
    for place, (select, cluster, y) in enumerate(_subsets(data, n_subsets)):
        squares, vectors = top_directions(select, k)
        sigma = float(np.sqrt(squares[-1]))
        used[place] = np.log2(sigma)
        for j, alpha in enumerate([*(2.0**i * sigma for i in powers), "auto"]):
            columns = best(ridge_weights(squares, vectors, k, alpha)[0], min(1000, select.shape[1] // 2))
            found[place, j] = nmi_of(cluster, y, k, columns, range(2), n_init).mean()
    means, spread = found.mean(axis=0), found.std(axis=0) / np.sqrt(n_subsets)
    for name, mean, se in zip([*(f"i = {i}" for i in powers), "sigma_k^2 (auto)"], means, spread, strict=True):
        print(f"  {name:<18} {mean:.3f} +- {se:.3f}")
    print(f"  sigma_k^2 is 2^i sigma_k with i = {used.mean():.1f} here")


def drift(n_columns: int, seeds: int, n_init: int, n_first: int = 2000, step: int = 1000) -> dict[str, Any] | None:
    """Figure 5: documents of TDT2 by date; the columns of the first 2,000 against those of all rows so far."""
    data = by_date()
    if data is None:
        return None
    names = ("static", "adapting", "half-life 2,000")
    adapting, fading = fsds(data, n_columns), fsds(data, n_columns, half_life=2000.0)
    rows: dict[str, list[Any]] = {"steps": [], **{f"{n}, {what}": [] for what in ("all", "new") for n in names}}
    static = None
    print(f"  {n_columns} columns; k-means on all rows so far, and on the newest {n_first}; NMI")
    print(f"  {'rows':>6} " + " ".join(f"{n:>22}" for n in rows if n != "steps"))
    for batch in batches(data.select, step):
        adapting, fading = adapting.partial_fit(batch), fading.partial_fit(batch)
        seen = adapting.summary_.n_rows
        if seen == n_first:
            static = adapting.support_
        if static is None:
            continue
        rows["steps"].append(seen)
        for what, start in (("all", 0), ("new", max(0, seen - n_first))):
            y = data.y[start:seen]
            k = len(np.unique(y))
            for name, columns in zip(names, (static, adapting.support_, fading.support_), strict=True):
                found = nmi_of(data.cluster[start:seen], y, k, columns, range(seeds), n_init)
                rows[f"{name}, {what}"].append(found.mean())
        print(f"  {seen:>6} " + " ".join(f"{rows[n][-1]:>22.3f}" for n in rows if n != "steps"), flush=True)
    means = {n: float(np.mean(v[1:])) for n, v in rows.items() if n != "steps"}
    print("  mean of the steps after the first: " + ", ".join(f"{n} {m:.3f}" for n, m in means.items()))
    return means


def batch_sizes(data: DataSet, counts: tuple[int, ...], seeds: int, n_init: int) -> None:
    """Figure 6: the same stream in batches of 100 to 5,000 rows."""
    sizes = [n for n in (100, 250, 500, 1000, 2000, 5000) if n <= len(data.y)]
    scores = {n: stream_scores(data, n) for n in sizes}
    y, k = data.y, data.n_clusters
    print(f"  {'batch':>6} " + " ".join(f"{f'h={h}':>9}" for h in counts) + "   columns shared with batches of 1,000")
    table = []
    for n in sizes:
        columns = [best(scores[n], h) for h in counts]
        table.append([nmi_of(data.cluster, y, k, c, range(seeds), n_init) for c in columns])
        same = [len(np.intersect1d(c, best(scores[1000], h))) / h for c, h in zip(columns, counts, strict=True)]
        shared = " ".join(f"{s:.3f}" for s in same)
        print(f"  {n:>6} " + " ".join(f"{t.mean():>9.3f}" for t in table[-1]) + f"   {shared}", flush=True)
    found = np.array(table)  # batch size, count, seed
    over_sizes = found.mean(axis=2).var(axis=0, ddof=1)
    of_seeds = found.var(axis=2, ddof=1).mean(axis=0) / seeds
    print("  variance over batch sizes         " + " ".join(f"{v:.1e}" for v in over_sizes))
    print("  what the seeds of k-means explain " + " ".join(f"{v:.1e}" for v in of_seeds))


def efficient_storage(data: DataSet, counts: tuple[int, ...], seeds: int, n_init: int) -> None:
    """Figure 7: store only columns among the g h best after every batch, against storing all ("full")."""
    selector, recorded = fsds(data), []
    for rows in batches(data.select):
        recorded.append(selector.partial_fit(rows).scores_.copy())
    y, k = data.y, data.n_clusters
    print(f"  {'h':>5} {'full':>7} " + " ".join(f"{f'g={g} (lost)':>14}" for g in (1, 2, 3, 4)))
    for h in counts:
        full = nmi_of(data.cluster, y, k, best(recorded[-1], h), range(seeds), n_init).mean()
        line = f"  {h:>5} {full:>7.3f} "
        for g in (1, 2, 3, 4):
            stored = reduce(np.intersect1d, (best(scores, g * h) for scores in recorded))
            selected = stored[best(recorded[-1][stored], h)]
            n_lost = np.setdiff1d(best(recorded[-1], h), stored).size
            nmi = nmi_of(data.cluster, y, k, selected, range(seeds), n_init).mean()
            line += f"{f'{nmi / full:.1%} ({n_lost})':>15}"
        print(line, flush=True)


def scaling(data: DataSet) -> None:
    """Section 5.3: processor seconds against the number of rows, FSDS beside the offline method."""
    n = 1000
    print(f"  {'rows':>7} {'FSDS':>9} {'GFW':>9}")
    while n < 4 * data.select.shape[0]:
        some = SimpleNamespace(select=data.select[:n], n_clusters=data.n_clusters)
        found = scorers(some)  # type: ignore[arg-type]
        # The less of two, in turn: the machine may be busy.
        seconds = {name: min(timed(found[name])[1] for _ in range(2)) for name in ("FSDS", "GFW")}
        print(f"  {some.select.shape[0]:>7} {seconds['FSDS']:>9.2f} {seconds['GFW']:>9.2f}", flush=True)
        n *= 4
