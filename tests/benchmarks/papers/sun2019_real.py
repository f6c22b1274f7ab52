"""Table 5 of Sun, Guo and Barbu (2019) on the data that can be had, and models of degree 2."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sun2019_streams import moments_problem

from sketchselect.solvers import Lasso, anneal, least_squares, solve_path, threshold
from sketchselect.summaries import Moments
from sketchselect.summaries.moment_forms import expand

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def splits(X: np.ndarray, y: np.ndarray, n_splits: int, share: float = 0.8) -> Iterator[Split]:
    """Yield random training and test rows."""
    for seed in range(n_splits):
        order = np.random.default_rng(seed).permutation(len(y))
        cut = int(share * len(y))
        yield X[order[:cut]], y[order[:cut]], X[order[cut:]], y[order[cut:]]


def score(y: np.ndarray, predicted: np.ndarray, labels: bool) -> float:
    """Return the area under the ROC curve, or R2."""
    from sklearn.metrics import r2_score, roc_auc_score

    return float(roc_auc_score(y > 0, predicted) if labels else r2_score(y, predicted))


def ours(moments: Moments, X: np.ndarray, y: np.ndarray, sizes: list[int], labels: bool) -> dict[str, dict[int, float]]:
    """Return method -> number of columns -> test score, from the moments of the training rows."""
    problem = moments_problem(moments)
    wide = problem.n <= 1.05 * problem.n_features
    out: dict[str, dict[int, float]] = {"OLS-th": {}, "OFSA": {}, "Lasso": {}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = solve_path(problem, Lasso(), tol=1e-6, max_features=max(sizes))
    # One ranking serves every number of columns.
    order = np.argsort(-threshold(problem, max(sizes), jitter=0.1 if wide else None).scores, kind="stable")
    for k in sizes:
        coefs = {
            "OLS-th": least_squares(problem, order[:k])[:, 0],
            "OFSA": anneal(problem, k).coef[:, 0],
            "Lasso": path.coef(int(np.flatnonzero(path.n_nonzero <= k)[-1])),
        }
        for name, standardised in coefs.items():
            coef, intercept = problem.original_units(standardised)
            out[name][k] = score(y, X @ coef + intercept, labels)
    return out


def on_rows(X: np.ndarray, y: np.ndarray, T: np.ndarray, u: np.ndarray, labels: bool) -> float:
    """Return the test score of scikit-learn on the raw training rows, scaled: Lasso, or l1 logistic regression, CV."""
    from sklearn.linear_model import LassoCV, LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if labels:
            logistic = LogisticRegression(l1_ratio=1.0, solver="liblinear", max_iter=200)
            search = GridSearchCV(logistic, {"C": [0.01, 0.03, 0.1, 1.0]}, cv=3, scoring="roc_auc")
            model = make_pipeline(StandardScaler(), search).fit(X, y > 0)
            return score(u, model.decision_function(T), True)
        model = make_pipeline(StandardScaler(), LassoCV(cv=3, alphas=20, tol=1e-2)).fit(X, y)
        return score(u, model.predict(T), False)


def related_columns(moments: Moments, k: int) -> np.ndarray:
    """Return the k columns most correlated with another column: where redundancy is, products may matter."""
    covariance = moments.covariance()
    scale = np.sqrt(covariance.diagonal())
    correlation = np.abs(covariance / np.where(scale > 0, np.outer(scale, scale), 1))
    np.fill_diagonal(correlation, 0)
    return np.sort(np.argsort(-correlation.max(axis=0), kind="stable")[:k])


def study(
    name: str, X: np.ndarray, y: np.ndarray, *, labels: bool, sizes: list[int], degree: int, n_splits: int, raw: bool
) -> list[dict[str, Any]]:
    """Return records: mean test score of the best number of columns, for each method, and of scikit-learn."""
    found: dict[str, dict[int, list[float]]] = {}
    reference = []
    for A, a, T, u in splits(X, y, n_splits):
        if degree == 2:
            base = Moments().from_block(A, a)
            columns = related_columns(base, 20) if X.shape[1] > 100 else np.arange(X.shape[1])
            linear = Moments(degree=2).from_block(A[:, columns], a)
            moments = linear.expanded()
            scale = np.sqrt(linear.covariance().diagonal())
            T = expand(T[:, columns], linear.mean, scale)
            A = expand(A[:, columns], linear.mean, scale)
        else:
            moments = Moments().from_block(A, a)
        for method, scores in ours(moments, T, u, sizes, labels).items():
            for k, value in scores.items():
                found.setdefault(method, {}).setdefault(k, []).append(value)
        if raw:
            reference.append(on_rows(A, a, T, u, labels))
    out = []
    metric = "AUC" if labels else "R2"
    for method, by_size in found.items():
        k = max(by_size, key=lambda size: np.mean(by_size[size]))
        out.append({"data": name, "degree": degree, "method": method, "k": k, metric: float(np.mean(by_size[k]))})
    if reference:
        out.append(
            {"data": name, "degree": degree, "method": "scikit-learn", "k": None, metric: float(np.mean(reference))}
        )
    return out


def paths(folder: Path, name: str = "YearPredictionMSD_1176", n_shown: int = 6) -> Iterator[str]:
    """Yield lines of Figure 1: standardised coefficients of the strongest columns along the paths of both methods."""
    path = folder / f"{name}.npz"
    if not path.exists():
        return
    with np.load(path) as data:
        problem = moments_problem(Moments().from_block(data["X"].astype(float), data["y"].astype(float)))
    sizes = [1, 2, 5, 10, 20, 40, 60, problem.n_features]
    lasso = solve_path(problem, Lasso(), tol=1e-8)
    models = {
        "OLS-th": [threshold(problem, k).coef[:, 0] for k in sizes],
        "Lasso": [lasso.coef(int(np.flatnonzero(lasso.n_nonzero <= k)[-1])) for k in sizes],
    }
    strongest = np.argsort(-np.abs(models["OLS-th"][-1]), kind="stable")[:n_shown]
    yield f"  columns {', '.join(map(str, strongest))} in standard deviations, and R2 on the rows themselves"
    for method, coefs in models.items():
        for k, coef in zip(sizes, coefs, strict=True):
            shown = " ".join(f"{value:>7.3f}" for value in coef[strongest])
            yield f"  {method:<8} at most {k:>3} columns  {shown}   {1 - problem.rss(coef) / problem.yy[0, 0]:.3f}"


def studies(folder: Path, n_splits: int, *, small: bool = False) -> Iterator[list[dict[str, Any]]]:
    """Yield the records of every data set that is in `folder`; `small` leaves out those of more than 1000 columns."""
    plans = [
        ("YearPredictionMSD_1176", False, 1, [10, 30, 60, 90]),
        ("YearPredictionMSD_1176", False, 2, [10, 30, 60, 120]),
        ("madelon", True, 1, [5, 10, 20, 100]),
        ("madelon", True, 2, [10, 30, 60, 120]),
        ("arcene", True, 1, [30, 100]),
    ]
    for name, labels, degree, sizes in plans:
        path = folder / f"{name}.npz"
        if not path.exists():
            continue
        with np.load(path) as data:
            X, y = data["X"].astype(float), data["y"].astype(float)
        if small and (X.shape[1] > 1000 or degree == 2):
            continue
        if labels:
            y = np.where(y == y.max(), 1.0, -1.0)
        # A factorisation of p x p, and annealing, take seconds each where p is large.
        few = n_splits if X.shape[1] * degree < 180 else max(1, n_splits // 5)
        few = 1 if X.shape[1] > 5000 else few
        yield study(name, X, y, labels=labels, sizes=sizes, degree=degree, n_splits=few, raw=True)
