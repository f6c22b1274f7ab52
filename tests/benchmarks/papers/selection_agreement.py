"""Agreement of k-means with the classes on the columns of `auto`, of its competitors and on random ones.

    python tests/benchmarks/papers/selection_agreement.py [--sets USPS,TDT2] [--seeds 10] [--rows 3000] [--open]

NMI of scikit-learn's KMeans on the selected columns, relative to its mean on all columns, mean and standard deviation
over seeds: for the numbers of columns of the comparisons (25 to 200 of images, 200 to 2,000 of texts and cells) and
their mean; with --open at the number that `auto` takes itself. Of random columns each seed draws others. A star: below
random columns by more than these scatter. Columns are selected on all rows, k-means runs on a random part of them.
Data: ../shared/data, or $SKETCHSELECT_DATA.
"""

import argparse
import time
from typing import Any

import numpy as np
import scipy.sparse as sp
from real_data import KINDS, DataSet, dense_columns, load
from selection_comparison import COUNTS
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score
from threadpoolctl import threadpool_limits

from sketchselect.errors import BadParameter
from sketchselect.selectors import AutoSelector, Selection

SETS = ("USPS", "COIL20", "MNIST", "Isolet", "AR_55x40", "TDT2", "20Newsgroups_tf", "mouse_bladder_cells")
STARTS = 5


def agreement(features: Any, data: DataSet, seed: int) -> float:
    """Return the NMI of k-means and the classes."""
    labels = KMeans(data.n_clusters, n_init=STARTS, random_state=seed).fit_predict(features)
    return float(normalized_mutual_info_score(data.y, labels))


def selections(data: DataSet, is_open: bool) -> dict[str, dict[int, np.ndarray]]:
    """Return the columns of each method by their number; all methods select from one summary."""
    rows = data.select if sp.issparse(data.select) else data.select.astype(np.float32)
    auto = AutoSelector(n_clusters=data.n_clusters, normalize=None)
    summary = auto.collect(rows, client="serial")
    p, chosen = rows.shape[1], {"auto": {}}
    sizes: tuple[Any, ...] = ("auto",) if is_open else tuple(r for r in COUNTS[data.kind] if r < p)
    for size in sizes:
        selection: Selection = auto.set_params(n_features_to_select=size).fit_summary(summary).selection_
        chosen["auto"][selection.support.size] = selection.support
        point = next(
            q for q in auto.curve_.points if q.method == selection.method and q.n_features == selection.support.size
        )
        left = auto.curve_.gain_left(point)
        print(
            f"  {selection.support.size} columns: auto takes {selection.method}, ratio {point.ratio:.3f}, "
            f"{'nothing' if left is None else f'{left:.1%}'} of what clusters explain is left",
            flush=True,
        )
    for name, method in auto._competitors().items():
        chosen[name] = {}
        for r in chosen["auto"]:
            try:
                chosen[name][r] = method.set_params(n_features_to_select=r).fit_summary(summary).support_
            except BadParameter as error:
                print(f"  {name}: {error}")
    return chosen


def measure(data: DataSet, seeds: int, is_open: bool) -> dict[str, np.ndarray]:
    """Print the table of one data set; return by method the mean over the numbers of columns, for each seed."""
    began, p = time.process_time(), data.select.shape[1]
    print(f"{data.name}: {data.select.shape[0]} x {p}, k-means on {data.cluster.shape[0]} rows", flush=True)
    chosen = selections(data, is_open)
    whole = np.array([agreement(data.cluster, data, seed) for seed in range(seeds)])
    sizes = list(chosen["auto"])
    draws = {r: [np.sort(np.random.default_rng(seed).permutation(p)[:r]) for seed in range(seeds)] for r in sizes}
    by_seed = {name: {r: [one] * seeds for r, one in sets.items()} for name, sets in chosen.items()} | {"random": draws}
    shares: dict[str, dict[int, np.ndarray]] = {}
    known: dict[tuple[bytes, int], float] = {}
    for name, sets in by_seed.items():
        shares[name] = {}
        for r, supports in sets.items():
            values = []
            for seed, support in enumerate(supports):
                key = np.sort(support).tobytes(), seed
                if key not in known:
                    known[key] = agreement(dense_columns(data.cluster, np.sort(support)), data, seed)
                values.append(known[key])
            shares[name][r] = np.array(values) / whole.mean()
    print(f"  all columns {whole.mean():.3f} +- {whole.std():.3f}; CPU {time.process_time() - began:.0f} s")
    print(f"  {'method':15}" + "".join(f"{r:>15}" for r in sizes) + f"{'mean':>15}")
    means = {}
    for name, sets in shares.items():
        cells = [_cell(sets.get(r), shares["random"][r]) for r in sizes]
        means[name] = np.mean([sets[r] for r in sizes if r in sets], axis=0)
        print(
            f"  {name:15}" + "".join(cells) + _cell(means[name], np.mean(list(shares["random"].values()), axis=0)),
            flush=True,
        )
    return means


def _cell(values: np.ndarray | None, random: np.ndarray) -> str:
    if values is None:
        return f"{'-':>15}"
    star = "*" if values.mean() < random.mean() - random.std() else " "
    return f"{values.mean():.3f} +- {values.std():.3f}{star}".rjust(15)


def main() -> None:
    """Print the tables, and the means over the sets of each kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rows", type=int, default=3000, help="random rows that k-means runs on")
    parser.add_argument("--open", action="store_true", help="the number of columns that auto takes")
    options = parser.parse_args()
    kinds: dict[str, list[dict[str, np.ndarray]]] = {}
    for name in options.sets.split(","):
        if (data := load(name, options.rows)) is None:
            continue
        with threadpool_limits(1):
            kinds.setdefault(KINDS[name], []).append(measure(data, options.seeds, options.open))
    for kind, tables in kinds.items():
        names = [name for name in tables[0] if all(name in table for table in tables)]
        means = {name: np.mean([table[name] for table in tables], axis=0) for name in names}
        values = ", ".join(f"{name} {one.mean():.3f} +- {one.std():.3f}" for name, one in means.items())
        print(f"{kind}, mean of {len(tables)}: {values}")


if __name__ == "__main__":
    main()
