"""Selectors with a target as they are by default, against scikit-learn's cross-validated ones, on small samples.

Nested: every estimator chooses its model on four fifths of the rows, and is scored on the last fifth. The score is the
mean squared error relative to that of the mean, or the share of wrong classes; beside it the columns selected.
scikit-learn standardises the columns first, as these selectors do. Of matrices wider than 1,000 columns the 1,000 of
largest variance are used. Run ``python tests/benchmarks/defaults_with_target.py [--seeds 2] [--criterion bic]``.

With ``--auto``: `TargetAutoSelector` against each of the methods that it compares, the sets of fewest values first, in
nested cross-validation that is repeated, so that the choice between methods is made anew without the rows left out.
"By the pass" is the largest ratio of the chosen method's error to the least, as the pass itself measured them. The
ratio is its error over that of the method which is best on the rows left out, which nobody knows beforehand; beside it
stands the difference in its standard errors over the rows, because on a small set one row decides. Four sets were kept
aside when the methods that compete were fixed: iris, friedman3 with 16 columns of noise, USPS (500 rows) and Isolet
(520 rows); ``--held-aside``.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn import datasets
from sklearn.base import clone
from sklearn.linear_model import ElasticNetCV, LassoCV, LogisticRegression, LogisticRegressionCV
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

import sketchselect as sks
from sketchselect.selectors.supervised.auto import _divisions

DATA = Path(os.environ.get("SKETCHSELECT_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
WIDEST = 1000
OURS = {
    "lasso": sks.LassoPath,
    "elastic-net": sks.ElasticNetPath,
    "mcp": sks.MCPPath,
    "scad": sks.SCADPath,
    "thresholded-ols": sks.ThresholdedOLS,
    "annealing": sks.FeatureSelectionAnnealing,
}


def correlated(n, p, n_true, rho, seed):
    """Return rows whose neighbouring columns correlate, and a target of which they explain about four fifths."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    for j in range(1, p):
        X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho * rho) * X[:, j]
    signal = X[:, rng.permutation(p)[:n_true]] @ rng.choice([-1.0, 1.0], n_true)
    return X, signal + 0.5 * signal.std() * rng.standard_normal(n)


def regressions():
    """Yield name, rows and target."""
    X, y = datasets.load_diabetes(return_X_y=True)
    yield "diabetes", X, y
    yield "diabetes, 100 rows", X[:100], y[:100]
    yield "diabetes, degree 2, 150 rows", PolynomialFeatures(2, include_bias=False).fit_transform(X[:150]), y[:150]
    yield "linnerud", datasets.load_linnerud().data, datasets.load_linnerud().target[:, 0]
    yield "friedman1, 120 x 50", *datasets.make_friedman1(120, 50, noise=1.0, random_state=0)
    yield "sparse, 100 x 300", *correlated(100, 300, 5, 0.5, 0)
    yield "sparse, 60 x 500", *correlated(60, 500, 5, 0.9, 1)
    yield "dense, 150 x 100", *correlated(150, 100, 50, 0.5, 2)
    yield "dense, 80 x 200", *correlated(80, 200, 100, 0.8, 3)
    noise = np.random.default_rng(4)
    yield "noise, 100 x 50", noise.standard_normal((100, 50)), noise.standard_normal(100)
    file = DATA / "YearPredictionMSD_1176.npz"
    if file.exists():
        year = np.load(file)
        yield "years", year["X"], year["y"].astype(float)
        yield "years, 150 rows", year["X"][:150], year["y"][:150].astype(float)


def classifications():
    """Yield name, rows and classes."""
    X, y = datasets.load_breast_cancer(return_X_y=True)
    yield "breast cancer", X, y
    order = np.random.default_rng(0).permutation(len(y))[:100]
    yield "breast cancer, 100 rows", X[order], y[order]
    yield "wine", *datasets.load_wine(return_X_y=True)
    X, y = datasets.load_digits(return_X_y=True)
    yield "digits, 200 rows", X[:200], y[:200]
    yield "made, 100 x 200", *datasets.make_classification(100, 200, n_informative=5, class_sep=1.5, random_state=0)
    for name in ("ALLAML", "arcene", "madelon"):
        file = DATA / f"{name}.npz"
        if file.exists():
            data = np.load(file)
            X = data["X"].astype(float)
            yield name, X[:, np.sort(np.argsort(-X.var(axis=0), kind="stable")[:WIDEST])], data["y"]


def estimators(task, criterion):
    """Return name -> estimator."""
    ours = {name: cls(task=task, criterion=criterion) for name, cls in OURS.items()}
    if task == "classification":
        theirs = {
            "LogisticRegressionCV": LogisticRegressionCV(
                Cs=10, cv=5, l1_ratios=(1.0,), solver="saga", tol=1e-3, max_iter=300, use_legacy_attributes=False
            )
        }
    else:
        theirs = {"LassoCV": LassoCV(cv=5, max_iter=20_000), "ElasticNetCV": ElasticNetCV(cv=5, max_iter=20_000)}
    theirs = {name: make_pipeline(StandardScaler(), model) for name, model in theirs.items()}
    if task == "classification":
        # The same columns with another loss: what is lost to selection, and what to the discriminant.
        logistic = LogisticRegression(max_iter=2000)
        ours["lasso, then logistic"] = make_pipeline(sks.LassoPath(task=task), StandardScaler(), logistic)
    return {**theirs, **ours}


def kept_aside():
    """Yield task, name, rows and target of the sets by which nothing was decided."""
    yield "classification", "iris", *datasets.load_iris(return_X_y=True)
    X, y = datasets.make_friedman3(300, noise=0.1, random_state=0)
    yield "regression", "friedman3, 300 x 20", np.hstack([X, np.random.default_rng(0).random((300, 16))]), y
    for name, n_rows in (("USPS", 500), ("Isolet", 520)):
        file = DATA / f"{name}.npz"
        if file.exists():
            data = np.load(file)
            rows = np.random.default_rng(0).permutation(len(data["y"]))[:n_rows]
            yield "classification", f"{name}, {n_rows} rows", data["X"][rows].astype(float), data["y"][rows]


def seen():
    """Yield task, name, rows and target of the other sets."""
    for task, sets in (("regression", regressions()), ("classification", classifications())):
        for name, X, y in sets:
            yield task, name, X, y


def losses_of_auto(X, y, task, seeds):
    """Return the loss of the automatic choice and of every method in every row, means over the repetitions; and wins.

    The loss is the squared error over the variance of the target, or 1 for a wrong class. The third result is the
    largest ratio of the winner's error to the least in any pass.
    """
    losses, wins, by_pass = {}, {}, 1.0
    for seed in range(seeds):
        splitter = (StratifiedKFold if task == "classification" else KFold)(5, shuffle=True, random_state=seed)
        for train, test in splitter.split(X, y):
            auto = sks.selectors.TargetAutoSelector(task=task).fit(X[train], y[train])
            with_counts = "mutual-information" in auto.errors_
            folds = _divisions(auto.summary_, auto.cv)[0]
            moments = folds.of_member("moments") if with_counts else folds
            models = {"auto": auto}
            for name, path in auto._competitors(moments.total, with_counts=with_counts).items():
                models[name] = path.fit_summary(folds if name == "mutual-information" else moments)
            by_pass = max(by_pass, auto.errors_[auto.method_] / (min(auto.errors_.values()) or 1.0))
            for name, model in models.items():
                predicted = model.predict(X[test])
                wrong = predicted != y[test] if task == "classification" else (predicted - y[test]) ** 2 / y.var()
                losses.setdefault(name, np.zeros(len(y)))[test] += wrong / seeds
            wins[auto.method_] = wins.get(auto.method_, 0) + 1
    return losses, wins, by_pass


def compare_auto(sets, seeds):
    """Print a line for each set."""
    head = "set", "auto", "best method", "by the pass", "ratio", "in standard errors", "the others", "chosen"
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    ratios = []
    for task, name, X, y in sorted(sets, key=lambda entry: entry[2].size):
        losses, wins, by_pass = losses_of_auto(X, y, task, seeds)
        auto = losses.pop("auto")
        means = {method: values.mean() for method, values in losses.items()}
        best = min(means, key=means.get)
        difference = auto - losses[best]
        error = difference.std(ddof=1) / np.sqrt(len(y))
        ratios.append(auto.mean() / means[best] if means[best] > 0 else 1.0)
        others = ", ".join(f"{method} {mean:.4f}" for method, mean in means.items() if method != best)
        taken = ", ".join(f"{method} {count}" for method, count in wins.items())
        print(
            f"| {name} | {auto.mean():.4f} | {best} {means[best]:.4f} | {by_pass:.3f} | {ratios[-1]:.3f} | "
            f"{difference.mean() / error if error > 0 else 0.0:.1f} | {others} | {taken} |",
            flush=True,
        )
    mean = np.exp(np.mean(np.log(np.maximum(ratios, 1e-6))))
    n_close = sum(ratio <= 1.03 for ratio in ratios)
    print(f"ratios: geometric mean {mean:.3f}, largest {max(ratios):.3f}, {n_close} of {len(ratios)} at most 1.03")


def n_columns(model):
    """Return the number of columns that a fitted model uses."""
    if hasattr(model, "support_"):
        return len(model.support_)
    if hasattr(model[0], "support_"):
        return len(model[0].support_)
    return int(np.atleast_2d(model[-1].coef_).any(axis=0).sum())


def measured(model, X, y, task, seeds):
    """Return the mean score of a model on the rows left out, its mean number of columns, and seconds for a fit."""
    scores, sizes, spent = [], [], 0.0
    for seed in range(seeds):
        splitter = (StratifiedKFold if task == "classification" else KFold)(5, shuffle=True, random_state=seed)
        for train, test in splitter.split(X, y):
            start = time.process_time()
            fitted = clone(model).fit(X[train], y[train])
            spent += time.process_time() - start
            predicted = fitted.predict(X[test])
            if task == "classification":
                scores.append(np.mean(predicted != y[test]))
            else:
                scores.append(np.mean((predicted - y[test]) ** 2) / np.mean((y[train].mean() - y[test]) ** 2))
            sizes.append(n_columns(fitted))
    return float(np.mean(scores)), float(np.mean(sizes)), spent / len(scores)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--criterion", choices=("aic", "bic", "ebic"), help="instead of the default, cross-validation")
    parser.add_argument("--only", help="sets whose name contains this")
    parser.add_argument("--auto", action="store_true", help="the automatic choice against the methods it compares")
    parser.add_argument("--held-aside", action="store_true", help="the same on the four sets kept aside")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.auto or options.held_aside:
        sets = kept_aside() if options.held_aside else seen()
        compare_auto((entry for entry in sets if (options.only or "") in entry[1]), options.seeds)
        return
    for task, sets in (("regression", regressions()), ("classification", classifications())):
        models = estimators(task, options.criterion)
        print(
            f"\n{task}: score (columns; CPU seconds of a fit)\n| set | {' | '.join(models)} |\n"
            f"|---|{'---|' * len(models)}"
        )
        for name, X, y in sets:
            if options.only and options.only not in name:
                continue
            cells = [
                "{:.3f} ({:.0f}; {:.2f})".format(*measured(model, X, y, task, options.seeds))
                for model in models.values()
            ]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
