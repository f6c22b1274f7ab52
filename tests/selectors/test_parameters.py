"""Parameters of selectors: documentation and signatures, with those that a base class declares."""

import inspect
import re
from typing import Any, TypedDict, Unpack, get_type_hints

import numpy as np
import pytest
from dask.base import tokenize
from sklearn.base import clone
from sklearn.model_selection import GroupKFold
from tests.estimator_checks import of_size, target_for

import sketchselect as sks
from sketchselect.errors import BadParameter
from sketchselect.linalg.parameters import declared, inherit_parameters
from sketchselect.selectors import METHODS

SELECTORS = list(METHODS.values())
SIZED = [name for name, cls in METHODS.items() if "n_features_to_select" in cls().get_params()]


def entries(cls) -> list[str]:
    section = re.search(r"\nParameters\n-+\n(.*?)(?:\n\n|\Z)", inspect.getdoc(cls), re.DOTALL)
    return [line for line in section[1].splitlines() if not line.startswith(" ")]


@pytest.mark.parametrize("cls", SELECTORS)
def test_help_documents_every_parameter_once_in_the_order_of_the_signature(cls):
    parameters = inspect.signature(cls).parameters
    assert [entry.split(" : ")[0] for entry in entries(cls)] == list(parameters)
    assert inspect.getdoc(cls).count("\nParameters\n") == 1
    for entry, parameter in zip(entries(cls), parameters.values(), strict=True):
        default = parameter.default
        if isinstance(default, (int, float)):
            assert f"default {default}" in entry or "optional" not in entry
        assert default is not None or entry.endswith(("optional", "default None")), entry


@pytest.mark.parametrize("cls", SELECTORS)
def test_signature_names_and_types_are_those_of_the_attributes(cls):
    parameters = inspect.signature(cls).parameters
    assert set(parameters) == set(vars(cls())) == set(cls().get_params())
    assert set(get_type_hints(cls.__init__)) == {*parameters, "return"}
    assert not {"args", "shared", "keywords"} & set(parameters)


def test_penalised_estimators_differ_by_their_own_parameters_alone():
    lasso = inspect.signature(sks.LassoPath).parameters
    for cls, own in ((sks.ElasticNetPath, "l1_ratio"), (sks.MCPPath, "gamma"), (sks.SCADPath, "gamma")):
        parameters = inspect.signature(cls).parameters
        assert set(parameters) == {*lasso, own}
        for name in lasso:
            assert (parameters[name].default, parameters[name].annotation) == (
                lasso[name].default,
                lasso[name].annotation,
            )


def test_unknown_parameters_are_refused():
    with pytest.raises(TypeError, match="alpah"):
        sks.MCPPath(alpah=1.0)


class Keywords(TypedDict, total=False):
    depth: int


class Base:
    """Base.

    Parameters
    ----------
    depth : int
        Levels of the tree.
    name : str, optional
        Label.
    """

    def __init__(self, name: str | None = None, *, depth: int = 3) -> None:
        self.name, self.depth = name, depth


def test_shared_keywords_and_their_documentation_are_inherited():
    class Derived(Base):
        """Derived.

        Further text.

        Parameters
        ----------
        width : float
            Of a leaf.

        Notes
        -----
        A note.
        """

        def __init__(self, width: float = 0.5, name: str | None = "a", **shared: Unpack[Keywords]) -> None:
            super().__init__(name, **shared)
            self.width = width

    inherit_parameters(Derived)
    assert [(p.name, p.kind.name, p.default) for p in inspect.signature(Derived).parameters.values()] == [
        ("width", "POSITIONAL_OR_KEYWORD", 0.5),
        ("name", "POSITIONAL_OR_KEYWORD", "a"),
        ("depth", "KEYWORD_ONLY", 3),
    ]
    assert (
        Derived.__doc__
        == inspect.cleandoc(
            """Derived.

        Further text.

        Parameters
        ----------
        width : float, default 0.5
            Of a leaf.
        name : str, optional
            Label.
        depth : int, default 3
            Levels of the tree.

        Notes
        -----
        A note.
        """
        )
        + "\n"
    )
    assert vars(Derived(1.0, depth=7)) == {"width": 1.0, "name": "a", "depth": 7}


def test_a_class_without_documented_parameters_stays_as_it_is():
    class Plain:
        """Plain."""

        def __init__(self, size: int = 1) -> None:
            self.size = size

    inherit_parameters(Plain)
    assert Plain.__doc__ == "Plain."


@pytest.mark.share(12)
@pytest.mark.usefixtures("short_paths")
@pytest.mark.parametrize("name", SIZED)
def test_a_number_of_columns_below_one_is_a_share(name):
    rng = np.random.default_rng(0)
    X = rng.poisson(5, (120, 16)).astype(float)
    X[:60, :4] += 6
    y = X[:, 0] + X[:, 5] + rng.standard_normal(120)
    fits = []
    for n_select in (0.3, 4, 1e-9, 1):
        selector = METHODS[name](n_features_to_select=n_select)
        special = {"n_clusters": 2, "trend": "quadratic"}
        selector.set_params(**{key: value for key, value in special.items() if key in selector.get_params()})
        if n_select in (1e-9, 1) and name in ("deterministic", "randomized", "hybrid"):
            continue  # more columns than clusters, at least two
        fits.append(selector.fit(X, target_for(name, y)).support_.tolist())
    assert [len(fit) for fit in fits] == [4, 4, 1, 1][: len(fits)]
    assert fits[0::2] == fits[1::2]


X = np.random.default_rng(0).random((40, 6))
SEEDS = [True, -1, 2**64, 1.5, "7"]
NAN = float("nan")
OUTSIDE: dict[str, list[Any]] = {
    name: values
    for names, values in {
        "adaptive compensate literal newton refit scale_columns signed top_up": ["no"],
        "about bins choice combine criterion cv_rule family knockoffs missing mode noise read": ["best"],
        "scheme score statistic svd task ties trend weight": ["best"],
        "max_passes n_alphas n_bins n_buckets n_iter sketch_size": [1, True, 2.5],
        "draws n_draws n_pairs n_rows sample_rows top_values": [0, True, 2.5],
        "n_clusters n_components n_neighbors n_nonzero": [0, True, 2.5],
        "alpha_ratio eps epsilon fdr univariate.alpha": [0.0, 1.0, NAN],
        "alpha half_life max_false sampling_rate tol tolerance": [0.0, NAN, "most"],
        "mu ridge sketched-ridge.alpha": [-1e-9, NAN, "small"],
        "alphas": ["a", ["a"], 0.3, [0.0], [NAN], []],
        "batches": ["obs/batch"],
        "cv": [1, GroupKFold(3)],
        "degree": [0, 3],
        "ebic_gamma": [-1e-9, 1.5],
        "estimator": [sks.VarianceSelector()],
        "gamma": [1],
        "scad.gamma": [2],
        "l1_ratio": [0, 1.1],
        "logistic.l1_ratio": [0.0, [0.5, 0.0], [], [0.5, [1]]],
        "methods": [5, "greedy", [5]],
        "n_features_to_select": [0, True, 2.5, "10"],
        "normalize": [5],
        "partition": [],  # any labels of rows
        "random_state": SEEDS,
        "span": [0.0, 1.1, True],
        "threshold": [0.5, 1.1],
        "window": [0, -3, 2.5, True, "10"],
    }.items()
    for name in names.split()
}
"""Values just outside the limits of each parameter, of all methods or of one."""
ADVICE = {"batches": "as the target", "alphas": "one number is `alpha`", "cv": r"number of folds; fit.*groups="}


@pytest.mark.parametrize("method", METHODS)
def test_values_just_outside_the_limits_of_a_parameter_are_refused_by_name(method):
    y = target_for(method, X[:, 0])
    needed = {"random_state": {"partition": "kmeans++"}} if method == "deterministic" else {}
    for name in declared(METHODS[method]):
        for value in OUTSIDE.get(f"{method}.{name}", OUTSIDE[name]):
            selector = of_size(method, 3).set_params(**{name: value}, **needed.get(name, {}))
            streams = hasattr(selector, "partial_fit") and not needed.get(name)  # a stream has no partition
            for fit in (selector.fit, *([selector.partial_fit] if streams else [])):
                with pytest.raises(BadParameter, match=rf"{name} ?(must be|:|=).*{ADVICE.get(name, '')}") as caught:
                    fit(X, y)
                assert "\n" not in str(caught.value)


@pytest.mark.parametrize("method", METHODS)
def test_parameters_that_exclude_each_other_are_named(method):
    y, has = target_for(method, X[:, 0]), set(METHODS[method]().get_params())
    pairs = {
        ("window", "half_life"): ({"window": 10, "half_life": 5.0}, "window and half_life exclude each other"),
        ("n_components", "sketch_size"): ({"n_components": 64, "sketch_size": 64}, "sketch_size.*must exceed"),
        ("normalize",): ({"normalize": "l1"}, "l2"),
        ("cv", "n_features_to_select", "criterion"): ({"cv": 5, "n_features_to_select": 3}, "both choose"),
        ("cv", "alpha"): ({"cv": 3, "alpha": 0.1}, "alpha and cv both|cv and alpha both"),
    }
    for names, (parameters, message) in pairs.items():
        if has.issuperset(names) and (method, names) != ("leverage", ("n_components", "sketch_size")):
            with pytest.raises(BadParameter, match=message):
                METHODS[method](**parameters).fit(X, y)


@pytest.mark.parametrize("seed", SEEDS, ids=repr)
def test_clustering_takes_seeds_alone(seed: object) -> None:
    with pytest.raises(BadParameter, match="random_state must be a whole number from 0 to 2"):
        sks.KMeans(2, random_state=seed).fit(X)
    with pytest.raises(BadParameter, match="random_state must be a whole number from 0 to 2"):
        sks.cluster_range(X, [2, 3], random_state=seed)


def test_the_largest_seed_is_one() -> None:
    assert sks.KMeans(2, random_state=2**64 - 1).fit(X).labels_.size == 40


@pytest.mark.parametrize("method", [name for name, cls in METHODS.items() if "about" in cls().get_params()])
def test_a_pickle_without_a_later_parameter_selects_as_then(method):
    X = np.random.default_rng(0).standard_normal((40, 6)) + np.arange(6)
    old = METHODS[method](3, about="zero").fit(X)
    state = {name: value for name, value in old.__getstate__().items() if name != "about"}
    loaded = METHODS[method].__new__(METHODS[method])
    loaded.__setstate__(state)
    assert loaded.get_params() == old.get_params()
    assert (loaded.transform(X) == old.transform(X)).all()
    assert loaded.fit(X).support_.tolist() == old.support_.tolist()


@pytest.mark.parametrize("estimator", [sks.GreedySelector(2, normalize=None), sks.KMeans(2)], ids=str)
def test_dask_tells_two_fits_of_equal_parameters_apart(estimator):
    first, second = (clone(estimator).fit(np.random.default_rng(seed).normal(size=(40, 5))) for seed in range(2))
    assert tokenize(first) == tokenize(first) != tokenize(second)


@pytest.mark.parametrize("cls", [*SELECTORS, sks.KMeans])
def test_signatures_are_for_readers(cls):
    assert "function" not in str(inspect.signature(cls))
