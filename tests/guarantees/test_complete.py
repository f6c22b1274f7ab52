"""Every guarantee of the documentation has an entry here, with a formula, a reference, and at least 200 instances."""

import re
from pathlib import Path

import pytest

from . import instances

HERE = Path(__file__).resolve().parent
GUARANTEES = (HERE.parent.parent / "notebooks" / "reference" / "guarantees.md").read_text(encoding="utf-8")

ENTRIES = {
    "BatchDirections": "sketch",
    "FrequentDirections": "sketch sketch_far_from_zero",
    "Moments": "unequal_weights single_precision missing_values",
    "DecayedMoments": "fading",
    "DecayedDirections": "sketch",
    "RowSample": "row_identity",
    "TopValues": "values",
    "Groups": "values",
    "TargetHistogram": "values",
    "LevelCounts": "values",
    "Folds": "values",
    "ColumnStats": "unequal_weights",
    "CentroidSums": "unequal_weights",
    "LikelihoodSums": "likelihood",
    "LeverageSample": "leverage_sample",
    "LeverageScores": "leverage_scores",
    "BlockBound": "block_bound",
    "Bundle": "values",
    "StepStatistics": "values",
    "sketched-ridge": "sketch",
    "greedy": "copies",
    "pivoted-qr": "copies",
    "deterministic": "weighted_columns",
    "randomized": "weighted_columns",
    "hybrid": "weighted_columns",
    "leverage": "leverage_scores",
    "online-leverage": "leverage_sample",
    "osinsky": "osinsky",
    "auto": "auto",
    "sketched-lasso": "sketch",
    "hvg": "hvg",
    "variance": "variance",
    "thresholded-ols": "least_squares",
    "annealing": "least_squares",
    "lasso": "penalised_paths",
    "elastic-net": "penalised_paths",
    "mcp": "penalised_paths",
    "scad": "penalised_paths",
    "auto-target": "cross_validation",
    "logistic": "likelihood",
    "stability": "stability",
    "univariate": "univariate",
    "mrmr": "mrmr",
    "knockoffs": "knockoffs",
    "SketchedPCA": "components",
    "KMeans": "kmeans",
    "certify": "certificate",
    "certify_labels": "certificate",
    "certify_selection": "certificate least_squares_metric",
    "least_squares_metric": "least_squares_metric",
    "reassign": "reassign",
    "cluster_range": "cluster_range",
    "cv": "cross_validation",
}
"""The files of each name in the first column of the tables of `notebooks/reference/guarantees.md`."""

FILES = {file for files in ENTRIES.values() for file in files.split()}

BASELINES = {"mcfs", "laplacian-score"}
"""Methods of which nothing is promised."""

MEASURED = {"auto", "compare_preparations"}
"""Methods whose statement is measured: tests of their layer and benchmarks have it."""


def rows() -> list[tuple[set[str], str]]:
    """Return the names in the first cell of each row, and its last cell."""
    out = []
    for line in GUARANTEES.splitlines():
        if not line.startswith("|") or set(line) <= set("|- "):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        names = {re.split(r"[({]", name)[0].split(".")[-1] for name in re.findall(r"`([^`]+)`", cells[0])}
        # A method is named with its class.
        methods = {name for name in names if name[0].islower()}
        out.append((methods or names, cells[-1]))
    return [row for row in out if row[0]]


def test_every_guarantee_has_an_entry() -> None:
    named = {name for names, _ in rows() for name in names}
    assert named == set(ENTRIES) | BASELINES | MEASURED


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_nothing_is_promised_of_baselines(name: str) -> None:
    assert all(cell.startswith("baselines") for names, cell in rows() if name in names)


@pytest.mark.parametrize("name", sorted(MEASURED))
def test_what_is_measured_is_not_called_proved(name: str) -> None:
    assert all("not proved" in cell for names, cell in rows() if name in names)


def test_every_entry_is_a_file_and_every_file_an_entry() -> None:
    files = {path.stem.removeprefix("test_") for path in HERE.glob("test_*.py")} - {"complete"}
    assert files == FILES


@pytest.mark.parametrize("entry", sorted(FILES))
def test_an_entry_states_a_formula_and_runs_at_least_200_instances(entry: str) -> None:
    text = (HERE / f"test_{entry}.py").read_text(encoding="utf-8")
    statement = text.split('"""')[1]
    assert re.search(r"``|[<>=]", statement), "the docstring states no formula"
    own = re.search(r"^FAST, ALL = range\(\d+\), range\(\d+, (\d+)\)$", text, re.MULTILINE)
    assert int(own[1]) >= 200 if own else "each_instance" in text
    assert len(instances.FAST) + len(instances.ALL) >= 200


def test_no_guarantee_is_there_twice() -> None:
    first = [row.split(" | ")[0] for row in GUARANTEES.splitlines() if row.startswith("| `")]
    assert len(first) == len(set(first)), {name for name in first if first.count(name) > 1}
