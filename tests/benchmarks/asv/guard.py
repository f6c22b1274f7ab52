"""Ten kinds of work of some tenths of a second, which are compared with an earlier commit: see `../guard.sh`.

They use public names alone, so that an earlier release can run them, and state what a default chooses where the default
has become another, so that both do the same work. Seconds are processor time: that of one run may differ by half from
one process to the next on a machine that is not alone, so ten runs are timed at once, in four processes of each commit.
"""

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import zarr

import sketchselect as sks


def rows(n: int, p: int, dtype: str = "float64") -> Any:
    """Return rows in eight clusters, in columns of falling size."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((n, p)) + 3 * rng.standard_normal((8, p))[rng.integers(8, size=n)]
    return (values * 0.99 ** np.arange(p)).astype(dtype)


def target(X: Any) -> Any:
    """Return a target of every tenth column."""
    return X[:, ::10].sum(axis=1) + np.random.default_rng(1).standard_normal(len(X))


def summary(description: Any, X: Any) -> Callable[[], object]:
    """Return the summary of rows as work."""
    return lambda: description.from_block(X)


def store_pass(folder: Path) -> Callable[[], object]:
    """Return a pass over a store as work."""
    zarr.create_array(str(folder / "rows.zarr"), data=rows(16_000, 200, "float32"), chunks=(2000, 200))
    return lambda: sks.summarize(str(folder / "rows.zarr"), sks.ColumnStats(), client="serial")


def models(X: Any) -> Callable[[], object]:
    """Return a lasso path as work."""
    y = target(X)
    return lambda: sks.LassoPath(criterion="ebic").fit(X, y, client="serial")


def fit(estimator: Any, X: Any) -> Callable[[], object]:
    """Return a fit as work."""
    return lambda: estimator.fit(X, client="serial")


WORK: dict[str, Callable[[Path], Callable[[], object]]] = {
    "sketch": lambda _: summary(sks.FrequentDirections(size=40), rows(1000, 3000)),
    "sketch of float32": lambda _: summary(sks.FrequentDirections(size=40), rows(1000, 3000, "float32")),
    "sketch of sparse rows": lambda _: summary(
        sks.FrequentDirections(size=20),
        sp.random_array((3000, 4000), density=0.01, rng=np.random.default_rng(0)).tocsr(),
    ),
    "moments": lambda _: summary(sks.Moments(), rows(16_000, 300)),
    "column statistics": lambda _: summary(sks.ColumnStats(), rows(40_000, 200)),
    "store": store_pass,
    "k-means of few columns": lambda _: fit(sks.KMeans(10, max_iter=20, random_state=0), rows(60_000, 16, "float32")),
    "k-means of images": lambda _: fit(sks.KMeans(10, max_iter=10, random_state=0), rows(8000, 300, "float32")),
    "greedy": lambda _: fit(sks.GreedySelector(20), rows(4000, 300)),
    "lasso": lambda _: models(rows(4000, 60)),
}


class Guard:
    """The kinds of work."""

    params = tuple(WORK)
    param_names = ("work",)
    timer = time.process_time
    number, repeat, rounds, warmup_time, min_run_count = 1, 5, 4, 0, 5

    def setup(self, name: str) -> None:
        """Make the work ready, and run it once: kernels are compiled then."""
        self.folder = tempfile.mkdtemp()
        self.work = WORK[name](Path(self.folder))
        self.work()

    def teardown(self, name: str) -> None:
        """Remove what was written."""
        shutil.rmtree(self.folder)

    def time_work(self, name: str) -> None:
        """Time ten runs."""
        for _ in range(10):
            self.work()
