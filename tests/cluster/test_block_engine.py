"""Passes of k-means over blocks in this process: the tree of any other engine, its errors and its ends."""

import operator
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from sketchselect.cluster.kmeans.passes import BlockEngine, Passes, open_passes
from sketchselect.errors import BadBlock, Interrupted, PartitionFailed, WillNotFit
from sketchselect.execution import LocalEngine, PassOptions, Source
from sketchselect.execution.tasks import Reduction
from sketchselect.linalg.kmeans import lloyd
from sketchselect.readers import open_matrix
from sketchselect.readers.arrays import ArrayVector
from sketchselect.summaries import CentroidSums

ROWS = 73


@pytest.fixture(params=[1, 2, 5])
def passes(request):
    source = Source(open_matrix(np.arange(2.0 * ROWS).reshape(ROWS, 2)))
    options = PassOptions(LocalEngine(request.param), partition_bytes=16)
    with open_passes(source, 2, options) as passes:
        assert isinstance(passes.options.engine, BlockEngine)
        assert len(passes.source.blocks) == ROWS
        yield passes


def shape_of_the_tree(left, right):
    return f"({left} {right})"


def first_row(block):
    return str(block.start)


@pytest.mark.parametrize("state_nbytes", [0, 3, 1 << 27])
def test_states_are_merged_in_the_tree_of_every_engine(passes, state_nbytes):
    # A large state: a leaf folds several partitions, and nodes have fewer children.
    reduction = Reduction(first_row, shape_of_the_tree, state_nbytes=state_nbytes)
    reference = Passes(passes.source, passes.options.but(engine=LocalEngine(kind="serial")))
    assert passes.reduce(reduction) == reference.reduce(reduction)
    assert passes.reduce(reduction) == passes.reduce(reduction)


def test_every_partition_is_reported_once(passes):
    done = []

    class Recorded(type(passes.options.progress)):
        def advance(self, nbytes):
            done.append(nbytes)

    recorded = replace(passes, options=passes.options.but(progress=Recorded()))
    assert recorded.reduce(Reduction(lambda block: 1, operator.add)) == ROWS
    assert done == [16] * ROWS


def test_an_error_names_its_partition_and_ends_the_pass(passes):
    started = []

    def leaf(block):
        started.append(block.start)
        if block.start == 5:
            raise ZeroDivisionError
        time.sleep(0.005)
        return 1

    with pytest.raises(PartitionFailed, match=r"partition 5 \(rows 5 to 5\): ZeroDivisionError"):
        passes.reduce(Reduction(leaf, operator.add))
    n_started = len(started)
    assert n_started < ROWS
    assert passes.reduce(Reduction(lambda block: 1, operator.add)) == ROWS
    assert len(started) == n_started


def test_an_interrupt_ends_the_pass(passes):
    interrupted = threading.Event()

    def leaf(block):
        if threading.current_thread() is threading.main_thread():
            interrupted.set()
            raise KeyboardInterrupt
        interrupted.wait(60)
        return 1

    with pytest.raises(Interrupted):
        passes.reduce(Reduction(leaf, operator.add))


def test_threads_end_with_the_passes():
    source = Source(open_matrix(np.ones((40, 2))))
    before = set(threading.enumerate())
    with open_passes(source, 2, PassOptions(LocalEngine(3), partition_bytes=16)) as passes:
        for _ in range(3):
            assert passes.reduce(Reduction(lambda block: 1, operator.add)) == 40
        assert len(set(threading.enumerate()) - before) <= 2
    assert set(threading.enumerate()) <= before


def record_bytes(sums):
    """Return the bytes of what iterations go on with."""
    record = sums.record
    arrays = record.weight, record.mean, record.correction, record.within
    return record.n_rows, [array.tobytes() for array in arrays], sums.centers.tobytes()


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_features", [3, 40])
def test_iterations_have_the_sums_of_whole_passes(n_threads, weighted, n_features):
    rng = np.random.default_rng(n_features)
    X = rng.standard_normal((900, n_features)).astype(np.float32)
    X[17, 0] = np.nan
    weights = ArrayVector(rng.integers(0, 3, len(X)).astype(float)) if weighted else None
    source = Source(open_matrix(X, nonfinite="drop_rows"), weight=weights)
    options = PassOptions(LocalEngine(n_threads), partition_bytes=20 * n_features * 8)
    with open_passes(source, 20, options) as passes:
        assert passes.rounds is not None
        whole = replace(passes, rounds=None)
        for start in range(30, 90, 20):
            description = CentroidSums(centers=X[start : start + 20])
            expected, sums = whole.sums(description, "whole"), passes.iterate(description, "round")
            assert record_bytes(sums) == record_bytes(expected)
            # The same once more, from what blocks remember, and after it the farthest rows as well.
            assert record_bytes(passes.iterate(description, "round")) == record_bytes(expected)
            assert passes.sums(description, "after").record.far_row.tolist() == expected.record.far_row.tolist()


def test_an_iteration_with_an_empty_cluster_has_the_farthest_rows(passes):
    assert not passes.iterate(CentroidSums(centers=[[0.0, 1.0], [140.0, 141.0]]), "round").record.far_row.size
    sums = passes.iterate(CentroidSums(centers=[[0.0, 1.0], [1e6, 1e6]]), "round")
    assert sums.record.far_row.tolist() == [72, 71]


def test_rows_whose_squares_are_too_large_are_named_by_an_iteration():
    X = np.ones((60, 3))
    X[41, 2] = 1e160
    with (
        open_passes(Source(open_matrix(X)), 2, PassOptions(LocalEngine(2), partition_bytes=240)) as passes,
        pytest.raises(BadBlock, match="row 41, column 2"),
    ):
        passes.iterate(CentroidSums(centers=np.eye(2, 3)), "round")


def test_an_interrupt_ends_an_iteration_and_says_so(passes, monkeypatch):
    whole, interrupted = lloyd.sweep, threading.Event()

    def sweep(*arguments):
        if threading.current_thread() is threading.main_thread():
            interrupted.set()
            raise KeyboardInterrupt
        interrupted.wait(60)
        return whole(*arguments)

    monkeypatch.setattr(lloyd, "sweep", sweep)
    description = CentroidSums(centers=[[0.0, 0.0], [90.0, 90.0]])
    with pytest.raises(Interrupted, match=f"k-means: iteration 3: 0 of {ROWS} partitions are in checkpoints"):
        passes.iterate(description, "k-means: iteration 3")
    monkeypatch.undo()
    assert passes.iterate(description, "k-means: iteration 3").record.n_rows == ROWS


def test_an_iteration_that_does_not_fit_is_refused_before_the_first(passes):
    engine = BlockEngine(1, memory_limit=1)
    plan = passes.rounds._plan
    with pytest.raises(WillNotFit):
        type(passes.rounds)(plan, engine)
