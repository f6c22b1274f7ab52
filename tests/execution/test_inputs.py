"""What travels to workers, and that the bits survive the journey."""

import pickle

import dask.array as da
import numpy as np
import pytest

import sketchselect as sks
from sketchselect._progress import Result
from sketchselect.errors import BadParameter
from sketchselect.execution import Block, LocalEngine, PassOptions, Reduction, Source
from sketchselect.execution.engine import make_plan
from sketchselect.execution.tasks import Span
from sketchselect.linalg.validation import canonical
from sketchselect.readers import MatrixMetadata, Partitions, open_matrix, open_vector
from sketchselect.readers.dask import futures_client
from sketchselect.summaries import FrequentDirections, Moments
from sketchselect.summaries.base import record_arrays


def unaligned(array):
    """Return the same numbers one byte off, as arrays that come out of a message may be."""
    raw = np.empty(array.nbytes + 1, np.uint8)
    out = raw[1:].view(array.dtype).reshape(array.shape)
    out[...] = array
    assert not out.flags.aligned
    return out


def test_rows_that_were_sent_are_read_aligned():
    X = np.random.default_rng(0).normal(size=(50, 7))
    source = Source(MatrixMetadata(open_matrix(X)))
    block = source.block(20, 40, Block(unaligned(X[20:40]), None, None, 20, 40))
    assert block.values.flags.aligned
    assert block.values.flags.c_contiguous
    assert block.values.tobytes() == X[20:40].tobytes()


def test_rows_that_were_not_sent_cannot_be_read():
    with pytest.raises(LookupError, match="not sent"):
        MatrixMetadata(open_matrix(np.eye(3))).read_rows(0, 2)


@pytest.mark.parametrize("description", [Moments(), FrequentDirections(size=4)])
def test_merging_unaligned_states_gives_the_bits_of_aligned_ones(description):
    """A transfer leaves one array in four unaligned, and BLAS then takes another path."""
    import dataclasses

    rng = np.random.default_rng(1)
    a, b = (description.from_block(rng.normal(size=(60, 70)).astype(np.float32)) for _ in range(2))

    def moved(summary):
        record = summary.record
        arrays = {
            f.name: unaligned(v)
            for f in dataclasses.fields(record)
            if isinstance(v := getattr(record, f.name), np.ndarray) and v.size
        }
        assert arrays
        return summary._with(dataclasses.replace(record, **arrays), summary.context)

    whole, after = a.merge(b), moved(a).merge(moved(b))
    for name, array in record_arrays(whole.record).items():
        assert canonical(record_arrays(after.record)[name]).tobytes() == array.tobytes()


def inputs_of(source, *, remote=True):
    partitions = Partitions(tuple(range(0, source.n_rows + 1, 10)))
    options = PassOptions(LocalEngine(1))
    return make_plan(source, Reduction(len, max), options, partitions=partitions).bound(remote=remote)


def test_only_what_has_no_address_is_sent(tmp_path):
    X = np.random.default_rng(0).normal(size=(40, 3))
    np.save(tmp_path / "x.npy", X)
    stored = open_matrix(tmp_path / "x.npy")
    assert inputs_of(Source(stored)).prefetched is None
    assert inputs_of(Source(open_matrix(X)), remote=False).prefetched is None
    assert inputs_of(Source(open_matrix(X))).sends_rows
    assert inputs_of(Source(stored, target=open_vector(X[:, 0], 40))).sends_rows
    lazy = inputs_of(Source(open_matrix(da.from_array(X, chunks=(10, 3)))))
    assert not lazy.sends_rows
    assert lazy.inputs
    assert futures_client(da.from_array(X, chunks=(10, 3))) is None


def test_rows_that_are_sent_are_those_of_their_partition():
    X = np.random.default_rng(0).normal(size=(4000, 16))
    source = Source(open_matrix(X), target=open_vector(X[:, 0], 4000), weight=open_vector(X[:, 1] ** 2, 4000))
    inputs = inputs_of(source)
    assert len(pickle.dumps(inputs.task_source)) < 4000
    rows = pickle.loads(pickle.dumps(inputs.prefetched(Span(10, 100, 110, 0))()))
    whole, moved = source.block(100, 110), inputs.task_source.block(100, 110, rows)
    assert moved.values.tobytes() == whole.values.tobytes()
    assert np.array_equal(moved.target, whole.target)
    assert np.array_equal(moved.weight, whole.weight)


def test_a_part_says_how_much_it_holds():
    from dask.sizeof import sizeof

    state = Moments().from_block(np.eye(100))
    assert sizeof(Result(state)) >= state.nbytes
    assert sizeof(Result(3)) < 1000


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["moments"], "str"),
        ([sks.Moments], "the class Moments"),
        ([5], "int"),
        ([], "none; sketchselect.summaries has"),
    ],
)
def test_what_is_no_summary_is_told_what_is(given, named):
    with pytest.raises(BadParameter, match=rf"such as .*sketchselect\.Moments\(\).*got {named}"):
        sks.summarize(np.eye(4), *given)
