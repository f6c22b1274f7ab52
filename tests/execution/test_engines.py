"""The engines of this process: one answer, errors with a place and without data, bounded memory."""

import ast
import re
import threading
import time

import numpy as np
import pytest
from tests.structure import package_modules

from sketchselect._progress import Progress
from sketchselect.errors import (
    BadParameter,
    ChunkReadError,
    EmptyInput,
    Interrupted,
    NotFinite,
    PartitionFailed,
    SourceChanged,
    Terminated,
    WillNotFit,
)
from sketchselect.execution import LocalEngine, PassOptions, Source, open_engine, reduce_blocks, summarize
from sketchselect.execution.engine import CLIENTS
from sketchselect.execution.tasks import Reduction
from sketchselect.readers import open_matrix
from sketchselect.summaries import FrequentDirections, Moments, encode

ENGINES = [LocalEngine(kind="serial"), LocalEngine(1), LocalEngine(2), LocalEngine(7)]


def rows_of(block):
    return [(block.start, block.stop)]


def pair(left, right):
    return [left, right]


def flat(nested):
    return [nested[0]] if isinstance(nested[0], tuple) else [x for part in nested for x in flat(part)]


def run(source, engine, leaf=rows_of, merge=pair, **options):
    passing = {name: options.pop(name) for name in ("progress", "retries") if name in options}
    return reduce_blocks(source, Reduction(leaf, merge, **options), PassOptions(engine, 320, **passing))


@pytest.mark.parametrize("n_rows", [1, 9, 10, 11, 80, 81, 645, 1000])
def test_every_engine_folds_the_same_tree(tiny, n_rows):
    expected = run(tiny(n_rows), LocalEngine(kind="serial")).value
    assert flat(expected) == [(a, min(a + 10, n_rows)) for a in range(0, n_rows, 10)]
    for engine in ENGINES[1:]:
        assert run(tiny(n_rows), engine).value == expected


@pytest.mark.parametrize("state_nbytes", [0, 100, 10**9])
def test_chains_fold_their_partitions_in_order(tiny, state_nbytes):
    for engine in ENGINES:
        value = run(tiny(333), engine, merge=lambda a, b: a + b, state_nbytes=state_nbytes).value
        assert value == [(a, min(a + 10, 333)) for a in range(0, 333, 10)]


def test_account_of_a_pass(tiny):
    for engine in ENGINES:
        stats = run(tiny(95), engine).stats
        assert (stats.rows_read, stats.rows_dropped, stats.n_partitions) == (95, 0, 10)
        assert stats.bytes_read == 95 * 4 * 8
        assert stats.n_tasks == 10 + 3
        assert stats.projected_nbytes > 95 * 4 * 8


def test_dropped_rows_are_counted():
    X = np.arange(400.0).reshape(100, 4)
    X[[3, 50, 51], 1] = np.nan
    for engine in ENGINES:
        source = Source(open_matrix(X, nonfinite="drop_rows"))
        stats = run(source, engine, leaf=lambda b: [tuple(b.values[:, 0])], merge=lambda a, b: a + b).stats
        assert (stats.rows_read, stats.rows_dropped) == (100, 3)


# --- errors ------------------------------------------------------------------------------------------------------


def boom(block):
    if block.start == 40:
        raise ZeroDivisionError(f"the value was {block.values[0, 0]}")
    return rows_of(block)


def leave(block):
    if block.start == 40:
        raise SystemExit(3)
    return rows_of(block)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: f"{e.kind}{e.n_slots}")
def test_errors_name_the_partition_and_no_value(tiny, engine):
    with pytest.raises(
        PartitionFailed, match=r"tiny: partition 4 \(rows 40 to 49\): ZeroDivisionError in boom"
    ) as info:
        run(tiny(), engine, leaf=boom)
    assert "40.0" not in str(info.value)
    assert isinstance(info.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: f"{e.kind}{e.n_slots}")
def test_leaving_inside_a_task_is_a_normal_error(tiny, engine):
    with pytest.raises(PartitionFailed, match=r"partition 4 .*SystemExit"):
        run(tiny(), engine, leaf=leave)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: f"{e.kind}{e.n_slots}")
def test_our_errors_keep_their_class_and_gain_the_partition(engine):
    X = np.ones((100, 4))
    X[57, 2] = np.inf
    with pytest.raises(NotFinite, match=r"partition 5 \(rows 50 to 59\).*row 57, column 2"):
        run(Source(open_matrix(X)), engine)


def test_errors_in_a_merge_name_the_rows(tiny):
    def refuse(left, right):
        raise KeyError("secret")

    with pytest.raises(PartitionFailed, match=r"merging \(rows 0 to 79\): KeyError in refuse") as info:
        run(tiny(), LocalEngine(kind="serial"), merge=refuse)
    assert "secret" not in str(info.value)


def test_nothing_runs_after_an_error(tiny):
    source = tiny(10_000)
    with pytest.raises(PartitionFailed):
        run(source, LocalEngine(2), leaf=boom)
    reads = len(source.matrix.reads)
    time.sleep(0.05)
    assert len(source.matrix.reads) == reads < 1000
    assert not [t for t in threading.enumerate() if t.name.startswith("sketchselect")]


# --- retries -----------------------------------------------------------------------------------------------------


@pytest.fixture
def no_pause(monkeypatch):
    pauses = []
    monkeypatch.setattr("sketchselect.execution.tasks.time.sleep", pauses.append)
    return pauses


@pytest.mark.parametrize("fault", [OSError(5, "Input/output error"), ChunkReadError("chunk c/3 is damaged")])
def test_a_read_that_fails_twice_is_tried_again_with_growing_pauses(tiny, no_pause, fault):
    expected = run(tiny(), LocalEngine(kind="serial")).value
    source = tiny()
    source.matrix.faults = {3: fault, 4: fault}
    assert run(source, LocalEngine(kind="serial")).value == expected
    assert len(no_pause) == 2
    assert no_pause[1] > no_pause[0] > 0


def test_a_read_that_keeps_failing_is_reported_with_its_place(tiny, no_pause):
    source = tiny()
    source.matrix.faults = dict.fromkeys((3, 4, 5), OSError(5, "Input/output error"))
    with pytest.raises(PartitionFailed, match=r"partition \d \(rows \d+ to \d+\): OSError: .*Input/output error"):
        run(source, LocalEngine(kind="serial"))


@pytest.mark.parametrize(
    "fault", [FileNotFoundError(2, "No such file"), PermissionError(13, "no"), MemoryError("8 GiB")]
)
def test_what_will_not_pass_is_not_tried_again(tiny, no_pause, fault):
    source = tiny()
    source.matrix.faults = {3: fault}
    with pytest.raises(PartitionFailed, match=type(fault).__name__):
        run(source, LocalEngine(kind="serial"))
    assert no_pause == []


def test_the_nth_read_fails_for_every_n(tiny, no_pause):
    """However the storage fails, the run ends with the right answer or with an error that names the place."""
    expected = run(tiny(45), LocalEngine(kind="serial")).value
    for engine in (LocalEngine(kind="serial"), LocalEngine(2)):
        for n in range(1, 7):
            source = tiny(45)
            source.matrix.faults = {n: OSError(28, "No space left on device")}
            assert run(source, engine).value == expected
            source = tiny(45)
            source.matrix.faults = {n: OSError(28, "No space left on device")}
            if n <= 5:
                with pytest.raises(PartitionFailed, match="partition"):
                    run(source, engine, retries=0)


# --- memory, interruption, the source -----------------------------------------------------------------------------


@pytest.mark.slow
def test_waiting_states_grow_with_the_depth_of_the_tree_only(tiny):
    lock = threading.Lock()
    alive = most = 0

    class State:
        def __init__(self):
            nonlocal alive, most
            with lock:
                alive += 1
                most = max(most, alive)

        def __del__(self):
            nonlocal alive
            with lock:
                alive -= 1

    for engine in ENGINES:
        most = 0
        run(tiny(20_000), engine, leaf=lambda b: State(), merge=lambda a, b: State())
        # Seven siblings wait on each of five levels; a busy machine lets some more results wait for the scheduler.
        assert most <= 2 * (5 * 7 + 2 * engine.n_slots)


@pytest.mark.parametrize(("signal", "code"), [(KeyboardInterrupt, 130), (Terminated, 143)])
def test_an_interrupt_ends_the_run_with_its_exit_code(tiny, signal, code):
    class Stopping(Progress):
        seen = 0

        def finish(self, stage):
            self.finished = True

        def advance(self, nbytes):
            self.seen += 1
            if self.seen == 3:
                raise signal

    progress = Stopping()
    with pytest.raises(Interrupted, match="interrupted") as info:
        run(tiny(), LocalEngine(kind="serial"), progress=progress)
    assert info.value.exit_code == code
    assert progress.finished


def test_a_source_that_is_rewritten_meanwhile_is_noticed(tiny):
    source = tiny()

    def leaf(block):
        if block.start == 50:
            source.matrix.rewritten[10] = "new"
        return rows_of(block)

    with pytest.raises(SourceChanged, match="tiny"):
        run(source, LocalEngine(kind="serial"), leaf=leaf)


def test_too_little_memory_is_said_before_anything_is_read(tiny):
    source = tiny()
    with pytest.raises(WillNotFit, match=r"tiny: projected peak .* the limit is 1\.00 MiB"):
        run(source, LocalEngine(2, memory_limit=2**20))
    assert source.matrix.reads == []


@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
def test_empty_sources_are_refused(tiny, shape):
    with pytest.raises(EmptyInput, match=f"{shape[0]} x {shape[1]}"):
        run(tiny(*shape), LocalEngine(kind="serial"))


def test_a_leaf_that_changes_its_block_does_not_change_the_users_array():
    """Blocks are views of an array in memory; summaries must not, and merges cannot, write to it."""
    X = np.random.default_rng(0).normal(size=(500, 8))
    before = X.tobytes()
    summarize(X, {"m": Moments(), "f": FrequentDirections(size=3)}, prepare=["l2"], partition_bytes=3200)
    assert X.tobytes() == before


def test_states_are_not_changed_by_later_merges():
    """A retried merge may see its inputs again."""
    X = np.random.default_rng(1).normal(size=(400, 12))
    seen = []

    def leaf(block):
        summary = Moments().from_block(block.values)
        seen.append((summary, encode(summary)))
        return summary

    run(Source(open_matrix(X)), LocalEngine(kind="serial"), leaf=leaf, merge=lambda a, b: a.merge(b))
    assert len(seen) > 8
    assert all(encode(summary) == content for summary, content in seen)


@pytest.mark.parametrize("client", ["process", 3, "localhost:8786", object()])
def test_what_is_no_engine_is_refused(client):
    with pytest.raises(BadParameter, match=f"client must be {re.escape(CLIENTS)}, got "), open_engine(client):
        pass


@pytest.mark.parametrize("place", ["http://host:8787/status", "https://host"])
def test_the_address_of_a_dashboard_is_said_to_be_one(place):
    with pytest.raises(BadParameter, match=rf"{place}: .*dashboard; .* such as tcp://host:8786"), open_engine(place):
        pass


def test_what_a_client_may_be_is_said_in_one_place():
    texts = [
        ast.get_docstring(node) or ""
        for module in package_modules()
        if not module.name.startswith("execution.")
        for node in ast.walk(module.tree)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    ]
    entries = re.findall(r"^client : (.*)\n(.*)", "\n".join(texts), re.MULTILINE)
    assert len(entries) >= 6
    reference = re.compile(r".*, as in `(sketchselect\.)?summarize`\.")
    assert [entry for entry in entries if entry[0] != "optional" or not reference.fullmatch(entry[1])] == []


def test_the_environment_must_name_a_scheduler(monkeypatch):
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    with pytest.raises(BadParameter, match="DASK_SCHEDULER_ADDRESS"), open_engine("env"):
        pass


def test_summarize_refuses_what_is_no_description():
    X = np.eye(3)
    with pytest.raises(BadParameter, match="summary must be"):
        summarize(X, "moments")
    with pytest.raises(BadParameter, match="description"):
        summarize(X, Moments().from_block(X))
    with pytest.raises(BadParameter, match="checkpoint must be"):
        summarize(X, Moments(), checkpoint=3)
