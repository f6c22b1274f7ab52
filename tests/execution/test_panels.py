"""Moments of wide matrices: panels put together are the moments, on every engine, and the memory is as projected."""

from __future__ import annotations

import numpy as np
import pytest
from tests.passing import serial

from sketchselect.errors import SourceChanged, WillNotFit
from sketchselect.execution import Checkpoint, LocalEngine, PassOptions, Source, summarize, summarize_source
from sketchselect.linalg.comoments import panel_edges
from sketchselect.readers import open_matrix, open_vector
from sketchselect.summaries import Bundle, ColumnStats, ComomentPanel, FrequentDirections, Moments
from sketchselect.summaries import moment_panels as tiles

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
    assert tiles.make_panels(Moments(), 8, 2) is None
    assert tiles.make_panels(Moments(), 9, 2) is not None
    assert tiles.make_panels(ColumnStats(), 100, 0) is None
    assert tiles.make_panels(Bundle(ColumnStats(), FrequentDirections(4)), 100, 0) is None


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
def test_a_cluster_gives_the_same_bits(narrow, data):
    from sketchselect.execution import local_cluster

    X, y, w = data
    expected = summarize(X, Moments(), y=y, sample_weight=w, partition_bytes=20_000, client="serial")
    with local_cluster(2) as engine:
        got = summarize(X, Moments(), y=y, sample_weight=w, partition_bytes=20_000, client=engine)
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
    with pytest.raises(WillNotFit, match="for the result"):
        summarize_source(source, Moments(), PassOptions(less, partition_bytes=20_000))


@pytest.mark.parametrize("d", [5_001, 10_000, 20_000])
def test_no_task_holds_the_whole_co_moment(d):
    plan = tiles.make_panels(Moments(), d, 1)
    whole = Moments().projected_nbytes(d, 1)
    for panel in plan.of(Moments()):
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

    class Rewrite:
        seen = 0

        def start(self, stage, total_bytes, n_partitions):
            self.seen += 1

        def advance(self, nbytes): ...

        def note(self, text): ...

        def finish(self, stage):
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
