"""Checkpoints: a resumed run gives the same bits, counts what it recomputed, and never picks up what is stale."""

import errno
import itertools
import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.passing import Meanwhile, Recorder, flip, interrupt

import sketchselect as sks
from sketchselect._progress import Progress, Result, Statistics
from sketchselect.errors import BadParameter, Interrupted, PartitionFailed
from sketchselect.execution import Checkpoint, LocalEngine, PassOptions, Source, summarize, summarize_source
from sketchselect.execution.checkpoints import LEAST_RATIO, WRITE_RATE, WRITE_SECONDS, list_nodes, read_node
from sketchselect.execution.plan import local_build
from sketchselect.linalg.hashing import fingerprint
from sketchselect.readers import open_vector
from sketchselect.summaries import Bundle, FrequentDirections, Moments

ALL = {"min_bytes": 0, "state_ratio": 0.0}


class SmallMoments(Moments):
    """Moments that claim to be so small that every partition is a leaf."""

    def projected_nbytes(self, n_features, n_targets=0):
        return 8


def run(source, checkpoint=None, description=None, engine=None, progress=None, partition_bytes=320):
    return summarize_source(
        source,
        description or SmallMoments(),
        PassOptions(engine or LocalEngine(kind="serial"), partition_bytes, checkpoint, progress or Progress()),
    )


@pytest.fixture
def kept(tmp_path):
    return Checkpoint(tmp_path / "nodes", **ALL)


@pytest.fixture(params=[LocalEngine(kind="serial"), LocalEngine(2)], ids=["serial", "threads"])
def engine(request):
    return request.param


def test_a_second_run_reads_nothing_and_gives_the_same_bits(tiny, kept, engine):
    first = run(tiny(200), kept, engine=engine)
    source = tiny(200)
    second = run(source, kept, engine=engine)
    assert second.value == first.value == run(tiny(200)).value
    assert source.matrix.reads == []
    assert (second.stats.n_tasks, second.stats.n_resumed, second.stats.rows_read) == (0, 1, 0)
    assert first.stats.n_saved == first.stats.n_tasks


def test_the_profile_counts_every_step_once(tiny, kept, engine, monkeypatch):
    clock = SimpleNamespace(perf_counter=itertools.count().__next__)  # every step takes one second
    if engine.kind == "serial":
        monkeypatch.setattr("sketchselect._progress.time", clock)
    profile = run(tiny(200), kept, engine=engine).stats.profile
    assert profile.keys() == {"read", "prepare", "kernel", "merge", "save"}
    if engine.kind == "serial":
        # 20 partitions in 20 leaves, each merged with nothing, below three nodes and a root; all are saved.
        assert profile == {"read": 20, "prepare": 20, "kernel": 20, "merge": 20 + 4, "save": 20 + 4}
    assert min(profile.values()) > 0
    again = run(tiny(300), kept, engine=engine).stats
    assert again.rows_read == 100
    if engine.kind == "serial":
        assert again.profile["read"] == 10, "what is resumed is not counted again"


def test_a_run_that_failed_is_resumed(tiny, kept, engine):
    broken = tiny(1000)
    broken.matrix.faults = {70: ValueError("broken")}
    with pytest.raises(PartitionFailed):
        run(broken, kept, engine=engine)
    source = tiny(1000)
    notes = Recorder()
    resumed = run(source, kept, engine=engine, progress=notes)
    assert resumed.value == run(tiny(1000)).value
    assert resumed.stats.n_resumed > 0
    # 69 partitions were read before; whole groups of eight of them are saved under one name.
    # Depth first: at most one node of every level is unfinished.
    assert len(source.matrix.reads) <= 100 - 69 + 2 * 8 + 2
    assert notes.starts[-1][1] == len(source.matrix.reads) * 320
    [said] = [note for note in notes.notes if "resuming" in note]
    n_saved, n_parts = map(int, re.search(r"resuming, (\d+) of (\d+) partitions \(\d+ of 1000 rows\)", said).groups())
    assert n_parts - n_saved == len(source.matrix.reads)


def test_appended_rows_make_only_the_right_edge_new(tiny, kept):
    run(tiny(645), kept)
    longer = tiny(700)
    resumed = run(longer, kept)
    # The last partition held five rows and holds ten now.
    assert sorted(longer.matrix.reads) == [(start, start + 10) for start in range(640, 700, 10)]
    assert resumed.value == run(tiny(700)).value


def test_a_rewritten_chunk_is_not_picked_up(tiny, kept):
    run(tiny(640), kept)
    changed = tiny(640)
    changed.matrix.rewritten[333] = "new"
    run(changed, kept)
    assert changed.matrix.reads == [(330, 340)]


def make(source, **changes):
    return Source(
        source.matrix, changes.get("target"), changes.get("weight"), changes.get("prepare", ()), changes.get("columns")
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"prepare": ("l2",)},
        {"columns": (0, 2)},
        {"target": np.arange(100.0)},
        {"weight": np.linspace(1, 2, 100)},
        {"description": FrequentDirections(size=2)},
        {"description": Bundle({"m": SmallMoments()})},
        {"partition_bytes": 640},
        {"build": ("other BLAS",)},
        {"nonfinite": "drop_rows"},
    ],
    ids=lambda c: next(iter(c)),
)
def test_whatever_decides_the_bits_changes_the_name(tiny, kept, changes, monkeypatch):
    run(tiny(100), kept)
    source = tiny(100)
    if "build" in changes:
        monkeypatch.setattr(LocalEngine, "build", lambda self: changes["build"])
    if "nonfinite" in changes:
        source.matrix.nonfinite = changes["nonfinite"]
    for name in ("target", "weight"):
        if name in changes:
            changes = {**changes, name: open_vector(changes[name], 100, name=name)}
    reduced = run(
        make(source, **changes), kept, changes.get("description"), partition_bytes=changes.get("partition_bytes", 320)
    )
    assert len(source.matrix.reads) == reduced.stats.n_partitions


def test_a_parameter_of_a_member_changes_the_name(tiny, kept):
    run(tiny(100), kept, Bundle({"f": FrequentDirections(size=2)}))
    source = tiny(100)
    run(source, kept, Bundle({"f": FrequentDirections(size=3)}))
    assert len(source.matrix.reads) == 10


def test_targets_are_named_by_their_content_run_by_run(tiny, kept):
    y = np.arange(700.0)
    run(make(tiny(640), target=open_vector(y[:640], 640)), kept)
    longer = tiny(700)
    run(make(longer, target=open_vector(y, 700)), kept)
    assert sorted(longer.matrix.reads) == [(start, start + 10) for start in range(640, 700, 10)]
    y[100] += 1
    changed = tiny(640)
    run(make(changed, target=open_vector(y[:640], 640)), kept)
    assert changed.matrix.reads == [(100, 110)]


def test_a_source_without_identity_is_never_kept(tiny, kept):
    source = tiny(100)
    source.matrix.identity = lambda start, stop: None
    notes = Recorder()
    reduced = run(source, kept, progress=notes)
    assert reduced.stats.n_saved == 0
    assert list_nodes(kept.directory) == {}
    assert any("no identity" in note for note in notes.notes)


def test_rows_that_change_under_a_node_keep_it_from_being_written(tiny, kept):
    source = tiny(30)
    with pytest.raises(Exception, match="rewritten"):
        run(source, kept, progress=Meanwhile(lambda: setattr(source.matrix, "version", "another"), 1))
    assert list_nodes(kept.directory) == {}


# --- damage ------------------------------------------------------------------------------------------------------


def cut(path):
    path.write_bytes(path.read_bytes()[:-5])


def empty(path):
    path.write_bytes(b"")


def folder(path):
    path.unlink()
    path.mkdir()


def another(path):
    other = next(p for p in path.parents[1].rglob("*.sks") if p != path)
    shutil.copy(other, path)


@pytest.mark.parametrize("damage", [flip, cut, empty, folder, another])
def test_damaged_files_are_named_and_computed_again(tiny, kept, tmp_path, damage):
    expected = run(tiny(200), kept).value
    listed = list_nodes(kept.directory)
    # Only the root and one leaf are left; the root is damaged.
    sizes = {name: read_node(path).n_rows for name, path in listed.items()}
    root = next(name for name, n_rows in sizes.items() if n_rows == 200)
    leaf = next(name for name, n_rows in sizes.items() if n_rows == 10)
    for name, path in listed.items():
        if name not in (root, leaf):
            os.unlink(path)
    damage(Path(listed[root]))
    source = tiny(200)
    notes = Recorder()
    again = run(source, kept, progress=notes)
    assert again.value == expected
    assert len(source.matrix.reads) == 19
    named = [note for note in notes.notes if "damaged" in note and root in note]
    assert len(named) == (0 if damage is folder else 1)
    if damage is not folder:
        source = tiny(200)
        assert run(source, kept).value == expected
        assert source.matrix.reads == []


def test_left_over_partial_files_are_ignored(tiny, kept):
    expected = run(tiny(100), kept).value
    name, path = next(iter(list_nodes(kept.directory).items()))
    partial = f"{os.path.dirname(path)}/.{name}.0123.sks.1a2b.partial"
    with open(partial, "wb") as file:
        file.write(b"half")
    assert run(tiny(100), kept).value == expected


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_run_goes_on_without_checkpoints_it_cannot_write(tiny, kept, engine, monkeypatch, number):
    def fail(path, raw, durable):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("sketchselect.location.write_atomically", fail)
    notes = Recorder()
    reduced = run(tiny(200), kept, engine=engine, progress=notes)
    assert reduced.value == run(tiny(200)).value
    assert reduced.stats.n_saved == 0
    assert len([n for n in notes.notes if os.strerror(number) in n]) == 1


def test_the_nth_write_fails_for_every_n(tiny, tmp_path, monkeypatch):
    from sketchselect import location

    expected = run(tiny(100)).value
    real = location.write_atomically
    for n in range(1, 15):
        kept = Checkpoint(tmp_path / str(n), **ALL)
        count = 0

        def sometimes(path, raw, durable, n=n):
            nonlocal count
            count += 1
            if count == n:
                raise OSError(errno.EIO, "Input/output error")
            real(path, raw)

        monkeypatch.setattr(location, "write_atomically", sometimes)
        assert run(tiny(100), kept).value == expected
        monkeypatch.setattr(location, "write_atomically", real)
        assert run(tiny(100), kept).value == expected


def test_a_folder_that_is_a_file_does_not_stop_the_run(tiny, tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    notes = Recorder()
    reduced = run(tiny(100), Checkpoint(path, **ALL), progress=notes)
    assert reduced.value == run(tiny(100)).value
    assert path.read_text() == "mine"
    assert any("cannot be written" in note for note in notes.notes)


# --- what is worth keeping ---------------------------------------------------------------------------------------


def test_small_work_is_not_kept(tiny, tmp_path):
    assert run(tiny(1000), Checkpoint(tmp_path, min_seconds=60.0)).stats.n_saved == 0
    assert list_nodes(str(tmp_path)) == {}


def test_nodes_over_enough_data_are_kept(tiny, tmp_path):
    # 80 partitions of 320 bytes: the ten nodes of eight stand on 2,560 bytes each.
    stats = run(tiny(800), Checkpoint(tmp_path, min_bytes=2560, state_ratio=0, min_seconds=1e9)).stats
    assert stats.n_saved == 10 + 2 + 1


def test_data_must_outweigh_the_state(tiny, tmp_path):
    state = Moments().projected_nbytes(4)
    stats = run(tiny(8000), Checkpoint(tmp_path, min_bytes=0, state_ratio=64, min_seconds=1e9), Moments()).stats
    kept = [read_node(path).n_rows for path in list_nodes(str(tmp_path)).values()]
    assert stats.n_tasks > stats.n_saved > 0
    assert min(kept) * 32 >= 64 * state


def test_a_minute_of_work_is_kept_whatever_its_size(tiny, tmp_path):
    stats = run(tiny(200), Checkpoint(tmp_path, min_seconds=0.0)).stats
    assert stats.n_saved == stats.n_tasks


def test_files_lie_in_hashed_folders_under_their_names(tiny, kept):
    run(tiny(200), kept)
    for name, path in list_nodes(kept.directory).items():
        assert os.path.relpath(path, kept.directory).startswith(f"{name[:2]}/{name}.")
        assert path.endswith(".sks")


def test_a_url_is_as_good_as_a_folder(tiny):
    import fsspec

    kept = Checkpoint("memory://checkpoints/run", **ALL)
    try:
        first = run(tiny(200), kept)
        source = tiny(200)
        assert run(source, kept).value == first.value
        assert source.matrix.reads == []
    finally:
        fsspec.filesystem("memory").rm("/checkpoints", recursive=True)


def test_summarize_takes_a_path(tmp_path):
    X = np.random.default_rng(0).normal(size=(100, 5))
    kept = Checkpoint(tmp_path / "c", **ALL)
    first = summarize(X, Moments(), checkpoint=kept, partition_bytes=400)
    assert summarize(X, Moments(), checkpoint=tmp_path / "c", partition_bytes=400) == first
    assert summarize(X, Moments(), checkpoint=str(tmp_path / "c"), partition_bytes=400) == first


@pytest.mark.parametrize("wrong", [{"min_bytes": -1}, {"state_ratio": -1.0}, {"min_seconds": -1.0}])
def test_negative_rules_are_refused(tmp_path, wrong):
    with pytest.raises(BadParameter, match="negative"):
        Checkpoint(tmp_path, **wrong)


# --- fingerprints ------------------------------------------------------------------------------------------------


def test_fingerprints_tell_values_apart_and_agree_on_equal_ones():
    values = [1, 1.5, "1", None, [1], [[1]], [1, 2], {"a": 1}, np.arange(3), np.arange(3.0), np.array(["a", "b"])]
    assert len({fingerprint(v) for v in values}) == len(values)
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint(np.arange(6).reshape(2, 3)) != fingerprint(np.arange(6))
    assert fingerprint(np.float64(0.1)) == fingerprint(0.1)
    assert fingerprint(np.asfortranarray(np.eye(3) + 1)) == fingerprint(np.eye(3) + 1)
    with pytest.raises(TypeError, match="no fingerprint"):
        fingerprint(object())


def test_the_build_names_versions_and_blas_kernel():
    text = " ".join(local_build())
    assert f"numpy {np.__version__}" in text
    assert "kernels" in text
    assert len(local_build()) >= 5


# Which parts of a pass are saved by default, and what an interrupted run says of them.


class State:
    def __init__(self, nbytes: float) -> None:
        self.nbytes = int(nbytes)


def part(seconds: float, *, state: float = 1e3, data: float = 1e8) -> Result[Any]:
    return Result(State(state), Statistics(unsaved_seconds=seconds, covered=int(data)))


def due(one: Result[Any], directory: str = "folder", min_seconds: float | None = None) -> bool:
    rules = Checkpoint(directory, min_bytes=10**12, min_seconds=min_seconds)
    return rules.is_due(one.stats.covered, one.stats.unsaved_seconds, one.value.nbytes)


@pytest.mark.parametrize(
    ("one", "is_due"),
    [
        (part(0.7), False),
        (part(0.9), True),  # long before a minute
        (part(40.0, state=1e8, data=1e10), False),
        (part(41.0, state=1e8, data=1e10), True),
        (part(1e6, state=1e8, data=1e8), False),  # as large as the data: they are read again instead
        (part(0.0, data=2e12), True),
    ],
)
def test_a_part_is_saved_where_its_work_is_forty_times_the_cost_of_its_file(one: Result[Any], is_due: bool) -> None:
    assert due(one) == is_due
    assert due(one, min_seconds=60.0) == (one.stats.unsaved_seconds >= 60 or one.stats.covered >= 1e12)


def test_files_elsewhere_cost_more() -> None:
    assert due(part(1.0))
    assert not due(part(1.0), "s3://bucket/folder")
    assert due(part(9.0), "s3://bucket/folder")
    assert WRITE_SECONDS[0] < WRITE_SECONDS[1]
    assert WRITE_RATE > 0
    assert LEAST_RATIO > 1


@pytest.mark.parametrize(
    ("min_seconds", "saved", "then"),
    [
        (0.0, r"[1-9]\d* of 25 partitions are in checkpoints", "goes on from there"),
        (1e9, "0 of 25 partitions are in checkpoints", "starts from the beginning"),
    ],
)
def test_an_interrupted_pass_says_how_much_of_it_is_saved(
    tmp_path: Any, min_seconds: float, saved: str, then: str
) -> None:
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).standard_normal((5000, 4)))
    checkpoint = Checkpoint(tmp_path / "nodes", min_seconds=min_seconds, state_ratio=0.0)
    options: dict[str, Any] = {"partition_bytes": 6400, "checkpoint": checkpoint, "client": "serial"}
    with pytest.raises(Interrupted, match=rf"interrupted; summarize: {saved}; the same command {then}"):
        sks.summarize(tmp_path / "rows.npy", sks.ColumnStats(), progress=Meanwhile(interrupt, 20), **options)


def test_without_a_checkpoint_nothing_is_saved(tmp_path: Any) -> None:
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).standard_normal((5000, 4)))
    with pytest.raises(Interrupted, match="0 of 25 partitions are in checkpoints"):
        sks.summarize(
            tmp_path / "rows.npy",
            sks.ColumnStats(),
            partition_bytes=6400,
            client="serial",
            progress=Meanwhile(interrupt, 20),
        )
