"""Whole jobs in this process, against NumPy and scikit-learn."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from sklearn.metrics import normalized_mutual_info_score

import sketchselect as sks
from sketchselect import workflow
from sketchselect.errors import (
    BadParameter,
    ConfigError,
    DamagedFile,
    NotFinite,
    SketchSelectError,
    SourceChanged,
    SourceError,
)
from sketchselect.execution import SerialEngine, local_cluster
from sketchselect.selectors import Selection
from sketchselect.workflow import tables
from sketchselect.workflow.features import sample_rows

Job = Callable[..., dict[str, Any]]


class Diary:
    """Keeps what a progress is told."""

    def __init__(self) -> None:
        self.passes: list[str] = []
        self.notes: list[str] = []

    def start(self, stage: str, total_bytes: int, n_partitions: int) -> None:
        self.passes.append(stage)

    def advance(self, nbytes: int) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)

    def finish(self, stage: str) -> None:
        pass


def unit(rows: np.ndarray) -> np.ndarray:
    rows = rows.astype(np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def scatter(rows: np.ndarray, labels: np.ndarray) -> float:
    return sum(float(((rows[labels == j] - rows[labels == j].mean(0)) ** 2).sum()) for j in np.unique(labels))


def test_every_output_is_what_it_says(job: Job, rows: np.ndarray, tmp_path: Path) -> None:
    truth = np.arange(300) % 3
    np.save(tmp_path / "truth.npy", truth)
    result = sks.run(
        job(
            input={"labels": str(tmp_path / "truth.npy")},
            cluster={"compare_all_columns": True},
            output={"report": True, "image_shape": [3, 4]},
        )
    )
    out = tmp_path / "out"
    assert result.folder == out
    prepared, support = unit(rows), result.selection.support
    assert len(support) == 5

    features: Any = zarr.open_array(str(out / "features.zarr"), mode="r")
    assert features.dtype == np.float32
    assert np.abs(features[:] - prepared[:, support]).max() < 1e-6

    labels = np.asarray(zarr.open_array(str(out / "labels.zarr"), mode="r")[:])
    assert labels.tolist() == result.labels.tolist()
    centers = np.asarray(zarr.open_array(str(out / "centers.zarr"), mode="r")[:])
    for j in range(3):
        assert centers[j] == pytest.approx(features[:][labels == j].mean(0), abs=1e-5)
    assert result.inertia == pytest.approx(scatter(prepared[:, support], labels), rel=1e-5)
    assert result.objective == pytest.approx(scatter(prepared, labels), rel=1e-5)
    assert result.nmi == pytest.approx(normalized_mutual_info_score(truth, labels), abs=1e-12)
    assert result.nmi_all_columns == pytest.approx(1.0)

    centred = prepared - prepared.mean(0)
    bound = (np.linalg.svd(centred, compute_uv=False)[2:] ** 2).sum()
    spectral, drop = result.certificates
    assert spectral.factor == pytest.approx(result.objective / bound, rel=1e-5)
    dropped = np.setdiff1d(np.arange(12), support)
    assert drop.objective == pytest.approx(result.inertia + (centred[:, dropped] ** 2).sum(), rel=1e-5)
    assert result.certificate is spectral

    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["objective"] == result.objective
    assert manifest["clustering"]["cluster_sizes"] == np.bincount(labels).tolist()
    assert manifest["agreement"]["nmi"] == result.nmi
    assert manifest["source"]["shape"] == [300, 12]
    assert set(manifest["files"]) == {p.name for p in out.iterdir()} - {"checkpoints", ".sketchselect", ".lock.guard"}
    assert sks.load(out / "summary.sks").n_rows == 300

    chosen = json.loads((out / "selection.json").read_text())
    assert {"method", "support", "scores", "weights", "feature_names", "parameters"} <= chosen.keys()
    assert chosen["support"] == support.tolist()
    with (out / "scores.csv").open() as stream:
        table = list(csv.DictReader(stream))
    assert [int(line["column"]) for line in table if line["selected"] == "1"] == [
        int(j) for j in np.argsort(-result.selection.scores, kind="stable")[:5]
    ]
    assert "<svg" in (out / "report.html").read_text()

    text = result.summary()
    assert "selected 5 of 12 columns" in text
    assert f"{result.nmi:.3f} on the selected columns; on all columns: 1.000" in text
    assert spectral.sentence() in text
    assert str(out / "report.html") in text


def test_selection_has_the_same_bytes_on_every_engine(job: Job, tmp_path: Path) -> None:
    found = set()
    with local_cluster(2) as dask:
        for name, client in (("a", SerialEngine()), ("b", "threads"), ("c", dask), ("d", SerialEngine())):
            result = sks.run(job(output={"dir": str(tmp_path / name)}), client=client)
            centers = np.asarray(result.centers).tobytes()
            features = np.asarray(zarr.open_array(str(tmp_path / name / "features.zarr"), mode="r")[:]).tobytes()
            sums = (tmp_path / name / "summary.sks").read_bytes()
            selection = (tmp_path / name / "selection.json").read_bytes()
            found.add((selection, sums, centers, features, result.labels.tobytes(), result.objective))
    assert len(found) == 1


def test_a_second_run_repeats_nothing(job: Job, tmp_path: Path) -> None:
    first = sks.run(job())
    files = {n: (tmp_path / "out" / n).read_bytes() for n in ("selection.json", "summary.sks", "scores.csv")}
    diary = Diary()
    again = sks.run(job(), progress=diary)
    assert diary.passes == ["objective"], "only the pass that nothing keeps is read again"
    assert [s["name"] for s in again.manifest["stages"] if s["reused"]] == ["summarize", "write features", "k-means"]
    assert (again.labels == first.labels).all()
    assert (again.objective, again.inertia) == (first.objective, first.inertia)
    assert {n: (tmp_path / "out" / n).read_bytes() for n in files} == files


@pytest.mark.parametrize(
    ("section", "change", "redone"),
    [
        ("cluster", {"random_state": 1}, {"write features", "k-means"}),
        ("cluster", {"n_clusters": 2}, {"k-means"}),
        ("select", {"n_features": 4}, {"write features", "k-means"}),
        ("select", {"alpha": "paper", "n_features": 12}, {"write features", "k-means"}),
        ("select", {"sketch_size": 5}, {"summarize", "write features", "k-means"}),
        ("prepare", {"rows": ["l2"]}, set()),
        ("execution", {"partition_bytes": "8KiB"}, {"summarize", "write features", "k-means"}),
        ("output", {"report": True}, set()),
    ],
)
def test_what_changed_is_done_anew_and_what_did_not_is_not(
    job: Job, section: str, change: dict[str, Any], redone: set[str]
) -> None:
    sks.run(job())
    diary = Diary()
    result = sks.run(job(**{section: change}), progress=diary)
    kept = {"summarize", "write features", "k-means"}
    assert {s["name"] for s in result.manifest["stages"] if s["name"] in kept and not s["reused"]} == redone
    fresh = sks.run(job(**{section: change}), fresh=True)
    assert (fresh.labels == result.labels).all()
    assert fresh.objective == result.objective


def test_changed_rows_are_read_again(job: Job, store: Path) -> None:
    before = sks.run(job())
    array: Any = zarr.open_array(str(store), mode="r+")
    array[40:60] = array[40:60] + 1.0
    diary = Diary()
    after = sks.run(job(), progress=diary)
    assert "summarize" in diary.passes
    assert any("changed since the last run here: source" in note for note in diary.notes)
    assert after.objective != before.objective


def test_damaged_results_of_an_earlier_run_are_made_again(job: Job, tmp_path: Path) -> None:
    first = sks.run(job())
    summary = tmp_path / "out" / "summary.sks"
    good = summary.read_bytes()
    summary.write_bytes(good[:-1])
    shutil.rmtree(tmp_path / "out" / "labels.zarr")
    again = sks.run(job())
    assert summary.read_bytes() == good
    assert (again.labels == first.labels).all()


def test_a_source_that_changes_during_the_job_is_not_published(
    job: Job, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sketchselect.workflow import stages

    select = stages.select

    def rewrite_then_select(*args: Any) -> Any:
        array: Any = zarr.open_array(str(store), mode="r+")
        array[0:20] = 0.5
        return select(*args)

    monkeypatch.setattr(stages, "select", rewrite_then_select)
    with pytest.raises(SourceChanged, match="rewritten while"):
        sks.run(job())
    assert not (tmp_path / "out" / "features.zarr").exists()
    assert not (tmp_path / "out" / "manifest.json").exists()
    monkeypatch.undo()
    assert sks.run(job()).manifest["stages"][0]["reused"] is False


def test_dropped_rows_have_no_cluster(job: Job, store: Path, rows: np.ndarray, tmp_path: Path) -> None:
    bad = [3, 45, 299]
    array: Any = zarr.open_array(str(store), mode="r+")
    array[bad[0], 0], array[bad[1], 11], array[bad[2], 5] = np.nan, np.inf, -np.inf
    with pytest.raises(NotFinite, match="row 3, column 0"):
        sks.run(job())
    assert not (tmp_path / "out" / "summary.sks").exists()
    result = sks.run(job(input={"nonfinite": "drop_rows"}, output={"report": True}))
    assert np.flatnonzero(result.labels < 0).tolist() == bad
    kept = np.setdiff1d(np.arange(300), bad)
    features = np.asarray(zarr.open_array(str(tmp_path / "out" / "features.zarr"), mode="r")[:])
    assert np.isnan(features[bad]).all()
    assert np.isfinite(features[kept]).all()
    assert result.objective == pytest.approx(scatter(unit(rows)[kept], result.labels[kept]), rel=1e-5)
    assert result.manifest["clustering"]["dropped_rows"] == 3
    assert json.loads((tmp_path / "out" / "report.json").read_text())["n_dropped"] == 3


def test_verbs_one_by_one_give_what_run_gives(job: Job, tmp_path: Path) -> None:
    whole = sks.run(job(output={"dir": str(tmp_path / "whole")}))
    alone = job(output={"report": True})
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


def test_integer_pixels_are_stored_exactly(job: Job, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (120, 9)).astype(np.uint8)
    np.save(tmp_path / "pixels.npy", pixels)
    result = sks.run(
        job(input={"url": str(tmp_path / "pixels.npy")}, select={"method": "variance", "n_components": None})
        | {"select": {"method": "variance", "n_features": 4}}
    )
    features: Any = zarr.open_array(str(tmp_path / "out" / "features.zarr"), mode="r")
    assert features.dtype == np.float32
    assert (features[:] == pixels[:, result.selection.support]).all()
    variances = pixels.astype(float).var(0)
    assert set(result.selection.support.tolist()) == set(np.argsort(-variances)[:4].tolist())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"select": {"n_features": 13}}, "select.n_features: 13 wanted, .* has 12 columns"),
        ({"select": {"n_components": 12, "sketch_size": 20}}, "select.n_components: must be below the 12 columns"),
        ({"cluster": {"n_clusters": 301}}, "cluster.n_clusters: 301 wanted, .* has 300 rows"),
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


def test_credentials_are_nowhere_in_the_output(job: Job, rows: np.ndarray, tmp_path: Path) -> None:
    remote = zarr.storage.FsspecStore.from_url("memory://bucket/credentials/rows.zarr")
    array = zarr.create_array(remote, shape=rows.shape, chunks=(20, 12), dtype="float32")
    array[:] = rows
    given = {"url": "memory://bucket/credentials/rows.zarr", "storage_options": {"token": "hunter2-secret"}}
    result = sks.run(job(input=given, output={"report": True}))
    assert result.manifest["job"]["input"]["storage_options"] == ["token"]
    for path in (tmp_path / "out").rglob("*"):
        if path.is_file():
            assert b"hunter2" not in path.read_bytes(), path


def test_sampled_rows_are_those_of_smallest_hash_for_any_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    from sketchselect.linalg.hashing import derive_seed, uniforms
    from sketchselect.workflow import features

    draws = uniforms(derive_seed(7, "view sample"), np.arange(5000, dtype=np.uint64))
    wanted = np.sort(np.argsort(draws)[:100]).tolist()
    for piece in (1, 99, 4096, 10_000):
        monkeypatch.setattr(features, "_HASH_PIECE", piece if piece > 1 else 37)
        assert sample_rows(5000, 7, 100).tolist() == wanted
    assert sample_rows(50, 7, 100).tolist() == list(range(50))


def test_view_is_the_projection_on_the_top_directions(job: Job, rows: np.ndarray, tmp_path: Path) -> None:
    sks.run(job(output={"report": True}))
    record = json.loads((tmp_path / "out" / "report.json").read_text())
    points = np.array(record["points"])
    prepared = unit(rows)
    centred = prepared - prepared.mean(0)
    top = np.linalg.svd(centred, full_matrices=False)[2][:2]
    expected = np.abs(centred @ top.T)
    assert np.abs(points) == pytest.approx(expected, abs=1e-5)


def selection(**changes: Any) -> Selection:
    values: dict[str, Any] = {
        "method": "variance",
        "support": np.array([1, 2]),
        "scores": np.array([np.nan, 2.0, 2.0, -np.inf]),
        "feature_names": ("=cmd|'/C calc'!A0", "@sum", "plain", "a\nb\x1b[31m"),
    }
    return Selection(**{**values, **changes})


def test_scores_table_is_safe_and_ordered() -> None:
    lines = list(csv.reader(tables.scores_csv(selection()).splitlines()))
    assert lines[0] == ["rank", "column", "name", "score", "selected"]
    assert [line[1] for line in lines[1:]] == ["1", "2", "3", "0"]
    assert [line[4] for line in lines[1:]] == ["1", "1", "0", "0"]
    assert lines[4][3] == "", "no score"
    for line in lines[1:]:
        assert line[2][0] not in "=+-@\t\r"
        assert line[2].isprintable()


def test_selection_file_round_trip_and_damage(tmp_path: Path) -> None:
    path = tmp_path / "selection.json"
    path.write_text(tables.selection_json(selection()))
    again = tables.read_selection(path)
    assert again.support.tolist() == [1, 2]
    assert np.isnan(again.scores[[0, 3]]).all()
    assert again.feature_names == selection().feature_names
    for damage in (
        "",
        "{",
        "[]",
        "3",
        "{}",
        '{"method": "x", "support": [2, 1], "scores": [1, 2, 3]}',
        '{"method": "x", "support": [], "scores": [1]}',
        '{"method": "x", "support": ["a"], "scores": [1]}',
        '{"method": "x", "support": [9], "scores": [1]}',
        '{"method": "x", "support": [0], "scores": ["a"]}',
    ):
        path.write_text(damage)
        with pytest.raises(DamagedFile, match=r"selection\.json"):
            tables.read_selection(path)
    with pytest.raises(SourceError, match="no such file"):
        tables.read_selection(tmp_path / "none.json")


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


def test_sparing_shows_slow_passes_and_not_all_fast_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    from sketchselect.workflow import engines

    now = [0.0]
    monkeypatch.setattr(engines.time, "monotonic", lambda: now[0])
    diary = Diary()
    progress = engines.Sparing(diary, every=5.0)
    for seconds in (1.0, 1.0, 1.0, 10.0, 10.0, 1.0):
        progress.start(f"at {now[0]:g}", 1, 1)
        progress.advance(1)
        progress.finish("")
        now[0] += seconds
    assert diary.passes == ["at 0", "at 13", "at 23"]


def test_one_column(job: Job, tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.r_[np.zeros(20), np.ones(20)][:, None])
    select = {"method": "variance", "n_features": 1}
    result = sks.run({**job(input={"url": str(tmp_path / "one.npy")}, cluster={"n_clusters": 2}), "select": select})
    assert result.inertia == 0
    assert len(set(result.labels[:20])) == len(set(result.labels[20:])) == 1


def test_one_certificate_is_printed(job: Job) -> None:
    result = sks.run(job())
    assert len(result.certificates) == 2
    (other,) = (one for one in result.certificates if one != result.certificate)
    assert result.summary().count(result.certificate.sentence()) == 1
    assert other.sentence() not in result.summary()
    assert len(repr(result)) < 2000


def test_a_source_that_cannot_be_read_takes_nothing_away(job: Job, rows: np.ndarray, tmp_path: Path) -> None:
    sks.run(job(output={"report": True}))
    bad = rows.copy()
    bad[7, 3] = np.nan
    np.save(tmp_path / "bad.npy", bad)
    with pytest.raises(SketchSelectError, match="row 7, column 3"):
        sks.run(job(input={"url": str(tmp_path / "bad.npy")}))
    assert {"manifest.json", "report.json", "report.html"} <= {p.name for p in (tmp_path / "out").iterdir()}


def test_labels_that_are_no_classes_are_said_to_be(job: Job, rows: np.ndarray, tmp_path: Path) -> None:
    labels = np.arange(len(rows)) % 3.0
    labels[:5] = np.nan
    np.save(tmp_path / "labels.npy", labels)
    given = job(input={"labels": str(tmp_path / "labels.npy")})
    result = sks.run(given)
    assert result.nmi == 1
    assert any("5 of 300 are NaN" in note for note in result.manifest["notes"])
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
