"""`sketchselect evaluate`, accuracy in manifest and report, and the clusters of named rows."""

import csv
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import zarr
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

import sketchselect as sks
from sketchselect.readers import open_vector
from sketchselect.workflow import agreement

from .commands import cli

Job = Callable[..., dict[str, Any]]


def shell(*words: Any) -> Any:
    return cli("evaluate", *words)


@pytest.fixture
def cells(rows: np.ndarray, tmp_path: Path) -> Path:
    """The rows as an AnnData store with names and types, three of them unknown."""
    kinds = pd.Categorical(np.array(["stem", "basal", "immune"])[np.arange(len(rows)) % 3])
    obs = pd.DataFrame({"kind": kinds}, index=[f"=cell{i}" if i == 4 else f"cell{i}" for i in range(len(rows))])
    obs.loc[["cell0", "cell8", "cell100"], "kind"] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        anndata.AnnData(rows, obs=obs).write_zarr(tmp_path / "cells.zarr")
    return tmp_path / "cells.zarr"


def test_a_run_against_the_types_in_its_store(cells: Path, job: Job, tmp_path: Path) -> None:
    result = sks.run(job(input={"url": str(cells)}, execution={"partition_bytes": "64KiB"}))
    told = shell(tmp_path / "out", "--labels", "obs/kind", "--json")
    assert told.exit_code == 0, told.output
    outcome = json.loads(told.stdout)
    known = np.arange(300) % 3
    kept = np.setdiff1d(np.arange(300), [0, 8, 100])
    assert outcome["nmi"] == pytest.approx(normalized_mutual_info_score(known[kept], result.labels[kept]), abs=1e-12)
    assert outcome["ari"] == pytest.approx(adjusted_rand_score(known[kept], result.labels[kept]), abs=1e-12)
    assert outcome["n_rows"] == np.sum(outcome["table"]) == 297
    assert outcome["left_out"] == {"no_known_label": 3, "no_cluster": 0}
    held = [
        outcome["table"][outcome["classes"].index(a)][outcome["clusters"].index(int(b))] for a, b in outcome["matching"]
    ]
    assert outcome["accuracy"] == sum(held) / 297
    plain = shell(tmp_path / "out", "--labels", cells / "obs" / "kind")
    assert f"NMI {outcome['nmi']:.4f}" in plain.stdout
    assert "3 rows without a known label" in plain.stdout
    assert "stem" in plain.stdout


def test_named_rows_and_their_clusters(cells: Path, job: Job, tmp_path: Path) -> None:
    result = sks.run(job(input={"url": str(cells)}, execution={"partition_bytes": "64KiB"}))
    with (tmp_path / "out" / "labels.csv").open(newline="") as stream:
        header, *lines = list(csv.reader(stream))
    assert header == ["row", "cluster"]
    assert [int(cluster) for _, cluster in lines] == result.labels.tolist()
    assert [name for name, _ in lines][:6] == ["cell0", "cell1", "cell2", "cell3", "'=cell4", "cell5"]
    assert "labels.csv" in result.manifest["files"]
    unnamed = sks.run(job())
    assert "labels.csv" not in unnamed.manifest["files"]
    assert not (tmp_path / "out" / "labels.csv").exists()


def test_any_two_sources_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    known, outcome = rng.integers(-1, 3, 1000), rng.integers(0, 5, 1000)
    outcome[[3, 999]] = -1
    np.savez(tmp_path / "known.npz", y=known, X=rng.random((1000, 2)))
    zarr.create_array(str(tmp_path / "found.zarr"), data=outcome, chunks=(100,))
    monkeypatch.setattr(agreement, "PIECE_ROWS", 64)
    monkeypatch.setattr(agreement, "FIRST_ROWS", 16)
    content = json.loads(shell(tmp_path / "found.zarr", "--labels", tmp_path / "known.npz", "--json").stdout)
    kept = outcome >= 0
    assert content["nmi"] == pytest.approx(normalized_mutual_info_score(known[kept], outcome[kept]), abs=1e-12)
    assert content["classes"] == [-1, 0, 1, 2], "a negative number is a class like any other"
    assert content["left_out"] == {"no_known_label": 0, "no_cluster": 2}
    assert np.sum(content["table"]) == 998


def test_an_empty_text_is_no_known_label() -> None:
    labels = open_vector(np.array(["a", "", "b", "nan", "a"]), 5)
    comparison = agreement.compare_labels(labels, np.array([0, 1, 1, 0, 0]))
    assert (comparison.n_unknown, comparison.table.classes.tolist()) == (2, ["a", "b"])


def test_labels_of_long_text_are_in_memory_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    # All at once, those of 400 characters took more memory than a job states.
    texts = np.array([f"{i % 3}".ljust(400, ".") for i in range(20_000)])
    labels, pieces = open_vector(texts, len(texts)), []

    def read(start: int, stop: int, read: Callable[..., Any] = labels.read) -> Any:
        pieces.append(read(start, stop))
        return pieces[-1]

    monkeypatch.setattr(labels, "read", read)
    table = agreement.compare_labels(labels, np.arange(20_000) % 6).table
    assert sum(map(len, pieces)) == 20_000
    assert max(piece.nbytes for piece in pieces) <= agreement.PIECE_NBYTES
    assert np.array_equal(
        table.counts > 0, [[True, False, False] * 2, [False, True, False] * 2, [False, False, True] * 2]
    )
    assert table.n_rows == 20_000


def test_accuracy_in_manifest_and_report(job: Job, tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", np.arange(300) % 3)
    compared = job(
        input={"labels": str(tmp_path / "labels.npy")}, output={"report": True}, cluster={"compare_all_columns": True}
    )
    result = sks.run(compared)
    stated = result.manifest["agreement"]
    table = agreement.compare_labels(open_vector(np.arange(300) % 3, 300), result.labels).table
    assert stated["accuracy"] == table.accuracy
    assert stated["accuracy_all_columns"] == 1.0
    assert "Accuracy (best matching)" in (tmp_path / "out" / "report.html").read_text()
    assert f"accuracy {table.accuracy:.4f}" in shell(tmp_path / "out").stdout, "the job's own labels"


def test_what_cannot_be_compared_is_said(job: Job, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(10))
    np.save(tmp_path / "b.npy", np.arange(9))
    np.save(tmp_path / "wide.npy", np.zeros((10, 2)))
    np.save(tmp_path / "none.npy", np.full(10, np.nan))
    np.save(tmp_path / "many.npy", np.arange(5000.0))

    def refused(*words: Any) -> str:
        told = shell(*words)
        assert told.exit_code != 0
        assert "unexpected" not in told.stderr
        assert len(told.stderr.strip().splitlines()) == 1
        return str(told.stderr)

    assert "--labels: missing" in refused(tmp_path / "a.npy")
    assert "b.npy: has 9 labels" in refused(tmp_path / "a.npy", "--labels", tmp_path / "b.npy")
    assert "shape (10, 2)" in refused(tmp_path / "a.npy", "--labels", tmp_path / "wide.npy")
    assert "no row has both" in refused(tmp_path / "a.npy", "--labels", tmp_path / "none.npy")
    assert "5000 labels against 5000" in refused(tmp_path / "many.npy", "--labels", tmp_path / "many.npy")
    assert "nowhere.npy" in refused(tmp_path / "nowhere.npy", "--labels", tmp_path / "a.npy")
    sks.run(job(cluster=None))
    assert "clustered nothing" in refused(tmp_path / "out", "--labels", tmp_path / "a.npy")
    (tmp_path / "out" / "manifest.json").write_text("{")
    assert "damaged" in refused(tmp_path / "out", "--labels", tmp_path / "a.npy")


def test_a_folder_that_is_not_there_is_named_before_its_labels(tmp_path: Path) -> None:
    told = shell(tmp_path / "nowhere")
    assert told.exit_code == 1
    assert "nowhere" in told.stderr
    assert "--labels" not in told.stderr


def test_numbers_with_missing_entries_and_the_noise_of_dbscan(tmp_path: Path) -> None:
    pd.DataFrame({"known": [0, 1, -1, 1, None]}).to_csv(tmp_path / "known.csv", index=False)
    pd.DataFrame({"cluster": [2, 3, 3, 3, 2]}).to_csv(tmp_path / "clusters.csv", index=False)
    outcome = shell(tmp_path / "clusters.csv", "--labels", tmp_path / "known.csv")
    assert "-1 is counted as a label" in outcome.stdout
    assert ".0" not in outcome.stdout.split("matched cluster")[1]
    as_json = json.loads(shell(tmp_path / "clusters.csv", "--labels", tmp_path / "known.csv", "--json").stdout)
    assert as_json["classes"] == [-1, 0, 1]
    assert as_json["matching"] == [["0", "2"], ["1", "3"]]


def test_whole_numbers_that_named_the_rows_of_a_run_name_those_of_its_labels(
    rows: np.ndarray, job: Job, tmp_path: Path
) -> None:
    order, ids = np.random.default_rng(0).permutation(len(rows)), 1000 + 7 * np.arange(len(rows))
    frame = pd.DataFrame(rows, columns=[f"x{j}" for j in range(rows.shape[1])]).assign(norad=ids)
    frame.to_parquet(tmp_path / "rows.parquet")
    known = pd.DataFrame({"norad": ids, "labels": np.arange(len(rows)) % 3}).iloc[order]
    known.to_csv(tmp_path / "known.csv", index=False)
    inputs = {"url": str(tmp_path / "rows.parquet"), "row_names": "norad", "labels": str(tmp_path / "known.csv")}
    result = sks.run(job(input=inputs, execution={"partition_bytes": "1MiB"}))
    done = shell(result.folder, "--labels", tmp_path / "known.csv")
    assert done.exit_code == 0, done.stderr
    assert "'norad'" in done.stdout
