"""Wide sketches of sparse rows in panels of columns: the same bits on every engine, and a fraction of the memory."""

import time

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from tests.passing import serial

from sketchselect._progress import Progress
from sketchselect.errors import NotFinite, WillNotFit
from sketchselect.execution import LocalEngine, PassOptions, Source, summarize, summarize_source
from sketchselect.execution.summarize import SummaryPasses, summary_projection
from sketchselect.linalg.csr import as_csr
from sketchselect.readers import open_matrix
from sketchselect.summaries import Bundle, ColumnStats, FrequentDirections, frequent_directions

from .on_dask import Killer, SlowMatrix

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


def test_rows_of_dask_arrays_are_summarised_as_before(in_panels):
    """Tasks of the user's graph would run ahead of the shrinks, and fill the memory."""
    X = words()
    lazy = da.from_array(X.toarray(), chunks=(300, 900)).map_blocks(sp.csr_array, meta=sp.csr_array((0, 0)))
    passes = [SummaryPasses.of(Source(open_matrix(rows)), SKETCH, serial()) for rows in (lazy, X)]
    assert [one.source.is_sparse for one in passes] == [True, True]
    assert [one.plan(SKETCH).leaf_tasks for one in passes] == [1, 8 - 1]


def test_progress_is_that_of_the_sketch_and_all_of_its_time_is_counted(in_panels, monkeypatch):
    from sketchselect.execution import panels

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
