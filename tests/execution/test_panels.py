"""Moments of wide matrices: panels put together are the moments, on every engine, and the memory is as projected."""

import errno
import os
import pickle
import re
import time
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from tests.covering import every_pair, same
from tests.passing import Meanwhile, Recorder, dask_cluster, flip, serial

from sketchselect import location
from sketchselect._progress import Progress
from sketchselect.cluster import certify_selection
from sketchselect.errors import (
    ClusterLost,
    DamagedFile,
    Interrupted,
    NotFinite,
    NoWorkers,
    PartitionFailed,
    SourceChanged,
    SourceError,
    WillNotFit,
)
from sketchselect.execution import (
    Checkpoint,
    LocalEngine,
    PassOptions,
    Source,
    dask_engine,
    panels,
    summarize,
    summarize_source,
    watch,
)
from sketchselect.execution.checkpoints import WRITE_RATE, WRITE_SECONDS, list_nodes, read_file
from sketchselect.execution.dask_engine import DaskEngine
from sketchselect.execution.summarize import plan_summary, summary_projection
from sketchselect.linalg import panel_columns
from sketchselect.linalg.comoments import panel_edges
from sketchselect.linalg.csr import as_csr
from sketchselect.linalg.panel_columns import Factored, LocalPanels, PanelDirections, View, panel_pivots
from sketchselect.linalg.pivoting import EXHAUSTED, TIE, pivots
from sketchselect.linalg.sparse_shrink import SketchPanel
from sketchselect.readers import open_matrix, open_vector
from sketchselect.selectors import (
    GreedySelector,
    LeverageSelector,
    OsinskySelector,
    PivotedQRSelector,
    SketchedRidgeSelector,
    base,
)
from sketchselect.selectors.registry import METHODS
from sketchselect.summaries import (
    Bundle,
    ColumnStats,
    ComomentPanel,
    FrequentDirections,
    Moments,
    codec,
    frequent_directions,
)
from sketchselect.summaries import moment_panels as tiles
from sketchselect.summaries.codec import decode_record
from sketchselect.summaries.frequent_directions import PanelledDirections

from .on_dask import Killer, SlowMatrix

N, P = 700, 43


@pytest.fixture
def narrow(monkeypatch):
    """Tile from ten columns on, with panels of at least 2 kB: several of them at 43 columns."""
    monkeypatch.setattr(tiles, "PANELS_ABOVE", 10)
    monkeypatch.setattr(tiles, "PANEL_NBYTES", 2000)


@pytest.fixture
def data():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N, P)) @ rng.normal(size=(P, P)) + 1e6 * rng.normal(size=P)
    return X, np.stack([X[:, 0] - X[:, 7], rng.normal(size=N) + 1e4], axis=1), rng.integers(0, 4, N).astype(float)


def joint_oracle(X, y, w):
    """Weighted mean and co-moment of [X y] in extended precision."""
    Z = np.hstack([X, y]).astype(np.longdouble)
    mean = (w @ Z) / w.sum()
    return mean.astype(float), (((Z - mean) * w[:, None]).T @ (Z - mean)).astype(float)


# --- the cut -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 45, 5001, 10_000, 20_001])
def test_panels_cover_the_upper_triangle_once_and_stay_small(width):
    limit = max(tiles.PANEL_NBYTES, width * width // 2)
    edges = panel_edges(width, limit)
    assert (edges[0], edges[-1]) == (0, width)
    heights = np.diff(edges)
    assert (heights > 0).all()
    assert all(8 * h * (width - a) <= limit for a, h in zip(edges, heights, strict=False))
    assert len(heights) <= 10


def test_a_row_wider_than_a_panel_still_goes_in():
    assert panel_edges(4, 8) == (0, 1, 2, 3, 4)


def test_nothing_is_in_panels_that_needs_not_be(narrow):
    for whole, shape in [
        (Moments(), (8, 2)),
        (ColumnStats(), (100, 0)),
        (Bundle(ColumnStats(), FrequentDirections(4)), (100, 0)),
    ]:
        assert tiles.split_in_passes(whole, *shape) == {None: [whole]}
    assert None not in tiles.split_in_passes(Moments(), 9, 2)


# --- the answer --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_in_panels_is_whole_to_rounding(monkeypatch, data, weighted, dtype):
    X, y, w = data
    X = (X - X.mean(axis=0) + 100).astype(dtype)
    options = {"y": y, "sample_weight": w if weighted else None, "partition_bytes": 40_000, "client": "serial"}
    plain = summarize(X, Moments(), **options)
    monkeypatch.setattr(tiles, "PANELS_ABOVE", 10)
    monkeypatch.setattr(tiles, "PANEL_NBYTES", 2000)
    tiled = summarize(X, Moments(), **options)
    assert type(tiled) is Moments
    assert (tiled.n_rows, tiled.n_targets, tiled.weight) == (plain.n_rows, 2, plain.weight)
    assert tiled.record.squared_weight == plain.record.squared_weight
    assert tiled.n_weighted_rows == plain.n_weighted_rows == (np.count_nonzero(w) if weighted else len(X))
    C, D = tiled.record.comoment, plain.record.comoment
    scale = np.sqrt(np.outer(D.diagonal(), D.diagonal()))
    # Untiled products of float32 columns are made in float32.
    assert (np.abs(C - D) <= (1e-12 if dtype == np.float64 else 5e-7) * scale).all()
    assert np.array_equal(C, C.T)
    assert np.allclose(tiled.record.mean, plain.record.mean, rtol=1e-14)
    mean, exact = joint_oracle(X.astype(float), y, w if weighted else np.ones(N))
    assert np.allclose(tiled.record.mean, mean, rtol=1e-12)
    assert (np.abs(C - exact) <= 1e-11 * scale).all()


def test_far_from_zero_no_digit_is_lost_that_moments_keep(narrow):
    rng = np.random.default_rng(0)
    X = 1e8 + rng.normal(size=(2000, 16))
    tiled = summarize(X, Moments(), partition_bytes=20_000, client="serial")
    _, exact = joint_oracle(X, np.empty((2000, 0)), np.ones(2000))
    assert np.allclose(tiled.record.comoment.diagonal(), exact.diagonal(), rtol=1e-9)


def test_every_engine_gives_the_same_bits(narrow, data):
    X, y, w = data
    answers = [
        summarize(X, Moments(), y=y, sample_weight=w, partition_bytes=20_000, client=engine)
        for engine in (LocalEngine(kind="serial"), LocalEngine(1), LocalEngine(3))
    ]
    assert all(answer == answers[0] for answer in answers)


@pytest.mark.slow
def test_a_cluster_gives_the_same_bits(narrow, data, engine):
    X, y, w = data
    expected, got = (
        summarize(X, Moments(), y=y, sample_weight=w, partition_bytes=20_000, client=client)
        for client in ("serial", engine)
    )
    assert got == expected


@pytest.mark.parametrize("labels", [["no", "yes"], ["a", "b", "c"]])
def test_classes_are_encoded(narrow, data, labels):
    X = data[0]
    y = np.array(labels)[np.arange(N) * 7 % len(labels)]
    tiled = summarize(X, Moments(classes=labels), y=y, partition_bytes=20_000, client="serial")
    plain = Moments(classes=labels).from_block(X, y)
    assert tiled.classes == plain.classes
    assert np.allclose(tiled.xy, plain.xy, rtol=1e-9, atol=1e-9)
    assert np.allclose(tiled.yy, plain.yy)


def test_other_members_of_a_bundle_are_as_in_one_pass(narrow, data):
    X, y, w = data
    reference = {"stats": ColumnStats(), "moments": Moments(), "sketch": FrequentDirections(8)}
    options = {"y": y, "sample_weight": w, "partition_bytes": 20_000, "client": "serial"}
    both = summarize(X, reference, **options)
    assert list(both) == list(reference)
    assert both["moments"] == summarize(X, Moments(), **options)
    alone = summarize(X, {k: v for k, v in reference.items() if k != "moments"}, **options)
    assert both["stats"] == alone["stats"]
    assert both["sketch"] == alone["sketch"]


def test_prepare_steps_columns_and_dropped_rows(narrow, data):
    X = data[0] - data[0].mean(axis=0)
    X[[5, 300], 2] = np.nan
    source = Source(open_matrix(X, nonfinite="drop_rows"), prepare=("l2",), columns=tuple(range(1, 40, 2)))
    reduced = summarize_source(source, Moments(), serial(partition_bytes=20_000))
    rows = np.delete(X, [5, 300], axis=0)
    rows = (rows / np.linalg.norm(rows, axis=1)[:, None])[:, 1:40:2]
    assert reduced.value.n_rows == N - 2
    assert reduced.value.prepare == ("l2",)
    assert np.allclose(reduced.value.covariance(), np.cov(rows.T, ddof=0), atol=1e-15)
    assert (reduced.stats.rows_read, reduced.stats.rows_dropped) == (N, 2)
    n_passes = len(panel_edges(20, 2000)) - 1
    assert n_passes > 1
    assert reduced.stats.bytes_read == n_passes * X.nbytes


# --- memory, checkpoints, damage ---------------------------------------------------------------------------------


def test_the_projection_counts_the_result_where_it_is_held(narrow, data):
    source = Source(open_matrix(data[0]))
    stats = summarize_source(source, Moments(), serial(partition_bytes=20_000)).stats
    engine = LocalEngine(1, memory_limit=stats.projected_nbytes)
    tight = summarize_source(source, Moments(), PassOptions(engine, partition_bytes=20_000))
    assert tight.stats.projected_nbytes <= engine.memory_limit
    less = LocalEngine(1, memory_limit=tight.stats.projected_nbytes - 1)
    with pytest.raises(WillNotFit, match="cached rows and for results"):
        summarize_source(source, Moments(), PassOptions(less, partition_bytes=20_000))


@pytest.mark.parametrize("d", [5_001, 10_000, 20_000])
def test_no_task_holds_the_whole_co_moment(d):
    whole = Moments().projected_nbytes(d, 1)
    for panel in tiles.split_in_passes(Moments(), d, 1)["moments"]:
        assert panel.projected_nbytes(d, 1) <= max(tiles.PANEL_NBYTES, whole // 16) + 16 * d + 64


def test_a_killed_run_resumes_panel_by_panel(narrow, data, tmp_path):
    X, y, _ = data
    np.save(tmp_path / "x.npy", X)
    source = Source(open_matrix(tmp_path / "x.npy"), open_vector(y, N, matrix="x", name="target"))
    options = serial(partition_bytes=20_000, checkpoint=Checkpoint(tmp_path / "c", min_bytes=0, state_ratio=0))
    first = summarize_source(source, Moments(), options)
    assert first.stats.n_saved > 0
    again = summarize_source(source, Moments(), options)
    assert again.stats.bytes_read == 0
    assert again.value == first.value
    saved = sorted((tmp_path / "c").rglob("*.sks"))
    for file in saved[::2]:
        file.unlink()
    assert summarize_source(source, Moments(), options).value == first.value


def test_a_source_rewritten_between_two_panels_is_noticed(narrow, data, tmp_path):
    X = data[0]
    np.save(tmp_path / "x.npy", X)
    source = Source(open_matrix(tmp_path / "x.npy"))

    class Rewrite(Progress):
        seen = 0

        def finish(self, stage):
            self.seen += 1
            if self.seen == 1:
                np.save(tmp_path / "x.npy", X + 1)

    with pytest.raises(SourceChanged, match="rewritten"):
        summarize_source(source, Moments(), serial(partition_bytes=20_000, progress=Rewrite()))


def test_bad_values_are_named_as_in_one_pass(narrow, data):
    X, y, _ = data
    X[41, 30] = 1e160
    with pytest.raises(ValueError, match="row 41, column 30"):
        summarize(X, Moments(), y=y, partition_bytes=20_000, client="serial")


def test_a_panel_of_the_targets_alone():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(50, 3)), rng.normal(size=(50, 2))
    panel = ComomentPanel(4, 9).from_block(X[:20], y[:20]).merge(ComomentPanel(4, 9).from_block(X[20:], y[20:]))
    assert np.allclose(panel.comoment, 50 * np.var(y[:, 1]))


# Wide sketches of sparse rows in panels of columns: the same bits on every engine, and a fraction of the memory.

SKETCH = FrequentDirections(size=12)
OPTIONS = {"partition_bytes": 60_000, "prepare": ["l2"]}


def words(n_rows=1200, n_columns=900, seed=0):
    rng = np.random.default_rng(seed)
    X = sp.random_array((n_rows, n_columns), density=0.02, format="csr", random_state=rng)
    X.data += rng.poisson(2, X.nnz)
    return as_csr(X)


@pytest.fixture
def in_panels(monkeypatch):
    """Seven panels of sketches of 12 rows."""
    monkeypatch.setattr(frequent_directions, "PANELS_ABOVE_NBYTES", 1)
    monkeypatch.setattr(frequent_directions, "PANEL_NBYTES", 8 * 12 * 128)
    assert len(SKETCH.column_panels(900)) == 8


def require_guarantee(X, sketch):
    rows = X.toarray() / np.linalg.norm(X.toarray(), axis=1, keepdims=True)
    centred = rows - rows.mean(axis=0)
    gap = np.linalg.eigvalsh(centred.T @ centred - sketch.centered_sketch.T @ sketch.centered_sketch)
    assert gap[0] > -1e-12 * sketch.squared_norm
    assert gap[-1] <= sketch.shrinkage
    np.testing.assert_allclose(sketch.mean, rows.mean(axis=0), atol=1e-15)
    np.testing.assert_allclose(sketch.centered_column_squared_norms, (centred**2).sum(axis=0), rtol=1e-12)


def test_the_guarantee_and_the_same_bits_here_and_in_threads(in_panels):
    X = words()
    expected = summarize(X, SKETCH, client="serial", **OPTIONS)
    assert expected.n_rows == 1200
    assert expected.prepare == ("l2",)
    require_guarantee(X, expected)
    assert summarize(X, SKETCH, client="threads", **OPTIONS) == expected
    assert summarize(X, SKETCH, compute=False, **OPTIONS).compute(scheduler="threads") == expected


def test_only_wide_sketches_of_sparse_rows_are_in_panels(in_panels):
    X = words()
    source = Source(open_matrix(X.toarray()))
    options = serial(partition_bytes=8 * 900 * 100)
    dense = summarize_source(source, SKETCH, options).value
    panels = summarize_source(Source(open_matrix(X)), SKETCH, options).value
    assert dense != panels
    assert dense.centered_squared_norm == pytest.approx(panels.centered_squared_norm)
    assert FrequentDirections(size=60).column_panels(900) is None  # exact


def test_small_states_are_not_in_panels():
    assert FrequentDirections(size=160).column_panels(300_000) is None
    edges = FrequentDirections(size=160).column_panels(1_000_000)
    assert (edges[0], edges[-1]) == (0, 1_000_000)
    assert max(np.diff(edges)) * 8 * 160 < 1 << 28


def test_members_of_a_bundle_are_summarised_in_a_pass_beside_it(in_panels):
    X = words()
    bundle = Bundle({"stats": ColumnStats(), "fd": SKETCH})
    summary = summarize(X, bundle, client="serial", **OPTIONS)
    assert list(summary) == ["stats", "fd"]
    alone = summarize(X, SKETCH, client="serial", **OPTIONS)
    assert summary["fd"].centered_sketch.tobytes() == alone.centered_sketch.tobytes()
    assert summary["stats"].n_rows == 1200
    assert summarize(X, bundle, compute=False, **OPTIONS).compute(scheduler="synchronous") == summary


def blocks_of(X, load, meta=None):
    """A Dask array of sparse blocks of 100 rows, each of a task of its own."""
    meta = sp.csr_array((0, 0)) if meta is None else meta
    delayed = [da.from_delayed(dask.delayed(load)(a), (100, X.shape[1]), meta=meta) for a in range(0, X.shape[0], 100)]
    return da.concatenate(delayed)


@pytest.mark.parametrize("kind", ["csr_array", "csr_matrix", "COO", pytest.param("GCXS", marks=pytest.mark.slow)])
def test_sparse_dask_arrays_are_in_panels(in_panels, kind):
    make = getattr(sp, kind, None) or getattr(pytest.importorskip("sparse"), kind).from_numpy
    X = words()
    lazy = da.from_array(X.toarray(), chunks=(300, 450)).map_blocks(make, meta=make(np.zeros((1, 1))))
    (plan,) = plan_summary(Source(open_matrix(lazy)), SKETCH, serial(partition_bytes=60_000))[1]
    assert (plan.leaf_tasks, len(plan.partitions)) == (8 - 1, 4)
    got = summarize(lazy, SKETCH, client="threads", **OPTIONS)
    require_guarantee(X, got)
    assert summarize(lazy, SKETCH, compute=False, **OPTIONS).compute(scheduler="threads") == got


def test_the_tasks_of_a_dask_array_do_not_run_ahead_of_the_shrinks(in_panels):
    """Their rows would fill the memory."""
    X, done, ahead = words(), [], []

    class Noted(Progress):
        def advance(self, nbytes):
            done.append(nbytes)

    def load(start):
        ahead.append(start // 100 - len(done))
        return X[start : start + 100]

    options = PassOptions(LocalEngine(4), 60_000, progress=Noted())
    got = summarize_source(Source(open_matrix(blocks_of(X, load)), prepare=("l2",)), SKETCH, options)
    assert got.stats.n_partitions == len(done) == 12
    assert max(ahead) <= panels.READ_AHEAD - 1
    require_guarantee(X, got.value)


def test_an_error_in_the_graph_of_a_dask_array_names_the_partition(in_panels):
    X = words()

    def load(start):
        return X[start : start + 100] if start != 700 else 1 // 0

    with pytest.raises(PartitionFailed, match=r"partition 7 \(rows 700 to 799\).*ZeroDivisionError"):
        summarize(blocks_of(X, load), SKETCH, client="threads", **OPTIONS)


def test_progress_is_that_of_the_sketch_and_all_of_its_time_is_counted(in_panels, monkeypatch):
    done, original = [], panels.shrunk_panel

    def slow(*arguments):
        done.append("panel")
        time.sleep(0.02)
        return original(*arguments)

    class Noted(Progress):
        def advance(self, nbytes):
            done.append("partition")

    monkeypatch.setattr(panels, "shrunk_panel", slow)
    source = Source(open_matrix(words()))
    options = serial(partition_bytes=60_000, progress=Noted())
    stats = summarize_source(source, SKETCH, options).stats
    n_shrinks = done.count("panel") // 7
    assert done.count("partition") == stats.n_partitions > 2
    assert done[-8:] == ["partition"] + 7 * ["panel"]
    assert stats.profile["kernel"] >= 0.02 * 7 * n_shrinks


def test_weights_and_dropped_rows(in_panels):
    X = words()
    w = np.random.default_rng(1).random(1200)
    X.data[X.indptr[700]] = np.nan
    kept = np.delete(np.arange(1200), 700)
    source = open_matrix(X, nonfinite="drop_rows")
    got = summarize(source, SKETCH, sample_weight=w, client="threads", partition_bytes=60_000)
    rows, w = X.toarray()[kept], w[kept]
    mean = w @ rows / w.sum()
    centred = (rows - mean) * np.sqrt(w)[:, None]
    gap = np.linalg.eigvalsh(centred.T @ centred - got.centered_sketch.T @ got.centered_sketch)
    assert got.n_rows == 1199
    assert gap[0] > -1e-12 * got.squared_norm
    assert gap[-1] <= got.shrinkage


def test_a_bad_value_is_named_by_row_and_column(in_panels):
    X = words()
    X.data[X.indptr[700]] = np.inf
    column = X.indices[X.indptr[700]]
    with pytest.raises(NotFinite, match=rf"row 700, column {column}\b"):
        summarize(X, SKETCH, client="threads", **OPTIONS)
    X.data[X.indptr[700]] = 1e200
    with pytest.raises(Exception, match=rf"row 700, column {column}\b"):
        summarize(X, SKETCH, client="threads", partition_bytes=60_000)


def test_no_process_needs_the_whole_state(monkeypatch):
    """Ten million columns: the projection of a process falls with the number of processes."""
    source = Source(open_matrix(words(100, 900)))
    wide = Source(open_matrix(sp.csr_array((100, 10_000_000))), takes_sparse=True)

    def needs(n_workers):
        engine = LocalEngine(1)
        engine.kind, engine.n_workers = "dask", n_workers
        return summary_projection(wide, FrequentDirections(size=100), PassOptions(engine))[0].states

    assert needs(1) > 8 * 100 * 10_000_000
    assert needs(20) < needs(1) / 10
    engine = LocalEngine(1, memory_limit=1 << 30)
    with pytest.raises(WillNotFit, match="states"):
        summarize_source(wide, FrequentDirections(size=100), PassOptions(engine))
    assert summary_projection(source, SKETCH, serial())[1] == 1


def test_a_pass_that_does_not_fit_is_refused_before_another_reads(in_panels):
    X, bundle = words(), Bundle({"stats": ColumnStats(), "fd": SKETCH})
    engine = LocalEngine(1)
    source = Source(open_matrix(X), takes_sparse=True)
    least = summary_projection(source, bundle, PassOptions(engine))[0].nbytes
    seen = Killer(engine)
    engine.memory_limit = least - 1
    with pytest.raises(WillNotFit):
        summarize_source(source, bundle, PassOptions(engine, progress=seen))
    assert seen.seen == 0


@pytest.mark.slow
def test_worker_processes_have_the_same_bits_and_may_die(in_panels, engine):
    X = words()
    source = Source(open_matrix(X), prepare=("l2",))
    expected = summarize(X, SKETCH, client="serial", **OPTIONS)
    options = PassOptions(engine, partition_bytes=60_000)
    assert summarize_source(source, SKETCH, options).value == expected
    killer = Killer(engine, 3)
    slow = Source(SlowMatrix(source.matrix), prepare=("l2",))
    assert summarize_source(slow, SKETCH, options.but(progress=killer)).value == expected
    assert any("worker died" in note for note in killer.notes)


# A pass in panels goes on from the last state that is whole.


class Stop(Recorder):
    """Ends a pass after some partitions, as Ctrl-C does."""

    def __init__(self, after=0):
        super().__init__()
        self.after, self.seen = after, 0

    def advance(self, nbytes):
        self.seen += 1
        if self.seen == self.after:
            raise KeyboardInterrupt


@pytest.fixture
def saving(tmp_path):
    return Checkpoint(tmp_path / "nodes", min_bytes=0, state_ratio=0)


def sketched(X, checkpoint=None, progress=None, engine=None, description=SKETCH, prepare=("l2",), weight=None):
    weight = None if weight is None else open_vector(weight, X.shape[0], name="weight")
    source = Source(X if hasattr(X, "read_rows") else open_matrix(X), weight=weight, prepare=prepare)
    options = PassOptions(engine or LocalEngine(kind="serial"), 60_000, checkpoint, progress or Recorder())
    return summarize_source(source, description, options)


def saved_states(checkpoint):
    """Rows of every saved state, and the paths of its file and of one of its panels."""
    listed = list_nodes(checkpoint.directory)
    out = {}
    for name, path in listed.items():
        if "-" not in name:
            n_rows = decode_record(read_file(path), panels.INDEX_KIND, panels.Index, path).n_rows
            out[n_rows] = Path(path), Path(listed[f"{name}-3"])
    return dict(sorted(out.items()))


@pytest.mark.parametrize("kind", ["serial", "threads", pytest.param("workers", marks=pytest.mark.slow)])
def test_a_pass_that_was_stopped_goes_on_with_the_same_bits(in_panels, saving, kind, request):
    engine = request.getfixturevalue("engine") if kind == "workers" else LocalEngine(2, kind=kind)
    X = words()
    with pytest.raises(Interrupted, match=r"[1-6] of 6 partitions are in checkpoints; the same command goes on"):
        sketched(X, saving, Stop(4), engine)
    seen = Stop()
    again = sketched(X, saving, seen, engine)
    assert again.value == sketched(X).value
    (resuming,) = [note for note in seen.notes if "resuming" in note]
    n_saved, n_rows = map(int, re.search(r"(\d+) of 6 partitions \((\d+) of 1200 rows\)", resuming).groups())
    assert (again.stats.rows_read, again.stats.n_resumed, again.stats.n_saved) == (1200 - n_rows, 1, 6 - n_saved)
    assert seen.seen == seen.starts[0][2] == 6 - n_saved
    finished = sketched(X, saving, engine=engine)
    assert (finished.value, finished.stats.rows_read) == (again.value, 0)
    assert len(list_nodes(saving.directory)) == 2 * (1 + 7)


def test_a_selector_goes_on_in_panels(in_panels, saving):
    X = words()
    run = {"client": "serial", "partition_bytes": 60_000, "checkpoint": saving}
    with pytest.raises(Interrupted, match="3 of 6 partitions"):
        GreedySelector(5, sketch_size=12).fit(X, progress=Stop(4), **run)
    notes = Recorder()
    got = GreedySelector(5, sketch_size=12).fit(X, progress=notes, **run)
    expected = GreedySelector(5, sketch_size=12).fit(X, client="serial", partition_bytes=60_000)
    assert type(got.summary_) is PanelledDirections
    assert (got.scores_.tobytes(), got.summary_.whole()) == (expected.scores_.tobytes(), expected.summary_.whole())
    assert "3 of 6 partitions" in "".join(notes.notes)


def cut(path):
    path.write_bytes(path.read_bytes()[:-5])


def another(path):
    """The same place in the state before."""
    number = path.name.partition(".")[0].partition("-")[2]
    others = (p for p in path.parents[1].rglob("*.sks") if p != path and ("-" in p.name) == bool(number))
    path.write_bytes(next(others).read_bytes())


@pytest.mark.parametrize("damage", [flip, cut, another, Path.unlink])
@pytest.mark.parametrize("part", [0, 1], ids=["index", "panel"])
def test_damaged_states_are_named_and_the_one_before_is_used(in_panels, saving, damage, part):
    X = words()
    expected = sketched(X, saving).value
    before, last = saved_states(saving).items()
    damage(last[1][part])
    notes = Recorder()
    again = sketched(X, saving, notes)
    assert (again.value, again.stats.rows_read) == (expected, 1200 - before[0])
    is_noticed = damage is not Path.unlink or part == 1
    assert len([n for n in notes.notes if "damaged" in n and str(last[1][part]) in n]) == is_noticed
    for files in saved_states(saving).values():
        cut(files[part])
    again = sketched(X, saving, notes)
    assert (again.value, again.stats.rows_read) == (expected, 1200)
    assert len(saved_states(saving)) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"description": FrequentDirections(size=13)},
        {"prepare": ()},
        {"weight": np.linspace(1, 2, 1200)},
        {"build": ("other BLAS",)},
        {"width": 150},
        {"row": 0},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_states_of_another_pass_are_not_taken(in_panels, saving, changes, monkeypatch):
    X = words()
    sketched(X, saving)
    if build := changes.pop("build", None):
        monkeypatch.setattr(LocalEngine, "build", lambda self: build)
    if width := changes.pop("width", None):
        monkeypatch.setattr(frequent_directions, "PANEL_NBYTES", 8 * 12 * width)
    if (row := changes.pop("row", None)) is not None:
        X.data[X.indptr[row]] += 1
    again = sketched(X, saving, **changes)
    assert (again.stats.rows_read, again.stats.n_resumed) == (1200, 0)
    assert again.value == sketched(X, **changes).value


def test_rows_appended_behind_leave_states_as_they_are(in_panels, saving):
    longer = words(1500)
    sketched(longer[:1200], saving)
    again = sketched(longer, saving)
    assert 300 <= again.stats.rows_read < 700
    assert again.value == sketched(longer).value


def test_rows_that_change_meanwhile_are_in_no_state(in_panels, saving):
    class Changing(SlowMatrix):
        in_memory, version = False, 0

        def identity(self, start, stop):
            return f"{self.version} {start}"

    matrix = Changing(open_matrix(words()))
    with pytest.raises(SourceChanged):
        sketched(matrix, saving, Meanwhile(lambda: setattr(matrix, "version", 1), 1))
    assert len(saved_states(saving)) == 1


@pytest.mark.parametrize("fails", [1, 8, 11, None])
def test_a_pass_goes_on_without_states_that_it_cannot_write(in_panels, saving, monkeypatch, fails):
    """The first panel, the file that names panels, a panel of the second state; or all files."""
    X, n_written = words(), 0
    real = location.write_atomically

    def full(path, raw, durable):
        nonlocal n_written
        n_written += 1
        if fails in (None, n_written):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(path, raw, durable=durable)

    monkeypatch.setattr(location, "write_atomically", full)
    notes = Recorder()
    got = sketched(X, saving, notes)
    assert got.value == sketched(X).value
    assert got.stats.n_saved == (0 if fails is None else 5)
    assert len([note for note in notes.notes if os.strerror(errno.ENOSPC) in note]) == 1
    names = list_nodes(saving.directory)
    assert {name.partition("-")[0] for name in names} <= names.keys(), "panels of states that are not whole are removed"
    assert sketched(X, saving).value == got.value


def test_a_state_that_another_run_removes_meanwhile_is_named(in_panels, saving):
    class Removing(Progress):
        def start(self, *arguments):
            for files in saved_states(saving).values():
                files[1].unlink()

    X = words()
    sketched(X[:700], saving)
    with pytest.raises(DamagedFile, match=r"-3\.\w+\.sks: .*run again"):
        sketched(X, saving, Removing())


def test_the_finished_pass_is_saved_where_workers_cannot_write(in_panels, saving, monkeypatch):
    monkeypatch.setattr(LocalEngine, "can_write", lambda self, directory: False)
    X, notes = words(), Recorder()
    run = {"client": "serial", "partition_bytes": 60_000, "checkpoint": saving, "progress": notes}
    GreedySelector(5, sketch_size=12).fit(X, **run)
    assert "nothing of this pass is saved" in "".join(notes.notes)
    assert list_nodes(saving.directory) == {}
    first = sketched(X, saving, notes)
    assert "only the finished pass" in "".join(notes.notes)
    again = sketched(X, saving)
    assert (again.value, again.stats.n_resumed, again.stats.rows_read) == (first.value, 1, 0)


def test_states_are_saved_by_the_rules_of_others(in_panels, tmp_path):
    """Except that they replace each other, and may so be larger than an eighth of the data."""
    X = words()
    rare = sketched(X, Checkpoint(tmp_path, min_seconds=1e9)).stats
    assert (rare.n_saved, rare.covered, rare.unsaved_seconds > 0) == (0, rare.bytes_read, True)
    one = 900 * 14 * 8
    rules = Checkpoint(tmp_path, min_bytes=10**12)
    assert rules.is_due(1, 41 * (WRITE_SECONDS[0] + one / WRITE_RATE), one, least_ratio=0)
    assert not rules.is_due(1, 39 * (WRITE_SECONDS[0] + one / WRITE_RATE), one, least_ratio=0)
    some = sketched(X, Checkpoint(tmp_path, min_bytes=rare.bytes_read // 3, state_ratio=0, min_seconds=1e9)).stats
    assert some.n_saved in (2, 3)


# Columns chosen where the panels are: as from the whole sketch, which no process puts together.


def with_copies(X):
    """Columns 7 and 500 are multiples of column 3, and column 11 is zero."""
    dense = X.toarray()
    dense[:, 7], dense[:, 500], dense[:, 11] = dense[:, 3], 2 * dense[:, 3], 0
    return as_csr(sp.csr_array(dense))


def low_rank():
    rng = np.random.default_rng(5)
    return as_csr(sp.csr_array(rng.integers(0, 3, (300, 3)) @ (sp.random_array((3, 900), density=0.3, rng=rng) > 0)))


def columns_of_one():
    """All columns of the same norm, each of one row: gains that are equal."""
    return as_csr(sp.csr_array(np.tile(np.eye(60), (4, 15))))


SELECTORS = {
    "greedy": (GreedySelector, {}),
    "greedy-without-noise": (GreedySelector, {"noise": None}),
    "pivoted-qr": (PivotedQRSelector, {}),
    "leverage": (LeverageSelector, {"choice": "sampled"}),
    "sketched-ridge": (SketchedRidgeSelector, {"combine": "l2"}),
}
MATRICES = {"words": lambda: with_copies(words()), "rank": low_rank, "ties": columns_of_one}


def never_whole(monkeypatch):
    def refuse(self):
        raise AssertionError("the sketch was put together")

    monkeypatch.setattr(PanelledDirections, "record", property(refuse))


@pytest.mark.share(5)
@every_pair("method,make,about,width", SELECTORS, MATRICES, same("mean", "zero"), same(128, 61))
def test_columns_are_chosen_in_panels_as_from_the_whole(monkeypatch, method, make, about, width):
    selector, options = method
    monkeypatch.setattr(frequent_directions, "PANELS_ABOVE_NBYTES", 1)
    monkeypatch.setattr(frequent_directions, "PANEL_NBYTES", 8 * 12 * width)
    X = make()
    if selector is LeverageSelector and make is low_rank:
        options = options | {"ridge": 1.0}  # By default it would be that of rounding, and scores known to a few digits.
    first, again = (selector(3, n_components=4, sketch_size=12, about=about, **options) for _ in range(2))
    with monkeypatch.context() as patch:
        never_whole(patch)
        first.fit(X, client="serial", partition_bytes=60_000)
    panels = first.summary_
    assert len(panels.panels.edges) == max(900 // width, 1) + 1
    whole = pickle.loads(pickle.dumps(panels))
    assert type(whole) is FrequentDirections
    for n in (3, 40):
        with monkeypatch.context() as patch:
            never_whole(patch)
            first.set_params(n_features_to_select=n).fit_summary(panels)
        again.set_params(n_features_to_select=n).fit_summary(whole)
        # What the Gram matrix of 13 rows does not know of their directions.
        rounding = (
            16 * 13 * np.finfo(float).eps * whole.squared_norm / (first.selection_.diagnostics.get("ridge") or 1e9)
        )
        np.testing.assert_allclose(first.scores_, again.scores_, rtol=1e-9, atol=rounding)
        # Other columns only where scores are equal; those of greedy and pivoted QR are ranks.
        chosen = (np.sort(again.scores_[fitted.support_]) for fitted in (first, again))
        np.testing.assert_allclose(*chosen, rtol=1e-9, atol=rounding)


@pytest.mark.parametrize("decay", [1.0, 0.4, 1e-3])
@pytest.mark.parametrize("width", [7, 64, 500])
def test_pivots_in_panels_are_those_of_qr(decay, width):
    """Distances that fall by many digits."""
    rng = np.random.default_rng(int(10 * decay))
    C = np.linalg.qr(rng.standard_normal((500, 12)))[0].T * decay ** np.arange(12)[:, None] / 3.0
    edges = [*range(0, 500, width), 500]
    panels = LocalPanels(
        [SketchPanel(C[:, a:b].T.copy(), np.zeros(b - a), np.ones(b - a)) for a, b in pairwise(edges)], edges
    )
    got = panel_pivots(panels, Factored(View("mean", 1.0), np.eye(12)), np.ones(500, bool), 12)
    whole = np.empty(12, dtype=np.int64)
    assert got == whole[: pivots(C.T.copy(), np.ones(500, bool), 12, TIE, EXHAUSTED, whole)].tolist()


@pytest.mark.parametrize("rows", ["apart", "short", "dependent", "zero"])
def test_directions_of_panels_are_singular_vectors(rows):
    rng = np.random.default_rng(1)
    R = rng.standard_normal((8, 300))
    R[3:] *= {"apart": 1.0, "short": 1e-7, "dependent": 1.0, "zero": 0.0}[rows]
    if rows == "dependent":
        R[4:] = R[:4] + 1e-6 * R[4:]
    edges = [0, 100, 101, 300]
    panels = [SketchPanel(R[:, a:b].T.copy(), np.zeros(b - a), np.ones(b - a)) for a, b in pairwise(edges)]
    directions = PanelDirections.of(LocalPanels(panels, edges), View("mean", 1.0))
    vectors = directions.apply(lambda known: known.vectors)
    s = np.linalg.svd(R, compute_uv=False)[: directions.squares.size]
    assert len(s) == (3 if rows == "zero" else 8)
    np.testing.assert_allclose(np.sqrt(directions.squares), s, rtol=1e-12, atol=1e-14)
    # T has entries of 1 / s, and so T R the rounding of that.
    rounding = 1e-14 * (s[0] / s[-1] if rows == "dependent" else 1.0)
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(len(s)), atol=rounding)
    np.testing.assert_allclose((vectors.T * directions.squares) @ vectors, R.T @ R, atol=1e-11)


def test_what_needs_the_whole_sketch_gets_it(in_panels):
    X = words()
    whole = summarize(X, SKETCH, client="serial", **OPTIONS)
    fitted = GreedySelector(5, sketch_size=12).fit(X, client="serial", partition_bytes=60_000)
    osinsky = OsinskySelector(5, sketch_size=12).fit(X, client="serial", partition_bytes=60_000)
    assert type(osinsky.summary_) is FrequentDirections
    assert type(fitted.summary_) is PanelledDirections
    assert fitted.summary_.record.rows.tobytes() == whole.record.rows.tobytes()
    both = fitted.summary_.merge(whole)
    assert (type(both), both.n_rows) == (FrequentDirections, 2400)
    assert osinsky.fit_summary(fitted.summary_).support_.size == 5


def test_a_sketch_is_saved_and_read_in_panels(in_panels, monkeypatch, tmp_path):
    X, path = words(), tmp_path / "words.sks"
    whole = summarize(X, SKETCH, client="serial", **OPTIONS)
    fitted = GreedySelector(5, sketch_size=12).fit(X, client="serial", partition_bytes=60_000)
    monkeypatch.setattr(panel_columns, "ROWS_NBYTES", 8 * 900 * 5)
    with monkeypatch.context() as patch:
        never_whole(patch)
        codec.save(fitted.summary_, path)
        assert path.read_bytes() == codec.encode(whole)
        held = []
        read = codec.load_in_panels(
            path, lambda panels, edges: held.append(LocalPanels(list(panels), edges)) or held[-1]
        )
        assert not held
        again = GreedySelector(5, sketch_size=12).fit_summary(read)
        assert again.scores_.tobytes() == fitted.scores_.tobytes()
        bound = certify_selection(read, again.support_, 4)
        read.panels.let_go()
        assert certify_selection(read, again.support_, 4) == bound
        assert len(held) == 1
        assert codec.file_digest(read) == codec.file_digest(whole)
        assert len(held) == 2
    exact = certify_selection(whole, again.support_, 4)
    assert (bound.excess, bound.lower_bound) == pytest.approx((exact.excess, exact.lower_bound), rel=1e-9)
    for damage in (flip, cut):
        codec.save(whole, path)
        damage(path)
        with pytest.raises(DamagedFile, match=r"words\.sks"):
            codec.load_in_panels(path, held.append)


def test_a_sketch_that_cannot_be_put_together_is_refused_before_the_pass(in_panels, monkeypatch):
    page = (Path(__file__).parents[2] / "notebooks/how-to/how_big.md").read_text()
    assert all(f"`{name}`" in page for name, cls in METHODS.items() if cls.selects_in_panels)
    monkeypatch.setattr(base, "available_nbytes", lambda: 40 * 900 * 12 - 1)
    seen = Killer(LocalEngine(1))
    with pytest.raises(WillNotFit, match=r"osinsky.*how_big"):
        OsinskySelector(5, sketch_size=12).fit(words(), client="serial", progress=seen)
    assert seen.seen == 0
    GreedySelector(5, sketch_size=12).fit(words(), client="serial")
    with pytest.raises(WillNotFit, match=r"collect.*\bfit\b"):
        GreedySelector(5, sketch_size=12).collect(words(), client="serial")


def test_a_fit_that_fails_leaves_what_is_known_of_the_one_before(in_panels):
    class Ended(Progress):
        def start(self, *stage):
            raise RuntimeError("ended")

    X = words()
    fitted = GreedySelector(5, sketch_size=12).fit(X, client="serial")
    with pytest.raises(SourceError):
        fitted.fit("no such file.zarr", client="serial")
    assert GreedySelector(5).fit_summary(fitted.summary_).support_.tolist() == fitted.support_.tolist()
    with pytest.raises(RuntimeError, match="ended"):
        fitted.fit(X, client="serial", progress=Ended())
    copied = pickle.loads(pickle.dumps(fitted))
    assert (copied.support_.tolist(), copied.summary_.n_rows) == (fitted.support_.tolist(), 1200)
    with pytest.raises(ClusterLost, match="fit again"):
        GreedySelector(5).fit_summary(copied.summary_)


def test_panels_have_no_places_without_workers(in_panels):
    (plan,) = plan_summary(Source(open_matrix(words())), SKETCH, serial())[1]
    graph = plan.graph(plan.tree.root, {})
    assert plan.places(graph, []) == {}
    assert len(plan.places(graph, ["a", "b"])) == 2


@pytest.mark.slow
@pytest.mark.parametrize("has_room", [True, False])
def test_a_fitted_selector_outlives_the_client_of_its_fit(in_panels, monkeypatch, has_room):
    """By the address of a scheduler the client ends with the fit; one that is given is the caller's to close."""
    from distributed import Client, LocalCluster

    X = words()
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        selector = GreedySelector(5, sketch_size=12)
        if not has_room:
            monkeypatch.setattr(base, "available_nbytes", lambda: 40 * 900 * 12 - 1)
        selector.fit(X, client=cluster.scheduler_address)
        copied = pickle.loads(pickle.dumps(selector))
        assert copied.transform(X).shape == (1200, 5)
        if has_room:
            assert GreedySelector(5).fit_summary(copied.summary_).support_.tolist() == selector.support_.tolist()
        else:
            with pytest.raises(ClusterLost, match="stays open"):
                GreedySelector(5).fit_summary(copied.summary_)
        with Client(cluster.scheduler_address) as client:
            selector.fit(X, client=client)
            assert type(selector.summary_) is PanelledDirections
            GreedySelector(5).fit_summary(selector.summary_)
    with pytest.raises(ClusterLost, match="client"):
        GreedySelector(6).fit_summary(selector.summary_)


@pytest.mark.slow
def test_selection_without_workers_ends(in_panels, monkeypatch):
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(dask_engine, "LOOK_SECONDS", 0.1)
    with dask_cluster(1, as_default=True, processes=False) as (cluster, client):
        given = DaskEngine(client, worker_timeout=1.0)
        selector = GreedySelector(5, sketch_size=12).fit(words(), client=given)
        cluster.scale(0)
        with pytest.raises(NoWorkers, match="selecting columns"):
            GreedySelector(6).fit_summary(selector.summary_)


@pytest.mark.slow
def test_columns_are_chosen_on_the_workers(in_panels, engine, monkeypatch):
    X = with_copies(words())
    expected = GreedySelector(40, sketch_size=12, n_components=4).fit(X, client="serial", partition_bytes=60_000)
    never_whole(monkeypatch)
    got = GreedySelector(40, sketch_size=12, n_components=4).fit(X, client=engine, partition_bytes=60_000)
    assert got.scores_.tobytes() == expected.scores_.tobytes()


@pytest.mark.slow
def test_panels_from_a_file_are_spread_over_the_workers(engine, monkeypatch):
    rows = np.random.default_rng(0).normal(size=(4, 250_000, 8))
    panels = [SketchPanel(part, part[:, 0].copy(), part[:, 1].copy()) for part in rows]
    held = engine.hold(iter(panels), range(0, 1_000_001, 250_000))
    assert sorted(map(len, held._groups.values())) == [2, 2]
    assert np.array_equal(np.concatenate(held.map(attrgetter("mean"))), rows[:, :, 0].ravel())
    gone = {"workers": {"tcp://127.0.0.1:9": {"nthreads": 1}}}
    monkeypatch.setattr(engine.client, "scheduler_info", lambda n_workers: gone)
    with pytest.raises(ClusterLost, match="went away"):
        engine.hold(iter(panels), held.edges)
