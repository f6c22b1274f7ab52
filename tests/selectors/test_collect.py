"""The collecting pass of selectors: the summary that `fit` selects from, now or as a Dask graph."""

import warnings
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from tests.estimator_checks import of_size

import sketchselect as sks
from sketchselect.errors import BadParameter
from sketchselect.selectors.registry import METHODS

RNG = np.random.default_rng(0)
COUNTS = RNG.poisson(RNG.gamma(2.0, 2.0, 24), size=(120, 24)).astype(float)
LABELS = np.arange(120) % 2
WINDOW: dict[str, Any] = {"window": 50}
PARTITION: dict[str, Any] = {"partition": LABELS, "n_clusters": 2}
CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in sorted(METHODS) if name not in ("online-leverage", "logistic")),
    ("greedy", WINDOW),
    ("deterministic", PARTITION),
]
SEVERAL_PASSES: list[tuple[str, dict[str, Any]]] = [
    ("online-leverage", {}),
    ("leverage", {"read": "columns"}),
    ("deterministic", {"partition": "kmeans++", "n_clusters": 2}),
    ("logistic", {}),
]


@pytest.mark.share(8)
@pytest.mark.usefixtures("short_paths")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("method", "parameters"), CASES)
def test_selection_from_a_delayed_summary_is_that_of_fit(method: str, parameters: dict[str, Any]) -> None:
    rows = da.from_array(COUNTS, chunks=(30, 24))
    fitted = of_size(method, 4, **parameters).fit(COUNTS, LABELS)
    selector = of_size(method, 4, **parameters)
    (summary,) = dask.compute(selector.collect(rows, LABELS, compute=False), scheduler="synchronous")
    selected = selector.fit_summary(summary)
    np.testing.assert_array_equal(selected.support_, fitted.support_)
    np.testing.assert_array_equal(selected.scores_, fitted.scores_)


@pytest.mark.parametrize(("method", "parameters"), SEVERAL_PASSES)
def test_several_passes_are_no_single_graph(method: str, parameters: dict[str, Any]) -> None:
    selector = of_size(method, 4, **parameters)
    with pytest.raises(BadParameter, match=r"several passes .* leave out compute=False"):
        selector.collect(COUNTS, LABELS, compute=False)


def test_a_graph_that_is_not_run_takes_no_client() -> None:
    with pytest.raises(BadParameter, match="leave out client"):
        METHODS["sketched-ridge"]().collect(COUNTS, client="threads", compute=False)


def test_only_the_rows_of_a_window_are_in_the_graph() -> None:
    read = []

    def block(values: Any, block_info: Any = None) -> Any:
        read.append(block_info[None]["array-location"][0])
        return values

    rows = da.from_array(COUNTS, chunks=(10, 24)).map_blocks(block, dtype=float, meta=np.empty((0, 0)))
    METHODS["sketched-ridge"](4, window=20).collect(rows, compute=False).compute(scheduler="synchronous")
    assert sorted(read) == [(100, 110), (110, 120)]


def test_a_summary_of_rows_without_the_steps_of_the_selector_is_warned_of() -> None:
    raw = sks.summarize(COUNTS, sks.FrequentDirections(8))
    with pytest.warns(UserWarning, match=r"GreedySelector asks for .*'l2'.* summarize with prepare=\['l2'\]"):
        sks.GreedySelector(4).fit_summary(raw)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sks.GreedySelector(4, normalize=None).fit_summary(raw)
        sks.GreedySelector(4).fit_summary(sks.summarize(COUNTS, sks.FrequentDirections(8), prepare=["l2"]))
        sks.GreedySelector(4).fit_summary(sks.summarize(COUNTS, sks.FrequentDirections(8), prepare=["standardise"]))
