"""Summaries as Dask graphs: what users compose with their own, and where it runs without being told."""

import json
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
from tests.passing import dask_cluster

from sketchselect.errors import BadParameter, NotFinite, SourceChanged
from sketchselect.execution import LocalEngine, open_engine, summarize
from sketchselect.execution.client import surrounding_client
from sketchselect.execution.engine import LOCAL_LEAVES
from sketchselect.readers import open_matrix
from sketchselect.summaries import Bundle, ColumnStats, FrequentDirections, Moments
from sketchselect.workflow import run

DESCRIPTION = Bundle({"fd": FrequentDirections(size=4), "mo": Moments()})


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(300, 90)) * np.linspace(1, 9, 90)


def options(X):
    return {"partition_bytes": 8 * X.shape[1] * 20, "prepare": ["l2", "standardise"]}


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_a_delayed_summary_has_the_bits_of_a_computed_one(X, tmp_path, scheduler):
    np.save(tmp_path / "x.npy", X)
    expected = summarize(X, DESCRIPTION, y=X[:, 0], client="serial", **options(X))
    for source in (X, tmp_path / "x.npy", da.from_array(X, chunks=(37, 50))):
        lazy = summarize(source, DESCRIPTION, y=X[:, 0], compute=False, **options(X))
        assert dask.is_dask_collection(lazy)
        assert lazy.compute(scheduler=scheduler) == expected
        assert expected.prepare == lazy.compute(scheduler=scheduler).prepare


def test_delayed_summaries_compose(X):
    first, second = (summarize(rows, Moments(), compute=False) for rows in (X[:120], X[120:]))
    merged = first.merge(second)
    n_rows, covariance, total = dask.compute(merged.n_rows, merged.covariance(), da.from_array(X).sum())
    assert n_rows == 300
    assert np.allclose(covariance, np.cov(X.T, ddof=0), rtol=1e-12)
    assert np.isclose(total, X.sum())


def test_wide_moments_are_delayed_in_panels(X, monkeypatch):
    monkeypatch.setattr("sketchselect.summaries.moment_panels.PANELS_ABOVE", 30)
    monkeypatch.setattr("sketchselect.summaries.moment_panels.PANEL_NBYTES", 8 * 20 * 90)
    description = Bundle({"mo": Moments(), "stats": ColumnStats()})
    expected = summarize(X, description, client="serial")
    assert summarize(X, description, compute=False).compute() == expected


def test_dask_arrays_are_not_computed_when_the_graph_is_made(X):
    def refuse(block):
        raise AssertionError("computed")

    rows = da.from_array(X, chunks=(50, 90)).map_blocks(refuse, dtype=X.dtype, meta=np.empty((0, 0)))
    lazy = summarize(rows, Moments(), y=rows[:, 0], compute=False)
    with pytest.raises(AssertionError, match="computed"):
        lazy.compute()


def test_errors_of_a_delayed_summary_name_the_place(X):
    X[57, 3] = np.nan
    with pytest.raises(NotFinite, match="row 57, column 3"):
        summarize(X, Moments(), compute=False).compute()


def test_a_source_rewritten_before_it_is_read_is_noticed(X, tmp_path):
    np.save(tmp_path / "x.npy", X)
    lazy = summarize(tmp_path / "x.npy", Moments(), compute=False)
    np.save(tmp_path / "x.npy", X + 1)
    with pytest.raises(SourceChanged, match="rewritten"):
        lazy.compute()


def test_equal_calls_have_equal_keys(X, tmp_path):
    np.save(tmp_path / "x.npy", X)
    for source in (X, tmp_path / "x.npy", da.from_array(X, chunks=(90, 20))):
        first, again = (summarize(source, Moments(), prepare=["standardise"], compute=False) for _ in range(2))
        assert dict(first.__dask_graph__()).keys() == dict(again.__dask_graph__()).keys()
        other = summarize(source, Moments(), compute=False, start=5)
        assert other.key != summarize(source, Moments(), compute=False).key


@pytest.mark.parametrize("wrong", [{"client": "threads"}, {"progress": True}, {"checkpoint": "nodes"}])
def test_what_has_no_effect_on_a_graph_is_refused(X, wrong):
    with pytest.raises(BadParameter, match="compute=False"):
        summarize(X, Moments(), compute=False, **wrong)


def test_a_large_tree_is_computed_subtree_by_subtree(tiny, monkeypatch):
    from tests.execution.on_dask import join, rows_of, run

    monkeypatch.setattr("sketchselect.execution.engine.LOCAL_LEAVES", 16)
    expected = [(start, start + 10) for start in range(0, 2000, 10)]
    for engine in (LocalEngine(kind="serial"), LocalEngine(2)):
        reduced = run(tiny(2000), engine, leaf=rows_of, merge=join)
        assert reduced.value == expected
        assert reduced.stats.n_tasks == 200 + 25 + 3 + 1, (
            "the last node of the second level has one child, and is that child"
        )
        assert reduced.stats.rows_read == 2000
    assert LOCAL_LEAVES > 16


# --- where it runs -----------------------------------------------------------------------------------------------


def kind_for(source):
    with open_engine(None, open_matrix(source)) as engine:
        return engine.kind


@pytest.mark.slow
def test_the_surrounding_client_is_taken_for_what_is_not_in_this_process(X, tmp_path):
    np.save(tmp_path / "x.npy", X)
    lazy = da.from_array(X, chunks=(50, 90))
    assert surrounding_client() is None
    assert kind_for(lazy) == kind_for(tmp_path / "x.npy") == kind_for(X) == "threads"
    with dask_cluster(1, as_default=True, threads=2) as (_, client):
        assert kind_for(lazy) == kind_for(tmp_path / "x.npy") == "dask"
        assert kind_for(X) == "threads"
        expected = summarize(X, DESCRIPTION, **options(X))
        assert summarize(lazy, DESCRIPTION, **options(X)) == expected
        assert client.status == "running"
        assert summarize(lazy, DESCRIPTION, compute=False, **options(X)).compute() == expected
        inside = client.submit(lambda: summarize(lazy, DESCRIPTION, **options(X)))
        assert inside.result() == expected, "a task of a worker runs its own passes in threads"


@pytest.mark.slow
def test_persisted_arrays_are_computed_where_they_are(X, tmp_path):
    file = str(tmp_path / "scheduler.json")
    with dask_cluster(1, threads=2) as (cluster, client):
        expected = summarize(X, DESCRIPTION, **options(X))
        rows = client.persist(da.from_array(X, chunks=(50, 90)))
        assert kind_for(rows) == "dask"
        assert summarize(rows, DESCRIPTION, **options(X)) == expected
        assert summarize(X, DESCRIPTION, client=cluster, **options(X)) == expected
        Path(file).write_text(json.dumps({"address": cluster.scheduler_address}))
        assert summarize(X, DESCRIPTION, client=file, **options(X)) == expected
        job = {"input": {"url": str(tmp_path / "x.npy")}, "select": {"method": "variance", "n_features": 3}}
        np.save(tmp_path / "x.npy", X)
        result = run({**job, "execution": {"cluster": file}, "output": {"dir": str(tmp_path / "out")}})
        assert result.manifest["engine"]["kind"] == "dask"
        assert cluster.status.name == "running"


def test_a_scheduler_file_that_is_none_is_named(tmp_path):
    (tmp_path / "no.json").write_text("{}")
    for name in ("no.json", "absent.json"):
        with pytest.raises(Exception, match=rf"{name}: not the scheduler file"), open_engine(tmp_path / name):
            pass
