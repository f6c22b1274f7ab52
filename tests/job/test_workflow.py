"""Whole jobs in this process: verb by verb, and what is said of the source."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from tests.passing import Recorder

import sketchselect as sks
from sketchselect import workflow
from sketchselect._progress import METRICS_HEAD
from sketchselect.errors import BadParameter, ConfigError, SourceError
from sketchselect.execution import Source
from sketchselect.job.load import load_job
from sketchselect.prepare import resolve
from sketchselect.readers import open_matrix
from sketchselect.workflow.session import suits_threads
from sketchselect.workflow.verify import verify_run

Job = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("columns", [[], ["standardise"]], ids=["no statistics", "statistics of all rows"])
def test_verbs_one_by_one_give_what_run_gives(job: Job, tmp_path: Path, columns: list[str]) -> None:
    whole = sks.run(job(output={"dir": str(tmp_path / "whole")}, prepare={"columns": columns}))
    alone = job(output={"report": True}, prepare={"columns": columns})
    with pytest.raises(SourceError, match="`select` makes it"):
        workflow.cluster(alone, "serial")
    with pytest.raises(SourceError, match="`summarize` makes it"):
        workflow.select(alone)
    assert workflow.summarize(alone, "serial").name == "summary.sks"
    assert workflow.select(alone).read_bytes() == (tmp_path / "whole" / "selection.json").read_bytes()
    result = workflow.cluster(alone, "serial")
    assert (result.labels == whole.labels).all()
    page = workflow.report(tmp_path / "out")
    before = page.read_bytes()
    page.unlink()
    assert workflow.report(tmp_path / "out").read_bytes() == before


def test_a_job_without_clusters_only_selects(job: Job, tmp_path: Path) -> None:
    sks.run(job())
    result = sks.run(job(cluster=None, output={"report": True}))
    assert result.labels is None
    assert result.certificates == ()
    assert not (tmp_path / "out" / "labels.zarr").exists(), "labels of another selection would be misleading"
    assert (tmp_path / "out" / "report.html").exists()
    assert "selected 5 of 12" in result.summary()


@pytest.mark.parametrize("sign", "#?;")
def test_signs_of_a_url_in_the_path_of_the_output_are_part_of_its_name(job: Job, tmp_path: Path, sign: str) -> None:
    before = set(tmp_path.iterdir())
    result = sks.run(job(output={"dir": str(tmp_path / f"run{sign}1"), "features": True}))
    assert set(tmp_path.iterdir()) - before == {tmp_path / f"run{sign}1"}
    assert np.array_equal(result.labels, sks.run(job()).labels)


def test_metrics_replace_no_other_file(job: Job, tmp_path: Path) -> None:
    with_metrics = partial(job, cluster=None, input={"url": str(tmp_path / "rows.npy")})
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).standard_normal((60, 12)))
    before = (tmp_path / "rows.npy").read_bytes()
    os.symlink("nowhere", tmp_path / "link")
    (tmp_path / "other.npy").write_bytes(before)
    for name, why in {"other.npy": "there and no", "link": "there and no", "rows.npy": "in the source"}.items():
        with pytest.raises(ConfigError, match=rf"output\.metrics: .*{name} is {why}"):
            sks.run(with_metrics(output={"metrics": str(tmp_path / name)}))
    assert (tmp_path / "rows.npy").read_bytes() == before
    (tmp_path / "run.prom").touch()
    for _ in range(2):
        sks.run(with_metrics(output={"metrics": str(tmp_path / "run.prom")}))
    assert (tmp_path / "run.prom").read_bytes().startswith(METRICS_HEAD)
    (tmp_path / "run.prom").write_text("of somebody else by now")
    assert all(check.holds is not False for check in verify_run(tmp_path / "out"))  # which writes no metrics


def test_the_home_of_no_user_is_a_name_of_a_folder(job_file: Callable[..., Path], tmp_path: Path) -> None:
    path = job_file(output={"dir": "~nobody-of-this-name/out"})
    assert load_job(path).output.dir == str(tmp_path / "~nobody-of-this-name" / "out")


def test_one_column(job: Job, tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.r_[np.zeros(20), np.ones(20)][:, None])
    select = {"method": "variance", "n_features": 1}
    result = sks.run({**job(input={"url": str(tmp_path / "one.npy")}, cluster={"n_clusters": 2}), "select": select})
    assert result.inertia == 0
    assert len(set(result.labels[:20])) == len(set(result.labels[20:])) == 1


def test_one_certificate_is_printed(job: Job) -> None:
    result = sks.run(job())
    assert len(result.certificates) == 3
    assert result.summary().count(result.certificate.sentence()) == 1
    for other in (one for one in result.certificates if one != result.certificate):
        assert other.sentence() not in result.summary()
    assert len(repr(result)) < 2000


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"select": {"n_features": 13}}, "select.n_features: 13 asked for, .* has 12 columns"),
        ({"select": {"n_components": 12, "sketch_size": 20}}, "select.n_components: must be below the 12 columns"),
        ({"cluster": {"n_clusters": 301}}, "cluster.n_clusters: 301 asked for, .* has 300 rows"),
        ({"cluster": {"range": (2, 301)}}, "cluster.range: 301 asked for, .* has 300 rows"),
        ({"output": {"image_shape": [3, 5]}}, "output.image_shape: .* is 15 pixels, .* has 12 columns"),
    ],
)
def test_impossible_jobs_leave_nothing_behind(job: Job, tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as caught:
        sks.run(job(**changes))
    assert caught.value.exit_code == 2
    assert not (tmp_path / "out").exists()


def test_labels_of_another_length_are_refused_before_anything_starts(job: Job, tmp_path: Path) -> None:
    np.save(tmp_path / "y.npy", np.zeros(299))
    with pytest.raises(SourceError, match=r"299.*300|300.*299"):
        sks.run(job(input={"labels": str(tmp_path / "y.npy")}))
    assert not (tmp_path / "out").exists()


def test_labels_that_are_no_classes_are_said_to_be(job: Job, rows: np.ndarray, tmp_path: Path) -> None:
    labels = np.arange(len(rows)) % 3.0
    labels[:5] = np.nan
    np.save(tmp_path / "labels.npy", labels)
    given = job(input={"labels": str(tmp_path / "labels.npy")})
    result = sks.run(given)
    assert result.nmi == 1
    assert any("5 of 300 are missing; those rows are left out" in note for note in result.manifest["notes"])
    np.save(tmp_path / "labels.npy", np.where(np.arange(len(rows)) == 1, np.nan, np.arange(len(rows)) % 3.0))
    result = sks.run(given)
    assert any("1 of 300 is missing; that row is left out" in note for note in result.manifest["notes"])
    np.save(tmp_path / "labels.npy", np.full(len(rows), np.nan))
    result = sks.run(given)
    assert result.nmi is None
    assert any("not compared" in note for note in result.manifest["notes"])


def test_what_the_source_says_of_itself_is_passed_on(job: Job, store: Path) -> None:
    (store / "c" / "2" / "0").unlink()
    notes = sks.run(job(input={"missing_chunks": "fill"})).manifest["notes"]
    assert any("no checksum codec" in note for note in notes)
    assert any("1 of 15 chunks have no file" in note for note in notes)


def test_a_target_that_no_summary_keeps_is_said_to_be_unused(job, tmp_path, rows):
    np.save(tmp_path / "y.npy", rows[:, 0])
    content = job(input={"target": str(tmp_path / "y.npy")})
    notes = workflow.run(content).manifest["notes"]
    assert any("input.target" in note and "sketched-ridge" in note for note in notes)
    assert not any("input.target" in note for note in workflow.run(job(), fresh=True).manifest["notes"])


def test_throttled_progress_shows_slow_passes_and_not_all_fast_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    from sketchselect import _progress

    now = [0.0]
    monkeypatch.setattr(_progress.time, "monotonic", lambda: now[0])
    diary = Recorder()
    progress = _progress.ThrottledProgress(diary, every=5.0)
    for seconds in (1.0, 1.0, 1.0, 10.0, 10.0, 1.0):
        progress.start(f"at {now[0]:g}", 1, 1)
        progress.advance(1)
        progress.finish("")
        now[0] += seconds
    assert diary.stages == ["at 0", "at 13", "at 23"]


@pytest.mark.slow
def test_a_job_runs_on_an_encrypted_cluster(job: Job, tmp_path: Path) -> None:
    from distributed import LocalCluster, Security

    security = Security.temporary()
    for name in ("tls_ca_file", "tls_client_cert", "tls_client_key"):
        (tmp_path / name).write_text(getattr(security, name))
    files = {
        "tls_ca": str(tmp_path / "tls_ca_file"),
        "tls_cert": str(tmp_path / "tls_client_cert"),
        "tls_key": str(tmp_path / "tls_client_key"),
    }
    here = sks.run(job(output={"dir": str(tmp_path / "here")}))
    with LocalCluster(1, host="127.0.0.1", dashboard_address=None, security=security, protocol="tls://") as cluster:
        given = {"cluster": cluster.scheduler_address, **files}
        result = sks.run(job(execution=given))
        with pytest.raises(BadParameter, match=r"tls_key: .* is not a file"):
            sks.run(
                job(execution={**given, "tls_key": str(tmp_path / "none")}, output={"dir": str(tmp_path / "other")})
            )
    assert result.manifest["engine"]["encrypted"] is True
    assert not any("encrypted" in note for note in result.manifest["notes"])
    assert (result.labels == here.labels).all()


@pytest.mark.slow
def test_an_open_cluster_is_warned_of(job: Job, tmp_path: Path) -> None:
    from distributed import LocalCluster

    with LocalCluster(1, host="127.0.0.1", dashboard_address=None) as cluster:
        result = sks.run(job(execution={"cluster": cluster.scheduler_address}))
    assert any("neither encrypted nor authenticated" in note for note in result.manifest["notes"])


def test_threads_suit_rows_that_are_few_once_prepared() -> None:
    sparse = open_matrix(scipy.sparse.csr_array((4000, 20_000)))
    assert suits_threads(Source(sparse))
    assert not suits_threads(Source(sparse, prepare=resolve(["standardise"])))  # 640 MB
    assert suits_threads(Source(open_matrix(scipy.sparse.csr_array((2000, 20_000))), prepare=resolve(["standardise"])))
    assert not suits_threads(Source(open_matrix(scipy.sparse.csr_array((10, 100_000)))))  # its sketch is wide
    dense = open_matrix(np.zeros((100, 3)))
    assert suits_threads(Source(dense))
    assert not suits_threads(Source(dense), 480)
