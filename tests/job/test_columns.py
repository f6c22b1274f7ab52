"""Jobs whose methods weigh columns, read columns, or read the source in their own way."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from sklearn.metrics import normalized_mutual_info_score

import sketchselect as sks
from sketchselect import workflow
from sketchselect.cluster import certify_selection, least_squares_metric
from sketchselect.cluster.kmeans.passes import WeightedColumns
from sketchselect.errors import BadParameter, ConfigError, SourceError
from sketchselect.execution import Source
from sketchselect.readers import open_matrix
from sketchselect.selectors import METHODS
from sketchselect.workflow import tables
from sketchselect.workflow.verify import verify_run

from .commands import cli, works
from .oracles import scatter

Job = Callable[..., dict[str, Any]]
# Methods whose own parameters a job of 300 rows x 12 columns in 3 clusters needs.
SETTINGS: dict[str, dict[str, Any]] = {"leverage": {"n_features": 5, "choice": "sampled"}}
WEIGHTED = sorted(name for name, cls in METHODS.items() if cls.has_weights)
# Counts have jobs of their own.
UNSUPERVISED = sorted(name for name, cls in METHODS.items() if not cls.needs_target and not cls.needs_counts)


def stored(folder: Path, name: str) -> np.ndarray:
    array: Any = zarr.open_array(str(folder / name), mode="r")
    return np.asarray(array[:])


def with_method(whole: dict[str, Any], method: str, **select: Any) -> dict[str, Any]:
    return {**whole, "select": {"method": method, **SETTINGS.get(method, {"n_features": 5}), **select}}


def reused(result: Any) -> dict[str, bool]:
    return {stage["name"]: stage["reused"] for stage in result.manifest["stages"]}


@pytest.mark.share(2)
@pytest.mark.parametrize("method", UNSUPERVISED)
def test_every_method_runs_as_a_job(job: Job, rows: np.ndarray, method: str, tmp_path: Path) -> None:
    result = sks.run(with_method(job(output={"report": True}), method))
    support = result.selection.support
    # Of five draws two may be of one column.
    assert support.size == 5 or (method == "randomized" and 0 < support.size < 5)
    if result.manifest["prepare"] == []:
        assert stored(result.folder, "features.zarr") == pytest.approx(rows[:, support], abs=1e-6)
    assert result.objective >= result.certificates[0].lower_bound > 0
    assert tables.read_selection(result.folder / "selection.json").support.tolist() == support.tolist()
    assert "<svg" in (result.folder / "report.html").read_text()
    again = sks.run(with_method(job(output={"report": True}), method))
    assert (again.labels == result.labels).all()
    done = reused(again)
    assert done["summarize"] is done["write features"] is done["k-means"] is True
    assert done.get("collect", True) is True


@pytest.mark.share(2)
@pytest.mark.parametrize("method", UNSUPERVISED)
def test_every_method_works_stage_by_stage(job: Job, method: str, tmp_path: Path) -> None:
    whole = with_method(job(), method)
    workflow.summarize(whole)
    workflow.select(whole)
    staged = workflow.cluster(whole)
    at_once = sks.run({**whole, "output": {**whole["output"], "dir": str(tmp_path / "other")}})
    assert (staged.labels == at_once.labels).all()
    assert (staged.folder / "selection.json").read_bytes() == (at_once.folder / "selection.json").read_bytes()


# --- weights ---------------------------------------------------------------------------------------------------------


@pytest.mark.share(1)
@pytest.mark.parametrize("method", WEIGHTED)
def test_weighted_clusters_the_columns_of_the_theory(job: Job, rows: np.ndarray, method: str) -> None:
    result = sks.run(with_method(job(cluster={"weighted": True}), method))
    support, weights = result.selection.support, result.selection.weights
    assert weights.shape == support.shape
    assert (weights > 0).all()
    features = stored(result.folder, "features.zarr")
    assert np.abs(features - rows[:, support]).max() < 1e-6, "the columns are written as they are"
    clustering = result.manifest["clustering"]
    assert clustering["weighted"] is True
    theory = scatter(features * weights, result.labels)
    assert clustering["inertia_weighted_columns"] == pytest.approx(theory, rel=1e-5)
    assert result.inertia == pytest.approx(scatter(features, result.labels), rel=1e-5)
    assert result.objective == pytest.approx(scatter(rows, result.labels), rel=1e-5)
    direct = sks.KMeans(3, random_state=0).fit((features * weights).astype(np.float32))
    assert normalized_mutual_info_score(direct.labels_, result.labels) == pytest.approx(1.0)
    centers = stored(result.folder, "centers.zarr")
    for j in range(3):
        assert centers[j] == pytest.approx(features[result.labels == j].mean(0), abs=1e-5)
    for certificate in result.certificates:
        assert certificate.objective >= result.objective * (1 - 1e-6), certificate.method


@pytest.mark.slow
def test_both_ways_stand_side_by_side(job: Job, rows: np.ndarray, tmp_path: Path) -> None:
    truth = np.arange(300) % 3
    np.save(tmp_path / "truth.npy", truth)
    whole = with_method(
        job(
            input={"labels": str(tmp_path / "truth.npy")},
            cluster={"weighted": "both", "compare_all_columns": True},
            output={"report": True},
        ),
        "deterministic",
    )
    result = sks.run(whole)
    plain, weighted, whole_rows, _ = result.manifest["compared"]
    assert [c["columns"] for c in (plain, weighted, whole_rows)] == [
        "selected columns",
        "selected columns, weighted",
        "all columns",
    ]
    for name, found in [("unweighted", plain), ("weighted", weighted)]:
        labels = stored(result.folder, f"labels-{name}.zarr")
        assert found["objective"] == pytest.approx(scatter(rows, labels), rel=1e-5)
        assert found["nmi"] == pytest.approx(normalized_mutual_info_score(truth, labels), abs=1e-12)
    published = [c["columns"] for c in result.manifest["compared"] if c["published"]]
    better = "selected columns" if plain["objective"] <= weighted["objective"] * (1 + 1e-9) else weighted["columns"]
    assert published == [better]
    name = "labels-weighted.zarr" if "weighted" in better else "labels-unweighted.zarr"
    assert (stored(result.folder, "labels.zarr") == stored(result.folder, name)).all()
    page = (result.folder / "report.html").read_text()
    assert "Comparison of the clusterings" in page
    assert "selected columns, weighted" in page
    assert "clustered on selected columns, weighted" in result.summary()

    again = sks.run(whole)
    assert reused(again)["k-means"] is reused(again)["k-means, weighted"] is True
    one = sks.run({**whole, "cluster": {**whole["cluster"], "weighted": True}})
    assert not (one.folder / "labels-weighted.zarr").exists()
    assert "labels-weighted.zarr" not in one.manifest["files"]
    assert reused(one)["k-means, weighted"] is False
    both = sks.run(whole)
    assert (both.labels == result.labels).all()
    nothing = sks.run({k: v for k, v in whole.items() if k != "cluster"})
    assert not any((nothing.folder / f"{kind}-weighted.zarr").exists() for kind in ("labels", "centers"))


@pytest.mark.parametrize("weighted", [True, "both"])
def test_methods_without_weights_are_refused_before_anything_is_done(job: Job, weighted: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cluster\.weighted: a selection by variance has no weights"):
        sks.run(with_method(job(cluster={"weighted": weighted}), "variance"))
    assert not (tmp_path / "out").exists()


def test_a_saved_selection_keeps_its_weights(store: Path, rows: np.ndarray, tmp_path: Path) -> None:
    works("summarize", store, "-o", tmp_path / "a.sks", "--cluster", "serial")
    for method in ("deterministic", "variance"):
        chosen = tmp_path / f"{method}.json"
        works("select", tmp_path / "a.sks", "--method", method, "--n-features", 5, "-o", chosen)
    run = ["cluster", store, "--clusters", 3, "--cluster", "serial", "--weighted"]
    works(*run, "both", "-o", tmp_path / "out", "--selection", tmp_path / "deterministic.json")
    weights = np.array(json.loads((tmp_path / "deterministic.json").read_text())["weights"])
    features, labels = stored(tmp_path / "out", "features.zarr"), stored(tmp_path / "out", "labels-weighted.zarr")
    stages = json.loads((tmp_path / "out" / "manifest.json").read_text())["stages"]
    (entry,) = [s for s in stages if s["name"] == "k-means, weighted"]
    assert entry["weighted_inertia"] == pytest.approx(scatter(features * weights, labels), rel=1e-5)
    done = cli(*run, "true", "-o", tmp_path / "out2", "--selection", tmp_path / "variance.json")
    assert done.exit_code == 2
    assert "has no weights" in done.stderr
    done = cli(*run, "maybe", "-o", tmp_path / "out2", "--selection", tmp_path / "variance.json")
    assert done.exit_code == 2
    assert 'expected true, false or "both"' in done.stderr


def test_what_a_method_warns_of_is_a_note_of_the_run(job: Job, store: Path) -> None:
    array: Any = zarr.open_array(str(store), mode="r+")
    array[:, 0] = 1.0
    np.save(store.parent / "y.npy", np.ones(300))
    whole = job(input={"target": str(store.parent / "y.npy")}, cluster=None)
    result = sks.run({**whole, "select": {"method": "thresholded-ols", "n_features": 2}})
    assert any("target is constant" in note for note in result.manifest["notes"])
    assert result.selection.support.size == 0
    assert not (result.folder / "features.zarr").exists()
    with pytest.raises(ConfigError, match="selected no column, so there is nothing to cluster"):
        sks.run({**whole, "select": {"method": "thresholded-ols", "n_features": 2}, "cluster": {"n_clusters": 2}})


def test_weighted_columns_are_a_matrix(store: Path, rows: np.ndarray) -> None:
    matrix = open_matrix(str(store))
    weights = np.linspace(0.0, 2.0, 12)
    weighted = WeightedColumns(matrix, weights)
    assert weighted.read_rows(30, 95) == pytest.approx(rows[30:95] * weights, rel=1e-6)
    assert weighted.dtype == np.float32
    assert weighted.identity(0, 300) != matrix.identity(0, 300) != WeightedColumns(matrix, weights + 1).identity(0, 300)
    assert weighted.identity(0, 300) == WeightedColumns(matrix, weights.copy()).identity(0, 300)
    assert Source(weighted).block(0, 20).values.shape == (20, 12)
    for bad in (np.ones(11), -np.ones(12), np.zeros(12), np.full(12, np.nan)):
        with pytest.raises(BadParameter, match="column weights"):
            WeightedColumns(matrix, bad)


def test_clusters_in_the_least_squares_metric(job: Job, rows: np.ndarray) -> None:
    changes: dict[str, Any] = {"cluster": {"metric": "least-squares", "certificate": "blocks"}}
    result = sks.run(with_method(job(**changes, output={"report": True}), "osinsky"))
    support = result.selection.support
    metric = least_squares_metric(sks.load(result.folder / "summary.sks"), support)
    features = stored(result.folder, "features.zarr").astype(float) @ metric
    means = np.stack([features[result.labels == c].mean(axis=0) for c in range(3)])
    nearest = ((features[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert nearest.tolist() == result.labels.tolist()
    clustering = result.manifest["clustering"]
    assert clustering["metric"] == "least-squares"
    assert clustering["inertia_in_metric"] == pytest.approx(scatter(features, result.labels), rel=1e-9)
    assert stored(result.folder, "centers.zarr") @ metric == pytest.approx(means, rel=1e-6, abs=1e-6)
    selected = result.manifest["certificate_selected_columns"]
    assert selected["objective"] == clustering["inertia_in_metric"]
    assert selected["scatter"] == pytest.approx(scatter(features, np.zeros(300, int)), rel=1e-6)
    bound = json.loads((result.folder / "selection.json").read_text())["diagnostics"]["selection_bound"]
    direct = certify_selection(sks.load(result.folder / "summary.sks"), support, 3)
    assert bound["factor_least_squares"] == pytest.approx(direct.factor(1.0, "least-squares"))
    assert bound["factor"] == pytest.approx(direct.factor())
    assert result.objective <= direct.factor(selected["factor"], "least-squares") * result.objective
    page = (result.folder / "report.html").read_text()
    assert "in the least-squares metric into 3 clusters" in page
    again = sks.run(with_method(job(**changes, output={"report": True}), "osinsky"))
    assert reused(again)["k-means, least-squares"] is True
    assert verify_run(result.folder)[-1].holds is not False
    plain = sks.run(with_method(job(), "osinsky"))
    assert "metric" not in plain.manifest["clustering"]
    assert reused(plain)["k-means"] is False


def test_a_metric_of_its_own_excludes_weights(job: Job) -> None:
    with pytest.raises(ConfigError, match=r'cluster\.metric: "least-squares" has weights of its own; leave cluster\.w'):
        sks.run(with_method(job(cluster={"metric": "least-squares", "weighted": True}), "hybrid"))


# --- passes of a method's own ----------------------------------------------------------------------------------------


def test_a_partition_is_found_in_a_pass_of_its_own_and_kept(job: Job, tmp_path: Path) -> None:
    truth = tmp_path / "truth.npy"
    np.save(truth, np.arange(300) % 3)
    whole = with_method(job(), "deterministic", partition=str(truth))
    first = sks.run(whole)
    assert first.manifest["selection"]["diagnostics"]["algorithm"] == 4
    assert sks.load(first.folder / "columns.sks")["partition"].n_clusters == 3
    assert "columns.sks" in first.manifest["files"]
    assert reused(sks.run(whole))["collect"] is True
    np.save(truth, np.arange(300) // 100)
    assert reused(sks.run(whole))["collect"] is False, "the labels in the file are others now"
    other = sks.run(with_method(job(), "deterministic"))
    assert not (other.folder / "columns.sks").exists()
    assert "collect" not in reused(other)
    with pytest.raises(SourceError, match=r"partition: .*nowhere\.npy: no such file"):
        sks.run(with_method(job(output={"dir": str(tmp_path / "new")}), "deterministic", partition="nowhere.npy"))
    assert not (tmp_path / "new").exists(), "said before anything is done"
    (first.folder / "columns.sks").write_bytes(b"damage")
    assert reused(sks.run(whole))["collect"] is False


def test_columns_are_read_once_for_any_number_of_them(job: Job, store: Path, tmp_path: Path) -> None:
    whole = with_method(job(), "online-leverage", sampling_rate=3.0)
    first = sks.run(whole)
    sample = sks.load(first.folder / "columns.sks")
    assert sample.kind == "leverage-sample"
    direct = METHODS["online-leverage"](sampling_rate=3.0, n_features_to_select=5).fit(str(store))
    assert first.selection.support.tolist() == direct.support_.tolist()
    assert first.selection.weights == pytest.approx(direct.weights_, rel=1e-12)
    fewer = sks.run(with_method(job(), "online-leverage", sampling_rate=3.0, n_features=3))
    assert reused(fewer)["collect"] is True
    assert fewer.selection.support.size == 3
    assert reused(sks.run(with_method(job(), "online-leverage", sampling_rate=2.0)))["collect"] is False
    sks.run(whole)

    chosen, columns = tmp_path / "chosen.json", tmp_path / "out" / "columns.sks"
    works("select", columns, "--method", "online-leverage", "--n-features", 4, "-o", chosen)
    assert tables.read_selection(chosen).support.size == 4
    assert "12 columns of 300 values each" in cli("inspect", columns).output
    done = cli("select", columns, "--method", "online-leverage", "--n-features", 13, "-o", chosen)
    assert (done.exit_code, "13 asked for, the summary has 12 columns" in done.stderr) == (2, True)


def test_two_passes_over_columns_give_the_scores_of_numpy(job: Job, rows: np.ndarray) -> None:
    result = sks.run(with_method(job(), "leverage", read="columns", ridge=50.0, choice="top"))
    X = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
    scores = np.einsum("ij,ij->j", X, np.linalg.solve(X @ X.T + 50.0 * np.eye(300), X))
    assert result.selection.scores == pytest.approx(scores, rel=1e-6)
    (entry,) = [s for s in result.manifest["stages"] if s["name"] == "collect"]
    assert entry["bytes_read"] == 2 * rows.nbytes, "both passes are accounted for"
    assert sks.load(result.folder / "columns.sks").kind == "leverage-scores"


def test_row_steps_and_column_bands_are_told_apart_before_anything_is_read(job: Job, tmp_path: Path) -> None:
    for changes, expected in [
        ({"prepare": {"rows": ["l2"]}}, "'l2' needs whole rows"),
        ({"input": {"nonfinite": "drop_rows"}}, "drop_rows.* needs whole rows"),
    ]:
        with pytest.raises(BadParameter, match=expected):
            sks.run(with_method(job(**changes), "online-leverage"))
        assert not (tmp_path / "out").exists()


def test_a_partition_next_to_the_job_file(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    np.save(folder / "parts.npy", np.arange(300) % 3)
    (folder / "job.toml").write_text(
        f'[input]\nurl = "{store}"\n[select]\nmethod = "deterministic"\nn_features = 5\npartition = "parts.npy"\n'
        '[execution]\ncluster = "serial"\n[output]\ndir = "out"\nreport = false\n'
    )
    monkeypatch.chdir(tmp_path)
    assert sks.run(folder / "job.toml").selection.support.size == 5


def test_the_number_of_clusters_is_said_once(job: Job) -> None:
    told = sks.run(with_method(job(), "deterministic")).manifest["selection"]["parameters"]
    assert told["n_clusters"] == 3, "that of [cluster]"
    told = sks.run(with_method(job(), "deterministic", n_clusters=2)).manifest["selection"]["parameters"]
    assert told["n_clusters"] == 2
    with pytest.raises(ConfigError, match=r"select: n_features = 3 must exceed n_clusters = 3"):
        sks.run(with_method(job(), "deterministic", n_features=3))
