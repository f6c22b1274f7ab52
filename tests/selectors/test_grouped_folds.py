"""Folds of groups: no group in two of them, whatever partitions, source and order; models chosen by them."""

import numpy as np
import pytest
from sklearn.linear_model import Lasso
from sklearn.preprocessing import StandardScaler
from tests.estimator_checks import SHORT

import sketchselect as sks
from sketchselect.errors import BadParameter, Incompatible, NotFinite, SourceError
from sketchselect.linalg.hashing import words_of
from sketchselect.readers import grouped
from sketchselect.selectors import METHODS
from sketchselect.selectors.supervised.path import PathSelector

N_GROUPS = 30


def repeated(seed=0, n=240, p=8):
    """Rows of some groups: those of a group share most of their noise, so that folds of rows are too hopeful."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, N_GROUPS, n)
    centres = rng.standard_normal((N_GROUPS, p))
    X = centres[groups] + 0.1 * rng.standard_normal((n, p))
    y = X[:, 0] + 3.0 * rng.standard_normal(N_GROUPS)[groups] + 0.1 * rng.standard_normal(n)
    return X, y, groups


def folds_of(groups, n_folds=5, seed=0):
    return sks.Folds(sks.Moments(), n_folds, seed, groups=True).fold_of(words_of(np.asarray(groups)))


@pytest.mark.parametrize("kind", [np.int32, np.uint8, np.float32, str])
def test_no_group_is_in_two_folds_and_folds_hold_their_rows(kind):
    X, y, groups = repeated()
    folds = sks.summarize(X, sks.Folds(sks.Moments(), 5, groups=True), y=grouped(y, groups.astype(kind)))
    fold = folds_of(groups.astype(kind))
    assert all(len(set(fold[groups == g])) == 1 for g in range(N_GROUPS))
    assert len(set(fold)) == 5
    for i, part in enumerate(folds):
        np.testing.assert_allclose(part.mean, X[fold == i].mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(part.xy[:, 0], np.cov(X[fold == i].T, y[fold == i], bias=True)[:-1, -1], rtol=1e-9)


def test_equal_numbers_are_equal_groups_in_any_type_and_negative_or_broken_ones_too():
    whole = np.array([0, 1, -7, 2**40])
    assert words_of(whole).tolist() == words_of(whole.astype(float)).tolist()
    assert len(set(words_of(np.array([0.5, 1.5, -0.5, 0.0, 1e300])).tolist())) == 5
    assert words_of(np.array([-0.0])) == words_of(np.array([0.0]))
    assert words_of(np.array(["a", "bc"])).tolist() == words_of(np.array(["a", "bc", "a long one"]))[:2].tolist()


def test_order_partitions_engines_and_merges_make_no_difference(tmp_path):
    X, y, groups = repeated(1)
    names = np.array([f"patient {g}" for g in groups])
    description = sks.Folds(sks.Moments(), 4, groups=True)
    whole = sks.summarize(X, description, y=grouped(y, names))
    order = np.random.default_rng(0).permutation(len(y))
    shuffled = sks.summarize(X[order], description, y=grouped(y[order], names[order]), partition_bytes=4000)
    halves = [sks.summarize(X[h], description, y=grouped(y[h], names[h])) for h in (slice(0, 99), slice(99, None))]
    for other in (shuffled, halves[0].merge(halves[1])):
        for mine, theirs in zip(whole, other, strict=True):
            assert mine.n_rows == theirs.n_rows
            np.testing.assert_allclose(mine.gram(), theirs.gram(), rtol=1e-10)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "g.npy", groups)
    np.save(tmp_path / "y.npy", y)
    runs = [
        sks.LassoPath().fit(tmp_path / "x.npy", tmp_path / "y.npy", groups=tmp_path / "g.npy", client=client)
        for client in ("serial", "threads")
    ]
    assert runs[0].summary_ == runs[1].summary_
    sks.save(whole, tmp_path / "folds.sks")
    assert sks.load(tmp_path / "folds.sks") == whole


def test_errors_are_those_of_fits_without_the_groups_of_the_fold():
    X, y, groups = repeated(2)
    alphas = [1.0, 0.3, 0.1, 0.03]
    model = sks.LassoPath(alphas=alphas, cv=5, tol=1e-13).fit(X, y, groups=groups)
    fold = folds_of(groups)
    for i in range(5):
        train, test = fold != i, fold == i
        scaler = StandardScaler().fit(X[train])
        for k, alpha in enumerate(alphas):
            lasso = Lasso(alpha, tol=1e-13, max_iter=100_000).fit(scaler.transform(X[train]), y[train])
            error = np.mean((lasso.predict(scaler.transform(X[test])) - y[test]) ** 2)
            assert model.mse_path_[k, i] == pytest.approx(error, rel=1e-6)
    hopeful = sks.LassoPath(alphas=alphas, cv=5).fit(X, y)
    assert hopeful.mse_path_.mean() < 0.9 * model.mse_path_.mean()


@pytest.mark.share(3)
@pytest.mark.parametrize("name", sorted(name for name, cls in METHODS.items() if issubclass(cls, PathSelector)))
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_every_method_with_folds_takes_groups(name, task):
    X, y, groups = repeated(3)
    target = y if task == "regression" else np.where(y > 0, "yes", "no")
    parameters = {**SHORT.get(name, {}), "cv": 5}
    model = METHODS[name](task=task, **parameters).fit(X, target, groups=groups)
    assert model.summary_.groups
    fold = folds_of(groups)
    assert [part.n_rows for part in model.summary_] == np.bincount(fold, minlength=5).tolist()
    stream = METHODS[name](task=task, **parameters)
    classes = None if task == "regression" else ["no", "yes"]
    for rows in (slice(0, 100), slice(100, None)):
        stream.partial_fit(X[rows], target[rows], classes, groups=groups[rows])
    assert stream.support_.tolist() == model.support_.tolist()
    with pytest.raises(Incompatible, match="need every row's group"):
        stream.partial_fit(X, target)
    later = METHODS[name](task=task, **parameters).fit(X, target)
    assert not later.summary_.groups


def test_weights_go_with_groups_and_metadata_is_routed():
    X, y, groups = repeated(4)
    weights = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    alphas = [0.3, 0.1]
    weighted = sks.LassoPath(alphas=alphas, cv=5).fit(X, y, groups=groups, sample_weight=weights)
    times = np.repeat(np.arange(len(y)), weights.astype(int))
    repeated_rows = sks.LassoPath(alphas=alphas, cv=5).fit(X[times], y[times], groups=groups[times])
    np.testing.assert_allclose(weighted.mse_path_, repeated_rows.mse_path_, rtol=1e-8)
    assert sorted(sks.LassoPath().get_metadata_routing().fit.requests) == ["groups", "sample_weight"]


def test_what_cannot_be_done_is_said():
    X, y, groups = repeated(5)
    with pytest.raises(BadParameter, match="groups are for the folds of cross-validation"):
        sks.LassoPath(alpha=0.1).fit(X, y, groups=groups)
    with pytest.raises(SourceError, match="groups array: has shape"):
        sks.LassoPath().fit(X, y, groups=groups[1:])
    with pytest.raises(NotFinite, match="groups array: row 3 has none"):
        sks.LassoPath().fit(X, y, groups=np.where(np.arange(len(y)) == 3, np.nan, groups))
    with pytest.raises(Incompatible, match="leave out groups"):
        sks.summarize(X, sks.Folds(sks.Moments()), y=grouped(y, groups))
    bundle = sks.summarize(X, {"a": sks.Folds(sks.Moments(), groups=True), "b": sks.Moments()}, y=grouped(y, groups))
    assert bundle["b"] == sks.summarize(X, sks.Moments(), y=y)


def test_a_job_takes_groups_from_a_column_of_its_table(tmp_path):
    import pandas as pd

    X, y, groups = repeated(6)
    table = pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])]).assign(y=y, patient=groups)
    table.to_parquet(tmp_path / "rows.parquet")
    job = tmp_path / "job.toml"
    text = '[input]\nurl = "rows.parquet"\ntarget = "y"\ncv_groups = "patient"\n'
    text += '[select]\nmethod = "{}"\n[output]\ndir = "out"\n'
    job.write_text(text.format("lasso"))
    result = sks.run(job)
    model = sks.LassoPath().fit(X, y, groups=groups)
    assert result.selection.support.tolist() == sorted({*model.support_.tolist()})
    assert sks.load(tmp_path / "out" / "summary.sks")["folds"].groups
    file = pd.DataFrame({"sample": np.arange(len(y)), "site": groups})
    file.to_csv(tmp_path / "groups.csv", index=False)
    in_file = text.format("lasso").replace('"patient"', '"groups.csv"\nkey = "-patient"')
    job.write_text(in_file.replace('"out"', '"again"'))
    again = sks.run(job)
    assert again.selection.support.tolist() == result.selection.support.tolist()
    job.write_text(text.format("greedy"))
    with pytest.raises(sks.errors.ConfigError, match="cv_groups: for the folds of a method that learns from a target"):
        sks.run(job)
