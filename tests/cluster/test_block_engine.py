"""Passes of k-means over blocks in this process: the tree of any other engine, its errors and its ends."""

import operator
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from sketchselect.cluster.kmeans.passes import BlockEngine, Passes, open_passes
from sketchselect.errors import Interrupted, PartitionFailed
from sketchselect.execution import LocalEngine, PassOptions, Source
from sketchselect.execution.tasks import Reduction
from sketchselect.readers import open_matrix

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
