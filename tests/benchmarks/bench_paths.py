"""Whole fits of penalised paths as ratios to the nearest estimators of scikit-learn on the same rows, with five folds.

Run: ``python tests/benchmarks/bench_paths.py [--quick] [NAMES]`` (``--quick``: shapes of seconds alone). A regression
and two classes (a target of +-1) are compared with `LassoCV` and `ElasticNetCV`, more classes with the multi-task
models on the indicators of the classes, `LogisticPath` with `LogisticRegressionCV` of the same strengths (two classes
by "liblinear", more by "saga"). Ours stops at a duality gap of 1e-10 (the logistic one of 1e-6), theirs at
1e-4, or after 1,000 sweeps (100 of "saga") with a warning. Times are processor time; ``OPENBLAS_NUM_THREADS=1``.
The columns are noise, correlated (a fifth as many factors, and noise of a tenth), or skewed (exponentials of such).

Ratios of one run on a machine with other work ("<": scikit-learn was ended; "*": of wall times):

    75 x 27, 4 classes, degree 2, lasso                0.08*    50 x 5,000, lasso                          1.34
    73 x 325, 7 classes, elastic net                   0.65*    50 x 5,000, 2 classes, elastic net         0.50
    73 x 325, 7 classes, lasso                         0.04*    50 x 5,000, 5 classes, lasso             < 0.04
    1,800 x 64, 10 classes, lasso                      0.03*    500 x 30, degree 2, lasso                  0.19*
    1,075 x 27, 2 classes, degree 2, lasso             0.91*    180 x 13, 3 classes, degree 2, lasso       0.19*
    1,075 x 24, 4 classes, degree 2, lasso           < 0.79     2,000 x 100, lasso                         2.87
    1,075 x 24, 4 classes, degree 2, elastic net     < 1.56     2,000 x 100, elastic net                   2.32
    200 x 1,000, lasso                                 1.40     10,000 x 300, lasso                        0.88
    200 x 1,000, 3 classes, lasso                      0.63     500 x 30, 2 classes, logistic              0.49
"""

import argparse
import multiprocessing
import resource
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.linear_model import ElasticNetCV, LassoCV, LogisticRegressionCV, MultiTaskElasticNetCV, MultiTaskLassoCV
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from sketchselect.selectors import ElasticNetPath, LassoPath, LogisticPath

SHAPES = {
    # name: rows, columns, classes (1: a regression), degree, kind of columns, penalty; the quick ones first
    "75 x 27, 4 classes, degree 2, lasso": (75, 27, 4, 2, "skewed", "lasso"),
    "73 x 325, 7 classes, elastic net": (73, 325, 7, 1, "correlated", "elastic net"),
    "73 x 325, 7 classes, lasso": (73, 325, 7, 1, "correlated", "lasso"),
    "1,800 x 64, 10 classes, lasso": (1800, 64, 10, 1, "correlated", "lasso"),
    "1,075 x 27, 2 classes, degree 2, lasso": (1075, 27, 2, 2, "skewed", "lasso"),
    "500 x 30, degree 2, lasso": (500, 30, 1, 2, "correlated", "lasso"),
    "180 x 13, 3 classes, degree 2, lasso": (180, 13, 3, 2, "skewed", "lasso"),
    "2,000 x 100, lasso": (2000, 100, 1, 1, "noise", "lasso"),
    "2,000 x 100, elastic net": (2000, 100, 1, 1, "correlated", "elastic net"),
    "200 x 1,000, lasso": (200, 1000, 1, 1, "noise", "lasso"),
    "200 x 1,000, 3 classes, lasso": (200, 1000, 3, 1, "noise", "lasso"),
    "1,075 x 24, 4 classes, degree 2, lasso": (1075, 24, 4, 2, "skewed", "lasso"),
    "1,075 x 27, 10 classes, degree 2, lasso": (1075, 27, 10, 2, "skewed", "lasso"),
    "1,075 x 24, 4 classes, degree 2, elastic net": (1075, 24, 4, 2, "skewed", "elastic net"),
    "10,000 x 300, lasso": (10_000, 300, 1, 1, "correlated", "lasso"),
    "10,000 x 300, 10 classes, lasso": (10_000, 300, 10, 1, "correlated", "lasso"),
    "10,000 x 30, degree 2, elastic net": (10_000, 30, 1, 2, "skewed", "elastic net"),
    "50 x 5,000, lasso": (50, 5000, 1, 1, "noise", "lasso"),
    "50 x 5,000, 2 classes, elastic net": (50, 5000, 2, 1, "correlated", "elastic net"),
    "50 x 5,000, 5 classes, lasso": (50, 5000, 5, 1, "correlated", "lasso"),
    "500 x 30, 2 classes, logistic": (500, 30, 2, 1, "correlated", "logistic"),
    "500 x 30, 4 classes, logistic": (500, 30, 4, 1, "correlated", "logistic"),
    "73 x 325, 7 classes, logistic": (73, 325, 7, 1, "correlated", "logistic"),
    "200 x 1,000, 2 classes, logistic": (200, 1000, 2, 1, "noise", "logistic"),
    "50 x 5,000, 2 classes, logistic": (50, 5000, 2, 1, "correlated", "logistic"),
    "10,000 x 300, 2 classes, logistic": (10_000, 300, 2, 1, "noise", "logistic"),
}


def rows(n: int, p: int, classes: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and target: five columns count, for each class in other ways."""
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((n, max(p // 5, 2)))
    mixed = factors @ rng.standard_normal((factors.shape[1], p)) / np.sqrt(factors.shape[1])
    x = {
        "noise": lambda: rng.standard_normal((n, p)),
        "correlated": lambda: mixed + 0.1 * rng.standard_normal((n, p)),
        "skewed": lambda: np.exp(0.7 * mixed + 0.3 * rng.standard_normal((n, p))),
    }[kind]()
    z = StandardScaler().fit_transform(x[:, :5]) @ rng.standard_normal((5, classes))
    z += rng.standard_normal((n, classes))
    return x, z[:, 0] if classes == 1 else z.argmax(axis=1)


def ours(n_classes: int, degree: Any, penalty: str) -> Any:
    """Return our estimator."""
    if penalty == "logistic":
        return LogisticPath()
    make = LassoPath if penalty == "lasso" else ElasticNetPath
    return make(task="regression" if n_classes == 1 else "classification", degree=degree)


def theirs(x: np.ndarray, y: np.ndarray, n_classes: int, degree: int, penalty: str) -> Callable[[], Any]:
    """Return the fit of scikit-learn's nearest estimator."""
    expand = PolynomialFeatures(degree, include_bias=False)
    ratio = {} if penalty == "lasso" else {"l1_ratio": 0.5}
    target = y
    if penalty == "logistic":
        alphas = LogisticPath(criterion="bic").fit(x, y).path_.values
        model: Any = LogisticRegressionCV(
            Cs=1.0 / (len(y) * alphas),
            l1_ratios=(1.0,),
            cv=5,
            solver="liblinear" if n_classes == 2 else "saga",
            use_legacy_attributes=False,
            scoring="neg_log_loss",
        )
    elif n_classes <= 2:
        model = (LassoCV if penalty == "lasso" else ElasticNetCV)(cv=5, **ratio)
        target = y if n_classes == 1 else 2.0 * y - 1.0
    else:
        model = (MultiTaskLassoCV if penalty == "lasso" else MultiTaskElasticNetCV)(cv=5, **ratio)
        target = np.eye(n_classes)[y]

    def fit() -> Any:
        columns = x if degree == 1 else StandardScaler().fit_transform(x)
        return model.fit(StandardScaler().fit_transform(expand.fit_transform(columns)), target)

    return fit


def seconds(fit: Callable[[], Any], limit: int) -> float:
    """Return the processor time of one call, in a process of its own, which is ended after `limit` seconds of it."""

    def measure() -> None:
        start = time.process_time()
        resource.setrlimit(resource.RLIMIT_CPU, (int(start) + limit + 1,) * 2)
        fit()
        send.send(time.process_time() - start)

    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=measure)
    process.start()
    send.close()
    try:
        return float(receive.recv())
    except EOFError:
        return float(limit)
    finally:
        process.join()


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="parts of the names of shapes")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--limit", type=int, default=60, help="seconds of processor time after which scikit-learn's fit is ended"
    )
    options = parser.parse_args()
    names = list(SHAPES)[:11] if options.quick else list(SHAPES)
    warnings.simplefilter("ignore")
    for name in names:
        n, p, classes, degree, kind, penalty = SHAPES[name]
        if options.names and not any(part in name for part in options.names):
            continue
        x, y = rows(n, p, classes, kind)
        mine, other = ours(classes, degree, penalty), theirs(x, y, classes, degree, penalty)
        # What is compiled is loaded before.
        ours(classes, 1, penalty).fit(x[:40, :3], np.arange(40) % max(classes, 2))
        pairs = []
        while len(pairs) < 5 and np.sum(pairs) < 10:
            pairs.append((seconds(partial(mine.fit, x, y), 300), seconds(other, options.limit)))
        a, b = np.median(pairs, axis=0)
        ratio, sign = float(np.median([a / b for a, b in pairs])), "< " if b >= options.limit else ""
        print(f"{name:46} {a:8.2f} s  scikit-learn {b:8.2f} s  ratio {sign}{ratio:.2f} (<= 3)", flush=True)


if __name__ == "__main__":
    main()
