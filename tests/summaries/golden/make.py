"""Writes the golden files of kinds and versions that have none yet; never rewrites one.

Run ``python tests/summaries/golden/make.py`` after adding a kind or raising its format version, and commit the new
file. The data come from a formula, so that a test can say what a file must hold without asking the code that wrote it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sketchselect.summaries import (
    KINDS,
    Bundle,
    CentroidSums,
    ColumnStats,
    FrequentDirections,
    Moments,
    Summary,
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
    """Return kind -> description."""
    return {
        "frequent-directions": FrequentDirections(size=2),
        "moments": Moments(),
        "column-stats": ColumnStats(),
        "centroid-sums": CentroidSums(n_clusters=4),
        "bundle": Bundle(exact=FrequentDirections(size=8), stats=ColumnStats()),
    }


def build(description: Summary) -> Summary:
    """Return the summary of the data in two blocks, labelled."""
    X = data()
    y = (np.arange(ROWS) % 4).astype(float if description.kind == "moments" else int)
    parts = [description.from_block(X[a:b], y[a:b], start=a) for a, b in ((0, 10), (10, ROWS))]
    return parts[0].merge(parts[1]).with_context(prepare=("l2",), feature_names=NAMES)


def path_of(kind: str, version: int) -> Path:
    """Return where the golden file of this kind and version lies."""
    return FOLDER / f"{kind}-v{version}.sks"


if __name__ == "__main__":
    for kind, description in descriptions().items():
        path = path_of(kind, KINDS[kind].format_version)
        if not path.exists():
            save(build(description), path)
            print(f"wrote {path.name}")
