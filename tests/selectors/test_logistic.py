"""Paths of logistic, multinomial and Poisson models: other solvers, the conditions of an optimum, passes, and use."""

import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import sklearn
from packaging.version import Version
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression, PoissonRegressor
from sklearn.metrics import log_loss, zero_one_loss
from tests.data_sets import data_set
from tests.passing import Recorder, interrupt

import sketchselect as sks
from sketchselect.errors import BadParameter, Incompatible, SketchSelectError
from sketchselect.execution import Checkpoint, LocalEngine
from sketchselect.selectors import LogisticPath
from sketchselect.selectors.supervised import likelihood_path
from sketchselect.selectors.supervised.logistic import MorePasses
from sketchselect.summaries import Folds, Moments
from sketchselect.testing.nasty import nasty_matrices

GOLDEN = Path(__file__).parents[1] / "summaries" / "golden"


def standardised(X, w=None):
    mean, scale = (
        np.average(X, axis=0, weights=w),
        np.sqrt(np.average((X - np.average(X, axis=0, weights=w)) ** 2, axis=0, weights=w)),
    )
    return np.divide(X - mean, scale, out=np.zeros(X.shape), where=scale > 1e-12 * np.abs(X).max())


def row_losses(family, margins, y):
    if family == "binomial":
        return np.logaddexp(0, margins[:, 0]) - y * margins[:, 0]
    if family == "poisson":
        return np.exp(margins[:, 0]) - y * margins[:, 0]
    return logsumexp(margins, axis=1) - margins[np.arange(len(y)), y]


def objective(family, margins, y, coef, alpha, l1_ratio=1.0):
    """Mean loss and penalty; `coef` of standardised columns."""
    penalty = l1_ratio * np.abs(coef).sum() + (1 - l1_ratio) / 2 * (coef**2).sum()
    return row_losses(family, margins, y).mean() + alpha * penalty


def objectives(model, X, y, l1_ratio=1.0):
    """The objective of every model of a path, from coefficients in the data's own units."""
    path, n_models = model.path_, len(model.path_)
    coefs = path.coefs.reshape(-1, X.shape[1], n_models)
    intercepts = path.intercepts.reshape(-1, n_models)
    return [
        objective(
            path.family, X @ coefs[..., i].T + intercepts[:, i], y, coefs[..., i] * X.std(axis=0), alpha, l1_ratio
        )
        for i, alpha in enumerate(path.alphas)
    ]


def two_digits():
    digits = load_digits()
    either = np.isin(digits.target, [3, 8])
    return digits.data[either], digits.target[either]


def leukaemia():
    data = data_set("ALLAML")
    return data["X"].astype(float), data["y"]


def two_speakers():
    data = data_set("Isolet")
    either = np.isin(data["y"], np.unique(data["y"])[:2])
    return data["X"][either].astype(float), data["y"][either]


SETS = {
    "breast cancer": partial(load_breast_cancer, return_X_y=True),
    "two digits": two_digits,
    "wine": partial(load_wine, return_X_y=True),
    "iris": partial(load_iris, return_X_y=True),
    "ALLAML": leukaemia,
    "Isolet": two_speakers,
}


def saga(Z, y, alpha, l1_ratio):
    # Before scikit-learn 1.8 `l1_ratio` says nothing without the name of the penalty.
    named = {} if Version(sklearn.__version__) >= Version("1.8") else {"penalty": "elasticnet"}
    settings = {"l1_ratio": l1_ratio, "C": 1 / (alpha * len(y)), "solver": "saga", "tol": 1e-8, "max_iter": 20_000}
    other = LogisticRegression(**settings, **named)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has changed the name of its penalty
        return other.fit(Z, y)


def skglm(Z, y, alpha, l1_ratio):
    module = pytest.importorskip("skglm")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its compiler
        return module.SparseLogisticRegression(alpha, l1_ratio, tol=1e-10, max_iter=100).fit(Z, y)


# In 20,000 epochs saga is not within 1e-5 of the optimum of rows this wide.
SOLVERS = dict.fromkeys(SETS, saga) | {"ALLAML": skglm, "Isolet": skglm}
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in SETS if name not in ("breast cancer", "wine")]


@pytest.mark.parametrize("l1_ratio", [1.0, 0.5])
@pytest.mark.parametrize("name", ["breast cancer", "wine", *SLOW])
def test_the_optimum_is_that_of_another_solver(name, l1_ratio):
    X, labels = SETS[name]()
    y = np.unique(labels, return_inverse=True)[1]
    model = LogisticPath(criterion="bic", l1_ratio=l1_ratio, n_alphas=8, alpha_ratio=0.02).fit(X, labels)
    assert model.converged_
    Z, ours = standardised(X), objectives(model, X, y, l1_ratio)
    for i in (2, 5):
        alpha = model.path_.alphas[i]
        other = SOLVERS[name](Z, y, alpha, l1_ratio)
        theirs = objective(model.path_.family, Z @ other.coef_.T + other.intercept_, y, other.coef_, alpha, l1_ratio)
        assert ours[i] == pytest.approx(theirs, rel=1e-6)


def counts(n=400, p=8, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) * np.geomspace(1e-3, 1e3, p) + 5.0
    return X, rng.poisson(np.exp(0.6 * standardised(X)[:, 2] - 0.4 * standardised(X)[:, -1] + 0.5))


def test_counts_by_a_quadratic_penalty_are_those_of_scikit_learn():
    X, y = counts()
    model = LogisticPath(family="poisson", l1_ratio=1e-9, alpha=0.1, tol=1e-4).fit(X, y)
    other = PoissonRegressor(alpha=0.1, tol=1e-10, max_iter=10_000).fit(standardised(X), y)
    assert model.predict(X) == pytest.approx(other.predict(standardised(X)), rel=1e-5)
    assert model.score(X, y) == pytest.approx(other.score(standardised(X), y), rel=1e-6)
    assert not hasattr(model, "predict_proba")


@pytest.mark.parametrize("family", ["binomial", "multinomial", "poisson"])
def test_the_optimum_is_that_of_brute_force(family):
    """Positive and negative parts of the coefficients as variables of a bounded smooth problem."""
    X, y = counts(n=150, p=5)
    y = {"poisson": y, "binomial": (y > 1).astype(int), "multinomial": np.minimum(y, 2)}[family]
    Z, q = standardised(X), 3 if family == "multinomial" else 1
    model = LogisticPath(family=family, criterion="aic", n_alphas=5, alpha_ratio=0.05).fit(X, y)
    for alpha, ours in list(zip(model.path_.alphas, objectives(model, X, y), strict=True))[1:]:

        def smooth(v, alpha=alpha):
            positive, negative, b0 = v[: 5 * q].reshape(q, 5), v[5 * q : 10 * q].reshape(q, 5), v[10 * q :]
            margins = Z @ (positive - negative).T + b0
            means = {
                "poisson": lambda: np.exp(margins),
                "binomial": lambda: 1 / (1 + np.exp(-margins)),
                "multinomial": lambda: np.exp(margins - logsumexp(margins, axis=1, keepdims=True)),
            }[family]()
            residuals = (means - (y[:, None] if q == 1 else np.eye(3)[y])) / len(y)
            slope = (residuals.T @ Z).ravel()
            value = row_losses(family, margins, y).mean() + alpha * v[: 10 * q].sum()
            return value, np.concatenate([slope + alpha, alpha - slope, residuals.sum(axis=0)])

        bounds = [(0, None)] * (10 * q) + [(None, None)] * q
        options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 5000}
        best = minimize(smooth, np.zeros(11 * q), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        assert ours == pytest.approx(best.fun, rel=1e-7)


ADVERSARIAL = {name: X for name, X in list(nasty_matrices().items())[::5] if len(X) > 3}


@pytest.mark.parametrize("family", ["binomial", "multinomial", "poisson"])
@pytest.mark.parametrize("name", sorted(ADVERSARIAL))
def test_every_model_satisfies_the_conditions_of_an_optimum(name, family):
    """Copies, constant and far columns, tiny and huge ones, classes that columns separate: all finite and optimal."""
    X = ADVERSARIAL[name].astype(float)
    y = np.arange(len(X)) * 7 % 3
    y = {"binomial": np.where(y > 0, "b", "a"), "multinomial": y, "poisson": y}[family]
    model = LogisticPath(family=family, criterion="bic", n_alphas=8).fit(X, y)
    assert model.converged_
    path, codes = model.path_, np.unique(y, return_inverse=True)[1]
    if path.n_active == 0:
        assert model.support_.size == 0
        return
    scale, mean = path.scale, path.mean
    Z = np.divide(X - mean, scale, out=np.zeros(X.shape), where=scale > 0)
    for candidate in path.candidates:
        assert np.isfinite(candidate.coef).all()
        margins = Z[:, candidate.support] @ candidate.coef + candidate.intercepts
        means = {
            "poisson": lambda m: np.exp(m),
            "binomial": lambda m: 1 / (1 + np.exp(-m)),
            "multinomial": lambda m: np.exp(m - logsumexp(m, axis=1, keepdims=True)),
        }[family](margins)
        target = np.eye(3)[codes] if family == "multinomial" else codes[:, None]
        slope = Z.T @ (means - target) / len(X)
        coef = np.zeros(slope.shape)
        coef[candidate.support] = candidate.coef
        # Within what a gap of tol allows: the bound is the violation times (|b|_1 + F / alpha) / F.
        room = 1e-6 * (1 + path.alphas[0]) + 1e-12
        assert (np.abs(slope) <= candidate.value + room).all()
        assert np.abs(slope + candidate.value * np.sign(coef))[coef != 0].max(initial=0.0) <= room
        assert np.abs((means - target).mean(axis=0)).max() <= room


@pytest.fixture
def few_sampled(monkeypatch):
    """A sample of 256 rows, from which all models start."""
    monkeypatch.setattr(likelihood_path, "SAMPLE_NBYTES", 1)


class Notes(Recorder):
    @property
    def n_passes(self):
        return 1 + sum(": pass " in note and "models" in note for note in self.notes)


def noisy(n=3000, p=12, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + 0.5 * rng.standard_normal((n, 1))
    return X, np.where(X[:, 3] - 0.7 * X[:, 8] + rng.logistic(size=n) > 1.0, "ill", "well")


def test_all_rows_are_read_a_few_times_and_the_optimum_is_that_of_one_sample(few_sampled, monkeypatch):
    X, y = noisy()
    notes = Notes()
    few = LogisticPath(n_alphas=10).fit(X, y, progress=notes)
    assert few.converged_
    assert 3 <= notes.n_passes <= 8
    monkeypatch.setattr(likelihood_path, "SAMPLE_NBYTES", 16 << 20)
    notes = Notes()
    whole = LogisticPath(n_alphas=10).fit(X, y, progress=notes)
    assert notes.n_passes == 2
    assert few.path_.alphas == pytest.approx(whole.path_.alphas, rel=1e-12)
    codes = (y == "well").astype(int)
    assert objectives(few, X, codes) == pytest.approx(objectives(whole, X, codes), rel=1e-6)
    assert few.path_.cv_errors == pytest.approx(whole.path_.cv_errors, rel=1e-4)
    assert few.path_.chosen == whole.path_.chosen
    assert few.path_.n_nonzero[0] == 0


def test_a_class_that_the_sample_lacks(few_sampled):
    X, _ = noisy(6000)
    y = np.zeros(len(X), dtype=int)
    y[[5, 4000]] = 2
    y[::2] = 1
    notes = Notes()
    model = LogisticPath(n_alphas=5, criterion="bic").fit(X, y, progress=notes)
    assert model.converged_
    assert notes.n_passes <= 12
    shares = model.predict_proba(X).mean(axis=0)
    assert shares == pytest.approx(np.bincount(y) / len(y), rel=1e-2)


def test_the_passes_allowed_are_kept_to(few_sampled):
    X, y = noisy()
    notes = Notes()
    with pytest.warns(MorePasses, match="max_passes = 2"):
        model = LogisticPath(n_alphas=5, max_passes=2, criterion="bic").fit(X, y, progress=notes)
    assert notes.n_passes == 2
    assert not model.converged_
    assert model.path_.gaps.max() > 1e-6


def test_engines_give_the_same_bits(few_sampled):
    X, y = noisy(1500)
    size = {"partition_bytes": 200 * 12 * 8}
    results = [
        LogisticPath(n_alphas=5, cv=2).fit(X, y, client=client, **size)
        for client in (LocalEngine(kind="serial"), LocalEngine(3))
    ]
    assert results[0].summary_ == results[1].summary_


def test_models_whose_hessians_are_many_are_summed_in_groups(few_sampled, monkeypatch):
    X, y = noisy(1500)
    size = {"partition_bytes": 200 * 12 * 8}
    whole = LogisticPath(n_alphas=5, cv=2).fit(X, y, **size)
    monkeypatch.setattr(likelihood_path, "HESSIANS_NBYTES", 5 * 8 * 13**2)
    notes = Notes()
    grouped, threads = (
        LogisticPath(n_alphas=5, cv=2).fit(X, y, client=client, progress=notes, **size)
        for client in (LocalEngine(kind="serial"), LocalEngine(3))
    )
    assert grouped.summary_ == threads.summary_
    assert any("groups of models, each over all rows" in note for note in notes.notes)
    assert grouped.summary_.record.hessians.size == 0
    assert grouped.converged_
    assert grouped.path_.coefs == pytest.approx(whole.path_.coefs, rel=1e-9, abs=1e-12)
    assert grouped.path_.cv_errors == pytest.approx(whole.path_.cv_errors, rel=1e-12)
    assert grouped.path_.gaps == pytest.approx(whole.path_.gaps, abs=1e-9)


@pytest.mark.parametrize("n_columns", [2, 30])
@pytest.mark.parametrize("family", ["binomial", "multinomial"])
def test_the_largest_sums_take_what_counting_their_terms_gives(few_sampled, monkeypatch, family, n_columns):
    classes = tuple("ab" if family == "binomial" else "abcd")
    settings = likelihood_path.PathSettings(
        family, classes, (1.0, 0.5), None, 5, None, n_folds=3, seed=0, groups=False, max_passes=9, tol=1e-6
    )
    side = settings.most_terms(1000, n_columns)
    monkeypatch.setattr(likelihood_path, "HESSIANS_NBYTES", 7 * 8 * side**2)
    largest = settings.largest(1000, n_columns)
    every_term = np.tile(largest.terms[:side], (40, 1))
    every_term[:, 0] = np.repeat(np.arange(40), side)
    assert largest.models[:, 2].tolist() == [1.0] * 7 + [0.0] * 33
    assert len(largest.terms) == 7 * side
    counted = sks.summaries.LikelihoodSums(**largest.parameters() | {"terms": every_term})
    assert largest.projected_nbytes(n_columns) == counted.projected_nbytes(n_columns)
    assert largest.working_nbytes(n_columns) == counted.working_nbytes(n_columns)


def test_groups_of_several_shares_of_the_lasso(few_sampled, monkeypatch):
    X, y = noisy(1500)
    ratios = [0.4, 1.0]
    whole = LogisticPath(n_alphas=4, cv=2, l1_ratio=ratios).fit(X, y)
    monkeypatch.setattr(likelihood_path, "HESSIANS_NBYTES", 1)
    grouped = LogisticPath(n_alphas=4, cv=2, l1_ratio=ratios).fit(X, y)
    assert grouped.summary_.l1_ratios.tolist() == whole.summary_.l1_ratios.tolist()
    assert grouped.summary_.folds.tolist() == whole.summary_.folds.tolist()
    assert grouped.path_.coefs == pytest.approx(whole.path_.coefs, rel=1e-9, abs=1e-12)
    assert (grouped.l1_ratio_, grouped.alpha_) == pytest.approx((whole.l1_ratio_, whole.alpha_), rel=1e-12)


def write_store(folder, X):
    import zarr

    array = zarr.create_array(str(folder / "x.zarr"), shape=X.shape, chunks=(300, X.shape[1]), dtype="float64")
    array[:] = X
    return str(folder / "x.zarr")


def test_a_run_that_stopped_goes_on_from_its_last_pass(few_sampled, tmp_path):
    X, y = noisy(1500)
    store, size = write_store(tmp_path, X), {"partition_bytes": 300 * 12 * 8, "client": "serial"}
    model = LogisticPath(n_alphas=4, criterion="bic")
    plain = model.fit(store, y, **size).summary_
    kept = Checkpoint(tmp_path / "kept", min_seconds=0.0, min_bytes=0)
    with pytest.raises((KeyboardInterrupt, SketchSelectError)):
        model.fit(store, y, checkpoint=kept, progress=Notes("logistic: pass 3", interrupt), **size)
    notes = Notes()
    assert model.fit(store, y, checkpoint=kept, progress=notes, **size).summary_ == plain
    resumed = [note for note in notes.notes if "resuming" in note]
    assert any(note.startswith("logistic: pass 2") for note in resumed)
    assert not any(note.startswith("logistic: pass 3") for note in resumed)


@pytest.mark.slow
def test_workers_give_the_same_bits(few_sampled, tmp_path):
    from sketchselect.execution import local_cluster

    X, y = noisy(1500)
    store, size = write_store(tmp_path, X), {"partition_bytes": 300 * 12 * 8}
    with local_cluster(2) as engine:
        remote = LogisticPath(n_alphas=4, cv=2).fit(store, y, client=engine, **size)
    assert remote.summary_ == LogisticPath(n_alphas=4, cv=2).fit(store, y, client="serial", **size).summary_


def test_deviances_on_folds_are_those_of_models_without_the_fold():
    X, y = noisy(400)
    model = LogisticPath(n_alphas=6, cv=3, random_state=5).fit(X, y)
    fold = Folds(Moments(), 3, seed=5).fold_of(np.arange(400, dtype=np.uint64))
    Z, i, codes = standardised(X), 3, (y == "well").astype(int)
    alpha = model.path_.alphas[i]
    for k in range(3):
        train = fold != k
        other = saga(Z[train], codes[train], alpha, 1.0)
        error = 2 * log_loss(codes[~train], other.predict_proba(Z[~train]))
        assert model.path_.cv_errors[i, k] == pytest.approx(error, rel=1e-5)
    assert model.path_.chosen == model.path_.cv_errors.mean(axis=1).argmin()
    sparse = LogisticPath(n_alphas=6, cv=3, random_state=5, cv_rule="1se").fit_summary(model.summary_)
    assert sparse.support_.size <= model.support_.size
    groups = np.arange(400) // 4
    grouped = LogisticPath(n_alphas=6, cv=3, random_state=5).fit(X, y, groups=groups)
    assert not np.allclose(grouped.path_.cv_errors, model.path_.cv_errors)


def test_unbalanced_classes_as_text_in_any_output():
    import dask.array as da

    X, y = noisy(900)
    y = np.where(np.arange(900) < 600, "none of both", y)
    model = LogisticPath(criterion="bic").fit(X, y)
    assert model.classes_.tolist() == ["ill", "none of both", "well"]
    assert model.coef_.shape == (3, 12)
    assert abs(model.intercept_.sum()) < 1e-12
    margins = X @ model.coef_.T + model.intercept_
    assert model.decision_function(X) == pytest.approx(margins)
    shares = np.exp(margins) / np.exp(margins).sum(axis=1, keepdims=True)
    assert model.predict_proba(X) == pytest.approx(shares)
    assert (model.predict(X) == model.classes_[shares.argmax(axis=1)]).all()
    # The intercepts are at their optimum, so that classes are as frequent as they are expected.
    assert shares.mean(axis=0) == pytest.approx([np.mean(y == c) for c in model.classes_], abs=1e-5)
    lazy = model.predict_proba(da.from_array(X, chunks=(100, 12)))
    assert lazy.compute() == pytest.approx(shares)
    two = LogisticPath(criterion="bic").fit(X[600:], y[600:])
    assert two.predict_proba(X)[:, 1] == pytest.approx(1 / (1 + np.exp(-two.decision_function(X))))


def test_shares_and_criteria_of_deviance():
    X, y = counts()
    model = LogisticPath(family="poisson", criterion="aic", n_alphas=12).fit(X, y)
    path = model.path_
    assert model.selection_.diagnostics["explained"] == pytest.approx(model.score(X, y), rel=1e-9)
    assert path.criteria["aic"] == pytest.approx(len(y) * path.residual_squares + 2.0 * path.n_nonzero)
    assert path.chosen == path.criteria["aic"].argmin()
    assert path.residual_squares[0] == pytest.approx(model.summary_.null_deviance, rel=1e-6)


@pytest.mark.parametrize("cv_rule", ["min", "1se"])
def test_of_several_shares_of_the_lasso_one_is_chosen_with_alpha(tmp_path, cv_rule):
    X, y = noisy(500)
    shares = {"n_alphas": 12, "cv_rule": cv_rule}
    single = {ratio: LogisticPath(l1_ratio=ratio, **shares).fit(X, y) for ratio in (1.0, 0.5, 0.1)}
    errors = {ratio: model.path_.cv_errors.mean(axis=1) for ratio, model in single.items()}
    model = LogisticPath(l1_ratio=[0.1, 1.0, 0.5], **shares).fit(X, y)
    best = min(errors, key=lambda ratio: errors[ratio].min())
    if cv_rule == "min":
        assert model.l1_ratio_ == best
    else:
        at = errors[best].argmin()
        slack = single[best].path_.cv_errors[at].std(ddof=1) / np.sqrt(5)
        near = [single[ratio].path_.n_nonzero[e <= errors[best][at] + slack].min() for ratio, e in errors.items()]
        assert model.support_.size == min(near)
    alone = single[model.l1_ratio_].path_
    assert model.path_.alphas == pytest.approx(alone.alphas)
    assert model.path_.cv_errors == pytest.approx(alone.cv_errors, rel=1e-5)
    assert model.path_.coefs == pytest.approx(alone.coefs, abs=1e-3)
    assert model.converged_
    assert model.selection_.diagnostics["l1_ratio"] == model.l1_ratio_
    sks.save(model.summary_, tmp_path / "models.sks")
    again = LogisticPath(l1_ratio=[0.1, 1.0, 0.5], **shares).fit_summary(sks.load(tmp_path / "models.sks"))
    assert np.array_equal(again.coef_, model.coef_)
    with pytest.raises(Incompatible, match=r"l1_ratio 1, 0\.5, 0\.1, not 1"):
        LogisticPath().fit_summary(model.summary_)


def test_several_shares_on_more_rows_than_the_sample(monkeypatch):
    monkeypatch.setattr("sketchselect.selectors.supervised.likelihood_path.SAMPLE_NBYTES", 1 << 15)
    X, y = noisy(2000)
    model = LogisticPath(l1_ratio=[0.3, 1.0], n_alphas=6, cv=2).fit(X, y)
    alone = LogisticPath(l1_ratio=model.l1_ratio_, n_alphas=6, cv=2).fit(X, y)
    assert model.converged_
    assert model.path_.alphas == pytest.approx(alone.path_.alphas, rel=1e-9)
    assert model.path_.cv_errors == pytest.approx(alone.path_.cv_errors, rel=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_misclassified_rows_are_counted_as_scikit_learn_counts_them(few_sampled, n_classes):
    X, _ = noisy(600)
    rng = np.random.default_rng(3)
    y = np.digitize(X[:, 3] - X[:, 8] + rng.standard_normal(600), [-0.5, 0.7][: n_classes - 1])
    model = LogisticPath(n_alphas=8, cv=3, random_state=1).fit(X, y)
    rates, sums, path = model.selection_.diagnostics["misclassification"], model.summary_, model.path_
    assert rates["fitted"] == pytest.approx(zero_one_loss(y, model.predict(X)), abs=1e-12)
    assert sums.misclassification_rates[path.chosen] == rates["fitted"]
    fold, Z, terms = sums.fold_of(np.arange(600, dtype=np.uint64)), sums.standardised(X), sums.coefficients
    label = np.zeros((len(sums.folds), 600), dtype=int)
    for i in range(len(sums.folds)):
        at, coef = terms.of_model(i), np.zeros((sums.n_outputs, X.shape[1] + 1))
        coef[terms.outputs[at], terms.columns[at]] = terms.values[at]
        margins = Z @ coef[:, :-1].T + coef[:, -1]
        label[i] = margins.argmax(axis=1) if n_classes > 2 else margins[:, 0] > 0
    for i, k in enumerate(sums.folds):
        inside, out = fold != k, fold == k
        rate = sums.misclassification_rates[i]
        assert rate == pytest.approx(zero_one_loss(y[inside], label[i, inside]), abs=1e-12)
        if k >= 0:
            held = sums.held_out_misclassification_rates[i]
            assert held == pytest.approx(zero_one_loss(y[out], label[i, out]), abs=1e-12)
    wrong = 0
    for k in range(3):
        of_others = np.delete(path.cv_errors, k, axis=1).mean(axis=1).argmin()
        out, model_of_fold = fold == k, np.flatnonzero(sums.folds == k)[of_others]
        wrong += zero_one_loss(y[out], label[model_of_fold, out], normalize=False)
    assert rates["held_out"] == pytest.approx(wrong / 600, abs=1e-12)
    few = LogisticPath(n_features_to_select=2).fit_summary(sums)
    assert few.selection_.diagnostics["misclassification"]["held_out"] is None


def test_sums_of_an_older_version_have_no_rate():
    older = sks.load(GOLDEN / "likelihood-sums-v2.sks")
    assert older.misclassification_rates is older.held_out_misclassification_rates is None
    newer = sks.load(GOLDEN / "likelihood-sums-v3.sks")
    assert older.parameters().keys() == newer.parameters().keys()
    assert older.merge(newer).record.wrong is None
    poisson = LogisticPath(family="poisson", criterion="bic").fit(*counts())
    assert "misclassification" not in poisson.selection_.diagnostics


def test_choices_from_a_saved_summary(tmp_path):
    X, y = noisy(500)
    model = LogisticPath().fit(X, y)
    sks.save(model.summary_, tmp_path / "models.sks")
    loaded = sks.load(tmp_path / "models.sks")
    assert np.array_equal(LogisticPath().fit_summary(loaded).coef_, model.coef_)
    few = LogisticPath(n_features_to_select=2).fit_summary(loaded)
    assert few.support_.tolist() == [3, 8]
    assert few.path_.cv_errors is None
    with pytest.raises(Incompatible, match=r"l1_ratio 1, not 0\.5"):
        LogisticPath(l1_ratio=0.5).fit_summary(loaded)
    with pytest.raises(Incompatible, match="binomial models"):
        LogisticPath(family="poisson").fit_summary(loaded)
    with pytest.raises(Incompatible, match="5 folds, but cv is 4"):
        LogisticPath(cv=4).fit_summary(loaded)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"cv": 3, "alpha": 0.1}, "cv and alpha both choose"),
        ({"alpha": 0.1, "alphas": [0.1]}, "leave alphas out"),
        ({"l1_ratio": [0.5, 1.0], "criterion": "bic"}, "l1_ratio is chosen by cross-validation; leave criterion out"),
        ({"family": "binomial"}, "3 classes, family="),
    ],
)
def test_parameters_that_cannot_be(parameters, message):
    with pytest.raises(BadParameter, match=message) as caught:
        LogisticPath(**parameters).fit(*load_iris(return_X_y=True))
    assert "\n" not in str(caught.value)


def test_targets_that_cannot_be():
    X, _ = noisy(60)
    y = np.arange(60.0)
    with pytest.raises(BadParameter, match="continuous numbers are no classes"):
        LogisticPath().fit(X, y / 7)
    with pytest.raises(SketchSelectError, match=r"at least 0, unlike that of row 3"):
        LogisticPath(family="poisson", cv=2).fit(X, np.where(y == 3, -1.0, y))
    with pytest.warns(UserWarning, match="target is constant"):
        model = LogisticPath(family="poisson", criterion="bic").fit(X, np.full(60, 4.0))
    assert model.support_.size == 0
    assert model.predict(X) == pytest.approx(np.full(60, 4.0))
    assert not hasattr(model, "partial_fit")
