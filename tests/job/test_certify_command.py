"""`sketchselect certify`, the job keys of certificates and reassignment, and what they leave in folder and report."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits

import sketchselect as sks
from sketchselect.errors import ConfigError

from .commands import cli, works


def shell(*words: Any) -> Any:
    return cli(*words, "--cluster", "serial")


def certified(*words: Any) -> Any:
    return json.loads(works("certify", *words, "--json", "--cluster", "serial").stdout)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every sixth digit, with labels that scikit-learn found."""
    folder = tmp_path_factory.mktemp("digits")
    X = load_digits().data[::6]
    np.save(folder / "rows.npy", X)
    np.save(folder / "labels.npy", KMeans(10, n_init=2, random_state=0).fit(X).labels_)
    return folder


@pytest.mark.slow
def test_anybodys_labels_are_certified_in_one_pass(digits: Path) -> None:
    rows, labels = np.load(digits / "rows.npy"), np.load(digits / "labels.npy")
    words = ("--labels", digits / "labels.npy", "--clusters", 10, "--block-rows", 100)
    outcome = certified(digits / "rows.npy", *words)
    direct = sks.certify_labels(rows, labels, 10, block_rows=100, client="serial")
    assert outcome["objective"] == pytest.approx(direct.objective, rel=1e-12)
    assert outcome["lower_bound"] == direct.lower_bound
    assert outcome["factor"] == pytest.approx(direct.factor, rel=1e-12)
    assert direct.lower_bound > sks.certify(rows, direct.objective, 10, block_rows=100, client="serial").lower_bound
    assert (outcome["rows_read"], outcome["method"], outcome["confidence"]) == (len(rows), "blocks", 1.0)
    assert outcome["bytes_read"] > 0
    assert outcome["sentence"] == direct.sentence()
    plain = shell("certify", digits / "rows.npy", *words)
    assert outcome["sentence"] in plain.stdout
    assert f"{len(rows)} rows" in plain.stdout


def test_weighted_rows(digits: Path, tmp_path: Path) -> None:
    rows, labels = np.load(digits / "rows.npy"), np.load(digits / "labels.npy")
    weights = np.random.default_rng(0).uniform(0.0, 2.0, len(rows))
    np.save(tmp_path / "weights.npy", weights)
    words = ("--clusters", 10, "--block-rows", 100, "--weight", tmp_path / "weights.npy")
    outcome = certified(digits / "rows.npy", "--labels", digits / "labels.npy", *words)
    oracle = sum(
        float(w @ ((X - w @ X / w.sum()) ** 2).sum(axis=1))
        for X, w in ((rows[labels == c], weights[labels == c]) for c in range(10))
    )
    assert outcome["objective"] == pytest.approx(oracle, rel=1e-12)
    again = certified(digits / "rows.npy", "--inertia", outcome["objective"], *words)
    # Without the labels, which balance the blocks, less is proved.
    assert again["lower_bound"] < outcome["lower_bound"] <= oracle
    np.save(tmp_path / "weights.npy", weights[1:])
    short = shell("certify", digits / "rows.npy", "--labels", digits / "labels.npy", *words)
    assert short.exit_code != 0
    assert "sample_weight" in short.stderr


@pytest.mark.slow
def test_a_folder_keeps_the_closer_of_two_that_always_hold(job: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    sks.run(job(output={"report": True}))
    out = tmp_path / "out"
    factors = [certified(out, "--block-rows", rows)["factor"] for rows in (300, 20, 300)]
    assert factors[0] < factors[1]
    for file in ("certificate.json", "manifest.json"):
        every = json.loads((out / file).read_text())["certificates"]
        assert [c["factor"] for c in every if c["method"] == "blocks"] == [factors[0]], file
    page = (out / "report.html").read_text()
    assert all(html.escape(c["sentence"], quote=False) in page for c in every)
    # One of a probability is a draw: the last one stands, or it would be a choice of the luckiest.
    for seed in (1, 2):
        last = certified(out, "--block-rows", 10, "--confidence", 0.6, "--fraction", 0.6, "--seed", seed)
        assert last["confidence"] == 0.6
    every = json.loads((out / "certificate.json").read_text())["certificates"]
    assert [c["factor"] for c in every if c["confidence"] == 0.6] == [last["factor"]]


def test_labels_that_leave_rows_out_are_refused(digits: Path, tmp_path: Path) -> None:
    """A bound of more rows than the objective would prove too much."""
    labels = np.load(digits / "labels.npy")
    labels[[3, 5]] = -1
    np.save(tmp_path / "gaps.npy", labels)
    told = shell("certify", digits / "rows.npy", "--labels", tmp_path / "gaps.npy", "--clusters", 10)
    assert told.exit_code == 2
    assert "2 of 300 rows have a negative label" in told.stderr


def test_dropped_rows_count_on_neither_side(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((60, 3))
    labels = (X[:, 0] > 0).astype(int)
    gappy, marked = X.copy(), labels.copy()
    gappy[[7, 30], 1], marked[[7, 30]] = np.nan, -1
    matrix = sks.open_matrix(gappy, nonfinite="drop_rows")
    outcome = sks.certify_labels(matrix, marked, 2, method="spectral", client="serial")
    kept = np.flatnonzero(marked >= 0)
    same = sks.certify_labels(X[kept], labels[kept], 2, method="spectral", client="serial")
    assert outcome.factor == pytest.approx(same.factor, rel=1e-9)


def test_a_folder_gains_certificates(job: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    result = sks.run(job(cluster={"certificate": "spectral"}, output={"report": True}))
    out = tmp_path / "out"
    certified(out, "--block-rows", 100)
    kept = json.loads((out / "certificate.json").read_text())["certificates"]
    assert [c["method"] for c in kept] == ["blocks"]
    assert kept[0]["objective"] == pytest.approx(result.objective, rel=1e-12)
    manifest = json.loads((out / "manifest.json").read_text())
    assert [c["method"] for c in manifest["certificates"]] == ["spectral", "spectral+drop", "blocks"]
    assert "certificate.json" in manifest["files"]
    assert kept[0]["sentence"] in (out / "report.html").read_text()
    # The same again replaces it; another bound stands beside it.
    certified(out)
    certified(out, "--method", "spectral")
    kept = json.loads((out / "certificate.json").read_text())["certificates"]
    assert [c["method"] for c in kept] == ["blocks", "spectral"]
    # A run that is made again does not keep what was said of the one before.
    sks.run(job())
    assert not (out / "certificate.json").exists()


def test_a_source_that_changed_is_not_certified(
    job: Callable[..., dict[str, Any]], store: Path, tmp_path: Path
) -> None:
    sks.run(job())
    zarr.open_array(str(store), mode="r+")[0, 0] = 100.0
    told = shell("certify", tmp_path / "out")
    assert told.exit_code != 0
    assert "rows.zarr: it has changed" in told.stderr


def test_a_summary_file_with_its_own_prepare_steps(digits: Path, tmp_path: Path) -> None:
    rows = np.load(digits / "rows.npy")
    summary = sks.summarize(rows, sks.Moments(), prepare=["l2"])
    sks.save(summary, tmp_path / "s.sks")
    objective = sks.kmeans_objective(rows, np.load(digits / "labels.npy"), 10, ["l2"])
    words = (tmp_path / "s.sks", "--clusters", 10, "--inertia", objective)
    assert certified(*words, "--prepare", "l2")["lower_bound"] == sks.certify(summary, objective, 10).lower_bound
    other = shell("certify", *words, "--prepare", "log1p")
    assert other.exit_code != 0
    assert "prepared by ['l2']" in other.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("{rows}",), "--n-clusters: missing"),
        (("{rows}", "--clusters", "3"), "either --labels"),
        (("{rows}", "--clusters", "3", "--labels", "{labels}", "--inertia", "1"), "either --labels"),
        (("{folder}/none.sks", "--clusters", "3", "--labels", "{labels}"), "holds no rows"),
        (("{folder}/none.sks", "--clusters", "3", "--inertia", "1", "--weight", "{labels}"), "holds no rows"),
        (("{rows}", "--clusters", "10", "--labels", "{labels}", "--method", "guess"), "not available"),
        (("{rows}", "--clusters", "10", "--labels", "{labels}", "--confidence", "1.5"), "confidence"),
        (("{rows}", "--clusters", "10", "--labels", "{labels}", "--method", "spectral", "--seed", "3"), "seed"),
    ],
)
def test_options_that_cannot_be_meant(digits: Path, words: tuple[str, ...], message: str) -> None:
    places = {"rows": digits / "rows.npy", "labels": digits / "labels.npy", "folder": digits}
    told = shell("certify", *(word.format(**places) for word in words))
    assert told.exit_code == 2
    assert message in told.stderr


def test_labels_are_certified_in_the_units_of_other_statistics(digits: Path) -> None:
    rows, labels = np.load(digits / "rows.npy"), np.load(digits / "labels.npy")
    statistics = sks.fit_prepare(7.0 * rows[::2] + 3.0, ["scale"]).statistics
    sks.save(statistics, digits / "units.sks")
    words = (
        "certify",
        digits / "rows.npy",
        "--labels",
        digits / "labels.npy",
        "--n-clusters",
        10,
        "--prepare",
        "scale",
    )
    own, other = (
        json.loads(works(*words, *more, "--json").stdout) for more in ((), ("--fitted", digits / "units.sks"))
    )
    units = np.where((sd := (7.0 * rows[::2]).std(axis=0)) > 0, sd, 1.0)
    apart = [rows[labels == c] / units - (rows[labels == c] / units).mean(axis=0) for c in range(10)]
    assert other["objective"] == pytest.approx(sum(float(np.square(each).sum()) for each in apart))
    assert own["objective"] != pytest.approx(other["objective"], rel=0.1)


def test_job_keys_choose_the_blocks(job: Callable[..., dict[str, Any]]) -> None:
    table = {"method": "blocks", "block_rows": 30, "confidence": 0.9, "fraction": 0.5}
    result = sks.run(job(cluster={"n_clusters": 6, "certificate": table}))
    blocks = result.certificates[1]
    assert blocks.method == "blocks"
    assert blocks.details["block_rows"] == 30
    assert 0 < blocks.details["n_solved"] < blocks.details["n_blocks"] == 10
    assert result.manifest["job"]["cluster"]["certificate"] == table
    for wrong in ({"block_rows": 1}, {"fraction": 0.0}, {"method": "spectral", "fraction": 0.5}, {"rows": 3}, "some"):
        with pytest.raises(ConfigError, match=r"cluster\.certificate: expected"):
            sks.run(job(cluster={"certificate": wrong}))


@pytest.mark.slow
def test_k_means_itself_is_certified_and_the_columns_promise_first(
    job: Callable[..., dict[str, Any]], rows: np.ndarray
) -> None:
    result = sks.run(job(cluster={"n_clusters": 6, "certificate": "blocks"}, output={"report": True}))
    selected = result.manifest["certificate_selected_columns"]
    assert selected["columns"] == "selected"
    assert selected["objective"] == pytest.approx(result.inertia, rel=1e-9)
    assert selected["lower_bound"] <= result.inertia
    promise = result.manifest["selection_bound"]
    # k-means is within `gamma` of the best for the columns, so it is within gamma + excess of the best for all.
    optimum_is_at_least = max(c.lower_bound for c in result.certificates)
    assert promise["lower_bound"] == optimum_is_at_least
    best_known = KMeans(6, n_init=10, random_state=0).fit(rows.astype(float)).inertia_
    assert result.objective <= (selected["factor"] + promise["excess"]) * best_known
    page = (result.folder / "report.html").read_text()
    assert "in the selected columns" in page
    assert "The best clustering of the" in page
    # Side by side with a closer certificate, the promise would look like a contradiction.
    assert (promise["sentence"] in result.summary()) == (result.certificate.factor >= 1 + promise["excess"])


@pytest.mark.parametrize(("excess", "is_shown"), [(0.0, True), (0.2, True), (0.3, False), (None, False)])
def test_a_promise_that_the_certificate_surpasses_is_not_beside_it(
    job: Callable[..., dict[str, Any]], excess: float | None, is_shown: bool
) -> None:
    result = sks.run(job(cluster={"certificate": "blocks"}))
    certificates = tuple(replace(one, factor=1.25) for one in result.certificates)
    promise = {"excess": excess, "sentence": "what the columns promise", "n_selected": 4, "n_features": 5}
    manifest = result.manifest | {"selection_bound": promise}
    changed = replace(result, certificates=certificates, manifest=manifest)
    assert ("what the columns promise" in changed.summary()) == is_shown
    of_all = replace(changed, manifest=manifest | {"selection_bound": promise | {"n_selected": 5}})
    assert "what the columns promise" not in of_all.summary(), "all columns promise nothing"


@pytest.mark.slow
def test_digits_from_twenty_pixels_are_certified_within_ten_percent(tmp_path: Path) -> None:
    """End to end, as a user does it: select, cluster, certify; then once more with one reassignment."""
    X = load_digits().data
    np.save(tmp_path / "digits.npy", X)
    whole: dict[str, Any] = {
        "input": {"url": str(tmp_path / "digits.npy")},
        "select": {"method": "deterministic", "n_features": 20, "n_clusters": 10},
        "cluster": {"n_clusters": 10, "n_init": 5, "certificate": "blocks"},
        "execution": {"cluster": "serial"},
        "output": {"dir": str(tmp_path / "out"), "report": False},
    }
    plain = sks.run(whole)
    assert plain.certificate.factor <= 1.10
    whole["cluster"]["reassign"] = True
    better = sks.run(whole)
    assert better.certificate.factor <= 1.071
    assert better.objective < plain.objective
    moved = better.manifest["reassigned"]
    assert moved["objective_before"] == pytest.approx(plain.objective, rel=1e-12)
    assert moved["n_rows"] == np.count_nonzero(better.labels != plain.labels)
    assert sks.kmeans_objective(X, better.labels, 10) == pytest.approx(better.objective, rel=1e-9)
    support = better.selection.support
    assert better.inertia == pytest.approx(sks.kmeans_objective(X[:, support], better.labels, 10), rel=1e-6)
    means = np.array([X[better.labels == c][:, support].mean(axis=0) for c in range(10)])
    np.testing.assert_allclose(better.centers, means, rtol=1e-9, atol=1e-9)
    again = sks.run(whole)
    assert again.objective == better.objective
    np.testing.assert_array_equal(again.labels, better.labels)


# `sketchselect certify SOURCE --labels FILE`: labels as people have them, and what is said of noise.

ROWS = np.random.default_rng(0).standard_normal((90, 3)) + 20.0 * np.repeat(np.eye(3), 30, axis=0)
LABELS = np.repeat([0, 1, 2], 30)
KINDS = (
    "npy",
    "npy from 1",
    "npy of text",
    "txt",
    "csv with a name",
    "csv with ids",
    "csv from 1 with a name",
    "labels.csv",
)
WORDS = np.array(["tumour", "immune", "stroma"])[LABELS]


def _write(path: Path, lines: list[Any]) -> Path:
    path.write_text("\n".join(map(str, lines)) + "\n")
    return path


def _npy(path: Path, values: np.ndarray) -> Path:
    np.save(path, values)
    return path


def _files(folder: Path) -> dict[str, Path]:
    return {
        "npy": _npy(folder / "a.npy", LABELS),
        "npy from 1": _npy(folder / "b.npy", LABELS + 1),
        "npy of text": _npy(folder / "c.npy", WORDS),
        "txt": _write(folder / "d.txt", list(LABELS)),
        "csv with a name": _write(folder / "e.csv", ["cell_type", *WORDS]),
        "csv with ids": _write(folder / "f.csv", ["id,labels", *(f"row{i},{v}" for i, v in enumerate(WORDS))]),
        "csv from 1 with a name": _write(folder / "g.csv", ["leiden", *(LABELS + 1)]),
        "labels.csv": _write(folder / "h.csv", ["name,cluster", *(f"r{i},{v}" for i, v in enumerate(LABELS))]),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_labels_are_read_from(kind: str, tmp_path: Path) -> None:
    rows = _npy(tmp_path / "rows.npy", ROWS)
    certificate = certified(rows, "--labels", _files(tmp_path)[kind], "--clusters", 3)
    expected = sum(((ROWS[j == LABELS] - ROWS[j == LABELS].mean(axis=0)) ** 2).sum() for j in range(3))
    assert certificate["objective"] == pytest.approx(expected, rel=1e-12)
    assert certificate["share"] > 0.9


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a,b", *("1,2" for _ in LABELS)], "none of them called 'labels'"),
        (["x", *LABELS, 7], "has shape (91,), the matrix has 90 rows"),
        ([*WORDS[:89], "other"], "more than 3 different values"),
        (["x", *WORDS[:87], "NA", '""', "nan"], "3 entries are missing, the first at row 87; only a clustering of all"),
        ([*LABELS[:89], 3], "row 89 has the label 3, but labels of 3 clusters are below 3"),
        ([*(LABELS[:89] + 1), 2.5], "row 89 has the label 2.5"),
    ],
)
def test_labels_that_cannot_be_are_refused(lines: list[Any], message: str, tmp_path: Path) -> None:
    rows, labels = _npy(tmp_path / "rows.npy", ROWS), _write(tmp_path / "labels.csv", lines)
    done = cli("certify", rows, "--labels", labels, "--clusters", 3, "--cluster", "serial")
    assert done.exit_code in (1, 2)
    assert message in done.stderr


@pytest.mark.slow
def test_random_labels_on_noise_are_not_praised(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = _npy(tmp_path / "noise.npy", rng.standard_normal((1000, 100)))
    labels = _npy(tmp_path / "random.npy", rng.integers(0, 5, 1000))
    done = works("certify", rows, "--labels", labels, "--clusters", 5, "--cluster", "serial")
    assert "% of what 5 clusters can gain over one cluster" in done.stdout
    assert "this says little about the clusters" in done.stdout
