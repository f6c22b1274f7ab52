"""`fit(X, prepare=[...])` does what scikit-learn's pipeline of the same steps does, from any source."""

from __future__ import annotations

import functools

import dask.array
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import StandardScaler

import sketchselect as sks
from sketchselect.errors import BadParameter, NotFinite
from sketchselect.selectors import LogisticPath, SketchedPCA, TargetAutoSelector, ThresholdedOLS
from sketchselect.selectors.registry import METHODS

RNG = np.random.default_rng(1)
CLEAN = RNG.normal(size=(240, 8)) * np.arange(1, 9) + 5.0
HOLES = np.where(RNG.random(CLEAN.shape) < 0.1, np.nan, CLEAN)
Y = CLEAN[:, 2] - 0.5 * CLEAN[:, 5] + RNG.normal(size=240)
IMPUTER = SimpleImputer().fit(HOLES)
SCALER = StandardScaler().fit(IMPUTER.transform(HOLES))
STEPS = ["impute", "standardise"]


def prepared(rows):
    return SCALER.transform(IMPUTER.transform(rows))


def source(form, tmp_path):
    if form == "zarr":
        return sks.convert(HOLES, tmp_path / "x.zarr")
    return {"array": HOLES, "frame": pd.DataFrame(HOLES), "dask": dask.array.from_array(HOLES, (60, 8))}[form]


@pytest.mark.share(4)
@pytest.mark.parametrize("form", ["array", "frame", "dask", "zarr"])
@pytest.mark.parametrize(
    "estimator",
    [sks.LassoPath(cv=3), sks.ThresholdedOLS(3), sks.LassoPath(n_features_to_select=3, task="classification")],
    ids=str,
)
def test_models_predict_as_on_prepared_rows(form, estimator, tmp_path):
    y = (Y > 3).astype(int) if estimator.task == "classification" else Y
    X = source(form, tmp_path)
    model, plain = clone(estimator).fit(X, y, prepare=STEPS), clone(estimator).fit(prepared(HOLES), y)
    assert model.support_.tolist() == plain.support_.tolist()
    assert np.allclose(model.coef_, plain.coef_)
    assert np.allclose(np.asarray(model.predict(X)), plain.predict(prepared(HOLES)))
    assert model.score(HOLES, y) == pytest.approx(plain.score(prepared(HOLES), y))
    assert np.allclose(np.asarray(model.transform(X)), HOLES[:, plain.support_], equal_nan=True)
    new = HOLES[:7]
    assert np.allclose(model.predict(new), plain.predict(prepared(new)))


@pytest.mark.parametrize("name", ["greedy", "sketched-ridge", "osinsky", "auto"])
def test_selectors_select_as_on_prepared_rows(name):
    keywords = {"n_features_to_select": 3, "normalize": None}
    selector, plain = (
        METHODS[name](**keywords).fit(HOLES, prepare=STEPS),
        METHODS[name](**keywords).fit(prepared(HOLES)),
    )
    assert selector.support_.tolist() == plain.support_.tolist()
    assert np.allclose(selector.scores_, plain.scores_)
    assert selector.selection_.prepare[0].startswith("impute")


@pytest.mark.parametrize("form", ["array", "frame", "dask", "zarr"])
def test_kmeans_clusters_prepared_rows(form, tmp_path):
    X = source(form, tmp_path)
    start = prepared(HOLES)[:3]
    km, plain = sks.KMeans(3, init=start).fit(X, prepare=STEPS), sks.KMeans(3, init=start).fit(prepared(HOLES))
    assert np.allclose(km.cluster_centers_, plain.cluster_centers_)
    assert np.array_equal(np.asarray(km.labels_), plain.labels_)
    assert np.array_equal(np.asarray(km.predict(X)), plain.labels_)
    assert np.allclose(np.asarray(km.transform(X)), plain.transform(prepared(HOLES)))
    assert km.score(HOLES) == pytest.approx(-plain.inertia_)
    km.fit(CLEAN)
    assert np.array_equal(km.predict(CLEAN), km.labels_), "an earlier fit's steps are forgotten"
    with pytest.raises(ValueError, match="NaN"):
        km.predict(HOLES)


def test_what_cannot_be_prepared_is_refused():
    with pytest.raises(BadParameter, match=r"fourier.*other columns"):
        sks.VarianceSelector(2).fit(CLEAN, prepare=["fourier"])
    with pytest.raises(BadParameter, match=r"standardise.*pass of its own"):
        sks.VarianceSelector(2).collect(CLEAN, compute=False, prepare=["standardise"])
    with pytest.raises(BadParameter, match="did you mean 'impute'"):
        sks.LassoPath().fit(CLEAN, Y, prepare=["imputte"])
    model = sks.LassoPath(n_features_to_select=3).fit(HOLES, Y, prepare=STEPS)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(HOLES, Y)
    with pytest.raises((NotFinite, ValueError)):
        sks.LassoPath(n_features_to_select=3).fit(HOLES, Y, prepare=["standardise"])
    for made in (sks.GreedySelector(2), sks.LassoPath(), sks.KMeans(2), SketchedPCA(2), sks.OnlineLeverageSelector()):
        with pytest.raises(BadParameter, match="partial_fit takes no prepare"):
            made.partial_fit(CLEAN, Y, prepare=["l2"])
        with pytest.raises(TypeError, match="'chekpoint'"):
            made.partial_fit(CLEAN, Y, chekpoint="here")


@pytest.mark.parametrize("method", ["score", "predict", "transform"])
def test_models_that_are_not_fitted_say_so(method):
    for model in (sks.LassoPath(), LogisticPath(), ThresholdedOLS(), TargetAutoSelector()):
        with pytest.raises(NotFittedError):
            getattr(model, method)(CLEAN, *([Y] if method == "score" else []))


@pytest.mark.parametrize("estimator", [sks.KMeans, sks.VarianceSelector, sks.LassoPath, SketchedPCA])
def test_steps_given_to_the_constructor_are_led_to_fit(estimator):
    hint = (
        "unexpected keyword" if estimator is SketchedPCA else rf"{estimator.__name__}\(...\).fit\(X, prepare=\['l2'\]"
    )
    with pytest.raises(TypeError, match=hint):
        estimator(2, prepare=["l2"])


def test_an_unknown_parameter_names_the_class_that_was_called():
    with pytest.raises(TypeError, match=r"^LassoPath\(\) .*'n_features'; parameters: alphas, n_features_to_select"):
        sks.LassoPath(n_features=3)
    with pytest.raises(TypeError, match=r"^GreedySelector\(\) .*; did you mean 'n_components'\?"):
        sks.GreedySelector(3, n_component=1)
    with pytest.raises(TypeError, match="'size'"):  # the first, as Python has it
        sks.GreedySelector(3, size=1, share=2, rows=3, columns=4)


def test_a_constructor_that_is_wrapped_takes_what_its_wrapper_takes():
    def with_former_name(init):
        @functools.wraps(init)
        def constructor(self, *args, n_top=None, **keywords):
            init(self, *args, **({} if n_top is None else {"n_features_to_select": n_top}), **keywords)

        return constructor

    class Top(sks.GreedySelector):
        @with_former_name
        def __init__(self, n_features_to_select=None):
            super().__init__(n_features_to_select)

    assert Top(n_top=3).n_features_to_select == clone(Top(3)).n_features_to_select == 3
