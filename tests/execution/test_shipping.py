"""What travels to workers, and that the bits survive the journey."""

import pickle

import dask.array as da
import numpy as np
import pytest

from sketchselect.execution import Source
from sketchselect.execution.graph.tasks import Part
from sketchselect.execution.shipping import RowsElsewhere, carries_data, lives_on_cluster, piece, without_rows
from sketchselect.linalg.arrays import canonical
from sketchselect.readers import open_matrix, open_vector
from sketchselect.summaries import FrequentDirections, Moments
from sketchselect.summaries.records import record_arrays


def unaligned(array):
    """Return the same numbers one byte off, as arrays that come out of a message may be."""
    raw = np.empty(array.nbytes + 1, np.uint8)
    out = raw[1:].view(array.dtype).reshape(array.shape)
    out[...] = array
    assert not out.flags.aligned
    return out


def test_rows_that_were_sent_are_read_aligned():
    X = np.random.default_rng(0).normal(size=(50, 7))
    matrix = RowsElsewhere(open_matrix(X), 20, unaligned(X[20:40]))
    block = matrix.read_rows(25, 31)
    assert block.flags.aligned
    assert block.flags.c_contiguous
    assert block.tobytes() == X[25:31].tobytes()


def test_rows_that_were_not_sent_cannot_be_read():
    with pytest.raises(LookupError, match="not sent"):
        RowsElsewhere(open_matrix(np.eye(3))).read_rows(0, 2)


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


def test_only_what_has_no_address_is_carried(tmp_path):
    X = np.random.default_rng(0).normal(size=(40, 3))
    np.save(tmp_path / "x.npy", X)
    stored = open_matrix(tmp_path / "x.npy")
    assert not carries_data(Source(stored))
    assert carries_data(Source(open_matrix(X)))
    assert carries_data(Source(open_matrix(da.from_array(X, chunks=(10, 3)))))
    assert carries_data(Source(stored, target=open_vector(X[:, 0], 40)))
    assert not lives_on_cluster(stored)
    assert not lives_on_cluster(open_matrix(da.from_array(X, chunks=(10, 3))))


def test_a_piece_is_as_small_as_its_rows_and_reads_the_same():
    X = np.random.default_rng(0).normal(size=(4000, 16))
    source = Source(open_matrix(X), target=open_vector(X[:, 0], 4000), weight=open_vector(X[:, 1] ** 2, 4000))
    part = pickle.loads(pickle.dumps(piece(source, 100, 200)))
    assert len(pickle.dumps(part)) < 2 * 100 * 18 * 8
    whole, moved = source.block(150, 180), part.block(150, 180)
    assert moved.values.tobytes() == whole.values.tobytes()
    assert np.array_equal(moved.target, whole.target)
    assert np.array_equal(moved.weight, whole.weight)
    assert len(pickle.dumps(without_rows(source))) < 4000


def test_a_part_says_how_much_it_holds():
    from dask.sizeof import sizeof

    state = Moments().from_block(np.eye(100))
    assert sizeof(Part(state)) >= state.nbytes
    assert sizeof(Part(3)) < 1000
