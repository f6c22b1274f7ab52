"""What the tables of Huang et al. (2015) compare: scores of columns by each method, and k-means on the best ones."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from gfw import top_directions
from real_data import DATA, DataSet, dense_columns, load
from sklearn.cluster import KMeans

import sketchselect as sks
from sketchselect.selectors import rank
from sketchselect.selectors.sketched import ridge_weights

TEXT_COUNTS = tuple(range(200, 2401, 200))
IMAGE_COUNTS = tuple(range(25, 201, 25))
BATCH = 1000


def counts_of(data: DataSet, quick: bool) -> tuple[int, ...]:
    """Return the numbers of features of the paper; of `quick`, some of them."""
    if data.kind == "image":
        return IMAGE_COUNTS[::3] if quick else IMAGE_COUNTS
    return (200, 800, 1600, 2400) if quick else TEXT_COUNTS


def by_date(name: str = "TDT2") -> DataSet | None:
    """Return a data set in the order of its dates, ties in the order of its file."""
    data = load(name, 1 << 30)
    if data is None:
        return None
    with np.load(DATA / f"{name}.npz") as found:
        dates = np.asarray(found["t"])
    shuffled = np.random.default_rng(0).permutation(len(dates))
    order = np.argsort(shuffled)[np.argsort(dates, kind="stable")]
    return DataSet(name, data.kind, data.select[order], data.cluster[order], data.y[order])


def fsds(data: DataSet, n_features: int = 1, **settings: Any) -> Any:
    """Return the unfitted selector: k is the number of classes, and the rows have unit length already."""
    return sks.SketchedRidgeSelector(n_features, n_components=data.n_clusters, normalize=None, **settings)


def batches(X, size: int = BATCH) -> Iterator[Any]:
    """Hand out runs of rows."""
    for start in range(0, X.shape[0], size):
        yield X[start : start + size]


def stream_scores(data: DataSet, size: int = BATCH, **settings: Any):
    """Return the scores after one pass in batches of `size` rows."""
    selector = fsds(data, **settings)
    sketch = selector.summary_description(data.select.shape[1]).empty(data.select.shape[1])
    for rows in batches(data.select, size):
        sketch = sketch.update(rows)
    return selector.fit_summary(sketch).scores_


def scorers(data: DataSet, *, with_mcfs: bool = True) -> dict[str, Callable[[], Any]]:
    """Return name -> the work that makes scores; the offline ones see all rows, the graphs 4,000."""
    p, k = data.select.shape[1], data.n_clusters
    root = max(int(np.sqrt(p)), k + 1)
    found: dict[str, Callable[[], Any]] = {
        "FSDS": lambda: fsds(data).fit(data.select).scores_,
        "GFW": lambda: ridge_weights(*top_directions(data.select, k), k, "auto")[0],
        "FSDS, as printed": lambda: stream_scores(data, sketch_size=root, literal=True),
        "GFW, as printed": lambda: ridge_weights(*top_directions(data.select, k), k, "paper")[0],
    }
    if with_mcfs:
        found["MCFS"] = lambda: sks.selectors.MCFSSelector(1, k, n_nonzero=200, normalize=None).fit(data.select).scores_
    found["Laplacian score"] = lambda: sks.selectors.LaplacianScoreSelector(1, normalize=None).fit(data.select).scores_
    return found


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return what the work makes, and its seconds of processor time, all threads: a busy machine adds little."""
    start = time.process_time()
    made = work()
    return made, time.process_time() - start


def best(scores, n_columns: int):
    """Return the columns of the highest scores."""
    return np.sort(rank(scores)[:n_columns])


def nmi_of(X, y, n_clusters: int, columns, seeds: Sequence[int], n_init: int):
    """Return the NMI of k-means on these columns of the rows, one number a seed; all columns where there are none."""
    features = X if columns is None else dense_columns(X, columns)
    if sp.issparse(features):
        features.sort_indices()
    found = []
    for seed in seeds:
        labels = KMeans(n_clusters, n_init=n_init, random_state=seed).fit_predict(features)
        found.append(sks.summaries.Contingency.of(y, labels).nmi)
    return np.array(found)


def ratio(ours, theirs) -> tuple[float, float]:
    """Return the ratio of the means of two tables (seeds x counts) and its standard error over the seeds."""
    each = ours.mean(axis=1) / theirs.mean(axis=1)
    return float(ours.mean() / theirs.mean()), float(each.std(ddof=1) / np.sqrt(len(each))) if len(each) > 1 else np.nan
