"""Figures 3 (e) and (f) of Huang et al. (2015), with the Gaussian kernel, and Figure 4, on made rows of Tiny's size.

The paper maps images to ceil(n / k) random Fourier features with bandwidth 5000 and works with these alone, so what is
selected are random features. `columns` beside it selects pixels: the same regressions, with the directions of the
features as targets and the pixels as predictors.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gfw import gfw_ridge
from huang2015_methods import BATCH, best, nmi_of
from real_data import DataSet

import sketchselect as sks
from sketchselect.prepare.fourier import Fourier

BANDWIDTH = 5000.0
TINY_COLUMNS, TINY_CLUSTERS = 3072, 10


def features(data: DataSet) -> dict[str, DataSet]:
    """Return name of the bandwidth -> the random features of the pixels (0 to 255), for selection and clustering."""
    pixels = 255.0 * np.asarray(data.cluster, dtype=np.float64)
    n_components = int(np.ceil(len(pixels) / data.n_clusters))
    some = pixels[:1000]
    distances = np.sqrt(np.maximum(((some[:, None, ::4] - some[None, :, ::4]) ** 2).sum(axis=2) * 4, 0))
    median = float(np.median(distances[np.triu_indices(len(some), 1)]))
    out = {}
    for name, width in (("bandwidth 5000", BANDWIDTH), (f"median distance {median:.0f}", median)):
        mapped = Fourier(n_components, gamma=1 / (2 * width**2)).apply(pixels)
        norms = np.linalg.norm(mapped, axis=1, keepdims=True)
        out[name] = DataSet(f"{data.name}, {name}", data.kind, mapped / norms, mapped.astype(np.float32), data.y)
    return out


def column_scores(data: DataSet, mapped: DataSet) -> Any:
    """Return the weights of the pixels in ridge regressions on the top directions of the random features."""
    k, Y = data.n_clusters, np.asarray(data.cluster, dtype=np.float64)
    Y = Y / np.maximum(np.linalg.norm(Y, axis=1, keepdims=True), 1e-300)
    targets = np.linalg.svd(mapped.select, full_matrices=False)[0][:, :k]
    alpha = np.linalg.svd(Y, compute_uv=False)[k - 1] ** 2
    return np.abs(np.linalg.solve(Y.T @ Y + alpha * np.eye(Y.shape[1]), Y.T @ targets)).max(axis=1)


def columns_by_kernel(data: DataSet, mapped: DataSet, counts: tuple[int, ...], seeds: int, n_init: int) -> None:
    """Print NMI on the pixels that the kernel's directions select."""
    scores = column_scores(data, mapped)
    found = [nmi_of(data.cluster, data.y, data.n_clusters, best(scores, h), range(seeds), n_init) for h in counts]
    means = [values.mean() for values in found]
    print("  columns                     " + " ".join(f"{m:>6.3f}" for m in means) + f"  {np.mean(means):>6.3f}")


def made_rows(start: int, n: int) -> Any:
    """Return rows of Tiny's width: smooth images from 40 components and noise, float32."""
    basis = np.random.default_rng(0).standard_normal((40, TINY_COLUMNS)).astype(np.float32)
    rng = np.random.default_rng([1, start])
    weights = rng.standard_normal((n, 40), dtype=np.float32) * np.float32(0.9) ** np.arange(40, dtype=np.float32)
    return weights @ basis + rng.standard_normal((n, TINY_COLUMNS), dtype=np.float32)


class Blocks:
    """Made rows, a thousand at a time, and the processor seconds that making them took."""

    def __init__(self, n: int) -> None:
        self.n, self.seconds = n, 0.0

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, self.n, BATCH):
            began = time.process_time()
            rows = made_rows(start, min(BATCH, self.n - start))
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
            self.seconds += time.process_time() - began
            yield rows


def streamed(rows: Blocks, **settings: Any) -> Any:
    """Return the scores of the package's selector after one pass."""
    selector = sks.SketchedRidgeSelector(200, TINY_CLUSTERS, normalize=None, **settings)
    sketch = selector.summary_description(TINY_COLUMNS).empty(TINY_COLUMNS)
    for block in rows:
        sketch = sketch.update(block)
    return selector.fit_summary(sketch).scores_


def seconds_of(work: Callable[[Blocks], Any], n: int) -> float:
    """Return the processor seconds of a pass over n rows, without those of making them."""
    rows = Blocks(n)
    began = time.process_time()
    work(rows)
    return time.process_time() - began - rows.seconds


def tiny_scaling(most: int, most_offline: int) -> None:
    """Figure 4: processor seconds against the number of rows, of methods that hold all rows up to `most_offline`."""
    names = ("FSDS", "FSDS, as printed", "GFW", "Laplacian score", "MCFS")
    print(f"  {'rows':>9} " + " ".join(f"{name:>17}" for name in names))
    kept: dict[str, list[tuple[int, float]]] = {name: [] for name in names}
    n = 1000
    while n <= most:
        work: dict[str, Any] = {
            "FSDS": lambda n=n: seconds_of(streamed, n),
            "FSDS, as printed": lambda n=n: seconds_of(
                lambda rows: streamed(rows, sketch_size=int(TINY_COLUMNS**0.5), literal=True), n
            ),
        }
        if n <= most_offline:
            X = np.concatenate(list(Blocks(n)))
            work["GFW"] = lambda X=X: gfw_ridge(X, TINY_CLUSTERS)
            graph = {"n_rows": n, "normalize": None}
            work["Laplacian score"] = lambda X=X, g=graph: sks.selectors.LaplacianScoreSelector(200, **g).fit(X)
            work["MCFS"] = lambda X=X, g=graph: sks.selectors.MCFSSelector(200, TINY_CLUSTERS, n_nonzero=200, **g).fit(
                X
            )
        line = f"  {n:>9} "
        for name in names:
            if name not in work:
                line += f"{'-':>17} "
                continue
            began = time.process_time()
            made = work[name]()
            seconds = made if name.startswith("FSDS") else time.process_time() - began
            kept[name].append((n, seconds))
            line += f"{seconds:>17.2f} "
        print(line, flush=True)
        n *= 3
    for name, points in kept.items():
        if len(points) > 1:
            sizes, values = np.array(points[-2:]).T
            print(f"  {name}: exponent {np.diff(np.log(values))[0] / np.diff(np.log(sizes))[0]:.2f} at the last step")
