"""Users' own Dask arrays: computed once, where they are persisted, and named by partition where one fails."""

import dask
import dask.array as da
import numpy as np
import pytest
from tests.passing import dask_cluster

import sketchselect as sks
from sketchselect.errors import BadCluster, BadParameter, ChunkReadError, PartitionFailed
from sketchselect.execution import Checkpoint, Reduction, Source, summarize
from sketchselect.execution.checkpoints import list_nodes
from sketchselect.execution.engine import LocalEngine
from sketchselect.execution.plan import projection
from sketchselect.execution.tree import MergeTree
from sketchselect.readers import row_partitions
from sketchselect.selectors import HighlyVariableGenes, VarianceSelector
from sketchselect.summaries import Moments, TopValues


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).normal(size=(400, 20)) * np.linspace(1, 3, 20)


def failing(X):
    """An array whose sixth chunk of 50 rows cannot be computed."""

    def fail(block, block_info=None):
        if block_info[0]["chunk-location"][0] == 5:
            raise ValueError("secret 42")
        return block

    return da.from_array(X, chunks=(50, 20)).map_blocks(fail, dtype=X.dtype)


@pytest.mark.parametrize("where", ["serial", "threads", "cluster"])
def test_an_error_in_the_users_graph_names_the_partition_and_no_value(X, where):
    with dask_cluster(2, processes=False) as (_, client):
        for fit in (
            lambda at: summarize(failing(X), Moments(), client=at, partition_bytes=8 * 20 * 50),
            lambda at: VarianceSelector(3).fit(failing(X), client=at),
            lambda at: summarize(X, Moments(), sample_weight=abs(failing(X)[:, 0]), client=at),
        ):
            with pytest.raises(PartitionFailed, match=r"partition \d \(rows \d+ to \d+\): .*\(ValueError\)") as caught:
                fit(client if where == "cluster" else where)
            assert "secret" not in str(caught.value)
    with pytest.raises(PartitionFailed, match=r"partition 5 \(rows 250 to 299\)"):
        summarize(failing(X), Moments(), client="serial", partition_bytes=8 * 20 * 50)


def test_a_chunk_that_matrix_target_and_weight_share_is_computed_once(X):
    loaded = []

    def load(start):
        loaded.append(start)
        return X[start : start + 50]

    blocks = [da.from_delayed(dask.delayed(load)(i), (50, 20), X.dtype) for i in range(0, 400, 50)]
    rows = da.concatenate(blocks)
    summarize(rows, Moments(), y=rows[:, 0], sample_weight=abs(rows[:, 1]), client="serial")
    assert sorted(loaded) == list(range(0, 400, 50))


def test_persisted_rows_are_computed_where_they_are_also_outside_of_passes(X, tmp_path):
    with dask_cluster(2, processes=False) as (_, client):
        rows = client.persist(da.from_array(X, chunks=(50, 20)))
        classes = (rows[:, 0] > 0).astype(int)
        assert VarianceSelector(3).partial_fit(rows).support_.size == 3
        assert sks.KMeans(3, random_state=0).partial_fit(rows).cluster_centers_.shape == (3, 20)
        assert sks.open_matrix(sks.convert(rows, tmp_path / "rows.zarr")).shape == (400, 20)
        assert sks.LassoPath(n_features_to_select=3, task="classification").fit(rows, classes).support_.size == 3
        moved = sks.reassign(rows, client.persist(classes), 2)
        assert isinstance(moved.labels, da.Array)
        assert moved.labels.chunks[0] == rows.chunks[0]
        with pytest.raises(BadParameter, match="persisted on a cluster"):
            summarize(rows, Moments(), client="threads")


def test_leaves_of_several_partitions_are_saved_where_targets_travel_with_the_tasks(X, tmp_path):
    np.save(tmp_path / "x.npy", X)
    saving = Checkpoint(tmp_path / "nodes", min_bytes=0, state_ratio=0)
    passing = {"y": X[:, 0], "checkpoint": saving, "partition_bytes": 8 * 20 * 20}
    with dask_cluster(2, processes=False) as (_, client):
        first = summarize(tmp_path / "x.npy", Moments(), client=client, **passing)
    assert list_nodes(saving.directory)
    assert first == summarize(tmp_path / "x.npy", Moments(), client="serial", **passing)


def test_an_error_outside_of_passes_names_the_rows(X):
    with pytest.raises(ChunkReadError, match=r"rows \d+ to \d+ could not be computed \(ValueError\)"):
        sks.KMeans(3).partial_fit(failing(X))


def test_closed_clients_and_clusters_are_named(X):
    with dask_cluster(2, processes=False) as (_, client):
        cluster = client.cluster
    with pytest.raises(BadCluster, match="the client is closed; make a new one"):
        summarize(X, Moments(), client=client)
    with pytest.raises(BadCluster, match="no scheduler can be reached"):
        summarize(X, Moments(), client=cluster)


def test_the_first_summary_of_two_says_what_it_lacks():
    C = np.random.default_rng(0).poisson(np.linspace(0.5, 5, 60), (4000, 60)).astype(float)
    C[:12, 13] = 900
    selector = HighlyVariableGenes(3, top_values=2)
    first = selector.collect(C, compute=False).compute()
    assert isinstance(first, TopValues)
    with pytest.raises(sks.errors.SketchSelectError, match="values"):
        selector.fit_summary(first)


def test_rows_that_others_compute_are_counted_for_a_whole_leaf():
    matrix = sks.open_matrix(da.zeros((6400, 50), chunks=(100, -1)))
    partitions, reduction = row_partitions(matrix, 40_000), Reduction(min, max, state_nbytes=1_000_000)
    tree = MergeTree(len(partitions), chain=32)
    assert tree.n_leaves == 2
    many, one = (
        projection(Source(matrix), partitions, tree, reduction, engine)
        for engine in (LocalEngine(4), LocalEngine(kind="serial"))
    )
    rows = 6400 * 50 * 8
    # Two threads merge, with blocks that stay; the other two compute the chunks of all steps. One thread does not.
    assert many.reading >= rows > one.reading
    assert many.states == 6_000_000
