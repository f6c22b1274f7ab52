"""Jobs and commands on counts: highly variable genes with and without batches, and samples of rows in summary files."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import sketchselect as sks
from sketchselect.errors import ConfigError

from .commands import cli, works


@pytest.fixture
def cells(tmp_path: Path) -> tuple[np.ndarray, np.ndarray]:
    """300 cells of 40 genes from two batches, three genes of which mark groups of cells; also as files."""
    rng = np.random.default_rng(8)
    X = rng.poisson(np.geomspace(0.2, 8.0, 40), (300, 40))
    X[:60, [4, 17, 30]] += rng.poisson(12.0, (60, 3))
    batch = np.array(["morning", "evening"])[np.arange(300) % 2]
    np.save(tmp_path / "cells.npy", X)
    np.save(tmp_path / "batch.npy", batch)
    return X, batch


def job(folder: Path, **select: object) -> dict[str, dict[str, object]]:
    return {
        "input": {"url": str(folder / "cells.npy")},
        "select": {"method": "hvg", "n_features": 3, "trend": "quadratic", **select},
        "cluster": {"n_clusters": 2},
        "execution": {"cluster": "serial", "partition_bytes": "16KiB"},
        "output": {"dir": str(folder / "out")},
    }


@pytest.mark.parametrize("batches", [False, True])
def test_highly_variable_genes_as_a_job(cells: tuple[np.ndarray, np.ndarray], tmp_path: Path, batches: bool) -> None:
    X, batch = cells
    whole = job(tmp_path, batches=batches)
    if batches:
        whole["input"]["target"] = str(tmp_path / "batch.npy")
    result = sks.run(whole)
    direct = sks.HighlyVariableGenes(3, batches=batches, trend="quadratic").fit(X, batch)
    assert result.selection.support.tolist() == direct.support_.tolist() == [4, 17, 30]
    assert np.array_equal(result.selection.scores, direct.scores_)
    assert result.selection.diagnostics["n_batches"] == 1 + batches
    assert "most clipped values" in (result.folder / "report.html").read_text()
    again = sks.run(whole)
    assert all(stage["reused"] for stage in again.manifest["stages"] if stage["name"] in ("summarize", "k-means"))


def test_batches_need_a_target_and_too_few_values_are_told(
    cells: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"input\.target: missing; select\.batches = true needs one"):
        sks.run(job(tmp_path, batches=True))
    with pytest.raises(ConfigError, match=r"select\.batches: expected true or false"):
        sks.run(job(tmp_path, batches="batch.npy"))


def test_a_job_reads_the_rows_again_where_too_few_values_were_kept(
    cells: tuple[np.ndarray, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    X = cells[0].copy()
    X[[3, 50, 99], [20, 21, 20]] = 20000
    np.save(tmp_path / "cells.npy", X)
    expected = sks.HighlyVariableGenes(3, trend="quadratic").fit(X)
    assert expected.selection_.diagnostics["most_clipped_values"] >= 1
    for reused in (False, True):
        result = sks.run(job(tmp_path, top_values=1), progress=True)
        assert np.array_equal(result.selection.scores, expected.scores_)
        assert result.selection.parameters["top_values"] > 1
        assert ("reading the rows again" in capsys.readouterr().err) is not reused
        assert {s["name"]: s["reused"] for s in result.manifest["stages"]}["collect"] is reused
    kept = sks.load(result.folder / "columns.sks").size
    assert kept == result.selection.parameters["top_values"]
    # With enough from the start nothing of that is left.
    result = sks.run(job(tmp_path))
    assert np.array_equal(result.selection.scores, expected.scores_)
    assert not (result.folder / "columns.sks").exists()


def test_selection_from_merged_files_of_two_halves(cells: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    X, batch = cells
    for name, part in (("a", slice(0, 140)), ("b", slice(140, 300))):
        np.save(tmp_path / f"{name}.npy", X[part])
        np.save(tmp_path / f"{name}-batch.npy", batch[part])
        works(
            *("summarize", tmp_path / f"{name}.npy", "-o", tmp_path / f"{name}.sks", "--no-sketch"),
            *("--top-values", 16, "--batches", tmp_path / f"{name}-batch.npy", "--sample", 50, "--cluster", "serial"),
            *("--after", part.start),
        )
    files = [tmp_path / f"{name}.sks" for name in "ab"]
    works("merge", *files, "-o", tmp_path / "all.sks")
    for method, settings in (("hvg", ["--set", "trend=quadratic"]), ("laplacian-score", []), ("mcfs", [])):
        out = tmp_path / f"{method}.json"
        works("select", tmp_path / "all.sks", "--method", method, "--n-features", 3, "-o", out, *settings)
        outcome = json.loads(out.read_text())
        if method == "hvg":
            assert outcome["support"] == [4, 17, 30]
            assert outcome["diagnostics"]["n_batches"] == 2
        else:
            assert outcome["diagnostics"]["n_sampled_rows"] == 50


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batches", "batch.npy"], "add --top-values"),
        (["--top-values", "8", "--batches", "batch.npy", "--target", "batch.npy"], "make two files"),
    ],
)
def test_options_that_contradict_each_other(
    cells: tuple[np.ndarray, np.ndarray], tmp_path: Path, options: list[str], message: str
) -> None:
    done = cli("summarize", tmp_path / "cells.npy", "-o", tmp_path / "x.sks", *options)
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


def test_inspect_counts_what_a_sparse_source_stores(tmp_path: Path) -> None:
    values = np.zeros((50, 40), dtype=np.int32)
    values[::2, 3] = 7
    scipy.sparse.save_npz(tmp_path / "few.npz", scipy.sparse.csr_array(values))
    told = cli("inspect", tmp_path / "few.npz").output
    assert "50 rows x 40 columns, int32" in told
    assert "sparse: 25 entries, 1.25 % of all values; 200 B" in told
    assert "1 partition of 50 rows" in told


def test_one_job_selects_on_raw_counts_and_clusters_on_logs(
    cells: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    X, steps = cells[0], ["library-size", "log1p"]
    result = sks.run({**job(tmp_path), "prepare": {"steps": steps}})
    assert np.array_equal(result.selection.scores, sks.HighlyVariableGenes(3, trend="quadratic").fit(X).scores_)
    assert result.manifest["notes"] == []
    logs = np.log1p(X * (1e4 / X.sum(axis=1, keepdims=True)))
    written = sks.open_matrix(result.folder / "features.zarr").read_rows(0, 300)
    np.testing.assert_allclose(written, logs[:, result.selection.support], rtol=1e-12)
    assert {s["name"]: s["reused"] for s in result.manifest["stages"]}["collect"] is False
    with pytest.raises(ConfigError, match=r"select\.method: hvg selects columns of raw counts, and after 'fourier'"):
        sks.run({**job(tmp_path), "prepare": {"steps": [{"step": "fourier", "n_components": 8}]}})


def test_values_that_are_no_counts_are_noted(cells: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    np.save(tmp_path / "cells.npy", np.log1p(cells[0]))
    result = sks.run(job(tmp_path))
    [note] = result.manifest["notes"]
    assert note.startswith("hvg: values are not whole numbers")
    assert note in (result.folder / "report.html").read_text()
    with pytest.warns(UserWarning, match="raw counts are needed"):
        sks.HighlyVariableGenes(3, trend="quadratic").fit(np.log1p(cells[0]))
