"""`sketchselect plan` against what a run then did: the same bytes and tasks, and memory within a quarter."""

import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import zarr

import sketchselect as sks
from sketchselect.cluster import fit_kmeans
from sketchselect.execution import PassOptions, Source
from sketchselect.execution.engine import reduce_blocks
from sketchselect.execution.tasks import Reduction
from sketchselect.workflow.job import run
from sketchselect.workflow.plan.dry_run import DryRun
from sketchselect.workflow.plan.forecast import forecast_job
from sketchselect.workflow.plan.report import warnings_of

from .commands import cli, works

WITHIN = 0.25
"""What the plan promises of bytes, tasks and peak memory."""


def dense_job(folder: Path) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    store = zarr.create_array(folder / "dense.zarr", shape=(12_000, 256), chunks=(500, 256), dtype="float32")
    store[:] = (4 * rng.standard_normal((6, 256))[rng.integers(6, size=12_000)]).astype("float32")
    store[:] = store[:] + rng.standard_normal((12_000, 256)).astype("float32")
    return {
        "input": {"url": str(folder / "dense.zarr")},
        "prepare": {"rows": ["l2"]},
        "select": {"method": "greedy", "n_features": 30},
        "cluster": {"n_clusters": 6, "max_iter": 10},
        "execution": {"partition_bytes": "2MiB"},
    }


def text_job(folder: Path) -> dict[str, Any]:
    rng = np.random.default_rng(4)
    lengths = rng.integers(20, 80, size=6_000)
    frequency = 1 / np.arange(1, 1501)
    columns = rng.choice(1500, size=lengths.sum(), p=frequency / frequency.sum())
    rows = np.repeat(np.arange(6_000), lengths)
    counts = scipy.sparse.csr_array((np.ones(columns.size, "float32"), (rows, columns)), shape=(6_000, 1500))
    scipy.sparse.save_npz(folder / "text.npz", scipy.sparse.csr_matrix(counts))
    return {
        "input": {"url": str(folder / "text.npz")},
        "prepare": {"steps": ["tf-idf", "l2"]},
        "select": {"method": "variance", "n_features": 100},
        # Of a pass over blocks the calibration tries too little to measure its memory; the projection would stand in.
        "cluster": {"n_clusters": 5, "max_iter": 10, "certificate": "spectral"},
        "execution": {"partition_bytes": "512KiB"},
    }


def wide_job(folder: Path) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((6_000, 900))
    zarr.create_array(folder / "wide.zarr", data=rows, chunks=(500, 900))
    np.save(folder / "y.npy", rows[:, :10].sum(axis=1) + rng.standard_normal(6_000))
    return {
        "input": {"url": str(folder / "wide.zarr"), "target": str(folder / "y.npy")},
        "select": {"method": "lasso", "n_features": 10},
        "execution": {"partition_bytes": "8MiB"},
    }


JOBS = {"dense": dense_job, "text": text_job, "wide": wide_job}


def described(job: dict[str, Any], folder: Path, **execution: Any) -> dict[str, Any]:
    """Return the job with an output folder, and other settings of where it runs."""
    own = {"n_workers": 2} if "://" not in execution.get("cluster", "local") else {}
    where = {**own, **job["execution"], **execution}
    return {**job, "execution": where, "output": {"dir": str(folder / "out"), "report": False}}


def as_run(job: dict[str, Any], stage: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the passes that are planned of a stage, and the stage as it ran: with as many tasks and bytes."""
    planned = [one for one in forecast_job(job, calibrate=False).passes if one.stage == stage]
    (ran,) = [one for one in run(job).manifest["stages"] if one["name"] == stage]
    assert sum(one.tasks for one in planned) == ran["n_tasks"]
    assert sum(one.bytes_read for one in planned) == ran["bytes_read"]
    return planned, ran


def planned_apart(job: dict[str, Any]) -> Any:
    """Return the plan of a process of its own, as the command's: memory that other tests freed would hide a trial's."""
    code = (
        "import json, sys\nfrom sketchselect.workflow.plan.forecast import forecast_job\n"
        "print(json.dumps(forecast_job(json.load(sys.stdin)).to_dict()))"
    )
    words = [sys.executable, "-c", code]
    return json.loads(subprocess.run(words, input=json.dumps(job), capture_output=True, text=True, check=True).stdout)


@pytest.mark.share(0, 2)
@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_plan_holds_on_a_local_cluster(name: str, tmp_path: Path) -> None:
    job = described(JOBS[name](tmp_path), tmp_path)
    told = planned_apart(job)
    assert not (tmp_path / "out").exists()
    manifest = run(job).manifest
    accounted = [stage for stage in manifest["stages"] if "bytes_read" in stage]
    assert {"summarize", "write features"} <= {stage["name"] for stage in accounted}
    for stage in accounted:
        passes = [one for one in told["passes"] if one["stage"] == stage["name"]]
        # Sharper than promised: nothing is estimated here, and no worker died.
        assert sum(one["bytes_read"] for one in passes) == stage["bytes_read"], stage["name"]
        assert sum(one["tasks"] for one in passes) == stage["n_tasks"], stage["name"]
        assert max(one["projected_bytes"] for one in passes) == pytest.approx(stage["projected_nbytes"], rel=0.01)
    memory, peak = told["memory"], manifest["memory"]["peak_bytes_per_process"]
    assert peak <= memory["projected_bytes_per_worker"] < memory["limit_bytes_per_worker"]
    # Most of it is the process itself, with Python and the libraries; that is measured, too.
    assert memory["expected_bytes_per_worker"] == pytest.approx(peak, rel=WITHIN)


def test_passes_have_the_names_and_the_order_of_the_job(tmp_path: Path) -> None:
    job = described(dense_job(tmp_path), tmp_path)
    job["cluster"] |= {
        "weighted": False,
        "reassign": True,
        "certificate": {"method": "blocks", "block_rows": 40},
        "range": (2, 3),
    }
    plan = forecast_job(job, calibrate=False)
    stages = list(dict.fromkeys(one.stage for one in plan.passes))
    blocks = ["block certificate", "block certificate of the selected columns"]
    assert stages == [*("summarize", "write features", "range of clusters", "k-means", "inertia", "reassign"), *blocks]
    (iterations,) = [one for one in plan.passes if one.repeats_most > 1]
    assert (iterations.stage, iterations.repeats_most, iterations.bytes_read) == ("k-means", 10, 0)
    assert plan.total("seconds") is None
    assert plan.expected_nbytes is None


def test_rows_that_fit_nowhere_are_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sketchselect.cluster.kmeans import passes

    # The bounds that a run decides by: with these, neither this process nor a worker may hold the rows.
    monkeypatch.setattr(passes, "CACHED_SHARE", 0.0)
    monkeypatch.setattr(passes, "WORKER_SHARE", 0.0)
    job = described(dense_job(tmp_path), tmp_path, cluster="tcp://10.9.8.7:8786")
    plan = forecast_job(job, n_workers=40, calibrate=False)
    (iterations,) = [one for one in plan.passes if one.repeats_most > 1]
    assert iterations.bytes_read == 12_000 * 30 * 4
    assert plan.total("bytes_read", True) > plan.total("bytes_read", False) - 1
    text = plan.text()
    assert "read in every iteration" in text
    assert "1 partition for 40 tasks at a time; little is gained by more than 1 worker." in text
    assert "40 workers" in text
    # A single partition is merged with none, and of a brief pass nothing is gained either way.
    passes = [replace(one, state_bytes=one.partition_bytes + 1, cached=False) for one in plan.passes]
    for n_partitions, warned in ((1, False), (3, True)):
        several = replace(plan, passes=[replace(one, partitions=n_partitions) for one in passes])
        assert any("larger than the partition" in one for one in warnings_of(several)) == warned
    for seconds, warned in ((0.001, False), (10.0, True)):
        timed = replace(plan, passes=[replace(one, leaf_seconds=seconds) for one in plan.passes])
        assert any("little is gained" in one for one in warnings_of(timed)) == warned
    # Threads suit a single partition of no more than the default size, and no setting gains anything.
    threads = replace(timed, cluster=replace(plan.cluster, address="threads", kind="threads", n_workers=1, slots=2))
    for n_bytes, warned in ((350 << 10, False), (1 << 30, True)):
        sized = replace(threads, passes=[replace(one, partition_bytes=n_bytes) for one in timed.passes])
        assert any("little is gained" in one for one in warnings_of(sized)) == warned


@pytest.mark.parametrize("init", ["auto", "k-means||"])
def test_runs_that_begin_with_the_clusters_of_a_sample_are_planned(
    init: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the selected and on random columns k-means runs twice, on all columns once; by the runs that are made."""
    job = described(dense_job(tmp_path), tmp_path, cluster="threads")
    job["select"] = {"method": "auto", "n_features": 30, "methods": ["greedy"]}
    job["cluster"] |= {"compare_all_columns": True, "init": init, "certificate": "spectral"}
    plan = forecast_job(job, calibrate=False)
    widths: list[int] = []

    def counted(source: Source, *arguments: Any) -> Any:
        widths.append(source.n_columns)
        return fit_kmeans(source, *arguments)

    monkeypatch.setattr("sketchselect.workflow.stages.clustering.fit_kmeans", counted)
    run(job)
    planned = {name: [one for one in plan.passes if one.stage == name] for name in (one.stage for one in plan.passes)}
    runs = {name: sum(one.repeats_most > 1 for one in passes) for name, passes in planned.items()}
    selected, at_random = runs["k-means"], runs["k-means on random columns"]
    assert widths == [30] * selected + [256] * runs["k-means on all columns"] + [30] * at_random
    assert selected == at_random == (2 if init == "auto" else 1)
    # Each run reads its rows once, and the objective of random columns is another pass.
    (once,) = {one.bytes_read for one in planned["k-means on all columns"] if one.bytes_read}
    assert [one.bytes_read for one in planned["k-means on random columns"] if one.bytes_read] == [once] * (
        at_random + 1
    )


def test_timeline_is_planned_as_it_is_run(tmp_path: Path) -> None:
    job = described(dense_job(tmp_path), tmp_path, cluster="threads")
    del job["cluster"]
    job |= {"timeline": {"points": 5}}
    (planned,), ran = as_run(job, "timeline")
    assert planned.partitions == ran["n_partitions"]


@pytest.mark.parametrize(("method", "extra"), [("leverage", {"read": "columns"}), ("online-leverage", {})])
def test_methods_that_read_columns_are_planned_as_they_are_run(method: str, extra: dict, tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    store = zarr.create_array(tmp_path / "rows.zarr", shape=(300, 900), chunks=(300, 100), dtype="float64")
    store[:] = rng.standard_normal((300, 8)) @ rng.standard_normal((8, 900))
    job = {
        "input": {"url": str(tmp_path / "rows.zarr")},
        "select": {"method": method, "n_features": 20, **extra},
        "execution": {"cluster": "threads"},
    }
    as_run(described(job, tmp_path), "collect")


def test_very_wide_moments_are_planned_in_panels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sketchselect.summaries import moment_panels as tiles

    monkeypatch.setattr(tiles, "PANELS_ABOVE", 500)
    as_run(described(wide_job(tmp_path), tmp_path, cluster="threads"), "summarize")


def test_wide_sketches_are_planned_and_run_in_panels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sketchselect.summaries import frequent_directions

    monkeypatch.setattr(frequent_directions, "PANELS_ABOVE_NBYTES", 1)
    monkeypatch.setattr(frequent_directions, "PANEL_NBYTES", 8 * 20 * 400)
    job = text_job(tmp_path)
    job["select"] = {"method": "greedy", "n_features": 20, "sketch_size": 20, "n_components": 8}
    job = described(job, tmp_path, cluster="threads")
    sketch, tried = frequent_directions.FrequentDirections, set[int]()
    summarised = sketch._summarise

    def counted(self, block, *rest):
        tried.add(block.shape[1])
        return summarised(self, block, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(sketch, "_summarise", counted)
        timed = forecast_job(job)
    # A whole state may be more than the machine has that plans: only as many columns as a panel has are tried.
    assert tried == {1500 // 3}
    planned, _ = as_run(job, "summarize")
    assert [one.name for one in planned] == ["summarize, other members", "summarize, the sketch"]
    assert not any("co-moment" in warning for warning in timed.warnings)
    works("verify", tmp_path / "out")


@pytest.fixture(scope="module")
def job_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    rng = np.random.default_rng(8)
    store = zarr.create_array(folder / "rows.zarr", shape=(2_000, 40), chunks=(100, 40), dtype="float32")
    store[:] = rng.standard_normal((2_000, 40)).astype("float32")
    path = folder / "job.toml"
    path.write_text(
        '[input]\nurl = "rows.zarr"\n[select]\nmethod = "variance"\nn_features = 5\n'
        '[execution]\npartition_bytes = "64KiB"\n',
        encoding="utf-8",
    )
    return path


def test_json_is_complete_and_adds_up(job_file: Path) -> None:
    done = works("plan", job_file, "--json", "--no-calibrate", "--n-workers", 3)
    plan = json.loads(done.stdout)
    assert plan["format"] == 1
    assert plan["workers"] == {"kind": "dask", "n": 3, "threads_each": 1, "given": True}
    for name in ("tasks", "bytes_read", "network_bytes"):
        assert plan["totals"][name] == sum(one["repeats"] * one[name] for one in plan["passes"])
    assert plan["totals"]["seconds"] is None
    assert plan["calibration"] is None
    assert plan["source"]["shape"] == [2000, 40]
    assert not (job_file.parent / "out").exists()


def test_iterations_are_those_of_the_first_rows_and_sizes_are_stated(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = 9.0 * rng.standard_normal((3, 20))[rng.integers(3, size=3000)] + rng.standard_normal((3000, 20))
    np.save(tmp_path / "rows.npy", rows)
    job: dict[str, Any] = {
        "input": {"url": str(tmp_path / "rows.npy")},
        "select": {"method": "greedy", "n_features": 5},
    }
    job |= {"cluster": {"n_clusters": 3}, "execution": {"cluster": "serial"}}
    job["output"] = {"dir": str(tmp_path / "out"), "report": False}
    plan = forecast_job(job)
    (iterations,) = [one for one in plan.passes if one.repeats_most > 1]
    result = run(job)
    # Groups that are far apart take as many iterations whatever the number of rows.
    assert iterations.repeats == result.manifest["clustering"]["n_iter"] < 5
    told, sizes = plan.to_dict(), [(tmp_path / "out" / "features.zarr"), (tmp_path / "out" / "labels.zarr")]
    assert told["output_bytes"] == sum(zarr.open_array(path, mode="r").nbytes for path in sizes)
    memory = told["memory"]
    assert memory["limit_bytes_total"] == memory["limit_bytes_per_worker"]


def test_iterations_are_timed_on_most_of_a_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a call takes whatever its rows, counted for every 256 of them, had made 20 s of a half."""
    from sketchselect.workflow.plan import forecast

    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.standard_normal((20_000, 8)).astype(np.float32))
    n_rows = []

    def fit(source: Source, *words: Any) -> Any:
        n_rows.append(source.n_rows)
        return fit_kmeans(source, *words)

    monkeypatch.setattr(forecast, "fit_kmeans", fit)
    forecast_job(
        {
            "input": {"url": str(tmp_path / "x.npy")},
            "select": {"method": "variance", "n_features": 4},
            "cluster": {"n_clusters": 3},
            "execution": {"cluster": "serial"},
            "output": {"dir": str(tmp_path / "out")},
        }
    )
    assert min(n_rows) > 10_000


def test_columns_after_the_steps_are_stated(job_file: Path, tmp_path: Path) -> None:
    table = pd.DataFrame({"x": np.arange(60) ** 0.5, "kind": list("abc") * 20})
    table.to_parquet(tmp_path / "t.parquet")
    job = {"input": {"url": str(tmp_path / "t.parquet")}, "select": {"method": "variance", "n_features": 2}}
    job |= {"prepare": {"steps": ["one-hot"]}, "output": {"dir": str(tmp_path / "out")}}
    plan = forecast_job({**job, "execution": {"cluster": "serial"}}, calibrate=False)
    assert "60 rows x 2 columns (about 4 after the steps)" in plan.text()
    assert plan.to_dict()["prepared_columns"] == 4
    assert "after the steps" not in works("plan", job_file, "--no-calibrate").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--set", "select.n_features=41"], "41 asked for"), (["--set", "select.method=varance"], "did you mean")],
)
def test_mistakes_are_told_as_by_run(job_file: Path, words: list[str], said: str) -> None:
    done = cli("plan", job_file, *words)
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stdout == ""


def test_the_time_is_that_of_the_workers_with_its_bottleneck_and_price(job_file: Path, monkeypatch) -> None:
    from sketchselect.workflow.plan import dry_run, forecast

    def timed(call: Any) -> tuple[Any, float]:
        """A partition is read in a tenth of a second, summarised in three tenths, and merged in a thousandth."""
        names = call.__code__.co_names if hasattr(call, "__code__") else ()
        return call(), 0.1 if "_block" in names else 0.001 if "merge" in names else 0.3

    for module in (dry_run, forecast):
        monkeypatch.setattr(module, "timed", timed)
    monkeypatch.setattr(forecast, "idle_worker_nbytes", lambda: 2**28)
    one, ten, many = (forecast_job(job_file, n_workers=n, price=0.5) for n in (1, 10, 100))
    passes = [plan.to_dict()["passes"][0] for plan in (one, ten, many)]
    assert [one["seconds"] for one in passes] == sorted((one["seconds"] for one in passes), reverse=True)
    for plan, told, n in zip((one, ten, many), passes, (1, 10, 100), strict=True):
        # No schedule is faster than all work by all workers, or than one leaf.
        assert told["seconds"] >= max(0.4 * told["partitions"] / n, told["leaf_seconds"]) - 1e-6
        assert plan.cost == pytest.approx(0.5 * n * plan.seconds / 3600)
        assert plan.to_dict()["estimate"]["seconds"] == pytest.approx(plan.seconds, abs=1e-5)
        assert f"on {n} workers" in plan.text()
        assert "k-means" not in plan.text()
        assert f"bottleneck: {plan.bottleneck}" in plan.text()
    assert passes[0]["bottleneck"] == "computing"
    assert passes[2]["bottleneck"] == "partitions"


def test_no_worker_is_started_to_plan_for_one_partition(job_file: Path, monkeypatch) -> None:
    from sketchselect.workflow.plan import forecast

    measured: list[int] = []
    monkeypatch.setattr(forecast, "idle_worker_nbytes", lambda: measured.append(1) or 2**28)
    one = forecast_job(job_file, n_workers=2, overrides=["execution.partition_bytes=1GiB"])
    assert not measured
    assert {each.partitions for each in one.passes} == {1}
    assert one.seconds is not None
    assert one.expected_nbytes is None
    assert "expected" not in one.text()
    assert forecast_job(job_file, n_workers=2).idle_nbytes == 2**28


def test_the_file_of_anndata_and_the_names_in_it_are_stated(tmp_path: Path) -> None:
    store = zarr.create_array(tmp_path / "rows.zarr", shape=(20_000, 6), chunks=(5_000, 6), dtype="float32")
    store[:] = np.random.default_rng(0).standard_normal((20_000, 6))
    (tmp_path / "names.txt").write_text("".join(f"cell {i:0>60}\n" for i in range(20_000)))
    job = {
        "input": {"url": str(tmp_path / "rows.zarr")},
        "select": {"method": "variance", "n_features": 2},
        "execution": {"cluster": "threads", "n_workers": 1},
        "output": {"dir": str(tmp_path / "out")},
    }
    stated = []
    for more in ({}, {"output": {"anndata": True}}, {"input": {"row_names": str(tmp_path / "names.txt")}}):
        job |= {name: job[name] | keys for name, keys in more.items()}
        stated.append(forecast_job(job, calibrate=False).main_nbytes)
    plain, annotated, named = stated
    assert annotated - plain > 100 * 2**20
    assert 10 * 50 * 20_000 < named - annotated < 10 * 70 * 20_000


def test_no_more_memory_is_expected_than_the_bound(job_file: Path, monkeypatch) -> None:
    from sketchselect.workflow.plan import forecast

    for idle in (0, 2**27, 2**30):
        monkeypatch.setattr(forecast, "idle_worker_nbytes", lambda idle=idle: idle)
        plan = forecast_job(job_file, n_workers=2)
        assert plan.expected_nbytes is not None
        assert plan.expected_nbytes <= plan.projected_nbytes
        assert ("of it the process itself" in plan.text()) == (idle < 2**30)


def test_a_merge_that_compiles_is_timed_again(job_file: Path, monkeypatch) -> None:
    from sketchselect.workflow.plan import dry_run, forecast

    merges = iter([100.0, *[0.001] * 99])

    def timed(call: Any) -> tuple[Any, float]:
        return call(), next(merges) if "merge" in getattr(call, "__code__", timed.__code__).co_names else 0.01

    for module in (dry_run, forecast):
        monkeypatch.setattr(module, "timed", timed)
    monkeypatch.setattr(forecast, "idle_worker_nbytes", lambda: 2**28)
    seconds = forecast_job(job_file, n_workers=2).seconds
    assert seconds is not None
    assert seconds < 50


# What a dry run times of a pass: a partition, and merges of as many states as its rows make.

FEW = 16


@pytest.mark.parametrize(
    ("rows", "edges"), [(FEW, [0, 16]), (24, [0, 16, 24]), (120, [0, 16, 120]), (240, [0, 16, 32, 240])]
)
def test_states_of_different_rows_are_merged_in_order(rows: int, edges: list[int]) -> None:
    """Every second merge of two sketches shrinks, and the first does not: one alone says nothing of their mean."""
    merged: list[tuple[Any, Any]] = []

    def merge(left: Any, right: Any) -> Any:
        merged.append((left, right))
        return (left[0], right[1])

    engine = DryRun("serial", 1, seconds=1e6, rows=FEW)
    source = Source(sks.open_matrix(np.zeros((240, 10))))
    reduction = Reduction(lambda block: (block.start, block.stop), merge, "pass", state_nbytes=16)
    whole = reduce_blocks(source, reduction, PassOptions(engine, partition_bytes=rows * 10 * 8)).value
    ranges = list(pairwise(edges))
    assert merged == [((0, a), (a, b)) for a, b in ranges[1:]]
    assert whole == (0, rows)


def test_more_clusters_than_a_partition_has_rows_are_planned(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).standard_normal((200, 40)))
    plan = forecast_job(
        {
            "input": {"url": str(tmp_path / "rows.npy")},
            "select": {"method": "greedy", "n_features": 5},
            "cluster": {"n_clusters": 50},
            "execution": {"cluster": "serial", "partition_bytes": 320 * 20},
            "output": {"dir": str(tmp_path / "out"), "report": False},
        },
        calibrate=False,
    )
    assert max(p.partitions for p in plan.passes) >= 10
    assert any("k-means" in p.name for p in plan.passes)


def job_with_a_target(folder: Path, **select: Any) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((400, 12))
    np.save(folder / "rows.npy", rows)
    np.save(folder / "classes.npy", (rows[:, 0] + rng.standard_normal(400) > 0).astype(int))
    return {
        "input": {"url": str(folder / "rows.npy"), "target": str(folder / "classes.npy")},
        "select": select,
        "execution": {"cluster": "serial"},
        "output": {"dir": str(folder / "out")},
    }


def test_a_selection_that_takes_too_long_is_stopped_and_estimated(tmp_path: Path, monkeypatch) -> None:
    job = job_with_a_target(tmp_path, method="knockoffs", draws=40)
    whole = forecast_job(job)
    monkeypatch.setattr("sketchselect.workflow.plan.forecast.CALIBRATION_SECONDS", 1e-6)
    n_draws = []
    statistics = "sketchselect.selectors.supervised.knockoffs.entry_statistics"
    monkeypatch.setattr(statistics, lambda *args: n_draws.append(1) or np.ones(12))
    plan = forecast_job(job)
    assert len(n_draws) == 1
    assert plan.select_seconds is not None
    assert whole.select_seconds is not None
    assert any(line.startswith("select (client)") for line in plan.text().splitlines())
    assert plan.seconds >= plan.select_seconds
    slow = replace(whole, select_seconds=1000.0)
    assert slow.bottleneck == "selecting, in one process"


def test_iterations_that_take_too_long_are_tried_once(tmp_path: Path, monkeypatch) -> None:
    job = job_with_a_target(tmp_path, method="logistic", cv=3)
    for module in ("likelihood_path", "logistic"):
        monkeypatch.setattr(f"sketchselect.selectors.supervised.{module}.n_sampled_rows", lambda n_columns: 30)
    assert len(forecast_job(job).passes) > 5
    monkeypatch.setattr("sketchselect.workflow.plan.forecast.CALIBRATION_SECONDS", 1e-6)
    plan = forecast_job(job)
    survey, repeated = (one for one in plan.passes if one.stage == "collect")
    assert survey.repeats == 1 < repeated.repeats < repeated.repeats_most
    assert any("selecting takes too long" in note for note in plan.notes)
