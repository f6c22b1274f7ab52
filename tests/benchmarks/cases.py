"""The cases of the table: the same work for us, for every peer, and the floor of it; see run.py."""

import importlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import numpy as np
import scipy.sparse as sp
from stores import BAND, make_store
from threadpoolctl import ThreadpoolController, threadpool_limits

import sketchselect as sks
from sketchselect.cluster import KMeansParameters, fit_kmeans
from sketchselect.execution import LocalEngine, PassOptions, Source
from sketchselect.linalg.barrier import sample_frobenius, sample_spectral
from sketchselect.linalg.csr import as_csr
from sketchselect.solvers import Lasso, solve_path, standardize

OURS, FLOOR = "sketchselect", "floor"
DATA = Path(os.environ.get("SKETCHSELECT_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))

Work = Callable[[], float | None]


@dataclass(frozen=True)
class Setting:
    """Sizes that measure nothing, threads and most iterations of k-means, and rows of the store."""

    small: bool = False
    threads: int = 2
    rows: int = 20_000
    iterations: int = 10


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

    def run() -> None:
        _single(work)

    return lambda: run


def kmeans(given: Setting) -> Case:
    """Some Lloyd iterations from the same centres, with tolerance 0, and the labels of the last centres.

    All but dask-ml stop where nothing changes any more, so iterations are noted; faiss does not label the rows in the
    end. dask-ml sums distances without squaring them where a fit stops early, so its inertia is another figure.
    """
    return _lloyd(given, (2000, 8, 5), (200_000, 64, 50))


def kmeans_narrow(given: Setting) -> Case:
    """The same on few columns."""
    return _lloyd(given, (2000, 4, 3), (200_000, 16, 10))


def kmeans_many(given: Setting) -> Case:
    """The same with many clusters."""
    return _lloyd(given, (1000, 20, 10), (100_000, 200, 100))


def kmeans_images(given: Setting) -> Case:
    """The same on rows as long as those of MNIST."""
    return _lloyd(given, (500, 98, 10), (50_000, 784, 10))


def kmeans_patches(given: Setting) -> Case:
    """The same on patches of 4 x 4 pixels of scikit-learn's two photographs, in grey."""
    from sklearn.datasets import load_sample_images

    grey = [image.mean(axis=2).astype("float32") for image in load_sample_images().images]
    patches = [np.lib.stride_tricks.sliding_window_view(image, (4, 4)).reshape(-1, 16) for image in grey]
    X = np.random.default_rng(0).permutation(np.concatenate(patches))
    return _lloyd_of(given, X[: 2000 if given.small else 200_000], 10, "patches of photographs, ")


def kmeans_mnist(given: Setting) -> Case:
    """The same on images of digits, where SKETCHSELECT_DATA has their file."""
    with np.load(DATA / "MNIST.npz") as archive:
        X = archive["X"][: 500 if given.small else 50_000].astype("float32")
    return _lloyd_of(given, X, 10, "images of digits (MNIST), ")


def _lloyd(given: Setting, small: tuple[int, int, int], large: tuple[int, int, int]) -> Case:
    n, p, k = small if given.small else large
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p)).astype("float32")
    X += rng.standard_normal((k, p)).astype("float32")[rng.integers(k, size=n)]
    return _lloyd_of(given, X, k)


def _lloyd_of(given: Setting, X: np.ndarray, k: int, rows: str = "") -> Case:
    (n, p), most = X.shape, given.iterations
    centers = X[np.random.default_rng(0).choice(n, k, replace=False)]
    threads = ThreadpoolController()  # Looking for libraries takes milliseconds, which are no side's.
    notes: dict[str, str] = {}

    def side(name: str, make: Callable[[], Callable[[], tuple[int, float]]]) -> dict[str, Callable[[], Work]]:
        def ready() -> Work:
            fit = make()

            def work() -> float:
                n_iter, inertia = fit()
                notes[name] = f"{n_iter} iterations"
                return float(inertia)

            return work

        return {name: ready}

    def ours() -> Any:
        engine = LocalEngine(given.threads)

        def fit() -> tuple[int, float]:
            parameters = KMeansParameters(k, centers, max_iter=most, tol=0.0)
            result = fit_kmeans(Source(sks.open_matrix(X)), parameters, PassOptions(engine))
            return result.n_iter, result.inertia

        return fit

    def scikit_learn(module: str) -> Any:
        cls = importlib.import_module(module).KMeans

        def fit() -> tuple[int, float]:
            model = cls(k, init=centers, n_init=1, max_iter=most, tol=0.0, algorithm="lloyd")
            with threads.limit(limits=given.threads):
                model.fit(X)
            return model.n_iter_, model.inertia_

        return fit

    def dask_ml() -> Any:
        """On the threads of this process: a cluster of processes would have to copy the data."""
        import dask.array as da
        from dask_ml.cluster import KMeans

        def fit() -> tuple[int, float]:
            # Unnamed, it would hash all rows first.
            lazy = da.from_array(X, name=False, chunks=(-(-n // given.threads), p))
            model = KMeans(k, init=centers, max_iter=most, tol=0.0)
            with threads.limit(limits=1), dask.config.set(scheduler="threads", num_workers=given.threads):
                model.fit(lazy)
            return model.n_iter_, model.inertia_

        return fit

    def faiss() -> Any:
        import faiss as library

        library.omp_set_num_threads(given.threads)

        def fit() -> tuple[int, float]:
            # Without max_points_per_centroid it fits a sample; its objective is that before its last step.
            model = library.Kmeans(p, k, niter=most, max_points_per_centroid=n, seed=0)
            model.train(X, init_centroids=centers)
            return len(model.obj), model.obj[-1]

        return fit

    def floor() -> None:
        with threadpool_limits(given.threads):
            for _ in range(most):
                np.matmul(X, centers.T)

    return Case(
        f"k-means, at most {most} Lloyd iterations, {n} x {p} {rows}float32, k = {k}, threads: {given.threads}",
        "sum of squared distances",
        {
            **side(OURS, ours),
            **side("scikit-learn", lambda: scikit_learn("sklearn.cluster")),
            **side("scikit-learn-intelex", lambda: scikit_learn("sklearnex.cluster")),
            **side("faiss-cpu", faiss),
            **side("dask-ml", dask_ml),
            FLOOR: lambda: floor,
        },
        notes,
    )


def sketch(given: Setting) -> Case:
    """A sketch of rows in memory, with all that could be in its place."""
    n, p, size = (400, 60, 10) if given.small else (10_000, 1000, 50)
    rng = np.random.default_rng(0)
    return sketch_of(rng.standard_normal((n, p)) * 0.995 ** np.arange(p), size)


def sketch_of(X: Any, size: int, rows: str = "") -> Case:
    """A sketch of any rows in memory; see `sketch`."""
    n, p = X.shape
    gram = X.T @ X

    def error(B: Any) -> float:
        return float(np.abs(np.linalg.eigvalsh(gram - B.T @ B)).max() / np.trace(gram))

    def side(make: Callable[[], Any]) -> Callable[[], Work]:
        # The error of a result that is always the same is measured once, and not timed.
        value = []

        def work() -> float:
            B = _single(make)
            if not value:
                value.append(error(np.asarray(B)))
            return value[0]

        return lambda: work

    def compressed() -> Work:
        import dask.array as da

        lazy = da.from_array(X, chunks=(max(1, n // 8), p))

        def directions() -> Any:
            _, s, v = da.linalg.svd_compressed(lazy, size, n_power_iter=1, seed=0)
            s, v = dask.compute(s, v, scheduler="synchronous")
            return s[:, None] * v

        return side(directions)()

    return Case(
        f"a sketch of {size} rows of {n} x {p} {rows}float64, one thread",
        "||X'X - B'B|| / ||X||_F^2",
        {
            OURS: side(lambda: sks.FrequentDirections(size=size).from_block(X).sketch),
            "textbook": side(lambda: sketch_by_svd(X, size)),
            "da.linalg.svd_compressed": compressed,
            "exact Gram matrix": _bare(lambda: exact_gram(X)),
            FLOOR: _bare(lambda: products_of(X, size)),
        },
    )


def sketch_wide(given: Setting) -> Case:
    """A sketch of many columns; the floor of float32 rows is its products in float64 too."""
    n, p, size = (80, 400, 10) if given.small else (6000, 4000, 100)
    X = np.random.default_rng(1).standard_normal((n, p))
    single = X.astype("float32")

    def side(rows: Any) -> Callable[[], Work]:
        return lambda: lambda: float(_single(lambda: sks.FrequentDirections(size=size).from_block(rows)).shrinkage)

    return Case(
        f"a sketch of {size} rows of {n} x {p} float64, one thread",
        "shrinkage",
        {OURS: side(X), "the same of float32": side(single), FLOOR: _bare(lambda: products_of(X, size))},
    )


def sketch_real(given: Setting) -> Case:
    """Sketches of rows whose spectra decay: patches of a photograph, and random Fourier features of digits."""
    from sklearn.datasets import load_digits, load_sample_image

    n, side, size = (600, 12, 10) if given.small else (20_000, 32, 100)
    rng = np.random.default_rng(1)
    photo = load_sample_image("flower.jpg")
    corners = zip(rng.integers(427 - side, size=n), rng.integers(640 - side, size=n), strict=True)
    patches = np.stack([photo[a : a + side, b : b + side].ravel() for a, b in corners]).astype("float32")
    digits = load_digits().data[:, :60]
    features = np.cos(digits[rng.integers(len(digits), size=n)] @ rng.standard_normal((60, 3 * side**2)) / 20)
    rows = {"patches": patches, "random features": features.astype("float32")}

    def work(X: Any) -> Callable[[], Work]:
        return lambda: lambda: float(_single(lambda: sks.FrequentDirections(size=size).from_block(X)).shrinkage)

    wide = patches.astype(float)
    return Case(
        f"a sketch of {size} rows of {n} x {3 * side**2} photo patches, one thread",
        "shrinkage",
        {
            OURS: work(wide),
            **{f"{name}, float32": work(X) for name, X in rows.items()},
            FLOOR: _bare(lambda: products_of(wide, size)),
        },
    )


def sketch_by_svd(block: Any, size: int) -> Any:
    """Frequent Directions as usually written: a buffer of 2 l rows, shrunk through an SVD."""
    sketch = np.zeros((0, block.shape[1]))
    for start in range(0, block.shape[0], size):
        rows = np.vstack([sketch, block[start : start + size]])
        if rows.shape[0] >= 2 * size - 1:
            _, s, vt = np.linalg.svd(rows, full_matrices=False)
            s2 = np.maximum(s[: size - 1] ** 2 - s[size - 1] ** 2, 0)
            rows = np.sqrt(s2)[:, None] * vt[: size - 1]
        sketch = rows
    return sketch


def exact_gram(block: Any) -> Any:
    """Accumulate the Gram matrix over pieces of rows."""
    p = block.shape[1]
    gram, product = np.zeros((p, p), block.dtype), np.empty((p, p), block.dtype)
    for start in range(0, block.shape[0], 2048):
        piece = block[start : start + 2048]
        gram += np.matmul(piece.T, piece, out=product)
    return gram


def products_of(X: Any, size: int) -> None:
    """The products of the plain algorithm: 8 l p flops a row, in its own shapes."""
    factor, out = np.ones((size, 2 * size)), np.empty((size, X.shape[1]))
    for start in range(0, len(X) - 2 * size + 1, size):
        rows = X[start : start + 2 * size]
        np.matmul(rows, rows[:size].T)
        np.matmul(factor, rows, out=out)


def moments(given: Setting) -> Case:
    """Moments with a target, and their other forms.

    The aims are 1.3 times the floor, decayed 1.4, five folds 1.8, pairwise 6, and QR 2 times the bare QR.
    """
    n, p = (400, 200) if given.small else (8192, 1000)
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((n, p)), rng.standard_normal(n)
    forms = {
        OURS: sks.Moments(),
        "decayed": sks.summaries.DecayedMoments(half_life=1000),
        "five folds": sks.Folds(sks.Moments(), 5),
        "pairwise": sks.Moments(missing="pairwise"),
        "QR": sks.Moments(method="qr"),
    }
    return Case(
        f"moments of {n} x {p} float64 with a target, one thread",
        "none",
        {
            **{name: _bare(lambda form=form: form.from_block(X, y)) for name, form in forms.items()},
            "bare QR": _bare(lambda: np.linalg.qr(X, mode="r")),
            FLOOR: _bare(lambda: exact_gram(X)),
        },
    )


def store(given: Setting) -> Case:
    """One pass over a store in Zarr; with `--rows 500000` of 4 GB."""
    import dask.array as da

    n, p, size = (2 * BAND, 50, 10) if given.small else (given.rows, 2000, 64)
    folder = tempfile.TemporaryDirectory()
    path = str(Path(folder.name) / "rows.zarr")
    make_store(Path(path), n, p)
    spec = {"sketch": sks.FrequentDirections(size=size), "stats": sks.ColumnStats()}

    def ours() -> Work:
        def work() -> float:
            _ = folder  # lives as long as the case
            return float(sks.summarize(path, spec, client="serial")["sketch"].shrinkage)

        return work

    def compressed() -> Any:
        _, s, v = da.linalg.svd_compressed(da.from_zarr(path), size, seed=0)
        return dask.compute(s, v, scheduler="synchronous")

    def floor() -> None:
        matrix = sks.open_matrix(path)
        for start in range(0, n, BAND):
            products_of(matrix.read_rows(start, min(n, start + BAND)).astype(float), size)

    return Case(
        f"a pass over a Zarr store, {n} x {p} float32: sketch of {size} rows and column statistics, one thread",
        "shrinkage",
        {OURS: ours, "da.linalg.svd_compressed": _bare(compressed), FLOOR: _bare(floor)},
    )


def counts(n_rows: int, n_columns: int, density: float) -> Any:
    """Return counts with columns of very different frequency, as documents and cells have them."""
    rng = np.random.default_rng(0)
    share = 1.0 / (10 + np.arange(n_columns))
    columns = rng.choice(n_columns, size=(n_rows, int(density * n_columns)), p=share / share.sum())
    ends = np.arange(n_rows + 1) * columns.shape[1]
    return as_csr(sp.csr_array((1.0 + rng.poisson(1, columns.size), columns.ravel(), ends), shape=(n_rows, n_columns)))


def sparse(given: Setting) -> Case:
    """A sketch of counts in CSR; the aim is a fifth of what the same rows take when they are dense."""
    n, p, size = (200, 500, 8) if given.small else (4096, 25_000, 64)
    return sparse_of(counts(n, p, 0.01), size)


def sparse_of(X: Any, size: int, rows: str = "counts") -> Case:
    """A sketch of any sparse rows; see `sparse`."""
    n, p = X.shape

    def side(make: Callable[[], Any]) -> Callable[[], Work]:
        def ready() -> Work:
            values = make()
            return lambda: float(_single(lambda: sks.FrequentDirections(size).from_block(values)).shrinkage)

        return ready

    def truncated() -> Any:
        from sklearn.decomposition import TruncatedSVD

        return TruncatedSVD(size, n_iter=4, random_state=0).fit(X)

    right, left = np.ones((p, size)), np.ones((n, size))
    return Case(
        f"a sketch of {size} rows of {n} x {p} {rows}, {100 * X.nnz / n / p:.2g} % of them not zero, one thread",
        "shrinkage",
        {
            OURS: side(lambda: X),
            "the same rows, dense": side(X.toarray),
            "scikit-learn TruncatedSVD": _bare(truncated),
            FLOOR: _bare(lambda: [X @ right, X.T @ left]),
        },
    )


def barrier(given: Setting) -> Case:
    """Barrier sampling; the aim is 8 times its products, 2 n k^2 flops a step, at the rate of a large product."""
    n, k, steps = (2000, 20, 50) if given.small else (20_000, 20, 200)
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.standard_normal((n, k)) * rng.exponential(size=(n, 1)))[0]
    norms = rng.exponential(size=n)
    # A square product of about as many flops as the run.
    square = rng.standard_normal((round((n * k * k * steps) ** (1 / 3)),) * 2)
    return Case(
        f"barrier sampling of {n} columns, k = {k}, {steps} steps, one thread",
        "none",
        {
            OURS: _bare(lambda: sample_spectral(vectors, steps)),
            "with the Frobenius norm": _bare(lambda: sample_frobenius(vectors, norms, steps)),
            FLOOR: _bare(lambda: square @ square),
        },
    )


def lasso(given: Setting) -> Case:
    """A lasso path of 50 penalties from rows."""
    n, p = (300, 20) if given.small else (10_000, 500)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p)) + rng.standard_normal((n, 1))
    return lasso_of(X, X[:, ::10].sum(axis=1) + rng.standard_normal(n))


def lasso_of(X: Any, y: Any, rows: str = "") -> Case:
    """A lasso path from any rows; see `lasso`."""
    n = len(X)
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

        # With 1,000 iterations, the default, it warns that it has not converged for ten penalties of `lasso_diabetes`.
        return lambda: objective(_single(lambda: lasso_path(X, y, alphas=alphas, max_iter=100_000))[1][:, -1])

    def skglm() -> Work:
        from skglm.datafits import Quadratic
        from skglm.penalties import L1
        from skglm.solvers import AndersonCD

        solver = AndersonCD(tol=1e-6, fit_intercept=False, warm_start=True)
        return lambda: objective(
            _single(lambda: solver.path(X, y, Quadratic(), L1(alphas[0]), alphas=alphas))[1][:, -1]
        )

    return Case(
        f"a lasso path of 50 penalties from {n} x {X.shape[1]} {rows}rows, one thread",
        "objective at the smallest penalty",
        {OURS: ours_, "scikit-learn": peer, "skglm": skglm, FLOOR: _bare(lambda: exact_gram(X))},
    )


def stream(given: Setting) -> Case:
    """Correlations with a target along a stream."""
    n, p = (200, 5) if given.small else (5000, 50)
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


def genes(given: Setting) -> Case:
    """Highly variable genes of counts."""
    n, p = (300, 200) if given.small else (10_000, 5000)
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
        {OURS: ours_, "scanpy": scanpy, FLOOR: _bare(lambda: [X.sum(axis=0), (X * X).sum(axis=0)])},
    )


def load(name: str) -> Any:
    """Return the arrays of a public set."""
    return np.load(DATA / f"{name}.npz")


def patches(count: int, side: int) -> Any:
    """Return patches of the two photographs of scikit-learn, as rows of float32."""
    from sklearn.datasets import load_sample_images
    from sklearn.feature_extraction.image import extract_patches_2d

    images = load_sample_images().images
    rows = [extract_patches_2d(image, (side, side), max_patches=count // 2, random_state=0) for image in images]
    return np.concatenate(rows).reshape(count, -1).astype("float32")


def sketch_patches(given: Setting) -> Case:
    """A sketch of patches of photographs."""
    return sketch_of(patches(400 if given.small else 8000, 12).astype(float), 40, "patches of photographs, ")


def sketch_mnist(given: Setting) -> Case:
    """A sketch of images of digits."""
    X = load("MNIST")["X"][: 500 if given.small else 8000].astype(float)
    return sketch_of(X, 40, "images of digits (MNIST), ")


def sparse_texts(given: Setting) -> Case:
    """A sketch of the words of messages."""
    parts = load("20Newsgroups_tf")
    X = sp.csr_array((parts["data"].astype(float), parts["indices"], parts["indptr"]), shape=parts["shape"])
    return sparse_of(as_csr(X[: 200 if given.small else 1500]), 40, "words of messages (20 Newsgroups)")


def lasso_diabetes(given: Setting) -> Case:
    """A lasso path on the patients of scikit-learn, with products of three columns."""
    from sklearn.datasets import load_diabetes
    from sklearn.preprocessing import PolynomialFeatures

    X, y = load_diabetes(return_X_y=True)
    X = PolynomialFeatures(1 if given.small else 3, include_bias=False).fit_transform(X)
    return lasso_of(X, y, "patients and products, ")


CASES: dict[str, Callable[[Setting], Case]] = {
    case.__name__: case
    for case in (
        *(kmeans, kmeans_narrow, kmeans_many, kmeans_images, kmeans_patches),
        *(sketch, sketch_wide, sketch_real, moments, store, sparse, barrier, lasso, stream, genes),
        *(sketch_patches, lasso_diabetes),
        *((kmeans_mnist, sketch_mnist) if (DATA / "MNIST.npz").is_file() else ()),
        *([sparse_texts] if (DATA / "20Newsgroups_tf.npz").is_file() else ()),
    )
}
