"""Stages as tasks, without an orchestrator: which errors are retried, days that are merged, daemons and SIGTERM."""

import importlib
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import zarr
from tests.deploy.orchestrated import (
    Reads,
    append,
    assert_guarantee,
    assert_same_bits,
    first_stage,
    rows_of,
    undisturbed,
    write_job,
    write_store,
)

from sketchselect import errors
from sketchselect.errors import BadParameter, ClusterLost, ConfigError, Interrupted, SourceError
from sketchselect.integrations.stages import (
    PERMANENT,
    STAGES,
    TRANSIENT,
    merge_days,
    orderly_termination,
    run_stage,
    select_merged,
    worth_retrying,
)
from sketchselect.summaries import load


def test_every_error_is_retried_or_not_and_exit_code_decides_where_it_says_so() -> None:
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.SketchSelectError):
            error = kind("what was wrong")
            assert worth_retrying(error) == (not isinstance(error, PERMANENT) or isinstance(error, TRANSIENT)), name
            if error.exit_code in (2, 75):
                assert worth_retrying(error) == (error.exit_code == 75), name
    assert not worth_retrying(errors.MissingChunks("gone"))
    assert worth_retrying(errors.SourceChanged("rewritten"))
    assert worth_retrying(OSError("no space"))
    # A partition that killed its worker every time is too large for it; one that failed may have met a bad disk.
    assert not worth_retrying(errors.PartitionCrash("partition 3"))
    assert worth_retrying(errors.PartitionFailed("partition 3"))


@pytest.mark.slow
def test_stages_give_the_bits_of_one_run_and_resume_after_a_loss(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Reads(lose_after=7).install(monkeypatch)
    with pytest.raises(ClusterLost):
        run_stage("summarize", job)
    seen = reads.partitions.copy()
    assert len(seen) == reads.at_loss == 7
    left = [run_stage(stage, job) for stage in STAGES]
    assert [path.name for path in left] == ["summary.sks", "selection.json", "manifest.json", "report.html"]
    # A leaf is several partitions: the one that was being read when the cluster went is read again, and no other.
    again = reads.partitions[len(seen) :]
    assert again == sorted(set(again))
    assert len(set(seen) & set(again)) < 6
    assert len(again) < 12
    assert {*seen, *again} == {40 * i for i in range(12)}
    assert first_stage(left[0].parent)["reused"]
    assert_same_bits(undisturbed(job.parent), left[0].parent)


@pytest.mark.slow
def test_appended_rows_are_all_that_is_read_and_the_bits_are_those_of_one_run(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = Reads().install(monkeypatch)
    assert run_stage("run", job).name == "manifest.json"
    assert len(reads.partitions) == 12
    append(job.parent / "rows.zarr", rows_of(2, 9))
    del reads.partitions[:]
    for stage in STAGES:
        out = run_stage(stage, job).parent
    assert sorted(reads.partitions) == [480 + 40 * i for i in range(9)]
    assert first_stage(out)["rows_read"] == 360
    assert_same_bits(undisturbed(job.parent), out)
    assert_guarantee(out / "summary.sks", np.vstack([rows_of(1, 12), rows_of(2, 9)]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "rows_read"), [(["execution.checkpoint_seconds=3600"], 840), (["execution.checkpoint_seconds=0"], 360)]
)
def test_days_too_small_for_checkpoints_are_kept_where_the_job_says_so(
    job: Path, settings: list[str], rows_read: int
) -> None:
    run_stage("summarize", job, settings)
    append(job.parent / "rows.zarr", rows_of(2, 9))
    out = run_stage("run", job, settings).parent
    assert first_stage(out)["rows_read"] == rows_read
    assert_same_bits(undisturbed(job.parent), out)


def test_report_of_a_job_without_one(job: Path) -> None:
    for stage in STAGES:
        path = run_stage(stage, job, ["output.report=false"])
    assert path.name == "manifest.json"


@pytest.mark.parametrize(("stage", "kind"), [("sumarize", BadParameter), ("select", SourceError)])
def test_wrong_or_early_stage(stage: str, kind: type[Exception], job: Path) -> None:
    with pytest.raises(kind):
        run_stage(stage, job)


def in_daemon(job: str, out: str, pipe: object) -> None:
    pipe.send(str(run_stage("summarize", job, [f"output.dir={out}"], cluster="local")))  # type: ignore[attr-defined]


@pytest.mark.slow
def test_daemonic_process_gets_threads_and_the_same_bits(job: Path) -> None:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=in_daemon, args=(str(job), "daemon", there), daemon=True)
    process.start()
    there.close()
    path = Path(here.recv())
    process.join(60)
    assert process.exitcode == 0
    assert path.read_bytes() == run_stage("summarize", job).read_bytes()


def test_sigterm_ends_a_stage_in_order_and_the_next_try_resumes(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Reads().install(monkeypatch)
    reads.each = lambda: os.kill(os.getpid(), signal.SIGTERM) if len(reads.partitions) == 9 else None
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted) as caught, orderly_termination():
        run_stage("summarize", job)
    assert caught.value.exit_code == 143
    assert worth_retrying(caught.value)
    assert signal.getsignal(signal.SIGTERM) is before
    assert len(reads.partitions) <= 10
    assert not (job.parent / "out" / ".lock").exists()
    first = len(reads.partitions)
    run_stage("summarize", job)
    assert len(reads.partitions) - first < 12


def test_sigterm_before_anything_runs() -> None:
    def killed() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)

    with pytest.raises(Interrupted), orderly_termination():
        killed()


def summarized_days(folder: Path, job: Path) -> dict[str, np.ndarray]:
    days = {"2026-03-01": rows_of(1, 12), "2026-03-02": rows_of(2, 9), "2026-03-03": rows_of(3, 7)}
    for day, rows in days.items():
        write_store(folder / "rows" / f"{day}.zarr", rows)
        where = [f'input.url="{folder}/rows/{day}.zarr"', f'output.dir="{folder}/days/{day}"']
        run_stage("summarize", job, where)
    return days


@pytest.mark.parametrize(
    "method",
    [
        {},
        {'"sketched-ridge"': '"lasso"', "n_components = 4\nsketch_size = 8\nnormalize = false": ""}
        | {'key = "x"': 'key = "x"\ntarget = "y"'},
    ],
)
def test_days_merged_agree_with_one_pass_over_all(tmp_path: Path, method: dict[str, str]) -> None:
    job = write_job(tmp_path, **method)
    days = summarized_days(tmp_path, job)
    rows = np.vstack(list(days.values()))
    merged = merge_days(tmp_path / "days")
    if not method:
        assert_guarantee(merged, rows)
    else:
        write_store(tmp_path / "rows.zarr", rows)
        one, bundle = load(run_stage("summarize", job))["moments"], load(merged)["moments"]
        target = np.asarray(zarr.open_array(tmp_path / "rows.zarr" / "y", mode="r")[:])
        for found in (one, bundle):
            np.testing.assert_allclose(found.mean, rows.astype(float).mean(0), rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(found.covariance(), np.cov(rows.astype(float).T, ddof=0), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(bundle.y_mean, [target.mean()], rtol=1e-12)
    selection = select_merged(job, merged)
    assert selection == tmp_path / "days" / "selection.json"
    assert (tmp_path / "days" / "model.json").exists() == bool(method)


def test_a_day_done_again_is_counted_once_and_later_days_can_be_left_out(tmp_path: Path) -> None:
    job = write_job(tmp_path)
    days = summarized_days(tmp_path, job)
    first = merge_days(tmp_path / "days").read_bytes()
    assert merge_days(tmp_path / "days").read_bytes() == first
    sizes = np.cumsum([len(rows) for rows in days.values()])
    for day, size in zip(days, sizes, strict=True):
        assert load(merge_days(tmp_path / "days", last=day)).n_rows == size


def test_no_day_and_a_day_twice_are_said(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="up to 2026-03-01; summarise a day"):
        merge_days(tmp_path, last="2026-03-01")
    write_store(tmp_path / "rows.zarr", rows_of(1, 3))
    job = write_job(tmp_path)
    for day in ("2026-03-01", "2026-03-02"):
        run_stage("summarize", job, [f'output.dir="{tmp_path}/days/{day}"'])
    with pytest.raises(ConfigError, match="counted twice"):
        merge_days(tmp_path / "days")


@pytest.mark.parametrize("extra", ["prefect", "airflow"])
def test_a_missing_extra_is_one_clear_line(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, extra, None)
    for name in (f"sketchselect.{extra}", f"sketchselect.integrations.{extra}"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        with pytest.raises(ModuleNotFoundError, match=rf"^sketchselect\.{extra} needs .* pip install 'sketchselect\["):
            importlib.import_module(name)
