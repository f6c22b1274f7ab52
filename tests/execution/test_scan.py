"""Prefixes and windows by a scan over the tree, against the rows read one after the other."""

from pathlib import Path

import numpy as np
import pytest
from tests.passing import Counted, flip, serial

from sketchselect.errors import BadParameter, SourceChanged
from sketchselect.execution import Checkpoint, Source
from sketchselect.execution.checkpoints import list_nodes, read_node
from sketchselect.execution.points import cover
from sketchselect.execution.tree import MergeTree
from sketchselect.readers import open_matrix, open_vector
from sketchselect.readers.base import Partitions
from sketchselect.selectors.timelines import LEAST_POINTS, point_spans, scan_partitions, scan_source
from sketchselect.summaries import Bundle, DecayedDirections, FrequentDirections, Moments


def keep(summary):
    """What a test wants of every point: all of it."""
    return summary


def rows(n=330, p=70, seed=0):
    return 3 + np.random.default_rng(seed).standard_normal((n, p)) * np.linspace(2, 0.1, p)


def scan(X, description, *, finish=keep, **options):
    passing = serial(partition_bytes=8 * X.shape[1] * 10)
    return scan_source(Source(open_matrix(X)), description, finish, passing, **options)


@pytest.mark.parametrize("fan_in", [2, 8])
def test_every_range_is_covered_once_by_few_full_nodes(fan_in):
    plan = MergeTree(150, fan_in=fan_in)
    for start in range(0, 150, 7):
        for stop in range(start + 1, 151):
            nodes = cover(plan, start, stop)
            below = [partition for node in nodes for partition in plan.partitions(node)]
            assert below == list(range(start, stop))
            assert len(nodes) <= 2 * (fan_in - 1) * (np.log(stop - start) / np.log(fan_in) + 1)


@pytest.mark.parametrize("n", [1, 5, 8, 9, 64, 65])
def test_the_nodes_of_a_cover_are_nodes_of_the_tree(n):
    plan = MergeTree(n)
    tree = set(plan.post_order())
    assert {node for stop in range(1, n + 1) for node in cover(plan, 0, stop)} <= tree


def test_points_and_windows_in_partitions():
    partitions = Partitions((0, 10, 20, 30, 40, 45))
    assert point_spans(partitions, None, None) == [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5)]
    assert point_spans(partitions, 2, None) == [(0, 3), (0, 5)]
    assert point_spans(partitions, 1, None) == [(0, 5)]
    assert point_spans(partitions, 10**30, None) == point_spans(partitions, None, None)
    assert point_spans(partitions, 99, None) == point_spans(partitions, None, None)
    # The window holds at least what was asked for: whole partitions.
    assert point_spans(partitions, None, 10) == [(0, 1), (1, 2), (2, 3), (3, 4), (3, 5)]
    assert point_spans(partitions, None, 21) == [(0, 1), (0, 2), (0, 3), (1, 4), (2, 5)]


def test_partitions_are_fine_enough_for_the_points_and_the_window_unless_their_size_is_given():
    source = Source(open_matrix(rows(330)))
    assert len(scan_partitions(source, "32MiB", 20, None)) == 1
    assert LEAST_POINTS <= len(scan_partitions(source, None, None, None)) < 3 * LEAST_POINTS
    assert 20 <= len(scan_partitions(source, None, 20, None)) < 60
    fine = scan_partitions(source, None, 2, 15)
    assert np.diff(fine.edges).max() <= 15
    assert len(scan_partitions(source, None, 4000, None)) == 330, "one row is the least"
    before = scan_partitions(source, None, 20, None).edges
    longer = scan_partitions(Source(open_matrix(rows(350))), None, 20, None).edges
    assert longer[: len(before) - 1] == before[:-1], "appended rows moved an edge"


@pytest.mark.parametrize("window", [None, 10, 85])
def test_moments_equal_those_of_the_rows_one_after_the_other(window):
    X, y, w = rows(), np.arange(330.0), np.random.default_rng(1).random(330)
    matrix = open_matrix(X)
    source = Source(matrix, open_vector(y, 330), open_vector(w, 330))
    found = scan_source(source, Moments(), keep, serial(partition_bytes=8 * X.shape[1] * 10), window=window)
    assert [stop for _, stop in found.spans] == [*range(10, 331, 10)]
    for (start, stop), summary in zip(found.spans, found.values, strict=True):
        assert summary.n_rows == stop - start
        assert start == (0 if window is None else max(0, (stop - window) // 10 * 10))
        assert np.allclose(summary.covariance(), np.cov(X[start:stop].T, ddof=0, aweights=w[start:stop]), atol=1e-11)
        assert np.allclose(summary.y_mean, np.average(y[start:stop], weights=w[start:stop]), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("description", [FrequentDirections(4), DecayedDirections(4, half_life=40)])
@pytest.mark.parametrize("window", [None, 85])
def test_sketches_keep_their_guarantee_at_every_point(description, window):
    X = rows()
    found = scan(X, description, window=window)
    for (start, stop), summary in zip(found.spans, found.values, strict=True):
        ages = np.arange(stop - start)[::-1]
        weights = 0.5 ** (ages / 40) if isinstance(description, DecayedDirections) else np.ones(stop - start)
        A = X[start:stop] * np.sqrt(weights)[:, None]
        gap = np.linalg.eigvalsh(A.T @ A - summary.sketch.T @ summary.sketch)
        slack = 1e-10 * (A**2).sum()
        assert gap[0] >= -slack
        assert gap[-1] <= summary.shrinkage + slack


@pytest.mark.parametrize("n", [40, 65, 515])
def test_two_merges_a_partition(n):
    """The tree takes one for every partition but one; a prefix goes on from the one before it, on every level."""
    X = np.arange(10.0 * n)[:, None]
    Counted.merges = 0
    scan(X, Counted(), finish=gap_or_rows)
    assert Counted.merges <= 2 * n + n // 8


def gap_or_rows(summary):
    return summary.n_rows, float(summary.mean[0])


def test_no_more_is_merged_than_points_need():
    """Of 15 partitions the first eight are one node, the rest nodes by themselves: nothing stands above them."""
    Counted.merges = 0
    scan(np.arange(150.0)[:, None], Counted(), points=1)
    # Seven below the one node, and seven to join it with the other seven leaves.
    assert Counted.merges == 7 + 7


def test_fewer_points_are_points_of_the_same_scan():
    X = rows()
    every = {stop: value for (_, stop), value in zip(*both(scan(X, Moments())), strict=True)}
    few = scan(X, Moments(), points=4)
    assert len(few.values) == 4
    for (_, stop), value in zip(*both(few), strict=True):
        assert np.allclose(value.covariance(), every[stop].covariance(), atol=1e-12)


def both(found):
    return found.spans, found.values


# --- what is kept ------------------------------------------------------------------------------------------------


def counted(tiny, n_rows, kept, **options):
    source = tiny(n_rows)
    found = scan_source(source, Moments(), keep, serial(partition_bytes=320, checkpoint=kept), **options)
    return source.matrix.reads, found


def test_a_second_scan_reads_nothing_and_appended_rows_only_are_read(tiny, tmp_path):
    kept = Checkpoint(tmp_path / "nodes")
    reads, first = counted(tiny, 640, kept)
    assert len(reads) == 64
    assert counted(tiny, 640, kept)[0] == []
    # Other points, or windows, of the same rows need no other states.
    assert counted(tiny, 640, kept, points=7, window=55)[0] == []
    reads, longer = counted(tiny, 700, kept)
    assert reads == [(start, start + 10) for start in range(640, 700, 10)]
    assert longer.values[:64] == first.values
    assert longer.stats.rows_read == 60
    fresh = counted(tiny, 700, None)[1]
    assert longer.values == fresh.values


@pytest.mark.parametrize("n_damaged", [1, 8, 100])
def test_files_that_were_damaged_since_are_made_again(tiny, tmp_path, n_damaged):
    kept = Checkpoint(tmp_path / "nodes")
    _, first = counted(tiny, 200, kept)
    # The highest first: of the lowest the last of each eight is read only where the node above it is gone.
    paths = sorted(list_nodes(kept.directory).values(), key=lambda path: -read_node(path).n_rows)
    for path in map(Path, paths[:n_damaged]):
        flip(path)
    reads, again = counted(tiny, 200, kept)
    assert again.values == first.values
    assert len(reads) == 20
    assert counted(tiny, 200, kept)[0] == []


def test_a_node_that_is_gone_is_made_again(tiny, tmp_path):
    kept = Checkpoint(tmp_path / "nodes")
    _, first = counted(tiny, 200, kept)
    for path in sorted(list_nodes(kept.directory).values())[::3]:
        Path(path).unlink()
        assert counted(tiny, 200, kept)[1].values == first.values


def test_what_cannot_be_saved_is_done_without_and_what_was_rewritten_is_said(tiny, tmp_path, monkeypatch):
    source = tiny(100)
    expected = counted(tiny, 100, None)[1]

    def fail(path, raw, durable):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("sketchselect.location.write_atomically", fail)
        assert counted(tiny, 100, Checkpoint(tmp_path / "full"))[1].values == expected.values

    def rewritten(summary):
        source.matrix.version = "2"
        return summary.n_rows

    with pytest.raises(SourceChanged, match="rewritten"):
        scan_source(source, Moments(), rewritten, serial(partition_bytes=320))


@pytest.mark.parametrize(
    ("options", "named"), [({"points": 0}, "points"), ({"window": -5}, "window"), ({"points": 2.5}, "points")]
)
def test_bad_parameters(options, named):
    with pytest.raises(BadParameter, match=f"{named} must be a whole number"):
        scan(rows(), Moments(), **options)


def test_a_bundle_is_scanned_as_one():
    X = rows(100, 12)
    found = scan(X, Bundle(m=Moments(), f=FrequentDirections(3)), points=3)
    assert [value["m"].n_rows for value in found.values] == [stop for _, stop in found.spans]
