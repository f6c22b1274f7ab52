"""`prepare.steps = "auto"` in a job: decided on a sample, stated, the same for new rows, refused where it cannot be."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import normalized_mutual_info_score
from tests.cluster.data import documents as documents_of_topics

import sketchselect as sks
from sketchselect import workflow
from sketchselect.errors import BadBlock, ConfigError
from sketchselect.job.load import load_job
from sketchselect.workflow.plan.forecast import forecast_job
from sketchselect.workflow.verify import verify_run

from .commands import works


@pytest.fixture(scope="module")
def documents() -> tuple[Any, np.ndarray]:
    """Return counts of 500 documents of six topics and of very different lengths, and the topics."""
    counts, labels = documents_of_topics(500, n_columns=300)
    return sparse.csr_matrix(counts), labels


@pytest.fixture
def text_job(documents: tuple[Any, np.ndarray], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    sparse.save_npz(tmp_path / "words.npz", documents[0])

    def build(**sections: dict[str, Any]) -> dict[str, Any]:
        whole: dict[str, Any] = {
            "input": {"url": str(tmp_path / "words.npz")},
            "prepare": {"steps": "auto"},
            "select": {"method": "greedy", "n_features": 60},
            "cluster": {"n_clusters": 6},
            "execution": {"cluster": "serial"},
            "output": {"dir": str(tmp_path / "out"), "report": False},
        }
        return whole | {name: whole.get(name, {}) | changes for name, changes in sections.items()}

    return build


def test_the_preparation_that_predicts_best_is_taken_and_stated(text_job: Any, documents: Any) -> None:
    result = sks.run(text_job())
    compared = result.manifest["preparations"]
    alone = sks.cluster.compare_preparations(documents[0], 6, client="serial")
    assert tuple(compared["steps"]) == alone.best.steps
    assert result.manifest["job"]["prepare"]["steps"] == compared["steps"]
    assert [label.split("#")[0] for label in result.manifest["prepare"]] == compared["steps"]
    assert any(compared["sentence"] in note for note in result.manifest["notes"])
    listed = sks.run(text_job(prepare={"steps": compared["steps"]}, output={"dir": str(result.folder) + "-2"}))
    for name in ("selection.json", "labels.csv", "scores.csv"):
        a, b = result.folder / name, listed.folder / name
        assert a.exists() == b.exists()
        assert not a.exists() or a.read_bytes() == b.read_bytes()
    raw = sks.run(text_job(prepare={"steps": []}, output={"dir": str(result.folder) + "-3"}))
    agreement = [normalized_mutual_info_score(documents[1], r.labels) for r in (result, raw)]
    assert agreement[0] > agreement[1] + 0.2


def test_engines_stages_and_a_second_run_give_the_same(text_job: Any, tmp_path: Path) -> None:
    once = sks.run(text_job())
    again = sks.run(text_job())
    assert [s["reused"] for s in again.manifest["stages"] if s["name"] == "choose preparation"] == [True]
    assert again.manifest["preparations"] == once.manifest["preparations"]
    staged = text_job(output={"dir": str(tmp_path / "staged")}, execution={"cluster": "threads"})
    workflow.summarize(staged)
    workflow.select(staged)
    result = workflow.cluster(staged)
    assert result.manifest["preparations"] == once.manifest["preparations"]
    assert (once.folder / "selection.json").read_bytes() == (result.folder / "selection.json").read_bytes()
    assert np.array_equal(once.labels, result.labels)
    assert all(check.holds is not False for check in verify_run(once.folder))


def test_a_later_stage_takes_the_preparation_of_the_summary(text_job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    workflow.summarize(text_job())
    once = workflow.cluster(text_job()) if workflow.select(text_job()) else None
    # As of a server that states no versions: what was chosen before is not known to be of these rows.
    folder = text_job()["output"]["dir"] + "-2"
    monkeypatch.setattr("sketchselect.workflow.session.Session.source_fingerprint", lambda *_, **__: None)
    job = text_job(output={"dir": folder})
    workflow.summarize(job)
    monkeypatch.setattr("sketchselect.workflow.stages.columns.preparations_of_source", None)
    assert once is not None
    assert workflow.select(job).read_bytes() == (once.folder / "selection.json").read_bytes()


def test_what_the_comparison_doubts_is_noted_at_every_run(text_job: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sparse.save_npz(tmp_path / "flat.npz", sparse.csr_matrix(rng.multinomial(50, np.full(40, 1 / 40), size=200)))
    job = text_job(input={"url": str(tmp_path / "flat.npz")}, select={"n_features": 5}, cluster={"n_clusters": 3})
    for _ in range(2):
        notes = sks.run(job).manifest["notes"]
        assert sum("the counts show no clusters" in note for note in notes) == 1


def test_new_rows_are_prepared_in_the_same_way(text_job: Any, documents: Any, tmp_path: Path) -> None:
    result = sks.run(text_job(input={"url": str(tmp_path / "words.npz")}))
    sparse.save_npz(tmp_path / "new.npz", documents[0][:100])
    works("assign", result.folder, tmp_path / "new.npz", "-o", tmp_path / "new.csv", "--scheduler", "serial")
    labels = np.loadtxt(tmp_path / "new.csv", delimiter=",", skiprows=1, usecols=1, dtype=int)
    assert np.array_equal(labels, result.labels[:100])


def test_a_plan_states_the_costliest_preparation(text_job: Any) -> None:
    plan = forecast_job(load_job(text_job()), calibrate=False)
    assert [p.name for p in plan.passes][:1] == ["preparations: sample"]
    assert any("pearson-residuals" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"prepare": {"steps": "auto", "rows": ["l2"]}}, "prepare.steps.*cannot be combined"),
        ({"prepare": {"steps": "auto", "fitted": "prepare.sks"}}, "prepare.fitted.*not known yet"),
        ({"prepare": {"steps": "automatic"}}, 'prepare.steps.*or "auto"'),
        ({"select": {"method": "hvg", "n_features": 10}}, "prepare.steps.*hvg takes counts as they are"),
        ({"select": {"method": "lasso"}, "input": {"target": "y.npy"}}, "prepare.steps.*lasso learns from a target"),
    ],
)
def test_what_cannot_be_decided_is_refused(text_job: Any, sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_job(text_job(**sections))
    job = text_job()
    del job["cluster"]
    with pytest.raises(ConfigError, match=r"prepare\.steps.*needs \[cluster\]"):
        load_job(job)


def test_rows_that_are_no_counts_are_refused_by_row_and_column(text_job: Any, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).poisson(3.0, (50, 5)).astype(float)
    rows[4, 2] = 0.25
    np.save(tmp_path / "rows.npy", rows)
    job = text_job(input={"url": str(tmp_path / "rows.npy")}, select={"n_features": 2}, cluster={"n_clusters": 2})
    with pytest.raises(BadBlock, match=r"row 4, column 2: 0\.25 is not a count"):
        sks.run(job)


@pytest.mark.filterwarnings("default:.*had statistics of other rows")
def test_steps_fitted_anew_for_a_selection_of_other_rows_are_warned_of(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, scale in (("all", 1.0), ("site", 3.0)):
        np.save(tmp_path / f"{name}.npy", scale * rng.standard_normal((60, 4)))
    whole = {"input": {"url": str(tmp_path / "all.npy")}, "prepare": {"steps": ["standardise"]}}
    whole |= {"select": {"method": "variance", "n_features": 2}, "output": {"dir": str(tmp_path / "run")}}
    folder = sks.run(whole).folder
    words = ("cluster", tmp_path / "site.npy", "--selection", folder / "selection.json", "--n-clusters", 2, "-o")
    own = works(*words, tmp_path / "own", "--prepare", "standardise").output
    assert "'standardise' of the selection had statistics of other rows" in own
    assert "--fitted" in own
    same = works(*words, tmp_path / "same", "--prepare", "standardise", "--fitted", folder / "prepare.sks").output
    assert "other rows" not in same + works(*words, tmp_path / "default").output
