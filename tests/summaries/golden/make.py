"""Writes the golden files of kinds and versions that have none yet; never rewrites one.

Run ``python tests/summaries/golden/make.py`` after adding a kind or raising its format version, and commit the new
file. The data come from a formula, so that a test knows the content of a file without the code that wrote it.
"""

import sys
from pathlib import Path

import numpy as np

from sketchselect.summaries import (
    BlockBound,
    Bundle,
    CentroidSums,
    ColumnStats,
    ComomentPanel,
    DecayedDirections,
    DecayedMoments,
    Folds,
    FrequentDirections,
    Groups,
    LeverageSample,
    LeverageScores,
    LikelihoodSums,
    Moments,
    RowSample,
    StepStatistics,
    Summary,
    TargetHistogram,
    TopValues,
    moment_forms,
    save,
)

FOLDER = Path(__file__).parent
ROWS, COLUMNS = 24, 40
NAMES = tuple(f"gene {j} \u03b2<&>" for j in range(COLUMNS))


def data() -> np.ndarray:
    """Small whole numbers, so that every sum is exact whatever its order."""
    i, j = np.arange(ROWS)[:, None], np.arange(COLUMNS)[None, :]
    return ((i * 7 + j * 11 + i * j) % 17 - 8).astype(float)


def descriptions() -> dict[str, Summary]:
    """Return name of the file -> description: one for each kind, named by it, and one for each form of a record.

    A kind that is not listed has the first description of it in the laws.
    """
    from tests.summaries.test_laws import LAWS

    listed = {
        "frequent-directions": FrequentDirections(size=2),
        "moments": Moments(),
        "moments-qr": Moments(method="qr"),
        "moments-pairwise": Moments(missing="pairwise"),
        "moments-degree-2": Moments(degree=2),
        "moments-classes": Moments(classes=["a", "b", "c", "d"]),
        "decayed-directions": DecayedDirections(size=2, half_life=1),
        "decayed-moments": DecayedMoments(half_life=1),
        "folds": Folds(Moments(), n_folds=2, seed=3),
        "groups": Groups(ColumnStats(), [0, 1, 2, 3]),
        "top-values": TopValues(5),
        "target-histogram": TargetHistogram(range(-8, 8, 2), target_edges=[1, 2, 3]),
        "comoment-panel": ComomentPanel(1, 5),
        "column-stats": ColumnStats(),
        "centroid-sums": CentroidSums(n_clusters=4),
        "leverage-sample": LeverageSample(sampling_rate=2.0, ridge=100.0, seed=5),
        "leverage-scores": LeverageScores(np.tril(np.ones((COLUMNS, COLUMNS))) + 9 * np.eye(COLUMNS), 1.0),
        "likelihood-sums": LikelihoodSums(
            "binomial",
            [[0.5, -1, 1], [0.5, 0, 0]],
            [[0, -1, 0, 0.25], [0, 3, 0, 0.0], [1, -1, 0, 0.5]],
            mean=np.arange(COLUMNS) % 5,
            scale=np.arange(COLUMNS) % 3,
            classes=["a", "b"],
            l1_ratio=[1.0, 0.5],
            n_folds=2,
        ),
        "row-sample": RowSample(7, seed=5, center=np.arange(COLUMNS) % 3, spread=900.0),
        "row-sample-rows": RowSample(3, seed=6),
        "row-sample-classes": RowSample(3, seed=6, classes=[0, 1, 2]),
        "block-bound": BlockBound(n_clusters=2, block_rows=12),
        "step-statistics": StepStatistics({"0 tf-idf": ColumnStats(), "2 standardise": ColumnStats()}),
        "bundle": Bundle(exact=FrequentDirections(size=8), stats=ColumnStats()),
    }
    return {laws.description.kind: laws.description for laws in reversed(LAWS.values())} | listed


def weights() -> np.ndarray:
    """Return the weights of the rows in files that have a row of weight 0."""
    return (np.arange(ROWS) != 3).astype(float)


def build(description: Summary, sample_weight: np.ndarray | None = None) -> Summary:
    """Return the summary of the data in two blocks, labelled."""
    # Products of all columns would make a file of megabytes.
    X = data()[:, :5] if getattr(description, "degree", 1) == 2 else data()
    y = (np.arange(ROWS) % 4).astype(int if description.kind == "centroid-sums" else float)
    if getattr(description, "classes", None):
        y = np.array(description.classes)[np.arange(ROWS) % len(description.classes)]
    parts = []
    for a, b in ((0, 10), (10, ROWS)):
        part = None if sample_weight is None else sample_weight[a:b]
        parts.append(description.from_block(X[a:b], y[a:b], sample_weight=part, start=a))
    return parts[0].merge(parts[1]).with_context(prepare=("l2",), feature_names=NAMES[: X.shape[1]])


def path_of(name: str, version: int) -> Path:
    """Return where the golden file of this kind (or form of it) and version lies."""
    return FOLDER / f"{name}-v{version}.sks"


if __name__ == "__main__":
    sys.path.insert(0, str(FOLDER.parents[2]))
    summaries = [(name, build(description)) for name, description in descriptions().items()]
    summaries += [(name, build(descriptions()[name], weights())) for name in ("moments", "decayed-moments")]
    # Few rows of so many columns that they stay rows would make a large file.
    moment_forms.is_few = lambda n_rows, width: True
    summaries += [(name, build(descriptions()[name])) for name in ("moments", "decayed-moments")]
    for name, summary in summaries:
        path = path_of(name, summary.written_version)
        if not path.exists():
            save(summary, path)
            print(f"wrote {path.name}")
