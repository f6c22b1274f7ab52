"""The command `compare`: what it shows is that of separate runs, of the rows without a fold, and of the columns."""

import csv
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sketchselect as sks
from sketchselect.selectors import make
from sketchselect.summaries import Folds, FrequentDirections
from sketchselect.workflow import compare
from sketchselect.workflow.compare import (
    SHARED_STAGES,
    _charged,
    compare_methods,
    compare_runs,
    overlap,
    ranking,
    same_source,
    to_rows,
    to_text,
)

from .commands import cli, refused, works

METHODS = ("greedy", "variance")


@pytest.fixture
def labelled(job: Callable[..., dict[str, Any]], tmp_path: Path) -> tuple[dict[str, Any], Path]:
    """A job with known labels, as a mapping and as a file."""
    from sketchselect.job.text import write_toml

    np.save(tmp_path / "known.npy", np.arange(300) % 3)
    whole = {**job(input={"labels": str(tmp_path / "known.npy")}), "select": {"method": "variance", "n_features": 5}}
    path = tmp_path / "job.toml"
    path.write_text(write_toml(whole))
    return whole, path


@pytest.mark.slow
def test_methods_are_those_of_runs_of_their_own(
    labelled: tuple[dict[str, Any], Path], rows: np.ndarray, tmp_path: Path
) -> None:
    whole, path = labelled
    done = works("compare", path, "--methods", ",".join(METHODS), "--json", "--csv", tmp_path / "table.csv")
    content = json.loads(done.stdout)
    unit = rows / np.linalg.norm(rows.astype(float), axis=1, keepdims=True)
    folds = sks.summarize(unit, Folds(FrequentDirections(12), 5))
    for one, method in zip(content["compared"], METHODS, strict=True):
        select = {"method": method, "n_features": 5, "normalize": "l2"}
        alone = sks.run({**whole, "select": select, "output": {"dir": str(tmp_path / method)}})
        assert one["support"] == alone.selection.support.tolist()
        assert one["objective"] == pytest.approx(alone.objective, rel=1e-6)
        assert one["nmi"] == pytest.approx(alone.nmi)
        assert one["factor"] == pytest.approx(alone.certificate.factor, rel=1e-3)
        without = [
            make(method, n_features_to_select=5).fit_summary(folds.complement(i)).support_.tolist() for i in range(5)
        ]
        stay = [len(set(support) & set(one["support"])) / 5 for support in without]
        assert one["stability"] == pytest.approx(np.mean(stay))
    a, b = (set(one["support"]) for one in content["compared"])
    assert content["overlap"] == [[1.0, len(a & b) / len(a | b)], [len(a & b) / len(a | b), 1.0]]
    with (tmp_path / "table.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["method"] for row in table] == list(METHODS)
    assert float(table[0]["overlap with variance"]) == content["overlap"][0][1]


def test_a_job_runs_in_its_folder_after_its_methods_were_compared(
    labelled: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    _, path = labelled
    works("compare", path, "--methods", ",".join(METHODS), "-q")
    works("run", path, "-q")


def test_auto_is_no_method_to_compare(labelled: tuple[dict[str, Any], Path]) -> None:
    refused(cli("compare", labelled[1], "--methods", "auto,greedy"), 2, "--methods: auto runs methods itself")


def test_the_notes_below_the_table_are_of_what_is_in_it(labelled: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    _, path = labelled
    methods = works("compare", path, "--methods", "greedy,variance", "-q").stdout.splitlines()
    runs = works("compare", path, path, "-q").stdout.splitlines()
    for lines, starts in ((methods, ("inertia:", "seconds:", "k-means:")), (runs, ("inertia:",))):
        assert tuple(line.split()[0] for line in lines if line.split()[0].endswith(":")) == starts


def test_targets_are_looked_for_before_a_job_is_run(labelled: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    _, path = labelled
    refused(cli("compare", path, "greedy"), 2, "error: greedy: no such file", "--methods greedy")
    assert not list(tmp_path.glob("**/manifest.json"))


@pytest.mark.filterwarnings("default:the runs read or prepare other columns of one source")
def test_finished_runs_and_job_files_are_read(labelled: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    whole, path = labelled
    other = sks.run({**whole, "select": {"method": "greedy", "n_features": 3}, "output": {"dir": str(tmp_path / "b")}})
    done = works("compare", path, tmp_path / "b")
    assert "their inertias cannot be compared" in done.output  # greedy normalises rows
    assert "inertia: compare it" not in done.output
    assert f"{other.objective:.6g}" in done.stdout
    # No run was made without folds of its rows, and none has a model.
    assert not [line for line in done.stdout.splitlines() if line.startswith(("stability", "R2"))]


def test_runs_of_different_rows_are_shown_with_a_warning(
    labelled: tuple[dict[str, Any], Path], rows: np.ndarray, tmp_path: Path
) -> None:
    whole, _ = labelled
    np.save(tmp_path / "other.npy", 2.0 * rows)
    folders = []
    for name, url in (("one", whole["input"]["url"]), ("same", whole["input"]["url"]), ("other", "other.npy")):
        source = {**whole["input"], "url": str(tmp_path / url)}
        folders.append(sks.run({**whole, "input": source, "output": {"dir": str(tmp_path / name)}}).folder)
    works("compare", *folders[:2])
    with pytest.warns(UserWarning, match="the runs are of different sources"):
        runs = compare_runs([str(folder) for folder in folders])
    assert "inertia: compare it" not in to_text(runs)
    assert "inertia: compare it" in to_text(runs[:2])


@pytest.mark.slow
def test_the_settings_of_the_job_hold_for_each_method_that_has_them(
    labelled: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    from sketchselect.job.text import write_toml

    whole, path = labelled
    select = {"method": "greedy", "n_features": 5, "normalize": False, "sketch_size": 40}
    certificate = {"method": "blocks", "block_rows": 20, "fraction": 0.5, "confidence": 0.9}
    whole = {**whole, "select": select, "cluster": {**whole["cluster"], "certificate": certificate}}
    path.write_text(write_toml(whole))
    done = works("compare", path, "--methods", ",".join(METHODS), "--json")
    content = json.loads(done.stdout)["compared"]
    for one, method in zip(content, METHODS, strict=True):
        alone = sks.run(
            {
                **whole,
                "select": {"method": method, "n_features": 5, "normalize": False},
                "output": {"dir": str(tmp_path / method)},
            }
        )
        assert one["support"] == alone.selection.support.tolist()
        assert one["objective"] == pytest.approx(alone.objective, rel=1e-6)
        least = min(alone.certificates, key=lambda c: c.factor)
        assert least.confidence == one["confidence"]
        # The figures of the sentence that the run ends with.
        (finished,) = compare_runs([str(alone.folder)])
        assert (finished.factor, finished.likely_factor) == (alone.certificate.factor, least.factor)
        assert finished.certificates == f"{alone.certificate.method}, {least.method}"
        # The summary is one of all methods, and the other one has no such parameter.
        assert one["unused"] == "sketch_size"
    assert {one["confidence"] for one in content} == {0.9}
    # One bound for all methods, so that factors compare objectives.
    bounds = [one["objective"] / one["likely_factor"] for one in content]
    assert bounds == pytest.approx([bounds[0]] * len(bounds), rel=1e-9)
    path.write_text(write_toml({**whole, "select": {"method": "auto", "n_features": "auto", "tolerance": 0.3}}))
    loose = json.loads(cli("compare", path, "--methods", "variance", "--json").stdout)["compared"][0]
    strict = cli("compare", path, "--methods", "variance", "--json", "--set", "select.tolerance=0.02")
    assert loose["n_features"] < json.loads(strict.stdout)["compared"][0]["n_features"]


def test_what_all_methods_share_is_charged_to_none() -> None:
    stages = [
        {"name": name, "seconds": 1.0, "reused": name == "select"} for name in ("select", "k-means", *SHARED_STAGES)
    ]
    assert [one["name"] for one in _charged(stages)] == ["k-means"]


def test_methods_of_the_same_columns_are_charged_the_same_clustering(
    labelled: tuple[dict[str, Any], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, path = labelled
    monkeypatch.setattr(compare, "time", SimpleNamespace(perf_counter=lambda: 0.0))  # selecting takes nothing
    first, same = compare_methods(str(path), ["greedy", "variance"], ["select.n_features=12"])
    assert first.support == same.support
    assert 0 < first.seconds == same.seconds


def test_mistakes_are_named(labelled: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    _, path = labelled
    refused(cli("compare", path, "--methods", "greedy,lasso"), 2, "lasso learns from a target", "compare a.toml b.toml")
    refused(cli("compare", path, "--methods", "greedy,x"), 2, "select: unknown selection method 'x'; known are")
    refused(cli("compare", path, tmp_path, "--methods", "greedy"), 2, "one job file")
    refused(cli("compare", tmp_path), 2, "manifest.json")


def test_models_are_ranked_by_their_error_on_held_out_rows(job: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    X = rng.standard_normal((400, 6))
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", X[:, 1] + 2.0 * X[:, 1] * X[:, 4] + rng.standard_normal(400))
    folders = {}
    for name, select in (("one", {"cv": 5}), ("two", {"cv": 5, "degree": 2}), ("all", {"n_features": 6})):
        source = {"url": str(tmp_path / "x.npy"), "target": str(tmp_path / "y.npy")}
        whole = job(input=source, cluster=None, output={"dir": str(tmp_path / name)})
        folders[name] = sks.run({**whole, "select": {"method": "lasso", **select}}).folder
    done = works("compare", folders["one"], folders["two"], "--json")
    one, two = json.loads(done.stdout)["compared"]
    assert two["error"] + one["standard_error"] < one["error"]
    for run, folder in ((one, "one"), (two, "two")):
        cv = json.loads((folders[folder] / "manifest.json").read_text())["model"]["cv"]
        assert (run["held_out"], run["error"]) == (cv["r2"], cv["mean_squared_error"])
    text = works("compare", folders["one"], folders["two"]).stdout
    assert f"Best on held-out rows: {folders['two']} with R2 {two['held_out']:.4f}" in text
    assert f"The standard error of {folders['two']}'s own error is {two['standard_error']:.3g}; " in text
    assert "k-means" not in text
    assert "\nmean squared error on held-out rows  " in text
    assert f", mean squared error {two['error']:.6g}, before" in text
    assert one["folds"] == two["folds"] == "5, seed 0"
    assert "folds differ" not in text
    text = works("compare", folders["two"], folders["all"]).stdout
    assert f"not ranked: '{folders['all']}'" in text
    assert "cv = 5" in text
    runs = compare_runs([str(folders["one"]), str(folders["two"])])
    assert "measured differently" in ranking([runs[0], replace(runs[1], misclassification=0.1)]), "other codes"


@pytest.mark.filterwarnings("default:all columns have the same variance")
def test_rounding_that_decides_is_said_with_the_table(labelled: tuple[dict[str, Any], Path]) -> None:
    _, path = labelled
    words = ("--set", 'prepare.steps=["standardise"]', "--set", "select.normalize=false")
    assert "same variance" in works("compare", path, "--methods", "variance", *words).stderr
    assert any("same variance" in note for note in sks.run(path, overrides=words[1::2]).manifest["notes"])


@pytest.mark.parametrize("n_clusters", [None, 2])
@pytest.mark.filterwarnings("default:.* was written again between the runs")
def test_models_of_other_content_are_not_ranked(
    job: Callable[..., dict[str, Any]], tmp_path: Path, n_clusters: int | None
) -> None:
    rng = np.random.default_rng(5)
    X = rng.standard_normal((200, 4))
    np.save(tmp_path / "y.npy", X[:, 1] + rng.standard_normal(200))
    source = {"url": str(tmp_path / "x.npy"), "target": str(tmp_path / "y.npy")}
    cluster = None if n_clusters is None else {"n_clusters": n_clusters}
    folders = []
    for name, scale in (("one", 1.0), ("same", 1.0), ("rewritten", 2.0)):
        if name != "same":
            np.save(tmp_path / "x.npy", scale * X)
        whole = job(input=source, cluster=cluster, output={"dir": str(tmp_path / name)})
        folders.append(sks.run({**whole, "select": {"method": "lasso", "cv": 5}}).folder)
    content = json.loads(works("compare", *folders[:2], "--json").stdout)
    assert content["same_source"]
    assert "held-out" in content["ranking"]
    done = works("compare", *folders[1:], "--json")
    content = json.loads(done.stdout)
    assert not content["same_source"]
    assert content["ranking"].startswith(f"The models are not ranked: {tmp_path / 'x.npy'} was written again between")
    assert done.stderr.count("cannot be compared") == 1
    assert content["ranking"] in works("compare", *folders[1:]).stdout


@pytest.mark.filterwarnings("default:.* was written again between the runs")
def test_rows_whose_file_has_another_time_are_the_same_where_their_summary_is(
    job: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    rng = np.random.default_rng(7)
    X = rng.standard_normal((200, 4))
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", X[:, 1] + rng.standard_normal(200))
    source = {"url": str(tmp_path / "x.npy"), "target": str(tmp_path / "y.npy")}
    folders = {}
    for second, (name, select) in enumerate({"one": {}, "two": {"cv_rule": "1se"}, "squares": {"degree": 2}}.items()):
        os.utime(tmp_path / "x.npy", (second, second))
        whole = job(input=source, cluster=None, output={"dir": str(tmp_path / name)})
        folders[name] = sks.run({**whole, "select": {"method": "lasso", "cv": 5, **select}}).folder
    runs = compare_runs([str(folders["one"]), str(folders["two"])])
    assert len({run.source["identity"] for run in runs}) == 2
    assert same_source(runs)
    assert ranking(runs).startswith("Best on held-out rows")
    # The summary of other columns is another one.
    done = works("compare", folders["one"], folders["squares"])
    assert "x.npy was written again between the runs, or its time was set" in done.stderr
    assert "whether its rows are the same is not known" in done.stdout


@pytest.mark.filterwarnings("ignore:groups .*folds")
def test_models_of_other_columns_of_one_table_are_ranked(job: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    table = pd.DataFrame(rng.standard_normal((200, 3)), columns=list("aby"))
    table["place"] = rng.choice(["north", "south"], 200)
    table["group"] = rng.integers(0, 9, 200)
    source = str(tmp_path / "table.parquet")
    table.to_parquet(source, index=False)
    variants: dict[str, dict[str, Any]] = {
        "all": {"input": {"key": "-place"}},
        "groups": {"input": {"key": "-place", "cv_groups": "group"}},
        "fewer": {"input": {"key": "-place,a"}},
        "levels": {"prepare": {"steps": ["one-hot"]}},
    }
    folders = []
    for name, sections in variants.items():
        inputs = {"url": source, "target": "y", **sections.get("input", {})}
        whole = job(**{**sections, "input": inputs, "cluster": None, "output": {"dir": str(tmp_path / name)}})
        folders.append(sks.run({**whole, "select": {"method": "lasso", "cv": 5}}).folder)
    runs = compare_runs([str(folder) for folder in folders])
    assert len({run.source["identity"] for run in runs}) == len(runs)
    assert "on held-out rows" in ranking(runs)
    assert "folds differ" not in ranking([runs[0], runs[2]])
    alike = [runs[1], replace(runs[1], name="again", error=(runs[1].error or 0) * (1 + 1e-13))]
    assert "and again have the same mean squared error on held-out rows" in ranking(alike)
    assert ", seed 0, groups of group" in ranking(runs[:2])
    assert "5, seed 1" in ranking([runs[0], replace(runs[1], folds="5, seed 1")])
    # Selections of no column are equal.
    none = [replace(run, support=(), feature_names=()) for run in runs[:2]]
    numbered = replace(runs[2], support=(0,), feature_names=("b",))
    assert overlap([*none, numbered]) == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    # Columns are compared by name, where all have names.
    assert overlap([numbered, replace(numbered, support=(1,))]) == [[1, 1], [1, 1]]
    assert overlap([numbered, replace(numbered, support=(1,), feature_names=None)]) == [[1, 0], [0, 1]]
    assert all(run.feature_names is not None for run in runs)
    assert not {"source", "support", "feature_names"} & set(to_rows(runs)[0])
