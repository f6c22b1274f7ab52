"""Running a job again: what is kept, what is done anew, and what is never published."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.passing import Recorder

import sketchselect as sks
from sketchselect.errors import SketchSelectError, SourceChanged
from sketchselect.workflow.verify import verify_run

Job = Callable[..., dict[str, Any]]


def test_a_second_run_repeats_nothing(job: Job, tmp_path: Path) -> None:
    first = sks.run(job())
    files = {n: (tmp_path / "out" / n).read_bytes() for n in ("selection.json", "summary.sks", "scores.csv")}
    diary = Recorder()
    again = sks.run(job(), progress=diary)
    assert diary.stages == ["inertia", "block certificate"], "only the passes that nothing keeps are read again"
    assert [s["name"] for s in again.manifest["stages"] if s["reused"]] == ["summarize", "write features", "k-means"]
    assert (again.labels == first.labels).all()
    assert (again.objective, again.inertia) == (first.objective, first.inertia)
    assert {n: (tmp_path / "out" / n).read_bytes() for n in files} == files


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("section", "change", "redone"),
    [
        ("cluster", {"random_state": 1}, {"write features", "k-means"}),
        ("cluster", {"n_clusters": 2}, {"k-means"}),
        ("select", {"n_features": 4}, {"write features", "k-means"}),
        ("select", {"alpha": "paper", "n_features": 12}, {"write features", "k-means"}),
        ("select", {"sketch_size": 5}, {"summarize", "write features"}),  # the same columns, so the same features
        ("prepare", {"rows": ["l2"]}, set()),
        ("execution", {"partition_bytes": "8KiB"}, {"summarize", "write features", "k-means"}),
        ("output", {"report": True}, set()),
    ],
)
def test_what_changed_is_done_anew_and_what_did_not_is_not(
    job: Job, section: str, change: dict[str, Any], redone: set[str]
) -> None:
    sks.run(job())
    diary = Recorder()
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
    diary = Recorder()
    after = sks.run(job(), progress=diary)
    assert "summarize" in diary.stages
    assert any("because this changed since the last run here: source" in note for note in diary.notes)
    assert after.objective != before.objective


def test_stages_of_different_libraries_are_said_to_be(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sketchselect.execution import LocalEngine

    assert not any("libraries" in note for note in sks.run(job()).manifest["notes"])
    other = tuple("numpy 1.0" if part.startswith("numpy") else part for part in LocalEngine().build())
    monkeypatch.setattr(LocalEngine, "build", lambda self: other)
    whole = sks.run(job(select={"n_features": 4}))
    [note] = [note for note in whole.manifest["notes"] if "different libraries" in note]
    assert f"(numpy 1.0; numpy {np.__version__})" in note
    libraries = {check["name"]: check for check in map(asdict, verify_run(tmp_path / "out"))}["libraries"]
    assert libraries["holds"] is None
    assert "several made the bits" in libraries["text"]
    assert not any("libraries" in note for note in sks.run(job(), fresh=True).manifest["notes"])


def test_a_source_that_changes_during_the_job_is_not_published(
    job: Job, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sketchselect.workflow.stages import columns as stages

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


def test_a_source_that_cannot_be_read_takes_nothing_away(job: Job, rows: np.ndarray, tmp_path: Path) -> None:
    sks.run(job(output={"report": True}))
    bad = rows.copy()
    bad[7, 3] = np.nan
    np.save(tmp_path / "bad.npy", bad)
    with pytest.raises(SketchSelectError, match="row 7, column 3"):
        sks.run(job(input={"url": str(tmp_path / "bad.npy")}))
    assert {"manifest.json", "report.json", "report.html"} <= {p.name for p in (tmp_path / "out").iterdir()}
