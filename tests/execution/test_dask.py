"""The engine on real worker processes: the same bits from every source, checkpoints, and nothing left behind."""

import os
import time

import dask.array as da
import numpy as np
import pytest

from sketchselect.errors import PartitionFailed
from sketchselect.execution import (
    Checkpoint,
    LocalEngine,
    PassOptions,
    Source,
    open_engine,
    summarize,
    summarize_source,
)
from sketchselect.execution.checkpoints import list_nodes, read_node
from sketchselect.readers import open_matrix
from sketchselect.summaries import FrequentDirections

from .on_dask import DESCRIPTION, OPTIONS, Killer, Slowly, SlowMatrix, rows_of, run, spans

pytestmark = pytest.mark.slow


def sources(path, X, engine):
    yield path
    yield X
    yield np.asfortranarray(X)
    yield da.from_array(X, chunks=(100, 128))
    yield da.from_zarr(path)
    yield engine.client.persist(da.from_array(X, chunks=(100, 64)))


def test_every_source_gives_the_bits_of_the_serial_engine(engine, store, expected):
    assert expected["fd"].shrinkage > 0
    for source in sources(*store, engine):
        got = summarize(source, DESCRIPTION, y=store[1][:, 0], client=engine, **OPTIONS)
        assert got == expected


def test_a_client_is_enough_and_stays_open(engine, store, expected):
    got = summarize(store[0], DESCRIPTION, y=store[1][:, 0], client=engine.client, **OPTIONS)
    assert got == expected
    assert engine.client.status == "running"


def test_an_address_is_enough(engine, store, expected, monkeypatch):
    address = engine.client.scheduler.address
    assert summarize(store[0], DESCRIPTION, y=store[1][:, 0], client=address, **OPTIONS) == expected
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", address)
    with open_engine("env") as other:
        assert other.n_slots == 2


def test_a_recipe_that_holds_much_is_sent_once(engine, tiny):
    class Heavy:
        def __init__(self):
            self.load = np.arange(400_000.0)

        def __call__(self, block):
            assert self.load.sum() == 400_000 * 399_999 / 2
            return rows_of(block)

    assert run(tiny(1000), engine, leaf=Heavy()).value == spans()


def test_nothing_is_left_on_the_cluster(engine, tiny):
    with pytest.raises(PartitionFailed):
        run(tiny(1000), engine, leaf=Slowly(0, at=500, what="exit"))
    run(tiny(1000), engine)
    held = lambda: engine.client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))  # noqa: E731
    until = time.monotonic() + 300
    while held() and time.monotonic() < until:
        time.sleep(0.05)
    assert held() == 0


def test_progress_is_told_every_byte_once_also_in_chains(engine, tiny):
    for state_nbytes in (0, 400):
        progress = Killer(engine)
        value = run(tiny(1000), engine, state_nbytes=state_nbytes, progress=progress).value
        assert value == spans()
        assert progress.total == 0
        assert progress.seen == 100


# --- checkpoints -----------------------------------------------------------------------------------------------------


def test_workers_write_nodes_and_a_second_run_reads_nothing(engine, wide, tmp_path):
    source, options = wide
    kept = Checkpoint(tmp_path / "nodes", min_bytes=0, state_ratio=0)
    options = PassOptions(engine, checkpoint=kept, **options)
    first = summarize_source(source, FrequentDirections(size=8), options)
    assert first.stats.n_saved > 8
    for path in list_nodes(kept.directory).values():
        if read_node(path).n_rows > 800:
            os.unlink(path)
    again = summarize_source(source, FrequentDirections(size=8), options)
    assert again.value == first.value
    assert again.stats.n_resumed > 4
    assert again.stats.rows_read < 800
    # What another engine kept is as good.
    local = summarize_source(source, FrequentDirections(size=8), options.but(engine=LocalEngine(kind="serial")))
    assert local.value == first.value
    assert local.stats.rows_read == 0


def test_resumed_nodes_are_sent_again_when_their_worker_dies(engine, store, tmp_path):
    kept = Checkpoint(tmp_path / "nodes", min_bytes=0, state_ratio=0)
    source = Source(open_matrix(store[0]))
    options = PassOptions(engine, 100 * 128 * 8, kept)
    first = summarize_source(source, FrequentDirections(size=8), options)
    # Every second leaf, and all that stands on it, is to be done again.
    for path in list_nodes(kept.directory).values():
        if read_node(path).n_rows > 100 or hash(path) % 2:
            os.unlink(path)
    slow = Source(SlowMatrix(source.matrix))
    again = summarize_source(slow, FrequentDirections(size=8), options.but(progress=Killer(engine, 5)))
    assert again.value == first.value


def test_workers_that_cannot_write_leave_the_finished_pass_to_the_client(engine, wide, tmp_path, monkeypatch):
    source, options = wide
    assert not engine.can_write("/proc/nowhere")
    assert engine.can_write(str(tmp_path / "new"))
    assert os.listdir(tmp_path / "new") == []
    monkeypatch.setattr(engine, "can_write", lambda directory: False)
    kept = Checkpoint(tmp_path / "nodes", min_bytes=0, state_ratio=0)
    progress = Killer(engine)
    passing = PassOptions(engine, checkpoint=kept, progress=progress, **options)
    reduced = summarize_source(source, FrequentDirections(size=8), passing)
    (path,) = list_nodes(kept.directory).values()
    assert read_node(path) == reduced.value
    assert any("workers cannot write" in note for note in progress.notes)
