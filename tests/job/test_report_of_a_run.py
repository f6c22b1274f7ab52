"""The page of a run: profiles of clusters, baselines, all selected columns, one total time; progress of sparse rows."""

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import sketchselect as sks
from sketchselect._text import format_seconds
from sketchselect.errors import SketchSelectError

from .commands import cli, refused


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """A job on three groups of rows that the first four of 30 columns tell apart."""
    rng = np.random.default_rng(3)
    groups = np.arange(300) % 3
    rows = rng.standard_normal((300, 30))
    rows[:, :4] += 6 * rng.permuted(np.tile([[0.0], [1.0], [2.0]], 4), axis=0)[groups]
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "groups.npy", groups)

    def make(**select: Any) -> dict[str, Any]:
        return {
            "input": {"url": str(tmp_path / "rows.npy"), "labels": str(tmp_path / "groups.npy")},
            "select": {"method": "greedy", "n_features": 4, "normalize": False, **select},
            "cluster": {"n_clusters": 3, "compare_all_columns": True},
            "execution": {"cluster": "serial"},
            "output": {"dir": str(tmp_path / "out")},
        }

    return make


def section(page: str, name: str) -> str:
    return html.unescape(re.search(rf'<section [^>]*id="{name}".*?</section>', page, re.DOTALL)[0])  # type: ignore[index]


def test_profiles_are_means_in_deviations_of_all_rows(job: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    result = sks.run(job())
    rows = np.load(tmp_path / "rows.npy")[:, result.selection.support]
    expected = np.array([(rows[result.labels == c].mean(0) - rows.mean(0)) / rows.std(0) for c in range(3)])
    np.testing.assert_allclose(json.loads((tmp_path / "out/report.json").read_text())["profiles"], expected, atol=1e-12)
    shown = section((tmp_path / "out/report.html").read_text(), "profiles")
    for j, column in enumerate(result.selection.support):
        cells = re.search(rf"column {column}</bdi></th>(.*?)</tr>", shown, re.DOTALL)[1]  # type: ignore[index]
        assert [float(text) for text in re.findall(r">([+-][\d.]+)<", cells)] == np.round(expected[:, j], 1).tolist()


def test_baselines_are_a_single_cluster_and_random_columns(job: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    result = sks.run(job())
    rows = np.load(tmp_path / "rows.npy")
    costs = {one["columns"]: one["objective"] for one in result.manifest["compared"]}
    assert costs["selected columns"] <= costs["all columns"] * 1.01
    assert costs["as many random columns"] > 1.1 * costs["selected columns"]
    shown = section((tmp_path / "out/report.html").read_text(), "compared")
    [one_cluster] = re.findall(r"all rows are one cluster</td><td class=\"n\">([\d,.]+)<", shown)
    assert float(one_cluster.replace(",", "")) == pytest.approx(((rows - rows.mean(0)) ** 2).sum(), rel=1e-5)


def test_an_order_is_not_drawn_as_importance_and_all_columns_are_listed(
    job: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    for method, is_order in (("greedy", True), ("variance", False)):
        settings = {"method": method, "n_features": 25, **({"normalize": False} if is_order else {})}
        one = job()
        result = sks.run({**one, "select": settings})
        page = (tmp_path / "out/report.html").read_text()
        assert ("no measure of importance" in section(page, "features")) == is_order
        assert ('id="scores"' in page) != is_order
        listed = section(page, "features")
        columns = re.findall(r'<td class="n">\d+</td><td class="n">(\d+)</td>', listed)
        assert sorted(map(int, columns)) == result.selection.support.tolist()
        assert 'href="scores.csv"' in listed
        assert (tmp_path / "out/scores.csv").exists()


def test_page_and_terminal_state_one_total_time(job: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    result = sks.run(job())
    total = format_seconds(result.manifest["seconds"])
    assert f"time: {total} (" in result.summary()
    assert f"The run took {total}," in section((tmp_path / "out/report.html").read_text(), "timings")
    assert sum(stage["seconds"] for stage in result.manifest["stages"]) <= result.manifest["seconds"]
    profiles = {stage["name"]: stage["profile"] for stage in result.manifest["stages"] if "profile" in stage}
    assert profiles["summarize"].keys() >= {"read", "prepare", "kernel", "merge", "wait"}
    # One slot: its time is that of the stage, or less.
    by_name = {stage["name"]: stage["seconds"] for stage in result.manifest["stages"]}
    assert all(sum(profile.values()) <= by_name[name] + 0.01 for name, profile in profiles.items())
    assert "Passes of “" in section((tmp_path / "out/report.html").read_text(), "timings")


@pytest.mark.parametrize("cluster", ["threads", pytest.param("local", marks=pytest.mark.slow)])
def test_progress_of_sparse_rows_ends_at_all_of_them(
    job: Callable[..., dict[str, Any]], tmp_path: Path, cluster: str
) -> None:
    scipy.sparse.save_npz(
        tmp_path / "rows.npz", scipy.sparse.random_array((400, 900), density=0.02, random_state=0).tocsr()
    )
    passes: list[list[Any]] = []

    def listen(event: str, *arguments: Any) -> None:
        if event == "start":
            passes.append([*arguments[:2], 0])
        elif event == "advance":
            passes[-1][2] += arguments[0]

    one = job() | {"execution": {"cluster": cluster, "partition_bytes": "4KiB"}, "cluster": {"n_clusters": 3}}
    one["input"] = {"url": str(tmp_path / "rows.npz")}
    one["prepare"] = {"steps": ["tf-idf"]}
    sks.run(one, progress=listen)
    assert {name for name, _, _ in passes} >= {"prepare, tf-idf", "summarize", "write features", "inertia"}
    assert all(done == total for _, total, done in passes), passes


def test_folders_that_cannot_be_written_are_refused_before_the_pass(
    job: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sketchselect.execution import LocalEngine

    def never(*_: Any) -> Any:
        raise AssertionError("a pass was begun")

    monkeypatch.setattr(LocalEngine, "run", never)
    # /proc takes no files, not even of root.
    with pytest.raises(SketchSelectError, match=r"/proc/out: the output folder cannot be made"):
        sks.run(job() | {"output": {"dir": "/proc/out"}})
    # The process may write there, and the workers, on other machines, may not.
    monkeypatch.setattr(LocalEngine, "can_write", lambda *_: False)
    with pytest.raises(SketchSelectError, match="the workers cannot write there"):
        sks.run(job())
    words = ("summarize", tmp_path / "rows.npy", "-o", "/proc/rows.sks", "--cluster", "serial")
    refused(cli(*words), 1, "/proc/rows.sks", "cannot be written")
