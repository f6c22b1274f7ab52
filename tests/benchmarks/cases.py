"""The cases of the table: the same work for us, for every peer, and the floor of it; see run.py."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import numpy as np
from bench_kmeans import clouds, dask_ml, ours, scikit_learn
from bench_sparse import counts
from bench_summaries import exact_gram, sketch_by_svd
from threadpoolctl import ThreadpoolController, threadpool_limits

import sketchselect as sks
from sketchselect.solvers import Lasso, solve_path, standardize

OURS, FLOOR = "sketchselect", "floor"
THREADS = 2

Work = Callable[[], float | None]


@dataclass(frozen=True)
class Case:
    """A case: the work in words, the figure of merit in words, what makes the work of each side ready, and notes."""

    what: str
    value: str
    sides: dict[str, Callable[[], Work]]
    notes: dict[str, str] = field(default_factory=dict)  # What each side says of its work once it is done


def _single(work: Callable[[], Any]) -> Any:
    with threadpool_limits(1):
        return work()


def _bare(work: Callable[[], Any]) -> Callable[[], Work]:
    """Return a side on one thread that has no figure of merit."""
    return lambda: lambda: _single(work) and None


def kmeans(small: bool) -> Case:
    """At most ten Lloyd iterations from the same centres, with tolerance 0, and the labels of the last centres.

    All but dask-ml stop where nothing changes any more, so iterations are noted; faiss does not label the rows in the
    end.
    """
    return _lloyd(*((2000, 8, 5) if small else (200_000, 64, 50)))


def kmeans_narrow(small: bool) -> Case:
    """The same on few columns."""
    return _lloyd(*((2000, 4, 3) if small else (200_000, 16, 10)))


def kmeans_many(small: bool) -> Case:
    """The same with many clusters."""
    return _lloyd(*((1000, 20, 10) if small else (100_000, 200, 100)))


def kmeans_images(small: bool) -> Case:
    """The same on rows as long as those of MNIST."""
    return _lloyd(*((500, 98, 10) if small else (50_000, 784, 10)))


def _lloyd(n: int, p: int, k: int) -> Case:
    X, centers = clouds(n, p, k, "float32")

    notes: dict[str, str] = {}

    def fit(name: str, make: Callable[[int], Any]) -> dict[str, Callable[[], Work]]:
        def ready() -> Work:
            run = make(THREADS)

            def work() -> float:
                n_iter, inertia = run(X, centers, 10)
                notes[name] = f"{n_iter} iterations"
                return float(inertia)

            return work

        return {name: ready}

    def intelex(n_threads: int) -> Any:
        from sklearnex.cluster import KMeans

        threads = ThreadpoolController()

        def run(X: Any, centers: Any, max_iter: int) -> tuple[int, float]:
            model = KMeans(k, init=centers, n_init=1, max_iter=max_iter, tol=0.0, algorithm="lloyd")
            with threads.limit(limits=n_threads):
                model.fit(X)
            return model.n_iter_, model.inertia_

        return run

    def faiss() -> Work:
        import faiss as library

        library.omp_set_num_threads(THREADS)

        def work() -> float:
            # Without max_points_per_centroid it fits a sample; its objective is that before its last step.
            model = library.Kmeans(p, k, niter=10, max_points_per_centroid=n, seed=0)
            model.train(X, init_centroids=centers)
            notes["faiss-cpu"] = f"{len(model.obj)} iterations"
            return float(model.obj[-1])

        return work

    def floor() -> Work:
        def work() -> None:
            with threadpool_limits(THREADS):
                for _ in range(10):
                    np.matmul(X, centers.T)

        return lambda: work()

    return Case(
        f"k-means, at most 10 Lloyd iterations, {n} x {p} float32, k = {k}",
        "sum of squared distances",
        {
            **fit(OURS, ours),
            **fit("scikit-learn", scikit_learn),
            **fit("scikit-learn-intelex", intelex),
            "faiss-cpu": faiss,
            **fit("dask-ml", dask_ml),
            FLOOR: floor,
        },
        notes,
    )


def sketch(small: bool) -> Case:
    """A sketch of rows in memory."""
    n, p, size = (400, 60, 10) if small else (10_000, 1000, 50)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p)) * 0.995 ** np.arange(p)
    gram = X.T @ X

    def error(B: Any) -> float:
        return float(np.abs(np.linalg.eigvalsh(gram - B.T @ B)).max() / np.trace(gram))

    def side(rows: Callable[[], Any]) -> Callable[[], Work]:
        # The error of a result that is always the same is measured once, beside the clock.
        value = []

        def work() -> float:
            B = _single(rows)
            if not value:
                value.append(error(np.asarray(B)))
            return value[0]

        return lambda: work

    def compressed() -> Work:
        import dask.array as da

        lazy = da.from_array(X, chunks=(max(1, n // 8), p))

        def rows() -> Any:
            _, s, v = da.linalg.svd_compressed(lazy, size, n_power_iter=1, seed=0)
            s, v = dask.compute(s, v, scheduler="synchronous")
            return s[:, None] * v

        return side(rows)()

    return Case(
        f"a sketch of {size} rows of {n} x {p} float64, one thread",
        "||X'X - B'B|| / ||X||_F^2",
        {
            OURS: side(lambda: sks.FrequentDirections(size=size).from_block(X).sketch),
            "textbook": side(lambda: sketch_by_svd(X, size)),
            "da.linalg.svd_compressed": compressed,
            "exact Gram matrix": _bare(lambda: [exact_gram(X)]),
            FLOOR: _bare(lambda: products_of(X, size)),
        },
    )


def products_of(X: Any, size: int) -> None:
    """The products of the plain algorithm: 8 l p flops a row, in its own shapes."""
    factor, out = np.ones((size, 2 * size)), np.empty((size, X.shape[1]))
    for start in range(0, len(X) - 2 * size + 1, size):
        rows = X[start : start + 2 * size]
        np.matmul(rows, rows[:size].T)
        np.matmul(factor, rows, out=out)


def store(small: bool) -> Case:
    """One pass over a store in Zarr."""
    import dask.array as da
    import zarr

    n, p, size = (400, 50, 10) if small else (20_000, 2000, 64)
    folder = tempfile.TemporaryDirectory()
    path = str(Path(folder.name) / "rows.zarr")
    array = zarr.create_array(path, shape=(n, p), chunks=(max(1, n // 10), p), dtype="float32")
    array[:] = np.random.default_rng(0).standard_normal((n, p), dtype=np.float32)
    spec = {"sketch": sks.FrequentDirections(size=size), "stats": sks.ColumnStats()}

    def ours_() -> Work:
        def work() -> float:
            _ = folder  # lives as long as the case
            return float(sks.summarize(path, spec, client="serial")["sketch"].shrinkage)

        return work

    def compressed() -> Work:
        def work() -> None:
            _, s, v = da.linalg.svd_compressed(da.from_zarr(path), size, seed=0)
            _single(lambda: dask.compute(s, v, scheduler="synchronous"))

        return lambda: work()

    def floor() -> Work:
        matrix = sks.open_matrix(path)

        def work() -> None:
            for start in range(0, n, max(1, n // 10)):
                products_of(matrix.read_rows(start, min(n, start + max(1, n // 10))).astype(float), size)

        return lambda: _single(work)

    return Case(
        f"a pass over a Zarr store, {n} x {p} float32: sketch of {size} rows and column statistics, one thread",
        "shrinkage",
        {OURS: ours_, "da.linalg.svd_compressed": compressed, FLOOR: floor},
    )


def sparse(small: bool) -> Case:
    """A sketch of counts in CSR."""
    n, p, size = (200, 500, 8) if small else (4096, 25_000, 64)
    X = counts(n, p, 0.01)

    def ours_() -> Work:
        return lambda: float(_single(lambda: sks.FrequentDirections(size).from_block(X)).shrinkage)

    def truncated() -> Work:
        from sklearn.decomposition import TruncatedSVD

        return lambda: _single(lambda: TruncatedSVD(size, n_iter=4, random_state=0).fit(X)) and None

    def floor() -> Work:
        right, left = np.ones((p, size)), np.ones((n, size))
        return lambda: _single(lambda: [X @ right, X.T @ left]) and None

    return Case(
        f"a sketch of {size} rows of {n} x {p} counts, 1 % of them not zero, one thread",
        "shrinkage",
        {OURS: ours_, "scikit-learn TruncatedSVD": truncated, FLOOR: floor},
    )


def lasso(small: bool) -> Case:
    """A lasso path of 50 penalties from rows."""
    n, p = (300, 20) if small else (10_000, 500)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p)) + rng.standard_normal((n, 1))
    y = X[:, ::10].sum(axis=1) + rng.standard_normal(n)
    X, y = np.asfortranarray((X - X.mean(axis=0)) / X.std(axis=0)), y - y.mean()
    most = np.abs(X.T @ y).max() / n
    alphas = most * np.geomspace(1, 1e-3, 50)

    def objective(b: Any) -> float:
        return float(((y - X @ b) ** 2).sum() / (2 * n) + alphas[-1] * np.abs(b).sum())

    def ours_() -> Work:
        def path() -> Any:
            m = sks.Moments().from_block(X, y)
            problem = standardize(m.covariance(), m.xy, m.yy, mean=m.mean, y_mean=m.y_mean, n=n)
            return solve_path(problem, Lasso(), alphas=alphas)

        return lambda: objective(_single(path).coef(len(alphas) - 1).ravel())

    def peer() -> Work:
        from sklearn.linear_model import lasso_path

        return lambda: objective(_single(lambda: lasso_path(X, y, alphas=alphas))[1][:, -1])

    def skglm() -> Work:
        from skglm.datafits import Quadratic
        from skglm.penalties import L1
        from skglm.solvers import AndersonCD

        solver = AndersonCD(tol=1e-6, fit_intercept=False, warm_start=True)
        return lambda: objective(
            _single(lambda: solver.path(X, y, Quadratic(), L1(alphas[0]), alphas=alphas))[1][:, -1]
        )

    return Case(
        f"a lasso path of 50 penalties from {n} x {p} rows, one thread",
        "objective at the smallest penalty",
        {
            OURS: ours_,
            "scikit-learn": peer,
            "skglm": skglm,
            FLOOR: _bare(lambda: [exact_gram(X)]),
        },
    )


def stream(small: bool) -> Case:
    """Correlations with a target along a stream."""
    n, p = (200, 5) if small else (5000, 50)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p))
    y = X[:, 0] + rng.standard_normal(n)

    def ours_() -> Work:
        def work() -> float:
            description = sks.Moments()
            m = description.from_block(X[:100], y[:100])
            for start in range(100, n, 100):
                m = m.merge(description.from_block(X[start : start + 100], y[start : start + 100]))
            return float(m.xy.ravel()[0] / np.sqrt(m.covariance()[0, 0] * np.ravel(m.yy)[0]))

        return lambda: _single(work)

    def river() -> Work:
        from river import stats

        def work() -> float:
            columns = [stats.PearsonCorr() for _ in range(p)]
            for row, target in zip(X.tolist(), y.tolist(), strict=True):
                for one, value in zip(columns, row, strict=True):
                    one.update(value, target)
            return float(columns[0].get())

        return work

    return Case(
        f"correlation of {p} columns with a target, a stream of {n} rows, ours in blocks of 100",
        "correlation of the first column",
        {OURS: ours_, "river": river, FLOOR: _bare(lambda: [X.T @ y])},
    )


def genes(small: bool) -> Case:
    """Highly variable genes of counts."""
    n, p = (300, 200) if small else (10_000, 5000)
    X = counts(n, p, 0.05)
    n_top = p // 10

    def ours_() -> Work:
        from sketchselect.selectors import HighlyVariableGenes

        return lambda: float(
            _single(lambda: HighlyVariableGenes(n_features_to_select=n_top).fit(X)).variances_norm_.sum()
        )

    def scanpy() -> Work:
        import anndata
        import scanpy as library
        from scipy.sparse import csr_matrix

        rows = csr_matrix(X)  # it refuses arrays

        def work() -> float:
            table = library.pp.highly_variable_genes(
                anndata.AnnData(rows.copy()), flavor="seurat_v3", n_top_genes=n_top, inplace=False
            )
            return float(table["variances_norm"].sum())

        return lambda: _single(work)

    return Case(
        f"{n_top} highly variable genes of {n} x {p} counts, one thread",
        "sum of the normalised variances",
        {
            OURS: ours_,
            "scanpy": scanpy,
            FLOOR: _bare(lambda: [X.sum(axis=0), (X * X).sum(axis=0)]),
        },
    )


CASES: dict[str, Callable[[bool], Case]] = {
    one.__name__: one
    for one in (kmeans, kmeans_narrow, kmeans_many, kmeans_images, sketch, store, sparse, lasso, stream, genes)
}
