"""Every file of a job's output folder, against NumPy and scikit-learn."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import zarr
from sklearn.metrics import normalized_mutual_info_score

import sketchselect as sks
from sketchselect.errors import DamagedFile, NotFinite, SourceError
from sketchselect.selectors import Selection
from sketchselect.workflow import tables
from sketchselect.workflow.stages.features import WriteColumns, sample_rows

from .oracles import scatter, unit

Job = Callable[..., dict[str, Any]]


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
    spectral, blocks, drop = result.certificates
    assert spectral.factor == pytest.approx(result.objective / bound, rel=1e-5)
    dropped = np.setdiff1d(np.arange(12), support)
    assert drop.objective == pytest.approx(result.inertia + (centred[:, dropped] ** 2).sum(), rel=1e-5)
    assert spectral.lower_bound < result.certificate.lower_bound == blocks.lower_bound <= result.objective

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
    assert blocks.sentence() in text
    assert str(out / "report.html") in text


def test_dropped_rows_have_no_cluster(job: Job, store: Path, rows: np.ndarray, tmp_path: Path) -> None:
    bad = [3, 45, 299]
    array: Any = zarr.open_array(str(store), mode="r+")
    array[bad[0], 0], array[bad[1], 11], array[bad[2], 5] = np.nan, np.inf, -np.inf
    with pytest.raises(NotFinite, match=r"row (3, column 0|45, column 11|299, column 5)"):
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


def test_credentials_are_nowhere_in_the_output(job: Job, rows: np.ndarray, tmp_path: Path) -> None:
    remote = zarr.storage.FsspecStore.from_url("memory://bucket/credentials/rows.zarr")
    zarr.create_array(remote, data=rows, chunks=(20, 12))
    given = {"url": "memory://bucket/credentials/rows.zarr", "storage_options": {"token": "hunter2-secret"}}
    result = sks.run(job(input=given, output={"report": True}))
    assert result.manifest["job"]["input"]["storage_options"] == ["token"]
    for path in (tmp_path / "out").rglob("*"):
        if path.is_file():
            assert b"hunter2" not in path.read_bytes(), path


def test_sampled_rows_are_those_of_smallest_hash_for_any_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    from sketchselect.linalg.hashing import derive_seed, uniforms
    from sketchselect.workflow.stages import features

    draws = uniforms(derive_seed(7, "view sample"), np.arange(5000, dtype=np.uint64))
    reference = np.sort(np.argsort(draws)[:100]).tolist()
    for piece in (1, 99, 4096, 10_000):
        monkeypatch.setattr(features, "_HASH_PIECE", piece if piece > 1 else 37)
        assert sample_rows(5000, 7, 100).tolist() == reference
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
    lines = list(csv.reader("".join(tables.scores_csv(selection())).splitlines()))
    assert lines[0] == ["rank", "column", "name", "score", "selected"]
    assert [line[1] for line in lines[1:]] == ["1", "2", "3", "0"]
    assert [line[4] for line in lines[1:]] == ["1", "1", "0", "0"]
    assert lines[4][3] == "", "no score"
    for line in lines[1:]:
        assert line[2][0] not in "=+-@\t\r"
        assert line[2].isprintable()


def test_selection_file_round_trip_and_damage(tmp_path: Path) -> None:
    path = tmp_path / "selection.json"
    path.write_text("".join(tables.selection_json(selection())))
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
        '{"method": "x", "support": ["a"], "scores": [1]}',
        '{"method": "x", "support": [9], "scores": [1]}',
        '{"method": "x", "support": [0], "scores": ["a"]}',
    ):
        path.write_text(damage)
        with pytest.raises(DamagedFile, match=r"selection\.json"):
            tables.read_selection(path)
    with pytest.raises(SourceError, match="no such file"):
        tables.read_selection(tmp_path / "none.json")


@pytest.mark.parametrize("heights", [(70, 30, 55, 90, 10), (20, 90), (40, 40, 30), (3, 2, 2, 4)])
def test_no_two_tasks_write_to_one_chunk_of_the_features(
    heights: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that did, at the same time, would leave NaN in place of the rows of one of them."""
    spans: list[tuple[int, int]] = []
    write = WriteColumns.__call__
    monkeypatch.setattr(
        WriteColumns, "__call__", lambda self, block: spans.append((block.start, block.stop)) or write(self, block)
    )
    table = pd.DataFrame(np.random.default_rng(0).standard_normal((sum(heights), 6)), columns=list("abcdef"))
    ends = np.cumsum(heights)
    (tmp_path / "rows").mkdir()
    for i, (height, end) in enumerate(zip(heights, ends, strict=True)):
        table[end - height : end].to_parquet(tmp_path / "rows" / f"{i}.parquet")
    result = sks.run(
        {
            "input": {"url": str(tmp_path / "rows")},
            "select": {"method": "variance", "n_features": 2, "normalize": False},
            "execution": {"cluster": "serial", "partition_bytes": 40 * 6 * 8},
            "output": {"dir": str(tmp_path / "out"), "report": False},
        }
    )
    features: Any = zarr.open_array(str(tmp_path / "out" / "features.zarr"), mode="r")
    assert [start // features.chunks[0] for start, _ in spans] == list(range(features.nchunks))
    assert all(stop - start <= features.chunks[0] for start, stop in spans)
    assert np.array_equal(features[:], table.to_numpy()[:, result.selection.support])
