"""`method = "auto"`, `n_features = "auto"` and their tolerances in a job."""

import csv
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import cluster

import sketchselect as sks
from sketchselect import workflow
from sketchselect.cluster import FewerClusters, KMeansParameters, fit_kmeans
from sketchselect.errors import ConfigError
from sketchselect.execution import LocalEngine, PassOptions, Source
from sketchselect.job.load import load_job
from sketchselect.readers import open_matrix
from sketchselect.selectors.curve import Coreset, cluster_means
from sketchselect.summaries import pick
from sketchselect.summaries.codec import load
from sketchselect.workflow.folder import unsealed
from sketchselect.workflow.verify import verify_run


def selecting(job: Any, select: dict[str, Any], **sections: Any) -> dict[str, Any]:
    return {**job(**sections), "select": select}


def test_the_number_of_columns_is_chosen_and_what_was_compared_is_shown(job: Any, tmp_path: Path) -> None:
    page = {"report": True}
    result = sks.run(selecting(job, {"method": "auto"}, output=page))
    with (tmp_path / "out" / "curve.csv").open() as file:
        table = list(csv.DictReader(file))
    chosen = [
        row
        for row in table
        if row["method"] == result.selection.method and int(row["n_features"]) == result.selection.support.size
    ]
    assert float(chosen[0]["high"]) <= 1.05
    assert {row["method"] for row in table} >= {"greedy", "variance", "pivoted-qr"}
    assert result.manifest["selection"]["diagnostics"]["curve"]["method"] == [row["method"] for row in table]
    whole = sks.run(selecting(job, {"method": "variance", "n_features": 12, "normalize": "l2"}))
    assert not (tmp_path / "out" / "curve.csv").exists()
    assert result.objective is not None
    assert whole.objective is not None
    assert result.objective <= 1.05 * whole.objective
    sks.run(selecting(job, {"method": "auto"}, output=page))
    text = (tmp_path / "out" / "report.html").read_text()
    assert "Number of columns" in text
    assert "the best of" in text
    assert "is estimated to change the inertia" in result.summary()
    assert "% of the variance that 3 clusters explain" in result.summary()
    assert "% of the variance that 3 clusters explain" in text


def test_of_one_method_the_number_alone_is_open(job: Any, rows: np.ndarray) -> None:
    job = selecting(job, {"method": "greedy", "n_features": "auto", "n_components": 3, "tolerance": 0.2})
    result = sks.run(job)
    selector = sks.AutoSelector(methods=[sks.GreedySelector(n_components=3)], n_clusters=3, tolerance=0.2).fit(rows)
    assert result.selection.method == "greedy"
    assert result.selection.parameters["n_components"] == 3
    assert result.selection.support.tolist() == selector.support_.tolist()


def test_stages_and_another_engine_give_the_same(job: Any, tmp_path: Path) -> None:
    once = sks.run(selecting(job, {"method": "auto", "n_features": 4}))
    other = selecting(job, {"method": "auto", "n_features": 4}, output={"dir": str(tmp_path / "b")})
    other["execution"] = {"cluster": "threads", "partition_bytes": "4KiB"}
    workflow.summarize(other)
    workflow.select(other)
    workflow.cluster(other)
    for name in ("selection.json", "curve.csv"):
        assert (once.folder / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert once.selection.support.size == 4


@pytest.mark.slow
def test_k_means_starts_from_the_clusters_of_sampled_rows_in_all_columns(job: Any, tmp_path: Path) -> None:
    """Three of twelve columns hold a part of what tells ten clusters apart: k-means has many optima there."""
    from_sample = []
    for seed in (3, 10):
        rng = np.random.default_rng(seed)
        X = 3.0 * rng.standard_normal((10, 12))[rng.integers(10, size=1000)] + rng.standard_normal((1000, 12))
        np.save(tmp_path / "r.npy", X)
        select = {"method": "auto", "n_features": 3, "normalize": False}
        results = {}
        for init in ("auto", "k-means||"):
            cluster = {"n_clusters": 10, "init": init, "certificate": False}
            whole = {**selecting(job, select), "input": {"url": str(tmp_path / "r.npy")}, "cluster": cluster}
            results[init] = sks.run(whole, fresh=True)
            again = {**whole, "execution": {"cluster": "threads", "partition_bytes": "8KiB"}}
            assert sks.run(again, fresh=True).labels.tolist() == results[init].labels.tolist()
        support = results["auto"].selection.support
        assert results["k-means||"].selection.support.tolist() == support.tolist()
        start = cluster_means(pick(load(results["auto"].folder / "summary.sks"), "row-sample"), 10, 0)
        alone = sks.KMeans(10, init=start[:, support]).fit(X[:, support])
        rows = Source(open_matrix(X[:, support]))
        raced = fit_kmeans(rows, KMeansParameters(10, proposal=start[:, support]), PassOptions(LocalEngine()))
        costs = [sks.kmeans_objective(X, labels, 10) for labels in (alone.labels_, raced.labels)]
        lowest = (alone.labels_, raced.labels)[int(np.argmin(costs))]
        assert lowest.tolist() == results["auto"].labels.tolist()
        other = sks.KMeans(10).fit(X[:, support])
        assert other.labels_.tolist() == results["k-means||"].labels.tolist()
        from_sample.append(costs[0] < costs[1])
    assert set(from_sample) == {False, True}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["outlier rows", "cauchy", "log-normal"])
def test_with_heavy_tails_a_job_is_as_good_as_the_best_of_ten_starts_of_scikit_learn(
    job: Any, tmp_path: Path, kind: str
) -> None:
    """A few rows decide, and a uniform sample of half of the rows misses half of them."""
    rng = np.random.default_rng(0)
    X = 4.0 * rng.standard_normal((6, 12))[rng.integers(6, size=4000)] + rng.standard_normal((4000, 12))
    if kind == "outlier rows":
        X[rng.choice(4000, 6, replace=False)] *= 1e3
    else:
        X += rng.standard_cauchy(X.shape) if kind == "cauchy" else rng.lognormal(0.0, 2.5, X.shape)
    np.save(tmp_path / "r.npy", X)
    sections = {"input": {"url": str(tmp_path / "r.npy")}, "cluster": {"n_clusters": 8, "certificate": False}}
    whole = {**selecting(job, {"method": "auto", "normalize": False}), **sections}
    whole["cluster"]["compare_all_columns"] = True
    result = sks.run(whole)
    chosen = X[:, result.selection.support]
    starts = [cluster.KMeans(8, n_init=10, random_state=0).fit(rows - rows.mean(axis=0)) for rows in (chosen, X)]
    best, best_on_all = (sks.kmeans_objective(X, start.labels_, 8) for start in starts)
    assert result.objective is not None
    assert result.objective <= 1.02 * best
    assert result.manifest["objective_all_columns"] <= 1.02 * best_on_all
    assert (result.folder / "columns.sks").exists()
    again = {**whole, "execution": {"cluster": "threads", "partition_bytes": "16KiB"}}
    assert sks.run(again, fresh=True).labels.tolist() == result.labels.tolist()


def test_a_uniform_sample_of_heavy_tails_is_not_trusted() -> None:
    """Of a summary of one pass alone, no second one can be made."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 12))
    selector = sks.AutoSelector(4, n_clusters=4, normalize=None)
    description = selector.summary_description(12)
    assert selector.further_description(description.from_block(X)) is None
    X[rng.choice(4000, 4, replace=False)] *= 1e3
    summary = description.from_block(X)
    assert selector.further_description(summary) is not None
    with pytest.warns(UserWarning, match="the estimates cannot be trusted, and their intervals are wider"):
        distrusted = selector.fit_summary(summary).curve_.points[-1]
    trusted = sks.AutoSelector(4, n_clusters=4, normalize=None).fit(X).curve_.points[-1]
    assert distrusted.high / distrusted.low > trusted.high / trusted.low


def test_a_job_clusters_its_sample_on_all_columns_once_and_each_verb_for_itself(
    job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_all, clustered = [], Coreset.clustered

    def counted(self: Coreset, columns: Any = None, *before: Any) -> Any:
        on_all.extend([None] if columns is None else [])
        return clustered(self, columns, *before)

    monkeypatch.setattr(Coreset, "clustered", counted)
    whole = selecting(job, {"method": "auto", "normalize": False})
    once = sks.run(whole)
    assert on_all == [None]
    on_all.clear()
    other = {**whole, "output": {**whole["output"], "dir": str(tmp_path / "b")}}
    workflow.summarize(other)
    workflow.select(other)
    assert on_all == [None]
    assert workflow.cluster(other).labels.tolist() == once.labels.tolist()
    assert on_all == [None, None]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_job_says_what_its_columns_cost_whoever_clusters_them_as_python_does(
    job: Any, tmp_path: Path, seed: int
) -> None:
    """The estimate is about ten starts on the columns, whichever starts the job's own run has."""
    rng = np.random.default_rng(seed)
    X = 3.0 * rng.standard_normal((10, 12))[rng.integers(10, size=1000)] + rng.standard_normal((1000, 12))
    np.save(tmp_path / "r.npy", X)
    chosen = sks.AutoSelector(n_clusters=10, normalize=None).fit(X)
    for init in ("auto", "k-means||"):
        cluster_section = {"n_clusters": 10, "certificate": False, "init": init}
        whole = selecting(job, {"method": "auto", "normalize": False}, cluster=cluster_section)
        result = sks.run({**whole, "input": {"url": str(tmp_path / "r.npy")}}, fresh=True)
        assert result.selection.support.tolist() == chosen.support_.tolist()
        assert result.selection.diagnostics["choice"] == chosen.selection_.diagnostics["choice"]
    fresh, best = (
        sks.kmeans_objective(X, cluster.KMeans(10, n_init=10, random_state=0).fit(rows).labels_, 10)
        for rows in (X[:, chosen.support_], X)
    )
    competitor = chosen.selection_.diagnostics.get("competitor", chosen.selection_.method)
    size = len(chosen.support_)
    point = next(p for p in chosen.curve_.points if (p.method, p.n_features) == (competitor, size))
    assert point.low <= fresh / best <= point.high <= 1.05


@pytest.mark.slow
def test_the_chain_is_proved_within_the_tolerance_or_it_is_said(job: Any) -> None:
    blocks = {"certificate": "blocks"}
    loose = selecting(job, {"method": "auto", "tolerance_proved": 0.5}, cluster=blocks)
    result = sks.run(loose)
    assert result.certificate.factor <= 1.5
    assert result.selection.support.size < 12
    before = (result.folder / "selection.json").read_bytes()
    assert all(check.holds is not False for check in verify_run(result.folder))
    again = sks.run(loose)
    assert (again.folder / "selection.json").read_bytes() == before


def test_out_of_reach_the_number_is_the_estimated_one_and_it_is_said(job: Any, tmp_path: Path) -> None:
    by_estimate = {"method": "auto", "tolerance": 0.1}
    never = selecting(job, {**by_estimate, "tolerance_proved": 1e-6}, cluster={"certificate": "blocks"})
    result = sks.run(never)
    other = selecting(job, by_estimate, output={"dir": str(tmp_path / "estimate")})
    assert result.selection.support.tolist() == sks.run(other).selection.support.tolist()
    assert result.selection.support.size < 12
    proved = f"the {result.selection.support.size} that `tolerance` chooses by estimate within "
    said = "no number of columns up to 12 is proved to be within 0.0001 % of the optimum"
    assert sum(said in note and proved in note for note in result.manifest["notes"]) == 1
    before = (result.folder / "selection.json").read_bytes()
    again = sks.run(never)
    assert (again.folder / "selection.json").read_bytes() == before
    assert sum(said in note for note in again.manifest["notes"]) == 1


@pytest.mark.parametrize("n_clusters", [5, 8])
def test_of_fewer_different_rows_than_clusters_the_columns_are_those_that_tell_them_apart(
    job: Any, tmp_path: Path, n_clusters: int
) -> None:
    """Five rows, many times; the first two columns together tell them apart, no other ones do."""
    rows = np.zeros((5, 12))
    rows[:, :2] = [[0, 0], [0, 3], [4, 0], [4, 3], [8, 0]]
    np.save(tmp_path / "r.npy", rows[np.random.default_rng(0).integers(5, size=300)])
    select = {"method": "auto", "normalize": False, "tolerance_proved": 0.1}
    few = {"input": {"url": str(tmp_path / "r.npy")}, "cluster": {"n_clusters": n_clusters}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewerClusters)
        result = sks.run({**selecting(job, select), **few})
    assert result.selection.support.tolist() == [0, 1]
    assert (result.objective, result.certificate.factor) == (0.0, 1.0)


def test_with_a_target_it_is_the_smallest_model_within_one_standard_error(job: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "y.npy", rng.standard_normal(300))
    target, results = {"target": str(tmp_path / "y.npy")}, []
    for select in ({"n_features": "auto"}, {"cv": 5, "cv_rule": "1se"}):
        whole = selecting(job, {"method": "lasso", **select}, input=target, cluster=None)
        results.append(sks.run(whole, fresh=True).selection.to_dict())
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("select", "message"),
    [
        ({"method": "greedy", "n_features": "all"}, 'whole number of at least 1, or "auto"'),
        ({"method": "greedy", "n_features": 5, "tolerance": 0.1}, "only for n_features"),
        ({"method": "auto", "tolerance": -1}, "a number above 0"),
        ({"method": "auto", "methods": ["lasso"]}, "lasso cannot compete.*without a target.*leave methods out"),
        ({"method": "auto-target", "methods": ["lasso"]}, "select.methods.*without a target.*leave methods out"),
        ({"method": "hvg", "n_features": "auto"}, "hvg cannot compete: it needs counts"),
    ],
)
def test_contradictions_are_named_before_anything_is_read(job: Any, select: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sks.run(selecting(job, select))


@pytest.mark.slow
@pytest.mark.parametrize("tolerance", [0.06, 0.08, 0.1])
def test_an_eighth_fewer_columns_than_those_proved_would_fail(job: Any, tmp_path: Path, tolerance: float) -> None:
    """By a run with just the largest number that failed; both ways there, from above and from below, are taken."""
    rng = np.random.default_rng(5)
    labels, rows = rng.integers(6, size=600), rng.standard_normal((600, 36))
    rows[np.arange(600)[:, None], 6 * labels[:, None] + np.arange(6)] += 2.5
    np.save(tmp_path / "r.npy", rows)
    common = {"input": {"url": str(tmp_path / "r.npy")}, "cluster": {"n_clusters": 6}}
    select = {"method": "auto", "normalize": False}
    proved = sks.run({**selecting(job, {**select, "tolerance_proved": tolerance}), **common})
    size = proved.selection.support.size
    assert proved.certificate.factor <= 1 + tolerance
    assert all(check.holds is not False for check in verify_run(proved.folder))
    failed = unsealed(proved.folder / "checkpoints" / "stages.json")["proof"]["result"]["failed"]
    assert size - max(1, size // 8) <= failed < size
    fewer = selecting(job, {**select, "n_features": failed}, output={"dir": str(tmp_path / "fewer")})
    assert sks.run({**fewer, **common}).certificate.factor > 1 + tolerance
    before = (proved.folder / "selection.json").read_bytes()
    assert (
        sks.run({**selecting(job, {**select, "tolerance_proved": tolerance}), **common}).selection.support.size == size
    )
    assert (proved.folder / "selection.json").read_bytes() == before


def test_a_proof_is_not_asked_of_the_spectrum_alone(job: Any) -> None:
    proved = selecting(job, {"method": "auto", "tolerance_proved": 0.1})
    proved["cluster"] = {**proved["cluster"], "certificate": "spectral"}
    with pytest.raises(ConfigError, match='certificate = "auto" or "blocks"'):
        sks.run(proved)


def test_a_plan_does_not_know_the_number_and_says_so(job: Any) -> None:
    from sketchselect.workflow.plan.forecast import forecast_job

    plan = forecast_job(load_job(selecting(job, {"method": "auto"})))
    assert any("columns" in note for note in plan.notes)


# `[cluster] range`: a table, a figure, a recommendation, and never another number of clusters.


@pytest.mark.slow
def test_a_range_is_published_and_changes_nothing_else(job, tmp_path):
    plain = sks.run(job(cluster={"n_clusters": 5}))
    assert not (tmp_path / "out" / "clusters.csv").exists()
    told = job(cluster={"n_clusters": 5, "range": [2, 6]}, output={"report": True})
    result = sks.run(told)
    with (tmp_path / "out" / "clusters.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [int(row["n_clusters"]) for row in table] == [2, 3, 4, 5, 6]
    assert [row["n_clusters"] for row in table if row["recommended"] == "1"] == ["3"]
    for row in table:
        assert float(row["lower_bound"]) <= float(row["objective"])
        assert -1 <= float(row["stability"]) <= 1
        assert -1 <= float(row["silhouette"]) <= 1
        assert float(row["calinski_harabasz"]) > 0 < float(row["davies_bouldin"])
        assert float(row["valley"]) >= 0
    # The rows have three clusters; the job still makes the five that it was told to.
    assert result.manifest["range_of_clusters"]["recommended"] == 3
    assert result.centers.tobytes() == plain.centers.tobytes()
    assert result.labels.max() == 4
    assert "into 5, by cluster.n_clusters" in result.summary()
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Number of clusters" in page
    assert "3 clusters: the sharpest elbow from 2 to 6" in page
    assert "This run used 5." in page
    assert "of the selected columns" in page
    assert "On the selected columns: 3 clusters: the sharpest elbow" in result.summary()
    again = sks.run(told)
    assert {s["name"]: s["reused"] for s in again.manifest["stages"]}["range of clusters"] is True
    sks.run(job(cluster={"n_clusters": 5}))
    assert not (tmp_path / "out" / "clusters.csv").exists()


def test_a_list_is_taken_as_it_is(job, tmp_path):
    sks.run(job(cluster={"range": [2, 4, 9]}))
    with (tmp_path / "out" / "clusters.csv").open() as file:
        assert [row["n_clusters"] for row in csv.DictReader(file)] == ["2", "4", "9"]


@pytest.mark.parametrize("given", [[5, 2], [3], [2, 2], [0, 4], "2-5"])
def test_a_range_that_is_none_is_refused(job, given):
    with pytest.raises(ConfigError, match="range"):
        sks.run(job(cluster={"range": given}))


def test_more_clusters_than_rows_are_refused_by_the_key(job):
    with pytest.raises(ConfigError, match=r"cluster\.range: .*400"):
        sks.run(job(cluster={"range": [2, 3, 400]}))
