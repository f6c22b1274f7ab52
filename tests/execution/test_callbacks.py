"""scikit-learn's callbacks (1.9 and later) see the passes, parts and iterations of a fit, and can stop k-means."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline

import sketchselect as sks

pytest.importorskip("sklearn.callback")
DIGITS = load_digits()


class Record:
    """Keeps what it is called with; says to stop after so many iterations of k-means."""

    def __init__(self, stop: int = 10**9) -> None:
        self.stop, self.events, self.open, self.inertias = stop, [], Counter[int](), []

    def setup(self, estimator: Any, context: Any) -> None:
        self.events.append("setup")

    def teardown(self, estimator: Any, context: Any) -> None:
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        self.open[id(context)] += 1

    def on_fit_task_end(self, estimator: Any, context: Any, *, X: Any = None, fitted_estimator: Any = None) -> bool:
        self.open[id(context)] -= 1
        parent = context.parent
        self.events.append((context.task_name, context.task_id, None if parent is None else parent.task_name))
        if fitted_estimator is not None and parent is not None:
            self.inertias.append(-fitted_estimator.score(X))
        return len(self.inertias) >= self.stop

    def parts(self, stage: str) -> list[int]:
        return [event[1] for event in self.events if event[2:] == (stage,) and event[0] == "part"]


def test_a_fit_reports_its_stages_parts_and_iterations_and_ends_every_task_it_begins() -> None:
    record = Record()
    model = sks.KMeans(10, init="random", n_init=1, tol=0).set_callbacks(record).fit(DIGITS.data, partition_bytes=2**16)
    assert (record.events[0], record.events[-1]) == ("setup", "teardown")
    assert record.events[-2] == ("fit", 0, None)
    assert set(record.open.values()) == {0}
    assert record.parts("k-means: iterations") == list(range(model.n_iter_))
    # The centres that callbacks see after an iteration are those of the next one, and cost ever less.
    assert (np.diff(record.inertias) <= 1e-9 * record.inertias[0]).all()
    assert record.inertias[-1] == pytest.approx(model.inertia_, rel=1e-12)
    plain = sks.KMeans(10, init="random", n_init=1, tol=0).fit(DIGITS.data, partition_bytes=2**16)
    np.testing.assert_array_equal(plain.cluster_centers_, model.cluster_centers_)


def test_a_callback_stops_k_means_where_it_says_so() -> None:
    stopped = sks.KMeans(10, init="random", n_init=1, tol=0).set_callbacks(Record(stop=3)).fit(DIGITS.data)
    least = sks.KMeans(10, init="random", n_init=1, tol=0, max_iter=3).fit(DIGITS.data)
    assert stopped.n_iter_ == 3
    np.testing.assert_array_equal(stopped.labels_, least.labels_)


@pytest.mark.parametrize(
    ("estimator", "stage", "n_parts"),
    [
        (sks.GreedySelector(5), "summarize", 8),
        (sks.selectors.SketchedPCA(3), "summarize", 8),
        (sks.LassoPath(cv=4), "cross-validation: folds", 4),
        (sks.selectors.StabilitySelector(n_pairs=6), "stability: pairs of halves", 6),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "fit") else None,
)
def test_passes_and_loops_of_every_kind_of_estimator(estimator: Any, stage: str, n_parts: int) -> None:
    record = Record()
    target = DIGITS.target.astype(float)
    clone(estimator).set_callbacks(record).fit(DIGITS.data, target, partition_bytes=DIGITS.data.nbytes // 8 + 512)
    assert record.parts(stage) == list(range(n_parts))
    assert set(record.open.values()) == {0}


def test_bars_in_a_pipeline_an_error_in_the_rows_and_what_is_no_callback(capsys: pytest.CaptureFixture[str]) -> None:
    from sklearn.callback import ProgressBar

    record = Record()
    selector = sks.GreedySelector(5).set_callbacks(record)
    with pytest.raises(ValueError, match="row 3"):
        selector.fit(np.where(np.arange(60).reshape(10, 6) == 20, np.nan, 1.0))
    assert record.events[-1] == "teardown"
    assert selector.set_callbacks() is selector
    make_pipeline(selector, sks.KMeans(3)).set_callbacks(ProgressBar()).fit(DIGITS.data)
    shown = capsys.readouterr().out
    assert "GreedySelector" in shown
    assert "KMeans" in shown
    with pytest.raises(TypeError, match="callback"):
        selector.set_callbacks("bar")


def test_weights_given_by_position_are_metadata_too() -> None:
    class Metadata(Record):
        def on_fit_task_begin(self, estimator: Any, context: Any, *, metadata: Any = None) -> None:
            super().on_fit_task_begin(estimator, context)
            given.append(metadata["sample_weight"])

    given: list[Any] = []
    weights = np.ones(len(DIGITS.data))
    sks.KMeans(3).set_callbacks(Metadata()).fit(DIGITS.data, None, weights)
    assert given
    assert all(each is weights for each in given)


@pytest.mark.parametrize(("interface", "kind"), [("spmatrix", sp.csr_matrix), ("sparray", sp.csr_array)])
def test_columns_of_a_file_are_sparse_as_scikit_learn_is_told(tmp_path: Any, interface: str, kind: type) -> None:
    path = str(tmp_path / "x.npz")
    sp.save_npz(path, sp.csr_array(DIGITS.data))
    with sklearn.config_context(sparse_interface=interface):
        columns = sks.selectors.VarianceSelector(5).fit(path).transform(path)
    assert type(columns) is kind
    np.testing.assert_array_equal(columns.toarray(), sks.selectors.VarianceSelector(5).fit_transform(DIGITS.data))
